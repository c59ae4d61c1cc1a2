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
};

const KernelSet &kernels();  // the set in use

extern const KernelSet kernels_base;
#if defined(GRINNDER_X86)
extern const KernelSet kernels_avx2;
extern const KernelSet kernels_avx512;
#endif

}  // namespace grinnder
