/* An executable: a graph lowered for one device, planned once, run many times.
 *
 * ru_exe_open runs the passes, chooses kernels and layouts, plans the buffers and creates every
 * primitive; ru_exe_run then allocates nothing. State (parameters, optimizer slots, running
 * statistics) lives in the executable in the layout of its kernels; read and write convert to and
 * from row-major.
 *
 * Thread: one thread at a time per executable; kernels use the device's pool inside. */
#ifndef RU_EXEC_EXE_H
#define RU_EXEC_EXE_H

#include "world/facts.h"
#include "world/graph/graph.h"

RU_API_BEGIN

typedef struct ru_exe ru_exe;
typedef struct ru_pool ru_pool;
typedef struct ru_recorder ru_recorder; /* trace/record/recorder.h */
typedef struct ru_policy ru_policy;     /* plan/row/policy.h */

typedef enum ru_device_kind {
    RU_DEVICE_CPU, /* oneDNN and Rubato's vector kernels */
    RU_DEVICE_REF, /* plain C, one thread: the reference */
} ru_device_kind;

typedef enum ru_precision {
    RU_PRECISION_F32,
    RU_PRECISION_BF16, /* activations and matrix operands in bf16, accumulation and master weights
                          f32 */
} ru_precision;

typedef struct ru_exe_options {
    ru_device_kind device;
    ru_precision precision;
    uint32_t threads;      /* 0: all cores this process may use */
    bool autotune;         /* time convolution and product algorithms while opening */
    bool tuned_only;       /* autotune without measuring: a shape that is not in the cache uses the
                              library's own rule */
    const char *cache_dir; /* folder of autotune results; NULL: none are stored */
    bool keep_temps;       /* no buffer sharing and no in-place: every value readable after a run */
    bool no_fuse;          /* run the graph as given (to find errors) */
    bool profile;          /* measure every step from the start, as ru_exe_profile does */
    bool keep_nan;         /* no kernel that may turn NaN into a number (slower; see ru_exe_run) */
    bool once; /* a run that met NaN is not repeated: ru_exe_invalid says so, and the caller does it
                  on another executable, with keep_nan */
    /* Data-parallel: gradients leave and return summed. Nothing that persists changes before the
     * first step that reads a gradient. Each gradient has its own memory, f32, without padding. */
    bool two_phase;
    bool plain_grads; /* two_phase: gradients in row-major order */
    /* two_phase: an update may stay open while the next run goes on (exec/update.h), so gradients
     * and what the update makes keep memory of their own. */
    bool overlap;
    /* two_phase: memory for each gradient that leaves, in value order (segments that other
     * processes map); a NULL entry, or NULL: the executable's own. */
    void *const *grad_at;
    /* two_phase: values of the graph with which its forward part ends (ru_step_graph.forward), so
     * that ru_exe_phase can run the parts separately. n_forward 0: it cannot. */
    const ru_value_id *forward; /* [n_forward] */
    uint32_t n_forward;
    /* Results of nodes that leave or are awaited by a port (ru_exe_ports_set), besides gradients,
     * inputs and state, which all may: no pass removes them, and they stand row-major in memory of
     * their own from the step that makes them to the end of the run. */
    const ru_value_id *ports; /* [n_ports] */
    uint32_t n_ports;
    /* Use the state of this executable (of the same device): each state that it has under the same
     * name with the same type is its memory, what one writes or updates all see, and start values
     * in the graph are left out. Weights that are packed in the same way are shared too, and equal
     * constants that passes fold; with the same graph and options all that is packed is. Its memory
     * is given back when it and all that share it are closed, in any order; its graph must live
     * until then. Executables that share may run at the same time on threads of their own, and
     * while one thread opens others of them, but not while one of them writes or updates state, nor
     * in the first run after that. */
    ru_exe *share;
    /* share: parameters that the graph updates have memory of their own, in the order of elements
     * that `share` has: an older version of them (ru_exe_params_copy). Start values in the graph
     * count. */
    bool own_params;
} ru_exe_options;

/* The parts of a training run, one after the other in its list of steps. */
typedef enum ru_phase {
    RU_PHASE_FORWARD,   /* up to the values of ru_exe_options.forward */
    RU_PHASE_BACKWARD,  /* up to the last gradient */
    RU_PHASE_UPDATE,    /* from the first step that reads a gradient */
    RU_PHASE_GRADIENTS, /* forward and backward in one, micro-batch after micro-batch */
} ru_phase;

