/* The worker of storage_loop.c: mounts the file systems and runs the pipelines of both worlds. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/str.h"
#include "bench/reader/reader.h"
#include "bench/reader/storage_live.h"
#include "cost/math/quantile.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/thread.h"
#include "store/tiers/tiers.h"

enum {
    WORLDS = RUI_LIVE_WORLDS,
    PIPELINES = RUI_LIVE_PIPELINES,
    DISKS = 2 * WORLDS, /* fast and slow of each world */
    FIGURES = 6,
    PAUSE_NS = 500000,
};

typedef enum wish { WRITE, OPEN, CLOSE, REMOVE } wish;

typedef struct pipeline {
    struct run *run;
    uint32_t world, p;
    ru_thread thread;
    ru_flag asked, answered, ended; /* numbers of wishes */
    wish wish;
    uint32_t k; /* of which step's file */
    double guess;
    ru_tier_file *file;
    rui_live_file *files; /* [rounds * steps] */
    double end_s;
    ru_status st;
    ru_err err;
} pipeline;

typedef struct run {
    rui_live is;
    ru_arena *arena;
    const char *folders[WORLDS][2];
    ru_tiers *t[WORLDS];
    pipeline of[WORLDS * PIPELINES];
    ru_time begun;
    uint8_t *bytes;
} run;

static double now_s(const run *r)
{
    return r->is.speed * 1e-9 * (double)ru_time_since(ru_clock_now(), r->begun);
}

/* What was written goes to the disk, and what is read comes from it. */
static void forget_parts(const char *tier)
{
    ru_arena arena;
    char **names = NULL;
    uint32_t n = 0;
    ru_arena_init(&arena, 0);
    const char *dir = ru_arena_printf(&arena, "%s/files/bench", tier);
    if (dir == NULL || ru_dir_list(dir, &arena, &names, &n, NULL) != RU_OK) {
        n = 0;
    }
    for (uint32_t k = 0; k < n; k++) {
        const char *path = ru_path_join(&arena, dir, names[k]);
        bool part = path != NULL && ru_str_ends(ru_str_c(path), ".part");
        int fd = part ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (fd >= 0) {
            (void)sync_file_range(fd, 0, 0,
                                  SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                      SYNC_FILE_RANGE_WAIT_AFTER);
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            close(fd);
        }
    }
    ru_arena_fini(&arena);
}

static ru_status ask(pipeline *x, wish w, uint32_t k)
{
    uint32_t n = ru_flag_get(&x->asked) + 1;
    x->wish = w;
    x->k = k;
    ru_flag_set(&x->asked, n);
    while (ru_flag_get(&x->answered) != n) {
        ru_clock_pause(PAUSE_NS);
    }
    return x->st;
}

static ru_status read_back(pipeline *x, const rui_live_file *f, uint32_t k)
{
    uint8_t *into = malloc(RUI_LIVE_BYTES_MAX);
    ru_rng r = ru_rng_from(x->p, k);
    int64_t size = (int64_t)f->is.size_bytes;
    ru_status st = into != NULL ? ask(x, OPEN, k) : RU_E_MEM;
    if (st == RU_OK) {
        st = f->jumps > 0 ? RU_OK : ru_tier_read(x->file, 0, into, size, &x->err);
        for (uint32_t i = 0; st == RU_OK && i < f->jumps; i++) {
            st =
                ru_tier_read(x->file, ru_rng_below(&r, (uint32_t)size - 4096), into, 4096, &x->err);
        }
        ru_status closed = ask(x, CLOSE, k);
        st = st == RU_OK ? closed : st;
    }
    free(into);
    return st;
}

/* As `step` of storage_live.c: read what the one before wrote, remove, write. */
static ru_status step(pipeline *x, uint32_t k, double *think_s)
{
    const run *r = x->run;
    uint32_t all = r->is.rounds * RUI_LIVE_STEPS, lag = rui_live_lag(x->p);
    const char *const *tiers = r->folders[x->world];
    double begun = now_s(r);
    if (k > 0 && k <= all) {
        RU_TRY(read_back(x, &x->files[k - 1], k - 1));
    }
    if (k >= lag) {
        RU_TRY(ask(x, REMOVE, k - lag));
        x->files[k - lag].is.life_s = begun - x->files[k - lag].is.open_s;
    }
    *think_s = 0;
    if (k < all) {
        x->files[k] = rui_live_drawn(&r->is, x->p, k, think_s, &x->guess);
        x->files[k].is.open_s = begun;
        RU_TRY(ask(x, WRITE, k));
        forget_parts(tiers[0]);
        forget_parts(tiers[1]);
    }
    x->end_s = now_s(r);
    return RU_OK;
}

