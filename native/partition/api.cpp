// The C functions: arguments are checked here, and no exception leaves.
#include <cmath>
#include <new>

#include "check.h"
#include "steps.h"

namespace grinnder {
namespace {

constexpr int32_t MOST_PARTS = 4096;

bool possible(int64_t nodes, int64_t edges, const int64_t *indptr, const int32_t *indices,
              const grinnder_partition_options *options, int32_t *part, grinnder_partition_progress *progress) {
    return nodes >= 0 && nodes < INT32_MAX && edges >= 0 && indptr && (indices || !edges) && options &&
           (part || !nodes) && progress && options->parts >= 1 && options->parts <= MOST_PARTS &&
           options->objective >= 0 && options->objective <= 2 && options->start >= 0 && options->start <= 1 &&
           options->max_rounds >= 1 && options->threads >= 1 && std::isfinite(options->balance) &&
           options->balance >= 1 && options->largest >= 0;
}

int run(int32_t n, int64_t edges, const int64_t *indptr, const int32_t *indices,
        const grinnder_partition_options &options, int32_t *part, grinnder_partition_progress *progress) {
    Work work(options.threads, progress);
    if (const int wrong = check_graph(work, n, edges, indptr, indices)) return wrong;
    if (options.parts == 1 || n == 0) {
        std::fill(part, part + n, 0);
        return 0;
    }
    work.phase(1);
    Level copy;
    const Graph g = symmetric(work, n, indptr, indices, copy);
    __atomic_store_n(&progress->edges, g.edges(), __ATOMIC_RELAXED);
    const int64_t mean = (static_cast<int64_t>(n) + options.parts - 1) / options.parts;
    const int64_t cap = std::max(mean, static_cast<int64_t>(options.balance * n / options.parts));
    if (options.objective == 0) {
        multilevel(work, g, options, cap, part);
    } else {
        propagate_labels(work, g, options.parts, options.balance, options.max_rounds, options.objective == 1,
                         options.seed, part);
    }
    enforce_cap(work, g, options.parts, cap, options.seed, part);
    work.phase(7);
    return 0;
}

}  // namespace
}  // namespace grinnder

GRINNDER_EXPORT int grinnder_partition_version(void) { return 1; }

GRINNDER_EXPORT int grinnder_partition_run(int64_t nodes, int64_t edges, const int64_t *indptr, const int32_t *indices,
                                           const grinnder_partition_options *options, int32_t *part,
                                           grinnder_partition_progress *progress) {
    if (!grinnder::possible(nodes, edges, indptr, indices, options, part, progress)) return -EINVAL;
    try {
        return grinnder::run(static_cast<int32_t>(nodes), edges, indptr, indices, *options, part, progress);
    } catch (const grinnder::Stopped &) {
        return -ECANCELED;
    } catch (const std::bad_alloc &) {
        return -ENOMEM;
    } catch (const std::exception &) {
        return -EIO;
    }
}
