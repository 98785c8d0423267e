/* Histograms of gradients and parameters: OUT/histograms/<step>.json every so many steps.
 *
 * A bin holds the numbers whose sign, exponent and first bit of the fraction are equal, so two bins
 * an octave. Gradients are those of the whole batch, before clipping; parameters those after the
 * step. Between the steps that are due a step pays one comparison; without the key nothing.
 *
 * Thread: the trainer's. */
#ifndef RU_TRAIN_RUN_HISTOGRAMS_H
#define RU_TRAIN_RUN_HISTOGRAMS_H

#include "train/driver/trainer_impl.h"

/* Memory for the step's parameters, once; nothing without train.histograms. Errors: RU_E_MEM. */
RU_MUST_USE ru_status rui_hists_open(rui_trainer *t, ru_err *err);
void rui_hists_close(rui_trainer *t);
/* Is the step under way, the one after t->step_done, to be told? */
bool rui_hists_due(const rui_trainer *t);
/* The gradient of parameter `k` of t->step; n floats in any order, zeros beside its own. */
void rui_hists_gradient(rui_trainer *t, uint32_t k, const float *data, int64_t n);
/* Every gradient that leaves t->exe is noted when it is due. Errors: those of ru_exe_ports_set. */
RU_MUST_USE ru_status rui_hists_listen(rui_trainer *t, ru_err *err);
/* After a step: write its file, if it was due. Errors: those of the disk. */
RU_MUST_USE ru_status rui_hists_write(rui_trainer *t, ru_err *err);

#endif
