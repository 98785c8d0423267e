/* Evaluation, shared out: every worker has the same parameters after a step, so each evaluates some
 * of the batches.
 *
 *   member r of n     batches [r/n, (r+1)/n), one after the other; the sums of each --> leader,
 *                     with outputs and labels where figures need them (train/driver/scores.h)
 *   leader            its own part; then from the last batch backwards what nobody has sent yet;
 *                     OVER --> all: who is still at it stops
 *
 * So nobody is waited for, and who is slow, new or gone costs no more than its part. The leader
 * adds the sums in the order of the batches: the metrics are those of one process. */

#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "train/worker/worker_impl.h"

/* What a message about a batch has: step, batch, four sums; then outputs and labels, if figures
 * need them. */
enum {
    SUMS_BYTES = 8 + 4 + 4 * 8,
    OVER_BYTES = 8,
    ROWS_MAX_BYTES = RU_CHAN_MESSAGE_MAX - SUMS_BYTES - 256, /* with what peers put before it */
};

/* -- compute thread ---------------------------------------------------------------------------- */

static ru_status evals_open(void *self, int64_t n, ru_err *err)
{
    rui_worker *w = self;
    ru_eval_sums *at = ru_arena_alloc(w->arena, n * (int64_t)sizeof *at, 8);
    int64_t *have = ru_arena_zalloc(w->arena, n * (int64_t)sizeof *have, 8);
    int64_t bytes = ru_eval_rows_bytes(w->t.eval, 0);
    bytes = bytes <= ROWS_MAX_BYTES ? bytes : 0; /* else nobody helps */
    uint8_t *rows = ru_arena_alloc(w->arena, n * bytes + 1, 64);
    uint8_t *message = ru_arena_alloc(w->arena, SUMS_BYTES + bytes, 64);
    if (at == NULL || have == NULL || rows == NULL || message == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the evaluation");
    }
    ru_mutex_lock(&w->lock);
    w->evals.at = at;
    w->evals.have = have;
    w->evals.rows = rows;
    w->evals.rows_bytes = bytes;
    w->evals.message = message;
    w->evals.n = n;
    ru_mutex_unlock(&w->lock);
    return RU_OK;
}

static bool got(void *self, int64_t step, int64_t batch, ru_eval_sums *into)
{
    rui_worker *w = self;
    ru_mutex_lock(&w->lock);
    bool have = w->evals.have[batch] == step;
    if (have) {
        *into = w->evals.at[batch];
        if (w->evals.rows_bytes > 0) {
            ru_eval_rows_unpack(w->t.eval, batch, w->evals.rows + batch * w->evals.rows_bytes);
        }
    }
    ru_mutex_unlock(&w->lock);
    return have;
}

static void over(void *self, int64_t step)
{
    rui_worker *w = self;
    ru_shell_say(&w->shell, &w->line,
                 &(rui_event){.kind = RUI_EVENT_EVALUATED, .ns = step, .over = true});
    ru_mutex_lock(&w->lock); /* who sent late does not write any more */
    w->evals.over = step;
    ru_mutex_unlock(&w->lock);
}

static void send(void *self, int64_t step, int64_t batch, const ru_eval_sums *sums)
{
    rui_worker *w = self;
    ru_shell_say(
        &w->shell, &w->line,
        &(rui_event){
            .kind = RUI_EVENT_EVALUATED, .ns = step, .tensor = (uint32_t)batch, .sums = *sums});
}

static bool is_over(void *self, int64_t step)
{
    rui_worker *w = self;
    ru_mutex_lock(&w->lock);
    bool yes = w->evals.over >= step;
    ru_mutex_unlock(&w->lock);
    return yes;
}

const rui_helpers rui_worker_helpers = {.open = evals_open,
                                        .rows_max_bytes = ROWS_MAX_BYTES,
                                        .got = got,
                                        .over = over,
                                        .send = send,
                                        .is_over = is_over};

/* -- loop thread ------------------------------------------------------------------------------- */

/* The rows of a batch stay as they are until this word is taken: the compute thread evaluates again
 * in a later turn, which the loop thread gives. */
void rui_evals_tell(rui_worker *w, const rui_event *x, ru_time now)
{
    uint8_t head[OVER_BYTES];
    const rui_evals *e = &w->evals;
    uint8_t *buf = x->over ? head : e->message;
    int64_t rows = x->over || e->rows_bytes == 0 ? 0 : ru_eval_rows_bytes(w->t.eval, x->tensor);
    const ru_view *v = ru_member_view(ru_node_member(w->shell.timers.node));
    ru_chan *ch = ru_node_chan(w->shell.timers.node);
    ru_wire_out o = ru_wire_out_into(buf, x->over ? OVER_BYTES : SUMS_BYTES);
    ru_wire_put_u64(&o, (uint64_t)x->ns);
    for (uint32_t k = 0; x->over && k < v->n; k++) {
        if (!ru_member_leads(ru_node_member(w->shell.timers.node)) || k == w->rank) {
            continue;
        }
        (void)!ru_chan_message(ch, v->at[k].node, RUI_MSG_EVAL_OVER, buf, OVER_BYTES, now);
    }
    if (!x->over) {
        ru_wire_put_u32(&o, x->tensor);
        ru_wire_put_f64(&o, x->sums.loss);
        ru_wire_put_f64(&o, x->sums.weight);
        ru_wire_put_f64(&o, x->sums.correct);
        ru_wire_put_f64(&o, x->sums.count);
        if (rows > 0) {
            ru_eval_rows_pack(w->t.eval, x->tensor, buf + SUMS_BYTES);
        }
        (void)!ru_chan_message(ch, v->leader, RUI_MSG_EVAL, buf, SUMS_BYTES + rows, now);
    }
}

/* Sums of a batch, and its rows where they are needed. False: malformed. */
static bool hear_batch(rui_evals *e, const ru_eval *eval, int64_t step, ru_wire_in *in)
{
    int64_t batch = ru_wire_u32(in);
    ru_eval_sums s = {0};
    s.loss = ru_wire_f64(in);
    s.weight = ru_wire_f64(in);
    s.correct = ru_wire_f64(in);
    s.count = ru_wire_f64(in);
    if (in->bad) {
        return false;
    }
    if (batch >= e->n || step <= e->over || e->have[batch] >= step) {
        return true; /* not asked for any more, or not yet */
    }
    int64_t rows = e->rows_bytes > 0 ? ru_eval_rows_bytes(eval, batch) : 0;
    if (ru_wire_left(in) != rows) {
        return false;
    }
    if (rows > 0) {
        memcpy(e->rows + batch * e->rows_bytes, ru_wire_bytes(in, rows), (size_t)rows);
    }
    e->at[batch] = s;
    e->have[batch] = step;
    return true;
}

void rui_evals_hear(rui_worker *w, uint32_t what, const void *data, int64_t size_bytes)
{
    rui_evals *e = &w->evals;
    ru_wire_in in = ru_wire_in_from(data, size_bytes);
    int64_t step = (int64_t)ru_wire_u64(&in);
    ru_mutex_lock(&w->lock);
    bool right = !in.bad && (what == RUI_MSG_EVAL ? hear_batch(e, w->t.eval, step, &in)
                                                  : ru_wire_left(&in) == 0);
    if (right && what == RUI_MSG_EVAL_OVER) {
        e->over = step > e->over ? step : e->over;
    }
    ru_mutex_unlock(&w->lock);
    if (!right) {
        ru_log(RU_LOG_WARN, "train", "evaluation", "refused a malformed message");
    }
}
