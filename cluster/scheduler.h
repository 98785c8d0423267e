/* The scheduler of a cluster: takes jobs over HTTP, decides by cluster/book.h, orders agents.
 *
 *   FOLDER/journal          every event (cluster/journal.h): the state is its fold; unless it is
 *                           elsewhere, or in a database
 *   FOLDER/keys/admin       who has it may everything; agent: may be an agent
 *   FOLDER/http, agents     addresses, written when it listens
 *   FOLDER/jobs/N           folder of the run of job N: where workers run too, so a disk that all
 *                           nodes share
 *
 * An event is durable before it is answered or acted on. What processes live is the agents' word
 * alone: after a start the scheduler waits for them, and a node that is silent for 30 s is given
 * up.
 *
 * Several schedulers of one cluster may share a database as journal: one leads, the others fold its
 * events and wait until it ends. One that lost the database gives no orders until it has the lead
 * again. Who finds that another one led meanwhile ends, to begin anew.
 *
 * Thread: main, which becomes the loop thread. */
#ifndef RU_CLUSTER_SCHEDULER_H
#define RU_CLUSTER_SCHEDULER_H

#include "base/arena.h"
#include "base/status.h"
#include "plan/fleet/alloc.h"

/* How the nodes of a market come and go; all NULL: agents of this machine. */
typedef struct ru_market_provider {
    const struct ru_slurm_options *slurm; /* jobs of a partition */
    const char *request, *release;        /* commands for sh, of a node that RUBATO_NODE names */
} ru_market_provider;

typedef struct ru_scheduler_options {
    const char *folder;  /* exists */
    const char *journal; /* ru_journal_open */
    const char *listen;  /* of people: PORT, :PORT or HOST:PORT */
    const char *agents;  /* of agents: HOST:PORT */
    const char *key, *agent_key;
    bool own_accounts;      /* jobs run under the account of their user (cluster/account.h) */
    int64_t silent_ns;      /* a node is given up after it */
    int64_t round_ns;       /* between plans when nothing happens */
    ru_alloc_method method; /* who gets how many slots */
    double demote_s;        /* tiresias: slot-seconds of its upper queue */
    bool restarts;          /* a job whose slots change stops with a checkpoint and starts from it;
                               else it grows and shrinks while it runs */
    const struct ru_slurm_options *slurm; /* cluster/slurm.h; NULL: no seats */
    const struct ru_spot_options *spot;   /* cluster/spot.h; NULL: no markets */
    const ru_market_provider *providers;  /* [spot->n] */
    /* Twice a second, at an instant of the markets' clock: prices in `spot` may change. NULL: they
     * do not. */
    void (*refresh)(void *prices, int64_t now_ns);
    void *prices;
} ru_scheduler_options;

/* Until the first stop signal, which leaves jobs running, or until it was asked to end all, also
 * while another one led. Errors: RU_E_CANCELLED (another one leads now: call it again in a new
 * process), those of journal, addresses and loop. */
RU_MUST_USE ru_status ru_scheduler_run(const ru_scheduler_options *opt, ru_arena *arena,
                                       ru_err *err);

#endif
