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
    RU_REC_ASYNC,   /* a span beside the work of its thread (a transfer): many may overlap */
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

typedef struct ru_recorder ru_recorder;

typedef struct ru_recorder_options {
    const char *dir;       /* trace files go here; NULL: rings only, nothing is written */
    uint32_t ring_records; /* per thread, power of two; 0: 16384 */
    int64_t flush_ns;      /* writer period; 0: 100 ms */
    int64_t bytes_max;     /* stop writing, with a log line, beyond this; 0: 1 GiB */
    const char *process;   /* shown as the process name; NULL: rubato */
    uint32_t rank;
    bool keep_old; /* a resumed run: earlier files stay, and a new one is written */
} ru_recorder_options;

RU_MUST_USE ru_status ru_recorder_open(const ru_recorder_options *opt, ru_recorder **out,
                                       ru_err *err);
void ru_recorder_close(ru_recorder *r); /* drains, syncs, joins the writer; NULL is fine */

/* Id of a name and its category ("op", "reader", "ckpt"); the same strings give the same id. Takes
 * a lock: do it at plan time. At most 65535 names, then the id of "other". */
uint16_t ru_recorder_name(ru_recorder *r, const char *name, const char *category);

/* Name the calling thread ("main", "reader 0"). */
void ru_recorder_thread(ru_recorder *r, const char *name);

/* r == NULL is allowed everywhere below and records nothing. */
int64_t ru_rec_now(void); /* monotonic ns, the recorder's clock */
void ru_rec_span(ru_recorder *r, uint16_t name, int64_t start_ns, int64_t end_ns, int64_t value);
void ru_rec_act(ru_recorder *r, uint16_t name, int64_t start_ns, int64_t end_ns, int64_t value,
                uint32_t plan, uint32_t predicted_ns);
/* The same for an activity beside its thread, which is not part of the thread's time. */
void ru_rec_async(ru_recorder *r, uint16_t name, int64_t start_ns, int64_t end_ns, int64_t value,
                  uint32_t plan, uint32_t predicted_ns);
void ru_rec_wait(ru_recorder *r, uint16_t name, int64_t start_ns, int64_t end_ns, uint16_t on);
void ru_rec_instant(ru_recorder *r, uint16_t name, int64_t value);
void ru_rec_counter(ru_recorder *r, uint16_t name, double value);

typedef struct ru_recorder_stats {
    int64_t records, dropped, bytes_written;
    uint32_t threads;
} ru_recorder_stats;
void ru_recorder_stats_get(ru_recorder *r, ru_recorder_stats *into);

RU_API_END

#endif
