#include "store/tiers/tiers_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "env/clock.h"
#include "env/file/memfile.h"
#include "env/process/self.h"
#include "env/thread.h"
#include "solve/solver.h"

enum {
    STEP_BYTES_MAX = 64 << 20,
    STEP_PART = 64,        /* of the quota, claimed at a time */
    PART_BYTES_MIN = 4096, /* less is no part of a larger file */
    PAGE = 4096,           /* parts end at pages, so that a file can be mapped */
    LIMIT = 2, /* times what was expected, on all tiers but the last; trees say it of the first */
};

struct ru_tier_file {
    ru_tiers *t;
    rui_item is; /* parts so far; name in the file's own memory */
    char name[RU_TIER_NAME_MAX + 1];
    bool writes, made;
    char group[RU_TIER_NAME_MAX + 1];
    ru_tier_told told;
    ru_flag
        reads[3]; /* jumps, KiB, end of the last one; those at the same moment may count as one */
    ru_flag *counts; /* of it, also of a file that is const */
    uint32_t tier;   /* the last part's */
    ru_grow *grow;   /* of it; NULL: none */
    ru_in_file in[RU_TIERS_MAX];
    char *paths[RU_TIERS_MAX];
};

/* -- open and close ---------------------------------------------------------------------------- */

/* Where a part is: mostly in the folder that its record names, or in another one since the folders
 * have other paths now. *path in `arena`; NULL: it is in none. *shared: the map that this one is a
 * copy of may have it too. */
static const rui_tier *tier_of(const ru_tiers *t, const rui_item *i, uint32_t part, ru_arena *arena,
                               const char **path, bool *shared)
{
    for (uint32_t pass = 0; pass < 2 * (1 + t->n_copied); pass++) {
        uint64_t map = pass < 2 ? t->map : t->copied[pass / 2 - 1];
        for (uint32_t k = 0; k < t->n_tiers; k++) {
            const rui_tier *d = &t->tiers[k];
            if ((pass % 2 == 0) != (d->id == i->parts[part].tier)) {
                continue;
            }
            *path = rui_tiers_part(map, arena, d, i->r.writer, i->parts[part].number);
            if (*path != NULL && ru_path_exists(*path)) {
                *shared = pass >= 2 && k + 1 < t->n_tiers;
                return d;
            }
        }
    }
    *path = NULL;
    return NULL;
}

static ru_status open_tier(ru_tiers *t, const ru_disk_tier *from, const ru_tiers_options *o,
                           ru_err *err)
{
    const char *space = o->space;
    ru_arena *a = &t->arena;
    rui_tier *d = &t->tiers[t->n_tiers++];
    *d = (rui_tier){.path = ru_arena_str(a, from->path),
                    .folder = ru_arena_printf(a, "%s/files/%s", from->path, space),
                    .room = {.lock = ru_arena_printf(a, "%s/samples/room", from->path),
                             .folders = {ru_arena_printf(a, "%s/samples", from->path),
                                         ru_arena_printf(a, "%s/files", from->path)},
                             .quota_bytes = from->quota_bytes},
                    .id = ru_hash_bytes(from->path, (int64_t)strlen(from->path), 0)};
    const char *const *of = d->room.folders;
    if (d->path == NULL || d->folder == NULL || of[0] == NULL || of[1] == NULL ||
        d->room.lock == NULL) {
        return rui_tiers_no_memory(err);
    }
    RU_TRY(o->reads ? RU_OK : ru_dir_make(of[0], err));
    RU_TRY(o->reads ? RU_OK : ru_dir_make(d->folder, err));
    const char *const own[] = {of[0], of[1], d->folder};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(own); k++) {
        if (!(o->reads && !ru_path_exists(own[k])) && !ru_dir_is_own(own[k])) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "storage: %s belongs to another user, or others may write into it; name "
                           "a folder of your own, or run: chmod go-w %s",
                           own[k], own[k]);
        }
    }
    return RU_OK;
}

