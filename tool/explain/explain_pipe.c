#include "tool/explain/explain_pipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/unit.h"
#include "env/file/file.h"
#include "tool/explain/what_if.h"
#include "trace/read/stages.h"
#include "train/pipe/play.h"

enum { TRACE_BYTES = 16 << 20, LATE_MAX = 3 };
#define LATE_SHARE 0.01 /* of a step, beyond what the schedule waits anyway */

typedef struct question {
    double network, network_factor; /* bytes/s; 0: as recorded */
    uint32_t worker;                /* 0: none */
    double worker_factor;
} question;

typedef struct shown {
    ru_trace *traces;
    uint32_t n_traces;
    ru_trace_pipe p;
    const ru_pipe_plan *plan; /* of these stages; NULL: none */
    ru_pipe_in asked;         /* ... its question */
    ru_pipe_play now, then;   /* played as recorded, and as asked */
    question q;
    bool asks;
    bool several; /* workers of a stage */
    ru_arena *arena;
} shown;

/* -- questions --------------------------------------------------------------------------------- */

/* "worker3=x0.5": the number; NULL: it is none. */
static const char *worker_of(const char *set, uint32_t *worker)
{
    int end = 0;
    bool is = sscanf(set, "worker%u=%n", worker, &end) == 1 && end > 0;
    return is ? set + end : NULL;
}

bool rui_explain_pipe_is(const char *set)
{
    uint32_t worker;
    return strncmp(set, "network=", 8) == 0 || worker_of(set, &worker) != NULL;
}

static ru_status ask(const char *set, question *q, ru_err *err)
{
    uint32_t worker;
    const char *factor = worker_of(set, &worker);
    if (factor != NULL && q->worker > 0) {
        return RU_FAIL(err, RU_E_USAGE, "--if %s: expected one worker, and worker%u is asked for",
                       set, q->worker);
    }
    if (factor != NULL) {
        q->worker = worker;
        return rui_factor_of(factor, &q->worker_factor) && q->worker > 0
                   ? RU_OK
                   : RU_FAIL(err, RU_E_USAGE,
                             "--if %s: expected a factor from x0.001 to x1000, as in worker3=x0.5",
                             set);
    }
    if (q->network > 0 || q->network_factor > 0) {
        return RU_FAIL(err, RU_E_USAGE, "--if %s: expected network= once", set);
    }
    bool is = rui_factor_of(set + 8, &q->network_factor) || rui_rate_of(set + 8, &q->network);
    return is ? RU_OK
              : RU_FAIL(err, RU_E_USAGE,
                        "--if %s: expected a rate such as 100Mbit, or a factor such as x0.5", set);
}

/* -- what was recorded ------------------------------------------------------------------------- */

ru_status rui_explain_pipe_load(const char *path, ru_arena *arena, ru_trace **traces, uint32_t *n,
                                ru_trace_pipe *p, ru_err *err)
{
    ru_trace_clocks clocks;
    const char *dir = ru_path_join(arena, path, "trace");
    *n = 0;
    if (dir == NULL || !ru_path_is_dir(dir)) {
        return RU_OK;
    }
    ru_status st = ru_trace_run_load_end(path, TRACE_BYTES, arena, traces, n, err);
    if (st == RU_E_MISSING) {
        *n = 0;
        return RU_OK;
    }
    RU_TRY(st);
    RU_TRY(ru_trace_align(*traces, *n, arena, &clocks, err));
    return ru_trace_pipe_read(*traces, *n, &clocks, arena, p, err);
}

static ru_status load(const char *path, shown *s, ru_err *err)
{
    RU_TRY(rui_explain_pipe_load(path, s->arena, &s->traces, &s->n_traces, &s->p, err));
    for (uint32_t k = 0; k < s->n_traces; k++) {
        s->several = s->several || ru_trace_meta_get(&s->traces[k], "pipe workers") != NULL;
    }
    return RU_OK;
}

static ru_pipe_schedule schedule_of(const ru_trace_pipe *p)
{
    uint32_t k = RU_ARRAY_LEN(ru_pipe_schedule_names) - 1;
    while (k > 0 && strcmp(p->schedule, ru_pipe_schedule_names[k]) != 0) {
        k--;
    }
    return (ru_pipe_schedule)k;
}

