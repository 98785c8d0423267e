/* Evaluation, shared out: every worker has the same parameters after a step, so each evaluates some
 * of the batches.
 *
 *   member r of n     batches [r/n, (r+1)/n), one after the other; the sums of each --> leader
 *   leader            its own part; then from the last batch backwards what nobody has sent yet;
 *                     OVER --> all: who is still at it stops
 *
 * So nobody is waited for, and who is slow, new or gone costs no more than its part. The leader
 * adds the sums in the order of the batches: the metrics are those of one process. */

#include "base/log.h"
#include "base/wire.h"
#include "train/worker/worker_impl.h"

/* -- compute thread ---------------------------------------------------------------------------- */

static ru_status evals_open(void *self, int64_t n, ru_err *err)
{
    rui_worker *w = self;
    ru_eval_sums *at = ru_arena_alloc(w->arena, n * (int64_t)sizeof *at, 8);
    int64_t *have = ru_arena_zalloc(w->arena, n * (int64_t)sizeof *have, 8);
    if (at == NULL || have == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the evaluation");
    }
    ru_mutex_lock(&w->lock);
    w->evals.at = at;
    w->evals.have = have;
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
    }
    ru_mutex_unlock(&w->lock);
    return have;
}

static void over(void *self, int64_t step)
{
    rui_worker *w = self;
    rui_worker_post(w, &(rui_word){.kind = RUI_WORD_EVALUATED, .ns = step, .over = true});
    ru_mutex_lock(&w->lock); /* who sent late does not write any more */
    w->evals.over = step;
    ru_mutex_unlock(&w->lock);
}

static void send(void *self, int64_t step, int64_t batch, const ru_eval_sums *sums)
{
    rui_worker_post(self, &(rui_word){.kind = RUI_WORD_EVALUATED,
                                      .ns = step,
                                      .tensor = (uint32_t)batch,
                                      .sums = *sums});
}

static bool is_over(void *self, int64_t step)
{
    rui_worker *w = self;
    ru_mutex_lock(&w->lock);
    bool yes = w->evals.over >= step;
    ru_mutex_unlock(&w->lock);
    return yes;
}

const rui_helpers rui_worker_helpers = {
    .open = evals_open, .got = got, .over = over, .send = send, .is_over = is_over};

/* -- loop thread ------------------------------------------------------------------------------- */

enum { SUMS_BYTES = 8 + 4 + 4 * 8, OVER_BYTES = 8 };

void rui_evals_tell(rui_worker *w, const rui_word *x, ru_time now)
{
    uint8_t buf[SUMS_BYTES];
    const ru_view *v = ru_member_view(ru_peer_member(w->node));
    ru_chan *ch = ru_peer_chan(w->node);
    ru_wire_out o = ru_wire_out_into(buf, sizeof buf);
    ru_wire_put_u64(&o, (uint64_t)x->ns);
    for (uint32_t k = 0; x->over && k < v->n; k++) {
        if (!ru_member_leads(ru_peer_member(w->node)) || k == w->rank) {
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
        (void)!ru_chan_message(ch, v->leader, RUI_MSG_EVAL, buf, ru_wire_size(&o), now);
    }
}

void rui_evals_hear(rui_worker *w, uint32_t what, const void *data, int64_t size_bytes)
{
    rui_evals *e = &w->evals;
    ru_wire_in in = ru_wire_in_from(data, size_bytes);
    int64_t step = (int64_t)ru_wire_u64(&in), batch = 0;
    ru_eval_sums s = {0};
    if (what == RUI_MSG_EVAL) {
        batch = ru_wire_u32(&in);
        s.loss = ru_wire_f64(&in);
        s.weight = ru_wire_f64(&in);
        s.correct = ru_wire_f64(&in);
        s.count = ru_wire_f64(&in);
    }
    ru_mutex_lock(&w->lock);
    if (in.bad || ru_wire_left(&in) != 0) {
        ru_log(RU_LOG_WARN, "train", "evaluation", "refused a malformed message");
    } else if (what == RUI_MSG_EVAL_OVER) {
        e->over = step > e->over ? step : e->over;
    } else if (batch < e->n && step > e->over && e->have[batch] < step) {
        e->at[batch] = s;
        e->have[batch] = step;
    }
    ru_mutex_unlock(&w->lock);
}
