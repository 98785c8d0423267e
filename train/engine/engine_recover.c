/* Members died, and the others go on.
 *
 *   leader    a view without the dead, of the same generation; it says which objects are lost, and
 *             who holds them from now on. Its epoch is a fence: what was asked, answered or told
 *             before is void, so nobody hears a dead member any more
 *   all       send their copies of rows of lost shards to the new holders; go on with what they
 *             have, and repeat what they asked of the dead
 *   holder    shard: first values, newest checkpoint, records of the logs, copies of all members;
 *             the newest of each row counts. Executor: its newest state, at the clock that is open
 *
 * A leader that was not one before learns from all members which clocks are closed. Executors are
 * DONE with a clock only when their changes are in the rebuilt shards again (comm/ps keeps them
 * until the clock closes), so a clock closes once all that lives has done it. What is older in a
 * rebuilt object than the clock is lost, and told (RU_ENGINE_REBUILT).
 *
 * An object that was on its way from a dead member is found when all have said what they have. */
#include <string.h>

#include "store/shardlog.h"
#include "train/engine/engine_impl.h"

enum { WATCH_TIMES = 20 };
static const int64_t WATCH_NS = 20000000000, WATCH_END_NS = 60000000000; /* its checkpoint */

static bool is_here(const ru_engine *e, uint32_t o)
{
    return o < e->n_execs ? e->exec[o].want == RUI_WANT_READY || e->exec[o].arrived != NULL
                          : ru_ps_shard_here(e->ps, o - e->n_execs);
}

static bool is_mine(const ru_engine *e, uint32_t o)
{
    return ru_node_is(e->holder[o], e->opt.self);
}

/* -- copies --------------------------------------------------------------------------------------
 */

/* Rows that rotate: the first step of this block that no executor which was ever here has done, as
 * far as this process knows. Steps of a block follow each other, so all before are done. */
static uint32_t first_step(const ru_engine *e, uint32_t s)
{
    uint32_t n = e->n_execs, b = s - e->opt.shards, first = 0;
    for (uint32_t k = 0; k < n; k++) {
        const rui_exec *x = &e->exec[k];
        bool in = x->busy == RUI_FLUSHES && x->task.task.block == b && !ru_ps_updates(e->ps, k, s);
        uint32_t step = x->step + (in ? 1 : 0), round = (b + n - k) % n;
        uint32_t clock = step / n;
        uint32_t done = step % n > round ? clock * n + round + 1
                        : clock > 0      ? (clock - 1) * n + round + 1
                                         : 0;
        first = done > first ? done : first;
    }
    return first;
}

static void send_copies(ru_engine *e, uint32_t o, ru_time now, ru_effects *fx)
{
    uint32_t s = o - e->n_execs;
    int64_t n = 0;
    void *bytes = e->opt.recover == RU_RECOVER_NEWEST ? ru_ps_copies(e->ps, s, &n) : NULL;
    rui_engine_head h = {.generation = e->generation,
                         .epoch = e->epoch,
                         .closed = e->closed,
                         .executor = o,
                         .clock = s >= e->opt.shards ? first_step(e, s) : 0,
                         .args_clock = e->fence};
    ru_ps_send(e->ps, e->holder[o], RUI_ENGINE_COPIES, &h, sizeof h, bytes, bytes == NULL ? 0 : n,
               now, fx);
}

static rui_rebuild *rebuild_of(ru_engine *e, uint32_t o)
{
    if (e->rebuild[o] == NULL) {
        e->rebuild[o] = ru_bufs_need(e->bufs, sizeof *e->rebuild[o]);
        RU_CHECK(e->rebuild[o] != NULL);
        *e->rebuild[o] = (rui_rebuild){0};
    }
    return e->rebuild[o];
}

static rui_copies *copies_from(const rui_rebuild *r, ru_node_id from)
{
    rui_copies *c = r->copies;
    while (c != NULL && !ru_node_is(c->from, from)) {
        c = c->next;
    }
    return c;
}

