#include "store/tiers/tiers_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/file/file.h"
#include "store/shardlog.h"

enum {
    VERSION = 1,
    TRIES = 64, /* logs are put together by others while they are read */
    ENDED_MAX = 4096,
};

ru_status rui_tiers_no_memory(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for the map of files");
}

char *rui_tiers_part(uint64_t map, ru_arena *arena, const rui_tier *d, uint64_t writer,
                     uint64_t number)
{
    return ru_arena_printf(arena, "%s/%016llx-%016llx-%llu.part", d->folder,
                           (unsigned long long)map, (unsigned long long)writer,
                           (unsigned long long)number);
}

/* -- the map ----------------------------------------------------------------------------------- */

void rui_tiers_forget(ru_tiers *t)
{
    for (uint32_t k = 0; k < t->n_logs; k++) {
        free(t->logs[k].path);
    }
    t->n_logs = t->n_items = t->n_ended = 0;
    t->listed = -1;
    t->dropped = 0;
    t->forgotten++;
    ru_map_fini(&t->by_id);
    ru_map_fini(&t->by_name);
    ru_map_init(&t->by_id, NULL, 0);
    ru_map_init(&t->by_name, NULL, 0);
    ru_arena_fini(&t->known);
    ru_arena_init(&t->known, 0);
}

/* Room for one more; the new ones are zeroed. */
static bool grow_array(void *array, uint32_t n, uint32_t *cap, size_t size)
{
    void *old, *more;
    memcpy(&old, array, sizeof old);
    if (n < *cap) {
        return true;
    }
    uint32_t want = *cap == 0 ? 16 : 2 * *cap;
    more = realloc(old, want * size);
    if (more == NULL) {
        return false;
    }
    memcpy(array, &more, sizeof more);
    *cap = want;
    return true;
}

static rui_item *item_of(ru_tiers *t, uint64_t writer, uint64_t serial)
{
    bool fresh;
    const uint64_t id[2] = {writer, serial};
    uint64_t *k = ru_map_put(&t->by_id, ru_str_n((const char *)id, sizeof id), &fresh);
    if (k == NULL) {
        return NULL;
    }
    if (fresh || *k == 0) {
        *k = 0;
        if (!grow_array(&t->items, t->n_items, &t->cap_items, sizeof *t->items)) {
            return NULL;
        }
        t->items[t->n_items] = (rui_item){.r = {.writer = writer, .serial = serial}, .name = ""};
        *k = ++t->n_items;
    }
    return &t->items[*k - 1];
}

static ru_status name_item(ru_tiers *t, rui_item *i, const char *name, uint32_t n, ru_err *err)
{
    i->name = ru_arena_strn(&t->known, name, n);
    uint64_t *last = ru_map_put(&t->by_name, ru_str_n(name, n), NULL);
    if (i->name == NULL || last == NULL) {
        i->name = "";
        return rui_tiers_no_memory(err);
    }
    while (*last != 0 && t->items[*last - 1].gone) { /* a name that comes again and again */
        *last = t->items[*last - 1].before;
    }
    i->before = (uint32_t)*last;
    *last = (uint64_t)(i - t->items) + 1;
    return RU_OK;
}

static bool sound(const ru_tier_told *r)
{
    const double v[] = {r->open_s,     r->input_bytes, r->writers, r->readers,  r->life_s,
                        r->size_bytes, r->fast_bytes,  r->ops,     r->decide_s, r->limit_bytes};
    bool is = r->by < RU_TIER_BYS && isfinite(r->expected_usd) && isfinite(r->measured_usd) &&
              r->fast_bytes <= r->size_bytes;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(v); k++) {
        is = is && v[k] >= 0 && v[k] <= 1e18;
    }
    return is;
}

static bool covers(const rui_map_log *l, uint64_t id)
{
    uint32_t k = 0;
    while (k < l->n_puts && l->puts[k] != id) {
        k++;
    }
    return k < l->n_puts;
}

/* Operations on an item in the logs of `only`, NULL: in all. A killed process may have left logs
 * beside the one into which it put them together. */
static double ops_in(const ru_tiers *t, const rui_item *i, ru_grow *const *only)
{
    double sum = 0;
    for (const rui_ops *o = i->ops; o != NULL; o = o->next) {
        RU_CHECK(o->home < t->n_logs);
        bool again = false;
        for (const rui_ops *by = i->ops; by != NULL; by = by->next) {
            again = again || (by->told && covers(&t->logs[by->home], t->logs[o->home].id));
        }
        sum += !again && (only == NULL || only[o->home] != NULL) ? o->ops : 0;
    }
    return sum;
}

