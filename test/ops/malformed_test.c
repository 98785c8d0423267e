/* Malformed nodes: for each op a legal case of the op harness is drawn and then changed in one
 * place: an input one axis too short, too long, empty, of another rank or type, or absent; an
 * integer, an attribute or an element of one at its limits; more outputs.
 *
 * Whatever comes of it, a node is refused with one sentence on both devices (when it is added, when
 * the graph is opened or when it runs), or both devices run it and agree. Guard zones lie behind
 * all buffers; under AddressSanitizer they and what lies between allocations of an arena may not
 * even be read. */
#include "test/ops/ops.h"
#include "test/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/exe_impl.h"

enum { ROUNDS = 2, OUT_BYTES_MAX = 1 << 20 };

/* Numbers at which counts, offsets and products of them end; two whose triple, and fivefold, is a
 * small number modulo 2^64. */
static const int64_t limits[] = {INT64_MIN,
                                 INT64_MIN + 1,
                                 -(INT64_C(1) << 40),
                                 -1000,
                                 -5,
                                 -2,
                                 -1,
                                 0,
                                 1,
                                 2,
                                 3,
                                 5,
                                 9,
                                 1000,
                                 INT64_C(1) << 31,
                                 INT64_C(1) << 32,
                                 INT64_C(3689348814741910324),
                                 INT64_C(6148914691236517206),
                                 INT64_C(1) << 62,
                                 INT64_MAX};

typedef struct row {
    const char *name, *attrs;
} row;

static const row rows[RU_OP_COUNT] = {
#define RU_RULE(op, inputs, attrs) [RU_OP_##op] = {#op, attrs},
#include "world/graph/rules.def"
#undef RU_RULE
};

/* How far cases came, so that a change that refuses everything is noticed. */
typedef struct counts {
    int64_t refused, run, skipped;
    int bad;
} counts;

/* -- one case ------------------------------------------------------------------------------- */

typedef struct made {
    ru_arena arena;
    ru_graph g;
    ru_value_id out[OPS_OUT_MAX];
    ru_tensor inputs[OPS_IN_MAX]; /* in the order of the graph's inputs */
    ru_err err;
} made;

static ru_status make(made *m, const ops_case *c)
{
    ru_build b;
    ru_value_id in[OPS_IN_MAX] = {{0}};
    uint32_t n = 0;
    RU_TRY(ru_graph_init(&m->g, &m->arena, rows[c->op].name, &m->err));
    ru_build_init(&b, &m->g);
    for (uint32_t k = 0; k < c->n_in; k++) {
        char name[16];
        snprintf(name, sizeof name, "in%u", k);
        if (c->in[k].type.dtype == RU_NONE) {
            continue;
        }
        if (c->fixed[k]) {
            in[k] = ru_build_const(&b, c->in[k].type, c->in[k].data);
        } else {
            in[k] = ru_build_input(&b, name, c->in[k].type);
            m->inputs[n++] = c->in[k];
        }
    }
    ru_build_node(&b, c->op, in, c->n_in, c->attrs, m->out, c->n_out);
    for (uint32_t k = 0; k < c->n_out; k++) {
        ru_build_output(&b, m->out[k], k == 0 ? "y" : NULL);
    }
    return ru_build_finish(&b, &m->err);
}

static int fault(const ops_case *c, const char *change, const char *device, const char *how)
{
    made m;
    memset(&m, 0, sizeof m);
    fprintf(stderr, "%s, %s: %s: %s\n", rows[c->op].name, change, device, how);
    if (make(&m, c) == RU_OK) {
        fprintf(stderr, "%s", ru_graph_print(&m.g, &m.arena));
    }
    ru_arena_fini(&m.arena);
    return 1;
}

/* A refusal says why, and blames the input. */
static bool refused_well(ru_status st, const ru_err *err)
{
    return (st == RU_E_DATA || st == RU_E_UNSUPPORTED || st == RU_E_LIMIT) &&
           strlen(err->text) > 10 && strchr(err->text, '\n') == NULL;
}

