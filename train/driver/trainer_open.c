/* From a job to the first step: data, model, step, executable, start values or checkpoint. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/str.h"
#include "env/file/file.h"
#include "env/process/groups.h"
#include "exec/pool.h"
#include "run/record.h"
#include "trace/read/fold.h"
#include "train/driver/find_lr.h"
#include "train/driver/histograms.h"
#include "train/driver/keep.h"
#include "train/driver/trainer_impl.h"
#include "train/job/batch.h"
#include "train/job/metric.h"

/* What tells others which samples to train on has some of them, and no end. */
static ru_status open_some(rui_trainer *t, ru_data_options *train, ru_err *err)
{
    if (t->opt->n_files == 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "data.follow is for training on functions; add --functions local to `rubato "
                       "train`, or leave the key out");
    }
    train->paths = t->opt->files;
    train->n_paths = t->opt->n_files;
    return t->opt->resume ? rui_trainer_classes_before(t, train, err) : RU_OK;
}

static ru_status open_data(rui_trainer *t, ru_model_facts *facts, ru_err *err)
{
    ru_columns before = {0};
    ru_data_options train = ru_job_data_options(t->job, false);
    if (t->opt->resume) { /* its files may have changed: what it learned from them stays */
        RU_TRY(rui_trainer_dir_resumed(t, err));
        RU_TRY(rui_trainer_columns_before(t, &before, err));
        train.columns = &before;
    }
    bool follows = t->job->data.follow_ns > 0;
    RU_TRY(follows ? open_some(t, &train, err) : RU_OK);
    bool chooses = train.cache.kind == RU_CACHE_AUTO;
    train.cache.kind = chooses ? RU_CACHE_NONE : train.cache.kind;
    RU_TRY(ru_dataset_open(&train, &t->train_set, err));
    t->count = ru_dataset_count(t->train_set);
    if (t->count < 1) {
        return RU_FAIL(err, RU_E_DATA, "the training data contains no sample");
    }
    t->count = follows ? INT64_MAX / 4 : t->count;
    RU_TRY(chooses ? rui_keep_measure(t, &train, err) : RU_OK);
    RU_TRY(ru_model_facts_from(t->train_set, t->arena, facts, err));
    if (!ru_job_has_test(t->job)) {
        return RU_OK;
    }
    ru_data_options test = ru_job_data_options(t->job, true);
    test.cache.kind = train.cache.kind;
    test.class_names = facts->class_names; /* the same class has the same number in both sets */
    test.n_class_names = facts->n_class_names;
    test.columns = &facts->columns;
    if (test.classes == 0) {
        test.classes = facts->classes;
    }
    if (chooses) {
        rui_keep_test(t, &test);
    }
    RU_TRY(ru_dataset_open(&test, &t->test_set, err));
    const ru_field *fields;
    uint32_t n = ru_dataset_fields(t->test_set, &fields);
    if (n < 2 || !ru_type_equal(&fields[0].type, &facts->x) ||
        !ru_type_equal(&fields[1].type, &facts->y)) {
        char a[160], b[160];
        ru_type_print(NULL, &facts->x, a, sizeof a);
        ru_type_print(NULL, &fields[0].type, b, sizeof b);
        return RU_FAIL(err, RU_E_DATA,
                       "test samples (%s) and training samples (%s) differ in shape or type", b, a);
    }
    return RU_OK;
}

static int64_t steps_of(const ru_job_train *j, int64_t count)
{
    int64_t steps = ru_job_epoch_steps(j, count);
    return j->steps > 0 && j->steps < steps ? j->steps : steps;
}

/* Steps of the whole run. A run of epochs ends with the step that uses the last sample of the last
 * epoch; that step's batch may reach into the next. */
