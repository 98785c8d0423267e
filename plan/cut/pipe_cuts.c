/* The cuts of a graph: sets of layers that need nothing from outside, reached one from another by
 * adding a layer that reads what is there, together with all that it needs. */
#include "base/map.h"
#include "plan/cut/pipe_impl.h"

typedef struct walk {
    const ru_pipe_in *in;
    ru_arena *a;
    uint32_t words;
    uint32_t *next, *first; /* edges by source: next[first[i] .. first[i + 1]) */
    uint32_t *order;        /* [n] topological, of ready layers the earlier one */
    uint64_t *down;         /* [n, words] a layer and all that it needs */
} walk;

static bool has(const uint64_t *set, uint32_t i)
{
    return (set[i / 64] >> (i % 64) & 1) != 0;
}

static void add(uint64_t *set, uint32_t i)
{
    set[i / 64] |= UINT64_C(1) << (i % 64);
}

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no memory for the cuts of the layers");
}

static ru_status sort_layers(walk *w, ru_err *err)
{
    const ru_pipe_in *in = w->in;
    uint32_t *waits = RU_NEW(w->a, uint32_t, in->n);
    w->first = RU_NEW(w->a, uint32_t, (int64_t)in->n + 2);
    w->next = RU_NEW(w->a, uint32_t, in->n_edges);
    w->order = RU_NEW(w->a, uint32_t, in->n);
    w->down = RU_NEW(w->a, uint64_t, (int64_t)in->n * w->words);
    if (waits == NULL || w->first == NULL || w->next == NULL || w->order == NULL ||
        w->down == NULL) {
        return full(err);
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        waits[in->edges[e].to]++;
        w->first[in->edges[e].from + 2]++;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        w->first[i + 2] += w->first[i + 1];
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        w->next[w->first[in->edges[e].from + 1]++] = in->edges[e].to;
    }
    uint32_t known = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        if (waits[i] == 0) {
            w->order[known++] = i;
        }
    }
    for (uint32_t k = 0; k < known; k++) {
        uint32_t i = w->order[k];
        add(w->down + (uint64_t)i * w->words, i);
        for (uint32_t e = w->first[i]; e < w->first[i + 1]; e++) {
            uint32_t to = w->next[e];
            for (uint32_t b = 0; b < w->words; b++) {
                w->down[(uint64_t)to * w->words + b] |= w->down[(uint64_t)i * w->words + b];
            }
            waits[to]--;
            if (waits[to] == 0) {
                w->order[known++] = to;
            }
        }
    }
    if (known < in->n) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the layers wait for each other in a circle");
    }
    return RU_OK;
}

RU_VEC(cut_sets, uint64_t *)

/* The set as number of `found`, once. */
static bool keep(walk *w, ru_map *seen, cut_sets *found, const uint64_t *set)
{
    bool fresh;
    ru_str key = ru_str_n((const char *)set, (int64_t)w->words * 8);
    uint64_t *at = ru_map_put(seen, key, &fresh);
    if (at == NULL || !fresh) {
        return at != NULL;
    }
    *at = found->n;
    uint64_t **slot = cut_sets_push(found, w->a);
    if (slot == NULL) {
        return false;
    }
    *slot = ru_arena_copy(w->a, set, (int64_t)w->words * 8, 8);
    return *slot != NULL;
}

/* Breadth first from the first layer that waits for none. Stops past cuts_max. */
static ru_status find_all(walk *w, cut_sets *found, ru_err *err)
{
    ru_map seen;
    ru_map_init(&seen, w->a, 0);
    uint64_t *now = RU_NEW(w->a, uint64_t, w->words);
    if (now == NULL || !keep(w, &seen, found, w->down + (uint64_t)w->order[0] * w->words)) {
        return full(err);
    }
    for (uint32_t k = 0; k < found->n && found->n <= w->in->cuts_max; k++) {
        for (uint32_t i = 0; i < w->in->n; i++) {
            for (uint32_t e = has(found->at[k], i) ? w->first[i] : w->first[i + 1];
                 e < w->first[i + 1]; e++) {
                uint32_t to = w->next[e];
                if (has(found->at[k], to)) {
                    continue;
                }
                for (uint32_t b = 0; b < w->words; b++) {
                    now[b] = found->at[k][b] | w->down[(uint64_t)to * w->words + b];
                }
                if (!keep(w, &seen, found, now)) {
                    return full(err);
                }
            }
        }
    }
    for (uint32_t i = 0; i < w->in->n; i++) { /* layers that nothing reached go last */
        add(now, i);
    }
    return keep(w, &seen, found, now) ? RU_OK : full(err);
}

/* Cuts of one order: where few bytes cross need not be looked for, the search does that. */
static ru_status find_line(walk *w, cut_sets *found, ru_err *err)
{
    *found = (cut_sets){0};
    uint32_t step = (w->in->n - 1) / w->in->cuts_max + 1;
    uint64_t *now = RU_NEW(w->a, uint64_t, w->words);
    for (uint32_t k = 0; now != NULL && k < w->in->n; k++) {
        add(now, w->order[k]);
        if ((k + 1) % step != 0 && k + 1 < w->in->n) {
            continue;
        }
        uint64_t **slot = cut_sets_push(found, w->a);
        if (slot == NULL) {
            return full(err);
        }
        *slot = ru_arena_copy(w->a, now, (int64_t)w->words * 8, 8);
        if (*slot == NULL) {
            return full(err);
        }
    }
    return now != NULL ? RU_OK : full(err);
}

static uint32_t count(const uint64_t *set, uint32_t words)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < words; b++) {
        n += (uint32_t)__builtin_popcountll(set[b]);
    }
    return n;
}

