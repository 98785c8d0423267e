#include "plan/crew/reassign.h"

#include <math.h>
#include <string.h>

#include "cost/progress.h"
#include "plan/crew/reassign_impl.h"

static ru_status check_in(const ru_reassign_in *in, ru_err *err)
{
    if (in->n < 1 || in->n > RU_REASSIGN_WORKERS_MAX || in->clocks < 1 || in->clocks > 1000000 ||
        in->items < 1 || in->items > RU_REASSIGN_ITEMS_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %u workers, %u clocks and %u items; expected 1 to %d, 1 to "
                       "1000000, and 1 to %d",
                       in->n, in->clocks, in->items, RU_REASSIGN_WORKERS_MAX,
                       RU_REASSIGN_ITEMS_MAX);
    }
    if (in->n_machine != 0 && in->n_machine != in->n) {
        return RU_FAIL(err, RU_E_ARG, "machines of %u of %u workers are told", in->n_machine,
                       in->n);
    }
    for (uint64_t i = 0; i < (uint64_t)in->clocks * in->n; i++) {
        if (!(in->took[i] >= 1e-9 && in->took[i] <= 1e6)) {
            return RU_FAIL(err, RU_E_ARG,
                           "worker %u took %g s for clock %u; expected 1e-9 to 1e6 s",
                           (uint32_t)(i % in->n), in->took[i], (uint32_t)(i / in->n));
        }
    }
    if (!(in->tail >= 0 && in->tail <= 1) || in->rtt_ns < 0 || in->rtt_ns > (int64_t)1e15 ||
        in->group_max > RU_REASSIGN_GROUP_MAX || in->slack_max > 1000 ||
        (in->backup > 0 && in->backup >= in->n)) {
        return RU_FAIL(err, RU_E_ARG,
                       "tail %g, group_max %u, slack_max %u or backup %u is out of range", in->tail,
                       in->group_max, in->slack_max, in->backup);
    }
    return RU_OK;
}

/* -- rules --------------------------------------------------------------------------------------
 */

/* Ours: smaller slices and an earlier trigger than the paper's, from a sweep over both in the
 * replay (64 workers, four patterns, other seeds than those reported): 1.025 to 1.012 of ideal. */
static ru_reassign_rules rules_of(const ru_reassign_in *in)
{
    static const ru_reassign_rules of[RU_REASSIGN_METHODS] = {
        [RU_REASSIGN_STICKY] = {.push = true,
                                .slack = 1,
                                .group = 8,
                                .trigger_ppm = 100000,
                                .idle_ppm = 20000,
                                .behind_ppm = 50000,
                                .first_ppm = 12500,
                                .next_ppm = 25000,
                                .least_ppm = 2000,
                                .report_ppm = 100000},
        [RU_REASSIGN_FLEXRR] = {.push = true,
                                .slack = 1,
                                .group = 8,
                                .trigger_ppm = 200000,
                                .idle_ppm = 20000,
                                .first_ppm = 25000,
                                .next_ppm = 50000,
                                .least_ppm = 5000,
                                .report_ppm = 50000},
        [RU_REASSIGN_SLICES] = {.push = true,
                                .group = 8,
                                .trigger_ppm = 20000,
                                .idle_ppm = 10000,
                                .first_ppm = 25000,
                                .next_ppm = 100000,
                                .least_ppm = 5000,
                                .report_ppm = 20000},
        [RU_REASSIGN_STEAL] =
            {.pull = true, .slack = 1, .group = 8, .idle_ppm = 20000, .least_ppm = 5000},
        [RU_REASSIGN_SSP1] = {.slack = 1},
        [RU_REASSIGN_SSP3] = {.slack = 3},
        [RU_REASSIGN_STATIC] = {.push = true,
                                .group = 8,
                                .trigger_ppm = INT32_MAX,
                                .idle_ppm = INT32_MAX,
                                .next_ppm = 25000,
                                .report_ppm = 1000000},
    };
    ru_reassign_rules r = of[in->method];
    r.grain_ppm = 10000;
    r.rtt_ns = in->rtt_ns;
    r.group = in->group_max > 0 && in->group_max < r.group ? in->group_max : r.group;
    r.group = r.group < in->n ? r.group : in->n - 1;
    r.group = in->tail > 0 ? r.group : 0;
    return r;
}

/* Helpers of w stand at strides 1, 2, 4, .., 3, 6, 12, .., 5, 10, .. behind it, on other machines:
 * groups overlap and spread, so that what is too much for one group gets on. */
static void groups(const ru_reassign_in *in, uint32_t group, uint32_t *helper, uint32_t *helped)
{
    for (uint32_t w = 0; w < in->n; w++) {
        uint32_t k = 0;
        for (uint32_t odd = 1; odd < in->n && k < group; odd += 2) {
            for (uint32_t stride = odd; stride < in->n && k < group; stride *= 2) {
                uint32_t h = (w + stride) % in->n;
                bool apart = in->n_machine == 0 || in->machine[h] != in->machine[w];
                if (apart && helped[h] < RU_REASSIGN_GROUP_MAX) {
                    helper[w * group + k++] = h;
                    helped[h]++;
                }
            }
        }
        for (; k < group; k++) {
            helper[w * group + k] = RU_REASSIGN_NONE;
        }
    }
}

