#include "serve/serve.h"

#include <math.h>
#include <string.h>

#include "base/heap.h"

static const int64_t NEVER = INT64_MAX;

enum {
    LATELY = 4096, /* rows of a priority, by which shares of priorities are known */
    STANDS = 5,    /* promises that a rush lasts for until fewer wait */
    LOW_PART = 4,  /* of the promise, then */
};

typedef enum stand { FREE, IN_BUFFER, IN_READY, RUNS } stand;

/* A request: in a list that is free, of a buffer, or of a batch. */
typedef struct place {
    uint64_t id;
    int64_t due_ns; /* NEVER: none */
    uint32_t before, next;
    uint32_t class_of, rows, priority;
    uint32_t stamp; /* which request of this place: dues of those before it are stale */
    uint32_t in;    /* buffer or batch */
    stand stands;
} place;

typedef struct queue {
    uint32_t first, last, n, rows;
} queue;

typedef struct buffer {
    ru_serve_rule rule;
    uint32_t number; /* in its table */
    queue q;
    int64_t deadline_ns;
    ru_serve_reason why; /* of the deadline */
    uint32_t running;
    uint32_t rows_of[RU_SERVE_PRIORITIES]; /* of q */
    uint32_t left_of[RU_SERVE_PRIORITIES]; /* rows that left lately; halved together */
    int64_t service_ns[RU_SERVE_SIZES], turn_ns, margin_ns;
    int64_t rush_ns, refused_ns; /* since when, and when last, the promise refused; 0: never */
} buffer;

typedef struct batch {
    ru_serve_start start;
    queue q;
    int64_t due_ns; /* least of its members */
    uint32_t priority;
    uint32_t table; /* of its buffer */
    uint32_t next;  /* free or ready */
    bool running;
} batch;

/* Buffers of the table in force, then those of the one before that are still open. */
enum { BUFFERS = 2 * RU_SERVE_BUFFERS_MAX };

struct ru_serve {
    ru_serve_options opt;
    ru_rng rng;
    int64_t now_ns;
    uint32_t n, n_classes, table; /* of the table in force; how many there were */
    double share[RU_SERVE_BUFFERS_MAX * RU_SERVE_CLASSES_MAX];
    buffer buffers[BUFFERS];
    place *places;  /* [requests_max] */
    batch *batches; /* [requests_max] */
    ru_heap dues;   /* [2 requests_max] stamp << 32 | place, some of them stale */
    ru_time told;   /* when the timer was asked for */
    uint32_t free_place, free_batch;
    uint32_t ready_first;
    ru_serve_stats stats;
};

ru_status ru_serve_table_check(const ru_serve_table *t, ru_err *err)
{
    if (t->n < 1 || t->n > RU_SERVE_BUFFERS_MAX || t->n_classes < 1 ||
        t->n_classes > RU_SERVE_CLASSES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "a table of %u buffers (1 to %d) and %u classes (1 to %d)",
                       t->n, RU_SERVE_BUFFERS_MAX, t->n_classes, RU_SERVE_CLASSES_MAX);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->rule[i].batch < 1 || t->rule[i].timeout_ns < 0 ||
            t->rule[i].timeout_ns > INT64_MAX / 4 || t->rule[i].promise_ns < 0) {
            return RU_FAIL(err, RU_E_ARG, "buffer %u has batches of %u and waits %lld ns", i,
                           t->rule[i].batch, (long long)t->rule[i].timeout_ns);
        }
    }
    for (uint32_t k = 0; k < t->n_classes; k++) {
        double sum = 0;
        for (uint32_t i = 0; i < t->n; i++) {
            double v = t->share[(size_t)i * t->n_classes + k];
            sum += v >= 0 ? v : RU_NAN;
        }
        if (!(sum > 0) || !isfinite(sum)) {
            return RU_FAIL(err, RU_E_ARG, "no buffer takes requests of class %u", k);
        }
    }
    return RU_OK;
}

