#include "plan/fleet/pick.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cost/math/norm.h"
#include "cost/math/quantile.h"
#include "cost/round.h"
#include "plan/fleet/pick_impl.h"

enum { KMEANS_MAX = 4096, KMEANS_GROUPS = 1024 };

static const double error_least = 0.02, credit_bound = 2, late_factor = 1.5, over_factor = 1.3;

void rui_pick_some(ru_rng *rng, uint32_t *pool, uint32_t n, uint32_t k)
{
    for (uint32_t i = 0; i < k && i + 1 < n; i++) {
        uint32_t j = i + ru_rng_below(rng, n - i), t = pool[i];
        pool[i] = pool[j];
        pool[j] = t;
    }
}

/* Indexes of clients that are there; their number. */
static uint32_t present(const ru_pick_in *in, uint32_t *into)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        if (!in->client[i].away) {
            into[n++] = i;
        }
    }
    return n;
}

static uint32_t edge(uint32_t place, uint32_t count, uint32_t n)
{
    return (uint32_t)((uint64_t)place * count / n);
}

/* Least squares of groups of neighbours: best[t][j] over the first j of n places in v, of which
 * place j is the edge at j count / n. */
static ru_status by_kmeans(const double *v, uint32_t count, uint32_t tiers, ru_arena *scratch,
                           uint32_t *tier, ru_err *err)
{
    uint32_t n = count > KMEANS_MAX ? KMEANS_GROUPS : count;
    double *sum = RU_NEW(scratch, double, n + 1), *square = RU_NEW(scratch, double, n + 1);
    double *best = RU_NEW(scratch, double, ((int64_t)tiers + 1) * (n + 1));
    uint32_t *cut = RU_NEW(scratch, uint32_t, ((int64_t)tiers + 1) * (n + 1));
    if (sum == NULL || square == NULL || best == NULL || cut == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for tiers of %u clients", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        sum[i + 1] = sum[i];
        square[i + 1] = square[i];
        for (uint32_t k = edge(i, count, n); k < edge(i + 1, count, n); k++) {
            sum[i + 1] += v[k];
            square[i + 1] += v[k] * v[k];
        }
        best[i + 1] = (double)INFINITY;
    }
    for (uint32_t t = 1; t <= tiers; t++) {
        for (uint32_t j = 0; j <= n; j++) {
            size_t at = (size_t)t * (n + 1) + j;
            best[at] = (double)INFINITY;
            for (uint32_t i = t - 1; i < j; i++) {
                double m = sum[j] - sum[i], left = square[j] - square[i] -
                                                   m * m / (edge(j, count, n) - edge(i, count, n));
                double c = best[(size_t)(t - 1) * (n + 1) + i] + fmax(left, 0);
                if (c < best[at]) {
                    best[at] = c;
                    cut[at] = i;
                }
            }
        }
    }
    for (uint32_t t = tiers, j = n; t >= 1; t--) {
        uint32_t from = cut[(size_t)t * (n + 1) + j];
        for (uint32_t i = edge(from, count, n); i < edge(j, count, n); i++) {
            tier[i] = t - 1;
        }
        j = from;
    }
    return RU_OK;
}

