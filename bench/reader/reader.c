/* rubato bench reader: how fast streams deliver, against the disk and against Pillow.
 *
 * Files are read from the disk, not from memory: before each round the kernel is told to forget
 * them. Our round, a plain sequential read of the same file and fio take turns. Random samples, tar
 * files and folders of images beside fio and PyTorch's DataLoader: reader_cold.c. */
#include "bench/reader/reader.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <turbojpeg.h>

#include "base/rng.h"
#include "bench/reader/reader_http.h"
#include "data/make/make.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"

enum { PIECE = 1 << 20, PHOTOS = 96, PHOTO_WIDTH = 500, PHOTO_HEIGHT = 375 };

typedef struct reader_case {
    const char *name;
    ru_data_options data;
    int64_t batch;
    const char *path; /* the file whose bytes count */
    double goal;
    ru_shuffle shuffle;
} reader_case;

static double seconds_since(int64_t from_ns)
{
    return (double)(ru_clock_now().ns - from_ns) * 1e-9;
}

static int64_t forget_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st = {0};
    if (fd >= 0) {
        (void)fsync(fd);
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        (void)fstat(fd, &st);
        close(fd);
    }
    return st.st_size;
}

int64_t rui_forget(const char *path)
{
    if (!ru_path_is_dir(path)) {
        return forget_file(path);
    }
    ru_arena arena;
    char **names = NULL;
    uint32_t n = 0;
    int64_t bytes = 0;
    ru_arena_init(&arena, 0);
    if (ru_dir_list(path, &arena, &names, &n, NULL) == RU_OK) {
        for (uint32_t k = 0; k < n; k++) {
            const char *inner = ru_path_join(&arena, path, names[k]);
            bytes += inner != NULL ? rui_forget(inner) : 0;
        }
    }
    ru_arena_fini(&arena);
    return bytes;
}

ru_status rui_make_file(const char *path, const void *head, int64_t head_bytes, int64_t bytes,
                        ru_err *err)
{
    ru_out *out = NULL;
    uint32_t *piece = malloc(PIECE);
    if (piece == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %s", path);
    }
    ru_status st = ru_out_open(path, &out, err);
    if (st == RU_OK && head_bytes > 0) {
        st = ru_out_write(out, head, head_bytes, err);
    }
    for (int64_t at = 0; st == RU_OK && at < bytes; at += PIECE) {
        for (uint32_t i = 0; i < PIECE / 16; i++) {
            ru_philox_at(1, 2, (uint64_t)at + i, piece + 4 * i);
        }
        st = ru_out_write(out, piece, bytes - at < PIECE ? bytes - at : PIECE, err);
    }
    if (st == RU_OK) {
        st = ru_out_commit(out, err);
    }
    ru_out_close(out);
    free(piece);
    return st;
}

/* One pass over the set through a stream, of at most `most` samples; bytes of `path` per second. */
static ru_status stream_rate(const reader_case *c, uint32_t threads, int64_t most, double *mb_per_s,
                             int64_t *samples, ru_err *err)
{
    int64_t bytes = rui_forget(c->path), t0 = ru_clock_now().ns;
    ru_dataset *d = NULL;
    ru_stream *s = NULL;
    RU_TRY(ru_dataset_open(&c->data, &d, err));
    ru_stream_options opt = {.batch = c->batch,
                             .epochs = 1,
                             .partial_last = true,
                             .shuffle = c->shuffle,
                             .threads = threads,
                             .ahead = 4};
    ru_status st = ru_stream_open(d, &opt, &s, err);
    *samples = 0;
    while (st == RU_OK && *samples < most) {
        ru_batch b;
        st = ru_stream_next(s, &b, err);
        if (st != RU_OK || b.n == 0) {
            break;
        }
        *samples += b.n;
    }
    double part = (double)*samples / (double)ru_dataset_count(d);
    *mb_per_s = (double)bytes * part / 1e6 / seconds_since(t0);
    ru_stream_close(s);
    ru_dataset_close(d);
    return st;
}

static ru_status plain_rate(const char *path, double *mb_per_s, ru_err *err)
{
    int64_t bytes = rui_forget(path), t0 = ru_clock_now().ns;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *piece = malloc(PIECE);
    if (fd < 0 || piece == NULL) {
        free(piece);
        return RU_FAIL(err, RU_E_IO, "cannot read %s", path);
    }
    while (read(fd, piece, PIECE) > 0) {
    }
    close(fd);
    free(piece);
    *mb_per_s = (double)bytes / 1e6 / seconds_since(t0);
    return RU_OK;
}

