/* The leader: who holds what. A map is the blob of a view; so it survives the leader, and everybody
 * changes to it in one order.
 *
 *   a member died       new generation from the last checkpoint, its objects to the others; or the
 *                       same one, and they rebuild what was lost (engine_recover.c); or a new one
 *                       with what executors have (engine_count.c)
 *   a member wants in   the view with it, nothing moves; then moves that pay (plan/crew/moves)
 *   a member leaves     its objects to others; when they have arrived, the view without it
 *   moves               a few objects with each view; executors whose data are open there */
#include <string.h>

#include "train/engine/engine_impl.h"

enum {
    MOVES_A_VIEW = 16, /* or as many as there are members: each view costs a word to each */
    RECORDS_A_VIEW = 65536,
    JOINERS_A_VIEW = 16, /* at least */
    LEAVERS_MAX = RUI_ENGINE_LEAVERS_MAX,
    LOOK_NS = 20000000,
    RANKS_MAX = RUI_ENGINE_LOST - 1,
    MESH_MAX = 64, /* of membership */
};
#define EXECUTOR_NS  1000000 /* of a clock, before any was measured */
#define LINK_BYTES_S 1.25e8

/* The member with the fewest objects of a kind takes it. */
static ru_node_id least(const ru_engine *e, const ru_node_id *nodes, uint32_t n, uint32_t object)
{
    uint32_t lo = object < e->n_execs ? 0 : e->n_execs;
    uint32_t hi = object < e->n_execs ? e->n_execs : rui_objects(e);
    uint32_t best = 0, best_n = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t has = 0;
        for (uint32_t o = lo; o < hi; o++) {
            has += ru_node_is(e->lead.to[o], nodes[i]) ? 1 : 0;
        }
        if (has < best_n) {
            best = i;
            best_n = has;
        }
    }
    return nodes[best];
}

/* generation 0: a new one. recover: with these members objects were lost (lead.lost). */
static void install(ru_engine *e, const ru_node_id *nodes, uint32_t n, const ru_node_id *map,
                    uint32_t generation, ru_engine_ckpt from, bool recover, ru_time now,
                    ru_effects *fx)
{
    uint8_t blob[RU_MEMBER_BLOB_MAX];
    const rui_engine_blob b = {
        RUI_ENGINE_BLOB,
        generation,
        from.generation,
        from.clock,
        e->n_execs,
        e->n_shards,
        recover           ? RUI_ENGINE_NONE
        : generation != 0 ? e->fence
                          : 0,
        rui_stage_keepers(e, nodes, n, generation == 0 && from.generation != RUI_ENGINE_MEMORY),
        e->saved.generation,
        e->saved.clock};
    int64_t bytes = (int64_t)sizeof b + 2 * (int64_t)rui_objects(e);
    RU_CHECK(bytes <= (int64_t)sizeof blob && n <= RANKS_MAX);
    memcpy(blob, &b, sizeof b);
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        uint16_t rank = 0;
        while (!ru_node_is(nodes[rank], map[o])) {
            rank++;
            RU_CHECK(rank < n);
        }
        bool moved = generation != 0 && (e->moved[o] || !ru_node_is(map[o], e->holder[o]));
        bool lost = generation != 0 &&
                    (e->lead.lost[o] || (e->lost[o] && !ru_node_is(e->lead.at[o], e->holder[o])));
        /* Whoever has it keeps it, another one rebuilds it. */
        lost = lost || (generation == 0 && from.generation == RU_ENGINE_COUNTED && o < e->n_execs);
        rank = (uint16_t)(rank | (moved || lost ? RUI_ENGINE_MOVED : 0));
        rank = (uint16_t)(rank | (lost ? RUI_ENGINE_LOST : 0));
        memcpy(blob + sizeof b + 2 * (size_t)o, &rank, sizeof rank);
    }
    ru_member_install(e->opt.member, nodes, n, blob, bytes, now, fx);
}

