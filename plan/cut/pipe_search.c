/* The best pipeline by dynamic programming. For one start, best[m][q][j] is the least bottleneck of
 * pipelines from the start to cut j on m units whose last part has q of them; from[m][q][k] is the
 * same up to cut k, with the boundary at k, when a part of q units follows. Every cut k then offers
 * max(from[m][q][k], time of (k, j] on q) to best[m + q][q][j].
 *
 * What a level below the last one finds for all pairs of cuts is the compute time of the next. */
#include <math.h>

#include "plan/cut/pipe_impl.h"

#define SEARCH_BYTES_MAX (INT64_C(4) << 30) /* of one level */
#define SEARCH_STEPS_MAX 2e11               /* of one level: two to five minutes */

typedef struct level {
    const ru_pipe_in *in;
    const rui_pipe_cuts *c;
    ru_pipe_cost cost;
    uint32_t units, number, behind; /* behind: workers of outer levels that may come later */
    bool straight, last;
    const struct level *all; /* calibrated: the levels, to replicate all inside a unit; else NULL */
    double *inner; /* [n + 1, n + 1] seconds from cut to cut on a unit; NULL: their compute_s */
    double *times; /* [units - 1, n + 1, n + 1] of parts that are not the first; NULL: not kept */
    double *best, *from;                     /* [units + 1, units + 1, n + 1] for one start */
    double *row;                             /* [n + 1] */
    double *compute_s, *param_bytes, *never; /* [n + 1] from the cut that is faced; 0 or infinity */
} level;

static double *of(const level *l, double *table, uint32_t m, uint32_t q)
{
    return table + ((uint64_t)m * (l->units + 1) + q) * (l->c->n + 1);
}

/* Does a part fit when `m` units are used up to its end, `q` of them by itself? */
static bool fits(const level *l, uint32_t k, uint32_t j, uint32_t m, uint32_t q)
{
    const rui_pipe_cuts *c = l->c;
    double bytes = ru_cost_pipe_memory_bytes(l->in->model, c->param_bytes[j] - c->param_bytes[k],
                                             c->activation_bytes[j] - c->activation_bytes[k],
                                             ru_cost_pipe_in_flight(q, l->units - m + l->behind),
                                             l->in->state);
    return bytes <= l->in->memory_bytes;
}

/* Memory is that of workers: bound where parts are stages. */
static bool bounded(const level *l)
{
    return l->in->memory_bytes > 0 && l->number == 0;
}

/* Seconds of the range on a unit when each level inside replicates all of it; the units inside then
 * exchange gradients first, so that the unit does once in *share minibatches. */
static double replicated_s(const level *l, uint32_t k, uint32_t j, double *share)
{
    double s = l->c->compute_s[j] - l->c->compute_s[k];
    double param = l->c->param_bytes[j] - l->c->param_bytes[k];
    *share = 1;
    for (const level *x = l->all; x < l; x++) {
        ru_pipe_rate rate = ru_cost_pipe_rate(&x->cost, x->units, true);
        s = ru_cost_pipe_stage_s(&rate, s, param / *share);
        s = bounded(x) && !fits(x, k, j, x->units, x->units) ? (double)INFINITY : s;
        *share *= x->units;
    }
    return s;
}

/* The better of a pipeline inside each unit and of all replicated there, which *replicated tells.
 */
static double part_s(const level *l, uint32_t k, uint32_t j, const ru_pipe_rate *rate,
                     bool *replicated)
{
    const rui_pipe_cuts *c = l->c;
    double compute = l->inner != NULL ? l->inner[(uint64_t)k * (c->n + 1) + j]
                                      : c->compute_s[j] - c->compute_s[k];
    double param = c->param_bytes[j] - c->param_bytes[k], share;
    double s = ru_cost_pipe_stage_s(rate, compute, param);
    *replicated = false;
    if (l->all != NULL) {
        double all = replicated_s(l, k, j, &share);
        all = ru_cost_pipe_stage_s(rate, all, param / share);
        *replicated = all <= s;
        s = all <= s ? all : s;
    }
    return s;
}

/* With what the model charges behind a part that is not the first one. */
static double later_part_s(const level *l, uint32_t k, uint32_t j, uint32_t q)
{
    ru_pipe_rate rate = ru_cost_pipe_rate(&l->cost, q, false);
    bool replicated;
    double s = part_s(l, k, j, &rate, &replicated);
    double b = j < l->c->n ? ru_cost_pipe_behind_s(&l->cost, 1, q) * l->c->cut_bytes[j] : 0;
    return s > b ? s : b;
}

