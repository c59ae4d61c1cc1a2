// Dot products of a row's heads, compiled once per instruction set. A dot product's order is a function of its length:
// the same bits wherever the row lies.
#pragma once
#include "kernel_set.h"
#include "vector.h"

namespace grinnder {
namespace {  // each isa_*.cpp has its own copy

template <typename T, int bytes>
inline __attribute__((always_inline)) T dot(const T *a, const T *b, int64_t n) {
    using V = typename Vector<T, bytes>::type;
    constexpr int lanes = Vector<T, bytes>::lanes;
    V sum = {};
    int64_t c = 0;
    for (; c + lanes <= n; c += lanes)
        sum = Lanes<T, bytes>::fused(load<T, bytes, true>(a + c, lanes), load<T, bytes, true>(b + c, lanes), sum);
    if (c < n)
        sum = Lanes<T, bytes>::fused(load<T, bytes, false>(a + c, n - c), load<T, bytes, false>(b + c, n - c), sum);
    return Total<T, bytes>::of(sum);
}

template <typename T, int bytes>
void row_scores(int64_t heads, int64_t channels, const T *y, const T *att_src, const T *att_dst, T *s, T *d,
                int64_t row, int64_t row_end) {
    for (; row < row_end; ++row)
        for (int64_t h = 0; h < heads; ++h) {
            const T *const from = y + (row * heads + h) * channels;
            s[row * heads + h] = dot<T, bytes>(from, att_src + h * channels, channels);
            if (d) d[row * heads + h] = dot<T, bytes>(from, att_dst + h * channels, channels);
        }
}

template <typename T, int bytes>
void row_settle(int64_t heads, int64_t channels, const T *g, const T *out, const T *big_q, const T *q, const T *d,
                const T *lse, T *edge, T *dd, int64_t row, int64_t row_end) {
    for (; row < row_end; ++row)
        for (int64_t h = 0; h < heads; ++h) {
            const int64_t at = row * heads + h, wide = at * channels, narrow = 3 * row * heads + h;
            const T delta = dot<T, bytes>(g + wide, out + wide, channels);
            edge[narrow] = d[at];
            edge[narrow + heads] = lse[at];
            edge[narrow + 2 * heads] = delta;
            dd[at] = dot<T, bytes>(g + wide, big_q + wide, channels) - delta * q[at];
        }
}

template <typename T, int bytes>
struct RowDotsKernel {
    static constexpr RowDots<T> table = {row_scores<T, bytes>, row_settle<T, bytes>};
};

}  // namespace
}  // namespace grinnder
