/* Rows of `rubato bench reader` about cold files: `rubato bench reader --only cold:`.
 *
 * Random samples of a packed file, a tar file in order, images in a folder. Before each round the
 * kernel forgets the files (rui_forget); our streams, the best setting of fio and the best of
 * PyTorch's DataLoader (bench/reader_peer.py) take turns. Images are bound by decoding, which fio
 * does not do: DataLoader alone stands beside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "bench/reader/reader.h"
#include "data/make/make.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "exec/pool.h"

enum {
    SIDE = 128,
    PIXELS = 3 * SIDE * SIDE,
    BATCH = RUI_READER_BATCH,
    IMAGE = 224,
    FIO_SIZES_MAX = 4,
    TAR_UNIT = 512,
    NPY_HEAD = 128,
};

typedef struct cold {
    const char *name, *kind; /* kind: the word of reader_peer.py */
    const char *path;
    ru_data_options data;
    ru_shuffle shuffle;
    const char *fio_rw; /* NULL: bound by decoding */
    int64_t fio_sizes[FIO_SIZES_MAX];
    uint32_t n_fio_sizes;
} cold;

/* What one round of each side gave, in the unit of the row. */
typedef struct rates {
    double ours[RU_BENCH_ROUNDS_MAX], fio[RU_BENCH_ROUNDS_MAX], torch[RU_BENCH_ROUNDS_MAX];
} rates;

static const int64_t patience_ns = (int64_t)120 * 1000000000; /* until PyTorch is loaded */

/* -- files
 * ------------------------------------------------------------------------------------------ */

static ru_status make_packed(ru_bench *b, const char *dir, int64_t n, ru_err *err)
{
    const uint8_t head[] = {0,
                            0,
                            8,
                            4,
                            (uint8_t)(n >> 24),
                            (uint8_t)(n >> 16),
                            (uint8_t)(n >> 8),
                            (uint8_t)n,
                            0,
                            0,
                            0,
                            3,
                            0,
                            0,
                            0,
                            SIDE,
                            0,
                            0,
                            0,
                            SIDE};
    const uint8_t label_head[] = {0, 0, 8, 1, head[4], head[5], head[6], head[7]};
    const char *paths[] = {ru_path_join(b->arena, dir, "x"), ru_path_join(b->arena, dir, "y")};
    uint8_t *labels = malloc((size_t)n + sizeof label_head);
    if (labels == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the labels");
    }
    memcpy(labels, label_head, sizeof label_head);
    for (int64_t i = 0; i < n; i++) {
        labels[(int64_t)sizeof label_head + i] = (uint8_t)(i % 10);
    }
    ru_status st = rui_make_file(paths[0], head, sizeof head, n * PIXELS, err);
    st = st == RU_OK ? rui_make_file(paths[1], labels, (int64_t)sizeof label_head + n, 0, err) : st;
    free(labels);
    RU_TRY(st);
    const ru_data_options idx = {
        .format = "idx", .paths = paths, .n_paths = 2, .raw = true, .resident_max_bytes = -1};
    ru_dataset *d = NULL;
    RU_TRY(ru_dataset_open(&idx, &d, err));
    st = ru_data_import(d, "packed", dir, "a", err);
    ru_dataset_close(d);
    RU_TRY(st);
    RU_TRY(ru_path_remove(paths[0], err));
    return ru_path_remove(paths[1], err);
}

/* Header of a regular file in a tar archive (POSIX.1-1988 "ustar"). */
static void tar_head(uint8_t *h, int64_t k, const char *ending, int64_t bytes)
{
    enum { SIZE_AT = 124, SUM_AT = 148, TYPE_AT = 156, MAGIC_AT = 257 };
    uint32_t sum = 0;
    memset(h, 0, TAR_UNIT);
    snprintf((char *)h, 100, "%08lld.%s", (long long)k, ending);
    memcpy(h + 100, "0000644", 8);
    snprintf((char *)h + SIZE_AT, 12, "%011llo", (unsigned long long)bytes);
    memset(h + SUM_AT, ' ', 8);
    h[TYPE_AT] = '0';
    memcpy(h + MAGIC_AT, "ustar\00000", 8);
    for (uint32_t i = 0; i < TAR_UNIT; i++) {
        sum += h[i];
    }
    snprintf((char *)h + SUM_AT, 8, "%06o", sum);
}

