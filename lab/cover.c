/* What happens to a simulated job besides training: faults by chance and at chosen moments, leaves,
 * and a count of all of it. */
#include <stddef.h>

#include "lab/job_impl.h"

const char *ru_sim_seen_text(ru_sim_seen k)
{
    static const char *const texts[] = {
#define RU_X(name, text) text,
        RU_SIM_SEEN_LIST(RU_X)
#undef RU_X
    };
    RU_CHECK(k < RU_SIM_SEEN_KINDS);
    return texts[k];
}

void rui_simjob_see(rui_simjob *j, ru_sim_seen k)
{
    j->result->seen[k]++;
}

/* -- what goes on ---------------------------------------------------------------------------------
 */

bool rui_simjob_trains(const rui_simjob *j, const rui_simjob_node *n)
{
    return n->in && !n->ended && !n->process.gone && ru_sim_alive(j->sim, n->process.node);
}

static rui_simjob_node *leader_of(const rui_simjob *j)
{
    rui_simjob_node *lead = NULL;
    for (uint32_t k = 0; k < j->n; k++) {
        rui_simjob_node *n = &j->nodes[k];
        if (rui_simjob_trains(j, n) && ru_member_leads(ru_node_member(n->node)) &&
            (lead == NULL || n->epoch > lead->epoch)) {
            lead = n;
        }
    }
    return lead;
}

static bool commit_on_its_way(const rui_simjob *j, const rui_simjob_node *lead)
{
    for (uint32_t k = 0; k < j->n; k++) {
        const rui_simjob_node *n = &j->nodes[k];
        if (rui_simjob_trains(j, n) && n->epoch == lead->epoch && n->committed < lead->committed) {
            return true;
        }
    }
    return false;
}

typedef struct scene {
    rui_simjob_node *actor; /* who leads or takes over; NULL: nobody */
    bool at[RU_SIM_MOMENTS];
    bool step;
} scene;

/* Two steps under way, somewhere. */
static void look_ahead(const rui_simjob *j, scene *s)
{
    for (uint32_t k = 0; k < j->n; k++) {
        const rui_simjob_device *d = &j->nodes[k].device;
        if (rui_simjob_trains(j, &j->nodes[k])) {
            s->at[RU_SIM_AT_AHEAD] |= d->older >= 0 && !d->keeping && d->readied > 0;
            s->at[RU_SIM_AT_UNDO] |= d->undoes;
        }
    }
}

static scene look(const rui_simjob *j)
{
    scene s = {.actor = leader_of(j)};
    if (s.actor != NULL) {
        ru_member_facts m;
        ru_elastic_facts e;
        ru_member_facts_get(ru_node_member(s.actor->node), &m);
        ru_elastic_facts_get(s.actor->elastic, &e);
        s.at[RU_SIM_AT_COMMIT] = commit_on_its_way(j, s.actor);
        s.at[RU_SIM_AT_PROBE] = e.probes;
        s.at[RU_SIM_AT_VIEW] = m.pending && !m.adds;
        s.at[RU_SIM_AT_JOIN] = m.pending && m.adds;
        s.at[RU_SIM_AT_STATE] = e.moves;
        s.at[RU_SIM_AT_TAKEOVER] = m.elect;
        s.at[RU_SIM_AT_DONE] = e.steps && e.done > 0;
        s.step = e.steps;
    }
    look_ahead(j, &s);
    for (uint32_t k = 0; k < j->n && !s.at[RU_SIM_AT_TAKEOVER]; k++) {
        rui_simjob_node *n = &j->nodes[k];
        ru_member_facts m = {0};
        if (rui_simjob_trains(j, n)) {
            ru_member_facts_get(ru_node_member(n->node), &m);
        }
        if (m.asks) {
            s.actor = n;
            s.at[RU_SIM_AT_TAKEOVER] = true;
        }
    }
    return s;
}

/* -- counting -------------------------------------------------------------------------------------
 */

