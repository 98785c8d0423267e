/* The owner's side: when to hand a slice to whom, and what became of it. */
#include <stddef.h>

#include "train/tasks/tasks_impl.h"

enum { GAP_PPM_MAX = 1000 * RUI_TASKS_ONE }; /* more items than there are */

bool rui_tasks_given_out(const ru_tasks *t)
{
    for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
        for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
            if (t->helper[i].slot[s].state != RUI_TASKS_FREE) {
                return true;
            }
        }
    }
    return false;
}

static uint32_t ppm(const ru_tasks *t, int64_t of)
{
    return (uint32_t)(of * (int64_t)t->opt.items / RUI_TASKS_ONE);
}

/* -- delays -------------------------------------------------------------------------------------
 */

/* Weights of the mean and of the spread as TCP has them for its round trips (RFC 6298). A sample
 * counts as four spreads from the mean at most: one pause of a process stays one sample. */
static void learn(const ru_tasks *t, rui_tasks_delay *d, int64_t ns)
{
    if (!d->known) {
        *d = (rui_tasks_delay){.known = true, .mean_ns = ns, .spread_ns = ns / 2};
        return;
    }
    int64_t most = 4 * d->spread_ns + t->rules->rtt_ns, off = ns - d->mean_ns;
    off = off > most ? most : off < -most ? -most : off;
    d->mean_ns += off / 8;
    d->spread_ns += ((off < 0 ? -off : off) - d->spread_ns) / 4;
}

/* Measured with this helper, with others, or as the policy's rules say. */
static int64_t mean_ns(const ru_tasks *t, const rui_tasks_delay *its, const rui_tasks_delay *all)
{
    return its->known ? its->mean_ns : all->known ? all->mean_ns : t->rules->rtt_ns;
}

/* What a slice takes until its end is known here, beside its items. */
static int64_t delay_ns(const ru_tasks *t, const rui_tasks_peer *h)
{
    return mean_ns(t, &h->start, &t->start) + mean_ns(t, &h->rest, &t->rest);
}

static bool knows_speed(const rui_tasks_peer *h)
{
    return h->item_ns > 0 && h->item_ns < RUI_TASKS_ITEM_NS_MAX;
}

/* That a helper of known speed needs for items. */
static int64_t items_ns(const rui_tasks_peer *h, int64_t items)
{
    int64_t most = INT64_MAX / 4; /* a speed is what a peer says */
    return items > most / h->item_ns ? most : items * h->item_ns;
}

/* Until an answer of a helper's process is here. */
static rui_tasks_delay answer_of(const ru_tasks *t)
{
    const rui_tasks_delay rules = {.mean_ns = t->rules->rtt_ns, .spread_ns = t->rules->rtt_ns / 2};
    return t->answer.known ? t->answer : rules;
}

static void started(ru_tasks *t, rui_tasks_peer *h, rui_tasks_slot *slot)
{
    if (slot->state == RUI_TASKS_OFFERED && slot->sent_ns >= 0) {
        int64_t ns = t->now.ns - slot->sent_ns;
        learn(t, &h->start, ns);
        learn(t, &t->start, ns);
        t->stats.start_ns = t->start.mean_ns;
        slot->sent_ns = t->now.ns;
    } else if (slot->state != RUI_TASKS_CLAIMED) { /* it may be said again */
        slot->sent_ns = -1;
    }
    slot->state = RUI_TASKS_CLAIMED;
}

static void done(ru_tasks *t, rui_tasks_peer *h, rui_tasks_slot *slot)
{
    if (slot->state == RUI_TASKS_CLAIMED && slot->sent_ns >= 0 && knows_speed(h)) {
        int64_t items = slot->range.hi - slot->range.lo;
        int64_t ns = t->now.ns - slot->sent_ns - items_ns(h, items);
        learn(t, &h->rest, ns > 0 ? ns : 0);
        learn(t, &t->rest, ns > 0 ? ns : 0);
    }
    slot->state = RUI_TASKS_FREE;
}

/* Items that this worker does until an answer can be here. */
static uint32_t ahead(const ru_tasks *t)
{
    const rui_tasks_delay answer = answer_of(t);
    int64_t n = t->item_ns > 0 ? (answer.mean_ns + 2 * answer.spread_ns) / t->item_ns : 0;
    int64_t all = n + ppm(t, t->rules->grain_ppm);
    return all > t->opt.items ? t->opt.items : (uint32_t)all;
}

