/* Objects behind addresses (http://, https://, s3://), read by ranges: many requests at a time.
 *
 *   begin(pieces, depth) --queue--> thread: libcurl, `depth` at a time --answers judged--> end
 *
 * One thread does all requests of a ru_objects. The bytes of an object are those of the version
 * that the first answer named (size and ETag), or there are none: an object that changes is an
 * error that stays. Overload, broken connections and requests without progress are tried again,
 * from the byte that is missing, after waiting longer each time, for a limited time.
 *
 * Pieces are those of env/file/reads.h, whose `object` is set. Thread: any, but one at a time opens
 * objects; a ru_ranges has one user. */
#ifndef RU_WEB_OBJECTS_H
#define RU_WEB_OBJECTS_H

#include "env/file/reads.h"

typedef struct ru_objects ru_objects;
typedef struct ru_object ru_object;
typedef struct ru_ranges ru_ranges;

typedef struct ru_objects_options {
    const char *token;     /* bearer token for http and https; NULL: none; copied */
    uint32_t requests_max; /* at a time; 0: 256 */
    int64_t bytes_max;     /* of all requests that are under way; 0: 64 MiB. One request may have
                              more if it is alone */
    int64_t patience_ms;   /* without progress; 0: 120 s */
    int64_t patience_first_ms; /* for the first answer about an object; 0: 10 s */
    int64_t stall_s; /* a request with less than 256 bytes a second, as libcurl's mean of 5 s has
                        it, for so long is sent again; 0: 5 */
    const char *(*env)(const char *name); /* NULL: the environment */
} ru_objects_options;

typedef struct ru_objects_figures {
    int64_t requests, again, bytes; /* sent; sent again; delivered */
    int64_t failed;                 /* objects */
    int64_t outstanding_most;       /* bytes under way at a time */
} ru_objects_figures;

bool ru_object_address(const char *path); /* is it one, and no file? */

/* Errors: RU_E_UNSUPPORTED (no libcurl), RU_E_MEM. */
RU_MUST_USE ru_status ru_objects_open(const ru_objects_options *opt, ru_objects **out, ru_err *err);
void ru_objects_close(ru_objects *o); /* NULL is fine; its ranges are closed */
ru_objects_figures ru_objects_count(ru_objects *o);

/* Asks for size and version; one that is open already may be asked for by its name. Blocks. Errors:
 * RU_E_MISSING, RU_E_PERM, RU_E_PEER (nobody answers), RU_E_UNSUPPORTED (no ranges), RU_E_CONFIG
 * (address, credentials). Owner: `o`. */
RU_MUST_USE ru_status ru_object_open(ru_objects *o, const char *address, ru_object **out,
                                     ru_err *err);
int64_t ru_object_bytes(const ru_object *b);
/* What its server calls the version: ETag or date; "": neither. */
const char *ru_object_version(const ru_object *b);
const char *ru_object_name(const ru_object *b); /* for messages: without what may be secret */
uint32_t ru_object_number(const ru_object *b);  /* in the order of opening */
/* Exactly these bytes. Blocks. Small reads one behind the other are read ahead. Errors: RU_E_DATA
 * (outside, changed), RU_E_PEER, RU_E_PERM, ... */
RU_MUST_USE ru_status ru_object_read(ru_object *b, int64_t offset, void *into, int64_t size_bytes,
                                     ru_err *err);
/* Why nothing more can be read from it; RU_OK: it can. */
ru_status ru_object_failed(ru_object *b, ru_err *err);
bool ru_objects_failed(ru_objects *o); /* of any; NULL is fine */

/* A user of `o`. Users of one group share a depth, earlier sets first. */
RU_MUST_USE ru_status ru_ranges_open(ru_objects *o, uint32_t group, ru_ranges **out, ru_err *err);
void ru_ranges_close(ru_ranges *r); /* NULL is fine; nothing is under way */
/* `pieces` [n] stay where they are until ru_ranges_end; at most `depth` of the group's are
 * outstanding. got_bytes -1: ru_object_failed says why, or it was cancelled. */
void ru_ranges_begin(ru_ranges *r, ru_read_piece *pieces, uint32_t n, uint32_t depth);
void ru_ranges_end(ru_ranges *r); /* until all have ended */
/* From any thread: also while pieces are outstanding; bytes read so far, in all sets. */
void ru_ranges_depth_set(ru_ranges *r, uint32_t depth);
int64_t ru_ranges_bytes(const ru_ranges *r);
/* From any thread: what is under way and all that begins later ends without bytes. */
void ru_ranges_cancel(ru_ranges *r);

#endif
