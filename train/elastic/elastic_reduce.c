/* The exchange by all-reduce: gradients leave in buckets as they become ready, each is summed by
 * the group of the view (elastic_view.c) or in shared memory, and all sums are in place before a
 * step is DONE. A step that began ahead has its first gradient when all sums of the step before are
 * in place, so that one set of buckets is enough. */
#include <string.h>

#include "base/log.h"
#include "train/elastic/elastic_impl.h"

/* A sum goes before those under way that are so many times its size (is_full). In virtual time, 14
 * graphs on links of 200 Mbit/s, 0.02 and 0.33 ms: with 4 steps take 0.81 to 1.02 times as long as
 * where all wait, 0.98 in the mean; with 3 up to 1.04; with 8 one small sum waits for a large one
 * as before (0.12 s of 0.6). */
enum { MUCH_LARGER = 4 };

/* -- opening -------------------------------------------------------------------------------------
 */

static ru_status reduce_open(ru_elastic *e, ru_err *err)
{
    RU_TRY(rui_el_rule_open(e, err));
    e->reduce.spans = RU_NEW(e->arena, ru_span, e->opt.n_tensors);
    e->reduce.tensor_in = RU_NEW(e->arena, bool, e->opt.n_tensors);
    if (e->reduce.spans == NULL || e->reduce.tensor_in == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for elastic training");
    }
    return RU_OK;
}

static void reduce_close(ru_elastic *e)
{
    ru_coll_close(e->reduce.group, (ru_time){0});
    ru_coll_close(e->reduce.probe, (ru_time){0});
}

/* -- a view --------------------------------------------------------------------------------------
 */

static ru_status view_taken(ru_elastic *e, ru_arena *arena, ru_err *err)
{
    e->reduce.kept = e->v.near ? ru_arena_alloc(arena, RUI_EL_KEPT_BYTES, 8) : NULL;
    e->reduce.kept_bytes = 0;
    return rui_el_table_set(e, e->reduce.rule, e->reduce.n_rule, arena, err);
}

static void put_handles(const ru_elastic *e, ru_wire_out *w)
{
    for (uint32_t i = 0; i < e->v.n; i++) {
        ru_wire_put_text(w, e->v.at[i].handle, (uint32_t)strlen(e->v.at[i].handle));
    }
}

/* Handles of all members where they sum in shared memory, else the collectives. */
static ru_status go_write(ru_elastic *e, ru_wire_out *w, ru_time now, ru_err *err)
{
    bool choose = e->v.n > 1 && e->v.n <= RUI_EL_PROBED_MAX && !e->v.local;
    ru_coll_policy_in asked;
    const ru_elastic_part *parts;
    uint32_t n = rui_el_table(e, &parts);
    if (choose) {
        RU_TRY(rui_el_choose(e, &e->v, parts, n, &e->view_arena[e->view_side], &asked, err));
    }
    if (choose) {
        rui_el_tell_plan(e, &ru_policy_coll, &asked, now);
    }
    if (e->v.local) {
        put_handles(e, w);
    }
    if (choose) {
        rui_el_table_write(parts, n, rui_el_flight(e, &e->v), w);
        rui_el_choices_write(e, n, w);
    }
    if (e->v.servers > 0) {
        RU_TRY(rui_el_servers_fit(e, parts, n, err));
        RU_TRY(rui_el_ranks_write(e, parts, n, &e->view_arena[e->view_side], w, err));
    }
    if (e->v.near) {
        put_handles(e, w);
    }
    return !w->bad ? RU_OK
                   : RU_FAIL(err, RU_E_LIMIT,
                             "%u sums are more than the leader can tell %u workers of; the model "
                             "has too many gradients",
                             n, e->v.n);
}

static ru_status go_local(ru_elastic *e, ru_wire_in *w, ru_err *err)
{
    ru_arena *arena = &e->view_arena[e->view_side];
    const char **handles = RU_NEW(arena, const char *, e->v.n);
    for (uint32_t i = 0; handles != NULL && i < e->v.n; i++) {
        uint32_t n = 0;
        const char *h = ru_wire_text(w, RU_ELASTIC_HANDLE_MAX - 1, &n);
        handles[i] = h == NULL ? NULL : ru_arena_strn(arena, h, n);
        if (handles[i] == NULL) {
            return RU_FAIL(err, RU_E_DATA, "the leader's GO lacks the memory handle of a worker");
        }
    }
    if (handles == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u handles", e->v.n);
    }
    uint32_t n = 0, rank = 0; /* of this host */
    for (uint32_t i = 0; i < e->v.n; i++) {
        rank = i == e->v.me ? n : rank;
        if (e->v.at[i].host == e->v.at[e->v.me].host) {
            handles[n++] = handles[i];
        }
    }
    e->phase = RUI_EL_LOCAL;
    e->reduce.local_open = true;
    e->opt.device.ops->local_open(e->opt.device.self, handles, n, rank, e->v.epoch);
    return RU_OK;
}

