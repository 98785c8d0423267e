/* Measured training jobs (six models, up to 64 devices) and a cluster that runs workloads of them:
 * the parts of the replay of `alloc`. Thread: main. */
#ifndef RU_BENCH_REPLAY_ALLOC_H
#define RU_BENCH_REPLAY_ALLOC_H

#include "bench/replay/replay.h"
#include "plan/fleet/alloc.h"

enum { RUI_APPS = 6, RUI_APP_BATCHES_MAX = 8, RUI_APP_NODES_MAX = 16, RUI_ALLOC_JOBS = 400 };

/* Times at one placement by local batch. */
typedef struct rui_curve {
    uint32_t key; /* digits of the placement, or nodes * 1000 + replicas */
    uint32_t n;
    double local[32], step_s[32], sync_s[32]; /* [n] local rising */
} rui_curve;

typedef struct rui_app {
    const char *name;
    uint32_t batch_first, batch_max, local_min, local_max, epochs;
    uint32_t n_batches;
    uint32_t batch[RUI_APP_BATCHES_MAX]; /* measured, rising */
    /* [n_batches][epochs] */
    double *progress[RUI_APP_BATCHES_MAX], *steps[RUI_APP_BATCHES_MAX], *sqr[RUI_APP_BATCHES_MAX],
        *var[RUI_APP_BATCHES_MAX];
    rui_curve *places, *sizes; /* by placement; by nodes and replicas, rising */
    uint32_t n_places, n_sizes;
    ru_perf_sample *samples; /* [n_samples] every row of both tables */
    uint32_t n_samples;
} rui_app;

RU_MUST_USE ru_status rui_apps_read(ru_replay *r, const char *dir, rui_app apps[RUI_APPS],
                                    ru_err *err);
/* Time of a step without accumulation and the part of it that sums gradients. `parts` [n] devices
 * of each node. */
void rui_app_speed(const rui_app *a, const uint32_t *parts, uint32_t n, double local,
                   double *step_s, double *sync_s);
void rui_app_noise(const rui_app *a, double batch, uint32_t epoch, double *sqr, double *var);
/* Progress at the end of an epoch, from 0. */
double rui_app_goal(const rui_app *a, uint32_t epoch);
/* Steps until the end of an epoch, with this batch. */
double rui_app_steps(const rui_app *a, double batch, uint32_t epoch);

typedef struct rui_row {
    const char *name;
    double at_s;
    uint32_t app, replicas, batch;
} rui_row;

typedef struct rui_cluster_in {
    const rui_app *apps;
    const rui_row *rows; /* [n_rows] in order of arrival */
    uint32_t n_rows;
    uint32_t nodes, devices; /* of each node */
    ru_alloc_method method;
    double restart_s, interval_s;
    double slowed; /* what a job that spans nodes loses where two of them share a node */
    bool share_links, at_once; /* at_once: a round at each arrival too */
    double power, hold_s, decay;
    bool told; /* jobs say how many examples are left */
    uint64_t seed;
    uint32_t tries;
    bool check; /* every plan */
    /* Autoscaling from one node on, up to `nodes`; blind: the noise of gradients is hidden, so that
     * throughput alone decides. */
    double time_price, util_low, util_high;
    bool blind;
} rui_cluster_in;

typedef struct rui_cluster_out {
    double jct_s[RUI_ALLOC_JOBS], mean_s, makespan_s;
    uint32_t restarts, rounds;
    double used;                    /* devices, mean over rounds */
    double node_s;                  /* paid: nodes times time */
    double slowest_s, mean_round_s; /* of a decision, wall clock */
    double fit_s;                   /* of a fit, mean */
    uint32_t fits;
} rui_cluster_out;

RU_MUST_USE ru_status rui_cluster_run(const rui_cluster_in *in, rui_cluster_out *out, ru_err *err);

/* Parts of the replay: decisions of given sizes, fits of the measured times, autoscaling. */
RU_MUST_USE ru_status rui_replay_alloc_rounds(ru_replay *r, ru_err *err);
RU_MUST_USE ru_status rui_replay_alloc_fits(ru_replay *r, const rui_app *apps, ru_err *err);
RU_MUST_USE ru_status rui_replay_alloc_scales(ru_replay *r, const rui_app *apps, ru_err *err);

#endif