static ru_status put_tar(ru_out *out, int64_t n, ru_err *err)
{
    enum {
        MEMBER = (NPY_HEAD + PIXELS + TAR_UNIT - 1) / TAR_UNIT * TAR_UNIT,
        LABEL_AT = TAR_UNIT + MEMBER,
        SAMPLE = LABEL_AT + 2 * TAR_UNIT,
    };
    static const char shape[] =
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 128, 128), }";
    static const uint8_t end[2 * TAR_UNIT];
    uint8_t *sample = calloc(1, SAMPLE);
    if (sample == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a tar file");
    }
    uint8_t *npy = sample + TAR_UNIT;
    memset(npy, ' ', NPY_HEAD);
    memcpy(npy, "\x93NUMPY\x01\x00\x76\x00", 10); /* 118 bytes of text follow */
    memcpy(npy + 10, shape, sizeof shape - 1);
    npy[NPY_HEAD - 1] = '\n';
    ru_status st = RU_OK;
    for (int64_t k = 0; st == RU_OK && k < n; k++) {
        tar_head(sample, k, "npy", NPY_HEAD + PIXELS);
        for (int64_t i = 0; i < PIXELS; i += 16) {
            uint32_t four[4];
            ru_philox_at(3, (uint64_t)k, (uint64_t)i, four);
            memcpy(npy + NPY_HEAD + i, four, sizeof four);
        }
        tar_head(sample + LABEL_AT, k, "cls", 1);
        sample[LABEL_AT + TAR_UNIT] = (uint8_t)('0' + k % 10);
        st = ru_out_write(out, sample, SAMPLE, err);
    }
    free(sample);
    return st == RU_OK ? ru_out_write(out, end, sizeof end, err) : st;
}

static ru_status make_tar(const char *path, int64_t n, ru_err *err)
{
    ru_out *out = NULL;
    ru_status st = ru_out_open(path, &out, err);
    st = st == RU_OK ? put_tar(out, n, err) : st;
    st = st == RU_OK ? ru_out_commit(out, err) : st;
    ru_out_close(out);
    return st;
}

ru_status rui_make_photos(ru_bench *b, const char *dir, uint32_t n, ru_err *err)
{
    const char *inner = ru_path_join(b->arena, dir, "one");
    RU_TRY(ru_dir_make(inner, err));
    for (uint32_t k = 0; k < n; k++) {
        char file[32];
        snprintf(file, sizeof file, "%04u.jpg", k);
        RU_TRY(rui_make_photo(ru_path_join(b->arena, inner, file), k, err));
    }
    return RU_OK;
}

/* -- PyTorch's DataLoader
 * --------------------------------------------------------------------------- */

ru_status rui_loader_open(ru_bench *b, const char *kind, const char *path, rui_loader *l,
                          ru_err *err)
{
    const char *scripts = ru_bench_scripts(b->arena), **argv = RU_NEW(b->arena, const char *, 6);
    *l = (rui_loader){.missing = "bench/reader_peer.py is not found beside rubato"};
    if (scripts == NULL || argv == NULL) {
        return RU_OK;
    }
    argv[0] = "python3";
    argv[1] = ru_path_join(b->arena, scripts, "reader_peer.py");
    argv[2] = kind;
    argv[3] = path;
    argv[4] = ru_arena_printf(b->arena, "%d", BATCH);
    l->side.argv = argv;
    const ru_process_options opt = {.argv = argv, .pipe_in = true, .pipe_out = true, .quiet = true};
    const char *line = NULL;
    l->missing = "python3 with torch, numpy and Pillow is not installed (pip install torch numpy "
                 "pillow)";
    if (ru_process_start(&opt, &l->side.process, NULL) != RU_OK) {
        return RU_OK;
    }
    RU_TRY(ru_process_line(l->side.process, patience_ns, &line, err));
    if (line == NULL || strncmp(line, "ready ", 6) != 0) {
        return RU_OK;
    }
    char *rest;
    l->settings = (uint32_t)strtoul(line + 6, &rest, 10);
    l->detail = ru_arena_str(b->arena, rest + strspn(rest, " "));
    l->missing = NULL;
    return RU_OK;
}

ru_status rui_loader_rate(rui_loader *l, const char *path, uint32_t k, double *rate, ru_err *err)
{
    char question[32], *rest;
    const char *answer;
    (void)rui_forget(path);
    snprintf(question, sizeof question, "run %u\n", k);
    RU_TRY(ru_bench_ask(&l->side, question, &answer, err));
    double seconds = strtod(answer, &rest), samples = strtod(rest, NULL);
    if (!(seconds > 0 && samples > 0)) {
        return RU_FAIL(err, RU_E_PEER, "reader_peer.py answered '%s', not seconds and samples",
                       answer);
    }
    *rate = samples / seconds;
    return RU_OK;
}

