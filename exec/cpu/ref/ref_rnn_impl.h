/* Sizes, weights and places that the recurrent kernels share, forward and backward.
 *
 * Gates stand in ONNX's order: LSTM i o f c, GRU z r h. Weights are [dirs][gates*hid][...], biases
 * [dirs][2*gates*hid] (first W's, then R's). The workspace is row-major
 * [seq][dirs][batch][slots*hid] whatever the layout of X and Y.
 *
 * Thread: any, no shared state. */
#ifndef RU_EXEC_CPU_REF_REF_RNN_IMPL_H
#define RU_EXEC_CPU_REF_REF_RNN_IMPL_H

#include "exec/cpu/ref/ref_impl.h"

enum { RUI_RNN_DIRS_MAX = 2, RUI_RNN_ACTS_MAX = 3 };

typedef struct rui_act {
    const char *name;
    double alpha, beta;
} rui_act;

typedef struct rui_rnn {
    int64_t seq, batch, in, hid, dirs, gates;
    bool batch_first;   /* layout 1 */
    bool reverse_first; /* direction "reverse" */
    bool linear_before_reset, input_forget;
    double clip; /* 0: none */
    rui_act act[RUI_RNN_DIRS_MAX][RUI_RNN_ACTS_MAX];
    double *x, *w, *r, *b, *h0, *c0, *p; /* absent ones NULL */
    int64_t *lens;
} rui_rnn;

/* Sizes from the types of X and R, switches from the attributes. Errors: RU_E_DATA,
 * RU_E_UNSUPPORTED for an activation nobody knows. */
RU_MUST_USE ru_status rui_rnn_make(const ru_ref_call *c, const ru_type *x, const ru_type *r,
                                   int64_t gates, rui_rnn *n, ru_err *err);

double rui_act_apply(const rui_act *a, double x);

static inline bool rui_rnn_backward(const rui_rnn *n, int64_t dir)
{
    return dir == 1 || n->reverse_first;
}

static inline int64_t rui_rnn_len(const rui_rnn *n, int64_t b)
{
    return n->lens != NULL ? n->lens[b] : n->seq;
}

/* Time index of step s of a sequence of `len`. */
static inline int64_t rui_rnn_time(const rui_rnn *n, int64_t dir, int64_t len, int64_t s)
{
    return rui_rnn_backward(n, dir) ? len - 1 - s : s;
}

/* Element offsets. */
static inline int64_t rui_rnn_x_at(const rui_rnn *n, int64_t t, int64_t b)
{
    return (n->batch_first ? b * n->seq + t : t * n->batch + b) * n->in;
}

static inline int64_t rui_rnn_y_at(const rui_rnn *n, int64_t t, int64_t dir, int64_t b)
{
    return (n->batch_first ? (b * n->seq + t) * n->dirs + dir
                           : (t * n->dirs + dir) * n->batch + b) *
           n->hid;
}

static inline int64_t rui_rnn_h_at(const rui_rnn *n, int64_t dir, int64_t b)
{
    return (n->batch_first ? b * n->dirs + dir : dir * n->batch + b) * n->hid;
}

static inline int64_t rui_rnn_work_at(const rui_rnn *n, int64_t t, int64_t dir, int64_t b,
                                      int64_t slots)
{
    return ((t * n->dirs + dir) * n->batch + b) * slots * n->hid;
}

#endif
