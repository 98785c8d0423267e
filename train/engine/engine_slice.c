/* Executors that help each other within a clock: work of one that falls behind goes to others, as
 * train/tasks says. Each executor is a worker there, wherever it is held; what they tell each other
 * travels as parcels between their processes.
 *
 *   rows here -> parts of own items, from the head; slices of the tail go to helpers
 *             -> all own parts and slices are done -> own changes sent, acknowledged -> DONE(clock)
 *
 * An executor that is done with its clock, or waits because it may not be farther ahead, works on
 * slices of others. A slice that a helper has begun is always finished: by its owner if the helper
 * dies (engine_redo.c), or a new generation begins. Its changes go from the helper to the shards as
 * a part of the owner's step, and its figures and local rows back to the owner.
 *
 * An executor moves when its clock is closed and no slice that it was given can be asked for. An
 * owner asks where it sent the slice, and a helper answers where it was asked, so neither needs to
 * know of moves.
 *
 * Source: flexrr-2016. */
#include "train/engine/engine_slice_impl.h"

#include <string.h>

/* Parts shorter than PART_NS cost more than they help; so do clocks shorter than CLOCK_NS. */
#define PART_NS  INT64_C(2000000)
#define CLOCK_NS INT64_C(20000000)
/* Progress is told no more often than this, or every TELL_PPM_MAX of a shorter clock: each message
 * wakes a process. Among eight workers, told every 5 % of clocks of 0.6 s, 101 messages went out
 * for each executor and clock; with this 18 do, and help is found as soon. */
#define TELL_NS INT64_C(100000000)

enum {
    UNITS_MAX = 1000,
    ONE = 1000000,
    TELL_PPM_MAX = 200000,
    SUMS_BYTES = RU_APP_SUMS_MAX * sizeof(double)
};

static rui_slice *slice_of(const ru_engine *e, uint32_t k)
{
    return &e->slices->at[k];
}

rui_helpee *rui_slice_helpee(const ru_engine *e, uint32_t k, uint32_t owner)
{
    const rui_slice *s = slice_of(e, k);
    for (uint32_t i = 0; i < s->n_helpees; i++) {
        if (s->helpee[i].id == owner) {
            return &s->helpee[i];
        }
    }
    return NULL;
}

static uint32_t helper_of(const rui_slice *s, uint32_t id)
{
    uint32_t i = 0;
    while (i < s->n_helpers && s->helper[i] != id) {
        i++;
    }
    return i;
}

void rui_slice_items(const ru_engine *e, const ru_tasks_range *r, int64_t *lo, int64_t *hi)
{
    const ru_app_task t =
        ru_app_task_of(e->opt.shape, r->owner, r->clock, 0, e->exec[r->owner].rows);
    int64_t n = t.hi - t.lo, units = e->slices->units;
    *lo = t.lo + n * r->lo / units;
    *hi = t.lo + n * r->hi / units;
}

int64_t rui_slice_local(const ru_engine *e, const ru_tasks_range *r, float *const *local,
                        uint8_t *bytes, bool out)
{
    const ru_app_shape *s = e->opt.shape;
    int64_t lo, hi, sum = 0;
    rui_slice_items(e, r, &lo, &hi);
    for (uint32_t t = 0; t < s->n_tables; t++) {
        int64_t width = s->table[t].width, n = s->table[t].local ? (hi - lo) * width * 4 : 0;
        if (n > 0 && local != NULL && bytes != NULL) {
            float *rows = local[t] + lo * width;
            memcpy(out ? (void *)(bytes + sum) : rows, out ? (const void *)rows : bytes + sum,
                   (size_t)n);
        }
        sum += n;
    }
    return sum;
}

/* -- messages ------------------------------------------------------------------------------------
 */

static void post(ru_engine *e, ru_node_id to, uint32_t from_k, uint32_t to_k,
                 const ru_tasks_msg *msg, void *body, int64_t n, ru_time now, ru_effects *fx)
{
    if (!ru_node_is(to, e->opt.self)) {
        int64_t sums = msg->kind == RU_TASKS_DONE_WORK ? SUMS_BYTES : 0;
        e->slices->sent.bytes += (int64_t)sizeof(rui_slice_head) + sums;
        e->slices->sent.row_bytes += n - sums;
    }
    const rui_slice_head h = {
        .generation = e->generation, .from = from_k, .to = to_k, .fence = e->fence, .msg = *msg};
    ru_ps_send(e->ps, to, RUI_ENGINE_SLICE, &h, sizeof h, body, n, now, fx);
}

