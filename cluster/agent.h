/* The agent of a node: it starts, watches and ends the workers that the scheduler orders here.
 *
 * It keeps no state but files: a record of each worker, written before the worker starts, and what
 * the worker itself tells (rubato worker --tell). An agent that was killed and starts again finds
 * its workers by process number and mark and goes on watching them; they notice nothing. Without
 * its scheduler it lets everything run and dials again.
 *
 *   ORDERS --> compare with what lives --> start | SIGTERM: leave | SIGINT: end | SIGKILL: too old
 *
 * Thread: main, which becomes the loop thread. */
#ifndef RU_CLUSTER_AGENT_H
#define RU_CLUSTER_AGENT_H

#include "base/arena.h"
#include "base/status.h"
#include "env/process/group.h"

typedef struct ru_agent_options {
    const char *name;   /* of the node: unique in the cluster, fit for a folder */
    const char *folder; /* the agent's own, made when it is not there */
    const char *find;   /* file with the scheduler's address for agents, read before each dial */
    const char *key;    /* of agents */
    uint32_t slots;     /* workers at one time */
    uint32_t threads;   /* of a worker */
    const char *listen; /* of workers: "127.0.0.1:0", or ":0" where other nodes join */
    bool leaves;        /* a stop signal is a notice: workers leave, then the agent ends */
    int64_t grace_ns;  /* after a notice the machine is gone: what lives then is killed; 0: never */
    bool own_accounts; /* workers run under the account of their user (cluster/account.h) */
    const char *const *bursts; /* [n_bursts] files of services with credits that it paces */
    uint32_t n_bursts;         /* at most RU_CLUSTER_SERVICES_MAX */
    ru_group_limits limits; /* of each worker; what this machine cannot bound is told in the log */
} ru_agent_options;

/* Until the first stop signal, which leaves the workers running unless the agent `leaves`.
 * Errors: RU_E_AGAIN (another agent has the folder), those of folder and loop. */
RU_MUST_USE ru_status ru_agent_run(const ru_agent_options *opt, ru_arena *arena, ru_err *err);

#endif
