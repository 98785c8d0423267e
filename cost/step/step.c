/* A step played through: tasks on servers in the order of time. */
#include "cost/step/step.h"

#include "base/heap.h"
#include "cost/step/step_impl.h"

#define SUM_MAX (INT64_C(1) << 61)

ru_status rui_step_check(const ru_step_in *in, ru_err *err)
{
    if (in->n > RU_STEP_TASKS_MAX || in->n_edges > RU_STEP_EDGES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "a step of %u tasks and %u edges, expected at most %d and %d",
                       in->n, in->n_edges, RU_STEP_TASKS_MAX, RU_STEP_EDGES_MAX);
    }
    int64_t sum = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_step_task *t = &in->tasks[i];
        if (t->server >= in->n_servers) {
            return RU_FAIL(err, RU_E_ARG, "task %u is on server %u of %u", i, t->server,
                           in->n_servers);
        }
        int64_t left = SUM_MAX - sum;
        bool fits = t->ns >= 0 && t->latency_ns >= 0 && t->ready_ns >= 0 && t->ns <= left &&
                    t->latency_ns <= left - t->ns && t->ready_ns <= left - t->ns - t->latency_ns;
        if (!fits) {
            return RU_FAIL(err, RU_E_ARG,
                           "task %u takes %lld ns, %lld ns of latency, from %lld ns on: expected 0 "
                           "or more, and less than 2^61 ns in all",
                           i, (long long)t->ns, (long long)t->latency_ns, (long long)t->ready_ns);
        }
        sum += t->ns + t->latency_ns + t->ready_ns;
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        if (in->edges[e].from >= in->n || in->edges[e].to >= in->n) {
            return RU_FAIL(err, RU_E_ARG, "edge %u goes from task %u to %u of %u", e,
                           in->edges[e].from, in->edges[e].to, in->n);
        }
    }
    for (uint32_t s = 0; in->lanes != NULL && s < in->n_servers; s++) {
        if (in->lanes[s] < 1) {
            return RU_FAIL(err, RU_E_ARG, "server %u has no lane", s);
        }
    }
    return RU_OK;
}

bool rui_step_links(const ru_step_in *in, ru_arena *a, rui_step_links_of *l)
{
    l->first = RU_NEW(a, uint32_t, (int64_t)in->n + 2);
    l->at = RU_NEW(a, uint32_t, in->n_edges);
    if (l->first == NULL || l->at == NULL) {
        return false;
    }
    /* first[i + 2] counts, then first[i + 1] is where the next one of i goes */
    for (uint32_t e = 0; e < in->n_edges; e++) {
        l->first[in->edges[e].from + 2]++;
    }
    for (uint32_t i = 2; i < in->n + 2; i++) {
        l->first[i] += l->first[i - 1];
    }
    for (uint32_t e = 0; e < in->n_edges; e++) {
        l->at[l->first[in->edges[e].from + 1]++] = in->edges[e].to;
    }
    return true;
}

/* What is known of a server while the step plays. */
typedef struct server {
    ru_heap ready;        /* of places in `sorted` */
    uint32_t first, next; /* its part of `sorted`; in_order: the next to start */
    uint32_t free;        /* lanes */
    bool dirty;           /* something changed in this round */
} server;

typedef struct play {
    const ru_step_in *in;
    rui_step_links_of followers;
    server *servers; /* [n_servers] */
    uint32_t *dirty; /* [n_servers] servers to look at, each once */
    uint32_t n_dirty;
    uint32_t *sorted;  /* [n] tasks by (server, rank, index) */
    uint32_t *place;   /* [n] inverse of sorted */
    uint32_t *waits;   /* [n] edges whose start has not ended */
    int64_t *ready_ns; /* [n] */
    ru_heap events;    /* by time: 2 task + (is an end) */
    int64_t *start, *end, *busy;
    uint32_t *order, n_started;
    int64_t now, last;
} play;

