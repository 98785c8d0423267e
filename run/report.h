/* Reports of a training run: JSON Lines for programs, one live line for people, a log.
 *
 * Every JSON line goes to OUT/metrics.jsonl and, with --json, to stdout; the schemas are those of
 * docs/train.md. People see a line on stderr that is redrawn at most ten times a second on a
 * terminal, else one line every 30 s or 5 % of the way, and evaluations as lines that stay.
 *
 * Thread: any; a NULL report is valid in every call and writes nothing (a worker that does not
 * lead). After ru_run_report_open nothing is allocated. */
#ifndef RU_RUN_REPORT_H
#define RU_RUN_REPORT_H

#include "base/arena.h"
#include "env/clock.h"

typedef struct ru_run_report ru_run_report;

typedef struct ru_run_report_options {
    const char *run;    /* id of the run */
    const char *dir;    /* run directory; NULL: nothing is written to files */
    bool json;          /* JSON Lines on stdout */
    bool quiet;         /* nothing for people */
    bool append;        /* a resumed run continues the old files: */
    int64_t after_step; /* lines of later steps are removed, because the run repeats these steps */
    ru_time begun;      /* of the job, for its speed; 0: now */
    int64_t step_first; /* steps done then */
    uint32_t columns;   /* of the terminal on stderr; 0: not a terminal */
    int64_t steps, epochs; /* whole run; 0: open */
    int64_t samples_epoch; /* of one epoch */
    const char *objective; /* name of what a step reports as its loss; NULL: "loss" */
    bool exact;            /* people see loss and accuracy of each step, not smoothed ones */
    bool messages;         /* frames for a launcher on stdout (run/message.h), no JSON */
    bool progress;         /* ... with the progress, which the launcher draws on a terminal */
} ru_run_report_options;

typedef struct ru_run_report_step {
    int64_t step;    /* done so far, from 1 */
    int64_t epoch;   /* the one of this step, from 1 */
    int64_t samples; /* done so far */
    double loss, lr;
    double accuracy; /* of this step's batch; < 0: none */
    double norm;     /* gradient norm before clipping; < 0: none */
    double noise;    /* gradient noise scale in samples; 0: not measured */
    int64_t step_ns;
    int64_t compute_ns; /* of it, in which this process computed; 0: not known */
    int64_t batch;
} ru_run_report_step;

/* Called once when the run's folder is there, before the first step; an error ends the job. `out`:
 * kept until the run ends. */
typedef struct ru_run_opened {
    ru_status (*fn)(void *self, const char *out, ru_err *err);
    void *self;
} ru_run_opened;

enum { RU_METRICS_MAX = 12 };

/* Named figures of an evaluation: accuracy, loss, perplexity, mse, and those of train.metrics. */
typedef struct ru_metric {
    const char *name;
    double value;
} ru_metric;

typedef struct ru_metrics {
    ru_metric at[RU_METRICS_MAX];
    uint32_t n;
} ru_metrics;

/* Value of a metric; NAN when it is not there. */
double ru_metrics_get(const ru_metrics *m, const char *name);

typedef struct ru_run_report_split {
    int64_t compute_ns, network_ns, input_ns, wait_ns, other_ns;
} ru_run_report_split;

typedef struct ru_run_report_summary {
    int64_t steps, epochs, samples, wall_ns;
    int64_t samples_lost, samples_repeated; /* gaps and overlaps of the positions the stream gave */
    int64_t samples_damaged; /* of the training data, that this process left out; each once */
    double samples_per_s, loss;
    ru_metrics metrics; /* of the last evaluation; n 0: none */
    ru_run_report_split split;
    int64_t rss_peak_bytes;
    const char *ended; /* "done", "target", "stopped" */
} ru_run_report_summary;

typedef struct ru_run_report_start {
    const char *name, *model, *device, *precision;
    int64_t parameters, batch, train_samples, test_samples, threads, arena_bytes, arena_bound_bytes,
        state_bytes, flops_step, open_ns, resumed_step;
    int64_t batch_max, local_max; /* train.adapt; 0: none */
    int64_t servers;              /* that add for others */
} ru_run_report_start;

/* What an event may tell; texts NULL, seconds NAN, samples below 0: not told. */
typedef struct ru_run_report_details {
    double pause_s;
    const char *changed; /* settings */
    const char *tier;
    int64_t samples;
    double after_s, waited_s;
    const char *shares;
    double predicted_compute_s;
} ru_run_report_details;

ru_run_report_details ru_run_report_details_none(void);

/* Errors: those of ru_log_file_open. The report lives in `arena`. */
RU_MUST_USE ru_status ru_run_report_open(const ru_run_report_options *opt, ru_arena *arena,
                                         ru_run_report **out, ru_err *err);
void ru_run_report_close(ru_run_report *r); /* NULL is fine */

/* Another worker leads now and continues the files: write no more lines for programs. */
void ru_run_report_mute(ru_run_report *r);
/* Lead again, in the files as they are now. Errors: those of ru_run_report_open. */
RU_MUST_USE ru_status ru_run_report_unmute(ru_run_report *r, int64_t after_step, ru_err *err);
int64_t ru_run_report_told(ru_run_report *r); /* the last step in the metrics file; 0: none */
bool ru_run_report_goes_on(ru_run_report *r); /* the file holds what an earlier process told */
int64_t
ru_run_report_evaluated(ru_run_report *r); /* NULL, or none: 0; the step of the last evaluation */

/* Errors of all below: RU_E_IO, RU_E_CREATE when a line cannot be written (full disk). */
RU_MUST_USE ru_status ru_run_report_begin(ru_run_report *r, const ru_run_report_start *s,
                                          ru_err *err);
/* A step that was reported before is not reported again. */
RU_MUST_USE ru_status ru_run_report_step_put(ru_run_report *r, const ru_run_report_step *s,
                                             ru_err *err);
/* The same for people only: the moving line, or a line now and then. */
void ru_run_report_progress(ru_run_report *r, const ru_run_report_step *s);
/* An evaluation that was reported before is not reported again. */
RU_MUST_USE ru_status ru_run_report_eval(ru_run_report *r, int64_t step, int64_t epoch,
                                         const ru_metrics *m, int64_t eval_ns, ru_err *err);
/* Worker processes that compute, and of all `members` those that vote; shown from now on. 1 each at
 * first. */
void ru_run_report_workers_set(ru_run_report *r, uint32_t workers, uint32_t members,
                               uint32_t voters);
/* `what`: checkpoint, restore, stop, ...; `worker`: the one it is about (1, 2, ...; 0: all);
 * `more`: NULL: nothing. */
RU_MUST_USE ru_status ru_run_report_event(ru_run_report *r, int64_t step, const char *what,
                                          uint32_t worker, const ru_run_report_details *more,
                                          ru_err *err);
RU_MUST_USE ru_status ru_run_report_end(ru_run_report *r, const ru_run_report_summary *s,
                                        ru_err *err);
/* A permanent line for people, on stderr and in OUT/log; ru_run_report_log: in OUT/log only. */
void ru_run_report_say(ru_run_report *r, const char *fmt, ...) RU_PRINTF(2, 3);
void ru_run_report_log(ru_run_report *r, const char *fmt, ...) RU_PRINTF(2, 3);

#endif
