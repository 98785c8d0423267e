#include "train/embed/device.h"

#include <stdlib.h>
#include <string.h>

void ru_embed_init(ru_embed *d, const ru_embed_ops *ops, void *self)
{
    *d = (ru_embed){.ops = ops, .self = self};
    ru_mutex_init(&d->lock);
}

void ru_embed_fini(ru_embed *d)
{
    ru_mutex_fini(&d->lock);
}

static void say(ru_embed *d, ru_embed_kind kind)
{
    d->ops->say(d->self, &(ru_embed_event){.kind = kind, .step = d->step, .ns = -1});
}

static void wake(ru_embed *d)
{
    d->wakes++;
    d->ops->woken(d->self);
}

/* -- operations of the device ------------------------------------------------------------------ */

void ru_embed_device_build(void *self, const ru_share *share, bool plain)
{
    ru_embed *d = self;
    (void)share; /* whatever the share: the program learns it with the step */
    (void)plain; /* its gradients are row-major always */
    ru_mutex_lock(&d->lock);
    say(d, RU_EMBED_BUILT);
    ru_mutex_unlock(&d->lock);
}

void ru_embed_device_step(void *self, int64_t step, const ru_share *share)
{
    ru_embed *d = self;
    ru_mutex_lock(&d->lock);
    RU_CHECK(d->phase == RU_EMBED_IDLE);
    d->phase = RU_EMBED_OFFERED;
    d->step = step;
    d->share = *share;
    d->n_ready = 0;
    if (d->leaves) { /* nobody will take it */
        say(d, RU_EMBED_LEAVE);
    }
    wake(d);
    ru_mutex_unlock(&d->lock);
}

void ru_embed_device_abort(void *self)
{
    ru_embed *d = self;
    ru_mutex_lock(&d->lock);
    RU_CHECK(d->phase == RU_EMBED_OFFERED || d->phase == RU_EMBED_TAKEN);
    if (d->phase == RU_EMBED_OFFERED) {
        d->phase = RU_EMBED_IDLE;
        say(d, RU_EMBED_ABORTED);
    } else {
        d->phase = RU_EMBED_CANCELLED;
    }
    wake(d);
    ru_mutex_unlock(&d->lock);
}

void ru_embed_device_update(void *self, int64_t step)
{
    ru_embed *d = self;
    ru_mutex_lock(&d->lock);
    RU_CHECK(d->phase == RU_EMBED_TAKEN && d->step == step && d->n_ready == d->n);
    d->phase = RU_EMBED_SUMS;
    wake(d);
    ru_mutex_unlock(&d->lock);
}

/* -- state ------------------------------------------------------------------------------------- */

/* A piece on its way; the cookie is its address. */
typedef struct piece {
    uint32_t k;
    int64_t offset, size;
    uint8_t data[];
} piece;

static ru_status piece_new(const ru_embed *d, uint32_t k, int64_t offset, int64_t size,
                           ru_span *span, uint64_t *cookie)
{
    RU_CHECK(k < d->n_state && offset >= 0 && size <= d->state[k].size_bytes - offset);
    piece *p = malloc(sizeof *p + (size_t)size);
    if (p == NULL) {
        return RU_E_MEM;
    }
    *p = (piece){.k = k, .offset = offset, .size = size};
    *span = (ru_span){.data = p->data, .size_bytes = size};
    *cookie = (uint64_t)(uintptr_t)p;
    return RU_OK;
}

/* The piece becomes what the state is, or the state what the piece is. */
static bool move(const ru_embed *d, piece *p, bool into_state)
{
    if (d->move != NULL) {
        return d->move(d->move_self, p->k, p->offset, p->size, p->data, into_state);
    }
    uint8_t *at = (uint8_t *)d->state[p->k].data + p->offset;
    memcpy(into_state ? at : p->data, into_state ? p->data : at, (size_t)p->size);
    return true;
}

