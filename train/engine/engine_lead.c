/* The leader: closes clocks, asks the app's driver, makes checkpoints.
 *
 * The driver's object of a checkpoint: sums of the last clock [SUMS_MAX] | the app's bytes. */
#include <stdio.h>
#include <string.h>

#include "train/app/call.h"
#include "train/engine/engine_impl.h"

ru_status rui_lead_open(ru_engine *e, ru_err *err)
{
    rui_lead *l = &e->lead;
    int64_t n = e->n_execs, objects = n + e->n_shards;
    l->done = RU_NEW(e->arena, uint32_t, n);
    l->sums = RU_NEW(e->arena, double, e->window *n * e->sums_n);
    l->cpu_ns = RU_NEW(e->arena, int64_t, n);
    l->stored = RU_NEW(e->arena, uint8_t, objects);
    l->to = RU_NEW(e->arena, ru_node_id, objects);
    l->at = RU_NEW(e->arena, ru_node_id, objects);
    l->prepared = RU_NEW(e->arena, uint8_t, n);
    l->ready = RU_NEW(e->arena, uint32_t, RU_MEMBERS_MAX);
    l->resent = RU_NEW(e->arena, uint32_t, RU_MEMBERS_MAX);
    l->lost = RU_NEW(e->arena, uint8_t, objects);
    l->seen = RU_NEW(e->arena, uint8_t, objects);
    l->rebuilt = RU_NEW(e->arena, rui_rebuilt, objects);
    if (l->done == NULL || l->sums == NULL || l->cpu_ns == NULL || l->stored == NULL ||
        l->to == NULL || l->at == NULL || l->prepared == NULL || l->ready == NULL ||
        l->resent == NULL || l->lost == NULL || l->seen == NULL || l->rebuilt == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the leader of %u executors", e->n_execs);
    }
    l->args_clock = RUI_ENGINE_NONE;
    ru_arena_init(&l->plan_out, 0);
    ru_arena_init(&l->plan_scratch, 0);
    return RU_OK;
}

static void close_driver(ru_engine *e)
{
    if (e->lead.driver != NULL && e->opt.ops->drive_close != NULL) {
        e->opt.ops->drive_close(e->lead.driver);
    }
    e->lead.driver = NULL;
}

void rui_lead_close(ru_engine *e)
{
    rui_lead *l = &e->lead;
    close_driver(e);
    ru_app_bytes_fini(&l->driver_bytes);
    ru_app_bytes_fini(&l->args);
    ru_arena_fini(&l->plan_out);
    ru_arena_fini(&l->plan_scratch);
}

/* -- arguments -----------------------------------------------------------------------------------
 */

static void tell_clock(ru_engine *e, const ru_engine_task *t, ru_time now)
{
    const rui_lead *l = &e->lead;
    const float *told[RU_APP_TABLES_MAX] = {NULL};
    for (uint32_t k = l->n_drive; k < t->n_wants; k++) {
        told[t->want[k].table] = t->value[k];
    }
    rui_stage_tell(e,
                   &(ru_engine_news){.kind = RU_ENGINE_CLOCKED,
                                     .clock = l->closed - 1,
                                     .left_out = rui_backup_last(e),
                                     .sums = l->last,
                                     .told = told},
                   now);
}

/* The rows are here: what the clock came to, and the next one's arguments. */
static void drive(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    ru_engine_task *t = &l->drive;
    l->driving = false;
    int64_t floats = rui_task_floats(e, t);
    ru_bufs_put(e->bufs, l->drive_buffer);
    l->drive_buffer = ru_bufs_get(e->bufs, floats * 4);
    if (l->drive_buffer == NULL) {
        rui_engine_fail(e, RU_E_MEM, "there is no memory for the rows of the driver", now, fx);
        return;
    }
    rui_task_place(e, t, l->drive_buffer);
    if (l->clocked) {
        tell_clock(e, t, now);
    }
    if (e->opt.ops->drive == NULL || l->closed >= e->opt.clocks) {
        return;
    }
    const ru_app_view view = {.value = t->value, .delta = t->delta};
    ru_err err = {0};
    l->args.n = 0;
    bool counts = rui_count_is(e) && l->closed == e->base.clock;
    ru_status st =
        ru_app_call_drive(e->opt.ops, l->driver, l->closed,
                          l->closed > 0 && !counts ? l->last : NULL, &view, &l->args, &err);
    if (st != RU_OK || l->args.full) {
        rui_engine_fail(e, st != RU_OK ? st : RU_E_MEM,
                        st != RU_OK
                            ? err.text
                            : "no memory for the arguments of a clock, or the app wrote them "
                              "without ru_app_put",
                        now, fx);
        return;
    }
    l->args_clock = l->closed;
    rui_lead_tell(e, (ru_node_id){0}, now, fx);
}

