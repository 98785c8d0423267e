/* Is a simulated job right? Rules that hold after every event, and what must be true at its end. */
#include <string.h>

#include "base/hash.h"
#include "comm/member/among.h"
#include "lab/job_impl.h"

enum { MANY = 16, ALL_EVERY = 4096 /* events, in a job of many processes */ };

#define MS          INT64_C(1000000)
#define SILENCE_NS  (6000 * MS)  /* 5 s, and the second in which they are noticed */
#define GIVEN_UP_NS (20000 * MS) /* everybody has said for long that no majority answers */

/* From a fault to the next commit, when there is one: what the membership may need until everybody
 * knows who is gone (CERTAIN_NS), until one leads (LEADS_NS: silence of the older, answers of all,
 * both once more after another has asked as well), and the step once more. Whether a majority is
 * left or those that are left know that the others are gone makes no difference. */
#define ANSWER_NS    (RU_MEMBER_DEAD_NS - RU_MEMBER_SUSPECT_NS)
#define CERTAIN_NS   (RUI_SIMJOB_LASTS_NS + RU_MEMBER_DEAD_NS + ANSWER_NS)
#define TURN_NS      (9 * RU_MEMBER_BEAT_NS) /* of the youngest, after another has asked */
#define LEADS_NS     (2 * ANSWER_NS + TURN_NS)
#define STEP_NS      (200 * MS)
#define PAUSE_MAX_NS (CERTAIN_NS + LEADS_NS + STEP_NS) /* 3 s */

static void check_view(rui_simjob *j, rui_simjob_node *n)
{
    const ru_view *v = ru_member_view(ru_node_member(n->node));
    if (v == NULL || v->epoch == n->epoch) {
        return;
    }
    if (v->epoch < n->epoch) {
        rui_simjob_fail(j, n, "the epoch went back from %u to %u", n->epoch, v->epoch);
        return;
    }
    n->epoch = v->epoch;
    n->in = true;
    j->result->epochs = v->epoch > j->result->epochs ? v->epoch : j->result->epochs;
    uint64_t hash = v->leader.v;
    for (uint32_t k = 0; k < v->n; k++) {
        hash = ru_hash_bytes(&v->at[k].node.v, (int64_t)sizeof v->at[k].node.v, hash);
    }
    rui_simjob_say(j, n, "view of epoch %u with %u members", v->epoch, v->n);
    bool fresh;
    uint64_t *known = ru_map_put_u64(&j->epochs, v->epoch, &fresh);
    RU_CHECK(known != NULL);
    if (!fresh && *known != hash) {
        rui_simjob_fail(j, n, "epoch %u has two leaders or two member lists", v->epoch);
    }
    *known = hash;
}

/* In an epoch only its leader says that a step counts. Whoever takes over counts what its
 * predecessor had counted. */
void rui_simjob_check_commit(rui_simjob *j, const rui_simjob_node *n, ru_time now)
{
    ru_member *m = ru_node_member(n->node);
    ru_elastic_facts e;
    ru_member_facts f;
    ru_elastic_facts_get(n->elastic, &e);
    ru_member_facts_get(m, &f);
    if (ru_member_leads(m) && !f.elect && e.epoch == ru_member_view(m)->epoch) {
        bool fresh;
        uint64_t *who = ru_map_put_u64(&j->committers, e.epoch, &fresh);
        RU_CHECK(who != NULL);
        if (!fresh && *who != n->index + 1) {
            rui_simjob_fail(j, n, "in epoch %u process %u committed as well", e.epoch,
                            (uint32_t)*who - 1);
        }
        *who = n->index + 1;
        if (n->committed < j->result->committed) {
            rui_simjob_fail(j, n, "it leads a job at step %lld that others have led to step %lld",
                            (long long)n->committed, (long long)j->result->committed);
        }
    }
    if (n->committed > j->result->committed) {
        int64_t from_ns =
            j->last_fault_ns > j->last_commit_ns ? j->last_fault_ns : j->last_commit_ns;
        int64_t pause_ns = j->result->committed > 0 ? now.ns - from_ns : 0;
        j->result->pause_ns = pause_ns > j->result->pause_ns ? pause_ns : j->result->pause_ns;
        if (pause_ns > PAUSE_MAX_NS && !j->opt->counted) {
            rui_simjob_fail(j, n, "step %lld came %.2f s after the last commit and the last fault",
                            (long long)n->committed, (double)pause_ns * 1e-9);
        }
        j->result->committed = n->committed;
        j->last_commit_ns = j->last_said_ns = now.ns;
    }
}

