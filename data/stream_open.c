/* Streams: options, memory, threads. */
#include "data/stream_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "env/process/memory.h"
#include "trace/record/recorder.h"

/* -- open and close ------------------------------------------------------------------------- */

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
    if (opt->threads > THREADS_MAX || opt->ahead > AHEAD_MAX || opt->ahead_max > AHEAD_MAX) {
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
const rui_source *rui_stream_fetches(const ru_stream *s)
{
    const rui_source *reads = NULL;
    if (s->d->format->where != NULL) {
        rui_format_where(s->d, 0, 1, ask, &reads);
    }
    return reads;
}

/* The order in blocks, of data that no kernel keeps. */
static bool keeps_windows(const ru_stream *s)
{
    int64_t bytes = rui_sample_bytes(s->d) + 1;
    return s->opt.shuffle == RU_SHUFFLE_BLOCK && s->d->objects != NULL &&
           rui_stream_fetches(s) != NULL && bytes <= RUI_AHEAD_BYTES_MAX / s->window;
}

/* So many batches that they have as many requests as may be outstanding, or half of the memory of a
 * thread's requests is full of them. */
static void set_flights(ru_stream *s)
{
    int64_t batch = (rui_sample_bytes(s->d) + 1) * s->opt.batch;
    int64_t fit = FETCH_MEMORY / 2 / batch, most = FETCH_DEPTH_MAX / s->opt.batch;
    bool reads = rui_stream_fetches(s) != NULL,
         far = reads && s->d->objects != NULL && !keeps_windows(s);
    fit = s->opt.shuffle == RU_SHUFFLE_FULL && fit > most ? most : fit;
    fit = fit < FLIGHTS_FILES ? FLIGHTS_FILES : fit > FLIGHTS_MAX ? FLIGHTS_MAX : fit;
    s->flights = !reads ? 1 : far ? (uint32_t)fit : FLIGHTS_FILES;
}

/* Of one fetch, of so many for each thread as there are flights: for a batch of twice the usual
 * bytes and the gaps that are read with them, at most half of the bound for all of them. */
static int64_t fetch_bytes(const ru_stream *s, int64_t bound)
{
    int64_t most = bound / 2 / ((int64_t)s->flights * s->n_threads);
    int64_t thread = FETCH_MEMORY / (s->flights > FLIGHTS_FILES ? s->flights : 1);
    int64_t gap = s->d->objects != NULL ? RUI_FETCH_GAP_OBJECT_BYTES : RUI_FETCH_GAP_BYTES;
    int64_t sample = 2 * rui_sample_bytes(s->d) + gap;
    most = most < thread ? most : thread;
    return sample < most / s->opt.batch ? s->opt.batch * sample : most;
}

int64_t rui_stream_field_bytes(const ru_stream *s, uint32_t field)
{
    return round_up(s->d->field_bytes[field] * s->room);
}

static uint32_t least_of(uint32_t a, int64_t b)
{
    return b < 1 ? 1 : b < a ? (uint32_t)b : a;
}

/* How many batches are read ahead, at first and at most, of `fit` that the bound allows. */
static void set_ahead(ru_stream *s, int64_t fit)
{
    uint32_t flights = s->flights * s->n_threads;
    uint32_t first = s->opt.ahead > 0 ? s->opt.ahead : AHEAD_DEFAULT;
    first = first < flights ? flights : first;
    uint32_t most =
        rui_stream_fetches(s) != NULL && s->opt.ahead_max > first ? s->opt.ahead_max : first;
    s->n_ahead = s->ahead_min = least_of(first, fit);
    s->n_slots = least_of(most, fit) + 1; /* + 1: the consumer's */
}

/* Pages that no batch has used yet take no memory (malloc may be told to fill all); where the
 * system refuses to promise so many, fewer batches can be read ahead. Each batch has a mapping of
 * its own, since a consumer may take it. */
static ru_status take_slots(ru_stream *s, ru_err *err)
{
    s->blocks = calloc(2 * (size_t)s->n_slots, sizeof *s->blocks);
    while (s->blocks != NULL && s->n_blocks < s->n_slots &&
           (s->blocks[s->n_blocks] = ru_memory_map(s->block_bytes)) != NULL) {
        s->n_blocks++;
    }
    /* where there was no more, half of it is left for threads and requests */
    uint32_t keep = s->n_blocks == s->n_slots          ? s->n_blocks
                    : s->n_blocks / 2 > s->n_ahead + 1 ? s->n_blocks / 2
                                                       : s->n_ahead + 1;
    while (s->n_blocks > keep) {
        ru_memory_unmap(s->blocks[--s->n_blocks], s->block_bytes);
    }
    bool enough = s->n_blocks > s->n_ahead;
    s->spare.at = enough ? s->blocks + s->n_slots : NULL;
    s->n_slots = enough ? s->n_blocks : s->n_slots;
    s->slots = calloc(s->n_slots, sizeof *s->slots);
    return enough && s->slots != NULL
               ? RU_OK
               : rui_no_memory(err, "batches read ahead", s->block_bytes * s->n_slots);
}

/* Memory of batches that no consumer took. */
static void free_slots(ru_stream *s)
{
    for (int64_t b = s->released; s->slots != NULL && b < s->next_take; b++) {
        ru_memory_unmap(s->slots[b % (int64_t)s->n_slots].block, s->block_bytes);
    }
    while (s->n_blocks > 0) {
        ru_memory_unmap(s->blocks[--s->n_blocks], s->block_bytes);
    }
    while (s->spare.n > 0) {
        ru_memory_unmap(s->spare.at[--s->spare.n], s->block_bytes);
    }
    free(s->slots);
    free(s->blocks);
}

static ru_status take_memory(ru_stream *s, ru_err *err)
{
    for (uint32_t k = 0; k < s->d->n_fields; k++) {
        if (s->d->field_bytes[k] > (INT64_MAX >> 8) / s->room) {
            return RU_FAIL(err, RU_E_LIMIT, "a batch of %lld samples is too large; make it smaller",
                           (long long)s->room);
        }
        s->sample_bytes += s->d->field_bytes[k];
        s->block_bytes += rui_stream_field_bytes(s, k);
    }
    int64_t bound = s->opt.bytes_max > 0 ? s->opt.bytes_max : bytes_max_default;
    set_flights(s);
    s->fetch_bytes = rui_stream_fetches(s) != NULL ? fetch_bytes(s, bound) : 0;
    set_ahead(s, (bound - s->fetch_bytes * s->flights * s->n_threads) / s->block_bytes - 1);
    RU_TRY(take_slots(s, err));
    s->threads = calloc(s->n_threads, sizeof *s->threads);
    s->readers = calloc(s->n_threads, sizeof *s->readers);
    if (s->threads == NULL || s->readers == NULL) {
        return rui_no_memory(err, "reading threads", s->n_threads * (int64_t)sizeof *s->readers);
    }
    if (rui_stream_fetches(s) != NULL) {
        s->ended = malloc(RU_READS_KEPT * sizeof *s->ended);
        if (s->ended == NULL) {
            return rui_no_memory(err, "requests", RU_READS_KEPT * (int64_t)sizeof *s->ended);
        }
        s->read_bytes = FETCH_BYTES;
        s->read_depth = FETCH_DEPTH * s->n_threads;
    }
    return RU_OK;
}

static rui_fetch_options fetch_options(const ru_stream *s)
{
    int64_t bytes = rui_sample_bytes(s->d) + 1; /* on the disk */
    const rui_source *reads = rui_stream_fetches(s);
    int64_t bound = s->opt.bytes_max > 0 ? s->opt.bytes_max : bytes_max_default;
    return (rui_fetch_options){
        .fixed = reads != NULL && reads->file.direct,
        .large = bound / 2 / ((int64_t)s->flights * s->n_threads) >= RU_MEMORY_LARGE_BYTES,
        .depth_max = FETCH_DEPTH_MAX,
        .bytes_max = s->fetch_bytes,
        .pieces = s->opt.batch * 2,
        .bytes =
            bytes < s->fetch_bytes / s->opt.batch / 2 ? bytes * s->opt.batch * 2 : s->fetch_bytes,
        .kind = s->opt.read_threads ? RU_READS_BY_THREADS
                : s->opt.read_plain ? RU_READS_PLAIN
                                    : RU_READS_BEST,
        .objects = s->d->objects};
}

static ru_status open_fetch(reader *rd, ru_err *err)
{
    ru_stream *s = rd->s;
    rui_fetch_options opt = fetch_options(s);
    opt.group = (uint32_t)(rd - s->readers);
    for (uint32_t k = 0; k < s->flights && rui_stream_fetches(s) != NULL; k++) {
        RU_TRY(rui_fetch_open(&opt, &rd->fetch[k], err));
        rui_stream_note_plain(rd, k);
    }
    return RU_OK;
}

static ru_status open_ahead(ru_stream *s, ru_err *err)
{
    rui_ahead_options opt = {.fetch = fetch_options(s),
                             .windows = s->windows,
                             .ended = rui_stream_window_ended,
                             .self = s};
    opt.fetch.group = UINT32_MAX - 1;
    opt.fetch.bytes_max = RUI_AHEAD_BYTES_MAX;
    return keeps_windows(s) ? rui_ahead_open(&opt, &s->ahead, err) : RU_OK;
}

static ru_status start_reader(ru_stream *s, uint32_t i, ru_err *err)
{
    reader *rd = &s->readers[i];
    *rd = (reader){.s = s, .d = *s->d, .epoch = -1};
    RU_TRY(open_fetch(rd, err));
    if (rui_augments(&s->opt.augment)) {
        RU_TRY(rui_augmenter_init(&rd->augmenter, &rd->d, &s->opt.augment, s->opt.seed, err));
    }
    return ru_thread_start(&s->threads[i], "reader", rui_stream_reader, rd, err);
}

static void set_blocks(ru_stream *s)
{
    int64_t bytes = s->d->bytes / s->count; /* of a sample on the disk */
    int64_t fit = RUI_ORDER_BLOCK_BYTES / (bytes > 0 ? bytes : 1);
    rui_block_order o;
    rui_block_order_init(&o, 0, 0, s->count, s->opt.block > 0 ? s->opt.block : fit > 0 ? fit : 1);
    s->block = o.block;
    s->windows = (rui_windows){.d = s->d,
                               .seed = s->opt.seed,
                               .count = s->count,
                               .block = o.block,
                               .window = o.window,
                               .start = s->opt.start,
                               .stride = s->opt.stride,
                               .batch = s->opt.batch,
                               .epochs = s->opt.epochs,
                               .before = s->opt.augment.mixup > 0};
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
    s->room = opt->room > opt->batch ? opt->room : opt->batch;
    s->room = s->room < s->opt.stride ? s->room : s->opt.stride;
    s->base = opt->start;
    s->rows = opt->batch;
    s->count = d->count;
    s->n_threads = opt->threads > 0 ? opt->threads : 1;
    s->total = rui_stream_total(s);
    set_blocks(s);
    s->name_read = ru_recorder_name(opt->recorder, "read", "data");
    s->name_request = ru_recorder_name(opt->recorder, "request", "data");
    s->flows = (uint64_t)ru_rec_now();
    ru_mutex_init(&s->lock);
    ru_cond_init(&s->filled);
    ru_cond_init(&s->freed);
    ru_status st = take_memory(s, err);
    st = st == RU_OK ? open_ahead(s, err) : st;
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

void ru_stream_close(ru_stream *s)
{
    if (s == NULL) {
        return;
    }
    ru_mutex_lock(&s->lock);
    s->stop = true;
    ru_cond_broadcast(&s->freed);
    ru_mutex_unlock(&s->lock);
    rui_ahead_cancel(s->ahead);
    for (uint32_t i = 0; s->readers != NULL && i < s->n_threads; i++) {
        for (uint32_t k = 0; k < FLIGHTS_MAX; k++) {
            rui_fetch_cancel(s->readers[i].fetch[k]);
        }
    }
    for (uint32_t i = 0; s->threads != NULL && i < s->n_threads; i++) {
        ru_thread_join(&s->threads[i]);
    }
    for (uint32_t i = 0; s->readers != NULL && i < s->n_threads; i++) {
        rui_augmenter_fini(&s->readers[i].augmenter);
        for (uint32_t k = 0; k < FLIGHTS_MAX; k++) {
            rui_fetch_close(s->readers[i].fetch[k]);
        }
    }
    rui_ahead_close(s->ahead);
    rui_stream_own_close(s);
    ru_cond_fini(&s->freed);
    ru_cond_fini(&s->filled);
    ru_mutex_fini(&s->lock);
    free(s->ended);
    free(s->threads);
    free(s->readers);
    free_slots(s);
    free(s);
}
