/* Method pollux: the allocation of least loss, by annealing from the one in force.
 *
 * A move takes devices from some jobs and gives them to others; it is written down as steps of
 * give and take, so that one that does not help is undone. Losses of untouched jobs stay. */
#include <string.h>

#include "base/heap.h"
#include "base/rng.h"
#include "plan/fleet/alloc_impl.h"

enum { LOG_MAX = 1024, TOUCHED_MAX = 256, NODES_TAKEN_MAX = 8, LOOK_MAX = 64 };

typedef struct step {
    uint32_t job, node, devices;
    bool give;
} step;

typedef struct search {
    rui_alloc_values *v;
    const ru_alloc_in *in;
    rui_alloc_state *s;
    int64_t *loss; /* [n_jobs] in force */
    uint32_t **on; /* [n_nodes][devices] jobs of a node */
    uint32_t *n_on;
    /* Nodes by free devices: lists through next and last. */
    uint32_t head[RU_ALLOC_DEVICES_MAX + 1], *next, *last;
    step log[LOG_MAX];
    uint32_t n_log;
    uint32_t touched[TOUCHED_MAX], n_touched;
    bool broken;              /* the move went past a bound: undo it */
    uint32_t *waits, n_waits; /* jobs that run nowhere, where they come first */
    uint32_t *place;          /* [n_jobs] in waits; UINT32_MAX: none. NULL: nobody comes first */
    ru_rng rng;
} search;

static void list_drop(search *q, uint32_t node)
{
    uint32_t before = q->last[node], after = q->next[node];
    if (before != UINT32_MAX) {
        q->next[before] = after;
    } else {
        q->head[q->s->open[node]] = after;
    }
    if (after != UINT32_MAX) {
        q->last[after] = before;
    }
}

static void list_add(search *q, uint32_t node)
{
    uint32_t f = q->s->open[node], first = q->head[f];
    q->next[node] = first;
    q->last[node] = UINT32_MAX;
    if (first != UINT32_MAX) {
        q->last[first] = node;
    }
    q->head[f] = node;
}

static uint32_t part_of(const search *q, uint32_t job, uint32_t node)
{
    const ru_alloc_part *p = &q->s->parts[(size_t)job * q->s->spread];
    for (uint32_t i = 0; i < q->s->n_parts[job]; i++) {
        if (p[i].node == node) {
            return p[i].devices;
        }
    }
    return 0;
}

static void touch(search *q, uint32_t job)
{
    for (uint32_t i = 0; i < q->n_touched; i++) {
        if (q->touched[i] == job) {
            return;
        }
    }
    if (q->n_touched == TOUCHED_MAX) {
        q->broken = true;
        return;
    }
    q->touched[q->n_touched++] = job;
}

static void apply(search *q, step t)
{
    bool had = part_of(q, t.job, t.node) > 0;
    list_drop(q, t.node);
    if (t.give) {
        rui_alloc_give(q->s, t.job, t.node, t.devices);
        if (!had) {
            q->on[t.node][q->n_on[t.node]++] = t.job;
        }
    } else {
        rui_alloc_take(q->s, t.job, t.node, t.devices);
        if (part_of(q, t.job, t.node) == 0) {
            uint32_t *on = q->on[t.node], i = 0;
            while (on[i] != t.job) {
                i++;
            }
            on[i] = on[--q->n_on[t.node]];
        }
    }
    list_add(q, t.node);
}

static void move(search *q, uint32_t job, uint32_t node, uint32_t devices, bool give)
{
    bool adds = give && part_of(q, job, node) == 0 && q->s->n_parts[job] == q->s->spread;
    if (devices == 0 || q->broken) {
        return;
    }
    if (q->n_log == LOG_MAX || adds) {
        q->broken = true;
        return;
    }
    touch(q, job);
    if (!q->broken) {
        q->log[q->n_log++] = (step){job, node, devices, give};
        apply(q, q->log[q->n_log - 1]);
    }
}

