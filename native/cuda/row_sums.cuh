// What spmm.cu and attend.cuh share: who sums a row's edges, and how a lane loads and stores its columns.
//
// Turn -1 of a block gives every warp its own row, turn r all warps the block's row r, which only a hub takes.
#pragma once
#include "common.h"

namespace grinnder {
namespace {

constexpr int warps = block_threads / 32;
constexpr int64_t hub_edges = 2048;  // a row with more is the whole block's
constexpr unsigned all_lanes = 0xFFFFFFFFu;

__host__ __device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }

// Of a row's edges [begin, end), the ones that this warp sums when the block's warps share them: whole batches of 32.
__device__ __forceinline__ void hub_share(int warp, int64_t &begin, int64_t &end) {
    const int64_t share = (end - begin + 32 * warps - 1) / (32 * warps) * 32;
    begin = begin + share * warp < end ? begin + share * warp : end;
    end = begin + share < end ? begin + share : end;
}

// `vector` is 4, whose addresses are aligned to 16 bytes, or 1.
template <int vector>
__device__ __forceinline__ void get(float (&v)[vector], const float *from) {
    if constexpr (vector == 4) {
        const float4 f = __ldg(reinterpret_cast<const float4 *>(from));
        v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    } else {
        v[0] = __ldg(from);
    }
}

template <int vector>
__device__ __forceinline__ void put(float *to, const float (&v)[vector]) {
    if constexpr (vector == 4) *reinterpret_cast<float4 *>(to) = make_float4(v[0], v[1], v[2], v[3]);
    else *to = v[0];
}

// Streaming: what is written is not read before much else has been.
template <int vector>
__device__ __forceinline__ void put_streaming(float *to, const float (&v)[vector], float scale) {
    if constexpr (vector == 4) {
        __stcs(reinterpret_cast<float4 *>(to), make_float4(v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale));
    } else {
        __stcs(to, v[0] * scale);
    }
}

}  // namespace
}  // namespace grinnder
