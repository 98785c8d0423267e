/* Slices of helpers that died, worked on again by their owner.
 *
 * A slice is a part of its owner's step, known by its first item, and a shard takes it once. Which
 * shards have a dead helper's changes nobody knows: the owner works on the same items again, from
 * their local rows as they were when it handed them over, and sends the same part to all shards;
 * those that lack it take it. So each item counts once. The owner is DONE with the clock only after
 * that. Figures and local rows of a slice that was done before count as they came.
 *
 *   view without the dead -> own slices of dead helpers -> rows -> run -> changes -> DONE(clock)
 *
 * An owner that died begins its clock anew elsewhere: shards drop what they hold of its step, and
 * helpers forget its slices. Only with bsp: otherwise shards have merged it. */
#include <string.h>

#include "train/app/call.h"
#include "train/engine/engine_slice_impl.h"

static rui_slice *slice_of(const ru_engine *e, uint32_t k)
{
    return &e->slices->at[k];
}

/* -- what was handed over ------------------------------------------------------------------------
 */

void rui_redo_sent(ru_engine *e, uint32_t k, const ru_tasks_range *r, const void *bytes, int64_t n)
{
    rui_slice *s = slice_of(e, k);
    if (!e->opt.partial) {
        return; /* all roll back when somebody dies */
    }
    rui_slice_sent *x = ru_bufs_need(e->bufs, sizeof *x);
    RU_CHECK(x != NULL);
    *x = (rui_slice_sent){.next = s->sent, .range = *r, .n = n};
    if (n > 0) {
        x->bytes = ru_bufs_need(e->bufs, n);
        RU_CHECK(x->bytes != NULL);
        memcpy(x->bytes, bytes, (size_t)n);
    }
    s->sent = x;
}

/* The clock is over, or begins anew: nothing of it is owed any more. */
void rui_redo_drop(ru_engine *e, uint32_t k)
{
    rui_slice *s = slice_of(e, k);
    while (s->sent != NULL) {
        rui_slice_sent *x = s->sent;
        s->sent = x->next;
        ru_bufs_put(e->bufs, x->bytes);
        ru_bufs_put(e->bufs, x);
    }
    s->n_redo = 0;
    if (s->redo != NULL && s->redo->of != NULL) {
        s->redo->of = NULL;
        ru_ps_forget(e->ps, 2 * e->n_execs + 1 + k);
    }
}

bool rui_redo_owes(const ru_engine *e, uint32_t k)
{
    return e->slices != NULL && slice_of(e, k)->n_redo > 0;
}

bool rui_redo_busy(const ru_engine *e, uint32_t k)
{
    const rui_redo *d = slice_of(e, k)->redo;
    return d != NULL && (d->runs || d->opens || d->flushes);
}

static rui_slice_sent *find(const rui_slice *s, const ru_tasks_range *r)
{
    rui_slice_sent *x = s->sent;
    while (x != NULL && (x->range.helper != r->helper || x->range.seq != r->seq)) {
        x = x->next;
    }
    return x;
}

/* -- one slice -----------------------------------------------------------------------------------
 */

static void no_memory(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_engine_fail(e, RU_E_MEM, "there is no memory to work on a slice again", now, fx);
}

static bool open_locals(ru_engine *e, uint32_t k, rui_redo *d)
{
    const ru_app_shape *s = e->opt.shape;
    for (uint32_t t = 0; t < s->n_tables; t++) {
        int64_t bytes = e->exec[k].rows * s->table[t].width * 4;
        if (s->table[t].local && d->local[t] == NULL) {
            d->local[t] = ru_bufs_get(e->bufs, bytes);
            if (d->local[t] == NULL) {
                return false;
            }
            memset(d->local[t], 0, (size_t)bytes);
        }
    }
    return true;
}

static void run(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_redo *d = slice_of(e, k)->redo;
    int64_t floats = rui_task_floats(e, &d->task);
    if (floats > d->buffer_floats) {
        ru_bufs_put(e->bufs, d->buffer);
        d->buffer = ru_bufs_get(e->bufs, floats * 4);
        d->buffer_floats = d->buffer == NULL ? 0 : floats;
    }
    if (d->buffer == NULL) {
        no_memory(e, now, fx);
        return;
    }
    rui_task_place(e, &d->task, d->buffer);
    d->runs = true;
    d->generation = e->generation;
    e->opt.device->run(e->opt.device_self, &d->task);
}

