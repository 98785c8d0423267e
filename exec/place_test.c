/* Inputs that a run reads, and outputs that it makes, where the caller has them: no copy, no
 * memory, the bits of a copy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "env/process/self.h"
#include "env/thread.h"
#include "exec/exe.h"
#include "test/test.h"
#include "world/graph/build.h"

enum { COLS = 1024, ROWS = 25600, LARGE = ROWS * COLS, TURNS = 200 };

typedef struct net {
    ru_arena arena;
    ru_graph g;
    ru_value_id x, bias, y;
} net;

static void make_net(net *n, int64_t rows, bool shows)
{
    ru_err err = {0};
    ru_build b;
    memset(n, 0, sizeof *n);
    ru_arena_init(&n->arena, 0);
    assert_ok(ru_graph_init(&n->g, &n->arena, "means", &err), err);
    ru_build_init(&b, &n->g);
    n->x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, (int64_t[]){rows, COLS}));
    n->bias = ru_build_input(&b, "bias", ru_type_scalar(RU_F32));
    ru_value_id axes = ru_build_const(&b, ru_type_make(RU_I64, 1, (int64_t[]){1}), (int64_t[]){1});
    ru_value_id mean =
        ru_build_op2(&b, RU_OP_ReduceMean, n->x, axes, (ru_attr[]){RU_AI(keepdims, 0), RU_A_END});
    n->y = ru_build_op2(&b, RU_OP_Add, mean, n->bias, NULL);
    ru_build_output(&b, n->y, "y");
    if (shows) {
        ru_build_output(&b, ru_build_op1(&b, RU_OP_Identity, n->x, NULL), "same");
    }
    assert_ok(ru_build_finish(&b, &err), err);
    assert_ok(ru_graph_verify(&n->g, &err), err);
}

static ru_exe *open_exe(const net *n, ru_exe *share)
{
    ru_err err = {0};
    ru_exe *e = NULL;
    const ru_exe_options opt = {.threads = 1, .share = share};
    assert_ok(ru_exe_open(&n->g, &opt, &e, &err), err);
    return e;
}

static void run(ru_exe *e, const net *n, const float *x)
{
    ru_err err = {0};
    const ru_run_input at = {n->x, x};
    assert_ok(ru_exe_run(e, &(ru_run_args){.inputs = &at, .n_inputs = 1}, &err), err);
}

static int64_t copied(const ru_exe *e)
{
    ru_exe_stats s;
    ru_exe_stats_get(e, &s);
    return s.copied_bytes;
}

/* Pages of [p, p + bytes) that have memory. */
static int64_t pages_there(const void *p, int64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)p / page * page;
    size_t n = ((uintptr_t)p + (uintptr_t)bytes - first) / page, there = 0;
    unsigned char *in = calloc(n + 1, 1);
    assert_int_equal(mincore((void *)first, n * page, in), 0); /* NOLINT */
    for (size_t i = 0; i < n; i++) {
        there += in[i] & 1;
    }
    free(in);
    return (int64_t)there;
}

static void a_large_input_is_not_copied(void **state)
{
    (void)state;
    net n;
    make_net(&n, ROWS, false);
    ru_exe *e = open_exe(&n, NULL);
    float *x = ru_exe_input(e, n.bias), *large = malloc(sizeof *large * LARGE);
    *x = 2;
    for (int64_t i = 0; i < LARGE; i++) {
        large[i] = (float)(i / COLS % 7) + (float)(i % 2);
    }
    int64_t before = ru_self_rss_bytes();
    run(e, &n, large);
    assert_int_equal(copied(e), 0);
    assert_true(ru_self_rss_bytes() - before < (int64_t)sizeof *large * LARGE / 4);
    /* large pages at both ends may belong to others */
    assert_in_range(pages_there(ru_exe_input(e, n.x), (int64_t)sizeof *large * LARGE), 0, 2048);
    const float *y = ru_exe_output(e, n.y);
    for (int64_t i = 0; i < ROWS; i++) {
        assert_true(fabsf(y[i] - ((float)(i % 7) + 2.5f)) < 1e-5f);
    }
    free(large);
    ru_exe_close(e);
    ru_arena_fini(&n.arena);
}

