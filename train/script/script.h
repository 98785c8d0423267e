/* What a device takes for a step, as data: how long a share computes, when each gradient is ready
 * and how long the update takes. It stands for a device in the simulator (lab/device.c) and in real
 * processes that compute nothing and send everything (train/script/process.h).
 *
 *   begin --forward--> --backward: gradient 0, 1, ... ready--> all computed
 *                        ... sums arrive: their part of the update, early ... --rest--> updated
 *
 * A step that begins before the sums of the one before are there (`ahead`) needs each parameter at
 * a time of its forward pass: the one whose gradient is ready last comes first.
 *
 * The play says how long to work until something happens; who plays it waits so long, in virtual
 * time or until an absolute instant.
 *
 * Thread: any; plain data. */
#ifndef RU_TRAIN_SCRIPT_SCRIPT_H
#define RU_TRAIN_SCRIPT_SCRIPT_H

#include "base/status.h"

typedef struct ru_script {
    int64_t fixed_ns; /* of a step, whatever the share */
    double sample_ns; /* forward and backward of one sample */
    int64_t update_ns;
    int64_t idle_ns;           /* of a step without samples */
    const int64_t *size_bytes; /* [n] of each gradient, in the order in which they are ready */
    const double *ready; /* [n] part of the step's time after which it is, rising, at most 1 */
    /* [n] part of the step's time after which the forward pass needs the parameter, falling, at
     * most ready[0]; NULL: equal distances in a third of the time. */
    const double *need;
    uint32_t n;
    bool early; /* updates a parameter as soon as its sum is there and nothing computes */
} ru_script;

/* A step of it under way. */
typedef struct ru_script_play {
    const ru_script *script;
    int64_t step_ns, at_ns; /* of computing: all of it, and so far */
    uint32_t n_ready;
    uint32_t n_had; /* parameters that the forward pass has, from the last gradient's on */
    int64_t all_bytes, summed_bytes, updated_bytes;
    int64_t updated_ns; /* of the update, so far */
} ru_script_play;

/* A step of `samples` samples, `factor` times as long as the script says. */
void ru_script_begin(ru_script_play *p, const ru_script *s, int64_t samples, double factor,
                     bool ahead);
/* Time to compute until more gradients are ready; then p->n_ready of them are. Behind the last one
 * the step is computed. Of one that began ahead: or until a parameter is needed.
 * p->n_ready < script->n before. */
int64_t ru_script_compute(ru_script_play *p);
/* Is a parameter needed now? That of gradient *k; ru_script_has: it is there. */
bool ru_script_needs(const ru_script_play *p, uint32_t *k);
void ru_script_has(ru_script_play *p);
/* So many bytes of gradients hold their sums. */
void ru_script_summed(ru_script_play *p, int64_t size_bytes);
/* Time of the update that can be done now, of sums that are there; 0: none, or not wanted. It
 * counts as done. */
int64_t ru_script_update_early(ru_script_play *p);
/* The rest of the update. */
int64_t ru_script_update(ru_script_play *p);

#endif
