#include "data/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/fetch.h"
#include "data/kept.h"
#include "data/segments.h"
#include "env/clock.h"
#include "env/file/grow.h"

enum { RECORD_VERSION = 1, ALIGN = 8, DEPTH_MAX = 32 };

struct rui_cache {
    ru_dataset *d;
    ru_data_options opt;
    rui_segments *segments;
    ru_cache_kind kind;
    int64_t at[RU_FIELDS_MAX], bytes[RU_FIELDS_MAX]; /* of fields in a decoded record */
    int64_t record_bytes;                            /* of it; of ranges on the average */
    ru_hash128 options, key;                         /* of all but the files; of all */
    ru_mutex lock;
    rui_cache_sum sum; /* but for what is kept now */
};

/* -- the key ----------------------------------------------------------------------------------- */

static ru_status put_file(const ru_dataset *d, ru_hasher *h, const char *path, ru_err *err)
{
    if (!ru_object_address(path)) {
        ru_hasher_put_u64(h, ru_path_stamp(path));
        return RU_OK;
    }
    ru_object *b = NULL;
    RU_TRY(rui_object_open(&((ru_dataset *)(uintptr_t)d)->objects, path, &b, err));
    ru_hasher_put_str(h, ru_object_version(b));
    ru_hasher_put_u64(h, (uint64_t)ru_object_bytes(b));
    return RU_OK;
}

typedef struct shards {
    const ru_dataset *d;
    ru_hasher *h;
    ru_err *err;
    const rui_source *last;
    ru_status st;
} shards;

static void put_shard(void *self, const rui_source *s, int64_t offset, int64_t size_bytes)
{
    shards *t = self;
    (void)offset;
    (void)size_bytes;
    if (t->st == RU_OK && s != t->last) {
        t->last = s;
        ru_hasher_put_str(t->h, s->path);
        t->st = put_file(t->d, t->h, s->path, t->err);
    }
}

static ru_status put_path(const ru_dataset *d, ru_hasher *h, const char *path, uint32_t depth,
                          ru_arena *arena, ru_err *err)
{
    char **names = NULL;
    uint32_t n = 0;
    bool address = ru_object_address(path);
    ru_hasher_put_str(h, path);
    if (strchr(path, '{') != NULL && (address || !ru_path_exists(path))) { /* many files (tar.c) */
        shards t = {.d = d, .h = h, .err = err};
        d->format->where(d, 0, d->all, put_shard, &t);
        return t.st;
    }
    if (address || !ru_path_is_dir(path) || depth > DEPTH_MAX) {
        return put_file(d, h, path, err);
    }
    RU_TRY(ru_dir_list(path, arena, &names, &n, err));
    for (uint32_t i = 0; i < n; i++) {
        const char *at = ru_path_join(arena, path, names[i]);
        if (at == NULL) {
            return rui_no_memory(err, path, n);
        }
        RU_TRY(put_path(d, h, at, depth + 1, arena, err));
    }
    return RU_OK;
}

static ru_hash128 options_of(const rui_cache *c)
{
    ru_hasher hasher, *h = &hasher;
    const ru_dataset *d = c->d;
    const ru_data_options *o = &c->opt;
    const int64_t words[] = {RECORD_VERSION, c->kind,        d->all,        d->classes,
                             d->pixels,      d->one_hot,     d->raw,        o->context,
                             o->stride,      o->features,    o->classes,    o->header,
                             o->image_size,  o->token_bytes, o->regression, o->whole_classes,
                             o->unlabelled,  d->n_fields};
    ru_hasher_init(h);
    ru_hasher_put_str(h, d->format->name);
    ru_hasher_put_str(h, o->label);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
        ru_hasher_put_u64(h, (uint64_t)words[k]);
    }
    ru_hasher_put(h, &d->scale, sizeof d->scale);
    ru_hasher_put(h, &d->shift, sizeof d->shift);
    for (uint32_t k = 0; k < d->n_fields; k++) {
        const ru_type *t = &d->fields[k].type;
        ru_hasher_put_str(h, d->fields[k].name);
        ru_hasher_put_u64(h, t->dtype);
        for (uint32_t i = 0; i < t->rank; i++) {
            ru_hasher_put_u64(h, (uint64_t)t->dims[i]);
        }
    }
    for (int64_t k = 0; d->class_names != NULL && k < d->classes; k++) {
        ru_hasher_put_str(h, d->class_names[k]);
    }
    return ru_hasher_get(h);
}