static bool add_ops(ru_tiers *t, rui_item *i, uint32_t home, const ru_tier_told *r, bool told)
{
    rui_ops *o = i->ops;
    while (o != NULL && o->home != home) {
        o = o->next;
    }
    if (o == NULL) {
        o = RU_NEW(&t->known, rui_ops, 1);
        if (o == NULL) {
            return false;
        }
        *o = (rui_ops){.next = i->ops, .home = home};
        i->ops = o;
    }
    o->ops += r->ops;
    o->told = o->told || told;
    return true;
}

static ru_status take_puts(ru_tiers *t, const ru_shardlog_record *from, uint32_t home, ru_err *err)
{
    rui_map_log *l = &t->logs[home];
    uint64_t *ids = RU_NEW(&t->known, uint64_t, from->n / (int64_t)sizeof *ids + 1);
    if (ids == NULL) {
        return rui_tiers_no_memory(err);
    }
    memcpy(ids, from->bytes, (size_t)from->n);
    l->puts = ids;
    l->n_puts = (uint32_t)(from->n / (int64_t)sizeof *ids);
    return RU_OK;
}

static ru_status take_told(ru_tiers *t, const ru_shardlog_record *from, uint32_t home, ru_err *err)
{
    ru_tier_told r;
    if (from->n < (int64_t)sizeof r) {
        return RU_OK;
    }
    memcpy(&r, from->bytes, sizeof r);
    if (from->n != (int64_t)sizeof r + r.group_bytes || r.group_bytes > RU_TIER_NAME_MAX ||
        !sound(&r)) {
        return RU_OK;
    }
    const char *group =
        ru_arena_strn(&t->known, (const char *)from->bytes + sizeof r, r.group_bytes);
    rui_item *i = group != NULL ? item_of(t, r.writer, r.serial) : NULL;
    if (i == NULL) {
        return rui_tiers_no_memory(err);
    }
    if (from->object != RUI_TIER_ENDED) {
        bool told = from->object == RUI_TIER_TOLD; /* a reader may have closed it before */
        if (!add_ops(t, i, home, &r, told || r.by == RUI_TIER_PUT)) {
            return rui_tiers_no_memory(err);
        }
        i->told = told ? r : i->told;
        i->group = told ? group : i->group;
        i->told.ops = ops_in(t, i, NULL);
        return RU_OK;
    }
    if (i->ended) { /* who put logs together was killed before the old ones went */
        return RU_OK;
    }
    if (t->n_ended == 2 * ENDED_MAX) {
        memmove(t->ended, t->ended + ENDED_MAX, ENDED_MAX * sizeof *t->ended);
        t->n_ended = ENDED_MAX;
        t->dropped += ENDED_MAX;
    }
    if (!grow_array(&t->ended, t->n_ended, &t->cap_ended, sizeof *t->ended)) {
        return rui_tiers_no_memory(err);
    }
    i->ended = true;
    t->ended[t->n_ended++] = (rui_ended){r, group, home};
    return RU_OK;
}

/* A record that is none of ours is passed over. */
static ru_status take(ru_tiers *t, const ru_shardlog_record *from, uint32_t home, ru_err *err)
{
    rui_item_head r;
    int64_t sum = 0;
    if (from->generation == VERSION && from->object == RUI_TIER_PUTS) {
        return take_puts(t, from, home, err);
    }
    if (from->generation == VERSION && from->object >= RUI_TIER_TOLD &&
        from->object <= RUI_TIER_ENDED) {
        return take_told(t, from, home, err);
    }
    if (from->generation != VERSION || from->n < (int64_t)sizeof r ||
        from->object < RUI_TIER_BEGUN || from->object > RUI_TIER_GONE) {
        return RU_OK;
    }
    const uint8_t *p = from->bytes;
    memcpy(&r, p, sizeof r);
    int64_t parts = (int64_t)r.n_parts * (int64_t)sizeof(rui_part);
    if (r.n_parts > RU_TIERS_MAX || r.name_bytes > RU_TIER_NAME_MAX ||
        from->n != (int64_t)sizeof r + parts + r.name_bytes) {
        return RU_OK;
    }
    rui_item *i = item_of(t, r.writer, r.serial);
    if (i == NULL) {
        return rui_tiers_no_memory(err);
    }
    if (from->object == RUI_TIER_GONE) {
        i->gone = true;
        return RU_OK;
    }
    if (i->name[0] == '\0' && r.name_bytes > 0) {
        RU_TRY(name_item(t, i, (const char *)p + sizeof r + parts, r.name_bytes, err));
    }
    i->home = home + 1;
    if (from->object == RUI_TIER_MADE) {
        i->r = r;
        i->durable = from->first;
        memcpy(i->parts, p + sizeof r, (size_t)parts);
        for (uint32_t k = 0; k < r.n_parts; k++) {
            int64_t n = i->parts[k].bytes;
            if (n < 0 || n > r.bytes - sum) {
                return RU_OK;
            }
            sum += n;
        }
        i->made = sum == r.bytes;
    }
    return RU_OK;
}

