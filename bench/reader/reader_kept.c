/* rubato bench storage: epochs of a folder of JPEGs whose decoded samples are kept on a disk.
 *
 * In turns: an epoch that keeps its samples in an empty folder and one that reads them from there,
 * an epoch that keeps none, and an epoch of PyTorch's DataLoader (its best setting). Reading alone;
 * the kernel forgets all files before each epoch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/reader/reader.h"
#include "bench/reader/reader_search.h"
#include "data/reader.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "exec/pool.h"

enum { IMAGE = 224 };

static const char kept_name[] = "JPEG folder, kept samples";
static const char fill_name[] = "JPEG folder, keeping samples";

typedef struct kept {
    ru_data_options data;
    ru_disk_tier tier;
    const char *photos;
    uint32_t threads;
    double fill[RU_BENCH_ROUNDS_MAX], again[RU_BENCH_ROUNDS_MAX], plain[RU_BENCH_ROUNDS_MAX];
    double torch[RU_BENCH_ROUNDS_MAX];
    double fill_ms[RU_BENCH_ROUNDS_MAX], plain_ms[RU_BENCH_ROUNDS_MAX]; /* of the processor */
} kept;

ru_status rui_reader_epoch(ru_dataset *d, uint32_t threads, double *rate, double *ms, ru_err *err)
{
    const ru_stream_options opt = {.batch = RUI_READER_BATCH,
                                   .epochs = 1,
                                   .partial_last = true,
                                   .shuffle = RU_SHUFFLE_FULL,
                                   .seed = 1,
                                   .threads = threads};
    int64_t n = 0, begun_ns = ru_clock_now().ns, cpu_ns = ru_clock_cpu_ns();
    ru_stream *s = NULL;
    ru_batch batch = {.n = 1};
    ru_status st = ru_stream_open(d, &opt, &s, err);
    while (st == RU_OK && batch.n > 0) {
        st = ru_stream_next(s, &batch, err);
        n += st == RU_OK ? batch.n : 0;
    }
    *rate = (double)n / (1e-9 * (double)(ru_clock_now().ns - begun_ns));
    *ms = 1e-6 * (double)(ru_clock_cpu_ns() - cpu_ns) / (double)(n > 0 ? n : 1);
    ru_stream_close(s);
    return st;
}

static ru_status epoch(const kept *k, ru_dataset *d, double *rate, double *ms, ru_err *err)
{
    (void)rui_forget(k->photos);
    (void)rui_forget(k->tier.path);
    return rui_reader_epoch(d, k->threads, rate, ms, err);
}

/* `again` NULL: keep nothing. */
static ru_status epochs(const kept *k, double *first, double *ms, double *again, ru_err *err)
{
    double unused;
    ru_data_options o = k->data;
    ru_dataset *d = NULL;
    if (again != NULL) {
        o.cache = (ru_cache_options){.kind = RU_CACHE_DECODED, .tiers = &k->tier, .n_tiers = 1};
    }
    RU_TRY(ru_dataset_open(&o, &d, err));
    ru_status st = epoch(k, d, first, ms, err);
    st = st == RU_OK && again != NULL ? epoch(k, d, again, &unused, err) : st;
    ru_dataset_close(d);
    return st == RU_OK && again != NULL ? ru_path_remove(k->tier.path, err) : st;
}

static ru_status add(ru_bench *b, const kept *k, const char *what, const ru_bench_row *from,
                     ru_err *err)
{
    ru_bench_row row = *from;
    row.unit = row.unit != NULL ? row.unit : "images/s";
    row.name =
        ru_arena_printf(b->arena, "%s, %u thread%s", what, k->threads, k->threads == 1 ? "" : "s");
    return row.name != NULL ? ru_bench_add(b, &row, err)
                            : RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
}