static void what_cannot_be_read_in_place_is_copied_and_counted(void **state)
{
    (void)state;
    net n, shows;
    ru_err err = {0};
    make_net(&n, 3, false);
    make_net(&shows, 3, true);
    ru_exe *e = open_exe(&n, NULL), *s = open_exe(&shows, NULL);
    char *at = malloc(sizeof(float) * (3 * COLS + 16));
    float x[3 * COLS];
    for (int i = 0; i < 3 * COLS; i++) {
        x[i] = (float)(i / COLS + 1);
    }
    *(float *)ru_exe_input(e, n.bias) = *(float *)ru_exe_input(s, shows.bias) = 0;
    memcpy(at + 4, x, sizeof x);
    run(e, &n, (const float *)(const void *)(at + 4));
    assert_int_equal(copied(e), sizeof x);
    assert_true(((const float *)ru_exe_output(e, n.y))[2] == 3);
    memcpy(at, x, sizeof x);
    run(s, &shows, (const float *)(const void *)at);
    assert_int_equal(copied(s), sizeof x);
    memset(at, 0, sizeof x);
    assert_memory_equal(ru_exe_output(s, shows.g.outputs[1]), x, sizeof x); /* not what is gone */
    /* the next run reads the executable's own memory again */
    memcpy(ru_exe_input(e, n.x), x, sizeof x);
    run(e, &n, (const float *)(const void *)at);
    assert_true(((const float *)ru_exe_output(e, n.y))[2] == 0);
    memcpy(ru_exe_input(e, n.x), x, sizeof x);
    assert_ok(ru_exe_run(e, NULL, &err), err);
    assert_true(((const float *)ru_exe_output(e, n.y))[2] == 3);
    const ru_run_input wrong[] = {{n.y, x}, {n.x, NULL}, {n.x, x}, {n.x, x}};
    static const char *const why[] = {"is no input", "has no data", "is given twice"};
    for (uint32_t k = 0; k < 3; k++) {
        const ru_run_args args = {.inputs = &wrong[k], .n_inputs = k == 2 ? 2 : 1};
        assert_int_equal(ru_exe_run(e, &args, &err), RU_E_ARG);
        assert_non_null(strstr(err.text, why[k]));
    }
    free(at);
    ru_exe_close(e);
    ru_exe_close(s);
    ru_arena_fini(&n.arena);
    ru_arena_fini(&shows.arena);
}

/* Outputs stand in another piece of memory after each run and stay there; what shows an input or
 * does not stand at a multiple of 64 bytes is copied. */
static void an_output_is_made_where_the_caller_wants_it(void **state)
{
    (void)state;
    net n;
    ru_err err = {0};
    make_net(&n, 64, true);
    ru_exe *e = open_exe(&n, NULL);
    float *x = ru_exe_input(e, n.x), *y = aligned_alloc(64, 6 * 64 * sizeof *y);
    float *same = aligned_alloc(64, 64 * COLS * sizeof *same);
    *(float *)ru_exe_input(e, n.bias) = 1;
    for (int t = 0; t < 5; t++) {
        for (int i = 0; i < 64 * COLS; i++) {
            x[i] = (float)(t + i / COLS);
        }
        x[5] = t == 3 ? NAN : x[5]; /* it runs again, on kernels that keep NaN */
        float *into = y + (ptrdiff_t)t * 64 + (t == 4 ? 1 : 0);
        const ru_run_output out[] = {{n.y, into}, {n.g.outputs[1], same}};
        const int64_t before = copied(e);
        assert_ok(ru_exe_run(e, &(ru_run_args){.outputs = out, .n_outputs = 2}, &err), err);
        assert_int_equal(copied(e) - before, (64 * COLS + (t == 4 ? 64 : 0)) * (int64_t)sizeof *y);
        assert_memory_equal(same, x, sizeof *x * 64 * COLS);
    }
    for (int i = 0; i < 5 * 64; i++) {
        float is = y[i + (i >= 4 * 64 ? 1 : 0)];
        assert_true(i == 3 * 64 ? isnan(is) : is == (float)(i / 64 + i % 64 + 1));
    }
    assert_ok(ru_exe_run(e, NULL, &err), err); /* at its own memory again */
    assert_true(((const float *)ru_exe_output(e, n.y))[1] == 6 && y[4 * 64 + 1] == 5);
    const ru_run_output wrong[] = {{n.x, y}, {n.y, NULL}, {n.y, y}, {n.y, y}};
    static const char *const why[] = {"is no output", "has no data", "is given twice"};
    for (uint32_t k = 0; k < 3; k++) {
        const ru_run_args args = {.outputs = &wrong[k], .n_outputs = k == 2 ? 2 : 1};
        assert_int_equal(ru_exe_run(e, &args, &err), RU_E_ARG);
        assert_non_null(strstr(err.text, why[k]));
    }
    free(same);
    free(y);
    ru_exe_close(e);
    ru_arena_fini(&n.arena);
}

/* A part of an output is an output too, which the caller reads from the executable. */
static void what_another_output_shows_is_copied(void **state)
{
    (void)state;
    net n = {0};
    ru_build b;
    ru_err err = {0};
    ru_arena_init(&n.arena, 0);
    assert_ok(ru_graph_init(&n.g, &n.arena, "part", &err), err);
    ru_build_init(&b, &n.g);
    n.x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, (int64_t[]){4, COLS}));
    n.y = ru_build_op1(&b, RU_OP_Neg, n.x, NULL);
    ru_value_id one = ru_build_const_i64s(&b, (int64_t[]){1}, 1);
    ru_value_id two = ru_build_const_i64s(&b, (int64_t[]){2}, 1);
    ru_value_id part = ru_build_op3(&b, RU_OP_Slice, n.y, one, two, NULL);
    ru_build_output(&b, n.y, "y");
    ru_build_output(&b, part, "part");
    assert_ok(ru_build_finish(&b, &err), err);
    ru_exe *e = open_exe(&n, NULL);
    float *x = ru_exe_input(e, n.x), *y = aligned_alloc(64, 4 * COLS * sizeof *y);
    const ru_run_output out = {n.y, y};
    for (int t = 1; t < 3; t++) {
        for (int i = 0; i < 4 * COLS; i++) {
            x[i] = (float)(t * i);
        }
        assert_ok(ru_exe_run(e, &(ru_run_args){.outputs = &out, .n_outputs = 1}, &err), err);
        assert_true(y[1] == (float)-t && y[4 * COLS - 1] == (float)(-t * (4 * COLS - 1)));
        assert_memory_equal(ru_exe_output(e, part), y + COLS, COLS * sizeof *y);
    }
    free(y);
    ru_exe_close(e);
    ru_arena_fini(&n.arena);
}

