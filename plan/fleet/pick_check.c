/* The checker of rounds: who, of which tier, with which chances, by sums over all clients. */
#include <math.h>
#include <stddef.h>

#include "plan/fleet/pick.h"

static const double near = 1e-9;

static ru_status bad(ru_err *err, const char *what, double is, double want)
{
    return RU_FAIL(err, RU_E_INFEASIBLE, "%s is %.9g, expected %.9g", what, is, want);
}

typedef struct tiers {
    double count[RU_PICK_TIERS_MAX], fastest[RU_PICK_TIERS_MAX], slowest[RU_PICK_TIERS_MAX];
} tiers;

static ru_status check_tiers(const ru_pick_in *in, const ru_pick_plan *p, tiers *t, ru_err *err)
{
    double there = 0;
    for (uint32_t k = 0; k < in->n_tiers; k++) {
        t->count[k] = t->slowest[k] = 0;
        t->fastest[k] = (double)INFINITY;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_pick_client *c = &in->client[i];
        uint32_t k = p->tier_of[i];
        bool given = in->tier_of == NULL || in->tier_of[i] == k;
        if (!given ||
            (k >= in->n_tiers && !(k == RU_PICK_NONE && (c->away || in->tier_of != NULL)))) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "client %u is in tier %u", i, k);
        }
        if (!c->away && k < in->n_tiers) {
            t->count[k]++;
            there++;
            t->fastest[k] = fmin(t->fastest[k], c->latency_s);
            t->slowest[k] = fmax(t->slowest[k], c->latency_s);
        }
    }
    for (uint32_t k = 0; k < in->n_tiers && in->tier_of == NULL; k++) {
        if (!(t->count[k] > 0) || (k > 0 && t->fastest[k] < t->slowest[k - 1])) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "tier %u is empty or faster than the one before",
                           k);
        }
        if (!in->kmeans && fabs(t->count[k] - there / in->n_tiers) >= 1) {
            return bad(err, "the number of clients of a tier", t->count[k], there / in->n_tiers);
        }
    }
    return RU_OK;
}

static bool tiered(ru_pick_method m)
{
    return m == RU_PICK_ADAPTIVE || m == RU_PICK_TIFL || m >= RU_PICK_UNIFORM;
}

/* Clients of tier k in a round of tier t, by walking away from t: those of nearer tiers come first,
 * all faster tiers before any slower one. */
static double share_of_tier(const ru_pick_in *in, const tiers *t, uint32_t of, uint32_t k)
{
    double nearer = 0;
    for (uint32_t j = 0; j < in->n_tiers; j++) {
        bool slower = j > of;
        bool before = k <= of ? !slower && j > k : !slower || j < k;
        nearer += before ? t->count[j] : 0;
    }
    return fmax(0, fmin(in->per_round - nearer, t->count[k]));
}

static ru_status check_shares(const ru_pick_in *in, const ru_pick_plan *p, const tiers *t,
                              ru_err *err)
{
    double got[RU_PICK_TIERS_MAX] = {0};
    for (uint32_t k = 0; k < p->n; k++) {
        uint32_t of = p->tier_of[p->client[k]];
        if (of >= in->n_tiers) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "client %u is of no tier", p->client[k]);
        }
        got[of]++;
    }
    for (uint32_t k = 0; k < in->n_tiers; k++) {
        double want = share_of_tier(in, t, p->tier, k);
        if (got[k] != want) {
            return bad(err, "the number of clients of a tier in the round", got[k], want);
        }
    }
    return RU_OK;
}

static ru_status check_clients(const ru_pick_in *in, const ru_pick_plan *p, const tiers *t,
                               ru_err *err)
{
    double slowest = 0, there = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        there += in->client[i].away ? 0 : 1;
    }
    for (uint32_t k = 0; k < p->n; k++) {
        uint32_t i = p->client[k];
        if (i >= in->n || in->client[i].away || (k > 0 && p->client[k - 1] >= i)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "client %u is not available or appears twice", i);
        }
        slowest = fmax(slowest, in->client[i].latency_s);
    }
    double want = in->per_round;
    if (tiered(in->method)) {
        if (p->tier >= in->n_tiers) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "tier %u of %u", p->tier, in->n_tiers);
        }
        double tiered_there = 0;
        for (uint32_t k = 0; k < in->n_tiers; k++) {
            tiered_there += t->count[k];
        }
        want = fmin(want, tiered_there);
        RU_TRY(check_shares(in, p, t, err));
    } else if (in->method == RU_PICK_OVER) {
        want = fmin(ceil(1.3 * want - near), there);
    } else if (in->method == RU_PICK_FEDCS) {
        want = p->n >= 1 && p->n <= in->per_round ? p->n : want;
        if (in->fedcs_s > 0 && slowest > in->fedcs_s && p->n > 1) {
            return bad(err, "the slowest admitted client [s]", slowest, in->fedcs_s);
        }
    }
    if (p->n != want) {
        return bad(err, "the number of clients", p->n, want);
    }
    double wait = in->method == RU_PICK_OVER ? in->per_round : p->n;
    if (p->wait != wait) {
        return bad(err, "the number of answers", p->wait, wait);
    }
    double deadline = in->deadline_s > 0 ? in->deadline_s : 1.5 * slowest;
    return fabs(p->deadline_s - deadline) <= near * deadline
               ? RU_OK
               : bad(err, "the deadline [s]", p->deadline_s, deadline);
}

