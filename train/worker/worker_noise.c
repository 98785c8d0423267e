/* The gradient noise scale, measured while training goes on (cost/goodput.h has the estimate).
 *
 *   step k, each worker    squares of its own gradient, where it is made
 *           the leader     squares of the sum, where it is updated
 *   step k+1               own squares and share ride in the vector of what else is summed
 *                          (`shared`): it may be made before the gradients, hence one step later
 *           the leader     puts both into the estimate
 *
 * Shares p_i of the batch need not be equal: with n = 1 / sum p_i^2 and own parts c_i of the sum,
 * n sum |c_i|^2 has the mean of the squares of n gradients of 1 / n of the batch. A worker alone
 * compares each measured gradient with that of the step before, of which it keeps a copy, unless
 * that needs more than an eighth of the free memory.
 *
 * Thread: the compute thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "env/process/memory.h"
#include "exec/update.h"
#include "train/worker/worker_impl.h"

enum {
    EVERY = 8,    /* steps between measured ones; Adam's mean squares mean little before */
    SAMPLES = 16, /* that tell something together: */
    OFTEN = 2,    /* steps between the first ones, so that a small job knows it soon */
};

#define SHARES_OFF 1e-4 /* shares of one step have the sum 1, in f32 */
#define FEWEST     1.2  /* gradients of equal size: if one share is nearly all, little is learned */
#define NOISE_MAX  1e12

static uint32_t apart(int64_t step)
{
    return step < EVERY + OFTEN * SAMPLES ? OFTEN : EVERY;
}

static bool measured(int64_t step)
{
    return step >= EVERY && step % apart(step) == 0;
}

static bool is_shared(const rui_worker *w, uint32_t tensor)
{
    return tensor + 1 == w->list.n_tensors;
}

/* Of the vector that is summed beside the gradients; the step puts them behind its figures. */
static int64_t place(const rui_worker *w)
{
    return (w->t.step.correct.v != 0 ? 3 : 1) * (int64_t)sizeof(float);
}

