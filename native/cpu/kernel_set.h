// The inner loops, one set per instruction set, chosen once at run time.
//
// Each isa_*.cpp compiles the same bodies with its own compiler flags. Those files include no standard header with
// inline functions: the linker could keep an AVX-512 copy of such a function for everybody.
#pragma once
#include <stdint.h>

namespace grinnder {

// The operand lies in two pieces, so that a part's own rows and those it received need not be copied together.
template <typename T>
struct SpmmArgs {
    const int64_t *indptr;
    const int32_t *indices;
    const T *weight;  // or null
    const T *scale;   // or null
    const T *x;     // rows [0, own_rows) of the operand
    const T *halo;  // where row 0 would lie if rows from own_rows on were preceded by as many
    int32_t own_rows;
    T *out;
    int64_t width;
    int64_t end;  // one past the last edge of the call, so that prefetching stays inside `indices`
};

// Dropout: word(id, column) < threshold drops the element.
struct Mask {
    const int64_t *ids;  // of every row; null: nothing is dropped
    uint32_t threshold;
    double scale;         // of what is kept
    uint64_t key[10][2];  // Philox's key in each round
    const uint32_t *added = nullptr;  // on a GPU: added to the key's second word when the kernel runs, or null
};

// Pointers may be null where grinnder_cpu.h says so. Forward uses hs and h, backward what comes after them.
template <typename T>
struct NormActArgs {
    int64_t width;
    T eps;
    const T *z, *bias, *gamma, *beta, *skip, *scale;
    Mask mask;
    T *hs, *h;
    const T *g_hs, *g_h;
    T *dz, *dskip;
};

// Rows [row, row_end) of each; backward adds its column sums to sums[0..3): of dgamma, dbeta, dbias. Each of them and
// each of `scratch`'s rows has `stride` elements, a multiple of 64 bytes.
template <typename T>
struct NormAct {
    void (*forward)(const NormActArgs<T> &, int64_t row, int64_t row_end);
    void (*backward)(const NormActArgs<T> &, int64_t row, int64_t row_end, T *sums, T *scratch, int64_t stride);
};
constexpr int norm_act_scratch_rows = 4;

// Attention over a row's edges. What is summed are rows of x; how much of each is a function of narrow tensors: `edge`
// of the operand's rows, `row` of the sums' rows. Forward: x = y, edge = s, row = d, along in-edges. Backward: x = dO,
// edge = (d | lse | delta), row = s, along out-edges. Halo pointers lie as SpmmArgs::halo does.
template <typename T>
struct AttentionArgs {
    const int64_t *indptr;
    const int32_t *indices;
    int64_t end;  // one past the last edge of the call
    int64_t heads, channels;
    T slope;
    int32_t own_rows;
    const T *x, *x_halo;        // [., heads * channels]
    const T *edge, *edge_halo;  // [., heads], backward [., 3 * heads]
    const T *row;               // [rows, heads]
    Mask mask;                  // `ids` are those of the sums' rows
    const int64_t *ids, *ids_halo;  // of the operand's rows
    T *out, *lse, *big_q, *q;       // forward; big_q and q may be null, both
    const T *y, *dd, *att_src, *att_dst;  // backward
    T *dy, *ds;
};

// A piece of a row is summed into `sums`, attention_sums(...) elements on a cache line; `finish` adds the pieces of a
// row up in their order and writes the row. `rows` does both for every row of [row, row_end) that is one piece, at most
// attention_piece edges. Scratch: attention_scratch(...) elements on a cache line.
template <typename T>
struct Attention {
    void (*rows)(const AttentionArgs<T> &, int64_t row, int64_t row_end, T *scratch);
    void (*piece)(const AttentionArgs<T> &, int64_t row, int64_t begin, int64_t end, T *sums, T *scratch);
    void (*finish)(const AttentionArgs<T> &, int64_t row, T *sums, int64_t pieces);
};
constexpr int64_t attention_piece = 4096;
constexpr int64_t attention_chunk = 64;  // edges whose weights are known at a time

// In whole cache lines.
template <typename T>
constexpr int64_t lines(int64_t n) {
    return (n * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64 / static_cast<int64_t>(sizeof(T));
}
template <typename T>
constexpr int64_t attention_sums(int64_t heads, int64_t channels) {
    return lines<T>(3 * heads) + 2 * lines<T>(heads * channels);
}
template <typename T>
constexpr int64_t attention_scratch(int64_t heads, int64_t channels) {
    return attention_sums<T>(heads, channels) + 4 * heads * attention_chunk + 2 * lines<T>(heads * channels);
}

// Dot products of rows with what is per head, or with each other: see grinnder_cpu_attention_scores and _settle.
template <typename T>
struct RowDots {
    void (*scores)(int64_t heads, int64_t channels, const T *y, const T *att_src, const T *att_dst, T *s, T *d,
                   int64_t row, int64_t row_end);
    void (*settle)(int64_t heads, int64_t channels, const T *g, const T *out, const T *big_q, const T *q, const T *d,
                   const T *lse, T *edge, T *dd, int64_t row, int64_t row_end);
};

struct KernelSet {
    const char *name;
    // Columns [column, column_end) of rows [row, row_end).
    void (*spmm_f32)(const SpmmArgs<float> &, int64_t row, int64_t row_end, int64_t column, int64_t column_end);
    void (*spmm_f64)(const SpmmArgs<double> &, int64_t row, int64_t row_end, int64_t column, int64_t column_end);
    // Rows [row, row_end).
    void (*dropout_f32)(const Mask &, float *x, int64_t width, int64_t row, int64_t row_end);
    void (*dropout_f64)(const Mask &, double *x, int64_t width, int64_t row, int64_t row_end);
    NormAct<float> norm_act_f32;
    NormAct<double> norm_act_f64;
    void (*copy_row)(char *to, const char *from, uint64_t bytes);
    Attention<float> attention_f32, attention_grad_f32;
    Attention<double> attention_f64, attention_grad_f64;
    RowDots<float> row_dots_f32;
    RowDots<double> row_dots_f64;
};

const KernelSet &kernels();  // the set in use

extern const KernelSet kernels_base;
#if defined(GRINNDER_X86)
extern const KernelSet kernels_avx2;
extern const KernelSet kernels_avx512;
#endif

}  // namespace grinnder
