/* What the list of steps is: labels, print, facts of each op instance.
 *
 * A step waits for the step that makes a buffer that it mentions: the first one that mentions it.
 * A buffer and a view of it count as one where either is made before the step. */
#include "exec/cpu/low/low.h"

#include <math.h>
#include <string.h>

const char *rui_step_label(const rui_low *lo, const rui_step_rec *r)
{
    return r->label != NULL ? r->label
           : r->node == 0   ? "reorder"
                            : ru_op_get(lo->g->nodes[r->node].op)->name;
}

void rui_low_installed(rui_low *lo, const ru_policy *policy, const void *in)
{
    if (lo->n_plans == lo->cap_plans) {
        uint32_t cap = lo->cap_plans == 0 ? 8 : 2 * lo->cap_plans;
        ru_exe_plan *more = rui_keep(lo, (int64_t)cap * (int64_t)sizeof *more);
        if (more == NULL) {
            return; /* the sticky error says so */
        }
        if (lo->n_plans > 0) {
            memcpy(more, lo->plans, lo->n_plans * sizeof *more);
        }
        lo->plans = more;
        lo->cap_plans = cap;
    }
    lo->plans[lo->n_plans++] = (ru_exe_plan){policy, in};
}

static void print_step(const rui_low *lo, uint32_t i, const rui_step_time *took, ru_text *t)
{
    const rui_step_rec *r = &lo->run.at[i];
    const ru_node *n = r->node == 0 ? NULL : &lo->g->nodes[r->node];
    ru_text_putf(t, "%4u %-18s %-26s", i, rui_step_label(lo, r), r->s.kernel);
    for (uint32_t k = 0; k < r->s.n_bufs && k < 8; k++) {
        rui_buf b = r->s.bufs[k];
        if (b.v == 0) {
            ru_text_put(t, " -");
        } else {
            ru_text_putf(t, " %u:%lld", rui_root(lo, b), (long long)lo->bufs[b.v].size_bytes);
        }
    }
    if (n != NULL && n->n_out > 0 && n->out[0].v != 0) {
        char type[128];
        ru_text_putf(t, "  %s",
                     ru_type_print(lo->g, &lo->g->values[n->out[0].v].type, type, sizeof type));
    }
    if (took->n > 0) {
        double per_run = (double)took->ns_sum / (double)took->n;
        ru_text_putf(t, "  %.1f us", per_run / 1e3);
        if (n != NULL && per_run > 0) {
            ru_text_putf(t, " %.0f GFLOP/s", (double)ru_node_flops(lo->g, n) / per_run);
        }
    }
    ru_text_char(t, '\n', 1);
}

/* Does the compute library run the step by plain loops? The names of such kernels end so
 * ("simple_nchw:any", "lrn_ref:any"); others name an instruction set or a generator. */
static bool is_plain(const char *kernel)
{
    return kernel != NULL && strncmp(kernel, "dnnl ", 5) == 0 && strstr(kernel, ":any") != NULL;
}

/* "LRN (dnnl lrn ref:any), ..." */
static void print_plain(const rui_low *lo, ru_text *t)
{
    uint32_t n = 0;
    ru_text_put(t, "on plain loops of the compute library:");
    for (uint32_t i = 0; i < lo->run.n; i++) {
        const rui_step_rec *r = &lo->run.at[i];
        if (is_plain(r->s.kernel)) {
            ru_text_putf(t, "%s %s (%s)", n > 0 ? "," : "", rui_step_label(lo, r), r->s.kernel);
            n++;
        }
    }
    ru_text_put(t, n > 0 ? "\n" : " none\n");
}

const char *rui_low_print(const rui_low *lo, const rui_step_time *times, const char *slow,
                          ru_arena *arena)
{
    ru_text t = ru_text_arena(arena);
    for (uint32_t i = 0; i < lo->run.n; i++) {
        print_step(lo, i, &times[i], &t);
    }
    if (lo->has_nn) {
        ru_text_putf(&t, "on reference kernels: %s\n", lo->n_slow > 0 ? slow : "none");
        print_plain(lo, &t);
    }
    return t.p;
}

/* -- facts ----------------------------------------------------------------------------------------
 */

void rui_low_note_makers(rui_low *lo)
{
    for (uint32_t i = 1; i < lo->n_bufs; i++) {
        lo->bufs[i].made = UINT32_MAX;
        lo->bufs[i].whole = rui_root(lo, (rui_buf){i});
    }
    for (uint32_t i = 0; i < lo->run.n; i++) {
        const rui_step *s = &lo->run.at[i].s;
        for (uint32_t k = 0; k < s->n_bufs; k++) {
            uint32_t b = s->bufs[k].v;
            if (b != 0 && lo->bufs[b].made == UINT32_MAX) {
                lo->bufs[b].made = i;
            }
        }
    }
}

static void put_types(const rui_low *lo, const ru_value_id *ids, uint32_t n, ru_text *t)
{
    char type[128];
    for (uint32_t k = 0; k < n; k++) {
        const char *one =
            ids[k].v == 0 ? "-"
                          : ru_type_print(lo->g, &lo->g->values[ids[k].v].type, type, sizeof type);
        ru_text_putf(t, "%s%s", t->n > 0 ? " " : "", one);
    }
}

static const char *shapes_of(const rui_low *lo, const ru_node *n, ru_arena *arena)
{
    ru_text t = ru_text_arena(arena);
    put_types(lo, n->in, n->n_in, &t);
    ru_text_put(&t, " >");
    put_types(lo, n->out, n->n_out, &t);
    return t.cut ? NULL : t.p;
}

