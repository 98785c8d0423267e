/* A promise at the least cost: batches on functions beside none, and a training on the cores of a
 * server beside what else one could do. Real processes; the client is open-loop; the sides of a
 * round follow each other. */
#include "bench/serve/promise.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/group.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "web/fetch.h"

typedef rui_promise bench;

static ru_status load(bench *w, const rui_side *s, double per_s, double seconds, uint64_t seed,
                      int64_t promise_ns)
{
    const rui_load l = {.address = s->address,
                        .request = w->request.p,
                        .size_bytes = w->request.n,
                        .conns = RUI_PROMISE_CONNS,
                        .per_s = per_s,
                        .seconds = seconds,
                        .seed = seed,
                        .promise_ns = promise_ns};
    return rui_load_run(&l, &w->out, w->err);
}

ru_status rui_promise_add(rui_promise *w, const char *name, const char *unit, double goal,
                          double *values)
{
    return ru_bench_add(w->b,
                        &(ru_bench_row){.name = ru_arena_str(w->b->arena, name),
                                        .unit = unit,
                                        .lower = true,
                                        .goal = goal,
                                        .ours = ru_bench_stat_of(values, w->rounds)},
                        w->err);
}

/* -- batches on functions ----------------------------------------------------------------------
 */

#define SLO     "p95=200ms"
#define SLO_NS  INT64_C(200000000)
#define BATCH_S 30.0 /* requests a second */

/* Two figures behind the line that begins with `name`; zeros: it is not there. */
static void two(const char *text, const char *name, double out[2])
{
    const char *at = strstr(text, name);
    char *end = NULL;
    out[0] = out[1] = 0;
    if (at != NULL) {
        out[0] = strtod(at + strlen(name), &end);
        end += strcspn(end, "\n0123456789");
        out[1] = strtod(end, NULL);
    }
}

ru_status rui_promise_read(rui_promise *w, const rui_side *s, const char *what, rui_promise_page *p)
{
    ru_arena *a = w->b->arena;
    const char *url = ru_arena_printf(a, "http://%s/v2/rubato/explain/%s", s->address, what);
    char *text = NULL;
    int64_t n = 0;
    if (url == NULL) {
        return RU_FAIL(w->err, RU_E_MEM, "no memory for an address");
    }
    RU_TRY(ru_http_fetch(&(ru_fetch){.url = url}, a, &text, &n, w->err));
    two(text, "\np95", p->p_s);
    two(text, "\na request", p->usd);
    two(text, "\nrequests in a batch", p->batch);
    two(text, "\npadding beyond own classes", p->padding);
    const char *at = strstr(text, "\nspent: ");
    if (at == NULL || sscanf(at, "\nspent: %lf USD for %lf requests (%lf GB-s", &p->spent_usd,
                             &p->requests, &p->gb_s) != 3) {
        return RU_FAIL(w->err, RU_E_PEER, "the page of choices does not say what was spent");
    }
    return RU_OK;
}

ru_status rui_promise_side(rui_promise *w, const char *const *argv, const char *what, rui_load l,
                           rui_promise_page *p)
{
    rui_promise_page before = {0};
    rui_side s = {0};
    ru_status st = rui_side_begin(argv, &s, w->err);
    double seconds = l.seconds;
    l.address = s.address;
    l.conns = RUI_PROMISE_CONNS;
    l.seconds = w->seconds;
    st = st == RU_OK ? rui_load_run(&l, &w->out, w->err) : st;
    st = st == RU_OK ? rui_promise_read(w, &s, what, &before) : st;
    l.seed++;
    l.seconds = seconds;
    st = st == RU_OK ? rui_load_run(&l, &w->out, w->err) : st;
    st = st == RU_OK ? rui_promise_read(w, &s, what, p) : st;
    if (s.process != NULL) { /* it removes the groups of its instances */
        ru_process_kill(s.process, SIGTERM);
        (void)ru_process_wait(s.process);
    }
    rui_side_end(&s);
    p->spent_usd -= before.spent_usd;
    p->gb_s -= before.gb_s;
    p->requests -= before.requests;
    return st;
}

