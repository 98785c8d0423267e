/* fio beside our streams: its best over request sizes, depths, direct and buffered. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/reader/reader.h"
#include "env/process/process.h"

static const uint32_t depths[] = {2, 8, 32, 64};

const char rui_fio_missing[] = "fio is not installed (apt-get install fio)";

double rui_fio_rate(const char *path, const rui_fio *how)
{
    enum { RATE_FIELD = 7 }; /* of --minimal: KiB a second */
    char file[4200], rw[32], size[32], depth[32], direct[32];
    snprintf(file, sizeof file, "--filename=%s", path);
    snprintf(rw, sizeof rw, "--rw=%s", how->rw);
    snprintf(size, sizeof size, "--bs=%lld", (long long)how->size_bytes);
    snprintf(depth, sizeof depth, "--iodepth=%u", how->depth);
    snprintf(direct, sizeof direct, "--direct=%d", how->direct);
    const char *argv[] = {"fio",
                          "--name=bench",
                          file,
                          rw,
                          size,
                          depth,
                          direct,
                          "--readonly",
                          "--ioengine=io_uring",
                          "--minimal",
                          "--randrepeat=0",
                          NULL};
    ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    ru_process *p = NULL;
    const char *line = NULL;
    double rate = 0.0;
    (void)rui_forget(path);
    if (ru_process_start(&opt, &p, NULL) != RU_OK) {
        return 0.0;
    }
    if (ru_process_line(p, 0, &line, NULL) == RU_OK && line != NULL) {
        int field = 1;
        for (const char *c = line; *c != '\0' && field < RATE_FIELD; c++) {
            field += *c == ';';
            rate = field == RATE_FIELD ? strtod(c + 1, NULL) * 1024.0 / 1e6 : rate;
        }
    }
    ru_process_close(p);
    return rate;
}

double rui_fio_best(const char *path, const char *rw, const int64_t *sizes, uint32_t n,
                    rui_fio *best)
{
    double most = 0.0;
    for (uint32_t k = 0; k < n * 2 * RU_ARRAY_LEN(depths); k++) {
        uint32_t size = k / (2 * RU_ARRAY_LEN(depths));
        rui_fio how = {.rw = rw,
                       .size_bytes = sizes[size],
                       .depth = depths[k / 2 % RU_ARRAY_LEN(depths)],
                       .direct = k % 2 == 0};
        double rate = rui_fio_rate(path, &how);
        if (rate > most) {
            most = rate;
            *best = how;
        }
        if (most == 0.0) { /* no fio, or none that runs: once is enough to know */
            break;
        }
    }
    return most;
}

const char *rui_fio_text(const rui_fio *how, uint32_t n_sizes, ru_arena *arena)
{
    return ru_arena_printf(arena, "fio, best of %u: %lld KiB, depth %u, %s",
                           (unsigned)(n_sizes * 2 * RU_ARRAY_LEN(depths)),
                           (long long)how->size_bytes >> 10, how->depth,
                           how->direct ? "direct" : "buffered");
}