static bool is_stuck(const rui_simjob_node *n)
{
    ru_member_facts f;
    ru_member_facts_get(ru_node_member(n->node), &f);
    return f.stuck;
}

static bool computes(const rui_simjob *j)
{
    bool busy = false;
    for (uint32_t k = 0; k < j->n && !busy; k++) {
        busy = !j->nodes[k].process.gone && ru_sim_dev_busy(j->nodes[k].device.dev);
    }
    return busy;
}

/* What a leader waits for comes bit by bit on slow links: when did the last of it come? */
static int64_t progress_ns(const rui_simjob *j)
{
    int64_t last_ns = 0;
    for (uint32_t k = 0; k < j->n; k++) {
        const rui_simjob_node *n = &j->nodes[k];
        if (rui_simjob_trains(j, n) && ru_member_leads(ru_node_member(n->node))) {
            ru_elastic_facts e;
            ru_elastic_facts_get(n->elastic, &e);
            last_ns = e.progress.ns > last_ns ? e.progress.ns : last_ns;
        }
    }
    return last_ns;
}

/* Nobody waits for long unless somebody says so. Who is stuck says so ever less often. */
static void check_silence(rui_simjob *j, ru_time now)
{
    if (now.ns - j->last_said_ns <= SILENCE_NS || j->opt->input != NULL) {
        return; /* steps may wait long for their samples */
    }
    if (computes(j)) { /* for as long as it takes */
        j->last_said_ns = now.ns;
        return;
    }
    int64_t moved_ns = progress_ns(j);
    if (now.ns - moved_ns <= SILENCE_NS) {
        j->last_said_ns = moved_ns;
        return;
    }
    for (uint32_t k = 0; k < j->n; k++) {
        const rui_simjob_node *n = &j->nodes[k];
        if (rui_simjob_trains(j, n) && !is_stuck(n) && !ru_sim_frozen(j->sim, n->process.node)) {
            rui_simjob_fail(j, n, "it waits, and for %.1f s nobody has said for what",
                            (double)(now.ns - j->last_said_ns) * 1e-9);
            return;
        }
    }
}

ru_status rui_simjob_invariant(void *self, ru_time now, ru_err *err)
{
    rui_simjob *j = self;
    /* Of many one at every so many events: looking at another process costs more than an event. */
    bool many = j->n >= MANY;
    uint32_t each = !many ? j->n : ru_sim_events(j->sim) % MANY == 0 ? 1U : 0U;
    for (uint32_t k = 0; k < each; k++) {
        rui_simjob_node *n = &j->nodes[j->turn++ % j->n];
        if (!n->process.gone && n->node != NULL) {
            check_view(j, n);
        }
    }
    if (!many || ru_sim_events(j->sim) % ALL_EVERY == 0) {
        check_silence(j, now);
    }
    rui_simjob_aim(j);
    return j->failed == RU_OK ? RU_OK : RU_FAIL(err, j->failed, "%s", j->failure.text);
}

/* For people who look for why nothing moves. */
static void say_all(const rui_simjob *j)
{
    char into[64];
    for (uint32_t k = 0; k < j->n; k++) {
        const rui_simjob_node *n = &j->nodes[k];
        if (!n->process.gone && ru_sim_alive(j->sim, n->process.node)) {
            rui_simjob_say(j, n, "is %s; device phase %d, epoch %u, leads: %d",
                           ru_elastic_doing(n->elastic, into), (int)n->device.phase, n->epoch,
                           ru_member_leads(ru_node_member(n->node)) ? 1 : 0);
        }
    }
}