/* The newest checkpoint that anybody knows to be valid. */
static ru_engine_ckpt newest(const ru_engine *e, const ru_node_id *nodes, uint32_t n)
{
    /* A resumed job has saved nothing yet. */
    ru_engine_ckpt best = e->saved, base = e->base;
    bool real = base.generation != RUI_ENGINE_MEMORY && !rui_count_is(e);
    best = real && rui_engine_newer(base, best) ? base : best;
    for (uint32_t i = 0; i < n; i++) {
        int64_t bytes;
        ru_engine_ckpt c;
        const void *p = ru_member_status_get(e->opt.member, nodes[i], &bytes);
        if (p != NULL && bytes == (int64_t)sizeof c) {
            memcpy(&c, p, sizeof c);
            best = rui_engine_newer(c, best) ? c : best;
        }
    }
    return best;
}

/* A generation with these members: objects of others go to those who have least. */
static void renew(ru_engine *e, const ru_node_id *nodes, uint32_t n, ru_time now, ru_effects *fx)
{
    bool first = ru_member_view(e->opt.member)->epoch == 0;
    bool memory = !first && rui_stage_may(e, nodes, n);
    ru_engine_ckpt from = first    ? e->opt.from
                          : memory ? (ru_engine_ckpt){RUI_ENGINE_MEMORY, e->lead.stage.committed}
                                   : newest(e, nodes, n);
    if (!first && !memory && !e->lead.stalled && rui_count_may(e, nodes, n)) {
        from = rui_count_from(e, nodes, n, from, now);
    }
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        e->lead.to[o] = rui_among(nodes, n, e->holder[o]) ? e->holder[o] : (ru_node_id){0};
    }
    bool placed = rui_stage_place(e, nodes, n, e->lead.to, now, fx);
    for (uint32_t o = 0; o < rui_objects(e) && !placed; o++) {
        if (e->lead.to[o].v == 0) {
            e->lead.to[o] = least(e, nodes, n, o);
        }
    }
    install(e, nodes, n, e->lead.to, 0, from, false, now, fx);
}

/* Some members. A leader of many asks for each object whether its holder is one of them, and does
 * so as often as there are members, after each loss. */
enum { CROWD_SLOTS = 2 * RU_MEMBERS_MAX };
typedef struct crowd {
    uint64_t slot[CROWD_SLOTS]; /* [size] 0: empty */
    uint32_t size;              /* a power of two */
} crowd;

static uint32_t crowd_slot(const crowd *c, ru_node_id node)
{
    uint32_t at = (uint32_t)(node.v * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (c->size - 1);
    while (c->slot[at] != 0 && c->slot[at] != node.v) {
        at = (at + 1) & (c->size - 1);
    }
    return at;
}

static void crowd_of(crowd *c, const ru_node_id *nodes, uint32_t n)
{
    for (c->size = 1; c->size < 2 * n; c->size *= 2) {
    }
    RU_CHECK(c->size <= CROWD_SLOTS);
    memset(c->slot, 0, c->size * sizeof *c->slot);
    for (uint32_t i = 0; i < n; i++) {
        c->slot[crowd_slot(c, nodes[i])] = nodes[i].v;
    }
}

static bool within(const crowd *c, ru_node_id node)
{
    return c->slot[crowd_slot(c, node)] == node.v;
}

static bool is_lost(const ru_engine *e, const crowd *c, uint32_t o)
{
    ru_node_id at = e->lead.at[o];
    return e->lead.lost[o] || !within(c, e->holder[o]) || (at.v != 0 && !within(c, at));
}

/* The same generation goes on with these members; objects that were lost go to those who have
 * least, and stay there until they are rebuilt. */
static void recover(ru_engine *e, const ru_node_id *nodes, uint32_t n, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    ru_arena_rewind(&l->plan_scratch, (ru_arena_mark){0});
    ru_node_id *map = RU_NEW(&l->plan_scratch, ru_node_id, rui_objects(e));
    RU_CHECK(map != NULL);
    crowd c;
    crowd_of(&c, nodes, n);
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        l->lost[o] = is_lost(e, &c, o);
        bool stays = rui_among(nodes, n, e->holder[o]);
        l->to[o] = !stays                                         ? (ru_node_id){0}
                   : l->lost[o] || !rui_among(nodes, n, l->to[o]) ? e->holder[o]
                                                                  : l->to[o];
    }
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        l->to[o] = l->to[o].v == 0 ? least(e, nodes, n, o) : l->to[o];
        map[o] = l->lost[o] ? l->to[o] : e->holder[o];
        l->at[o] = l->lost[o] ? (ru_node_id){0} : l->at[o];
    }
    install(e, nodes, n, map, e->generation, e->base, true, now, fx);
}

