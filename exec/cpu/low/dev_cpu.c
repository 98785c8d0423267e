/* The CPU device and the reference device behind the table of exec/dev.h: a lowering context, run.
 *
 * State that was written makes stale what the preparing steps packed from it. A preparing step runs
 * again when something that it mentions has changed; what it mentions may have changed then.
 *
 * State has a version beside its memory, which each executable that shares it compares with the one
 * that it packed last. */
#include "exec/dev.h"

#include <stdlib.h>
#include <string.h>

#include "env/process/memory.h"
#include "env/thread.h"
#include "exec/cpu/low/optim.h"
#include "exec/cpu/low/update.h"

/* Executables that share state, the owner's. */
typedef struct family {
    ru_flag several; /* there were more than the owner: some may run while one is opened */
    uint64_t clock;  /* of versions */
} family;

typedef struct cpu_dev cpu_dev;
struct cpu_dev {
    rui_dev head; /* first */
    rui_low lo;
    cpu_dev *share; /* whose state this one uses; NULL: all is its own */
    family *family;
    family own;
    uint64_t *versions; /* [n_bufs] of own states */
    uint64_t **version; /* [n_bufs] of roots that are states; NULL: it is none */
    uint64_t *seen;     /* [n_bufs] version at the last preparation */
    uint32_t *states;   /* [n_states] those roots */
    bool *updated;      /* [n_states] by this graph */
    uint32_t n_states;
    ru_arena scratch; /* of reference kernels */
    ru_pool *pool;
    bool *changed;   /* [n_bufs] roots written since the last preparation */
    uint32_t *first; /* [n_bufs] of roots: first run step that mentions them, or what is packed
                        from them; UINT32_MAX: none */
    bool stale;
    int64_t n_prepared; /* preparing steps that ran so far */
};

static cpu_dev *of(rui_dev *d)
{
    return (cpu_dev *)(void *)d;
}

static const cpu_dev *of_const(const rui_dev *d)
{
    return (const cpu_dev *)(const void *)d;
}

static rui_run run_of(cpu_dev *c, const ru_run_args *args, ru_err *err)
{
    return (rui_run){.args = args,
                     .pool = c->pool,
                     .scratch = &c->scratch,
                     .stream = c->lo.nn.stream,
                     .err = err};
}

/* -- preparation --------------------------------------------------------------------------------
 */

/* Does the step mention a root that changed? */
static bool is_stale(const cpu_dev *c, const rui_step *s)
{
    bool any = false;
    for (uint32_t k = 0; k < s->n_bufs; k++) {
        any = any || (s->bufs[k].v != 0 && c->changed[rui_root(&c->lo, s->bufs[k])]);
    }
    return any;
}

static void mark_changed(cpu_dev *c, const rui_step *s)
{
    for (uint32_t k = 0; k < s->n_bufs; k++) {
        uint32_t root = rui_root(&c->lo, s->bufs[k]);
        rui_buf_kind kind = c->lo.bufs[root].kind;
        c->changed[root] = c->changed[root] || kind == RUI_BUF_PACKED;
    }
}

/* What others have written since, of states that this graph does not update: only those have packed
 * copies. */
static void look_at_versions(cpu_dev *c)
{
    for (uint32_t i = 0; i < c->n_states; i++) {
        uint32_t root = c->states[i];
        if (!c->updated[i] && *c->version[root] != c->seen[root]) {
            c->seen[root] = *c->version[root];
            c->changed[root] = c->stale = true;
        }
    }
}

static void count_updates(cpu_dev *c)
{
    uint64_t now = 0;
    for (uint32_t i = 0; i < c->n_states; i++) {
        if (c->updated[i]) {
            now = now > 0 ? now : ++c->family->clock; /* where none is, twins run beside this one */
            *c->version[c->states[i]] = now;
        }
    }
}

