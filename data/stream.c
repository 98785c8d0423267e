/* Streams: batches in the order of training, filled by threads ahead of the consumer.
 *
 * Batch b of a stream is a pure function of the options (which positions it holds) and of the
 * dataset, so it does not matter which thread fills it. Slots form a ring: batch b lives in slot b
 * % n_slots; threads take batch numbers in order and wait while b > released + n_ahead.
 *
 *     released      next_out                 next_take
 *        |  held by    |   filled or being filled   |  free: b <= released + n_ahead < released +
 *        |  consumer   |                            |  n_slots
 *
 * `n_ahead` may change at any time. A slot gets the block of memory that was given back last, so
 * that no more blocks are touched than are in use.
 *
 * Dataset order and the full shuffle are not announced to the kernel: the first it guesses well
 * (announcing 8 MiB ahead brought 0.9 instead of 1.6 GB/s), and announcing the small reads of a
 * shuffled batch gained nothing. The order in blocks is: while one window of blocks is used, the
 * blocks of the next are fetched whole.
 *
 * Data behind addresses has no such cache: rui_ahead keeps its windows. Its requests take long, so
 * that a thread has the reads of more batches under way.
 *
 * Memory is taken at open; nothing is allocated later (formats that decode may). */
#include "data/stream_impl.h"

#include <stdio.h>
#include <string.h>

#include "data/take.h"
#include "env/clock.h"
#include "env/process/memory.h"
#include "trace/record/recorder.h"

/* -- which samples ----------------------------------------------------------------------------- */

range rui_stream_range(const ru_stream *s, int64_t b)
{
    int64_t batch = s->opt.batch, e0 = s->opt.start / s->count, p0 = s->opt.start % s->count;
    range r = {.n = batch};
    if (s->opt.drop_last) {
        int64_t first = (s->count - p0) / batch, per = s->count / batch;
        r.epoch = b < first ? e0 : e0 + 1 + (b - first) / per;
        r.in_epoch = b < first ? p0 + b * batch : (b - first) % per * batch;
        r.next = r.epoch * s->count + r.in_epoch + batch;
        if (s->count - r.in_epoch - batch < batch) {
            r.next = (r.epoch + 1) * s->count;
        }
        return r;
    }
    int64_t at = s->base + b * s->opt.stride;
    r.n = s->rows;
    r.epoch = at / s->count;
    r.in_epoch = at % s->count;
    if (s->opt.epochs > 0 && s->opt.epochs * s->count - at < batch) {
        r.n = s->opt.epochs * s->count - at;
    }
    r.next = at + (s->opt.epochs > 0 ? r.n : s->opt.stride);
    return r;
}

int64_t rui_stream_total(const ru_stream *s)
{
    if (s->opt.epochs == 0) {
        return INT64_MAX;
    }
    int64_t batch = s->opt.batch, left = s->opt.epochs * s->count - s->opt.start;
    if (left <= 0) {
        return 0;
    }
    if (s->opt.drop_last) {
        int64_t p0 = s->opt.start % s->count, e0 = s->opt.start / s->count;
        return (s->count - p0) / batch + (s->opt.epochs - e0 - 1) * (s->count / batch);
    }
    return s->opt.partial_last ? (left + batch - 1) / batch : left / batch;
}

/* -- filling ----------------------------------------------------------------------------------- */

static void slice(const ru_stream *s, const slot *sl, int64_t row, void **fields)
{
    for (uint32_t k = 0; k < s->d->n_fields; k++) {
        fields[k] = (uint8_t *)sl->fields[k] + row * s->d->field_bytes[k];
    }
}

static ru_status fill_run(reader *rd, slot *sl, int64_t row, int64_t first, int64_t n)
{
    void *fields[RU_FIELDS_MAX];
    const ru_stream *s = rd->s;
    const ru_dataset *d = &rd->d;
    if (d->format->read_run != NULL && !d->skip_damaged && rui_in_order(d) && d->cache == NULL) {
        slice(s, sl, row, fields);
        RU_TRY(d->format->read_run(d, first, n, fields, &sl->err));
        return rui_normalize(d, fields, n, &sl->err);
    }
    for (int64_t i = 0; i < n; i++) {
        slice(s, sl, row + i, fields);
        RU_TRY(ru_dataset_read(d, first + i, fields, &sl->err));
    }
    return RU_OK;
}