/* -- moves ---------------------------------------------------------------------------------------
 */

/* Where some members may be taken away: the stage says which objects shall be elsewhere. */
static bool plan_stage(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    ru_node_id nodes[RU_MEMBERS_MAX];
    uint32_t n = rui_members(e, nodes);
    bool placed = rui_stage_place(e, nodes, n, l->to, now, fx);
    l->planned = l->planned || placed;
    l->planned_at = placed ? now : l->planned_at;
    return placed;
}

/* Ask the policy which objects shall be elsewhere. */
static void plan(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    const ru_view *v = ru_member_view(e->opt.member);
    if (plan_stage(e, now, fx)) {
        return;
    }
    ru_arena_rewind(&l->plan_out, (ru_arena_mark){0});
    ru_arena_rewind(&l->plan_scratch, (ru_arena_mark){0});
    ru_moves_worker *w = RU_NEW(&l->plan_out, ru_moves_worker, v->n);
    ru_moves_object *o = RU_NEW(&l->plan_out, ru_moves_object, rui_objects(e));
    RU_CHECK(w != NULL && o != NULL);
    for (uint32_t i = 0; i < v->n; i++) {
        w[i] = (ru_moves_worker){.cores = v->at[i].capacity > 0 ? v->at[i].capacity : 1,
                                 .bytes_per_s = LINK_BYTES_S,
                                 .leaving = rui_among(l->leaver, l->n_leavers, v->at[i].node)};
    }
    for (uint32_t k = 0; k < rui_objects(e); k++) {
        const ru_member_info *m = ru_member_among(v->at, v->n, l->to[k]);
        bool shard = k >= e->n_execs;
        int64_t bytes = shard ? ru_ps_shard_bytes(e->ps, k - e->n_execs) : 4096;
        o[k] = (ru_moves_object){.on = m != NULL ? (uint32_t)(m - v->at) : v->n,
                                 .home = RU_MOVES_NONE,
                                 .cpu_ns = shard              ? bytes / 4
                                           : l->cpu_ns[k] > 0 ? l->cpu_ns[k]
                                                              : EXECUTOR_NS,
                                 .net_bytes = shard ? bytes * e->n_execs : 0,
                                 .state_bytes = bytes};
    }
    const ru_moves_in in = {.worker = w,
                            .object = o,
                            .n_workers = v->n,
                            .n_executors = e->n_execs,
                            .n_shards = e->n_shards,
                            .iterations = e->opt.clocks - l->closed,
                            .noise = RU_MOVES_NOISE,
                            .pause_ns = 1000000,
                            .method = (ru_moves_method)e->opt.moves,
                            .nodes_max = 20000};
    ru_moves_plan p;
    ru_err err;
    ru_status st = ru_plan_moves(&in, &l->plan_out, &l->plan_scratch, &p, &err);
    if (st == RU_OK) {
        st = ru_plan_moves_check(&in, &p, &l->plan_scratch, &err);
    }
    if (st != RU_OK) {
        ru_fx_log(fx, RU_LOG_WARN, "no better map of executors and shards: %s", err.text);
        return;
    }
    for (uint32_t k = 0; k < rui_objects(e); k++) {
        l->to[k] = v->at[p.to[k]].node;
    }
    l->planned = true;
    l->planned_at = now;
    if (e->opt.planned != NULL) {
        e->opt.planned(e->opt.news_self, &in, now);
    }
    ru_fx_log(fx, RU_LOG_INFO,
              "%u objects of %lld bytes move; a clock takes %.1f ms then, predicted", p.n_moves,
              (long long)p.moved_bytes, (double)p.iteration_ns * 1e-6);
}

static bool leaving_rest(ru_engine *e, ru_node_id node)
{
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        if (ru_node_is(e->holder[o], node) || ru_node_is(e->lead.to[o], node) ||
            ru_node_is(e->lead.at[o], node)) {
            return true;
        }
    }
    return false;
}

uint32_t rui_map_admitted(uint32_t n, uint32_t n_joining)
{
    uint32_t most = RECORDS_A_VIEW / n;
    most = most > JOINERS_A_VIEW ? most : JOINERS_A_VIEW;
    return n_joining > most ? n - (n_joining - most) : n;
}