static ru_status prepare(rui_dev *d, ru_err *err)
{
    cpu_dev *c = of(d);
    if (c->share != NULL) {
        RU_TRY(prepare(&c->share->head, err)); /* its packed copies may be in use here */
    }
    if (ru_flag_get(&c->family->several) != 0) {
        look_at_versions(c);
    }
    if (!c->stale) {
        return RU_OK;
    }
    const ru_run_args none = {0};
    const rui_run run = run_of(c, &none, err);
    for (uint32_t i = 0; i < c->lo.prep.n; i++) {
        rui_step_rec *r = &c->lo.prep.at[i];
        if (!r->shared && is_stale(c, &r->s)) {
            RU_TRY(r->s.fn(r->s.state, r->ptrs, &run));
            mark_changed(c, &r->s);
            c->n_prepared++;
        }
    }
    memset(c->changed, 0, c->lo.n_bufs * sizeof *c->changed);
    c->stale = false;
    return RU_OK;
}

static void mention(const cpu_dev *c, const rui_step *s, uint32_t step)
{
    for (uint32_t k = 0; k < s->n_bufs; k++) {
        uint32_t *at = &c->first[rui_root(&c->lo, s->bufs[k])];
        *at = step < *at ? step : *at;
    }
}

/* Run steps, then preparing steps from the last to the first: what one packs is read where the
 * result is. */
static void find_first(cpu_dev *c)
{
    const rui_low *lo = &c->lo;
    memset(c->first, 0xff, lo->n_bufs * sizeof *c->first);
    for (uint32_t i = 0; i < lo->run.n; i++) {
        mention(c, &lo->run.at[i].s, i);
    }
    for (uint32_t i = lo->prep.n; i-- > 0;) {
        const rui_step *s = &lo->prep.at[i].s;
        uint32_t least = UINT32_MAX;
        for (uint32_t k = 0; k < s->n_bufs; k++) {
            uint32_t at = c->first[rui_root(lo, s->bufs[k])];
            least = s->bufs[k].v != 0 && at < least ? at : least;
        }
        mention(c, s, least);
    }
    for (uint32_t i = 0; lo->up != NULL && i < lo->up->n_late; i++) {
        uint32_t *at = &c->first[lo->up->late[i].input], copy = c->first[lo->up->late[i].copy];
        *at = copy < *at ? copy : *at;
    }
}

/* -- open and run -------------------------------------------------------------------------------
 */

static void close_dev(rui_dev *d)
{
    cpu_dev *c = of(d);
    rui_update_close(&c->lo);
    rui_low_fini(&c->lo);
    ru_arena_fini(&c->scratch);
    free(c);
}

static void tell(cpu_dev *c)
{
    rui_low *lo = &c->lo;
    c->head.n_steps = lo->run.n;
    c->head.backward_from = lo->backward_from;
    c->head.update_from = lo->update_from;
    c->head.alone = lo->not_alone == UINT32_MAX;
    c->head.not_alone = lo->not_alone;
    c->head.drops_nan = lo->drops_nan;
    c->head.n_slow = lo->n_slow;
    c->head.id = rui_low_id(lo);
    c->head.plans = lo->plans;
    c->head.n_plans = lo->n_plans;
}

/* Roots that are states, and where each one's version stands. */
static void list_states(cpu_dev *c)
{
    const rui_low *lo = &c->lo;
    for (uint32_t v = 1; v < lo->g->n_values; v++) {
        const rui_home *h = lo->g->values[v].kind == RU_VALUE_STATE
                                ? rui_home_find(lo, (ru_value_id){v}, NULL)
                                : NULL;
        if (h != NULL) {
            uint32_t root = rui_root(lo, h->buf);
            c->version[root] = &c->versions[root];
            c->updated[c->n_states] = !lo->vals[v].frozen;
            c->states[c->n_states++] = root;
        }
    }
    for (uint32_t i = 0; i < lo->n_shared; i++) {
        c->version[lo->shared[i].mine] = c->share->version[lo->shared[i].theirs];
    }
}

static ru_status get_tables(cpu_dev *c, ru_arena *arena, ru_err *err)
{
    uint32_t n = c->lo.n_bufs, states = c->lo.g->n_values;
    c->changed = RU_NEW(arena, bool, n);
    c->first = RU_NEW(arena, uint32_t, n);
    c->versions = RU_NEW(arena, uint64_t, n);
    c->version = RU_NEW(arena, uint64_t *, n);
    c->seen = RU_NEW(arena, uint64_t, n);
    c->states = RU_NEW(arena, uint32_t, states);
    c->updated = RU_NEW(arena, bool, states);
    return c->changed != NULL && c->first != NULL && c->versions != NULL && c->version != NULL &&
                   c->seen != NULL && c->states != NULL && c->updated != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for the buffers of an executable");
}

