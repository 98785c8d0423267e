/* The server's step machine in virtual time beside the server: the arrivals of a real run, and what
 * its batches took: a line in their rows, and what each took beyond it, at the requests that it
 * had. Quantiles of what either says of a request's time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "bench/replay/serve/replay_serve.h"
#include "bench/serve/bench_serve.h"
#include "bench/serve/load.h"
#include "bench/serve/promise.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "web/fetch.h"

enum { SIZES = 33, MANY = 1000000 };

/* A request of the access log; times in ns. */
typedef struct answer {
    int64_t at, all, parse, compute, busy; /* busy: of its batch, until its own answer */
    int64_t early;                         /* its answer before the last one of its batch */
    uint32_t requests;                     /* of its batch */
} answer;

typedef struct facts {
    answer *of;             /* [n] in order of their answers, then of their arrivals */
    double base_ns, row_ns; /* of a batch: a line in its rows */
    /* [n] what batches took beyond that line, at their first requests: a machine that makes other
     * batches of the same requests still waits as long in all */
    double *over;
    double over_mean; /* of a batch */
    uint32_t n;
    uint64_t *started; /* requests so far */
} facts;

/* -- the real run ------------------------------------------------------------------------------
 */

static int64_t number(ru_str line, const char *key)
{
    int64_t at = ru_str_find(line, key);
    return at < 0 ? 0 : strtoll(line.p + at + (int64_t)strlen(key), NULL, 10);
}

static ru_status read_log(const char *path, int64_t from_ns, ru_arena *arena, facts *f, ru_err *err)
{
    char *text = NULL;
    int64_t n = 0;
    RU_TRY(ru_file_read(path, 0, arena, &text, &n, err));
    ru_str rest = ru_str_n(text, n), line;
    f->of = RU_NEW(arena, answer, n / 200 + 1); /* a line is longer */
    if (f->of == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the access log");
    }
    while (ru_str_next(&rest, '\n', &line)) {
        int64_t requests = number(line, "\"batch_requests\":");
        if (requests < 1 || requests >= SIZES || number(line, "\"status\":") != 200 ||
            number(line, "\"at_ns\":") < from_ns) {
            continue;
        }
        f->of[f->n++] = (answer){
            .at = number(line, "\"at_ns\":"),
            .all = number(line, "\"all_ns\":"),
            .parse = number(line, "\"parse_ns\":"),
            .compute = number(line, "\"compute_ns\":"),
            .busy = number(line, "\"queue_ns\":") + number(line, "\"compute_ns\":") +
                    number(line, "\"answer_ns\":"),
            .requests = (uint32_t)requests,
        };
    }
    return f->n > 0 ? RU_OK : RU_FAIL(err, RU_E_DATA, "%s has no request with outputs", path);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* How many requests the batch has that ends with answer k - 1; 0: it is not all there, or goes on.
 */
static uint32_t ends_at(const facts *f, uint32_t k)
{
    const answer *last = &f->of[k - 1];
    uint32_t in = last->requests;
    bool whole = k >= in && f->of[k - in].compute == last->compute &&
                 (k == f->n || f->of[k].compute != last->compute);
    return whole ? in : 0;
}

/* How long batches of one size kept their instance busy, as their last answers say. */
static uint32_t batches_of(const facts *f, uint32_t size, double *took)
{
    uint32_t n = 0;
    for (uint32_t k = 1; k <= f->n; k++) {
        if (ends_at(f, k) == size) {
            took[n++] = (double)f->of[k - 1].busy;
        }
    }
    return n;
}

static ru_status find_over(facts *f, ru_err *err)
{
    uint32_t n = 0;
    double sum = 0;
    memset(f->over, 0, f->n * sizeof *f->over);
    for (uint32_t k = 1; k <= f->n; k++) {
        uint32_t in = ends_at(f, k);
        if (in > 0) {
            f->over[k - in] = (double)f->of[k - 1].busy - f->base_ns - f->row_ns * in;
            sum += f->over[k - in];
            n++;
            for (uint32_t i = k - in; i < k; i++) {
                f->of[i].early = f->of[k - 1].busy - f->of[i].busy;
            }
        }
    }
    f->over_mean = n > 0 ? sum / n : 0;
    return n > 0 ? RU_OK : RU_FAIL(err, RU_E_DATA, "the access log has no whole batch");
}

/* A line through the medians by size, and what batches took beyond it: mostly times without a core,
 * which do not grow with the batch. */
static ru_status learn(ru_arena *arena, facts *f, ru_err *err)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    f->over = RU_NEW(arena, double, f->n);
    if (f->over == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for times of batches");
    }
    for (uint32_t size = 1; size < SIZES; size++) {
        uint32_t have = batches_of(f, size, f->over);
        qsort(f->over, have, sizeof *f->over, by_value);
        double median = have > 0 ? f->over[have / 2] : 0;
        n += have;
        x += (double)have * size;
        y += have * median;
        xx += (double)have * size * size;
        xy += have * size * median;
    }
    double spread = n * xx - x * x;
    f->row_ns = spread > 0 ? (n * xy - x * y) / spread : 0;
    f->row_ns = f->row_ns > 0 ? f->row_ns : 0;
    f->base_ns = n > 0 ? (y - f->row_ns * x) / n : 0;
    f->base_ns = f->base_ns > 1000 ? f->base_ns : 1000;
    return find_over(f, err);
}

