#include "world/onnx/onnx.h"

#include <string.h>

#include "test/test.h"

/* -- models made by hand: bytes as onnx.proto describes them ----------------------------------- */

typedef struct maker {
    ru_pb_out o;
} maker;

static void begin_model(maker *m, int64_t opset)
{
    ru_pb_out_init(&m->o);
    ru_pb_put_u64(&m->o, 1, 8);
    ru_pb_begin(&m->o, 8);
    ru_pb_put_i64(&m->o, 2, opset);
    ru_pb_end(&m->o);
    ru_pb_begin(&m->o, 7);
    ru_pb_put_str(&m->o, 2, "made");
}

static void put_info(maker *m, uint32_t field, const char *name, int64_t dtype, const int64_t *dims,
                     uint32_t rank, const char *symbol)
{
    ru_pb_begin(&m->o, field);
    ru_pb_put_str(&m->o, 1, name);
    ru_pb_begin(&m->o, 2);
    ru_pb_begin(&m->o, 1);
    ru_pb_put_i64(&m->o, 1, dtype);
    ru_pb_begin(&m->o, 2);
    for (uint32_t k = 0; k < rank; k++) {
        ru_pb_begin(&m->o, 1);
        if (dims[k] >= 0) {
            ru_pb_put_i64(&m->o, 1, dims[k]);
        } else {
            ru_pb_put_str(&m->o, 2, symbol);
        }
        ru_pb_end(&m->o);
    }
    for (int k = 0; k < 4; k++) {
        ru_pb_end(&m->o);
    }
}

/* Inputs and outputs are words with spaces between them; "-" is absent. */
static void begin_node(maker *m, uint32_t field, const char *op, const char *domain, const char *in,
                       const char *out)
{
    ru_pb_begin(&m->o, field);
    const char *const lists[] = {in, out};
    for (uint32_t k = 0; k < 2; k++) {
        char copy[256];
        (void)strncpy(copy, lists[k], sizeof copy - 1);
        copy[sizeof copy - 1] = 0;
        char *rest = NULL;
        for (char *w = strtok_r(copy, " ", &rest); w != NULL; w = strtok_r(NULL, " ", &rest)) {
            ru_pb_put_str(&m->o, k + 1, strcmp(w, "-") == 0 ? "" : w);
        }
    }
    ru_pb_put_str(&m->o, 3, "the_node");
    ru_pb_put_str(&m->o, 4, op);
    ru_pb_put_str(&m->o, 7, domain);
}

static void put_ints(maker *m, const char *name, const int64_t *v, uint32_t n)
{
    ru_pb_begin(&m->o, 5);
    ru_pb_put_str(&m->o, 1, name);
    ru_pb_put_packed_i64(&m->o, 8, v, n);
    ru_pb_put_u64(&m->o, 20, 7);
    ru_pb_end(&m->o);
}

static void put_int(maker *m, const char *name, int64_t v)
{
    ru_pb_begin(&m->o, 5);
    ru_pb_put_str(&m->o, 1, name);
    ru_pb_put_i64(&m->o, 3, v);
    ru_pb_put_u64(&m->o, 20, 2);
    ru_pb_end(&m->o);
}

static void put_float(maker *m, const char *name, float v)
{
    ru_pb_begin(&m->o, 5);
    ru_pb_put_str(&m->o, 1, name);
    ru_pb_put_f32(&m->o, 2, v);
    ru_pb_put_u64(&m->o, 20, 1);
    ru_pb_end(&m->o);
}

static ru_status read_made(maker *m, const ru_onnx_options *opt, ru_arena *arena, ru_graph *g,
                           ru_onnx_info *info, ru_err *err)
{
    return ru_onnx_read(m->o.data, m->o.size_bytes, opt, arena, g, info, err);
}

/* x f32[N,4] -> node -> y; the node is written by the caller between the two. */
static void begin_simple(maker *m, int64_t opset)
{
    begin_model(m, opset);
    put_info(m, 11, "x", 1, (int64_t[]){-1, 4}, 2, "N");
    put_info(m, 12, "y", 1, (int64_t[]){-1, 4}, 2, "N");
}

/* -- lifting ----------------------------------------------------------------------------------- */