static ru_status open_low(cpu_dev *c, const rui_dev_in *in, bool nn, ru_err *err)
{
    rui_low *lo = &c->lo;
    RU_TRY(rui_low_fits(in->graph, err));
    RU_TRY(rui_low_init(lo, in->graph, in->opt, nn, ru_pool_threads(in->pool),
                        c->share != NULL ? &c->share->lo : NULL, in->arena, err));
    lo->twin = in->twin;
    lo->how = in->how;
    RU_TRY(rui_low_graph(lo, err));
    RU_TRY(rui_low_slow(lo, &c->head.slow, err));
    RU_TRY(rui_low_plan(lo, err));
    RU_TRY(get_tables(c, in->arena, err));
    list_states(c);
    find_first(c);
    memset(c->changed, 1, lo->n_bufs * sizeof *c->changed);
    c->stale = true;
    tell(c);
    return RU_OK;
}

static ru_status open_dev(const rui_dev_in *in, const rui_dev_ops *ops, bool nn, rui_dev **out,
                          ru_err *err)
{
    cpu_dev *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an executable");
    }
    c->head.ops = ops;
    c->pool = in->pool;
    c->share = in->share != NULL ? of(in->share) : NULL;
    c->family = c->share != NULL ? c->share->family : &c->own;
    if (c->share != NULL) {
        ru_flag_set(&c->family->several, 1);
    }
    ru_arena_init(&c->scratch, 0);
    ru_status st = open_low(c, in, nn, err);
    if (st != RU_OK) {
        close_dev(&c->head);
        return st;
    }
    *out = &c->head;
    return RU_OK;
}

static ru_status open_cpu(const rui_dev_in *in, rui_dev **out, ru_err *err)
{
    return open_dev(in, &rui_dev_cpu, true, out, err);
}

static ru_status open_ref(const rui_dev_in *in, rui_dev **out, ru_err *err)
{
    return open_dev(in, &rui_dev_ref, false, out, err);
}

static ru_status run(rui_dev *d, uint32_t begin, uint32_t end, const ru_run_args *args,
                     uint32_t *at, ru_err *err)
{
    cpu_dev *c = of(d);
    const rui_run now = run_of(c, args, err);
    if (begin <= c->lo.update_from && end > c->lo.update_from) {
        rui_update_inputs(&c->lo);
    }
    for (uint32_t i = begin; i < end; i++) {
        rui_step_rec *r = &c->lo.run.at[i];
        ru_status st = r->s.fn(r->s.state, r->ptrs, &now);
        if (RU_UNLIKELY(st != RU_OK)) {
            *at = i;
            return st;
        }
    }
    if (ru_flag_get(&c->family->several) != 0 &&
        (!c->lo.opt.two_phase || end > c->lo.update_from)) {
        count_updates(c);
    }
    return RU_OK;
}

/* -- values -------------------------------------------------------------------------------------
 */

/* The gradient or value with a port that is `v`; NULL: neither. */
static const rui_grad *timed(const rui_low *lo, ru_value_id v)
{
    for (uint32_t i = 0; i < lo->n_grads; i++) {
        if (lo->grads[i].v.v == v.v) {
            return &lo->grads[i];
        }
    }
    for (uint32_t i = 0; i < lo->opt.n_ports; i++) {
        if (lo->ports[i].v.v == v.v) {
            return &lo->ports[i];
        }
    }
    return NULL;
}

/* Others: the last step of the node that makes it; of a state, the last that mentions it, which
 * writes it. */
