/* Running a graph on the reference kernels, for tests of graphs and passes.
 *
 * Thread: one. */
#ifndef RU_TEST_EVAL_H
#define RU_TEST_EVAL_H

#include "exec/exe.h"
#include "world/graph/graph.h"

typedef struct rui_graph_eval {
    const ru_graph *g;
    void **data; /* [n_values] row-major; inputs and state are the caller's to fill */
    ru_run_args args;
} rui_graph_eval;

/* Buffers for every value of a concrete graph; constants and state start from their data. */
void rui_graph_eval_init(rui_graph_eval *e, const ru_graph *g, ru_arena *arena);
/* Run all nodes. Fails the test when a kernel does. */
void rui_graph_eval_run(rui_graph_eval *e);
/* Element i of a float value. */
double rui_graph_eval_get(const rui_graph_eval *e, ru_value_id v, int64_t i);
void rui_graph_eval_set(rui_graph_eval *e, ru_value_id v, int64_t i, double x);
/* Fill floats with uniform numbers in [lo, hi), integers with lo .. hi-1; the same for one seed. */
void rui_graph_eval_fill(rui_graph_eval *e, ru_value_id v, double lo, double hi, uint64_t seed);

#endif
