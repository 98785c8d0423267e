/* How right are the times that running jobs predict? Real workers in the network laboratory, two
 * and four, each on a host of its own behind a shaped link, or all on one host. Every predictor's
 * comparisons come from the traces of the run (trace/read/predicted.h), all of them by predictor
 * and split by class and size. Beside each error stands the spread of what repeats: no constant
 * predictor does better. Other workers, tests and programs use the same processors, so take figures
 * on a quiet machine. */
#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "bench/bench.h"
#include "bench/lab_run.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "trace/read/predicted.h"

enum { STEPS = 60, STEPS_QUICK = 30, ROWS_MAX = 64 };

#define DIGITS "{format: idx, train: [@digits/train-images, @digits/train-labels]}"

static const struct {
    const char *name, *model;
    int batch;
} jobs[] = {
    {"mlp", "{zoo: mlp, hidden: [512, 256]}", 128},
    {"wide mlp", "{zoo: mlp, hidden: [1024, 1024]}", 64},
    {"lenet", "{zoo: lenet, width: 24}", 96},
};

static const char *const slow[] = {"--rate", "100mbit", "--burst", "128kb", NULL};
static const char *const fast[] = {"--rate", "1gbit", "--burst", "128kb", NULL};

/* @: the program that carries the packets. */
static const char *const far[] = {"--relay", "@", "--delay-us", "1000", "--rate-mbit", "200", NULL};
static const char *const lossy[] = {"--relay", "@",          "--delay-us", "200", "--rate-mbit",
                                    "200",     "--loss-ppm", "500",        NULL};

static const struct {
    const char *name;
    ru_lab_scene scene;
} scenes[] = {
    {"2 workers, 100 Mbit/s", {.workers = 2, .up = slow}},
    {"4 workers, 100 Mbit/s", {.workers = 4, .up = slow}},
    {"2 workers, 1 Gbit/s", {.workers = 2, .up = fast}},
    {"2 workers, loopback", {.workers = 2, .one_host = true}},
    {"4 workers, loopback", {.workers = 4, .one_host = true}},
    {"2 workers, 200 Mbit/s, 1 ms", {.workers = 2, .up = far}},
    {"2 workers, 200 Mbit/s, loss", {.workers = 2, .up = lossy}},
};

static const char legend[] =
    "Each table compares predicted with measured times, by predictor:\n"
    "  link        a transfer of 4 KiB or more, from the call of its sender to its arrival\n"
    "  link probe  the same for the sums that measure the network before the first step\n"
    "  coll        a sum, from the last rank's begin to its result\n"
    "  coll step   all sums of a step\n"
    "  others      spans of that category\n"
    "and then by class and size. n: comparisons; median, p95: of |predicted - measured| / "
    "measured;\n"
    "together: all predicted times over all measured ones, less 1; repeat: the error of one who\n"
    "knows beforehand the median time of what repeats in each step, and nothing else.\n";

/* Every predictor once more by class and size: names that stand behind its own. */
static ru_status split(ru_predicted *all, int64_t n, ru_arena *arena, ru_err *err)
{
    static const char *const classes[] = {"control", "urgent", "normal", "background"};
    for (int64_t i = 0; i < n; i++) {
        int64_t from = 4 << 10;
        while (from < INT64_C(1) << 40 && 4 * from <= all[i].size_bytes) {
            from *= 4;
        }
        const char *class =
            all[i].chan_class < RU_ARRAY_LEN(classes) ? classes[all[i].chan_class] : "other";
        bool step = strcmp(all[i].predictor, "coll step") == 0;
        all[i].predictor =
            ru_arena_printf(arena, "%s, %s%sfrom %lld KiB", all[i].predictor, step ? "" : class,
                            step ? "" : ", ", all[i].size_bytes < from ? 0 : (long long)from >> 10);
        if (all[i].predictor == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the names of predictors");
        }
    }
    return RU_OK;
}

static void put_row(ru_table *t, const ru_predictor_error *e)
{
    ru_table_str(t, e->predictor);
    ru_table_i64(t, e->n);
    ru_table_percent(t, e->median, 1);
    ru_table_percent(t, e->p95, 1);
    ru_table_percent(t, e->bias, 1);
    ru_table_percent(t, e->repeat_n > 0 ? e->repeat_median : 0, 1);
    ru_table_percent(t, e->repeat_n > 0 ? e->repeat_p95 : 0, 1);
}

