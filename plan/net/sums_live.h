/* A plan of sums in a job that runs: the table of its sums, and when to plan again.
 *
 *   facts --ru_sums_policy_in_of--> input --policy `sums`--> plan --ru_sums_table--> parts
 *   step times and costs --ru_sums_watch--> plan again, and why
 *
 * The id of the plan is that of the policy's input (ru_policy_head): equal facts give it on every
 * machine.
 *
 * Source: caramel-2020; priorities by next use after p3-2019. Thread: any, pure. */
#ifndef RU_PLAN_SUMS_LIVE_H
#define RU_PLAN_SUMS_LIVE_H

#include "plan/net/sums_policy.h"

/* A sum of whole gradients that become ready one after another. */
typedef struct ru_sums_part {
    uint32_t first, n; /* in the order in which they become ready */
    int64_t size_bytes;
    int64_t chunk_bytes;  /* it moves in pieces of this */
    uint32_t depth;       /* of them in flight */
    uint32_t only;        /* 1 + the ru_coll_algo that sums it; 0: to be chosen */
    uint32_t rank;        /* the smaller, the sooner its parameters are read again */
    int64_t predicted_ns; /* alone on the network, from the moment when all have begun */
} ru_sums_part;

/* Gradients whose parameter no step reads (losses, statistics) are parts of their own and have the
 * smallest rank: reports wait for them. `grads` [n_tensors] as in the facts, from which the plan's
 * input was made. Owner: *parts lives in `out`. Errors: RU_E_ARG when the plan is not of these
 * gradients, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_sums_table(const ru_sums_in *in, const ru_sums_plan *plan,
                                    const ru_sums_grad *grads, uint32_t n_grads, ru_arena *out,
                                    ru_sums_part **parts, uint32_t *n_parts, ru_err *err);

/* Parts before anything is measured: of a list that computes as long as it sends by an assumed
 * network of two ranks, so that all members have the same, and of no algorithm. CARAMEL: RULE. */
RU_MUST_USE ru_status ru_sums_first(const int64_t *size_bytes, uint32_t n, ru_sums_method method,
                                    ru_arena *out, ru_sums_part **parts, uint32_t *n_parts,
                                    ru_err *err);

/* What is summed as a whole: gradients [first, first + n), or of a large one a cut: size_bytes at
 * offset_bytes of gradient `first` (n 1). */
typedef struct ru_sums_cut {
    uint32_t first, n;
    int64_t offset_bytes, size_bytes;
    uint32_t only; /* as of its part */
} ru_sums_cut;

/* Parts in their pieces, so that the update of the first need not wait for the last: neighbours up
 * to the size of a piece, larger gradients in cuts of it. Larger pieces where there were over
 * cuts_max more than parts. Whole elements of 4 bytes; size_bytes of each gradient. Owner: *cuts
 * lives in `out`. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_sums_cuts(const ru_sums_part *parts, uint32_t n_parts,
                                   const int64_t *size_bytes, uint32_t cuts_max, ru_arena *out,
                                   ru_sums_cut **cuts, uint32_t *n, ru_err *err);

/* What a plan rests on. */
typedef struct ru_sums_costs {
    double compute_ns;                  /* of the list */
    double alpha_ns, beta_ns, gamma_ns; /* of sums */
} ru_sums_costs;

/* Those of an input. */
ru_sums_costs ru_sums_costs_of(const ru_sums_in *in);

typedef enum ru_sums_again {
    RU_SUMS_STANDS,
    RU_SUMS_LONGER,  /* more than half of the last steps took longer by over RU_SUMS_STEP_OFF */
    RU_SUMS_SHORTER, /* or less by so much */
    RU_SUMS_COMPUTE, /* this cost moved by more than RU_SUMS_COST_OFF */
    RU_SUMS_ALPHA,
    RU_SUMS_BETA,
    RU_SUMS_GAMMA,
} ru_sums_again;

enum { RU_SUMS_WATCHED = 50 }; /* steps, at most 64 */
#define RU_SUMS_STEP_OFF 0.1
#define RU_SUMS_COST_OFF 0.2

typedef struct ru_sums_watch {
    ru_sums_costs costs;
    double predicted_ns;
    uint64_t longer, shorter; /* a bit for each of the last steps */
    uint32_t n;               /* steps so far, at most RU_SUMS_WATCHED */
} ru_sums_watch;

/* From now on a step is to take predicted_ns. When planning again gave the same table, that is what
 * steps took: an error of the model alone must not begin a view every 50 steps. */
ru_sums_watch ru_sums_watch_of(double predicted_ns, const ru_sums_costs *costs);
/* A step took so long. Only RU_SUMS_STANDS, RU_SUMS_LONGER, RU_SUMS_SHORTER. */
ru_sums_again ru_sums_watch_step(ru_sums_watch *w, double took_ns);
/* Costs as they are measured now. */
ru_sums_again ru_sums_watch_costs(const ru_sums_watch *w, const ru_sums_costs *now);
/* How much longer a byte takes than when collectives were measured, before the first step of a
 * view. Sums of one table overlap alike in each step, so what they take together follows the
 * network: the first steps of a view stand for what was measured. That is what the last steps took
 * as soon as that is known, unless it has moved by RU_SUMS_COST_OFF since the first three; of those
 * the median, since the very first one is slower than others. Zero: nothing is known. */
enum { RU_SUMS_FIRST = 3 };
typedef struct ru_sums_net {
    double first[RU_SUMS_FIRST]; /* [n] of steps of the view, rising */
    uint32_t n;
    double at_first, now; /* 0: not known yet */
    double before;        /* how much longer when the view began; 0: no longer */
} ru_sums_net;

/* A view begins; `anew`: collectives were measured again before it. */
void ru_sums_net_view(ru_sums_net *s, bool anew);
/* Times of a step's sums over those of each alone: of the last step, over the last ones; 0: not
 * known. */
void ru_sums_net_step(ru_sums_net *s, double step_off, double last_off);
double ru_sums_net_slower(const ru_sums_net *s);

/* For people: "steps take longer than predicted". */
const char *ru_sums_again_text(ru_sums_again why);

#endif