static ru_status bench_threads(ru_bench *b, kept *k, rui_loader *l, ru_err *err)
{
    uint32_t rounds = b->quick ? 3 : 7;
    double warm, ms;
    RU_TRY(epochs(k, &warm, &ms, NULL, err));
    for (uint32_t r = 0; r < rounds; r++) {
        for (uint32_t turn = 0; turn < 3; turn++) { /* who goes first changes */
            uint32_t side = (r + turn) % 3;
            if (side == 0) {
                RU_TRY(epochs(k, &k->fill[r], &k->fill_ms[r], &k->again[r], err));
            } else if (side == 1) {
                RU_TRY(epochs(k, &k->plain[r], &k->plain_ms[r], NULL, err));
            } else if (l->missing == NULL) {
                RU_TRY(rui_loader_rate(l, k->photos, l->best, &k->torch[r], err));
            }
        }
    }
    ru_bench_row row = {.ours = ru_bench_stat_of(k->again, rounds),
                        .theirs = ru_bench_stat_of(k->plain, rounds),
                        .peer = "keeping none",
                        .goal = 3.0};
    RU_TRY(add(b, k, kept_name, &row, err));
    ru_bench_stat plain = row.theirs;
    row.theirs = (ru_bench_stat){0};
    row.missing = l->missing;
    row.peer = l->missing == NULL ? l->detail : "PyTorch's DataLoader";
    if (l->missing == NULL) {
        row.theirs = ru_bench_stat_of(k->torch, rounds);
    }
    RU_TRY(add(b, k, kept_name, &row, err));
    row = (ru_bench_row){.ours = ru_bench_stat_of(k->fill, rounds),
                         .theirs = plain,
                         .peer = "keeping none",
                         .goal = 0.95};
    RU_TRY(add(b, k, fill_name, &row, err));
    row = (ru_bench_row){.unit = "ms of processor",
                         .lower = true,
                         .ours = ru_bench_stat_of(k->fill_ms, rounds),
                         .theirs = ru_bench_stat_of(k->plain_ms, rounds),
                         .peer = "keeping none"};
    return add(b, k, fill_name, &row, err);
}

static ru_status bench(ru_bench *b, const char *dir, ru_err *err)
{
    rui_loader l;
    const char *photos = ru_path_join(b->arena, dir, "photos");
    const char *tier = ru_path_join(b->arena, dir, "kept");
    kept k = {.data = {.format = "images", .paths = &photos, .n_paths = 1, .image_size = IMAGE},
              .tier = {tier, INT64_C(1) << 40},
              .photos = photos};
    RU_TRY(rui_make_photos(b, photos, b->quick ? 192 : 1024, err));
    ru_status st = rui_loader_open(b, "images", photos, &l, err);
    st = st == RU_OK && l.missing == NULL ? rui_loader_choose(b, &l, photos, err) : st;
    for (uint32_t t = 1; st == RU_OK && t <= 2 && t <= ru_pool_cores(); t++) {
        k.threads = t;
        st = b->threads == 0 || b->threads == t ? bench_threads(b, &k, &l, err) : st;
    }
    ru_bench_sides_end(&l.side, 1);
    return st;
}

ru_status ru_bench_storage(ru_bench *b, ru_err *err)
{
    const char *dir = ru_path_join(b->arena, b->dir, "storage");
    if (dir == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
    }
    RU_TRY(ru_dir_make(dir, err));
    bool decoded = ru_bench_wants(b, kept_name) || ru_bench_wants(b, fill_name);
    ru_status st = decoded ? bench(b, dir, err) : RU_OK;
    st = st == RU_OK ? rui_bench_far(b, dir, err) : st;
    st = st == RU_OK ? rui_bench_auto(b, dir, err) : st;
    bool loop = strncmp(b->only, "loop", 4) == 0; /* half an hour: not unless asked for */
    st = st == RU_OK ? (loop ? rui_bench_loop(b, dir, err) : rui_bench_live(b, dir, err)) : st;
    ru_status removed = ru_path_remove(dir, st == RU_OK ? err : NULL);
    return st == RU_OK ? removed : st;
}
