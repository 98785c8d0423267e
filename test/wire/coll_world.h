/* Ranks on real channels over links in memory whose timing is random, with groups of collectives
 * whose every result is checked against plain sums.
 *
 * Thread: one. */
#ifndef RU_TEST_COLL_WORLD_H
#define RU_TEST_COLL_WORLD_H

#include "base/rng.h"
#include "comm/coll/coll.h"
#include "lab/worlds/pipe.h"
#include "plan/net/coll.h"

enum { RANKS_MAX = 6, BUCKETS_MAX = 48, SPANS = 5, ITERS = 4, SEGMENT = 4 << 20, OTHERS = 1 };
enum { WORDS_MAX = 256, WORD_BYTES = 256 };

/* A word of the group that a rank has heard. */
typedef struct heard_word {
    uint8_t data[WORD_BYTES];
    int64_t size_bytes;
    ru_node_id from;
    uint32_t bucket, done; /* iterations of the bucket that were done here then */
} heard_word;

typedef struct world world;

typedef struct rank {
    world *w;
    ru_arena arena;
    uint32_t node, at;
    ru_chan *ch;
    ru_coll *coll;
    ru_time tick_at;
    uint32_t ups, failed;
    float *data[BUCKETS_MAX]; /* [n] */
    uint8_t *segment;         /* [SEGMENT] what the host shares; data lie in it */
    int64_t segment_used;
    ru_span near[RANKS_MAX];
    ru_span spans[BUCKETS_MAX][SPANS];
    uint32_t begun[BUCKETS_MAX], done[BUCKETS_MAX]; /* iterations */
    heard_word *words;                              /* [WORDS_MAX] the last ones; of `late` */
    uint32_t n_words;
} rank;

struct world {
    ru_pipe *net;
    ru_arena arena;
    ru_rng rng;
    uint32_t n, n_buckets;
    bool counted, whole; /* whole: numbers whose sums are exact */
    bool grants, apart;
    bool steady;             /* no iteration is left out */
    bool near;               /* ranks of one host read each other's memory */
    bool late;               /* words come once more when what they were about is over */
    uint32_t came_late;      /* so many did */
    uint32_t n_words;        /* messages between iterations and chunks */
    uint32_t slots, streams; /* of the channels; 0: plenty */
    rank r[RANKS_MAX];
    ru_node_id nodes[RANKS_MAX];
    ru_coll_bucket buckets[BUCKETS_MAX];
    const ru_coll_schedule *schedules[BUCKETS_MAX];
    uint64_t hash; /* of all results */
};

/* The number of element i of rank r before iteration `iter` of bucket b. */
float cw_value(const world *w, uint32_t r, uint32_t b, uint32_t iter, int64_t i);
/* Of the engine; each result is checked. */
void cw_on_done(void *self, uint32_t bucket, uint32_t iter, ru_time now);
void cw_on_failed(void *self, ru_node_id peer, ru_status why, ru_time now);

void cw_open(world *w, uint32_t n, uint64_t seed, bool grants); /* n channels, all connected */
void cw_start(world *w, uint32_t n, uint64_t seed); /* the same with options set before */
void cw_close(world *w);
void cw_add(world *w, ru_coll_op op, ru_coll_algo algo, int64_t n); /* a bucket */
void cw_add_all(world *w); /* one of everything that there is */
/* The buffer of a bucket in up to SPANS pieces of random sizes, some empty. */
void cw_buffers(world *w, rank *r, uint32_t b);
void cw_group(world *w, uint32_t k); /* rank k opens its group */
void cw_begin(world *w, rank *r, uint32_t b);
/* One turn of the network; `now` for the caller. */
ru_time cw_turn(world *w);
/* Everybody begins everything in an order of its own, now and then, until all iterations are done.
 */
void cw_run(world *w);

#endif