static void find_times(const cpu_dev *c, ru_value_id v, uint32_t root, rui_dev_value *out)
{
    const rui_low *lo = &c->lo;
    const rui_grad *gr = timed(lo, v);
    ru_value_kind kind = lo->g->values[v.v].kind;
    if (gr != NULL) {
        out->made = gr->made;
        out->read = gr->read;
        return;
    }
    out->read = kind != RU_VALUE_TEMP ? c->first[root] : UINT32_MAX;
    bool updated = kind == RU_VALUE_STATE && !lo->vals[v.v].frozen;
    for (uint32_t i = lo->run.n; i-- > 0 && out->made == UINT32_MAX;) {
        const rui_step_rec *r = &lo->run.at[i];
        bool makes = kind == RU_VALUE_TEMP && r->node == lo->g->values[v.v].producer.v;
        for (uint32_t k = 0; k < r->s.n_bufs && updated; k++) {
            makes = makes || (r->s.bufs[k].v != 0 && rui_root(lo, r->s.bufs[k]) == root);
        }
        out->made = makes ? i : UINT32_MAX;
    }
}

static bool value(const rui_dev *d, ru_value_id v, rui_dev_value *out)
{
    const cpu_dev *c = of_const(d);
    const rui_home *h = v.v < c->lo.g->n_values ? rui_home_find(&c->lo, v, NULL) : NULL;
    if (h == NULL) {
        return false;
    }
    ru_hasher order;
    ru_hasher_init(&order);
    rui_layout_hash(h->layout, &order);
    *out = (rui_dev_value){.data = rui_buf_ptr(&c->lo, h->buf),
                           .size_bytes = h->layout->size_bytes,
                           .order = ru_hasher_get(&order).low,
                           .made = UINT32_MAX,
                           .read = UINT32_MAX,
                           .shared = c->lo.bufs[rui_root(&c->lo, h->buf)].kind == RUI_BUF_SHARED};
    const rui_grad *gr = timed(&c->lo, v);
    out->begun = gr != NULL ? c->lo.bufs[rui_root(&c->lo, gr->buf)].first : UINT32_MAX;
    find_times(c, v, rui_root(&c->lo, h->buf), out);
    return true;
}

/* Is this an input that steps only read, and none but them, and are the data not in memory that a
 * run writes? */
static bool may_move(const rui_low *lo, uint32_t root, const void *data)
{
    uintptr_t at = (uintptr_t)data - (uintptr_t)lo->memory;
    bool may = lo->bufs[root].kind == RUI_BUF_INPUT && !lo->opt.two_phase && !lo->opt.keep_temps &&
               at >= (uintptr_t)lo->memory_bytes;
    for (uint32_t k = 0; k < lo->g->n_outputs; k++) {
        may = may && rui_root(lo, lo->outputs[k]) != root; /* it would show what is gone */
    }
    return may;
}

/* The steps that mention `root` find it at `data`; NULL: at its own memory. */
static void move(cpu_dev *c, uint32_t root, void *data)
{
    rui_low *lo = &c->lo;
    rui_buf_rec *b = &lo->bufs[root];
    b->ptr = data != NULL ? data : lo->memory + b->at_bytes;
    uint32_t end = lo->update_begin < lo->run.n || b->last >= lo->run.n ? lo->run.n : b->last + 1;
    for (uint32_t i = c->first[root]; i < end; i++) {
        rui_step_rec *r = &lo->run.at[i];
        bool moved = false;
        for (uint32_t k = 0; k < r->s.n_bufs; k++) {
            if (r->s.bufs[k].v != 0 && rui_root(lo, r->s.bufs[k]) == root) {
                r->ptrs[k] = rui_buf_ptr(lo, r->s.bufs[k]);
                moved = true;
            }
        }
        if (moved && r->s.bind != NULL) {
            RU_CHECK(r->s.bind(r->s.state, r->ptrs, NULL) == RU_OK); /* as when it was opened */
        }
    }
}

static bool place(rui_dev *d, ru_value_id v, const void *data)
{
    cpu_dev *c = of(d);
    rui_low *lo = &c->lo;
    const rui_home *h = rui_home_find(lo, v, NULL);
    uint32_t root = h != NULL ? rui_root(lo, h->buf) : 0;
    union {
        const void *in;
        void *out;
    } at = {.in = data}; /* steps only read it */
    if (root == 0 || !may_move(lo, root, data)) {
        return false;
    }
    move(c, root, at.out);
    return true;
}

