#include "fleet/sum.h"

#include <math.h>
#include <string.h>

#include "cost/math/quantile.h"
#include "env/process/self.h"

enum { UPDATES_MAX = 1024 };

ru_fed_sum_options ru_fed_sum_of(const ru_job_federated *job, const ru_flat *flat)
{
    return (ru_fed_sum_options){.kind = (ru_fed_sum_kind)job->sum,
                                .trim = job->trim,
                                .most = job->per_round,
                                .count = flat->count,
                                .params = flat->params,
                                .by = (ru_fed_optimizer)job->optimizer,
                                .lr = job->lr,
                                .beta1 = job->beta1,
                                .beta2 = job->beta2,
                                .epsilon = job->epsilon,
                                .clip = job->privacy.clip,
                                .noise = job->privacy.noise};
}

ru_status ru_fed_sum_open(const ru_fed_sum_options *opt, ru_arena *arena, ru_fed_sum *out,
                          ru_err *err)
{
    bool mean = opt->kind == RU_FED_MEAN;
    if (opt->clip > 0 && opt->count > opt->params) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "federated.privacy: the model has running statistics (batch normalisation), "
                       "which a clip of moves does not bound; use another normalisation");
    }
    int64_t slots = opt->by == RU_FED_AVERAGE ? 0 : opt->by == RU_FED_ADAM ? 2 : 1;
    ru_fed_sum s = {.opt = *opt, .n_slots = slots * opt->params};
    s.at = mean ? RU_NEW(arena, double, opt->count) : NULL;
    s.kept = mean ? NULL : RU_NEW(arena, float, opt->count * opt->most);
    s.slots = s.n_slots > 0 ? RU_NEW(arena, float, s.n_slots) : NULL;
    if ((mean ? (void *)s.at : (void *)s.kept) == NULL || (s.n_slots > 0 && s.slots == NULL)) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the updates of a round of %lld values",
                       (long long)opt->count);
    }
    if (s.n_slots > 0) {
        memset(s.slots, 0, (size_t)s.n_slots * sizeof *s.slots);
    }
    *out = s;
    return RU_OK;
}

void ru_fed_sum_begin(ru_fed_sum *s, const float *from)
{
    s->from = from;
    if (s->at != NULL) {
        memset(s->at, 0, (size_t)s->opt.count * sizeof *s->at);
    }
    s->weight = 0;
    s->n = 0;
}

/* By what a move is scaled down. */
static double shorten(const ru_fed_sum *s, const float *values)
{
    double square = 0;
    for (int64_t i = 0; i < s->opt.count; i++) {
        double d = (double)values[i] - (double)s->from[i];
        square += d * d;
    }
    double length = sqrt(square);
    return length > s->opt.clip ? s->opt.clip / length : 1;
}

ru_status ru_fed_sum_add(ru_fed_sum *s, const float *values, double weight, ru_err *err)
{
    int64_t count = s->opt.count;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) {
            return RU_FAIL(err, RU_E_DATA, "value %lld of the update is not finite", (long long)i);
        }
    }
    if (s->kept != NULL && (s->n == s->opt.most || s->n == UPDATES_MAX)) {
        return RU_FAIL(err, RU_E_LIMIT, "more than %u updates in a round", s->n);
    }
    double scale = s->opt.clip > 0 ? shorten(s, values) : weight;
    for (int64_t i = 0; s->at != NULL && i < count; i++) {
        double from = s->opt.clip > 0 ? (double)s->from[i] : 0;
        s->at[i] += scale * ((double)values[i] - from);
    }
    if (s->kept != NULL) {
        memcpy(s->kept + count * s->n, values, (size_t)count * sizeof *values);
    }
    s->weight += weight;
    s->n++;
    return RU_OK;
}

void ru_fed_sum_masked(ru_fed_sum *s, const uint32_t *moves, double unit, double weight, uint32_t n)
{
    for (int64_t i = 0; i < s->opt.count; i++) {
        double from = s->opt.clip > 0 ? 0 : weight * (double)s->from[i];
        s->at[i] = from + unit * (double)(int32_t)moves[i];
    }
    s->weight = weight;
    s->n = n;
}

/* Normal noise for one value. */
static double noise(ru_fed_sum *s)
{
    if (!(s->opt.noise > 0)) {
        return 0;
    }
    if (s->opt.rng != NULL) {
        return s->opt.noise * s->opt.clip * ru_rng_normal(s->opt.rng);
    }
    if (s->n_bits == 0) {
        ru_self_random(s->bits, sizeof s->bits);
        s->n_bits = RU_ARRAY_LEN(s->bits);
    }
    s->n_bits -= 2;
    double u = ((double)(s->bits[s->n_bits] >> 11) + 0.5) * 0x1p-53;
    double v = (double)(s->bits[s->n_bits + 1] >> 11) * 0x1p-53;
    return s->opt.noise * s->opt.clip * sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

/* Value i of all updates as one. */
static double one(ru_fed_sum *s, int64_t i)
{
    double v[UPDATES_MAX], sum = 0;
    if (s->opt.clip > 0) {
        return (double)s->from[i] + (s->at[i] + noise(s)) / s->opt.most;
    }
    if (s->at != NULL) {
        return s->at[i] / s->weight;
    }
    for (uint32_t k = 0; k < s->n; k++) {
        v[k] = (double)s->kept[s->opt.count * k + i];
    }
    ru_sort_f64(v, s->n);
    uint32_t cut = s->opt.kind == RU_FED_MEDIAN ? (s->n - 1) / 2 : (uint32_t)(s->opt.trim * s->n);
    for (uint32_t k = cut; k < s->n - cut; k++) {
        sum += v[k];
    }
    return sum / (s->n - 2 * cut);
}

static double moved(ru_fed_sum *s, int64_t i, double before, double mean)
{
    const ru_fed_sum_options *o = &s->opt;
    double d = mean - before;
    float *m = &s->slots[i];
    if (o->by == RU_FED_MOMENTUM) {
        *m = (float)(o->beta1 * (double)*m + d);
        return before + o->lr * (double)*m;
    }
    float *v = &s->slots[o->params + i];
    *m = (float)(o->beta1 * (double)*m + (1 - o->beta1) * d);
    *v = (float)(o->beta2 * (double)*v + (1 - o->beta2) * d * d);
    return before + o->lr * (double)*m / (sqrt((double)*v) + o->epsilon);
}

void ru_fed_sum_end(ru_fed_sum *s, float *into)
{
    RU_CHECK(s->n > 0);
    for (int64_t i = 0; i < s->opt.count; i++) {
        double mean = one(s, i);
        bool plain = s->opt.by == RU_FED_AVERAGE || i >= s->opt.params;
        into[i] = (float)(plain ? mean : moved(s, i, (double)s->from[i], mean));
    }
}