static void install(ru_serve *s, const ru_serve_table *t)
{
    s->n = t->n;
    s->n_classes = t->n_classes;
    s->table++;
    memcpy(s->share, t->share, (size_t)t->n * t->n_classes * sizeof *t->share);
    for (uint32_t i = 0; i < RU_SERVE_BUFFERS_MAX; i++) {
        s->buffers[i] =
            (buffer){.number = i, .q = {RU_SERVE_NONE, RU_SERVE_NONE, 0, 0}, .deadline_ns = NEVER};
        if (i < t->n) {
            s->buffers[i].rule = t->rule[i];
        }
    }
}

ru_status ru_serve_init(const ru_serve_options *opt, const ru_serve_table *table, ru_time now,
                        ru_arena *arena, ru_serve **out, ru_err *err)
{
    RU_TRY(ru_serve_table_check(table, err));
    if (opt->requests_max < 1 || opt->requests_max >= RU_SERVE_NONE / 2 || opt->instances_max < 1 ||
        opt->reserve_ns < 0) {
        return RU_FAIL(err, RU_E_ARG, "a server of %u requests and %u instances", opt->requests_max,
                       opt->instances_max);
    }
    ru_serve *s = RU_NEW(arena, ru_serve, 1);
    uint32_t n = opt->requests_max;
    place *places = RU_NEW(arena, place, n);
    batch *batches = RU_NEW(arena, batch, n);
    ru_heap_item *dues = RU_NEW(arena, ru_heap_item, 2 * n);
    if (s == NULL || places == NULL || batches == NULL || dues == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a server of %u requests", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        places[i].next = batches[i].next = i + 1 < n ? i + 1 : RU_SERVE_NONE;
    }
    s->opt = *opt;
    s->rng = ru_rng_from(opt->seed, ru_rng_label("serve"));
    s->now_ns = now.ns;
    s->places = places;
    s->batches = batches;
    ru_heap_init(&s->dues, dues, 2 * n);
    s->told.ns = NEVER;
    s->ready_first = RU_SERVE_NONE;
    install(s, table);
    for (uint32_t i = RU_SERVE_BUFFERS_MAX; i < BUFFERS; i++) {
        s->buffers[i] = s->buffers[i - RU_SERVE_BUFFERS_MAX];
    }
    *out = s;
    return RU_OK;
}

/* -- queues ------------------------------------------------------------------------------------
 */

static bool urgent(uint32_t priority, int64_t due_ns, uint32_t than, int64_t than_due_ns)
{
    return priority != than ? priority < than : due_ns < than_due_ns;
}

/* At the end; `sorted`: before all that are less urgent. */
static void enqueue(ru_serve *s, queue *q, uint32_t at, bool sorted)
{
    place *p = &s->places[at];
    uint32_t before = q->last;
    while (sorted && before != RU_SERVE_NONE &&
           urgent(p->priority, p->due_ns, s->places[before].priority, s->places[before].due_ns)) {
        before = s->places[before].before;
    }
    p->before = before;
    p->next = before != RU_SERVE_NONE ? s->places[before].next : q->first;
    *(before != RU_SERVE_NONE ? &s->places[before].next : &q->first) = at;
    *(p->next != RU_SERVE_NONE ? &s->places[p->next].before : &q->last) = at;
    q->n++;
    q->rows += p->rows;
}

static void dequeue(ru_serve *s, queue *q, uint32_t at)
{
    place *p = &s->places[at];
    *(p->before != RU_SERVE_NONE ? &s->places[p->before].next : &q->first) = p->next;
    *(p->next != RU_SERVE_NONE ? &s->places[p->next].before : &q->last) = p->before;
    q->n--;
    q->rows -= p->rows;
}

static void free_place(ru_serve *s, uint32_t at)
{
    s->places[at].stands = FREE;
    s->places[at].stamp++;
    s->places[at].next = s->free_place;
    s->free_place = at;
}

