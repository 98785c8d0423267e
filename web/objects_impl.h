/* Inside of web/: objects, their transfers and the thread that does them.
 *
 * Thread: that of the objects, under their lock where said. */
#ifndef RU_WEB_OBJECTS_IMPL_H
#define RU_WEB_OBJECTS_IMPL_H

#include "base/arena.h"
#include "env/thread.h"
#include "web/address.h"
#include "web/answer.h"
#include "web/curl.h"
#include "web/objects.h"

#ifdef RU_HAS_CURL

enum { RUI_BODY_BYTES = 1024, RUI_FIRST_BYTES = 64 << 10 };

struct ru_object {
    ru_objects *of;
    uint32_t number;
    rui_address address;
    const char *authority;
    rui_version version;     /* size -1: not known yet */
    struct curl_slist *head; /* lines of every request; NULL: none */
    ru_status failed;        /* under the lock */
    ru_err err;
};

struct ru_ranges {
    ru_objects *of;
    ru_ranges *after; /* in the queue */
    uint32_t group, depth;
    ru_read_piece *pieces; /* [n] */
    uint32_t n, next, ended;
    int64_t bytes; /* so far */
    bool cancelled;
};

typedef enum rui_transfer_state { RUI_IDLE, RUI_RUNS, RUI_WAITS } rui_transfer_state;

/* A piece under way: one request, and those that go on where it broke off. */
typedef struct rui_transfer {
    ru_objects *of;
    CURL *handle;
    rui_transfer_state state;
    ru_ranges *set;
    ru_read_piece *piece;
    ru_object *object;
    int64_t got, got_before; /* bytes in place; when this request began */
    int64_t want;            /* fewer than the piece's when the object ends before it */
    rui_answer answer;
    bool judged, over;
    rui_verdict verdict;
    ru_err err;
    char body[RUI_BODY_BYTES]; /* of an answer without the bytes */
    int64_t n_body, n_dropped;
    uint32_t tries;
    int64_t since_ns, due_ns; /* last progress; WAITS: until */
} rui_transfer;

/* The last bytes that small reads brought. */
typedef struct rui_window {
    ru_mutex lock;
    const ru_object *object;
    int64_t offset, size_bytes;
    uint8_t *bytes; /* [RUI_WINDOW_BYTES]; NULL: not used yet */
} rui_window;

struct ru_objects {
    ru_objects_options opt;
    ru_arena arena;
    rui_curl curl;
    CURLM *multi;
    rui_s3_login login;
    bool login_known;
    ru_object **object; /* [n_objects] */
    uint32_t n_objects, cap_objects;
    rui_window window;
    ru_rng rng;
    ru_thread thread;
    ru_mutex lock; /* guards everything below, and sets */
    ru_cond ended;
    ru_ranges *queue;       /* sets that have pieces left, earlier first */
    rui_transfer *transfer; /* [opt.requests_max] */
    uint32_t n_busy;
    int64_t outstanding, told_ns;
    ru_objects_figures figures;
    bool stop;
};

/* A request for what is missing of t->piece. Errors: RU_E_MEM, RU_E_UNSUPPORTED. */
RU_MUST_USE ru_status rui_transfer_begin(rui_transfer *t, ru_err *err);
/* The request has ended with this code. AGAIN and STOP: t->err says why. */
rui_verdict rui_transfer_end(rui_transfer *t, CURLcode rc);

void rui_objects_main(void *objects); /* the thread */

#endif
#endif
