/* The integer program of a small graph: proves a bound, finds what the search missed.
 *
 *   x_ud  unit u on device d        S_i  start of op i         o_ij  i before j
 *   y_kde transfer k from d to e    T_k  its start             w_kl  transfer k before l
 *
 *   end >= S_i + p_i + tail_i             end >= sum of p on d         sum of bytes on d <= memory
 *   T_k >= S_a + p_a, S_b >= T_k + c_k(y), y_kde >= x_ad + x_be - 1             for k = (a, b)
 *   S_j >= S_i + p_i - H (1 - o_ij) - H (2 - x_id - x_jd), and the other way     pairs without path
 *   T_l >= T_k + c_k - H (1 - w_kl) - H (4 - x_ad - x_be - x_cd - x_fe), and the other way
 *
 * H is for each row the latest end of the first minus the earliest start of the second. Rows of
 * links are nine tenths of all and few bind: they are left out until an answer breaks them, which
 * keeps the bound valid. Ops without time are left out of pairs for the same reason.
 * Source: pesto-2021 sec 3; the tight H, more than two devices and left-out rows are ours. */
#include <math.h>
#include <string.h>

#include "base/heap.h"
#include "plan/cut/place_impl.h"

/* Larger programs end by their budget without telling more than the other bounds. */
enum { OPS_MAX = 64, PAIRS_MAX = 400, LINK_PAIRS_MAX = 20000, DEVICES_MAX = 4 };

typedef struct pair {
    uint32_t a, b, col;
} pair;

RU_VEC(pair_list, pair)

typedef struct program {
    const rui_place *g;
    ru_milp_builder b;
    double scale;                    /* ns for one unit of time */
    double end;                      /* of the best plan, in units */
    uint32_t c_end, c_start, c_send; /* columns: end, S of op 0, T of edge 0 */
    uint32_t c_unit, c_apart;        /* x of unit 0, y of edge 0 */
    uint32_t fixed;                  /* unit on device 0 when devices are alike; else NONE */
    uint64_t *reach;                 /* [n] bit j: a path from i to j */
    pair_list ops, sends;
} program;

static double units(const program *p, int64_t ns)
{
    return (double)ns / p->scale;
}

/* -- columns ----------------------------------------------------------------------------------- */

/* Two devices share one column: 1 means the second. x_ud = base + sign * column. */
static uint32_t x_col(const program *p, uint32_t u, uint32_t d)
{
    return p->g->n_devs == 2 ? p->c_unit + u : p->c_unit + u * p->g->n_devs + d;
}

static double x_sign(const program *p, uint32_t d)
{
    return p->g->n_devs == 2 && d == 0 ? -1 : 1;
}

static double x_base(const program *p, uint32_t d)
{
    return p->g->n_devs == 2 && d == 0 ? 1 : 0;
}

static uint32_t y_col(const program *p, uint32_t e, uint32_t from, uint32_t to)
{
    uint32_t d = p->g->n_devs;
    return p->c_apart + e * d * d + from * d + to;
}

static bool may_part(const rui_place *g, uint32_t e)
{
    return g->unit[g->from[e]] != g->unit[g->to[e]];
}

static void put_columns(program *p, double low)
{
    const rui_place *g = p->g;
    p->c_end = ru_milp_col(&p->b, 1, low, p->end, false);
    for (uint32_t i = 0; i < g->n; i++) {
        double last = p->end - units(p, g->tail[i] + rui_place_least(g, i));
        uint32_t c =
            ru_milp_col(&p->b, 0, units(p, g->head[i]), fmax(last, units(p, g->head[i])), false);
        p->c_start = i == 0 ? c : p->c_start;
    }
    for (uint32_t e = 0; e < g->m; e++) {
        uint32_t c = ru_milp_col(&p->b, 0, 0, p->end, false);
        p->c_send = e == 0 ? c : p->c_send;
    }
    for (uint32_t u = 0; u < g->n_units; u++) {
        for (uint32_t d = 0; d < (g->n_devs == 2 ? 1u : g->n_devs); d++) {
            uint32_t pin = u == p->fixed ? 0 : g->unit_pin[u];
            bool pinned = pin != RUI_PLACE_NONE;
            double is = pin == (g->n_devs == 2 ? 1 : d) ? 1 : 0;
            uint32_t c = ru_milp_col(&p->b, 0, pinned ? is : 0, pinned ? is : 1, true);
            p->c_unit = u + d == 0 ? c : p->c_unit;
        }
    }
    for (uint32_t k = 0; k < g->m * g->n_devs * g->n_devs; k++) {
        uint32_t c = ru_milp_col(&p->b, 0, 0, 1, false);
        p->c_apart = k == 0 ? c : p->c_apart;
    }
    for (uint32_t k = 0; k < p->ops.n; k++) {
        p->ops.at[k].col = ru_milp_col(&p->b, 0, 0, 1, true);
    }
    for (uint32_t k = 0; k < p->sends.n; k++) {
        p->sends.at[k].col = ru_milp_col(&p->b, 0, 0, 1, true);
    }
}

