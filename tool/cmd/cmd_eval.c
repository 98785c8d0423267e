/* rubato eval: metrics of a trained model. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/str.h"
#include "run/rundir.h"
#include "tool/cmd.h"
#include "tool/cmd/eval_classes.h"
#include "tool/cmd/eval_mistakes.h"
#include "tool/cmd/from.h"
#include "train/app/app_run.h"
#include "train/driver/eval.h"
#include "train/job/metric.h"

static const ru_opt opts[] = {
    RU_OPT(TEXTS, "data", "FILE", "data files in the job's format (default: the job's test data)",
           .letter = 'd'),
    RU_OPT(I64, "batch", "N", "samples of one step; 0: the job's batch, at most 256", .def = "0",
           RU_IN(0, 1 << 20)),
    RU_OPT_THREADS('t'),
    RU_OPT(I64, "mistakes", "N", "show this many samples that the classifier gets wrong",
           .def = "0", RU_IN(0, 1000)),
    RU_OPT(FLAG, "classes", NULL,
           "also precision, recall, F1 and AUC (each class and their means), top-5 accuracy and "
           "the confusion matrix of a classifier"),
    RU_OPT(FLAG, "json", NULL, "one JSON object on stdout"),
    RU_OPT_FROM,
};

static const ru_example examples[] = {
    {"rubato eval runs/digits-1", "evaluate the newest checkpoint on the job's test data"},
    {"rubato eval runs/digits-1/checkpoints/000000200 --json", "evaluate one checkpoint"},
    {"rubato eval runs/digits-1 --data images --data labels",
     "evaluate on other data in the same format"},
    {"rubato eval runs/digits-1 --classes", "also show which classes the model confuses"},
    {"rubato eval runs/digits-1 --mistakes 3", "also show three samples that the model gets wrong"},
    {"rubato eval - --from 10.0.0.5:4100 --token-file token --data test.csv",
     "evaluate weights that another process serves, while they come"},
};

typedef struct session {
    ru_rundir run;
    ru_dataset *data;
    ru_model model;
    ru_eval *eval;
    ru_metrics metrics;
    int64_t damaged; /* samples left out */
} session;

static ru_status open_data(ru_cmd_in *in, session *s, ru_err *err)
{
    uint32_t n;
    const ru_field *fields;
    const char *const *paths = ru_cmd_texts(in, "data", &n);
    RU_TRY(ru_rundir_data(&s->run, paths, n, true, &s->data, err));
    s->damaged = ru_dataset_skipped(s->data);
    if (s->damaged > 0) {
        ru_log(RU_LOG_WARN, "tool", "eval",
               "%lld damaged sample%s of the data %s left out (data.strict: false); the first: %s",
               (long long)s->damaged, s->damaged == 1 ? "" : "s", s->damaged == 1 ? "is" : "are",
               ru_dataset_skipped_first(s->data));
    }
    return ru_dataset_fields(s->data, &fields) >= 2
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "the data has no labels, so there is nothing to compare with; name "
                         "labelled data with --data");
}

static ru_status evaluate(ru_cmd_in *in, session *s, ru_err *err)
{
    const ru_job *job = &s->run.job;
    int64_t batch = ru_cmd_i64(in, "batch");
    batch = batch == 0 ? ru_eval_batch(job) : batch;
    if (s->run.late != NULL && batch > ru_dataset_count(s->data)) {
        batch = ru_dataset_count(s->data); /* weights come to whole batches, which run first */
    }
    ru_eval_options o = {.batch = batch,
                         .exe = {.device = (ru_device_kind)job->train.device,
                                 .precision = (ru_precision)job->train.precision,
                                 .threads = (uint32_t)ru_cmd_i64(in, "threads")},
                         .readers = job->data.threads};
    if (!ru_cmd_flag(in, "classes")) { /* which prints all of them */
        RU_TRY(ru_job_figures(job, in->arena, &o.figures, &o.n_figures, err));
    }
    RU_TRY(ru_model_open(job, &s->run.ckpt.facts, s->run.onnx, in->arena, &s->model, err));
    RU_TRY(ru_eval_open(&s->model, s->data, &o, in->arena, &s->eval, err));
    const ru_graph *graph;
    ru_exe *exe = ru_eval_exe(s->eval, &graph);
    if (s->run.late == NULL) {
        RU_TRY(ru_ckpt_load(&s->run.ckpt, graph, exe, false, err));
        return ru_eval_run(s->eval, &s->metrics, err);
    }
    ru_late_ports *late;
    RU_TRY(ru_late_set(s->run.late, graph, exe, in->arena, &late, err));
    return ru_late_why(late, ru_eval_run(s->eval, &s->metrics, err), err);
}

