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
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/cores.h"
#include "env/process/group.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "env/thread.h"
#include "web/fetch.h"

typedef rui_promise bench;

/* GATES sides are measured at every load, the others at 0.2 and 0.6. */
typedef enum beside {
    ALONE,
    PLAIN,
    OURS,
    KEEPS, /* the plain gate, so long behind a batch that it makes no more late than ours may */
    GATES,
    FREE = GATES,
    NICE,
    IDLE,
    QUOTA,
    KILLED, /* ours, which gets SIGKILL every other second and begins anew */
    SIDES
} beside;

static const char *const side_name[SIDES] = {
    "alone", "plain gate", "gate", "plain gate, quiet", "free",
    "nice",  "cpu.idle",   "half", "gate, killed"};

enum { WORDS = 24, ROUNDS = RU_BENCH_ROUNDS_MAX };
#define POINTS 0.5 /* more late than alone, in percent of the requests */
#define OPEN_S 2.0 /* in which a training opens that is not counted for it */

typedef struct core {
    char server[16];         /* taskset's list */
    const char *where;       /* "beside", in the names of rows */
    uint32_t cores, threads; /* threads, layers and batch of the training */
    const char *hidden, *batch;
    const char *op_max; /* of ours; NULL: whatever it takes */
    int64_t quiet_ns;   /* of KEEPS: no op begins so soon behind a batch */
    double top;         /* requests a second that the server answers at most */
    double idle;        /* steps a second of a training that has the core alone */
} core;

