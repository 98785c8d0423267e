/* A promise at the least cost: batches on functions beside none. Real processes; the client is
 * open-loop; the sides of a round follow each other. */
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
#include "function/host.h"
#include "web/fetch.h"

typedef rui_promise bench;

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
    at = strstr(text, "\nby the laws in force: ");
    return at != NULL && sscanf(at, "\nby the laws in force: %lf USD (%lf GB-s", &p->law_usd,
                                &p->law_gb_s) == 2
               ? RU_OK
               : RU_FAIL(w->err, RU_E_PEER, "the page of choices does not say what its laws said");
}

void rui_side_stop(rui_side *s)
{
    if (s->process != NULL) { /* it removes the groups of its instances */
        ru_process_kill(s->process, SIGTERM);
        (void)ru_process_wait(s->process);
    }
    rui_side_end(s);
}

/* A server of a folder answers before its models are ready. */
static ru_status await(rui_promise *w, const rui_side *s)
{
    enum { TRIES = 600 };
    ru_arena *a = w->b->arena;
    const char *url = ru_arena_printf(a, "http://%s/v2/health/ready", s->address);
    char *text = NULL;
    int64_t n = 0;
    ru_status st = RU_E_MEM;
    for (uint32_t k = 0; url != NULL && st != RU_OK && k < TRIES; k++) {
        st = ru_http_fetch(&(ru_fetch){.url = url}, a, &text, &n, w->err);
        if (st != RU_OK) {
            ru_clock_pause(INT64_C(100000000));
        }
    }
    return st;
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
    st = st == RU_OK ? await(w, &s) : st;
    st = st == RU_OK ? rui_load_run(&l, &w->out, w->err) : st;
    st = st == RU_OK ? rui_promise_read(w, &s, what, &before) : st;
    l.seed++;
    l.given_from_s += l.seconds;
    l.seconds = seconds;
    st = st == RU_OK ? rui_load_run(&l, &w->out, w->err) : st;
    st = st == RU_OK ? rui_promise_read(w, &s, what, p) : st;
    rui_side_stop(&s);
    p->spent_usd -= before.spent_usd;
    p->gb_s -= before.gb_s;
    p->requests -= before.requests;
    p->law_usd -= before.law_usd;
    p->law_gb_s -= before.law_gb_s;
    return st != RU_OK || (p->requests > 0 && p->gb_s > 0)
               ? st
               : RU_FAIL(w->err, RU_E_PEER, "no request was computed while %s was measured", what);
}

double rui_promise_late(const rui_load_count *c)
{
    return c->n > 0 ? 100 * (double)c->late / (double)c->n : 100;
}

double rui_promise_worst(const rui_load_count *of, uint32_t n)
{
    enum { ENOUGH = 100 };
    rui_load_count sum = {0}, last = {0};
    double worst = 0;
    for (uint32_t k = 0; k < n; k++) {
        sum.n += of[k].n;
        sum.late += of[k].late;
        if (sum.n >= ENOUGH) {
            worst = fmax(worst, rui_promise_late(&sum));
            last = sum;
            sum = (rui_load_count){0};
        }
    }
    last.n += sum.n;
    last.late += sum.late;
    return fmax(worst, rui_promise_late(&last));
}

double rui_promise_off(double measured, double predicted)
{
    return predicted > 0 ? 100 * fabs(measured / predicted - 1) : 100;
}

/* Windows of which more than 7 % was late, in percent. */
static double bad_windows(const rui_load_out *o)
{
    uint32_t n = 0, bad = 0;
    for (uint32_t k = 0; k < RUI_LOAD_WINDOWS; k++) {
        n += o->of_window[k].n > 0 ? 1 : 0;
        bad += (double)o->of_window[k].late > 0.07 * (double)o->of_window[k].n ? 1 : 0;
    }
    return n > 0 ? 100.0 * bad / n : 100;
}

enum { NONE, OURS };

/* Without batching there is nothing to learn, and a few seconds say what a request costs. */
static ru_status one_side(bench *w, uint32_t side, rui_load l, rui_promise_page *p)
{
    enum { LEARN = 3 };
    const char *batch = side == NONE ? "1" : "32";
    const char *const argv[] = {w->rubato,     "serve", w->path,    "-l",           "0",
                                "--json",      "--slo", SLO,        "--batch",      batch,
                                "--functions", "local", "--memory", "512:1536:512", NULL};
    double seconds = w->seconds;
    l.seconds = side == NONE ? seconds : l.seconds;
    w->seconds = side == NONE ? seconds : LEARN * seconds;
    ru_status st = rui_promise_side(w, argv, "batch", l, p);
    w->seconds = seconds;
    return st;
}

/* Cores that instances had for what was billed. */
static double cores_of(const rui_promise_page *p, double seconds)
{
    return p->gb_s * 1024 / RU_FUNCTION_CORE_MB / seconds;
}

