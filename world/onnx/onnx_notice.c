/* What training an imported file means beside its author's model.
 *
 * An export for inference may fold batch normalisation into convolutions, leave dropout out, keep
 * one of several weights that were equal at the time, or transpose one of two tied weights, which
 * unties them. The file then says little of it: names and notes of the exporter, and equal data.
 *
 * Source: torch.onnx (names like onnx::Conv_25 for computed weights) and onnxscript (the name of a
 * rewriting rule in a node's metadata), both of PyTorch 2.14 */
#include "world/onnx/onnx_notice.h"

#include <string.h>

#include "base/str.h"

typedef struct facts {
    uint32_t folded;   /* normalisations inside weights */
    bool no_dropout;   /* PyTorch wrote it, and there is none */
    uint32_t shared;   /* matrices that several nodes read */
    const char *one;   /* name of the first of them */
    const char *a, *b; /* matrices of the same numbers; NULL: none */
} facts;

/* A trained matrix or kernel. */
static bool is_weight(const ru_graph *g, ru_value_id v)
{
    const ru_value *x = &g->values[v.v];
    uint32_t wide = 0;
    for (uint32_t k = 0; k < x->type.rank; k++) {
        wide += x->type.dims[k] != 1;
    }
    return v.v != 0 && x->kind == RU_VALUE_STATE && x->role == RU_ROLE_PARAM && wide >= 2;
}

/* The value behind copies of it. */
static ru_value_id origin(const ru_graph *g, ru_value_id v)
{
    const ru_value *x = &g->values[v.v];
    while (v.v != 0 && x->kind == RU_VALUE_TEMP && x->producer.v != 0 &&
           ru_graph_node(g, x->producer)->op == RU_OP_Identity) {
        v = ru_graph_node(g, x->producer)->in[0];
        x = &g->values[v.v];
    }
    return v;
}

static bool reads_data(ru_op op)
{
    return op != RU_OP_Identity && op != RU_OP_Shape && op != RU_OP_Size && op != RU_OP_CastLike;
}

static ru_status count_uses(const ru_graph *g, ru_arena *arena, facts *f, ru_err *err)
{
    uint32_t *uses = RU_NEW(arena, uint32_t, g->n_values);
    if (uses == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "onnx: the arena is full");
    }
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->n_in && reads_data(n->op); k++) {
            ru_value_id v = origin(g, n->in[k]);
            if (is_weight(g, v) && ++uses[v.v] == 2 && f->shared++ == 0) {
                f->one = g->values[v.v].name;
            }
        }
    }
    return RU_OK;
}

/* Are the f32 matrices x and y the same numbers, y perhaps transposed, and not all one number? */
static bool same_numbers(const ru_value *x, const ru_value *y)
{
    int64_t rows = x->type.dims[0], cols = x->type.dims[1];
    bool straight = y->type.dims[0] == rows && y->type.dims[1] == cols;
    bool turned = y->type.dims[0] == cols && y->type.dims[1] == rows;
    const float *a = x->data, *b = y->data;
    bool varied = false;
    for (int64_t i = 0; i < rows && (straight || turned); i++) {
        for (int64_t j = 0; j < cols; j++) {
            float v = a[i * cols + j];
            straight = straight && v == b[i * cols + j];
            turned = turned && v == b[j * rows + i];
            varied = varied || v != a[0];
            if (!straight && !turned) {
                return false;
            }
        }
    }
    return varied && (straight || turned);
}

static bool is_matrix(const ru_graph *g, uint32_t v)
{
    const ru_value *x = &g->values[v];
    return is_weight(g, (ru_value_id){v}) && x->type.rank == 2 && x->type.dtype == RU_F32 &&
           x->data != NULL;
}

/* Most pairs differ in their first numbers. */
static void find_untied(const ru_graph *g, facts *f)
{
    for (uint32_t i = 1; i < g->n_values && f->a == NULL; i++) {
        for (uint32_t j = i + 1; is_matrix(g, i) && j < g->n_values && f->a == NULL; j++) {
            if (is_matrix(g, j) && same_numbers(&g->values[i], &g->values[j])) {
                f->a = g->values[i].name;
                f->b = g->values[j].name;
            }
        }
    }
}

/* torch.onnx gives the products of folding names of their first reader. */
static bool named_by_folding(const char *name)
{
    static const char *const heads[] = {"onnx::Conv_", "onnx::ConvTranspose_"};
    return ru_str_starts(ru_str_c(name), heads[0]) || ru_str_starts(ru_str_c(name), heads[1]);
}

static void look(const rui_onnx_model *m, const ru_graph *g, facts *f)
{
    bool dropout = false;
    f->folded = m->n_norms_fused;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const ru_node *n = &g->nodes[i];
        bool conv = n->op == RU_OP_Conv || n->op == RU_OP_ConvTranspose;
        f->folded += conv && named_by_folding(g->values[n->in[1].v].name) ? 1 : 0;
        dropout = dropout || n->op == RU_OP_Dropout;
    }
    f->no_dropout = !dropout && strcmp(m->producer, "pytorch") == 0;
    find_untied(g, f);
}

static void write_facts(const facts *f, ru_text *t)
{
    const char *sep = "";
    if (f->folded > 0) {
        ru_text_putf(t, "%u normalisation%s folded into weights and not trained as such", f->folded,
                     f->folded == 1 ? " is" : "s are");
        sep = "; ";
    }
    if (f->no_dropout) {
        ru_text_putf(t, "%sit has no Dropout, because an export for inference removes it", sep);
        sep = "; ";
    }
    if (f->shared > 0) {
        ru_text_putf(t, "%s'%s'", sep, f->one);
        if (f->shared > 1) {
            ru_text_putf(t, " and %u more weight%s are", f->shared - 1, f->shared == 2 ? "" : "s");
        } else {
            ru_text_put(t, " is");
        }
        ru_text_put(t, " shared by several layers, tied by the author or merged by the exporter");
        sep = "; ";
    }
    if (f->a != NULL) {
        ru_text_putf(t, "%s'%s' and '%s' contain the same numbers and are trained separately", sep,
                     f->a, f->b);
    }
}

ru_status rui_onnx_notice(const rui_onnx_model *m, const ru_graph *g, ru_arena *arena,
                          const char **out, ru_err *err)
{
    facts f = {0};
    *out = NULL;
    if (ru_graph_trains(g)) {
        return RU_OK; /* what it shows is what its author trains */
    }
    look(m, g, &f);
    RU_TRY(count_uses(g, arena, &f, err));
    if (f.folded == 0 && !f.no_dropout && f.shared == 0 && f.a == NULL) {
        return RU_OK;
    }
    ru_text t = ru_text_arena(arena);
    write_facts(&f, &t);
    ru_text_put(&t, "; torch.onnx.export(model.train(), args, file, dynamo=False, "
                    "training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False) keeps "
                    "them as they are in the model");
    if (t.cut) {
        return RU_FAIL(err, RU_E_LIMIT, "onnx: the arena is full");
    }
    *out = t.p;
    return RU_OK;
}
