/* Storage and readers in the simulator's event queue, read by read: what judges the tuner of reads.
 * It shares nothing with the model that the tuner fits (cost/disk.h).
 *
 *   TABLE     a disk whose rate by size and depth was measured; all outstanding reads wait alike
 *   THROTTLE  a token bucket of reads and bytes with slices of 100 ms in front of that disk
 *   LINK      every read waits a fixed time at a server, then its bytes queue for one link
 *
 * Thread: main. */
#ifndef RU_BENCH_REPLAY_READ_STORE_H
#define RU_BENCH_REPLAY_READ_STORE_H

#include "plan/disk/read_meter.h"
#include "sim/sim.h"

enum { RUI_READERS_MAX = 16 };

typedef enum rui_store_kind { RUI_STORE_TABLE, RUI_STORE_THROTTLE, RUI_STORE_LINK } rui_store_kind;

typedef struct rui_store_spec {
    rui_store_kind kind;
    double reads_per_s, bytes_per_s; /* THROTTLE, LINK (bytes only) */
    double delay_s;                  /* LINK */
    double noise;                    /* deviation of a read's own time, as a fraction */
} rui_store_spec;

typedef struct rui_store {
    rui_store_spec spec; /* may change while running */
    ru_sim *sim;
    ru_rng rng;
    int64_t free_ns; /* THROTTLE, LINK: when what was accepted has passed */
    int64_t outstanding_bytes;
    uint32_t outstanding;
} rui_store;

/* Sizes of records that requests consist of: merged up to the size of a request, cut when larger.
 */
typedef struct rui_records {
    double median, sigma; /* log-normal bytes; 0: every request has its full size */
} rui_records;

typedef struct rui_reader {
    rui_store *store;
    rui_records records;
    int64_t size_bytes; /* the setting */
    uint32_t depth;
    uint32_t outstanding;
    int64_t outstanding_bytes, outstanding_most;
    int64_t memory_max_bytes; /* reads of the setting before count too */
    int64_t left_bytes;       /* of the record that comes next */
    ru_rng rng;
    uint64_t delivered_bytes;
    /* Room in the reader's buffer; the reader stops at 0. INT64_MAX: never full. */
    int64_t room_bytes;
    /* Told of every completion; may change the setting, then calls rui_reader_go. */
    void (*done)(void *self, int64_t issued_ns, int64_t bytes);
    void *self;
    struct rui_read *free; /* list */
    ru_arena *arena;
    bool failed; /* the arena is full */
} rui_reader;

void rui_store_open(rui_store *s, const rui_store_spec *spec, ru_sim *sim, uint64_t seed);
void rui_reader_open(rui_reader *r, rui_store *s, const rui_records *records, uint64_t seed,
                     ru_arena *arena);
/* Issue what the setting and the buffer allow. */
void rui_reader_go(rui_reader *r);

#endif
