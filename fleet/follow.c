#include "fleet/follow.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "env/file/file.h"
#include "env/file/grow.h"

typedef struct fresh {
    const char *name;
    int64_t changed_ns;
} fresh;

struct ru_follow {
    const char *dir;
    ru_arena arena;    /* dir */
    ru_arena looks[2]; /* of the last look and the one before */
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

ru_status ru_follow_open(const char *dir, ru_follow **out, ru_err *err)
{
    if (!ru_path_is_dir(dir)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "data.follow: %s is no folder; data.train names the folder to which new "
                       "files come",
                       dir);
    }
    ru_follow *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the files of %s", dir);
    }
    ru_arena_init(&f->arena, 0);
    ru_arena_init(&f->looks[0], 0);
    ru_arena_init(&f->looks[1], 0);
    f->dir = ru_arena_str(&f->arena, dir);
    if (f->dir == NULL) {
        ru_follow_close(f);
        return RU_FAIL(err, RU_E_MEM, "no memory for the files of %s", dir);
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
    ru_map_fini(&f->known);
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
    const fresh *x = a, *y = b;
    int c = (x->changed_ns > y->changed_ns) - (x->changed_ns < y->changed_ns);
    return c != 0 ? c : strcmp(x->name, y->name);
}

/* Of the names of the folder those that are fresh. */
static ru_status compare(ru_follow *f, char **names, uint32_t n, ru_arena *arena, fresh *out,
                         uint32_t *n_out, ru_err *err)
{
    ru_map seen;
    ru_map_init(&seen, arena, 0);
    for (uint32_t k = 0; k < n; k++) {
        if (ru_map_get_c(&f->known, names[k]) != NULL || !is_plain(names[k], arena)) {
            continue;
        }
        const char *path = ru_path_join(arena, f->dir, names[k]);
        if (path == NULL) {
            return full(f, err);
        }
        uint64_t stamp = ru_path_is_file(path) && ru_path_bytes(path) > 0 ? ru_path_stamp(path) : 0;
        if (stamp == 0) {
            continue;
        }
        const uint64_t *before = ru_map_get_c(&f->seen, names[k]);
        uint64_t *now = ru_map_put_c(&seen, names[k], NULL);
        if (now == NULL) {
            return full(f, err);
        }
        *now = stamp;
        if (before != NULL && *before == stamp) {
            out[(*n_out)++] = (fresh){names[k], ru_path_changed_ns(path)};
        }
    }
    f->seen = seen;
    return RU_OK;
}

ru_status ru_follow_look(ru_follow *f, const char *const **names, uint32_t *n, ru_err *err)
{
    ru_arena *arena = &f->looks[1 - f->last];
    char **all;
    uint32_t n_all, n_found = 0;
    ru_arena_fini(arena);
    ru_arena_init(arena, 0);
    RU_TRY(ru_dir_list(f->dir, arena, &all, &n_all, err));
    fresh *found = RU_NEW(arena, fresh, n_all + 1);
    const char **out = RU_NEW(arena, const char *, n_all + 1);
    if (found == NULL || out == NULL) {
        return full(f, err);
    }
    RU_TRY(compare(f, all, n_all, arena, found, &n_found, err));
    f->last = 1 - f->last;
    qsort(found, n_found, sizeof *found, by_age);
    for (uint32_t k = 0; k < n_found; k++) {
        out[k] = found[k].name;
    }
    *names = out;
    *n = n_found;
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

ru_status ru_follow_begin(ru_follow *f, const char *notes, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_status st = ru_path_exists(notes) ? read_notes(f, notes, &scratch, err) : RU_OK;
    ru_arena_fini(&scratch);
    RU_TRY(st);
    return ru_log_file_open(notes, true, &f->notes, err);
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
