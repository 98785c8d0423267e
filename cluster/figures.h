/* What a job's own files say of its steps, for plans and for people: the metrics of its run, read
 * from where the last look ended. Training knows nothing of it.
 *
 * Thread: one at a time. */
#ifndef RU_CLUSTER_FIGURES_H
#define RU_CLUSTER_FIGURES_H

#include "cost/goodput.h"

enum { RU_FIGURES_SAMPLES = 16 };

typedef struct ru_cluster_figures {
    int64_t at_bytes; /* of OUT/metrics.jsonl */
    int64_t step;
    double total, epochs,
        epoch; /* steps of its first batch and epochs in all, 0: no end; epoch now */
    double loss, samples_per_s;    /* of the last step */
    uint32_t workers, batch;       /* batch 0: the run tells none */
    uint32_t batch_max, local_max; /* it adapts up to these; 0: it stays; by its memory */
    double noise;                  /* gradient noise scale, samples; 0: not measured */
    double compute_s; /* of the last step, or expected since its workers changed; 0: none */
    uint32_t since;   /* steps since its workers changed */
    double step_s;    /* of a step with as many workers as now, about; 0: not known */
    double paused_s;  /* beyond that of the steps around each change, sum */
    uint32_t pauses;
    struct {
        uint32_t at;                    /* of `seen` */
        double step_s, pass_s, usual_s; /* usual_s: of a step before it */
    } last;                             /* step that was added since the change; step_s 0: none */
    struct {
        uint32_t nodes, replicas, local;
        double steps, step_s, pass_s; /* sums over that many steps */
    } seen[RU_FIGURES_SAMPLES];
    uint32_t n;
} ru_cluster_figures;

/* Read on. `nodes`: on which the job runs now. Cost: at most 256 KiB a call; what is further behind
 * is left out. A file that is not there yet is fine. */
void ru_figures_look(ru_cluster_figures *f, const char *out, uint32_t nodes);
/* Steps of its first batch that are left; of a job that tells no end as many as it has done. 0: it
 * has not begun. */
double ru_figures_remaining(const ru_cluster_figures *f);
/* The job's goodput as measured, with the batch that it has or with those to which it may adapt;
 * perf.overlap 0: too little is known. */
void ru_figures_model(const ru_cluster_figures *f, ru_goodput_model *into);
/* Seconds of a step on 1, 2, ... workers of a job whose batch stays, into step_s [max]: as
 * measured, wherever they stood; of one worker more by the model, on nodes of so many slots. How
 * many are known; 0: none, or the batch adapts. */
uint32_t ru_figures_steps(const ru_cluster_figures *f, const ru_goodput_model *m, uint32_t slots,
                          double *step_s, uint32_t max);

#endif
