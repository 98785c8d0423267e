#include "data/segments.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "data/kept.h"
#include "env/clock.h"
#include "env/file/room.h"
#include "env/process/process.h"
#include "env/process/self.h"

enum {
    PATH_MAX_BYTES = 4096,
    SEGMENTS_MAX = 128,        /* open ones; as many processes add samples at a time */
    STEP_BYTES_MAX = 64 << 20, /* claimed at a time, or this part of the room */
    STEP_PART = 64,
    READ_ENTRIES = 4096,
    ALIGN = 8,                /* of records */
    CHUNK_BYTES = 1 << 20,    /* written at a time: a checksum is taken where the bytes are warm */
    CHUNK_LINES = 1024,       /* records at a time */
    WAITING_BYTES = 16 << 20, /* that wait for the disk at most, or one record */
    WRITER_PART = 20,         /* of the processor's time is the writer's, where others want it */
};
static const uint32_t waits_in_memory = UINT32_MAX; /* entry.segment */
static const int64_t refresh_ns = INT64_C(5000000000);
static const int64_t idle_ns = INT64_C(1000000000); /* then a chunk is written as it is */

typedef rui_kept_line line;

typedef struct segment {
    rui_source source;
    char *index;        /* path */
    int64_t read_bytes; /* of the index, so far */
    int64_t end;        /* of its records: lines come in the order in which writes ended */
    bool own;
} segment;

/* Records that wait to be written, one behind the other. */
typedef struct rui_chunk {
    struct rui_chunk *next;
    uint8_t *bytes; /* [size] */
    int64_t size, used;
    uint32_t filling, readers; /* threads that make a record of it, that read one */
    bool written;
    uint32_t n;
    line lines[CHUNK_LINES]; /* [n] offset in the chunk until it is written; number -1: no record */
} chunk;

/* Where a sample is. segment 0: nowhere; offset -1: it is being made. */
typedef struct entry {
    union {
        uint64_t hash;
        chunk *chunk; /* segment waits_in_memory */
    };
    int64_t offset;
    uint32_t size_bytes, segment;
} entry;

typedef struct tier {
    const char *path;
    char *folder; /* TIER/samples/KEY */
    ru_room room; /* of TIER/samples and TIER/files (store/tiers/tiers.h): the quota is for both */
    ru_lock *use;
    ru_grow *data, *index; /* of its own segment, which has that number; 0: none yet */
    uint32_t segment;
    int64_t begin, index_begin, end, index_end; /* of what this process adds to it */
    int64_t below;                              /* smaller records may find room; 0: none does */
} tier;

struct rui_segments {
    ru_arena arena;
    ru_hash128 key;
    char name[33];
    bool waits;
    ru_thread writer;
    ru_mutex lock; /* guards all below, but for `below` in tiers what only the writer uses */
    entry *at;     /* [samples] */
    int64_t samples;
    rui_segments_sum sum;
    tier *tiers; /* [n_tiers] */
    uint32_t n_tiers;
    segment *segments[SEGMENTS_MAX]; /* [n] in the arena; number k + 1 */
    uint32_t n;
    ru_time refreshed;
    ru_cond work, done;                 /* for the writer; it has written a chunk */
    chunk *open, *first, *last, *spare; /* takes records; to write, in order; for later */
    int64_t waiting;                    /* bytes of chunks, spare ones left out */
    bool writing, looking, ends, off;   /* one thread at a time each; off: there is no writer */
};

static uint64_t check_of(const line *l, ru_hash128 key)
{
    return ru_hash_bytes(l, offsetof(line, check), key.low ^ key.high);
}

bool rui_kept_line_is(const line *l, ru_hash128 key)
{
    return l->check == check_of(l, key) && l->number >= 0 && l->offset >= 0 && l->size_bytes >= 1 &&
           l->size_bytes <= RUI_SAMPLE_BYTES_MAX;
}

/* -- segments that are there ------------------------------------------------------------------- */

