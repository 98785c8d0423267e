/* Short rows, softmax, places of the largest and running sums against plain
 * loops: every length up to past a vector, rows that do not fill one, ties and
 * NaN, on every instruction set that this CPU has. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/ref/ref_impl.h"
#include "test/test.h"

enum { ROWS = 37, LENGTH = 70, WIDE = 2100 };

/* Few different values, so that there are ties. */
static void numbers(float *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t u = ((uint64_t)i + seed * 7919 + 1) * 0x9e3779b97f4a7c15u;
        x[i] = (float)(int64_t)(u >> 59) * 0.25f - 4.0f;
    }
}

static float joined(ru_kern_red op, float a, float v)
{
    switch (op) {
    case RU_KERN_RED_SUM:
        return a + v;
    case RU_KERN_RED_SUM_SQUARE:
        return a + v * v;
    case RU_KERN_RED_SUM_ABS:
        return a + fabsf(v);
    case RU_KERN_RED_MAX:
        return isnan(a) || a > v ? a : v;
    case RU_KERN_RED_MIN:
        return isnan(a) || a < v ? a : v;
    case RU_KERN_RED_PROD:
        break;
    }
    return a * v;
}

/* Multiples of 1/16 below 2^20: every order of the sums gives the same float.
 */
static void short_rows_are_reduced(void **state)
{
    (void)state;
    float *x = malloc(sizeof(float) * ROWS * LENGTH), y[ROWS], part[ROWS];
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (int64_t n = 1; k != NULL && n <= LENGTH; n++) {
            for (ru_kern_red op = RU_KERN_RED_SUM; op <= RU_KERN_RED_MIN; op++) {
                numbers(x, ROWS * n, (uint64_t)n);
                x[n % 3 == 0 ? n - 1 : n % 3 == 1 ? 0 : n / 2] = NAN;
                x[9 * n] = INFINITY; /* beside rows with a NaN, and not */
                k->reduce_rows(op, RU_F32, x, ROWS, n, y);
                k->reduce_rows(op, RU_F32, x, 5, n, part);
                k->reduce_rows(op, RU_F32, x + 5 * n, ROWS - 5, n, part + 5);
                assert_true(isnan(y[0]) && isnan(part[0]));
                for (int64_t r = 1; r < ROWS; r++) {
                    float want = x[r * n];
                    want = op == RU_KERN_RED_SUM_SQUARE ? want * want
                           : op == RU_KERN_RED_SUM_ABS  ? fabsf(want)
                                                        : want;
                    for (int64_t i = 1; i < n; i++) {
                        want = joined(op, want, x[r * n + i]);
                    }
                    assert_true(y[r] == want && part[r] == want);
                }
            }
        }
    }
    free(x);
}

/* The same in double. NaN is above and below all others; equal zeros keep their
 * sign. */
static double joined_wide(ru_kern_red op, double a, double v)
{
    return op == RU_KERN_RED_SUM          ? a + v
           : op == RU_KERN_RED_SUM_SQUARE ? a + v * v
           : op == RU_KERN_RED_SUM_ABS    ? a + fabs(v)
           : op == RU_KERN_RED_PROD       ? a * v
           : op == RU_KERN_RED_MAX        ? (isnan(a) || a > v ? a : v)
                                          : (isnan(a) || a < v ? a : v);
}

/* Row r of numbers of which every order of sums and of products is exact. */
static void wide_row(ru_kern_red op, int64_t r, int64_t n, double *x)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t u = (uint64_t)(r * n + i + 1) * 0x9e3779b97f4a7c15u;
        int sign = u >> 63 != 0 ? -1 : 1;
        x[i] = op == RU_KERN_RED_PROD ? sign * (u >> 62 & 1 ? 2.0 : 1.0)
                                      : (double)(int64_t)(u >> 59) * 0.25 - 4.0;
        x[i] = r % 7 == 3 ? -0.0 : x[i];
    }
    const double odd[] = {RU_NAN, RU_NAN, (double)INFINITY};
    if (r % 7 < 3) {
        x[r % 7 == 0 ? n - 1 : r % 7 == 1 ? 0 : n / 2] = r % 2 == 0 ? odd[r % 7] : -odd[r % 7];
    }
}

