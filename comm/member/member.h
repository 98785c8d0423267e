/* Membership of a job: its members, their order and their leader; every change has an epoch.
 *
 * Every process runs the same step machine. One of them leads: the oldest member. It admits
 * joiners, releases leavers, excludes failed members, and publishes views: (epoch, leader, members
 * in order of joining, a blob of the owner's). Everything from an older epoch is refused. When the
 * leader fails, the oldest survivor asks the others what they know and leads.
 *
 *   joiner --HELLO--> anyone --REDIRECT--> leader --WELCOME(whom to connect to)--> joiner
 *   joiner --BEAT(ready)--> leader: RU_MEMBER_CHANGE, the owner decides: ru_member_install
 *   leader --VIEW(epoch + 1)--> all,  all --BEAT(accepted)--> leader;  half of the old view or
 * more: in force, --BEAT(epoch)--> all: RU_MEMBER_VIEW everywhere all <--BEAT--> leader: signs of
 * life, statuses, whose connection broke, who wants to leave leader gone or silent: the others
 * --BEAT(seeks)--> the oldest, which --TAKEOVER(promise)--> all, all --STATUS--> it;  more than
 * half: RU_MEMBER_LEAD, its owner installs a view
 *
 * Safety: a view is in force when a quorum of the view before accepted it (one with new members:
 * when nobody living was left behind); who takes over first has the promise of a quorum to accept
 * nothing older, and continues from the newest view any of them accepted. A quorum: more than half
 * of the members that vote, gone ones included (exactly half: with the oldest of them among them);
 * or all voters that are not gone for certain, unless this process was out of touch before they
 * went. Gone for certain: its connection was ended by its kernel and a new one could not be had. A
 * leader that hears no quorum for dead_ns stops leading. Only voters lead. docs/comm-member.md has
 * the argument.
 *
 * Thread: loop only; a step machine (env/event.h). */
#ifndef RU_COMM_MEMBER_MEMBER_H
#define RU_COMM_MEMBER_MEMBER_H

#include "env/event.h"

typedef struct ru_member ru_member;

enum {
    RU_MEMBERS_MAX = 4096,
    RU_MEMBER_ADDRESS_MAX = 108,
    RU_MEMBER_BLOB_MAX = 32 << 10, /* of a view */
    RU_MEMBER_STATUS_MAX = 512,    /* of a member */
    RU_MEMBER_AGREED_MAX = 16 << 10,
    RU_MEMBER_WHAT_FIRST = 0x100, /* message numbers of this machine: 0x100 .. 0x1ff */
    RU_MEMBER_TIMER_FIRST = 0x100,
};

/* What the machine reports to its owner, as RU_FX_LOCAL. */
typedef enum ru_member_local {
    RU_MEMBER_VIEW = 1,   /* a view is in force: ru_member_view */
    RU_MEMBER_CHANGE,     /* leader only: joiners wait, members leave or died: see ru_member_wanted;
                             the owner calls ru_member_install when it suits it. value: 1 when a
                             member is dead (at once, please) */
    RU_MEMBER_LEAD,       /* this process leads now and has the statuses of all survivors. At a
                             founder's start (the view is empty): install the first view. After
                             a failure or leave: install a view with the members wanted now */
    RU_MEMBER_OUT,        /* this process is no member any more: data says why; value: RU_E_CONFIG
                             where the leader refused it, else 0 */
    RU_MEMBER_STATUS,     /* leader only: status blob (data) of the effect's node changed */
    RU_MEMBER_LEADERLESS, /* no leader now; value 1: this process led until now; data says why. A
                             LEAD here, a VIEW, or OUT follows when the others are heard again */
} ru_member_local;

#define RU_MEMBER_LATER (UINT32_C(1) << 31)

/* How likely the machine of a member is to be taken away; a fact for policies. */
typedef enum ru_tier { RU_TIER_RELIABLE, RU_TIER_TRANSIENT, RU_TIERS } ru_tier;
const char *ru_tier_text(ru_tier tier); /* "reliable" */

enum { RU_MEMBER_CAPACITY_MAX = (1 << 24) - 1 };

typedef struct ru_member_info {
    ru_node_id node;
    uint32_t number; /* 1, 2, ... in order of first joining; for people; never reused; in `wanted`,
                        what a joiner would get; in the options, its place among those who come
                        into a view together (0: by arrival), and | RU_MEMBER_LATER: it waits for
                        the first view */
    char address[RU_MEMBER_ADDRESS_MAX];
    char host[64];     /* of the machine it runs on; people are shown what stands before a '/' */
    uint32_t capacity; /* cores; at most RU_MEMBER_CAPACITY_MAX */
    ru_tier tier;
    bool no_vote; /* counts in no quorum and never leads, so that all such members may vanish at
                     once; the founder votes. When nobody who votes stays, all who stay get a vote,
                     and keep it */
} ru_member_info;

typedef struct ru_view {
    uint32_t epoch; /* 0: none yet */
    ru_node_id leader;
    const ru_member_info *at; /* [n] oldest first; rank = index. View until the next view */
    uint32_t n;
    const void *blob;
    int64_t blob_bytes;
} ru_view;

/* Defaults of the options below. */
#define RU_MEMBER_BEAT_NS    INT64_C(100000000)
#define RU_MEMBER_SUSPECT_NS INT64_C(400000000)
#define RU_MEMBER_DEAD_NS    INT64_C(700000000)

