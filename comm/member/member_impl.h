/* Inside of membership: state and the calls between its files.
 *
 *   member.c        open, dispatch of events, ticks, what owners ask for
 *   member_agree.c  what all must agree on; who differs is refused
 *   member_facts.c  what owners may know
 *   member_peer.c   table of peers, ranks, quorums
 *   member_wire.c   messages to bytes and back, every field checked
 *   member_view.c   proposing, accepting, putting in force and telling views
 *   member_pace.c   how many views are on their way at one time
 *   member_join.c   both sides of joining
 *   member_lead.c   what a leader does: deaths, joiners, wanted
 *   member_still.c  this process stood still
 *   member_seek.c   without a leader: who takes over, promises
 *
 * Views are decided like ballots (single-decree agreement per view, lamport-1998): the epoch is the
 * ballot. A sitting leader's next epoch is its own plus 1; who takes over uses the greatest epoch
 * it has heard of plus 2 or more, so that no two processes ever use the same epoch.
 *
 * Thread: loop only. */
#ifndef RU_COMM_MEMBER_MEMBER_IMPL_H
#define RU_COMM_MEMBER_MEMBER_IMPL_H

#include "base/log.h"
#include "base/str.h"
#include "base/wire.h"
#include "comm/member/member.h"

enum {
    RUI_M_HELLO = RU_MEMBER_WHAT_FIRST, /* joiner: who I am */
    RUI_M_REDIRECT,                     /* ask that one */
    RUI_M_WELCOME,                      /* leader to joiner: connect to these */
    RUI_M_VIEW,                         /* a part of an encoded view */
    RUI_M_BEAT,                         /* sign of life and everything that is repeated */
    RUI_M_TAKEOVER,                     /* promise me this epoch */
    RUI_M_STATUS,                       /* the answer */
    RUI_M_OUT,                          /* you are no member any more */
    RUI_M_REFUSED,                      /* leader to joiner: you never will be */
};

enum {
    RUI_M_VERSION = 4,
    RUI_M_VERSION_ALIKE = 3, /* said by who is reliable and votes: older ones understand it */
    RUI_M_TICK = RU_MEMBER_TIMER_FIRST,
    RUI_M_BROKEN_MAX = 8, /* broken connections named in one beat */
    RUI_M_LINE = 4,       /* the oldest voters: leader and next in line, connected to everybody */
    RUI_M_ASKED = 8,      /* the oldest that live: asked by whoever misses the leader */
    RUI_M_MESH_MAX = 256,
    RUI_M_WHY_MAX = 160,
    RUI_M_REFUSED_MAX = 560,
    RUI_M_PART_BYTES = 48 << 10, /* of a view in one message */
    RUI_M_EPOCH_LEAP = 1 << 20,  /* no honest peer is further ahead */
};

#define RUI_M_NONE UINT32_MAX /* no rank */

/* Flags of a beat. */
enum {
    RUI_B_LEADS = 1,
    RUI_B_ELECT = 2, /* leads, but has not put its first view in force yet */
    RUI_B_SEEKS = 4, /* has lost its leader */
    RUI_B_ASK = 8,   /* please answer at once */
    RUI_B_LEAVES = 16,
    RUI_B_READY = 32,  /* joiner: connected to everybody it was told to */
    RUI_B_PASSES = 64, /* seeks, and lacks only certainty: who has it should lead */
    RUI_B_ALL = 127,
};

typedef struct rui_m_broken {
    ru_node_id node;
    bool certain;
} rui_m_broken;

typedef struct rui_m_beat {
    uint8_t flags;
    uint32_t epoch, accepted, promised;
    ru_node_id promised_to;
    rui_m_broken broken[RUI_M_BROKEN_MAX];
    uint32_t n_broken;
    bool has_status;
    const void *status; /* view */
    uint32_t status_bytes;
} rui_m_beat;

typedef struct rui_m_answer { /* RUI_M_STATUS */
    uint32_t ballot;          /* of the TAKEOVER this answers */
    bool granted;
    uint32_t epoch, accepted, promised;
    const void *status; /* view */
    uint32_t status_bytes;
} rui_m_answer;