static void clear(search *q, uint32_t job)
{
    while (q->s->n_parts[job] > 0 && !q->broken) {
        const ru_alloc_part *p = &q->s->parts[(size_t)job * q->s->spread];
        move(q, job, p->node, p->devices, false);
    }
}

static bool spans(const search *q, uint32_t job)
{
    return q->s->n_parts[job] > 1;
}

/* Is there a job on the node, besides this one, that spans nodes? */
static bool taken(const search *q, uint32_t node, uint32_t job)
{
    if (q->in->share_links) {
        return false;
    }
    for (uint32_t i = 0; i < q->n_on[node]; i++) {
        uint32_t o = q->on[node][i];
        if (o != job && spans(q, o)) {
            return true;
        }
    }
    return false;
}

static bool legal(const search *q, uint32_t job)
{
    uint32_t k = q->s->k[job];
    if (k == 0) {
        return true;
    }
    if (k < q->in->jobs[job].replicas_min || k > q->v->cap[job]) {
        return false;
    }
    const ru_alloc_part *p = &q->s->parts[(size_t)job * q->s->spread];
    for (uint32_t i = 0; spans(q, job) && i < q->s->n_parts[job]; i++) {
        if (taken(q, p[i].node, job)) {
            return false;
        }
    }
    return true;
}

static int64_t loss_now(search *q, uint32_t job)
{
    bool same = rui_alloc_same(q->in, q->s, job);
    return rui_alloc_look(q->v, job, q->s->k[job], spans(q, job))->loss[!same];
}

static void begin(search *q)
{
    q->n_log = q->n_touched = 0;
    q->broken = false;
}

static void undo(search *q)
{
    while (q->n_log > 0) {
        step t = q->log[--q->n_log];
        t.give = !t.give;
        apply(q, t);
    }
}

/* Who was stopped to make room for one that waited waits itself now. */
static void wait_or_run(search *q, uint32_t job)
{
    uint32_t at = q->place[job];
    if (q->s->k[job] == 0 && at == UINT32_MAX) {
        q->place[job] = q->n_waits;
        q->waits[q->n_waits++] = job;
    } else if (q->s->k[job] > 0 && at != UINT32_MAX) {
        uint32_t last = q->waits[--q->n_waits];
        q->waits[at] = last;
        q->place[last] = at;
        q->place[job] = UINT32_MAX;
    }
}

/* Keep the move when it is legal and, by this temperature, good enough. */
static bool settle(search *q, double heat)
{
    int64_t was = 0, is = 0, loss[TOUCHED_MAX];
    bool right = !q->broken && q->n_log > 0;
    for (uint32_t i = 0; right && i < q->n_touched; i++) {
        right = legal(q, q->touched[i]);
        was += q->loss[q->touched[i]];
        loss[i] = right ? loss_now(q, q->touched[i]) : 0;
        is += loss[i];
    }
    double worse = (double)(is - was);
    if (right && worse > 0) {
        right = heat > 0 && worse < 30 * heat && ru_rng_f64(&q->rng) < ru_math_exp(-worse / heat);
    }
    if (!right) {
        undo(q);
        return false;
    }
    for (uint32_t i = 0; i < q->n_touched; i++) {
        q->loss[q->touched[i]] = loss[i];
        if (q->place != NULL) {
            wait_or_run(q, q->touched[i]);
        }
    }
    return is < was;
}

/* Place a job that has nothing on up to `want` free devices: the node with least room to spare, or
 * the emptiest nodes that no other spanning job uses, or what one node has. */
