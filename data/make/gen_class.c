/* Generators with labels: gaussian mixtures, a teacher net, clicks of a logistic model. */
#include "data/make/gen.h"

#include <math.h>
#include <string.h>

/* -- gaussian: equal balls around orthogonal means, so that the Bayes error is an integral ----- */

enum { REFLECTIONS = 3 };
static const double mean_length = 3.0;

/* Means are mean_length * e_k, the whole space turned by a few Householder reflections. */
typedef struct gaussian_self {
    double *mirror; /* [REFLECTIONS, features] unit vectors */
} gaussian_self;

static ru_status gaussian_setup(rui_gen_params *p, ru_arena *arena, void **self, ru_err *err)
{
    p->classes = p->classes > 0 ? p->classes : 4;
    p->features = p->features > 0 ? p->features : p->classes > 16 ? p->classes : 16;
    p->noise = p->noise >= 0.0 ? p->noise : 1.0;
    RU_TRY(rui_gen_range("gaussian", "classes", p->classes, 2, 10000, err));
    RU_TRY(rui_gen_range("gaussian", "features (at least as many as classes)", p->features,
                         p->classes, 1 << 20, err));
    gaussian_self *g = *self = RU_NEW(arena, gaussian_self, 1);
    double *m = RU_NEW(arena, double, REFLECTIONS * p->features);
    if (g == NULL || m == NULL) {
        return rui_no_memory(err, "gaussian", REFLECTIONS * p->features * 8);
    }
    ru_rng r = rui_gen_rng(p, "gaussian mirrors", 0);
    for (int64_t k = 0; k < REFLECTIONS; k++) {
        double *row = m + k * p->features, sum = 0.0;
        for (int64_t i = 0; i < p->features; i++) {
            row[i] = ru_rng_normal(&r);
            sum += row[i] * row[i];
        }
        for (int64_t i = 0; i < p->features; i++) {
            row[i] /= sqrt(sum);
        }
    }
    g->mirror = m;
    return RU_OK;
}

static void class_fields(const rui_gen_params *p, ru_dataset *d)
{
    d->classes = p->classes;
    rui_field_add(d, "x", RU_F32, 1, &p->features);
    rui_field_add_class(d);
}

static void gaussian_draw(const rui_gen_params *p, const void *self, const ru_dataset *d,
                          int64_t index, void *const *fields)
{
    const gaussian_self *g = self;
    ru_rng r = rui_gen_rng(p, "gaussian", index);
    float *x = fields[0];
    int64_t label = ru_rng_below(&r, (uint32_t)p->classes);
    for (int64_t i = 0; i < p->features; i++) {
        x[i] = (float)(p->noise * ru_rng_normal(&r) + (i == label ? mean_length : 0.0));
    }
    for (int64_t k = 0; k < REFLECTIONS; k++) {
        const double *v = g->mirror + k * p->features;
        double dot = 0.0;
        for (int64_t i = 0; i < p->features; i++) {
            dot += v[i] * (double)x[i];
        }
        for (int64_t i = 0; i < p->features; i++) {
            x[i] -= (float)(2.0 * dot * v[i]);
        }
    }
    rui_class_put(d, label, fields[1]);
}

/* P(right) = integral of phi(t) Phi(t + distance)^(classes-1) dt, by Simpson's rule. */
static double gaussian_accuracy(int64_t classes, double distance)
{
    const int64_t steps = 8000;
    const double from = -12.0, width = 24.0 / (double)steps;
    double sum = 0.0;
    for (int64_t i = 0; i <= steps; i++) {
        double t = from + width * (double)i;
        double phi = exp(-0.5 * t * t) / sqrt(2.0 * 3.14159265358979323846);
        double below = 0.5 * erfc(-(t + distance) / sqrt(2.0));
        double weight = i == 0 || i == steps ? 1.0 : i % 2 == 1 ? 4.0 : 2.0;
        sum += weight * phi * pow(below, (double)(classes - 1));
    }
    return sum * width / 3.0;
}

static void gaussian_truth(const rui_gen_params *p, const void *self, int64_t count,
                           int64_t test_count, ru_text *out)
{
    (void)self;
    (void)count;
    (void)test_count;
    ru_text_putf(out, ",\n  \"classes\": %lld,\n  \"features\": %lld,\n  \"noise\": ",
                 (long long)p->classes, (long long)p->features);
    ru_text_f64(out, p->noise);
    ru_text_put(out, ",\n  \"bayes_accuracy\": ");
    ru_text_f64(out, p->noise > 0.0 ? gaussian_accuracy(p->classes, mean_length / p->noise) : 1.0);
}

