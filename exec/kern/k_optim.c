/* Optimizer updates over a stretch of one segment, in PyTorch's order of operations. */
#include "exec/kern/isa.h"

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
