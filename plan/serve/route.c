#include "plan/serve/route.h"

#include <math.h>
#include <stddef.h>

#include "plan/serve/route_impl.h"

/* -- tables that need no search ------------------------------------------------------------------
 */

void ru_route_table(const ru_route_in *in, ru_route_method method, uint32_t n, double *into)
{
    double before = 0, first = in->size[0], width = in->size[in->n_classes - 1] - first;
    for (uint32_t k = 0; k < in->n_classes; k++) {
        double after = before + in->share[k];
        for (uint32_t i = 0; i < n; i++) {
            double *to = &into[(size_t)i * in->n_classes + k];
            if (method == RU_ROUTE_RANDOM) {
                *to = in->share[k] / n;
            } else if (method == RU_ROUTE_EQUAL) { /* the last one takes what rounding left */
                double low = (double)i / n, high = i + 1 == n ? 2 : (double)(i + 1) / n;
                *to = fmax(0, fmin(after, high) - fmax(before, low));
            } else { /* bins of equal width; the largest size belongs to the last one */
                double at = width > 0 ? (in->size[k] - first) / width * n : 0;
                uint32_t bin = at < n ? (uint32_t)at : n - 1;
                *to = bin == i ? in->share[k] : 0;
            }
        }
        before = after;
    }
}

/* -- plans ----------------------------------------------------------------------------------------
 */

static ru_status no_room(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no memory for the routing tables");
}

static double sum_of(const double *x, uint32_t n)
{
    double s = 0;
    for (uint32_t i = 0; i < n; i++) {
        s += x[i];
    }
    return s;
}

/* The plan of a table whose buffers have been searched. */
static ru_status finish(rui_route_search *s, const double *table, const rui_route_best *best,
                        uint32_t n, ru_route_plan *plan, ru_err *err)
{
    const ru_route_in *in = s->in;
    ru_route_buffer *b = RU_NEW(s->out, ru_route_buffer, n);
    double *share = RU_NEW(s->out, double, (int64_t)n * in->n_classes);
    if (b == NULL || share == NULL) {
        return no_room(err);
    }
    *plan = (ru_route_plan){.n = n, .buffers = b, .share = share};
    double real = 0, padded = 0;
    for (uint32_t i = 0; i < n; i++) {
        double size = 0;
        for (uint32_t k = 0; k < in->n_classes; k++) {
            share[(size_t)i * in->n_classes + k] = table[(size_t)i * in->n_classes + k];
            size += table[(size_t)i * in->n_classes + k] * in->size[k];
        }
        RU_TRY(rui_route_figures(s, share + (size_t)i * in->n_classes, &best[i], &b[i], err));
        plan->usd_per_request += b[i].share * b[i].usd_per_request;
        plan->instances += b[i].instances;
        plan->met += b[i].share * b[i].met;
        real += size;
        padded += size * (1 + b[i].padding);
    }
    plan->padding = fmax(0, padded / real - 1);
    plan->searched = s->searched;
    plan->laws = s->laws;
    return RU_OK;
}

/* Why there is no plan: a class that cannot be served even alone, or the limits together. */
static ru_status nothing(const ru_route_in *in, double least_instances, ru_err *err)
{
    for (uint32_t k = 0; k < in->n_classes; k++) {
        double least = INFINITY;
        for (uint32_t m = 0; m < in->n_memory; m++) {
            least = fmin(least, in->service_s[((size_t)m * in->n_classes + k) * in->batch_max]);
        }
        double unit = ru_route_allow_s(in, k, 1);
        if (least / unit > in->slo_s) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "a request of size %g takes %.4g s alone, %.4g s per %s, and "
                           "'slo_s' is %g; allow more memory or a longer latency",
                           in->size[k], least, least / unit,
                           in->per_request ? "request" : "unit of size", in->slo_s);
        }
    }
    if (least_instances < (double)INFINITY) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%.4g instances are needed at the same time, more than 'instances_max' %g; "
                       "allow more instances, larger batches or a longer latency",
                       least_instances, in->instances_max);
    }
    return RU_FAIL(err, RU_E_INFEASIBLE,
                   "no choice of memory, batch and timeout keeps the %g quantile at %g s per %s; "
                   "allow more buffers, more memory or a longer latency",
                   in->quantile, in->slo_s, in->per_request ? "request" : "unit of size");
}

