/* The update of a run in parts, each made when the gradient that it needs is summed
 * (exec/update.h).
 *
 *   gradient g --> segments of optimizer steps (block by block), whole steps: in the list's order
 *   none       --> whole steps that need no gradient: when the update opens
 *
 * A step that needs two gradients or more can be made only at the end: such an update does not
 * open. While it is open, a run may write the arena again: what the update reads and makes then has
 * memory of its own (option overlap), scalar inputs as well.
 *
 * Inside exec/cpu/low only. Thread: the run's. */
#ifndef RU_EXEC_LOW_UPDATE_H
#define RU_EXEC_LOW_UPDATE_H

#include "exec/cpu/low/low.h"

#define RUI_PART_WHOLE UINT32_MAX

typedef struct rui_part {
    uint32_t step, seg; /* RUI_PART_WHOLE: not an optimizer's, or all of it */
} rui_part;

/* An input that the update reads, and the copy that it reads instead. */
typedef struct rui_late {
    uint32_t input, copy; /* roots */
} rui_late;

/* A state that whole steps write. */
typedef struct rui_was {
    uint32_t root;
    bool saved;
    uint8_t *at; /* [size_bytes of the root] as it was */
} rui_was;

typedef struct rui_update {
    uint32_t *grad_of;         /* [n_bufs] gradient in a root; UINT32_MAX: none */
    int64_t alone_bound_bytes; /* of the arena without option overlap; 0: it has none */
    rui_late *late;            /* [n_late] */
    uint32_t n_late;
    rui_part *parts;  /* [first[n_grads + 1]] by gradient, then those of none */
    uint32_t *first;  /* [n_grads + 2] */
    uint32_t *owner;  /* [n_values] gradient that a state's update needs, or that the value is;
                         UINT32_MAX: none */
    uint32_t *was_of; /* [n_bufs] in `was`; UINT32_MAX: not there */
    rui_was *was;     /* [n_was] */
    uint32_t n_was;
    uint32_t needs_more; /* step that needs several gradients; UINT32_MAX: none does */
    bool ready;          /* there is memory for taking back */
    bool open;
    bool some_early; /* of the open update: sums of a gradient were told */
    bool counts;     /* it is kept: nothing more is saved */
    int64_t *left;   /* [n_grads] elements not summed yet in the open update */
    ru_run_args args;
    ru_status failed; /* of a step of the open update */
    rui_dev_made made;
} rui_update;

/* After the places of results are shared, before memory is planned: copies of inputs. */
RU_MUST_USE ru_status rui_update_plan(rui_low *lo, ru_err *err);
/* How long root `i` keeps its memory. */
void rui_update_lives(const rui_low *lo, uint32_t i, bool overlap, uint32_t *first, uint32_t *last);
/* Addresses are known: the parts of the update. */
RU_MUST_USE ru_status rui_update_bound(rui_low *lo, ru_err *err);
/* The update reads its inputs as they are now. */
void rui_update_inputs(const rui_low *lo);

/* Those of rui_dev_early_ops. */
int64_t rui_update_bytes(const rui_low *lo);
RU_MUST_USE ru_status rui_update_memory(rui_low *lo, ru_err *err);
void rui_update_close(rui_low *lo);
void rui_update_begin(rui_low *lo, const rui_run *run, const rui_dev_made *made);
void rui_update_sums(rui_low *lo, const rui_run *run, uint32_t grad, int64_t begin, int64_t end);
RU_MUST_USE ru_status rui_update_finish(rui_low *lo, const rui_run *run);
void rui_update_undo(rui_low *lo);

#endif
