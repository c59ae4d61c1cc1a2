// Dropout's words and gate, as native/cpu/philox_body.h makes them. mask_words: of a row's columns 4 * group + (0..3).
#pragma once
#include "../cpu/call.h"

namespace grinnder {
namespace {

__device__ __forceinline__ uint4 words_of(const Mask &mask, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
    const uint32_t added = mask.added ? __ldg(mask.added) : 0;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = static_cast<uint64_t>(multiplier_0) * c0, p1 = static_cast<uint64_t>(multiplier_1) * c2;
        c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ static_cast<uint32_t>(mask.key[round][0]);
        c1 = static_cast<uint32_t>(p1);
        c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ (static_cast<uint32_t>(mask.key[round][1]) + added);
        c3 = static_cast<uint32_t>(p0);
    }
    return make_uint4(c0, c1, c2, c3);
}

__device__ __forceinline__ uint4 mask_words(const Mask &mask, int64_t id, uint32_t group) {
    const uint64_t bits = static_cast<uint64_t>(id);
    return words_of(mask, static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32), group, 0);
}

// v times the factor of what is kept, or 0.
__device__ __forceinline__ void drop(const Mask &mask, int64_t id, uint32_t group, float (&v)[4]) {
    const uint4 words = mask_words(mask, id, group);
    const float factor = static_cast<float>(mask.scale);
    v[0] = words.x < mask.threshold ? 0.0f : __fmul_rn(v[0], factor);
    v[1] = words.y < mask.threshold ? 0.0f : __fmul_rn(v[1], factor);
    v[2] = words.z < mask.threshold ? 0.0f : __fmul_rn(v[2], factor);
    v[3] = words.w < mask.threshold ? 0.0f : __fmul_rn(v[3], factor);
}

}  // namespace
}  // namespace grinnder
