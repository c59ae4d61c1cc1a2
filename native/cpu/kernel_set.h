// The inner loops, one set per instruction set, chosen once at run time.
//
// Each isa_*.cpp compiles the same bodies with its own compiler flags. Those files include no standard header with
// inline functions: the linker could keep an AVX-512 copy of such a function for everybody.
#pragma once
#include <stdint.h>

namespace grinnder {

template <typename T>
struct SpmmArgs {
    const int64_t *indptr;
    const int32_t *indices;
    const T *weight;  // or null
    const T *scale;   // or null
    const T *x;
    T *out;
    int64_t width;
    int64_t end;  // one past the last edge of the call, so that prefetching stays inside `indices`
};

struct KernelSet {
    const char *name;
    // Columns [column, column_end) of rows [row, row_end).
    void (*spmm_f32)(const SpmmArgs<float> &, int64_t row, int64_t row_end, int64_t column, int64_t column_end);
    void (*spmm_f64)(const SpmmArgs<double> &, int64_t row, int64_t row_end, int64_t column, int64_t column_end);
    // One row of `width` columns.
    void (*dropout_f32)(float *x, int64_t width, int64_t id, uint32_t seed, uint32_t stream, uint32_t threshold,
                        float scale);
    void (*dropout_f64)(double *x, int64_t width, int64_t id, uint32_t seed, uint32_t stream, uint32_t threshold,
                        double scale);
    void (*philox)(const uint32_t *counter, const uint32_t *key, uint32_t *out);
    void (*copy_row)(char *to, const char *from, uint64_t bytes);
};

const KernelSet &kernels();  // the set in use

extern const KernelSet kernels_base;
#if defined(GRINNDER_X86)
extern const KernelSet kernels_avx2;
extern const KernelSet kernels_avx512;
#endif

}  // namespace grinnder
