/* The interface of control: events in, effects out.
 *
 * Membership, training rounds, recovery and the like are step machines: ru_x_step(x, event,
 * effects). The event carries the time; the machine reads no clock, socket, disk, thread or heap.
 * Its driver performs the effects: env/loop on Linux, sim/ in virtual time. Timers are named by the
 * machine that sets them (a number it chose) and re-setting one replaces it.
 *
 * A machine numbers its words (messages, timers, LOCAL) from `what_first` of its options on, 0
 * where it is alone: `what` is what_first + word, and the words are an enum of its header. Its
 * owner says a word by RU_EV_LOCAL, or by ru_fx_local where both are parts of one node; the machine
 * answers by RU_FX_LOCAL and wants its next TIMER by ru_fx_wake. The header names the struct that
 * `data` holds with each word. What a machine gives holds its lists by value, behind the struct,
 * because it may step again before its effects are performed. What it is given may point to the
 * owner's memory, which stays as it is until the step returns.
 *
 * Thread: loop only. */
#ifndef RU_ENV_EVENT_H
#define RU_ENV_EVENT_H

#include "base/arena.h"
#include "env/clock.h"

/* A process of a job, for its whole life: drawn at random at its start (by seed in the simulator),
 * never reused. 0: none. */
typedef struct ru_node_id {
    uint64_t v;
} ru_node_id;

typedef enum ru_event_kind {
    RU_EV_START,   /* first event of every machine */
    RU_EV_TIMER,   /* what: the timer's number */
    RU_EV_MESSAGE, /* node sent message `what` with data[size_bytes], view until the step returns */
    RU_EV_UP,      /* node is connected and proved its token; data: its address as text */
    RU_EV_DOWN,    /* the connection to node ended; value: ru_status (RU_E_PEER: its kernel ended it
                      or refused a new one, RU_E_IO: the network failed, RU_E_AGAIN: could not
                      connect for another reason; node may be 0 then and data is the address) */
    RU_EV_LOCAL,   /* the machine's owner or a worker thread says `what` with value and data */
} ru_event_kind;

typedef struct ru_event {
    ru_event_kind kind;
    ru_time now;
    ru_node_id node;
    uint32_t what;
    int64_t value;
    const void *data;
    int64_t size_bytes;
} ru_event;

typedef enum ru_effect_kind {
    RU_FX_SEND,       /* message `what` to node, control class */
    RU_FX_TIMER,      /* RU_EV_TIMER `what` at `at` */
    RU_FX_TIMER_OFF,  /* never mind */
    RU_FX_CONNECT,    /* to the address in data (host:port text) */
    RU_FX_DISCONNECT, /* drop node; its streams fail */
    RU_FX_LOCAL,      /* to the machine's owner: `what` with value and data */
    RU_FX_LOG,        /* value: ru_log_level; data: the line, one sentence */
} ru_effect_kind;

typedef struct ru_effect {
    ru_effect_kind kind;
    ru_node_id node;
    uint32_t what;
    ru_time at;
    int64_t value;
    const void *data; /* in the effects' arena, until ru_effects_clear */
    int64_t size_bytes;
} ru_effect;

enum { RU_EFFECTS_MAX = 1 << 16 };

typedef struct ru_effects {
    ru_arena *arena; /* rewound to `start` by ru_effects_clear */
    ru_arena_mark start;
    ru_effect *at; /* [n] */
    uint32_t n, cap;
} ru_effects;

void ru_effects_init(ru_effects *fx, ru_arena *arena);
void ru_effects_clear(ru_effects *fx);

/* Bytes are copied. More than RU_EFFECTS_MAX effects of one step or no memory: a crash. */
void ru_fx_send(ru_effects *fx, ru_node_id to, uint32_t what, const void *data, int64_t size_bytes);
/* Repeats the previous send to another process: same number, same bytes, no second copy. */
void ru_fx_send_same(ru_effects *fx, ru_node_id to);
void ru_fx_timer(ru_effects *fx, uint32_t what, ru_time at);
void ru_fx_timer_off(ru_effects *fx, uint32_t what);
void ru_fx_connect(ru_effects *fx, const char *address);
void ru_fx_disconnect(ru_effects *fx, ru_node_id node);
/* Data NULL: zeroed memory, which the caller fills at once. Returns the memory, NULL of size 0. */
void *ru_fx_local(ru_effects *fx, uint32_t what, int64_t value, const void *data,
                  int64_t size_bytes);
/* The same about `node`. */
void ru_fx_local_about(ru_effects *fx, ru_node_id node, uint32_t what, int64_t value,
                       const void *data, int64_t size_bytes);
void ru_fx_log(ru_effects *fx, int level, const char *fmt, ...) RU_PRINTF(3, 4);
/* Timer `what` is wanted at `at` (ns INT64_MAX: not at all) and was asked for at *told, which
 * becomes `at`: an effect only when that differs. Who gets the TIMER sets *told to INT64_MAX first.
 */
void ru_fx_wake(ru_effects *fx, uint32_t what, ru_time at, ru_time *told);

/* `what` as one of a machine's n words; RU_WORD_NONE: it is another one's. */
#define RU_WORD_NONE UINT32_MAX
static inline uint32_t ru_word(uint32_t what, uint32_t what_first, uint32_t n)
{
    return what - what_first < n ? what - what_first : RU_WORD_NONE;
}
/* The struct of a word. Another size: a crash. */
const void *ru_event_data(const ru_event *ev, int64_t size_bytes);
static inline bool ru_node_is(ru_node_id a, ru_node_id b)
{
    return a.v == b.v;
}

#endif
