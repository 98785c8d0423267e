#include "serve/stats.h"

#include <stddef.h>

#include "base/json.h"

static const int64_t bounds_us[RUI_BOUNDS] = {
    50,    100,    200,    500,    1000,    2000,    5000,    10000,    20000,
    50000, 100000, 200000, 500000, 1000000, 2000000, 5000000, 10000000, 20000000};

static const char *const misses[RUI_MISSES] = {[RUI_MISS_BAD] = "bad",
                                               [RUI_MISS_FULL] = "full",
                                               [RUI_MISS_LATE] = "late",
                                               [RUI_MISS_CANCELLED] = "cancelled",
                                               [RUI_MISS_FAILED] = "failed"};
static const char *const reasons[RU_SERVE_REASONS] = {[RU_SERVE_FULL] = "full",
                                                      [RU_SERVE_TIMEOUT] = "timeout",
                                                      [RU_SERVE_DUE] = "due",
                                                      [RU_SERVE_DRAIN] = "drain",
                                                      [RU_SERVE_IDLE] = "idle"};

const char *rui_stats_reason(uint32_t why)
{
    return why < RU_SERVE_REASONS ? reasons[why] : "";
}

void rui_times_add(rui_times *t, int64_t ns)
{
    uint32_t k = 0;
    while (k < RUI_BOUNDS && ns > bounds_us[k] * 1000) {
        k++;
    }
    t->n[k]++;
    t->count++;
    t->sum_ns += ns;
}

/* -- Prometheus ---------------------------------------------------------------------------------
 */

typedef struct row {
    const char *name, *type, *help;
} row;