static void attributes_become_inputs(void **state)
{
    (void)state;
    maker m;
    begin_simple(&m, 7);
    begin_node(&m, 1, "Clip", "", "x", "c");
    put_float(&m, "min", -1.5F);
    ru_pb_end(&m.o);
    begin_node(&m, 1, "ReduceSum", "", "c", "y");
    put_ints(&m, "axes", (int64_t[]){1}, 1);
    put_int(&m, "keepdims", 0);
    ru_pb_end(&m.o);
    ru_pb_end(&m.o);
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_graph g;
    ru_err err;
    assert_ok(read_made(&m, NULL, &arena, &g, NULL, &err), err);
    assert_int_equal(g.n_nodes, 3);
    const ru_node *clip = &g.nodes[1], *sum = &g.nodes[2];
    assert_int_equal(clip->n_in, 2);
    assert_true(*(const float *)g.values[clip->in[1].v].data == -1.5F);
    assert_int_equal(clip->n_attrs, 0);
    assert_int_equal(sum->n_in, 2);
    assert_int_equal(*(const int64_t *)g.values[sum->in[1].v].data, 1);
    assert_int_equal(g.values[g.outputs[0].v].type.rank, 1);
    ru_arena_fini(&arena);
    ru_pb_out_fini(&m.o);
}

/* Before opset 13 the softmax of axis 0 runs over all elements: it is flattened and shaped back. */
static void softmax_of_old_opsets(void **state)
{
    (void)state;
    const struct {
        int64_t opset;
        uint32_t nodes;
    } cases[] = {{11, 4}, {13, 1}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        maker m;
        begin_simple(&m, cases[k].opset);
        begin_node(&m, 1, "Softmax", "", "x", "y");
        put_int(&m, "axis", 0);
        ru_pb_end(&m.o);
        ru_pb_end(&m.o);
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_graph g;
        ru_err err;
        assert_ok(read_made(&m, NULL, &arena, &g, NULL, &err), err);
        assert_int_equal(g.n_nodes - 1, cases[k].nodes);
        assert_string_equal(g.values[g.outputs[0].v].name, "y");
        ru_arena_fini(&arena);
        ru_pb_out_fini(&m.o);
    }
}

/* -- classical models ---------------------------------------------------------------------------
 */

/* An attribute of a classifier of one tree with two leaves: integers, else floats, else texts. */
typedef struct list {
    const char *name, *texts[3];
    const int64_t *ints;
    uint32_t n;
    ru_status without; /* what the reader says when the list is absent */
} list;

static void put_list(maker *m, const list *l)
{
    static const float zeros[3] = {0};
    ru_pb_begin(&m->o, 5);
    ru_pb_put_str(&m->o, 1, l->name);
    for (uint32_t k = 0; l->texts[0] != NULL && k < l->n; k++) {
        ru_pb_put_str(&m->o, 9, l->texts[k]);
    }
    if (l->ints != NULL) {
        ru_pb_put_packed_i64(&m->o, 8, l->ints, l->n);
    } else if (l->texts[0] == NULL) {
        ru_pb_put_bytes(&m->o, 7, zeros, l->n * (int64_t)sizeof zeros[0]);
    }
    ru_pb_put_u64(&m->o, 20, l->texts[0] != NULL ? 8 : l->ints != NULL ? 7 : 6);
    ru_pb_end(&m->o);
}

/* Each list is left out alone, and those of the classes together. */
static void trees_without_a_list(void **state)
{
    (void)state;
    static const int64_t zeros[3] = {0}, ids[3] = {0, 1, 2}, yes[3] = {1}, no[3] = {2};
    static const list lists[] = {
        {"class_treeids", {0}, zeros, 2, RU_E_DATA},
        {"class_nodeids", {0}, ids + 1, 2, RU_E_DATA},
        {"class_ids", {0}, zeros, 2, RU_E_DATA},
        {"class_weights", {0}, NULL, 2, RU_E_DATA},
        {"classlabels_int64s", {0}, ids, 2, RU_E_UNSUPPORTED},
        {"nodes_treeids", {0}, zeros, 3, RU_E_DATA},
        {"nodes_nodeids", {0}, ids, 3, RU_E_DATA},
        {"nodes_featureids", {0}, zeros, 3, RU_E_DATA},
        {"nodes_truenodeids", {0}, yes, 3, RU_E_DATA},
        {"nodes_falsenodeids", {0}, no, 3, RU_E_DATA},
        {"nodes_values", {0}, NULL, 3, RU_E_DATA},
        {"nodes_modes", {"BRANCH_LEQ", "LEAF", "LEAF"}, NULL, 3, RU_E_DATA},
    };
    for (uint32_t out = 0; out <= RU_ARRAY_LEN(lists) + 1;
         out++) { /* len: none; len + 1: classes */
        maker m;
        begin_simple(&m, 17);
        begin_node(&m, 1, "TreeEnsembleClassifier", "ai.onnx.ml", "x", "l y");
        for (uint32_t k = out > RU_ARRAY_LEN(lists) ? 4 : 0; k < RU_ARRAY_LEN(lists); k++) {
            if (k != out) {
                put_list(&m, &lists[k]);
            }
        }
        ru_pb_end(&m.o);
        ru_pb_end(&m.o);
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_graph g;
        ru_err err;
        ru_status st = read_made(&m, NULL, &arena, &g, NULL, &err);
        if (out == RU_ARRAY_LEN(lists)) {
            assert_ok(st, err);
        } else if (out < RU_ARRAY_LEN(lists)) {
            assert_int_equal(st, lists[out].without);
        } else {
            assert_int_equal(st, RU_E_DATA);
            assert_non_null(strstr(err.text, "class_treeids is empty"));
        }
        ru_arena_fini(&arena);
        ru_pb_out_fini(&m.o);
    }
}