/* Of all stages, and of both directions behind each of them: else no step can be played. */
static bool is_whole(const ru_trace_pipe *p)
{
    for (uint32_t s = 0; s < p->n; s++) {
        bool forward = s + 1 == p->n, back = s + 1 == p->n;
        for (uint32_t k = 0; k < p->n_flows; k++) {
            const ru_stage_flow *f = &p->flows[k];
            forward = forward || (f->to == s + 1 && f->from < f->to && f->n > 0);
            back = back || (f->to == s && f->from > f->to && f->n > 0);
        }
        if (!forward || !back || p->stages[s].steps == 0) {
            return false;
        }
    }
    return p->n > 1 && strcmp(p->schedule, "placed") != 0;
}

static uint32_t worker_number(const shown *s, uint32_t stage)
{
    return ru_trace_number(&s->traces[s->p.stages[stage].trace]);
}

/* -- playing ----------------------------------------------------------------------------------- */

static int64_t slower(int64_t ns, double factor)
{
    return factor > 0 ? (int64_t)((double)ns / factor) : ns;
}

static int64_t xfer_ns(const question *q, const ru_stage_flow *f)
{
    return q->network > 0 ? (int64_t)(1e9 * (double)f->bytes / q->network)
                          : slower(f->xfer_ns, q->network_factor);
}

static ru_status play(const shown *s, const question *q, ru_pipe_play *out, ru_err *err)
{
    const ru_trace_pipe *p = &s->p;
    int64_t *ns = RU_NEW(s->arena, int64_t, 3 * p->n);
    ru_pipe_play_link *links = RU_NEW(s->arena, ru_pipe_play_link, p->n_flows);
    if (ns == NULL || links == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u stages", p->n);
    }
    for (uint32_t k = 0; k < p->n; k++) {
        double factor = q->worker > 0 && worker_number(s, k) == q->worker ? q->worker_factor : 0;
        ns[k] = slower(p->stages[k].forward_ns, factor) + p->stages[k].input_ns;
        ns[p->n + k] = slower(p->stages[k].backward_ns, factor);
        ns[2 * p->n + k] = slower(p->stages[k].update_ns, factor);
    }
    for (uint32_t k = 0; k < p->n_flows; k++) {
        const ru_stage_flow *f = &p->flows[k];
        links[k] = (ru_pipe_play_link){f->from, f->to, xfer_ns(q, f)};
    }
    const ru_pipe_play_in in = {.n = p->n,
                                .micro = p->micro,
                                .schedule = schedule_of(p),
                                .forward_ns = ns,
                                .backward_ns = ns + p->n,
                                .update_ns = ns + 2 * p->n,
                                .links = links,
                                .n_links = p->n_flows};
    return ru_pipe_play_step(&in, s->arena, out, err);
}

/* -- tables ------------------------------------------------------------------------------------ */

static void cols(ru_table *t, const char *const *names, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        ru_table_col(t, names[k], RU_TABLE_RIGHT);
    }
}

static double idle(const ru_pipe_play *x, uint32_t stage)
{
    return x->step_ns > 0 ? 1 - (double)x->busy_ns[stage] / (double)x->step_ns : 0;
}

static void put_said(ru_table *t, double s)
{
    if (s > 0) {
        ru_table_ns(t, (int64_t)(1e9 * s));
    } else {
        ru_table_absent(t, "s");
    }
}