static void insert(search *q, uint32_t job, uint32_t want)
{
    const uint32_t most = q->v->most;
    want = want < q->v->cap[job] ? want : q->v->cap[job];
    for (uint32_t f = want; f <= most && want > 0; f++) {
        if (q->head[f] != UINT32_MAX) {
            move(q, job, q->head[f], want, true);
            return;
        }
    }
    uint32_t nodes[RU_ALLOC_PARTS_MAX], n = 0, room = 0, looked = 0, best = UINT32_MAX;
    for (uint32_t f = most; f > 0 && room < want; f--) {
        for (uint32_t at = q->head[f]; at != UINT32_MAX && room < want && looked < LOOK_MAX;
             at = q->next[at], looked++) {
            best = best == UINT32_MAX ? at : best;
            if (n < q->s->spread && !taken(q, at, job)) {
                nodes[n++] = at;
                room += f;
            }
        }
    }
    bool whole = want > most || room >= want;
    if (n > 1 && room >= q->in->jobs[job].replicas_min && whole) {
        for (uint32_t i = 0; i < n && want > 0; i++) {
            uint32_t k = q->s->open[nodes[i]] < want ? q->s->open[nodes[i]] : want;
            move(q, job, nodes[i], k, true);
            want -= k;
        }
    } else if (best != UINT32_MAX) {
        uint32_t k = q->s->open[best] < want ? q->s->open[best] : want;
        move(q, job, best, k >= q->in->jobs[job].replicas_min ? k : 0, true);
    }
}

static uint32_t any_job(search *q)
{
    if (q->n_waits > 0 && ru_rng_below(&q->rng, 2) == 0) {
        return q->waits[ru_rng_below(&q->rng, q->n_waits)];
    }
    return ru_rng_below(&q->rng, q->in->n_jobs);
}

/* A node of the job, or any. */
static uint32_t any_node(search *q, uint32_t job)
{
    if (q->s->n_parts[job] > 0 && ru_rng_below(&q->rng, 3) > 0) {
        uint32_t i = ru_rng_below(&q->rng, q->s->n_parts[job]);
        return q->s->parts[(size_t)job * q->s->spread + i].node;
    }
    return ru_rng_below(&q->rng, q->in->n_nodes);
}

/* One device, or all that a neighbour has, from the node's free ones or the neighbour. */
static void steal(search *q)
{
    uint32_t job = any_job(q), node = any_node(q, job), room = q->v->cap[job] - q->s->k[job];
    uint32_t least = q->in->jobs[job].replicas_min,
             want = q->s->k[job] == 0 && least > 1 ? least : 1;
    if (room < want) {
        return;
    }
    if (q->s->open[node] >= want && ru_rng_below(&q->rng, 4) > 0) {
        uint32_t most = q->s->open[node] < room ? q->s->open[node] : room;
        move(q, job, node, want + ru_rng_below(&q->rng, most - want + 1), true);
        return;
    }
    if (q->n_on[node] == 0) {
        return;
    }
    uint32_t other = q->on[node][ru_rng_below(&q->rng, q->n_on[node])];
    if (other == job) {
        return;
    }
    uint32_t has = part_of(q, other, node);
    uint32_t n = ru_rng_below(&q->rng, 2) == 0 ? want : has;
    n = n < has ? n : has;
    n = n < room ? n : room;
    move(q, other, node, n, false);
    move(q, job, node, n, true);
}

static uint32_t other_size(search *q, uint32_t job)
{
    uint32_t k = q->s->k[job], most = q->v->most, base = 0;
    const ru_alloc_job *j = &q->in->jobs[job];
    for (uint32_t i = 0; i < j->n_now; i++) {
        base += j->now[i].devices;
    }
    const uint32_t sizes[] = {k + 1,
                              k > 1 ? k - 1 : 1,
                              k / most * most + most,
                              k > most ? (k - 1) / most * most : 1,
                              2 * k,
                              (k + 1) / 2,
                              base,
                              k};
    uint32_t want = sizes[ru_rng_below(&q->rng, RU_ARRAY_LEN(sizes))];
    return want > 0 ? want : 1;
}