const rui_gen rui_gen_gaussian = {
    .name = "gaussian",
    .help = "mixture of normal distributions with a known best accuracy (CSV)",
    .file_format = "csv",
    .count = 10000,
    .test_count = 10000,
    .setup = gaussian_setup,
    .fields = class_fields,
    .draw = gaussian_draw,
    .truth = gaussian_truth,
};

/* -- teacher: y = net(x) + noise --------------------------------------------------------------- */

typedef struct teacher_self {
    double *w; /* [hidden, features] */
    double *v; /* [hidden] */
} teacher_self;

static ru_status teacher_setup(rui_gen_params *p, ru_arena *arena, void **self, ru_err *err)
{
    p->features = p->features > 0 ? p->features : 16;
    p->hidden = p->hidden > 0 ? p->hidden : 8;
    p->noise = p->noise >= 0.0 ? p->noise : 0.1;
    RU_TRY(rui_gen_range("teacher", "features", p->features, 1, 1 << 16, err));
    RU_TRY(rui_gen_range("teacher", "hidden", p->hidden, 1, 1 << 12, err));
    teacher_self *t = *self = RU_NEW(arena, teacher_self, 1);
    double *w = RU_NEW(arena, double, (p->features + 1) * p->hidden);
    if (t == NULL || w == NULL) {
        return rui_no_memory(err, "teacher", (p->features + 1) * p->hidden * 8);
    }
    *t = (teacher_self){w, w + p->hidden * p->features};
    ru_rng r = rui_gen_rng(p, "teacher net", 0);
    for (int64_t i = 0; i < p->hidden * p->features; i++) {
        w[i] = ru_rng_normal(&r) * 1.5 / sqrt((double)p->features);
    }
    for (int64_t i = 0; i < p->hidden; i++) {
        t->v[i] = ru_rng_normal(&r) / sqrt((double)p->hidden);
    }
    return RU_OK;
}

static void teacher_fields(const rui_gen_params *p, ru_dataset *d)
{
    rui_field_add(d, "x", RU_F32, 1, &p->features);
    rui_field_add(d, "y", RU_F32, 0, NULL);
}

static double tanh_of(double x)
{
    x = x > 20.0 ? 20.0 : x < -20.0 ? -20.0 : x;
    double e = ru_math_exp(2.0 * x);
    return (e - 1.0) / (e + 1.0);
}

static double teacher_answer(const rui_gen_params *p, const teacher_self *t, const float *x)
{
    double y = 0.0;
    for (int64_t h = 0; h < p->hidden; h++) {
        double sum = 0.0;
        for (int64_t i = 0; i < p->features; i++) {
            sum += t->w[h * p->features + i] * (double)x[i];
        }
        y += t->v[h] * tanh_of(sum);
    }
    return y;
}

static void teacher_draw(const rui_gen_params *p, const void *self, const ru_dataset *d,
                         int64_t index, void *const *fields)
{
    (void)d;
    ru_rng r = rui_gen_rng(p, "teacher", index);
    float *x = fields[0], y;
    for (int64_t i = 0; i < p->features; i++) {
        x[i] = (float)ru_rng_normal(&r);
    }
    y = (float)(teacher_answer(p, self, x) + p->noise * ru_rng_normal(&r));
    memcpy(fields[1], &y, sizeof y);
}

static void teacher_truth(const rui_gen_params *p, const void *self, int64_t count,
                          int64_t test_count, ru_text *out)
{
    (void)self;
    (void)count;
    (void)test_count;
    ru_text_putf(out, ",\n  \"features\": %lld,\n  \"hidden\": %lld,\n  \"noise\": ",
                 (long long)p->features, (long long)p->hidden);
    ru_text_f64(out, p->noise);
    ru_text_put(out, ",\n  \"mse_floor\": ");
    ru_text_f64(out, p->noise * p->noise);
}

const rui_gen rui_gen_teacher = {
    .name = "teacher",
    .help = "regression on the outputs of a hidden two-layer network plus noise (npy files)",
    .file_format = "npy",
    .count = 10000,
    .test_count = 2000,
    .setup = teacher_setup,
    .fields = teacher_fields,
    .draw = teacher_draw,
    .truth = teacher_truth,
};

