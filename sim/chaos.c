/* Faults: asked for one by one, or drawn by seed at mean rates (Poisson processes). */
#include <stdlib.h>

#include "sim/sim_impl.h"

#define CUT_MAX_NS        INT64_C(10000000000000)
#define LASTS_NS          INT64_C(300000000) /* default of the longest freeze and cut */
#define SLOW_LASTS_MAX_NS INT64_C(2000000000)

bool ru_sim_alive(const ru_sim *s, uint32_t node)
{
    RU_CHECK(node < s->nodes_n);
    return s->nodes[node]->alive;
}

bool ru_sim_vanished(const ru_sim *s, uint32_t node)
{
    RU_CHECK(node < s->nodes_n);
    return s->nodes[node]->vanished;
}

int64_t ru_sim_overtaken(const ru_sim *s)
{
    return s->overtaken;
}

int64_t ru_sim_redirected(const ru_sim *s)
{
    return s->redirected;
}

/* Every connection of a node, by number: the same in every run. */
static void end_all(ru_sim *s, uint32_t node, bool say)
{
    for (uint32_t k = 0; k < s->conns_n; k++) {
        rui_sim_conn *c = rui_sim_conn_at(s, k);
        for (uint32_t side = 0; side < 2 && c->used; side++) {
            if (c->end[side].node != node || c->end[side].state == RUI_SIM_END_CLOSED) {
                continue;
            }
            if (say && c->end[side].state != RUI_SIM_END_DEAF) {
                rui_sim_say_ended(s, k, side, RU_E_PEER);
            }
            rui_sim_end_close(s, k, side, RU_E_CANCELLED, "");
        }
    }
}

static void die(ru_sim *s, uint32_t node, bool say)
{
    RU_CHECK(node < s->nodes_n);
    rui_sim_node *n = s->nodes[node];
    if (!n->alive) {
        return;
    }
    n->alive = false;
    rui_sim_devs_drop(s, n->index);
    n->vanished = !say;
    s->alive_n--;
    end_all(s, node, say);
}

void ru_sim_crash(ru_sim *s, uint32_t node)
{
    die(s, node, true);
}

void ru_sim_vanish(ru_sim *s, uint32_t node)
{
    die(s, node, false);
}

static void thaw(void *self, uint64_t arg)
{
    ru_sim *s = self;
    if (s->nodes[arg]->alive && s->nodes[arg]->frozen_until_ns <= s->now_ns) {
        s->nodes[arg]->sleeps = false;
        rui_sim_thaw(s, (uint32_t)arg);
    }
}

void ru_sim_freeze(ru_sim *s, uint32_t node, int64_t for_ns)
{
    RU_CHECK(node < s->nodes_n);
    rui_sim_node *n = s->nodes[node];
    int64_t until_ns = s->now_ns + for_ns;
    if (until_ns > n->frozen_until_ns && !n->sleeps) {
        n->frozen_until_ns = until_ns;
        ru_sim_at(s, (ru_time){until_ns}, thaw, s, node);
    }
}

void ru_sim_sleep(ru_sim *s, uint32_t node, int64_t for_ns)
{
    ru_sim_freeze(s, node, for_ns);
    s->nodes[node]->sleeps = true;
}

bool ru_sim_frozen(const ru_sim *s, uint32_t node)
{
    RU_CHECK(node < s->nodes_n);
    return s->nodes[node]->alive && s->nodes[node]->frozen_until_ns > s->now_ns;
}

void ru_sim_cut_node(ru_sim *s, uint32_t node, int64_t for_ns)
{
    RU_CHECK(node < s->nodes_n);
    int64_t until_ns = s->now_ns + (for_ns < CUT_MAX_NS ? for_ns : CUT_MAX_NS);
    rui_sim_node *n = s->nodes[node];
    n->cut_until_ns = until_ns > n->cut_until_ns ? until_ns : n->cut_until_ns;
}