/* What every later cut adds to cut k, in arrays without branches. */
static void face(level *l, uint32_t k)
{
    const rui_pipe_cuts *c = l->c;
    const double *inner = l->inner != NULL ? l->inner + (uint64_t)k * (c->n + 1) : NULL;
    for (uint32_t j = k + 1; j <= c->n; j++) {
        l->compute_s[j] = inner != NULL ? inner[j] : c->compute_s[j] - c->compute_s[k];
        l->param_bytes[j] = c->param_bytes[j] - c->param_bytes[k];
        l->never[j] = rui_pipe_cuts_nest(c, k, j) ? 0 : (double)INFINITY;
    }
}

/* Seconds of parts on q units from the cut that is faced to every later one. */
static void fill_row(const level *l, uint32_t k, uint32_t q, double *RU_RESTRICT row)
{
    const double *RU_RESTRICT compute_s = l->compute_s, *RU_RESTRICT param = l->param_bytes;
    const double *RU_RESTRICT cut = l->c->cut_bytes, *RU_RESTRICT never = l->never;
    const ru_pipe_rate rate = ru_cost_pipe_rate(&l->cost, q, false);
    double behind = ru_cost_pipe_behind_s(&l->cost, 1, q);
    uint32_t n = l->c->n;
    for (uint32_t j = k + 1; j <= n; j++) {
        double s = ru_cost_pipe_stage_s(&rate, compute_s[j], param[j]), b = behind * cut[j];
        s = s > b ? s : b;
        row[j] = s > never[j] ? s : never[j];
    }
    for (uint32_t j = k + 1; j <= n && l->all != NULL; j++) {
        row[j] = isinf(never[j]) ? never[j] : later_part_s(l, k, j, q);
    }
    if (!isinf(never[n])) { /* nothing is behind the last cut */
        row[n] = later_part_s(l, k, n, q);
    }
}

static const double *row_of(const level *l, uint32_t k, uint32_t q)
{
    uint64_t wide = l->c->n + 1;
    if (l->times != NULL) {
        return l->times + ((uint64_t)(q - 1) * wide + k) * wide;
    }
    fill_row(l, k, q, l->row);
    return l->row;
}

/* The whole range as one part. */
static void start_at(level *l, uint32_t start)
{
    uint32_t n = l->c->n;
    for (uint64_t i = 0; i < (uint64_t)(l->units + 1) * (l->units + 1) * (n + 1); i++) {
        l->best[i] = INFINITY;
    }
    for (uint32_t q = 1; q <= (l->straight ? 1 : l->units); q++) {
        double *best = of(l, l->best, q, q);
        ru_pipe_rate rate = ru_cost_pipe_rate(&l->cost, q, true);
        for (uint32_t j = start + 1; j <= n; j++) {
            bool is =
                rui_pipe_cuts_nest(l->c, start, j) && (!bounded(l) || fits(l, start, j, q, q));
            bool replicated;
            best[j] = is ? part_s(l, start, j, &rate, &replicated) : (double)INFINITY;
        }
    }
}

/* from[m][q][k] over the parts that may end at k. */
static void finish_cut(level *l, uint32_t k)
{
    for (uint32_t m = 1; m < l->units; m++) {
        for (uint32_t q = 1; q <= l->units - m; q++) {
            double least = INFINITY;
            for (uint32_t left = 1; left <= m; left++) {
                double s = of(l, l->best, m, left)[k];
                double b = ru_cost_pipe_boundary_s(&l->cost, l->c->cut_bytes[k], left, q);
                s = s > b ? s : b;
                least = s < least ? s : least;
            }
            of(l, l->from, m, q)[k] = least;
            if (l->straight) {
                break;
            }
        }
    }
}

/* The inner loop of all: no branch, so that it compiles to vector code. */
static void offer(double *RU_RESTRICT best, const double *RU_RESTRICT row, double from, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++) {
        double s = row[j] > from ? row[j] : from;
        best[j] = s < best[j] ? s : best[j];
    }
}

static void offer_bounded(level *l, uint32_t k, uint32_t m, uint32_t q, const double *row)
{
    double *best = of(l, l->best, m + q, q), from = of(l, l->from, m, q)[k];
    for (uint32_t j = k + 1; j <= l->c->n; j++) {
        double s = row[j] > from ? row[j] : from;
        if (s < best[j] && fits(l, k, j, m + q, q)) {
            best[j] = s;
        }
    }
}

static void run_from(level *l, uint32_t start)
{
    uint32_t n = l->c->n;
    start_at(l, start);
    for (uint32_t k = start + 1; k < n; k++) {
        if (!rui_pipe_cuts_nest(l->c, start, k)) {
            continue;
        }
        finish_cut(l, k);
        if (l->times == NULL) {
            face(l, k);
        }
        for (uint32_t q = 1; q < (l->straight && l->units > 1 ? 2 : l->units); q++) {
            const double *row = row_of(l, k, q);
            for (uint32_t m = 1; m + q <= l->units; m++) {
                double from = of(l, l->from, m, q)[k];
                if (isinf(from)) {
                    continue;
                }
                if (bounded(l)) {
                    offer_bounded(l, k, m, q, row);
                } else {
                    offer(of(l, l->best, m + q, q) + k + 1, row + k + 1, from, n - k);
                }
            }
        }
    }
}