/* Mean slowest of a round of tier k. Of one tier only a part comes: the chance that none of the
 * part is slower than its client i is that of a set without the slower ones; who comes for sure may
 * be slower still. O(n^2), no sorting. */
static double slowest_of(const ru_pick_in *in, const ru_pick_plan *p, const tiers *t, uint32_t k)
{
    double sum = 0, sure = 0, c = 0;
    uint32_t part = k;
    for (uint32_t j = 0; j < in->n_tiers; j++) {
        double come = share_of_tier(in, t, k, j);
        sure = come > 0 && come >= t->count[j] ? fmax(sure, t->slowest[j]) : sure;
        part = come > 0 && come < t->count[j] ? j : part;
    }
    c = share_of_tier(in, t, k, part);
    if (c >= t->count[part]) {
        return sure;
    }
    double count = t->count[part];
    for (uint32_t i = 0; i < in->n; i++) {
        if (in->client[i].away || p->tier_of[i] != part) {
            continue;
        }
        double faster = 0, chance = c / count;
        for (uint32_t j = 0; j < in->n; j++) {
            double a = in->client[i].latency_s, b = in->client[j].latency_s;
            bool before = b < a || (b <= a && j < i);
            faster += !in->client[j].away && p->tier_of[j] == part && before ? 1 : 0;
        }
        for (double s = 0; s < c - 1; s++) { /* the other c - 1 are all faster */
            chance *= fmax(0, (faster - s) / (count - 1 - s));
        }
        sum += chance * fmax(sure, in->client[i].latency_s);
    }
    return sum;
}

static ru_status check_chances(const ru_pick_in *in, const ru_pick_plan *p, const tiers *t,
                               ru_err *err)
{
    double sum = 0, most = 0, drawn = 0, share[RU_PICK_TIERS_MAX] = {0}, all = 0;
    bool look = in->method == RU_PICK_ADAPTIVE &&
                (in->n_chance == 0 || (in->round - 1) % in->interval == 0) && in->n <= 1024;
    for (uint32_t k = 0; k < in->n_tiers; k++) {
        double in_round = 0;
        for (uint32_t of = 0; of < in->n_tiers; of++) {
            in_round += p->chance[of] * share_of_tier(in, t, of, k);
        }
        if (!(p->chance[k] >= 0) || (in->n_chance == 0 && t->count[k] < 1 && p->chance[k] > 0)) {
            return bad(err, "the chance of a tier", p->chance[k], 0);
        }
        sum += p->chance[k];
        most = fmax(most, t->count[k] > 0 ? fmin(in_round / t->count[k], 1) : 0);
        if (tiered(in->method) && t->count[k] > 0) {
            drawn = fmax(drawn, share_of_tier(in, t, p->tier, k) / t->count[k]);
        }
        if (look && t->count[k] > 0) {
            double a = ru_pick_tier_now(in, k).accuracy, e = a >= 0 ? fmax(1 - a, 0.02) : 1;
            share[k] = t->count[k] * e / sqrt(slowest_of(in, p, t, k));
            all += share[k];
        }
    }
    if (fabs(sum - 1) > 1e-6) {
        return bad(err, "the sum of chances", sum, 1);
    }
    for (uint32_t k = 0; k < in->n_tiers && look; k++) {
        if (fabs(share[k] / all - p->chance[k]) > 1e-6) {
            return bad(err, "the chance of a tier", p->chance[k], share[k] / all);
        }
    }
    if (tiered(in->method) && fabs(most - p->share_most) > near) {
        return bad(err, "the largest chance of a client", p->share_most, most);
    }
    if (tiered(in->method) && fabs(drawn - p->share_drawn) > near) {
        return bad(err, "the largest chance of a client in this round", p->share_drawn, drawn);
    }
    return RU_OK;
}

static ru_status check_credits(const ru_pick_in *in, const ru_pick_plan *p, ru_err *err)
{
    bool bound = in->method == RU_PICK_ADAPTIVE || in->method == RU_PICK_TIFL, given = true;
    double left = 0;
    for (uint32_t k = 0; k < in->n_tiers; k++) {
        given = given && ru_pick_tier_now(in, k).credits >= 0;
        left += ru_pick_tier_now(in, k).credits;
    }
    for (uint32_t k = 0; k < in->n_tiers; k++) {
        double want = ru_pick_tier_now(in, k).credits - (bound && k == p->tier ? 1 : 0);
        if (bound && !(p->credits[k] >= 0)) {
            return bad(err, "the credits of a tier", p->credits[k], 0);
        }
        if (bound && given && left >= in->n_tiers && p->credits[k] != want) {
            return bad(err, "the credits of a tier", p->credits[k], want);
        }
    }
    return RU_OK;
}

ru_status ru_plan_pick_check(const ru_pick_in *in, const ru_pick_plan *p, ru_arena *scratch,
                             ru_err *err)
{
    (void)scratch;
    tiers t;
    if (p->n_tiers != in->n_tiers) {
        return bad(err, "the number of tiers", p->n_tiers, in->n_tiers);
    }
    RU_TRY(check_tiers(in, p, &t, err));
    RU_TRY(check_clients(in, p, &t, err));
    RU_TRY(check_chances(in, p, &t, err));
    return check_credits(in, p, err);
}