void ru_sim_cut(ru_sim *s, uint32_t a, uint32_t b, int64_t for_ns)
{
    RU_CHECK(a < s->nodes_n);
    RU_CHECK(b < s->nodes_n);
    int64_t until_ns = s->now_ns + (for_ns < CUT_MAX_NS ? for_ns : CUT_MAX_NS);
    uint32_t n = 0; /* those that are over make room */
    for (uint32_t k = 0; k < s->cuts_n; k++) {
        if (s->cuts[k].until_ns > s->now_ns) {
            s->cuts[n++] = s->cuts[k];
        }
    }
    s->cuts_n = n;
    if (s->cuts_n == s->cuts_cap) {
        uint32_t cap = s->cuts_cap == 0 ? 16 : s->cuts_cap * 2;
        rui_sim_cut *cuts = rui_sim_grow(s, s->cuts, s->cuts_cap * (int64_t)sizeof *cuts,
                                         cap * (int64_t)sizeof *cuts);
        if (cuts == NULL) {
            return;
        }
        s->cuts = cuts;
        s->cuts_cap = cap;
    }
    s->cuts[s->cuts_n++] = (rui_sim_cut){a < b ? a : b, a < b ? b : a, until_ns};
}

int64_t rui_sim_cut_until_ns(const ru_sim *s, uint32_t a, uint32_t b)
{
    int64_t until_ns = s->nodes[a]->cut_until_ns;
    until_ns = s->nodes[b]->cut_until_ns > until_ns ? s->nodes[b]->cut_until_ns : until_ns;
    uint32_t low = a < b ? a : b, high = a < b ? b : a;
    for (uint32_t k = 0; k < s->cuts_n; k++) {
        const rui_sim_cut *c = &s->cuts[k];
        if (c->a == low && c->b == high && c->until_ns > until_ns) {
            until_ns = c->until_ns;
        }
    }
    return until_ns > s->now_ns ? until_ns : 0;
}

void ru_sim_half_open(ru_sim *s, uint32_t a, uint32_t b)
{
    RU_CHECK(a < s->nodes_n);
    RU_CHECK(b < s->nodes_n);
    for (uint32_t k = 0; k < s->conns_n; k++) {
        rui_sim_conn *c = rui_sim_conn_at(s, k);
        for (uint32_t side = 0; side < 2 && c->used; side++) {
            if (c->end[side].node == a && c->end[side ^ 1].node == b &&
                c->end[0].state == RUI_SIM_END_OPEN && c->end[1].state == RUI_SIM_END_OPEN) {
                c->end[side].state = RUI_SIM_END_DEAF;
                rui_sim_end_close(s, k, side ^ 1, RU_E_IO, "the connection was lost");
            }
        }
    }
}

void ru_sim_slow_link(ru_sim *s, uint32_t node, double factor)
{
    RU_CHECK(node < s->nodes_n);
    RU_CHECK(factor > 0);
    s->nodes[node]->slow = factor;
}

static void tell(ru_sim *s, ru_sim_fault f, uint32_t a, uint32_t b)
{
    if (s->chaos.told != NULL) {
        s->chaos.told(s->chaos.told_self, f, a, b, (ru_time){s->now_ns});
    }
}

bool rui_sim_operation_fails(ru_sim *s, uint32_t node)
{
    if (!s->chaos_on || ++s->operations != s->chaos.fail_operation) {
        return false;
    }
    tell(s, RU_SIM_FAIL, node, node);
    return true;
}

/* -- by seed --------------------------------------------------------------------------------------
 */

const char *ru_sim_fault_name(ru_sim_fault f)
{
    static const char *const names[RU_SIM_FAULTS] = {
        "crash", "vanish", "freeze", "cut", "isolate", "slow", "half-open", "failure", "sleep"};
    RU_CHECK(f < RU_SIM_FAULTS);
    return names[f];
}

static double rate_of(const ru_sim_chaos *c, ru_sim_fault f)
{
    const double rates[RU_SIM_FAULTS] = {c->crash_per_s,
                                         c->vanish_per_s,
                                         c->freeze_per_s,
                                         c->cut_per_s,
                                         c->isolate_per_s,
                                         c->slow_per_s,
                                         c->half_open_per_s,
                                         0,
                                         0};
    return rates[f];
}

