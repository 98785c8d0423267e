/* Streams: batches in the order of training, filled by threads ahead of the consumer.
 *
 * Batch b of a stream is a pure function of the options (which positions it holds) and of the
 * dataset, so it does not matter which thread fills it. Slots form a ring: batch b lives in slot b
 * % n_slots; threads take batch numbers in order and wait while b >= released + n_slots.
 *
 *     released      next_out                 next_take
 *        |  held by    |   filled or being filled   |  free: b < released + n_slots
 *        |  consumer   |                            |
 *
 * Dataset order and the full shuffle are not announced to the kernel: the first it guesses well
 * (announcing 8 MiB ahead brought 0.9 instead of 1.6 GB/s), and announcing the small reads of a
 * shuffled batch gained nothing. The order in blocks is: while one window of blocks is used, the
 * blocks of the next are fetched whole.
 *
 * Memory is taken at open; nothing is allocated later (formats that decode may). */
#include "data/augment.h"
#include "data/fetch.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/clock.h"
#include "trace/recorder.h"

enum {
    FETCH_BYTES = 1 << 20,
    FETCH_DEPTH = 64,
    FETCH_DEPTH_MAX = 512,
    FETCH_MEMORY = 64 << 20,
    READ_MIN = 64 << 10
};
enum { AHEAD_DEFAULT = 4, AHEAD_MAX = 4096, THREADS_MAX = 256, ALIGN_BYTES = 64 };
static const int64_t bytes_max_default = (int64_t)256 << 20;

typedef struct slot {
    void *fields[RU_FIELDS_MAX]; /* [batch, ...] */
    int64_t done;                /* batch number + 1 of what it holds; 0: nothing */
    ru_status status;
    ru_err err;
} slot;

/* The positions of one batch. */
typedef struct range {
    int64_t epoch, in_epoch; /* of the first sample */
    int64_t n;
    int64_t next; /* global position after the batch */
} range;

struct ru_stream {
    ru_dataset *d;
    ru_stream_options opt;
    int64_t count, total;  /* samples of an epoch; batches of the stream, INT64_MAX: endless */
    int64_t block, window; /* samples of a block and of a window of the order */
    bool announces;        /* windows of blocks, to the kernel */
    slot *slots;           /* [n_slots] */
    uint32_t n_slots, n_threads;
    uint8_t *memory;
    int64_t sample_bytes;
    uint16_t name_read;
    ru_thread *threads;     /* [n_threads] */
    struct reader *readers; /* [n_threads] */
    ru_mutex lock;          /* guards everything below */
    ru_cond filled, freed;
    int64_t next_take, next_out, released;
    int64_t announced;   /* windows before this one, counted over all epochs */
    ru_read_done *ended; /* [RU_READS_KEPT]; NULL: samples are in memory */
    uint32_t n_ended;
    int64_t read_bytes;  /* of a request */
    uint32_t read_depth; /* over all threads */
    int64_t share_bytes; /* outstanding instead of read_depth; 0: none */
    int64_t busy_ns, busy_until_ns, stall_ns;
    int64_t waits_ns; /* the consumer: since then; 0: not */
    bool stop;
};

/* A reading thread's own: the order of the epoch it is in. */
typedef struct reader {
    ru_stream *s;
    ru_dataset d;        /* the stream's, with what this thread fetched */
    rui_fetch *fetch[2]; /* of the batch at hand and of the next; NULL: all bytes are in memory */
    rui_augmenter augmenter;     /* d NULL: samples stay as they are */
    int64_t epoch;               /* -1: none yet */
    int64_t waits_ns, waits_for; /* for requests since then, of this batch; 0: not. Lock */
    rui_order full;
    rui_block_order blocks;
} reader;

/* -- which samples ----------------------------------------------------------------------------- */

static range batch_range(const ru_stream *s, int64_t b)
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
    int64_t at = s->opt.start + b * s->opt.stride;
    r.epoch = at / s->count;
    r.in_epoch = at % s->count;
    if (s->opt.epochs > 0 && s->opt.epochs * s->count - at < batch) {
        r.n = s->opt.epochs * s->count - at;
    }
    r.next = at + r.n + s->opt.stride - batch;
    return r;
}

static int64_t batches_total(const ru_stream *s)
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
    if (d->format->read_run != NULL && !d->skip_damaged && rui_in_order(d)) {
        slice(s, sl, row, fields);
        RU_TRY(d->format->read_run(d, first, n, fields, &sl->err));
        rui_normalize(d, fields, n);
        return RU_OK;
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
    int64_t b;
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
    rui_fetch_begin(f, t->read_bytes, t->read_depth);
}

