#include "cost/route.h"

#include <math.h>
#include <string.h>

#include "cost/math/dense.h"

static double power_at(const ru_route_mix *m, uint32_t b, uint32_t k)
{
    return m->power[(size_t)b * m->n + k];
}

ru_status ru_route_mix_of(const double *share, uint32_t n, uint32_t batch_max, ru_arena *arena,
                          ru_route_mix *mix, ru_err *err)
{
    *mix = (ru_route_mix){.batch_max = batch_max};
    for (uint32_t k = 0; k < n; k++) {
        if (share[k] > 0) {
            mix->class_of[mix->n] = k;
            mix->p[mix->n++] = share[k];
            mix->share += share[k];
        }
    }
    if (mix->n == 0) {
        return RU_FAIL(err, RU_E_ARG, "a buffer takes no requests");
    }
    double *power = RU_NEW(arena, double, (int64_t)(batch_max + 1) * mix->n);
    if (power == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a buffer of %u classes", mix->n);
    }
    double sum = 0;
    for (uint32_t k = 0; k < mix->n; k++) {
        mix->p[k] /= mix->share;
        sum += mix->p[k];
        double f = k + 1 == mix->n ? 1 : fmin(sum, 1), x = 1;
        for (uint32_t b = 0; b <= batch_max; b++, x *= f) {
            power[(size_t)b * mix->n + k] = x;
        }
    }
    mix->power = power;
    return RU_OK;
}

double ru_route_largest(const ru_route_mix *mix, uint32_t b, uint32_t j)
{
    return power_at(mix, b, j) - (j > 0 ? power_at(mix, b, j - 1) : 0);
}

double ru_route_mean(const ru_route_mix *mix, uint32_t b, const double *f_of)
{
    double sum = 0;
    for (uint32_t j = 0; j < mix->n; j++) {
        sum +=
            ru_route_largest(mix, b, j) * f_of[(size_t)mix->class_of[j] * mix->batch_max + b - 1];
    }
    return sum;
}

/* P(largest of b = j | one is of class k <= j) */
static double largest_with(const ru_route_mix *m, uint32_t b, uint32_t k, uint32_t j)
{
    return power_at(m, b - 1, j) - (j > k ? power_at(m, b - 1, j - 1) : 0);
}

double ru_route_kept(const ru_route_mix *mix, uint32_t b, const double *service_s,
                     const double *allow_s, double wait_s)
{
    double sum = 0;
    for (uint32_t k = 0; k < mix->n; k++) {
        double most = allow_s[mix->class_of[k]] - wait_s, part = 0;
        for (uint32_t j = k; j < mix->n; j++) {
            double s = service_s[(size_t)mix->class_of[j] * mix->batch_max + b - 1];
            part += s <= most ? largest_with(mix, b, k, j) : 0;
        }
        sum += mix->p[k] * part;
    }
    return sum;
}

double ru_route_met(const ru_route_mix *mix, const ru_batch_law *law, const double *service_s,
                    const double *allow_s, double *by_class)
{
    double all = 0;
    for (uint32_t k = 0; k < mix->n; k++) {
        double sum = 0;
        for (uint32_t b = 1; b <= law->batch; b++) {
            for (uint32_t j = k; j < mix->n; j++) {
                double s = service_s[(size_t)mix->class_of[j] * mix->batch_max + b - 1];
                sum += largest_with(mix, b, k, j) *
                       ru_batch_seen(law, b, allow_s[mix->class_of[k]] - s);
            }
        }
        by_class[k] = sum / law->mean_batch;
        all += mix->p[k] * by_class[k];
    }
    return all;
}

/* x = x m for n x n, one row. */
static void row_times(const double *x, const double *m, uint32_t n, double *y)
{
    for (uint32_t c = 0; c < n; c++) {
        y[c] = 0;
        for (uint32_t i = 0; i < n; i++) {
            y[c] += x[i] * m[i * n + c];
        }
    }
}

/* The fixed vector of the chain `next` from batch to batch: x next = x, sum 1. */
static ru_status fixed_vector(const double *next, uint32_t n, double *x, ru_err *err)
{
    double a[RU_MARKOV_CELLS_MAX];
    uint32_t perm[RU_MARKOV_PHASES_MAX];
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c + 1 < n; c++) {
            a[i * n + c] = (i == c ? 1 : 0) - next[i * n + c];
        }
        a[i * n + n - 1] = 1;
        x[i] = i + 1 == n ? 1 : 0;
    }
    RU_TRY(ru_dense_lu(a, n, perm, err));
    ru_dense_lu_solve_left(a, perm, n, x);
    return RU_OK;
}

