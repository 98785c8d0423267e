#include "train/engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "train/app/rule.h"
#include "train/engine/engine_impl.h"

enum { AGAIN_NS = 250000000 };

/* -- the store's questions -----------------------------------------------------------------------
 */

static void first_row(void *self, uint32_t table, int64_t row, float *value)
{
    const ru_engine *e = self;
    ru_app_first(e->opt.ops, e->opt.app, e->opt.shape, table, row, value);
}

static void merge_row(void *self, uint32_t table, uint32_t clock, float *value, float *extra,
                      const float *update)
{
    const ru_engine *e = self;
    ru_rule_merge(e->opt.ops, e->opt.app, &e->opt.shape->table[table], table, clock, value, extra,
                  update);
}

static void fetched(void *self, uint32_t ticket, ru_time now, ru_effects *fx)
{
    ru_engine *e = self;
    if (ticket == e->n_execs) {
        rui_lead_fetched(e, now, fx);
    } else if (ticket > 2 * e->n_execs) {
        rui_redo_fetched(e, ticket - 2 * e->n_execs - 1, now, fx);
    } else if (ticket > e->n_execs) {
        rui_help_fetched(e, ticket - e->n_execs - 1, now, fx);
    } else {
        rui_task_fetched(e, ticket, now, fx);
    }
}

static void flushed(void *self, uint32_t executor, ru_time now, ru_effects *fx)
{
    ru_engine *e = self;
    if (executor >= 2 * e->n_execs) {
        rui_redo_flushed(e, executor - 2 * e->n_execs, now, fx);
    } else if (executor >= e->n_execs) {
        rui_help_flushed(e, executor - e->n_execs, now, fx);
    } else if (e->exec[executor].busy == RUI_FLUSHES) {
        rui_task_flushed(e, executor, now, fx);
    } else { /* its changes are in rebuilt shards again */
        rui_exec_tell(e, executor, now, fx);
        rui_engine_ready(e, false, now, fx);
    }
}

void rui_engine_save_shard(ru_engine *e, uint32_t s, ru_time now, ru_effects *fx)
{
    uint32_t object = e->n_execs + s;
    rui_copy_take(e, object, now, fx);
    if (e->save == 0 || e->save != e->closed + 1 || e->written[object] ||
        !ru_ps_shard_begins(e->ps, s)) {
        return; /* what went on since was saved before, where it was then */
    }
    int64_t n;
    void *bytes = ru_ps_shard_save(e->ps, s, &n);
    if (bytes == NULL) {
        rui_engine_fail(e, RU_E_MEM, "there is no memory to save a shard", now, fx);
        return;
    }
    e->written[object] = 1;
    e->opt.device->write(e->opt.device_self, (ru_engine_ckpt){e->generation, e->save - 1}, object,
                         bytes, n);
    ru_bufs_put(e->bufs, bytes);
}

/* This member's parts of a checkpoint at the clock that has just been closed. */
static void save_all(void *self, ru_time now, ru_effects *fx)
{
    ru_engine *e = self;
    for (uint32_t s = 0; s < e->n_shards; s++) {
        rui_engine_save_shard(e, s, now, fx);
    }
}

static void clock_closed(void *self, ru_time now, ru_effects *fx)
{
    save_all(self, now, fx);
    rui_saver_look(self, now, fx);
}

static void shard_came(void *self, uint32_t shard, ru_time now, ru_effects *fx)
{
    ru_engine *e = self;
    e->facts.moves++;
    rui_copy_came(e, e->n_execs + shard);
    rui_engine_news(e,
                    &(ru_engine_news){.kind = RU_ENGINE_MOVED,
                                      .object = e->n_execs + shard,
                                      .bytes = ru_ps_shard_bytes(e->ps, shard)},
                    now);
    rui_engine_save_shard(e, shard, now, fx);
    rui_engine_ready(e, false, now, fx);
}

