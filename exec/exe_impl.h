/* Inside of exec/: what an executable holds.
 *
 * Thread: that of the executable. */
#ifndef RU_EXEC_EXE_IMPL_H
#define RU_EXEC_EXE_IMPL_H

#include "exec/dev.h"

typedef struct exe_state {
    ru_value_id id, inner; /* inner absent: no step reads it */
    void *orphan;          /* row-major contents of a state no step reads */
    uint32_t need_step;    /* first run step that touches it, UINT32_MAX: none */
} exe_state;

struct ru_exe {
    const rui_dev_ops *ops;
    rui_dev *dev;
    ru_arena arena;
    const ru_graph *outer; /* the caller's */
    ru_graph g;            /* after the passes */
    ru_exe_options opt;
    ru_pool *pool;
    exe_state *states; /* [n_states] in value order of the outer graph */
    uint32_t n_states;
    ru_exe_grad *grads; /* [n_grads] in the order they are made */
    uint32_t *reads;    /* [n_grads] indices into them in the order they are read */
    uint32_t n_grads;
    uint64_t grads_hash;
    ru_exe_hooks hooks;
    bool has_hooks;
    ru_exe_judge judge; /* NULL: nobody */
    void *judge_self;
    const float *judged; /* what is there after run step judge_step */
    uint32_t judge_step;
    bool invalid;   /* the last run may have turned NaN into a number */
    ru_exe *keeper; /* the same graph on kernels that keep NaN; NULL: not needed so far */
    int64_t flops, open_ns;
    int64_t profiled;     /* runs measured */
    ru_phase next;        /* the phase that may follow */
    rui_step_time *times; /* [n_steps] */
    ru_recorder *recorder;
    uint16_t *trace_names; /* [n_steps] */
};

/* ru_exe_open on a device of any table. */
RU_MUST_USE ru_status rui_exe_open_on(const rui_dev_ops *ops, const ru_graph *g,
                                      const ru_exe_options *opt, ru_exe **out, ru_err *err);

/* exe_nan.c: the judge's question after its step. */
ru_status rui_exe_ask(ru_exe *e, ru_err *err);
/* The run once more, where NaN stays; its outputs become this executable's. */
ru_status rui_exe_repeat(ru_exe *e, const ru_run_args *args, ru_err *err);

#endif
