/* rubato-bench cluster: what the scheduler of a shared cluster takes. A round of its plan (the book
 * with live jobs, plan/fleet/alloc.h below it, the events folded), an event through its journal,
 * and coming back with a long history. Rounds are in processor time. Jobs follow four published
 * shapes of step times. */
#include "bench/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/book.h"
#include "env/clock.h"
#include "env/file/file.h"

enum { HISTORY = 10000, EVENTS = 2000, EVENTS_QUICK = 300 };

static const int64_t tick_ns = 1000000;

typedef struct bench {
    ru_bench *b;
    ru_arena arena; /* of the book */
    ru_book book;
    ru_journal_event at; /* the last one folded */
} bench;

static ru_status add(bench *t, const char *name, const char *unit, double goal, double *values,
                     uint32_t n, ru_err *err)
{
    return ru_bench_add(t->b,
                        &(ru_bench_row){.name = name,
                                        .unit = unit,
                                        .lower = true,
                                        .goal = goal,
                                        .ours = ru_bench_stat_of(values, n)},
                        err);
}

/* Legal again and again. */
static void end(bench *t)
{
    if (t->book.fx.arena != NULL) {
        ru_arena_fini(t->book.fx.arena);
    }
    ru_arena_fini(&t->arena);
    memset(&t->book, 0, sizeof t->book);
}

static ru_status fold(bench *t, ru_journal_event e, ru_err *err)
{
    t->at.seq++;
    t->at.at_ns += tick_ns;
    e.seq = t->at.seq;
    e.at_ns = t->at.at_ns;
    e.who = "admin";
    e.text = e.text != NULL ? e.text : "";
    return ru_book_fold(&t->book, &e, err);
}

static const char *spec_of(ru_arena *arena)
{
    ru_text text = ru_text_arena(arena);
    ru_book_spec_put(&(ru_book_spec){"job", "0123456789abcdef", "/srv/jobs/1", "name: job\n", 0},
                     &text);
    return text.p;
}

/* -- rounds --------------------------------------------------------------------------------------
 */

/* Steps of a small and a large image model, of a language model and of a table. */
static const ru_goodput_model shapes[] = {
    {{.0174, 7e-4, .122, .00264, .0327, 8.4e-4, 2.07}, 1, 4, 128, 4096, 1, 1024, 0, false},
    {{.0642, .00448, .3, .00664, .0203, 1.3e-6, 2.47}, 1, 20, 200, 12800, 1, 200, 0, false},
    {{.172, .0586, 1.386, .00943, .284, .00976, 1.9}, 1, 60, 12, 384, 1, 12, 0, false},
    {{.00696, 6.4e-7, .0175, 5.6e-4, .006, 1.2e-8, 1.25}, 1, 90, 256, 32768, 1, 32768, 0, false},
};

/* An empty book. */
static ru_status begin(bench *t, ru_err *err)
{
    end(t);
    ru_arena_init(&t->arena, 0);
    t->at = (ru_journal_event){0};
    return ru_book_init(&t->book, &t->arena, err);
}

static ru_status fill(bench *t, uint32_t nodes, uint32_t slots, uint32_t jobs, ru_err *err)
{
    char name[32];
    RU_TRY(begin(t, err));
    for (uint32_t k = 0; k < nodes; k++) {
        (void)snprintf(name, sizeof name, "n%u", k);
        RU_TRY(fold(
            t, (ru_journal_event){.kind = RU_BOOK_NODE, .node = k, .a = slots, .text = name}, err));
    }
    const char *spec = spec_of(&t->arena);
    for (uint32_t k = 0; k < jobs; k++) {
        RU_TRY(fold(
            t,
            (ru_journal_event){.kind = RU_BOOK_SUBMIT, .job = k + 1, .a = 1, .b = 16, .text = spec},
            err));
    }
    return RU_OK;
}

/* Plan, and fold what it grants. */
static ru_status plan(bench *t, const ru_book_measured *models, ru_err *err)
{
    ru_journal_event *events;
    uint32_t n;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_status st = ru_book_plan(&t->book, models, t->at.at_ns, &scratch, &events, &n, err);
    for (uint32_t k = 0; k < n && st == RU_OK; k++) {
        st = fold(t, events[k], err);
    }
    ru_arena_fini(&scratch);
    return st;
}

/* Each round follows the end of one job and the arrival of another. */
static ru_status rounds(bench *t, uint32_t nodes, uint32_t slots, uint32_t jobs, double goal_s,
                        ru_err *err)
{
    ru_arena *a = t->b->arena;
    uint32_t n = jobs > 1000 ? (t->b->quick ? 2 : 5) : 20, last = jobs;
    const char *ms = goal_s < 0.1 ? "ms" : "s";
    double took[RU_BENCH_ROUNDS_MAX], scale = goal_s < 0.1 ? 1e3 : 1;
    char *name = ru_arena_printf(a, "a round of %u slots for %u jobs", nodes * slots, jobs);
    ru_book_measured *models = RU_NEW(a, ru_book_measured, jobs + 1);
    if (name == NULL || models == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u jobs", jobs);
    }
    if (!ru_bench_wants(t->b, name)) {
        return RU_OK;
    }
    for (uint32_t k = 0; k <= jobs; k++) {
        models[k].model = shapes[k % RU_ARRAY_LEN(shapes)];
    }
    RU_TRY(fill(t, nodes, slots, jobs, err));
    RU_TRY(plan(t, models, err));
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(fold(
            t, (ru_journal_event){.kind = RU_BOOK_END, .job = k + 1, .a = RU_BOOK_DONE, .text = ""},
            err));
        RU_TRY(fold(
            t,
            (ru_journal_event){
                .kind = RU_BOOK_SUBMIT, .job = ++last, .a = 1, .b = 16, .text = spec_of(&t->arena)},
            err));
        int64_t begun = ru_clock_thread_cpu_ns();
        RU_TRY(plan(t, models, err));
        took[k] = scale * 1e-9 * (double)(ru_clock_thread_cpu_ns() - begun);
    }
    return add(t, name, ms, goal_s * scale, took, n, err);
}