/* Does everybody have the map in force? Views that follow each other faster than members learn of
 * them would leave some behind for ever. */
static bool all_ready(const ru_engine *e)
{
    const ru_view *v = ru_member_view(e->opt.member);
    for (uint32_t i = 0; i < v->n; i++) {
        if (e->lead.ready[i] != e->epoch) {
            return false;
        }
    }
    return true;
}

/* Has everybody the view, and sent again what rebuilt shards need? */
static bool all_resent(const ru_engine *e)
{
    const ru_view *v = ru_member_view(e->opt.member);
    bool all = all_ready(e);
    for (uint32_t i = 0; i < v->n; i++) {
        all = all && e->lead.resent[i] >= e->fence;
    }
    return all;
}

/* So many objects are not where the plan wants them. */
static void settle(ru_engine *e, uint32_t left, ru_time now)
{
    rui_lead *l = &e->lead;
    if (l->planned && left == 0) {
        l->planned = false;
        rui_engine_news(e,
                        &(ru_engine_news){.kind = RU_ENGINE_SETTLED,
                                          .clock = l->closed,
                                          .took_ns = now.ns - l->planned_at.ns},
                        now);
    }
}

/* Objects that can go now, in a view with the same members. */
static void move(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    ru_node_id nodes[RU_MEMBERS_MAX];
    ru_arena_rewind(&l->plan_scratch, (ru_arena_mark){0});
    ru_node_id *map = RU_NEW(&l->plan_scratch, ru_node_id, rui_objects(e));
    uint32_t n = 0, waits = 0, left = 0;
    RU_CHECK(map != NULL);
    memcpy(map, e->holder, rui_objects(e) * sizeof *map);
    uint32_t most = l->n_members > MOVES_A_VIEW ? l->n_members : MOVES_A_VIEW;
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        left += ru_node_is(l->to[o], l->at[o]) ? 0 : 1;
        if (ru_node_is(l->to[o], e->holder[o]) || n == most) {
            continue;
        }
        if (!ru_node_is(l->at[o], e->holder[o])) {
            waits++; /* it is still on its way */
        } else if (o < e->n_execs && l->prepared[o] != 2) {
            rui_engine_head h = {.executor = o};
            if (l->prepared[o] == 0) {
                rui_engine_send(e, l->to[o], RUI_ENGINE_PREPARE, &h, NULL, 0, now, fx);
            }
            l->prepared[o] = 1;
            waits++;
        } else {
            map[o] = l->to[o];
            n++;
        }
    }
    settle(e, left, now);
    if (n > 0 && !all_ready(e)) {
        ru_fx_timer(fx, RUI_ENGINE_LOOK, ru_time_after(now, LOOK_NS));
    } else if (n > 0) {
        install(e, nodes, rui_members(e, nodes), map, e->generation, e->base, false, now, fx);
    } else if (waits > 0) {
        ru_fx_timer(fx, RUI_ENGINE_LOOK, ru_time_after(now, LOOK_NS));
    }
}

void ru_engine_move(ru_engine *e, uint32_t object, uint32_t rank, ru_time now, ru_effects *fx)
{
    const ru_view *v = ru_member_view(e->opt.member);
    if (!e->lead.on || e->ended || object >= rui_objects(e) || rank >= v->n ||
        !ru_node_is(e->lead.to[object], e->holder[object]) ||
        rui_among(e->lead.leaver, e->lead.n_leavers, v->at[rank].node)) {
        return;
    }
    e->lead.to[object] = v->at[rank].node;
    if (object < e->n_execs) {
        e->lead.prepared[object] = 0;
    }
    rui_map_look(e, now, fx);
}

/* -- what to do next -----------------------------------------------------------------------------
 */

/* Does somebody who is not among these members hold something? */
static bool lost(const ru_engine *e, const ru_node_id *nodes, uint32_t n)
{
    crowd c;
    crowd_of(&c, nodes, n);
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        if (is_lost(e, &c, o)) {
            return true;
        }
    }
    return false;
}

