/* Inside of serve/far/.
 *
 * Thread: loop only, but rui_far_choose: it reads `facts`, `now` and what the probes said, and
 * writes `found`, while `choosing`. */
#ifndef RU_SERVE_FAR_FAR_IMPL_H
#define RU_SERVE_FAR_FAR_IMPL_H

#include "base/hist.h"
#include "base/json.h"
#include "function/host.h"
#include "plan/serve/batch.h"
#include "plan/serve/route.h"
#include "serve/far/far.h"

enum {
    RUI_FAR_MEMORIES = 16,
    RUI_FAR_SIZES = 7, /* of batches: 1, 2, 4, ... 64 rows */
    RUI_FAR_ROUNDS = 5,
    RUI_FAR_CAME = 4096,
    RUI_FAR_CLASSES = 16, /* of sizes of requests */
};
#define RUI_FAR_MARGIN     0.05 /* of the promise that a choice leaves */
#define RUI_FAR_MARGIN_MAX 0.4
#define RUI_FAR_STEPS      20               /* timeouts that are looked at */
#define RUI_FAR_BILLING_NS INT64_C(1000000) /* times are whole ones of it, as they are billed */
#define RUI_FAR_NEVER_S    1e6              /* a memory that a batch does not fit into */

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
    uint32_t memory, class_of, size, round; /* what is asked */
    int64_t ns[RUI_FAR_ROUNDS];
} rui_far_probe;

/* What a choice is made of. */
typedef struct rui_far_facts {
    double gap_s[RUI_FAR_CAME]; /* [n] between requests */
    uint32_t n;
    double rate, scv;                                               /* of the gaps; a second */
    double times[RUI_FAR_CLASSES][RUI_FAR_MEMORIES][RUI_FAR_SIZES]; /* as rui_far_now_s */
    double cold_s;  /* of a call: chance times time of a cold start, which is not billed */
    double delay_s; /* that, and by how much calls differ: a choice leaves so much time */
} rui_far_facts;

/* What calls of one class, memory and size took, of what the probes said. */
typedef struct rui_far_cell {
    double times, n; /* their mean; how many it is of, when */
    uint64_t at;     /* the last one came, of all calls */
} rui_far_cell;

/* What batches take now. */
typedef struct rui_far_live {
    double ran_s, said_s; /* all calls lately, and as the probes said */
    rui_far_cell cell[RUI_FAR_CLASSES][RUI_FAR_MEMORIES][RUI_FAR_SIZES];
    uint64_t n;                        /* calls */
    double since_ran_s, since_known_s; /* since the choice, and as it knows */
    uint32_t since_n;
    double spread;     /* mean square by which calls are off what was expected */
    double waited_s;   /* for instances that start, behind the first answers of a choice, */
    uint64_t waited_n; /* and calls since then */
    bool strays;       /* they are off each other */
} rui_far_live;

/* Buffers by size, and which takes the requests of a class. */
typedef struct rui_far_routes {
    uint32_t n;
    ru_batch_choice at[RUI_FAR_CLASSES];             /* [n] */
    double route[RUI_FAR_CLASSES * RUI_FAR_CLASSES]; /* [n, classes] of the requests of a class */
    double latency_s[RUI_FAR_CLASSES], padding;      /* by the law: the quantile of each class */
} rui_far_routes;

/* Of a model whose requests differ in size. */
typedef struct rui_far_size {
    uint32_t n; /* classes */
    int64_t most;
    double bound[RUI_FAR_CLASSES];  /* [n] of a class */
    uint8_t class_of[RUI_FAR_CAME]; /* of the last requests, beside `came` */
    uint32_t block[RUI_FAR_CLASSES], n_block;
    double share[RUI_FAR_CLASSES];  /* that the last choice knows */
    rui_far_routes now, next, kept; /* in force; planned; `now` under the new arrivals */
    ru_hist took[RUI_FAR_CLASSES];  /* answers since `now` */
    uint64_t late[RUI_FAR_CLASSES]; /* of them */
    double asked, own, padded; /* sizes of batches since `now`: as asked, of classes, of calls */
} rui_far_size;

