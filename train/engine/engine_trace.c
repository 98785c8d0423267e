/* Records of the loop thread: what this process does in each clock, and what it waits for.
 *
 *   step                                                  the clock, until it is closed
 *   tasks | rows | tasks | end of the clock | other       inside it, one after another
 *   fetch rows, send changes                              beside it, one of each executor
 *
 * While any task runs here, the process computes. Otherwise it waits for rows or for
 * acknowledgements of changes, or, when all executors here are done, for the end of the clock.
 * The end of a clock is recorded like a sum of gradients: it begins on a process when its last
 * executor is done. So trace/read/steps.h tells who was late. A block of rows that rotate is a sum
 * of its last and its next holder in the same way.
 *
 * Thread: loop only. */
#include "base/hash.h"
#include "train/engine/engine_slice_impl.h"

#define SPREAD UINT64_C(0x9e3779b97f4a7c15) /* keeps numbers of flows apart */

typedef enum doing { DOES_OTHER, DOES_WAIT, DOES_FETCH, DOES_SEND, DOES_RUN, DOES } doing;
typedef enum part { PART_OTHER, PART_CLOCK, PART_ROWS, PART_TASKS, PARTS } part;

typedef struct rui_records {
    ru_recorder *r;
    uint64_t flow, block; /* of the ends of clocks of this generation, of blocks that rotate */
    uint16_t step, name[PARTS], clock, rows, changes, slice;
    uint32_t plan, predicted_ns; /* of the map in force and of a clock with it; 0: none */
    uint32_t count[DOES];        /* executors */
    part now;
    int64_t total_ns[PARTS];
    ru_time since, clock_at; /* of `now`; the last clock was closed */
    ru_time *done_at;        /* [window] the last executor here was done with a clock */
    struct {
        doing does;
        ru_time since;
        uint32_t step, block;
        int64_t bytes;
    } * exec; /* [executors] */
} rui_records;

ru_status rui_engine_record_open(ru_engine *e, ru_err *err)
{
    ru_recorder *r = e->opt.recorder;
    if (r == NULL) {
        return RU_OK;
    }
    rui_records *t = RU_NEW(e->arena, rui_records, 1);
    if (t == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the records of %u executors", e->n_execs);
    }
    bool rotates = e->opt.shape->rounds > 1;
    t->r = r;
    t->exec = ru_arena_zalloc(e->arena, (int64_t)sizeof *t->exec * e->n_execs, _Alignof(int64_t));
    t->done_at = RU_NEW(e->arena, ru_time, e->window);
    t->step = ru_recorder_name(r, "step", "train");
    t->name[PART_TASKS] = ru_recorder_name(r, "tasks", "train");
    t->name[PART_ROWS] = ru_recorder_name(r, rotates ? "rows of a block" : "rows", "train");
    t->name[PART_CLOCK] = ru_recorder_name(r, "end of the clock", "train");
    t->name[PART_OTHER] = ru_recorder_name(r, "other work", "train");
    t->clock = ru_recorder_name(r, "end of the clock", "sum");
    t->rows = ru_recorder_name(r, "fetch rows", "params");
    t->changes = ru_recorder_name(r, "send changes", "params");
    t->slice = ru_recorder_name(r, "slice by another executor", "params");
    if (t->exec == NULL || t->done_at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the records of %u executors", e->n_execs);
    }
    t->count[DOES_OTHER] = e->n_execs;
    e->trace = t;
    return RU_OK;
}

static doing does(const ru_engine *e, uint32_t k)
{
    const rui_exec *x = &e->exec[k];
    if (x->busy == RUI_RUNS || (e->slices != NULL && e->slices->at[k].running)) {
        return DOES_RUN;
    }
    if (x->busy == RUI_FETCHES || x->busy == RUI_FLUSHES) {
        return x->busy == RUI_FETCHES ? DOES_FETCH : DOES_SEND;
    }
    bool waits = x->busy == RUI_IDLE || x->busy == RUI_SLICES;
    bool gone = !x->mine && x->want == RUI_WANT_NONE; /* as good as waiting */
    return waits && (gone || x->want == RUI_WANT_READY) ? DOES_WAIT : DOES_OTHER;
}

/* The part of the clock under way until now, when another one begins. */
static void put_part(rui_records *t, ru_time now)
{
    bool waits = t->now == PART_CLOCK || t->now == PART_ROWS;
    t->total_ns[t->now] += now.ns - t->since.ns;
    if (now.ns > t->since.ns && waits) {
        ru_rec_wait(t->r, t->name[t->now], t->since.ns, now.ns, t->name[t->now]);
    } else if (now.ns > t->since.ns && t->now != PART_OTHER) {
        ru_rec_span(t->r, t->name[t->now], t->since.ns, now.ns, t->count[DOES_RUN]);
    }
    t->since = now;
}