static rui_tasks_slot *free_slot(rui_tasks_peer *h, uint32_t *which)
{
    for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
        if (h->slot[s].state == RUI_TASKS_FREE) {
            *which = s;
            return &h->slot[s];
        }
    }
    return NULL;
}

/* Slices under way come back at worst, and so do accepted numbers. */
static bool room(const ru_tasks *t)
{
    uint32_t most = RUI_TASKS_SLOTS * t->opt.n_helpers;
    return t->n_loose + most < RUI_TASKS_LOOSE_MAX && t->n_accepted + most < RU_TASKS_ACCEPTED_MAX;
}

/* Items of a helper's slices that are not done. */
static int64_t under_way(const rui_tasks_peer *h)
{
    int64_t n = 0;
    for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
        const rui_tasks_slot *slot = &h->slot[s];
        n += slot->state == RUI_TASKS_FREE ? 0 : slot->range.hi - slot->range.lo;
    }
    return n;
}

static void offer(ru_tasks *t, rui_tasks_peer *h, rui_tasks_slot *slot, uint32_t which,
                  uint32_t items)
{
    RU_CHECK(items >= 1 && items <= t->tail - t->pos && slot->state == RUI_TASKS_FREE);
    int64_t before = under_way(h); /* of the other slot: what a slice waits for there is known */
    slot->sent_ns = before > 0 ? -1 : t->now.ns;
    h->seq[which] += RUI_TASKS_SLOTS;
    slot->state = RUI_TASKS_OFFERED;
    slot->range = (ru_tasks_range){.owner = t->opt.me,
                                   .helper = h->id,
                                   .clock = t->clock,
                                   .seq = h->seq[which],
                                   .lo = t->tail - items,
                                   .hi = t->tail};
    t->tail -= items;
    h->told_ns = t->now.ns;
    ru_tasks_act *a = rui_tasks_send(t, h->id, RU_TASKS_DO_THIS, &slot->range);
    if (knows_speed(h)) {
        a->predicted_ns = delay_ns(t, h) + items_ns(h, before + items);
    }
}

/* Items for a helper that is `gap_ppm` ahead: what makes both even when it works as well, and no
 * more than what it has done when the rest is done here. At most the next size of slices. */
static uint32_t amount(const ru_tasks *t, const rui_tasks_peer *h, int64_t gap_ppm)
{
    int64_t rest = t->tail - t->pos, n = h->next_items;
    int64_t mine = t->item_ns > 0 ? t->item_ns : 1, its = h->item_ns > 0 ? h->item_ns : mine;
    gap_ppm = gap_ppm < GAP_PPM_MAX ? gap_ppm : GAP_PPM_MAX;
    gap_ppm = gap_ppm > -GAP_PPM_MAX ? gap_ppm : -GAP_PPM_MAX;
    int64_t even = gap_ppm * t->opt.items / RUI_TASKS_ONE / 2;
    double both = (double)mine + (double)its;
    double lost = t->item_ns > 0 ? (double)delay_ns(t, h) / both : 0;
    int64_t part = (int64_t)((double)rest * (double)mine / both - lost);
    even = (int64_t)((double)(even < rest / 2 ? even : rest / 2) - lost);
    part = h->idle || part < even ? part : even;
    n = part < n ? part : n;
    return n < 0 ? 0 : (uint32_t)n;
}

static int64_t progress_of(const ru_tasks *t, const rui_tasks_peer *h)
{
    return h->idle ? h->progress_ppm
                   : rui_tasks_expected(t, h->progress_ppm, h->clock_ns, h->heard_ns);
}

/* Is this worker behind the mean of those that can help it? One that is not does not hold up the
 * clock, however far a single helper is ahead: where speeds only fluctuate, one always is. */
static bool behind_mean(const ru_tasks *t)
{
    int64_t sum = 0, n = 0;
    for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
        const rui_tasks_peer *h = &t->helper[i];
        bool known = !h->dead && h->heard_ns > 0;
        sum += known ? progress_of(t, h) : 0;
        n += known ? 1 : 0;
    }
    int64_t least = t->rules->behind_ppm;
    return least == 0 || n == 0 || sum / n - rui_tasks_progress(t) > least;
}

