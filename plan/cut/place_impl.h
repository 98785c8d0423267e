/* What the files of plan/cut/place share: graphs with their durations, schedules, searches.
 * Thread: any, pure. */
#ifndef RU_PLAN_PLACE_IMPL_H
#define RU_PLAN_PLACE_IMPL_H

#include "base/rng.h"
#include "plan/cut/place.h"

#define RUI_PLACE_NONE UINT32_MAX

/* A graph on devices, fine or coarse. */
typedef struct rui_place {
    const ru_place_in *in;
    uint32_t n, m, n_devs, n_units, n_kinds;
    int64_t *took;               /* [n, n_devs] */
    int64_t *send;               /* [n_kinds, m] */
    int64_t *host;               /* [m, n_devs] of a device at an end; NULL: nothing */
    uint32_t *value;             /* [m] 0: its own; NULL: all are */
    uint32_t n_values;           /* the largest, and one */
    uint32_t *kind;              /* [n_devs, n_devs] of the link */
    uint32_t *from, *to;         /* [m] */
    uint32_t *unit;              /* [n] ops of a unit share a device */
    int64_t *unit_bytes;         /* [n_units] */
    uint32_t *unit_pin;          /* [n_units] RUI_PLACE_NONE: any device */
    const int64_t *memory;       /* [n_devs] INT64_MAX: no bound */
    uint32_t *in_at, *in_edge;   /* [n + 1], [m] */
    uint32_t *out_at, *out_edge; /* [n + 1], [m] */
    uint32_t *unit_at, *unit_op; /* [n_units + 1], [n] */
    uint32_t *topo;              /* [n] */
    int64_t *head, *tail;        /* [n] longest path before an op, and behind it, no transfers */
} rui_place;

/* A whole answer. */
typedef struct rui_place_sched {
    uint32_t *device; /* [n] */
    int64_t *start;   /* [n] */
    int64_t *send;    /* [m] -1: no transfer */
    int64_t step_ns;  /* INT64_MAX: none yet */
} rui_place_sched;

/* Room in which orders become schedules. */
typedef struct rui_place_room {
    int64_t *start, *finish;     /* [n] */
    uint32_t *cause;             /* [n] the op whose end it waited for; RUI_PLACE_NONE */
    int64_t *send_at, *send_end; /* [m] */
    uint32_t *send_before;       /* [m] the transfer before it on its link */
    uint32_t *send_after;        /* [m] and behind it; RUI_PLACE_NONE */
    uint32_t *run_first;         /* [m] of the last of transfers without a gap: the first of them */
    uint32_t *run_last;          /* [m] of the first of them: the last */
    int64_t *dev_free;           /* [n_devs] */
    uint32_t *dev_last;          /* [n_devs] */
    uint32_t *op_before;         /* [n] the op before it on its device */
    uint32_t *link_last;         /* [n_devs, n_devs] */
    uint32_t *carried;           /* [n_values, n_devs] the edge that brought it; RUI_PLACE_NONE */
    uint32_t *crossing;          /* [most inputs of an op] transfers of the op put last */
    uint32_t *merged;            /* [the same] room to sort them */
    uint32_t n_crossing;
    int64_t work;
} rui_place_room;

/* -- place_graph.c -------------------------------------------------------------------------------
 */

/* Errors: RU_E_ARG, RU_E_INFEASIBLE for pins that contradict, RU_E_LIMIT. */
ru_status rui_place_make(const ru_place_in *in, ru_arena *a, rui_place *g, ru_err *err);
/* CSR arrays, topological order, heads and tails of a graph whose other arrays stand.
 * false: `a` is full, or *circle is an op on a circle (RUI_PLACE_NONE otherwise). */
bool rui_place_index(rui_place *g, ru_arena *a, uint32_t *circle);
/* Order by falling key, equal keys as they stood. */
void rui_place_sort(const double *key, uint32_t n, uint32_t *order, uint32_t *room);
/* Duration of op i on the fastest device that may run it. */
int64_t rui_place_least(const rui_place *g, uint32_t i);
/* Is e the first edge of its value with a reader on `dev`? */
bool rui_place_first(const rui_place *g, const uint32_t *unit_dev, uint32_t e, uint32_t dev);
/* Duration of op i on `dev` with what transfers from and to placed ops cost it there. */
int64_t rui_place_runs(const rui_place *g, const uint32_t *unit_dev, uint32_t i, uint32_t dev);
bool rui_place_sched_new(const rui_place *g, ru_arena *a, rui_place_sched *s);
void rui_place_sched_copy(const rui_place *g, rui_place_sched *to, const rui_place_sched *from);

/* Duration of the transfer of edge e between two devices. */
static inline int64_t rui_place_send(const rui_place *g, uint32_t e, uint32_t from, uint32_t to)
{
    return g->send[(size_t)g->kind[from * g->n_devs + to] * g->m + e];
}

static inline int64_t rui_place_took(const rui_place *g, uint32_t i, uint32_t dev)
{
    return g->took[(size_t)i * g->n_devs + dev];
}

/* -- place_play.c ------------------------------------------------------------------------------ */

