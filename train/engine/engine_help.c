/* Slices of other executors: their data are opened here, rows fetched as for an own task, changes
 * sent as parts of the owner's step.
 *
 *   data open -> rows here -> parts run -> all done: changes to the shards -> acknowledged
 *
 * Rows are read once for all slices of an owner's clock, and changes of slices that follow each
 * other go together: otherwise they cost as much as the work that they are of. */
#include <string.h>

#include "train/app/call.h"
#include "train/engine/engine_slice_impl.h"

static rui_slice *slice_of(const ru_engine *e, uint32_t k)
{
    return &e->slices->at[k];
}

static void no_memory(ru_engine *e, ru_time now, ru_effects *fx)
{
    rui_engine_fail(e, RU_E_MEM, "there is no memory for a slice of another executor", now, fx);
}

void rui_help_came(ru_engine *e, rui_helpee *h, const ru_tasks_range *r, void *bytes, int64_t n)
{
    rui_slice_bytes *b = &h->came[r->seq % RUI_SLICE_SLOTS];
    if (r->seq <= b->range.seq || n != rui_slice_local(e, r, NULL, NULL, true)) {
        ru_bufs_put(e->bufs, bytes);
        return;
    }
    ru_bufs_put(e->bufs, b->bytes);
    *b = (rui_slice_bytes){*r, bytes, n};
}

static void send_batch(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx);

/* -- before --------------------------------------------------------------------------------------
 */

static bool open_locals(ru_engine *e, rui_helpee *h)
{
    const ru_app_shape *s = e->opt.shape;
    for (uint32_t t = 0; t < s->n_tables; t++) {
        int64_t bytes = e->exec[h->id].rows * s->table[t].width * 4;
        if (s->table[t].local && h->local[t] == NULL) {
            h->local[t] = ru_bufs_get(e->bufs, bytes);
            if (h->local[t] == NULL) {
                return false;
            }
            memset(h->local[t], 0, (size_t)bytes);
        }
    }
    return true;
}

/* Rows are here. */
static void begin(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    rui_helpee *h = rui_slice_helpee(e, k, s->of.owner);
    const rui_slice_bytes *came = &h->came[s->of.seq % RUI_SLICE_SLOTS];
    if (!open_locals(e, h)) {
        no_memory(e, now, fx);
        return;
    }
    if (came->range.seq == s->of.seq) { /* else it counts for nothing any more */
        (void)rui_slice_local(e, &s->of, h->local, came->bytes, false);
    }
    s->slice.result = (ru_app_result){0};
    rui_slice_run(e, k, &s->slice, now, fx);
}

static void place(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    int64_t floats = rui_task_floats(e, &s->slice);
    if (floats > s->buffer_floats) {
        ru_bufs_put(e->bufs, s->buffer);
        s->buffer = ru_bufs_get(e->bufs, floats * 4);
        s->buffer_floats = s->buffer == NULL ? 0 : floats;
    }
    if (s->buffer == NULL || !open_locals(e, rui_slice_helpee(e, k, s->of.owner))) {
        no_memory(e, now, fx);
        return;
    }
    rui_task_place(e, &s->slice, s->buffer);
    s->rows_read = s->of.seq != RUI_SLICE_VOID; /* its changes are not for others */
    s->whose = s->of.owner;
    s->clock = s->of.clock;
    begin(e, k, now, fx);
}

/* Data are open: which rows, as of which clock. */
static void fetch(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    rui_helpee *h = rui_slice_helpee(e, k, s->of.owner);
    ru_engine_task *t = &s->slice;
    const rui_exec *x = &e->exec[h->id];
    uint32_t clock = s->of.clock, slack = e->driver_slack, need = clock > slack ? clock - slack : 0;
    *t = (ru_engine_task){.executor = k, .state = h->state, .local = h->local};
    t->task = ru_app_task_of(e->opt.shape, h->id, clock, 0, x->rows);
    if (e->opt.ops->drive != NULL) {
        RU_CHECK(e->args_clock == clock); /* its owner has begun it, and it is not closed */
        t->task.args = e->args;
        t->task.args_bytes = e->args_bytes;
    }
    ru_err err;
    ru_status st = ru_app_call_wants(e->opt.ops, e->opt.shape, h->state, &t->task, x->first,
                                     x->rows, t->want, &t->n_wants, &err);
    if (st != RU_OK) {
        st = ru_err_wrap(&err, st, "clock %u, executor %u", clock, h->id);
        rui_engine_fail(e, st, err.text, now, fx);
        return;
    }
    if (!rui_task_rows(e, t, &s->rows, &s->n_rows, &s->cap_rows)) {
        no_memory(e, now, fx);
        return;
    }
    need = rui_count_need(e, e->closed > need ? e->closed : need);
    if (ru_ps_fetch(e->ps, e->n_execs + 1 + k, need < clock ? need : clock, clock,
                    e->opt.driver == RU_ENGINE_ASYNC, s->rows, s->n_rows, now, fx)) {
        place(e, k, now, fx);
    }
}