static segment *add_segment(rui_segments *s, const char *path, ru_err *err)
{
    segment *g = s->n < SEGMENTS_MAX ? RU_NEW(&s->arena, segment, 1) : NULL;
    if (g == NULL) {
        (void)RU_FAIL(err, RU_E_LIMIT, "there are %d segments", SEGMENTS_MAX);
        return NULL;
    }
    *g = (segment){.source.path = ru_arena_str(&s->arena, path),
                   .index = ru_arena_printf(&s->arena, "%.*s.idx", (int)strlen(path) - 4, path)};
    if (g->source.path == NULL || g->index == NULL ||
        ru_in_open(g->source.path, &g->source.file, err) != RU_OK) {
        return NULL;
    }
    g->source.size_bytes = g->source.disk_bytes = INT64_MAX / 2; /* it grows */
    s->segments[s->n++] = g;
    return g;
}

static bool take_line(rui_segments *s, uint32_t segment_number, const line *l)
{
    if (!rui_kept_line_is(l, s->key) || l->number >= s->samples) {
        return false;
    }
    entry *e = &s->at[l->number];
    if (e->segment != waits_in_memory) { /* else it is being written */
        s->sum.kept += e->segment == 0;
        *e = (entry){{l->hash}, l->offset, (uint32_t)l->size_bytes, segment_number};
    }
    return true;
}

/* Lines that are no whole ones are looked at again later. False: it may have more of them. The lock
 * is held for lines that are in memory, not while they are read. */
static bool read_index(rui_segments *s, uint32_t number)
{
    ru_err none = {0};
    segment *g = s->segments[number - 1];
    ru_in_file f = {.fd = -1};
    if (ru_in_open(g->index, &f, &none) != RU_OK) {
        return false;
    }
    line *lines = malloc(READ_ENTRIES * sizeof *lines);
    bool read = lines != NULL;
    for (bool good = read; good;) {
        int64_t n = (f.size_bytes - g->read_bytes) / (int64_t)sizeof *lines;
        n = n < READ_ENTRIES ? n : READ_ENTRIES;
        read = n <= 0 || ru_in_read(&f, g->index, g->read_bytes, lines, n * (int64_t)sizeof *lines,
                                    &none) == RU_OK;
        good = read && n > 0;
        ru_mutex_lock(&s->lock);
        for (int64_t i = 0; good && i < n && (good = take_line(s, number, &lines[i])); i++) {
            int64_t end = lines[i].offset + lines[i].size_bytes;
            g->end = end > g->end ? end : g->end;
            g->read_bytes += (int64_t)sizeof *lines;
        }
        ru_mutex_unlock(&s->lock);
    }
    free(lines);
    ru_in_close(&f);
    return read;
}

static bool is_known(const rui_segments *s, const char *path)
{
    for (uint32_t k = 0; k < s->n; k++) {
        if (strcmp(s->segments[k]->source.path, path) == 0) {
            return true;
        }
    }
    return false;
}

static void leave(tier *t)
{
    ru_grow_close(t->index, t->index_end); /* first: who has the data has both */
    ru_grow_close(t->data, t->end);
}

static void enter(rui_segments *s, tier *t, uint32_t number, ru_grow *data, ru_grow *index)
{
    const segment *g = s->segments[number - 1];
    leave(t);
    t->data = data;
    t->index = index;
    t->segment = number;
    t->begin = t->end = g->end;
    t->index_begin = t->index_end = g->read_bytes;
    ru_grow_cut(data, g->end);
    ru_grow_cut(index, g->read_bytes);
}

/* One thread at a time. `first`, called with the lock of the room and before others know of it:
 * what writers that ended left behind is cut off, and this process goes on with the segment of the
 * latest name, so that there are never more of them than there were processes at a time. */