#define USD_CALL 2e-7

/* GB-s of a request, as the law says, or as the meter did. */
static double gb_s_of(const rui_promise_page *p, int measured)
{
    return p->usd[measured] - USD_CALL / (p->batch[measured] > 0 ? p->batch[measured] : 1);
}

/* Windows of which more than 7 % was late, in percent. */
static double bad_windows(const rui_load_out *o)
{
    uint32_t n = 0, bad = 0;
    for (uint32_t k = 0; k < RUI_LOAD_WINDOWS; k++) {
        n += o->of_window[k].n > 0 ? 1 : 0;
        bad += (double)o->of_window[k].late > 0.07 * (double)o->of_window[k].n ? 1 : 0;
    }
    return n > 0 ? 100.0 * bad / n : 0;
}

/* arrivals NULL: memoryless. */
static ru_status batches(bench *w, const char *name, const ru_markov *arrivals, double seconds,
                         double window_s)
{
    double of[6][RU_BENCH_ROUNDS_MAX];
    char row[96];
    static const struct {
        const char *what, *unit;
        double goal;
    } rows[] = {{"p95 measured / law", "", 1.05},
                {"later than promised, or without an answer", "%", 5},
                {"windows with more than 7 % of that", "%", 5},
                {"cost measured / law", "", 1.03},
                {"billed GB-s measured / law", "", 1.03},
                {"billed GB-s of those without batching", "", 0.8}};
    if (!ru_bench_wants(w->b, name)) {
        return RU_OK;
    }
    for (uint32_t k = 0; k < w->rounds; k++) {
        rui_promise_page ours = {0}, none = {0};
        const rui_load l = {.request = w->request.p,
                            .size_bytes = w->request.n,
                            .per_s = BATCH_S,
                            .arrivals = arrivals,
                            .seconds = seconds,
                            .window_s = window_s,
                            .seed = 2 * k + 1,
                            .promise_ns = SLO_NS};
        for (uint32_t side = 0; side < 2; side++) {
            const char *const argv[] = {
                w->rubato,     "serve", w->path,    "-l",           "0",
                "--json",      "--slo", SLO,        "--batch",      side == 0 ? "1" : "32",
                "--functions", "local", "--memory", "512:1536:512", NULL};
            RU_TRY(rui_promise_side(w, argv, "batch", l, side == 0 ? &none : &ours));
        }
        uint64_t all = w->out.of_kind[0].n;
        of[0][k] = ours.p_s[0] > 0 ? ours.p_s[1] / ours.p_s[0] : 0;
        of[1][k] = 100 * (double)w->out.of_kind[0].late / (double)(all > 0 ? all : 1);
        of[2][k] = bad_windows(&w->out);
        of[3][k] = ours.usd[0] > 0 ? ours.usd[1] / ours.usd[0] : 0;
        of[4][k] = ours.usd[0] > 0 ? gb_s_of(&ours, 1) / gb_s_of(&ours, 0) : 0;
        of[5][k] = (ours.gb_s / ours.requests) / (none.gb_s / none.requests);
    }
    for (uint32_t r = 0; r < RU_ARRAY_LEN(rows); r++) {
        (void)snprintf(row, sizeof row, "%s: %s", name, rows[r].what);
        RU_TRY(rui_promise_add(w, row, rows[r].unit, rows[r].goal, of[r]));
    }
    return RU_OK;
}

/* Two phases, of twice and of half as many as on average, five seconds each: the same as a replay
 * of a process of arrivals that was fitted to bursts. */
static ru_status replay(bench *w)
{
    const ru_markov map = ru_markov_mmpp(1.6 * BATCH_S, 0.4 * BATCH_S, 0.2, 0.2);
    return batches(w, "batch, MAP", &map, w->b->quick ? w->seconds : 600, w->b->quick ? 2 : 60);
}

/* -- a training on the cores of a server -------------------------------------------------------
 */

typedef enum beside { ALONE, FREE, NICE, IDLE, QUOTA, OURS, SIDES } beside;

