// Graphs as every step sees them, and the levels of coarser ones.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace grinnder {

// An array without a first writing of zeros: its pages come into being when they are used.
template <class T>
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(int64_t size) : data_(allocate(size)), size_(size) {}
    Buffer(int64_t size, T value) : Buffer(size) { std::fill(begin(), end(), value); }
    Buffer(Buffer &&other) noexcept { *this = std::move(other); }
    Buffer &operator=(Buffer &&other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~Buffer() { std::free(data_); }
    T &operator[](int64_t i) { return data_[i]; }
    const T &operator[](int64_t i) const { return data_[i]; }
    T *data() { return data_; }
    const T *data() const { return data_; }
    T *begin() { return data_; }
    T *end() { return data_ + size_; }
    int64_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    void free() { Buffer().swap(*this); }
    void swap(Buffer &other) {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }
    // Gives the end back to the system.
    void shrink(int64_t size) {
        if (void *kept = std::realloc(data_, static_cast<size_t>(size ? size : 1) * sizeof(T))) {
            data_ = static_cast<T *>(kept);
            size_ = size;
        }
    }

private:
    static T *allocate(int64_t size) {
        void *data = std::malloc(static_cast<size_t>(size ? size : 1) * sizeof(T));
        if (!data) throw std::bad_alloc();
        return static_cast<T *>(data);
    }
    T *data_ = nullptr;
    int64_t size_ = 0;
};

// Symmetric, rows sorted, no loops, no duplicates. Null weights are ones.
struct Graph {
    int32_t n = 0;
    const int64_t *ptr = nullptr;
    const int32_t *idx = nullptr;
    const int32_t *edge_weight = nullptr;
    const int32_t *node_weight = nullptr;

    int64_t degree(int32_t v) const { return ptr[v + 1] - ptr[v]; }
    int64_t edges() const { return ptr[n]; }
    int32_t weight(int32_t v) const { return node_weight ? node_weight[v] : 1; }
    int32_t along(int64_t e) const { return edge_weight ? edge_weight[e] : 1; }
    // Start loading what the edge `ahead` further on will need; stays inside the array.
    int32_t later(int64_t e, int ahead) const { return idx[e + ahead < edges() ? e + ahead : edges() - 1]; }
};

// A coarser graph with arrays of its own.
struct Level {
    int32_t n = 0;
    Buffer<int64_t> ptr;
    Buffer<int32_t> idx, edge_weight, node_weight;

    Graph view() const { return {n, ptr.data(), idx.data(), edge_weight.data(), node_weight.data()}; }
    bool present() const { return !ptr.empty(); }
    int64_t bytes() const { return 8 * ptr.size() + 8 * idx.size() + 4 * node_weight.size(); }
    void free() {
        ptr.free();
        idx.free();
        edge_weight.free();
        node_weight.free();
    }
};

}  // namespace grinnder
