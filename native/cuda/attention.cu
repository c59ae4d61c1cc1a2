// Attention over the edges of a row, forward along in-edges and backward along out-edges: the sums of
// native/cpu/attention_body.h. A warp takes a row and one head; a hub's row is the block's.
//
// A warp reads 32 edges at once: each lane makes one edge's weight, then all of them sum rows, as in spmm.cu. Forward
// keeps the largest score so far and scales what it has when a larger one comes.
#include <math.h>

#include <type_traits>

#include "../cpu/edges.h"
#include "common.h"
#include "philox.cuh"

namespace grinnder {
namespace {

constexpr int warps = block_threads / 32;
constexpr int64_t hub_edges = 2048;  // a row with more is the whole block's
constexpr unsigned all_lanes = 0xFFFFFFFFu;

__host__ __device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int apart = 16; apart; apart /= 2) v += __shfl_xor_sync(all_lanes, v, apart);
    return v;
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
    for (int apart = 16; apart; apart /= 2) v = fmaxf(v, __shfl_xor_sync(all_lanes, v, apart));
    return v;
}

template <int vector>
__device__ __forceinline__ void get(float (&v)[vector], const float *from) {
    if constexpr (vector == 4) {
        const float4 f = __ldg(reinterpret_cast<const float4 *>(from));
        v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    } else {
        v[0] = __ldg(from);
    }
}

template <int vector>
__device__ __forceinline__ void put(float *to, const float (&v)[vector]) {
    if constexpr (vector == 4) *reinterpret_cast<float4 *>(to) = make_float4(v[0], v[1], v[2], v[3]);
    else *to = v[0];
}

// Equal edges before this one in its row; they are neighbours, so whether an edge is one of them is monotonic.
__device__ __forceinline__ uint32_t occurrence(const int32_t *indices, int64_t row_begin, int64_t edge) {
    const int32_t mine = indices[edge];
    if (edge == row_begin || indices[edge - 1] != mine) return 0;
    int64_t low = row_begin, high = edge - 1;  // the first of them lies in [low, high]
    for (int64_t step = 1; high - step > row_begin && indices[high - step] == mine; step *= 2) high -= step;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (indices[middle] == mine) high = middle;
        else low = middle + 1;
    }
    return static_cast<uint32_t>(edge - low);
}

// The sums of one row, head and tile of columns. `sum`: of the weights, backward of w leaky' delta.
template <int vector, int pieces>
struct Sums {
    float top = -INFINITY, sum = 0.0f, slope_sum = 0.0f;
    float total[pieces][vector] = {}, sloped[pieces][vector] = {};

    __device__ __forceinline__ void scale(float factor) {
        sum *= factor, slope_sum *= factor;
#pragma unroll
        for (int p = 0; p < pieces; ++p)
#pragma unroll
            for (int k = 0; k < vector; ++k) total[p][k] *= factor, sloped[p][k] *= factor;
    }
};

