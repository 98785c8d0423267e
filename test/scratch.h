/* A fixture of tests that write files: an empty folder, which goes with all in it, and an arena.
 *
 *     cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
 *
 * Thread: main only. */
#ifndef RU_TEST_SCRATCH_H
#define RU_TEST_SCRATCH_H

#include "base/arena.h"

typedef struct ru_scratch {
    char root[64];
    ru_arena arena;
    ru_err err;
} ru_scratch;

int ru_scratch_open(void **state);
int ru_scratch_close(void **state);

/* What f says in a process of its own that may open so many files at most. */
bool ru_test_files_max(uint32_t n, bool (*f)(void *self), void *self);

#endif
