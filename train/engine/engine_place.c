/* The leader of a job with members whose machines may be taken away: which stage it is, and who
 * holds what, by plan/crew/stage and what is measured.
 *
 * With each DONE a process says how many bytes its executors have read and changed, how long it
 * computed, and the rate of its link. The stage is chosen anew when members come, leave or die, and
 * when another one is predicted to make the clock a tenth shorter. */
#include <math.h>
#include <string.h>

#include "train/engine/engine_impl.h"

enum {
    LOOK_CLOCKS = 8, /* between two questions whether another stage pays */
    LEAST_CLOCKS = 4,
    NOTICE_S = 120,
    EVERY_MAX = 16,
};
#define SHORTER       0.9
#define LINK_BYTES_S  1.25e8
#define SERVE_BYTES_S 1e9
#define COPIES_SHARE  0.25 /* of a clock in which a keeper's link carries states of executors */
#define NOTICE_USED   0.5  /* of the time until an eviction; the rest is for what moves */

/* -- measured ------------------------------------------------------------------------------------
 */

void rui_stage_works(ru_engine *e, bool begins, ru_time now)
{
    RU_CHECK(begins || e->n_works > 0);
    if (begins && e->n_works++ == 0) {
        e->works_since = now;
    } else if (!begins && --e->n_works == 0) {
        e->work_ns += ru_time_since(now, e->works_since);
    }
}

void rui_stage_facts(ru_engine *e, rui_engine_head *h)
{
    const ru_ps_stats *s = ru_ps_stats_of(e->ps);
    ru_chan_stats c;
    if (e->copies.n_keepers == 0) {
        return;
    }
    ru_chan_stats_get(e->opt.chan, &c);
    h->read_bytes = s->read_bytes - e->told_read_bytes;
    h->write_bytes = s->write_bytes - e->told_write_bytes;
    h->work_ns = e->work_ns - e->told_work_ns;
    h->link_bytes_per_s = c.rate_bytes_per_s < 1e15 ? (int64_t)c.rate_bytes_per_s : 0;
    e->told_read_bytes = s->read_bytes;
    e->told_write_bytes = s->write_bytes;
    e->told_work_ns = e->work_ns;
}

void rui_stage_heard(ru_engine *e, const rui_engine_head *h)
{
    rui_stager *s = &e->lead.stage;
    double link = (double)h->link_bytes_per_s;
    s->sum_read += (double)h->read_bytes;
    s->sum_write += (double)h->write_bytes;
    s->sum_work += 1e-9 * (double)(h->work_ns > 0 ? h->work_ns : h->cpu_ns);
    s->link_bytes_per_s = link > s->link_bytes_per_s ? link : s->link_bytes_per_s;
}

/* Members that compute; at least 1. Counted once in a view. */
static uint32_t workers_of(ru_engine *e)
{
    const ru_view *v = ru_member_view(e->opt.member);
    uint32_t n = e->lead.stage.workers;
    for (uint32_t i = 0; e->lead.stage.workers == 0 && i < v->n; i++) {
        n += rui_among(e->holder, e->n_execs, v->at[i].node) ? 1 : 0;
    }
    e->lead.stage.workers = n > 0 ? n : 1;
    return e->lead.stage.workers;
}

static double lately(double before, double now, uint32_t n)
{
    return n == 0 ? now : 0.75 * before + 0.25 * now;
}

void rui_stage_measure(ru_engine *e, ru_time now)
{
    rui_stager *s = &e->lead.stage;
    if (s->closed_at.ns > 0) { /* the first one began with other things */
        double workers = workers_of(e);
        s->read_bytes = lately(s->read_bytes, s->sum_read / workers, s->n_measured);
        s->write_bytes = lately(s->write_bytes, s->sum_write / workers, s->n_measured);
        s->work_s = lately(s->work_s, s->sum_work, s->n_measured);
        s->clock_s =
            lately(s->clock_s, 1e-9 * (double)ru_time_since(now, s->closed_at), s->n_measured);
        s->n_measured++;
    }
    s->closed_at = now;
    s->sum_read = s->sum_write = s->sum_work = 0;
}

/* -- the question --------------------------------------------------------------------------------
 */

/* Of members, or of those who want to be. */
static ru_tier tier_of(const ru_engine *e, ru_node_id node)
{
    ru_member_wanted w;
    const ru_view *v = ru_member_view(e->opt.member);
    ru_member_wanted_get(e->opt.member, &w);
    const ru_member_info *m = ru_member_among(w.at, w.n, node);
    m = m != NULL ? m : ru_member_among(v->at, v->n, node);
    return m != NULL ? m->tier : RU_TIER_RELIABLE;
}

