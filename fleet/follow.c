#include "fleet/follow.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "env/file/file.h"
#include "env/file/grow.h"
#include "web/bucket.h"
#include "web/objects.h"

typedef struct listed {
    const char *name;
    uint64_t stamp;  /* another one when it was written anew; 0: it is passed over */
    int64_t changed; /* a number that grows with the time */
} listed;

struct ru_follow {
    const char *dir;
    ru_bucket *bucket; /* NULL: `dir` is a folder */
    ru_arena arena;    /* dir */
    ru_arena list;     /* of the last look */
    ru_arena looks[2]; /* what it saw, and the one before */
    uint32_t last;
    ru_map seen;  /* of the last look: name -> stamp; in its arena */
    ru_map known; /* name -> number of its first sample */
    int64_t samples;
    ru_log_file *notes;
};

static ru_status full(const ru_follow *f, ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for the files of %s", f->dir);
}

static ru_status find(ru_follow *f, const char *dir, bool (*over)(void *self), void *self,
                      ru_err *err)
{
    if (ru_object_address(dir)) {
        RU_TRY(ru_bucket_open(dir, &f->bucket, err));
        ru_bucket_until(f->bucket, over, self);
    } else if (!ru_path_is_dir(dir)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "data.follow: %s is no folder; data.train names the folder to which new "
                       "files come",
                       dir);
    }
    int64_t n = (int64_t)strlen(dir);
    while (n > 1 && dir[n - 1] == '/') {
        n--;
    }
    f->dir = ru_arena_strn(&f->arena, dir, n);
    return f->dir != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for the files of %s", dir);
}

ru_status ru_follow_open(const char *dir, bool (*over)(void *self), void *self, ru_follow **out,
                         ru_err *err)
{
    ru_follow *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the files of %s", dir);
    }
    ru_arena_init(&f->arena, 0);
    ru_arena_init(&f->list, 0);
    ru_arena_init(&f->looks[0], 0);
    ru_arena_init(&f->looks[1], 0);
    ru_status st = find(f, dir, over, self, err);
    if (st != RU_OK) {
        ru_follow_close(f);
        return st;
    }
    *out = f;
    return RU_OK;
}

void ru_follow_close(ru_follow *f)
{
    if (f == NULL) {
        return;
    }
    ru_log_file_close(f->notes);
    ru_bucket_close(f->bucket);
    ru_map_fini(&f->known);
    ru_arena_fini(&f->list);
    ru_arena_fini(&f->looks[0]);
    ru_arena_fini(&f->looks[1]);
    ru_arena_fini(&f->arena);
    free(f);
}

/* -- looks ----------------------------------------------------------------------------------------
 */

/* Can it stand in a line, and in a call? */
static bool is_plain(const char *name, ru_arena *arena)
{
    ru_arena_mark mark = ru_arena_mark_get(arena);
    ru_text t = ru_text_arena(arena);
    ru_text_utf8(&t, ru_str_c(name));
    bool plain = name[0] != '.' && !t.cut && t.n > 0 && strcmp(t.p, name) == 0;
    for (const char *p = name; *p != '\0'; p++) {
        plain = plain && (unsigned char)*p >= ' ';
    }
    ru_arena_rewind(arena, mark);
    return plain;
}

static int by_age(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    int c = (x->changed > y->changed) - (x->changed < y->changed);
    return c != 0 ? c : strcmp(x->name, y->name);
}

static ru_status list_folder(const ru_follow *f, ru_arena *arena, listed **out, uint32_t *n,
                             ru_err *err)
{
    char **names;
    RU_TRY(ru_dir_list(f->dir, arena, &names, n, err));
    listed *all = RU_NEW(arena, listed, *n + 1);
    for (uint32_t k = 0; all != NULL && k < *n; k++) {
        all[k].name = names[k];
        if (ru_map_get_c(&f->known, names[k]) != NULL) {
            continue; /* nobody needs its stamp */
        }
        const char *path = ru_path_join(arena, f->dir, names[k]);
        if (path == NULL) {
            return full(f, err);
        }
        if (ru_path_is_file(path) && ru_path_bytes(path) > 0) {
            all[k].stamp = ru_path_stamp(path);
            all[k].changed = ru_path_changed_ns(path);
        }
    }
    *out = all;
    return all != NULL ? RU_OK : full(f, err);
}

