/* Weights as a part of a node that answers guests (comm/node/guests.h): those of a file
 * (train/remote/serve.h) or of a running worker (train/worker/worker_weights.c).
 *
 *   guest --HELLO--> weights are here: HEAD
 *                    none are:         wanted() ... ru_giver_set: HEAD to all who wait
 *                                                   ru_giver_none: a sentence to all who wait
 *   the last guest went: unused(), and the weights may go
 *
 * All guests at one time have the same weights. A guest that still has not all of them after
 * RU_GIVER_STAY_NS is refused.
 *
 * Thread: the loop's. */
#ifndef RU_TRAIN_REMOTE_GIVER_H
#define RU_TRAIN_REMOTE_GIVER_H

#include "base/map.h"
#include "comm/node/guests.h"
#include "train/remote/remote.h"

#define RU_GIVER_STAY_NS INT64_C(900000000000)

/* Weights as they are given; see ru_offer_make. */
typedef struct ru_offer {
    const ru_remote *w; /* with data */
    ru_span model;      /* the description */
    uint64_t hash;      /* of that */
    ru_map names;       /* name -> index */
} ru_offer;

/* `w` is viewed while the offer is. Any thread. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_offer_make(const ru_remote *w, ru_arena *arena, ru_offer *out,
                                    ru_err *err);

typedef struct ru_giver ru_giver;

typedef struct ru_giver_options {
    uint32_t guests_max; /* 0: 64 */
    /* Both NULL: the weights are set before a guest comes and stay. */
    void (*wanted)(void *self, ru_time now, ru_effects *fx);
    void (*unused)(void *self);
    void *self;
} ru_giver_options;

/* Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_giver_open(const ru_giver_options *opt, ru_arena *arena, ru_giver **out,
                                    ru_err *err);
/* The part of the node, with numbers for guests only. */
ru_part ru_giver_part(ru_giver *g);
uint32_t ru_giver_conns(const ru_giver *g); /* that the guests' link needs room for */
/* What its guests may do; the caller adds self, address, token and link. */
ru_guests_options ru_giver_guests(const ru_giver *g);
/* Once the node has its guests. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_giver_ready(ru_giver *g, ru_node *node, ru_arena *arena, ru_err *err);

/* `o` is viewed until `unused`. */
void ru_giver_set(ru_giver *g, const ru_offer *o, ru_effects *fx);
void ru_giver_none(ru_giver *g, const char *sentence, ru_effects *fx);

#endif
