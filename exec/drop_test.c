/* Constants that kernels have packed go back to the system, those that runs read stay. */
#include <math.h>
#include <string.h>

#include "exec/reads.h"
#include "test/test.h"
#include "world/graph/build.h"

enum { ROWS = 8, CHANNELS = 64, SIDE = 32, WORDS = 256, PER = CHANNELS * SIDE * SIDE };

typedef struct net {
    ru_arena arena;
    ru_graph g;
    ru_value_id x, row, w, table, y, found;
} net;

static ru_value_id weight(ru_build *b, ru_arena *a, uint32_t rank, const int64_t *dims)
{
    ru_type t = ru_type_make(RU_F32, rank, dims);
    int64_t n = ru_type_count(&t);
    float *w = ru_arena_alloc(a, n * 4, 64);
    for (int64_t i = 0; i < n; i++) {
        w[i] = (float)sin((double)(i * 7 + rank)) / 16;
    }
    return ru_build_const(b, t, w);
}

/* A convolution, whose weights are packed; rows of a table that runs read where it is. */
static void make_net(net *n)
{
    ru_err err = {0};
    ru_build b;
    memset(n, 0, sizeof *n);
    ru_arena_init(&n->arena, 0);
    assert_ok(ru_graph_init(&n->g, &n->arena, "drop", &err), err);
    ru_build_init(&b, &n->g);
    n->x = ru_build_input(&b, "x", ru_type_make(RU_F32, 4, (int64_t[]){1, CHANNELS, SIDE, SIDE}));
    n->row = ru_build_input(&b, "row", ru_type_make(RU_I64, 1, (int64_t[]){ROWS}));
    n->w = weight(&b, &n->arena, 4, (int64_t[]){CHANNELS, CHANNELS, 3, 3});
    n->table = weight(&b, &n->arena, 2, (int64_t[]){WORDS, CHANNELS});
    ru_value_id v = ru_build_op2(&b, RU_OP_Conv, n->x, n->w,
                                 (ru_attr[]){RU_AIS(kernel_shape, ((int64_t[]){3, 3}), 2),
                                             RU_AIS(pads, ((int64_t[]){1, 1, 1, 1}), 4), RU_A_END});
    n->y = ru_build_op1(&b, RU_OP_Relu, v, NULL);
    n->found = ru_build_op2(&b, RU_OP_Gather, n->table, n->row, NULL);
    ru_build_output(&b, n->y, "y");
    ru_build_output(&b, n->found, "found");
    assert_ok(ru_build_finish(&b, &err), err);
}

static void run(ru_exe *e, const net *n, float *y, float *found)
{
    ru_err err = {0};
    float *x = ru_exe_input(e, n->x);
    int64_t *row = ru_exe_input(e, n->row);
    for (int64_t i = 0; i < PER; i++) {
        x[i] = (float)cos((double)(i * 5));
    }
    for (int64_t i = 0; i < ROWS; i++) {
        row[i] = i * 37 % WORDS;
    }
    assert_ok(ru_exe_run(e, NULL, &err), err);
    memcpy(y, ru_exe_output(e, n->y), PER * sizeof *y);
    memcpy(found, ru_exe_output(e, n->found), ROWS * CHANNELS * sizeof *found);
}

static void runs_need_no_packed_constants(void **state)
{
    (void)state;
    static float y[2][PER], found[2][ROWS * CHANNELS];
    net n;
    ru_err err = {0};
    ru_exe *list[4] = {NULL};
    make_net(&n);
    ru_exe_options o = {.threads = 2, .once = true};
    assert_ok(ru_exe_open(&n.g, &o, &list[0], &err), err);
    o.share = list[0];
    assert_ok(ru_exe_open(&n.g, &o, &list[1], &err), err); /* a twin */
    o.keep_nan = true;
    assert_ok(ru_exe_open(&n.g, &o, &list[3], &err), err);
    run(list[0], &n, y[0], found[0]);
    ru_exe_drop_packed(list, 4);
    uint32_t there = 0, all = CHANNELS * CHANNELS * 9;
    const float *w = ru_graph_value(&n.g, n.w)->data;
    for (uint32_t i = 0; i < all; i++) {
        there += w[i] != 0.0f ? 1 : 0;
    }
    assert_true(there < all / 4); /* the pages at its ends are others' too */
    for (uint32_t k = 0; k < 2; k++) {
        run(list[k], &n, y[1], found[1]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        assert_memory_equal(found[0], found[1], sizeof found[0]);
    }
    run(list[3], &n, y[1], found[1]);
    for (int64_t i = 0; i < PER; i++) {
        assert_true(fabsf(y[0][i] - y[1][i]) <= 1e-4f);
    }
    ((float *)ru_exe_input(list[0], n.x))[3] = NAN;
    assert_ok(ru_exe_run(list[0], NULL, &err), err);
    assert_int_equal(ru_exe_invalid(list[0]), ru_exe_drops_nan(list[0]));
    for (int64_t i = 0; i < PER; i++) {
        ((float *)ru_exe_input(list[3], n.x))[i] = NAN;
    }
    assert_ok(ru_exe_run(list[3], NULL, &err), err);
    run(list[0], &n, y[1], found[1]);
    assert_false(ru_exe_invalid(list[0])); /* what other threads met before is not its own */
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    for (uint32_t k = 0; k < 4; k++) {
        ru_exe_close(list[k]);
    }
    ru_arena_fini(&n.arena);
}

RU_TESTS(exec_drop, cmocka_unit_test(runs_need_no_packed_constants))