static ru_status key_of(const rui_cache *c, ru_hash128 *out, ru_err *err)
{
    ru_hasher h;
    ru_arena scratch;
    ru_status st = RU_OK;
    ru_hasher_init(&h);
    ru_arena_init(&scratch, 0);
    ru_hasher_put_u64(&h, c->options.low);
    ru_hasher_put_u64(&h, c->options.high);
    for (uint32_t k = 0; st == RU_OK && k < c->opt.n_paths; k++) {
        st = put_path(c->d, &h, c->opt.paths[k], 0, &scratch, err);
    }
    ru_arena_fini(&scratch);
    *out = ru_hasher_get(&h);
    return st;
}

/* -- open and close ---------------------------------------------------------------------------- */

static void lay_out(rui_cache *c)
{
    const ru_dataset *d = c->d;
    int64_t at = 0;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        bool pixels = (d->pixels >> k & 1) != 0;
        c->at[k] = at;
        c->bytes[k] = pixels ? ru_type_count(&d->fields[k].type) : d->field_bytes[k];
        at += (c->bytes[k] + ALIGN - 1) / ALIGN * ALIGN;
    }
    c->record_bytes = c->kind == RU_CACHE_DECODED ? at : d->bytes / d->count + 1;
}

static ru_status open_segments(rui_cache *c, ru_err *err)
{
    const char **paths = RU_NEW(&c->d->arena, const char *, c->opt.n_paths);
    bool all = paths != NULL;
    for (uint32_t k = 0; all && k < c->opt.n_paths; k++) {
        paths[k] = ru_arena_str(&c->d->arena, c->opt.paths[k]);
        all = paths[k] != NULL;
    }
    if (!all) {
        return rui_no_memory(err, "names of files", c->opt.n_paths);
    }
    c->opt.paths = paths;
    c->options = options_of(c);
    RU_TRY(key_of(c, &c->key, err));
    const rui_segments_options so = {.tiers = c->opt.cache.tiers,
                                     .n_tiers = c->opt.cache.n_tiers,
                                     .key = c->key,
                                     .samples = c->d->all,
                                     .waits = c->opt.cache.waits};
    return rui_segments_open(&so, &c->segments, err);
}

static void ask(void *self, const rui_source *s, int64_t offset, int64_t size_bytes)
{
    (void)offset;
    (void)size_bytes;
    *(bool *)self = *(bool *)self && s->bytes != NULL;
}

/* In the folders: what they hold, and at the end what that saved. */
static void note(const rui_cache *c, bool ended)
{
    const ru_cache_options *o = &c->opt.cache;
    const ru_kept_about a = {.data = c->opt.n_paths > 0 ? c->opt.paths[0] : c->d->path,
                             .format = c->d->format->name,
                             .kind = c->kind == RU_CACHE_BYTES ? "bytes" : "decoded",
                             .plan = o->plan != NULL ? o->plan : "",
                             .samples = c->d->all,
                             .none_s = o->none_s,
                             .epoch_s = o->epoch_s,
                             .processes = ended,
                             .found = c->sum.found,
                             .read = c->sum.read,
                             .found_ns = c->sum.found_ns,
                             .read_ns = c->sum.read_ns,
                             .added = rui_segments_settle(c->segments).added,
                             .damaged = c->sum.damaged};
    for (uint32_t k = 0; k < (ended ? 1 : o->n_tiers); k++) {
        rui_kept_note(o->tiers[k].path, c->key, &a);
    }
}

/* All of it: labels may stand in memory, and images in a file. */
static bool in_memory(const ru_dataset *d)
{
    bool all = true;
    rui_format_where(d, 0, 1, ask, &all);
    return all;
}

