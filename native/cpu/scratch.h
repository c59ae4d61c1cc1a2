// Memory that threads work in. No isa_*.cpp includes this.
#pragma once
#include <stddef.h>
#include <stdint.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include <algorithm>
#include <new>

namespace grinnder {
namespace {

inline int thread_number() {
#if defined(_OPENMP)
    return omp_get_thread_num();
#else
    return 0;
#endif
}

// Zeroed, on a cache line.
template <typename T>
class Scratch {
  public:
    explicit Scratch(int64_t n) : at(static_cast<T *>(::operator new(bytes(n), line, std::nothrow))) {
        if (at) std::fill(at, at + n, T(0));
    }
    ~Scratch() { ::operator delete(at, line); }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    T *const at;

  private:
    static constexpr std::align_val_t line{64};
    static size_t bytes(int64_t n) { return static_cast<size_t>(n) * sizeof(T); }
};

}  // namespace
}  // namespace grinnder