/* Every number of rows, so that groups of eight are full and not; what y holds
 * is joined, too. */
static void rows_of_doubles_are_reduced(void **state)
{
    (void)state;
    static const double starts[] = {[RU_KERN_RED_MAX] = -(double)INFINITY,
                                    [RU_KERN_RED_MIN] = (double)INFINITY,
                                    [RU_KERN_RED_PROD] = 1.0};
    double *x = malloc(sizeof(double) * ROWS * LENGTH), y[ROWS], more[ROWS];
    const int64_t cases = RU_KERN_LEVELS * LENGTH * (RU_KERN_RED_PROD + 1);
    for (int64_t c = 0; c < cases; c++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)(c % RU_KERN_LEVELS));
        const ru_kern_red op = (ru_kern_red)(c / RU_KERN_LEVELS / LENGTH);
        const int64_t n = c / RU_KERN_LEVELS % LENGTH + 1, rows = 1 + c / RU_KERN_LEVELS % ROWS;
        if (k == NULL) {
            continue;
        }
        for (int64_t r = 0; r < rows; r++) {
            wide_row(op, r, n, x + r * n);
            more[r] = 2.0;
        }
        k->fold(op, RU_F64, false, x, n, 0, rows, true, y);
        k->fold(op, RU_F64, false, x, n, 0, rows, false, more);
        for (int64_t r = 0; r < rows; r++) {
            double want = (size_t)op < RU_ARRAY_LEN(starts) ? starts[op] : 0.0, also = 2.0;
            for (int64_t i = 0; i < n; i++) {
                want = joined_wide(op, want, x[r * n + i]);
                also = joined_wide(op, also, x[r * n + i]);
            }
            bool same = isnan(want)
                            ? isnan(y[r]) && isnan(more[r])
                            : y[r] == want && signbit(y[r]) == signbit(want) && more[r] == also;
            if (!same) {
                fail_msg("op %d, row %lld of %lld elements: %g and %g for %g and %g", (int)op,
                         (long long)r, (long long)n, y[r], more[r], want, also);
            }
        }
    }
    free(x);
}

/* Row r: numbers of both signs, of which it has one at `at` of another kind. */
static void softmax_row_of(int64_t r, int64_t n, int64_t at, float *x)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t u = (uint64_t)(r * n + i + 1) * 0x9e3779b97f4a7c15u;
        x[i] = (float)(u >> 40) * 0x1p-20f - 8.0f;
        x[i] = r % 9 == 1 ? -INFINITY : r % 9 == 2 ? -0.0f : r % 9 == 3 ? x[i] * 1e30f : x[i];
    }
    const float odd[] = {-INFINITY, NAN, INFINITY, -100.0f, 1e6f};
    x[at] = r % 9 >= 4 ? odd[r % 9 - 4] : x[at];
}

static void near_softmax(bool logs, const float *x, const float *y, int64_t n, int64_t r)
{
    double most = -(double)INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        most = isnan(x[i]) || (double)x[i] > most ? (double)x[i] : most;
    }
    for (int64_t i = 0; i < n; i++) {
        sum += exp((double)x[i] - most);
    }
    for (int64_t i = 0; i < n; i++) {
        double down = (double)x[i] - most, want = logs ? down - log(sum) : exp(down) / sum;
        double limit = logs ? 1e-6 + 2e-6 * fabs(want) : 1e-30 + 2e-6 * want;
        bool same = isnan(want)   ? isnan(y[i])
                    : isinf(want) ? (double)y[i] == want
                                  : fabs((double)y[i] - want) <= limit;
        if (!same) {
            fail_msg("log %d, row %lld of %lld: [%lld] is %g for %g", logs, (long long)r,
                     (long long)n, (long long)i, (double)y[i], want);
        }
    }
}

/* All lengths up to past four vectors and around those that change the way;
 * whole groups of rows and parts of one; in place, too. */
