/* What the files of `rubato bench reader` share: files to read, cold again and again, and fio.
 *
 * Thread: main only. */
#ifndef RU_BENCH_READER_H
#define RU_BENCH_READER_H

#include "bench/bench.h"

/* Forget the pages of a file, or of all files below a folder, so that the next read comes from the
 * disk (POSIX_FADV_DONTNEED: needs no root and leaves the files of others alone); their bytes. */
int64_t rui_forget(const char *path);

/* A file of `head`, then `bytes` that mean nothing. */
RU_MUST_USE ru_status rui_make_file(const char *path, const void *head, int64_t head_bytes,
                                    int64_t bytes, ru_err *err);
/* Picture k, with edges and texture, 500 x 375, as a JPEG of about 70 kB. */
RU_MUST_USE ru_status rui_make_photo(const char *path, uint64_t k, ru_err *err);

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
/* Rows of processor time with fixed files and memory. */
ru_status rui_bench_fixed(ru_bench *b, ru_err *err);

#endif
