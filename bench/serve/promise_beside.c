/* A training on the core of a server, beside what else one could do: nothing, the plain gate, or
 * what the kernel offers. Server and training have one core, the client has another one. The sides
 * of a round follow each other with the same arrivals. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "bench/serve/promise.h"
#include "env/file/file.h"
#include "env/process/cores.h"
#include "env/process/group.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "env/thread.h"

typedef rui_promise bench;

/* GATES sides are measured at every load, the others at 0.2 and 0.6. */
typedef enum beside { ALONE, PLAIN, OURS, GATES, FREE = GATES, NICE, IDLE, QUOTA, SIDES } beside;

static const char *const side_name[SIDES] = {"alone", "plain gate", "gate", "free",
                                             "nice",  "cpu.idle",   "half"};

enum { WORDS = 24, ROUNDS = RU_BENCH_ROUNDS_MAX };

typedef struct core {
    char server[16], *on; /* taskset's list; its name in a command */
    double top;           /* requests a second that the server answers at most */
    double idle;          /* steps a second of a training that has the core alone */
} core;

typedef struct figures {
    double p99_ms[SIDES][ROUNDS], late[SIDES][ROUNDS], steps[SIDES][ROUNDS];
} figures;

/* A control group whose processes have what nobody else wants, or half of a core; *out NULL for the
 * other sides. Errors: those of ru_group_make. */
static ru_status group_of(bench *w, beside side, ru_group **out)
{
    static const int64_t period_ns = 10000000;
    const ru_group_limits l = {.cpu_idle = side == IDLE,
                               .cpu_quota_ns = side == QUOTA ? period_ns / 2 : 0,
                               .cpu_period_ns = side == QUOTA ? period_ns : 0};
    const char *name = ru_arena_printf(w->b->arena, "rubato-bench-%lld", (long long)ru_self_pid());
    *out = NULL;
    if (side != IDLE && side != QUOTA) {
        return RU_OK;
    }
    return name != NULL ? ru_group_make(name, &l, NULL, NULL, out, w->err)
                        : RU_FAIL(w->err, RU_E_MEM, "no memory for a name");
}

static void group_end(ru_group *group)
{
    ru_err none;
    (void)!(group != NULL ? ru_group_remove(group, &none) : RU_OK);
    ru_group_close(group);
}

/* Steps that the training of this run has done. */
static double steps_of(bench *w, const char *run)
{
    ru_arena *a = w->b->arena;
    char *text = NULL;
    int64_t n = 0;
    ru_err none;
    const char *path = ru_path_join(a, run, "metrics.jsonl");
    if (path == NULL || ru_file_read(path, 0, a, &text, &n, &none) != RU_OK) {
        return 0;
    }
    double step = 0;
    for (const char *at = text; (at = strstr(at, "\"step\":")) != NULL; at++) {
        step = strtod(at + 7, NULL);
    }
    return step;
}

/* The command on the core of the server; `extra`: further words or NULL. */
static void on_core(const core *c, const char *const *words, const char **argv)
{
    uint32_t n = 0;
    argv[n++] = "taskset";
    argv[n++] = "-c";
    argv[n++] = c->server;
    for (uint32_t k = 0; words[k] != NULL && n < WORDS - 1; k++) {
        argv[n++] = words[k];
    }
    argv[n] = NULL;
}

static ru_status serve(bench *w, const core *c, const char *slo, rui_side *s)
{
    const char *const words[] = {w->rubato,     "serve", w->path, "-l", "0", "--json",
                                 "--instances", "1",     "--slo", slo,  NULL};
    const char *argv[WORDS];
    on_core(c, words, argv);
    return rui_side_begin(argv, s, w->err);
}

static ru_status train(bench *w, const core *c, const rui_side *s, beside side,
                       const ru_group *group, struct ru_process **out, const char *run)
{
    const char *job = ru_arena_printf(w->b->arena, "%s/serve-promise-training.yaml", w->b->dir);
    const char *words[WORDS] = {0}, *argv[WORDS];
    uint32_t n = 0;
    if (side == NICE) {
        words[n++] = "nice";
        words[n++] = "-n";
        words[n++] = "19";
    }
    const char *const all[] = {w->rubato, "train", job, "--out", run, "-q"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(all); k++) {
        words[n++] = all[k];
    }
    if (side == OURS || side == PLAIN) {
        words[n++] = "--beside";
        words[n++] = s->address;
        words[n++] = "--gate";
        words[n++] = side == OURS ? "lag" : "priority";
    }
    on_core(c, words, argv);
    if (ru_path_exists(run)) {
        RU_TRY(ru_path_remove(run, w->err));
    }
    return ru_process_start(
        &(ru_process_options){
            .argv = argv, .pipe_out = true, .quiet = true, .own_group = true, .group = group},
        out, w->err);
}