/* `ahead`: reads of the next batch that go on meanwhile; NULL: none. */
static ru_status fill(reader *rd, slot *sl, range r, rui_fetch *ahead)
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

/* Tell the kernel of the blocks of window `w`, counted over all epochs. */
static void announce_window(const ru_stream *s, int64_t w)
{
    rui_block_order o;
    int64_t per = (s->count + s->window - 1) / s->window, n;
    rui_block_order_init(&o, s->opt.seed, w / per, s->count, s->block);
    int64_t from = w % per * s->window,
            to = from + s->window < s->count ? from + s->window : s->count;
    for (int64_t k = from / s->block; k * s->block < to; k++) {
        int64_t first = rui_block_order_slot(&o, k, &n);
        int64_t head = s->count - first < n ? s->count - first : n;
        rui_dataset_where(s->d, first, head, rui_source_soon, NULL);
        if (head < n) {
            rui_dataset_where(s->d, 0, n - head, rui_source_soon, NULL);
        }
    }
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
        announce_window(s, w);
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
    int64_t size = size_now(s), share = (s->share_bytes + size / 2) / size;
    share = share < 1 ? 1 : share > FETCH_DEPTH_MAX ? FETCH_DEPTH_MAX : share;
    return s->share_bytes > 0 ? (uint32_t)share : s->read_depth;
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

/* A thread got all requests of batch b at `now`. */
static void reads_over(reader *rd, const ru_read_piece *p, uint32_t n, int64_t now)
{
    ru_stream *s = rd->s;
    int64_t from = INT64_MAX, to = 0;
    for (uint32_t i = 0; i < n; i++) {
        from = p[i].issued_ns < from ? p[i].issued_ns : from;
        to = later_of(to, p[i].ended_ns);
    }
    from = later_of(from, s->busy_until_ns);
    s->busy_ns += n > 0 && to > from ? to - from : 0;
    s->busy_until_ns = later_of(s->busy_until_ns, to);
    if (s->waits_ns != 0 && rd->waits_for == s->next_out) {
        s->stall_ns += now - later_of(s->waits_ns, rd->waits_ns);
    }
    rd->waits_ns = 0;
    for (uint32_t i = 0; i < n && s->n_ended < RU_READS_KEPT; i++) {
        s->ended[s->n_ended++] = (ru_read_done){p[i].issued_ns, p[i].ended_ns, p[i].size_bytes};
    }
}

/* Wait for the requests of a batch. */
static void await_reads(reader *rd, rui_fetch *f, int64_t b)
{
    ru_stream *s = rd->s;
    uint32_t n;
    if (f == NULL) {
        return;
    }
    ru_mutex_lock(&s->lock);
    rd->waits_ns = ru_clock_now().ns;
    rd->waits_for = b;
    ru_mutex_unlock(&s->lock);
    const ru_read_piece *p = rui_fetch_end(f, &n);
    ru_mutex_lock(&s->lock);
    reads_over(rd, p, n, ru_clock_now().ns);
    ru_mutex_unlock(&s->lock);
}

/* The next batch, when there is room for it (wait: as soon as there is). Called with the lock. */
static bool take(ru_stream *s, bool wait, task *t)
{
    while (wait && !s->stop && s->next_take < s->total &&
           s->next_take >= s->released + (int64_t)s->n_slots) {
        ru_cond_wait(&s->freed, &s->lock);
    }
    if (s->stop || s->next_take >= s->total || s->next_take >= s->released + (int64_t)s->n_slots) {
        return false;
    }
    t->b = s->next_take++;
    t->r = batch_range(s, t->b);
    t->read_bytes = size_now(s);
    t->read_depth = depth_each(s);
    if (s->announces) {
        announce(s, t->r);
    }
    return true;
}

/* Decode a batch whose reads are under way, while those of the next go on. */
static void finish(reader *rd, const task *t, uint32_t turn, bool more)
{
    ru_stream *s = rd->s;
    slot *sl = &s->slots[t->b % (int64_t)s->n_slots];
    int64_t from = ru_rec_now();
    await_reads(rd, rd->fetch[turn], t->b);
    rd->d.fetched = rd->fetch[turn];
    ru_status st = fill(rd, sl, t->r, more ? rd->fetch[!turn] : NULL);
    ru_rec_span(s->opt.recorder, s->name_read, from, ru_rec_now(), t->r.n * s->sample_bytes);
    ru_mutex_lock(&s->lock);
    sl->status = st;
    sl->done = t->b + 1;
    if (t->b == s->next_out) {
        ru_cond_signal(&s->filled);
    }
    ru_mutex_unlock(&s->lock);
}

/* The reads of the next batch begin before this one is decoded, where slots suffice for two batches
 * of each thread. */
static void reader_main(void *arg)
{
    reader *rd = arg;
    ru_stream *s = rd->s;
    task at[2];
    uint32_t turn = 0;
    bool have = false, two = rd->fetch[0] != NULL && s->n_slots > 2 * s->n_threads;
    ru_recorder_thread(s->opt.recorder, "reader");
    while (true) {
        ru_mutex_lock(&s->lock);
        bool taken = !have && take(s, true, &at[turn]);
        bool more = two && (have || taken) && take(s, false, &at[!turn]);
        ru_mutex_unlock(&s->lock);
        if (!have && !taken) {
            break;
        }
        if (taken && rd->fetch[turn] != NULL) {
            fetch(rd, rd->fetch[turn], &at[turn]);
        }
        if (more) {
            fetch(rd, rd->fetch[!turn], &at[!turn]);
        }
        finish(rd, &at[turn], turn, more);
        have = more;
        turn = more ? !turn : turn;
    }
    ru_recorder_thread_end(s->opt.recorder);
}

/* -- open, next, close ------------------------------------------------------------------------- */

static ru_status check_options(const ru_stream_options *opt, int64_t count, ru_err *err)
{
    if (opt->batch < 1 || opt->batch > (int64_t)1 << 31) {
        return RU_FAIL(err, RU_E_CONFIG, "batch is %lld; expected 1 to 2^31",
                       (long long)opt->batch);
    }
    if (opt->start < 0 || opt->epochs < 0 || opt->bytes_max < 0 || opt->block < 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "stream: start, epochs, block and bytes_max must not be negative");
    }
    if (opt->stride != 0 && (opt->stride < opt->batch || opt->epochs != 0 || opt->drop_last)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "stream: stride %lld; expected 0 or at least the batch (%lld), without end",
                       (long long)opt->stride, (long long)opt->batch);
    }
    if (opt->drop_last && count < opt->batch) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "batch is %lld but the data has only %lld samples, and incomplete batches "
                       "are dropped; make the batch smaller",
                       (long long)opt->batch, (long long)count);
    }
    if (opt->epochs > INT64_MAX / 2 / count || opt->start > INT64_MAX / 4) {
        return RU_FAIL(err, RU_E_CONFIG, "stream: %lld epochs of %lld samples are too many",
                       (long long)opt->epochs, (long long)count);
    }
    if (opt->threads > THREADS_MAX || opt->ahead > AHEAD_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "stream: at most %d reading threads and %d batches ahead",
                       THREADS_MAX, AHEAD_MAX);
    }
    return RU_OK;
}

