/* Inside the simulator. A node is a process with an interface; a connection is two ends.
 *
 *   ru_sim -- heap of (at, order | slot) --> slots: fn, self, arg, node
 *          -- nodes -- ports: wire, local (each a queue of pulled frames, one on the way)
 *          -- conns [2 ends each], ends keep what is on its way to them in order
 *
 * Upcalls never nest inside calls of the link's operations: those only mark the node's port dirty,
 * and dirty ports are served at the end of the event. Thread: one. */
#ifndef RU_SIM_SIM_IMPL_H
#define RU_SIM_SIM_IMPL_H

#include "base/map.h"
#include "sim/sim.h"

enum {
    RUI_SIM_SLOTS_MAX = 1 << 24,
    RUI_SIM_PORTS = 2, /* wire, local */
    RUI_SIM_BLOCK = 4096,
};

#define RUI_SIM_NONE          UINT32_MAX                /* no node, no frame, no connection */
#define RUI_SIM_CONNECT_NS    (5 * INT64_C(1000000000)) /* connecting into silence gives up */
#define RUI_SIM_RETRANSMIT_NS (200 * INT64_C(1000000))  /* Linux' smallest RTO */
#define RUI_SIM_USER_TIMEOUT_NS                                       \
    (10 * INT64_C(1000000000)) /* unacknowledged: the kernel gives up \
                                */

typedef struct rui_sim_slot {
    ru_sim_fn fn; /* NULL: cancelled or free */
    void *self;
    uint64_t arg;
    uint32_t node; /* RUI_SIM_NONE: nobody's */
    uint32_t generation;
} rui_sim_slot;

typedef struct rui_sim_item {
    int64_t at_ns;
    uint64_t key; /* order << 24 | slot: unique, orders ties */
} rui_sim_item;

/* What travels: a frame from pull to body, or word that a connection stands or ended. Belongs to a
 * port's queue, then to an event, then to the receiving end. */
typedef enum rui_sim_frame_kind { RUI_SIM_DATA, RUI_SIM_OPENED, RUI_SIM_ENDED } rui_sim_frame_kind;

typedef struct rui_sim_frame {
    uint8_t head[RU_LINK_HEAD_BYTES];
    uint32_t conn, generation;
    uint32_t to_node;  /* once it travels */
    uint8_t kind, why; /* why: of RUI_SIM_ENDED */
    uint8_t to_side;   /* end that receives it */
    bool dropped;      /* closed before it left */
    uint32_t seq;      /* of this direction: order of arrival */
    uint32_t next;     /* in a port's queue, in an end's list, or free */
    uint32_t n_spans;
    int64_t size_bytes; /* payload */
    int64_t begin_ns;   /* pulled at, for rates */
    uint64_t cookie;
    ru_span *spans;   /* [n_spans] copied when it leaves; NULL: counted only */
    uint8_t *payload; /* [size_bytes] the copy; NULL: counted */
    ru_link_rx *rx;   /* the part under way, while half of it is in place */
    int64_t part_at;  /* offset of that part */
} rui_sim_frame;

typedef enum rui_sim_end_state {
    RUI_SIM_END_CLOSED,  /* its user knows, or never knew */
    RUI_SIM_END_OPENING, /* `opened` comes */
    RUI_SIM_END_OPEN,
    RUI_SIM_END_DEAF, /* half-open: what it sends vanishes */
} rui_sim_end_state;

typedef struct rui_sim_end {
    uint32_t node;
    uint8_t state;
    bool paused;                 /* head said RU_E_AGAIN */
    bool ready;                  /* in its port's list of ends to pull from */
    bool halfway;                /* the first frame is partly in place */
    bool blocked;                /* its window is full */
    bool gives_up;               /* a time-out of its kernel runs */
    bool gave_up;                /* its kernel forgot the connection */
    uint32_t ready_next;         /* conn << 1 | side */
    uint32_t first, last;        /* arrived frames that wait (paused, frozen) */
    uint32_t seq_sent, seq_next; /* of frames that left here; of the next to arrive here */
    uint32_t unsent_bytes, unacked_bytes;
    uint32_t window_bytes, notsent_bytes;
    int64_t in_order_ns; /* nothing arrives here earlier */
    int64_t through_ns;  /* frames that are here wait for the interface until */
    int64_t acked_bytes;
    int64_t pace_next_ns;
    int64_t delivered_ns; /* when the last frame of this end was taken by the other */
    float pace_bytes_per_s, delivery_bytes_per_s;
} rui_sim_end;

