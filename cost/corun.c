#include "cost/corun.h"

#include <math.h>
#include <string.h>

#include "cost/math/quantile.h"

#define LOSS_MAX   0.98
#define SPREADS    1.5  /* deviations that a sure loss adds */
#define RATE       0.02 /* of the margin's level */
#define MARGIN_MAX 8
#define FIRST      2e-5 /* seconds of overlap that weigh 1 */
#define WEIGHT_MAX 64

uint32_t ru_corun_kind(ru_op_class c, double units, double device)
{
    double part = units / device;
    uint32_t size = part <= 0.25 ? 0 : part <= 1 ? 1 : part <= 4 ? 2 : 3;
    return (uint32_t)c * RU_CORUN_SIZES + size;
}

void ru_corun_init(ru_corun *c, double guess, double miss_goal)
{
    memset(c, 0, sizeof *c);
    c->guess = guess;
    c->level = c->miss_goal = miss_goal;
    c->margin = 1;
}

double ru_corun_loss(const ru_corun *c, uint32_t kind, uint32_t beside, bool sure)
{
    const ru_corun_cell *p = &c->pair[kind][beside], *b = &c->beside[beside];
    /* Each level counts as one observation of the next. */
    double prior = (b->weight * b->loss + c->guess) / (b->weight + 1);
    double loss = (p->weight * p->loss + prior) / (p->weight + 1);
    double spread = (p->weight * p->spread + 0.5 * prior) / (p->weight + 1);
    return fmin(fmax(loss + (sure ? SPREADS * spread : 0), 0), LOSS_MAX);
}

static void learn_cell(ru_corun_cell *c, double loss, double weight)
{
    double error = loss - c->loss;
    c->weight = fmin(c->weight + weight, WEIGHT_MAX);
    double step = weight / c->weight;
    c->loss += step * error;
    c->spread += step * (fabs(error) - c->spread);
}

void ru_corun_learn(ru_corun *c, uint32_t kind, const ru_corun_overlap *o, uint32_t n,
                    double lost_s)
{
    double expected = 0, squares = 0, all = 0;
    for (uint32_t i = 0; i < n; i++) {
        expected += o[i].s * ru_corun_loss(c, kind, o[i].kind, false);
        squares += o[i].s * o[i].s;
        all += o[i].s;
    }
    if (!(squares > 0)) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        /* The part of this op: what was expected of it, and its share of the error. */
        double loss =
            ru_corun_loss(c, kind, o[i].kind, false) + (lost_s - expected) * o[i].s / squares;
        loss = fmin(fmax(loss, -0.5), 1);
        double weight = fmin(o[i].s / FIRST, 1) * o[i].s / all;
        if (weight > 0) {
            learn_cell(&c->pair[kind][o[i].kind], loss, weight);
            learn_cell(&c->beside[o[i].kind], loss, weight);
        }
    }
}

void ru_corun_request(ru_corun *c, double predicted_s, double lost_s)
{
    if (!(predicted_s > 0)) {
        return;
    }
    bool missed = lost_s > c->margin * predicted_s;
    c->level = ru_conformal_next(c->level, c->miss_goal, missed, RATE);
    c->ratio[c->n_ratios++ % RU_CORUN_KEPT] = fmax(lost_s / predicted_s, 0);
    if (c->n_ratios % RU_CORUN_EVERY != 0) {
        return;
    }
    double of[RU_CORUN_KEPT];
    uint32_t n = c->n_ratios < RU_CORUN_KEPT ? c->n_ratios : RU_CORUN_KEPT;
    memcpy(of, c->ratio, n * sizeof *of);
    double q = ru_quantile_select(of, n, 1 - c->level, RU_QUANTILE_RANK);
    c->margin = fmin(fmax(q, 1), MARGIN_MAX);
}
