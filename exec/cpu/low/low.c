/* The lowering context: nodes in, steps out. See lower.h for the rules and low.h for the data. */
#include "exec/cpu/low/low.h"

#include "exec/cpu/low/conv.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "env/process/memory.h"

typedef struct lowering {
    ru_op op;
    rui_lower_fn fn;
} lowering;

static const lowering lowerings[] = {
#define RUI_LOWER(op, name) {RU_OP_##op, rui_lower_##name},
#include "exec/cpu/lower/lowerings.def"
#undef RUI_LOWER
};

/* -- context -------------------------------------------------------------------------------------
 */

const ru_graph *rui_graph(const rui_low *lo)
{
    return lo->g;
}

rui_dnnl *rui_nn(rui_low *lo)
{
    return &lo->nn;
}

uint32_t rui_threads(const rui_low *lo)
{
    return lo->threads;
}

const ru_exe_options *rui_options(const rui_low *lo)
{
    return &lo->opt;
}

bool rui_bf16(const rui_low *lo)
{
    return lo->opt.precision == RU_PRECISION_BF16 && lo->has_nn;
}

bool rui_inference(const rui_low *lo)
{
    return lo->inference;
}

void rui_drops_nan(rui_low *lo)
{
    lo->drops_nan = true;
}

ru_status rui_done(const rui_low *lo)
{
    return lo->status;
}

ru_status rui_fail(rui_low *lo, ru_status st, const char *fmt, ...)
{
    if (lo->status == RU_OK) {
        char text[RU_ERR_TEXT_MAX];
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        lo->status = ru_err_set(&lo->err, st, "%s", text);
    }
    return lo->status;
}

void *rui_keep(rui_low *lo, int64_t size_bytes)
{
    void *p = ru_arena_zalloc(lo->arena, size_bytes, 64);
    if (p == NULL) {
        (void)rui_fail(lo, RU_E_MEM, "no memory to plan the executable (%lld bytes)",
                       (long long)size_bytes);
    }
    return p;
}

char *rui_keep_printf(rui_low *lo, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char *kept = ru_arena_str(lo->arena, text);
    if (kept == NULL) {
        (void)rui_fail(lo, RU_E_MEM, "no memory to plan the executable");
    }
    return kept;
}

static uint32_t node_index(const rui_low *lo, const ru_node *n)
{
    return (uint32_t)(n - lo->g->nodes);
}

void rui_claim(rui_low *lo, const ru_node *n)
{
    lo->claimed[node_index(lo, n)] = lo->node;
}

bool rui_claimed(const rui_low *lo, const ru_node *n)
{
    return lo->claimed[node_index(lo, n)] != 0;
}

uint32_t rui_uses(const rui_low *lo, ru_value_id v)
{
    return lo->vals[v.v].uses;
}

const ru_node *rui_only_reader(const rui_low *lo, ru_value_id v)
{
    const rui_val *val = &lo->vals[v.v];
    return val->uses == 1 && val->readers == 1 ? &lo->g->nodes[val->reader_node] : NULL;
}

/* -- buffers -------------------------------------------------------------------------------------
 */

rui_buf rui_buf_new(rui_low *lo, rui_buf_kind kind, int64_t size_bytes)
{
    if (lo->n_bufs == lo->cap_bufs) {
        uint32_t cap = lo->cap_bufs == 0 ? lo->g->n_values + 16 : lo->cap_bufs * 2;
        rui_buf_rec *more = rui_keep(lo, (int64_t)cap * (int64_t)sizeof *more);
        if (more == NULL) {
            return (rui_buf){0};
        }
        if (lo->n_bufs > 0) {
            memcpy(more, lo->bufs, lo->n_bufs * sizeof *more);
        }
        lo->bufs = more;
        lo->cap_bufs = cap;
    }
    uint32_t id = lo->n_bufs++;
    lo->bufs[id] = (rui_buf_rec){.kind = kind,
                                 .root = id,
                                 .size_bytes = size_bytes < 1 ? 1 : size_bytes,
                                 .first = UINT32_MAX,
                                 .pinned = false};
    return (rui_buf){id};
}

uint32_t rui_root(const rui_low *lo, rui_buf b)
{
    uint32_t r = b.v;
    while (lo->bufs[r].root != r) {
        r = lo->bufs[r].root;
    }
    return r;
}

