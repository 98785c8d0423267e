/* The update in parts: which gradient each part needs, and how long its memory stays.
 *
 * Steps say what they mention, not what they write. So a buffer carries the gradients of all steps
 * that mention it, unless it is written once (a result with no view and nothing in its place) or
 * never (constants, inputs, frozen state): too many is safe, as the update then does not open. */
#include "exec/cpu/low/update.h"

#include <string.h>

#include "exec/cpu/low/optim.h"

static const uint32_t none = UINT32_MAX, many = UINT32_MAX - 1;

/* -- memory of the update ------------------------------------------------------------------------
 */

static uint32_t *table(rui_low *lo, int64_t n)
{
    uint32_t *t = rui_keep(lo, (n + 1) * (int64_t)sizeof *t);
    if (t != NULL) {
        memset(t, 0xff, (size_t)(n + 1) * sizeof *t);
    }
    return t;
}

/* A piece of memory like `b`, at the same place of the copy. */
static rui_buf copy_of(rui_low *lo, rui_buf b, uint32_t *copies)
{
    uint32_t root = rui_root(lo, b);
    rui_update *up = lo->up;
    if (copies[root] == none) {
        rui_buf c = rui_buf_new(lo, RUI_BUF_OUTPUT, lo->bufs[root].size_bytes);
        copies[root] = c.v;
        up->late[up->n_late++] = (rui_late){root, c.v};
    }
    int64_t offset = 0;
    for (uint32_t i = b.v; i != root; i = lo->bufs[i].root) {
        offset += lo->bufs[i].offset_bytes;
    }
    rui_buf c = {copies[root]};
    return b.v == root ? c : rui_buf_part(lo, c, offset, lo->bufs[b.v].size_bytes);
}

/* The inputs of the next run come while the update is open. */
static void copy_inputs(rui_low *lo)
{
    uint32_t n = lo->n_bufs, *copies = table(lo, n);
    lo->up->late = rui_keep(lo, (int64_t)(lo->g->n_inputs + 1) * (int64_t)sizeof *lo->up->late);
    for (uint32_t i = lo->update_from; i < lo->run.n; i++) {
        rui_step_rec *r = &lo->run.at[i];
        union {
            const rui_buf *in;
            rui_buf *out;
        } bufs = {.in = r->s.bufs}; /* the list's own */
        for (uint32_t k = 0; k < r->s.n_bufs && lo->status == RU_OK; k++) {
            rui_buf b = bufs.in[k];
            if (b.v != 0 && lo->bufs[rui_root(lo, b)].kind == RUI_BUF_INPUT) {
                bufs.out[k] = copy_of(lo, b, copies);
            }
        }
    }
    for (uint32_t i = n; i < lo->n_bufs; i++) {
        lo->bufs[i].made = UINT32_MAX;
        lo->bufs[i].whole = lo->bufs[i].root;
    }
}

ru_status rui_update_plan(rui_low *lo, ru_err *err)
{
    if (!lo->opt.two_phase) {
        return RU_OK;
    }
    lo->up = rui_keep(lo, (int64_t)sizeof *lo->up);
    if (lo->status == RU_OK && lo->opt.overlap) {
        copy_inputs(lo);
    }
    uint32_t *grad_of = lo->status == RU_OK ? table(lo, lo->n_bufs) : NULL;
    if (grad_of == NULL) {
        return ru_err_set(err, lo->status, "%s", lo->err.text);
    }
    for (uint32_t g = 0; g < lo->n_grads; g++) {
        uint32_t root = rui_root(lo, lo->grads[g].buf);
        grad_of[root] = grad_of[root] == none ? g : many;
    }
    lo->up->grad_of = grad_of;
    return RU_OK;
}

void rui_update_lives(const rui_low *lo, uint32_t i, bool overlap, uint32_t *first, uint32_t *last)
{
    if (lo->up == NULL) {
        return;
    }
    bool updates = *first >= lo->update_from, grad = lo->up->grad_of[i] != none;
    if (updates || (grad && overlap)) { /* parts are made in any order */
        *first = overlap ? 0 : *first < lo->update_from ? *first : lo->update_from;
        *last = lo->run.n;
    }
}

void rui_update_inputs(const rui_low *lo)
{
    for (uint32_t i = 0; lo->up != NULL && i < lo->up->n_late; i++) {
        const rui_late *l = &lo->up->late[i];
        memcpy(rui_buf_ptr(lo, (rui_buf){l->copy}), rui_buf_ptr(lo, (rui_buf){l->input}),
               (size_t)lo->bufs[l->input].size_bytes);
    }
}