typedef struct rui_sim_conn {
    rui_sim_end end[2]; /* 0 connected, 1 accepted */
    uint32_t generation;
    uint32_t next_free;
    uint8_t class, port;
    bool used;
} rui_sim_conn;

/* One way out and one way in, of a node or of all nodes of a host. */
typedef struct rui_sim_wire {
    int64_t out_free_ns, in_free_ns; /* busy until */
} rui_sim_wire;

typedef struct rui_sim_port {
    uint32_t ready_first, ready_last; /* ends to pull from, conn << 1 | side */
    uint32_t first, last;             /* pulled frames: the first is on the wire when busy */
    int64_t queued_bytes;             /* in the queue, the one on the wire included */
    rui_sim_wire *wire;               /* its own, or that of its host's first node */
    bool busy, dirty;
    uint32_t dirty_next;
} rui_sim_port;

/* What is left of a quota (vquota.c). */
typedef struct rui_sim_budget {
    ru_sim_quota q;
    double left_ns; /* as of at_ns; below 0: a debt */
    double use;     /* cores that compute now */
    int64_t at_ns, refill_ns;
    uint64_t timer;
    bool out; /* used up: the process stands still */
} rui_sim_budget;

typedef struct rui_sim_node {
    ru_sim *sim;
    uint32_t index;
    bool alive, vanished, sleeps; /* sleeps: frozen by ru_sim_sleep */
    char address[RU_SIM_ADDRESS_MAX];
    ru_link_user user;
    ru_sim_nic nic;
    double slow; /* factor on the rate */
    int64_t frozen_until_ns, cut_until_ns;
    int64_t last_at_ns; /* the frame that left last: when it arrives, and where */
    uint32_t last_to;   /* + 1; 0: none left yet */
    rui_sim_port port[RUI_SIM_PORTS];
    rui_sim_wire wires[RUI_SIM_PORTS];
    rui_sim_budget *budget; /* NULL: no quota */
    ru_sim_node_stats stats;
} rui_sim_node;

typedef struct rui_sim_cut {
    uint32_t a, b; /* a < b */
    int64_t until_ns;
} rui_sim_cut;

typedef struct rui_sim_feed {
    ru_sim *sim;
    const int64_t *at_ns; /* [n] */
    uint32_t n;
    ru_sim_fn fn;
    void *self;
    struct rui_sim_feed *next;
} rui_sim_feed;

struct ru_sim {
    ru_sim_options opt;
    ru_rng rng, rng_wire;
    int64_t now_ns, events, memory_bytes;
    uint64_t hash, order;
    bool stop, inside; /* inside: an upcall or event is running */
    ru_status failed;
    ru_err failure;

    rui_sim_item *heap;
    uint32_t heap_n, heap_cap, dead;
    rui_sim_slot *slots;
    uint32_t slots_n, slots_cap, *slot_free, slot_free_n;

    rui_sim_node **nodes;
    void **users; /* [nodes_max] `self` of their link's user */
    uint32_t nodes_n, alive_n;
    ru_map addresses; /* address -> node + 1 */

    rui_sim_conn **conn_blocks;
    uint32_t conns_n, conn_blocks_cap, conn_free_first, conn_free_last;
    rui_sim_frame **frame_blocks;
    uint32_t frames_n, frame_blocks_cap, frame_free;
    uint32_t frames_live;
    uint32_t dirty_first, dirty_last; /* node << 1 | port */

    rui_sim_cut *cuts;
    uint32_t cuts_n, cuts_cap;
    ru_sim_dev *devs;    /* list */
    ru_sim_cpu *cpus;    /* list */
    rui_sim_feed *feeds; /* list */
    ru_sim_chaos chaos;
    bool chaos_on;
    int64_t operations, overtaken, redirected;
};

