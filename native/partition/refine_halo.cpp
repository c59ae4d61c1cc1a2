#include "halo.h"

namespace grinnder {
namespace {

constexpr double WORTHWHILE = 0.0005;  // a round that saves less of the rows is the last
constexpr int STATE_AHEAD = 24, NET_AHEAD = 10;

int16_t clamped(int64_t gain) { return static_cast<int16_t>(std::clamp<int64_t>(gain, INT16_MIN, INT16_MAX)); }

}  // namespace

HaloRefinement::HaloRefinement(Work &work, const Graph &g, int32_t parts, int64_t cap, double largest, Parts part,
                               Loads &load)
    : work_(work), g_(g), parts_(parts), cap_(cap), part_(part), load_(load), pins_(work, g, parts, part),
      hub_(std::max<int64_t>(64, g.n ? 8 * g.edges() / g.n : 0)), active_(g.n, NOW), full_(parts, 0),
      scratch_(work.threads()) {
    const auto &extent = pins_.extent();
    const int64_t found = *std::max_element(extent.begin(), extent.end());
    most_ = largest > 0 ? static_cast<int64_t>(largest * static_cast<double>(found)) : INT64_MAX;
    for (auto &s : scratch_) {
        s.count.assign(parts, 0);
        s.inside.assign(parts, 0);
    }
}

void HaloRefinement::score(int32_t v, Scratch &s) const {
    const int32_t from = part_[v];
    s.sole = s.nets = s.base = 0;
    s.all = false;
    auto see_net = [&](int32_t u) {
        if (pins_.saturated(u)) return;
        const uint32_t *word = pins_.net(u);
        ++s.nets;
        if (pins_.dense(u)) {
            s.all = true;
            s.sole += word[pins_.bits() + from] == 1;
            // Whichever are fewer, the parts in the net or those that are not.
            const bool missing = 2 * pins_.length(u) > parts_;
            s.base += missing;
            for (int i = 0; i < pins_.bits(); ++i) {
                uint32_t bits = missing ? ~word[i] : word[i];
                if (missing && i == pins_.bits() - 1 && parts_ % 32) bits &= (uint32_t{1} << (parts_ % 32)) - 1;
                for (; bits; bits &= bits - 1) s.count[32 * i + __builtin_ctz(bits)] += missing ? -1 : 1;
            }
            return;
        }
        for (int i = 0, length = pins_.length(u); i < length; ++i) {
            const int32_t q = Pins::part_of(word[i]);
            if (q == from) {
                s.sole += Pins::count_of(word[i]) == 1;
            } else if (s.count[q]++ == 0) {
                s.touched.push_back(q);  // of use only where no net is dense; then no count is below 0
            }
        }
    };
    see_net(v);
    for (int64_t e = g_.ptr[v]; e < g_.ptr[v + 1]; ++e) {
        pins_.prefetch_state(g_.later(e, STATE_AHEAD));
        pins_.prefetch_net(g_.later(e, NET_AHEAD), from);
        see_net(g_.idx[e]);
    }
    const uint32_t *word = pins_.net(v);
    if (pins_.dense(v)) {
        std::copy(word + pins_.bits(), word + pins_.bits() + parts_, s.inside.begin());
    } else {
        for (int i = 0, length = pins_.length(v); i < length; ++i)
            s.inside[Pins::part_of(word[i])] = Pins::count_of(word[i]);
    }
    --s.inside[from];  // v itself
}

void HaloRefinement::forget(int32_t v, Scratch &s) const {
    if (s.all || pins_.dense(v)) {
        std::fill(s.count.begin(), s.count.end(), 0);
        std::fill(s.inside.begin(), s.inside.end(), 0);
    } else {
        for (int32_t q : s.touched) s.count[q] = 0;
        const uint32_t *word = pins_.net(v);
        for (int i = 0, length = pins_.length(v); i < length; ++i) s.inside[Pins::part_of(word[i])] = 0;
    }
    s.touched.clear();
}

template <class See>
void HaloRefinement::candidates(int32_t from, const Scratch &s, See see) const {
    if (s.all) {
        for (int32_t q = 0; q < parts_; ++q)
            if (q != from && s.in(q) > 0) see(q);
    } else {
        for (int32_t q : s.touched) see(q);
    }
}

void HaloRefinement::propose(int32_t v, std::vector<Move> &list, Scratch &s) const {
    if (pins_.length(v) <= 1) return;
    score(v, s);
    const int32_t from = part_[v];
    int32_t best = -1, wish = -1;
    int64_t gain = INT32_MIN, inner = 0, wished = 0, open = 0;
    candidates(from, s, [&](int32_t q) {
        const int64_t entered = s.nets - s.in(q), rows = s.sole - entered;
        if (!fits(q, entered)) return;
        if (full_[q] && rows > wished) {
            wish = q;
            wished = rows;
        }
        if (!full_[q]) open = std::max(open, rows);
        if (load_[q] >= cap_) return;
        const int64_t edges = s.inside[q] - s.inside[from];
        if (rows > gain || (rows == gain && (edges > inner || (edges == inner && load_[q] < load_[best])))) {
            best = q;
            gain = rows;
            inner = edges;
        }
    });
    forget(v, s);
    if (wished > open) list.push_back({v, static_cast<uint16_t>(wish | BLOCKED), clamped(wished - open)});
    if (best < 0) return;
    const bool evens = inner == 0 && load_[from] > 0.98 * cap_ && load_[best] < 0.95 * cap_;
    if (gain > 0 || (gain == 0 && (inner > 0 || evens)) || (load_[from] > cap_ && gain > -3))
        list.push_back({v, static_cast<uint16_t>(best), clamped(gain)});
}

HaloRefinement::Exact HaloRefinement::exact(int32_t v, int32_t to) const {
    const int32_t from = part_[v];
    int32_t left = 0, entered = 0;
    auto see_net = [&](int32_t u) {
        if (pins_.saturated(u)) return;
        const auto [a, b] = pins_.counts(u, from, to);
        left += a == 1;
        entered += b == 0;
    };
    see_net(v);
    for (int64_t e = g_.ptr[v]; e < g_.ptr[v + 1]; ++e) {
        pins_.prefetch_state(g_.later(e, STATE_AHEAD));
        pins_.prefetch_net(g_.later(e, NET_AHEAD), from);
        see_net(g_.idx[e]);
    }
    return {left - entered, entered};
}

void HaloRefinement::apply(int32_t v, int32_t to, bool now) {
    const int32_t from = part_[v];
    pins_.move(v, from, to);
    active_[v] |= NEXT;
    for (int64_t e = g_.ptr[v]; e < g_.ptr[v + 1]; ++e) {
        const int32_t u = g_.idx[e];
        pins_.move(u, from, to);
        active_[u] |= now ? NOW | NEXT : NEXT;
    }
    --load_[from];
    ++load_[to];
    part_[v] = to;
}

bool HaloRefinement::commit(const Move &move) {
    const int32_t from = part_[move.v], to = move.to;
    if (load_[to] + 1 > cap_) return false;
    const Exact now = exact(move.v, to);
    if (!fits(to, now.entered)) return false;
    bool good = now.gain > 0 || (move.gain < 0 && load_[from] > cap_);
    if (now.gain == 0 && move.gain >= 0) {  // as many rows: fewer edges across, or loads more even
        const auto [a, b] = pins_.counts(move.v, from, to);
        good = b > a - 1 || (b == a - 1 && load_[to] + 1 < load_[from]);
    }
    if (good) apply(move.v, to, true);
    return good;
}

void HaloRefinement::round(int number, uint64_t salt) {
    std::vector<Move> moves;
    blocked_.clear();
    for (int turn = 0; turn < SUBROUNDS; ++turn) {
        find_full();
        propose_some(work_, g_.n, turn, salt, moves, [&](int32_t v, std::vector<Move> &list, int thread) {
            if (!(active_[v] & NOW)) return;
            if (g_.degree(v) > hub_ && mixed(v + number) % HUB_ROUNDS != 0 && number > 0) {
                active_[v] |= NEXT;
                return;
            }
            active_[v] &= static_cast<uint8_t>(~NOW);
            propose(v, list, scratch_[thread]);
        });
        int64_t steps = 0;
        for (Move move : moves) {
            if (++steps % 1024 == 0) work_.look();
            if (move.to & BLOCKED) {
                move.to &= static_cast<uint16_t>(~BLOCKED);
                blocked_.push_back(move);
            } else {
                commit(move);
            }
        }
    }
}

void HaloRefinement::find_full() {
    for (int32_t p = 0; p < parts_; ++p) full_[p] = load_[p] >= cap_ - std::max<int64_t>(1, cap_ / 500);
}

void HaloRefinement::settle() {
    pins_.mark_saturated(work_);
    for (auto &flags : active_) flags >>= 1;
    work_.alpha(static_cast<double>(pins_.sum()) / g_.n);
    work_.round();
}

// --- the exchange step

constexpr int64_t EVICTED_DEGREE = 24;  // a node with more neighbours is not worth its place elsewhere
constexpr int EVICTION_COST = 8;

void HaloRefinement::evictions(const std::vector<uint8_t> &wanted, std::vector<Move> &moves) {
    const int32_t lightest = static_cast<int32_t>(std::min_element(load_.begin(), load_.end()) - load_.begin());
    propose_all(work_, g_.n, moves, [&](int32_t v, std::vector<Move> &list, int thread) {
        if (!wanted[part_[v]] || g_.degree(v) > EVICTED_DEGREE) return;
        if (g_.degree(v) == 0) {
            list.push_back({v, static_cast<uint16_t>(lightest), 0});
            return;
        }
        Scratch &s = scratch_[thread];
        score(v, s);
        int32_t best = -1;
        int64_t gain = -EVICTION_COST;
        candidates(part_[v], s, [&](int32_t q) {
            const int32_t entered = s.nets - s.in(q), rows = s.sole - entered;
            if (full_[q] || !fits(q, entered)) return;
            if (rows > gain || (best >= 0 && rows == gain && load_[q] < load_[best])) {
                best = q;
                gain = rows;
            }
        });
        forget(v, s);
        if (best >= 0) list.push_back({v, static_cast<uint16_t>(best), clamped(gain)});
    });
}

void HaloRefinement::exchange() {
    find_full();
    if (blocked_.empty()) return;
    std::vector<uint8_t> wanted(parts_, 0);
    std::vector<Move> out;
    for (const Move &move : blocked_) wanted[move.to] = full_[move.to];
    evictions(wanted, out);
    auto dearer = [](const Move &a, const Move &b) { return a.gain != b.gain ? a.gain > b.gain : a.v < b.v; };
    std::sort(blocked_.begin(), blocked_.end(), dearer);
    // Of each part the cheapest first; `next` is where its list goes on, `end` where it ends.
    std::sort(out.begin(), out.end(), [&](const Move &a, const Move &b) {
        return part_[a.v] != part_[b.v] ? part_[a.v] < part_[b.v] : dearer(a, b);
    });
    std::vector<size_t> next(parts_, 0), end(parts_, 0);
    for (size_t i = 0; i < out.size(); ++i) {
        const int32_t p = part_[out[i].v];
        if (i == 0 || part_[out[i - 1].v] != p) next[p] = i;
        end[p] = i + 1;
    }
    int64_t steps = 0;
    // Makes room for one node in part b at a cost below `budget`.
    auto make_room = [&](int32_t b, int64_t budget) {
        while (load_[b] + 1 > cap_) {
            if (++steps % 1024 == 0) work_.look();
            if (next[b] >= end[b]) return false;
            const Move &move = out[next[b]];
            if (part_[move.v] != b || load_[move.to] + 1 > cap_) {
                ++next[b];
                continue;
            }
            const Exact now = exact(move.v, move.to);
            if (budget + now.gain <= 0 || now.gain < move.gain - 2 || !fits(move.to, now.entered)) {
                if (budget + move.gain <= 0) return false;
                ++next[b];
                continue;
            }
            ++next[b];
            budget += now.gain;
            apply(move.v, move.to, false);
        }
        return true;
    };
    for (const Move &move : blocked_) {
        if (++steps % 1024 == 0) work_.look();
        if (part_[move.v] == move.to) continue;
        const Exact now = exact(move.v, move.to);
        if (now.gain <= 0 || !fits(move.to, now.entered) || !make_room(move.to, now.gain)) continue;
        const Exact then = exact(move.v, move.to);
        if (then.gain > 0 && fits(move.to, then.entered)) apply(move.v, move.to, false);
    }
}

void refine_halo(Work &work, const Graph &g, int32_t parts, int64_t cap, double largest, int rounds, uint64_t seed,
                 Parts part, Loads &load) {
    work.phase(5);
    HaloRefinement refinement(work, g, parts, cap, largest, part, load);
    for (int round = 0; round < rounds; ++round) {
        const int64_t before = refinement.sum();
        refinement.round(round, seed + round * uint64_t{15485863});
        refinement.exchange();
        refinement.settle();
        if (static_cast<double>(before - refinement.sum()) < WORTHWHILE * static_cast<double>(before)) break;
    }
}

}  // namespace grinnder