static void look(rui_segments *s, tier *t, bool first)
{
    ru_err none = {0};
    ru_arena scratch;
    char **names = NULL;
    uint32_t n = 0;
    ru_arena_init(&scratch, 0);
    bool listed = ru_dir_list(t->folder, &scratch, &names, &n, &none) == RU_OK;
    ru_mutex_lock(&s->lock);
    for (uint32_t i = 0; listed && i < n; i++) {
        const char *path = ru_path_join(&scratch, t->folder, names[i]);
        if (path != NULL && ru_str_ends(ru_str_c(path), ".seg") && !is_known(s, path)) {
            (void)add_segment(s, path, &none);
        }
    }
    n = s->n; /* later ones are of this process */
    ru_mutex_unlock(&s->lock);
    ru_arena_fini(&scratch);
    for (uint32_t k = 0; k < n; k++) {
        segment *g = s->segments[k];
        ru_grow *data = NULL, *index = NULL;
        if (g->own || strncmp(g->source.path, t->folder, strlen(t->folder)) != 0) {
            continue;
        }
        bool ended = first && ru_grow_open(g->source.path, &data, &none) == RU_OK &&
                     ru_grow_open(g->index, &index, &none) == RU_OK;
        if (read_index(s, k + 1) && ended) {
            enter(s, t, k + 1, data, index);
        } else {
            ru_grow_close(index, INT64_MAX);
            ru_grow_close(data, INT64_MAX);
        }
    }
    if (first && t->segment != 0) {
        s->segments[t->segment - 1]->own = true;
    }
}

/* -- room -------------------------------------------------------------------------------------- */

/* Bytes by which its files grow for `step` of records and `lines` of index. */
static int64_t wants(const tier *t, int64_t step, int64_t lines)
{
    int64_t data = t->end + step - ru_grow_claimed(t->data);
    int64_t index = t->index_end + lines - ru_grow_claimed(t->index);
    return (data > 0 ? data : 0) + (index > 0 ? index : 0);
}

/* So many more bytes for records of `size` bytes each, if the tier has them. */
static bool claim(rui_segments *s, tier *t, int64_t size)
{
    ru_err why = {0};
    ru_lock *l = NULL;
    int64_t step = t->room.quota_bytes / STEP_PART;
    step = step > STEP_BYTES_MAX ? STEP_BYTES_MAX : step;
    step = step > size ? step : size;
    int64_t lines = (step / size + 1) * (int64_t)sizeof(line);
    if (ru_lock_open(t->room.lock, true, true, &l, &why) != RU_OK) {
        return false;
    }
    while (wants(t, step, lines) > ru_room_left(&t->room, l) &&
           rui_kept_evict(t->room.folders[0], s->name)) {
        ru_room_forget(&t->room, l);
    }
    if (wants(t, step, lines) > ru_room_left(&t->room, l)) { /* the last records, one by one */
        step = size;
        lines = (int64_t)sizeof(line);
    }
    bool fits = wants(t, step, lines) <= ru_room_left(&t->room, l);
    if (fits) {
        ru_room_take(&t->room, l, wants(t, step, lines));
    }
    if (fits && (ru_grow_claim(t->data, t->end + step, &why) != RU_OK ||
                 ru_grow_claim(t->index, t->index_end + lines, &why) != RU_OK)) {
        fits = false;
        ru_room_forget(&t->room, l);
    }
    ru_lock_close(l);
    if (!fits) {
        ru_log(RU_LOG_INFO, "data", "cache", "%s has no room for %lld bytes more%s%s", t->path,
               (long long)size, why.text[0] != 0 ? ": " : "", why.text);
    }
    return fits;
}

static bool make_new(rui_segments *s, tier *t)
{
    ru_err why = {0};
    uint64_t r;
    ru_lock *l = NULL;
    ru_grow *data = NULL, *index = NULL;
    ru_self_random(&r, sizeof r);
    /* Later ones come later in the order of names: what they hold counts. */
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    const char *path =
        ru_arena_printf(&scratch, "%s/%016llx-%016llx.seg", t->folder,
                        (unsigned long long)ru_clock_wall_ns(), (unsigned long long)r);
    ru_status st = path != NULL ? ru_lock_open(t->room.lock, true, true, &l, &why) : RU_E_MEM;
    ru_mutex_lock(&s->lock); /* nobody else finds it before it is known */
    st = st == RU_OK ? ru_grow_open(path, &data, &why) : st;
    segment *g = st == RU_OK ? add_segment(s, path, &why) : NULL;
    if (g != NULL && ru_grow_open(g->index, &index, &why) == RU_OK) {
        g->own = true;
        enter(s, t, s->n, data, index);
    } else {
        ru_grow_close(data, 0);
        ru_log(RU_LOG_WARN, "data", "cache", "samples are not kept in %s: %s", t->path, why.text);
    }
    ru_mutex_unlock(&s->lock);
    ru_lock_close(l);
    ru_arena_fini(&scratch);
    return t->segment != 0;
}