/* The digits of 2026-11-30T02:55:01.250Z, of which fractions may be missing. */
static int64_t time_of(const char *text)
{
    int64_t t = 0;
    for (uint32_t digits = 0; digits < 17; text += *text != '\0') {
        if ((*text >= '0' && *text <= '9') || *text == '\0') {
            t = 10 * t + (*text != '\0' ? *text - '0' : 0);
            digits++;
        }
    }
    return t;
}

static ru_status list_bucket(const ru_follow *f, ru_arena *arena, listed **out, uint32_t *n,
                             ru_err *err)
{
    ru_bucket_object *objects;
    RU_TRY(ru_bucket_list(f->bucket, false, arena, &objects, n, err));
    listed *all = RU_NEW(arena, listed, *n + 1);
    for (uint32_t k = 0; all != NULL && k < *n; k++) {
        const ru_bucket_object *o = &objects[k];
        all[k].name = o->key;
        if (ru_map_get_c(&f->known, o->key) != NULL) {
            continue; /* nobody needs its stamp */
        }
        ru_arena_mark mark = ru_arena_mark_get(arena);
        const char *text =
            ru_arena_printf(arena, "%lld %s %s", (long long)o->size_bytes, o->tag, o->changed);
        if (text == NULL) {
            return full(f, err);
        }
        bool file = o->size_bytes > 0 && strchr(o->key, '/') == NULL;
        all[k].changed = time_of(o->changed);
        all[k].stamp = file ? ru_hash128_bytes(text, (int64_t)strlen(text)).low | 1 : 0;
        ru_arena_rewind(arena, mark);
    }
    *out = all;
    return all != NULL ? RU_OK : full(f, err);
}

/* Those that are fresh come first. */
static ru_status compare(ru_follow *f, listed *all, uint32_t *n, ru_arena *arena, ru_err *err)
{
    ru_map seen;
    uint32_t fresh = 0;
    ru_map_init(&seen, arena, 0);
    for (uint32_t k = 0; k < *n; k++) {
        if (all[k].stamp == 0 || ru_map_get_c(&f->known, all[k].name) != NULL ||
            !is_plain(all[k].name, arena)) {
            continue;
        }
        const uint64_t *before = ru_map_get_c(&f->seen, all[k].name);
        bool is_new; /* a list may name an object twice */
        uint64_t *now = ru_map_put_c(&seen, all[k].name, &is_new);
        if (now == NULL) {
            return full(f, err);
        }
        *now = all[k].stamp;
        if (is_new && before != NULL && *before == all[k].stamp) {
            all[fresh++] = all[k];
        }
    }
    f->seen = seen;
    *n = fresh;
    return RU_OK;
}

ru_status ru_follow_look(ru_follow *f, const char *const **names, uint32_t *n, ru_err *err)
{
    ru_arena *seen = &f->looks[1 - f->last], *arena = &f->list;
    listed *all;
    uint32_t found;
    ru_arena_fini(seen);
    ru_arena_init(seen, 0);
    ru_arena_fini(arena);
    ru_arena_init(arena, 0);
    RU_TRY(f->bucket != NULL ? list_bucket(f, arena, &all, &found, err)
                             : list_folder(f, arena, &all, &found, err));
    const char **out = RU_NEW(arena, const char *, found + 1);
    RU_TRY(out != NULL ? compare(f, all, &found, seen, err) : full(f, err));
    f->last = 1 - f->last;
    qsort(all, found, sizeof *all, by_age);
    for (uint32_t k = 0; k < found; k++) {
        out[k] = all[k].name;
    }
    *names = out;
    *n = found;
    return RU_OK;
}

const char *ru_follow_path(const ru_follow *f, const char *name, ru_arena *arena)
{
    return ru_path_join(arena, f->dir, name);
}

/* -- notes ----------------------------------------------------------------------------------------
 */

static ru_status know(ru_follow *f, ru_str name, int64_t samples, ru_err *err)
{
    bool is_new;
    uint64_t *first = ru_map_put(&f->known, name, &is_new);
    if (first == NULL) {
        return full(f, err);
    }
    if (!is_new) {
        return RU_FAIL(err, RU_E_DATA, "the file '%.*s' is noted twice", (int)name.n, name.p);
    }
    *first = (uint64_t)f->samples;
    f->samples += samples;
    return RU_OK;
}

