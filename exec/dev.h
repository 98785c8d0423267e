/* Inside of exec/: a device as an executable sees it.
 *
 *     ru_exe (exe.c)      passes, phases, ports, judge, times, state by name
 *       | rui_dev_ops
 *     rui_dev             one graph on one device: its list of steps, memory, copies of values
 *
 * A device turns the nodes of a graph, in their order, into steps 0 .. n_steps - 1; it may merge
 * nodes and add steps of its own (copies between layouts). exe.c knows nothing else of it: a new
 * device is a table of functions and a row in dev.c.
 *
 * Thread: that of the executable. */
#ifndef RU_EXEC_DEV_H
#define RU_EXEC_DEV_H

#include "exec/exe.h"
#include "exec/pool.h"
#include "exec/together.h"

typedef struct rui_dev_ops rui_dev_ops;

/* What every device says of a graph after `open`; the first member of its own struct. */
typedef struct rui_dev {
    const rui_dev_ops *ops;
    uint32_t n_steps;
    uint32_t backward_from;   /* first step after the values of ru_exe_options.forward */
    uint32_t update_from;     /* first step after all gradients are made */
    bool alone;               /* steps from there on need only gradients, inputs, state */
    uint32_t not_alone;       /* else: one that needs more */
    bool drops_nan;           /* a step may turn NaN into a number */
    uint32_t n_slow;          /* nodes on the scalar reference kernels although there are others */
    const char *slow;         /* those nodes, by op */
    uint64_t id;              /* hash of the list: ops, kernels, shapes */
    const ru_exe_plan *plans; /* [n_plans] */
    uint32_t n_plans;
} rui_dev;

/* What memory the values of steps have. */
typedef struct rui_dev_how {
    bool guard;       /* no buffer sharing, zones behind buffers for `guards` */
    bool together;    /* it comes later, from `together` */
    uint32_t n_brief; /* together: so many ports, the first ones, stand until hands are read */
} rui_dev_how;

typedef struct rui_dev_in {
    const ru_graph *graph; /* after the passes; lives as long as the device's part */
    const ru_exe_options *opt;
    ru_pool *pool;
    ru_arena *arena; /* lives as long as the device's part */
    /* Of the same table, and open for longer: states of the same name and type are its memory.
     * NULL: none. */
    struct rui_dev *share;
    rui_dev_how how;
    bool twin; /* `share` has the same graph and options: what it packed serves this one too */
} rui_dev_in;

/* Where a value stands, and when. */
typedef struct rui_dev_value {
    void *data; /* in the device's order of elements */
    int64_t size_bytes;
    uint64_t order; /* hash of dtype, size and order of its elements */
    uint32_t made;  /* last step that writes it; UINT32_MAX: none */
    uint32_t begun; /* of a gradient: first step that writes its memory; else UINT32_MAX */
    uint32_t read;  /* first step after that (from the start: inputs, state) that reads it, directly
                       or through a copy made before the run; UINT32_MAX: none */
    bool shared;    /* the memory is that of rui_dev_in.share */
} rui_dev_value;

/* Measured time of one step. Steps count by themselves: a run that ended early has some of them. */
typedef struct rui_step_time {
    int64_t n, ns_sum, ns_min, ns_max;
    double ns_squares;
} rui_step_time;

/* A step of an open update was at work. */
typedef struct rui_dev_made {
    void (*fn)(void *self, uint32_t step, int64_t begun_ns, int64_t ended_ns); /* NULL: nobody */
    void *self;
} rui_dev_made;

/* Updates in parts (exec/update.h). A gradient is a number below that of all gradients. */
typedef struct rui_dev_early_ops {
    int64_t (*bytes)(const rui_dev *d); /* 0: this graph has none */
    ru_status (*open)(rui_dev *d, ru_err *err);
    void (*begin)(rui_dev *d, const ru_run_args *args, const rui_dev_made *made);
    /* Elements [begin, end) are summed. */
    void (*update)(rui_dev *d, uint32_t grad, int64_t begin, int64_t end);
    ru_status (*finish)(rui_dev *d); /* all are */
    void (*undo)(rui_dev *d);
    /* The gradient that `v` waits for: that of a state's update, or itself; UINT32_MAX: none. */
    uint32_t (*needs)(const rui_dev *d, ru_value_id v);
    bool (*is_made)(const rui_dev *d, uint32_t grad); /* all that needs it, in the open update */
    /* A step that needs several gradients, so that `bytes` is 0; UINT32_MAX: none does. */
    uint32_t (*needs_more)(const rui_dev *d);
    /* ru_exe_grad_squares of gradient `v`. */
    double (*squares)(const rui_dev *d, ru_value_id v, int64_t step, const float *x, const float *y,
                      int64_t first, int64_t n);
} rui_dev_early_ops;