ru_status rui_cache_open(ru_dataset *d, const ru_data_options *opt, rui_cache **out, ru_err *err)
{
    *out = NULL;
    if (d->format->where == NULL || (opt->cache.kind == RU_CACHE_BYTES && in_memory(d))) {
        ru_log(RU_LOG_INFO, "data", "cache", "samples of %s stand in memory and are not kept",
               d->format->name);
        return RU_OK;
    }
    if (opt->cache.n_tiers == 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "data.cache needs a place; name a folder: storage: [{path: /data/rubato, "
                       "quota: 100GB}]");
    }
    rui_cache *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return rui_no_memory(err, "the cache of samples", sizeof *c);
    }
    c->d = d;
    c->opt = *opt;
    c->kind = opt->cache.kind;
    ru_mutex_init(&c->lock);
    lay_out(c);
    ru_status st = open_segments(c, err);
    if (st != RU_OK) {
        rui_cache_close(c);
        return st;
    }
    note(c, false);
    ru_log(RU_LOG_INFO, "data", "cache", "%lld of %lld samples of %s are kept (%s)",
           (long long)rui_segments_settle(c->segments).kept, (long long)d->all, d->path,
           c->kind == RU_CACHE_BYTES ? "bytes" : "decoded");
    *out = c;
    return RU_OK;
}

rui_cache_sum rui_cache_sum_get(rui_cache *c)
{
    ru_mutex_lock(&c->lock);
    rui_cache_sum sum = c->sum;
    ru_mutex_unlock(&c->lock);
    const rui_segments_sum now = rui_segments_settle(c->segments);
    sum.added = now.added;
    sum.added_bytes = now.added_bytes;
    sum.late = now.late;
    sum.kept = now.kept;
    sum.samples = c->d->all;
    return sum;
}

static void tell(rui_cache *c)
{
    const rui_cache_sum sum = rui_cache_sum_get(c), *f = &sum;
    double each = f->read > 0 ? (double)f->read_ns / (double)f->read : 0;
    double kept = f->found > 0 ? (double)f->found_ns / (double)f->found : 0;
    char saved[120] = "", late[120] = "";
    if (f->read > 0 && f->found > 0) {
        (void)snprintf(saved, sizeof saved,
                       "; a kept one takes %.3g ms instead of %.3g, which saved %.3g s",
                       1e-6 * kept, 1e-6 * each, 1e-9 * (each - kept) * (double)f->found);
    }
    if (f->late > 0) {
        (void)snprintf(late, sizeof late,
                       "; %lld times too much waited for the disk, and a later epoch keeps them",
                       (long long)f->late);
    }
    if (f->damaged > 0) {
        ru_log(RU_LOG_WARN, "data", "cache",
               "%lld kept samples of %s could not be read and were read from the source again; "
               "the disk of the cache may be failing",
               (long long)f->damaged, c->d->path);
    }
    ru_log(RU_LOG_INFO, "data", "cache",
           "%lld of %lld reads of %s came from kept samples; %lld were added (%.3g MB), and %lld "
           "of %lld are kept%s%s",
           (long long)f->found, (long long)(f->found + f->read), c->d->path, (long long)f->added,
           1e-6 * (double)f->added_bytes, (long long)f->kept, (long long)f->samples, late, saved);
}

/* Files that changed while they were read: what was kept may be of either version. */
static bool changed(const rui_cache *c)
{
    ru_err none = {0};
    ru_hash128 now;
    return key_of(c, &now, &none) != RU_OK || now.low != c->key.low || now.high != c->key.high;
}

void rui_cache_close(rui_cache *c)
{
    if (c == NULL) {
        return;
    }
    if (c->segments != NULL && c->sum.found + c->sum.read > 0) {
        tell(c);
        note(c, true);
    }
    if (c->segments != NULL && rui_segments_settle(c->segments).added > 0 && changed(c)) {
        ru_log(
            RU_LOG_WARN, "data", "cache",
            "the files of %s changed while samples were kept; what this process kept is left out",
            c->d->path);
        rui_segments_drop(c->segments);
    }
    rui_segments_close(c->segments);
    ru_mutex_fini(&c->lock);
    free(c);
}