/* The k-th living node from a draw; RUI_SIM_NONE: none lives. */
static uint32_t draw_living(ru_sim *s)
{
    if (s->alive_n == 0) {
        return RUI_SIM_NONE;
    }
    uint32_t k = ru_rng_below(&s->rng, s->alive_n), at = 0;
    while (!s->nodes[at]->alive || k-- > 0) {
        at++;
    }
    return at;
}

static void fast_again(void *self, uint64_t arg)
{
    ru_sim_slow_link(self, (uint32_t)arg, 1);
}

static void strike(ru_sim *s, ru_sim_fault f, uint32_t a, uint32_t b)
{
    const ru_sim_chaos *c = &s->chaos;
    uint64_t freeze_max = (uint64_t)(c->freeze_max_ns > 0 ? c->freeze_max_ns : LASTS_NS);
    uint64_t cut_max = (uint64_t)(c->cut_max_ns > 0 ? c->cut_max_ns : LASTS_NS);
    switch (f) {
    case RU_SIM_CRASH:
        ru_sim_crash(s, a);
        break;
    case RU_SIM_VANISH:
        ru_sim_vanish(s, a);
        break;
    case RU_SIM_FREEZE:
        ru_sim_freeze(s, a, 1 + (int64_t)ru_rng_below_u64(&s->rng, freeze_max));
        break;
    case RU_SIM_CUT:
        ru_sim_cut(s, a, b, 1 + (int64_t)ru_rng_below_u64(&s->rng, cut_max));
        break;
    case RU_SIM_SLOW:
        ru_sim_slow_link(s, a, ru_rng_uniform(&s->rng, 0.05, 0.9));
        ru_sim_at(
            s,
            (ru_time){s->now_ns + (int64_t)ru_rng_below_u64(&s->rng, (uint64_t)SLOW_LASTS_MAX_NS)},
            fast_again, s, a);
        break;
    case RU_SIM_HALF_OPEN:
        ru_sim_half_open(s, a, b);
        break;
    case RU_SIM_ISOLATE:
        ru_sim_cut_node(s, a, 1 + (int64_t)ru_rng_below_u64(&s->rng, cut_max));
        break;
    case RU_SIM_FAIL:
    case RU_SIM_SLEEP:
    case RU_SIM_FAULTS:
        break;
    }
}

static void schedule(ru_sim *s, ru_sim_fault f);

static void happen(void *self, uint64_t arg)
{
    ru_sim *s = self;
    ru_sim_fault f = (ru_sim_fault)arg;
    if (s->chaos.until.ns > 0 && s->now_ns >= s->chaos.until.ns) {
        return;
    }
    uint32_t a = draw_living(s), b = draw_living(s);
    bool kills = f == RU_SIM_CRASH || f == RU_SIM_VANISH;
    bool pair = f == RU_SIM_CUT || f == RU_SIM_HALF_OPEN;
    if (a != RUI_SIM_NONE && !(kills && s->alive_n <= s->chaos.keep_alive) && !(pair && a == b)) {
        tell(s, f, a, b);
        strike(s, f, a, b);
    }
    schedule(s, f);
}

static void schedule(ru_sim *s, ru_sim_fault f)
{
    double rate = rate_of(&s->chaos, f);
    if (rate > 0) {
        int64_t wait_ns = (int64_t)(ru_rng_exponential(&s->rng) / rate * 1e9);
        ru_sim_at(s, (ru_time){s->now_ns + wait_ns + 1}, happen, s, (uint64_t)f);
    }
}

void ru_sim_chaos_start(ru_sim *s, const ru_sim_chaos *c)
{
    s->chaos = *c;
    s->chaos_on = true;
    for (ru_sim_fault f = 0; f < RU_SIM_FAULTS; f++) {
        schedule(s, f);
    }
}
