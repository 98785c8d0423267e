/* Running a graph on the reference kernels, for tests of graphs and passes.
 *
 * Thread: one. */
#ifndef RU_TEST_EVAL_H
#define RU_TEST_EVAL_H

#include "exec/exe.h"
#include "world/graph.h"

typedef struct ru_eval {
    const ru_graph *g;
    void **data; /* [n_values] row-major; inputs and state are the caller's to fill */
    ru_run_args args;
} ru_eval;

/* Buffers for every value of a concrete graph; constants and state start from their data. */
void ru_eval_init(ru_eval *e, const ru_graph *g, ru_arena *arena);
/* Run all nodes. Fails the test when a kernel does. */
void ru_eval_run(ru_eval *e);
/* Element i of a float value. */
double ru_eval_get(const ru_eval *e, ru_value_id v, int64_t i);
void ru_eval_set(ru_eval *e, ru_value_id v, int64_t i, double x);
/* Fill floats with uniform numbers in [lo, hi), integers with lo .. hi-1; the same for one seed. */
void ru_eval_fill(ru_eval *e, ru_value_id v, double lo, double hi, uint64_t seed);

#endif
