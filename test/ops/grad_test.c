/* Gradients against central differences through the reference kernels, in f64.
 *
 * A case builds y from parameters; the loss is sum(y * c) with random c, so that every output
 * element counts. Each parameter element is moved by +-h. */
#include "test/ops/eval.h"
#include "test/ops/grad_case.h"
#include "test/test.h"
#include "world/pass/pass.h"

#include <math.h>
#include <string.h>

/* -- element-wise ------------------------------------------------------------------------------ */

typedef struct unary_case {
    ru_op op;
    double lo, hi; /* away from kinks and poles */
} unary_case;

static const unary_case unaries[] = {
    {RU_OP_Abs, 0.1, 2},        {RU_OP_Acos, -0.8, 0.8},      {RU_OP_Acosh, 1.2, 3},
    {RU_OP_Asin, -0.8, 0.8},    {RU_OP_Asinh, -2, 2},         {RU_OP_Atan, -2, 2},
    {RU_OP_Atanh, -0.8, 0.8},   {RU_OP_Celu, -2, -0.1},       {RU_OP_Cos, -2, 2},
    {RU_OP_Cosh, -2, 2},        {RU_OP_Elu, -2, -0.1},        {RU_OP_Elu, 0.1, 2},
    {RU_OP_Erf, -2, 2},         {RU_OP_Exp, -2, 2},           {RU_OP_Gelu, -3, 3},
    {RU_OP_HardSigmoid, -2, 2}, {RU_OP_HardSwish, -2.9, 2.9}, {RU_OP_HardSwish, 3.1, 5},
    {RU_OP_Identity, -2, 2},    {RU_OP_LeakyRelu, -2, -0.1},  {RU_OP_LeakyRelu, 0.1, 2},
    {RU_OP_Log, 0.3, 3},        {RU_OP_Mish, -2, 2},          {RU_OP_Neg, -2, 2},
    {RU_OP_Reciprocal, 0.3, 2}, {RU_OP_Relu, 0.1, 2},         {RU_OP_Relu, -2, -0.1},
    {RU_OP_Selu, -2, -0.1},     {RU_OP_Sigmoid, -2, 2},       {RU_OP_Sin, -2, 2},
    {RU_OP_Sinh, -2, 2},        {RU_OP_Softplus, -2, 2},      {RU_OP_Softsign, 0.1, 2},
    {RU_OP_Sqrt, 0.3, 3},       {RU_OP_Tan, -1, 1},           {RU_OP_Tanh, -2, 2},
};

/* loss = sum(y * c), or y itself when it is a scalar. */
static vid loss_of(maker *m, vid y, vid *weights)
{
    if (m->b.status != RU_OK) {
        fail_msg("%s", m->b.err.text);
    }
    ru_type t = ru_graph_value(m->b.g, y)->type;
    *weights = (vid){0};
    if (t.rank == 0) {
        return y;
    }
    *weights = ru_build_state(&m->b, "weights", t, RU_ROLE_PLAIN, NULL);
    return OP1A(ReduceSum, OP2(Mul, y, *weights), A(RU_AI(keepdims, 0)));
}

static void check_param(rui_graph_eval *e, const grad_case *c, uint32_t k, vid p, vid grad,
                        vid loss, ru_arena *a)
{
    int64_t n = ru_type_count(&e->g->values[p.v].type);
    double *want = RU_NEW(a, double, n);
    double *got = RU_NEW(a, double, n);
    double scale = 1e-3;
    for (int64_t i = 0; i < n; i++) {
        double x = rui_graph_eval_get(e, p, i);
        rui_graph_eval_set(e, p, i, x + c->h);
        rui_graph_eval_run(e);
        double up = rui_graph_eval_get(e, loss, 0);
        rui_graph_eval_set(e, p, i, x - c->h);
        rui_graph_eval_run(e);
        want[i] = (up - rui_graph_eval_get(e, loss, 0)) / (2.0 * c->h);
        rui_graph_eval_set(e, p, i, x);
        scale = fmax(scale, fabs(want[i]));
    }
    rui_graph_eval_run(e);
    for (int64_t i = 0; i < n; i++) {
        got[i] = grad.v != 0 ? rui_graph_eval_get(e, grad, i) : 0.0;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(got[i] - want[i]) <= c->tol * scale + 1e-9)) {
            fail_msg("%s: d/dp%u[%lld] is %.9g, differences give %.9g", c->name, k, (long long)i,
                     got[i], want[i]);
        }
    }
}

static void run_case(const grad_case *c, const unary_case *u)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_graph g;
    ru_graph d;
    ru_err err = {.status = RU_OK};
    maker mk = {.dtype = RU_F64};
    maker *m = &mk;
    assert_ok(ru_graph_init(&g, &a, c->name, &err), err);
    ru_build_init(&m->b, &g);
    vid y = u != NULL ? ru_build_op1(&m->b, u->op, P(m, u->lo, u->hi, 3, 4), NULL) : c->make(m);
    vid weights;
    vid loss = loss_of(m, y, &weights);
    ru_build_output(&m->b, loss, "loss");
    assert_ok(ru_build_finish(&m->b, &err), err);
    vid grads[RU_GRAD_PARAMS_MAX];
    vid wrt[RU_GRAD_PARAMS_MAX];
    uint32_t n = 0;
    for (uint32_t k = 0; k < m->n; k++) {
        if (m->wanted[k]) {
            wrt[n++] = m->params[k];
        }
    }
    if (ru_graph_grad(&g, loss, wrt, n, &a, &d, grads, &err) != RU_OK) {
        fail_msg("%s: %s", c->name, err.text);
    }
    if (ru_graph_verify(&d, &err) != RU_OK) {
        fail_msg("%s: %s\n%s", c->name, err.text, ru_graph_print(&d, &a));
    }
    rui_graph_eval e;
    rui_graph_eval_init(&e, &d, &a);
    e.args.seed = 7;
    for (uint32_t k = 0; k < m->n; k++) {
        rui_graph_eval_fill(&e, m->params[k], m->lo[k], m->hi[k], k + 1);
    }
    if (weights.v != 0) {
        rui_graph_eval_fill(&e, weights, -1.0, 1.0, 99);
    }
    for (uint32_t k = 0; k < n; k++) {
        check_param(&e, c, k, wrt[k], grads[k], loss, &a);
    }
    ru_arena_fini(&a);
}

static void test_unary_gradients(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(unaries); i++) {
        grad_case c = {ru_op_get(unaries[i].op)->name, NULL, 1e-5, 1e-7};
        run_case(&c, &unaries[i]);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    uint32_t n;
    const grad_case *cases = grad_cases(&n);
    for (uint32_t i = 0; i < n; i++) {
        run_case(&cases[i], NULL);
    }
}

RU_TESTS(test_grad, cmocka_unit_test(test_unary_gradients), cmocka_unit_test(test_gradients))
