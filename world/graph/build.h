/* Building graphs by hand: the model zoo, the trainer and tests use this.
 *
 * The builder keeps the first error and turns every later call into a no-op that returns the absent
 * value, so that a model reads as a model; ru_build_finish reports it. Types are inferred node by
 * node, so shapes are known while building.
 *
 * Thread: one. */
#ifndef RU_WORLD_BUILD_H
#define RU_WORLD_BUILD_H

#include "world/graph/graph.h"

RU_API_BEGIN

typedef struct ru_build {
    ru_graph *g;
    ru_status status; /* first error */
    ru_err err;
} ru_build;

void ru_build_init(ru_build *b, ru_graph *g);
RU_MUST_USE ru_status ru_build_finish(ru_build *b, ru_err *err);

ru_value_id ru_build_input(ru_build *b, const char *name, ru_type type);
/* Trained parameter; `data` NULL: to be filled by the initialiser named in the zoo. */
ru_value_id ru_build_param(ru_build *b, const char *name, ru_type type, const void *data);
ru_value_id ru_build_state(ru_build *b, const char *name, ru_type type, ru_value_role role,
                           const void *data);
/* Constants copy their data. */
ru_value_id ru_build_const(ru_build *b, ru_type type, const void *data);
ru_value_id ru_build_const_f32(ru_build *b, float x);
ru_value_id ru_build_const_i64s(ru_build *b, const int64_t *xs, uint32_t n);

/* One-output node. Attributes end with an entry of key RU_ATTR_NONE (NULL: no attributes). */
ru_value_id ru_build_op1(ru_build *b, ru_op op, ru_value_id x, const ru_attr *attrs);
ru_value_id ru_build_op2(ru_build *b, ru_op op, ru_value_id x, ru_value_id y, const ru_attr *attrs);
ru_value_id ru_build_op3(ru_build *b, ru_op op, ru_value_id x, ru_value_id y, ru_value_id z,
                         const ru_attr *attrs);
void ru_build_node(ru_build *b, ru_op op, const ru_value_id *in, uint32_t n_in,
                   const ru_attr *attrs, ru_value_id *out, uint32_t n_out);

void ru_build_output(ru_build *b, ru_value_id v, const char *name);
void ru_build_update(ru_build *b, ru_value_id state, ru_value_id value);

/* Attribute literals: (ru_attr[]){RU_AI(axis, 1), RU_AF(epsilon, 1e-5), RU_A_END} */
#define RU_AI(k, x)                                                 \
    {                                                               \
        .key = RU_ATTR_##k, .kind = RU_ATTR_INT, .n = 1, .u.i = (x) \
    }
#define RU_AF(k, x)                                                   \
    {                                                                 \
        .key = RU_ATTR_##k, .kind = RU_ATTR_FLOAT, .n = 1, .u.f = (x) \
    }
#define RU_AS(k, x)                                                 \
    {                                                               \
        .key = RU_ATTR_##k, .kind = RU_ATTR_STR, .n = 1, .u.s = (x) \
    }
#define RU_AIS(k, xs, cnt)                                                 \
    {                                                                      \
        .key = RU_ATTR_##k, .kind = RU_ATTR_INTS, .n = (cnt), .u.is = (xs) \
    }
#define RU_A_END            \
    {                       \
        .key = RU_ATTR_NONE \
    }

RU_API_END

#endif
