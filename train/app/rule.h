/* How a server merges updates into rows: the rules of ru_app_rule, with their state beside the row.
 *
 * Source: adagrad-2011, adarevision-2014, adam-2014. Thread: any. */
#ifndef RU_TRAIN_APP_RULE_H
#define RU_TRAIN_APP_RULE_H

#include "train/app/app.h"

/* Floats of state beside a row of this table. */
uint32_t ru_rule_extra(const ru_app_table *table);

/* Merge `update` [width] into `value` [width] with `extra` [ru_rule_extra], which begins as zeros.
 * clock: of the update; updates of one clock were computed from the same values (adarevision).
 * RU_APP_USER: by `ops`. */
void ru_rule_merge(const ru_app_ops *ops, const void *self, const ru_app_table *table, uint32_t n,
                   uint32_t clock, float *value, float *extra, const float *update);

#endif
