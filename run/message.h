/* What a process of a job tells about the run, as typed messages. JSON Lines and lines for people
 * are made from them here and in the report; a worker sends them to its launcher as frames:
 *
 *     u32 magic | u16 kind | u16 version | u32 n | n bytes of fields | u32 CRC-32C of all before
 *
 * The fields of a kind are a table (message.c): i64 and f64 in 8 bytes, texts and lists with their
 * length in front, each bounded. A later version of a kind may have more fields at the end, which
 * an earlier one skips; fields that an earlier version does not have are absent. A kind that is not
 * known is skipped, and bytes that are no frame (a greeting of a login shell) are passed on as
 * text.
 *
 * Thread: one at a time, no shared state. */
#ifndef RU_RUN_MESSAGE_H
#define RU_RUN_MESSAGE_H

#include "base/str.h"
#include "run/report.h"

enum { RU_MSG_BYTES_MAX = 8192, RU_MSG_NUMBERS_MAX = 1024, RU_MSG_TEXT_MAX = 4096 };

typedef enum ru_msg_kind {
    RU_MSG_START, /* of the report: JSON Lines too */
    RU_MSG_STEP,
    RU_MSG_EVAL,
    RU_MSG_EVENT,
    RU_MSG_SUMMARY,
    RU_MSG_PROGRESS, /* for the launcher alone */
    RU_MSG_ADDRESS,
    RU_MSG_NUMBER,
    RU_MSG_VIEW,
    RU_MSG_KINDS,
} ru_msg_kind;

/* Texts are views. Absent: NULL or "", NAN, a number below 0. */
typedef struct ru_msg_start {
    const char *run, *out;
    int64_t parameters, workers;
    const char *name, *model, *device, *precision;
    int64_t threads, batch, steps, epochs, train_samples, test_samples, arena_bytes,
        arena_bound_bytes, state_bytes, flops_step;
    double open_s;
    int64_t resumed_step;
    int64_t batch_max, local_max; /* may be absent */
} ru_msg_start;

typedef struct ru_msg_step {
    int64_t step, epoch, samples;
    ru_metric loss; /* or another objective */
    double lr, step_s, samples_per_s;
    int64_t workers;
    double accuracy, norm, noise, compute_s; /* may be absent */
} ru_msg_step;

typedef struct ru_msg_eval {
    int64_t step, epoch;
    ru_metrics metric;
    double eval_s;
} ru_msg_eval;

typedef struct ru_msg_event {
    int64_t step;
    const char *what;
    int64_t worker;
    ru_run_report_details more;
} ru_msg_event;

typedef struct ru_msg_summary {
    int64_t steps, epochs, samples, samples_lost, samples_repeated, samples_damaged;
    double wall_s, samples_per_s;
    ru_metric loss;
    ru_metrics metric;
    double compute_s, network_s, input_s, wait_s, other_s;
    int64_t peak_rss_bytes;
    const char *ended;
} ru_msg_summary;

typedef struct ru_msg_progress {
    int64_t step, steps, epoch, epochs; /* steps, epochs 0: open */
    ru_metric loss;                     /* smoothed */
    double accuracy;                    /* may be absent */
    double samples_per_s, left_s;       /* left_s may be absent */
    int64_t members, voters;
} ru_msg_progress;

typedef struct ru_msg_address { /* where this worker listens */
    const char *address;
} ru_msg_address;

typedef struct ru_msg_number { /* which worker of the job it is */
    int64_t number;
} ru_msg_number;

typedef struct ru_msg_view { /* of the membership, as this worker has it */
    int64_t epoch;
    uint32_t n;
    uint32_t numbers[RU_MSG_NUMBERS_MAX]; /* of its members */
    int64_t last;                         /* the one that came last, without this worker; 0: none */
    const char *address;                  /* of that one */
    int64_t spares;                       /* of its leader: who waits to join; may be absent */
} ru_msg_view;

typedef struct ru_msg {
    ru_msg_kind kind;
    union {
        ru_msg_start start;
        ru_msg_step step;
        ru_msg_eval eval;
        ru_msg_event event;
        ru_msg_summary summary;
        ru_msg_progress progress;
        ru_msg_address address;
        ru_msg_number number;
        ru_msg_view view;
    };
} ru_msg;

/* One JSON object and a line end; kinds up to RU_MSG_SUMMARY. */
void ru_msg_json(const ru_msg *m, ru_text *into);
/* The moving line: "step 31/200  [##..]  loss 0.3  ...". */
void ru_msg_progress_text(const ru_msg_progress *p, bool bar, ru_text *into);

/* Write a frame; returns its size, 0: a text is longer than its table says, or no room. */
int64_t ru_msg_write(const ru_msg *m, void *into, int64_t size_bytes);
/* Write a frame to stdout. Errors: RU_E_LIMIT for a message that has no frame. */
RU_MUST_USE ru_status ru_msg_tell(const ru_msg *m, ru_err *err);

/* Reads frames from bytes that come in any pieces. */
typedef struct ru_msg_in {
    void (*message)(void *self, const ru_msg *m); /* its texts are views until it returns */
    void (*text)(void *self, const char *data, int64_t size_bytes); /* bytes of no frame */
    void *self;
    uint8_t at[RU_MSG_BYTES_MAX];
    int64_t n;
    char texts[RU_MSG_BYTES_MAX + 256]; /* of the message under way, each with its end */
} ru_msg_in;

void ru_msg_read(ru_msg_in *in, const char *data, int64_t size_bytes);
/* No more bytes come: what is no whole frame is text. */
void ru_msg_read_end(ru_msg_in *in);

#endif
