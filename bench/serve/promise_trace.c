/* Conversations of a published trace (azure_llm_2023_conv.csv: when each came, tokens of its
 * prompt), at their own pace and ten times as fast, for a language model on functions. A batch
 * reads all weights once, and computes for its padded length. A prompt of 4,096 tokens or more
 * fills the context.
 *
 * Calls cost nothing, so that all choices are for the least of what the rows measure: GB-s.
 *
 * Beside: no batching, one tuned buffer, and one buffer with a fixed delay (max_queue_delay of
 * config.pbtxt), as servers have that do not know the arrivals. And tables of routes that are
 * swapped under load.
 *
 * The trace is that of Azure/AzurePublicDataset. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/str.h"
#include "bench/serve/promise.h"
#include "env/file/file.h"
#include "web/fetch.h"

enum { SIZES = 8, CONTEXT = 16, FULL = 4096, SWAPS = 10 };
/* Long beside the times between conversations of one size, which are seconds for rare ones. */
#define SLO         "p95=2s"
#define SLO_NS      INT64_C(2000000000)
#define SWAP_SLO    "p95=400ms"
#define SWAP_SLO_NS INT64_C(400000000)
#define DELAY       "100000" /* us */

static const char job[] = "name: trace\nmodel: {zoo: gpt, " RUI_PROMISE_GPT "}\n"
                          "data: {format: tokens, train: serve-trace.u8}\n"
                          "train: {batch: 1, steps: 1, threads: 1, autotune: false}\n";

typedef struct trace {
    rui_load_at *of; /* [n] */
    uint32_t n;
    const char *run, *repo; /* the model; and with a fixed delay */
    rui_load_kind kinds[SIZES];
} trace;

/* `2023-11-16 18:15:46.6805900,374,44`; seconds of its day. */
static bool line_of(ru_str line, double *at_s, double *tokens)
{
    char text[64];
    int h, m;
    if (line.n >= (int64_t)sizeof text) {
        return false;
    }
    memcpy(text, line.p, (size_t)line.n);
    text[line.n] = '\0';
    if (sscanf(text, "%*d-%*d-%*d %d:%d:%lf,%lf", &h, &m, at_s, tokens) != 4) {
        return false;
    }
    *at_s += 3600.0 * h + 60.0 * m;
    return true;
}

static ru_status read_trace(rui_promise *w, const char *data, trace *t)
{
    ru_arena *a = w->b->arena;
    const char *path = ru_arena_printf(a, "%s/serving/azure_llm_2023_conv.csv", data);
    char *text = NULL;
    int64_t n = 0;
    RU_TRY(path != NULL ? ru_file_read(path, 0, a, &text, &n, w->err)
                        : RU_FAIL(w->err, RU_E_MEM, "no memory for a path"));
    ru_str rest = ru_str_n(text, n), line;
    t->of = RU_NEW(a, rui_load_at, n / 30 + 1); /* a line is longer */
    if (t->of == NULL) {
        return RU_FAIL(w->err, RU_E_MEM, "no memory for a trace");
    }
    double first = 0, at = 0, tokens = 0;
    while (ru_str_next(&rest, '\n', &line)) {
        if (line_of(line, &at, &tokens)) {
            first = t->n == 0 ? at : first;
            double of = fmin(tokens * SIZES / FULL, SIZES - 1);
            t->of[t->n++] = (rui_load_at){at - first, (uint32_t)of};
        }
    }
    return t->n > 0 ? RU_OK : RU_FAIL(w->err, RU_E_DATA, "%s has no requests", path);
}

/* The model in a folder of models whose configuration has a delay. */
static ru_status put_repo(rui_promise *w, trace *t)
{
    static const char config[] = "name: \"serve-trace\"\ndefault_model_filename: \"run\"\n"
                                 "max_batch_size: 8\n"
                                 "dynamic_batching { max_queue_delay_microseconds: " DELAY " }\n";
    ru_arena *a = w->b->arena;
    char *full = realpath(t->run, NULL);
    t->repo = ru_arena_printf(a, "%s/serve-trace-models", w->b->dir);
    const char *version = ru_arena_printf(a, "%s/serve-trace/1", t->repo);
    const char *at = ru_arena_printf(a, "%s/run", version);
    const char *path = ru_arena_printf(a, "%s/serve-trace/config.pbtxt", t->repo);
    ru_status st = full != NULL && version != NULL && at != NULL && path != NULL
                       ? RU_OK
                       : RU_FAIL(w->err, RU_E_MEM, "no memory for a folder of models");
    st = st == RU_OK && ru_path_exists(t->repo) ? ru_path_remove(t->repo, w->err) : st;
    st = st == RU_OK ? ru_dir_make(version, w->err) : st;
    st = st == RU_OK ? ru_file_replace(path, config, sizeof config - 1, w->err) : st;
    if (st == RU_OK && symlink(full, at) != 0) {
        st = RU_FAIL(w->err, RU_E_IO, "cannot link %s to %s", at, full);
    }
    free(full);
    return st;
}

