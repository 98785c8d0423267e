/* Optimizer updates, gradient norms, dropout. */
#include "exec/cpu/ref/ref_impl.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

/* -- norms ------------------------------------------------------------------------------ */

ru_status rui_ref_GlobalNorm(const ru_ref_call *c, ru_err *err)
{
    double sum = 0.0;
    for (uint32_t k = 0; k < c->node->n_in; k++) {
        double *g;
        RU_TRY(rui_ref_in(c, k, &g, err));
        int64_t n = g != NULL ? rui_ref_count(&c->in[k].type) : 0;
        for (int64_t i = 0; i < n; i++) {
            sum += g[i] * g[i];
        }
    }
    sum = sqrt(sum);
    rui_ref_store(&c->out[0], &sum);
    return RU_OK;
}

ru_status rui_ref_ClipScale(const ru_ref_call *c, ru_err *err)
{
    double *norm, clip = ru_node_float(c->node, RU_ATTR_clip, 1.0);
    RU_TRY(rui_ref_in(c, 0, &norm, err));
    norm[0] = norm[0] > clip ? clip / norm[0] : 1.0;
    rui_ref_store(&c->out[0], norm);
    return RU_OK;
}

/* -- updates ---------------------------------------------------------------------------- */

/* What all updates begin with: lr, the scaled gradient with weight decay, the parameter. */
typedef struct update {
    double lr, decay;
    double *p, *g;
    int64_t n;
} update;

static ru_status update_load(const ru_ref_call *c, uint32_t k_p, bool decoupled, update *u,
                             ru_err *err)
{
    double *lr, *scale;
    RU_TRY(rui_ref_in(c, 0, &lr, err));
    RU_TRY(rui_ref_in(c, 1, &scale, err));
    RU_TRY(rui_ref_in(c, k_p, &u->p, err));
    RU_TRY(rui_ref_in(c, k_p + 1, &u->g, err));
    u->lr = lr[0];
    u->decay = ru_node_float(c->node, RU_ATTR_weight_decay, 0.0);
    u->n = rui_ref_count(&c->in[k_p].type);
    for (int64_t i = 0; i < u->n; i++) {
        u->g[i] *= scale != NULL ? scale[0] : 1.0;
        u->g[i] += decoupled ? 0.0 : u->decay * u->p[i];
    }
    return RU_OK;
}

static void store_states(const ru_ref_call *c, const double *p, const double *s, const double *s2)
{
    const double *all[] = {p, s, s2};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(all); k++) {
        if (rui_ref_has_out(c, k) && all[k] != NULL) {
            rui_ref_store(&c->out[k], all[k]);
        }
    }
}

/* (lr, gscale?, p, g, m?) -> p', m'. Source: PyTorch's torch.optim.SGD, dampening 0. */
ru_status rui_ref_SgdUpdate(const ru_ref_call *c, ru_err *err)
{
    update u;
    double *m;
    RU_TRY(update_load(c, 2, false, &u, err));
    RU_TRY(rui_ref_in(c, 4, &m, err));
    double momentum = ru_node_float(c->node, RU_ATTR_momentum, 0.0);
    bool nesterov = ru_node_int(c->node, RU_ATTR_nesterov, 0) != 0;
    for (int64_t i = 0; i < u.n; i++) {
        double step = u.g[i];
        if (m != NULL) {
            m[i] = momentum * m[i] + u.g[i];
            step = nesterov ? u.g[i] + momentum * m[i] : m[i];
        }
        u.p[i] -= u.lr * step;
    }
    store_states(c, u.p, m, NULL);
    return RU_OK;
}

/* (lr, gscale?, step, p, g, m, v) -> p', m', v'. Source: kingma-2015 (Adam), loshchilov-2019
 * (AdamW). */
ru_status rui_ref_AdamUpdate(const ru_ref_call *c, ru_err *err)
{
    update u;
    double *m, *v;
    int64_t *step;
    bool decoupled = ru_node_int(c->node, RU_ATTR_decoupled, 0) != 0;
    RU_TRY(update_load(c, 3, decoupled, &u, err));
    RU_TRY(rui_ref_in_ints(c, 2, &step, err));
    RU_TRY(rui_ref_in(c, 5, &m, err));
    RU_TRY(rui_ref_in(c, 6, &v, err));
    double beta1 = ru_node_float(c->node, RU_ATTR_beta1, 0.9);
    double beta2 = ru_node_float(c->node, RU_ATTR_beta2, 0.999);
    double eps = ru_node_float(c->node, RU_ATTR_epsilon, 1e-8);
    double bias1 = 1.0 - pow(beta1, (double)step[0]), bias2 = 1.0 - pow(beta2, (double)step[0]);
    for (int64_t i = 0; i < u.n; i++) {
        double p = decoupled ? u.p[i] * (1.0 - u.lr * u.decay) : u.p[i];
        m[i] = beta1 * m[i] + (1.0 - beta1) * u.g[i];
        v[i] = beta2 * v[i] + (1.0 - beta2) * u.g[i] * u.g[i];
        u.p[i] = p - u.lr / bias1 * m[i] / (sqrt(v[i] / bias2) + eps);
    }
    store_states(c, u.p, m, v);
    return RU_OK;
}

