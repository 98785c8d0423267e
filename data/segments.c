#include "data/segments.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "env/clock.h"
#include "env/file/grow.h"
#include "env/process/self.h"

enum {
    PATH_MAX_BYTES = 4096,
    SEGMENTS_MAX = 128,        /* open ones; as many processes add samples at a time */
    STEP_BYTES_MAX = 64 << 20, /* claimed at a time, or this part of the room */
    STEP_PART = 64,
    READ_ENTRIES = 4096,
};
static const int64_t refresh_ns = INT64_C(5000000000);

typedef rui_kept_line line;

typedef struct segment {
    rui_source source;
    char *index;        /* path */
    int64_t read_bytes; /* of the index, so far */
    int64_t end;        /* of its records: lines come in the order in which writes ended */
    bool own;
} segment;

/* Where a sample is. segment 0: nowhere; offset -1: it is being written. */
typedef struct entry {
    uint64_t hash;
    int64_t offset;
    uint32_t size_bytes, segment;
} entry;

typedef struct tier {
    const char *path;
    char *folder; /* TIER/samples/KEY */
    char *room;   /* TIER/samples */
    char *lock;   /* TIER/samples/room */
    char *files;  /* TIER/files (store/tiers/tiers.h): the quota is for both */
    int64_t quota_bytes;
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
    ru_mutex lock; /* guards all below */
    entry *at;     /* [samples] */
    int64_t samples, kept;
    tier *tiers; /* [n_tiers] */
    uint32_t n_tiers;
    segment *segments[SEGMENTS_MAX]; /* [n] in the arena; number k + 1 */
    uint32_t n;
    ru_time refreshed;
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
    if (e->segment == 0 || e->offset >= 0) { /* else it is being written */
        s->kept += e->segment == 0;
        *e = (entry){l->hash, l->offset, (uint32_t)l->size_bytes, segment_number};
    }
    return true;
}

/* Lines that are no whole ones are looked at again later. False: it may have more of them. */
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
        for (int64_t i = 0; good && i < n; i++) {
            good = take_line(s, number, &lines[i]);
            int64_t end = good ? lines[i].offset + lines[i].size_bytes : 0;
            g->end = end > g->end ? end : g->end;
            g->read_bytes += good ? (int64_t)sizeof *lines : 0;
        }
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

/* Called with the lock, or before others know of it. `first`, called with the lock of the room:
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
    for (uint32_t i = 0; listed && i < n; i++) {
        const char *path = ru_path_join(&scratch, t->folder, names[i]);
        if (path != NULL && ru_str_ends(ru_str_c(path), ".seg") && !is_known(s, path)) {
            (void)add_segment(s, path, &none);
        }
    }
    ru_arena_fini(&scratch);
    for (uint32_t k = 0; k < s->n; k++) {
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
    if (t->segment != 0) {
        s->segments[t->segment - 1]->own = true;
    }
}

/* -- room -------------------------------------------------------------------------------------- */

/* The folder of other data that was used longest ago and that nobody uses goes. */
static bool evict(rui_segments *s, const tier *t)
{
    ru_err none = {0};
    ru_arena scratch;
    char **names = NULL;
    uint32_t n = 0;
    const char *oldest = NULL;
    int64_t at_ns = INT64_MAX;
    ru_lock *held = NULL;
    ru_arena_init(&scratch, 0);
    bool listed = ru_dir_list(t->room, &scratch, &names, &n, &none) == RU_OK;
    for (uint32_t i = 0; listed && i < n; i++) {
        const char *dir = ru_path_join(&scratch, t->room, names[i]);
        const char *use = dir != NULL ? ru_path_join(&scratch, dir, "use") : NULL;
        ru_lock *l = NULL;
        if (use == NULL || strlen(names[i]) != 32 || strcmp(names[i], s->name) == 0 ||
            !ru_path_exists(use) || ru_path_changed_ns(use) >= at_ns ||
            ru_lock_open(use, true, false, &l, &none) != RU_OK) {
            continue;
        }
        ru_lock_close(held);
        held = l;
        oldest = dir;
        at_ns = ru_path_changed_ns(use);
    }
    bool gone = oldest != NULL && ru_path_remove(oldest, &none) == RU_OK;
    if (gone) {
        ru_log(RU_LOG_INFO, "data", "cache", "%s made room: nothing uses it now", oldest);
    }
    ru_lock_close(held);
    ru_arena_fini(&scratch);
    return gone;
}

