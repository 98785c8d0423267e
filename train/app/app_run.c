#include "train/app/app_run.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "env/clock.h"
#include "env/fault.h"
#include "env/file/claim.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "run/place.h"
#include "run/record.h"
#include "train/app/app_data.h"
#include "train/app/app_dir.h"
#include "train/app/app_world.h"
#include "train/app/call.h"
#include "train/app/local.h"

typedef struct run {
    const ru_app_train_options *opt;
    const ru_app_job_file *file;
    const ru_app_job *job;
    ru_arena *arena;
    rui_app_dir dir;
    ru_run_folder folder; /* the same while it works */
    ru_app_data data;
    ru_app_local *local;
    ru_run_report *report;
    ru_app_state *state;
    ru_metrics metrics;
    uint32_t pieces;
    int64_t clock, items, saved, clocks_max;
    int64_t items_first; /* when this process began */
    double objective;
    ru_recorder *recorder;
    struct {
        uint16_t step, eval, save;
    } names;
    ru_time begun, saved_at;
} run;

/* -- open -------------------------------------------------------------------------------------- */

static ru_status open_app(run *r, ru_err *err)
{
    const ru_app_local_options o = {.ops = r->file->ops,
                                    .setup = ru_app_data_setup(&r->data),
                                    .order = r->job->clocks.order,
                                    .threads = r->job->train.threads};
    RU_TRY(ru_app_local_open(&o, &r->local, err));
    r->pieces = ru_app_local_pieces(r->local);
    return ru_app_local_save(r->local, &r->state, err);
}

static ru_status restore(run *r, ru_err *err)
{
    ru_app_ckpt c;
    if (!r->opt->resume) {
        return RU_OK;
    }
    ru_status st = ru_app_ckpt_find(r->dir.out, r->arena, &c, err);
    if (st == RU_E_MISSING) {
        ru_run_report_say(r->report, "%s contains no checkpoint; the run starts from the beginning",
                          r->dir.out);
        return RU_OK;
    }
    RU_TRY(st);
    RU_TRY(ru_app_ckpt_fits(&c, r->data.executors, ru_sparse_rows(r->data.train),
                            ru_sparse_cols(r->data.train), r->job->train.seed, err));
    RU_TRY(ru_app_ckpt_tables(&c, r->state, err));
    RU_TRY(ru_app_ckpt_states(&c, r->state, err));
    RU_TRY(ru_app_local_restore(r->local, err));
    r->clock = r->saved = c.clock;
    r->items = r->items_first = c.items;
    return RU_OK;
}

static ru_status open_recorder(run *r, ru_err *err)
{
    RU_TRY(ru_run_recorder(r->dir.out, 0, r->opt->resume, "main", &r->recorder, err));
    r->names.step = ru_recorder_name(r->recorder, "step", "train");
    r->names.eval = ru_recorder_name(r->recorder, "eval", "train");
    r->names.save = ru_recorder_name(r->recorder, "save", "ckpt");
    return ru_app_local_record(r->local, r->recorder, err);
}

static void put_world(const run *r)
{
    const ru_app_world a = {.file = r->file,
                            .out = r->dir.out,
                            .threads = ru_app_local_threads(r->local),
                            .samples = ru_sparse_rows(r->data.train),
                            .batch = ru_sparse_rows(r->data.train) / r->pieces,
                            .clocks = r->clocks_max,
                            .parameters = ru_app_state_parameters(r->state)};
    ru_app_world_put(&a);
}

