#include "run/copies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "env/thread.h"
#include "run/ckpt.h"
#include "run/ckpt_store.h"
#include "web/bucket.h"
#include "web/objects.h"

enum { DIR_BYTES = 4096, FILES_MAX = 64 };

#define MANIFEST "manifest.json"

typedef struct wanted {
    char dir[DIR_BYTES];
    int64_t step, best_step;
    bool is;
} wanted;

struct ru_copies {
    const char *address;
    uint32_t keep;
    ru_arena arena;
    wanted next; /* waits */
    ru_thread thread;
    /* The thread's until `ended`, then the trainer's. */
    wanted now;
    ru_bucket *bucket;
    bool ours, failing; /* failing: nobody answered for too long */
    ru_flag ended;
};

static ru_status no_memory(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for the copy of a checkpoint");
}

/* -- one copy (on the thread) ------------------------------------------------------------------ */

typedef struct files {
    const char **names; /* [n] */
    ru_map_file map[FILES_MAX];
    uint32_t n;
} files;

static void unmap(files *f)
{
    for (uint32_t k = 0; k < f->n && k < FILES_MAX; k++) {
        ru_file_unmap(&f->map[k]);
    }
}

/* The files of its manifest, wherever they are, and the manifest itself. Mapped files stay while
 * the folder is removed as too old. */
static ru_status map_all(const char *dir, ru_arena *arena, files *f, ru_err *err)
{
    ru_ckpt_manifest m;
    RU_TRY(ru_ckpt_manifest_read(dir, arena, &m, err));
    const ru_ckpt_file *rows = m.files.at;
    *f = (files){.names = RU_NEW(arena, const char *, m.files.n + 1)};
    if (f->names == NULL) {
        return no_memory(err);
    }
    if (m.files.n >= FILES_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "%s has %u files; a copy has at most %d", dir, m.files.n,
                       FILES_MAX);
    }
    for (uint32_t k = 0; k <= m.files.n; k++) {
        f->names[k] = k < m.files.n ? rows[k].name : MANIFEST;
        RU_TRY(ru_ckpt_map(dir, f->names[k], arena, &f->map[k], err));
        f->n++;
    }
    return RU_OK;
}

static ru_status put(ru_copies *c, const wanted *w, const files *f, bool manifest, ru_arena *arena,
                     ru_err *err)
{
    for (uint32_t k = 0; k < f->n; k++) {
        if ((strcmp(f->names[k], MANIFEST) == 0) != manifest) {
            continue;
        }
        const char *key =
            ru_arena_printf(arena, RU_CKPT_NAME "/%s", (long long)w->step, f->names[k]);
        RU_TRY(key != NULL
                   ? ru_bucket_put(c->bucket, key, f->map[k].data, f->map[k].size_bytes, err)
                   : no_memory(err));
    }
    return RU_OK;
}

/* The step of a key "000000250/model.safetensors", in the very form of `put`, and the file's name;
 * -1: it is another's object, which is left alone. */
static int64_t step_of(const char *key, const char **name)
{
    char head[32];
    int64_t step = -1;
    size_t n = strcspn(key, "/");
    *name = key[n] == '/' ? key + n + 1 : "";
    if (!ru_str_i64(ru_str_n(key, (int64_t)n), &step)) {
        return -1;
    }
    (void)snprintf(head, sizeof head, RU_CKPT_NAME "/", (long long)step);
    bool file = (*name)[0] != '\0' && (*name)[0] != '.' && strchr(*name, '/') == NULL;
    return file && strncmp(key, head, n + 1) == 0 ? step : -1;
}

static bool is_file(const char *key)
{
    const char *name;
    return step_of(key, &name) >= 0;
}

/* Is this one among the newest `keep` that are complete, or the best? */
static bool stays(const ru_bucket_object *keys, uint32_t n, int64_t step, uint32_t keep,
                  int64_t best)
{
    uint32_t newer = 0;
    const char *name;
    for (uint32_t k = 0; k < n; k++) {
        int64_t other = step_of(keys[k].key, &name);
        newer += other > step && strcmp(name, MANIFEST) == 0;
    }
    return newer < keep || (best != 0 && step == best);
}