/* Are all outputs of a size that can be tried? */
static bool can_run(const made *m)
{
    int64_t bytes = 0;
    for (uint32_t k = 0; k < m->g.n_outputs; k++) {
        const ru_type *t = &m->g.values[m->g.outputs[k].v].type;
        bytes += ru_type_is_concrete(t) ? ru_type_bytes(t) : OUT_BYTES_MAX;
    }
    return bytes < OUT_BYTES_MAX;
}

static ru_status run_on(made *m, ru_device_kind device, ru_tensor *outs)
{
    static const ru_run_args args = {.seed = 42, .step = 3};
    ru_exe *e = NULL;
    const ru_exe_options opt = {.device = device, .threads = 1};
    RU_TRY(rui_exe_open_guarded(&m->g, &opt, &e, &m->err));
    for (uint32_t i = 0; i < m->g.n_inputs; i++) {
        int64_t bytes = ru_type_bytes(&m->inputs[i].type);
        void *to = ru_exe_input(e, m->g.inputs[i]);
        if (bytes > 0 && to != NULL) {
            memcpy(to, m->inputs[i].data, (size_t)bytes);
        }
    }
    ru_status st = ru_exe_run(e, &args, &m->err);
    st = st == RU_OK ? rui_exe_guards_check(e, &m->err) : st;
    for (uint32_t k = 0; k < m->g.n_outputs && st == RU_OK; k++) {
        outs[k].type = m->g.values[m->g.outputs[k].v].type;
        outs[k].data = ru_arena_copy(&m->arena, ru_exe_output(e, m->g.outputs[k]),
                                     ru_type_bytes(&outs[k].type), 64);
    }
    ru_exe_close(e);
    return st;
}

static int compare(const ops_case *c, const char *change, const ru_tensor *want,
                   const ru_tensor *got)
{
    double tol = ru_op_get(c->op)->tol_f32, most = 1.0;
    int64_t n = ops_count(want);
    char text[160];
    if (want->type.dtype == RU_F16 || want->type.dtype == RU_BF16) {
        tol += 1e-2;
    }
    for (int64_t i = 0; i < n; i++) {
        double a = fabs(ops_get(want, i));
        most = a > most && isfinite(a) ? a : most;
    }
    for (int64_t i = 0; i < n; i++) {
        double a = ops_get(want, i), b = ops_get(got, i);
        bool same = isnan(a) || isnan(b) ? isnan(a) && isnan(b)
                                         : fabs(a - b) <= 2.0 * tol * most || !(a < b || a > b);
        if (!same) {
            snprintf(text, sizeof text, "element %lld of %lld is %.9g, the reference says %.9g",
                     (long long)i, (long long)n, b, a);
            return fault(c, change, "cpu", text);
        }
    }
    return 0;
}

static void attempt(const ops_case *c, const char *change, counts *n)
{
    static const ru_device_kind kinds[2] = {RU_DEVICE_REF, RU_DEVICE_CPU};
    made m;
    memset(&m, 0, sizeof m);
    ru_tensor outs[2][OPS_OUT_MAX];
    ru_status st[2] = {make(&m, c), RU_OK};
    char said[2][RU_ERR_TEXT_MAX] = {{0}};
    if (st[0] != RU_OK) {
        n->refused++;
        n->bad += refused_well(st[0], &m.err) ? 0 : fault(c, change, "building", m.err.text);
    } else if (!can_run(&m)) {
        n->skipped++;
    } else {
        for (uint32_t d = 0; d < 2; d++) {
            st[d] = run_on(&m, kinds[d], outs[d]);
            memcpy(said[d], m.err.text, sizeof said[d]);
            n->bad += st[d] == RU_OK || refused_well(st[d], &m.err)
                          ? 0
                          : fault(c, change, d == 0 ? "ref" : "cpu", m.err.text);
        }
        if ((st[0] == RU_OK) != (st[1] == RU_OK)) {
            n->bad += fault(c, change, st[0] == RU_OK ? "only cpu refuses" : "only ref refuses",
                            said[st[0] == RU_OK ? 1 : 0]);
        }
        n->run += st[0] == RU_OK && st[1] == RU_OK;
        n->refused += st[0] != RU_OK;
        for (uint32_t k = 0; k < m.g.n_outputs && st[0] == RU_OK && st[1] == RU_OK; k++) {
            n->bad += compare(c, change, &outs[0][k], &outs[1][k]);
        }
    }
    ru_arena_fini(&m.arena);
}