/* -- rows -------------------------------------------------------------------------------------- */

/* sum of coef_d x_ud over devices, in a row opened before; answer: the part that is constant. */
static double put_took(program *p, uint32_t i, double sign)
{
    const rui_place *g = p->g;
    double base = 0;
    for (uint32_t d = 0; d < g->n_devs; d++) {
        double took = sign * units(p, rui_place_took(g, i, d));
        ru_milp_term(&p->b, x_col(p, g->unit[i], d), took * x_sign(p, d));
        base += took * x_base(p, d);
    }
    return base;
}

/* The constant part has to be known when a row is opened. */
static double took_base(const program *p, uint32_t i)
{
    return p->g->n_devs == 2 ? units(p, rui_place_took(p->g, i, 0)) : 0;
}

static void put_devices(program *p)
{
    const rui_place *g = p->g;
    for (uint32_t u = 0; u < g->n_units && g->n_devs != 2; u++) {
        (void)ru_milp_row(&p->b, 1, 1);
        for (uint32_t d = 0; d < g->n_devs; d++) {
            ru_milp_term(&p->b, x_col(p, u, d), 1);
        }
    }
    for (uint32_t d = 0; d < g->n_devs; d++) {
        double bytes = 0, work = 0, memory = (double)g->memory[d];
        for (uint32_t u = 0; u < g->n_units; u++) {
            bytes += x_base(p, d) * (double)g->unit_bytes[u] / memory;
        }
        for (uint32_t i = 0; i < g->n; i++) {
            work += x_base(p, d) * units(p, rui_place_took(g, i, d));
        }
        if (g->memory[d] != INT64_MAX) {
            (void)ru_milp_row(&p->b, -(double)INFINITY, 1 - bytes);
            for (uint32_t u = 0; u < g->n_units; u++) {
                ru_milp_term(&p->b, x_col(p, u, d),
                             x_sign(p, d) * (double)g->unit_bytes[u] / memory);
            }
        }
        (void)ru_milp_row(&p->b, work, (double)INFINITY);
        ru_milp_term(&p->b, p->c_end, 1);
        for (uint32_t i = 0; i < g->n; i++) {
            ru_milp_term(&p->b, x_col(p, g->unit[i], d),
                         -x_sign(p, d) * units(p, rui_place_took(g, i, d)));
        }
    }
}

/* `later` starts when op i has ended. */
static void put_after(program *p, uint32_t later, uint32_t i, double tail)
{
    (void)ru_milp_row(&p->b, took_base(p, i) + tail, (double)INFINITY);
    ru_milp_term(&p->b, later, 1);
    ru_milp_term(&p->b, p->c_start + i, -1);
    (void)put_took(p, i, -1);
}

static void put_edges(program *p)
{
    const rui_place *g = p->g;
    for (uint32_t e = 0; e < g->m; e++) {
        uint32_t a = g->from[e], b = g->to[e];
        if (!may_part(g, e)) {
            put_after(p, p->c_start + b, a, 0);
            continue;
        }
        put_after(p, p->c_send + e, a, 0);
        (void)ru_milp_row(&p->b, 0, (double)INFINITY);
        ru_milp_term(&p->b, p->c_start + b, 1);
        ru_milp_term(&p->b, p->c_send + e, -1);
        for (uint32_t d = 0; d < g->n_devs; d++) {
            for (uint32_t f = 0; f < g->n_devs; f++) {
                if (d != f) {
                    ru_milp_term(&p->b, y_col(p, e, d, f), -units(p, rui_place_send(g, e, d, f)));
                }
            }
        }
        for (uint32_t d = 0; d < g->n_devs; d++) {
            for (uint32_t f = 0; f < g->n_devs; f++) {
                if (d != f) {
                    (void)ru_milp_row(&p->b, x_base(p, d) + x_base(p, f) - 1, (double)INFINITY);
                    ru_milp_term(&p->b, y_col(p, e, d, f), 1);
                    ru_milp_term(&p->b, x_col(p, g->unit[a], d), -x_sign(p, d));
                    ru_milp_term(&p->b, x_col(p, g->unit[b], f), -x_sign(p, f));
                }
            }
        }
    }
}