/* A copy of bytes as the body of a parcel. */
static void *copy_of(ru_engine *e, const void *bytes, int64_t n)
{
    void *copy = n > 0 ? ru_bufs_need(e->bufs, n) : NULL;
    RU_CHECK(n == 0 || copy != NULL);
    if (n > 0) {
        memcpy(copy, bytes, (size_t)n);
    }
    return copy;
}

static void send(ru_engine *e, uint32_t k, const ru_tasks_act *f, ru_time now, ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    const ru_tasks_msg *m = &f->msg;
    const ru_tasks_range *r = &m->range;
    uint32_t to = f->to;
    ru_node_id node = e->holder[to];
    void *body = NULL;
    int64_t n = 0;
    uint32_t slot = r->seq % RUI_SLICE_SLOTS;
    bool answers = m->kind == RU_TASKS_STARTED_WORKING || m->kind == RU_TASKS_DONE_WORK ||
                   m->kind == RU_TASKS_CANCEL_OK || (m->kind == RU_TASKS_REFUSE && r->owner != k);
    if (answers) {
        const rui_helpee *h = rui_slice_helpee(e, k, to);
        node = h->asked;
        if (m->kind == RU_TASKS_DONE_WORK) {
            n = h->made[slot].n;
            body = copy_of(e, h->made[slot].bytes, n);
        }
    } else if (m->kind == RU_TASKS_DO_THIS) {
        s->given[helper_of(s, to)][slot] = node;
        s->given_at[helper_of(s, to)][slot] = now;
        s->predicted_ns[helper_of(s, to)][slot] = f->predicted_ns;
        n = rui_slice_local(e, r, NULL, NULL, true);
        body = n > 0 ? ru_bufs_need(e->bufs, n) : NULL;
        RU_CHECK(n == 0 || body != NULL);
        (void)rui_slice_local(e, r, e->exec[k].local, body, true);
        rui_redo_sent(e, k, r, body, n);
    } else if (m->kind == RU_TASKS_CANCEL) {
        node = s->given[helper_of(s, to)][slot];
    }
    post(e, node, k, to, m, body, n, now, fx);
}

/* What a helper did: figures, and local rows of the items. false: it is known, or not a slice of
 * this clock. */
static bool take_done(ru_engine *e, uint32_t k, const ru_tasks_msg *m, const uint8_t *body,
                      int64_t n, ru_time now)
{
    rui_slice *s = slice_of(e, k);
    const ru_tasks_range *r = &m->range;
    if (r->owner != k || r->clock != e->exec[k].step || r->lo >= r->hi ||
        r->hi > e->slices->units || n != SUMS_BYTES + rui_slice_local(e, r, NULL, NULL, true)) {
        return false;
    }
    for (uint32_t i = 0; i < s->n_done; i++) {
        if (s->done[i].helper == r->helper && s->done[i].number == r->seq) {
            return false;
        }
    }
    if (s->n_done == s->cap_done) {
        uint32_t cap = s->cap_done == 0 ? 16 : 2 * s->cap_done;
        rui_slice_done *p = ru_bufs_need(e->bufs, cap * (int64_t)sizeof *p);
        RU_CHECK(p != NULL);
        if (s->n_done > 0) {
            memcpy(p, s->done, s->n_done * sizeof *p);
        }
        ru_bufs_put(e->bufs, s->done);
        s->done = p;
        s->cap_done = cap;
    }
    uint32_t units = r->hi - r->lo, i = helper_of(s, r->helper);
    if (i == s->n_helpers) {
        return false;
    }
    int64_t took_ns = now.ns - s->given_at[i][r->seq % RUI_SLICE_SLOTS].ns;
    s->slices.n++;
    s->slices.units += units;
    s->slices.took_ns += took_ns;
    int64_t predicted_ns = s->predicted_ns[i][r->seq % RUI_SLICE_SLOTS];
    s->slices.predicted_ns += predicted_ns > 0 ? predicted_ns : took_ns;
    rui_engine_record_slice(e, units, took_ns, predicted_ns, now);
    rui_slice_done *d = &s->done[s->n_done++];
    d->helper = r->helper;
    d->number = r->seq;
    memcpy(d->sums, body, SUMS_BYTES);
    (void)rui_slice_local(e, r, e->exec[k].local, (uint8_t *)(uintptr_t)(body + SUMS_BYTES), false);
    return true;
}