static void tell(const ru_serve *s, ru_serve_word word, const ru_serve_request *r, ru_effects *fx)
{
    ru_fx_local(fx, s->opt.what_first + (uint32_t)word, 0, r, sizeof *r);
}

/* -- batches -----------------------------------------------------------------------------------
 */

/* An empty batch of a buffer. */
static uint32_t open_batch(ru_serve *s, const buffer *f, ru_serve_reason why)
{
    RU_CHECK(s->free_batch != RU_SERVE_NONE); /* no batch without a request of its own */
    uint32_t at = s->free_batch;
    batch *b = &s->batches[at];
    s->free_batch = b->next;
    *b = (batch){.start = {.batch = at,
                           .buffer = f->number,
                           .memory_mb = f->rule.memory_mb,
                           .why = why,
                           .left = {s->now_ns}},
                 .q = {RU_SERVE_NONE, RU_SERVE_NONE, 0, 0},
                 .due_ns = NEVER,
                 .priority = RU_SERVE_PRIORITIES,
                 .table = f < &s->buffers[RU_SERVE_BUFFERS_MAX] ? s->table : s->table - 1,
                 .next = RU_SERVE_NONE};
    return at;
}

/* The first of a buffer goes into a batch. */
static void move(ru_serve *s, buffer *f, uint32_t to)
{
    uint32_t at = f->q.first;
    place *p = &s->places[at];
    batch *b = &s->batches[to];
    dequeue(s, &f->q, at);
    f->rows_of[p->priority] -= p->rows;
    enqueue(s, &b->q, at, false);
    p->stands = IN_READY;
    p->in = to;
    f->left_of[p->priority] += p->rows;
    uint32_t halve = f->left_of[p->priority] > LATELY ? 1 : 0;
    for (uint32_t k = 0; k < RU_SERVE_PRIORITIES; k++) {
        f->left_of[k] >>= halve;
    }
    b->start.largest = p->class_of > b->start.largest ? p->class_of : b->start.largest;
    b->priority = p->priority < b->priority ? p->priority : b->priority;
    b->due_ns = p->due_ns < b->due_ns ? p->due_ns : b->due_ns;
    s->stats.open--;
}

static void count(ru_serve *s, const batch *b)
{
    s->stats.batches++;
    s->stats.why[b->start.why]++;
    s->stats.size_sum += b->q.n;
    s->stats.rows_sum += b->q.rows;
}

/* The whole buffer leaves as one batch, ready before all that are less urgent. */
static void leave(ru_serve *s, uint32_t which, ru_serve_reason why)
{
    buffer *f = &s->buffers[which];
    uint32_t at = open_batch(s, f, why);
    while (f->q.n > 0) {
        move(s, f, at);
    }
    f->deadline_ns = NEVER;
    batch *b = &s->batches[at];
    count(s, b);
    uint32_t *link = &s->ready_first;
    while (*link != RU_SERVE_NONE &&
           !urgent(b->priority, b->due_ns, s->batches[*link].priority, s->batches[*link].due_ns)) {
        link = &s->batches[*link].next;
    }
    b->next = *link;
    *link = at;
    s->stats.ready++;
}

static bool has_instance(const buffer *f)
{
    return f->rule.instances == 0 || f->running < f->rule.instances;
}

/* The buffer of a batch, while its table is in force; NULL: no limit of its own holds any more. */
static buffer *buffer_of_batch(ru_serve *s, const batch *b)
{
    return b->table == s->table ? &s->buffers[b->start.buffer] : NULL;
}

static void start(ru_serve *s, uint32_t at, ru_effects *fx)
{
    batch *b = &s->batches[at];
    buffer *f = buffer_of_batch(s, b);
    for (uint32_t p = b->q.first; p != RU_SERVE_NONE; p = s->places[p].next) {
        s->places[p].stands = RUNS;
    }
    b->start.n = b->q.n;
    b->start.rows = b->q.rows;
    b->start.first = b->q.first;
    b->running = true;
    s->stats.running++;
    if (f != NULL) {
        f->running++;
    }
    ru_fx_local(fx, s->opt.what_first + RU_SERVE_START, 0, &b->start, sizeof b->start);
}

