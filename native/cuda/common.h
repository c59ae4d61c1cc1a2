// What the files of this library share: exports, errors, alignment.
#pragma once
#include <cuda_runtime.h>
#include <errno.h>
#include <stdint.h>

extern "C" {
#pragma GCC visibility push(default)
#include "grinnder_cuda.h"
#pragma GCC visibility pop
}

#define GRINNDER_EXPORT extern "C" __attribute__((visibility("default")))

namespace grinnder {

int result(cudaError_t error);  // 0, or -EIO; keeps the text for grinnder_cuda_error() and clears the error

// After every launch, so that its error is not found by somebody else.
inline int launched() { return result(cudaGetLastError()); }

inline bool aligned(const void *p, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

constexpr int block_threads = 256;

}  // namespace grinnder
