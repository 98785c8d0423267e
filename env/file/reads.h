/* Many reads of files at once: io_uring (Linux 5.19), or threads with pread where the kernel
 * forbids it. A piece may name its file: it is opened, read and closed like the others, without
 * waiting. The ring keeps descriptors in its table of files and the owner's memory as a fixed
 * buffer, so that the kernel looks neither up for each read.
 *
 *   begin(pieces, depth) --issued, `depth` at a time--> poll: takes what ended, issues more --> end
 *
 * Thread: the one that opened it, unless said; one set of pieces at a time. Nothing is allocated
 * after open. */
#ifndef RU_ENV_READS_H
#define RU_ENV_READS_H

#include "base/status.h"

typedef struct ru_reads ru_reads;

enum { RU_READS_DEPTH_MAX = 1024 };
enum { RU_READS_WHY_MAX = 128 };
enum { RU_READS_THREADS = 32 }; /* of the process, for all engines together */

typedef enum ru_reads_kind {
    RU_READS_BEST,       /* what the kernel allows */
    RU_READS_PLAIN,      /* io_uring without fixed files and memory (to compare) */
    RU_READS_BY_THREADS, /* no io_uring (tests) */
} ru_reads_kind;

typedef struct ru_read_piece {
    const char *path; /* a file that is opened, read and closed; view until end; NULL: fd is open */
    int fd;           /* stays open until ru_reads_close */
    bool direct; /* of the descriptor: whole units (ru_in_direct); fewer bytes are the file's end */
    struct ru_object *object; /* web/objects.h reads it; NULL: the descriptor's file */
    int64_t offset, size_bytes;
    uint8_t *into;     /* [size_bytes] */
    int64_t got_bytes; /* after: fewer than size_bytes at the end of the file; -1: error */
    int64_t issued_ns, ended_ns; /* ru_clock_now */
} ru_read_piece;

/* Errors: RU_E_MEM, RU_E_LIMIT (threads). */
RU_MUST_USE ru_status ru_reads_open(uint32_t depth_max, ru_reads_kind kind, ru_reads **out,
                                    ru_err *err);
void ru_reads_close(ru_reads *r);             /* NULL is fine; nothing is under way */
const char *ru_reads_name(const ru_reads *r); /* "io_uring" or "threads" */
/* Most pieces read into at[size_bytes]; nothing is under way. Its pages stay in memory until
 * another call or ru_reads_close, which must come before it is freed. NULL: none. */
void ru_reads_memory(ru_reads *r, void *at, int64_t size_bytes);
/* Why reads look up the pages of that memory, or since they began their descriptors, every time;
 * NULL: they do not, or it was not asked for, or there are threads. View until the next
 * ru_reads_memory or ru_reads_begin. */
const char *ru_reads_plain_why(const ru_reads *r);
/* `pieces` [n] stay where they are until ru_reads_end; at most `depth` are outstanding. */
void ru_reads_begin(ru_reads *r, ru_read_piece *pieces, uint32_t n, uint32_t depth);
/* Any thread, also while pieces are outstanding. */
void ru_reads_depth_set(ru_reads *r, uint32_t depth);
int64_t ru_reads_bytes(const ru_reads *r); /* any thread: read so far, in all sets */
void ru_reads_poll(ru_reads *r);           /* blocks not */
void ru_reads_end(ru_reads *r);            /* until all have ended */

#endif
