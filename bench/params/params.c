/* Apps in one process against single-process programs: matrix factorisation and topics of
 * documents, with the same rank or topics and threads.
 *
 * Each side trains from the start in a process of its own. A peer makes so many passes as it is
 * known to need; its objective on test data is the target. Ours makes the fewest passes that reach
 * the target. Both are then timed in turns: time to the same objective, and passes themselves. */
#include "bench/params/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/params/params_store.h"
#include "data/make/make.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "train/app/app_run.h"
#include "train/app/local.h"

enum { PASSES_MAX = 200, PEERS_MAX = 3 };

typedef struct task {
    const char *name, *unit;
    const char *generator; /* of its data */
    const char *job;       /* ours; the folder goes in */
    int64_t rank, count, count_quick, test;
    struct {
        const char *side, *install;
        int64_t passes;
        bool speed;  /* passes alone are compared */
        bool single; /* it has one thread, whatever it is given */
    } peers[PEERS_MAX];
} task;

static const task tasks[] = {
    {"mf",
     "ratings",
     "ratings",
     "app: mf\ndata: {format: ratings, train: %s/train.csv, test: %s/test.csv}\n"
     "clocks: {executors: 16}\n"
     "mf: {rank: 32, lr: 0.04, lambda: 0.03, decay: 0.02}\n",
     32,
     4000000,
     1000000,
     100000,
     /* What pip builds of libmf 0.9.2 does not fit these data: the error of its training ratings
      * stays above their deviation for every eta and lambda tried. */
     {{"libmf", "pip install libmf", 20, true, false},
      {"surprise", "pip install scikit-surprise", 20, false, true},
      {"cornac", "pip install cornac", 20, false, false}}},
    {"lda",
     "words",
     "topics",
     "app: lda\ndata: {format: libsvm, train: %s/train.svm, test: %s/test.svm, cols: 5000}\n"
     "clocks: {executors: 4}\n"
     "lda: {topics: 100, alpha: 0.1, beta: 0.01, likelihood_every: 1000000}\n",
     100,
     20000,
     5000,
     500,
     {{"tomotopy", "pip install tomotopy", 50, false, false},
      {"lda", "pip install lda", 50, false, true}}},
};

/* -- our side ---------------------------------------------------------------------------------- */

typedef struct ours {
    ru_arena arena;
    ru_app_job_file file;
    ru_sparse_file *data, *test;
    uint32_t threads;
} ours;

static ru_status open_ours(ours *o, const char *name, const char *threads, const char *dir,
                           ru_err *err)
{
    const task *t = strcmp(name, "mf") == 0 ? &tasks[0] : &tasks[1];
    ru_text yaml = ru_text_arena(&o->arena);
    const char *rest = t->job;
    for (const char *at; (at = strstr(rest, "%s")) != NULL; rest = at + 2) {
        ru_text_put_n(&yaml, rest, at - rest);
        ru_text_put(&yaml, dir);
    }
    ru_text_put(&yaml, rest);
    o->threads = (uint32_t)strtoul(threads, NULL, 10);
    RU_TRY(ru_app_job_parse("params", yaml.p, &o->arena, &o->file, err));
    const ru_app_job *job = o->file.job;
    RU_TRY(ru_app_job_data(&o->file, job->data.train.at, 1, NULL, &o->data, err));
    const ru_sparse_options like = {.rows = t == &tasks[0] ? ru_sparse_rows(o->data) : 0,
                                    .cols = ru_sparse_cols(o->data),
                                    .numbers = ru_sparse_numbered(o->data)};
    return ru_app_job_data(&o->file, job->data.test.at, 1, &like, &o->test, err);
}