static ru_status count_steps(rui_trainer *t, ru_err *err)
{
    const ru_job_train *j = &t->job->train;
    if (j->batch > t->count && !t->opt->rounds) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.batch is %lld, but the training data contains %lld sample%s; set "
                       "train.batch to at most that number",
                       (long long)j->batch, (long long)t->count, t->count == 1 ? "" : "s");
    }
    for (uint32_t k = 0; k < j->batch_schedule.n; k++) {
        if (j->batch_schedule.at[k].value > (double)t->count) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "train.batch_schedule asks for %.0f samples a step, but the training "
                           "data contains %lld",
                           j->batch_schedule.at[k].value, (long long)t->count);
        }
    }
    int64_t steps = steps_of(j, t->count);
    t->steps_end = steps;
    if (steps == INT64_MAX && j->schedule.which >= 3) {
        return RU_FAIL(
            err, RU_E_CONFIG,
            "train.schedule %s depends on the length of the run; set train.epochs or train.steps",
            j->schedule.which == 3   ? "cosine"
            : j->schedule.which == 4 ? "linear"
                                     : "one_cycle");
    }
    return RU_OK;
}

void rui_trainer_options(const rui_trainer *t, ru_step_options *so, ru_exe_options *eo)
{
    const ru_job_train *j = &t->job->train;
    *so = (ru_step_options){
        .loss = t->model.loss,
        .optimizer = t->optimizer,
        .groups = j->groups.at,
        .n_groups = j->groups.n,
        .ema = j->ema,
        .class_weights = t->class_weights,
        .n_class_weights = t->n_class_weights,
        .label_smoothing = j->label_smoothing,
        .clip_norm = j->clip_norm,
        .accumulate = (uint32_t)j->accumulate,
        .batch = j->batch,
        .x = t->model.facts.x,
        .y = t->model.facts.y,
    };
    *eo = (ru_exe_options){
        .device = (ru_device_kind)j->device,
        .precision = (ru_precision)j->precision,
        .threads = j->threads,
        .autotune = j->autotune,
        .cache_dir = t->tune_dir,
    };
}

ru_status rui_trainer_eval_open(rui_trainer *t, const ru_exe_options *options,
                                const ru_eval_stage *stage, ru_err *err)
{
    const ru_job_train *j = &t->job->train;
    ru_exe_options eo = *options;
    eo.autotune = false; /* runs once an epoch */
    const char *metric = ru_job_metric(t->job, t->model.loss);
    t->best = (ru_best){.metric = metric, .more = ru_metric_more(metric), .least = j->min_delta};
    ru_eval_options o = {
        .batch = ru_eval_batch(t->job), .exe = eo, .readers = t->job->data.threads, .stage = stage};
    RU_TRY(ru_job_figures(t->job, t->arena, &o.figures, &o.n_figures, err));
    return ru_eval_open(&t->model, t->test_set, &o, t->arena, &t->eval, err);
}

ru_status rui_trainer_too_large(const rui_trainer *t, ru_err *err)
{
    return ru_err_wrap(err, RU_E_MEM,
                       "train.batch %lld is too large; lower it or use a smaller model",
                       (long long)t->job->train.batch);
}

/* The processor time that the process may use: predictions of other settings need it. */
static void put_quota(rui_trainer *t)
{
    char text[32];
    int64_t quota_ns, period_ns;
    ru_arena_mark mark = ru_arena_mark_get(t->arena);
    bool some = ru_groups_quota(t->arena, &quota_ns, &period_ns);
    ru_arena_rewind(t->arena, mark);
    if (some) {
        (void)snprintf(text, sizeof text, "%lld", (long long)quota_ns);
        ru_recorder_meta(t->recorder, RU_TRACE_QUOTA, text);
        (void)snprintf(text, sizeof text, "%lld", (long long)period_ns);
        ru_recorder_meta(t->recorder, RU_TRACE_PERIOD, text);
    }
}

