/* The row of `read` in plan/row/policy.def: its input as a file, its report. */
#include "plan/disk/read_policy.h"

#include <math.h>

#include "plan/row/policy.h"

typedef ru_read_policy_window window_in;
typedef ru_read_policy_in read_in;

#define MEASURED(name_, owner_, field_, min_, def_, help_)                                   \
    {                                                                                        \
        .name = name_, .type = RU_CONF_F64, .offset = offsetof(owner_, field_), .def = def_, \
        .min = min_, .max = 1e12, .open = (min_) == 0 && (def_) == NULL, .help = help_       \
    }
static const ru_conf_field window_fields[] = {
    RU_ROW_AS("size", SIZE, ru_read_window, size_bytes, NULL, "size of a request", RU_IN(1, 1e15)),
    RU_ROW(U32, ru_read_window, depth, NULL, "number of outstanding requests",
           RU_IN(1, RU_READ_DEPTH_MAX)),
    MEASURED("seconds", ru_read_window, seconds, 0, "0.5",
             "length of the window without the ramp-up [s]"),
    MEASURED("mb_per_s", window_in, mb_per_s, 1e-6, NULL, "delivered rate [1e6 bytes/s]"),
    MEASURED("error", window_in, error_mb, 0, "0", "standard error of mb_per_s [1e6 bytes/s]"),
    MEASURED("latency_ms", window_in, latency_ms, 0, "0",
             "mean latency of a request [ms]; 0: computed from depth, size and rate"),
    MEASURED("stall_s", ru_read_window, stall_s, 0, "0",
             "time that the trainer waited for data [s]"),
};
static const ru_conf_table window_table = RU_TABLE("window", window_in, window_fields, NULL);

static const ru_conf_field fields[] = {
    RU_ROW_AS("sample", SIZE, ru_read_in, sample_bytes, NULL, "mean size of a sample in bytes",
              RU_IN(1, 1e15)),
    RU_ROW(SIZE, ru_read_in, size_min, "64KiB", "smallest size of a request", RU_IN(1, 1e15)),
    RU_ROW(SIZE, ru_read_in, size_max, "16MiB", "largest size of a request", RU_IN(1, 1e15)),
    RU_ROW_AS("memory", SIZE, ru_read_in, memory_max_bytes, "256MiB",
              "largest number of outstanding bytes", RU_IN(1, 1e15)),
    RU_ROW(U32, ru_read_in, depth_min, "1",
           "method model: least number of outstanding requests that is tried",
           RU_IN(1, RU_READ_DEPTH_MAX)),
    RU_ROW(U32, ru_read_in, depth_max, "256", "largest number of outstanding requests",
           RU_IN(1, RU_READ_DEPTH_MAX)),
    RU_ROW(F64, read_in, need_mb_per_s, "0",
           "rate that the trainer needs [1e6 bytes/s]; 0: as much as possible", RU_IN(0, 1e9)),
    RU_ROW(F64, read_in, batch_mb, "0",
           "size of a batch [1e6 bytes]; determines the read-ahead depth", RU_IN(0, 1e9)),
    RU_ROW(F64, ru_read_in, step_s, "0",
           "time of a step without waiting for data [s]; determines the read-ahead depth",
           RU_IN(0, 1e9)),
    RU_ROW(F64, ru_read_in, delivery_s, "0",
           "mean time from the request of a batch until it is decoded [s]; 0: computed from "
           "batch_mb and the rate",
           RU_IN(0, 1e9)),
    RU_ROW(F64, ru_read_in, delivery_sd_s, "0", "standard deviation of delivery_s [s]",
           RU_IN(0, 1e9)),
    RU_ROW(U32, ru_read_in, ahead_min, "1", "least read-ahead depth [batches]",
           RU_IN(1, RU_READ_AHEAD_MAX)),
    RU_ROW(U32, ru_read_in, ahead_max, "0",
           "largest read-ahead depth [batches]; 0: as many batches as fit 'memory'",
           RU_IN(0, RU_READ_AHEAD_MAX)),
    RU_ROW(U32, ru_read_in, cores, "2", "method cores: number of outstanding requests",
           RU_IN(1, RU_READ_DEPTH_MAX)),
    RU_ROW(F64, ru_read_in, gain_min, "0.05", "smallest relative gain for which the choice changes",
           RU_IN(0, 1)),
    RU_ROW(F64, ru_read_in, loss_max, "0.02",
           "largest relative loss that fewer outstanding requests may cause", RU_IN(0, 0.5)),
    RU_ROW(F64, ru_read_in, try_s, "10",
           "time between two tries of a neighbouring choice once the choice is steady [s]",
           RU_IN(0.1, 1e9)),
    RU_ROW(I64, ru_read_in, seed, "0", "seed of the tries"),
    RU_ROW(SECTIONS, read_in, windows, "[]", "measured windows so far, in order",
           .table = &window_table),
    RU_ROW(CHOICE, ru_read_in, method, "model",
           "model: search with a storage model; phases: the published phases; climb: one more "
           "while it helps; aimd: additive increase; grid: every point; one: one sample at a "
           "time; loader2, loader8, cores, fixed16: 2, 8, one per core, 16 samples at a time; "
           "ahead: read-ahead of the operating system",
           .choices = "model|phases|climb|aimd|grid|one|loader2|loader8|cores|fixed16|ahead"),
};