/* -- clicks: categories in columns, a sparse logistic model ------------------------------------ */

enum { CLICK_COLUMNS = 12 };

typedef struct clicks_self {
    double *w; /* [features] */
    double bias;
} clicks_self;

static ru_status clicks_setup(rui_gen_params *p, ru_arena *arena, void **self, ru_err *err)
{
    p->features = p->features > 0 ? p->features : 6000;
    p->noise = p->noise >= 0.0 ? p->noise : 1.0;
    p->classes = 2;
    RU_TRY(rui_gen_range("clicks", "features", p->features, CLICK_COLUMNS, 1 << 24, err));
    clicks_self *c = *self = RU_NEW(arena, clicks_self, 1);
    double *w = RU_NEW(arena, double, p->features);
    if (c == NULL || w == NULL) {
        return rui_no_memory(err, "clicks", p->features * 8);
    }
    *c = (clicks_self){w, -1.5};
    ru_rng r = rui_gen_rng(p, "clicks model", 0);
    for (int64_t i = 0; i < p->features; i++) {
        w[i] = ru_rng_normal(&r) * 0.8;
    }
    return RU_OK;
}

static double logistic(double z)
{
    z = z > 40.0 ? 40.0 : z < -40.0 ? -40.0 : z;
    return 1.0 / (1.0 + ru_math_exp(-z));
}

/* Which feature is on in each column, and the chance of a click. Popularity falls as 1/rank. */
static double clicks_chance(const rui_gen_params *p, const clicks_self *c, ru_rng *r,
                            int64_t on[CLICK_COLUMNS])
{
    double z = c->bias;
    for (int64_t k = 0; k < CLICK_COLUMNS; k++) {
        int64_t from = p->features * k / CLICK_COLUMNS, to = p->features * (k + 1) / CLICK_COLUMNS;
        on[k] = from + ru_rng_zipf(r, (uint32_t)(to - from), 1.0);
        z += c->w[on[k]];
    }
    return logistic(z);
}

static void clicks_sizes(const rui_gen_params *p, ru_text *out)
{
    ru_text_putf(out, "  features: %lld\n", (long long)p->features);
}

static void clicks_draw(const rui_gen_params *p, const void *self, const ru_dataset *d,
                        int64_t index, void *const *fields)
{
    ru_rng r = rui_gen_rng(p, "clicks", index);
    int64_t on[CLICK_COLUMNS];
    double chance = clicks_chance(p, self, &r, on);
    float *x = fields[0];
    memset(x, 0, (size_t)p->features * sizeof *x);
    for (int64_t k = 0; k < CLICK_COLUMNS; k++) {
        x[on[k]] = 1.0f;
    }
    rui_class_put(d, ru_rng_f64(&r) < chance, fields[1]);
}

static void clicks_truth(const rui_gen_params *p, const void *self, int64_t count,
                         int64_t test_count, ru_text *out)
{
    double loss = 0.0, right = 0.0, rate = 0.0;
    for (int64_t i = 0; i < test_count; i++) {
        ru_rng r = rui_gen_rng(p, "clicks", count + i);
        int64_t on[CLICK_COLUMNS];
        double q = clicks_chance(p, self, &r, on);
        loss -= q * log(q) + (1.0 - q) * log1p(-q);
        right += q > 0.5 ? q : 1.0 - q;
        rate += q;
    }
    double n = test_count > 0 ? (double)test_count : 1.0;
    ru_text_putf(out, ",\n  \"classes\": 2,\n  \"features\": %lld,\n  \"columns\": %d",
                 (long long)p->features, CLICK_COLUMNS);
    ru_text_put(out, ",\n  \"test_log_loss_of_truth\": ");
    ru_text_f64(out, loss / n);
    ru_text_put(out, ",\n  \"test_accuracy_of_truth\": ");
    ru_text_f64(out, right / n);
    ru_text_put(out, ",\n  \"test_click_rate\": ");
    ru_text_f64(out, rate / n);
}

const rui_gen rui_gen_clicks = {
    .name = "clicks",
    .help = "sparse click data of a hidden logistic model (libsvm files)",
    .file_format = "libsvm",
    .count = 50000,
    .test_count = 10000,
    .sizes = clicks_sizes,
    .setup = clicks_setup,
    .fields = class_fields,
    .draw = clicks_draw,
    .truth = clicks_truth,
};
