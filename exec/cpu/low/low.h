/* Inside of a lowering context: values, layouts, buffers and steps of one executable.
 *
 * Everything is an array in the executable's arena, referred to by index. A buffer is a root
 * (memory of its own, by kind) or a view (root + offset). Lifetimes are [first, last] step that
 * mentions a buffer or one of its views; low_plan.c turns them into addresses.
 *
 * Thread: one. */
#ifndef RU_EXEC_CPU_LOW_LOW_H
#define RU_EXEC_CPU_LOW_LOW_H

#include "base/hash.h"
#include "exec/cpu/lower/lower.h"
#include "exec/dev.h"
#include "plan/step/mem.h"

typedef enum rui_buf_kind {
    RUI_BUF_TEMP,    /* in the activation arena, shared by lifetime */
    RUI_BUF_SCRATCH, /* in the arena, one step */
    RUI_BUF_INPUT,   /* filled by the caller, never written by steps */
    RUI_BUF_OUTPUT,  /* own memory, because a state may change before the caller reads */
    RUI_BUF_STATE,   /* master copy of a state value */
    RUI_BUF_PACKED,  /* constant or frozen state in a kernel's layout, made by the prep steps */
    RUI_BUF_DATA,    /* the graph's constant data itself */
    RUI_BUF_SHARED,  /* state, or what was packed from it, of the executable that shares it */
} rui_buf_kind;

typedef struct rui_buf_rec {
    rui_buf_kind kind;
    uint32_t root;        /* itself for roots */
    int64_t offset_bytes; /* of a view, in its root */
    int64_t size_bytes;
    uint32_t over;        /* wish: share with this buffer; 0 none */
    uint32_t first, last; /* run steps, of roots; first > last: never mentioned */
    bool pinned;          /* alive to the end of the run (outputs, keep_temps) */
    bool kept;            /* no result takes its place while it lives (brief ports) */
    int64_t at_bytes;     /* TEMP, SCRATCH: place in the arena */
    void *ptr;
    uint32_t made, whole; /* as lowered: first run step that mentions it; root, before results share
                             the memory of operands */
} rui_buf_rec;

typedef struct rui_home {
    const rui_layout *layout;
    rui_buf buf;
    const rui_layout *seen; /* not NULL: `layout` holds the value as seen through these strides (a
                               transpose), which dims alone do not tell from the value itself */
} rui_home;

typedef struct rui_val {
    rui_home *homes; /* [n_homes] homes[0] is where the producer put it */
    uint32_t n_homes, cap_homes;
    uint32_t uses;        /* node inputs + outputs + updates */
    uint32_t readers;     /* node inputs only */
    uint32_t reader_node; /* one of them */
    uint32_t update_of;   /* this value becomes state `update_of`; 0 none */
    bool frozen;          /* CONST, or STATE no update changes */
    bool is_output;
    rui_buf note_buf;
    const void *note;
} rui_val;

typedef struct rui_step_rec {
    rui_step s;
    void **ptrs;   /* [s.n_bufs] */
    uint32_t node; /* graph node; 0: reorder or copy of the framework */
    uint32_t at;   /* node that was being lowered */
    bool shared;   /* preparing step that the sharing executable runs */
    const char *label;
} rui_step_rec;

typedef struct rui_step_list {
    rui_step_rec *at;
    uint32_t n, cap;
} rui_step_list;

/* A gradient that leaves, or another value with a port (low_grad.c). */
typedef struct rui_grad {
    ru_value_id v;
    rui_buf buf;
    const rui_layout *layout;
    uint32_t made; /* last run step that writes it */
    uint32_t read; /* first run step after that which mentions it; UINT32_MAX: none */
} rui_grad;

/* Memory of a buffer of the executable that shares it. */
typedef struct rui_shared {
    uint32_t mine, theirs; /* roots */
} rui_shared;

