/* Inside of the server: its models and the requests under way.
 *
 *   call:  free -> parsed -> in the machine -> computed -> answered -> free
 *
 * Thread: loop only, but what the loader's thread works on (marked). */
#ifndef RU_SERVE_SERVER_IMPL_H
#define RU_SERVE_SERVER_IMPL_H

#include "env/thread.h"
#include "serve/config.h"
#include "serve/crew.h"
#include "serve/journal.h"
#include "serve/scan.h"
#include "serve/scribe.h"
#include "serve/serve.h"
#include "serve/server.h"
#include "serve/stats.h"
#include "serve/words.h"
#include "web/http.h"

enum { RUI_CAME_MAX = 512 };

typedef struct rui_version rui_version;
typedef struct rui_far rui_far;         /* functions: far/far.h */
typedef struct rui_telling rui_telling; /* a request for a text: server_text.c */

/* An infer request. */
typedef struct rui_call {
    struct rui_call *next;     /* of the free ones, or of those that came in this round */
    struct rui_call *next_all; /* of all there ever were */
    ru_server *server;
    rui_version *version;
    ru_http_request *r;
    ru_arena arena; /* of this request; keeps a little of its memory for the next one */
    ru_oip_request in;
    ru_served_part part;
    int64_t held_bytes; /* its outputs, and their JSON */
    uint32_t place;     /* in the machine; RU_SERVE_NONE: not there */
    ru_time queued;     /* when it was parsed */
    ru_serve_request ask;
    rui_job *job; /* whose batch it was in; until its answer */
    rui_entry entry;
} rui_call;

typedef enum rui_version_state {
    RUI_LOADING,
    RUI_READY,
    RUI_DRAINING, /* takes no more */
    RUI_FAILED,
} rui_version_state;

/* A version of a model: opened by the loader, then the loop's alone. */
struct rui_version {
    rui_version *next;
    ru_server *server;
    char *model, *version;
    const char *path;  /* of its file or folder; in `arena` */
    rui_config config; /* texts in `arena` */
    uint64_t load;     /* which load of its model brought it */
    uint32_t instances;
    ru_served *served;
    rui_crew *crew;
    rui_far *far;       /* functions in place of the crew; NULL: none */
    ru_steps *steps;    /* of a language model; NULL: it is none */
    rui_scribe *scribe; /* of its texts */
    ru_words words;
    ru_serve *machine;
    ru_arena arena; /* of the machine and the jobs */
    ru_effects fx;
    ru_arena fx_arena;
    rui_job *jobs;  /* [instances] */
    uint32_t *idle; /* [n_idle] instances without a job */
    uint32_t n_idle, calls;
    rui_version_state state;
    bool waits;   /* for others of its load */
    bool late;    /* it opens with its first batch, which has not been computed yet */
    bool opening; /* the loader has it */
    bool grown;   /* its larger sizes are open, or do not open */
    ru_err err;   /* FAILED: why */
    rui_stats stats;
    ru_time since;              /* it is ready */
    ru_time came[RUI_CAME_MAX]; /* of its last requests, a ring */
    uint64_t n_came;
    uint32_t came_rows; /* that are sure to wait: the machine has not heard of them yet */
    ru_serve_pace pace; /* as the machine heard it last */
    int64_t service_ns[RU_SERVE_SIZES]; /* live, of batches by size; 0: not opened */
    int64_t margin_ns;                  /* live, of pace */
    ru_time margin_at;
    void (*done)(void *self, const ru_err *err);
    void *done_self;
};

typedef enum rui_order_kind { RUI_OPEN, RUI_GROW, RUI_CHOOSE, RUI_CLOSE } rui_order_kind;

/* Work for the loader's thread, and its answer. */
typedef struct rui_order {
    struct rui_order *next;
    rui_order_kind kind;
    rui_version *version;
    ru_status st;
    ru_err err;
} rui_order;

struct ru_server {
    ru_server_options opt;
    ru_arena *arena;
    ru_http *http;
    rui_journal *journal;
    struct rui_besides *besides; /* trainings on the same cores: beside/beside.h; NULL: none */
    ru_rng spans;                /* their ids */
    bool flushes;                /* a timer of the journal is set */
    uint32_t waker;
    bool has_waker, stopping;
    rui_version *versions;
    const char *repository; /* its folder; NULL: none */
    uint64_t loads;
    rui_call *free_calls, *all_calls; /* [n_all] of these */
    rui_call *came, *came_last;       /* in this round of the loop */
    rui_version *here_of;             /* of `here`: the loop computes it next; NULL: none */
    rui_job *here;
    uint32_t n_all, n_calls; /* n_calls: under way, texts too */
    int64_t held_bytes;      /* of all calls and texts */
    rui_telling *tellings;
    uint64_t texts, kins; /* requests for texts, and their prompts, so far */
    void (*stopped)(void *self);
    void *stopped_self;
    /* the loader; both lists under its lock */
    ru_thread loader;
    ru_mutex lock;
    ru_cond more;
    rui_order *orders, *answers;
    bool loader_ends;
};

