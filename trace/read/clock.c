/* Offsets from samples: a spanning tree of the best measured ties, and on each tie a local line.
 *
 * The bound of a round's offset is that of the sample nearby that says most: its own bound, how far
 * the line passes from it, and what the drift may be wrong by on the way there. */
#include "trace/read/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/read/clock_impl.h"

enum { AROUND = 30, NEAR = 3 };         /* rounds on each side: of a line; that bound an offset */
static const double DRIFT_OPEN = 2e-6;  /* what a line may be wrong by, besides its residuals */
static const double DRIFT_USUAL = 5e-5; /* of the quartz of a computer */

static int by_time(const void *pa, const void *pb)
{
    const ru_trace_peer *a = pa, *b = pb;
    return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

/* A line through the offsets around round i of a tie; `s` is sorted. Weights are 1 / bound^2, and a
 * drift of DRIFT_USUAL stands against them: rounds on a busy machine tell little of it. *slope_off:
 * what the slope may be wrong by. */
static void fit_line(const ru_trace_peer *s, uint32_t n, uint32_t i, double *at_i, double *slope,
                     double *slope_off)
{
    uint32_t from = i > AROUND ? i - AROUND : 0, to = i + AROUND + 1 < n ? i + AROUND + 1 : n;
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    for (uint32_t k = from; k < to; k++) {
        double b = (double)(s[k].bound_ns > 1000 ? s[k].bound_ns : 1000), q = 1e6 / (b * b);
        double x = (double)(s[k].at_ns - s[i].at_ns) * 1e-9;
        double y = (double)(s[k].offset_ns - s[i].offset_ns);
        w += q;
        wx += q * x;
        wy += q * y;
        wxx += q * x * x;
        wxy += q * x * y;
    }
    double d = wxx - wx * wx / w, usual = 1e6 / (1e18 * DRIFT_USUAL * DRIFT_USUAL);
    *slope = d > 0 ? (wxy - wx * wy / w) / (d + usual) : 0;
    *slope_off = 1e3 / sqrt((d > 0 ? d : 0) + usual);
    *at_i = (wy - *slope * wx) / w;
}

/* Sums of a few of these do not overflow: hostile files end as nonsense, not as a crash. */
static double limited(double x)
{
    return x > 1e18 ? 1e18 : x < -1e18 ? -1e18 : x;
}

static int64_t limited_ns(int64_t ns)
{
    const int64_t limit = INT64_C(1) << 60;
    return ns > limit ? limit : ns < -limit ? -limit : ns;
}

static bool believable(const ru_trace_peer *p)
{
    const int64_t limit = INT64_C(1) << 58;
    return p->at_ns < limit && p->at_ns > -limit && p->offset_ns < limit && p->offset_ns > -limit &&
           p->bound_ns < limit;
}

static ru_status fit_tie(rui_tie *tie, ru_arena *arena, ru_err *err)
{
    ru_trace_peer *s = tie->samples;
    uint32_t n = tie->n;
    qsort(s, n, sizeof *s, by_time);
    ru_trace_knot *at = RU_NEW(arena, ru_trace_knot, n);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the clocks is full");
    }
    for (uint32_t i = 0; i < n; i++) {
        double off, slope, slope_off, best = (double)INFINITY;
        fit_line(s, n, i, &off, &slope, &slope_off);
        for (uint32_t k = i > NEAR ? i - NEAR : 0; k < n && k <= i + NEAR; k++) {
            double x = (double)(s[k].at_ns - s[i].at_ns) * 1e-9;
            double y = (double)(s[k].offset_ns - s[i].offset_ns);
            double b = (double)s[k].bound_ns + fabs(off + slope * x - y) +
                       fabs(x) * (slope_off + 1e9 * DRIFT_OPEN);
            best = b < best ? b : best;
        }
        at[i] = (ru_trace_knot){.at_ns = s[i].at_ns,
                                .offset_ns = limited_ns(s[i].offset_ns + (int64_t)limited(off)),
                                .bound_ns = (int64_t)limited(best)};
    }
    tie->knots = at;
    tie->weight = at[n / 2].bound_ns;
    return RU_OK;
}

/* -- a line of knots ------------------------------------------------------------------------------
 */

static uint32_t knot_before(const ru_trace_knot *k, uint32_t n, int64_t ns)
{
    uint32_t lo = 0, hi = n;
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        *(k[mid].at_ns <= ns ? &lo : &hi) = mid;
    }
    return lo;
}