static void head(ru_text *t, const char *name, const char *type, const char *help)
{
    ru_text_putf(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A value of a label. */
static void put_label(ru_text *t, const char *name, const char *value)
{
    ru_text_putf(t, "%s=\"", name);
    for (const char *c = value; *c != '\0'; c++) {
        if (*c == '\n') {
            ru_text_put(t, "\\n");
        } else {
            ru_text_put(t, *c == '"' || *c == '\\' ? "\\" : "");
            ru_text_char(t, *c, 1);
        }
    }
    ru_text_put(t, "\"");
}

static void line(ru_text *t, const char *name, const rui_stats_of *of, const char *label,
                 const char *value, double number)
{
    ru_text_putf(t, "%s{", name);
    put_label(t, "model", of->model);
    ru_text_put(t, ",");
    put_label(t, "version", of->version);
    if (label != NULL) {
        ru_text_put(t, ",");
        put_label(t, label, value);
    }
    ru_text_put(t, "} ");
    ru_text_f64(t, number);
    ru_text_put(t, "\n");
}

static void put_times(ru_text *t, const char *name, const rui_stats_of *of, const rui_times *times)
{
    char of_name[3][96], le[32];
    static const char *const parts[] = {"bucket", "sum", "count"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(parts); k++) {
        ru_text b = ru_text_into(of_name[k], sizeof of_name[k]);
        ru_text_putf(&b, "%s_%s", name, parts[k]);
    }
    uint64_t below = 0;
    for (uint32_t k = 0; k < RUI_BOUNDS; k++) {
        below += times->n[k];
        ru_text l = ru_text_into(le, sizeof le);
        ru_text_f64(&l, (double)bounds_us[k] / 1e6);
        line(t, of_name[0], of, "le", le, (double)below);
    }
    line(t, of_name[0], of, "le", "+Inf", (double)times->count);
    line(t, of_name[1], of, NULL, NULL, (double)times->sum_ns * 1e-9);
    line(t, of_name[2], of, NULL, NULL, (double)times->count);
}

static void put_histograms(const rui_stats_of *of, uint32_t n, ru_text *t)
{
    static const struct {
        const char *name, *help;
        size_t at;
    } rows[] = {
        {"rubato_serve_request_duration_seconds", "from head of the request to its answer",
         offsetof(rui_stats, request)},
        {"rubato_serve_parse_seconds", "reading a request", offsetof(rui_stats, parse)},
        {"rubato_serve_queue_seconds", "from request to the start of its batch",
         offsetof(rui_stats, queue)},
        {"rubato_serve_compute_seconds", "computing the batch of a request",
         offsetof(rui_stats, compute)},
        {"rubato_serve_answer_seconds", "from the end of its batch to its answer",
         offsetof(rui_stats, answer)},
    };
    for (uint32_t r = 0; r < RU_ARRAY_LEN(rows); r++) {
        head(t, rows[r].name, "histogram", rows[r].help);
        for (uint32_t k = 0; k < n; k++) {
            const uint8_t *stats = (const uint8_t *)of[k].stats;
            put_times(t, rows[r].name, &of[k],
                      (const rui_times *)(const void *)(stats + rows[r].at));
        }
    }
    head(t, "rubato_serve_batch_rows", "histogram", "rows of a batch");
    for (uint32_t k = 0; k < n; k++) {
        uint64_t below = 0;
        for (uint32_t size = 0; size < RU_SERVE_SIZES; size++) {
            char le[32];
            ru_text l = ru_text_into(le, sizeof le);
            ru_text_putf(&l, "%u", 1u << size);
            below += of[k].stats->batches_of[size];
            line(t, "rubato_serve_batch_rows_bucket", &of[k], "le", le, (double)below);
        }
        line(t, "rubato_serve_batch_rows_bucket", &of[k], "le", "+Inf", (double)below);
        line(t, "rubato_serve_batch_rows_sum", &of[k], NULL, NULL, (double)of[k].stats->rows);
        line(t, "rubato_serve_batch_rows_count", &of[k], NULL, NULL, (double)below);
    }
}

static void put_numbers(const rui_stats_of *of, uint32_t n, ru_text *t)
{
    static const row rows[] = {
        {"rubato_serve_slo_missed_total", "counter", "answers later than promised"},
        {"rubato_serve_promise_seconds", "gauge", "the promise; 0: none"},
        {"rubato_serve_batch_rows_max", "gauge", "rows that a batch may have at the moment"},
        {"rubato_serve_waiting_requests", "gauge", "requests that wait for an instance"},
        {"rubato_serve_requests", "gauge", "requests under way"},
    };
    for (uint32_t r = 0; r < RU_ARRAY_LEN(rows); r++) {
        head(t, rows[r].name, rows[r].type, rows[r].help);
        for (uint32_t k = 0; k < n; k++) {
            const double values[RU_ARRAY_LEN(rows)] = {
                (double)of[k].stats->late_answers, (double)of[k].promise_ns * 1e-9,
                (double)of[k].pace->batch, (double)of[k].machine.open, (double)of[k].under_way};
            line(t, rows[r].name, &of[k], NULL, NULL, values[r]);
        }
    }
}

void rui_stats_prometheus(const rui_stats_of *of, uint32_t n, ru_text *t)
{
    head(t, "rubato_build_info", "gauge", "the program that answers");
    ru_text_putf(t, "rubato_build_info{version=\"%s\"} 1\n", RU_VERSION);
    put_histograms(of, n, t);
    head(t, "rubato_serve_refused_total", "counter", "requests without outputs, by reason");
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t m = 0; m < RUI_MISSES; m++) {
            line(t, "rubato_serve_refused_total", &of[k], "reason", misses[m],
                 (double)of[k].stats->miss[m]);
        }
    }
    head(t, "rubato_serve_batches_total", "counter", "batches, by why they left");
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t w = 0; w < RU_SERVE_REASONS; w++) {
            line(t, "rubato_serve_batches_total", &of[k], "reason", reasons[w],
                 (double)of[k].machine.why[w]);
        }
    }
    head(t, "rubato_serve_service_seconds", "gauge",
         "95th percentile of what a batch of so many rows takes");
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t size = 0; size < RU_SERVE_SIZES && of[k].pace->service_ns[size] > 0; size++) {
            char rows[16];
            ru_text r = ru_text_into(rows, sizeof rows);
            ru_text_putf(&r, "%u", 1u << size);
            line(t, "rubato_serve_service_seconds", &of[k], "rows", rows,
                 (double)of[k].pace->service_ns[size] * 1e-9);
        }
    }
    put_numbers(of, n, t);
}

/* -- Triton's names -----------------------------------------------------------------------------
 */

static double us(const rui_times *t)
{
    return (double)t->sum_ns * 1e-3;
}

static void put_failures(ru_text *t, const rui_stats_of *of, uint32_t n)
{
    static const char NAME[] = "nv_inference_request_failure";
    head(t, NAME, "counter", "requests without outputs");
    for (uint32_t k = 0; k < n; k++) {
        const uint64_t *miss = of[k].stats->miss;
        line(t, NAME, &of[k], "reason", "REJECTED",
             (double)(miss[RUI_MISS_FULL] + miss[RUI_MISS_LATE]));
        line(t, NAME, &of[k], "reason", "CANCELED", (double)miss[RUI_MISS_CANCELLED]);
        line(t, NAME, &of[k], "reason", "BACKEND", (double)miss[RUI_MISS_FAILED]);
        line(t, NAME, &of[k], "reason", "OTHER", (double)miss[RUI_MISS_BAD]);
    }
}

