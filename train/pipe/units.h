/* Units of a job's model (train/model/stage.h), measured one by one: the input of the policy
 * `place` for this job, and its answer as a placement.
 *
 * Thread: main. */
#ifndef RU_TRAIN_PIPE_UNITS_H
#define RU_TRAIN_PIPE_UNITS_H

#include "base/json.h"
#include "train/job/job.h"

typedef struct ru_units_choice {
    ru_conf_pairs devices;   /* of every unit, in the order in which they start */
    ru_conf_texts back;      /* of every unit, in that in which they go backward */
    uint32_t n;              /* units */
    uint32_t used;           /* devices that have something; less than asked: no placement of all */
    double step_s, single_s; /* predicted; single_s 0: one device cannot hold it */
    int64_t sent_bytes;      /* between devices in a step */
    int64_t memory_bytes;    /* of the device that needs most */
    const char *asked;       /* the policy's input, JSON */
} ru_units_choice;

/* Measure with `threads` threads (0: all cores) and ask for `devices` devices with
 * job->train.placed and train.memory; without that within what `here` of them have on this machine
 * (0: not known). Everything lives in `arena`. Errors: those of data, model and policy. */
RU_MUST_USE ru_status ru_units_choose(const ru_job *job, uint32_t threads, uint32_t devices,
                                      uint32_t here, ru_arena *arena, ru_units_choice *out,
                                      ru_err *err);

/* A device of a question. */
typedef struct ru_units_device {
    const char *name, *type;
    int64_t memory_bytes; /* 0: no bound */
} ru_units_device;

/* What `place` is asked for these devices [n], 1 .. RU_PLACE_DEVICES_MAX, as members of the open
 * object of `j`. Times are those of the first one's type: with train.pipeline.facts predicted, and
 * another type is as fast as its units are together; else measured here, and all are alike. What a
 * unit needs alone counts as its memory. Errors: those of data, model and facts. */
RU_MUST_USE ru_status ru_units_question(const ru_job *job, uint32_t threads,
                                        const ru_units_device *at, uint32_t n, double bytes_per_s,
                                        ru_arena *arena, ru_json *j, ru_err *err);

/* Most memory of a worker by train.memory, or its older name train.placed.memory; 0: no bound. */
int64_t ru_units_memory(const ru_job *job);
/* Of each of the workers of this machine: that, else its share of what control groups and the
 * machine allow; 0: not known. */
int64_t ru_units_share(const ru_job *job, uint32_t workers, ru_arena *arena);

/* Inside of train/pipe. Units, measured, or predicted from the facts of the meter; they live in its
 * arena and use it. */
typedef struct rui_units rui_units;
struct rui_meter;
/* order [n]: by start_ns; equal ones in the order of the model. */
void rui_units_by_start(const int64_t *start_ns, uint32_t n, uint32_t *order);
RU_MUST_USE ru_status rui_units_measure(struct rui_meter *m, rui_units **out, ru_err *err);
/* Where devices of memory_bytes (0: no bound) have them. Errors: RU_E_INFEASIBLE when they do not
 * fit; those of the policy. */
RU_MUST_USE ru_status rui_units_ask(rui_units *u, uint32_t devices, double bytes_per_s,
                                    int64_t memory_bytes, ru_units_choice *out, ru_err *err);

#endif