bool rui_same_memory(const rui_low *lo, rui_buf a, rui_buf b)
{
    return a.v != 0 && b.v != 0 && rui_root(lo, a) == rui_root(lo, b);
}

static rui_buf buf_view(rui_low *lo, rui_buf from, int64_t offset_bytes, int64_t size_bytes)
{
    rui_buf b = rui_buf_new(lo, lo->bufs[from.v].kind, size_bytes);
    if (b.v != 0) {
        lo->bufs[b.v].root = rui_root(lo, from);
        lo->bufs[b.v].offset_bytes = lo->bufs[from.v].offset_bytes + offset_bytes;
    }
    return b;
}

rui_buf rui_buf_part(rui_low *lo, rui_buf from, int64_t offset_bytes, int64_t size_bytes)
{
    return from.v == 0 || lo->status != RU_OK ? (rui_buf){0}
                                              : buf_view(lo, from, offset_bytes, size_bytes);
}

rui_buf rui_scratch(rui_low *lo, int64_t size_bytes)
{
    return size_bytes == 0 ? (rui_buf){0} : rui_buf_new(lo, RUI_BUF_SCRATCH, size_bytes);
}

rui_buf rui_workspace(rui_low *lo, int64_t size_bytes)
{
    return size_bytes == 0 ? (rui_buf){0} : rui_buf_new(lo, RUI_BUF_TEMP, size_bytes);
}

void rui_note(rui_low *lo, ru_value_id v, rui_buf workspace, const void *what)
{
    lo->vals[v.v].note_buf = workspace;
    lo->vals[v.v].note = what;
}

bool rui_noted(const rui_low *lo, ru_value_id v, rui_buf *workspace, const void **what)
{
    *workspace = lo->vals[v.v].note_buf;
    *what = lo->vals[v.v].note;
    return lo->vals[v.v].note != NULL;
}

/* -- where values stand ---------------------------------------------------------------------------
 */

void rui_home_add(rui_low *lo, ru_value_id v, const rui_layout *l, rui_buf b)
{
    rui_val *val = &lo->vals[v.v];
    if (val->n_homes == val->cap_homes) {
        uint32_t cap = val->cap_homes == 0 ? 2 : val->cap_homes * 2;
        rui_home *more = rui_keep(lo, (int64_t)cap * (int64_t)sizeof *more);
        if (more == NULL) {
            return;
        }
        if (val->n_homes > 0) {
            memcpy(more, val->homes, val->n_homes * sizeof *more);
        }
        val->homes = more;
        val->cap_homes = cap;
    }
    val->homes[val->n_homes++] = (rui_home){.layout = l, .buf = b};
}

const rui_home *rui_home_find(const rui_low *lo, ru_value_id v, const rui_layout *l)
{
    const rui_val *val = &lo->vals[v.v];
    for (uint32_t i = 0; i < val->n_homes; i++) {
        if (val->homes[i].seen == NULL && (l == NULL || val->homes[i].layout == l)) {
            return &val->homes[i];
        }
    }
    return NULL;
}

/* A row-major home read under other dims of the same count and dtype. */
static const rui_home *home_alike(const rui_low *lo, ru_value_id v, const rui_layout *l)
{
    const rui_val *val = &lo->vals[v.v];
    for (uint32_t i = 0; i < val->n_homes && l->plain; i++) {
        const rui_layout *h = val->homes[i].layout;
        if (val->homes[i].seen == NULL && h->plain && h->type.dtype == l->type.dtype &&
            h->size_bytes == l->size_bytes) {
            return &val->homes[i];
        }
    }
    return NULL;
}

bool rui_undecided(const rui_low *lo, ru_value_id v)
{
    return lo->g->values[v.v].kind == RU_VALUE_STATE && lo->vals[v.v].n_homes == 0;
}

const rui_layout *rui_standing(rui_low *lo, ru_value_id v)
{
    const rui_home *h = rui_home_find(lo, v, NULL);
    return h != NULL ? h->layout : rui_plain(lo, &lo->g->values[v.v].type);
}

const rui_layout *rui_standing_as(rui_low *lo, ru_value_id v, ru_dtype dtype)
{
    return rui_layout_as(lo, rui_standing(lo, v), dtype);
}

ru_dtype rui_store_dtype(const rui_low *lo, ru_value_id v)
{
    const ru_type *t = &lo->g->values[v.v].type;
    return rui_bf16(lo) && t->dtype == RU_F32 && t->rank >= 2 ? RU_BF16 : t->dtype;
}

