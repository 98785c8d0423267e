/* The simulator: virtual time, links with sharing and queues, devices that only take time, faults.
 *
 * One heap of future events, ties by order of insertion; one seed; the same seed gives the same
 * events, which a running hash proves. Nodes are whatever the caller builds on the seams of env/:
 * a link (ru_link_ops) per node, timers and devices. The invariant is called after every event.
 * A replay of a policy needs no node: it drives a step machine with ru_sim_at and ru_sim_feed
 * alone.
 *
 * Errors inside an event (no memory, more connections than fit) end the run: ru_sim_run reports
 * them. Thread: one. */
#ifndef RU_SIM_SIM_H
#define RU_SIM_SIM_H

#include "base/rng.h"
#include "env/link/link.h"

typedef struct ru_sim ru_sim;

typedef struct ru_sim_options {
    uint64_t seed;
    uint32_t nodes_max;       /* 0: 4096 */
    int64_t events_max;       /* ru_sim_run stops with RU_E_LIMIT after; 0: 1e12 */
    int64_t memory_max_bytes; /* of the simulator itself; 0: unbounded */
    /* Payloads with memory arrive in two parts, some time apart: half, then the rest and `body`. */
    bool halves;
    /* After every event; a status ends the run with that error. May be NULL. */
    ru_status (*invariant)(void *self, ru_time now, ru_err *err);
    void *invariant_self;
} ru_sim_options;

RU_MUST_USE ru_status ru_sim_open(const ru_sim_options *opt, ru_sim **out, ru_err *err);
void ru_sim_close(ru_sim *s); /* NULL is fine */
ru_time ru_sim_now(const ru_sim *s);
/* Of all events so far: time, order of insertion, node, argument, and the headers of frames. */
uint64_t ru_sim_hash(const ru_sim *s);
int64_t ru_sim_events(const ru_sim *s);
int64_t ru_sim_memory_bytes(const ru_sim *s);
ru_rng *ru_sim_rng(ru_sim *s);

/* Call fn(self, arg) at `at` (not before now). `arg` is part of the hash: a number, no address.
 * Returns a handle for ru_sim_cancel, never 0; cancelling what has happened does nothing. */
typedef void (*ru_sim_fn)(void *self, uint64_t arg);
uint64_t ru_sim_at(ru_sim *s, ru_time at, ru_sim_fn fn, void *self, uint64_t arg);
/* The same for something inside a node's process: never happens when the process is dead by then,
 * happens later while it is frozen. */
uint64_t ru_sim_at_node(ru_sim *s, uint32_t node, ru_time at, ru_sim_fn fn, void *self,
                        uint64_t arg);
void ru_sim_cancel(ru_sim *s, uint64_t handle);
/* Call fn(self, k) at at_ns[k] for each k in 0..n-1: arrivals, prices, speeds of a trace that a
 * replay feeds to a step machine. at_ns [n] never falls, begins at now or later and is a view until
 * the last call. One event waits at a time, so a million inputs cost no heap; the
 * event for k + 1 is inserted just before fn is called for k. */
void ru_sim_feed(ru_sim *s, const int64_t *at_ns, uint32_t n, ru_sim_fn fn, void *self);
/* Until no event is left, `until` (the clock then stands there), or ru_sim_stop. Errors: of the
 * invariant, RU_E_LIMIT (events, memory, connections), RU_E_MEM. */
RU_MUST_USE ru_status ru_sim_run(ru_sim *s, ru_time until, ru_err *err);
void ru_sim_stop(ru_sim *s);

/* -- network (vnet.c, vwire.c) --------------------------------------------------------------------
 *
 *   user.pull --> queue of the interface --wire (rate, shared in order)--> delay --> rate of the
 *   receiver's interface (shared) --> user.head, user.body
 *
 * A frame of S bytes alone on the way from a to b is there after S / rate(a) + delay(a), plus what
 * b's interface needs when others send to it as well. Connections of one node take turns on its
 * wire, frame by frame, when their queue has room; a pulled frame cannot be recalled. Nodes of one
 * host talk past the wire at local_bytes_per_s after local_delay_ns. A connection holds at most
 * its window of bytes that the other side has not taken, so that a slow or pausing receiver stops
 * the sender. Payloads are copied when both sides give memory, only counted otherwise. */

enum { RU_SIM_ADDRESS_MAX = 108, RU_SIM_CONNS_MAX = 1 << 23 };

typedef struct ru_sim_nic {
    double bytes_per_s;       /* each way; 0: 1.25e9 */
    int64_t delay_ns;         /* one way to anybody on another host; 0: 10 us */
    int64_t queue_bytes;      /* pulled bytes that wait for the wire; 0: 256 KiB, 31 ms at most */
    int64_t window_bytes;     /* bytes of a connection on their way; 0: from rate and delay */
    uint32_t host;            /* nodes with the same number share a host; 0: alone */
    bool shared;              /* those of the host that say so share one wire of bytes_per_s */
    double local_bytes_per_s; /* 0: 1e10 */
    int64_t local_delay_ns;   /* 0: 2 us */
} ru_sim_nic;

/* A node's interface under an address ("10.0.0.1:1"), where it also listens; upcalls go to `user`
 * (may be NULL and set before running). The address of a dead node may be used again: a new
 * process. */
RU_MUST_USE ru_status ru_sim_nic_add(ru_sim *s, const char *address, const ru_sim_nic *nic,
                                     const ru_link_user *user, ru_link *link, uint32_t *node,
                                     ru_err *err);
void ru_sim_nic_user(ru_sim *s, uint32_t node, const ru_link_user *user);