static ru_status inner(const read_in *in, ru_arena *a, ru_read_in *out, ru_err *err)
{
    ru_read_window *w = RU_NEW(a, ru_read_window, in->windows.n + 1);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u windows", in->windows.n);
    }
    for (uint32_t i = 0; i < in->windows.n; i++) {
        const window_in *s = (const window_in *)in->windows.at + i;
        double rate = 1e6 * s->mb_per_s;
        w[i] = s->w;
        w[i].bytes_per_s = rate;
        w[i].error = 1e6 * s->error_mb;
        w[i].latency_s =
            s->latency_ms > 0 ? 1e-3 * s->latency_ms : s->w.depth * (double)s->w.size_bytes / rate;
    }
    *out = in->q;
    out->need_bytes_per_s = 1e6 * in->need_mb_per_s;
    out->batch_bytes = 1e6 * in->batch_mb;
    out->window = w;
    out->n = in->windows.n;
    return RU_OK;
}

static ru_status check_in(const void *section, ru_err *err)
{
    const read_in *in = section;
    const ru_read_in *q = &in->q;
    if (q->size_max < q->size_min) {
        return RU_FAIL(err, RU_E_ARG, "'size_max' is below 'size_min'");
    }
    if (q->depth_max < q->depth_min) {
        return RU_FAIL(err, RU_E_ARG, "'depth_max' is below 'depth_min'");
    }
    if (q->memory_max_bytes < q->size_min) {
        return RU_FAIL(err, RU_E_ARG, "'memory' is too small for a request of 'size_min'");
    }
    if (in->windows.n > RU_READ_WINDOWS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "there are %u windows; expected at most %d", in->windows.n,
                       RU_READ_WINDOWS_MAX);
    }
    if (q->ahead_max != 0 && q->ahead_max < q->ahead_min) {
        return RU_FAIL(err, RU_E_ARG, "'ahead_max' is below 'ahead_min'");
    }
    for (uint32_t i = 0; i < in->windows.n; i++) {
        const window_in *w = (const window_in *)in->windows.at + i;
        if (!(w->w.seconds > 0)) {
            return RU_FAIL(err, RU_E_ARG, "window %u: 'seconds' must be above 0", i);
        }
    }
    return RU_OK;
}

static const ru_conf_table table =
    RU_TABLE("read", read_in, fields, "what one worker reads, and the windows it measured",
             .check = check_in);

static ru_status plan_read(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_read_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_read(&q, tools->scratch, plan, err);
}

static ru_status check_read(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_read_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_read_check(&q, plan, err);
}

static void put_setting(ru_table *t, const char *name, int64_t size, uint32_t depth)
{
    ru_table_str(t, name);
    ru_table_bytes(t, size);
    ru_table_i64(t, depth);
    ru_table_bytes(t, size * depth);
}

static void windows_table(const ru_read_in *q, const ru_read_plan *p, ru_report *r)
{
    ru_table *t = ru_report_grid_of(
        r, "windows", "<setting >request >depth >outstanding >mb_per_s >model_mb_per_s");
    uint32_t from = q->n > 16 ? q->n - 16 : 0;
    for (uint32_t i = from; i < q->n; i++) {
        const ru_read_window *w = &q->window[i];
        put_setting(t, "measured", w->size_bytes, w->depth);
        ru_table_f64(t, 1e-6 * w->bytes_per_s, 1);
        ru_table_f64(t, 1e-6 * ru_disk_rate(&p->disk, w->size_bytes, w->depth), 1);
    }
    put_setting(t, "next", p->size_bytes, p->depth);
    if (p->fitted) {
        ru_table_none(t);
        ru_table_f64(t, 1e-6 * ru_disk_rate(&p->disk, p->size_bytes, p->depth), 1);
    } else {
        ru_table_none(t);
        ru_table_none(t);
    }
}

