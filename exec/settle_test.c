/* Sizes that selected boxes decide: the graph before runs once, the rest has numbers for shapes. */
#include "exec/settle.h"
#include "test/test.h"
#include "world/graph/build.h"

#include <string.h>

typedef ru_value_id vid;

static vid scalar(ru_build *b, ru_dtype dtype, const void *x)
{
    return ru_build_const(b, (ru_type){.dtype = dtype}, x);
}

/* y = 2 boxes[rows of NonMaxSuppression(2 boxes, scores)]; six boxes of which three stay. */
static void selected_boxes_decide_sizes(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_graph g, settled;
    ru_err err = {0};
    ru_build b;
    static const int64_t most = 3, last = 2;
    static const float iou = 0.5F, least = 0;
    static const float boxes[6][4] = {{0, 0, 1, 1},   {0, 0.1F, 1, 1.1F}, {0, -0.1F, 1, 0.9F},
                                      {0, 10, 1, 11}, {0, 10.1F, 1, 11},  {0, 100, 1, 101}};
    static const float scores[6] = {0.9F, 0.75F, 0.6F, 0.95F, 0.5F, 0.3F};
    static const int64_t stay[3] = {3, 0, 5}; /* by falling score */
    assert_ok(ru_graph_init(&g, &arena, "boxes", &err), err);
    ru_build_init(&b, &g);
    vid x = ru_build_input(&b, "boxes", ru_type_make(RU_F32, 3, (int64_t[]){1, 6, 4}));
    vid s = ru_build_input(&b, "scores", ru_type_make(RU_F32, 3, (int64_t[]){1, 1, 6}));
    vid twice = ru_build_op2(&b, RU_OP_Add, x, x, NULL), rows, y;
    vid in[5] = {twice, s, scalar(&b, RU_I64, &most), scalar(&b, RU_F32, &iou),
                 scalar(&b, RU_F32, &least)};
    ru_build_node(&b, RU_OP_NonMaxSuppression, in, 5, NULL, &rows, 1);
    vid which = ru_build_op2(&b, RU_OP_Gather, rows, scalar(&b, RU_I64, &last),
                             (ru_attr[]){RU_AI(axis, 1), RU_A_END});
    y = ru_build_op2(&b, RU_OP_Gather, twice, which, (ru_attr[]){RU_AI(axis, 1), RU_A_END});
    ru_build_output(&b, y, "y");
    assert_ok(ru_build_finish(&b, &err), err);
    ru_array given[] = {{.name = "boxes", .type = ru_graph_value(&g, x)->type, .data = boxes},
                        {.name = "scores", .type = ru_graph_value(&g, s)->type, .data = scores}};
    const ru_exe_options eo = {.device = RU_DEVICE_CPU, .threads = 1};
    ru_arrays arrays = {.at = given, .n = 2, .cap = 2};
    ru_settle ru = {.opt = &eo, .arrays = &arrays, .arena = &arena};
    assert_ok(ru_exe_settle(&ru, &g, &settled, &err), err);
    assert_int_equal(ru.ran, 1);
    ru_exe *exe;
    assert_ok(ru_exe_open(&settled, &eo, &exe, &err), err);
    for (uint32_t k = 0; k < settled.n_inputs; k++) {
        const ru_value *v = ru_graph_value(&settled, settled.inputs[k]);
        memcpy(ru_exe_input(exe, settled.inputs[k]), ru_arrays_find(&arrays, v->name)->data,
               (size_t)ru_type_bytes(&v->type));
    }
    assert_ok(ru_exe_run(exe, &(ru_run_args){0}, &err), err);
    const ru_type *t = &ru_graph_value(&settled, settled.outputs[0])->type;
    assert_int_equal(t->dims[1], 3);
    const float *out = ru_exe_output(exe, settled.outputs[0]);
    for (int64_t k = 0; k < 12; k++) {
        assert_true(out[k] == 2 * boxes[stay[k / 4]][k % 4]);
    }
    ru_exe_close(exe);
    /* without arrays the model cannot run, and says so */
    ru.arrays = &(ru_arrays){0};
    assert_int_equal(ru_exe_settle(&ru, &g, &settled, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "give an array"));
    ru_arena_fini(&arena);
}

/* -- a model whose loop stops when its data say so -----------------------------------------------
 */

static void put_value(ru_pb_out *o, uint32_t field, const char *name, int64_t dtype, int64_t dim)
{
    ru_pb_begin(o, field);
    ru_pb_put_str(o, 1, name);
    ru_pb_begin(o, 2);
    ru_pb_begin(o, 1);
    ru_pb_put_i64(o, 1, dtype);
    ru_pb_begin(o, 2);
    if (dim > 0) {
        ru_pb_begin(o, 1);
        ru_pb_put_i64(o, 1, dim);
        ru_pb_end(o);
    }
    for (int k = 0; k < 4; k++) {
        ru_pb_end(o);
    }
}