/* An executor that is not open here has begun no slice, and never will begin this one. */
static void refuse(ru_engine *e, ru_node_id from, const rui_slice_head *h, ru_time now,
                   ru_effects *fx)
{
    ru_tasks_msg m = h->msg;
    rui_helpee *o = rui_slice_helpee(e, h->to, h->from);
    if (o != NULL) { /* CANCEL overtakes DO_THIS, which has a body */
        uint32_t *last = &o->refused[m.range.seq % RUI_SLICE_SLOTS];
        *last = m.range.seq > *last ? m.range.seq : *last;
    }
    m.kind = h->msg.kind == RU_TASKS_DO_THIS ? RU_TASKS_REFUSE : RU_TASKS_CANCEL_OK;
    m.progress_ppm = 0;
    post(e, from, h->to, h->from, &m, NULL, 0, now, fx);
}

static bool range_ok(const ru_engine *e, const ru_tasks_range *r)
{
    return r->owner < e->n_execs && r->helper < e->n_execs && r->lo < r->hi &&
           r->hi <= e->slices->units;
}

void rui_slice_heard(ru_engine *e, ru_node_id from, const void *head, uint32_t head_bytes,
                     void *body, int64_t n, ru_time now, ru_effects *fx)
{
    rui_slice_head h;
    if (head_bytes != sizeof h || e->slices == NULL) {
        ru_bufs_put(e->bufs, body);
        return;
    }
    memcpy(&h, head, sizeof h);
    const ru_tasks_msg *m = &h.msg;
    bool asks = m->kind == RU_TASKS_DO_THIS || m->kind == RU_TASKS_CANCEL;
    bool news = m->kind == RU_TASKS_STARTED || m->kind == RU_TASKS_THIS_FAR;
    /* What was said before a loss is void, and what is asked for is asked again. */
    bool ok = h.generation == e->generation && h.fence == e->fence && h.to < e->n_execs &&
              h.from < e->n_execs;
    ok = ok && (!asks || (range_ok(e, &m->range) && m->range.clock >= e->closed));
    rui_slice *s = ok ? slice_of(e, h.to) : NULL;
    const rui_helpee *to = ok && asks ? rui_slice_helpee(e, h.to, h.from) : NULL;
    bool refused = to != NULL && m->range.seq <= to->refused[m->range.seq % RUI_SLICE_SLOTS];
    if (ok && asks && (s->machine == NULL || refused)) {
        refuse(e, from, &h, now, fx);
        ok = false;
    }
    /* Executors of one process share its speed: they do not help each other. */
    bool near = news && e->slices->rules.push && ru_node_is(from, e->opt.self);
    ok = ok && s->machine != NULL && !near;
    rui_helpee *helpee = ok && asks ? rui_slice_helpee(e, h.to, h.from) : NULL;
    ok = ok && (!asks || helpee != NULL);
    if (ok && asks) {
        helpee->asked = from;
    }
    if (ok && m->kind == RU_TASKS_DO_THIS) {
        rui_help_came(e, helpee, &m->range, body, n);
        body = NULL;
    } else if (ok && m->kind == RU_TASKS_DONE_WORK) {
        ok = take_done(e, h.to, m, body, n, now);
    }
    ru_bufs_put(e->bufs, body);
    if (ok) {
        const ru_tasks_said ev = {.worker = h.from, .msg = *m};
        rui_slice_step(e, h.to, RU_TASKS_HEARD, &ev, now, fx);
    }
}

/* -- own items -----------------------------------------------------------------------------------
 */

