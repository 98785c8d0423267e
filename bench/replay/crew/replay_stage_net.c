#include "bench/replay/crew/replay_stage_net.h"

#include <math.h>
#include <stddef.h>

#include "sim/sim.h"

#define PIECE_BYTES 1e6 /* a background message is sent in pieces: reads pass between them */
#define LATENCY_S   1e-4

typedef enum message_kind { READ, WRITE, STREAM } message_kind;

typedef struct message {
    message_kind kind;
    uint32_t from, to; /* machines */
    uint32_t clock;
    double bytes;
    bool last; /* of its stream */
    struct message *next;
} message;

typedef struct queue {
    message *first, *last;
} queue;

typedef struct machine {
    queue out[2]; /* reads and updates, the stream */
    queue in;
    queue work;                  /* of the server's processor */
    queue later;                 /* pieces of the stream that wait for their time */
    bool sending, serving, held; /* held: waits for copies that are too far behind */
    int64_t free_ns;             /* its link has taken what was sent to it */
    uint32_t parts;              /* worker: arrived of this clock */
    uint32_t clock;              /* worker: under way; server: whose updates it waits for */
    uint32_t updates;            /* server: of that clock */
} machine;

typedef struct net {
    const rui_stage_case *c;
    ru_sim *sim;
    ru_arena *arena;
    ru_rng rng;
    machine *m; /* [machines] */
    uint32_t n;
    message *free;
    int64_t *ended_ns; /* [clocks] */
    uint32_t *ended;   /* [clocks + 1] servers that have all updates */
    uint32_t *copies;  /* [clocks + 2] streams of that clock that have arrived */
    uint32_t copied;   /* clocks whose streams have all arrived */
    bool full;
} net;

static void later(net *n, double s, ru_sim_fn fn, uint32_t at_machine)
{
    ru_time at = {ru_sim_now(n->sim).ns + (int64_t)(s * 1e9 + 0.5)};
    (void)ru_sim_at(n->sim, at, fn, n, at_machine);
}

static void push(queue *q, message *m)
{
    m->next = NULL;
    if (q->last != NULL) {
        q->last->next = m;
    } else {
        q->first = m;
    }
    q->last = m;
}

static message *pop(queue *q)
{
    message *m = q->first;
    if (m != NULL) {
        q->first = m->next;
        q->last = q->first == NULL ? NULL : q->last;
    }
    return m;
}

static void sent(void *self, uint64_t at);
static void received(void *self, uint64_t at);
static void served(void *self, uint64_t at);
static void arrive(net *n, message *m);

static void pump_out(net *n, uint32_t at)
{
    machine *m = &n->m[at];
    message *x = m->out[0].first != NULL ? m->out[0].first : m->out[1].first;
    if (!m->sending && x != NULL) {
        m->sending = true;
        later(n, x->bytes / n->c->in.job.link_bytes_per_s, sent, at);
        if (x != m->out[0].first) { /* under way: nothing passes it any more */
            (void)pop(&m->out[1]);
            x->next = m->out[0].first;
            m->out[0].first = x;
            m->out[0].last = m->out[0].last == NULL ? x : m->out[0].last;
        }
    }
}

static message *message_of(net *n, message_kind kind, uint32_t from, uint32_t to, uint32_t clock,
                           double bytes)
{
    message *x = n->free != NULL ? n->free : RU_NEW(n->arena, message, 1);
    if (x == NULL) {
        n->full = true;
        ru_sim_stop(n->sim);
        return NULL;
    }
    n->free = n->free != NULL ? x->next : NULL;
    *x = (message){kind, from, to, clock, bytes, false, NULL};
    return x;
}

static void send(net *n, message_kind kind, uint32_t from, uint32_t to, uint32_t clock,
                 double bytes)
{
    message *x = message_of(n, kind, from, to, clock, bytes);
    if (x == NULL) {
        return;
    }
    if (from == to) {
        arrive(n, x);
        return;
    }
    push(&n->m[from].out[0], x);
    pump_out(n, from);
}