struct rui_low {
    const ru_graph *g;
    const rui_low *share; /* whose state this one uses; NULL: all is its own */
    bool twin;            /* of the same graph, lowered by the same options */
    rui_shared *shared;   /* [n_shared] states */
    uint32_t n_shared, cap_shared;
    ru_exe_options opt;
    rui_dev_how how;
    uint32_t threads;
    ru_arena *arena; /* the executable's, lives as long as it */
    rui_dnnl nn;
    bool has_nn;
    bool inference;
    bool drops_nan; /* some step may turn NaN into a number */

    rui_val *vals; /* [g->n_values] */
    const rui_layout **layouts;
    uint32_t n_layouts, cap_layouts;
    rui_buf_rec *bufs; /* bufs[0] is the absent one */
    uint32_t n_bufs, cap_bufs;
    rui_step_list run, prep;
    uint32_t *claimed; /* [g->n_nodes] the node whose lowering made its steps; 0: not yet */
    rui_buf *outputs;  /* [g->n_outputs] where the caller reads each */
    uint32_t node;     /* being lowered */
    uint32_t n_reorders;
    uint32_t n_slow;       /* nodes that no kernel but the reference takes */
    uint16_t *slow;        /* [RU_OP_COUNT] of each op */
    uint32_t update_begin; /* first of the run steps that only copy new values into state */
    rui_grad *grads;       /* [n_grads] in value order */
    uint32_t n_grads;
    rui_grad *ports;        /* [opt.n_ports] */
    uint32_t backward_from; /* first run step after the values of opt.forward; 0: not known */
    uint32_t n_forward;     /* of those values are made so far */
    uint32_t update_from;   /* first run step after all gradients are made */
    uint32_t not_alone;     /* step from there on that needs more than gradients, inputs and state;
                               UINT32_MAX: none does */
    struct rui_update *up;  /* two_phase: the update in parts (update.h) */

    ru_exe_plan *plans; /* [n_plans] that were installed */
    uint32_t n_plans, cap_plans;

    const char *tuned; /* lines of what convolutions were timed at, tune.c */
    ru_status status;
    ru_err err;

    /* after planning */
    uint8_t *memory;
    int64_t memory_bytes;
    int64_t arena_bytes, arena_bound_bytes, state_bytes, const_bytes, io_bytes, scratch_bytes;
};

/* `nn`: with oneDNN and Rubato's vector kernels; else on reference kernels alone. */
RU_MUST_USE ru_status rui_low_init(rui_low *lo, const ru_graph *g, const ru_exe_options *opt,
                                   bool nn, uint32_t threads, const rui_low *share, ru_arena *arena,
                                   ru_err *err);
/* Check that there is memory for the operands of the largest node, before kernels are tried on
 * them.
 * Errors: RU_E_MEM. */
RU_MUST_USE ru_status rui_low_fits(const ru_graph *g, ru_err *err);
/* The nodes that only reference kernels take, as ru_exe_stats.slow; after rui_low_graph. */
RU_MUST_USE ru_status rui_low_slow(rui_low *lo, const char **text, ru_err *err);
/* Lower every node, then outputs and updates. */
RU_MUST_USE ru_status rui_low_graph(rui_low *lo, ru_err *err);
/* Lifetimes, sharing, addresses, memory, binding; with option `together` without those of the
 * arena and of inputs. */
RU_MUST_USE ru_status rui_low_plan(rui_low *lo, ru_err *err);
/* What the arena holds, with option `together` also inputs, and how long, in run steps:
 * bufs [n_bufs], which [n_bufs] the root of each. Returns how many. */
RU_MUST_USE uint32_t rui_low_bufs(rui_low *lo, ru_mem_buf *bufs, uint32_t *which);
/* low_together.c: ru_exe_together_open. */
RU_MUST_USE ru_status rui_low_together(rui_low *const *at, uint32_t n, const ru_exe_order *order,
                                       void **memory, int64_t *size_bytes, ru_err *err);
/* The run steps are told where their buffers are. */
RU_MUST_USE ru_status rui_low_bind(rui_low *lo, ru_err *err);
/* RU_E_MEM for much more than is free. */
RU_MUST_USE ru_status rui_low_free(int64_t need_bytes, const char *at_least, ru_err *err);
/* Note an installed plan; `in` and all it points to live as long as the executable. */
void rui_low_installed(rui_low *lo, const ru_policy *policy, const void *in);

