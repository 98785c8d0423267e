/* Inside of a client of a federation: what its two threads hold.
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
#include "fleet/local.h"
#include "fleet/wire.h"

/* What the compute thread does next. Under `lock`. */
typedef enum rui_fed_work_kind {
    WORK_NONE,
    WORK_OPEN,
    WORK_TASK,
    WORK_MASK, /* of what the task before it learned */
    WORK_QUIT
} rui_fed_work_kind;

typedef struct rui_fed_work {
    rui_fed_work_kind kind;
    bool done;
    rui_fed_task task;
    float *values;                  /* of bufs */
    struct ru_mask_stream *streams; /* [n_streams] MASK */
    uint32_t n_streams;
    double share; /* MASK: of this client in the sum */
    ru_local_result result;
    ru_local_score score;
    ru_status st;
    ru_err err;
} rui_fed_work;

typedef struct rui_fed_client {
    const ru_fed_client_options *opt;
    ru_arena *arena;
    ru_loop *loop;
    ru_link_tcp *link;
    ru_guest *guest;
    ru_node_id self, host; /* host: the server that it was connected to last */
    ru_pull *pull;
    ru_bufs bufs;
    ru_arena fx_arena;
    ru_effects fx;
    uint64_t process; /* drawn at random: two with one token are told apart */
    uint32_t waker, tries;
    char *state; /* [state_bytes] what the server said of the job; NULL: nothing yet */
    int64_t state_bytes;
    bool up, opened, over;
    uint32_t task; /* that it owes an answer to, on this connection; 0: none */
    rui_fed_task next;
    float *next_values; /* of `next`, which begins when the task before gave up; NULL: none */
    ru_err why;         /* status RU_OK: the job is over, or a stop signal came */
    /* Of the compute thread. */
    ru_rundir run;
    ru_job_data data;
    ru_dataset *train, *held;
    struct rui_masked_updates *masked; /* fleet/secure/join.h; NULL: updates go as they are */
    ru_local *local;
    ru_thread thread;
    ru_flag give_up;
    ru_mutex lock;
    ru_cond changed;
    rui_fed_work work;
} rui_fed_client;

/* client_work.c: the compute thread, which does what `work` says until WORK_QUIT. */
void rui_fed_compute(void *self);

/* client.c, main thread. */
void rui_fed_client_give(rui_fed_client *c, const rui_fed_work *w);
void rui_fed_client_say(rui_fed_client *c, uint32_t what, const void *data, int64_t size_bytes,
                        ru_time now);
/* take: `body` is of bufs. */
void rui_fed_client_parcel(rui_fed_client *c, uint32_t what, const void *head, uint32_t head_bytes,
                           void *body, int64_t body_bytes, ru_time now);
void rui_fed_client_end(rui_fed_client *c, ru_status st, const char *text);

#endif
