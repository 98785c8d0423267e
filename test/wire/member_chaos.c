#include "test/wire/member_chaos.h"

#include <stdio.h>
#include <string.h>

#include "comm/member/member_impl.h"
#include "test/test.h"

static const int64_t ms = 1000000;

static void cut_groups(world *w, int64_t for_ns)
{
    uint32_t side = ru_rng_u32(world_rng(w));
    for (uint32_t a = 0; a < CHAOS_NODES; a++) {
        for (uint32_t b = a + 1; b < CHAOS_NODES; b++) {
            if (((side >> a) & 1) != ((side >> b) & 1)) {
                world_cut(w, a, b, ru_time_after(world_now(w), for_ns));
            }
        }
    }
}

static uint32_t living(world *w, uint32_t *some)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < CHAOS_NODES; i++) {
        const world_node *x = world_at(w, i);
        if (x->started && x->alive && !x->out) {
            n++;
            *some = ru_rng_below(world_rng(w), n) == 0 ? i : *some;
        }
    }
    return n;
}

/* All that have no vote, at once: each of them killed, or its host lost. */
static void lose_bulk(world *w, const world_options *o)
{
    for (uint32_t i = 0; i < CHAOS_NODES; i++) {
        const world_node *x = world_at(w, i);
        if ((o->no_vote >> i & 1) != 0 && x->started && x->alive) {
            (ru_rng_below(world_rng(w), 2) == 0 ? world_kill : world_vanish)(w, i);
        }
    }
}

static void one_fault(world *w, const world_options *o, uint32_t *started)
{
    uint32_t max_dead = o->refused ? 1 : 3;
    ru_rng *r = world_rng(w);
    if (o->no_vote != 0 && ru_rng_below(r, 4) == 0) {
        lose_bulk(w, o);
        return;
    }
    uint32_t i = 0, j = 0, n = living(w, &i);
    living(w, &j);
    int64_t long_ns = (int64_t)ru_rng_below(r, 3000) * ms, short_ns = long_ns / 8;
    switch (ru_rng_below(r, 14)) {
    case 0:
    case 1:
    case 2:
        if (*started < CHAOS_NODES && n > 0) {
            world_start(w, (*started)++, (int32_t)i);
        }
        break;
    case 3:
    case 4:
        if (n > max_dead) {
            world_kill(w, i);
        }
        break;
    case 5:
        if (n > max_dead) {
            world_vanish(w, i);
        }
        break;
    case 6:
        world_freeze(w, i, long_ns);
        break;
    case 7:
        world_freeze(w, i, short_ns);
        break;
    case 8:
        world_cut(w, i, j, ru_time_after(world_now(w), long_ns));
        break;
    case 9:
        cut_groups(w, long_ns);
        break;
    case 10:
        world_half_open(w, i, j);
        break;
    case 11:
        if (n > max_dead) {
            world_leave(w, i);
        }
        break;
    case 12:
        if (i != j && world_at(w, i)->n_views > 0) {
            world_suspect(w, i, j, ru_rng_below(r, 2) == 0);
        }
        break;
    default:
        break;
    }
}

/* Could the living voters of these members make a quorum, with the killed known to be gone? */
static bool quorum_of(world *w, const ru_member_info *at, uint32_t n, bool ends_seen)
{
    uint32_t all = 0, yes = 0, gone = 0;
    bool first = false;
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < CHAOS_NODES; i++) {
            const world_node *x = world_at(w, i);
            if (at[k].node.v == world_id(i).v && !at[k].no_vote) {
                all++;
                bool here = x->alive && !x->out;
                yes += here;
                first = all == 1 ? here : first;
                gone += !here && !x->vanished && ends_seen;
            }
        }
    }
    return yes > 0 && (yes + gone == all || yes * 2 > all || (yes * 2 == all && first));
}

/* After all is healed: is there a quorum of the newest view, and of every view that may be under
 * way or in force with somebody who is silent now? */
