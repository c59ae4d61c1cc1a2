// Which set of inner loops runs on this machine.
#include "kernel_set.h"

#include <errno.h>
#include <string.h>

#include "export.h"

namespace grinnder {
namespace {

bool supported(const KernelSet &set) {
#if defined(GRINNDER_X86)
    __builtin_cpu_init();
    if (&set == &kernels_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (&set == &kernels_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("fma");
#endif
    return &set == &kernels_base;
}

const KernelSet *const fastest_first[] = {
#if defined(GRINNDER_X86)
    &kernels_avx512,
    &kernels_avx2,
#endif
    &kernels_base,
};

const KernelSet *detect() {
    for (const KernelSet *set : fastest_first)
        if (supported(*set)) return set;
    return &kernels_base;
}

const KernelSet *&in_use() {
    static const KernelSet *set = detect();
    return set;
}

}  // namespace

const KernelSet &kernels() { return *in_use(); }

}  // namespace grinnder

GRINNDER_EXPORT int grinnder_cpu_version(void) { return 4; }

GRINNDER_EXPORT const char *grinnder_cpu_isa(void) { return grinnder::kernels().name; }

GRINNDER_EXPORT int grinnder_cpu_set_isa(const char *name) {
    using namespace grinnder;
    if (!name) {
        in_use() = detect();
        return 0;
    }
    for (const KernelSet *set : fastest_first)
        if (strcmp(set->name, name) == 0 && supported(*set)) {
            in_use() = set;
            return 0;
        }
    return -ENOTSUP;
}

GRINNDER_EXPORT int grinnder_cpu_has_openmp(void) {
#if defined(_OPENMP)
    return 1;
#else
    return 0;
#endif
}