/* -- functions --------------------------------------------------------------------------------- */

/* Function "twice(a; k)" = Concat of a with itself along axis @k; the graph calls it two deep. */
static void functions_are_inlined(void **state)
{
    (void)state;
    maker m;
    begin_simple(&m, 17);
    begin_node(&m, 1, "outer", "mine", "x", "y");
    put_int(&m, "k", 1);
    ru_pb_end(&m.o);
    ru_pb_end(&m.o);
    const char *const names[] = {"outer", "twice"};
    for (uint32_t k = 0; k < 2; k++) {
        ru_pb_begin(&m.o, 25);
        ru_pb_put_str(&m.o, 1, names[k]);
        ru_pb_put_str(&m.o, 4, "a");
        ru_pb_put_str(&m.o, 5, "b");
        ru_pb_put_str(&m.o, 6, "k");
        begin_node(&m, 7, k == 0 ? "twice" : "Concat", k == 0 ? "mine" : "", k == 0 ? "a" : "a a",
                   "b");
        ru_pb_begin(&m.o, 5);
        ru_pb_put_str(&m.o, 1, k == 0 ? "k" : "axis");
        ru_pb_put_u64(&m.o, 20, 2);
        ru_pb_put_str(&m.o, 21, "k");
        ru_pb_end(&m.o);
        ru_pb_end(&m.o);
        ru_pb_begin(&m.o, 9);
        ru_pb_put_i64(&m.o, 2, 17);
        ru_pb_end(&m.o);
        ru_pb_put_str(&m.o, 10, "mine");
        ru_pb_end(&m.o);
    }
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_graph g;
    ru_onnx_info info;
    ru_err err;
    assert_ok(read_made(&m, NULL, &arena, &g, &info, &err), err);
    assert_int_equal(info.n_functions, 2);
    assert_int_equal(g.n_nodes, 2);
    assert_int_equal(g.nodes[1].op, RU_OP_Concat);
    assert_int_equal(ru_node_int(&g.nodes[1], RU_ATTR_axis, -9), 1);
    assert_int_equal(g.values[g.outputs[0].v].type.dims[1], 8);
    ru_arena_fini(&arena);
    ru_pb_out_fini(&m.o);
}

/* f calls g and g calls f: refused, not followed for ever. */
static void endless_calls(void **state)
{
    (void)state;
    maker m;
    begin_simple(&m, 17);
    begin_node(&m, 1, "f", "mine", "x", "y");
    ru_pb_end(&m.o);
    ru_pb_end(&m.o);
    const char *const names[] = {"f", "g"};
    for (uint32_t k = 0; k < 2; k++) {
        ru_pb_begin(&m.o, 25);
        ru_pb_put_str(&m.o, 1, names[k]);
        ru_pb_put_str(&m.o, 4, "a");
        ru_pb_put_str(&m.o, 5, "b");
        begin_node(&m, 7, names[1 - k], "mine", "a", "b");
        ru_pb_end(&m.o);
        ru_pb_put_str(&m.o, 10, "mine");
        ru_pb_end(&m.o);
    }
    ru_arena arena;
    ru_arena_init(&arena, 1 << 22);
    ru_graph g;
    ru_err err;
    assert_int_equal(read_made(&m, NULL, &arena, &g, NULL, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "deep"));
    ru_arena_fini(&arena);
    ru_pb_out_fini(&m.o);
}