static int64_t sample_at(reader *rd, const ru_stream *s, int64_t epoch, int64_t position)
{
    bool full = s->opt.shuffle == RU_SHUFFLE_FULL;
    if (rd->epoch != epoch) {
        rd->epoch = epoch;
        if (full) {
            rui_order_init(&rd->full, s->opt.seed, RUI_ORDER_FULL, (uint64_t)epoch, s->count);
        } else {
            rui_block_order_init(&rd->blocks, s->opt.seed, epoch, s->count, s->block);
        }
    }
    return full ? rui_order_at(&rd->full, position) : rui_block_order_at(&rd->blocks, position);
}

/* The sample at a position into `fields`. */
static ru_status read_at(reader *rd, int64_t epoch, int64_t position, void *const *fields,
                         ru_err *err)
{
    const ru_stream *s = rd->s;
    int64_t index =
        s->opt.shuffle == RU_SHUFFLE_NONE ? position : sample_at(rd, s, epoch, position);
    return rd->augmenter.d != NULL ? rui_augment_read(&rd->augmenter, epoch, index, fields, err)
                                   : ru_dataset_read(&rd->d, index, fields, err);
}

/* Each sample of the batch with the one before it in the order of all epochs, whatever batch or
 * worker has that one: from the last row to the first, so that the row before is still pure. */
static ru_status mix(reader *rd, slot *sl, range r)
{
    const ru_stream *s = rd->s;
    int64_t at = r.epoch * s->count + r.in_epoch;
    for (int64_t row = r.n - 1; row >= 0; row--) {
        void *fields[RU_FIELDS_MAX], *before[RU_FIELDS_MAX];
        int64_t epoch = (at + row) / s->count, position = (at + row) % s->count;
        slice(s, sl, row, fields);
        memcpy(before, rd->augmenter.spare, sizeof before);
        if (row > 0) {
            slice(s, sl, row - 1, before);
        } else { /* the very first sample: the last one of its own epoch */
            int64_t last = at > 0 ? at - 1 : s->count - 1;
            RU_TRY(read_at(rd, last / s->count, last % s->count, before, &sl->err));
        }
        int64_t index =
            s->opt.shuffle == RU_SHUFFLE_NONE ? position : sample_at(rd, s, epoch, position);
        rui_augment_mix(&rd->augmenter, epoch, index, fields, before);
    }
    return RU_OK;
}

/* Samples from row `row` on that stand in one epoch. */
static int64_t run_of(const ru_stream *s, const range *r, int64_t row)
{
    return s->count - r->in_epoch < r->n - row ? s->count - r->in_epoch : r->n - row;
}

/* A batch that a reading thread has taken, and how it reads it. */
typedef struct task {
    int64_t b, taken_ns;
    range r;
    int64_t read_bytes;
    uint32_t read_depth;
} task;

/* Ask for the bytes of a batch. */
static void fetch(reader *rd, rui_fetch *f, const task *t)
{
    const ru_stream *s = rd->s;
    range r = t->r;
    for (int64_t row = 0, run; row < r.n; row += run) {
        run = run_of(s, &r, row);
        if (s->opt.shuffle == RU_SHUFFLE_NONE) {
            rui_dataset_where(s->d, r.in_epoch, run, rui_fetch_add, f);
        }
        for (int64_t i = 0; s->opt.shuffle != RU_SHUFFLE_NONE && i < run; i++) {
            rui_dataset_where(s->d, sample_at(rd, s, r.epoch, r.in_epoch + i), 1, rui_fetch_add, f);
        }
        r.in_epoch = 0;
        r.epoch++;
    }
    int64_t first = t->r.epoch * s->count + t->r.in_epoch;
    if (s->opt.augment.mixup > 0 && first > 0) { /* see mix */
        rui_dataset_where(s->d, ru_stream_sample(s, first - 1), 1, rui_fetch_add, f);
    }
    rui_fetch_begin(f, t->read_bytes, t->read_depth);
}

