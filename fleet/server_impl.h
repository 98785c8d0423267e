/* Inside of the server of a federation: what its two threads hold.
 *
 * Thread: as the fields say. */
#ifndef RU_FLEET_SERVER_IMPL_H
#define RU_FLEET_SERVER_IMPL_H

#include "base/map.h"
#include "base/str.h"
#include "comm/node/loop.h"
#include "comm/pull/pull.h"
#include "env/link/link_tcp.h"
#include "env/thread.h"
#include "fleet/server.h"
#include "fleet/server/pace.h"
#include "fleet/sum.h"

/* The values of a round, while somebody reads them. */
typedef struct rui_edition {
    float *values;        /* [count] of malloc */
    uint8_t *packed;      /* of malloc; NULL: it never was */
    int64_t packed_bytes; /* of these values; 0: they are not packed */
    uint32_t refs;
} rui_edition;

typedef struct rui_fed_member {
    char name[RUI_FED_NAME_MAX + 1];
    ru_node_id node;
    uint64_t process; /* of the client, drawn at random; 0: not known */
    ru_time gone_at;
    bool greeted; /* on this connection */
    bool up;      /* connected and ready */
    bool offered; /* an update is on its way on this connection */
    bool rests;   /* connected, out of its hours */
    bool unpacks; /* values and updates may travel packed */
    double samples, held;
    double took_s; /* its last answer that counted, from the begin of that round */
    uint32_t task; /* that it owes an answer to; 0: none */
    rui_fed_kind kind;
    ru_time task_at, offered_at;
    uint32_t reading; /* 1 + the edition that is on its way to it; 0: none */
    uint32_t place;   /* 1 + its number in the round whose updates are masked; 0: none */
    uint32_t excused; /* task that is over without its answer, until it says a word; 0: none */
    bool queued;      /* for the model; `waits` comes with it */
    rui_fed_task waits;
} rui_fed_member;

/* The masked sum of a round: the main thread takes the masks off. */
typedef enum rui_masked { RUI_MASKED_NONE, RUI_MASKED, RUI_UNMASKED } rui_masked;

/* What newcomers are told. */
typedef struct rui_fed_welcome {
    rui_fed_start head;
    uint8_t *state; /* [state_bytes] layout of the values, text of state.json */
    int64_t state_bytes;
} rui_fed_welcome;

/* What one thread has for the other. Under `lock`. */
typedef struct rui_fed_slot {
    bool ready, kept, ending;
    bool spent; /* ended, because another round would tell too much */
    /* No round goes on, and other clients are there or out of their hours than before. */
    bool waits;
    uint32_t there, resting; /* that were told last; written by the loop thread */
    rui_masked masked;
    ru_err unmask;     /* why masks could not be taken off */
    const char *ended; /* "done", "stopped" */
    rui_edition *edition;
    int64_t samples;
    double loss, accuracy;
    uint8_t *saved; /* [saved_bytes] snapshot of the federation after the round */
    int64_t saved_bytes;
    ru_arena line_arena;
    ru_text line; /* of the round, for RUN/federation.jsonl */
    ru_err why;   /* status RU_OK: nothing failed */
} rui_fed_slot;

typedef struct rui_fed_asked {
    uint32_t sent,
        lost; /* clients that got the task of the round; of them, that went away with it */
} rui_fed_asked;

typedef struct rui_fed_server {
    const ru_fed_serve_options *opt;
    const ru_job_federated *job;
    ru_arena *arena;
    const char *out; /* folder */
    rui_fed_welcome welcome;
    ru_flat flat;
    double labels; /* of a sample, at most */
    ru_loop *loop;
    ru_link_tcp *link;
    ru_node_loop bridge;
    int64_t told; /* rounds that the main thread has taken */
    ru_pull *pull;
    ru_bufs bufs;
    ru_thread thread;
    uint32_t waker;
    uint8_t key[RU_FED_KEY_BYTES]; /* that was derived last */
    /* Of the loop thread. */
    ru_fed *fed;
    rui_fed_member *members; /* [job->clients_max] n used */
    uint32_t n, there;
    ru_map by_node; /* node -> member */
    rui_edition editions[RU_FED_EDITIONS_MAX], *now_values;
    ru_fed_sum sum;
    struct rui_secure *secure;          /* of masked updates; NULL: they come as they are */
    double loss_sum, loss_weight;       /* of the answers of the round */
    double correct_sum, correct_weight; /* of those that tell their accuracy */
    uint32_t round;
    ru_time round_begun;
    rui_fed_asked asked;
    int64_t waits_for; /* 1 + clients that were there when it said that it waits; 0: it did not */
    /* An evaluation of the tiers. */
    uint32_t eval_left;
    struct {
        double hits, rows;
    } scores[RU_PICK_TIERS_MAX];
    rui_fed_pace pace;
    bool over;
    ru_mutex lock;
    ru_cond changed;
    rui_fed_slot slot;
} rui_fed_server;

