// Bias, LayerNorm, skip, ReLU, dropout and row scale of a few rows, forward and backward, compiled once per
// instruction set.
//
// Every pass after the first finds the rows in L1, so a value is computed again rather than stored in between.
// Several rows go together: their Philox rounds and their sums hide each other's latency, parameters are loaded and
// column sums stored once for all of them. A row's own arithmetic is the same in any company.
#pragma once
#include "philox_body.h"

#define GRINNDER_INLINE inline __attribute__((always_inline))

namespace grinnder {
namespace {  // each isa_*.cpp has its own copy

// All of it is inlined into one function, so that its members live in registers or on the stack, out of the stores' way.
template <typename T, int bytes, bool norm, bool drop, int rows>
struct NormActRows {
    using L = Lanes<T, bytes>;
    using V = typename Vector<T, bytes>::type;
    static constexpr int lanes = Vector<T, bytes>::lanes;

    const int64_t width;
    const T *const bias, *const gamma, *const beta;
    const T *const z, *const skip, *const g_hs, *const g_h;  // the first of the rows, or null
    T *const hs, *const h, *const dz, *const dskip;
    const Mask &mask;
    T mean[rows], rstd[rows], scale[rows];
    RowKey key[rows];

    template <typename P>
    static GRINNDER_INLINE P *rows_of(P *of, int64_t first) {
        return of ? of + first : of;
    }

    GRINNDER_INLINE NormActRows(const NormActArgs<T> &a, int64_t row)
        : width(a.width), bias(a.bias), gamma(a.gamma), beta(a.beta), z(rows_of(a.z, row * a.width)),
          skip(rows_of(a.skip, row * a.width)), g_hs(rows_of(a.g_hs, row * a.width)),
          g_h(rows_of(a.g_h, row * a.width)), hs(rows_of(a.hs, row * a.width)), h(rows_of(a.h, row * a.width)),
          dz(rows_of(a.dz, row * a.width)), dskip(rows_of(a.dskip, row * a.width)), mask(a.mask) {
        if (norm) moments(a.eps);
        for (int r = 0; r < rows; ++r) {
            scale[r] = a.scale ? a.scale[row + r] : T(1);
            if (drop) key[r] = row_key(mask, row + r);
        }
    }

    template <bool whole>
    GRINNDER_INLINE V parameter(const T *of, int64_t c) const {
        return of ? load<T, bytes, whole>(of + c, width - c) : V{};
    }

    template <bool whole>
    GRINNDER_INLINE V get(const T *of, int r, int64_t c) const {
        return load<T, bytes, whole>(of + r * width + c, width - c);
    }

    template <bool whole>
    GRINNDER_INLINE void put(T *of, int r, int64_t c, V v) const {
        store<T, bytes, whole>(of + r * width + c, v, width - c);
    }

    // Two passes: the variance is a sum of squared differences from the mean.
    GRINNDER_INLINE void moments(T eps) {
        const int64_t rest = width % lanes, full = width - rest;
        V sum[rows] = {};
        for (int64_t c = 0; c < full; c += lanes) {
            const V b = parameter<true>(bias, c);
#pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) sum[r] += get<true>(z, r, c) + b;
        }
        if (rest) {
            const V b = parameter<false>(bias, full);
#pragma GCC unroll 1
            for (int r = 0; r < rows; ++r) sum[r] += get<false>(z, r, full) + b;
        }
        for (int r = 0; r < rows; ++r) mean[r] = Total<T, bytes>::of(sum[r]) / static_cast<T>(width);
        V square[rows] = {};
        for (int64_t c = 0; c < full; c += lanes) {
            const V b = parameter<true>(bias, c);
#pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) {
                const V d = (get<true>(z, r, c) + b) - mean[r];
                square[r] += d * d;
            }
        }
        if (rest) {
            const V b = parameter<false>(bias, full);
#pragma GCC unroll 1
            for (int r = 0; r < rows; ++r) {
                const V d = first_lanes<T, bytes>((get<false>(z, r, full) + b) - mean[r], rest);
                square[r] += d * d;
            }
        }
        for (int r = 0; r < rows; ++r) {
            const T variance = Total<T, bytes>::of(square[r]) / static_cast<T>(width);
            if constexpr (sizeof(T) == 4) rstd[r] = T(1) / __builtin_sqrtf(variance + eps);
            else rstd[r] = T(1) / __builtin_sqrt(variance + eps);
        }
    }