/* -- the journal ---------------------------------------------------------------------------------
 */

static int by_size(const void *x, const void *y)
{
    const double *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

static ru_status one_by_one(bench *t, const ru_journal *j, ru_err *err)
{
    uint32_t n = t->b->quick ? EVENTS_QUICK : EVENTS;
    double *took = RU_NEW(t->b->arena, double, n);
    if (took == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u events", n);
    }
    for (uint32_t k = 0; k < n; k++) {
        ru_journal_event e = {
            .kind = RU_BOOK_GRANT, .job = k, .who = "scheduler", .text = "1:2 3:4"};
        ru_time begun = ru_clock_now();
        RU_TRY(j->ops->append(j->self, &e, 1, err));
        took[k] = 1e-6 * (double)ru_time_since(ru_clock_now(), begun);
    }
    qsort(took, n, sizeof *took, by_size);
    RU_TRY(add(t, "an event is durable, median", "ms", 0, &took[n / 2], 1, err));
    return add(t, "an event is durable, p99", "ms", 5, &took[n - n / 100 - 1], 1, err);
}

static ru_status fold_one(void *arg, const ru_journal_event *e, ru_err *err)
{
    bench *t = arg;
    return ru_book_fold(&t->book, e, err);
}

/* Jobs that came, ran and ended, as a scheduler finds them when it starts. */
static ru_status history(bench *t, const ru_journal *j, ru_err *err)
{
    enum { TOGETHER = 3 * 500 };
    ru_journal_event *e = RU_NEW(t->b->arena, ru_journal_event, TOGETHER);
    ru_journal_event node = {.kind = RU_BOOK_NODE, .a = 64, .who = "scheduler", .text = "n1"};
    const char *spec = spec_of(t->b->arena);
    int64_t at = 0;
    if (e == NULL || spec == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %d jobs", HISTORY);
    }
    RU_TRY(j->ops->append(j->self, &node, 1, err));
    for (uint32_t job = 1; job <= HISTORY;) {
        for (uint32_t k = 0; k < TOGETHER; k += 3, job++) {
            e[k] = (ru_journal_event){
                .kind = RU_BOOK_SUBMIT, .job = job, .a = 1, .b = 4, .who = "admin", .text = spec};
            e[k + 1] = (ru_journal_event){
                .kind = RU_BOOK_GRANT, .job = job, .who = "scheduler", .text = "0:4"};
            e[k + 2] = (ru_journal_event){
                .kind = RU_BOOK_END, .job = job, .a = RU_BOOK_DONE, .who = "n1", .text = ""};
            for (uint32_t i = 0; i < 3; i++) {
                e[k + i].at_ns = at += tick_ns;
            }
        }
        RU_TRY(j->ops->append(j->self, e, TOGETHER, err));
    }
    return RU_OK;
}

static ru_status recover(bench *t, const char *path, ru_err *err)
{
    double took[5];
    for (uint32_t k = 0; k < RU_ARRAY_LEN(took); k++) {
        ru_journal j;
        ru_time begun = ru_clock_now();
        RU_TRY(begin(t, err));
        RU_TRY(ru_journal_sqlite(path, &t->arena, &j, err));
        ru_status st = j.ops->read(j.self, 0, fold_one, t, err);
        took[k] = 1e-9 * (double)ru_time_since(ru_clock_now(), begun);
        j.ops->close(j.self);
        RU_TRY(st);
        if (t->book.jobs.n != HISTORY || t->book.n_live != 0) {
            return RU_FAIL(err, RU_E_BUG, "the journal gave other jobs than it was told");
        }
    }
    return add(t, "back with 10,000 jobs of history", "s", 1, took, RU_ARRAY_LEN(took), err);
}

static ru_status journal(bench *t, const char *name,
                         ru_status (*fn)(bench *t, const ru_journal *j, ru_err *err), bool again,
                         ru_err *err)
{
    ru_journal j;
    const char *path = ru_path_join(t->b->arena, t->b->dir, name);
    RU_TRY(path == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for a path") : RU_OK);
    RU_TRY(ru_journal_sqlite(path, t->b->arena, &j, err));
    ru_status st = fn(t, &j, err);
    j.ops->close(j.self);
    st = st == RU_OK && again ? recover(t, path, err) : st;
    ru_err ignored;
    (void)!ru_path_remove(path, &ignored);
    return st;
}

static ru_status rows(bench *t, ru_err *err)
{
    RU_TRY(rounds(t, 16, 4, 50, 0.01, err));
    RU_TRY(rounds(t, 125, 64, 5000, 0.7, err));
    if (ru_bench_wants(t->b, "an event is durable")) {
        RU_TRY(journal(t, "events", one_by_one, false, err));
    }
    if (ru_bench_wants(t->b, "back with 10,000 jobs of history")) {
        RU_TRY(journal(t, "history", history, true, err));
    }
    RU_TRY(ru_bench_cluster_day(t->b, err));
    RU_TRY(ru_bench_cluster_link(t->b, err));
    return ru_bench_cluster_jobs(t->b, err);
}

ru_status ru_bench_cluster(ru_bench *b, ru_err *err)
{
    bench *t = RU_NEW(b->arena, bench, 1);
    if (t == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the benchmark");
    }
    t->b = b;
    ru_arena_init(&t->arena, 0);
    ru_status st = rows(t, err);
    end(t);
    return st;
}
