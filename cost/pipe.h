/* What a stage of a pipeline takes for one minibatch, and what it holds in memory.
 *
 * A stage of m units gets every m-th minibatch on each unit, so a minibatch costs the stage
 *
 *   t = (max(c, g) + beta * min(c, g)) / m      c: one unit computes, g: its units add gradients
 *
 *   model        g                          beta          boundary between stages l and r
 *   repo         4 (m - 1) w / (B m)        1             2 o / (B m_r), once more behind r
 *   paper        2 (m - 1) w / B            0             2 o / B
 *   calibrated   2 (m - 1) w / (B m)        1 - overlap   2 o / (B min(m_l, m_r))
 *
 *   w parameter bytes, o bytes that cross the cut (forward; as many come back), B bytes/s.
 *
 * `repo` is what the optimizer that its authors published computes, with its quirks: g of the first
 * stage is divided by the units inside a unit, that of others is not. `calibrated` is a ring
 * all-reduce with the measured share of it that hides behind computation.
 *
 * Source: pipedream-2019 sec 3.1. Thread: any, pure. */
#ifndef RU_COST_PIPE_H
#define RU_COST_PIPE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ru_pipe_model { RU_PIPE_CALIBRATED, RU_PIPE_REPO, RU_PIPE_PAPER } ru_pipe_model;

/* One level of a machine: units joined by links. */
typedef struct ru_pipe_cost {
    ru_pipe_model model;
    double bytes_per_s; /* > 0, of the link of one unit */
    uint32_t inner;     /* >= 1 units of the level below inside one unit */
    double compression; /* > 0 of what crosses a cut; 0: crossing costs nothing */
    double overlap;     /* 0 .. 1, calibrated: share of the smaller of c and g that is hidden */
} ru_pipe_cost;

/* A stage of m units: t = (max(c, g) + beta * min(c, g)) * share, g = sync * parameter bytes. */
typedef struct ru_pipe_rate {
    double sync_s_per_byte, beta, share;
} ru_pipe_rate;

/* `first`: the first stage of its level. */
ru_pipe_rate ru_cost_pipe_rate(const ru_pipe_cost *c, uint32_t m, bool first);

static inline double ru_cost_pipe_stage_s(const ru_pipe_rate *r, double compute_s,
                                          double param_bytes)
{
    double sync_s = r->sync_s_per_byte * param_bytes;
    double most = compute_s > sync_s ? compute_s : sync_s;
    double least = compute_s > sync_s ? sync_s : compute_s;
    return (most + r->beta * least) * r->share;
}

/* Seconds of one minibatch over the cut between stages of `left` and `right` units. */
double ru_cost_pipe_boundary_s(const ru_pipe_cost *c, double cut_bytes, uint32_t left,
                               uint32_t right);
/* What else the model charges a stage that is not the first for the cut behind it. */
double ru_cost_pipe_behind_s(const ru_pipe_cost *c, double cut_bytes, uint32_t m);

/* Minibatches that a unit of a stage has started when it finishes the first one (1F1B, round
 * robin): `m` units in the stage, `behind` units in later stages. */
uint32_t ru_cost_pipe_in_flight(uint32_t m, uint32_t behind);
/* Bytes of a unit: one version of the parameters and the activations of every minibatch in flight,
 * and `state` times the parameters (gradients, optimizer state). `repo` counts neither the current
 * version nor the current minibatch. */
double ru_cost_pipe_memory_bytes(ru_pipe_model model, double param_bytes, double activation_bytes,
                                 uint32_t in_flight, double state);

#endif