    // z + bias, normalized if there is a norm.
    template <bool whole>
    GRINNDER_INLINE V normalized(int r, int64_t c, V b) const {
        const V m = get<whole>(z, r, c) + b;
        return norm ? (m - mean[r]) * rstd[r] : m;
    }

    // What ReLU sees.
    template <bool whole>
    GRINNDER_INLINE V before_relu(int r, int64_t c, V normal, V factor, V shift) const {
        const V n = norm ? L::fused(normal, factor, shift) : normal;
        return skip ? n + get<whole>(skip, r, c) : n;
    }

    // ReLU and dropout of v, which is x itself or a gradient; NaN passes, as in torch.
    GRINNDER_INLINE V gate(V v, V x, const uint32_t *word) const {
        v = x <= T(0) ? V{} : v;
        return drop ? L::kept(v * static_cast<T>(mask.scale), word, mask.threshold) : v;
    }

    // Asks for the next rows' part of an array while these are worked on.
    GRINNDER_INLINE void ask(const T *of, int64_t c) const {
        constexpr int line = 64 / static_cast<int>(sizeof(T));
        if (!of) return;
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
            for (int k = 0; k < mask_columns; k += line)
                __builtin_prefetch(reinterpret_cast<const char *>(of) +
                                   static_cast<int64_t>(sizeof(T)) * ((rows + r) * width + c + k));
    }

    template <bool whole>
    GRINNDER_INLINE void forward_vector(int64_t c, const uint32_t *word) const {
        const V b = parameter<whole>(bias, c);
        const V factor = norm ? parameter<whole>(gamma, c) : V{}, shift = norm ? parameter<whole>(beta, c) : V{};
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
            const V x = before_relu<whole>(r, c, normalized<whole>(r, c, b), factor, shift);
            const V v = gate(x, x, word + r * mask_columns);
            if (h) put<whole>(h, r, c, v);
            put<whole>(hs, r, c, v * scale[r]);
        }
    }

    GRINNDER_INLINE void forward() const {
        alignas(64) uint32_t word[rows * mask_columns];
        for (int64_t at = 0; at < width; at += mask_columns) {
            ask(z, at), ask(skip, at);
            if (drop) mask_words<rows>(mask, key, at / 4, word);
            if (at + mask_columns <= width) {
#pragma GCC unroll 8
                for (int k = 0; k < mask_columns; k += lanes) forward_vector<true>(at + k, word + k);
            } else {
#pragma GCC unroll 1
                for (int k = 0; at + k < width; k += lanes) forward_vector<false>(at + k, word + k);
            }
        }
    }

    // Per row: the gradient at LayerNorm's normalized values, and its product with them, summed over the columns.
    struct RowSums {
        V gradient[rows], product[rows];
    };

