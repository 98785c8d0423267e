/* Copies of all objects in the memory of the first reliable members, their keepers: object o is
 * kept by keeper o % n_keepers.
 *
 *   holder   at the beginning of a clock that is copied: an entry of each object, the state of an
 *            executor, the rows of a shard that changed. It keeps the entry and sends it
 *   keeper   keeps entries until it knows that their clock is committed; says of which clocks it
 *            can make all its objects
 *   leader   a clock that all keepers can make is committed; said with the next CLOCK
 * (engine_stage.c) all      take entries up to the committed clock into their base, by overwriting
 *
 * A generation that begins from copies begins with the committed clock: later entries are dropped.
 * A holder that has the base loads it, another one fetches it from the keeper. A copy may be
 * sent twice; what a keeper misses is whole again with the next entry of a new holder.
 *
 * Source: harlap-2017 (BackupPS: staged, applied by clock); entries with values instead of changes
 * ours. */
#include <string.h>

#include "train/engine/engine_impl.h"

enum { AGAIN_NS = 5000000, ASK_NS = 200000000 };

static ru_node_id keeper_of(const ru_engine *e, uint32_t o)
{
    return e->copies.keeper[o % e->copies.n_keepers];
}

static bool keeps(const ru_engine *e, uint32_t o)
{
    return e->copies.n_keepers > 0 && ru_node_is(keeper_of(e, o), e->opt.self);
}

ru_status rui_copy_open(ru_engine *e, ru_err *err)
{
    rui_copies_all *c = &e->copies;
    c->of = RU_NEW(e->arena, rui_copy, rui_objects(e));
    c->keeper = RU_NEW(e->arena, ru_node_id, RU_MEMBERS_MAX);
    if (c->of == NULL || c->keeper == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for copies of %u objects", rui_objects(e));
    }
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        c->of[o].taken = RUI_ENGINE_NONE;
    }
    c->clock = c->kept = c->complete = RUI_ENGINE_NONE;
    return RU_OK;
}

/* -- entries -------------------------------------------------------------------------------------
 */

static void entry_free(ru_engine *e, rui_entry *x)
{
    ru_bufs_put(e->bufs, x->bytes);
    ru_bufs_put(e->bufs, x);
}

static void base_free(ru_engine *e, rui_copy *c)
{
    ru_bufs_put(e->bufs, c->base);
    c->base = NULL;
}

/* The entry is a part of the base now. */
static void take_in(ru_engine *e, uint32_t o, rui_entry *x)
{
    rui_copy *c = &e->copies.of[o];
    if (x->since == RUI_ENGINE_NONE) {
        base_free(e, c);
        c->base = x->bytes;
        c->base_bytes = x->n;
        x->bytes = NULL;
    } else {
        RU_CHECK(o >= e->n_execs && c->base != NULL);
        ru_status st =
            ru_ps_changes_apply(e->ps, o - e->n_execs, c->base, c->base_bytes, x->bytes, x->n);
        RU_CHECK(st == RU_OK); /* a whole parcel of a member of this job */
    }
    c->base_clock = x->clock;
}

/* Entries up to `clock` into the base; a base that does not become of that clock is of no use. */
static void advance(ru_engine *e, uint32_t o, uint32_t clock)
{
    rui_copy *c = &e->copies.of[o];
    while (c->entry != NULL && c->entry->clock <= clock) {
        rui_entry *x = c->entry;
        c->entry = x->next;
        if (x->since == RUI_ENGINE_NONE || (c->base != NULL && c->base_clock == x->since)) {
            take_in(e, o, x);
        }
        entry_free(e, x);
    }
    if (c->base != NULL && c->base_clock != clock) {
        base_free(e, c);
    }
}

static void drop_entries(ru_engine *e, rui_copy *c)
{
    while (c->entry != NULL) {
        rui_entry *x = c->entry;
        c->entry = x->next;
        entry_free(e, x);
    }
}

/* All that this process keeps of a clock is here: the leader is told, again and again. */
static void tell_complete(ru_engine *e, ru_time now, ru_effects *fx)
{
    const rui_copies_all *c = &e->copies;
    if (c->complete != RUI_ENGINE_NONE && (c->kept == RUI_ENGINE_NONE || c->complete > c->kept)) {
        rui_engine_head h = {.clock = c->complete};
        rui_engine_send(e, ru_member_leader(e->opt.member), RUI_ENGINE_COPIED, &h, NULL, 0, now,
                        fx);
    }
}