static ru_status check_options(const ru_tiers_options *o, ru_err *err)
{
    if (o->n_tiers < 1 || o->n_tiers > RU_TIERS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "%u tiers; 1 to %d can be used", o->n_tiers, RU_TIERS_MAX);
    }
    size_t n = o->space != NULL ? strlen(o->space) : 0;
    if (n < 1 || n > 64 ||
        strspn(o->space, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != n) {
        return RU_FAIL(err, RU_E_ARG,
                       "the space '%s' has no name of 1 to 64 letters, digits, '-' and '_'",
                       o->space != NULL ? o->space : "");
    }
    return RU_OK;
}

/* MAP FILE [MAP...]: the number of the map, of the file `room`, which a copy of the folder has not,
 * and of maps that it is a copy of. False: it is none. */
static bool read_id(ru_tiers *t, const char *text, uint64_t *room)
{
    uint64_t v[2 + RUI_TIER_COPIED_MAX] = {0};
    uint32_t n = 0;
    for (char *end; n < RU_ARRAY_LEN(v) && text[0] != '\0'; text = end + (*end == ' ')) {
        v[n++] = strtoull(text, &end, 16);
        if (end != text + 16) {
            return false;
        }
    }
    t->map = v[0];
    *room = v[1];
    t->n_copied = n > 2 ? n - 2 : 0;
    memcpy(t->copied, &v[2], t->n_copied * sizeof *v);
    return n > 0;
}

/* With the lock of the space. Users of a fast folder may have other last ones, and so other maps:
 * what is of no file in this map may be of one in theirs. */
static ru_status name_map(ru_tiers *t, bool reads, ru_err *err)
{
    char *text = NULL;
    int64_t n;
    uint64_t was = 0;
    ru_in_file room = {.fd = -1};
    ru_err none = {0};
    const char *folder = t->tiers[t->n_tiers - 1].folder;
    const char *path = ru_path_join(&t->arena, folder, "id");
    const char *lock = ru_path_join(&t->arena, folder, "room");
    if (path == NULL || lock == NULL) {
        return rui_tiers_no_memory(err);
    }
    bool is = ru_path_exists(path);
    RU_TRY(is ? ru_file_read(path, 512, &t->arena, &text, &n, err) : RU_OK);
    is = is && read_id(t, text, &was);
    if (reads) {
        return RU_OK; /* without an id no file is there either */
    }
    (void)!ru_in_open_own(lock, &room, &none);
    uint64_t now = room.id;
    ru_in_close(&room);
    if (is && (was == now || now == 0)) {
        return RU_OK;
    }
    if (is && was != 0) {
        ru_log(RU_LOG_INFO, "store", "tiers",
               "%s is a copy of another folder: what both have in faster ones stays there", folder);
        t->n_copied = t->n_copied < RUI_TIER_COPIED_MAX ? t->n_copied + 1 : t->n_copied;
        memmove(&t->copied[1], t->copied, (t->n_copied - 1) * sizeof *t->copied);
        t->copied[0] = t->map;
    }
    t->map = is && was == 0 ? t->map : t->id; /* 0: an older version wrote it */
    ru_text out = ru_text_arena(&t->arena);
    ru_text_putf(&out, "%016llx %016llx", (unsigned long long)t->map, (unsigned long long)now);
    for (uint32_t k = 0; k < t->n_copied; k++) {
        ru_text_putf(&out, " %016llx", (unsigned long long)t->copied[k]);
    }
    return out.cut ? rui_tiers_no_memory(err) : ru_file_own(path, out.p, out.n, err);
}

/* With the lock of the space: nobody else begins, or puts logs together. */
static ru_status begin(ru_tiers *t, ru_lock *space, ru_err *err)
{
    const rui_tier *last = &t->tiers[t->n_tiers - 1];
    const char *path =
        ru_arena_printf(&t->arena, "%s/%016llx.map", last->folder, (unsigned long long)t->id);
    RU_TRY(name_map(t, false, err));
    RU_TRY(path != NULL ? ru_grow_open(path, &t->log, err) : rui_tiers_no_memory(err));
    ru_lock_number_put(space, ru_lock_number(t->room) + 1 > 0 ? ru_lock_number(t->room) + 1 : 1);
    RU_TRY(rui_tiers_refresh(t, err));
    return rui_tiers_clean(t, err);
}

