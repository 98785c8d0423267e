/* A small HTTP server on the loop of a process: pages of text for who has the token.
 *
 * libmicrohttpd speaks the protocol; its epoll descriptor stands in the loop (env/loop/loop.h), so
 * that it has no thread of its own. The library is opened when the first server opens: other
 * commands do not wait for it and the libraries below it.
 *
 * Only GET and HEAD. With a token, a request must carry "Authorization: Bearer TOKEN". Everything
 * is bounded: connections, header bytes, and the time of a request.
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

typedef struct ru_http_options {
    ru_loop *loop;
    const char *listen;   /* "PORT": this machine only; ":PORT": all interfaces; HOST:PORT */
    const char *token;    /* NULL: everybody may read */
    uint32_t conns_max;   /* 0: 32; more are refused */
    int64_t silent_max_s; /* 0: 10; a silent connection ends after it */
    /* The page of a path that begins with '/'. An error gives 503 with the sentence. */
    ru_status (*page)(void *self, const char *path, ru_http_page *into, ru_err *err);
    void (*done)(void *self); /* the page was copied; may be NULL */
    void *self;
} ru_http_options;

/* Errors: RU_E_USAGE (address), RU_E_PEER (taken), RU_E_UNSUPPORTED (no library), RU_E_MEM. */
RU_MUST_USE ru_status ru_http_open(const ru_http_options *opt, ru_arena *arena, ru_http **out,
                                   ru_err *err);
void ru_http_close(ru_http *h);                /* NULL is fine */
const char *ru_http_address(const ru_http *h); /* host:port where it listens */

/* Could a server open? Appends name and version of the library. Errors: RU_E_UNSUPPORTED, and what
 * to install behind "; run ". Thread: any. */
RU_MUST_USE ru_status ru_http_ready(ru_text *library, ru_err *err);

#endif