/* More than what the trainer needs, with a tenth in reserve, counts for nothing. */
static double score_of(const ru_read_in *q, double bytes_per_s)
{
    return q->need_bytes_per_s > 0 ? fmin(bytes_per_s, 1.1 * q->need_bytes_per_s) : bytes_per_s;
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    const ru_read_plan *p = v->won, *other = v->plan;
    ru_read_in q;
    RU_TRY(inner(v->in, tools->scratch, &q, err));
    long long kib = (long long)((other->size_bytes + 1023) / 1024);
    /* what is tried is not what is fastest; what is in force is left for a gain, may be slower by a
     * loss, and its rate was measured: that of others comes from a model that errs */
    double theirs =
        score_of(&q, other->bytes_per_s) * (1 - q.loss_max) * (1 - fmin(p->disk.error, 1));
    bool pays = theirs > (1 + q.gain_min) * score_of(&q, p->bytes_per_s);
    if (p->phase != RU_READ_STEADY || (other->bytes_per_s > p->bytes_per_s && !pays)) {
        ru_rival_beside(v, other->bytes_per_s, "%u x %lld KiB, %s", other->depth, kib,
                        q.n == 0 ? "nothing was measured yet" : "by these windows");
    } else {
        ru_rival_is(v, other->bytes_per_s, true, "%u x %lld KiB, by these windows", other->depth,
                    kib);
    }
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_FIGURE(F64, ru_read_plan, bytes_per_s, "bytes_per_s"),
    RU_FIGURE(F64, ru_read_plan, latency_s, "request_s"),
    RU_DECISION(I64, ru_read_plan, size_bytes, "request_bytes"),
    RU_DECISION(U32, ru_read_plan, depth, "outstanding_requests"),
    RU_DECISION(U32, ru_read_plan, read_ahead, "read_ahead_batches"),
    RU_DECISION(CHOICE, ru_read_plan, phase, "phase", .choices = "deepen|size|shrink|steady|try"),
};

static ru_status report_read(const void *in, const void *plan, const ru_policy_tools *tools,
                             ru_report *r, ru_err *err)
{
    static const char *const phases[] = {
        "measure it: is more outstanding faster?", "measure it: is another size faster?",
        "measure it: are fewer requests enough?", "keep it: the search is over",
        "measure it: a neighbour, in case the storage has changed"};
    const read_in *s = in;
    const ru_read_plan *p = plan;
    ru_read_in q;
    RU_TRY(inner(s, tools->scratch, &q, err));
    ru_report_answer(r, "read %lld KiB at a time, %u requests outstanding",
                     (long long)((p->size_bytes + 1023) / 1024), p->depth);
    ru_report_answer(r, "%s", phases[p->phase]);
    ru_report_answer(r, "keep %u batch%s read ahead", p->read_ahead,
                     p->read_ahead == 1 ? "" : "es");
    ru_report_figure(r, "outstanding_bytes", (double)p->size_bytes * p->depth);
    ru_report_figure(r, "read_ahead_batches", p->read_ahead);
    ru_report_figure(r, "model_error_ratio", p->disk.error);
    windows_table(&q, p, r);
    RU_TRY(ru_policy_rivals(&ru_policy_read, in, plan, tools, judge, r, err));
    ru_report_assume(r, "a request's rate is limited by its latency, by bytes or by requests per "
                        "second of the storage");
    ru_report_valid(r, (int64_t)(s->q.try_s * 1e9));
    ru_report_trigger(r, "bytes_per_s", 0.25);
    return RU_OK;
}

const ru_policy ru_policy_read = {
    .name = "read",
    .version = 1,
    .decides = "how many bytes each read takes and how many reads a worker keeps outstanding",
    .source = "hashemi-2020",
    .in = &table,
    .plan_bytes = sizeof(ru_read_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .more_is_better = true,
    .plan = plan_read,
    .check = check_read,
    .report = report_read,
    .example = "# Photographs on a store that answers after 5 ms and delivers 50 MB/s.\n"
               "sample: 152KiB\n"
               "need_mb_per_s: 120\n"
               "batch_mb: 20\n"
               "step_s: 0.5\n"
               "windows:\n"
               "  - {size: 1MiB, depth: 16, mb_per_s: 49.8, error: 0.2, latency_ms: 336}\n"
               "  - {size: 1MiB, depth: 64, mb_per_s: 50.1, error: 0.2, latency_ms: 1338}\n"
               "  - {size: 256KiB, depth: 64, mb_per_s: 50.0, error: 0.1, latency_ms: 335}\n"
               "  - {size: 4MiB, depth: 4, mb_per_s: 49.9, error: 0.6, latency_ms: 336}\n"
               "  - {size: 512KiB, depth: 32, mb_per_s: 50.0, error: 0.2, latency_ms: 335}\n"
               "  - {size: 2MiB, depth: 8, mb_per_s: 49.7, error: 0.4, latency_ms: 337}\n"
               "  - {size: 1MiB, depth: 1, mb_per_s: 40.4, error: 0.1, latency_ms: 26}\n",
};
