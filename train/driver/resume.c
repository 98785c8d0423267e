/* Where a run that is resumed goes on, and what has changed since. Looked up before anything in the
 * run directory is written: a mistyped folder or damaged checkpoints leave everything as it was. */
#include <string.h>

#include "base/log.h"
#include "env/file/file.h"
#include "train/driver/trainer_impl.h"

enum { CHANGED_BYTES_MAX = 600 };

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the run is full");
}

/* The values that the run has learned fit the settings it began with. */
static ru_status same_columns(const rui_trainer *t, const ru_job *before, ru_err *err)
{
    ru_text changed = ru_text_arena(t->arena);
    ru_conf_changes(&ru_job_columns_table, &before->data.columns, &t->job->data.columns, &changed);
    return changed.n == 0 ? RU_OK
                          : RU_FAIL(err, RU_E_CONFIG,
                                    "data.columns has changed: %.200s; a resumed run must keep how "
                                    "its columns become inputs",
                                    changed.p);
}

ru_status rui_trainer_columns_before(const rui_trainer *t, ru_columns *out, ru_err *err)
{
    ru_ckpt_info from;
    if (!t->opt->resume || t->out == NULL || !ru_job_prepares(t->job)) {
        return RU_OK;
    }
    ru_status st = ru_ckpt_find(t->out, t->arena, &from, err);
    if (st == RU_OK) {
        *out = from.facts.columns;
    }
    return st == RU_E_MISSING ? RU_OK : st;
}

ru_status rui_trainer_classes_before(const rui_trainer *t, ru_data_options *out, ru_err *err)
{
    ru_ckpt_info from;
    ru_status st = ru_ckpt_find(t->out, t->arena, &from, err);
    if (st == RU_OK) {
        out->classes = from.facts.classes;
        out->class_names = from.facts.class_names;
        out->n_class_names = from.facts.n_class_names;
    }
    return st == RU_E_MISSING ? RU_OK : st;
}

/* A resumed run goes on in the order of samples it began with. */
static ru_status same_order(const rui_trainer *t, const ru_job *before, ru_err *err)
{
    static const char *const orders[] = {"none", "full", "block"};
    if (t->from.seed != t->job->train.seed) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the run was started with train.seed %lld, but the job has %lld; a resumed "
                       "run must keep its seed",
                       (long long)t->from.seed, (long long)t->job->train.seed);
    }
    ru_shuffle was = ru_job_shuffle(before), is = ru_job_shuffle(t->job);
    if (was != is) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the run was started with data.shuffle %s, but the job has %s; a resumed "
                       "run must keep its sample order",
                       orders[was], orders[is]);
    }
    return same_columns(t, before, err);
}

static ru_status look(rui_trainer *t, ru_err *err)
{
    ru_job *before = RU_NEW(t->arena, ru_job, 1);
    if (before == NULL) {
        return full(err);
    }
    ru_status st = ru_ckpt_find(t->out, t->arena, &t->from, err);
    if (st == RU_E_MISSING) { /* killed before its first: the beginning is exact as well */
        return RU_OK;
    }
    RU_TRY(st);
    RU_TRY(ru_job_parse("state.json: job", t->from.job_yaml, t->arena, before, err));
    RU_TRY(same_order(t, before, err));
    before->train.threads = t->job->train.threads; /* each worker has its own */
    ru_text changed = ru_text_arena(t->arena);
    ru_conf_changes(&ru_job_table, before, t->job, &changed);
    if (changed.cut) {
        return full(err);
    }
    if (changed.n > CHANGED_BYTES_MAX) { /* it stands in a line */
        int64_t n = CHANGED_BYTES_MAX;
        while (((unsigned char)changed.p[n] & 0xc0) == 0x80) {
            n--;
        }
        memcpy(changed.p + n, "...", 4);
    }
    t->changed = changed.n > 0 ? changed.p : NULL;
    t->before = before;
    t->goes_on = true;
    return RU_OK;
}

ru_status rui_trainer_look_back(rui_trainer *t, ru_err *err)
{
    if (t->looked || !t->opt->resume) {
        return RU_OK;
    }
    RU_TRY(look(t, err));
    t->looked = true;
    return RU_OK;
}

ru_status rui_trainer_batch_stays(const rui_trainer *t, ru_err *err)
{
    int64_t batch = t->job->train.batch;
    if (t->job->train.batch_schedule.n > 0 ||
        t->job->train.adapt.batch_max > 0) { /* the checkpoint says at which sample to continue */
        return RU_OK;
    }
    if (t->goes_on && t->from.at.samples != t->from.at.step * batch) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the run processed %lld samples in %lld steps, but the job has train.batch "
                       "%lld; with several workers a resumed run must keep its batch",
                       (long long)t->from.at.samples, (long long)t->from.at.step, (long long)batch);
    }
    return RU_OK;
}

ru_status rui_trainer_resume_check(rui_trainer *t, ru_err *err)
{
    const char *job = ru_path_join(t->arena, t->out, "job.yaml");
    if (job == NULL) {
        return full(err);
    }
    if (!ru_path_is_dir(t->out)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "there is nothing to resume: the folder %s does not exist; name the folder "
                       "of the run with --out, or omit --resume to start a run there",
                       t->out);
    }
    if (!ru_path_exists(job)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "there is nothing to resume: %s is not a run directory, because it contains "
                       "no job.yaml; name the folder of the run with --out",
                       t->out);
    }
    return RU_OK;
}