static ru_status open_recorder(rui_trainer *t, ru_err *err)
{
    if (t->opt->no_trace) {
        return RU_OK;
    }
    RU_TRY(ru_run_recorder(t->out, t->opt->rank, t->opt->resume, "main", &t->recorder, err));
    put_quota(t);
    t->names = (rui_names){
        .step = ru_recorder_name(t->recorder, "step", "train"),
        .input = ru_recorder_name(t->recorder, "input", "train"),
        .eval = ru_recorder_name(t->recorder, "eval", "train"),
        .save = ru_recorder_name(t->recorder, "save", "ckpt"),
        .loss = ru_recorder_name(t->recorder, "loss", "train"),
        .early = ru_recorder_name(t->recorder, "early update", "train"),
        .sums = ru_recorder_name(t->recorder, "sums of gradients", "train"),
        .cpu_all = ru_recorder_name(t->recorder, RU_TRACE_CPU_ALL, "train"),
        .cpu_loop = ru_recorder_name(t->recorder, RU_TRACE_CPU_LOOP, "train"),
        .rate = ru_recorder_name(t->recorder, "samples_per_s", "train"),
    };
    return RU_OK;
}

/* The job's file of start values, if it names one. */
static ru_status take_weights(rui_trainer *t, ru_err *err)
{
    const ru_job_model *m = &t->job->model;
    if (m->weights[0] == 0) {
        return RU_OK;
    }
    const ru_weights_options wo = {.path = m->weights,
                                   .rules = m->weights_map.at,
                                   .n_rules = m->weights_map.n,
                                   .partial = m->weights_partial};
    return ru_weights_load(&wo, &t->step.graph, t->exe, t->arena, &t->weights_said, err);
}

/* Start values, or the newest checkpoint. */
ru_status rui_trainer_fill(rui_trainer *t, ru_err *err)
{
    uint64_t seed = (uint64_t)t->job->train.seed;
    RU_TRY(ru_model_init(&t->model, seed, &t->step.graph, t->exe, t->job->train.threads, err));
    t->saved_step = -1;
    RU_TRY(rui_trainer_look_back(t, err));
    if (!t->goes_on) {
        RU_TRY(take_weights(t, err));
        return ru_model_ema_begin(&t->step.graph, t->exe, err);
    }
    RU_TRY(ru_ckpt_load(&t->from, &t->step.graph, t->exe, true, err));
    t->step_done = t->step_resumed = t->step_first = t->saved_step = t->from.at.step;
    t->samples = t->from.at.samples;
    t->learned.done = t->from.at.done > 0 ? t->from.at.done : (double)t->step_done;
    t->learned.gain = 1;
    if (t->step_done > 0) { /* its last batch may have been one of train.batch_schedule */
        t->batch = ru_job_samples_of(&t->job->train, t->step_done, t->count) -
                   ru_job_samples_of(&t->job->train, t->step_done - 1, t->count);
    }
    return RU_OK;
}

ru_status rui_trainer_reports(rui_trainer *t, bool append, int64_t after_step, ru_arena *arena,
                              ru_err *err)
{
    bool open_end = t->steps_end == INT64_MAX;
    ru_run_report_options ro = {
        .run = t->run,
        .dir = t->out,
        .json = t->opt->json,
        .quiet = t->opt->quiet,
        .append = append,
        .after_step = after_step,
        .begun = t->job_begun,
        .step_first = t->step_first,
        .columns = t->opt->columns,
        .steps = open_end ? 0 : t->steps_end,
        .epochs = t->job->train.epochs,
        .samples_epoch = t->count,
        .messages = t->opt->messages,
        .progress = t->opt->progress,
        .exact = t->opt->rounds,
    };
    RU_TRY(ru_run_report_open(&ro, arena, &t->report, err));
    const ru_run_opened *o = &t->opt->opened;
    return o->fn != NULL ? o->fn(o->self, t->out, err) : RU_OK;
}

/* What the evaluations before told. */
static ru_status read_best(rui_trainer *t, ru_err *err)
{
    const char *path = ru_path_join(t->arena, t->out, "metrics.jsonl");
    if (path == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the run is full");
    }
    return t->eval == NULL || t->step_done == 0 ? RU_OK
                                                : ru_best_read(&t->best, path, t->step_done, err);
}