/* -- which gradient a part needs -----------------------------------------------------------------
 */

typedef struct listing {
    rui_low *lo;
    rui_update *up;
    uint32_t *needs;  /* [n_bufs] of roots: gradient that steps so far need to make it */
    uint32_t *writes; /* [n_bufs] of roots: 0: nothing, 1: once, 2: perhaps more */
    uint32_t *seen;   /* [n_bufs] of roots: the step that mentions it; many: several do */
    rui_part *parts;  /* [n] in the order of the list, with what each needs */
    uint32_t *of;
    uint32_t n;
} listing;

static uint32_t join(uint32_t a, uint32_t b)
{
    return a == none || a == b ? b : b == none ? a : many;
}

static void note_state(listing *l, uint32_t v)
{
    const rui_home *h = rui_home_find(l->lo, (ru_value_id){v}, NULL);
    if (l->lo->g->values[v].kind == RU_VALUE_STATE && !l->lo->vals[v].frozen && h != NULL) {
        l->writes[rui_root(l->lo, h->buf)] = 2;
    }
}

/* What may be written, and which steps mention what. */
static void look(listing *l)
{
    const rui_low *lo = l->lo;
    for (uint32_t i = 1; i < lo->n_bufs; i++) {
        uint32_t root = rui_root(lo, (rui_buf){i});
        rui_buf_kind kind = lo->bufs[root].kind;
        bool temp = kind == RUI_BUF_TEMP || kind == RUI_BUF_OUTPUT;
        l->writes[root] += temp && l->writes[root] < 2 ? 1 : 0;
    }
    for (uint32_t i = 0; i < l->up->n_late; i++) {
        l->writes[l->up->late[i].copy] = 0;
    }
    for (uint32_t v = 1; v < lo->g->n_values; v++) {
        note_state(l, v);
    }
    for (uint32_t i = lo->update_from; i < lo->run.n; i++) {
        const rui_step_rec *r = &lo->run.at[i];
        for (uint32_t k = 0; k < r->s.n_bufs; k++) {
            uint32_t root = rui_root(lo, r->s.bufs[k]);
            l->seen[root] = l->seen[root] == none || l->seen[root] == i ? i : many;
        }
    }
}

/* Does no other step of the update mention what the step at `at` changes, and none make the scalars
 * that it reads (a norm of all gradients)? */
static bool stands_alone(const listing *l, uint32_t at)
{
    const rui_low *lo = l->lo;
    const rui_step_rec *r = &lo->run.at[at];
    bool alone = true;
    for (uint32_t k = 0; k < r->s.n_bufs && alone; k++) {
        uint32_t root = rui_root(lo, r->s.bufs[k]);
        bool head = k < RUI_OPTIM_HEAD;
        bool gradient = !head && (k - RUI_OPTIM_HEAD) % RUI_OPTIM_PER == 1;
        bool made = head && lo->bufs[root].kind == RUI_BUF_TEMP &&
                    lo->bufs[root].first != UINT32_MAX && lo->bufs[root].first >= lo->update_from;
        alone = root == 0 || (head ? !made : gradient || l->seen[root] == at);
    }
    return alone;
}

static void put(listing *l, uint32_t step, uint32_t seg, uint32_t needs)
{
    l->parts[l->n] = (rui_part){step, seg};
    l->of[l->n++] = needs;
    l->up->needs_more = needs == many && l->up->needs_more == none ? step : l->up->needs_more;
}

static uint32_t need_of(const listing *l, rui_buf b)
{
    return b.v == 0 ? none : l->needs[rui_root(l->lo, b)];
}

static void put_segments(listing *l, uint32_t step, const rui_optim *s)
{
    const rui_buf *b = l->lo->run.at[step].s.bufs + RUI_OPTIM_HEAD;
    for (uint32_t k = 0; k < s->n; k++, b += RUI_OPTIM_PER) {
        uint32_t needs = need_of(l, b[1]);
        put(l, step, k, needs);
        for (uint32_t j = 0; j < RUI_OPTIM_PER; j++) {
            if (j != 1 && b[j].v != 0) {
                l->needs[rui_root(l->lo, b[j])] = needs;
            }
        }
    }
}

