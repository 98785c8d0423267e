/* Steps of a member: gradients leave as they become ready, sums come back, COMMIT, update.
 *
 *   depth 1   begin(k) .. computed, sums: DONE(k); COMMIT(k): update(k); updated: begin(k + 1)
 *   depth 2   begin(k) .. computed: begin(k + 1) while the last sums of k arrive
 *             sums: DONE(k); COMMIT(k): update(k); updated: k + 1 is the older one now
 *
 * DONE(k + 1) follows COMMIT(k) and its update, and so does begin(k + 2). So the leader counts
 * DONEs of one step at a time. A step begins ahead of the commit before it only if all members
 * know, or need not know, that it will be of this view: COMMIT(k) says that a view follows k + 1;
 * the last step, a step with another batch and steps while a joiner takes state are known to all.
 * Who began one that is not of this view aborts it. */
#include "base/log.h"
#include "train/elastic/elastic_impl.h"

/* -- how many ------------------------------------------------------------------------------------
 */

uint32_t rui_el_depth(const ru_elastic *e, const char **why)
{
    const ru_elastic_device *d = &e->opt.device;
    if (e->opt.barrier) {
        *why = "the job asks for it";
        return 1;
    }
    if (d->ops->depth == NULL || d->ops->summed == NULL) {
        *why = "the device finishes a step before it begins the next";
        return 1;
    }
    return d->ops->depth(d->self, why) > 1 ? 2 : 1;
}

const char *rui_el_barrier(const ru_elastic *e)
{
    const ru_elastic_device *d = &e->opt.device;
    int64_t next = e->step + 1;
    if (e->steps.depth < 2) {
        return e->steps.why;
    }
    if (e->v.takers > 0) {
        return "a new worker receives the state";
    }
    if (rui_el_over(e, next)) {
        return "it is the last step";
    }
    if (rui_el_batch_at(e, e->position + e->v.batch) != e->v.batch) {
        return "the next step has another batch";
    }
    if (next >= e->steps.held_from) {
        return "the workers or their shares change";
    }
    return d->ops->barrier != NULL ? d->ops->barrier(d->self, e->step) : NULL;
}

/* -- a step --------------------------------------------------------------------------------------
 */

/* What members tell from now on is of another step. */
static void next_counts(ru_elastic *e)
{
    e->lead.n_done = 0;
    e->lead.longest_now_ns = 0;
    rui_el_sums_next(e);
}

void rui_el_step_begin(ru_elastic *e, ru_time now, ru_effects *fx)
{
    bool first = e->steps.n == 0;
    RU_CHECK(first ? e->phase == RUI_EL_READY || e->phase == RUI_EL_IDLE
                   : e->phase == RUI_EL_STEP && e->steps.n == 1 && !e->steps.updating);
    int64_t step = e->step + e->steps.n;
    e->steps.at[step % 2] = (rui_el_step){.begun_ns = now.ns};
    e->steps.n++;
    e->phase = RUI_EL_STEP;
    if (first) {
        next_counts(e);
        e->x->step_begin(e);
        rui_el_state_begin(e, now, fx);
    }
    if (e->phase == RUI_EL_STEP) {
        ru_share share = e->v.at[e->v.me].share;
        share.at = e->position + (first ? 0 : e->v.batch) + share.first;
        share.done = rui_el_progress(e, step);
        share.gain = e->v.gain;
        e->opt.device.ops->step(e->opt.device.self, step, &share);
    }
}

void rui_el_step_ahead(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (e->phase == RUI_EL_STEP && e->steps.n == 1 && !e->steps.updating &&
        rui_el_older(e)->computed && !e->ending && !rui_el_stale(e) && rui_el_barrier(e) == NULL) {
        rui_el_step_begin(e, now, fx);
    }
}

void ru_elastic_ready(ru_elastic *e, int64_t step, uint32_t k, const ru_span *span, ru_time now,
                      ru_effects *fx)
{
    if (rui_el_under_way(e, step)) { /* else it was aborted meanwhile */
        e->x->ready(e, step, k, span, now, fx);
    }
}