enum { NONE, FIXED, ONE, OURS, SIDES };
static const char *const side_name[SIDES] = {"none", "fixed delay", "one buffer", "by size"};

static ru_status side(rui_promise *w, const trace *t, uint32_t which, double pace, uint64_t seed,
                      rui_promise_page *p, double *late)
{
    const char *const argv[] = {w->rubato,
                                "serve",
                                which == FIXED ? t->repo : t->run,
                                "-l",
                                "0",
                                "--json",
                                "--slo",
                                SLO,
                                "--batch",
                                which == NONE ? "1" : "8",
                                "--sizes",
                                "8",
                                "--buffers",
                                which == OURS ? "16" : "1",
                                "--functions",
                                "local",
                                "--memory",
                                RUI_PROMISE_MB,
                                "--usd-call",
                                "0",
                                NULL};
    rui_promise u = *w;
    double seconds = w->b->quick ? 30 : 10 * fmax(w->seconds, 60 / pace);
    double learn = w->b->quick ? 20 : seconds, from = (learn + seconds) * (double)seed;
    /* without buffers that are tuned there is nothing to learn; the requests are the same */
    u.seconds = which == ONE || which == OURS ? learn : 5;
    const rui_load l = {.kinds = t->kinds,
                        .n_kinds = SIZES,
                        .per_s = 1,
                        .given = t->of,
                        .n_given = t->n,
                        .given_from_s = from + learn - u.seconds,
                        .seconds = seconds,
                        .promise_ns = SLO_NS};
    RU_TRY(rui_promise_side(&u, argv, "route", l, p));
    *late = rui_promise_worst(u.out.of_kind, SIZES);
    return RU_OK;
}

static ru_status at_pace(rui_promise *w, trace t, double pace)
{
    double gb_s[SIDES][RU_BENCH_ROUNDS_MAX], late[SIDES][RU_BENCH_ROUNDS_MAX],
        padding[SIDES][RU_BENCH_ROUNDS_MAX], of[5][RU_BENCH_ROUNDS_MAX];
    bool pads = true; /* one buffer does, where it batches at all */
    char name[96];
    for (uint32_t i = 0; i < t.n; i++) {
        t.of[i].at_s /= pace;
    }
    for (uint32_t k = 0; k < w->rounds; k++) {
        rui_promise_page p = {0};
        for (uint32_t s = 0; s < SIDES; s++) {
            p = (rui_promise_page){0};
            RU_TRY(side(w, &t, s, pace, k, &p, &late[s][k]));
            gb_s[s][k] = 1e3 * p.gb_s / p.requests;
            padding[s][k] = p.padding[1];
        }
        pads = pads && padding[ONE][k] > 0;
        of[0][k] = gb_s[OURS][k] / gb_s[ONE][k];
        of[1][k] = gb_s[OURS][k] / gb_s[NONE][k];
        of[2][k] = rui_promise_padding_off(&p);
        of[3][k] = rui_promise_off(p.gb_s, p.law_gb_s);
        of[4][k] = pads ? padding[OURS][k] / padding[ONE][k] : 0;
    }
    if (!pads) {
        ru_log(RU_LOG_WARN, "bench", "promise",
               "trace %.0fx: one buffer batches nothing, so there is no padding to compare with",
               pace);
    }
    const struct {
        const char *what, *unit;
        double goal;
    } rows[] = {{"billed GB-s of those of one buffer", "", pads ? 0.75 : 0},
                {"billed GB-s of those without batching", "", 0.5},
                {"padding off the predicted", "%", 10},
                {"billed GB-s off the law", "%", 3},
                {"padding of that of one buffer", "", 0.1}};
    for (uint32_t r = 0; r < RU_ARRAY_LEN(rows) - (pads ? 0 : 1); r++) {
        (void)snprintf(name, sizeof name, "trace %.0fx: %s", pace, rows[r].what);
        RU_TRY(rui_promise_add(w, name, rows[r].unit, rows[r].goal, of[r]));
    }
    for (uint32_t s = 0; s < SIDES; s++) {
        (void)snprintf(name, sizeof name, "trace %.0fx, %s: billed GB-s of 1000", pace,
                       side_name[s]);
        RU_TRY(rui_promise_add(w, name, "GB-s", 0, gb_s[s]));
        (void)snprintf(name, sizeof name, "trace %.0fx, %s: late in the worst class", pace,
                       side_name[s]);
        RU_TRY(rui_promise_add(w, name, "%", s == OURS ? 5 : 0, late[s]));
        (void)snprintf(name, sizeof name, "trace %.0fx, %s: padding", pace, side_name[s]);
        RU_TRY(rui_promise_add(w, name, "%", 0, padding[s]));
    }
    return RU_OK;
}