/* State stands in the layout of its first reader when that is a mere order of its elements. */
static void state_decide(rui_low *lo, ru_value_id v, const rui_layout *wish)
{
    if (lo->share != NULL && rui_share_state(lo, v)) {
        return;
    }
    const ru_type *t = &lo->g->values[v.v].type;
    bool fits = !wish->opaque && wish->type.dtype == t->dtype;
    const rui_layout *l = fits ? wish : NULL;
    if (l == NULL && !wish->opaque && ru_dtype_is_float(t->dtype)) {
        l = rui_layout_master(lo, wish, t->dtype); /* bf16 is asked for: f32 master */
    }
    if (l == NULL || lo->opt.keep_temps) {
        l = rui_plain(lo, t);
    }
    if (l != NULL) {
        rui_home_add(lo, v, l, rui_buf_new(lo, RUI_BUF_STATE, l->size_bytes));
    }
}

/* A frozen value's copies are made once by the prep list. `from` describes the memory of `src`. */
static rui_buf reorder_to(rui_low *lo, ru_value_id v, const rui_layout *from, rui_buf src,
                          const rui_layout *l)
{
    bool prep = lo->vals[v.v].frozen;
    rui_buf to = rui_buf_new(lo, prep ? RUI_BUF_PACKED : RUI_BUF_TEMP, l->size_bytes);
    rui_step s = {0};
    if (lo->status != RU_OK || rui_reorder_step(lo, from, src, l, to, &s) != RU_OK) {
        return (rui_buf){0};
    }
    s.recipe = prep ? rui_share_recipe(from, l) : 0;
    rui_emit_to(lo, prep ? &lo->prep : &lo->run, &s, 0);
    lo->n_reorders += prep ? 0 : 1;
    rui_home_add(lo, v, l, to);
    return to;
}

rui_buf rui_low_in(rui_low *lo, ru_value_id v, const rui_layout *l)
{
    if (v.v == 0 || lo->status != RU_OK || l == NULL) {
        return (rui_buf){0};
    }
    if (rui_undecided(lo, v)) {
        state_decide(lo, v, l);
    }
    const rui_home *h = rui_home_find(lo, v, l);
    h = h != NULL ? h : home_alike(lo, v, l);
    if (h != NULL) {
        return h->buf;
    }
    h = rui_home_find(lo, v, NULL);
    if (h == NULL) {
        (void)rui_fail(lo, RU_E_BUG, "value %u is read before it is computed", v.v);
        return (rui_buf){0};
    }
    if (l->opaque && !h->layout->plain) { /* oneDNN transforms row-major weights only */
        rui_buf plain = rui_in_plain(lo, v);
        return reorder_to(lo, v, rui_plain(lo, &lo->g->values[v.v].type), plain, l);
    }
    return reorder_to(lo, v, h->layout, h->buf, l);
}

rui_buf rui_in_as(rui_low *lo, ru_value_id v, const dnnl_memory_desc_t *seen,
                  const dnnl_memory_desc_t *want)
{
    rui_buf plain = rui_in_plain(lo, v);
    const rui_layout *to = rui_layout_md(lo, want);
    const rui_layout *from = rui_layout_md(lo, seen);
    if (lo->status != RU_OK || to == NULL || from == NULL || to == from) {
        return plain;
    }
    rui_val *val = &lo->vals[v.v];
    for (uint32_t i = 0; i < val->n_homes; i++) {
        if (val->homes[i].layout == to && val->homes[i].seen == from) {
            return val->homes[i].buf;
        }
    }
    rui_buf b = reorder_to(lo, v, from, plain, to);
    if (b.v != 0) {
        val->homes[val->n_homes - 1].seen = from;
    }
    return b;
}

rui_buf rui_in_plain(rui_low *lo, ru_value_id v)
{
    return v.v == 0 ? (rui_buf){0} : rui_in(lo, v, rui_plain(lo, &lo->g->values[v.v].type));
}

rui_buf rui_in_standing(rui_low *lo, ru_value_id v)
{
    return v.v == 0 ? (rui_buf){0} : rui_in(lo, v, rui_standing(lo, v));
}

