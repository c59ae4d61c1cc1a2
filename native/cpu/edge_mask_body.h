// Words of attention dropout, compiled once per instruction set: word 0 of Philox with the counter
// (source id, destination id, occurrence, head), for several edges of one row. philox_body.h says how lanes are used.
#pragma once
#include "philox_body.h"

namespace grinnder {
namespace {  // each isa_*.cpp has its own copy

// Of a chunk: the id at the other end of each edge, and its rank among the row's edges to that end.
struct EdgeKeys {
    alignas(64) uint64_t other[attention_chunk] = {};
    alignas(64) uint64_t occurrence[attention_chunk] = {};
};

// word[e] of edges [0, n); up to the end of the chunk more may be written.
template <bool row_is_source>
void edge_words(const Mask &mask, uint64_t row_id, const EdgeKeys &keys, uint64_t head, int64_t n, uint32_t *word) {
    using C = Counters;
    using V = C::V;
    constexpr int together = rows_together;
    static_assert(attention_chunk % (together * C::count) == 0, "a chunk is a whole number of steps");
    const V m0 = C::all(multiplier_0), m1 = C::all(multiplier_1);
    for (int64_t at = 0; at < n; at += together * C::count) {
        V c0[together], c1[together], c2[together], c3[together];
#pragma GCC unroll 4
        for (int g = 0; g < together; ++g) {
            V other;
            __builtin_memcpy(&other, keys.other + at + g * C::count, sizeof other);
            __builtin_memcpy(&c2[g], keys.occurrence + at + g * C::count, sizeof c2[g]);
            c0[g] = row_is_source ? C::all(row_id) : other;
            c1[g] = row_is_source ? other : C::all(row_id);
            c3[g] = C::all(head);
        }
#pragma GCC unroll 10
        for (int round = 0; round < 10; ++round) {
            const V k0 = C::all(mask.key[round][0]), k1 = C::all(mask.key[round][1]);
#pragma GCC unroll 4
            for (int g = 0; g < together; ++g) {
                const V p0 = C::multiply(c0[g], m0), p1 = C::multiply(c2[g], m1);
                c0[g] = C::mix(C::high(p1), c1[g], k0);
                c2[g] = C::mix(C::high(p0), c3[g], k1);
                c1[g] = p1;
                c3[g] = p0;
            }
        }
        uint64_t wide[together * C::count];
        __builtin_memcpy(wide, c0, sizeof wide);
        for (int i = 0; i < together * C::count; ++i) word[at + i] = static_cast<uint32_t>(wide[i]);
    }
}

}  // namespace
}  // namespace grinnder
