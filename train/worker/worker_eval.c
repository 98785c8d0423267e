/* Evaluation, shared out: every worker has the same parameters after a step, so each evaluates some
 * of the batches.
 *
 *   member r of n     batches [r/n, (r+1)/n), one after the other; the sums of each --> leader
 *   leader            its own part; then from the last batch backwards what nobody has sent yet;
 *                     OVER --> all: who is still at it stops
 *
 * So nobody is waited for, and who is slow, new or gone costs no more than its part. The leader
 * adds the sums in the order of the batches: the metrics are those of one process. */
#include <string.h>

#include "base/log.h"
#include "base/wire.h"
#include "train/worker/worker_impl.h"

/* -- compute thread ---------------------------------------------------------------------------- */

ru_status rui_evals_open(rui_worker *w, ru_err *err)
{
    rui_evals *e = &w->evals;
    rui_trainer *t = &w->t;
    if (t->eval == NULL) {
        ru_step_options so;
        ru_exe_options eo;
        rui_trainer_options(t, &so, &eo);
        RU_TRY(rui_trainer_eval_open(t, &eo, err));
    }
    int64_t n = ru_eval_batches(t->eval);
    if (e->n == n) {
        return RU_OK;
    }
    ru_eval_sums *at = ru_arena_alloc(w->arena, n * (int64_t)sizeof *at, 8);
    int64_t *have = ru_arena_zalloc(w->arena, n * (int64_t)sizeof *have, 8);
    if (at == NULL || have == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the evaluation");
    }
    ru_mutex_lock(&w->lock);
    e->at = at;
    e->have = have;
    e->n = n;
    ru_mutex_unlock(&w->lock);
    return RU_OK;
}

static bool is_over(void *self)
{
    rui_worker *w = self;
    ru_mutex_lock(&w->lock);
    bool over = w->evals.over >= w->t.step_done;
    ru_mutex_unlock(&w->lock);
    return over;
}

static void keep(void *self, int64_t batch, const ru_eval_sums *sums)
{
    rui_worker *w = self;
    ru_mutex_lock(&w->lock);
    w->evals.at[batch] = *sums;
    w->evals.have[batch] = w->t.step_done;
    ru_mutex_unlock(&w->lock);
}

static void keep_and_tell(void *self, int64_t batch, const ru_eval_sums *sums)
{
    rui_worker *w = self;
    rui_worker_post(w, &(rui_word){.kind = RUI_WORD_EVALUATED,
                                   .ns = w->t.step_done,
                                   .tensor = (uint32_t)batch,
                                   .sums = *sums});
}

/* The batches of this worker. */
static ru_eval_part part_of(rui_worker *w)
{
    int64_t n = w->evals.n, members = w->cmd.members > 0 ? w->cmd.members : 1;
    return (ru_eval_part){.first = n * w->cmd.rank / members,
                          .end = n * (w->cmd.rank + 1) / members,
                          .done = keep,
                          .self = w};
}

static bool there(rui_worker *w, int64_t batch)
{
    ru_mutex_lock(&w->lock);
    bool have = w->evals.have[batch] == w->t.step_done;
    ru_mutex_unlock(&w->lock);
    return have;
}

ru_status rui_worker_evaluate(rui_worker *w, ru_err *err)
{
    rui_trainer *t = &w->t;
    ru_time begun = ru_clock_now();
    RU_TRY(ru_eval_state_from(t->eval, &t->step.graph, t->exe, err));
    ru_eval_part part = part_of(w);
    RU_TRY(ru_eval_run_part(t->eval, &part, err));
    for (int64_t b = w->evals.n - 1; b >= 0; b--) {
        part.first = b;
        part.end = b + 1;
        if (!there(w, b)) {
            RU_TRY(ru_eval_run_part(t->eval, &part, err));
        }
    }
    rui_worker_post(w, &(rui_word){.kind = RUI_WORD_EVALUATED, .ns = t->step_done, .over = true});
    ru_mutex_lock(&w->lock); /* who sent late does not write any more */
    w->evals.over = t->step_done;
    ru_mutex_unlock(&w->lock);
    ru_eval_metrics(t->eval, w->evals.at, &t->metrics);
    return rui_trainer_evaluated(t, begun, err);
}

/* What goes wrong here is the leader's to find: it runs what is missing. */
void rui_worker_help(rui_worker *w)
{
    rui_trainer *t = &w->t;
    ru_err err = {0};
    if (!rui_trainer_eval_due(t) || w->cmd.share.n == 0 || w->cmd.members < 2 || is_over(w)) {
        return;
    }
    ru_eval_part part = part_of(w);
    part.stop = is_over;
    part.done = keep_and_tell;
    ru_time begun = ru_clock_now();
    ru_status st = ru_eval_state_from(t->eval, &t->step.graph, t->exe, &err);
    st = st == RU_OK ? ru_eval_run_part(t->eval, &part, &err) : st;
    ru_rec_span(t->recorder, t->names.eval, begun.ns, ru_clock_now().ns, t->step_done);
    if (st != RU_OK && st != RU_E_CANCELLED) {
        ru_log(RU_LOG_WARN, "train", "evaluation",
               "this worker cannot evaluate its part, so the leader does: %s", err.text);
    }
}

/* -- loop thread ------------------------------------------------------------------------------- */

enum { SUMS_BYTES = 8 + 4 + 4 * 8, OVER_BYTES = 8 };

static void put_f64(ru_wire_out *o, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    ru_wire_put_u64(o, bits);
}

static double get_f64(ru_wire_in *in)
{
    uint64_t bits = ru_wire_u64(in);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

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
        put_f64(&o, x->sums.loss);
        put_f64(&o, x->sums.weight);
        put_f64(&o, x->sums.correct);
        put_f64(&o, x->sums.count);
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
        s.loss = get_f64(&in);
        s.weight = get_f64(&in);
        s.correct = get_f64(&in);
        s.count = get_f64(&in);
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