/* errors [n], then the same comparisons split. */
static ru_status show(const ru_predictor_error *errors, uint32_t n, ru_predicted *all,
                      int64_t n_all, ru_arena *arena, ru_err *err)
{
    static const char *const right[] = {"n", "median", "p95", "together", "repeat", "repeat p95"};
    ru_predictor_error parts[ROWS_MAX];
    uint32_t n_parts = 0;
    ru_table t = ru_table_in(arena);
    ru_table_col(&t, "predictor", RU_TABLE_LEFT);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(right); k++) {
        ru_table_col(&t, right[k], RU_TABLE_RIGHT);
    }
    for (uint32_t k = 0; k < n; k++) {
        put_row(&t, &errors[k]);
    }
    RU_TRY(split(all, n_all, arena, err));
    RU_TRY(ru_predicted_errors(all, n_all, arena, parts, ROWS_MAX, &n_parts, err));
    for (uint32_t k = 0; k < n_parts; k++) {
        put_row(&t, &parts[k]);
    }
    ru_text out = ru_text_arena(arena);
    RU_TRY(ru_table_print(&t, 2, &out, err));
    fputs(out.p, stderr);
    return RU_OK;
}

static ru_status judge(ru_bench *b, const char *name, const ru_predictor_error *e, ru_err *err)
{
    const double x[] = {100 * e->median, 100 * e->p95};
    static const char *const what[] = {"median", "p95"};
    static const double goal[] = {5, 15};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(x); k++) {
        const char *label = ru_arena_printf(b->arena, "%s: %s %s", name, e->predictor, what[k]);
        const ru_bench_row row = {.name = label != NULL ? label : "",
                                  .unit = "%",
                                  .lower = true,
                                  .goal = goal[k],
                                  .ours = {x[k], x[k], x[k], 1}};
        RU_TRY(ru_bench_add(b, &row, err));
    }
    return RU_OK;
}

/* What the workers of a run predicted. */
static ru_status look(ru_bench *b, const char *name, const char *out, ru_err *err)
{
    ru_arena arena;
    ru_trace *traces;
    ru_trace_clocks clocks;
    ru_predictor_error e[RU_PREDICTORS_MAX];
    ru_predicted *all;
    uint32_t n, n_errors = 0;
    int64_t n_all;
    ru_arena_init(&arena, 0);
    ru_status st = ru_trace_run_load(out, &arena, &traces, &n, err);
    st = st != RU_OK ? st : ru_trace_align(traces, n, &arena, &clocks, err);
    st = st != RU_OK ? st : ru_trace_compare(traces, n, &clocks, 0, &arena, &all, &n_all, err);
    st = st != RU_OK
             ? st
             : ru_predicted_errors(all, n_all, &arena, e, RU_PREDICTORS_MAX, &n_errors, err);
    fprintf(stderr, "%s\n", name);
    for (uint32_t k = 0; k < n_errors && st == RU_OK; k++) {
        st = judge(b, name, &e[k], err);
    }
    st = st != RU_OK ? st : show(e, n_errors, all, n_all, &arena, err);
    ru_arena_fini(&arena);
    return st;
}

/* In a build folder the program stands beside ours. */
static ru_status run_scene(const ru_lab_run *t, const ru_lab_scene *s, const char *yaml,
                           const char *out, ru_err *err)
{
    enum { WORDS = 16 };
    const char *up[WORDS] = {NULL};
    ru_lab_scene with = *s;
    size_t folder = (size_t)(strrchr(t->self, '/') - t->self); /* a full path */
    for (uint32_t k = 0; s->up != NULL && s->up[k] != NULL; k++) {
        RU_CHECK(k + 1 < WORDS);
        up[k] =
            strcmp(s->up[k], "@") != 0
                ? s->up[k]
                : ru_arena_printf(t->b->arena, "%.*s/../test/rubato-relay", (int)folder, t->self);
    }
    with.up = up;
    return ru_lab_run_scene(t, &with, yaml, out, NULL, err);
}

ru_status ru_bench_predict(ru_bench *b, ru_err *err)
{
    ru_lab_run t;
    RU_TRY(ru_lab_run_open(b, "predict", false, &t, err));
    RU_TRY(ru_lab_run_inputs(&t, err));
    bool said = false;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(jobs); k++) {
        const char *yaml, *out = ru_path_join(b->arena, t.dir, "run");
        char train[64];
        snprintf(train, sizeof train, "batch: %d, steps: %d", jobs[k].batch,
                 b->quick ? STEPS_QUICK : STEPS);
        RU_TRY(ru_lab_run_job(&t, "job", jobs[k].model, DIGITS, train, &yaml, err));
        for (uint32_t s = 0; s < RU_ARRAY_LEN(scenes); s++) {
            const char *name = ru_arena_printf(b->arena, "%s, %s", jobs[k].name, scenes[s].name);
            if (name != NULL && ru_bench_wants(b, name)) {
                fputs(said ? "" : legend, stderr);
                said = true;
                RU_TRY(run_scene(&t, &scenes[s].scene, yaml, out, err));
                RU_TRY(look(b, name, out, err));
            }
        }
    }
    return RU_OK;
}
