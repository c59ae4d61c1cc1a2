// Bias, LayerNorm, skip, ReLU, dropout, row scale: argument checks, threads and the order of column sums.
#include <errno.h>
#include <math.h>

#include "call.h"
#include "export.h"
#include "scratch.h"

namespace grinnder {
namespace {

constexpr int64_t block_rows = 256;  // one partial column sum each: the same blocks whatever the threads

template <typename T>
bool possible(int64_t rows, const NormActArgs<T> &a, double eps, const int64_t *ids, double p, int threads) {
    return rows >= 0 && a.width >= 0 && threads >= 1 && eps >= 0.0 && eps < INFINITY && p >= 0.0 && p < 1.0 &&
           (a.gamma || !a.beta) && (rows == 0 || a.width == 0 || (a.z && (p == 0.0 || ids)));
}

template <typename T>
int forward(int64_t rows, NormActArgs<T> a, double eps, const int64_t *ids, uint32_t seed, uint32_t stream, double p,
            int threads, const NormAct<T> &kernel) {
    if (!possible(rows, a, eps, ids, p, threads)) return -EINVAL;
    if (rows == 0 || a.width == 0) return 0;
    if (!a.hs) return -EINVAL;
    a.eps = static_cast<T>(eps);
    a.mask = make_mask(ids, seed, stream, p);
    const int64_t blocks = (rows + block_rows - 1) / block_rows;
    const int size = team(threads, rows, static_cast<uint64_t>(a.width) * sizeof(T));
    (void)size;
#pragma omp parallel for schedule(static) num_threads(size)
    for (int64_t b = 0; b < blocks; ++b)
        kernel.forward(a, b * block_rows, std::min(rows, (b + 1) * block_rows));
    return 0;
}

// Adds the blocks' sums up in their order, in double: many blocks then cost no accuracy.
template <typename T>
void combine(const T *sums, int64_t blocks, int64_t block_stride, int64_t width, double *total, T *out) {
    if (!out) return;
    std::fill(total, total + width, 0.0);
    for (int64_t b = 0; b < blocks; ++b)
        for (int64_t c = 0; c < width; ++c) total[c] += static_cast<double>(sums[b * block_stride + c]);
    for (int64_t c = 0; c < width; ++c) out[c] = static_cast<T>(total[c]);
}

template <typename T>
int backward(int64_t rows, NormActArgs<T> a, double eps, const int64_t *ids, uint32_t seed, uint32_t stream, double p,
             T *dgamma, T *dbeta, T *dbias, int threads, const NormAct<T> &kernel) {
    if (!possible(rows, a, eps, ids, p, threads) || (!a.gamma && (dgamma || dbeta))) return -EINVAL;
    if (a.width == 0) return 0;
    a.eps = static_cast<T>(eps);
    a.mask = make_mask(ids, seed, stream, p);
    const int64_t line = 64 / static_cast<int64_t>(sizeof(T)), stride = (a.width + line - 1) / line * line;
    const int64_t blocks = (rows + block_rows - 1) / block_rows;
    const int size = team(threads, rows, static_cast<uint64_t>(a.width) * sizeof(T));
    const Scratch<T> sums(blocks * 3 * stride), scratch(size * norm_act_scratch_rows * stride);
    const Scratch<double> total(a.width);
    if (!sums.at || !scratch.at || !total.at) return -ENOMEM;
#pragma omp parallel for schedule(static) num_threads(size)
    for (int64_t b = 0; b < blocks; ++b)
        kernel.backward(a, b * block_rows, std::min(rows, (b + 1) * block_rows), sums.at + b * 3 * stride,
                        scratch.at + thread_number() * norm_act_scratch_rows * stride, stride);
    combine(sums.at, blocks, 3 * stride, a.width, total.at, dgamma);
    combine(sums.at + stride, blocks, 3 * stride, a.width, total.at, dbeta);
    combine(sums.at + 2 * stride, blocks, 3 * stride, a.width, total.at, dbias);
    return 0;
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_cpu_norm_act_f32(int64_t rows, int64_t width, const float *z, const float *bias,
                                              const float *gamma, const float *beta, double eps, const float *skip,
                                              const float *scale, const int64_t *ids, uint32_t seed, uint32_t stream,
                                              double p, float *hs, float *h, int threads) {
    using namespace grinnder;
    const NormActArgs<float> a{width, 0, z, bias, gamma, beta, skip, scale, {}, hs, h, nullptr, nullptr, nullptr,
                               nullptr};
    return forward(rows, a, eps, ids, seed, stream, p, threads, kernels().norm_act_f32);
}

GRINNDER_EXPORT int grinnder_cpu_norm_act_f64(int64_t rows, int64_t width, const double *z, const double *bias,
                                              const double *gamma, const double *beta, double eps, const double *skip,
                                              const double *scale, const int64_t *ids, uint32_t seed, uint32_t stream,
                                              double p, double *hs, double *h, int threads) {
    using namespace grinnder;
    const NormActArgs<double> a{width, 0, z, bias, gamma, beta, skip, scale, {}, hs, h, nullptr, nullptr, nullptr,
                                nullptr};
    return forward(rows, a, eps, ids, seed, stream, p, threads, kernels().norm_act_f64);
}

GRINNDER_EXPORT int grinnder_cpu_norm_act_grad_f32(int64_t rows, int64_t width, const float *z, const float *bias,
                                                   const float *gamma, const float *beta, double eps,
                                                   const float *skip, const float *scale, const int64_t *ids,
                                                   uint32_t seed, uint32_t stream, double p, const float *g_hs,
                                                   const float *g_h, float *dz, float *dskip, float *dgamma,
                                                   float *dbeta, float *dbias, int threads) {
    using namespace grinnder;
    const NormActArgs<float> a{width, 0, z, bias, gamma, beta, skip, scale, {}, nullptr, nullptr, g_hs, g_h, dz, dskip};
    return backward(rows, a, eps, ids, seed, stream, p, dgamma, dbeta, dbias, threads, kernels().norm_act_f32);
}

GRINNDER_EXPORT int grinnder_cpu_norm_act_grad_f64(int64_t rows, int64_t width, const double *z, const double *bias,
                                                   const double *gamma, const double *beta, double eps,
                                                   const double *skip, const double *scale, const int64_t *ids,
                                                   uint32_t seed, uint32_t stream, double p, const double *g_hs,
                                                   const double *g_h, double *dz, double *dskip, double *dgamma,
                                                   double *dbeta, double *dbias, int threads) {
    using namespace grinnder;
    const NormActArgs<double> a{width, 0, z, bias, gamma, beta, skip, scale, {}, nullptr, nullptr, g_hs, g_h, dz, dskip};
    return backward(rows, a, eps, ids, seed, stream, p, dgamma, dbeta, dbias, threads, kernels().norm_act_f64);
}