void rui_slice_run(ru_engine *e, uint32_t k, const ru_engine_task *whole, ru_time now,
                   ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    const ru_tasks_range *r = &s->pending;
    if (r->owner != k) { /* time of items counts from now on; the slice may be void */
        rui_slice_step(e, k, RU_TASKS_TIMER, NULL, now, fx);
    }
    if (r->lo == r->hi || e->ended) {
        rui_slice_step(e, k, RU_TASKS_WORKED, NULL, now, fx);
        return;
    }
    s->work = *whole;
    s->work.part = true;
    s->work.cut.units = e->slices->units;
    s->work.cut.from = s->work.cut.next = r->lo;
    s->work.cut.end = r->hi;
    s->work.cut.lo = whole->task.lo;
    s->work.cut.items = whole->task.hi - whole->task.lo;
    s->running = true;
    s->own = r->owner == k;
    s->generation = e->generation;
    e->opt.device->run(e->opt.device_self, &s->work);
    rui_engine_record_look(e, k, now);
}

void rui_slice_ran(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    rui_exec *x = &e->exec[k];
    RU_CHECK(s->running && s->work.cut.next <= s->work.cut.end);
    s->running = false;
    s->pending.lo = s->pending.hi = s->work.cut.end;
    e->facts.busy_ns += s->work.cpu_ns;
    if (s->generation != e->generation || e->ended) {
        x->busy = s->own ? RUI_IDLE : x->busy;
        rui_exec_settle(e, k, now, fx);
        return;
    }
    if (!rui_task_fine(e, &s->work, now, fx)) {
        return;
    }
    double *sums = s->own ? x->sums : s->slice.result.sums;
    for (uint32_t i = 0; i < RU_APP_SUMS_MAX; i++) {
        sums[i] += s->work.result.sums[i];
    }
    x->cpu_ns += s->own ? s->work.cpu_ns : 0;
    rui_slice_step(e, k, RU_TASKS_WORKED, NULL, now, fx);
    rui_exec_settle(e, k, now, fx); /* it may have waited for this to move */
}

/* All items of the clock are done: figures in the order of items, own changes to the shards. */
static void close_clock(ru_engine *e, uint32_t k, const ru_tasks_act *effect, ru_time now,
                        ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    rui_exec *x = &e->exec[k];
    RU_CHECK(x->busy == RUI_SLICES && effect->range.clock == x->step);
    uint32_t next = UINT32_MAX, lo = 0;
    for (uint32_t n = 0; n < effect->n_accepted; n++, lo = effect->accepted[next].lo + 1) {
        next = UINT32_MAX;
        for (uint32_t i = 0; i < effect->n_accepted; i++) {
            uint32_t at = effect->accepted[i].lo;
            bool sooner = next == UINT32_MAX || at < effect->accepted[next].lo;
            next = at >= lo && sooner ? i : next;
        }
        RU_CHECK(next < effect->n_accepted);
        const ru_tasks_range *r = &effect->accepted[next];
        uint32_t i = 0;
        while (s->done[i].helper != r->helper || s->done[i].number != r->seq) {
            i++;
            RU_CHECK(i < s->n_done);
        }
        for (uint32_t j = 0; j < RU_APP_SUMS_MAX; j++) {
            x->sums[j] += s->done[i].sums[j];
        }
    }
    const ru_tasks_stats *now_is = ru_tasks_stats_of(s->machine);
    int64_t units = now_is->worked + now_is->helped - s->before.worked - s->before.helped;
    if (units > 0) {
        s->unit_ns = (now_is->busy_ns - s->before.busy_ns) / units;
    }
    s->slices.of = e->slices->units;
    s->past[x->step % e->window] = s->slices;
    s->slices = (ru_engine_slices){0};
    s->n_done = 0;
    x->task.result = (ru_app_result){0};
    x->task.status = rui_task_check(e->opt.shape, &x->task);
    if (rui_task_fine(e, &x->task, now, fx)) {
        rui_task_flush(e, k, now, fx);
    }
}

void rui_slice_told(const ru_engine *e, uint32_t k, uint32_t clock, rui_engine_head *h)
{
    struct rui_slices *l = e->slices;
    if (l == NULL) {
        return;
    }
    const rui_slice *s = slice_of(e, k);
    ru_chan_stats sent;
    ru_chan_stats_get(e->opt.chan, &sent);
    h->unit_ns = s->unit_ns;
    h->rtt_ns = s->machine != NULL ? ru_tasks_stats_of(s->machine)->start_ns : 0;
    h->slices = s->past[clock % e->window];
    l->sent.all_bytes = sent.tx_bytes;
    h->slices.bytes = l->sent.bytes - l->told.bytes;
    h->slices.row_bytes = l->sent.row_bytes - l->told.row_bytes;
    h->slices.all_bytes = l->sent.all_bytes - l->told.all_bytes;
    l->told = l->sent;
}

