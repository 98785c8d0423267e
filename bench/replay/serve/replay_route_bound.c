/* A bound for one buffer. Timeouts are cut into steps in which about a tenth of a request arrives.
 * In a step every tail of the size of a batch, P(size >= b), lies between those at its two ends.
 * Requests wait at least so long: the first of a batch that is not full the step's beginning, all
 * others not at all. A cost c is possible in a step if sizes within the tails exist with
 *
 *   sum_b p_b (usd_b - c b) <= 0   and   sum_b p_b b (kept_b - quantile) >= 0
 *
 * It is not if for some price u >= 0 of the second row the least sum_b p_b (usd_b - c b - u b
 * (kept_b - quantile)) is above 0: a sum over tails, each at the better end of its range. */
#include "bench/replay/serve/replay_route_bound.h"

#include <math.h>
#include <stddef.h>

enum { PRICES = 40, HALVINGS = 20 };

typedef struct step {
    const double *tail[2]; /* [batch + 1] P(size >= b) at both ends */
    uint32_t batch;
    const double *usd;             /* [batch + 1] of a call, a mean */
    double late[RU_BATCH_MAX + 1]; /* b (quantile - kept_b) */
} step;

/* Least sum over sizes within the tails. */
static double least(const step *s, double cost, double price)
{
    double sum = 0, before = 0;
    for (uint32_t b = 1; b <= s->batch; b++) {
        double f = s->usd[b] - cost * b + price * s->late[b], gain = f - before;
        double low = fmin(s->tail[0][b], s->tail[1][b]), high = fmax(s->tail[0][b], s->tail[1][b]);
        sum += b == 1 ? gain : gain * (gain > 0 ? low : high);
        before = f;
    }
    return sum;
}

/* The sum is concave in the price: its largest value by thirds. */
static bool possible(const step *s, double cost)
{
    if (least(s, cost, 0) > 0) {
        return false;
    }
    double low = 0, high = 1000 * cost;
    for (uint32_t k = 0; k < PRICES; k++) {
        double a = low + (high - low) / 3, b = high - (high - low) / 3;
        double at_a = least(s, cost, a), at_b = least(s, cost, b);
        if (at_a > 0 || at_b > 0) {
            return false;
        }
        low = at_a < at_b ? a : low;
        high = at_a < at_b ? high : b;
    }
    return true;
}

/* The least cost that is possible, from below; at most `most`. */
static double least_cost(const step *s, double most)
{
    if (!possible(s, most)) {
        return most;
    }
    double low = 0, high = most;
    for (uint32_t k = 0; k < HALVINGS; k++) {
        double mid = (low + high) / 2;
        bool ok = possible(s, mid);
        low = ok ? low : mid;
        high = ok ? mid : high;
    }
    return low;
}

typedef struct buffer {
    const ru_route_in *in;
    ru_route_mix mix;
    uint32_t n_steps;
    double step_s;
    double *tails;         /* [n_steps + 2, B + 1, B + 2]; the last one: every batch is full */
    double *usd;           /* [memory, B + 1] */
    double *kept;          /* [memory, B + 1] nobody waits */
    const double *allow_s; /* [n_classes] */
} buffer;

static const double *tail_of(const buffer *b, uint32_t k, uint32_t batch)
{
    uint32_t row = b->in->batch_max + 2;
    return b->tails + ((size_t)k * (row - 1) + batch) * row;
}

static double try_step(const buffer *o, uint32_t memory, uint32_t batch, uint32_t k, double most)
{
    const ru_route_in *in = o->in;
    size_t row = (size_t)memory * (in->batch_max + 1);
    const double *service = in->service_s + (size_t)memory * in->n_classes * in->batch_max;
    step s = {{tail_of(o, k, batch), tail_of(o, k + 1, batch)}, batch, o->usd + row, {0}};
    if (least(&s, most, 0) > 0) {
        return most;
    }
    for (uint32_t b = 1; b <= batch; b++) {
        double first = b == batch ? o->kept[row + b]
                                  : ru_route_kept(&o->mix, b, service, o->allow_s, k * o->step_s);
        s.late[b] = b * in->quantile - (b - 1) * o->kept[row + b] - first;
    }
    return least_cost(&s, most);
}