/* -- grants -------------------------------------------------------------------------------------
 */

static bool sticks(ru_reassign_method m)
{
    return m == RU_REASSIGN_STICKY || m == RU_REASSIGN_STATIC;
}

/* Whole items; what is less than the least slice stays. Returns the longest predicted time. */
static double grant(const ru_reassign_in *in, const rui_reassign_flow *f, int64_t least_ppm,
                    uint32_t *out, int64_t *load)
{
    int64_t least = least_ppm * in->items / 1000000 + 1;
    double longest = 0;
    for (uint32_t w = 0; w < in->n; w++) {
        load[w] += in->items;
        int64_t sum = 0, whole = 0; /* sums are rounded, so that each worker is wrong by one half */
        for (uint32_t k = 0; k < f->group; k++) {
            uint32_t e = w * f->group + k;
            sum += f->given[e];
            int64_t upto = (sum + RUI_REASSIGN_MILLI / 2) / RUI_REASSIGN_MILLI;
            upto = upto < (int64_t)f->tail ? upto : (int64_t)f->tail;
            int64_t items = upto - whole;
            whole = upto;
            out[e] = items >= least ? (uint32_t)items : 0;
            load[w] -= out[e];
            if (out[e] > 0) {
                load[f->helper[e]] += out[e];
            }
        }
    }
    for (uint32_t w = 0; w < in->n; w++) {
        longest = fmax(longest, (double)load[w] / in->items * f->next_s[w]);
    }
    return longest;
}

static int64_t ns_of(double s)
{
    return (int64_t)fmin(s * 1e9 + 0.5, 1e18);
}

static ru_status grants(const ru_reassign_in *in, ru_arena *out, ru_arena *scratch,
                        ru_reassign_plan *p, ru_err *err)
{
    uint32_t group = p->rules.group;
    double *next = RU_NEW(out, double, in->n);
    uint32_t *given = RU_NEW(out, uint32_t, (int64_t)in->n * group + 1);
    int64_t *load = RU_NEW(scratch, int64_t, in->n);
    if (next == NULL || given == NULL || load == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", in->n);
    }
    p->stays = ru_progress_next(in->took, in->clocks, in->n, next);
    rui_reassign_flow f = {.n = in->n,
                           .group = group,
                           .helper = p->helper,
                           .next_s = next,
                           .items = in->items,
                           .tail = sticks(in->method) ? in->tail * in->items : 0};
    RU_TRY(rui_reassign_balance(&f, out, err));
    p->next_s = next;
    p->grant = given;
    p->tight = f.tight;
    p->clock_ns = ns_of(grant(in, &f, p->rules.least_ppm, given, load));
    p->bound_ns = ns_of(f.clock_s * (1 - 1e-9));
    return RU_OK;
}

/* -- predictions --------------------------------------------------------------------------------
 */