void rui_slice_granted(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    const rui_slice *s = slice_of(e, k);
    const ru_tasks_said ev = {.grant = s->grant, .expect = s->expect};
    rui_slice_step(e, k, RU_TASKS_SHARES, &ev, now, fx);
}

/* Short clocks go undivided: messages and parts would take longer than what they spare. */
static void adapt(const ru_engine *e, rui_slice *s)
{
    const ru_reassign_rules *base = &e->slices->rules;
    int64_t clock_ns = s->unit_ns * e->slices->units;
    s->rules = *base;
    if (clock_ns == 0) {
        return;
    }
    bool is_long = clock_ns >= CLOCK_NS;
    int64_t part_ppm = is_long ? PART_NS * ONE / clock_ns : ONE;
    int64_t tell_ppm = TELL_NS / (clock_ns / ONE + 1);
    tell_ppm = tell_ppm < TELL_PPM_MAX ? tell_ppm : TELL_PPM_MAX;
    tell_ppm = e->opt.stragglers == RU_ENGINE_REASSIGN ? tell_ppm : 0; /* others have their own */
    tell_ppm = tell_ppm > part_ppm ? tell_ppm : part_ppm;
    s->rules.push = base->push && is_long;
    s->rules.grain_ppm = part_ppm > base->grain_ppm ? part_ppm : base->grain_ppm;
    s->rules.report_ppm = tell_ppm > base->report_ppm ? tell_ppm : base->report_ppm;
}

void rui_slice_begin(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    memset(e->exec[k].sums, 0, (size_t)e->sums_n * sizeof(double));
    adapt(e, s);
    rui_redo_drop(e, k);
    s->before = *ru_tasks_stats_of(s->machine);
    const ru_tasks_said ev = {.clock = e->exec[k].step};
    rui_slice_step(e, k, RU_TASKS_CLOCKS, &ev, now, fx);
    if (!s->begun) {
        rui_slice_granted(e, k, now, fx);
        s->begun = true;
        rui_slice_step(e, k, RU_TASKS_BEGIN, NULL, now, fx);
    }
}

/* -- steps ---------------------------------------------------------------------------------------
 */

static void perform(ru_engine *e, uint32_t k, const ru_effect *effect, ru_time now, ru_effects *fx)
{
    const ru_tasks_act *f = effect->data;
    if (effect->kind != RU_FX_LOCAL) {
        slice_of(e, k)->wake_ns = effect->kind == RU_FX_TIMER ? effect->at.ns : 0;
        return;
    }
    if (effect->what == RU_TASKS_SEND) {
        send(e, k, f, now, fx);
    } else if (effect->what == RU_TASKS_FLUSH) {
        rui_help_flush(e, k, &f->range);
    } else if (effect->what == RU_TASKS_CLOSE) {
        close_clock(e, k, f, now, fx);
    } else {
        RU_CHECK(effect->what == RU_TASKS_WORK);
        slice_of(e, k)->pending = f->range;
        if (f->range.owner == k) {
            rui_slice_run(e, k, &e->exec[k].task, now, fx);
        } else {
            rui_help_work(e, k, &f->range, now, fx);
        }
    }
}

/* One timer for all: the first one who wants it. */
static void wake_at(ru_engine *e, uint32_t k, int64_t at_ns, ru_time now, ru_effects *fx)
{
    struct rui_slices *l = e->slices;
    slice_of(e, k)->wake_ns = at_ns;
    at_ns = at_ns == 0 || at_ns > now.ns ? at_ns : now.ns + 1;
    if (at_ns > 0 && (l->wake_ns == 0 || at_ns < l->wake_ns)) {
        l->wake_ns = at_ns;
        ru_fx_timer(fx, RUI_ENGINE_WAKE, (ru_time){at_ns});
    }
}

