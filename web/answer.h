/* What an answer to a request for a range of an object means. Pure.
 *
 *   head of the answer --judge--> TAKE the bytes | ask AGAIN later | STOP with a sentence
 *
 * Bytes are taken only when the head says that they are the ones asked for, of the object that was
 * seen first: status 206, the range that was asked for, the same size, the same ETag (or date where
 * there is none).
 *
 * Thread: any. Source: rfc-9110-2022 sec 13 (conditions), 14 (ranges), 15 (status codes), 10.2.3
 * (Retry-After). */
#ifndef RU_WEB_ANSWER_H
#define RU_WEB_ANSWER_H

#include "base/rng.h"
#include "base/status.h"

enum { RUI_TAG_BYTES = 160, RUI_CODE_BYTES = 48 };

/* What stays the same as long as the object does. */
typedef struct rui_version {
    int64_t size_bytes;        /* -1: not known yet */
    char tag[RUI_TAG_BYTES];   /* ETag as sent; "": none, or too long to keep */
    char date[RUI_CODE_BYTES]; /* Last-Modified; "": none */
} rui_version;

typedef struct rui_answer {
    int32_t status;
    bool ranged;           /* there is a Content-Range, and it makes sense */
    int64_t first, last;   /* of it; -1: "*" */
    int64_t retry_after_s; /* -1: none */
    rui_version version;
    char encoding[RUI_CODE_BYTES]; /* Content-Encoding */
    char region[RUI_CODE_BYTES];   /* x-amz-bucket-region */
    char code[RUI_CODE_BYTES];     /* of an S3 error: NoSuchKey, SlowDown, ... */
} rui_answer;

typedef enum rui_verdict { RUI_TAKE, RUI_AGAIN, RUI_STOP } rui_verdict;

typedef struct rui_asked {
    const char *name;
    bool s3, login, token;      /* was there one? */
    int64_t offset, size_bytes; /* the range */
    const rui_version *version; /* size -1: the first request */
} rui_asked;

void rui_answer_begin(rui_answer *a);
/* One line of the head, with or without its end. A status line begins a new answer. */
void rui_answer_line(rui_answer *a, const char *line, int64_t n);
/* The first bytes of an error's body. */
void rui_answer_body(rui_answer *a, const char *text, int64_t n);
/* `err` is filled for AGAIN too: the reason. */
rui_verdict rui_answer_judge(const rui_answer *a, const rui_asked *q, ru_err *err);
/* The same of a request that writes, lists or removes; name, s3 and login count. */
rui_verdict rui_answer_written(const rui_answer *a, const rui_asked *q, ru_err *err);

/* How long to wait before the request number `tries` + 1: twice as long each time, by chance
 * between half and all of it, at least what the server asks for; at most 20 s, asked for 60 s. */
int64_t rui_answer_wait_ns(uint32_t tries, int64_t retry_after_s, ru_rng *r);

#endif