static void fetch(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_redo *d = slice_of(e, k)->redo;
    const ru_tasks_range *r = &d->of->range;
    const rui_exec *x = &e->exec[k];
    ru_engine_task *t = &d->task;
    if (!open_locals(e, k, d)) {
        no_memory(e, now, fx);
        return;
    }
    (void)rui_slice_local(e, r, d->local, d->of->bytes, false);
    *t = (ru_engine_task){.executor = k, .part = true, .state = d->state, .local = d->local};
    t->task = ru_app_task_of(e->opt.shape, k, r->clock, 0, x->rows);
    rui_slice_items(e, r, &t->task.lo, &t->task.hi);
    t->task.args = e->args;
    t->task.args_bytes = e->opt.ops->drive == NULL ? 0 : e->args_bytes;
    ru_err err;
    ru_status st = ru_app_call_wants(e->opt.ops, e->opt.shape, d->state, &t->task, x->first,
                                     x->rows, t->want, &t->n_wants, &err);
    if (st != RU_OK) {
        rui_engine_fail(e, st, err.text, now, fx);
        return;
    }
    if (!rui_task_rows(e, t, &d->rows, &d->n_rows, &d->cap_rows)) {
        no_memory(e, now, fx);
        return;
    }
    if (ru_ps_fetch(e->ps, 2 * e->n_execs + 1 + k, r->clock, r->clock, false, d->rows, d->n_rows,
                    now, fx)) {
        run(e, k, now, fx);
    }
}

void rui_redo_fetched(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    run(e, k, now, fx);
}

/* The next slice that is owed. */
static void look(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    if (s->n_redo == 0 || e->ended || s->machine == NULL) {
        return;
    }
    if (s->redo == NULL) {
        s->redo = ru_bufs_need(e->bufs, sizeof *s->redo);
        RU_CHECK(s->redo != NULL);
        memset(s->redo, 0, sizeof *s->redo);
    }
    rui_redo *d = s->redo;
    if (d->of != NULL || d->opens || d->runs || d->flushes) {
        return;
    }
    if (d->state == NULL) {
        d->opens = true;
        e->opt.device->open(e->opt.device_self, k, e->n_execs + k);
        return;
    }
    rui_slice_sent *x = s->sent;
    while (x != NULL && !x->redo) {
        x = x->next;
    }
    RU_CHECK(x != NULL);
    d->of = x;
    fetch(e, k, now, fx);
}

void rui_redo_opened(ru_engine *e, uint32_t k, void *state, ru_time now, ru_effects *fx)
{
    rui_redo *d = slice_of(e, k)->redo;
    d->opens = false;
    d->state = state;
    look(e, k, now, fx);
    rui_exec_settle(e, k, now, fx);
}

/* Figures and local rows of a slice that was not done before. */
static void count(ru_engine *e, uint32_t k, const rui_slice_sent *x)
{
    rui_exec *o = &e->exec[k];
    rui_redo *d = slice_of(e, k)->redo;
    const ru_tasks_range *r = &x->range;
    double *sums = o->step > r->clock ? o->done + r->clock % e->window * e->sums_n : o->sums;
    for (uint32_t i = 0; i < RU_APP_SUMS_MAX; i++) {
        sums[i] += d->task.result.sums[i];
    }
    int64_t n = rui_slice_local(e, r, NULL, NULL, true);
    uint8_t *bytes = n > 0 ? ru_bufs_need(e->bufs, n) : NULL;
    RU_CHECK(n == 0 || bytes != NULL);
    (void)rui_slice_local(e, r, d->local, bytes, true);
    (void)rui_slice_local(e, r, o->local, bytes, false);
    ru_bufs_put(e->bufs, bytes);
}

void rui_redo_flushed(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    if (s->redo == NULL || !s->redo->flushes) {
        rui_engine_ready(e, false, now, fx); /* it was sent again to a shard that is rebuilt */
        return;
    }
    rui_slice_sent *x = s->redo->of;
    s->redo->flushes = false;
    s->redo->of = NULL;
    if (x == NULL) { /* not owed any more */
        look(e, k, now, fx);
        rui_exec_settle(e, k, now, fx);
        return;
    }
    if (!x->counted) {
        count(e, k, x);
    }
    x->redo = false;
    x->counted = true;
    e->facts.redone++;
    s->n_redo--;
    if (s->n_redo > 0) {
        look(e, k, now, fx);
    } else if (e->exec[k].busy == RUI_IDLE) {
        rui_exec_tell(e, k, now, fx);
    }
}

bool rui_redo_ran(ru_engine *e, const ru_engine_task *task, ru_time now, ru_effects *fx)
{
    uint32_t k = task->executor;
    rui_redo *d = slice_of(e, k)->redo;
    if (d == NULL || task != &d->task) {
        return false;
    }
    d->runs = false;
    e->facts.busy_ns += task->cpu_ns;
    if (e->ended) {
        return true;
    }
    if (d->of == NULL || d->generation != e->generation) { /* not owed any more */
        look(e, k, now, fx);
        rui_exec_settle(e, k, now, fx);
        return true;
    }
    float *change;
    d->task.status =
        d->task.status == RU_OK ? rui_task_check(e->opt.shape, &d->task) : d->task.status;
    if (!rui_task_fine(e, &d->task, now, fx)) {
        return true;
    }
    if (!rui_task_changes(e, &d->task, &d->rows, &d->n_rows, &d->cap_rows, &change)) {
        no_memory(e, now, fx);
        return true;
    }
    const ru_ps_tag tag = {.executor = k,
                           .step = d->of->range.clock,
                           .part = d->of->range.lo + 1,
                           .flow = 2 * e->n_execs + k};
    d->flushes = true;
    bool over = ru_ps_update(e->ps, tag, 0, d->rows, d->n_rows, change, now, fx);
    ru_bufs_put(e->bufs, change);
    if (over) {
        rui_redo_flushed(e, k, now, fx);
    }
    return true;
}

