/* Why a run is slower than it could be, in words: which rank, what kind, since when, what it costs.
 *
 * Every figure of a rank is compared with the median of the other ranks in the same step, so what
 * is slow for all is no rank's fault; a figure of the whole run is compared with the run before.
 * A cause is named only when it costs at least five hundredths of the time.
 *
 *   compute   its ops take longer than the others' (processor quota, another job, heat)
 *   input     it waits for its reader
 *   sender    its transfers go out slowly, whoever receives them
 *   link      its transfers go out and come in slowly
 *   receiver  transfers to it are slow, whoever sends them
 *   path      its transfers to one rank are slow, and no others tell which of the two ends it is
 *   network   sums take longer than before, on all ranks, and ops do not
 *   machine   sums and ops take longer than before, on all ranks
 *   pause     its process stands still again and again, all threads at once
 *   start     it began later than the others that ran then, in its first recording
 *
 * Source: ours; the cut of a series in two is the likelihood ratio of page-1955.
 * Thread: any; results are plain data in the caller's arena. */
#ifndef RU_TRACE_CAUSE_H
#define RU_TRACE_CAUSE_H

#include "base/str.h"
#include "trace/read/steps.h"

typedef enum ru_cause_kind {
    RU_CAUSE_COMPUTE,
    RU_CAUSE_INPUT,
    RU_CAUSE_SENDER,
    RU_CAUSE_LINK,
    RU_CAUSE_RECEIVER,
    RU_CAUSE_NETWORK,
    RU_CAUSE_MACHINE,
    RU_CAUSE_START,
    RU_CAUSE_PAUSE,
    RU_CAUSE_PATH,
} ru_cause_kind;

typedef struct ru_cause {
    ru_cause_kind kind;
    uint32_t trace;     /* index of the rank's trace; RU_STEP_NOBODY: all ranks */
    int64_t since_step; /* 0: from the start on */
    double factor;      /* it takes so many times as long as the others, or as before; START: s;
                           PAUSE: s of a pause */
    double cost;        /* part of the time of the steps since then; START: of the run */
    bool before;        /* COMPUTE: against the run before, since there is no other rank */
    uint32_t peer;      /* PATH: index + 1 of the trace that `trace` sends to; else 0 */
} ru_cause;

enum { RU_CAUSES_MAX = 64 };

/* Dearest first. Shape: steps [n] of ru_trace_steps. Errors: RU_E_LIMIT when `arena` is full. */
RU_MUST_USE ru_status ru_trace_causes(const ru_trace *traces, const ru_rank_steps *steps,
                                      uint32_t n, const ru_trace_clocks *clocks, ru_arena *arena,
                                      ru_cause *causes, uint32_t *n_causes, ru_err *err);

const char *ru_cause_kind_name(ru_cause_kind kind); /* as above: "compute", "input", ... */

/* One sentence. */
void ru_cause_print(const ru_cause *c, const ru_trace *traces, ru_text *into);

#endif