/* By number of layers, then as found: a subset stands before what holds it. */
static bool sort_cuts(walk *w, const cut_sets *found, rui_pipe_cuts *c)
{
    uint32_t *at = RU_NEW(w->a, uint32_t, (int64_t)w->in->n + 2);
    c->n = found->n;
    c->words = w->words;
    c->set = RU_NEW(w->a, uint64_t, ((int64_t)found->n + 1) * w->words);
    if (at == NULL || c->set == NULL) {
        return false;
    }
    for (uint32_t k = 0; k < found->n; k++) {
        at[count(found->at[k], w->words) + 1]++;
    }
    at[0] = 1;
    for (uint32_t i = 0; i <= w->in->n; i++) {
        at[i + 1] += at[i];
    }
    for (uint32_t k = 0; k < found->n; k++) {
        uint32_t place = at[count(found->at[k], w->words)]++;
        memcpy(c->set + (uint64_t)place * w->words, found->at[k], (size_t)w->words * 8);
    }
    return true;
}

/* Outputs that a layer outside the set reads. `last` becomes the layers of the set that no layer of
 * it reads. */
static double crossing_bytes(const walk *w, const uint64_t *set, uint64_t *last)
{
    const ru_pipe_in *in = w->in;
    double bytes = 0;
    memset(last, 0, (size_t)w->words * 8);
    for (uint32_t i = 0; i < in->n; i++) {
        bool inside = false, outside = false;
        for (uint32_t e = w->first[i]; has(set, i) && e < w->first[i + 1]; e++) {
            inside = inside || has(set, w->next[e]);
            outside = outside || !has(set, w->next[e]);
        }
        if (has(set, i) && !inside) {
            add(last, i);
        }
        bytes += outside ? (double)in->layers[i].activation_bytes : 0;
    }
    return bytes;
}

/* As the published optimizer counts: the layers that no layer of the set reads, and whatever stands
 * before one of those and is read by a layer that does not. */
static double published_bytes(const walk *w, const uint64_t *last)
{
    const ru_pipe_in *in = w->in;
    double bytes = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        bool counts = has(last, i);
        for (uint32_t k = 0; k < in->n && !counts; k++) {
            const uint64_t *down = w->down + (uint64_t)k * w->words;
            if (!has(last, k) || !has(down, i)) {
                continue;
            }
            for (uint32_t e = w->first[i]; e < w->first[i + 1]; e++) {
                counts = counts || !has(down, w->next[e]);
            }
        }
        bytes += counts ? (double)in->layers[i].activation_bytes : 0;
    }
    return bytes;
}

static ru_status measure(walk *w, rui_pipe_cuts *c, ru_err *err)
{
    const ru_pipe_in *in = w->in;
    int64_t n = (int64_t)c->n + 1;
    c->compute_s = RU_NEW(w->a, double, n);
    c->param_bytes = RU_NEW(w->a, double, n);
    c->activation_bytes = RU_NEW(w->a, double, n);
    c->cut_bytes = RU_NEW(w->a, double, n);
    uint64_t *last = RU_NEW(w->a, uint64_t, w->words);
    if (c->compute_s == NULL || c->param_bytes == NULL || c->activation_bytes == NULL ||
        c->cut_bytes == NULL || last == NULL) {
        return full(err);
    }
    for (uint32_t k = 1; k <= c->n; k++) {
        const uint64_t *set = c->set + (uint64_t)k * w->words;
        int64_t ns = 0, param = 0, activation = 0;
        for (uint32_t i = 0; i < in->n; i++) {
            if (has(set, i)) {
                ns += in->layers[i].compute_ns;
                param += in->layers[i].param_bytes;
                activation += in->layers[i].activation_bytes;
            }
        }
        c->compute_s[k] = (double)ns * 1e-9;
        c->param_bytes[k] = (double)param;
        c->activation_bytes[k] = (double)activation;
        c->cut_bytes[k] = crossing_bytes(w, set, last);
        if (in->model != RU_PIPE_CALIBRATED) {
            c->cut_bytes[k] = published_bytes(w, last);
        }
    }
    return RU_OK;
}

static bool nest(walk *w, rui_pipe_cuts *c)
{
    uint64_t wide = (uint64_t)c->n + 1;
    c->nest = RU_NEW(w->a, bool, (int64_t)(wide * wide));
    for (uint32_t a = 0; c->nest != NULL && a < c->n; a++) {
        const uint64_t *x = c->set + (uint64_t)a * w->words;
        for (uint32_t b = a + 1; b <= c->n; b++) {
            const uint64_t *y = c->set + (uint64_t)b * w->words;
            uint64_t outside = 0;
            for (uint32_t k = 0; k < w->words; k++) {
                outside |= x[k] & ~y[k];
            }
            c->nest[a * wide + b] = outside == 0;
        }
    }
    return c->nest != NULL;
}

ru_status rui_pipe_cuts_find(const ru_pipe_in *in, ru_arena *scratch, rui_pipe_cuts *c, ru_err *err)
{
    walk w = {.in = in, .a = scratch, .words = (in->n + 63) / 64};
    cut_sets found = {0};
    *c = (rui_pipe_cuts){.all = true};
    RU_TRY(sort_layers(&w, err));
    RU_TRY(find_all(&w, &found, err));
    if (found.n > in->cuts_max) {
        RU_TRY(find_line(&w, &found, err));
        c->all = false;
    }
    if (!sort_cuts(&w, &found, c) || !nest(&w, c)) {
        return full(err);
    }
    return measure(&w, c, err);
}
