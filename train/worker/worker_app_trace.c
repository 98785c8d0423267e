/* Records of a worker of a job with an app, besides those of the engine: what its compute threads
 * do, and what came of moves, saves and recoveries. */
#include <stdio.h>

#include "run/record.h"
#include "train/worker/worker_app_impl.h"

ru_status rui_app_trace_open(rui_app_worker *w, ru_err *err)
{
    const ru_worker_options *o = w->opt->worker;
    RU_TRY(ru_run_recorder(o->train.out, o->train.rank, o->train.resume || o->shell.newcomer,
                           "loop", &w->recorder, err));
    w->names.executor = RU_NEW(w->arena, uint16_t, w->data.executors);
    if (w->names.executor == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    for (uint32_t k = 0; k < w->data.executors; k++) {
        char name[32];
        (void)snprintf(name, sizeof name, "executor %u", k);
        w->names.executor[k] = ru_recorder_name(w->recorder, name, "op");
    }
    static const char *const kinds[] = {
        [RUI_APP_OPEN] = "open data",     [RUI_APP_RUN] = "task",
        [RUI_APP_WRITE] = "write object", [RUI_APP_READ] = "read object",
        [RUI_APP_LOG] = "write log",      [RUI_APP_LOG_READ] = "read log",
        [RUI_APP_EXPORT] = "checkpoint",  [RUI_APP_WORLD] = "world file"};
    _Static_assert(RU_ARRAY_LEN(kinds) == RUI_APP_KINDS, "a name for each kind");
    for (uint32_t k = 0; k < RUI_APP_KINDS; k++) {
        w->names.kind[k] = ru_recorder_name(w->recorder, kinds[k], "ckpt");
    }
    w->names.moved = ru_recorder_name(w->recorder, "object came", "moves");
    w->names.settled = ru_recorder_name(w->recorder, "moves", "moves");
    w->names.saved = ru_recorder_name(w->recorder, "save", "ckpt");
    w->names.logged = ru_recorder_name(w->recorder, "running checkpoint", "ckpt");
    w->names.rebuilt = ru_recorder_name(w->recorder, "rebuild", "recover");
    w->names.restored = ru_recorder_name(w->recorder, "restored", "recover");
    return RU_OK;
}

void rui_app_trace_work(const rui_app_worker *w, const rui_app_command *c, int64_t begin_ns,
                        int64_t end_ns)
{
    if (c->kind != RUI_APP_RUN) {
        ru_rec_span(w->recorder, w->names.kind[c->kind], begin_ns, end_ns, c->n);
        return;
    }
    const ru_app_task *t = &c->task->task;
    const ru_rec_flow f = {.kind = RU_REC_SPAN,
                           .name = w->names.executor[t->executor],
                           .start_ns = begin_ns,
                           .end_ns = end_ns,
                           .bytes = t->hi - t->lo,
                           .step = t->clock,
                           .rank = (uint16_t)t->executor};
    ru_rec_flows(w->recorder, &f);
}

void rui_app_trace_news(const rui_app_worker *w, const ru_engine_news *n, ru_time now)
{
    int64_t from = now.ns - n->took_ns;
    ru_recorder *r = w->recorder;
    switch (n->kind) {
    case RU_ENGINE_MOVED:
        ru_rec_async(r, w->names.moved, from, now.ns, n->bytes, 0, 0);
        break;
    case RU_ENGINE_SETTLED:
        ru_rec_async(r, w->names.settled, from, now.ns, 0, w->plans.moves.plan,
                     w->plans.moves.predicted_ns);
        break;
    case RU_ENGINE_SAVED:
        ru_rec_async(r, w->names.saved, from, now.ns, n->bytes, 0, 0);
        break;
    case RU_ENGINE_LOGGED:
        ru_rec_async(r, w->names.logged, from, now.ns, n->bytes, w->plans.saves.plan,
                     w->plans.saves.predicted_ns);
        break;
    case RU_ENGINE_REBUILT:
        ru_rec_async(r, w->names.rebuilt, from, now.ns, n->rebuilt->rows, 0, 0);
        break;
    case RU_ENGINE_RESTORED:
        ru_rec_instant_at(r, w->names.restored, now.ns, n->clock);
        break;
    case RU_ENGINE_CLOSED:
    case RU_ENGINE_CLOCKED:
    case RU_ENGINE_ENDED:
        break;
    }
}
