/* Merging the dimensions of a broadcast result. */
#include "exec/cpu/lower/lower_spread.h"

/* Strides of `t` broadcast to `to` (rank r of `to`), 0 where it repeats. */
static void broadcast_strides(const ru_type *t, const ru_type *to, int64_t *s)
{
    int64_t step = 1;
    for (uint32_t d = to->rank; d-- > 0;) {
        uint32_t back = to->rank - d;
        int64_t dim = back <= t->rank ? t->dims[t->rank - back] : 1;
        s[d] = dim == 1 ? 0 : step;
        step *= dim;
    }
}

/* Neighbours whose strides continue each other for all operands are one; dimensions of 1 are none.
 */
void rui_spread_plan(rui_spread *s, const ru_type *out, const ru_type *const *t, uint32_t n)
{
    int64_t st[RUI_SPREAD_MAX][RU_RANK_MAX], dims[RU_RANK_MAX] = {1};
    uint32_t r = 0;
    RU_CHECK(n <= RUI_SPREAD_MAX);
    for (uint32_t k = 0; k < n; k++) {
        broadcast_strides(t[k], out, st[k]);
        s->step[k] = 1;
    }
    for (uint32_t d = 0; d < out->rank; d++) {
        bool joins = r > 0;
        for (uint32_t k = 0; k < n && joins; k++) {
            joins = st[k][r - 1] == st[k][d] * out->dims[d];
        }
        if (out->dims[d] == 1) {
            continue;
        }
        if (joins) {
            dims[r - 1] *= out->dims[d];
        } else {
            dims[r++] = out->dims[d];
        }
        for (uint32_t k = 0; k < n; k++) {
            st[k][r - 1] = st[k][d];
        }
    }
    s->n = n;
    s->rank = r > 0 ? r - 1 : 0;
    s->cols = dims[s->rank];
    s->rows = 1;
    for (uint32_t d = 0; d < s->rank; d++) {
        s->dims[d] = dims[d];
        s->rows *= dims[d];
    }
    for (uint32_t k = 0; k < n && r > 0; k++) {
        for (uint32_t d = 0; d < s->rank; d++) {
            s->by[k][d] = st[k][d];
        }
        s->step[k] = st[k][r - 1];
    }
}
