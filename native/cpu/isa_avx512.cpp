// The inner loops for AVX-512: 64-byte vectors, SpMM panels of 4.
#include "attention_body.h"
#include "copy_body.h"
#include "dropout_body.h"
#include "norm_act_body.h"
#include "row_dots_body.h"
#include "spmm_body.h"

namespace grinnder {

const KernelSet kernels_avx512 = {
    "avx512",
    Spmm<float, 64, 4>::run,
    Spmm<double, 64, 4>::run,
    dropout_rows<float, 64>,
    dropout_rows<double, 64>,
    {NormActKernel<float, 64>::forward, NormActKernel<float, 64>::backward},
    {NormActKernel<double, 64>::forward, NormActKernel<double, 64>::backward},
    copy_row<64>,
    AttentionKernel<float, 64, 4, Forward>::table,
    AttentionKernel<float, 64, 4, Backward>::table,
    AttentionKernel<double, 64, 4, Forward>::table,
    AttentionKernel<double, 64, 4, Backward>::table,
    RowDotsKernel<float, 64>::table,
    RowDotsKernel<double, 64>::table,
};

}  // namespace grinnder