/* Tasks by (server, rank, index), and each server's heap over its part. */
static bool sort_tasks(play *p, ru_arena *scratch)
{
    const ru_step_in *in = p->in;
    ru_heap_item *items = RU_NEW(scratch, ru_heap_item, (int64_t)in->n * 2);
    uint32_t *count = RU_NEW(scratch, uint32_t, (int64_t)in->n_servers + 1);
    if (items == NULL || count == NULL) {
        return false;
    }
    ru_heap by_rank;
    ru_heap_init(&by_rank, items, in->n);
    for (uint32_t i = 0; i < in->n; i++) {
        RU_CHECK(ru_heap_push(&by_rank, in->tasks[i].rank, i) == RU_OK);
        count[in->tasks[i].server + 1]++;
    }
    for (uint32_t s = 0; s < in->n_servers; s++) {
        count[s + 1] += count[s];
        p->servers[s] = (server){
            .first = count[s], .next = count[s], .free = in->lanes != NULL ? in->lanes[s] : 1};
        ru_heap_init(&p->servers[s].ready, items + in->n + count[s], count[s + 1] - count[s]);
    }
    for (ru_heap_item top; ru_heap_pop(&by_rank, &top);) {
        uint32_t i = (uint32_t)top.value, at = count[in->tasks[i].server]++;
        p->sorted[at] = i;
        p->place[i] = at;
    }
    return true;
}

static bool play_init(play *p, const ru_step_in *in, ru_arena *out, ru_arena *scratch)
{
    uint32_t n = in->n;
    ru_heap_item *events = RU_NEW(scratch, ru_heap_item, n);
    *p = (play){.in = in,
                .servers = RU_NEW(scratch, server, in->n_servers),
                .dirty = RU_NEW(scratch, uint32_t, in->n_servers),
                .sorted = RU_NEW(scratch, uint32_t, n),
                .place = RU_NEW(scratch, uint32_t, n),
                .waits = RU_NEW(scratch, uint32_t, n),
                .ready_ns = RU_NEW(scratch, int64_t, n),
                .start = RU_NEW(out, int64_t, n),
                .end = RU_NEW(out, int64_t, n),
                .busy = RU_NEW(out, int64_t, in->n_servers),
                .order = RU_NEW(out, uint32_t, n)};
    if (events == NULL || p->servers == NULL || p->dirty == NULL || p->sorted == NULL ||
        p->place == NULL || p->waits == NULL || p->ready_ns == NULL || p->start == NULL ||
        p->end == NULL || p->busy == NULL || p->order == NULL ||
        !rui_step_links(in, scratch, &p->followers) || !sort_tasks(p, scratch)) {
        return false;
    }
    ru_heap_init(&p->events, events, n);
    return true;
}

static void touch(play *p, uint32_t s)
{
    if (!p->servers[s].dirty) {
        p->servers[s].dirty = true;
        p->dirty[p->n_dirty++] = s;
    }
}

/* Nothing keeps task i any more from ready_ns on: into its server's heap, now or then. */
static void release(play *p, uint32_t i)
{
    if (p->ready_ns[i] > p->now) {
        RU_CHECK(ru_heap_push(&p->events, p->ready_ns[i], (uint64_t)i * 2) == RU_OK);
        return;
    }
    uint32_t s = p->in->tasks[i].server;
    RU_CHECK(ru_heap_push(&p->servers[s].ready, p->place[i], i) == RU_OK);
    touch(p, s);
}

static void finish(play *p, uint32_t i)
{
    const ru_step_task *t = &p->in->tasks[i];
    int64_t arrives = p->now + t->latency_ns;
    p->last = arrives > p->last ? arrives : p->last;
    p->servers[t->server].free++;
    touch(p, t->server);
    for (uint32_t k = p->followers.first[i]; k < p->followers.first[i + 1]; k++) {
        uint32_t j = p->followers.at[k];
        p->ready_ns[j] = arrives > p->ready_ns[j] ? arrives : p->ready_ns[j];
        if (--p->waits[j] == 0) {
            release(p, j);
        }
    }
}

