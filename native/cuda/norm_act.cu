// Bias, LayerNorm, skip, ReLU, dropout and row scale, forward and backward, one pass over memory.
#include "norm_act_part.cuh"

namespace grinnder {
namespace {

constexpr int64_t max_width = 8192;
constexpr int64_t max_blocks = 2048, min_block_rows = 32;  // of the gradient: a block's column sums are one partial
constexpr int64_t forward_rows = 4;                        // of each team, in its block

// A block's rows [first, end), a row per team and turn.
template <int lanes, int groups>
__device__ __forceinline__ Part<lanes, groups> part_of(const NormActArgs<float> &a, int64_t turn, int64_t end,
                                                       bool vector) {
    const int64_t row = turn + threadIdx.x / lanes;
    return {row, static_cast<int>(a.width), static_cast<int>(threadIdx.x % lanes), row < end, vector};
}

template <int lanes, int groups>
__global__ void __launch_bounds__(block_threads) norm_act(const __grid_constant__ NormActArgs<float> a, int64_t rows,
                                                          int64_t block_rows, bool vector) {
    __shared__ float shared[block_threads / 32];
    const int64_t first = blockIdx.x * block_rows, end = first + block_rows < rows ? first + block_rows : rows;
    for (int64_t turn = first; turn < end; turn += block_threads / lanes) {
        const auto part = part_of<lanes, groups>(a, turn, end, vector);
        Values<groups> v, skip;
        part.get(v, a.z);
        part.get(skip, a.skip);
        const float scale = a.scale && part.active ? a.scale[part.row] : 1.0f;
        const int64_t id = a.mask.ids && part.active ? a.mask.ids[part.row] : 0;
        part.normalize(v, a, shared);
#pragma unroll
        for (int g = 0; g < groups; ++g) {
            float x[4];
            part.before_relu(x, v[g], skip[g], a, g);
#pragma unroll
            for (int k = 0; k < 4; ++k) v[g][k] = x[k];
            part.gate(v[g], x, a.mask, id, g);
        }
        if (a.h) part.put(a.h, v);
#pragma unroll
        for (int g = 0; g < groups; ++g)
#pragma unroll
            for (int k = 0; k < 4; ++k) v[g][k] = __fmul_rn(v[g][k], scale);
        part.put(a.hs, v);
    }
}

// The block's sums of a column, its teams in order, to `partial`.
template <int lanes, int groups>
__device__ __forceinline__ void combine(const Values<groups> &sum, int width, float *shared, float *partial) {
    constexpr int teams = block_threads / lanes, columns = 4 * lanes * groups;
    const int lane = threadIdx.x % lanes, team = threadIdx.x / lanes;
    if constexpr (teams > 1) __syncthreads();  // the one before has been read
#pragma unroll
    for (int g = 0; g < groups; ++g)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const int c = 4 * (lane + g * lanes) + k;
            if constexpr (teams > 1) shared[team * columns + c] = sum[g][k];
            else if (c < width) partial[c] = sum[g][k];
        }
    if constexpr (teams > 1) {
        __syncthreads();
        for (int c = threadIdx.x; c < width; c += block_threads) {
            float v = shared[c];
            for (int t = 1; t < teams; ++t) v += shared[t * columns + c];
            partial[c] = v;
        }
    }
}

// Partial sums: [which][block][column], `which` being dgamma, dbeta, dbias; `wanted` has a bit for each.
template <int lanes, int groups>
__global__ void __launch_bounds__(block_threads) norm_act_grad(const __grid_constant__ NormActArgs<float> a,
                                                               int64_t rows, int64_t block_rows, bool vector,
                                                               int wanted, float *partial) {
    __shared__ float shared[lanes > 32 ? block_threads / 32 : block_threads * groups * 4];
    Values<groups> dgamma = {}, dbeta = {}, dbias = {};
    const int64_t first = blockIdx.x * block_rows, end = first + block_rows < rows ? first + block_rows : rows;
    for (int64_t turn = first; turn < end; turn += block_threads / lanes) {
        const auto part = part_of<lanes, groups>(a, turn, end, vector);
        Values<groups> normal, gradient, more;
        part.get(normal, a.z);
        const float scale = a.scale && part.active ? a.scale[part.row] : 1.0f;
        const int64_t id = a.mask.ids && part.active ? a.mask.ids[part.row] : 0;
        const float rstd = part.normalize(normal, a, shared);
        part.get(gradient, a.g_h);
        if (a.g_hs) {
            part.get(more, a.g_hs);
#pragma unroll
            for (int g = 0; g < groups; ++g)
#pragma unroll
                for (int k = 0; k < 4; ++k) gradient[g][k] = __fmaf_rn(more[g][k], scale, gradient[g][k]);
        }
        part.get(more, a.skip);
        float sum = 0.0f, product = 0.0f;
#pragma unroll
        for (int g = 0; g < groups; ++g) {
            float x[4];
            part.before_relu(x, normal[g], more[g], a, g);
            part.gate(gradient[g], x, a.mask, id, g);
        }
        if (a.dskip) part.put(a.dskip, gradient);
        if (!a.gamma) {
            if (a.dz) part.put(a.dz, gradient);
#pragma unroll
            for (int g = 0; g < groups; ++g)
#pragma unroll
                for (int k = 0; k < 4; ++k) dbias[g][k] += gradient[g][k];
            continue;
        }
#pragma unroll
        for (int g = 0; g < groups; ++g) {
            float factor[4];
            part.parameter(factor, a.gamma, g, 0.0f);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                dbeta[g][k] += gradient[g][k];
                dgamma[g][k] = __fmaf_rn(gradient[g][k], normal[g][k], dgamma[g][k]);
                gradient[g][k] = __fmul_rn(gradient[g][k], factor[k]);  // at the normalized values from here on
                sum += gradient[g][k];
                product = __fmaf_rn(gradient[g][k], normal[g][k], product);
            }
        }
        sum = total<lanes>(sum, shared) / static_cast<float>(a.width);
        product = total<lanes>(product, shared) / static_cast<float>(a.width);
#pragma unroll
        for (int g = 0; g < groups; ++g)
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                gradient[g][k] = __fmul_rn(__fmaf_rn(normal[g][k], -product, __fsub_rn(gradient[g][k], sum)), rstd);
                dbias[g][k] += gradient[g][k];
            }
        if (a.dz) part.put(a.dz, gradient);
    }
    const int width = static_cast<int>(a.width);
    const auto partial_of = [&](int which) {
        return partial + (static_cast<int64_t>(which) * gridDim.x + blockIdx.x) * width;
    };
    if (wanted & 1) combine<lanes, groups>(dgamma, width, shared, partial_of(0));
    if (wanted & 2) combine<lanes, groups>(dbeta, width, shared, partial_of(1));
    if (wanted & 4) combine<lanes, groups>(dbias, width, shared, partial_of(2));
}