static void softmax_of_every_length(void **state)
{
    (void)state;
    enum { SOME = 27, LONGEST = 1030 };
    static const int64_t beyond[] = {127, 511, 512, 513, 1024, 1025, LONGEST};
    float *x = malloc(sizeof(float) * SOME * LONGEST), *y = malloc(sizeof(float) * SOME * LONGEST);
    for (uint32_t c = 0; c < RU_KERN_LEVELS * 2 * (70 + RU_ARRAY_LEN(beyond)); c++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)(c % RU_KERN_LEVELS));
        const bool log = c / RU_KERN_LEVELS % 2 == 1;
        const int64_t of = c / RU_KERN_LEVELS / 2, n = of < 70 ? of + 1 : beyond[of - 70];
        for (int64_t r = 0; r < SOME; r++) {
            softmax_row_of(r, n, r < 9 ? n - 1 : r < 18 ? n / 2 : 0, x + r * n);
        }
        if (k == NULL) {
            continue;
        }
        k->softmax(RU_F32, log, x, y, SOME - 1, n);
        memcpy(y + (SOME - 1) * n, x + (SOME - 1) * n, sizeof(float) * (size_t)n);
        k->softmax(RU_F32, log, y + (SOME - 1) * n, y + (SOME - 1) * n, 1, n);
        for (int64_t r = 0; r < SOME; r++) {
            near_softmax(log, x + r * n, y + r * n, n, r);
        }
    }
    free(x);
    free(y);
}

/* The place by the words of the standard; NaN is above every number. */
static int64_t place_of(const float *x, int64_t n, int64_t step, bool smallest, bool last)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        float v = x[i * step], b = x[best * step];
        bool more = isnan(b) ? false : isnan(v) || (smallest ? v < b : v > b);
        bool equal = isnan(b) ? isnan(v) : v == b;
        best = more || (last && equal) ? i : best;
    }
    return best;
}

static void places_of_the_largest(void **state)
{
    (void)state;
    float *x = malloc(sizeof(float) * ROWS * LENGTH);
    int64_t y[ROWS];
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (int64_t n = 1; k != NULL && n <= LENGTH; n++) {
            for (uint32_t way = 0; way < 4; way++) {
                ru_kern_scan s = {
                    .dim = n, .inner = 1, .smallest = way % 2 == 1, .last = way / 2 == 1};
                numbers(x, ROWS * n, (uint64_t)n);
                x[n + n / 3] = NAN;
                x[n + n / 2] = NAN;
                k->arg(&s, x, y, 0, ROWS);
                for (int64_t r = 0; r < ROWS; r++) {
                    assert_int_equal(y[r], place_of(x + r * n, n, 1, s.smallest, s.last));
                }
            }
        }
    }
    free(x);
}

/* Few values and the ends of each type, so that many are equal; NaN, infinities
 * and both zeros among those of f64. */
static void places_of_every_type(void **state)
{
    (void)state;
    enum { OUTER = 70, MOST = 70 * 1100 };
    static const ru_dtype types[] = {RU_F64, RU_I8,  RU_U8,  RU_BOOL, RU_I16,
                                     RU_U16, RU_I32, RU_U32, RU_I64,  RU_U64};
    static const int64_t dims[] = {1, 2, 5, 24, 25, 41, 64, 65, 77, 1100}, inners[] = {1, 3, 65};
    static uint64_t x[MOST];
    static int64_t y[MOST];
    for (uint32_t k = 0; k < RU_KERN_LEVELS * 10 * 10 * 3 * 4; k++) {
        const ru_kern_numbers *kern = ru_kern_numbers_at((ru_kern_level)(k % RU_KERN_LEVELS));
        uint32_t rest = k / RU_KERN_LEVELS, way = rest / 300;
        ru_dtype t = types[rest % 10];
        ru_kern_scan s = {.dim = dims[rest / 10 % 10],
                          .inner = inners[rest / 100 % 3],
                          .smallest = way % 2 == 1,
                          .last = way / 2 == 1};
        int64_t outer = s.dim * s.inner * OUTER <= MOST ? OUTER : 1;
        for (int64_t i = 0; i < outer * s.dim * s.inner; i++) {
            uint64_t u = (uint64_t)(i + 1) * 0x9E3779B97F4A7C15U;
            u ^= u >> 29;
            double v = u % 11 < 2 ? (u % 2 == 0 ? -1e30 : 1e30) : (double)(u >> 8 & 7) - 3.0;
            v = t == RU_F64 && u % 97 == 0 ? (double)NAN : v;
            v = t == RU_F64 && fabs(v) == 1e30 ? copysign((double)INFINITY, v) : v;
            v = t == RU_F64 && v == 0 && (u >> 20) % 2 == 0 ? -0.0 : v;
            v = t != RU_F64 && v < 0 && (t == RU_U8 || t == RU_U16 || t == RU_U32 || t == RU_U64)
                    ? 250.0
                    : v;
            rui_ref_set(t, x, i, v);
        }
        if (kern == NULL) {
            continue;
        }
        kern->arg(&s, t, x, y, 0, outer / 2);
        kern->arg(&s, t, x, y, outer / 2, outer);
        for (int64_t l = 0; l < outer * s.inner; l++) {
            int64_t best = 0, at = l / s.inner * s.dim * s.inner + l % s.inner;
            for (int64_t i = 1; i < s.dim; i++) {
                double u = rui_ref_get(t, x, at + i * s.inner);
                double b = rui_ref_get(t, x, at + best * s.inner);
                bool equal = isnan(u) ? isnan(b) : u == b;
                bool more = isnan(u) ? !isnan(b) : !isnan(b) && (s.smallest ? u < b : u > b);
                best = more || (equal && s.last) ? i : best;
            }
            if (y[l] != best) {
                fail_msg("%s, %lld x %lld, way %u: place %lld for %lld", ru_dtype_name(t),
                         (long long)s.dim, (long long)s.inner, way, (long long)y[l],
                         (long long)best);
            }
        }
    }
}

