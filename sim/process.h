/* A process in the simulator: a network interface under an address, an arena, timers by number.
 * What runs inside is the caller's: a node (comm/node/node.h) with any parts, or something else on
 * a link.
 *
 * Thread: one. */
#ifndef RU_SIM_PROCESS_H
#define RU_SIM_PROCESS_H

#include "sim/sim.h"

enum { RU_SIM_PROCESS_TIMERS = 24 }; /* numbers in use at one time */

typedef struct ru_sim_timer {
    uint32_t what;
    int64_t at_ns;  /* 0: off */
    uint64_t event; /* pending in the simulator; 0: none */
    int64_t event_ns;
} ru_sim_timer;

/* Owner: the caller; must not move while the simulator runs. */
typedef struct ru_sim_process {
    ru_sim *sim;
    ru_arena arena; /* of the process' life */
    uint32_t node;  /* number in the simulator */
    ru_link link;
    bool gone; /* its process is over */
    void (*fire)(void *self, uint32_t what, ru_time now);
    void *self;
    ru_sim_timer timers[RU_SIM_PROCESS_TIMERS];
} ru_sim_process;

/* A process at `address`; `fire` is called for each timer that is due. The upcalls of the link go
 * to ru_sim_process_user. Errors: of ru_sim_nic_add. */
RU_MUST_USE ru_status ru_sim_process_open(ru_sim_process *p, ru_sim *sim, const char *address,
                                          const ru_sim_nic *nic,
                                          void (*fire)(void *self, uint32_t what, ru_time now),
                                          void *self, ru_err *err);
void ru_sim_process_user(ru_sim_process *p, const ru_link_user *user);
void ru_sim_process_fini(ru_sim_process *p);
/* fn(self, arg) inside the process: not once it is dead, later while it is frozen. */
void ru_sim_process_at(ru_sim_process *p, ru_time at, ru_sim_fn fn, void *self, uint64_t arg);
/* The process ends by itself: its kernel closes what it had open. */
void ru_sim_process_exit(ru_sim_process *p);

/* Timers as a node's driver offers them; self is the process. More than RU_SIM_PROCESS_TIMERS
 * numbers: a crash. */
void ru_sim_process_timer(void *self, uint32_t what, ru_time at);
void ru_sim_process_timer_off(void *self, uint32_t what);

#endif