/* One step of an executor's machine, which learns how far its work is, and may end it sooner. */
static void step_one(ru_engine *e, uint32_t k, ru_tasks_word word, const ru_tasks_said *said,
                     ru_time now)
{
    const ru_engine_device_ops *d = e->opt.device;
    rui_slice *s = slice_of(e, k);
    bool runs = s->running;
    if (runs) {
        d->hold(e->opt.device_self, &s->work);
    }
    ru_tasks_reached(s->machine, runs ? s->work.cut.next : s->pending.lo);
    const ru_event ev = {.kind = word == RU_TASKS_TIMER ? RU_EV_TIMER : RU_EV_LOCAL,
                         .now = now,
                         .what = word,
                         .data = said,
                         .size_bytes = sizeof *said};
    ru_tasks_step(s->machine, &ev, &e->slices->fx);
    s->pending.hi = ru_tasks_end(s->machine);
    if (runs) {
        RU_CHECK(s->pending.hi >= s->work.cut.next && s->pending.hi <= s->work.cut.end);
        s->work.cut.end = s->pending.hi;
        d->release(e->opt.device_self, &s->work);
    }
}

/* What a step asks for may answer at once: events wait in a ring until the step is over. */
void rui_slice_step(ru_engine *e, uint32_t k, ru_tasks_word word, const ru_tasks_said *said,
                    ru_time now, ru_effects *fx)
{
    struct rui_slices *l = e->slices;
    RU_CHECK(l->n < RUI_SLICE_EVENTS_MAX);
    uint32_t at = (l->first + l->n++) % RUI_SLICE_EVENTS_MAX;
    l->ring[at].k = k;
    l->ring[at].word = word;
    l->ring[at].said = said != NULL ? *said : (ru_tasks_said){0};
    if (l->stepping) {
        return;
    }
    l->stepping = true;
    while (l->n > 0) {
        uint32_t of = l->ring[l->first].k;
        ru_tasks_word next = l->ring[l->first].word;
        const ru_tasks_said with = l->ring[l->first].said;
        l->first = (l->first + 1) % RUI_SLICE_EVENTS_MAX;
        l->n--;
        if (e->ended || slice_of(e, of)->machine == NULL) {
            continue;
        }
        step_one(e, of, next, &with, now);
        for (uint32_t i = 0; i < l->fx.n && !e->ended; i++) {
            perform(e, of, &l->fx.at[i], now, fx);
        }
        ru_effects_clear(&l->fx);
        if (!e->ended) {
            rui_help_look(e, of, now, fx);
        }
        wake_at(e, of, slice_of(e, of)->wake_ns, now, fx);
    }
    l->stepping = false;
}

void rui_slice_wake(ru_engine *e, ru_time now, ru_effects *fx)
{
    e->slices->wake_ns = 0;
    for (uint32_t k = 0; k < e->n_execs && !e->ended; k++) {
        rui_slice *s = slice_of(e, k);
        if (s->machine == NULL || s->wake_ns == 0) {
            continue;
        }
        if (s->wake_ns <= now.ns) {
            s->wake_ns = 0;
            rui_slice_step(e, k, RU_TASKS_TIMER, NULL, now, fx);
        } else {
            wake_at(e, k, s->wake_ns, now, fx);
        }
    }
}

/* -- here and elsewhere --------------------------------------------------------------------------
 */

static ru_status open_machine(ru_engine *e, uint32_t k, ru_err *err)
{
    rui_slice *s = slice_of(e, k);
    uint32_t helpees[RU_REASSIGN_GROUP_MAX];
    for (uint32_t i = 0; i < s->n_helpees; i++) {
        helpees[i] = s->helpee[i].id;
    }
    ru_arena_rewind(&s->arena, (ru_arena_mark){0});
    uint32_t *ids = ru_arena_copy(&s->arena, helpees, s->n_helpees * (int64_t)sizeof *ids, 4);
    if (ids == NULL && s->n_helpees > 0) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the helpers of an executor");
    }
    s->rules = e->slices->rules;
    const ru_tasks_options opt = {.me = k,
                                  .items = e->slices->units,
                                  .clocks = e->opt.clocks,
                                  .first = e->exec[k].step,
                                  .rules = &s->rules,
                                  .helpers = s->helper,
                                  .helpees = ids,
                                  .n_helpers = s->n_helpers,
                                  .n_helpees = s->n_helpees,
                                  .numbers = s->numbers};
    s->leaves = s->begun = false;
    s->wake_ns = 0;
    s->before = (ru_tasks_stats){0};
    return ru_tasks_open(&opt, &s->arena, &s->machine, err);
}

