/* Which updates may be early, and what taking them back needs. */
#include "exec/update.h"
#include "test/test.h"
#include "world/graph/build.h"
#include "world/pass/pass.h"

enum { N = 40000 };

typedef enum case_kind {
    PLAIN,
    MOMENTUM,
    READ,  /* another step of the update reads what a parameter became */
    KEPT,  /* another step of the update reads what a parameter was */
    CROSS, /* each parameter becomes what the other one's update makes */
} case_kind;

static int64_t early_bytes(case_kind how)
{
    ru_arena arena;
    ru_graph g, with_grads;
    ru_build b;
    ru_err err = {0};
    ru_arena_init(&arena, 0);
    assert_ok(ru_graph_init(&g, &arena, "test", &err), err);
    ru_build_init(&b, &g);
    const ru_type t = ru_type_make(RU_F32, 1, (int64_t[]){N});
    float *zeros = RU_NEW(&arena, float, N);
    ru_value_id x = ru_build_input(&b, "x", t),
                lr = ru_build_input(&b, "lr", ru_type_scalar(RU_F32));
    ru_value_id p[2] = {ru_build_param(&b, "p", t, zeros), ru_build_param(&b, "q", t, zeros)};
    ru_value_id product =
        ru_build_op2(&b, RU_OP_Mul, p[0], ru_build_op2(&b, RU_OP_Mul, p[1], x, NULL), NULL);
    ru_value_id loss =
        ru_build_op1(&b, RU_OP_ReduceSum, product, (ru_attr[]){RU_AI(keepdims, 0), RU_A_END});
    ru_build_output(&b, loss, "loss");
    assert_ok(ru_build_finish(&b, &err), err);
    ru_value_id grads[2], out[2][2];
    assert_ok(ru_graph_grad(&g, loss, p, 2, &arena, &with_grads, grads, &err), err);
    ru_build_init(&b, &with_grads);
    for (int k = 0; k < 2; k++) {
        ru_value_id slot = {0};
        if (how == MOMENTUM) {
            slot = ru_build_state(&b, k == 0 ? "m" : "n", t, RU_ROLE_SLOT, NULL);
        }
        ru_value_id in[5] = {lr, {0}, p[k], grads[k], slot};
        ru_build_node(&b, RU_OP_SgdUpdate, in, 5,
                      (ru_attr[]){RU_AF(momentum, how == MOMENTUM ? 0.9 : 0.0), RU_A_END}, out[k],
                      how == MOMENTUM ? 2 : 1);
        if (how == MOMENTUM) {
            ru_build_update(&b, slot, out[k][1]);
        }
    }
    ru_build_update(&b, p[0], out[how == CROSS ? 1 : 0][0]);
    ru_build_update(&b, p[1], out[how == CROSS ? 0 : 1][0]);
    if (how == READ || how == KEPT) {
        ru_value_id sum = ru_build_state(&b, "sum", t, RU_ROLE_BUFFER, NULL);
        ru_build_update(&b, sum,
                        ru_build_op2(&b, RU_OP_Add, sum, how == READ ? out[0][0] : p[0], NULL));
    }
    assert_ok(ru_build_finish(&b, &err), err);
    ru_exe *e;
    assert_ok(
        ru_exe_open(&with_grads, &(ru_exe_options){.threads = 1, .two_phase = true}, &e, &err),
        err);
    int64_t bytes = ru_exe_early_bytes(e);
    const ru_exe_grad *g0;
    assert_int_equal(ru_exe_grads(e, &g0), 2);
    ru_exe_early(e, g0->value, 0, g0->size_bytes); /* nothing, without memory for it */
    ru_exe_early_undo(e);
    for (int k = 0; k < 2; k++) {
        float *was = RU_NEW(&arena, float, N);
        assert_ok(ru_exe_state_read(e, p[k], was, &err), err);
        assert_memory_equal(was, zeros, N * sizeof *was);
    }
    ru_exe_close(e);
    ru_arena_fini(&arena);
    return bytes;
}

static void updates_that_stand_alone_may_be_early(void **state)
{
    (void)state;
    assert_int_equal(early_bytes(PLAIN), 2 * N * 4);
    assert_int_equal(early_bytes(MOMENTUM), 2 * 2 * N * 4);
    assert_int_equal(early_bytes(READ), 0);
    assert_int_equal(early_bytes(KEPT), 0);
    assert_int_equal(early_bytes(CROSS), 0);
}

RU_TESTS(exec_optim, cmocka_unit_test(updates_that_stand_alone_may_be_early))
