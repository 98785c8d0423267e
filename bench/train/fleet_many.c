/* The exchange of 200 functions in simulated time, on links as the published figures have them.
 *
 * Of ResNet-50's gradients (23 million values, G bytes) among 200 functions Siren needs 265 s,
 * Cirrus 28 s and SMLT 6 s (read off a figure). Siren's functions get n G each and send one, so a
 * link has (n + 1) G / 265 s. SMLT's send and get 3 G + G/n, one behind the other, in 3 n + 1
 * requests: what is left of its 6 s is their latency. Links get a deviation of a tenth, as
 * functions are not alike, and carry both ways at once; stores are as many as it takes.
 *
 * Each worker's links are queues, first come, first served; blocks, and how many of them are under
 * way, are those of fleet/exchange/.
 *
 * Source: ali-2022-smlt. */
#include "bench/train/fleet.h"

#include "base/heap.h"
#include "base/rng.h"
#include "fleet/exchange/shards.h"

enum { WORKERS = 200, VALUES = 23000000, AT_A_TIME = 8, BLOCKS_MAX = 256, SEEDS = 10 };
enum { HEAP = WORKERS * 4 * AT_A_TIME };

static const double siren_s = 265, cirrus_s = 28, smlt_s = 6, spread = 0.1;

typedef enum did { PUT_PIECES, GOT_PIECES, PUT_SUM, GOT_SUMS } did;

typedef struct world {
    ru_shards shards;
    double latency_s, rate[WORKERS];               /* bytes/s of a link, each way */
    double up[WORKERS], down[WORKERS];             /* free again at */
    uint32_t next[WORKERS], done[WORKERS];         /* blocks that it began, that it is done with */
    bool puts[WORKERS];                            /* pieces are on their way */
    uint32_t pieces[BLOCKS_MAX], sums[BLOCKS_MAX]; /* that are in the store */
    ru_heap heap; /* what is done: nanoseconds -> did, worker, block */
    ru_heap_item items[HEAP];
} world;

static void carry(world *w, double now, double *link, double bytes, did what, uint32_t worker,
                  uint32_t block)
{
    double begin = now > *link ? now : *link;
    *link = begin + bytes / w->rate[worker];
    RU_CHECK(ru_heap_push(&w->heap, (int64_t)(*link * 1e9),
                          (uint64_t)what << 48 | (uint64_t)worker << 24 | block) == RU_OK);
}

/* Bytes of a block; of one shard of it. */
static double block_bytes(const world *w, uint32_t block)
{
    int64_t at = (int64_t)block * w->shards.block, left = w->shards.count - at;
    return (double)(left < w->shards.block ? left : w->shards.block) * sizeof(float);
}

static void begin_block(world *w, double now, uint32_t k)
{
    if (!w->puts[k] && w->next[k] < w->shards.blocks && w->next[k] < w->done[k] + AT_A_TIME) {
        uint32_t b = w->next[k]++;
        w->puts[k] = true;
        carry(w, now, &w->up[k], block_bytes(w, b) * (WORKERS - 1) / WORKERS, PUT_PIECES, k, b);
    }
}

static void handle(world *w, double now, did what, uint32_t k, uint32_t b)
{
    const double others = block_bytes(w, b) * (WORKERS - 1) / WORKERS;
    if (what == PUT_PIECES) {
        w->puts[k] = false;
        begin_block(w, now + w->latency_s, k);
        if (++w->pieces[b] == WORKERS) {
            for (uint32_t i = 0; i < WORKERS; i++) {
                carry(w, now + w->latency_s, &w->down[i], others, GOT_PIECES, i, b);
            }
        }
    } else if (what == GOT_PIECES) {
        carry(w, now, &w->up[k], block_bytes(w, b) / WORKERS, PUT_SUM, k, b);
    } else if (what == PUT_SUM) {
        if (++w->sums[b] == WORKERS) {
            for (uint32_t i = 0; i < WORKERS; i++) {
                carry(w, now + w->latency_s, &w->down[i], others, GOT_SUMS, i, b);
            }
        }
    } else {
        w->done[k]++;
        begin_block(w, now, k);
    }
}

/* Seconds until the last worker has all sums. */
static double exchange(world *w, uint64_t seed, double rate, double latency_s)
{
    ru_rng rng = ru_rng_from(seed, ru_rng_label("links"));
    ru_heap_item e;
    *w = (world){.shards = ru_shards_of(VALUES, WORKERS), .latency_s = latency_s};
    w->heap = (ru_heap){.items = w->items, .max = HEAP};
    RU_CHECK(w->shards.blocks <= BLOCKS_MAX);
    for (uint32_t k = 0; k < WORKERS; k++) {
        w->rate[k] = rate * ru_math_exp(spread * ru_rng_normal(&rng));
        begin_block(w, 0, k);
    }
    double now = 0;
    while (ru_heap_pop(&w->heap, &e)) {
        now = (double)e.key * 1e-9;
        handle(w, now, (did)(e.value >> 48), (uint32_t)(e.value >> 24) & 0xffffff,
               (uint32_t)e.value & 0xffffff);
    }
    for (uint32_t k = 0; k < WORKERS; k++) {
        RU_CHECK(w->done[k] == w->shards.blocks);
    }
    return now;
}

ru_status rui_bench_fleet_many(ru_bench *b, ru_err *err)
{
    const double bytes = VALUES * (double)sizeof(float), n = WORKERS;
    const double rate = (n + 1) * bytes / siren_s;
    const double latency_s = (smlt_s - (3 * bytes + bytes / n) / rate) / (3 * n + 1);
    double s[SEEDS];
    world *w = RU_NEW(b->arena, world, 1);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %d workers", WORKERS);
    }
    for (uint32_t k = 0; k < SEEDS; k++) {
        s[k] = exchange(w, k + 1, rate, latency_s);
    }
    struct {
        const char *peer;
        double s, goal;
    } sides[] = {{"SMLT (published)", smlt_s, smlt_s / 4.2},
                 {"Cirrus (published)", cirrus_s, 0},
                 {"Siren (published)", siren_s, 0}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(sides); k++) {
        const ru_bench_row row = {.name = "exchange of ResNet-50, 200 functions",
                                  .unit = "simulated s",
                                  .lower = true,
                                  .goal = sides[k].goal,
                                  .peer = sides[k].peer,
                                  .ours = ru_bench_stat_of(s, SEEDS),
                                  .theirs = ru_bench_stat_of(&sides[k].s, 1)};
        RU_TRY(ru_bench_add(b, &row, err));
    }
    return RU_OK;
}