/* Passes from the start until `passes`, or until the test objective is at most `target`. */
static ru_status train_ours(ours *o, int64_t passes, double target, int64_t *made, double *seconds,
                            double *objective, ru_err *err)
{
    const ru_app_local_options opt = {.ops = o->file.ops,
                                      .setup = {.config = o->file.config,
                                                .data = o->data,
                                                .rows = ru_sparse_rows(o->data),
                                                .cols = ru_sparse_cols(o->data),
                                                .executors = o->file.job->clocks.executors,
                                                .seed = 1},
                                      .threads = o->threads};
    ru_app_local *l;
    ru_app_state *state;
    ru_metrics m = {0};
    double sums[RU_APP_SUMS_MAX];
    RU_TRY(ru_app_local_open(&opt, &l, err));
    ru_status st = ru_app_local_save(l, &state, err);
    *seconds = 0.0;
    for (*made = 0; st == RU_OK && *made < passes;) {
        ru_time begin = ru_clock_now();
        st = ru_app_local_clock(l, sums, err);
        *seconds += (double)(ru_clock_now().ns - begin.ns) * 1e-9;
        ++*made;
        if (st == RU_OK && (target > 0 || *made == passes)) {
            st = ru_app_eval(o->file.ops, ru_app_local_self(l), state, o->test, &m, err);
            *objective = m.at[0].value;
            if (st == RU_OK && *objective <= target) {
                break;
            }
        }
    }
    ru_app_local_close(l);
    return st;
}

static ru_status answer(ours *o, const char *line, ru_err *err)
{
    int64_t made = 0, passes = strtoll(line + 4, NULL, 10);
    double seconds = 0.0, objective = 0.0;
    if (strncmp(line, "reach ", 6) == 0) {
        RU_TRY(train_ours(o, PASSES_MAX, strtod(line + 6, NULL), &made, &seconds, &objective, err));
        printf("%lld %.9f\n", (long long)made, objective);
    } else if (strncmp(line, "run ", 4) == 0) {
        RU_TRY(train_ours(o, passes, 0.0, &made, &seconds, &objective, err));
        printf("%.9f %.9f\n", seconds, objective);
    } else {
        printf("%lld\n", (long long)ru_self_rss_peak_bytes());
    }
    (void)fflush(stdout);
    return RU_OK;
}

ru_status ru_bench_params_worker(const char *const *words, uint32_t n, ru_err *err)
{
    static const struct {
        const char *name;
        ru_status (*fn)(const char *const *words, uint32_t n, ru_err *err);
    } others[] = {{"store", rui_store_worker},
                  {"store-server", rui_store_server},
                  {"redis", rui_redis_worker},
                  {"bare", rui_bare_worker},
                  {"bare-server", rui_bare_server}};
    for (uint32_t k = 0; n > 1 && k < RU_ARRAY_LEN(others); k++) {
        if (strcmp(words[1], others[k].name) == 0) {
            return others[k].fn(words, n, err);
        }
    }
    if (n != 4) {
        return RU_FAIL(err, RU_E_USAGE, "a worker of params needs: params mf|lda THREADS DIR");
    }
    ours o = {0};
    char line[256];
    ru_arena_init(&o.arena, 0);
    ru_status st = open_ours(&o, words[1], words[2], words[3], err);
    if (st == RU_OK) {
        printf("{\"ready\":true,\"detail\":\"rubato " RU_VERSION "\"}\n");
        (void)fflush(stdout);
    }
    while (st == RU_OK && fgets(line, sizeof line, stdin) != NULL &&
           strncmp(line, "quit", 4) != 0) {
        st = answer(&o, line, err);
    }
    ru_sparse_close(o.data);
    ru_sparse_close(o.test);
    ru_arena_fini(&o.arena);
    return st;
}

/* -- in turns ---------------------------------------------------------------------------------- */

typedef struct pairing {
    const task *t;
    const char *dir;
    uint32_t threads, rounds;
    int64_t ours_passes, count; /* count: ratings or words of a pass */
    double target, ours[RU_BENCH_ROUNDS_MAX], theirs[RU_BENCH_ROUNDS_MAX];
} pairing;