ru_status ru_tiers_open(const ru_tiers_options *opt, ru_tiers **out, ru_err *err)
{
    RU_TRY(check_options(opt, err));
    ru_tiers *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return rui_tiers_no_memory(err);
    }
    ru_arena_init(&t->arena, 0);
    ru_arena_init(&t->known, 0);
    t->solver = &ru_solver_library;
    t->late_ns = INT64_C(10000000000);
    t->listed = -1;
    ru_self_random(&t->id, sizeof t->id);
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < opt->n_tiers; k++) {
        ru_err why = {0};
        st = open_tier(t, &opt->tiers[k], opt, &why);
        if (st != RU_OK && (st == RU_E_MEM || k + 1 == opt->n_tiers)) {
            (void)ru_err_set(err, st, "%s", why.text);
        } else if (st != RU_OK) {
            t->tiers[k].off = true;
            st = RU_OK;
            ru_log(RU_LOG_WARN, "store", "tiers", "files go to slower disks: %s", why.text);
        }
    }
    ru_lock *l = NULL;
    if (st == RU_OK) {
        t->room = ru_path_join(&t->arena, t->tiers[t->n_tiers - 1].folder, "room");
        st = t->room == NULL ? rui_tiers_no_memory(err)
             : opt->reads    ? name_map(t, true, err)
                             : ru_lock_open(t->room, true, true, &l, err);
    }
    st = st == RU_OK && !opt->reads ? begin(t, l, err) : st;
    ru_lock_close(l);
    if (st != RU_OK) {
        ru_tiers_close(t);
        return st;
    }
    *out = t;
    return RU_OK;
}

void ru_tiers_close(ru_tiers *t)
{
    if (t != NULL) {
        rui_tiers_learner_close(t);
        ru_grow_close(t->log, INT64_MAX);
        rui_tiers_forget(t);
        free(t->logs);
        free(t->items);
        free(t->ended);
        ru_map_fini(&t->by_id);
        ru_map_fini(&t->by_name);
        ru_arena_fini(&t->known);
        ru_arena_fini(&t->arena);
        free(t);
    }
}

/* -- writing ----------------------------------------------------------------------------------- */

/* The first tier where all that is expected fits now; the last one takes whatever comes. */
static void place(ru_tier_file *f, const ru_tier_hint *hint)
{
    const ru_tiers *t = f->t;
    uint32_t k = hint != NULL && hint->last ? t->n_tiers - 1 : 0;
    bool asked = k + 1 < t->n_tiers && !t->tiers[k].off;
    int64_t room = asked ? ru_room_left(&t->tiers[k].room, NULL) : 0;
    if (k == 0 && f->group[0] != '\0') {
        f->told = (ru_tier_told){.writer = f->is.r.writer,
                                 .serial = f->is.r.serial,
                                 .open_s = 1e-9 * (double)f->is.r.made_ns,
                                 .input_bytes = (double)hint->input_bytes,
                                 .writers = hint->writers > 0 ? hint->writers : 1,
                                 .readers = hint->readers,
                                 .life_s = hint->life_s};
        rui_tiers_choose(f->t, hint, room, &f->told);
        k = f->told.by == RU_TIER_BY_TREES && !(f->told.limit_bytes > 0) ? 1 : 0;
    }
    while (k + 1 < t->n_tiers &&
           (t->tiers[k].off ||
            f->is.r.expected_bytes > (k == 0 ? room : ru_room_left(&t->tiers[k].room, NULL)))) {
        k++;
    }
    f->tier = k;
}

