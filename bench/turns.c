/* Two or more sides in turns: start, warm up, rounds A B A B ..., memory, end. Each round runs a
 * number of steps that takes about the asked time on that side, so a slow side does not stretch the
 * run. */
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "env/thread.h"

/* Before each round: thread teams of the other sides spin for up to 200 ms after their work and
 * would share our cores. */
enum { REST_MS = 300 };

static const int64_t answer_max_ns = (int64_t)600 * 1000000000;

/* Variables that would change either side's arithmetic library behind our back (an inherited
 * OPENBLAS_CORETYPE halves it). */
static const char *const cleared[] = {"OPENBLAS_CORETYPE",
                                      "OPENBLAS_L2_SIZE",
                                      "OPENBLAS_NUM_THREADS",
                                      "GOTO_NUM_THREADS",
                                      "OMP_NUM_THREADS",
                                      "OMP_WAIT_POLICY",
                                      "OMP_PROC_BIND",
                                      "OMP_PLACES",
                                      "MKL_NUM_THREADS",
                                      "MKL_DEBUG_CPU_TYPE",
                                      "GOMP_CPU_AFFINITY",
                                      "KMP_AFFINITY",
                                      "KMP_BLOCKTIME",
                                      "GOMP_SPINCOUNT",
                                      "DNNL_MAX_CPU_ISA",
                                      "NVPL_BLAS_DEBUG_CPU_TYPE",
                                      NULL};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

ru_bench_stat ru_bench_stat_of(double *values, uint32_t n)
{
    RU_CHECK(n >= 1);
    qsort(values, n, sizeof *values, compare);
    double mid = n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
    return (ru_bench_stat){mid, values[0], values[n - 1], n};
}

ru_status ru_bench_ask(ru_bench_side *s, const char *question, const char **answer, ru_err *err)
{
    RU_TRY(ru_process_write(s->process, question, (int64_t)strlen(question), err));
    RU_TRY(ru_process_line(s->process, answer_max_ns, answer, err));
    if (*answer == NULL) {
        return RU_FAIL(err, RU_E_PEER, "%s ended in the middle of the benchmark", s->argv[0]);
    }
    return RU_OK;
}

/* Run k steps; seconds taken. */
static ru_status run_steps(ru_bench_side *s, int64_t k, double *seconds, ru_err *err)
{
    char question[64];
    const char *answer;
    snprintf(question, sizeof question, "run %lld\n", (long long)k);
    RU_TRY(ru_bench_ask(s, question, &answer, err));
    char *rest;
    *seconds = strtod(answer, &rest);
    s->loss = strtod(rest, NULL);
    if (!(*seconds > 0)) {
        return RU_FAIL(err, RU_E_PEER, "%s answered '%s', seconds and a loss were expected",
                       s->argv[0], answer);
    }
    return RU_OK;
}

/* The first `threads` cores of those that we may use; 0, as we: they have larger numbers. */
static int64_t cores_of(uint32_t threads)
{
    uint32_t ids[63], n = ru_thread_cores_list(ids, RU_ARRAY_LEN(ids));
    int64_t mask = 0;
    for (uint32_t k = 0; k < n && k < threads; k++) {
        if (ids[k] >= 63) {
            return 0;
        }
        mask |= INT64_C(1) << ids[k];
    }
    return mask;
}

static ru_status start(ru_bench_side *s, uint32_t threads, ru_arena *arena, ru_err *err)
{
    ru_process_options opt = {.argv = s->argv,
                              .unset = cleared,
                              .pipe_in = true,
                              .pipe_out = true,
                              .quiet = true,
                              .cores_mask = cores_of(threads)};
    RU_TRY(ru_process_start(&opt, &s->process, err));
    const char *line;
    RU_TRY(ru_process_line(s->process, answer_max_ns, &line, err));
    json_t *root = line != NULL ? json_loads(line, 0, NULL) : NULL;
    bool ready = json_is_true(json_object_get(root, "ready"));
    const char *text = json_string_value(json_object_get(root, ready ? "detail" : "why"));
    text = ru_arena_str(arena, text != NULL ? text : "it ended without a word");
    json_decref(root);
    if (!ready) {
        return RU_FAIL(err, RU_E_MISSING, "%s", text != NULL ? text : "no memory");
    }
    s->detail = text;
    return RU_OK;
}