static void see_loss(rui_simjob *j, const rui_simjob_node *n)
{
    static const struct {
        ru_sim_moment moment;
        ru_sim_seen leader, member;
    } kinds[] = {
        {RU_SIM_AT_COMMIT, RU_SIM_SEEN_LEADER_COMMIT, RU_SIM_SEEN_MEMBER_COMMIT},
        {RU_SIM_AT_PROBE, RU_SIM_SEEN_LEADER_PROBE, RU_SIM_SEEN_MEMBER_PROBE},
        {RU_SIM_AT_VIEW, RU_SIM_SEEN_LEADER_VIEW, RU_SIM_SEEN_MEMBER_VIEW},
        {RU_SIM_AT_JOIN, RU_SIM_SEEN_LEADER_JOIN, RU_SIM_SEEN_MEMBER_VIEW},
        {RU_SIM_AT_STATE, RU_SIM_SEEN_LEADER_STATE, RU_SIM_SEEN_MEMBER_STATE},
        {RU_SIM_AT_DONE, RU_SIM_SEEN_LEADER_DONE, RU_SIM_SEEN_MEMBER_DONE},
        {RU_SIM_AT_AHEAD, RU_SIM_SEEN_LEADER_AHEAD, RU_SIM_SEEN_MEMBER_AHEAD},
        {RU_SIM_AT_UNDO, RU_SIM_SEEN_LEADER_UNDO, RU_SIM_SEEN_MEMBER_UNDO},
    };
    scene s = look(j);
    if (n->ended) {
        return;
    }
    if (!n->in || !rui_simjob_device_full(&n->device)) {
        rui_simjob_see(j, RU_SIM_SEEN_JOINER_LOST);
    }
    bool leads = n == s.actor;
    if (leads && s.at[RU_SIM_AT_TAKEOVER]) {
        rui_simjob_see(j, RU_SIM_SEEN_TAKEOVER_LOST);
    }
    if (!n->in) {
        return;
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(kinds); k++) {
        if (s.at[kinds[k].moment]) {
            rui_simjob_see(j, leads ? kinds[k].leader : kinds[k].member);
        }
    }
    if (s.step) {
        rui_simjob_see(j, leads ? RU_SIM_SEEN_LEADER_STEP : RU_SIM_SEEN_MEMBER_STEP);
    }
}

static rui_simjob_node *node_of(const rui_simjob *j, uint32_t sim)
{
    for (uint32_t k = 0; k < j->n; k++) {
        if (j->nodes[k].process.node == sim) {
            return &j->nodes[k];
        }
    }
    return NULL;
}

void rui_simjob_told(void *self, ru_sim_fault what, uint32_t node, uint32_t other, ru_time now)
{
    static const ru_sim_seen seen[RU_SIM_FAULTS] = {
        RU_SIM_SEEN_CRASH,     RU_SIM_SEEN_VANISH,  RU_SIM_SEEN_FREEZE,
        RU_SIM_SEEN_CUT,       RU_SIM_SEEN_ISOLATE, RU_SIM_SEEN_SLOW,
        RU_SIM_SEEN_HALF_OPEN, RU_SIM_SEEN_FAIL,    RU_SIM_SEEN_SLEEP};
    rui_simjob *j = self;
    const rui_simjob_node *n = node_of(j, node);
    j->result->faults++;
    j->last_fault_ns = now.ns;
    rui_simjob_see(j, seen[what]);
    if ((what == RU_SIM_CRASH || what == RU_SIM_VANISH) && n != NULL) {
        see_loss(j, n);
    }
    rui_simjob_say(j, NULL, "FAULT %s of %u (%u)", ru_sim_fault_name(what), node, other);
}

/* -- faults at chosen moments ---------------------------------------------------------------------
 */

static rui_simjob_node *victim_of(rui_simjob *j, const ru_sim_aim *a)
{
    rui_simjob_node *actor = look(j).actor;
    if (!a->other || actor == NULL) {
        return actor;
    }
    uint32_t from = ru_rng_below(&j->rng, j->n);
    for (uint32_t k = 0; k < j->n; k++) {
        rui_simjob_node *n = &j->nodes[(from + k) % j->n];
        if (n != actor && !n->ended && !n->process.gone && ru_sim_alive(j->sim, n->process.node)) {
            return n;
        }
    }
    return NULL;
}

/* What is asked of a job counts from here again. */
static void woke(void *self, uint64_t arg)
{
    rui_simjob *j = self;
    const rui_simjob_node *n = &j->nodes[arg];
    uint32_t others = 0;
    if (!rui_simjob_trains(j, n)) {
        return;
    }
    j->last_fault_ns = j->last_said_ns = ru_sim_now(j->sim).ns;
    for (uint32_t k = 0; k < j->n; k++) {
        others += k != arg && rui_simjob_trains(j, &j->nodes[k]) ? 1 : 0;
    }
    rui_simjob_say(j, n, "wakes, %u others are there", others);
    if (others == 0 && j->result->committed == j->opt->steps) {
        rui_simjob_see(j, RU_SIM_SEEN_OVERSLEPT);
    }
}

static void sleep_long(rui_simjob *j, const rui_simjob_node *n)
{
    const int64_t least_ns = RU_MEMBER_DEAD_NS, most_ns = 16 * least_ns;
    int64_t lasts_ns = least_ns + (int64_t)ru_rng_below_u64(&j->rng, (uint64_t)most_ns);
    /* Before the process itself notices. */
    ru_sim_at(j->sim, (ru_time){ru_sim_now(j->sim).ns + lasts_ns}, woke, j, n->index);
    ru_sim_sleep(j->sim, n->process.node, lasts_ns);
}

