/* Work of a clock that changes hands: a worker that falls behind hands slices of its own tail to
 * workers that are ahead, and every item of every clock is applied exactly once.
 *
 * Worker w owns items 0 .. n - 1 of each clock, from head to tail:
 *
 *     0 ......... pos ........ tail [slice][slice][slice] n
 *     done        to do        given to helpers, who hold the tail of this range
 *
 * A slice at its owner:
 *
 *     FREE -> OFFERED -> CLAIMED -> DONE
 *                 \-> CANCELLING -> RECLAIMED (worked by the owner) | CLAIMED | DONE
 *                  \-> REFUSED -> RECLAIMED
 *
 *   DO_THIS          owner -> helper    take these items
 *   STARTED_WORKING  helper -> owner    claimed: the owner must not touch them
 *   DONE_WORK        helper -> owner    their updates are at the servers
 *   CANCEL           owner -> helper    do not start; also asks what became of it
 *   CANCEL_OK        helper -> owner    not started, and never will be
 *   REFUSE           helper -> owner    the same, unasked
 *   STARTED, THIS_FAR                   progress, to those whom one may help
 *   ASK, WANT        helper -> owner    pull style: progress, please; half of what is left, please
 *
 * Two slices of a pair (owner, helper) are under way at most, one in each slot (sequence number mod
 * 2), and a slot's next slice begins after the last one has ended. So a late, repeated or
 * overtaking message is known by its number; a lost one is asked for again by CANCEL, whose answer
 * is always the present state. The owner lists the slices it accepts when it closes the clock;
 * servers apply updates of listed slices only, and each once. A helper that dies is fenced at the
 * servers first, then RU_TASKS_LOST tells the owner, who takes back what is not DONE. Where servers
 * know a slice by its first item instead, ru_tasks_anew says what must be worked on again.
 *
 * The owner measures how long a helper needs to begin a slice, with what the slice waits for there,
 * what a slice takes beside its items (rows, updates, DONE_WORK), and how long an answer to CANCEL
 * takes. A slice is so large that its end and the owner's own come together, and a CANCEL is sent
 * so early that the owner does not wait for its answer.
 *
 * Work goes on by itself to the end of its range. Each step is told how far it is, and answers
 * where it ends: sooner, if the owner hands out items that have not begun, or a slice of another
 * worker waits. So the caller looks only when something happens, or at the time that a step asked
 * for.
 *
 * A step machine: events with their time in, effects out; no clock, no allocation after opening.
 * Thread: one. Source: flexrr-2016 (messages, rules); CANCEL_OK, slots and pull style as described
 * are ours. */
#ifndef RU_TRAIN_TASKS_TASKS_H
#define RU_TRAIN_TASKS_TASKS_H

#include "base/arena.h"
#include "env/event.h"
#include "plan/crew/reassign.h"

enum { RU_TASKS_ACCEPTED_MAX = 4096 /* slices of one clock */ };

typedef enum ru_tasks_kind {
    RU_TASKS_STARTED,
    RU_TASKS_THIS_FAR,
    RU_TASKS_DO_THIS,
    RU_TASKS_STARTED_WORKING,
    RU_TASKS_DONE_WORK,
    RU_TASKS_CANCEL,
    RU_TASKS_CANCEL_OK,
    RU_TASKS_REFUSE,
    RU_TASKS_ASK,
    RU_TASKS_WANT,
    RU_TASKS_KINDS
} ru_tasks_kind;

/* Items of one clock of one owner; seq: of the pair (owner, helper), 0: the owner works itself. */
typedef struct ru_tasks_range {
    uint32_t owner, helper, clock, seq;
    uint32_t lo, hi; /* items lo .. hi - 1 */
} ru_tasks_range;

typedef struct ru_tasks_msg {
    ru_tasks_kind kind;
    bool idle; /* sender has nothing to do */
    int64_t
        progress_ppm; /* of the sender, in millionths of a clock, work it has taken on included */
    int64_t item_ns;  /* that an item takes the sender lately; 0: not known */
    uint32_t share;   /* items of which its clock consists, those that it gives and takes counted */
    ru_tasks_range range; /* DO_THIS: whole; answers and CANCEL: owner, helper, clock, seq */
} ru_tasks_msg;