static ru_status show_stages(const shown *s, const ru_tell *out, ru_err *err)
{
    static const char *const names[] = {"stage",   "worker",  "from",        "predicted",
                                        "compute", "forward", "backward",    "update",
                                        "input",   "bubble",  "by schedule", "with --if"};
    const ru_trace_pipe *p = &s->p;
    ru_table t = ru_table_in(s->arena);
    cols(&t, names, RU_ARRAY_LEN(names) - (s->asks ? 0 : 1));
    const char *title = ru_arena_printf(
        s->arena, "stages in a step of %u micro-batches (%s), means of %lld recorded steps",
        p->micro, p->schedule, (long long)p->stages[p->n - 1].steps);
    ru_tell_i64(out, "micro_batches", p->micro);
    ru_tell_str(out, "schedule", p->schedule);
    ru_tell_i64(out, "recorded_steps", p->stages[p->n - 1].steps);
    for (uint32_t k = 0; k < p->n; k++) {
        const ru_stage_time *x = &p->stages[k];
        int64_t parts = p->micro * (x->forward_ns + x->backward_ns),
                busy = parts + x->update_ns + p->micro * x->input_ns;
        ru_table_i64(&t, k + 1);
        ru_table_i64(&t, worker_number(s, k));
        ru_table_str(&t, k == 0 ? "the input" : x->first);
        put_said(&t, s->plan != NULL ? s->plan->stages[k].compute_s : 0);
        ru_table_ns(&t, parts);
        ru_table_ns(&t, x->forward_ns);
        ru_table_ns(&t, x->backward_ns);
        ru_table_ns(&t, x->update_ns);
        ru_table_ns(&t, x->input_ns);
        ru_table_percent(&t, x->step_ns > 0 ? 1 - (double)busy / (double)x->step_ns : 0, 0);
        ru_table_percent(&t, idle(&s->now, k), 0);
        if (s->asks) {
            ru_table_percent(&t, idle(&s->then, k), 0);
        }
    }
    return ru_tell_table(out, "stages", title != NULL ? title : "", &t, err);
}

static void put_bytes(ru_table *t, double bytes)
{
    if (bytes > 0) {
        ru_table_bytes(t, (int64_t)bytes);
    } else {
        ru_table_absent(t, "bytes");
    }
}

/* What the worker of each stage has opened, beside what the plan counted. */
static ru_status show_memory(const shown *s, const ru_tell *out, ru_err *err)
{
    static const char *const names[] = {"stage",     "late by", "versions", "weights",
                                        "predicted", "planned", "to save"};
    const ru_trace_pipe *p = &s->p;
    const ru_pipe_shape shape = {.schedule = schedule_of(p), .n = p->n, .micro = p->micro};
    ru_table t = ru_table_in(s->arena);
    cols(&t, names, RU_ARRAY_LEN(names));
    for (uint32_t k = 0; k < p->n; k++) {
        const char *said = ru_trace_meta_get(&s->traces[p->stages[k].trace], "pipe memory");
        long long weights = 0, all = 0, saves = 0;
        if (said == NULL || sscanf(said, "%*u %lld %lld %lld", &weights, &all, &saves) < 2) {
            return RU_OK; /* an older run */
        }
        ru_table_i64(&t, k + 1);
        ru_table_i64(&t, ru_pipe_late(&shape, k));
        ru_table_i64(&t, ru_pipe_versions(&shape, k));
        put_bytes(&t, (double)weights);
        put_bytes(&t, s->plan != NULL ? s->plan->stages[k].memory_bytes : 0);
        put_bytes(&t, (double)all);
        put_bytes(&t, (double)saves);
    }
    return ru_tell_table(
        out, "memory",
        "memory of the stages: steps by which they are late, versions of the "
        "weights, all that is planned for steps, and beside it to evaluate and save",
        &t, err);
}

/* The newest trace of its worker, which is one of several of a stage: which stage, of how many. */
static bool is_one_of(const shown *s, uint32_t k, uint32_t *stage, uint32_t *stages)
{
    const ru_trace *t = &s->traces[k];
    const char *said = ru_trace_meta_get(t, "pipe workers");
    bool is = said != NULL && sscanf(said, "%u %u", stage, stages) == 2;
    for (uint32_t i = 0; i < s->n_traces; i++) {
        const ru_trace *o = &s->traces[i];
        is = is && (ru_trace_number(o) != ru_trace_number(t) || o->wall_ns <= t->wall_ns);
    }
    return is;
}

/* Of stages with several workers: what each of these has opened. */
static ru_status show_workers(const shown *s, const ru_tell *out, ru_err *err)
{
    static const char *const names[] = {"stage",   "worker",  "late by", "versions",
                                        "weights", "planned", "to save"};
    ru_table t = ru_table_in(s->arena);
    uint32_t stages = 1, of;
    cols(&t, names, RU_ARRAY_LEN(names));
    for (uint32_t at = 0; at < stages; at++) {
        for (uint32_t k = 0; k < s->n_traces; k++) {
            const char *said = ru_trace_meta_get(&s->traces[k], "pipe memory");
            unsigned versions, late;
            long long weights, all, saves;
            if (!is_one_of(s, k, &of, &stages) || of != at || said == NULL ||
                sscanf(said, "%u %lld %lld %lld %u", &versions, &weights, &all, &saves, &late) !=
                    5) {
                continue;
            }
            ru_table_i64(&t, at + 1);
            ru_table_i64(&t, ru_trace_number(&s->traces[k]));
            ru_table_i64(&t, late);
            ru_table_i64(&t, versions);
            put_bytes(&t, (double)weights);
            put_bytes(&t, (double)all);
            put_bytes(&t, (double)saves);
        }
    }
    return ru_tell_table(out, "memory",
                         "memory of the workers: steps by which their gradients are late at most, "
                         "versions of the weights, all that is planned for steps, and beside it to "
                         "evaluate and save",
                         &t, err);
}

