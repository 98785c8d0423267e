#include "data/kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fields.h"
#include "base/log.h"
#include "data/segments.h"
#include "env/file/grow.h"

enum { ABOUT_BYTES_MAX = 64 << 10, LINES = 4096 };

/* -- about ------------------------------------------------------------------------------------- */

static const ru_conf_field about_fields[] = {
    RU_ROW(TEXT, ru_kept_about, data, "", "path of the first file"),
    RU_ROW(TEXT, ru_kept_about, format, "", "of the data"),
    RU_ROW(TEXT, ru_kept_about, kind, "", "bytes or decoded"),
    RU_ROW(TEXT, ru_kept_about, plan, "", "id of the plan of the policy keep"),
    RU_ROW(I64, ru_kept_about, samples, "0", "of the data"),
    RU_ROW(F64, ru_kept_about, none_s, "0", "predicted seconds of reading an epoch without"),
    RU_ROW(F64, ru_kept_about, epoch_s, "0", "predicted seconds of reading an epoch"),
    RU_ROW(I64, ru_kept_about, processes, "0", "processes that ended"),
    RU_ROW(I64, ru_kept_about, found, "0", "reads from kept samples"),
    RU_ROW(I64, ru_kept_about, read, "0", "reads from the source"),
    RU_ROW(I64, ru_kept_about, found_ns, "0", "time of reads from kept samples"),
    RU_ROW(I64, ru_kept_about, read_ns, "0", "time of reads from the source"),
    RU_ROW(I64, ru_kept_about, added, "0", "samples that were kept"),
    RU_ROW(I64, ru_kept_about, damaged, "0", "kept samples that could not be read"),
};
static const ru_conf_table about_table =
    RU_TABLE("about", ru_kept_about, about_fields, "what a folder of kept samples holds");

/* Of a folder that says nothing, or that another version wrote: all is 0. */
static ru_kept_about read_about(const char *dir, ru_arena *arena)
{
    char *text;
    int64_t n;
    ru_conf *c;
    ru_err none = {0};
    ru_kept_about a = {.data = "", .format = "", .kind = "", .plan = ""};
    const char *path = ru_path_join(arena, dir, "about");
    if (path != NULL && ru_path_is_file(path) &&
        ru_file_read(path, ABOUT_BYTES_MAX, arena, &text, &n, &none) == RU_OK &&
        ru_conf_new(&about_table, arena, &c, &none) == RU_OK &&
        ru_conf_add_json(c, path, text, n, &none) == RU_OK) {
        (void)!ru_conf_apply(c, &a, &none); /* else it is untouched */
    }
    return a;
}

static ru_status write_about(const char *dir, const ru_kept_about *add, ru_arena *arena,
                             ru_err *err)
{
    ru_text t = ru_text_arena(arena);
    ru_json j = ru_json_into(&t);
    ru_kept_about a = read_about(dir, arena), sum = *add;
    const char *path = ru_path_join(arena, dir, "about");
    sum.processes += a.processes;
    sum.found += a.found;
    sum.read += a.read;
    sum.found_ns += a.found_ns;
    sum.read_ns += a.read_ns;
    sum.added += a.added;
    sum.damaged += a.damaged;
    ru_fields_json(&about_table, &sum, NULL, &j);
    return path != NULL && !t.cut ? ru_file_own(path, t.p, t.n, err) : RU_E_MEM;
}

void rui_kept_note(const char *tier, ru_hash128 key, const ru_kept_about *add)
{
    char name[33];
    ru_lock *l = NULL;
    ru_err why = {0};
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_hash128_text(key, name);
    const char *lock = ru_arena_printf(&scratch, "%s/samples/room", tier);
    const char *dir = ru_arena_printf(&scratch, "%s/samples/%s", tier, name);
    const char *about = dir != NULL ? ru_path_join(&scratch, dir, "about") : NULL;
    if (about != NULL && add->processes == 0 && ru_path_exists(about)) {
        ru_arena_fini(&scratch);
        return;
    }
    if (dir != NULL && !ru_path_is_dir(dir)) { /* this tier took none */
        ru_arena_fini(&scratch);
        return;
    }
    ru_status st =
        lock != NULL && dir != NULL ? ru_lock_open(lock, true, true, &l, &why) : RU_E_MEM;
    st = st == RU_OK && ru_path_is_dir(dir) ? write_about(dir, add, &scratch, &why) : st;
    ru_lock_close(l);
    if (st != RU_OK) {
        ru_log(RU_LOG_INFO, "data", "cache", "%s/samples/%s does not say what it holds: %s", tier,
               name, why.text);
    }
    ru_arena_fini(&scratch);
}

int64_t ru_kept_saved_ns(const ru_kept_about *a)
{
    if (a->found < 1 || a->read < 1) {
        return 0;
    }
    return (int64_t)((double)a->read_ns / (double)a->read * (double)a->found) - a->found_ns;
}

/* -- what is there ----------------------------------------------------------------------------- */

static bool is_key(const char *name)
{
    return strlen(name) == 32 && strspn(name, "0123456789abcdef") == 32;
}

