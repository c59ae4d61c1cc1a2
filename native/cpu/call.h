// What the functions that check arguments and start threads share. No isa_*.cpp includes this.
#pragma once
#include <math.h>
#include <stdint.h>

#include <algorithm>

#include "kernel_set.h"
#include "philox.h"

namespace grinnder {
namespace {

constexpr int64_t min_bytes_per_thread = 1 << 16;  // below that waking a thread costs as much as its work

// Threads that `rows` rows are worth.
inline int team(int threads, int64_t rows, uint64_t row_bytes) {
    const int64_t worth = static_cast<int64_t>(static_cast<uint64_t>(rows) * row_bytes / min_bytes_per_thread);
    return static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(threads, worth)));
}

inline Mask make_mask(const int64_t *ids, uint32_t seed, uint32_t stream, double p,
                      const uint32_t *added = nullptr) {
    Mask mask;
    mask.added = added;
    mask.ids = p == 0.0 ? nullptr : ids;
    mask.threshold = static_cast<uint32_t>(floor(p * 4294967296.0));
    mask.scale = 1.0 / (1.0 - p);
    for (uint32_t round = 0; round < 10; ++round) {
        mask.key[round][0] = static_cast<uint32_t>(seed + round * weyl_0);
        mask.key[round][1] = static_cast<uint32_t>(stream + round * weyl_1);
    }
    return mask;
}

}  // namespace
}  // namespace grinnder