/* -- is there a majority? -------------------------------------------------------------------------
 *
 * Counted here from what really happened, not from what the processes believe. */

static const rui_simjob_node *process_of(const rui_simjob *j, ru_node_id id)
{
    for (uint32_t k = 0; k < j->n; k++) {
        if (ru_node_is(j->nodes[k].id, id)) {
            return &j->nodes[k];
        }
    }
    return NULL;
}

/* sure: all of these were in touch until the others went. */
static bool quorum_of(const rui_simjob *j, const ru_member_info *at, uint32_t n, bool sure)
{
    uint32_t all = 0, yes = 0, over = 0;
    bool oldest = false;
    for (uint32_t i = 0; i < n; i++) {
        if (at[i].no_vote) {
            continue;
        }
        all++;
        const rui_simjob_node *p = process_of(j, at[i].node);
        bool here = p != NULL && rui_simjob_trains(j, p);
        yes += here ? 1 : 0;
        over += p != NULL && !here && !ru_sim_vanished(j->sim, p->process.node) ? 1 : 0;
        oldest = all == 1 ? here : oldest;
    }
    return yes > 0 && (yes * 2 > all || (yes * 2 == all && oldest) || (sure && yes + over == all));
}

/* Of the newest view that anybody left knows, and of what may be in force after it? */
static bool majority_lives(const rui_simjob *j)
{
    const ru_view *newest = NULL;
    bool sure = true, next = true;
    for (uint32_t k = 0; k < j->n; k++) {
        const rui_simjob_node *n = &j->nodes[k];
        if (!rui_simjob_trains(j, n)) {
            continue;
        }
        const ru_view *v = ru_member_view(ru_node_member(n->node));
        ru_member_facts f;
        ru_member_facts_get(ru_node_member(n->node), &f);
        newest = newest == NULL || v->epoch > newest->epoch ? v : newest;
        const ru_member_info *self = ru_member_among(v->at, v->n, n->id);
        sure = sure && (f.sure || self == NULL || self->no_vote);
    }
    for (uint32_t k = 0; k < j->n && newest != NULL; k++) {
        const rui_simjob_node *n = &j->nodes[k];
        ru_member_facts f = {0};
        if (rui_simjob_trains(j, n) &&
            ru_member_view(ru_node_member(n->node))->epoch == newest->epoch) {
            ru_member_facts_get(ru_node_member(n->node), &f);
        }
        next = next && (f.next_n == 0 || quorum_of(j, f.next, f.next_n, sure));
    }
    return newest != NULL && next && quorum_of(j, newest->at, newest->n, sure);
}

bool rui_simjob_over(rui_simjob *j)
{
    bool lives = false, stuck = true;
    for (uint32_t k = 0; k < j->n; k++) {
        const rui_simjob_node *n = &j->nodes[k];
        bool here = !n->process.gone && ru_sim_alive(j->sim, n->process.node);
        lives = lives || here;
        stuck = stuck && (!here || (rui_simjob_trains(j, n) && is_stuck(n)) || !n->in);
    }
    int64_t now_ns = ru_sim_now(j->sim).ns;
    bool any = false;
    for (uint32_t k = 0; k < j->n; k++) {
        any = any || rui_simjob_trains(j, &j->nodes[k]);
    }
    j->stuck_ns = !stuck || !any ? 0 : j->stuck_ns > 0 ? j->stuck_ns : now_ns;
    return !lives || (j->stuck_ns > 0 && now_ns - j->stuck_ns >= GIVEN_UP_NS);
}

/* -- the end --------------------------------------------------------------------------------------
 */

