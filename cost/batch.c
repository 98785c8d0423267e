#include "cost/batch.h"

#include <math.h>
#include <string.h>

#include "cost/math/dense.h"

enum { TERMS_MAX = 14, GRID_MIN = 96 };

/* Everything on the grid; n phases, B sizes. */
typedef struct batch_grid {
    const ru_markov_law *law;
    uint32_t n, b, g; /* phases, batch, intervals */
    double step;
    double *v;    /* [g + 1, b, n, n] V_j(t) */
    double *a;    /* [g + 1, b, n] start V_j(t) D1 */
    double *left; /* [g + 1, b, n] V_j(t) 1 */
    double start[RU_MARKOV_PHASES_MAX];
} batch_grid;

static double *v_at(const batch_grid *q, uint32_t at, uint32_t j)
{
    return q->v + ((size_t)at * q->b + j) * q->n * q->n;
}

static double *a_at(const batch_grid *q, uint32_t at, uint32_t j)
{
    return q->a + ((size_t)at * q->b + j) * q->n;
}

static double *left_at(const batch_grid *q, uint32_t at, uint32_t j)
{
    return q->left + ((size_t)at * q->b + j) * q->n;
}

static double rate_max(const ru_markov *m)
{
    double most = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        most = fmax(most, -m->d0[i * m->n + i]);
    }
    return most;
}

/* A time by which a batch is full but for 1e-10 of them, from every phase; at most `timeout`. */
static ru_status full_by(const ru_markov_law *l, uint32_t batch, double timeout, ru_arena *scratch,
                         double *out, ru_err *err)
{
    uint32_t n = l->map.n;
    double t = batch / rate_max(&l->map);
    for (; t < timeout; t *= 1.5) {
        ru_arena_mark mark = ru_arena_mark_get(scratch);
        double *v = RU_NEW(scratch, double, (size_t)batch *n *n), most = 0;
        if (v == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for counts of %u arrivals", batch);
        }
        RU_TRY(ru_markov_count(&l->map, t, batch - 1, scratch, v, err));
        for (uint32_t i = 0; i < n; i++) {
            double sum = 0;
            for (uint32_t j = 0; j + 1 < batch; j++) {
                for (uint32_t k = 0; k < n; k++) {
                    sum += v[(j * n + i) * n + k];
                }
            }
            most = fmax(most, sum);
        }
        ru_arena_rewind(scratch, mark);
        if (most < 1e-10) {
            break;
        }
    }
    *out = t < timeout ? t : timeout;
    return RU_OK;
}

/* V_j at every grid point: the step's counts, convolved on. */
static ru_status fill_counts(batch_grid *q, ru_arena *scratch, ru_err *err)
{
    uint32_t n = q->n, terms = q->b < TERMS_MAX ? q->b : TERMS_MAX, nn = n * n;
    double *u = RU_NEW(scratch, double, (size_t)terms *nn);
    if (u == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for counts of %u arrivals", terms);
    }
    RU_TRY(ru_markov_count(&q->law->map, q->step, terms, scratch, u, err));
    for (uint32_t i = 0; i < n; i++) {
        v_at(q, 0, 0)[i * n + i] = 1;
    }
    for (uint32_t at = 1; at <= q->g; at++) {
        for (uint32_t j = 0; j < q->b; j++) {
            double *to = v_at(q, at, j);
            for (uint32_t k = 0; k <= j && k < terms; k++) {
                const double *x = v_at(q, at - 1, j - k), *y = u + (size_t)k * nn;
                for (uint32_t i = 0; i < n; i++) {
                    for (uint32_t m = 0; m < n; m++) {
                        double f = x[i * n + m];
                        for (uint32_t c = 0; c < n; c++) {
                            to[i * n + c] += f * y[m * n + c];
                        }
                    }
                }
            }
        }
    }
    return RU_OK;
}