/* Manifests first: what is removed in part is none. */
static ru_status prune(ru_copies *c, const wanted *w, ru_arena *arena, ru_err *err)
{
    ru_bucket_object *keys;
    uint32_t n;
    RU_TRY(ru_bucket_list(c->bucket, true, arena, &keys, &n, err));
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t k = 0; k < n; k++) {
            const char *name;
            int64_t step = step_of(keys[k].key, &name);
            bool now = step >= 0 && (strcmp(name, MANIFEST) == 0) == (pass == 0);
            if (now && !stays(keys, n, step, c->keep, w->best_step)) {
                RU_TRY(ru_bucket_remove(c->bucket, keys[k].key, err));
            }
        }
    }
    return RU_OK;
}

/* Before the first copy. Later steps there are another run's: its copies would count as the newest,
 * and those of this run would go. */
static ru_status look(ru_copies *c, const wanted *w, ru_arena *arena, ru_err *err)
{
    ru_bucket_object *keys;
    const char *name;
    uint32_t n;
    RU_TRY(ru_bucket_list(c->bucket, true, arena, &keys, &n, err));
    for (uint32_t k = 0; k < n; k++) {
        int64_t step = step_of(keys[k].key, &name);
        if (step > w->step) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "%s holds a checkpoint of step %lld, so of another run; name another "
                           "folder in checkpoint.copy_to",
                           c->address, (long long)step);
        }
    }
    RU_TRY(ru_bucket_sweep(c->bucket, is_file, err));
    c->ours = true;
    return RU_OK;
}

static ru_status copy(ru_copies *c, const wanted *w, ru_arena *arena, ru_err *err)
{
    files f = {0};
    RU_TRY(c->ours ? RU_OK : look(c, w, arena, err));
    ru_status st = map_all(w->dir, arena, &f, err);
    st = st == RU_OK ? put(c, w, &f, false, arena, err) : st;
    st = st == RU_OK ? put(c, w, &f, true, arena, err) : st;
    unmap(&f);
    return st == RU_OK ? prune(c, w, arena, err) : st;
}

static void work(void *self)
{
    ru_copies *c = self;
    const wanted *w = &c->now;
    ru_err err = {0};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_process_thread_background(15);
    ru_time begun = ru_clock_now();
    ru_status st = copy(c, w, &arena, &err);
    c->failing = st == RU_E_PEER;
    if (st == RU_OK) {
        ru_log(RU_LOG_INFO, "train", "copies", "the checkpoint of step %lld is at %s (%.3g s)",
               (long long)w->step, c->address, 1e-9 * (double)ru_time_since(ru_clock_now(), begun));
    } else if (!ru_path_is_dir(w->dir)) { /* checkpoint.keep is small, or the store slow */
        ru_log(RU_LOG_INFO, "train", "copies",
               "the checkpoint of step %lld is not copied: newer ones have its place",
               (long long)w->step);
    } else {
        ru_log(RU_LOG_WARN, "train", "copies",
               "the checkpoint of step %lld is not copied, training goes on: %s",
               (long long)w->step, err.text);
    }
    ru_arena_fini(&arena);
    ru_flag_set(&c->ended, 1);
}

/* -- for the trainer --------------------------------------------------------------------------- */

ru_status ru_copies_open(const char *address, uint32_t keep, ru_copies **out, ru_err *err)
{
    ru_copies *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return no_memory(err);
    }
    ru_arena_init(&c->arena, 0);
    c->keep = keep;
    c->address = ru_arena_str(&c->arena, address);
    ru_status st =
        c->address != NULL ? ru_bucket_open(c->address, &c->bucket, err) : no_memory(err);
    if (st != RU_OK) {
        ru_copies_close(c);
        return st;
    }
    *out = c;
    return RU_OK;
}

