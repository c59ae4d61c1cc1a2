// The inner loops for baseline: 16-byte vectors, panels of 8.
#include "copy_body.h"
#include "philox_body.h"
#include "spmm_body.h"

namespace grinnder {

const KernelSet kernels_base = {
    "base",
    Spmm<float, 16, 8>::run,
    Spmm<double, 16, 8>::run,
    dropout_row<float>,
    dropout_row<double>,
    philox,
    copy_row<16>,
};

}  // namespace grinnder
