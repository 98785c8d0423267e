#include "plan/fleet/scale_parts.h"

#include <math.h>
#include <stddef.h>

#include "cost/math/lsq.h"
#include "plan/fleet/scale_impl.h"

enum { COLUMNS = 3, HALVINGS = 60 };
#define PRICE_LOW  1e-15 /* USD for a second, or the other way round */
#define PRICE_HIGH 1e15

static void row_of(const ru_scale_in *in, double workers, double memory_mb, double batch,
                   double *row)
{
    row[0] = batch / (workers * (memory_mb / in->core_mb));
    row[1] = 1;
    row[2] = workers;
}

ru_status ru_scale_law_of(const ru_scale_in *in, const double *batch, ru_arena *scratch,
                          ru_scale_law *out, ru_err *err)
{
    double *rows = RU_NEW(scratch, double, COLUMNS *(int64_t)in->n_probes + 1);
    double *ones = RU_NEW(scratch, double, (int64_t)in->n_probes + 1);
    if (rows == NULL || ones == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u measurements", in->n_probes);
    }
    uint32_t n = 0;
    *out = (ru_scale_law){0};
    for (uint32_t i = 0; i < in->n_probes; i++) {
        const ru_scale_probe *p = &in->probe[i];
        if (!p->failed) {
            row_of(in, p->workers, p->memory_mb, batch[i], rows + COLUMNS * n);
            for (uint32_t k = 0; k < COLUMNS; k++) {
                rows[COLUMNS * n + k] /= p->step_s;
            }
            ones[n++] = 1;
        }
    }
    if (n == 0) {
        return RU_OK;
    }
    const ru_lsq_in lsq = {
        .a = rows, .b = ones, .m = n, .n = COLUMNS, .ridge = 1e-9, .nonneg = true};
    ru_lsq_fit fit;
    RU_TRY(ru_lsq_solve(&lsq, scratch, scratch, &fit, err));
    *out = (ru_scale_law){fit.x[0], fit.x[1], fit.x[2]};
    return RU_OK;
}

double ru_scale_law_step(const ru_scale_law *l, const ru_scale_in *in, double workers,
                         double memory_mb, double batch)
{
    double row[COLUMNS];
    row_of(in, workers, memory_mb, batch, row);
    return l->work * row[0] + l->fixed * row[1] + l->each * row[2];
}

/* The run of a part that is best where the rest of the limit has this price. */
static ru_function_run best_of(const ru_scale_in *in, const ru_scale_law *l, const ru_scale_part *p,
                               double price)
{
    ru_function_run best = {0};
    double least = (double)INFINITY;
    for (uint32_t k = 0; k < rui_scale_choices(in); k++) {
        rui_scale_choice c = rui_scale_at(in, k);
        double step_s = ru_scale_law_step(l, in, c.workers, c.memory_mb, p->batch);
        ru_function_run run;
        if (rui_scale_failed(in, c) || !ru_function_run_of(&in->rules, c.workers, c.memory_mb,
                                                           p->steps, fmax(step_s, 1e-9), &run)) {
            continue;
        }
        double v = in->fastest ? run.seconds + price * run.usd : run.usd + price * run.seconds;
        if (v < least) {
            least = v;
            best = run;
        }
    }
    return best;
}

/* Of all parts; *first: of the first. */
static ru_function_run all_of(const ru_scale_in *in, const ru_scale_law *l,
                              const ru_scale_part *parts, uint32_t n, double price,
                              ru_function_run *first)
{
    ru_function_run all = {0};
    for (uint32_t k = 0; k < n; k++) {
        const ru_function_run run = best_of(in, l, &parts[k], price);
        *first = k == 0 ? run : *first;
        all.seconds += run.seconds;
        all.usd += run.usd;
    }
    return all;
}

void ru_scale_divide(const ru_scale_in *in, const ru_scale_law *l, const ru_scale_part *parts,
                     uint32_t n, double *limit_s, double *limit_usd)
{
    double limit = in->fastest ? in->limit_usd : in->limit_s, low = PRICE_LOW, high = PRICE_HIGH;
    ru_function_run first = {0}, all = all_of(in, l, parts, n, 0, &first);
    bool fits = !(limit > 0) || (in->fastest ? all.usd : all.seconds) <= limit;
    for (uint32_t i = 0; i < HALVINGS && !fits; i++) {
        double price = sqrt(low) * sqrt(high);
        all = all_of(in, l, parts, n, price, &first);
        bool keeps = (in->fastest ? all.usd : all.seconds) <= limit;
        high = keeps ? price : high;
        low = keeps ? low : price;
    }
    all = fits ? all : all_of(in, l, parts, n, high, &first);
    *limit_s = in->limit_s > 0 && all.seconds > 0 ? in->limit_s * (first.seconds / all.seconds) : 0;
    *limit_usd = in->limit_usd > 0 && all.usd > 0 ? in->limit_usd * (first.usd / all.usd) : 0;
}
