/* Rows of `rubato bench reader` about the tuner on the disk of --dir: `rubato bench reader --only
 * disk:`.
 *
 * Shuffled samples of one file, read directly (O_DIRECT). What the tuner chose within 20 s and the
 * best of a grid take turns. With root and the control group `blkio` also behind a throttle of 200
 * reads and 100 MiB a second; its halving and doubling must be followed within 10 s. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "bench/reader/reader.h"
#include "bench/reader/reader_search.h"
#include "env/file/file.h"

enum { SEARCH_S = 20, FOLLOW_S = 10, DEPTH_MAX = 256 };
static const int64_t throttle_bytes_per_s = (int64_t)100 << 20, memory_max_bytes = 128 << 20;

typedef struct disk_case {
    const char *name;
    int64_t side; /* a sample has side * side bytes */
    int64_t batch;
    bool throttled;
} disk_case;

static const disk_case cases[] = {
    {"disk: samples of 131 kB", 362, 64, false},
    {"disk: as large as COCO's, 155 kB", 394, 64, false},
    {"disk: as large as house numbers, 6 kB", 80, 512, false},
    {"disk: imagenet in groups of 32, 3.7 MB", 1924, 4, false},
    {"disk: throttled, samples of 131 kB", 362, 64, true},
};

/* -- the throttle ------------------------------------------------------------------------------ */

#define GROUPS "/sys/fs/cgroup/blkio"

typedef struct throttle {
    char dir[96], device[32];
    const char *missing; /* NULL: it holds this process */
} throttle;

static bool put(const char *dir, const char *file, const char *text)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

/* `part` of the full limit: 0.5, 1, ... */
static bool throttle_set(const throttle *t, double part)
{
    char bytes[64], reads[64];
    snprintf(bytes, sizeof bytes, "%s %.0f", t->device, part * (double)throttle_bytes_per_s);
    snprintf(reads, sizeof reads, "%s %.0f", t->device, part * 200);
    return put(t->dir, "blkio.throttle.read_bps_device", bytes) &&
           put(t->dir, "blkio.throttle.read_iops_device", reads);
}

static void throttle_begin(throttle *t, const char *path)
{
    struct stat st;
    char me[32];
    snprintf(me, sizeof me, "%ld", (long)getpid());
    snprintf(t->dir, sizeof t->dir, GROUPS "/rubato-bench-%ld", (long)getpid());
    t->missing = "the control group blkio (v1, as root) cannot throttle the disk of --dir";
    if (stat(path, &st) != 0 || mkdir(t->dir, 0755) != 0) {
        return;
    }
    snprintf(t->device, sizeof t->device, "%u:%u", major(st.st_dev), minor(st.st_dev));
    if (throttle_set(t, 1) && put(t->dir, "cgroup.procs", me)) {
        t->missing = NULL;
    } else {
        rmdir(t->dir);
    }
}

static void throttle_end(const throttle *t)
{
    char me[32];
    snprintf(me, sizeof me, "%ld", (long)getpid());
    if (t->missing == NULL && put(GROUPS, "cgroup.procs", me)) {
        rmdir(t->dir);
    }
}

/* -- rows -------------------------------------------------------------------------------------- */

static ru_status open_reads(const char *path, const disk_case *c, ru_dataset **d, rui_searched *s,
                            ru_err *err)
{
    const ru_data_options data = {.format = "idx",
                                  .paths = &path,
                                  .n_paths = 1,
                                  .raw = true,
                                  .resident_max_bytes = -1,
                                  .direct = true};
    int64_t size_max = 64 << 10;
    while (size_max < c->side * c->side && size_max < 4 << 20) {
        size_max *= 2;
    }
    RU_TRY(ru_dataset_open(&data, d, err));
    const ru_stream_options o = {
        .batch = c->batch, .shuffle = RU_SHUFFLE_FULL, .seed = 1, .threads = 2};
    RU_TRY(ru_stream_open(*d, &o, &s->stream, err));
    s->in = (ru_read_in){.method = RU_READ_MODEL,
                         .sample_bytes = c->side * c->side,
                         .size_min = 64 << 10,
                         .size_max = size_max, /* a shuffled sample stands alone */
                         .depth_max = DEPTH_MAX,
                         .memory_max_bytes = memory_max_bytes,
                         .cores = 2,
                         .gain_min = 0.05,
                         .loss_max = 0.02,
                         .try_s = 10};
    return RU_OK;
}

