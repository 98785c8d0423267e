/* The recorder: always on, one ring of 32-byte records per thread, one background writer.
 *
 * A span is recorded when it ends (start and duration in one record), so a record is one store of
 * 32 bytes and two reads of the clock. Names are interned once into small ids. The writer drains
 * the rings into framed, checksummed blocks; a killed run leaves a readable prefix. A full ring
 * drops records and counts the drops; it never blocks.
 *
 *   0        8        16      20      24      26    28      32
 *   | start  | value  | dur   | pred  | name  | kind| plan  |      ns, ns or bytes, ns, ns, ids
 *
 * A transfer or a sum takes two: the second says who the other side is and what it is a part of. So
 * does a span that belongs to a step of its own, such as a task of an executor.
 * The records at both ends of a transfer, and those of all ranks of a sum, have the same `flow`.
 *
 *   | flow   | peer   | step  |rank|c|f| label| kind| wait  |
 *
 * Thread: ru_rec_* from any thread (each has its own ring); open/close from one. */
#ifndef RU_TRACE_RECORDER_H
#define RU_TRACE_RECORDER_H

#include "base/status.h"

RU_API_BEGIN

typedef enum ru_rec_kind {
    RU_REC_SPAN, /* value: bytes or count of the work, else 0 */
    RU_REC_INSTANT,
    RU_REC_COUNTER, /* value: the bits of a double */
    RU_REC_WAIT,    /* a span in which the thread waited; value: name id of what it waited for */
    RU_REC_ASYNC,   /* a span beside the work of its thread: many may overlap */
    /* Asynchronous as well, followed by a ru_record_more; value: bytes. */
    RU_REC_SEND, /* from the call until the link let go of the last byte */
    RU_REC_RECV, /* from the first byte's arrival until the last one's */
    RU_REC_SUM,  /* a collective, from this rank's begin until its result is there */
    RU_REC_MORE, /* a ru_record_more */
} ru_rec_kind;

typedef struct ru_record {
    int64_t start_ns; /* monotonic */
    int64_t value;
    uint32_t dur_ns;       /* saturates at 4.29 s: longer spans are split by the recorder */
    uint32_t predicted_ns; /* 0: no prediction */
    uint16_t name;         /* interned */
    uint16_t kind;
    uint32_t plan; /* low 32 bits of the plan id; 0: none */
} ru_record;

enum {                     /* ru_record_more.flags */
       RU_REC_MESSAGE = 1, /* a message: `rank` is its number */
       RU_REC_FAILED = 2,  /* cancelled, or lost with a connection */
};

/* The second half of SEND, RECV, SUM and of some SPANs and ASYNCs; the kind stands where ru_record
 * has it. */
typedef struct ru_record_more {
    uint64_t flow;      /* the same at all ends; streams that use a name again have it again; 0:
                           none */
    uint64_t peer;      /* node id of the other side; 0: a sum */
    uint32_t step;      /* the training step that it belongs to, from 0 */
    uint16_t rank;      /* order inside its class: smaller first */
    uint8_t chan_class; /* ru_chan_class */
    uint8_t flags;
    uint16_t label;   /* name of the sum that it is a part of; 0: none */
    uint16_t kind;    /* RU_REC_MORE */
    uint32_t wait_ns; /* of a send: until its first byte went to the link; saturates */
} ru_record_more;

typedef struct ru_recorder ru_recorder;

typedef struct ru_recorder_options {
    const char *dir;       /* trace files go here; NULL: rings only, nothing is written */
    uint32_t ring_records; /* per thread, power of two; 0: 16384 */
    int64_t flush_ns;      /* writer period; 0: 100 ms */
    int64_t bytes_max;     /* of all segments: beyond this the oldest is deleted; 0: 1 GiB */
    const char *process;   /* shown as the process name; NULL: rubato */
    uint32_t rank;
    bool keep_old; /* a resumed run: earlier files stay, and a new one is written */
    bool driven;   /* one thread has many recorders, each with a clock that goes with its calls (the
                      simulator): no writer thread; a full ring is written by who fills it */
} ru_recorder_options;

RU_MUST_USE ru_status ru_recorder_open(const ru_recorder_options *opt, ru_recorder **out,
                                       ru_err *err);
void ru_recorder_close(ru_recorder *r); /* drains, syncs, joins the writer; NULL is fine */

/* Id of a name and its category ("op", "reader", "ckpt"); the same strings give the same id. Takes
 * a lock: do it at plan time. At most 65535 names, then the id of "other". */
uint16_t ru_recorder_name(ru_recorder *r, const char *name, const char *category);