typedef enum rui_m_view_kind {
    RUI_VIEW_PROPOSED, /* accept it, please */
    RUI_VIEW_IN_FORCE, /* this is in force */
    RUI_VIEW_ACCEPTED, /* this was accepted by the sender: for who takes over */
    RUI_VIEW_KINDS
} rui_m_view_kind;

typedef struct rui_m_view_part {
    rui_m_view_kind kind;
    uint32_t epoch, total_bytes, offset;
    const uint8_t *data; /* view */
    int64_t data_bytes;
} rui_m_view_part;

/* A view in bytes, taken apart; arrays stay in the bytes. */
typedef struct rui_m_view_head {
    uint32_t epoch, prev, base; /* base 0: all members follow; else the changes against it */
    ru_node_id leader;
    uint32_t number_next, n_total, n_removed, n_added;
    const uint8_t *removed; /* n_removed node ids */
    ru_wire_in added;       /* n_added infos, checked */
    const uint8_t *blob;
    uint32_t blob_bytes;
} rui_m_view_head;

typedef struct rui_m_peer {
    ru_node_id node;
    uint32_t rank; /* in the view in force; RUI_M_NONE */
    bool up;
    bool ended; /* its kernel ended the connection; a new one is tried to be sure */
    bool gone;  /* for certain */
    bool dead;  /* leader's verdict, or no answer at a takeover */
    bool named; /* its silence was logged */
    bool leaving;
    bool left;         /* it was leaving when a view went on without it */
    bool joins, ready; /* in the leader's queue; connected to all */
    bool seeks;        /* said so in its last beat */
    bool passes;       /* likewise: RUI_B_PASSES */
    bool lost;         /* ended after it had not answered for long enough to go on without us */
    bool trying;       /* a connection is being opened */
    bool marked;  /* while a view is put in force: was a member; while copies are sent: to it */
    bool in_next; /* while a view is proposed or adopted */
    uint8_t suspected; /* by our owner: 1, for certain: 2 */
    uint16_t status_bytes;
    bool has_status;
    /* With what stands above, all that a tick looks at of every peer. */
    ru_time drop_at;     /* disconnect then; 0: no */
    ru_time confirm_at;  /* ended and still not connected by then: gone */
    ru_time try_at;      /* next attempt to connect not before */
    ru_time down_at;     /* since when not up */
    uint32_t number;     /* for people */
    uint32_t epoch;      /* in force there */
    uint32_t accepted;   /* newest view it accepted */
    uint32_t copy_epoch; /* of the last view sent to it; with copy_bytes */
    uint32_t granted;    /* ballot it promised us */
    uint32_t asked;      /* ballot it was last asked for, at ... */
    ru_time takeover_at; /* ... this time */
    ru_time heard;    /* or due to be: later by what this process stood still, or in a new view */
    ru_time sign_at;  /* it was heard */
    ru_time asked_at; /* first beat of this search sent to it; 0: none */
    ru_time reported_at; /* a peer says it is gone for certain; 0: no */
    ru_time told_at;     /* last OUT or whole view */
    ru_time suspected_at;
    ru_time broken_at; /* since when it reports broken connections */
    rui_m_broken broken[RUI_M_BROKEN_MAX];
    uint32_t n_broken;
    uint64_t arrival;   /* joiner: place in the queue */
    int64_t copy_bytes; /* of views sent to it that it has not said to have */
} rui_m_peer;

/* Node -> index; keys stand at the head of fixed-size records elsewhere. */
typedef struct rui_m_index {
    uint32_t *slots; /* [mask + 1]: index + 1, 0 empty */
    uint32_t mask;
} rui_m_index;

typedef enum rui_m_phase {
    RUI_IDLE,
    RUI_JOINS,
    RUI_FOLLOWS,
    RUI_SEEKS,
    RUI_LEADS,
    RUI_OUT,
} rui_m_phase;

typedef struct rui_m_target { /* whom a joiner connects to */
    ru_node_id node;
    char address[RU_MEMBER_ADDRESS_MAX];
    ru_time try_at;
    bool trying;
} rui_m_target;