static double end_training(bench *w, struct ru_process *training, const char *run, double seconds)
{
    ru_process_kill(training, SIGTERM);
    (void)ru_process_wait(training);
    ru_process_close(training);
    return steps_of(w, run) / seconds;
}

static ru_status load(bench *w, const rui_side *s, double per_s, double seconds, uint64_t seed,
                      int64_t promise_ns)
{
    const rui_load l = {.address = s->address,
                        .request = w->request.p,
                        .size_bytes = w->request.n,
                        .conns = per_s > 0 ? RUI_PROMISE_CONNS : 1,
                        .per_s = per_s,
                        .seconds = seconds,
                        .seed = seed,
                        .promise_ns = promise_ns};
    return rui_load_run(&l, &w->out, w->err);
}

static ru_status one_side(bench *w, const core *c, beside side, double per_s, double seconds,
                          uint32_t round, int64_t promise_ns, figures *f)
{
    char slo[32];
    (void)snprintf(slo, sizeof slo, "p99=%lldus", (long long)promise_ns / 1000);
    const char *run = ru_arena_printf(w->b->arena, "%s/serve-promise-beside", w->b->dir);
    struct ru_process *training = NULL;
    ru_group *group;
    rui_side s = {0};
    RU_TRY(group_of(w, side, &group));
    ru_status st = serve(w, c, slo, &s);
    st = st == RU_OK ? load(w, &s, per_s, 0.5, round + 101, promise_ns) : st;
    st = st == RU_OK && side != ALONE ? train(w, c, &s, side, group, &training, run) : st;
    st = st == RU_OK ? load(w, &s, per_s, seconds, round + 1, promise_ns) : st;
    f->steps[side][round] = training != NULL ? end_training(w, training, run, seconds) : 0;
    rui_side_end(&s);
    group_end(group);
    if (st == RU_OK && w->out.ok == 0) {
        return RU_FAIL(w->err, RU_E_PEER, "no request was answered while %s was measured",
                       side_name[side]);
    }
    uint64_t all = w->out.ok + w->out.full + w->out.over + w->out.other;
    f->p99_ms[side][round] = (double)ru_hist_quantile(&w->out.latency, 0.99) * 1e-6;
    f->late[side][round] =
        100 * (double)(all - w->out.ok + w->out.late) / (double)(all > 0 ? all : 1);
    return st;
}

/* The core's speed: what one connection gets, and what a training gets that has it alone. */
static ru_status speed(bench *w, core *c)
{
    const char *run = ru_arena_printf(w->b->arena, "%s/serve-promise-beside", w->b->dir);
    struct ru_process *training = NULL;
    rui_side s = {0};
    ru_status st = serve(w, c, "p99=1s", &s);
    st = st == RU_OK ? load(w, &s, 0, 1, 1, 0) : st;
    c->top = (double)w->out.ok / w->out.seconds;
    /* beside a server that is asked once a second */
    st = st == RU_OK ? train(w, c, &s, FREE, NULL, &training, run) : st;
    st = st == RU_OK ? load(w, &s, 1, w->seconds, 1, 0) : st;
    c->idle = training != NULL ? end_training(w, training, run, w->seconds) : 0;
    rui_side_end(&s);
    return st == RU_OK && !(c->top > 0 && c->idle > 0)
               ? RU_FAIL(w->err, RU_E_PEER, "the server answers nothing, or no step was trained")
               : st;
}

/* Can this side be measured here? */
static bool possible(bench *w, beside side)
{
    ru_group *group;
    bool fine = group_of(w, side, &group) == RU_OK;
    if (!fine) {
        ru_log(RU_LOG_WARN, "bench", "promise", "%s is left out: %s", side_name[side],
               w->err->text);
    }
    group_end(group);
    return fine;
}

static ru_status add(bench *w, const char *name, const char *unit, bool lower, double goal,
                     const double *values)
{
    double of[ROUNDS];
    memcpy(of, values, w->rounds * sizeof *of);
    return ru_bench_add(w->b,
                        &(ru_bench_row){.name = ru_arena_str(w->b->arena, name),
                                        .unit = unit,
                                        .lower = lower,
                                        .goal = goal,
                                        .ours = ru_bench_stat_of(of, w->rounds)},
                        w->err);
}

static ru_status report(bench *w, double part, beside side, const figures *f)
{
    char name[96];
    (void)snprintf(name, sizeof name, "beside, load %.1f, %s: p99", part, side_name[side]);
    RU_TRY(add(w, name, "ms", true, 0, f->p99_ms[side]));
    (void)snprintf(name, sizeof name, "beside, load %.1f, %s: late or refused", part,
                   side_name[side]);
    RU_TRY(add(w, name, "%", true, 0, f->late[side]));
    (void)snprintf(name, sizeof name, "beside, load %.1f, %s: training", part, side_name[side]);
    return side == ALONE ? RU_OK : add(w, name, "steps/s", false, 0, f->steps[side]);
}