static ru_status bench_file(ru_bench *b, const reader_case *c, rui_fio *how, ru_err *err)
{
    if (!ru_bench_wants(b, c->name)) {
        return RU_OK;
    }
    static const int64_t sizes[] = {128 << 10, 1 << 20};
    uint32_t rounds = b->quick ? 3 : 7;
    double ours[RU_BENCH_ROUNDS_MAX], plain[RU_BENCH_ROUNDS_MAX], fio[RU_BENCH_ROUNDS_MAX];
    int64_t samples = 0;
    RU_TRY(plain_rate(c->path, &plain[0], err)); /* the host may keep what a guest forgets */
    if (how->rw == NULL) { /* once for all files: they differ in nothing that fio sees */
        (void)rui_fio_best(c->path, "read", sizes, RU_ARRAY_LEN(sizes), how);
    }
    bool has_fio = how->rw != NULL;
    for (uint32_t k = 0; k < rounds; k++) {
        for (uint32_t side = 0; side < 2; side++) { /* who goes first changes */
            if ((k + side) % 2 == 0) {
                RU_TRY(stream_rate(c, 2, INT64_MAX, &ours[k], &samples, err));
            } else {
                RU_TRY(plain_rate(c->path, &plain[k], err));
            }
        }
        fio[k] = has_fio ? rui_fio_rate(c->path, how) : 0.0;
        has_fio = fio[k] > 0.0;
    }
    ru_bench_row row = {.name = c->name,
                        .unit = "MB/s",
                        .ours = ru_bench_stat_of(ours, rounds),
                        .goal = c->goal,
                        .peer = "fio"};
    if (has_fio) {
        row.theirs = ru_bench_stat_of(fio, rounds);
        row.peer = rui_fio_text(how, RU_ARRAY_LEN(sizes), b->arena);
    } else {
        row.missing = rui_fio_missing;
    }
    ru_bench_stat mine = row.ours;
    RU_TRY(ru_bench_add(b, &row, err));
    char *name = ru_arena_printf(b->arena, "%s, buffered", c->name);
    row = (ru_bench_row){.name = name,
                         .unit = "MB/s",
                         .ours = mine,
                         .goal = c->goal,
                         .theirs = ru_bench_stat_of(plain, rounds),
                         .peer = "plain read"};
    return name != NULL ? ru_bench_add(b, &row, err)
                        : RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
}

/* A cold file in random order: blocks against every sample by itself, which is given two seconds.
 */
static ru_status bench_orders(ru_bench *b, const ru_data_options *data, const char *path,
                              ru_err *err)
{
    reader_case c = {"idx u8, cold, shuffled in blocks", *data, 512, path, 0.0, RU_SHUFFLE_BLOCK};
    if (!ru_bench_wants(b, c.name)) {
        return RU_OK;
    }
    uint32_t rounds = b->quick ? 3 : 7;
    double blocks[RU_BENCH_ROUNDS_MAX], full[RU_BENCH_ROUNDS_MAX];
    int64_t samples, most = ru_path_bytes(path) / 784 / 32;
    for (uint32_t k = 0; k < 2 * rounds; k++) {
        bool ours = (k + k / 2) % 2 == 0; /* who goes first changes */
        c.shuffle = ours ? RU_SHUFFLE_BLOCK : RU_SHUFFLE_FULL;
        RU_TRY(stream_rate(&c, 2, ours ? INT64_MAX : most, ours ? &blocks[k / 2] : &full[k / 2],
                           &samples, err));
    }
    ru_bench_row row = {.name = c.name,
                        .unit = "MB/s",
                        .ours = ru_bench_stat_of(blocks, rounds),
                        .goal = 2.0,
                        .theirs = ru_bench_stat_of(full, rounds),
                        .peer = "full shuffle"};
    return ru_bench_add(b, &row, err);
}

