// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): constants, and one counter in
// plain scalar code, against which the vectors of philox_body.h are tested.
#pragma once
#include <stdint.h>

namespace grinnder {
namespace {

constexpr uint32_t multiplier_0 = 0xD2511F53u, multiplier_1 = 0xCD9E8D57u;
constexpr uint32_t weyl_0 = 0x9E3779B9u, weyl_1 = 0xBB67AE85u;

inline void philox(const uint32_t *counter, const uint32_t *key, uint32_t *out) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round, k0 += weyl_0, k1 += weyl_1) {
        const uint64_t p0 = static_cast<uint64_t>(multiplier_0) * c0, p1 = static_cast<uint64_t>(multiplier_1) * c2;
        c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
        c1 = static_cast<uint32_t>(p1);
        c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
        c3 = static_cast<uint32_t>(p0);
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

}  // namespace
}  // namespace grinnder