/* Does place a come before place b among the largest, or smallest? */
static bool before(const float *x, int64_t a, int64_t b, int64_t step, bool smallest)
{
    float u = x[a * step], v = x[b * step];
    bool equal = isnan(u) ? isnan(v) : u == v;
    bool more = isnan(v) ? smallest && !isnan(u) : isnan(u) ? !smallest : smallest ? u < v : u > v;
    return equal ? a < b : more;
}

/* Rank by rank: how many others come before. */
static void check_top(const ru_kern *k, const ru_kern_scan *s, const float *x, int64_t outer)
{
    int64_t lines = outer * s->inner, blocks = outer * ((s->inner + 15) / 16);
    float *y = malloc(sizeof(float) * (size_t)(lines * s->keep));
    int64_t *index = malloc(sizeof(int64_t) * (size_t)(lines * s->keep));
    void *work = malloc((size_t)k->topk_work(s));
    k->topk(s, x, y, NULL, work, 0, blocks / 2);
    k->topk(s, x, y, NULL, work, blocks / 2, blocks);
    k->topk(s, x, NULL, index, work, 0, blocks);
    for (int64_t l = 0; l < lines; l++) {
        const float *line = x + l / s->inner * s->dim * s->inner + l % s->inner;
        int64_t to = l / s->inner * s->keep * s->inner + l % s->inner;
        for (int64_t r = 0; r < s->keep; r++) {
            int64_t at = index[to + r * s->inner], rank = 0;
            assert_in_range(at, 0, s->dim - 1);
            for (int64_t i = 0; i < s->dim; i++) {
                rank += before(line, i, at, s->inner, s->smallest);
            }
            assert_int_equal(rank, r);
            assert_memory_equal(&y[to + r * s->inner], &line[at * s->inner], sizeof *y);
        }
    }
    free(y);
    free(index);
    free(work);
}

static void largest_are_in_order(void **state)
{
    (void)state;
    static const int64_t dims[] = {1, 5, 64, 200, 331}, inners[] = {1, 3, 16, 37};
    enum { LINES = 2 * 37 };
    float *x = malloc(sizeof(float) * LINES * 331);
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (uint32_t c = 0; k != NULL && c < 2 * 5 * 4 * 4; c++) {
            ru_kern_scan s = {
                .dim = dims[c / 8 % 5], .inner = inners[c / 2 % 4], .smallest = c % 2 == 1};
            numbers(x, 2 * s.inner * s.dim, c);
            for (int64_t i = 0; c >= 40 && i < 2 * s.inner * s.dim; i++) { /* in order, by fours */
                int64_t step = i / s.inner % s.dim / 4;
                x[i] = (float)(c < 80 ? step : -step);
            }
            for (int64_t i = 0; i < s.dim * s.inner; i += 29) {
                x[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? -0.0f : -INFINITY;
            }
            for (int64_t i = 0; c >= 120 && i < 2 * s.inner * s.dim; i++) { /* the last of all */
                x[i] = i / s.inner % s.dim == 0 ? NAN : s.smallest ? INFINITY : -INFINITY;
            }
            for (s.keep = 1; s.keep <= s.dim; s.keep += 1 + s.keep * 2) {
                check_top(k, &s, x, 2);
            }
            s.keep = s.dim;
            check_top(k, &s, x, 2);
        }
    }
    free(x);
}

