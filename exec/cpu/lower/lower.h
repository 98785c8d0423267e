/* Lowering: how a node becomes steps.
 *
 * For each node of the (fused) graph the rows of lowerings.def for its op are tried in order; the
 * first that does not decline wins. A lowering looks at where its inputs stand, asks for them in
 * the layouts its kernel wants, declares its outputs in the layouts its kernel gives, and emits
 * steps. The framework inserts reorders, at most once per value and layout, gives state
 * (parameters, slots) the layout its first kernel likes, plans all buffers together afterwards and
 * calls `bind` of each step with the final addresses. When all decline, the reference kernel runs
 * the op on row-major data.
 *
 *     node --> rui_lower_fn --> rui_in(layout) ... rui_out(layout) ... rui_emit(step)
 *                                   |
 *                                   `--> reorder step, when the value stands in another layout
 *
 * A layout is dtype and order together: on the bf16 path a float value of the graph may stand as
 * bf16 in memory; a kernel that wants f32 asks for f32 and gets it converted.
 *
 * The rules of a lowering:
 *   - decline with RU_E_UNSUPPORTED (err untouched) before the first rui_in/rui_out/rui_emit;
 *   - after that, errors are sticky in the context: return rui_done(lo) at the end;
 *   - memory that lives as long as the executable comes from rui_keep;
 *   - a kernel may run flat over `layout->flat_n` elements of any layout when it is element-wise;
 * where `padded`, elements outside the shape are zero and must stay zero.
 *
 * Thread: one; used while an executable opens. */
#ifndef RU_EXEC_CPU_LOWER_LOWER_H
#define RU_EXEC_CPU_LOWER_LOWER_H

#include "exec/cpu/low/onednn.h"
#include "exec/exe.h"
#include "exec/pool.h"

/* Interned per executable: equal layouts are the same pointer. */
typedef struct rui_layout {
    ru_type type;   /* dtype as it stands in memory; dims are the value's */
    bool plain;     /* row-major and packed */
    bool padded;    /* flat_n counts more elements than the shape has */
    bool opaque;    /* transformed (Winograd weights): no element order at all */
    int64_t flat_n; /* elements in memory, padding included; 0 when opaque */
    int64_t size_bytes;
    dnnl_memory_desc_t md; /* ndims 0: oneDNN does not know the dtype; scalars have dims {1} */
} rui_layout;

typedef struct rui_low rui_low;

/* A piece of memory of the executable. v 0: absent, arrives at the kernel as NULL. */
typedef struct rui_buf {
    uint32_t v;
} rui_buf;

/* What a step sees of the run. */
typedef struct rui_run {
    const ru_run_args *args;
    ru_pool *pool;
    ru_arena *scratch; /* for reference kernels only: rewound after each step */
    dnnl_stream_t stream;
    ru_err *err;
} rui_run;

/* `bufs` [n_bufs] in the order of rui_step.bufs. Must not allocate. */
typedef ru_status (*rui_step_fn)(void *state, void *const *bufs, const rui_run *run);

typedef struct rui_step {
    const char *kernel; /* "dnnl jit:avx512_core", "kern layernorm"; static or rui_keep memory */
    rui_step_fn fn;
    void *state;
    const rui_buf *bufs; /* [n_bufs] everything the step touches; copied */
    uint32_t n_bufs;
    /* Called once, after planning, with the final addresses. May be NULL. */
    ru_status (*bind)(void *state, void *const *bufs, ru_err *err);
    void (*fini)(void *state); /* at close; may be NULL */
    /* Of a preparing step: hash of all that it does besides where its memory is; 0: its node and
     * kernel tell. A preparing step writes each of its results whole. */
    uint64_t recipe;
} rui_step;

typedef ru_status (*rui_lower_fn)(rui_low *lo, const ru_node *n, ru_err *err);

/* -- the context ---------------------------------------------------------------------------------
 */

const ru_graph *rui_graph(const rui_low *lo);
rui_dnnl *rui_nn(rui_low *lo);
uint32_t rui_threads(const rui_low *lo);
const ru_exe_options *rui_options(const rui_low *lo);
/* The bf16 path: floats of activations and matrix operands may stand as bf16. */
bool rui_bf16(const rui_low *lo);
/* No state but caches is updated inside the graph: weights are packed once. */
bool rui_inference(const rui_low *lo);
/* The node being lowered may turn NaN into a number (and the processor notes that it met one). Not
 * with option keep_nan. */
void rui_drops_nan(rui_low *lo);
/* Zeroed memory that lives as long as the executable; NULL sets the sticky error. */
void *rui_keep(rui_low *lo, int64_t size_bytes);
char *rui_keep_printf(rui_low *lo, const char *fmt, ...) RU_PRINTF(2, 3);
/* Sticky status of the context; what a lowering returns at its end. */
ru_status rui_done(const rui_low *lo);
ru_status rui_fail(rui_low *lo, ru_status st, const char *fmt, ...) RU_PRINTF(3, 4);

/* Nodes that this lowering does besides its own. The caller has made sure that all inputs of `n`
 * are made before this point. `n` is then skipped. */
