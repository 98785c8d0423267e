/* One buffer: the cheapest memory, batch and timeout for the requests that it takes. */
#include <math.h>
#include <stdlib.h>

#include "plan/serve/route_impl.h"

/* A buffer under search; m memories, t timeouts, b batches. */
typedef struct one {
    rui_route_search *s;
    const ru_route_in *in;
    ru_route_mix mix;
    ru_markov_law law;
    double *sizes; /* [timeouts + 1, batch_max + 1, batch_max + 1] */
    double *usd;   /* [memory, batch_max + 1] of a call, over the largest member */
    double *busy;  /* the same, seconds */
    double *high;  /* the same: part kept if nobody waited */
} one;

typedef struct candidate {
    int64_t cost;
    uint32_t memory, batch, timeout;
} candidate;

double ru_route_allow_s(const ru_route_in *in, uint32_t k, double x)
{
    return in->per_request ? x : x * in->size[k];
}

double ru_route_call_usd(const ru_route_in *in, uint32_t memory, uint32_t k, uint32_t b)
{
    double s = in->service_s[((size_t)memory * in->n_classes + k) * in->batch_max + b - 1];
    double billed = in->billing_step_s * ceil(s / in->billing_step_s - 1e-9);
    return billed * in->memory_mb[memory] / 1024 * in->usd_per_gb_s + in->usd_per_call;
}

static ru_status no_room(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no memory to search a buffer");
}

ru_status rui_route_open(const ru_route_in *in, ru_arena *out, ru_arena *scratch,
                         rui_route_search *s, ru_err *err)
{
    bool none = in->method == RU_ROUTE_NONE;
    uint32_t steps = (uint32_t)(in->timeout_max_s / in->timeout_step_s + 1e-9);
    *s = (rui_route_search){
        .in = in, .out = out, .scratch = scratch, .n_timeouts = none ? 0 : steps};
    int64_t cells = (int64_t)in->n_memory * in->n_classes * in->batch_max;
    double *usd = RU_NEW(scratch, double, cells), *allow = RU_NEW(scratch, double, in->n_classes);
    if (usd == NULL || allow == NULL) {
        return no_room(err);
    }
    for (int64_t i = 0; i < cells; i++) {
        uint32_t row = (uint32_t)(i / in->batch_max), b = (uint32_t)(i % in->batch_max);
        usd[i] = ru_route_call_usd(in, row / in->n_classes, row % in->n_classes, b + 1);
    }
    for (uint32_t k = 0; k < in->n_classes; k++) {
        allow[k] = ru_route_allow_s(in, k, in->slo_s);
    }
    s->usd = usd;
    s->allow_s = allow;
    return RU_OK;
}

static const double *service_of(const one *o, uint32_t memory)
{
    return o->in->service_s + (size_t)memory * o->in->n_classes * o->in->batch_max;
}

static const double *sizes_at(const one *o, uint32_t timeout, uint32_t batch)
{
    uint32_t row = o->in->batch_max + 1;
    return o->sizes + ((size_t)timeout * row + batch) * row;
}

static ru_status open_one(one *o, rui_route_search *s, const double *share, ru_err *err)
{
    const ru_route_in *in = s->in;
    uint32_t row = in->batch_max + 1;
    *o = (one){.s = s, .in = in};
    RU_TRY(ru_route_mix_of(share, in->n_classes, in->batch_max, s->scratch, &o->mix, err));
    ru_markov part = ru_markov_thinned(&in->arrivals, fmin(o->mix.share, 1));
    RU_TRY(ru_markov_solve(&part, &o->law, err));
    o->sizes = RU_NEW(s->scratch, double, ((int64_t)s->n_timeouts + 1) * row * row);
    o->usd = RU_NEW(s->scratch, double, (int64_t)in->n_memory *row);
    o->busy = RU_NEW(s->scratch, double, (int64_t)in->n_memory *row);
    o->high = RU_NEW(s->scratch, double, (int64_t)in->n_memory *row);
    if (o->sizes == NULL || o->usd == NULL || o->busy == NULL || o->high == NULL) {
        return no_room(err);
    }
    for (uint32_t m = 0; m < in->n_memory; m++) {
        const double *usd = s->usd + (size_t)m * in->n_classes * in->batch_max;
        for (uint32_t b = 1; b <= in->batch_max; b++) {
            o->usd[(size_t)m * row + b] = ru_route_mean(&o->mix, b, usd);
            o->busy[(size_t)m * row + b] = ru_route_mean(&o->mix, b, service_of(o, m));
            o->high[(size_t)m * row + b] =
                ru_route_kept(&o->mix, b, service_of(o, m), s->allow_s, 0);
        }
    }
    return ru_route_sizes(&o->law, in->batch_max, in->timeout_step_s, s->n_timeouts, s->scratch,
                          o->sizes, err);
}