/* An input that one run reads where the caller has it, row-major, of the input's type. Data that do
 * not stand at a multiple of RU_RUN_ALIGN bytes or are inside the executable (an output of the run
 * before), and those of an input that an output shows as it is or of an executable with two_phase
 * or keep_temps, are copied first: ru_exe_stats.copied_bytes. */
enum { RU_RUN_ALIGN = 16 };
typedef struct ru_run_input {
    ru_value_id input;
    const void *data;
} ru_run_input;

/* An output that one run computes where the caller wants it, row-major, of the output's type.
 * Memory that does not stand at a multiple of RU_RUN_OUT_ALIGN bytes, and that of an output which
 * shows an input, a constant or state, a part of something larger, or what another output shows too
 * (all or a part of it), or of an executable with gradients, two_phase or keep_temps, is filled by
 * a copy: copied_bytes. */
enum { RU_RUN_OUT_ALIGN = 64 };
typedef struct ru_run_output {
    ru_value_id output;
    void *data;
} ru_run_output;

/* Arguments that change from run to run, besides inputs. */
typedef struct ru_run_args {
    uint64_t seed;         /* of the job: keys the counter-based generator */
    int64_t step;          /* counted from 0 */
    int64_t sample_offset; /* index of this process' first sample in the global batch */
    /* Only read, and not changed until the run returns. Afterwards these inputs stand at
     * ru_exe_input again, with any contents. */
    const ru_run_input *inputs; /* [n_inputs] */
    uint32_t n_inputs;
    /* Memory apart from all inputs, from each other and from the executable's own. After a run
     * without failure the outputs stand there, after another one anything; ru_exe_output of them
     * has any contents. */
    const ru_run_output *outputs; /* [n_outputs] */
    uint32_t n_outputs;
} ru_run_args;

typedef struct ru_exe_stats {
    uint32_t n_nodes, n_steps, n_reorders, n_primitives;
    uint32_t n_slow;     /* nodes on the scalar reference kernels although the device has others */
    const char *slow;    /* "Einsum 2, Mod 1": those nodes by op; "" when there are none; view */
    int64_t arena_bytes; /* planned activation arena */
    int64_t arena_bound_bytes; /* liveness lower bound */
    int64_t alone_bound_bytes; /* option overlap: the same without it; else 0 */
    int64_t state_bytes, const_bytes, scratch_bytes, io_bytes;
    int64_t n_prepared;   /* steps so far that packed constants and state that is never updated */
    int64_t copied_bytes; /* so far, of ru_run_args that could not be read or made in place */
    int64_t flops;        /* of one run */
    int64_t open_ns;
} ru_exe_stats;

/* `g` is verified, inferred and concrete; it and its data must live as long as the executable.
 * Errors: RU_E_UNSUPPORTED naming the node no kernel takes, RU_E_MEM. */
RU_MUST_USE ru_status ru_exe_open(const ru_graph *g, const ru_exe_options *opt, ru_exe **out,
                                  ru_err *err);
void ru_exe_close(ru_exe *e); /* NULL is fine */

/* Buffer of an input, row-major, for the caller to fill before each run; stays valid until close.
 * Inputs keep their contents from run to run. */
void *ru_exe_input(ru_exe *e, ru_value_id input);

/* One step. Errors: RU_E_DATA from kernels that check their data (labels, indices); RU_E_ARG for
 * ru_run_args.inputs and outputs that are none or stand there twice.
 *
 * oneDNN's maxima and fused activations turn NaN into a number. The processor records that such an
 * operation met one (ru_pool_invalid). A graph without updates then runs again on kernels that keep
 * NaN (opened the first time), so that outputs have NaN where the reference has it. A graph with
 * updates does not run again; ru_exe_invalid reports it. */
RU_MUST_USE ru_status ru_exe_run(ru_exe *e, const ru_run_args *args, ru_err *err);
/* Did an operation of the last run meet or produce a NaN? For executables with kernels that may
 * lose one, with keep_nan, or with a judge. */
bool ru_exe_invalid(const ru_exe *e);

/* Call `judge` in every run when the scalar output `v` (f32) is computed and before any later
 * update in the graph. `invalid`: a kernel may have turned NaN into a number. Any status but RU_OK
 * ends the run with it. Called on the run's thread. Errors: RU_E_ARG when `v` is not an output of a
 * step. */