/* Units of the last part of the best pipeline to j on m units. */
static uint32_t last_part(const level *l, uint32_t j, uint32_t m)
{
    uint32_t best = m;
    for (uint32_t q = m; q > 0; q--) {
        best = of(l, l->best, m, q)[j] < of(l, l->best, m, best)[j] ? q : best;
    }
    return best;
}

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT,
                   "the search for pipelines needs too much memory or time; use fewer units or a "
                   "smaller cuts_max");
}

static bool level_init(level *l, bool keep, ru_arena *a)
{
    int64_t wide = (int64_t)l->c->n + 1, m = (int64_t)l->units + 1;
    double pairs = (double)wide * (double)wide * (double)(m * m) / 4;
    if (16 * m * m * wide + (keep ? 8 * m * wide * wide : 0) > SEARCH_BYTES_MAX ||
        pairs * (keep ? (double)wide / 3 : 1) > SEARCH_STEPS_MAX) {
        return false;
    }
    l->best = RU_NEW(a, double, m *m *wide);
    l->from = RU_NEW(a, double, m *m *wide);
    l->row = RU_NEW(a, double, wide);
    l->compute_s = RU_NEW(a, double, wide);
    l->param_bytes = RU_NEW(a, double, wide);
    l->never = RU_NEW(a, double, wide);
    l->times = keep && l->units > 1 ? RU_NEW(a, double, (m - 2) * wide * wide) : NULL;
    if (l->best == NULL || l->from == NULL || l->row == NULL || l->compute_s == NULL ||
        l->param_bytes == NULL || l->never == NULL || (keep && l->units > 1 && l->times == NULL)) {
        return false;
    }
    for (uint32_t k = 0; l->times != NULL && k < l->c->n; k++) {
        face(l, k);
        for (uint32_t q = 1; q < (l->straight ? 2 : l->units); q++) {
            fill_row(l, k, q, l->times + ((int64_t)(q - 1) * wide + k) * wide);
        }
    }
    return true;
}

/* All pairs of cuts on all units of the level: what a unit of the next one takes. */
static double *all_pairs(level *l, ru_arena *a)
{
    uint32_t n = l->c->n, m = l->units;
    double *out = RU_NEW(a, double, ((int64_t)n + 1) * (n + 1));
    for (uint32_t s = 0; out != NULL && s < n; s++) {
        run_from(l, s);
        for (uint32_t j = s + 1; j <= n; j++) {
            out[(uint64_t)s * (n + 1) + j] = of(l, l->best, m, last_part(l, j, m))[j];
        }
    }
    return out;
}

/* Where the last part, q of m units, of the best pipeline to j begins. */
static uint32_t cut_before(const level *l, uint32_t start, uint32_t j, uint32_t m, uint32_t q)
{
    double value = of(l, l->best, m, q)[j];
    uint32_t k = start + 1;
    for (; k < j; k++) {
        if (!rui_pipe_cuts_nest(l->c, start, k) || !rui_pipe_cuts_nest(l->c, k, j)) {
            continue;
        }
        double s = later_part_s(l, k, j, q), from = of(l, l->from, m - q, q)[k];
        if ((s > from ? s : from) <= value && (!bounded(l) || fits(l, k, j, m, q))) {
            break;
        }
    }
    RU_CHECK(k < j);
    return k;
}

/* Units of the part before the cut, when m are used up to it and a part of `right` follows. */
static uint32_t units_before(const level *l, uint32_t k, uint32_t m, uint32_t right)
{
    double want = of(l, l->from, m, right)[k];
    for (uint32_t left = m; left > 0; left--) {
        double b = ru_cost_pipe_boundary_s(&l->cost, l->c->cut_bytes[k], left, right);
        if (b <= want && of(l, l->best, m, left)[k] <= want) {
            return left;
        }
    }
    RU_CHECK(false);
    return 0;
}

/* The parts from `start` to `end` on m units, last one first; `best` holds the run from start. */
static ru_status walk_back(level *l, uint32_t start, uint32_t end, uint32_t m, ru_arena *a,
                           rui_pipe_parts *parts, ru_err *err)
{
    uint32_t q = last_part(l, end, m), j = end;
    while (j != start) {
        bool whole = q == m;
        uint32_t at = whole ? start : cut_before(l, start, j, m, q);
        ru_pipe_rate rate = ru_cost_pipe_rate(&l->cost, q, whole);
        ru_pipe_part *p = rui_pipe_parts_push(parts, a);
        if (p == NULL) {
            return full(err);
        }
        bool replicated;
        *p = (ru_pipe_part){l->number, q, at, j, part_s(l, at, j, &rate, &replicated)};
        if (!whole) {
            m -= q;
            q = units_before(l, at, m, q);
        }
        j = at;
    }
    return RU_OK;
}

