/* A small HTTP server on the loop of a process: pages of text, or requests with bodies whose
 * answers come later.
 *
 * libmicrohttpd speaks the protocol; its epoll descriptor stands in the loop (env/loop/loop.h), so
 * that it has no thread of its own. The library is opened when the first server opens: other
 * commands do not wait for it and the libraries below it.
 *
 * With a token, a request must carry "Authorization: Bearer TOKEN". Everything is bounded:
 * connections, header bytes, bodies each and together, and the times of a head, a body, an answer
 * and a reader that does not read.
 *
 *   head --> body --> request(r) --> ru_http_answer(r), at once or later
 *                         |              | or ru_http_stream(r), ru_http_put(r)..., ru_http_end(r)
 *                         `--> gone(r): the client left; the owner still ends r, for nobody
 *
 * Thread: loop only. */
#ifndef RU_WEB_HTTP_H
#define RU_WEB_HTTP_H

#include "base/str.h"
#include "env/loop/loop.h"

typedef struct ru_http ru_http;

enum { RU_HTTP_ADDRESS_MAX = 128 };

typedef struct ru_http_page {
    const char *type; /* "text/plain" */
    const char *text; /* [size_bytes] view until `done`; NULL: there is no such page */
    int64_t size_bytes;
} ru_http_page;

/* A request, from request(r) until the owner ends it: by one answer, or one stream and its end. */
typedef struct ru_http_request {
    const char *method, *path; /* view until the answer or gone(r) */
    const uint8_t *body;       /* [body_bytes] view until the end; it was not parsed */
    int64_t body_bytes;
    ru_time since; /* when its head came, also where the loop was not there to read it */
    ru_time whole; /* when the last of its body came, likewise; it has none: since */
    void *mine;    /* the owner's */
} ru_http_request;

typedef struct ru_http_field {
    const char *name, *value;
} ru_http_field;

typedef struct ru_http_span {
    const void *data;
    int64_t size_bytes;
} ru_http_span;

typedef struct ru_http_reply {
    uint32_t status;
    const ru_http_field *fields; /* [n_fields] copied */
    const ru_http_span *spans;   /* [n_spans] one behind the other; their bytes are not copied */
    uint32_t n_fields, n_spans;
    /* Once, when the bytes are not needed any more, maybe before ru_http_answer returns; NULL:
     * they stay as long as the server. */
    void (*done)(void *self);
    void *self;
} ru_http_reply;

typedef struct ru_http_options {
    ru_loop *loop;
    const char *listen;     /* "PORT": this machine only; ":PORT": all interfaces; HOST:PORT */
    const char *token;      /* NULL: everybody may read */
    const char *open_path;  /* everybody may GET it, also with a token; NULL: none */
    const char *openai;     /* refusals of paths that begin so are of OpenAI's form; NULL: none */
    const char *cert, *key; /* PEM: TLS, of the certificate (its chain behind it); NULL: none */
    /* 0: 32. Where requests are answered, those who ask nothing for longest make room for others;
     * (503, if they had not asked yet and there is no TLS); more wait until there is some. A fourth
     * of them may send no more and wait for answers. */
    uint32_t conns_max;
    int64_t silent_max_s; /* 0: 10; a silent connection ends after it */
    /* The page of a path that begins with '/'. An error gives 503 with the sentence. */
    ru_status (*page)(void *self, const char *path, ru_http_page *into, ru_err *err);
    void (*done)(void *self); /* the page was copied; may be NULL */
    /* Instead of `page`: every request whose head and body are there. */
    void (*request)(void *self, ru_http_request *r);
    void (*gone)(void *self, ru_http_request *r); /* may be NULL */
    /* An answer is about to go, or a stream has ended: its body has so many bytes. May be NULL. */
    void (*answered)(void *self, const ru_http_request *r, uint32_t status, int64_t bytes);
    void (*sent)(void *self); /* an answer or a stream has gone, or cannot; may be NULL */
    int64_t body_max_bytes;   /* of one request: 413; 0: 64 MiB */
    int64_t bodies_max_bytes; /* of all, with what was put and not read: 503; 0: eight times that */
    int64_t body_max_s;       /* from head to end of body; 0: 60 */
    int64_t answer_max_s;     /* from body to answer: 504, and gone(r); 0: no limit */
    int64_t stream_max_bytes; /* put and not read yet; 0: 256 KiB */
    void *self;
} ru_http_options;

/* Errors: RU_E_USAGE (address; a certificate and a key that do not belong together), RU_E_PEER
 * (taken), RU_E_UNSUPPORTED (no library, or one without TLS), RU_E_MEM. */
RU_MUST_USE ru_status ru_http_open(const ru_http_options *opt, ru_arena *arena, ru_http **out,
                                   ru_err *err);
void ru_http_close(ru_http *h);                /* NULL is fine */
const char *ru_http_address(const ru_http *h); /* host:port where it listens */
/* Are there answers that have not gone whole? sent(self) says when that may have changed. */
bool ru_http_sends(const ru_http *h);

/* What the loop lately needed to read a request and to send an answer (the median), and how long an
 * answer waited for that (of 19 in 20, less); 0: not known. */
void ru_http_turn(const ru_http *h, int64_t *each_ns, int64_t *wait_ns);
/* A field of the request by its name in any case; NULL: none, or gone. View as the path. */
const char *ru_http_asked(const ru_http_request *r, const char *name);
/* End `r` with one answer; `r` is invalid then. */
void ru_http_answer(ru_http_request *r, const ru_http_reply *a);
/* End `r` with a sentence as JSON, {"error":"..."} or OpenAI's {"error":{"message":"...",
 * "type":"...","param":null,"code":null}}; copied. retry_s: Retry-After; 0: not said. */
void ru_http_refuse(ru_http_request *r, uint32_t status, const char *sentence, int64_t retry_s);
/* The same as 405: its path is asked by `method`, "GET" or "POST". */
void ru_http_refuse_method(ru_http_request *r, const char *method);
/* Begin an answer of unknown length (chunked); fields are copied. */
void ru_http_stream(ru_http_request *r, uint32_t status, const ru_http_field *fields,
                    uint32_t n_fields);
/* Add to it; copied. false: stream_max_bytes are there that the reader has not read, or it is gone,
 * or all streams and bodies have bodies_max_bytes; nothing was added. A reader that does not read
 * for silent_max_s is dropped: gone(r). */
bool ru_http_put(ru_http_request *r, const void *data, int64_t size_bytes);
void ru_http_end(ru_http_request *r); /* `r` is invalid then */

/* Could a server open? Appends name and version of the library. Errors: RU_E_UNSUPPORTED, and what
 * to install behind "; run ". Thread: any. */
RU_MUST_USE ru_status ru_http_ready(ru_text *library, ru_err *err);

#endif
