/* Shape inference and followed integers over arbitrary nodes: any graph of known ops is either
 * typed or refused with a sentence.
 *
 * The input is a program: a byte chooses what to add (a value, a constant list, a node), the next
 * ones its parameters. Sizes stay small. */
#include "world/graph/build.h"
#include "world/pass/pass.h"

#include <stddef.h>
#include <string.h>

typedef struct tape {
    const uint8_t *at, *end;
} tape;

static uint8_t next(tape *t)
{
    return t->at < t->end ? *t->at++ : 0;
}

static const int64_t odd[] = {0,  1,  -1, 2,  3,    5,         7,         8,
                              -2, 16, 64, -3, 1000, INT64_MAX, INT64_MIN, INT32_MAX};

static int64_t number(tape *t)
{
    uint8_t b = next(t);
    return b < 128 ? odd[b % RU_ARRAY_LEN(odd)] : (int64_t)b - 160;
}

static ru_type type_of(tape *t)
{
    static const ru_dtype dtypes[] = {RU_F32, RU_F32, RU_I64, RU_BOOL, RU_F16, RU_I32};
    ru_type x = {.dtype = dtypes[next(t) % RU_ARRAY_LEN(dtypes)], .rank = next(t) % 6U};
    for (uint32_t i = 0; i < x.rank; i++) {
        uint8_t b = next(t);
        x.dims[i] = b >= 224 ? ru_dim_symbol(b % 3U, 1 + b % 5) : b % 9;
    }
    return x;
}

static uint32_t attrs_of(tape *t, ru_attr *attrs, int64_t (*lists)[16])
{
    static const char *const words[] = {"SAME_UPPER", "VALID",         "mean", "none",
                                        "bthd",       "bhtd",          "CRD",  "not_larger",
                                        "reflect",    "bidirectional", "",     "ij,jk->ik",
                                        "...i->i...", "aab->b",        "abc",  "i,j,k->"};
    uint32_t n = next(t) % 6U;
    for (uint32_t i = 0; i < n; i++) {
        ru_attr *a = &attrs[i];
        *a = (ru_attr){.key = (ru_attr_key)(1 + next(t) % (RU_ATTR_COUNT - 1)), .n = 1};
        switch (next(t) % 4) {
        case 0:
            a->kind = RU_ATTR_INT;
            a->u.i = number(t);
            break;
        case 1:
            a->kind = RU_ATTR_FLOAT;
            a->u.f = (double)number(t) / 4.0;
            break;
        case 2:
            a->kind = RU_ATTR_STR;
            a->u.s = words[next(t) % RU_ARRAY_LEN(words)];
            break;
        default:
            a->kind = RU_ATTR_INTS;
            a->n = next(t) % 9U;
            for (uint32_t k = 0; k < a->n; k++) {
                lists[i][k] = number(t);
            }
            a->u.is = lists[i];
            break;
        }
    }
    return n;
}

static void add_list(tape *t, ru_build *b)
{
    int64_t xs[8];
    uint32_t n = next(t) % 9U;
    for (uint32_t i = 0; i < n; i++) {
        xs[i] = number(t);
    }
    (void)ru_build_const_i64s(b, xs, n);
}

static bool add_node(tape *t, ru_graph *g)
{
    ru_attr attrs[6];
    int64_t lists[6][16];
    ru_value_id in[6];
    ru_value_id out[4];
    ru_err err;
    ru_op op = (ru_op)(1 + (next(t) | next(t) << 8) % (RU_OP_COUNT - 1));
    uint32_t n_attrs = attrs_of(t, attrs, lists);
    uint32_t n_in = next(t) % 7U;
    for (uint32_t i = 0; i < n_in; i++) {
        in[i].v = next(t) % g->n_values;
    }
    uint32_t n_out = 1 + next(t) % 4U;
    return ru_graph_add_node(g, op, "n", in, n_in, attrs, n_attrs, out, n_out, &err) == RU_OK &&
           ru_graph_infer_node(g, (ru_graph_node_id){g->n_nodes - 1}, &err) == RU_OK;
}

/* Everything that runs over a typed graph must cope with it. */
static void exercise(ru_graph *g, ru_arena *a)
{
    ru_err err;
    ru_graph d, folded;
    for (uint32_t i = 1; i < g->n_values; i++) {
        if (g->values[i].producer.v == g->n_nodes - 1 && g->values[i].type.dtype != RU_NONE) {
            (void)(ru_graph_add_output(g, (ru_value_id){i}, &err) == RU_OK);
        }
    }
    if (ru_graph_verify(g, &err) != RU_OK) {
        return;
    }
    (void)ru_graph_print(g, a);
    (void)ru_graph_hash(g);
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        (void)ru_node_flops(g, &g->nodes[i]);
    }
    bool folds = ru_pass_fold(g, NULL, 0, a, &folded, &err) == RU_OK;
    for (int exact = 0; exact < 2 && folds; exact++) {
        if (ru_pass_fuse(&folded, NULL, exact == 1, a, &d, &err) == RU_OK) {
            RU_CHECK(ru_graph_verify(&d, &err) == RU_OK);
        }
    }
    if (ru_graph_bind(g, 0, 4, a, &d, &err) == RU_OK) {
        RU_CHECK(ru_graph_verify(&d, &err) == RU_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tape t = {data, data + size};
    ru_arena a;
    ru_graph g;
    ru_err err;
    uint32_t sym;
    ru_arena_init(&a, 64 << 20);
    bool ok = ru_graph_init(&g, &a, "fuzz", &err) == RU_OK;
    for (const char *const *s = (const char *const[]){"N", "T", "H", NULL}; ok && *s != NULL; s++) {
        ok = ru_graph_symbol(&g, *s, &sym, &err) == RU_OK;
    }
    ru_build b;
    ru_build_init(&b, &g);
    for (uint32_t steps = 0; ok && t.at < t.end && steps < 24; steps++) {
        switch (next(&t) % 4) {
        case 0:
            (void)ru_build_input(&b, NULL, type_of(&t));
            break;
        case 1:
            add_list(&t, &b);
            break;
        default:
            ok = add_node(&t, &g);
            break;
        }
    }
    if (ok && b.status == RU_OK) {
        exercise(&g, &a);
    }
    ru_arena_fini(&a);
    return 0;
}
