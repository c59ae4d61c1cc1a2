// Sparse rows times a dense matrix: the inner loop, compiled once per instruction set.
//
// A panel of up to `max_vectors` vectors of one output row stays in registers over all edges of that row. The last
// vector of a row is moved left to end with the row, so that any width >= one vector needs neither masks nor a scalar
// tail: columns covered twice get the same sum twice. Every column's sum is `acc += w * x` in edge order whatever
// panel it falls into, hence the same bits for any panel, width or split of the rows.
//
// Panels hold 256 bytes at most: with 512 (AVX-512 has the registers) rows that come from DRAM took 10 % longer.
#pragma once
#include "kernel_set.h"
#include "vector.h"

namespace grinnder {
namespace {  // each isa_*.cpp has its own copy

constexpr int64_t prefetch_edges = 8;

template <int bytes_per_edge>
inline __attribute__((always_inline)) void prefetch(const char *at) {
#pragma GCC unroll 32
    for (int line = 0; line < bytes_per_edge; line += 64) __builtin_prefetch(at + line);
}

template <typename T>
inline __attribute__((always_inline)) const T *operand_row(const SpmmArgs<T> &a, int32_t row) {
    return (row < a.own_rows ? a.x : a.halo) + row * a.width;
}

template <typename T, int bytes, int vectors, bool weighted>
void panel(const SpmmArgs<T> &a, int64_t row, int64_t column, int64_t last) {
    using V = typename Vector<T, bytes>::type;
    constexpr int lanes = Vector<T, bytes>::lanes;
    V acc[vectors] = {};
    const int64_t row_end = a.indptr[row + 1];
    for (int64_t e = a.indptr[row]; e < row_end; ++e) {
        const int64_t ahead = e + prefetch_edges < a.end ? e + prefetch_edges : e;
        prefetch<vectors * lanes * static_cast<int>(sizeof(T))>(
            reinterpret_cast<const char *>(operand_row(a, a.indices[ahead]) + column));
        const T *from = operand_row(a, a.indices[e]);
        const T w = weighted ? a.weight[e] : T(1);
#pragma GCC unroll 32
        for (int k = 0; k < vectors - 1; ++k) {
            const V value = *reinterpret_cast<const V *>(from + column + k * lanes);
            if (weighted) acc[k] += w * value;
            else acc[k] += value;
        }
        const V value = *reinterpret_cast<const V *>(from + last);
        if (weighted) acc[vectors - 1] += w * value;
        else acc[vectors - 1] += value;
    }
    T *to = a.out + row * a.width;
    const T s = a.scale ? a.scale[row] : T(1);
#pragma GCC unroll 32
    for (int k = 0; k < vectors - 1; ++k) *reinterpret_cast<V *>(to + column + k * lanes) = acc[k] * s;
    *reinterpret_cast<V *>(to + last) = acc[vectors - 1] * s;
}

template <typename T>
using Panel = void (*)(const SpmmArgs<T> &, int64_t, int64_t, int64_t);

template <typename T, int bytes, bool weighted, int vectors>
struct PanelTable {  // entry[n] handles n vectors
    static void fill(Panel<T> *entry) {
        entry[vectors] = panel<T, bytes, vectors, weighted>;
        PanelTable<T, bytes, weighted, vectors - 1>::fill(entry);
    }
};
template <typename T, int bytes, bool weighted>
struct PanelTable<T, bytes, weighted, 0> {
    static void fill(Panel<T> *) {}
};

template <typename T, int bytes, int max_vectors>
void spmm_columns(const SpmmArgs<T> &a, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
    constexpr int lanes = Vector<T, bytes>::lanes;
    Panel<T> entry[max_vectors + 1];
    if (a.weight) PanelTable<T, bytes, true, max_vectors>::fill(entry);
    else PanelTable<T, bytes, false, max_vectors>::fill(entry);
    const int64_t vectors = (column_end - column + lanes - 1) / lanes;
    const int64_t panels = (vectors + max_vectors - 1) / max_vectors;
    for (; row < row_end; ++row) {
        for (int64_t p = 0; p < panels; ++p) {  // even panels: 17 vectors are 9 + 8, not 16 + 1
            const int64_t first = p * vectors / panels, n = (p + 1) * vectors / panels - first;
            const int64_t at = column + first * lanes, full = at + (n - 1) * lanes;
            entry[n](a, row, at, full + lanes > column_end ? column_end - lanes : full);
        }
    }
}

// The widest vector of at most `bytes` that fits into the columns; scalars below 16 bytes.
template <typename T, int bytes, int max_vectors>
struct Spmm {
    static void run(const SpmmArgs<T> &a, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
        if (column_end - column >= bytes / static_cast<int64_t>(sizeof(T)))
            spmm_columns<T, bytes, max_vectors>(a, row, row_end, column, column_end);
        else Spmm<T, (bytes > 16 ? bytes / 2 : 0), 4>::run(a, row, row_end, column, column_end);
    }
};
template <typename T>
struct Spmm<T, 0, 4> {
    static void run(const SpmmArgs<T> &a, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
        spmm_columns<T, 0, 4>(a, row, row_end, column, column_end);
    }
};

}  // namespace
}  // namespace grinnder