typedef ru_status (*ru_exe_judge)(void *self, float x, bool invalid);

/* Row-major view of an output after a run, valid until the next run. NULL: not an output. */
const void *ru_exe_output(ru_exe *e, ru_value_id output);

/* Copy state in and out, row-major, in the dtype of the graph. Between runs only. */
RU_MUST_USE ru_status ru_exe_state_read(ru_exe *e, ru_value_id state, void *into, ru_err *err);
RU_MUST_USE ru_status ru_exe_state_write(ru_exe *e, ru_value_id state, const void *from,
                                         ru_err *err);

/* Any value of the graph after a run with keep_temps (tests). Row-major copy. */
RU_MUST_USE ru_status ru_exe_value_read(ru_exe *e, ru_value_id v, void *into, ru_err *err);

void ru_exe_stats_get(const ru_exe *e, ru_exe_stats *into);

/* Ports: where values leave a run as soon as they are made, and where a run waits for values that
 * come from elsewhere.
 *
 *   leaves  after the last step that writes the value: a gradient, a state that the run updates, or
 *           any value that ru_exe_options.ports names
 *   else    before the first step that reads it: a gradient (as a sum), an input, a state, or a
 *           value named there; a port of a state may write that state (ru_exe_state_write). A value
 *           that no step reads is not waited for. `again`: a gradient, before it is overwritten.
 *
 * Any status but RU_OK ends the run with it (RU_E_CANCELLED: the step is aborted); with option
 * two_phase nothing that persists has changed before the first gradient is read. A port may block;
 * who makes it wait for something gives it a timeout or a way to cancel. Called on the run's
 * thread. */
typedef struct ru_exe_at {
    ru_value_id value; /* of the caller's graph */
    /* Row-major for inputs and values that ru_exe_options.ports names; else in the kernel's order
     * of elements (adding two gradients of executables with equal ru_exe_grads_hash is legal
     * element by element). Valid until the run ends; a gradient without two_phase: during the call.
     */
    void *data;
    int64_t size_bytes;
    uint32_t step; /* that made it, or is about to read it */
} ru_exe_at;
typedef ru_status (*ru_exe_port_fn)(void *self, const ru_exe_at *at);

typedef struct ru_exe_port {
    ru_value_id value; /* absent: every gradient */
    bool leaves;
    bool again; /* else, of a gradient: before the first step that writes its memory in a run */
    ru_exe_port_fn fn;
    void *self;
} ru_exe_port;

/* A gradient and its memory, fixed while the executable is open. */
typedef struct ru_exe_grad {
    ru_value_id value; /* of the caller's graph */
    void *data;
    int64_t size_bytes;
    uint32_t made, read; /* steps: last that writes it; first that reads it, UINT32_MAX: none */
    uint32_t used;       /* first before its update that reads the parameter; UINT32_MAX: none */
    const char *param;   /* name of this parameter; NULL: none, or it has no name */
} ru_exe_grad;

/* Measure every step of the next runs (and forget earlier measurements), or stop. Also
 * ru_exe_options.profile. */
void ru_exe_profile(ru_exe *e, bool on);

/* Plans that the executable follows: the policy and its input, views until close. */
typedef struct ru_exe_plan {
    const ru_policy *policy;
    const void *in;
} ru_exe_plan;

/* Text: steps in order with kernel, layout, buffer, time. Lives in `arena`. */
const char *ru_exe_print(const ru_exe *e, ru_arena *arena);

RU_API_END

/* Gives the memory of activations, inputs and outputs back to the system until the next run, before
 * which all inputs must be written, and what opening took too much; state stays. For executables
 * that wait for their turn. */
void ru_exe_rest(ru_exe *e);

/* Inside Rubato: librubato.so does not export these. */
RU_MUST_USE ru_status ru_exe_judge_set(ru_exe *e, ru_value_id v, ru_exe_judge judge, void *self,
                                       ru_err *err);
/* From the next run on the executable has these ports alone; `ports` [n] are copied. Ports of one
 * step are called in the order in which they stand here. Errors: RU_E_ARG naming a value that has
 * no such moment, RU_E_MEM. */
RU_MUST_USE ru_status ru_exe_ports_set(ru_exe *e, const ru_exe_port *ports, uint32_t n,
                                       ru_err *err);
