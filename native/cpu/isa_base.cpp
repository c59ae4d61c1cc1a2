// The inner loops for baseline: 16-byte vectors, SpMM panels of 8.
#include "attention_body.h"
#include "copy_body.h"
#include "dropout_body.h"
#include "norm_act_body.h"
#include "row_dots_body.h"
#include "spmm_body.h"

namespace grinnder {

const KernelSet kernels_base = {
    "base",
    Spmm<float, 16, 8>::run,
    Spmm<double, 16, 8>::run,
    dropout_rows<float, 16>,
    dropout_rows<double, 16>,
    {NormActKernel<float, 16>::forward, NormActKernel<float, 16>::backward},
    {NormActKernel<double, 16>::forward, NormActKernel<double, 16>::backward},
    copy_row<16>,
    AttentionKernel<float, 16, 8, Forward>::table,
    AttentionKernel<float, 16, 8, Backward>::table,
    AttentionKernel<double, 16, 8, Forward>::table,
    AttentionKernel<double, 16, 8, Backward>::table,
    RowDotsKernel<float, 16>::table,
    RowDotsKernel<double, 16>::table,
};

}  // namespace grinnder
