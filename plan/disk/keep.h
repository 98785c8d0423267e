/* What of a dataset to keep on a disk of each host after it was read: nothing, the bytes of the
 * files, or decoded samples.
 *
 * Every epoch reads each sample once, so any fixed set of c samples saves c reads and replacing
 * samples saves less: what comes first stays, and only the form is to be chosen. A host of W that
 * read equal parts, drawn anew, has met 1 - (1 - 1/W)^e of the data after e epochs; it keeps of
 * that what there is room for. Of an epoch the slowest of four stages counts, which work beside
 * each other: fetching what is not kept, the disk, decoding, training; or what decoding and
 * training need of the cores that they share.
 *
 * Source: ours. Cost: O(epochs). Thread: any, pure. */
#ifndef RU_PLAN_KEEP_H
#define RU_PLAN_KEEP_H

#include <stdint.h>

#include "base/status.h"

typedef enum ru_keep_method {
    RU_KEEP_BEST, /* ours */
    RU_KEEP_NONE,
    RU_KEEP_BYTES,
    RU_KEEP_DECODED,
} ru_keep_method;

typedef enum ru_keep_form {
    RU_KEPT_NONE,
    RU_KEPT_BYTES,
    RU_KEPT_DECODED,
    RU_KEPT_FORMS,
} ru_keep_form;

enum { RU_KEEP_EPOCHS_MAX = 10000 };

/* Seconds and bytes of one sample are measured means. */
typedef struct ru_keep_in {
    uint32_t method;       /* ru_keep_method */
    int64_t samples;       /* of the dataset, > 0 */
    int64_t epochs;        /* that follow, 1 .. RU_KEEP_EPOCHS_MAX */
    uint32_t hosts;        /* that read equal parts, >= 1 */
    uint32_t readers;      /* threads of a host that decode, >= 1 */
    uint32_t threads;      /* of a host that train, >= 1 */
    uint32_t cores;        /* of a host for both; 0: each thread has its own */
    double fetch_s;        /* from its source, many at one time, >= 0 */
    double decode_s;       /* on one thread, >= 0 */
    double unpack_s;       /* of a decoded sample that is kept, on one thread, >= 0 */
    double train_s;        /* of a host, with nothing beside it; 0: reading alone */
    int64_t bytes;         /* in its files; 0: they cannot be kept */
    int64_t decoded_bytes; /* 0: decoded samples cannot be kept */
    int64_t room_bytes;    /* of each host, >= 0 */
    double read_mb_per_s;  /* of that disk, > 0 */
    double write_mb_per_s; /* > 0 */
    double gain_min;       /* of the time of all epochs: less is not worth a disk; 0 .. 1 */
} ru_keep_in;

typedef struct ru_keep_plan {
    uint32_t form;     /* ru_keep_form */
    int64_t kept;      /* samples that a host has room for */
    double hit;        /* of the reads of the last epoch, from kept samples */
    double all_s;      /* all epochs, predicted */
    double first_s;    /* the first, in which most is written */
    double epoch_s;    /* the last */
    double none_s;     /* an epoch that keeps nothing */
    double written_mb; /* by a host, in all */
} ru_keep_plan;

/* Errors: RU_E_ARG, RU_E_INFEASIBLE for a method whose form cannot be kept. */
RU_MUST_USE ru_status ru_plan_keep(const ru_keep_in *in, ru_keep_plan *plan, ru_err *err);
/* train_s from an epoch that took `all_s` for each sample, with readers that need decode_s for
 * each: what training that took `step_s` beside them takes alone. Threads that run have equal parts
 * of the cores. */
double ru_keep_train_alone(const ru_keep_in *in, double step_s, double all_s);
/* Errors: RU_E_INFEASIBLE. */
RU_MUST_USE ru_status ru_plan_keep_check(const ru_keep_in *in, const ru_keep_plan *plan,
                                         ru_err *err);

#endif
