/* Markets of a cluster: their keys in CLUSTER.yaml, their prices.
 *
 * Thread: main. */
#ifndef RU_TOOL_CLUSTER_MARKETS_H
#define RU_TOOL_CLUSTER_MARKETS_H

#include "cluster/scheduler.h"
#include "cluster/slurm.h"
#include "cluster/spot.h"
#include "tool/cluster/cluster.h"

extern const ru_conf_table rui_cluster_market_table, rui_cluster_trade_table;

/* Names and numbers that do not fit. Errors: RU_E_CONFIG. */
RU_MUST_USE ru_status rui_cluster_markets_check(const rui_cluster *c, ru_err *err);
/* Paths of prices as seen from `dir`. */
RU_MUST_USE ru_status rui_cluster_markets_place(rui_cluster *c, const char *dir, ru_arena *arena,
                                                ru_err *err);
/* The node of a market with this name. false: there is none. */
bool rui_cluster_market_node(const rui_cluster *c, const char *name, rui_cluster_node *out);
/* Are some of their nodes on other machines? */
bool rui_cluster_markets_far(const rui_cluster *c);
/* How their nodes come and go. Owner: [markets.n] in `arena`; folder and exe must live. */
RU_MUST_USE ru_status rui_cluster_providers(const rui_cluster *c, const char *folder,
                                            const char *exe, ru_arena *arena,
                                            const ru_market_provider **out, ru_err *err);
/* What the scheduler needs, and the files of its prices. Owner: `arena`; c must live. Errors:
 * RU_E_MISSING, RU_E_DATA. */
typedef struct rui_cluster_prices rui_cluster_prices;
RU_MUST_USE ru_status rui_cluster_spot(const rui_cluster *c, ru_arena *arena, ru_spot_options *out,
                                       rui_cluster_prices **prices, ru_err *err);
/* A file that has changed since, and not since the last call, is read again; while it has no prices
 * for the markets' clock those before stay, and the log says so once. */
void rui_cluster_prices_refresh(void *prices, int64_t now_ns);
void rui_cluster_prices_close(rui_cluster_prices *f); /* NULL is fine */

#endif