ru_status rui_trainer_ckpt(rui_trainer *t, bool takes_over, ru_err *err)
{
    RU_TRY(read_best(t, err));
    ru_ckpt_options co = {
        .run_dir = t->out,
        .graph = &t->step.graph,
        .job_yaml = t->job_yaml,
        .facts = &t->model.facts,
        .seed = t->job->train.seed,
        .keep = t->job->checkpoint.keep,
        .best_step = t->job->checkpoint.keep_best ? t->best.step : 0,
        .go_on = t->goes_on,
        .from_step = t->step_resumed,
        .takes_over = takes_over,
        .recorder = t->recorder,
        .copy_to = t->job->checkpoint.copy_to,
        .tiers = t->job->storage.at,
        .n_tiers = t->job->checkpoint.in_storage ? t->job->storage.n : 0,
    };
    return ru_ckpt_open(&co, t->arena, &t->ckpt, err);
}

/* A longer run stretches its schedule: the rate may jump where the run goes on. */
static void say_rate(const rui_trainer *t)
{
    static const char *const curves[] = {"constant", "constant", "step",
                                         "cosine",   "linear",   "one_cycle"};
    if (t->before == NULL || t->step_resumed <= 0 || t->step_done >= t->steps_end) {
        return;
    }
    int64_t ended = steps_of(&t->before->train, t->count);
    ru_schedule was = ru_job_schedule_get(t->before, ended);
    ru_optimizer optimizer = ru_job_optimizer_get(t->before);
    double last = ru_schedule_lr(&was, optimizer.lr, t->step_resumed - 1),
           same = ru_schedule_lr(&t->schedule, t->optimizer.lr, t->step_resumed - 1),
           next = ru_schedule_lr(&t->schedule, t->optimizer.lr, t->step_resumed);
    if (fabs(same - last) <= 0.01 * fabs(last)) {
        return;
    }
    ru_text why = ru_text_arena(t->arena);
    const char *curve = curves[t->job->train.schedule.which];
    if (t->job->train.schedule.which >= 3 && ended != t->steps_end) {
        ru_text_putf(&why, "; the %s schedule now ends at step %lld (was %lld)", curve,
                     (long long)t->steps_end, (long long)ended);
    }
    ru_run_report_say(t->report, "the learning rate goes from %.3g at step %lld to %.3g%s", last,
                      (long long)t->step_resumed, next, why.n > 0 ? why.p : "");
}

void rui_trainer_say_damaged(rui_trainer *t, const ru_dataset *d, const char *what)
{
    int64_t n = d != NULL ? ru_dataset_skipped(d) : 0;
    bool test = d == t->test_set;
    if (n > 0 && (test || !t->said.damage)) {
        ru_run_report_say(t->report,
                          "warning: %lld damaged sample%s of the %s data %s left out (data.strict: "
                          "false); the first: %s",
                          (long long)n, n == 1 ? "" : "s", what, n == 1 ? "is" : "are",
                          ru_dataset_skipped_first(d));
        t->said.damage = t->said.damage || !test;
    }
}

/* What the outputs of the model are beside the classes of the data. */
static void say_outputs(const rui_trainer *t)
{
    const ru_model *m = &t->model;
    int64_t n = ru_model_outputs(m), classes = m->facts.classes;
    bool imported = m->file.model.data != NULL;
    if (imported && m->n_inits > 0) {
        ru_run_report_say(t->report, "the last layer of %s is new: '%s' starts with %lld outputs",
                          m->name, ru_graph_value(&m->train, m->inits[0].param)->name,
                          (long long)n);
    }
    if (n > classes) {
        ru_run_report_say(t->report,
                          "warning: the model has %lld outputs, but the data have %lld class%s; no "
                          "sample has the others as its class; %s",
                          (long long)n, (long long)classes, classes == 1 ? "" : "es",
                          imported ? "model.head: new replaces the last layer by one with as many "
                                     "outputs as the data have classes"
                                   : "leave out model.classes to have as many outputs as classes");
    }
}

