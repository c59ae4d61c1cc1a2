/* What every test program needs: exit 0 = passed, 1 = failed, 77 = cannot run here. */
#pragma once
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);     \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

static inline void skip(const char *why) {
    printf("skipped: %s\n", why);
    exit(77);
}

static uint64_t random_state = 88172645463325252u;

/* xorshift64: the same numbers on every machine. */
static inline uint64_t random_bits(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static inline int64_t random_below(int64_t n) { return (int64_t)(random_bits() % (uint64_t)n); }

static inline double random_unit(void) { return (double)(random_bits() >> 11) / 9007199254740992.0; }

static inline void *array(int64_t n, size_t size) {
    void *p = calloc((size_t)n + 1, size);
    CHECK(p);
    return p;
}
