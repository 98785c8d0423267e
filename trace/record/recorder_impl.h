/* Inside of the recorder, shared by recorder.c (recording side) and writer.c (file side).
 *
 * Thread: as each function says. */
#ifndef RU_TRACE_RECORDER_IMPL_H
#define RU_TRACE_RECORDER_IMPL_H

#include "base/ring.h"
#include "env/file/file.h"
#include "env/probe.h"
#include "env/thread.h"
#include "trace/record/format.h"
#include "trace/record/recorder.h"

enum {
    REC_THREADS_MAX = 1024,
    REC_NAMES_MAX = 65536,
    REC_SLOTS = 131072, /* open addressing, at most half full */
    REC_NAME_OTHER = 1,
    REC_BUFFER_BYTES = 1 << 20,
    REC_META_MAX = 32,
    REC_PEERS_MAX = 1024, /* measurements that wait for the writer */
    REC_PATH_MAX = 4096,
    REC_APPENDS_MAX = 256,
    REC_SEGMENTS_MAX = 16,
    REC_SEGMENTS = 8, /* that make up bytes_max */
};

typedef struct rec_segment {
    int64_t bytes, end_ns; /* size; when the next one began */
} rec_segment;

typedef struct rec_meta {
    char *key, *value;
} rec_meta;

/* Bytes of another process. */
typedef struct rec_append {
    int64_t offset, size_bytes;
    uint8_t *data;
    char *path;
} rec_append;

/* A window to be copied. */
typedef struct rec_save {
    char *dir;
    int64_t from_ns, to_ns;
} rec_save;

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
    ru_cond synced;  /* the writer has done what was asked */
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
    /* segments */
    char base[REC_PATH_MAX]; /* of their names: dir/rank0 */
    char process[RUI_TRACE_PROCESS_BYTES + 1];
    uint32_t rank, segment, oldest;
    int64_t segment_max, segments_bytes;    /* of one; of all before the one being written */
    rec_segment segments[REC_SEGMENTS_MAX]; /* by number, of those that are there */
    /* under the mutex */
    rec_save saves[RU_RECORDER_SAVES_MAX]; /* [n_saves] */
    uint32_t n_saves, saves_done, saves_failed;
    uint64_t sync_asked, sync_done;
    rec_append appends[REC_APPENDS_MAX]; /* [n_appends] */
    uint32_t n_appends;
    uint16_t env_names[RU_PROBE_ACTS];
    bool driven, draining;
    bool stop, failed, full, told; /* told: `why` is from ru_recorder_fail */
    ru_err why;
};

/* Path of segment s into a buffer of REC_PATH_MAX + 32 bytes. */
void rui_segment_path(const ru_recorder *r, uint32_t s, char *into);
/* save.c: by the writer, when the segments hold everything. */
RU_MUST_USE ru_status rui_append(const rec_append *a, ru_arena *arena, ru_err *err);
RU_MUST_USE ru_status rui_save(const ru_recorder *r, const rec_save *s, ru_err *err);

/* recorder_env.c: names at open; the calling thread's work in env/ from now on, and no longer. */
void rui_env_names(ru_recorder *r);
void rui_env_begin(ru_recorder *r);
void rui_env_end(const ru_recorder *r);

void rui_writer_give_up(ru_recorder *r, const ru_err *err); /* write nothing more; say so once */
/* Driven: write what the rings hold; by the thread that fills them. */
void rui_writer_drain(ru_recorder *r);

ru_status rui_writer_start(ru_recorder *r, const ru_recorder_options *opt, ru_err *err);
void rui_writer_stop(ru_recorder *r);

#endif