/* A line that was being written when the process was killed names no file. */
static ru_status read_notes(ru_follow *f, const char *path, ru_arena *arena, ru_err *err)
{
    char *text;
    int64_t n, samples;
    RU_TRY(ru_file_read(path, 0, arena, &text, &n, err));
    int64_t whole = n;
    while (whole > 0 && text[whole - 1] != '\n') {
        whole--;
    }
    RU_TRY(whole < n ? ru_file_own(path, text, whole, err) : RU_OK);
    ru_str rest = ru_str_n(text, whole), line;
    for (int64_t number = 1; rest.n > 0 && ru_str_next(&rest, '\n', &line); number++) {
        int64_t at = ru_str_find(line, " ");
        if (at < 0 || !ru_str_i64(ru_str_n(line.p, at), &samples) || samples < 0 ||
            samples > INT64_MAX / 2 - f->samples || line.n == at + 1) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s:%lld: expected the number of samples of a file and its name", path,
                           (long long)number);
        }
        ru_status st = know(f, ru_str_n(line.p + at + 1, line.n - at - 1), samples, err);
        if (st != RU_OK) {
            return ru_err_wrap(err, st, "%s:%lld", path, (long long)number);
        }
    }
    return RU_OK;
}

ru_status ru_follow_begin(ru_follow *f, const char *notes, bool goes_on, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_status st = goes_on && ru_path_exists(notes) ? read_notes(f, notes, &scratch, err) : RU_OK;
    ru_arena_fini(&scratch);
    RU_TRY(st);
    return ru_log_file_open(notes, goes_on, &f->notes, err);
}

ru_status ru_follow_take(ru_follow *f, const char *name, int64_t samples, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_text line = ru_text_arena(&scratch);
    ru_text_putf(&line, "%lld %s\n", (long long)samples, name);
    ru_status st = line.cut ? full(f, err) : ru_log_file_append(f->notes, line.p, line.n, err);
    ru_arena_fini(&scratch);
    RU_TRY(st);
    return know(f, ru_str_c(name), samples, err);
}

ru_status ru_follow_sync(ru_follow *f, ru_err *err)
{
    return ru_log_file_sync(f->notes, err);
}

/* -- samples --------------------------------------------------------------------------------------
 */

int64_t ru_follow_samples(const ru_follow *f)
{
    return f->samples;
}

/* Number of the first sample of file k; k of all files: behind the last one. */
static int64_t first_of(const ru_follow *f, uint32_t k)
{
    return k < f->known.n ? (int64_t)f->known.entries[k].value : f->samples;
}

/* The file that holds sample `at`; known.n: none does. */
static uint32_t file_of(const ru_follow *f, int64_t at)
{
    uint32_t lo = 0, hi = f->known.n; /* first_of(lo) <= at < first_of(hi), where hi is no end */
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (first_of(f, mid) <= at) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return at < f->samples ? lo : f->known.n;
}

int64_t ru_follow_reach(const ru_follow *f, int64_t from, uint32_t files)
{
    uint32_t k = file_of(f, from);
    return first_of(f, files < f->known.n - k ? k + files : f->known.n);
}

ru_status ru_follow_find(const ru_follow *f, int64_t from, int64_t to, ru_arena *arena,
                         ru_follow_part *out, ru_err *err)
{
    uint32_t first = file_of(f, from), end = first, n = 0;
    while (end < f->known.n && first_of(f, end) < to) {
        end++;
    }
    const char **paths = RU_NEW(arena, const char *, end - first + 1);
    if (paths == NULL) {
        return full(f, err);
    }
    for (uint32_t k = first; k < end; k++) {
        if (first_of(f, k + 1) > first_of(f, k)) { /* it was not left out */
            paths[n] = ru_path_join(arena, f->dir, f->known.entries[k].key);
            if (paths[n++] == NULL) {
                return full(f, err);
            }
        }
    }
    *out = (ru_follow_part){.paths = paths,
                            .n = n,
                            .before = first_of(f, first),
                            .samples = first_of(f, end) - first_of(f, first)};
    return RU_OK;
}