static const char *const side_name[SIDES] = {"alone", "free", "nice", "cpu.idle", "half", "gate"};

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

static ru_status train_beside(bench *w, const rui_side *s, beside side, const ru_group *group,
                              struct ru_process **out, const char *run)
{
    const char *job = ru_arena_printf(w->b->arena, "%s/serve-promise-training.yaml", w->b->dir);
    const char *const all[] = {"nice",  "-n", "19", w->rubato,  "train",    job,
                               "--out", run,  "-q", "--beside", s->address, NULL};
    const char *argv[RU_ARRAY_LEN(all)] = {0};
    uint32_t n = 0;
    for (uint32_t k = side == NICE ? 0 : 3; k < (side == OURS ? 11u : 9u); k++) {
        argv[n++] = all[k];
    }
    if (ru_path_exists(run)) {
        RU_TRY(ru_path_remove(run, w->err));
    }
    return ru_process_start(
        &(ru_process_options){
            .argv = argv, .pipe_out = true, .quiet = true, .own_group = true, .group = group},
        out, w->err);
}

typedef struct beside_out {
    double p99_ms, late, steps;
} beside_out;

static ru_status beside_side(bench *w, beside side, double per_s, uint64_t seed, int64_t promise_ns,
                             beside_out *out)
{
    char slo[32];
    (void)snprintf(slo, sizeof slo, "p99=%lldus", (long long)promise_ns / 1000);
    const char *run = ru_arena_printf(w->b->arena, "%s/serve-promise-beside", w->b->dir);
    const char *const argv[] = {w->rubato, "serve", w->path,       "-l", "0", "--json",
                                "--slo",   slo,     "--instances", "1",  NULL};
    struct ru_process *training = NULL;
    ru_group *group;
    rui_side s = {0};
    RU_TRY(group_of(w, side, &group));
    ru_status st = rui_side_begin(argv, &s, w->err);
    st = st == RU_OK ? load(w, &s, per_s, 0.5, seed + 100, promise_ns) : st;
    st = st == RU_OK && side != ALONE ? train_beside(w, &s, side, group, &training, run) : st;
    st = st == RU_OK ? load(w, &s, per_s, w->seconds, seed, promise_ns) : st;
    if (training != NULL) {
        ru_process_kill(training, SIGTERM);
        (void)ru_process_wait(training);
        ru_process_close(training);
        out->steps = steps_of(w, run) / w->seconds;
    }
    rui_side_end(&s);
    ru_err none;
    (void)!(group != NULL ? ru_group_remove(group, &none) : RU_OK);
    ru_group_close(group);
    uint64_t all = w->out.ok + w->out.full + w->out.over + w->out.other;
    out->p99_ms = (double)ru_hist_quantile(&w->out.latency, 0.99) * 1e-6;
    out->late = 100 * (double)(all - w->out.ok + w->out.late) / (double)(all > 0 ? all : 1);
    return st;
}

/* The server's own speed: what one connection gets. */
static ru_status speed(bench *w, double *per_s)
{
    const char *const argv[] = {w->rubato, "serve",       w->path, "-l", "0",
                                "--json",  "--instances", "1",     NULL};
    rui_side s = {0};
    ru_status st = rui_side_begin(argv, &s, w->err);
    const rui_load l = {.address = s.address,
                        .request = w->request.p,
                        .size_bytes = w->request.n,
                        .conns = 1,
                        .seconds = 1};
    st = st == RU_OK ? rui_load_run(&l, &w->out, w->err) : st;
    rui_side_end(&s);
    *per_s = (double)w->out.ok / w->out.seconds;
    return st == RU_OK && !(*per_s > 0) ? RU_FAIL(w->err, RU_E_PEER, "the server answers nothing")
                                        : st;
}

/* Can this side be measured here? */
static bool possible(bench *w, beside side)
{
    ru_group *group;
    ru_err none;
    bool fine = group_of(w, side, &group) == RU_OK;
    if (!fine) {
        ru_log(RU_LOG_WARN, "bench", "promise", "%s is left out: %s", side_name[side],
               w->err->text);
    }
    (void)!(group != NULL ? ru_group_remove(group, &none) : RU_OK);
    ru_group_close(group);
    return fine;
}

