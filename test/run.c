/* The test binary: every *_test.c of the tree. rubato-test [--filter WORD] [--seed N] [--list] */
#include "test/test.h"

#include <stdio.h>
#include <string.h>

#define RU_SUITE(name) extern const ru_test_suite ru_suite_##name;
#include "suites.def"
#undef RU_SUITE

static const ru_test_suite *const suites[] = {
#define RU_SUITE(name) &ru_suite_##name,
#include "suites.def"
#undef RU_SUITE
};

static uint64_t seed = 20170829;

uint64_t ru_test_seed(void)
{
    return seed;
}

int main(int argc, char **argv)
{
    const char *filter = "";
    bool list = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc) {
            filter = argv[++i];
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 0);
        } else if (strcmp(argv[i], "--list") == 0) {
            list = true;
        } else {
            fprintf(stderr, "usage: rubato-test [--filter WORD] [--seed N] [--list]\n");
            return 2;
        }
    }
    int failed = 0, ran = 0;
    for (size_t s = 0; s < sizeof suites / sizeof suites[0]; s++) {
        struct CMUnitTest *picked = calloc(suites[s]->n, sizeof *picked);
        size_t n = 0;
        for (size_t t = 0; picked != NULL && t < suites[s]->n; t++) {
            char full[256];
            snprintf(full, sizeof full, "%s.%s", suites[s]->name, suites[s]->tests[t].name);
            if (strstr(full, filter) != NULL) {
                picked[n++] = suites[s]->tests[t];
                if (list) {
                    printf("%s\n", full);
                }
            }
        }
        if (n > 0 && !list) {
            failed += _cmocka_run_group_tests(suites[s]->name, picked, n, NULL, NULL);
            ran += (int)n;
        }
        free(picked);
    }
    if (list) {
        return 0;
    }
    if (ran == 0) {
        fprintf(stderr, "rubato-test: no test matches '%s' (--list shows all)\n", filter);
        return 2;
    }
    printf("%d passed, %d failed\n", ran - failed, failed);
    return failed != 0;
}
