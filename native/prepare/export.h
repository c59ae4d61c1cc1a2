// What leaves the library: the functions of grinnder_prepare.h, nothing else (the build hides the rest).
#pragma once
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#pragma GCC visibility push(default)
#include "grinnder_prepare.h"
#pragma GCC visibility pop
}

#define GRINNDER_EXPORT extern "C" __attribute__((visibility("default")))
