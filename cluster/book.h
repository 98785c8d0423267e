/* The state of a cluster as the fold of its journal (cluster/journal.h): users' jobs, nodes and who
 * has which slots. Devices, phases and accounts are those of the scheduler's machine
 * (cluster/sched.h); what this adds is what people gave with a job and what became of it.
 *
 *   SUBMIT --> waits --GRANT--> runs --END--> done | cancelled | failed
 *                ^               |  FAIL: the next generation begins; the third one soon: held
 *                |               |  GRANT of other slots: it goes on with them, or (RESIZE) the
 *                |               |  next generation begins
 *                +-- GRANT of nothing, its last node gone
 *
 * The same events give the same state, whoever folds them and when. Thread: any. No clock. */
#ifndef RU_CLUSTER_BOOK_H
#define RU_CLUSTER_BOOK_H

#include "base/map.h"
#include "base/vec.h"
#include "cluster/journal.h"
#include "cluster/sched.h"
#include "cluster/spot.h"

enum {
    RU_BOOK_LIVE_MAX = 12000, /* jobs that have not ended */
    RU_BOOK_NODES_MAX = 1024,
    RU_BOOK_USERS_MAX = 255,
    RU_BOOK_WEIGHT_MAX = 1000,
    RU_BOOK_SPREAD_MAX = 16, /* nodes of a job */
    RU_BOOK_FAILURES_MAX = 3 /* one after the other: the job is held */
};

/* Kinds of events; the numbers are those of journals and stay. */
typedef enum ru_book_kind {
    RU_BOOK_SUBMIT = 1, /* job; a, b: fewest and most workers; node: priority; text: ru_book_spec */
    RU_BOOK_NODE = 2,   /* node; a: slots, 0: it is gone; b: 1 + its market, 0: owned; text: name */
    RU_BOOK_GRANT = 3,  /* job; text: "node:slots node:slots"; a: so many more of the same plan;
                           b: its place in the lower queue of tiresias, 0: it is in none */
    RU_BOOK_SCALE = 4,  /* job; a, b: fewest and most workers */
    RU_BOOK_CANCEL = 5, /* job: it shall end */
    RU_BOOK_FAIL = 6,   /* job; a: exit code; text: its last sentence */
    RU_BOOK_END = 7,    /* job; a: ru_book_state; text: why */
    RU_BOOK_DRAIN = 8,  /* node; a: 1: it takes no more work, 0: it does again */
    RU_BOOK_USER = 9,   /* a: slots at one time, 0: no limit; b: weight, 0: none was given; text:
                           ru_book_user as JSON */
    RU_BOOK_MARKET = 10, /* cluster/spot.h */
    RU_BOOK_METHOD = 11, /* a: ru_alloc_method; b: its demote_s, 1e-3; before the first: pollux */
    RU_BOOK_DOWN = 12,   /* the cluster ended as it was asked to */
    RU_BOOK_RESIZE = 13, /* a: 1: a job that runs and whose slots change stops with a checkpoint
                           and starts from it; 0: it goes on; before the first: 0 */
    RU_BOOK_KINDS
} ru_book_kind;

typedef enum ru_book_state {
    RU_BOOK_NONE,
    RU_BOOK_WAITS,
    RU_BOOK_RUNS,
    RU_BOOK_DONE,
    RU_BOOK_CANCELLED,
    RU_BOOK_FAILED, /* held: its checkpoint stays */
    RU_BOOK_STATES
} ru_book_state;

/* What a user gave, as JSON in a SUBMIT. */
typedef struct ru_book_spec {
    const char *name, *token, *out, *yaml;
    uint32_t request; /* workers, of methods that give so many or none; 0: the most */
} ru_book_spec;

typedef struct ru_book_job {
    ru_book_state state;
    ru_book_spec spec;
    const char *owner, *why; /* why: how it ended, or failed last; "" */
    int64_t priority;
    uint32_t min, max;
    uint32_t least;      /* with which it goes on until it can have `min`, to which it was scaled */
    uint32_t slot;       /* of the machine; while it lives */
    uint32_t generation; /* starts so far: 0: it never ran */
    uint32_t failures;   /* one after the other */
    uint32_t moves;      /* times that it stopped and started at once, as its slots changed */
    uint32_t moved;      /* the last generation that began so; 0: none */
    bool cancelled;      /* asked for */
    int64_t begun_ns;    /* its generation, on the cluster's clock */
    int64_t waits_ns;    /* since when it has no slots, if it has none */
    int64_t submitted_wall_ns, ended_wall_ns;
    int64_t spot_ns; /* of its workers on nodes of markets, on the cluster's clock */
} ru_book_job;

typedef struct ru_book_node {
    const char *name;
    uint32_t slots; /* 0: gone */
    bool drained;
    bool leaves;     /* the scheduler drained it, not a person */
    uint32_t market; /* 1 + number; 0: the cluster's own */
} ru_book_node;

typedef struct ru_book_user {
    const char *name, *key;
    uint32_t slots;  /* of all its jobs at one time; 0: no limit */
    uint32_t weight; /* beside other users; 0: none was given, which counts as 1 */
} ru_book_user;

