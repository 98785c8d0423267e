/* Inside of alloc: losses by lookup, and the state that methods fill.
 * Thread: any, pure. */
#ifndef RU_PLAN_ALLOC_IMPL_H
#define RU_PLAN_ALLOC_IMPL_H

#include "plan/fleet/alloc.h"

/* What a job gets on `replicas` devices that lie on one node or several. */
typedef struct rui_alloc_value {
    double goodput;
    int64_t loss[2]; /* when it stays, when it restarts */
} rui_alloc_value;

typedef struct rui_alloc_values {
    const ru_alloc_in *in;
    uint32_t total, most; /* devices of all nodes, of the largest */
    uint32_t spread;
    double scale;            /* of speedups in the objective: 1 for a whole node */
    uint32_t *cap;           /* [n_jobs] most replicas */
    double *fair;            /* [n_jobs] goodput of the fair share; 0: none is possible */
    uint32_t fair_k;         /* replicas of the fair share */
    double *factor;          /* [n_jobs] what a restart leaves of the speedup */
    double *weight;          /* [n_jobs] of the loss */
    rui_alloc_value **table; /* [n_jobs][2 (cap + 1)] goodput < 0: not looked up yet */
} rui_alloc_values;

RU_MUST_USE ru_status rui_alloc_values_init(rui_alloc_values *v, const ru_alloc_in *in,
                                            ru_arena *scratch, ru_err *err);
/* 0 <= replicas <= cap */
const rui_alloc_value *rui_alloc_look(rui_alloc_values *v, uint32_t job, uint32_t replicas,
                                      bool several);
int64_t rui_alloc_loss_of(const rui_alloc_values *v, double speedup, double weight);

/* Who has what. Parts of a job are in order of taking; `place` of the search keeps more beside it.
 */
typedef struct rui_alloc_state {
    uint32_t spread;
    ru_alloc_part *parts;  /* [n_jobs, spread] */
    uint32_t *n_parts, *k; /* [n_jobs] */
    uint32_t *open;        /* [n_nodes] free devices */
} rui_alloc_state;

RU_MUST_USE ru_status rui_alloc_state_init(rui_alloc_state *s, const rui_alloc_values *v,
                                           ru_arena *scratch, ru_err *err);
/* Does the job hold exactly what it runs on now? */
bool rui_alloc_same(const ru_alloc_in *in, const rui_alloc_state *s, uint32_t job);
/* Add devices of a node to a job, or take them away. */
void rui_alloc_give(rui_alloc_state *s, uint32_t job, uint32_t node, uint32_t devices);
void rui_alloc_take(rui_alloc_state *s, uint32_t job, uint32_t node, uint32_t devices);
/* Where jobs run now, as far as nodes still have the devices. */
void rui_alloc_start(const ru_alloc_in *in, rui_alloc_state *s);

RU_MUST_USE ru_status rui_alloc_pollux(rui_alloc_values *v, rui_alloc_state *s, ru_arena *scratch,
                                       ru_err *err);
RU_MUST_USE ru_status rui_alloc_rules(rui_alloc_values *v, rui_alloc_state *s, uint32_t *demoted,
                                      ru_arena *scratch, ru_err *err);
/* How many nodes autoscaling wants. */
uint32_t rui_alloc_nodes(rui_alloc_values *v);

#endif
