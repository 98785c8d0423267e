/* Markovian arrival processes. See markov.h. */
#include "cost/math/markov.h"

#include "cost/math/dense.h"
#include "cost/math/norm.h"

#include <math.h>
#include <string.h>

enum { N_MAX = RU_MARKOV_PHASES_MAX, CELLS_MAX = RU_MARKOV_CELLS_MAX };

static double largest_rate(const ru_markov *m)
{
    double q = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        q = -m->d0[i * m->n + i] > q ? -m->d0[i * m->n + i] : q;
    }
    return q;
}

/* The left null vector of d0 + d1 that sums to 1, or of P - I (`jump`): one column of the system
 * says the sum. */
static ru_status stationary(const double *a, uint32_t n, double *pi, ru_err *err)
{
    double lu[CELLS_MAX];
    uint32_t perm[N_MAX];
    double size = 0;
    for (uint32_t i = 0; i < n * n; i++) {
        size = fabs(a[i]) > size ? fabs(a[i]) : size;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            lu[i * n + j] = j + 1 < n ? a[i * n + j] / (size > 0 ? size : 1) : 1;
        }
        pi[i] = i + 1 < n ? 0 : 1;
    }
    if (ru_dense_lu(lu, n, perm, NULL) != RU_OK) {
        return RU_FAIL(err, RU_E_ARG,
                       "an arrival process of %u phases has more than one recurrent class", n);
    }
    ru_dense_lu_solve_left(lu, perm, n, pi);
    for (uint32_t i = 0; i < n; i++) {
        if (!(pi[i] > -1e-9)) {
            return RU_FAIL(err, RU_E_ARG, "phase %u of an arrival process has probability %g", i,
                           pi[i]);
        }
        pi[i] = pi[i] < 0 ? 0 : pi[i];
    }
    return RU_OK;
}

static ru_status check_cells(const ru_markov *m, ru_err *err)
{
    if (m->n == 0 || m->n > N_MAX) {
        return RU_FAIL(err, RU_E_ARG, "an arrival process of %u phases, 1 to %d", m->n, N_MAX);
    }
    double q = largest_rate(m);
    for (uint32_t i = 0; i < m->n; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < m->n; j++) {
            double stay = m->d0[i * m->n + j], come = m->d1[i * m->n + j];
            if (!isfinite(stay) || !isfinite(come) || come < 0 || (i != j && stay < 0)) {
                return RU_FAIL(err, RU_E_ARG, "rates %g and %g from phase %u to phase %u", stay,
                               come, i, j);
            }
            sum += stay + come;
        }
        if (fabs(sum) > 1e-9 * q) {
            return RU_FAIL(err, RU_E_ARG, "the rates of phase %u sum to %g, not 0", i, sum);
        }
    }
    return RU_OK;
}

ru_status ru_markov_check(const ru_markov *m, ru_err *err)
{
    ru_markov_law law;
    return ru_markov_solve(m, &law, err);
}

ru_markov ru_markov_poisson(double rate)
{
    RU_CHECK(rate > 0);
    return (ru_markov){.n = 1, .d0 = {-rate}, .d1 = {rate}};
}

ru_markov ru_markov_erlang(uint32_t phases, double rate)
{
    RU_CHECK(phases >= 1 && phases <= N_MAX);
    RU_CHECK(rate > 0);
    ru_markov m = {.n = phases};
    for (uint32_t i = 0; i < phases; i++) {
        m.d0[i * phases + i] = -rate * phases;
        *(i + 1 < phases ? &m.d0[i * phases + i + 1] : &m.d1[i * phases]) = rate * phases;
    }
    return m;
}

ru_markov ru_markov_hyper(double mu1, double mu2, double p, double gamma)
{
    RU_CHECK(mu1 > 0 && mu2 > 0);
    RU_CHECK(p >= 0 && p <= 1);
    double q = 1 - p, other = 1 - gamma;
    return (ru_markov){.n = 2,
                       .d0 = {-mu1, 0, 0, -mu2},
                       .d1 = {mu1 * (other * p + gamma), mu1 * other * q, mu2 * other * p,
                              mu2 * (other * q + gamma)}};
}

ru_markov ru_markov_mmpp(double rate1, double rate2, double leave1, double leave2)
{
    return (ru_markov){.n = 2,
                       .d0 = {-rate1 - leave1, leave1, leave2, -rate2 - leave2},
                       .d1 = {rate1, 0, 0, rate2}};
}

ru_markov ru_markov_thinned(const ru_markov *m, double p)
{
    RU_CHECK(p > 0 && p <= 1);
    ru_markov out = *m;
    for (uint32_t i = 0; i < m->n * m->n; i++) {
        out.d0[i] += (1 - p) * m->d1[i];
        out.d1[i] *= p;
    }
    return out;
}