/* Executor k waited for rows, or for acknowledgements. */
static void put_wait(const ru_engine *e, uint32_t k, ru_time now)
{
    const rui_records *t = e->trace;
    bool fetch = t->exec[k].does == DOES_FETCH, rotates = e->opt.shape->rounds > 1;
    uint32_t step = t->exec[k].step, held = fetch ? step - 1 : step;
    if (!rotates || (fetch && step == 0)) {
        ru_rec_async(t->r, fetch ? t->rows : t->changes, t->exec[k].since.ns, now.ns,
                     t->exec[k].bytes, 0, 0);
        return;
    }
    ru_rec_flows(t->r, &(ru_rec_flow){.kind = RU_REC_SUM,
                                      .name = fetch ? t->rows : t->changes,
                                      .flow = t->block + (uint64_t)t->exec[k].block * SPREAD + held,
                                      .start_ns = t->exec[k].since.ns,
                                      .end_ns = now.ns,
                                      .bytes = t->exec[k].bytes,
                                      .step = held,
                                      .rank = (uint16_t)k});
}

void rui_engine_record_look(ru_engine *e, uint32_t k, ru_time now)
{
    rui_records *t = e->trace;
    if (t == NULL) {
        return;
    }
    doing d = does(e, k), was = t->exec[k].does;
    if (d == was) {
        return;
    }
    if (was == DOES_FETCH || was == DOES_SEND) {
        put_wait(e, k, now);
    }
    t->exec[k].does = d;
    t->exec[k].since = now;
    if (d == DOES_FETCH || d == DOES_SEND) {
        t->exec[k].step = e->exec[k].step;
        t->exec[k].block = e->exec[k].task.task.block;
        t->exec[k].bytes = 4 * rui_task_floats(e, &e->exec[k].task);
    }
    t->count[was]--;
    t->count[d]++;
    part p = t->count[DOES_RUN] > 0                           ? PART_TASKS
             : t->count[DOES_FETCH] + t->count[DOES_SEND] > 0 ? PART_ROWS
             : t->count[DOES_OTHER] > 0                       ? PART_OTHER
                                                              : PART_CLOCK;
    if (p != t->now) {
        put_part(t, now);
        t->now = p;
    }
}

void rui_engine_record_done(ru_engine *e, uint32_t clock, ru_time now)
{
    if (e->trace != NULL) {
        e->trace->done_at[clock % e->window] = now;
    }
}

void rui_engine_record_clock(ru_engine *e, uint32_t closed, ru_time now)
{
    rui_records *t = e->trace;
    if (t == NULL) {
        return;
    }
    put_part(t, now);
    for (uint32_t c = e->closed; c < closed; c++) {
        ru_time *done = &t->done_at[c % e->window];
        ru_rec_flows(t->r, &(ru_rec_flow){.kind = RU_REC_SUM,
                                          .name = t->clock,
                                          .flow = t->flow + c * SPREAD,
                                          .start_ns = done->ns != 0 ? done->ns : t->clock_at.ns,
                                          .end_ns = now.ns,
                                          .step = c});
        *done = (ru_time){0};
        ru_rec_act(t->r, t->step, t->clock_at.ns, now.ns, (int64_t)c + 1, t->plan, t->predicted_ns);
        t->clock_at = now;
    }
}

void rui_engine_record_slice(ru_engine *e, uint32_t units, int64_t took_ns, int64_t predicted_ns,
                             ru_time now)
{
    const rui_records *t = e->trace;
    if (t != NULL) {
        uint32_t soon = predicted_ns < UINT32_MAX ? (uint32_t)predicted_ns : 0;
        ru_rec_async(t->r, t->slice, now.ns - took_ns, now.ns, units, 0, soon);
    }
}

void ru_engine_record_plan(ru_engine *e, uint32_t plan, uint32_t predicted_ns)
{
    if (e->trace != NULL) {
        e->trace->plan = plan;
        e->trace->predicted_ns = predicted_ns;
    }
}

void rui_engine_record_facts(const ru_engine *e, ru_engine_facts *into)
{
    if (e->trace != NULL) {
        into->compute_ns = e->trace->total_ns[PART_TASKS];
        into->network_ns = e->trace->total_ns[PART_ROWS];
        into->wait_ns = e->trace->total_ns[PART_CLOCK];
        into->other_ns = e->trace->total_ns[PART_OTHER];
    }
}

void rui_engine_record_begin(ru_engine *e, ru_time now)
{
    rui_records *t = e->trace;
    if (t == NULL) {
        return;
    }
    const uint64_t key[2] = {e->opt.shape->seed, e->generation};
    t->flow = ru_hash_bytes(key, sizeof key, 1);
    t->block = ru_hash_bytes(key, sizeof key, 2);
    t->clock_at = now;
    for (uint32_t c = 0; c < e->window; c++) {
        t->done_at[c] = (ru_time){0};
    }
    t->now = PART_OTHER;
    t->since = now;
    for (uint32_t k = 0; k < e->n_execs; k++) {
        rui_engine_record_look(e, k, now);
    }
}