enum {
    RUI_FED_TIMER_FED = 1,
    RUI_FED_TIMER_EVAL,
    RUI_FED_TIMER_BODIES,
    RUI_FED_TIMER_END,
    RUI_FED_TIMER_PACE,
    RUI_FED_TIMER_SECURE
};
#define RUI_FED_COOKIE_NONE UINT64_MAX /* of parcels whose end nobody waits for */

/* server_loop.c: the machine of rounds and what it wants. */
rui_fed_member *rui_fed_member_of(rui_fed_server *s, ru_node_id node); /* NULL: none */
uint32_t rui_fed_number(const rui_fed_server *s, const rui_fed_member *m);
void rui_fed_heard(ru_node_id to, ru_effects *fx);
void rui_fed_say_no(ru_node_id to, ru_effects *fx, const char *fmt, ...) RU_PRINTF(3, 4);
void rui_fed_step(rui_fed_server *s, ru_event ev, ru_effects *fx);
/* A word to the machine. */
void rui_fed_local(rui_fed_server *s, ru_fed_word word, int64_t value, const void *data,
                   int64_t size_bytes, ru_time now, ru_effects *fx);
void rui_fed_leave(rui_fed_server *s, rui_fed_member *m, ru_time now, ru_effects *fx);
/* It broke the rules: out, until it comes again. */
void rui_fed_expel(rui_fed_server *s, rui_fed_member *m, const char *sentence, ru_time now,
                   ru_effects *fx);
/* Models for those that wait; the second one: some times a second. */
void rui_fed_paced_on(rui_fed_server *s, ru_time now, ru_effects *fx);
void rui_fed_paced_look(rui_fed_server *s, ru_time now, ru_effects *fx);
/* The evaluation of the tiers is over. */
void rui_fed_evaluated(rui_fed_server *s, ru_time now, ru_effects *fx);
/* s->sum has the updates of these clients: the values of the round that follows. */
void rui_fed_merged(rui_fed_server *s, const ru_fed_list *l, ru_time now);
/* The main thread is told who is there, if no round tells it and somebody rests. */
void rui_fed_tell_clients(rui_fed_server *s);
/* The main thread is told to take the masks off the sum; rui_secure_unmasked follows. */
void rui_fed_unmask(rui_fed_server *s);
/* The main thread is told that the job is over. */
void rui_fed_end(rui_fed_server *s, const char *ended);
/* It is over because of federated.privacy.epsilon. */
void rui_fed_spent(rui_fed_server *s);

/* server_hear.c: guests of the part, timers, wakes. */
extern const ru_part_ops rui_fed_part;
void rui_fed_got(void *self, ru_node_id from, uint32_t what, const void *head, uint32_t head_bytes,
                 void *body, int64_t body_bytes, ru_time now, ru_effects *fx);
void rui_fed_sent(void *self, uint64_t cookie, bool ok, ru_time now, ru_effects *fx);
void rui_fed_timer(void *self, uint32_t what, ru_time now);
void rui_fed_wake(void *self, ru_time now);
void rui_fed_stop(void *self, int fd, uint32_t events, ru_time now);
/* The one of this name; NULL: no place for another. */
rui_fed_member *rui_fed_member_new(rui_fed_server *s, const char *name);
/* The first event of the machine. */
void rui_fed_first(rui_fed_server *s, ru_time now);
/* The owner is told that it is over. */
void rui_fed_fail(rui_fed_server *s, ru_status st, const char *text);

#endif
