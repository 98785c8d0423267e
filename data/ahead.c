#include "data/ahead.h"

#include <stdlib.h>

typedef enum state { NONE, BEGINS, FLIES, ENDS, READY } state;

typedef struct slot {
    rui_fetch *fetch;
    int64_t window;
    state state;
    uint32_t users;
} slot;

struct rui_ahead {
    rui_ahead_options opt;
    ru_mutex lock; /* guards the slots; open while a window is begun or ended */
    ru_cond moved;
    slot slots[2];
};

/* -- which samples -------------------------------------------------------------------------------
 */

static int64_t windows_of_epoch(const rui_windows *o)
{
    return (o->count + o->window - 1) / o->window;
}

void rui_window_where(const rui_windows *o, int64_t w, rui_where_fn fn, void *self)
{
    rui_block_order order;
    int64_t per = windows_of_epoch(o), n;
    rui_block_order_init(&order, o->seed, w / per, o->count, o->block);
    int64_t from = w % per * o->window,
            to = from + o->window < o->count ? from + o->window : o->count;
    for (int64_t k = from / o->block; k * o->block < to; k++) {
        int64_t first = rui_block_order_slot(&order, k, &n);
        int64_t head = o->count - first < n ? o->count - first : n;
        rui_dataset_where(o->d, first, head, fn, self);
        if (head < n) {
            rui_dataset_where(o->d, 0, n - head, fn, self);
        }
    }
}

void rui_windows_of(const rui_windows *o, int64_t epoch, int64_t in_epoch, int64_t n,
                    int64_t *first, int64_t *last)
{
    int64_t per = windows_of_epoch(o), end = epoch * o->count + in_epoch + n - 1;
    *first = epoch * per + in_epoch / o->window;
    *last = end / o->count * per + end % o->count / o->window;
}

static void add(const rui_windows *o, int64_t w, rui_fetch *f)
{
    int64_t per = windows_of_epoch(o), epoch = w / per, from = w % per * o->window;
    int64_t to = from + o->window < o->count ? from + o->window : o->count;
    if (o->epochs > 0 && epoch >= o->epochs) {
        return;
    }
    if (o->stride == o->batch) {
        rui_window_where(o, w, rui_fetch_add, f);
        return;
    }
    rui_block_order order;
    rui_block_order_init(&order, o->seed, epoch, o->count, o->block);
    for (int64_t p = from; p < to; p++) {
        int64_t at = epoch * o->count + p - o->start, row = at % o->stride;
        bool before = o->before && row == o->stride - 1;
        if (at >= 0 && (row < o->batch || before)) {
            rui_dataset_where(o->d, rui_block_order_at(&order, p), 1, rui_fetch_add, f);
        }
    }
}

/* -- windows
 * --------------------------------------------------------------------------------------- */

ru_status rui_ahead_open(const rui_ahead_options *opt, rui_ahead **out, ru_err *err)
{
    rui_ahead *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return rui_no_memory(err, "windows that are fetched", sizeof *a);
    }
    a->opt = *opt;
    ru_mutex_init(&a->lock);
    ru_cond_init(&a->moved);
    for (uint32_t k = 0; k < 2; k++) {
        ru_status st = rui_fetch_open(&opt->fetch, &a->slots[k].fetch, err);
        if (st != RU_OK) {
            rui_ahead_close(a);
            return st;
        }
    }
    *out = a;
    return RU_OK;
}

void rui_ahead_close(rui_ahead *a)
{
    if (a == NULL) {
        return;
    }
    for (uint32_t k = 0; k < 2; k++) {
        RU_CHECK(a->slots[k].users == 0);
        rui_fetch_close(a->slots[k].fetch);
    }
    ru_cond_fini(&a->moved);
    ru_mutex_fini(&a->lock);
    free(a);
}

void rui_ahead_cancel(rui_ahead *a)
{
    for (uint32_t k = 0; a != NULL && k < 2; k++) {
        rui_fetch_cancel(a->slots[k].fetch);
    }
}

