// The inner loops for AVX2: 32-byte vectors, panels of 8.
#include "copy_body.h"
#include "philox_body.h"
#include "spmm_body.h"

namespace grinnder {

const KernelSet kernels_avx2 = {
    "avx2",
    Spmm<float, 32, 8>::run,
    Spmm<double, 32, 8>::run,
    dropout_row<float>,
    dropout_row<double>,
    philox,
    copy_row<32>,
};

}  // namespace grinnder
