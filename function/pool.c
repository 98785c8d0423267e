#include "function/pool.h"

#include <stddef.h>

enum { FAILURES_MAX = 3 }; /* starts that fail one after the other before calls hear of it */
#define AGAIN_NS   INT64_C(50000000)
#define BILLING_NS INT64_C(1000000)

typedef enum state { NONE, STARTS, IDLE, BUSY, ENDS } state;

typedef struct instance {
    state is;
    uint32_t memory_mb;
    uint32_t call; /* BUSY */
    uint32_t try;  /* counts INVOKEs */
    bool fresh;    /* it has had no call yet */
    ru_time since; /* of this state */
} instance;

typedef struct call {
    uint64_t id;
    uint32_t next; /* of the free ones, or of those that wait, first come first served */
    uint32_t memory_mb, tries;
    bool cold;
    ru_time since, due; /* asked; not before (a try again) */
    int64_t run_ns, ran_ns, billed_ns;
} call;

struct ru_functions {
    ru_functions_options opt;
    instance *at; /* [n_at] */
    call *calls;  /* [n_calls] */
    uint32_t n_at, n_calls, free, first, last;
    uint32_t failures;
    ru_time told; /* the timer */
    ru_function_meter meter;
};

const char *ru_function_result_text(ru_function_result r)
{
    static const char *const text[RU_FUNCTION_RESULTS] = {"it answered",
                                                          "the function failed",
                                                          "too many calls at one time",
                                                          "the endpoint failed",
                                                          "its time is up",
                                                          "its instance died",
                                                          "its instance had too little memory",
                                                          "no instance starts"};
    return text[r];
}

ru_status ru_functions_init(const ru_functions_options *opt, ru_arena *arena, ru_functions **out,
                            ru_err *err)
{
    uint32_t n = opt->instances_max;
    if (n < 1 || n > RU_FUNCTIONS_MAX || opt->waiting_max > 1 << 20) {
        return RU_FAIL(err, RU_E_ARG,
                       "%u instances and %u calls that wait: expected 1 to %d instances and at "
                       "most %d calls",
                       n, opt->waiting_max, RU_FUNCTIONS_MAX, 1 << 20);
    }
    ru_functions *f = RU_NEW(arena, ru_functions, 1);
    uint32_t calls = n + opt->waiting_max;
    instance *at = RU_NEW(arena, instance, n);
    call *c = RU_NEW(arena, call, calls);
    if (f == NULL || at == NULL || c == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u instances and %u calls", n, calls);
    }
    *f = (ru_functions){.opt = *opt, .at = at, .calls = c, .n_at = n, .n_calls = calls};
    f->opt.tries_max = opt->tries_max != 0 ? opt->tries_max : 1;
    f->opt.again_ns = opt->again_ns != 0 ? opt->again_ns : AGAIN_NS;
    f->opt.billing_ns = opt->billing_ns != 0 ? opt->billing_ns : BILLING_NS;
    f->first = f->last = RU_FUNCTION_NONE;
    f->told = (ru_time){INT64_MAX};
    for (uint32_t k = 0; k < calls; k++) {
        c[k].next = k + 1 < calls ? k + 1 : RU_FUNCTION_NONE;
    }
    *out = f;
    return RU_OK;
}

/* -- calls that wait --------------------------------------------------------------------------
 */

static void wait_push(ru_functions *f, uint32_t c)
{
    f->calls[c].next = RU_FUNCTION_NONE;
    if (f->last == RU_FUNCTION_NONE) {
        f->first = c;
    } else {
        f->calls[f->last].next = c;
    }
    f->last = c;
    f->meter.waiting++;
}

static void wait_drop(ru_functions *f, uint32_t before, uint32_t c)
{
    uint32_t next = f->calls[c].next;
    if (before == RU_FUNCTION_NONE) {
        f->first = next;
    } else {
        f->calls[before].next = next;
    }
    f->last = f->last == c ? before : f->last;
    f->meter.waiting--;
}

static void answer(ru_functions *f, uint32_t c, ru_function_result r, uint32_t who, ru_time now,
                   ru_effects *fx)
{
    call *k = &f->calls[c];
    const ru_function_answer a = {.id = k->id,
                                  .result = r,
                                  .instance = who,
                                  .tries = k->tries,
                                  .cold = k->cold,
                                  .wait_ns = ru_time_since(now, k->since) - k->ran_ns,
                                  .run_ns = k->run_ns,
                                  .billed_ns = k->billed_ns};
    f->meter.of[r]++;
    k->next = f->free;
    f->free = c;
    ru_fx_local(fx, f->opt.what_first + RU_FUNCTION_ANSWER, 0, &a, sizeof a);
}