/* Only what steps make in every run, all of that piece of memory, and nothing that another output
 * shows, which the caller may read from the executable's own. */
static bool place_output(rui_dev *d, uint32_t k, void *data)
{
    cpu_dev *c = of(d);
    const rui_low *lo = &c->lo;
    uint32_t root = rui_root(lo, lo->outputs[k]);
    const rui_buf_rec *b = &lo->bufs[root];
    bool may = b->kind == RUI_BUF_TEMP && b->first <= b->last && !lo->opt.two_phase &&
               !lo->opt.keep_temps &&
               b->size_bytes == ru_type_bytes(&lo->g->values[lo->g->outputs[k].v].type);
    for (uint32_t i = 0; i < lo->g->n_outputs; i++) {
        may = may && (i == k || rui_root(lo, lo->outputs[i]) != root);
    }
    if (may) {
        move(c, root, data);
    }
    return may;
}

static void *output(const rui_dev *d, uint32_t k)
{
    const rui_low *lo = &of_const(d)->lo;
    return rui_buf_ptr(lo, lo->outputs[k]);
}

/* Walk the row-major elements [first, first + n) of a blocked value and copy each. */
static ru_status copy_part(const rui_layout *l, int64_t first, int64_t n, uint8_t *mine,
                           uint8_t *theirs, bool out, ru_err *err)
{
    int64_t one = ru_dtype_bytes(l->type.dtype), sizes[RU_RANK_MAX];
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    int64_t *places[RU_RANK_MAX], idx[RU_RANK_MAX];
    uint32_t rank = l->type.rank;
    ru_status st = RU_OK;
    for (uint32_t d = 0; d < rank && st == RU_OK; d++) {
        sizes[d] = l->type.dims[d];
        places[d] = RU_NEW(&scratch, int64_t, sizes[d]);
        if (places[d] == NULL) {
            st = RU_FAIL(err, RU_E_MEM, "no memory to copy a piece of a state");
        } else {
            rui_layout_places(l, d, places[d]);
        }
    }
    int64_t left = first;
    for (uint32_t d = rank; d-- > 0 && st == RU_OK;) {
        idx[d] = left % sizes[d];
        left /= sizes[d];
    }
    for (int64_t k = 0; k < n && st == RU_OK; k++) {
        int64_t at = 0;
        for (uint32_t d = 0; d < rank; d++) {
            at += places[d][idx[d]];
        }
        memcpy(out ? theirs + k * one : mine + at * one, out ? mine + at * one : theirs + k * one,
               (size_t)one);
        for (uint32_t d = rank; d-- > 0 && ++idx[d] == sizes[d];) {
            idx[d] = 0;
        }
    }
    ru_arena_fini(&scratch);
    return st;
}

static ru_status copy(cpu_dev *c, ru_value_id v, int64_t offset, int64_t size, void *theirs,
                      bool out, ru_err *err)
{
    rui_low *lo = &c->lo;
    const rui_home *h = v.v < lo->g->n_values ? rui_home_find(lo, v, NULL) : NULL;
    if (h == NULL) {
        return RU_FAIL(err, RU_E_ARG, "value %u is not computed separately in this executable",
                       v.v);
    }
    const ru_type *t = &lo->g->values[v.v].type;
    uint8_t *mine = rui_buf_ptr(lo, h->buf);
    if (!out) {
        uint32_t root = rui_root(lo, h->buf);
        RU_CHECK(c->version[root] != NULL);
        *c->version[root] = ++c->family->clock;
        c->changed[root] = c->stale = true;
    }
    if (h->layout->plain && h->layout->type.dtype == t->dtype) {
        memcpy(out ? theirs : mine + offset, out ? mine + offset : theirs, (size_t)size);
        return RU_OK;
    }
    if (offset == 0 && size == ru_type_bytes(t)) {
        const rui_layout *plain = rui_plain(lo, t);
        return out ? rui_copy_now(lo, h->layout, mine, plain, theirs, err)
                   : rui_copy_now(lo, plain, theirs, h->layout, mine, err);
    }
    int64_t one = ru_dtype_bytes(t->dtype);
    return copy_part(h->layout, offset / one, size / one, mine, theirs, out, err);
}