void rui_ahead_depth_set(rui_ahead *a, uint32_t depth)
{
    for (uint32_t k = 0; a != NULL && k < 2; k++) {
        rui_fetch_depth_set(a->slots[k].fetch, depth);
    }
}

int64_t rui_ahead_bytes(const rui_ahead *a)
{
    return a == NULL ? 0 : rui_fetch_bytes(a->slots[0].fetch) + rui_fetch_bytes(a->slots[1].fetch);
}

/* Called with the lock, which is open while requests begin. */
static void begin(rui_ahead *a, slot *s, int64_t window, int64_t size_bytes, uint32_t depth)
{
    bool flies = s->state == FLIES; /* nobody came for it */
    s->window = window;
    s->state = BEGINS;
    ru_mutex_unlock(&a->lock);
    uint32_t n;
    if (flies) {
        (void)rui_fetch_end(s->fetch, &n);
    }
    add(&a->opt.windows, window, s->fetch);
    rui_fetch_begin(s->fetch, size_bytes, depth);
    ru_mutex_lock(&a->lock);
    s->state = FLIES;
    ru_cond_broadcast(&a->moved);
}

static void end(rui_ahead *a, slot *s)
{
    uint32_t n;
    s->state = ENDS;
    ru_mutex_unlock(&a->lock);
    const ru_read_piece *reads = rui_fetch_end(s->fetch, &n);
    a->opt.ended(a->opt.self, reads, n);
    ru_mutex_lock(&a->lock);
    s->state = READY;
    ru_cond_broadcast(&a->moved);
}

static bool is_free(const slot *s, int64_t window)
{
    return s->users == 0 && s->state != BEGINS && s->state != ENDS &&
           (s->state == NONE || s->window < window);
}

/* One window, ready. False: gone by. Called with the lock. */
static bool hold(rui_ahead *a, int64_t window, int64_t size_bytes, uint32_t depth)
{
    slot *s = &a->slots[window % 2];
    while (s->state == NONE || s->window < window) {
        if (is_free(s, window)) {
            begin(a, s, window, size_bytes, depth);
        } else {
            ru_cond_wait(&a->moved, &a->lock);
        }
    }
    if (s->window != window) {
        return false;
    }
    s->users++;
    while (s->state != READY) {
        if (s->state == FLIES) {
            end(a, s);
        } else {
            ru_cond_wait(&a->moved, &a->lock);
        }
    }
    return true;
}

static void give(rui_ahead *a, int64_t window)
{
    slot *s = &a->slots[window % 2];
    RU_CHECK(s->window == window && s->users > 0);
    if (--s->users == 0) {
        ru_cond_broadcast(&a->moved);
    }
}

bool rui_ahead_take(rui_ahead *a, int64_t first, int64_t last, int64_t size_bytes, uint32_t depth,
                    const rui_fetch *held[2])
{
    RU_CHECK(last == first || last == first + 1);
    held[0] = held[1] = NULL;
    ru_mutex_lock(&a->lock);
    for (int64_t w = first; w <= last; w++) {
        if (!hold(a, w, size_bytes, depth)) {
            for (int64_t v = first; v < w; v++) {
                give(a, v);
            }
            ru_mutex_unlock(&a->lock);
            return false;
        }
        held[w - first] = a->slots[w % 2].fetch;
    }
    slot *next = &a->slots[(last + 1) % 2];
    if (is_free(next, last + 1)) {
        begin(a, next, last + 1, size_bytes, depth);
    }
    ru_mutex_unlock(&a->lock);
    return true;
}

void rui_ahead_give(rui_ahead *a, int64_t first, int64_t last)
{
    ru_mutex_lock(&a->lock);
    for (int64_t w = first; w <= last; w++) {
        give(a, w);
    }
    ru_mutex_unlock(&a->lock);
}