uint32_t rui_stage_keepers(ru_engine *e, const ru_node_id *nodes, uint32_t n, bool fresh)
{
    uint32_t reliable = 0, method = e->opt.stages.method;
    if (!fresh && e->copies.n_keepers > 0) {
        return e->copies.n_keepers; /* they are the first ones, and none is gone */
    }
    if (method == RU_ENGINE_STAGES_OFF || method == RU_ENGINE_STAGES + RU_STAGE_ALL ||
        e->driver_slack > RU_ENGINE_COPIES_SLACK_MAX) {
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        reliable += tier_of(e, nodes[i]) == RU_TIER_RELIABLE ? 1 : 0;
    }
    uint32_t objects = e->n_execs + e->n_shards;
    return reliable == n ? 0 : reliable < objects ? reliable : objects;
}

/* Machines as plan/crew/stage counts them: reliable ones first, without those that leave. */
static const ru_node_id *machines(ru_engine *e, const ru_node_id *nodes, uint32_t n,
                                  ru_stage_in *in)
{
    rui_lead *l = &e->lead;
    ru_node_id *m = RU_NEW(&l->plan_scratch, ru_node_id, n);
    uint8_t *tier = RU_NEW(&l->plan_scratch, uint8_t, n);
    RU_CHECK(m != NULL && tier != NULL);
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        tier[i] = (uint8_t)tier_of(e, nodes[i]);
    }
    for (uint32_t t = RU_TIER_RELIABLE; t < RU_TIERS; t++) {
        for (uint32_t i = 0; i < n; i++) {
            if (tier[i] == t && !rui_among(l->leaver, l->n_leavers, nodes[i])) {
                m[k++] = nodes[i];
                in->reliable += t == RU_TIER_RELIABLE ? 1 : 0;
                in->transient += t == RU_TIER_TRANSIENT ? 1 : 0;
            }
        }
    }
    return m;
}

static const int64_t *places(ru_engine *e, const ru_node_id *m, uint32_t n, const ru_node_id *now,
                             uint32_t n_objects)
{
    int64_t *at = RU_NEW(&e->lead.plan_scratch, int64_t, n_objects);
    RU_CHECK(at != NULL);
    for (uint32_t o = 0; o < n_objects; o++) {
        at[o] = -1;
        for (uint32_t i = 0; i < n && at[o] < 0; i++) {
            at[o] = ru_node_is(m[i], now[o]) ? (int64_t)i : -1;
        }
    }
    return at;
}

/* The mean state of an executor that this process keeps. */
static double state_bytes(const ru_engine *e)
{
    double bytes = 0;
    uint32_t kept = 0;
    for (uint32_t k = 0; k < e->n_execs; k++) {
        const rui_copy *c = &e->copies.of[k];
        bytes += c->base != NULL ? (double)c->base_bytes : 0;
        kept += c->base != NULL ? 1 : 0;
    }
    return kept > 0 ? bytes / kept : 0;
}

/* The job as measured. Before the first clock: without work and traffic. */
static ru_backup_job job_of(const ru_engine *e)
{
    const rui_stager *s = &e->lead.stage;
    ru_backup_job j = {.link_bytes_per_s =
                           s->link_bytes_per_s > 0 ? s->link_bytes_per_s : LINK_BYTES_S,
                       .serve_bytes_per_s = SERVE_BYTES_S,
                       .clocks_max = 1};
    for (uint32_t k = 0; k < e->n_shards; k++) {
        j.model_bytes += (double)ru_ps_shard_bytes(e->ps, k);
    }
    j.read_bytes = s->read_bytes;
    j.write_bytes = s->write_bytes;
    j.touched = fmin(1, j.write_bytes / fmax(1, j.model_bytes));
    j.work_s = s->work_s;
    return j;
}

static ru_stage_in question(ru_engine *e, const ru_node_id *nodes, uint32_t n,
                            const ru_node_id *now, const ru_node_id **m)
{
    const ru_engine_stages *o = &e->opt.stages;
    ru_stage_in in = {.partitions = e->n_shards,
                      .blocks = e->n_execs,
                      .n_holder = e->n_shards,
                      .n_owner = e->n_execs,
                      .method = (ru_stage_method)(o->method - RU_ENGINE_STAGES),
                      .notice_s = o->notice_ns > 0 ? 1e-9 * (double)o->notice_ns : NOTICE_S,
                      .ratio_two = o->ratio_two,
                      .ratio_three = o->ratio_three};
    *m = machines(e, nodes, n, &in);
    in.job = job_of(e);
    in.block_bytes = state_bytes(e);
    bool needs = in.method == RU_STAGE_TWO || in.method == RU_STAGE_THREE;
    in.method = needs && in.transient == 0 ? RU_STAGE_ONE : in.method;
    in.owner = places(e, *m, in.reliable + in.transient, now, e->n_execs);
    in.holder = places(e, *m, in.reliable + in.transient, now + e->n_execs, e->n_shards);
    return in;
}

