/* Batches that adapt (train.adapt): the leader fits the time of a step to what it measures
 * (cost/goodput.h), and chooses the batch with the most progress a second for the workers that
 * there are. Another batch begins a view (ru_pace), so that all workers change it together.
 *
 *   compute thread   each step noted
 *                    of the leader, four times a second: fit, choose --> wanted (under the lock)
 *   loop thread      `pace` of train/elastic: what is wanted
 *
 * A batch is changed when that is worth 5 %, to at most four times and at least half of what it is:
 * what was not measured is a guess. Its gain in progress is changed when it is off by 5 %. A new
 * leader has noted steps as the others have, and takes the noise from the gain that is in force
 * until it has measured enough of its own. A worker alone takes it from pairs of steps, so that a
 * larger batch is one pass there too. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "env/process/memory.h"
#include "train/worker/worker_impl.h"

enum {
    WARM = 3,  /* first steps of a configuration that do not count */
    STEPS = 8, /* that must have been measured in it before it is changed */
    MORE = 4,  /* times the batch that there is, at most */
};

#define WORTH 1.05

static const int64_t look_ns = 250000000;

/* Half of the free memory may go to a larger pass. */
void rui_adapt_built(rui_worker *w, rui_build *b)
{
    const ru_job_adapt *j = &w->t.job->train.adapt;
    rui_adapt *a = &w->noise.adapt;
    ru_exe_stats s;
    if (j->batch_max == 0) {
        return;
    }
    ru_exe_stats_get(b->exe, &s);
    int64_t n = b->n / (b->step.micro > 0 ? b->step.micro : 1);
    int64_t free = ru_memory_free_bytes();
    double may = (double)s.arena_bytes + (double)(free > 0 ? free : 0) / 2;
    double most = s.arena_bytes > 0 && n > 0 ? (double)n * may / (double)s.arena_bytes : 1e9;
    a->local_max = j->local_max > 0 ? j->local_max : most < 1e9 ? (int64_t)most : 1000000000;
    a->local_max = a->local_max > 1 ? a->local_max : 1;
}

void rui_adapt_pace(void *self, ru_pace *p)
{
    rui_worker *w = self;
    ru_mutex_lock(&w->lock);
    if (w->noise.adapt.wanted.batch > 0) {
        *p = w->noise.adapt.wanted;
    }
    ru_mutex_unlock(&w->lock);
}

/* The place of this configuration; if there is no room, that of the one with the fewest steps. */
static rui_adapt_seen *seen(rui_adapt *a, uint32_t nodes, uint32_t replicas, uint32_t local)
{
    rui_adapt_seen *to = a->seen;
    for (uint32_t k = 0; k < a->n; k++) {
        rui_adapt_seen *s = &a->seen[k];
        if (s->nodes == nodes && s->replicas == replicas && s->local == local) {
            return s;
        }
        to = s->steps < to->steps ? s : to;
    }
    to = a->n < RUI_ADAPT_SEEN ? &a->seen[a->n++] : to;
    *to = (rui_adapt_seen){.nodes = nodes, .replicas = replicas, .local = local};
    return to;
}

static ru_status fit(rui_adapt *a, ru_arena *scratch)
{
    ru_perf_sample samples[RUI_ADAPT_SEEN];
    ru_err err;
    uint32_t n = 0;
    for (uint32_t k = 0; k < a->n; k++) {
        const rui_adapt_seen *s = &a->seen[k];
        if (s->steps >= STEPS) {
            samples[n++] = (ru_perf_sample){.nodes = s->nodes,
                                            .replicas = s->replicas,
                                            .local = s->local,
                                            .pass_s = s->pass_s / s->steps,
                                            .step_s = s->step_s / s->steps};
        }
    }
    const ru_perf before = a->perf;
    return ru_perf_fit(samples, n, before.overlap >= 1 ? &before : NULL, scratch, &a->perf, NULL,
                       &err);
}

/* Progress of a step of that batch, in steps of the first. */
static double gain_of(const ru_goodput_model *m, int64_t batch)
{
    return (double)batch / m->batch_first * ru_goodput_efficiency(m, (double)batch);
}

/* Passes of one size alone do not tell how much of a pass grows with its samples; half the batch
 * tells it. Worth trying if steps are worth much less than their samples. */