/* The eager buffer whose first request is the most urgent; NULL: none may start. */
static buffer *eager(ru_serve *s)
{
    buffer *best = NULL;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        buffer *f = &s->buffers[i];
        if (f->q.n == 0 || !f->rule.eager || !has_instance(f)) {
            continue;
        }
        const place *p = &s->places[f->q.first];
        const place *q = best != NULL ? &s->places[best->q.first] : NULL;
        best = q == NULL || urgent(p->priority, p->due_ns, q->priority, q->due_ns) ? f : best;
    }
    return best;
}

/* As many of the most urgent as a batch has rows, at least one; those that wait are shared among
 * all instances that are free. */
static uint32_t cut(ru_serve *s, buffer *f)
{
    uint32_t at = open_batch(s, f, RU_SERVE_IDLE), idle = s->opt.instances_max - s->stats.running;
    uint32_t own = f->rule.instances > 0 ? f->rule.instances - f->running : idle;
    idle = own < idle ? own : idle;
    uint32_t share = (f->q.rows + idle - 1) / idle;
    share = share < f->rule.batch ? share : f->rule.batch;
    batch *b = &s->batches[at];
    do {
        move(s, f, at);
    } while (f->q.n > 0 && b->q.rows + s->places[f->q.first].rows <= share);
    uint32_t next = f->q.n > 0 ? s->places[f->q.first].rows : 0;
    b->start.why = b->q.rows >= f->rule.batch || next > f->rule.batch - b->q.rows ? RU_SERVE_FULL
                                                                                  : RU_SERVE_IDLE;
    count(s, b);
    return at;
}

/* Batches go to instances that are free, the most urgent first. */
static void start_ready(ru_serve *s, ru_effects *fx)
{
    while (s->stats.running < s->opt.instances_max) {
        uint32_t *link = &s->ready_first;
        while (*link != RU_SERVE_NONE) {
            const buffer *own = buffer_of_batch(s, &s->batches[*link]);
            if (own == NULL || has_instance(own)) {
                break;
            }
            link = &s->batches[*link].next;
        }
        batch *b = *link != RU_SERVE_NONE ? &s->batches[*link] : NULL;
        buffer *f = eager(s);
        const place *p = f != NULL ? &s->places[f->q.first] : NULL;
        if (p != NULL && (b == NULL || urgent(p->priority, p->due_ns, b->priority, b->due_ns))) {
            start(s, cut(s, f), fx);
        } else if (b != NULL) {
            uint32_t at = *link;
            *link = b->next;
            s->stats.ready--;
            start(s, at, fx);
        } else {
            return;
        }
    }
}

/* Every buffer whose time is up, earliest first; ties by number. */
static void expire(ru_serve *s)
{
    for (;;) {
        uint32_t at = RU_SERVE_NONE;
        int64_t least = NEVER;
        for (uint32_t i = 0; i < BUFFERS; i++) {
            if (s->buffers[i].deadline_ns <= s->now_ns && s->buffers[i].deadline_ns < least) {
                least = s->buffers[i].deadline_ns;
                at = i;
            }
        }
        if (at == RU_SERVE_NONE) {
            return;
        }
        leave(s, at, s->buffers[at].why);
    }
}

/* -- requests ----------------------------------------------------------------------------------
 */

static void end_batch(ru_serve *s, uint32_t at)
{
    s->batches[at].running = false;
    s->batches[at].next = s->free_batch;
    s->free_batch = at;
}

