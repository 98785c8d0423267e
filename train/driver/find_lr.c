#include "train/driver/find_lr.h"

#include <math.h>

#include "base/str.h"
#include "env/file/file.h"

#define MEAN_DECAY 0.8 /* of the moving mean that tells when to stop */
#define GROWN      4.0 /* times the lowest mean: the run diverges */

enum { AROUND = 4 }; /* points on each side that a mean takes in: a third of a decade */

void rui_sweep_begin(const ru_lr_sweep *s, ru_schedule *schedule, double *lr)
{
    *schedule =
        (ru_schedule){.kind = RU_SCHEDULE_SWEEP, .floor = s->to / s->from, .steps = s->steps};
    *lr = s->from;
}

bool rui_sweep_put(ru_lr_sweep *s, double lr, double loss)
{
    RU_CHECK(s->n < s->steps);
    s->at[s->n++] = (ru_sweep_point){.lr = lr, .loss = loss};
    s->sum = MEAN_DECAY * s->sum + (1 - MEAN_DECAY) * loss;
    double mean = s->sum / (1 - pow(MEAN_DECAY, (double)s->n));
    s->best = s->n == 1 || mean < s->best ? mean : s->best;
    return s->n >= RU_SWEEP_LEAST && loss > s->best && fabs(loss) > GROWN * fabs(s->best);
}

/* Means over as many points on the left as on the right, so that no rate is late. */
static int64_t fill_means(ru_lr_sweep *s)
{
    int64_t low = 0;
    for (int64_t k = 0; k < s->n; k++) {
        int64_t w = k < s->n - 1 - k ? k : s->n - 1 - k;
        w = w < AROUND ? w : AROUND;
        double sum = 0;
        for (int64_t i = k - w; i <= k + w; i++) {
            sum += s->at[i].loss;
        }
        s->at[k].mean = sum / (double)(2 * w + 1);
        low = s->at[k].mean < s->at[low].mean ? k : low;
    }
    return low;
}

ru_status ru_sweep_judge(ru_lr_sweep *s, ru_lr_found *out, ru_err *err)
{
    int64_t low = fill_means(s), at = 0;
    double steepest = 0;
    for (int64_t k = 1; k < low; k++) { /* slope over the logarithm, whose steps are equal */
        double slope = s->at[k + 1].mean - s->at[k - 1].mean;
        if (slope < steepest) {
            steepest = slope;
            at = k;
        }
    }
    if (s->n < RU_SWEEP_LEAST || at == 0) {
        return RU_FAIL(err, RU_E_USER,
                       "the loss does not fall at any learning rate from %g to %g (%lld steps); "
                       "check the data, the loss function and the model",
                       s->from, s->n > 0 ? s->at[s->n - 1].lr : s->to, (long long)s->n);
    }
    *out = (ru_lr_found){.lr = s->at[at].lr, .lowest = s->at[low].lr, .at = s->at, .n = s->n};
    return RU_OK;
}

static ru_status write_curve(const ru_lr_found *f, ru_arena *arena, ru_err *err)
{
    ru_text csv = ru_text_arena(arena);
    ru_text_put(&csv, "lr,loss,mean\n");
    for (int64_t k = 0; k < f->n; k++) {
        ru_text_f64(&csv, f->at[k].lr);
        ru_text_put(&csv, ",");
        ru_text_f64(&csv, f->at[k].loss);
        ru_text_put(&csv, ",");
        ru_text_f64(&csv, f->at[k].mean);
        ru_text_put(&csv, "\n");
    }
    const char *path = ru_path_join(arena, f->out, "find-lr.csv");
    if (path == NULL || csv.cut) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the curve of learning rates");
    }
    return ru_file_own(path, csv.p, csv.n, err);
}

/* The job without what does not belong to a trial. */
static ru_job trial_of(const ru_job *job, ru_arena *arena)
{
    ru_job j = *job;
    const char *name = ru_arena_printf(arena, "%s-find-lr", job->name);
    j.name = name != NULL ? name : job->name;
    j.data.test.n = 0;
    j.data.test_count = 0;
    j.train.until.n = 0;
    j.train.patience = 0;
    j.train.eval_every = INT64_MAX;
    j.train.epochs = 0;
    j.train.steps = RU_SWEEP_STEPS;
    j.checkpoint.every_ns = 0;
    j.checkpoint.keep_best = false;
    return j;
}

ru_status ru_find_lr(const ru_train_options *opt, ru_arena *arena, ru_lr_found *out, ru_err *err)
{
    ru_lr_sweep sweep = {.from = 1e-7,
                         .to = 10,
                         .steps = RU_SWEEP_STEPS,
                         .at = RU_NEW(arena, ru_sweep_point, RU_SWEEP_STEPS)};
    if (sweep.at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to try learning rates");
    }
    ru_job job = trial_of(opt->job, arena);
    ru_train_options to = *opt;
    ru_train_result result = {0};
    ru_err why = {0};
    to.job = &job;
    to.sweep = &sweep;
    ru_status st = ru_train(&to, arena, &result, &why);
    if (st == RU_E_USER && sweep.n >= RU_SWEEP_LEAST) {
        st = RU_OK; /* it diverged: that is how a sweep may end */
    }
    if (st != RU_OK) {
        return RU_FAIL(err, st, "%s", why.text);
    }
    RU_TRY(ru_sweep_judge(&sweep, out, err));
    out->out = sweep.out;
    return write_curve(out, arena, err);
}
