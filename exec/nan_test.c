/* What is no number stays so through a chain of fused kernels: the samples that hold a NaN, or
 * whose sums are infinity minus infinity, end in NaN, the others in what they are without their
 * neighbour.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "exec/exe.h"
#include "test/test.h"
#include "world/graph/build.h"

enum { SAMPLES = 4, CHANNELS = 16, SIDE = 12, CLASSES = 10 };

typedef struct net {
    ru_arena arena;
    ru_graph g;
    ru_build b;
    ru_value_id x, y, given;
} net;

static ru_value_id param(net *n, const char *name, uint32_t rank, const int64_t *dims)
{
    ru_type t = ru_type_make(RU_F32, rank, dims);
    int64_t count = ru_type_count(&t);
    float *data = ru_arena_alloc(&n->arena, count * 4, 64);
    for (int64_t i = 0; i < count; i++) {
        data[i] = (float)sin((double)(i * 7 + name[0] * 31)) / 4;
    }
    return ru_build_param(&n->b, name, t, data);
}

static ru_value_id conv(net *n, ru_value_id x, const char *w, int64_t in)
{
    return ru_build_op2(&n->b, RU_OP_Conv, x, param(n, w, 4, (int64_t[]){CHANNELS, in, 3, 3}),
                        (ru_attr[]){RU_AIS(kernel_shape, ((int64_t[]){3, 3}), 2),
                                    RU_AIS(pads, ((int64_t[]){1, 1, 1, 1}), 4), RU_A_END});
}

/* Convolution and ReLU, convolution and Clip, maximum pooling, product and ReLU; beside it a
 * constant, which stands at `given`. */
static void make_net(net *n, const float *given)
{
    ru_err err = {0};
    memset(n, 0, sizeof *n);
    ru_arena_init(&n->arena, 0);
    assert_ok(ru_graph_init(&n->g, &n->arena, "chain", &err), err);
    ru_build *b = &n->b;
    ru_build_init(b, &n->g);
    n->x = ru_build_input(b, "x", ru_type_make(RU_F32, 4, (int64_t[]){SAMPLES, 3, SIDE, SIDE}));
    ru_value_id v = ru_build_op1(b, RU_OP_Relu, conv(n, n->x, "a", 3), NULL);
    v = ru_build_op3(b, RU_OP_Clip, conv(n, v, "b", CHANNELS), ru_build_const_f32(b, 0.0f),
                     ru_build_const_f32(b, 6.0f), NULL);
    v = ru_build_op1(b, RU_OP_MaxPool, v,
                     (ru_attr[]){RU_AIS(kernel_shape, ((int64_t[]){2, 2}), 2),
                                 RU_AIS(strides, ((int64_t[]){2, 2}), 2), RU_A_END});
    v = ru_build_op1(b, RU_OP_Flatten, v, NULL);
    v = ru_build_op2(b, RU_OP_Gemm, v,
                     param(n, "c", 2, (int64_t[]){CHANNELS * SIDE / 2 * SIDE / 2, CLASSES}), NULL);
    n->y = ru_build_op1(b, RU_OP_Relu, v, NULL);
    ru_build_output(b, n->y, "y");
    n->given = ru_build_const_f32(b, *given);
    n->g.values[n->given.v].data = given;
    n->given = ru_build_op1(b, RU_OP_Identity, n->given, NULL);
    ru_build_output(b, n->given, "given");
    assert_ok(ru_build_finish(b, &err), err);
    assert_ok(ru_graph_verify(&n->g, &err), err);
}

/* Runs with `odd` at one place of sample 2, or of no sample when `place` < 0. */
static void run(ru_exe *e, const net *n, int64_t place, float odd, float *y)
{
    ru_err err = {0};
    const int64_t per = 3 * SIDE * SIDE;
    const bool there = place % 2 != 0; /* the run reads it where it is */
    const bool here = place % 3 == 0;  /* the run makes the answer here */
    _Alignas(RU_RUN_OUT_ALIGN) float made[SAMPLES * CLASSES];
    const ru_run_output out = {n->y, made};
    float *own = ru_exe_input(e, n->x),
          *x = there ? malloc((size_t)(SAMPLES * per) * sizeof *x) : own;
    const ru_run_input at = {n->x, x};
    for (int64_t i = 0; i < SAMPLES * per; i++) {
        x[i] = (float)cos((double)(i * 5));
    }
    if (place >= 0) {
        x[2 * per + place] = odd;
    }
    const ru_run_args args = {.inputs = &at, .n_inputs = there, .outputs = &out, .n_outputs = here};
    assert_ok(ru_exe_run(e, &args, &err), err);
    if (there) {
        free(x);
    }
    memcpy(y, here ? made : ru_exe_output(e, n->y), SAMPLES * CLASSES * sizeof *y);
}

static void check(ru_exe *e, const net *n, const float *clean, int64_t place, float odd, float tol)
{
    float y[SAMPLES * CLASSES];
    run(e, n, place, odd, y);
    for (int i = 0; i < SAMPLES * CLASSES; i++) {
        bool spoilt = i / CLASSES == 2;
        if (spoilt ? !isnan(y[i]) : !(fabsf(y[i] - clean[i]) <= tol * (1 + fabsf(clean[i])))) {
            fail_msg("place %lld is %g: sample %d has %g, without that %g", (long long)place,
                     (double)odd, i / CLASSES, (double)y[i], (double)clean[i]);
        }
    }
    assert_true(ru_exe_invalid(e));
}

static void nan_stays_with_its_sample(void **state)
{
    (void)state;
    static const ru_exe_options ways[] = {
        {.threads = 1},
        {.threads = 2},
        {.threads = 1, .no_fuse = true},
        {.threads = 2, .precision = RU_PRECISION_BF16},
    };
    net n;
    const size_t page = 4096;
    float *given = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(given != MAP_FAILED);
    *given = 7;
    assert_int_equal(mprotect(given, page, PROT_READ), 0); /* as the bytes of a file */
    make_net(&n, given);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ways); k++) {
        ru_err err = {0};
        ru_exe *e = NULL;
        float clean[SAMPLES * CLASSES], again[SAMPLES * CLASSES];
        float tol = ways[k].precision == RU_PRECISION_BF16 ? 5e-2f : 1e-5f;
        assert_ok(ru_exe_open(&n.g, &ways[k], &e, &err), err);
        run(e, &n, -1, 0, clean);
        assert_false(ru_exe_invalid(e));
        for (int64_t place = 0; place < 3 * SIDE * SIDE; place += 131) {
            check(e, &n, clean, place, NAN, tol);
        }
        /* Infinity times weights of both signs: infinities of both signs meet in the next sum. */
        check(e, &n, clean, 5 * SIDE + 5, INFINITY, tol);
        run(e, &n, -1, 0, again);
        assert_false(ru_exe_invalid(e));
        assert_memory_equal(clean, again, sizeof clean);
        assert_true(*(const float *)ru_exe_output(e, n.given) == 7);
        ru_exe_close(e);
    }
    ru_arena_fini(&n.arena);
    munmap(given, page);
}

RU_TESTS(exec_nan, cmocka_unit_test(nan_stays_with_its_sample))