/* A request that waits is taken out of its buffer or batch. */
static void withdraw(ru_serve *s, uint32_t at)
{
    place *p = &s->places[at];
    if (p->stands == IN_BUFFER) {
        buffer *f = &s->buffers[p->in];
        dequeue(s, &f->q, at);
        f->rows_of[p->priority] -= p->rows;
        f->deadline_ns = f->q.n == 0 ? NEVER : f->deadline_ns;
        s->stats.open--;
    } else {
        batch *b = &s->batches[p->in];
        RU_CHECK(p->stands == IN_READY);
        dequeue(s, &b->q, at);
        s->stats.size_sum--;
        s->stats.rows_sum -= p->rows;
        if (b->q.n == 0) {
            uint32_t *link = &s->ready_first;
            while (*link != p->in) {
                link = &s->batches[*link].next;
            }
            *link = b->next;
            s->stats.ready--;
            s->stats.batches--;
            s->stats.why[b->start.why]--;
            end_batch(s, p->in);
        }
    }
    free_place(s, at);
}

/* Dues whose request has gone do not count. */
static const ru_heap_item *next_due(ru_serve *s)
{
    for (;;) {
        const ru_heap_item *i = ru_heap_peek(&s->dues);
        if (i == NULL) {
            return NULL;
        }
        const place *p = &s->places[(uint32_t)i->value];
        if (p->stamp == (uint32_t)(i->value >> 32) && p->stands != RUNS) {
            return i;
        }
        ru_heap_item gone;
        (void)ru_heap_pop(&s->dues, &gone);
    }
}

static void note_due(ru_serve *s, uint32_t at)
{
    const place *p = &s->places[at];
    if (s->dues.n == s->dues.max) { /* more than half of them are stale: keep the others */
        uint32_t n = s->dues.n;
        s->dues.n = 0;
        for (uint32_t i = 0; i < n; i++) {
            ru_heap_item k = s->dues.items[i];
            const place *q = &s->places[(uint32_t)k.value];
            if (q->stamp == (uint32_t)(k.value >> 32) && q->stands != RUNS) {
                RU_CHECK(ru_heap_push(&s->dues, k.key, k.value) == RU_OK);
            }
        }
    }
    RU_CHECK(ru_heap_push(&s->dues, p->due_ns, (uint64_t)p->stamp << 32 | at) == RU_OK);
}

/* Requests that are due now are answered now. */
static void give_up(ru_serve *s, ru_effects *fx)
{
    for (const ru_heap_item *i = next_due(s); i != NULL && i->key <= s->now_ns; i = next_due(s)) {
        uint32_t at = (uint32_t)i->value;
        const place *p = &s->places[at];
        const ru_serve_request r = {.id = p->id,
                                    .class_of = p->class_of,
                                    .place = at,
                                    .due = {p->due_ns},
                                    .rows = p->rows,
                                    .priority = p->priority};
        withdraw(s, at);
        s->stats.late++;
        tell(s, RU_SERVE_LATE, &r, fx);
    }
}

static uint32_t buffer_of(ru_serve *s, uint32_t class_of)
{
    double weight[RU_SERVE_BUFFERS_MAX];
    uint32_t only = RU_SERVE_NONE, several = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        weight[i] = s->share[(size_t)i * s->n_classes + class_of];
        only = weight[i] > 0 ? i : only;
        several += weight[i] > 0 ? 1 : 0;
    }
    return several == 1 ? only : ru_rng_pick(&s->rng, weight, s->n);
}

static int64_t service_ns(const buffer *f, int64_t rows)
{
    uint32_t k = 0;
    while (k + 1 < RU_SERVE_SIZES && INT64_C(1) << k < rows) {
        k++;
    }
    return f->service_ns[k];
}

/* Rows before it, and those more urgent that will pass it meanwhile, by their share lately. */
static int64_t rows_before(const buffer *f, const ru_serve_request *r)
{
    int64_t rows = 0, all = 1, passing = 0;
    for (uint32_t k = 0; k < RU_SERVE_PRIORITIES; k++) {
        rows += k <= r->priority ? f->rows_of[k] : 0;
        all += f->left_of[k];
        passing += k < r->priority ? f->left_of[k] : 0;
    }
    int64_t own = all - passing > all / 16 ? all - passing : all / 16 + 1;
    return rows * all / own;
}

