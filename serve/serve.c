#include "serve/serve.h"

#include <math.h>
#include <string.h>

static const int64_t NEVER = INT64_MAX;

/* A request: in a list that is free, of a buffer, or of a batch. */
typedef struct place {
    uint64_t id;
    uint32_t next;
    uint32_t class_of;
    uint32_t buffer; /* RU_SERVE_NONE: in a batch or free */
} place;

typedef struct buffer {
    ru_serve_rule rule;
    uint32_t number; /* in its table */
    uint32_t first, last, n;
    int64_t deadline_ns;
    ru_serve_reason why; /* of the deadline */
} buffer;

typedef struct batch {
    ru_serve_start start;
    uint32_t next; /* free or ready */
    bool running;
} batch;

/* Buffers of the table in force, then those of the one before that are still open. */
enum { BUFFERS = 2 * RU_SERVE_BUFFERS_MAX };

struct ru_serve {
    ru_serve_options opt;
    ru_rng rng;
    int64_t now_ns;
    uint32_t n, n_classes; /* of the table in force */
    double share[RU_SERVE_BUFFERS_MAX * RU_SERVE_CLASSES_MAX];
    buffer buffers[BUFFERS];
    place *places;          /* [requests_max] */
    batch *batches;         /* [requests_max] */
    ru_serve_start *starts; /* [requests_max] */
    uint32_t free_place, free_batch;
    uint32_t ready_first, ready_last;
    ru_serve_stats stats;
};

static ru_status check_table(const ru_serve_table *t, ru_err *err)
{
    if (t->n < 1 || t->n > RU_SERVE_BUFFERS_MAX || t->n_classes < 1 ||
        t->n_classes > RU_SERVE_CLASSES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "a table of %u buffers (1 to %d) and %u classes (1 to %d)",
                       t->n, RU_SERVE_BUFFERS_MAX, t->n_classes, RU_SERVE_CLASSES_MAX);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->rule[i].batch < 1 || t->rule[i].timeout_ns < 0 ||
            t->rule[i].timeout_ns > INT64_MAX / 4) {
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
    memcpy(s->share, t->share, (size_t)t->n * t->n_classes * sizeof *t->share);
    for (uint32_t i = 0; i < RU_SERVE_BUFFERS_MAX; i++) {
        s->buffers[i] = (buffer){
            .number = i, .first = RU_SERVE_NONE, .last = RU_SERVE_NONE, .deadline_ns = NEVER};
        if (i < t->n) {
            s->buffers[i].rule = t->rule[i];
        }
    }
}

ru_status ru_serve_init(const ru_serve_options *opt, const ru_serve_table *table, ru_time now,
                        ru_arena *arena, ru_serve **out, ru_err *err)
{
    RU_TRY(check_table(table, err));
    if (opt->requests_max < 1 || opt->requests_max >= RU_SERVE_NONE || opt->instances_max < 1 ||
        opt->reserve_ns < 0) {
        return RU_FAIL(err, RU_E_ARG, "a server of %u requests and %u instances", opt->requests_max,
                       opt->instances_max);
    }
    ru_serve *s = RU_NEW(arena, ru_serve, 1);
    uint32_t n = opt->requests_max;
    place *places = RU_NEW(arena, place, n);
    batch *batches = RU_NEW(arena, batch, n);
    ru_serve_start *starts = RU_NEW(arena, ru_serve_start, n);
    if (s == NULL || places == NULL || batches == NULL || starts == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a server of %u requests", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        places[i] = (place){.next = i + 1 < n ? i + 1 : RU_SERVE_NONE, .buffer = RU_SERVE_NONE};
        batches[i].next = i + 1 < n ? i + 1 : RU_SERVE_NONE;
    }
    s->opt = *opt;
    s->rng = ru_rng_from(opt->seed, ru_rng_label("serve"));
    s->now_ns = now.ns;
    s->places = places;
    s->batches = batches;
    s->starts = starts;
    s->ready_first = s->ready_last = RU_SERVE_NONE;
    install(s, table);
    for (uint32_t i = RU_SERVE_BUFFERS_MAX; i < BUFFERS; i++) {
        s->buffers[i] = s->buffers[i - RU_SERVE_BUFFERS_MAX];
    }
    *out = s;
    return RU_OK;
}

/* Ready batches go to instances that are free, oldest first. */
static void start_ready(ru_serve *s, ru_serve_effects *out)
{
    while (s->ready_first != RU_SERVE_NONE && s->stats.running < s->opt.instances_max) {
        batch *b = &s->batches[s->ready_first];
        s->ready_first = b->next;
        s->ready_last = s->ready_first == RU_SERVE_NONE ? RU_SERVE_NONE : s->ready_last;
        b->running = true;
        s->stats.ready--;
        s->stats.running++;
        out->starts[out->n++] = b->start;
    }
}