static void object_came(void *self, uint32_t object, void *bytes, int64_t n, uint32_t epoch,
                        ru_time now, ru_effects *fx)
{
    rui_exec_came(self, object, bytes, n, epoch, now, fx);
}

/* -- parcels -------------------------------------------------------------------------------------
 */

void rui_engine_send(ru_engine *e, ru_node_id to, uint32_t what, rui_engine_head *h,
                     const void *body, int64_t body_bytes, ru_time now, ru_effects *fx)
{
    if (to.v == 0) {
        return; /* nobody leads: told again when somebody does */
    }
    h->generation = e->generation;
    h->epoch = e->epoch;
    h->closed = e->closed;
    void *copy = NULL;
    if (body_bytes > 0) {
        copy = ru_bufs_need(e->bufs, body_bytes);
        RU_CHECK(copy != NULL);
        memcpy(copy, body, (size_t)body_bytes);
    }
    ru_ps_send(e->ps, to, what, h, sizeof *h, copy, body_bytes, now, fx);
}

void rui_engine_ready(ru_engine *e, bool asks, ru_time now, ru_effects *fx)
{
    uint32_t half = (e->n_execs + e->n_shards + 7) / 8; /* here; on their way from here */
    uint8_t bits[(RU_ENGINE_OBJECTS_MAX + 7) / 8 * 2] = {0};
    for (uint32_t o = 0; o < e->n_execs + e->n_shards; o++) {
        bool exec = o < e->n_execs, is = !exec && ru_ps_shard_here(e->ps, o - e->n_execs);
        bool leaves = ru_ps_leaving(e->ps, exec ? e->n_shards + o : o - e->n_execs, e->holder[o]);
        if (exec) {
            const rui_exec *x = &e->exec[o];
            is = x->mine && x->want == RUI_WANT_READY;
            leaves = leaves || x->arrived != NULL || (!x->mine && x->want == RUI_WANT_READY);
        }
        bits[o / 8] = (uint8_t)(bits[o / 8] | (is ? 1U << o % 8 : 0));
        bits[half + o / 8] = (uint8_t)(bits[half + o / 8] | (leaves ? 1U << o % 8 : 0));
    }
    rui_engine_head h = {.clock = asks ? 1 : 0,
                         .end = e->wants,
                         .barrier = ru_ps_replays_any(e->ps) || e->heard < e->fence ? 0 : e->fence};
    rui_engine_send(e, ru_member_leader(e->opt.member), RUI_ENGINE_READY, &h, bits,
                    2 * (int64_t)half, now, fx);
}

static void prepare(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    if (x->state != NULL) {
        rui_engine_head h = {.executor = k};
        rui_engine_send(e, ru_member_leader(e->opt.member), RUI_ENGINE_PREPARED, &h, NULL, 0, now,
                        fx);
        return;
    }
    x->prepare = true;
    if (x->busy == RUI_IDLE) {
        x->busy = RUI_OPENS;
        e->opt.device->open(e->opt.device_self, k, k);
    }
}

/* What a member, or the leader, said before it knew of the last loss. */
static bool is_void(const ru_engine *e, uint32_t what, const rui_engine_head *h)
{
    return h->epoch < e->fence && (what == RUI_ENGINE_CLOCK || what == RUI_ENGINE_DONE ||
                                   what == RUI_ENGINE_READY || what == RUI_ENGINE_SAVED);
}

