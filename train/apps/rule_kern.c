/* Rows of a store grow by what updates bring. */
#include "train/apps/rule_kern.h"

#include "train/apps/kern_impl.h"

void RUI_APP_K(rui_rule_add)(float *RU_RESTRICT x, const float *RU_RESTRICT g, uint32_t n, float by)
{
    for (uint32_t i = 0; i < n; i++) {
        x[i] += by * g[i];
    }
}