static ru_status bench_files(ru_bench *b, ru_err *err)
{
    int64_t bytes = (int64_t)(b->quick ? 128 : 512) << 20, n = bytes / 784;
    const char *tokens[] = {ru_path_join(b->arena, b->dir, "reader.u16")};
    const char *idx[] = {ru_path_join(b->arena, b->dir, "reader-images")};
    const uint8_t head[16] = {0,
                              0,
                              8,
                              3,
                              (uint8_t)(n >> 24),
                              (uint8_t)(n >> 16),
                              (uint8_t)(n >> 8),
                              (uint8_t)n,
                              0,
                              0,
                              0,
                              28,
                              0,
                              0,
                              0,
                              28};
    RU_TRY(rui_make_file(tokens[0], NULL, 0, bytes, err));
    RU_TRY(rui_make_file(idx[0], head, sizeof head, n * 784, err));
    ru_data_options t = {.format = "tokens",
                         .paths = tokens,
                         .n_paths = 1,
                         .context = 1024,
                         .classes = 65536,
                         .raw = true,
                         .resident_max_bytes = -1};
    ru_data_options wide = t;
    wide.raw = false;
    ru_data_options i = {
        .format = "idx", .paths = idx, .n_paths = 1, .raw = true, .resident_max_bytes = -1};
    ru_data_options scaled = i;
    scaled.raw = false;
    const reader_case cases[] = {
        {"tokens u16 as they are", t, 256, tokens[0], 0.9, RU_SHUFFLE_NONE},
        {"tokens u16 to i64", wide, 256, tokens[0], 0.9, RU_SHUFFLE_NONE},
        {"idx u8 as they are", i, 512, idx[0], 0.9, RU_SHUFFLE_NONE},
        {"idx u8 to scaled f32", scaled, 512, idx[0], 0.9, RU_SHUFFLE_NONE},
    };
    ru_status st = RU_OK;
    rui_fio how = {0};
    for (uint32_t k = 0; st == RU_OK && k < RU_ARRAY_LEN(cases); k++) {
        st = bench_file(b, &cases[k], &how, err);
    }
    if (st == RU_OK) {
        st = bench_orders(b, &i, idx[0], err);
    }
    ru_status removed = ru_path_remove(tokens[0], st == RU_OK ? err : NULL);
    removed = removed == RU_OK ? ru_path_remove(idx[0], st == RU_OK ? err : NULL) : removed;
    return st == RU_OK ? removed : st;
}

/* -- from memory: what a training step would wait for
 * ---------------------------------------------- */

static ru_status bench_shuffled(ru_bench *b, ru_err *err)
{
    const char *name = "digits, shuffled, 1 thread";
    if (!ru_bench_wants(b, name)) {
        return RU_OK;
    }
    const char *dir = ru_path_join(b->arena, b->dir, "reader-digits");
    ru_make_options make = {.name = "digits", .dir = dir, .count = 20000, .test_count = -1};
    ru_make_report report;
    RU_TRY(ru_data_make(&make, &report, err));
    const char *paths[] = {ru_path_join(b->arena, dir, "train-images"),
                           ru_path_join(b->arena, dir, "train-labels")};
    ru_data_options data = {.format = "idx", .paths = paths, .n_paths = 2};
    ru_dataset *d = NULL;
    ru_stream *s = NULL;
    double v[RU_BENCH_ROUNDS_MAX];
    uint32_t rounds = b->quick ? 3 : 7;
    RU_TRY(ru_dataset_open(&data, &d, err));
    ru_stream_options so = {.batch = 128, .shuffle = RU_SHUFFLE_FULL, .seed = 1};
    ru_status st = ru_stream_open(d, &so, &s, err);
    for (uint32_t k = 0; st == RU_OK && k < rounds; k++) {
        int64_t t0 = ru_clock_now().ns, n = 0;
        while (st == RU_OK && n < 256000) {
            ru_batch batch;
            st = ru_stream_next(s, &batch, err);
            n += batch.n;
        }
        v[k] = (double)n / seconds_since(t0);
    }
    ru_stream_close(s);
    ru_dataset_close(d);
    RU_TRY(st);
    RU_TRY(ru_path_remove(dir, err));
    ru_bench_row row = {.name = name, .unit = "samples/s", .ours = ru_bench_stat_of(v, rounds)};
    return ru_bench_add(b, &row, err);
}

/* -- photos
 * ---------------------------------------------------------------------------------------- */

ru_status rui_make_photo(const char *path, uint64_t k, ru_err *err)
{
    uint8_t *rgb = malloc(3 * PHOTO_WIDTH * PHOTO_HEIGHT), *jpeg = NULL;
    unsigned long bytes = 0;
    if (rgb == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %s", path);
    }
    ru_rng r = ru_rng_from(k, 1);
    for (int64_t y = 0; y < PHOTO_HEIGHT; y++) {
        for (int64_t x = 0; x < PHOTO_WIDTH; x++) {
            uint32_t grain = ru_rng_u32(&r);
            int64_t base = (x * (3 + (int64_t)k % 5) / 4 + y) % 256;
            int64_t edge = (x / 40 + y / 30 + (int64_t)k) % 3 * 40;
            for (int64_t c = 0; c < 3; c++) {
                int64_t v = base / (c + 1) + edge + (int64_t)(grain >> (8 * c) & 15);
                rgb[3 * (y * PHOTO_WIDTH + x) + c] = (uint8_t)(v > 255 ? 255 : v);
            }
        }
    }
    tjhandle h = tjInitCompress();
    int rc = h == NULL ? -1
                       : tjCompress2(h, rgb, PHOTO_WIDTH, 0, PHOTO_HEIGHT, TJPF_RGB, &jpeg, &bytes,
                                     TJSAMP_420, 90, 0);
    ru_status st = rc == 0 ? ru_file_replace(path, jpeg, (int64_t)bytes, err)
                           : RU_FAIL(err, RU_E_MEM, "cannot encode %s", path);
    tjFree(jpeg);
    if (h != NULL) {
        (void)tjDestroy(h);
    }
    free(rgb);
    return st;
}