/* With keep_temps the memory where a value stands outlives its last reader. */
static void keep_home(rui_low *lo, rui_buf b)
{
    if (lo->opt.keep_temps && b.v != 0 && lo->status == RU_OK) {
        lo->bufs[rui_root(lo, b)].pinned = true;
    }
}

rui_buf rui_out(rui_low *lo, ru_value_id v, const rui_layout *l)
{
    if (v.v == 0 || lo->status != RU_OK || l == NULL) {
        return (rui_buf){0};
    }
    rui_buf b = rui_buf_new(lo, RUI_BUF_TEMP, l->size_bytes);
    rui_home_add(lo, v, l, b);
    keep_home(lo, b);
    return b;
}

rui_buf rui_out_plain(rui_low *lo, ru_value_id v)
{
    return v.v == 0 ? (rui_buf){0} : rui_out(lo, v, rui_plain(lo, &lo->g->values[v.v].type));
}

rui_buf rui_out_over(rui_low *lo, ru_value_id v, const rui_layout *l, rui_buf over)
{
    rui_buf b = rui_out(lo, v, l);
    if (b.v != 0) {
        lo->bufs[b.v].over = over.v;
    }
    return b;
}

void rui_out_view(rui_low *lo, ru_value_id v, const rui_layout *l, rui_buf from,
                  int64_t offset_bytes)
{
    if (v.v != 0 && lo->status == RU_OK && l != NULL) {
        rui_home_add(lo, v, l, buf_view(lo, from, offset_bytes, l->size_bytes));
        keep_home(lo, from); /* it may be a reordered copy, which nobody else keeps */
    }
}

/* -- steps ----------------------------------------------------------------------------------------
 */

void rui_emit_to(rui_low *lo, rui_step_list *list, const rui_step *step, uint32_t node)
{
    if (lo->status != RU_OK) {
        return;
    }
    if (list->n == list->cap) {
        uint32_t cap = list->cap == 0 ? lo->g->n_nodes + 4 : list->cap * 2;
        rui_step_rec *more = rui_keep(lo, (int64_t)cap * (int64_t)sizeof *more);
        if (more == NULL) {
            return;
        }
        if (list->n > 0) {
            memcpy(more, list->at, list->n * sizeof *more);
        }
        list->at = more;
        list->cap = cap;
    }
    rui_step_rec *r = &list->at[list->n];
    *r = (rui_step_rec){.s = *step, .node = node, .at = lo->node};
    rui_buf *bufs = rui_keep(lo, (int64_t)(step->n_bufs + 1) * (int64_t)sizeof *bufs);
    r->ptrs = rui_keep(lo, (int64_t)(step->n_bufs + 1) * (int64_t)sizeof *r->ptrs);
    if (bufs == NULL || r->ptrs == NULL) {
        return;
    }
    if (step->n_bufs > 0) {
        memcpy(bufs, step->bufs, step->n_bufs * sizeof *bufs);
    }
    r->s.bufs = bufs;
    list->n++;
}

void rui_emit(rui_low *lo, const rui_step *step)
{
    rui_emit_to(lo, &lo->run, step, lo->node);
}

void rui_stand_only(rui_low *lo, ru_value_id v, const rui_layout *l)
{
    rui_buf b = rui_in(lo, v, l);
    if (lo->status == RU_OK) {
        rui_val *val = &lo->vals[v.v];
        val->homes[0] = (rui_home){.layout = l, .buf = b};
        val->n_homes = 1;
        keep_home(lo, b);
    }
}

void rui_restand(rui_low *lo, ru_value_id v, ru_dtype dtype)
{
    rui_val *val = &lo->vals[v.v];
    if (v.v == 0 || lo->status != RU_OK || val->n_homes == 0 ||
        val->homes[0].layout->type.dtype == dtype) {
        return;
    }
    rui_stand_only(lo, v, rui_layout_as(lo, val->homes[0].layout, dtype));
}

rui_buf rui_out_sum(rui_low *lo, ru_value_id v, const rui_layout *l, ru_value_id addend)
{
    rui_buf from = rui_in(lo, addend, l);
    rui_buf to = rui_out_over(lo, v, l, from);
    rui_step copy = {0};
    if (lo->status == RU_OK && rui_reorder_step(lo, l, from, l, to, &copy) == RU_OK) {
        rui_emit_to(lo, &lo->run, &copy, 0);
    }
    return to;
}

/* -- the graph ------------------------------------------------------------------------------------
 */