static ru_hash128 key_of(const char *name)
{
    char half[17] = "";
    memcpy(half, name, 16);
    return (ru_hash128){.low = strtoull(name + 16, NULL, 16), .high = strtoull(half, NULL, 16)};
}

static const char *dir_of(ru_arena *arena, const ru_disk_tier *tier, const char *key)
{
    return ru_arena_printf(arena, "%s/samples/%s", tier->path, key);
}

typedef void (*line_fn)(void *self, const rui_kept_line *l, int64_t at);

/* All lines but those that are only claimed: whole ones, and damaged ones with number -1. A line
 * that is just being written is another one when it is read again. */
static ru_status each_line(const char *path, ru_hash128 key, line_fn fn, void *self, ru_err *err)
{
    static const rui_kept_line empty;
    ru_err none = {0};
    ru_in_file f = {.fd = -1};
    rui_kept_line *l = malloc(LINES * sizeof *l), again;
    ru_status st =
        l != NULL ? ru_in_open_own(path, &f, err) : rui_no_memory(err, path, LINES * sizeof *l);
    int64_t all = st == RU_OK ? f.size_bytes / (int64_t)sizeof *l : 0;
    for (int64_t at = 0, n; st == RU_OK && at < all; at += n) {
        n = all - at < LINES ? all - at : LINES;
        st = ru_in_read(&f, path, at * (int64_t)sizeof *l, l, n * (int64_t)sizeof *l, err);
        int64_t now = st == RU_E_DATA ? ru_path_bytes(path) / (int64_t)sizeof *l : all;
        if (now < all) { /* its process gave back what it had only claimed */
            all = now;
            n = 0;
            st = RU_OK;
        }
        for (int64_t i = 0; st == RU_OK && i < n; i++) {
            bool whole = rui_kept_line_is(&l[i], key);
            if (!whole && memcmp(&l[i], &empty, sizeof empty) != 0 &&
                ru_in_read(&f, path, (at + i) * (int64_t)sizeof *l, &again, sizeof again, &none) ==
                    RU_OK &&
                memcmp(&again, &l[i], sizeof again) == 0) {
                again.number = -1;
                fn(self, &again, at + i);
            } else if (whole) {
                fn(self, &l[i], at + i);
            }
        }
    }
    ru_in_close(&f);
    free(l);
    return st;
}

static void count_line(void *self, const rui_kept_line *l, int64_t at)
{
    (void)at;
    *(int64_t *)self += l->number >= 0;
}

static ru_status list_one(const ru_disk_tier *tier, ru_kept_set *s, ru_arena *arena, ru_err *err)
{
    char **names = NULL;
    uint32_t n = 0;
    ru_lock *l = NULL;
    ru_err none = {0};
    const char *dir = dir_of(arena, tier, s->key);
    const char *use = dir != NULL ? ru_path_join(arena, dir, "use") : NULL;
    if (use == NULL) {
        return rui_no_memory(err, tier->path, 0);
    }
    s->about = read_about(dir, arena);
    s->bytes = ru_dir_bytes(dir);
    s->used_ns = ru_path_changed_ns(use);
    s->in_use = ru_path_exists(use) && ru_lock_open(use, true, false, &l, &none) == RU_E_AGAIN;
    ru_lock_close(l);
    if (ru_dir_list(dir, arena, &names, &n, &none) != RU_OK) {
        return RU_OK; /* it went meanwhile */
    }
    s->files = n;
    for (uint32_t k = 0; k < n; k++) {
        const char *path = ru_path_join(arena, dir, names[k]);
        if (path != NULL && ru_str_ends(ru_str_c(path), ".idx")) {
            (void)!each_line(path, key_of(s->key), count_line, &s->records, &none);
        }
    }
    return RU_OK;
}

ru_status ru_kept_list(const ru_disk_tier *tiers, uint32_t n_tiers, ru_arena *arena,
                       ru_kept_set **out, uint32_t *n, ru_err *err)
{
    *n = 0;
    *out = NULL;
    for (uint32_t t = 0; t < n_tiers; t++) {
        char **names = NULL;
        uint32_t found = 0;
        const char *dir = ru_path_join(arena, tiers[t].path, "samples");
        if (dir != NULL && !ru_path_is_dir(dir)) {
            continue;
        }
        RU_TRY(dir != NULL ? ru_dir_list(dir, arena, &names, &found, err) : RU_E_MEM);
        ru_kept_set *more = RU_NEW(arena, ru_kept_set, *n + found);
        if (more == NULL) {
            return rui_no_memory(err, dir, found);
        }
        for (uint32_t k = 0; k < *n; k++) {
            more[k] = (*out)[k];
        }
        *out = more;
        for (uint32_t k = 0; k < found; k++) {
            if (is_key(names[k])) {
                more[*n] = (ru_kept_set){.tier = t, .key = names[k]};
                RU_TRY(list_one(&tiers[t], &more[(*n)++], arena, err));
            }
        }
    }
    return RU_OK;
}

