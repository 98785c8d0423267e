/* Times of ops by kind: least squares, trees on the rest, intervals. See timing.h. */
#include "cost/step/timing.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cost/math/lsq.h"
#include "cost/math/quantile.h"
#include "cost/math/trees.h"

/* Columns of a row. */
enum { COUNT, IN, OUT, PARAM, HOST, FLOPS, TILE_OUT, TILE_IN, SPREAD, IN_SQUARED };
enum { OURS = IN_SQUARED };

/* Times below count as this one in the weights: what a launch of a kernel costs, and a clock's
 * resolution, make shorter ones no better known. */
#define SHORTEST_S 1e-4
/* Residuals of ops that take almost nothing say nothing about the model. */
#define LOG_MOST 3.0

enum { ROUNDS = 150, DEPTH = 4, LEAF_WEIGHT = 5 };

static double up_to(double v, double tile)
{
    return tile * ceil(v / tile) / v;
}

void ru_timing_add(const ru_timing_op *op, double count, double *x)
{
    double taps = op->taps > 0 ? op->taps : 1;
    bool product = op->channels_in > 0 && op->channels_out > 0;
    x[COUNT] += count;
    x[IN] += count * op->in_bytes;
    x[OUT] += count * op->out_bytes;
    x[PARAM] += count * op->param_bytes;
    x[HOST] += count * op->host_bytes;
    x[FLOPS] += count * op->flops;
    if (product) {
        double in = op->channels_in, out = op->channels_out;
        x[TILE_OUT] += count * op->flops * up_to(in, 16) * up_to(out, 64);
        x[TILE_IN] += count * op->flops * up_to(in, 64) * up_to(out, 32);
        x[SPREAD] += count * op->in_bytes * sqrt(taps);
    }
    x[IN_SQUARED] += count * op->in_bytes * op->in_bytes;
}

static double log_of(double v)
{
    return ru_math_log(1 + v);
}

/* What tells ops of one kind apart, per op: sizes, work for each byte, how full the tiles are. */
static void traits_of(const ru_timing_row *row, float *t)
{
    const double *x = row->x;
    double n = x[COUNT] > 0 ? x[COUNT] : 1;
    double in = x[IN] / n, out = x[OUT] / n, param = x[PARAM] / n, flops = x[FLOPS] / n;
    t[0] = (float)log_of(in);
    t[1] = (float)log_of(out);
    t[2] = (float)log_of(param);
    t[3] = (float)log_of(flops);
    t[4] = t[3] - (float)log_of(in + out + param);
    t[5] = t[0] - t[1];
    t[6] = (float)log_of(x[TILE_OUT] / n) - t[3];
    t[7] = (float)log_of(x[TILE_IN] / n) - t[3];
    t[8] = (float)log_of(x[SPREAD] / n) - t[0];
    t[9] = t[3] - t[1];
    t[10] = (float)row->kind;
}

static double weight_of(const ru_timing_row *row)
{
    return 1 / fmax(row->seconds, SHORTEST_S);
}

/* Rows that a model is fitted to, and the columns that it has. */
typedef struct sample {
    const ru_timing_row *const *row; /* [n] */
    uint32_t n;
    const uint8_t *column; /* [n_columns] */
    uint32_t n_columns;
} sample;