/* Weights of the rule for one interval of a grid of g >= 3: exact for cubics. */
static double interval(const double *f, uint32_t i, uint32_t g, double step)
{
    if (i == 0) {
        return step / 24 * (9 * f[0] + 19 * f[1] - 5 * f[2] + f[3]);
    }
    if (i + 1 == g) {
        return step / 24 * (9 * f[g] + 19 * f[g - 1] - 5 * f[g - 2] + f[g - 3]);
    }
    return step / 24 * (-f[i - 1] + 13 * f[i] + 13 * f[i + 1] - f[i + 2]);
}

/* sum[i] = integral of f from 0 to i step. Shape: f, sum [g + 1]. */
static void cumulate(const double *f, uint32_t g, double step, double *sum)
{
    sum[0] = 0;
    for (uint32_t i = 0; i < g; i++) {
        sum[i + 1] = sum[i] + interval(f, i, g, step);
    }
}

/* x next = x with sum 1, by a solve: slow phases would make an iteration long and inexact. */
static ru_status fixed_vector(const double *next, uint32_t n, double *x, ru_err *err)
{
    double m[RU_MARKOV_CELLS_MAX];
    uint32_t perm[RU_MARKOV_PHASES_MAX];
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < n; c++) {
            m[i * n + c] = c + 1 == n ? 1 : (i == c ? 1 : 0) - next[i * n + c];
        }
        x[i] = i + 1 == n ? 1 : 0;
    }
    RU_TRY(ru_dense_lu(m, n, perm, err));
    ru_dense_lu_solve_left(m, perm, n, x);
    return RU_OK;
}

/* Phases at the first request of a batch: the fixed vector of the chain from batch to batch, whose
 * rows are (int V_{B-2} D1 + sum_{j < B-1} V_j(T)) P. The integrals are exact, by the equations of
 * V: int V_j = (int V_{j-1} D1 + [j = 0] I - V_j(T)) (-D0)^-1; rows that only nearly sum to 1 would
 * move the vector by far where phases change slowly. */
static ru_status fill_start(batch_grid *q, ru_err *err)
{
    uint32_t n = q->n, nn = n * n;
    double come[RU_MARKOV_CELLS_MAX] = {0}; /* int V_{j-1} D1 */
    double rest[RU_MARKOV_CELLS_MAX], end[RU_MARKOV_CELLS_MAX] = {0}, next[RU_MARKOV_CELLS_MAX];
    for (uint32_t j = 0; j + 1 < q->b; j++) {
        const double *v = v_at(q, q->g, j);
        for (uint32_t cell = 0; cell < nn; cell++) {
            double one = j == 0 && cell % (n + 1) == 0 ? 1 : 0;
            rest[cell] = come[cell] + one - v[cell];
            end[cell] += v[cell];
        }
        ru_dense_mul(rest, q->law->jump, n, n, n, come); /* jump is (-D0)^-1 D1 */
    }
    for (uint32_t cell = 0; cell < nn; cell++) {
        end[cell] += come[cell];
    }
    ru_dense_mul(end, q->law->jump, n, n, n, next);
    return fixed_vector(next, n, q->start, err);
}

static void fill_vectors(batch_grid *q)
{
    uint32_t n = q->n;
    for (uint32_t at = 0; at <= q->g; at++) {
        for (uint32_t j = 0; j < q->b; j++) {
            const double *v = v_at(q, at, j);
            double row[RU_MARKOV_PHASES_MAX] = {0}, *a = a_at(q, at, j), *left = left_at(q, at, j);
            for (uint32_t i = 0; i < n; i++) {
                for (uint32_t c = 0; c < n; c++) {
                    row[c] += q->start[i] * v[i * n + c];
                    left[i] += v[i * n + c];
                }
            }
            for (uint32_t i = 0; i < n; i++) {
                for (uint32_t c = 0; c < n; c++) {
                    a[c] += row[i] * q->law->map.d1[i * n + c];
                }
            }
        }
    }
}

static double dot(const double *x, const double *y, uint32_t n)
{
    double s = 0;
    for (uint32_t i = 0; i < n; i++) {
        s += x[i] * y[i];
    }
    return s;
}

