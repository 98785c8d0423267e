/* One step of a member: gradients leave as they become ready, sums come back, COMMIT, update. */
#include "base/log.h"
#include "train/elastic/elastic_impl.h"

void rui_el_step_begin(ru_elastic *e, ru_time now, ru_effects *fx)
{
    RU_CHECK(e->phase == RUI_EL_READY || e->phase == RUI_EL_IDLE);
    e->phase = RUI_EL_STEP;
    e->computed = e->done_sent = false;
    e->compute_ns = 0;
    e->begun_ns = now.ns;
    e->lead.n_done = 0;
    e->lead.longest_now_ns = 0;
    e->begun++;
    ru_chan_step(e->opt.chan, (uint32_t)e->step);
    e->x->step_begin(e);
    rui_el_state_begin(e, now, fx);
    if (e->phase == RUI_EL_STEP) {
        ru_share share = e->v.at[e->v.me].share;
        share.at = e->position + share.first;
        e->opt.device.ops->step(e->opt.device.self, e->step, &share);
    }
}

void ru_elastic_ready(ru_elastic *e, int64_t step, uint32_t k, const ru_span *span, ru_time now,
                      ru_effects *fx)
{
    if (e->phase != RUI_EL_STEP || step != e->step) {
        return; /* of a step that was aborted meanwhile */
    }
    e->x->ready(e, k, span, now, fx);
}

void rui_el_step_check(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (e->phase != RUI_EL_STEP || e->done_sent || !e->computed || !e->x->all_in(e) ||
        e->mover.in_left > 0) {
        return;
    }
    e->done_sent = true;
    rui_el_tell(e, RUI_EL_DONE_MSG, now, fx);
}

void rui_el_commit(ru_elastic *e, ru_time now, ru_effects *fx)
{
    RU_CHECK(e->phase == RUI_EL_STEP && e->done_sent);
    int64_t step = e->step;
    rui_el_state_commit(e);
    e->committed = ++e->step;
    e->position += e->v.batch;
    e->progress_ns = now.ns;
    e->phase = RUI_EL_UPDATE;
    rui_el_status_set(e, now, fx);
    int64_t took = e->lead.commit_ns > 0 ? now.ns - e->lead.commit_ns : 0;
    e->lead.commit_ns = now.ns;
    e->lead.step_ns = e->lead.step_ns == 0 ? took : e->lead.step_ns + (took - e->lead.step_ns) / 8;
    e->opt.device.ops->update(e->opt.device.self, step);
    rui_el_news(e, RU_ELASTIC_COMMITTED, took, e->v.workers, now);
}

/* -- upcalls of the channel ----------------------------------------------------------------------
 */

void rui_el_sent(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    ru_elastic *e = self;
    e->fx = fx;
    if (rui_el_state_owns(cookie)) {
        rui_el_state_sent(e, cookie);
    } else if (!e->x->sent(e, cookie, now)) {
        rui_el_settle(e, now, fx); /* may wait for memory that the link read */
    }
}

void rui_el_arrived(void *self, uint64_t cookie, ru_time now, ru_effects *fx)
{
    ru_elastic *e = self;
    e->fx = fx;
    if (rui_el_state_owns(cookie)) {
        rui_el_state_arrived(e, cookie, now, fx);
    } else {
        e->x->arrived(e, cookie, now);
    }
}

void rui_el_room(void *self, ru_time now, ru_effects *fx)
{
    ru_elastic *e = self;
    e->fx = fx;
    e->x->room(e, now);
}

void rui_el_failed(void *self, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx)
{
    ru_elastic *e = self;
    e->fx = fx;
    if (rui_el_state_owns(cookie)) {
        rui_el_state_failed(e, cookie, why, now, fx);
    } else if (!e->x->failed(e, cookie, why, now)) {
        rui_el_settle(e, now, fx); /* may wait for memory that the link read */
    }
}
