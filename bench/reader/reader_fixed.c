/* Processor time of a read by io_uring, with fixed files and memory and without: `rubato bench
 * reader --only fixed:`.
 *
 * Random pieces of one file by one engine (env/file/reads.h), the two kinds in turns. Direct reads
 * come from the disk, the others from the kernel's cache, so that copying is their only other cost.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "bench/reader/reader.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/file/reads.h"

enum { FILE_BYTES = 64 << 20, DEPTH = 32, PIECES_MAX = 512 };

typedef struct fixed_case {
    const char *name;
    int64_t size_bytes;
    bool direct;
} fixed_case;

/* The engine's memory, and pieces at random places that fill it. */
static uint32_t make_pieces(const fixed_case *c, int fd, uint8_t *memory, int64_t bytes,
                            ru_read_piece *p)
{
    ru_rng r = ru_rng_from(5, 1);
    uint32_t n = (uint32_t)(bytes / c->size_bytes);
    n = n < PIECES_MAX ? n : PIECES_MAX;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t place = ru_rng_below(&r, (uint32_t)(FILE_BYTES / c->size_bytes));
        p[k] = (ru_read_piece){.fd = fd,
                               .direct = c->direct,
                               .offset = place * c->size_bytes,
                               .size_bytes = c->size_bytes,
                               .into = memory + k * c->size_bytes};
    }
    return n;
}

/* Microseconds of a read: of the processor in user and kernel mode. */
static ru_status cpu_of(const fixed_case *c, ru_reads_kind kind, int fd, uint32_t sets, double *us,
                        ru_err *err)
{
    enum { MEMORY = 4 << 20 };
    ru_read_piece *p = malloc(PIECES_MAX * sizeof *p);
    uint8_t *memory = aligned_alloc(RU_DIRECT_BYTES, MEMORY);
    if (p == NULL || memory == NULL) {
        free(p);
        free(memory);
        return RU_FAIL(err, RU_E_MEM, "no memory for reads");
    }
    memset(memory, 1, MEMORY);
    ru_reads *r = NULL;
    ru_status st = ru_reads_open(DEPTH, kind, &r, err);
    if (st == RU_OK) {
        ru_reads_memory(r, memory, MEMORY);
        const char *why = ru_reads_plain_why(r);
        st = why == NULL ? st : RU_FAIL(err, RU_E_UNSUPPORTED, "no fixed memory: %s", why);
    }
    uint32_t n = make_pieces(c, fd, memory, MEMORY, p);
    int64_t before = 0;
    for (uint32_t k = 0; st == RU_OK && k <= sets; k++) {
        before = k == 1 ? ru_clock_cpu_ns() : before; /* the first set warms up */
        ru_reads_begin(r, p, n, DEPTH);
        ru_reads_end(r);
        for (uint32_t i = 0; st == RU_OK && i < n; i++) {
            st = p[i].got_bytes == p[i].size_bytes ? st : RU_FAIL(err, RU_E_IO, "a short read");
        }
    }
    *us = 1e-3 * (double)(ru_clock_cpu_ns() - before) / ((double)sets * n);
    ru_reads_close(r);
    free(memory);
    free(p);
    return st;
}

static ru_status bench_case(ru_bench *b, const fixed_case *c, const char *path, ru_err *err)
{
    double fixed[RU_BENCH_ROUNDS_MAX], plain[RU_BENCH_ROUNDS_MAX];
    uint32_t rounds = b->quick ? 5 : 15, sets = c->size_bytes <= 4096 ? 16 : 8;
    ru_bench_row row = {
        .name = c->name, .unit = "us/read", .lower = true, .peer = "io_uring without"};
    row.goal = c->direct ? 1.0 : 0.95; /* a gain, or no loss */
    int fd = open(path, O_RDONLY | O_CLOEXEC | (c->direct ? O_DIRECT : 0));
    if (fd < 0) {
        row.missing = "the file system of the folder does not allow direct reads";
        return ru_bench_add(b, &row, err);
    }
    ru_status st = RU_OK;
    for (uint32_t k = 0; st == RU_OK && k < 2 * rounds; k++) {
        bool ours = (k + k / 2) % 2 == 0; /* who goes first changes */
        st = cpu_of(c, ours ? RU_READS_BEST : RU_READS_PLAIN, fd, sets,
                    ours ? &fixed[k / 2] : &plain[k / 2], err);
    }
    close(fd);
    RU_TRY(st);
    row.ours = ru_bench_stat_of(fixed, rounds);
    row.theirs = ru_bench_stat_of(plain, rounds);
    return ru_bench_add(b, &row, err);
}

ru_status rui_bench_fixed(ru_bench *b, ru_err *err)
{
    static const fixed_case cases[] = {
        {"fixed: direct reads of 4 KiB", 4 << 10, true},
        {"fixed: direct reads of 64 KiB", 64 << 10, true},
        {"fixed: cached reads of 4 KiB", 4 << 10, false},
        {"fixed: cached reads of 64 KiB", 64 << 10, false},
    };
    const char *path = ru_path_join(b->arena, b->dir, "reader-fixed");
    ru_status st = RU_OK;
    bool made = false;
    for (uint32_t k = 0; st == RU_OK && k < RU_ARRAY_LEN(cases); k++) {
        if (!ru_bench_wants(b, cases[k].name)) {
            continue;
        }
        st = made ? RU_OK : rui_make_file(path, NULL, 0, FILE_BYTES, err);
        made = true;
        st = st == RU_OK ? bench_case(b, &cases[k], path, err) : st;
    }
    if (made && ru_path_exists(path)) {
        ru_status removed = ru_path_remove(path, st == RU_OK ? err : NULL);
        st = st == RU_OK ? removed : st;
    }
    return st;
}