/* -- changes of an input ------------------------------------------------------------------------
 */

/* Input `k` with another type; its elements are those it had, again and again. */
static void retype(ops_case *c, uint32_t k, ru_type type)
{
    ru_tensor old = c->in[k], *t = &c->in[k];
    int64_t n = ops_count(&old);
    t->type = type;
    int64_t count = ops_count(t);
    t->data = ru_arena_zalloc(c->arena, count * ru_dtype_bytes(type.dtype), 64);
    for (int64_t i = 0; i < count && n > 0; i++) {
        double x = ops_get(&old, i % n);
        ops_set(t, i, type.dtype == RU_BOOL ? x != 0.0 : x);
    }
}

static void try_type(const ops_case *c, uint32_t k, ru_type type, counts *n)
{
    char change[96];
    ops_case d = *c;
    ru_graph none = {.n_symbols = 0};
    char text[128];
    retype(&d, k, type);
    snprintf(change, sizeof change, "input %u made %.60s", k,
             ru_type_print(&none, &type, text, sizeof text));
    attempt(&d, change, n);
}

static void change_shape(const ops_case *c, uint32_t k, counts *n)
{
    const ru_type t = c->in[k].type;
    for (uint32_t d = 0; d < t.rank; d++) {
        int64_t was = t.dims[d];
        const int64_t sizes[] = {was - 1, was + 1, 1, 0, 2 * was + 1};
        for (uint32_t s = 0; s < RU_ARRAY_LEN(sizes); s++) {
            ru_type u = t;
            u.dims[d] = sizes[s];
            if (sizes[s] != was && sizes[s] >= 0) {
                try_type(c, k, u, n);
            }
        }
        ru_type less = {.dtype = t.dtype};
        for (uint32_t i = 0; i < t.rank; i++) {
            less.dims[less.rank] = t.dims[i];
            less.rank += i != d ? 1 : 0;
        }
        try_type(c, k, less, n);
    }
    if (t.rank < RU_RANK_MAX) {
        ru_type first = {.dtype = t.dtype, .rank = t.rank + 1, .dims = {1}}, last = t;
        memcpy(first.dims + 1, t.dims, t.rank * sizeof t.dims[0]);
        last.dims[last.rank++] = 2;
        try_type(c, k, first, n);
        try_type(c, k, last, n);
    }
    try_type(c, k, ru_type_scalar(t.dtype), n);
    if (t.rank >= 2) {
        ru_type turned = t;
        turned.dims[0] = t.dims[1];
        turned.dims[1] = t.dims[0];
        try_type(c, k, turned, n);
    }
}

static void change_dtype(const ops_case *c, uint32_t k, counts *n)
{
    static const ru_dtype kinds[] = {RU_F64, RU_F16, RU_I64, RU_I32, RU_I8, RU_U8, RU_BOOL};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(kinds); i++) {
        ru_type t = c->in[k].type;
        if (t.dtype != kinds[i]) {
            t.dtype = kinds[i];
            try_type(c, k, t, n);
        }
    }
}

/* Does one element of integer input k mean a place, a size or a count? Not the data of an op. */
static bool means(const ops_case *c, uint32_t k)
{
    ru_dtype t = c->in[k].type.dtype;
    return (t == RU_I64 || t == RU_I32) && (k > 0 || c->fixed[0] || c->op == RU_OP_OneHot);
}