static ru_status state_copy(void *self, uint32_t k, int64_t offset, int64_t size, ru_span *span,
                            uint64_t *cookie)
{
    const ru_embed *d = self;
    ru_status st = piece_new(d, k, offset, size, span, cookie);
    piece *p = (piece *)(uintptr_t)*cookie;
    if (st == RU_OK && !move(d, p, false)) {
        free(p);
        st = RU_E_IO;
    }
    return st;
}

static void state_release(void *self, uint64_t cookie)
{
    (void)self;
    free((piece *)(uintptr_t)cookie);
}

static ru_status state_place(void *self, uint32_t k, int64_t offset, int64_t size, ru_span *span,
                             uint64_t *cookie)
{
    return piece_new(self, k, offset, size, span, cookie);
}

static void state_placed(void *self, uint64_t cookie, bool arrived)
{
    const ru_embed *d = self;
    piece *p = (piece *)(uintptr_t)cookie;
    if (arrived) {
        (void)move(d, p, true); /* the program knows, and updates nothing more */
    }
    free(p);
}

ru_elastic_device ru_embed_device(ru_embed *d)
{
    static const ru_elastic_device_ops ops = {
        .name = "program",
        .build = ru_embed_device_build,
        .step = ru_embed_device_step,
        .abort = ru_embed_device_abort,
        .update = ru_embed_device_update,
        .state_copy = state_copy,
        .state_release = state_release,
        .state_place = state_place,
        .state_placed = state_placed,
    };
    return (ru_elastic_device){.ops = &ops, .self = d};
}

/* -- what the loop thread is told -------------------------------------------------------------- */

void ru_embed_end(ru_embed *d)
{
    ru_mutex_lock(&d->lock);
    d->ended = true;
    wake(d);
    ru_mutex_unlock(&d->lock);
}

/* A step that the program has or could take is given up with the process; else it leaves when the
 * leader has made a view without it. */
static void leave(ru_embed *d, ru_time now, ru_effects *fx)
{
    ru_mutex_lock(&d->lock);
    bool owes = d->phase == RU_EMBED_OFFERED || d->phase == RU_EMBED_TAKEN;
    bool cancelled = d->phase == RU_EMBED_CANCELLED;
    bool updating = d->phase == RU_EMBED_SUMS || d->phase == RU_EMBED_UPDATING;
    int64_t step = d->step;
    /* No call tells the program of it any more. Another step may be offered, which it owes. */
    d->phase = cancelled ? RU_EMBED_IDLE : d->phase;
    ru_mutex_unlock(&d->lock);
    if (owes) {
        ru_elastic_computed(d->elastic, step, RU_E_CANCELLED, 0, now, fx);
        return;
    }
    ru_elastic_stop(d->elastic, false, now, fx);
    if (cancelled) {
        ru_elastic_aborted(d->elastic, now, fx);
    } else if (updating) { /* its state is of no use any more; the step is the others' already */
        ru_elastic_updated(d->elastic, step, RU_E_CANCELLED, now, fx);
    }
}

void ru_embed_said(ru_embed *d, const ru_embed_event *e, ru_time now, ru_effects *fx)
{
    switch (e->kind) {
    case RU_EMBED_BUILT:
        ru_elastic_built(d->elastic, RU_OK, 1, now, fx);
        break;
    case RU_EMBED_READY:
        ru_elastic_ready(d->elastic, e->step, e->tensor, &d->gradients[e->tensor], now, fx);
        if (e->ns >= 0) {
            ru_elastic_computed(d->elastic, e->step, RU_OK, e->ns, now, fx);
        }
        break;
    case RU_EMBED_ABORTED:
        ru_elastic_aborted(d->elastic, now, fx);
        break;
    case RU_EMBED_UPDATED:
        ru_elastic_updated(d->elastic, e->step, RU_OK, now, fx);
        break;
    case RU_EMBED_LEAVE:
        leave(d, now, fx);
        break;
    }
}