ru_status ru_markov_solve(const ru_markov *m, ru_markov_law *out, ru_err *err)
{
    RU_TRY(check_cells(m, err));
    ru_markov_law l = {.map = *m};
    uint32_t n = m->n, perm[N_MAX];
    double lu[CELLS_MAX], sum[CELLS_MAX], column[N_MAX];
    double q = largest_rate(m);
    for (uint32_t i = 0; i < n * n; i++) {
        sum[i] = m->d0[i] + m->d1[i];
        lu[i] = -m->d0[i] / (q > 0 ? q : 1);
    }
    if (ru_dense_lu(lu, n, perm, NULL) != RU_OK) {
        return RU_FAIL(err, RU_E_ARG, "an arrival process of %u phases may stop arriving", n);
    }
    for (uint32_t j = 0; j < n; j++) {
        memset(column, 0, sizeof column);
        column[j] = 1 / q;
        ru_dense_lu_solve(lu, perm, n, column);
        for (uint32_t i = 0; i < n; i++) {
            l.wait[i * n + j] = column[i];
        }
    }
    ru_dense_mul(l.wait, m->d1, n, n, n, l.jump);
    RU_TRY(stationary(sum, n, l.at_time, err));
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            l.rate += l.at_time[i] * m->d1[i * n + j];
        }
    }
    if (!(l.rate > 0)) {
        return RU_FAIL(err, RU_E_ARG, "an arrival process of %u phases has no arrivals", n);
    }
    /* Arrivals see the phases in proportion to what D1 brings them: pi_e = pi D1 / rate. */
    ru_dense_row_mul(l.at_time, m->d1, n, n, l.at_arrival);
    for (uint32_t i = 0; i < n; i++) {
        l.at_arrival[i] /= l.rate;
    }
    *out = l;
    return RU_OK;
}

/* One step of uniformised counting in place: c[j] = c[j] K0 + c[j - 1] K1, top to bottom. */
static void count_step(const ru_markov *m, double q, uint32_t n_counts, double *c)
{
    double stay[N_MAX], come[N_MAX];
    for (uint32_t j = n_counts; j-- > 0;) {
        double *row = c + (size_t)j * m->n;
        ru_dense_row_mul(row, m->d0, m->n, m->n, stay);
        memset(come, 0, sizeof come);
        if (j > 0) {
            ru_dense_row_mul(row - m->n, m->d1, m->n, m->n, come);
        }
        for (uint32_t i = 0; i < m->n; i++) {
            row[i] += (stay[i] + come[i]) / q;
        }
    }
}

double ru_markov_scv(const ru_markov_law *law)
{
    uint32_t n = law->map.n;
    double mean = 0, square = 0; /* E X = v W 1 and E X^2 = 2 v W W 1 */
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n; k++) {
            double to = law->at_arrival[i] * law->wait[i * n + k];
            mean += to;
            for (uint32_t c = 0; c < n; c++) {
                square += 2 * to * law->wait[k * n + c];
            }
        }
    }
    return square / (mean * mean) - 1;
}

ru_status ru_markov_count_from(const ru_markov *m, const double *from, double t, uint32_t n_counts,
                               ru_arena *scratch, double *into, ru_err *err)
{
    RU_TRY(check_cells(m, err));
    double q = largest_rate(m);
    if (!(t >= 0) || !(q * t <= 1e7) || n_counts == 0) {
        return RU_FAIL(err, RU_E_ARG, "counts over %g s at rates up to %g/s, at most 1e7 changes",
                       t, q);
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    int64_t cells = (int64_t)n_counts * m->n;
    double *c = RU_NEW(scratch, double, cells), *sum = RU_NEW(scratch, double, cells);
    if (c == NULL || sum == NULL) {
        ru_arena_rewind(scratch, mark);
        return RU_FAIL(err, RU_E_LIMIT, "no scratch memory for %u counts", n_counts);
    }
    memcpy(sum, from, m->n * sizeof *sum);
    double parts = ceil(q * t / 512), step = t / (parts < 1 ? 1 : parts);
    for (double part = 0; part < parts; part++) {
        double weight = ru_num_exp(-q * step), left = 1;
        memcpy(c, sum, (size_t)cells * sizeof *c);
        memset(sum, 0, (size_t)cells * sizeof *sum);
        for (uint32_t k = 0; left > 1e-17 || k < q * step; k++) {
            for (int64_t i = 0; i < cells; i++) {
                sum[i] += weight * c[i];
            }
            count_step(m, q, n_counts, c);
            left -= weight;
            weight *= q * step / (k + 1);
            if (k > q * step + 40 * (1 + sqrt(q * step))) {
                break; /* left is rounding */
            }
        }
    }
    memcpy(into, sum, (size_t)cells * sizeof *into);
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

ru_status ru_markov_count(const ru_markov *m, double t, uint32_t n_counts, ru_arena *scratch,
                          double *into, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    double *row = RU_NEW(scratch, double, (int64_t)n_counts * m->n);
    if (row == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no scratch memory for %u counts", n_counts);
    }
    ru_status st = RU_OK;
    for (uint32_t i = 0; st == RU_OK && i < m->n; i++) {
        double from[N_MAX] = {0};
        from[i] = 1;
        st = ru_markov_count_from(m, from, t, n_counts, scratch, row, err);
        for (uint32_t j = 0; st == RU_OK && j < n_counts; j++) {
            memcpy(into + ((size_t)j * m->n + i) * m->n, row + (size_t)j * m->n,
                   m->n * sizeof *into);
        }
    }
    ru_arena_rewind(scratch, mark);
    return st;
}

double ru_markov_draw(const ru_markov *m, ru_rng *r, uint32_t *phase)
{
    double t = 0;
    for (;;) {
        const double *stay = m->d0 + *phase * m->n, *come = m->d1 + *phase * m->n;
        double weights[2 * N_MAX];
        for (uint32_t j = 0; j < m->n; j++) {
            weights[j] = j == *phase ? 0 : stay[j];
            weights[m->n + j] = come[j];
        }
        t += ru_rng_exponential(r) / -stay[*phase];
        uint32_t next = ru_rng_pick(r, weights, 2 * m->n);
        *phase = next % m->n;
        if (next >= m->n) {
            return t;
        }
    }
}
