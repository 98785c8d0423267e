#include "test/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/file/file.h"

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

bool ru_test_files_max(uint32_t n, bool (*f)(void *self), void *self)
{
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit most = {n, n}; /* liburing raises the soft one if it can */
        _exit(setrlimit(RLIMIT_NOFILE, &most) == 0 && f(self) ? 0 : 1);
    }
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}