void rui_stats_triton(const rui_stats_of *of, uint32_t n, ru_text *t)
{
    static const row rows[] = {
        {"nv_inference_request_success", "counter", "requests with outputs"},
        {"nv_inference_count", "counter", "rows that were computed"},
        {"nv_inference_exec_count", "counter", "batches"},
        {"nv_inference_request_duration_us", "counter", "sum over requests with outputs"},
        {"nv_inference_queue_duration_us", "counter", "of that, waiting"},
        {"nv_inference_compute_input_duration_us", "counter", "of that, reading the request"},
        {"nv_inference_compute_infer_duration_us", "counter", "of that, computing its batch"},
        {"nv_inference_compute_output_duration_us", "counter", "of that, writing the answer"},
        {"nv_inference_pending_request_count", "gauge", "requests that wait for an instance"},
    };
    for (uint32_t r = 0; r < RU_ARRAY_LEN(rows); r++) {
        head(t, rows[r].name, rows[r].type, rows[r].help);
        for (uint32_t k = 0; k < n; k++) {
            const rui_stats *s = of[k].stats;
            const double values[RU_ARRAY_LEN(rows)] = {
                (double)s->request.count, (double)s->rows, (double)of[k].machine.batches,
                us(&s->request),          us(&s->queue),   us(&s->parse),
                us(&s->compute),          us(&s->answer),  (double)of[k].machine.open};
            line(t, rows[r].name, &of[k], NULL, NULL, values[r]);
        }
    }
    put_failures(t, of, n);
}

/* -- Triton's statistics ------------------------------------------------------------------------
 */

static void put_duration(ru_json *j, const char *key, uint64_t count, int64_t ns)
{
    ru_json_open(j, key, '{');
    ru_json_i64(j, "count", (int64_t)count);
    ru_json_i64(j, "ns", ns);
    ru_json_close(j);
}

static void put_model(ru_json *j, const rui_stats_of *of)
{
    const rui_stats *s = of->stats;
    uint64_t missed = 0;
    for (uint32_t k = 0; k < RUI_MISSES; k++) {
        missed += s->miss[k];
    }
    ru_json_open(j, NULL, '{');
    ru_json_str(j, "name", of->model);
    ru_json_str(j, "version", of->version);
    ru_json_i64(j, "last_inference", s->last_ms);
    ru_json_i64(j, "inference_count", (int64_t)s->rows);
    ru_json_i64(j, "execution_count", (int64_t)of->machine.batches);
    ru_json_open(j, "inference_stats", '{');
    put_duration(j, "success", s->request.count, s->request.sum_ns);
    put_duration(j, "fail", missed, s->missed_ns);
    put_duration(j, "queue", s->queue.count, s->queue.sum_ns);
    put_duration(j, "compute_input", s->parse.count, s->parse.sum_ns);
    put_duration(j, "compute_infer", s->compute.count, s->compute.sum_ns);
    put_duration(j, "compute_output", s->answer.count, s->answer.sum_ns);
    put_duration(j, "cache_hit", 0, 0);
    put_duration(j, "cache_miss", 0, 0);
    ru_json_close(j);
    ru_json_open(j, "batch_stats", '[');
    for (uint32_t k = 0; k < RU_SERVE_SIZES; k++) {
        if (s->batches_of[k] > 0) {
            ru_json_open(j, NULL, '{');
            ru_json_i64(j, "batch_size", INT64_C(1) << k);
            put_duration(j, "compute_infer", s->batches_of[k], s->batch_ns[k]);
            ru_json_close(j);
        }
    }
    ru_json_close(j);
    ru_json_close(j);
}

void rui_stats_json(const rui_stats_of *of, uint32_t n, ru_text *t)
{
    ru_json j = ru_json_into(t);
    ru_json_open(&j, NULL, '{');
    ru_json_open(&j, "model_stats", '[');
    for (uint32_t k = 0; k < n; k++) {
        put_model(&j, &of[k]);
    }
    ru_json_close(&j);
    ru_json_close(&j);
}
