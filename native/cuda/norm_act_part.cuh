// A lane's part of a row between two aggregations: how it moves, and what both directions compute of it.
//
// A team of lanes works on a row and holds all of it in registers: half a warp or a warp, for wide rows the block. A
// lane owns groups of four columns, as Philox makes them; a group's four words are one call.
// What both directions compute is written once and rounds every operation by itself: ReLU's gate is then the same.
#pragma once
#include "common.h"
#include "philox.cuh"

namespace grinnder {
namespace {

constexpr unsigned all_lanes = 0xFFFFFFFFu;

template <int groups>
using Values = float[groups][4];

// Sum of the lanes' values, the same bits in each of them.
template <int lanes>
__device__ __forceinline__ float total(float v, float *shared) {
#pragma unroll
    for (int apart = (lanes < 32 ? lanes : 32) / 2; apart; apart /= 2) v += __shfl_xor_sync(all_lanes, v, apart);
    if constexpr (lanes > 32) {
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
        __syncthreads();
        v = shared[0];
#pragma unroll
        for (int w = 1; w < lanes / 32; ++w) v += shared[w];
        __syncthreads();
    }
    return v;
}

// The lane's part of one row, and how it moves.
template <int lanes, int groups>
struct Part {
    int64_t row;
    int width, lane;
    bool active, vector;  // does the row exist; may loads take 16 bytes

    __device__ __forceinline__ int column(int g) const { return 4 * (lane + g * lanes); }

    __device__ __forceinline__ void get_group(float (&v)[4], const float *from, int g, bool there, float other) const {
        const int c = column(g);
        if (vector) {
            float4 f = make_float4(other, other, other, other);
            if (there && c < width) f = *reinterpret_cast<const float4 *>(from + c);
            v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
        } else {
#pragma unroll
            for (int k = 0; k < 4; ++k) v[k] = there && c + k < width ? from[c + k] : other;
        }
    }

    // A matrix's row; zeros where there is none.
    __device__ __forceinline__ void get(Values<groups> &v, const float *matrix) const {
        const float *const from = matrix + row * width;
#pragma unroll
        for (int g = 0; g < groups; ++g) get_group(v[g], from, g, matrix && active, 0.0f);
    }

    // A group of a parameter, `other` where it is null.
    __device__ __forceinline__ void parameter(float (&v)[4], const float *from, int g, float other) const {
        get_group(v, from, g, from != nullptr, other);
    }

    __device__ __forceinline__ void put(float *matrix, const Values<groups> &v) const {
        if (!active) return;
        float *const to = matrix + row * width;
#pragma unroll
        for (int g = 0; g < groups; ++g) {
            const int c = column(g);
            if (vector) {
                if (c < width) *reinterpret_cast<float4 *>(to + c) = make_float4(v[g][0], v[g][1], v[g][2], v[g][3]);
            } else {
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    if (c + k < width) to[c + k] = v[g][k];
            }
        }
    }

    // v becomes z + bias, normalized if there is a norm. Returns 1 / sqrt(var + eps).
    __device__ __forceinline__ float normalize(Values<groups> &v, const NormActArgs<float> &a, float *shared) const {
        float sum = 0.0f, square = 0.0f;
#pragma unroll
        for (int g = 0; g < groups; ++g) {
            float bias[4];
            parameter(bias, a.bias, g, 0.0f);
#pragma unroll
            for (int k = 0; k < 4; ++k) v[g][k] = __fadd_rn(v[g][k], bias[k]), sum = __fadd_rn(sum, v[g][k]);
        }
        if (!a.gamma) return 0.0f;
        const float mean = total<lanes>(sum, shared) / static_cast<float>(width);
#pragma unroll
        for (int g = 0; g < groups; ++g)
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                v[g][k] = column(g) + k < width ? __fsub_rn(v[g][k], mean) : 0.0f;
                square = __fmaf_rn(v[g][k], v[g][k], square);
            }
        const float variance = total<lanes>(square, shared) / static_cast<float>(width);
        // A row that does not exist has zeros: its part of the column sums is then 0 too.
        const float rstd = active ? 1.0f / sqrtf(__fadd_rn(variance, a.eps)) : 0.0f;
#pragma unroll
        for (int g = 0; g < groups; ++g)
#pragma unroll
            for (int k = 0; k < 4; ++k) v[g][k] = __fmul_rn(v[g][k], rstd);
        return rstd;
    }

    // What ReLU sees.
    __device__ __forceinline__ void before_relu(float (&x)[4], const float (&normal)[4], const float (&skip)[4],
                                                const NormActArgs<float> &a, int g) const {
        float factor[4], shift[4];
        if (a.gamma) {
            parameter(factor, a.gamma, g, 0.0f);
            parameter(shift, a.beta, g, 0.0f);
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            x[k] = a.gamma ? __fmaf_rn(normal[k], factor[k], shift[k]) : normal[k];
            if (a.skip) x[k] = __fadd_rn(x[k], skip[k]);
        }
    }

    // ReLU and dropout of v, which is x itself or a gradient; NaN passes, as in torch.
    __device__ __forceinline__ void gate(float (&v)[4], const float (&x)[4], const Mask &mask, int64_t id, int g) const {
#pragma unroll
        for (int k = 0; k < 4; ++k) v[k] = x[k] <= 0.0f ? 0.0f : v[k];
        if (mask.ids) drop(mask, id, static_cast<uint32_t>(lane + g * lanes), v);
    }
};

}  // namespace
}  // namespace grinnder
