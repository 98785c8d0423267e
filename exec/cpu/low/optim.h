/* Optimizer steps and the parts of them that run early, before all gradients are summed.
 *
 *   sums of some elements are there:  rui_optim_sums   saves, then updates complete blocks
 *   the step counts:                  rui_optim_reset  forgets what was saved
 *   the step is given up:             rui_optim_undo   puts it back
 *
 * An element is updated once, by the same kernel whenever it is its turn: early or late, the bits
 * are the same. Inside exec/cpu only. Thread: the run's. */
#ifndef RU_EXEC_CPU_LOW_OPTIM_H
#define RU_EXEC_CPU_LOW_OPTIM_H

#include "exec/cpu/low/low.h"
#include "exec/cpu/lower/lower_kern.h"

enum {
    RUI_OPTIM_BLOCK = 16384, /* elements that are updated early together */
    RUI_OPTIM_HEAD = 3,
    RUI_OPTIM_PER = 7,  /* bufs: lr gscale step, then per segment
                           p g s1 s2 p' s1' s2' */
    RUI_OPTIM_KEPT = 3, /* p s1 s2 */
};

typedef struct rui_optim_early {
    float *was[RUI_OPTIM_KEPT]; /* [starts[n]] elements before their early update; NULL: no such */
    uint8_t *done;              /* [blocks[n]] */
    uint16_t *have;             /* [blocks[n]] elements that are summed, while the update is open */
    int64_t *blocks;            /* [n + 1] first block of each segment */
    bool may; /* no other step of the update sees what this one changes, or makes its scalars */
    bool open;
    bool counts; /* what is made from here on is not taken back */
} rui_optim_early;

typedef struct rui_optim {
    const ru_kern *k;
    ru_op op;
    double momentum, alpha, beta1, beta2, epsilon, weight_decay;
    bool nesterov, decoupled, has_slot;
    ru_kern_segment *segs; /* [n] */
    int64_t *starts;       /* [n + 1] in the concatenation of all segments */
    uint32_t n;
    union {
        ru_kern_sgd sgd;
        ru_kern_adam adam;
        ru_kern_rmsprop rmsprop;
        ru_kern_lion lion;
        struct {
            float lr, gscale;
        } adagrad;
    } now; /* scalars of this run */
    rui_optim_early early;
} rui_optim;

/* lower_kern_optim.c */
ru_status rui_optim_run(void *state, void *const *bufs, const rui_run *run);
void rui_optim_scalars(rui_optim *s, void *const *bufs);
/* Elements [a, b) of segment i. */
void rui_optim_part(const rui_optim *s, uint32_t i, int64_t a, int64_t b);

/* optim_early.c */
/* The step at `i` of the run; NULL: it is no optimizer's. */
rui_optim *rui_optim_at(const rui_low *lo, uint32_t i);
/* Does each tensor keep its place? */
bool rui_optim_in_place(const rui_optim *s);
/* Memory for taking back all of the step. */
int64_t rui_optim_early_bytes(const rui_optim *s);
RU_MUST_USE ru_status rui_optim_early_open(rui_optim *s); /* RU_E_MEM */
void rui_optim_early_close(rui_optim *s);
/* Elements [begin, end) of the gradient of a segment hold their sums, each is told once: update the
 * blocks whose last elements these are. */
void rui_optim_sums(rui_optim *s, void *const *bufs, const rui_run *run, uint32_t seg,
                    int64_t begin, int64_t end);
/* All of the segment that is not updated yet. */
void rui_optim_rest(rui_optim *s, void *const *bufs, const rui_run *run, uint32_t seg);
void rui_optim_undo(rui_optim *s);
/* ru_exe_grad_squares. */
double rui_optim_squares(const rui_low *lo, ru_value_id grad, int64_t step, const float *x,
                         const float *y, int64_t first, int64_t n);
void rui_optim_reset(rui_optim *s);

#endif