static uint32_t instances_of(const ru_serve *s, const buffer *f)
{
    return f->rule.instances > 0 && f->rule.instances < s->opt.instances_max ? f->rule.instances
                                                                             : s->opt.instances_max;
}

static int64_t age_ns(const ru_serve *s, const ru_serve_request *r)
{
    return r->since.ns > 0 ? s->now_ns - r->since.ns : 0;
}

/* When would it be answered, from its coming on? 0: nobody knows. All instances but one work on
 * whole batches before it; one that runs has its whole time before it. The loop reads and answers
 * those before it meanwhile, maybe on the same core. alone: nothing is before it. */
static int64_t answered_after_ns(const ru_serve *s, const buffer *f, const ru_serve_request *r,
                                 bool *alone)
{
    int64_t whole = service_ns(f, f->rule.batch), rows = rows_before(f, r) + r->rows;
    int64_t age = age_ns(s, r);
    uint32_t instances = instances_of(s, f);
    bool busy = s->stats.running >= instances;
    *alone = !busy && rows == r->rows;
    if (whole == 0) {
        return 0;
    }
    if (*alone) {
        return age + service_ns(f, rows);
    }
    int64_t batches = (rows + f->rule.batch - 1) / f->rule.batch;
    int64_t requests = rows * (f->q.n + 1) / (f->q.rows + r->rows);
    int64_t wait = (busy ? whole : 0) + (batches - 1) / instances * whole;
    return age + wait + whole + requests * f->turn_ns;
}

/* The predicted time within which one that comes now is taken. In a rush that does not end as many
 * are refused whatever it is, and a long queue only makes answers late: then as many may wait as
 * the instances take next, and half as many again.
 *
 * Source: nichols-2012: a queue is bad when it stands for an interval; a burst passes. */
static int64_t bound_ns(const ru_serve *s, const buffer *f)
{
    int64_t promise = f->rule.promise_ns, whole = service_ns(f, f->rule.batch);
    int64_t next = (int64_t)instances_of(s, f) * f->rule.batch * f->turn_ns;
    int64_t low = 3 * whole + next + next / 2 + f->margin_ns;
    low = low > promise / LOW_PART ? low : promise / LOW_PART;
    bool stands =
        s->now_ns - f->refused_ns <= promise && (f->refused_ns - f->rush_ns) / STANDS >= promise;
    return stands && low < promise ? low : promise;
}

/* How much too late would that be? <= 0: it is in time, or nothing is before it and it is not late
 * now. */
static int64_t too_late_ns(const ru_serve *s, const buffer *f, ru_serve_request *r)
{
    bool alone = false;
    int64_t promise = f->rule.promise_ns;
    r->wait_ns = promise > 0 ? answered_after_ns(s, f, r, &alone) : 0;
    if (r->wait_ns == 0) {
        return 0;
    }
    if (alone) {
        return r->wait_ns - service_ns(f, r->rows) - promise;
    }
    int64_t late = r->wait_ns + f->margin_ns - promise;
    int64_t more = r->wait_ns - age_ns(s, r) + f->margin_ns - bound_ns(s, f);
    return more > late ? more : late;
}

/* Refuse it where nobody has time or a place for it: r->wait_ns is until one like it would be
 * taken. */
static bool refuse(ru_serve *s, buffer *f, ru_serve_request *r)
{
    r->rows = r->rows > 0 ? r->rows : 1;
    r->priority =
        r->priority > 0 && r->priority < RU_SERVE_PRIORITIES ? r->priority : RU_SERVE_PRIORITY;
    int64_t late = too_late_ns(s, f, r);
    if (late > 0) {
        f->rush_ns = s->now_ns - f->refused_ns > f->rule.promise_ns ? s->now_ns : f->rush_ns;
        f->refused_ns = s->now_ns;
    } else if (s->free_place != RU_SERVE_NONE) {
        return false;
    }
    r->wait_ns = late > 0 ? late : service_ns(f, f->rule.batch);
    s->stats.refused++;
    return true;
}