/* So many more bytes for records of `size` bytes each, if the tier has them. */
static bool claim(rui_segments *s, tier *t, int64_t size)
{
    ru_err why = {0};
    ru_lock *l = NULL;
    int64_t step = t->quota_bytes / STEP_PART;
    step = step > STEP_BYTES_MAX ? STEP_BYTES_MAX : step;
    step = step > size ? step : size;
    int64_t lines = (step / size + 1) * (int64_t)sizeof(line);
    if (ru_lock_open(t->lock, true, true, &l, &why) != RU_OK) {
        return false;
    }
    int64_t files = ru_dir_bytes(t->files), used = files + ru_dir_bytes(t->room);
    while (step + lines > t->quota_bytes - used && evict(s, t)) {
        used = files + ru_dir_bytes(t->room);
    }
    if (step + lines > t->quota_bytes - used) { /* the last records, one by one */
        step = size;
        lines = (int64_t)sizeof(line);
    }
    bool fits = step + lines <= t->quota_bytes - used &&
                ru_grow_claim(t->data, t->end + step, &why) == RU_OK &&
                ru_grow_claim(t->index, t->index_end + lines, &why) == RU_OK;
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
    const char *path =
        ru_arena_printf(&s->arena, "%s/%016llx-%016llx.seg", t->folder,
                        (unsigned long long)ru_clock_wall_ns(), (unsigned long long)r);
    ru_status st = path != NULL ? ru_lock_open(t->lock, true, true, &l, &why) : RU_E_MEM;
    st = st == RU_OK ? ru_grow_open(path, &data, &why) : st;
    segment *g = st == RU_OK ? add_segment(s, path, &why) : NULL;
    if (g != NULL && ru_grow_open(g->index, &index, &why) == RU_OK) {
        g->own = true;
        enter(s, t, s->n, data, index);
    } else {
        ru_grow_close(data, 0);
        ru_log(RU_LOG_WARN, "data", "cache", "samples are not kept in %s: %s", t->path, why.text);
    }
    ru_lock_close(l);
    return t->segment != 0;
}

/* -- open and close ---------------------------------------------------------------------------- */

static ru_status open_tier(rui_segments *s, const ru_disk_tier *from, tier *t, ru_err *err)
{
    *t = (tier){.path = from->path, .quota_bytes = from->quota_bytes, .below = INT64_MAX};
    t->room = ru_path_join(&s->arena, from->path, "samples");
    t->folder = t->room != NULL ? ru_path_join(&s->arena, t->room, s->name) : NULL;
    t->lock = t->folder != NULL ? ru_path_join(&s->arena, t->room, "room") : NULL;
    t->files = t->lock != NULL ? ru_path_join(&s->arena, from->path, "files") : NULL;
    const char *use = t->files != NULL ? ru_path_join(&s->arena, t->folder, "use") : NULL;
    if (use == NULL) {
        return rui_no_memory(err, from->path, PATH_MAX_BYTES);
    }
    ru_lock *l = NULL;
    ru_status st = ru_dir_make(t->room, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "storage");
    }
    if (!ru_dir_is_own(t->room)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "storage: %s belongs to another user, or others may write into it; name a "
                       "folder of your own, or run: chmod go-w %s",
                       t->room, t->room);
    }
    RU_TRY(ru_lock_open(t->lock, true, true, &l, err));
    st = ru_dir_make(t->folder, err);
    st = st == RU_OK ? ru_lock_open(use, false, true, &t->use, err) : st;
    if (st == RU_OK) {
        look(s, t, true);
    }
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
    for (uint32_t k = 0; k < s->n_tiers; k++) {
        tier *t = &s->tiers[k];
        leave(t);
        ru_lock_close(t->use);
    }
    for (uint32_t k = 0; k < s->n; k++) {
        rui_source_close(&s->segments[k]->source);
    }
    free(s->at);
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
    if (kept) {
        *out = (rui_kept){.source = &s->segments[e->segment - 1]->source,
                          .offset = e->offset,
                          .size_bytes = e->size_bytes,
                          .hash = e->hash};
    }
    ru_mutex_unlock(&s->lock);
    return kept;
}

