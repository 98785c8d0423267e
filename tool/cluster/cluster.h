/* A cluster from its file: its folder, its processes on this machine, its address.
 *
 *   FOLDER/cluster.yaml           the file, resolved
 *   FOLDER/keys/admin, agent      secrets, made once
 *   FOLDER/run/scheduler, NAME    process number and mark; NAME/: the agent's own folder
 *   FOLDER/log/scheduler, NAME    what they say
 *
 * Markets (markets.c) give nodes of this machine, of a partition of Slurm, or of two commands; the
 * scheduler requests and releases them.
 *
 * An agent of another host is started and ended by this program there, over ssh (nodes.c).
 *
 * Thread: main. */
#ifndef RU_TOOL_CLUSTER_CLUSTER_H
#define RU_TOOL_CLUSTER_CLUSTER_H

#include "base/conf.h"

typedef struct rui_cluster_node {
    const char *name, *host; /* host "": this machine */
    uint32_t slots, threads, pids;
    uint32_t notice; /* rui_notice_kind */
    const char *notice_url;
    double cpu;
    int64_t memory_bytes;
    int64_t grace_ns; /* from a notice until what lives is killed; 0: never. No key */
    bool leaves;      /* a stop signal is a notice. No key */
} rui_cluster_node;

typedef struct rui_cluster_burst { /* a service with credits */
    const char *node, *service;    /* service: path of its file there */
} rui_cluster_burst;

typedef struct rui_cluster_slurm {
    uint32_t seats, seats_min;
    const char *partition;
    ru_conf_texts options;
    int64_t idle_ns;
    rui_cluster_node node; /* of each seat */
} rui_cluster_slurm;

typedef struct rui_cluster_market {
    const char *name, *prices; /* path of a file of prices; "": `usd` for good */
    const char *partition, *request, *release;
    ru_conf_texts options;
    uint32_t notice; /* rui_notice_kind */
    const char *notice_url;
    uint32_t nodes, slots, threads;
    double usd, evictions, on_demand_usd, cpu;
    int64_t patience_ns;
} rui_cluster_market;

typedef struct rui_cluster_trade { /* what all markets share */
    double speed;
    int64_t begin_s, notice_ns, sigma_ns, lambda_ns;
} rui_cluster_trade;

typedef struct rui_cluster_alloc {
    uint32_t method; /* ru_alloc_method */
    double demote_s;
    uint32_t resize; /* 0: in place, 1: restart */
} rui_cluster_alloc;

typedef struct rui_cluster {
    const char *folder, *journal, *listen, *agents, *workers;
    uint32_t accounts; /* 0: own, 1: shared */
    RU_SECTIONS(rui_cluster_node) nodes;
    RU_SECTIONS(rui_cluster_burst) bursts;
    rui_cluster_slurm slurm;
    RU_SECTIONS(rui_cluster_market) markets;
    rui_cluster_trade market;
    rui_cluster_alloc alloc;
    int64_t silent_ns, round_ns;
} rui_cluster;

/* Read CLUSTER.yaml; `folder` becomes absolute. Errors: RU_E_MISSING, RU_E_CONFIG. */
RU_MUST_USE ru_status rui_cluster_load(const char *path, ru_arena *arena, rui_cluster *out,
                                       ru_err *err);
/* The cluster in this folder. */
RU_MUST_USE ru_status rui_cluster_of(const char *folder, ru_arena *arena, rui_cluster *out,
                                     ru_err *err);
/* The folder that a command means: `given`, else RUBATO_CLUSTER, else that of the last `up` of this
 * user. Errors: RU_E_USAGE. */
RU_MUST_USE ru_status rui_cluster_folder(const char *given, ru_arena *arena, const char **folder,
                                         ru_err *err);
/* The node with this name, of Slurm's seats and of markets too. false: there is none. */
bool rui_cluster_node_of(const rui_cluster *c, const char *name, rui_cluster_node *out);
/* A secret of the folder: admin, agent. */
RU_MUST_USE ru_status rui_cluster_key(const char *folder, const char *name, ru_arena *arena,
                                      const char **key, ru_err *err);

/* Start what does not run yet and wait until all nodes are up; one caller at a time. Errors:
 * RU_E_PEER with the log of whoever did not come, RU_E_AGAIN when another caller does not end. */
RU_MUST_USE ru_status rui_cluster_up(const rui_cluster *c, ru_arena *arena, ru_err *err);
/* The agent of a node of this machine: start it unless it runs, or end it and wait until it is
 * gone. Errors: RU_E_PEER, RU_E_AGAIN. */
RU_MUST_USE ru_status rui_cluster_agent_start(const char *folder, const char *name, ru_arena *arena,
                                              ru_err *err);
RU_MUST_USE ru_status rui_cluster_agent_stop(const char *folder, const char *name, ru_arena *arena,
                                             ru_err *err);
/* All jobs end with checkpoints, then scheduler and agents. Errors: RU_E_AGAIN after `patience_ns`.
 */
RU_MUST_USE ru_status rui_cluster_down(const char *folder, int64_t patience_ns, ru_arena *arena,
                                       ru_err *err);

/* Ask the scheduler: GET without `body`, else POST; as the user whose key the file
 * RUBATO_CLUSTER_KEY holds, else as the administrator. */
typedef struct rui_cluster_ask {
    const char *folder, *path, *body;
    bool json;
} rui_cluster_ask;
RU_MUST_USE ru_status rui_cluster_asked(const rui_cluster_ask *a, ru_arena *arena, char **text,
                                        int64_t *n, ru_err *err);

#endif