/* -- refusals ---------------------------------------------------------------------------------- */

typedef struct refusal {
    int64_t opset;
    const char *op, *domain, *in, *say;
    ru_status st;
    const char *attr; /* an integer; NULL: none */
} refusal;

static void errors_name_node_op_and_opset(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {17, "Frobnicate", "", "x", "'the_node' (Frobnicate, opset 17)", RU_E_UNSUPPORTED, NULL},
        {17, "Relu", "com.example", "x", "domain 'com.example'", RU_E_UNSUPPORTED, NULL},
        {29, "Relu", "", "x", "opset 29", RU_E_UNSUPPORTED, NULL},
        {17, "MatMul", "", "x x x", "3 inputs", RU_E_DATA, NULL},
        {17, "Conv", "", "x x x x", "4 inputs", RU_E_DATA, NULL},
        {17, "Relu", "", "x", "'axis' is not known", RU_E_UNSUPPORTED, "axis"},
        {17, "MatMul", "", "x x", "'transB' is not known", RU_E_UNSUPPORTED, "transB"},
        {17, "Conv", "", "x x", "'activation_alpha' is not", RU_E_UNSUPPORTED, "activation_alpha"},
        {18, "ReduceMean", "", "x", "'axes' is not known", RU_E_UNSUPPORTED, "axes"},
        {24, "Swish", "", "x", "'axis' is not known", RU_E_UNSUPPORTED, "axis"},
        {28, "SwiGLU", "", "x", "1 inputs", RU_E_DATA, NULL},
        {23, "Cast", "", "x", "'round_mode' is not known", RU_E_UNSUPPORTED, "round_mode"},
        {24, "Cast", "", "x", "'' is none of up, down, nearest", RU_E_DATA, "round_mode"},
        {24, "CastLike", "", "x x", "'' is none of up, down, near", RU_E_DATA, "round_mode"},
        {17, "Relu", "", "nobody", "'nobody', which no earlier node computes", RU_E_DATA, NULL},
        {17, "Relu", "", "x x x", "3 inputs", RU_E_DATA, NULL},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        maker m;
        begin_simple(&m, cases[k].opset);
        begin_node(&m, 1, cases[k].op, cases[k].domain, cases[k].in, "y");
        if (cases[k].attr != NULL) {
            put_int(&m, cases[k].attr, 1);
        }
        ru_pb_end(&m.o);
        ru_pb_end(&m.o);
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_graph g;
        ru_err err = {0};
        assert_int_equal(read_made(&m, NULL, &arena, &g, NULL, &err), cases[k].st);
        if (strstr(err.text, cases[k].say) == NULL) {
            fail_msg("case %u: %s", k, err.text);
        }
        ru_arena_fini(&arena);
        ru_pb_out_fini(&m.o);
    }
}

/* Its A and B have one size; a symbol may still turn out equal. */
static void swiglu_broadcasts_nothing(void **state)
{
    (void)state;
    static const struct {
        uint32_t rank;
        int64_t dims[2];
        ru_status st;
    } cases[] = {
        {2, {-1, 4}, RU_OK}, {2, {3, 4}, RU_OK}, {2, {-1, 1}, RU_E_DATA}, {1, {4}, RU_E_DATA}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        maker m;
        begin_simple(&m, 28);
        put_info(&m, 11, "b", 1, cases[k].dims, cases[k].rank, "N");
        begin_node(&m, 1, "SwiGLU", "", "x b", "y");
        ru_pb_end(&m.o);
        ru_pb_end(&m.o);
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_graph g;
        ru_err err = {0};
        assert_int_equal(read_made(&m, NULL, &arena, &g, NULL, &err), cases[k].st);
        assert_int_equal(strstr(err.text, "differ in their sizes") != NULL, cases[k].st != RU_OK);
        ru_arena_fini(&arena);
        ru_pb_out_fini(&m.o);
    }
}

/* then: y = Neg(x), else: y = Abs(x). */
static void put_branches(maker *m)
{
    static const char *const names[] = {"then_branch", "else_branch"};
    for (int k = 0; k < 2; k++) {
        ru_pb_begin(&m->o, 5);
        ru_pb_put_str(&m->o, 1, names[k]);
        ru_pb_begin(&m->o, 6);
        begin_node(m, 1, k == 0 ? "Neg" : "Abs", "", "x", "z");
        ru_pb_end(&m->o);
        put_info(m, 12, "z", 1, (int64_t[]){-1, 4}, 2, "N");
        ru_pb_end(&m->o);
        ru_pb_put_u64(&m->o, 20, 5);
        ru_pb_end(&m->o);
    }
}