static void count_use(rui_low *lo, ru_value_id v)
{
    lo->vals[v.v].uses++;
}

static void count_uses(rui_low *lo)
{
    const ru_graph *g = lo->g;
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++) {
            ru_value_id v = g->nodes[i].in[k];
            count_use(lo, v);
            lo->vals[v.v].readers++;
            lo->vals[v.v].reader_node = i;
        }
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        count_use(lo, g->outputs[i]);
        lo->vals[g->outputs[i].v].is_output = true;
    }
    for (uint32_t i = 1; i < g->n_values; i++) {
        lo->vals[i].frozen =
            g->values[i].kind == RU_VALUE_CONST || g->values[i].kind == RU_VALUE_STATE;
    }
    for (uint32_t i = 0; i < g->n_updates; i++) {
        count_use(lo, g->updates[i].value);
        lo->vals[g->updates[i].value.v].update_of = g->updates[i].state.v;
        lo->vals[g->updates[i].state.v].frozen = false;
    }
    /* caches change in an inference graph too: only what trains changes anything else */
    lo->inference = true;
    for (uint32_t i = 0; i < g->n_updates; i++) {
        lo->inference = lo->inference && g->values[g->updates[i].state.v].role == RU_ROLE_CACHE;
    }
}

static void place_givens(rui_low *lo)
{
    const ru_graph *g = lo->g;
    for (uint32_t i = 1; i < g->n_values; i++) {
        const ru_value *v = &g->values[i];
        if (v->kind == RU_VALUE_INPUT) {
            const rui_layout *l = rui_plain(lo, &v->type);
            rui_home_add(lo, (ru_value_id){i}, l, rui_buf_new(lo, RUI_BUF_INPUT, l->size_bytes));
        } else if (v->kind == RU_VALUE_CONST) {
            rui_buf b = rui_buf_new(lo, RUI_BUF_DATA, ru_type_bytes(&v->type));
            union {
                const void *in;
                void *out;
            } data = {.in = v->data}; /* steps never write a DATA buffer */
            lo->bufs[b.v].ptr = data.out;
            rui_home_add(lo, (ru_value_id){i}, rui_plain(lo, &v->type), b);
        }
        if (lo->status != RU_OK) {
            return;
        }
    }
}

ru_status rui_low_init(rui_low *lo, const ru_graph *g, const ru_exe_options *opt, bool nn,
                       uint32_t threads, const rui_low *share, ru_arena *arena, ru_err *err)
{
    memset(lo, 0, sizeof *lo);
    lo->g = g;
    lo->opt = *opt;
    lo->threads = threads;
    lo->share = share;
    lo->arena = arena;
    if (nn) {
        RU_TRY(rui_dnnl_open(&lo->nn, err));
        lo->has_nn = true;
    }
    lo->vals = rui_keep(lo, (int64_t)g->n_values * (int64_t)sizeof *lo->vals);
    lo->claimed = rui_keep(lo, (int64_t)(g->n_nodes + 1) * (int64_t)sizeof *lo->claimed);
    lo->slow = rui_keep(lo, (int64_t)RU_OP_COUNT * (int64_t)sizeof *lo->slow);
    (void)rui_buf_new(lo, RUI_BUF_TEMP, 0); /* the absent buffer */
    if (lo->status == RU_OK) {
        count_uses(lo);
        place_givens(lo);
    }
    if (lo->status != RU_OK) {
        return ru_err_set(err, lo->status, "%s", lo->err.text);
    }
    return RU_OK;
}

static ru_status lower_rows(rui_low *lo, const ru_node *n, ru_err *err)
{
    uint32_t steps = lo->run.n;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(lowerings); i++) {
        if (lowerings[i].op != n->op) {
            continue;
        }
        ru_status st = lowerings[i].fn(lo, n, err);
        if (st != RU_E_UNSUPPORTED) {
            return st;
        }
        RU_CHECK(lo->run.n == steps && lo->status == RU_OK); /* decline before acting */
    }
    return RU_E_UNSUPPORTED;
}

/* No kernel takes the product with all that is fused into it: without the activation, then without
 * the residual too, then without the bias of a Gemm. */
