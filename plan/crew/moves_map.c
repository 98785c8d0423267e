/* A map with its loads, its cost and its bounds. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cost/load.h"
#include "plan/crew/moves_impl.h"

static bool most_init(rui_moves_most *m, uint32_t n, ru_arena *a)
{
    for (m->width = 1; m->width < n; m->width *= 2) {
    }
    m->at = RU_NEW(a, int64_t, 2 * (int64_t)m->width);
    return m->at != NULL;
}

static void most_set(rui_moves_most *m, uint32_t i, int64_t v)
{
    uint32_t k = m->width + i;
    m->at[k] = v;
    for (k /= 2; k >= 1; k /= 2) {
        int64_t a = m->at[2 * k], b = m->at[2 * k + 1], most = a > b ? a : b;
        if (m->at[k] == most) {
            break;
        }
        m->at[k] = most;
    }
}

static ru_status pairs_init(rui_moves_map *m, ru_arena *a, ru_err *err)
{
    const ru_moves_in *in = m->in;
    m->near_at = RU_NEW(a, uint32_t, (int64_t)m->n + 2);
    m->near = RU_NEW(a, uint32_t, 2 * (int64_t)in->n_pairs + 1);
    m->near_bytes = RU_NEW(a, int64_t, 2 * (int64_t)in->n_pairs + 1);
    m->base = RU_NEW(a, int64_t, (int64_t)m->n + 1);
    if (m->near_at == NULL || m->near == NULL || m->near_bytes == NULL || m->base == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u pairs", in->n_pairs);
    }
    for (uint32_t j = 0; j < m->n; j++) {
        m->base[j] = in->object[j].net_bytes;
    }
    for (uint32_t k = 0; k < in->n_pairs; k++) {
        m->near_at[in->pair[k].a + 2]++;
        m->near_at[in->pair[k].b + 2]++;
        m->base[in->pair[k].a] -= in->pair[k].bytes;
        m->base[in->pair[k].b] -= in->pair[k].bytes;
    }
    for (uint32_t j = 0; j < m->n; j++) {
        m->near_at[j + 2] += m->near_at[j + 1];
        if (m->base[j] < 0) {
            return RU_FAIL(err, RU_E_ARG,
                           "the pairs of object %u have more bytes than its net_bytes", j);
        }
    }
    for (uint32_t k = 0; k < in->n_pairs; k++) {
        const ru_moves_pair *p = &in->pair[k];
        m->near[m->near_at[p->a + 1]] = p->b;
        m->near_bytes[m->near_at[p->a + 1]++] = p->bytes;
        m->near[m->near_at[p->b + 1]] = p->a;
        m->near_bytes[m->near_at[p->b + 1]++] = p->bytes;
    }
    return RU_OK;
}

ru_status rui_moves_map_init(rui_moves_map *m, const ru_moves_in *in, ru_arena *scratch,
                             ru_err *err)
{
    *m = (rui_moves_map){.in = in, .n = in->n_executors + in->n_shards};
    uint32_t w = in->n_workers;
    RU_TRY(pairs_init(m, scratch, err));
    m->to = RU_NEW(scratch, uint32_t, m->n);
    m->cpu_ns = RU_NEW(scratch, int64_t, w);
    m->net_bytes = RU_NEW(scratch, int64_t, w);
    m->memory_bytes = RU_NEW(scratch, int64_t, w);
    m->moved_bytes = RU_NEW(scratch, int64_t, w);
    m->touched = RU_NEW(scratch, uint32_t, w);
    if (m->to == NULL || m->cpu_ns == NULL || m->net_bytes == NULL || m->memory_bytes == NULL ||
        m->moved_bytes == NULL || m->touched == NULL || !most_init(&m->load, w, scratch) ||
        !most_init(&m->moving, w, scratch)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", w);
    }
    for (uint32_t j = 0; j < m->n; j++) {
        m->to[j] = RU_MOVES_NONE;
    }
    return RU_OK;
}

static void load_again(rui_moves_map *m, uint32_t w)
{
    const ru_moves_worker *k = &m->in->worker[w];
    most_set(&m->load, w, ru_load_ns(m->cpu_ns[w], k->cores, m->net_bytes[w], k->bytes_per_s));
}

static void moving_again(rui_moves_map *m, uint32_t w)
{
    int64_t pause_ns = m->in->pause_ns * m->touched[w];
    most_set(&m->moving, w,
             ru_load_ns(pause_ns, 1, m->moved_bytes[w], m->in->worker[w].bytes_per_s));
}

static int64_t over(const rui_moves_map *m, uint32_t w)
{
    int64_t room = m->in->worker[w].memory_bytes;
    return room > 0 && m->memory_bytes[w] > room ? m->memory_bytes[w] - room : 0;
}

/* Add (sign 1) or remove (-1) what object j on w costs, but for its pairs. */
static void weigh(rui_moves_map *m, uint32_t j, uint32_t w, int32_t sign)
{
    const ru_moves_object *o = &m->in->object[j];
    m->cpu_ns[w] += sign * o->cpu_ns;
    m->net_bytes[w] += sign * m->base[j];
    m->over_bytes -= over(m, w);
    m->memory_bytes[w] += sign * (o->state_bytes + o->data_bytes);
    m->over_bytes += over(m, w);
    RU_CHECK(m->cpu_ns[w] >= 0 && m->memory_bytes[w] >= 0 && m->over_bytes >= 0);
    bool all = m->in->method == RU_MOVES_RESTART;
    if (w == o->on && !all) {
        return;
    }
    m->moved_bytes[w] += sign * (o->state_bytes + (o->home == w ? 0 : o->data_bytes));
    m->touched[w] += (uint32_t)sign;
    moving_again(m, w);
    if (o->on != RU_MOVES_NONE) {
        m->moved_bytes[o->on] += sign * o->state_bytes;
        m->touched[o->on] += (uint32_t)sign;
        moving_again(m, o->on);
    }
}

