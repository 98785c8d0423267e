/* Nodes of a cluster: their names, and their agents on this machine and on other hosts.
 *
 * Thread: main. */
#ifndef RU_TOOL_CLUSTER_NODES_H
#define RU_TOOL_CLUSTER_NODES_H

#include "tool/cluster/cluster.h"

/* Give nodes without a name that of their host, and addresses that other hosts reach. Errors:
 * RU_E_CONFIG. */
RU_MUST_USE ru_status rui_cluster_nodes_check(rui_cluster *c, ru_arena *arena, ru_err *err);
/* Start all agents that do not run, or stop those that do, on all hosts at once. Errors: RU_E_PEER
 * with what the host said, RU_E_AGAIN. */
RU_MUST_USE ru_status rui_cluster_nodes_do(const rui_cluster *c, bool stop, ru_arena *arena,
                                           ru_err *err);

#endif