typedef struct rui_m_join {
    char contact[RU_MEMBER_ADDRESS_MAX];
    char lead_address[RU_MEMBER_ADDRESS_MAX];
    rui_m_target *targets; /* [mesh_max] */
    uint32_t n_targets;
    uint32_t turn;      /* which address to try next */
    uint32_t redirects; /* to a leader, so far */
    bool welcomed, ready, full;
    bool trying; /* to connect to `tried` */
    char tried[RU_MEMBER_ADDRESS_MAX];
    ru_time began, started, hello_at, try_at, waits_named_at; /* started: the time to give up */
    char obstacle[RUI_M_WHY_MAX];
} rui_m_join;

typedef struct rui_m_next { /* accepted, not known to be in force */
    uint32_t epoch;         /* 0: none */
    ru_node_id from;        /* who proposed it */
    uint8_t *bytes;
    int64_t size_bytes;
    bool decoded;       /* at, n, head below are of it */
    ru_member_info *at; /* [n_max] */
    uint32_t n;
} rui_m_next;

typedef struct rui_m_incoming { /* parts of a view being put together */
    ru_node_id from;
    rui_m_view_kind kind;
    uint32_t epoch, total_bytes, got_bytes;
    uint8_t *bytes;
} rui_m_incoming;

/* Copies of views that nobody has said to have. */
typedef struct rui_m_pace {
    int64_t flight_bytes, window_bytes; /* on their way: all, at most */
    uint32_t more_at;     /* of the peers from here on some lack the view; UINT32_MAX: none */
    uint32_t whole_epoch; /* of the whole view encoded last, and its size */
    int64_t whole_bytes;
} rui_m_pace;

typedef struct rui_m_told { /* what others have heard of this process */
    ru_time ran_at;         /* its beats were due and it was there to send them */
    ru_node_id to;          /* the leader that these are about: */
    ru_time said_at;        /* a beat to it that is not known to be acknowledged; 0: none */
    ru_time heard_at;       /* what was said to it until then is acknowledged */
} rui_m_told;

struct ru_member {
    ru_member_options opt;
    ru_member_info self;
    rui_m_phase phase;
    ru_time now, planned, beat_at, timer_at; /* planned: the next tick was to be then */
    ru_node_id lead;                         /* followed now; 0: nobody */

    ru_view view; /* in force */
    ru_member_info *infos;
    uint8_t *blob;
    uint32_t number_next;
    rui_m_index ranks;
    uint32_t voters;   /* of the view */
    uint32_t oldest;   /* rank of the oldest voter */
    uint32_t line_end; /* voters of smaller rank are the line */
    rui_m_next next;
    rui_m_incoming incoming;
    uint8_t *full; /* a whole view in bytes */
    uint8_t *part; /* a message being made of it */
    int64_t bytes_max;
    rui_m_pace pace;

    uint32_t voted;    /* newest proposal accepted by vote (`next` may be known by hearsay) */
    uint32_t promised; /* accept nothing older */
    ru_node_id promised_to;
    uint32_t epoch_seen; /* greatest epoch or promise heard of */

    rui_m_peer *peers;           /* [peers_max]; node 0: free */
    uint32_t peers_max, n_peers; /* places used so far */
    rui_m_index peer_index;
    ru_member_info *joiners; /* [peers_max] what they said in HELLO */
    uint8_t *statuses;       /* [peers_max][RU_MEMBER_STATUS_MAX] */
    uint64_t arrivals;

    uint8_t status[RU_MEMBER_STATUS_MAX];
    uint32_t status_bytes;
    bool has_status, status_new, leaving, beat_now;
    bool removed; /* the others go on without it, and it did not want to leave */

    rui_m_join join;

