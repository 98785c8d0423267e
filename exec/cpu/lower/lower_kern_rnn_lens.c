/* Sequences of a batch that are shorter than its time steps, for recurrent layers that compute all
 * steps of all samples. What is computed after a sequence's end is replaced; a sequence that runs
 * backward is turned round within its length first, and its results after.
 *
 *   before:  pre[0 .. len) turned, if backward
 *   after:   Y_h, Y_c as they were after step len - 1; Y[0 .. len) turned; Y[len ..) = 0 */
#include <string.h>

#include "exec/cpu/lower/lower_rnn.h"

typedef struct lens_state {
    int64_t steps, batch, hidden, width, y_step;
    bool turns;
} lens_state;

/* Rows 0 .. len of `n` floats, `step` apart, in the other order. */
static void turn(float *x, int64_t len, int64_t step, int64_t n)
{
    for (int64_t a = 0, b = len - 1; a < b; a++, b--) {
        float *p = x + a * step, *q = x + b * step;
        for (int64_t i = 0; i < n; i++) {
            float t = p[i];
            p[i] = q[i];
            q[i] = t;
        }
    }
}

/* bufs: lens pre */
static ru_status before_run(void *state, void *const *bufs, const rui_run *run)
{
    const lens_state *s = state;
    const int32_t *lens = bufs[0];
    for (int64_t b = 0; b < s->batch; b++) {
        if (lens[b] < 0 || lens[b] > s->steps) {
            return RU_FAIL(run->err, RU_E_DATA,
                           "sequence length %lld of sample %lld is outside 0 .. %lld",
                           (long long)lens[b], (long long)b, (long long)s->steps);
        }
        if (s->turns) {
            turn((float *)bufs[1] + b * s->width, lens[b], s->batch * s->width, s->width);
        }
    }
    return RU_OK;
}

enum { A_LENS, A_H0, A_C0, A_WS, A_Y, A_Y_H, A_Y_C, A_BUFS };

/* A state after the last step: from[len - 1], or what it was at first. */
static void last_state(const float *from, const float *first, float *to, int64_t h)
{
    if (to != NULL && from == NULL && first == NULL) {
        memset(to, 0, sizeof *to * (size_t)h);
    } else if (to != NULL) {
        memcpy(to, from != NULL ? from : first, sizeof *to * (size_t)h);
    }
}

static ru_status after_run(void *state, void *const *bufs, const rui_run *run)
{
    (void)run;
    const lens_state *s = state;
    const int32_t *lens = bufs[A_LENS];
    int64_t h = s->hidden, row = s->width + h; /* of the workspace: gates, then c */
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t len = lens[b], last = (len - 1) * s->batch + b;
        float *y = (float *)bufs[A_Y] + b * h;
        const float *h0 = bufs[A_H0], *c0 = bufs[A_C0], *ws = bufs[A_WS];
        float *yh = bufs[A_Y_H], *yc = bufs[A_Y_C];
        last_state(len > 0 ? y + (len - 1) * s->y_step : NULL, h0 == NULL ? NULL : h0 + b * h,
                   yh == NULL ? NULL : yh + b * h, h);
        last_state(ws != NULL && len > 0 ? ws + last * row + s->width : NULL,
                   c0 == NULL ? NULL : c0 + b * h, yc == NULL ? NULL : yc + b * h, h);
        if (s->turns) {
            turn(y, len, s->y_step, h);
        }
        for (int64_t t = len; t < s->steps; t++) {
            memset(y + t * s->y_step, 0, sizeof *y * (size_t)h);
        }
    }
    return RU_OK;
}

static lens_state *state_of(rui_low *lo, const rui_rnn_dims *d, bool turns)
{
    lens_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s != NULL) {
        *s = (lens_state){.steps = d->steps,
                          .batch = d->batch,
                          .hidden = d->hidden,
                          .width = d->gates * d->hidden,
                          .y_step = d->dirs * d->batch * d->hidden,
                          .turns = turns};
    }
    return s;
}

void rui_rnn_lens_before(rui_low *lo, const rui_rnn_dims *d, bool turns, rui_buf lens, rui_buf pre)
{
    rui_buf bufs[2] = {lens, pre};
    lens_state *s = state_of(lo, d, turns);
    if (s != NULL) {
        rui_emit(lo, &(rui_step){.kernel = "kern rnn lengths",
                                 .fn = before_run,
                                 .state = s,
                                 .bufs = bufs,
                                 .n_bufs = 2});
    }
}

void rui_rnn_lens_after(rui_low *lo, const rui_rnn_dims *d, bool turns, const rui_rnn_lens *l)
{
    rui_buf bufs[A_BUFS] = {[A_LENS] = l->lens, [A_H0] = l->h0,   [A_C0] = l->c0,  [A_WS] = l->ws,
                            [A_Y] = l->y,       [A_Y_H] = l->y_h, [A_Y_C] = l->y_c};
    lens_state *s = state_of(lo, d, turns);
    if (s != NULL) {
        rui_emit(lo, &(rui_step){.kernel = "kern rnn lengths",
                                 .fn = after_run,
                                 .state = s,
                                 .bufs = bufs,
                                 .n_bufs = A_BUFS});
    }
}
