/* The recorder: rings filled by the recording threads, one writer thread that drains them.
 *
 *   thread 0 -> ring 0 --.
 *   thread 1 -> ring 1 ---+--> writer --> blocks appended to one file
 *   thread 2 -> ring 2 --'
 *
 * A ring belongs to the thread that first recorded; it is found through the thread's slot without a
 * lock. Rings are single-producer single-consumer (base/ring.h); a full ring drops and counts. */
#include "trace/record/recorder.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/ring.h"
#include "env/clock.h"
#include "env/thread.h"
#include "trace/record/recorder_impl.h"

/* The ring of a thread of this name that has ended: threads that come and go share a few. */
static rec_thread *thread_again(ru_recorder *r, const char *name)
{
    rec_thread *found = NULL;
    ru_mutex_lock(&r->mutex);
    for (uint32_t i = 0; i < r->n_threads && found == NULL; i++) {
        rec_thread *t = r->threads[i];
        found = t->ended && strncmp(t->name, name, sizeof t->name - 1) == 0 ? t : NULL;
    }
    if (found != NULL) {
        found->ended = false;
    }
    ru_mutex_unlock(&r->mutex);
    return found;
}

static rec_thread *thread_new(ru_recorder *r, const char *name)
{
    rec_thread *old = thread_again(r, name);
    if (old != NULL) {
        return old;
    }
    rec_thread *t = aligned_alloc(_Alignof(rec_thread), sizeof *t);
    if (t == NULL) {
        return NULL;
    }
    memset(t, 0, sizeof *t);
    t->slots = calloc(r->ring_records, sizeof(ru_record));
    if (t->slots == NULL) {
        free(t);
        return NULL;
    }
    ru_spsc_init(&t->ring, t->slots, r->ring_records, sizeof(ru_record));
    ru_mutex_lock(&r->mutex);
    if (r->n_threads < REC_THREADS_MAX) {
        t->index = r->n_threads;
        r->threads[r->n_threads++] = t;
    } else {
        free(t->slots);
        free(t);
        t = NULL;
    }
    ru_mutex_unlock(&r->mutex);
    return t;
}

/* The calling thread's ring; NULL when memory or thread numbers ran out (then nothing is recorded
 * for this thread and the loss is counted). */
static rec_thread *thread_named(ru_recorder *r, const char *name)
{
    if (RU_UNLIKELY(r->driven)) {
        return r->threads[0];
    }
    ru_thread_slot *slot = ru_thread_trace_slot();
    if (RU_LIKELY(slot->owner == r && slot->stamp == r->stamp)) {
        return slot->value;
    }
    rec_thread *t = thread_new(r, name);
    *slot = (ru_thread_slot){r, r->stamp, t};
    if (t == NULL) {
        ru_mutex_lock(&r->mutex);
        r->threads_refused++;
        ru_mutex_unlock(&r->mutex);
    }
    return t;
}

static rec_thread *thread_of(ru_recorder *r)
{
    return thread_named(r, "");
}

static void put(ru_recorder *r, const ru_record *rec)
{
    rec_thread *t = thread_of(r);
    ru_record *place = t != NULL ? ru_spsc_place(&t->ring) : NULL;
    if (RU_UNLIKELY(place == NULL && t != NULL && r->driven)) {
        rui_writer_drain(r);
        place = ru_spsc_place(&t->ring);
    }
    if (RU_LIKELY(place != NULL)) {
        *place = *rec;
        ru_spsc_put(&t->ring);
    } else if (t != NULL) {
        ru_spsc_lose(&t->ring);
    }
}

/* Both halves of a transfer, or neither. */
static void put_pair(ru_recorder *r, const ru_record *rec, const ru_record_more *more)
{
    _Static_assert(sizeof *more == sizeof *rec, "a ring has elements of one size");
    _Static_assert(offsetof(ru_record_more, kind) == offsetof(ru_record, kind), "kind tells them");
    rec_thread *t = thread_of(r);
    if (t == NULL) {
        return;
    }
    bool room = ru_spsc_room(&t->ring, 2);
    if (RU_UNLIKELY(!room && r->driven)) {
        rui_writer_drain(r);
        room = ru_spsc_room(&t->ring, 2);
    }
    if (RU_UNLIKELY(!room)) {
        ru_spsc_lose(&t->ring);
        ru_spsc_lose(&t->ring);
        return;
    }
    ru_record *place = ru_spsc_place(&t->ring);
    *place = *rec;
    ru_spsc_put(&t->ring);
    ru_record_more *next = ru_spsc_place(&t->ring);
    *next = *more;
    ru_spsc_put(&t->ring);
}

