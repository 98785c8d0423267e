/* onnx-conformance [--device ref|cpu] [--filter TEXT] [--quiet] [--list FILE] SET=DIR...
 *
 * Runs every ONNX node test vector in the folders on the devices, prints one line per vector that
 * does not pass and a summary, and with --list writes the pass list that the unit test holds us to:
 * `SET TEST DEVICE[,DEVICE]` a line, sorted. SET names the version of the vectors. */
#include <stdio.h>
#include <string.h>

#include "env/file/file.h"
#include "test/ops/onnx_case.h"

typedef struct options {
    bool ref, cpu, quiet;
    const char *filter, *list;
} options;

typedef struct totals {
    uint32_t n[4]; /* by verdict, of the last device */
} totals;

static const char *const verdict_names[] = {"pass", "FAIL", "no op", "out of scope"};

static bool one_device(const char *set, const char *test, const char *dir, ru_device_kind device,
                       const options *opt, totals *t)
{
    ru_err why = {0};
    ru_onnx_verdict v = ru_onnx_case_run(dir, device, &why);
    t->n[v]++;
    if (v != RU_ONNX_PASS && !opt->quiet) {
        printf("%-12s %s %s %s: %s\n", verdict_names[v], set, test,
               device == RU_DEVICE_REF ? "ref" : "cpu", why.text);
        fflush(stdout);
    }
    return v == RU_ONNX_PASS;
}

static int run_set(const char *arg, const options *opt, FILE *list, ru_arena *arena)
{
    const char *eq = strchr(arg, '=');
    if (eq == NULL) {
        fprintf(stderr, "onnx-conformance: '%s' is not SET=DIR\n", arg);
        return 2;
    }
    const char *set = ru_arena_strn(arena, arg, eq - arg);
    char **names = NULL;
    uint32_t n = 0;
    ru_err err;
    if (ru_dir_list(eq + 1, arena, &names, &n, &err) != RU_OK) {
        fprintf(stderr, "onnx-conformance: %s\n", err.text);
        return ru_status_exit_code(err.status);
    }
    totals ref = {0}, cpu = {0};
    for (uint32_t k = 0; k < n; k++) {
        if (opt->filter != NULL && strstr(names[k], opt->filter) == NULL) {
            continue;
        }
        const char *dir = ru_path_join(arena, eq + 1, names[k]);
        bool on_ref = opt->ref && one_device(set, names[k], dir, RU_DEVICE_REF, opt, &ref);
        bool on_cpu = opt->cpu && one_device(set, names[k], dir, RU_DEVICE_CPU, opt, &cpu);
        if (list != NULL && (on_ref || on_cpu)) {
            fprintf(list, "%s %s %s%s%s\n", set, names[k], on_ref ? "ref" : "",
                    on_ref && on_cpu ? "," : "", on_cpu ? "cpu" : "");
        }
    }
    for (int d = 0; d < 2; d++) {
        const totals *t = d == 0 ? &ref : &cpu;
        if (d == 0 ? opt->ref : opt->cpu) {
            printf("%s %s: %u pass, %u fail, %u need an op that is not there, %u out of scope\n",
                   set, d == 0 ? "ref" : "cpu", t->n[RU_ONNX_PASS], t->n[RU_ONNX_FAIL],
                   t->n[RU_ONNX_UNSUPPORTED], t->n[RU_ONNX_OUT]);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    options opt = {.ref = true, .cpu = true};
    int k = 1;
    for (; k < argc && argv[k][0] == '-'; k++) {
        if (strcmp(argv[k], "--device") == 0 && k + 1 < argc) {
            k++;
            opt.ref = strcmp(argv[k], "cpu") != 0;
            opt.cpu = strcmp(argv[k], "ref") != 0;
        } else if (strcmp(argv[k], "--filter") == 0 && k + 1 < argc) {
            opt.filter = argv[++k];
        } else if (strcmp(argv[k], "--list") == 0 && k + 1 < argc) {
            opt.list = argv[++k];
        } else if (strcmp(argv[k], "--quiet") == 0) {
            opt.quiet = true;
        } else {
            fprintf(stderr, "onnx-conformance: unknown option '%s'\n", argv[k]);
            return 2;
        }
    }
    if (k == argc) {
        fprintf(stderr, "usage: onnx-conformance [--device ref|cpu] [--filter TEXT] [--quiet] "
                        "[--list FILE] SET=DIR...\n");
        return 2;
    }
    FILE *list = opt.list != NULL ? fopen(opt.list, "w") : NULL;
    if (opt.list != NULL && list == NULL) {
        perror(opt.list);
        return 73;
    }
    ru_arena arena;
    ru_arena_init(&arena, 0);
    int rc = 0;
    for (; k < argc && rc == 0; k++) {
        rc = run_set(argv[k], &opt, list, &arena);
    }
    ru_arena_fini(&arena);
    if (list != NULL && fclose(list) != 0) {
        perror(opt.list);
        rc = 74;
    }
    return rc;
}