/* Beside the same round of the other sides. */
static ru_status judge(bench *w, const core *c, double part, const figures *f)
{
    char name[96];
    double points[ROUNDS], tail[ROUNDS], plain[ROUNDS], idle[ROUNDS];
    for (uint32_t k = 0; k < w->rounds; k++) {
        points[k] = f->late[OURS][k] - f->late[ALONE][k];
        tail[k] = f->p99_ms[OURS][k] / f->p99_ms[ALONE][k];
        plain[k] = f->steps[OURS][k] / fmax(f->steps[PLAIN][k], 1e-9);
        idle[k] = f->steps[OURS][k] / (c->idle * (1 - part));
    }
    bool busy = part > 0.65;
    (void)snprintf(name, sizeof name, "beside, load %.1f: late, points above alone", part);
    RU_TRY(add(w, name, "", true, 0.5, points));
    (void)snprintf(name, sizeof name, "beside, load %.1f: p99 over alone", part);
    RU_TRY(add(w, name, "", true, 1.10, tail));
    (void)snprintf(name, sizeof name, "beside, load %.1f: training over the plain gate", part);
    RU_TRY(add(w, name, "", false, busy ? 1.0 : 1.15, plain));
    (void)snprintf(name, sizeof name, "beside, load %.1f: training over the idle core", part);
    return add(w, name, "", false, busy ? 0 : 0.70, idle);
}

static ru_status at_load(bench *w, const core *c, double part)
{
    figures f = {0};
    bool measured[SIDES];
    beside sides = part < 0.25 || (part > 0.55 && part < 0.65) ? SIDES : GATES;
    double seconds = w->b->quick ? w->seconds : fmax(w->seconds, 1e4 / (part * c->top));
    /* 2.5 times the mean service, and what waiting for it takes at this load */
    int64_t promise_ns = (int64_t)(2.5e9 / c->top / (1 - part));
    for (beside side = ALONE; side < sides; side++) {
        measured[side] = possible(w, side);
    }
    for (uint32_t k = 0; k < w->rounds; k++) {
        for (beside side = ALONE; side < sides; side++) {
            RU_TRY(measured[side] ? one_side(w, c, side, part * c->top, seconds, k, promise_ns, &f)
                                  : RU_OK);
        }
    }
    for (beside side = ALONE; side < sides; side++) {
        RU_TRY(measured[side] ? report(w, part, side, &f) : RU_OK);
    }
    return judge(w, c, part, &f);
}

static bool wants(const bench *w, double part)
{
    char name[32];
    (void)snprintf(name, sizeof name, "beside, load %.1f", part);
    return ru_bench_wants(w->b, name);
}

ru_status rui_promise_beside(bench *w)
{
    static const char job[] = "name: promise-training\nmodel: {zoo: mlp, hidden: [512, 512]}\n"
                              "data: {format: synthetic, generator: digits, count: 512}\n"
                              "train: {batch: 64, steps: 100000000, threads: 1}\n";
    static const double loads[] = {0.2, 0.6, 0.8, 0.3, 0.4, 0.5, 0.7, 0.9};
    const char *path = ru_arena_printf(w->b->arena, "%s/serve-promise-training.yaml", w->b->dir);
    uint32_t cores[2];
    core c = {0};
    /* in quick rounds the others only when they are named */
    bool all = !w->b->quick || !ru_bench_wants(w->b, "beside, load");
    uint32_t n_loads = all ? RU_ARRAY_LEN(loads) : 3, wanted = 0;
    for (uint32_t k = 0; k < n_loads; k++) {
        wanted += wants(w, loads[k]) ? 1 : 0;
    }
    if (wanted == 0) {
        return RU_OK;
    }
    if (ru_thread_cores_list(cores, 2) < 2) {
        ru_log(RU_LOG_WARN, "bench", "promise",
               "a training beside a server is left out: it needs two cores, one for the client");
        return RU_OK;
    }
    (void)snprintf(c.server, sizeof c.server, "%u", cores[1]);
    (void)ru_cores_stay(cores[0]);
    RU_TRY(path != NULL ? ru_file_replace(path, job, sizeof job - 1, w->err)
                        : RU_FAIL(w->err, RU_E_MEM, "no memory for a path"));
    RU_TRY(speed(w, &c));
    for (uint32_t k = 0; k < n_loads; k++) {
        RU_TRY(wants(w, loads[k]) ? at_load(w, &c, loads[k]) : RU_OK);
    }
    return RU_OK;
}