RU_VEC(ru_book_jobs, ru_book_job)

typedef struct ru_book {
    ru_arena *arena;
    ru_sched sched;
    ru_effects fx;
    ru_book_jobs jobs; /* job number k stands at k - 1 */
    ru_book_node nodes[RU_BOOK_NODES_MAX];
    ru_book_user users[RU_BOOK_USERS_MAX];
    uint32_t n_nodes, n_live, n_users;
    uint32_t of[RU_BOOK_LIVE_MAX]; /* number of the job in a slot; 0: none */
    int64_t seq, at_ns;            /* of the last event */
    int64_t down_seq;              /* of the last DOWN; 0: none */
    ru_spot spot;                  /* nodes of markets */
    int64_t spot_ns;               /* of all jobs */
    struct rui_book_plan *plan;    /* GRANTs so far */
    ru_alloc_method method;        /* of the next plan */
    int64_t demote_ms;             /* 0: that of the policy */
    bool restarts;                 /* the last RESIZE said 1 */
    int64_t
        searched_ns; /* when the last plan was searched for in full; 0: never. No fold sets it */
    double pause_s; /* that a job loses when its workers change; 0: not measured. No fold sets it */
    ru_text *asks; /* where ru_book_plan writes what it asks, as JSON of `alloc`, a line each; NULL:
                      nowhere. No fold sets it */
} ru_book;

/* Owner: everything lives in `arena`, but fx.arena, which the caller ends. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_book_init(ru_book *b, ru_arena *arena, ru_err *err);
/* Fold one event. Errors: RU_E_DATA for one that does not follow from those before. */
RU_MUST_USE ru_status ru_book_fold(ru_book *b, const ru_journal_event *e, ru_err *err);

/* NULL: there is no such job. */
ru_book_job *ru_book_job_at(const ru_book *b, int64_t number);
/* Workers that it requests, of methods that give so many or none. */
uint32_t ru_book_request(const ru_book_job *j);
/* Slots of a job on a node, as granted. */
uint32_t ru_book_granted(const ru_book *b, const ru_book_job *j, uint32_t node);
/* NULL: it has none. */
const ru_sched_job *ru_book_place(const ru_book *b, const ru_book_job *j);
/* Slots that a job can have at most: those of the RU_BOOK_SPREAD_MAX largest nodes, with those that
 * are drained or without. */
uint32_t ru_book_slots(const ru_book *b, bool drained);
/* Number of the node with this name, else of the first that was never used; RU_BOOK_NODES_MAX: they
 * are all in use. */
uint32_t ru_book_node_of(const ru_book *b, const char *name);
/* NULL: there is no such user (the administrator is none). */
const ru_book_user *ru_book_user_of(const ru_book *b, const char *name);
/* Weight of an owner of jobs beside the others; 0: nobody was given one, so all jobs are alike. */
uint32_t ru_book_weight(const ru_book *b, const char *owner);
void ru_book_user_put(const ru_book_user *u, ru_text *into);
/* What that wrote, without slots and weight. Owner: `arena`. Errors: RU_E_CONFIG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_book_user_get(const char *text, ru_arena *arena, ru_book_user *out,
                                       ru_err *err);
void ru_book_spec_put(const ru_book_spec *s, ru_text *into);
/* What ru_book_spec_put wrote, as the fold reads it: before an event is durable it must be known
 * that it can be read. Owner: `arena`. Errors: RU_E_CONFIG, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_book_spec_get(const char *text, ru_arena *arena, ru_book_spec *out,
                                       ru_err *err);
const char *ru_book_state_name(ru_book_state s);

/* What was measured of a job. */
typedef struct ru_book_measured {
    ru_goodput_model model; /* perf.overlap 0: nothing */
    double remaining;       /* steps of its batch; 0: not known */
    const double *step_s; /* [n_step] optimus: of a step on 1, 2, ... workers; NULL: by the model */
    uint32_t n_step;
} ru_book_measured;

/* What the events GRANT of the next plan would be, by plan/fleet/alloc.h and the method: jobs of
 * higher priority take their slots first, within a priority those that have waited for ten minutes,
 * so that a large job does not wait for ever behind small ones; jobs of a user share its slots in
 * this order, the least of each first; and what a cancelled job still has stays its own. A job that
 * requests more than the slots of its 16 largest nodes requests those, and no more workers than its
 * largest batch has samples. Under pollux users with weights share the slots of a priority by them:
 * each job weighs weight / jobs of its user there (plan/fleet/alloc.h); where not all jobs can have
 * their fewest workers, users take turns, and next is who has the fewest slots for its weight.
 * `measured`: by slot.
 * `now_ns`: on the cluster's clock; one before the last event counts as that. *n 0: nothing
 * changes. Owner: `scratch`. Errors: those of the policy. */
RU_MUST_USE ru_status ru_book_plan(ru_book *b, const ru_book_measured *measured, int64_t now_ns,
                                   ru_arena *scratch, ru_journal_event **events, uint32_t *n,
                                   ru_err *err);

#endif