static ru_status go_read(ru_elastic *e, ru_wire_in *w, ru_time now, ru_err *err)
{
    ru_coll_close(e->reduce.probe, now);
    e->reduce.probe = NULL;
    if (e->v.n > 1 && e->v.local && e->opt.device.ops->local_open != NULL) {
        return go_local(e, w, err);
    }
    if (e->v.n > 1 && e->v.n <= RUI_EL_PROBED_MAX) {
        RU_TRY(rui_el_table_read(e, w, &e->view_arena[e->view_side], err));
        RU_TRY(rui_el_choices_read(e, w, err));
        RU_TRY(e->v.servers > 0 ? rui_el_ranks_read(e, w, err) : RU_OK);
    }
    return e->v.n == 1 ? RU_OK : e->v.near ? go_local(e, w, err) : rui_el_group_open(e, err);
}

static void planned(ru_elastic *e, ru_time now)
{
    if (e->v.n > 1) {
        rui_el_sums_planned(e, now);
    }
}

/* -- a step --------------------------------------------------------------------------------------
 */

static void sums_begin(ru_elastic *e, int64_t step)
{
    ru_chan_step(e->opt.chan, (uint32_t)step);
    e->reduce.step = step;
    e->reduce.buckets_done = e->reduce.n_untold = 0;
    e->reduce.n_begun = e->reduce.oldest = e->reduce.ready.n = 0;
    for (uint32_t b = 0; b < e->reduce.n_buckets; b++) {
        e->reduce.buckets[b].at = RUI_EL_SUM_WAITS;
        e->reduce.left[b] = e->reduce.buckets[b].part.n;
    }
    rui_el_sums_clear(e);
    memset(e->reduce.tensor_in, 0, e->opt.n_tensors * sizeof *e->reduce.tensor_in);
}

static void step_begin(ru_elastic *e)
{
    sums_begin(e, e->step);
}

static bool all_in(const ru_elastic *e, int64_t step)
{
    return e->reduce.step == step && e->reduce.buckets_done == e->reduce.n_buckets;
}

/* Over the network there is time to; a joiner's parameters are still on their way, and memory is
 * what workers of one host wait for. */
static bool may_update_early(const ru_elastic *e)
{
    return e->opt.device.ops->summed != NULL && e->v.n > 1 && !e->v.local && e->mover.has_state &&
           e->mover.n_in == 0;
}

static void tell_summed(ru_elastic *e, uint32_t b)
{
    const ru_elastic_part *p = &e->reduce.buckets[b].part;
    const ru_elastic_device *d = &e->opt.device;
    for (uint32_t k = p->first; k < p->first + p->n; k++) {
        d->ops->summed(d->self, e->reduce.step, k, p->offset_bytes,
                       p->n == 1 ? p->size_bytes : e->opt.tensor_bytes[k]);
    }
}

/* One update is open at a time: the device hears of sums when it has kept the one before. */
static void updated(ru_elastic *e)
{
    for (uint32_t i = 0; i < e->reduce.n_untold; i++) {
        tell_summed(e, e->reduce.untold[i]);
    }
    e->reduce.n_untold = 0;
}

static void begin_more(ru_elastic *e, ru_time now, ru_effects *fx);

static void bucket_done(ru_elastic *e, uint32_t b, ru_time now, ru_effects *fx)
{
    if (e->v.n > 1) {
        rui_el_sum_done(e, b, now);
    }
    e->reduce.n_begun -= e->reduce.buckets[b].at == RUI_EL_SUM_BEGUN ? 1 : 0;
    e->reduce.buckets[b].at = RUI_EL_SUM_DONE;
    if (may_update_early(e) && e->reduce.step == e->step && !e->steps.updating) {
        tell_summed(e, b);
    } else if (may_update_early(e)) {
        e->reduce.untold[e->reduce.n_untold++] = b;
    }
    e->reduce.buckets_done++;
    e->progress_ns = now.ns;
    begin_more(e, now, fx);
    rui_el_step_check(e, now, fx);
}