/* What is inside a part of level k: on each level one part of all units. */
static ru_status collect_replicated(const level *levels, uint32_t k, ru_pipe_part around,
                                    ru_arena *a, rui_pipe_parts *parts, ru_err *err)
{
    for (uint32_t i = k; i > 0; i--) {
        ru_pipe_part *p = rui_pipe_parts_push(parts, a);
        double share;
        if (p == NULL) {
            return full(err);
        }
        *p = (ru_pipe_part){i - 1, levels[i - 1].units, around.first, around.end,
                            replicated_s(&levels[i], around.first, around.end, &share)};
    }
    return RU_OK;
}

/* The parts of one level in order, each followed by those inside it. */
static ru_status collect(level *levels, uint32_t k, uint32_t start, uint32_t end, uint32_t m,
                         ru_arena *a, rui_pipe_parts *parts, ru_err *err)
{
    rui_pipe_parts mine = {0};
    run_from(&levels[k], start);
    RU_TRY(walk_back(&levels[k], start, end, m, a, &mine, err));
    for (uint32_t i = mine.n; i-- > 0;) {
        ru_pipe_part *p = rui_pipe_parts_push(parts, a);
        if (p == NULL) {
            return full(err);
        }
        *p = mine.at[i];
        bool replicated = false;
        ru_pipe_rate rate = ru_cost_pipe_rate(&levels[k].cost, p->units, i + 1 == mine.n);
        part_s(&levels[k], p->first, p->end, &rate, &replicated);
        if (replicated) {
            RU_TRY(collect_replicated(levels, k, mine.at[i], a, parts, err));
        } else if (k > 0) {
            RU_TRY(collect(levels, k - 1, mine.at[i].first, mine.at[i].end, levels[k - 1].units, a,
                           parts, err));
        }
    }
    return RU_OK;
}

/* All units of the last level; with the calibrated model, and where a straight pipeline has too few
 * layers for all, fewer ones that do as well. */
static uint32_t units_used(const level *l)
{
    uint32_t n = l->c->n, m = l->units;
    for (uint32_t fewer = m - 1; fewer > 0; fewer--) {
        double now = of(l, l->best, m, last_part(l, n, m))[n];
        double s = of(l, l->best, fewer, last_part(l, n, fewer))[n];
        bool may = l->in->model == RU_PIPE_CALIBRATED || (l->straight && isinf(now));
        m = may && s <= now ? fewer : m;
    }
    return m;
}

ru_status rui_pipe_search(const ru_pipe_in *in, const rui_pipe_cuts *c, bool straight,
                          ru_arena *scratch, rui_pipe_parts *parts, double *minibatch_s,
                          ru_err *err)
{
    level levels[RU_PIPE_LEVELS_MAX];
    uint32_t top = in->n_levels - 1, total = 1, within = 1;
    if (in->n_speeds > 0) {
        RU_CHECK(straight);
        return rui_pipe_search_speeds(in, c, scratch, parts, minibatch_s, err);
    }
    for (uint32_t k = 0; k < in->n_levels; k++) {
        total *= in->levels[k].units;
    }
    for (uint32_t k = 0; k <= top; k++) {
        level *l = &levels[k];
        within *= in->levels[k].units;
        *l = (level){.in = in, .c = c, .units = in->levels[k].units, .number = k};
        l->cost = (ru_pipe_cost){in->model, in->levels[k].bytes_per_s,
                                 k > 0 ? in->levels[k - 1].units : 1, in->compression, in->overlap};
        l->straight = straight;
        l->all = k > 0 && !straight && in->model == RU_PIPE_CALIBRATED ? levels : NULL;
        l->behind = total - within;
        if (k > 0) {
            l->inner = all_pairs(&levels[k - 1], scratch);
        }
        if ((k > 0 && l->inner == NULL) || !level_init(l, k < top, scratch)) {
            return full(err);
        }
    }
    level *l = &levels[top];
    run_from(l, 0);
    uint32_t m = units_used(l);
    *minibatch_s = of(l, l->best, m, last_part(l, c->n, m))[c->n];
    if (isinf(*minibatch_s)) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "no pipeline of %u layers with %u cuts on %u workers%s", in->n, c->n, total,
                       in->memory_bytes > 0 ? " fits into the memory"
                                            : ": one stage a worker "
                                              "needs more layers");
    }
    return collect(levels, top, 0, c->n, m, scratch, parts, err);
}