/* Columns in one order, whatever pieces they are read in: the sums have the same bits. */
static void columns_are_added_row_by_row(void **state)
{
    (void)state;
    enum { MOST = 31 * 9001 };
    static const int64_t rows[] = {1, 7, 8, 9, 31}, cols[] = {5, 64, 65, 259, 4096, 8191, 9001};
    static float x[MOST], y[9001];
    numbers(x, MOST, 3);
    for (int64_t i = 0; i < MOST; i++) {
        x[i] *= 0.37f;
    }
    for (uint32_t c = 0; c < RU_KERN_LEVELS * 5 * 7; c++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)(c % RU_KERN_LEVELS));
        const int64_t n = rows[c / RU_KERN_LEVELS % 5], w = cols[c / RU_KERN_LEVELS / 5];
        if (k == NULL) {
            continue;
        }
        k->reduce_cols(RU_KERN_RED_SUM, RU_F32, x, n, w, 0, w, y);
        for (int64_t j = 0; j < w; j++) {
            float sum = 0.0f;
            for (int64_t r = 0; r < n; r++) {
                sum += x[r * w + j];
            }
            assert_true(y[j] == sum);
        }
    }
}

/* Few of long lines: in any order, rising, falling, in one column of a bound, with many alike, with
 * numbers that are none, and next to nothing but infinities. */
static void few_of_long_lines(void **state)
{
    (void)state;
    enum { LINES = 2, MOST = 1300 };
    static const int64_t dims[] = {512, 575, MOST}, keeps[] = {2, 5, 16, 17};
    static float x[LINES * MOST];
    for (uint32_t c = 0; c < RU_KERN_LEVELS * 2 * 3 * 8; c++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)(c % RU_KERN_LEVELS));
        const uint32_t rest = c / RU_KERN_LEVELS, way = rest / 6;
        ru_kern_scan s = {.dim = dims[rest / 2 % 3], .inner = 1, .smallest = rest % 2 == 1};
        numbers(x, LINES * s.dim, c);
        for (int64_t i = 0; i < LINES * s.dim; i++) {
            float v = x[i], sign = s.smallest ? -1.0f : 1.0f;
            x[i] = way == 1   ? (float)(i / 3)
                   : way == 2 ? (float)(-i / 3)
                   : way == 3 ? (i % 64 == 7 ? sign * (float)(i + 9) : v)
                   : way == 4 ? (i % 301 == 9 ? sign : 0.0f)
                   : way == 5 ? (i % 97 == 5 ? NAN : v)
                   : way == 6 ? (i % s.dim == 400 ? v
                                 : i % 5 == 0     ? NAN
                                                  : -sign * INFINITY)
                   : way == 7 ? -0.0f * (float)(i % 2) * v
                              : v;
        }
        for (uint32_t i = 0; k != NULL && i < RU_ARRAY_LEN(keeps); i++) {
            s.keep = keeps[i];
            check_top(k, &s, x, LINES);
        }
    }
}

static void running_sums(void **state)
{
    (void)state;
    static const int64_t inners[] = {1, 7, 64, WIDE};
    float *x = malloc(sizeof(float) * 2 * 9 * WIDE), *y = malloc(sizeof(float) * 2 * 9 * WIDE);
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (uint32_t c = 0; k != NULL && c < 16; c++) {
            ru_kern_scan s = {.dim = 9,
                              .inner = inners[c / 4],
                              .exclusive = c % 2 == 1,
                              .reverse = c / 2 % 2 == 1};
            numbers(x, 2 * s.dim * s.inner, c);
            k->cumsum(&s, x, y, 0, 2);
            for (int64_t o = 0; o < 2 * s.inner; o++) {
                int64_t at = o / s.inner * s.dim * s.inner + o % s.inner;
                float sum = 0.0f;
                for (int64_t i = 0; i < s.dim; i++) {
                    int64_t p = at + (s.reverse ? s.dim - 1 - i : i) * s.inner;
                    float after = sum + x[p];
                    assert_true(y[p] == (s.exclusive ? sum : after));
                    sum = after;
                }
            }
        }
    }
    free(x);
    free(y);
}

