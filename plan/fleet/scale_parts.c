#include "plan/fleet/scale_parts.h"

#include <math.h>
#include <stddef.h>

#include "cost/math/lsq.h"
#include "plan/fleet/scale_impl.h"

enum { COLUMNS = 4, HALVINGS = 60 };
#define PRICE_LOW  1e-15 /* USD for a second, or the other way round */
#define PRICE_HIGH 1e15

/* What few measurements leave open is work rather than an exchange, and that rather than the rest.
 */
static const double doubt[COLUMNS] = {1e-9, 1e-4, 1e-5, 2e-4};

static void row_of(const ru_scale_in *in, double workers, double memory_mb, double batch,
                   double *row)
{
    row[0] = batch / (workers * (memory_mb / in->core_mb));
    row[1] = 1;
    row[2] = workers > 1 ? 1 : 0;
    row[3] = workers > 1 ? workers - 2 : 0;
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
    double ridges[COLUMNS];
    for (uint32_t k = 0; k < COLUMNS; k++) {
        double most = 1e-12;
        for (uint32_t i = 0; i < n; i++) {
            most = fmax(most, rows[COLUMNS * i + k]);
        }
        ridges[k] = doubt[k] * most * most;
    }
    const ru_lsq_in lsq = {
        .a = rows, .b = ones, .m = n, .n = COLUMNS, .ridges = ridges, .nonneg = true};
    ru_lsq_fit fit;
    RU_TRY(ru_lsq_solve(&lsq, scratch, scratch, &fit, err));
    *out = (ru_scale_law){fit.x[0], fit.x[1], fit.x[2], fit.x[3]};
    return RU_OK;
}

double ru_scale_law_step(const ru_scale_law *l, const ru_scale_in *in, double workers,
                         double memory_mb, double batch)
{
    double row[COLUMNS];
    row_of(in, workers, memory_mb, batch, row);
    return l->work * row[0] + l->fixed * row[1] + l->exchange * row[2] + l->each * row[3];
}

/* What has a limit where the other is to be least: seconds or USD. */
static double limited(const ru_scale_in *in, const ru_function_run *run)
{
    return in->fastest ? run->usd : run->seconds;
}

/* The run of a part with choice k. false: it has failed, or none is possible. */
static bool run_with(const ru_scale_in *in, const ru_scale_law *l, const ru_scale_part *p,
                     uint32_t k, ru_function_run *run)
{
    rui_scale_choice c = rui_scale_at(in, k);
    double step_s = ru_scale_law_step(l, in, c.workers, c.memory_mb, p->batch);
    const ru_function_rules r = ru_scale_rules(in, c.memory_mb);
    return !rui_scale_failed(in, c) &&
           ru_function_run_of(&r, c.workers, c.memory_mb, p->steps, fmax(step_s, 1e-9), run);
}

/* The run of a part that is best where the rest of the limit has this price. */
static ru_function_run best_of(const ru_scale_in *in, const ru_scale_law *l, const ru_scale_part *p,
                               double price)
{
    ru_function_run best = {0}, run;
    double least = (double)INFINITY;
    for (uint32_t k = 0; k < rui_scale_choices(in); k++) {
        if (!run_with(in, l, p, k, &run)) {
            continue;
        }
        double v = rui_scale_value(in, &run) + price * limited(in, &run);
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

/* How much of the limit parts[0] may take when it turns out badly, and the others make up for it;
 * half-way, by ratio, to the next choice of better value, which is not wanted here. */
static double most_of(const ru_scale_in *in, const ru_scale_law *l, const ru_scale_part *parts,
                      uint32_t n, const ru_function_run *first, double limit)
{
    double next = (double)INFINITY, others = 0;
    for (uint32_t k = 0; k < rui_scale_choices(in); k++) {
        ru_function_run run;
        if (run_with(in, l, &parts[0], k, &run) && limited(in, &run) > limited(in, first) &&
            rui_scale_value(in, &run) < rui_scale_value(in, first)) {
            next = fmin(next, limited(in, &run));
        }
    }
    for (uint32_t k = 1; k < n; k++) {
        const ru_function_run run = best_of(in, l, &parts[k], PRICE_HIGH);
        others += (1 + in->noise) * limited(in, &run);
    }
    return fmin(sqrt(limited(in, first)) * sqrt(next), limit - others);
}

void ru_scale_divide(const ru_scale_in *in, const ru_scale_law *l, const ru_scale_part *parts,
                     uint32_t n, double *limit_s, double *limit_usd)
{
    double limit = in->fastest ? in->limit_usd : in->limit_s, low = PRICE_LOW, high = PRICE_HIGH;
    ru_function_run first = {0}, all = all_of(in, l, parts, n, 0, &first);
    bool fits = !(limit > 0) || limited(in, &all) <= limit;
    for (uint32_t i = 0; i < HALVINGS && !fits; i++) {
        double price = sqrt(low) * sqrt(high);
        all = all_of(in, l, parts, n, price, &first);
        bool keeps = limited(in, &all) <= limit;
        high = keeps ? price : high;
        low = keeps ? low : price;
    }
    all = fits ? all : all_of(in, l, parts, n, high, &first);
    double most = most_of(in, l, parts, n, &first, limit);
    double s = all.seconds > 0 ? in->limit_s * (first.seconds / all.seconds) : 0;
    double usd = all.usd > 0 ? in->limit_usd * (first.usd / all.usd) : 0;
    *limit_s = in->limit_s > 0 && all.seconds > 0 ? fmax(s, in->fastest ? 0 : most) : 0;
    *limit_usd = in->limit_usd > 0 && all.usd > 0 ? fmax(usd, in->fastest ? most : 0) : 0;
}
