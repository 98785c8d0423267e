#include "launch/drift.h"

#include <math.h>
#include <stdio.h>

#include "train/pipe/again.h"
#include "train/pipe/sets.h"

enum { WINDOW = 50, BACK_OFF_MAX = 8 };
#define OFF    0.10 /* of the predicted step */
#define CHANGE 0.25 /* since the last look */
#define GAIN   1.05

void rui_drift_begin(rui_drift *d)
{
    d->sum_s = 0;
    d->n = 0;
    d->wait = 1;
    d->back_off = 0;
    d->looked_s = 0;
    d->next = NULL;
}

static ru_status look(rui_drift *d, const char *run, double mean_s, ru_arena *scratch, ru_err *err)
{
    ru_pipe_again a;
    ru_pipe_runs r = {.cut = d->cut,
                      .n_cut = d->n_cut,
                      .slow = RU_NEW(scratch, double, d->n_cut + 1),
                      .bytes_per_s = d->bytes_per_s};
    if (r.slow == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the cut of a pipeline");
    }
    RU_TRY(ru_pipe_runs_read(d->layers, run, scratch, &r, err));
    RU_TRY(ru_pipe_cut_again(d->layers, &r, scratch, &a, err));
    if (a.was_s > GAIN * a.will_s) {
        int64_t bytes = (int64_t)(d->n_cut * sizeof *a.cut);
        d->next = (const char *const *)ru_arena_copy(d->arena, a.cut, bytes, 8);
        if (d->next == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the cut of a pipeline");
        }
        d->next_s = mean_s * a.will_s / a.was_s; /* what the lists leave out stays */
        d->set = ru_sets_step(d->sets);
        (void)fprintf(stderr,
                      "a step takes %.3g ms, and %.3g ms were predicted; with the recorded times "
                      "another cut takes %.3g ms",
                      1e3 * mean_s, 1e3 * d->said_s, 1e3 * d->next_s);
        for (uint32_t k = 0; k < d->n_cut; k++) {
            (void)fprintf(stderr, "%s%s", k > 0 ? ", " : ": at ", a.cut[k]);
        }
        (void)fputc('\n', stderr);
    }
    return RU_OK;
}

bool rui_drift_step(rui_drift *d, const char *run, double step_s)
{
    ru_err ignored;
    if (d->layers == NULL || d->next != NULL) {
        return d->next != NULL && ru_sets_step(d->sets) > d->set;
    }
    d->sum_s += step_s;
    if (++d->n < WINDOW) {
        return false;
    }
    double mean_s = d->sum_s / WINDOW;
    d->sum_s = 0;
    d->n = 0;
    if (d->looked_s > 0 && fabs(mean_s / d->looked_s - 1) > CHANGE) {
        d->wait = d->back_off = 0;
    }
    if (d->wait > 0) {
        d->wait--;
    } else if (fabs(mean_s / d->said_s - 1) > OFF) {
        ru_arena scratch;
        ru_arena_init(&scratch, 0);
        /* Records that are not there yet, or not of this cut, come later. */
        (void)!look(d, run, mean_s, &scratch, &ignored);
        ru_arena_fini(&scratch);
        d->back_off = d->back_off < BACK_OFF_MAX ? 2 * d->back_off + 1 : BACK_OFF_MAX;
        d->wait = d->back_off;
        d->looked_s = mean_s;
    }
    return false;
}