ru_status rui_stream_fill(reader *rd, slot *sl, range r, rui_fetch *ahead)
{
    const ru_stream *s = rd->s;
    bool plain = s->opt.shuffle == RU_SHUFFLE_NONE && rd->augmenter.d == NULL;
    range all = r;
    int64_t row = 0;
    while (row < r.n) {
        int64_t run = run_of(s, &r, row);
        if (plain) {
            RU_TRY(fill_run(rd, sl, row, r.in_epoch, run));
        }
        for (int64_t i = 0; !plain && i < run; i++) {
            void *fields[RU_FIELDS_MAX];
            slice(s, sl, row + i, fields);
            RU_TRY(read_at(rd, r.epoch, r.in_epoch + i, fields, &sl->err));
            rui_fetch_poll(ahead); /* of the next batch */
        }
        row += run;
        r.in_epoch = 0;
        r.epoch++;
    }
    return s->opt.augment.mixup > 0 ? mix(rd, sl, all) : RU_OK;
}

/* Windows up to the one after that of `r`, each by the thread that comes first. Called with the
 * lock, which is open while the kernel listens. */
static void announce(ru_stream *s, range r)
{
    int64_t per = (s->count + s->window - 1) / s->window;
    int64_t now = r.epoch * per + r.in_epoch / s->window;
    s->announced = s->announced < now ? now : s->announced;
    while (s->announced <= now + 1) {
        int64_t w = s->announced++;
        ru_mutex_unlock(&s->lock);
        rui_window_where(&s->windows, w, rui_source_soon, NULL);
        ru_mutex_lock(&s->lock);
    }
}

/* -- requests, called with the lock --------------------------------------------------------------
 */

static int64_t size_now(const ru_stream *s)
{
    bool less = s->share_bytes > 0 && s->share_bytes < s->read_bytes;
    return !less ? s->read_bytes : s->share_bytes > READ_MIN ? s->share_bytes : READ_MIN;
}

static uint32_t depth_now(const ru_stream *s)
{
    int64_t size = size_now(s); /* 0: a source that reads no pieces */
    if (s->share_bytes <= 0 || size <= 0) {
        return s->read_depth;
    }
    int64_t share = (s->share_bytes + size / 2) / size;
    return (uint32_t)(share < 1 ? 1 : share > FETCH_DEPTH_MAX ? FETCH_DEPTH_MAX : share);
}

static uint32_t depth_each(const ru_stream *s)
{
    uint32_t each = (depth_now(s) + s->n_threads - 1) / s->n_threads;
    return each > 0 ? each : 1;
}

static int64_t later_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Requests that ended. */
static void reads_note(ru_stream *s, const ru_read_piece *p, uint32_t n)
{
    int64_t from = INT64_MAX, to = 0;
    for (uint32_t i = 0; i < n; i++) {
        from = p[i].issued_ns < from ? p[i].issued_ns : from;
        to = later_of(to, p[i].ended_ns);
    }
    from = later_of(from, s->busy_until_ns);
    s->busy_ns += n > 0 && to > from ? to - from : 0;
    s->busy_until_ns = later_of(s->busy_until_ns, to);
    for (uint32_t i = 0; i < n && s->n_ended < RU_READS_KEPT; i++) {
        s->ended[s->n_ended++] = (ru_read_done){p[i].issued_ns, p[i].ended_ns, p[i].size_bytes};
    }
}

static void reads_wait(reader *rd, int64_t b)
{
    ru_mutex_lock(&rd->s->lock);
    rd->waits_ns = ru_clock_now().ns;
    rd->waits_for = b;
    ru_mutex_unlock(&rd->s->lock);
}

