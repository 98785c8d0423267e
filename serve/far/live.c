/* What batches take now, of what the probes said. Both as they are billed, in whole steps: the mean
 * of what is billed is not what a mean would cost.
 *
 * Of each class, memory and size it is the mean of its last calls, drawn towards what all calls
 * took, of what the probes said of them all. That one weighs calls by their time: what delays a
 * short one (a core that is taken) delays a long one by hardly more. Calls of a size that come no
 * more count less and less. */
#include <math.h>

#include "serve/far/far_impl.h"

enum {
    LATELY = 64, /* calls: of all, */
    OWN = 256,   /* and of one size */
    PRIOR = 8,   /* calls that an estimate from elsewhere counts as */
    FADE = 512,  /* calls of others after which those of a size count half */
    OLD = 3,     /* such halves, where calls are no more as they were */
    WARM = 32,   /* answers */
};
#define MOST  10   /* times as long: a call beyond it says nothing of the next ones */
#define NEWS  1.05 /* calls that are so far off what the choice knows ask for another one; */
#define STRAY 1.2  /* so far off: those before them say little of what comes */

double rui_far_slow(const rui_far *f)
{
    return f->live.said_s > 0 ? f->live.ran_s / f->live.said_s : 1;
}

static double weight(const rui_far_live *l, const rui_far_cell *c)
{
    return c->n * exp2(-(double)(l->n - c->at) / FADE);
}

static double times_of(const rui_far *f, const rui_far_cell *c)
{
    double n = weight(&f->live, c);
    return (PRIOR * rui_far_slow(f) + n * c->times) / (PRIOR + n);
}

double rui_far_now_s(const rui_far *f, uint32_t class_of, uint32_t memory, uint32_t k)
{
    const rui_far_cell *c = &f->live.cell[class_of][memory][rui_far_rows(f, k)];
    return rui_far_service_s(f, class_of, memory, k) * times_of(f, c);
}

double rui_far_known_s(const rui_far *f, uint32_t class_of, uint32_t memory, uint32_t k)
{
    return rui_far_service_s(f, class_of, memory, k) *
           f->facts.times[class_of][memory][rui_far_rows(f, k)];
}

/* Are the calls since the choice far off what it knows? */
static void compare(rui_far *f, double ran_s, double known_s)
{
    rui_far_live *l = &f->live;
    l->since_ran_s += ran_s;
    l->since_known_s += known_s;
    if (++l->since_n == LATELY) {
        double off = l->since_ran_s / l->since_known_s;
        l->strays = l->strays || off > NEWS || off < 1 / NEWS;
        l->n += off > STRAY || off < 1 / STRAY ? OLD * FADE : 0;
        l->since_ran_s = l->since_known_s = 0;
        l->since_n = 0;
    }
}

void rui_far_ran(rui_far *f, uint32_t class_of, uint32_t memory, uint32_t k, double s)
{
    rui_far_live *l = &f->live;
    uint32_t size = rui_far_rows(f, k);
    double said = rui_far_service_s(f, class_of, memory, k),
           step = (double)RUI_FAR_BILLING_NS * 1e-9;
    double ran = fmin(step * ceil(s / step - 1e-9), MOST * said);
    if (k > 1u << size || said >= RUI_FAR_NEVER_S) { /* nothing was said of it */
        return;
    }
    if (l->n == 0) {
        l->ran_s = l->said_s = PRIOR * said;
    }
    double off = ran - rui_far_now_s(f, class_of, memory, k);
    l->spread += (off * off - l->spread) / LATELY;
    l->ran_s += ran - l->ran_s / LATELY;
    l->said_s += said - l->said_s / LATELY;
    rui_far_cell *c = &l->cell[class_of][memory][size];
    c->n = fmin(weight(l, c) + 1, OWN);
    c->times += (ran / said - c->times) / c->n;
    c->at = ++l->n;
    if (f->mean_s > 0) {
        compare(f, ran, said * f->facts.times[class_of][memory][size]);
    }
}

/* The first answers of a choice wait for instances that start for any load. */
void rui_far_waited(rui_far *f, double s)
{
    rui_far_live *l = &f->live;
    bool old = f->took.n < WARM || l->waited_n >= RUI_FAR_CAME;
    l->waited_s = old ? 0 : l->waited_s + s;
    l->waited_n = old ? 0 : l->waited_n + 1;
}

/* Few calls say little of the chance of a start; a delay beyond half of the promise says nothing
 * else than that one. */
static void fit_delay(rui_far *f)
{
    const rui_far_live *l = &f->live;
    rui_far_facts *x = &f->facts;
    x->cold_s = l->waited_n > 0 ? l->waited_s / (double)(l->waited_n + LATELY) : x->cold_s;
    x->cold_s = fmin(x->cold_s, 0.25 * rui_far_slo_s(f));
    x->delay_s = fmin(x->cold_s + sqrt(l->spread), 0.5 * rui_far_slo_s(f));
}

void rui_far_live_fit(rui_far *f)
{
    rui_far_live *l = &f->live;
    fit_delay(f);
    uint32_t classes = f->size != NULL ? f->size->n : 1;
    for (uint32_t i = 0; i < classes * f->n_memory * f->n_sizes; i++) {
        uint32_t k = i % f->n_sizes, m = i / f->n_sizes % f->n_memory;
        uint32_t c = i / f->n_sizes / f->n_memory;
        f->facts.times[c][m][k] = times_of(f, &l->cell[c][m][k]);
    }
    l->since_ran_s = l->since_known_s = 0;
    l->since_n = 0;
    l->strays = false;
}