/* With the lock of the space. */
static ru_status take_name(ru_tiers *t, const char *name, ru_err *err)
{
    RU_TRY(rui_tiers_refresh(t, err));
    const uint64_t *last = ru_map_get_c(&t->by_name, name);
    for (uint64_t k = last != NULL ? *last : 0; k != 0; k = t->items[k - 1].before) {
        const rui_item *i = &t->items[k - 1];
        if (!i->made && !i->gone && rui_tiers_lives(t, i->r.writer)) {
            return RU_FAIL(err, RU_E_CREATE, "%s is being written", name);
        }
    }
    RU_TRY(rui_tiers_refresh(t, err)); /* one that lived a moment ago may have committed it */
    return rui_tiers_find(t, name) == NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_CREATE, "there is a file %s already; remove it first", name);
}

ru_status ru_tier_create(ru_tiers *t, const char *name, const ru_tier_hint *hint,
                         ru_tier_file **out, ru_err *err)
{
    RU_CHECK(t->log != NULL);
    size_t n = strlen(name);
    if (n < 1 || n > RU_TIER_NAME_MAX) {
        return RU_FAIL(err, RU_E_ARG, "a file's name has 1 to %d bytes, not %zu", RU_TIER_NAME_MAX,
                       n);
    }
    bool learns = hint != NULL && hint->group != NULL && !hint->last;
    const char *group = learns ? hint->group : "";
    size_t n_group = strlen(group);
    if (n_group > RU_TIER_NAME_MAX ||
        (hint != NULL && (hint->input_bytes < 0 || !(hint->life_s >= 0 && hint->life_s < 4e9)))) {
        return RU_FAIL(err, RU_E_ARG,
                       "%s: its group has %zu bytes, its step reads %lld, and it lives for %g s; "
                       "expected at most %d, and 0 or more",
                       name, n_group, (long long)hint->input_bytes, hint->life_s, RU_TIER_NAME_MAX);
    }
    ru_tier_file *f = calloc(1, sizeof *f);
    ru_lock *l = NULL;
    if (f == NULL) {
        return rui_tiers_no_memory(err);
    }
    memcpy(f->name, name, n);
    memcpy(f->group, group, n_group);
    f->t = t;
    f->writes = true;
    f->is = (rui_item){.name = f->name,
                       .durable = hint != NULL && hint->durable,
                       .r = {.writer = t->id,
                             .serial = ++t->files,
                             .expected_bytes = hint != NULL ? hint->expected_bytes : 0,
                             .made_ns = ru_clock_wall_ns()}};
    ru_status st = ru_lock_open(t->room, true, true, &l, err);
    st = st == RU_OK ? take_name(t, name, err) : st;
    st = st == RU_OK ? rui_tiers_append(t, RUI_TIER_BEGUN, &f->is, err) : st;
    ru_lock_close(l);
    if (st != RU_OK) {
        free(f);
        return st;
    }
    place(f, hint);
    *out = f;
    return RU_OK;
}

/* Of the tier that has the part. */
static const ru_room *room_of(const ru_tiers *t, const rui_part *p)
{
    uint32_t k = 0;
    while (k + 1 < t->n_tiers && t->tiers[k].id != p->tier) {
        k++;
    }
    return &t->tiers[k].room;
}

/* A part goes, and what it had taken is free again. */
static void remove_part(const ru_room *r, const char *path, int64_t bytes)
{
    ru_err none = {0};
    ru_lock *l = ru_room_hold(r);
    ru_room_give(r, l, ru_path_remove(path, &none) == RU_OK ? bytes : 0);
}

/* The last part keeps the bytes that were written. */
static ru_status close_part(ru_tier_file *f, bool sync, ru_err *err)
{
    ru_status st = RU_OK;
    if (f->grow != NULL) {
        const rui_part *p = &f->is.parts[f->is.r.n_parts - 1];
        const ru_room *r = room_of(f->t, p);
        ru_lock *l = ru_room_hold(r);
        int64_t was = ru_grow_claimed(f->grow);
        ru_grow_cut(f->grow, p->bytes);
        ru_room_give(r, l, was - ru_grow_claimed(f->grow));
        st = sync ? ru_grow_sync(f->grow, err) : RU_OK;
        ru_grow_close(f->grow, INT64_MAX);
        f->grow = NULL;
    }
    return st;
}