/* theta >= 0 over the sample's columns, each scaled to at most 1. */
static ru_status squares(const sample *s, ru_arena *scratch, double *theta, double *left,
                         ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    uint32_t k = s->n_columns;
    double *a = RU_NEW(scratch, double, (int64_t)s->n *k), *b = RU_NEW(scratch, double, s->n);
    double *w = RU_NEW(scratch, double, s->n), scale[RU_TIMING_COLUMNS] = {0};
    if (a == NULL || b == NULL || w == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u timings", s->n);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        for (uint32_t c = 0; c < k; c++) {
            scale[c] = fmax(scale[c], s->row[i]->x[s->column[c]]);
        }
    }
    for (uint32_t i = 0; i < s->n; i++) {
        for (uint32_t c = 0; c < k; c++) {
            double v = s->row[i]->x[s->column[c]];
            a[(size_t)i * k + c] = scale[c] > 0 ? v / scale[c] : 0;
        }
        b[i] = s->row[i]->seconds;
        w[i] = weight_of(s->row[i]);
    }
    const ru_lsq_in in = {
        .a = a, .b = b, .weight = w, .m = s->n, .n = k, .ridge = 1e-12, .nonneg = true};
    ru_lsq_fit fit;
    RU_TRY(ru_lsq_solve(&in, scratch, scratch, &fit, err));
    memset(theta, 0, RU_TIMING_COLUMNS * sizeof *theta);
    for (uint32_t c = 0; c < k; c++) {
        theta[s->column[c]] = scale[c] > 0 ? fit.x[c] / scale[c] : 0;
    }
    if (left != NULL) {
        *left = fit.squares;
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

static ru_status median(const sample *s, ru_arena *scratch, double *theta, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    double *v = RU_NEW(scratch, double, s->n + 1);
    if (v == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u timings", s->n);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        v[i] = s->row[i]->seconds / fmax(s->row[i]->x[COUNT], 1);
    }
    memset(theta, 0, RU_TIMING_COLUMNS * sizeof *theta);
    if (s->n > 0) {
        RU_TRY(ru_quantile(v, s->n, 0.5, RU_QUANTILE_LINEAR, scratch, &theta[COUNT], err));
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

/* Input size; its square stays when the residual falls by more than one more column explains. */
static ru_status ceer(const sample *s, bool heavy, ru_arena *scratch, double *theta, ru_err *err)
{
    static const uint8_t line[] = {COUNT, IN}, curve[] = {COUNT, IN, IN_SQUARED};
    if (!heavy || s->n < RU_TIMING_ROWS_MIN) {
        return median(s, scratch, theta, err);
    }
    double straight[RU_TIMING_COLUMNS], bent[RU_TIMING_COLUMNS], left_2, left_3;
    const sample two = {s->row, s->n, line, 2}, three = {s->row, s->n, curve, 3};
    RU_TRY(squares(&two, scratch, straight, &left_2, err));
    RU_TRY(squares(&three, scratch, bent, &left_3, err));
    bool square = left_3 / (s->n - 3) < left_2 / (s->n - 2);
    memcpy(theta, square ? bent : straight, RU_TIMING_COLUMNS * sizeof *theta);
    return RU_OK;
}

static ru_status fit_kind(const ru_timing_in *in, uint32_t kind, const sample *s, ru_arena *scratch,
                          double *theta, ru_err *err)
{
    static const uint8_t ours[] = {COUNT, IN, OUT, PARAM, HOST, FLOPS, TILE_OUT, TILE_IN, SPREAD};
    static const uint8_t speeds[] = {IN, OUT, PARAM, FLOPS};
    sample t = {s->row, s->n, ours, OURS};
    switch (in->method) {
    case RU_TIMING_MEDIAN:
        return median(s, scratch, theta, err);
    case RU_TIMING_CEER:
        return ceer(s, in->heavy != NULL && in->heavy[kind], scratch, theta, err);
    case RU_TIMING_PALEO:
        t.column = speeds;
        t.n_columns = RU_ARRAY_LEN(speeds);
        return squares(&t, scratch, theta, NULL, err);
    case RU_TIMING_TREES:
    case RU_TIMING_SQUARES:
        break;
    }
    return s->n < RU_TIMING_ROWS_MIN ? median(s, scratch, theta, err)
                                     : squares(&t, scratch, theta, NULL, err);
}

/* The part of a name before its last slash; 0: none. */
static size_t parent_of(const char *name, size_t n)
{
    while (n > 0 && name[n - 1] != '/') {
        n--;
    }
    return n > 0 ? n - 1 : 0;
}

static bool under(const char *name, const char *word, size_t n)
{
    return n == 0 || (strncmp(name, word, n) == 0 && (name[n] == '\0' || name[n] == '/'));
}

/* The rows of `kind`, of its parent when they are few, at last all. */
static uint32_t rows_of(const ru_timing_in *in, uint32_t kind, const ru_timing_row **row)
{
    const char *word = in->kinds[kind];
    size_t n = in->method == RU_TIMING_PALEO ? 0 : strlen(word);
    for (;; n = parent_of(word, n)) {
        uint32_t found = 0;
        for (uint32_t i = 0; i < in->n; i++) {
            if (under(in->kinds[in->rows[i].kind], word, n)) {
                row[found++] = &in->rows[i];
            }
        }
        if (found >= RU_TIMING_ROWS_MIN || n == 0) {
            return found;
        }
    }
}

static ru_status check(const ru_timing_in *in, ru_err *err)
{
    if (in->n_kinds < 1 || in->n_kinds > RU_TIMING_KINDS_MAX || in->n > RU_TIMING_ROWS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "%u timings of %u kinds, at most %d of 1 to %d", in->n,
                       in->n_kinds, RU_TIMING_ROWS_MAX, RU_TIMING_KINDS_MAX);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_timing_row *row = &in->rows[i];
        if (row->kind >= in->n_kinds || !(row->seconds >= 0 && row->seconds <= 1e9)) {
            return RU_FAIL(err, RU_E_ARG, "timing %u is of kind %u (of %u) and takes %g s", i,
                           row->kind, in->n_kinds, row->seconds);
        }
        for (uint32_t c = 0; c < RU_TIMING_COLUMNS; c++) {
            if (!(row->x[c] >= 0 && row->x[c] <= 1e40)) {
                return RU_FAIL(err, RU_E_ARG, "timing %u has %g in column %u, expected 0 to 1e40",
                               i, row->x[c], c);
            }
        }
    }
    return RU_OK;
}

static double line_at(const ru_timing_model *m, const ru_timing_row *row)
{
    double sum = 0;
    for (uint32_t c = 0; c < RU_TIMING_COLUMNS; c++) {
        sum += m->theta[(size_t)row->kind * RU_TIMING_COLUMNS + c] * row->x[c];
    }
    return sum;
}

static ru_status boost(const ru_timing_in *in, ru_arena *out, ru_arena *scratch, ru_timing_model *m,
                       ru_err *err)
{
    if (in->solver == NULL || in->solver->trees == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "trees need the library XGBoost; the method 'squares' does without");
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    float *x = RU_NEW(scratch, float, (int64_t)in->n *RU_TIMING_TRAITS + 1);
    float *y = RU_NEW(scratch, float, in->n + 1);
    if (x == NULL || y == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u timings", in->n);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        double line = line_at(m, &in->rows[i]), t = in->rows[i].seconds;
        if (line > 0 && t > 1e-6) {
            traits_of(&in->rows[i], x + (size_t)n * RU_TIMING_TRAITS);
            y[n++] = (float)fmin(fmax(ru_math_log(t / line), -LOG_MOST), LOG_MOST);
        }
    }
    if (n >= RU_TIMING_ROWS_MIN) {
        const ru_trees_in t = {.x = x,
                               .y = y,
                               .m = n,
                               .n = RU_TIMING_TRAITS,
                               .goal = RU_TREES_SQUARED,
                               .rounds = ROUNDS,
                               .depth = DEPTH,
                               .leaf_weight_min = LEAF_WEIGHT,
                               .seed = in->seed};
        RU_TRY(in->solver->trees(&t, out, &m->trees, err));
        m->has_trees = true;
    }
    if (out != scratch) {
        ru_arena_rewind(scratch, mark);
    }
    return RU_OK;
}

ru_status ru_timing_fit(const ru_timing_in *in, ru_arena *out, ru_arena *scratch,
                        ru_timing_model *m, ru_err *err)
{
    RU_TRY(check(in, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    double *theta = RU_NEW(out, double, (int64_t)in->n_kinds *RU_TIMING_COLUMNS);
    const ru_timing_row **row = RU_NEW(scratch, const ru_timing_row *, in->n + 1);
    if (theta == NULL || row == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u timings", in->n);
    }
    ru_timing_model model = {.n_kinds = in->n_kinds, .theta = theta};
    for (uint32_t k = 0; k < in->n_kinds; k++) {
        const sample s = {.row = row, .n = rows_of(in, k, row)};
        RU_TRY(fit_kind(in, k, &s, scratch, theta + (size_t)k * RU_TIMING_COLUMNS, err));
    }
    if (in->method == RU_TIMING_TREES) {
        RU_TRY(boost(in, out, scratch, &model, err));
    }
    if (out != scratch) {
        ru_arena_rewind(scratch, mark);
    }
    *m = model;
    return RU_OK;
}

double ru_timing_at(const ru_timing_model *m, const ru_timing_row *row)
{
    RU_CHECK(row->kind < m->n_kinds);
    double line = line_at(m, row);
    if (!m->has_trees || line <= 0) {
        return line;
    }
    float traits[RU_TIMING_TRAITS];
    traits_of(row, traits);
    double log = (double)ru_trees_value(&m->trees, traits);
    return line * ru_math_exp(fmin(fmax(log, -LOG_MOST), LOG_MOST));
}

double ru_timing_scaled(const double *x, double seconds, double bytes_per_s_from,
                        double flops_per_s_from, double bytes_per_s_to, double flops_per_s_to)
{
    double bytes = x[IN] + x[OUT] + x[PARAM];
    double intensity = bytes > 0 ? x[FLOPS] / bytes : 1e30;
    double ridge = flops_per_s_to / bytes_per_s_to;
    double gamma = intensity <= ridge ? 1 - 0.5 * intensity / ridge : 0.5 * ridge / intensity;
    return seconds * ru_math_pow(bytes_per_s_from / bytes_per_s_to, gamma) *
           ru_math_pow(flops_per_s_from / flops_per_s_to, 1 - gamma);
}
