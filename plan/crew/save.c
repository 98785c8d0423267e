#include "plan/crew/save.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"

typedef struct save_key {
    double distance;
    uint32_t block;
} save_key;

/* Farther first; equal ones by index: a total order, whatever sorts. */
static int by_distance(const void *a, const void *b)
{
    const save_key *x = a, *y = b;
    if (x->distance != y->distance) {
        return x->distance > y->distance ? -1 : 1;
    }
    return x->block < y->block ? -1 : x->block > y->block;
}

static void choose(const ru_save_in *in, uint32_t k, save_key *key, uint8_t *saved)
{
    switch (in->method) {
    case RU_SAVE_PRIORITY:
        qsort(key, in->n, sizeof *key, by_distance);
        break;
    case RU_SAVE_ROUND_ROBIN:
        for (uint32_t i = 0; i < in->n; i++) {
            key[i].block = (uint32_t)(((uint64_t)in->cursor + i) % in->n);
        }
        break;
    case RU_SAVE_RANDOM: {
        ru_rng r = ru_rng_from(in->seed, ru_rng_label("save"));
        for (uint32_t i = 0; i < k; i++) { /* Fisher-Yates, as far as needed */
            uint32_t j = i + ru_rng_below(&r, in->n - i);
            save_key t = key[i];
            key[i] = key[j];
            key[j] = t;
        }
        break;
    }
    case RU_SAVE_FULL:
    case RU_SAVE_NONE:
        break;
    }
    for (uint32_t i = 0; i < k; i++) {
        saved[key[i].block] = 1;
    }
}

ru_status ru_plan_save(const ru_save_in *in, ru_arena *out, ru_save_plan *plan, ru_err *err)
{
    if (in->n < 1 || !(in->fraction > 0 && in->fraction <= 1)) {
        return RU_FAIL(err, RU_E_ARG,
                       "the fraction is %g of %u blocks; expected a fraction above 0 and at most 1",
                       in->fraction, in->n);
    }
    uint32_t k = (uint32_t)ceil(in->fraction * in->n - 1e-9);
    k = in->method == RU_SAVE_FULL ? in->n : in->method == RU_SAVE_NONE ? 0 : k;
    save_key *key = RU_NEW(out, save_key, in->n);
    uint8_t *saved = RU_NEW(out, uint8_t, in->n);
    uint32_t *block = RU_NEW(out, uint32_t, k + 1);
    if (key == NULL || saved == NULL || block == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to choose among %u blocks", in->n);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        if (!(in->distance[i] >= 0) || isinf(in->distance[i])) {
            return RU_FAIL(err, RU_E_ARG, "the distance of block %u is %g, expected 0 or more", i,
                           in->distance[i]);
        }
        key[i] = (save_key){in->distance[i], i};
    }
    choose(in, k, key, saved);
    double left = 0, gone = 0, most = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        double d = in->distance[i];
        if (saved[i] != 0) {
            block[n++] = i;
            gone += d * d;
        } else {
            left += d * d;
            most = fmax(most, d);
        }
    }
    *plan = (ru_save_plan){.block = block,
                           .n = n,
                           .cursor = (uint32_t)(((uint64_t)in->cursor + k) % in->n),
                           .left_norm = sqrt(left),
                           .left_most = most,
                           .saved_norm = sqrt(gone)};
    return RU_OK;
}

/* The newest copy; where the distances of all copies are told, the nearest of them, of equally near
 * ones the newest. A distance of 0 is not told: newer copies are nearer as a rule. */
static ru_recover_from newest(const ru_recover_block *b)
{
    bool cache = b->cache_at >= 0, log = b->log_at >= 0;
    bool told = (!cache || b->cache_d > 0) && (!log || b->log_d > 0) && (cache || log);
    bool newer = cache && (!log || b->cache_at >= b->log_at);
    ru_recover_from f = newer ? RU_RECOVER_CACHE : log ? RU_RECOVER_LOG : RU_RECOVER_START;
    if (!told) {
        return f;
    }
    if (cache && log && b->cache_d != b->log_d) {
        f = b->cache_d < b->log_d ? RU_RECOVER_CACHE : RU_RECOVER_LOG;
    }
    double d = f == RU_RECOVER_CACHE ? b->cache_d : b->log_d;
    return b->start_d > 0 && b->start_d < d ? RU_RECOVER_START : f;
}

ru_status ru_plan_recover(const ru_recover_in *in, ru_arena *out, ru_recover_plan *plan,
                          ru_err *err)
{
    uint8_t *from = RU_NEW(out, uint8_t, in->n + 1);
    if (from == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u blocks", in->n);
    }
    ru_recover_plan p = {.from = from, .n = in->n};
    double sum = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_recover_block *b = &in->block[i];
        ru_recover_from f = b->log_at >= 0 ? RU_RECOVER_LOG : RU_RECOVER_START;
        if (!b->lost && in->method != RU_RECOVER_ROLLBACK) {
            f = RU_RECOVER_KEEP;
        } else if (in->method == RU_RECOVER_RESET) {
            f = RU_RECOVER_START;
        } else if (in->method == RU_RECOVER_NEWEST) {
            f = newest(b);
        }
        double d = f == RU_RECOVER_CACHE   ? b->cache_d
                   : f == RU_RECOVER_LOG   ? b->log_d
                   : f == RU_RECOVER_START ? b->start_d
                                           : 0;
        if (!(d >= 0) || isinf(d)) {
            return RU_FAIL(err, RU_E_ARG, "the distance of block %u is %g, expected 0 or more", i,
                           d);
        }
        sum += d * d;
        from[i] = (uint8_t)f;
        p.n_cache += f == RU_RECOVER_CACHE;
        p.n_log += f == RU_RECOVER_LOG;
        p.n_start += f == RU_RECOVER_START;
    }
    p.norm = sqrt(sum);
    *plan = p;
    return RU_OK;
}