    /* leading */
    bool elect;           /* took over, first view not in force yet */
    bool adopting;        /* first puts in force what its predecessor had under way */
    bool lead_wait;       /* leads by its predecessor's view: waits for statuses before LEAD */
    bool pending;         /* own proposal under way: next.epoch */
    uint32_t votes, lost; /* voters that accepted the proposal; that are gone or given up */
    bool next_adds;       /* the proposal has new members, or new voters */
    bool recheck;         /* somebody whose vote was awaited was given up */
    uint32_t change_dead, change_leaving, change_joining; /* as last told to the owner */
    bool change_told;
    ru_member_info *wanted; /* [n_max] */
    ru_time lead_since;

    /* Whoever was out of touch with its leader for long, or without a leader with so many that they
     * could decide, may have been cut out unheard; when all the others are gone then, somebody it
     * never heard of may lead. Only who is sure goes on alone. */
    bool sure;
    ru_time sure_at; /* in touch again since long enough from then on */
    rui_m_told told;

    /* seeking */
    bool asking;
    uint32_t ballot;
    ru_time seek_since, ask_at;
    ru_time stuck_at;     /* say again who is missing */
    uint32_t stuck_named; /* so often already */

    uint32_t refused;
    char refused_why[RUI_M_REFUSED_MAX];
    ru_time hostile_at;
    uint32_t hostile;
};

/* -- member.c */
void rui_m_out(ru_member *m, ru_effects *fx, const char *fmt, ...) RU_PRINTF(3, 4);
void rui_m_out_for(ru_member *m, ru_effects *fx, ru_status st, const char *fmt, ...)
    RU_PRINTF(4, 5);
void rui_m_hostile(ru_member *m, ru_effects *fx, ru_node_id from, const char *what);
/* "worker 3 (node7)" into buf; returns buf. */
const char *rui_m_who(const ru_member *m, ru_node_id node, char *buf, size_t cap);
enum { RUI_WHO_MAX = 128 };
/* Send a beat; `extra` flags. */
void rui_m_beat_send(ru_member *m, ru_node_id to, uint8_t extra, bool status, ru_effects *fx);
void rui_m_seen(ru_member *m, uint32_t epoch);
static inline int64_t rui_m_since(const ru_member *m, ru_time t)
{
    return m->now.ns - t.ns;
}
/* Log lines about hours and minutes are for others: seconds with one digit. */
static inline double rui_m_seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

/* -- member_peer.c */
void rui_m_index_put(rui_m_index *ix, ru_node_id node, uint32_t at);
void rui_m_index_clear(rui_m_index *ix);
rui_m_peer *rui_m_peer_find(const ru_member *m, ru_node_id node);
rui_m_peer *rui_m_peer_make(ru_member *m, ru_node_id node); /* found or new; NULL: table full */
void rui_m_peer_remove(ru_member *m, rui_m_peer *p);
rui_m_peer *rui_m_peer_next(const ru_member *m, const rui_m_peer *p); /* walk; NULL: first */
ru_member_info *rui_m_peer_joiner(const ru_member *m, const rui_m_peer *p);
uint8_t *rui_m_peer_status(const ru_member *m, const rui_m_peer *p);
uint32_t rui_m_rank(const ru_member *m, ru_node_id node); /* RUI_M_NONE: not in the view */
void rui_m_ranks_build(ru_member *m);
/* Does the member of this rank (RUI_M_NONE is none) vote? */
static inline bool rui_m_votes(const ru_member *m, uint32_t rank)
{
    return rank != RUI_M_NONE && !m->view.at[rank].no_vote;
}
/* Leader or next in line: everybody is connected to it. */
static inline bool rui_m_in_line(const ru_member *m, uint32_t rank)
{
    return rank < m->line_end && !m->view.at[rank].no_vote;
}
/* Of a view that is made: if nobody votes, all do from now on. */
void rui_m_voters(ru_member_info *at, uint32_t n);
const char *rui_m_address(const ru_member *m, ru_node_id node); /* NULL: unknown */
typedef bool (*rui_m_vote)(const ru_member *m, ru_node_id node);
/* Do those voters of the list for which `vote` holds make a quorum? Asked by voters only. */
bool rui_m_quorum(const ru_member *m, const ru_member_info *at, uint32_t n, rui_m_vote vote);
bool rui_m_gone(const ru_member *m, ru_node_id node);
ru_time rui_m_unacked(const ru_member *m, ru_node_id node); /* as the options' `unacked` */
/* Open a connection to a peer unless one stands or is being opened. */
void rui_m_try(ru_member *m, rui_m_peer *p, ru_effects *fx);

