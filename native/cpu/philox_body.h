// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), compiled once per
// instruction set.
//
// A counter lies in memory order in 128 bits, so that one widening multiply serves both halves of a round and the
// output words come out in column order: no transposition.
#pragma once
#include "kernel_set.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace grinnder {
namespace {  // each isa_*.cpp has its own copy

constexpr uint32_t multiplier_0 = 0xD2511F53u, multiplier_1 = 0xCD9E8D57u;
constexpr uint32_t weyl_0 = 0x9E3779B9u, weyl_1 = 0xBB67AE85u;

#if defined(__AVX512F__)
struct Counters {
    static constexpr int groups = 4;
    typedef __m512i V;
    static V start(const uint32_t *counter) {
        const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i *>(counter));
        return _mm512_add_epi32(_mm512_broadcast_i32x4(first),
                                _mm512_set_epi32(0, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0));
    }
    static V next(V c) { return _mm512_add_epi32(c, _mm512_broadcast_i32x4(_mm_set_epi32(0, groups, 0, 0))); }
    static V key(uint32_t k0, uint32_t k1) {
        return _mm512_broadcast_i32x4(_mm_set_epi32(0, static_cast<int>(k1), 0, static_cast<int>(k0)));
    }
    static V round(V c, V k) {
        const V m = _mm512_broadcast_i32x4(
            _mm_set_epi32(0, static_cast<int>(multiplier_1), 0, static_cast<int>(multiplier_0)));
        const V product = _mm512_shuffle_epi32(_mm512_mul_epu32(c, m), _MM_PERM_ABCD);
        return _mm512_ternarylogic_epi64(product, _mm512_srli_epi64(c, 32), k, 0x96);
    }
    static void store(uint32_t *to, V c) { _mm512_storeu_si512(to, c); }
};
#elif defined(__AVX2__)
struct Counters {
    static constexpr int groups = 2;
    typedef __m256i V;
    static V start(const uint32_t *counter) {
        const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i *>(counter));
        return _mm256_add_epi32(_mm256_broadcastsi128_si256(first), _mm256_set_epi32(0, 1, 0, 0, 0, 0, 0, 0));
    }
    static V next(V c) { return _mm256_add_epi32(c, _mm256_set_epi32(0, groups, 0, 0, 0, groups, 0, 0)); }
    static V key(uint32_t k0, uint32_t k1) {
        const int a = static_cast<int>(k0), b = static_cast<int>(k1);
        return _mm256_set_epi32(0, b, 0, a, 0, b, 0, a);
    }
    static V round(V c, V k) {
        const V product = _mm256_shuffle_epi32(_mm256_mul_epu32(c, key(multiplier_0, multiplier_1)), 0x1B);
        return _mm256_xor_si256(_mm256_xor_si256(product, _mm256_srli_epi64(c, 32)), k);
    }
    static void store(uint32_t *to, V c) { _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), c); }
};
#elif defined(__SSE2__)
struct Counters {
    static constexpr int groups = 1;
    typedef __m128i V;
    static V start(const uint32_t *counter) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i *>(counter));
    }
    static V next(V c) { return _mm_add_epi32(c, _mm_set_epi32(0, groups, 0, 0)); }
    static V key(uint32_t k0, uint32_t k1) {
        return _mm_set_epi32(0, static_cast<int>(k1), 0, static_cast<int>(k0));
    }
    static V round(V c, V k) {
        const V product = _mm_shuffle_epi32(_mm_mul_epu32(c, key(multiplier_0, multiplier_1)), 0x1B);
        return _mm_xor_si128(_mm_xor_si128(product, _mm_srli_epi64(c, 32)), k);
    }
    static void store(uint32_t *to, V c) { _mm_storeu_si128(reinterpret_cast<__m128i *>(to), c); }
};
#else
struct Counters {
    static constexpr int groups = 1;
    struct V {
        uint32_t w[4];
    };
    static V start(const uint32_t *counter) { return {{counter[0], counter[1], counter[2], counter[3]}}; }
    static V next(V c) { return {{c.w[0], c.w[1], c.w[2] + groups, c.w[3]}}; }
    static V key(uint32_t k0, uint32_t k1) { return {{k0, 0, k1, 0}}; }
    static V round(V c, V k) {
        const uint64_t p0 = static_cast<uint64_t>(multiplier_0) * c.w[0];
        const uint64_t p1 = static_cast<uint64_t>(multiplier_1) * c.w[2];
        return {{static_cast<uint32_t>(p1 >> 32) ^ c.w[1] ^ k.w[0], static_cast<uint32_t>(p1),
                 static_cast<uint32_t>(p0 >> 32) ^ c.w[3] ^ k.w[2], static_cast<uint32_t>(p0)}};
    }
    static void store(uint32_t *to, V c) {
        for (int i = 0; i < 4; ++i) to[i] = c.w[i];
    }
};
#endif

// Ten rounds over consecutive counters. A vector's rounds depend on one another; this many independent vectors in
// flight hide the multiplier's latency.
constexpr int in_flight = 4;
constexpr int words_at_once = in_flight * Counters::groups * 4;

inline void philox_words(const uint32_t *counter, uint32_t k0, uint32_t k1, uint32_t *word) {
    Counters::V c[in_flight];
    c[0] = Counters::start(counter);
    for (int i = 1; i < in_flight; ++i) c[i] = Counters::next(c[i - 1]);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round, k0 += weyl_0, k1 += weyl_1) {
        const Counters::V k = Counters::key(k0, k1);
        for (int i = 0; i < in_flight; ++i) c[i] = Counters::round(c[i], k);
    }
    for (int i = 0; i < in_flight; ++i) Counters::store(word + i * Counters::groups * 4, c[i]);
}

// One counter alone; only the first of the words worked out is wanted.
inline void philox(const uint32_t *counter, const uint32_t *key, uint32_t *out) {
    uint32_t word[words_at_once];
    philox_words(counter, key[0], key[1], word);
    for (int i = 0; i < 4; ++i) out[i] = word[i];
}

template <typename T>
void dropout_row(T *x, int64_t width, int64_t id, uint32_t seed, uint32_t stream, uint32_t threshold, T scale) {
    alignas(64) uint32_t word[words_at_once];
    uint32_t counter[4] = {static_cast<uint32_t>(id), static_cast<uint32_t>(static_cast<uint64_t>(id) >> 32), 0, 0};
    for (int64_t at = 0; at < width; at += words_at_once) {
        counter[2] = static_cast<uint32_t>(at / 4);
        philox_words(counter, seed, stream, word);
        if (width - at >= words_at_once) {  // a constant trip count, so that the compiler vectorises it
            for (int j = 0; j < words_at_once; ++j) x[at + j] = word[j] >= threshold ? x[at + j] * scale : T(0);
        } else {
            for (int64_t j = 0; j < width - at; ++j) x[at + j] = word[j] >= threshold ? x[at + j] * scale : T(0);
        }
    }
}

}  // namespace
}  // namespace grinnder
