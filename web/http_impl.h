/* Inside of the HTTP server: libmicrohttpd, opened at run time, and the life of a request.
 *
 *   READING --body is there--> HELD --answer--> ANSWERED --sent--> (free)
 *                               | `--stream--> STREAM ---- end and all read --> (free)
 *                               `--hang-up, too late--> GONE --the owner ends it--> (free)
 *
 * A request that is held for longer than a moment is suspended: the library neither watches its
 * connection nor times it out. Its descriptor stands in the loop for its end alone, and a timer
 * looks for times that are over. Until then the library asks for its answer each time it runs:
 * suspending costs four system calls of epoll and a read of nothing.
 *
 * Thread: loop only. */
#ifndef RU_WEB_HTTP_IMPL_H
#define RU_WEB_HTTP_IMPL_H

#include "web/http.h"

#ifdef RU_HAS_MHD
#include <microhttpd.h>

/* The functions of the library that are used. */
#define RUI_MHD_LIST(X)                                   \
    X(start_daemon)                                       \
    X(stop_daemon)                                        \
    X(run)                                                \
    X(get_timeout)                                        \
    X(get_daemon_info)                                    \
    X(get_connection_info)                                \
    X(get_connection_values)                              \
    X(lookup_connection_value)                            \
    X(create_response_from_buffer)                        \
    X(create_response_from_buffer_with_free_callback_cls) \
    X(create_response_from_iovec)                         \
    X(create_response_from_callback)                      \
    X(suspend_connection)                                 \
    X(resume_connection)                                  \
    X(add_response_header)                                \
    X(queue_response)                                     \
    X(destroy_response)                                   \
    X(get_version)                                        \
    X(is_feature_supported)

typedef enum rui_http_state {
    RUI_HTTP_READING,
    RUI_HTTP_HELD,
    RUI_HTTP_ANSWERED,
    RUI_HTTP_STREAM,
    RUI_HTTP_GONE, /* nobody reads the answer */
} rui_http_state;

typedef struct rui_http_half rui_http_half; /* http_half.c */

enum { RUI_HTTP_FULL = 4 }; /* refusals with a Retry-After of 1 to so many seconds */

typedef struct rui_http_call {
    ru_http_request r; /* first: the owner's view */
    ru_http *http;
    struct rui_http_call *before, *next; /* of ru_http.calls */
    struct MHD_Connection *conn;         /* NULL: the library is through with it */
    struct MHD_Response *response;       /* made, not queued yet */
    bool shared;                         /* it is one of ru_http.full */
    rui_http_state state;
    uint32_t status;
    ru_time run;  /* of the library that read its head */
    ru_time step; /* of the last run that read or sent some of it */
    bool waits;   /* held, and not suspended yet */
    ru_time held; /* since when */
    bool suspended, watched, owned, ended, late;
    bool http_1_1;
    rui_http_half *half; /* its client sends no more, but may read; else NULL */
    uint8_t *body;
    int64_t body_cap;
    uint8_t *pending; /* [pending_cap] of a stream: [pending_at, pending_n) are not read yet */
    int64_t pending_at, pending_n, pending_cap, put_bytes;
} rui_http_call;

/* A connection, for as long as it lives. */
typedef struct rui_http_conn {
    struct rui_http_conn *before, *next;
    int fd;
    ru_time idle_since; /* accepted, or its last request ended */
    bool asks, asked;   /* a request is in progress; there was one */
    bool looked;        /* idle, and its client had not ended */
    bool ended;         /* by the server */
} rui_http_conn;

/* What a request takes of a run of the library, by the median, and the 95th percentile of what runs
 * take. Learned from runs of several requests, and forgotten when there are none. */
typedef struct rui_http_pace {
    int64_t turn_ns, wait_ns;
    ru_time at; /* of the last such run */
} rui_http_pace;

