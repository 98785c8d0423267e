/* How the training data is read: the policy `read` on what the stream measures, its plans as
 * decisions of the run.
 *
 *   stream: requests that ended --> windows (plan/read_meter.h) --> plan/read: size, depth -->
 * stream
 *
 * Time counts while requests are outstanding: a stream that has read far enough ahead rests, and
 * its storage could have delivered more. Thread: that of the driver. */
#ifndef RU_TRAIN_RUN_READ_TUNE_H
#define RU_TRAIN_RUN_READ_TUNE_H

#include "data/reader.h"
#include "plan/policy.h"
#include "plan/read_meter.h"
#include "plan/read_policy.h"
#include "train/run/decisions.h"

enum { RUI_READ_WINDOWS = 256 };

typedef struct rui_read_tune {
    ru_read_policy_in in;
    ru_read_policy_window window[RUI_READ_WINDOWS];
    uint32_t n_search; /* windows until the search was over; 0: not yet */
    ru_read_plan plan; /* in force */
    ru_read_meter meter;
    int64_t busy_ns, until_ns; /* time with requests outstanding; end of the last such time */
    int64_t stall_ns;
    ru_read_done *ended; /* [RU_READS_KEPT] */
    uint8_t *scratch;
} rui_read_tune;

/* For a stream with requests, from the beginning; *t zeroed or of a stream before. `batch_bytes` on
 * the disk; `run_bytes` that stand together: no request brings more; `memory_bytes` that requests
 * may fill. `files`: each sample is a
 * file, so a request has its size. Errors: RU_E_MEM. */
RU_MUST_USE ru_status rui_read_tune_open(rui_read_tune *t, int64_t sample_bytes,
                                         int64_t batch_bytes, int64_t run_bytes,
                                         int64_t memory_bytes, bool files, ru_arena *arena,
                                         ru_err *err);
/* Requests that ended, in any order (sorted here). True: t->plan has another setting. */
bool rui_read_tune_take(rui_read_tune *t, ru_read_done *ended, uint32_t n, int64_t wait_ns,
                        int64_t step_ns, ru_decisions *decisions);
/* After each batch; `wait_ns`: how long the trainer waited for it, `step_ns`: since the one before.
 */
void rui_read_tune_step(rui_read_tune *t, ru_stream *stream, int64_t wait_ns, int64_t step_ns,
                        ru_decisions *decisions);

#endif
