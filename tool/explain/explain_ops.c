#include "tool/explain/explain_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/math/quantile.h"
#include "cost/step/op.h"

enum { SHOWN = 12, PREDICTED_MAX = 128 };

/* Instances of all workers with one kernel and the same shapes. */
typedef struct class
{
    const ru_op_fact *op; /* the first */
    uint32_t instances;
    int64_t count, min_ns;
    double sum_ns, squares; /* over all runs */
    double once_ns;         /* one run of each instance */
    ru_op_time said;        /* by the model of the others */
} class;

static double mean_of(const class *c)
{
    return c->sum_ns / (double)c->count;
}

static int by_time(const void *pa, const void *pb)
{
    const class *a = pa, *b = pb;
    if (a->once_ns != b->once_ns) {
        return a->once_ns > b->once_ns ? -1 : 1;
    }
    return a->op < b->op ? -1 : a->op > b->op;
}

static void add(class *c, const ru_op_fact *f)
{
    double n = (double)f->took.count, mean = f->took.mean_ns;
    c->min_ns = c->instances == 0 || f->took.min_ns < c->min_ns ? f->took.min_ns : c->min_ns;
    c->instances++;
    c->count += f->took.count;
    c->sum_ns += n * mean;
    c->squares += n * (mean * mean + f->took.stddev_ns * f->took.stddev_ns);
    c->once_ns += mean;
}

static uint32_t classify(const ru_world *w, class *at)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->facts.ops.n; i++) {
        const ru_op_fact *f = &w->facts.ops.at[i];
        uint32_t k = 0;
        if (f->took.count == 0) {
            continue;
        }
        while (k < n && !ru_cost_op_same(at[k].op, f)) {
            k++;
        }
        if (k == n) {
            at[n++] = (class){.op = f};
        }
        add(&at[k], f);
    }
    return n;
}

static ru_status show(const class *at, uint32_t n, double all_ns, const char *title,
                      ru_arena *arena, const ru_tell *out, ru_err *err)
{
    static const char *const right[] = {"instances", "mean",    "least",     "spread",
                                        "share",     "GFLOP/s", "predicted", "error"};
    ru_table t = ru_table_in(arena);
    ru_table_col(&t, "op", RU_TABLE_LEFT);
    ru_table_col(&t, "kernel", RU_TABLE_LEFT);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(right); k++) {
        ru_table_col(&t, right[k], RU_TABLE_RIGHT);
    }
    ru_table_col(&t, "makes", RU_TABLE_LEFT);
    for (uint32_t i = 0; i < n && i < SHOWN; i++) {
        const class *c = &at[i];
        const char *makes = strrchr(c->op->shapes, '>');
        double mean = mean_of(c), square = c->squares / (double)c->count - mean * mean;
        ru_table_str(&t, c->op->op);
        ru_table_str(&t, c->op->kernel);
        ru_table_i64(&t, c->instances);
        ru_table_ns(&t, (int64_t)mean);
        ru_table_ns(&t, c->min_ns);
        ru_table_percent(&t, mean > 0 && square > 0 ? sqrt(square) / mean : 0, 0);
        ru_table_percent(&t, all_ns > 0 ? c->once_ns / all_ns : 0, 1);
        ru_table_f64(&t, mean > 0 ? (double)c->op->flops / mean : 0, 1);
        if (c->said.source == RU_OP_UNKNOWN) {
            ru_table_absent(&t, "s");
            ru_table_absent(&t, "share");
        } else {
            ru_table_ns(&t, (int64_t)c->said.ns);
            ru_table_percent(&t, mean > 0 ? c->said.ns / mean - 1 : 0, 0);
        }
        ru_table_str(&t, makes != NULL ? makes + 1 + (makes[1] == ' ') : "");
    }
    return ru_tell_table(out, "ops", title, &t, err);
}

/* What the model would have said of all classes that it can predict, together and one by one. */
static void tell_errors(const class *at, uint32_t n, const ru_tell *out, ru_predictor_error *errors)
{
    double off[PREDICTED_MAX], said = 0, is = 0;
    uint32_t k = 0;
    for (uint32_t i = 0; i < n && i < PREDICTED_MAX; i++) {
        if (at[i].said.source != RU_OP_UNKNOWN && at[i].once_ns > 0) {
            off[k++] = fabs(at[i].said.ns / mean_of(&at[i]) - 1);
            said += at[i].said.ns * at[i].instances;
            is += at[i].once_ns;
        }
    }
    if (k == 0) {
        return;
    }
    ru_sort_f64(off, k);
    ru_text_putf(out->text,
                 "  predicted: by a model of the other ops, without the class itself; median error "
                 "%.0f %%, 90 %% of %u classes within %.0f %%, all together %+.0f %%\n",
                 100 * ru_quantile_sorted(off, k, 0.5, RU_QUANTILE_LINEAR), k,
                 100 * ru_quantile_sorted(off, k, 0.9, RU_QUANTILE_LINEAR), 100 * (said / is - 1));
    ru_tell_open(out, "op_model", '{');
    ru_tell_i64(out, "classes", k);
    ru_tell_f64(out, "median_share", ru_quantile_sorted(off, k, 0.5, RU_QUANTILE_LINEAR));
    ru_tell_f64(out, "p90_share", ru_quantile_sorted(off, k, 0.9, RU_QUANTILE_LINEAR));
    ru_tell_f64(out, "together_share", said / is - 1);
    ru_tell_close(out);
    *errors = (ru_predictor_error){.predictor = "op",
                                   .n = k,
                                   .median = ru_quantile_sorted(off, k, 0.5, RU_QUANTILE_LINEAR),
                                   .p95 = ru_quantile_sorted(off, k, 0.95, RU_QUANTILE_LINEAR),
                                   .bias = said / is - 1};
}

ru_status rui_explain_ops(const ru_world *w, ru_arena *arena, const ru_tell *out,
                          ru_predictor_error *errors, ru_err *err)
{
    *errors = (ru_predictor_error){0};
    class *at = RU_NEW(arena, class, w->facts.ops.n);
    if (at == NULL && w->facts.ops.n > 0) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u op instances", w->facts.ops.n);
    }
    uint32_t n = classify(w, at), instances = 0, ranks = 0;
    double all_ns = 0;
    if (n == 0) {
        return RU_OK;
    }
    qsort(at, n, sizeof *at, by_time);
    for (uint32_t i = 0; i < n; i++) {
        instances += at[i].instances;
        all_ns += at[i].once_ns;
        if (i < PREDICTED_MAX) {
            RU_TRY(ru_cost_op_apart(w->facts.ops.at, w->facts.ops.n, at[i].op, arena, &at[i].said,
                                    err));
        }
    }
    for (uint32_t i = 0; i < w->facts.ops.n; i++) {
        ranks += i == 0 || w->facts.ops.at[i].rank != w->facts.ops.at[i - 1].rank;
    }
    const char *title = ru_arena_printf(
        arena, "op instances: %u of %u worker%s, with %u kernels and shapes; the slowest are",
        instances, ranks, ranks == 1 ? "" : "s", n);
    ru_tell_i64(out, "op_instances", instances);
    ru_tell_i64(out, "op_workers", ranks);
    ru_tell_i64(out, "op_classes", n);
    RU_TRY(show(at, n, all_ns, title != NULL ? title : "", arena, out, err));
    tell_errors(at, n, out, errors);
    return RU_OK;
}