int64_t ru_rec_now(void)
{
    return ru_clock_now().ns;
}

static void put_span(ru_recorder *r, ru_record rec, int64_t end_ns)
{
    /* Durations have 32 bits: a longer span becomes several that touch; the reader joins them. */
    while (RU_UNLIKELY(end_ns - rec.start_ns > UINT32_MAX)) {
        rec.dur_ns = UINT32_MAX;
        put(r, &rec);
        rec.start_ns += UINT32_MAX;
    }
    rec.dur_ns = end_ns > rec.start_ns ? (uint32_t)(end_ns - rec.start_ns) : 0;
    put(r, &rec);
}

void ru_rec_span(ru_recorder *r, uint16_t name, int64_t start_ns, int64_t end_ns, int64_t value)
{
    if (r != NULL) {
        put_span(r, (ru_record){.start_ns = start_ns, .value = value, .name = name}, end_ns);
    }
}

void ru_rec_act(ru_recorder *r, uint16_t name, int64_t start_ns, int64_t end_ns, int64_t value,
                uint32_t plan, uint32_t predicted_ns)
{
    if (r != NULL) {
        ru_record rec = {.start_ns = start_ns,
                         .value = value,
                         .name = name,
                         .plan = plan,
                         .predicted_ns = predicted_ns};
        put_span(r, rec, end_ns);
    }
}

void ru_rec_async(ru_recorder *r, uint16_t name, int64_t start_ns, int64_t end_ns, int64_t value,
                  uint32_t plan, uint32_t predicted_ns)
{
    if (r != NULL) {
        ru_record rec = {.start_ns = start_ns,
                         .value = value,
                         .name = name,
                         .kind = RU_REC_ASYNC,
                         .plan = plan,
                         .predicted_ns = predicted_ns};
        put_span(r, rec, end_ns);
    }
}

void ru_rec_wait(ru_recorder *r, uint16_t name, int64_t start_ns, int64_t end_ns, uint16_t on)
{
    if (r != NULL) {
        ru_record rec = {.start_ns = start_ns, .value = on, .name = name, .kind = RU_REC_WAIT};
        put_span(r, rec, end_ns);
    }
}

static uint32_t ns32(int64_t ns)
{
    return ns <= 0 ? 0 : ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

void ru_rec_flows(ru_recorder *r, const ru_rec_flow *f)
{
    if (r == NULL) {
        return;
    }
    ru_record rec = {.start_ns = f->start_ns,
                     .value = f->bytes,
                     .predicted_ns = ns32(f->predicted_ns),
                     .name = f->name,
                     .kind = (uint16_t)f->kind,
                     .plan = f->plan};
    ru_record_more more = {.flow = f->flow,
                           .peer = f->peer,
                           .step = f->step,
                           .rank = f->rank,
                           .chan_class = f->chan_class,
                           .flags = f->flags,
                           .label = f->label,
                           .kind = RU_REC_MORE,
                           .wait_ns = ns32(f->wait_ns)};
    while (RU_UNLIKELY(f->end_ns - rec.start_ns > UINT32_MAX)) { /* as put_span */
        rec.dur_ns = UINT32_MAX;
        put_pair(r, &rec, &more);
        rec.start_ns += UINT32_MAX;
    }
    rec.dur_ns = ns32(f->end_ns - rec.start_ns);
    put_pair(r, &rec, &more);
}

void ru_rec_instant_at(ru_recorder *r, uint16_t name, int64_t at_ns, int64_t value)
{
    if (r != NULL) {
        put(r,
            &(ru_record){.start_ns = at_ns, .value = value, .name = name, .kind = RU_REC_INSTANT});
    }
}

void ru_rec_instant(ru_recorder *r, uint16_t name, int64_t value)
{
    if (r != NULL) {
        ru_rec_instant_at(r, name, ru_rec_now(), value);
    }
}

void ru_rec_counter_at(ru_recorder *r, uint16_t name, int64_t at_ns, double value)
{
    if (r != NULL) {
        ru_record rec = {.start_ns = at_ns, .name = name, .kind = RU_REC_COUNTER};
        memcpy(&rec.value, &value, sizeof value);
        put(r, &rec);
    }
}

void ru_rec_counter(ru_recorder *r, uint16_t name, double value)
{
    if (r != NULL) {
        ru_rec_counter_at(r, name, ru_rec_now(), value);
    }
}

/* -- names ----------------------------------------------------------------------------------------
 */

static uint64_t text_hash(const char *category, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *p = category; *p != '\0'; p++) {
        h = (h ^ (uint8_t)*p) * 0x100000001b3u;
    }
    h = (h ^ 0xff) * 0x100000001b3u;
    for (const char *p = name; *p != '\0'; p++) {
        h = (h ^ (uint8_t)*p) * 0x100000001b3u;
    }
    return h;
}