static ru_status read_value(rui_dev *d, ru_value_id v, int64_t offset_bytes, int64_t size_bytes,
                            void *into, ru_err *err)
{
    return copy(of(d), v, offset_bytes, size_bytes, into, true, err);
}

static ru_status write_value(rui_dev *d, ru_value_id v, int64_t offset_bytes, int64_t size_bytes,
                             const void *from, ru_err *err)
{
    union {
        const void *in;
        void *out;
    } theirs = {.in = from}; /* only read */
    return copy(of(d), v, offset_bytes, size_bytes, theirs.out, false, err);
}

/* -- reports ------------------------------------------------------------------------------------
 */

static const char *label(const rui_dev *d, uint32_t step)
{
    const rui_low *lo = &of_const(d)->lo;
    return rui_step_label(lo, &lo->run.at[step]);
}

static const char *kernel(const rui_dev *d, uint32_t step)
{
    return of_const(d)->lo.run.at[step].s.kernel;
}

static const char *node(const rui_dev *d, uint32_t step)
{
    const rui_low *lo = &of_const(d)->lo;
    uint32_t n = lo->run.at[step].node;
    return n == 0 || lo->g->nodes[n].name == NULL ? "" : lo->g->nodes[n].name;
}

static void rest(rui_dev *d)
{
    const rui_low *lo = &of(d)->lo;
    if (!lo->how.guard) {
        ru_memory_forget(lo->memory, lo->memory_bytes - lo->state_bytes - lo->const_bytes,
                         lo->memory_bytes);
    }
}

/* Does the step mention constants in that piece of memory? */
static bool meets(const rui_low *lo, const rui_step *s, uintptr_t from, uintptr_t to)
{
    bool any = false;
    for (uint32_t k = 0; k < s->n_bufs; k++) {
        const rui_buf_rec *b = &lo->bufs[rui_root(lo, s->bufs[k])];
        uintptr_t at = (uintptr_t)b->ptr;
        any = any || (s->bufs[k].v != 0 && b->kind == RUI_BUF_DATA && at < to &&
                      at + (uintptr_t)b->size_bytes > from);
    }
    return any;
}

static rui_dev_use uses(const rui_dev *d, const void *data, int64_t size_bytes)
{
    const rui_low *lo = &of_const(d)->lo;
    uintptr_t from = (uintptr_t)data, to = from + (uintptr_t)size_bytes;
    const rui_step outputs = {.bufs = lo->outputs, .n_bufs = lo->g->n_outputs};
    bool runs = meets(lo, &outputs, from, to), packs = false;
    for (uint32_t i = 0; i < lo->run.n && !runs; i++) {
        runs = meets(lo, &lo->run.at[i].s, from, to);
    }
    for (uint32_t i = 0; i < lo->prep.n && !packs; i++) {
        packs = meets(lo, &lo->prep.at[i].s, from, to);
    }
    return runs ? RUI_USE_RUN : packs ? RUI_USE_PACK : RUI_USE_NONE;
}

static void stats(const rui_dev *d, ru_exe_stats *into)
{
    const rui_low *lo = &of_const(d)->lo;
    into->n_reorders = lo->n_reorders;
    into->n_primitives = lo->nn.primitives;
    into->n_prepared = of_const(d)->n_prepared;
    into->arena_bytes = lo->arena_bytes;
    into->arena_bound_bytes = lo->arena_bound_bytes;
    into->alone_bound_bytes = lo->up != NULL ? lo->up->alone_bound_bytes : 0;
    into->state_bytes = lo->state_bytes;
    into->const_bytes = lo->const_bytes;
    into->scratch_bytes = lo->scratch_bytes;
    into->io_bytes = lo->io_bytes;
}

static const char *print(const rui_dev *d, const rui_step_time *times, ru_arena *arena)
{
    return rui_low_print(&of_const(d)->lo, times, d->slow, arena);
}

static ru_status facts(const rui_dev *d, const rui_step_time *times, ru_arena *arena,
                       ru_op_fact **ops, ru_err *err)
{
    return rui_low_ops(&of_const(d)->lo, d->ops->name, times, arena, ops, err);
}