/* -- the thread that writes -------------------------------------------------------------------- */

static int64_t up(int64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void is_full(rui_segments *s, tier *t, int64_t below)
{
    ru_mutex_lock(&s->lock);
    t->below = below;
    ru_mutex_unlock(&s->lock);
}

/* A tier that has room for the record. */
static tier *reserve(rui_segments *s, int64_t size)
{
    for (uint32_t k = 0; k < s->n_tiers; k++) {
        tier *t = &s->tiers[k];
        if (size < t->below && t->segment == 0 && !make_new(s, t)) {
            is_full(s, t, 0);
        }
        if (size >= t->below) {
            continue;
        }
        if ((t->end + size <= ru_grow_claimed(t->data) &&
             t->index_end + (int64_t)sizeof(line) <= ru_grow_claimed(t->index)) ||
            claim(s, t, size)) {
            return t;
        }
        is_full(s, t, size / 2); /* not after each that is a little smaller */
    }
    return NULL;
}

/* Records of one tier, one behind the other in the chunk and in the file. */
typedef struct run {
    tier *t;
    uint32_t first, n;
    int64_t at, index_at; /* in its files */
} run;

static void write_run(rui_segments *s, chunk *c, const run *r)
{
    ru_err why = {0};
    line *lines = &c->lines[r->first];
    if (r->n == 0) {
        return;
    }
    int64_t begin = lines[0].offset, end = lines[r->n - 1].offset + lines[r->n - 1].size_bytes;
    for (uint32_t k = 0; k < r->n; k++) {
        line *l = &lines[k];
        l->hash = ru_hash_bytes(c->bytes + l->offset, l->size_bytes, 0);
        l->offset += r->at - begin;
        l->check = check_of(l, s->key);
    }
    ru_status st = ru_grow_write(r->t->data, r->at, c->bytes + begin, end - begin, &why);
    st = st == RU_OK
             ? ru_grow_write(r->t->index, r->index_at, lines, (int64_t)(r->n * sizeof *lines), &why)
             : st;
    ru_mutex_lock(&s->lock);
    for (uint32_t k = 0; k < r->n; k++) {
        const line *l = &lines[k];
        s->at[l->number] =
            st != RU_OK ? (entry){0}
                        : (entry){{l->hash}, l->offset, (uint32_t)l->size_bytes, r->t->segment};
        s->sum.added_bytes += st == RU_OK ? l->size_bytes : 0;
    }
    s->sum.kept += st == RU_OK ? r->n : 0;
    s->sum.added += st == RU_OK ? r->n : 0;
    r->t->below = st == RU_OK ? r->t->below : 0;
    ru_mutex_unlock(&s->lock);
    if (st != RU_OK) {
        ru_log(RU_LOG_WARN, "data", "cache", "samples are not kept in %s any more: %s", r->t->path,
               why.text);
    }
}

static void write_chunk(rui_segments *s, chunk *c)
{
    run r = {0};
    for (uint32_t k = 0; k < c->n; k++) {
        int64_t number = c->lines[k].number, size = up(c->lines[k].size_bytes);
        tier *t = number >= 0 ? reserve(s, size) : NULL;
        if (t == NULL || t != r.t) {
            write_run(s, c, &r);
            r = (run){.t = t, .first = k};
            if (t != NULL) {
                r.at = t->end;
                r.index_at = t->index_end;
            }
        }
        if (t != NULL) {
            r.n++;
            t->end += size;
            t->index_end += (int64_t)sizeof(line);
        } else if (number >= 0) { /* there is no room */
            ru_mutex_lock(&s->lock);
            s->at[number] = (entry){0};
            ru_mutex_unlock(&s->lock);
        }
    }
    write_run(s, c, &r);
}

static void free_spare(rui_segments *s)
{
    for (chunk *c; (c = s->spare) != NULL;) {
        s->spare = c->next;
        free(c->bytes);
        free(c);
    }
}

/* Called with the lock, as all below. */
static void put_back(rui_segments *s, chunk *c)
{
    if (!c->written || c->readers > 0) {
        return;
    }
    s->waiting -= c->size;
    if (c->size == CHUNK_BYTES) {
        c->next = s->spare;
        s->spare = c;
    } else {
        free(c->bytes);
        free(c);
    }
    ru_cond_broadcast(&s->done);
}

static void push_open(rui_segments *s)
{
    if (s->open != NULL) {
        *(s->first == NULL ? &s->first : &s->last->next) = s->open;
        s->last = s->open;
        s->open = NULL;
        ru_cond_signal(&s->work);
    }
}

/* Where all cores are wanted, the thread has a part of them all, and at most half of one. */
static void lower(void)
{
    uint32_t list[WRITER_PART];
    double share = (double)ru_thread_cores_list(list, WRITER_PART) / WRITER_PART, weight = 1;
    int32_t nice = 0;
    while (nice < 19 && weight / (1 + weight) > share) { /* the kernel's weights */
        weight /= 1.25;
        nice++;
    }
    ru_process_thread_background(nice);
}

/* The first one that waits, if it is whole and nobody else writes. */
static bool write_first(rui_segments *s)
{
    chunk *c = s->first;
    if (c == NULL || c->filling > 0 || s->writing) {
        return false;
    }
    s->first = c->next;
    s->writing = true;
    ru_mutex_unlock(&s->lock);
    write_chunk(s, c);
    ru_mutex_lock(&s->lock);
    s->writing = false;
    c->written = true;
    put_back(s, c);
    ru_cond_broadcast(&s->done);
    ru_cond_signal(&s->work);
    return true;
}

static void write_all(void *arg)
{
    rui_segments *s = arg;
    if (!s->waits) {
        lower();
    }
    ru_mutex_lock(&s->lock);
    while (!s->ends) {
        if (write_first(s)) {
            continue;
        }
        if (s->first != NULL || (s->open == NULL && s->spare == NULL)) {
            ru_cond_wait(&s->work, &s->lock);
        } else if (!ru_cond_wait_for(&s->work, &s->lock, idle_ns)) {
            push_open(s);
            free_spare(s);
        }
    }
    ru_mutex_unlock(&s->lock);
}

/* -- open and close ---------------------------------------------------------------------------- */

static ru_status open_tier(rui_segments *s, const ru_disk_tier *from, tier *t, ru_err *err)
{
    ru_arena *a = &s->arena;
    const char *room = ru_path_join(a, from->path, "samples");
    *t = (tier){.path = from->path, .below = INT64_MAX};
    t->room = (ru_room){.lock = ru_arena_printf(a, "%s/samples/room", from->path),
                        .folders = {room, ru_path_join(a, from->path, "files")},
                        .quota_bytes = from->quota_bytes};
    t->folder = ru_arena_printf(a, "%s/samples/%s", from->path, s->name);
    const char *use = t->folder != NULL ? ru_path_join(a, t->folder, "use") : NULL;
    if (use == NULL || room == NULL || t->room.lock == NULL || t->room.folders[1] == NULL) {
        return rui_no_memory(err, from->path, PATH_MAX_BYTES);
    }
    ru_lock *l = NULL;
    ru_status st = ru_dir_make(room, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "storage");
    }
    if (!ru_dir_is_own(room)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "storage: %s belongs to another user, or others may write into it; name a "
                       "folder of your own, or run: chmod go-w %s",
                       room, room);
    }
    RU_TRY(ru_lock_open(t->room.lock, true, true, &l, err));
    st = ru_dir_make(t->folder, err);
    st = st == RU_OK ? ru_lock_open(use, false, true, &t->use, err) : st;
    if (st == RU_OK) {
        look(s, t, true);
    }
    ru_room_forget(&t->room, l); /* what others had left may be gone */
    ru_lock_close(l);
    return st;
}