static ru_status read_log(ru_tiers *t, uint32_t number, ru_err *err)
{
    ru_in_file f;
    ru_shardlog_record r;
    rui_map_log *l = &t->logs[number];
    RU_TRY(ru_in_open_own(l->path, &f, err));
    int64_t n = f.size_bytes - l->read_bytes, at = 0;
    uint8_t *bytes = n > 0 ? malloc((size_t)n) : NULL;
    ru_status st = n <= 0 || bytes != NULL ? RU_OK : rui_tiers_no_memory(err);
    if (st == RU_OK && n > 0) {
        st = ru_in_read(&f, l->path, l->read_bytes, bytes, n, err);
    }
    while (st == RU_OK && n > 0 && ru_shardlog_next(bytes, n, &at, &r)) {
        st = take(t, &r, number, err);
    }
    l->read_bytes += at; /* what is no whole record yet is looked at again */
    free(bytes);
    ru_in_close(&f);
    return st;
}

static bool log_id(const char *name, uint64_t *id)
{
    char *end = NULL;
    *id = strtoull(name, &end, 16);
    return end == name + 16 && strcmp(end, ".map") == 0;
}

/* The logs that are there; *again: one is not there any more, so all must be read anew. */
static ru_status list_logs(ru_tiers *t, bool *again, ru_err *err)
{
    ru_arena scratch;
    char **names;
    uint32_t n = 0;
    const char *folder = t->tiers[t->n_tiers - 1].folder;
    int64_t now = ru_lock_number(t->room); /* who begins a log changes it */
    *again = false;
    if (now >= 0 && now == t->listed) {
        return RU_OK;
    }
    ru_arena_init(&scratch, 0);
    for (uint32_t k = 0; k < t->n_logs; k++) {
        t->logs[k].listed = false;
    }
    ru_status st = ru_dir_list(folder, &scratch, &names, &n, err);
    for (uint32_t k = 0; st == RU_OK && k < n; k++) {
        uint64_t id;
        uint32_t i = 0;
        if (!log_id(names[k], &id)) {
            continue;
        }
        while (i < t->n_logs && t->logs[i].id != id) {
            i++;
        }
        const char *path = ru_path_join(&scratch, folder, names[k]);
        if (i == t->n_logs) {
            char *own = path != NULL ? strdup(path) : NULL;
            if (own == NULL || !grow_array(&t->logs, i, &t->cap_logs, sizeof *t->logs)) {
                free(own);
                st = rui_tiers_no_memory(err);
                break;
            }
            t->logs[t->n_logs++] = (rui_map_log){.path = own, .id = id};
        }
        t->logs[i].listed = true;
    }
    for (uint32_t k = 0; st == RU_OK && k < t->n_logs; k++) {
        *again = *again || !t->logs[k].listed;
    }
    t->listed = st == RU_OK ? now : -1;
    ru_arena_fini(&scratch);
    return st;
}

/* All that stands in the logs now. What is put together from logs is in the new one before the old
 * ones go. */
ru_status rui_tiers_refresh(ru_tiers *t, ru_err *err)
{
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < TRIES; k++) {
        bool again;
        st = list_logs(t, &again, err);
        for (uint32_t i = 0; st == RU_OK && !again && i < t->n_logs; i++) {
            st = read_log(t, i, err);
        }
        if (st == RU_OK && !again) {
            return RU_OK;
        }
        rui_tiers_forget(t);
        if (st != RU_OK && st != RU_E_MISSING) {
            return st;
        }
    }
    return st != RU_OK ? st
                       : RU_FAIL(err, RU_E_AGAIN, "the map of files in %s changes all the time",
                                 t->tiers[t->n_tiers - 1].folder);
}

const rui_item *rui_tiers_find(const ru_tiers *t, const char *name)
{
    const uint64_t *last = ru_map_get_c(&t->by_name, name);
    for (uint64_t k = last != NULL ? *last : 0; k != 0; k = t->items[k - 1].before) {
        if (t->items[k - 1].made && !t->items[k - 1].gone) {
            return &t->items[k - 1];
        }
    }
    return NULL;
}