static double mean_of(const double *p, uint32_t batch, const double *f)
{
    double sum = 0;
    for (uint32_t b = 1; b <= batch; b++) {
        sum += p[b] * f[b];
    }
    return sum;
}

/* Of requests: batches weigh by their size. */
static double part_of(const double *p, uint32_t batch, const double *kept)
{
    double sum = 0;
    for (uint32_t b = 1; b <= batch; b++) {
        sum += b * p[b] * kept[b];
    }
    return sum;
}

static double mean_batch(const double *p, uint32_t batch)
{
    double sum = 0;
    for (uint32_t b = 1; b <= batch; b++) {
        sum += b * p[b];
    }
    return sum;
}

/* All that is cheaper than what surely keeps the objective, and might keep it. Where every request
 * of a choice could wait out the timeout, no law is needed. */
static uint32_t collect(const one *o, candidate *into, candidate *sure)
{
    const ru_route_in *in = o->in;
    uint32_t n = 0, row = in->batch_max + 1;
    double low[RU_BATCH_MAX + 1];
    *sure = (candidate){.cost = INT64_MAX};
    for (uint32_t m = 0; m < in->n_memory; m++) {
        for (uint32_t t = 0; t <= o->s->n_timeouts; t++) {
            bool known = false;
            for (uint32_t b = t == 0 ? 1 : in->batch_max; b >= (t == 0 ? 1 : 2); b--) {
                const double *p = sizes_at(o, t, b);
                double mean = mean_batch(p, b), need = in->quantile * mean;
                double usd = mean_of(p, b, o->usd + (size_t)m * row) / mean;
                int64_t cost = (int64_t)floor(usd * o->mix.share * 1e18 + 0.5);
                if (cost >= sure->cost || part_of(p, b, o->high + (size_t)m * row) < need) {
                    continue;
                }
                for (uint32_t k = 1; !known && k <= in->batch_max; k++) {
                    low[k] = ru_route_kept(&o->mix, k, service_of(o, m), o->s->allow_s,
                                           t * in->timeout_step_s);
                }
                known = true;
                candidate c = {cost, m, b, t};
                if (!in->by_class && part_of(p, b, low) >= need * (1 + 1e-9)) {
                    *sure = c;
                } else {
                    into[n++] = c;
                }
            }
        }
    }
    return n;
}

static int by_cost(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->cost != y->cost) {
        return x->cost < y->cost ? -1 : 1;
    }
    if (x->memory != y->memory) {
        return x->memory < y->memory ? -1 : 1;
    }
    if (x->batch != y->batch) {
        return x->batch < y->batch ? -1 : 1;
    }
    return x->timeout < y->timeout ? -1 : x->timeout > y->timeout;
}

static ru_status law_of(const one *o, uint32_t batch, uint32_t timeout, ru_arena *out,
                        ru_arena *scratch, ru_batch_law *law, ru_err *err)
{
    o->s->laws++;
    return ru_batch_law_of(&o->law, batch, timeout * o->in->timeout_step_s, 1, out, scratch, law,
                           err);
}

/* Does the choice keep the objective, by the exact law? */
static bool keeps(const one *o, const ru_batch_law *law, uint32_t memory)
{
    double by_class[RU_ROUTE_CLASSES_MAX];
    double met = ru_route_met(&o->mix, law, service_of(o, memory), o->s->allow_s, by_class);
    for (uint32_t k = 0; o->in->by_class && k < o->mix.n; k++) {
        met = fmin(met, by_class[k]);
    }
    return met >= o->in->quantile;
}

static ru_status cheapest(const one *o, rui_route_best *best, ru_err *err)
{
    rui_route_search *s = o->s;
    const ru_route_in *in = o->in;
    int64_t most = (int64_t)in->n_memory * (s->n_timeouts + 1) * in->batch_max;
    candidate *list = RU_NEW(s->scratch, candidate, most), sure;
    uint32_t steps = s->n_timeouts + 1;
    const ru_batch_law **laws =
        RU_NEW(s->scratch, const ru_batch_law *, (int64_t)steps *(in->batch_max + 1));
    if (list == NULL || laws == NULL) {
        return no_room(err);
    }
    uint32_t n = collect(o, list, &sure);
    if (n > 0) {
        qsort(list, n, sizeof *list, by_cost);
    }
    candidate at = sure;
    for (uint32_t i = 0; i < n && list[i].cost < sure.cost; i++) {
        const ru_batch_law **law = &laws[(size_t)list[i].batch * steps + list[i].timeout];
        if (*law == NULL) {
            ru_batch_law *made = RU_NEW(s->scratch, ru_batch_law, 1);
            if (made == NULL) {
                return no_room(err);
            }
            RU_TRY(law_of(o, list[i].batch, list[i].timeout, s->scratch, s->out, made, err));
            *law = made;
        }
        if (keeps(o, *law, list[i].memory)) {
            at = list[i];
            break;
        }
    }
    *best = (rui_route_best){.found = at.cost < INT64_MAX,
                             .cost = at.cost,
                             .memory = at.memory,
                             .batch = at.batch,
                             .timeout = at.timeout};
    if (best->found) {
        const double *p = sizes_at(o, at.timeout, at.batch);
        best->instances = o->law.rate *
                          mean_of(p, at.batch, o->busy + (size_t)at.memory * (in->batch_max + 1)) /
                          mean_batch(p, at.batch);
    }
    return RU_OK;
}