void ru_copies_poll(ru_copies *c)
{
    ru_err err = {0};
    if (c->thread.started && ru_flag_get(&c->ended) != 0) {
        ru_thread_join(&c->thread);
    }
    if (c->thread.started || !c->next.is) {
        return;
    }
    c->now = c->next;
    c->next.is = false;
    ru_flag_set(&c->ended, 0);
    if (ru_thread_start(&c->thread, "copies", work, c, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "copies", "the checkpoint of step %lld is not copied: %s",
               (long long)c->now.step, err.text);
    }
}

void ru_copies_take(ru_copies *c, const char *dir, int64_t step, int64_t best_step)
{
    if (c->next.is) {
        ru_log(RU_LOG_INFO, "train", "copies",
               "the checkpoint of step %lld is not copied: a newer one waits",
               (long long)c->next.step);
    }
    c->next = (wanted){.step = step, .best_step = best_step};
    int n = snprintf(c->next.dir, sizeof c->next.dir, "%s/" RU_CKPT_NAME, dir, (long long)step);
    c->next.is = n > 0 && n < (int)sizeof c->next.dir;
    ru_copies_poll(c);
}

void ru_copies_close(ru_copies *c)
{
    if (c == NULL) {
        return;
    }
    ru_thread_join(&c->thread);
    if (c->failing && c->next.is) {
        ru_log(RU_LOG_WARN, "train", "copies", "the checkpoint of step %lld is not copied",
               (long long)c->next.step);
    } else {
        ru_copies_poll(c);
        ru_thread_join(&c->thread);
    }
    ru_bucket_close(c->bucket);
    ru_arena_fini(&c->arena);
    free(c);
}

/* -- back again -------------------------------------------------------------------------------- */

static ru_status list_keys(const char *address, ru_arena *arena, ru_bucket_object **keys,
                           uint32_t *n, ru_err *err)
{
    ru_bucket *b;
    RU_TRY(ru_bucket_open(address, &b, err));
    ru_status st = ru_bucket_list(b, true, arena, keys, n, err);
    ru_bucket_close(b);
    return st;
}

static int by_step(const void *a, const void *b)
{
    int64_t x = ((const ru_copy *)a)->step, y = ((const ru_copy *)b)->step;
    return (x > y) - (x < y);
}

ru_status ru_copies_list(const char *address, ru_arena *arena, ru_copy **out, uint32_t *n_out,
                         ru_err *err)
{
    ru_bucket_object *keys;
    const char *name;
    uint32_t n, found = 0;
    RU_TRY(list_keys(address, arena, &keys, &n, err));
    ru_copy *at = RU_NEW(arena, ru_copy, n);
    if (at == NULL) {
        return no_memory(err);
    }
    for (uint32_t k = 0; k < n; k++) {
        int64_t step = step_of(keys[k].key, &name);
        uint32_t i = 0;
        while (i < found && at[i].step != step) {
            i++;
        }
        if (step >= 0) {
            found += i == found;
            at[i].step = step;
            at[i].files++;
            at[i].complete = at[i].complete || strcmp(name, MANIFEST) == 0;
        }
    }
    qsort(at, found, sizeof *at, by_step);
    *out = at;
    *n_out = found;
    return RU_OK;
}

static ru_status find_newest(const char *address, ru_arena *arena, ru_bucket_object **keys,
                             uint32_t *n, int64_t *step, ru_err *err)
{
    RU_TRY(list_keys(address, arena, keys, n, err));
    *step = -1;
    for (uint32_t k = 0; k < *n; k++) {
        const char *name;
        int64_t s = step_of((*keys)[k].key, &name);
        *step = s > *step && strcmp(name, MANIFEST) == 0 ? s : *step;
    }
    return *step >= 0 ? RU_OK
                      : RU_FAIL(err, RU_E_MISSING,
                                "%s holds no complete checkpoint; name what checkpoint.copy_to of "
                                "the run named",
                                address);
}