/* Sizes for the limit `batch`: counts v at the timeout, `sum` of those below batch - 1, `full` =
 * int_0^T V_(batch-2). */
static ru_status sizes_of(const ru_markov_law *l, uint32_t batch, const double *v,
                          const double *sum, const double *full, double *p, ru_err *err)
{
    uint32_t n = l->map.n;
    double end[RU_MARKOV_PHASES_MAX], next[RU_MARKOV_CELLS_MAX], start[RU_MARKOV_PHASES_MAX];
    for (uint32_t i = 0; i < n; i++) {
        if (batch == 1) {
            memcpy(next + i * n, l->jump + i * n, n * sizeof *next);
            continue;
        }
        row_times(full + i * n, l->map.d1, n, end);
        for (uint32_t c = 0; c < n; c++) {
            end[c] += sum[i * n + c];
        }
        row_times(end, l->jump, n, next + i * n);
    }
    RU_TRY(fixed_vector(next, n, start, err));
    double rest = 1;
    p[0] = 0;
    for (uint32_t b = 1; b < batch; b++) {
        p[b] = 0;
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t c = 0; c < n; c++) {
                p[b] += start[i] * v[((size_t)(b - 1) * n + i) * n + c];
            }
        }
        p[b] = fmax(p[b], 0);
        rest -= p[b];
    }
    p[batch] = fmax(rest, 0);
    return RU_OK;
}

/* All limits for one timeout. */
static ru_status sizes_at(const ru_markov_law *l, uint32_t batch_max, const double *v, double *into,
                          ru_err *err)
{
    uint32_t n = l->map.n, nn = n * n;
    double sum[RU_MARKOV_CELLS_MAX] = {0}, full[RU_MARKOV_CELLS_MAX] = {0};
    for (uint32_t b = 1; b <= batch_max; b++) {
        /* V_j' = V_j D0 + V_(j-1) D1 gives the integrals by recursion. */
        for (uint32_t i = 0; b >= 2 && i < n; i++) {
            double row[RU_MARKOV_PHASES_MAX], next[RU_MARKOV_PHASES_MAX];
            row_times(full + i * n, l->map.d1, n, row); /* of j - 1; 0 before the first */
            for (uint32_t c = 0; c < n; c++) {
                double at = v[(size_t)(b - 2) * nn + i * n + c];
                row[c] += (b == 2 && i == c ? 1 : 0) - at;
                sum[i * n + c] += at;
            }
            row_times(row, l->wait, n, next);
            memcpy(full + i * n, next, n * sizeof *next);
        }
        RU_TRY(sizes_of(l, b, v, sum, full, into + (size_t)b * (batch_max + 1), err));
    }
    return RU_OK;
}

/* to_j = sum_i v_i step_(j-i): counts of a time that is one step longer. */
static void one_step_on(const double *v, const double *step, uint32_t batch_max, uint32_t n,
                        double *to)
{
    uint32_t nn = n * n;
    memset(to, 0, (size_t)batch_max * nn * sizeof *to);
    for (uint32_t j = 0; j < batch_max; j++) {
        for (uint32_t i = 0; i <= j; i++) {
            const double *x = v + (size_t)i * nn, *y = step + (size_t)(j - i) * nn;
            for (uint32_t r = 0; r < n; r++) {
                for (uint32_t m = 0; m < n; m++) {
                    for (uint32_t c = 0; c < n; c++) {
                        to[(size_t)j * nn + r * n + c] += x[r * n + m] * y[m * n + c];
                    }
                }
            }
        }
    }
}

ru_status ru_route_sizes(const ru_markov_law *arrivals, uint32_t batch_max, double step_s,
                         uint32_t n_steps, ru_arena *scratch, double *into, ru_err *err)
{
    uint32_t n = arrivals->map.n, row = batch_max + 1;
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    int64_t cells = (int64_t)batch_max * n * n;
    double *step = RU_NEW(scratch, double, cells), *v = RU_NEW(scratch, double, cells),
           *next = RU_NEW(scratch, double, cells);
    if (step == NULL || v == NULL || next == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for counts of %u arrivals", batch_max);
    }
    into[row + 1] = 1;
    if (n_steps > 0) {
        RU_TRY(ru_markov_count(&arrivals->map, step_s, batch_max, scratch, step, err));
        memcpy(v, step, (size_t)cells * sizeof *v);
    }
    for (uint32_t k = 1; k <= n_steps; k++) {
        RU_TRY(sizes_at(arrivals, batch_max, v, into + (size_t)k * row * row, err));
        one_step_on(v, step, batch_max, n, next);
        double *was = v;
        v = next;
        next = was;
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}
