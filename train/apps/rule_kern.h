/* Vector kernel of the rules that add, for each instruction set.
 *
 * Thread: any. */
#ifndef RU_TRAIN_APPS_RULE_KERN_H
#define RU_TRAIN_APPS_RULE_KERN_H

#include "base/status.h"

/* x[n] += by * g[n]; the same numbers on every instruction set. */
void rui_rule_add(float *x, const float *g, uint32_t n, float by);

#endif
