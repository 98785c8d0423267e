/* Inside train/tasks: one worker as owner of its items and as helper of others. Thread: one. */
#ifndef RU_TRAIN_TASKS_TASKS_IMPL_H
#define RU_TRAIN_TASKS_TASKS_IMPL_H

#include "train/tasks/tasks.h"

enum {
    RUI_TASKS_SLOTS = 2, /* slices of a pair under way */
    RUI_TASKS_ONE = 1000000,
    RUI_TASKS_TRUST = 4, /* steps of report_ppm for which a speed that was told is trusted */
    RUI_TASKS_LOOSE_MAX = 2 * RUI_TASKS_SLOTS * RU_REASSIGN_GROUP_MAX,
};

/* What a peer says of its speed counts up to here; a message with a progress beyond the second is
 * dropped. */
#define RUI_TASKS_ITEM_NS_MAX INT64_C(1000000000000)
#define RUI_TASKS_PPM_MAX     INT64_C(100000000000000000)

/* A slice at its owner. DONE and RECLAIMED slots are FREE again at once. */
typedef enum rui_tasks_given {
    RUI_TASKS_FREE,
    RUI_TASKS_OFFERED,
    RUI_TASKS_CLAIMED,
    RUI_TASKS_CANCELLING,
} rui_tasks_given;

/* A slice at its helper; the last one of a slot stays known, to answer repeated questions. */
typedef enum rui_tasks_taken {
    RUI_TASKS_NEVER,
    RUI_TASKS_QUEUED,
    RUI_TASKS_WORKING,
    RUI_TASKS_FLUSHING,
    RUI_TASKS_ENDED,  /* DONE_WORK */
    RUI_TASKS_UNDONE, /* CANCEL_OK or REFUSE */
} rui_tasks_taken;

/* A measured delay. */
typedef struct rui_tasks_delay {
    bool known;
    int64_t mean_ns, spread_ns; /* spread: mean distance from the mean */
} rui_tasks_delay;

typedef struct rui_tasks_slot {
    uint8_t state; /* rui_tasks_given or rui_tasks_taken */
    ru_tasks_range range;
    uint32_t at;  /* helper: next item */
    int64_t came; /* helper: order of arrival */
    /* owner: since when the slice is in its state, by DO_THIS, CANCEL or STARTED_WORKING; -1: when
     * that changes measures nothing */
    int64_t sent_ns;
} rui_tasks_slot;

typedef struct rui_tasks_peer {
    uint32_t id;
    bool dead, idle;
    uint32_t seq[RUI_TASKS_SLOTS]; /* owner: last number given out, per slot */
    int64_t progress_ppm;          /* owner: last heard */
    int64_t item_ns;               /* owner: last heard */
    int64_t heard_ns;              /* owner: when */
    double clock_ns;               /* owner: of a clock's part that is its own, by that */
    int64_t told_ns;               /* owner: when CANCEL was sent last */
    uint32_t next_items;           /* owner: size of the next slice */
    uint32_t grant, left;          /* items per clock by the policy; of this clock, still to come */
    bool answered;                 /* pull style: since ASK */
    rui_tasks_delay start;         /* owner: from DO_THIS to STARTED_WORKING */
    rui_tasks_delay rest;          /* owner: from then to DONE_WORK, without its items */
    rui_tasks_slot slot[RUI_TASKS_SLOTS];
} rui_tasks_peer;

struct ru_tasks {
    ru_tasks_options opt;
    const ru_reassign_rules *rules;
    ru_time now;
    rui_tasks_peer *helper, *helpee; /* [n_helpers], [n_helpees] */
    uint32_t clock, closed_by_all;   /* mine; all are closed below */
    bool begun, open;                /* open: this clock's work has begun */
    uint32_t pos, tail;              /* of this clock */
    ru_tasks_range *loose;           /* [n_loose] own items taken back */
    uint32_t n_loose;
    ru_tasks_range *accepted; /* [n_accepted] of this clock */
    uint32_t n_accepted;
    bool working, head;  /* head: own items from pos on */
    ru_tasks_range work; /* under way */
    uint32_t reached;    /* its items from here on have not begun; head: pos */
    int64_t work_ns;     /* began */
    uint32_t sampled;    /* items until here are in item_ns */
    int64_t sampled_ns;  /* then */
    int64_t idle_ns;     /* began; -1: busy */
    int64_t item_ns;     /* of an item, lately; 0: not known */
    int64_t arrivals;
    int64_t told_ppm, told_ns; /* what peers know of it, and since when */
    double told_clock_ns;
    bool asked, told_idle, leaves;
    rui_tasks_delay start, rest, answer; /* of all helpers; answer: from CANCEL to CANCEL_OK */
    ru_tasks_stats stats;
    uint32_t said;           /* by ru_tasks_reached */
    int64_t wake_ns;         /* 0: no time is wanted */
    ru_time told;            /* when the timer was asked for */
    ru_effects *fx;          /* of the step under way */
    ru_tasks_act *told_work; /* WORK of the step under way */
};

/* tasks.c */
ru_tasks_act *rui_tasks_tell(ru_tasks *t, ru_tasks_word word, uint32_t n_accepted);
ru_tasks_act *rui_tasks_send(ru_tasks *t, uint32_t to, ru_tasks_kind kind,
                             const ru_tasks_range *range);
int64_t rui_tasks_progress(const ru_tasks *t);
int64_t rui_tasks_expected(const ru_tasks *t, int64_t ppm, double clock_ns, int64_t since_ns);
uint32_t rui_tasks_share(const ru_tasks *t); /* items of a clock that the policy plans for it */
rui_tasks_peer *rui_tasks_peer_of(rui_tasks_peer *peers, uint32_t n, uint32_t id);
uint32_t rui_tasks_mine(const ru_tasks *t); /* own items that nobody works on */

/* tasks_owner.c */
void rui_tasks_consider(ru_tasks *t, rui_tasks_peer *h);
void rui_tasks_consider_all(ru_tasks *t);
void rui_tasks_cancel(ru_tasks *t);
int64_t rui_tasks_spare(const ru_tasks *t);  /* own items until it takes slices back; -1: none */
bool rui_tasks_given_out(const ru_tasks *t); /* slices that are not done yet */
void rui_tasks_owner_heard(ru_tasks *t, rui_tasks_peer *h, const ru_tasks_msg *m);
void rui_tasks_helper_lost(ru_tasks *t, rui_tasks_peer *h);
void rui_tasks_ask_again(ru_tasks *t);

/* tasks_helper.c */
void rui_tasks_helper_heard(ru_tasks *t, rui_tasks_peer *o, const ru_tasks_msg *m);
rui_tasks_slot *rui_tasks_next_slice(ru_tasks *t);
bool rui_tasks_waits(const ru_tasks *t);        /* a slice can be begun */
uint32_t rui_tasks_taken_on(const ru_tasks *t); /* items of others that are still to do */
void rui_tasks_flushed(ru_tasks *t, const ru_tasks_range *r);
void rui_tasks_refuse_all(ru_tasks *t); /* what waits to be begun */
void rui_tasks_report(ru_tasks *t, ru_tasks_kind kind);
void rui_tasks_pull(ru_tasks *t); /* pull style: ask whom to help */

#endif