void rui_rebuild_copies(ru_engine *e, ru_node_id from, const rui_engine_head *h, void *body,
                        int64_t body_bytes, ru_time now, ru_effects *fx)
{
    uint32_t o = h->executor;
    /* They may come before the view. */
    if (o < e->n_execs || (e->rebuild[o] == NULL && h->args_clock <= e->fence)) {
        ru_bufs_put(e->bufs, body);
        return;
    }
    rui_rebuild *r = rebuild_of(e, o);
    rui_copies *c = copies_from(r, from);
    if (c == NULL) {
        c = ru_bufs_need(e->bufs, sizeof *c);
        RU_CHECK(c != NULL);
        *c = (rui_copies){.next = r->copies, .from = from};
        r->copies = c;
    }
    ru_bufs_put(e->bufs, c->bytes);
    c->bytes = body;
    c->n = body_bytes;
    r->step = h->clock > r->step ? h->clock : r->step;
    rui_rebuild_look(e, now, fx);
}

/* -- objects that are rebuilt here ---------------------------------------------------------------
 */

static void rebuild_free(ru_engine *e, uint32_t o)
{
    rui_rebuild *r = e->rebuild[o];
    if (r == NULL) {
        return;
    }
    while (r->copies != NULL) {
        rui_copies *c = r->copies;
        r->copies = c->next;
        ru_bufs_put(e->bufs, c->bytes);
        ru_bufs_put(e->bufs, c);
    }
    ru_bufs_put(e->bufs, r->saved);
    ru_bufs_put(e->bufs, r->log);
    ru_bufs_put(e->bufs, r);
    e->rebuild[o] = NULL;
}

void rui_rebuild_reset(ru_engine *e)
{
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        rebuild_free(e, o);
    }
}

static void begin(ru_engine *e, uint32_t o, ru_time now)
{
    rui_rebuild *r = rebuild_of(e, o);
    bool saved = rui_copy_restores(e) || rui_count_is(e) || rui_engine_newer(e->saved, e->base);
    ru_engine_ckpt from = saved ? e->saved : e->base;
    bool reset = e->opt.recover == RU_RECOVER_RESET ||
                 (e->counts && e->opt.ops->recount == RU_APP_RECOUNT_DRIVER);
    r->begun = true;
    r->at = now;
    r->saved_read = from.generation == 0 || reset;
    r->log_read = reset;
    if (!r->saved_read) {
        e->opt.device->read(e->opt.device_self, from, o, e->generation | RUI_ENGINE_REBUILDS);
    }
    if (!r->log_read) {
        e->opt.device->log_read(e->opt.device_self, e->generation, rui_count_since(e), o);
    }
}

void rui_rebuild_view(ru_engine *e, bool recovers, ru_time now, ru_effects *fx)
{
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        if (recovers && e->lost[o] && o >= e->n_execs) {
            send_copies(e, o, now, fx);
        }
        rui_rebuild *r = e->rebuild[o];
        bool wanted = e->lost[o] && is_mine(e, o) && !is_here(e, o);
        if (wanted && (r == NULL || !r->begun)) {
            begin(e, o, now);
        } else if (!wanted && r != NULL && (r->begun || recovers)) {
            rebuild_free(e, o);
        }
        if (wanted && o < e->n_execs && e->exec[o].want == RUI_WANT_ARRIVE) {
            e->exec[o].want = RUI_WANT_REBUILD;
        }
    }
    rui_rebuild_look(e, now, fx);
}

static void *copy_of(ru_engine *e, const void *bytes, int64_t n)
{
    void *copy = ru_bufs_need(e->bufs, n);
    RU_CHECK(copy != NULL);
    if (n > 0) {
        memcpy(copy, bytes, (size_t)n);
    }
    return copy;
}

/* Copies that cannot be read are done without; older ones are there. */
static bool readable(ru_engine *e, uint32_t o, ru_status st, const char *why, ru_effects *fx)
{
    (void)e;
    if (st != RU_OK) {
        ru_fx_log(fx, RU_LOG_WARN, "object %u is rebuilt without a copy that cannot be read: %s", o,
                  why);
    }
    return st == RU_OK;
}