void rui_tasks_consider(ru_tasks *t, rui_tasks_peer *h)
{
    uint32_t least = ppm(t, t->rules->least_ppm) + 1, which = 0;
    rui_tasks_slot *slot;
    while (t->open && !h->dead && room(t) && (slot = free_slot(h, &which)) != NULL) {
        uint32_t rest = t->tail - t->pos, most = ppm(t, t->rules->next_ppm) + 1;
        if (h->left > 0) {
            /* What it gets in every clock goes in as few slices as slots: each has its price. */
            uint32_t part = (h->grant + RUI_TASKS_SLOTS - 1) / RUI_TASKS_SLOTS;
            most = part > most ? part : most;
            uint32_t n = h->left < most ? h->left : most;
            n = n < rest ? n : rest;
            if (n == 0) {
                return;
            }
            h->left -= n;
            offer(t, h, slot, which, n);
            continue;
        }
        int64_t gap = progress_of(t, h) - rui_tasks_progress(t);
        uint32_t n = amount(t, h, gap);
        if (gap <= (h->idle ? t->rules->idle_ppm : t->rules->trigger_ppm) || n < least ||
            (!h->idle && !behind_mean(t))) {
            return;
        }
        h->next_items = 2 * h->next_items < most ? 2 * h->next_items : most;
        h->progress_ppm -= (int64_t)n * RUI_TASKS_ONE / t->opt.items; /* until it reports */
        offer(t, h, slot, which, n);
    }
}

void rui_tasks_consider_all(ru_tasks *t)
{
    for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
        rui_tasks_consider(t, &t->helper[i]);
    }
}

int64_t rui_tasks_spare(const ru_tasks *t)
{
    int64_t mine = rui_tasks_mine(t), want = ahead(t);
    bool offered = false;
    for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
        for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
            offered = offered || t->helper[i].slot[s].state == RUI_TASKS_OFFERED;
        }
    }
    return !offered || !t->open ? -1 : mine > want ? mine - want : 0;
}

/* Take back slices that nobody has begun before own work runs out, the ones next to the tail first.
 */
void rui_tasks_cancel(ru_tasks *t)
{
    uint32_t coming = rui_tasks_mine(t), want = ahead(t);
    for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
        for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
            const rui_tasks_slot *slot = &t->helper[i].slot[s];
            coming += slot->state == RUI_TASKS_CANCELLING ? slot->range.hi - slot->range.lo : 0;
        }
    }
    while (coming < want) {
        rui_tasks_slot *best = NULL;
        rui_tasks_peer *of = NULL;
        for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
            for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
                rui_tasks_slot *slot = &t->helper[i].slot[s];
                if (slot->state == RUI_TASKS_OFFERED &&
                    (best == NULL || slot->range.lo < best->range.lo)) {
                    best = slot;
                    of = &t->helper[i];
                }
            }
        }
        if (best == NULL) {
            return;
        }
        best->state = RUI_TASKS_CANCELLING;
        best->sent_ns = of->told_ns = t->now.ns;
        coming += best->range.hi - best->range.lo;
        rui_tasks_send(t, of->id, RU_TASKS_CANCEL, &best->range);
    }
}

static void take_back(ru_tasks *t, rui_tasks_slot *slot)
{
    RU_CHECK(t->n_loose < RUI_TASKS_LOOSE_MAX);
    t->loose[t->n_loose++] = slot->range;
    t->stats.reclaimed += slot->range.hi - slot->range.lo;
    slot->state = RUI_TASKS_FREE;
}