/* A method that does not search for cuts: its table for n buffers, empty rows dropped. */
static ru_status fixed_table(rui_route_search *s, uint32_t n, double *table, rui_route_best *best,
                             uint32_t *used, bool *found, ru_err *err)
{
    const ru_route_in *in = s->in;
    ru_route_table(in, in->method, n, table);
    *used = 0;
    *found = true;
    for (uint32_t i = 0; i < n && *found; i++) {
        double *row = table + (size_t)i * in->n_classes;
        if (sum_of(row, in->n_classes) <= 0) {
            continue;
        }
        double *to = table + (size_t)*used * in->n_classes;
        for (uint32_t k = 0; k < in->n_classes; k++) {
            to[k] = row[k];
        }
        if (*used > 0 && in->method == RU_ROUTE_RANDOM) {
            best[*used] = best[0];
        } else {
            RU_TRY(rui_route_best_of(s, to, &best[*used], err));
        }
        *found = best[*used].found;
        (*used)++;
    }
    return RU_OK;
}

static ru_status by_table(rui_route_search *s, ru_route_plan *plan, ru_err *err)
{
    const ru_route_in *in = s->in;
    bool one = in->method == RU_ROUTE_SINGLE || in->method == RU_ROUTE_NONE;
    uint32_t from = one || in->buffers == 0 ? 1 : in->buffers;
    uint32_t to = one ? 1 : in->buffers == 0 ? in->buffers_max : in->buffers;
    int64_t cells = (int64_t)to * in->n_classes, least = INT64_MAX;
    double *table = RU_NEW(s->scratch, double, cells), *kept = RU_NEW(s->scratch, double, cells);
    rui_route_best *best = RU_NEW(s->scratch, rui_route_best, to),
                   *kept_best = RU_NEW(s->scratch, rui_route_best, to);
    if (table == NULL || kept == NULL || best == NULL || kept_best == NULL) {
        return no_room(err);
    }
    uint32_t n_kept = 0;
    double least_instances = INFINITY;
    for (uint32_t n = from; n <= to; n++) {
        uint32_t used;
        bool found;
        RU_TRY(fixed_table(s, n, table, best, &used, &found, err));
        int64_t cost = 0;
        double instances = 0;
        for (uint32_t i = 0; found && i < used; i++) {
            cost += best[i].cost;
            instances += best[i].instances;
        }
        least_instances = found ? fmin(least_instances, instances) : least_instances;
        if (found && instances <= in->instances_max && cost < least) {
            least = cost;
            n_kept = used;
            for (int64_t i = 0; i < (int64_t)used * in->n_classes; i++) {
                kept[i] = table[i];
            }
            for (uint32_t i = 0; i < used; i++) {
                kept_best[i] = best[i];
            }
        }
    }
    return n_kept > 0 ? finish(s, kept, kept_best, n_kept, plan, err)
                      : nothing(in, least_instances, err);
}

/* -- cuts -----------------------------------------------------------------------------------------
 */

/* Classes i .. j - 1 in one buffer, and the best plans for the classes below j. */
typedef struct cuts {
    uint32_t k;                 /* classes */
    const rui_route_best *part; /* [k, k + 1] */
    int64_t *cost;              /* [buffers + 1, k + 1] */
    uint32_t *from;             /* the same: where the last buffer begins */
} cuts;

static ru_status fill_parts(rui_route_search *s, cuts *c, ru_err *err)
{
    const ru_route_in *in = s->in;
    rui_route_best *part = RU_NEW(s->scratch, rui_route_best, (int64_t)c->k * (c->k + 1));
    if (part == NULL) {
        return no_room(err);
    }
    for (uint32_t i = 0; i < c->k; i++) {
        double share[RU_ROUTE_CLASSES_MAX] = {0};
        for (uint32_t j = i + 1; j <= c->k; j++) {
            share[j - 1] = in->share[j - 1];
            RU_TRY(rui_route_best_of(s, share, &part[(size_t)i * (c->k + 1) + j], err));
        }
    }
    c->part = part;
    return RU_OK;
}

/* cost[n][j] = min_i cost[n - 1][i] + part(i, j); the earliest i of equal ones. */
static void solve_cuts(cuts *c, uint32_t buffers)
{
    uint32_t row = c->k + 1;
    for (uint32_t n = 0; n <= buffers; n++) {
        for (uint32_t j = 0; j <= c->k; j++) {
            int64_t *best = &c->cost[(size_t)n * row + j];
            *best = n == 0 && j == 0 ? 0 : INT64_MAX;
            for (uint32_t i = 0; n > 0 && i < j; i++) {
                const rui_route_best *p = &c->part[(size_t)i * row + j];
                int64_t before = c->cost[(size_t)(n - 1) * row + i];
                if (p->found && before < INT64_MAX && before + p->cost < *best) {
                    *best = before + p->cost;
                    c->from[(size_t)n * row + j] = i;
                }
            }
        }
    }
}