// `pieces` loads of `vector` columns per lane and edge. blockIdx.y is the head. `both`: the sloped sum too.
template <int vector, int lanes, int pieces, bool both, bool backward>
__global__ void __launch_bounds__(block_threads)
    attend(const __grid_constant__ AttentionArgs<float> a, int64_t rows) {
    constexpr int together = 32 / lanes;  // edges that one load of the warp serves
    constexpr int unroll = smaller(smaller(lanes, 8), (vector == 4 ? 8 : 16) / pieces);
    constexpr int columns = vector * lanes * pieces, narrow = backward ? 3 : 1;
    static_assert(32 % (together * unroll) == 0, "a batch of 32 edges is a whole number of rounds");
    __shared__ float share[warps][(both ? 2 : 1) * columns + 3];

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, team = lane / lanes;
    const int64_t head = blockIdx.y, channels = a.channels, width = a.heads * channels, from_column = head * channels;
    const int64_t first_row = static_cast<int64_t>(blockIdx.x) * warps;
    const bool one_tile = channels <= columns;

    // Turn -1 is the warp's own row, turn r the block's row r, which only a hub takes.
    for (int turn = -1; turn < warps; ++turn) {
        const int64_t row = first_row + (turn < 0 ? warp : turn);
        int64_t begin = 0, end = 0;
        if (row < rows) begin = a.indptr[row], end = a.indptr[row + 1];
        const int64_t row_begin = begin;
        const bool any = begin < end, hub = end - begin > hub_edges;
        if (turn < 0) {
            if (hub) end = begin;
        } else {
            if (!hub) continue;
            const int64_t part = (end - begin + 32 * warps - 1) / (32 * warps) * 32;
            begin = begin + part * warp < end ? begin + part * warp : end;
            end = begin + part < end ? begin + part : end;
        }
        const bool writes = row < rows && (turn < 0 ? !hub : warp == 0);
        const int64_t at_head = row * a.heads + head;
        const float other = row < rows ? a.row[at_head] : 0.0f;
        float ds = 0.0f;

        for (int64_t tile = 0; tile < channels; tile += columns) {
            bool inside[pieces];
            int64_t column[pieces];  // of the head; outside: one that exists, whose sum is dropped
#pragma unroll
            for (int p = 0; p < pieces; ++p) {
                column[p] = tile + (lane % lanes + p * lanes) * vector;
                inside[p] = column[p] < channels;
                if (!inside[p]) column[p] = tile;
            }
            Sums<vector, pieces> sums;
            for (int64_t at = begin; at < end; at += 32) {
                const int n = end - at < 32 ? static_cast<int>(end - at) : 32;
                const int64_t edge = lane < n ? at + lane : end - 1;
                const int32_t index = __ldg(a.indices + edge);
                const float *const score =
                    (index < a.own_rows ? a.edge : a.edge_halo) + index * (narrow * a.heads) + head;
                const float x = __ldg(score) + other, gate = x > 0.0f ? 1.0f : a.slope, leaky = x * gate;
                float from;
                if constexpr (backward) {
                    from = __ldg(score + a.heads);
                } else {
                    from = fmaxf(sums.top, warp_max(lane < n ? leaky : -INFINITY));
                    if (from > sums.top) sums.scale(expf(sums.top - from));
                    sums.top = from;
                }
                float weight = lane < n ? expf(leaky - from) : 0.0f;
                if constexpr (backward) {
                    sums.sum += weight * gate * __ldg(score + 2 * a.heads);
                } else {
                    sums.sum += weight;
                    sums.slope_sum += weight * gate;
                }
                if (a.mask.ids) {
                    const uint32_t here = static_cast<uint32_t>(a.mask.ids[row]);
                    const uint32_t there = static_cast<uint32_t>((index < a.own_rows ? a.ids : a.ids_halo)[index]);
                    const uint4 words = words_of(a.mask, backward ? here : there, backward ? there : here,
                                                 occurrence(a.indices, row_begin, edge), static_cast<uint32_t>(head));
                    weight = words.x < a.mask.threshold ? 0.0f : weight * static_cast<float>(a.mask.scale);
                }
                const float sloped = weight * gate;

                // Edges j, j + 1, ... of the batch; `whole`: all of them are below n.
                const auto round = [&](int j, auto whole) {
                    float v[unroll][pieces][vector], w[unroll];
                    [[maybe_unused]] float w_sloped[unroll];
#pragma unroll
                    for (int u = 0; u < unroll; ++u) {
                        const int from_lane = j + u * together + team;
                        const int32_t i = __shfl_sync(all_lanes, index, from_lane);
                        w[u] = __shfl_sync(all_lanes, weight, from_lane);
                        if constexpr (both) w_sloped[u] = __shfl_sync(all_lanes, sloped, from_lane);
                        const float *const x_row = (i < a.own_rows ? a.x : a.x_halo) + i * width + from_column;
#pragma unroll
                        for (int p = 0; p < pieces; ++p) get(v[u][p], x_row + column[p]);
                    }
#pragma unroll
                    for (int u = 0; u < unroll; ++u) {
                        const bool there = decltype(whole)::value || j + u * together + team < n;
#pragma unroll
                        for (int p = 0; p < pieces; ++p)
#pragma unroll
                            for (int k = 0; k < vector; ++k) {
                                const float value = there ? v[u][p][k] : 0.0f;
                                sums.total[p][k] = __fmaf_rn(w[u], value, sums.total[p][k]);
                                if constexpr (both)
                                    sums.sloped[p][k] = __fmaf_rn(w_sloped[u], value, sums.sloped[p][k]);
                            }
                    }
                };
                int j = 0;
                for (; j + together * unroll <= n; j += together * unroll) round(j, std::true_type());
                if (j < n) round(j, std::false_type());
            }

            // Every team holds some of the edges, every lane some of the weights.
            sums.sum = warp_sum(sums.sum);
            sums.slope_sum = warp_sum(sums.slope_sum);
#pragma unroll
            for (int apart = lanes; apart < 32; apart *= 2)
#pragma unroll
                for (int p = 0; p < pieces; ++p)
#pragma unroll
                    for (int k = 0; k < vector; ++k) {
                        sums.total[p][k] += __shfl_xor_sync(all_lanes, sums.total[p][k], apart);
                        if constexpr (both) sums.sloped[p][k] += __shfl_xor_sync(all_lanes, sums.sloped[p][k], apart);
                    }

            if (turn >= 0) {  // warp 0 adds the other warps' sums to its own, in their order
                float *const mine = share[warp];
                if (team == 0)
#pragma unroll
                    for (int p = 0; p < pieces; ++p)
#pragma unroll
                        for (int k = 0; k < vector; ++k) {
                            const int c = (lane + p * lanes) * vector + k;
                            mine[c] = sums.total[p][k];
                            if constexpr (both) mine[columns + c] = sums.sloped[p][k];
                        }
                float *const scalars = mine + (both ? 2 : 1) * columns;
                if (lane == 0) scalars[0] = sums.top, scalars[1] = sums.sum, scalars[2] = sums.slope_sum;
                __syncthreads();
                if (warp == 0) {
                    for (int w = 1; w < warps; ++w) {
                        const float *const theirs = share[w], *const more = theirs + (both ? 2 : 1) * columns;
                        float factor = 1.0f;
                        if constexpr (!backward) {  // a warp without edges has -infinity: its factor is 0
                            const float top = fmaxf(sums.top, more[0]);
                            if (top > sums.top) sums.scale(expf(sums.top - top));
                            factor = expf(more[0] - top);
                            sums.top = top;
                        }
                        sums.sum = __fmaf_rn(factor, more[1], sums.sum);
                        sums.slope_sum = __fmaf_rn(factor, more[2], sums.slope_sum);
#pragma unroll
                        for (int p = 0; p < pieces; ++p)
#pragma unroll
                            for (int k = 0; k < vector; ++k) {
                                const int c = (lane % lanes + p * lanes) * vector + k;
                                sums.total[p][k] = __fmaf_rn(factor, theirs[c], sums.total[p][k]);
                                if constexpr (both)
                                    sums.sloped[p][k] = __fmaf_rn(factor, theirs[columns + c], sums.sloped[p][k]);
                            }
                    }
                }
                __syncthreads();
            }
            if (!writes) continue;

            const int64_t at_row = row * width + from_column;
            if constexpr (backward) {
                float product = 0.0f;
#pragma unroll
                for (int p = 0; p < pieces; ++p) {
                    float y[vector];
                    get(y, a.y + at_row + column[p]);
#pragma unroll
                    for (int k = 0; k < vector; ++k)
                        if (inside[p] && team == 0) product = __fmaf_rn(y[k], sums.sloped[p][k], product);
                }
                ds += warp_sum(product) - (tile == 0 ? sums.sum : 0.0f);
                const float dd = a.dd[at_head];
                if (team == 0)
#pragma unroll
                    for (int p = 0; p < pieces; ++p) {
                        if (!inside[p]) continue;
                        float att[vector];
                        get(att, a.att_dst + from_column + column[p]);
#pragma unroll
                        for (int k = 0; k < vector; ++k) sums.total[p][k] = __fmaf_rn(dd, att[k], sums.total[p][k]);
                        get(att, a.att_src + from_column + column[p]);
#pragma unroll
                        for (int k = 0; k < vector; ++k)
                            if (one_tile) sums.total[p][k] = __fmaf_rn(ds, att[k], sums.total[p][k]);
                        put(a.dy + at_row + column[p], sums.total[p]);
                    }
            } else {
                if (tile == 0 && lane == 0) a.lse[at_head] = any ? sums.top + logf(sums.sum) : 0.0f;
                sums.scale(any ? 1.0f / sums.sum : 0.0f);
                if (tile == 0 && lane == 0 && a.q) a.q[at_head] = sums.slope_sum;
                if (team == 0)
#pragma unroll
                    for (int p = 0; p < pieces; ++p) {
                        if (!inside[p]) continue;
                        put(a.out + at_row + column[p], sums.total[p]);
                        if constexpr (both) put(a.big_q + at_row + column[p], sums.sloped[p]);
                    }
            }
        }
        if constexpr (backward) {
            if (writes && lane == 0) a.ds[at_head] = ds;
            if (writes && !one_tile && team == 0)  // what this lane wrote lacks ds, which every tile had a part in
                for (int64_t c = lane * vector; c < channels; c += lanes * vector)
#pragma unroll
                    for (int k = 0; k < vector; ++k) {
                        float *const to = a.dy + row * width + from_column + c + k;
                        *to = __fmaf_rn(ds, __ldg(a.att_src + from_column + c + k), *to);
                    }
        }
        if (turn < 0 && !__syncthreads_or(hub)) return;
    }
}

