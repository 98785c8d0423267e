#include "comm/ps/ps.h"

#include <string.h>

#include "comm/ps/ps_impl.h"

/* A refused request is sent again after so long: its shard's new holder, or the new map, is on the
 * way. */
enum { RETRY_NS = 5000000 };

static void got(void *self, ru_node_id from, uint32_t what, const void *head, uint32_t head_bytes,
                void *body, int64_t body_bytes, ru_time now, ru_effects *fx);
static void sent(void *self, uint64_t cookie, bool ok, ru_time now, ru_effects *fx);

static ru_status take_memory(ru_ps *ps, ru_arena *a, ru_err *err)
{
    const ru_ps_options *o = &ps->opt;
    ps->ticket_words = (o->tickets + 63) / 64;
    ps->holder = RU_NEW(a, ru_node_id, ps->place.n_shards);
    ps->shard = RU_NEW(a, rui_ps_shard, ps->place.n_shards);
    ps->moving = RU_NEW(a, rui_ps_moving, ps->place.n_shards + o->n_executors);
    ps->ask_page = RU_NEW(a, rui_ps_ask *, RUI_PS_ASK_PAGES_MAX);
    ps->ticket = RU_NEW(a, rui_ps_ticket, o->tickets);
    ps->unacked = RU_NEW(a, uint32_t, o->flows);
    ps->replays = RU_NEW(a, uint32_t, o->n_executors);
    ps->lost_at = RU_NEW(a, uint32_t, o->n_executors);
    ps->left_out = RU_NEW(a, rui_ps_left_out, o->n_executors);
    ps->saved = RU_NEW(a, float *, ps->place.n_blocks);
    ps->cache = RU_NEW(a, float *, ps->place.n_blocks);
    ps->copy = RU_NEW(a, rui_ps_copy, ps->place.n_rows);
    ps->wants = RU_NEW(a, rui_ps_wants, ps->place.n_shards);
    ps->read_by = o->partial ? RU_NEW(a, rui_ps_read_by, ps->place.n_rows) : NULL;
    ps->marked = o->copies ? RU_NEW(a, uint8_t, ps->place.n_rows) : NULL;
    if (ps->holder == NULL || ps->shard == NULL || ps->moving == NULL || ps->ask_page == NULL ||
        ps->ticket == NULL || ps->unacked == NULL || ps->replays == NULL || ps->lost_at == NULL ||
        ps->left_out == NULL || ps->saved == NULL || ps->cache == NULL || ps->copy == NULL ||
        ps->wants == NULL || (o->copies && ps->marked == NULL) ||
        (o->partial && ps->read_by == NULL)) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a store of %u rows", ps->place.n_rows);
    }
    ps->ask_free = RUI_PS_NONE;
    return RU_OK;
}

ru_status ru_ps_open(const ru_ps_options *opt, ru_arena *arena, ru_ps **out, ru_err *err)
{
    ru_ps *ps = RU_NEW(arena, ru_ps, 1);
    if (ps == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a parameter store");
    }
    ps->opt = *opt;
    ps->opt.rounds = opt->rounds > 0 ? opt->rounds : 1;
    ps->arena = arena;
    ru_bufs_init(&ps->bufs, opt->memory_bytes);
    RU_TRY(rui_ps_place_open(opt, arena, &ps->place, err));
    RU_TRY(take_memory(ps, arena, err));
    const ru_pull_options po = {.chan = opt->chan,
                                .self = opt->self,
                                .bufs = &ps->bufs,
                                .user = {ps, got, sent},
                                .peers_max = opt->peers_max,
                                .what_first = opt->what_first,
                                .local = opt->local,
                                .background = opt->background};
    RU_TRY(ru_pull_open(&po, arena, &ps->pull, err));
    *out = ps;
    return RU_OK;
}

void ru_ps_close_all(ru_ps *ps)
{
    if (ps != NULL) {
        ru_bufs_fini(&ps->bufs);
    }
}

ru_bufs *ru_ps_bufs(ru_ps *ps)
{
    return &ps->bufs;
}

ru_pull *ru_ps_pull(ru_ps *ps)
{
    return ps->pull;
}

/* -- the owner's decisions -----------------------------------------------------------------------
 */

static void parked_drop(ru_ps *ps, uint32_t s)
{
    while (ps->shard[s].parked != NULL) {
        rui_ps_parked *k = ps->shard[s].parked;
        ps->shard[s].parked = k->next;
        ru_bufs_put(&ps->bufs, k->body);
        ru_bufs_put(&ps->bufs, k);
    }
}

