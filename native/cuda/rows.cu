// Rows as they are: regather, gather, copies, pinning.
#include <string.h>

#include "common.h"

namespace grinnder {
namespace {

thread_local const char *error_text = "";

// ------------------------------------------------------------------ rows of several sources

constexpr int table_segments = 128;  // so that the table fits into 4 KiB of kernel arguments

// A launch's segments. Its rows are counted through: `begin` of them lie before a segment.
struct Segments {
    int64_t begin[table_segments], first[table_segments];
    const char *source[table_segments];
    int64_t rows;
    const int32_t *index;  // or null
    char *out;
    int64_t row_bytes;
    int32_t count;
};

// Where a row of the launch comes from and goes to; `segment` is at most the row's, and becomes it.
__device__ __forceinline__ void place(const Segments &s, int64_t row, int &segment, int64_t &from, int64_t &to) {
    while (segment + 1 < s.count && row >= s.begin[segment + 1]) ++segment;
    from = row - s.begin[segment];
    to = s.first[segment] + from;
}

template <bool wide>
__device__ __forceinline__ uint4 get(const uint4 *from) {  // read once: not kept in L1
    uint4 v;
    if constexpr (wide)
        asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    else
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
}
template <bool wide, typename Unit>
__device__ __forceinline__ Unit get(const Unit *from) {  // unaligned rows: neighbours meet in a line, L1 serves both
    return __ldg(from);
}

// The rows as one sequence of units. A warp takes chunks of it, whatever the rows' size: each lane has `loads` loads on
// their way before it stores. `wide` asks L2 for more than the line.
template <typename Unit, int loads, bool wide>
__global__ void __launch_bounds__(block_threads, 2) regather(const __grid_constant__ Segments s, uint32_t row_units) {
    constexpr uint32_t chunk = 32 * loads;
    static_assert(chunk <= 512, "the division below is exact up to here");
    // n / row_units = n * magic >> 20 for n < 1024 and row_units <= 512; longer rows: a chunk touches two at most.
    const uint32_t magic = (1u << 20) / row_units + 1;
    const uint32_t lane = threadIdx.x % 32;
    const int64_t warp = static_cast<int64_t>(blockIdx.x) * (block_threads / 32) + threadIdx.x / 32;
    const int64_t step = static_cast<int64_t>(gridDim.x) * (block_threads / 32) * chunk;
    const int64_t step_rows = step / row_units, units = s.rows * row_units;
    const uint32_t step_column = static_cast<uint32_t>(step % row_units);
    int64_t unit = warp * chunk, row = unit / row_units;
    uint32_t column = static_cast<uint32_t>(unit % row_units);  // the chunk begins at this unit of `row`
    int segment = 0;
    while (unit < units) {
        const Unit *from[loads];
        Unit *to[loads];
        // Nothing is conditional: beyond the end, the last unit is moved once more.
        const uint32_t last = units - unit < chunk ? static_cast<uint32_t>(units - unit) - 1 : chunk - 1;
        while (segment + 1 < s.count && row >= s.begin[segment + 1]) ++segment;
        int here = segment;
#pragma unroll
        for (int k = 0; k < loads; ++k) {
            const uint32_t n = column + (k * 32 + lane < last ? k * 32 + lane : last);
            const uint32_t down = row_units > chunk ? (n >= row_units ? 1 : 0) : (n * magic) >> 20;
            const uint32_t at = n - down * row_units;
            int64_t in, out;
            place(s, row + down, here, in, out);
            if (s.index) in = __ldg(s.index + out);
            from[k] = reinterpret_cast<const Unit *>(s.source[here] + in * s.row_bytes) + at;
            to[k] = reinterpret_cast<Unit *>(s.out + out * s.row_bytes) + at;
        }
        Unit v[loads];
#pragma unroll
        for (int k = 0; k < loads; ++k)
            v[k] = get<wide>(from[k]);
        __syncwarp();  // the compiler would put stores between the loads
#pragma unroll
        for (int k = 0; k < loads; ++k)
            __stcs(to[k], v[k]);
        unit += step, row += step_rows, column += step_column;
        if (column >= row_units) column -= row_units, ++row;
    }
}

// ------------------------------------------------------------------ the same by bulk copies (sm_90)

constexpr int bulk_stages = 3, bulk_lanes = 32;
constexpr int64_t bulk_memory = 46 << 10, bulk_piece = 2048;  // bytes: of a block's slots, of the longest copy

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ uint32_t shared_address(const void *p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void bulk_load(uint32_t slot, const char *from, uint32_t bytes, uint32_t barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(slot),
                 "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
__device__ __forceinline__ void bulk_store(char *to, uint32_t slot, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\tcp.async.bulk.commit_group;" ::"l"(to),
                 "r"(slot), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait_loaded(uint32_t barrier, uint32_t parity) {
    uint32_t done = 0;
    while (!done)
        asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
}
#endif

// Every lane moves rows on its own, in pieces, through its slots of shared memory: a load's slot is its store's.
__global__ void __launch_bounds__(bulk_lanes) regather_bulk(const __grid_constant__ Segments s, uint32_t piece,
                                                            int64_t pieces, int lanes) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char memory[];
    const int lane = threadIdx.x;
    if (lane >= lanes) return;
    const uint32_t slots = shared_address(memory), barriers = slots + bulk_stages * lanes * piece;
    const auto slot = [&](int stage) { return slots + (stage * lanes + lane) * piece; };
    const auto barrier = [&](int stage) { return barriers + (stage * lanes + lane) * 8; };
#pragma unroll
    for (int stage = 0; stage < bulk_stages; ++stage)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier(stage)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");

    const int64_t items = s.rows * pieces, step = static_cast<int64_t>(gridDim.x) * lanes;
    int64_t next = static_cast<int64_t>(blockIdx.x) * lanes + lane;  // the next piece to load
    int segment = 0;
    char *to[bulk_stages];
    uint32_t bytes[bulk_stages];
    const auto start = [&](int stage) {
        const int64_t row = pieces == 1 ? next : next / pieces, at = (next - row * pieces) * piece;
        int64_t in, out;
        place(s, row, segment, in, out);
        if (s.index) in = __ldg(s.index + out);
        bytes[stage] = static_cast<uint32_t>(s.row_bytes - at < piece ? s.row_bytes - at : piece);
        to[stage] = s.out + out * s.row_bytes + at;
        bulk_load(slot(stage), s.source[segment] + in * s.row_bytes + at, bytes[stage], barrier(stage));
        next += step;
    };
    int64_t item = next;  // the next piece to store
    uint32_t parity = 0;
#pragma unroll
    for (int stage = 0; stage + 1 < bulk_stages; ++stage)
        if (next < items) start(stage);
    while (item < items) {
#pragma unroll
        for (int stage = 0; stage < bulk_stages; ++stage) {
            if (item < items) {
                if (next < items) {  // into the slot whose store began last
                    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
                    start((stage + bulk_stages - 1) % bulk_stages);
                }
                wait_loaded(barrier(stage), parity);
                bulk_store(to[stage], slot(stage), bytes[stage]);
                item += step;
            }
        }
        parity ^= 1;
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#else
    (void)s, (void)piece, (void)pieces, (void)lanes;
#endif
}

bool has_bulk() {
    int device = 0, major = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess)
        cudaGetLastError();
    return major >= 9;
}

// ------------------------------------------------------------------ launches

constexpr int small_grid = 64;       // with 8 loads of 16 bytes per lane 2 MiB on their way
constexpr int full_grid = 1 << 16;

template <typename Unit, int loads, bool wide>
int launch(const Segments &s, int blocks, cudaStream_t stream) {
    const int64_t row_units = s.row_bytes / static_cast<int64_t>(sizeof(Unit));
    const int64_t per_block = static_cast<int64_t>(block_threads) * loads;
    if (row_units > INT32_MAX - 1024 || s.rows > INT64_MAX / 2 / row_units) return -EINVAL;
    const int64_t needed = (s.rows * row_units + per_block - 1) / per_block;
    const int grid = static_cast<int>(needed < blocks ? needed : blocks);
    regather<Unit, loads, wide><<<grid, block_threads, 0, stream>>>(s, static_cast<uint32_t>(row_units));
    return launched();
}

int launch_bulk(const Segments &s, int blocks, cudaStream_t stream) {
    const int64_t piece = s.row_bytes < bulk_piece ? s.row_bytes : bulk_piece;
    const int64_t fit = bulk_memory / (bulk_stages * piece), lanes = fit < bulk_lanes ? fit : bulk_lanes;
    const int64_t pieces = (s.row_bytes + piece - 1) / piece, needed = (s.rows * pieces + lanes - 1) / lanes;
    const int grid = static_cast<int>(needed < blocks ? needed : blocks);
    const size_t memory = static_cast<size_t>(bulk_stages * lanes * (piece + 8));
    regather_bulk<<<grid, bulk_lanes, memory, stream>>>(s, static_cast<uint32_t>(piece), pieces,
                                                        static_cast<int>(lanes));
    return launched();
}

// `unit`: what every address is a multiple of, 16, 4 or 1.
int launch(const Segments &s, int unit, int blocks, int variant, cudaStream_t stream) {
    if (s.rows == 0) return 0;
    if (unit == 16 && variant == 1 && has_bulk()) return launch_bulk(s, blocks, stream);
    if (unit == 16 && variant == 2) return launch<uint4, 8, true>(s, blocks, stream);
    if (unit == 16) return launch<uint4, 8, false>(s, blocks, stream);
    if (unit == 4) return launch<uint32_t, 16, false>(s, blocks, stream);
    return launch<uint8_t, 16, false>(s, blocks, stream);
}

}  // namespace

int result(cudaError_t error) {
    if (error == cudaSuccess) return 0;
    cudaGetLastError();
    error_text = cudaGetErrorString(error);
    return -EIO;
}

}  // namespace grinnder

GRINNDER_EXPORT int grinnder_cuda_version(void) { return 4; }

GRINNDER_EXPORT int grinnder_cuda_devices(void) {
    int driver = 0, count = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {  // CUDA calls its absence an old driver
        grinnder::error_text = "no CUDA driver";
        return 0;
    }
    if (grinnder::result(cudaGetDeviceCount(&count)) || count == 0) return 0;
    cudaFuncAttributes found;  // fails where none of the built architectures runs here
    return grinnder::result(cudaFuncGetAttributes(&found, grinnder::regather_bulk)) ? 0 : count;
}

GRINNDER_EXPORT const char *grinnder_cuda_error(void) { return grinnder::error_text; }

GRINNDER_EXPORT int grinnder_cuda_host_register(void *p, uint64_t n) {
    if (!p || n == 0) return -EINVAL;
    return grinnder::result(cudaHostRegister(p, n, cudaHostRegisterPortable | cudaHostRegisterMapped)) ? -ENOMEM : 0;
}

GRINNDER_EXPORT int grinnder_cuda_host_unregister(void *p) {
    return p ? grinnder::result(cudaHostUnregister(p)) : -EINVAL;
}

GRINNDER_EXPORT int grinnder_cuda_copy(void *dst, const void *src, uint64_t nbytes, void *stream) {
    if (nbytes == 0) return 0;
    if (!dst || !src) return -EINVAL;
    return grinnder::result(
        cudaMemcpyAsync(dst, src, nbytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)));
}

GRINNDER_EXPORT int grinnder_cuda_zero(void *p, uint64_t n, void *stream) {
    if (n == 0) return 0;
    if (!p) return -EINVAL;
    return grinnder::result(cudaMemsetAsync(p, 0, n, static_cast<cudaStream_t>(stream)));
}

GRINNDER_EXPORT int grinnder_cuda_regather(int32_t segments, const void *const *source, const int64_t *first,
                                           const int64_t *count, uint64_t row_bytes, const int32_t *rows, void *out,
                                           int blocks, int variant, void *stream) {
    using namespace grinnder;
    if (segments < 0 || blocks < 0 || variant < 0 || variant > 2 || row_bytes > INT64_MAX / 2) return -EINVAL;
    if (segments == 0 || row_bytes == 0) return 0;
    if (!source || !first || !count) return -EINVAL;
    uintptr_t addresses = reinterpret_cast<uintptr_t>(out) | static_cast<uintptr_t>(row_bytes);
    for (int32_t k = 0; k < segments; ++k) {
        if (first[k] < 0 || count[k] < 0 || (count[k] > 0 && (!source[k] || !out))) return -EINVAL;
        if (count[k] > 0) addresses |= reinterpret_cast<uintptr_t>(source[k]);
    }
    const int unit = addresses % 16 == 0 ? 16 : addresses % 4 == 0 ? 4 : 1;
    Segments s;
    memset(&s, 0, sizeof(s));
    s.index = rows, s.out = static_cast<char *>(out), s.row_bytes = static_cast<int64_t>(row_bytes);
    for (int32_t k = 0; k < segments; ++k) {
        if (count[k] == 0) continue;
        s.begin[s.count] = s.rows, s.first[s.count] = first[k];
        s.source[s.count++] = static_cast<const char *>(source[k]);
        s.rows += count[k];
        if (s.count < table_segments) continue;
        if (const int code = launch(s, unit, blocks ? blocks : small_grid, variant, static_cast<cudaStream_t>(stream)))
            return code;
        s.count = 0, s.rows = 0;
    }
    return launch(s, unit, blocks ? blocks : small_grid, variant, static_cast<cudaStream_t>(stream));
}

GRINNDER_EXPORT int grinnder_cuda_gather_rows(int64_t rows, uint64_t row_bytes, const int32_t *index, const void *x,
                                              void *out, void *stream) {
    if (rows < 0) return -EINVAL;
    if (rows == 0 || row_bytes == 0) return 0;
    if (!index) return -EINVAL;
    const int64_t first = 0;
    return grinnder_cuda_regather(1, &x, &first, &rows, row_bytes, index, out, grinnder::full_grid, 0, stream);
}