bool rui_slice_ready(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_slice *s = e->slices != NULL ? slice_of(e, k) : NULL;
    if (s == NULL) {
        return true;
    }
    if (s->machine == NULL) {
        ru_err err;
        if (s->running || rui_redo_busy(e, k)) {
            return false; /* work of an older generation */
        }
        if (open_machine(e, k, &err) != RU_OK) {
            rui_engine_fail(e, RU_E_MEM, err.text, now, fx);
            return false;
        }
    } else if (s->leaves) { /* it goes elsewhere no more */
        s->leaves = false;
        rui_slice_step(e, k, RU_TASKS_STAYS, NULL, now, fx);
    }
    return e->exec[k].busy == RUI_IDLE;
}

bool rui_slice_leaves(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_slice *s = e->slices != NULL ? slice_of(e, k) : NULL;
    if (s == NULL || s->machine == NULL) {
        return s == NULL || !s->running;
    }
    if (!s->leaves) {
        s->leaves = true;
        rui_slice_step(e, k, RU_TASKS_LEAVES, NULL, now, fx);
    }
    return !e->slices->stepping && !s->running && !rui_redo_busy(e, k) && s->n_redo == 0 &&
           ru_tasks_quiet(s->machine, e->closed);
}

/* The machine ends here; what it opened of others stays, in case it comes back. */
static void drop(ru_engine *e, uint32_t k)
{
    rui_slice *s = slice_of(e, k);
    if (s->running) { /* what the device has counts for nothing */
        e->opt.device->hold(e->opt.device_self, &s->work);
        s->work.cut.end = s->work.cut.next;
        e->opt.device->release(e->opt.device_self, &s->work);
    }
    s->machine = NULL;
    s->n_done = 0;
    s->unit_ns = 0;
    rui_redo_drop(e, k);
    rui_help_drop(e, k);
}

void rui_slice_left(ru_engine *e, uint32_t k)
{
    if (e->slices != NULL) {
        drop(e, k);
    }
}

/* Those of a slot are its own mod their number. */
static void first_numbers(rui_slice *s)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(s->numbers); i++) {
        s->numbers[i] = i % RUI_SLICE_SLOTS;
    }
}

void rui_slice_reset(ru_engine *e, uint32_t k)
{
    if (e->slices == NULL) {
        return;
    }
    const rui_slice *s = slice_of(e, k);
    if (e->exec[k].busy == RUI_SLICES && !(s->running && s->own)) {
        e->exec[k].busy = RUI_IDLE;
    }
    drop(e, k);
    rui_redo_reset(e, k);
    for (uint32_t i = 0; i < s->n_helpees; i++) {
        memset(s->helpee[i].refused, 0, sizeof s->helpee[i].refused);
    }
    first_numbers(slice_of(e, k));
    memset(slice_of(e, k)->grant, 0, sizeof s->grant);
    memset(slice_of(e, k)->expect, 0, sizeof s->expect);
}

void rui_slice_void(ru_engine *e, uint32_t k)
{
    rui_slice *s = slice_of(e, k);
    rui_exec *x = &e->exec[k];
    bool runs = x->busy == RUI_SLICES && s->running && s->own;
    x->busy = x->busy == RUI_SLICES && !runs ? RUI_IDLE : x->busy;
    s->generation = 0; /* what the device has counts for nothing */
    drop(e, k);
    rui_redo_reset(e, k);
}

int64_t rui_slice_numbers_bytes(const ru_engine *e)
{
    return e->slices == NULL ? 0 : (int64_t)e->slices->group * RUI_SLICE_SLOTS * 4;
}

void rui_slice_first_numbers(const ru_engine *e, void *numbers)
{
    int64_t n = rui_slice_numbers_bytes(e) / 4;
    for (int64_t i = 0; i < n; i++) { /* as first_numbers */
        uint32_t v = (uint32_t)(i % RUI_SLICE_SLOTS);
        memcpy((uint8_t *)numbers + 4 * i, &v, sizeof v);
    }
}

void rui_slice_numbers(ru_engine *e, uint32_t k, void *numbers, bool out)
{
    if (e->slices == NULL) {
        return;
    }
    rui_slice *s = slice_of(e, k);
    size_t n = (size_t)rui_slice_numbers_bytes(e);
    if (out && s->machine != NULL) {
        ru_tasks_numbers(s->machine, s->numbers);
    }
    memcpy(out ? numbers : s->numbers, out ? s->numbers : numbers, n);
}