ru_status rui_segments_open(const rui_segments_options *opt, rui_segments **out, ru_err *err)
{
    rui_segments *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return rui_no_memory(err, "samples that are kept", sizeof *s);
    }
    ru_arena_init(&s->arena, 0);
    ru_mutex_init(&s->lock);
    ru_cond_init(&s->work);
    ru_cond_init(&s->done);
    s->waits = opt->waits;
    s->key = opt->key;
    ru_hash128_text(opt->key, s->name);
    s->samples = opt->samples;
    s->at = calloc((size_t)opt->samples, sizeof *s->at);
    s->tiers = RU_NEW(&s->arena, tier, opt->n_tiers);
    ru_status st =
        s->at != NULL && s->tiers != NULL
            ? RU_OK
            : rui_no_memory(err, "places of samples", opt->samples * (int64_t)sizeof *s->at);
    for (uint32_t k = 0; st == RU_OK && k < opt->n_tiers; k++) {
        s->n_tiers = k + 1;
        st = open_tier(s, &opt->tiers[k], &s->tiers[k], err);
        if (st == RU_E_CREATE && ru_path_is_dir(s->tiers[k].path)) { /* full, or read-only */
            ru_log(RU_LOG_WARN, "data", "cache", "samples are not kept: %s", err->text);
            s->tiers[k].below = 0;
            look(s, &s->tiers[k], false);
            st = RU_OK;
        }
    }
    s->refreshed = ru_clock_now();
    if (st != RU_OK) {
        rui_segments_close(s);
        return st;
    }
    *out = s;
    return RU_OK;
}

