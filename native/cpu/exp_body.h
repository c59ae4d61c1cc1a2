// exp of a vector, compiled once per instruction set: x = n ln 2 + r with |r| <= ln 2 / 2, Taylor's sum for exp(r),
// then the power of two in two steps, so that results may be subnormal or infinite. The error is below 1.5 units in the
// last place (a C test).
#pragma once
#include "vector.h"

namespace grinnder {
namespace {  // each isa_*.cpp has its own copy

// `round`: adding it leaves the nearest integer in the low bits. ln 2 = high + low, with n * high exact.
template <typename T>
struct ExpNumbers;
template <>
struct ExpNumbers<float> {
    static constexpr float round = 12582912.0f, high = 0.693359375f, low = -2.12194440e-4f;
    static constexpr float lowest = -104.0f, highest = 89.0f;  // below and above: 0 and infinity
    static constexpr int degree = 7, bias = 127, mantissa = 23;
};
template <>
struct ExpNumbers<double> {
    static constexpr double round = 6755399441055744.0, high = 6.93147180369123816490e-01;
    static constexpr double low = 1.90821492927058770002e-10, lowest = -746.0, highest = 710.0;
    static constexpr int degree = 13, bias = 1023, mantissa = 52;
};

template <typename T, int degree>
struct Inverse {  // 1 / degree!
    static constexpr double factorial = degree * Inverse<T, degree - 1>::factorial;
    static constexpr T value = static_cast<T>(1.0 / factorial);
};
template <typename T>
struct Inverse<T, 0> {
    static constexpr double factorial = 1.0;
    static constexpr T value = T(1);
};

template <typename T, int bytes>
struct Exp {
    using V = typename Vector<T, bytes>::type;
    using I = typename Vector<typename Bits<T>::type, bytes>::type;
    using N = ExpNumbers<T>;

    template <int degree>
    static inline __attribute__((always_inline)) V horner(V sum, V r) {
        const V next = Lanes<T, bytes>::fused(sum, r, V{} + Inverse<T, degree>::value);
        if constexpr (degree > 0) return horner<degree - 1>(next, r);
        else return next;
    }

    static inline __attribute__((always_inline)) V of(V x) {
        const V round = V{} + N::round;
        x = x < N::lowest ? V{} + N::lowest : x;  // NaN stays
        x = x > N::highest ? V{} + N::highest : x;
        const V shifted = x * static_cast<T>(1.44269504088896340736) + round, n = shifted - round;
        const V half = n * T(0.5) + round;  // n = first + second
        const I first = (I)half - (I)round, second = (I)shifted - (I)round - first;
        V r = Lanes<T, bytes>::fused(n, V{} - N::high, x);
        r = Lanes<T, bytes>::fused(n, V{} - N::low, r);
        const V sum = horner<N::degree - 1>(V{} + Inverse<T, N::degree>::value, r);
        const V a = (V)((first + N::bias) << N::mantissa), b = (V)((second + N::bias) << N::mantissa);
        return sum * a * b;
    }
};

}  // namespace
}  // namespace grinnder
