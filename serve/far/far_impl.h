/* Inside of serve/far/.
 *
 * Thread: loop only, but rui_far_choose: it reads `facts`, `now` and what the probes said, and
 * writes `found`, while `choosing`. */
#ifndef RU_SERVE_FAR_FAR_IMPL_H
#define RU_SERVE_FAR_FAR_IMPL_H

#include "base/hist.h"
#include "function/host.h"
#include "plan/serve/batch.h"
#include "serve/far/far.h"

enum {
    RUI_FAR_MEMORIES = 16,
    RUI_FAR_SIZES = 7, /* of batches: 1, 2, 4, ... 64 rows */
    RUI_FAR_ROUNDS = 5,
    RUI_FAR_CAME = 4096,
};

/* A choice and what the law says of it. */
typedef struct rui_far_choice {
    ru_batch_choice at;
    double latency_s, usd, mean_batch, instances;
} rui_far_choice;

/* What the loader's thread found. */
typedef struct rui_far_found {
    rui_far_choice next, kept, alone; /* planned; `now` under the new arrivals; no batching */
} rui_far_found;

/* What the meter said at one moment. */
typedef struct rui_far_mark {
    ru_time at;
    ru_function_meter meter;
} rui_far_mark;

typedef struct rui_far_probe {
    uint32_t memory, size, round; /* what is asked */
    int64_t ns[RUI_FAR_ROUNDS];
} rui_far_probe;

/* What a choice is made of. */
typedef struct rui_far_facts {
    double gap_s[RUI_FAR_CAME]; /* [n] between requests */
    uint32_t n;
    double rate, scv; /* of the gaps; a second */
    double slow, cold_s;
} rui_far_facts;

struct rui_far {
    rui_version *v;
    const ru_server_functions *opt;
    ru_function_host *host;
    uint32_t n_memory, n_sizes;
    double memory_mb[RUI_FAR_MEMORIES];
    int64_t service_ns[RUI_FAR_MEMORIES][RUI_FAR_SIZES]; /* measured */
    rui_far_probe probe;
    char why[RU_ERR_TEXT_MAX]; /* the last probe that failed */
    double slow;               /* what batches take now, of what the probes said */
    rui_job *done, **last;     /* batches that are done, by `next` */
    uint32_t *open;            /* [v->instances] calls of the job of each */
    ru_time came[RUI_FAR_CAME];
    uint64_t n_came, from; /* `from`: the first of the rate in force */
    double mean_s, sd_s;   /* of the gaps that the choice in force knows; 0: none */
    double rises, falls;   /* CUSUM */
    uint64_t rises_from, falls_from;
    bool choosing;
    uint64_t chosen_n; /* gaps that the last choice knew, */
    ru_time chosen_at; /* and when it was */
    uint32_t choices, installed, refused;
    rui_far_choice now, alone; /* in force; no batching */
    rui_far_found found;       /* while `choosing`: the loader's thread writes it */
    rui_far_facts facts;       /* of the last choice */
    char refusal[RU_ERR_TEXT_MAX];
    rui_far_mark ready, since; /* the probes are over; `now` is in force */
    ru_hist took;              /* answers since then */
    uint64_t late;             /* of them */
    uint64_t answers;          /* since `ready` */
    ru_arena plan_arena;
};

/* far.c */
/* Seconds of k rows with memory m, as the probes said. */
double rui_far_service_s(const rui_far *f, uint32_t memory, uint32_t k);
/* choose.c: the probes are over. Errors: RU_E_INFEASIBLE with the best that there is. */
RU_MUST_USE ru_status rui_far_begin(rui_far *f, ru_time now, ru_err *err);

#endif