bool rui_place_room_new(const rui_place *g, ru_arena *a, rui_place_room *r);
/* Ops one after another as `seq` (a topological order) says, each as early as its device, which
 * takes them in this order, and its links, where a transfer takes the first gap, allow.
 * Answer: the end; INT64_MAX once it must be later than `limit`. */
int64_t rui_place_decode(const rui_place *g, const uint32_t *unit_dev, const uint32_t *seq,
                         int64_t limit, rui_place_room *r);
void rui_place_take(const rui_place *g, const uint32_t *unit_dev, const rui_place_room *r,
                    int64_t step, rui_place_sched *s);
/* Devices take ops in the order of `seq`, links transfers in the order in which they get ready: how
 * plans of others run. */
bool rui_place_play(const rui_place *g, const uint32_t *unit_dev, const uint32_t *seq, ru_arena *a,
                    rui_place_sched *s);
/* Empty devices and links; op i on `dev` behind all that it runs, its inputs over the links. */
void rui_place_clear(const rui_place *g, rui_place_room *r);
void rui_place_put(const rui_place *g, const uint32_t *unit_dev, uint32_t i, uint32_t dev,
                   rui_place_room *r);
/* Take back the op that was put last. */
void rui_place_unput(const rui_place *g, const uint32_t *unit_dev, uint32_t i, uint32_t dev,
                     rui_place_room *r);

/* -- place_list.c ------------------------------------------------------------------------------ */

/* Baselines: device of each unit, and the order. Answer: RU_E_INFEASIBLE when memory does not allow
 * it, RU_E_LIMIT. */
typedef struct rui_place_list {
    uint32_t *unit_dev; /* [n_units] */
    uint32_t *seq;      /* [n] */
} rui_place_list;

ru_status rui_place_single(const rui_place *g, rui_place_list *l);
ru_status rui_place_topo(const rui_place *g, ru_arena *a, rui_place_list *l);
/* Which of equal starts m-ETF takes: the op that got ready first or the one with the longest path
 * behind it; the lower device or the one with more room. The paper leaves it open. */
enum { RUI_PLACE_LONGEST = 1, RUI_PLACE_ROOMIEST = 2, RUI_PLACE_TIES = 4 };
/* `child` [n]: the favourite child of each op, RUI_PLACE_NONE: none; NULL: m-ETF. */
ru_status rui_place_etf(const rui_place *g, const uint32_t *child, uint32_t ties, ru_arena *a,
                        rui_place_list *l);
ru_status rui_place_heft(const rui_place *g, ru_arena *a, rui_place_list *l);
ru_status rui_place_given(const rui_place *g, rui_place_list *l);
/* Units into memory, whatever the time: largest first. */
ru_status rui_place_pack(const rui_place *g, ru_arena *a, rui_place_list *l);

/* -- place_load.c ------------------------------------------------------------------------------ */

ru_status rui_place_split(const rui_place *g, ru_arena *a, rui_place_list *l);
ru_status rui_place_load(const rui_place *g, ru_arena *a, rui_place_list *l);

/* -- place_sct.c ------------------------------------------------------------------------------- */

ru_status rui_place_children(const rui_place *g, const ru_solver *solver, ru_arena *a,
                             uint32_t *child, ru_err *err);

/* -- place_anneal.c ---------------------------------------------------------------------------- */

/* Better than `best`, from each of the starts in turn; `best` stays unless there is one. */
typedef struct rui_place_walk {
    const rui_place_list *from; /* [n_from] best first */
    uint32_t n_from;
    int64_t bound_ns; /* nothing is shorter: stop there */
    int64_t work_max, work;
    double heat; /* first temperature as a part of the step */
} rui_place_walk;

bool rui_place_anneal(const rui_place *g, rui_place_walk *w, ru_arena *a, rui_place_list *best,
                      rui_place_sched *s);

/* -- place_coarse.c ---------------------------------------------------------------------------- */

/* A graph of at most about `most` ops, each some of g's one after another; of[n] says which. */
bool rui_place_coarsen(const rui_place *g, uint32_t most, ru_arena *a, rui_place *coarse,
                       uint32_t *of);
/* An answer for one graph as one for the other; the coarse one may not fit into memory. */
bool rui_place_to_coarse(const rui_place *g, const rui_place *c, const uint32_t *of,
                         const rui_place_list *fine, ru_arena *a, rui_place_list *to);
bool rui_place_to_fine(const rui_place *g, const rui_place *c, const uint32_t *of,
                       const rui_place_list *coarse, ru_arena *a, rui_place_list *to);

/* -- place_bound.c ----------------------------------------------------------------------------- */

bool rui_place_bound(const rui_place *g, ru_arena *a, int64_t *bound_ns, ru_place_proof *proof);

/* -- place_program.c --------------------------------------------------------------------------- */

/* Tries to better `s` and *bound_ns. */
ru_status rui_place_solve(const rui_place *g, const ru_solver *solver, ru_arena *a,
                          rui_place_sched *s, int64_t *bound_ns, ru_place_program *end,
                          ru_err *err);

#endif