static bool halves(const rui_adapt *a, const ru_goodput_model *m, int64_t batch)
{
    uint32_t local = 0;
    RU_CHECK(a->n <= RUI_ADAPT_SEEN && m->batch_first > 0);
    for (uint32_t k = 0; k < a->n; k++) {
        if (a->seen[k].steps >= STEPS && local > 0 && a->seen[k].local != local) {
            return false;
        }
        local = a->seen[k].steps >= STEPS ? a->seen[k].local : local;
    }
    return batch >= 2 * (int64_t)m->batch_first &&
           ru_goodput_efficiency(m, (double)batch / 2) >
               WORTH * ru_goodput_efficiency(m, (double)batch);
}

static void choose(rui_worker *w, const rui_adapt_seen *now)
{
    rui_adapt *a = &w->noise.adapt;
    const ru_job_train *j = &w->t.job->train;
    const ru_share *share = &w->cmd.share;
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_status st = fit(a, &scratch);
    ru_arena_fini(&scratch);
    if (st != RU_OK) {
        return;
    }
    int64_t most = j->adapt.batch_max < w->t.count ? j->adapt.batch_max : w->t.count;
    const ru_goodput_model m = {.perf = a->perf,
                                .sqr = 1,
                                .var = w->t.learned.noise / (double)j->batch,
                                .batch_first = (uint32_t)j->batch,
                                .batch_max = (uint32_t)most,
                                .local_min = 1,
                                .local_max = (uint32_t)a->local_max,
                                .one_pass = true};
    ru_goodput_choice c = ru_goodput_best(&m, now->nodes, now->replicas);
    double here = ru_goodput_at(&m, now->nodes, now->replicas, now->local, a->passes - 1);
    int64_t batch = (int64_t)now->replicas * c.local * (c.passes + 1);
    batch = batch > MORE * share->batch ? MORE * share->batch : batch;
    batch = 2 * batch < share->batch ? share->batch / 2 : batch;
    batch = batch < j->batch ? j->batch : batch > most ? most : batch;
    bool other = c.goodput > WORTH * here && batch != share->batch;
    if (!other && halves(a, &m, share->batch)) {
        batch = share->batch / 2;
        other = true;
    }
    double gain = gain_of(&m, other ? batch : share->batch);
    if (!other && gain <= WORTH * share->gain && share->gain <= WORTH * gain) {
        return;
    }
    if (other) {
        ru_log(RU_LOG_INFO, "train", "adapt",
               "a batch of %lld instead of %lld samples is worth %.3g %% (gradient noise scale "
               "%.3g)",
               (long long)batch, (long long)share->batch, 100 * (c.goodput / here - 1),
               w->t.learned.noise);
    }
    ru_mutex_lock(&w->lock);
    a->wanted = (ru_pace){.batch = other ? batch : share->batch, .gain = gain};
    ru_mutex_unlock(&w->lock);
}

void rui_adapt_stepped(rui_worker *w, const ru_run_report_step *s)
{
    rui_adapt *a = &w->noise.adapt;
    const ru_share *share = &w->cmd.share;
    if (w->t.job->train.adapt.batch_max == 0 || w->cmd.workers == 0 || share->n == 0) {
        a->since = 0;
        return;
    }
    uint32_t passes = w->t.step.micro > 0 ? w->t.step.micro : 1;
    bool same = a->batch == s->batch && a->workers == w->cmd.workers && a->passes == passes;
    a->since = same ? a->since + 1 : 0;
    a->batch = s->batch;
    a->workers = w->cmd.workers;
    a->passes = passes;
    if (a->since < WARM || s->step_ns <= 0) {
        return;
    }
    int64_t parts = (int64_t)a->workers * passes;
    rui_adapt_seen *x = seen(a, rui_trainer_hosts(&w->t, NULL), a->workers,
                             (uint32_t)((s->batch + parts - 1) / parts));
    double step_s = 1e-9 * (double)s->step_ns, own_s = 1e-9 * (double)s->compute_ns;
    double pass_s = own_s > 0 && own_s < step_s ? own_s / passes : step_s / passes;
    x->steps += 1;
    x->pass_s += pass_s;
    x->step_s += step_s - (passes - 1) * pass_s;
    ru_time now = ru_clock_now();
    if (w->cmd.leads && w->t.learned.noise <= 0) {
        w->t.learned.noise =
            ru_goodput_noise((double)w->t.job->train.batch, (double)share->batch, share->gain);
    }
    if (w->cmd.leads && x->steps >= STEPS && w->t.learned.noise > 0 &&
        (a->looked.ns == 0 || ru_time_since(now, a->looked) >= look_ns)) {
        a->looked = now;
        choose(w, x);
    }
}
