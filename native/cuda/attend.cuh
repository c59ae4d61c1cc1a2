// Attention over the edges of a row, forward along in-edges and backward along out-edges: the sums of
// native/cpu/attention_body.h. A warp takes a row and one head; a hub's row is the block's.
//
// A warp reads 32 edges at once: each lane makes one edge's weight, then all of them sum rows, as in spmm.cu. Forward
// keeps the largest score so far and scales what it has when a larger one comes.
#pragma once
#include <math.h>

#include <type_traits>

#include "philox.cuh"
#include "row_sums.cuh"

namespace grinnder {
namespace {

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
            hub_share(warp, begin, end);
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

}  // namespace
}  // namespace grinnder