/* Which entries are whole objects with what is before them? */
static void chain(ru_engine *e, uint32_t o, ru_time now, ru_effects *fx)
{
    rui_copies_all *all = &e->copies;
    const rui_copy *c = &all->of[o];
    bool before = false; /* the entry before reaches its clock */
    uint32_t at = RUI_ENGINE_NONE;
    for (rui_entry *x = c->entry; x != NULL; x = x->next) {
        bool reach = x->since == RUI_ENGINE_NONE ||
                     (c->base != NULL && c->base_clock == x->since) || (before && at == x->since);
        if (reach && !x->reach && keeps(e, o)) {
            uint32_t slot = x->clock % RUI_COPY_CLOCKS;
            if (++all->n_reach[slot] == all->mine) {
                bool newest = all->complete == RUI_ENGINE_NONE || x->clock > all->complete;
                all->complete = newest ? x->clock : all->complete;
                tell_complete(e, now, fx);
            }
        }
        x->reach = before = reach;
        at = x->clock;
    }
}

/* false: it is here, or too old. Takes x if true. */
static bool put(ru_engine *e, uint32_t o, rui_entry *x, ru_time now, ru_effects *fx)
{
    rui_entry **at = &e->copies.of[o].entry;
    uint32_t kept = e->copies.kept;
    while (*at != NULL && (*at)->clock < x->clock) {
        at = &(*at)->next;
    }
    if ((*at != NULL && (*at)->clock == x->clock) ||
        (kept != RUI_ENGINE_NONE && x->clock <= kept)) {
        return false;
    }
    RU_CHECK(kept == RUI_ENGINE_NONE || x->clock - kept < RUI_COPY_CLOCKS);
    x->next = *at;
    *at = x;
    chain(e, o, now, fx);
    return true;
}

/* -- taking and sending --------------------------------------------------------------------------
 */

static void send_entry(ru_engine *e, uint32_t o, rui_entry *x, ru_time now, ru_effects *fx)
{
    ru_node_id to = keeper_of(e, o);
    x->again = false;
    if (ru_node_is(to, e->opt.self)) {
        return;
    }
    void *copy = ru_bufs_get(e->bufs, x->n);
    if (copy == NULL) { /* bounded memory: when others have left */
        x->again = true;
        ru_fx_timer(fx, RUI_ENGINE_LATE, ru_time_after(now, AGAIN_NS));
        return;
    }
    memcpy(copy, x->bytes, (size_t)x->n);
    const rui_engine_head h = {.generation = e->generation,
                               .epoch = e->epoch,
                               .closed = e->closed,
                               .executor = o,
                               .clock = x->clock,
                               .since = x->since};
    e->copies.sent_bytes += x->n;
    ru_ps_send(e->ps, to, RUI_ENGINE_COPY, &h, sizeof h, copy, x->n, now, fx);
}

void rui_copy_came(ru_engine *e, uint32_t object)
{
    e->copies.of[object].taken = RUI_ENGINE_NONE;
}

void rui_copy_take(ru_engine *e, uint32_t o, ru_time now, ru_effects *fx)
{
    rui_copy *c = &e->copies.of[o];
    uint32_t clock = e->copies.clock;
    bool exec = o < e->n_execs;
    if (e->copies.n_keepers == 0 || e->ended || clock == RUI_ENGINE_NONE || clock != e->closed ||
        c->taken == clock || !ru_node_is(e->holder[o], e->opt.self)) {
        return;
    }
    bool is = exec ? e->exec[o].step == clock * e->opt.shape->rounds
                   : ru_ps_shard_begins(e->ps, o - e->n_execs);
    if (!is) {
        return; /* its last holder has taken it */
    }
    bool whole = exec || c->taken == RUI_ENGINE_NONE;
    rui_entry *x = ru_bufs_get(e->bufs, sizeof *x);
    if (x != NULL) {
        *x = (rui_entry){.clock = clock, .since = whole ? RUI_ENGINE_NONE : c->taken};
        x->bytes = exec    ? rui_exec_pack(e, o, &x->n)
                   : whole ? ru_ps_shard_save(e->ps, o - e->n_execs, &x->n)
                           : ru_ps_changes(e->ps, o - e->n_execs, &x->n);
    }
    if (x == NULL || x->bytes == NULL) {
        ru_bufs_put(e->bufs, x);
        rui_engine_fail(e, RU_E_MEM, "there is no memory to copy a part of the model", now, fx);
        return;
    }
    if (!exec) {
        ru_ps_unmark(e->ps, o - e->n_execs);
    }
    c->taken = clock;
    if (put(e, o, x, now, fx)) {
        send_entry(e, o, x, now, fx);
    } else {
        entry_free(e, x);
    }
}

/* -- beginning from copies -----------------------------------------------------------------------
 */