static void bucket_begin(ru_elastic *e, uint32_t b, ru_time now, ru_effects *fx)
{
    rui_el_bucket *bucket = &e->reduce.buckets[b];
    bucket->at = RUI_EL_SUM_BEGUN;
    e->reduce.n_begun++;
    rui_el_sum_begin(e, b, now);
    if (e->v.local && e->reduce.local_open && !rui_el_stale(e)) {
        e->opt.device.ops->local_reduce(e->opt.device.self, b, &bucket->part,
                                        (uint32_t)e->reduce.step);
        return;
    }
    if (e->reduce.group == NULL || rui_el_stale(e)) {
        return; /* this step will be aborted */
    }
    const ru_span *spans = &e->reduce.spans[bucket->part.first];
    if (bucket->part.size_bytes < spans->size_bytes) {
        uint8_t *data = spans->data;
        bucket->cut = (ru_span){.data = data == NULL ? NULL : data + bucket->part.offset_bytes,
                                .size_bytes = bucket->part.size_bytes};
        spans = &bucket->cut;
    }
    ru_err err;
    e->fx = fx;
    ru_status st = ru_coll_begin(e->reduce.group, b, (uint32_t)e->reduce.step, spans,
                                 bucket->part.n, (ru_time){0}, now, &err);
    if (st != RU_OK && st != RU_E_PEER) { /* a lost peer: the membership hears of it as well */
        ru_fx_log(fx, RU_LOG_ERROR, "step %lld: %s", (long long)e->reduce.step + 1, err.text);
        rui_el_device_failed(e, st, "starting a sum of", e->reduce.step, err.text, now, fx);
    }
}

/* Are as many under way as may be? One more is begun that is needed before all of those and much
 * smaller: it goes before them on each link, and need not wait until a large one ends. */
static bool is_full(const ru_elastic *e, uint32_t ready)
{
    const rui_el_reduce *r = &e->reduce;
    bool full = r->flight > 0 && r->n_begun >= r->flight;
    bool passes = full && r->n_begun == r->flight;
    int64_t size = MUCH_LARGER * r->buckets[ready].part.size_bytes;
    for (uint32_t b = 0; passes && b < r->n_buckets; b++) {
        passes =
            r->buckets[b].at != RUI_EL_SUM_BEGUN ||
            (r->buckets[b].part.size_bytes >= size && rui_el_rank(e, b) > rui_el_rank(e, ready));
    }
    return full && !passes;
}

/* The next sum that may begin: of those that are ready the one of the smallest rank. Members may
 * choose different ones, and none of them ends before all have begun it. So a sum that another
 * member has begun is begun beyond the limit (bucket_ready, group_asked), and of those for which
 * some members are never asked the oldest one: it is ready everywhere sooner or later, whatever
 * else is under way. */
static bool next_of(ru_elastic *e, uint32_t *b)
{
    rui_el_reduce *r = &e->reduce;
    while (r->oldest < r->n_buckets &&
           (r->buckets[r->oldest].at == RUI_EL_SUM_DONE || !r->buckets[r->oldest].leaves)) {
        r->oldest++;
    }
    *b = r->oldest;
    if (*b < r->n_buckets && r->buckets[*b].at == RUI_EL_SUM_READY) {
        return true;
    }
    ru_heap_item item;
    const ru_heap_item *top = ru_heap_peek(&r->ready);
    while (top != NULL && r->buckets[top->value].at != RUI_EL_SUM_READY) {
        (void)ru_heap_pop(&r->ready, &item);
        top = ru_heap_peek(&r->ready);
    }
    if (top != NULL && !is_full(e, (uint32_t)top->value)) {
        *b = (uint32_t)top->value;
        return true;
    }
    return false;
}

static void begin_more(ru_elastic *e, ru_time now, ru_effects *fx)
{
    uint32_t b;
    while (next_of(e, &b)) {
        bucket_begin(e, b, now, fx);
    }
}

/* All of bucket b is ready here. */
static void bucket_ready(ru_elastic *e, uint32_t b, ru_time now, ru_effects *fx)
{
    rui_el_bucket *bucket = &e->reduce.buckets[b];
    if (e->v.n == 1) {
        bucket_done(e, b, now, fx);
        return;
    }
    if (e->reduce.flight == 0 || bucket->asked == (uint32_t)e->reduce.step + 1) {
        bucket_begin(e, b, now, fx);
        return;
    }
    bucket->at = RUI_EL_SUM_READY;
    RU_CHECK(ru_heap_push(&e->reduce.ready, rui_el_rank(e, b), b) == RU_OK);
    begin_more(e, now, fx);
}