static ru_status together(rui_dev *const *at, uint32_t n, const ru_exe_order *order, void **memory,
                          int64_t *size_bytes, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    rui_low **lows = RU_NEW(&scratch, rui_low *, n + 1);
    for (uint32_t k = 0; k < n && lows != NULL; k++) {
        lows[k] = &of(at[k])->lo;
    }
    ru_status st = lows != NULL ? rui_low_together(lows, n, order, memory, size_bytes, err)
                                : RU_FAIL(err, RU_E_MEM, "no memory to plan %u executables", n);
    ru_arena_fini(&scratch);
    return st;
}

static ru_status guards(const rui_dev *d, ru_err *err)
{
    return rui_low_guards(&of_const(d)->lo, err);
}

/* -- early updates ------------------------------------------------------------------------------
 */

static int64_t early_bytes(const rui_dev *d)
{
    return rui_update_bytes(&of_const(d)->lo);
}

static ru_status early_open(rui_dev *d, ru_err *err)
{
    return rui_update_memory(&of(d)->lo, err);
}

/* Others that share the state see that it has changed. */
static void early_changed(cpu_dev *c)
{
    if (ru_flag_get(&c->family->several) != 0) {
        count_updates(c);
    }
}

static void early_begin(rui_dev *d, const ru_run_args *args, const rui_dev_made *made)
{
    cpu_dev *c = of(d);
    const rui_run now = run_of(c, args, NULL);
    rui_update_begin(&c->lo, &now, made);
    early_changed(c);
}

static void early_update(rui_dev *d, uint32_t grad, int64_t begin, int64_t end)
{
    cpu_dev *c = of(d);
    const rui_run now = run_of(c, NULL, NULL);
    rui_update_sums(&c->lo, &now, grad, begin, end);
    early_changed(c);
}

static ru_status early_finish(rui_dev *d)
{
    cpu_dev *c = of(d);
    const rui_run now = run_of(c, NULL, NULL);
    ru_status st = rui_update_finish(&c->lo, &now);
    early_changed(c);
    return st;
}

static void early_undo(rui_dev *d)
{
    rui_update_undo(&of(d)->lo);
    early_changed(of(d));
}

static uint32_t early_needs(const rui_dev *d, ru_value_id v)
{
    const rui_update *up = of_const(d)->lo.up;
    return up != NULL ? up->owner[v.v] : UINT32_MAX;
}

static bool early_is_made(const rui_dev *d, uint32_t grad)
{
    return of_const(d)->lo.up->left[grad] == 0;
}

static uint32_t early_not_possible(const rui_dev *d)
{
    const rui_update *up = of_const(d)->lo.up;
    return up != NULL ? up->needs_more : UINT32_MAX;
}

static double early_squares(const rui_dev *d, ru_value_id v, int64_t step, const float *x,
                            const float *y, int64_t first, int64_t n)
{
    return rui_optim_squares(&of_const(d)->lo, v, step, x, y, first, n);
}

static const rui_dev_early_ops early_ops = {.bytes = early_bytes,
                                            .open = early_open,
                                            .begin = early_begin,
                                            .update = early_update,
                                            .finish = early_finish,
                                            .undo = early_undo,
                                            .needs = early_needs,
                                            .is_made = early_is_made,
                                            .needs_more = early_not_possible,
                                            .squares = early_squares};

#define COMMON                                                                                   \
    .close = close_dev, .prepare = prepare, .run = run, .value = value, .output = output,        \
    .place = place, .place_output = place_output, .read = read_value, .write = write_value,      \
    .label = label, .kernel = kernel, .node = node, .stats = stats, .rest = rest, .uses = uses,  \
    .together = together, .print = print, .facts = facts, .guards = guards, .early = &early_ops, \
    .exact_bytes = rui_dnnl_exact_bytes

const rui_dev_ops rui_dev_cpu = {.name = "cpu", .open = open_cpu, COMMON};
const rui_dev_ops rui_dev_ref = {
    .name = "reference", .as_given = true, .threads_max = 1, .open = open_ref, COMMON};