static void order(const ru_functions *f, ru_function_word word, const ru_function_order *o,
                  ru_effects *fx)
{
    ru_fx_local(fx, f->opt.what_first + (uint32_t)word, 0, o, sizeof *o);
}

/* -- instances ---------------------------------------------------------------------------------
 */

static void become(ru_functions *f, uint32_t i, state is, ru_time now)
{
    instance *x = &f->at[i];
    ru_function_meter *m = &f->meter;
    m->alive += (is != NONE ? 1u : 0u) - (x->is != NONE ? 1u : 0u);
    m->idle += (is == IDLE ? 1u : 0u) - (x->is == IDLE ? 1u : 0u);
    m->busy += (is == BUSY ? 1u : 0u) - (x->is == BUSY ? 1u : 0u);
    x->is = is;
    x->since = now;
}

static void end(ru_functions *f, uint32_t i, bool kill, ru_time now, ru_effects *fx)
{
    if (f->opt.remote) {
        become(f, i, NONE, now);
        return;
    }
    become(f, i, ENDS, now);
    const ru_function_order o = {.instance = i, .memory_mb = f->at[i].memory_mb, .kill = kill};
    order(f, RU_FUNCTION_END, &o, fx);
}

static void spawn(ru_functions *f, uint32_t i, uint32_t memory_mb, ru_time now, ru_effects *fx)
{
    f->at[i].memory_mb = memory_mb;
    f->at[i].fresh = !f->opt.remote;
    become(f, i, f->opt.remote ? IDLE : STARTS, now);
    if (!f->opt.remote) {
        const ru_function_order o = {.instance = i, .memory_mb = memory_mb};
        order(f, RU_FUNCTION_SPAWN, &o, fx);
    }
}

static void invoke(ru_functions *f, uint32_t i, uint32_t c, ru_time now, ru_effects *fx)
{
    instance *x = &f->at[i];
    call *k = &f->calls[c];
    x->call = c;
    x->try++;
    k->cold = k->cold || x->fresh;
    x->fresh = false;
    f->meter.again += k->tries > 0 ? 1 : 0;
    k->tries++;
    f->meter.calls++;
    become(f, i, BUSY, now);
    const ru_function_order o = {.instance = i,
                                 .memory_mb = x->memory_mb,
                                 .try = x->try,
                                 .id = k->id,
                                 .left_ns = f->opt.limit_ns};
    order(f, RU_FUNCTION_INVOKE, &o, fx);
}

/* The instance's call has ended so: billed, then again, or answered. */
static void settle(ru_functions *f, uint32_t i, ru_function_result r, ru_time now, ru_effects *fx)
{
    const instance *x = &f->at[i];
    uint32_t c = x->call;
    call *k = &f->calls[c];
    int64_t step = f->opt.billing_ns, ran = ru_time_since(now, x->since);
    k->run_ns = ran > 0 ? ran : 0;
    k->ran_ns += k->run_ns;
    if (r == RU_FUNCTION_THROTTLED) { /* it did not run */
        f->meter.calls--;
    } else {
        int64_t billed = (k->run_ns + step - 1) / step * step;
        k->billed_ns += billed;
        f->meter.billed_s += (double)billed * 1e-9;
        f->meter.gb_s += (double)billed * 1e-9 * x->memory_mb / 1024;
    }
    bool again = (r == RU_FUNCTION_THROTTLED || r == RU_FUNCTION_FAULT || r == RU_FUNCTION_DIED) &&
                 k->tries < f->opt.tries_max;
    if (!again) {
        answer(f, c, r, i, now, fx);
        return;
    }
    uint32_t twice = k->tries - 1 < 10 ? k->tries - 1 : 10;
    k->due = ru_time_after(now, f->opt.again_ns << twice);
    wait_push(f, c);
}

/* -- who gets whom -----------------------------------------------------------------------------
 */

/* Among the warm ones the one that was used last: the others may end. RU_FUNCTION_NONE: none. */
static uint32_t warm(const ru_functions *f, uint32_t memory_mb)
{
    uint32_t best = RU_FUNCTION_NONE;
    for (uint32_t i = 0; i < f->n_at; i++) {
        const instance *x = &f->at[i];
        if (x->is == IDLE && x->memory_mb == memory_mb &&
            (best == RU_FUNCTION_NONE || x->since.ns > f->at[best].since.ns)) {
            best = i;
        }
    }
    return best;
}

