/* Cases of the gradient test: what builds y from parameters.
 *
 * Thread: one. */
#ifndef RU_TEST_GRAD_CASE_H
#define RU_TEST_GRAD_CASE_H

#include "world/graph/build.h"

enum { RU_GRAD_PARAMS_MAX = 8 };

typedef struct maker {
    ru_build b;
    ru_value_id params[RU_GRAD_PARAMS_MAX];
    double lo[RU_GRAD_PARAMS_MAX], hi[RU_GRAD_PARAMS_MAX];
    bool wanted[RU_GRAD_PARAMS_MAX]; /* differentiate */
    uint32_t n;
    ru_dtype dtype;
} maker;

typedef ru_value_id vid;

#define DIMS(...)                                                       \
    (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (const int64_t[]) \
    {                                                                   \
        __VA_ARGS__                                                     \
    }
#define P(m, lo, hi, ...)    param_of(m, (m)->dtype, DIMS(__VA_ARGS__), lo, hi, true)
#define INT(m, lo, hi, ...)  param_of(m, RU_I64, DIMS(__VA_ARGS__), lo, hi, false)
#define A(...)               ((const ru_attr[]){__VA_ARGS__, RU_A_END})
#define INTS(...)            ((const int64_t[]){__VA_ARGS__})
#define OP1(op, x)           ru_build_op1(&m->b, RU_OP_##op, x, NULL)
#define OP1A(op, x, a)       ru_build_op1(&m->b, RU_OP_##op, x, a)
#define OP2(op, x, y)        ru_build_op2(&m->b, RU_OP_##op, x, y, NULL)
#define OP2A(op, x, y, a)    ru_build_op2(&m->b, RU_OP_##op, x, y, a)
#define OP3A(op, x, y, z, a) ru_build_op3(&m->b, RU_OP_##op, x, y, z, a)

/* A parameter to be filled from [lo, hi); `wanted`: differentiated. */
vid param_of(maker *m, ru_dtype dtype, uint32_t rank, const int64_t *dims, double lo, double hi,
             bool wanted);

typedef vid (*make_fn)(maker *m);

typedef struct grad_case {
    const char *name;
    make_fn make;
    double h, tol; /* step and tolerance relative to the largest gradient */
} grad_case;

const grad_case *grad_cases(uint32_t *n);

#endif