/* Steps that fill one round; also the warm-up. */
static ru_status tune(ru_bench_side *s, double round_s, ru_err *err)
{
    double seconds;
    RU_TRY(run_steps(s, 2, &seconds, err));
    RU_TRY(run_steps(s, 1, &seconds, err));
    int64_t k = (int64_t)(0.25 * round_s / seconds);
    k = k < 1 ? 1 : k;
    RU_TRY(run_steps(s, k, &seconds, err));
    double per = seconds / (double)k;
    s->steps = (int64_t)ceil(round_s / per);
    s->steps = s->steps < 1 ? 1 : s->steps;
    return RU_OK;
}

static ru_status finish(ru_bench_side *s, ru_err *err)
{
    const char *answer;
    RU_TRY(ru_bench_ask(s, "rss\n", &answer, err));
    s->rss_bytes = strtoll(answer, NULL, 10);
    return ru_process_write(s->process, "quit\n", 5, err);
}

static ru_status run_all(ru_bench_side *sides, uint32_t n, const ru_bench_turns *t, ru_err *err)
{
    for (uint32_t k = 0; k < n; k++) {
        if (sides[k].missing == NULL) {
            RU_TRY(tune(&sides[k], t->seconds, err));
        }
    }
    for (uint32_t round = 0; round < t->rounds; round++) {
        for (uint32_t k = 0; k < n; k++) {
            double seconds;
            if (sides[k].missing != NULL) {
                continue;
            }
            if (t->threads > 1) { /* one thread spins for nobody */
                (void)poll(NULL, 0, REST_MS);
            }
            RU_TRY(run_steps(&sides[k], sides[k].steps, &seconds, err));
            sides[k].rates[round] = (double)sides[k].steps / seconds;
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        if (sides[k].missing == NULL) {
            RU_TRY(finish(&sides[k], err));
        }
    }
    return RU_OK;
}

void ru_bench_sides_end(ru_bench_side *sides, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        ru_process_close(sides[k].process);
        sides[k].process = NULL;
    }
}

ru_status ru_bench_sides_start(ru_bench_side *sides, uint32_t n, uint32_t threads, ru_arena *arena,
                               ru_err *err)
{
    for (uint32_t k = 0; k < n; k++) {
        ru_err why = {0};
        ru_status got = start(&sides[k], threads, arena, &why);
        if (got != RU_OK && k == 0) {
            ru_bench_sides_end(sides, n);
            return RU_FAIL(err, got, "our side did not start: %s", why.text);
        }
        if (got != RU_OK) {
            sides[k].missing = ru_arena_str(arena, why.text);
        }
    }
    return RU_OK;
}

ru_status ru_bench_run_turns(ru_bench_side *sides, uint32_t n, const ru_bench_turns *turns,
                             ru_arena *arena, ru_err *err)
{
    RU_CHECK(n >= 1 && turns->rounds >= 1 && turns->rounds <= RU_BENCH_ROUNDS_MAX);
    RU_TRY(ru_bench_sides_start(sides, n, turns->threads, arena, err));
    ru_status st = run_all(sides, n, turns, err);
    ru_bench_sides_end(sides, n);
    return st;
}

const char *ru_bench_rubato(ru_arena *arena)
{
    return ru_process_beside(arena, "rubato", "tool");
}

const char *ru_bench_scripts(ru_arena *arena)
{
    const char *rubato = ru_bench_rubato(arena);
    const char *slash = rubato != NULL ? strrchr(rubato, '/') : NULL;
    const char *installed = slash == NULL ? NULL
                                          : ru_arena_printf(arena, "%.*s/../share/rubato/bench",
                                                            (int)(slash - rubato), rubato);
    const char *places[] = {installed, RU_SOURCE_BENCH};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(places); i++) {
        const char *probe = places[i] != NULL ? ru_path_join(arena, places[i], "peer.py") : NULL;
        if (probe != NULL && ru_path_exists(probe)) {
            return places[i];
        }
    }
    return NULL;
}

ru_status ru_bench_export(ru_bench_side *exporter, const char *path, const char *install,
                          ru_err *err)
{
    ru_process_options opt = {
        .argv = exporter->argv, .unset = cleared, .pipe_out = true, .quiet = true};
    RU_TRY(ru_process_start(&opt, &exporter->process, err));
    const char *line = "";
    while (line != NULL && ru_process_line(exporter->process, answer_max_ns, &line, err) == RU_OK) {
    }
    int code = ru_process_wait(exporter->process);
    ru_process_close(exporter->process);
    if (code != 0 || !ru_path_exists(path)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "the exporter did not make %s (exit code %d); it needs: %s", path, code,
                       install);
    }
    return RU_OK;
}