/* (lr, gscale?, p, g, s) -> p', s'. Source: duchi-2011; PyTorch's torch.optim.Adagrad, lr_decay 0.
 */
ru_status rui_ref_AdagradUpdate(const ru_ref_call *c, ru_err *err)
{
    update u;
    double *s;
    RU_TRY(update_load(c, 2, false, &u, err));
    RU_TRY(rui_ref_in(c, 4, &s, err));
    double eps = ru_node_float(c->node, RU_ATTR_epsilon, 1e-10);
    for (int64_t i = 0; i < u.n; i++) {
        s[i] += u.g[i] * u.g[i];
        u.p[i] -= u.lr * u.g[i] / (sqrt(s[i]) + eps);
    }
    store_states(c, u.p, s, NULL);
    return RU_OK;
}

/* (lr, gscale?, p, g, s, m?) -> p', s', m'. Source: PyTorch's torch.optim.RMSprop. */
ru_status rui_ref_RmspropUpdate(const ru_ref_call *c, ru_err *err)
{
    update u;
    double *s, *m;
    RU_TRY(update_load(c, 2, false, &u, err));
    RU_TRY(rui_ref_in(c, 4, &s, err));
    RU_TRY(rui_ref_in(c, 5, &m, err));
    double alpha = ru_node_float(c->node, RU_ATTR_alpha, 0.99);
    double eps = ru_node_float(c->node, RU_ATTR_epsilon, 1e-8);
    double momentum = ru_node_float(c->node, RU_ATTR_momentum, 0.0);
    for (int64_t i = 0; i < u.n; i++) {
        s[i] = alpha * s[i] + (1.0 - alpha) * u.g[i] * u.g[i];
        double step = u.g[i] / (sqrt(s[i]) + eps);
        if (m != NULL) {
            step = m[i] = momentum * m[i] + step;
        }
        u.p[i] -= u.lr * step;
    }
    store_states(c, u.p, s, m);
    return RU_OK;
}

/* (lr, gscale?, p, g, m) -> p', m'. Source: lion-2023 program 1. */
ru_status rui_ref_LionUpdate(const ru_ref_call *c, ru_err *err)
{
    update u;
    double *m;
    RU_TRY(update_load(c, 2, true, &u, err));
    RU_TRY(rui_ref_in(c, 4, &m, err));
    double beta1 = ru_node_float(c->node, RU_ATTR_beta1, 0.9);
    double beta2 = ru_node_float(c->node, RU_ATTR_beta2, 0.99);
    for (int64_t i = 0; i < u.n; i++) {
        double to = beta1 * m[i] + (1.0 - beta1) * u.g[i];
        double sign = to > 0 ? 1.0 : to < 0 ? -1.0 : 0.0;
        u.p[i] -= u.lr * (sign + u.decay * u.p[i]);
        m[i] = beta2 * m[i] + (1.0 - beta2) * u.g[i];
    }
    store_states(c, u.p, m, NULL);
    return RU_OK;
}

/* (lr, gscale?, step, p, g, m, v) -> p', m', v'. Source: lamb-2020 algorithm 2, phi the identity.
 */
ru_status rui_ref_LambUpdate(const ru_ref_call *c, ru_err *err)
{
    update u;
    double *m, *v, norm_p = 0.0, norm_r = 0.0;
    int64_t *step;
    RU_TRY(update_load(c, 3, true, &u, err));
    RU_TRY(rui_ref_in_ints(c, 2, &step, err));
    RU_TRY(rui_ref_in(c, 5, &m, err));
    RU_TRY(rui_ref_in(c, 6, &v, err));
    double beta1 = ru_node_float(c->node, RU_ATTR_beta1, 0.9);
    double beta2 = ru_node_float(c->node, RU_ATTR_beta2, 0.999);
    double eps = ru_node_float(c->node, RU_ATTR_epsilon, 1e-6);
    double bias1 = 1.0 - pow(beta1, (double)step[0]), bias2 = 1.0 - pow(beta2, (double)step[0]);
    for (int64_t i = 0; i < u.n; i++) {
        m[i] = beta1 * m[i] + (1.0 - beta1) * u.g[i];
        v[i] = beta2 * v[i] + (1.0 - beta2) * u.g[i] * u.g[i];
        u.g[i] = m[i] / bias1 / (sqrt(v[i] / bias2) + eps) + u.decay * u.p[i];
        norm_p += u.p[i] * u.p[i];
        norm_r += u.g[i] * u.g[i];
    }
    double trust = norm_p > 0 && norm_r > 0 ? sqrt(norm_p / norm_r) : 1.0;
    for (int64_t i = 0; i < u.n; i++) {
        u.p[i] -= u.lr * trust * u.g[i];
    }
    store_states(c, u.p, m, v);
    return RU_OK;
}

