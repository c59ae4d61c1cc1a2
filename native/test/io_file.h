/* A temporary file and a queue for the transfer tests. */
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "grinnder_io.h"

enum { READ = 0, WRITE = 1, FAIL = 0, SHORT = 1, LATE = 2, LOST = 3, FLIP = 4, BLOCK = 4096, PATIENCE_MS = 20000 };

static inline grinnder_io_queue *open_queue(uint32_t depth, uint64_t piece_bytes) {
    grinnder_io_queue *queue = NULL;
    const int allowed = grinnder_io_probe();
    if (allowed < 0) skip(strerror(-allowed));
    CHECK(grinnder_io_open(depth, piece_bytes, &queue) == 0 && queue);
    return queue;
}

static inline void close_queue(grinnder_io_queue *queue) { CHECK(grinnder_io_close(queue, PATIENCE_MS) == 0); }

/* An unlinked file in the working directory, with O_DIRECT where the file system has it. */
static inline int open_file(int direct) {
    char name[] = "io_test_XXXXXX";
    const int made = mkstemp(name);
    CHECK(made >= 0);
    int fd = direct ? open(name, O_RDWR | O_DIRECT | O_CLOEXEC) : -1;
    if (fd < 0) fd = dup(made);
    CHECK(fd >= 0);
    close(made);
    unlink(name);
    return fd;
}

static inline unsigned char *aligned(uint64_t bytes) {
    void *p = NULL;
    CHECK(posix_memalign(&p, BLOCK, bytes ? bytes : BLOCK) == 0);
    memset(p, 0, bytes);
    return p;
}

static inline void fill(unsigned char *p, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; ++i) p[i] = (unsigned char)random_bits();
}

/* One request from start to end. */
static inline int64_t transfer(grinnder_io_queue *queue, int op, int fd, void *buffer, uint64_t bytes, uint64_t offset) {
    static uint64_t tag = 1ull << 40;
    CHECK(grinnder_io_submit(queue, op, fd, buffer, bytes, offset, ++tag) == 0);
    return grinnder_io_wait(queue, tag, PATIENCE_MS, NULL);
}