/* A leader or keeper that leaves: first a checkpoint, with which the others begin. */
static bool may_part(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    if (l->part_clock == 0 && l->barrier <= l->closed && l->save == 0) {
        l->part_clock = l->barrier = l->closed + e->driver_slack + 1;
        rui_lead_tell(e, (ru_node_id){0}, now, fx);
    }
    return l->part_clock != 0 && e->saved.generation == e->generation &&
           e->saved.clock >= l->part_clock;
}

/* All stop after a checkpoint and load it on their new places: what moves are compared with. */
static void restart(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    ru_node_id nodes[RU_MEMBERS_MAX];
    uint32_t n_moves = 0, left = 0;
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        n_moves += ru_node_is(l->to[o], e->holder[o]) ? 0 : 1;
        left += ru_node_is(l->to[o], l->at[o]) ? 0 : 1;
    }
    settle(e, left, now);
    if (n_moves > 0 && may_part(e, now, fx)) {
        l->restarts = true;
        install(e, nodes, rui_members(e, nodes), l->to, 0, e->saved, false, now, fx);
    } else if (n_moves > 0) {
        ru_fx_timer(fx, RUI_ENGINE_LOOK, ru_time_after(now, LOOK_NS));
    }
}

/* Members that hold nothing any more may go. */
static void dismiss(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    for (uint32_t i = 0; i < l->n_leavers; i++) {
        bool me = ru_node_is(l->leaver[i], e->opt.self);
        bool keeps = rui_among(e->copies.keeper, e->copies.n_keepers, l->leaver[i]);
        if (!leaving_rest(e, l->leaver[i]) && ((!me && !keeps) || may_part(e, now, fx))) {
            rui_engine_head h = {0};
            rui_engine_send(e, l->leaver[i], RUI_ENGINE_GO, &h, NULL, 0, now, fx);
        }
    }
}

void rui_map_look(ru_engine *e, ru_time now, ru_effects *fx)
{
    ru_member_facts facts;
    ru_member_wanted w;
    ru_node_id nodes[RU_MEMBERS_MAX];
    ru_member_facts_get(e->opt.member, &facts);
    if (!e->lead.on || e->ended || facts.pending || !ru_member_leads(e->opt.member)) {
        return;
    }
    ru_member_wanted_get(e->opt.member, &w);
    for (uint32_t i = 0; i < w.n; i++) {
        nodes[i] = w.at[i].node;
    }
    if (ru_member_view(e->opt.member)->epoch == 0) {
        if (w.n >= (e->opt.founders > 0 ? e->opt.founders : 1)) {
            renew(e, nodes, w.n, now, fx);
        }
    } else if (w.n > 0 && (w.n_dead > 0 || e->lead.renew || e->lead.stalled ||
                           lost(e, nodes, w.n) || rui_stage_broken(e, nodes, w.n))) {
        bool copies = e->copies.n_keepers > 0;
        if (copies && rui_stage_waits(e, nodes, w.n, w.n_dead, now)) {
            ru_fx_timer(fx, RUI_ENGINE_LOOK, ru_time_after(now, LOOK_NS));
            return;
        }
        e->lead.stage.dead = 0;
        if (!e->lead.stalled && !copies && rui_recover_may(e, nodes, w.n)) {
            recover(e, nodes, w.n, now, fx);
        } else {
            renew(e, nodes, w.n, now, fx);
        }
    } else if (w.n > 0 && (w.n_joining > 0 || w.n_leaving > 0)) {
        install(e, nodes, rui_map_admitted(w.n, w.n_joining), e->holder, e->generation, e->base,
                false, now, fx);
    } else if (!e->lead.adopt) {
        if (e->lead.plan) {
            e->lead.plan = false;
            memset(e->lead.prepared, 0, e->n_execs);
            plan(e, now, fx);
        }
        if (e->opt.moves == RU_MOVES_RESTART) {
            restart(e, now, fx);
        } else {
            move(e, now, fx);
        }
        dismiss(e, now, fx);
    }
}

