/* Another cut of a pipeline, or another placement, when a job runs otherwise than was predicted:
 * the policy again, with the speed of each worker that the records tell. And a placement on more
 * devices. Thread: main. */
#ifndef RU_TRAIN_PIPE_AGAIN_H
#define RU_TRAIN_PIPE_AGAIN_H

#include "train/pipe/measure.h"
#include "train/pipe/units.h"

/* A pipeline of one worker a stage, as it runs. */
typedef struct ru_pipe_runs {
    const char *const *cut; /* [n_cut] names of layers */
    uint32_t n_cut;
    double *speed;      /* [n_cut + 1] of each worker, by the times of the measured layers */
    double bytes_per_s; /* of a link */
} ru_pipe_runs;

/* Into r->speed and r->bytes_per_s, from the ends of the traces of a run. Errors: RU_E_MISSING when
 * they are not of this cut; those of reading. */
RU_MUST_USE ru_status ru_pipe_runs_read(const ru_pipe_layers *l, const char *run, ru_arena *arena,
                                        ru_pipe_runs *r, ru_err *err);
/* The policy's cut with these speeds, of as many stages; *was_s: a step of the cut in use with
 * them. Owner: in `arena`. Errors: RU_E_MISSING for a cut that is not one of these layers; those of
 * the policy. */
RU_MUST_USE ru_status ru_pipe_cut_again(const ru_pipe_layers *l, const ru_pipe_runs *r,
                                        ru_arena *arena, double *was_s, ru_pipe_choice *out,
                                        ru_err *err);

/* Speed of each device [those of `asked`, as it was the last time (ru_units_choice)] by the records
 * of `run`, whose units are placed as `now` says. Errors: RU_E_MISSING for records that are not of
 * these devices; those of reading and of the policy. */
RU_MUST_USE ru_status ru_units_speeds_read(const char *asked, const ru_conf_pairs *now,
                                           const char *run, ru_arena *arena, double **speed,
                                           ru_err *err);
/* `place` again for so many devices: speed [devices], NULL: as asked, and new ones as the layers
 * were measured. *was_s: a step of the placement `now` with them; now NULL: not wanted.
 * out->sent_bytes, memory_bytes and single_s are not known. Owner: in `arena`. Errors: RU_E_MISSING
 * for a placement that leaves units out; those of the policy. */
RU_MUST_USE ru_status ru_units_again(const char *asked, const ru_conf_pairs *now,
                                     const double *speed, uint32_t devices, ru_arena *arena,
                                     double *was_s, ru_units_choice *out, ru_err *err);

#endif