/* The part ends where it is; the file goes on in the next tier. Errors: what it holds may be lost.
 */
static ru_status leave(ru_tier_file *f, ru_err *err)
{
    rui_part *p = f->grow != NULL ? &f->is.parts[f->is.r.n_parts - 1] : NULL;
    ru_status st = close_part(f, p != NULL && p->bytes > 0 && f->is.durable, err);
    if (p != NULL) {
        f->t->tiers[f->tier].off = st == RU_E_IO || f->t->tiers[f->tier].off;
    }
    if (p != NULL && p->bytes == 0) {
        ru_err none = {0};
        (void)!ru_path_remove(f->paths[--f->is.r.n_parts], &none);
        free(f->paths[f->is.r.n_parts]);
        f->paths[f->is.r.n_parts] = NULL;
    }
    return st;
}

static ru_status enter(ru_tier_file *f, ru_err *err)
{
    ru_arena scratch;
    ru_tiers *t = f->t;
    const rui_tier *d = &t->tiers[f->tier];
    uint32_t k = f->is.r.n_parts;
    uint64_t number = ++t->parts;
    ru_arena_init(&scratch, 0);
    const char *path = rui_tiers_part(t->map, &scratch, d, t->id, number);
    f->paths[k] = path != NULL ? strdup(path) : NULL;
    ru_arena_fini(&scratch);
    ru_status st =
        f->paths[k] != NULL ? ru_grow_open(f->paths[k], &f->grow, err) : rui_tiers_no_memory(err);
    if (st != RU_OK) {
        free(f->paths[k]);
        f->paths[k] = NULL;
        return st;
    }
    f->is.parts[k] = (rui_part){.tier = d->id, .number = number};
    f->is.r.n_parts++;
    return RU_OK;
}

/* What may be written into the part now, at most `want` bytes; 0: it is full. */
static ru_status claim(ru_tier_file *f, int64_t want, int64_t *may, ru_err *err)
{
    const rui_tier *d = &f->t->tiers[f->tier];
    bool last = f->tier + 1 == f->t->n_tiers;
    int64_t end = f->is.parts[f->is.r.n_parts - 1].bytes, expected = f->is.r.expected_bytes;
    if (f->tier == 0 && !last && f->told.by == RU_TIER_BY_TREES) {
        int64_t left = ((int64_t)f->told.limit_bytes + PAGE - 1) / PAGE * PAGE - end;
        want = want < left ? want : left;
    } else if (!last && expected > 0 && expected < INT64_MAX / LIMIT - PAGE) {
        int64_t left = (LIMIT * expected + PAGE - 1) / PAGE * PAGE - end;
        want = want < left ? want : left;
    }
    if (want > ru_grow_claimed(f->grow) - end) {
        ru_lock *l = NULL;
        int64_t step = d->room.quota_bytes / STEP_PART;
        step = step < STEP_BYTES_MAX ? step : STEP_BYTES_MAX;
        step = expected > end && step > expected - end ? expected - end : step;
        step = step > want ? step : want;
        RU_TRY(ru_lock_open(d->room.lock, true, true, &l, err));
        int64_t room = ru_room_left(&d->room, l), more = step < room ? step : room;
        more = more < want && more < PART_BYTES_MIN ? 0 : more;
        int64_t up = (end + more + PAGE - 1) / PAGE * PAGE - end;
        if (!last && more > 0) {
            more = up <= room ? up : up - PAGE;
        }
        more = more > 0 ? end + more - ru_grow_claimed(f->grow) : 0;
        if (more > 0) {
            ru_room_take(&d->room, l, more);
        }
        ru_status st =
            more > 0 ? ru_grow_claim(f->grow, ru_grow_claimed(f->grow) + more, err) : RU_OK;
        if (st != RU_OK) { /* the file may have some of it */
            ru_room_forget(&d->room, l);
        }
        ru_lock_close(l);
        RU_TRY(st);
    }
    int64_t claimed = ru_grow_claimed(f->grow) - end;
    *may = want < claimed ? want : claimed;
    return RU_OK;
}

