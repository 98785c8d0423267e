/* Ensembles of trees: many rows through many trees. A step is two loads, a comparison and an
 * addition, without a branch that could be mispredicted; steps of LANES walks overlap. */
#include "exec/cpu/kern/isa.h"

enum { LANES = RU_KERN_TREES_LANES };

#define KT         float
#define KT_NAME(x) x##_f32
#include "exec/cpu/kern/trees.def"
#undef KT
#undef KT_NAME
#define KT         double
#define KT_NAME(x) x##_f64
#include "exec/cpu/kern/trees.def"
#undef KT
#undef KT_NAME

int64_t RUI_K(rui_kern_trees_node_bytes)(const ru_kern_trees *t)
{
    return t->wide ? (int64_t)sizeof(node_f64) : (int64_t)sizeof(node_f32);
}

void RUI_K(rui_kern_trees_pack)(ru_kern_trees *t, const void *value, const int32_t *place,
                                const int32_t *left, int64_t n, void *nodes)
{
    for (int64_t k = 0; k < n; k++) {
        if (t->wide) {
            put_f64(nodes, k, value, place[k], left[k]);
        } else {
            put_f32(nodes, k, value, place[k], left[k]);
        }
    }
    t->nodes = nodes;
}

int64_t RUI_K(rui_kern_trees_work)(const ru_kern_trees *t)
{
    int64_t bytes = t->wide ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    return t->n_used * t->tile * bytes + t->tile / LANES + t->tile * t->outputs + 64;
}

void RUI_K(rui_kern_trees)(const ru_kern_trees *t, const void *x, void *y, int64_t r0, int64_t r1,
                           void *work)
{
    if (t->wide) {
        trees_f64(t, x, y, r0, r1, work);
    } else {
        trees_f32(t, x, y, r0, r1, work);
    }
}
