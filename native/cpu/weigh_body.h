// Sums of rows, each head's columns with its own weight of the edge; compiled once per instruction set.
//
// As in spmm_body.h a panel of a few vectors stays in registers, here over a chunk of edges, and the last vector of a
// head is moved left to end with it. Two sums go together: rows are loaded once for both.
#pragma once
#include "spmm_body.h"

namespace grinnder {
namespace {  // each isa_*.cpp has its own copy

// Edges [begin, begin + n) of a row; weight[h * attention_chunk + e], sloped in the same places. Its sums are
// added to `total` and `total_sloped`, unless `fresh`: rounding then grows with the number of chunks, not of edges.
template <typename T>
struct Chunk {
    int64_t begin, n;
    const T *weight, *sloped;
    T *total, *total_sloped;
    bool fresh;
};

// Where each vector of a row begins, and its head.
struct Columns {
    int64_t vectors;
    int32_t *column, *head;
};

template <typename T>
inline __attribute__((always_inline)) const T *weighed_row(const AttentionArgs<T> &a, int32_t row) {
    return (row < a.own_rows ? a.x : a.x_halo) + row * (a.heads * a.channels);
}

template <typename T, int bytes, int vectors, bool both, bool one_head>
void weigh(const AttentionArgs<T> &a, const Chunk<T> &chunk, const int32_t *column, const int32_t *head) {
    using V = typename Vector<T, bytes>::type;
    constexpr int lanes = Vector<T, bytes>::lanes;
    V acc[vectors] = {}, sloped[vectors] = {};
    const int64_t first = column[0], last = column[vectors - 1];
    int64_t at[vectors], weight_at[vectors];
#pragma GCC unroll 8
    for (int k = 0; k < vectors; ++k) {
        at[k] = !one_head ? column[k] : k < vectors - 1 ? first + k * lanes : last;
        weight_at[k] = (one_head ? head[0] : head[k]) * attention_chunk;
    }
    const int32_t *const indices = a.indices + chunk.begin;
    const int64_t end = a.end - chunk.begin;
    for (int64_t e = 0; e < chunk.n; ++e) {
        const int64_t ahead = e + prefetch_edges < end ? e + prefetch_edges : e;
        prefetch<vectors * lanes * static_cast<int>(sizeof(T))>(
            reinterpret_cast<const char *>(weighed_row(a, indices[ahead]) + first));
        const T *const from = weighed_row(a, indices[e]);
#pragma GCC unroll 8
        for (int k = 0; k < vectors; ++k) {
            const V value = *reinterpret_cast<const V *>(from + at[k]);
            acc[k] += chunk.weight[weight_at[k] + e] * value;
            if (both) sloped[k] += chunk.sloped[weight_at[k] + e] * value;
        }
    }
#pragma GCC unroll 8
    for (int k = 0; k < vectors; ++k) {  // all are read before any is written: the last two may share columns
        if (chunk.fresh) continue;
        acc[k] += *reinterpret_cast<const V *>(chunk.total + at[k]);
        if (both) sloped[k] += *reinterpret_cast<const V *>(chunk.total_sloped + at[k]);
    }
#pragma GCC unroll 8
    for (int k = 0; k < vectors; ++k) {
        *reinterpret_cast<V *>(chunk.total + at[k]) = acc[k];
        if (both) *reinterpret_cast<V *>(chunk.total_sloped + at[k]) = sloped[k];
    }
}

template <typename T>
using Weigh = void (*)(const AttentionArgs<T> &, const Chunk<T> &, const int32_t *, const int32_t *);

template <typename T, int bytes, bool both, int vectors>
struct WeighTable {  // entry[n][one_head] handles n vectors
    static void fill(Weigh<T> (*entry)[2]) {
        entry[vectors][0] = weigh<T, bytes, vectors, both, false>;
        entry[vectors][1] = weigh<T, bytes, vectors, both, true>;
        WeighTable<T, bytes, both, vectors - 1>::fill(entry);
    }
};
template <typename T, int bytes, bool both>
struct WeighTable<T, bytes, both, 0> {
    static void fill(Weigh<T> (*)[2]) {}
};

// The widest vector of at most `bytes` that fits into a head's channels; scalars below 16 bytes.
template <typename T, int bytes, int max_vectors>
struct WeighRow {
    static constexpr int lanes = Vector<T, bytes>::lanes;
    using Narrower = WeighRow<T, (bytes > 16 ? bytes / 2 : 0), 4>;

    static bool fits(int64_t channels) { return channels >= lanes; }

    static Columns columns(int64_t heads, int64_t channels, int32_t *column, int32_t *head) {
        if constexpr (bytes > 0)
            if (!fits(channels)) return Narrower::columns(heads, channels, column, head);
        int64_t n = 0;
        for (int64_t h = 0; h < heads; ++h)
            for (int64_t c = 0; c < channels; c += lanes, ++n) {
                column[n] = static_cast<int32_t>(h * channels + (c + lanes <= channels ? c : channels - lanes));
                head[n] = static_cast<int32_t>(h);
            }
        return {n, column, head};
    }

    template <bool both>
    static void run(const AttentionArgs<T> &a, const Chunk<T> &chunk, const Columns &columns) {
        if constexpr (bytes > 0)
            if (!fits(a.channels)) return Narrower::template run<both>(a, chunk, columns);
        constexpr int most = both && max_vectors > 4 ? 4 : max_vectors;  // sixteen registers hold two sums of 4
        Weigh<T> entry[most + 1][2];
        WeighTable<T, bytes, both, most>::fill(entry);
        for (int64_t first = 0, n = 0; first < columns.vectors; first += n) {
            const int64_t left = columns.vectors - first, panels = (left + most - 1) / most;
            n = (left + panels - 1) / panels;  // even panels, two vectors or more where as many are left
            const int32_t *const column = columns.column + first, *const head = columns.head + first;
            if (n < left && column[n] < column[n - 1] + lanes) --n;  // what a panel has written is not the next one's
            entry[n][head[0] == head[n - 1]](a, chunk, column, head);
        }
    }
};

}  // namespace
}  // namespace grinnder