static void pipe_main(void *arg)
{
    pipeline *x = arg;
    uint32_t end = x->run->is.rounds * RUI_LIVE_STEPS + rui_live_lag(x->p);
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < end; k++) {
        double think_s;
        st = step(x, k, &think_s);
        ru_clock_pause((int64_t)(1e9 * think_s / x->run->is.speed));
    }
    x->st = st;
    ru_flag_set(&x->ended, 1);
}

static ru_status write_file(const run *r, pipeline *x, ru_tiers *t)
{
    char name[32], group[32];
    ru_tier_file *file;
    ru_tier_entry e;
    rui_live_file *f = &x->files[x->k];
    rui_live_names(&r->is, x->p, x->k, name, group);
    const ru_tier_hint hint = {.expected_bytes = (int64_t)x->guess,
                               .group = x->world == 0 ? group : NULL,
                               .input_bytes = (int64_t)f->is.input_bytes,
                               .writers = (uint32_t)f->is.writers,
                               .readers = (uint32_t)f->is.readers};
    RU_TRY(ru_tier_create(t, name, &hint, &file, &x->err));
    ru_status st = ru_tier_write(file, r->bytes, (int64_t)f->is.size_bytes, &x->err);
    st = st == RU_OK ? ru_tier_commit(file, &x->err) : st;
    ru_tier_close(file);
    st = st == RU_OK ? ru_tiers_look(t, &x->err) : st;
    for (uint32_t at = 0; st == RU_OK && ru_tiers_next(t, &at, &e);) {
        if (strcmp(e.name, name) == 0) {
            f->in[0] = e.in_bytes[0];
            f->in[1] = e.in_bytes[1];
        }
    }
    return st;
}

static ru_status answer(const run *r, pipeline *x)
{
    char name[32], group[32];
    ru_tiers *t = r->t[x->world];
    rui_live_names(&r->is, x->p, x->k, name, group);
    switch (x->wish) {
    case WRITE:
        return write_file(r, x, t);
    case OPEN:
        return ru_tier_open(t, name, &x->file, &x->err);
    case CLOSE:
        ru_tier_close(x->file);
        return RU_OK;
    case REMOVE:
    default:
        return ru_tier_remove(t, name, &x->err);
    }
}

/* Places are asked for by one thread alone. */
static ru_status serve(run *r, ru_err *err)
{
    uint32_t ended = 0;
    while (ended < WORLDS * PIPELINES) {
        bool some = false;
        ended = 0;
        for (uint32_t k = 0; k < WORLDS * PIPELINES; k++) {
            pipeline *x = &r->of[k];
            uint32_t n = ru_flag_get(&x->asked);
            if (n != ru_flag_get(&x->answered)) {
                x->st = answer(r, x);
                ru_flag_set(&x->answered, n);
                some = true;
            }
            ended += ru_flag_get(&x->ended);
        }
        if (!some) {
            ru_clock_pause(PAUSE_NS);
        }
    }
    for (uint32_t k = 0; k < WORLDS * PIPELINES; k++) {
        ru_thread_join(&r->of[k].thread);
        if (r->of[k].st != RU_OK) {
            return RU_FAIL(err, r->of[k].st, "pipeline %u: %s", r->of[k].p, r->of[k].err.text);
        }
    }
    return RU_OK;
}

/* In the order of their opening. */
static ru_status collect(const run *r, uint32_t world, rui_live_file **out, double *end_s,
                         ru_err *err)
{
    uint32_t each = r->is.rounds * RUI_LIVE_STEPS, n = each * PIPELINES;
    rui_live_file *files = RU_NEW(r->arena, rui_live_file, n);
    double *open_s = RU_NEW(r->arena, double, n);
    uint32_t *order = RU_NEW(r->arena, uint32_t, n);
    if (files == NULL || open_s == NULL || order == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
    }
    *end_s = 0;
    for (uint32_t k = 0; k < n; k++) {
        const pipeline *x = &r->of[world * PIPELINES + k / each];
        open_s[k] = x->files[k % each].is.open_s;
        *end_s = fmax(*end_s, x->end_s);
    }
    ru_sort_order_f64(open_s, order, n);
    for (uint32_t k = 0; k < n; k++) {
        files[k] = r->of[world * PIPELINES + order[k] / each].files[order[k] % each];
    }
    *out = files;
    return RU_OK;
}

