/* Our side of the collectives benchmark in shared memory: one rank.
 *
 * Says "ready HANDLE"; reads "join HANDLE0 HANDLE1 ..."; then lines "BYTES TIMES", answered with
 * the seconds of TIMES all-reduces of floats. The first all-reduce of every line is checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "bench/wire/collective.h"
#include "comm/coll/coll_shm.h"
#include "env/clock.h"

enum { WORDS_MAX = 1 + RU_COLL_SHM_RANKS_MAX, LINE_BYTES = 16384 };

static ru_status join(ru_coll_shm *c, uint32_t rank, uint32_t n, char *line, ru_err *err)
{
    const char *words[WORDS_MAX];
    uint32_t k = 0;
    char *rest = NULL;
    for (char *w = strtok_r(line, " \n", &rest); w != NULL && k < WORDS_MAX;
         w = strtok_r(NULL, " \n", &rest)) {
        words[k++] = w;
    }
    if (k != n + 1) {
        return RU_FAIL(err, RU_E_USAGE, "join needs %u handles, got %u", n, k - 1);
    }
    return ru_coll_shm_join(c, words + 1, n, rank, 1, err);
}

/* Rank r holds r + 1 everywhere: the sum is known. */
static ru_status check_sum(ru_coll_shm *c, uint32_t rank, uint32_t n, int64_t bytes, ru_err *err)
{
    float *data = ru_coll_shm_data(c);
    int64_t count = bytes / 4;
    for (int64_t i = 0; i < count; i++) {
        data[i] = (float)(rank + 1);
    }
    ru_coll_shm_range range = {0, bytes};
    RU_TRY(ru_coll_shm_all_reduce(c, RU_F32, &range, 1));
    float want = (float)(n * (n + 1) / 2);
    for (int64_t i = 0; i < count; i++) {
        if (data[i] != want) {
            return RU_FAIL(err, RU_E_BUG, "element %lld of %lld is %g, expected %g", (long long)i,
                           (long long)count, (double)data[i], (double)want);
        }
    }
    memset(data, 0, (size_t)bytes);
    return RU_OK;
}

static ru_status measure(ru_coll_shm *c, uint32_t rank, uint32_t n, const char *line, ru_err *err)
{
    char *rest;
    int64_t bytes = strtoll(line, &rest, 10), times = strtoll(rest, NULL, 10);
    if (bytes < 4 || bytes % 4 != 0 || times < 1) {
        return RU_FAIL(err, RU_E_USAGE, "expected BYTES TIMES, got '%s'", line);
    }
    RU_TRY(check_sum(c, rank, n, bytes, err));
    RU_TRY(ru_coll_shm_barrier(c));
    ru_coll_shm_range range = {0, bytes};
    ru_time begin = ru_clock_now();
    for (int64_t k = 0; k < times; k++) {
        RU_TRY(ru_coll_shm_all_reduce(c, RU_F32, &range, 1));
    }
    printf("%.9f\n", (double)ru_time_since(ru_clock_now(), begin) * 1e-9);
    fflush(stdout);
    return RU_OK;
}

ru_status ru_bench_coll_shm_worker(const char *const *words, uint32_t n_words, ru_err *err)
{
    if (n_words < 5) {
        return RU_FAIL(err, RU_E_USAGE, "a rank needs: collective shm RANK RANKS BYTES_MAX");
    }
    uint32_t rank = (uint32_t)strtoul(words[2], NULL, 10);
    uint32_t n = (uint32_t)strtoul(words[3], NULL, 10);
    ru_coll_shm_options opt = {
        .data_bytes = strtoll(words[4], NULL, 10),
        .block_bytes = n_words > 5 ? strtoll(words[5], NULL, 10) : 0,
    };
    ru_coll_shm *c;
    RU_TRY(ru_coll_shm_open(&opt, &c, err));
    memset(ru_coll_shm_data(c), 0, (size_t)opt.data_bytes);
    printf("ready %s\n", ru_coll_shm_handle(c));
    fflush(stdout);
    static const char quit[] = "quit";
    char *line = malloc(LINE_BYTES);
    ru_status st = line != NULL ? RU_OK : RU_E_MEM;
    bool joined = false;
    while (st == RU_OK && fgets(line, LINE_BYTES, stdin) != NULL &&
           strncmp(line, quit, sizeof quit - 1) != 0) {
        st = joined ? measure(c, rank, n, line, err) : join(c, rank, n, line, err);
        joined = true;
    }
    free(line);
    ru_coll_shm_close(c);
    return st;
}