static ru_status put_some(ru_tier_file *f, const uint8_t *data, int64_t n, int64_t *done,
                          ru_err *err)
{
    int64_t may = 0;
    *done = 0;
    RU_TRY(f->grow == NULL ? enter(f, err) : RU_OK);
    RU_TRY(claim(f, n, &may, err));
    rui_part *p = &f->is.parts[f->is.r.n_parts - 1];
    RU_TRY(may > 0 ? ru_grow_write(f->grow, p->bytes, data, may, err) : RU_OK);
    p->bytes += may;
    f->is.r.bytes += may;
    *done = may;
    return RU_OK;
}

ru_status ru_tier_write(ru_tier_file *f, const void *data, int64_t size_bytes, ru_err *err)
{
    RU_CHECK(f->writes && !f->made && size_bytes >= 0);
    ru_tiers *t = f->t;
    const uint8_t *from = data;
    for (int64_t at = 0, done; at < size_bytes; at += done) {
        ru_err why = {0};
        ru_status st = f->tier < t->n_tiers ? put_some(f, from + at, size_bytes - at, &done, &why)
                                            : RU_E_LIMIT;
        if (st == RU_OK && done > 0) {
            continue;
        }
        done = 0;
        if (st == RU_E_MEM || f->tier + 1 >= t->n_tiers) {
            f->tier = t->n_tiers;
            return RU_FAIL(err, st == RU_OK || st == RU_E_LIMIT ? RU_E_CREATE : st,
                           "no room for %lld bytes of %s in %u folders%s%s",
                           (long long)(size_bytes - at), f->name, t->n_tiers,
                           why.text[0] != '\0' ? ": " : "", why.text);
        }
        if (st == RU_E_IO) {
            t->tiers[f->tier].off = true;
        }
        ru_log(st == RU_OK || st == RU_E_CREATE ? RU_LOG_DEBUG : RU_LOG_WARN, "store", "tiers",
               "%s grows in %s: %s", f->name, t->tiers[f->tier + 1].path,
               why.text[0] != '\0' ? why.text : "there is no more room for it in the faster one");
        st = leave(f, err);
        if (st != RU_OK) {
            f->tier = t->n_tiers;
            return st;
        }
        do {
            f->tier++;
        } while (f->tier + 1 < t->n_tiers && t->tiers[f->tier].off);
    }
    return RU_OK;
}

ru_status ru_tier_commit(ru_tier_file *f, ru_err *err)
{
    RU_CHECK(f->writes && !f->made);
    if (f->tier >= f->t->n_tiers) {
        return RU_FAIL(err, RU_E_CREATE, "%s is not whole: a part of it had no room", f->name);
    }
    RU_TRY(leave(f, err));
    RU_TRY(rui_tiers_append(f->t, RUI_TIER_MADE, &f->is, err));
    if (f->group[0] != '\0') { /* without it nothing is learned from the file */
        ru_err none = {0};
        (void)!rui_tiers_append_told(f->t, RUI_TIER_TOLD, &f->told, f->group, &none);
    }
    f->made = true;
    if (f->is.durable) { /* without it closing removes the file */
        ru_status st = ru_grow_sync(f->t->log, err);
        f->made = st == RU_OK;
        return st;
    }
    return RU_OK;
}

/* -- reading, removing ------------------------------------------------------------------------- */

static ru_status open_parts(ru_tiers *t, const rui_item *i, ru_tier_file *f, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < i->r.n_parts; k++) {
        const char *path;
        bool shared;
        if (tier_of(t, i, k, &scratch, &path, &shared) == NULL) {
            st = RU_FAIL(err, RU_E_MISSING, "a part of it is in none of the folders");
            break;
        }
        f->paths[k] = strdup(path);
        st = f->paths[k] != NULL ? ru_in_open_own(path, &f->in[k], err) : rui_tiers_no_memory(err);
    }
    ru_arena_fini(&scratch);
    return st;
}