/* A thread got all requests of batch b. */
static void reads_over(reader *rd, const ru_read_piece *p, uint32_t n)
{
    ru_stream *s = rd->s;
    ru_mutex_lock(&s->lock);
    int64_t now = ru_clock_now().ns; /* not before the consumer's, which is read under the lock */
    reads_note(s, p, n);
    if (s->waits_ns != 0 && rd->waits_for == s->next_out) {
        s->stall_ns += now - later_of(s->waits_ns, rd->waits_ns);
    }
    rd->waits_ns = 0;
    ru_mutex_unlock(&s->lock);
}

void rui_stream_window_ended(void *self, const ru_read_piece *reads, uint32_t n)
{
    ru_stream *s = self;
    ru_mutex_lock(&s->lock);
    reads_note(s, reads, n);
    ru_mutex_unlock(&s->lock);
}

/* The windows of a batch, until rui_ahead_give. False: it fetches its samples by itself. */
static bool hold_windows(reader *rd, const task *t, uint32_t turn, int64_t *first, int64_t *last)
{
    ru_stream *s = rd->s;
    if (s->ahead == NULL) {
        return false;
    }
    rui_windows_of(&s->windows, t->r.epoch, t->r.in_epoch, t->r.n, first, last);
    reads_wait(rd, t->b);
    bool held = *last - *first <= 1 && rui_ahead_take(s->ahead, *first, *last, t->read_bytes,
                                                      t->read_depth * s->n_threads, rd->d.held);
    reads_over(rd, NULL, 0);
    if (!held) { /* they have gone by, or are many */
        fetch(rd, rd->fetch[turn], t);
    }
    return held;
}

/* Wait for the requests of a batch. */
static void await_reads(reader *rd, rui_fetch *f, int64_t b)
{
    uint32_t n;
    if (f != NULL) {
        reads_wait(rd, b);
        const ru_read_piece *p = rui_fetch_end(f, &n);
        reads_over(rd, p, n);
        rui_fetch_record(rd->s->opt.recorder, rd->s->name_request, rd->s->flows, b, p, n);
    }
}

/* Memory for a batch. Called with the lock. */
static void lend(ru_stream *s, slot *sl)
{
    RU_CHECK(s->n_blocks > 0);
    sl->block = s->blocks[--s->n_blocks];
    uint8_t *at = sl->block;
    for (uint32_t k = 0; k < s->d->n_fields; k++) {
        sl->fields[k] = at;
        at += rui_stream_field_bytes(s, k);
    }
}

/* The next batch, when there is room for it (wait: as soon as there is). Called with the lock. */
static bool take(ru_stream *s, bool wait, task *t)
{
    while (wait && !s->stop && s->next_take < s->total && s->next_take > s->released + s->n_ahead) {
        ru_cond_wait(&s->freed, &s->lock);
    }
    if (s->stop || s->next_take >= s->total || s->next_take > s->released + s->n_ahead) {
        return false;
    }
    t->b = s->next_take++;
    t->taken_ns = ru_clock_now().ns;
    lend(s, &s->slots[t->b % (int64_t)s->n_slots]);
    t->r = rui_stream_range(s, t->b);
    t->read_bytes = size_now(s);
    t->read_depth = depth_each(s);
    if (s->announces) {
        announce(s, t->r);
    }
    return true;
}

void rui_stream_note_plain(reader *rd, uint32_t fetch)
{
    ru_stream *s = rd->s;
    const char *why = rd->fetch[fetch] != NULL ? rui_fetch_plain_why(rd->fetch[fetch]) : NULL;
    if (why != NULL && !rd->plain[fetch]) {
        rd->plain[fetch] = true;
        s->n_plain++;
        snprintf(s->plain_why, sizeof s->plain_why, "%s", why);
    }
}

