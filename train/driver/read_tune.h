/* How the training data is read: the policy `read` on what the stream measures, its plans as
 * decisions of the run.
 *
 *   stream: requests that ended --> windows (plan/disk/read_meter.h) --> plan/disk/read: size,
 * depth --> stream
 *
 * Time counts while requests are outstanding: a stream that has read far enough ahead rests, and
 * its storage could have delivered more.
 *
 * How far it reads ahead follows from how long batches took from asked for to decoded, and from the
 * trainer's steps; both of the last ones. Thread: that of the driver. */
#ifndef RU_TRAIN_RUN_READ_TUNE_H
#define RU_TRAIN_RUN_READ_TUNE_H

#include "data/reader.h"
#include "plan/disk/read_meter.h"
#include "plan/disk/read_policy.h"
#include "plan/row/policy.h"
#include "run/decisions.h"

enum { RUI_READ_WINDOWS = 256, RUI_READ_STEPS = 16, RUI_READ_DELIVERIES = 64 };

/* The last ones of something, in a ring; `n`: all there were. */
typedef struct rui_read_times {
    int64_t ns[RUI_READ_DELIVERIES];
    uint32_t n;
} rui_read_times;

typedef struct rui_read_tune {
    ru_read_policy_in in;
    ru_read_policy_window window[RUI_READ_WINDOWS];
    uint32_t n_search; /* windows until the search was over; 0: not yet */
    ru_read_plan plan; /* in force */
    ru_read_meter meter;
    int64_t busy_ns, until_ns;  /* time with requests outstanding; end of the last such time */
    rui_read_times own, filled; /* of the trainer's own work in a step; of deliveries */
    uint32_t ahead;             /* batches, in force; 0: what the stream began with */
    ru_read_done *ended;        /* [RU_READS_KEPT] */
    uint8_t *scratch;
} rui_read_tune;

typedef struct rui_read_tune_options {
    int64_t sample_bytes, batch_bytes; /* on the disk */
    int64_t run_bytes;                 /* that stand together: no request brings more */
    int64_t memory_bytes;              /* that requests may fill */
    uint32_t ahead_min, ahead_max;     /* batches of the stream */
    bool far;                          /* behind a network: one request at a time is not tried */
    bool files;                        /* each sample is a file, so a request has its size */
} rui_read_tune_options;

/* What a batch cost. */
typedef struct rui_read_step {
    int64_t wait_ns; /* the trainer waited for it */
    int64_t step_ns; /* since the one before; 0: there was none */
    int64_t fill_ns; /* from asked for to decoded */
} rui_read_step;

/* For a stream with requests, from the beginning; *t zeroed or of a stream before. Errors:
 * RU_E_MEM. */
RU_MUST_USE ru_status rui_read_tune_open(rui_read_tune *t, const rui_read_tune_options *opt,
                                         ru_arena *arena, ru_err *err);
/* Requests that ended, in any order (sorted here). True: t->plan has another setting. */
bool rui_read_tune_take(rui_read_tune *t, ru_read_done *ended, uint32_t n,
                        const rui_read_step *step, ru_decisions *decisions);
/* After each batch. */
void rui_read_tune_step(rui_read_tune *t, ru_stream *stream, const rui_read_step *step,
                        ru_decisions *decisions);

#endif
