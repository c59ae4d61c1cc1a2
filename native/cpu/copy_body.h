// Copy of one row, compiled once per instruction set: a call to memcpy costs more than a narrow row does.
#pragma once
#include "kernel_set.h"

namespace grinnder {
namespace {  // each isa_*.cpp has its own copy

template <int bytes>
inline __attribute__((always_inline)) void copy_vector(char *to, const char *from) {
    typedef char V __attribute__((vector_size(bytes), aligned(1), may_alias));
    *reinterpret_cast<V *>(to) = *reinterpret_cast<const V *>(from);
}

template <int vector_bytes>
void copy_row(char *to, const char *from, uint64_t bytes) {
    constexpr uint64_t step = vector_bytes;
    if (bytes >= step) {
        uint64_t at = 0;
        for (; at + step <= bytes; at += step) copy_vector<vector_bytes>(to + at, from + at);
        if (at < bytes) copy_vector<vector_bytes>(to + bytes - step, from + bytes - step);
        return;
    }
    for (uint64_t at = 0; at < bytes; ++at) to[at] = from[at];
}

}  // namespace
}  // namespace grinnder