/* Answers, and what they cost by the laws that were in force when they came. */
typedef struct rui_far_answers {
    uint64_t n;
    double law_usd, law_gb_s;
} rui_far_answers;

struct rui_far {
    rui_version *v;
    const ru_server_functions *opt;
    ru_function_host *host;
    uint32_t n_memory, n_sizes;
    double memory_mb[RUI_FAR_MEMORIES];
    int64_t service_ns[RUI_FAR_CLASSES][RUI_FAR_MEMORIES][RUI_FAR_SIZES]; /* measured */
    rui_far_size *size; /* NULL: requests have one size, class 0 */
    rui_far_probe probe;
    char why[RU_ERR_TEXT_MAX]; /* the last probe that failed */
    rui_far_live live;
    rui_job *done, **last; /* batches that are done, by `next` */
    uint32_t *open;        /* [v->instances] calls of the job of each */
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
    rui_far_answers all;       /* since `ready` */
    ru_arena plan_arena;
};

/* far.c */
uint32_t rui_far_memory(const rui_far *f, double memory_mb); /* its number */
/* Seconds of k rows of a class with memory m, as the probes said. */
double rui_far_service_s(const rui_far *f, uint32_t class_of, uint32_t memory, uint32_t k);
uint32_t rui_far_rows(const rui_far *f, uint32_t k); /* of a call of k rows: its number */

/* live.c: a call took so long. */
void rui_far_ran(rui_far *f, uint32_t class_of, uint32_t memory, uint32_t k, double s);
double rui_far_slow(const rui_far *f); /* all calls, of what the probes said */
/* As rui_far_service_s: what it takes now, and what a choice knows. */
double rui_far_now_s(const rui_far *f, uint32_t class_of, uint32_t memory, uint32_t k);
double rui_far_known_s(const rui_far *f, uint32_t class_of, uint32_t memory, uint32_t k);
void rui_far_waited(rui_far *f, double s); /* a call did, for an instance that starts */
void rui_far_live_fit(rui_far *f);         /* what a choice is to know */

/* choose.c: the probes are over. Errors: RU_E_INFEASIBLE with the best that there is. */
RU_MUST_USE ru_status rui_far_begin(rui_far *f, ru_time now, ru_err *err);
double rui_far_slo_s(const rui_far *f);
/* Batch and delay that the model's owner has chosen, whoever comes: of its rows as many as are
 * computed in the time of the promise, since others would be refused. */
void rui_far_by_hand(const rui_far *f, uint32_t rows, rui_far_choice *c);
double rui_far_call_usd(const rui_far *f, double memory_mb, double s);
uint32_t rui_far_batch_most(const rui_far *f);
/* Does every batch find an instance free, as the law assumes? */
bool rui_far_finds_room(const rui_far *f, const rui_far_choice *c);
/* What every question has, and the policy's checked plan of one, which lives in plan_arena. */
void rui_far_put_gaps(const rui_far *f, double times, ru_json *j);
void rui_far_put_prices(const rui_far *f, ru_json *j);
RU_MUST_USE ru_status rui_far_plan(rui_far *f, const char *policy, const ru_text *question,
                                   void *plan, ru_err *err);

/* size.c: where requests differ in size */
RU_MUST_USE ru_status rui_size_open(rui_far *f, ru_err *err);
uint32_t rui_size_class(const rui_far *f, int64_t size);
double rui_size_bound(const rui_far *f, uint32_t class_of); /* 0: there are no sizes */
/* One comes; true: so many of the last ones are of other sizes that a choice is due. */
bool rui_size_came(rui_far *f, uint32_t class_of);
void rui_size_fit(rui_far *f); /* shares of classes, since `from` */
/* All sizes in one buffer. */
void rui_size_begin(rui_far *f, const ru_batch_choice *at);
void rui_size_install(rui_far *f); /* `next` */
void rui_size_explain(const rui_far *f, const ru_tell *o);
/* size_law.c: as rui_far_choose */
RU_MUST_USE ru_status rui_size_choose(rui_far *f, ru_err *err);

#endif
