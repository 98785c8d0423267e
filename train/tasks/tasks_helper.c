/* The helper's side: slices that are queued, begun, done, and what is answered about them. */
#include <stddef.h>

#include "train/tasks/tasks_impl.h"

void rui_tasks_report(ru_tasks *t, ru_tasks_kind kind)
{
    t->told_ppm = rui_tasks_progress(t);
    t->told_clock_ns = (double)t->item_ns * rui_tasks_share(t);
    t->told_ns = t->now.ns;
    for (uint32_t i = 0; i < t->opt.n_helpees; i++) {
        if (!t->helpee[i].dead) {
            rui_tasks_send(t, t->helpee[i].id, kind, NULL);
        }
    }
}

uint32_t rui_tasks_taken_on(const ru_tasks *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->opt.n_helpees; i++) {
        for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
            const rui_tasks_slot *slot = &t->helpee[i].slot[s];
            bool to_do = slot->state == RUI_TASKS_QUEUED || slot->state == RUI_TASKS_WORKING;
            n += to_do ? slot->range.hi - slot->at : 0;
        }
    }
    return n;
}

static bool ready(const ru_tasks *t, const rui_tasks_slot *slot)
{
    bool fresh = t->closed_by_all + t->rules->slack >= slot->range.clock;
    return slot->state == RUI_TASKS_QUEUED && fresh;
}

bool rui_tasks_waits(const ru_tasks *t)
{
    for (uint32_t i = 0; i < t->opt.n_helpees; i++) {
        for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
            if (ready(t, &t->helpee[i].slot[s])) {
                return true;
            }
        }
    }
    return false;
}

/* The newest whose clock this worker's copy of the parameters is fresh
 * enough for, which is claimed then. */
rui_tasks_slot *rui_tasks_next_slice(ru_tasks *t)
{
    rui_tasks_slot *best = NULL;
    for (uint32_t i = 0; i < t->opt.n_helpees; i++) {
        for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
            rui_tasks_slot *slot = &t->helpee[i].slot[s];
            if (ready(t, slot) && (best == NULL || slot->came > best->came)) {
                best = slot;
            }
        }
    }
    if (best != NULL) {
        best->state = RUI_TASKS_WORKING;
        rui_tasks_send(t, best->range.owner, RU_TASKS_STARTED_WORKING, &best->range);
    }
    return best;
}

/* What became of the slice of this slot. */
static void answer(ru_tasks *t, const rui_tasks_slot *slot)
{
    static const ru_tasks_kind said[] = {[RUI_TASKS_WORKING] = RU_TASKS_STARTED_WORKING,
                                         [RUI_TASKS_FLUSHING] = RU_TASKS_STARTED_WORKING,
                                         [RUI_TASKS_ENDED] = RU_TASKS_DONE_WORK,
                                         [RUI_TASKS_UNDONE] = RU_TASKS_CANCEL_OK};
    if (slot->state != RUI_TASKS_NEVER && slot->state != RUI_TASKS_QUEUED) {
        rui_tasks_send(t, slot->range.owner, said[slot->state], &slot->range);
    }
}

static void refuse(ru_tasks *t, rui_tasks_slot *slot)
{
    slot->state = RUI_TASKS_UNDONE;
    rui_tasks_send(t, slot->range.owner, RU_TASKS_REFUSE, &slot->range);
}

void rui_tasks_refuse_all(ru_tasks *t)
{
    for (uint32_t i = 0; i < t->opt.n_helpees; i++) {
        for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
            if (t->helpee[i].slot[s].state == RUI_TASKS_QUEUED) {
                refuse(t, &t->helpee[i].slot[s]);
            }
        }
    }
}

static void do_this(ru_tasks *t, rui_tasks_peer *o, rui_tasks_slot *slot, const ru_tasks_msg *m)
{
    if (m->range.seq == slot->range.seq && slot->state != RUI_TASKS_NEVER) {
        answer(t, slot); /* repeated */
        return;
    }
    slot->state = RUI_TASKS_QUEUED;
    slot->range = m->range;
    slot->at = m->range.lo;
    slot->came = ++t->arrivals;
    uint32_t n = m->range.hi - m->range.lo;
    if (t->leaves) {
        refuse(t, slot);
        return;
    }
    if (o->left > 0) { /* as the policy planned */
        o->left -= n < o->left ? n : o->left;
        return;
    }
    if (t->rules->push && rui_tasks_progress(t) <= m->progress_ppm) {
        refuse(t, slot);
    }
}