static void got(void *self, ru_node_id from, uint32_t what, const void *head, uint32_t head_bytes,
                void *body, int64_t body_bytes, ru_time now, ru_effects *fx)
{
    ru_engine *e = self;
    rui_engine_head h;
    if (what == RUI_ENGINE_SLICE && !e->ended) {
        rui_slice_heard(e, from, head, head_bytes, body, body_bytes, now, fx);
        return;
    }
    if (head_bytes == sizeof h) {
        memcpy(&h, head, sizeof h);
        bool copies = what >= RUI_ENGINE_COPY && what != RUI_ENGINE_COPIED;
        if (copies && !e->ended && h.generation == e->generation) {
            rui_copy_heard(e, from, what, &h, body, body_bytes, now, fx);
            return;
        }
        if (copies && !e->ended && h.generation > e->generation && what != RUI_ENGINE_LATER) {
            rui_copy_refuse(e, from, what, &h, now, fx);
        }
        if (h.generation == e->generation && !e->ended && !is_void(e, what, &h)) {
            if (what == RUI_ENGINE_COPIES && h.executor < e->n_execs + e->n_shards) {
                rui_rebuild_copies(e, from, &h, body, body_bytes, now, fx);
                return;
            }
            if (what == RUI_ENGINE_SHARES) {
                rui_share_take(e, body, body_bytes, now, fx);
            } else if (what == RUI_ENGINE_CLOCK) {
                rui_engine_heard_clock(e, &h, body, body_bytes, now, fx);
            } else if (what == RUI_ENGINE_PREPARE && h.executor < e->n_execs) {
                prepare(e, h.executor, now, fx);
            } else if (what == RUI_ENGINE_GO && (e->wants & RUI_ENGINE_ENDS_ME) != 0) {
                ru_member_leave(e->opt.member, now, fx);
            } else if (what == RUI_ENGINE_FAILED && body_bytes > 0) {
                char why[RU_ERR_TEXT_MAX];
                (void)snprintf(why, sizeof why, "%.*s", (int)body_bytes, (const char *)body);
                rui_engine_over(e, h.status < RU_STATUS_COUNT ? (ru_status)h.status : RU_E_BUG, why,
                                now, fx);
            } else if (e->lead.on) {
                rui_lead_heard(e, from, what, &h, body, body_bytes, now, fx);
            }
        }
    }
    ru_bufs_put(e->bufs, body);
}

/* -- clocks --------------------------------------------------------------------------------------
 */

static void keep_status(ru_engine *e, ru_time now, ru_effects *fx)
{
    ru_member_status_set(e->opt.member, &e->saved, sizeof e->saved, false, now, fx);
}

void rui_engine_heard_clock(ru_engine *e, const rui_engine_head *h, const void *args,
                            int64_t args_bytes, ru_time now, ru_effects *fx)
{
    ru_engine_ckpt saved = {h->saved_generation, h->saved_clock};
    if (rui_engine_newer(saved, e->saved)) {
        e->saved = saved;
        keep_status(e, now, fx);
    }
    e->barrier = h->barrier;
    bool first = e->heard < e->fence && h->epoch >= e->fence;
    e->heard = h->epoch > e->heard ? h->epoch : e->heard;
    if (h->save != 0 && h->clock >= e->closed &&
        (e->save != h->clock + 1 || e->save_try != h->save)) {
        e->save = h->clock + 1;
        e->save_try = h->save;
        memset(e->written, 0, e->n_execs + e->n_shards);
    }
    e->copies.clock = h->clock >= e->closed ? h->copy : e->copies.clock;
    rui_copy_commit(e, h->kept);
    rui_backup_heard(e, h->clock, args, args_bytes);
    if (h->clock > e->closed) {
        rui_engine_record_clock(e, h->clock, now);
        e->closed = h->clock;
        ru_ps_close(e->ps, e->closed, now, fx);
        rui_engine_news(e, &(ru_engine_news){.kind = RU_ENGINE_CLOSED, .clock = e->closed}, now);
    }
    if (first) {
        ru_ps_void(e->ps);
        rui_engine_ready(e, false, now, fx);
    }
    save_all(e, now, fx); /* it may be told again with `save` */
    if (h->args_clock != RUI_ENGINE_NONE && h->args_clock != e->args_clock &&
        h->args_clock >= e->closed) {
        ru_bufs_put(e->bufs, e->args);
        e->args = ru_bufs_need(e->bufs, args_bytes);
        RU_CHECK(e->args != NULL);
        if (args_bytes > 0) {
            memcpy(e->args, args, (size_t)args_bytes);
        }
        e->args_bytes = args_bytes;
        e->args_clock = h->args_clock;
    }
    rui_rebuild_look(e, now, fx);
    for (uint32_t k = 0; k < e->n_execs; k++) {
        rui_exec_settle(e, k, now, fx);
    }
    if (h->end != 0) {
        rui_engine_over(e, (ru_status)(h->end - 1), NULL, now, fx);
    }
}