/* Whole nodes go to one job; those that lie there find another place, smaller ones at times. */
static void take_nodes(search *q)
{
    uint32_t job = any_job(q), want = other_size(q, job), n = 0, rooms = 0, freed = 0;
    uint32_t node[NODES_TAKEN_MAX], out[TOUCHED_MAX], had[TOUCHED_MAX];
    uint32_t least = q->in->jobs[job].replicas_min;
    want = want < least ? least : want;
    bool keep = ru_rng_below(&q->rng, 2) == 0; /* take one more node, or begin anew */
    while (rooms < NODES_TAKEN_MAX && freed < (keep ? 1 : want)) {
        uint32_t at = rooms == 0 ? any_node(q, job) : ru_rng_below(&q->rng, q->in->n_nodes);
        freed += q->in->devices[at] > 0 ? q->in->devices[at] : 1;
        node[rooms++] = at;
        while (q->n_on[at] > 0 && !q->broken) {
            uint32_t other = q->on[at][0];
            if (other == job && q->n_on[at] == 1 && keep) {
                break;
            }
            other = other == job && keep ? q->on[at][1] : other;
            if (n == TOUCHED_MAX) {
                return;
            }
            out[n] = other;
            had[n++] = q->s->k[other];
            clear(q, other);
        }
    }
    if (!keep) {
        clear(q, job);
    }
    for (uint32_t i = 0; i < rooms && q->s->k[job] < want; i++) {
        uint32_t open = q->s->open[node[i]], room = want - q->s->k[job];
        uint32_t more = q->v->cap[job] - q->s->k[job];
        room = keep ? more : room < more ? room : more;
        move(q, job, node[i], open < room ? open : room, true);
    }
    for (uint32_t i = 0; i < n && !q->broken; i++) {
        uint32_t min = q->in->jobs[out[i]].replicas_min, small = min > 1 ? min : 1;
        if (out[i] != job) {
            insert(q, out[i], ru_rng_below(&q->rng, 3) == 0 ? small : had[i]);
        }
    }
}

static void reshape(search *q)
{
    uint32_t job = any_job(q), want = other_size(q, job);
    clear(q, job);
    insert(q, job, want);
}

/* Back to where it runs now, at the cost of whoever is there. */
static void reset(search *q)
{
    uint32_t job = any_job(q);
    const ru_alloc_job *j = &q->in->jobs[job];
    if (j->n_now == 0 || j->n_now > q->s->spread || rui_alloc_same(q->in, q->s, job)) {
        return;
    }
    clear(q, job);
    for (uint32_t i = 0; i < j->n_now && !q->broken; i++) {
        uint32_t node = j->now[i].node, need = j->now[i].devices;
        if (need > q->in->devices[node]) {
            q->broken = true;
            return;
        }
        while (q->s->open[node] < need && !q->broken) {
            uint32_t other = q->on[node][ru_rng_below(&q->rng, q->n_on[node])];
            uint32_t has = part_of(q, other, node), lacks = need - q->s->open[node];
            move(q, other, node, has < lacks ? has : lacks, false);
        }
        move(q, job, node, need, true);
    }
}

/* One job stops or shrinks elsewhere, another takes what it had. */
static void trade(search *q)
{
    uint32_t a = any_job(q), b = any_job(q);
    if (a == b || q->s->k[a] == 0) {
        return;
    }
    uint32_t had = q->s->k[a], has = q->s->k[b];
    bool swap = ru_rng_below(&q->rng, 2) == 0;
    clear(q, a);
    clear(q, b);
    insert(q, b, swap ? had : had + has);
    insert(q, a, swap ? has : 1 + ru_rng_below(&q->rng, had));
}

/* One job stops; up to four others start or begin anew with what is there, then it itself. */
static void scatter(search *q)
{
    uint32_t a = any_job(q), n = 1 + ru_rng_below(&q->rng, 4);
    if (q->s->k[a] == 0) {
        return;
    }
    clear(q, a);
    for (uint32_t i = 0; i < n && !q->broken; i++) {
        uint32_t b = any_job(q), least = q->in->jobs[b].replicas_min;
        if (b != a && q->s->k[b] == 0) {
            insert(q, b, least > 1 ? least : 1);
        }
    }
    uint32_t least = q->in->jobs[a].replicas_min;
    insert(q, a, least > 1 ? least : 1);
}

