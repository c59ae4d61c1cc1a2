// Vectors of `bytes` bytes by the compiler's own vector type: arithmetic is written with operators, and only what they
// lack is spelt out per instruction set. Included by the *_body.h files alone.
#pragma once
#include <stdint.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace grinnder {
namespace {  // each isa_*.cpp has its own copy

template <typename T, int bytes>
struct Vector {
    typedef T type __attribute__((vector_size(bytes), aligned(sizeof(T)), may_alias));
    static constexpr int lanes = bytes / static_cast<int>(sizeof(T));
};
template <typename T>
struct Vector<T, 0> {  // plain scalars, for rows narrower than the narrowest vector
    typedef T type;
    static constexpr int lanes = 1;
};

template <typename T>
struct Bits {
    typedef int32_t type;
};
template <>
struct Bits<double> {
    typedef int64_t type;
};

// load, store: the first n lanes of a vector in memory, 0 < n < lanes; the rest reads as zero and is not written.
// kept: v where word >= threshold, else 0.
// fused: a * b + c, rounded once where the instruction set can. Needed only where the compiler is free to choose which
// of two products it fuses, or whether a branch hides the sum; elsewhere operators do.
template <typename T, int bytes>
struct Lanes {
    using V = typename Vector<T, bytes>::type;
    static V load(const T *from, int64_t n) {
        V v = {};
        for (int64_t i = 0; i < n; ++i) v[i] = from[i];
        return v;
    }
    static void store(T *to, V v, int64_t n) {
        for (int64_t i = 0; i < n; ++i) to[i] = v[i];
    }
    static V kept(V v, const uint32_t *word, uint32_t threshold) {
        typename Bits<T>::type keep[Vector<T, bytes>::lanes];
        for (int i = 0; i < Vector<T, bytes>::lanes; ++i) keep[i] = word[i] >= threshold ? -1 : 0;
        typedef typename Vector<typename Bits<T>::type, bytes>::type Choice;
        Choice choice;
        __builtin_memcpy(&choice, keep, sizeof choice);
        return (V)((Choice)v & choice);
    }
    static V fused(V a, V b, V c) { return a * b + c; }
};

#if defined(__AVX512F__)
template <>
struct Lanes<float, 64> {
    using V = Vector<float, 64>::type;
    static __mmask16 first(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
    static V load(const float *from, int64_t n) { return _mm512_maskz_loadu_ps(first(n), from); }
    static void store(float *to, V v, int64_t n) { _mm512_mask_storeu_ps(to, first(n), v); }
    static V kept(V v, const uint32_t *word, uint32_t threshold) {
        const __m512i bound = _mm512_set1_epi32(static_cast<int>(threshold));
        return _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(_mm512_loadu_si512(word), bound), v);
    }
    static V fused(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
};
template <>
struct Lanes<double, 64> {
    using V = Vector<double, 64>::type;
    static __mmask8 first(int64_t n) { return static_cast<__mmask8>((1u << n) - 1); }
    static V load(const double *from, int64_t n) { return _mm512_maskz_loadu_pd(first(n), from); }
    static void store(double *to, V v, int64_t n) { _mm512_mask_storeu_pd(to, first(n), v); }
    static V kept(V v, const uint32_t *word, uint32_t threshold) {
        const __m256i bound = _mm256_set1_epi32(static_cast<int>(threshold));
        const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(word));
        return _mm512_maskz_mov_pd(_mm256_cmpge_epu32_mask(words, bound), v);
    }
    static V fused(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
};
#elif defined(__AVX2__)
template <>
struct Lanes<float, 32> {
    using V = Vector<float, 32>::type;
    static __m256i first(int64_t n) {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
    }
    static V load(const float *from, int64_t n) { return _mm256_maskload_ps(from, first(n)); }
    static void store(float *to, V v, int64_t n) { _mm256_maskstore_ps(to, first(n), v); }
    static V kept(V v, const uint32_t *word, uint32_t threshold) {
        const __m256i bound = _mm256_set1_epi32(static_cast<int>(threshold));
        const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(word));
        return _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(words, bound), words)));
    }
    static V fused(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
};
template <>
struct Lanes<double, 32> {
    using V = Vector<double, 32>::type;
    static __m256i first(int64_t n) {
        return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_set_epi64x(3, 2, 1, 0));
    }
    static V load(const double *from, int64_t n) { return _mm256_maskload_pd(from, first(n)); }
    static void store(double *to, V v, int64_t n) { _mm256_maskstore_pd(to, first(n), v); }
    static V kept(V v, const uint32_t *word, uint32_t threshold) {
        const __m128i bound = _mm_set1_epi32(static_cast<int>(threshold));
        const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i *>(word));
        const __m128i keep = _mm_cmpeq_epi32(_mm_max_epu32(words, bound), words);
        return _mm256_and_pd(v, _mm256_castsi256_pd(_mm256_cvtepi32_epi64(keep)));
    }
    static V fused(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
};
#endif

// The vector at `from`, of which n columns are left in the row; `whole`: at least a vector of them.
template <typename T, int bytes, bool whole>
inline __attribute__((always_inline)) typename Vector<T, bytes>::type load(const T *from, int64_t n) {
    using V = typename Vector<T, bytes>::type;
    if (whole || n >= Vector<T, bytes>::lanes) return *reinterpret_cast<const V *>(from);
    return Lanes<T, bytes>::load(from, n);
}
template <typename T, int bytes, bool whole>
inline __attribute__((always_inline)) void store(T *to, typename Vector<T, bytes>::type v, int64_t n) {
    using V = typename Vector<T, bytes>::type;
    if (whole || n >= Vector<T, bytes>::lanes) *reinterpret_cast<V *>(to) = v;
    else Lanes<T, bytes>::store(to, v, n);
}

// v with zeros in the lanes from n on.
template <typename T, int bytes>
inline typename Vector<T, bytes>::type first_lanes(typename Vector<T, bytes>::type v, int64_t n) {
    for (int i = 0; i < Vector<T, bytes>::lanes; ++i) v[i] = i < n ? v[i] : T(0);
    return v;
}

// Sum of the lanes: halves, then halves of those.
template <typename T, int bytes>
struct Total {
    static T of(typename Vector<T, bytes>::type v) {
        typedef typename Vector<T, bytes / 2>::type Half;
        Half half[2];
        __builtin_memcpy(half, &v, sizeof v);
        return Total<T, bytes / 2>::of(half[0] + half[1]);
    }
};
template <typename T>
struct Total<T, 16> {
    static T of(typename Vector<T, 16>::type v) {
        if constexpr (sizeof(T) == 8) return v[0] + v[1];
        else return (v[0] + v[2]) + (v[1] + v[3]);
    }
};

}  // namespace
}  // namespace grinnder
