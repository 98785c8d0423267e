/* Nothing arrives before it was sent.
 *
 * In each slice of time every transfer from i to j says of the corrections x of the two clocks
 *
 *   x_i - x_j <= arrived - sent          (both on the global clock as measured)
 *
 * Shortest ways in the graph of these (Bellman-Ford) give the largest corrections that are not
 * above 0 and the smallest not below it; their mean fits as well and moves least. Where a circle is
 * negative, the clocks moved within the slice: it stays as measured, and its violations are
 * counted.
 *
 * Source: duda-1987. */
#include <stdlib.h>
#include <string.h>

#include "trace/read/clock_impl.h"

enum { RANKS_MAX = 256 }; /* of the graph: n^2 places */
static const int64_t SLICE_NS = 1000000000;
static const int64_t SLACK_MAX_NS = INT64_C(1) << 40; /* of a file that may be believed */
static const int64_t PLACES_MAX = 1 << 22;            /* slices times ranks */

typedef struct flow {
    uint64_t id;
    uint32_t from, to; /* traces */
    int64_t sent_ns, arrived_ns;
    bool end; /* a receive */
} flow;

static int by_id(const void *pa, const void *pb)
{
    const flow *a = pa, *b = pb;
    if (a->id != b->id) {
        return a->id < b->id ? -1 : 1;
    }
    if (a->end != b->end) {
        return a->end ? 1 : -1;
    }
    int64_t x = a->end ? a->arrived_ns : a->sent_ns, y = b->end ? b->arrived_ns : b->sent_ns;
    return x < y ? -1 : x > y;
}

static int by_arrival(const void *pa, const void *pb)
{
    const flow *a = pa, *b = pb;
    return a->arrived_ns < b->arrived_ns ? -1 : a->arrived_ns > b->arrived_ns;
}

static int64_t own_time(const ru_trace_clocks *c, ru_trace_knot *const *knots, uint32_t k,
                        int64_t ns)
{
    return ns + rui_knots_offset(knots[k], c->n_knots[k], ns);
}

static int64_t ends_of(const ru_trace *t, uint32_t k, flow *into)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < t[k].n_threads; i++) {
        const ru_trace_thread *th = &t[k].threads[i];
        for (int64_t r = 0; r < th->n; r++) {
            const ru_record *rec = &th->records[r];
            bool send = rec->kind == RU_REC_SEND, recv = rec->kind == RU_REC_RECV;
            const ru_record_more *m = send || recv ? ru_trace_more(th, rec) : NULL;
            if (m == NULL || (m->flags & RU_REC_FAILED) != 0 || rec->dur_ns == UINT32_MAX) {
                continue;
            }
            if (into != NULL) {
                into[n] = (flow){.id = m->flow, .from = k, .to = k, .end = recv};
                into[n].sent_ns = rec->start_ns + m->wait_ns;
                into[n].arrived_ns = rec->start_ns;
            }
            n++;
        }
    }
    return n;
}

/* Joined flows, on the global clock as measured, in order of arrival. */
static ru_status flows_of(const ru_trace *t, const ru_trace_clocks *c, ru_trace_knot *const *knots,
                          ru_arena *arena, flow **out, int64_t *n_out, ru_err *err)
{
    int64_t n = 0, used = 0;
    for (uint32_t k = 0; k < c->n; k++) {
        n += ends_of(t, k, NULL);
    }
    flow *f = RU_NEW(arena, flow, n);
    if (f == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the clocks is full");
    }
    n = 0;
    for (uint32_t k = 0; k < c->n; k++) {
        n += ends_of(t, k, f + n);
    }
    if (n > 0) {
        qsort(f, (size_t)n, sizeof *f, by_id);
    }
    for (int64_t i = 0; i < n;) {
        int64_t end = i;
        while (end < n && f[end].id == f[i].id) {
            end++;
        }
        /* A name that was used again cannot be told apart here. */
        if (end - i == 2 && !f[i].end && f[i + 1].end && f[i].from != f[i + 1].to) {
            flow g = {.id = f[i].id, .from = f[i].from, .to = f[i + 1].to};
            g.sent_ns = own_time(c, knots, g.from, f[i].sent_ns);
            g.arrived_ns = own_time(c, knots, g.to, f[i + 1].arrived_ns);
            f[used++] = g;
        }
        i = end;
    }
    if (used > 0) {
        qsort(f, (size_t)used, sizeof *f, by_arrival);
    }
    *out = f;
    *n_out = used;
    return RU_OK;
}

/* Shortest ways from a source that is 0 away from everybody; false: a negative circle. */
static bool shortest(const int64_t *w, uint32_t n, bool reversed, int64_t *dist)
{
    memset(dist, 0, n * sizeof *dist);
    for (uint32_t round = 0; round <= n; round++) {
        bool moved = false;
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t j = 0; j < n; j++) {
                int64_t edge = reversed ? w[j * n + i] : w[i * n + j];
                if (edge != INT64_MAX && dist[j] + edge < dist[i]) {
                    dist[i] = dist[j] + edge;
                    moved = true;
                }
            }
        }
        if (!moved) {
            return true;
        }
    }
    return false;
}

