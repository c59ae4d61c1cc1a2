// Dropout in place.
#include "common.h"
#include "philox.cuh"

namespace grinnder {
namespace {

constexpr int64_t full_grid = 1 << 16;

template <bool vector>
__global__ void __launch_bounds__(block_threads) dropout(const __grid_constant__ Mask mask, float *x, int64_t rows,
                                                         int64_t width) {
    const int64_t groups = (width + 3) / 4, step = static_cast<int64_t>(gridDim.x) * block_threads;
    const int64_t step_rows = step / groups, step_group = step % groups;
    const int64_t item = static_cast<int64_t>(blockIdx.x) * block_threads + threadIdx.x;
    int64_t row = item / groups, group = item % groups;
    while (row < rows) {
        float *const at = x + row * width + 4 * group;
        const int64_t here = width - 4 * group;  // columns from here on
        float v[4] = {};
        if constexpr (vector) {
            const float4 f = *reinterpret_cast<const float4 *>(at);
            v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
        } else {
#pragma unroll
            for (int k = 0; k < 4; ++k)
                if (k < here) v[k] = at[k];
        }
        drop(mask, mask.ids[row], static_cast<uint32_t>(group), v);
        if constexpr (vector) {
            *reinterpret_cast<float4 *>(at) = make_float4(v[0], v[1], v[2], v[3]);
        } else {
#pragma unroll
            for (int k = 0; k < 4; ++k)
                if (k < here) at[k] = v[k];
        }
        row += step_rows, group += step_group;
        if (group >= groups) group -= groups, ++row;
    }
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_cuda_dropout_f32(int64_t rows, int64_t width, const int64_t *ids, uint32_t seed,
                                              uint32_t stream_word, double p, float *x, void *stream) {
    using namespace grinnder;
    if (rows < 0 || width < 0 || width > INT32_MAX || !(p >= 0.0 && p < 1.0)) return -EINVAL;
    if (rows == 0 || width == 0 || p == 0.0) return 0;
    if (!ids || !x) return -EINVAL;
    const Mask mask = make_mask(ids, seed, stream_word, p);
    const int64_t items = rows * ((width + 3) / 4), needed = (items + block_threads - 1) / block_threads;
    const unsigned grid = static_cast<unsigned>(needed < full_grid ? needed : full_grid);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    if (width % 4 == 0 && aligned(x, 16)) dropout<true><<<grid, block_threads, 0, on>>>(mask, x, rows, width);
    else dropout<false><<<grid, block_threads, 0, on>>>(mask, x, rows, width);
    return launched();
}