static void sent(void *self, uint64_t at)
{
    net *n = self;
    machine *m = &n->m[at];
    message *x = pop(&m->out[0]);
    m->sending = false;
    /* The receiver's link took it while it was sent, unless others were there before. */
    machine *to = &n->m[x->to];
    int64_t now = ru_sim_now(n->sim).ns;
    int64_t took = (int64_t)(x->bytes / n->c->in.job.link_bytes_per_s * 1e9);
    to->free_ns = to->free_ns + took > now ? to->free_ns + took : now;
    push(&to->in, x);
    (void)ru_sim_at(n->sim, (ru_time){to->free_ns}, received, n, x->to);
    pump_out(n, (uint32_t)at);
}

static void received(void *self, uint64_t at)
{
    net *n = self;
    arrive(n, pop(&n->m[at].in));
}

static uint32_t server(const net *n, uint32_t k)
{
    return n->c->first_server + k;
}

static void pump_work(net *n, uint32_t at)
{
    machine *m = &n->m[at];
    if (!m->serving && m->work.first != NULL) {
        m->serving = true;
        later(n, m->work.first->bytes / n->c->in.job.serve_bytes_per_s, served, at);
    }
}

/* The server sets to work: it prepares an answer or takes in an update. */
static void serve(net *n, message_kind kind, uint32_t at, uint32_t worker, uint32_t clock)
{
    double bytes = kind == READ ? n->c->in.job.read_bytes : n->c->in.job.write_bytes;
    message *x = message_of(n, kind, worker, at, clock, bytes / n->c->layout.servers);
    if (x == NULL) {
        return;
    }
    push(&n->m[at].work, x);
    pump_work(n, at);
}

static void answer_all(net *n, uint32_t at, uint32_t clock)
{
    for (uint32_t k = 0; k < n->c->layout.workers; k++) { /* another first one at every server */
        uint32_t w = (k + at) % n->c->layout.workers;
        serve(n, READ, at, n->c->first_worker + w, clock);
    }
}

static void stream_piece(void *self, uint64_t at)
{
    net *n = self;
    message *x = pop(&n->m[at].later);
    push(&n->m[at].out[1], x);
    pump_out(n, (uint32_t)at);
}

/* Partitions take turns: each clock one part of them, with what changed in a batch. Pieces leave at
 * equal distances. */
static void stream(net *n, uint32_t at, uint32_t clock)
{
    const rui_stage_case *c = n->c;
    if (c->layout.backups == 0) {
        return;
    }
    double bytes = ru_backup_delta_bytes(&c->in.job, c->layout.workers, c->batch) / c->batch;
    double each = bytes / c->layout.servers / c->layout.backups;
    uint32_t pieces = (uint32_t)fmax(ceil(each / PIECE_BYTES), 1), k = 0;
    double gap = c->spread_s / (pieces * c->layout.backups);
    for (uint32_t piece = 0; piece < pieces; piece++) {
        for (uint32_t b = 0; b < c->layout.backups; b++) {
            message *x =
                message_of(n, STREAM, at, (b + at) % c->layout.backups, clock, each / pieces);
            if (x == NULL) {
                return;
            }
            x->last = piece + 1 == pieces;
            push(&n->m[at].later, x);
            double phase = (double)(at % 16) / 16; /* servers do not send together */
            later(n, (k++ + phase) * gap, stream_piece, at);
        }
    }
}

/* Answers of the next clock, unless copies are too far behind. */
static void begin_clock(net *n, uint32_t at)
{
    machine *m = &n->m[at];
    if (n->c->layout.backups > 0 && m->clock > n->copied + n->c->in.job.clocks_max) {
        m->held = true;
        return;
    }
    answer_all(n, at, m->clock);
}