/* -- member_wire.c: sizes written, or false for bytes that are not such a message */
int64_t rui_m_put_hello(void *buf, int64_t cap, const ru_member_info *self, ru_str agreed);
bool rui_m_version_ok(uint32_t version);
bool rui_m_get_hello(const ru_event *ev, ru_member_info *self, ru_str *agreed); /* view */
int64_t rui_m_put_refused(void *buf, int64_t cap, const char *why);
bool rui_m_get_refused(const ru_event *ev, char why[RUI_M_REFUSED_MAX]);
int64_t rui_m_put_redirect(void *buf, int64_t cap, ru_node_id lead, const char *address);
bool rui_m_get_redirect(const ru_event *ev, ru_node_id *lead, char address[RU_MEMBER_ADDRESS_MAX]);
bool rui_m_get_welcome(const ru_event *ev, rui_m_target *into, uint32_t n_max, uint32_t *n,
                       bool *full);
int64_t rui_m_put_beat(void *buf, int64_t cap, const rui_m_beat *b);
bool rui_m_get_beat(const ru_event *ev, rui_m_beat *b);
int64_t rui_m_put_takeover(void *buf, int64_t cap, uint32_t ballot, uint32_t epoch,
                           uint32_t accepted);
bool rui_m_get_takeover(const ru_event *ev, uint32_t *ballot, uint32_t *epoch, uint32_t *accepted);
int64_t rui_m_put_answer(void *buf, int64_t cap, const rui_m_answer *a);
bool rui_m_get_answer(const ru_event *ev, rui_m_answer *a);
int64_t rui_m_put_out(void *buf, int64_t cap, uint32_t epoch, const char *why);
bool rui_m_get_out(const ru_event *ev, uint32_t *epoch, char why[RUI_M_WHY_MAX]);
bool rui_m_get_view_part(const ru_event *ev, rui_m_view_part *p);
bool rui_m_address_ok(const char *s, uint32_t n);
void rui_m_put_info(ru_wire_out *w, const ru_member_info *info);
bool rui_m_get_info(ru_wire_in *w, ru_member_info *info);
bool rui_m_get_view(const uint8_t *bytes, int64_t size_bytes, uint32_t n_max,
                    rui_m_view_head *head);
enum { RUI_SMALL_MAX = 1024, RUI_INFO_BYTES_MAX = 8 + 4 + 4 + 4 + RU_MEMBER_ADDRESS_MAX + 4 + 64 };

/* -- member_view.c */
void rui_m_view_message(ru_member *m, const ru_event *ev, ru_effects *fx);
/* Propose next.at[next.n] as `epoch`. */
void rui_m_propose(ru_member *m, uint32_t epoch, ru_node_id leader, const void *blob,
                   int64_t blob_bytes, ru_effects *fx);
void rui_m_commit_check(ru_member *m, ru_effects *fx);
void rui_m_lost_count(ru_member *m);
void rui_m_in_force(ru_member *m, ru_effects *fx);                 /* next becomes the view */
void rui_m_view_tell(ru_member *m, rui_m_peer *p, ru_effects *fx); /* the view in force, whole */
void rui_m_accepted_tell(ru_member *m, ru_node_id to, ru_effects *fx); /* what we accepted */
/* Leader: to those for whom there was no room on the way yet. */
void rui_m_view_more(ru_member *m, ru_effects *fx);
/* The proposal under way once more, to one who has not accepted it. */
void rui_m_propose_again(ru_member *m, rui_m_peer *p, ru_effects *fx);
void rui_m_next_mark(ru_member *m);   /* in_next of the peers in it */
bool rui_m_next_decode(ru_member *m); /* next.at from next.bytes */
void rui_m_tell_out(ru_member *m, rui_m_peer *p, const char *why, ru_effects *fx);