// ------------------------------------------------------------------ launches

template <int vector, int lanes, int pieces, bool backward>
int launch(const AttentionArgs<float> &a, int64_t rows, cudaStream_t stream) {
    const int64_t blocks = (rows + warps - 1) / warps;
    if (blocks > INT32_MAX || a.heads > 65535) return -EINVAL;
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(a.heads));
    if constexpr (!backward)
        if (!a.big_q) {
            attend<vector, lanes, pieces, false, false><<<grid, block_threads, 0, stream>>>(a, rows);
            return launched();
        }
    attend<vector, lanes, pieces, true, backward><<<grid, block_threads, 0, stream>>>(a, rows);
    return launched();
}

template <bool backward>
int launch(const AttentionArgs<float> &a, int64_t rows, cudaStream_t stream) {
    bool vectors = a.channels % 4 == 0;
    for (const float *p : {a.x, a.x_halo, static_cast<const float *>(a.out), static_cast<const float *>(a.big_q), a.y,
                           a.att_src, a.att_dst, static_cast<const float *>(a.dy)})
        vectors = vectors && aligned(p, 16);
    if (vectors) {
        if (a.channels <= 8) return launch<4, 2, 1, backward>(a, rows, stream);
        if (a.channels <= 16) return launch<4, 4, 1, backward>(a, rows, stream);
        if (a.channels <= 32) return launch<4, 8, 1, backward>(a, rows, stream);
        if (a.channels <= 64) return launch<4, 16, 1, backward>(a, rows, stream);
        if (a.channels <= 128) return launch<4, 32, 1, backward>(a, rows, stream);
        return launch<4, 32, 2, backward>(a, rows, stream);
    }
    if (a.channels <= 4) return launch<1, 4, 1, backward>(a, rows, stream);
    if (a.channels <= 16) return launch<1, 16, 1, backward>(a, rows, stream);
    if (a.channels <= 32) return launch<1, 32, 1, backward>(a, rows, stream);
    if (a.channels <= 64) return launch<1, 32, 2, backward>(a, rows, stream);
    return launch<1, 32, 4, backward>(a, rows, stream);
}