void rui_moves_put(rui_moves_map *m, uint32_t j, uint32_t w)
{
    RU_CHECK(j < m->n && (w == RU_MOVES_NONE || w < m->in->n_workers));
    uint32_t from = m->to[j];
    if (from == w) {
        return;
    }
    for (uint32_t k = m->near_at[j]; k < m->near_at[j + 1]; k++) {
        uint32_t there = m->to[m->near[k]];
        if (there == RU_MOVES_NONE) {
            continue;
        }
        int64_t bytes = m->near_bytes[k];
        if (from != RU_MOVES_NONE && from != there) {
            m->net_bytes[from] -= bytes;
            m->net_bytes[there] -= bytes;
        }
        if (w != RU_MOVES_NONE && w != there) {
            m->net_bytes[w] += bytes;
            m->net_bytes[there] += bytes;
        }
        if (there != from && there != w && (from == RU_MOVES_NONE || w == RU_MOVES_NONE)) {
            load_again(m, there);
        }
    }
    if (from != RU_MOVES_NONE) {
        weigh(m, j, from, -1);
        load_again(m, from);
    }
    if (w != RU_MOVES_NONE) {
        weigh(m, j, w, 1);
        load_again(m, w);
    }
    m->to[j] = w;
}

void rui_moves_put_all(rui_moves_map *m, const uint32_t *to)
{
    for (uint32_t j = 0; j < m->n; j++) {
        rui_moves_put(m, j, to[j]);
    }
}

double rui_moves_cost(const rui_moves_map *m)
{
    return m->in->iterations * (double)(m->load.at[1] + m->in->barrier_ns) +
           (double)m->moving.at[1];
}

/* -- order and bounds ---------------------------------------------------------------------------
 */