void rui_rebuild_read(ru_engine *e, uint32_t object, const void *bytes, int64_t n, ru_status st,
                      const char *why, ru_time now, ru_effects *fx)
{
    rui_rebuild *r = e->rebuild[object];
    if (r == NULL || !r->begun || r->saved_read) {
        return;
    }
    r->saved_read = true;
    if (readable(e, object, st, why, fx)) {
        r->saved = copy_of(e, bytes, n);
        r->saved_bytes = n;
    }
    rui_rebuild_look(e, now, fx);
}

void ru_engine_log_read(ru_engine *e, uint32_t generation, uint32_t object, const void *bytes,
                        int64_t n, ru_status st, const char *why, ru_time now, ru_effects *fx)
{
    rui_rebuild *r = e->rebuild[object];
    if (generation != e->generation || e->ended || r == NULL || !r->begun || r->log_read) {
        return;
    }
    r->log_read = true;
    if (readable(e, object, st, why, fx)) {
        r->log = copy_of(e, bytes, n);
        r->log_bytes = n;
    }
    rui_rebuild_look(e, now, fx);
}

/* -- complete ------------------------------------------------------------------------------------
 */

static void told(ru_engine *e, uint32_t o, const ru_ps_rebuilt *how, ru_time now, ru_effects *fx)
{
    const rui_rebuilt words = {how->log_at, how->cache_at, how->rows,
                               how->late,   how->moved,    how->begun};
    rui_engine_head h = {.executor = o};
    rui_engine_send(e, ru_member_leader(e->opt.member), RUI_ENGINE_REBUILT, &h, &words,
                    sizeof words, now, fx);
    e->facts.rebuilt++;
    rui_engine_news(e,
                    &(ru_engine_news){.kind = RU_ENGINE_REBUILT,
                                      .object = o,
                                      .clock = e->closed,
                                      .rebuilt = how,
                                      .took_ns = now.ns - e->rebuild[o]->at.ns},
                    now);
    rebuild_free(e, o);
}

static ru_status apply(ru_engine *e, uint32_t s, const rui_rebuild *r)
{
    ru_shardlog_record rec;
    RU_TRY(ru_ps_rebuild_begin(e->ps, s));
    if (r->saved != NULL) {
        RU_TRY(ru_ps_rebuild_saved(e->ps, s, r->saved, r->saved_bytes));
    }
    for (int64_t at = 0; r->log != NULL && ru_shardlog_next(r->log, r->log_bytes, &at, &rec);) {
        RU_TRY(ru_ps_rebuild_block(e->ps, s, rec.block, rec.clock, rec.bytes, rec.n));
    }
    for (const rui_copies *c = r->copies; c != NULL; c = c->next) {
        if (c->bytes != NULL && c->n > 0) {
            RU_TRY(ru_ps_rebuild_rows(e->ps, s, c->bytes, c->n));
        }
    }
    return RU_OK;
}

static void finish_shard(ru_engine *e, uint32_t o, ru_time now, ru_effects *fx)
{
    const rui_rebuild *r = e->rebuild[o];
    const ru_view *v = ru_member_view(e->opt.member);
    uint32_t s = o - e->n_execs;
    for (uint32_t i = 0; i < v->n; i++) {
        if (copies_from(r, v->at[i].node) == NULL) {
            return;
        }
    }
    ru_ps_rebuilt how;
    ru_status st = apply(e, s, r);
    if (st != RU_OK) {
        rui_engine_fail(e, st,
                        st == RU_E_MEM ? "there is no memory to rebuild a shard"
                                       : "a copy of a shard is damaged, or of another job",
                        now, fx);
        return;
    }
    ru_ps_rebuild_end(e->ps, s, r->step, &how, now, fx);
    told(e, o, &how, now, fx);
    rui_engine_save_shard(e, s, now, fx);
    rui_engine_ready(e, false, now, fx);
}

/* The newest state of an executor that there is; NULL: none. In order, none of a clock that is
 * still open here: the changes of that clock died with it. All of them can be counted. */