static void lose_bulk(rui_simjob *j, ru_sim_fault how)
{
    rui_simjob_see(j, RU_SIM_SEEN_BULK);
    for (uint32_t k = 0; k < j->n; k++) {
        const rui_simjob_node *n = &j->nodes[k];
        if (rui_simjob_votes(j, n) || !ru_sim_alive(j->sim, n->process.node)) {
            continue;
        }
        rui_simjob_told(j, how, n->process.node, n->process.node, ru_sim_now(j->sim));
        (how == RU_SIM_CRASH ? ru_sim_crash : ru_sim_vanish)(j->sim, n->process.node);
    }
}

static void aim_strikes(void *self, uint64_t arg)
{
    rui_simjob *j = self;
    const ru_sim_aim *a = &j->opt->aims[arg];
    if (a->bulk) {
        lose_bulk(j, a->how);
        return;
    }
    const rui_simjob_node *n = victim_of(j, a);
    uint32_t living = 0;
    for (uint32_t k = 0; k < j->n; k++) {
        living += rui_simjob_trains(j, &j->nodes[k]) ? 1 : 0;
    }
    bool kills = a->how == RU_SIM_CRASH || a->how == RU_SIM_VANISH;
    if (n == NULL || (kills && living <= j->opt->chaos.keep_alive)) {
        return;
    }
    if (a->how == RU_SIM_SLEEP && ru_sim_frozen(j->sim, n->process.node)) {
        return;
    }
    int64_t lasts_ns = 1 + (int64_t)ru_rng_below_u64(&j->rng, (uint64_t)RUI_SIMJOB_LASTS_NS);
    rui_simjob_told(j, a->how, n->process.node, n->process.node, ru_sim_now(j->sim));
    if (a->how == RU_SIM_CRASH) {
        ru_sim_crash(j->sim, n->process.node);
    } else if (a->how == RU_SIM_VANISH) {
        ru_sim_vanish(j->sim, n->process.node);
    } else if (a->how == RU_SIM_FREEZE) {
        ru_sim_freeze(j->sim, n->process.node, lasts_ns);
    } else if (a->how == RU_SIM_SLEEP) {
        sleep_long(j, n);
    } else {
        ru_sim_cut_node(j->sim, n->process.node, lasts_ns);
    }
}

void rui_simjob_aim(rui_simjob *j)
{
    bool any = false;
    for (uint32_t k = 0; k < RU_SIM_AIMS; k++) {
        any = any || j->opt->aims[k].moment != RU_SIM_NEVER;
    }
    if (!any || !j->chaos_on) {
        return;
    }
    scene s = look(j);
    for (uint32_t k = 0; k < RU_SIM_AIMS; k++) {
        const ru_sim_aim *a = &j->opt->aims[k];
        bool now = s.at[a->moment], begins = now && !j->aim_was[k];
        j->aim_was[k] = now;
        if (a->moment != RU_SIM_NEVER && begins && j->aim_passed[k]++ == a->nth) {
            ru_sim_at(j->sim, (ru_time){ru_sim_now(j->sim).ns + a->after_ns}, aim_strikes, j, k);
        }
    }
}

/* -- leaving --------------------------------------------------------------------------------------
 */

static void leave_now(void *self, uint64_t arg)
{
    (void)arg;
    rui_simjob_node *n = self;
    bool leads = ru_member_leads(ru_node_member(n->node));
    rui_simjob_see(n->job, leads ? RU_SIM_SEEN_LEADER_LEAVE : RU_SIM_SEEN_LEAVE);
    rui_simjob_say(n->job, n, "leaves");
    if (n->device.program != NULL) {
        rui_simjob_program_leave(n->device.program);
        return;
    }
    ru_time now = ru_sim_now(n->job->sim);
    ru_elastic_stop(n->elastic, false, now, ru_node_enter(n->node, now));
    ru_node_leave(n->node, now);
}

void rui_simjob_leaves(void *self, uint64_t arg)
{
    (void)arg;
    rui_simjob *j = self;
    uint32_t from = ru_rng_below(&j->rng, j->n), living = 0;
    rui_simjob_node *who = NULL;
    for (uint32_t k = 0; k < j->n; k++) {
        rui_simjob_node *n = &j->nodes[(from + k) % j->n];
        living += rui_simjob_trains(j, n) ? 1 : 0;
        who = who == NULL && rui_simjob_trains(j, n) && !n->leaves ? n : who;
    }
    if (who == NULL || living <= j->opt->chaos.keep_alive || !j->chaos_on) {
        return;
    }
    who->leaves = true;
    ru_sim_at_node(j->sim, who->process.node, ru_sim_now(j->sim), leave_now, who,
                   0); /* once it runs */
}
