// Label propagation under a penalty on size: all nodes look at the same frozen labels, then a part admits as many as
// it has room for. Spinner admits by chance; the switching-aware form admits whole groups of nodes with the same
// second preference, the largest groups first, so that nodes which would move on together do.
#include <cmath>

#include "steps.h"

namespace grinnder {
namespace {

constexpr int LEAST_ROUNDS = 30;
constexpr int STALL = 5;

struct Wish {
    int32_t v;
    uint16_t first, second;
};

class Propagation {
public:
    Propagation(Work &work, const Graph &g, int32_t parts, double balance, bool switching, uint64_t seed, Parts part)
        : work_(work), g_(g), parts_(parts), room_(balance * g.n / parts), switching_(switching), seed_(seed),
          part_(part), load_(parts, 0), counts_(work.threads(), std::vector<int32_t>(parts, 0)),
          touched_(work.threads()) {
        for (int32_t v = 0; v < g.n; ++v) part[v] = static_cast<int32_t>(mixed(v + seed * 1234567) % parts);
        load_ = loads(g, parts, part);
        if (switching) neighbour_part_ = Buffer<uint16_t>(g.edges());
    }

    void run(int rounds) {
        double best = -1e300;
        for (int round = 0, stalled = 0; round < rounds && stalled < STALL; ++round) {
            std::vector<Wish> wishes;
            const double reached = look_around(wishes);
            switching_ ? admit_groups(wishes) : admit_by_chance(wishes, round);
            work_.round();
            if (wishes.empty()) break;
            if (reached > best + 0.001 * std::fabs(best)) {
                best = reached;
                stalled = 0;
            } else if (!switching_ || round >= LEAST_ROUNDS) {
                ++stalled;
            }
        }
    }

private:
    // Everyone's wishes in node order; the sum of the scores of where nodes are.
    double look_around(std::vector<Wish> &wishes) {
        if (switching_)  // Dst's-Partition array: read in order below, where parts would be read all over
            work_.ranges(g_.edges(), 1 << 16, [&](int64_t first, int64_t last, int) {
                for (int64_t e = first; e < last; ++e) {
                    __builtin_prefetch(&part_[g_.later(e, 24)]);
                    neighbour_part_[e] = static_cast<uint16_t>(part_[g_.idx[e]]);
                }
            });
        lightest_ = 0;
        for (int32_t p = 1; p < parts_; ++p)
            if (load_[p] < load_[lightest_]) lightest_ = p;
        std::vector<double> scores((g_.n + CHUNK - 1) / CHUNK, 0.0);
        propose_all(work_, g_.n, wishes, [&](int32_t v, std::vector<Wish> &list, int thread) {
            if (g_.degree(v) > 0) scores[v / CHUNK] += wish(v, list, counts_[thread], touched_[thread]);
        });
        double sum = 0;
        for (double score : scores) sum += score;
        return sum;
    }

    double wish(int32_t v, std::vector<Wish> &list, std::vector<int32_t> &count, std::vector<int32_t> &touched) {
        auto see = [&](int32_t q) {
            if (count[q]++ == 0) touched.push_back(q);
        };
        for (int64_t e = g_.ptr[v]; e < g_.ptr[v + 1]; ++e) {
            if (!switching_) __builtin_prefetch(&part_[g_.later(e, 24)]);
            see(switching_ ? neighbour_part_[e] : part_[g_.idx[e]]);
        }
        const double degree = static_cast<double>(g_.degree(v));
        auto score = [&](int32_t q) { return count[q] / degree - load_[q] / room_; };
        const int32_t own = part_[v];
        const double here = score(own);
        int32_t first = own, second = parts_;
        double best = here + 1e-12, next = -1e300;
        auto consider = [&](int32_t q) {
            if (q == own) return;
            const double s = score(q);
            if (s > best || (s == best && first != own && q < first)) {
                next = best;
                second = first;
                best = s;
                first = q;
            } else if ((s > next || (s == next && q < second)) && count[q] > 0) {
                next = s;
                second = q;
            }
        };
        for (int32_t q : touched) consider(q);
        if (count[lightest_] == 0) consider(lightest_);
        for (int32_t q : touched) count[q] = 0;
        touched.clear();
        if (first != own) list.push_back({v, static_cast<uint16_t>(first), static_cast<uint16_t>(second)});
        return here;
    }

    void go(const Wish &wish) {
        --load_[part_[wish.v]];
        ++load_[wish.first];
        part_[wish.v] = wish.first;
    }

    void admit_by_chance(const std::vector<Wish> &wishes, int round) {
        std::vector<int64_t> wanted(parts_, 0);
        for (const Wish &wish : wishes) ++wanted[wish.first];
        std::vector<double> chance(parts_, 0);
        for (int32_t p = 0; p < parts_; ++p)
            if (wanted[p]) chance[p] = std::clamp((room_ - load_[p]) / wanted[p], 0.0, 1.0);
        for (const Wish &wish : wishes) {
            const uint64_t h = mixed(wish.v * uint64_t{7} + seed_ * 99991 + round * uint64_t{1000003});
            if (static_cast<double>(h >> 11) * 0x1p-53 < chance[wish.first]) go(wish);
        }
    }

    // The groups are sorted, not tabled: parts x parts counters would be 64 MiB at 4096.
    void admit_groups(std::vector<Wish> &wishes) {
        auto key = [](const Wish &w) { return static_cast<uint32_t>(w.first) << 16 | w.second; };
        std::sort(wishes.begin(), wishes.end(), [&](const Wish &a, const Wish &b) {
            return key(a) != key(b) ? key(a) < key(b) : a.v < b.v;
        });
        struct Group {
            uint16_t first;
            size_t begin, size;
        };
        std::vector<Group> groups;
        for (size_t i = 0; i < wishes.size(); ++i) {
            if (i == 0 || key(wishes[i]) != key(wishes[i - 1])) groups.push_back({wishes[i].first, i, 0});
            ++groups.back().size;
        }
        std::stable_sort(groups.begin(), groups.end(), [](const Group &a, const Group &b) {
            return a.first != b.first ? a.first < b.first : a.size > b.size;
        });
        std::vector<int64_t> free(parts_);
        for (int32_t p = 0; p < parts_; ++p) free[p] = std::max<int64_t>(0, static_cast<int64_t>(room_) - load_[p]);
        for (const Group &group : groups)
            for (size_t i = 0; i < group.size && free[group.first] > 0; ++i, --free[group.first])
                go(wishes[group.begin + i]);
    }

    Work &work_;
    const Graph &g_;
    const int32_t parts_;
    const double room_;
    const bool switching_;
    const uint64_t seed_;
    const Parts part_;
    Loads load_;
    int32_t lightest_ = 0;
    std::vector<std::vector<int32_t>> counts_, touched_;
    Buffer<uint16_t> neighbour_part_;
};

}  // namespace

void propagate_labels(Work &work, const Graph &g, int32_t parts, double balance, int rounds, bool switching,
                      uint64_t seed, Parts part) {
    work.phase(6);
    Propagation(work, g, parts, balance, switching, seed, part).run(rounds);
}

}  // namespace grinnder
