/* Requests at a shard: answered, parked until the shard or the clock is there, or refused. */
#include <string.h>

#include "comm/ps/ps_impl.h"

static void answer(ru_ps *ps, ru_node_id to, uint32_t what, const rui_ps_head *h, ru_time now,
                   ru_effects *fx)
{
    (void)ru_pull_send(ps->pull, to, what, h, sizeof *h, NULL, 0, true, 0, now, fx);
}

/* Rows of a run are in another process's cache from now on. */
static void note_reader(ru_ps *ps, ru_node_id from, const rui_ps_run *run, uint32_t clock)
{
    uint32_t bit = UINT32_C(1) << (from.v * UINT64_C(0x9e3779b97f4a7c15) >> 59);
    for (uint32_t i = 0; i < run->n; i++) {
        rui_ps_read_by *x = &ps->read_by[run->row + i];
        if (x->clock != clock) {
            *x = (rui_ps_read_by){.clock = clock, .before = x->clock + 1 == clock ? x->now : 0};
        }
        x->now |= bit;
    }
}

static void serve_get(ru_ps *ps, ru_node_id from, const rui_ps_head *h, const void *body,
                      int64_t floats, ru_time now, ru_effects *fx)
{
    const rui_ps_place *p = &ps->place;
    const rui_ps_run *run = body;
    float *out = ru_bufs_get(&ps->bufs, 4 * floats), *to = out;
    rui_ps_head back = *h;
    back.need = ps->shard[h->shard].closed;
    if (out == NULL) { /* bounded memory: it asks again when others are served */
        answer(ps, from, RUI_PS_NACK, &back, now, fx);
        return;
    }
    for (uint32_t k = 0; k < h->n_runs; k++) {
        uint32_t t = rui_ps_table_of(p, run[k].row), width = p->table[t].width;
        uint32_t stride = rui_ps_stride(p, t);
        const float *at = rui_ps_row(ps, h->shard, t, run[k].row);
        if (stride == width) {
            memcpy(to, at, (size_t)run[k].n * width * 4);
        } else {
            for (uint32_t i = 0; i < run[k].n; i++) {
                memcpy(to + (int64_t)i * width, at + (int64_t)i * stride, (size_t)width * 4);
            }
        }
        to += (int64_t)run[k].n * width;
        ps->stats.rows_sent += run[k].n;
        if (ps->read_by != NULL && !ru_node_is(from, ps->opt.self)) {
            note_reader(ps, from, &run[k], back.need);
        }
    }
    ps->stats.gets++;
    (void)ru_pull_send(ps->pull, from, RUI_PS_ROWS, &back, sizeof back, out, 4 * floats, true, 0,
                       now, fx);
}

static void park(ru_ps *ps, ru_node_id from, uint32_t what, const rui_ps_head *h, void *body,
                 int64_t body_bytes)
{
    rui_ps_parked *k = ru_bufs_need(&ps->bufs, sizeof *k), **last = &ps->shard[h->shard].parked;
    RU_CHECK(k != NULL);
    *k = (rui_ps_parked){NULL, from, what, *h, body, body_bytes};
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = k;
    ps->stats.waits++;
}

/* The shard is here. */
static void serve_here(ru_ps *ps, ru_node_id from, uint32_t what, const rui_ps_head *h, void *body,
                       int64_t body_bytes, int64_t floats, ru_time now, ru_effects *fx)
{
    if (what == RUI_PS_GET) {
        if (h->need > ps->shard[h->shard].closed) {
            park(ps, from, what, h, body, body_bytes);
            return;
        }
        serve_get(ps, from, h, body, floats, now, fx);
        ru_bufs_put(&ps->bufs, body);
        return;
    }
    /* This clock has not begun here, or the holder before is not done: who holds a block without
     * rows fetched nothing and so has not waited for it. */
    if (h->shard >= ps->place.n_spread &&
        (h->step / ps->opt.rounds > ps->closed || h->step > ps->shard[h->shard].closed)) {
        park(ps, from, what, h, body, body_bytes);
        return;
    }
    /* Its sender knows of a clock that has closed and this process does not: what is saved when it
     * closes must be without this update. */
    if (!ps->opt.ordered && h->need > ps->closed) {
        park(ps, from, what, h, body, body_bytes);
        return;
    }
    bool taken, fresh = rui_ps_shard_update(ps, h->shard, h, body, body_bytes, &taken);
    if (!taken) {
        ru_bufs_put(&ps->bufs, body);
    }
    answer(ps, from, RUI_PS_ACK, h, now, fx);
    if (fresh && h->shard >= ps->place.n_spread) {
        rui_ps_unpark(ps, h->shard, now, fx); /* the next holder waits for it */
    }
}

void rui_ps_serve(ru_ps *ps, ru_node_id from, uint32_t what, const rui_ps_head *h, void *body,
                  int64_t body_bytes, ru_time now, ru_effects *fx)
{
    int64_t floats;
    bool ok = h->shard < ps->place.n_shards && h->executor < ps->opt.n_executors;
    ok = ok && rui_ps_runs_ok(ps, h->shard, body, body_bytes, h->n_runs, &floats);
    ok = ok && body_bytes == (int64_t)sizeof(rui_ps_run) * h->n_runs +
                                 (what == RUI_PS_UPDATE ? 4 * floats : 0);
    if (!ok || h->generation < ps->generation) {
        ru_bufs_put(&ps->bufs, body); /* nobody waits for an answer in an old generation */
        return;
    }
    bool mine = ru_node_is(ps->holder[h->shard], ps->opt.self);
    /* Of before the fence: its process may not live any more; if it does, it asks again. Of after a
     * fence that is not here yet: it may look like what the fence takes out. */
    bool early = what == RUI_PS_UPDATE && h->hops > ps->void_from;
    if (h->generation > ps->generation || !mine || h->epoch < ps->fence || early) {
        ps->stats.refused++;
        ru_bufs_put(&ps->bufs, body);
        answer(ps, from, RUI_PS_NACK, h, now, fx);
        return;
    }
    if (!ps->shard[h->shard].here) {
        park(ps, from, what, h, body, body_bytes);
        return;
    }
    serve_here(ps, from, what, h, body, body_bytes, floats, now, fx);
}

void rui_ps_unpark(ru_ps *ps, uint32_t s, ru_time now, ru_effects *fx)
{
    rui_ps_parked *k = ps->shard[s].parked;
    ps->shard[s].parked = NULL;
    while (k != NULL) {
        rui_ps_parked *next = k->next;
        rui_ps_serve(ps, k->from, k->what, &k->head, k->body, k->body_bytes, now, fx);
        ru_bufs_put(&ps->bufs, k);
        k = next;
    }
}

void rui_ps_shard_send(ru_ps *ps, uint32_t s, ru_time now, ru_effects *fx)
{
    int64_t n;
    void *bytes = rui_ps_shard_pack(ps, s, true, &n);
    if (bytes != NULL && rui_ps_move(ps, s, ps->holder[s], bytes, n, now, fx)) {
        rui_ps_shard_drop(ps, s);
        ps->stats.shards_sent++;
    } else {
        ru_bufs_put(&ps->bufs, bytes); /* it stays here: later */
    }
}
