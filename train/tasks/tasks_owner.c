/* The owner's side: when to hand a slice to whom, and what became of it. */
#include <stddef.h>

#include "train/tasks/tasks_impl.h"

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

/* Items that this worker does until an answer can be here. */
static uint32_t ahead(const ru_tasks *t)
{
    int64_t n = t->item_ns > 0 ? t->rules->rtt_ns / t->item_ns : 0;
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

static void offer(ru_tasks *t, rui_tasks_peer *h, rui_tasks_slot *slot, uint32_t which,
                  uint32_t items)
{
    RU_CHECK(items >= 1 && items <= t->tail - t->pos && slot->state == RUI_TASKS_FREE);
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
    rui_tasks_send(t, h->id, RU_TASKS_DO_THIS, &slot->range);
}

/* Items for a helper that is `gap_ppm` ahead: what makes both even when it works as well; when it
 * does not, its part of what is left by speed. At most the next size of slices. */
static uint32_t amount(const ru_tasks *t, const rui_tasks_peer *h, int64_t gap_ppm)
{
    int64_t rest = t->tail - t->pos, n = h->next_items;
    int64_t mine = t->item_ns > 0 ? t->item_ns : 1, its = h->item_ns > 0 ? h->item_ns : mine;
    int64_t even = gap_ppm * t->opt.items / RUI_TASKS_ONE / 2;
    int64_t part = (int64_t)((double)rest * (double)mine / ((double)mine + (double)its));
    part = h->idle ? part : even < rest / 2 ? even : rest / 2;
    n = part < n ? part : n;
    return n < 0 ? 0 : (uint32_t)n;
}

/* Would the rest take so long that an answer comes in time? */
static bool far_from_end(const ru_tasks *t)
{
    return (t->tail - t->pos) * t->item_ns >= 2 * t->rules->rtt_ns || t->item_ns == 0;
}

void rui_tasks_consider(ru_tasks *t, rui_tasks_peer *h)
{
    uint32_t least = ppm(t, t->rules->least_ppm) + 1, which = 0;
    rui_tasks_slot *slot;
    while (t->open && !h->dead && room(t) && (slot = free_slot(h, &which)) != NULL) {
        uint32_t rest = t->tail - t->pos, most = ppm(t, t->rules->next_ppm) + 1;
        if (h->left > 0) {
            uint32_t n = h->left < most ? h->left : most;
            n = n < rest ? n : rest;
            if (n == 0) {
                return;
            }
            h->left -= n;
            offer(t, h, slot, which, n);
            continue;
        }
        int64_t its = h->idle ? h->progress_ppm
                              : rui_tasks_expected(t, h->progress_ppm, h->clock_ns, h->heard_ns);
        int64_t gap = its - rui_tasks_progress(t);
        uint32_t n = amount(t, h, gap);
        if (gap <= (h->idle ? t->rules->idle_ppm : t->rules->trigger_ppm) || n < least ||
            !far_from_end(t)) {
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
        of->told_ns = t->now.ns;
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
        slot->state = RUI_TASKS_CLAIMED;
        break;
    case RU_TASKS_DONE_WORK:
        RU_CHECK(t->n_accepted < RU_TASKS_ACCEPTED_MAX && slot->range.clock == t->clock);
        t->accepted[t->n_accepted++] = slot->range;
        slot->state = RUI_TASKS_FREE;
        break;
    case RU_TASKS_REFUSE:
    case RU_TASKS_CANCEL_OK:
        if (slot->state != RUI_TASKS_CLAIMED) {
            h->left = m->kind == RU_TASKS_REFUSE ? 0 : h->left;
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

/* Pull style: half of what is left, if the tail is still far. */
static void wanted(ru_tasks *t, rui_tasks_peer *h)
{
    uint32_t which = 0, rest = t->open ? t->tail - t->pos : 0;
    rui_tasks_slot *slot = free_slot(h, &which);
    if (slot == NULL || !room(t) || rest / 2 < ppm(t, t->rules->least_ppm) + 1 ||
        !far_from_end(t)) {
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
    h->clock_ns = m->item_ns < INT64_C(1000000000000) ? m->item_ns * m->share : 0;
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
    int64_t every_ns = 4 * t->rules->rtt_ns + 1000000, next_ns = INT64_MAX;
    for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
        rui_tasks_peer *h = &t->helper[i];
        bool due = t->now.ns >= h->told_ns + every_ns, told = false;
        for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
            rui_tasks_slot *slot = &h->slot[s];
            if (slot->state == RUI_TASKS_FREE) {
                continue;
            }
            if (due) {
                slot->state = slot->state == RUI_TASKS_OFFERED ? RUI_TASKS_CANCELLING : slot->state;
                rui_tasks_send(t, h->id, RU_TASKS_CANCEL, &slot->range);
                told = true;
            }
            h->told_ns = told ? t->now.ns : h->told_ns;
            next_ns = h->told_ns + every_ns < next_ns ? h->told_ns + every_ns : next_ns;
        }
    }
    t->out->wake_ns = next_ns;
}
