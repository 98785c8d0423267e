"""Writes the C source of the extension module rubato._rubato: binding.py OUT.c

The declarations are those of the public headers, as far as the package uses them; "..." leaves sizes and
places to the compiler, which reads the headers themselves.
"""
import sys

import cffi

DECLARATIONS = """
typedef enum { RU_OK, RU_E_AGAIN, RU_E_CANCELLED, RU_E_USAGE, ... } ru_status;
typedef enum { RU_NONE, ... } ru_dtype;
typedef enum { RU_DEVICE_CPU, RU_DEVICE_REF, ... } ru_device_kind;
typedef enum { RU_PRECISION_F32, RU_PRECISION_BF16, ... } ru_precision;
typedef struct { ru_status status; char text[768]; ...; } ru_err;
const char *ru_status_name(ru_status st);

typedef struct { ...; } ru_arena;
void ru_arena_init(ru_arena *a, int64_t size_max_bytes);
void ru_arena_fini(ru_arena *a);
void *ru_arena_zalloc(ru_arena *a, int64_t size_bytes, int64_t align);

/* graphs and arrays */
#define RU_RANK_MAX ...
typedef struct { uint32_t v; } ru_value_id;
typedef struct { ru_dtype dtype; uint32_t rank; int64_t dims[...]; ...; } ru_type;
typedef enum { RU_VALUE_STATE, ... } ru_value_kind;
typedef enum { RU_ROLE_PARAM, RU_ROLE_BUFFER, ... } ru_value_role;
typedef struct { const char *name; ru_type type; ru_value_kind kind; ru_value_role role; ...; } ru_value;
typedef struct {
    ru_value *values; ru_value_id *inputs, *outputs; const char *symbols[...];
    uint32_t n_values, n_inputs, n_outputs, n_symbols; ...; } ru_graph;
ru_value_id ru_graph_find(const ru_graph *g, const char *name);
const char *ru_dtype_name(ru_dtype t);
int64_t ru_dtype_bytes(ru_dtype t);
int64_t ru_type_bytes(const ru_type *t);
bool ru_dim_is_symbolic(int64_t dim);
int64_t ru_dim_coef(int64_t dim);
uint32_t ru_dim_sym(int64_t dim);
typedef struct { const char *name; ru_type type; const void *data; ...; } ru_array;
typedef struct { ru_array *at; uint32_t n, cap; ...; } ru_arrays;

/* ONNX models */
typedef struct { const void *data; int64_t size_bytes; ...; } ru_map_file;
typedef struct { ru_map_file model; ...; } ru_onnx_file;
ru_status ru_onnx_file_open(const char *path, ru_onnx_file *out, ru_err *err);
void ru_onnx_file_close(ru_onnx_file *f);
typedef struct { ...; } ru_onnx_external;
ru_onnx_external ru_onnx_file_external(ru_onnx_file *f);
typedef struct { ...; } ru_onnx_ahead;
typedef struct { const ru_onnx_ahead *ahead; const ru_onnx_external *external; bool train, signature; ...; } ru_onnx_options;
typedef struct { const char *const *outputs; const bool *texts_in, *texts_out; ...; } ru_onnx_info;
ru_status ru_onnx_read(const void *data, int64_t size_bytes, const ru_onnx_options *opt, ru_arena *arena,
                       ru_graph *out, ru_onnx_info *info, ru_err *err);
ru_status ru_onnx_read_bound(const void *data, int64_t size_bytes, const ru_onnx_options *opt,
                             const ru_array *arrays, uint32_t n_arrays, ru_arena *arena, ru_graph *out,
                             ru_onnx_info *info, ru_err *err);

/* executables */
typedef struct ru_exe ru_exe;
typedef struct { ru_device_kind device; ru_precision precision; uint32_t threads; bool autotune; ru_exe *share; ...; } ru_exe_options;
typedef struct { ru_value_id input; const void *data; } ru_run_input;
typedef struct { ru_value_id output; void *data; } ru_run_output;
typedef struct {
    int64_t step; const ru_run_input *inputs; uint32_t n_inputs; const ru_run_output *outputs; uint32_t n_outputs; ...;
} ru_run_args;
typedef struct { int64_t copied_bytes; ...; } ru_exe_stats;
void ru_exe_stats_get(const ru_exe *e, ru_exe_stats *into);
typedef struct { const ru_exe_options *opt; ru_arrays *arrays; ru_arena *arena; uint32_t ran; ...; } ru_settle;
ru_onnx_ahead ru_exe_ahead(ru_settle *s);
ru_status ru_exe_settle(ru_settle *s, const ru_graph *g, ru_graph *out, ru_err *err);
ru_status ru_exe_open(const ru_graph *g, const ru_exe_options *opt, ru_exe **out, ru_err *err);
void ru_exe_close(ru_exe *e);
void *ru_exe_input(ru_exe *e, ru_value_id input);
ru_status ru_exe_run(ru_exe *e, const ru_run_args *args, ru_err *err);
const void *ru_exe_output(ru_exe *e, ru_value_id output);
ru_status ru_exe_state_read(ru_exe *e, ru_value_id state, void *into, ru_err *err);
ru_status ru_exe_state_write(ru_exe *e, ru_value_id state, const void *from, ru_err *err);

/* the graph of a training step */
typedef enum { RU_LOSS_CROSS_ENTROPY, RU_LOSS_MSE, RU_LOSS_BINARY_CROSS_ENTROPY, ... } ru_loss_kind;
typedef enum { RU_OPTIMIZER_SGD, RU_OPTIMIZER_ADAM, RU_OPTIMIZER_ADAMW, ... } ru_optimizer_kind;
typedef struct {
    ru_optimizer_kind kind; double lr, momentum; bool nesterov; double beta1, beta2, epsilon, weight_decay; ...;
} ru_optimizer;
typedef struct { const char *match; double lr, weight_decay; bool freeze; ...; } ru_param_group;
typedef struct {
    ru_loss_kind loss; ru_optimizer optimizer; const ru_param_group *groups; uint32_t n_groups; double label_smoothing;
    int64_t batch; ru_type x, y; ...;
} ru_step_options;
typedef struct { ru_value_id input; double factor; ...; } ru_step_rate;
typedef struct {
    ru_graph graph; ru_value_id *x, *y, lr; ru_step_rate *rates; uint32_t n_rates; ru_value_id step, loss; ...;
} ru_step_graph;
ru_status ru_pass_train(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err);
ru_status ru_pass_lift(const ru_graph *g, ru_arena *arena, ru_graph *out, ru_err *err);
ru_status ru_step_build(const ru_graph *model, const ru_step_options *opt, ru_arena *arena, ru_step_graph *out, ru_err *err);

/* runs */
typedef struct { ...; } ru_job;
typedef struct { ru_job job; ...; } ru_rundir;
ru_status ru_rundir_open(const char *path, ru_arena *arena, ru_rundir *out, ru_err *err);
typedef struct ru_predictor ru_predictor;
typedef struct { uint32_t n; ...; } ru_columns;
typedef struct { ru_type x; ru_columns columns; ...; } ru_model_facts;
void ru_columns_normalize(const ru_columns *c, float *x);
typedef struct { const char *name; ru_model_facts facts; bool tokens; ...; } ru_model;
ru_status ru_predictor_open(const ru_rundir *r, int64_t batch, const ru_exe_options *exe_opt, ru_arena *arena,
                            ru_predictor **out, ru_err *err);
void ru_predictor_close(ru_predictor *p);
const ru_model *ru_predictor_model(const ru_predictor *p);
int64_t ru_predictor_batch(const ru_predictor *p);
int64_t ru_predictor_inputs(const ru_predictor *p);
int64_t ru_predictor_outputs(const ru_predictor *p);
void *ru_predictor_input(ru_predictor *p, int64_t k);
bool ru_predictor_left_out(const ru_predictor *p, int64_t k);
ru_status ru_predictor_run(ru_predictor *p, const float **outputs, ru_err *err);

/* training */
typedef struct ru_conf ru_conf;
ru_status ru_job_load(const char *path, const char *const *sets, uint32_t n_sets, ru_arena *arena, ru_job *out,
                      ru_conf **conf, ru_err *err);
typedef struct { const ru_job *job; const ru_conf *conf; const char *out; bool resume, quiet; ...; } ru_train_options;
typedef struct {
    int64_t steps, epochs, samples, wall_ns; double samples_per_s, loss; const char *ended; ...;
} ru_run_report_summary;
typedef struct { const char *out; ru_run_report_summary summary; ...; } ru_train_result;
ru_status ru_train(const ru_train_options *opt, ru_arena *arena, ru_train_result *out, ru_err *err);
void ru_self_stop_watch(void);
int ru_self_stop_asked(void);
void ru_self_stop_ask(void);
void ru_self_stop_unwatch(void);

/* traces */
typedef struct { ...; } ru_trace;
typedef struct { ...; } ru_trace_clocks;
typedef enum { RU_STEP_PARTS, ... } ru_step_part;
#define RU_STEP_NOBODY ...
typedef struct {
    int64_t step, start_ns, end_ns, part_ns[...]; uint32_t late; int64_t samples; ...;
} ru_step_time;
typedef struct { const ru_step_time *at; int64_t n; ...; } ru_rank_steps;
const char *ru_step_part_name(ru_step_part part);
ru_status ru_trace_run_load(const char *run, ru_arena *arena, ru_trace **traces, uint32_t *n, ru_err *err);
ru_status ru_trace_align(const ru_trace *traces, uint32_t n, ru_arena *arena, ru_trace_clocks *out, ru_err *err);
uint32_t ru_trace_number(const ru_trace *t);
ru_status ru_trace_steps(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks, ru_arena *arena,
                         ru_rank_steps *out, ru_err *err);

/* data */
#define RU_FIELDS_MAX ...
typedef struct { const char *name; ru_type type; ...; } ru_field;
typedef struct ru_dataset ru_dataset;
typedef struct ru_stream ru_stream;
typedef struct {
    const char *format; const char *const *paths; uint32_t n_paths; int64_t context, stride, features, classes;
    const char *label; int64_t image_size; double scale, shift; const char *generator; uint64_t seed;
    int64_t first, count; double held; bool held_out, one_hot, skip_damaged, raw, regression, unlabelled, direct; ...;
} ru_data_options;
ru_status ru_dataset_open(const ru_data_options *opt, ru_dataset **out, ru_err *err);
void ru_dataset_close(ru_dataset *d);
int64_t ru_dataset_count(const ru_dataset *d);
uint32_t ru_dataset_fields(const ru_dataset *d, const ru_field **fields);
int64_t ru_dataset_classes(const ru_dataset *d);
ru_status ru_dataset_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err);
ru_data_options ru_job_data_options(const ru_job *job, bool test);
typedef struct { ...; } ru_norm;
ru_status ru_norm_open(const ru_data_options *opt, const ru_type *x, const char *where, ru_arena *arena, ru_norm *out,
                       ru_err *err);
void ru_norm_apply(const ru_norm *norm, float *x, int64_t n);
int64_t ru_order_sample(uint64_t seed, int64_t epoch, int64_t position, int64_t count);
typedef enum { RU_SHUFFLE_NONE, RU_SHUFFLE_FULL, RU_SHUFFLE_BLOCK, ... } ru_shuffle;
typedef struct {
    int64_t batch, epochs; uint64_t seed; ru_shuffle shuffle; bool drop_last, partial_last; uint32_t threads;
    int64_t wait_ns; ...;
} ru_stream_options;
typedef struct { void *fields[...]; int64_t n, position, epoch; ...; } ru_batch;
ru_status ru_stream_open(ru_dataset *d, const ru_stream_options *opt, ru_stream **out, ru_err *err);
void *ru_stream_take(ru_stream *s, int64_t *size_bytes);
void ru_stream_give(ru_stream *s, void *taken, int64_t size_bytes);
ru_status ru_stream_next(ru_stream *s, ru_batch *batch, ru_err *err);
void ru_stream_close(ru_stream *s);

/* a member of an elastic job */
typedef struct ru_team ru_team;
typedef struct { void *data; int64_t size_bytes; uint32_t group; } ru_team_state;
typedef bool (*ru_team_move)(void *self, uint32_t k, int64_t offset, int64_t size, void *memory, bool into_state);
extern "Python" bool rubato_move(void *self, uint32_t k, int64_t offset, int64_t size, void *memory, bool into_state);
typedef struct {
    const char *join, *listen, *token; uint32_t number; bool newcomer; uint32_t founders, n_min, n_begin, n_max, capacity;
    int64_t batch, count, steps, steps_before, position_before; const int64_t *gradient_bytes; float *const *gradients;
    uint32_t n_gradients; bool bf16;
    const ru_team_state *state; uint32_t n_state; ru_team_move move; void *move_self; const char *agreed; bool equal_shares; double join_part; uint32_t noise; ...;
} ru_team_options;
typedef struct {
    bool over; int64_t step, position, n, batch, first; uint32_t members, number; double noise_sqr, noise_var; ...;
} ru_team_step;
ru_status ru_team_open(const ru_team_options *opt, ru_team **out, ru_err *err);
void ru_team_close(ru_team *t);
const char *ru_team_address(const ru_team *t);
ru_status ru_team_begin(ru_team *t, int64_t wait_ns, ru_team_step *into, ru_err *err);
ru_status ru_team_ready(ru_team *t, uint32_t k);
ru_status ru_team_wait(ru_team *t, int64_t wait_ns, ru_err *err);
bool ru_team_leads(ru_team *t);
ru_status ru_team_done(ru_team *t);
void ru_team_leave(ru_team *t);

/* collectives of a fixed set of processes */
typedef enum {
    RU_COLL_ALL_REDUCE, RU_COLL_REDUCE_SCATTER, RU_COLL_ALL_GATHER, RU_COLL_BROADCAST, RU_COLL_BARRIER, ... } ru_coll_op;
typedef struct ru_ranks ru_ranks;
typedef struct { const char *join, *listen, *token; uint32_t rank, n_ranks; ...; } ru_ranks_options;
ru_status ru_ranks_open(const ru_ranks_options *opt, ru_ranks **out, ru_err *err);
void ru_ranks_close(ru_ranks *g);
const char *ru_ranks_address(const ru_ranks *g);
ru_status ru_ranks_meet(ru_ranks *g, int64_t wait_ns, ru_err *err);
ru_status ru_ranks_begin(ru_ranks *g, ru_coll_op op, ru_dtype dtype, uint32_t root, void *data, int64_t n,
                         uint64_t *call, ru_err *err);
ru_status ru_ranks_wait(ru_ranks *g, uint64_t call, int64_t wait_ns, ru_err *err);
"""

SOURCE = """
#include "data/norm.h"
#include "data/reader.h"
#include "data/take.h"
#include "env/process/self.h"
#include "env/process/stop.h"
#include "exec/settle.h"
#include "run/predict.h"
#include "store/onnx_file.h"
#include "train/driver/trainer.h"
#include "train/embed/embed.h"
#include "trace/read/steps.h"
#include "train/embed/ranks.h"
#include "train/model/step.h"
#include "world/pass/pass.h"
"""


def main():
    ffi = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    ffi.set_source("rubato._rubato", SOURCE)
    ffi.emit_c_code(sys.argv[1])


main()
