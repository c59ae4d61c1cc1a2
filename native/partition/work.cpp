#include "work.h"

#include <system_error>
#include <utility>

namespace grinnder {

Work::Work(int threads, grinnder_partition_progress *progress) : progress_(progress) {
    for (int t = 1; t < threads; ++t) {
        try {
            helpers_.emplace_back([this, t] { help(t); });
        } catch (const std::system_error &) {
            break;  // a limit on threads: fewer do the same work
        }
    }
}

Work::~Work() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    begun_.notify_all();
    for (auto &helper : helpers_) helper.join();
}

void Work::chunks(int64_t count, const std::function<void(int64_t, int)> &run) {
    look();
    run_ = &run;
    next_ = 0;
    count_ = count;
    const bool alone = count <= 2 || helpers_.empty();
    if (!alone) {
        std::lock_guard<std::mutex> lock(mutex_);
        busy_ = static_cast<int>(helpers_.size());
        ++turn_;
        begun_.notify_all();
    }
    take(0);
    if (!alone) {
        std::unique_lock<std::mutex> lock(mutex_);
        ended_.wait(lock, [this] { return busy_ == 0; });
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    look();
}

void Work::take(int thread) {
    try {
        for (int64_t c; !stopping() && (c = next_++) < count_;) (*run_)(c, thread);
    } catch (...) {
        std::lock_guard<std::mutex> lock(mutex_);
        error_ = std::current_exception();
        next_ = count_;
    }
}

void Work::help(int thread) {
    for (uint64_t seen = 0;;) {
        {
            std::unique_lock<std::mutex> lock(mutex_);
            begun_.wait(lock, [&] { return closing_ || turn_ != seen; });
            if (closing_) return;
            seen = turn_;
        }
        take(thread);
        std::lock_guard<std::mutex> lock(mutex_);
        if (--busy_ == 0) ended_.notify_one();
    }
}

void Work::phase(int phase, int level) {
    look();
    __atomic_store_n(&progress_->level, level, __ATOMIC_RELAXED);
    __atomic_store_n(&progress_->phase, phase, __ATOMIC_RELAXED);
}

void Work::round() { __atomic_fetch_add(&progress_->rounds, 1, __ATOMIC_RELAXED); }

void Work::rebuilt() { __atomic_fetch_add(&progress_->rebuilt, 1, __ATOMIC_RELAXED); }

void Work::alpha(double alpha) { __atomic_store(&progress_->alpha, &alpha, __ATOMIC_RELAXED); }

}  // namespace grinnder