/* The setting in force and the best of the grid, in turns. */
static ru_status compare(ru_bench *b, rui_searched *s, const char *name, double goal, ru_err *err)
{
    double ours[RU_BENCH_ROUNDS_MAX], theirs[RU_BENCH_ROUNDS_MAX];
    uint32_t rounds = b->quick ? 3 : 7, points;
    const int64_t size = s->state.size_bytes;
    const uint32_t depth = s->state.depth;
    ru_read_window best, w;
    RU_TRY(rui_grid(s, 1, &best, &points, err));
    for (uint32_t k = 0; k < 2 * rounds; k++) {
        bool mine = (k + k / 2) % 2 == 0; /* who goes first changes */
        RU_TRY(
            rui_measure(s, mine ? size : best.size_bytes, mine ? depth : best.depth, 1, &w, err));
        *(mine ? &ours[k / 2] : &theirs[k / 2]) = w.bytes_per_s / 1e6;
    }
    ru_bench_row row = {
        .name = ru_arena_printf(b->arena, "%s: %lld KiB, %u", name, (long long)size >> 10, depth),
        .unit = "MB/s",
        .ours = ru_bench_stat_of(ours, rounds),
        .theirs = ru_bench_stat_of(theirs, rounds),
        .goal = goal,
        .peer = ru_arena_printf(b->arena, "best of a grid of %u: %lld KiB, %u", points,
                                (long long)best.size_bytes >> 10, best.depth)};
    return ru_bench_add(b, &row, err);
}

/* How often the setting in force changes while nothing else does. */
static ru_status stay(ru_bench *b, rui_searched *s, const char *name, ru_err *err)
{
    double seconds = b->quick ? 20 : 60;
    uint32_t before = s->state.changes;
    RU_TRY(rui_search_on(s, seconds, err));
    double changes = 60 * (s->state.changes - before) / seconds;
    ru_bench_row row = {.name = ru_arena_printf(b->arena, "%s: changes when steady", name),
                        .unit = "a minute",
                        .lower = true,
                        .ours = ru_bench_stat_of(&changes, 1),
                        .goal = 1};
    return ru_bench_add(b, &row, err);
}

static ru_status follow(ru_bench *b, rui_searched *s, const throttle *t, const disk_case *c,
                        ru_err *err)
{
    static const struct {
        double part;
        const char *name;
    } steps[] = {{0.5, "halved"}, {1, "doubled again"}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(steps); k++) {
        if (!throttle_set(t, steps[k].part)) {
            return RU_FAIL(err, RU_E_IO, "the throttle of %s does not change", t->device);
        }
        RU_TRY(rui_search_on(s, FOLLOW_S, err));
        const char *name =
            ru_arena_printf(b->arena, "%s, %d s after it is %s", c->name, FOLLOW_S, steps[k].name);
        RU_TRY(compare(b, s, name, 0.9, err));
    }
    return RU_OK;
}

static ru_status bench_case(ru_bench *b, const disk_case *c, const char *path, throttle *t,
                            rui_searched *s, ru_err *err)
{
    ru_dataset *d = NULL;
    double taken_s;
    s->stream = NULL;
    ru_status st = open_reads(path, c, &d, s, err);
    st = st == RU_OK ? rui_search(s, SEARCH_S, &taken_s, err) : st;
    if (st == RU_OK) {
        const char *name = ru_arena_printf(b->arena, "%s, found in %.0f s", c->name, taken_s);
        st = compare(b, s, name, 0.95, err);
        st = st == RU_OK ? stay(b, s, c->name, err) : st;
    }
    st = st == RU_OK && c->throttled ? follow(b, s, t, c, err) : st;
    ru_stream_close(s->stream);
    ru_dataset_close(d);
    return st;
}

static ru_status make_and_bench(ru_bench *b, const disk_case *c, const char *path, rui_searched *s,
                                ru_err *err)
{
    throttle t = {.missing = NULL};
    int64_t bytes = (int64_t)(b->quick ? 256 : 1024) << 20;
    RU_TRY(rui_make_images(path, c->side, bytes, err));
    (void)rui_forget(path); /* and onto the disk */
    if (c->throttled) {
        throttle_begin(&t, path);
    }
    ru_status st = RU_OK;
    if (t.missing != NULL) {
        ru_bench_row row = {.name = c->name, .unit = "MB/s", .missing = t.missing, .goal = 0.95};
        st = ru_bench_add(b, &row, err);
    } else {
        st = bench_case(b, c, path, &t, s, err);
    }
    if (c->throttled) {
        throttle_end(&t);
    }
    ru_status removed = ru_path_remove(path, st == RU_OK ? err : NULL);
    return st == RU_OK ? removed : st;
}

ru_status rui_bench_disk(ru_bench *b, ru_err *err)
{
    const char *path = ru_path_join(b->arena, b->dir, "reader-disk");
    rui_searched s = {.ended = malloc(RU_READS_KEPT * sizeof(ru_read_done)), .arena = b->arena};
    ru_status st = path != NULL && s.ended != NULL
                       ? RU_OK
                       : RU_FAIL(err, RU_E_MEM, "no memory for the benchmark of the disk");
    for (uint32_t k = 0; st == RU_OK && k < RU_ARRAY_LEN(cases); k++) {
        if (ru_bench_wants(b, cases[k].name)) {
            st = make_and_bench(b, &cases[k], path, &s, err);
        }
    }
    free(s.ended);
    return st;
}
