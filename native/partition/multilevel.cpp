// Coarsen, divide the coarsest graph, and carry its parts back, refining the cut at each level and the halo at last.
#include "steps.h"

namespace grinnder {
namespace {

constexpr int64_t COARSEST = 500, COARSEST_PER_PART = 20;
constexpr double CLUSTER_SHARE = 0.05;  // of a part, that one cluster may weigh
constexpr double CUT_BALANCE = 1.08;    // until the halo refinement, which uses up the rest
constexpr int MOST_LEVELS = 30;
constexpr int LEVEL_ROUNDS = 8, LAST_ROUNDS = 4, CLIMB_PASSES = 3;
// More levels, each refined, give better parts; on large graphs the first ones are large too, so these are few.
constexpr int64_t SLOW_EDGES = 2000000;  // up to here clusters come to SLOW_GROWTH nodes of the level's mean weight
constexpr int64_t SLOW_GROWTH = 3;
constexpr int64_t CLIMB_EDGES = 1000000;

// The graph and its coarser ones. A level that would not fit is freed and made again on the way back: contraction is
// exact, so only time depends on memory.
class Levels {
public:
    Levels(Work &work, const Graph &g, int32_t parts, uint64_t seed) : work_(work), g_(g) {
        int64_t nodes = 0;
        for (int32_t v = 0; v < g.n; ++v) nodes += g.degree(v) > 0;
        const int64_t enough = std::max(COARSEST, COARSEST_PER_PART * parts);
        const int64_t most = std::max<int64_t>(1, static_cast<int64_t>(CLUSTER_SHARE * nodes / parts));
        for (int depth = 0; depth < MOST_LEVELS && top().n > enough; ++depth) {
            work.phase(2, depth);
            const int64_t slow = std::max<int64_t>(2, SLOW_GROWTH * nodes / top().n);
            if (!coarsen(top().edges() <= SLOW_EDGES ? std::min(most, slow) : most, seed * 7777 + depth)) break;
        }
    }

    int depth() const { return static_cast<int>(levels_.size()); }

    Graph graph(int level) {
        if (level == 0) return g_;
        if (!levels_[level - 1].present()) {
            build(level);
            work_.rebuilt();
        }
        return levels_[level - 1].view();
    }

    // Parts of `level` from those of the one above; then that one is done with.
    Buffer<int32_t> project(int level, const Buffer<int32_t> &above) {
        const Buffer<int32_t> &map = maps_[level];
        Buffer<int32_t> part(map.size());
        for (int64_t v = 0; v < map.size(); ++v) part[v] = map[v] < 0 ? -1 : above[map[v]];
        maps_.pop_back();
        levels_.pop_back();
        return part;
    }

private:
    Graph top() const { return levels_.empty() ? g_ : levels_.back().view(); }

    bool coarsen(int64_t most, uint64_t seed) {
        const Graph fine = top();
        Buffer<int32_t> map = cluster(work_, fine, most, seed);
        const int32_t n = number_clusters(fine, levels_.empty(), map);
        if (n == 0) return false;
        const int32_t before = fine.n;
        // Two levels as large as the graph are one too many: the next is then contracted from the graph, as it would
        // be from the level.
        if (!levels_.empty() && 2 * fine.edges() > g_.edges()) levels_.back().free();
        Level coarse;
        coarse.n = n;
        levels_.push_back(std::move(coarse));
        maps_.push_back(std::move(map));
        build(depth());
        keep_within(g_.edges());  // as much as the graph's neighbours; work on a level takes its share besides
        return !(n > 0.95 * before || (n > 0.9 * before && depth() > 13));
    }

    // Frees the finest levels below the top until maps and levels take at most `words` of 4 bytes.
    void keep_within(int64_t words) {
        int64_t bytes = 0;
        for (const auto &map : maps_) bytes += 4 * map.size();
        for (const auto &level : levels_) bytes += level.present() ? level.bytes() : 0;
        for (size_t i = 0; i + 1 < levels_.size() && bytes > 4 * words; ++i) {
            if (!levels_[i].present()) continue;
            bytes -= levels_[i].bytes();
            levels_[i].free();
        }
    }

    // Contracts the nearest finer graph that is there.
    void build(int level) {
        int base = level - 1;
        while (base > 0 && !levels_[base - 1].present()) --base;
        const Graph fine = base == 0 ? g_ : levels_[base - 1].view();
        if (base == level - 1) {
            levels_[level - 1] = contract(work_, fine, maps_[base].data(), levels_[level - 1].n);
            return;
        }
        Buffer<int32_t> map(fine.n);
        for (int32_t v = 0; v < fine.n; ++v) {
            int32_t to = v;
            for (int i = base; i < level && to >= 0; ++i) to = maps_[i][to];
            map[v] = to;
        }
        levels_[level - 1] = contract(work_, fine, map.data(), levels_[level - 1].n);
    }

    Work &work_;
    const Graph g_;
    std::vector<Level> levels_;
    std::vector<Buffer<int32_t>> maps_;  // maps_[i]: nodes of level i to those of level i + 1
};

}  // namespace

static void refine(Work &work, const Graph &g, const grinnder_partition_options &options, int64_t cap, int rounds,
                   int level, Parts part, Loads &load) {
    work.phase(4, level);
    refine_cut(work, g, options.parts, cap, rounds, options.seed + level, part, load);
    if (g.edges() <= CLIMB_EDGES)
        climb_cut(work, g, options.parts, cap, CLIMB_PASSES, options.seed + level, part, load);
}

void multilevel(Work &work, const Graph &g, const grinnder_partition_options &options, int64_t cap, Parts part) {
    const int32_t parts = options.parts;
    const int64_t mean = (static_cast<int64_t>(g.n) + parts - 1) / parts;
    const int64_t cut_cap = std::min(cap, std::max(mean, static_cast<int64_t>(CUT_BALANCE * g.n / parts)));
    Loads load;
    if (options.start == 1) {
        work.phase(3);
        stream(work, g, parts, cut_cap, options.seed, part);
    } else {
        Levels levels(work, g, parts, options.seed);
        work.phase(3, levels.depth());
        Buffer<int32_t> above;
        for (int level = levels.depth(); level >= 0; --level) {
            const Graph now = levels.graph(level);
            Buffer<int32_t> here;
            if (level == levels.depth()) {
                here = Buffer<int32_t>(now.n, -1);
                bisect(work, now, parts, cut_cap, options.seed, level == 0, here.data());
            } else {
                here = levels.project(level, above);
            }
            if (level > 0) {
                load = loads(now, parts, here.data());
                refine(work, now, options, cut_cap, LEVEL_ROUNDS, level, here.data(), load);
                above = std::move(here);
            } else {
                std::copy(here.begin(), here.end(), part);
            }
        }
    }
    load = loads(g, parts, part);
    refine(work, g, options, cut_cap, LAST_ROUNDS, 0, part, load);
    place_rest(g, parts, part);
    enforce_cap(work, g, parts, cap, options.seed, part);
    load = loads(g, parts, part);
    refine_halo(work, g, parts, cap, options.largest, options.max_rounds, options.seed + 99, part, load);
}

}  // namespace grinnder
