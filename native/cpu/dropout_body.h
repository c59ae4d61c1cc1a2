// Dropout in place, compiled once per instruction set.
#pragma once
#include "philox_body.h"

namespace grinnder {
namespace {  // each isa_*.cpp has its own copy

template <typename T, int bytes, int rows>
void dropout_group(const Mask &mask, T *x, int64_t width, int64_t row) {
    using V = typename Vector<T, bytes>::type;
    constexpr int lanes = Vector<T, bytes>::lanes;
    alignas(64) uint32_t word[rows * mask_columns];
    const V scale = V{} + static_cast<T>(mask.scale);
    RowKey key[rows];
    for (int r = 0; r < rows; ++r) key[r] = row_key(mask, row + r);
    for (int64_t at = 0; at < width; at += mask_columns) {
        mask_words<rows>(mask, key, at / 4, word);
        for (int r = 0; r < rows; ++r)
            for (int64_t k = 0; k < mask_columns && at + k < width; k += lanes) {
                T *here = x + (row + r) * width + at + k;
                const V v = load<T, bytes, false>(here, width - at - k) * scale;
                store<T, bytes, false>(here, Lanes<T, bytes>::kept(v, word + r * mask_columns + k, mask.threshold),
                                       width - at - k);
            }
    }
}

template <typename T, int bytes>
void dropout_rows(const Mask &mask, T *x, int64_t width, int64_t row, int64_t row_end) {
    for (; row + rows_together <= row_end; row += rows_together)
        dropout_group<T, bytes, rows_together>(mask, x, width, row);
    for (; row < row_end; ++row) dropout_group<T, bytes, 1>(mask, x, width, row);
}

}  // namespace
}  // namespace grinnder
