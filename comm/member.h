/* Membership of a job: who is in, in which order, who leads; an epoch for every change.
 *
 * Every process runs the same step machine. One of them leads (coordinates): the oldest member. It
 * admits joiners, lets leavers go, cuts out the dead, and publishes a view: (epoch, leader, members
 * in order of joining, a blob of the owner's). Everything from an older epoch is refused. When the
 * leader is gone, the oldest survivor collects what the others know and leads on.
 *
 *   joiner --HELLO--> anyone --(REDIRECT)--> leader          leader asks its owner:
 * RU_MEMBER_CHANGE owner decides when and with which blob: ru_member_install --VIEW--> all members,
 * epoch + 1 all <--BEAT--> leader (status blobs ride on the beats); SUSPECT names a peer whose
 * connection broke leader silent or gone: oldest living --TAKEOVER--> survivors --STATUS--> it,
 * then its owner hears RU_MEMBER_LEAD with all statuses and installs a view
 *
 * Safety: a leader that lost the others must not go on beside its successor. A successor needs the
 * answers of every member of the last view that is not gone for certain (its connection was ended
 * by its kernel, or refused); while some are merely silent it needs more than half of the view. A
 * leader that hears less than that for dead_ns stops leading.
 *
 * Thread: loop only; a step machine (env/event.h). */
#ifndef RU_COMM_MEMBER_H
#define RU_COMM_MEMBER_H

#include "env/event.h"

typedef struct ru_member ru_member;

enum {
    RU_MEMBERS_MAX = 4096,
    RU_MEMBER_ADDRESS_MAX = 108,
    RU_MEMBER_BLOB_MAX = 32 << 10, /* of a view */
    RU_MEMBER_STATUS_MAX = 512,    /* of a member */
    RU_MEMBER_WHAT_FIRST = 0x100,  /* message numbers of this machine: 0x100 .. 0x1ff */
    RU_MEMBER_TIMER_FIRST = 0x100,
};

/* What the machine tells its owner, as RU_FX_LOCAL. */
typedef enum ru_member_local {
    RU_MEMBER_VIEW = 1, /* a view is in force: ru_member_view */
    RU_MEMBER_CHANGE,   /* leader only: joiners wait, members leave or died: see ru_member_wanted;
                           the owner calls ru_member_install when it suits it. value: 1 when a
                           member is dead (at once, please) */
    RU_MEMBER_LEAD,     /* this process leads now; statuses of all survivors are there */
    RU_MEMBER_OUT,      /* this process is no member any more: data says why */
    RU_MEMBER_STATUS,   /* leader only: node's status blob changed (data) */
} ru_member_local;

typedef struct ru_member_info {
    ru_node_id node;
    uint32_t number; /* 1, 2, ... in order of first joining; for people; never reused */
    char address[RU_MEMBER_ADDRESS_MAX];
    char host[64];     /* of the machine it runs on */
    uint32_t capacity; /* cores */
} ru_member_info;

typedef struct ru_view {
    uint32_t epoch; /* 0: none yet */
    ru_node_id leader;
    const ru_member_info *at; /* [n] oldest first; rank = index. View until the next view */
    uint32_t n;
    const void *blob;
    int64_t blob_bytes;
} ru_view;

typedef struct ru_member_options {
    ru_member_info self;
    const char *join;   /* address of any member; NULL: found the job (first member, leader) */
    uint32_t n_max;     /* joiners beyond wait */
    int64_t beat_ns;    /* 100 ms: default of 0 */
    int64_t suspect_ns; /* silent for this long: named in a log line; 0: 400 ms */
    int64_t dead_ns;    /* ... and cut out; 0: 700 ms */
    int64_t join_ns;    /* give up joining after; 0: 30 s */
    uint32_t mesh_max;  /* while the view has at most this many members, a joiner connects to all of
                           them before it counts as wanted; beyond, to the leader only: the owner
                           connects whom its transfers need, and a successor connects to the
                           survivors itself (1,000 members would need a million connections).
                           0: 64 */
} ru_member_options;

/* Everything lives in `arena`, bounded by n_max. */
RU_MUST_USE ru_status ru_member_open(const ru_member_options *opt, ru_arena *arena, ru_member **out,
                                     ru_err *err);
/* RU_EV_START, TIMER (its numbers), MESSAGE (its numbers), UP, DOWN. Hostile messages: a log line,
 * nothing else. */
void ru_member_step(ru_member *m, const ru_event *ev, ru_effects *fx);

const ru_view *ru_member_view(const ru_member *m);
bool ru_member_leads(const ru_member *m);

/* This process' status for leader and successors (committed step and the like); sent with the next
 * beat, at once when `now_please`. */
void ru_member_status_set(ru_member *m, const void *blob, int64_t size_bytes, bool now_please,
                          ru_time now, ru_effects *fx);
/* Last known status of a member; NULL: none. */
const void *ru_member_status_get(const ru_member *m, ru_node_id node, int64_t *size_bytes);

/* A member wants to leave in order. */
void ru_member_leave(ru_member *m, ru_time now, ru_effects *fx);
/* A peer's connection broke in the owner's hands, or the owner gives it up: told to the leader. */
void ru_member_suspect(ru_member *m, ru_node_id node, bool certain, ru_time now, ru_effects *fx);

/* Leader only: members that should be in the next view, in order (living members that do not leave,
 * then joiners up to n_max). *n_dead, *n_leaving, *n_joining say how it differs from the view. */
typedef struct ru_member_wanted {
    const ru_member_info *at; /* [n] view until the next step */
    uint32_t n, n_dead, n_leaving, n_joining;
} ru_member_wanted;
void ru_member_wanted_get(const ru_member *m, ru_member_wanted *into);
/* Leader only: put a view in force with these members (a subset of wanted, or the same again with
 * another blob). Tells all, then RU_MEMBER_VIEW here. */
void ru_member_install(ru_member *m, const ru_node_id *nodes, uint32_t n, const void *blob,
                       int64_t blob_bytes, ru_time now, ru_effects *fx);

/* Time since node was last heard; for lines that name who is waited for. INT64_MAX: never. */
int64_t ru_member_silent_ns(const ru_member *m, ru_node_id node, ru_time now);

#endif