/* start of `second` >= start of `first` + took when both are on their devices and `col` says that
 * the first one is first: x terms are given by (unit, device), n of them. */
typedef struct apart {
    uint32_t first, second; /* columns */
    double took, h;
    uint32_t order;
    bool order_is; /* the first is first when `order` is 1 */
    uint32_t n;
    uint32_t unit[4], dev[4];
} apart;

static void put_apart(const program *p, ru_milp_builder *b, const apart *r)
{
    /* second - first >= took - h (1 - o) - h sum (1 - x) */
    double low = r->took - r->h * (r->order_is ? 1 : 0);
    for (uint32_t k = 0; k < r->n; k++) {
        low -= r->h * (1 - x_base(p, r->dev[k]));
    }
    (void)ru_milp_row(b, low, (double)INFINITY);
    ru_milp_term(b, r->second, 1);
    ru_milp_term(b, r->first, -1);
    ru_milp_term(b, r->order, r->order_is ? -r->h : r->h);
    for (uint32_t k = 0; k < r->n; k++) {
        ru_milp_term(b, x_col(p, r->unit[k], r->dev[k]), -r->h * x_sign(p, r->dev[k]));
    }
}

static void put_pairs(program *p)
{
    const rui_place *g = p->g;
    for (uint32_t k = 0; k < p->ops.n; k++) {
        for (uint32_t turn = 0; turn < 2; turn++) {
            uint32_t i = turn == 0 ? p->ops.at[k].a : p->ops.at[k].b;
            uint32_t j = turn == 0 ? p->ops.at[k].b : p->ops.at[k].a;
            for (uint32_t d = 0; d < g->n_devs; d++) {
                apart r = {.first = p->c_start + i,
                           .second = p->c_start + j,
                           .took = units(p, rui_place_took(g, i, d)),
                           .order = p->ops.at[k].col,
                           .order_is = turn == 0,
                           .n = 2,
                           .unit = {g->unit[i], g->unit[j]},
                           .dev = {d, d}};
                r.h = p->end - units(p, g->tail[i] + g->head[j] + rui_place_least(g, i)) + r.took;
                r.h = fmax(r.h, 0);
                put_apart(p, &p->b, &r);
            }
        }
    }
}

/* -- rows of links ----------------------------------------------------------------------------- */

static uint32_t device_in(const program *p, const double *x, uint32_t u)
{
    uint32_t best = 0;
    for (uint32_t d = 0; d < p->g->n_devs; d++) {
        best = x_base(p, d) + x_sign(p, d) * x[x_col(p, u, d)] > 0.5 ? d : best;
    }
    return best;
}

static void put_links(const program *p, ru_milp_builder *b, const pair *q, uint32_t d, uint32_t f)
{
    const rui_place *g = p->g;
    for (uint32_t turn = 0; turn < 2; turn++) {
        uint32_t k = turn == 0 ? q->a : q->b, l = turn == 0 ? q->b : q->a;
        uint32_t ka = g->from[k], kb = g->to[k], la = g->from[l], lb = g->to[l];
        apart r = {.first = p->c_send + k,
                   .second = p->c_send + l,
                   .took = units(p, rui_place_send(g, k, d, f)),
                   .order = q->col,
                   .order_is = turn == 0,
                   .n = 4,
                   .unit = {g->unit[ka], g->unit[kb], g->unit[la], g->unit[lb]},
                   .dev = {d, f, d, f}};
        /* A transfer that is none may be as late as its reader's start. */
        r.h = r.took + p->end - units(p, g->tail[kb] + rui_place_least(g, kb)) -
              units(p, g->head[la] + rui_place_least(g, la));
        r.h = fmax(r.h, 0);
        put_apart(p, b, &r);
    }
}