static void fetch(ru_engine *e, uint32_t o, ru_time now, ru_effects *fx)
{
    rui_copy *c = &e->copies.of[o];
    if (c->wanted && ru_time_since(now, c->asked) < ASK_NS) {
        return;
    }
    c->wanted = true;
    c->asked = now;
    rui_engine_head h = {.executor = o, .clock = e->base.clock};
    rui_engine_send(e, keeper_of(e, o), RUI_ENGINE_FETCH, &h, NULL, 0, now, fx);
}

const void *rui_copy_base(ru_engine *e, uint32_t o, int64_t *n, ru_time now, ru_effects *fx)
{
    rui_copy *c = &e->copies.of[o];
    RU_CHECK(rui_copy_restores(e));
    if (e->copies.n_keepers == 0) {
        rui_engine_fail(e, RU_E_BUG, "a view names no member that keeps copies", now, fx);
        return NULL;
    }
    if (c->base == NULL || c->base_clock != e->base.clock) {
        fetch(e, o, now, fx);
        return NULL;
    }
    c->wanted = false;
    c->taken = o < e->n_execs ? RUI_ENGINE_NONE : e->base.clock;
    *n = c->base_bytes;
    return c->base;
}

static void load_copy(ru_engine *e, uint32_t s, ru_time now, ru_effects *fx)
{
    int64_t n;
    const void *bytes = rui_copy_base(e, e->n_execs + s, &n, now, fx);
    if (bytes == NULL) {
        return; /* again when it is fetched */
    }
    ru_status st = ru_ps_shard_load(e->ps, s, bytes, n, now, fx);
    if (st != RU_OK) {
        rui_engine_fail(e, st,
                        st == RU_E_MEM ? "there is no memory for the parameters of this process"
                                       : "the copy of a shard is damaged, or of another clock",
                        now, fx);
        return;
    }
    ru_ps_unmark(e->ps, s);
    rui_engine_ready(e, false, now, fx);
}

void rui_engine_load_shard(ru_engine *e, uint32_t s, ru_time now, ru_effects *fx)
{
    uint32_t o = e->n_execs + s;
    if (!ru_node_is(e->holder[o], e->opt.self) || e->moved[o] || ru_ps_shard_here(e->ps, s)) {
        return;
    }
    if (rui_copy_restores(e)) {
        load_copy(e, s, now, fx);
    } else if (e->base.generation > 0 && !rui_count_is(e)) {
        e->opt.device->read(e->opt.device_self, e->base, o, e->generation);
    } else if (ru_ps_shard_first(e->ps, s, now, fx) != RU_OK) {
        rui_engine_fail(e, RU_E_MEM, "there is no memory for the parameters of this process", now,
                        fx);
    }
}

static void serve(ru_engine *e, ru_node_id from, const rui_engine_head *asks, ru_time now,
                  ru_effects *fx)
{
    const rui_copy *c = &e->copies.of[asks->executor];
    if (c->base != NULL && c->base_clock == asks->clock) {
        rui_engine_head h = {.executor = asks->executor, .clock = asks->clock};
        rui_engine_send(e, from, RUI_ENGINE_KEPT, &h, c->base, c->base_bytes, now, fx);
    }
}

/* true: it takes body. */
static bool fetched(ru_engine *e, const rui_engine_head *h, void *body, int64_t n, ru_time now,
                    ru_effects *fx)
{
    rui_copy *c = &e->copies.of[h->executor];
    if (!rui_copy_restores(e) || h->clock != e->base.clock || !c->wanted || c->base != NULL) {
        return false;
    }
    c->base = body;
    c->base_bytes = n;
    c->base_clock = h->clock;
    chain(e, h->executor, now, fx);
    if (h->executor < e->n_execs) {
        rui_exec_settle(e, h->executor, now, fx);
    } else {
        rui_engine_load_shard(e, h->executor - e->n_execs, now, fx);
    }
    return true;
}

/* -- parcels -------------------------------------------------------------------------------------
 */

void rui_copy_refuse(ru_engine *e, ru_node_id from, uint32_t what, const rui_engine_head *h,
                     ru_time now, ru_effects *fx)
{
    rui_engine_head back = *h;
    back.status = what;
    ru_ps_send(e->ps, from, RUI_ENGINE_LATER, &back, sizeof back, NULL, 0, now, fx);
}

static void refused(ru_engine *e, const rui_engine_head *h, ru_time now, ru_effects *fx)
{
    rui_copy *c = &e->copies.of[h->executor];
    c->asked = h->status == RUI_ENGINE_FETCH ? (ru_time){0} : c->asked;
    for (rui_entry *x = c->entry; x != NULL && h->status == RUI_ENGINE_COPY; x = x->next) {
        x->again = x->again || x->clock == h->clock;
    }
    ru_fx_timer(fx, RUI_ENGINE_LATE, ru_time_after(now, AGAIN_NS));
}

