#include "pins.h"

namespace grinnder {

Pins::Pins(Work &work, const Graph &g, int32_t parts, const int32_t *part)
    : g_(g), parts_(parts), bits_((parts + 31) / 32), extent_(parts, 0),
      base_((static_cast<int64_t>(g.n) >> BLOCK) + 1), offset_(g.n), state_(g.n) {
    int64_t end = 0;
    for (int32_t v = 0; v < g.n; ++v) {
        if ((v & ((1 << BLOCK) - 1)) == 0) base_[v >> BLOCK] = end;
        offset_[v] = static_cast<uint32_t>(end - base_[v >> BLOCK]);
        end += g.degree(v) + 1 >= parts ? bits_ + parts : g.degree(v) + 1;
    }
    words_ = Buffer<uint32_t>(end);
    std::vector<std::vector<int32_t>> counts(work.threads(), std::vector<int32_t>(parts, 0)), touched(work.threads());
    std::vector<std::vector<int64_t>> extents(work.threads(), std::vector<int64_t>(parts, 0));
    work.ranges(g.n, CHUNK, [&](int64_t first, int64_t last, int thread) {
        auto &count = counts[thread];
        auto &seen = touched[thread];
        for (int64_t v = first; v < last; ++v) {
            auto see = [&](int32_t q) {
                if (count[q]++ == 0) seen.push_back(q);
            };
            see(part[v]);
            for (int64_t e = g.ptr[v]; e < g.ptr[v + 1]; ++e) {
                __builtin_prefetch(&part[g.later(e, 24)]);
                see(part[g.idx[e]]);
            }
            uint32_t *word = &words_[at(static_cast<int32_t>(v))];
            const bool dense = g.degree(static_cast<int32_t>(v)) + 1 >= parts;
            if (dense) {
                std::fill(word, word + bits_, 0);
                std::copy(count.begin(), count.end(), word + bits_);
                for (int32_t q : seen) word[q / 32] |= uint32_t{1} << (q % 32);
            }
            for (int32_t q : seen) {
                if (!dense) *word++ = static_cast<uint32_t>(q) << 20 | static_cast<uint32_t>(count[q]);
                ++extents[thread][q];
                count[q] = 0;
            }
            state_[v] = static_cast<uint16_t>(seen.size() | (dense ? DENSE : 0));
            seen.clear();
        }
    });
    for (const auto &extent : extents)
        for (int32_t p = 0; p < parts; ++p) {
            extent_[p] += extent[p];
            sum_ += extent[p];
        }
    mark_saturated(work);
}

void Pins::mark_saturated(Work &work) {
    work.ranges(g_.n, CHUNK, [&](int64_t first, int64_t last, int) {
        for (int64_t v = first; v < last; ++v) {
            const int32_t u = static_cast<int32_t>(v);
            if (!dense(u) || length(u) < parts_) continue;
            const uint32_t *count = net(u) + bits_;
            bool all = true;
            for (int32_t p = 0; p < parts_ && all; ++p) all = count[p] >= 2;
            if (all) state_[u] |= SATURATED;
        }
    });
}

std::pair<int32_t, int32_t> Pins::counts(int32_t u, int32_t a, int32_t b) const {
    const uint32_t *word = net(u);
    if (dense(u)) return {static_cast<int32_t>(word[bits_ + a]), static_cast<int32_t>(word[bits_ + b])};
    std::pair<int32_t, int32_t> found{0, 0};
    for (int i = 0, length = this->length(u); i < length; ++i) {
        const int32_t q = part_of(word[i]);
        if (q == a) found.first = count_of(word[i]);
        if (q == b) found.second = count_of(word[i]);
    }
    return found;
}

void Pins::move(int32_t u, int32_t a, int32_t b) {
    uint32_t *word = &words_[at(u)];
    bool left, came;
    if (dense(u)) {
        uint32_t *count = word + bits_;
        left = --count[a] == 0;
        came = count[b]++ == 0;
        if (left) word[a / 32] &= ~(uint32_t{1} << (a % 32));
        if (came) word[b / 32] |= uint32_t{1} << (b % 32);
        if (count[a] < 2) state_[u] &= static_cast<uint16_t>(~SATURATED);
    } else {
        const int length = this->length(u);
        int ia = -1, ib = -1;
        for (int i = 0; i < length; ++i) {
            if (part_of(word[i]) == a) ia = i;
            if (part_of(word[i]) == b) ib = i;
        }
        left = count_of(word[ia]) == 1;
        came = ib < 0;
        const uint32_t fresh = static_cast<uint32_t>(b) << 20 | 1;
        if (!came) ++word[ib];
        if (!left) --word[ia];
        if (left && came) {
            word[ia] = fresh;
        } else if (left) {
            word[ia] = word[length - 1];
        } else if (came) {
            word[length] = fresh;  // there is room: a net has at most as many parts as nodes
        }
    }
    extent_[a] -= left;
    extent_[b] += came;
    const int change = static_cast<int>(came) - static_cast<int>(left);
    sum_ += change;
    state_[u] = static_cast<uint16_t>(state_[u] + change);  // the length is the low bits
}

}  // namespace grinnder
