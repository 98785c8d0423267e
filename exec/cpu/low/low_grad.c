/* Gradients that leave the executable and come back as sums: where they stand, which step makes
 * each, which reads it first, and where the update begins.
 *
 *     steps   forward, backward: make g1 g2 g3 | update: read g1 g2 g3, write state
 *                                              ^ update_from: nothing that persists changed before
 */
#include "exec/cpu/low/low.h"

ru_status rui_grads_list(rui_low *lo)
{
    const ru_graph *g = lo->g;
    lo->grads = rui_keep(lo, (int64_t)(g->n_values + 1) * (int64_t)sizeof *lo->grads);
    for (uint32_t i = 1; i < g->n_values && lo->status == RU_OK; i++) {
        if (rui_grad_leaves(g, (ru_value_id){i})) {
            lo->grads[lo->n_grads++] = (rui_grad){.v = {i}, .made = UINT32_MAX, .read = UINT32_MAX};
        }
    }
    lo->ports = rui_keep(lo, (int64_t)(lo->opt.n_ports + 1) * (int64_t)sizeof *lo->ports);
    for (uint32_t i = 0; i < lo->opt.n_ports && lo->status == RU_OK; i++) {
        lo->ports[i] = (rui_grad){.v = lo->opt.ports[i], .made = UINT32_MAX, .read = UINT32_MAX};
    }
    return lo->status;
}

/* Own memory, f32, no padding; row-major where asked: the value's only home from here on. */
static void settle(rui_low *lo, const rui_grad *gr, bool plain, void *given)
{
    rui_val *val = &lo->vals[gr->v.v];
    const rui_layout *l = val->homes[0].layout;
    const ru_type *t = &lo->g->values[gr->v.v].type;
    if (plain || l->padded || l->opaque) {
        l = rui_plain(lo, t);
    } else if (l->type.dtype != t->dtype) {
        l = rui_layout_as(lo, l, t->dtype);
    }
    rui_buf b = rui_in(lo, gr->v, l);
    if (lo->status != RU_OK) {
        return;
    }
    bool own = rui_root(lo, b) == b.v && lo->bufs[b.v].kind == RUI_BUF_TEMP;
    if (own && given != NULL) {
        lo->bufs[b.v].kind = RUI_BUF_DATA;
        lo->bufs[b.v].ptr = given;
    }
    if (!own) {
        rui_buf copy = rui_buf_new(lo, given != NULL ? RUI_BUF_DATA : RUI_BUF_TEMP, l->size_bytes);
        lo->bufs[copy.v].ptr = given;
        rui_step s = {0};
        if (lo->status != RU_OK || rui_reorder_step(lo, l, b, l, copy, &s) != RU_OK) {
            return;
        }
        rui_emit_to(lo, &lo->run, &s, 0);
        b = copy;
    }
    val->homes[0] = (rui_home){.layout = l, .buf = b};
    val->n_homes = 1;
}

/* Does a step that is emitted already read `v`, merged with the one that makes it? */
static bool is_merged(const rui_low *lo, ru_value_id v)
{
    for (uint32_t i = lo->node + 1; i < lo->g->n_nodes; i++) {
        const ru_node *n = &lo->g->nodes[i];
        for (uint32_t k = 0; k < n->n_in && lo->claimed[i] != 0; k++) {
            if (n->in[k].v == v.v) {
                return true;
            }
        }
    }
    return false;
}

static void ports_made(rui_low *lo)
{
    for (uint32_t i = 0; i < lo->opt.n_ports && lo->status == RU_OK; i++) {
        rui_grad *p = &lo->ports[i];
        if (p->made != UINT32_MAX || lo->vals[p->v.v].n_homes == 0) {
            continue;
        }
        if (is_merged(lo, p->v)) {
            (void)rui_fail(lo, RU_E_UNSUPPORTED,
                           "value %u has a port, but one kernel makes and reads it", p->v.v);
            return;
        }
        settle(lo, p, true, NULL);
        p->made = lo->run.n > 0 ? lo->run.n - 1 : 0;
    }
}

/* The last of the values that end the forward part. */
static void forward_made(rui_low *lo)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < lo->opt.n_forward; i++) {
        uint32_t v = lo->opt.forward[i].v;
        n += v < lo->g->n_values && lo->vals[v].n_homes > 0;
    }
    if (n > lo->n_forward) {
        lo->n_forward = n;
        lo->backward_from = lo->run.n;
    }
}