/* After a clock (clocked), or at the begin of a generation. */
static void drive_begin(ru_engine *e, bool clocked, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    ru_engine_task *t = &l->drive;
    const ru_app_shape *s = e->opt.shape;
    *t = (ru_engine_task){.executor = e->n_execs};
    l->clocked = clocked;
    ru_err err;
    ru_status st = RU_OK;
    if (e->opt.ops->drive != NULL && e->opt.ops->drive_wants != NULL && l->closed < e->opt.clocks) {
        st = ru_app_call_drive_wants(e->opt.ops, s, l->driver, l->closed, t->want, &t->n_wants,
                                     &err);
    }
    l->n_drive = t->n_wants;
    for (uint32_t k = 0; st == RU_OK && clocked && k < s->n_tables; k++) {
        if (s->table[k].told && t->n_wants == RU_APP_WANTS_MAX) {
            st = RU_FAIL(&err, RU_E_USER,
                         "the driver of app %s has %u wants, so table %s cannot be told beside "
                         "them; at most %d are allowed together",
                         e->opt.ops->name, l->n_drive, s->table[k].name, RU_APP_WANTS_MAX);
        } else if (s->table[k].told) {
            t->want[t->n_wants++] = (ru_app_want){.table = k, .rows = s->table[k].rows};
        }
    }
    if (st != RU_OK) {
        rui_engine_fail(e, st, err.text, now, fx);
        return;
    }
    if (!rui_task_rows(e, t, &l->drive_rows, &l->n_drive_rows, &l->cap_drive_rows)) {
        rui_engine_fail(e, RU_E_MEM, "there is no memory for the rows of the driver", now, fx);
        return;
    }
    l->driving = true;
    if (ru_ps_fetch(e->ps, e->n_execs, l->closed, l->closed * s->rounds, false, l->drive_rows,
                    l->n_drive_rows, now, fx)) {
        drive(e, now, fx);
    }
}

/* -- clocks --------------------------------------------------------------------------------------
 */

void rui_lead_tell(ru_engine *e, ru_node_id to, ru_time now, ru_effects *fx)
{
    const rui_lead *l = &e->lead;
    const ru_view *v = ru_member_view(e->opt.member);
    bool args = l->args_clock == l->closed;
    const void *body = l->args.p;
    int64_t n = args ? l->args.n : 0;
    if (e->backup != NULL) { /* such apps have no driver */
        body = rui_backup_list(e, &n);
    }
    if (l->adopt) {
        return; /* it will be told to all */
    }
    rui_engine_head h = {.clock = l->closed,
                         .args_clock = args ? l->args_clock : RUI_ENGINE_NONE,
                         .saved_generation = e->saved.generation,
                         .saved_clock = e->saved.clock,
                         .save = l->save == l->closed + 1 ? 1 + e->fence : 0,
                         .barrier = l->barrier,
                         .copy = l->stage.copy,
                         .kept = l->stage.safe ? l->stage.committed : RUI_ENGINE_NONE,
                         .end = l->ended ? 1 + RU_OK : 0};
    for (uint32_t i = 0; i < v->n; i++) {
        if (to.v == 0 || ru_node_is(to, v->at[i].node)) {
            rui_engine_send(e, v->at[i].node, RUI_ENGINE_CLOCK, &h, body, n, now, fx);
        }
    }
}

/* A checkpoint as of the clock that has just been closed, unless one is being stored: then only the
 * last one is worth two. */
