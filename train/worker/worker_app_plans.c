/* What the leader of a job with an app decided, with what came of it, for `rubato explain`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "plan/crew/moves_policy.h"
#include "plan/crew/reassign_policy.h"
#include "store/world_file.h"
#include "train/driver/op_facts.h"
#include "train/driver/step_facts.h"
#include "train/worker/worker_app_impl.h"

/* The map that was in force until now: its clocks. */
static void measure(rui_app_worker *w, ru_time now)
{
    if (w->plans.measured && w->plans.clocks > 0) {
        ru_decisions_measured(w->plans.decisions, ru_policy_find("moves"), "iteration_s", RU_NAN,
                              (double)(now.ns - w->plans.at.ns) * 1e-9 / (double)w->plans.clocks);
    }
    w->plans.measured = false;
}

/* Objects of a kind, as the policy's file has them. */
static const ru_moves_policy_object *objects_of(const ru_moves_object *o, uint32_t n, ru_arena *a)
{
    ru_moves_policy_object *to = RU_NEW(a, ru_moves_policy_object, n + 1);
    for (uint32_t k = 0; to != NULL && k < n; k++) {
        to[k] =
            (ru_moves_policy_object){.on = o[k].on == RU_MOVES_NONE ? -1 : (int64_t)o[k].on,
                                     .home = o[k].home == RU_MOVES_NONE ? -1 : (int64_t)o[k].home,
                                     .state_bytes = o[k].state_bytes,
                                     .data_bytes = o[k].data_bytes,
                                     .net_bytes = o[k].net_bytes,
                                     .cpu_s = (double)o[k].cpu_ns * 1e-9};
    }
    return to;
}

void rui_app_planned(void *self, const ru_moves_in *in, ru_time now)
{
    rui_app_worker *w = self;
    ru_arena a;
    measure(w, now);
    ru_arena_init(&a, 0);
    const ru_moves_policy_object *executors = objects_of(in->object, in->n_executors, &a);
    const ru_moves_policy_object *shards =
        objects_of(in->object + in->n_executors, in->n_shards, &a);
    const ru_moves_policy_in file = {.q = *in,
                                     .workers = {in->worker, in->n_workers},
                                     .executors = {executors, executors ? in->n_executors : 0},
                                     .shards = {shards, shards ? in->n_shards : 0},
                                     .nodes_max = (uint32_t)in->nodes_max};
    ru_decisions_add(w->plans.decisions, ru_policy_find("moves"), &file, false);
    w->plans.moves.plan = ru_decisions_newest(w->plans.decisions, ru_policy_find("moves"),
                                              "moving_s", &w->plans.moves.predicted_ns);
    ru_arena_fini(&a);
}

void rui_app_staged(void *self, const ru_stage_in *in, double clock_s, ru_time now)
{
    rui_app_worker *w = self;
    const ru_policy *policy = ru_policy_find("stage");
    (void)now;
    if (w->plans.staged && clock_s > 0) { /* what came of the last answer */
        ru_decisions_measured(w->plans.decisions, policy, "clock_s", RU_NAN, clock_s);
    }
    if (in == NULL) {
        return;
    }
    const ru_stage_file file = ru_stage_to_file(in);
    ru_decisions_add(w->plans.decisions, policy, &file, false);
    w->plans.staged = true;
}

void rui_app_settled(rui_app_worker *w, const ru_engine_news *n, ru_time now)
{
    ru_decisions_measured(w->plans.decisions, ru_policy_find("moves"), "moving_s", RU_NAN,
                          (double)n->took_ns * 1e-9);
    uint32_t predicted_ns, plan = ru_decisions_newest(w->plans.decisions, ru_policy_find("moves"),
                                                      "iteration_s", &predicted_ns);
    ru_engine_record_plan(w->engine, plan, predicted_ns);
    w->plans.measured = true;
    w->plans.at = now;
    w->plans.clocks = 0;
}

/* Saves are many: those of which the number is a power of two are recorded. */
void rui_app_saving(void *self, const ru_save_in *in, uint32_t count, ru_time now)
{
    rui_app_worker *w = self;
    (void)now;
    w->plans.save_told = (count & (count - 1)) == 0;
    if (w->plans.save_told) {
        ru_decisions_add(w->plans.decisions, ru_policy_find("save"), in, false);
        w->plans.saves.plan = ru_decisions_newest(w->plans.decisions, ru_policy_find("save"),
                                                  "save_s", &w->plans.saves.predicted_ns);
    }
}

/* The time of a save is predicted from those before. */
void rui_app_logged(rui_app_worker *w, const ru_engine_news *n)
{
    double bytes = (double)n->bytes, took = (double)n->took_ns * 1e-9;
    double soon = w->plans.save_bytes > 0 ? bytes * w->plans.save_s / w->plans.save_bytes : 0;
    w->plans.saves.predicted_ns = soon < 4 ? (uint32_t)(soon * 1e9) : 0;
    if (w->plans.save_told) {
        ru_decisions_measured(
            w->plans.decisions, ru_policy_find("save"), "save_s",
            w->plans.save_bytes > 0 ? bytes * w->plans.save_s / w->plans.save_bytes : RU_NAN, took);
    }
    w->plans.save_bytes += bytes;
    w->plans.save_s += took;
}