/* A branch that a size decides is taken; one that data decides is refused with what to do; an input
 * that decides must be fixed. */
static void a_known_condition_chooses_its_branch(void **state)
{
    (void)state;
    for (int64_t k = 0; k < 3; k++) { /* the size of axis 1, of axis 0, an input */
        maker m;
        begin_simple(&m, 17);
        put_info(&m, 11, "flag", 9, NULL, 0, NULL);
        begin_node(&m, 1, "Shape", "", "x", "s");
        put_int(&m, "start", k == 0);
        put_int(&m, "end", k == 0 ? 2 : 1);
        ru_pb_end(&m.o);
        begin_node(&m, 1, "Cast", "", "s", "c");
        put_int(&m, "to", 9);
        ru_pb_end(&m.o);
        begin_node(&m, 1, "If", "", k < 2 ? "c" : "flag", "y");
        put_branches(&m);
        ru_pb_end(&m.o);
        ru_pb_end(&m.o);
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_graph g;
        ru_err err = {0};
        ru_onnx_info info;
        ru_status st = read_made(&m, NULL, &arena, &g, NULL, &err);
        assert_int_equal(st, k == 0 ? RU_OK : RU_E_UNSUPPORTED);
        assert_true(k == 0 || strstr(err.text, "give dimensions values") != NULL);
        ru_onnx_options sign = {.signature = true};
        assert_ok(read_made(&m, &sign, &arena, &g, &info, &err), err);
        assert_false(info.shapes[0]);
        assert_int_equal(info.shapes[1], k == 2);
        static const uint8_t no = 0;
        static const float data[12];
        const ru_array given[] = {
            {.name = "x", .type = ru_type_make(RU_F32, 2, (int64_t[]){3, 4}), .data = data},
            {.name = "flag", .type = {.dtype = RU_BOOL}, .data = &no}};
        assert_ok(
            ru_onnx_read_bound(m.o.data, m.o.size_bytes, NULL, given, 2, &arena, &g, &info, &err),
            err);
        assert_int_equal(g.nodes[g.n_nodes - 1].op, k < 2 ? RU_OP_Neg : RU_OP_Abs);
        ru_arena_fini(&arena);
        ru_pb_out_fini(&m.o);
    }
}

/* What PyTorch writes for F.pad: a list reshaped to pairs, turned round by a Slice with step -1,
 * transposed and flattened. */
static void computed_pads_are_followed(void **state)
{
    (void)state;
    maker m;
    begin_model(&m, 17);
    put_info(&m, 11, "x", 1, (int64_t[]){-1, 3, 9, 9}, 4, "N");
    put_info(&m, 11, "w", 1, (int64_t[]){4, 3, 3, 3}, 4, NULL);
    put_info(&m, 12, "y", 1, (int64_t[]){-1, 4, 0, 0}, 4, "N");
    static const struct {
        const char *op, *in, *out, *attr;
        int64_t v[8];
        uint32_t n;
    } nodes[] = {
        {"Constant", "", "list", "value_ints", {1, 2, 3, 4, 0, 0, 0, 0}, 8},
        {"Constant", "", "pairs", "value_ints", {-1, 2}, 2},
        {"Reshape", "list pairs", "r", NULL, {0}, 0},
        {"Constant", "", "minus", "value_ints", {-1}, 1},
        {"Constant", "", "low", "value_ints", {INT64_MIN + 1}, 1},
        {"Constant", "", "zero", "value_ints", {0}, 1},
        {"Slice", "r minus low zero minus", "s", NULL, {0}, 0},
        {"Transpose", "s", "t", "perm", {1, 0}, 2},
        {"Reshape", "t minus", "pads", NULL, {0}, 0},
        {"Pad", "x pads", "p", NULL, {0}, 0},
        {"Conv", "p w", "y", NULL, {0}, 0},
    };
    for (size_t k = 0; k < RU_ARRAY_LEN(nodes); k++) {
        begin_node(&m, 1, nodes[k].op, "", nodes[k].in, nodes[k].out);
        if (nodes[k].attr != NULL) {
            put_ints(&m, nodes[k].attr, nodes[k].v, nodes[k].n);
        }
        ru_pb_end(&m.o);
    }
    ru_pb_end(&m.o);
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_graph g;
    ru_err err = {0};
    assert_ok(read_made(&m, NULL, &arena, &g, NULL, &err), err);
    const ru_type *t = &g.values[g.outputs[0].v].type;
    assert_int_equal(t->dims[1], 4);
    assert_int_equal(t->dims[2], 9 + 3 + 4 - 2);
    assert_int_equal(t->dims[3], 9 + 1 + 2 - 2);
    ru_arena_fini(&arena);
    ru_pb_out_fini(&m.o);
}