/* -- what the list of steps is (low_print.c) -----------------------------------------------------
 */

const char *rui_step_label(const rui_low *lo, const rui_step_rec *r);
uint64_t rui_low_id(const rui_low *lo);
/* `times` [run.n]. */
const char *rui_low_print(const rui_low *lo, const rui_step_time *times, const char *slow,
                          ru_arena *arena);
RU_MUST_USE ru_status rui_low_ops(const rui_low *lo, const char *device_type,
                                  const rui_step_time *times, ru_arena *arena, ru_op_fact **ops,
                                  ru_err *err); /* [run.n] */
/* Before results share the memory of operands: who makes each buffer. */
void rui_low_note_makers(rui_low *lo);

/* Of a guarded executable: RU_E_BUG when a zone behind a buffer was written. */
RU_MUST_USE ru_status rui_low_guards(const rui_low *lo, ru_err *err);
void rui_low_fini(rui_low *lo);

/* Where a state or output stands; NULL when nothing reads it. */
const rui_home *rui_home_find(const rui_low *lo, ru_value_id v, const rui_layout *l);
uint32_t rui_root(const rui_low *lo, rui_buf b);
void *rui_buf_ptr(const rui_low *lo, rui_buf b);
rui_buf rui_buf_new(rui_low *lo, rui_buf_kind kind, int64_t size_bytes);
void rui_emit_to(rui_low *lo, rui_step_list *list, const rui_step *step, uint32_t node);

/* The order in which gradients of weights arrive that are read in the order of `l`: bf16 kernels
 * read pairs of input channels side by side (8i16o2i), their gradients come as 16i16o. */
const rui_layout *rui_layout_master(rui_low *lo, const rui_layout *l, ru_dtype dtype);

/* A step that copies `from` (layout a) into `to` (layout b), any oneDNN layouts or equal plain
 * ones. */
ru_status rui_reorder_step(rui_low *lo, const rui_layout *a, rui_buf from, const rui_layout *b,
                           rui_buf to, rui_step *out);
/* Copy now, outside of runs: state read and write, value read. */
RU_MUST_USE ru_status rui_copy_now(rui_low *lo, const rui_layout *a, const void *from,
                                   const rui_layout *b, void *to, ru_err *err);

/* -- sharing (low_share.c) ----------------------------------------------------------------------
 */

/* Where the executable that shares has the state of that name: true when it has one (or the sticky
 * error is set). */
bool rui_share_state(rui_low *lo, ru_value_id v);
/* Of a twin, before memory is planned: preparing steps that do what a step of the other one does on
 * the same memory are marked, and their results are that one's. */
RU_MUST_USE ru_status rui_share_packed(rui_low *lo, ru_err *err);
/* Hash of a copy between two layouts. */
uint64_t rui_share_recipe(const rui_layout *from, const rui_layout *to);
void rui_home_add(rui_low *lo, ru_value_id v, const rui_layout *l, rui_buf b);

/* -- gradients (low_grad.c) ---------------------------------------------------------------------
 */

ru_status rui_grads_list(rui_low *lo);
/* After each node: notes where the forward part ends, and the gradients it made, and with option
 * two_phase gives each a home of its own. */
void rui_grads_made(rui_low *lo);
/* After lifetimes are known, before memory is shared. Errors: RU_E_BUG. */
RU_MUST_USE ru_status rui_grads_plan(rui_low *lo, ru_err *err);

/* Size, dtype and order of elements. */
void rui_layout_hash(const rui_layout *l, ru_hasher *h);
/* Element offset of every index of dimension d: the place of an element is the sum over its
 * dimensions. `into` [dims[d]]. Not for opaque layouts. */
void rui_layout_places(const rui_layout *l, uint32_t d, int64_t *into);

/* The fallback of every op. */
ru_status rui_lower_ref(rui_low *lo, const ru_node *n, ru_err *err);

#endif