/* Does the memory of a buffer carry results from step to step? */
static bool carries(const rui_buf_rec *b)
{
    return b->kind == RUI_BUF_TEMP || b->kind == RUI_BUF_OUTPUT;
}

/* Marks the steps that step i waits for. */
static void mark_after(const rui_low *lo, uint32_t i, bool *after)
{
    const rui_step *s = &lo->run.at[i].s;
    for (uint32_t k = 0; k < s->n_bufs; k++) {
        uint32_t b = s->bufs[k].v;
        if (b == 0 || !carries(&lo->bufs[lo->bufs[b].whole])) {
            continue;
        }
        uint32_t whole = lo->bufs[b].whole;
        for (uint32_t o = 1; o < lo->n_bufs; o++) {
            /* a view waits for the whole and the whole for its views, not views for each other */
            bool same = o == b || o == whole || (b == whole && lo->bufs[o].whole == whole);
            if (same && lo->bufs[o].made < i) {
                after[lo->bufs[o].made] = true;
            }
        }
    }
}

static int64_t bytes_of(const rui_low *lo, const rui_step *s)
{
    int64_t bytes = 0;
    for (uint32_t k = 0; k < s->n_bufs; k++) {
        bool seen = false;
        for (uint32_t m = 0; m < k; m++) {
            seen = seen || s->bufs[m].v == s->bufs[k].v;
        }
        bytes += seen ? 0 : lo->bufs[s->bufs[k].v].size_bytes;
    }
    return bytes;
}

static ru_fact took_of(const rui_step_time *r)
{
    if (r->n == 0 || r->ns_sum == 0) {
        return (ru_fact){0};
    }
    ru_fact f = {.count = r->n,
                 .mean_ns = (double)r->ns_sum / (double)r->n,
                 .min_ns = r->ns_min,
                 .max_ns = r->ns_max};
    double spread = r->ns_squares / (double)r->n - f.mean_ns * f.mean_ns;
    f.stddev_ns = spread > 0 ? sqrt(spread) : 0;
    return f;
}

static ru_status one_op(const rui_low *lo, uint32_t i, bool *after, ru_arena *arena, ru_op_fact *f,
                        ru_err *err)
{
    const rui_step_rec *r = &lo->run.at[i];
    const ru_node *n = r->node == 0 ? NULL : &lo->g->nodes[r->node];
    RU_CHECK(i < lo->run.n && r->node < lo->g->n_nodes);
    memset(after, 0, lo->run.n * sizeof *after);
    mark_after(lo, i, after);
    uint32_t n_after = 0;
    for (uint32_t k = 0; k < i; k++) {
        n_after += after[k];
    }
    int64_t *list = RU_NEW(arena, int64_t, n_after);
    f->step = i;
    f->op = rui_step_label(lo, r);
    f->kernel = ru_arena_str(arena, r->s.kernel != NULL ? r->s.kernel : "");
    f->shapes = n != NULL ? shapes_of(lo, n, arena) : "";
    f->node = n == NULL         ? ""
              : n->name == NULL ? ru_arena_printf(arena, "#%u", r->node)
                                : ru_arena_str(arena, n->name);
    f->bytes = bytes_of(lo, &r->s);
    if (list == NULL || f->kernel == NULL || f->shapes == NULL || f->node == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u op instances", lo->run.n);
    }
    f->after = (ru_conf_i64s){list, n_after};
    for (uint32_t k = 0; k < i; k++) {
        if (after[k]) {
            *list++ = k;
        }
    }
    return RU_OK;
}

/* Of a node and of all that were lowered with it. */
static int64_t flops_of(const rui_low *lo, uint32_t node)
{
    int64_t flops = 0;
    for (uint32_t i = node; i < lo->g->n_nodes; i++) {
        flops += lo->claimed[i] == node ? ru_node_flops(lo->g, &lo->g->nodes[i]) : 0;
    }
    return flops;
}

ru_status rui_low_ops(const rui_low *lo, const char *device_type, const rui_step_time *times,
                      ru_arena *arena, ru_op_fact **ops, ru_err *err)
{
    ru_op_fact *all = RU_NEW(arena, ru_op_fact, lo->run.n);
    bool *after = RU_NEW(arena, bool, lo->run.n);
    if (all == NULL || after == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u op instances", lo->run.n);
    }
    for (uint32_t i = 0; i < lo->run.n; i++) {
        uint32_t node = lo->run.at[i].node;
        RU_TRY(one_op(lo, i, after, arena, &all[i], err));
        all[i].device_type = device_type;
        all[i].took = took_of(&times[i]);
        /* The arithmetic of a node of several steps is that of its last one. */
        bool last = node != 0;
        for (uint32_t k = i + 1; k < lo->run.n && last; k++) {
            last = lo->run.at[k].node != node;
        }
        all[i].flops = last ? flops_of(lo, node) : 0;
    }
    *ops = all;
    return RU_OK;
}

uint64_t rui_low_id(const rui_low *lo)
{
    ru_hasher h;
    ru_hasher_init(&h);
    for (uint32_t i = 0; i < lo->run.n; i++) {
        const rui_step_rec *r = &lo->run.at[i];
        ru_hasher_put_str(&h, rui_step_label(lo, r));
        ru_hasher_put_str(&h, r->s.kernel);
        ru_hasher_put_u64(&h, r->node);
        ru_hasher_put_u64(&h, (uint64_t)bytes_of(lo, &r->s));
    }
    return ru_hasher_get(&h).low;
}