static double service_s(const void *self, uint32_t n, uint32_t largest, double memory_mb)
{
    const facts *f = self;
    (void)largest;
    (void)memory_mb;
    double ns = f->base_ns + f->row_ns * n;
    for (uint32_t k = 0; k < n; k++) {
        ns += f->over[(*f->started)++ % f->n];
    }
    return (ns > 1000 ? ns : 1000) * 1e-9;
}

static double no_usd(const void *self, uint32_t n, uint32_t largest, double memory_mb)
{
    (void)self;
    (void)n;
    (void)largest;
    (void)memory_mb;
    return 0;
}

/* Requests a second at which the machine would be busy half of the time with its largest batches.
 */
static double half_rate(const facts *f)
{
    return 0.5e9 * (SIZES - 1) / (f->base_ns + f->row_ns * (SIZES - 1) + f->over_mean);
}

/* -- quantiles ---------------------------------------------------------------------------------
 */

static int by_arrival(const void *a, const void *b)
{
    int64_t x = ((const answer *)a)->at, y = ((const answer *)b)->at;
    return x < y ? -1 : x > y;
}

static void quantiles(double *v, uint32_t n, double out[2])
{
    qsort(v, n, sizeof *v, by_value);
    out[0] = v[n / 2];
    out[1] = v[(uint32_t)(0.95 * n)];
}

/* A server as the machine plays it. */
typedef struct side {
    ru_serve_rule rule;
    uint32_t instances;
    bool functions;
} side;

static const side own_thread = {{.batch = SIZES - 1, .eager = true}, 1, false};

/* -- rows --------------------------------------------------------------------------------------
 */

static ru_status play(ru_bench *b, const side *s, facts *f, uint32_t requests, const int64_t *given,
                      double rate, rui_serve_out *out, ru_err *err)
{
    const double share = 1;
    const rui_serve_in in = {.arrivals = ru_markov_poisson(rate),
                             .given_ns = given,
                             .table = {.n = 1, .n_classes = 1, .rule = &s->rule, .share = &share},
                             .service_s = service_s,
                             .usd = no_usd,
                             .self = f,
                             .requests = requests,
                             .instances_max = s->instances,
                             .functions = s->functions,
                             .seed = 1};
    return rui_serve_run(&in, b->arena, out, err);
}

/* p50 and p95 of both; how far the simulator is off, in percent. */
static ru_status compare(ru_bench *b, const side *s, facts *f, double off[2], double *gb_s,
                         ru_err *err)
{
    double *real = RU_NEW(b->arena, double, f->n), q[2][2];
    int64_t *at = RU_NEW(b->arena, int64_t, f->n);
    rui_serve_out out;
    if (real == NULL || at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u requests", f->n);
    }
    qsort(f->of, f->n, sizeof *f->of, by_arrival);
    for (uint32_t k = 0; k < f->n; k++) {
        real[k] = (double)f->of[k].all * 1e-9;
        at[k] = f->of[k].at + f->of[k].parse - f->of[0].at - f->of[0].parse;
        at[k] = k > 0 && at[k] < at[k - 1] ? at[k - 1] : at[k];
    }
    RU_TRY(play(b, s, f, f->n, at, 1, &out, err));
    *gb_s = out.gb_s / out.n;
    for (uint32_t k = 0; k < out.n; k++) { /* answers come in the order of arrivals */
        out.latency[k] += (double)(f->of[k].parse - f->of[k].early) * 1e-9;
    }
    quantiles(real, f->n, q[0]);
    quantiles(out.latency, out.n, q[1]);
    for (uint32_t k = 0; k < 2; k++) {
        off[k] = 100 * fabs(q[1][k] / q[0][k] - 1);
    }
    return RU_OK;
}

