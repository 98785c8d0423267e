/* One step of a member: gradients leave as they become ready, sums come back, COMMIT, update. */
#include <string.h>

#include "base/log.h"
#include "train/elastic/elastic_impl.h"

void rui_el_step_begin(ru_elastic *e, ru_time now, ru_effects *fx)
{
    RU_CHECK(e->phase == RUI_EL_READY || e->phase == RUI_EL_IDLE);
    e->phase = RUI_EL_STEP;
    e->computed = e->done_sent = false;
    e->batches_done = 0;
    e->compute_ns = 0;
    e->n_done = 0;
    e->longest_now_ns = 0;
    e->begun++;
    for (uint32_t b = 0; b < e->n_batches; b++) {
        e->left[b] = e->batches[b].part.n;
    }
    rui_el_sums_clear(e);
    memset(e->tensor_in, 0, e->opt.n_tensors * sizeof *e->tensor_in);
    rui_el_state_begin(e, now, fx);
    if (e->phase == RUI_EL_STEP) {
        ru_share share = e->v.at[e->v.me].share;
        share.at = e->position + share.first;
        e->opt.device.ops->step(e->opt.device.self, e->step, &share);
    }
}

/* Over the network there is time to; a joiner's parameters are still on their way, and memory is
 * what workers of one host wait for. */
static bool may_update_early(const ru_elastic *e)
{
    return e->opt.device.ops->summed != NULL && e->v.n > 1 && !e->v.local && e->mover.has_state &&
           e->mover.n_in == 0;
}

static void batch_done(ru_elastic *e, uint32_t b, ru_time now, ru_effects *fx)
{
    const ru_elastic_part *p = &e->batches[b].part;
    if (e->v.n > 1) {
        rui_el_sum_done(e, b, now);
    }
    if (may_update_early(e)) {
        const ru_elastic_device *d = &e->opt.device;
        for (uint32_t k = p->first; k < p->first + p->n; k++) {
            d->ops->summed(d->self, k, p->offset_bytes,
                           p->n == 1 ? p->size_bytes : e->opt.tensor_bytes[k]);
        }
    }
    e->batches_done++;
    e->progress_ns = now.ns;
    rui_el_step_check(e, now, fx);
}

/* All of batch b is ready here. */
static void batch_ready(ru_elastic *e, uint32_t b, ru_time now, ru_effects *fx)
{
    if (e->v.n == 1) {
        batch_done(e, b, now, fx);
        return;
    }
    rui_el_batch *batch = &e->batches[b];
    rui_el_sum_begin(e, b, now);
    if (e->v.local && e->local_open && !rui_el_stale(e)) {
        e->opt.device.ops->local_reduce(e->opt.device.self, b, &batch->part, (uint32_t)e->step);
        return;
    }
    if (e->group == NULL || rui_el_stale(e)) {
        return; /* this step will be aborted */
    }
    const ru_span *spans = &e->spans[batch->part.first];
    if (batch->part.size_bytes < spans->size_bytes) {
        uint8_t *data = spans->data;
        batch->cut = (ru_span){.data = data == NULL ? NULL : data + batch->part.offset_bytes,
                               .size_bytes = batch->part.size_bytes};
        spans = &batch->cut;
    }
    ru_err err;
    e->fx = fx;
    ru_status st = ru_coll_begin(e->group, b, (uint32_t)e->step, spans, batch->part.n, (ru_time){0},
                                 now, &err);
    if (st != RU_OK && st != RU_E_PEER) { /* a lost peer: the membership hears of it as well */
        ru_fx_log(fx, RU_LOG_ERROR, "step %lld: %s", (long long)e->step + 1, err.text);
        rui_el_device_failed(e, st, "starting a sum of", now, fx);
    }
}

void ru_elastic_ready(ru_elastic *e, uint32_t k, const ru_span *span, ru_time now, ru_effects *fx)
{
    if (e->phase != RUI_EL_STEP) {
        return; /* of a step that was aborted meanwhile */
    }
    RU_CHECK(k < e->opt.n_tensors && !e->tensor_in[k] &&
             span->size_bytes == e->opt.tensor_bytes[k]);
    e->tensor_in[k] = true;
    e->spans[k] = *span;
    for (uint32_t b = e->batch_of[k]; b < e->n_batches && rui_el_holds(&e->batches[b], k); b++) {
        if (--e->left[b] == 0) {
            batch_ready(e, b, now, fx);
        }
    }
}

void ru_elastic_reduced(ru_elastic *e, uint32_t batch, ru_time now, ru_effects *fx)
{
    RU_CHECK(batch < e->n_batches);
    if (e->phase == RUI_EL_STEP && e->local_open) {
        batch_done(e, batch, now, fx);
    }
}