static void change_numbers(const ops_case *c, uint32_t k, counts *n)
{
    int64_t count = ops_count(&c->in[k]);
    for (int64_t e = 0; e < count && e < 3; e++) {
        for (uint32_t i = 0; i < RU_ARRAY_LEN(limits); i++) {
            ops_case d = *c;
            char change[96];
            int64_t v = limits[i];
            bool wide = d.in[k].type.dtype == RU_I64;
            retype(&d, k, d.in[k].type);
            int64_t at = e == 2 ? count - 1 : e;
            if (wide) {
                ((int64_t *)d.in[k].data)[at] = v;
            } else if (v >= INT32_MIN && v <= INT32_MAX) {
                ((int32_t *)d.in[k].data)[at] = (int32_t)v;
            } else {
                continue;
            }
            snprintf(change, sizeof change, "element %lld of input %u made %lld", (long long)at, k,
                     (long long)v);
            attempt(&d, change, n);
        }
    }
}

static void change_inputs(const ops_case *c, counts *n)
{
    for (uint32_t k = 0; k < c->n_in; k++) {
        char change[64];
        ops_case d = *c;
        if (c->in[k].type.dtype == RU_NONE) {
            continue;
        }
        change_shape(c, k, n);
        change_dtype(c, k, n);
        d.in[k] = (ru_tensor){.data = NULL};
        snprintf(change, sizeof change, "input %u absent", k);
        attempt(&d, change, n);
        d = *c;
        d.fixed[k] = !d.fixed[k];
        snprintf(change, sizeof change, "input %u %s", k, d.fixed[k] ? "fixed" : "not fixed");
        attempt(&d, change, n);
        if (means(c, k)) {
            change_numbers(c, k, n);
            change_numbers(&d, k, n);
        }
    }
}

/* -- changes of an attribute --------------------------------------------------------------------
 */

/* The case with attribute `a` in place of what it has under that key. */
static ops_case with(const ops_case *c, const ru_attr *a)
{
    ops_case d = *c;
    uint32_t i = 0;
    while (i < d.n_attrs && d.attrs[i].key != a->key) {
        i++;
    }
    RU_CHECK(i < OPS_ATTRS_MAX);
    d.n_attrs = i == d.n_attrs ? i + 1 : d.n_attrs;
    d.attrs[i] = *a;
    d.attrs[d.n_attrs] = (ru_attr)RU_A_END;
    return d;
}

static void try_attr(const ops_case *c, const ru_attr *a, const char *how, int64_t v, counts *n)
{
    char change[128];
    ops_case d = with(c, a);
    snprintf(change, sizeof change, "attribute %s %s %lld", ru_attr_name(a->key), how,
             (long long)v);
    attempt(&d, change, n);
}

static void change_int(const ops_case *c, ru_attr_key key, counts *n)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(limits); i++) {
        try_attr(c, &(ru_attr){.key = key, .kind = RU_ATTR_INT, .n = 1, .u.i = limits[i]}, "is",
                 limits[i], n);
    }
}

static void change_ints(const ops_case *c, ru_attr_key key, counts *n)
{
    int64_t list[2 * RU_RANK_MAX + 2] = {0};
    const ru_attr *a = NULL;
    for (uint32_t i = 0; i < c->n_attrs; i++) {
        a = c->attrs[i].key == key ? &c->attrs[i] : a;
    }
    uint32_t rank = c->n_in > 0 ? c->in[0].type.rank : 1, count = a != NULL ? a->n : rank;
    for (uint32_t i = 0; i < 2 * RU_RANK_MAX + 2; i++) {
        list[i] = a != NULL && i < a->n ? a->u.is[i] : 1;
    }
    ru_attr b = {.key = key, .kind = RU_ATTR_INTS, .u.is = list};
    const uint32_t sizes[] = {0, 1, rank, rank + 1, 2 * rank, count + 1, count > 0 ? count - 1 : 0};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(sizes); i++) {
        b.n = sizes[i];
        try_attr(c, &b, "has entries:", b.n, n);
    }
    b.n = count;
    for (uint32_t e = 0; e < count && e < 3; e++) {
        int64_t was = list[e];
        for (uint32_t i = 0; i < RU_ARRAY_LEN(limits); i++) {
            list[e] = limits[i];
            try_attr(c, &b, "has an entry", limits[i], n);
        }
        list[e] = was;
    }
}