static void request(ru_serve *s, ru_serve_request r, ru_effects *fx)
{
    uint32_t at = s->free_place;
    uint32_t class_of = r.class_of < s->n_classes ? r.class_of : s->n_classes - 1;
    uint32_t which = buffer_of(s, class_of);
    buffer *f = &s->buffers[which];
    s->stats.requests++;
    r.place = at;
    if (refuse(s, f, &r)) {
        tell(s, RU_SERVE_REFUSED, &r, fx);
        return;
    }
    tell(s, RU_SERVE_TAKEN, &r, fx);
    if (!f->rule.eager && f->q.n > 0 && f->q.rows + (uint64_t)r.rows > f->rule.batch) {
        leave(s, which, RU_SERVE_FULL);
    }
    s->free_place = s->places[at].next;
    s->places[at] = (place){.id = r.id,
                            .due_ns = r.due.ns > 0 ? r.due.ns : NEVER,
                            .class_of = class_of,
                            .rows = r.rows,
                            .priority = r.priority,
                            .stamp = s->places[at].stamp,
                            .in = which,
                            .stands = IN_BUFFER};
    enqueue(s, &f->q, at, f->rule.eager);
    f->rows_of[r.priority] += r.rows;
    s->stats.open++;
    if (r.due.ns > 0) {
        note_due(s, at);
    }
    if (f->rule.eager) {
        return;
    }
    if (f->q.n == 1) {
        f->deadline_ns = s->now_ns + f->rule.timeout_ns;
        f->why = RU_SERVE_TIMEOUT;
    }
    if (r.due.ns > 0 && r.due.ns - s->opt.reserve_ns < f->deadline_ns) {
        f->deadline_ns = r.due.ns - s->opt.reserve_ns;
        f->why = RU_SERVE_DUE;
    }
    if (f->q.rows >= f->rule.batch) {
        leave(s, which, RU_SERVE_FULL);
    }
    expire(s); /* a timeout of 0, a request that is due soon */
}

static void cancel(ru_serve *s, const ru_serve_request *r, ru_effects *fx)
{
    RU_CHECK(r->place < s->opt.requests_max);
    const place *p = &s->places[r->place];
    if ((p->stands != IN_BUFFER && p->stands != IN_READY) || p->id != r->id) {
        return; /* it runs or was answered meanwhile: its answer goes nowhere */
    }
    withdraw(s, r->place);
    s->stats.cancelled++;
    tell(s, RU_SERVE_CANCELLED, r, fx);
}

static void done(ru_serve *s, int64_t value)
{
    RU_CHECK(value >= 0 && value < s->opt.requests_max);
    uint32_t at = (uint32_t)value;
    batch *b = &s->batches[at];
    RU_CHECK(b->running);
    buffer *f = buffer_of_batch(s, b);
    if (f != NULL) {
        f->running--;
    }
    for (uint32_t p = b->q.first, next; p != RU_SERVE_NONE; p = next) {
        next = s->places[p].next;
        free_place(s, p);
    }
    end_batch(s, at);
    s->stats.running--;
}

/* Open buffers of the table before leave; those in force go on as the old ones. */
static void retire(ru_serve *s)
{
    for (uint32_t i = 0; i < RU_SERVE_BUFFERS_MAX; i++) {
        if (s->buffers[RU_SERVE_BUFFERS_MAX + i].q.n > 0) {
            leave(s, RU_SERVE_BUFFERS_MAX + i, RU_SERVE_DRAIN);
        }
        buffer *old = &s->buffers[RU_SERVE_BUFFERS_MAX + i];
        *old = s->buffers[i];
        old->rule.instances = 0;
        for (uint32_t p = old->q.first; p != RU_SERVE_NONE; p = s->places[p].next) {
            s->places[p].in = RU_SERVE_BUFFERS_MAX + i;
        }
    }
}

static void retable(ru_serve *s, const ru_serve_table *t)
{
    RU_CHECK(ru_serve_table_check(t, NULL) == RU_OK);
    retire(s);
    install(s, t);
}