static uint32_t count(const ru_functions *f, state is, uint32_t memory_mb)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_at; i++) {
        n += f->at[i].is == is && f->at[i].memory_mb == memory_mb ? 1 : 0;
    }
    return n;
}

/* A call waits: an instance starts for it in a free place, or an idle one makes room, unless one of
 * them does so already. */
static void want(ru_functions *f, uint32_t c, ru_time now, ru_effects *fx)
{
    uint32_t memory_mb = f->calls[c].memory_mb, k = 0;
    uint32_t starts = count(f, STARTS, memory_mb), old = RU_FUNCTION_NONE, ends = 0;
    for (uint32_t p = f->first; p != c; p = f->calls[p].next) {
        k += f->calls[p].memory_mb == memory_mb ? 1 : 0;
    }
    if (k < starts) {
        return;
    }
    for (uint32_t i = 0; i < f->n_at; i++) {
        const instance *x = &f->at[i];
        if (x->is == NONE) {
            spawn(f, i, memory_mb, now, fx);
            return;
        }
        ends += x->is == ENDS ? 1 : 0;
        if (x->is == IDLE && x->memory_mb != memory_mb &&
            (old == RU_FUNCTION_NONE || x->since.ns < f->at[old].since.ns)) {
            old = i;
        }
    }
    if (old != RU_FUNCTION_NONE && k - starts >= ends) {
        end(f, old, false, now, fx);
    }
}

/* Calls that wait get what is warm, or start what they need. */
static void serve(ru_functions *f, ru_time now, ru_effects *fx)
{
    uint32_t before = RU_FUNCTION_NONE;
    if (f->meter.idle == 0 && f->meter.alive == f->n_at && f->failures < FAILURES_MAX) {
        return; /* none is warm, none can start */
    }
    for (uint32_t c = f->first, next; c != RU_FUNCTION_NONE; c = next) {
        call *k = &f->calls[c];
        next = k->next;
        if (f->failures >= FAILURES_MAX) {
            wait_drop(f, before, c);
            answer(f, c, RU_FUNCTION_START, RU_FUNCTION_NONE, now, fx);
            continue;
        }
        uint32_t i = RU_FUNCTION_NONE;
        if (ru_time_since(now, k->due) >= 0) {
            i = warm(f, k->memory_mb);
            if (i == RU_FUNCTION_NONE) {
                want(f, c, now, fx);
                i = f->opt.remote ? warm(f, k->memory_mb) : i;
            }
        }
        if (i == RU_FUNCTION_NONE) {
            before = c;
            continue;
        }
        wait_drop(f, before, c);
        invoke(f, i, c, now, fx);
    }
    f->failures = f->failures >= FAILURES_MAX ? 0 : f->failures;
}

/* -- events ------------------------------------------------------------------------------------
 */

static void on_call(ru_functions *f, const ru_function_call *ask, ru_time now, ru_effects *fx)
{
    uint32_t c = f->free;
    /* places of calls that run are not those of calls that wait */
    if (c != RU_FUNCTION_NONE) {
        call *k = &f->calls[c];
        f->free = k->next;
        *k = (call){.id = ask->id, .memory_mb = ask->memory_mb, .since = now, .due = now};
        wait_push(f, c);
        serve(f, now, fx);
        uint32_t come = 0; /* places that will take a call soon */
        for (uint32_t i = 0; i < f->n_at; i++) {
            come += f->at[i].is == STARTS || f->at[i].is == ENDS ? 1 : 0;
        }
        if (f->meter.waiting <= f->opt.waiting_max + come || f->last != c) {
            return;
        }
        uint32_t before = RU_FUNCTION_NONE; /* nothing can take it: out again */
        for (uint32_t p = f->first; p != c; p = f->calls[p].next) {
            before = p;
        }
        wait_drop(f, before, c);
        answer(f, c, RU_FUNCTION_THROTTLED, RU_FUNCTION_NONE, now, fx);
        return;
    }
    const ru_function_answer a = {
        .id = ask->id, .result = RU_FUNCTION_THROTTLED, .instance = RU_FUNCTION_NONE};
    f->meter.of[RU_FUNCTION_THROTTLED]++;
    ru_fx_local(fx, f->opt.what_first + RU_FUNCTION_ANSWER, 0, &a, sizeof a);
}