static bool quorum_lives(world *w, bool ends_seen)
{
    const ru_view *v = NULL;
    bool ok = true;
    for (uint32_t i = 0; i < CHAOS_NODES; i++) {
        const world_node *x = world_at(w, i);
        bool counts = x->started && x->alive && !x->out && !x->m->self.no_vote;
        ends_seen = ends_seen && (!counts || x->m->sure);
    }
    for (uint32_t i = 0; i < CHAOS_NODES; i++) {
        const world_node *x = world_at(w, i);
        if (!x->started || !x->alive || x->out) {
            continue;
        }
        v = v == NULL || ru_member_view(x->m)->epoch > v->epoch ? ru_member_view(x->m) : v;
        if (x->m->view.epoch > 0 && rui_m_next_decode(x->m)) {
            ok = ok && quorum_of(w, x->m->next.at, x->m->next.n, ends_seen);
        }
    }
    return ok && v != NULL && v->n > 0 && quorum_of(w, v->at, v->n, ends_seen);
}

static ru_time led_since(world *w)
{
    uint32_t n;
    const world_view *v = world_views(w, &n);
    return n > 0 ? v[n - 1].at : (ru_time){0};
}

void chaos_ended(world *w, const world_options *o, bool ok, uint32_t started, const char *again,
                 uint64_t seed)
{
    for (uint32_t a = 0; a < o->nodes; a++) {
        for (uint32_t b = 0; b < o->nodes; b++) {
            world_cut(w, a, b, world_now(w));
        }
    }
    ok = ok && world_run_ms(w, 14000);
    char why[200] = "";
    bool quorum = ok && quorum_lives(w, o->mesh_max == 0 && o->refused);
    for (uint32_t i = 1; quorum && i < started; i++) {
        const world_node *x = world_at(w, i), *by = world_at(w, (uint32_t)x->contact);
        if (x->out && x->n_views == 0 && by->alive && by->n_views > 0 && !x->left &&
            led_since(w).ns < x->out_at.ns - 4000 * ms && world_leader(w) >= 0) {
            snprintf(why, sizeof why, "process %u did not get in by %d: %.100s", i, x->contact,
                     x->why);
        }
    }
    bool settled = !quorum || (why[0] == '\0' && world_settled(w, why, sizeof why));
    if (!ok || !settled) {
        fail_msg("seed %llu: %s (again: rubato-test --filter %s %llu)", (unsigned long long)seed,
                 ok ? why : world_breach(w), again, (unsigned long long)seed);
    }
}

uint64_t chaos_run(uint64_t seed, chaos_kind kind, bool verbose)
{
    world_options o = {.seed = seed,
                       .nodes = CHAOS_NODES,
                       .n_max = seed % 5 == 0 ? 5 : 0,
                       .mesh_max = seed % 7 == 0 ? 1 : 0,
                       .owner_delay_ns = seed % 3 == 0 ? 50 * ms : 0,
                       .delay_max_ns = seed % 4 == 0 ? 30 * ms : 0,
                       .events_max = 400000,
                       .refused = seed % 2 == 0,
                       .sealed = seed % 16 == 3,
                       .verbose = verbose};
    for (uint32_t i = 1; i < CHAOS_NODES && kind == CHAOS_BULK; i++) { /* the founder votes */
        ru_rng votes = ru_rng_from(seed, i);
        o.no_vote |= ru_rng_below(&votes, 3) > 0 ? UINT64_C(1) << i : 0;
    }
    world *w = world_new(&o);
    ru_rng *r = world_rng(w);
    uint32_t started = 1 + ru_rng_below(r, 6);
    world_start(w, 0, -1);
    for (uint32_t i = 1; i < started; i++) {
        world_start(w, i, 0);
    }
    bool ok = world_run_ms(w, ru_rng_below(r, 1500));
    for (uint32_t n = ru_rng_below(r, 12); ok && n > 0; n--) {
        one_fault(w, &o, &started);
        ok = world_run_ms(w, ru_rng_below(r, ru_rng_below(r, 2) == 0 ? 10 : 900));
    }
    ok = ok && world_run_ms(w, 3500);
    chaos_ended(w, &o, ok, started,
                kind == CHAOS_BULK ? "comm_member_vote.test_replay_bulk --seed"
                                   : "comm_member.test_replay --seed",
                seed);
    uint64_t hash = world_hash(w);
    world_free(w);
    return hash;
}
