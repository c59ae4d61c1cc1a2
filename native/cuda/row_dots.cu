// Dot products of a row's heads: scores before attention, and what settles a destination's in-edges after it.
#include <type_traits>

#include "common.h"

namespace grinnder {
namespace {

constexpr unsigned all_lanes = 0xFFFFFFFFu;

// `lanes` lanes take a head of a row.
template <int lanes>
__device__ __forceinline__ float dot(const float *a, const float *b, int64_t n, bool there) {
    float sum = 0.0f;
    for (int64_t c = threadIdx.x % lanes; there && c < n; c += lanes) sum = __fmaf_rn(__ldg(a + c), __ldg(b + c), sum);
#pragma unroll
    for (int apart = lanes / 2; apart; apart /= 2) sum += __shfl_xor_sync(all_lanes, sum, apart);
    return sum;
}

template <int lanes>
__global__ void __launch_bounds__(block_threads) row_scores(int64_t items, int64_t heads, int64_t channels,
                                                            const float *y, const float *att_src, const float *att_dst,
                                                            float *s, float *d) {
    const int64_t item = (static_cast<int64_t>(blockIdx.x) * block_threads + threadIdx.x) / lanes, head = item % heads;
    const bool there = item < items, writes = there && threadIdx.x % lanes == 0;
    const float as_source = dot<lanes>(y + item * channels, att_src + head * channels, channels, there);
    if (writes) s[item] = as_source;
    if (!d) return;
    const float as_destination = dot<lanes>(y + item * channels, att_dst + head * channels, channels, there);
    if (writes) d[item] = as_destination;
}

template <int lanes>
__global__ void __launch_bounds__(block_threads)
    row_settle(int64_t items, int64_t heads, int64_t channels, const float *g, const float *out, const float *big_q,
               const float *q, const float *d, const float *lse, float *edge, float *dd) {
    const int64_t item = (static_cast<int64_t>(blockIdx.x) * block_threads + threadIdx.x) / lanes;
    const int64_t wide = item * channels;
    const bool there = item < items;
    const float delta = dot<lanes>(g + wide, out + wide, channels, there);
    const float product = dot<lanes>(g + wide, big_q + wide, channels, there);
    if (!there || threadIdx.x % lanes) return;
    float *const to = edge + item / heads * 3 * heads + item % heads;
    to[0] = d[item];
    to[heads] = lse[item];
    to[2 * heads] = delta;
    dd[item] = product - delta * q[item];
}

// The kernel whose lanes fit the channels, on rows * heads items.
template <typename Launch>
int by_lanes(int64_t rows, int64_t heads, int64_t channels, bool there, const Launch &kernel) {
    if (rows < 0 || heads < 0 || channels < 0) return -EINVAL;
    if (rows == 0 || heads == 0 || channels == 0) return 0;
    const int lanes = channels <= 4 ? 4 : channels <= 16 ? 8 : 32;
    const int64_t blocks = (rows * heads * lanes + block_threads - 1) / block_threads;
    if (!there || blocks > INT32_MAX) return -EINVAL;
    if (lanes == 4) kernel(std::integral_constant<int, 4>(), static_cast<unsigned>(blocks));
    else if (lanes == 8) kernel(std::integral_constant<int, 8>(), static_cast<unsigned>(blocks));
    else kernel(std::integral_constant<int, 32>(), static_cast<unsigned>(blocks));
    return launched();
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_cuda_attention_scores_f32(int64_t rows, int64_t heads, int64_t channels, const float *y,
                                                       const float *att_src, const float *att_dst, float *s, float *d,
                                                       void *stream) {
    using namespace grinnder;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    return by_lanes(rows, heads, channels, y && att_src && s && !att_dst == !d, [&](auto lanes, unsigned blocks) {
        row_scores<decltype(lanes)::value>
            <<<blocks, block_threads, 0, on>>>(rows * heads, heads, channels, y, att_src, att_dst, s, d);
    });
}

GRINNDER_EXPORT int grinnder_cuda_attention_settle_f32(int64_t rows, int64_t heads, int64_t channels, const float *g,
                                                       const float *out, const float *big_q, const float *q,
                                                       const float *d, const float *lse, float *edge, float *dd,
                                                       void *stream) {
    using namespace grinnder;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    return by_lanes(rows, heads, channels, g && out && big_q && q && d && lse && edge && dd,
                    [&](auto lanes, unsigned blocks) {
                        row_settle<decltype(lanes)::value><<<blocks, block_threads, 0, on>>>(
                            rows * heads, heads, channels, g, out, big_q, q, d, lse, edge, dd);
                    });
}