ru_status ru_pick_tiers(const ru_pick_in *in, ru_arena *scratch, uint32_t *into, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    uint32_t *there = RU_NEW(scratch, uint32_t, in->n), *order = RU_NEW(scratch, uint32_t, in->n);
    uint32_t *tier = RU_NEW(scratch, uint32_t, in->n);
    double *latency = RU_NEW(scratch, double, in->n), *rising = RU_NEW(scratch, double, in->n);
    if (there == NULL || order == NULL || tier == NULL || latency == NULL || rising == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for tiers of %u clients", in->n);
    }
    uint32_t n = present(in, there);
    if (in->n_tiers < 1 || in->n_tiers > RU_PICK_TIERS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "there are %u tiers, expected 1 to %d", in->n_tiers,
                       RU_PICK_TIERS_MAX);
    }
    if (n < in->n_tiers) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u available clients are too few for %u tiers", n,
                       in->n_tiers);
    }
    for (uint32_t i = 0; i < n; i++) {
        latency[i] = ru_num_log(in->client[there[i]].latency_s);
    }
    ru_sort_order_f64(latency, order, n);
    for (uint32_t i = 0; i < n; i++) {
        rising[i] = latency[order[i]];
        tier[i] = (uint32_t)((uint64_t)i * in->n_tiers / n);
    }
    if (in->kmeans) {
        RU_TRY(by_kmeans(rising, n, in->n_tiers, scratch, tier, err));
    }
    for (uint32_t i = 0; i < in->n; i++) {
        into[i] = RU_PICK_NONE;
    }
    for (uint32_t i = 0; i < n; i++) {
        into[there[order[i]]] = tier[i];
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

/* How many clients of each tier are in a round of tier t: all of its own up to per_round; a smaller
 * one is filled from the faster tiers, the nearest first, then from the slower ones. Returns the
 * tier from which a part is drawn by lot (of the others all or none come). */
static uint32_t take_of(const uint32_t *count, uint32_t n_tiers, uint32_t per_round, uint32_t t,
                        uint32_t *take)
{
    uint32_t left = per_round, part = t;
    memset(take, 0, n_tiers * sizeof *take);
    for (uint32_t k = 0; k < n_tiers && left > 0; k++) {
        uint32_t from = k <= t ? t - k : k;
        take[from] = count[from] < left ? count[from] : left;
        left -= take[from];
        part = take[from] > 0 ? from : part;
    }
    return part;
}

/* Seconds of a round in tier t: of the slowest of those drawn by lot, or of those that come anyway.
 * latency [n] is for use. */
static ru_status tier_seconds(const ru_pick_in *in, const uint32_t *tier_of, const uint32_t *count,
                              uint32_t t, double spread, double *latency, ru_arena *scratch,
                              double *seconds, ru_err *err)
{
    uint32_t take[RU_PICK_TIERS_MAX], n = 0;
    uint32_t part = take_of(count, in->n_tiers, in->per_round, t, take);
    double sure = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        uint32_t k = in->client[i].away ? RU_PICK_NONE : tier_of[i];
        if (k == part) {
            latency[n++] = in->client[i].latency_s;
        } else if (k < in->n_tiers && take[k] > 0) {
            sure = fmax(sure, in->client[i].latency_s);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        latency[i] = fmax(latency[i], sure);
    }
    ru_round_in r = {
        .latency_s = latency, .n = n, .spread = spread, .drawn = take[part], .wait = take[part]};
    return ru_round_mean(&r, scratch, seconds, err);
}

static void count_tiers(const ru_pick_in *in, const uint32_t *tier_of, uint32_t *count)
{
    memset(count, 0, in->n_tiers * sizeof *count);
    for (uint32_t i = 0; i < in->n; i++) {
        if (!in->client[i].away && tier_of[i] < in->n_tiers) {
            count[tier_of[i]]++;
        }
    }
}

/* A decision under way. */
typedef struct draft {
    const ru_pick_in *in;
    uint32_t count[RU_PICK_TIERS_MAX];
    double seconds[RU_PICK_TIERS_MAX]; /* of a round, without jitter */
    double chance[RU_PICK_TIERS_MAX], credits[RU_PICK_TIERS_MAX];
    const uint32_t *tier_of;
} draft;

static ru_status measure_tiers(draft *d, ru_arena *scratch, ru_err *err)
{
    const ru_pick_in *in = d->in;
    double *latency = RU_NEW(scratch, double, in->n);
    if (latency == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u clients", in->n);
    }
    count_tiers(in, d->tier_of, d->count);
    for (uint32_t t = 0; t < in->n_tiers; t++) {
        d->seconds[t] = 0;
        if (d->count[t] > 0) {
            RU_TRY(tier_seconds(in, d->tier_of, d->count, t, 0, latency, scratch, &d->seconds[t],
                                err));
        }
    }
    return RU_OK;
}

static void normalise(double *v, uint32_t n)
{
    double sum = 0;
    for (uint32_t t = 0; t < n; t++) {
        sum += v[t];
    }
    for (uint32_t t = 0; t < n; t++) {
        v[t] = sum > 0 ? v[t] / sum : 1.0 / n;
    }
}

/* clients error / sqrt(seconds); all errors alike without `accuracy`. */
static void allocate(const draft *d, bool accuracy, double *into)
{
    const ru_pick_in *in = d->in;
    for (uint32_t t = 0; t < in->n_tiers; t++) {
        double a = ru_pick_tier_now(in, t).accuracy;
        double e = accuracy && a >= 0 ? fmax(1 - a, error_least) : 1;
        into[t] = d->count[t] > 0 ? d->count[t] * e / sqrt(d->seconds[t]) : 0;
    }
    normalise(into, in->n_tiers);
}

static void first_credits(const draft *d, double *into)
{
    const ru_pick_in *in = d->in;
    uint32_t n = in->n_tiers;
    allocate(d, false, into);
    for (uint32_t t = 0; t < n; t++) {
        /* Published: .4 to .1 of the rounds for five tiers, fewer for slow ones. */
        double part = in->method == RU_PICK_TIFL ? 5.0 / n * (n > 1 ? 0.4 - 0.3 * t / (n - 1) : 0.2)
                                                 : credit_bound * into[t];
        into[t] = ceil(in->rounds * part);
    }
}

/* The last tier stalled: chances by rank of accuracy, lowest first, among those with credits. */
static void rank_chances(const draft *d, double *chance)
{
    const ru_pick_in *in = d->in;
    for (uint32_t t = 0; t < in->n_tiers; t++) {
        uint32_t above = 0;
        for (uint32_t o = 0; o < in->n_tiers; o++) {
            bool higher =
                ru_pick_tier_now(in, o).accuracy > ru_pick_tier_now(in, t).accuracy ||
                (ru_pick_tier_now(in, o).accuracy >= ru_pick_tier_now(in, t).accuracy && o > t);
            above += d->credits[o] > 0 && d->count[o] > 0 && higher ? 1 : 0;
        }
        chance[t] = d->credits[t] > 0 && d->count[t] > 0 ? above + 1 : 0;
    }
    normalise(chance, in->n_tiers);
}

static void fixed_chances(const draft *d, double *chance)
{
    static const double lot[5] = {0.7, 0.1, 0.1, 0.05, 0.05};
    const ru_pick_in *in = d->in;
    uint32_t n = in->n_tiers;
    for (uint32_t t = 0; t < n; t++) {
        chance[t] = in->method == RU_PICK_FAST     ? t == 0
                    : in->method == RU_PICK_SLOW   ? t == n - 1
                    : in->method == RU_PICK_RANDOM ? (n == 5   ? lot[t]
                                                      : t == 0 ? 0.7
                                                               : 0.3 / fmax(n - 1, 1))
                                                   : 1;
        chance[t] = d->count[t] > 0 ? chance[t] : 0;
    }
    normalise(chance, n);
}

static void choose_chances(draft *d)
{
    const ru_pick_in *in = d->in;
    double start[RU_PICK_TIERS_MAX];
    bool adaptive = in->method == RU_PICK_ADAPTIVE, tifl = in->method == RU_PICK_TIFL;
    bool look = in->n_chance == 0 || (in->round - 1) % in->interval == 0;
    first_credits(d, start);
    double left = 0;
    for (uint32_t t = 0; t < in->n_tiers; t++) {
        d->credits[t] =
            ru_pick_tier_now(in, t).credits >= 0 ? ru_pick_tier_now(in, t).credits : start[t];
        left += d->count[t] > 0 ? d->credits[t] : 0;
    }
    if (!(left >= 1)) {
        memcpy(d->credits, start, sizeof start); /* all are spent before the end */
    }
    if (in->n_chance > 0) {
        memcpy(d->chance, in->chance, in->n_tiers * sizeof *d->chance);
    } else if (tifl) {
        for (uint32_t t = 0; t < in->n_tiers; t++) {
            d->chance[t] = d->count[t] > 0 ? 1 : 0;
        }
        normalise(d->chance, in->n_tiers);
    }
    if (adaptive && look) {
        allocate(d, true, d->chance);
    }
    if (tifl && look && in->last_tier >= 0 && in->last_tier < in->n_tiers) {
        const ru_pick_tier l = ru_pick_tier_now(in, (uint32_t)in->last_tier);
        if (l.accuracy >= 0 && l.before >= 0 && l.accuracy <= l.before) {
            rank_chances(d, d->chance);
        }
    }
    if (!adaptive && !tifl) {
        fixed_chances(d, d->chance);
    }
}

static bool by_tiers(ru_pick_method m)
{
    return m == RU_PICK_ADAPTIVE || m == RU_PICK_TIFL || m >= RU_PICK_UNIFORM;
}

/* Tiers by an additive sequence, whose counts stay within a few of what chances say at any time:
 * the job lasts as long as predicted. Credits bound the adaptive methods only. */
static uint32_t draw_tier(draft *d)
{
    const ru_pick_in *in = d->in;
    bool bound = in->method == RU_PICK_ADAPTIVE || in->method == RU_PICK_TIFL;
    double weight[RU_PICK_TIERS_MAX], sum = 0;
    for (uint32_t t = 0; t < in->n_tiers; t++) {
        bool may = d->count[t] > 0 && (!bound || d->credits[t] >= 1);
        weight[t] = may ? d->chance[t] : 0;
        sum += weight[t];
    }
    if (!(sum > 0)) { /* credits are left only where chances are not */
        for (uint32_t t = 0; t < in->n_tiers; t++) {
            weight[t] = d->count[t] > 0 && (!bound || d->credits[t] >= 1) ? 1 : 0;
        }
    }
    normalise(weight, in->n_tiers);
    ru_rng start = ru_rng_from(in->seed, ru_rng_label("tiers"));
    double at = ru_rng_f64(&start) + in->round * 0.6180339887498949;
    at -= floor(at);
    uint32_t t = 0;
    while (t + 1 < in->n_tiers && (at >= weight[t] || !(weight[t] > 0))) {
        at -= weight[t++];
    }
    while (!(weight[t] > 0)) { /* rounding at the end */
        t--;
    }
    d->credits[t] -= bound ? 1 : 0;
    return t;
}

static ru_status check_in(const ru_pick_in *in, ru_err *err)
{
    if (in->n < 1 || in->n > RU_PICK_CLIENTS_MAX || in->n_tiers < 1 ||
        in->n_tiers > RU_PICK_TIERS_MAX || in->per_round < 1 || in->per_round > RU_PICK_ROUND_MAX ||
        in->round < 1 || in->interval < 1) {
        return RU_FAIL(
            err, RU_E_ARG,
            "the question is not valid: round %u with %u of %u clients (1 to %d) in %u tiers",
            in->round, in->per_round, in->n, RU_PICK_ROUND_MAX, in->n_tiers);
    }
    if ((in->n_told != 0 && in->n_told != in->n_tiers) ||
        (in->n_chance != 0 && in->n_chance != in->n_tiers)) {
        return RU_FAIL(err, RU_E_ARG, "%u of %u tiers are told, and chances of %u", in->n_told,
                       in->n_tiers, in->n_chance);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_pick_client *c = &in->client[i];
        if (!c->away && (!(c->latency_s > 0) || !isfinite(c->latency_s) || !(c->samples > 0))) {
            return RU_FAIL(err, RU_E_ARG,
                           "client %u answers in %g s and has %g samples; expected numbers above 0",
                           i, c->latency_s, c->samples);
        }
    }
    return RU_OK;
}

/* The clients of a round of tier t to the front of pool [n]; their number. */
static uint32_t fill_round(const draft *d, ru_rng *rng, uint32_t t, uint32_t *pool, uint32_t n)
{
    const ru_pick_in *in = d->in;
    uint32_t take[RU_PICK_TIERS_MAX], m = 0;
    (void)take_of(d->count, in->n_tiers, in->per_round, t, take);
    for (uint32_t k = 0; k < in->n_tiers; k++) {
        uint32_t from = k <= t ? t - k : k, end = m;
        for (uint32_t i = m; i < n && take[from] > 0; i++) {
            if (d->tier_of[pool[i]] == from) {
                uint32_t client = pool[i];
                pool[i] = pool[end];
                pool[end++] = client;
            }
        }
        rui_pick_some(rng, pool + m, end - m, take[from]);
        m += take[from];
    }
    return m;
}

/* The largest chance of a client to be in a round, over the rounds of all tiers. */
static double largest_share(const draft *d)
{
    const ru_pick_in *in = d->in;
    double share[RU_PICK_TIERS_MAX] = {0}, most = 0;
    for (uint32_t t = 0; t < in->n_tiers; t++) {
        uint32_t take[RU_PICK_TIERS_MAX];
        (void)take_of(d->count, in->n_tiers, in->per_round, t, take);
        for (uint32_t k = 0; k < in->n_tiers; k++) {
            share[k] += d->count[k] > 0 ? d->chance[t] * take[k] / d->count[k] : 0;
        }
    }
    for (uint32_t k = 0; k < in->n_tiers; k++) {
        most = fmax(most, share[k]);
    }
    return fmin(most, 1);
}

/* The same in the rounds of one tier. */
static double drawn_share(const draft *d, uint32_t tier)
{
    uint32_t take[RU_PICK_TIERS_MAX];
    double most = 0;
    (void)take_of(d->count, d->in->n_tiers, d->in->per_round, tier, take);
    for (uint32_t k = 0; k < d->in->n_tiers; k++) {
        most = fmax(most, d->count[k] > 0 ? (double)take[k] / d->count[k] : 0);
    }
    return most;
}

static ru_status choose(draft *d, ru_rng *rng, uint32_t *pool, ru_arena *scratch,
                        ru_pick_plan *plan, ru_err *err)
{
    const ru_pick_in *in = d->in;
    uint32_t n = present(in, pool);
    if (n < in->per_round) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u clients are available, but %u are needed", n,
                       in->per_round);
    }
    plan->tier = RU_PICK_NONE;
    plan->share_most = plan->share_drawn = 1;
    if (by_tiers(in->method)) {
        plan->tier = draw_tier(d);
        plan->n = plan->wait = fill_round(d, rng, plan->tier, pool, n);
        plan->share_most = largest_share(d);
        plan->share_drawn = drawn_share(d, plan->tier);
    } else if (in->method == RU_PICK_VANILLA || in->method == RU_PICK_OVER) {
        double want =
            in->method == RU_PICK_OVER ? ceil(over_factor * in->per_round - 1e-9) : in->per_round;
        plan->n = want < n ? (uint32_t)want : n;
        plan->wait = in->per_round;
        plan->share_most = plan->share_drawn = (double)plan->n / n;
        rui_pick_some(rng, pool, n, plan->n);
    } else {
        RU_TRY(rui_pick_clients(in, rng, pool, n, scratch, &plan->n, err));
        plan->wait = plan->n;
    }
    return RU_OK;
}

