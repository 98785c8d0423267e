/* State of another executable in place of own memory.
 *
 * A state of the same name and type is where the other executable has it, in its layout, or has
 * memory of its own in that layout (option own_params). What the
 * other one packed is used too: preparing steps are matched one by one, in order. Of a twin (the
 * same graph after the passes, lowered by the same options) all may match, of others those whose
 * work a recipe says. Two match when they do the same on
 * operands that are the same memory; their results are then the same memory too. A step without a
 * match stays, so that what differs (algorithms that were timed) costs memory, never correctness.
 */
#include "exec/cpu/low/low.h"

#include <string.h>

static uint32_t state_named(const ru_graph *g, const ru_value *like)
{
    for (uint32_t i = 1; i < g->n_values && like->name != NULL; i++) {
        const ru_value *v = &g->values[i];
        if (v->kind == RU_VALUE_STATE && v->name != NULL && strcmp(v->name, like->name) == 0 &&
            ru_type_equal(&v->type, &like->type)) {
            return i;
        }
    }
    return 0;
}

static void note_shared(rui_low *lo, uint32_t mine, uint32_t theirs)
{
    if (lo->n_shared == lo->cap_shared) {
        uint32_t cap = lo->cap_shared == 0 ? 64 : 2 * lo->cap_shared;
        rui_shared *more = rui_keep(lo, (int64_t)cap * (int64_t)sizeof *more);
        if (more == NULL) {
            return; /* the sticky error says so */
        }
        if (lo->n_shared > 0) {
            memcpy(more, lo->shared, lo->n_shared * sizeof *more);
        }
        lo->shared = more;
        lo->cap_shared = cap;
    }
    lo->shared[lo->n_shared++] = (rui_shared){mine, theirs};
}

bool rui_share_state(rui_low *lo, ru_value_id v)
{
    const ru_value *mine = &lo->g->values[v.v];
    uint32_t theirs = state_named(lo->share->g, mine);
    if (theirs == 0) {
        return false;
    }
    const rui_home *h = rui_home_find(lo->share, (ru_value_id){theirs}, NULL);
    if (h == NULL) {
        (void)rui_fail(lo, RU_E_UNSUPPORTED,
                       "state %s cannot be shared: no step of the other executable reads it",
                       mine->name);
        return true;
    }
    const rui_layout *l = h->layout->plain ? rui_plain_as(lo, &mine->type, h->layout->type.dtype)
                                           : rui_layout_md(lo, &h->layout->md);
    bool own = lo->opt.own_params && mine->role == RU_ROLE_PARAM && !lo->vals[v.v].frozen;
    rui_buf b = l == NULL ? (rui_buf){0}
                          : rui_buf_new(lo, own ? RUI_BUF_STATE : RUI_BUF_SHARED, l->size_bytes);
    if (b.v != 0 && own) {
        rui_home_add(lo, v, l, b);
    } else if (b.v != 0) {
        lo->bufs[b.v].ptr = rui_buf_ptr(lo->share, h->buf);
        rui_home_add(lo, v, l, b);
        note_shared(lo, b.v, rui_root(lo->share, h->buf));
    }
    return true;
}

/* -- packed copies ------------------------------------------------------------------------------
 */

static void put_layout(const rui_layout *l, ru_hasher *h)
{
    ru_hasher_put_u64(h, (uint64_t)l->type.dtype);
    ru_hasher_put_u64(h, (uint64_t)l->type.rank);
    for (uint32_t d = 0; d < l->type.rank; d++) {
        ru_hasher_put_u64(h, (uint64_t)l->type.dims[d]);
    }
    ru_hasher_put_u64(h, (uint64_t)l->size_bytes);
    ru_hasher_put_u64(h, l->plain ? 1 : 0);
    if (!l->plain) { /* all that oneDNN knows of it */
        ru_hasher_put(h, &l->md, (int64_t)sizeof l->md);
    }
}