static ru_status print(ru_cmd_in *in, const session *s, int64_t step, int64_t samples, ru_err *err)
{
    ru_text t = ru_text_arena(in->arena);
    bool json = ru_cmd_flag(in, "json");
    if (json) {
        ru_text_put(&t, "{\"schema\":\"rubato.eval/1\",\"run\":");
        ru_text_json(&t, ru_str_c(in->args[0]));
        ru_text_putf(&t, ",\"step\":%lld,\"samples\":%lld,\"samples_damaged\":%lld,\"metric\":{",
                     (long long)step, (long long)samples, (long long)s->damaged);
    }
    for (uint32_t k = 0; k < s->metrics.n; k++) {
        const ru_metric *m = &s->metrics.at[k];
        if (json) {
            ru_text_putf(&t, "%s\"%s\":", k > 0 ? "," : "", m->name);
            if (isfinite(m->value)) {
                ru_text_f64(&t, m->value);
            } else {
                ru_text_put(&t, "null");
            }
        } else {
            ru_text_putf(&t, "%-10s %.6g\n", m->name, m->value);
        }
    }
    ru_text_put(&t, json ? "}" : "");
    if (ru_cmd_flag(in, "classes")) {
        ru_exe_options eo = {.threads = (uint32_t)ru_cmd_i64(in, "threads")};
        RU_TRY(rui_eval_classes(&s->run, s->data, json, &eo, in->arena, &t, err));
    }
    ru_text_put(&t, json ? "}\n" : "");
    (void)fwrite(t.p, 1, (size_t)t.n, stdout);
    return RU_OK;
}

static ru_status mistakes(ru_cmd_in *in, const session *s, ru_err *err)
{
    int64_t n = ru_cmd_i64(in, "mistakes");
    if (n == 0 || ru_cmd_flag(in, "json")) {
        return RU_OK;
    }
    ru_exe_options eo = {.threads = (uint32_t)ru_cmd_i64(in, "threads")};
    ru_text t = ru_text_arena(in->arena);
    RU_TRY(rui_eval_mistakes(&s->run, s->data, n, &eo, in->arena, &t, err));
    (void)fwrite(t.p, 1, (size_t)t.n, stdout);
    return RU_OK;
}

/* A run with an app (app: of the job). */
static ru_status run_app(ru_cmd_in *in, ru_err *err)
{
    uint32_t n;
    const char *const *paths = ru_cmd_texts(in, "data", &n);
    session s = {0};
    ru_app_model m;
    if (ru_cmd_flag(in, "classes") || ru_cmd_i64(in, "mistakes") > 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "--classes and --mistakes are for models, not apps");
    }
    RU_TRY(ru_app_model_open(in->args[0], paths, n, in->arena, &m, err));
    ru_status st = ru_app_model_eval(&m, &s.metrics, err);
    if (st == RU_OK) {
        st = print(in, &s, m.ckpt.clock, ru_sparse_rows(m.data), err);
    }
    ru_app_model_close(&m);
    return st;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    bool from = ru_cmd_given(in, "from");
    rui_from source = {0};
    if (!from && ru_app_ckpt_is(in->args[0])) {
        return run_app(in, err);
    }
    session s = {0};
    ru_status st = from ? rui_from_open(in, in->args[0], &source, &s.run, err)
                        : ru_rundir_open(in->args[0], in->arena, &s.run, err);
    if (st == RU_OK) {
        st = open_data(in, &s, err);
    }
    if (st == RU_OK) {
        st = evaluate(in, &s, err);
    }
    if (st == RU_OK) {
        st = print(in, &s, s.run.ckpt.at.step, ru_dataset_count(s.data), err);
    }
    if (st == RU_OK) {
        st = mistakes(in, &s, err);
    }
    ru_eval_close(s.eval);
    ru_model_close(&s.model);
    ru_dataset_close(s.data);
    rui_from_close(&source);
    return st;
}

const ru_cmd rui_cmd_eval = {
    .name = "eval",
    .summary = "measure a trained model on data",
    .about =
        "Reads the best checkpoint of a run that keeps it (checkpoint.keep_best), else the newest "
        "complete one, or the checkpoint that you name. "
        "Prints loss and metrics over all samples; each sample counts once. "
        "With data.strict: false a damaged sample counts not at all, and a line says how many.",
    RU_CMD_ARGS("RUN_OR_CHECKPOINT", 1, 1),
    RU_CMD_LISTS(opts, examples),
    .exits =
        "65 the data or the checkpoint is damaged, or --from serves other weights or another "
        "model|66 the run or its data does not exist|69 nobody serves weights at --from, or it "
        "went",
    .computes = true,
    .run = run,
};