static void leave(ru_serve *s, uint32_t which, ru_serve_reason why)
{
    buffer *f = &s->buffers[which];
    RU_CHECK(f->n > 0 &&
             s->free_batch != RU_SERVE_NONE); /* no batch without a request of its own */
    uint32_t at = s->free_batch;
    batch *b = &s->batches[at];
    s->free_batch = b->next;
    *b = (batch){.start = {.batch = at,
                           .n = f->n,
                           .first = f->first,
                           .buffer = f->number,
                           .memory_mb = f->rule.memory_mb,
                           .why = why},
                 .next = RU_SERVE_NONE};
    for (uint32_t p = f->first; p != RU_SERVE_NONE; p = s->places[p].next) {
        s->places[p].buffer = RU_SERVE_NONE;
        b->start.largest =
            s->places[p].class_of > b->start.largest ? s->places[p].class_of : b->start.largest;
    }
    if (s->ready_last == RU_SERVE_NONE) {
        s->ready_first = at;
    } else {
        s->batches[s->ready_last].next = at;
    }
    s->ready_last = at;
    s->stats.ready++;
    s->stats.open -= f->n;
    s->stats.batches++;
    s->stats.why[why]++;
    s->stats.size_sum += f->n;
    f->first = f->last = RU_SERVE_NONE;
    f->n = 0;
    f->deadline_ns = NEVER;
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

static void request(ru_serve *s, const ru_serve_event *ev, ru_serve_effects *out)
{
    s->stats.requests++;
    if (s->free_place == RU_SERVE_NONE) {
        s->stats.refused++;
        out->refused = true;
        return;
    }
    uint32_t at = s->free_place;
    uint32_t class_of = ev->class_of < s->n_classes ? ev->class_of : s->n_classes - 1;
    uint32_t which = buffer_of(s, class_of);
    buffer *f = &s->buffers[which];
    s->free_place = s->places[at].next;
    s->places[at] = (place){ev->id, RU_SERVE_NONE, class_of, which};
    if (f->n++ == 0) {
        f->first = at;
        f->deadline_ns = s->now_ns + f->rule.timeout_ns;
        f->why = RU_SERVE_TIMEOUT;
    } else {
        s->places[f->last].next = at;
    }
    f->last = at;
    s->stats.open++;
    out->request = at;
    if (ev->due.ns > 0 && ev->due.ns - s->opt.reserve_ns < f->deadline_ns) {
        f->deadline_ns = ev->due.ns - s->opt.reserve_ns;
        f->why = RU_SERVE_DUE;
    }
    if (f->n >= f->rule.batch) {
        leave(s, which, RU_SERVE_FULL);
    }
    expire(s); /* a timeout of 0, a request that is due already */
}

static void cancel(ru_serve *s, const ru_serve_event *ev, ru_serve_effects *out)
{
    RU_CHECK(ev->request < s->opt.requests_max);
    place *p = &s->places[ev->request];
    if (p->buffer == RU_SERVE_NONE || p->id != ev->id) {
        return; /* it left meanwhile: its answer goes nowhere */
    }
    buffer *f = &s->buffers[p->buffer];
    uint32_t before = RU_SERVE_NONE;
    for (uint32_t k = f->first; k != ev->request; k = s->places[k].next) {
        before = k;
    }
    if (before == RU_SERVE_NONE) {
        f->first = p->next;
    } else {
        s->places[before].next = p->next;
    }
    f->last = f->last == ev->request ? before : f->last;
    f->deadline_ns = --f->n == 0 ? NEVER : f->deadline_ns;
    p->buffer = RU_SERVE_NONE;
    p->next = s->free_place;
    s->free_place = ev->request;
    s->stats.open--;
    s->stats.cancelled++;
    out->cancelled = true;
}

static void done(ru_serve *s, uint32_t at)
{
    RU_CHECK(at < s->opt.requests_max);
    batch *b = &s->batches[at];
    RU_CHECK(b->running);
    uint32_t last = b->start.first;
    while (s->places[last].next != RU_SERVE_NONE) {
        last = s->places[last].next;
    }
    s->places[last].next = s->free_place;
    s->free_place = b->start.first;
    b->running = false;
    b->next = s->free_batch;
    s->free_batch = at;
    s->stats.running--;
}

/* Open buffers of the table before leave; those in force go on as the old ones. */
static void retire(ru_serve *s)
{
    for (uint32_t i = 0; i < RU_SERVE_BUFFERS_MAX; i++) {
        if (s->buffers[RU_SERVE_BUFFERS_MAX + i].n > 0) {
            leave(s, RU_SERVE_BUFFERS_MAX + i, RU_SERVE_DRAIN);
        }
        buffer *old = &s->buffers[RU_SERVE_BUFFERS_MAX + i];
        *old = s->buffers[i];
        for (uint32_t p = old->first; p != RU_SERVE_NONE; p = s->places[p].next) {
            s->places[p].buffer = RU_SERVE_BUFFERS_MAX + i;
        }
    }
}

ru_status ru_serve_step(ru_serve *s, const ru_serve_event *ev, ru_serve_effects *out, ru_err *err)
{
    RU_CHECK(ev->now.ns >= s->now_ns);
    if (ev->kind == RU_SERVE_TABLE) {
        RU_TRY(check_table(ev->table, err));
    }
    *out = (ru_serve_effects){.starts = s->starts, .request = RU_SERVE_NONE};
    s->now_ns = ev->now.ns;
    expire(s);
    switch (ev->kind) {
    case RU_SERVE_REQUEST:
        request(s, ev, out);
        break;
    case RU_SERVE_CANCEL:
        cancel(s, ev, out);
        break;
    case RU_SERVE_DONE:
        done(s, ev->batch);
        break;
    case RU_SERVE_TIMER:
        break;
    case RU_SERVE_TABLE:
        retire(s);
        install(s, ev->table);
        break;
    case RU_SERVE_STOP:
        for (uint32_t i = 0; i < BUFFERS; i++) {
            if (s->buffers[i].n > 0) {
                leave(s, i, RU_SERVE_DRAIN);
            }
        }
        break;
    }
    start_ready(s, out);
    out->timer.ns = NEVER;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        out->timer.ns =
            s->buffers[i].deadline_ns < out->timer.ns ? s->buffers[i].deadline_ns : out->timer.ns;
    }
    return RU_OK;
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
