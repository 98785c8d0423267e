/* What the files of `rubato bench reader` share: files to read, cold again and again, and fio.
 *
 * Thread: main only. */
#ifndef RU_BENCH_READER_H
#define RU_BENCH_READER_H

#include "bench/bench.h"
#include "data/reader.h"

/* Forget the pages of a file, or of all files below a folder, so that the next read comes from the
 * disk (POSIX_FADV_DONTNEED: needs no root and leaves the files of others alone); their bytes. */
int64_t rui_forget(const char *path);

/* A file of `head`, then `bytes` that mean nothing. */
RU_MUST_USE ru_status rui_make_file(const char *path, const void *head, int64_t head_bytes,
                                    int64_t bytes, ru_err *err);
/* Picture k, with edges and texture, 500 x 375, as a JPEG of about 70 kB. */
RU_MUST_USE ru_status rui_make_photo(const char *path, uint64_t k, ru_err *err);

/* n of them in a folder of `dir`. */
RU_MUST_USE ru_status rui_make_photos(ru_bench *b, const char *dir, uint32_t n, ru_err *err);

enum { RUI_READER_BATCH = 64 };

/* PyTorch's DataLoader (bench/reader_peer.py), and its settings. */
typedef struct rui_loader {
    ru_bench_side side; /* its process alone; ru_bench_sides_end */
    const char *missing, *detail;
    uint32_t settings, best;
} rui_loader;

/* Over the files of `path`; kind: a word of reader_peer.py. l->missing says why it is not there. */
RU_MUST_USE ru_status rui_loader_open(ru_bench *b, const char *kind, const char *path,
                                      rui_loader *l, ru_err *err);
/* Two epochs with each setting, the first of which starts the workers; only the fastest stays. */
RU_MUST_USE ru_status rui_loader_choose(ru_bench *b, rui_loader *l, const char *path, ru_err *err);
/* Samples a second of one cold epoch with setting k. */
RU_MUST_USE ru_status rui_loader_rate(rui_loader *l, const char *path, uint32_t k, double *rate,
                                      ru_err *err);

/* Samples a second of one epoch in batches, shuffled; ms of the processor for one of them. */
RU_MUST_USE ru_status rui_reader_epoch(ru_dataset *d, uint32_t threads, double *rate, double *ms,
                                       ru_err *err);

/* One job of fio with io_uring. */
typedef struct rui_fio {
    const char *rw; /* "read", "randread" */
    int64_t size_bytes;
    uint32_t depth;
    bool direct; /* past the page cache */
} rui_fio;

extern const char rui_fio_missing[]; /* what to install */
/* MB/s over the whole file, which is forgotten before; 0: fio is not there. */
double rui_fio_rate(const char *path, const rui_fio *how);
/* Fastest of depths 2 to 64, direct and buffered, at each of `sizes` [n]; its rate. */
double rui_fio_best(const char *path, const char *rw, const int64_t *sizes, uint32_t n,
                    rui_fio *best);
/* "fio, best of 16: 1 MiB, depth 8, direct" in `arena`; NULL: the arena is full. */
const char *rui_fio_text(const rui_fio *how, uint32_t n_sizes, ru_arena *arena);

/* Rows of cold files beside fio and PyTorch's DataLoader. */
ru_status rui_bench_cold(ru_bench *b, ru_err *err);
/* Rows of the tuner on the disk. */
ru_status rui_bench_disk(ru_bench *b, ru_err *err);
/* Rows of files of programs on two throttled folders in `dir`. */
ru_status rui_bench_live(ru_bench *b, const char *dir, ru_err *err);
/* The same on file systems of loop devices; its worker (bench/worker.c). Errors: RU_E_PERM,
 * RU_E_MISSING, RU_E_CANCELLED. */
ru_status rui_bench_loop(ru_bench *b, const char *dir, ru_err *err);
ru_status rui_bench_loop_worker(const char *const *words, uint32_t n, ru_err *err);
/* Rows of data and checkpoints in a store. */
ru_status rui_bench_far(ru_bench *b, const char *dir, ru_err *err);
/* Rows of data.cache: auto. */
ru_status rui_bench_auto(ru_bench *b, const char *dir, ru_err *err);
/* rubato bench storage. */
ru_status ru_bench_storage(ru_bench *b, ru_err *err);
/* Rows of processor time with fixed files and memory. */
ru_status rui_bench_fixed(ru_bench *b, ru_err *err);

#endif