static ru_status lower_apart(rui_low *lo, const ru_node *n, ru_err *err)
{
    bool residual = ru_node_has_in(n, 3), act = rui_act_on(n, NULL, 0),
         bias = rui_bias_known(lo, n);
    bool product = n->op == RU_OP_Conv || n->op == RU_OP_ConvTranspose || n->op == RU_OP_Gemm ||
                   n->op == RU_OP_MatMul;
    const struct {
        uint32_t n_in; /* inputs that the kernel keeps */
        bool possible;
    } ways[] = {{4, act}, {3, residual}, {2, bias}};
    ru_status st = RU_E_UNSUPPORTED;
    if (!product || (!act && ru_node_str(n, RU_ATTR_activation, "")[0] != '\0') ||
        !ru_dtype_is_float(lo->g->values[n->out[0].v].type.dtype) ||
        lo->g->values[n->out[0].v].type.dtype == RU_F64) {
        return st;
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ways) && st == RU_E_UNSUPPORTED; k++) {
        const ru_node *bare = ways[k].possible ? rui_node_bare(lo, n, ways[k].n_in) : NULL;
        if (bare != NULL) {
            st = lower_rows(lo, bare, err);
        }
        if (st == RU_OK && bias && ways[k].n_in <= 2) {
            rui_bias_emit(lo, n);
        }
        if (st == RU_OK && residual && ways[k].n_in <= 3) {
            rui_residual_emit(lo, n);
        }
    }
    if (st == RU_OK && act) {
        rui_act_emit(lo, n);
    }
    return st == RU_OK || rui_done(lo) != RU_OK ? rui_done(lo) : st;
}

/* Results of no elements need no step. */
static bool lower_empty(rui_low *lo, const ru_node *n)
{
    for (uint32_t k = 0; k < n->n_out; k++) {
        if (n->out[k].v != 0 && ru_type_count(&lo->g->values[n->out[k].v].type) != 0) {
            return false;
        }
    }
    for (uint32_t k = 0; k < n->n_out; k++) {
        (void)rui_out_plain(lo, n->out[k]);
    }
    return true;
}

static ru_status lower_node(rui_low *lo, const ru_node *n, ru_err *err)
{
    if (lo->has_nn) {
        if (lower_empty(lo, n)) {
            return rui_done(lo);
        }
        ru_status st = lower_rows(lo, n, err);
        st = st == RU_E_UNSUPPORTED ? lower_apart(lo, n, err) : st;
        if (st != RU_E_UNSUPPORTED) {
            return st;
        }
        bool reads = n->op != RU_OP_Shape && n->op != RU_OP_Size; /* these look at no element */
        lo->n_slow += reads;
        lo->slow[n->op] += reads;
    }
    return rui_lower_ref(lo, n, err);
}

bool ru_exe_op_fast(ru_op op)
{
    static const ru_op written_out[] = {RU_OP_Constant, RU_OP_Dropout, RU_OP_Einsum, RU_OP_Shape,
                                        RU_OP_Size}; /* passes leave none of them */
    for (uint32_t i = 0; i < RU_ARRAY_LEN(written_out); i++) {
        if (written_out[i] == op) {
            return true;
        }
    }
    for (uint32_t i = 0; i < RU_ARRAY_LEN(lowerings); i++) {
        if (lowerings[i].op == op) {
            return true;
        }
    }
    return false;
}

ru_status rui_low_slow(rui_low *lo, const char **text, ru_err *err)
{
    ru_text t = ru_text_arena(lo->arena);
    for (uint32_t op = 0; op < RU_OP_COUNT; op++) {
        if (lo->slow[op] > 0) {
            ru_text_putf(&t, "%s%s %u", t.n > 0 ? ", " : "", ru_op_get((ru_op)op)->name,
                         lo->slow[op]);
        }
    }
    *text = t.p;
    return t.cut ? RU_FAIL(err, RU_E_MEM, "no memory to plan the executable") : RU_OK;
}

/* Does nobody need this port's value but those to whom it is handed over? */
static bool is_brief(const rui_low *lo, ru_value_id v)
{
    bool brief = false;
    for (uint32_t k = 0; k < lo->how.n_brief; k++) {
        brief = brief || lo->opt.ports[k].v == v.v;
    }
    return brief;
}

