/* Inside of the recorder, shared by recorder.c (recording side) and writer.c (file side).
 *
 * Thread: as each function says. */
#ifndef RU_TRACE_RECORDER_IMPL_H
#define RU_TRACE_RECORDER_IMPL_H

#include "base/ring.h"
#include "env/file.h"
#include "env/thread.h"
#include "trace/recorder.h"

enum {
    REC_THREADS_MAX = 1024,
    REC_NAMES_MAX = 65536,
    REC_SLOTS = 131072, /* open addressing, at most half full */
    REC_NAME_OTHER = 1,
    REC_BUFFER_BYTES = 1 << 20,
    REC_META_MAX = 32,
    REC_PEERS_MAX = 1024, /* measurements that wait for the writer */
};

typedef struct rec_meta {
    char *key, *value;
} rec_meta;

/* One entry of a PEER block. */
typedef struct rec_peer {
    int64_t at_ns;
    uint64_t peer;
    int64_t offset_ns, bound_ns;
} rec_peer;

typedef struct rec_name {
    char *category, *name;
} rec_name;

typedef struct rec_thread {
    ru_spsc ring;     /* counts what did not fit */
    ru_record *slots; /* [ring_records] */
    uint32_t index;
    /* the writer's */
    int64_t written, lost_written;
    char name[32]; /* under the mutex, as is the next */
    bool name_written;
    bool ended; /* its thread: under the mutex */
} rec_thread;

struct ru_recorder {
    uint32_t ring_records;
    int64_t flush_ns, bytes_max, stamp;
    ru_mutex mutex;  /* guards names, threads and stop */
    ru_cond cond;    /* wakes the writer */
    rec_name *names; /* [n_names], names[0] unused */
    uint16_t *slots; /* [REC_SLOTS] hash -> id, 0 empty */
    uint32_t n_names;
    rec_thread *threads[REC_THREADS_MAX];
    uint32_t n_threads;
    int64_t threads_refused;
    uint64_t node; /* 0: not known */
    rec_meta meta[REC_META_MAX];
    uint32_t n_meta;
    rec_peer *peers; /* [n_peers] not written yet */
    uint32_t n_peers;
    /* the writer's */
    ru_thread writer;
    ru_log_file *file;
    uint8_t *buffer; /* [REC_BUFFER_BYTES] one block being made */
    uint32_t names_written, meta_written;
    bool node_written;
    int64_t bytes_written;
    bool driven, draining;
    bool stop, failed, full;
};

/* Driven: write what the rings hold; by the thread that fills them. */
void rui_writer_drain(ru_recorder *r);

ru_status rui_writer_start(ru_recorder *r, const ru_recorder_options *opt, ru_err *err);
void rui_writer_stop(ru_recorder *r);

#endif
