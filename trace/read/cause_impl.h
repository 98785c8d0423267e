/* Inside of the causes: the tables and the cut of a series, shared by cause.c (time of ranks) and
 * cause_transfer.c (rates of transfers).
 *
 * Thread: any. */
#ifndef RU_TRACE_CAUSE_IMPL_H
#define RU_TRACE_CAUSE_IMPL_H

#include "trace/read/cause.h"

enum { RUI_SIDE_MIN = 5 /* steps on each side of a cut */ };
/* Transfers that are slower than the ops of their rank by at most so much are so because of it. */
#define RUI_SLOW_ALSO 1.5

typedef struct rui_causes {
    const ru_trace *traces;
    const ru_rank_steps *steps;
    const ru_trace_clocks *clocks;
    uint32_t n;
    int64_t first, n_steps;
    ru_arena *arena;
    ru_cause *causes;
    uint32_t n_causes;
    ru_cause *slow;  /* [n] ops that take longer than the others'; factor 0: they do not */
    bool *paused;    /* [n] its process was stopped and continued */
    double *scratch; /* [max(n, n_steps)] */
    double *series;  /* [n_steps] */
} rui_causes;

/* Of v [n], which it sorts; NAN: n is 0. */
double rui_median(double *v, int64_t n);
/* Where the series changed: index of the first figure after it, 0 when it did not. *level: mean
 * since then; *jump: less the mean before. Figures that are not finite are not known. */
int64_t rui_cut(const double *v, int64_t n, double *level, double *jump);
/* May two causes that were found from steps `a` and `b` on be one? 0: from the start on. */
bool rui_same_time(const rui_causes *w, int64_t a, int64_t b);
/* Keep a cause that is dear enough. */
void rui_cause_name(rui_causes *w, ru_cause c);
/* What the steps from `since` on lost: `part` of rank k (RU_STEP_NOBODY: all) over their wall time.
 */
double rui_part_of(const rui_causes *w, uint32_t k, ru_step_part part, int64_t since);
/* Ranks whose process stands still again and again. */
RU_MUST_USE ru_status rui_cause_pauses(rui_causes *w, ru_err *err);
/* Slow senders, receivers and links. */
RU_MUST_USE ru_status rui_cause_transfers(rui_causes *w, ru_err *err);

#endif