void ru_ps_reset(ru_ps *ps, uint32_t generation, uint32_t closed, ru_effects *fx)
{
    RU_CHECK(generation > ps->generation);
    ps->generation = generation;
    ps->closed = ps->base = closed;
    ps->fence = ps->void_from = 0;
    memset(ps->lost_at, 0, ps->opt.n_executors * sizeof *ps->lost_at);
    memset(ps->left_out, 0, ps->opt.n_executors * sizeof *ps->left_out);
    for (uint32_t s = 0; s < ps->place.n_shards; s++) {
        if (ps->shard[s].values != NULL) {
            rui_ps_shard_drop(ps, s);
        }
        parked_drop(ps, s);
    }
    for (uint32_t k = 0; k < ps->place.n_shards + ps->opt.n_executors; k++) {
        rui_ps_move_drop(ps, k);
        ps->moving[k].hops = 0;
    }
    rui_ps_ask_reset(ps);
    ru_pull_sweep(ps->pull, fx);
}

static void retry_soon(ru_ps *ps, ru_time now, ru_effects *fx)
{
    if (!ps->retry_set) {
        ps->retry_set = true;
        ru_fx_timer(fx, ps->opt.what_first, ru_time_after(now, RETRY_NS));
    }
}

/* Shards that others hold now go there. */
static void send_moved(ru_ps *ps, ru_time now, ru_effects *fx)
{
    for (uint32_t s = 0; s < ps->place.n_shards; s++) {
        if (ps->shard[s].here && !ru_node_is(ps->holder[s], ps->opt.self)) {
            rui_ps_shard_send(ps, s, now, fx);
            retry_soon(ps, now, fx); /* if it could not be sent now */
        }
    }
}

void ru_ps_map(ru_ps *ps, const ru_node_id *holder, uint32_t epoch, ru_time now, ru_effects *fx)
{
    ps->epoch = epoch;
    ru_pull_sweep(ps->pull, fx);
    for (uint32_t s = 0; s < ps->place.n_shards; s++) {
        bool mine = ru_node_is(holder[s], ps->opt.self);
        bool was = ru_node_is(ps->holder[s], ps->opt.self);
        ps->holder[s] = holder[s];
        if (!mine) {
            rui_ps_unpark(ps, s, now, fx);      /* refuses them */
        } else if (!was && ps->shard[s].here) { /* it came before the map */
            ps->opt.user.came(ps->opt.user.self, s, now, fx);
        }
    }
    send_moved(ps, now, fx);
    rui_ps_ask_again(ps, true, now, fx);
}

void ru_ps_close(ru_ps *ps, uint32_t closed, ru_time now, ru_effects *fx)
{
    if (closed <= ps->closed) {
        return;
    }
    ps->closed = closed;
    for (uint32_t s = 0; s < ps->place.n_shards; s++) {
        if (ps->shard[s].here) {
            rui_ps_shard_close(ps, s, closed);
        }
    }
    rui_ps_ask_closed(ps);
    ps->opt.user.closed(ps->opt.user.self, now, fx);
    for (uint32_t s = 0; s < ps->place.n_shards; s++) {
        rui_ps_unpark(ps, s, now, fx);
    }
}

void ru_ps_leave_out(ru_ps *ps, uint32_t executor, uint32_t clock)
{
    RU_CHECK(executor < ps->opt.n_executors && ps->opt.leaves_out && ps->opt.ordered &&
             ps->opt.rounds == 1);
    rui_ps_left_out *x = &ps->left_out[executor];
    if (x->clocks == 0 || clock > x->last) {
        uint32_t later = clock - x->last;
        x->clocks = x->clocks == 0 || later >= RU_PS_LEFT_OUT_CLOCKS ? 0 : x->clocks << later;
        x->last = clock;
    }
    x->clocks |= x->last - clock < RU_PS_LEFT_OUT_CLOCKS ? UINT64_C(1) << (x->last - clock) : 0;
}

bool rui_ps_is_left_out(const ru_ps *ps, uint32_t executor, uint32_t clock)
{
    const rui_ps_left_out *x = &ps->left_out[executor];
    return clock <= x->last && x->last - clock < RU_PS_LEFT_OUT_CLOCKS &&
           (x->clocks >> (x->last - clock) & 1) != 0;
}

/* -- shards that come ----------------------------------------------------------------------------
 */

void rui_ps_installed(ru_ps *ps, uint32_t s, bool map_follows, bool moved, ru_time now,
                      ru_effects *fx)
{
    ps->shard[s].here = true;
    if (ps->shard[s].closed < ps->closed) {
        rui_ps_shard_close(ps, s, ps->closed);
    }
    if (ps->void_from == ps->fence) {
        rui_ps_shard_fence(ps, s);
    }
    if (ru_node_is(ps->holder[s], ps->opt.self)) {
        if (moved) { /* first: it may have to be saved as it came */
            ps->opt.user.came(ps->opt.user.self, s, now, fx);
        }
        rui_ps_unpark(ps, s, now, fx);
    } else if (!map_follows) {
        rui_ps_shard_send(ps, s, now, fx);
        retry_soon(ps, now, fx);
    }
}