/* A place for the record in a tier that has room. Called with the lock. */
static tier *reserve(rui_segments *s, int64_t size)
{
    for (uint32_t k = 0; k < s->n_tiers; k++) {
        tier *t = &s->tiers[k];
        if (size < t->below && t->segment == 0 && !make_new(s, t)) {
            t->below = 0;
        }
        if (size >= t->below) {
            continue;
        }
        if ((t->end + size <= ru_grow_claimed(t->data) &&
             t->index_end + (int64_t)sizeof(line) <= ru_grow_claimed(t->index)) ||
            claim(s, t, size)) {
            return t;
        }
        t->below = size / 2; /* not after each that is a little smaller */
    }
    return NULL;
}

bool rui_segments_put(rui_segments *s, int64_t number, const void *record, int64_t size_bytes)
{
    RU_CHECK(number >= 0 && number < s->samples && size_bytes > 0);
    ru_err why = {0};
    line l = {
        .number = number, .size_bytes = size_bytes, .hash = ru_hash_bytes(record, size_bytes, 0)};
    entry *e = &s->at[number];
    ru_mutex_lock(&s->lock);
    tier *t = e->segment == 0 ? reserve(s, size_bytes) : NULL;
    if (t == NULL) {
        ru_mutex_unlock(&s->lock);
        return false;
    }
    *e = (entry){l.hash, -1, (uint32_t)size_bytes, t->segment};
    l.offset = t->end;
    t->end += size_bytes;
    ru_mutex_unlock(&s->lock);
    ru_status st = ru_grow_write(t->data, l.offset, record, size_bytes, &why);
    l.check = check_of(&l, s->key);
    ru_mutex_lock(&s->lock);
    st = st == RU_OK ? ru_grow_write(t->index, t->index_end, &l, sizeof l, &why) : st;
    if (st == RU_OK) {
        t->index_end += (int64_t)sizeof l;
        e->offset = l.offset;
        s->kept++;
    } else {
        *e = (entry){0};
        t->below = 0;
        ru_log(RU_LOG_WARN, "data", "cache", "samples are not kept in %s any more: %s", t->path,
               why.text);
    }
    ru_mutex_unlock(&s->lock);
    return st == RU_OK;
}

void rui_segments_forget(rui_segments *s, int64_t number)
{
    ru_mutex_lock(&s->lock);
    if (s->at[number].segment != 0 && s->at[number].offset >= 0) {
        s->at[number] = (entry){0};
        s->kept--;
    }
    ru_mutex_unlock(&s->lock);
}

bool rui_segments_room(rui_segments *s, int64_t size_bytes)
{
    bool room = false;
    ru_mutex_lock(&s->lock);
    for (uint32_t k = 0; k < s->n_tiers; k++) {
        room = room || size_bytes < s->tiers[k].below;
    }
    ru_mutex_unlock(&s->lock);
    return room;
}

void rui_segments_refresh(rui_segments *s)
{
    ru_time now = ru_clock_now();
    ru_mutex_lock(&s->lock);
    if (ru_time_since(now, s->refreshed) >= refresh_ns) {
        s->refreshed = now;
        for (uint32_t k = 0; k < s->n_tiers; k++) {
            look(s, &s->tiers[k], false);
        }
    }
    ru_mutex_unlock(&s->lock);
}

int64_t rui_segments_count(rui_segments *s)
{
    ru_mutex_lock(&s->lock);
    int64_t n = s->kept;
    ru_mutex_unlock(&s->lock);
    return n;
}