/* vtime.c */
void rui_sim_fail(ru_sim *s, ru_status st, const char *fmt, ...) RU_PRINTF(3, 4);
void *rui_sim_grow(ru_sim *s, void *at, int64_t old_bytes, int64_t new_bytes); /* NULL: failed */
static inline void rui_sim_mix(ru_sim *s, uint64_t v)
{
    uint64_t h = (s->hash ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    s->hash = h ^ (h >> 29);
}

/* An event's argument that names an end: generation << 32 | conn << 1 | side. */
static inline uint64_t rui_sim_end_arg(const rui_sim_conn *c, uint32_t conn, uint32_t side)
{
    return (uint64_t)c->generation << 32 | conn << 1 | side;
}

/* vwire.c */
rui_sim_frame *rui_sim_frame_at(const ru_sim *s, uint32_t index);
rui_sim_conn *rui_sim_conn_at(const ru_sim *s, uint32_t index);
uint32_t rui_sim_conn_new(ru_sim *s);  /* RUI_SIM_NONE: no memory or RU_SIM_CONNS_MAX */
uint32_t rui_sim_frame_new(ru_sim *s); /* RUI_SIM_NONE: the run fails */
void rui_sim_frame_free(ru_sim *s, uint32_t frame);
/* The connection an event's argument names; NULL when it is gone. */
rui_sim_conn *rui_sim_arg_conn(const ru_sim *s, uint64_t arg, uint32_t *conn, uint32_t *side);

void rui_sim_ready(ru_sim *s, uint32_t conn, uint32_t side); /* pull from it soon */
void rui_sim_dirty(ru_sim *s, uint32_t node, uint32_t port);
void rui_sim_serve(ru_sim *s); /* all dirty ports */
/* An event that comes soon: bring what it will touch near. `next`: it is the next one. */
void rui_sim_wire_near(const ru_sim *s, ru_sim_fn fn, uint64_t arg, bool next);
/* Put a frame on its way to `to_side`; it left the other end at left_ns, now or soon. */
void rui_sim_travel(ru_sim *s, uint32_t frame, int64_t left_ns);
int64_t rui_sim_delay_ns(const ru_sim *s, const rui_sim_conn *c, uint32_t from_side);
/* Forget what an end has pulled and what waits for it. */
void rui_sim_end_drop(ru_sim *s, uint32_t conn, uint32_t side);

/* vnet.c */
ru_conn_id rui_sim_conn_id(const rui_sim_conn *c, uint32_t conn, uint32_t side);
/* A frame is here: upcalls, unless the end pauses or its process is frozen. */
void rui_sim_arrived(ru_sim *s, uint32_t frame);
void rui_sim_deliver(ru_sim *s, uint32_t conn, uint32_t side); /* what waits at an end */
/* Say "it ended" to the other side of `from_side`; in order after what is on its way. */
void rui_sim_say_ended(ru_sim *s, uint32_t conn, uint32_t from_side, ru_status why);
/* The end is over now: upcall when its process lives, then free the connection if both are. */
void rui_sim_end_close(ru_sim *s, uint32_t conn, uint32_t side, ru_status why,
                       const char *sentence);
void rui_sim_conn_put(ru_sim *s, uint32_t conn); /* free it when both ends are closed */
/* What the end sent is not taken: its kernel gives up after a while. */
void rui_sim_give_up(ru_sim *s, uint32_t conn, uint32_t side);
void rui_sim_thaw(ru_sim *s, uint32_t node);

/* chaos.c */
int64_t rui_sim_cut_until_ns(const ru_sim *s, uint32_t a, uint32_t b); /* 0: not cut */
bool rui_sim_operation_fails(ru_sim *s, uint32_t node);

/* vdev.c */
void rui_sim_devs_free(ru_sim *s);
void rui_sim_devs_drop(ru_sim *s, uint32_t node); /* dead: its cores are free */
/* Take off what the devices of a node did so far; they go on, unless its quota is used up. */
void rui_sim_devs_hold(ru_sim *s, uint32_t node);
void rui_sim_devs_begin(ru_sim *s, uint32_t node);

/* vquota.c */
void rui_sim_use(ru_sim *s, uint32_t node, double more); /* cores, from now on */
void rui_sim_charge(ru_sim *s, rui_sim_node *n, int64_t size_bytes);

#endif
