/* Optimizer updates over a stretch of one segment, in PyTorch's order of operations. */
#include "exec/cpu/kern/isa.h"

void RUI_K(rui_kern_sgd)(const ru_kern_sgd *o, const ru_kern_segment *s, int64_t begin, int64_t end)
{
    const float *p = s->p, *g = s->g, *m = s->m;
    float *po = s->p_out, *mo = s->m_out;
    const float lr = o->lr, gs = o->gscale, wd = o->decay, mu = o->momentum;
    if (!o->has_momentum) {
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            po[i] = p[i] - lr * (gs * g[i] + wd * p[i]);
        }
    } else if (o->nesterov) {
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            float d = gs * g[i] + wd * p[i];
            float v = mu * m[i] + d;
            mo[i] = v;
            po[i] = p[i] - lr * (d + mu * v);
        }
    } else {
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            float v = mu * m[i] + (gs * g[i] + wd * p[i]);
            mo[i] = v;
            po[i] = p[i] - lr * v;
        }
    }
}

void RUI_K(rui_kern_adam)(const ru_kern_adam *o, const ru_kern_segment *s, int64_t begin,
                          int64_t end)
{
    const float *p = s->p, *g = s->g, *m = s->m, *v = s->v;
    float *po = s->p_out, *mo = s->m_out, *vo = s->v_out;
    const float b1 = o->beta1, b2 = o->beta2, eps = o->epsilon, gs = o->gscale, wd = o->decay;
    const float shrink = o->shrink, step = o->step_size, root = o->root_scale;
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        float w = p[i];
        float d = gs * g[i] + wd * w;
        float m1 = m[i] + (1.0f - b1) * (d - m[i]);
        float v1 = b2 * v[i] + (1.0f - b2) * (d * d);
        mo[i] = m1;
        vo[i] = v1;
        po[i] = w * shrink - step * (m1 / (sqrtf(v1) * root + eps));
    }
}

void RUI_K(rui_kern_adagrad)(float lr, float gscale, float decay, float epsilon,
                             const ru_kern_segment *s, int64_t begin, int64_t end)
{
    const float *p = s->p, *g = s->g, *m = s->m;
    float *po = s->p_out, *mo = s->m_out;
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        float d = gscale * g[i] + decay * p[i];
        float h = m[i] + d * d;
        mo[i] = h;
        po[i] = p[i] - lr * (d / (sqrtf(h) + epsilon));
    }
}

void RUI_K(rui_kern_rmsprop)(const ru_kern_rmsprop *o, const ru_kern_segment *s, int64_t begin,
                             int64_t end)
{
    const float *p = s->p, *g = s->g, *q = s->m, *m = s->v;
    float *po = s->p_out, *qo = s->m_out, *mo = s->v_out;
    const float lr = o->lr, gs = o->gscale, wd = o->decay, a = o->alpha, eps = o->epsilon;
    const float mu = o->momentum;
    if (!o->has_momentum) {
#pragma omp simd
        for (int64_t i = begin; i < end; i++) {
            float d = gs * g[i] + wd * p[i];
            float h = a * q[i] + (1.0f - a) * (d * d);
            qo[i] = h;
            po[i] = p[i] - lr * (d / (sqrtf(h) + eps));
        }
        return;
    }
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        float d = gs * g[i] + wd * p[i];
        float h = a * q[i] + (1.0f - a) * (d * d);
        float v = mu * m[i] + d / (sqrtf(h) + eps);
        qo[i] = h;
        mo[i] = v;
        po[i] = p[i] - lr * v;
    }
}