// What both directions take.
struct Call {
    int64_t rows, edges, own_rows, halo_rows;
    double slope;
    uint32_t seed, stream_word;
    const uint32_t *added_word;
    double p;
    cudaStream_t stream;
};

// Fills what `a` lacks but its arrays, and launches; `written` are the outputs that may not be null.
template <bool backward>
int run(const Call &call, AttentionArgs<float> a, const int64_t *row_ids, bool written) {
    const int64_t halo_rows = call.halo_rows, own_rows = call.own_rows < INT32_MAX ? call.own_rows : INT32_MAX;
    if (call.rows < 0 || call.edges < 0 || own_rows < 0 || halo_rows < 0 || a.heads < 0 || a.channels < 0 ||
        !a.indptr || !(call.slope > 0.0 && call.slope < INFINITY) || !(call.p >= 0.0 && call.p < 1.0))
        return -EINVAL;
    if (call.rows == 0 || a.heads == 0 || a.channels == 0) return 0;
    if (a.heads > INT32_MAX / a.channels || !written || !a.row) return -EINVAL;
    if (call.edges > 0 &&
        (!a.indices || (own_rows > 0 && !(a.x && a.edge)) || (halo_rows > 0 && !(a.x_halo && a.edge_halo))))
        return -EINVAL;
    if (call.p > 0.0 && (!row_ids || (own_rows > 0 && !a.ids) || (halo_rows > 0 && !a.ids_halo))) return -EINVAL;
    a.own_rows = static_cast<int32_t>(own_rows);
    a.x_halo = before_halo(a.x_halo, own_rows, a.heads * a.channels);
    a.edge_halo = before_halo(a.edge_halo, own_rows, (backward ? 3 : 1) * a.heads);
    a.ids_halo = before_halo(a.ids_halo, own_rows, 1);
    a.slope = static_cast<float>(call.slope);
    a.mask = make_mask(row_ids, call.seed, call.stream_word, call.p, call.added_word);
    return launch<backward>(a, call.rows, call.stream);
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_cuda_attention_f32(int64_t rows, int64_t edges, int64_t own_rows, int64_t halo_rows,
                                                int64_t heads, int64_t channels, double slope, const int64_t *indptr,
                                                const int32_t *indices, const float *y, const float *y_halo,
                                                const float *s, const float *s_halo, const float *d,
                                                const int64_t *row_ids, const int64_t *ids, const int64_t *ids_halo,
                                                uint32_t seed, uint32_t stream_word, const uint32_t *added_word,
                                                double p, float *out, float *lse, float *big_q, float *q,
                                                void *stream) {
    using namespace grinnder;
    AttentionArgs<float> a{};
    a.indptr = indptr, a.indices = indices, a.heads = heads, a.channels = channels;
    a.x = y, a.x_halo = y_halo, a.edge = s, a.edge_halo = s_halo, a.row = d, a.ids = ids, a.ids_halo = ids_halo;
    a.out = out, a.lse = lse, a.big_q = big_q, a.q = q;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    return run<false>({rows, edges, own_rows, halo_rows, slope, seed, stream_word, added_word, p, on}, a, row_ids,
                      out && lse && !big_q == !q);
}

GRINNDER_EXPORT int grinnder_cuda_attention_grad_f32(
    int64_t rows, int64_t edges, int64_t own_rows, int64_t halo_rows, int64_t heads, int64_t channels, double slope,
    const int64_t *indptr, const int32_t *indices, const float *g, const float *g_halo, const float *edge,
    const float *edge_halo, const float *y, const float *s, const float *dd, const float *att_src, const float *att_dst,
    const int64_t *row_ids, const int64_t *ids, const int64_t *ids_halo, uint32_t seed, uint32_t stream_word,
    const uint32_t *added_word, double p, float *dy, float *ds, void *stream) {
    using namespace grinnder;
    AttentionArgs<float> a{};
    a.indptr = indptr, a.indices = indices, a.heads = heads, a.channels = channels;
    a.x = g, a.x_halo = g_halo, a.edge = edge, a.edge_halo = edge_halo, a.row = s, a.ids = ids, a.ids_halo = ids_halo;
    a.y = y, a.dd = dd, a.att_src = att_src, a.att_dst = att_dst, a.dy = dy, a.ds = ds;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    return run<true>({rows, edges, own_rows, halo_rows, slope, seed, stream_word, added_word, p, on}, a, row_ids,
                     y && dd && att_src && att_dst && dy && ds);
}