/* -- views ---------------------------------------------------------------------------------------
 */

static bool blob_ok(const ru_engine *e, const ru_view *v, rui_engine_blob *b)
{
    int64_t n = (int64_t)e->n_execs + e->n_shards;
    if (v->blob_bytes != (int64_t)sizeof *b + 2 * n) {
        return false;
    }
    memcpy(b, v->blob, sizeof *b);
    if (b->magic != RUI_ENGINE_BLOB || b->executors != e->n_execs || b->shards != e->n_shards) {
        return false;
    }
    const uint8_t *at = (const uint8_t *)v->blob + sizeof *b;
    for (int64_t i = 0; i < n; i++) {
        uint16_t rank;
        memcpy(&rank, at + 2 * i, sizeof rank);
        e->moved[i] = (rank & RUI_ENGINE_MOVED) != 0;
        e->lost[i] = (rank & RUI_ENGINE_LOST) != 0;
        rank = (uint16_t)(rank & ~(RUI_ENGINE_MOVED | RUI_ENGINE_LOST));
        if (rank >= v->n) {
            return false;
        }
        e->holder[i] = v->at[rank].node;
    }
    return true;
}

static void begin_generation(ru_engine *e, const rui_engine_blob *b, ru_time now, ru_effects *fx)
{
    e->generation = b->generation;
    e->base = (ru_engine_ckpt){b->from_generation, b->from_clock};
    const ru_engine_ckpt saved = {b->saved_generation, b->saved_clock};
    e->saved = rui_count_is(e) && rui_engine_newer(saved, e->saved) ? saved : e->saved;
    e->closed = e->base.clock;
    e->save = 0;
    e->fence = 0;
    e->heard = 0;
    rui_rebuild_reset(e);
    rui_saver_reset(e);
    rui_copy_reset(e);
    e->barrier = 0;
    e->args_clock = RUI_ENGINE_NONE;
    ru_ps_reset(e->ps, e->generation, e->closed, fx);
    rui_count_execs(e);
    e->facts.restores++;
    rui_engine_record_begin(e, now);
    rui_engine_news(
        e, &(ru_engine_news){.kind = RU_ENGINE_RESTORED, .clock = e->closed, .ckpt = e->base}, now);
}

/* Objects were lost with the members that are not in this view. */
static bool fence(ru_engine *e, uint32_t epoch)
{
    if (epoch <= e->fence) {
        return false;
    }
    e->fence = epoch;
    e->facts.recoveries++;
    ru_ps_fence(e->ps, epoch);
    for (uint32_t o = 0; o < e->n_execs + e->n_shards; o++) {
        bool here = o < e->n_execs && ru_node_is(e->holder[o], e->opt.self) &&
                    e->exec[o].want == RUI_WANT_READY;
        if (e->lost[o]) {
            ru_ps_lost(e->ps, o < e->n_execs ? e->n_shards + o : o - e->n_execs, here);
        }
    }
    return true;
}

