#include "data/segments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/clock.h"
#include "env/file/grow.h"
#include "env/process/self.h"

enum {
    PATH_MAX_BYTES = 4096,
    SEGMENTS_MAX = 1024,
    STEP_BYTES_MAX = 64 << 20, /* claimed at a time, or this part of the room */
    STEP_PART = 64,
    READ_ENTRIES = 4096,
};
static const int64_t refresh_ns = INT64_C(5000000000);
static const char magic[8] = "RUSEGM1"; /* with its NUL */

typedef struct head {
    char magic[8];
    ru_hash128 key;
    uint64_t check;
} head;

/* As it stands in an index file, after the head. */
typedef struct line {
    int64_t number, offset, size_bytes;
    uint64_t hash, check;
} line;

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
    int64_t quota_bytes;
    ru_lock *use;
    ru_grow *data, *index; /* NULL: not open yet */
    int64_t end, index_end;
    uint32_t segment; /* of its own file */
    bool full;
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

static uint64_t check_of(const rui_segments *s, const void *bytes, int64_t n)
{
    return ru_hash_bytes(bytes, n, s->key.low ^ s->key.high);
}

/* -- segments that are there ------------------------------------------------------------------- */

static segment *add_segment(rui_segments *s, const char *folder, const char *name, ru_err *err)
{
    size_t stem = strlen(name) - 4;
    segment *g = s->n < SEGMENTS_MAX ? RU_NEW(&s->arena, segment, 1) : NULL;
    if (g == NULL) {
        (void)RU_FAIL(err, RU_E_LIMIT, "there are %d segments", SEGMENTS_MAX);
        return NULL;
    }
    *g = (segment){.source.path = ru_path_join(&s->arena, folder, name),
                   .index = ru_arena_printf(&s->arena, "%s/%.*s.idx", folder, (int)stem, name)};
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
    if (l->check != check_of(s, l, offsetof(line, check)) || l->number < 0 ||
        l->number >= s->samples || l->offset < 0 || l->size_bytes < 1 ||
        l->size_bytes > RUI_SAMPLE_BYTES_MAX) {
        return false;
    }
    entry *e = &s->at[l->number];
    if (e->segment == 0 || e->offset >= 0) { /* else it is being written */
        s->kept += e->segment == 0;
        *e = (entry){l->hash, l->offset, (uint32_t)l->size_bytes, segment_number};
    }
    return true;
}

