/* A running checkpoint as a log: records of blocks of rows, appended one after another. The newest
 * record of a block counts; a block's first values are kept beside it.
 *
 *   file    record | record | ...          record   head | payload | zeros up to 8 bytes
 *   head    magic | flags | generation | object | block | clock | bytes of the payload | hash
 *
 * The hash covers the head before it and the payload. A reader passes over bytes that are no whole
 * record: the end of a file that was torn, which was never reported as stored, or damage, after
 * which it looks for the next record. When more than half of a file is out of date it is
 * written anew, with what counts, under a temporary name that then replaces it.
 *
 * A folder holds one file for each process, of one name each that begins with the generation; all
 * are read together. Only its own process writes a file.
 *
 * Source: qiao-2019 (a running checkpoint of blocks); lfs-1992 (a log that is cleaned). Thread: one
 * at a time for each log. */
#ifndef RU_STORE_SHARDLOG_H
#define RU_STORE_SHARDLOG_H

#include "base/str.h"

typedef struct ru_shardlog ru_shardlog;

typedef struct ru_shardlog_record {
    uint32_t generation, object, block, clock;
    bool first; /* values at the start */
    int64_t n;
    const void *bytes; /* [n] */
} ru_shardlog_record;

/* Size of a record with a payload of n bytes. */
int64_t ru_shardlog_bytes(int64_t n);
/* Write it: into [ru_shardlog_bytes(r->n)]. */
void ru_shardlog_put(const ru_shardlog_record *r, uint8_t *into);
/* The next whole record from *at on, which becomes its end; payload: view. false: there is none. */
bool ru_shardlog_next(const uint8_t *bytes, int64_t n, int64_t *at, ru_shardlog_record *out);

/* A log for appending: a new file, or what is whole of one that exists. Errors: of env/file/file.h.
 */
RU_MUST_USE ru_status ru_shardlog_open(const char *path, ru_shardlog **out, ru_err *err);
/* Append whole records and sync them: RU_OK means that they are stored. After an error none of them
 * may be, and the next call repairs the file first. */
RU_MUST_USE ru_status ru_shardlog_append(ru_shardlog *l, const uint8_t *bytes, int64_t n,
                                         ru_err *err);
void ru_shardlog_close(ru_shardlog *l); /* NULL is fine */

/* Path of the log of a process. Owner: arena; NULL: no memory. */
char *ru_shardlog_path(ru_arena *arena, const char *dir, uint32_t generation, uint64_t process);
/* Records of an object in all logs of generations first .. last, one after another, into a text. A
 * folder that is missing has none. Errors: RU_E_MEM, RU_E_IO. */
RU_MUST_USE ru_status ru_shardlog_gather(const char *dir, uint32_t first, uint32_t last,
                                         uint32_t object, ru_text *into, ru_err *err);
/* Remove the logs of earlier generations. */
RU_MUST_USE ru_status ru_shardlog_clean(const char *dir, uint32_t generation, ru_err *err);

#endif