static ru_status open_report(run *r, ru_err *err)
{
    const ru_app_ops *ops = r->file->ops;
    const ru_app_job_train *t = &r->job->train;
    const ru_run_report_options o = {
        .run = r->dir.run,
        .dir = r->dir.out,
        .json = r->opt->json,
        .quiet = r->opt->quiet,
        .append = r->clock > 0,
        .after_step = r->clock,
        .step_first = r->clock,
        .columns = r->opt->columns,
        .steps = r->clocks_max,
        .epochs = t->epochs,
        .samples_epoch = ru_sparse_rows(r->data.train),
        .objective = ops->objective_name,
        .exact = r->pieces == 1,
    };
    RU_TRY(ru_run_report_open(&o, r->arena, &r->report, err));
    if (r->opt->opened.fn != NULL) {
        RU_TRY(r->opt->opened.fn(r->opt->opened.self, r->dir.out, err));
    }
    const ru_run_report_start s = {
        .name = r->job->name,
        .model = ops->name,
        .device = "cpu",
        .precision = "f32",
        .parameters = ru_app_state_parameters(r->state),
        .batch = ru_sparse_rows(r->data.train) / r->pieces,
        .train_samples = ru_sparse_rows(r->data.train),
        .test_samples = r->data.test != NULL ? ru_sparse_rows(r->data.test) : 0,
        .threads = ru_app_local_threads(r->local),
        .resumed_step = r->clock,
    };
    RU_TRY(ru_run_report_begin(r->report, &s, err));
    if (r->clock > 0 && r->clock >= r->clocks_max) {
        ru_run_report_say(r->report, RU_APP_COMPLETED, (long long)r->clock);
    }
    return RU_OK;
}

/* -- the loop ---------------------------------------------------------------------------------- */

static ru_status save(run *r, ru_err *err)
{
    if (r->saved == r->clock && !ru_run_place_gone(&r->folder)) {
        return RU_OK;
    }
    bool anew;
    RU_TRY(ru_run_place_restore(&r->folder, &anew, err));
    ru_time begin = ru_clock_now();
    RU_TRY(ru_app_local_save(r->local, &r->state, err));
    const ru_app_ckpt c = ru_app_data_ckpt(&r->data, r->clock, r->items);
    RU_TRY(ru_app_ckpt_save(r->dir.out, &c, r->state, r->job->checkpoint.keep, err));
    r->saved = r->clock;
    r->saved_at = ru_clock_now();
    ru_rec_span(r->recorder, r->names.save, begin.ns, r->saved_at.ns, r->clock);
    return ru_run_report_event(r->report, r->clock, "checkpoint", 0, NULL, err);
}

static ru_status evaluate(run *r, ru_err *err)
{
    int64_t pass = r->clock / r->pieces;
    if (r->data.test == NULL || r->clock % r->pieces != 0 || pass % r->job->train.eval_every != 0) {
        return RU_OK;
    }
    ru_time begin = ru_clock_now();
    RU_TRY(ru_app_eval(r->file->ops, ru_app_local_self(r->local), r->state, r->data.test,
                       &r->metrics, err));
    ru_time end = ru_clock_now();
    ru_rec_span(r->recorder, r->names.eval, begin.ns, end.ns, r->clock);
    return ru_run_report_eval(r->report, r->clock, pass, &r->metrics, end.ns - begin.ns, err);
}

static ru_status step(run *r, ru_err *err)
{
    double sums[RU_APP_SUMS_MAX];
    ru_time begin = ru_clock_now();
    ru_status st = ru_app_local_clock(r->local, sums, err);
    if (st != RU_OK) {
        return r->saved > 0 ? ru_err_wrap(err, st, "the checkpoint of clock %lld is intact",
                                          (long long)r->saved)
                            : st;
    }
    r->clock++;
    r->items = ru_app_data_items(&r->data, r->pieces, r->clock);
    double objective = ru_app_local_objective(r->local, sums);
    r->objective = isfinite(objective) || r->clock == 1 ? objective : r->objective;
    ru_time end = ru_clock_now();
    ru_rec_span(r->recorder, r->names.step, begin.ns, end.ns, r->clock);
    const ru_run_report_step s =
        ru_app_data_step(&r->data, r->pieces, r->clock, objective, end.ns - begin.ns);
    return ru_run_report_step_put(r->report, &s, err);
}