ru_status rui_route_best_of(rui_route_search *s, const double *share, rui_route_best *best,
                            ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(s->scratch);
    one o;
    s->searched++;
    RU_TRY(open_one(&o, s, share, err));
    RU_TRY(cheapest(&o, best, err));
    ru_arena_rewind(s->scratch, mark);
    return RU_OK;
}

/* The least x with P(latency / size <= x) >= quantile, or P(latency <= x). */
static double latency_of(const one *o, const ru_batch_law *law, uint32_t memory)
{
    double low = 0, high = 0, by_class[RU_ROUTE_CLASSES_MAX], allow[RU_ROUTE_CLASSES_MAX];
    for (uint32_t j = 0; j < o->mix.n; j++) {
        for (uint32_t b = 0; b < law->batch; b++) {
            double s = service_of(o, memory)[(size_t)o->mix.class_of[j] * o->in->batch_max + b];
            high =
                fmax(high, (s + law->timeout_s) / ru_route_allow_s(o->in, o->mix.class_of[0], 1));
        }
    }
    for (uint32_t round = 0; round < 60 && high - low > 1e-9 * high; round++) {
        double mid = 0.5 * (low + high);
        for (uint32_t j = 0; j < o->in->n_classes; j++) {
            allow[j] = ru_route_allow_s(o->in, j, mid);
        }
        bool met =
            ru_route_met(&o->mix, law, service_of(o, memory), allow, by_class) >= o->in->quantile;
        low = met ? low : mid;
        high = met ? mid : high;
    }
    return high;
}

ru_status rui_route_figures(rui_route_search *s, const double *share, const rui_route_best *at,
                            ru_route_buffer *b, ru_err *err)
{
    const ru_route_in *in = s->in;
    ru_arena_mark mark = ru_arena_mark_get(s->scratch);
    one o;
    ru_batch_law law;
    RU_TRY(open_one(&o, s, share, err));
    RU_TRY(law_of(&o, at->batch, at->timeout, s->out, s->scratch, &law, err));
    double by_class[RU_ROUTE_CLASSES_MAX], least = 1, size = 0, largest = 0;
    double met = ru_route_met(&o.mix, &law, service_of(&o, at->memory), s->allow_s, by_class);
    for (uint32_t k = 0; k < o.mix.n; k++) {
        least = fmin(least, by_class[k]);
        size += o.mix.p[k] * in->size[o.mix.class_of[k]];
    }
    double *p = RU_NEW(s->out, double, at->batch + 1);
    if (p == NULL) {
        return no_room(err);
    }
    for (uint32_t i = 1; i <= at->batch; i++) {
        p[i] = sizes_at(&o, at->timeout, at->batch)[i];
        for (uint32_t k = 0; k < o.mix.n; k++) {
            largest += p[i] * i * ru_route_largest(&o.mix, i, k) * in->size[o.mix.class_of[k]];
        }
    }
    uint32_t row = in->batch_max + 1;
    double mean = mean_batch(p, at->batch);
    *b = (ru_route_buffer){
        .memory = at->memory,
        .batch = at->batch,
        .timeout_s = at->timeout * in->timeout_step_s,
        .share = o.mix.share,
        .usd_per_request = mean_of(p, at->batch, o.usd + (size_t)at->memory * row) / mean,
        .mean_batch = mean,
        .instances = o.law.rate * mean_of(p, at->batch, o.busy + (size_t)at->memory * row) / mean,
        .latency_s = latency_of(&o, &law, at->memory),
        .met = met,
        .least_met = least,
        .padding = fmax(0, largest / (mean * size) - 1),
        .size_p = p,
    };
    if (s->out != s->scratch) {
        ru_arena_rewind(s->scratch, mark);
    }
    return RU_OK;
}