/* -- a view without members that died ------------------------------------------------------------
 */

static void owe(ru_engine *e, uint32_t k, uint32_t helper, bool all)
{
    rui_slice *s = slice_of(e, k);
    ru_tasks_range *r = ru_bufs_need(e->bufs, (RU_TASKS_ACCEPTED_MAX + 2) * (int64_t)sizeof *r);
    uint32_t n_done, n;
    RU_CHECK(r != NULL);
    n = ru_tasks_anew(s->machine, helper, r, &n_done);
    for (uint32_t i = 0; i < n; i++) {
        rui_slice_sent *x = r[i].clock >= e->closed ? find(s, &r[i]) : NULL;
        if (x == NULL || (x->redo && !all)) {
            continue;
        }
        s->n_redo += x->redo ? 0 : 1;
        x->counted = x->counted || i < n_done;
        x->redo = true;
    }
    ru_bufs_put(e->bufs, r);
}

/* An owner whose slices this executor had begins anew. */
static void forget(ru_engine *e, uint32_t k, uint32_t owner)
{
    rui_slice *s = slice_of(e, k);
    rui_helpee *h = rui_slice_helpee(e, k, owner);
    if (h == NULL) {
        return;
    }
    for (uint32_t j = 0; j < RUI_SLICE_SLOTS; j++) {
        ru_bufs_put(e->bufs, h->came[j].bytes);
        ru_bufs_put(e->bufs, h->made[j].bytes);
        h->came[j] = h->made[j] = (rui_slice_bytes){0};
    }
    if (s->of.seq != 0 && s->of.owner == owner) {
        s->of.seq = RUI_SLICE_VOID; /* what is under way of it ends, and counts for nothing */
    }
}

/* It was to move to a member that died: its new holder rebuilds it, and one of the two must go. */
static void give_up(ru_engine *e, uint32_t k)
{
    rui_exec *x = &e->exec[k];
    ru_bufs_put(e->bufs, x->arrived);
    x->arrived = NULL;
    if (x->want != RUI_WANT_READY) {
        return;
    }
    x->want = RUI_WANT_NONE;
    x->mine = false;
    if (x->busy == RUI_FETCHES) {
        ru_ps_forget(e->ps, k);
    }
    x->busy = x->busy == RUI_FETCHES || x->busy == RUI_FLUSHES ? RUI_IDLE : x->busy;
    rui_slice_void(e, k);
}

void rui_redo_fence(ru_engine *e, ru_time now, ru_effects *fx)
{
    for (uint32_t k = 0; k < e->n_execs && e->slices != NULL; k++) {
        if (e->lost[k] && !ru_node_is(e->holder[k], e->opt.self)) {
            give_up(e, k);
        }
    }
    for (uint32_t k = 0; k < e->n_execs && e->slices != NULL && !e->ended; k++) {
        rui_slice *s = slice_of(e, k);
        for (uint32_t i = 0; i < s->n_helpees; i++) {
            if (e->lost[s->helpee[i].id]) { /* it counts anew */
                memset(s->helpee[i].refused, 0, sizeof s->helpee[i].refused);
            }
        }
        if (s->machine == NULL) {
            continue;
        }
        /* It is here after all: the others hold nothing of it any more. */
        bool anew = e->lost[k] != 0;
        if (anew && s->redo != NULL && s->redo->of != NULL && !s->redo->runs) {
            s->redo->of = NULL;
            s->redo->flushes = false; /* withdrawn */
            ru_ps_forget(e->ps, 2 * e->n_execs + 1 + k);
        }
        if (anew) { /* owners take back what it has of theirs */
            s->of.seq = s->of.seq != 0 ? RUI_SLICE_VOID : 0;
            s->rows_read = false;
            s->n_batch = 0;
        }
        for (uint32_t o = 0; o < e->n_execs; o++) {
            if (e->lost[o] || anew) {
                owe(e, k, o, anew);
            }
            if (e->lost[o]) {
                forget(e, k, o);
            }
        }
        for (rui_slice_sent *x = s->sent; x != NULL && anew; x = x->next) {
            s->n_redo += x->counted && !x->redo ? 1 : 0; /* done here in place of a dead helper */
            x->redo = x->redo || x->counted;
        }
        rui_help_forget(e, k, now, fx);
        look(e, k, now, fx);
        rui_slice_step(e, k, RU_TASKS_TIMER, NULL, now, fx);
    }
}

void rui_redo_reset(ru_engine *e, uint32_t k)
{
    rui_redo *d = slice_of(e, k)->redo;
    if (d != NULL) {
        d->flushes = false; /* the store has forgotten it */
    }
}

void rui_redo_close(ru_engine *e, uint32_t k)
{
    rui_redo *d = slice_of(e, k)->redo;
    if (d != NULL && d->state != NULL) {
        e->opt.device->close(e->opt.device_self, k, d->state);
        d->state = NULL;
    }
}