void rui_app_recovered(void *self, const ru_recover_in *in, double late, int64_t took_ns,
                       ru_time now)
{
    rui_app_worker *w = self;
    uint32_t lost = 0;
    (void)now;
    for (uint32_t k = 0; k < in->n; k++) {
        lost += in->block[k].lost ? 1 : 0;
    }
    const ru_policy *policy = ru_policy_find("recover");
    ru_decisions_add(w->plans.decisions, policy, in, false);
    ru_decisions_measured(w->plans.decisions, policy, "recovery_s",
                          w->plans.recoveries > 0 ? w->plans.recovery_s / w->plans.recoveries
                                                  : RU_NAN,
                          (double)took_ns * 1e-9);
    ru_decisions_measured(w->plans.decisions, policy, "lost_iterations", RU_NAN, late);
    w->plans.recovery_s += (double)took_ns * 1e-9;
    w->plans.recoveries++;
    ru_log(RU_LOG_INFO, "train", "recovered",
           "%u objects of workers that died are here again after %.3f s, %.3g clocks behind", lost,
           (double)took_ns * 1e-9, late);
}

/* Of the history by the method; NaN: ours, which says what the next clock takes. */
static double mean_clock_s(const ru_reassign_in *in, ru_arena *a)
{
    ru_reassign_plan p;
    ru_err err;
    bool ours = in->method == RU_REASSIGN_STICKY;
    return !ours && ru_plan_reassign(in, a, a, &p, &err) == RU_OK
               ? (double)p.history_ns * 1e-9 / (double)in->clocks
               : RU_NAN;
}

void rui_app_reassigned(void *self, const ru_reassign_in *in, const ru_engine_slices *slices,
                        int64_t clock_ns)
{
    rui_app_worker *w = self;
    const ru_policy *policy = ru_policy_find("reassign");
    if (w->plans.reassigned) { /* what came of the last answer */
        bool ours = isnan(w->plans.reassign_clock_s);
        ru_decisions_measured(w->plans.decisions, policy, ours ? "next_clock_s" : "clock_s",
                              w->plans.reassign_clock_s, (double)clock_ns * 1e-9);
        if (slices->n > 0) {
            ru_decisions_measured(w->plans.decisions, policy, "slice_s",
                                  (double)slices->predicted_ns * 1e-9 / (double)slices->n,
                                  (double)slices->took_ns * 1e-9 / (double)slices->n);
        }
        ru_decisions_measured(w->plans.decisions, policy, "slices_share", RU_NAN,
                              slices->of > 0 ? (double)slices->units / (double)slices->of : 0);
        if (slices->all_bytes > 0) {
            ru_decisions_measured(w->plans.decisions, policy, "messages_share", RU_NAN,
                                  (double)slices->bytes / (double)slices->all_bytes);
            ru_decisions_measured(w->plans.decisions, policy, "slice_rows_share", RU_NAN,
                                  (double)slices->row_bytes / (double)slices->all_bytes);
        }
    }
    if (in == NULL) {
        return;
    }
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_reassign_policy_clock *clocks = RU_NEW(&a, ru_reassign_policy_clock, in->clocks);
    for (uint32_t c = 0; clocks != NULL && c < in->clocks; c++) {
        clocks[c].took_s = (ru_conf_f64s){in->took + (size_t)c * in->n, in->n};
    }
    const ru_reassign_policy_in file = {.q = *in,
                                        .history = {clocks, clocks == NULL ? 0 : in->clocks}};
    ru_decisions_add(w->plans.decisions, policy, &file, false);
    w->plans.reassign_clock_s = mean_clock_s(in, &a);
    w->plans.reassigned = true;
    ru_arena_fini(&a);
}

ru_app_world rui_app_world_of(const rui_app_worker *w)
{
    return (ru_app_world){.file = w->opt->file,
                          .out = w->opt->worker->train.out,
                          .decisions = w->plans.decisions,
                          .threads = w->n_threads,
                          .samples = ru_sparse_rows(w->data.train),
                          .batch = ru_sparse_rows(w->data.train) / w->state.shape.pieces,
                          .clocks = w->run.clocks,
                          .parameters = w->run.parameters};
}

void rui_app_world_make(rui_app_worker *w, rui_app_command *c)
{
    ru_arena arena;
    ru_world world;
    ru_arena_init(&arena, 0);
    ru_text text = ru_text_arena(&arena);
    const ru_app_world a = rui_app_world_of(w);
    c->status = ru_app_world_get(&a, &arena, &world, &c->err);
    c->status = c->status == RU_OK
                    ? ru_step_facts(a.out, RU_OP_FACTS_LIVE_BYTES, &arena, &world, &c->err)
                    : c->status;
    c->status = c->status == RU_OK ? ru_world_file_put(&world, &text, &c->err) : c->status;
    c->bytes = c->status == RU_OK ? malloc((size_t)text.n + 1) : NULL;
    if (c->bytes != NULL) {
        memcpy(c->bytes, text.p, (size_t)text.n);
        c->n = text.n;
    } else if (c->status == RU_OK) {
        c->status = RU_FAIL(&c->err, RU_E_MEM, "no memory for the world file of the run");
    }
    ru_arena_fini(&arena);
}

void rui_app_world(rui_app_worker *w)
{
    ru_engine_facts f = {0};
    if (w->engine != NULL) {
        ru_engine_facts_get(w->engine, &f);
    }
    /* The last of several to end leads nobody, but what it reported is complete. That of a leader
     * that was cut off is not. */
    bool whole = w->tells.report != NULL && w->shell.ended && w->shell.end_status == RU_OK;
    if (f.leads || whole) {
        measure(w, ru_clock_now());
        const ru_app_world a = rui_app_world_of(w);
        ru_app_world_put(&a);
    }
}
