/* Inside of streams: their slots, reading threads and requests.
 *
 * Thread: as said at each field. */
#ifndef RU_DATA_STREAM_IMPL_H
#define RU_DATA_STREAM_IMPL_H

#include "data/ahead.h"
#include "data/augment.h"

enum {
    FETCH_BYTES = 1 << 20,
    FETCH_DEPTH = 64,
    FETCH_DEPTH_MAX = 512,
    FETCH_MEMORY = 64 << 20,
    READ_MIN = 64 << 10
};
enum { FLIGHTS_FILES = 2, FLIGHTS_MAX = 32 };
enum { AHEAD_DEFAULT = 4, AHEAD_MAX = RU_STREAM_AHEAD_MAX, THREADS_MAX = 256, ALIGN_BYTES = 64 };
static const int64_t bytes_max_default = (int64_t)256 << 20;

typedef struct slot {
    void *fields[RU_FIELDS_MAX]; /* [batch, ...] in its block */
    uint8_t *block;              /* its memory */
    int64_t done;                /* batch number + 1 of what it holds; 0: nothing */
    int64_t at, n;               /* global position of the first row; rows */
    int64_t fill_ns;             /* from taken to decoded */
    ru_status status;
    ru_err err;
} slot;

/* The positions of one batch. */
typedef struct range {
    int64_t epoch, in_epoch; /* of the first sample */
    int64_t n;
    int64_t next; /* global position after the batch */
} range;

/* Memory of batches that were taken and given back. */
typedef struct spare_blocks {
    uint8_t **at; /* [n], n <= n_slots */
    uint32_t n;
} spare_blocks;

struct ru_stream {
    ru_dataset *d;
    ru_stream_options opt;
    int64_t count, total;  /* samples of an epoch; batches of the stream, INT64_MAX: endless */
    int64_t room;          /* rows of a batch at most */
    int64_t block, window; /* samples of a block and of a window of the order */
    rui_windows windows;   /* of the order in blocks */
    bool announces;        /* them, to the kernel */
    rui_ahead *ahead;      /* keeps them; NULL: not */
    uint32_t flights;      /* batches whose reads one thread has under way, with the one at hand */
    slot *slots;           /* [n_slots] */
    uint32_t n_slots, n_threads;
    uint32_t ahead_min;  /* what it begins with: each thread can have its requests under way */
    int64_t block_bytes; /* the fields of a batch */
    int64_t sample_bytes;
    uint16_t name_read, name_request;
    uint64_t flows;         /* of the records of this stream */
    ru_thread *threads;     /* [n_threads] */
    struct reader *readers; /* [n_threads] */
    struct reader *own;     /* the consumer's, for samples of another share; NULL: none yet */
    ru_mutex lock;          /* guards everything below */
    ru_cond filled, freed;
    int64_t next_take, next_out, released;
    int64_t base, rows; /* batch b begins at base + b * stride and has so many; the consumer's */
    uint32_t n_ahead;   /* batches that may be read ahead now: ahead_min .. n_slots - 1 */
    uint8_t **blocks;   /* [n_blocks] that no batch has; the one on top was given back last */
    uint32_t n_blocks;
    spare_blocks spare;
    uint32_t n_plain;                 /* fetches whose requests are slower than they could be */
    char plain_why[RU_READS_WHY_MAX]; /* the last one of them */
    int64_t announced;                /* windows before this one, counted over all epochs */
    ru_read_done *ended;              /* [RU_READS_KEPT]; NULL: samples are in memory */
    uint32_t n_ended;
    int64_t fetch_bytes; /* memory of one fetch, at most */
    int64_t read_bytes;  /* of a request */
    uint32_t read_depth; /* over all threads */
    int64_t share_bytes; /* outstanding instead of read_depth; 0: none */
    int64_t busy_ns, busy_until_ns, stall_ns;
    int64_t waits_ns; /* the consumer: since then; 0: not */
    bool stop;
};

/* A reading thread's own: the order of the epoch it is in. */
typedef struct reader {
    ru_stream *s;
    ru_dataset d;                  /* the stream's, with what this thread fetched */
    rui_fetch *fetch[FLIGHTS_MAX]; /* [s->flights] of batches; NULL: all bytes are in memory */
    rui_augmenter augmenter;       /* d NULL: samples stay as they are */
    bool plain[FLIGHTS_MAX];       /* of each fetch: it counts in n_plain */
    int64_t epoch;                 /* -1: none yet */
    int64_t waits_ns, waits_for;   /* for requests since then, of this batch; 0: not. Lock */
    rui_order full;
    rui_block_order blocks;
} reader;

/* Rows of a batch into sl->fields, from its row 0 on; sl->err. `ahead`: reads of the next batch
 * that go on meanwhile; NULL: none. */
RU_MUST_USE ru_status rui_stream_fill(reader *rd, slot *sl, range r, rui_fetch *ahead);
/* The positions of a batch, as ru_stream_share_set says now. */
range rui_stream_range(const ru_stream *s, int64_t b);
/* From now on batch b begins at base + b * stride. */
void rui_stream_share(ru_stream *s, int64_t base, int64_t rows);
/* A slot that was filled for another share becomes what batch `r` needs. Blocks on I/O. */
RU_MUST_USE ru_status rui_stream_reshape(ru_stream *s, slot *sl, range r);
/* Count a fetch if the kernel refused to make its requests fast. Called with the lock, or before
 * the threads run. */
void rui_stream_note_plain(reader *rd, uint32_t fetch);
void rui_stream_own_close(ru_stream *s);
/* The file or object of the first sample that is read by requests; NULL: none is. */
const rui_source *rui_stream_fetches(const ru_stream *s);
/* Of one field of a batch, aligned. */
int64_t rui_stream_field_bytes(const ru_stream *s, uint32_t field);
/* Batches of a stream from its options; INT64_MAX: endless. */
int64_t rui_stream_total(const ru_stream *s);
void rui_stream_reader(void *reader);                                             /* a thread */
void rui_stream_window_ended(void *self, const ru_read_piece *reads, uint32_t n); /* rui_ahead */

#endif