/* Call `poll` before every step, with its index; any status but RU_OK ends the run. NULL: nobody.
 */
void ru_exe_poll_set(ru_exe *e, ru_status (*poll)(void *self, uint32_t step), void *self);
/* All gradients in the order they become ready; view until close. Returns how many. */
uint32_t ru_exe_grads(const ru_exe *e, const ru_exe_grad **grads);
/* Hash of count, sizes and element orders of all gradients, in the order of the caller's graph. */
uint64_t ru_exe_grads_hash(const ru_exe *e);
/* Add the gradients of `from` to those of `to`, which then hold the sums: several micro-batches in
 * flight are several executables of one graph that share state, each with its own activations and
 * gradients. Errors: RU_E_ARG without two_phase, or when graph or ru_exe_grads_hash differ. */
RU_MUST_USE ru_status ru_exe_grads_add(ru_exe *to, const ru_exe *from, ru_err *err);
/* The parameters of `to` become those of `from`, as they stand in memory. Both are executables of
 * one graph, one of them with the other one in `share` and `own_params`, or both with a third one.
 * Between the runs of `to`; not while `from` updates. Cost: one copy of their memory. Errors:
 * RU_E_ARG for others. */
RU_MUST_USE ru_status ru_exe_params_copy(ru_exe *to, const ru_exe *from, ru_err *err);
/* One phase of a run; the three in order give the bits of ru_exe_run, and so do GRADIENTS (which
 * needs no `forward`) and UPDATE. Ports and the judge are
 * called as in a run. Backward follows forward of the same samples. An update follows backward; it
 * may also run alone, on gradients that the caller has written, when it needs nothing else than
 * gradients, inputs and state. Parameters may be written between phases, not between forward and
 * backward. Errors: those of ru_exe_run; RU_E_UNSUPPORTED without two_phase or `forward`, or naming
 * the step of an update that needs more; RU_E_ARG for a phase out of order. */
RU_MUST_USE ru_status ru_exe_phase(ru_exe *e, ru_phase phase, const ru_run_args *args, ru_err *err);
/* A run one step at a time, with the inputs as they stand: *step is 0 where it begins, then the
 * next one, and 0 again when the last one has run. Between them others that share state may run;
 * who ends it early begins the next at 0. Steps that update a state copy all of it unless they do
 * so in place. Errors: those of ru_exe_run. */
RU_MUST_USE ru_status ru_exe_run_next(ru_exe *e, uint32_t *step, ru_err *err);
/* A row-major piece of a state, whole elements: bytes [offset_bytes, offset_bytes + size_bytes).
 * Between runs; reading also while a run with two_phase has not read a gradient yet, on any thread.
 * Errors: RU_E_ARG for a value that is not a state, or bytes outside it. */
RU_MUST_USE ru_status ru_exe_state_read_part(ru_exe *e, ru_value_id state, int64_t offset_bytes,
                                             int64_t size_bytes, void *into, ru_err *err);
RU_MUST_USE ru_status ru_exe_state_write_part(ru_exe *e, ru_value_id state, int64_t offset_bytes,
                                              int64_t size_bytes, const void *from, ru_err *err);
/* Record every step of the next runs as a span named by its op, until called with NULL: its value
 * is the step's place in the list, its plan the low half of ru_exe_id. `r` must live as long as
 * that. Cost: one read of the clock and one record a step, below 60 ns. */
void ru_exe_record(ru_exe *e, ru_recorder *r);
/* Does the CPU device have a kernel for this op, at least for common types and attributes? */
bool ru_exe_op_fast(ru_op op);
/* The list of steps: nodes, kernel, shapes, flops, bytes, dependencies; and measured times of the
 * runs that were profiled or recorded (count 0: none; then `took` is empty). Every record contains
 * `rank`. Owner: all in `arena`. Errors: RU_E_LIMIT.
 */
RU_MUST_USE ru_status ru_exe_ops(const ru_exe *e, uint32_t rank, ru_arena *arena, ru_op_fact **ops,
                                 uint32_t *n, ru_err *err);
/* Hash of the list: ops, kernels, shapes. */
uint64_t ru_exe_id(const ru_exe *e);
uint32_t ru_exe_plans(const ru_exe *e, const ru_exe_plan **plans);

#endif