ru_status ru_tier_open(ru_tiers *t, const char *name, ru_tier_file **out, ru_err *err)
{
    RU_TRY(rui_tiers_refresh(t, err));
    const rui_item *i = rui_tiers_find(t, name);
    if (i == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "there is no file %s", name);
    }
    ru_tier_file *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return rui_tiers_no_memory(err);
    }
    f->t = t;
    f->is = *i;
    f->counts = f->reads;
    memcpy(f->name, i->name, strlen(i->name));
    f->is.name = f->name;
    f->told = i->told;
    memcpy(f->group, i->group != NULL ? i->group : "", i->group != NULL ? i->told.group_bytes : 0);
    for (uint32_t k = 0; k < RU_TIERS_MAX; k++) {
        f->in[k].fd = -1;
    }
    ru_status st = open_parts(t, i, f, err);
    if (st != RU_OK) {
        ru_tier_close(f);
        return ru_err_wrap(err, st, "%s", name);
    }
    *out = f;
    return RU_OK;
}

int64_t ru_tier_bytes(const ru_tier_file *f)
{
    return f->is.r.bytes;
}

ru_status ru_tier_read(const ru_tier_file *f, int64_t offset, void *into, int64_t size_bytes,
                       ru_err *err)
{
    RU_CHECK(!f->writes && offset >= 0 && size_bytes >= 0);
    if (size_bytes > f->is.r.bytes - offset) {
        return RU_FAIL(err, RU_E_DATA, "%s has %lld bytes; %lld at %lld were wanted", f->name,
                       (long long)f->is.r.bytes, (long long)size_bytes, (long long)offset);
    }
    uint8_t *to = into;
    ru_flag *c = f->counts;
    bool goes_on = ru_flag_get(&c[2]) == (uint32_t)offset;
    ru_flag_set(&c[0], ru_flag_get(&c[0]) + !goes_on);
    int64_t whole = ((offset + size_bytes) >> 10) - (offset >> 10);
    ru_flag_set(&c[1], ru_flag_get(&c[1]) + (uint32_t)whole);
    ru_flag_set(&c[2], (uint32_t)(offset + size_bytes));
    for (uint32_t k = 0; size_bytes > 0; offset -= f->is.parts[k++].bytes) {
        int64_t in = f->is.parts[k].bytes - offset, n = size_bytes < in ? size_bytes : in;
        if (n > 0) {
            RU_TRY(ru_in_read(&f->in[k], f->paths[k], offset, to, n, err));
            to += n;
            size_bytes -= n;
            offset += n;
        }
    }
    return RU_OK;
}

ru_status ru_tier_map(const ru_tier_file *f, ru_map_file *out, ru_err *err)
{
    uint8_t *into;
    RU_CHECK(!f->writes);
    if (f->is.r.n_parts == 1) {
        ru_map_file m;
        RU_TRY(ru_file_map(f->paths[0], &m, err));
        if (m.size_bytes == f->is.r.bytes) {
            *out = m;
            return RU_OK;
        }
        ru_file_unmap(&m); /* what was claimed could not be given back */
    }
    RU_TRY(ru_memfile_map(f->is.r.bytes, &into, out, err));
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < f->is.r.n_parts; into += f->is.parts[k++].bytes) {
        int64_t n = f->is.parts[k].bytes;
        int64_t laid = f->in[k].size_bytes >= n ? ru_memfile_lay(into, f->in[k].fd, n) : 0;
        st = ru_in_read(&f->in[k], f->paths[k], laid, into + laid, n - laid, err);
    }
    if (st != RU_OK) {
        ru_file_unmap(out);
    }
    return st;
}

