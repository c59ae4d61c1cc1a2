// The inner loops for AVX2: 32-byte vectors, SpMM panels of 8.
#include "attention_body.h"
#include "copy_body.h"
#include "dropout_body.h"
#include "norm_act_body.h"
#include "row_dots_body.h"
#include "spmm_body.h"

namespace grinnder {

const KernelSet kernels_avx2 = {
    "avx2",
    Spmm<float, 32, 8>::run,
    Spmm<double, 32, 8>::run,
    dropout_rows<float, 32>,
    dropout_rows<double, 32>,
    {NormActKernel<float, 32>::forward, NormActKernel<float, 32>::backward},
    {NormActKernel<double, 32>::forward, NormActKernel<double, 32>::backward},
    copy_row<32>,
    AttentionKernel<float, 32, 8, Forward>::table,
    AttentionKernel<float, 32, 8, Backward>::table,
    AttentionKernel<double, 32, 8, Forward>::table,
    AttentionKernel<double, 32, 8, Backward>::table,
    RowDotsKernel<float, 32>::table,
    RowDotsKernel<double, 32>::table,
};

}  // namespace grinnder
