/* What the parts of the benchmark `promise` share: servers on functions and their pages.
 *
 * Thread: main only. */
#ifndef RU_BENCH_SERVE_PROMISE_H
#define RU_BENCH_SERVE_PROMISE_H

#include "bench/serve/bench_serve.h"

enum { RUI_PROMISE_CONNS = 256 };

/* Of the language models: a call reads 50 MB of weights, so that a request alone takes some ms
 * (calls are billed in whole ones), and computes for its tokens, padded. A whole core, so that a
 * call does not stand still at the end of its part of a period, as only long ones would. */
#define RUI_PROMISE_GPT "layers: 4, heads: 8, width: 512, context: 16, vocab: 17"
#define RUI_PROMISE_MB  "1792"

typedef struct rui_promise {
    ru_bench *b;
    const char *rubato, *path;
    ru_text request;
    double seconds;
    uint32_t rounds;
    ru_err *err;
    rui_load_out out; /* of the last load */
} rui_promise;

/* The page of choices; pairs are predicted, measured. */
typedef struct rui_promise_page {
    double p_s[2], usd[2], batch[2], padding[2];
    double spent_usd, gb_s, requests;
    double law_usd, law_gb_s; /* the same by the laws that were in force when answers came */
} rui_promise_page;

/* A row of the values of all rounds, the lower the better. */
RU_MUST_USE ru_status rui_promise_add(rui_promise *w, const char *name, const char *unit,
                                      double goal, double *values);
/* Late or without an answer, in percent of those that were sent; none was sent: all. */
double rui_promise_late(const rui_load_count *c);
/* The same of the worst class of [n]. Classes with few requests count together with the next larger
 * ones: of twenty requests one is 5 %. */
double rui_promise_worst(const rui_load_count *of, uint32_t n);
/* How far off what was predicted, either way, in percent; nothing was predicted: 100. */
double rui_promise_off(double measured, double predicted);
/* The same of padding, in percent; of less than 5 % every batch is a good part, so it is taken
 * as 5. */
double rui_promise_padding_off(const rui_promise_page *p);
/* `what`: batch or route. Errors: RU_E_PEER. */
RU_MUST_USE ru_status rui_promise_read(rui_promise *w, const rui_side *s, const char *what,
                                       rui_promise_page *p);
/* A server of functions: it learns what `l` asks for, for w->seconds, and is measured while it asks
 * for that again. The page has spent, law and requests of the second time. */
RU_MUST_USE ru_status rui_promise_side(rui_promise *w, const char *const *argv, const char *what,
                                       rui_load l, rui_promise_page *p);
/* Waits for its end: it removes the groups of its instances. */
void rui_side_stop(rui_side *s);
/* The machines of the server and of its functions in virtual time beside a real run. */
RU_MUST_USE ru_status rui_promise_simulate(rui_promise *w, double per_s);
/* Requests that differ in size: buffers by size beside one buffer and none. */
RU_MUST_USE ru_status rui_promise_sizes(rui_promise *w);
/* The conversations of a published trace at its own pace and ten times as fast: buffers by size
 * beside one buffer, none, and one with a fixed delay; tables of routes that are swapped under
 * load. */
RU_MUST_USE ru_status rui_promise_traces(rui_promise *w);
/* Requests for the model `serve-NAME`, of sizes in the middle of each of `n` classes of `context`
 * tokens; text [n] keeps them. */
RU_MUST_USE ru_status rui_promise_requests(rui_promise *w, const char *name, uint32_t n,
                                           int64_t context, ru_text *text, rui_load_kind *out);
/* A training on the core of a server, beside what else one could do. */
RU_MUST_USE ru_status rui_promise_beside(rui_promise *w);

#endif
