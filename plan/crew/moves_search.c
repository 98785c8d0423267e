/* Improving a map: moves and exchanges from the most loaded worker on, then what does not pay is
 * taken back; and branch and bound for few objects. */
#include <math.h>
#include <string.h>

#include "cost/load.h"
#include "plan/crew/moves_impl.h"

enum { TARGETS_MAX = 32, PARTNERS_MAX = 8 };

typedef struct search {
    rui_moves_map *m;
    bool greedy;
    uint32_t *low; /* [TARGETS_MAX] the least loaded workers that stay */
    uint32_t n_low;
    uint32_t *first, *next; /* objects of each worker, as lists by index */
    uint32_t *best;         /* [objects] cheapest map so far */
    double best_cost;
    bool found;
} search;

/* A change: j goes to w, and k (unless it is RU_MOVES_NONE) to where j was. */
typedef struct change {
    uint32_t j, w, k;
    int64_t over_bytes;
    double key;
} change;

static void apply(rui_moves_map *m, const change *c)
{
    uint32_t from = m->to[c->j];
    rui_moves_put(m, c->j, c->w);
    if (c->k != RU_MOVES_NONE) {
        rui_moves_put(m, c->k, from);
    }
}

static void undo(rui_moves_map *m, const change *c, uint32_t from)
{
    if (c->k != RU_MOVES_NONE) {
        rui_moves_put(m, c->k, c->w);
    }
    rui_moves_put(m, c->j, from);
}

static void low_workers(search *s)
{
    const rui_moves_map *m = s->m;
    s->n_low = 0;
    for (uint32_t w = 0; w < m->in->n_workers; w++) {
        if (m->in->worker[w].leaving) {
            continue;
        }
        uint32_t at = s->n_low < TARGETS_MAX ? s->n_low++ : TARGETS_MAX;
        while (at > 0 && rui_moves_load(m, s->low[at - 1]) > rui_moves_load(m, w)) {
            if (at < TARGETS_MAX) {
                s->low[at] = s->low[at - 1];
            }
            at--;
        }
        if (at < TARGETS_MAX) {
            s->low[at] = w;
        }
    }
}

static void lists(search *s)
{
    const rui_moves_map *m = s->m;
    for (uint32_t w = 0; w < m->in->n_workers; w++) {
        s->first[w] = RU_MOVES_NONE;
    }
    for (uint32_t j = m->n; j-- > 0;) {
        s->next[j] = s->first[m->to[j]];
        s->first[m->to[j]] = j;
    }
}

/* The worker to relieve: the one farthest above its memory, else the most loaded. */
static uint32_t worst_worker(const rui_moves_map *m)
{
    uint32_t worst = 0;
    int64_t most = -1;
    for (uint32_t w = 0; w < m->in->n_workers; w++) {
        int64_t room = m->in->worker[w].memory_bytes;
        int64_t v = m->over_bytes == 0                      ? rui_moves_load(m, w)
                    : room > 0 && m->memory_bytes[w] > room ? m->memory_bytes[w] - room
                                                            : -1;
        worst = v > most ? w : worst;
        most = v > most ? v : most;
    }
    return worst;
}

static bool has_pairs(const rui_moves_map *m, uint32_t j)
{
    return m->near_at[j] != m->near_at[j + 1];
}

/* Does a change of objects without pairs leave one of the two workers at `limit` or above? Most
 * changes do, and this is quicker than to apply and undo them. */
static bool hopeless(const rui_moves_map *m, const change *c, uint32_t from, int64_t limit)
{
    if (has_pairs(m, c->j) || (c->k != RU_MOVES_NONE && has_pairs(m, c->k))) {
        return false;
    }
    const ru_moves_object *j = &m->in->object[c->j];
    int64_t cpu_ns = j->cpu_ns, bytes = j->net_bytes;
    if (c->k != RU_MOVES_NONE) {
        cpu_ns -= m->in->object[c->k].cpu_ns;
        bytes -= m->in->object[c->k].net_bytes;
    }
    const ru_moves_worker *a = &m->in->worker[from], *b = &m->in->worker[c->w];
    return ru_load_ns(m->cpu_ns[c->w] + cpu_ns, b->cores, m->net_bytes[c->w] + bytes,
                      b->bytes_per_s) >= limit ||
           ru_load_ns(m->cpu_ns[from] - cpu_ns, a->cores, m->net_bytes[from] - bytes,
                      a->bytes_per_s) >= limit;
}

/* Keep c in `best` when the two workers it changes end below `limit` (or memory is relieved) and it
 * costs least. */