static void subgraphs_and_types_are_refused(void **state)
{
    (void)state;
    maker m;
    begin_simple(&m, 17);
    begin_node(&m, 1, "Relu", "", "x", "y");
    ru_pb_begin(&m.o, 5);
    ru_pb_put_str(&m.o, 1, "axis");
    ru_pb_begin(&m.o, 6);
    ru_pb_end(&m.o);
    ru_pb_put_u64(&m.o, 20, 5);
    ru_pb_end(&m.o);
    ru_pb_end(&m.o);
    ru_pb_end(&m.o);
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_graph g;
    ru_err err;
    assert_int_equal(read_made(&m, NULL, &arena, &g, NULL, &err), RU_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "subgraph"));
    ru_pb_out_fini(&m.o);

    begin_model(&m, 17);
    put_info(&m, 11, "waves", 14, (int64_t[]){3}, 1, "");
    ru_pb_end(&m.o);
    assert_int_equal(read_made(&m, NULL, &arena, &g, NULL, &err), RU_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'waves' has element type complex64 (14)"));
    ru_arena_fini(&arena);
    ru_pb_out_fini(&m.o);
}

/* -- tensors ----------------------------------------------------------------------------------- */

static ru_status tensor_of(ru_pb_out *o, ru_arena *arena, ru_type *t, const void **data,
                           ru_err *err)
{
    return ru_onnx_tensor_read(o->data, o->size_bytes, NULL, arena, t, data, NULL, err);
}

/* The same three numbers packed, one by one, raw, and as half floats in int32_data. */
static void tensors_in_every_form(void **state)
{
    (void)state;
    const float want[3] = {1.5F, -2, 0.25F};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    for (int form = 0; form < 5; form++) {
        ru_pb_out o;
        ru_pb_out_init(&o);
        ru_pb_put_packed_i64(&o, 1, (int64_t[]){3}, 1);
        ru_pb_put_i64(&o, 2, form < 3 ? 1 : form == 3 ? 10 : 16);
        if (form == 0) {
            ru_pb_put_bytes(&o, 4, want, sizeof want); /* packed */
        } else if (form == 2) {
            ru_pb_put_bytes(&o, 9, want, sizeof want);
        }
        for (int k = 0; k < 3; k++) {
            if (form == 1) {
                ru_pb_put_f32(&o, 4, want[k]);
            } else if (form > 2) {
                uint16_t bits = form == 3 ? ru_f32_to_f16(want[k]) : ru_f32_to_bf16(want[k]);
                ru_pb_put_u64(&o, 5, bits);
            }
        }
        ru_type t;
        const void *data = NULL;
        ru_err err;
        assert_ok(tensor_of(&o, &arena, &t, &data, &err), err);
        for (int k = 0; k < 3; k++) {
            uint16_t half = form > 2 ? ((const uint16_t *)data)[k] : 0;
            float x = form < 3    ? ((const float *)data)[k]
                      : form == 3 ? ru_f16_to_f32(half)
                                  : ru_bf16_to_f32(half);
            assert_true(x == want[k]);
        }
        ru_pb_out_fini(&o);
    }
    ru_arena_fini(&arena);
}