static ru_status tails_of(buffer *o, const ru_markov_law *law, ru_arena *scratch, ru_err *err)
{
    uint32_t batch_max = o->in->batch_max, row = batch_max + 2, old = batch_max + 1;
    double *sizes = RU_NEW(scratch, double, ((int64_t)o->n_steps + 1) * old * old);
    o->tails = RU_NEW(scratch, double, ((int64_t)o->n_steps + 2) * old * row);
    if (sizes == NULL || o->tails == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u timeouts", o->n_steps);
    }
    RU_TRY(ru_route_sizes(law, batch_max, o->step_s, o->n_steps, scratch, sizes, err));
    for (uint32_t k = 0; k <= o->n_steps + 1; k++) {
        for (uint32_t batch = 1; batch <= batch_max; batch++) {
            double *t = o->tails + ((size_t)k * old + batch) * row;
            const double *p = sizes + ((size_t)k * old + batch) * old;
            for (uint32_t b = batch; b >= 1; b--) {
                t[b] = k > o->n_steps ? 1 : k == 0 ? (b == 1 ? 1 : 0) : t[b + 1] + p[b];
            }
        }
    }
    return RU_OK;
}

static ru_status open_buffer(buffer *o, const ru_route_in *in, const double *share,
                             ru_arena *scratch, ru_err *err)
{
    uint32_t row = in->batch_max + 1;
    double *allow = RU_NEW(scratch, double, in->n_classes);
    double *usd = RU_NEW(scratch, double, (int64_t)in->n_classes * in->batch_max);
    *o = (buffer){.in = in, .allow_s = allow};
    o->usd = RU_NEW(scratch, double, (int64_t)in->n_memory *row);
    o->kept = RU_NEW(scratch, double, (int64_t)in->n_memory *row);
    if (allow == NULL || usd == NULL || o->usd == NULL || o->kept == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a bound");
    }
    RU_TRY(ru_route_mix_of(share, in->n_classes, in->batch_max, scratch, &o->mix, err));
    for (uint32_t k = 0; k < in->n_classes; k++) {
        allow[k] = in->slo_s * in->size[k];
    }
    for (uint32_t m = 0; m < in->n_memory; m++) {
        const double *service = in->service_s + (size_t)m * in->n_classes * in->batch_max;
        for (uint32_t i = 0; i < in->n_classes * in->batch_max; i++) {
            usd[i] = ru_route_call_usd(in, m, i / in->batch_max, i % in->batch_max + 1);
        }
        for (uint32_t b = 1; b <= in->batch_max; b++) {
            o->usd[(size_t)m * row + b] = ru_route_mean(&o->mix, b, usd);
            o->kept[(size_t)m * row + b] = ru_route_kept(&o->mix, b, service, allow, 0);
        }
    }
    return RU_OK;
}

ru_status rui_route_bound(const ru_route_in *in, const double *share, double most,
                          ru_arena *scratch, double *usd, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    buffer o;
    RU_TRY(open_buffer(&o, in, share, scratch, err));
    ru_markov part = ru_markov_thinned(&in->arrivals, fmin(o.mix.share, 1));
    ru_markov_law law;
    RU_TRY(ru_markov_solve(&part, &law, err));
    /* Beyond four times the mean time of a full batch few batches are not full: one step. */
    double long_s = fmin(in->timeout_max_s, 4 * in->batch_max / law.rate);
    o.step_s = fmin(0.1 / law.rate, in->timeout_step_s);
    o.n_steps = (uint32_t)ceil(long_s / o.step_s - 1e-9);
    RU_TRY(tails_of(&o, &law, scratch, err));
    *usd = most;
    for (uint32_t m = 0; m < in->n_memory; m++) {
        for (uint32_t batch = 1; batch <= in->batch_max; batch++) {
            for (uint32_t k = 0; k <= o.n_steps; k++) {
                *usd = try_step(&o, m, batch, k, *usd);
            }
        }
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}