// Sums of the blocks' partial sums. 32 columns per block; each warp adds a share of the blocks, then the shares.
struct Sums {
    float *to[3];
};
__global__ void __launch_bounds__(1024) column_sums(const float *partial, int64_t blocks, int64_t width,
                                                    const __grid_constant__ Sums sums) {
    __shared__ double share[32][32];
    float *const to = sums.to[blockIdx.y];
    if (!to) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + lane, each = (blocks + 31) / 32;
    const int64_t end = (warp + 1) * each < blocks ? (warp + 1) * each : blocks;
    double sum = 0.0;
    if (column < width)
#pragma unroll 8
        for (int64_t b = warp * each; b < end; ++b) sum += __ldg(partial + (blockIdx.y * blocks + b) * width + column);
    share[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= width) return;
    for (int w = 1; w < 32; ++w) sum += share[w][lane];
    to[column] = static_cast<float>(sum);
}

// ------------------------------------------------------------------ launches

struct Forward {
    const NormActArgs<float> &a;
    int64_t rows;
    bool vector;
    cudaStream_t stream;

    template <int lanes, int groups>
    int run() const {
        const int64_t block_rows = forward_rows * (block_threads / lanes), blocks = (rows + block_rows - 1) / block_rows;
        if (blocks > INT32_MAX) return -EINVAL;
        norm_act<lanes, groups><<<static_cast<unsigned>(blocks), block_threads, 0, stream>>>(a, rows, block_rows, vector);
        return launched();
    }
};

// The gradient's blocks: a function of the rows alone, so that the order of sums is one too.
int64_t gradient_block_rows(int64_t rows) {
    const int64_t even = (rows + max_blocks - 1) / max_blocks;
    return even <= min_block_rows ? min_block_rows : (even + 15) / 16 * 16;
}

struct Backward {
    const NormActArgs<float> &a;
    int64_t rows, blocks;
    bool vector;
    int wanted;
    float *partial;
    cudaStream_t stream;

    template <int lanes, int groups>
    int run() const {
        norm_act_grad<lanes, groups><<<static_cast<unsigned>(blocks), block_threads, 0, stream>>>(
            a, rows, gradient_block_rows(rows), vector, wanted, partial);
        return launched();
    }
};

