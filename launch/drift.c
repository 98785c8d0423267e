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
    d->next.is = false;
}

void rui_drift_spares(rui_drift *d, uint32_t n)
{
    d->spares = n;
    d->tried = n < d->tried ? n : d->tried;
    d->next.is = d->next.is && d->next.workers <= d->now.workers + n; /* else one is gone */
}

static void say_where(const rui_next *x)
{
    for (uint32_t k = 0; k < x->cut.n; k++) {
        (void)fprintf(stderr, "%s%s", k > 0 ? ", " : ": at ", x->cut.at[k]);
    }
    (void)fputc('\n', stderr);
}

/* -- other times ------------------------------------------------------------------------------- */

/* By the records: a step with the plan in use and with another one. */
static ru_status look_cut(rui_drift *d, const char *run, ru_arena *scratch, double *was_s,
                          rui_next *to, ru_err *err)
{
    ru_pipe_choice c;
    uint32_t n = d->now.cut.n;
    ru_pipe_runs r = {.cut = d->now.cut.at,
                      .n_cut = n,
                      .speed = RU_NEW(scratch, double, n + 1),
                      .bytes_per_s = d->bytes_per_s};
    if (r.speed == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the cut of a pipeline");
    }
    RU_TRY(ru_pipe_runs_read(d->layers, run, scratch, &r, err));
    RU_TRY(ru_pipe_cut_again(d->layers, &r, scratch, was_s, &c, err));
    if (*was_s >
        GAIN * c.pipeline_s) { /* looks go on as long as the job: only what is taken stays */
        RU_TRY(ru_pipe_cut_again(d->layers, &r, d->arena, was_s, &c, err));
    }
    to->step_s = c.pipeline_s;
    to->cut = (ru_conf_texts){.at = c.cut, .n = c.n_cut};
    to->asked = c.asked;
    return RU_OK;
}

static ru_status look_devices(rui_drift *d, const char *run, ru_arena *scratch, double *was_s,
                              rui_next *to, ru_err *err)
{
    ru_units_choice c;
    double *speed;
    const ru_conf_pairs *now = &d->now.devices;
    uint32_t n = d->now.workers;
    RU_TRY(ru_units_speeds_read(d->asked, now, run, scratch, &speed, err));
    RU_TRY(ru_units_again(d->asked, now, speed, n, scratch, was_s, &c, err));
    if (c.used < n) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u devices are enough", c.used);
    }
    if (*was_s > GAIN * c.step_s) { /* as above */
        RU_TRY(ru_units_again(d->asked, now, speed, n, d->arena, was_s, &c, err));
    }
    to->step_s = c.step_s;
    to->devices = c.devices;
    to->back = c.back;
    to->asked = c.asked;
    return RU_OK;
}

static ru_status look(rui_drift *d, const char *run, double mean_s, ru_arena *scratch, ru_err *err)
{
    rui_next to = {.is = true, .workers = d->now.workers, .set = ru_sets_step(d->sets)};
    double was_s = 0;
    RU_TRY(d->layers != NULL ? look_cut(d, run, scratch, &was_s, &to, err)
                             : look_devices(d, run, scratch, &was_s, &to, err));
    if (was_s > GAIN * to.step_s) {
        to.step_s = mean_s * to.step_s / was_s; /* what the lists leave out stays */
        d->next = to;
        (void)fprintf(stderr,
                      "a step takes %.3g ms, and %.3g ms were predicted; with the recorded times "
                      "another %s takes %.3g ms",
                      1e3 * mean_s, 1e3 * d->now.step_s, d->layers != NULL ? "cut" : "placement",
                      1e3 * to.step_s);
        say_where(&to);
    }
    return RU_OK;
}

/* -- more workers ------------------------------------------------------------------------------ */

/* The policy's plan of so many; to->is: there is one. */
static ru_status plan(const rui_drift *d, uint32_t workers, rui_next *to, ru_err *err)
{
    *to = (rui_next){.workers = workers, .set = ru_sets_step(d->sets)};
    if (d->layers != NULL) {
        ru_pipe_choice c;
        RU_TRY(ru_pipe_choose(d->layers, workers, d->bytes_per_s, d->arena, &c, err));
        to->is = c.n_cut > 0;
        to->cut = (ru_conf_texts){.at = c.cut, .n = c.n_cut};
        to->stage_workers = (ru_conf_i64s){
            .at = c.workers, .n = c.n_cut > 0 && c.n_cut + 1 < workers ? c.n_cut + 1 : 0};
        to->step_s = c.pipeline_s;
        to->asked = c.asked;
    } else {
        ru_units_choice c;
        RU_TRY(ru_units_again(d->asked, NULL, NULL, workers, d->arena, NULL, &c, err));
        to->is = c.used == workers;
        to->devices = c.devices;
        to->back = c.back;
        to->step_s = c.step_s;
        to->asked = c.asked;
    }
    return RU_OK;
}

static ru_status look_for_more(rui_drift *d, ru_err *err)
{
    uint32_t n = d->now.workers;
    rui_next now, to, best = {.step_s = HUGE_VAL};
    RU_TRY(plan(d, n, &now, err));
    for (uint32_t k = n + 1; k <= n + d->spares && k <= d->most; k++) {
        RU_TRY(plan(d, k, &to, err));
        best = to.is && to.step_s < best.step_s ? to : best;
    }
    bool gains = now.is && best.is && now.step_s > GAIN * best.step_s;
    if (gains) {
        (void)fprintf(stderr, "predicted for a step of %u workers: %.3g ms, of %u: %.3g ms%s",
                      best.workers, 1e3 * best.step_s, n, 1e3 * now.step_s,
                      best.cut.n > 0 ? "" : "; who joined gets a device");
        say_where(&best);
        d->next = best;
    } else if (best.is) {
        (void)fprintf(stderr,
                      "predicted for a step of %u workers: %.3g ms, of %u: %.3g ms; who joined "
                      "stays a spare\n",
                      best.workers, 1e3 * best.step_s, n, 1e3 * now.step_s);
    } else {
        (void)fprintf(stderr, "no plan keeps more than %u workers busy; who joined stays a spare\n",
                      n);
    }
    return RU_OK;
}

/* -- steps ------------------------------------------------------------------------------------- */

bool rui_drift_step(rui_drift *d, const char *run, double step_s)
{
    ru_err ignored;
    bool watched = d->layers != NULL || d->asked != NULL;
    if (!watched || d->next.is) {
        return d->next.is && ru_sets_step(d->sets) > d->next.set;
    }
    if (d->spares > d->tried) {
        d->tried = d->spares;
        (void)!(d->now.workers < d->most ? look_for_more(d, &ignored) : RU_OK);
        return false;
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
    } else if (fabs(mean_s / d->now.step_s - 1) > OFF) {
        ru_arena scratch;
        ru_arena_init(&scratch, 0);
        /* Records that are not there yet, or not of this plan, come later. */
        (void)!look(d, run, mean_s, &scratch, &ignored);
        ru_arena_fini(&scratch);
        d->back_off = d->back_off < BACK_OFF_MAX ? 2 * d->back_off + 1 : BACK_OFF_MAX;
        d->wait = d->back_off;
        d->looked_s = mean_s;
    }
    return false;
}
