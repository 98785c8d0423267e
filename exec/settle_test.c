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
    const ru_array given[] = {
        {.name = "boxes", .type = ru_graph_value(&g, x)->type, .data = boxes},
        {.name = "scores", .type = ru_graph_value(&g, s)->type, .data = scores}};
    const ru_exe_options eo = {.device = RU_DEVICE_CPU, .threads = 1};
    uint32_t ran;
    assert_ok(ru_exe_settle(&g, &eo, given, 2, &arena, &settled, &ran, &err), err);
    assert_int_equal(ran, 1);
    ru_exe *exe;
    assert_ok(ru_exe_open(&settled, &eo, &exe, &err), err);
    for (uint32_t k = 0; k < settled.n_inputs; k++) {
        const ru_value *v = ru_graph_value(&settled, settled.inputs[k]);
        memcpy(ru_exe_input(exe, settled.inputs[k]),
               strcmp(v->name, "boxes") == 0 ? &boxes[0][0] : scores,
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
    assert_int_equal(ru_exe_settle(&g, &eo, NULL, 0, &arena, &settled, &ran, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "give an array"));
    ru_arena_fini(&arena);
}

RU_TESTS(exec_settle, cmocka_unit_test(selected_boxes_decide_sizes))