static ru_status add(ru_bench *b, const char *name, const char *unit, double goal, double *v,
                     uint32_t n, ru_err *err)
{
    return ru_bench_add(b,
                        &(ru_bench_row){.name = name,
                                        .unit = unit,
                                        .lower = true,
                                        .goal = goal,
                                        .ours = ru_bench_stat_of(v, n)},
                        err);
}

static ru_status one_run(ru_bench *b, const rui_load *given, const char *path, const char *log,
                         facts *f, ru_err *err)
{
    const char *argv[] = {ru_bench_rubato(b->arena),
                          "serve",
                          path,
                          "-l",
                          "0",
                          "--json",
                          "--access-log",
                          log,
                          "--batch",
                          "32",
                          "--instances",
                          "1",
                          NULL};
    rui_side s = {0};
    rui_load l = *given;
    rui_load_out *out = RU_NEW(b->arena, rui_load_out, 1);
    if (out == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a load");
    }
    ru_status st = rui_side_begin(argv, &s, err);
    l.address = s.address;
    st = st == RU_OK ? rui_load_run(&l, out, err) : st; /* sizes open meanwhile */
    st = st == RU_OK ? rui_load_run(&l, out, err) : st;
    double top = st == RU_OK ? (double)out->ok / out->seconds : 0;
    int64_t from_ns = ru_clock_wall_ns();
    l.per_s = 0.3 * top;
    l.conns = 256;
    st = st == RU_OK ? rui_load_run(&l, out, err) : st;
    rui_side_end(&s);
    RU_TRY(st);
    RU_TRY(read_log(log, from_ns, b->arena, f, err));
    return learn(b->arena, f, err);
}

ru_status rui_bench_simulate(ru_bench *b, const rui_load *load, const char *path, uint32_t rounds,
                             ru_err *err)
{
    const char *log = ru_path_join(b->arena, b->dir, "serve-simulated");
    double off[2][RU_BENCH_ROUNDS_MAX], took[RU_BENCH_ROUNDS_MAX];
    if (!ru_bench_wants(b, "simulator")) {
        return RU_OK;
    }
    for (uint32_t k = 0; k < rounds; k++) {
        uint64_t started = 0;
        facts f = {.started = &started};
        double d[2] = {0}, gb_s;
        if (log == NULL || ru_path_exists(log)) {
            RU_TRY(log != NULL ? ru_path_remove(log, err) : RU_FAIL(err, RU_E_MEM, "no memory"));
        }
        RU_TRY(one_run(b, load, path, log, &f, err));
        RU_TRY(compare(b, &own_thread, &f, d, &gb_s, err));
        off[0][k] = d[0];
        off[1][k] = d[1];
        ru_time from = ru_clock_now();
        rui_serve_out out;
        RU_TRY(play(b, &own_thread, &f, MANY, NULL, half_rate(&f), &out, err));
        took[k] = (double)ru_time_since(ru_clock_now(), from) * 1e-9;
    }
    RU_TRY(add(b, "simulator, p50 off the server's", "%", 5, off[0], rounds, err));
    RU_TRY(add(b, "simulator, p95 off the server's", "%", 5, off[1], rounds, err));
    return add(b, "simulator, a million requests", "s", 10, took, rounds, err);
}

/* -- functions ---------------------------------------------------------------------------------
 */

/* What the server has chosen, and for how many seconds. Errors: RU_E_PEER. */
static ru_status chosen(ru_bench *b, const rui_side *s, side *of, double *for_s, double *gb_s,
                        ru_err *err)
{
    const char *url = ru_arena_printf(b->arena, "http://%s/v2/rubato/explain/batch", s->address);
    char *text = NULL;
    int64_t n = 0;
    double wait_s = 0;
    RU_TRY(url != NULL ? ru_http_fetch(&(ru_fetch){.url = url}, b->arena, &text, &n, err)
                       : RU_FAIL(err, RU_E_MEM, "no memory for an address"));
    const char *spent = strstr(text, "\nspent: "), *most = strstr(text, "of at most "),
               *choice = strstr(text, "choice: functions with");
    *of = (side){.functions = true};
    if (choice == NULL ||
        sscanf(choice, "choice: functions with %lf MB, batches of %u, a wait of %lf s, for %lf s",
               &of->rule.memory_mb, &of->rule.batch, &wait_s, for_s) != 4 ||
        spent == NULL || sscanf(spent, "\nspent: %*f USD for %*u requests (%lf", gb_s) != 1 ||
        most == NULL || sscanf(most, "of at most %u", &of->instances) != 1) {
        return RU_FAIL(err, RU_E_PEER, "the page of choices does not say what was chosen");
    }
    of->rule.timeout_ns = (int64_t)(wait_s * 1e9);
    return RU_OK;
}