static void view(ru_engine *e, ru_time now, ru_effects *fx)
{
    const ru_view *v = ru_member_view(e->opt.member);
    rui_engine_blob b;
    if (v->epoch == 0 || e->ended) {
        return;
    }
    if (!blob_ok(e, v, &b)) {
        rui_engine_over(e, RU_E_BUG, "the leader's view is not one of this job", now, fx);
        return;
    }
    b.generation = b.generation != 0 ? b.generation : v->epoch;
    b.fence = b.fence != RUI_ENGINE_NONE ? b.fence : v->epoch;
    bool fresh = b.generation != e->generation;
    e->epoch = v->epoch;
    e->lead.stage.workers = 0;
    rui_map_reach(e, fx);
    rui_copy_view(e, b.keepers, fresh);
    if (fresh) {
        begin_generation(e, &b, now, fx);
    }
    bool recovers = fence(e, b.fence);
    ru_ps_map(e->ps, e->holder + e->n_execs, e->epoch, now, fx);
    if (e->heard >= e->fence) {
        ru_ps_void(e->ps); /* the leader was faster */
    }
    for (uint32_t s = 0; fresh && s < e->n_shards; s++) {
        rui_engine_load_shard(e, s, now, fx);
    }
    if (recovers && !fresh) {
        rui_redo_fence(e, now, fx);
    }
    for (uint32_t k = 0; k < e->n_execs; k++) {
        rui_exec_map(e, k, ru_node_is(e->holder[k], e->opt.self), now, fx);
        if (!fresh && e->exec[k].want == RUI_WANT_READY) {
            rui_exec_tell(e, k, now, fx);
        }
    }
    rui_rebuild_view(e, recovers, now, fx);
    if (e->lead.on && recovers && !fresh) {
        rui_recover_in_force(e, now, fx);
    }
    if (e->lead.on) {
        rui_map_in_force(e, fresh, now, fx);
    }
    rui_engine_ready(e, true, now, fx);
}

/* -- events --------------------------------------------------------------------------------------
 */

static void local(ru_engine *e, const ru_event *ev, ru_effects *fx)
{
    ru_status refused = ev->value != 0 ? (ru_status)ev->value : RU_E_PEER;
    switch (ev->what) {
    case RU_MEMBER_VIEW:
        view(e, ev->now, fx);
        break;
    case RU_MEMBER_LEAD:
        e->lead.on = true;
        e->lead.renew = ru_member_view(e->opt.member)->epoch > 0;
        rui_map_look(e, ev->now, fx);
        break;
    case RU_MEMBER_CHANGE:
        rui_map_look(e, ev->now, fx);
        break;
    case RU_MEMBER_LEADERLESS:
        e->lead.on = false;
        break;
    case RU_MEMBER_OUT:
        rui_engine_over(e, (e->wants & RUI_ENGINE_ENDS_ME) != 0 ? RU_OK : refused, ev->data,
                        ev->now, fx);
        break;
    default:
        break;
    }
}

static void timer(ru_engine *e, const ru_event *ev, ru_effects *fx)
{
    if (ev->what == RU_ENGINE_WHAT_FIRST) {
        ru_ps_step(e->ps, ev, fx);
    } else if (ev->what == RUI_ENGINE_AGAIN) {
        for (uint32_t k = 0; k < e->n_execs && !e->ended; k++) {
            if (e->exec[k].want == RUI_WANT_READY) { /* also while it waits to move */
                rui_exec_tell(e, k, ev->now, fx);
            }
            rui_exec_settle(e, k, ev->now, fx);
        }
        if (!e->ended && e->generation > 0) {
            rui_engine_ready(e, e->heard < e->fence, ev->now, fx);
        }
        if (!e->ended) {
            rui_copy_again(e, ev->now, fx);
            rui_recover_watch(e, ev->now, fx);
        }
        ru_fx_timer(fx, RUI_ENGINE_AGAIN, ru_time_after(ev->now, AGAIN_NS));
    } else if (ev->what == RUI_ENGINE_LATE) {
        rui_copy_again(e, ev->now, fx);
    } else if (ev->what == RUI_ENGINE_WAKE) {
        rui_slice_wake(e, ev->now, fx);
    } else if (ev->what == RUI_ENGINE_LOOK) {
        rui_map_look(e, ev->now, fx);
    } else if (ev->what == RUI_ENGINE_BYE) {
        rui_engine_bye(e, ev->now);
    }
}