void rui_copy_heard(ru_engine *e, ru_node_id from, uint32_t what, const rui_engine_head *h,
                    void *body, int64_t body_bytes, ru_time now, ru_effects *fx)
{
    bool took = false;
    if (h->executor >= rui_objects(e)) {
        ru_bufs_put(e->bufs, body);
        return;
    }
    if (what == RUI_ENGINE_FETCH) {
        serve(e, from, h, now, fx);
    } else if (what == RUI_ENGINE_LATER) {
        refused(e, h, now, fx);
    } else if (what == RUI_ENGINE_KEPT) {
        took = fetched(e, h, body, body_bytes, now, fx);
    } else if (e->copies.n_keepers == 0 && h->epoch > e->epoch) {
        rui_copy_refuse(e, from, what, h, now, fx); /* the view that makes it one is on its way */
    } else if (keeps(e, h->executor) && body != NULL) {
        rui_entry *x = ru_bufs_need(e->bufs, sizeof *x);
        RU_CHECK(x != NULL);
        *x = (rui_entry){.clock = h->clock, .since = h->since, .bytes = body, .n = body_bytes};
        took = put(e, h->executor, x, now, fx);
        if (!took) {
            ru_bufs_put(e->bufs, x);
        }
    }
    if (!took) {
        ru_bufs_put(e->bufs, body);
    }
}

/* The connection is new: what was on its way may be lost. */
void rui_copy_up(ru_engine *e, ru_node_id node, ru_time now, ru_effects *fx)
{
    bool any = false;
    for (uint32_t o = 0; e->copies.n_keepers > 0 && o < rui_objects(e); o++) {
        rui_copy *c = &e->copies.of[o];
        if (!ru_node_is(keeper_of(e, o), node)) {
            continue;
        }
        c->asked = (ru_time){0};
        for (rui_entry *x = c->entry; x != NULL; x = x->next) {
            x->again = any = true;
        }
    }
    if (any) {
        rui_copy_again(e, now, fx);
    }
}

void rui_copy_again(ru_engine *e, ru_time now, ru_effects *fx)
{
    for (uint32_t o = 0; e->copies.n_keepers > 0 && o < rui_objects(e) && !e->ended; o++) {
        const rui_copy *c = &e->copies.of[o];
        for (rui_entry *x = c->entry; x != NULL; x = x->next) {
            if (x->again) {
                send_entry(e, o, x, now, fx);
            }
        }
        if (c->wanted && c->base == NULL) {
            fetch(e, o, now, fx);
        }
    }
    tell_complete(e, now, fx);
}

/* -- clocks and generations ----------------------------------------------------------------------
 */

void rui_copy_commit(ru_engine *e, uint32_t clock)
{
    rui_copies_all *c = &e->copies;
    if (c->n_keepers == 0 || clock == RUI_ENGINE_NONE ||
        (c->kept != RUI_ENGINE_NONE && clock <= c->kept)) {
        return;
    }
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        advance(e, o, clock);
    }
    uint32_t from = c->kept == RUI_ENGINE_NONE ? 0 : c->kept + 1;
    from = clock - from >= RUI_COPY_CLOCKS ? clock - RUI_COPY_CLOCKS + 1 : from;
    for (uint32_t k = from; k <= clock; k++) {
        c->n_reach[k % RUI_COPY_CLOCKS] = 0;
    }
    c->kept = clock;
}

void rui_copy_view(ru_engine *e, uint32_t keepers, bool fresh)
{
    const ru_view *v = ru_member_view(e->opt.member);
    rui_copies_all *c = &e->copies;
    uint32_t n = 0;
    if (!fresh && c->n_keepers > 0) {
        return; /* the same as long as the generation lasts */
    }
    for (uint32_t i = 0; i < v->n && n < keepers; i++) {
        if (v->at[i].tier == RU_TIER_RELIABLE) {
            c->keeper[n++] = v->at[i].node;
        }
    }
    c->n_keepers = n;
    c->mine = 0;
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        c->mine += keeps(e, o) ? 1 : 0;
    }
}

void rui_copy_reset(ru_engine *e)
{
    rui_copies_all *all = &e->copies;
    bool memory = rui_copy_restores(e);
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        rui_copy *c = &all->of[o];
        if (memory) {
            advance(e, o, e->base.clock);
        } else {
            base_free(e, c);
        }
        drop_entries(e, c);
        c->taken = RUI_ENGINE_NONE;
        c->wanted = false;
        c->asked = (ru_time){0};
    }
    memset(all->n_reach, 0, sizeof all->n_reach);
    all->clock = all->complete = RUI_ENGINE_NONE;
    all->kept = memory ? e->base.clock : RUI_ENGINE_NONE;
}