/* Name the calling thread ("main", "reader 0"). From now on its work in env/ is recorded as well
 * (env/probe.h), until ru_recorder_thread_end or until it closes the recorder: one of the two must
 * come before the recorder ends. */
void ru_recorder_thread(ru_recorder *r, const char *name);

/* The calling thread ends: the next one that records gets its ring. */
void ru_recorder_thread_end(ru_recorder *r);

/* r == NULL is allowed everywhere below and records nothing. */
int64_t ru_rec_now(void); /* monotonic ns, the recorder's clock */
void ru_rec_span(ru_recorder *r, uint16_t name, int64_t start_ns, int64_t end_ns, int64_t value);
void ru_rec_instant(ru_recorder *r, uint16_t name, int64_t value);
void ru_rec_counter(ru_recorder *r, uint16_t name, double value);

/* A transfer or a sum. Or a span of a step and a rank, such as a task of an executor (SPAN, flow
 * 0); or requests to files and the batch that they are for (ASYNC and SPAN, `step`: its number). */
typedef struct ru_rec_flow {
    ru_rec_kind kind; /* SEND, RECV, SUM, SPAN or ASYNC */
    uint16_t name, label;
    uint64_t flow, peer;
    int64_t start_ns, end_ns, wait_ns, bytes;
    uint32_t step, plan;
    int64_t predicted_ns; /* 0: no prediction */
    uint16_t rank;
    uint8_t chan_class, flags;
} ru_rec_flow;

/* At most 255 bytes each; a key again: its new value. At most 32 keys. */
void ru_recorder_meta(ru_recorder *r, const char *key, const char *value);

/* Copy what was recorded between two instants to `dir`/rank<k>.trace, as far as segments still have
 * it: the writer thread does it soon. At most RU_RECORDER_SAVES_MAX wait; RU_E_LIMIT beyond.
 * RU_E_IO: nothing is written any more. */
enum { RU_RECORDER_SAVES_MAX = 8 };

typedef struct ru_recorder_stats {
    int64_t records, dropped, bytes_written;
    uint32_t threads;
    uint32_t segment;             /* number of the one being written */
    uint32_t saves, saves_failed; /* ended so far */
    bool stopped;                 /* nothing is written any more: the disk is full or failed */
} ru_recorder_stats;

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
void ru_rec_act(ru_recorder *r, uint16_t name, int64_t start_ns, int64_t end_ns, int64_t value,
                uint32_t plan, uint32_t predicted_ns);
/* The same for an activity beside its thread, which is not part of the thread's time. */
void ru_rec_async(ru_recorder *r, uint16_t name, int64_t start_ns, int64_t end_ns, int64_t value,
                  uint32_t plan, uint32_t predicted_ns);
void ru_rec_wait(ru_recorder *r, uint16_t name, int64_t start_ns, int64_t end_ns, uint16_t on);
void ru_rec_instant_at(ru_recorder *r, uint16_t name, int64_t at_ns, int64_t value);
void ru_rec_counter_at(ru_recorder *r, uint16_t name, int64_t at_ns, double value);
void ru_rec_flows(ru_recorder *r, const ru_rec_flow *f);
/* What the file says of this process besides its records; any thread, rarely. */
void ru_recorder_node(ru_recorder *r, uint64_t node); /* its id among its peers */
/* At at_ns of this process' clock the peer's showed at_ns + offset_ns, wrong by at most bound_ns.
 */
void ru_recorder_peer(ru_recorder *r, uint64_t peer, int64_t at_ns, int64_t offset_ns,
                      int64_t bound_ns);
RU_MUST_USE ru_status ru_recorder_save(ru_recorder *r, const char *dir, int64_t from_ns,
                                       int64_t to_ns);
/* Bytes of a trace that another process recorded: the writer thread appends a copy to `path`, whose
 * folder it makes, when the file has `offset` bytes; else they are lost. RU_E_LIMIT: too many wait.
 */
RU_MUST_USE ru_status ru_recorder_append(ru_recorder *r, const char *path, int64_t offset,
                                         const void *data, int64_t size_bytes);
/* Where segment s is written; false: there is none any more, or not yet. */
bool ru_recorder_segment(ru_recorder *r, uint32_t s, char *path, uint32_t path_bytes);
/* A file beside the trace could not be written (`err`): its disk has no room or is broken. The
 * writer stops soon, with one warning for all. Thread: any. r: NULL is fine. */
void ru_recorder_fail(ru_recorder *r, const ru_err *err);
/* Everything recorded so far is in the file when this returns; waits for the writer. */
void ru_recorder_sync(ru_recorder *r);
void ru_recorder_stats_get(ru_recorder *r, ru_recorder_stats *into);

#endif
