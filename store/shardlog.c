#include "store/shardlog.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/map.h"
#include "env/file/file.h"

#define MAGIC UINT32_C(0x6c537552) /* "RuSl" */

enum { FIRST = 1, SLACK_BYTES = 1 << 20 };

typedef struct head {
    uint32_t magic, flags, generation, object, block, clock;
    int64_t n;
    uint64_t hash;
} head;

/* Where the newest and the first record of a block are, + 1; 0: there is none. */
typedef struct place {
    int64_t newest, first;
} place;

struct ru_shardlog {
    char *path;
    ru_log_file *file;
    bool torn; /* the file may end in a part of a record */
    int64_t size, live;
    ru_map index; /* (object, block) -> place */
    place *places;
    uint32_t n_places, cap_places;
};

/* -- records -------------------------------------------------------------------------------------
 */

int64_t ru_shardlog_bytes(int64_t n)
{
    return (int64_t)sizeof(head) + (n + 7) / 8 * 8;
}

static uint64_t hash_of(const head *h, const void *payload)
{
    uint64_t seed = ru_hash_bytes(h, offsetof(head, hash), 0);
    return ru_hash_bytes(payload, h->n, seed);
}

void ru_shardlog_put(const ru_shardlog_record *r, uint8_t *into)
{
    head h = {.magic = MAGIC,
              .flags = r->first ? FIRST : 0,
              .generation = r->generation,
              .object = r->object,
              .block = r->block,
              .clock = r->clock,
              .n = r->n};
    memset(into, 0, (size_t)ru_shardlog_bytes(r->n));
    if (r->n > 0) {
        memcpy(into + sizeof h, r->bytes, (size_t)r->n);
    }
    h.hash = hash_of(&h, into + sizeof h);
    memcpy(into, &h, sizeof h);
}

/* Is a whole record here? */
static bool read_here(const uint8_t *bytes, int64_t n, ru_shardlog_record *out)
{
    head h;
    int64_t left = n - (int64_t)sizeof h;
    if (left < 0) {
        return false;
    }
    memcpy(&h, bytes, sizeof h);
    if (h.magic != MAGIC || h.n < 0 || h.n > left || (h.n + 7) / 8 * 8 > left ||
        hash_of(&h, bytes + sizeof h) != h.hash) {
        return false;
    }
    *out = (ru_shardlog_record){.generation = h.generation,
                                .object = h.object,
                                .block = h.block,
                                .clock = h.clock,
                                .first = (h.flags & FIRST) != 0,
                                .n = h.n,
                                .bytes = bytes + sizeof h};
    return true;
}

bool ru_shardlog_next(const uint8_t *bytes, int64_t n, int64_t *at, ru_shardlog_record *out)
{
    for (int64_t k = *at; k < n; k += 8) { /* records begin at multiples of 8 */
        if (read_here(bytes + k, n - k, out)) {
            *at = k + ru_shardlog_bytes(out->n);
            return true;
        }
    }
    return false;
}

/* -- index ---------------------------------------------------------------------------------------
 */

static place *place_of(ru_shardlog *l, const ru_shardlog_record *r)
{
    if (l->n_places == l->cap_places) {
        uint32_t cap = l->cap_places == 0 ? 64 : 2 * l->cap_places;
        place *p = realloc(l->places, cap * sizeof *p);
        if (p == NULL) {
            return NULL;
        }
        l->places = p;
        l->cap_places = cap;
    }
    bool fresh;
    uint64_t *k = ru_map_put_u64(&l->index, (uint64_t)r->object << 32 | r->block, &fresh);
    if (k != NULL && fresh) {
        *k = l->n_places;
        l->places[l->n_places++] = (place){0};
    }
    return k != NULL ? &l->places[*k] : NULL;
}