static ru_status find_links(void *self, const double *x, ru_arena *arena, ru_milp_rows *more,
                            ru_err *err)
{
    program *p = self;
    const rui_place *g = p->g;
    ru_milp_builder b = ru_milp_build(arena);
    for (uint32_t k = 0; k < p->sends.n; k++) {
        const pair *q = &p->sends.at[k];
        uint32_t d = device_in(p, x, g->unit[g->from[q->a]]);
        uint32_t f = device_in(p, x, g->unit[g->to[q->a]]);
        if (d == f || d != device_in(p, x, g->unit[g->from[q->b]]) ||
            f != device_in(p, x, g->unit[g->to[q->b]])) {
            continue;
        }
        double s = x[p->c_send + q->a], t = x[p->c_send + q->b];
        double s_end = s + units(p, rui_place_send(g, q->a, d, f));
        double t_end = t + units(p, rui_place_send(g, q->b, d, f));
        if (fmin(s_end, t_end) - fmax(s, t) > 1e-6 * p->end) {
            put_links(p, &b, q, d, f);
            put_links(p, &b, q, f, d);
        }
    }
    return ru_milp_rows_done(&b, more, err);
}

/* -- devices that are alike
 * -----------------------------------------------------------------------*/

/* The unit of the longest op goes to device 0 when any device may change its name for another. */
static uint32_t find_fixed(const rui_place *g)
{
    const ru_place_device *d = g->in->devices;
    uint32_t longest = 0;
    for (uint32_t k = 1; k < g->n_devs; k++) {
        if (d[k].speed != d[0].speed || d[k].memory_bytes != d[0].memory_bytes) {
            return RUI_PLACE_NONE;
        }
    }
    for (uint32_t u = 0; u < g->n_units; u++) {
        if (g->unit_pin[u] != RUI_PLACE_NONE) {
            return RUI_PLACE_NONE;
        }
    }
    for (uint32_t i = 0; i < g->n; i++) {
        longest = rui_place_took(g, i, 0) > rui_place_took(g, longest, 0) ? i : longest;
    }
    return g->n_kinds == 1 ? g->unit[longest] : RUI_PLACE_NONE;
}

/* The same plan with two devices' names exchanged, so that the fixed unit is on device 0. */
static void rename_devices(const program *p, rui_place_sched *s)
{
    const rui_place *g = p->g;
    if (p->fixed == RUI_PLACE_NONE) {
        return;
    }
    uint32_t from = s->device[g->unit_op[g->unit_at[p->fixed]]];
    for (uint32_t i = 0; i < g->n; i++) {
        s->device[i] = s->device[i] == from ? 0 : s->device[i] == 0 ? from : s->device[i];
    }
}

/* -- the best plan as a start ------------------------------------------------------------------ */

static double *start_of(const program *p, const rui_place_sched *s, uint32_t n_cols, ru_arena *a)
{
    const rui_place *g = p->g;
    double *x = RU_NEW(a, double, n_cols);
    if (x == NULL) {
        return NULL;
    }
    x[p->c_end] = p->end;
    for (uint32_t i = 0; i < g->n; i++) {
        x[p->c_start + i] = units(p, s->start[i]);
        if (g->n_devs == 2) {
            x[p->c_unit + g->unit[i]] = s->device[i];
        } else {
            x[x_col(p, g->unit[i], s->device[i])] = 1;
        }
    }
    for (uint32_t e = 0; e < g->m; e++) {
        uint32_t a0 = g->from[e], d = s->device[a0], f = s->device[g->to[e]];
        int64_t at = d != f ? s->send[e] : s->start[a0] + rui_place_took(g, a0, d);
        x[p->c_send + e] = units(p, at);
        if (d != f && may_part(g, e)) {
            x[y_col(p, e, d, f)] = 1;
        }
    }
    for (uint32_t k = 0; k < p->ops.n; k++) {
        x[p->ops.at[k].col] = s->start[p->ops.at[k].a] < s->start[p->ops.at[k].b] ? 1 : 0;
    }
    for (uint32_t k = 0; k < p->sends.n; k++) {
        const pair *q = &p->sends.at[k];
        x[q->col] = x[p->c_send + q->a] < x[p->c_send + q->b] ? 1 : 0;
    }
    return x;
}

/* -- from an answer to a plan ------------------------------------------------------------------ */

typedef struct item_room {
    ru_heap heap;
    uint32_t *waits;    /* [n + m] ops, then transfers */
    int64_t *dev_free;  /* [n_devs] */
    int64_t *link_free; /* [n_devs, n_devs] */
} item_room;

