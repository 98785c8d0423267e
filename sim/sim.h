/* The simulator: virtual time, links with sharing and queues, devices that only take time, faults.
 *
 * One heap of future events, ties by order of insertion; one seed; the same seed gives the same
 * events, which a running hash proves. Nodes are whatever the caller builds on the seams of env/:
 * a link (ru_link_ops) per node and timers. Invariants are called after every event.
 *
 * Thread: one. */
#ifndef RU_SIM_SIM_H
#define RU_SIM_SIM_H

#include "base/rng.h"
#include "env/link.h"

typedef struct ru_sim ru_sim;

typedef struct ru_sim_options {
    uint64_t seed;
    uint32_t nodes_max;
    int64_t events_max; /* stop with RU_E_LIMIT after; 0: 1e12 */
    int64_t memory_max_bytes;
    /* After every event; a status ends the run with that error. May be NULL. */
    ru_status (*invariant)(void *self, ru_time now, ru_err *err);
    void *invariant_self;
} ru_sim_options;

RU_MUST_USE ru_status ru_sim_open(const ru_sim_options *opt, ru_sim **out, ru_err *err);
void ru_sim_close(ru_sim *s);
ru_time ru_sim_now(const ru_sim *s);
uint64_t ru_sim_hash(const ru_sim *s); /* of all events so far */
int64_t ru_sim_events(const ru_sim *s);
ru_rng *ru_sim_rng(ru_sim *s);

/* Call fn(self, arg) at `at` (not before now). Returns a handle for ru_sim_cancel. */
typedef void (*ru_sim_fn)(void *self, uint64_t arg);
uint64_t ru_sim_at(ru_sim *s, ru_time at, ru_sim_fn fn, void *self, uint64_t arg);
void ru_sim_cancel(ru_sim *s, uint64_t handle);
/* Until the heap is empty, `until`, or ru_sim_stop. Errors: of the invariant, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_sim_run(ru_sim *s, ru_time until, ru_err *err);
void ru_sim_stop(ru_sim *s);

/* -- network (vnet.c) ----------------------------------------------------------------------------
 */

typedef struct ru_sim_nic {
    double bytes_per_s;  /* each way */
    int64_t delay_ns;    /* to anybody */
    int64_t queue_bytes; /* of the egress: how far a sender runs ahead of the wire */
    uint32_t host;       /* nodes of one host talk at local_bytes_per_s / local_delay_ns */
} ru_sim_nic;

/* A node's interface under an address ("10.0.0.1:1"); upcalls go to `user` (set before running). */
RU_MUST_USE ru_status ru_sim_nic_add(ru_sim *s, const char *address, const ru_sim_nic *nic,
                                     const ru_link_user *user, ru_link *link, uint32_t *node,
                                     ru_err *err);
void ru_sim_nic_user(ru_sim *s, uint32_t node, const ru_link_user *user);

/* -- devices (vdev.c): one thing at a time, with a duration --------------------------------------
 */

typedef struct ru_sim_dev ru_sim_dev;
ru_sim_dev *ru_sim_dev_add(ru_sim *s, uint32_t node, double speed);
/* Queue work of work_ns at speed 1; fn when done. Cancelled work never calls. */
uint64_t ru_sim_dev_work(ru_sim_dev *d, int64_t work_ns, ru_sim_fn fn, void *self, uint64_t arg);
void ru_sim_dev_cancel(ru_sim_dev *d);
void ru_sim_dev_speed(ru_sim_dev *d, double speed);

/* -- faults (chaos.c) ----------------------------------------------------------------------------
 */

void ru_sim_crash(ru_sim *s, uint32_t node); /* connections end at peers after a delay; timers and
                                                work of the node never fire */
void ru_sim_freeze(ru_sim *s, uint32_t node, int64_t for_ns);       /* stopped, then goes on */
void ru_sim_cut(ru_sim *s, uint32_t a, uint32_t b, int64_t for_ns); /* nothing passes */
void ru_sim_half_open(ru_sim *s, uint32_t a, uint32_t b); /* a's connections to b die at b only */
void ru_sim_slow_link(ru_sim *s, uint32_t node, double factor);
bool ru_sim_alive(const ru_sim *s, uint32_t node);

typedef struct ru_sim_chaos {
    double crash_per_s, freeze_per_s, cut_per_s, slow_per_s,
        half_open_per_s;    /* mean rates, all nodes */
    bool reorder;           /* urgent and bulk connections may overtake each other freely */
    uint32_t keep_alive;    /* never crash below this many living nodes */
    int64_t fail_operation; /* the k-th link operation fails; 0: none */
} ru_sim_chaos;
void ru_sim_chaos_start(ru_sim *s, const ru_sim_chaos *c);

#endif