static void put_whole(listing *l, uint32_t step)
{
    const rui_step_rec *r = &l->lo->run.at[step];
    uint32_t needs = none;
    for (uint32_t k = 0; k < r->s.n_bufs; k++) {
        needs = join(needs, need_of(l, r->s.bufs[k]));
    }
    put(l, step, RUI_PART_WHOLE, needs);
    for (uint32_t k = 0; k < r->s.n_bufs; k++) {
        uint32_t root = rui_root(l->lo, r->s.bufs[k]);
        bool begins = l->lo->bufs[root].first == step;
        if (root != 0 && (l->writes[root] > 1 || (l->writes[root] == 1 && begins))) {
            l->needs[root] = join(l->needs[root], needs);
        }
        bool state =
            root != 0 && l->writes[root] > 1 && l->up->was_of[root] == none &&
            (l->lo->bufs[root].kind == RUI_BUF_STATE || l->lo->bufs[root].kind == RUI_BUF_SHARED);
        if (state) {
            l->up->was_of[root] = l->up->n_was;
            l->up->was[l->up->n_was++].root = root;
        }
    }
}

/* By gradient, the order of the list within each. */
static void sort_parts(const listing *l)
{
    rui_update *up = l->up;
    uint32_t all = l->lo->n_grads, *first = up->first;
    memset(first, 0, (all + 2) * sizeof *first);
    for (uint32_t k = 0; k < l->n; k++) {
        first[(l->of[k] < all ? l->of[k] : all) + 1]++;
    }
    for (uint32_t g = 0; g <= all; g++) {
        first[g + 1] += first[g];
    }
    for (uint32_t k = l->n; k-- > 0;) { /* from behind: each place is given once */
        uint32_t g = l->of[k] < all ? l->of[k] : all;
        up->parts[--first[g + 1]] = l->parts[k];
    }
    for (uint32_t g = 0; g <= all; g++) { /* now first[g + 1] is where g begins */
        first[g] = first[g + 1];
    }
    first[all + 1] = l->n;
}

static void find_owners(const listing *l)
{
    const rui_low *lo = l->lo;
    for (uint32_t v = 1; v < lo->g->n_values; v++) {
        const rui_home *h = lo->g->values[v].kind == RU_VALUE_STATE
                                ? rui_home_find(lo, (ru_value_id){v}, NULL)
                                : NULL;
        l->up->owner[v] = h != NULL ? l->needs[rui_root(lo, h->buf)] : none;
    }
    for (uint32_t g = 0; g < lo->n_grads; g++) {
        l->up->owner[lo->grads[g].v.v] = g;
    }
}

static int64_t count_parts(const rui_low *lo)
{
    int64_t n = 1;
    for (uint32_t i = lo->update_from; i < lo->run.n; i++) {
        const rui_optim *s = rui_optim_at(lo, i);
        n += s != NULL && s->n > 1 ? s->n : 1;
    }
    return n;
}

static bool get_tables(listing *l, int64_t n)
{
    rui_low *lo = l->lo;
    rui_update *up = l->up;
    int64_t states = (int64_t)lo->g->n_values;
    l->needs = table(lo, lo->n_bufs);
    l->writes = rui_keep(lo, (int64_t)lo->n_bufs * (int64_t)sizeof *l->writes);
    l->seen = table(lo, lo->n_bufs);
    l->parts = rui_keep(lo, n * (int64_t)sizeof *l->parts);
    l->of = table(lo, n);
    up->parts = rui_keep(lo, n * (int64_t)sizeof *up->parts);
    up->first = table(lo, (int64_t)lo->n_grads + 2);
    up->owner = table(lo, states);
    up->was_of = table(lo, lo->n_bufs);
    up->was = rui_keep(lo, (states + 1) * (int64_t)sizeof *up->was);
    up->left = rui_keep(lo, ((int64_t)lo->n_grads + 1) * (int64_t)sizeof *up->left);
    return lo->status == RU_OK;
}

ru_status rui_update_bound(rui_low *lo, ru_err *err)
{
    if (lo->up == NULL) {
        return RU_OK;
    }
    listing l = {.lo = lo, .up = lo->up};
    lo->up->needs_more = none;
    if (!get_tables(&l, count_parts(lo))) {
        return ru_err_set(err, lo->status, "%s", lo->err.text);
    }
    look(&l);
    memcpy(l.needs, lo->up->grad_of, lo->n_bufs * sizeof *l.needs);
    for (uint32_t i = lo->update_from; i < lo->run.n; i++) {
        rui_optim *s = rui_optim_at(lo, i);
        if (s != NULL && rui_optim_in_place(s) && stands_alone(&l, i)) {
            s->early.may = true;
            put_segments(&l, i, s);
        } else {
            put_whole(&l, i);
        }
    }
    sort_parts(&l);
    find_owners(&l);
    return RU_OK;
}
