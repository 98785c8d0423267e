/* The vector kernel of the rules that add, once for each instruction set: the same numbers on all.
 */
#include "base/status.h"

#define RUI_RULE_K2(name, isa) name##_##isa
#define RUI_RULE_K1(name, isa) RUI_RULE_K2(name, isa)

void RUI_RULE_K1(rui_rule_add, RU_KERN_ISA)(float *x, const float *g, uint32_t n, float by);
void RUI_RULE_K1(rui_rule_add, RU_KERN_ISA)(float *RU_RESTRICT x, const float *RU_RESTRICT g,
                                            uint32_t n, float by)
{
    for (uint32_t i = 0; i < n; i++) {
        x[i] += by * g[i];
    }
}