int64_t rui_cache_record_bytes(const rui_cache *c)
{
    return c->record_bytes;
}

bool rui_cache_where(rui_cache *c, int64_t index, rui_where_fn fn, void *self)
{
    rui_kept k;
    bool kept = rui_segments_find(c->segments, index, &k);
    if (kept && k.held == NULL) {
        fn(self, k.source, k.offset, k.size_bytes);
    } else if (kept) {
        rui_segments_done(c->segments, &k);
    }
    return kept;
}

/* -- ranges of a sample ------------------------------------------------------------------------ */

static void add_range(void *self, const rui_source *s, int64_t offset, int64_t size_bytes)
{
    rui_moved *m = self;
    if (m->n < RUI_MOVED_MAX) {
        m->at[m->n].source = s;
        m->at[m->n].offset = offset;
        m->at[m->n].size_bytes = size_bytes;
    }
    m->n++;
}

/* Their bytes in all; -1: they are too many. */
static int64_t ranges_of(const ru_dataset *d, int64_t index, rui_moved *m)
{
    int64_t sum = 0;
    m->n = 0;
    d->format->where(d, index, 1, add_range, m);
    for (uint32_t k = 0; m->n <= RUI_MOVED_MAX && k < m->n; k++) {
        sum += m->at[k].size_bytes;
    }
    return m->n <= RUI_MOVED_MAX && sum <= RUI_SAMPLE_BYTES_MAX ? sum : -1;
}

const uint8_t *rui_moved_find(const rui_moved *m, const rui_source *s, int64_t offset,
                              int64_t size_bytes)
{
    const uint8_t *p = m->bytes;
    for (uint32_t k = 0; k < m->n; k++) {
        int64_t in = offset - m->at[k].offset;
        if (m->at[k].source == s && in >= 0 && size_bytes <= m->at[k].size_bytes - in) {
            return p + in;
        }
        p += m->at[k].size_bytes;
    }
    return NULL;
}

/* -- reading ----------------------------------------------------------------------------------- */

static void count(rui_cache *c, bool found, ru_time from)
{
    int64_t ns = ru_time_since(ru_clock_now(), from);
    ru_mutex_lock(&c->lock);
    *(found ? &c->sum.found : &c->sum.read) += 1;
    *(found ? &c->sum.found_ns : &c->sum.read_ns) += ns;
    ru_mutex_unlock(&c->lock);
}

static void unpack(const rui_cache *c, const uint8_t *record, void *const *fields)
{
    const ru_dataset *d = c->d;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        if ((d->pixels >> k & 1) != 0) {
            rui_pixels_put(d, record + c->at[k], c->bytes[k], fields[k]);
        } else {
            memcpy(fields[k], record + c->at[k], (size_t)c->bytes[k]);
        }
    }
}

/* A record whose hash is right. */
static ru_status use(const ru_dataset *d, int64_t index, const uint8_t *record, int64_t size_bytes,
                     void *const *fields, ru_err *err)
{
    const rui_cache *c = d->cache;
    if (c->kind == RU_CACHE_DECODED) {
        if (size_bytes != c->record_bytes) {
            return RU_E_DATA;
        }
        unpack(c, record, fields);
        return RU_OK;
    }
    rui_moved m = {.bytes = record};
    ru_dataset there = *d;
    there.moved = &m;
    return ranges_of(d, index, &m) == size_bytes ? d->format->read(&there, index, fields, err)
                                                 : RU_E_DATA;
}