static void sift(uint32_t *order, const int64_t *size, uint32_t at, uint32_t n)
{
    for (;;) {
        uint32_t least = at;
        for (uint32_t c = 2 * at + 1; c <= 2 * at + 2 && c < n; c++) {
            uint32_t x = order[c], y = order[least];
            least = size[x] < size[y] || (size[x] == size[y] && x > y) ? c : least;
        }
        if (least == at) {
            return;
        }
        uint32_t t = order[at];
        order[at] = order[least];
        order[least] = t;
        at = least;
    }
}

/* Heap sort, largest first, ties by index. */
static void sort_falling(uint32_t *order, const int64_t *size, uint32_t n)
{
    for (uint32_t k = n / 2; k-- > 0;) {
        sift(order, size, k, n);
    }
    for (uint32_t k = n; k-- > 1;) {
        uint32_t t = order[0];
        order[0] = order[k];
        order[k] = t;
        sift(order, size, 0, k);
    }
}

uint32_t *rui_moves_by_size(const rui_moves_map *m, ru_arena *scratch)
{
    const ru_moves_in *in = m->in;
    uint32_t *order = RU_NEW(scratch, uint32_t, (int64_t)m->n + 1);
    int64_t *size = RU_NEW(scratch, int64_t, (int64_t)m->n + 1);
    if (order == NULL || size == NULL) {
        return NULL;
    }
    double cores = 0, rate = 0;
    uint32_t stay = 0;
    for (uint32_t w = 0; w < in->n_workers; w++) {
        if (!in->worker[w].leaving) {
            cores += in->worker[w].cores;
            rate += in->worker[w].bytes_per_s;
            stay++;
        }
    }
    for (uint32_t j = 0; j < m->n; j++) {
        order[j] = j;
        size[j] =
            ru_load_ns(in->object[j].cpu_ns, cores / stay, in->object[j].net_bytes, rate / stay);
    }
    sort_falling(order, size, m->n);
    return order;
}

double rui_moves_alone_ns(const rui_moves_map *m, uint32_t j, uint32_t w)
{
    const ru_moves_worker *k = &m->in->worker[w];
    return (double)m->in->object[j].cpu_ns / k->cores + (double)m->base[j] * 1e9 / k->bytes_per_s;
}

typedef struct kinds {
    uint32_t *of;  /* [workers] */
    uint32_t *one; /* [n] a worker of each kind; leaving workers have none */
    double *count; /* [n] workers of each kind */
    uint32_t n;
    double cores, rate; /* of all */
} kinds;

static void find_kinds(const ru_moves_in *in, kinds *k)
{
    for (uint32_t w = 0; w < in->n_workers; w++) {
        uint32_t i = 0;
        const ru_moves_worker *a = &in->worker[w];
        while (i < k->n && (in->worker[k->one[i]].cores != a->cores ||
                            in->worker[k->one[i]].bytes_per_s != a->bytes_per_s)) {
            i++;
        }
        k->of[w] = i;
        if (a->leaving) {
            continue;
        }
        k->one[i] = w;
        k->count[i]++;
        k->n += i == k->n ? 1 : 0;
        k->cores += a->cores;
        k->rate += a->bytes_per_s;
    }
}

/* What the weights give: the sum over objects of their least weighted time. share [kinds]: time of
 * the objects that are least there, on each worker of the kind. */
static double weigh_kinds(const rui_moves_map *m, const kinds *k, const double *y, double *share,
                          double *each)
{
    double sum = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        share[i] = 0;
    }
    for (uint32_t j = 0; j < m->n; j++) {
        double least = INFINITY, ns = 0;
        uint32_t at = 0;
        for (uint32_t i = 0; i < k->n; i++) {
            double t = rui_moves_alone_ns(m, j, k->one[i]);
            at = y[i] * t < least ? i : at;
            ns = y[i] * t < least ? t : ns;
            least = fmin(least, y[i] * t);
        }
        sum += least;
        share[at] += ns / k->count[at];
        if (each != NULL) {
            each[j] = least;
        }
    }
    return sum;
}