    // Down to dskip and, without a norm, dz; with one, the gradient at the normalized values goes to `scratch`.
    template <bool whole>
    GRINNDER_INLINE void backward_vector(int64_t c, const uint32_t *word, T *sums, T *scratch, int64_t stride,
                                         RowSums &row_sums) const {
        const V b = parameter<whole>(bias, c);
        const V factor = norm ? parameter<whole>(gamma, c) : V{}, shift = norm ? parameter<whole>(beta, c) : V{};
        V dgamma = {}, dbeta = {};
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
            const V normal = normalized<whole>(r, c, b);
            const V x = before_relu<whole>(r, c, normal, factor, shift);
            V g = g_h ? get<whole>(g_h, r, c) : V{};
            if (g_hs) g = L::fused(get<whole>(g_hs, r, c), V{} + scale[r], g);
            g = gate(g, x, word + r * mask_columns);
            if (dskip) put<whole>(dskip, r, c, g);
            dbeta += g;
            if (norm) {
                const V d = g * factor;
                *reinterpret_cast<V *>(scratch + r * stride + c) = d;
                row_sums.gradient[r] += d;
                row_sums.product[r] = L::fused(d, normal, row_sums.product[r]);
                dgamma = L::fused(g, normal, dgamma);
            } else if (dz) {
                put<whole>(dz, r, c, g);
            }
        }
        if (norm) {
            *reinterpret_cast<V *>(sums + c) += dgamma;
            *reinterpret_cast<V *>(sums + stride + c) += dbeta;
        } else {  // what reaches ReLU's input reaches the bias
            *reinterpret_cast<V *>(sums + 2 * stride + c) += dbeta;
        }
    }

    // LayerNorm's gradient, once its row sums are known.
    template <bool whole>
    GRINNDER_INLINE void backward_norm(int64_t c, T *sums, const T *scratch, int64_t stride, const T *gradient,
                                       const T *product) const {
        const V b = parameter<whole>(bias, c);
        V dbias = {};
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
            const V d = *reinterpret_cast<const V *>(scratch + r * stride + c) - gradient[r];
            const V v = L::fused(normalized<whole>(r, c, b), V{} - product[r], d) * rstd[r];
            dbias += v;
            if (dz) put<whole>(dz, r, c, v);
        }
        *reinterpret_cast<V *>(sums + 2 * stride + c) += dbias;
    }

    GRINNDER_INLINE void backward(T *sums, T *scratch, int64_t stride) const {
        alignas(64) uint32_t word[rows * mask_columns];
        RowSums row_sums = {};
        for (int64_t at = 0; at < width; at += mask_columns) {
            ask(z, at), ask(skip, at), ask(g_hs, at), ask(g_h, at);
            if (drop) mask_words<rows>(mask, key, at / 4, word);
            if (at + mask_columns <= width) {
#pragma GCC unroll 8
                for (int k = 0; k < mask_columns; k += lanes)
                    backward_vector<true>(at + k, word + k, sums, scratch, stride, row_sums);
            } else {
#pragma GCC unroll 1
                for (int k = 0; at + k < width; k += lanes)
                    backward_vector<false>(at + k, word + k, sums, scratch, stride, row_sums);
            }
        }
        if (!norm) return;
        T gradient[rows], product[rows];
        for (int r = 0; r < rows; ++r) {
            gradient[r] = Total<T, bytes>::of(row_sums.gradient[r]) / static_cast<T>(width);
            product[r] = Total<T, bytes>::of(row_sums.product[r]) / static_cast<T>(width);
        }
        int64_t c = 0;
        for (; c + lanes <= width; c += lanes) backward_norm<true>(c, sums, scratch, stride, gradient, product);
        if (c < width) backward_norm<false>(c, sums, scratch, stride, gradient, product);
    }
};

template <typename T, int bytes, bool norm, bool drop>
void norm_act_forward(const NormActArgs<T> &a, int64_t row, int64_t row_end) {
    for (; row + rows_together <= row_end; row += rows_together)
        NormActRows<T, bytes, norm, drop, rows_together>(a, row).forward();
    for (; row < row_end; ++row) NormActRows<T, bytes, norm, drop, 1>(a, row).forward();
}

template <typename T, int bytes, bool norm, bool drop>
void norm_act_backward(const NormActArgs<T> &a, int64_t row, int64_t row_end, T *sums, T *scratch, int64_t stride) {
    static_assert(rows_together <= norm_act_scratch_rows, "scratch is too small");
    for (; row + rows_together <= row_end; row += rows_together)
        NormActRows<T, bytes, norm, drop, rows_together>(a, row).backward(sums, scratch, stride);
    for (; row < row_end; ++row) NormActRows<T, bytes, norm, drop, 1>(a, row).backward(sums, scratch, stride);
}

// The kernel made for the call's norm and dropout.
template <typename T, int bytes>
struct NormActKernel {
    static void forward(const NormActArgs<T> &a, int64_t row, int64_t row_end) {
        if (a.gamma && a.mask.ids) norm_act_forward<T, bytes, true, true>(a, row, row_end);
        else if (a.gamma) norm_act_forward<T, bytes, true, false>(a, row, row_end);
        else if (a.mask.ids) norm_act_forward<T, bytes, false, true>(a, row, row_end);
        else norm_act_forward<T, bytes, false, false>(a, row, row_end);
    }
    static void backward(const NormActArgs<T> &a, int64_t row, int64_t row_end, T *sums, T *scratch, int64_t stride) {
        if (a.gamma && a.mask.ids) norm_act_backward<T, bytes, true, true>(a, row, row_end, sums, scratch, stride);
        else if (a.gamma) norm_act_backward<T, bytes, true, false>(a, row, row_end, sums, scratch, stride);
        else if (a.mask.ids) norm_act_backward<T, bytes, false, true>(a, row, row_end, sums, scratch, stride);
        else norm_act_backward<T, bytes, false, false>(a, row, row_end, sums, scratch, stride);
    }
};

}  // namespace
}  // namespace grinnder