/* Records of `bytes`, which stand at `from` in the file. */
static ru_status note(ru_shardlog *l, const uint8_t *bytes, int64_t n, int64_t from, ru_err *err)
{
    ru_shardlog_record r;
    for (int64_t at = 0; ru_shardlog_next(bytes, n, &at, &r);) {
        int64_t begin = at - ru_shardlog_bytes(r.n);
        place *p = place_of(l, &r);
        if (p == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the index of %s", l->path);
        }
        bool both = p->newest != 0 && p->newest == p->first;
        l->live += p->newest == 0 || both ? at - begin : 0;
        p->newest = from + begin + 1;
        p->first = r.first ? p->newest : p->first;
    }
    return RU_OK;
}

static int by_place(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* -- the file ------------------------------------------------------------------------------------
 */

static ru_status copy_live(const ru_shardlog *l, const ru_map_file *map, ru_out *out, int64_t *size,
                           ru_err *err)
{
    int64_t *at = calloc(2 * (size_t)l->n_places + 1, sizeof *at), n = 0;
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to compact %s", l->path);
    }
    for (uint32_t k = 0; k < l->n_places; k++) {
        const place *p = &l->places[k];
        at[n++] = p->newest;
        if (p->first != 0 && p->first != p->newest) {
            at[n++] = p->first;
        }
    }
    qsort(at, (size_t)n, sizeof *at, by_place);
    ru_status st = RU_OK;
    *size = 0;
    for (int64_t k = 0; st == RU_OK && k < n; k++) {
        ru_shardlog_record r;
        int64_t begin = at[k] - 1;
        if (at[k] == 0) {
            continue;
        }
        if (!read_here(map->data + begin, map->size_bytes - begin, &r)) {
            ru_log(RU_LOG_WARN, "store", "shardlog",
                   "%s: the record at byte %lld is damaged, and left out", l->path,
                   (long long)begin);
            continue;
        }
        st = ru_out_write(out, map->data + begin, ru_shardlog_bytes(r.n), err);
        *size += ru_shardlog_bytes(r.n);
    }
    free(at);
    return st;
}

/* Index the whole records of the file. */
static ru_status index_all(ru_shardlog *l, ru_err *err)
{
    ru_map_file map;
    ru_map_fini(&l->index);
    ru_map_init(&l->index, NULL, 0);
    l->n_places = 0;
    l->live = 0;
    RU_TRY(ru_file_map(l->path, &map, err));
    ru_status st = note(l, map.data, map.size_bytes, 0, err);
    l->size = map.size_bytes;
    ru_file_unmap(&map);
    return st;
}

/* Write the file anew with what counts; the old one stays until the new one is whole. */
static ru_status compact(ru_shardlog *l, ru_err *err)
{
    ru_map_file map;
    ru_out *out = NULL;
    int64_t size = 0;
    ru_log_file_close(l->file); /* whatever fails, the next append opens what has the name then */
    l->file = NULL;
    RU_TRY(ru_file_map(l->path, &map, err));
    ru_status st = ru_out_open_own(l->path, &out, err);
    st = st == RU_OK ? copy_live(l, &map, out, &size, err) : st;
    st = st == RU_OK ? ru_out_commit(out, err) : st;
    ru_out_close(out);
    ru_file_unmap(&map);
    RU_TRY(st);
    RU_TRY(index_all(l, err));
    return ru_log_file_open(l->path, true, &l->file, err);
}

static ru_status open_file(ru_shardlog *l, ru_err *err)
{
    bool there = ru_path_is_file(l->path);
    RU_TRY(ru_log_file_open(l->path, true, &l->file, err));
    if (there) {
        RU_TRY(index_all(l, err));
        return compact(l, err); /* without what is torn */
    }
    return RU_OK;
}

ru_status ru_shardlog_open(const char *path, ru_shardlog **out, ru_err *err)
{
    ru_shardlog *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the log %s", path);
    }
    ru_map_init(&l->index, NULL, 0);
    l->path = strdup(path);
    ru_status st = l->path != NULL ? open_file(l, err)
                                   : RU_FAIL(err, RU_E_MEM, "no memory for the log %s", path);
    if (st != RU_OK) {
        ru_shardlog_close(l);
        return st;
    }
    *out = l;
    return RU_OK;
}