/* start V_j(t) 1 */
static double alone(const batch_grid *q, uint32_t at, uint32_t j)
{
    return dot(q->start, left_at(q, at, j), q->n);
}

/* The waits of a row are those of `total` requests: what the grid's rule leaves off is shared out.
 */
static void scale_row(double *seen, uint32_t g, double total)
{
    double by = seen[g] > 0 ? total / seen[g] : 0;
    for (uint32_t at = 0; at <= g; at++) {
        seen[at] *= by;
    }
}

/* Requests after the first of batches that time out with b < B, by wait. f, sum: [g + 1]. */
static void seen_partial(const batch_grid *q, uint32_t b, double *f, double *sum, double *seen)
{
    for (uint32_t at = 0; at <= q->g; at++) { /* at: of the wait w; the request came at T - w */
        uint32_t s = q->g - at;
        f[at] = 0;
        for (uint32_t k = 2; k <= b; k++) {
            f[at] += dot(a_at(q, s, k - 2), left_at(q, at, b - k), q->n);
        }
    }
    cumulate(f, q->g, q->step, sum);
    memcpy(seen, sum, (q->g + 1) * sizeof *seen);
}

/* Requests of full batches, by wait. */
static ru_status seen_full(const batch_grid *q, ru_arena *scratch, double *f, double *sum,
                           double *seen, ru_err *err)
{
    uint32_t n = q->n, b = q->b, g = q->g;
    double *came = RU_NEW(scratch, double, (size_t)(g + 1) * n); /* int a_{k-2} */
    double *tail = RU_NEW(scratch, double, (size_t)(g + 1) * n); /* G_{B-k}(t) */
    if (came == NULL || tail == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a grid of %u points", g);
    }
    for (uint32_t at = 0; at <= g; at++) {
        seen[at] = 1;
        for (uint32_t j = 0; j + 1 < b; j++) {
            seen[at] -= alone(q, at, j);
        }
    }
    for (uint32_t at = 0; at < (g + 1) * n; at++) {
        tail[at] = 1; /* G_0; request B first, then B - 1, ... */
    }
    for (uint32_t k = b; k >= 2; k--) {
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t at = 0; at <= g; at++) {
                f[at] = a_at(q, at, k - 2)[i];
            }
            cumulate(f, g, q->step, sum);
            for (uint32_t at = 0; at <= g; at++) {
                came[at * n + i] = sum[at];
            }
        }
        for (uint32_t at = 0; at <= g; at++) { /* those that came in (T - w, T]: all who fill */
            f[at] = dot(a_at(q, g - at, k - 2), tail + (size_t)at * n, n);
        }
        cumulate(f, g, q->step, sum);
        for (uint32_t at = 0; at <= g; at++) {
            seen[at] += dot(came + (size_t)(g - at) * n, tail + (size_t)at * n, n) + sum[at];
        }
        for (uint32_t at = 0; at <= g; at++) {
            for (uint32_t i = 0; i < n; i++) {
                tail[at * n + i] -= left_at(q, at, b - k)[i]; /* G_{B-k+1} */
            }
        }
    }
    return RU_OK;
}

static ru_status open_grid(batch_grid *q, double timeout, double fine, ru_arena *scratch,
                           ru_err *err)
{
    double points = ceil(4 * fine * timeout * rate_max(&q->law->map));
    points = fmin(fmax(points, GRID_MIN * fine), RU_BATCH_GRID_MAX);
    q->g = (uint32_t)fmax(points, 8);
    q->step = timeout / q->g;
    size_t places = (size_t)(q->g + 1) * q->b * q->n;
    q->v = RU_NEW(scratch, double, places * q->n);
    q->a = RU_NEW(scratch, double, places);
    q->left = RU_NEW(scratch, double, places);
    if (q->v == NULL || q->a == NULL || q->left == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a grid of %u points", q->g);
    }
    return RU_OK;
}

static ru_status no_room(uint32_t batch, ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no memory for the law of batches of %u", batch);
}

