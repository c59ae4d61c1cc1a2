// The inner loops for AVX2: 32-byte vectors, SpMM panels of 8.
#include "copy_body.h"
#include "dropout_body.h"
#include "norm_act_body.h"
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
};

}  // namespace grinnder