/* "3 by 1.2 ms": the micro-batches (from 1) that were waited for longest, beyond the schedule. */
static void put_late(const shown *s, uint32_t flow, ru_table *t)
{
    const ru_stage_flow *f = &s->p.flows[flow];
    const int64_t *said = s->now.wait_ns + (uint64_t)flow * s->p.micro;
    int64_t below = INT64_MAX, least = (int64_t)(LATE_SHARE * (double)s->now.step_ns);
    ru_text x = ru_text_arena(s->arena), y = ru_text_arena(s->arena);
    ru_json json = ru_json_into(&y);
    ru_json_open(&json, NULL, '[');
    for (uint32_t k = 0; k < LATE_MAX; k++) {
        int64_t most = least;
        uint32_t which = UINT32_MAX;
        for (uint32_t j = 0; j < s->p.micro; j++) {
            int64_t ns = f->wait_ns[j] - said[j];
            which = ns > most && ns < below ? j : which;
            most = ns > most && ns < below ? ns : most;
        }
        if (which == UINT32_MAX) {
            break;
        }
        ru_text_putf(&x, "%s%u by ", k > 0 ? ", " : "", which + 1);
        ru_text_time_short(&x, most);
        ru_json_open(&json, NULL, '{');
        ru_json_i64(&json, "micro_batch", which + 1);
        ru_json_f64(&json, "by_s", (double)most * 1e-9);
        ru_json_close(&json);
        below = most;
    }
    ru_json_close(&json);
    ru_table_raw(t, x.n > 0 && !x.cut ? x.p : "-", y.cut ? "null" : y.p);
}

/* The plan knows what crosses behind a stage; of what skips stages it counts each crossing. */
static double said_s(const shown *s, const ru_stage_flow *f)
{
    uint32_t first = f->from < f->to ? f->from : f->to;
    bool next = f->from + 1 == f->to || f->to + 1 == f->from;
    return s->plan != NULL && next
               ? s->plan->stages[first].cut_bytes / s->p.micro / s->asked.levels[0].bytes_per_s
               : 0;
}

static ru_status show_links(const shown *s, const ru_tell *out, ru_err *err)
{
    static const char *const names[] = {"from",     "to",     "bytes",       "predicted",
                                        "transfer", "waited", "by schedule", "came late"};
    const ru_trace_pipe *p = &s->p;
    ru_table t = ru_table_in(s->arena);
    ru_table_col(&t, "what", RU_TABLE_LEFT);
    cols(&t, names, 7);
    ru_table_col(&t, names[7], RU_TABLE_LEFT);
    for (uint32_t k = 0; k < p->n_flows; k++) {
        const ru_stage_flow *f = &p->flows[k];
        int64_t waited = 0, said = 0;
        for (uint32_t j = 0; j < p->micro; j++) {
            waited += f->wait_ns[j];
            said += s->now.wait_ns[(uint64_t)k * p->micro + j];
        }
        ru_table_str(&t, f->from < f->to ? "activations" : "gradients");
        ru_table_i64(&t, f->from + 1);
        ru_table_i64(&t, f->to + 1);
        ru_table_bytes(&t, f->bytes);
        put_said(&t, said_s(s, f));
        ru_table_ns(&t, f->xfer_ns);
        ru_table_ns(&t, waited);
        ru_table_ns(&t, said);
        put_late(s, k, &t);
    }
    return ru_tell_table(out, "links", "links, of a micro-batch; waits of the receiver in a step",
                         &t, err);
}

