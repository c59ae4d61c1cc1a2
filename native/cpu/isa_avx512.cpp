// The inner loops for AVX-512: 64-byte vectors, panels of 4.
#include "copy_body.h"
#include "philox_body.h"
#include "spmm_body.h"

namespace grinnder {

const KernelSet kernels_avx512 = {
    "avx512",
    Spmm<float, 64, 4>::run,
    Spmm<double, 64, 4>::run,
    dropout_row<float>,
    dropout_row<double>,
    philox,
    copy_row<64>,
};

}  // namespace grinnder