/* A node with up to two inputs; open: the caller ends it. */
static void put_op(ru_pb_out *o, const char *op, const char *a, const char *b, const char *y)
{
    ru_pb_begin(o, 1);
    if (a != NULL) {
        ru_pb_put_str(o, 1, a);
    }
    if (b != NULL) {
        ru_pb_put_str(o, 1, b);
    }
    ru_pb_put_str(o, 2, y);
    ru_pb_put_str(o, 4, op);
}

static void put_number(ru_pb_out *o, const char *y, float x)
{
    put_op(o, "Constant", NULL, NULL, y);
    ru_pb_begin(o, 5);
    ru_pb_put_str(o, 1, "value_float");
    ru_pb_put_f32(o, 2, x);
    ru_pb_put_u64(o, 20, 1);
    ru_pb_end(o);
    ru_pb_end(o);
}

static void put_subgraph(ru_pb_out *o, const char *name)
{
    ru_pb_begin(o, 5);
    ru_pb_put_str(o, 1, name);
    ru_pb_put_u64(o, 20, 5);
    ru_pb_begin(o, 6);
}

/* Body: s := s + 2 when s is below 2, else 3 s; goes on while s < 100; stacks s and appends it to a
 * sequence. */
static void put_body(ru_pb_out *o)
{
    static const char *const branch[] = {"then_branch", "else_branch"};
    put_subgraph(o, "body");
    put_number(o, "two", 2);
    put_number(o, "three", 3);
    put_number(o, "hundred", 100);
    put_op(o, "Less", "s", "two", "small");
    ru_pb_end(o);
    put_op(o, "If", "small", NULL, "next");
    for (int k = 0; k < 2; k++) {
        put_subgraph(o, branch[k]);
        put_op(o, k == 0 ? "Add" : "Mul", "s", k == 0 ? "two" : "three", "z");
        ru_pb_end(o);
        put_value(o, 12, "z", 1, 0);
        ru_pb_end(o);
        ru_pb_end(o);
    }
    ru_pb_end(o);
    put_op(o, "Less", "next", "hundred", "go_on");
    ru_pb_end(o);
    put_op(o, "SequenceInsert", "list", "next", "more");
    ru_pb_end(o);
    put_op(o, "Identity", "next", NULL, "seen");
    ru_pb_end(o);
    put_value(o, 11, "i", 7, 0);
    put_value(o, 11, "cond", 9, 0);
    put_value(o, 11, "s", 1, 0);
    put_value(o, 11, "list", 1, 0);
    put_value(o, 12, "go_on", 9, 0);
    put_value(o, 12, "next", 1, 0);
    put_value(o, 12, "more", 1, 0);
    put_value(o, 12, "seen", 1, 0);
    ru_pb_end(o);
    ru_pb_end(o);
}

/* x f32[] -> y f32[iterations]: what the stacked and the listed results add up to. */
static void put_model(ru_pb_out *o)
{
    ru_pb_out_init(o);
    ru_pb_put_u64(o, 1, 8);
    ru_pb_begin(o, 8);
    ru_pb_put_i64(o, 2, 17);
    ru_pb_end(o);
    ru_pb_begin(o, 7);
    put_op(o, "SequenceEmpty", NULL, NULL, "none");
    ru_pb_end(o);
    ru_pb_begin(o, 1);
    const char *const in[] = {"", "", "x", "none"}, *const out[] = {"last", "all", "stacked"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(in); k++) {
        ru_pb_put_str(o, 1, in[k]);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(out); k++) {
        ru_pb_put_str(o, 2, out[k]);
    }
    ru_pb_put_str(o, 4, "Loop");
    put_body(o);
    ru_pb_end(o);
    put_op(o, "ConcatFromSequence", "all", NULL, "joined");
    ru_pb_begin(o, 5);
    ru_pb_put_str(o, 1, "new_axis");
    ru_pb_put_i64(o, 3, 1);
    ru_pb_put_u64(o, 20, 2);
    ru_pb_end(o);
    ru_pb_end(o);
    put_op(o, "Add", "joined", "stacked", "y");
    ru_pb_end(o);
    put_value(o, 11, "x", 1, 0);
    put_value(o, 12, "y", 1, 6);
    ru_pb_end(o);
}

/* 1 becomes 3, 9, 27, 81, 243; 4 becomes 12, 36, 108: the iterations are as many as the data say.
 */