/* Decode a batch whose reads are under way, while those of the next go on. */
static void finish(reader *rd, const task *t, uint32_t turn, rui_fetch *next)
{
    ru_stream *s = rd->s;
    slot *sl = &s->slots[t->b % (int64_t)s->n_slots];
    int64_t from = ru_rec_now(), first, last;
    bool held = hold_windows(rd, t, turn, &first, &last);
    await_reads(rd, rd->fetch[turn], t->b);
    rd->d.fetched = rd->fetch[turn];
    ru_status st = rui_stream_fill(rd, sl, t->r, next);
    if (held) {
        rui_ahead_give(s->ahead, first, last);
        rd->d.held[0] = rd->d.held[1] = NULL;
    }
    rui_fetch_record_batch(s->opt.recorder, s->name_read, s->flows, t->b, from,
                           t->r.n * s->sample_bytes);
    ru_mutex_lock(&s->lock);
    rui_stream_note_plain(rd, turn); /* its buffer may have grown */
    sl->status = st;
    sl->at = t->r.epoch * s->count + t->r.in_epoch;
    sl->n = t->r.n;
    sl->fill_ns = ru_clock_now().ns - t->taken_ns;
    sl->done = t->b + 1;
    if (t->b == s->next_out) {
        ru_cond_signal(&s->filled);
    }
    ru_mutex_unlock(&s->lock);
}

/* The reads of later batches begin before this one is decoded, where slots suffice for them. */
void rui_stream_reader(void *arg)
{
    reader *rd = arg;
    ru_stream *s = rd->s;
    task at[FLIGHTS_MAX];
    uint32_t turn = 0, have = 0, all = s->ahead_min / s->n_threads;
    all = all < 1 ? 1 : all < s->flights ? all : s->flights; /* none waits for another's slots */
    ru_recorder_thread(s->opt.recorder, "reader");
    while (true) {
        uint32_t had = have;
        ru_mutex_lock(&s->lock);
        while (have < all && take(s, have == 0, &at[(turn + have) % all])) {
            have++;
        }
        ru_mutex_unlock(&s->lock);
        if (have == 0) {
            break;
        }
        for (uint32_t k = had; k < have && s->ahead == NULL && rd->fetch[0] != NULL; k++) {
            fetch(rd, rd->fetch[(turn + k) % all], &at[(turn + k) % all]);
        }
        finish(rd, &at[turn], turn, have > 1 ? rd->fetch[(turn + 1) % all] : NULL);
        turn = (turn + 1) % all;
        have--;
    }
    ru_recorder_thread_end(s->opt.recorder);
}

/* -- the consumer --------------------------------------------------------------------------------
 */

/* Give back the batch that the consumer held. */
static void release(ru_stream *s)
{
    if (s->released < s->next_out) {
        RU_CHECK(s->next_out == s->released + 1);
        s->blocks[s->n_blocks++] = s->slots[s->released % (int64_t)s->n_slots].block;
        s->released = s->next_out;
        ru_cond_signal(&s->freed);
    }
}

void *ru_stream_take(ru_stream *s, int64_t *size_bytes)
{
    ru_mutex_lock(&s->lock);
    slot *sl = &s->slots[s->released % (int64_t)s->n_slots];
    bool has = s->released < s->next_out && sl->block == sl->fields[0]; /* else it was taken */
    uint8_t *fresh = has && s->spare.n > 0 ? s->spare.at[--s->spare.n] : NULL;
    fresh = has && fresh == NULL ? ru_memory_map(s->block_bytes) : fresh;
    uint8_t *taken = fresh != NULL ? sl->block : NULL;
    sl->block = fresh != NULL ? fresh : sl->block;
    *size_bytes = s->block_bytes;
    ru_mutex_unlock(&s->lock);
    return taken;
}

void ru_stream_give(ru_stream *s, void *taken, int64_t size_bytes)
{
    if (s != NULL) {
        ru_mutex_lock(&s->lock);
        if (s->spare.n < s->n_slots) {
            s->spare.at[s->spare.n++] = taken;
            taken = NULL;
        }
        ru_mutex_unlock(&s->lock);
    }
    ru_memory_unmap(taken, size_bytes);
}

/* With the lock held: until batch b is there, or for the longest time; others may come before. */
static void wait_for(ru_stream *s, const slot *sl, int64_t b, ru_time from)
{
    int64_t left = s->opt.wait_ns;
    while (sl->done != b + 1 && (s->opt.wait_ns <= 0 || left > 0)) {
        if (left > 0) {
            (void)ru_cond_wait_for(&s->filled, &s->lock, left);
            left = s->opt.wait_ns - ru_time_since(ru_clock_now(), from);
        } else {
            ru_cond_wait(&s->filled, &s->lock);
        }
    }
}