int64_t rui_knots_offset(const ru_trace_knot *k, uint32_t n, int64_t ns)
{
    if (n == 1) {
        return k[0].offset_ns;
    }
    uint32_t i = knot_before(k, n, ns);
    i = i + 1 < n ? i : n - 2;
    double span = (double)(k[i + 1].at_ns - k[i].at_ns);
    double rise = (double)(k[i + 1].offset_ns - k[i].offset_ns);
    double t = span > 0 ? (double)(ns - k[i].at_ns) / span : 0;
    return k[i].offset_ns + (int64_t)limited(rise * t);
}

int64_t rui_knots_bound(const ru_trace_knot *k, uint32_t n, int64_t ns)
{
    uint32_t i = knot_before(k, n, ns), j = i + 1 < n ? i + 1 : i;
    int64_t a = k[i].bound_ns, b = k[j].bound_ns;
    int64_t beyond = ns < k[0].at_ns       ? k[0].at_ns - ns
                     : ns > k[n - 1].at_ns ? ns - k[n - 1].at_ns
                                           : 0;
    double drift = n > 1 ? 10 * DRIFT_OPEN : 1e-4; /* one sample tells no drift */
    return (a > b ? a : b) + (int64_t)((double)beyond * drift);
}

/* -- ties -----------------------------------------------------------------------------------------
 */

static uint32_t trace_of(const ru_trace *t, uint32_t n, uint64_t node)
{
    for (uint32_t i = 0; i < n; i++) {
        if (t[i].node == node) {
            return i;
        }
    }
    return n;
}

/* Samples of each pair, seen from `a`: the clock of b less that of a. */
static ru_status ties_of(const ru_trace *t, uint32_t n, ru_arena *arena, rui_tie **out,
                         uint32_t *n_out, ru_err *err)
{
    uint32_t most = 0;
    for (uint32_t a = 0; a < n; a++) {
        most += t[a].n_peers;
    }
    rui_tie *ties = RU_NEW(arena, rui_tie, most);
    if (ties == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the clocks is full");
    }
    uint32_t used = 0;
    for (uint32_t a = 0; a < n; a++) {
        uint32_t mine = used;
        for (uint32_t i = 0; i < t[a].n_peers; i++) {
            const ru_trace_peer *p = &t[a].peers[i];
            uint32_t b = trace_of(t, n, p->peer), k = mine;
            if (p->peer == 0 || b == n || b == a || !believable(p)) {
                continue;
            }
            while (k < used && ties[k].b != b) {
                k++;
            }
            if (k == used) {
                ru_trace_peer *room = RU_NEW(arena, ru_trace_peer, t[a].n_peers - i);
                if (room == NULL) {
                    return RU_FAIL(err, RU_E_LIMIT, "the arena for the clocks is full");
                }
                ties[used++] = (rui_tie){.a = a, .b = b, .samples = room};
            }
            ties[k].samples[ties[k].n++] = *p;
        }
        for (uint32_t k = mine; k < used; k++) {
            RU_TRY(fit_tie(&ties[k], arena, err));
        }
    }
    *out = ties;
    *n_out = used;
    return RU_OK;
}

/* Trace `to` by its tie with `from`, whose knots are known. Knots stand where the rounds were. */
static ru_status place(ru_trace_clocks *c, ru_trace_knot **knots, const rui_tie *tie, uint32_t from,
                       ru_arena *arena, ru_err *err)
{
    bool forward = tie->a == from; /* the samples are by the clock of `from` */
    uint32_t to = forward ? tie->b : tie->a;
    knots[to] = RU_NEW(arena, ru_trace_knot, tie->n);
    if (knots[to] == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the clocks is full");
    }
    for (uint32_t i = 0; i < tie->n; i++) {
        const ru_trace_knot *k = &tie->knots[i];
        /* k->offset_ns: b less a at a's k->at_ns. */
        int64_t b_ns = limited_ns(k->at_ns + k->offset_ns);
        int64_t own = forward ? b_ns : k->at_ns, theirs = forward ? k->at_ns : b_ns;
        int64_t base = rui_knots_offset(knots[from], c->n_knots[from], theirs);
        int64_t bound =
            from == c->reference ? 0 : rui_knots_bound(knots[from], c->n_knots[from], theirs);
        knots[to][i] = (ru_trace_knot){.at_ns = own,
                                       .offset_ns = limited_ns(theirs + base - own),
                                       .bound_ns = limited_ns(k->bound_ns + bound)};
    }
    c->n_knots[to] = tie->n;
    c->measured[to] = true;
    return RU_OK;
}

