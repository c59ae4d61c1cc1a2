// What leaves the library: the functions of grinnder_partition.h, nothing else (the build hides the rest).
#pragma once
#include <stdint.h>

extern "C" {
#pragma GCC visibility push(default)
#include "grinnder_partition.h"
#pragma GCC visibility pop
}

#define GRINNDER_EXPORT extern "C" __attribute__((visibility("default")))