ru_status ru_stream_next(ru_stream *s, ru_batch *batch, ru_err *err)
{
    *batch = (ru_batch){0};
    ru_mutex_lock(&s->lock);
    if (s->next_out >= s->total) {
        ru_mutex_unlock(&s->lock);
        return RU_OK;
    }
    release(s);
    int64_t b = s->next_out;
    slot *sl = &s->slots[b % (int64_t)s->n_slots];
    if (sl->done != b + 1) {
        ru_time from = ru_clock_now();
        s->waits_ns = from.ns;
        wait_for(s, sl, b, from);
        s->waits_ns = 0;
        if (sl->done != b + 1) {
            ru_mutex_unlock(&s->lock);
            return RU_FAIL(err, RU_E_AGAIN, "the next batch is not read yet");
        }
        batch->wait_ns = ru_time_since(ru_clock_now(), from);
    }
    range r = rui_stream_range(s, b);
    if (sl->at != r.epoch * s->count + r.in_epoch || sl->n != r.n) {
        ru_mutex_unlock(&s->lock); /* nobody else touches what is done and not released */
        ru_time from = ru_clock_now();
        sl->status = rui_stream_reshape(s, sl, r);
        batch->wait_ns += ru_time_since(ru_clock_now(), from);
        ru_mutex_lock(&s->lock);
    }
    if (sl->status != RU_OK) { /* the batch stays: the same answer every time */
        ru_mutex_unlock(&s->lock);
        return RU_FAIL(err, sl->status, "%s", sl->err.text);
    }
    s->next_out++;
    ru_mutex_unlock(&s->lock);
    memcpy(batch->fields, sl->fields, sizeof sl->fields);
    batch->n = r.n;
    batch->epoch = r.epoch;
    batch->position = r.epoch * s->count + r.in_epoch;
    batch->next = r.next;
    batch->fill_ns = sl->fill_ns;
    return RU_OK;
}

void rui_stream_share(ru_stream *s, int64_t base, int64_t rows)
{
    ru_mutex_lock(&s->lock);
    s->base = base;
    s->rows = rows;
    ru_mutex_unlock(&s->lock);
}

void ru_stream_ahead_set(ru_stream *s, uint32_t batches)
{
    uint32_t least, most;
    ru_stream_ahead_range(s, &least, &most);
    RU_CHECK(batches >= least && batches <= most);
    ru_mutex_lock(&s->lock);
    s->n_ahead = batches;
    ru_cond_broadcast(&s->freed);
    ru_mutex_unlock(&s->lock);
}

void ru_stream_ahead_range(const ru_stream *s, uint32_t *least, uint32_t *most)
{
    *least = s->ahead_min;
    *most = s->n_slots - 1;
}

int64_t ru_stream_sample(const ru_stream *s, int64_t position)
{
    reader rd = {.epoch = -1};
    int64_t in_epoch = position % s->count;
    return s->opt.shuffle == RU_SHUFFLE_NONE ? in_epoch
                                             : sample_at(&rd, s, position / s->count, in_epoch);
}

bool ru_stream_reads(const ru_stream *s)
{
    return s->ended != NULL;
}

const char *ru_stream_reads_by(const ru_stream *s)
{
    return s->ended != NULL ? rui_fetch_name(s->readers[0].fetch[0]) : NULL;
}

uint32_t ru_stream_reads_plain(ru_stream *s, char *why, uint32_t why_max)
{
    ru_mutex_lock(&s->lock);
    uint32_t n = s->n_plain;
    snprintf(why, why_max, "%s", s->plain_why);
    ru_mutex_unlock(&s->lock);
    return n;
}

int64_t ru_stream_reads_memory(const ru_stream *s)
{
    return s->fetch_bytes * s->flights * s->n_threads;
}

