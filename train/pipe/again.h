/* Another cut of a pipeline that runs otherwise than was predicted: each of its workers is slower
 * than the measured layers say by a factor of its own, which the records tell.
 *
 * Source: pipedream-2019 sec 3.1 (the slowest stage decides); here workers have factors.
 * Thread: main. */
#ifndef RU_TRAIN_PIPE_AGAIN_H
#define RU_TRAIN_PIPE_AGAIN_H

#include "train/pipe/measure.h"

/* A pipeline of one worker a stage, as it runs. */
typedef struct ru_pipe_runs {
    const char *const *cut; /* [n_cut] names of layers */
    uint32_t n_cut;
    double *slow;       /* [n_cut + 1] by how much each stage computes longer than predicted */
    double bytes_per_s; /* of a link */
} ru_pipe_runs;

typedef struct ru_pipe_again {
    const char *const *cut; /* [n_cut] of the same number of stages */
    double was_s, will_s;   /* a step by the same records, with the old cut and with this one */
} ru_pipe_again;

/* Into r->slow and r->bytes_per_s, from the ends of the traces of a run. Errors: RU_E_MISSING when
 * they are not of this cut; those of reading. */
RU_MUST_USE ru_status ru_pipe_runs_read(const ru_pipe_layers *l, const char *run, ru_arena *arena,
                                        ru_pipe_runs *r, ru_err *err);
/* The cut whose slowest stage or link is fastest. Every stage has parameters. Owner: in `arena`.
 * Cost: O(layers^2 stages). Errors: RU_E_MISSING for a cut that is not one of these layers. */
RU_MUST_USE ru_status ru_pipe_cut_again(const ru_pipe_layers *l, const ru_pipe_runs *r,
                                        ru_arena *arena, ru_pipe_again *out, ru_err *err);

#endif