static ru_status append(ru_tiers *t, uint32_t what, bool durable, const void *bytes, size_t n,
                        ru_err *err)
{
    int64_t all = ru_shardlog_bytes((int64_t)n);
    uint8_t *whole = bytes != NULL ? malloc((size_t)all) : NULL;
    ru_status st = whole != NULL ? RU_OK : rui_tiers_no_memory(err);
    if (st == RU_OK) {
        const ru_shardlog_record l = {.generation = VERSION,
                                      .object = what,
                                      .first = durable,
                                      .n = (int64_t)n,
                                      .bytes = bytes};
        ru_shardlog_put(&l, whole);
        st = ru_grow_write(t->log, t->log_bytes, whole, all, err);
        t->log_bytes += st == RU_OK ? all : 0; /* else the next one takes the place */
    }
    free(whole);
    return st;
}

ru_status rui_tiers_append_told(ru_tiers *t, uint32_t what, const ru_tier_told *told,
                                const char *group, ru_err *err)
{
    uint8_t bytes[sizeof *told + RU_TIER_NAME_MAX];
    ru_tier_told r = *told;
    r.group_bytes = (uint32_t)strlen(group);
    memcpy(bytes, &r, sizeof r);
    memcpy(bytes + sizeof r, group, r.group_bytes);
    return append(t, what, false, bytes, sizeof r + r.group_bytes, err);
}

ru_status rui_tiers_append(ru_tiers *t, uint32_t what, const rui_item *i, ru_err *err)
{
    rui_item_head r = i->r;
    r.n_parts = what == RUI_TIER_MADE ? r.n_parts : 0;
    r.name_bytes = what == RUI_TIER_GONE ? 0 : (uint32_t)strlen(i->name);
    size_t parts = r.n_parts * sizeof(rui_part), n = sizeof r + parts + r.name_bytes;
    uint8_t *bytes = malloc(n);
    if (bytes != NULL) {
        memcpy(bytes, &r, sizeof r);
        memcpy(bytes + sizeof r, i->parts, parts);
        memcpy(bytes + sizeof r + parts, i->name, r.name_bytes);
    }
    ru_status st = append(t, what, i->durable, bytes, n, err);
    free(bytes);
    return st;
}

/* Does the process that wrote it live? Called with the lock of the space. */
bool rui_tiers_lives(const ru_tiers *t, uint64_t writer)
{
    ru_err none = {0};
    ru_grow *g = NULL;
    for (uint32_t k = 0; k < t->n_logs; k++) {
        if (t->logs[k].id == writer && writer != t->id) {
            bool is = ru_path_exists(t->logs[k].path) &&
                      ru_grow_open(t->logs[k].path, &g, &none) != RU_OK;
            ru_grow_close(g, INT64_MAX);
            return is;
        }
    }
    return writer == t->id;
}

/* First, so that operations that stand in both are counted once. */
static ru_status append_puts(ru_tiers *t, ru_grow *const *dead, uint32_t n, ru_err *err)
{
    RU_CHECK(n <= t->n_logs);
    uint64_t *ids = calloc(n + 1, sizeof *ids);
    uint32_t some = 0;
    for (uint32_t k = 0; ids != NULL && k < n; k++) {
        if (dead[k] != NULL) {
            ids[some++] = t->logs[k].id;
        }
    }
    ru_status st = some > 0 || ids == NULL
                       ? append(t, RUI_TIER_PUTS, false, ids, some * sizeof *ids, err)
                       : RU_OK;
    free(ids);
    return st;
}

/* Into this process's log what still counts of logs whose processes ended; then these go. They are
 * locked before they are read: a process that lived until then may have committed a file. */
