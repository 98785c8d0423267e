/* Inside of a client of a federation: what the program's thread and the loop's hold.
 *
 *   loop's thread     guest, parcels, keys of masks
 *   program's thread  what it does with the model, between two calls; masks, inside of `next`
 *
 * Thread: as the fields say. */
#ifndef RU_FLEET_CLIENT_CLIENT_IMPL_H
#define RU_FLEET_CLIENT_CLIENT_IMPL_H

#include "comm/node/guest.h"
#include "comm/pull/pull.h"
#include "env/link/link_tcp.h"
#include "env/loop/loop.h"
#include "env/thread.h"
#include "fleet/client/client.h"
#include "fleet/client/hours.h"
#include "fleet/wire.h"

/* What the program's thread does next. */
typedef enum rui_fed_do {
    RUI_FED_DO_NONE,
    RUI_FED_DO_TASK,
    RUI_FED_DO_MASK, /* of what the task before it learned */
} rui_fed_do;

typedef struct rui_fed_job {
    rui_fed_do kind;
    bool done;
    rui_fed_task task;
    float *values;                  /* of bufs */
    struct ru_mask_stream *streams; /* [n_streams] MASK */
    uint32_t n_streams;
    double share; /* MASK: of this client in the sum */
    ru_fed_result result;
    ru_fed_score score;
    ru_err why; /* status RU_OK: it was done */
} rui_fed_job;

/* What one thread has for the other. Under `lock`. */
typedef struct rui_fed_desk {
    rui_fed_job job;
    bool model, ready, over; /* is there; was said; nothing follows */
    double samples, held;
} rui_fed_desk;

struct ru_fed_client {
    ru_fed_client_options opt;
    ru_arena arena;
    char name[RUI_FED_NAME_MAX + 1];
    uint8_t key[RU_FED_KEY_BYTES];
    ru_loop *loop;
    ru_link_tcp *link;
    ru_guest *guest;
    ru_node_id host; /* the server that it was connected to last */
    ru_pull *pull;
    ru_bufs bufs;
    ru_thread thread;
    ru_flag give_up, stop;
    uint32_t waker;
    ru_mutex lock;
    ru_cond changed;
    rui_fed_desk desk;
    ru_fed_model model; /* set before desk.model */
    /* Of the loop's thread. */
    ru_arena fx_arena;
    ru_effects fx;
    uint64_t process; /* drawn at random: two with one token are told apart */
    uint32_t tries;
    ru_time lost_at;     /* since when there is no server */
    rui_fed_start start; /* count 0: nothing yet */
    bool up, started;    /* started: it heard START on this connection */
    bool opened, over;   /* opened: the program is ready */
    rui_hours hours;
    bool rests;    /* out of its hours */
    uint32_t task; /* that it owes an answer to, on this connection; 0: none */
    rui_fed_task next;
    float *next_values; /* of `next`, which begins when the task before gave up; NULL: none */
    ru_err why;         /* status RU_OK: the job is over, or it was stopped */
    bool packed;        /* the values of its task came packed, so the update goes so */
    struct rui_masked_updates *masked; /* fleet/client/masked.h; NULL: updates go as they are */
    /* Of the program's thread. */
    rui_fed_job hand;
};

/* loop.c: connects, and lives until the end. */
RU_MUST_USE ru_status rui_fed_client_connect(ru_fed_client *c, ru_err *err);
void rui_fed_client_loop(void *self);

/* loop.c, on the loop's thread. */
void rui_fed_client_give(ru_fed_client *c, const rui_fed_job *w);
void rui_fed_client_say(ru_fed_client *c, uint32_t what, const void *data, int64_t size_bytes,
                        ru_time now);
/* take: `body` is of bufs. */
void rui_fed_client_parcel(ru_fed_client *c, uint32_t what, const void *head, uint32_t head_bytes,
                           void *body, int64_t body_bytes, ru_time now);
void rui_fed_client_end(ru_fed_client *c, ru_status st, const char *text);

/* client.c: the model as START says it. False: the parcel is none, or there is no memory. */
bool rui_fed_client_model(ru_fed_client *c, const uint8_t *body, int64_t body_bytes);

#endif