static void end_clock(net *n, uint32_t at)
{
    machine *m = &n->m[at];
    uint32_t clock = m->clock++;
    m->updates = 0;
    if (++n->ended[clock] == n->c->layout.servers) {
        n->ended_ns[clock] = ru_sim_now(n->sim).ns;
        if (clock + 1 == n->c->clocks) {
            ru_sim_stop(n->sim);
            return;
        }
    }
    stream(n, at, clock + 1);
    begin_clock(n, at);
}

static void copied(net *n, uint32_t clock)
{
    uint32_t all = n->c->layout.servers * n->c->layout.backups;
    n->copies[clock]++;
    while (n->copied + 1 <= n->c->clocks && n->copies[n->copied + 1] == all) {
        n->copied++;
        for (uint32_t k = 0; k < n->c->layout.servers; k++) {
            uint32_t at = server(n, k);
            if (n->m[at].held) {
                n->m[at].held = false;
                begin_clock(n, at);
            }
        }
    }
}

static void served(void *self, uint64_t at)
{
    net *n = self;
    machine *m = &n->m[at];
    message x = *m->work.first, *old = pop(&m->work);
    old->next = n->free;
    n->free = old;
    m->serving = false;
    if (x.kind == READ) {
        send(n, READ, (uint32_t)at, x.from, x.clock, x.bytes);
    } else if (++m->updates == n->c->layout.workers) {
        end_clock(n, (uint32_t)at);
    }
    pump_work(n, (uint32_t)at);
}

static void computed(void *self, uint64_t at)
{
    net *n = self;
    machine *m = &n->m[at];
    uint32_t servers = n->c->layout.servers;
    m->parts = 0;
    for (uint32_t k = 0; k < servers; k++) {
        uint32_t to = server(n, (k + (uint32_t)at) % servers);
        send(n, WRITE, (uint32_t)at, to, m->clock, n->c->in.job.write_bytes / servers);
    }
}

static void arrive(net *n, message *x)
{
    message got = *x;
    x->next = n->free;
    n->free = x;
    machine *m = &n->m[got.to];
    if (got.kind == WRITE) {
        serve(n, WRITE, got.to, got.from, got.clock);
    } else if (got.kind == STREAM) {
        if (got.last) {
            copied(n, got.clock);
        }
    } else if (++m->parts == n->c->layout.servers) {
        double work = n->c->in.job.work_s / n->c->layout.workers;
        double own = fmax(0.5, 1 + n->c->jitter * ru_rng_normal(&n->rng));
        later(n, work * own + LATENCY_S, computed, got.to);
    }
}

ru_status rui_stage_play(const rui_stage_case *c, ru_arena *arena, double *clock_s, double *behind,
                         ru_err *err)
{
    net n = {.c = c, .arena = arena, .rng = ru_rng_from(c->seed, 3)};
    n.n = c->in.reliable + c->in.transient;
    n.m = RU_NEW(arena, machine, n.n);
    n.ended_ns = RU_NEW(arena, int64_t, c->clocks);
    n.ended = RU_NEW(arena, uint32_t, (int64_t)c->clocks + 1);
    n.copies = RU_NEW(arena, uint32_t, (int64_t)c->clocks + 2);
    if (n.m == NULL || n.ended_ns == NULL || n.ended == NULL || n.copies == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u machines", n.n);
    }
    const ru_sim_options opt = {.seed = c->seed};
    RU_TRY(ru_sim_open(&opt, &n.sim, err));
    for (uint32_t k = 0; k < c->layout.servers; k++) {
        answer_all(&n, server(&n, k), 0);
    }
    ru_status st = ru_sim_run(n.sim, (ru_time){INT64_MAX / 2}, err);
    ru_sim_close(n.sim);
    RU_TRY(st);
    if (n.full) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the messages of %u machines", n.n);
    }
    *clock_s = 1e-9 * (double)(n.ended_ns[c->clocks - 1] - n.ended_ns[c->warm]) /
               (c->clocks - 1 - c->warm);
    *behind = c->layout.backups > 0 ? c->clocks - 1.0 - n.copied + c->batch : 0;
    return RU_OK;
}