static void pace(ru_serve *s, const ru_serve_pace *p)
{
    RU_CHECK(p->buffer < s->n && p->batch > 0);
    buffer *f = &s->buffers[p->buffer];
    f->rule.batch = p->batch;
    memcpy(f->service_ns, p->service_ns, sizeof f->service_ns);
    f->turn_ns = p->turn_ns;
    f->margin_ns = p->margin_ns;
    if (!f->rule.eager && f->q.n > 0 && f->q.rows >= p->batch) {
        leave(s, p->buffer, RU_SERVE_FULL);
    }
}

static void stop(ru_serve *s)
{
    for (uint32_t i = 0; i < BUFFERS; i++) {
        if (s->buffers[i].q.n > 0 && !s->buffers[i].rule.eager) {
            leave(s, i, RU_SERVE_DRAIN);
        }
    }
}

static void hear(ru_serve *s, const ru_event *ev, ru_effects *fx)
{
    switch (ru_word(ev->what, s->opt.what_first, RU_SERVE_WORDS)) {
    case RU_SERVE_REQUEST:
        request(s, *(const ru_serve_request *)ru_event_data(ev, sizeof(ru_serve_request)), fx);
        break;
    case RU_SERVE_CANCEL:
        cancel(s, ru_event_data(ev, sizeof(ru_serve_request)), fx);
        break;
    case RU_SERVE_DONE:
        done(s, ev->value);
        break;
    case RU_SERVE_TABLE:
        retable(s, ru_event_data(ev, sizeof(ru_serve_table)));
        break;
    case RU_SERVE_PACE:
        pace(s, ru_event_data(ev, sizeof(ru_serve_pace)));
        break;
    case RU_SERVE_STOP:
        stop(s);
        break;
    default:
        break;
    }
}

void ru_serve_step(ru_serve *s, const ru_event *ev, ru_effects *fx)
{
    RU_CHECK(ev->now.ns >= s->now_ns);
    s->now_ns = ev->now.ns;
    expire(s);
    give_up(s, fx);
    if (ev->kind == RU_EV_LOCAL) {
        hear(s, ev, fx);
        give_up(s, fx); /* a request that is due already */
    } else if (ev->kind == RU_EV_TIMER && ev->what == s->opt.what_first + RU_SERVE_TIMER) {
        s->told.ns = NEVER;
    }
    bool more = ev->kind == RU_EV_LOCAL && ev->what == s->opt.what_first + RU_SERVE_REQUEST &&
                ((const ru_serve_request *)ru_event_data(ev, sizeof(ru_serve_request)))->more;
    if (!more) {
        start_ready(s, fx);
    }
    const ru_heap_item *due = next_due(s);
    ru_time next = {due != NULL ? due->key : NEVER};
    for (uint32_t i = 0; i < BUFFERS; i++) {
        next.ns = s->buffers[i].deadline_ns < next.ns ? s->buffers[i].deadline_ns : next.ns;
    }
    ru_fx_wake(fx, s->opt.what_first + RU_SERVE_TIMER, next, &s->told);
}

bool ru_serve_refuse(ru_serve *s, const ru_serve_request *like, ru_time now, int64_t *wait_ns)
{
    ru_serve_request r = *like;
    RU_CHECK(now.ns >= s->now_ns);
    s->now_ns = now.ns;
    bool full = s->n == 1 && refuse(s, &s->buffers[0], &r);
    s->stats.requests += full ? 1 : 0;
    *wait_ns = r.wait_ns;
    return full;
}

uint64_t ru_serve_id(const ru_serve *s, uint32_t at)
{
    RU_CHECK(at < s->opt.requests_max);
    return s->places[at].id;
}

uint32_t ru_serve_next(const ru_serve *s, uint32_t at)
{
    RU_CHECK(at < s->opt.requests_max);
    return s->places[at].next;
}

ru_serve_stats ru_serve_stats_get(const ru_serve *s)
{
    return s->stats;
}
