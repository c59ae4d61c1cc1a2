// Rows added to some rows of another memory, pinned host memory among them: read, add, write, no atomics.
#include "common.h"

namespace grinnder {
namespace {

constexpr int loads = 4;      // of each lane on their way at once
constexpr int most_blocks = 128;  // keeps the bus busy and leaves the device to other kernels

// Units of a row are float4 where everything is aligned, else floats. No row appears twice in `index`.
template <typename Unit>
__device__ __forceinline__ void add(Unit &to, const Unit &v);
template <>
__device__ __forceinline__ void add(float &to, const float &v) {
    to += v;
}
template <>
__device__ __forceinline__ void add(float4 &to, const float4 &v) {
    to.x += v.x, to.y += v.y, to.z += v.z, to.w += v.w;
}

template <typename Unit>
__global__ void __launch_bounds__(block_threads) add_rows(int64_t units, int64_t row_units, const int32_t *index,
                                                          const Unit *values, Unit *target) {
    const int64_t step = static_cast<int64_t>(gridDim.x) * block_threads;
    for (int64_t at = static_cast<int64_t>(blockIdx.x) * block_threads + threadIdx.x; at < units; at += loads * step) {
        Unit sum[loads], *to[loads];
#pragma unroll
        for (int k = 0; k < loads; ++k) {
            const int64_t unit = at + k * step, row = unit / row_units;
            to[k] = nullptr;
            if (unit >= units) continue;
            to[k] = target + (index ? __ldg(index + row) : row) * row_units + unit % row_units;
            sum[k] = __ldcs(to[k]);
        }
#pragma unroll
        for (int k = 0; k < loads; ++k) {
            if (!to[k]) continue;
            add(sum[k], __ldg(values + at + k * step));
            __stcs(to[k], sum[k]);
        }
    }
}

template <typename Unit>
int launch(int64_t rows, int64_t width, const int32_t *index, const float *values, float *target, cudaStream_t stream) {
    const int64_t row_units = width * static_cast<int64_t>(sizeof(float)) / static_cast<int64_t>(sizeof(Unit));
    const int64_t units = rows * row_units, per_block = block_threads * loads;
    const int64_t needed = (units + per_block - 1) / per_block;
    add_rows<Unit><<<static_cast<unsigned>(needed < most_blocks ? needed : most_blocks), block_threads, 0, stream>>>(
        units, row_units, index, reinterpret_cast<const Unit *>(values), reinterpret_cast<Unit *>(target));
    return launched();
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_cuda_add_rows_f32(int64_t rows, int64_t width, const int32_t *index, const float *values,
                                               float *target, void *stream) {
    using namespace grinnder;
    if (rows < 0 || width < 0 || (width > 0 && rows > INT64_MAX / 8 / width)) return -EINVAL;
    if (rows == 0 || width == 0) return 0;
    if (!values || !target) return -EINVAL;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    if (width % 4 == 0 && aligned(values, 16) && aligned(target, 16))
        return launch<float4>(rows, width, index, values, target, on);
    return launch<float>(rows, width, index, values, target, on);
}