/* Members that neither ended nor go on: right only without a majority, and when all say so. */
static void check_left(rui_simjob *j)
{
    uint32_t left = 0;
    const rui_simjob_node *silent = NULL, *last = NULL;
    for (uint32_t k = 0; k < j->n; k++) {
        const rui_simjob_node *n = &j->nodes[k];
        if (rui_simjob_trains(j, n)) {
            left++;
            last = n;
            silent = is_stuck(n) ? silent : n;
        }
    }
    if (left == 0) {
        return;
    }
    bool majority = majority_lives(j);
    if (silent != NULL || majority) {
        const rui_simjob_node *n = silent != NULL ? silent : last;
        say_all(j);
        rui_simjob_fail(j, n, "it lives and did not end: epoch %u, %lld of %lld steps; %s",
                        n->epoch, (long long)n->committed, (long long)j->opt->steps,
                        majority ? "a majority lives" : "no majority, and it does not say so");
        return;
    }
    rui_simjob_see(j, RU_SIM_SEEN_NO_MAJORITY);
}

/* Was it cut out by others that held the whole state as well, and were killed later? */
static bool outlived_the_able(const rui_simjob *j, const rui_simjob_node *n)
{
    bool killed = false;
    for (uint32_t k = 0; k < j->n; k++) {
        const rui_simjob_node *o = &j->nodes[k];
        bool dead = o->in && !o->process.gone && !ru_sim_alive(j->sim, o->process.node);
        killed = killed || (dead && rui_simjob_device_full(&o->device));
    }
    return killed && strstr(n->sentence, "the others continued without it") != NULL;
}

/* Nobody did all steps. Right when no majority was left; when the last who held the whole state
 * went, or when everybody left. */
static void check_lost(rui_simjob *j)
{
    const rui_simjob_node *able = NULL;
    bool alone = j->result->seen[RU_SIM_SEEN_NO_MAJORITY] > 0;
    for (uint32_t k = 0; k < j->n; k++) {
        const rui_simjob_node *n = &j->nodes[k];
        if (!n->process.gone || !n->in || n->leaves) {
            continue; /* killed, never a member, or left */
        }
        able = rui_simjob_device_full(&n->device) && !outlived_the_able(j, n) ? n : able;
        alone = alone || strstr(n->sentence, "all other members have failed") != NULL ||
                strstr(n->sentence, "all members that vote") != NULL;
    }
    if (able != NULL && !alone) {
        rui_simjob_fail(j, able, "nobody did all steps, %lld of %lld were committed; it ended: %s",
                        (long long)j->result->committed, (long long)j->opt->steps, able->sentence);
    } else if (j->result->seen[RU_SIM_SEEN_NO_MAJORITY] == 0 && alone) {
        rui_simjob_see(j, RU_SIM_SEEN_NO_MAJORITY);
    }
}

void rui_simjob_check_end(rui_simjob *j)
{
    uint32_t done = 0, ended = 0;
    check_left(j);
    for (uint32_t k = 0; k < j->n && j->failed == RU_OK; k++) {
        rui_simjob_node *n = &j->nodes[k];
        bool finished = n->ended && n->status == RU_OK && n->committed == j->opt->steps;
        done += finished ? 1 : 0;
        if (!n->process.gone && !ru_sim_alive(j->sim, n->process.node)) {
            continue; /* killed */
        }
        ended++;
        bool stopped = n->ended && n->status != RU_OK && n->in && !n->leaves;
        j->result->expelled += stopped ? 1 : 0;
        ru_elastic_facts f;
        ru_elastic_facts_get(n->elastic, &f);
        if (f.samples_lost != 0 || f.samples_repeated != 0) {
            rui_simjob_fail(j, n, "%lld samples lost, %lld repeated", (long long)f.samples_lost,
                            (long long)f.samples_repeated);
        }
        j->result->redone += f.redone;
    }
    if (done == 0 && ended > 0 && j->failed == RU_OK) {
        check_lost(j);
    }
}