static void any_move(search *q)
{
    uint32_t what = ru_rng_below(&q->rng, 100);
    begin(q);
    if (what < 45) {
        steal(q);
    } else if (what < 60) {
        take_nodes(q);
    } else if (what < 80) {
        reshape(q);
    } else if (what < 90) {
        reset(q);
    } else if (what < 93) {
        scatter(q);
    } else {
        trade(q);
    }
}

/* -- grow ---------------------------------------------------------------------------------------*/

/* The next number of replicas whose loss falls fastest for each device more; 0: none falls. */
static uint32_t next_size(search *q, uint32_t job, int64_t *rate)
{
    uint32_t k = q->s->k[job], most = q->v->most, cap = q->v->cap[job], best = 0;
    uint32_t least = q->in->jobs[job].replicas_min;
    const uint32_t sizes[] = {k + 1, k + 2, k / most * most + most, k / most * most + 2 * most,
                              2 * k, least};
    int64_t now = loss_now(q, job);
    *rate = 0;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(sizes); i++) {
        uint32_t to = sizes[i] < cap ? sizes[i] : cap;
        if (to <= k || to < least) {
            continue;
        }
        int64_t then = rui_alloc_look(q->v, job, to, to > most)->loss[1];
        int64_t r = (now - then) / (to - k);
        if (r > *rate) {
            *rate = r;
            best = to;
        }
    }
    return best;
}

static void push(search *q, ru_heap *heap, uint32_t job)
{
    int64_t rate;
    if (next_size(q, job, &rate) > 0) {
        heap->pushes = job; /* equal rates: the earlier job */
        RU_CHECK(ru_heap_push(heap, -rate, job) == RU_OK);
    }
}

/* Whoever gains most for a device gets the next ones, where there are free ones. */
static ru_status grow(search *q, ru_arena *scratch, ru_err *err)
{
    uint32_t n = q->in->n_jobs;
    ru_heap_item *items = RU_NEW(scratch, ru_heap_item, n), item;
    if (items == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u jobs", n);
    }
    ru_heap heap;
    ru_heap_init(&heap, items, n);
    for (uint32_t j = 0; j < n; j++) {
        push(q, &heap, j);
    }
    while (ru_heap_pop(&heap, &item)) {
        uint32_t job = (uint32_t)item.value, was = q->s->k[job];
        int64_t rate;
        begin(q);
        uint32_t to = next_size(q, job, &rate);
        clear(q, job);
        insert(q, job, to);
        (void)settle(q, 0);
        if (q->s->k[job] > was) {
            push(q, &heap, job);
        }
    }
    return RU_OK;
}

/* Free devices beside a job's own ones, and for those that wait: until nobody gains any more. */
static void fill(search *q)
{
    bool again = true;
    while (again) {
        again = false;
        for (uint32_t j = 0; j < q->in->n_jobs; j++) {
            const ru_alloc_part *p = &q->s->parts[(size_t)j * q->s->spread];
            for (uint32_t i = 0; i < q->s->n_parts[j]; i++) {
                uint32_t node = p[i].node, open = q->s->open[node];
                for (uint32_t d = 1; d <= open && q->s->k[j] + d <= q->v->cap[j]; d++) {
                    begin(q);
                    move(q, j, node, d, true);
                    if (settle(q, 0)) {
                        again = true;
                        break;
                    }
                }
            }
            uint32_t least = q->in->jobs[j].replicas_min;
            if (q->s->k[j] == 0) {
                begin(q);
                insert(q, j, least > 1 ? least : 1);
                again = settle(q, 0) || again;
            }
        }
    }
}

/* -- all ----------------------------------------------------------------------------------------*/