static void try_change(const search *s, change *c, uint32_t from, int64_t limit, int64_t over,
                       change *best)
{
    rui_moves_map *m = s->m;
    if (over == 0 && hopeless(m, c, from, limit)) {
        return;
    }
    apply(m, c);
    int64_t a = rui_moves_load(m, from), b = rui_moves_load(m, c->w), most = a > b ? a : b;
    c->over_bytes = m->over_bytes;
    c->key = m->in->iterations * (double)most + (s->greedy ? 0 : (double)m->moving.at[1]);
    bool better = over > 0 ? m->over_bytes < over : m->over_bytes == 0 && most < limit;
    if (better && (best->j == RU_MOVES_NONE || c->over_bytes < best->over_bytes ||
                   (c->over_bytes == best->over_bytes && c->key < best->key))) {
        *best = *c;
    }
    undo(m, c, from);
}

static void try_targets(const search *s, uint32_t j, uint32_t from, int64_t limit, int64_t over,
                        change *best)
{
    const rui_moves_map *m = s->m;
    for (uint32_t i = 0; i < (s->greedy ? 1 : s->n_low); i++) {
        change c = {j, s->low[i], RU_MOVES_NONE, 0, 0};
        if (c.w != from) {
            try_change(s, &c, from, limit, over, best);
        }
    }
    uint32_t on = m->in->object[j].on;
    if (!s->greedy && on != RU_MOVES_NONE && on != from && !m->in->worker[on].leaving) {
        change c = {j, on, RU_MOVES_NONE, 0, 0};
        try_change(s, &c, from, limit, over, best);
    }
    for (uint32_t k = m->near_at[j]; !s->greedy && k < m->near_at[j + 1]; k++) {
        change c = {j, m->to[m->near[k]], RU_MOVES_NONE, 0, 0};
        if (c.w != from) {
            try_change(s, &c, from, limit, over, best);
        }
    }
}

/* One change that relieves the worst worker; false: none does. */
static bool step(search *s)
{
    rui_moves_map *m = s->m;
    uint32_t from = worst_worker(m);
    int64_t limit = m->load.at[1], over = m->over_bytes;
    change best = {RU_MOVES_NONE, 0, RU_MOVES_NONE, 0, 0};
    low_workers(s);
    lists(s);
    for (uint32_t j = s->first[from]; j != RU_MOVES_NONE; j = s->next[j]) {
        try_targets(s, j, from, limit, over, &best);
    }
    for (uint32_t j = s->first[from]; !s->greedy && j != RU_MOVES_NONE; j = s->next[j]) {
        for (uint32_t i = 0; i < s->n_low && i < PARTNERS_MAX; i++) {
            for (uint32_t k = s->first[s->low[i]]; s->low[i] != from && k != RU_MOVES_NONE;
                 k = s->next[k]) {
                change c = {j, s->low[i], k, 0, 0};
                try_change(s, &c, from, limit, over, &best);
            }
        }
    }
    if (best.j == RU_MOVES_NONE) {
        return false;
    }
    apply(m, &best);
    return true;
}

static void keep_best(search *s)
{
    double cost = rui_moves_cost(s->m);
    if (s->m->over_bytes == 0 && (!s->found || cost < s->best_cost)) {
        memcpy(s->best, s->m->to, s->m->n * sizeof *s->best);
        s->best_cost = cost;
        s->found = true;
    }
}

/* Take back, or send elsewhere, every moved object for which that costs less. */
static bool take_back(search *s)
{
    rui_moves_map *m = s->m;
    bool changed = false;
    for (uint32_t j = 0; j < m->n; j++) {
        uint32_t on = m->in->object[j].on, at = m->to[j];
        if (on == at || on == RU_MOVES_NONE || m->in->worker[on].leaving) {
            continue;
        }
        double cost = rui_moves_cost(m);
        int64_t over = m->over_bytes;
        int64_t moved = m->moved_bytes[at];
        rui_moves_put(m, j, on);
        bool less =
            rui_moves_cost(m) < cost || (rui_moves_cost(m) <= cost && m->moved_bytes[at] < moved);
        if (m->over_bytes > over || !less) {
            rui_moves_put(m, j, at);
        } else {
            changed = true;
        }
    }
    return changed;
}

/* Single moves from the most loaded worker that lower the whole cost. */
static bool cheaper_move(search *s)
{
    rui_moves_map *m = s->m;
    uint32_t from = worst_worker(m);
    double least = rui_moves_cost(m);
    change best = {RU_MOVES_NONE, 0, RU_MOVES_NONE, 0, 0};
    low_workers(s);
    for (uint32_t j = 0; j < m->n; j++) {
        for (uint32_t i = 0; m->to[j] == from && i < s->n_low; i++) {
            change c = {j, s->low[i], RU_MOVES_NONE, 0, 0};
            apply(m, &c);
            double cost = rui_moves_cost(m);
            if (m->over_bytes == 0 && cost < least) {
                least = cost;
                best = c;
            }
            undo(m, &c, from);
        }
    }
    if (best.j != RU_MOVES_NONE) {
        apply(m, &best);
    }
    return best.j != RU_MOVES_NONE;
}