/* "1.2 ms WHAT (+5 %)": beside the recorded step. */
static void put_step(const shown *s, double ns, const char *key, const char *what,
                     const ru_tell *out)
{
    double is = (double)s->p.stages[s->p.n - 1].step_ns;
    ru_text_time_short(out->text, (int64_t)ns);
    ru_text_putf(out->text, " %s (%+.0f %%)", what, is > 0 ? 100 * (ns / is - 1) : 0);
    ru_tell_open(out, key, '{');
    ru_tell_ns(out, "step_s", ns);
    ru_tell_f64(out, "beside_recorded_share", is > 0 ? ns / is - 1 : 0);
    ru_tell_close(out);
}

static void show_steps(const shown *s, const ru_tell *out)
{
    double is = (double)s->p.stages[s->p.n - 1].step_ns, now = (double)s->now.step_ns;
    ru_text_put(out->text, "a step: ");
    ru_text_time_short(out->text, (int64_t)is);
    ru_text_put(out->text, " recorded, ");
    ru_tell_ns(out, "recorded_step_s", is);
    if (s->plan != NULL) {
        put_step(s, 1e9 * s->plan->minibatch_s, "before_run", "predicted before the run", out);
        ru_text_put(out->text, ", ");
    }
    put_step(s, now, "by_schedule", "by the schedule with the recorded times", out);
    if (s->asks) {
        double times = now > 0 ? (double)s->then.step_ns / now : 0;
        ru_text_put(out->text, "\nwith --if: ");
        ru_text_time_short(out->text, s->then.step_ns);
        ru_text_putf(out->text, " by the schedule, %.3g times as long: ", times);
        ru_text_time_short(out->text, (int64_t)(is * times));
        ru_tell_open(out, "if", '{');
        ru_tell_ns(out, "by_schedule_s", (double)s->then.step_ns);
        ru_tell_f64(out, "times_as_long", times);
        ru_tell_ns(out, "step_s", is * times);
        ru_tell_close(out);
    }
    ru_text_put(out->text, "\n");
}

/* -- all --------------------------------------------------------------------------------------- */

/* The plan is of these stages, each with one worker? */
static ru_status take_plan(shown *s, const void *input, const ru_pipe_plan *plan, ru_err *err)
{
    if (plan == NULL || plan->n_stages != s->p.n || plan->workers != s->p.n) {
        return RU_OK;
    }
    RU_TRY(ru_pipe_in_of(input, s->arena, &s->asked, err));
    s->plan = plan;
    return RU_OK;
}

static ru_status check_worker(const shown *s, ru_err *err)
{
    bool found = s->q.worker == 0;
    for (uint32_t k = 0; k < s->p.n && !found; k++) {
        found = worker_number(s, k) == s->q.worker;
    }
    return found ? RU_OK
                 : RU_FAIL(err, RU_E_USAGE, "--if worker%u: no stage had worker %u", s->q.worker,
                           s->q.worker);
}

ru_status rui_explain_pipe(const char *path, const void *input, const ru_pipe_plan *plan,
                           const char *const *sets, uint32_t n, ru_arena *arena, const ru_tell *out,
                           bool *whole, ru_err *err)
{
    shown s = {.arena = arena, .asks = n > 0};
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(ask(sets[k], &s.q, err));
    }
    RU_TRY(load(path, &s, err));
    *whole = is_whole(&s.p);
    if (!*whole && s.several && n == 0) {
        *whole = true;
        ru_tell_note(out, "stages_note",
                     "some stages have several workers: records of stages are shown of runs in "
                     "which each has one");
        return show_workers(&s, out, err);
    }
    if (!*whole) {
        return n == 0 ? RU_OK
                      : RU_FAIL(err, RU_E_MISSING,
                                "%s has no records of all stages of a pipeline, so --if %s cannot "
                                "be answered",
                                path, sets[0]);
    }
    RU_TRY(check_worker(&s, err));
    RU_TRY(take_plan(&s, input, plan, err));
    RU_TRY(play(&s, &(question){0}, &s.now, err));
    RU_TRY(s.asks ? play(&s, &s.q, &s.then, err) : RU_OK);
    RU_TRY(show_stages(&s, out, err));
    RU_TRY(show_memory(&s, out, err));
    RU_TRY(show_links(&s, out, err));
    show_steps(&s, out);
    return RU_OK;
}