/* A server on functions under one choice: asked until its choice stays for as long as the load. */
static ru_status run_of_functions(rui_promise *w, const char *log, rui_load l, side *of, facts *f,
                                  double *gb_s)
{
    enum { TRIES = 4 };
    const char *argv[] = {w->rubato,  "serve",        w->path,        "-l", "0",           "--json",
                          "--slo",    "p95=200ms",    "--batch",      "32", "--functions", "local",
                          "--memory", "512:1536:512", "--access-log", log,  NULL};
    rui_side s = {0};
    ru_status st = rui_side_begin(argv, &s, w->err);
    double for_s = 0, before = 0, after = 0;
    int64_t from_ns = 0;
    l.address = s.address;
    st = st == RU_OK ? rui_load_run(&l, &w->out, w->err) : st;
    for (uint32_t k = 0; st == RU_OK && k < TRIES && for_s < l.seconds; k++) {
        l.seed++;
        st = chosen(w->b, &s, of, &for_s, &before, w->err);
        from_ns = ru_clock_wall_ns();
        st = st == RU_OK ? rui_load_run(&l, &w->out, w->err) : st;
        st = st == RU_OK ? chosen(w->b, &s, of, &for_s, &after, w->err) : st;
    }
    rui_side_stop(&s);
    RU_TRY(st);
    if (for_s < l.seconds) {
        return RU_FAIL(w->err, RU_E_PEER, "the server changes its choice all the time");
    }
    RU_TRY(read_log(log, from_ns, w->b->arena, f, w->err));
    *gb_s = (after - before) / f->n;
    return learn(w->b->arena, f, w->err);
}

ru_status rui_promise_simulate(rui_promise *w, double per_s)
{
    const char *log = ru_path_join(w->b->arena, w->b->dir, "promise-simulated");
    double off[3][RU_BENCH_ROUNDS_MAX], took[RU_BENCH_ROUNDS_MAX];
    if (!ru_bench_wants(w->b, "batch, simulator")) {
        return RU_OK;
    }
    for (uint32_t k = 0; k < w->rounds; k++) {
        uint64_t started = 0;
        facts f = {.started = &started};
        double d[2] = {0}, real = 0, gb_s = 0;
        side of;
        rui_serve_out out;
        const rui_load l = {.request = w->request.p,
                            .size_bytes = w->request.n,
                            .conns = RUI_PROMISE_CONNS,
                            .per_s = per_s,
                            .seconds = w->seconds,
                            .seed = 100 * k + 1};
        if (log == NULL || ru_path_exists(log)) {
            RU_TRY(log != NULL ? ru_path_remove(log, w->err)
                               : RU_FAIL(w->err, RU_E_MEM, "no memory"));
        }
        RU_TRY(run_of_functions(w, log, l, &of, &f, &real));
        RU_TRY(compare(w->b, &of, &f, d, &gb_s, w->err));
        off[0][k] = d[0];
        off[1][k] = d[1];
        off[2][k] = rui_promise_off(gb_s, real);
        ru_time from = ru_clock_now();
        RU_TRY(play(w->b, &of, &f, MANY, NULL, per_s, &out, w->err));
        took[k] = (double)ru_time_since(ru_clock_now(), from) * 1e-9;
    }
    RU_TRY(rui_promise_add(w, "batch, simulator: p50 off the server's", "%", 5, off[0]));
    RU_TRY(rui_promise_add(w, "batch, simulator: p95 off the server's", "%", 5, off[1]));
    RU_TRY(rui_promise_add(w, "batch, simulator: GB-s off the server's", "%", 5, off[2]));
    return rui_promise_add(w, "batch, simulator: a million requests", "s", 10, took);
}