/* The clock of a shard when the generation begins. */
static uint32_t begin_of(const ru_ps *ps, uint32_t s)
{
    return s < ps->place.n_spread ? ps->base : ps->base * ps->opt.rounds;
}

void rui_ps_shard_begin(ru_ps *ps, uint32_t s)
{
    const rui_ps_place *p = &ps->place;
    for (uint32_t k = p->shard_first[s]; k < p->shard_first[s + 1]; k++) {
        uint32_t b = p->block[k], t = rui_ps_block_table(p, b);
        for (uint32_t r = p->block_row[b]; r < p->block_row[b + 1]; r++) {
            if (ps->opt.user.first != NULL) {
                ps->opt.user.first(ps->opt.user.self, t, r - p->first[t], rui_ps_row(ps, s, t, r));
            }
        }
    }
}

ru_status ru_ps_shard_first(ru_ps *ps, uint32_t shard, ru_time now, ru_effects *fx)
{
    if (!rui_ps_shard_make(ps, shard)) {
        return RU_E_MEM;
    }
    ps->shard[shard].closed = begin_of(ps, shard);
    rui_ps_shard_begin(ps, shard);
    rui_ps_installed(ps, shard, false, false, now, fx);
    return RU_OK;
}

ru_status ru_ps_shard_load(ru_ps *ps, uint32_t shard, const void *bytes, int64_t n, ru_time now,
                           ru_effects *fx)
{
    RU_CHECK(!ps->shard[shard].here);
    RU_TRY(rui_ps_shard_unpack(ps, shard, bytes, n));
    if (ps->shard[shard].closed != begin_of(ps, shard)) {
        rui_ps_shard_drop(ps, shard);
        return RU_E_DATA;
    }
    rui_ps_installed(ps, shard, false, false, now, fx);
    return RU_OK;
}

/* The same may come twice when a connection broke in between. A map that this process does not
 * know yet may have sent it here. */
static void came(ru_ps *ps, ru_node_id from, const rui_ps_head *h, void *body, int64_t n,
                 ru_time now, ru_effects *fx)
{
    uint32_t k = h->shard, n_shards = ps->place.n_shards;
    if (k >= n_shards + ps->opt.n_executors || h->generation < ps->generation) {
        ru_bufs_put(&ps->bufs, body);
        return;
    }
    bool later = h->generation > ps->generation, fresh = !later && h->hops > ps->moving[k].hops;
    fresh = fresh && (k >= n_shards || !ps->shard[k].here); /* it was rebuilt before this came */
    if (fresh && k < n_shards) {
        ru_status st = rui_ps_shard_unpack(ps, k, body, n);
        RU_CHECK(st == RU_OK || st == RU_E_MEM); /* whole, or not here at all */
        later = st != RU_OK;
    }
    if (later) {
        ru_bufs_put(&ps->bufs, body);
        (void)ru_pull_send(ps->pull, from, RUI_PS_LATER, h, sizeof *h, NULL, 0, true, 0, now, fx);
        return;
    }
    ps->moving[k].hops = h->hops > ps->moving[k].hops ? h->hops : ps->moving[k].hops;
    (void)ru_pull_send(ps->pull, from, RUI_PS_CAME, h, sizeof *h, NULL, 0, true, 0, now, fx);
    if (fresh && k >= n_shards) {
        ps->opt.user.object(ps->opt.user.self, k - n_shards, body, n, h->epoch, now, fx);
        return;
    }
    ru_bufs_put(&ps->bufs, body);
    if (fresh) {
        rui_ps_installed(ps, k, h->epoch > ps->epoch, true, now, fx);
    }
}

bool ru_ps_object_send(ru_ps *ps, uint32_t object, ru_node_id to, void *bytes, int64_t n,
                       ru_time now, ru_effects *fx)
{
    RU_CHECK(object < ps->opt.n_executors);
    return rui_ps_move(ps, ps->place.n_shards + object, to, bytes, n, now, fx);
}

uint32_t ru_ps_shards(const ru_ps *ps)
{
    return ps->place.n_shards;
}

bool ru_ps_shard_here(const ru_ps *ps, uint32_t shard)
{
    return ps->shard[shard].here;
}