/* Called with the mutex held. */
static uint16_t name_add(ru_recorder *r, const char *category, const char *name, uint32_t slot)
{
    char *c = strndup(category, 255), *n = strndup(name, 255);
    if (c == NULL || n == NULL) {
        free(c);
        free(n);
        return REC_NAME_OTHER;
    }
    uint32_t id = r->n_names++;
    r->names[id] = (rec_name){c, n};
    r->slots[slot] = (uint16_t)id;
    return (uint16_t)id;
}

uint16_t ru_recorder_name(ru_recorder *r, const char *name, const char *category)
{
    if (r == NULL) {
        return 0;
    }
    ru_mutex_lock(&r->mutex);
    uint32_t slot = (uint32_t)text_hash(category, name) & (REC_SLOTS - 1);
    uint16_t id = 0;
    while (r->slots[slot] != 0) {
        const rec_name *k = &r->names[r->slots[slot]];
        if (strncmp(k->name, name, 255) == 0 && strncmp(k->category, category, 255) == 0) {
            id = r->slots[slot];
            break;
        }
        slot = (slot + 1) & (REC_SLOTS - 1);
    }
    if (id == 0) {
        id = r->n_names < REC_NAMES_MAX ? name_add(r, category, name, slot) : REC_NAME_OTHER;
    }
    ru_mutex_unlock(&r->mutex);
    return id;
}

void ru_recorder_thread(ru_recorder *r, const char *name)
{
    rec_thread *t = r == NULL ? NULL : thread_named(r, name);
    if (t != NULL) {
        ru_mutex_lock(&r->mutex);
        t->name_written = t->name_written && strncmp(t->name, name, sizeof t->name - 1) == 0;
        strncpy(t->name, name, sizeof t->name - 1);
        ru_mutex_unlock(&r->mutex);
        rui_env_begin(r);
    }
}

void ru_recorder_thread_end(ru_recorder *r)
{
    ru_thread_slot *slot = ru_thread_trace_slot();
    if (r == NULL || slot->owner != r || slot->stamp != r->stamp || slot->value == NULL) {
        return;
    }
    rui_env_end(r);
    rec_thread *t = slot->value;
    *slot = (ru_thread_slot){0};
    ru_mutex_lock(&r->mutex);
    t->ended = true;
    ru_mutex_unlock(&r->mutex);
}

/* -- what the file says besides -------------------------------------------------------------------
 */

void ru_recorder_node(ru_recorder *r, uint64_t node)
{
    if (r != NULL) {
        ru_mutex_lock(&r->mutex);
        r->node = node;
        r->node_written = false;
        ru_mutex_unlock(&r->mutex);
    }
}

void ru_recorder_peer(ru_recorder *r, uint64_t peer, int64_t at_ns, int64_t offset_ns,
                      int64_t bound_ns)
{
    if (r == NULL || bound_ns < 0) {
        return;
    }
    ru_mutex_lock(&r->mutex);
    if (r->n_peers < REC_PEERS_MAX) {
        r->peers[r->n_peers++] = (rec_peer){at_ns, peer, offset_ns, bound_ns};
    }
    ru_mutex_unlock(&r->mutex);
}

