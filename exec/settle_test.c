/* Sizes that selected boxes decide: the graph before runs once, the rest has numbers for shapes. */
#include "exec/settle.h"
#include "test/test.h"
#include "world/build.h"

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
         cmocka_unit_test(a_mask_selects))