uint64_t rui_share_recipe(const rui_layout *from, const rui_layout *to)
{
    ru_hasher h;
    ru_hasher_init(&h);
    put_layout(from, &h);
    put_layout(to, &h);
    return ru_hasher_get(&h).low | 1;
}

static bool same_work(const rui_step_rec *a, const rui_step_rec *b)
{
    return a->s.n_bufs == b->s.n_bufs && a->s.recipe == b->s.recipe &&
           strcmp(a->s.kernel, b->s.kernel) == 0 && (a->s.recipe != 0 || a->at == b->at);
}

/* Operand `mine` of this one and `theirs`: the same memory, or a result that may become it. */
static bool same_operand(const rui_low *lo, rui_buf mine, rui_buf theirs, const uint32_t *map)
{
    if (mine.v == 0 || theirs.v == 0) {
        return mine.v == theirs.v;
    }
    uint32_t a = rui_root(lo, mine), b = rui_root(lo->share, theirs);
    const rui_buf_rec *x = &lo->bufs[mine.v], *y = &lo->share->bufs[theirs.v];
    const rui_buf_rec *xr = &lo->bufs[a], *yr = &lo->share->bufs[b];
    if (x->size_bytes != y->size_bytes || xr->size_bytes != yr->size_bytes) {
        return false;
    }
    switch (xr->kind) {
    case RUI_BUF_DATA:
        return yr->kind == RUI_BUF_DATA && xr->ptr == yr->ptr;
    case RUI_BUF_SHARED:
        return map[a] == b;
    case RUI_BUF_PACKED:
        return mine.v == a && theirs.v == b && /* not pieces of it */
               (yr->kind == RUI_BUF_PACKED || yr->kind == RUI_BUF_SHARED);
    case RUI_BUF_SCRATCH:
        return yr->kind == RUI_BUF_SCRATCH;
    case RUI_BUF_TEMP:
    case RUI_BUF_INPUT:
    case RUI_BUF_OUTPUT:
    case RUI_BUF_STATE:
        break;
    }
    return false;
}

static bool same_step(const rui_low *lo, const rui_step_rec *a, const rui_step_rec *b,
                      const uint32_t *map)
{
    bool same = same_work(a, b);
    for (uint32_t k = 0; k < a->s.n_bufs && same; k++) {
        same = same_operand(lo, a->s.bufs[k], b->s.bufs[k], map);
    }
    return same;
}

static void take_results(rui_low *lo, rui_step_rec *a, const rui_step_rec *b, uint32_t *map)
{
    for (uint32_t k = 0; k < a->s.n_bufs; k++) {
        rui_buf_rec *r = &lo->bufs[a->s.bufs[k].v];
        if (r->kind == RUI_BUF_PACKED) {
            r->kind = RUI_BUF_SHARED;
            r->ptr = rui_buf_ptr(lo->share, b->s.bufs[k]);
            map[a->s.bufs[k].v] = b->s.bufs[k].v;
        }
    }
    if (a->s.fini != NULL) { /* it never runs */
        a->s.fini(a->s.state);
    }
    a->s.fini = NULL;
    a->s.bind = NULL;
    a->shared = true;
}

ru_status rui_share_packed(rui_low *lo, ru_err *err)
{
    if (lo->share == NULL) {
        return RU_OK;
    }
    uint32_t *map = rui_keep(lo, (int64_t)lo->n_bufs * (int64_t)sizeof *map);
    if (map == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to share packed weights");
    }
    for (uint32_t i = 0; i < lo->n_shared; i++) {
        map[lo->shared[i].mine] = lo->shared[i].theirs;
    }
    for (uint32_t i = 0; i < lo->prep.n; i++) {
        rui_step_rec *a = &lo->prep.at[i];
        for (uint32_t j = 0; j < lo->share->prep.n && !a->shared; j++) {
            const rui_step_rec *b = &lo->share->prep.at[j];
            if ((lo->twin || a->s.recipe != 0) && same_step(lo, a, b, map)) {
                take_results(lo, a, b, map);
            }
        }
    }
    return RU_OK;
}
