/* Cost of collectives: terms, fit, prediction. */
#include "cost/step/coll.h"

#include <math.h>

/* log2 of the largest power of two <= n. */
static uint32_t floor_log2(uint32_t n)
{
    uint32_t k = 0;
    while (n >> (k + 1) != 0) {
        k++;
    }
    return k;
}

static uint32_t ceil_log2(uint32_t n)
{
    return floor_log2(n) + ((n & (n - 1)) != 0 ? 1 : 0);
}

/* Of the halving family: `ways` times down the halves or up again. Where an odd number of ranks is
 * cut, somebody works for two of the other half: the largest such part counts. */
static ru_coll_terms log_terms(uint32_t n, double ways)
{
    uint32_t size = n;
    while (size % 2 == 0) {
        size /= 2;
    }
    double part = ((double)n - 1) / n, twice = (double)(size / 2) / n;
    ru_coll_terms t = {.steps = ways * ceil_log2(n), .sent = ways * (part + twice)};
    t.busy = t.sent;
    t.added = part + twice; /* where there are sums */
    return t;
}

static ru_coll_terms ring_terms(ru_coll_op op, double n)
{
    double part = (n - 1) / n;
    switch (op) {
    case RU_COLL_ALL_REDUCE:
        return (ru_coll_terms){2 * (n - 1), 2 * part, part, 2 * part};
    case RU_COLL_REDUCE_SCATTER:
        return (ru_coll_terms){n - 1, part, part, part};
    case RU_COLL_ALL_GATHER:
        return (ru_coll_terms){n - 1, part, 0, part};
    case RU_COLL_REDUCE: /* the first of n blocks comes through n - 1 ranks, the others behind it */
        return (ru_coll_terms){2 * (n - 1), 2 * part, 2 * part, 1};
    case RU_COLL_BROADCAST:
        return (ru_coll_terms){2 * (n - 1), 2 * part, 0, 1};
    case RU_COLL_BARRIER:
        return (ru_coll_terms){.steps = 2 * (n - 1)};
    case RU_COLL_ALL_TO_ALL:
    case RU_COLL_OPS:
        break;
    }
    return (ru_coll_terms){0};
}

static ru_coll_terms halving_terms(ru_coll_op op, uint32_t n)
{
    bool twice = op == RU_COLL_ALL_REDUCE || op == RU_COLL_REDUCE || op == RU_COLL_BROADCAST;
    if (op == RU_COLL_ALL_TO_ALL || op == RU_COLL_BARRIER || op == RU_COLL_OPS) {
        return (ru_coll_terms){0};
    }
    ru_coll_terms t = log_terms(n, twice ? 2 : 1);
    t.added = op == RU_COLL_ALL_GATHER || op == RU_COLL_BROADCAST ? 0 : t.added;
    return t;
}

static ru_coll_terms doubling_terms(ru_coll_op op, uint32_t n)
{
    double k = floor_log2(n), fold = 1u << floor_log2(n) < n ? 1.0 : 0.0;
    if (op == RU_COLL_ALL_GATHER) {
        return halving_terms(op, n);
    }
    if (op == RU_COLL_BARRIER) {
        return (ru_coll_terms){.steps = k + fold};
    }
    if (op != RU_COLL_ALL_REDUCE) {
        return (ru_coll_terms){0};
    }
    return (ru_coll_terms){k + 2 * fold, k + 2 * fold, k + fold, k + 2 * fold};
}

/* `depth` levels; at each an inner rank moves `part` buffers, by `flow` of one direction in all. */
static ru_coll_terms tree_terms(ru_coll_op op, double depth, double part, double flow)
{
    double ways = op == RU_COLL_ALL_REDUCE || op == RU_COLL_BARRIER ? 2 : 1;
    if (op == RU_COLL_BARRIER) {
        return (ru_coll_terms){.steps = ways * depth};
    }
    if (op != RU_COLL_ALL_REDUCE && op != RU_COLL_REDUCE && op != RU_COLL_BROADCAST) {
        return (ru_coll_terms){0};
    }
    double added = op == RU_COLL_BROADCAST ? 0 : depth * part;
    return (ru_coll_terms){ways * depth, ways * depth * part, added, ways > 1 ? flow : part};
}