static ru_status fetch_file(ru_objects *o, const char *address, const char *path, ru_err *err)
{
    enum { BLOCK_BYTES = 8 << 20 };
    ru_object *b;
    ru_out *out;
    RU_TRY(ru_object_open(o, address, &b, err));
    uint8_t *block = malloc(BLOCK_BYTES);
    if (block == NULL) {
        return no_memory(err);
    }
    ru_status st = ru_out_open_own(path, &out, err);
    if (st == RU_OK) {
        for (int64_t at = 0, size = ru_object_bytes(b); st == RU_OK && at < size;) {
            int64_t n = size - at < BLOCK_BYTES ? size - at : BLOCK_BYTES;
            st = ru_object_read(b, at, block, n, err);
            st = st == RU_OK ? ru_out_write(out, block, n, err) : st;
            at += n;
        }
        st = st == RU_OK ? ru_out_commit(out, err) : st;
        ru_out_close(out);
    }
    free(block);
    return st;
}

static ru_status fetch_all(const char *address, const ru_bucket_object *keys, uint32_t n,
                           int64_t step, const char *temp, ru_arena *arena, ru_err *err)
{
    ru_objects *o;
    const ru_objects_options oo = {.requests_max = 16};
    size_t len = strlen(address);
    while (len > 0 && address[len - 1] == '/') {
        len--;
    }
    RU_TRY(ru_path_exists(temp) ? ru_path_remove(temp, err) : RU_OK); /* a killed one's */
    RU_TRY(ru_dir_make(temp, err));
    RU_TRY(ru_objects_open(&oo, &o, err));
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < n; k++) {
        const char *name;
        if (step_of(keys[k].key, &name) != step) {
            continue;
        }
        const char *from = ru_arena_printf(arena, "%.*s/%s", (int)len, address, keys[k].key);
        const char *path = ru_path_join(arena, temp, name);
        st = from != NULL && path != NULL ? fetch_file(o, from, path, err) : no_memory(err);
    }
    ru_objects_close(o);
    return st;
}

ru_status ru_copies_fetch(const char *address, const char *out, ru_arena *arena, int64_t *step,
                          ru_err *err)
{
    ru_bucket_object *keys;
    uint32_t n, have = 0;
    ru_ckpt_entry *list;
    ru_ckpt_info info;
    const char *all = ru_path_join(arena, out, "checkpoints");
    const char *job = ru_path_join(arena, out, "job.yaml");
    if (all == NULL || job == NULL) {
        return no_memory(err);
    }
    if (ru_path_is_dir(all)) {
        RU_TRY(ru_ckpt_list(all, arena, &list, &have, err));
    }
    if (have > 0 || ru_path_exists(job)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "%s holds a job or a run already; --resume goes on from its checkpoints, "
                       "and --resume-from needs a new folder (--out)",
                       out);
    }
    RU_TRY(find_newest(address, arena, &keys, &n, step, err));
    const char *dir = ru_arena_printf(arena, "%s/" RU_CKPT_NAME, all, (long long)*step);
    const char *temp = dir != NULL ? ru_arena_printf(arena, "%s" RU_CKPT_TEMP, dir) : NULL;
    if (temp == NULL) {
        return no_memory(err);
    }
    ru_status st = fetch_all(address, keys, n, *step, temp, arena, err);
    bool whole = st == RU_OK;
    st = whole ? ru_ckpt_read(temp, arena, &info, err) : st;
    st = whole && st == RU_E_MISSING ? RU_E_DATA : st; /* a file that its manifest names */
    if (st != RU_OK) {
        ru_err ignored = {0};
        (void)!ru_path_remove(temp, &ignored);
        return ru_err_wrap(err, st, "%s", address);
    }
    RU_TRY(ru_file_own(job, info.job_yaml, (int64_t)strlen(info.job_yaml), err));
    return ru_path_rename(temp, dir, err);
}