/* Prim's tree from the reference: the best tie first. */
static ru_status grow(ru_trace_clocks *c, ru_trace_knot **knots, const rui_tie *ties, uint32_t n,
                      ru_arena *arena, ru_err *err)
{
    for (;;) {
        const rui_tie *best = NULL;
        for (uint32_t i = 0; i < n; i++) {
            bool out = c->measured[ties[i].a] != c->measured[ties[i].b];
            best = out && (best == NULL || ties[i].weight < best->weight) ? &ties[i] : best;
        }
        if (best == NULL) {
            return RU_OK;
        }
        uint32_t from = c->measured[best->a] ? best->a : best->b;
        RU_TRY(place(c, knots, best, from, arena, err));
    }
}

static ru_status by_wall(const ru_trace *t, ru_trace_clocks *c, ru_trace_knot **knots,
                         ru_arena *arena, ru_err *err)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->n_knots[i] > 0) {
            continue;
        }
        knots[i] = RU_NEW(arena, ru_trace_knot, 1);
        if (knots[i] == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena for the clocks is full");
        }
        int64_t global = t[i].wall_ns - c->wall_ns;
        knots[i][0] = (ru_trace_knot){t[i].mono_ns, limited_ns(global - t[i].mono_ns), 0};
        c->n_knots[i] = 1;
    }
    return RU_OK;
}

/* The least rank that has ties; where none has, the first. */
static uint32_t reference_of(const ru_trace *t, uint32_t n, const rui_tie *ties, uint32_t n_ties)
{
    uint32_t best = n;
    for (uint32_t i = 0; i < 2 * n_ties; i++) {
        uint32_t k = i % 2 == 0 ? ties[i / 2].a : ties[i / 2].b;
        bool less =
            best == n || t[k].rank < t[best].rank || (t[k].rank == t[best].rank && k < best);
        best = less ? k : best;
    }
    return best == n ? 0 : best;
}

ru_status ru_trace_align(const ru_trace *traces, uint32_t n, ru_arena *arena, ru_trace_clocks *out,
                         ru_err *err)
{
    ru_trace_clocks c = {.n = n};
    rui_tie *ties = NULL;
    uint32_t n_ties = 0;
    RU_TRY(ties_of(traces, n, arena, &ties, &n_ties, err));
    ru_trace_knot **knots = RU_NEW(arena, ru_trace_knot *, n);
    ru_trace_knot *origin = RU_NEW(arena, ru_trace_knot, 1);
    c.n_knots = RU_NEW(arena, uint32_t, n);
    c.measured = RU_NEW(arena, bool, n);
    if (knots == NULL || origin == NULL || c.n_knots == NULL || c.measured == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the clocks is full");
    }
    c.reference = reference_of(traces, n, ties, n_ties);
    if (n > 0) {
        const ru_trace *r = &traces[c.reference];
        *origin = (ru_trace_knot){.at_ns = r->mono_ns};
        knots[c.reference] = origin;
        c.n_knots[c.reference] = 1;
        c.measured[c.reference] = true;
        c.wall_ns = r->wall_ns - r->mono_ns;
        RU_TRY(grow(&c, knots, ties, n_ties, arena, err));
        RU_TRY(by_wall(traces, &c, knots, arena, err));
    }
    RU_TRY(rui_clock_repair(traces, &c, knots, arena, err));
    c.knots = RU_NEW(arena, const ru_trace_knot *, n);
    if (c.knots == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the clocks is full");
    }
    for (uint32_t i = 0; i < n; i++) {
        c.knots[i] = knots[i];
    }
    *out = c;
    return RU_OK;
}

int64_t ru_trace_global(const ru_trace_clocks *c, uint32_t k, int64_t ns)
{
    return c == NULL ? ns : ns + rui_knots_offset(c->knots[k], c->n_knots[k], ns);
}

int64_t ru_trace_bound(const ru_trace_clocks *c, uint32_t k, int64_t ns)
{
    if (c == NULL || !c->measured[k]) {
        return -1;
    }
    return k == c->reference ? 0 : rui_knots_bound(c->knots[k], c->n_knots[k], ns);
}

int64_t ru_trace_bound_of(const ru_trace_clocks *c, uint32_t k, const ru_trace *t)
{
    const int64_t at[] = {t->first_ns, t->first_ns + (t->last_ns - t->first_ns) / 2, t->last_ns};
    int64_t most = -1;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(at); i++) {
        int64_t bound = ru_trace_bound(c, k, at[i]);
        most = bound > most ? bound : most;
    }
    return most;
}