void rui_segments_drop(rui_segments *s)
{
    (void)rui_segments_settle(s);
    for (uint32_t k = 0; k < s->n_tiers; k++) {
        s->tiers[k].end = s->tiers[k].begin;
        s->tiers[k].index_end = s->tiers[k].index_begin;
    }
}

void rui_segments_close(rui_segments *s)
{
    if (s == NULL) {
        return;
    }
    (void)rui_segments_settle(s);
    ru_mutex_lock(&s->lock);
    s->ends = true;
    ru_cond_broadcast(&s->work);
    ru_mutex_unlock(&s->lock);
    ru_thread_join(&s->writer);
    free_spare(s);
    for (uint32_t k = 0; k < s->n_tiers; k++) {
        tier *t = &s->tiers[k];
        if (t->segment != 0) {
            leave(t);
            ru_room_forget(&t->room, NULL);
        }
        ru_lock_close(t->use);
    }
    for (uint32_t k = 0; k < s->n; k++) {
        rui_source_close(&s->segments[k]->source);
    }
    free(s->at);
    ru_cond_fini(&s->work);
    ru_cond_fini(&s->done);
    ru_mutex_fini(&s->lock);
    ru_arena_fini(&s->arena);
    free(s);
}

/* -- records ----------------------------------------------------------------------------------- */

bool rui_segments_find(rui_segments *s, int64_t number, rui_kept *out)
{
    RU_CHECK(number >= 0 && number < s->samples);
    ru_mutex_lock(&s->lock);
    const entry *e = &s->at[number];
    bool kept = e->segment != 0 && e->offset >= 0;
    if (kept && e->segment == waits_in_memory) {
        *out = (rui_kept){
            .bytes = e->chunk->bytes + e->offset, .size_bytes = e->size_bytes, .held = e->chunk};
        e->chunk->readers++;
    } else if (kept) {
        *out = (rui_kept){.source = &s->segments[e->segment - 1]->source,
                          .offset = e->offset,
                          .size_bytes = e->size_bytes,
                          .hash = e->hash};
    }
    ru_mutex_unlock(&s->lock);
    return kept;
}

void rui_segments_done(rui_segments *s, const rui_kept *k)
{
    if (k->held != NULL) {
        ru_mutex_lock(&s->lock);
        RU_CHECK(k->held->readers > 0);
        k->held->readers--;
        put_back(s, k->held);
        ru_mutex_unlock(&s->lock);
    }
}

static chunk *new_chunk(rui_segments *s, int64_t size)
{
    chunk *c = size == CHUNK_BYTES ? s->spare : NULL;
    if (c != NULL) {
        s->spare = c->next;
    } else {
        uint8_t *bytes = malloc((size_t)size);
        c = bytes != NULL ? malloc(sizeof *c) : NULL;
        if (c == NULL) {
            free(bytes);
            return NULL;
        }
        c->bytes = bytes;
        c->size = size;
    }
    c->next = NULL;
    c->used = 0;
    c->n = c->filling = c->readers = 0;
    c->written = false;
    s->waiting += size;
    return c;
}