/* The task that server s would start now; false: none. */
static bool next_of(const play *p, uint32_t at, uint32_t *task)
{
    const server *s = &p->servers[at];
    bool in_order = p->in->in_order != NULL && p->in->in_order[at];
    const ru_heap_item *top = ru_heap_peek(&s->ready);
    if (s->free == 0 || top == NULL || (in_order && top->key != (int64_t)s->next)) {
        return false;
    }
    *task = (uint32_t)top->value;
    return true;
}

static void start(play *p, uint32_t at, uint32_t i)
{
    server *s = &p->servers[at];
    ru_heap_item item;
    RU_CHECK(ru_heap_pop(&s->ready, &item));
    s->free--;
    s->next++;
    p->order[p->n_started++] = i;
    p->start[i] = p->now;
    p->end[i] = p->now + p->in->tasks[i].ns;
    p->busy[at] += p->in->tasks[i].ns;
    if (p->in->tasks[i].ns == 0) {
        finish(p, i);
    } else {
        RU_CHECK(ru_heap_push(&p->events, p->end[i], (uint64_t)i * 2 + 1) == RU_OK);
    }
}

/* Tasks of 0 ns wherever they are next, until there are none; then one longer task a lane. The list
 * of servers grows while tasks end. */
static void start_all(play *p)
{
    uint32_t i;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t k = 0; k < p->n_dirty; k++) {
            while (next_of(p, p->dirty[k], &i) && p->in->tasks[i].ns == 0) {
                start(p, p->dirty[k], i);
                more = true;
            }
        }
        for (uint32_t k = 0; !more && k < p->n_dirty; k++) {
            while (next_of(p, p->dirty[k], &i) && p->in->tasks[i].ns > 0) {
                start(p, p->dirty[k], i);
            }
            more = more || next_of(p, p->dirty[k], &i); /* one of 0 ns on another lane */
        }
    }
    for (uint32_t k = 0; k < p->n_dirty; k++) {
        p->servers[p->dirty[k]].dirty = false;
    }
    p->n_dirty = 0;
}

static void run(play *p)
{
    for (uint32_t e = 0; e < p->in->n_edges; e++) {
        p->waits[p->in->edges[e].to]++;
    }
    for (uint32_t i = 0; i < p->in->n; i++) {
        p->ready_ns[i] = p->in->tasks[i].ready_ns;
        if (p->waits[i] == 0) {
            release(p, i);
        }
    }
    start_all(p);
    for (const ru_heap_item *top; (top = ru_heap_peek(&p->events)) != NULL;) {
        p->now = top->key;
        ru_heap_item item;
        for (; top != NULL && top->key == p->now; top = ru_heap_peek(&p->events)) {
            RU_CHECK(ru_heap_pop(&p->events, &item));
            uint32_t i = (uint32_t)(item.value / 2);
            if (item.value % 2 == 1) {
                finish(p, i);
            } else {
                release(p, i);
            }
        }
        start_all(p);
    }
}

ru_status ru_cost_step(const ru_step_in *in, ru_arena *out, ru_arena *scratch, ru_step_times *times,
                       ru_err *err)
{
    RU_TRY(rui_step_check(in, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    play p;
    bool fits = play_init(&p, in, out, scratch);
    if (fits) {
        run(&p);
    }
    if (out != scratch) {
        ru_arena_rewind(scratch, mark);
    }
    if (!fits) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a step of %u tasks and %u edges", in->n,
                       in->n_edges);
    }
    if (p.n_started < in->n) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "%u of %u tasks never start: they wait for each other in a circle",
                       in->n - p.n_started, in->n);
    }
    *times = (ru_step_times){.makespan_ns = p.last,
                             .start_ns = p.start,
                             .end_ns = p.end,
                             .busy_ns = p.busy,
                             .order = p.order};
    return RU_OK;
}