ru_status ru_kept_remove(const ru_disk_tier *tier, const ru_kept_set *set, ru_err *err)
{
    ru_arena scratch;
    ru_lock *room = NULL, *use = NULL;
    ru_arena_init(&scratch, 0);
    const char *lock = ru_arena_printf(&scratch, "%s/samples/room", tier->path);
    const char *dir = dir_of(&scratch, tier, set->key);
    const char *used = dir != NULL ? ru_path_join(&scratch, dir, "use") : NULL;
    ru_status st = lock != NULL && used != NULL ? ru_lock_open(lock, true, true, &room, err)
                                                : rui_no_memory(err, tier->path, 0);
    if (st == RU_OK && ru_path_is_dir(dir)) { /* who begins to use it waits for the room */
        st = ru_lock_open(used, true, false, &use, err);
        st = st == RU_E_AGAIN
                 ? RU_FAIL(err, st, "a process uses %s now; try again when its job has ended", dir)
                 : st;
        st = st == RU_OK ? ru_path_remove(dir, err) : st;
        ru_lock_number_put(room, -1); /* its files are counted again */
    }
    ru_lock_close(use);
    ru_lock_close(room);
    ru_arena_fini(&scratch);
    return st;
}

bool rui_kept_evict(const char *samples, const char *but)
{
    ru_err none = {0};
    ru_arena scratch;
    char **names = NULL;
    uint32_t n = 0;
    const char *oldest = NULL;
    int64_t at_ns = INT64_MAX;
    ru_lock *held = NULL;
    ru_arena_init(&scratch, 0);
    bool listed = ru_dir_list(samples, &scratch, &names, &n, &none) == RU_OK;
    for (uint32_t i = 0; listed && i < n; i++) {
        const char *dir = ru_path_join(&scratch, samples, names[i]);
        const char *use = dir != NULL ? ru_path_join(&scratch, dir, "use") : NULL;
        ru_lock *l = NULL;
        if (use == NULL || strlen(names[i]) != 32 || strcmp(names[i], but) == 0 ||
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

/* -- verify ------------------------------------------------------------------------------------ */

typedef struct verifying {
    ru_hash128 key;
    const char *index, *records;
    ru_in_file file, lines;
    uint8_t *bytes; /* [max] */
    int64_t max;
    ru_kept_verified *sum;
    bool full; /* no memory */
} verifying;

static bool right(verifying *v, const rui_kept_line *l)
{
    ru_err none = {0};
    return ru_in_read(&v->file, v->records, l->offset, v->bytes, l->size_bytes, &none) == RU_OK &&
           ru_hash_bytes(v->bytes, l->size_bytes, 0) == l->hash;
}

static void verify_line(void *self, const rui_kept_line *l, int64_t at)
{
    verifying *v = self;
    rui_kept_line now;
    ru_err none = {0};
    if (l->number < 0) {
        v->sum->lines++;
        return;
    }
    if (l->size_bytes > v->max) {
        uint8_t *more = realloc(v->bytes, (size_t)l->size_bytes);
        v->full = v->full || more == NULL;
        v->bytes = more != NULL ? more : v->bytes;
        v->max = more != NULL ? l->size_bytes : v->max;
        if (more == NULL) {
            return;
        }
    }
    if (right(v, l)) {
        v->sum->records++;
        v->sum->bytes += l->size_bytes;
    } else if (ru_in_read(&v->lines, v->index, at * (int64_t)sizeof now, &now, sizeof now, &none) ==
                   RU_OK &&
               memcmp(&now, l, sizeof now) == 0) { /* else its process took it back */
        v->sum->damaged++;
    }
}

ru_status ru_kept_verify(const ru_disk_tier *tier, const ru_kept_set *set, ru_kept_verified *out,
                         ru_err *err)
{
    char **names = NULL;
    uint32_t n = 0;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    verifying v = {.key = key_of(set->key), .sum = out};
    const char *dir = dir_of(&scratch, tier, set->key);
    *out = (ru_kept_verified){0};
    ru_status st = dir != NULL ? ru_dir_list(dir, &scratch, &names, &n, err)
                               : rui_no_memory(err, tier->path, 0);
    for (uint32_t k = 0; k < n && (st == RU_OK || st == RU_E_MISSING); k++) {
        if (!ru_str_ends(ru_str_c(names[k]), ".seg")) {
            continue;
        }
        v.records = ru_path_join(&scratch, dir, names[k]);
        v.index =
            ru_arena_printf(&scratch, "%s/%.*s.idx", dir, (int)strlen(names[k]) - 4, names[k]);
        v.file.fd = v.lines.fd = -1;
        st = v.records != NULL && v.index != NULL ? ru_in_open_own(v.records, &v.file, err)
                                                  : rui_no_memory(err, dir, 0);
        st = st == RU_OK ? ru_in_open_own(v.index, &v.lines, err) : st;
        st = st == RU_OK ? each_line(v.index, v.key, verify_line, &v, err) : st;
        ru_in_close(&v.file);
        ru_in_close(&v.lines);
    }
    free(v.bytes);
    ru_arena_fini(&scratch);
    st = st == RU_E_MISSING ? RU_OK : st; /* it went meanwhile */
    return st == RU_OK && v.full ? rui_no_memory(err, "a record", v.max) : st;
}
