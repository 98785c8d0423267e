/* Inside of exec/: what an executable holds.
 *
 * Thread: that of the executable. */
#ifndef RU_EXEC_EXE_IMPL_H
#define RU_EXEC_EXE_IMPL_H

#include "exec/dev.h"

typedef struct exe_state {
    ru_value_id id, inner; /* inner absent: no step reads it */
    void *orphan;          /* row-major contents of a state no step reads */
    ru_value_id shared;    /* no step reads it, but e->base has it under this id; absent: not so */
    rui_dev_value at;      /* of `inner` */
} exe_state;

typedef struct exe_port {
    ru_exe_at at;
    ru_exe_port_fn fn;
    void *self;
} exe_port;

/* Ports in the order of their steps. */
typedef struct exe_ports {
    exe_port *at; /* [n] on the heap */
    uint32_t n;
} exe_ports;

/* A run that goes on beside an open update does not pass `step` before what it needs is made. */
typedef struct exe_guard {
    uint32_t step;
    ru_value_id value;
} exe_guard;

/* Updates in parts (exe_update.c). */
typedef struct exe_update {
    uint32_t *needs;   /* [outer->n_values] gradient of the device; UINT32_MAX: none */
    exe_guard *guards; /* [n_guards] in the order of their steps */
    uint32_t n_guards;
    int64_t *ns; /* [n_steps] time of the open update's steps, when it is measured */
    bool ready, open;
} exe_update;

struct ru_exe {
    const rui_dev_ops *ops;
    rui_dev *dev;
    ru_arena arena;
    ru_exe *base;  /* whose state this one shares; NULL: all is its own */
    uint32_t refs; /* open executables that share this one's state, but its keeper */
    bool closed;   /* by its owner; stays for those */
    rui_dev_how how;
    const ru_graph *outer; /* the caller's */
    ru_graph g;            /* after the passes */
    ru_exe_options opt;
    ru_pool *pool;
    exe_state *states; /* [n_states] in value order of the outer graph */
    uint32_t n_states;
    ru_exe_grad *grads; /* [n_grads] in the order they are made */
    uint32_t n_grads;
    uint64_t grads_hash;
    exe_ports leaves, awaits;
    ru_status (*poll)(void *self, uint32_t step); /* NULL: nobody */
    void *poll_self;
    ru_exe_judge judge; /* NULL: nobody */
    void *judge_self;
    const float *judged; /* what is there after run step judge_step */
    uint32_t judge_step;
    bool invalid;       /* the last run may have turned NaN into a number */
    ru_exe *keeper;     /* the same graph on kernels that keep NaN; NULL: not needed so far */
    ru_run_input *kept; /* [outer->n_inputs] where it reads its inputs */
    exe_update update;
    int64_t flops, open_ns, copied_bytes;
    ru_phase next;        /* the phase that may follow */
    rui_step_time *times; /* [n_steps] */
    ru_recorder *recorder;
    uint16_t *trace_names; /* [n_steps] */
};

/* The state of the inner graph that stands for `id` of the outer one; absent: there is none. */
ru_value_id rui_inner_state(const ru_exe *e, ru_value_id id);
/* ru_exe_open on a device of any table. */
RU_MUST_USE ru_status rui_exe_open_on(const rui_dev_ops *ops, const ru_graph *g,
                                      const ru_exe_options *opt, ru_exe **out, ru_err *err);

RU_MUST_USE ru_status rui_exe_open_how(const rui_dev_ops *ops, rui_dev_how how, const ru_graph *g,
                                       const ru_exe_options *opt, ru_exe **out, ru_err *err);

/* Without buffer sharing, with zones behind buffers; the check says whether a kernel has written
 * past one of its buffers since. Errors: RU_E_BUG naming the buffer's last kernel. */
RU_MUST_USE ru_status rui_exe_open_guarded(const ru_graph *g, const ru_exe_options *opt,
                                           ru_exe **out, ru_err *err);
RU_MUST_USE ru_status rui_exe_guards_check(const ru_exe *e, ru_err *err);

/* exe_port.c: polls and calls the ports before `step`; `next` counts through e->awaits. */
RU_MUST_USE ru_status rui_ports_before(ru_exe *e, uint32_t step, uint32_t *next, ru_err *err);
/* The ports after `step`; `next` counts through e->leaves. */
RU_MUST_USE ru_status rui_ports_after(const ru_exe *e, uint32_t step, uint32_t *next, ru_err *err);
/* Beside an open update: is all made that `step` reads or overwrites? `next` counts through the
 * guards. Errors: RU_E_ARG naming what no port awaited. */
RU_MUST_USE ru_status rui_update_guard(const ru_exe *e, uint32_t step, uint32_t *next, ru_err *err);
/* A step took so long, in all. */
void rui_step_took(rui_step_time *t, int64_t ns);
/* May a run of these steps begin? */
RU_MUST_USE ru_status rui_update_allows(const ru_exe *e, uint32_t end, ru_err *err);
/* May an update begin after what ran last? */
RU_MUST_USE ru_status rui_update_possible(const ru_exe *e, ru_err *err);
/* The first port at `step` or later. */
uint32_t rui_ports_from(const exe_ports *p, uint32_t step);

/* place.c: inputs and outputs of `args` stand where the caller has them, or inputs are copied; then
 * all are at their own memory again, and `done` outputs that stood there are copied. Errors:
 * RU_E_ARG, and nothing changed. */
RU_MUST_USE ru_status rui_places_take(ru_exe *e, const ru_run_args *args, ru_err *err);
void rui_places_back(ru_exe *e, const ru_run_args *args, bool done);

/* exe_nan.c: the judge's question after its step. */
ru_status rui_exe_ask(ru_exe *e, ru_err *err);
/* The run once more, where NaN stays; its outputs become this executable's. */
ru_status rui_exe_repeat(ru_exe *e, const ru_run_args *args, ru_err *err);

#endif