/* -- dropout ---------------------------------------------------------------------------- */

/* Place p of x is element `place % per` of sample `place / per` of the global batch (ops.def:
 * DropoutTrain). */
static int64_t place_in_batch(const ru_ref_call *c, int64_t n, int64_t p)
{
    const ru_type *t = &c->in[0].type;
    int64_t rows = t->rank > 0 ? t->dims[0] : 1;
    int64_t samples = ru_node_int(c->node, RU_ATTR_samples, rows);
    int64_t inner = ru_node_int(c->node, RU_ATTR_inner, rows > 0 ? n / rows : 0);
    if (inner == 0) {
        return p;
    }
    int64_t s = c->args->sample_offset + ru_node_int(c->node, RU_ATTR_start, 0);
    s += p / inner % samples;
    return s * (n / samples) + p / inner / samples * inner + p % inner;
}

/* Is the element that draws number `at` kept? */
static uint8_t keeps(uint64_t seed, uint64_t stream, double ratio, int64_t at)
{
    uint32_t word[4];
    ru_philox_at(seed, stream, (uint64_t)at / 4, word);
    return word[at % 4] >= (uint64_t)rint(ratio * 4294967296.0);
}

/* y = x kept and scaled, into output 0; `mask` of bytes. */
static void apply_mask(const ru_ref_call *c, double *x, const uint8_t *mask, double ratio,
                       int64_t n)
{
    double scale = ratio < 1.0 ? 1.0 / (1.0 - ratio) : 0.0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = mask[i] != 0 ? x[i] * scale : 0.0;
    }
    rui_ref_store(&c->out[0], x);
}

ru_status rui_ref_DropoutTrain(const ru_ref_call *c, ru_err *err)
{
    const ru_type *t = &c->in[0].type;
    double ratio = ru_node_float(c->node, RU_ATTR_ratio, 0.5), *x;
    int64_t n = rui_ref_count(t);
    uint64_t stream = (uint64_t)ru_node_int(c->node, RU_ATTR_stream, 0);
    uint8_t *mask = c->out[1].data;
    stream |= (uint64_t)c->args->step << 32;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    for (int64_t i = 0; i < n; i++) {
        mask[i] = keeps(c->args->seed, stream, ratio, place_in_batch(c, n, i));
    }
    apply_mask(c, x, mask, ratio, n);
    return RU_OK;
}

ru_status rui_ref_DropoutGrad(const ru_ref_call *c, ru_err *err)
{
    double *dy;
    RU_TRY(rui_ref_in(c, 0, &dy, err));
    apply_mask(c, dy, c->in[1].data, ru_node_float(c->node, RU_ATTR_ratio, 0.5),
               rui_ref_count(&c->in[0].type));
    return RU_OK;
}

/* The standard's Dropout: inputs ratio and training_mode; without the latter it copies. */
ru_status rui_ref_Dropout(const ru_ref_call *c, ru_err *err)
{
    double *x, *given, *training, ratio = 0.5;
    RU_TRY(rui_ref_in(c, 0, &x, err));
    RU_TRY(rui_ref_in(c, 1, &given, err));
    RU_TRY(rui_ref_in(c, 2, &training, err));
    int64_t n = rui_ref_count(&c->in[0].type);
    uint8_t *mask = ru_arena_alloc(c->scratch, n, 1);
    if (mask == NULL) {
        return RU_FAIL(err, RU_E_MEM, "Dropout: no scratch for a mask of %lld bytes", (long long)n);
    }
    ratio = given != NULL ? given[0] : ratio;
    ratio = training != NULL && training[0] != 0.0 ? ratio : 0.0;
    for (int64_t i = 0; i < n; i++) {
        mask[i] = keeps((uint64_t)ru_node_int(c->node, RU_ATTR_seed, 0), 0, ratio, i);
    }
    apply_mask(c, x, mask, ratio, n);
    if (rui_ref_has_out(c, 1)) {
        memcpy(c->out[1].data, mask, (size_t)n);
    }
    return RU_OK;
}
