/* Shares of a stream: a worker whose part of the global batch moves by a few samples keeps what was
 * read ahead for the old part.
 *
 *     read ahead   |........kept.........|gone|        old share of a batch
 *                  |  <- memmove         |
 *             |new |........kept.........|             new share; ru_stream_next reads `new`
 *
 * A batch is a function of its positions alone, so that its bytes are those of a stream that was
 * opened for the new share.
 *
 * Thread: the consumer's. */
#include <stdlib.h>
#include <string.h>

#include "data/stream_impl.h"

enum { LOSS_PART = 4 }; /* a quarter: the rest is read one sample at a time, without threads */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The consumer's reader: no requests of its own. */
static bool open_own(ru_stream *s)
{
    if (s->own != NULL) {
        return true;
    }
    reader *rd = calloc(1, sizeof *rd);
    if (rd == NULL) {
        return false;
    }
    *rd = (reader){.s = s, .d = *s->d, .epoch = -1};
    s->own = rd;
    if (rui_augments(&s->opt.augment) &&
        rui_augmenter_init(&rd->augmenter, &rd->d, &s->opt.augment, s->opt.seed, NULL) != RU_OK) {
        rui_stream_own_close(s);
        return false;
    }
    return true;
}

void rui_stream_own_close(ru_stream *s)
{
    if (s->own != NULL) {
        rui_augmenter_fini(&s->own->augmenter);
        free(s->own);
        s->own = NULL;
    }
}

bool ru_stream_share_set(ru_stream *s, int64_t start, int64_t n)
{
    bool shares = s->opt.epochs == 0 && !s->opt.drop_last && s->d->objects == NULL;
    if (!shares || start < 0 || n < 1 || n > s->room) {
        return false;
    }
    int64_t now = s->base + s->next_out * s->opt.stride; /* only the consumer moves next_out */
    int64_t kept = least(now + s->rows, start + n) - most(now, start);
    if (n - kept > n / LOSS_PART || !open_own(s)) {
        return false;
    }
    rui_stream_share(s, start - s->next_out * s->opt.stride, n);
    return true;
}

/* Samples of positions from .. to - 1 into the batch that begins at `at`. */
static ru_status read_rows(ru_stream *s, slot *sl, int64_t at, int64_t from, int64_t to)
{
    slot part = {0};
    range r = {.epoch = from / s->count, .in_epoch = from % s->count, .n = to - from};
    if (r.n <= 0) {
        return RU_OK;
    }
    for (uint32_t k = 0; k < s->d->n_fields; k++) {
        part.fields[k] = (uint8_t *)sl->fields[k] + (from - at) * s->d->field_bytes[k];
    }
    ru_status st = rui_stream_fill(s->own, &part, r, NULL);
    if (st != RU_OK) {
        sl->err = part.err;
    }
    return st;
}

ru_status rui_stream_reshape(ru_stream *s, slot *sl, range r)
{
    int64_t at = r.epoch * s->count + r.in_epoch, end = at + r.n;
    int64_t from = most(at, sl->at), to = least(end, sl->at + sl->n);
    if (sl->status != RU_OK || to <= from) { /* nothing to keep; the damaged sample may be gone */
        from = to = at;
    }
    for (uint32_t k = 0; k < s->d->n_fields && to > from; k++) {
        int64_t bytes = s->d->field_bytes[k];
        uint8_t *first = sl->fields[k];
        memmove(first + (from - at) * bytes, first + (from - sl->at) * bytes,
                (size_t)((to - from) * bytes));
    }
    sl->at = at;
    sl->n = r.n;
    RU_TRY(read_rows(s, sl, at, at, from));
    return read_rows(s, sl, at, to, end);
}
