/* Named bytes, asked for in the order in which the asker needs them.
 *
 *   asker                                             givers (one or several)
 *     ASK  (id, rank, bytes, name)...  ------------>  looks each name up
 *          slot under its rank  <------------------   READY (id)...  the channel has the stream
 *     GRANT by rank over all givers (of the channel)
 *          chunks  <------------------------------    by rank over all askers, granted bytes only
 *          failed  <------------------------------    NO (id, sentence)  no such name, other bytes
 *
 * The asker grants as many bytes as fill its link, to the smallest rank of all that are ready, so
 * ranks hold over several givers; a giver sends rank r to every asker before r + 1 to any. Only
 * what was asked for and stands there is announced, so it never waits for anything else. A giver
 * announces the RU_GIVE_OUT_MAX smallest ranks to each asker at one time; more than that breaks the
 * rules, as do names, ids and sizes that no honest peer sends: such a peer loses its connection.
 *
 * The asker's channel has the option `grants`; without it chunks still leave by rank. Part of a
 * node's part or of a guest: its owner hands over messages and streams.
 *
 * Source: tictac-2019 sec 5 (order at the sender); homa-2018 (grants by the receiver).
 * Thread: loop only. */
#ifndef RU_COMM_PULL_ASK_H
#define RU_COMM_PULL_ASK_H

#include "base/str.h"
#include "comm/chan/chan.h"

enum {
    RU_ASK_MESSAGES = 3, /* numbers of messages that both sides use */
    RU_ASK_NAME_MAX = 1023,
    RU_ASK_ITEMS_MAX = 1 << 20,
    RU_ASK_MESSAGE_BYTES = 32 << 10, /* of a list, at most */
    RU_GIVE_OUT_MAX = 256,
};

/* -- asking --------------------------------------------------------------------------------------
 */

typedef struct ru_ask ru_ask;

typedef struct ru_ask_item {
    const char *name;   /* at most RU_ASK_NAME_MAX bytes; view until it arrived or failed */
    int64_t size_bytes; /* > 0 */
    void *into;         /* [size_bytes]; likewise */
    ru_node_id from;
    uint16_t rank;
} ru_ask_item;

typedef struct ru_ask_options {
    ru_chan *chan; /* RU_GIVE_OUT_MAX slots for each giver */
    uint32_t n_max;
    uint32_t what_first; /* RU_ASK_MESSAGES numbers of messages from here on */
    void *self;
    void (*arrived)(void *self, uint32_t item, ru_time now);
    /* RU_E_MISSING, RU_E_DATA: its giver's sentence says why; else that of the stream. */
    void (*failed)(void *self, uint32_t item, ru_status why, const char *sentence, ru_time now);
} ru_ask_options;

/* Errors: RU_E_ARG, RU_E_MEM. */
RU_MUST_USE ru_status ru_ask_open(const ru_ask_options *opt, ru_arena *arena, ru_ask **out,
                                  ru_err *err);
/* Ask for items [n], which are numbered from 0 on over all calls. Lists leave in the order given:
 * small ranks first is best. Errors: RU_E_LIMIT, RU_E_ARG, RU_E_PEER. */
RU_MUST_USE ru_status ru_ask_for(ru_ask *a, const ru_ask_item *items, uint32_t n, ru_time now,
                                 ru_err *err);
/* A message of its range; a stream of its own; a giver that went: what it owes has failed. */
void ru_ask_hear(ru_ask *a, const ru_event *ev);
void ru_ask_arrived(ru_ask *a, uint64_t cookie, ru_time now);
void ru_ask_failed(ru_ask *a, uint64_t cookie, ru_status why, ru_time now);

/* -- giving --------------------------------------------------------------------------------------
 */

typedef struct ru_give ru_give;

typedef struct ru_give_options {
    ru_chan *chan;                  /* as many streams as it may have at one time */
    uint32_t askers_max, items_max; /* items_max: asked for by all together; each has its share */
    uint32_t what_first;
    void *self;
    /* The bytes under a name, view until ru_give_close. False: nothing stands there. */
    bool (*find)(void *self, ru_str name, ru_span *out);
} ru_give_options;

/* Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_give_open(const ru_give_options *opt, ru_arena *arena, ru_give **out,
                                   ru_err *err);
/* ASK, or DOWN of an asker. */
void ru_give_hear(ru_give *g, const ru_event *ev, ru_effects *fx);
bool ru_give_owns(const ru_give *g, uint64_t cookie);
/* A stream is over, well or not. */
void ru_give_over(ru_give *g, uint64_t cookie, ru_time now, ru_effects *fx);
void ru_give_room(ru_give *g, ru_time now, ru_effects *fx);
bool ru_give_idle(const ru_give *g); /* nobody is owed anything */

#endif
