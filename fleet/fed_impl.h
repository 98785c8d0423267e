/* The state of a federation: fed.c moves it, fed_saved.c keeps it.
 *
 * Thread: loop only. */
#ifndef RU_FLEET_FED_IMPL_H
#define RU_FLEET_FED_IMPL_H

#include "cost/privacy.h"
#include "fleet/fed.h"

typedef enum client_state { IDLE, BUSY, LATE, AWAY } client_state;
typedef enum stage { PROFILE, ROUND, KEEP, EVALUATE, WAIT, DONE } stage;

typedef struct client {
    double samples, mean_s, tiered_s; /* tiered_s: mean when tiers were made */
    double profile_s, log_sum, log_square;
    uint32_t measured, picks, last_round, task;
    double loss;
    ru_time sent;
    client_state state;
    bool probing;        /* its task only shows how long it takes */
    bool queued;         /* waits for its profile */
    bool measures, idle; /* how it stands in `there` and `free` */
} client;

/* What rounds tell. */
typedef struct privacy {
    ru_privacy *account; /* NULL: nobody counts */
    double *before;      /* [RU_PRIVACY_ORDERS] of the account, without the round that is merged */
    double share;        /* of the round under way */
} privacy;

struct ru_fed {
    ru_fed_options opt;
    stage stage;
    uint32_t round, task, profiles;
    uint32_t wait, answered;
    uint32_t sent_n; /* clients that have the task of this round and did not leave */
    ru_time deadline;
    client *clients;        /* [n] */
    ru_pick_client *facts;  /* [n] of the next decision */
    uint32_t *tier_of;      /* [n] */
    uint32_t *list, *merge; /* [n] list: who is told next */
    uint32_t n_list, n_merge;
    uint32_t there, free;     /* clients with a known latency; those of them that are idle */
    uint32_t *queue, *probes; /* [n] ring of who waits for a profile; [at_once] under way */
    uint32_t queue_at, n_queue, n_probes;
    ru_time told; /* when the timer was asked for */
    ru_pick_tier tier[RU_PICK_TIERS_MAX];
    double chance[RU_PICK_TIERS_MAX];
    bool has_chance, stale;
    uint32_t last_tier, tiered_round;
    double spread_square, doubt; /* doubt: variance of the logarithm of a mean */
    uint32_t spread_n;
    double utility, utility_before, prefer; /* of Oort's pacer */
    privacy privacy;
    ru_pick_in in;
    ru_arena work; /* fixed: of a decision */
};

/* fed.c: a client has changed: how it counts among those that a round may have. */
void rui_fed_recount(ru_fed *f, client *c);
uint32_t rui_fed_at_once(const ru_fed_options *opt); /* profiles under way, at most */

#endif