/* A clock whose boundaries follow the differences of the clocks before it, without slices. */
static ru_status bounded_s(const ru_reassign_in *in, const ru_reassign_plan *p, uint32_t c,
                           ru_arena *scratch, double *took, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    double *next = RU_NEW(scratch, double, in->n);
    int64_t *load = RU_NEW(scratch, int64_t, in->n);
    uint32_t *given = RU_NEW(scratch, uint32_t, (int64_t)in->n * p->rules.group + 1);
    if (next == NULL || load == NULL || given == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", in->n);
    }
    for (uint32_t w = 0; w < in->n; w++) {
        next[w] = 1;
    }
    if (c > 0) {
        (void)ru_progress_next(in->took, c, in->n, next);
    }
    rui_reassign_flow f = {.n = in->n,
                           .group = p->rules.group,
                           .helper = p->helper,
                           .next_s = next,
                           .items = in->items,
                           .tail = in->tail * in->items};
    RU_TRY(rui_reassign_balance(&f, scratch, err));
    f.next_s = in->took + (uint64_t)c * in->n;
    *took = grant(in, &f, p->rules.least_ppm, given, load);
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

static ru_status static_s(const ru_reassign_in *in, const ru_reassign_plan *p, ru_arena *scratch,
                          double *total, ru_err *err)
{
    *total = 0;
    for (uint32_t c = 0; c < in->clocks; c++) {
        double took;
        RU_TRY(bounded_s(in, p, c, scratch, &took, err));
        *total += took;
    }
    return RU_OK;
}

/* Slices even out a clock within the groups; what an answer takes is waited for at every barrier,
 * and once at the end when workers may be ahead; pull style looks for work at the end of every
 * clock (measured in the replay: a fortieth of a clock beside the answers). Where nobody is far
 * enough behind, nothing is handed over and nothing is waited for. */
static ru_status sliced_s(const ru_reassign_in *in, const ru_reassign_plan *p, ru_arena *scratch,
                          double *total, ru_err *err)
{
    double sum = 0, wait = 3 * (double)in->rtt_ns * 1e-9, unmoved;
    for (uint32_t c = 0; c < in->clocks; c++) {
        ru_arena_mark mark = ru_arena_mark_get(scratch);
        const double *took = in->took + (uint64_t)c * in->n;
        rui_reassign_flow f = {.n = in->n,
                               .group = p->rules.group,
                               .helper = p->helper,
                               .next_s = took,
                               .items = in->items,
                               .tail = in->tail * in->items};
        RU_TRY(rui_reassign_balance(&f, scratch, err));
        bool last = c + 1 == in->clocks;
        double slice = f.clock_s * (p->rules.pull ? 0.025 : (double)p->rules.next_ppm * 1e-6);
        bool waits = p->rules.slack == 0 || p->rules.pull || last;
        double sliced = f.clock_s + (waits ? wait + slice : 0), alone = 0;
        ru_arena_rewind(scratch, mark);
        for (uint32_t w = 0; w < in->n; w++) {
            alone = fmax(alone, took[w]);
        }
        if (sticks(in->method)) {
            double kept;
            RU_TRY(bounded_s(in, p, c, scratch, &kept, err));
            alone = fmin(alone, kept);
        }
        sum += fmin(sliced, alone);
    }
    RU_TRY(ru_progress_bounded(in->took, in->clocks, in->n, p->rules.slack, 0, scratch, &unmoved,
                               err));
    *total = fmin(sum, unmoved);
    return RU_OK;
}

static ru_status predict(const ru_reassign_in *in, ru_reassign_plan *p, ru_arena *scratch,
                         ru_err *err)
{
    double total = 0;
    if (in->method == RU_REASSIGN_STATIC) {
        RU_TRY(static_s(in, p, scratch, &total, err));
    } else if (p->rules.push || p->rules.pull) {
        RU_TRY(sliced_s(in, p, scratch, &total, err));
    } else {
        RU_TRY(ru_progress_bounded(in->took, in->clocks, in->n, p->rules.slack, p->rules.backup,
                                   scratch, &total, err));
    }
    p->history_ns = ns_of(total);
    p->ideal_ns = ns_of(ru_progress_ideal(in->took, in->clocks, in->n));
    return RU_OK;
}

/* The smallest staleness that is predicted to be within 1 % of the best. */
static ru_status choose_slack(const ru_reassign_in *in, ru_reassign_plan *p, ru_arena *scratch,
                              ru_err *err)
{
    uint32_t most = in->slack_max < RU_REASSIGN_SLACK_MAX ? in->slack_max : RU_REASSIGN_SLACK_MAX;
    int64_t best_ns = INT64_MAX;
    for (p->rules.slack = 0; p->rules.slack <= most; p->rules.slack++) {
        RU_TRY(predict(in, p, scratch, err));
        best_ns = p->history_ns < best_ns ? p->history_ns : best_ns;
    }
    p->rules.slack = 0;
    RU_TRY(predict(in, p, scratch, err));
    while (p->history_ns > best_ns + best_ns / 100) {
        p->rules.slack++;
        RU_TRY(predict(in, p, scratch, err));
    }
    return RU_OK;
}

static ru_status choose_backup(const ru_reassign_in *in, ru_reassign_plan *p, ru_arena *scratch,
                               ru_err *err)
{
    int64_t best_ns = INT64_MAX;
    uint32_t best = 0, most = in->n / 8 > 0 ? in->n / 8 : in->n > 1 ? 1 : 0;
    for (uint32_t b = 0; b <= most; b = b == 0 ? 1 : 2 * b) {
        p->rules.backup = b;
        RU_TRY(predict(in, p, scratch, err));
        best = p->history_ns < best_ns ? b : best;
        best_ns = p->history_ns < best_ns ? p->history_ns : best_ns;
    }
    p->rules.backup = in->backup > 0 ? in->backup : best;
    return predict(in, p, scratch, err);
}

ru_status ru_plan_reassign(const ru_reassign_in *in, ru_arena *out, ru_arena *scratch,
                           ru_reassign_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    ru_reassign_plan p = {.rules = rules_of(in), .n = in->n};
    uint32_t *helper = RU_NEW(out, uint32_t, (int64_t)in->n * p.rules.group + 1);
    uint32_t *helped = RU_NEW(scratch, uint32_t, in->n);
    if (helper == NULL || helped == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for groups of %u workers", in->n);
    }
    groups(in, p.rules.group, helper, helped);
    p.helper = helper;
    RU_TRY(grants(in, out, scratch, &p, err));
    if (in->method == RU_REASSIGN_STICKY) {
        RU_TRY(choose_slack(in, &p, scratch, err));
    } else if (in->method == RU_REASSIGN_BACKUP) {
        RU_TRY(choose_backup(in, &p, scratch, err));
    } else {
        RU_TRY(predict(in, &p, scratch, err));
    }
    *plan = p;
    return RU_OK;
}