ru_status rui_loader_choose(ru_bench *b, rui_loader *l, const char *path, ru_err *err)
{
    double most = 0.0, rate;
    for (uint32_t k = 0; k < 2 * l->settings; k++) {
        RU_TRY(rui_loader_rate(l, path, k / 2, &rate, err));
        if (rate > most) {
            most = rate;
            l->best = k / 2;
        }
    }
    char question[32];
    const char *answer;
    snprintf(question, sizeof question, "name %u\n", l->best);
    RU_TRY(ru_bench_ask(&l->side, question, &answer, err));
    l->detail =
        ru_arena_printf(b->arena, "%s DataLoader, best of %u: %s", l->detail, l->settings, answer);
    snprintf(question, sizeof question, "only %u\n", l->best);
    return ru_bench_ask(&l->side, question, &answer, err);
}

/* -- rounds
 * ----------------------------------------------------------------------------------------- */

/* Samples a second of one cold epoch of ours. */
static ru_status our_rate(const cold *c, ru_dataset *d, double *rate, ru_err *err)
{
    const ru_stream_options opt = {.batch = BATCH,
                                   .epochs = 1,
                                   .partial_last = true,
                                   .shuffle = c->shuffle,
                                   .seed = 1,
                                   .threads = ru_pool_cores()};
    int64_t n = 0;
    (void)rui_forget(c->path);
    int64_t begun_ns = ru_clock_now().ns;
    ru_stream *s = NULL;
    ru_batch batch = {.n = 1};
    ru_status st = ru_stream_open(d, &opt, &s, err);
    while (st == RU_OK && batch.n > 0) {
        st = ru_stream_next(s, &batch, err);
        n += st == RU_OK ? batch.n : 0;
    }
    *rate = (double)n / (1e-9 * (double)(ru_clock_now().ns - begun_ns));
    ru_stream_close(s);
    return st;
}

/* The sides in turns; who goes first changes. `scale`: from samples a second to the row's unit. */
static ru_status measure(const cold *c, ru_dataset *d, rui_loader *l, const rui_fio *how,
                         double scale, uint32_t rounds, rates *r, ru_err *err)
{
    for (uint32_t k = 0; k < rounds; k++) {
        for (uint32_t turn = 0; turn < 3; turn++) {
            uint32_t side = (k + turn) % 3;
            if (side == 0) {
                RU_TRY(our_rate(c, d, &r->ours[k], err));
                r->ours[k] *= scale;
            } else if (side == 1 && l->missing == NULL) {
                RU_TRY(rui_loader_rate(l, c->path, l->best, &r->torch[k], err));
                r->torch[k] *= scale;
            } else if (side == 2 && how->rw != NULL) {
                r->fio[k] = rui_fio_rate(c->path, how);
                if (r->fio[k] == 0.0) {
                    return RU_FAIL(err, RU_E_PEER, "fio ended without a rate");
                }
            }
        }
    }
    return RU_OK;
}

static ru_status add_rows(ru_bench *b, const cold *c, const rui_loader *l, const rui_fio *how,
                          uint32_t rounds, rates *r, ru_err *err)
{
    ru_bench_row row = {
        .name = ru_arena_printf(b->arena, "%s%s", c->name, c->data.direct ? ", direct" : ""),
        .unit = c->fio_rw != NULL ? "MB/s" : "images/s",
        .ours = ru_bench_stat_of(r->ours, rounds),
        .missing = l->missing,
        .goal = 1.0,
        .peer = l->missing == NULL ? l->detail : "PyTorch's DataLoader"};
    if (l->missing == NULL) {
        row.theirs = ru_bench_stat_of(r->torch, rounds);
    }
    RU_TRY(ru_bench_add(b, &row, err));
    if (c->fio_rw == NULL) {
        return RU_OK;
    }
    row.theirs = (ru_bench_stat){0};
    row.missing = how->rw == NULL ? rui_fio_missing : NULL;
    row.goal = 0.95;
    row.peer = how->rw == NULL ? "fio" : rui_fio_text(how, c->n_fio_sizes, b->arena);
    if (how->rw != NULL) {
        row.theirs = ru_bench_stat_of(r->fio, rounds);
    }
    return row.peer != NULL ? ru_bench_add(b, &row, err)
                            : RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
}