bool ru_ps_shard_begins(const ru_ps *ps, uint32_t shard)
{
    const rui_ps_shard *x = &ps->shard[shard];
    uint32_t steps = shard < ps->place.n_spread ? 1 : ps->opt.rounds;
    bool begins = x->here && x->closed == ps->closed * steps;
    /* Updates that are merged at once: nothing of the clock may be in it, also when it came from
     * another process since. */
    for (uint32_t e = 0; begins && !ps->opt.ordered && e < ps->opt.n_executors; e++) {
        begins = x->done[e] <= ps->closed * ps->opt.rounds;
    }
    return begins && (ps->opt.ordered || x->held == NULL);
}

void *ru_ps_shard_save(ru_ps *ps, uint32_t shard, int64_t *n)
{
    RU_CHECK(ps->shard[shard].here);
    return rui_ps_shard_pack(ps, shard, false, n);
}

int64_t ru_ps_shard_bytes(const ru_ps *ps, uint32_t shard)
{
    return ps->place.shard_floats[shard] * 4;
}

/* -- parcels -------------------------------------------------------------------------------------
 */

static void got(void *self, ru_node_id from, uint32_t what, const void *head, uint32_t head_bytes,
                void *body, int64_t body_bytes, ru_time now, ru_effects *fx)
{
    ru_ps *ps = self;
    if (what >= RU_PS_WHAT_OWNER) {
        ps->opt.user.got(ps->opt.user.self, from, what, head, head_bytes, body, body_bytes, now,
                         fx);
        return;
    }
    rui_ps_head h;
    if (head_bytes != sizeof h) {
        ru_bufs_put(&ps->bufs, body);
        return;
    }
    memcpy(&h, head, sizeof h);
    if (what == RUI_PS_GET || what == RUI_PS_UPDATE) {
        rui_ps_serve(ps, from, what, &h, body, body_bytes, now, fx);
        return;
    }
    if (what == RUI_PS_MOVED) {
        came(ps, from, &h, body, body_bytes, now, fx);
        return;
    }
    if (what == RUI_PS_CAME || what == RUI_PS_LATER) {
        rui_ps_move_came(ps, &h, what == RUI_PS_LATER);
    } else {
        rui_ps_answer(ps, what, &h, body, body_bytes, now, fx);
    }
    if (what == RUI_PS_NACK || what == RUI_PS_LATER) {
        retry_soon(ps, now, fx);
    }
    ru_bufs_put(&ps->bufs, body);
}

static void sent(void *self, uint64_t cookie, bool ok, ru_time now, ru_effects *fx)
{
    ru_ps *ps = self;
    if ((cookie & RUI_PS_LEAVING) != 0) {
        uint32_t s = (uint32_t)(cookie & ~RUI_PS_LEAVING);
        RU_CHECK(ps->moving[s].reading > 0);
        ps->moving[s].reading--;
        rui_ps_move_sent(ps, s, ok);
    } else {
        rui_ps_ask_sent(ps, cookie, ok);
    }
    if (!ok) {
        retry_soon(ps, now, fx);
    }
}

void ru_ps_send(ru_ps *ps, ru_node_id to, uint32_t what, const void *head, uint32_t head_bytes,
                void *body, int64_t body_bytes, ru_time now, ru_effects *fx)
{
    RU_CHECK(what >= RU_PS_WHAT_OWNER);
    (void)ru_pull_send(ps->pull, to, what, head, head_bytes, body, body_bytes, true, 0, now, fx);
}

void ru_ps_step(ru_ps *ps, const ru_event *ev, ru_effects *fx)
{
    if (ev->kind == RU_EV_LOCAL && ev->what == ps->opt.local) {
        ru_pull_local(ps->pull, ev->now, fx);
    } else if (ev->kind == RU_EV_TIMER) {
        ps->retry_set = false;
        send_moved(ps, ev->now, fx);
        rui_ps_move_again(ps, (ru_node_id){0}, ev->now, fx);
        rui_ps_ask_again(ps, false, ev->now, fx);
    } else if (ev->kind == RU_EV_UP) { /* what was on its way when the connection ended is lost */
        ru_pull_step(ps->pull, ev, fx);
        rui_ps_move_again(ps, ev->node, ev->now, fx);
        for (uint32_t i = 0; i < ps->ask_top; i++) {
            rui_ps_ask *a = rui_ps_ask_at(ps, i);
            a->again = a->again || ((!a->kept || a->replays) && ru_node_is(a->to, ev->node));
        }
        rui_ps_ask_again(ps, false, ev->now, fx);
    } else {
        ru_pull_step(ps->pull, ev, fx);
    }
}

const ru_ps_stats *ru_ps_stats_of(const ru_ps *ps)
{
    return &ps->stats;
}