void ru_elastic_computed(ru_elastic *e, int64_t step, ru_status st, int64_t compute_ns, ru_time now,
                         ru_effects *fx)
{
    if (!rui_el_under_way(e, step)) {
        return; /* it was aborted meanwhile */
    }
    if (st != RU_OK) {
        rui_el_device_failed(e, st, "computing", step, NULL, now, fx);
        return;
    }
    rui_el_step *s = &e->steps.at[step % 2];
    s->computed = true;
    s->compute_ns = compute_ns;
    /* Of one that began ahead, part of the time was for the sums of the step before. */
    e->work_ns += e->steps.depth > 1 ? compute_ns : now.ns - s->begun_ns;
    rui_el_step_check(e, now, fx);
    rui_el_step_ahead(e, now, fx);
}

void rui_el_step_check(ru_elastic *e, ru_time now, ru_effects *fx)
{
    rui_el_step *s = rui_el_older(e);
    if (e->phase != RUI_EL_STEP || s->done_sent || !s->computed || e->steps.updating ||
        !e->x->all_in(e, e->step) || e->mover.in_left > 0) {
        return;
    }
    s->done_sent = true;
    rui_el_sums_done(e);
    const ru_share *part = &e->v.at[e->v.me].share;
    uint8_t buf[64 + 4 * RUI_EL_TOLD_MAX];
    ru_wire_out w = rui_el_word(e, buf, sizeof buf);
    ru_wire_put_u64(&w, (uint64_t)e->step);
    ru_wire_put_u64(&w, (uint64_t)part->first);
    ru_wire_put_u64(&w, (uint64_t)part->n);
    ru_wire_put_u64(&w, (uint64_t)s->compute_ns);
    if (e->v.servers > 0) {
        ru_coll_size size;
        ru_coll_needs(e->reduce.group, &size);
        ru_wire_put_u64(&w, (uint64_t)size.scratch_bytes);
    }
    rui_el_sums_tell(e, &w);
    rui_el_say(e, RUI_EL_DONE_MSG, &w, now, fx);
}

void rui_el_commit(ru_elastic *e, ru_time now, ru_effects *fx)
{
    RU_CHECK(e->phase == RUI_EL_STEP && rui_el_older(e)->done_sent && !e->steps.updating);
    int64_t step = e->step;
    rui_el_state_commit(e);
    e->committed = ++e->step;
    e->position += e->v.batch;
    e->progress_ns = now.ns;
    e->phase = --e->steps.n > 0 ? RUI_EL_STEP : RUI_EL_UPDATE;
    e->steps.updating = true;
    next_counts(e);
    rui_el_status_set(e, now, fx);
    int64_t took = e->lead.commit_ns > 0 ? now.ns - e->lead.commit_ns : 0;
    e->lead.commit_ns = now.ns;
    e->lead.step_ns = e->lead.step_ns == 0 ? took : e->lead.step_ns + (took - e->lead.step_ns) / 8;
    e->opt.device.ops->update(e->opt.device.self, step);
    rui_el_news(e, RU_ELASTIC_COMMITTED, took, e->v.workers, now);
}

/* The device kept the update before the step under way. */
static void updated_below(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (rui_el_stale(e)) {
        rui_el_settle(e, now, fx);
        return;
    }
    e->x->updated(e);
    rui_el_step_check(e, now, fx);
    rui_el_step_ahead(e, now, fx);
}

void ru_elastic_updated(ru_elastic *e, int64_t step, ru_status st, ru_time now, ru_effects *fx)
{
    if (e->phase == RUI_EL_ENDED || !e->steps.updating || step != e->step - 1) {
        return;
    }
    e->steps.updating = false;
    if (st != RU_OK) {
        rui_el_device_failed(e, st, "updating after", step, NULL, now, fx);
        return;
    }
    if (e->ending && !e->said_end && e->phase == RUI_EL_STEP) { /* it began ahead, for nothing */
        rui_el_abort(e, now);
        return;
    }
    if (e->ending && !e->said_end) {
        rui_el_end(e, e->end_status, e->end_text, now, fx);
        return;
    }
    if (e->phase == RUI_EL_STEP) {
        updated_below(e, now, fx);
        return;
    }
    e->phase = RUI_EL_IDLE;
    if (e->ending) { /* the leader: until all said goodbye */
        (void)rui_el_lead_ends(e, now, fx);
    } else if (rui_el_stale(e)) {
        rui_el_settle(e, now, fx);
    } else if (!rui_el_held(e)) {
        rui_el_step_begin(e, now, fx);
    }
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