void rui_claim(rui_low *lo, const ru_node *n);
bool rui_claimed(const rui_low *lo, const ru_node *n);
/* Number of uses (node inputs, outputs of the graph, updates) of a value, and its only reader. */
uint32_t rui_uses(const rui_low *lo, ru_value_id v);
const ru_node *rui_only_reader(const rui_low *lo,
                               ru_value_id v); /* NULL unless one node reads it */

/* -- layouts -------------------------------------------------------------------------------------
 */

const rui_layout *rui_plain(rui_low *lo, const ru_type *t); /* row-major in t's dtype */
const rui_layout *rui_plain_as(rui_low *lo, const ru_type *t, ru_dtype dtype);
const rui_layout *rui_layout_md(rui_low *lo, const dnnl_memory_desc_t *md);
/* The same order of elements with another dtype. Not for opaque layouts. */
const rui_layout *rui_layout_as(rui_low *lo, const rui_layout *l, ru_dtype dtype);
/* Where the value stands: the layout its producer gave it; for state nobody asked for yet, plain.
 */
const rui_layout *rui_standing(rui_low *lo, ru_value_id v);
/* True while state (or a constant) has no layout yet: the next rui_in decides it. */
bool rui_undecided(const rui_low *lo, ru_value_id v);
/* Where the value would stand for dtype `dtype` with no change of order. */
const rui_layout *rui_standing_as(rui_low *lo, ru_value_id v, ru_dtype dtype);
/* dtype in which a float activation of the graph should be stored: BF16 on the bf16 path for F32
 * values that are large (rank >= 2), else the graph's dtype. */
ru_dtype rui_store_dtype(const rui_low *lo, ru_value_id v);

/* -- buffers -------------------------------------------------------------------------------------
 */

/* The value in that layout; a reorder step is emitted when it is not there yet. Absent gives
 * absent. */
rui_buf rui_low_in(rui_low *lo, ru_value_id v, const rui_layout *l);
static inline rui_buf rui_in(rui_low *lo, ru_value_id v, const rui_layout *l)
{
    return rui_low_in(lo, v, l);
}
/* Row-major in the graph's dtype. */
rui_buf rui_in_plain(rui_low *lo, ru_value_id v);
/* As it stands, whatever that is (ask rui_standing first). */
rui_buf rui_in_standing(rui_low *lo, ru_value_id v);

/* The row-major value, its memory seen as `seen` (of the graph's dtype: a transpose, say), in
 * `want`. */
rui_buf rui_in_as(rui_low *lo, ru_value_id v, const dnnl_memory_desc_t *seen,
                  const dnnl_memory_desc_t *want);

/* A fresh buffer that this step fills. Absent gives absent. */
rui_buf rui_out(rui_low *lo, ru_value_id v, const rui_layout *l);
rui_buf rui_out_plain(rui_low *lo, ru_value_id v);
/* The same, but `over` may be the same memory: the framework shares when `over` dies in this step
 * and sizes fit (and always when it is state whose update is this very value). The kernel must work
 * both ways. */
rui_buf rui_out_over(rui_low *lo, ru_value_id v, const rui_layout *l, rui_buf over);
/* A result that the kernel adds to what is there: `addend` in the same memory, copied there by a
 * step before when it cannot be given away (it has other readers, or stands in another layout). */
rui_buf rui_out_sum(rui_low *lo, ru_value_id v, const rui_layout *l, ru_value_id addend);

/* From here on the value stands in `dtype` (same order): a kernel gave it in another than it is
 * stored in. Emits the conversion. */
void rui_restand(rui_low *lo, ru_value_id v, ru_dtype dtype);

/* From here on the value stands in layout `l` alone; emits the reorder. For steps that go on
 * working in place on what another step of the same node has made. */
void rui_stand_only(rui_low *lo, ru_value_id v, const rui_layout *l);

/* No step at all: `v` is the memory of `from`, `offset_bytes` in. */
void rui_out_view(rui_low *lo, ru_value_id v, const rui_layout *l, rui_buf from,
                  int64_t offset_bytes);

/* A piece of a buffer, for steps that touch only that. */
rui_buf rui_buf_part(rui_low *lo, rui_buf from, int64_t offset_bytes, int64_t size_bytes);

/* Do both stand in one piece of memory (the same value, or a view of it)? */
bool rui_same_memory(const rui_low *lo, rui_buf a, rui_buf b);

/* Memory for this step only. 0 bytes gives absent. */
rui_buf rui_scratch(rui_low *lo, int64_t size_bytes);
/* Memory written by one step of this run and read by a later one (pooling workspaces). */
rui_buf rui_workspace(rui_low *lo, int64_t size_bytes);
/* Remember the workspace and a description under a value, for the lowering of its gradient. */
void rui_note(rui_low *lo, ru_value_id v, rui_buf workspace, const void *what);
bool rui_noted(const rui_low *lo, ru_value_id v, rui_buf *workspace, const void **what);
/* Memory that keeps its contents from run to run; `data` copied in once (NULL: zeros). */

void rui_emit(rui_low *lo, const rui_step *step);

/* Every lowering of the list. */
#define RUI_LOWER(op, name) ru_status rui_lower_##name(rui_low *lo, const ru_node *n, ru_err *err);
#include "exec/cpu/lower/lowerings.def"
#undef RUI_LOWER

#endif