void rui_help_fetched(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    RU_CHECK(slice_of(e, k)->of.seq != 0);
    place(e, k, now, fx);
}

void rui_help_work(ru_engine *e, uint32_t k, const ru_tasks_range *r, ru_time now, ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    rui_helpee *h = rui_slice_helpee(e, k, r->owner);
    const ru_tasks_range *whole = &h->came[r->seq % RUI_SLICE_SLOTS].range;
    RU_CHECK(whole->seq == r->seq && whole->lo == r->lo);
    s->of = *whole;
    bool same = s->rows_read && s->whose == r->owner && s->clock == r->clock;
    if (!same) {
        send_batch(e, k, now, fx);
        s->rows_read = false;
    }
    if (same) {
        begin(e, k, now, fx);
    } else if (h->state != NULL) {
        fetch(e, k, now, fx);
    } else if (!h->opens) {
        h->opens = true;
        e->opt.device->open(e->opt.device_self, h->id, k);
    }
}

void rui_help_opened(ru_engine *e, uint32_t helper, uint32_t owner, void *state, ru_time now,
                     ru_effects *fx)
{
    rui_slice *s = slice_of(e, helper);
    rui_helpee *h = rui_slice_helpee(e, helper, owner);
    h->opens = false;
    h->state = state;
    if (!e->ended && s->machine != NULL && s->of.seq != 0 && s->of.owner == owner) {
        fetch(e, helper, now, fx);
    }
}

/* -- after ---------------------------------------------------------------------------------------
 */

/* The changes of the first ones of the list. Their clock is open until its owner knows that they
 * are there. */
static void send(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    const rui_slice_flush *f = slice_of(e, k)->flush;
    if (f == NULL) {
        return;
    }
    const ru_ps_tag tag = {.executor = f->range[0].owner,
                           .step = f->range[0].clock,
                           .part = f->range[0].lo + 1,
                           .part2 = f->n_ranges > 1 ? f->range[1].lo + 1 : 0,
                           .flow = e->n_execs + k};
    if (ru_ps_update(e->ps, tag, 0, f->rows, f->n, f->change, now, fx)) {
        rui_help_flushed(e, k, now, fx);
    }
}

static void flush_free(ru_engine *e, rui_slice_flush *f)
{
    ru_bufs_put(e->bufs, f->rows);
    ru_bufs_put(e->bufs, f->change);
    ru_bufs_put(e->bufs, f);
}

void rui_help_flushed(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    rui_slice_flush *f = s->flush;
    if (f == NULL) {
        rui_engine_ready(e, false, now, fx); /* it was sent again to a shard that is rebuilt */
        return;
    }
    const rui_slice_flush done = *f;
    s->flush = f->next;
    s->flush_last = s->flush == NULL ? NULL : s->flush_last;
    flush_free(e, f);
    send(e, k, now, fx);
    for (uint32_t i = 0; i < done.n_ranges; i++) {
        const ru_tasks_said ev = {.range = done.range[i]};
        rui_slice_step(e, k, RU_TASKS_FLUSHED, &ev, now, fx);
    }
}

/* Changes of slices of lost owners are not sent any more: those under way are withdrawn. */
void rui_help_forget(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    bool first = s->flush != NULL && e->lost[s->flush->range[0].owner];
    if (s->rows_read && e->lost[s->whose]) {
        s->rows_read = false;
        s->n_batch = 0;
    }
    s->flush_last = NULL;
    for (rui_slice_flush **at = &s->flush; *at != NULL;) {
        rui_slice_flush *f = *at;
        if (e->lost[f->range[0].owner]) {
            *at = f->next;
            flush_free(e, f);
        } else {
            s->flush_last = f;
            at = &f->next;
        }
    }
    if (first) {
        send(e, k, now, fx);
    }
}

/* Rows that no slice changed are not sent: those that the whole clock uses were read. */
static bool leave_out(ru_engine *e, rui_slice_flush *f)
{
    int64_t rows = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        rows += f->rows[i].n;
    }
    ru_ps_rows *kept = ru_bufs_get(e->bufs, (rows + 1) * (int64_t)sizeof *kept);
    const float *from = f->change;
    float *to = f->change;
    uint32_t n = 0;
    for (uint32_t i = 0; kept != NULL && i < f->n; i++) {
        uint32_t width = e->opt.shape->table[f->rows[i].table].width, own = n;
        for (uint32_t r = 0; r < f->rows[i].n; r++, from += width) {
            bool any = false;
            for (uint32_t j = 0; j < width; j++) {
                any = any || from[j] != 0;
            }
            if (!any) {
                continue;
            }
            memmove(to, from, (size_t)width * sizeof *to);
            to += width;
            ru_ps_rows *last = n > own ? &kept[n - 1] : NULL;
            uint32_t row = f->rows[i].first + r;
            if (last != NULL && last->first + last->n == row) {
                last->n++;
            } else {
                kept[n++] = (ru_ps_rows){f->rows[i].table, row, 1};
            }
        }
    }
    ru_bufs_put(e->bufs, f->rows);
    f->rows = kept;
    f->n = n;
    return kept != NULL;
}

