/* Nodes of a cluster: their names, and their agents on this machine and on other hosts.
 *
 * Thread: main. */
#ifndef RU_TOOL_CLUSTER_NODES_H
#define RU_TOOL_CLUSTER_NODES_H

#include "tool/cluster/cluster.h"

/* Give nodes without a name that of their host, and addresses that other hosts reach. Errors:
 * RU_E_CONFIG. */
RU_MUST_USE ru_status rui_cluster_nodes_check(rui_cluster *c, ru_arena *arena, ru_err *err);
/* Start all agents that do not run, or stop those that do, on all hosts at once. `of`: [nodes]
 * which ones, then those where it was done; NULL: all. Errors: RU_E_PEER with what the host said,
 * RU_E_AGAIN. */
RU_MUST_USE ru_status rui_cluster_nodes_do(const rui_cluster *c, bool stop, bool *of,
                                           ru_arena *arena, ru_err *err);

/* Services that agents pace: each on a node of the cluster's own, by an absolute path. */
extern const ru_conf_table rui_cluster_burst_table;
RU_MUST_USE ru_status rui_cluster_bursts_check(const rui_cluster *c, ru_err *err);
/* Make their paths those seen from the folder `dir`. */
RU_MUST_USE ru_status rui_cluster_bursts_place(rui_cluster *c, const char *dir, ru_arena *arena,
                                               ru_err *err);
/* Their files on this node. NULL: no memory. */
const char *const *rui_cluster_bursts_of(const rui_cluster *c, const char *node, ru_arena *arena,
                                         uint32_t *n);

#endif