void RUI_K(rui_kern_lion)(const ru_kern_lion *o, const ru_kern_segment *s, int64_t begin,
                          int64_t end)
{
    const float *p = s->p, *g = s->g, *m = s->m;
    float *po = s->p_out, *mo = s->m_out;
    const float lr = o->lr, gs = o->gscale, b1 = o->beta1, b2 = o->beta2, shrink = o->shrink;
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        float d = gs * g[i];
        float to = b1 * m[i] + (1.0f - b1) * d;
        float step = to > 0.0f ? lr : to < 0.0f ? -lr : 0.0f;
        mo[i] = b2 * m[i] + (1.0f - b2) * d;
        po[i] = p[i] * shrink - step;
    }
}

void RUI_K(rui_kern_lamb_slots)(const ru_kern_lamb *o, const ru_kern_segment *s, int64_t begin,
                                int64_t end, float *sums)
{
    const float *p = s->p, *g = s->g, *m = s->m, *v = s->v;
    float *mo = s->m_out, *vo = s->v_out, of_p[KV_LANES] = {0}, of_r[KV_LANES] = {0};
    const float b1 = o->beta1, b2 = o->beta2, eps = o->epsilon, gs = o->gscale, wd = o->decay;
    const float mean = o->mean_scale, root = o->root_scale;
    for (int64_t i = begin; i < end; i += KV_LANES) {
        int64_t w = kv_min_i64(KV_LANES, end - i);
#pragma omp simd
        for (int64_t j = 0; j < w; j++) {
            float d = gs * g[i + j], x = p[i + j];
            float m1 = m[i + j] + (1.0f - b1) * (d - m[i + j]);
            float v1 = b2 * v[i + j] + (1.0f - b2) * (d * d);
            float r = m1 * mean / (sqrtf(v1) * root + eps) + wd * x;
            mo[i + j] = m1;
            vo[i + j] = v1;
            of_p[j] += x * x;
            of_r[j] += r * r;
        }
    }
    sums[0] = kv_lanes_sum(of_p);
    sums[1] = kv_lanes_sum(of_r);
}

void RUI_K(rui_kern_lamb)(const ru_kern_lamb *o, float step, const ru_kern_segment *s,
                          int64_t begin, int64_t end)
{
    const float *p = s->p, *m = s->m_out, *v = s->v_out;
    float *po = s->p_out;
    const float eps = o->epsilon, wd = o->decay, mean = o->mean_scale, root = o->root_scale;
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        po[i] = p[i] - step * (m[i] * mean / (sqrtf(v[i]) * root + eps) + wd * p[i]);
    }
}

/* In f32 over at most so many elements, then in f64. */
enum { SQUARES_PART = 1024 };

/* One part. Loops without a choice in them become vectors. */
static float squares_part(const float *x, const float *y, const float *v, float root, float epsilon,
                          int64_t n)
{
    float part = 0;
    if (v == NULL && y == NULL) {
#pragma omp simd reduction(+ : part)
        for (int64_t i = 0; i < n; i++) {
            part += x[i] * x[i];
        }
    } else if (v == NULL) {
#pragma omp simd reduction(+ : part)
        for (int64_t i = 0; i < n; i++) {
            float d = x[i] + y[i];
            part += d * d;
        }
    } else if (y == NULL) {
#pragma omp simd reduction(+ : part)
        for (int64_t i = 0; i < n; i++) {
            float d = x[i] / (sqrtf(v[i]) * root + epsilon);
            part += d * d;
        }
    } else {
#pragma omp simd reduction(+ : part)
        for (int64_t i = 0; i < n; i++) {
            float d = (x[i] + y[i]) / (sqrtf(v[i]) * root + epsilon);
            part += d * d;
        }
    }
    return part;
}

double RUI_K(rui_kern_squares)(const float *x, const float *y, const float *v, float root,
                               float epsilon, int64_t n)
{
    double sum = 0;
    for (int64_t at = 0; at < n; at += SQUARES_PART) {
        int64_t some = kv_min_i64(SQUARES_PART, n - at);
        sum += (double)squares_part(x + at, y != NULL ? y + at : NULL, v != NULL ? v + at : NULL,
                                    root, epsilon, some);
    }
    return sum;
}