ru_status rui_noise_open(rui_worker *w, ru_err *err)
{
    rui_noise *x = &w->noise;
    *x = (rui_noise){.step = -1, .own_step = -1, .sum_step = -1, .all_step = -1, .before_step = -1};
    x->at = RU_NEW(w->arena, int64_t, w->list.n_tensors);
    if (x->at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    for (uint32_t k = 0; k + 1 < w->list.n_tensors; k++) {
        x->at[k] = x->elements;
        x->elements += w->list.tensor_bytes[k] / (int64_t)sizeof(float);
    }
    int64_t needed = x->elements * (int64_t)sizeof *x->before;
    int64_t free = ru_memory_free_bytes();
    if (needed > 0 && (free < 0 || needed <= free / 8)) {
        x->before = malloc((size_t)needed); /* touched when it is used; NULL: nothing is measured */
    }
    return RU_OK;
}

void rui_noise_close(rui_worker *w)
{
    free(w->noise.before);
    w->noise.before = NULL;
}

/* -- own gradients -------------------------------------------------------------------------------
 */

static double squares(const rui_worker *w, uint32_t tensor, int64_t step, const float *x,
                      const float *y, int64_t first, int64_t n)
{
    return ru_exe_grad_squares(w->now->exe, w->now->tensors[tensor].value, step, x, y, first, n);
}

/* The gradient of the whole batch is made here. */
static void pair(rui_worker *w, uint32_t tensor, int64_t step, const float *data, int64_t n)
{
    rui_noise *x = &w->noise;
    float *before = x->before + x->at[tensor];
    if (measured(step + 1)) {
        memcpy(before, data, (size_t)n * sizeof *before);
        x->before_step = tensor + 2 == w->list.n_tensors ? step : x->before_step;
    } else if (measured(step) && x->before_step == step - 1) {
        x->own += (squares(w, tensor, step, data, NULL, 0, n) +
                   squares(w, tensor, step, before, NULL, 0, n)) /
                  2;
        x->sum += squares(w, tensor, step, data, before, 0, n) / 4;
    }
}

void rui_noise_begin(rui_worker *w)
{
    rui_noise *x = &w->noise;
    const ru_share *s = &w->cmd.share;
    x->step = w->cmd.step;
    x->own = 0;
    x->part = s->batch > 0 ? (double)s->n / (double)s->batch : 0;
    x->alone = s->n == s->batch && w->cmd.leads;
    x->sum = x->alone ? 0 : x->sum;
}

void rui_noise_made(rui_worker *w, uint32_t tensor, void *data)
{
    rui_noise *x = &w->noise;
    int64_t step = x->step, n = w->list.tensor_bytes[tensor] / (int64_t)sizeof(float);
    if (is_shared(w, tensor)) {
        float *to = (float *)((uint8_t *)data + place(w));
        if (x->own_step == step - 1) {
            to[0] = (float)x->own_squares;
            to[1] = (float)x->own_part;
            to[2] = (float)(x->own_part * x->own_part);
        }
    } else if (x->alone && x->before != NULL) {
        pair(w, tensor, step, data, n);
    } else if (!x->alone && measured(step)) {
        x->own += squares(w, tensor, step, data, NULL, 0, n);
    }
}

void rui_noise_end(rui_worker *w)
{
    rui_noise *x = &w->noise;
    if (measured(x->step) && !x->alone && w->cmd.share.n > 0) {
        x->own_squares = x->own;
        x->own_part = x->part;
        x->own_step = x->step;
    }
}

/* -- the leader: sums ----------------------------------------------------------------------------
 */

static void put(rui_worker *w, double n, double own, double all)
{
    rui_noise *x = &w->noise;
    double first = (double)w->t.job->train.batch;
    const bool paired = x->estimate.paired;
    ru_noise_add(&x->estimate, n, (double)x->batch / first, own, all);
    x->samples = paired && !x->estimate.paired ? 0 : x->samples; /* pairs were forgotten */
    double sqr = ru_noise_sqr_least(&x->estimate), noise = first * ru_noise_var(&x->estimate) / sqr;
    x->samples += x->estimate.sqr_weight > 0;
    if (x->samples >= SAMPLES) {
        w->t.learned.noise = sqr > 0 && noise < NOISE_MAX ? noise : NOISE_MAX;
    }
}

/* What the workers told of the step before. */
static void hear(rui_worker *w, const float *from)
{
    rui_noise *x = &w->noise;
    double n = from[2] > 0 ? 1 / (double)from[2] : 0;
    if (n >= FEWEST && fabs((double)from[1] - 1) < SHARES_OFF) {
        put(w, n, n * (double)from[0], x->all);
    }
    x->all_step = -1;
}

/* All of the sum, or a piece of it. */
static void add(rui_worker *w, int64_t step, const rui_early_sum *s)
{
    rui_noise *x = &w->noise;
    const uint8_t *data = w->now->tensors[s->tensor].data;
    int64_t f = (int64_t)sizeof(float);
    if (is_shared(w, s->tensor)) {
        int64_t at = place(w);
        if (x->all_step == step - 1 && s->offset_bytes <= at &&
            at + 3 * f <= s->offset_bytes + s->size_bytes) {
            hear(w, (const float *)(const void *)(data + at));
        }
    } else if (measured(step)) {
        x->sum += squares(w, s->tensor, step, (const float *)(const void *)data, NULL,
                          s->offset_bytes / f, s->size_bytes / f);
        x->summed += s->size_bytes / f;
    }
}

static bool wanted(const rui_worker *w, const rui_turn *turn)
{
    return turn->leads && turn->share.n < turn->share.batch &&
           (measured(turn->step) || w->noise.all_step == turn->step - 1);
}

/* With --deterministic squares are added in the order of gradients, not in that of arrival: then
 * a measured step is updated when all sums are there. */
bool rui_noise_holds(const rui_worker *w, const rui_turn *turn)
{
    return wanted(w, turn) && measured(turn->step) && w->opt->deterministic;
}

void rui_noise_summed(rui_worker *w, const rui_turn *turn, const rui_early_sum *s)
{
    rui_noise *x = &w->noise;
    if (!wanted(w, turn)) {
        return;
    }
    if (x->sum_step != turn->step) {
        x->sum_step = turn->step;
        x->sum = 0;
        x->summed = 0;
    }
    add(w, turn->step, s);
}

void rui_noise_commit(rui_worker *w, const rui_turn *turn)
{
    rui_noise *x = &w->noise;
    x->batch = turn->share.batch;
    x->estimate.every = apart(turn->step);
    if (x->alone && x->step == turn->step && x->before_step == turn->step - 1 &&
        measured(turn->step)) {
        put(w, 1, x->own, x->sum);
    }
    if (!wanted(w, turn)) {
        return;
    }
    ru_mutex_lock(&w->lock);
    uint32_t from = w->early.done, n = rui_noise_holds(w, turn) ? 0 : w->early.n;
    ru_mutex_unlock(&w->lock);
    for (uint32_t k = from; k < n; k++) { /* nothing is told of this step any more */
        rui_noise_summed(w, turn, &w->early.at[k]);
    }
    for (uint32_t k = 0; n == 0 && k < w->list.n_tensors; k++) {
        rui_noise_summed(w, turn, &(rui_early_sum){k, 0, w->list.tensor_bytes[k]});
    }
    if (measured(turn->step) && x->sum_step == turn->step && x->summed == x->elements) {
        x->all = x->sum;
        x->all_step = turn->step;
    }
    x->sum_step = -1;
}
