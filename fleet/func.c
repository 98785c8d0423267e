#include "fleet/func.h"

#include <stdio.h>
#include <string.h>

enum { FAILURES = 5, SLOW_TIMES = 20, GRACE_TIMES = 3, LEFT_STEPS = 3, LEFT_PART = 20 };
static const int64_t stall_default_ns = 30000000000, start_default_ns = 120000000000,
                     grace_ns = 5000000000, again_ns = 100000000;

typedef enum state {
    PLANS,  /* waits for a choice */
    RUNS,   /* an epoch */
    FENCED, /* its workers have not all answered */
    WAITS,  /* a moment, after a failure */
    OVER,
} state;

struct ru_func {
    ru_func_options opt;
    state state;
    ru_func_choice choice;
    uint32_t epoch, fenced;
    uint32_t running;  /* calls of the epoch without an answer */
    uint32_t failures; /* one behind the other, without a step */
    int64_t done, epoch_first;
    bool last_said;  /* LAST */
    bool memory;     /* somebody had too little */
    bool busy;       /* the owner is */
    ru_time called;  /* this epoch */
    ru_time stepped; /* last step, or the beginning of the epoch */
    int64_t slow_ns; /* a step takes no longer, most of the time */
    ru_time told;    /* timer that was asked for */
    ru_time wake;    /* what FENCED, WAITS and RUNS wait for at most */
    char why[RU_FUNC_WHY_BYTES];
};

static uint32_t word(const ru_func *f, ru_func_word w)
{
    return f->opt.what_first + (uint32_t)w;
}

static void say(const ru_func *f, ru_effects *fx, ru_func_word w, int64_t value)
{
    (void)ru_fx_local(fx, word(f, w), value, NULL, 0);
}

static void wake_at(ru_func *f, ru_time at, ru_effects *fx)
{
    f->wake = at;
    ru_fx_wake(fx, word(f, RU_FUNC_TIMER), at, &f->told);
}

static void fail(ru_func *f, ru_status st, const char *why, ru_effects *fx)
{
    f->state = OVER;
    say(f, fx, RU_FUNC_FENCE, 0);
    (void)ru_fx_local(fx, word(f, RU_FUNC_FAILED), st, why, (int64_t)strlen(why) + 1);
}

static void plan(ru_func *f, ru_effects *fx)
{
    f->state = PLANS;
    f->memory = false;
    wake_at(f, (ru_time){INT64_MAX}, fx);
    say(f, fx, RU_FUNC_PLAN, f->done);
}

static void begin(ru_func *f, ru_time now, ru_effects *fx)
{
    f->state = RUNS;
    f->epoch++;
    f->epoch_first = f->done;
    f->running = f->choice.workers;
    f->last_said = false;
    f->called = f->stepped = now;
    f->slow_ns = 0;
    say(f, fx, RU_FUNC_EPOCH, f->epoch);
    say(f, fx, RU_FUNC_STATE, f->done);
    for (uint32_t k = 0; k < f->choice.workers; k++) {
        const ru_func_call c = {.epoch = f->epoch,
                                .rank = k,
                                .workers = f->choice.workers,
                                .memory_mb = f->choice.memory_mb,
                                .first = f->done,
                                .end = f->choice.end};
        (void)ru_fx_local(fx, word(f, RU_FUNC_CALL), 0, &c, sizeof c);
    }
    wake_at(f, ru_time_after(now, f->opt.stall_ns + f->opt.start_ns), fx);
}

/* A step that goes on now is done by then. */
static ru_time stalled_at(const ru_func *f, ru_time now)
{
    int64_t stall = SLOW_TIMES * f->slow_ns;
    return ru_time_after(now, stall > f->opt.stall_ns ? stall : f->opt.stall_ns);
}

/* All calls of the epoch have answered, or are written off. */
static void epoch_over(ru_func *f, ru_time now, ru_effects *fx)
{
    bool failed = f->done == f->epoch_first;
    f->failures = failed ? f->failures + 1 : 0;
    if (f->done >= f->opt.steps) { /* the owner ends it */
        wake_at(f, (ru_time){INT64_MAX}, fx);
    } else if (f->failures >= f->opt.failures_max) {
        char text[RU_FUNC_WHY_BYTES + 80];
        (void)snprintf(text, sizeof text, "%u times one behind the other no step was done: %s",
                       f->failures, f->why[0] != '\0' ? f->why : "no worker says why");
        fail(f, RU_E_PEER, text, fx);
    } else if (f->memory || f->done >= f->choice.end) {
        plan(f, fx);
    } else if (failed) {
        f->state = WAITS;
        wake_at(f, ru_time_after(now, again_ns << f->failures), fx);
    } else {
        begin(f, now, fx);
    }
}

static void fence(ru_func *f, ru_time now, ru_effects *fx)
{
    if (f->state != RUNS) {
        return;
    }
    int64_t wait = GRACE_TIMES * f->slow_ns;
    f->state = FENCED;
    f->fenced++;
    say(f, fx, RU_FUNC_FENCE, 0);
    wake_at(f, ru_time_after(now, wait > grace_ns ? wait : grace_ns), fx);
}

static void on_answer(ru_func *f, const ru_func_answer *a, ru_time now, ru_effects *fx)
{
    if (a->epoch != f->epoch || (f->state != RUNS && f->state != FENCED) || f->running == 0) {
        return;
    }
    f->running--;
    if (a->result != RU_FUNC_ENDED) {
        (void)snprintf(f->why, sizeof f->why, "%s", a->why);
    }
    if (a->result == RU_FUNC_REFUSED) {
        fail(f, RU_E_USER, f->why, fx);
        return;
    }
    f->memory = f->memory || a->result == RU_FUNC_MEMORY;
    bool early = a->result == RU_FUNC_ENDED && a->step < f->choice.end && !f->last_said;
    if ((a->result != RU_FUNC_ENDED || early) && f->done < f->opt.steps) {
        fence(f, now, fx);
    }
    if (f->running == 0) {
        epoch_over(f, now, fx);
    }
}