static ru_status open_search(search *q, rui_alloc_values *v, rui_alloc_state *s, ru_arena *scratch,
                             ru_err *err)
{
    const ru_alloc_in *in = v->in;
    memset(q, 0, sizeof *q);
    q->v = v;
    q->in = in;
    q->s = s;
    q->rng = ru_rng_from(in->seed, 13);
    q->loss = RU_NEW(scratch, int64_t, in->n_jobs);
    q->on = RU_NEW(scratch, uint32_t *, in->n_nodes);
    q->n_on = RU_NEW(scratch, uint32_t, in->n_nodes);
    q->next = RU_NEW(scratch, uint32_t, in->n_nodes);
    q->last = RU_NEW(scratch, uint32_t, in->n_nodes);
    bool room =
        q->loss != NULL && q->on != NULL && q->n_on != NULL && q->next != NULL && q->last != NULL;
    for (uint32_t n = 0; room && n < in->n_nodes; n++) {
        q->on[n] = RU_NEW(scratch, uint32_t, in->devices[n]);
        room = q->on[n] != NULL;
    }
    if (!room) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to search for %u jobs on %u nodes", in->n_jobs,
                       in->n_nodes);
    }
    for (uint32_t f = 0; f <= RU_ALLOC_DEVICES_MAX; f++) {
        q->head[f] = UINT32_MAX;
    }
    rui_alloc_start(in, s);
    for (uint32_t n = in->n_nodes; n-- > 0;) { /* the first node is the first of its list */
        list_add(q, n);
    }
    for (uint32_t j = 0; j < in->n_jobs; j++) {
        const ru_alloc_part *p = &s->parts[(size_t)j * s->spread];
        for (uint32_t i = 0; i < s->n_parts[j]; i++) {
            q->on[p[i].node][q->n_on[p[i].node]++] = j;
        }
    }
    return RU_OK;
}

/* What is in force may break a bound that has changed since: such a job begins anew. */
static void drop_illegal(search *q)
{
    for (uint32_t j = 0; j < q->in->n_jobs; j++) {
        if (!legal(q, j)) {
            begin(q);
            clear(q, j);
        }
    }
    for (uint32_t j = 0; j < q->in->n_jobs; j++) {
        q->loss[j] = loss_now(q, j);
    }
}

static bool few(const ru_alloc_in *in)
{
    return in->tries > 0 && in->tries < 10 * ((uint64_t)in->n_jobs + in->n_nodes);
}

/* Heat falls from a part of what it costs a job with its fair share to lose half of it. */
static void anneal(search *q)
{
    const ru_alloc_in *in = q->in;
    uint64_t n = in->tries > 0 ? in->tries : 400 * ((uint64_t)in->n_jobs + in->n_nodes);
    n = n < 400000 ? n : 400000;
    double unit = (double)(rui_alloc_loss_of(q->v, 0.5, 1) - rui_alloc_loss_of(q->v, 1, 1)),
           heat = 0.02 * unit;
    uint64_t cold = few(in) ? 0 : n - n / 4, steps = cold / 64;
    double falls = steps > 0 ? ru_math_exp(ru_math_log(0.01) / (double)steps) : 1;
    for (uint64_t k = 0; k < n; k++) {
        heat = k >= cold ? 0 : k % 64 == 63 ? heat * falls : heat;
        any_move(q);
        (void)settle(q, heat);
    }
}

ru_status rui_alloc_pollux(rui_alloc_values *v, rui_alloc_state *s, ru_arena *scratch, ru_err *err)
{
    if (v->in->n_jobs == 0 || v->total == 0) {
        return RU_OK;
    }
    search *q = RU_NEW(scratch, search, 1);
    if (q == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to search");
    }
    RU_TRY(open_search(q, v, s, scratch, err));
    drop_illegal(q);
    RU_TRY(grow(q, scratch, err));
    if (few(v->in)) {
        q->waits = RU_NEW(scratch, uint32_t, v->in->n_jobs);
        q->place = RU_NEW(scratch, uint32_t, v->in->n_jobs);
        if (q->waits == NULL || q->place == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for %u jobs", v->in->n_jobs);
        }
        for (uint32_t j = 0; j < v->in->n_jobs; j++) {
            q->place[j] = UINT32_MAX;
            wait_or_run(q, j);
        }
    }
    anneal(q);
    fill(q);
    return RU_OK;
}