void rui_el_step_check(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (e->phase != RUI_EL_STEP || e->done_sent || !e->computed || e->batches_done < e->n_batches ||
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
    int64_t took = e->commit_ns > 0 ? now.ns - e->commit_ns : 0;
    e->commit_ns = now.ns;
    e->step_ns = e->step_ns == 0 ? took : e->step_ns + (took - e->step_ns) / 8;
    e->opt.device.ops->update(e->opt.device.self, step);
    rui_el_news(e, RU_ELASTIC_COMMITTED, took, e->v.workers, now);
}

/* -- upcalls of the group ------------------------------------------------------------------------
 */

static void group_done(void *self, uint32_t batch, uint32_t iter, ru_time now)
{
    ru_elastic *e = self;
    RU_CHECK(batch < e->n_batches);
    if (e->phase == RUI_EL_STEP && iter == (uint32_t)e->step) {
        batch_done(e, batch, now, e->fx);
    }
}

static void group_failed(void *self, ru_node_id peer, ru_status why, ru_time now)
{
    ru_elastic *e = self;
    rui_el_lost(e, peer, why, now);
}

const ru_coll_user *rui_el_coll_user(void)
{
    static const ru_coll_user user = {.done = group_done, .failed = group_failed};
    return &user;
}

/* Members of a host map each other's memory, each in its time, and open the group then; who is
 * through with its computing may speak of its sums before another has opened. Its word is kept: it
 * is said once. Before others do their part it says no more than one for each lane. */
static bool keep_word(ru_elastic *e, const ru_event *ev)
{
    ru_wire_in w = ru_wire_in_from(ev->data, ev->size_bytes);
    bool near = false,
         early = e->group == NULL && e->words != NULL && ru_wire_u32(&w) == e->v.epoch;
    for (uint32_t i = 0; early && !near && i < e->v.n; i++) {
        near = ru_node_is(e->v.at[i].node, ev->node) && e->v.at[i].host == e->v.at[e->v.me].host;
    }
    if (!near) {
        return false;
    }
    int64_t bytes = (int64_t)sizeof(rui_el_word) + (ev->size_bytes + 7) / 8 * 8;
    if (bytes > RUI_EL_WORDS_BYTES - e->words_bytes) {
        rui_el_lost(e, ev->node, RU_E_LIMIT, ev->now);
        return true;
    }
    const rui_el_word head = {.from = ev->node, .size_bytes = ev->size_bytes};
    memcpy(e->words + e->words_bytes, &head, sizeof head);
    memcpy(e->words + e->words_bytes + sizeof head, ev->data, (size_t)ev->size_bytes);
    e->words_bytes += bytes;
    return true;
}

void rui_el_groups_hear_early(ru_elastic *e, ru_time now, ru_effects *fx)
{
    e->fx = fx;
    int64_t end = e->words_bytes;
    e->words_bytes = 0;
    for (int64_t at = 0; at < end && e->group != NULL;) {
        rui_el_word head;
        memcpy(&head, e->words + at, sizeof head);
        ru_coll_heard(e->group, head.from, e->words + at + sizeof head, head.size_bytes, now);
        at += (int64_t)sizeof head + (head.size_bytes + 7) / 8 * 8;
    }
}

void rui_el_groups_hear(ru_elastic *e, const ru_event *ev, ru_effects *fx)
{
    e->fx = fx;
    if (keep_word(e, ev)) {
        return;
    }
    if (e->group != NULL) {
        ru_coll_heard(e->group, ev->node, ev->data, ev->size_bytes, ev->now);
    }
    if (e->probe != NULL) {
        ru_coll_heard(e->probe, ev->node, ev->data, ev->size_bytes, ev->now);
    }
}

/* NULL: of a group that is closed. */
static ru_coll *group_of(ru_elastic *e, uint64_t cookie)
{
    if (e->group != NULL && ru_coll_owns(e->group, cookie)) {
        return e->group;
    }
    return e->probe != NULL && ru_coll_owns(e->probe, cookie) ? e->probe : NULL;
}

void ru_elastic_sent(ru_elastic *e, uint64_t cookie, ru_time now, ru_effects *fx)
{
    e->fx = fx;
    if (!rui_el_state_owns(cookie)) {
        ru_coll *group = group_of(e, cookie);
        if (group != NULL) {
            ru_coll_sent(group, cookie, now);
        } else {
            rui_el_settle(e, now, fx); /* may wait for memory that the link read */
        }
        return;
    }
    rui_el_state_sent(e, cookie);
}

void ru_elastic_arrived(ru_elastic *e, uint64_t cookie, ru_time now, ru_effects *fx)
{
    e->fx = fx;
    if (!rui_el_state_owns(cookie)) {
        ru_coll *group = group_of(e, cookie);
        if (group != NULL) {
            ru_coll_arrived(group, cookie, now);
        }
        return;
    }
    rui_el_state_arrived(e, cookie, now, fx);
}

void ru_elastic_room(ru_elastic *e, ru_time now, ru_effects *fx)
{
    e->fx = fx;
    if (e->group != NULL) {
        ru_coll_room(e->group, now);
    }
    if (e->probe != NULL) {
        ru_coll_room(e->probe, now);
    }
}

void ru_elastic_failed(ru_elastic *e, uint64_t cookie, ru_status why, ru_time now, ru_effects *fx)
{
    e->fx = fx;
    if (!rui_el_state_owns(cookie)) {
        ru_coll *group = group_of(e, cookie);
        if (group != NULL) {
            ru_coll_xfer_failed(group, cookie, why, now);
        } else {
            rui_el_settle(e, now, fx); /* may wait for memory that the link read */
        }
        return;
    }
    rui_el_state_failed(e, cookie, why, now, fx);
}