static ru_status ask(ru_bench_side *s, const char *question, double *a, double *b, ru_err *err)
{
    const char *answered;
    char *rest;
    RU_TRY(ru_bench_ask(s, question, &answered, err));
    *a = strtod(answered, &rest);
    *b = strtod(rest, NULL);
    return *a > 0 ? RU_OK
                  : RU_FAIL(err, RU_E_PEER, "%s answered '%s' to '%s'", s->argv[0], answered,
                            question);
}

/* The fewest passes of ours that reach what the peer reaches. */
static ru_status find_passes(pairing *p, ru_bench_side sides[2], const char *theirs, ru_err *err)
{
    char reach[64];
    double made, got;
    RU_TRY(ask(&sides[1], theirs, &made, &p->target, err));
    (void)snprintf(reach, sizeof reach, "reach %.9f\n", p->target);
    RU_TRY(ask(&sides[0], reach, &made, &got, err));
    p->ours_passes = (int64_t)made;
    return got <= p->target
               ? RU_OK
               : RU_FAIL(err, RU_E_PEER, "%s: %d passes reach %g, not the %g of the peer",
                         p->t->name, PASSES_MAX, got, p->target);
}

static ru_status measure(pairing *p, ru_bench_side sides[2], int64_t passes, bool speed,
                         ru_err *err)
{
    char theirs[64], ours_run[64];
    double got;
    (void)snprintf(theirs, sizeof theirs, "run %lld\n", (long long)passes);
    p->ours_passes = passes;
    p->target = 0.0;
    if (!speed) {
        RU_TRY(find_passes(p, sides, theirs, err));
    }
    (void)snprintf(ours_run, sizeof ours_run, "run %lld\n", (long long)p->ours_passes);
    for (uint32_t r = 0; r < p->rounds; r++) {
        RU_TRY(ask(&sides[0], ours_run, &p->ours[r], &got, err));
        RU_TRY(ask(&sides[1], theirs, &p->theirs[r], &got, err));
    }
    return RU_OK;
}

static ru_status add_rows(ru_bench *b, pairing *p, const ru_bench_side *peer, const char *install,
                          int64_t passes, ru_err *err)
{
    const char *threads = p->threads == 1 ? "thread" : "threads";
    ru_bench_row row = {.unit = "s", .lower = true, .goal = 1.0, .peer = peer->detail};
    if (peer->missing != NULL) {
        row.peer = install;
        row.missing = ru_arena_printf(b->arena, "%s; install: %s", peer->missing, install);
        row.name = ru_arena_printf(b->arena, "%s to the same objective %u %s", p->t->name,
                                   p->threads, threads);
        return ru_bench_add(b, &row, err);
    }
    double rate[2][RU_BENCH_ROUNDS_MAX];
    for (uint32_t r = 0; r < p->rounds; r++) {
        rate[0][r] = (double)(p->count * p->ours_passes) / p->ours[r];
        rate[1][r] = (double)(p->count * passes) / p->theirs[r];
    }
    row.name =
        ru_arena_printf(b->arena, "%s to %.4f (%lld and %lld passes) %u %s", p->t->name, p->target,
                        (long long)p->ours_passes, (long long)passes, p->threads, threads);
    row.ours = ru_bench_stat_of(p->ours, p->rounds);
    row.theirs = ru_bench_stat_of(p->theirs, p->rounds);
    if (p->target > 0) {
        RU_TRY(ru_bench_add(b, &row, err));
    }
    row.lower = false;
    row.unit = ru_arena_printf(b->arena, "%s/s", p->t->unit);
    row.name =
        ru_arena_printf(b->arena, "%s %s %u %s", p->t->name, p->t->unit, p->threads, threads);
    row.ours = ru_bench_stat_of(rate[0], p->rounds);
    row.theirs = ru_bench_stat_of(rate[1], p->rounds);
    return ru_bench_add(b, &row, err);
}