/* Two factors that one lane takes are beyond a float; two others bring the
 * product back. */
static void products_come_back(void **state)
{
    (void)state;
    float x[128];
    for (int i = 0; i < 128; i++) {
        x[i] = i % 64 == 3 ? 1e30f : i % 64 == 10 ? 1e-30f : 1.0f;
    }
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        if (k != NULL) {
            float y = k->reduce(RU_KERN_RED_PROD, RU_F32, x, 128, 1, 0);
            assert_true(fabsf(y - 1.0f) < 1e-6f);
        }
    }
}

/* Every size around a tile, whole matrices and cut ones; what is beside the
 * result stays. */
static void matrices_are_turned(void **state)
{
    (void)state;
    enum { MOST = 35, LD = 41, APART = 1024 };
    static uint8_t x[(MOST + 64) * LD * 8], y[MOST * APART];
    for (int64_t i = 0; i < (int64_t)sizeof x; i++) {
        x[i] = (uint8_t)((uint64_t)i * 0x9e3779b97f4a7c15u >> 56);
    }
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        for (int64_t c = 0; k != NULL && c < 4 * MOST * MOST * 4; c++) {
            int64_t bytes = 1 << c % 4, rows = 1 + c / 4 % MOST, cols = 1 + c / 4 / MOST % MOST;
            int64_t way = c / 4 / MOST / MOST;
            int64_t ldx = way % 2 == 0 ? cols : LD, ldy = way < 2 ? LD : rows;
            if (way == 3 && (rows % 7 != 0 || cols % 5 != 0)) {
                continue;
            }
            if (way == 3) { /* lines of the result that share places of the cache */
                rows += 64;
                ldy = APART / bytes;
            }
            memset(y, 0xa5, sizeof y);
            k->transpose(bytes, x, ldx, y, ldy, rows, cols);
            for (int64_t j = 0; j < cols; j++) {
                for (int64_t i = 0; i < ldy; i++) {
                    static const uint8_t none[8] = {0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5};
                    const uint8_t *want = i < rows ? x + (i * ldx + j) * bytes : none;
                    assert_memory_equal(y + (j * ldy + i) * bytes, want, (size_t)bytes);
                }
            }
        }
    }
}

/* Every byte at every place of a vector and of what is left behind vectors;
 * nothing behind it is written. */
static void bytes_are_looked_up(void **state)
{
    (void)state;
    enum { MOST = 150 };
    uint8_t table[256], x[MOST], y[MOST + 1];
    for (int i = 0; i < 256; i++) {
        table[i] = (uint8_t)(i * 167 + 29); /* 167 is odd: all differ */
    }
    for (int level = 0; level < RU_KERN_LEVELS; level++) {
        const ru_kern_numbers *k = ru_kern_numbers_at((ru_kern_level)level);
        for (int c = 0; k != NULL && c < (MOST + 1) * 256; c++) {
            const int n = c / 256;
            for (int i = 0; i < n; i++) {
                x[i] = (uint8_t)(c + i);
            }
            memset(y, 0xa5, sizeof y);
            k->look_up(table, x, y, n);
            for (int i = 0; i <= MOST; i++) {
                assert_int_equal(y[i], i < n ? table[x[i]] : 0xa5);
            }
            k->look_up(table, x, x, n);
            assert_memory_equal(x, y, (size_t)n);
        }
    }
}

enum {
    POOL_WIDTH = 75,
    POOL_LINE = 128,
    POOL_LINES = 4,
    POOL_ROWS = POOL_LINES - 1 + 6, /* each line joins at most six rows */
    POOL_ALL = POOL_WIDTH * POOL_ROWS,
    POOL_END = 5
};