typedef struct ru_sim_node_stats {
    int64_t tx_frames, rx_frames, tx_bytes, rx_bytes; /* with headers */
    uint32_t conns;                                   /* open now */
} ru_sim_node_stats;
void ru_sim_node_stats_get(const ru_sim *s, uint32_t node, ru_sim_node_stats *into);

/* Does a pulled frame that has not left yet read from this memory? Then the user must not reuse it.
 * Searches all frames; for checks. */
bool ru_sim_reads(const ru_sim *s, const void *data, int64_t size_bytes);

/* -- devices (vdev.c): one thing at a time, with a duration ---------------------------------------
 */

typedef struct ru_sim_dev ru_sim_dev;
/* Owner: the simulator. NULL: no memory. */
ru_sim_dev *ru_sim_dev_add(ru_sim *s, uint32_t node, double speed);
/* Queue work of work_ns at speed 1; fn when done. */
void ru_sim_dev_work(ru_sim_dev *d, int64_t work_ns, ru_sim_fn fn, void *self, uint64_t arg);
void ru_sim_dev_cancel(ru_sim_dev *d); /* all of it: fn is not called */
bool ru_sim_dev_busy(const ru_sim_dev *d);

/* Cores that devices share. Owner: the simulator. NULL: no memory. */
typedef struct ru_sim_cpu ru_sim_cpu;
ru_sim_cpu *ru_sim_cpu_add(ru_sim *s, double cores);
/* While it works, `d` wants `cores` of them, > 0; when all that work want more than there are, all
 * of them get the same part of what they want. Before its first work. */
void ru_sim_dev_cores(ru_sim_dev *d, ru_sim_cpu *cpu, double cores);

/* -- quotas (vquota.c): processor time of a process
 * ------------------------------------------------
 */

typedef struct ru_sim_quota {
    int64_t quota_ns, period_ns; /* so much in each period; of several cores their sum */
    int64_t phase_ns;            /* of the first refill */
    double byte_ns;              /* that a byte sent or received takes */
} ru_sim_quota;
/* The node's process stands still from when it used up its quota until the period is over: what its
 * devices compute (each one core, or those it wants) and what it sends and receives count. Once,
 * before its first work. */
void ru_sim_quota_set(ru_sim *s, uint32_t node, const ru_sim_quota *q);

/* -- faults (chaos.c) -----------------------------------------------------------------------------
 */

/* The process dies, its kernel lives: connections end at the peers after the delay, connecting is
 * refused; timers and work of the node never happen. */
void ru_sim_crash(ru_sim *s, uint32_t node);
/* The machine dies: as ru_sim_crash, but the peers hear nothing any more. */
void ru_sim_vanish(ru_sim *s, uint32_t node);
void ru_sim_freeze(ru_sim *s, uint32_t node, int64_t for_ns); /* process stopped, then continues */
/* As a freeze, and of a connection that its peer ends meanwhile nothing is left: what it said last
 * found the window full. No freeze makes it longer. */
void ru_sim_sleep(ru_sim *s, uint32_t node, int64_t for_ns);
bool ru_sim_frozen(const ru_sim *s, uint32_t node);
/* Nothing passes between two nodes; afterwards it is sent again, unless the kernel gave up. */
void ru_sim_cut(ru_sim *s, uint32_t a, uint32_t b, int64_t for_ns);
void ru_sim_cut_node(ru_sim *s, uint32_t node, int64_t for_ns); /* from everybody */
/* a's connections to b end at b with RU_E_IO; for a they stay open until it notices or gives up. */
void ru_sim_half_open(ru_sim *s, uint32_t a, uint32_t b);
void ru_sim_slow_link(ru_sim *s, uint32_t node, double factor); /* rate * factor, > 0 */
bool ru_sim_alive(const ru_sim *s, uint32_t node);
bool ru_sim_vanished(const ru_sim *s, uint32_t node); /* dead, without notice to its peers */
/* Frames so far that reach a node before one that the same sender sent it earlier. */
int64_t ru_sim_overtaken(const ru_sim *s);
/* Payloads so far that were sent to another place while they arrived. */
int64_t ru_sim_redirected(const ru_sim *s);

typedef enum ru_sim_fault {
    RU_SIM_CRASH,
    RU_SIM_VANISH,
    RU_SIM_FREEZE,
    RU_SIM_CUT,     /* two nodes */
    RU_SIM_ISOLATE, /* one from all others */
    RU_SIM_SLOW,
    RU_SIM_HALF_OPEN,
    RU_SIM_FAIL,  /* an operation failed */
    RU_SIM_SLEEP, /* only asked for, never by rate */
    RU_SIM_FAULTS
} ru_sim_fault;
const char *ru_sim_fault_name(ru_sim_fault f);

typedef struct ru_sim_chaos {
    /* Mean rates over all nodes; freezes and cuts last up to the longest, by seed. */
    double crash_per_s, vanish_per_s, freeze_per_s, cut_per_s, isolate_per_s, slow_per_s,
        half_open_per_s;
    int64_t freeze_max_ns, cut_max_ns; /* 0: 300 ms */
    int64_t jitter_ns;      /* every frame up to this much later: connections overtake each other */
    uint32_t keep_alive;    /* never kill below this many living nodes */
    int64_t fail_operation; /* the k-th operation of a link (connect, frame) fails; 0: none */
    ru_time until;          /* no fault starts later; ns 0: no end */
    /* Called for every fault just before it happens; other: second node of a pair. May be NULL. */
    void (*told)(void *self, ru_sim_fault what, uint32_t node, uint32_t other, ru_time now);
    void *told_self;
} ru_sim_chaos;
void ru_sim_chaos_start(ru_sim *s, const ru_sim_chaos *c); /* copied */

#endif