ru_status rui_trainer_say_start(rui_trainer *t, uint32_t workers, ru_err *err)
{
    static const char *const devices[] = {"cpu", "ref"};
    static const char *const precisions[] = {"f32", "bf16"};
    const ru_job_train *j = &t->job->train;
    ru_exe_stats s;
    ru_exe_stats_get(t->exe, &s);
    ru_run_report_start start = {
        .name = t->job->name,
        .model = t->model.name,
        .device = devices[j->device],
        .precision = precisions[j->precision],
        .parameters = t->step.parameters,
        .batch = j->batch,
        .train_samples = ru_dataset_count(t->train_set),
        .test_samples = t->test_set != NULL ? ru_dataset_count(t->test_set) : 0,
        .threads = j->threads != 0 ? j->threads : ru_pool_cores(),
        .arena_bytes = s.arena_bytes,
        .arena_bound_bytes = s.arena_bound_bytes,
        .state_bytes = s.state_bytes,
        .flops_step = s.flops,
        .open_ns = s.open_ns,
        .resumed_step = t->step_resumed,
        .batch_max = j->adapt.batch_max,
        .local_max = j->adapt.local_max,
        .servers = j->servers,
    };
    ru_run_report_workers_set(t->report, workers, workers, workers);
    RU_TRY(ru_run_report_begin(t->report, &start, err));
    rui_trainer_say_damaged(t, t->train_set, "training");
    rui_trainer_say_damaged(t, t->test_set, "test");
    say_outputs(t);
    if (t->weights_said != NULL) {
        ru_run_report_say(t->report, "starts with %s", t->weights_said);
    }
    if (t->step.frozen > 0) {
        ru_run_report_say(t->report, "%lld of %lld parameters are frozen",
                          (long long)t->step.frozen,
                          (long long)(t->step.frozen + t->step.parameters));
    }
    if (!t->goes_on) {
        return RU_OK;
    }
    ru_run_report_details more = ru_run_report_details_none();
    more.changed = t->changed;
    ru_run_report_say(t->report, "continues after step %lld", (long long)t->step_resumed);
    if (t->changed != NULL) {
        ru_run_report_say(t->report, "with changed settings: %s", t->changed);
        say_rate(t);
    }
    if (t->step_done >= t->steps_end) {
        ru_run_report_say(t->report,
                          "the run has already completed its %lld steps; raise train.epochs or "
                          "train.steps to continue it",
                          (long long)t->steps_end);
    }
    return ru_run_report_event(t->report, t->step_resumed, "restore", 0, &more, err);
}

ru_status rui_trainer_prepare(rui_trainer *t, ru_err *err)
{
    t->cores = ru_pool_cores();
    ru_model_facts facts;
    ru_text yaml = ru_text_arena(t->arena);
    ru_job_dump(t->job, t->opt->conf, &yaml);
    t->job_yaml = yaml.p;
    t->optimizer = ru_job_optimizer_get(t->job);
    RU_TRY(open_data(t, &facts, err));
    RU_TRY(rui_trainer_dir(t, err));
    const char *onnx = NULL;
    RU_TRY(rui_trainer_dir_model(t, &facts.x, &onnx, err));
    RU_TRY(ru_model_open(t->job, &facts, onnx, t->arena, &t->model, err));
    RU_TRY(count_steps(t, err));
    RU_TRY(rui_trainer_class_weights(t, err));
    t->schedule = ru_job_schedule_get(t->job, t->steps_end);
    if (t->opt->sweep != NULL) {
        rui_sweep_begin(t->opt->sweep, &t->schedule, &t->optimizer.lr);
        t->steps_end = t->opt->sweep->steps;
        t->opt->sweep->out = t->out;
    }
    RU_TRY(open_recorder(t, err));
    RU_TRY(ru_decisions_open(t->out, t->job->name, &t->decisions, err));
    return rui_trainer_tuned_in(t, err);
}

void rui_trainer_close(rui_trainer *t)
{
    ru_ckpt_close(t->ckpt);
    ru_run_report_close(t->report);
    ru_eval_close(t->eval);
    ru_exe_close(t->exe);
    ru_model_close(&t->model);
    ru_dataset_close(t->train_set);
    ru_dataset_close(t->test_set);
    ru_recorder_close(t->recorder);
    ru_claim_close(t->claim);
    t->claim = NULL;
    ru_decisions_close(t->decisions);
    rui_hists_close(t);
}