static void data_end_a_loop(void **state)
{
    (void)state;
    static const float from[] = {1, 4}, want[2][5] = {{3, 9, 27, 81, 243}, {12, 36, 108}};
    const int64_t trips[] = {5, 3};
    for (uint32_t c = 0; c < RU_ARRAY_LEN(from); c++) {
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_pb_out o;
        put_model(&o);
        ru_err err = {0};
        ru_graph g;
        ru_array x = {.name = "x", .type = {.dtype = RU_F32}, .data = &from[c]};
        ru_arrays arrays = {.at = &x, .n = 1, .cap = 1};
        const ru_exe_options eo = {.device = RU_DEVICE_CPU, .threads = 1};
        ru_settle s = {.opt = &eo, .arrays = &arrays, .arena = &arena};
        const ru_onnx_ahead ahead = ru_exe_ahead(&s);
        const ru_onnx_options opt = {.ahead = &ahead};
        assert_ok(ru_onnx_read_bound(o.data, o.size_bytes, &opt, &x, 1, &arena, &g, NULL, &err),
                  err);
        assert_ok(ru_exe_settle(&s, &g, &g, &err), err);
        ru_exe *exe;
        assert_ok(ru_exe_open(&g, &eo, &exe, &err), err);
        for (uint32_t k = 0; k < g.n_inputs; k++) {
            const ru_value *v = ru_graph_value(&g, g.inputs[k]);
            memcpy(ru_exe_input(exe, g.inputs[k]), ru_arrays_find(&arrays, v->name)->data,
                   (size_t)ru_type_bytes(&v->type));
        }
        assert_ok(ru_exe_run(exe, &(ru_run_args){0}, &err), err);
        assert_int_equal(ru_graph_value(&g, g.outputs[0])->type.dims[0], trips[c]);
        const float *y = ru_exe_output(exe, g.outputs[0]);
        for (int64_t k = 0; k < trips[c]; k++) {
            assert_true(y[k] == 2 * want[c][k]);
        }
        ru_exe_close(exe);
        /* nobody computes ahead: the node and what to do are named */
        assert_int_equal(ru_onnx_read(o.data, o.size_bytes, NULL, &arena, &g, NULL, &err),
                         RU_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "(If, opset 17): its condition depends on data"));
        ru_arena_fini(&arena);
        ru_pb_out_fini(&o);
    }
}

/* y = 2 x[x > 0.5], and the places: a mask selects as many elements as the data say. */
static void a_mask_selects(void **state)
{
    (void)state;
    static const float half = 0.5F, data[2][3] = {{1, 0, 2}, {0.25F, 3, -1}};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_graph g, settled;
    ru_err err = {0};
    ru_build b;
    assert_ok(ru_graph_init(&g, &arena, "mask", &err), err);
    ru_build_init(&b, &g);
    vid x = ru_build_input(&b, "x", ru_type_make(RU_F32, 2, (int64_t[]){2, 3}));
    vid mask = ru_build_op2(&b, RU_OP_Greater, x, scalar(&b, RU_F32, &half), NULL);
    vid at = ru_build_op1(&b, RU_OP_NonZero, mask, NULL);
    vid rows = ru_build_op1(&b, RU_OP_Transpose, at, NULL);
    vid some = ru_build_op2(&b, RU_OP_GatherND, x, rows, NULL);
    ru_build_output(&b, ru_build_op2(&b, RU_OP_Add, some, some, NULL), "y");
    ru_build_output(&b, rows, "places");
    assert_ok(ru_build_finish(&b, &err), err);
    ru_array given = {.name = "x", .type = ru_graph_value(&g, x)->type, .data = data};
    ru_arrays arrays = {.at = &given, .n = 1, .cap = 1};
    const ru_exe_options eo = {.device = RU_DEVICE_CPU, .threads = 1};
    ru_settle s = {.opt = &eo, .arrays = &arrays, .arena = &arena};
    assert_ok(ru_exe_settle(&s, &g, &settled, &err), err);
    ru_exe *exe;
    assert_ok(ru_exe_open(&settled, &eo, &exe, &err), err);
    for (uint32_t k = 0; k < settled.n_inputs; k++) {
        memcpy(ru_exe_input(exe, settled.inputs[k]), data, sizeof data);
    }
    assert_ok(ru_exe_run(exe, &(ru_run_args){0}, &err), err);
    static const float want[] = {2, 4, 6};
    static const int64_t places[] = {0, 0, 0, 2, 1, 1};
    assert_int_equal(ru_graph_value(&settled, settled.outputs[0])->type.dims[0], 3);
    assert_memory_equal(ru_exe_output(exe, settled.outputs[0]), want, sizeof want);
    assert_memory_equal(ru_exe_output(exe, settled.outputs[1]), places, sizeof places);
    ru_exe_close(exe);
    ru_arena_fini(&arena);
}

RU_TESTS(exec_settle, cmocka_unit_test(selected_boxes_decide_sizes),
         cmocka_unit_test(data_end_a_loop), cmocka_unit_test(a_mask_selects))