static void step(void *self, const ru_event *ev, ru_effects *fx)
{
    ru_engine *e = self;
    if (ev->kind == RU_EV_START) {
        ru_fx_timer(fx, RUI_ENGINE_AGAIN, ru_time_after(ev->now, AGAIN_NS));
    } else if (ev->kind == RU_EV_TIMER) {
        timer(e, ev, fx);
    } else if (ev->kind == RU_EV_LOCAL && ev->what != RUI_ENGINE_LOCAL) {
        local(e, ev, fx);
    } else {
        ru_ps_step(e->ps, ev, fx);
        if (ev->kind == RU_EV_UP) {
            rui_copy_up(e, ev->node, ev->now, fx);
        }
        if (ev->kind == RU_EV_DOWN && e->ended) {
            rui_engine_down(e, ev->now, fx);
        }
    }
}

static bool owns(void *self, uint64_t cookie)
{
    const ru_engine *e = self;
    return ru_pull_owns(ru_ps_pull(e->ps), cookie);
}

static void stream_sent(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    ru_engine *e = self;
    ru_pull_sent(ru_ps_pull(e->ps), cookie, now, fx);
}

static void stream_arrived(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    ru_engine *e = self;
    ru_pull_arrived(ru_ps_pull(e->ps), cookie, now, fx);
}

static void stream_failed(void *self, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx)
{
    ru_engine *e = self;
    ru_pull_failed(ru_ps_pull(e->ps), cookie, why, now, fx);
}

static void room(void *self, ru_time now, ru_effects *fx)
{
    ru_engine *e = self;
    ru_pull_room(ru_ps_pull(e->ps), now, fx);
}

static bool is_ended(const void *self)
{
    const ru_engine *e = self;
    return e->ended;
}

static const ru_part_ops part_ops = {.name = "params",
                                     .step = step,
                                     .owns = owns,
                                     .sent = stream_sent,
                                     .arrived = stream_arrived,
                                     .failed = stream_failed,
                                     .room = room,
                                     .ended = is_ended};

ru_part ru_engine_part(ru_engine *e)
{
    return (ru_part){.ops = &part_ops,
                     .self = e,
                     .what_first = RU_ENGINE_WHAT_FIRST,
                     .what_end = RU_ENGINE_WHAT_END};
}

/* -- opening -------------------------------------------------------------------------------------
 */

/* A process may have to hold everything when the others are gone: all rows with the state of their
 * rules, and a copy of those that its tasks read. A quarter is for what is on its way. */
static ru_status check_memory(const ru_engine *e, int64_t memory_bytes, ru_err *err)
{
    const ru_app_shape *s = e->opt.shape;
    int64_t bytes = 0;
    for (uint32_t t = 0; t < s->n_tables; t++) {
        const ru_app_table *x = &s->table[t];
        /* With a running checkpoint, also a copy of what is stored. */
        int64_t copies = x->local ? 1 : e->opt.partial ? 3 : 2;
        int64_t floats = copies * (int64_t)x->width + (x->local ? 0 : ru_rule_extra(x));
        bytes += 4 * x->rows * floats;
    }
    const double gib = 1.0 / (double)(INT64_C(1) << 30);
    return bytes <= memory_bytes / 4 * 3
               ? RU_OK
               : RU_FAIL(err, RU_E_LIMIT,
                         "the tables of app '%s' and their copies take %.1f GiB, and a process "
                         "keeps at most %.1f GiB of them; train with smaller tables, or on a "
                         "machine with more memory",
                         e->opt.ops->name, (double)bytes * gib,
                         (double)(memory_bytes / 4 * 3) * gib);
}

static bool divides(const ru_engine_options *o)
{
    return o->stragglers != RU_ENGINE_WAIT && o->stragglers != RU_ENGINE_BACKUP;
}