/* -- opening -------------------------------------------------------------------------------------
 */

static ru_status make_groups(ru_engine *e, ru_err *err)
{
    struct rui_slices *l = e->slices;
    uint32_t n = e->n_execs;
    double *took = RU_NEW(&l->arena, double, n);
    ru_reassign_plan p;
    if (took == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the helpers of %u executors", n);
    }
    for (uint32_t k = 0; k < n; k++) {
        took[k] = 1;
    }
    const ru_reassign_in in = {.n = n,
                               .clocks = 1,
                               .items = l->units,
                               .took = took,
                               .tail = RUI_SLICE_TAIL,
                               .slack_max = 1,
                               .rtt_ns = RUI_SLICE_RTT_NS,
                               .method = rui_slice_method(e)};
    RU_TRY(ru_plan_reassign(&in, &l->arena, &l->arena, &p, err));
    RU_TRY(ru_plan_reassign_check(&in, &p, &l->arena, err));
    l->rules = p.rules;
    l->rules.slack = 0; /* the engine says when a clock may begin */
    l->group = p.rules.group;
    ru_engine_slices *past = RU_NEW(e->arena, ru_engine_slices, (int64_t)n * e->window);
    if (past == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the helpers of %u executors", n);
    }
    for (uint32_t k = 0; k < n; k++) {
        rui_slice *s = slice_of(e, k);
        for (uint32_t i = 0; i < l->group && p.helper[k * l->group + i] != RU_REASSIGN_NONE; i++) {
            s->helper[s->n_helpers++] = p.helper[k * l->group + i];
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        rui_slice *s = slice_of(e, k);
        s->past = past + (int64_t)k * e->window;
        s->helpee = RU_NEW(e->arena, rui_helpee, RU_REASSIGN_GROUP_MAX);
        if (s->helpee == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the helpers of %u executors", n);
        }
        for (uint32_t o = 0; o < n; o++) {
            if (helper_of(slice_of(e, o), k) < slice_of(e, o)->n_helpers) {
                RU_CHECK(s->n_helpees < RU_REASSIGN_GROUP_MAX);
                s->helpee[s->n_helpees++].id = o;
            }
        }
    }
    return RU_OK;
}

ru_status rui_slice_open_all(ru_engine *e, ru_err *err)
{
    const ru_app_shape *shape = e->opt.shape;
    if (e->opt.stragglers == RU_ENGINE_WAIT) {
        return RU_OK;
    }
    if (e->opt.stragglers == RU_ENGINE_BACKUP) {
        return rui_backup_open(e, err);
    }
    if (shape->whole != NULL) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "app '%s' cannot hand parts of its work to other executors, because %s: set "
                       "clocks.stragglers to wait",
                       e->opt.ops->name, shape->whole);
    }
    RU_CHECK(e->opt.device->hold != NULL && e->opt.device->release != NULL);
    struct rui_slices *l = e->slices = RU_NEW(e->arena, struct rui_slices, 1);
    if (l != NULL) {
        ru_arena_init(&l->arena, 0);
        l->at = RU_NEW(e->arena, rui_slice, e->n_execs);
        ru_arena_init(&l->memory, 0);
        ru_effects_init(&l->fx, &l->memory);
    }
    if (l == NULL || l->at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the helpers of %u executors", e->n_execs);
    }
    int64_t most = 1;
    for (uint32_t k = 0; k < e->n_execs; k++) {
        int64_t items = e->exec[k].rows / shape->pieces;
        ru_arena_init(&l->at[k].arena, 0);
        most = items > most ? items : most;
    }
    l->units = (uint32_t)(most < UNITS_MAX ? most : UNITS_MAX);
    RU_TRY(make_groups(e, err));
    return rui_share_open(e, err);
}

void rui_slice_close_all(ru_engine *e)
{
    if (e->slices == NULL) {
        return;
    }
    for (uint32_t k = 0; k < e->n_execs; k++) {
        rui_help_close(e, k);
        rui_redo_close(e, k);
        ru_arena_fini(&e->slices->at[k].arena);
    }
    ru_arena_fini(&e->slices->share.scratch);
    ru_arena_fini(&e->slices->memory);
    ru_arena_fini(&e->slices->arena);
}
