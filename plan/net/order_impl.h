/* What the files of plan/net/order share. Thread: any, pure. */
#ifndef RU_PLAN_ORDER_IMPL_H
#define RU_PLAN_ORDER_IMPL_H

#include "plan/net/order.h"

/* The graph as transfers see it. Transfers are numbered by the topological place of their op. */
typedef struct rui_order_graph {
    const ru_order_in *in;
    const uint32_t *topo; /* [n] ops, smallest indexes first */
    uint32_t *place;      /* [n] inverse of topo */
    uint32_t *level;      /* [n] ops on the longest chain before it */
    uint32_t *turn; /* [n] place of the op; of one that reads nothing and takes no time (a parameter
                       that is a node) that of its first reader */
    uint32_t *op;   /* [n_xfers] whose transfer it is */
    int64_t *xfer_ns; /* [n_xfers] on the link, whole */
    uint32_t n_xfers;
    uint32_t words;  /* of 64 transfers */
    uint64_t *needs; /* [n, words] transfers that an op waits for, directly or through others */
} rui_order_graph;

ru_status rui_order_graph_make(const ru_order_in *in, ru_arena *a, rui_order_graph *g, ru_err *err);

/* Orders of transfers into order [n_xfers] and ranks [n_xfers] by transfer; false: `a` is full. */
bool rui_order_tic(const rui_order_graph *g, ru_arena *a, uint32_t *order, uint32_t *rank);
bool rui_order_tac(const rui_order_graph *g, ru_arena *a, uint32_t *order, uint32_t *rank);

/* Fill the predicted figures of a plan whose lists stand. */
ru_status rui_order_predict(const rui_order_graph *g, ru_arena *scratch, ru_order_plan *plan,
                            ru_err *err);
/* No order can be faster. */
ru_status rui_order_bound(const rui_order_graph *g, ru_arena *scratch, int64_t *bound_ns,
                          ru_err *err);

#endif
