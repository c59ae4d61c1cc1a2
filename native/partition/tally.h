// Sums by key for one node's neighbours.
#pragma once
#include <cstdint>
#include <vector>

namespace grinnder {

// A hash table that is cleared by what it holds. Keys come out in the order they first came in.
class Tally {
public:
    // Makes room for `keys` different keys.
    void prepare(int64_t keys) {
        uint64_t slots = 64;
        while (slots < 2 * static_cast<uint64_t>(keys)) slots <<= 1;
        if (slots > key_.size()) {
            key_.assign(slots, -1);
            sum_.resize(slots);
        }
        mask_ = static_cast<uint32_t>(slots - 1);
    }
    void add(int32_t key, int64_t value) {
        const uint32_t h = slot(key);
        if (key_[h] == -1) {
            key_[h] = key;
            sum_[h] = 0;
            used_.push_back(h);
        }
        sum_[h] = sum_[h] + value > INT32_MAX ? INT32_MAX : static_cast<int32_t>(sum_[h] + value);
    }
    int32_t of(int32_t key) const { return sum_[slot(key)]; }
    int64_t size() const { return static_cast<int64_t>(used_.size()); }
    template <class See>
    void each(See see) const {
        for (uint32_t h : used_) see(key_[h], sum_[h]);
    }
    void clear() {
        for (uint32_t h : used_) key_[h] = -1;
        used_.clear();
    }

private:
    uint32_t slot(int32_t key) const {
        uint32_t h = static_cast<uint32_t>(key) * 2654435761u;
        h = (h ^ (h >> 15)) & mask_;
        while (key_[h] != -1 && key_[h] != key) h = (h + 1) & mask_;
        return h;
    }
    std::vector<int32_t> key_, sum_;
    std::vector<uint32_t> used_;
    uint32_t mask_ = 0;
};

}  // namespace grinnder
