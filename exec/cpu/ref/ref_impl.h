/* What the reference kernels share: tensors as plain arrays of doubles or 64-bit integers.
 *
 * A float kernel loads its inputs as doubles, computes in double and stores with one rounding to
 * the output's dtype; an integer kernel does the same with int64_t (u64 keeps its bits) and wraps
 * on store. Data movement copies bytes. Everything temporary lives in call->scratch; the caller
 * rewinds.
 *
 * Thread: any, no shared state. */
#ifndef RU_EXEC_CPU_REF_REF_IMPL_H
#define RU_EXEC_CPU_REF_REF_IMPL_H

#include "exec/cpu/ref/finish.h"
#include "exec/ref.h"

#include <stddef.h>

/* One kernel per row: rui_ref_Add, rui_ref_Conv, ... A row without a kernel does not link. */
#define RU_OP(name, ...) ru_status rui_ref_##name(const ru_ref_call *c, ru_err *err);
#include "world/graph/ops.def"
#undef RU_OP

static inline bool rui_ref_has(const ru_ref_call *c, uint32_t k)
{
    return k < c->node->n_in && c->in[k].data != NULL;
}

static inline bool rui_ref_has_out(const ru_ref_call *c, uint32_t k)
{
    return k < c->node->n_out && c->out[k].data != NULL;
}

/* Elements of a concrete type; product of dims[from .. to-1]. */
int64_t rui_ref_count(const ru_type *t);
int64_t rui_ref_span(const ru_type *t, uint32_t from, uint32_t to);

bool rui_ref_is_float(ru_dtype t);
bool rui_ref_is_unsigned(ru_dtype t);

/* One element as a double or as an integer (floats are cut toward zero, out of range saturates). */
double rui_ref_get(ru_dtype t, const void *data, int64_t i);
int64_t rui_ref_get_int(ru_dtype t, const void *data, int64_t i);
/* Store with one rounding; integers saturate to 64 bits, then wrap to their width. */
void rui_ref_set(ru_dtype t, void *data, int64_t i, double x);
void rui_ref_set_int(ru_dtype t, void *data, int64_t i, int64_t x);

/* `n` zeroed doubles or integers of scratch. Errors: RU_E_MEM. */
RU_MUST_USE ru_status rui_ref_zeros(const ru_ref_call *c, int64_t n, double **out, ru_err *err);
RU_MUST_USE ru_status rui_ref_zero_ints(const ru_ref_call *c, int64_t n, int64_t **out,
                                        ru_err *err);

/* All elements of a tensor; NULL for an absent one. */
RU_MUST_USE ru_status rui_ref_load(const ru_ref_call *c, const ru_tensor *t, double **out,
                                   ru_err *err);
RU_MUST_USE ru_status rui_ref_load_ints(const ru_ref_call *c, const ru_tensor *t, int64_t **out,
                                        ru_err *err);
/* The same, broadcast to `shape` by numpy's rule. Errors: RU_E_DATA when it does not broadcast. */
RU_MUST_USE ru_status rui_ref_load_as(const ru_ref_call *c, const ru_tensor *t,
                                      const ru_type *shape, double **out, ru_err *err);
RU_MUST_USE ru_status rui_ref_load_ints_as(const ru_ref_call *c, const ru_tensor *t,
                                           const ru_type *shape, int64_t **out, ru_err *err);
/* Input k or NULL when absent. */
RU_MUST_USE ru_status rui_ref_in(const ru_ref_call *c, uint32_t k, double **out, ru_err *err);
RU_MUST_USE ru_status rui_ref_in_ints(const ru_ref_call *c, uint32_t k, int64_t **out, ru_err *err);

void rui_ref_store(const ru_tensor *t, const double *x);
void rui_ref_store_ints(const ru_tensor *t, const int64_t *x);

/* Row-major strides, in elements. */
void rui_ref_strides(const ru_type *t, int64_t *strides);
/* Strides that read `t` as if broadcast to `shape` (0 where repeated). Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_ref_strides_as(const ru_type *t, const ru_type *shape, int64_t *strides,
                                         ru_err *err);

/* An odometer over dims[0..rank-1]; `at` is the current index. Next gives false after the last. */
typedef struct rui_walk {
    uint32_t rank;
    int64_t dims[2 * RU_RANK_MAX + 1];
    int64_t at[2 * RU_RANK_MAX + 1];
} rui_walk;

void rui_walk_init(rui_walk *w, const int64_t *dims, uint32_t rank);
bool rui_walk_next(rui_walk *w);
static inline int64_t rui_walk_dot(const rui_walk *w, const int64_t *strides)
{
    int64_t off = 0;
    for (uint32_t d = 0; d < w->rank; d++) {
        off += w->at[d] * strides[d];
    }
    return off;
}

/* out[i] = in[base + i . strides] for every index i of `shape`, copying elements. */
void rui_ref_gather_copy(const ru_tensor *out, const ru_type *shape, const ru_tensor *in,
                         int64_t base, const int64_t *strides);

/* Negative axes count from the end. Errors: RU_E_DATA outside -rank .. rank-1. */
RU_MUST_USE ru_status rui_ref_axis(const ru_ref_call *c, int64_t axis, uint32_t rank, uint32_t *out,
                                   ru_err *err);

/* outer x dim x inner around an axis. */
typedef struct rui_axis3 {
    int64_t outer, dim, inner;
} rui_axis3;
rui_axis3 rui_ref_axis3(const ru_type *t, uint32_t axis);

/* The same with the residual of the optional input `k_residual`. Errors: RU_E_UNSUPPORTED. */
RU_MUST_USE ru_status rui_finish_make(const ru_ref_call *c, uint32_t k_residual, rui_finish *f,
                                      ru_err *err);

#endif