typedef struct figures {
    double p99_ms[SIDES][ROUNDS], late[SIDES][ROUNDS], steps[SIDES][ROUNDS];
    double off_new[ROUNDS], off_known[ROUNDS]; /* predicted slowdown, in percent of the measured */
    double decide_us[ROUNDS];                  /* p99 */
    double quiet_ms[ROUNDS];                   /* of KEEPS */
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
    if (side == KILLED) { /* who starts it and clears up stands back, too */
        words[n++] = "chrt";
        words[n++] = "-i";
        words[n++] = "0";
        words[n++] = "sh";
        words[n++] = "-c";
        words[n++] = ru_arena_printf(w->b->arena,
                                     "while :; do rm -rf '%s'; timeout -s KILL 2 '%s' train '%s' "
                                     "--out '%s' -q --beside %s; done",
                                     run, w->rubato, job, run, s->address);
    }
    const char *const all[] = {side == KILLED ? NULL : w->rubato, "train", job, "--out", run, "-q"};
    for (uint32_t k = 0; all[0] != NULL && k < RU_ARRAY_LEN(all); k++) {
        words[n++] = all[k];
    }
    if (side == OURS || side == PLAIN || side == KEEPS) {
        words[n++] = "--beside";
        words[n++] = s->address;
        words[n++] = "--gate";
        words[n++] = side == OURS ? "lag" : "priority";
    }
    if (side == KEEPS) {
        words[n++] = "--gate-quiet";
        words[n++] = ru_arena_printf(w->b->arena, "%lldns", (long long)c->quiet_ns);
    }
    if (side == OURS && c->op_max != NULL) {
        words[n++] = "--op-max";
        words[n++] = c->op_max;
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

/* The gate's page: slowdown of a batch beside ops, predicted and measured, of the last 256; and
 * what 99 of 100 decisions take at most. */
static ru_status slowdown(bench *w, const rui_side *s, double *off, double *decide_us)
{
    ru_arena *a = w->b->arena;
    const char *url = ru_arena_printf(a, "http://%s/v2/rubato/explain/gate", s->address);
    char *text = NULL;
    int64_t n = 0;
    double predicted = 0, measured = 0, mean_us;
    RU_TRY(url != NULL ? ru_http_fetch(&(ru_fetch){.url = url}, a, &text, &n, w->err)
                       : RU_FAIL(w->err, RU_E_MEM, "no memory for an address"));
    const char *at = strstr(text, "beside ops: predicted ");
    if (at != NULL) {
        (void)sscanf(at, "beside ops: predicted %lf, measured %lf", &predicted, &measured);
    }
    at = strstr(text, "a decision takes ");
    if (at == NULL || sscanf(at, "a decision takes %lf us, p99 %lf", &mean_us, decide_us) != 2) {
        return RU_FAIL(w->err, RU_E_PEER, "no training is beside the server");
    }
    *off = measured > 0 ? 100 * fabs(predicted / measured - 1) : 100;
    return RU_OK;
}

/* The load; with ours it stops once the pair has been met some 200 times, and looks. */
static ru_status load_in_parts(bench *w, const rui_side *s, double per_s, double seconds,
                               uint32_t round, int64_t promise_ns, figures *f)
{
    double ask_s = fmin(600 / per_s, seconds / 4);
    RU_TRY(load(w, s, per_s, ask_s, round + 201, promise_ns));
    RU_TRY(slowdown(w, s, &f->off_new[round], &f->decide_us[round]));
    RU_TRY(load(w, s, per_s, seconds, round + 1, promise_ns));
    return slowdown(w, s, &f->off_known[round], &f->decide_us[round]);
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
    double open_s = side == KEEPS ? OPEN_S : 0;
    st = st == RU_OK && open_s > 0 ? load(w, &s, per_s, open_s, round + 301, promise_ns) : st;
    if (st == RU_OK && side == OURS) {
        st = load_in_parts(w, &s, per_s, seconds, round, promise_ns, f);
    } else {
        st = st == RU_OK ? load(w, &s, per_s, seconds, round + 1, promise_ns) : st;
    }
    f->steps[side][round] = training != NULL ? end_training(w, training, run, open_s + seconds) : 0;
    rui_side_end(&s);
    group_end(group);
    if (side == KILLED) { /* the last one has two seconds */
        ru_clock_pause(INT64_C(2500000000));
    }
    if (st == RU_OK && w->out.ok == 0) {
        return RU_FAIL(w->err, RU_E_PEER, "no request was answered while %s was measured",
                       side_name[side]);
    }
    uint64_t all = w->out.sent;
    f->p99_ms[side][round] = (double)ru_hist_quantile(&w->out.latency, 0.99) * 1e-6;
    f->late[side][round] =
        100 * (double)(all - w->out.ok + w->out.late) / (double)(all > 0 ? all : 1);
    return st;
}

/* The plain gate with the shortest time of quiet that keeps what ours has to; as it is, if that
 * does. An op that begins may meet a request however long the quiet before it was, so the time only
 * makes ops fewer: after so many mean gaps between requests ops begin in e^-gaps of the idle times.
 */
static ru_status keeps(bench *w, const core *c, double per_s, double seconds, uint32_t round,
                       int64_t promise_ns, figures *f)
{
    core quiet = *c;
    double most = f->late[ALONE][round] + POINTS;
    f->late[KEEPS][round] = f->late[PLAIN][round];
    f->p99_ms[KEEPS][round] = f->p99_ms[PLAIN][round];
    f->steps[KEEPS][round] = f->steps[PLAIN][round];
    f->quiet_ms[round] = 0;
    for (double gaps = 2; gaps <= 16; gaps *= 2) {
        bool trained = quiet.quiet_ns > 0 || f->steps[PLAIN][round] > 0; /* else it was refused */
        if (trained && f->late[KEEPS][round] <= most) {
            break;
        }
        quiet.quiet_ns = (int64_t)(gaps * 1e9 / per_s);
        f->quiet_ms[round] = (double)quiet.quiet_ns * 1e-6;
        RU_TRY(one_side(w, &quiet, KEEPS, per_s, seconds, round, promise_ns, f));
    }
    return RU_OK;
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

static ru_status report(bench *w, const core *c, double part, beside side, const figures *f)
{
    char name[96];
    (void)snprintf(name, sizeof name, "%s, load %.1f, %s: p99", c->where, part, side_name[side]);
    RU_TRY(add(w, name, "ms", true, 0, f->p99_ms[side]));
    (void)snprintf(name, sizeof name, "%s, load %.1f, %s: late or refused", c->where, part,
                   side_name[side]);
    RU_TRY(add(w, name, "%", true, 0, f->late[side]));
    (void)snprintf(name, sizeof name, "%s, load %.1f, %s: training", c->where, part,
                   side_name[side]);
    RU_TRY(side == ALONE ? RU_OK : add(w, name, "steps/s", false, 0, f->steps[side]));
    (void)snprintf(name, sizeof name, "%s, load %.1f, %s: time of quiet", c->where, part,
                   side_name[side]);
    return side == KEEPS ? add(w, name, "ms", true, 0, f->quiet_ms) : RU_OK;
}

/* Steps a second of a training that has all that the server leaves of the cores, and costs it
 * nothing: a server has one of them while it computes. */
static double oracle_of(const core *c, double part)
{
    return c->idle * (c->cores - part) / c->cores;
}

/* Steps over those of the plain gate as it is, which makes requests late, and of one that keeps the
 * promise as ours does. */
static ru_status over_plain(bench *w, const core *c, double part, const figures *f)
{
    char name[96];
    uint32_t n_plain = 0, n_keeps = 0;
    double plain[ROUNDS], kept[ROUNDS];
    for (uint32_t k = 0; k < w->rounds; k++) {
        if (f->steps[PLAIN][k] > 0) { /* else its prediction refused it */
            plain[n_plain++] = f->steps[OURS][k] / f->steps[PLAIN][k];
        }
        if (f->late[KEEPS][k] <= f->late[ALONE][k] + POINTS) { /* no step counts as one in 10 s */
            kept[n_keeps++] = f->steps[OURS][k] / fmax(f->steps[KEEPS][k], 0.1);
        }
    }
    if (n_plain < w->rounds) {
        ru_log(RU_LOG_WARN, "bench", "promise",
               "%s, load %.1f: the plain gate trained nothing in %u of %u rounds, since it was "
               "predicted to break the promise",
               c->where, part, w->rounds - n_plain, w->rounds);
    }
    if (n_keeps < w->rounds) {
        ru_log(RU_LOG_WARN, "bench", "promise",
               "%s, load %.1f: no time of quiet kept the promise in %u of %u rounds", c->where,
               part, w->rounds - n_keeps, w->rounds);
    }
    bench of = *w;
    of.rounds = n_plain;
    (void)snprintf(name, sizeof name, "%s, load %.1f: training over the plain gate", c->where,
                   part);
    RU_TRY(n_plain > 0 ? add(&of, name, "", false, 0, plain) : RU_OK);
    of.rounds = n_keeps;
    (void)snprintf(name, sizeof name,
                   "%s, load %.1f: training over the plain gate that keeps the promise", c->where,
                   part);
    return n_keeps > 0 ? add(&of, name, "", false, part > 0.65 ? 1.0 : 1.15, kept) : RU_OK;
}

/* Beside the same round of the other sides. */
static ru_status judge(bench *w, const core *c, double part, const figures *f)
{
    char name[96];
    double points[ROUNDS], tail[ROUNDS], idle[ROUNDS], oracle[ROUNDS];
    for (uint32_t k = 0; k < w->rounds; k++) {
        points[k] = f->late[OURS][k] - f->late[ALONE][k];
        tail[k] = f->p99_ms[OURS][k] / f->p99_ms[ALONE][k];
        idle[k] = f->steps[OURS][k] / oracle_of(c, part);
        oracle[k] = oracle_of(c, part);
    }
    (void)snprintf(name, sizeof name, "%s, load %.1f: late, points above alone", c->where, part);
    RU_TRY(add(w, name, "", true, POINTS, points));
    (void)snprintf(name, sizeof name, "%s, load %.1f: p99 over alone", c->where, part);
    RU_TRY(add(w, name, "", true, 1.10, tail));
    RU_TRY(over_plain(w, c, part, f));
    (void)snprintf(name, sizeof name, "%s, load %.1f: training over the idle core", c->where, part);
    RU_TRY(add(w, name, "", false, part > 0.65 ? 0 : 0.70, idle));
    (void)snprintf(name, sizeof name, "%s, load %.1f, oracle (computed): training", c->where, part);
    RU_TRY(add(w, name, "steps/s", false, 0, oracle));
    (void)snprintf(name, sizeof name, "%s, load %.1f: slowdown of a new pair off", c->where, part);
    RU_TRY(add(w, name, "%", true, 12, f->off_new));
    (void)snprintf(name, sizeof name, "%s, load %.1f: slowdown of a known pair off", c->where,
                   part);
    RU_TRY(add(w, name, "%", true, 5, f->off_known));
    (void)snprintf(name, sizeof name, "%s, load %.1f: p99 of decisions", c->where, part);
    return add(w, name, "us", true, 20, f->decide_us);
}

static ru_status at_load(bench *w, const core *c, double part)
{
    figures f = {0};
    bool measured[SIDES];
    bool two = part < 0.25 || (part > 0.55 && part < 0.65);
    two = two && strcmp(c->where, "beside") == 0 && strstr(w->b->only, ", gate") == NULL;
    beside sides = two ? SIDES : GATES;
    /* 10^4 requests a side, in all rounds */
    double seconds = w->b->quick ? w->seconds : fmax(6, 1e4 / w->rounds / (part * c->top));
    /* 2.5 times the mean service, and what waiting for it takes at this load */
    int64_t promise_ns = (int64_t)(2.5e9 / c->top / (1 - part));
    for (beside side = ALONE; side < sides; side++) {
        measured[side] = possible(w, side);
    }
    for (uint32_t k = 0; k < w->rounds; k++) {
        for (beside side = ALONE; side < sides; side++) {
            RU_TRY(!measured[side] ? RU_OK
                   : side == KEEPS
                       ? keeps(w, c, part * c->top, seconds, k, promise_ns, &f)
                       : one_side(w, c, side, part * c->top, seconds, k, promise_ns, &f));
        }
    }
    for (beside side = ALONE; side < sides; side++) {
        RU_TRY(measured[side] ? report(w, c, part, side, &f) : RU_OK);
    }
    if (sides == SIDES) {
        double more[ROUNDS];
        char name[96];
        for (uint32_t k = 0; k < w->rounds; k++) {
            more[k] = f.late[KILLED][k] - f.late[ALONE][k];
        }
        (void)snprintf(name, sizeof name, "%s, load %.1f, gate, killed: late, points above alone",
                       c->where, part);
        RU_TRY(add(w, name, "", true, POINTS, more));
    }
    return judge(w, c, part, &f);
}

static bool wants(const bench *w, const char *where, double part)
{
    char name[48]; /* with ", gate": without what the kernel offers */
    (void)snprintf(name, sizeof name, "%s, load %.1f, gate", where, part);
    return ru_bench_wants(w->b, name);
}

/* All loads of one place. */
static ru_status at_place(bench *w, core *c)
{
    static const double loads[] = {0.2, 0.6, 0.8, 0.3, 0.4, 0.5, 0.7, 0.9};
    const char *path = ru_arena_printf(w->b->arena, "%s/serve-promise-training.yaml", w->b->dir);
    const char *job =
        ru_arena_printf(w->b->arena,
                        "name: promise-training\nmodel: {zoo: mlp, hidden: [%s, %s]}\n"
                        "data: {format: synthetic, generator: digits, count: 512}\n"
                        "train: {batch: %s, steps: 100000000, threads: %u}\n",
                        c->hidden, c->hidden, c->batch, c->threads);
    /* in quick rounds the others only when they are named */
    bool all = !w->b->quick || strchr(w->b->only, '0') != NULL;
    uint32_t n_loads = all ? RU_ARRAY_LEN(loads) : 3, wanted = 0;
    for (uint32_t k = 0; k < n_loads; k++) {
        wanted += wants(w, c->where, loads[k]) ? 1 : 0;
    }
    if (wanted == 0) {
        return RU_OK;
    }
    RU_TRY(path != NULL && job != NULL ? ru_file_replace(path, job, (int64_t)strlen(job), w->err)
                                       : RU_FAIL(w->err, RU_E_MEM, "no memory for a path"));
    RU_TRY(speed(w, c));
    for (uint32_t k = 0; k < n_loads; k++) {
        RU_TRY(wants(w, c->where, loads[k]) ? at_load(w, c, loads[k]) : RU_OK);
    }
    return RU_OK;
}

/* On one core with the server, the client on the other one; with ops there that take longer than
 * many batches, or would without parts of a batch; and all three on two cores, the training with
 * two threads. */
ru_status rui_promise_beside(bench *w)
{
    uint32_t cores[2];
    core one = {.where = "beside", .cores = 1, .threads = 1, .hidden = "512", .batch = "64"};
    core two = {
        .where = "beside on two cores", .cores = 2, .threads = 2, .hidden = "1024", .batch = "64"};
    core slow = {
        .where = "beside long ops", .cores = 1, .threads = 1, .hidden = "2048", .batch = "256"};
    if (!ru_bench_wants(w->b, "beside") && strncmp(w->b->only, "beside", 6) != 0) {
        return RU_OK;
    }
    if (ru_thread_cores_list(cores, 2) < 2) {
        ru_log(RU_LOG_WARN, "bench", "promise",
               "a training beside a server is left out: it needs two cores, one for the client");
        return RU_OK;
    }
    (void)snprintf(one.server, sizeof one.server, "%u", cores[1]);
    (void)snprintf(two.server, sizeof two.server, "%u,%u", cores[0], cores[1]);
    memcpy(slow.server, one.server, sizeof slow.server);
    core cut = slow;
    cut.where = "beside cut ops";
    cut.op_max = "8ms";
    RU_TRY(at_place(w, &two));
    (void)ru_cores_stay(cores[0]);
    RU_TRY(at_place(w, &one));
    RU_TRY(at_place(w, &slow));
    return at_place(w, &cut);
}
