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

#include "train/app/engine_impl.h"

enum { BEHIND = 2 };

static bool on(const ru_engine *e)
{
    return e->copies.n_keepers > 0;
}

ru_status rui_stage_open(ru_engine *e, ru_err *err)
{
    rui_stager *s = &e->lead.stage;
    s->have = RU_NEW(e->arena, uint64_t, RU_MEMBERS_MAX);
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

static ru_app_bytes *driver_at(ru_engine *e, uint32_t clock)
{
    return &e->lead.stage.driver[clock % RUI_STAGE_DRIVERS];
}

static bool has_driver(const ru_engine *e, uint32_t clock)
{
    const rui_stager *s = &e->lead.stage;
    uint32_t slot = clock % RUI_STAGE_DRIVERS;
    return s->driver[slot].n > 0 && s->driver_clock[slot] == clock;
}

const ru_app_bytes *rui_stage_driver(const ru_engine *e)
{
    RU_CHECK(has_driver(e, e->base.clock)); /* rui_stage_may */
    return &e->lead.stage.driver[e->base.clock % RUI_STAGE_DRIVERS];
}

static void keep_driver(ru_engine *e, ru_time now, ru_effects *fx)
{
    const rui_lead *l = &e->lead;
    ru_app_bytes *to = driver_at(e, l->closed);
    to->n = 0;
    ru_app_put(to, l->last, sizeof l->last);
    if (l->driver != NULL && e->opt.ops->drive_save != NULL) {
        e->opt.ops->drive_save(l->driver, to);
    }
    e->lead.stage.driver_clock[l->closed % RUI_STAGE_DRIVERS] = l->closed;
    if (to->full) {
        rui_engine_fail(e, RU_E_MEM, "there is no memory to save the driver", now, fx);
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
    s->written = false;
    memset(s->have, 0, RU_MEMBERS_MAX * sizeof *s->have);
}

bool rui_stage_safe(const ru_engine *e, uint32_t clock)
{
    return !on(e) || clock <= e->lead.stage.committed;
}

bool rui_stage_may_close(const ru_engine *e)
{
    return !on(e) || e->lead.closed - e->lead.stage.committed < BEHIND;
}

void rui_stage_closed(ru_engine *e, ru_time now, ru_effects *fx)
{
    if (on(e)) {
        e->lead.stage.copy = e->lead.closed;
        keep_driver(e, now, fx);
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

static bool among(const ru_node_id *nodes, uint32_t n, ru_node_id x)
{
    for (uint32_t i = 0; i < n; i++) {
        if (ru_node_is(nodes[i], x)) {
            return true;
        }
    }
    return false;
}

bool rui_stage_broken(const ru_engine *e, const ru_node_id *nodes, uint32_t n)
{
    for (uint32_t i = 0; i < e->copies.n_keepers; i++) {
        if (!among(nodes, n, e->copies.keeper[i])) {
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

/* -- who holds what -------------------------------------------------------------------------------
 */

/* Of members, or of those who want to be. */
static ru_tier tier_of(ru_engine *e, ru_node_id node)
{
    ru_member_wanted w;
    const ru_view *v = ru_member_view(e->opt.member);
    ru_member_wanted_get(e->opt.member, &w);
    for (uint32_t i = 0; i < w.n; i++) {
        if (ru_node_is(w.at[i].node, node)) {
            return w.at[i].tier;
        }
    }
    for (uint32_t i = 0; i < v->n; i++) {
        if (ru_node_is(v->at[i].node, node)) {
            return v->at[i].tier;
        }
    }
    return RU_TIER_RELIABLE;
}

uint32_t rui_stage_keepers(ru_engine *e, const ru_node_id *nodes, uint32_t n, bool fresh)
{
    uint32_t reliable = 0, method = e->opt.stages;
    if (!fresh && on(e)) {
        return e->copies.n_keepers; /* they are the first ones, and none is gone */
    }
    if (method == RU_ENGINE_STAGES_OFF || method == RU_ENGINE_STAGES + RU_STAGE_ALL ||
        e->opt.driver != RU_ENGINE_BSP) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        reliable += tier_of(e, nodes[i]) == RU_TIER_RELIABLE ? 1 : 0;
    }
    return reliable == n ? 0 : reliable;
}

/* Machines as plan/stage counts them: reliable ones first, without those that leave. */
static ru_node_id *machines(ru_engine *e, const ru_node_id *nodes, uint32_t n, ru_stage_in *in)
{
    rui_lead *l = &e->lead;
    ru_node_id *m = RU_NEW(&l->plan_scratch, ru_node_id, n);
    RU_CHECK(m != NULL);
    uint32_t k = 0;
    for (uint32_t tier = RU_TIER_RELIABLE; tier < RU_TIERS; tier++) {
        for (uint32_t i = 0; i < n; i++) {
            if (tier_of(e, nodes[i]) == tier && !among(l->leaver, l->n_leavers, nodes[i])) {
                m[k++] = nodes[i];
                in->reliable += tier == RU_TIER_RELIABLE ? 1 : 0;
                in->transient += tier == RU_TIER_TRANSIENT ? 1 : 0;
            }
        }
    }
    return m;
}

static uint32_t *places(ru_engine *e, const ru_node_id *m, uint32_t n, const ru_node_id *now,
                        uint32_t n_objects)
{
    uint32_t *at = RU_NEW(&e->lead.plan_scratch, uint32_t, n_objects);
    RU_CHECK(at != NULL);
    for (uint32_t o = 0; o < n_objects; o++) {
        at[o] = UINT32_MAX;
        for (uint32_t i = 0; i < n && at[o] == UINT32_MAX; i++) {
            at[o] = ru_node_is(m[i], now[o]) ? i : UINT32_MAX;
        }
    }
    return at;
}

bool rui_stage_place(ru_engine *e, const ru_node_id *nodes, uint32_t n, ru_node_id *to, ru_time now,
                     ru_effects *fx)
{
    rui_lead *l = &e->lead;
    ru_stage_in in = {.partitions = e->n_shards, .blocks = e->n_execs};
    ru_stage_plan p;
    ru_err err;
    (void)now;
    if (rui_stage_keepers(e, nodes, n, false) == 0) {
        return false;
    }
    ru_arena_rewind(&l->plan_out, (ru_arena_mark){0});
    ru_arena_rewind(&l->plan_scratch, (ru_arena_mark){0});
    const ru_node_id *m = machines(e, nodes, n, &in);
    if (in.reliable == 0) {
        return false;
    }
    in.method = (ru_stage_method)(e->opt.stages - RU_ENGINE_STAGES);
    bool needs = in.method == RU_STAGE_TWO || in.method == RU_STAGE_THREE;
    in.method = needs && in.transient == 0 ? RU_STAGE_ONE : in.method;
    in.owner = places(e, m, in.reliable + in.transient, to, e->n_execs);
    in.holder = places(e, m, in.reliable + in.transient, to + e->n_execs, e->n_shards);
    in.job = (ru_backup_job){.link_bytes_per_s = 1.25e8, .serve_bytes_per_s = 2e9, .clocks_max = 1};
    ru_status st = ru_plan_stage(&in, &l->plan_out, &l->plan_scratch, &p, &err);
    st = st == RU_OK ? ru_plan_stage_check(&in, &p, &l->plan_scratch, &err) : st;
    if (st != RU_OK) {
        ru_fx_log(fx, RU_LOG_WARN, "no stage for %u reliable and %u transient members: %s",
                  in.reliable, in.transient, err.text);
        return false;
    }
    for (uint32_t k = 0; k < e->n_execs; k++) {
        to[k] = m[p.owner[k]];
    }
    for (uint32_t s = 0; s < e->n_shards; s++) {
        /* Reliable servers have the shards that they keep. */
        uint32_t at = p.stage == 1 ? (e->n_execs + s) % in.reliable : p.holder[s];
        to[e->n_execs + s] = m[at];
    }
    ru_fx_log(fx, RU_LOG_INFO, "stage %u: %u members serve, of %u reliable and %u transient ones",
              p.stage, p.servers, in.reliable, in.transient);
    return true;
}