/* A run writes there before it has read all of it. */
static void an_output_goes_in_again(void **state)
{
    (void)state;
    net n;
    ru_err err = {0};
    make_net(&n, 3, false);
    ru_exe *e = open_exe(&n, NULL);
    float *x = ru_exe_input(e, n.x);
    for (int i = 0; i < 3 * COLS; i++) {
        x[i] = (float)(i / COLS + 1);
    }
    *(float *)ru_exe_input(e, n.bias) = 4;
    assert_ok(ru_exe_run(e, NULL, &err), err);
    const float *y = ru_exe_output(e, n.y);
    const ru_run_input at[] = {{n.x, x}, {n.bias, y}};
    assert_ok(ru_exe_run(e, &(ru_run_args){.inputs = at, .n_inputs = 2}, &err), err);
    assert_true(y[0] == 6 && y[1] == 7 && y[2] == 8);
    assert_int_equal(copied(e), sizeof *y);
    ru_exe_close(e);
    ru_arena_fini(&n.arena);
}

/* What steps of a later phase read, or a reader after the run, does not stay with the caller. */
static void what_is_read_after_the_run_is_copied(void **state)
{
    (void)state;
    net n;
    ru_err err = {0};
    static float x[3 * COLS], there[3 * COLS];
    make_net(&n, 3, false);
    for (int k = 0; k < 2; k++) {
        const ru_exe_options opt = {.threads = 1, .two_phase = k == 0, .keep_temps = k == 1};
        ru_exe *e = NULL;
        assert_ok(ru_exe_open(&n.g, &opt, &e, &err), err);
        *(float *)ru_exe_input(e, n.bias) = 0;
        x[5] = 7;
        run(e, &n, x);
        x[5] = 0;
        assert_int_equal(copied(e), sizeof x);
        memcpy(there, ru_exe_input(e, n.x), sizeof there);
        assert_true(there[5] == 7);
        ru_exe_close(e);
    }
    ru_arena_fini(&n.arena);
}

typedef struct runner {
    const net *n;
    ru_exe *e;
    float base;
    int64_t wrong;
} runner;

/* Another place, with other values, in every turn. */
static void keep_running(void *arg)
{
    runner *r = arg;
    float *x[2];
    for (int k = 0; k < 2; k++) {
        x[k] = malloc(sizeof(float) * 64 * COLS);
        for (int i = 0; i < 64 * COLS; i++) {
            x[k][i] = r->base + (float)k;
        }
    }
    for (int t = 0; t < TURNS; t++) {
        const ru_run_input at = {r->n->x, x[t % 2]};
        ru_status st = ru_exe_run(r->e, &(ru_run_args){.inputs = &at, .n_inputs = 1}, NULL);
        const float *y = ru_exe_output(r->e, r->n->y);
        for (int i = 0; i < 64; i++) {
            r->wrong += st != RU_OK || !(fabsf(y[i] - r->base - (float)(t % 2)) < 1e-4f);
        }
    }
    free(x[0]);
    free(x[1]);
}

static void twins_read_their_own_places(void **state)
{
    (void)state;
    net n;
    ru_err err = {0};
    make_net(&n, 64, false);
    ru_exe *e = open_exe(&n, NULL), *twin = open_exe(&n, e);
    *(float *)ru_exe_input(e, n.bias) = *(float *)ru_exe_input(twin, n.bias) = 0;
    runner a = {&n, e, 10, 0}, b = {&n, twin, 20, 0};
    run(e, &n, ru_exe_input(e, n.x)); /* packs what both share */
    ru_thread other = {0};
    assert_ok(ru_thread_start(&other, "twin", keep_running, &b, &err), err);
    keep_running(&a);
    ru_thread_join(&other);
    assert_int_equal(a.wrong + b.wrong, 0);
    assert_int_equal(copied(e) + copied(twin), 0);
    ru_exe_close(e);
    ru_exe_close(twin);
    ru_arena_fini(&n.arena);
}

RU_TESTS(exec_place, cmocka_unit_test(a_large_input_is_not_copied),
         cmocka_unit_test(what_cannot_be_read_in_place_is_copied_and_counted),
         cmocka_unit_test(an_output_is_made_where_the_caller_wants_it),
         cmocka_unit_test(what_another_output_shows_is_copied),
         cmocka_unit_test(an_output_goes_in_again),
         cmocka_unit_test(what_is_read_after_the_run_is_copied),
         cmocka_unit_test(twins_read_their_own_places))
