#include "test/scratch.h"

#include <stdio.h>
#include <stdlib.h>

#include "env/file.h"

int ru_scratch_open(void **state)
{
    ru_scratch *f = calloc(1, sizeof *f);
    snprintf(f->root, sizeof f->root, "/tmp/rubato-test-XXXXXX");
    ru_arena_init(&f->arena, 0);
    *state = f;
    return mkdtemp(f->root) == NULL;
}

int ru_scratch_close(void **state)
{
    ru_scratch *f = *state;
    ru_status st = ru_path_remove(f->root, NULL);
    ru_arena_fini(&f->arena);
    free(f);
    return st != RU_OK;
}
