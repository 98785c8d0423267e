/* Where an object stands and who may read it: http://, https:// and s3:// addresses, credentials by
 * the usual variables.
 *
 *   s3://bucket/a key --AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL--> ENDPOINT/bucket/a%20key
 *                     --region-->  https://bucket.s3.REGION.amazonaws.com/a%20key
 *
 * Nothing of a secret stands in a name or a message: what follows '?' in an address may be one
 * (presigned addresses), and an address with a password is refused.
 *
 * Source: aws-2023-endpoints (form of the addresses, names and order of the variables and files).
 * Thread: any. */
#ifndef RU_WEB_ADDRESS_H
#define RU_WEB_ADDRESS_H

#include "base/str.h"

typedef const char *(*rui_env_fn)(const char *name);

/* Who signs requests to an S3 store. All NULL: nobody, public objects only. */
typedef struct rui_s3_login {
    const char *key, *secret, *session;
    const char *region;
    const char *from; /* where they were found, for messages */
} rui_s3_login;

typedef struct rui_address {
    const char *url;
    const char *name; /* for messages */
    bool s3;
    const char *host; /* of the url, with its port */
} rui_address;

/* Errors: RU_E_CONFIG (half of a login, a profile that is not there), RU_E_MEM. */
RU_MUST_USE ru_status rui_s3_login_find(rui_env_fn env, ru_arena *arena, rui_s3_login *out,
                                        ru_err *err);
/* Owner: texts in `arena`. Errors: RU_E_CONFIG. */
RU_MUST_USE ru_status rui_address_read(const char *text, rui_env_fn env, const char *region,
                                       ru_arena *arena, rui_address *out, ru_err *err);
/* A key or a value as it stands in an address. Not unreserved (RFC 3986) becomes %XX, and '/'
 * unless `slash`. Signatures need this form. */
void rui_address_put(ru_text *t, const char *s, bool slash);
/* File of certificates that the variables name; NULL: the system's. */
const char *rui_address_authority(rui_env_fn env, bool s3);

#endif
