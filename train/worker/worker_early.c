/* Parameters whose sums are there are updated while others are still on their way: where the
 * compute thread waits for the verdict about a step, or beside the next step (exec/update.h).
 *
 *   loop     a sum is in place: noted                         verdict UPDATE | ABORT
 *   compute  ... backward | update, update, next step ...     | the rest     | all taken back
 *
 * Whether a step counts is known only when all sums are there everywhere, so what was updated is
 * kept as it was until then: as much memory again as parameters and optimizer slots. Beside the
 * next step gradients have memory of their own as well. Where that is more than half of what is
 * free, nothing is done early. */
#include "base/log.h"
#include "env/process/memory.h"
#include "exec/update.h"
#include "train/worker/worker_impl.h"

ru_status rui_early_open(rui_worker *w, ru_err *err)
{
    w->early.at = RU_NEW(w->arena, rui_early_sum, RU_ELASTIC_BUCKETS_MAX);
    return w->early.at != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a worker");
}

/* -- loop thread ------------------------------------------------------------------------------- */

static void summed(void *self, int64_t step, uint32_t k, int64_t offset, int64_t size)
{
    rui_worker *w = self;
    (void)step; /* the oldest under way */
    ru_mutex_lock(&w->lock);
    RU_CHECK(w->early.n < RU_ELASTIC_BUCKETS_MAX);
    w->early.at[w->early.n++] = (rui_early_sum){k, offset, size};
    ru_cond_signal(&w->changed);
    ru_mutex_unlock(&w->lock);
}

static uint32_t depth(void *self, const char **why)
{
    const rui_worker *w = self;
    *why = w->now->two ? "" : w->now->why;
    return w->now->two ? 2 : 1;
}

/* What the compute thread does between this step and the next, if anything. */
static const char *barrier(void *self, int64_t step)
{
    rui_worker *w = self;
    const rui_trainer *t = &w->t;
    const ru_share *s = &w->ahead.share;
    RU_CHECK(step == w->ahead.step); /* nobody asks of a step when a later one has begun */
    int64_t done = step + 1, before = s->at - s->first;
    const rui_place from = {step, before, s->done};
    const rui_place to = {done, before + s->batch, s->done + s->gain};
    if (t->test_set != NULL && rui_trainer_eval_between(t, &from, &to)) {
        return "an evaluation follows";
    }
    if (!rui_worker_leads(w)) {
        return NULL;
    }
    int64_t every = t->job->checkpoint.every_ns, hists = t->job->train.histograms;
    ru_mutex_lock(&w->lock);
    ru_time saved = w->ahead.saved;
    bool capture = w->capture.due;
    ru_mutex_unlock(&w->lock);
    return every > 0 && ru_time_since(ru_clock_now(), saved) >= every ? "a checkpoint follows"
           : hists > 0 && done % hists == 0                           ? "histograms follow"
           : capture                                                  ? "the world file is written"
                                                                      : NULL;
}

void rui_early_ops(ru_elastic_device_ops *ops)
{
    ops->summed = summed;
    ops->depth = depth;
    ops->barrier = barrier;
}

void rui_early_clear(rui_worker *w)
{
    w->early.n = w->early.done = 0;
}

/* -- compute thread ---------------------------------------------------------------------------- */

static int64_t sum_of(const int64_t *bytes, uint32_t n)
{
    int64_t sum = 0;
    for (uint32_t k = 0; k < n; k++) {
        sum += bytes[k];
    }
    return sum;
}

bool rui_early_two(rui_worker *w, const char **why)
{
    const rui_list *l = &w->list;
    int64_t free = ru_memory_free_bytes();
    int64_t needed = sum_of(l->tensor_bytes, l->n_tensors) + sum_of(l->state_bytes, l->n_states);
    *why = w->t.job->train.barrier == RU_BARRIER_ALWAYS ? "train.barrier is always"
           : !w->t.job->train.early_update              ? "train.early_update is false"
           : w->cmd.members < 2                         ? "the step was made for one worker alone"
           : !rui_early_may(needed, free) ? "gradients and what can be taken back need more than "
                                            "half of the free memory"
                                          : NULL;
    return *why == NULL;
}

static ru_status get_memory(const rui_worker *w, const rui_build *b, ru_err *err)
{
    if (!w->t.job->train.early_update) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "train.early_update is false");
    }
    int64_t needed = ru_exe_early_bytes(b->exe), free = ru_memory_free_bytes();
    if (needed == 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "the update needs all gradients at once");
    }
    if (!rui_early_may(needed, free)) {
        return RU_FAIL(err, RU_E_MEM, "early updates need %lld MiB, but %lld MiB are free",
                       (long long)(needed >> 20), (long long)(free >> 20));
    }
    return ru_exe_early_open(b->exe, err);
}

void rui_early_ready(rui_worker *w, rui_build *b)
{
    ru_err err = {0};
    b->early = get_memory(w, b, &err) == RU_OK;
    b->why = b->two && !b->early ? ru_exe_early_bytes(b->exe) == 0
                                       ? "the update needs all gradients at once"
                                       : "taking updates back needs more than half of the free "
                                         "memory"
                                 : b->why;
    b->two = b->two && b->early;
    if (!b->early && !w->early.told && w->t.job->train.early_update && w->cmd.members > 1) {
        w->early.told = true;
        ru_log(RU_LOG_INFO, "train", "early",
               "parameters are updated after all sums have arrived: %s", err.text);
    }
}

bool rui_early_next(rui_worker *w)
{
    rui_early *e = &w->early;
    if (e->done == e->n || !ru_exe_update_is_open(w->now->exe) ||
        rui_noise_holds(w, &w->d.ran[0].turn)) {
        return false;
    }
    rui_early_sum s = e->at[e->done++];
    ru_mutex_unlock(&w->lock);
    ru_time begun = ru_clock_now();
    rui_noise_summed(w, &w->d.ran[0].turn, &s);
    ru_exe_early(w->now->exe, w->now->tensors[s.tensor].value, s.offset_bytes, s.size_bytes);
    ru_time ended = ru_clock_now();
    w->at.made_ns += ru_time_since(ended, begun);
    ru_rec_span(w->t.recorder, w->t.names.early, begun.ns, ended.ns, s.size_bytes);
    ru_mutex_lock(&w->lock);
    return true;
}