static void hostile_tensors(void **state)
{
    (void)state;
    const int64_t huge[2] = {INT64_MAX / 32, INT64_MAX / 32};
    const int64_t negative[1] = {-1};
    const int64_t three[1] = {3};
    const struct {
        const int64_t *dims;
        uint32_t n;
        int64_t dtype;
        ru_status st;
    } cases[] = {{huge, 2, 1, RU_E_DATA},
                 {negative, 1, 1, RU_E_DATA},
                 {three, 1, 1, RU_E_DATA}, /* 8 bytes for 3 elements */
                 {three, 1, 8, RU_E_UNSUPPORTED},
                 {three, 1, 99, RU_E_UNSUPPORTED}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        ru_pb_out o;
        ru_pb_out_init(&o);
        ru_pb_put_packed_i64(&o, 1, cases[k].dims, cases[k].n);
        ru_pb_put_i64(&o, 2, cases[k].dtype);
        ru_pb_put_bytes(&o, 9, "12345678", 8);
        ru_arena arena;
        ru_arena_init(&arena, 1 << 20);
        ru_type t;
        const void *data = NULL;
        ru_err err;
        assert_int_equal(tensor_of(&o, &arena, &t, &data, &err), cases[k].st);
        ru_arena_fini(&arena);
        ru_pb_out_fini(&o);
    }
}

/* -- shapes and training ------------------------------------------------------------------------
 */

/* x reshaped by the input `s`: s decides a shape, x does not; binding both makes y concrete. */
static void binds_shape_inputs(void **state)
{
    (void)state;
    maker m;
    begin_simple(&m, 17);
    put_info(&m, 11, "s", 7, (int64_t[]){2}, 1, "");
    begin_node(&m, 1, "Reshape", "", "x s", "y");
    ru_pb_end(&m.o);
    ru_pb_end(&m.o);
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_graph g;
    ru_onnx_info info;
    ru_err err;
    assert_ok(read_made(&m, &(ru_onnx_options){.signature = true}, &arena, &g, &info, &err), err);
    assert_int_equal(g.n_inputs, 2);
    assert_false(info.shapes[0]);
    assert_true(info.shapes[1]);

    const float x[12] = {0};
    const int64_t s[2] = {2, -1};
    const ru_array arrays[] = {{"x", {.dtype = RU_F32, .rank = 2, .dims = {3, 4}}, x, NULL},
                               {"s", {.dtype = RU_I64, .rank = 1, .dims = {2}}, s, NULL}};
    assert_ok(
        ru_onnx_read_bound(m.o.data, m.o.size_bytes, NULL, arrays, 2, &arena, &g, &info, &err),
        err);
    assert_int_equal(g.n_inputs, 1);
    assert_int_equal(g.values[g.outputs[0].v].type.dims[1], 6);

    const ru_array wrong[] = {{"x", {.dtype = RU_F32, .rank = 2, .dims = {3, 5}}, x, NULL}};
    assert_int_equal(
        ru_onnx_read_bound(m.o.data, m.o.size_bytes, NULL, wrong, 1, &arena, &g, &info, &err),
        RU_E_DATA);
    assert_non_null(strstr(err.text, "f32[3,5]"));
    ru_arena_fini(&arena);
    ru_pb_out_fini(&m.o);
}

static void put_weight(maker *m, const char *name, int64_t n)
{
    float data[16] = {0};
    ru_pb_begin(&m->o, 5);
    ru_pb_put_packed_i64(&m->o, 1, &n, 1);
    ru_pb_put_i64(&m->o, 2, 1);
    ru_pb_put_str(&m->o, 8, name);
    ru_pb_put_bytes(&m->o, 9, data, n * 4);
    ru_pb_end(&m->o);
}

static void weights_become_state_for_training(void **state)
{
    (void)state;
    maker m;
    begin_simple(&m, 17);
    const char *const names[] = {"scale", "bias", "mean", "var", "unused"};
    for (uint32_t k = 0; k < 5; k++) {
        put_weight(&m, names[k], 4);
    }
    begin_node(&m, 1, "BatchNormalization", "", "x scale bias mean var", "y");
    ru_pb_end(&m.o);
    ru_pb_end(&m.o);
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_graph g;
    ru_err err;
    assert_ok(read_made(&m, &(ru_onnx_options){.train = true}, &arena, &g, NULL, &err), err);
    const ru_value_role want[] = {RU_ROLE_PARAM, RU_ROLE_PARAM, RU_ROLE_BUFFER, RU_ROLE_BUFFER};
    for (uint32_t k = 0; k < 4; k++) {
        const ru_value *v = ru_graph_value(&g, ru_graph_find(&g, names[k]));
        assert_int_equal(v->kind, RU_VALUE_STATE);
        assert_int_equal(v->role, want[k]);
    }
    assert_int_equal(ru_graph_find(&g, "unused").v, 0);
    ru_arena_fini(&arena);
    ru_pb_out_fini(&m.o);
}