typedef struct ru_member_options {
    ru_member_info self;
    const char *join; /* address of any member; NULL: found the job (first member, leader) */
    /* Lines "name value" that all members agree on: who gives another value than the leader to a
     * name that both have is refused, and both say so. At most RU_MEMBER_AGREED_MAX bytes; NULL:
     * none; view while open. */
    const char *agreed;
    uint32_t n_max;     /* joiners beyond wait */
    int64_t beat_ns;    /* 100 ms: default of 0 */
    int64_t suspect_ns; /* silent for this long: named in a log line; 0: 400 ms */
    int64_t dead_ns;    /* ... and cut out; 0: 700 ms */
    int64_t join_ns;    /* give up joining after; 0: 30 s */
    uint32_t mesh_max;  /* while there are at most this many members, a joiner connects to all of
                           them before it counts as wanted; beyond, to the four oldest only: the
                           owner connects whom its transfers need, and a fifth successor connects to
                           the survivors itself (1,000 members would need a million connections).
                           0: 64; at most 256 */
    /* When was the oldest message that this node has not acknowledged given to the channel? ns 0:
     * all are. So no view is sent again while it is under way, and a member knows what its leader
     * has heard of it. NULL: not known. */
    ru_time (*unacked)(void *self, ru_node_id node);
    void *unacked_self;
} ru_member_options;

/* Everything lives in `arena`, bounded by n_max. */
RU_MUST_USE ru_status ru_member_open(const ru_member_options *opt, ru_arena *arena, ru_member **out,
                                     ru_err *err);
/* RU_EV_START, TIMER (its numbers), MESSAGE (its numbers), UP, DOWN. Hostile messages: a log line,
 * nothing else. */
void ru_member_step(ru_member *m, const ru_event *ev, ru_effects *fx);
/* Call it before anything else that happens in this process at `now`. A process that was paused for
 * long stops leading before it handles the next event. ru_member_step calls it itself. */
void ru_member_wake(ru_member *m, ru_time now, ru_effects *fx);

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
/* A peer's connection broke, or the owner gives it up: reported to the leader. */
void ru_member_suspect(ru_member *m, ru_node_id node, bool certain, ru_time now, ru_effects *fx);

/* Leader only: members that should be in the next view, in order (living members that do not leave,
 * then joiners up to n_max). *n_dead, *n_leaving, *n_joining say how it differs from the view. */
typedef struct ru_member_wanted {
    const ru_member_info *at; /* [n] view until the next step */
    uint32_t n, n_dead, n_leaving, n_joining;
} ru_member_wanted;
void ru_member_wanted_get(const ru_member *m, ru_member_wanted *into);
/* Leader only: did this member ask to leave? Who goes without is lost. */
bool ru_member_leaves(const ru_member *m, ru_node_id node);
/* Leader only: propose a view of these members (a subset of wanted in its order, or the same again
 * with another blob). It is installed when RU_MEMBER_VIEW comes, here and
 * elsewhere: at once when no other member must agree, else a round trip later. false: nothing is
 * proposed, and a log line says why: this process does not lead, waits for promises, has proposed
 * another view, or one of the nodes is no longer wanted. A leader then gets RU_MEMBER_CHANGE
 * (again) as soon as it can propose. A member that is no longer in the view is notified, and
 * dropped two seconds later. */
bool ru_member_install(ru_member *m, const ru_node_id *nodes, uint32_t n, const void *blob,
                       int64_t blob_bytes, ru_time now, ru_effects *fx);

/* What it is about, for people, tests and simulations. */
typedef struct ru_member_facts {
    bool asks;          /* wants to take over: waits for promises */
    bool elect;         /* leads; its first view is not in force yet */
    bool pending;       /* leads; a view is proposed */
    bool adds;          /* ... with new members */
    bool stuck;         /* no majority has answered for 5 s; a line said so and is repeated */
    uint32_t redirects; /* joining: number of redirections to another member */
    bool alone;         /* no process of the job is connected */
    bool outside;       /* joining, and alone */
    uint32_t voters;    /* of the view in force */
    bool removed;       /* out: the others go on without it, and it did not want to leave */
    bool sure; /* was in contact with its leader until the others failed: may continue alone */
    uint32_t refused;        /* leading: so often a joiner differed in what all agree on */
    const char *refused_why; /* the last one; view until the next step */
    /* The view that it accepted and does not know to be in force: [n] members; n 0: none. */
    const ru_member_info *next; /* until the next step */
    uint32_t next_n;
} ru_member_facts;
void ru_member_facts_get(ru_member *m, ru_member_facts *into);

/* Any other sign of life of a node (the owner's messages, bulk bytes). */
void ru_member_heard(ru_member *m, ru_node_id node, ru_time now);
/* May this member obey messages of the leader of the installed view? Not after a promise to another
 * leader. A member that only missed the leader must obey: it may follow it again, and no message is
 * sent twice. */
bool ru_member_obeys(const ru_member *m);
/* The leader that this member follows (itself if it leads); 0: none, while it searches for one. */
ru_node_id ru_member_leader(const ru_member *m);

/* Time since node was last heard; for lines that name who is waited for. INT64_MAX: never. */
int64_t ru_member_silent_ns(const ru_member *m, ru_node_id node, ru_time now);

#endif
