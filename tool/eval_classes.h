/* How well a classifier tells each class: confusion matrix, precision, recall, F1, AUC, top-5.
 *
 * Thread: main. */
#ifndef RU_TOOL_EVAL_CLASSES_H
#define RU_TOOL_EVAL_CLASSES_H

#include "train/run/rundir.h"

typedef struct ru_class_scores {
    int64_t classes, samples;
    const int64_t
        *confusion; /* [classes, classes] samples of class (row) taken for class (column) */
    double *precision, *recall, *f1; /* [classes]; 0 where there is nothing to divide by */
    double *auc; /* [classes] one against the rest; NAN: only one of both occurs */
    double top5; /* fraction; NAN with at most 5 classes */
} ru_class_scores;

/* From labels [n] and scores [n, classes], the higher the likelier; a tie in AUC counts half.
 * Errors: RU_E_MEM. Source: Fawcett 2006, An introduction to ROC analysis. */
RU_MUST_USE ru_status ru_class_scores_get(const int64_t *labels, const float *scores, int64_t n,
                                          int64_t classes, ru_arena *arena, ru_class_scores *out,
                                          ru_err *err);

/* Means over the classes that occur. */
typedef struct ru_class_means {
    double precision, recall, f1, auc;
} ru_class_means;
ru_class_means ru_class_means_get(const ru_class_scores *s);

/* Predict all samples of `data` and print, as text or as JSON members.
 * Errors: RU_E_USAGE when the model is no classifier of at most 4,096 classes; those of the data.
 */
RU_MUST_USE ru_status rui_eval_classes(const ru_rundir *run, const ru_dataset *data, bool json,
                                       const ru_exe_options *exe_opt, ru_arena *arena, ru_text *out,
                                       ru_err *err);

#endif