static ru_status search_init(search *s, rui_moves_map *m, bool greedy, ru_arena *a, ru_err *err)
{
    *s = (search){.m = m, .greedy = greedy};
    s->low = RU_NEW(a, uint32_t, TARGETS_MAX);
    s->first = RU_NEW(a, uint32_t, m->in->n_workers);
    s->next = RU_NEW(a, uint32_t, m->n);
    s->best = RU_NEW(a, uint32_t, m->n);
    if (s->low == NULL || s->first == NULL || s->next == NULL || s->best == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to search maps of %u objects", m->n);
    }
    return RU_OK;
}

ru_status rui_moves_improve(rui_moves_map *m, bool greedy, ru_arena *scratch, ru_err *err)
{
    search s;
    RU_TRY(search_init(&s, m, greedy, scratch, err));
    uint32_t rounds = m->in->rounds_max > 0 ? m->in->rounds_max : 8 * m->n;
    keep_best(&s);
    for (uint32_t r = 0; r < rounds && step(&s); r++) {
        if (greedy) {
            s.found = false; /* each step is an improvement by its own rule */
        }
        keep_best(&s);
    }
    if (!s.found) {
        return RU_OK; /* above memory: the caller sees it */
    }
    rui_moves_put_all(m, s.best);
    bool more = !greedy;
    for (uint32_t r = 0; more && r < rounds; r++) {
        more = take_back(&s);
        more = cheaper_move(&s) || more;
    }
    return RU_OK;
}

/* -- branch and bound ---------------------------------------------------------------------------
 */

typedef struct exact {
    rui_moves_map *m;
    const rui_moves_dual *dual;
    const uint32_t *order;
    double *rest; /* [n + 1] what objects from here on add to sum y_w load_w */
    uint32_t *best;
    double best_cost;
    int64_t nodes;
    bool found;
} exact;

static double bound_of(const exact *x, uint32_t depth)
{
    const rui_moves_map *m = x->m;
    double sum = x->rest[depth];
    for (uint32_t w = 0; w < m->in->n_workers; w++) {
        sum += x->dual->y[w] * (double)rui_moves_load(m, w);
    }
    double load = fmax(sum * (1 - 1e-9) - 1, (double)m->load.at[1]);
    return m->in->iterations * (load + (double)m->in->barrier_ns) + (double)m->moving.at[1];
}

/* depth <= RUI_MOVES_EXACT_MAX. False: the nodes are used up. */
static bool branch(exact *x, uint32_t depth)
{
    rui_moves_map *m = x->m;
    if (depth == m->n) {
        double cost = rui_moves_cost(m);
        if (!x->found || cost < x->best_cost) {
            memcpy(x->best, m->to, m->n * sizeof *x->best);
            x->best_cost = cost;
            x->found = true;
        }
        return true;
    }
    uint32_t j = x->order[depth], on = m->in->object[j].on;
    bool begin = on != RU_MOVES_NONE && !m->in->worker[on].leaving;
    bool whole = true;
    for (uint32_t i = 0; i <= m->in->n_workers && whole; i++) {
        uint32_t w = i == 0 ? on : i - 1; /* where it is comes first */
        if (i == 0 ? !begin : (w == on && begin) || m->in->worker[w].leaving) {
            continue;
        }
        if (x->nodes-- <= 0) {
            return false;
        }
        rui_moves_put(m, j, w);
        if (m->over_bytes == 0 && (!x->found || bound_of(x, depth + 1) < x->best_cost)) {
            whole = branch(x, depth + 1);
        }
        rui_moves_put(m, j, RU_MOVES_NONE);
    }
    return whole;
}

ru_status rui_moves_exact(rui_moves_map *m, const rui_moves_dual *dual, ru_arena *scratch,
                          bool *proven, ru_err *err)
{
    exact x = {.m = m, .dual = dual, .nodes = m->in->nodes_max};
    x.order = rui_moves_by_size(m, scratch);
    x.rest = RU_NEW(scratch, double, (int64_t)m->n + 1);
    x.best = RU_NEW(scratch, uint32_t, (int64_t)m->n + 1);
    if (x.order == NULL || x.rest == NULL || x.best == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u objects", m->n);
    }
    for (uint32_t k = m->n; k-- > 0;) {
        x.rest[k] = x.rest[k + 1] + dual->least[x.order[k]];
    }
    x.found = m->over_bytes == 0;
    x.best_cost = rui_moves_cost(m);
    memcpy(x.best, m->to, m->n * sizeof *x.best);
    for (uint32_t j = 0; j < m->n; j++) {
        rui_moves_put(m, j, RU_MOVES_NONE);
    }
    *proven = branch(&x, 0);
    rui_moves_put_all(m, x.best);
    search s = {.m = m};
    (void)take_back(&s); /* of maps that cost the same, one that moves less */
    return RU_OK;
}
