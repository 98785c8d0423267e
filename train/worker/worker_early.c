/* Parameters whose sums are there are updated while the compute thread waits for the other sums.
 *
 *   loop     a sum is in place: noted                        verdict UPDATE | ABORT
 *   compute  ... backward | update, update, wait, update ... | the rest     | all taken back
 *
 * Whether the step counts is known only when all sums are there, so what was updated is kept as it
 * was until then: as much memory again as parameters and optimizer slots. Where that is more than
 * half of what is free, nothing is done early. */
#include "base/log.h"
#include "env/process/memory.h"
#include "exec/update.h"
#include "train/worker/worker_impl.h"

ru_status rui_early_open(rui_worker *w, ru_err *err)
{
    w->early.off = !w->t.job->train.early_update;
    w->early.at = RU_NEW(w->arena, rui_early_sum, RU_ELASTIC_BUCKETS_MAX);
    return w->early.at != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a worker");
}

/* -- loop thread ------------------------------------------------------------------------------- */

static void summed(void *self, int64_t step, uint32_t k, int64_t offset, int64_t size)
{
    rui_worker *w = self;
    (void)step;
    ru_mutex_lock(&w->lock);
    RU_CHECK(w->early.n < RU_ELASTIC_BUCKETS_MAX);
    w->early.at[w->early.n++] = (rui_early_sum){k, offset, size};
    ru_cond_signal(&w->changed);
    ru_mutex_unlock(&w->lock);
}

void rui_early_ops(ru_elastic_device_ops *ops)
{
    ops->summed = summed;
}

void rui_early_begin(rui_worker *w)
{
    ru_mutex_lock(&w->lock);
    w->early.n = w->early.done = 0;
    ru_mutex_unlock(&w->lock);
}

/* -- compute thread ---------------------------------------------------------------------------- */

static ru_status get_memory(rui_worker *w, ru_err *err)
{
    int64_t needed = ru_exe_early_bytes(w->now->exe);
    if (needed == 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "the update needs all gradients at once");
    }
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    int64_t free = ru_memory_free_bytes(&scratch);
    ru_arena_fini(&scratch);
    if (free >= 0 && needed > free / 2) {
        return RU_FAIL(err, RU_E_MEM, "early updates need %lld MiB, but %lld MiB are free",
                       (long long)(needed >> 20), (long long)(free >> 20));
    }
    return ru_exe_early_open(w->now->exe, err);
}

/* Memory for taking back, once for each executable that meets a sum in time. */
static bool ready(rui_worker *w)
{
    rui_early *e = &w->early;
    if (e->off || e->of == w->now) {
        return !e->off;
    }
    ru_err err = {0};
    if (get_memory(w, &err) != RU_OK) {
        ru_log(RU_LOG_INFO, "train", "early",
               "parameters are updated after all sums have arrived: %s", err.text);
        e->off = true;
    } else {
        e->of = w->now;
    }
    return !e->off;
}

bool rui_early_next(rui_worker *w)
{
    rui_early *e = &w->early;
    if (e->done == e->n || e->off) {
        return false;
    }
    rui_early_sum s = e->at[e->done++];
    ru_mutex_unlock(&w->lock);
    if (ready(w)) {
        ru_time begun = ru_clock_now();
        ru_exe_early(w->now->exe, w->now->tensors[s.tensor].value, s.offset_bytes, s.size_bytes);
        ru_time ended = ru_clock_now();
        e->ns += ru_time_since(ended, begun);
        ru_rec_span(w->t.recorder, w->t.names.early, begun.ns, ended.ns, s.size_bytes);
    }
    ru_mutex_lock(&w->lock);
    return true;
}

void rui_early_undo(rui_worker *w)
{
    if (w->early.of == w->now && w->now != NULL) {
        ru_exe_early_undo(w->now->exe);
    }
}