static ru_status open_store(ru_engine *e, ru_err *err)
{
    const ru_engine_options *o = &e->opt;
    const ru_app_shape *s = o->shape;
    int64_t memory_bytes = o->memory_bytes > 0 ? o->memory_bytes : RU_ENGINE_MEMORY;
    RU_TRY(check_memory(e, memory_bytes, err));
    /* Local rows live with executors: in the store the table has one unused row, so that tables
     * keep their numbers. */
    ru_ps_table tables[RU_PS_TABLES_MAX];
    for (uint32_t t = 0; t < s->n_tables; t++) {
        tables[t] = (ru_ps_table){.rows = s->table[t].local ? 1 : s->table[t].rows,
                                  .width = s->table[t].width,
                                  .extra = ru_rule_extra(&s->table[t]),
                                  .cut = s->cut[t]};
    }
    const ru_ps_options po = {.tables = tables,
                              .n_tables = s->n_tables,
                              .n_shards = o->shards,
                              .block_bytes = o->partial ? o->block_bytes : 0,
                              .n_executors = s->executors,
                              /* executors, leader, helpers, slices that are done again */
                              .tickets = 3 * s->executors + 1,
                              .flows = s->executors * (divides(o) ? 3 : 1),
                              .seed = s->seed,
                              .ordered = o->driver == RU_ENGINE_BSP,
                              .leaves_out = o->stragglers == RU_ENGINE_BACKUP,
                              .partial = o->partial,
                              .copies = o->stages.method != RU_ENGINE_STAGES_OFF,
                              .background = UINT64_C(1) << RUI_ENGINE_COPY,
                              .rounds = s->rounds,
                              .chan = o->chan,
                              .self = o->self,
                              .peers_max = o->peers_max,
                              .what_first = RU_ENGINE_WHAT_FIRST,
                              .local = RUI_ENGINE_LOCAL,
                              .memory_bytes = memory_bytes,
                              .user = {.self = e,
                                       .first = first_row,
                                       .merge = merge_row,
                                       .fetched = fetched,
                                       .flushed = flushed,
                                       .closed = clock_closed,
                                       .came = shard_came,
                                       .object = object_came,
                                       .got = got}};
    return ru_ps_open(&po, e->arena, &e->ps, err);
}

static ru_status open_execs(ru_engine *e, ru_err *err)
{
    uint32_t n = e->n_execs;
    e->exec = RU_NEW(e->arena, rui_exec, n);
    double *sums = RU_NEW(e->arena, double, (int64_t)n * e->sums_n * (e->window + 1));
    int64_t *cpu = RU_NEW(e->arena, int64_t, (int64_t)n * e->window);
    e->holder = RU_NEW(e->arena, ru_node_id, n + e->n_shards);
    e->moved = RU_NEW(e->arena, uint8_t, n + e->n_shards);
    e->written = RU_NEW(e->arena, uint8_t, n + e->n_shards);
    e->lost = RU_NEW(e->arena, uint8_t, n + e->n_shards);
    e->rebuild = RU_NEW(e->arena, rui_rebuild *, n + e->n_shards);
    ru_arena_init(&e->saver.out, 0);
    if (e->exec == NULL || sums == NULL || cpu == NULL || e->holder == NULL || e->moved == NULL ||
        e->written == NULL || e->lost == NULL || e->rebuild == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u executors", n);
    }
    for (uint32_t k = 0; k < n; k++) {
        rui_exec *x = &e->exec[k];
        x->sums = sums + (int64_t)k * e->sums_n * (e->window + 1);
        x->done = x->sums + e->sums_n;
        x->done_cpu = cpu + (int64_t)k * e->window;
        x->first = e->opt.part[k];
        x->rows = e->opt.part[k + 1] - e->opt.part[k];
    }
    return RU_OK;
}