static ru_coll_terms direct_terms(ru_coll_op op, double n)
{
    double part = (n - 1) / n;
    switch (op) {
    case RU_COLL_ALL_REDUCE:
        return (ru_coll_terms){2, 2 * part, part, 2 * part};
    case RU_COLL_REDUCE_SCATTER:
        return (ru_coll_terms){1, part, part, part};
    case RU_COLL_ALL_GATHER:
    case RU_COLL_ALL_TO_ALL:
        return (ru_coll_terms){1, part, 0, part};
    case RU_COLL_REDUCE:
        return (ru_coll_terms){1, n - 1, n - 1, n - 1};
    case RU_COLL_BROADCAST:
        return (ru_coll_terms){1, n - 1, 0, n - 1};
    case RU_COLL_BARRIER:
        return (ru_coll_terms){.steps = 1};
    case RU_COLL_OPS:
        break;
    }
    return (ru_coll_terms){0};
}

ru_coll_terms ru_cost_coll_terms(ru_coll_op op, ru_coll_algo algo, uint32_t n)
{
    if (n <= 1) {
        return (ru_coll_terms){0};
    }
    switch (algo) {
    case RU_ALGO_RING:
        return ring_terms(op, n);
    case RU_ALGO_HALVING:
        return halving_terms(op, n);
    case RU_ALGO_DOUBLING:
        return doubling_terms(op, n);
    case RU_ALGO_TREE:
        return tree_terms(op, floor_log2(n), n > 2 ? 2 : 1, n > 2 ? 3 : 1);
    case RU_ALGO_DOUBLE_TREE:
        return tree_terms(op, floor_log2(n - 1) + 1.0, 1, n > 2 ? 2 : 1);
    case RU_ALGO_DIRECT:
        return direct_terms(op, n);
    case RU_ALGO_HIERARCHY: /* a star: a tree of one level */
        return tree_terms(op, 1, n - 1.0, n - 1.0);
    case RU_COLL_ALGOS:
        break;
    }
    return (ru_coll_terms){0};
}

/* Sums of the normal equations for t = a x + b y, each row weighted by 1/t. */
typedef struct sums {
    double xx, xy, yy, x, y;
    uint32_t n;
} sums;

static double squares_left(const sums *s, double a, double b)
{
    return a * a * s->xx + 2 * a * b * s->xy + b * b * s->yy - 2 * a * s->x - 2 * b * s->y + s->n;
}

/* The least squares with a, b >= 0: inside, or on one of the two borders. */
static void solve(const sums *s, double *a, double *b)
{
    double det = s->xx * s->yy - s->xy * s->xy;
    *a = s->xx > 0 ? s->x / s->xx : 0;
    *b = 0;
    double only_b = s->yy > 0 ? s->y / s->yy : 0;
    if (squares_left(s, 0, only_b) < squares_left(s, *a, 0)) {
        *a = 0;
        *b = only_b;
    }
    if (det > 1e-12 * s->xx * s->yy) {
        double in_a = (s->x * s->yy - s->y * s->xy) / det,
               in_b = (s->y * s->xx - s->x * s->xy) / det;
        if (in_a >= 0 && in_b >= 0) {
            *a = in_a;
            *b = in_b;
        }
    }
}

/* Keep the least time of each size, in order of size; none when there are too many. */
static void keep_points(ru_coll_cost *c, const ru_coll_point *points, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0;
        while (k < c->n_at && c->at[k].size_bytes < points[i].size_bytes) {
            k++;
        }
        if (k < c->n_at && c->at[k].size_bytes == points[i].size_bytes) {
            c->at[k].ns = points[i].ns < c->at[k].ns ? points[i].ns : c->at[k].ns;
            continue;
        }
        if (c->n_at == RU_COLL_COST_POINTS_MAX) {
            c->n_at = 0;
            return;
        }
        for (uint32_t m = c->n_at++; m > k; m--) {
            c->at[m] = c->at[m - 1];
        }
        c->at[k] = points[i];
    }
}

