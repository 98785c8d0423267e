/* The additions of the collectives benchmark: bytes moved a second beside those of a copy. */
#include <stdlib.h>
#include <string.h>

#include "bench/wire/collective.h"
#include "comm/coll/coll_add.h"
#include "env/clock.h"

enum { ROUNDS = 7 };

static const double round_s = 0.05;

typedef struct buffers {
    void *mine, *theirs;
    int64_t bytes;
    ru_dtype dtype;
} buffers;

/* Reads two, writes one. */
static double add_once(const buffers *x)
{
    ru_coll_add(x->dtype, x->mine, x->theirs, x->bytes / ru_dtype_bytes(x->dtype), false);
    return 3.0 * (double)x->bytes;
}

/* Reads one, writes one. */
static double copy_once(const buffers *x)
{
    memcpy(x->mine, x->theirs, (size_t)x->bytes);
    return 2.0 * (double)x->bytes;
}

/* GB/s over about a round. */
static double rate(const buffers *x, double (*once)(const buffers *))
{
    ru_time begin = ru_clock_now();
    double moved = 0, took;
    do {
        moved += once(x);
        took = (double)ru_time_since(ru_clock_now(), begin) * 1e-9;
    } while (took < round_s);
    return moved / took * 1e-9;
}

static ru_status one(ru_bench *b, ru_dtype dtype, int64_t bytes, ru_err *err)
{
    const char *name = ru_arena_printf(b->arena, "add %s %s (%s)", ru_dtype_name(dtype),
                                       rui_team_size(b->arena, bytes), ru_coll_add_isa());
    if (!ru_bench_wants(b, name)) {
        return RU_OK;
    }
    buffers x = {.bytes = bytes, .dtype = dtype};
    x.mine = calloc(1, (size_t)bytes);
    x.theirs = calloc(1, (size_t)bytes);
    double ours[ROUNDS], theirs[ROUNDS];
    for (uint32_t r = 0; r < ROUNDS && x.mine != NULL && x.theirs != NULL; r++) {
        theirs[r] = rate(&x, copy_once);
        memset(x.mine, 0, (size_t)bytes);
        ours[r] = rate(&x, add_once);
    }
    bool room = x.mine != NULL && x.theirs != NULL;
    free(x.mine);
    free(x.theirs);
    if (!room) {
        return RU_FAIL(err, RU_E_MEM, "no memory for buffers of %lld bytes", (long long)bytes);
    }
    ru_bench_row row = {
        .name = name, .unit = "GB/s", .peer = "memcpy, its bytes moved", .goal = 0.9};
    row.ours = ru_bench_stat_of(ours, ROUNDS);
    row.theirs = ru_bench_stat_of(theirs, ROUNDS);
    return ru_bench_add(b, &row, err);
}

ru_status rui_bench_coll_add(ru_bench *b, ru_err *err)
{
    static const int64_t sizes[] = {256 << 10, 64 << 20};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(sizes); k++) {
        RU_TRY(one(b, RU_F32, sizes[k], err));
        RU_TRY(one(b, RU_BF16, sizes[k], err));
    }
    return RU_OK;
}