/* w[i * n + j]: the least of arrived - sent from i to j. x gets what makes none negative. */
static bool solve(const int64_t *w, uint32_t n, int64_t *scratch, int64_t *x)
{
    int64_t *low = scratch, *high = scratch + n;
    if (!shortest(w, n, false, low) || !shortest(w, n, true, high)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        x[i] = (low[i] - high[i]) >> 1; /* rounded down: still none is negative */
    }
    return true;
}

typedef struct slices {
    int64_t from_ns;
    uint32_t n;
    int64_t *x; /* [n][ranks] corrections */
} slices;

static int64_t correction(const slices *s, uint32_t ranks, uint32_t k, int64_t ns)
{
    int64_t at = (ns - s->from_ns) / SLICE_NS;
    at = at < 0 ? 0 : at >= (int64_t)s->n ? (int64_t)s->n - 1 : at;
    return s->x[at * (int64_t)ranks + k];
}

/* The reference stays where it is: all others move against it. Knots at both ends of each slice. */
static ru_status move_knots(ru_trace_clocks *c, ru_trace_knot **knots, const slices *s,
                            ru_arena *arena, ru_err *err)
{
    for (uint32_t k = 0; k < c->n; k++) {
        bool moves = false;
        for (uint32_t i = 0; i < s->n; i++) {
            moves = moves || s->x[i * c->n + k] != s->x[i * c->n + c->reference];
        }
        if (!moves) {
            continue;
        }
        ru_trace_knot *into = RU_NEW(arena, ru_trace_knot, 2 * (int64_t)s->n);
        if (into == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena for the clocks is full");
        }
        for (uint32_t i = 0; i < 2 * s->n; i++) {
            int64_t global = s->from_ns + (int64_t)(i / 2) * SLICE_NS + (i % 2) * (SLICE_NS - 1);
            /* Its own time then: offsets hardly change over their own size. */
            int64_t own = global - rui_knots_offset(knots[k], c->n_knots[k], global);
            own = global - rui_knots_offset(knots[k], c->n_knots[k], own);
            int64_t moved = s->x[(i / 2) * c->n + k] - s->x[(i / 2) * c->n + c->reference];
            int64_t bound = rui_knots_bound(knots[k], c->n_knots[k], own);
            into[i] = (ru_trace_knot){.at_ns = own,
                                      .offset_ns = global - own + moved,
                                      .bound_ns = bound + (moved < 0 ? -moved : moved)};
        }
        knots[k] = into;
        c->n_knots[k] = 2 * s->n;
    }
    return RU_OK;
}

static ru_status repair(ru_trace_clocks *c, ru_trace_knot **knots, const flow *f, int64_t n,
                        ru_arena *arena, ru_err *err)
{
    uint32_t ranks = c->n;
    int64_t span = f[n - 1].arrived_ns - f[0].arrived_ns;
    slices s = {.from_ns = f[0].arrived_ns, .n = (uint32_t)(span / SLICE_NS) + 1};
    int64_t *w = RU_NEW(arena, int64_t, (int64_t)ranks * ranks);
    int64_t *scratch = RU_NEW(arena, int64_t, 2 * (int64_t)ranks);
    s.x = RU_NEW(arena, int64_t, (int64_t)s.n * ranks);
    if (w == NULL || scratch == NULL || s.x == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena for the clocks is full");
    }
    for (int64_t i = 0; i < n;) {
        int64_t at = (f[i].arrived_ns - s.from_ns) / SLICE_NS;
        for (uint32_t e = 0; e < ranks * ranks; e++) {
            w[e] = INT64_MAX;
        }
        for (; i < n && (f[i].arrived_ns - s.from_ns) / SLICE_NS == at; i++) {
            int64_t slack = f[i].arrived_ns - f[i].sent_ns;
            slack = slack > SLACK_MAX_NS    ? SLACK_MAX_NS
                    : slack < -SLACK_MAX_NS ? -SLACK_MAX_NS
                                            : slack;
            int64_t *least = &w[f[i].from * ranks + f[i].to];
            *least = slack < *least ? slack : *least;
        }
        if (!solve(w, ranks, scratch, &s.x[at * (int64_t)ranks])) {
            memset(&s.x[at * (int64_t)ranks], 0, ranks * sizeof *s.x);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t x = correction(&s, ranks, f[i].from, f[i].arrived_ns);
        int64_t y = correction(&s, ranks, f[i].to, f[i].arrived_ns);
        c->after += f[i].arrived_ns + y < f[i].sent_ns + x;
    }
    return move_knots(c, knots, &s, arena, err);
}

ru_status rui_clock_repair(const ru_trace *t, ru_trace_clocks *c, ru_trace_knot **knots,
                           ru_arena *arena, ru_err *err)
{
    flow *f = NULL;
    int64_t n = 0;
    RU_TRY(flows_of(t, c, knots, arena, &f, &n, err));
    c->flows = n;
    for (int64_t i = 0; i < n; i++) {
        int64_t early = f[i].sent_ns - f[i].arrived_ns;
        c->before += early > 0;
        c->worst_ns = early > c->worst_ns ? early : c->worst_ns;
    }

    bool small =
        n > 0 && (f[n - 1].arrived_ns - f[0].arrived_ns) / SLICE_NS < PLACES_MAX / (c->n + 1);
    if (c->before == 0 || c->n > RANKS_MAX || !small) {
        c->after = c->before;
        return RU_OK;
    }
    return repair(c, knots, f, n, arena, err);
}
