/* A claim on a folder: one job at a time works in it, with as many processes as it likes.
 *
 * The file DIR/lock is locked (flock) while a process that claimed the folder lives, however it
 * ends; its text says which job that is and who was first. The first process takes the lock alone,
 * writes the text and then shares the lock with all that have the same key:
 *
 *     exclusive -> text -> shared          shared -> is the text's key ours?
 *
 * Thread: any; an object belongs to one thread at a time. */
#ifndef RU_ENV_CLAIM_H
#define RU_ENV_CLAIM_H

#include "base/status.h"

typedef struct ru_claim ru_claim;

typedef struct ru_claim_options {
    const char *dir; /* exists */
    uint64_t key;    /* of the job */
    bool alone;      /* no other process may have the claim, not even with the same key */
    int64_t wait_ns; /* a process that was killed a moment ago may take so long to end */
} ru_claim_options;

/* Errors: RU_E_AGAIN naming who works there; those of opening a file. Where the file system knows
 * no locks, the claim is given all the same, with a warning in the log. */
RU_MUST_USE ru_status ru_claim_open(const ru_claim_options *opt, ru_claim **out, ru_err *err);
void ru_claim_close(ru_claim *c); /* NULL is fine */

#endif