static int64_t round_up(int64_t n)
{
    return (n + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static void ask(void *self, const rui_source *s, int64_t offset, int64_t size_bytes)
{
    (void)offset;
    (void)size_bytes;
    const rui_source **reads = self;
    *reads = s->bytes == NULL ? s : *reads;
}

/* Do samples stand in files that are not kept in memory, and is it known where? One of these files,
 * or NULL. */
static const rui_source *fetches(const ru_stream *s)
{
    const rui_source *reads = NULL;
    if (s->d->format->where != NULL) {
        rui_dataset_where(s->d, 0, 1, ask, &reads);
    }
    return reads;
}

static ru_status take_memory(ru_stream *s, ru_err *err)
{
    int64_t batch_bytes = 0;
    for (uint32_t k = 0; k < s->d->n_fields; k++) {
        if (s->d->field_bytes[k] > (INT64_MAX >> 8) / s->opt.batch) {
            return RU_FAIL(err, RU_E_LIMIT, "a batch of %lld samples is too large; make it smaller",
                           (long long)s->opt.batch);
        }
        s->sample_bytes += s->d->field_bytes[k];
        batch_bytes += round_up(s->d->field_bytes[k] * s->opt.batch);
    }
    int64_t bound = s->opt.bytes_max > 0 ? s->opt.bytes_max : bytes_max_default;
    int64_t ahead = s->opt.ahead > 0 ? s->opt.ahead : AHEAD_DEFAULT;
    int64_t least = fetches(s) != NULL ? 2 * (int64_t)s->n_threads : s->n_threads;
    ahead = ahead < least ? least : ahead;
    int64_t fit = bound / batch_bytes - 1;
    s->n_slots = (uint32_t)((fit < 1       ? 1
                             : fit < ahead ? fit
                                           : ahead) +
                            1); /* + 1: the consumer's */
    s->slots = calloc(s->n_slots, sizeof *s->slots);
    s->memory = aligned_alloc(ALIGN_BYTES, (size_t)(batch_bytes * s->n_slots));
    s->threads = calloc(s->n_threads, sizeof *s->threads);
    s->readers = calloc(s->n_threads, sizeof *s->readers);
    if (s->slots == NULL || s->memory == NULL || s->threads == NULL || s->readers == NULL) {
        return rui_no_memory(err, "batches read ahead", batch_bytes * s->n_slots);
    }
    if (fetches(s) != NULL) {
        s->ended = malloc(RU_READS_KEPT * sizeof *s->ended);
        if (s->ended == NULL) {
            return rui_no_memory(err, "requests", RU_READS_KEPT * (int64_t)sizeof *s->ended);
        }
        s->read_bytes = FETCH_BYTES;
        s->read_depth = FETCH_DEPTH * s->n_threads;
    }
    uint8_t *at = s->memory;
    for (uint32_t i = 0; i < s->n_slots; i++) {
        for (uint32_t k = 0; k < s->d->n_fields; k++) {
            s->slots[i].fields[k] = at;
            at += round_up(s->d->field_bytes[k] * s->opt.batch);
        }
    }
    return RU_OK;
}

static ru_status open_fetch(reader *rd, ru_err *err)
{
    const ru_stream *s = rd->s;
    int64_t bytes = s->d->bytes / s->count + 1; /* of a sample on the disk */
    const rui_fetch_options opt = {
        .depth_max = FETCH_DEPTH_MAX,
        .bytes_max = FETCH_MEMORY,
        .pieces = s->opt.batch * 2,
        .bytes = bytes < FETCH_MEMORY / s->opt.batch ? bytes * s->opt.batch * 2 : FETCH_MEMORY,
        .threads = s->opt.read_threads,
        .objects = s->d->objects,
        .group = (uint32_t)(rd - s->readers)};
    for (uint32_t k = 0; k < 2 && fetches(s) != NULL; k++) {
        RU_TRY(rui_fetch_open(&opt, &rd->fetch[k], err));
    }
    return RU_OK;
}

static ru_status start_reader(ru_stream *s, uint32_t i, ru_err *err)
{
    reader *rd = &s->readers[i];
    *rd = (reader){.s = s, .d = *s->d, .epoch = -1};
    RU_TRY(open_fetch(rd, err));
    if (rui_augments(&s->opt.augment)) {
        RU_TRY(rui_augmenter_init(&rd->augmenter, &rd->d, &s->opt.augment, s->opt.seed, err));
    }
    return ru_thread_start(&s->threads[i], "reader", reader_main, rd, err);
}

static void set_blocks(ru_stream *s)
{
    int64_t bytes = s->d->bytes / s->count; /* of a sample on the disk */
    int64_t fit = RUI_ORDER_BLOCK_BYTES / (bytes > 0 ? bytes : 1);
    rui_block_order o;
    rui_block_order_init(&o, 0, 0, s->count, s->opt.block > 0 ? s->opt.block : fit > 0 ? fit : 1);
    s->block = o.block;
    s->window = o.window;
    s->announces = s->opt.shuffle == RU_SHUFFLE_BLOCK && s->d->format->where != NULL;
}

ru_status ru_stream_open(ru_dataset *d, const ru_stream_options *opt, ru_stream **out, ru_err *err)
{
    RU_TRY(check_options(opt, d->count, err));
    ru_stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return rui_no_memory(err, "stream", sizeof *s);
    }
    s->d = d;
    s->opt = *opt;
    s->opt.stride = opt->stride > 0 ? opt->stride : opt->batch;
    s->count = d->count;
    s->n_threads = opt->threads > 0 ? opt->threads : 1;
    s->total = batches_total(s);
    set_blocks(s);
    s->name_read = ru_recorder_name(opt->recorder, "read", "data");
    ru_mutex_init(&s->lock);
    ru_cond_init(&s->filled);
    ru_cond_init(&s->freed);
    ru_status st = take_memory(s, err);
    for (uint32_t i = 0; st == RU_OK && i < s->n_threads; i++) {
        st = start_reader(s, i, err);
    }
    if (st != RU_OK) {
        ru_stream_close(s);
        return st;
    }
    *out = s;
    return RU_OK;
}

/* Give back the batch that the consumer held. */
static void release(ru_stream *s)
{
    if (s->released < s->next_out) {
        s->released = s->next_out;
        ru_cond_signal(&s->freed);
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
        while (sl->done != b + 1) {
            ru_cond_wait(&s->filled, &s->lock);
        }
        s->waits_ns = 0;
        batch->wait_ns = ru_time_since(ru_clock_now(), from);
    }
    if (sl->status != RU_OK) { /* the batch stays: the same answer every time */
        ru_mutex_unlock(&s->lock);
        return RU_FAIL(err, sl->status, "%s", sl->err.text);
    }
    s->next_out++;
    ru_mutex_unlock(&s->lock);
    range r = batch_range(s, b);
    memcpy(batch->fields, sl->fields, sizeof sl->fields);
    batch->n = r.n;
    batch->epoch = r.epoch;
    batch->position = r.epoch * s->count + r.in_epoch;
    batch->next = r.next;
    return RU_OK;
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

bool ru_stream_reads_files(const ru_stream *s)
{
    const rui_source *f = fetches(s);
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

void ru_stream_reads_set(ru_stream *s, int64_t size_bytes, uint32_t depth)
{
    ru_mutex_lock(&s->lock);
    s->read_bytes = size_bytes;
    s->read_depth = depth;
    ru_mutex_unlock(&s->lock);
}

void ru_stream_reads_share(ru_stream *s, int64_t outstanding_bytes)
{
    ru_mutex_lock(&s->lock);
    s->share_bytes = outstanding_bytes;
    for (uint32_t i = 0; i < s->n_threads; i++) {
        for (uint32_t k = 0; k < 2 && s->readers[i].fetch[k] != NULL; k++) {
            rui_fetch_depth_set(s->readers[i].fetch[k], depth_each(s));
        }
    }
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
    int64_t batch = (int64_t)((double)s->d->bytes / (double)s->count * (double)s->opt.batch);
    *into = (ru_stream_reads_sum){.busy_ns = s->busy_ns, .stall_ns = s->stall_ns};
    for (uint32_t i = 0; i < s->n_threads; i++) {
        const reader *rd = &s->readers[i];
        for (uint32_t k = 0; k < 2 && rd->fetch[k] != NULL; k++) {
            into->bytes += rui_fetch_bytes(rd->fetch[k]);
        }
        if (rd->waits_ns != 0) {
            busy_from = busy_from == 0 || rd->waits_ns < busy_from ? rd->waits_ns : busy_from;
            stall_from = rd->waits_for == s->next_out ? rd->waits_ns : stall_from;
        }
    }
    busy_from = later_of(busy_from, busy_from != 0 ? s->busy_until_ns : 0);
    into->busy_ns += busy_from != 0 && now > busy_from ? now - busy_from : 0;
    stall_from = stall_from != 0 ? later_of(stall_from, s->waits_ns) : 0;
    into->stall_ns += s->waits_ns != 0 && stall_from != 0 ? now - stall_from : 0;
    int64_t most = 2 * batch * s->n_threads; /* two batches of each thread are under way */
    into->outstanding_bytes = size_now(s) * depth_now(s);
    into->outstanding_bytes = into->outstanding_bytes < most ? into->outstanding_bytes : most;
    into->batch_bytes = batch;
    ru_mutex_unlock(&s->lock);
}

void ru_stream_close(ru_stream *s)
{
    if (s == NULL) {
        return;
    }
    ru_mutex_lock(&s->lock);
    s->stop = true;
    ru_cond_broadcast(&s->freed);
    ru_mutex_unlock(&s->lock);
    for (uint32_t i = 0; s->readers != NULL && i < s->n_threads; i++) {
        rui_fetch_cancel(s->readers[i].fetch[0]);
        rui_fetch_cancel(s->readers[i].fetch[1]);
    }
    for (uint32_t i = 0; s->threads != NULL && i < s->n_threads; i++) {
        ru_thread_join(&s->threads[i]);
    }
    for (uint32_t i = 0; s->readers != NULL && i < s->n_threads; i++) {
        rui_augmenter_fini(&s->readers[i].augmenter);
        rui_fetch_close(s->readers[i].fetch[0]);
        rui_fetch_close(s->readers[i].fetch[1]);
    }
    ru_cond_fini(&s->freed);
    ru_cond_fini(&s->filled);
    ru_mutex_fini(&s->lock);
    free(s->ended);
    free(s->threads);
    free(s->readers);
    free(s->memory);
    free(s->slots);
    free(s);
}