/* server_load.c */
ru_status rui_loader_start(ru_server *s, ru_err *err);
/* Waits for what it does now, and for the threads that compute. */
void rui_loader_stop(ru_server *s);
void rui_versions_free(ru_server *s);               /* after that */
void rui_loader_answers(ru_server *s, ru_time now); /* after a wake */
rui_version *rui_version_new(ru_server *s, const char *model, const char *version, ru_err *err);
/* Open it by its path, off the loop; from then on it is one of the server's. */
ru_status rui_version_begin(rui_version *v, ru_err *err);
void rui_version_free(rui_version *v); /* one that did not begin */
void rui_version_grow(rui_version *v); /* larger batches open, off the loop */
/* It is open, and its functions were probed: it is ready, or failed. */
void rui_version_known(rui_version *v, ru_status st, const ru_err *err, ru_time now);
/* rui_far_choose, off the loop. false: no memory. */
bool rui_version_choose(rui_version *v);
/* Close it off the loop when nothing of it is under way. */
void rui_version_drain(rui_version *v);

/* server_infer.c */
void rui_infer(ru_server *s, rui_version *v, ru_http_request *r);
void rui_infer_gone(ru_server *s, ru_http_request *r);
void rui_infer_jobs(rui_version *v); /* that are done */
void rui_calls_free(ru_server *s);   /* connections are closed */
void rui_infer_end(rui_version *v);  /* nothing of it is under way */
/* Of what all requests may have: *mine has `bytes` more. more: RU_E_LIMIT where others have too
 * much; alone a request gets what it asks. */
void rui_hold(ru_server *s, int64_t bytes, int64_t *mine);
ru_status rui_hold_more(ru_server *s, int64_t bytes, int64_t *mine, ru_err *err);
void rui_call_over(ru_server *s, rui_version *v); /* one, or a request for texts, is answered */
/* Until when its client wants it, by the parameter, the header, the model's usual time and what the
 * server allows; ns 0: nobody says. Errors: RU_E_DATA. */
ru_status rui_due(const rui_version *v, const ru_http_request *r, int64_t timeout_us, ru_time *due,
                  ru_err *err);
uint32_t rui_priority(const rui_version *v, int64_t asked); /* 0: the model's usual one */
/* The machine hears what batches take, where that has changed. */
void rui_infer_pace(rui_version *v);
/* The machine hears `ev`, and what it says is done. */
void rui_infer_step(rui_version *v, ru_event ev);

/* server_repo.c: what stands behind /v2/repository */
void rui_repository(ru_server *s, ru_http_request *r, const ru_str *part, uint32_t n);
void rui_repository_stop(ru_server *s); /* loads end, and who asked for them is told */

/* The page at '/' (serve.html), as scripts/embed puts it into the program. */
extern const unsigned char rui_embed_serve_html[];
extern const long rui_embed_serve_html_bytes;

/* server_text.c */
void rui_generate(ru_server *s, rui_version *v, ru_http_request *r, bool stream);
void rui_completions(ru_server *s, ru_http_request *r);
void rui_text_looks(ru_server *s, ru_time now); /* what the writers did */
/* false: `r` asks for no text. */
bool rui_text_gone(ru_server *s, const ru_http_request *r);
void rui_texts_free(ru_server *s); /* writers and connections are closed */

/* server_world.c */
RU_MUST_USE ru_status rui_server_world(const ru_server *s, ru_arena *arena, ru_text *out,
                                       ru_err *err);

/* server_routes.c: a text as answer, which stays until `done` (NULL: for good); a copy of one; the
 * functions of ru_http_options. */
void rui_give_text(ru_http_request *r, const char *type, ru_str text, void (*done)(void *self),
                   void *self);
void rui_give_copy(ru_http_request *r, const char *type, ru_text text);
/* The version that answers: the one named, else (n 0) the best; NULL: none. */
rui_version *rui_version_find(const ru_server *s, ru_str model, ru_str version);
/* 503, with why it is not ready; Retry-After where it may become so. */
void rui_not_ready(const ru_server *s, const rui_version *v, ru_http_request *r);
void rui_route(void *self, ru_http_request *r);

#endif