void ru_recorder_meta(ru_recorder *r, const char *key, const char *value)
{
    if (r == NULL) {
        return;
    }
    ru_mutex_lock(&r->mutex);
    uint32_t k = 0;
    while (k < r->n_meta && strcmp(r->meta[k].key, key) != 0) {
        k++;
    }
    char *v = k < REC_META_MAX ? strndup(value, 255) : NULL;
    char *name = k == r->n_meta && v != NULL ? strndup(key, 255) : NULL;
    if (v != NULL && (k < r->n_meta || name != NULL)) {
        free(k < r->n_meta ? r->meta[k].value : NULL);
        r->meta[k] = (rec_meta){k < r->n_meta ? r->meta[k].key : name, v};
        r->n_meta += k == r->n_meta;
        r->meta_written = r->meta_written < k ? r->meta_written : k;
    } else {
        free(v);
        free(name);
    }
    ru_mutex_unlock(&r->mutex);
}

ru_status ru_recorder_save(ru_recorder *r, const char *dir, int64_t from_ns, int64_t to_ns)
{
    if (r == NULL || r->base[0] == '\0') {
        return RU_E_ARG;
    }
    char *copy = strdup(dir);
    if (copy == NULL) {
        return RU_E_MEM;
    }
    ru_status st = RU_E_LIMIT;
    ru_mutex_lock(&r->mutex);
    if (r->failed) {
        st = RU_E_IO;
    } else if (r->n_saves < RU_RECORDER_SAVES_MAX) {
        r->saves[r->n_saves++] = (rec_save){copy, from_ns, to_ns};
        copy = NULL;
        st = RU_OK;
    }
    ru_cond_signal(&r->cond);
    ru_mutex_unlock(&r->mutex);
    free(copy);
    return st;
}

void ru_recorder_fail(ru_recorder *r, const ru_err *err)
{
    if (r == NULL) {
        return;
    }
    ru_mutex_lock(&r->mutex);
    if (!r->told) {
        r->told = true;
        r->why = *err;
    }
    ru_mutex_unlock(&r->mutex);
}

ru_status ru_recorder_append(ru_recorder *r, const char *path, int64_t offset, const void *data,
                             int64_t size_bytes)
{
    if (r == NULL || r->base[0] == '\0' || size_bytes <= 0) {
        return RU_E_ARG;
    }
    rec_append a = {.offset = offset, .size_bytes = size_bytes};
    a.path = strdup(path);
    a.data = malloc((size_t)size_bytes);
    ru_status st = a.path == NULL || a.data == NULL ? RU_E_MEM : RU_OK;
    if (st == RU_OK) {
        memcpy(a.data, data, (size_t)size_bytes);
        ru_mutex_lock(&r->mutex);
        st = r->n_appends < REC_APPENDS_MAX ? RU_OK : RU_E_LIMIT;
        if (st == RU_OK) {
            r->appends[r->n_appends++] = a;
        }
        if (r->n_appends >= REC_APPENDS_MAX / 2) {
            ru_cond_signal(&r->cond);
        }
        ru_mutex_unlock(&r->mutex);
    }
    if (st != RU_OK) {
        free(a.path);
        free(a.data);
    }
    return st;
}

bool ru_recorder_segment(ru_recorder *r, uint32_t s, char *path, uint32_t path_bytes)
{
    if (r == NULL || r->base[0] == '\0') {
        return false;
    }
    char full[REC_PATH_MAX + 32];
    ru_mutex_lock(&r->mutex);
    bool is = s >= r->oldest && s <= r->segment;
    ru_mutex_unlock(&r->mutex);
    rui_segment_path(r, s, full);
    size_t n = strlen(full);
    if (!is || n >= path_bytes) {
        return false;
    }
    memcpy(path, full, n + 1);
    return true;
}

void ru_recorder_sync(ru_recorder *r)
{
    if (r == NULL || r->base[0] == '\0' || r->driven) {
        return;
    }
    ru_mutex_lock(&r->mutex);
    uint64_t mine = ++r->sync_asked;
    ru_cond_signal(&r->cond);
    while (r->sync_done < mine) {
        ru_cond_wait(&r->synced, &r->mutex);
    }
    ru_mutex_unlock(&r->mutex);
}

