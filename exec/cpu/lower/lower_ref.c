/* The last resort of every op: its reference kernel on row-major data in the graph's dtypes. */
#include "exec/cpu/low/low.h"
#include "exec/ref.h"

typedef struct ref_state {
    ru_ref_fn fn;
    ru_ref_call call;
    ru_tensor *in, *out;
} ref_state;

static ru_status ref_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)bufs;
    ref_state *s = state;
    s->call.args = run->args;
    s->call.scratch = run->scratch;
    ru_arena_mark mark = ru_arena_mark_get(run->scratch);
    ru_status st = s->fn(&s->call, run->err);
    ru_arena_rewind(run->scratch, mark);
    return st;
}

static ru_status ref_bind(void *state, void *const *bufs, ru_err *err)
{
    (void)err;
    ref_state *s = state;
    for (uint32_t k = 0; k < s->call.node->n_in; k++) {
        s->in[k].data = bufs[k];
    }
    for (uint32_t k = 0; k < s->call.node->n_out; k++) {
        s->out[k].data = bufs[s->call.node->n_in + k];
    }
    return RU_OK;
}

ru_status rui_lower_ref(rui_low *lo, const ru_node *n, ru_err *err)
{
    ref_state *s = rui_keep(lo, sizeof *s);
    ru_ref_fn fn = ru_ref_kernel(n->op);
    if (fn == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "no kernel computes %s", ru_op_get(n->op)->name);
    }
    uint32_t n_bufs = n->n_in + n->n_out;
    rui_buf *bufs = rui_keep(lo, (int64_t)(n_bufs + 1) * (int64_t)sizeof *bufs);
    ru_tensor *tensors = rui_keep(lo, (int64_t)(n_bufs + 1) * (int64_t)sizeof *tensors);
    if (s == NULL || bufs == NULL || tensors == NULL) {
        return rui_done(lo);
    }
    for (uint32_t k = 0; k < n->n_in; k++) {
        tensors[k].type = lo->g->values[n->in[k].v].type;
        bufs[k] = rui_in_plain(lo, n->in[k]);
    }
    for (uint32_t k = 0; k < n->n_out; k++) {
        tensors[n->n_in + k].type = lo->g->values[n->out[k].v].type;
        bufs[n->n_in + k] = rui_out_plain(lo, n->out[k]);
    }
    *s = (ref_state){.fn = fn,
                     .call = {.node = n, .in = tensors, .out = tensors + n->n_in},
                     .in = tensors,
                     .out = tensors + n->n_in};
    const rui_step step = {.kernel = "ref",
                           .fn = ref_run,
                           .state = s,
                           .bufs = bufs,
                           .n_bufs = n_bufs,
                           .bind = ref_bind};
    rui_emit(lo, &step);
    return rui_done(lo);
}
