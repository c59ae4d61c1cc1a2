// What leaves the library: the functions of grinnder_io.h, nothing else (the build hides the rest).
#pragma once
#include <stdint.h>

extern "C" {
#pragma GCC visibility push(default)
#include "grinnder_io.h"
#pragma GCC visibility pop
}

#define GRINNDER_EXPORT extern "C" __attribute__((visibility("default")))