/* Words (env/event.h). What comes in has a ru_tasks_said, what goes out a ru_tasks_act. */
typedef enum ru_tasks_word {
    RU_TASKS_BEGIN,   /* in: first of all */
    RU_TASKS_WORKED,  /* in: the range of the last WORK is done, up to its end */
    RU_TASKS_HEARD,   /* in: msg from worker */
    RU_TASKS_FLUSHED, /* in: servers hold the updates of range */
    RU_TASKS_CLOCKS,  /* in: everybody has closed all clocks below `clock` */
    RU_TASKS_LOST,    /* in: worker is dead, and servers take nothing of it any more */
    RU_TASKS_SHARES,  /* in: grants of the policy, from the next clock on */
    RU_TASKS_LEAVES,  /* in: from now on it takes no slices; those it has not begun go back */
    RU_TASKS_STAYS,   /* in: it takes slices again */
    RU_TASKS_TIMER,   /* also when nobody asked for it */
    RU_TASKS_SEND,    /* out: msg to worker `to` */
    RU_TASKS_WORK,    /* out: compute `range` now, which may be empty; then WORKED. One at a time */
    RU_TASKS_FLUSH,   /* out: the updates of this whole slice to the servers; then FLUSHED */
    RU_TASKS_CLOSE,   /* out: clock is done: servers apply own updates and those of accepted */
    RU_TASKS_WORDS
} ru_tasks_word;

typedef struct ru_tasks_said {
    uint32_t worker, clock;
    ru_tasks_range range;
    ru_tasks_msg msg;
    const uint32_t *grant;  /* SHARES: [helpers] items to hand to each helper in every clock */
    const uint32_t *expect; /* SHARES: [helpees] items that each hands to this worker */
} ru_tasks_said;

typedef struct ru_tasks_act {
    uint32_t to;
    ru_tasks_msg msg;
    ru_tasks_range range;      /* CLOSE: clock */
    int64_t predicted_ns;      /* SEND of DO_THIS: until DONE_WORK is here; 0: not known */
    uint32_t n_accepted;       /* CLOSE: slices */
    ru_tasks_range accepted[]; /* [n_accepted] */
} ru_tasks_act;

typedef struct ru_tasks_stats {
    int64_t worked, helped; /* items, own and of others */
    int64_t busy_ns, wait_ns;
    int64_t sent[RU_TASKS_KINDS];
    int64_t reclaimed, dropped; /* items; dropped: of clocks that closed without them */
    int64_t start_ns;           /* from DO_THIS to STARTED_WORKING, lately; 0: not measured yet */
} ru_tasks_stats;

typedef struct ru_tasks ru_tasks;

typedef struct ru_tasks_options {
    uint32_t me;
    uint32_t items;                    /* of each clock, >= 1 */
    uint32_t clocks;                   /* to do */
    uint32_t first;                    /* clock that it begins with */
    const ru_reassign_rules *rules;    /* view until close; slack, push and sizes may change */
    const uint32_t *helpers, *helpees; /* who may help me, whom I may help; rules->group at most */
    uint32_t n_helpers, n_helpees;
    const uint32_t *numbers; /* [n_helpers, 2] of ru_tasks_numbers; NULL: a new beginning */
    uint32_t what_first;     /* of its words */
} ru_tasks_options;

/* Owner: in `arena`, nothing is copied from the options but helpers and helpees. Errors: RU_E_ARG,
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_tasks_open(const ru_tasks_options *opt, ru_arena *arena, ru_tasks **out,
                                    ru_err *err);
void ru_tasks_step(ru_tasks *t, const ru_event *ev, ru_effects *fx);
/* Before every step while a range is worked on: its items from here on have not begun, and none
 * begins before the end that follows from the step is in force. */
void ru_tasks_reached(ru_tasks *t, uint32_t item);
/* The range that is worked on ends here: at the item reached at least, and never later than it was
 * before. 0: none is. */
uint32_t ru_tasks_end(const ru_tasks *t);
bool ru_tasks_done(const ru_tasks *t); /* all its clocks are closed; it may still help */
/* May it be closed, and opened elsewhere with the numbers of its slices? It has no clock open, and
 * nobody will ask for a slice that it did: all of them are of clocks below `closed`. Of all others
 * CANCEL_OK is the answer. */
bool ru_tasks_quiet(const ru_tasks *t, uint32_t closed);
void ru_tasks_numbers(const ru_tasks *t, uint32_t *into); /* [n_helpers, 2] */
/* Will it go on with a slice of this owner and clock? Then changes can wait for those of that. */
bool ru_tasks_more(const ru_tasks *t, uint32_t owner, uint32_t clock);
/* Worker died and begins anew elsewhere, and knows of no slice. Those that it had of this worker's
 * clock go `into` [ACCEPTED_MAX + 2], the first *n_done of them done and accepted: the caller works
 * on all of them again as slices of the same items, of which servers take what they lack. What it
 * gave to this worker is void. TIMER follows. */
uint32_t ru_tasks_anew(ru_tasks *t, uint32_t worker, ru_tasks_range *into, uint32_t *n_done);
const ru_tasks_stats *ru_tasks_stats_of(const ru_tasks *t);

#endif