/* Who needs a piece of memory that holds constants. */
typedef enum rui_dev_use {
    RUI_USE_NONE, /* no step mentions it */
    RUI_USE_PACK, /* only steps that have packed it, which do not run again */
    RUI_USE_RUN,
} rui_dev_use;

/* No function blocks except for its work; none but open, early->open and the reports allocates. */
struct rui_dev_ops {
    const char *name;     /* as in facts: "cpu" */
    bool as_given;        /* graphs come without the passes that fuse operators */
    uint32_t threads_max; /* 0: as asked for */
    /* Are sums of products of any u8 and i8 exact, not cut to 16 bits on the way? Not asked of
     * devices that take graphs as given. */
    bool (*exact_bytes)(void);
    /* Make the list of steps, plan and get memory, prepare constants. On failure nothing is left.
     * Errors: RU_E_UNSUPPORTED naming a node, RU_E_MEM. */
    ru_status (*open)(const rui_dev_in *in, rui_dev **out, ru_err *err);
    void (*close)(rui_dev *d);
    /* Bring up to date what steps need of written state (packed copies). Cheap when nothing is. */
    ru_status (*prepare)(rui_dev *d, ru_err *err);
    /* Run steps [begin, end). On failure *at is the step. */
    ru_status (*run)(rui_dev *d, uint32_t begin, uint32_t end, const ru_run_args *args,
                     uint32_t *at, ru_err *err);
    /* false: nothing computes or reads `v`. */
    bool (*value)(const rui_dev *d, ru_value_id v, rui_dev_value *out);
    /* Steps read input `v` at `data`, row-major, from now on; NULL: at its own memory again. false:
     * they cannot, nothing changed. NULL: they never can. */
    bool (*place)(rui_dev *d, ru_value_id v, const void *data);
    /* The same of output `k`, which steps write at `data`. */
    bool (*place_output)(rui_dev *d, uint32_t k, void *data);
    /* Row-major memory of output `k` of the graph after a run. */
    void *(*output)(const rui_dev *d, uint32_t k);
    /* Copy bytes of a value from or to row-major memory, in the dtype of the graph. */
    ru_status (*read)(rui_dev *d, ru_value_id v, int64_t offset_bytes, int64_t size_bytes,
                      void *into, ru_err *err);
    ru_status (*write)(rui_dev *d, ru_value_id v, int64_t offset_bytes, int64_t size_bytes,
                       const void *from, ru_err *err);
    /* Reports. `times` [n_steps]. */
    const char *(*label)(const rui_dev *d, uint32_t step);  /* of its operator */
    const char *(*kernel)(const rui_dev *d, uint32_t step); /* what runs it */
    const char *(*node)(const rui_dev *d, uint32_t step);   /* its name in the graph, or "" */
    void (*stats)(const rui_dev *d, ru_exe_stats *into);    /* what exe.c does not know itself */
    const char *(*print)(const rui_dev *d, const rui_step_time *times, ru_arena *arena);
    ru_status (*facts)(const rui_dev *d, const rui_step_time *times, ru_arena *arena,
                       ru_op_fact **ops, ru_err *err); /* [n_steps] */
    void (*rest)(rui_dev *d);                          /* ru_exe_rest; NULL: it keeps all */
    /* ru_exe_together_open: *memory is mapped. Hands name values of the graphs of these devices.
     * NULL: not of this device. */
    ru_status (*together)(rui_dev *const *at, uint32_t n, const ru_exe_order *order, void **memory,
                          int64_t *size_bytes, ru_err *err);
    /* Of a graph without states. NULL: every run may read all constants. */
    rui_dev_use (*uses)(const rui_dev *d, const void *data, int64_t size_bytes);
    ru_status (*guards)(const rui_dev *d, ru_err *err); /* NULL: none are set */
    const rui_dev_early_ops *early;                     /* NULL: none */
};

/* dev.c: the table of a kind. */
const rui_dev_ops *rui_dev_of(ru_device_kind kind);
/* dev.c: is `v` a gradient that is handed out? One that is added to another one (micro-batches) or
 * copied (Identity) is not; the result is. */
bool rui_grad_leaves(const ru_graph *g, ru_value_id v);

/* low/dev_cpu.c */
extern const rui_dev_ops rui_dev_cpu; /* oneDNN and Rubato's vector kernels */
extern const rui_dev_ops rui_dev_ref; /* the reference kernels, on the same list of steps */

#endif
