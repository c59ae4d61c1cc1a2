// What leaves the library: the functions of grinnder_cpu.h, nothing else (the build hides the rest).
#pragma once
#include <stdint.h>

extern "C" {
#pragma GCC visibility push(default)
#include "grinnder_cpu.h"
#pragma GCC visibility pop
}

#define GRINNDER_EXPORT extern "C" __attribute__((visibility("default")))
