// The steps of a partition. Parts are int32 [n]; loads are nodes per part; `cap` is the most a part may load.
#pragma once
#include <cstdint>
#include <vector>

#include "graph.h"
#include "work.h"

namespace grinnder {

using Parts = int32_t *;
using Loads = std::vector<int64_t>;

// --- symmetric.cpp
// The graph with every edge in both directions and once: a view of the arrays where they are so, else of `copy`.
Graph symmetric(Work &work, int32_t n, const int64_t *ptr, const int32_t *idx, Level &copy);

// --- cluster.cpp
// Labels of clusters of at most `most` weight; labels are node ids.
Buffer<int32_t> cluster(Work &work, const Graph &g, int64_t most, uint64_t seed);
// Labels -> 0 .. result - 1 in order of first appearance; at level 0, nodes without edges become -1.
int32_t number_clusters(const Graph &g, bool finest, Buffer<int32_t> &labels);

// --- contract.cpp
// The graph of n clusters: weights are sums, edges inside a cluster vanish.
Level contract(Work &work, const Graph &g, const int32_t *map, int32_t n);

// --- bisect.cpp
// Parts of a small graph by bisecting it again and again; nodes without weight are left alone (-1 at the finest level).
void bisect(Work &work, const Graph &g, int32_t parts, int64_t cap, uint64_t seed, bool skip_isolated, Parts part);

// --- stream.cpp
// Every node with edges joins a part as it comes, then once more: Fennel (Tsourakakis et al. 2014).
void stream(Work &work, const Graph &g, int32_t parts, int64_t cap, uint64_t seed, Parts part);

// --- refine_cut.cpp
// Moves nodes where more of their edges are, `rounds` times at most. Nodes of part -1 stay out.
void refine_cut(Work &work, const Graph &g, int32_t parts, int64_t cap, int rounds, uint64_t seed, Parts part,
                Loads &load);

// --- climb_cut.cpp
// The same past moves that make the cut worse, on one thread: for small graphs. `passes` at most.
void climb_cut(Work &work, const Graph &g, int32_t parts, int64_t cap, int passes, uint64_t seed, Parts part,
               Loads &load);

// --- refine_halo.cpp
// Moves nodes so that fewer rows are owned or read in total; no part comes to more than `largest` times what the
// largest part had at first (0: any).
void refine_halo(Work &work, const Graph &g, int32_t parts, int64_t cap, double largest, int rounds, uint64_t seed,
                 Parts part, Loads &load);

// --- labels.cpp
// Label propagation from a random start under a penalty on size: Spinner (Martella et al. 2017), or the paper's
// switching-aware form.
void propagate_labels(Work &work, const Graph &g, int32_t parts, double balance, int rounds, bool switching,
                      uint64_t seed, Parts part);

// --- balance.cpp
Loads loads(const Graph &g, int32_t parts, const int32_t *part);
// Nodes of part -1 go to the lightest parts.
void place_rest(const Graph &g, int32_t parts, Parts part);
// No part above cap: what is too much goes where most of its neighbours have room.
void enforce_cap(Work &work, const Graph &g, int32_t parts, int64_t cap, uint64_t seed, Parts part);

// --- multilevel.cpp
void multilevel(Work &work, const Graph &g, const grinnder_partition_options &options, int64_t cap, Parts part);

}  // namespace grinnder