/* -- member_pace.c */
bool rui_m_pace_fits(const ru_member *m, int64_t bytes); /* one more copy of so many bytes? */
/* The same of a copy to one who was sent one before. */
bool rui_m_pace_again(ru_member *m, rui_m_peer *p, int64_t bytes);
void rui_m_pace_sent(ru_member *m, rui_m_peer *p, uint32_t epoch, int64_t bytes);
void rui_m_pace_there(ru_member *m, rui_m_peer *p, uint32_t epoch); /* it has this one */
void rui_m_pace_over(ru_member *m, rui_m_peer *p);                  /* nothing is on its way */
void rui_m_pace_end(ru_member *m); /* to anybody: this process does not lead any more */

/* -- member_join.c */
void rui_m_join_start(ru_member *m, ru_effects *fx);
void rui_m_join_tick(ru_member *m, ru_effects *fx);
void rui_m_join_up(ru_member *m, ru_node_id node, ru_effects *fx);
void rui_m_join_down(ru_member *m, const ru_event *ev, ru_effects *fx);
void rui_m_join_again(ru_member *m, const char *why, ru_effects *fx);
void rui_m_hello(ru_member *m, const ru_event *ev, ru_effects *fx);    /* as leader or member */
void rui_m_redirect(ru_member *m, const ru_event *ev, ru_effects *fx); /* as joiner */
void rui_m_welcome(ru_member *m, const ru_event *ev, ru_effects *fx);

/* -- member_agree.c */
uint32_t rui_m_differences(ru_str mine, ru_str theirs, ru_text *t);
/* Of a joiner; false: it was refused. */
bool rui_m_agrees(ru_member *m, rui_m_peer *p, const ru_member_info *who, ru_str theirs,
                  ru_effects *fx);
bool rui_m_same_version(ru_member *m, const ru_event *ev, ru_effects *fx);
void rui_m_refused(ru_member *m, const ru_event *ev, ru_effects *fx); /* as joiner */

/* -- member_lead.c */
void rui_m_lead_start(ru_member *m, ru_effects *fx); /* LEAD, when the statuses are there */
void rui_m_lead_tick(ru_member *m, ru_effects *fx);
void rui_m_lead_beat(ru_member *m, rui_m_peer *p, const rui_m_beat *b, ru_effects *fx);
void rui_m_lead_ended(ru_member *m, rui_m_peer *p, ru_effects *fx); /* p may be gone */
void rui_m_change_check(ru_member *m, bool again, ru_effects *fx);
bool rui_m_wants(const ru_member *m, ru_node_id node); /* not dead, not leaving */
bool rui_m_joiner_drop(ru_member *m, rui_m_peer *p);

/* -- member_seek.c */
void rui_m_seek_start(ru_member *m, ru_effects *fx, const char *fmt, ...) RU_PRINTF(3, 4);
/* Likewise: the connection to the leader was ended. */
void rui_m_seek_ended(ru_member *m, const rui_m_peer *lead, ru_effects *fx);
void rui_m_seek_tick(ru_member *m, ru_effects *fx);
void rui_m_seek_check(ru_member *m, ru_effects *fx); /* may something be decided now? */
void rui_m_takeover(ru_member *m, const ru_event *ev, ru_effects *fx);
void rui_m_answered(ru_member *m, const ru_event *ev, ru_effects *fx);
void rui_m_ask_takeover(ru_member *m, rui_m_peer *p,
                        ru_effects *fx); /* asking: p has not answered */
void rui_m_ask_oldest(ru_member *m, ru_effects *fx);
/* Asked, and no answer for as long as anybody may take. */
bool rui_m_silent(const ru_member *m, const rui_m_peer *p);
bool rui_m_passes(const ru_member *m); /* RUI_B_PASSES */
/* Seeking: can the others have put a view in force without this process? */
bool rui_m_others_decide(const ru_member *m);

/* -- member_still.c */
int64_t rui_m_replaced_after_ns(const ru_member *m);
void rui_m_told_check(ru_member *m); /* a beat of the leader has come, with acknowledgements */

#endif
