// One look at every edge: what parts read of each other, and whether the graph equals its transpose.
#include <string.h>

#include <atomic>
#include <new>
#include <vector>

#include "export.h"
#include "parallel.h"

namespace grinnder {
namespace {

constexpr uint64_t salts[2] = {0x9E3779B97F4A7C15u, 0xD1B54A32D192ED03u};

// splitmix64's steps (Steele, Lea, Flood 2014)
inline uint64_t mix(uint64_t key) {
    key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9u;
    key = (key ^ (key >> 27)) * 0x94D049BB133111EBu;
    return key ^ (key >> 31);
}

inline uint64_t bits_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

double half(uint16_t raw) {
    const int exponent = raw >> 10 & 31;
    const double fraction = raw & 1023;
    double size = exponent == 0 ? fraction / (1 << 24) : (1024 + fraction) / (1 << 25) * static_cast<double>(1ull << exponent);
    if (exponent == 31) size = fraction ? __builtin_nan("") : __builtin_inf();
    return raw >> 15 ? -size : size;
}

// A weight as the bits of a double.
inline uint64_t weight_bits(const void *weight, int bytes, int64_t at) {
    if (bytes == 4) return bits_of(static_cast<double>(static_cast<const float *>(weight)[at]));
    if (bytes == 8) return bits_of(static_cast<const double *>(weight)[at]);
    return bits_of(half(static_cast<const uint16_t *>(weight)[at]));
}

template <typename T>
inline void add(T *to, T value) {
    if (value) __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

struct Graph {
    int64_t nodes, parts, first_row, last_row;
    const int64_t *indptr;
    const void *indices, *weight;
    int weight_bytes;
    const int32_t *assign;
};

bool sound(const Graph &graph, int index_bytes, int threads) {
    if (graph.nodes < 0 || graph.parts < 1 || graph.first_row < 0 || graph.last_row < graph.first_row) return false;
    if (graph.last_row > graph.nodes || threads < 1 || !graph.indptr || !graph.assign) return false;
    return (index_bytes == 4 || index_bytes == 8) && is_weight(graph.weight_bytes, graph.weight);
}

// look(row, edge, source) for the edges of a range of rows; false where an entry is out of range.
template <typename I, typename Look>
bool each_edge(const Graph &graph, int64_t from, int64_t to, Look look) {
    const I *indices = static_cast<const I *>(graph.indices);
    for (int64_t row = from; row < to; ++row) {
        if (graph.assign[row] < 0 || graph.assign[row] >= graph.parts) return false;
        for (int64_t edge = graph.indptr[row]; edge < graph.indptr[row + 1]; ++edge) {
            const int64_t source = indices[edge];
            if (source < 0 || source >= graph.nodes) return false;
            const int32_t owner = graph.assign[source];
            if (owner < 0 || owner >= graph.parts) return false;
            if (source != row) look(row, edge, source);
        }
    }
    return true;
}

template <typename I, typename Work>
int over_rows(const Graph &graph, int threads, Work work) {
    const int64_t edges = graph.indptr[graph.last_row] - graph.indptr[graph.first_row];
    if (edges && !graph.indices) return -EINVAL;
    const int size = team(threads, edges);
    std::atomic<int> error{0};
    parallel(size, [&](int t) {
        const int64_t from = share(graph.indptr, graph.first_row, graph.last_row, t, size);
        const int64_t to = share(graph.indptr, graph.first_row, graph.last_row, t + 1, size);
        try {
            if (!work(from, to)) error = -ERANGE;
        } catch (const std::bad_alloc &) {
            error = -ENOMEM;
        }
    });
    return error;
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_prepare_describe(int64_t nodes, int64_t parts, int64_t first_row, int64_t last_row,
                                              const int64_t *indptr, int index_bytes, const void *indices,
                                              int weight_bytes, const void *weight, const int32_t *assign,
                                              uint8_t *boundary, int64_t *edges_in, int64_t *edges_out,
                                              int64_t *halo_out, uint64_t *marks, int64_t *cut, int threads) {
    using namespace grinnder;
    const Graph graph{nodes, parts, first_row, last_row, indptr, indices, weight, weight_bytes, assign};
    if (!sound(graph, index_bytes, threads) || !boundary || !edges_in || !edges_out || !halo_out || !marks || !cut)
        return -EINVAL;
    const auto run = [&](auto index) {
        return over_rows<decltype(index)>(graph, threads, [&](int64_t from, int64_t to) {
            std::vector<int64_t> in(static_cast<size_t>(parts), 0), out(in), seen(static_cast<size_t>(parts), -1);
            uint64_t sums[4] = {0, 0, 0, 0};
            int64_t crossing = 0;
            const bool fine = each_edge<decltype(index)>(graph, from, to, [&](int64_t row, int64_t edge, int64_t source) {
                const auto u = static_cast<uint64_t>(source), v = static_cast<uint64_t>(row);
                const uint64_t bits = weight ? weight_bits(weight, weight_bytes, edge) : 0;
                for (int i = 0; i < 2; ++i) {
                    uint64_t mark = mix(mix(u + salts[i]) + v), mirror = mix(mix(v + salts[i]) + u);
                    if (weight) mark = mix(mark + bits), mirror = mix(mirror + bits);
                    sums[i] += mark;
                    sums[2 + i] += mirror;
                }
                const int32_t reader = assign[row], owner = assign[source];
                ++in[static_cast<size_t>(reader)];
                ++out[static_cast<size_t>(owner)];
                if (reader == owner) return;
                ++crossing;
                __atomic_store_n(boundary + source, uint8_t{1}, __ATOMIC_RELAXED);
                __atomic_store_n(boundary + row, uint8_t{1}, __ATOMIC_RELAXED);
                if (seen[static_cast<size_t>(owner)] != row) {
                    seen[static_cast<size_t>(owner)] = row;
                    add(halo_out + static_cast<int64_t>(owner) * parts + reader, int64_t{1});
                }
            });
            for (int64_t p = 0; p < parts; ++p) {
                add(edges_in + p, in[static_cast<size_t>(p)]);
                add(edges_out + p, out[static_cast<size_t>(p)]);
            }
            for (int i = 0; i < 4; ++i) add(marks + i, sums[i]);
            add(cut, crossing);
            return fine;
        });
    };
    return index_bytes == 4 ? run(int32_t{}) : run(int64_t{});
}

GRINNDER_EXPORT int grinnder_prepare_readers(int64_t nodes, int64_t first_part, int64_t first_row, int64_t last_row,
                                             const int64_t *indptr, int index_bytes, const void *indices,
                                             const int32_t *assign, uint64_t *masks, int threads) {
    using namespace grinnder;
    const Graph graph{nodes, INT32_MAX, first_row, last_row, indptr, indices, nullptr, 0, assign};
    if (!sound(graph, index_bytes, threads) || !masks || first_part < 0) return -EINVAL;
    const auto run = [&](auto index) {
        return over_rows<decltype(index)>(graph, threads, [&](int64_t from, int64_t to) {
            return each_edge<decltype(index)>(graph, from, to, [&](int64_t row, int64_t, int64_t source) {
                const int64_t reader = assign[row] - first_part;
                if (reader < 0 || reader >= 64 || assign[row] == assign[source]) return;
                const uint64_t bit = uint64_t{1} << reader;
                if (!(__atomic_load_n(masks + source, __ATOMIC_RELAXED) & bit))
                    __atomic_fetch_or(masks + source, bit, __ATOMIC_RELAXED);
            });
        });
    };
    return index_bytes == 4 ? run(int32_t{}) : run(int64_t{});
}

GRINNDER_EXPORT int grinnder_prepare_count_readers(int64_t nodes, int64_t parts, int64_t first_part,
                                                   const uint64_t *masks, const int32_t *assign, int64_t *halo_in) {
    if (nodes < 0 || parts < 1 || first_part < 0 || !halo_in || (nodes && (!masks || !assign))) return -EINVAL;
    for (int64_t node = 0; node < nodes; ++node) {
        if (assign[node] < 0 || assign[node] >= parts) return -ERANGE;
        for (uint64_t rest = masks[node]; rest; rest &= rest - 1) {
            const int64_t reader = first_part + __builtin_ctzll(rest);
            if (reader >= parts) return -ERANGE;
            ++halo_in[reader * parts + assign[node]];
        }
    }
    return 0;
}