static const void *newest(const ru_engine *e, const rui_rebuild *r, int64_t *n, uint32_t *clock)
{
    const void *best = r->saved;
    ru_shardlog_record rec;
    *n = r->saved_bytes;
    *clock = best != NULL ? rui_exec_packed(e, best, *n) : 0;
    for (int64_t at = 0; r->log != NULL && ru_shardlog_next(r->log, r->log_bytes, &at, &rec);) {
        bool later = e->opt.driver == RU_ENGINE_BSP && rec.clock > e->closed && !rui_count_is(e);
        if (!later && (best == NULL || rec.clock >= *clock)) {
            best = rec.bytes;
            *n = rec.n;
            *clock = rec.clock;
        }
    }
    return best;
}

static void finish_exec(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_exec *x = &e->exec[k];
    if (x->want != RUI_WANT_REBUILD || x->busy != RUI_IDLE || x->state == NULL) {
        return; /* settled again when it is open */
    }
    if (x->used) { /* opened anew */
        rui_exec_close(e, k);
        return;
    }
    int64_t n;
    uint32_t clock;
    const void *bytes = newest(e, e->rebuild[k], &n, &clock);
    if (rui_exec_revive(e, k, bytes, n, now, fx) != RU_OK) {
        rui_engine_fail(e, RU_E_DATA,
                        "the saved state of an executor is damaged, or of another job", now, fx);
        return;
    }
    bool keeps = rui_exec_stateful(e) && e->opt.ops->recount != RU_APP_RECOUNT_DRIVER;
    const ru_ps_rebuilt how = {.closed = rui_exec_clock(e, k),
                               .rows = 1,
                               .logged = bytes != NULL && bytes != e->rebuild[k]->saved,
                               .saved = bytes != NULL && bytes == e->rebuild[k]->saved,
                               .late = keeps && clock < e->closed ? e->closed - clock : 0,
                               .log_at = bytes != NULL ? (int64_t)clock : -1,
                               .cache_at = -1,
                               .at = &clock};
    told(e, k, &how, now, fx);
}

void rui_rebuild_look(ru_engine *e, ru_time now, ru_effects *fx)
{
    for (uint32_t o = 0; o < rui_objects(e) && !e->ended; o++) {
        const rui_rebuild *r = e->rebuild[o];
        if (r != NULL && r->begun && is_here(e, o)) { /* whoever was to send it lives */
            rebuild_free(e, o);
            continue;
        }
        if (r == NULL || !r->begun || !r->saved_read || !r->log_read || e->heard < e->fence) {
            continue;
        }
        if (o >= e->n_execs) {
            finish_shard(e, o, now, fx);
        } else {
            finish_exec(e, o, now, fx);
            rui_exec_settle(e, o, now, fx);
        }
    }
}

/* -- the leader ----------------------------------------------------------------------------------
 */

bool rui_recover_may(const ru_engine *e, const ru_node_id *nodes, uint32_t n)
{
    /* The state of the app's driver is that of the leader alone. */
    if (!e->opt.partial || e->generation == 0 || ru_member_view(e->opt.member)->epoch != e->epoch ||
        (e->lead.renew && e->opt.ops->drive != NULL)) {
        return false;
    }
    for (uint32_t o = e->n_execs; o < rui_objects(e); o++) {
        for (uint32_t i = 0; i < n; i++) {
            if (ru_node_is(nodes[i], e->holder[o])) {
                return true; /* something is left to go on with */
            }
        }
    }
    return false;
}

/* What hangs after a loss, such as an object that nobody has, ends with the last checkpoint. A
 * clock may take twenty times as long as the longest one before. */
void rui_recover_watch(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    int64_t since = ru_time_since(now, l->watched_at), most = WATCH_TIMES * l->longest_ns;
    if (!l->on || l->watched != l->closed || l->watched_at.ns == 0) {
        bool next = l->on && l->watched_at.ns != 0 && l->closed == l->watched + 1;
        l->longest_ns = next && since > l->longest_ns ? since : l->longest_ns;
        l->watched = l->closed;
        l->watched_at = now;
        return;
    }
    int64_t least = l->closed < l->end_clock ? WATCH_NS : WATCH_END_NS;
    if (e->fence == 0 || since < (most > least ? most : least)) {
        return;
    }
    ru_fx_log(fx, RU_LOG_WARN,
              "clock %u does not end since workers died %.0f s ago: the job goes on from its last "
              "checkpoint",
              l->closed, 1e-9 * (double)ru_time_since(now, l->lost_at));
    l->watched_at = now;
    l->longest_ns = since;
    l->stalled = true;
    rui_map_look(e, now, fx);
}