/* -- opening and closing
 * ---------------------------------------------------------------------------- */

static void recorder_free(ru_recorder *r)
{
    for (uint32_t i = 0; i < r->n_threads; i++) {
        free(r->threads[i]->slots);
        free(r->threads[i]);
    }
    for (uint32_t i = 1; r->names != NULL && i < r->n_names; i++) {
        free(r->names[i].category);
        free(r->names[i].name);
    }
    for (uint32_t i = 0; i < r->n_meta; i++) {
        free(r->meta[i].key);
        free(r->meta[i].value);
    }
    for (uint32_t i = 0; i < r->n_saves; i++) {
        free(r->saves[i].dir);
    }
    for (uint32_t i = 0; i < r->n_appends; i++) {
        free(r->appends[i].path);
        free(r->appends[i].data);
    }
    free(r->peers);
    ru_log_file_close(r->file);
    ru_cond_fini(&r->cond);
    ru_cond_fini(&r->synced);
    ru_mutex_fini(&r->mutex);
    free(r->names);
    free(r->slots);
    free(r->buffer);
    free(r);
}

ru_status ru_recorder_open(const ru_recorder_options *opt, ru_recorder **out, ru_err *err)
{
    uint32_t records = opt->ring_records > 0 ? opt->ring_records : 16384;
    if ((records & (records - 1)) != 0 || records > (1u << 24)) {
        return RU_FAIL(err, RU_E_ARG, "ring_records is %u, expected a power of two up to 2^24",
                       records);
    }
    ru_recorder *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the recorder");
    }
    ru_mutex_init(&r->mutex);
    ru_cond_init(&r->cond);
    ru_cond_init(&r->synced);
    r->ring_records = records;
    r->flush_ns = opt->flush_ns > 0 ? opt->flush_ns : 100000000;
    r->bytes_max = opt->bytes_max > 0 ? opt->bytes_max : (int64_t)1 << 30;
    r->segment_max = r->bytes_max / REC_SEGMENTS;
    r->driven = opt->driven;
    r->stamp = r->driven ? 0 : ru_rec_now();
    r->n_names = 1;
    r->names = calloc(REC_NAMES_MAX, sizeof *r->names);
    r->slots = calloc(REC_SLOTS, sizeof *r->slots);
    r->buffer = malloc(REC_BUFFER_BYTES);
    r->peers = calloc(REC_PEERS_MAX, sizeof *r->peers);
    ru_status st = RU_OK;
    if (r->names == NULL || r->slots == NULL || r->buffer == NULL || r->peers == NULL ||
        (r->driven && thread_new(r, "") == NULL)) {
        st = RU_FAIL(err, RU_E_MEM, "no memory for the recorder");
    }
    if (st == RU_OK) {
        (void)ru_recorder_name(r, "other", ""); /* becomes REC_NAME_OTHER */
        rui_env_names(r);
        st = opt->dir == NULL ? RU_OK : rui_writer_start(r, opt, err);
    }
    if (st != RU_OK) {
        recorder_free(r);
        return st;
    }
    *out = r;
    return RU_OK;
}

void ru_recorder_close(ru_recorder *r)
{
    if (r != NULL) {
        rui_env_end(r);
        rui_writer_stop(r);
        recorder_free(r);
    }
}

void ru_recorder_stats_get(ru_recorder *r, ru_recorder_stats *into)
{
    ru_mutex_lock(&r->mutex);
    *into = (ru_recorder_stats){.threads = r->n_threads,
                                .bytes_written = r->bytes_written,
                                .segment = r->segment,
                                .saves = r->saves_done,
                                .saves_failed = r->saves_failed,
                                .stopped = r->failed};
    for (uint32_t i = 0; i < r->n_threads; i++) {
        into->records += r->threads[i]->written + (int64_t)ru_spsc_used(&r->threads[i]->ring);
        into->dropped += (int64_t)ru_spsc_lost(&r->threads[i]->ring);
    }
    ru_mutex_unlock(&r->mutex);
}