/* Choices that the server has taken so far. */
static ru_status taken(rui_promise *w, const rui_side *s, double *out)
{
    ru_arena *a = w->b->arena;
    const char *url = ru_arena_printf(a, "http://%s/v2/rubato/explain/route", s->address);
    char *text = NULL;
    int64_t n = 0;
    RU_TRY(url != NULL ? ru_http_fetch(&(ru_fetch){.url = url}, a, &text, &n, w->err)
                       : RU_FAIL(w->err, RU_E_MEM, "no memory for an address"));
    const char *at = strstr(text, " times, took ");
    *out = at != NULL ? strtod(at + 13, NULL) : 0;
    return RU_OK;
}

/* Short and long requests by turns, and other rates: each brings another table. */
static ru_status swaps(rui_promise *w, const trace *t)
{
    enum { TURNS = 6 * SWAPS };
    const char *const argv[] = {w->rubato, "serve",    t->run,         "-l",      "0",
                                "--json",  "--slo",    SWAP_SLO,       "--batch", "8",
                                "--sizes", "8",        "--buffers",    "16",      "--functions",
                                "local",   "--memory", RUI_PROMISE_MB, NULL};
    double tables[RU_BENCH_ROUNDS_MAX], lost[RU_BENCH_ROUNDS_MAX], late[RU_BENCH_ROUNDS_MAX];
    for (uint32_t k = 0; k < w->rounds; k++) {
        rui_side s = {0};
        rui_load_kind kinds[SIZES];
        uint64_t asked = 0, answered = 0, missed = 0;
        ru_status st = rui_side_begin(argv, &s, w->err);
        double begun = 0;
        st = st == RU_OK ? taken(w, &s, &begun) : st;
        tables[k] = 0;
        for (uint32_t i = 0; st == RU_OK && i < TURNS && tables[k] < SWAPS; i++) {
            for (uint32_t c = 0; c < SIZES; c++) {
                kinds[c] = t->kinds[c];
                kinds[c].weight = (c < SIZES / 2) == (i % 2 == 0) ? 9 : 1;
            }
            const rui_load l = {.address = s.address,
                                .conns = RUI_PROMISE_CONNS,
                                .kinds = kinds,
                                .n_kinds = SIZES,
                                .per_s = i % 2 == 0 ? 60 : 25,
                                .seconds = i % 2 == 0 ? 5 : 11,
                                .seed = 100 * k + i,
                                .promise_ns = SWAP_SLO_NS};
            st = rui_load_run(&l, &w->out, w->err);
            for (uint32_t c = 0; c < SIZES; c++) {
                missed += w->out.of_kind[c].late;
            }
            asked += w->out.sent;
            answered += w->out.ok;
            st = st == RU_OK ? taken(w, &s, &tables[k]) : st;
            tables[k] -= begun;
        }
        rui_side_stop(&s);
        RU_TRY(st);
        lost[k] = (double)asked - (double)answered;
        late[k] = 100 * (double)missed / fmax((double)asked, 1);
    }
    RU_TRY(ru_bench_add(w->b,
                        &(ru_bench_row){.name = "trace, swaps: tables taken under load",
                                        .goal = SWAPS,
                                        .unit = "",
                                        .ours = ru_bench_stat_of(tables, w->rounds)},
                        w->err));
    RU_TRY(rui_promise_add(w, "trace, swaps: late, or without an answer", "%", 5, late));
    return rui_promise_add(w, "trace, swaps: requests without an answer", "", 0.5, lost);
}

ru_status rui_promise_traces(rui_promise *w)
{
    const char *data = ru_conf_env("RUBATO_DATA");
    static const double paces[] = {1, 10}; /* each of the one before */
    ru_text text[SIZES];
    trace t = {0};
    bool one = ru_bench_wants(w->b, "trace 1x"), ten = ru_bench_wants(w->b, "trace 10x"),
         swapped = ru_bench_wants(w->b, "trace, swaps");
    if (!one && !ten && !swapped) {
        return RU_OK;
    }
    RU_TRY(rui_bench_run_of_tokens(w->b, "trace", job, 17, &t.run, w->err));
    RU_TRY(rui_promise_requests(w, "trace", SIZES, CONTEXT, text, t.kinds));
    RU_TRY(swapped ? swaps(w, &t) : RU_OK);
    if ((one || ten) && data == NULL) {
        ru_log(RU_LOG_WARN, "bench", "promise",
               "the trace is left out: RUBATO_DATA is not set (serving/azure_llm_2023_conv.csv)");
        return RU_OK;
    }
    if (one || ten) {
        RU_TRY(read_trace(w, data, &t));
        RU_TRY(put_repo(w, &t));
        RU_TRY(one ? at_pace(w, t, paces[0]) : RU_OK);
        RU_TRY(ten ? at_pace(w, t, paces[1]) : RU_OK);
    }
    return RU_OK;
}
