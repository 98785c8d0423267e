/* An update in parts: memory for taking back, and making, keeping and taking back. */
#include "exec/cpu/low/update.h"

#include <stdlib.h>
#include <string.h>

#include "exec/cpu/low/optim.h"
#include "trace/record/recorder.h"

enum { ALIGN_BYTES = 64 };

static const uint32_t none = UINT32_MAX;

/* -- memory for taking back ----------------------------------------------------------------------
 */

int64_t rui_update_bytes(const rui_low *lo)
{
    int64_t bytes = 0;
    bool opens = lo->up != NULL && lo->up->needs_more == none;
    for (uint32_t i = lo->update_from; opens && i < lo->run.n; i++) {
        const rui_optim *s = rui_optim_at(lo, i);
        bytes += s != NULL && s->early.may ? rui_optim_early_bytes(s) : 0;
    }
    for (uint32_t i = 0; opens && i < lo->up->n_was; i++) {
        bytes += lo->bufs[lo->up->was[i].root].size_bytes;
    }
    return bytes;
}

ru_status rui_update_memory(rui_low *lo, ru_err *err)
{
    rui_update *up = lo->up;
    if (up == NULL || up->needs_more != none || up->ready) {
        return RU_OK;
    }
    ru_status st = RU_OK;
    for (uint32_t i = lo->update_from; i < lo->run.n && st == RU_OK; i++) {
        rui_optim *s = rui_optim_at(lo, i);
        st = s != NULL && s->early.may ? rui_optim_early_open(s) : RU_OK;
    }
    for (uint32_t i = 0; i < up->n_was && st == RU_OK; i++) {
        int64_t size = lo->bufs[up->was[i].root].size_bytes;
        up->was[i].at = aligned_alloc(ALIGN_BYTES,
                                      (size_t)(size + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES);
        st = up->was[i].at != NULL ? RU_OK : RU_E_MEM;
    }
    if (st != RU_OK) {
        rui_update_close(lo);
        return RU_FAIL(err, RU_E_MEM, "no memory to update parameters early");
    }
    up->ready = true;
    return RU_OK;
}

void rui_update_close(rui_low *lo)
{
    for (uint32_t i = 0; lo->up != NULL && i < lo->run.n; i++) {
        if (rui_optim_at(lo, i) != NULL) {
            rui_optim_early_close(rui_optim_at(lo, i));
        }
    }
    for (uint32_t i = 0; lo->up != NULL && i < lo->up->n_was; i++) {
        free(lo->up->was[i].at);
        lo->up->was[i].at = NULL;
    }
}

/* -- an open update ------------------------------------------------------------------------------
 */

static void save(const rui_low *lo, const rui_step *s)
{
    const rui_update *up = lo->up;
    for (uint32_t k = 0; !up->counts && k < s->n_bufs; k++) {
        uint32_t root = rui_root(lo, s->bufs[k]), i = up->was_of[root];
        if (root != 0 && i != none && !up->was[i].saved) {
            up->was[i].saved = true;
            memcpy(up->was[i].at, lo->bufs[root].ptr, (size_t)lo->bufs[root].size_bytes);
        }
    }
}

static void make_whole(rui_low *lo, const rui_run *run, uint32_t step)
{
    rui_step_rec *r = &lo->run.at[step];
    save(lo, &r->s);
    ru_status st = r->s.fn(r->s.state, r->ptrs, run);
    lo->up->failed = lo->up->failed == RU_OK ? st : lo->up->failed;
}

static void say_made(const rui_update *up, uint32_t step, int64_t begun)
{
    if (up->made.fn != NULL) {
        up->made.fn(up->made.self, step, begun, ru_rec_now());
    }
}

/* All that is left of the parts of gradient `g`; n_grads: of none. */
static void complete(rui_low *lo, const rui_run *run, uint32_t g)
{
    rui_update *up = lo->up;
    for (uint32_t k = up->first[g]; k < up->first[g + 1]; k++) {
        const rui_part *p = &up->parts[k];
        int64_t begun = up->made.fn != NULL ? ru_rec_now() : 0;
        if (p->seg == RUI_PART_WHOLE) {
            make_whole(lo, run, p->step);
        } else {
            rui_optim_rest(rui_optim_at(lo, p->step), lo->run.at[p->step].ptrs, run, p->seg);
        }
        say_made(up, p->step, begun);
    }
}

void rui_update_begin(rui_low *lo, const rui_run *run, const rui_dev_made *made)
{
    rui_update *up = lo->up;
    rui_update_inputs(lo);
    for (uint32_t g = 0; g < lo->n_grads; g++) {
        up->left[g] = lo->grads[g].layout->size_bytes / 4;
    }
    up->open = true;
    up->counts = up->some_early = false;
    up->failed = RU_OK;
    up->made = *made;
    up->args = *run->args;
    const rui_run now = {
        .args = &up->args, .pool = run->pool, .scratch = run->scratch, .stream = run->stream};
    complete(lo, &now, lo->n_grads);
}

/* Segments that read the gradient where it is. */
static void piece(rui_low *lo, const rui_run *run, uint32_t g, int64_t begin, int64_t end)
{
    const rui_update *up = lo->up;
    const float *data = rui_buf_ptr(lo, lo->grads[g].buf);
    int64_t n = lo->grads[g].layout->size_bytes / 4;
    for (uint32_t k = up->first[g]; k < up->first[g + 1]; k++) {
        const rui_part *p = &up->parts[k];
        rui_optim *s = p->seg != RUI_PART_WHOLE ? rui_optim_at(lo, p->step) : NULL;
        if (s != NULL && s->segs[p->seg].g == data && s->segs[p->seg].n == n) {
            int64_t begun = up->made.fn != NULL ? ru_rec_now() : 0;
            rui_optim_sums(s, lo->run.at[p->step].ptrs, run, p->seg, begin, end);
            say_made(up, p->step, begun);
        }
    }
}

void rui_update_sums(rui_low *lo, const rui_run *run, uint32_t grad, int64_t begin, int64_t end)
{
    rui_update *up = lo->up;
    if (begin >= end) {
        return;
    }
    RU_CHECK(up->open && end <= lo->grads[grad].layout->size_bytes / 4);
    const rui_run now = {
        .args = &up->args, .pool = run->pool, .scratch = run->scratch, .stream = run->stream};
    RU_CHECK(end - begin <= up->left[grad]);
    up->some_early = true;
    if (end - begin < lo->grads[grad].layout->size_bytes / 4) { /* else all of it at once */
        piece(lo, &now, grad, begin, end);
    }
    up->left[grad] -= end - begin;
    if (up->left[grad] == 0) {
        complete(lo, &now, grad);
    }
}

static void close_update(rui_low *lo)
{
    rui_update *up = lo->up;
    up->open = false;
    for (uint32_t i = lo->update_from; i < lo->run.n; i++) {
        rui_optim *s = rui_optim_at(lo, i);
        if (s != NULL) {
            rui_optim_reset(s);
        }
    }
    for (uint32_t i = 0; i < up->n_was; i++) {
        up->was[i].saved = false;
    }
}

/* Nothing was made early but what needs no gradient: each step as one, without a copy of what it
 * changes. */
static void finish_whole(rui_low *lo, const rui_run *run)
{
    rui_update *up = lo->up;
    uint32_t made = up->first[lo->n_grads];
    for (uint32_t i = lo->update_from; i < lo->run.n; i++) {
        const rui_step_rec *r = &lo->run.at[i];
        rui_optim *s = rui_optim_at(lo, i);
        int64_t begun = up->made.fn != NULL ? ru_rec_now() : 0;
        bool some = made < up->first[lo->n_grads + 1] && up->parts[made].step == i;
        while (made < up->first[lo->n_grads + 1] && up->parts[made].step == i) {
            made++;
        }
        if (!some) {
            ru_status st = r->s.fn(r->s.state, r->ptrs, run);
            up->failed = up->failed == RU_OK ? st : up->failed;
        }
        for (uint32_t k = 0; some && s != NULL && s->early.may && k < s->n; k++) {
            rui_optim_rest(s, r->ptrs, run, k);
        }
        say_made(up, i, begun);
    }
}

/* The step counts: what is made from here on is not taken back, and so not saved. */
ru_status rui_update_finish(rui_low *lo, const rui_run *run)
{
    rui_update *up = lo->up;
    const rui_run now = {
        .args = &up->args, .pool = run->pool, .scratch = run->scratch, .stream = run->stream};
    up->counts = true;
    for (uint32_t i = lo->update_from; i < lo->run.n; i++) {
        if (rui_optim_at(lo, i) != NULL) {
            rui_optim_at(lo, i)->early.counts = true;
        }
    }
    if (!up->some_early) {
        finish_whole(lo, &now);
    }
    for (uint32_t g = 0; up->some_early && g < lo->n_grads; g++) {
        if (up->left[g] > 0) {
            complete(lo, &now, g);
        }
    }
    close_update(lo);
    return up->failed;
}

void rui_update_undo(rui_low *lo)
{
    rui_update *up = lo->up;
    for (uint32_t i = lo->update_from; up != NULL && i < lo->run.n; i++) {
        rui_optim *s = rui_optim_at(lo, i);
        if (s != NULL) {
            rui_optim_undo(s);
        }
    }
    for (uint32_t i = 0; up != NULL && i < up->n_was; i++) {
        const rui_was *w = &up->was[i];
        if (w->saved) {
            memcpy(lo->bufs[w->root].ptr, w->at, (size_t)lo->bufs[w->root].size_bytes);
        }
    }
    if (up != NULL) {
        close_update(lo);
    }
}
