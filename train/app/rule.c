#include "train/app/rule.h"

#include <math.h>

#include "env/fault.h"

/* adam-2014: the paper's constants. */
static const float BETA1 = 0.9F, BETA2 = 0.999F, EPSILON = 1e-8F;

uint32_t ru_rule_extra(const ru_app_table *table)
{
    switch ((ru_app_rule)table->rule) {
    case RU_APP_ADD:
    case RU_APP_STEP:
        return 0;
    case RU_APP_ADAGRAD:
        return table->width;
    case RU_APP_ADAREVISION:
        return 4 * table->width + 1;
    case RU_APP_ADAM:
        return 2 * table->width + 1;
    case RU_APP_USER:
        return table->extra;
    }
    return 0;
}

typedef void add_fn(float *x, const float *g, uint32_t n, float by);
add_fn rui_rule_add_base;
#ifdef RU_KERN_X86
add_fn rui_rule_add_avx2, rui_rule_add_avx512;
#endif

/* x[n] += by * g[n] */
static void add(float *x, const float *g, uint32_t n, float by)
{
    add_fn *fn = rui_rule_add_base;
#ifdef RU_KERN_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
        fn = rui_rule_add_avx512;
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        fn = rui_rule_add_avx2;
    }
#endif
    fn(x, g, n, by);
}

static void adagrad(const ru_app_table *t, float *x, float *sum, const float *g)
{
    float lr = (float)t->lr;
    for (uint32_t i = 0; i < t->width; i++) {
        sum[i] += g[i] * g[i];
        x[i] -= lr * g[i] / sqrtf(sum[i] + 1.0F);
    }
}

/* extra: sum of gradients, that sum when the clock began, z, largest z; then the clock + 1. `back`
 * is what other executors have added since the values were read on which g was computed. */
static void adarevision(const ru_app_table *t, uint32_t clock, float *x, float *extra,
                        const float *g)
{
    uint32_t n = t->width;
    float *sum = extra, *old = extra + n, *z = extra + 2 * n, *most = extra + 3 * n;
    float lr = (float)t->lr, stamp = (float)(clock % (1U << 24)) + 1.0F;
    bool begins = extra[4 * n] != stamp;
    extra[4 * n] = stamp;
    for (uint32_t i = 0; i < n; i++) {
        old[i] = begins ? sum[i] : old[i];
        float back = sum[i] - old[i];
        float before = lr / sqrtf(most[i] + 1.0F);
        z[i] += g[i] * g[i] + 2.0F * g[i] * back;
        most[i] = z[i] > most[i] ? z[i] : most[i];
        float after = lr / sqrtf(most[i] + 1.0F);
        x[i] -= after * g[i] + (after - before) * back;
        sum[i] += g[i];
    }
}

static void adam(const ru_app_table *t, float *x, float *extra, const float *g)
{
    uint32_t n = t->width;
    float *m = extra, *v = extra + n, lr = (float)t->lr, step = extra[2 * n] + 1.0F;
    float left1 = 1.0F - powf(BETA1, step), left2 = 1.0F - powf(BETA2, step);
    extra[2 * n] = step;
    for (uint32_t i = 0; i < n; i++) {
        m[i] = BETA1 * m[i] + (1.0F - BETA1) * g[i];
        v[i] = BETA2 * v[i] + (1.0F - BETA2) * g[i] * g[i];
        x[i] -= lr * (m[i] / left1) / (sqrtf(v[i] / left2) + EPSILON);
    }
}

void ru_rule_merge(const ru_app_ops *ops, const void *self, const ru_app_table *table, uint32_t n,
                   uint32_t clock, float *value, float *extra, const float *update)
{
    float lr = (float)table->lr;
    switch ((ru_app_rule)table->rule) {
    case RU_APP_ADD:
        add(value, update, table->width, 1.0F);
        break;
    case RU_APP_STEP:
        add(value, update, table->width, -lr);
        break;
    case RU_APP_ADAGRAD:
        adagrad(table, value, extra, update);
        break;
    case RU_APP_ADAREVISION:
        adarevision(table, clock, value, extra, update);
        break;
    case RU_APP_ADAM:
        adam(table, value, extra, update);
        break;
    case RU_APP_USER:
        ru_fault_enter("merge", RU_FAULT_NONE, clock);
        ops->merge(self, n, value, extra, update);
        ru_fault_leave();
        break;
    }
}