static void to_one(const kinds *k, double *y)
{
    double sum = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        sum += y[i] * k->count[i];
    }
    for (uint32_t i = 0; i < k->n; i++) {
        y[i] /= sum;
    }
}

/* Every y gives a bound. By cores is the best for work alone, by rates for bytes alone; from the
 * best mix of both, weights grow where more lies than the bound and shrink elsewhere, by ever
 * smaller factors. best [kinds] becomes the best of all. */
static double best_weights(const rui_moves_map *m, const kinds *k, double *best, double *y,
                           double *share)
{
    enum { MIXES = 8, ROUNDS = 120, WORK_MAX = 40 * 1000 * 1000 };
    double most = -1, work = (double)m->n * k->n;
    for (uint32_t step = 0; step <= MIXES; step++) {
        double mix = (double)step / MIXES;
        for (uint32_t i = 0; i < k->n; i++) {
            const ru_moves_worker *w = &m->in->worker[k->one[i]];
            y[i] = mix * w->cores / k->cores + (1 - mix) * w->bytes_per_s / k->rate;
        }
        to_one(k, y);
        double sum = weigh_kinds(m, k, y, share, NULL);
        if (sum > most) {
            most = sum;
            memcpy(best, y, k->n * sizeof *y);
        }
    }
    memcpy(y, best, k->n * sizeof *y);
    for (uint32_t r = 0; k->n > 1 && r < ROUNDS && work * r < WORK_MAX && most > 0; r++) {
        (void)weigh_kinds(m, k, y, share, NULL);
        for (uint32_t i = 0; i < k->n; i++) {
            double over = fmin(fmax(share[i] / most - 1, -1), 1);
            y[i] *= ru_math_exp(0.3 / (2 + r) * over);
        }
        to_one(k, y);
        double sum = weigh_kinds(m, k, y, share, NULL);
        if (sum > most) {
            most = sum;
            memcpy(best, y, k->n * sizeof *y);
        }
    }
    return most;
}

ru_status rui_moves_bound(const rui_moves_map *m, ru_arena *scratch, rui_moves_dual *d, ru_err *err)
{
    const ru_moves_in *in = m->in;
    kinds k = {.of = RU_NEW(scratch, uint32_t, in->n_workers),
               .one = RU_NEW(scratch, uint32_t, in->n_workers),
               .count = RU_NEW(scratch, double, in->n_workers)};
    double *y = RU_NEW(scratch, double, in->n_workers), *t = RU_NEW(scratch, double, in->n_workers),
           *share = RU_NEW(scratch, double, in->n_workers);
    d->y = RU_NEW(scratch, double, in->n_workers);
    d->least = RU_NEW(scratch, double, (int64_t)m->n + 1);
    if (k.of == NULL || k.one == NULL || k.count == NULL || y == NULL || t == NULL ||
        share == NULL || d->y == NULL || d->least == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a bound over %u objects", m->n);
    }
    find_kinds(in, &k);
    double best = best_weights(m, &k, y, t, share), largest = 0;
    (void)weigh_kinds(m, &k, y, share, d->least);
    for (uint32_t j = 0; j < m->n; j++) {
        double quickest = INFINITY;
        for (uint32_t i = 0; i < k.n; i++) {
            quickest = fmin(quickest, rui_moves_alone_ns(m, j, k.one[i]));
        }
        largest = fmax(largest, quickest);
    }
    for (uint32_t w = 0; w < in->n_workers; w++) {
        d->y[w] = in->worker[w].leaving ? 0 : y[k.of[w]];
    }
    /* Loads are rounded, sums have rounding errors: stay below. */
    d->bound_ns = (int64_t)fmin(fmax(fmax(largest, best * (1 - 1e-9)) - 1, 0), 1e18);
    return RU_OK;
}
