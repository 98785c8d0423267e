/* A language model on functions, whose requests differ in size: buffers by size beside one buffer
 * and beside none. A batch reads all weights once, and computes for its padded length. What is
 * chosen costs least, calls included: where a call costs more than what it computes, billed GB-s
 * may be more. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "bench/serve/promise.h"

enum { SIZES = 4, CONTEXT = 16 };
#define SLO    "p95=1s"
#define SLO_NS INT64_C(1000000000)
#define PER_S  20.0

/* Most prompts are short, some fill the context. */
static const double weight[SIZES] = {0.55, 0.25, 0.12, 0.08};

typedef struct side_kind {
    const char *name, *batch, *buffers;
} side_kind;

enum { NONE, ONE, OURS, SIDES };
static const side_kind kinds[SIDES] = {
    {"none", "1", "1"}, {"one buffer", "8", "1"}, {"by size", "8", "16"}};

double rui_promise_padding_off(const rui_promise_page *p)
{
    return 100 * fabs(p->padding[1] - p->padding[0]) / fmax(p->padding[0], 5);
}

ru_status rui_promise_requests(rui_promise *w, const char *name, uint32_t n, int64_t context,
                               ru_text *text, rui_load_kind *out)
{
    for (uint32_t k = 0; k < n; k++) {
        int64_t size = context / n * (k + 1) - context / n / 2;
        ru_text body = ru_text_arena(w->b->arena);
        text[k] = ru_text_arena(w->b->arena);
        ru_text_putf(&body,
                     "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,%lld],\"datatype\":\"INT64\","
                     "\"data\":[",
                     (long long)size);
        for (int64_t i = 0; i < size; i++) {
            ru_text_putf(&body, "%s%lld", i > 0 ? "," : "", (long long)(i * i % 17));
        }
        ru_text_put(&body, "]}]}");
        ru_text_putf(&text[k],
                     "POST /v2/models/serve-%s/infer HTTP/1.1\r\nHost: bench\r\n"
                     "Content-Length: %lld\r\n\r\n",
                     name, (long long)body.n);
        ru_text_put_n(&text[k], body.p, body.n);
        if (text[k].cut) {
            return RU_FAIL(w->err, RU_E_MEM, "no memory for requests");
        }
        out[k] = (rui_load_kind){text[k].p, text[k].n, 1};
    }
    return RU_OK;
}

static ru_status side(rui_promise *w, const char *run, const side_kind *s,
                      const rui_load_kind *requests, uint64_t seed, rui_promise_page *p,
                      double *late)
{
    const char *const argv[] = {
        w->rubato,     "serve",   run,        "-l",           "0", "--json",    "--slo",
        SLO,           "--batch", s->batch,   "--sizes",      "4", "--buffers", s->buffers,
        "--functions", "local",   "--memory", RUI_PROMISE_MB, NULL};
    const rui_load l = {.kinds = requests,
                        .n_kinds = SIZES,
                        .per_s = PER_S,
                        .seconds = 5 * w->seconds,
                        .seed = seed,
                        .promise_ns = SLO_NS};
    rui_promise u = *w;
    u.seconds = 3 * w->seconds;
    RU_TRY(rui_promise_side(&u, argv, "route", l, p));
    *late = rui_promise_worst(u.out.of_kind, SIZES);
    return RU_OK;
}

ru_status rui_promise_sizes(rui_promise *w)
{
    static const char job[] = "name: sizes\nmodel: {zoo: gpt, " RUI_PROMISE_GPT "}\n"
                              "data: {format: tokens, train: serve-sizes.u8}\n"
                              "train: {batch: 1, steps: 1, threads: 1, autotune: false}\n";
    double gb_s[SIDES][RU_BENCH_ROUNDS_MAX], late[SIDES][RU_BENCH_ROUNDS_MAX],
        padding[SIDES][2][RU_BENCH_ROUNDS_MAX], of_none[RU_BENCH_ROUNDS_MAX],
        law[RU_BENCH_ROUNDS_MAX], padding_off[RU_BENCH_ROUNDS_MAX], of_one[RU_BENCH_ROUNDS_MAX],
        usd[SIDES][RU_BENCH_ROUNDS_MAX], usd_none[RU_BENCH_ROUNDS_MAX],
        usd_one[RU_BENCH_ROUNDS_MAX];
    ru_text text[SIZES];
    rui_load_kind requests[SIZES];
    char name[96];
    if (!ru_bench_wants(w->b, "sizes")) {
        return RU_OK;
    }
    const char *run = NULL;
    RU_TRY(rui_bench_run_of_tokens(w->b, "sizes", job, 17, &run, w->err));
    RU_TRY(rui_promise_requests(w, "sizes", SIZES, CONTEXT, text, requests));
    for (uint32_t k = 0; k < SIZES; k++) {
        requests[k].weight = weight[k];
    }
    for (uint32_t k = 0; k < w->rounds; k++) {
        for (uint32_t s = 0; s < SIDES; s++) {
            rui_promise_page p = {0};
            RU_TRY(side(w, run, &kinds[s], requests, 2 * k + 1, &p, &late[s][k]));
            gb_s[s][k] = 1e3 * p.gb_s / p.requests;
            usd[s][k] = p.spent_usd / p.requests;
            law[k] = rui_promise_off(p.spent_usd, p.law_usd); /* ours is the last */
            padding_off[k] = rui_promise_padding_off(&p);
            padding[s][0][k] = p.padding[0];
            padding[s][1][k] = p.padding[1];
        }
        usd_one[k] = usd[OURS][k] / usd[ONE][k];
        usd_none[k] = usd[OURS][k] / usd[NONE][k];
        of_none[k] = gb_s[OURS][k] / gb_s[NONE][k];
        of_one[k] = gb_s[OURS][k] / gb_s[ONE][k];
    }
    RU_TRY(rui_promise_add(w, "sizes: cost of that of one buffer", "", 1, usd_one));
    RU_TRY(rui_promise_add(w, "sizes: cost of that without batching", "", 1, usd_none));
    RU_TRY(rui_promise_add(w, "sizes: billed GB-s of those of one buffer", "", 0.75, of_one));
    RU_TRY(rui_promise_add(w, "sizes: billed GB-s of those without batching", "", 0.5, of_none));
    RU_TRY(rui_promise_add(w, "sizes, by size: cost off the law", "%", 3, law));
    RU_TRY(rui_promise_add(w, "sizes, by size: padding off the predicted", "%", 10, padding_off));
    for (uint32_t s = 0; s < SIDES; s++) {
        (void)snprintf(name, sizeof name, "sizes, %s: billed GB-s of 1000", kinds[s].name);
        RU_TRY(rui_promise_add(w, name, "GB-s", 0, gb_s[s]));
        (void)snprintf(name, sizeof name, "sizes, %s: late in the worst class", kinds[s].name);
        RU_TRY(rui_promise_add(w, name, "%", s == OURS ? 5 : 0, late[s]));
        (void)snprintf(name, sizeof name, "sizes, %s: padding", kinds[s].name);
        RU_TRY(rui_promise_add(w, name, "%", 0, padding[s][1]));
        (void)snprintf(name, sizeof name, "sizes, %s: padding predicted", kinds[s].name);
        RU_TRY(rui_promise_add(w, name, "%", 0, padding[s][0]));
    }
    return RU_OK;
}