void rui_grads_made(rui_low *lo)
{
    for (uint32_t i = 0; i < lo->n_grads && lo->status == RU_OK; i++) {
        rui_grad *gr = &lo->grads[i];
        if (gr->made != UINT32_MAX || lo->vals[gr->v.v].n_homes == 0) {
            continue;
        }
        if (lo->opt.two_phase) {
            void *given = lo->opt.grad_at == NULL ? NULL : lo->opt.grad_at[i];
            settle(lo, gr, lo->opt.plain_grads, given);
        }
        gr->made = lo->run.n > 0 ? lo->run.n - 1 : 0; /* a mere view: no step makes it */
    }
    ports_made(lo);
    forward_made(lo); /* with the copies that ports need */
}

static bool mentions(const rui_low *lo, const rui_step_rec *r, uint32_t root)
{
    for (uint32_t k = 0; k < r->s.n_bufs; k++) {
        if (r->s.bufs[k].v != 0 && rui_root(lo, r->s.bufs[k]) == root) {
            return true;
        }
    }
    return false;
}

/* Where the value stands, and who mentions it first after it is made. */
static ru_status find_read(rui_low *lo, rui_grad *gr, ru_err *err)
{
    if (gr->made == UINT32_MAX) {
        return RU_FAIL(err, RU_E_BUG, "no step computes value %u", gr->v.v);
    }
    gr->layout = lo->vals[gr->v.v].homes[0].layout;
    gr->buf = lo->vals[gr->v.v].homes[0].buf;
    uint32_t root = rui_root(lo, gr->buf);
    for (uint32_t s = gr->made + 1; s < lo->run.n && gr->read == UINT32_MAX; s++) {
        gr->read = mentions(lo, &lo->run.at[s], root) ? s : UINT32_MAX;
    }
    return RU_OK;
}

/* Does the update phase live from gradients, inputs and state alone? Remembers the step that does
 * not. */
static void check_alone(rui_low *lo)
{
    lo->not_alone = UINT32_MAX;
    for (uint32_t i = lo->update_from; i < lo->run.n && lo->not_alone == UINT32_MAX; i++) {
        const rui_step_rec *r = &lo->run.at[i];
        for (uint32_t k = 0; k < r->s.n_bufs; k++) {
            uint32_t root = rui_root(lo, r->s.bufs[k]);
            const rui_buf_rec *b = &lo->bufs[root];
            bool early = root != 0 && b->kind == RUI_BUF_TEMP && b->first < lo->update_from;
            for (uint32_t j = 0; early && j < lo->n_grads; j++) {
                early = rui_root(lo, lo->grads[j].buf) != root;
            }
            lo->not_alone = early ? i : lo->not_alone;
        }
    }
}

/* What leaves before the first gradient is read is made by the backward part, also behind the last
 * gradient (those of inputs are). */
static ru_status ports_plan(rui_low *lo, ru_err *err)
{
    uint32_t read = lo->n_grads == 0 ? 0 : lo->run.n;
    for (uint32_t i = 0; i < lo->n_grads; i++) {
        read = lo->grads[i].read < read ? lo->grads[i].read : read;
    }
    for (uint32_t i = 0; i < lo->opt.n_ports; i++) {
        rui_grad *p = &lo->ports[i];
        RU_TRY(find_read(lo, p, err));
        if (p->made < read && p->made + 1 > lo->update_from) {
            lo->update_from = p->made + 1;
        }
    }
    return RU_OK;
}

ru_status rui_grads_plan(rui_low *lo, ru_err *err)
{
    lo->update_from = lo->n_grads == 0 ? lo->run.n : 0;
    for (uint32_t i = 0; i < lo->n_grads; i++) {
        const rui_grad *gr = &lo->grads[i];
        RU_TRY(find_read(lo, &lo->grads[i], err));
        lo->update_from = gr->made + 1 > lo->update_from ? gr->made + 1 : lo->update_from;
    }
    RU_TRY(ports_plan(lo, err));
    for (uint32_t i = 0; i < lo->n_grads && lo->opt.two_phase; i++) {
        const rui_grad *gr = &lo->grads[i];
        if (gr->read < lo->update_from) {
            return RU_FAIL(err, RU_E_BUG, "gradient %u is read by step %u (%s) before the update",
                           gr->v.v, gr->read, lo->run.at[gr->read].s.kernel);
        }
    }
    if (lo->opt.n_forward > 0 &&
        (lo->backward_from == 0 || lo->backward_from > lo->update_from || !lo->opt.two_phase)) {
        return RU_FAIL(err, RU_E_ARG,
                       "phases cannot run separately: the forward part ends with step %u, the "
                       "gradients with step %u of a %s executable",
                       lo->backward_from, lo->update_from,
                       lo->opt.two_phase ? "two-phase" : "one-phase");
    }
    check_alone(lo);
    return RU_OK;
}