static void finish(const draft *d, uint32_t *pool, ru_pick_plan *plan)
{
    double slowest = 0;
    for (uint32_t i = 1; i < plan->n; i++) { /* rising */
        for (uint32_t j = i; j > 0 && pool[j - 1] > pool[j]; j--) {
            uint32_t t = pool[j];
            pool[j] = pool[j - 1];
            pool[j - 1] = t;
        }
    }
    for (uint32_t i = 0; i < plan->n; i++) {
        slowest = fmax(slowest, d->in->client[pool[i]].latency_s);
    }
    plan->client = pool;
    plan->deadline_s = d->in->deadline_s > 0 ? d->in->deadline_s : late_factor * slowest;
}

ru_status ru_plan_pick(const ru_pick_in *in, ru_arena *out, ru_arena *scratch, ru_pick_plan *plan,
                       ru_err *err)
{
    RU_TRY(check_in(in, err));
    draft d = {.in = in};
    uint32_t *pool = RU_NEW(out, uint32_t, in->n), *tier_of = RU_NEW(out, uint32_t, in->n);
    double *chance = RU_NEW(out, double, in->n_tiers), *credits = RU_NEW(out, double, in->n_tiers);
    if (pool == NULL || tier_of == NULL || chance == NULL || credits == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a round of %u clients", in->n);
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    if (in->tier_of != NULL) {
        memcpy(tier_of, in->tier_of, in->n * sizeof *tier_of);
    } else {
        RU_TRY(ru_pick_tiers(in, scratch, tier_of, err));
    }
    d.tier_of = tier_of;
    RU_TRY(measure_tiers(&d, scratch, err));
    choose_chances(&d);
    ru_rng rng = ru_rng_from(in->seed, in->round);
    ru_pick_plan p = {.n_tiers = in->n_tiers, .tier_of = tier_of};
    RU_TRY(choose(&d, &rng, pool, scratch, &p, err));
    finish(&d, pool, &p);
    memcpy(chance, d.chance, in->n_tiers * sizeof *chance);
    memcpy(credits, d.credits, in->n_tiers * sizeof *credits);
    p.chance = chance;
    p.credits = credits;
    *plan = p;
    if (out != scratch) {
        ru_arena_rewind(scratch, mark);
    }
    return RU_OK;
}

ru_status ru_pick_round_mean(const ru_pick_in *in, const ru_pick_plan *plan, ru_arena *scratch,
                             double *seconds, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    double *latency = RU_NEW(scratch, double, in->n);
    if (latency == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u clients", in->n);
    }
    double sum = 0;
    if (by_tiers(in->method)) {
        uint32_t count[RU_PICK_TIERS_MAX];
        count_tiers(in, plan->tier_of, count);
        for (uint32_t t = 0; t < in->n_tiers; t++) {
            double one = 0;
            if (count[t] > 0 && plan->chance[t] > 0) {
                RU_TRY(tier_seconds(in, plan->tier_of, count, t, in->spread, latency, scratch, &one,
                                    err));
            }
            sum += plan->chance[t] * one;
        }
    } else {
        uint32_t n = 0;
        for (uint32_t i = 0; i < in->n; i++) {
            if (!in->client[i].away) {
                latency[n++] = in->client[i].latency_s;
            }
        }
        ru_round_in r = {.latency_s = latency,
                         .n = n,
                         .spread = in->spread,
                         .drawn = plan->n,
                         .wait = plan->wait};
        RU_TRY(ru_round_mean(&r, scratch, &sum, err));
    }
    ru_arena_rewind(scratch, mark);
    *seconds = sum;
    return RU_OK;
}