static double instances_of(const cuts *c, uint32_t n)
{
    double sum = 0;
    for (uint32_t j = c->k; n > 0; n--) {
        uint32_t i = c->from[(size_t)n * (c->k + 1) + j];
        sum += c->part[(size_t)i * (c->k + 1) + j].instances;
        j = i;
    }
    return sum;
}

static ru_status by_cuts(rui_route_search *s, ru_route_plan *plan, ru_err *err)
{
    const ru_route_in *in = s->in;
    cuts c = {.k = in->n_classes};
    uint32_t from = in->buffers == 0 ? 1 : in->buffers;
    uint32_t to = in->buffers == 0 ? in->buffers_max : in->buffers;
    to = to < c.k ? to : c.k;
    from = from < c.k ? from : c.k;
    c.cost = RU_NEW(s->scratch, int64_t, (int64_t)(to + 1) * (c.k + 1));
    c.from = RU_NEW(s->scratch, uint32_t, (int64_t)(to + 1) * (c.k + 1));
    double *table = RU_NEW(s->scratch, double, (int64_t)to *c.k);
    rui_route_best *best = RU_NEW(s->scratch, rui_route_best, to);
    if (c.cost == NULL || c.from == NULL || table == NULL || best == NULL) {
        return no_room(err);
    }
    RU_TRY(fill_parts(s, &c, err));
    solve_cuts(&c, to);
    uint32_t at = 0;
    double least_instances = INFINITY;
    for (uint32_t n = from; n <= to; n++) {
        int64_t cost = c.cost[(size_t)n * (c.k + 1) + c.k];
        double instances = cost < INT64_MAX ? instances_of(&c, n) : (double)INFINITY;
        least_instances = fmin(least_instances, instances);
        bool better = at == 0 || cost < c.cost[(size_t)at * (c.k + 1) + c.k];
        at = cost < INT64_MAX && instances <= in->instances_max && better ? n : at;
    }
    if (at == 0) {
        return nothing(in, least_instances, err);
    }
    for (uint32_t n = at, j = c.k; n > 0; n--) {
        uint32_t i = c.from[(size_t)n * (c.k + 1) + j];
        best[n - 1] = c.part[(size_t)i * (c.k + 1) + j];
        for (uint32_t k = 0; k < c.k; k++) {
            table[(size_t)(n - 1) * c.k + k] = k >= i && k < j ? in->share[k] : 0;
        }
        j = i;
    }
    return finish(s, table, best, at, plan, err);
}

/* The best cuts of whole classes, or a table of shares or widths that is cheaper: equal shares may
 * split a class, and where instances bind, the cheapest cuts of a number of buffers may need too
 * many. */
static ru_status cheapest(rui_route_search *s, ru_route_plan *plan, ru_err *err)
{
    static const ru_route_method others[] = {RU_ROUTE_EQUAL, RU_ROUTE_WIDTH};
    const ru_route_in *in = s->in;
    ru_route_plan best = {0};
    ru_status st = by_cuts(s, &best, err);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(others); k++) {
        ru_route_in other = *in;
        ru_route_plan p;
        ru_err why;
        if (st != RU_OK && st != RU_E_INFEASIBLE) {
            return st;
        }
        other.method = others[k];
        s->in = &other;
        ru_status more = by_table(s, &p, &why);
        s->in = in;
        if (more != RU_OK && more != RU_E_INFEASIBLE) {
            return RU_FAIL(err, more, "%s", why.text);
        }
        if (more == RU_OK && (st != RU_OK || p.usd_per_request < best.usd_per_request)) {
            best = p;
            st = RU_OK;
        }
    }
    if (st == RU_OK) {
        best.searched = s->searched;
        best.laws = s->laws;
        *plan = best;
    }
    return st;
}

ru_status ru_plan_route(const ru_route_in *in, ru_arena *out, ru_arena *scratch,
                        ru_route_plan *plan, ru_err *err)
{
    if (in->n_classes < 1 || in->n_classes > RU_ROUTE_CLASSES_MAX || in->batch_max < 1 ||
        in->batch_max > RU_BATCH_MAX || in->n_memory < 1 || in->buffers_max < 1) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %u classes, batches of up to %u, %u memory sizes and up to %u "
                       "buffers; expected 1 to %d classes, batches of 1 to %d, and at least one "
                       "memory size and one buffer",
                       in->n_classes, in->batch_max, in->n_memory, in->buffers_max,
                       RU_ROUTE_CLASSES_MAX, RU_BATCH_MAX);
    }
    rui_route_search s;
    RU_TRY(rui_route_open(in, out, scratch, &s, err));
    return in->method == RU_ROUTE_CUTS ? cheapest(&s, plan, err) : by_table(&s, plan, err);
}