static int64_t key_of(double x)
{
    return (int64_t)(x * 1e6);
}

static void release(item_room *r, const program *p, const double *x, uint32_t item)
{
    double at = item < p->g->n ? x[p->c_start + item] : x[p->c_send + item - p->g->n];
    if (--r->waits[item] == 0) {
        RU_CHECK(ru_heap_push(&r->heap, key_of(at), item) == RU_OK);
    }
}

static int64_t ready_at(const program *p, const rui_place_sched *s, uint32_t i)
{
    const rui_place *g = p->g;
    int64_t ready = 0;
    for (uint32_t k = g->in_at[i]; k < g->in_at[i + 1]; k++) {
        uint32_t e = g->in_edge[k], a = g->from[e], d = s->device[a], f = s->device[i];
        int64_t there = d == f ? s->start[a] + rui_place_took(g, a, d)
                               : s->send[e] + rui_place_send(g, e, d, f);
        ready = there > ready ? there : ready;
    }
    return ready;
}

static void play_item(item_room *r, const program *p, const double *x, uint32_t item,
                      rui_place_sched *s)
{
    const rui_place *g = p->g;
    if (item >= g->n) {
        uint32_t e = item - g->n, a = g->from[e], d = s->device[a], f = s->device[g->to[e]];
        int64_t at = s->start[a] + rui_place_took(g, a, d);
        int64_t *freed = &r->link_free[d * g->n_devs + f], took = rui_place_send(g, e, d, f);
        s->send[e] = d == f ? -1 : at;
        if (d != f && took > 0) {
            s->send[e] = at > *freed ? at : *freed;
            *freed = s->send[e] + took;
        }
        release(r, p, x, g->to[e]);
        return;
    }
    int64_t *freed = &r->dev_free[s->device[item]], ready = ready_at(p, s, item);
    s->start[item] = ready > *freed ? ready : *freed;
    *freed = s->start[item] + rui_place_took(g, item, s->device[item]);
    s->step_ns = *freed > s->step_ns ? *freed : s->step_ns;
    for (uint32_t k = g->out_at[item]; k < g->out_at[item + 1]; k++) {
        release(r, p, x, g->n + g->out_edge[k]);
    }
}

/* Devices and links take ops and transfers in the order of the answer, each as early as can be. */
static bool play(const program *p, const double *x, ru_arena *a, rui_place_sched *s)
{
    const rui_place *g = p->g;
    item_room r = {.waits = RU_NEW(a, uint32_t, (int64_t)g->n + g->m),
                   .dev_free = RU_NEW(a, int64_t, g->n_devs),
                   .link_free = RU_NEW(a, int64_t, (int64_t)g->n_devs * g->n_devs)};
    ru_heap_item *items = RU_NEW(a, ru_heap_item, (int64_t)g->n + g->m), item;
    if (r.waits == NULL || r.dev_free == NULL || r.link_free == NULL || items == NULL) {
        return false;
    }
    ru_heap_init(&r.heap, items, g->n + g->m);
    s->step_ns = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        s->device[i] = device_in(p, x, g->unit[i]);
        r.waits[i] = g->in_at[i + 1] - g->in_at[i] + 1;
    }
    for (uint32_t e = 0; e < g->m; e++) {
        r.waits[g->n + e] = 1;
    }
    for (uint32_t k = 0; k < g->n; k++) {
        release(&r, p, x, g->topo[k]);
    }
    while (ru_heap_pop(&r.heap, &item)) {
        play_item(&r, p, x, (uint32_t)item.value, s);
    }
    return true;
}

/* -- which pairs ------------------------------------------------------------------------------- */

static bool path(const program *p, uint32_t i, uint32_t j)
{
    return (p->reach[i] >> j & 1) != 0;
}

