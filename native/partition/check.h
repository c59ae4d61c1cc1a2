// Refusing what no step could survive.
#pragma once
#include <cerrno>

#include "work.h"

namespace grinnder {

// 0, or -ERANGE where an index or an offset points outside.
int check_graph(Work &work, int64_t n, int64_t edges, const int64_t *ptr, const int32_t *idx);

}  // namespace grinnder