static ru_status tell(const run *r, ru_err *err)
{
    rui_live_file *files[WORLDS];
    double v[FIGURES];
    uint32_t half = r->is.rounds / 2, from = half / 2;
    for (uint32_t w = 0; w < WORLDS; w++) {
        RU_TRY(collect(r, w, &files[w], &v[3 + w], err));
        v[w] = rui_live_cost(files[w], from, half);
    }
    RU_TRY(rui_live_oracle(&r->is, files[0], from, half, r->arena, &v[2], err));
    v[5] = rui_live_cost(files[0], half, half + 30 < r->is.rounds ? half + 30 : r->is.rounds);
    for (uint32_t k = 0; k < FIGURES; k++) {
        printf("%.9g%c", v[k], k + 1 < FIGURES ? ' ' : '\n');
    }
    return fflush(stdout) == 0 ? RU_OK : RU_FAIL(err, RU_E_IO, "cannot write the figures");
}

static ru_status mount_all(run *r, const char *dir, const char *const *devices, ru_err *err)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return RU_FAIL(err, RU_E_PERM, "cannot have mounts of its own: %s", strerror(errno));
    }
    for (uint32_t k = 0; k < DISKS; k++) {
        const char *at = ru_arena_printf(r->arena, "%s/disk %u", dir, k);
        RU_TRY(at != NULL ? ru_dir_make(at, err) : RU_E_MEM);
        if (mount(devices[k], at, "ext4", MS_NOATIME, NULL) != 0) {
            return RU_FAIL(err, RU_E_PERM, "cannot mount %s: %s", devices[k], strerror(errno));
        }
        r->folders[k / 2][k % 2] = ru_path_join(r->arena, at, "rubato");
    }
    return RU_OK;
}

static ru_status open_world(run *r, uint32_t w, ru_err *err)
{
    const ru_disk_tier tiers[2] = {{r->folders[w][0], r->is.quota_bytes},
                                   {r->folders[w][1], INT64_C(1) << 40}};
    const ru_tiers_options o = {.tiers = tiers, .n_tiers = 2, .space = "bench"};
    RU_TRY(ru_tiers_open(&o, &r->t[w], err));
    for (uint32_t p = 0; p < PIPELINES; p++) {
        pipeline *x = &r->of[w * PIPELINES + p];
        x->run = r;
        x->world = w;
        x->p = p;
        x->files = RU_NEW(r->arena, rui_live_file, (int64_t)r->is.rounds * RUI_LIVE_STEPS);
        if (x->files == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
        }
    }
    return RU_OK;
}

/* words: DIR ROUNDS SPEED DEVICE*4 */
ru_status rui_bench_loop_worker(const char *const *words, uint32_t n, ru_err *err)
{
    int64_t rounds = 0, speed = 0;
    ru_arena arena;
    if (n != 3 + DISKS || !ru_str_i64(ru_str_c(words[1]), &rounds) ||
        !ru_str_i64(ru_str_c(words[2]), &speed) || rounds < 8 || rounds > 10000 || speed < 1) {
        return RU_FAIL(err, RU_E_USAGE, "storage: expected DIR ROUNDS SPEED and %d devices", DISKS);
    }
    ru_arena_init(&arena, 0);
    run *r = RU_NEW(&arena, run, 1);
    uint8_t *bytes = RU_NEW(&arena, uint8_t, RUI_LIVE_BYTES_MAX);
    if (r == NULL || bytes == NULL) {
        ru_arena_fini(&arena);
        return RU_FAIL(err, RU_E_MEM, "no memory for the pipelines");
    }
    *r = (run){.is = {.rounds = (uint32_t)rounds, .seed = 1, .speed = (double)speed},
               .arena = &arena,
               .bytes = bytes};
    r->is.quota_bytes = (int64_t)(0.1 * rui_live_peak(&r->is));
    ru_status st = mount_all(r, words[0], words + 3, err);
    for (uint32_t w = 0; st == RU_OK && w < WORLDS; w++) {
        st = open_world(r, w, err);
    }
    r->begun = ru_clock_now();
    for (uint32_t k = 0; st == RU_OK && k < WORLDS * PIPELINES; k++) {
        st = ru_thread_start(&r->of[k].thread, "bench pipeline", pipe_main, &r->of[k], err);
    }
    st = st == RU_OK ? serve(r, err) : st; /* else the process ends, and its threads with it */
    st = st == RU_OK ? tell(r, err) : st;
    return st;
}