static ru_status trainings_at(bench *w, double part, double top)
{
    bool measured[SIDES];
    double p99[SIDES][RU_BENCH_ROUNDS_MAX], late[SIDES][RU_BENCH_ROUNDS_MAX],
        steps[SIDES][RU_BENCH_ROUNDS_MAX];
    /* 2.5 times the mean service, and what waiting for it takes at this load */
    int64_t promise_ns = (int64_t)(2.5e9 / top / (1 - part));
    for (beside side = ALONE; side < SIDES; side++) {
        measured[side] = possible(w, side);
    }
    for (uint32_t k = 0; k < w->rounds; k++) {
        for (beside side = ALONE; side < SIDES; side++) {
            beside_out o = {0};
            if (!measured[side]) {
                continue;
            }
            RU_TRY(beside_side(w, side, part * top, k + 1, promise_ns, &o));
            p99[side][k] = o.p99_ms;
            late[side][k] = o.late;
            steps[side][k] = o.steps;
        }
    }
    for (beside side = ALONE; side < SIDES; side++) {
        char name[96];
        if (!measured[side]) {
            continue;
        }
        (void)snprintf(name, sizeof name, "beside, load %.1f, %s: p99", part, side_name[side]);
        RU_TRY(rui_promise_add(w, name, "ms", 0, p99[side]));
        (void)snprintf(name, sizeof name, "beside, load %.1f, %s: late or refused", part,
                       side_name[side]);
        RU_TRY(rui_promise_add(w, name, "%", 0, late[side]));
        (void)snprintf(name, sizeof name, "beside, load %.1f, %s: training", part, side_name[side]);
        RU_TRY(side == ALONE
                   ? RU_OK
                   : ru_bench_add(w->b,
                                  &(ru_bench_row){.name = ru_arena_str(w->b->arena, name),
                                                  .unit = "steps/s",
                                                  .ours = ru_bench_stat_of(steps[side], w->rounds)},
                                  w->err));
    }
    return RU_OK;
}

static ru_status trainings(bench *w)
{
    static const char job[] = "name: promise-training\nmodel: {zoo: mlp, hidden: [512, 512]}\n"
                              "data: {format: synthetic, generator: digits, count: 512}\n"
                              "train: {batch: 64, steps: 100000000, threads: 1}\n";
    const char *path = ru_arena_printf(w->b->arena, "%s/serve-promise-training.yaml", w->b->dir);
    double top = 0;
    if (!ru_bench_wants(w->b, "beside")) {
        return RU_OK;
    }
    RU_TRY(path != NULL ? ru_file_replace(path, job, sizeof job - 1, w->err)
                        : RU_FAIL(w->err, RU_E_MEM, "no memory for a path"));
    RU_TRY(speed(w, &top));
    RU_TRY(trainings_at(w, 0.2, top));
    return trainings_at(w, 0.6, top);
}

ru_status ru_bench_promise(ru_bench *b, ru_err *err)
{
    static const char job[] = "name: promise\nmodel: {zoo: mlp, hidden: [2048, 2048]}\n"
                              "data: {format: synthetic, generator: digits, count: 256}\n"
                              "train: {batch: 64, steps: 1, threads: 1}\n";
    bench w = {.b = b,
               .rubato = ru_bench_rubato(b->arena),
               .path = ru_arena_printf(b->arena, "%s/promise.onnx", b->dir),
               .request = ru_text_arena(b->arena),
               .seconds = b->quick ? 6 : 30,
               .rounds = b->quick ? 1 : 3,
               .err = err};
    RU_TRY(rui_bench_model(b, "promise", job, "--onnx", w.path, err));
    rui_bench_request(&w.request, "promise", 784, "[1,1,28,28]");
    RU_TRY(batches(&w, "batch, Poisson", NULL, w.seconds, w.seconds / 3));
    RU_TRY(replay(&w));
    RU_TRY(rui_promise_sizes(&w));
    return trainings(&w);
}