static void ready(ru_elastic *e, int64_t step, uint32_t k, const ru_span *span, ru_time now,
                  ru_effects *fx)
{
    if (step != e->reduce.step) { /* it waited for all sums of the step before */
        RU_CHECK(step == e->reduce.step + 1 && all_in(e, step - 1) && e->reduce.n_untold == 0);
        sums_begin(e, step);
    }
    RU_CHECK(k < e->opt.n_tensors && !e->reduce.tensor_in[k] &&
             span->size_bytes == e->opt.tensor_bytes[k]);
    e->reduce.tensor_in[k] = true;
    e->reduce.spans[k] = *span;
    for (uint32_t b = e->reduce.bucket_of[k];
         b < e->reduce.n_buckets && rui_el_holds(&e->reduce.buckets[b], k); b++) {
        if (--e->reduce.left[b] == 0) {
            bucket_ready(e, b, now, fx);
        }
    }
}

void ru_elastic_reduced(ru_elastic *e, int64_t step, uint32_t bucket, ru_time now, ru_effects *fx)
{
    RU_CHECK(bucket < e->reduce.n_buckets);
    if (rui_el_under_way(e, step) && step == e->reduce.step && e->reduce.local_open) {
        bucket_done(e, bucket, now, fx);
    }
}

/* -- messages and streams ------------------------------------------------------------------------
 */

static void group_done(void *self, uint32_t bucket, uint32_t iter, ru_time now)
{
    ru_elastic *e = self;
    RU_CHECK(bucket < e->reduce.n_buckets);
    if (e->phase == RUI_EL_STEP && iter == (uint32_t)e->reduce.step) {
        bucket_done(e, bucket, now, e->fx);
    }
}

static void group_asked(void *self, uint32_t bucket, uint32_t iter, ru_time now)
{
    ru_elastic *e = self;
    rui_el_bucket *b = &e->reduce.buckets[bucket];
    b->asked = iter + 1;
    if (e->phase == RUI_EL_STEP && iter == (uint32_t)e->reduce.step && b->at == RUI_EL_SUM_READY) {
        bucket_begin(e, bucket, now, e->fx);
    }
}

static void group_failed(void *self, ru_node_id peer, ru_status why, ru_time now)
{
    ru_elastic *e = self;
    rui_el_lost(e, peer, why, now);
}

const ru_coll_user *rui_el_coll_user(void)
{
    static const ru_coll_user user = {
        .done = group_done, .failed = group_failed, .asked = group_asked};
    return &user;
}

/* Members of a host open the group when each has mapped the memory of the others. A member that
 * finishes early sends messages about its sums before others have opened the group. They are kept,
 * because nothing is sent twice. Until the others do their part there is one for each lane. */
static bool keep_message(ru_elastic *e, const ru_event *ev)
{
    ru_wire_in w = ru_wire_in_from(ev->data, ev->size_bytes);
    bool early = e->reduce.group == NULL && e->reduce.kept != NULL && ru_wire_u32(&w) == e->v.epoch;
    const rui_el_member *m = early ? rui_el_member_of(e, ev->node) : NULL;
    if (m == NULL || m->host != e->v.at[e->v.me].host) {
        return false;
    }
    int64_t bytes = (int64_t)sizeof(rui_el_kept) + (ev->size_bytes + 7) / 8 * 8;
    if (bytes > RUI_EL_KEPT_BYTES - e->reduce.kept_bytes) {
        rui_el_lost(e, ev->node, RU_E_LIMIT, ev->now);
        return true;
    }
    const rui_el_kept head = {.from = ev->node, .size_bytes = ev->size_bytes};
    memcpy(e->reduce.kept + e->reduce.kept_bytes, &head, sizeof head);
    memcpy(e->reduce.kept + e->reduce.kept_bytes + sizeof head, ev->data, (size_t)ev->size_bytes);
    e->reduce.kept_bytes += bytes;
    return true;
}