/* The same work in Python: decode, shorter side to 224, middle, array. */
static const char pillow_text[] =
    "import glob,sys,time\n"
    "import numpy as np\n"
    "from PIL import Image\n"
    "def one(p):\n"
    "    im=Image.open(p).convert('RGB'); w,h=im.size\n"
    "    s=(224,224*h//w) if w<h else (224*w//h,224)\n"
    "    im=im.resize(s,Image.BILINEAR); l,t=(s[0]-224+1)//2,(s[1]-224+1)//2\n"
    "    a=np.asarray(im.crop((l,t,l+224,t+224)))\n"
    "    return np.multiply(a.transpose(2,0,1),np.float32(1/255),dtype=np.float32)\n"
    "files=sorted(glob.glob(sys.argv[1]+'/*/*.jpg'))\n"
    "one(files[0]); t=time.perf_counter()\n"
    "for p in files: one(p)\n"
    "print(len(files)/(time.perf_counter()-t))\n";

static double pillow_rate(const char *dir)
{
    const char *argv[] = {"python3", "-c", pillow_text, dir, NULL};
    ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    ru_process *p = NULL;
    const char *line = NULL;
    double rate = 0.0;
    if (ru_process_start(&opt, &p, NULL) == RU_OK && ru_process_line(p, 0, &line, NULL) == RU_OK &&
        line != NULL) {
        rate = strtod(line, NULL);
    }
    ru_process_close(p);
    return rate;
}

static ru_status bench_photos(ru_bench *b, ru_err *err)
{
    const char *name = "jpeg 500x375 to 224, 1 thread";
    if (!ru_bench_wants(b, name)) {
        return RU_OK;
    }
    const char *dir = ru_path_join(b->arena, b->dir, "reader-photos");
    const char *inner = ru_path_join(b->arena, dir, "one");
    RU_TRY(ru_dir_make(inner, err));
    for (uint64_t k = 0; k < PHOTOS; k++) {
        char file[32];
        snprintf(file, sizeof file, "%03d.jpg", (int)k);
        RU_TRY(rui_make_photo(ru_path_join(b->arena, inner, file), k, err));
    }
    const char *paths[] = {dir};
    reader_case c = {name, {.format = "images", .paths = paths, .n_paths = 1, .image_size = 224},
                     16,   dir,
                     0.0,  RU_SHUFFLE_NONE};
    uint32_t rounds = b->quick ? 3 : 7;
    double ours[RU_BENCH_ROUNDS_MAX], theirs[RU_BENCH_ROUNDS_MAX], ignored;
    bool has = true;
    for (uint32_t k = 0; k < rounds; k++) {
        int64_t t0 = ru_clock_now().ns, samples = 0;
        RU_TRY(stream_rate(&c, 1, INT64_MAX, &ignored, &samples, err));
        ours[k] = (double)samples / seconds_since(t0);
        theirs[k] = has ? pillow_rate(dir) : 0.0;
        has = theirs[k] > 0.0;
    }
    RU_TRY(ru_path_remove(dir, err));
    ru_bench_row row = {.name = name,
                        .unit = "images/s",
                        .ours = ru_bench_stat_of(ours, rounds),
                        .peer = "Pillow",
                        .goal = 1.0};
    if (has) {
        row.theirs = ru_bench_stat_of(theirs, rounds);
    } else {
        row.missing = "python3 with Pillow is not installed (pip install pillow numpy)";
    }
    return ru_bench_add(b, &row, err);
}

ru_status ru_bench_reader(ru_bench *b, ru_err *err)
{
    bool only_disk = strncmp(b->only, "disk:", 5) == 0;
    bool only_other =
        only_disk || strncmp(b->only, "cold:", 5) == 0 || strncmp(b->only, "fixed:", 6) == 0;
    if (!only_other && strcmp(b->only, "http") != 0) { /* they write large files */
        RU_TRY(bench_files(b, err));
        RU_TRY(bench_shuffled(b, err));
        RU_TRY(bench_photos(b, err));
    }
    RU_TRY(rui_bench_cold(b, err));
    RU_TRY(rui_bench_fixed(b, err));
    if (only_disk) { /* minutes: not unless asked for */
        return rui_bench_disk(b, err);
    }
    return ru_bench_http(b, err);
}