/* -- whole files ------------------------------------------------------------------------------- */

/* Read, write, read: the second graph computes the same by structure. Every cut of the written
 * bytes is an error or a smaller model, never a step outside. */
static void written_is_read_again(void **state)
{
    (void)state;
    maker m;
    begin_simple(&m, 12);
    put_weight(&m, "slope", 4);
    begin_node(&m, 1, "PRelu", "", "x slope", "p");
    ru_pb_end(&m.o);
    begin_node(&m, 1, "ReduceMean", "", "p", "r");
    put_ints(&m, "axes", (int64_t[]){-1}, 1);
    ru_pb_end(&m.o);
    begin_node(&m, 1, "Sub", "", "p r", "y");
    ru_pb_end(&m.o);
    ru_pb_end(&m.o);
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_graph g, again;
    ru_err err;
    assert_ok(read_made(&m, NULL, &arena, &g, NULL, &err), err);
    const int64_t opsets[] = {17, 21};
    for (uint32_t k = 0; k < 2; k++) {
        ru_pb_out o;
        ru_pb_out_init(&o);
        ru_onnx_write_options opt = {.opset = opsets[k]};
        ru_onnx_info info;
        assert_ok(ru_onnx_write(&g, &opt, &arena, &o, &err), err);
        assert_ok(ru_onnx_read(o.data, o.size_bytes, NULL, &arena, &again, &info, &err), err);
        assert_int_equal(info.opset, opsets[k]);
        assert_int_equal(ru_graph_hash(&again), ru_graph_hash(&g));
        for (int64_t cut = 0; cut < o.size_bytes; cut++) {
            uint8_t *part = malloc((size_t)cut + 1);
            memcpy(part, o.data, (size_t)cut);
            ru_arena small;
            ru_arena_init(&small, 1 << 20);
            (void)(ru_onnx_read(part, cut, NULL, &small, &again, NULL, &err) == RU_OK);
            ru_arena_fini(&small);
            free(part);
        }
        ru_pb_out_fini(&o);
    }
    ru_arena_fini(&arena);
    ru_pb_out_fini(&m.o);
}

/* The tensors of a sequence are outputs of their own, unless their names are taken. */
static void outputs_that_are_sequences(void **state)
{
    (void)state;
    for (uint32_t taken = 0; taken < 2; taken++) {
        maker m;
        begin_simple(&m, 17);
        if (taken != 0) {
            put_info(&m, 12, "y_1", 1, (int64_t[]){-1, 4}, 2, "N");
        }
        begin_node(&m, 1, "Relu", "", "x", taken != 0 ? "y_1" : "r");
        ru_pb_end(&m.o);
        begin_node(&m, 1, "SequenceConstruct", "", taken != 0 ? "y_1 x" : "r x", "y");
        ru_pb_end(&m.o);
        ru_pb_end(&m.o);
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_graph g;
        ru_onnx_info info;
        ru_err err;
        if (taken != 0) {
            assert_int_equal(read_made(&m, NULL, &arena, &g, &info, &err), RU_E_UNSUPPORTED);
            assert_non_null(strstr(err.text, "called like output 'y_1'"));
        } else {
            assert_ok(read_made(&m, NULL, &arena, &g, &info, &err), err);
            assert_int_equal(g.n_outputs, 2);
            assert_string_equal(info.outputs[0], "y_0");
            assert_string_equal(info.outputs[1], "y_1");
        }
        ru_arena_fini(&arena);
        ru_pb_out_fini(&m.o);
    }
}

RU_TESTS(world_onnx, cmocka_unit_test(attributes_become_inputs),
         cmocka_unit_test(outputs_that_are_sequences), cmocka_unit_test(softmax_of_old_opsets),
         cmocka_unit_test(trees_without_a_list), cmocka_unit_test(functions_are_inlined),
         cmocka_unit_test(endless_calls), cmocka_unit_test(errors_name_node_op_and_opset),
         cmocka_unit_test(swiglu_broadcasts_nothing),
         cmocka_unit_test(subgraphs_and_types_are_refused),
         cmocka_unit_test(a_known_condition_chooses_its_branch),
         cmocka_unit_test(computed_pads_are_followed), cmocka_unit_test(tensors_in_every_form),
         cmocka_unit_test(hostile_tensors), cmocka_unit_test(binds_shape_inputs),
         cmocka_unit_test(weights_become_state_for_training),
         cmocka_unit_test(written_is_read_again))