static void cancel(ru_tasks *t, rui_tasks_slot *slot, const ru_tasks_msg *m)
{
    bool unknown = m->range.seq != slot->range.seq || slot->state == RUI_TASKS_NEVER;
    if (unknown || slot->state == RUI_TASKS_QUEUED) {
        slot->state = RUI_TASKS_UNDONE; /* also of what comes later under this number */
        slot->range = m->range;
    }
    answer(t, slot);
}

void rui_tasks_helper_heard(ru_tasks *t, rui_tasks_peer *o, const ru_tasks_msg *m)
{
    if (m->kind == RU_TASKS_THIS_FAR || (m->kind == RU_TASKS_REFUSE && m->range.seq == 0)) {
        o->progress_ppm = m->progress_ppm;
        o->idle = m->idle || m->kind == RU_TASKS_REFUSE;
        o->answered = true;
        return;
    }
    rui_tasks_slot *slot = &o->slot[m->range.seq % RUI_TASKS_SLOTS];
    bool hers = m->range.owner == o->id && m->range.helper == t->opt.me &&
                m->range.lo < m->range.hi && m->range.hi <= RU_REASSIGN_ITEMS_MAX &&
                m->range.seq >= RUI_TASKS_SLOTS;
    bool busy = slot->state == RUI_TASKS_QUEUED || slot->state == RUI_TASKS_WORKING ||
                slot->state == RUI_TASKS_FLUSHING;
    if (!hers || m->range.seq < slot->range.seq || (m->range.seq > slot->range.seq && busy)) {
        return; /* late, or of no slice that can be */
    }
    if (m->kind == RU_TASKS_DO_THIS) {
        do_this(t, o, slot, m);
    } else {
        cancel(t, slot, m);
    }
}

void rui_tasks_flushed(ru_tasks *t, const ru_tasks_range *r)
{
    rui_tasks_peer *o = rui_tasks_peer_of(t->helpee, t->opt.n_helpees, r->owner);
    rui_tasks_slot *slot = o != NULL ? &o->slot[r->seq % RUI_TASKS_SLOTS] : NULL;
    if (slot == NULL || slot->state != RUI_TASKS_FLUSHING || slot->range.seq != r->seq) {
        return;
    }
    slot->state = RUI_TASKS_ENDED;
    rui_tasks_send(t, o->id, RU_TASKS_DONE_WORK, &slot->range);
}

/* Pull style: with nothing to do ask everybody; when all have answered, want half of what the one
 * that is farthest behind has left. */
void rui_tasks_pull(ru_tasks *t)
{
    uint32_t missing = 0;
    rui_tasks_peer *worst = NULL;
    for (uint32_t i = 0; i < t->opt.n_helpees; i++) {
        rui_tasks_peer *o = &t->helpee[i];
        missing += !o->dead && !o->answered ? 1 : 0;
        bool behind =
            !o->dead && !o->idle && o->progress_ppm < rui_tasks_progress(t) - t->rules->idle_ppm;
        worst = behind && (worst == NULL || o->progress_ppm < worst->progress_ppm) ? o : worst;
    }
    int64_t every_ns = 4 * t->rules->rtt_ns + 1000000;
    bool again = t->asked && missing == 0 && worst == NULL && t->now.ns >= t->idle_ns + every_ns;
    if (!t->asked || again) {
        t->asked = true;
        t->idle_ns = again ? t->now.ns : t->idle_ns;
        for (uint32_t i = 0; i < t->opt.n_helpees; i++) {
            t->helpee[i].answered = false;
            if (!t->helpee[i].dead) {
                rui_tasks_send(t, t->helpee[i].id, RU_TASKS_ASK, NULL);
            }
        }
    } else if (missing == 0 && worst != NULL) {
        worst->answered = false; /* until it refuses, or its slice is done */
        rui_tasks_send(t, worst->id, RU_TASKS_WANT, NULL);
    } else if (missing == 0) {
        t->wake_ns = t->idle_ns + every_ns;
    }
}