/* Lines that are no whole ones are looked at again later. */
static void read_index(rui_segments *s, uint32_t number)
{
    ru_err none = {0};
    segment *g = s->segments[number - 1];
    ru_in_file f = {.fd = -1};
    head h;
    if (ru_in_open(g->index, &f, &none) != RU_OK) {
        return;
    }
    bool good = true;
    if (g->read_bytes == 0) {
        good = ru_in_read(&f, g->index, 0, &h, sizeof h, &none) == RU_OK &&
               memcmp(h.magic, magic, sizeof magic) == 0 && h.key.low == s->key.low &&
               h.key.high == s->key.high && h.check == check_of(s, &h, offsetof(head, check));
        g->read_bytes = good ? (int64_t)sizeof h : 0;
    }
    line *lines = malloc(READ_ENTRIES * sizeof *lines);
    while (good && lines != NULL) {
        int64_t n = (f.size_bytes - g->read_bytes) / (int64_t)sizeof *lines;
        n = n < READ_ENTRIES ? n : READ_ENTRIES;
        good = n > 0 && ru_in_read(&f, g->index, g->read_bytes, lines, n * (int64_t)sizeof *lines,
                                   &none) == RU_OK;
        for (int64_t i = 0; good && i < n; i++) {
            good = take_line(s, number, &lines[i]);
            int64_t end = good ? lines[i].offset + lines[i].size_bytes : 0;
            g->end = end > g->end ? end : g->end;
            g->read_bytes += good ? (int64_t)sizeof *lines : 0;
        }
    }
    free(lines);
    ru_in_close(&f);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static bool is_known(const rui_segments *s, const char *folder, const char *name)
{
    size_t n = strlen(folder);
    for (uint32_t k = 0; k < s->n; k++) {
        const char *p = s->segments[k]->source.path;
        if (strncmp(p, folder, n) == 0 && p[n] == '/' && strcmp(p + n + 1, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Called with the lock, or before others know of it. `cut`: what dead writers claimed is free. */
static void look(rui_segments *s, const tier *t, bool cut)
{
    ru_err none = {0};
    ru_arena scratch;
    char **names = NULL;
    uint32_t n = 0;
    ru_arena_init(&scratch, 0);
    if (ru_dir_list(t->folder, &scratch, &names, &n, &none) != RU_OK) {
        n = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (ends_with(names[i], ".seg") && !is_known(s, t->folder, names[i])) {
            (void)add_segment(s, t->folder, names[i], &none);
        }
    }
    ru_arena_fini(&scratch);
    for (uint32_t k = 0; k < s->n; k++) {
        segment *g = s->segments[k];
        if (!g->own && strncmp(g->source.path, t->folder, strlen(t->folder)) == 0) {
            bool dead = cut && ru_grow_cut(g->source.path, INT64_MAX); /* no more lines come */
            read_index(s, k + 1);
            if (dead && ru_grow_cut(g->source.path, g->end)) {
                (void)ru_grow_cut(g->index, g->read_bytes);
            }
        }
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
    if (ru_dir_list(t->room, &scratch, &names, &n, &none) != RU_OK) {
        n = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
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

static ru_status lock_room(const tier *t, ru_lock **out, ru_err *err)
{
    char path[PATH_MAX_BYTES];
    int n = snprintf(path, sizeof path, "%s/room", t->room);
    return n < (int)sizeof path
               ? ru_lock_open(path, true, true, out, err)
               : RU_FAIL(err, RU_E_CONFIG, "the name of the folder is too long: %s", t->room);
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
    if (lock_room(t, &l, &why) != RU_OK) {
        return false;
    }
    int64_t used = ru_dir_bytes(t->room);
    while (step + lines > t->quota_bytes - used && evict(s, t)) {
        used = ru_dir_bytes(t->room);
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
        ru_log(RU_LOG_INFO, "data", "cache", "%s is full%s%s", t->path,
               why.text[0] != 0 ? ": " : "", why.text);
    }
    return fits;
}

static bool open_own(rui_segments *s, tier *t)
{
    ru_err why = {0};
    char name[64];
    uint64_t r;
    ru_self_random(&r, sizeof r);
    /* Later ones come later in the order of names: what they hold counts. */
    (void)snprintf(name, sizeof name, "%016llx-%016llx.seg", (unsigned long long)ru_clock_wall_ns(),
                   (unsigned long long)r);
    head h = {.key = s->key};
    memcpy(h.magic, magic, sizeof magic);
    h.check = check_of(s, &h, offsetof(head, check));
    const char *data = ru_path_join(&s->arena, t->folder, name);
    ru_status st = data != NULL ? ru_grow_open(data, &t->data, &why) : RU_E_MEM;
    segment *g = st == RU_OK ? add_segment(s, t->folder, name, &why) : NULL;
    if (g != NULL) {
        g->own = true;
        t->segment = s->n;
        t->index_end = sizeof h;
        st = ru_grow_open(g->index, &t->index, &why);
        st = st == RU_OK ? ru_grow_claim(t->index, sizeof h, &why) : st;
        st = st == RU_OK ? ru_grow_write(t->index, 0, &h, sizeof h, &why) : st;
    }
    if (g == NULL || st != RU_OK) {
        ru_log(RU_LOG_WARN, "data", "cache", "samples are not kept in %s: %s", t->path, why.text);
        return false;
    }
    return true;
}

/* -- open and close ---------------------------------------------------------------------------- */

static ru_status open_tier(rui_segments *s, const ru_disk_tier *from, tier *t, ru_err *err)
{
    *t = (tier){.path = from->path, .quota_bytes = from->quota_bytes};
    t->room = ru_path_join(&s->arena, from->path, "samples");
    t->folder = t->room != NULL ? ru_path_join(&s->arena, t->room, s->name) : NULL;
    const char *use = t->folder != NULL ? ru_path_join(&s->arena, t->folder, "use") : NULL;
    if (use == NULL) {
        return rui_no_memory(err, from->path, PATH_MAX_BYTES);
    }
    ru_lock *l = NULL;
    RU_TRY(ru_dir_make(t->room, err));
    if (!ru_dir_is_own(t->room)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "storage: %s belongs to another user, or others may write into it; name a "
                       "folder of your own, or run: chmod go-w %s",
                       t->room, t->room);
    }
    RU_TRY(lock_room(t, &l, err));
    ru_status st = ru_dir_make(t->folder, err);
    st = st == RU_OK ? ru_lock_open(use, false, true, &t->use, err) : st;
    ru_lock_close(l);
    RU_TRY(st);
    look(s, t, true);
    return RU_OK;
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
        s->tiers[k].end = s->tiers[k].index_end = 0;
    }
}

void rui_segments_close(rui_segments *s)
{
    if (s == NULL) {
        return;
    }
    for (uint32_t k = 0; k < s->n_tiers; k++) {
        tier *t = &s->tiers[k];
        ru_grow_close(t->data, t->end);
        ru_grow_close(t->index, t->index_end);
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
        t->full = t->full || (t->data == NULL && !open_own(s, t));
        bool claimed = !t->full && t->end + size <= ru_grow_claimed(t->data) &&
                       t->index_end + (int64_t)sizeof(line) <= ru_grow_claimed(t->index);
        t->full = t->full || (!claimed && !claim(s, t, size));
        if (!t->full) {
            return t;
        }
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
    l.check = check_of(s, &l, offsetof(line, check));
    ru_mutex_lock(&s->lock);
    st = st == RU_OK ? ru_grow_write(t->index, t->index_end, &l, sizeof l, &why) : st;
    if (st == RU_OK) {
        t->index_end += (int64_t)sizeof l;
        e->offset = l.offset;
        s->kept++;
    } else {
        *e = (entry){0};
        t->full = true;
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

bool rui_segments_room(rui_segments *s)
{
    bool room = false;
    ru_mutex_lock(&s->lock);
    for (uint32_t k = 0; k < s->n_tiers; k++) {
        room = room || !s->tiers[k].full;
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
