/* The checkers of save and recover: exchange arguments and sums, no code of the planners. */
#include <math.h>
#include <string.h>

#include "plan/crew/save.h"

static bool near(double a, double b)
{
    return a == b || (isfinite(a - b) && fabs(a - b) <= 1e-9 * fmax(1, fmax(fabs(a), fabs(b))));
}

/* PRIORITY: no block that is left lies farther than one that is saved, ties to the lower index.
 * ROUND_ROBIN: the run from the cursor on. */
static ru_status check_choice(const ru_save_in *in, const ru_save_plan *p, const uint8_t *saved,
                              ru_err *err)
{
    uint32_t nearest = UINT32_MAX;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t b = p->block[i];
        bool nearer = nearest == UINT32_MAX || in->distance[b] <= in->distance[nearest];
        nearest = nearer ? b : nearest;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        uint64_t place = ((uint64_t)i + in->n - in->cursor % in->n) % in->n;
        bool in_run = place < p->n;
        if (in->method == RU_SAVE_ROUND_ROBIN && in_run != (saved[i] != 0)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "block %u breaks the cycle from %u", i,
                           in->cursor);
        }
        if (in->method != RU_SAVE_PRIORITY || saved[i] != 0 || nearest == UINT32_MAX) {
            continue;
        }
        double left = in->distance[i], kept = in->distance[nearest];
        if (left > kept || (left == kept && i < nearest)) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "block %u at distance %g is not saved, although block %u at %g is", i,
                           left, nearest, kept);
        }
    }
    return RU_OK;
}

ru_status ru_plan_save_check(const ru_save_in *in, const ru_save_plan *p, ru_arena *scratch,
                             ru_err *err)
{
    double share = in->method == RU_SAVE_FULL ? 1 : in->method == RU_SAVE_NONE ? 0 : in->fraction;
    if (!(p->n >= share * in->n - 1e-6) || !(p->n < share * in->n + 1)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%u of %u blocks are saved, which is not the fraction %g", p->n, in->n,
                       share);
    }
    uint8_t *saved = RU_NEW(scratch, uint8_t, in->n);
    if (saved == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u blocks", in->n);
    }
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->block[i] >= in->n || (i > 0 && p->block[i] <= p->block[i - 1])) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "block %u at place %u is out of order",
                           p->block[i], i);
        }
        saved[p->block[i]] = 1;
    }
    RU_TRY(check_choice(in, p, saved, err));
    double all = 0, most = 0, left = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        all += in->distance[i] * in->distance[i];
        if (saved[i] == 0) {
            most = in->distance[i] > most ? in->distance[i] : most;
            left = hypot(left, in->distance[i]);
        }
    }
    if (!near(hypot(p->left_norm, p->saved_norm), sqrt(all)) || !near(left, p->left_norm) ||
        most != p->left_most) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the norms that are left do not fit the blocks");
    }
    bool cycles = in->method == RU_SAVE_ROUND_ROBIN;
    if (cycles && (p->cursor + (uint64_t)in->n - p->n) % in->n != in->cursor % in->n) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the next cursor is %u", p->cursor);
    }
    return RU_OK;
}

/* Do all copies say how far they are? */
static bool told(const ru_recover_block *b)
{
    return (b->cache_at >= 0 || b->log_at >= 0) && !(b->cache_at >= 0 && b->cache_d <= 0) &&
           !(b->log_at >= 0 && b->log_d <= 0);
}

/* Is no copy nearer than the one from f? */
static bool nearest(const ru_recover_block *b, uint8_t f)
{
    double d = f == RU_RECOVER_CACHE ? b->cache_d : f == RU_RECOVER_LOG ? b->log_d : b->start_d;
    return d > 0 && !(b->cache_at >= 0 && b->cache_d < d) && !(b->log_at >= 0 && b->log_d < d) &&
           !(b->start_d > 0 && b->start_d < d);
}

ru_status ru_plan_recover_check(const ru_recover_in *in, const ru_recover_plan *p, ru_err *err)
{
    uint32_t count[4] = {0};
    double norm = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_recover_block *b = &in->block[i];
        uint8_t f = p->from[i];
        if (p->n != in->n || f > RU_RECOVER_START) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "block %u comes from %u", i, f);
        }
        bool touched = b->lost || in->method == RU_RECOVER_ROLLBACK;
        bool there = f == RU_RECOVER_CACHE ? b->cache_at >= 0
                     : f == RU_RECOVER_LOG ? b->log_at >= 0
                                           : true;
        int64_t at = f == RU_RECOVER_CACHE ? b->cache_at : f == RU_RECOVER_LOG ? b->log_at : -1;
        int64_t best = in->method == RU_RECOVER_RESET ? -1 : b->log_at;
        best = in->method == RU_RECOVER_NEWEST && b->cache_at > best ? b->cache_at : best;
        bool right = in->method == RU_RECOVER_NEWEST && told(b) ? nearest(b, f) : at == best;
        if (touched != (f != RU_RECOVER_KEEP) || !there || (touched && !right)) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "block %u does not come from its newest or nearest copy", i);
        }
        count[f]++;
        norm = hypot(norm, f == RU_RECOVER_CACHE   ? b->cache_d
                           : f == RU_RECOVER_LOG   ? b->log_d
                           : f == RU_RECOVER_START ? b->start_d
                                                   : 0);
    }
    if (count[1] != p->n_cache || count[2] != p->n_log || count[3] != p->n_start ||
        !near(norm, p->norm)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "counts or norm do not fit the blocks");
    }
    return RU_OK;
}