/* arrivals NULL: memoryless. */
static ru_status batches(bench *w, const char *name, const ru_markov *arrivals, double seconds,
                         double window_s)
{
    double of[11][RU_BENCH_ROUNDS_MAX];
    char row[96];
    static const struct {
        const char *what, *unit;
        double goal;
    } rows[] = {{"p95 measured / law", "", 0},
                {"p95 off the law", "%", 5},
                {"later than promised, or without an answer", "%", 5},
                {"windows with more than 7 % of that", "%", 5},
                {"cost measured / law", "", 0},
                {"cost off the law", "%", 3},
                {"billed GB-s measured / law", "", 0},
                {"billed GB-s off the law", "%", 3},
                {"billed GB-s of those without batching", "", 0.8},
                {"billed GB-s of 1000 without batching", "GB-s", 0},
                {"cores of instances without batching", "", 1.2}};
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
        RU_TRY(one_side(w, NONE, l, &none));
        RU_TRY(one_side(w, OURS, l, &ours));
        of[0][k] = ours.p_s[0] > 0 ? ours.p_s[1] / ours.p_s[0] : 0;
        of[1][k] = rui_promise_off(ours.p_s[1], ours.p_s[0]);
        of[2][k] = rui_promise_late(&w->out.of_kind[0]);
        of[3][k] = bad_windows(&w->out);
        of[4][k] = ours.law_usd > 0 ? ours.spent_usd / ours.law_usd : 0;
        of[5][k] = rui_promise_off(ours.spent_usd, ours.law_usd);
        of[6][k] = ours.law_gb_s > 0 ? ours.gb_s / ours.law_gb_s : 0;
        of[7][k] = rui_promise_off(ours.gb_s, ours.law_gb_s);
        of[8][k] = (ours.gb_s / ours.requests) / (none.gb_s / none.requests);
        of[9][k] = 1e3 * none.gb_s / none.requests;
        of[10][k] = cores_of(&none, w->seconds);
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
    return batches(w, "batch, MAP", &map, w->b->quick ? 90 : 1200, w->b->quick ? 6 : 60);
}

/* A server that knows one rate, then twice as many requests come, then a fourth of these: what is
 * late while an old choice is in force counts too. */
static ru_status drift(bench *w)
{
    static const double times[] = {1, 2, 0.5};
    static const char *const names[] = {"batch, drift: late at the rate that it knows",
                                        "batch, drift: late after the rate is twice as high",
                                        "batch, drift: late after it is a fourth of that"};
    const char *const argv[] = {w->rubato,     "serve", w->path,    "-l",           "0",
                                "--json",      "--slo", SLO,        "--batch",      "32",
                                "--functions", "local", "--memory", "512:1536:512", NULL};
    double late[RU_ARRAY_LEN(times)][RU_BENCH_ROUNDS_MAX];
    if (!ru_bench_wants(w->b, "batch, drift")) {
        return RU_OK;
    }
    for (uint32_t k = 0; k < w->rounds; k++) {
        rui_side s = {0};
        ru_status st = rui_side_begin(argv, &s, w->err);
        for (uint32_t i = 0; st == RU_OK && i <= RU_ARRAY_LEN(times); i++) {
            uint32_t phase = i > 0 ? i - 1 : 0; /* the first one is learned from */
            const rui_load l = {.address = s.address,
                                .request = w->request.p,
                                .size_bytes = w->request.n,
                                .conns = RUI_PROMISE_CONNS,
                                .per_s = times[phase] * BATCH_S,
                                .seconds = w->seconds,
                                .seed = 4 * k + i + 1,
                                .promise_ns = SLO_NS};
            st = rui_load_run(&l, &w->out, w->err);
            late[phase][k] = rui_promise_late(&w->out.of_kind[0]);
        }
        rui_side_stop(&s);
        RU_TRY(st);
    }
    for (uint32_t i = 0; i < RU_ARRAY_LEN(times); i++) {
        RU_TRY(rui_promise_add(w, names[i], "%", 5, late[i]));
    }
    return RU_OK;
}

/* A request takes some ms alone, since calls are billed in whole ones. */
static ru_status on_functions(bench *w)
{
    static const char job[] = "name: batch\nmodel: {zoo: mlp, hidden: [3072, 3072]}\n"
                              "data: {format: synthetic, generator: digits, count: 256}\n"
                              "train: {batch: 64, steps: 1, threads: 1}\n";
    static const char *const rows[] = {"batch, Poisson", "batch, MAP", "batch, drift",
                                       "batch, simulator"};
    bench u = *w;
    uint32_t wanted = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        wanted += ru_bench_wants(w->b, rows[k]) ? 1 : 0;
    }
    if (wanted == 0) {
        return RU_OK;
    }
    u.path = ru_arena_printf(w->b->arena, "%s/batch.onnx", w->b->dir);
    u.request = ru_text_arena(w->b->arena);
    RU_TRY(rui_bench_model(w->b, "batch", job, "--onnx", u.path, w->err));
    rui_bench_request(&u.request, "batch", 784, "[1,1,28,28]");
    RU_TRY(batches(&u, "batch, Poisson", NULL, 5 * u.seconds, u.seconds));
    RU_TRY(replay(&u));
    RU_TRY(drift(&u));
    return rui_promise_simulate(&u, BATCH_S);
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
               .seconds = b->quick ? 6 : 20,
               .rounds = b->quick ? 1 : 3,
               .err = err};
    RU_TRY(rui_bench_model(b, "promise", job, "--onnx", w.path, err));
    rui_bench_request(&w.request, "promise", 784, "[1,1,28,28]");
    RU_TRY(on_functions(&w));
    RU_TRY(rui_promise_sizes(&w));
    RU_TRY(rui_promise_traces(&w));
    return rui_promise_beside(&w);
}
