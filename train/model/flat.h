/* The values of a model as one vector: parameters, then running statistics, each in the order of
 * the graph. Steps of one model that differ in their batch alone have the same vector.
 *
 * Thread: any, no shared state. */
#ifndef RU_TRAIN_MODEL_FLAT_H
#define RU_TRAIN_MODEL_FLAT_H

#include "base/wire.h"
#include "exec/exe.h"

typedef struct ru_flat {
    const ru_value_id *at; /* [n] states of the graph */
    uint32_t n;
    int64_t count;  /* elements of all */
    int64_t params; /* of parameters, which come first */
    uint64_t hash;  /* of names and shapes */
} ru_flat;

/* Owner: arrays in `arena`. Errors: RU_E_UNSUPPORTED names a value that is not f32, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_flat_of(const ru_graph *g, ru_arena *arena, ru_flat *out, ru_err *err);
/* What stands where, for those who do not have the graph: u32 n, then of each text name, u32 rank,
 * u64 dims. Returns its bytes; `into` NULL: they are counted. */
int64_t ru_flat_layout(const ru_flat *f, const ru_graph *g, ru_wire_out *into);
/* Between the state of an executable of `g` and a vector [count]. Errors: those of ru_exe_state_*.
 */
RU_MUST_USE ru_status ru_flat_read(const ru_flat *f, const ru_graph *g, ru_exe *exe, float *into,
                                   ru_err *err);
RU_MUST_USE ru_status ru_flat_write(const ru_flat *f, const ru_graph *g, ru_exe *exe,
                                    const float *from, ru_err *err);

#endif
