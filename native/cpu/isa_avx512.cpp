// The inner loops for AVX-512: 64-byte vectors, SpMM panels of 4.
#include "copy_body.h"
#include "dropout_body.h"
#include "norm_act_body.h"
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
};

}  // namespace grinnder