ru_status ru_engine_open(const ru_engine_options *opt, ru_arena *arena, ru_engine **out,
                         ru_err *err)
{
    const ru_app_shape *s = opt->shape;
    ru_engine *e = RU_NEW(arena, ru_engine, 1);
    if (e == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the engine of an app");
    }
    e->opt = *opt;
    /* Shards that merge parts of a divided clock at once cannot take them out again when their
     * owner dies and begins anew: all roll back. */
    e->opt.partial = opt->partial && opt->stragglers != RU_ENGINE_BACKUP &&
                     (!divides(opt) || opt->driver == RU_ENGINE_BSP);
    e->counts = e->opt.partial && opt->ops->recount != RU_APP_RECOUNT_NEVER;
    e->opt.partial = e->opt.partial && !e->counts;
    e->arena = arena;
    e->n_execs = s->executors;
    e->sums_n = (int64_t)s->rounds * RU_APP_SUMS_MAX;
    e->args_clock = RUI_ENGINE_NONE;
    bool steps = s->rounds > 1 || opt->ops->drive != NULL;
    if (steps && opt->driver != RU_ENGINE_BSP) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "app '%s' rotates rows, or gives each clock arguments, so its executors "
                       "must be in the same clock; set clocks.order to bsp",
                       opt->ops->name);
    }
    e->driver_slack = opt->driver == RU_ENGINE_BSP     ? 0
                      : opt->driver == RU_ENGINE_ASYNC ? RU_ENGINE_SLACK_MAX
                                                       : opt->slack;
    if (e->driver_slack > RU_ENGINE_SLACK_MAX) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "clocks.staleness is %u; several workers may be at most %d clocks apart",
                       opt->slack, RU_ENGINE_SLACK_MAX);
    }
    RU_CHECK(opt->clocks >= 1);
    e->window = e->driver_slack + 2;
    RU_TRY(open_store(e, err));
    e->bufs = ru_ps_bufs(e->ps);
    e->n_shards = ru_ps_shards(e->ps);
    if (e->n_execs + e->n_shards > RU_ENGINE_OBJECTS_MAX) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "%u executors and %u shards; at most %d together are possible: lower "
                       "clocks.executors",
                       e->n_execs, e->n_shards, RU_ENGINE_OBJECTS_MAX);
    }
    RU_TRY(open_execs(e, err));
    RU_TRY(rui_lead_open(e, err));
    RU_TRY(rui_copy_open(e, err));
    RU_TRY(rui_stage_open(e, err));
    RU_TRY(rui_slice_open_all(e, err));
    RU_TRY(rui_engine_record_open(e, err));
    *out = e;
    return RU_OK;
}

void ru_engine_close(ru_engine *e)
{
    if (e == NULL) {
        return;
    }
    for (uint32_t k = 0; k < e->n_execs && e->exec != NULL; k++) {
        if (e->exec[k].state != NULL) {
            e->opt.device->close(e->opt.device_self, k, e->exec[k].state);
        }
    }
    rui_slice_close_all(e);
    rui_stage_close(e);
    rui_lead_close(e);
    rui_saver_close(e);
    ru_ps_close_all(e->ps);
}

void ru_engine_stop(ru_engine *e, bool all, ru_time now, ru_effects *fx)
{
    if (e->generation == 0) { /* there is no job yet that could end */
        e->wants |= RUI_ENGINE_ENDS_ME;
        ru_member_leave(e->opt.member, now, fx);
        return;
    }
    e->wants |= all ? RUI_ENGINE_ENDS_JOB : RUI_ENGINE_ENDS_ME;
    rui_engine_ready(e, false, now, fx);
}

uint32_t ru_engine_objects(const ru_engine *e)
{
    return e->n_execs + e->n_shards + 1;
}

void ru_engine_facts_get(const ru_engine *e, ru_engine_facts *into)
{
    *into = e->facts;
    rui_engine_record_facts(e, into);
    into->generation = e->generation;
    into->closed = e->closed;
    into->leads = e->lead.on;
    into->ended = e->ended;
    for (uint32_t k = 0; k < e->n_execs; k++) {
        into->executors_here += e->exec[k].want == RUI_WANT_READY;
    }
    for (uint32_t s = 0; s < e->n_shards; s++) {
        into->shards_here += ru_ps_shard_here(e->ps, s);
    }
}