void rui_recover_in_force(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    const ru_view *v = ru_member_view(e->opt.member);
    bool adopt = l->renew || l->adopt;
    if (adopt) {
        memcpy(l->to, e->holder, rui_objects(e) * sizeof *l->to);
        memset(l->at, 0, rui_objects(e) * sizeof *l->at);
        l->n_leavers = 0;
        l->part_clock = 0;
        l->planned = l->plan = false;
        l->n_members = v->n;
    }
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        if (e->lost[o] || ru_member_among(v->at, v->n, l->to[o]) ==
                              NULL) { /* also what was to move to the dead */
            l->to[o] = e->holder[o];
        }
        l->seen[o] = l->lost[o] = 0;
        l->rebuilt[o] = e->lost[o] ? (rui_rebuilt){.rows = -1} : l->rebuilt[o];
    }
    l->lost_at = now;
    l->renew = false;
    l->check = true;
    rui_lead_lost(e, adopt, now, fx);
}

void rui_recover_ready(ru_engine *e, const rui_engine_head *h, const uint8_t *here,
                       const uint8_t *leaving, bool all, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    for (uint32_t o = 0; o < rui_objects(e) && l->check; o++) {
        l->seen[o] |= (uint8_t)((here[o / 8] | leaving[o / 8]) >> o % 8 & 1);
        if ((here[o / 8] >> o % 8 & 1) != 0 && l->rebuilt[o].rows < 0) {
            l->rebuilt[o].rows = 0; /* it was not lost after all */
        }
    }
    l->adopt_from = l->adopt && h->closed > l->adopt_from ? h->closed : l->adopt_from;
    if (!all) {
        return;
    }
    for (uint32_t o = 0; o < rui_objects(e) && l->check; o++) {
        l->lost[o] = !l->seen[o] && e->moved[o] && !e->lost[o]; /* on its way from the dead */
    }
    l->check = false;
    if (l->adopt) {
        rui_lead_go(e, now, fx);
    }
}

void rui_recover_rebuilt(ru_engine *e, const rui_engine_head *h, const void *body, int64_t bytes,
                         ru_time now)
{
    rui_lead *l = &e->lead;
    int64_t rows = 0;
    double late = 0;
    if (h->executor >= rui_objects(e) || bytes != (int64_t)sizeof *l->rebuilt ||
        l->rebuilt[h->executor].rows >= 0) {
        return;
    }
    memcpy(&l->rebuilt[h->executor], body, sizeof *l->rebuilt);
    ru_arena_rewind(&l->plan_scratch, (ru_arena_mark){0});
    ru_recover_block *b = RU_NEW(&l->plan_scratch, ru_recover_block, rui_objects(e));
    RU_CHECK(b != NULL);
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        const rui_rebuilt *r = &l->rebuilt[o];
        if (r->rows < 0) {
            return; /* not all yet */
        }
        uint32_t clock = o >= e->n_execs + e->opt.shards ? e->opt.shape->rounds : 1;
        b[o] = (ru_recover_block){.lost = r->rows > 0,
                                  .log_at = r->log_at < 0 ? -1 : r->log_at / clock,
                                  .cache_at = r->cache_at < 0 ? -1 : r->cache_at / clock,
                                  .log_d = r->moved,
                                  .start_d = r->begun};
        rows += r->rows;
        late += (double)r->late / clock;
    }
    const ru_recover_in in = {.block = b,
                              .n = rui_objects(e),
                              .run = RU_SAVE_RUN,
                              .method = (ru_recover_method)e->opt.recover};
    if (e->opt.recovered != NULL && rows > 0) {
        e->opt.recovered(e->opt.news_self, &in, late / (double)rows, now.ns - l->lost_at.ns, now);
    }
    memset(l->rebuilt, 0, rui_objects(e) * sizeof *l->rebuilt);
}