static void on_up(ru_functions *f, uint32_t i, ru_time now)
{
    instance *x = &f->at[i];
    if (x->is == STARTS) {
        f->failures = 0;
        f->meter.starts++;
        f->meter.start_ns += ru_time_since(now, x->since);
        become(f, i, IDLE, now);
    }
}

static void on_reply(ru_functions *f, const ru_function_reply *r, ru_time now, ru_effects *fx)
{
    if (f->at[r->instance].is != BUSY || f->at[r->instance].try != r->try) {
        return; /* too late: it was answered */
    }
    settle(f, r->instance, r->result, now, fx);
    bool broken =
        r->result == RU_FUNCTION_LATE || (r->result == RU_FUNCTION_FAULT && !f->opt.remote);
    if (broken) {
        end(f, r->instance, true, now, fx);
    } else {
        become(f, r->instance, IDLE, now);
    }
}

static void on_down(ru_functions *f, const ru_function_reply *r, ru_time now, ru_effects *fx)
{
    instance *x = &f->at[r->instance];
    if (x->is == BUSY) {
        settle(f, r->instance,
               r->result == RU_FUNCTION_MEMORY ? RU_FUNCTION_MEMORY : RU_FUNCTION_DIED, now, fx);
    }
    f->failures += x->is == STARTS ? 1 : 0;
    become(f, r->instance, NONE, now);
}

static int64_t allowed_ns(const ru_functions *f, const instance *x)
{
    return x->is == STARTS                   ? f->opt.start_max_ns
           : x->is == BUSY                   ? f->opt.limit_ns
           : x->is == IDLE && !f->opt.remote ? f->opt.keep_ns
                                             : 0;
}

/* What has had its time. A timer that comes late changes nothing but the time of the end. */
static void on_timer(ru_functions *f, ru_time now, ru_effects *fx)
{
    for (uint32_t i = 0; i < f->n_at; i++) {
        const instance *x = &f->at[i];
        int64_t allowed = allowed_ns(f, x);
        if (allowed == 0 || ru_time_since(now, x->since) < allowed) {
            continue;
        }
        if (x->is == BUSY) {
            settle(f, i, RU_FUNCTION_LATE, now, fx);
        }
        f->failures += x->is == STARTS ? 1 : 0;
        end(f, i, x->is != IDLE, now, fx);
    }
}

static ru_time next_time(const ru_functions *f, ru_time now)
{
    ru_time at = {INT64_MAX};
    for (uint32_t i = 0; i < f->n_at; i++) {
        int64_t allowed = allowed_ns(f, &f->at[i]);
        ru_time then = ru_time_after(f->at[i].since, allowed);
        at = allowed > 0 && then.ns < at.ns ? then : at;
    }
    for (uint32_t c = f->first; c != RU_FUNCTION_NONE; c = f->calls[c].next) {
        ru_time due = f->calls[c].due;
        at = ru_time_since(due, now) > 0 && due.ns < at.ns ? due : at;
    }
    return at;
}

void ru_functions_step(ru_functions *f, const ru_event *ev, ru_effects *fx)
{
    uint32_t word = ru_word(ev->what, f->opt.what_first, RU_FUNCTION_WORDS);
    if (ev->kind == RU_EV_TIMER && word == RU_FUNCTION_TIMER) {
        f->told.ns = INT64_MAX;
        on_timer(f, ev->now, fx);
    } else if (ev->kind == RU_EV_LOCAL) {
        if (word == RU_FUNCTION_CALL) {
            on_call(f, ru_event_data(ev, sizeof(ru_function_call)), ev->now, fx);
        } else if (word == RU_FUNCTION_UP) {
            RU_CHECK(ev->value >= 0 && ev->value < f->n_at);
            on_up(f, (uint32_t)ev->value, ev->now);
        } else if (word == RU_FUNCTION_REPLY || word == RU_FUNCTION_DOWN) {
            const ru_function_reply *r = ru_event_data(ev, sizeof *r);
            RU_CHECK(r->instance < f->n_at);
            (word == RU_FUNCTION_REPLY ? on_reply : on_down)(f, r, ev->now, fx);
        }
    }
    serve(f, ev->now, fx);
    ru_fx_wake(fx, f->opt.what_first + RU_FUNCTION_TIMER, next_time(f, ev->now), &f->told);
}

ru_function_meter ru_functions_meter(const ru_functions *f)
{
    return f->meter;
}