/* Buffered or direct (data.direct), as for fio: whichever was faster in two rounds of each. */
static ru_status choose(cold *c, ru_dataset **d, ru_err *err)
{
    ru_dataset *two[2] = {NULL};
    double most = 0, rate = 0;
    uint32_t best = 0, n = c->fio_rw != NULL ? 2 : 1;
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < n; k++) {
        c->data.direct = k == 1;
        st = ru_dataset_open(&c->data, &two[k], err);
    }
    for (uint32_t k = 0; st == RU_OK && k < 2 * n; k++) {
        st = our_rate(c, two[k % n], &rate, err);
        best = rate > most ? k % n : best;
        most = rate > most ? rate : most;
    }
    c->data.direct = best == 1;
    *d = two[best];
    ru_dataset_close(two[1 - best]);
    return st;
}

static ru_status bench_case(ru_bench *b, cold *c, ru_err *err)
{
    uint32_t rounds = b->quick ? 3 : 7;
    ru_dataset *d = NULL;
    rui_loader l = {0};
    rui_fio how = {0};
    rates r = {0};
    ru_status st = choose(c, &d, err); /* the host may keep what a guest forgets: read it before */
    double scale = st == RU_OK && c->fio_rw != NULL
                       ? 1e-6 * (double)rui_forget(c->path) / (double)ru_dataset_count(d)
                       : 1.0;
    st = st == RU_OK ? rui_loader_open(b, c->kind, c->path, &l, err) : st;
    if (st == RU_OK && l.missing == NULL) {
        st = rui_loader_choose(b, &l, c->path, err);
    }
    if (st == RU_OK && c->fio_rw != NULL) {
        (void)rui_fio_best(c->path, c->fio_rw, c->fio_sizes, c->n_fio_sizes, &how);
    }
    st = st == RU_OK ? measure(c, d, &l, &how, scale, rounds, &r, err) : st;
    st = st == RU_OK ? add_rows(b, c, &l, &how, rounds, &r, err) : st;
    ru_bench_sides_end(&l.side, 1);
    ru_dataset_close(d);
    return st;
}

static ru_status bench_all(ru_bench *b, const char *dir, ru_err *err)
{
    int64_t n = ((int64_t)(b->quick ? 96 : 256) << 20) / PIXELS;
    const char *packed = ru_path_join(b->arena, dir, "a.pack");
    const char *tar = ru_path_join(b->arena, dir, "a.tar");
    const char *photos = ru_path_join(b->arena, dir, "photos");
    const ru_data_options base = {.n_paths = 1, .raw = true, .resident_max_bytes = -1};
    cold cases[] = {
        {.name = "cold: packed, random samples of 49 kB",
         .kind = "packed",
         .path = packed,
         .shuffle = RU_SHUFFLE_FULL,
         .fio_rw = "randread",
         .fio_sizes = {PIXELS},
         .n_fio_sizes = 1},
        {.name = "cold: tar of arrays, in order",
         .kind = "tar",
         .path = tar,
         .fio_rw = "read",
         .fio_sizes = {128 << 10, 512 << 10, 1 << 20},
         .n_fio_sizes = 3},
        {.name = "cold: folder of JPEGs, decode-bound", .kind = "images", .path = photos},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        cold *c = &cases[k];
        if (!ru_bench_wants(b, c->name)) {
            continue;
        }
        c->data = base;
        c->data.format = c->kind;
        c->data.paths = &c->path;
        if (k == 2) {
            c->data.raw = false;
            c->data.image_size = IMAGE;
        }
        RU_TRY(ru_dir_make(dir, err));
        RU_TRY(k == 0   ? make_packed(b, dir, n, err)
               : k == 1 ? make_tar(tar, n, err)
                        : rui_make_photos(b, photos, b->quick ? 192 : 512, err));
        RU_TRY(bench_case(b, c, err));
        RU_TRY(ru_path_remove(dir, err));
    }
    return RU_OK;
}

ru_status rui_bench_cold(ru_bench *b, ru_err *err)
{
    const char *dir = ru_path_join(b->arena, b->dir, "reader-cold");
    if (dir == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
    }
    ru_status st = bench_all(b, dir, err);
    if (ru_path_exists(dir)) {
        ru_status removed = ru_path_remove(dir, st == RU_OK ? err : NULL);
        st = st == RU_OK ? removed : st;
    }
    return st;
}
