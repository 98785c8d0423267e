/* The leader of a job with members whose machines may be taken away: which clocks are committed,
 * and which stage it is.
 *
 *   stage 1  shards on reliable members            executors everywhere
 *   stage 2  shards on some transient members, copies on reliable ones; executors everywhere
 *   stage 3  as 2, and no executors on reliable members
 *
 * Copies of all objects are kept as of the same clock in each stage (engine_copy.c): a clock is
 * committed when every keeper has it. At most BEHIND clocks are closed and not committed, so as
 * many roll back when members die without notice. The objective is told, and a checkpoint valid,
 * when its clock is committed. When a keeper dies all begin with the last checkpoint.
 *
 * Source: harlap-2017 sec 3. */
#include <string.h>

#include "train/app/call.h"
#include "train/engine/engine_impl.h"

/* Machines that vanish together are found out one after another: those that have missed five beats
 * when the first is certainly dead are waited for. Those that fell silent later may live; if they
 * do not, the next generation begins no later than it would with waiting. */
static const int64_t SILENT_NS = 500000000, WAIT_NS = 250000000;

static bool on(const ru_engine *e)
{
    return e->copies.n_keepers > 0;
}

ru_status rui_stage_open(ru_engine *e, ru_err *err)
{
    rui_stager *s = &e->lead.stage;
    s->have = RU_NEW(e->arena, uint64_t, RU_MEMBERS_MAX);
    s->every = 1;
    s->behind = 2;
    s->copy = RUI_ENGINE_NONE;
    return s->have != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for the stages of a job");
}

static void drop_told(ru_engine *e)
{
    rui_stager *s = &e->lead.stage;
    while (s->told != NULL) {
        rui_told *t = s->told;
        s->told = t->next;
        ru_bufs_put(e->bufs, t);
    }
    s->told_last = NULL;
}

void rui_stage_close(ru_engine *e)
{
    drop_told(e);
    for (uint32_t k = 0; k < RUI_STAGE_DRIVERS; k++) {
        ru_app_bytes_fini(&e->lead.stage.driver[k]);
    }
}

/* -- the driver of clocks that are copied ---------------------------------------------------------
 */

/* The one of a clock, or one that is not needed any more. */
static uint32_t driver_at(const ru_engine *e, uint32_t clock)
{
    const rui_stager *s = &e->lead.stage;
    uint32_t spare = 0;
    for (uint32_t k = 0; k < RUI_STAGE_DRIVERS; k++) {
        if (s->driver[k].n > 0 && s->driver_clock[k] == clock) {
            return k;
        }
        bool used =
            s->driver[k].n > 0 && s->driver_clock[k] >= s->committed && s->driver_clock[k] < clock;
        spare = used ? spare : k;
    }
    return spare;
}

static bool has_driver(const ru_engine *e, uint32_t clock)
{
    const rui_stager *s = &e->lead.stage;
    uint32_t k = driver_at(e, clock);
    return s->driver[k].n > 0 && s->driver_clock[k] == clock;
}

const ru_app_bytes *rui_stage_driver(const ru_engine *e)
{
    RU_CHECK(has_driver(e, e->base.clock)); /* rui_stage_may */
    return &e->lead.stage.driver[driver_at(e, e->base.clock)];
}

static void keep_driver(ru_engine *e, ru_time now, ru_effects *fx)
{
    const rui_lead *l = &e->lead;
    uint32_t k = driver_at(e, l->closed);
    ru_app_bytes *to = &e->lead.stage.driver[k];
    to->n = 0;
    ru_app_put(to, l->last, sizeof l->last);
    if (l->driver != NULL) {
        ru_app_call_drive_save(e->opt.ops, l->driver, to);
    }
    e->lead.stage.driver_clock[k] = l->closed;
    if (to->full) {
        rui_engine_fail(
            e, RU_E_MEM,
            "there is no memory to save the driver, or the app wrote it without ru_app_put", now,
            fx);
    }
}

/* -- committed clocks ----------------------------------------------------------------------------
 */

void rui_stage_begin(ru_engine *e)
{
    rui_stager *s = &e->lead.stage;
    drop_told(e);
    s->committed = e->base.clock;
    s->safe = rui_copy_restores(e);
    s->on = on(e);
    s->copy = RUI_ENGINE_NONE;
    s->barrier = 0;
    s->written = false;
    memset(s->have, 0, RU_MEMBERS_MAX * sizeof *s->have);
}

bool rui_stage_safe(const ru_engine *e, uint32_t clock)
{
    return !on(e) || clock <= e->lead.stage.committed;
}

bool rui_stage_may_close(const ru_engine *e)
{
    const rui_stager *s = &e->lead.stage;
    return !on(e) || e->lead.closed - s->committed < s->behind * (s->every + e->driver_slack);
}

void rui_stage_closed(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    rui_stager *s = &l->stage;
    if (!on(e)) {
        return;
    }
    uint32_t last = s->copy != RUI_ENGINE_NONE ? s->copy : s->committed;
    bool due = l->closed - last >= s->every;
    rui_stage_measure(e, now);
    bool still = l->closed == l->barrier || l->closed == l->end_clock ||
                 (e->opt.save_every > 0 && l->closed % e->opt.save_every == 0);
    if (still || (due && e->driver_slack == 0)) {
        s->copy = l->closed;
        keep_driver(e, now, fx);
    } else if (due && l->barrier <= l->closed) { /* nobody can have begun this clock */
        s->barrier = l->barrier = l->closed + e->driver_slack + 1;
    }
    if (rui_stage_pays(e)) {
        e->lead.plan = true;
        ru_fx_timer(fx, RUI_ENGINE_LOOK, now);
    }
}