static ru_status put_together(ru_tiers *t, ru_err *err)
{
    ru_grow **dead = calloc(t->n_logs + 1, sizeof *dead);
    ru_err none = {0};
    uint32_t n = t->n_logs;
    bool alone = true, some = false;
    if (dead == NULL) {
        return rui_tiers_no_memory(err);
    }
    for (uint32_t k = 0; k < n; k++) {
        if (t->logs[k].id != t->id && ru_grow_open(t->logs[k].path, &dead[k], &none) != RU_OK) {
            dead[k] = NULL;
            alone = false;
        }
    }
    ru_status st = rui_tiers_refresh(t, err);
    if (st == RU_OK && t->n_logs != n) { /* none comes or goes with the lock of the space */
        st = RU_FAIL(err, RU_E_AGAIN, "somebody else makes or removes maps in %s",
                     t->tiers[t->n_tiers - 1].folder);
    }
    st = st == RU_OK ? append_puts(t, dead, n, err) : st;
    for (uint32_t k = 0; st == RU_OK && k < t->n_items; k++) {
        const rui_item *i = &t->items[k];
        if (i->made && !i->gone && dead[i->home - 1] != NULL) {
            st = rui_tiers_append(t, RUI_TIER_MADE, i, err);
            ru_tier_told told = i->told;
            told.ops = ops_in(t, i, dead); /* logs that stay have the others */
            st = st == RU_OK && i->group != NULL
                     ? rui_tiers_append_told(t, RUI_TIER_TOLD, &told, i->group, err)
                     : st;
            some = true;
        } else if (!i->gone && ops_in(t, i, dead) > 0) { /* the log that has it stays */
            const ru_tier_told read = {.writer = i->r.writer,
                                       .serial = i->r.serial,
                                       .ops = ops_in(t, i, dead),
                                       .by = RUI_TIER_PUT};
            st = rui_tiers_append_told(t, RUI_TIER_READ, &read, "", err);
            some = true;
        } else if (i->gone && i->home != 0 && !alone) { /* a log that stays may have it */
            st = rui_tiers_append(t, RUI_TIER_GONE, i, err);
        }
    }
    for (uint32_t k = t->n_ended > ENDED_MAX ? t->n_ended - ENDED_MAX : 0;
         st == RU_OK && k < t->n_ended; k++) {
        const rui_ended *e = &t->ended[k];
        st = dead[e->home] != NULL
                 ? rui_tiers_append_told(t, RUI_TIER_ENDED, &e->told, e->group, err)
                 : st;
    }
    st = st == RU_OK && some ? ru_grow_sync(t->log, err) : st; /* durable files may be among them */
    for (uint32_t k = 0; k < n; k++) {
        if (dead[k] != NULL && st == RU_OK) {
            st = ru_path_remove(t->logs[k].path, err);
        }
        ru_grow_close(dead[k], INT64_MAX);
    }
    free(dead);
    return st;
}

static bool has_log(const ru_tiers *t, uint64_t writer)
{
    uint32_t k = 0;
    while (k < t->n_logs && t->logs[k].id != writer) {
        k++;
    }
    return k < t->n_logs;
}

/* Parts of no file of this map, of processes whose log is not there any more. */
static void sweep(ru_tiers *t, const rui_tier *d)
{
    ru_err none = {0};
    ru_arena scratch;
    ru_map used;
    char **names = NULL;
    uint32_t n = 0;
    bool whole = true;
    ru_arena_init(&scratch, 0);
    ru_map_init(&used, &scratch, 0);
    for (uint32_t k = 0; k < t->n_items; k++) {
        const rui_item *i = &t->items[k];
        for (uint32_t p = 0; i->made && !i->gone && p < i->r.n_parts; p++) {
            const char *path = rui_tiers_part(t->map, &scratch, d, i->r.writer, i->parts[p].number);
            whole = whole && path != NULL && ru_map_put_c(&used, path, NULL) != NULL;
        }
    }
    whole = whole && ru_dir_list(d->folder, &scratch, &names, &n, &none) == RU_OK;
    for (uint32_t k = 0; whole && k < n; k++) {
        char *end = NULL;
        bool ours = strtoull(names[k], &end, 16) == t->map && end == names[k] + 16 && *end == '-';
        uint64_t writer = ours ? strtoull(end + 1, &end, 16) : 0;
        const char *path = ru_path_join(&scratch, d->folder, names[k]);
        if (path != NULL && ours && end == names[k] + 33 && *end == '-' &&
            ru_str_ends(ru_str_c(names[k]), ".part") && ru_map_get_c(&used, path) == NULL &&
            !has_log(t, writer) && ru_path_remove(path, &none) == RU_OK) {
            ru_log(RU_LOG_INFO, "store", "tiers", "%s is left from a process that ended: removed",
                   path);
        }
    }
    ru_arena_fini(&scratch);
}

ru_status rui_tiers_clean(ru_tiers *t, ru_err *err)
{
    ru_err why = {0};
    if (put_together(t, &why) != RU_OK) { /* the old ones stay: the next process tries it again */
        ru_log(RU_LOG_WARN, "store", "tiers", "%s", why.text);
    }
    RU_TRY(rui_tiers_refresh(t, err));
    for (uint32_t k = 0; k < t->n_tiers; k++) {
        if (!t->tiers[k].off) {
            sweep(t, &t->tiers[k]);
            ru_room_forget(&t->tiers[k].room, NULL);
        }
    }
    return RU_OK;
}