// The kernel whose team holds a row of this width.
template <typename Kernel>
int run(const Kernel &kernel, int64_t width) {
    if (width <= 64) return kernel.template run<16, 1>();
    if (width <= 128) return kernel.template run<32, 1>();
    if (width <= 256) return kernel.template run<32, 2>();
    if (width <= 512) return kernel.template run<32, 4>();
    if (width <= 1024) return kernel.template run<32, 8>();
    if (width <= 2048) return kernel.template run<256, 2>();
    return kernel.template run<256, 8>();
}

bool possible(int64_t rows, const NormActArgs<float> &a, double eps, const int64_t *ids, double p) {
    return rows >= 0 && a.width >= 0 && eps >= 0.0 && eps < INFINITY && p >= 0.0 && p < 1.0 && (a.gamma || !a.beta) &&
           (rows == 0 || a.width == 0 || (a.z && (p == 0.0 || ids)));
}

bool vectors(const NormActArgs<float> &a) {
    for (const void *p : {static_cast<const void *>(a.z), static_cast<const void *>(a.bias),
                          static_cast<const void *>(a.gamma), static_cast<const void *>(a.beta),
                          static_cast<const void *>(a.skip), static_cast<const void *>(a.hs),
                          static_cast<const void *>(a.h), static_cast<const void *>(a.g_hs),
                          static_cast<const void *>(a.g_h), static_cast<const void *>(a.dz),
                          static_cast<const void *>(a.dskip)})
        if (!aligned(p, 16)) return false;
    return a.width % 4 == 0;
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_cuda_norm_act_f32(int64_t rows, int64_t width, const float *z, const float *bias,
                                               const float *gamma, const float *beta, double eps, const float *skip,
                                               const float *scale, const int64_t *ids, uint32_t seed,
                                               uint32_t stream_word, const uint32_t *added_word, double p, float *hs,
                                               float *h, void *stream) {
    using namespace grinnder;
    const NormActArgs<float> a{width, static_cast<float>(eps), z, bias, gamma, beta, skip, scale,
                               make_mask(ids, seed, stream_word, p, added_word), hs, h, nullptr, nullptr, nullptr, nullptr};
    if (!possible(rows, a, eps, ids, p)) return -EINVAL;
    if (rows == 0 || width == 0) return 0;
    if (!hs) return -EINVAL;
    if (width > max_width) return -ENOTSUP;
    return run(Forward{a, rows, vectors(a), static_cast<cudaStream_t>(stream)}, width);
}

GRINNDER_EXPORT int64_t grinnder_cuda_norm_act_scratch(int64_t rows, int64_t width) {
    if (rows <= 0 || width <= 0) return 0;
    const int64_t block_rows = grinnder::gradient_block_rows(rows);
    return (rows + block_rows - 1) / block_rows * 3 * width;
}

GRINNDER_EXPORT int grinnder_cuda_norm_act_grad_f32(int64_t rows, int64_t width, const float *z, const float *bias,
                                                    const float *gamma, const float *beta, double eps,
                                                    const float *skip, const float *scale, const int64_t *ids,
                                                    uint32_t seed, uint32_t stream_word, const uint32_t *added_word,
                                                    double p, const float *g_hs, const float *g_h, float *dz,
                                                    float *dskip, float *dgamma, float *dbeta, float *dbias,
                                                    float *scratch, void *stream) {
    using namespace grinnder;
    const NormActArgs<float> a{width, static_cast<float>(eps), z, bias, gamma, beta, skip, scale,
                               make_mask(ids, seed, stream_word, p, added_word), nullptr, nullptr, g_hs, g_h, dz, dskip};
    if (!possible(rows, a, eps, ids, p) || (!gamma && (dgamma || dbeta))) return -EINVAL;
    if (width == 0) return 0;
    if (width > max_width) return -ENOTSUP;
    const int wanted = (dgamma ? 1 : 0) | (dbeta ? 2 : 0) | (dbias ? 4 : 0);
    const int64_t blocks = grinnder_cuda_norm_act_scratch(rows, width) / (3 * width);
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    if (wanted && blocks && !scratch) return -EINVAL;
    if (blocks)
        if (const int code = run(Backward{a, rows, blocks, vectors(a), wanted, scratch, on}, width)) return code;
    if (!wanted) return 0;
    const dim3 grid(static_cast<unsigned>((width + 31) / 32), 3);
    column_sums<<<grid, 1024, 0, on>>>(scratch, blocks, width, Sums{{dgamma, dbeta, dbias}});
    return launched();
}