void rui_stage_tell(ru_engine *e, const ru_engine_news *n, ru_time now)
{
    rui_stager *s = &e->lead.stage;
    ru_engine_news direct = *n;
    if (rui_stage_safe(e, n->clock + 1)) {
        rui_engine_news(e, &direct, now);
        return;
    }
    int64_t floats = 0;
    const ru_app_shape *shape = e->opt.shape;
    for (uint32_t t = 0; t < shape->n_tables; t++) {
        floats += n->told[t] != NULL ? shape->table[t].rows * shape->table[t].width : 0;
    }
    rui_told *x = ru_bufs_need(e->bufs, (int64_t)sizeof *x + 4 * floats);
    RU_CHECK(x != NULL);
    *x = (rui_told){.news = *n};
    memcpy(x->sums, n->sums, sizeof x->sums);
    float *at = (float *)(void *)(x + 1);
    for (uint32_t t = 0; t < shape->n_tables; t++) {
        int64_t rows = n->told[t] != NULL ? shape->table[t].rows * shape->table[t].width : 0;
        x->told[t] = n->told[t] != NULL ? at : NULL;
        if (rows > 0) {
            memcpy(at, n->told[t], (size_t)rows * 4);
            at += rows;
        }
    }
    x->news.sums = x->sums;
    x->news.told = x->told;
    if (s->told_last == NULL) {
        s->told = x;
    } else {
        s->told_last->next = x;
    }
    s->told_last = x;
}

static void tell_safe(ru_engine *e, ru_time now)
{
    rui_stager *s = &e->lead.stage;
    while (s->told != NULL && rui_stage_safe(e, s->told->news.clock + 1)) {
        rui_told *t = s->told;
        s->told = t->next;
        s->told_last = s->told == NULL ? NULL : s->told_last;
        rui_engine_news(e, &t->news, now);
        ru_bufs_put(e->bufs, t);
    }
}

/* The newest clock that all keepers have. Not while a view is proposed: it may begin a generation
 * with the one that is committed now. */
void rui_stage_look(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_stager *s = &e->lead.stage;
    ru_member_facts f;
    uint64_t all = UINT64_MAX;
    if (on(e) && !s->on) { /* the first transient member has come */
        s->on = true;
        s->committed = e->lead.closed;
    }
    ru_member_facts_get(e->opt.member, &f);
    for (uint32_t i = 0; i < e->copies.n_keepers; i++) {
        all &= s->have[i];
    }
    if (!on(e) || all == 0 || f.pending || !ru_member_leads(e->opt.member)) {
        return;
    }
    uint32_t more = 64 - (uint32_t)__builtin_clzll(all);
    for (uint32_t i = 0; i < e->copies.n_keepers; i++) {
        s->have[i] = more < 64 ? s->have[i] >> more : 0;
    }
    s->committed += more;
    s->safe = true;
    rui_copy_commit(e, s->committed);
    tell_safe(e, now);
    rui_lead_look(e, now, fx);
}

void rui_stage_copied(ru_engine *e, ru_node_id from, uint32_t clock, ru_time now, ru_effects *fx)
{
    rui_stager *s = &e->lead.stage;
    if (clock <= s->committed || clock - s->committed > 64 || clock > e->lead.closed) {
        return;
    }
    for (uint32_t i = 0; i < e->copies.n_keepers; i++) {
        s->have[i] |=
            ru_node_is(e->copies.keeper[i], from) ? UINT64_C(1) << (clock - s->committed - 1) : 0;
    }
    rui_stage_look(e, now, fx);
}

/* -- when members die -----------------------------------------------------------------------------
 */

bool rui_stage_waits(ru_engine *e, const ru_node_id *nodes, uint32_t n, uint32_t n_dead,
                     ru_time now)
{
    rui_stager *s = &e->lead.stage;
    bool more = n_dead > s->dead, silent = false;
    for (uint32_t i = 0; i < n && !silent; i++) {
        silent = !ru_node_is(nodes[i], e->opt.self) &&
                 ru_member_silent_ns(e->opt.member, nodes[i], now) > SILENT_NS;
    }
    s->dead_at = s->dead == 0 ? now : s->dead_at;
    s->dead = n_dead;
    return more || (silent && ru_time_since(now, s->dead_at) < WAIT_NS);
}

bool rui_stage_broken(const ru_engine *e, const ru_node_id *nodes, uint32_t n)
{
    for (uint32_t i = 0; i < e->copies.n_keepers; i++) {
        if (!rui_among(nodes, n, e->copies.keeper[i])) {
            return true;
        }
    }
    return false;
}

bool rui_stage_may(const ru_engine *e, const ru_node_id *nodes, uint32_t n)
{
    const rui_lead *l = &e->lead;
    return on(e) && l->stage.safe && !l->renew && !l->adopt && !l->stalled &&
           has_driver(e, l->stage.committed) && !rui_stage_broken(e, nodes, n) &&
           ru_member_view(e->opt.member)->epoch == e->epoch;
}
