/* A run as its files tell it while it goes on: the view of `rubato top` and figures for Prometheus.
 *
 * Reads metrics.jsonl, federation.jsonl, follow.jsonl, functions.jsonl and plans/measured.jsonl of
 * it from where the last look ended, and the ends of the traces of all ranks. It writes nothing and
 * shares nothing with the job, so that looking cannot slow a step but by the time of its own core.
 *
 * Thread: one at a time. */
#ifndef RU_WATCH_RUN_H
#define RU_WATCH_RUN_H

#include "base/hist.h"
#include "run/report.h"
#include "watch/top.h"

enum { RU_WATCH_EVENTS = 24, RU_WATCH_EVENT_BYTES = 32, RU_WATCH_FIGURES = 32 };

/* The newest plan of a policy that has this figure measured. */
typedef struct ru_watch_figure {
    char policy[RU_WATCH_EVENT_BYTES], name[RU_WATCH_EVENT_BYTES];
    double predicted, measured; /* predicted NAN: the plan does not tell it */
} ru_watch_figure;

/* Figures since the job began, or, where said, since the watch was opened. */
typedef struct ru_watch_totals {
    int64_t steps, samples, epoch;
    double loss, lr, accuracy, norm; /* of the last step; NAN: not told */
    double noise;                    /* gradient noise scale, samples; NAN: not measured */
    double samples_per_s;
    ru_top_round round; /* of clients, the last one */
    ru_top_follow follow;
    ru_top_functions functions;
    int64_t workers, batch_samples, parameters;
    ru_hist step_ns;        /* since the watch was opened */
    int64_t lost, repeated; /* samples; known at the end of the job */
    struct {
        char name[RU_WATCH_EVENT_BYTES];
        int64_t count; /* since the watch was opened */
    } event[RU_WATCH_EVENTS];
    uint32_t n_events;
    struct {
        char name[RU_WATCH_EVENT_BYTES];
        double value;
    } metric[RU_METRICS_MAX]; /* of the last evaluation */
    uint32_t n_metrics;
    ru_watch_figure figure[RU_WATCH_FIGURES];
    uint32_t n_figures;
    char ended[16]; /* "": it runs */
} ru_watch_totals;

typedef struct ru_watch ru_watch;

/* `run`: folder of a run, kept by the caller; its files may come later. Errors: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_watch_open(const char *run, ru_arena *arena, ru_watch **out, ru_err *err);
/* What is there now; the view is in `arena`. Errors: those of the files. */
RU_MUST_USE ru_status ru_watch_look(ru_watch *w, ru_arena *arena, ru_top *view, ru_err *err);
const ru_watch_totals *ru_watch_totals_get(const ru_watch *w);

/* Text of Prometheus' format 0.0.4. At most RU_WATCH_RANKS ranks have figures of their own. */
enum { RU_WATCH_RANKS = 128 };
void ru_watch_prometheus(const ru_watch_totals *t, const ru_top *view, ru_text *out);

/* The view as one line of JSON (rubato.top/1), and back. Errors: RU_E_DATA. */
RU_MUST_USE ru_status ru_top_json(const ru_top *t, ru_text *out, ru_err *err);
RU_MUST_USE ru_status ru_top_read(const char *text, int64_t n, ru_arena *arena, ru_top *out,
                                  ru_err *err);

#endif
