/* An HTTP server of files by ranges that answers as slowly as a store behind a network, and wrongly
 * where a test wants it: the storage emulator of `rubato bench reader` and of test/lab/ranges.sh.
 *
 *   request --delay--> head, body at a rate that all connections share
 *
 * Only GET and HEAD over HTTP/1.1, of files of one folder. ETags follow size and date of a file.
 * With `takes` it is an S3 store that takes what is put, a body at the same rate, and keeps
 * nothing: lists are empty, every upload succeeds.
 *
 * Thread: ru_range_server_start makes one that runs the loop, until close. */
#ifndef RU_BENCH_RANGE_SERVER_H
#define RU_BENCH_RANGE_SERVER_H

#include "base/arena.h"

typedef struct ru_range_server ru_range_server;

/* X(name, what every n-th request gets) */
#define RU_RANGE_FAULT_LIST(X)                                           \
    X(busy, "status 503, Retry-After: 0")                                \
    X(cut, "half the bytes, then the end of the connection")             \
    X(brief, "half the bytes, as if those were all that were asked for") \
    X(stall, "half the bytes, then nothing")                             \
    X(whole, "status 200 and the whole file")                            \
    X(gzip, "a Content-Encoding")                                        \
    X(lie, "bytes from another place, and says so")                      \
    X(mute, "no Content-Range")                                          \
    X(flood, "more bytes than were asked for, chunked")                  \
    X(noise, "bytes that are no HTTP")                                   \
    X(wide, "status 503 with a head of 300 kB")                          \
    X(forbid, "status 403")                                              \
    X(twist, "another ETag")                                             \
    X(send, "status 302 to the same file below /far/")

typedef enum ru_range_fault {
#define RU_X(name, help) RU_RANGE_##name,
    RU_RANGE_FAULT_LIST(RU_X)
#undef RU_X
        RU_RANGE_FAULTS
} ru_range_fault;

typedef struct ru_range_server_options {
    const char *dir;
    int64_t delay_ns;                /* from the request to the first byte */
    int64_t bytes_per_s;             /* of all connections; 0: no limit */
    uint32_t port;                   /* 0: a free one */
    uint32_t every[RU_RANGE_FAULTS]; /* 0: never */
    bool takes;
    const char *log; /* file that gets every request's head, before its answer, and "sends: N" for
                        the bytes of a file in it; NULL: none */
} ru_range_server_options;

RU_MUST_USE ru_status ru_range_server_open(const ru_range_server_options *opt,
                                           ru_range_server **out, ru_err *err);
void ru_range_server_close(ru_range_server *s); /* NULL is fine; ends its thread */
uint32_t ru_range_server_port(const ru_range_server *s);
RU_MUST_USE ru_status ru_range_server_start(ru_range_server *s, ru_err *err); /* a thread */
RU_MUST_USE ru_status ru_range_server_run(ru_range_server *s, ru_err *err);   /* the caller's */

#endif
