/* Inside the planner of moves: a map with its loads, changed one object at a time.
 *
 * A pair costs its bytes on two links when its objects lie on two workers, and nothing while one of
 * them lies nowhere: so loads only grow while a map is filled, which branch and bound needs.
 *
 * Thread: any, pure. */
#ifndef RU_PLAN_MOVES_IMPL_H
#define RU_PLAN_MOVES_IMPL_H

#include "plan/crew/moves.h"

/* Largest of [n] numbers, kept while single ones change. */
typedef struct rui_moves_most {
    int64_t *at; /* [2 width] at[1] is the largest, the numbers begin at at[width] */
    uint32_t width;
} rui_moves_most;

typedef struct rui_moves_map {
    const ru_moves_in *in;
    uint32_t n;    /* objects */
    uint32_t *to;  /* [n] RU_MOVES_NONE: nowhere yet */
    int64_t *base; /* [n] bytes of an iteration that need the link wherever the object lies */
    /* Pairs of object j: others and bytes from near_at[j] to near_at[j + 1] - 1. */
    uint32_t *near_at, *near;
    int64_t *near_bytes;
    int64_t *cpu_ns, *net_bytes, *memory_bytes, *moved_bytes; /* [workers] */
    uint32_t *touched;                                        /* [workers] objects in and out */
    rui_moves_most load, moving;                              /* ns of workers */
    int64_t over_bytes;                                       /* above all memories */
} rui_moves_map;

RU_MUST_USE ru_status rui_moves_map_init(rui_moves_map *m, const ru_moves_in *in, ru_arena *scratch,
                                         ru_err *err);
/* Put object j on w (may be RU_MOVES_NONE). Cost: O(pairs of j + log workers). */
void rui_moves_put(rui_moves_map *m, uint32_t j, uint32_t w);
void rui_moves_put_all(rui_moves_map *m, const uint32_t *to);
double rui_moves_cost(const rui_moves_map *m);
static inline int64_t rui_moves_load(const rui_moves_map *m, uint32_t w)
{
    return m->load.at[m->load.width + w];
}
/* An order of objects, the one with the largest load on a mean worker first. */
uint32_t *rui_moves_by_size(const rui_moves_map *m, ru_arena *scratch);

/* Load of object j alone on w, its pairs left out. */
double rui_moves_alone_ns(const rui_moves_map *m, uint32_t j, uint32_t w);
/* Weights y of workers, sum 1, and what every object adds at least to sum y_w load_w: together a
 * lower bound of the largest load. */
typedef struct rui_moves_dual {
    double *y;        /* [workers] */
    double *least;    /* [objects] ns */
    int64_t bound_ns; /* without barrier */
} rui_moves_dual;
RU_MUST_USE ru_status rui_moves_bound(const rui_moves_map *m, ru_arena *scratch,
                                      rui_moves_dual *dual, ru_err *err);

/* Where each method starts from: m->to filled. */
RU_MUST_USE ru_status rui_moves_keep(rui_moves_map *m, ru_arena *scratch, ru_err *err);
RU_MUST_USE ru_status rui_moves_count(rui_moves_map *m, ru_arena *scratch, ru_err *err);
/* `misfit` times what an object adds to the weighted loads above its least counts as load as well:
 * 0 is plain LPT, more sends objects to workers that suit them. */
RU_MUST_USE ru_status rui_moves_lpt(rui_moves_map *m, const rui_moves_dual *dual, double misfit,
                                    ru_arena *scratch, ru_err *err);

/* Improve the map; `greedy`: single moves from the most to the least loaded worker only. */
RU_MUST_USE ru_status rui_moves_improve(rui_moves_map *m, bool greedy, ru_arena *scratch,
                                        ru_err *err);
/* Least cost by branch and bound, from the map as it is; true: proven. */
enum { RUI_MOVES_EXACT_MAX = 24 };
RU_MUST_USE ru_status rui_moves_exact(rui_moves_map *m, const rui_moves_dual *dual,
                                      ru_arena *scratch, bool *proven, ru_err *err);

#endif