ru_status ru_cost_coll_fit(ru_coll_op op, ru_coll_algo algo, uint32_t n_ranks,
                           const ru_coll_point *points, uint32_t n, ru_coll_cost *out, ru_err *err)
{
    ru_coll_terms t = ru_cost_coll_terms(op, algo, n_ranks);
    if (t.steps <= 0) {
        return RU_FAIL(err, RU_E_ARG, "%s by %s over %u ranks has no steps to fit",
                       ru_coll_op_name(op), ru_coll_algo_name(algo), n_ranks);
    }
    sums s = {.n = n};
    bool differ = false;
    for (uint32_t i = 0; i < n; i++) {
        if (points[i].ns <= 0 || points[i].size_bytes < 0) {
            return RU_FAIL(err, RU_E_ARG, "%lld bytes in %lld ns cannot be fitted",
                           (long long)points[i].size_bytes, (long long)points[i].ns);
        }
        double x = t.steps / (double)points[i].ns;
        double y = t.sent * (double)points[i].size_bytes / (double)points[i].ns;
        differ = differ || points[i].size_bytes != points[0].size_bytes;
        s.xx += x * x;
        s.xy += x * y;
        s.yy += y * y;
        s.x += x;
        s.y += y;
    }
    if (!differ) {
        return RU_FAIL(err, RU_E_ARG, "a fit needs two sizes at least");
    }
    ru_coll_cost c = {.n_points = n};
    solve(&s, &c.alpha_ns, &c.beta_ns);
    for (uint32_t i = 0; i < n; i++) {
        double is = (double)points[i].ns;
        double said = t.steps * c.alpha_ns + t.sent * (double)points[i].size_bytes * c.beta_ns;
        double off = fabs(said - is) / is;
        c.error = off > c.error ? off : c.error;
    }
    keep_points(&c, points, n);
    *out = c;
    return RU_OK;
}

ru_coll_cost ru_cost_coll_prior(void)
{
    return (ru_coll_cost){.alpha_ns = 30e3, .beta_ns = 0.8, .gamma_ns = 0.25, .n_points = 2};
}

ru_coll_cost ru_cost_coll_hierarchy(const ru_coll_cost *ring, uint32_t n_ranks, uint32_t n_hosts,
                                    uint32_t most)
{
    const double message_ns = 40e3, add_ns = 0.3, copy_ns = 0.2;
    ru_coll_terms own = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, RU_ALGO_HIERARCHY, n_ranks);
    ru_coll_terms among = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, RU_ALGO_RING, n_hosts);
    double fixed = among.steps * ring->alpha_ns + 2 * message_ns;
    double per_byte = among.sent * ring->beta_ns + (most - 1) * add_ns + copy_ns;
    ru_coll_cost c = {
        .alpha_ns = fixed / own.steps, .beta_ns = per_byte / own.sent, .n_points = 2, .n_at = 2};
    for (uint32_t k = 0; k < 2; k++) {
        int64_t size = k == 0 ? 4 << 10 : 1 << 20;
        c.at[k] = (ru_coll_point){size, (int64_t)(fixed + per_byte * (double)size)};
    }
    return c;
}

static double formula(const ru_coll_cost *c, const ru_coll_terms *t, double size)
{
    return t->steps * c->alpha_ns + (t->sent * c->beta_ns + t->added * c->gamma_ns) * size;
}

/* How much more than the formula the largest measured size took: beyond the burst that a shaped
 * link lets go at full speed, that is its rate. */
static double beyond(const ru_coll_cost *c, const ru_coll_terms *t)
{
    double at = formula(c, t, (double)c->at[c->n_at - 1].size_bytes);
    return at > 0 ? (double)c->at[c->n_at - 1].ns / at : 1;
}

