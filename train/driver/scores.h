/* Figures of predictions beyond the loss: how well a classifier tells each class (confusion matrix,
 * precision, recall, F1, AUC, top-5), and how far numbers are off (MAE, RMSE, R2).
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_RUN_SCORES_H
#define RU_TRAIN_RUN_SCORES_H

#include "run/report.h"
#include "train/model/step.h"

enum { RU_SCORED_CLASSES_MAX = 4096 };

typedef struct ru_class_scores {
    int64_t classes, samples;
    const int64_t
        *confusion; /* [classes, classes] samples of class (row) taken for class (column) */
    double *precision, *recall, *f1; /* [classes]; 0 where there is nothing to divide by */
    double *auc; /* [classes] one against the rest; NAN: only one of both occurs */
    double top5; /* fraction; NAN with at most 5 classes */
} ru_class_scores;

/* From labels [n] and scores [n, classes], the higher the likelier; a tie in AUC counts half.
 * `areas`: AUC too, which sorts the samples once for each class.
 * Errors: RU_E_MEM. Source: Fawcett 2006, An introduction to ROC analysis. */
RU_MUST_USE ru_status ru_class_scores_get(const int64_t *labels, const float *scores, int64_t n,
                                          int64_t classes, bool areas, ru_arena *arena,
                                          ru_class_scores *out, ru_err *err);

/* Means over the classes that occur. */
typedef struct ru_class_means {
    double precision, recall, f1, auc;
} ru_class_means;
ru_class_means ru_class_means_get(const ru_class_scores *s);

/* Outputs and labels of all samples of an evaluation, and which figures to compute from them. */
typedef struct ru_scores {
    const char *const *names; /* [n_names] (train/job/metric.h) */
    uint32_t n_names;
    ru_loss_kind loss;
    const ru_type *label;   /* of one sample */
    int64_t count, outputs; /* samples; outputs of each */
    int64_t label_bytes;
    float *predictions; /* [count, outputs] logits or numbers */
    uint8_t *labels;    /* [count, label_bytes] */
} ru_scores;

/* Can these figures be computed? Memory comes from `arena`; names and label are views.
 * Errors: RU_E_CONFIG names the first figure that fits neither loss nor labels. */
RU_MUST_USE ru_status ru_scores_open(ru_scores *s, ru_arena *arena, ru_err *err);
/* Batch of n samples from sample `first` on. */
void ru_scores_put(ru_scores *s, int64_t first, int64_t n, const float *outputs,
                   const void *labels);
/* Outputs and labels of n samples from sample `first` on, as bytes for another process. */
int64_t ru_scores_bytes(const ru_scores *s, int64_t n);
void ru_scores_pack(const ru_scores *s, int64_t first, int64_t n, void *into);
void ru_scores_unpack(ru_scores *s, int64_t first, int64_t n, const void *from);
/* Append the figures to `m`. A function of the samples alone, not of batches. */
RU_MUST_USE ru_status ru_scores_get(const ru_scores *s, ru_arena *scratch, ru_metrics *m,
                                    ru_err *err);

#endif