static void save(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    bool last = l->closed == l->end_clock;
    uint32_t every = e->opt.save_every;
    bool due = (every > 0 && l->closed % every == 0) ||
               (l->closed == l->barrier && l->barrier != l->stage.barrier);
    if (every == 0 && l->barrier <= l->closed && l->save == 0 && e->opt.save_ns > 0 &&
        now.ns - l->save_at.ns >= e->opt.save_ns) {
        /* Nobody can have begun this clock. */
        l->barrier = l->closed + e->driver_slack + 1;
    }
    if (!last && (!due || l->save != 0)) {
        return;
    }
    l->save = l->closed + 1;
    l->save_at = now;
    l->stage.written = false;
    memset(l->stored, 0, e->n_execs + e->n_shards);
    l->n_stored = 0;
    l->driver_bytes.n = 0;
    ru_app_put(&l->driver_bytes, l->last, sizeof l->last);
    if (l->driver != NULL) {
        ru_app_call_drive_save(e->opt.ops, l->driver, &l->driver_bytes);
    }
    if (l->driver_bytes.full) {
        rui_engine_fail(
            e, RU_E_MEM,
            "there is no memory to save the driver, or the app wrote it without ru_app_put", now,
            fx);
    }
}

/* Sums in the order of executors, then rounds. */
static void close_clock(ru_engine *e)
{
    rui_lead *l = &e->lead;
    rui_backup_close(e);
    const double *at = l->sums + l->closed % e->window * e->n_execs * e->sums_n;
    memset(l->last, 0, sizeof l->last);
    for (int64_t i = 0; i < e->n_execs * e->sums_n; i++) {
        l->last[i % RU_APP_SUMS_MAX] += at[i];
    }
    l->closed++;
}

void rui_lead_advance(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    /* After a loss, changes that are sent again to rebuilt shards come before the clock closes. */
    while (!l->reading && !l->driving && !l->adopt && !e->ended && l->closed < l->end_clock &&
           l->all_resent >= e->fence && rui_stage_may_close(e) && rui_backup_may_close(e)) {
        close_clock(e);
        rui_share_closed(e, now, fx);
        rui_stage_closed(e, now, fx);
        save(e, now, fx);
        rui_lead_tell(e, (ru_node_id){0}, now, fx);
        drive_begin(e, true, now, fx);
        if (l->driving) {
            return;
        }
    }
}

/* The last checkpoint is valid, and the last clock is reported. */
static void end(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    if (l->closed >= l->end_clock && rui_stage_safe(e, l->closed) && !l->driving && l->save == 0 &&
        e->saved.generation == e->generation && e->saved.clock == l->closed && !l->ended) {
        l->ended = true;
        rui_share_end(e, now);
        rui_stage_end(e, now);
        rui_lead_tell(e, (ru_node_id){0}, now, fx);
    }
}

/* The checkpoint under way becomes valid when all is stored, and its clock is committed. */
static void validate(ru_engine *e)
{
    rui_lead *l = &e->lead;
    uint32_t objects = e->n_execs + e->n_shards;
    if (l->save == 0 || l->n_stored < objects || l->stage.written ||
        !rui_stage_safe(e, l->save - 1)) {
        return;
    }
    l->stage.written = true;
    e->opt.device->write(e->opt.device_self, (ru_engine_ckpt){e->generation, l->save - 1}, objects,
                         l->driver_bytes.p, l->driver_bytes.n);
}

void rui_lead_look(ru_engine *e, ru_time now, ru_effects *fx)
{
    if (e->lead.on) {
        validate(e);
        rui_lead_advance(e, now, fx);
        end(e, now, fx);
    }
}

void rui_lead_fetched(ru_engine *e, ru_time now, ru_effects *fx)
{
    if (e->lead.on && e->lead.driving) {
        drive(e, now, fx);
        rui_lead_advance(e, now, fx);
        end(e, now, fx);
    }
}

static void hear_done(ru_engine *e, const rui_engine_head *h, const void *body, int64_t bytes,
                      ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    uint32_t k = h->executor;
    if (l->adopt || k >= e->n_execs || bytes != e->sums_n * (int64_t)sizeof(double) ||
        h->clock != l->done[k] || h->clock >= l->closed + e->window) {
        return; /* told before, or its predecessor is told again first */
    }
    memcpy(l->sums + (h->clock % e->window * e->n_execs + k) * e->sums_n, body, (size_t)bytes);
    l->done[k]++;
    rui_share_heard(e, h);
    rui_stage_heard(e, h);
    l->cpu_ns[k] = l->cpu_ns[k] == 0 ? h->cpu_ns : (3 * l->cpu_ns[k] + h->cpu_ns) / 4;
    rui_lead_advance(e, now, fx);
}