static void answered(ru_tasks *t, rui_tasks_peer *h, const ru_tasks_msg *m)
{
    rui_tasks_slot *slot = &h->slot[m->range.seq % RUI_TASKS_SLOTS];
    if (slot->state == RUI_TASKS_FREE || slot->range.seq != m->range.seq ||
        m->range.owner != t->opt.me) {
        return; /* repeated or late */
    }
    switch (m->kind) {
    case RU_TASKS_STARTED_WORKING:
        started(t, h, slot);
        break;
    case RU_TASKS_DONE_WORK:
        RU_CHECK(t->n_accepted < RU_TASKS_ACCEPTED_MAX && slot->range.clock == t->clock);
        t->accepted[t->n_accepted++] = slot->range;
        done(t, h, slot);
        break;
    case RU_TASKS_REFUSE:
    case RU_TASKS_CANCEL_OK:
        if (slot->state != RUI_TASKS_CLAIMED) {
            h->left = m->kind == RU_TASKS_REFUSE ? 0 : h->left;
            if (m->kind == RU_TASKS_CANCEL_OK && slot->sent_ns >= 0) {
                learn(t, &t->answer, t->now.ns - slot->sent_ns);
            }
            take_back(t, slot);
        }
        break;
    case RU_TASKS_STARTED:
    case RU_TASKS_THIS_FAR:
    case RU_TASKS_DO_THIS:
    case RU_TASKS_CANCEL:
    case RU_TASKS_ASK:
    case RU_TASKS_WANT:
    case RU_TASKS_KINDS:
        break;
    }
}

/* Pull style: half of what is left, if it takes longer than what passes before the helper begins.
 */
static void wanted(ru_tasks *t, rui_tasks_peer *h)
{
    uint32_t which = 0, rest = t->open ? t->tail - t->pos : 0;
    rui_tasks_slot *slot = free_slot(h, &which);
    bool late = t->item_ns > 0 && rest * t->item_ns < delay_ns(t, h);
    if (slot == NULL || !room(t) || rest / 2 < ppm(t, t->rules->least_ppm) + 1 || late) {
        const ru_tasks_range none = {.owner = t->opt.me, .helper = h->id, .clock = t->clock};
        rui_tasks_send(t, h->id, RU_TASKS_REFUSE, &none);
        return;
    }
    offer(t, h, slot, which, rest / 2);
}

void rui_tasks_owner_heard(ru_tasks *t, rui_tasks_peer *h, const ru_tasks_msg *m)
{
    if (m->kind == RU_TASKS_ASK) {
        rui_tasks_send(t, h->id, RU_TASKS_THIS_FAR, NULL);
        return;
    }
    if (m->kind == RU_TASKS_WANT) {
        wanted(t, h);
        return;
    }
    h->progress_ppm = m->progress_ppm;
    h->heard_ns = t->now.ns;
    h->clock_ns = m->item_ns < RUI_TASKS_ITEM_NS_MAX ? (double)m->item_ns * m->share : 0;
    h->item_ns = m->item_ns;
    h->idle = m->idle;
    if (m->kind != RU_TASKS_STARTED && m->kind != RU_TASKS_THIS_FAR) {
        answered(t, h, m);
    }
    if (t->rules->push) {
        rui_tasks_consider(t, h);
    }
}

void rui_tasks_helper_lost(ru_tasks *t, rui_tasks_peer *h)
{
    h->dead = true;
    h->grant = h->left = 0;
    for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
        if (h->slot[s].state != RUI_TASKS_FREE) {
            take_back(t, &h->slot[s]);
        }
    }
}

/* The clock waits for slices alone: after a while ask what became of them. */
void rui_tasks_ask_again(ru_tasks *t)
{
    const rui_tasks_delay answer = answer_of(t);
    int64_t every_ns = 2 * answer.mean_ns + 4 * answer.spread_ns + 1000000, next_ns = INT64_MAX;
    for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
        rui_tasks_peer *h = &t->helper[i];
        bool due = t->now.ns >= h->told_ns + every_ns, told = false;
        for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
            rui_tasks_slot *slot = &h->slot[s];
            if (slot->state == RUI_TASKS_FREE) {
                continue;
            }
            if (due) {
                bool first = slot->state == RUI_TASKS_OFFERED;
                slot->sent_ns = first ? t->now.ns : -1;
                slot->state = first ? RUI_TASKS_CANCELLING : slot->state;
                rui_tasks_send(t, h->id, RU_TASKS_CANCEL, &slot->range);
                told = true;
            }
            h->told_ns = told ? t->now.ns : h->told_ns;
            next_ns = h->told_ns + every_ns < next_ns ? h->told_ns + every_ns : next_ns;
        }
    }
    t->wake_ns = next_ns;
}