static ru_status one_peer(ru_bench *b, pairing *p, uint32_t k, ru_err *err)
{
    const task *t = p->t;
    const char *scripts = ru_bench_scripts(b->arena);
    const char *threads = ru_arena_printf(b->arena, "%u", p->threads);
    const char *const ours_argv[] = {
        ru_bench_rubato(b->arena), "bench", "--worker", "params", t->name, threads, p->dir, NULL};
    const char *const peer_argv[] = {
        "python3",   ru_path_join(b->arena, scripts != NULL ? scripts : "", "params_peer.py"),
        "--side",    t->peers[k].side,
        "--dir",     p->dir,
        "--rank",    ru_arena_printf(b->arena, "%lld", (long long)t->rank),
        "--threads", threads,
        NULL};
    ru_bench_side sides[2] = {{.argv = ours_argv}, {.argv = peer_argv}};
    RU_TRY(ru_bench_sides_start(sides, 2, p->threads, b->arena, err));
    ru_status st = RU_OK;
    if (sides[1].missing == NULL) {
        st = measure(p, sides, t->peers[k].passes, t->peers[k].speed, err);
    }
    ru_bench_sides_end(sides, 2);
    RU_TRY(st);
    return add_rows(b, p, &sides[1], t->peers[k].install, t->peers[k].passes, err);
}

/* Entries that a pass goes through: ratings, or words. */
static ru_status count_of(const task *t, const char *dir, int64_t *count, ru_err *err)
{
    ours o = {0};
    ru_arena_init(&o.arena, 0);
    ru_status st = open_ours(&o, t->name, "1", dir, err);
    *count = st == RU_OK ? ru_sparse_entries(o.data) : 0;
    if (st == RU_OK && strcmp(t->name, "lda") == 0) {
        ru_sparse all;
        double sum = 0.0;
        ru_sparse_part(o.data, 0, ru_sparse_rows(o.data), &all);
        for (int64_t i = 0; i < all.begin[all.rows]; i++) {
            sum += (double)all.value[i];
        }
        *count = (int64_t)sum;
    }
    ru_sparse_close(o.data);
    ru_sparse_close(o.test);
    ru_arena_fini(&o.arena);
    return st;
}

ru_status ru_bench_params(ru_bench *b, ru_err *err)
{
    if (ru_bench_wants(b, "lost")) {
        RU_TRY(ru_bench_params_lost(b, err));
    }
    if (ru_bench_wants(b, "redis")) {
        RU_TRY(ru_bench_params_redis(b, err));
    }
    RU_TRY(ru_bench_params_litz(b, err));
    if (ru_bench_wants(b, "stragglers")) {
        RU_TRY(ru_bench_params_flex(b, err));
    }
    for (uint32_t i = 0; i < RU_ARRAY_LEN(tasks); i++) {
        const task *t = &tasks[i];
        const char *dir = ru_path_join(b->arena, b->dir, t->generator);
        pairing p = {.t = t, .dir = dir, .rounds = b->quick ? 1 : 5};
        ru_make_options make = {.name = t->generator,
                                .dir = dir,
                                .count = b->quick ? t->count_quick : t->count,
                                .test_count = t->test,
                                .seed = 2};
        ru_make_report report;
        if (!ru_bench_wants(b, t->name)) {
            continue;
        }
        make.gen = (ru_gen_options){
            .users = 40000, .items = 8000, .rank = 16, .vocab = 5000, .length = 100};
        make.classes = strcmp(t->name, "lda") == 0 ? 20 : 0;
        RU_TRY(ru_data_make(&make, &report, err));
        RU_TRY(count_of(t, dir, &p.count, err));
        for (p.threads = 1; p.threads <= 2; p.threads++) {
            bool wanted = b->threads == 0 || b->threads == p.threads;
            for (uint32_t k = 0; wanted && k < PEERS_MAX && t->peers[k].side != NULL; k++) {
                if (p.threads == 1 || !t->peers[k].single) { /* else it would be held back */
                    RU_TRY(one_peer(b, &p, k, err));
                }
            }
        }
    }
    return RU_OK;
}