/* Case c of rows of pools: x ends where the last row does. */
static void pool_case_of(int64_t c, ru_kern_pool *p, ru_kern_pool_from *from, int64_t *n_from,
                         const float *x)
{
    const int64_t width = 1 + c % POOL_WIDTH, taps = 1 + c % 7, dilation = 1 + c % 2;
    *p = (ru_kern_pool){.t = RU_F32,
                        .max = c % 3 != 0,
                        .stride = 1 + c / 3 % 3,
                        .taps = taps,
                        .dilation = dilation,
                        .row_step = width,
                        .before = c % 4,
                        .width = width,
                        .after = c % 5,
                        .line = POOL_LINE,
                        .end = x + POOL_ALL};
    *n_from = 1 + c % POOL_LINES;
    for (int64_t r = 0; r < *n_from; r++) {
        const int64_t rows = 1 + (c + r) % 6;
        from[r] = (ru_kern_pool_from){
            .x = x + POOL_ALL - (*n_from - r - 1 + rows) * width, .planes = 1, .rows = rows};
    }
}

/* Result o of one row, by its definition. */
static float pooled(const ru_kern_pool *p, const ru_kern_pool_from *f, int64_t o)
{
    float y = p->max ? -INFINITY : 0.0f;
    for (int64_t k = 0; k < p->taps * f->rows; k++) {
        int64_t i = o * p->stride + k % p->taps * p->dilation - p->before;
        if (i >= 0 && i < p->width) {
            float v = ((const float *)f->x)[k / p->taps * p->row_step + i];
            y = p->max ? joined(RU_KERN_RED_MAX, y, v) : y + v;
        }
    }
    return y;
}

/* Rows that end in any place of a vector, on every set; nothing is written
 * behind the last one. */
static void rows_of_pools_on_every_set(void **state)
{
    (void)state;
    float *x = malloc(sizeof(float) * POOL_ALL), y[POOL_LINES * POOL_LINE + POOL_END];
    double lines[POOL_LINES * POOL_LINE + POOL_LINE];
    numbers(x, POOL_ALL, 3);
    for (int64_t c = 0; c < RU_KERN_LEVELS * POOL_WIDTH * 84; c++) {
        const ru_kern *k = ru_kern_at((ru_kern_level)(c % RU_KERN_LEVELS));
        ru_kern_pool p;
        ru_kern_pool_from from[POOL_LINES];
        int64_t n_from, at = (c * 7919) % (POOL_ALL);
        pool_case_of(c / RU_KERN_LEVELS, &p, from, &n_from, x);
        int64_t all = p.before + p.width + p.after, reach = (p.taps - 1) * p.dilation + 1;
        if (k == NULL || all < reach) {
            continue;
        }
        const int64_t n = p.y_step = (all - reach) / p.stride + 1;
        const float kept = x[at];
        x[at] = c % 5 == 0 ? NAN : kept;
        memset(y, 0x55, sizeof y);
        k->pool_rows(&p, from, n_from, lines, y, n);
        for (int64_t i = 0; i < n_from * n; i++) {
            float want = pooled(&p, &from[i / n], i % n);
            if (isnan(want) ? !isnan(y[i]) : y[i] != want) {
                fail_msg("case %lld: result %lld of %lld is %g, expected %g", (long long)c,
                         (long long)(i % n), (long long)n, (double)y[i], (double)want);
            }
        }
        for (int64_t i = n_from * n; i < n_from * n + POOL_END; i++) {
            assert_int_equal(((uint8_t *)y)[i * 4], 0x55);
        }
        x[at] = kept;
    }
    free(x);
}

RU_TESTS(exec_line, cmocka_unit_test(bytes_are_looked_up), cmocka_unit_test(matrices_are_turned),
         cmocka_unit_test(products_come_back), cmocka_unit_test(short_rows_are_reduced),
         cmocka_unit_test(softmax_of_every_length), cmocka_unit_test(places_of_the_largest),
         cmocka_unit_test(places_of_every_type), cmocka_unit_test(largest_are_in_order),
         cmocka_unit_test(running_sums), cmocka_unit_test(rows_of_doubles_are_reduced),
         cmocka_unit_test(few_of_long_lines), cmocka_unit_test(columns_are_added_row_by_row),
         cmocka_unit_test(rows_of_pools_on_every_set))