/* How often copies are taken, and how many clocks may be without one: states of executors take at
 * most a share of the keepers' links, and what is not copied can be sent after a notice. */
static void bound(ru_engine *e, const ru_stage_in *in, const ru_stage_plan *p, ru_effects *fx)
{
    rui_stager *s = &e->lead.stage;
    uint32_t was = s->every;
    double link = in->job.link_bytes_per_s;
    double states_s = in->block_bytes * in->blocks / in->reliable / link;
    double clock_s = fmax(p->clock.clock_s, s->clock_s);
    double every = clock_s > 0 ? ceil(states_s / (COPIES_SHARE * clock_s)) : 1;
    s->every = every < 1 ? 1 : every > EVERY_MAX ? EVERY_MAX : (uint32_t)every;
    double rest = p->clock.stream_bytes / fmax(1, fmin(p->servers, in->reliable));
    /* ssp: nobody works while a clock is copied. */
    uint32_t least = e->driver_slack > 0 ? 2 * (e->driver_slack + 1) : 1;
    s->every = s->every > least ? s->every : least;
    bool two = 2 * s->every * rest <= link * in->notice_s * NOTICE_USED;
    s->behind = two && 2 * (s->every + e->driver_slack) < RUI_COPY_CLOCKS - 4 ? 2 : 1;
    if (s->every > least && s->every != was) {
        ru_fx_log(fx, RU_LOG_WARN,
                  "the states of executors have %.3g MB, which take %.3g s to copy: only every "
                  "%u clocks",
                  1e-6 * in->block_bytes * in->blocks, states_s, s->every);
    }
}

bool rui_stage_place(ru_engine *e, const ru_node_id *nodes, uint32_t n, ru_node_id *to, ru_time now,
                     ru_effects *fx)
{
    rui_lead *l = &e->lead;
    const ru_node_id *m;
    ru_stage_plan p;
    ru_err err;
    if (rui_stage_keepers(e, nodes, n, false) == 0) {
        return false;
    }
    ru_arena_rewind(&l->plan_out, (ru_arena_mark){0});
    ru_arena_rewind(&l->plan_scratch, (ru_arena_mark){0});
    const ru_stage_in in = question(e, nodes, n, to, &m);
    if (in.reliable == 0) {
        return false; /* all who keep copies leave */
    }
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
    bound(e, &in, &p, fx);
    if (e->opt.staged != NULL) {
        e->opt.staged(e->opt.news_self, &in, l->stage.clock_s, now);
    }
    if (p.stage != l->stage.stage || p.servers != l->stage.servers) {
        ru_fx_log(fx, RU_LOG_INFO,
                  "stage %u: %u members serve, of %u reliable and %u transient ones; a clock takes "
                  "%.1f ms, predicted",
                  p.stage, p.servers, in.reliable, in.transient, 1e3 * p.clock.clock_s);
    }
    l->stage.stage = p.stage;
    l->stage.servers = p.servers;
    l->stage.n_measured = 0;
    l->stage.closed_at = (ru_time){0};
    return true;
}

void rui_stage_end(ru_engine *e, ru_time now)
{
    if (e->opt.staged != NULL && e->copies.n_keepers > 0) {
        e->opt.staged(e->opt.news_self, NULL, e->lead.stage.clock_s, now);
    }
}

bool rui_stage_pays(ru_engine *e)
{
    rui_lead *l = &e->lead;
    const rui_stager *s = &l->stage;
    if (e->copies.n_keepers == 0 || s->stage == 0 || s->n_measured < LEAST_CLOCKS ||
        s->n_measured % LOOK_CLOCKS != LEAST_CLOCKS || l->planned) {
        return false;
    }
    ru_arena_rewind(&l->plan_out, (ru_arena_mark){0});
    ru_arena_rewind(&l->plan_scratch, (ru_arena_mark){0});
    ru_node_id nodes[RU_MEMBERS_MAX];
    uint32_t n = rui_members(e, nodes);
    const ru_node_id *m;
    ru_stage_plan p;
    ru_err err;
    const ru_stage_in in = question(e, nodes, n, e->holder, &m);
    if (in.reliable == 0 || ru_plan_stage(&in, &l->plan_out, &l->plan_scratch, &p, &err) != RU_OK ||
        (p.stage == s->stage && p.servers == s->servers)) {
        return false;
    }
    uint32_t servers = s->servers < e->n_shards ? s->servers : e->n_shards;
    uint32_t most = s->stage == 1 ? in.reliable : in.transient;
    if (servers < 1 || servers > most || (s->stage == 3 && in.transient == 0)) {
        return true;
    }
    return p.clock.clock_s < SHORTER * ru_stage_clock(&in, s->stage, servers, 0).clock_s;
}