/* Between two measured sizes straight; outside the formula, moved to meet the last one. */
static double one_piece(const ru_coll_cost *c, const ru_coll_terms *t, double size)
{
    if (c->n_at < 2) {
        return formula(c, t, size);
    }
    uint32_t k = 1;
    while (k + 1 < c->n_at && (double)c->at[k].size_bytes < size) {
        k++;
    }
    double x0 = (double)c->at[k - 1].size_bytes, x1 = (double)c->at[k].size_bytes;
    double y0 = (double)c->at[k - 1].ns, y1 = (double)c->at[k].ns;
    if (size < x0 || size > x1) {
        double x = size < x0 ? x0 : x1, y = size < x0 ? y0 : y1, at = formula(c, t, x);
        return at > 0 ? formula(c, t, size) * (y / at) : y;
    }
    return y0 + (y1 - y0) * (size - x0) / (x1 - x0);
}

int64_t ru_cost_coll_ns(const ru_coll_cost *c, ru_coll_op op, ru_coll_algo algo, uint32_t n_ranks,
                        int64_t size_bytes)
{
    ru_coll_terms t = ru_cost_coll_terms(op, algo, n_ranks);
    return llrint(one_piece(c, &t, (double)size_bytes));
}

int64_t ru_cost_coll_carry_ns(const ru_coll_point *took, ru_coll_op op, ru_coll_algo algo,
                              ru_coll_algo other, uint32_t n_ranks)
{
    double sent = ru_cost_coll_terms(op, algo, n_ranks).sent;
    double others = ru_cost_coll_terms(op, other, n_ranks).sent;
    return sent > 0 ? llrint((double)took->ns * others / sent) : 0;
}

/* A fitted beta stands for the whole path: nothing is known of how much of it chunks share. */
double ru_cost_coll_byte_ns(const ru_coll_cost *c, ru_coll_op op, ru_coll_algo algo,
                            uint32_t n_ranks)
{
    ru_coll_terms t = ru_cost_coll_terms(op, algo, n_ranks);
    bool fitted = c->n_at >= 2;
    double flow = fitted ? t.sent : t.busy, more = fitted ? beyond(c, &t) : 1;
    return (flow * c->beta_ns + t.added * c->gamma_ns) * more;
}

double ru_cost_coll_carried_ns(const ru_coll_cost *ring, uint32_t n_ranks)
{
    double sent = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, RU_ALGO_RING, n_ranks).sent;
    double byte = ru_cost_coll_byte_ns(ring, RU_COLL_ALL_REDUCE, RU_ALGO_RING, n_ranks);
    return sent > 0 ? byte / sent : 0;
}

ru_coll_cost ru_cost_coll_slower(const ru_coll_cost *c, ru_coll_op op, ru_coll_algo algo,
                                 uint32_t n_ranks, double times)
{
    double start = ru_cost_coll_terms(op, algo, n_ranks).steps * c->alpha_ns;
    ru_coll_cost s = *c;
    s.beta_ns *= times;
    for (uint32_t k = 0; k < s.n_at; k++) {
        double bytes = (double)c->at[k].ns - start;
        s.at[k].ns = bytes > 0 ? llrint(start + bytes * times) : c->at[k].ns;
    }
    return s;
}

int64_t ru_cost_coll_chunked_ns(const ru_coll_cost *c, ru_coll_op op, ru_coll_algo algo,
                                uint32_t n_ranks, int64_t size_bytes, int64_t chunk_bytes,
                                uint32_t depth)
{
    if (chunk_bytes <= 0 || chunk_bytes >= size_bytes) {
        return ru_cost_coll_ns(c, op, algo, n_ranks, size_bytes);
    }
    ru_coll_terms t = ru_cost_coll_terms(op, algo, n_ranks);
    int64_t n = (size_bytes + chunk_bytes - 1) / chunk_bytes;
    double piece = (double)size_bytes / (double)n, first = one_piece(c, &t, piece);
    double link = c->alpha_ns + ru_cost_coll_byte_ns(c, op, algo, n_ranks) * piece;
    double each = first / (depth > 0 ? depth : 1);
    each = each > link ? each : link;
    return llrint(first + (double)(n - 1) * each);
}