/* -- the program ------------------------------------------------------------------------------- */

/* With the lock held: what every call of the program looks at first. */
static ru_status look(ru_embed *d)
{
    /* The last step counts, also where the news of the job's end is faster than the program. */
    bool counts = d->phase == RU_EMBED_SUMS || d->phase == RU_EMBED_UPDATING;
    if (d->leaves || (d->ended && !counts)) {
        return RU_E_PEER;
    }
    if (d->phase == RU_EMBED_CANCELLED) {
        d->phase = RU_EMBED_IDLE;
        say(d, RU_EMBED_ABORTED);
        return RU_E_CANCELLED;
    }
    return RU_OK;
}

ru_status ru_embed_take(ru_embed *d, ru_time now, int64_t *step, ru_share *share)
{
    ru_mutex_lock(&d->lock);
    ru_status st = look(d);
    if (st == RU_E_CANCELLED || (st == RU_OK && d->phase == RU_EMBED_IDLE)) {
        st = RU_E_AGAIN; /* it asks for another one already */
    } else if (st == RU_OK && d->phase != RU_EMBED_OFFERED) {
        st = RU_E_USAGE;
    }
    if (st == RU_OK) {
        d->phase = RU_EMBED_TAKEN;
        d->taken = now;
        *step = d->step;
        *share = d->share;
    }
    ru_mutex_unlock(&d->lock);
    return st;
}

ru_status ru_embed_ready(ru_embed *d, uint32_t k, ru_time now)
{
    ru_mutex_lock(&d->lock);
    ru_status st = look(d);
    if (st == RU_OK && (d->phase == RU_EMBED_IDLE || d->phase == RU_EMBED_OFFERED)) {
        st = RU_E_CANCELLED; /* told before */
    } else if (st == RU_OK && (d->phase != RU_EMBED_TAKEN || k >= d->n || d->n_ready >= d->n)) {
        st = RU_E_USAGE;
    }
    if (st == RU_OK) {
        bool last = ++d->n_ready == d->n;
        int64_t ns = ru_time_since(now, d->taken);
        ru_embed_event e = {.kind = RU_EMBED_READY, .tensor = k, .step = d->step};
        e.ns = !last ? -1 : d->share.n > 0 ? ns : 0;
        d->ops->say(d->self, &e);
    }
    ru_mutex_unlock(&d->lock);
    return st;
}

ru_status ru_embed_sums(ru_embed *d)
{
    ru_mutex_lock(&d->lock);
    ru_status st = look(d);
    if (st == RU_OK && (d->phase == RU_EMBED_IDLE || d->phase == RU_EMBED_OFFERED)) {
        st = RU_E_CANCELLED; /* told before, by ready */
    } else if (st == RU_OK && d->phase == RU_EMBED_TAKEN) {
        st = d->n_ready == d->n ? RU_E_AGAIN : RU_E_USAGE;
    } else if (st == RU_OK) {
        st = d->phase == RU_EMBED_SUMS ? RU_OK : RU_E_USAGE;
        d->phase = RU_EMBED_UPDATING;
    }
    ru_mutex_unlock(&d->lock);
    return st;
}

ru_status ru_embed_done(ru_embed *d)
{
    ru_mutex_lock(&d->lock);
    ru_status st = look(d);
    if (st == RU_OK && d->phase != RU_EMBED_UPDATING) {
        st = RU_E_USAGE;
    }
    if (st == RU_OK) {
        d->phase = RU_EMBED_IDLE;
        if (!d->ended) {
            say(d, RU_EMBED_UPDATED);
        }
    }
    ru_mutex_unlock(&d->lock);
    return st;
}

void ru_embed_leave(ru_embed *d)
{
    ru_mutex_lock(&d->lock);
    if (!d->leaves && !d->ended) {
        d->leaves = true;
        say(d, RU_EMBED_LEAVE);
        wake(d);
    }
    ru_mutex_unlock(&d->lock);
}