/* No worker may have ended it already. */
static void say_last(ru_func *f, ru_effects *fx)
{
    RU_CHECK(f->state == RUNS && !f->last_said);
    f->last_said = true;
    say(f, fx, RU_FUNC_LAST, f->done + f->opt.ahead);
}

static void on_summed(ru_func *f, int64_t step, ru_time now, ru_effects *fx)
{
    if (f->state != RUNS || step != f->done) {
        return;
    }
    int64_t took = ru_time_since(now, f->stepped), slow = f->slow_ns - f->slow_ns / 10;
    bool first = f->done == f->epoch_first; /* it has waited for instances */
    f->done++;
    f->stepped = now;
    f->failures = 0;
    f->slow_ns = first ? f->slow_ns : took > slow ? took : slow;
    wake_at(f, stalled_at(f, now), fx);
    if (f->opt.life_ns > 0 && !f->last_said && f->done < f->choice.end) {
        int64_t left = f->opt.life_ns - ru_time_since(now, f->called);
        int64_t steps = LEFT_STEPS + (int64_t)f->opt.ahead;
        if (left < steps * (first ? took : f->slow_ns) + f->opt.life_ns / LEFT_PART) {
            say_last(f, fx);
        }
    }
}

static void on_again(ru_func *f, ru_effects *fx)
{
    int64_t end = f->done + f->opt.ahead + 1;
    if (f->state != RUNS || end >= f->choice.end) {
        return;
    }
    f->choice.end = f->last_said ? f->done : end;
    if (!f->last_said) {
        say_last(f, fx);
    }
}

static void on_busy(ru_func *f, bool busy, ru_time now, ru_effects *fx)
{
    ru_time at = stalled_at(f, now);
    f->busy = busy;
    if (!busy && f->state == RUNS && at.ns > f->wake.ns) { /* steps go on only now */
        wake_at(f, at, fx);
    }
}

static void on_timer(ru_func *f, ru_time now, ru_effects *fx)
{
    f->told = (ru_time){INT64_MAX};
    if (now.ns < f->wake.ns) {
        wake_at(f, f->wake, fx);
    } else if (f->state == RUNS && f->busy) {
        wake_at(f, ru_time_after(now, f->opt.stall_ns), fx);
    } else if (f->state == RUNS) {
        (void)snprintf(f->why, sizeof f->why, "no step was done within %lld s",
                       (long long)(ru_time_since(now, f->stepped) / 1000000000));
        fence(f, now, fx);
    } else if (f->state == FENCED) {
        epoch_over(f, now, fx);
    } else if (f->state == WAITS) {
        begin(f, now, fx);
    }
}

ru_status ru_func_init(const ru_func_options *opt, ru_arena *arena, ru_func **out, ru_err *err)
{
    if (opt->first < 0 || opt->steps < opt->first || opt->life_ns < 0) {
        return RU_FAIL(err, RU_E_ARG, "steps %lld to %lld of a run on functions",
                       (long long)opt->first, (long long)opt->steps);
    }
    ru_func *f = RU_NEW(arena, ru_func, 1);
    if (f == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a run on functions");
    }
    *f = (ru_func){.opt = *opt, .done = opt->first, .told = {INT64_MAX}, .wake = {INT64_MAX}};
    f->opt.stall_ns = opt->stall_ns > 0 ? opt->stall_ns : stall_default_ns;
    f->opt.start_ns = opt->start_ns > 0 ? opt->start_ns : start_default_ns;
    f->opt.failures_max = opt->failures_max > 0 ? opt->failures_max : FAILURES;
    *out = f;
    return RU_OK;
}

void ru_func_step(ru_func *f, const ru_event *ev, ru_effects *fx)
{
    uint32_t w = ru_word(ev->what, f->opt.what_first, RU_FUNC_WORDS);
    if (f->state == OVER) {
        return;
    }
    if (ev->kind == RU_EV_START) {
        plan(f, fx);
    } else if (ev->kind == RU_EV_TIMER && w == RU_FUNC_TIMER) {
        on_timer(f, ev->now, fx);
    } else if (ev->kind == RU_EV_LOCAL && w == RU_FUNC_CHOICE && f->state == PLANS) {
        f->choice = *(const ru_func_choice *)ru_event_data(ev, sizeof f->choice);
        begin(f, ev->now, fx);
    } else if (ev->kind == RU_EV_LOCAL && w == RU_FUNC_ANSWER) {
        on_answer(f, ru_event_data(ev, sizeof(ru_func_answer)), ev->now, fx);
    } else if (ev->kind == RU_EV_LOCAL && w == RU_FUNC_SUMMED) {
        on_summed(f, ev->value, ev->now, fx);
    } else if (ev->kind == RU_EV_LOCAL && w == RU_FUNC_BUSY) {
        on_busy(f, ev->value != 0, ev->now, fx);
    } else if (ev->kind == RU_EV_LOCAL && w == RU_FUNC_AGAIN) {
        on_again(f, fx);
    } else if (ev->kind == RU_EV_LOCAL && w == RU_FUNC_STOP) {
        f->state = OVER;
        say(f, fx, RU_FUNC_FENCE, 0);
    }
}

ru_func_figures ru_func_figures_of(const ru_func *f)
{
    return (ru_func_figures){.epochs = f->epoch, .fenced = f->fenced, .done = f->done};
}