/* Without a timeout, or with batches of one, every request is served alone at once. */
static ru_status law_of_one(const ru_markov_law *arrivals, uint32_t batch, ru_arena *out,
                            ru_batch_law *law, ru_err *err)
{
    double *p = RU_NEW(out, double, batch + 1), *seen = RU_NEW(out, double, 2 * batch + 2);
    if (p == NULL || seen == NULL) {
        return no_room(batch, err);
    }
    p[1] = 1;
    /* A batch of one that is full has waited 0 s; one below `batch` "waits out" a timeout of 0 s.
     */
    seen[2] = seen[3] = batch == 1 ? 1 : 0;
    *law = (ru_batch_law){.batch = batch,
                          .mean_batch = 1,
                          .size_p = p,
                          .n_grid = 1,
                          .seen = seen,
                          .rate = arrivals->rate};
    return RU_OK;
}

ru_status ru_batch_law_of(const ru_markov_law *arrivals, uint32_t batch, double timeout_s,
                          double fine, ru_arena *out, ru_arena *scratch, ru_batch_law *law,
                          ru_err *err)
{
    if (batch < 1 || batch > RU_BATCH_MAX || !(timeout_s >= 0) || !(timeout_s < 1e9)) {
        return RU_FAIL(err, RU_E_ARG, "a batch of %u (1 to %d) with a timeout of %g s", batch,
                       RU_BATCH_MAX, timeout_s);
    }
    if (batch == 1 || timeout_s == 0) {
        return law_of_one(arrivals, batch, out, law, err);
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    double t = timeout_s;
    RU_TRY(full_by(arrivals, batch, timeout_s, scratch, &t, err));
    batch_grid q = {.law = arrivals, .n = arrivals->map.n, .b = batch};
    RU_TRY(open_grid(&q, t, fine, scratch, err));
    RU_TRY(fill_counts(&q, scratch, err));
    RU_TRY(fill_start(&q, err));
    fill_vectors(&q);
    size_t row = q.g + 1;
    double *p = RU_NEW(out, double, batch + 1), *seen = RU_NEW(out, double, (batch + 1) * row);
    double *f = RU_NEW(scratch, double, row), *sum = RU_NEW(scratch, double, row);
    if (p == NULL || seen == NULL || f == NULL || sum == NULL) {
        return no_room(batch, err);
    }
    double rest = 1, mean = 0;
    for (uint32_t b = 1; b < batch; b++) {
        p[b] = alone(&q, q.g, b - 1);
        rest -= p[b];
        mean += b * p[b];
        seen_partial(&q, b, f, sum, seen + b * row);
        scale_row(seen + b * row, q.g, (b - 1) * p[b]);
    }
    p[batch] = rest > 0 ? rest : 0;
    mean += batch * p[batch];
    RU_TRY(seen_full(&q, scratch, f, sum, seen + batch * row, err));
    scale_row(seen + batch * row, q.g, batch * p[batch]);
    *law = (ru_batch_law){.batch = batch,
                          .timeout_s = t,
                          .mean_batch = mean,
                          .size_p = p,
                          .n_grid = q.g,
                          .step_s = q.step,
                          .seen = seen,
                          .rate = arrivals->rate};
    if (out != scratch) {
        ru_arena_rewind(scratch, mark);
    }
    return RU_OK;
}

double ru_batch_seen(const ru_batch_law *law, uint32_t b, double w)
{
    const double *seen = law->seen + (size_t)b * (law->n_grid + 1);
    if (w < 0) {
        return 0;
    }
    if (w >= law->timeout_s) {
        return seen[law->n_grid] + (b < law->batch ? law->size_p[b] : 0);
    }
    double at = w / law->step_s;
    uint32_t i = (uint32_t)at < law->n_grid ? (uint32_t)at : law->n_grid - 1;
    return seen[i] + (at - i) * (seen[i + 1] - seen[i]);
}

double ru_batch_cdf(const ru_batch_law *law, const double *service_s, double x)
{
    double sum = 0;
    for (uint32_t b = 1; b <= law->batch; b++) {
        sum += ru_batch_seen(law, b, x - service_s[b]);
    }
    return sum / law->mean_batch;
}

double ru_batch_quantile(const ru_batch_law *law, const double *service_s, double p)
{
    double low = 0, high = 0;
    for (uint32_t b = 1; b <= law->batch; b++) {
        high = fmax(high, service_s[b]);
    }
    high += law->timeout_s;
    for (uint32_t round = 0; round < 60 && high - low > 1e-9 * high; round++) {
        double mid = 0.5 * (low + high);
        if (ru_batch_cdf(law, service_s, mid) >= p) {
            high = mid;
        } else {
            low = mid;
        }
    }
    return high;
}

double ru_batch_per_request(const ru_batch_law *law, const double *f_of)
{
    double sum = 0;
    for (uint32_t b = 1; b <= law->batch; b++) {
        sum += law->size_p[b] * f_of[b];
    }
    return sum / law->mean_batch;
}

/* -- the published rule ---------------------------------------------------------------------------
 */

/* Weights of phases at a batch's start as the artefact computes them: a ratio of rates, no sojourn
 * count unless D1 is diagonal. */
static void published_start(const ru_markov_law *l, uint32_t batch, double timeout, double *start)
{
    uint32_t n = l->map.n;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        double rate = 0;
        for (uint32_t c = 0; c < n; c++) {
            rate += l->map.d1[i * n + c];
        }
        start[i] = l->at_time[i] * rate / fmin(batch, rate * timeout + 1);
        sum += start[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        start[i] /= sum;
    }
}

ru_status ru_batch_law_published(const ru_markov_law *arrivals, uint32_t batch, double timeout_s,
                                 ru_arena *out, ru_arena *scratch, ru_batch_law *law, ru_err *err)
{
    if (batch == 1 || timeout_s == 0) {
        return law_of_one(arrivals, batch, out, law, err);
    }
    uint32_t n = arrivals->map.n;
    double start[RU_MARKOV_PHASES_MAX], *p = RU_NEW(out, double, batch + 1);
    enum { GRID = 512 };
    double *seen = RU_NEW(out, double, (batch + 1) * (size_t)(GRID + 1));
    double *v = RU_NEW(scratch, double, (size_t)batch *n);
    if (p == NULL || seen == NULL || v == NULL) {
        return no_room(batch, err);
    }
    published_start(arrivals, batch, timeout_s, start);
    RU_TRY(ru_markov_count_from(&arrivals->map, start, timeout_s, batch - 1, scratch, v, err));
    double rest = 1, mean = 0;
    for (uint32_t b = 1; b < batch; b++) {
        for (uint32_t i = 0; i < n; i++) {
            p[b] += v[(b - 1) * n + i];
        }
        rest -= p[b];
        mean += b * p[b];
    }
    p[batch] = rest > 0 ? rest : 0;
    mean += batch * p[batch];
    double full_s = fmin(timeout_s, (batch - 1) / arrivals->rate);
    for (uint32_t b = 1; b <= batch; b++) {
        for (uint32_t at = 0; at <= GRID;
             at++) { /* waits are uniform up to T, or to a full batch */
            double w = timeout_s * at / GRID, most = b < batch ? timeout_s : full_s;
            seen[b * (size_t)(GRID + 1) + at] = b * p[b] * fmin(1, w / most);
        }
        /* The first request's share is counted again where it waits out the timeout. */
        for (uint32_t at = 0; at <= GRID && b < batch; at++) {
            seen[b * (size_t)(GRID + 1) + at] *= (b - 1.0) / b;
        }
    }
    *law = (ru_batch_law){.batch = batch,
                          .timeout_s = timeout_s,
                          .mean_batch = mean,
                          .size_p = p,
                          .n_grid = GRID,
                          .step_s = timeout_s / GRID,
                          .seen = seen,
                          .rate = arrivals->rate};
    return RU_OK;
}
