/* Rows per second of the store and of Redis, in turns. Redis has the layout, the transport, the
 * size of its commands and the depth that are fastest for the operation; ours has its depth. Beside
 * them the same bytes over a bare connection (params_bare.c): what no store can exceed. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/params/params.h"
#include "bench/params/params_store.h"

enum { CORES = 2, OURS = 0, REDIS = 1, BARE = 2, SIDES };

static const uint32_t widths[] = {32, 500}, depths[] = {1, 4, 16};
static const char *const ops[] = {"read", "update", "read and update"};
static const char install[] = "apt-get install redis-server";

typedef struct rates {
    ru_bench *b;
    ru_bench_side sides[SIDES];
    uint32_t width;
    double updated[SIDES]; /* rows, of those that `sum` sees */
} rates;

static ru_status rate_of(rates *r, uint32_t side, const rui_store_ask *ask, double *rows_per_s,
                         ru_err *err)
{
    char question[96];
    const char *answer;
    (void)snprintf(question, sizeof question, "%d %u %u %lld\n", (int)ask->op, ask->variant,
                   ask->depth, (long long)ask->batches);
    RU_TRY(ru_bench_ask(&r->sides[side], question, &answer, err));
    double rows = (double)ask->batches * RUI_STORE_BATCH, seconds = strtod(answer, NULL);
    bool counts = side != REDIS || rui_redis_counts(ask->variant);
    r->updated[side] += ask->op != RUI_STORE_READ && counts ? rows : 0;
    *rows_per_s = rows / seconds;
    return seconds > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_PEER, "a client answered '%s' to '%s'", answer, question);
}

/* The fastest variant and depth, and batches that fill `seconds`. */
static ru_status tune(rates *r, uint32_t side, rui_store_op op, double seconds, rui_store_ask *best,
                      ru_err *err)
{
    uint32_t n = side == REDIS ? rui_redis_variants(op) : 1;
    double most = 0, rate;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t deepest = side == REDIS ? rui_redis_depth(op, k) : RUI_STORE_DEPTH_MAX;
        rui_store_ask ask = {op, k, 1, 1};
        RU_TRY(rate_of(r, side, &ask, &rate, err));
        for (uint32_t d = 0; d < RU_ARRAY_LEN(depths) && depths[d] <= deepest && rate > most / 8;
             d++) {
            ask.depth = depths[d];
            ask.batches = 1 + (int64_t)(rate * seconds / 4 / RUI_STORE_BATCH);
            ask.batches = ask.batches > ask.depth ? ask.batches : ask.depth;
            RU_TRY(rate_of(r, side, &ask, &rate, err));
            if (rate > most) {
                most = rate;
                *best = ask;
            }
        }
    }
    best->batches = 1 + (int64_t)(most * seconds / RUI_STORE_BATCH);
    return RU_OK;
}

static ru_status add_row(rates *r, rui_store_op op, const rui_store_ask ask[SIDES], uint32_t side,
                         double *ours, double *theirs, uint32_t rounds, ru_err *err)
{
    ru_arena *a = r->b->arena;
    ru_bench_row row = {.unit = "rows/s", .goal = side == REDIS ? 3.0 : 0};
    row.name = ru_arena_printf(a, "redis: %s rows of %u floats, depth %u", ops[op], r->width,
                               ask[OURS].depth);
    row.peer = side == REDIS
                   ? ru_arena_printf(a, "%s, %s, depth %u", r->sides[REDIS].detail,
                                     rui_redis_variant(op, ask[REDIS].variant, a), ask[REDIS].depth)
                   : ru_arena_printf(a, "%s, depth %u", r->sides[side].detail, ask[side].depth);
    row.ours = ru_bench_stat_of(ours, rounds);
    row.theirs = ru_bench_stat_of(theirs, rounds);
    return ru_bench_add(r->b, &row, err);
}

static ru_status measure(rates *r, rui_store_op op, ru_err *err)
{
    uint32_t rounds = r->b->quick ? 3 : 9;
    double seconds = r->b->quick ? 0.2 : 0.5, rate[SIDES][RU_BENCH_ROUNDS_MAX];
    rui_store_ask ask[SIDES];
    for (uint32_t side = 0; side < SIDES; side++) {
        RU_TRY(tune(r, side, op, seconds, &ask[side], err));
    }
    for (uint32_t k = 0; k < rounds; k++) {
        for (uint32_t side = 0; side < SIDES; side++) {
            RU_TRY(rate_of(r, side, &ask[side], &rate[side][k], err));
        }
    }
    RU_TRY(add_row(r, op, ask, REDIS, rate[OURS], rate[REDIS], rounds, err));
    return add_row(r, op, ask, BARE, rate[OURS], rate[BARE], rounds, err);
}

/* Did both servers add what they said? */
static ru_status check(rates *r, ru_err *err)
{
    for (uint32_t side = OURS; side <= REDIS; side++) {
        const char *answer;
        RU_TRY(ru_bench_ask(&r->sides[side], "sum\n", &answer, err));
        double sum = strtod(answer, NULL), was = r->updated[side];
        if (sum < was || sum > was) {
            return RU_FAIL(err, RU_E_BUG, "%s: the rows sum up to %.0f after %.0f updates",
                           r->sides[side].detail, sum, was);
        }
    }
    return RU_OK;
}

static ru_status one_width(ru_bench *b, uint32_t width, ru_err *err)
{
    const char *text = ru_arena_printf(b->arena, "%u", width);
    const char *const ours[] = {
        ru_bench_rubato(b->arena), "bench", "--worker", "params", "store", text, NULL};
    const char *const redis[] = {ours[0], "bench", "--worker", "params",
                                 "redis", text,    b->dir,     NULL};
    const char *const bare[] = {ours[0], "bench", "--worker", "params", "bare", text, NULL};
    rates r = {.b = b, .sides = {{.argv = ours}, {.argv = redis}, {.argv = bare}}, .width = width};
    RU_TRY(ru_bench_sides_start(r.sides, SIDES, CORES, b->arena, err));
    ru_status st = RU_OK;
    if (r.sides[BARE].missing != NULL) {
        st = RU_FAIL(err, RU_E_PEER, "%s", r.sides[BARE].missing);
    } else if (r.sides[REDIS].missing != NULL) {
        ru_bench_row row = {.unit = "rows/s", .goal = 3.0, .peer = "redis 7"};
        row.name = ru_arena_printf(b->arena, "redis: rows of %u floats", width);
        row.missing = ru_arena_printf(b->arena, "%s; install: %s", r.sides[REDIS].missing, install);
        st = ru_bench_add(b, &row, err);
    }
    for (uint32_t op = 0; st == RU_OK && op < 3 && r.sides[REDIS].missing == NULL; op++) {
        st = measure(&r, (rui_store_op)op, err);
    }
    if (st == RU_OK && r.sides[REDIS].missing == NULL) {
        st = check(&r, err);
    }
    ru_bench_sides_end(r.sides, SIDES);
    return st;
}

ru_status ru_bench_params_redis(ru_bench *b, ru_err *err)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(widths); k++) {
        RU_TRY(one_width(b, widths[k], err));
    }
    return RU_OK;
}