/* -- checkpoints ---------------------------------------------------------------------------------
 */

static void hear_saved(ru_engine *e, const rui_engine_head *h)
{
    rui_lead *l = &e->lead;
    uint32_t objects = e->n_execs + e->n_shards;
    if (l->save == 0 || h->clock != l->save - 1 || h->executor >= objects ||
        l->stored[h->executor]) {
        return;
    }
    l->stored[h->executor] = 1;
    l->save_bytes += h->bytes;
    l->n_stored++;
    validate(e);
}

void rui_lead_written(ru_engine *e, ru_engine_ckpt at, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    if (!l->on || at.generation != e->generation || l->save != at.clock + 1) {
        return;
    }
    l->save = 0;
    e->saved = at;
    ru_member_status_set(e->opt.member, &e->saved, sizeof e->saved, false, now, fx);
    rui_engine_news(e,
                    &(ru_engine_news){.kind = RU_ENGINE_SAVED,
                                      .clock = at.clock,
                                      .ckpt = at,
                                      .bytes = l->save_bytes,
                                      .took_ns = now.ns - l->save_at.ns},
                    now);
    l->save_bytes = 0;
    end(e, now, fx);
    rui_lead_tell(e, (ru_node_id){0}, now, fx);
}

void ru_engine_written(ru_engine *e, ru_engine_ckpt at, uint32_t object, ru_status st,
                       const char *why, ru_time now, ru_effects *fx)
{
    if (e->ended || at.generation != e->generation) {
        return;
    }
    if (st != RU_OK) {
        rui_engine_fail(e, st, why, now, fx);
    } else if (object == e->n_execs + e->n_shards) {
        rui_lead_written(e, at, now, fx);
    } else {
        rui_engine_head h = {.executor = object, .clock = at.clock};
        h.bytes = object < e->n_execs ? 0 : ru_ps_shard_bytes(e->ps, object - e->n_execs);
        rui_engine_send(e, ru_member_leader(e->opt.member), RUI_ENGINE_SAVED, &h, NULL, 0, now, fx);
    }
}

/* -- generations ---------------------------------------------------------------------------------
 */

void rui_lead_read(ru_engine *e, const void *bytes, int64_t n, ru_status st, const char *why,
                   ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    ru_err err = {0};
    (void)snprintf(err.text, sizeof err.text, "%s", why != NULL ? why : "");
    if (!l->reading || e->ended) {
        return;
    }
    l->reading = false;
    if (st == RU_OK && n < (int64_t)sizeof l->last) {
        st = RU_FAIL(&err, RU_E_DATA, "the driver's state in the checkpoint is too short");
    }
    if (st == RU_OK) {
        memcpy(l->last, bytes, sizeof l->last);
        if (l->driver != NULL) {
            st = ru_app_call_drive_load(e->opt.ops, l->driver,
                                        (const uint8_t *)bytes + sizeof l->last,
                                        n - (int64_t)sizeof l->last, &err);
        }
    }
    if (st != RU_OK) {
        rui_engine_fail(e, st, err.text, now, fx);
        return;
    }
    if (l->closed >= e->opt.clocks) {
        l->ended = true; /* its last leader died before it could say so */
    }
    rui_lead_tell(e, (ru_node_id){0}, now, fx);
    drive_begin(e, false, now, fx);
}