struct ru_http {
    ru_http_options opt;
    char address[RU_HTTP_ADDRESS_MAX];
    struct MHD_Daemon *daemon;
    int epoll_fd; /* -1: not in the loop */
    int64_t bodies_bytes;
    rui_http_call *calls;
    rui_http_conn *conns, *last_conn; /* the longest idle last */
    uint32_t n_conns, n_ended;        /* ended: not closed yet */
    rui_http_half *halves;
    uint32_t n_halves;
    bool sweeping, holding, looking; /* their timers are set */
    uint32_t n_waits;                /* calls that wait */
    uint32_t runs;                   /* of the library until nothing moves without an event */
    ru_time ran, ran_before;         /* when its last two runs began */
    uint32_t n_began, n_over;        /* requests of the last run */
    uint32_t n_moved; /* requests that it read or sent some of, but those that wait now */
    rui_http_pace pace;
    struct MHD_Response *full[RUI_HTTP_FULL]; /* refusals that many get, by Retry-After; or NULL */
    char full_text[160];                      /* their sentence */
    int64_t full_bytes;                       /* of the body of each */
#define RUI_X(fn) __typeof__(&MHD_##fn) fn;
    RUI_MHD_LIST(RUI_X)
#undef RUI_X
};

/* http.c: a sentence as response, queued at once: JSON where requests are answered, else text. */
enum MHD_Result rui_http_say(ru_http *h, struct MHD_Connection *c, const char *path,
                             uint32_t status, const char *text);
/* The body of a refusal. */
void rui_http_sentence(const ru_http *h, const char *path, uint32_t status, const char *sentence,
                       ru_text *t);
enum {
    RUI_HTTP_TURN = 8, /* requests of a run that say what one takes */
    RUI_HTTP_RUNS = 2, /* after one in which something moved: an answer is queued, then sent */
};
void rui_http_pace_learn(rui_http_pace *p, int64_t took_ns, uint32_t n, ru_time now);
rui_http_pace rui_http_pace_at(const rui_http_pace *p, ru_time now);
enum { RUI_HTTP_SENTENCE_BYTES = 6 * RU_ERR_TEXT_MAX + 96 }; /* of it at most */
void rui_http_soon(ru_http *h);                              /* the library runs again soon */

/* http_call.c: one step of a request, as the library asks for it. */
enum MHD_Result rui_http_step(ru_http *h, struct MHD_Connection *c, const char *path,
                              const char *method, const char *version, const char *data, size_t *n,
                              void **state);
void rui_http_completed(void *self, struct MHD_Connection *c, void **state,
                        enum MHD_RequestTerminationCode why);
void rui_http_connection(void *self, struct MHD_Connection *c, void **socket,
                         enum MHD_ConnectionNotificationCode what);
/* Requests and connections whose time is over. */
void rui_http_sweep(ru_http *h, ru_time now);
/* Requests that have waited for a moment are suspended. */
void rui_http_hold(ru_http *h, ru_time now);
#define RUI_HTTP_HOLD_NS INT64_C(10000000)
void rui_http_leave(rui_http_call *k); /* its client left: the owner is told */
/* The server closes: every request is gone. */
void rui_http_drop_all(ru_http *h);

/* http_conn.c: the connection of a request; NULL: without memory for it. */
rui_http_conn *rui_http_conn_of(const ru_http *h, struct MHD_Connection *c);
void rui_http_conn_idle(ru_http *h, rui_http_conn *c); /* its request has ended */
void rui_http_conn_end(ru_http *h, rui_http_conn *c);
void rui_http_make_room(ru_http *h); /* where few places are left */
void rui_http_look_off(ru_http *h);  /* when it is closed */

/* http_half.c: `fd` of a request that is suspended; its client sends no more. false: no memory or
 * descriptors, more than a pair of sockets holds is not read, or a fourth of the connections that
 * there may be have one. */
bool rui_http_half_open(rui_http_call *k, int fd);
void rui_http_half_end(rui_http_half *f); /* its request is answered */
void rui_http_halves_free(ru_http *h);    /* after the library has closed */
#endif

#endif