/* The one that takes a record of so many bytes; NULL: too much waits. */
static chunk *chunk_for(rui_segments *s, int64_t size)
{
    for (;;) {
        if (s->open != NULL && s->open->n < CHUNK_LINES && size <= s->open->size - s->open->used) {
            return s->open;
        }
        push_open(s);
        int64_t want = size > CHUNK_BYTES ? size : CHUNK_BYTES;
        if (s->waiting == 0 || want <= WAITING_BYTES - s->waiting) {
            s->open = new_chunk(s, want);
            return s->open;
        }
        if (!s->waits) {
            s->sum.late++;
            return NULL;
        }
        ru_cond_wait(&s->done, &s->lock);
    }
}

static bool has_writer(rui_segments *s)
{
    ru_err why = {0};
    if (!s->writer.started && !s->off) {
        s->off = ru_thread_start(&s->writer, "ru cache", write_all, s, &why) != RU_OK;
        if (s->off) {
            ru_log(RU_LOG_WARN, "data", "cache", "samples are not kept: %s", why.text);
        }
    }
    return !s->off;
}

uint8_t *rui_segments_begin(rui_segments *s, int64_t number, int64_t size_bytes, rui_place *p)
{
    RU_CHECK(number >= 0 && number < s->samples && size_bytes > 0);
    bool room = false;
    uint8_t *to = NULL;
    int64_t size = up(size_bytes);
    ru_mutex_lock(&s->lock);
    for (uint32_t k = 0; k < s->n_tiers; k++) {
        room = room || size < s->tiers[k].below;
    }
    chunk *c = room && s->at[number].segment == 0 && has_writer(s) ? chunk_for(s, size) : NULL;
    if (c != NULL && s->at[number].segment == 0) { /* others may have begun it meanwhile */
        s->at[number] = (entry){{.chunk = c}, -1, (uint32_t)size_bytes, waits_in_memory};
        *p = (rui_place){c, c->n};
        c->lines[c->n++] = (line){.number = number, .offset = c->used, .size_bytes = size_bytes};
        to = c->bytes + c->used;
        memset(to + size_bytes, 0, (size_t)(size - size_bytes)); /* it goes to the disk, too */
        c->used += size;
        c->filling++;
    }
    ru_mutex_unlock(&s->lock);
    return to;
}

void rui_segments_end(rui_segments *s, const rui_place *p, bool good)
{
    chunk *c = p->chunk;
    line *l = &c->lines[p->line];
    ru_mutex_lock(&s->lock);
    RU_CHECK(c->filling > 0 && l->number >= 0);
    if (good) {
        s->at[l->number].offset = l->offset;
    } else {
        s->at[l->number] = (entry){0};
        l->number = -1;
    }
    if (--c->filling == 0 && c != s->open) {
        ru_cond_signal(&s->work);
        ru_cond_broadcast(&s->done);
    }
    ru_mutex_unlock(&s->lock);
}

void rui_segments_forget(rui_segments *s, int64_t number)
{
    entry *e = &s->at[number];
    RU_CHECK(number >= 0 && number < s->samples);
    ru_mutex_lock(&s->lock);
    if (e->segment != 0 && e->segment != waits_in_memory) {
        *e = (entry){0};
        s->sum.kept--;
    }
    ru_mutex_unlock(&s->lock);
}

rui_segments_sum rui_segments_settle(rui_segments *s)
{
    ru_mutex_lock(&s->lock);
    push_open(s);
    while (s->first != NULL || s->writing) { /* at the priority of who waits */
        if (!write_first(s)) {
            ru_cond_wait(&s->done, &s->lock);
        }
    }
    rui_segments_sum sum = s->sum;
    ru_mutex_unlock(&s->lock);
    return sum;
}

void rui_segments_refresh(rui_segments *s)
{
    ru_time now = ru_clock_now();
    ru_mutex_lock(&s->lock);
    bool due = !s->looking && ru_time_since(now, s->refreshed) >= refresh_ns;
    s->looking = s->looking || due;
    ru_mutex_unlock(&s->lock);
    for (uint32_t k = 0; due && k < s->n_tiers; k++) {
        look(s, &s->tiers[k], false);
    }
    if (due) {
        ru_mutex_lock(&s->lock);
        s->looking = false;
        s->refreshed = now;
        ru_mutex_unlock(&s->lock);
    }
}