static void groups_hear_early(ru_elastic *e, ru_time now, ru_effects *fx)
{
    e->fx = fx;
    int64_t end = e->reduce.kept_bytes;
    e->reduce.kept_bytes = 0;
    for (int64_t at = 0; at < end && e->reduce.group != NULL;) {
        rui_el_kept head;
        memcpy(&head, e->reduce.kept + at, sizeof head);
        ru_coll_heard(e->reduce.group, head.from, e->reduce.kept + at + sizeof head,
                      head.size_bytes, now);
        at += (int64_t)sizeof head + (head.size_bytes + 7) / 8 * 8;
    }
}

static void hear(ru_elastic *e, const ru_event *ev, ru_effects *fx)
{
    e->fx = fx;
    if (keep_message(e, ev)) {
        return;
    }
    if (e->reduce.group != NULL) {
        ru_coll_heard(e->reduce.group, ev->node, ev->data, ev->size_bytes, ev->now);
    }
    if (e->reduce.probe != NULL) {
        ru_coll_heard(e->reduce.probe, ev->node, ev->data, ev->size_bytes, ev->now);
    }
}

void ru_elastic_local_opened(ru_elastic *e, ru_status st, ru_time now, ru_effects *fx)
{
    if (e->phase != RUI_EL_LOCAL) {
        return;
    }
    if (rui_el_stale(e)) {
        rui_el_settle(e, now, fx);
    } else if (st == RU_OK) {
        ru_err err;
        e->phase = RUI_EL_READY;
        st = e->v.near ? rui_el_group_open(e, &err) : RU_OK;
        if (st != RU_OK) {
            ru_fx_log(fx, RU_LOG_ERROR, "%s", err.text);
            rui_el_device_failed(e, st, "opening the group for", e->step, err.text, now, fx);
            return;
        }
        groups_hear_early(e, now, fx);
        rui_el_sums_planned(e, now);
        rui_el_step_begin(e, now, fx);
    } else {
        rui_el_say_only(e, RUI_EL_APART_MSG, now, fx);
    }
}

/* NULL: of a group that is closed. */
static ru_coll *group_of(ru_elastic *e, uint64_t cookie)
{
    if (e->reduce.group != NULL && ru_coll_owns(e->reduce.group, cookie)) {
        return e->reduce.group;
    }
    return e->reduce.probe != NULL && ru_coll_owns(e->reduce.probe, cookie) ? e->reduce.probe
                                                                            : NULL;
}

static bool owns(uint64_t cookie)
{
    return cookie >> 56 == RU_COLL_COOKIE_BYTE;
}

static bool sent(ru_elastic *e, uint64_t cookie, ru_time now)
{
    ru_coll *group = group_of(e, cookie);
    if (group != NULL) {
        ru_coll_sent(group, cookie, now);
    }
    return group != NULL;
}

static void arrived(ru_elastic *e, uint64_t cookie, ru_time now)
{
    ru_coll *group = group_of(e, cookie);
    if (group != NULL) {
        ru_coll_arrived(group, cookie, now);
    }
}

static bool failed(ru_elastic *e, uint64_t cookie, ru_status why, ru_time now)
{
    ru_coll *group = group_of(e, cookie);
    if (group != NULL) {
        ru_coll_xfer_failed(group, cookie, why, now);
    }
    return group != NULL;
}

static void room(ru_elastic *e, ru_time now)
{
    if (e->reduce.group != NULL) {
        ru_coll_room(e->reduce.group, now);
    }
    if (e->reduce.probe != NULL) {
        ru_coll_room(e->reduce.probe, now);
    }
}

const rui_el_exchange_ops *rui_el_reduce_ops(void)
{
    static const rui_el_exchange_ops ops = {.name = "all-reduce",
                                            .what = RU_COLL_WHAT,
                                            .open = reduce_open,
                                            .close = reduce_close,
                                            .view_taken = view_taken,
                                            .connected = rui_el_connected,
                                            .measure_due = rui_el_probe_due,
                                            .measure_ripe = rui_el_probe_ripe,
                                            .measure_begin = rui_el_probe_begin,
                                            .measure_hear = rui_el_probe_hear,
                                            .measured = rui_el_probe_fit,
                                            .go_write = go_write,
                                            .room_for_two = rui_el_room_for_two,
                                            .go_read = go_read,
                                            .planned = planned,
                                            .view_left = rui_el_group_close,
                                            .reads = rui_el_group_read,
                                            .step_begin = step_begin,
                                            .ready = ready,
                                            .updated = updated,
                                            .all_in = all_in,
                                            .hear = hear,
                                            .owns = owns,
                                            .sent = sent,
                                            .arrived = arrived,
                                            .failed = failed,
                                            .room = room};
    return &ops;
}