void ru_tier_close(ru_tier_file *f)
{
    if (f == NULL) {
        return;
    }
    ru_err none = {0};
    (void)!close_part(f, false, &none);
    bool drops = f->writes && !f->made;
    if (!f->writes && f->group[0] != '\0' && f->t->log != NULL) {
        const ru_tier_told read = {.writer = f->told.writer,
                                   .serial = f->told.serial,
                                   .ops = ru_flag_get(&f->counts[0]) +
                                          ru_flag_get(&f->counts[1]) / (RUI_TIER_RUN_BYTES / 1024)};
        (void)!rui_tiers_append_told(f->t, RUI_TIER_READ, &read, "", &none);
    }
    for (uint32_t k = 0; k < RU_TIERS_MAX; k++) {
        if (drops && k < f->is.r.n_parts) {
            remove_part(room_of(f->t, &f->is.parts[k]), f->paths[k], f->is.parts[k].bytes);
        }
        if (!f->writes) {
            ru_in_close(&f->in[k]);
        }
        free(f->paths[k]);
    }
    if (drops) {
        (void)!rui_tiers_append(f->t, RUI_TIER_GONE, &f->is, &none);
    }
    free(f);
}

ru_status ru_tier_remove(ru_tiers *t, const char *name, ru_err *err)
{
    ru_arena scratch;
    RU_CHECK(t->log != NULL);
    RU_TRY(rui_tiers_refresh(t, err));
    const rui_item *i = rui_tiers_find(t, name);
    if (i == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "there is no file %s", name);
    }
    RU_TRY(rui_tiers_append(t, RUI_TIER_GONE, i, err));
    RU_TRY(i->durable ? ru_grow_sync(t->log, err) : RU_OK); /* before a part of it is missing */
    rui_tiers_learn(t, i);
    ru_arena_init(&scratch, 0);
    for (uint32_t k = 0; k < i->r.n_parts; k++) { /* what stays is of no file: it goes at an open */
        const char *path;
        bool shared;
        const rui_tier *d = tier_of(t, i, k, &scratch, &path, &shared);
        if (d != NULL && !shared) {
            remove_part(&d->room, path, i->parts[k].bytes);
        }
    }
    ru_arena_fini(&scratch);
    return RU_OK;
}

ru_status ru_tiers_look(ru_tiers *t, ru_err *err)
{
    return rui_tiers_refresh(t, err);
}

bool ru_tiers_next(ru_tiers *t, uint32_t *at, ru_tier_entry *out)
{
    while (*at < t->n_items) {
        const rui_item *i = &t->items[(*at)++];
        if (i->made && !i->gone) {
            *out = (ru_tier_entry){.name = i->name,
                                   .bytes = i->r.bytes,
                                   .expected_bytes = i->r.expected_bytes,
                                   .made_ns = i->r.made_ns,
                                   .writer = i->r.writer,
                                   .group = i->group != NULL ? i->group : "",
                                   .told = i->told};
            ru_arena scratch;
            ru_arena_init(&scratch, 0);
            for (uint32_t k = 0; k < i->r.n_parts; k++) {
                const char *path;
                bool shared;
                const rui_tier *d = tier_of(t, i, k, &scratch, &path, &shared);
                out->in_bytes[d != NULL ? d - t->tiers : 0] += d != NULL ? i->parts[k].bytes : 0;
            }
            ru_arena_fini(&scratch);
            return true;
        }
    }
    return false;
}

bool ru_tiers_ended(ru_tiers *t, uint32_t *at, const char **group, ru_tier_told *out)
{
    if (*at >= t->n_ended) {
        return false;
    }
    *group = t->ended[*at].group;
    *out = t->ended[(*at)++].told;
    return true;
}

ru_status ru_tiers_lives(ru_tiers *t, uint64_t writer, bool *lives, ru_err *err)
{
    ru_lock *l;
    RU_CHECK(t->log != NULL);
    RU_TRY(ru_lock_open(t->room, true, true, &l, err));
    *lives = rui_tiers_lives(t, writer);
    ru_lock_close(l);
    return RU_OK;
}
