// The words of a few rows' dropout masks, compiled once per instruction set.
//
// Words 0 and 2 of a counter lie in the low halves of 64-bit lanes, one vector each, since that is where the widening
// multiply reads them. What stands in the high halves never matters: words 1 and 3 are the low halves of the previous
// products, as they are. A round is then a multiply, a shift and a three-way xor per vector.
//
// The counter is (id low, id high, column / 4, 0), so the first two rounds are mostly known per row or per column.
// Several rows are worked on together: a row's rounds depend on one another, other rows' hide the multiplier's latency.
#pragma once
#include "kernel_set.h"
#include "philox.h"
#include "vector.h"

namespace grinnder {
namespace {  // each isa_*.cpp has its own copy

#if defined(__AVX512F__)
struct Counters {
    typedef __m512i V;
    static constexpr int count = 8;
    // Such that store()'s interleaving ends in column order.
    static V first() { return _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0); }
    static V all(uint64_t x) { return _mm512_set1_epi64(static_cast<int64_t>(x)); }
    static V add(V a, V b) { return _mm512_add_epi64(a, b); }
    static V multiply(V a, V b) { return _mm512_mul_epu32(a, b); }
    static V high(V a) { return _mm512_srli_epi64(a, 32); }
    static V mix(V a, V b, V c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
    static V mix(V a, V b) { return _mm512_xor_si512(a, b); }
    static V pair(V even, V odd) { return _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA); }
    static void store(uint32_t *to, V c0, V c1, V c2, V c3) {
        const V a = pair(c0, c1), b = pair(c2, c3);
        _mm512_storeu_si512(to, _mm512_unpacklo_epi64(a, b));
        _mm512_storeu_si512(to + 16, _mm512_unpackhi_epi64(a, b));
    }
};
constexpr int rows_together = 4;
#elif defined(__AVX2__)
struct Counters {
    typedef __m256i V;
    static constexpr int count = 4;
    static V first() { return _mm256_set_epi64x(3, 1, 2, 0); }
    static V all(uint64_t x) { return _mm256_set1_epi64x(static_cast<int64_t>(x)); }
    static V add(V a, V b) { return _mm256_add_epi64(a, b); }
    static V multiply(V a, V b) { return _mm256_mul_epu32(a, b); }
    static V high(V a) { return _mm256_srli_epi64(a, 32); }
    static V mix(V a, V b, V c) { return _mm256_xor_si256(a, _mm256_xor_si256(b, c)); }
    static V mix(V a, V b) { return _mm256_xor_si256(a, b); }
    static V pair(V even, V odd) { return _mm256_blend_epi32(even, _mm256_shuffle_epi32(odd, 0xA0), 0xAA); }
    static void store(uint32_t *to, V c0, V c1, V c2, V c3) {
        const V a = pair(c0, c1), b = pair(c2, c3);
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), _mm256_unpacklo_epi64(a, b));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + 8), _mm256_unpackhi_epi64(a, b));
    }
};
constexpr int rows_together = 2;
#elif defined(__SSE2__)
struct Counters {
    typedef __m128i V;
    static constexpr int count = 2;
    static V first() { return _mm_set_epi64x(1, 0); }
    static V all(uint64_t x) { return _mm_set1_epi64x(static_cast<int64_t>(x)); }
    static V add(V a, V b) { return _mm_add_epi64(a, b); }
    static V multiply(V a, V b) { return _mm_mul_epu32(a, b); }
    static V high(V a) { return _mm_srli_epi64(a, 32); }
    static V mix(V a, V b, V c) { return _mm_xor_si128(a, _mm_xor_si128(b, c)); }
    static V mix(V a, V b) { return _mm_xor_si128(a, b); }
    static V pair(V even, V odd) {
        return _mm_or_si128(_mm_and_si128(even, all(0xFFFFFFFFu)), _mm_slli_epi64(odd, 32));
    }
    static void store(uint32_t *to, V c0, V c1, V c2, V c3) {
        const V a = pair(c0, c1), b = pair(c2, c3);
        _mm_storeu_si128(reinterpret_cast<__m128i *>(to), _mm_unpacklo_epi64(a, b));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(to + 4), _mm_unpackhi_epi64(a, b));
    }
};
constexpr int rows_together = 2;
#else
struct Counters {
    typedef uint64_t V;
    static constexpr int count = 1;
    static V first() { return 0; }
    static V all(uint64_t x) { return x; }
    static V add(V a, V b) { return a + b; }
    static V multiply(V a, V b) { return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu); }
    static V high(V a) { return a >> 32; }
    static V mix(V a, V b, V c) { return a ^ b ^ c; }
    static V mix(V a, V b) { return a ^ b; }
    static void store(uint32_t *to, V c0, V c1, V c2, V c3) {
        to[0] = static_cast<uint32_t>(c0), to[1] = static_cast<uint32_t>(c1);
        to[2] = static_cast<uint32_t>(c2), to[3] = static_cast<uint32_t>(c3);
    }
};
constexpr int rows_together = 2;
#endif

constexpr int mask_columns = 4 * Counters::count;  // words of one row that one call makes

// What the first two rounds know about a row.
struct RowKey {
    uint64_t c0_round_1, c0_round_2, c1_round_2, c2_round_2;
};

inline RowKey row_key(const Mask &mask, int64_t row) {
    const uint64_t id = static_cast<uint64_t>(mask.ids[row]);
    const uint64_t p0 = (id & 0xFFFFFFFFu) * multiplier_0;
    const uint64_t p1 = ((p0 >> 32) ^ mask.key[0][1]) * multiplier_1;
    return {(id >> 32) ^ mask.key[0][0], (p1 >> 32) ^ mask.key[1][0], p1, (p0 & 0xFFFFFFFFu) ^ mask.key[1][1]};
}

// word[r * mask_columns + j] = word of row r's column 4 * group + j.
template <int rows>
inline __attribute__((always_inline)) void mask_words(const Mask &mask, const RowKey *key, int64_t group,
                                                      uint32_t *word) {
    using C = Counters;
    using V = C::V;
    const V m0 = C::all(multiplier_0), m1 = C::all(multiplier_1);
    const V column = C::multiply(C::add(C::first(), C::all(static_cast<uint64_t>(group))), m1);
    V c0[rows], c1[rows], c2[rows], c3[rows];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
        c3[r] = C::multiply(C::mix(C::high(column), C::all(key[r].c0_round_1)), m0);
        c2[r] = C::mix(C::high(c3[r]), C::all(key[r].c2_round_2));
        c1[r] = C::all(key[r].c1_round_2);
        c0[r] = C::mix(column, C::all(key[r].c0_round_2));
    }
#pragma GCC unroll 8
    for (int round = 2; round < 10; ++round) {
        const V k0 = C::all(mask.key[round][0]), k1 = C::all(mask.key[round][1]);
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
            const V p0 = C::multiply(c0[r], m0), p1 = C::multiply(c2[r], m1);
            c0[r] = C::mix(C::high(p1), c1[r], k0);
            c2[r] = C::mix(C::high(p0), c3[r], k1);
            c1[r] = p1;
            c3[r] = p0;
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) C::store(word + r * mask_columns, c0[r], c1[r], c2[r], c3[r]);
}

}  // namespace
}  // namespace grinnder