/* false: too many, or no memory. */
static bool find_pairs(program *p, ru_arena *a)
{
    const rui_place *g = p->g;
    p->reach = RU_NEW(a, uint64_t, g->n);
    if (p->reach == NULL) {
        return false;
    }
    for (uint32_t k = g->n; k-- > 0;) {
        uint32_t i = g->topo[k];
        p->reach[i] = UINT64_C(1) << i;
        for (uint32_t x = g->out_at[i]; x < g->out_at[i + 1]; x++) {
            p->reach[i] |= p->reach[g->to[g->out_edge[x]]];
        }
    }
    for (uint32_t i = 0; i < g->n; i++) {
        for (uint32_t j = i + 1; j < g->n; j++) {
            bool both = rui_place_least(g, i) > 0 && rui_place_least(g, j) > 0;
            if (both && !path(p, i, j) && !path(p, j, i)) {
                pair *q = p->ops.n < PAIRS_MAX ? pair_list_push(&p->ops, a) : NULL;
                if (q == NULL) {
                    return false;
                }
                *q = (pair){.a = i, .b = j};
            }
        }
    }
    for (uint32_t e = 0; e < g->m; e++) {
        for (uint32_t f = e + 1; f < g->m; f++) {
            bool both = may_part(g, e) && may_part(g, f) && g->send[e] > 0 && g->send[f] > 0;
            if (both && !path(p, g->to[e], g->from[f]) && !path(p, g->to[f], g->from[e])) {
                pair *q = p->sends.n < LINK_PAIRS_MAX ? pair_list_push(&p->sends, a) : NULL;
                if (q == NULL) {
                    return false;
                }
                *q = (pair){.a = e, .b = f};
            }
        }
    }
    return true;
}

static ru_status run(program *p, const ru_solver *solver, ru_arena *a, rui_place_sched *s,
                     int64_t *bound_ns, ru_place_program *end, ru_err *err)
{
    const rui_place *g = p->g;
    put_columns(p, units(p, *bound_ns) * (1 - 1e-9));
    put_devices(p);
    for (uint32_t i = 0; i < g->n; i++) {
        put_after(p, p->c_end, i, units(p, g->tail[i]));
    }
    put_edges(p);
    put_pairs(p);
    ru_milp milp;
    ru_solution sol;
    rui_place_sched now;
    RU_TRY(ru_milp_done(&p->b, false, &milp, err));
    rename_devices(p, s);
    double *start = start_of(p, s, milp.n_cols, a);
    if (start == NULL || !rui_place_sched_new(g, a, &now)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a program of %u columns", milp.n_cols);
    }
    ru_solve_in in = {.milp = &milp,
                      .start = start,
                      .nodes_max = g->in->nodes_max,
                      .gap_rel = 1e-7,
                      .seed = g->in->seed,
                      .lazy = find_links,
                      .lazy_self = p};
    ru_status st = solver->milp(&in, a, &sol, err);
    if (st == RU_E_UNSUPPORTED) {
        *end = RU_PLACE_NO_SOLVER;
        return RU_OK;
    }
    RU_TRY(st);
    if (sol.x != NULL && !play(p, sol.x, a, &now)) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a program of %u columns", milp.n_cols);
    }
    if (sol.x != NULL && now.step_ns < s->step_ns) {
        rui_place_sched_copy(g, s, &now);
    }
    /* The solver keeps rows within a millionth: a bound above a plan that close proves it. */
    double low = isfinite(sol.bound) ? sol.bound * p->scale * (1 - 2e-6) : 0;
    int64_t bound = low < (double)s->step_ns ? (int64_t)fmax(low, 0) : s->step_ns;
    bool proven = sol.end == RU_SOLVE_OPTIMAL && (double)s->step_ns * (1 - 4e-6) <= low;
    *bound_ns = proven ? s->step_ns : bound > *bound_ns ? bound : *bound_ns;
    *end = proven ? RU_PLACE_PROVEN : RU_PLACE_ENDED;
    return RU_OK;
}

ru_status rui_place_solve(const rui_place *g, const ru_solver *solver, ru_arena *a,
                          rui_place_sched *s, int64_t *bound_ns, ru_place_program *end, ru_err *err)
{
    *end = RU_PLACE_TOO_LARGE;
    bool knows = g->host == NULL && g->value == NULL;
    if (!knows || g->n > OPS_MAX || g->n_devs < 2 || g->n_devs > DEVICES_MAX ||
        g->in->nodes_max == 0) {
        return RU_OK;
    }
    program p = {.g = g,
                 .b = ru_milp_build(a),
                 .scale = (double)s->step_ns / 1000,
                 .end = 1000,
                 .fixed = find_fixed(g)};
    if (!find_pairs(&p, a)) {
        return RU_OK;
    }
    if (solver == NULL) {
        *end = RU_PLACE_NO_SOLVER;
        return RU_OK;
    }
    return run(&p, solver, a, s, bound_ns, end, err);
}