static ru_status read_kept(const ru_dataset *d, int64_t index, const rui_kept *k,
                           void *const *fields, ru_err *err)
{
    rui_scratch scratch = {0};
    if (k->held != NULL) {
        return use(d, index, k->bytes, k->size_bytes, fields, err);
    }
    const uint8_t *record = rui_bytes_find(d, k->source, k->offset, k->size_bytes);
    ru_status st = RU_OK;
    if (record == NULL) {
        RU_TRY(rui_scratch_get(&scratch, NULL, 0, k->size_bytes, err));
        record = scratch.p;
        st = rui_bytes_read(d, k->source, k->offset, scratch.p, k->size_bytes, err);
    }
    if (st == RU_OK && ru_hash_bytes(record, k->size_bytes, 0) != k->hash) {
        st = RU_E_DATA;
    }
    st = st == RU_OK ? use(d, index, record, k->size_bytes, fields, err) : st;
    rui_scratch_put(&scratch);
    return st;
}

/* Decode into the record, keep it, and give its fields. */
static ru_status read_decoded(const ru_dataset *d, int64_t index, uint8_t *record,
                              void *const *fields, ru_err *err)
{
    const rui_cache *c = d->cache;
    void *into[RU_FIELDS_MAX];
    ru_dataset stored = *d;
    stored.as_stored = true;
    for (uint32_t k = 0; k < d->n_fields; k++) {
        int64_t next = k + 1 < d->n_fields ? c->at[k + 1] : c->record_bytes;
        into[k] = record + c->at[k];
        memset(record + c->at[k] + c->bytes[k], 0, (size_t)(next - c->at[k] - c->bytes[k]));
    }
    RU_TRY(d->format->read(&stored, index, into, err));
    unpack(c, record, fields);
    return RU_OK;
}

/* Only what is at hand: bytes that the decoder read by itself are not read twice. */
static void keep_bytes(const ru_dataset *d, int64_t index)
{
    rui_moved m;
    rui_place place;
    const uint8_t *from[RUI_MOVED_MAX];
    int64_t size = ranges_of(d, index, &m);
    bool all = size > 0;
    for (uint32_t k = 0; all && k < m.n; k++) {
        from[k] = rui_bytes_find(d, m.at[k].source, m.at[k].offset, m.at[k].size_bytes);
        all = from[k] != NULL;
    }
    uint8_t *to = all ? rui_segments_begin(d->cache->segments, index, size, &place) : NULL;
    if (to == NULL) {
        return;
    }
    for (uint32_t k = 0; k < m.n; k++) {
        memcpy(to, from[k], (size_t)m.at[k].size_bytes);
        to += m.at[k].size_bytes;
    }
    rui_segments_end(d->cache->segments, &place, true);
}

static bool read_found(const ru_dataset *d, int64_t index, void *const *fields, bool *damaged)
{
    rui_kept k;
    ru_err why = {0};
    bool is = rui_segments_find(d->cache->segments, index, &k);
    *damaged = is && read_kept(d, index, &k, fields, &why) != RU_OK;
    if (is) {
        rui_segments_done(d->cache->segments, &k);
    }
    return is && !*damaged;
}

ru_status rui_cache_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    rui_cache *c = d->cache;
    rui_place place;
    bool damaged;
    ru_time from = ru_clock_now();
    if (read_found(d, index, fields, &damaged)) {
        count(c, true, from);
        return RU_OK;
    }
    if (damaged) {
        RU_TRY(rui_fetch_cancelled(d->fetched, err));
        rui_segments_forget(c->segments, index);
        ru_mutex_lock(&c->lock);
        c->sum.damaged++;
        ru_mutex_unlock(&c->lock);
    }
    rui_segments_refresh(c->segments);
    uint8_t *record = c->kind == RU_CACHE_DECODED && c->record_bytes > 0 &&
                              c->record_bytes <= RUI_SAMPLE_BYTES_MAX
                          ? rui_segments_begin(c->segments, index, c->record_bytes, &place)
                          : NULL;
    ru_status st = record != NULL ? read_decoded(d, index, record, fields, err)
                                  : d->format->read(d, index, fields, err);
    if (record != NULL) {
        rui_segments_end(c->segments, &place, st == RU_OK);
    }
    if (st == RU_OK) {
        if (c->kind == RU_CACHE_BYTES) {
            keep_bytes(d, index);
        }
        count(c, false, from);
    }
    return st;
}