/* Outputs are read row-major after the run: state may change before that, so it is copied. */
static void lower_outputs(rui_low *lo)
{
    const ru_graph *g = lo->g;
    lo->outputs = rui_keep(lo, (int64_t)(g->n_outputs + 1) * (int64_t)sizeof *lo->outputs);
    for (uint32_t i = 0; i < g->n_outputs && lo->status == RU_OK; i++) {
        ru_value_id v = g->outputs[i];
        const rui_layout *plain = rui_plain(lo, &g->values[v.v].type);
        rui_buf b = rui_in(lo, v, plain);
        if (g->values[v.v].kind == RU_VALUE_STATE && !lo->vals[v.v].frozen) {
            rui_buf copy = rui_buf_new(lo, RUI_BUF_OUTPUT, plain->size_bytes);
            rui_step s = {0};
            if (rui_reorder_step(lo, plain, b, plain, copy, &s) == RU_OK) {
                rui_emit_to(lo, &lo->run, &s, 0);
            }
            b = copy;
        }
        if (lo->status == RU_OK) {
            lo->outputs[i] = b;
            rui_buf_rec *root = &lo->bufs[rui_root(lo, b)];
            root->pinned = root->pinned || !is_brief(lo, v);
            root->kept = true;
        }
    }
}

/* Updates whose new value could not be made in the state's own memory are copied at the end; a
 * value that is itself state is staged first, so that "a, b := b, a" swaps. */
static void lower_updates(rui_low *lo)
{
    const ru_graph *g = lo->g;
    rui_buf *staged = rui_keep(lo, (int64_t)(g->n_updates + 1) * (int64_t)sizeof *staged);
    for (uint32_t i = 0; i < g->n_updates && lo->status == RU_OK; i++) {
        ru_value_id s = g->updates[i].state;
        ru_value_id v = g->updates[i].value;
        if (rui_undecided(lo, s)) {
            (void)rui_in(lo, s, rui_standing(lo, v));
        }
        const rui_layout *l = rui_standing(lo, s);
        staged[i] = rui_in(lo, v, l);
        if (g->values[v.v].kind == RU_VALUE_STATE) {
            rui_buf copy = rui_workspace(lo, l->size_bytes);
            rui_step step = {0};
            if (rui_reorder_step(lo, l, staged[i], l, copy, &step) == RU_OK) {
                rui_emit_to(lo, &lo->run, &step, 0);
            }
            staged[i] = copy;
        }
    }
    lo->update_begin = lo->run.n;
    for (uint32_t i = 0; i < g->n_updates && lo->status == RU_OK; i++) {
        const rui_home *h = rui_home_find(lo, g->updates[i].state, NULL);
        rui_step step = {0};
        if (rui_reorder_step(lo, h->layout, staged[i], h->layout, h->buf, &step) == RU_OK) {
            rui_emit_to(lo, &lo->run, &step, 0);
            lo->run.at[lo->run.n - 1].label = "update";
        }
    }
}

ru_status rui_low_graph(rui_low *lo, ru_err *err)
{
    const ru_graph *g = lo->g;
    (void)rui_grads_list(lo);
    rui_grads_made(lo); /* constant ones */
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        if (lo->claimed[i] != 0) {
            continue;
        }
        lo->claimed[i] = lo->node = i;
        const ru_node *n = &g->nodes[i];
        ru_status st = lower_node(lo, n, err);
        rui_grads_made(lo);
        if (st == RU_OK && lo->status != RU_OK) {
            st = ru_err_set(err, lo->status, "%s", lo->err.text);
        }
        if (st != RU_OK) {
            if (lo->status != RU_OK) {
                (void)ru_err_set(err, lo->status, "%s", lo->err.text);
            }
            return ru_err_wrap(err, st, "node %u (%s %s)", i, ru_op_get(n->op)->name,
                               n->name == NULL ? "" : n->name);
        }
    }
    lo->node = 0;
    lower_outputs(lo);
    lower_updates(lo);
    return lo->status == RU_OK ? RU_OK : ru_err_set(err, lo->status, "%s", lo->err.text);
}

void rui_low_fini(rui_low *lo)
{
    ru_memory_unmap(lo->memory, lo->memory_bytes);
    lo->memory = NULL;
    const rui_step_list *lists[] = {&lo->run, &lo->prep};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(lists); k++) {
        for (uint32_t i = 0; i < lists[k]->n; i++) {
            if (lists[k]->at[i].s.fini != NULL) {
                lists[k]->at[i].s.fini(lists[k]->at[i].s.state);
            }
        }
    }
    rui_dnnl_close(&lo->nn);
}
