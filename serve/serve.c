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
    place *places;  /* [requests_max] */
    batch *batches; /* [requests_max] */
    ru_time told;   /* when the timer was asked for */
    uint32_t free_place, free_batch;
    uint32_t ready_first, ready_last;
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
    RU_TRY(ru_serve_table_check(table, err));
    if (opt->requests_max < 1 || opt->requests_max >= RU_SERVE_NONE || opt->instances_max < 1 ||
        opt->reserve_ns < 0) {
        return RU_FAIL(err, RU_E_ARG, "a server of %u requests and %u instances", opt->requests_max,
                       opt->instances_max);
    }
    ru_serve *s = RU_NEW(arena, ru_serve, 1);
    uint32_t n = opt->requests_max;
    place *places = RU_NEW(arena, place, n);
    batch *batches = RU_NEW(arena, batch, n);
    if (s == NULL || places == NULL || batches == NULL) {
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
    s->told.ns = NEVER;
    s->ready_first = s->ready_last = RU_SERVE_NONE;
    install(s, table);
    for (uint32_t i = RU_SERVE_BUFFERS_MAX; i < BUFFERS; i++) {
        s->buffers[i] = s->buffers[i - RU_SERVE_BUFFERS_MAX];
    }
    *out = s;
    return RU_OK;
}

/* Ready batches go to instances that are free, oldest first. */
static void start_ready(ru_serve *s, ru_effects *fx)
{
    while (s->ready_first != RU_SERVE_NONE && s->stats.running < s->opt.instances_max) {
        batch *b = &s->batches[s->ready_first];
        s->ready_first = b->next;
        s->ready_last = s->ready_first == RU_SERVE_NONE ? RU_SERVE_NONE : s->ready_last;
        b->running = true;
        s->stats.ready--;
        s->stats.running++;
        ru_fx_local(fx, s->opt.what_first + RU_SERVE_START, 0, &b->start, sizeof b->start);
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

static void tell(const ru_serve *s, ru_serve_word word, const ru_serve_request *r, ru_effects *fx)
{
    ru_fx_local(fx, s->opt.what_first + (uint32_t)word, 0, r, sizeof *r);
}

static void request(ru_serve *s, ru_serve_request r, ru_effects *fx)
{
    uint32_t at = s->free_place;
    s->stats.requests++;
    r.place = at;
    if (at == RU_SERVE_NONE) {
        s->stats.refused++;
        tell(s, RU_SERVE_REFUSED, &r, fx);
        return;
    }
    tell(s, RU_SERVE_TAKEN, &r, fx);
    uint32_t class_of = r.class_of < s->n_classes ? r.class_of : s->n_classes - 1;
    uint32_t which = buffer_of(s, class_of);
    buffer *f = &s->buffers[which];
    s->free_place = s->places[at].next;
    s->places[at] = (place){r.id, RU_SERVE_NONE, class_of, which};
    if (f->n++ == 0) {
        f->first = at;
        f->deadline_ns = s->now_ns + f->rule.timeout_ns;
        f->why = RU_SERVE_TIMEOUT;
    } else {
        s->places[f->last].next = at;
    }
    f->last = at;
    s->stats.open++;
    if (r.due.ns > 0 && r.due.ns - s->opt.reserve_ns < f->deadline_ns) {
        f->deadline_ns = r.due.ns - s->opt.reserve_ns;
        f->why = RU_SERVE_DUE;
    }
    if (f->n >= f->rule.batch) {
        leave(s, which, RU_SERVE_FULL);
    }
    expire(s); /* a timeout of 0, a request that is due already */
}

static void cancel(ru_serve *s, const ru_serve_request *r, ru_effects *fx)
{
    RU_CHECK(r->place < s->opt.requests_max);
    place *p = &s->places[r->place];
    if (p->buffer == RU_SERVE_NONE || p->id != r->id) {
        return; /* it left meanwhile: its answer goes nowhere */
    }
    buffer *f = &s->buffers[p->buffer];
    uint32_t before = RU_SERVE_NONE;
    for (uint32_t k = f->first; k != r->place; k = s->places[k].next) {
        before = k;
    }
    if (before == RU_SERVE_NONE) {
        f->first = p->next;
    } else {
        s->places[before].next = p->next;
    }
    f->last = f->last == r->place ? before : f->last;
    f->deadline_ns = --f->n == 0 ? NEVER : f->deadline_ns;
    p->buffer = RU_SERVE_NONE;
    p->next = s->free_place;
    s->free_place = r->place;
    s->stats.open--;
    s->stats.cancelled++;
    tell(s, RU_SERVE_CANCELLED, r, fx);
}

static void done(ru_serve *s, int64_t value)
{
    RU_CHECK(value >= 0 && value < s->opt.requests_max);
    uint32_t at = (uint32_t)value;
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

static void retable(ru_serve *s, const ru_serve_table *t)
{
    RU_CHECK(ru_serve_table_check(t, NULL) == RU_OK);
    retire(s);
    install(s, t);
}

static void stop(ru_serve *s)
{
    for (uint32_t i = 0; i < BUFFERS; i++) {
        if (s->buffers[i].n > 0) {
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
    if (ev->kind == RU_EV_LOCAL) {
        hear(s, ev, fx);
    } else if (ev->kind == RU_EV_TIMER && ev->what == s->opt.what_first + RU_SERVE_TIMER) {
        s->told.ns = NEVER;
    }
    start_ready(s, fx);
    ru_time next = {NEVER};
    for (uint32_t i = 0; i < BUFFERS; i++) {
        next.ns = s->buffers[i].deadline_ns < next.ns ? s->buffers[i].deadline_ns : next.ns;
    }
    ru_fx_wake(fx, s->opt.what_first + RU_SERVE_TIMER, next, &s->told);
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
