// Sparse rows times a dense matrix. A warp sums a row; a hub's row is summed by the block.
//
// A warp reads 32 indices at once and hands them round; `lanes` lanes load one edge's columns, so that a narrow width
// loads several edges at a time. Enough edges are unrolled for eight 16-byte loads per lane to be on their way.
#include <type_traits>

#include "../cpu/edges.h"
#include "../cpu/kernel_set.h"
#include "row_sums.cuh"

namespace grinnder {
namespace {

// `pieces` loads of `vector` columns per lane and edge. blockIdx.y chooses among tiles of that many columns.
template <int vector, int lanes, int pieces>
__global__ void __launch_bounds__(block_threads) spmm(const __grid_constant__ SpmmArgs<float> a, int64_t rows) {
    constexpr int together = 32 / lanes;  // edges that one load of the warp serves
    constexpr int unroll = smaller(smaller(lanes, 8), (vector == 4 ? 8 : 16) / pieces);
    constexpr int columns = vector * lanes * pieces;
    static_assert(32 % (together * unroll) == 0, "a batch of 32 edges is a whole number of rounds");
    __shared__ float share[warps][columns];

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, team = lane / lanes;
    const int offset = lane % lanes * vector;  // in the tile, of this lane's first piece
    const int tile = static_cast<int>(blockIdx.y) * columns, column = tile + offset;
    const int64_t first_row = static_cast<int64_t>(blockIdx.x) * warps;
    bool inside[pieces];
    int at_column[pieces];  // outside: a column that exists, whose sum is dropped
#pragma unroll
    for (int p = 0; p < pieces; ++p) {
        inside[p] = column + p * lanes * vector < a.width;
        at_column[p] = inside[p] ? column + p * lanes * vector : tile;
    }

    for (int turn = -1; turn < warps; ++turn) {
        const int64_t row = first_row + (turn < 0 ? warp : turn);
        int64_t begin = 0, end = 0;
        if (row < rows) begin = a.indptr[row], end = a.indptr[row + 1];
        const bool hub = end - begin > hub_edges;
        if (turn < 0) {
            if (hub) end = begin;
        } else {
            if (!hub) continue;
            hub_share(warp, begin, end);
        }

        // Nothing below is conditional but the choice of a round: every load reads something that exists.
        float sum[pieces][vector] = {};
        int32_t index = 0, next_index = 0;
        float weight = 1.0f, next_weight = 1.0f;
        const auto read = [&](int64_t edge) {
            if (edge >= end) edge = end - 1;
            next_index = __ldcs(a.indices + edge);
            if (a.weight) next_weight = __ldcs(a.weight + edge);
        };
        // Edges j, j + 1, ... of the batch; `whole`: all of them are below n.
        const auto round = [&](int j, int n, auto whole) {
            float v[unroll][pieces][vector], w[unroll];
#pragma unroll
            for (int u = 0; u < unroll; ++u) {
                const int32_t i = __shfl_sync(all_lanes, index, j + u * together + team);
                w[u] = __shfl_sync(all_lanes, weight, j + u * together + team);
                const float *const from = (i < a.own_rows ? a.x : a.halo) + i * a.width;
#pragma unroll
                for (int p = 0; p < pieces; ++p) get(v[u][p], from + at_column[p]);
            }
#pragma unroll
            for (int u = 0; u < unroll; ++u) {
                const bool there = decltype(whole)::value || j + u * together + team < n;
                if (!there) w[u] = 0.0f;
#pragma unroll
                for (int p = 0; p < pieces; ++p)
#pragma unroll
                    for (int k = 0; k < vector; ++k)
                        sum[p][k] = __fmaf_rn(w[u], there ? v[u][p][k] : 0.0f, sum[p][k]);
            }
        };
        if (begin < end) read(begin + lane);
        for (int64_t at = begin; at < end; at += 32) {
            index = next_index, weight = next_weight;
            read(at + 32 + lane);
            const int n = end - at < 32 ? static_cast<int>(end - at) : 32;
            int j = 0;
            for (; j + together * unroll <= n; j += together * unroll) round(j, n, std::true_type());
            if (j < n) round(j, n, std::false_type());
        }
#pragma unroll
        for (int apart = lanes; apart < 32; apart *= 2)
#pragma unroll
            for (int p = 0; p < pieces; ++p)
#pragma unroll
                for (int k = 0; k < vector; ++k) sum[p][k] += __shfl_xor_sync(all_lanes, sum[p][k], apart);

        if (turn < 0) {
            if (row < rows && !hub && team == 0) {
                const float scale = a.scale ? a.scale[row] : 1.0f;
#pragma unroll
                for (int p = 0; p < pieces; ++p)
                    if (inside[p]) put_streaming(a.out + row * a.width + column + p * lanes * vector, sum[p], scale);
            }
            if (!__syncthreads_or(hub)) return;
        } else {
            if (team == 0)
#pragma unroll
                for (int p = 0; p < pieces; ++p)
#pragma unroll
                    for (int k = 0; k < vector; ++k) share[warp][offset + p * lanes * vector + k] = sum[p][k];
            __syncthreads();
            for (int c = threadIdx.x; c < columns && tile + c < a.width; c += block_threads) {
                float total = share[0][c];
                for (int w = 1; w < warps; ++w) total += share[w][c];
                a.out[row * a.width + tile + c] = total * (a.scale ? a.scale[row] : 1.0f);
            }
            __syncthreads();
        }
    }
}

template <int vector, int lanes, int pieces>
int launch(const SpmmArgs<float> &a, int64_t rows, cudaStream_t stream) {
    constexpr int64_t columns = vector * lanes * pieces;
    const int64_t blocks = (rows + warps - 1) / warps, tiles = (a.width + columns - 1) / columns;
    if (blocks > INT32_MAX || tiles > 65535) return -EINVAL;  // then columns fit into 32 bits
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(tiles));
    spmm<vector, lanes, pieces><<<grid, block_threads, 0, stream>>>(a, rows);
    return launched();
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_cuda_spmm_f32(int64_t rows, int64_t edges, int64_t x_rows, int64_t halo_rows,
                                           int64_t width, const int64_t *indptr, const int32_t *indices,
                                           const float *weight, const float *scale, const float *x, const float *halo,
                                           float *out, void *stream) {
    using namespace grinnder;
    if (rows < 0 || edges < 0 || x_rows < 0 || halo_rows < 0 || width < 0 || !indptr) return -EINVAL;
    if (rows == 0 || width == 0) return 0;
    if (!out || (edges > 0 && (!indices || (x_rows > 0 && !x) || (halo_rows > 0 && !halo)))) return -EINVAL;
    if (x_rows > INT32_MAX) x_rows = INT32_MAX;  // no index reaches further
    const SpmmArgs<float> a{indptr, indices, weight, scale, x, before_halo(halo, x_rows, width),
                            static_cast<int32_t>(x_rows), out, width, edges};
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    if (width % 4 == 0 && aligned(x, 16) && aligned(halo, 16) && aligned(out, 16)) {
        if (width <= 16) return launch<4, 4, 1>(a, rows, on);
        if (width <= 32) return launch<4, 8, 1>(a, rows, on);
        if (width <= 64) return launch<4, 16, 1>(a, rows, on);
        if (width <= 128) return launch<4, 32, 1>(a, rows, on);
        return launch<4, 32, 2>(a, rows, on);
    }
    if (width <= 4) return launch<1, 4, 1>(a, rows, on);
    if (width <= 16) return launch<1, 16, 1>(a, rows, on);
    if (width <= 32) return launch<1, 32, 1>(a, rows, on);
    if (width <= 64) return launch<1, 32, 2>(a, rows, on);
    return launch<1, 32, 4>(a, rows, on);
}