static void change_attr(const ops_case *c, ru_attr_key key, char kind, counts *n)
{
    static const char *const words[] = {"", "nonsense", "SAME_UPPER", "reflect", "wrap", "linear"};
    static const double floats[] = {-1.0, 0.0, 1e30};
    if (kind == 'i') {
        change_int(c, key, n);
    } else if (kind == 'I') {
        change_ints(c, key, n);
    }
    for (uint32_t i = 0; kind == 's' && i < RU_ARRAY_LEN(words); i++) {
        try_attr(c, &(ru_attr){.key = key, .kind = RU_ATTR_STR, .n = 1, .u.s = words[i]}, words[i],
                 i, n);
    }
    for (uint32_t i = 0; kind == 'f' && i < RU_ARRAY_LEN(floats); i++) {
        try_attr(c, &(ru_attr){.key = key, .kind = RU_ATTR_FLOAT, .n = 1, .u.f = floats[i]},
                 "is the float", (int64_t)floats[i < 2 ? i : 0], n);
    }
    if (kind == 'i') { /* an attribute of another kind is no default */
        ops_case d =
            with(c, &(ru_attr){.key = key, .kind = RU_ATTR_STR, .n = 1, .u.s = "nonsense"});
        made m;
        memset(&m, 0, sizeof m);
        n->bad += make(&m, &d) == RU_E_DATA ? 0 : fault(&d, "an integer made a text", "", "taken");
        ru_arena_fini(&m.arena);
    } else {
        try_attr(c, &(ru_attr){.key = key, .kind = RU_ATTR_INT, .n = 1, .u.i = 1}, "is the integer",
                 1, n);
    }
}

static void change_attrs(const ops_case *c, counts *n)
{
    for (const char *at = rows[c->op].attrs; *at != '\0'; at += strspn(at, " ")) {
        char key[32];
        at += *at == '!' ? 1 : 0;
        size_t len = strcspn(at, ":");
        RU_CHECK(len < sizeof key);
        memcpy(key, at, len);
        key[len] = '\0';
        RU_CHECK(ru_attr_find(key) != RU_ATTR_NONE);
        if (strncmp(key, "activation_", 11) == 0) {
            at += strcspn(at, " "); /* of fused forms: any number is legal */
            continue;
        }
        change_attr(c, ru_attr_find(key), at[len + 1], n);
        at += strcspn(at, " ");
    }
}

/* -- tests --------------------------------------------------------------------------------------
 */

static void test_changed_nodes_are_refused_or_right(void **state)
{
    (void)state;
    counts n = {0};
    for (uint32_t op = 1; op < RU_OP_COUNT; op++) {
        for (uint32_t round = 0; round < ROUNDS && ru_op_get((ru_op)op)->onnx; round++) {
            ru_arena arena;
            ru_arena_init(&arena, 0);
            ops_case c = {.arena = &arena,
                          .rng = ru_rng_from(ru_test_seed() + 7919 * (uint64_t)op + round, 11),
                          .plain = round % 2 == 0};
            ops_sample(&c, (ru_op)op);
            if (!c.skip) {
                ops_case more = c;
                more.n_out =
                    ru_op_get(c.op)->out_max < OPS_OUT_MAX ? ru_op_get(c.op)->out_max : OPS_OUT_MAX;
                attempt(&c, "as drawn", &n);
                attempt(&more, "all outputs", &n);
                change_inputs(&c, &n);
                change_attrs(&c, &n);
            }
            ru_arena_fini(&arena);
        }
    }
    print_message("%lld refused, %lld run on both devices, %lld not run\n", (long long)n.refused,
                  (long long)n.run, (long long)n.skipped);
    assert_int_equal(n.bad, 0);
    assert_true(n.refused > 1000 && n.run > 1000);
}

RU_TESTS(test_malformed, cmocka_unit_test(test_changed_nodes_are_refused_or_right))