ru_status ru_shardlog_append(ru_shardlog *l, const uint8_t *bytes, int64_t n, ru_err *err)
{
    if (l->file == NULL) {
        RU_TRY(index_all(l, err));
        RU_TRY(ru_log_file_open(l->path, true, &l->file, err));
    }
    if (l->torn || l->size > 2 * l->live + SLACK_BYTES) {
        RU_TRY(compact(l, err));
    }
    l->torn = true;
    RU_TRY(ru_log_file_append(l->file, bytes, n, err));
    RU_TRY(ru_log_file_sync(l->file, err));
    RU_TRY(note(l, bytes, n, l->size, err));
    l->size += n;
    l->torn = false;
    return RU_OK;
}

void ru_shardlog_close(ru_shardlog *l)
{
    if (l != NULL) {
        ru_log_file_close(l->file);
        ru_map_fini(&l->index);
        free(l->places);
        free(l->path);
        free(l);
    }
}

/* -- the folder ----------------------------------------------------------------------------------
 */

char *ru_shardlog_path(ru_arena *arena, const char *dir, uint32_t generation, uint64_t process)
{
    return ru_arena_printf(arena, "%s/%u-%016llx.log", dir, generation,
                           (unsigned long long)process);
}

/* Is it the name of a log, and of which generation? */
static bool is_log(const char *name, uint32_t *generation)
{
    char *end = NULL;
    unsigned long g = strtoul(name, &end, 10);
    *generation = (uint32_t)g;
    return end != name && *end == '-' && strlen(end) == 21 && strcmp(end + 17, ".log") == 0;
}

/* Records of the generation that the log's name says. */
static ru_status gather_file(const char *path, uint32_t generation, uint32_t object, ru_text *into,
                             ru_err *err)
{
    ru_map_file map;
    ru_shardlog_record r;
    ru_status st = ru_file_map(path, &map, err);
    if (st == RU_E_MISSING) {
        return RU_OK; /* removed since it was listed */
    }
    RU_TRY(st);
    for (int64_t at = 0; ru_shardlog_next(map.data, map.size_bytes, &at, &r);) {
        int64_t size = ru_shardlog_bytes(r.n);
        if (r.generation == generation && r.object == object) {
            ru_text_put_n(into, (const char *)map.data + at - size, size);
        }
    }
    ru_file_unmap(&map);
    return into->cut ? RU_FAIL(err, RU_E_MEM, "no memory for the records of %s", path) : RU_OK;
}

ru_status ru_shardlog_gather(const char *dir, uint32_t first, uint32_t last, uint32_t object,
                             ru_text *into, ru_err *err)
{
    ru_arena arena;
    char **names;
    uint32_t n = 0;
    if (!ru_path_is_dir(dir)) {
        return RU_OK;
    }
    ru_arena_init(&arena, 0);
    ru_status st = ru_dir_list(dir, &arena, &names, &n, err);
    for (uint32_t k = 0; st == RU_OK && k < n; k++) {
        uint32_t g;
        if (!is_log(names[k], &g) || g < first || g > last) {
            continue;
        }
        const char *path = ru_path_join(&arena, dir, names[k]);
        st = path == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for the names of logs")
                          : gather_file(path, g, object, into, err);
    }
    ru_arena_fini(&arena);
    return st;
}

ru_status ru_shardlog_clean(const char *dir, uint32_t generation, ru_err *err)
{
    ru_arena arena;
    char **names;
    uint32_t n = 0;
    if (!ru_path_is_dir(dir)) {
        return RU_OK;
    }
    ru_arena_init(&arena, 0);
    ru_status st = ru_dir_list(dir, &arena, &names, &n, err);
    for (uint32_t k = 0; st == RU_OK && k < n; k++) {
        uint32_t g;
        const char *path = ru_path_join(&arena, dir, names[k]);
        if (path == NULL) {
            st = RU_FAIL(err, RU_E_MEM, "no memory for the names of logs");
        } else if (is_log(names[k], &g) && g < generation) {
            st = ru_path_remove(path, err);
            st = st == RU_E_MISSING ? RU_OK : st; /* another process did */
        }
    }
    ru_arena_fini(&arena);
    return st;
}