static ru_status loop(run *r, const char **ended, ru_err *err)
{
    *ended = "done";
    while (r->clock < r->clocks_max) {
        RU_TRY(step(r, err));
        RU_TRY(evaluate(r, err));
        if (ru_app_data_reached(&r->data, r->objective, &r->metrics)) {
            *ended = "target";
            break;
        }
        if (ru_self_stop_asked() != 0) {
            *ended = "stopped";
            break;
        }
        int64_t every = r->job->checkpoint.every_ns;
        if (every > 0 && ru_clock_now().ns - r->saved_at.ns >= every) {
            RU_TRY(save(r, err));
        }
    }
    return save(r, err);
}

static ru_status end(run *r, const char *ended, ru_err *err)
{
    int64_t wall = ru_clock_now().ns - r->begun.ns;
    const ru_run_report_summary s = {
        .steps = r->clock,
        .epochs = r->clock / r->pieces,
        .samples = r->items,
        .wall_ns = wall,
        .samples_per_s = wall > 0 ? (double)(r->items - r->items_first) * 1e9 / (double)wall : 0,
        .loss = r->objective,
        .metrics = r->metrics,
        .split = {.compute_ns = wall},
        .rss_peak_bytes = ru_self_rss_peak_bytes(),
        .ended = ended,
    };
    RU_TRY(ru_run_report_end(r->report, &s, err));
    return ru_run_place_kept(&r->folder, r->saved, err);
}

static ru_status train(run *r, ru_err *err)
{
    const ru_app_job_train *t = &r->job->train;
    const char *ended;
    RU_TRY(ru_app_watch(r->file, NULL, r->arena, err));
    RU_TRY(ru_app_data_open(r->file, r->arena, &r->data, err));
    RU_TRY(ru_app_data_test(&r->data, err));
    RU_TRY(open_app(r, err));
    int64_t all = t->epochs > 0 ? t->epochs * r->pieces : INT64_MAX;
    all = t->steps > 0 && t->steps < all ? t->steps : all;
    r->clocks_max = all > UINT32_MAX ? UINT32_MAX : all;
    RU_TRY(rui_app_dir_open(&r->dir, r->opt, (uint64_t)ru_self_pid(), r->arena, err));
    r->folder = (ru_run_folder){.out = r->dir.out, .yaml = r->file->yaml, .had_job = true};
    RU_TRY(open_recorder(r, err));
    RU_TRY(restore(r, err));
    RU_TRY(open_report(r, err));
    put_world(r);
    r->begun = r->saved_at = ru_clock_now();
    ru_status st = loop(r, &ended, err);
    if (st != RU_OK) {
        ru_run_report_log(r->report, "%s", err != NULL ? err->text : "error");
        return st;
    }
    return end(r, ended, err);
}

ru_status ru_app_train(const ru_app_train_options *opt, ru_arena *arena,
                       ru_app_train_result *result, ru_err *err)
{
    run r = {
        .opt = opt, .file = opt->file, .job = opt->file->job, .arena = arena, .objective = RU_NAN};
    ru_status st = train(&r, err);
    ru_run_report_close(r.report);
    ru_app_local_close(r.local);
    ru_recorder_close(r.recorder);
    ru_fault_close();
    ru_app_data_close(&r.data);
    rui_app_dir_close(&r.dir);
    if (st == RU_OK) {
        *result = (ru_app_train_result){.out = r.dir.out,
                                        .clocks = r.clock,
                                        .items = r.items,
                                        .objective = r.objective,
                                        .metrics = r.metrics};
    }
    return st;
}

ru_status ru_app_place(const ru_app_train_options *opt, uint64_t key, ru_arena *arena,
                       const char **out, ru_claim **claim, ru_err *err)
{
    rui_app_dir d = {0};
    RU_TRY(rui_app_dir_open(&d, opt, key, arena, err));
    *out = d.out;
    *claim = d.claim;
    return RU_OK;
}