static void send_batch(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    rui_slice *s = slice_of(e, k);
    ru_engine_task *t = &s->slice;
    if (s->n_batch == 0) {
        return;
    }
    t->status = rui_task_check(e->opt.shape, t);
    if (!rui_task_fine(e, t, now, fx)) {
        return;
    }
    rui_slice_flush *f = ru_bufs_need(e->bufs, sizeof *f);
    RU_CHECK(f != NULL);
    *f = (rui_slice_flush){.n_ranges = s->n_batch};
    memcpy(f->range, s->batch, sizeof s->batch);
    s->n_batch = 0;
    uint32_t cap = 0;
    if (!rui_task_changes(e, t, &f->rows, &f->n, &cap, &f->change) || !leave_out(e, f)) {
        flush_free(e, f);
        no_memory(e, now, fx);
        return;
    }
    for (uint32_t w = 0; w < t->n_wants; w++) {
        if (t->delta[w] != NULL) {
            size_t width = e->opt.shape->table[t->want[w].table].width;
            memset(t->delta[w], 0, (size_t)t->want[w].rows * width * sizeof(float));
        }
    }
    if (s->flush != NULL) {
        s->flush_last->next = f;
        s->flush_last = f;
        return;
    }
    s->flush = s->flush_last = f;
    send(e, k, now, fx);
}

void rui_help_look(ru_engine *e, uint32_t k, ru_time now, ru_effects *fx)
{
    const rui_slice *s = slice_of(e, k);
    if (s->n_batch == RUI_SLICE_SLOTS ||
        (s->n_batch > 0 && !ru_tasks_more(s->machine, s->whose, s->clock))) {
        send_batch(e, k, now, fx);
    }
}

/* The slice is done: its figures and local rows are kept for its owner. */
void rui_help_flush(ru_engine *e, uint32_t k, const ru_tasks_range *r)
{
    rui_slice *s = slice_of(e, k);
    rui_helpee *h = rui_slice_helpee(e, k, r->owner);
    const ru_engine_task *t = &s->slice;
    rui_slice_bytes *made = &h->made[r->seq % RUI_SLICE_SLOTS];
    RU_CHECK(s->of.owner == r->owner && s->of.seq == r->seq && s->n_batch < RUI_SLICE_SLOTS);
    int64_t local = rui_slice_local(e, r, NULL, NULL, true), sums = sizeof t->result.sums;
    ru_bufs_put(e->bufs, made->bytes);
    *made = (rui_slice_bytes){*r, ru_bufs_need(e->bufs, sums + local), sums + local};
    RU_CHECK(made->bytes != NULL);
    memcpy(made->bytes, t->result.sums, (size_t)sums);
    (void)rui_slice_local(e, r, h->local, (uint8_t *)made->bytes + sums, true);
    s->batch[s->n_batch++] = *r;
    s->of = (ru_tasks_range){0};
}

/* -- the end -------------------------------------------------------------------------------------
 */

void rui_help_drop(ru_engine *e, uint32_t k)
{
    rui_slice *s = slice_of(e, k);
    ru_ps_forget(e->ps, e->n_execs + 1 + k);
    while (s->flush != NULL) {
        rui_slice_flush *f = s->flush;
        s->flush = f->next;
        flush_free(e, f);
    }
    s->flush_last = NULL;
    s->of = (ru_tasks_range){0};
    s->rows_read = false;
    s->n_batch = 0;
    for (uint32_t i = 0; i < s->n_helpees; i++) {
        for (uint32_t j = 0; j < RUI_SLICE_SLOTS; j++) {
            rui_helpee *h = &s->helpee[i];
            ru_bufs_put(e->bufs, h->came[j].bytes);
            ru_bufs_put(e->bufs, h->made[j].bytes);
            h->came[j] = h->made[j] = (rui_slice_bytes){0};
        }
    }
}

void rui_help_close(ru_engine *e, uint32_t k)
{
    rui_slice *s = slice_of(e, k);
    for (uint32_t i = 0; i < s->n_helpees; i++) {
        rui_helpee *h = &s->helpee[i];
        if (h->state != NULL) {
            e->opt.device->close(e->opt.device_self, h->id, h->state);
            h->state = NULL;
        }
        for (uint32_t t = 0; t < RU_APP_TABLES_MAX; t++) {
            ru_bufs_put(e->bufs, h->local[t]);
            h->local[t] = NULL;
        }
    }
}