/* A view is in force, and this member leads. */
void rui_map_in_force(ru_engine *e, bool fresh, ru_time now, ru_effects *fx)
{
    rui_lead *l = &e->lead;
    const ru_view *v = ru_member_view(e->opt.member);
    if (fresh) {
        memcpy(l->to, e->holder, rui_objects(e) * sizeof *l->to);
        memset(l->at, 0, rui_objects(e) * sizeof *l->at);
        l->planned = l->planned && l->restarts;
        l->renew = l->restarts = l->stalled = false;
        l->n_leavers = 0;
        l->part_clock = 0;
        l->n_members = v->n;
        rui_lead_begin(e, now, fx);
    } else if (v->n != l->n_members) {
        l->plan = v->n > l->n_members;
        l->n_members = v->n;
    }
    for (uint32_t k = 0; k < e->n_execs; k++) {
        l->prepared[k] = ru_node_is(l->to[k], e->holder[k]) ? 0 : l->prepared[k];
    }
    rui_lead_tell(e, (ru_node_id){0}, now, fx);
    rui_stage_look(e, now, fx);
    rui_map_look(e, now, fx);
}

void rui_map_ready(ru_engine *e, ru_node_id from, const rui_engine_head *h, const uint8_t *here,
                   int64_t bytes, ru_time now, ru_effects *fx)
{
    uint32_t half = (rui_objects(e) + 7) / 8;
    if (bytes != 2 * (int64_t)half) {
        return;
    }
    for (uint32_t o = 0; o < rui_objects(e); o++) {
        if ((here[o / 8] >> o % 8 & 1) != 0) {
            e->lead.at[o] = from;
        }
    }
    rui_lead *l = &e->lead;
    const ru_view *v = ru_member_view(e->opt.member);
    const ru_member_info *m = ru_member_among(v->at, v->n, from);
    if (m != NULL) {
        l->ready[m - v->at] = h->epoch;
        l->resent[m - v->at] = h->barrier;
    }
    if (l->all_resent < e->fence && all_resent(e)) {
        l->all_resent = e->fence;
        rui_lead_advance(e, now, fx);
    }
    rui_recover_ready(e, h, here, here + half, all_ready(e), now, fx);
    if (h->clock != 0) {
        rui_lead_tell(e, from, now, fx); /* it asks */
        /* PREPARE may have come before its first view. */
        for (uint32_t k = 0; k < e->n_execs; k++) {
            bool again = l->prepared[k] == 1 && ru_node_is(l->to[k], from);
            l->prepared[k] = again ? 0 : l->prepared[k];
        }
    }
    if ((h->end & RUI_ENGINE_ENDS_ME) != 0 && l->n_leavers < LEAVERS_MAX &&
        !rui_among(l->leaver, l->n_leavers, from)) {
        l->leaver[l->n_leavers++] = from;
        l->plan = true;
    }
    if ((h->end & RUI_ENGINE_ENDS_JOB) != 0) {
        rui_lead_stop(e, now, fx);
    }
    rui_map_look(e, now, fx);
}

void rui_map_prepared(ru_engine *e, ru_node_id from, uint32_t executor, ru_time now, ru_effects *fx)
{
    if (executor < e->n_execs && ru_node_is(e->lead.to[executor], from) &&
        e->lead.prepared[executor] == 1) {
        e->lead.prepared[executor] = 2;
        rui_map_look(e, now, fx);
    }
}

/* Membership connects many members to a few alone: connect to those that serve, and to those to
 * which executors of this process move. */
void rui_map_reach(ru_engine *e, ru_effects *fx)
{
    const ru_view *v = ru_member_view(e->opt.member);
    bool needed[RU_MEMBERS_MAX] = {false};
    const uint8_t *ranks = (const uint8_t *)v->blob + sizeof(rui_engine_blob);
    for (uint32_t o = 0; v->n > MESH_MAX && o < e->n_execs + e->n_shards; o++) {
        uint16_t rank;
        memcpy(&rank, ranks + 2 * (size_t)o, sizeof rank);
        rank = (uint16_t)(rank & ~(RUI_ENGINE_MOVED | RUI_ENGINE_LOST));
        bool leaves = o < e->n_execs && e->exec[o].want == RUI_WANT_READY;
        needed[rank] = needed[rank] || o >= e->n_execs || leaves;
    }
    for (uint32_t i = 0; v->n > MESH_MAX && i < v->n; i++) {
        if (needed[i] && !ru_node_is(v->at[i].node, e->opt.self) &&
            !ru_chan_is_up(e->opt.chan, v->at[i].node)) {
            ru_fx_connect(fx, v->at[i].address);
        }
    }
}