void rui_lead_begin(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    l->closed = e->base.clock;
    l->end_clock = e->opt.clocks;
    l->save = 0;
    l->save_at = now;
    l->barrier = 0;
    l->adopt = l->check = false;
    memset(l->rebuilt, 0, (e->n_execs + e->n_shards) * sizeof *l->rebuilt);
    if (rui_count_is(e)) {
        rui_count_begin(e);
    }
    memset(l->lost, 0, e->n_execs + e->n_shards);
    l->save_bytes = 0;
    rui_share_reset(e, now);
    rui_backup_begin(e);
    rui_stage_begin(e);
    l->driving = false;
    l->args_clock = RUI_ENGINE_NONE;
    ru_ps_forget(e->ps, e->n_execs);
    for (uint32_t k = 0; k < e->n_execs; k++) {
        l->done[k] = l->closed;
        l->prepared[k] = 0;
    }
    if (!rui_count_is(e)) { /* else the driver goes on */
        close_driver(e);
    }
    ru_err err = {0};
    if (e->opt.ops->drive_open != NULL && l->driver == NULL &&
        ru_app_call_drive_open(e->opt.ops, e->opt.app, &l->driver, &err) != RU_OK) {
        rui_engine_fail(e, err.status, err.text, now, fx);
        return;
    }
    l->reading = e->base.generation > 0 && !rui_count_is(e);
    if (rui_copy_restores(e)) {
        const ru_app_bytes *b = rui_stage_driver(e);
        rui_lead_read(e, b->p, b->n, RU_OK, NULL, now, fx);
    } else if (l->reading) {
        e->opt.device->read(e->opt.device_self, e->base, e->n_execs + e->n_shards, e->generation);
    } else {
        drive_begin(e, false, now, fx);
    }
}

/* The checkpoint under way lacks what was lost. That of the end is made again; before the last
 * clock of all executors may have gone on, and the job ends a clock later. */
static void save_again(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    bool is = e->saved.generation == e->generation && e->saved.clock == l->closed;
    l->save = 0;
    if (l->closed < l->end_clock || is) {
        return;
    }
    if (l->end_clock < e->opt.clocks) {
        uint32_t at = l->closed + e->driver_slack + 1;
        l->end_clock = l->barrier = at < e->opt.clocks ? at : e->opt.clocks;
    } else {
        save(e, now, fx);
    }
}

void rui_lead_lost(ru_engine *e, bool adopt, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    if (adopt) {
        l->adopt = true;
        l->adopt_from = e->closed;
        l->end_clock = e->opt.clocks;
        l->save_at = now;
        l->barrier = 0;
        l->save_bytes = 0;
        l->driving = l->reading = l->ended = false;
        l->args_clock = RUI_ENGINE_NONE;
        memset(l->last, 0, sizeof l->last);
        ru_ps_forget(e->ps, e->n_execs);
        l->save = 0;
        return;
    }
    for (uint32_t k = 0; k < e->n_execs; k++) {
        l->done[k] = l->closed; /* told again when its changes are in what was rebuilt */
    }
    save_again(e, now, fx);
}

void rui_lead_go(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    l->adopt = false;
    l->closed = l->adopt_from;
    for (uint32_t k = 0; k < e->n_execs; k++) {
        l->done[k] = l->closed;
    }
    save_again(e, now, fx);
    rui_lead_tell(e, (ru_node_id){0}, now, fx);
    end(e, now, fx);
}

void rui_lead_stop(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    uint32_t at = l->closed + e->driver_slack + 1; /* nobody can have begun this clock */
    if (!l->adopt && at < l->end_clock) {
        l->end_clock = l->barrier = at;
        rui_lead_tell(e, (ru_node_id){0}, now, fx);
    }
}

void rui_lead_heard(ru_engine *e, ru_node_id from, uint32_t what, const rui_engine_head *h,
                    const void *body, int64_t body_bytes, ru_time now, ru_effects *fx)
{
    switch (what) {
    case RUI_ENGINE_DONE:
        hear_done(e, h, body, body_bytes, now, fx);
        break;
    case RUI_ENGINE_SAVED:
        hear_saved(e, h);
        break;
    case RUI_ENGINE_REBUILT:
        rui_recover_rebuilt(e, h, body, body_bytes, now);
        break;
    case RUI_ENGINE_READY:
        rui_map_ready(e, from, h, body, body_bytes, now, fx);
        break;
    case RUI_ENGINE_COPIED:
        rui_stage_copied(e, from, h->clock, now, fx);
        break;
    case RUI_ENGINE_PREPARED:
        rui_map_prepared(e, from, h->executor, now, fx);
        break;
    default:
        break;
    }
}
