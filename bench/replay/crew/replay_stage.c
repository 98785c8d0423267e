/* Stages of 64 machines from 1 to 63 transient ones for each reliable one: the clock of the chosen
 * stage beside the best of all three, simulated message by message. */
#include <math.h>

#include "bench/replay/crew/replay_stage_net.h"
#include "bench/replay/replay.h"
#include "env/clock.h"

#define MB 1e6

enum { MACHINES = 64, METHODS = 6 };

static const char *const methods[METHODS] = {"cost", "ratio", "stage1", "stage2", "stage3", "all"};

typedef struct app {
    const char *name;
    ru_backup_job job;
} app;

/* Sizes as of matrix factorisation, logistic regression and topic models on 1 Gbit/s; the last one
 * computes little. */
static const app apps[] = {
    {"factors",
     {.model_bytes = 71 * MB,
      .read_bytes = 40 * MB,
      .write_bytes = 40 * MB,
      .touched = 1,
      .work_s = 260}},
    {"regression",
     {.model_bytes = 86 * MB,
      .read_bytes = 86 * MB,
      .write_bytes = 86 * MB,
      .touched = 1,
      .work_s = 900}},
    {"topics",
     {.model_bytes = 400 * MB,
      .read_bytes = 30 * MB,
      .write_bytes = 15 * MB,
      .touched = 0.02,
      .work_s = 500}},
    {"sparse",
     {.model_bytes = 2000 * MB,
      .read_bytes = 8 * MB,
      .write_bytes = 8 * MB,
      .touched = 0.004,
      .work_s = 120}},
};

static ru_status play(ru_replay *r, const ru_stage_in *in, uint32_t stage, uint32_t servers,
                      uint32_t workers, uint32_t batch, double spread_s, double *clock_s,
                      double *behind, ru_err *err)
{
    ru_arena_mark m = ru_arena_mark_get(r->arena);
    rui_stage_case c = {.in = *in,
                        .layout = ru_stage_layout(in, stage, servers, workers),
                        .first_server = stage >= 2 ? in->reliable : 0,
                        .first_worker = ru_stage_first_worker(
                            in, stage, ru_stage_layout(in, stage, servers, workers).workers),
                        .batch = batch,
                        .spread_s = spread_s,
                        .clocks = r->quick ? 12 : 40,
                        .warm = r->quick ? 4 : 20,
                        .jitter = 0.02,
                        .seed = 7};
    RU_TRY(rui_stage_play(&c, r->arena, clock_s, behind, err));
    ru_arena_rewind(r->arena, m);
    return RU_OK;
}

/* The best of all stages with servers on an eighth to all transient machines. */
static ru_status best_of(ru_replay *r, const ru_stage_in *in, double *best, ru_err *err)
{
    double behind;
    RU_TRY(play(r, in, 1, in->reliable, 0, 1, 0, best, &behind, err));
    for (uint32_t stage = 2; stage <= 3; stage++) {
        for (uint32_t part = 8; part >= 1; part /= 2) {
            uint32_t a = in->transient / part;
            for (uint32_t batch = 1; a > 0 && batch <= in->job.clocks_max; batch *= 4) {
                double s = 0; /* spread over what the clock takes without a stream that hurts */
                for (uint32_t k = 0; k < 2; k++) {
                    RU_TRY(play(r, in, stage, a, 0, batch, s, &s, &behind, err));
                    *best = fmin(*best, s);
                }
            }
        }
    }
    return RU_OK;
}

static ru_status ratio_rows(ru_replay *r, const app *a, uint32_t reliable, ru_err *err)
{
    ru_stage_in in = {.job = a->job,
                      .reliable = reliable,
                      .transient = MACHINES - reliable,
                      .partitions = 1024,
                      .blocks = 4096,
                      .block_bytes = MB,
                      .notice_s = 120};
    in.job.link_bytes_per_s = 125 * MB;
    in.job.serve_bytes_per_s = 2000 * MB;
    in.job.clocks_max = 4;
    double best, got[METHODS], predicted = 0, behind = 0, mine = 0;
    uint32_t stage = 0, servers = 0;
    RU_TRY(best_of(r, &in, &best, err));
    for (uint32_t k = 0; k < METHODS; k++) {
        ru_arena_mark m = ru_arena_mark_get(r->arena);
        ru_stage_plan p;
        in.method = (ru_stage_method)k;
        RU_TRY(ru_plan_stage(&in, r->arena, r->arena, &p, err));
        RU_TRY(ru_plan_stage_check(&in, &p, r->arena, err));
        ru_arena_rewind(r->arena, m);
        RU_TRY(play(r, &in, p.stage, p.servers, p.workers, p.clock.batch, p.clock.clock_s, &got[k],
                    &behind, err));
        if (k == 0) {
            predicted = p.clock.clock_s;
            stage = p.stage;
            servers = p.servers;
            mine = behind;
        }
    }
    best = fmin(best, fmin(got[2], fmin(got[3], fmin(got[4], got[0]))));
    char name[96], note[96];
    ru_text t = ru_text_into(name, sizeof name), u = ru_text_into(note, sizeof note);
    ru_text_putf(&t, "%s, %u:%u", a->name, in.transient / reliable, 1U);
    ru_text_putf(&u, "stage %u, %u servers, copies %g clocks behind", stage, servers, mine);
    ru_replay_row row = ru_replay_row_of(name, "clock_over_best_stage", true);
    row.ours = got[0] / best;
    row.goal = 1.03;
    row.bound = 1;
    row.note = note;
    for (uint32_t k = 1; k < METHODS; k++) {
        ru_replay_baseline(r, &row, methods[k], got[k] / best);
    }
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(name, "predicted_over_simulated_clock", false);
    row.ours = predicted / got[0];
    return ru_replay_add(r, &row, err);
}

/* Processor time of a plan for 16:1 of so many machines. */
static ru_status decision_row(ru_replay *r, uint32_t machines, ru_err *err)
{
    ru_stage_in in = {.job = apps[0].job,
                      .reliable = machines / 16,
                      .transient = machines - machines / 16,
                      .partitions = 16 * machines,
                      .blocks = 64 * machines,
                      .block_bytes = MB,
                      .notice_s = 120};
    in.job.link_bytes_per_s = 125 * MB;
    in.job.serve_bytes_per_s = 2000 * MB;
    in.job.clocks_max = 4;
    ru_arena_mark m = ru_arena_mark_get(r->arena);
    ru_stage_plan p;
    int64_t begin = ru_clock_cpu_ns();
    RU_TRY(ru_plan_stage(&in, r->arena, r->arena, &p, err));
    double s = 1e-9 * (double)(ru_clock_cpu_ns() - begin);
    ru_arena_rewind(r->arena, m);
    char name[64];
    ru_text text = ru_text_into(name, sizeof name);
    ru_text_putf(&text, "%u machines", machines);
    ru_replay_row row = ru_replay_row_of(name, "decision_s", true);
    row.timed = true;
    row.ours = s;
    return ru_replay_add(r, &row, err);
}

ru_status rui_replay_stage(ru_replay *r, ru_err *err)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(apps); i++) {
        for (uint32_t reliable = MACHINES / 2; reliable >= 1; reliable /= 2) {
            RU_TRY(ratio_rows(r, &apps[i], reliable, err));
        }
    }
    RU_TRY(decision_row(r, MACHINES, err));
    return decision_row(r, 10 * MACHINES, err);
}
