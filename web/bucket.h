/* An S3 store that is written: objects are put, listed and removed.
 *
 *   put   up to 16 MiB: PUT                     more: POST ?uploads, PUT each part, POST the list;
 *         an upload that is left behind is removed by ru_bucket_sweep
 *
 * Requests come one after another. Each is signed with the login that objects have, and repeated by
 * the rules of web/answer.h for up to two minutes without a good answer. Keys are those
 * below the prefix of the address.
 *
 * Thread: one; blocks. */
#ifndef RU_WEB_BUCKET_H
#define RU_WEB_BUCKET_H

#include "base/arena.h"

typedef struct ru_bucket ru_bucket;

typedef struct ru_bucket_object {
    const char *key, *tag, *changed; /* ETag and date as the store writes them; "": it does not */
    int64_t size_bytes;
} ru_bucket_object;

/* `address`: s3://bucket or s3://bucket/prefix. Asks for nothing yet. Errors: RU_E_CONFIG (address,
 * login), RU_E_UNSUPPORTED (no libcurl, or one that cannot sign), RU_E_MEM. */
RU_MUST_USE ru_status ru_bucket_open(const char *address, ru_bucket **out, ru_err *err);
void ru_bucket_close(ru_bucket *b); /* NULL is fine */
/* Whoever waits for the store gives up when `over` says so: RU_E_CANCELLED. */
void ru_bucket_until(ru_bucket *b, bool (*over)(void *self), void *self);
/* Errors of the four: RU_E_PEER (no good answer for too long), RU_E_PERM, RU_E_CONFIG (another
 * region), RU_E_MISSING (no such bucket), RU_E_IO, RU_E_MEM. */
RU_MUST_USE ru_status ru_bucket_put(ru_bucket *b, const char *key, const void *data,
                                    int64_t size_bytes, ru_err *err);
/* All objects, or those that stand in no folder below the prefix. Owner: `arena`. */
RU_MUST_USE ru_status ru_bucket_list(ru_bucket *b, bool folders, ru_arena *arena,
                                     ru_bucket_object **out, uint32_t *n, ru_err *err);
/* One that is not there is removed already. */
RU_MUST_USE ru_status ru_bucket_remove(ru_bucket *b, const char *key, ru_err *err);
/* Remove what uploads of such keys have left behind. */
RU_MUST_USE ru_status ru_bucket_sweep(ru_bucket *b, bool (*is)(const char *key), ru_err *err);

#endif
