/* What the files of plan/net/sums share. Thread: any, pure. */
#ifndef RU_PLAN_SUMS_IMPL_H
#define RU_PLAN_SUMS_IMPL_H

#include "plan/net/sums.h"

/* Part of a step: plans without a barrier that differ by less take as long, and fewer pieces win.
 */
#define RUI_SUMS_TIE 1e-4

typedef struct rui_sums_graph {
    const ru_sums_in *in;
    const uint32_t *topo; /* [n] forward order */
    uint32_t *place;      /* [n] inverse of topo */
    int64_t forward_ns;   /* of all ops */
    int64_t bytes;        /* of all gradients */
    uint32_t n_tensors;
} rui_sums_graph;

/* How gradients become buckets. */
typedef enum rui_sums_group {
    RUI_SUMS_EACH, /* one tensor each */
    RUI_SUMS_SIZE, /* until a bucket holds `size` bytes (the first one: `first`) */
    RUI_SUMS_WALK, /* as long as waiting costs less than another start, up to `size` bytes */
    RUI_SUMS_TICK, /* what is ready at ticks of `cycle_ns`, up to `size` bytes */
} rui_sums_group;

/* Backward orders: gradients are made one after another by a rule, each with what it still needs.
 */
typedef enum rui_sums_order {
    RUI_SUMS_REVERSE,  /* reverse topological */
    RUI_SUMS_JOHNSON,  /* Johnson's rule for two machines */
    RUI_SUMS_LONGEST,  /* longest sum first */
    RUI_SUMS_SHORTEST, /* least missing backward time first */
    RUI_SUMS_URGENT,   /* needed first by the next forward pass */
    RUI_SUMS_ORDERS,
} rui_sums_order;

/* One way to sum: a candidate. */
typedef struct rui_sums_way {
    rui_sums_group group;
    int64_t first, size, chunk; /* bytes; chunk 0: whole buckets */
    int64_t cycle_ns;
    uint32_t depth;
    rui_sums_order order;
    bool barrier, after, by_priority;
} rui_sums_way;

ru_status rui_sums_graph_make(const ru_sums_in *in, ru_arena *a, rui_sums_graph *g, ru_err *err);
/* Backward order [n]; false: `a` is full. */
bool rui_sums_backward(const rui_sums_graph *g, rui_sums_order rule, ru_arena *a, uint32_t *order);
/* Buckets of a way; everything but the predicted figures of `plan`. */
ru_status rui_sums_make(const rui_sums_graph *g, const rui_sums_way *way, const uint32_t *backward,
                        ru_arena *a, ru_sums_plan *plan, ru_err *err);
/* The same gradients in other buckets: begins[k] says whether one begins at tensor k (at 0 always).
 */
ru_status rui_sums_regroup(const rui_sums_graph *g, const ru_sums_plan *plan, const bool *begins,
                           int64_t chunk, ru_arena *a, ru_sums_plan *other, ru_err *err);
/* Fill the predicted figures. */
ru_status rui_sums_predict(const rui_sums_graph *g, ru_arena *scratch, ru_sums_plan *plan,
                           ru_err *err);

/* What an algorithm costs: as measured, else as all of them. */
ru_coll_cost rui_sums_cost(const ru_sums_in *in, ru_coll_algo algo);
/* t(size) of an algorithm, and how long it holds the network with `depth` in flight. */
int64_t rui_sums_ns(const ru_sums_in *in, ru_coll_algo algo, int64_t size_bytes);
int64_t rui_sums_held_ns(const ru_sums_in *in, ru_coll_algo algo, int64_t size_bytes,
                         uint32_t depth);
/* The fastest algorithm for this size, of equal ones the first. */
ru_coll_algo rui_sums_algo(const ru_sums_in *in, int64_t size_bytes);
/* Seconds per byte of the fastest algorithm for large sizes, without alpha. */
double rui_sums_per_byte_ns(const ru_sums_in *in);

#endif