bool ru_stream_reads_far(const ru_stream *s)
{
    const rui_source *f = rui_stream_fetches(s);
    return f != NULL && f->object != NULL;
}

bool ru_stream_reads_files(const ru_stream *s)
{
    const rui_source *f = rui_stream_fetches(s);
    return f != NULL && f->object == NULL && f->file.fd < 0;
}

uint32_t ru_stream_reads_take(ru_stream *s, ru_read_done *into, uint32_t max)
{
    ru_mutex_lock(&s->lock);
    uint32_t n = s->n_ended < max ? s->n_ended : max;
    if (n > 0) {
        memcpy(into, s->ended, n * sizeof *into);
        memmove(s->ended, s->ended + n, (s->n_ended - n) * sizeof *into);
        s->n_ended -= n;
    }
    ru_mutex_unlock(&s->lock);
    return n;
}

/* The depth counts for what is under way, too. Called with the lock. */
static void deepen(ru_stream *s)
{
    for (uint32_t i = 0; i < s->n_threads; i++) {
        for (uint32_t k = 0; k < FLIGHTS_MAX && s->readers[i].fetch[k] != NULL; k++) {
            rui_fetch_depth_set(s->readers[i].fetch[k], depth_each(s));
        }
    }
    rui_ahead_depth_set(s->ahead, depth_now(s));
}

void ru_stream_reads_set(ru_stream *s, int64_t size_bytes, uint32_t depth)
{
    ru_mutex_lock(&s->lock);
    s->read_bytes = size_bytes;
    s->read_depth = depth;
    if (s->d->objects != NULL) { /* their requests wait long in the queue */
        deepen(s);
    }
    ru_mutex_unlock(&s->lock);
}

void ru_stream_reads_share(ru_stream *s, int64_t outstanding_bytes)
{
    ru_mutex_lock(&s->lock);
    s->share_bytes = outstanding_bytes;
    deepen(s);
    ru_mutex_unlock(&s->lock);
}

uint32_t ru_stream_reads_depth(ru_stream *s)
{
    ru_mutex_lock(&s->lock);
    uint32_t depth = depth_now(s);
    ru_mutex_unlock(&s->lock);
    return depth;
}

void ru_stream_reads_sum_get(ru_stream *s, ru_stream_reads_sum *into)
{
    ru_mutex_lock(&s->lock);
    int64_t now = ru_clock_now().ns, busy_from = 0, stall_from = 0;
    int64_t batch = (int64_t)((double)s->d->bytes / (double)s->count * (double)s->rows);
    *into = (ru_stream_reads_sum){.busy_ns = s->busy_ns, .stall_ns = s->stall_ns};
    for (uint32_t i = 0; i < s->n_threads; i++) {
        const reader *rd = &s->readers[i];
        for (uint32_t k = 0; k < FLIGHTS_MAX && rd->fetch[k] != NULL; k++) {
            into->bytes += rui_fetch_bytes(rd->fetch[k]);
        }
        if (rd->waits_ns != 0) {
            busy_from = busy_from == 0 || rd->waits_ns < busy_from ? rd->waits_ns : busy_from;
            stall_from = rd->waits_for == s->next_out ? rd->waits_ns : stall_from;
        }
    }
    into->bytes += rui_ahead_bytes(s->ahead);
    busy_from = later_of(busy_from, busy_from != 0 ? s->busy_until_ns : 0);
    into->busy_ns += busy_from != 0 && now > busy_from ? now - busy_from : 0;
    stall_from = stall_from != 0 ? later_of(stall_from, s->waits_ns) : 0;
    into->stall_ns += s->waits_ns != 0 && stall_from != 0 ? now - stall_from : 0;
    int64_t most = (s->ahead != NULL ? 2 * s->windows.window / s->opt.batch : s->flights) * batch *
                   s->n_threads; /* what is under way at most */
    into->outstanding_bytes = size_now(s) * depth_now(s);
    into->outstanding_bytes = into->outstanding_bytes < most ? into->outstanding_bytes : most;
    into->batch_bytes = batch;
    ru_mutex_unlock(&s->lock);
}
