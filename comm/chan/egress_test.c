/* The scheduler against a brute-force model, against an ideal preemptive server on a mix of
 * deadlines, and against FIFO; aging; the share of lesser lines. */
#include "comm/chan/egress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

/* -- every choice is that of a search through everything -----------------------------------------
 */

enum { LINES = 6, STREAMS = 48 };

typedef struct model_stream {
    bool queued;
    rui_egress_stream in;
    int64_t left;
    uint64_t arrival;
} model_stream;

typedef struct model {
    model_stream s[STREAMS];
    bool open[LINES], full[LINES], woken[LINES];
    uint64_t served[LINES], services, arrivals;
} model;

static int order(const model_stream *a, const model_stream *b)
{
    int64_t da = a->in.deadline.ns != 0 ? a->in.deadline.ns : INT64_MAX;
    int64_t db = b->in.deadline.ns != 0 ? b->in.deadline.ns : INT64_MAX;
    if (a->in.class != b->in.class) {
        return a->in.class < b->in.class ? -1 : 1;
    }
    if (da != db) {
        return da < db ? -1 : 1;
    }
    return a->in.rank != b->in.rank ? (a->in.rank < b->in.rank ? -1 : 1) : 0;
}

static uint32_t best_of_line(const model *m, uint32_t line)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < STREAMS; i++) {
        if (!m->s[i].queued || m->s[i].in.line != line) {
            continue;
        }
        int c = best != UINT32_MAX ? order(&m->s[i], &m->s[best]) : -1;
        if (c < 0 || (c == 0 && m->s[i].arrival < m->s[best].arrival)) {
            best = i;
        }
    }
    return best;
}

/* The line with room that should send next; UINT32_MAX: none. */
static uint32_t best_line(const model *m)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t l = 0; l < LINES; l++) {
        uint32_t s = best_of_line(m, l);
        if (!m->open[l] || m->full[l] || s == UINT32_MAX) {
            continue;
        }
        int c = best != UINT32_MAX ? order(&m->s[s], &m->s[best_of_line(m, best)]) : -1;
        if (c < 0 || (c == 0 && m->served[l] < m->served[best])) {
            best = l;
        }
    }
    return best;
}

static void try_pick(rui_egress *e, model *m, uint32_t line, ru_rng *r, ru_time now)
{
    m->full[line] = false; /* a line that pulls has room */
    m->woken[line] = false;
    uint32_t want = m->open[line] && best_line(m) == line ? best_of_line(m, line) : UINT32_MAX;
    uint32_t got = UINT32_MAX;
    bool picked = rui_egress_pick(e, line, now, &got);
    assert_int_equal(picked, want != UINT32_MAX);
    if (!picked) {
        return;
    }
    assert_int_equal(got, want);
    model_stream *s = &m->s[got];
    int64_t n = 1 + (int64_t)ru_rng_below_u64(r, (uint64_t)s->left);
    rui_egress_took(e, got, n, now);
    s->left -= n;
    s->queued = s->left > 0;
    m->full[line] = true;
    m->served[line] = ++m->services;
}

static void one_act(rui_egress *e, model *m, ru_rng *r, ru_time now)
{
    uint32_t what = ru_rng_below(r, 10), i = ru_rng_below(r, STREAMS);
    uint32_t line = ru_rng_below(r, LINES);
    if (what < 4 && !m->s[i].queued) {
        model_stream *s = &m->s[i];
        s->left = 1 + ru_rng_below(r, 1000);
        s->in = (rui_egress_stream){.line = line,
                                    .class = (uint8_t)ru_rng_below(r, 4),
                                    .rank = (uint16_t)ru_rng_below(r, 3),
                                    .bytes = s->left,
                                    .total_bytes = s->left};
        s->in.deadline.ns = ru_rng_below(r, 2) == 0 ? 0 : 1 + ru_rng_below(r, 5);
        s->queued = true;
        s->arrival = m->arrivals++;
        rui_egress_add(e, i, &s->in, now);
    } else if (what == 4) {
        rui_egress_remove(e, i);
        m->s[i].queued = false;
    } else if (what == 5 && ru_rng_below(r, 10) == 0) {
        m->open[line] = !m->open[line];
        m->full[line] = m->woken[line] = false;
        rui_egress_line(e, line, m->open[line]);
    } else if (what < 8) {
        try_pick(e, m, line, r, now);
    } else {
        uint32_t best = best_line(m), woken = rui_egress_wake(e, now);
        uint32_t want = best != UINT32_MAX && !m->woken[best] ? best : UINT32_MAX;
        assert_int_equal(woken, want);
        if (woken != UINT32_MAX) {
            m->woken[woken] = true;
        }
    }
}

static void test_choices_equal_a_search(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 20; round++) {
        ru_rng r = ru_rng_from(ru_test_seed() + round, 3);
        ru_arena a;
        ru_arena_init(&a, 0);
        rui_egress *e = NULL;
        ru_err err;
        assert_ok(rui_egress_open(&(rui_egress_options){.lines_max = LINES, .streams_max = STREAMS},
                                  &a, &e, &err),
                  err);
        model m = {0};
        for (uint32_t k = 0; k < 5000; k++) {
            one_act(e, &m, &r, (ru_time){1});
        }
        uint32_t n = 0;
        for (uint32_t i = 0; i < STREAMS; i++) {
            n += m.s[i].queued;
            assert_int_equal(rui_egress_has(e, i), m.s[i].queued);
        }
        assert_int_equal(rui_egress_queued(e), n);
        ru_arena_fini(&a);
    }
}

/* -- a mix of deadlines --------------------------------------------------------------------------
 */

enum { JOBS = 4000 };
static const double RATE = 125e6;

typedef struct job {
    int64_t at_ns, deadline_ns, size, left;
    uint8_t class;
    int64_t ours_ns, ideal_ns, fifo_ns; /* ends */
} job;

static int64_t wire_ns(int64_t bytes)
{
    return (int64_t)((double)bytes / RATE * 1e9);
}

/* Poisson arrivals, 60 % load by bytes; deadlines of 3 solo times and a millisecond. */
static void draw_jobs(job *jobs, ru_rng *r)
{
    static const struct {
        int64_t size;
        double part; /* of the bytes */
        uint8_t class;
    } kinds[3] = {{64 << 10, 0.1, 1}, {1 << 20, 0.3, 2}, {32 << 20, 0.6, 3}};
    double per_byte = 0, weights[3];
    for (uint32_t k = 0; k < 3; k++) {
        weights[k] = kinds[k].part / (double)kinds[k].size;
        per_byte += weights[k];
    }
    double gap_ns = 1e9 / (0.6 * RATE * per_byte), at = 0;
    for (uint32_t i = 0; i < JOBS; i++) {
        uint32_t k = ru_rng_pick(r, weights, 3);
        at += gap_ns * ru_rng_exponential(r);
        jobs[i] = (job){.at_ns = 1 + (int64_t)at,
                        .size = kinds[k].size,
                        .left = kinds[k].size,
                        .class = kinds[k].class};
        jobs[i].deadline_ns = jobs[i].at_ns + 3 * wire_ns(jobs[i].size) + 1000000;
    }
}

/* The best that is possible with classes: at every moment the earliest deadline of the best class,
 * in bytes of no size. */
static void ideal(job *jobs)
{
    int64_t now = 0;
    for (uint32_t next = 0, done = 0; done < JOBS;) {
        job *best = NULL;
        for (uint32_t i = 0; i < next; i++) {
            job *j = &jobs[i];
            if (j->left > 0 && (best == NULL || j->class < best->class ||
                                (j->class == best->class && j->deadline_ns < best->deadline_ns))) {
                best = j;
            }
        }
        int64_t until = next < JOBS ? jobs[next].at_ns : INT64_MAX;
        if (best == NULL) {
            now = until;
            next++;
            continue;
        }
        int64_t need = wire_ns(best->left);
        if (now + need <= until) {
            now += need;
            best->left = 0;
            best->ideal_ns = now;
            done++;
            continue;
        }
        best->left -= (int64_t)((double)(until - now) / 1e9 * RATE);
        best->left = best->left > 0 ? best->left : 1;
        now = until;
        next++;
    }
}

static void fifo(job *jobs)
{
    int64_t free_ns = 0;
    for (uint32_t i = 0; i < JOBS; i++) {
        free_ns = (jobs[i].at_ns > free_ns ? jobs[i].at_ns : free_ns) + wire_ns(jobs[i].size);
        jobs[i].fifo_ns = free_ns;
    }
}

static void no_late(void *self, uint32_t s, int64_t late_ns, ru_time now)
{
    (void)self;
    (void)s;
    (void)late_ns;
    (void)now;
}

/* Our scheduler, chunk after chunk on one line that is full while a chunk is on the wire. */
static void ours(job *jobs, rui_egress *e)
{
    int64_t now = 0;
    ru_time tick = {0};
    rui_egress_line(e, 0, true);
    for (uint32_t next = 0, done = 0; done < JOBS;) {
        for (; next < JOBS && jobs[next].at_ns <= now; next++) {
            job *j = &jobs[next];
            j->left = j->size;
            rui_egress_add(e, next,
                           &(rui_egress_stream){.class = j->class,
                                                .deadline = {j->deadline_ns},
                                                .bytes = j->size,
                                                .total_bytes = j->size},
                           (ru_time){now});
        }
        if (tick.ns <= now) {
            tick = rui_egress_tick(e, no_late, NULL, (ru_time){now});
        }
        uint32_t s;
        (void)rui_egress_wake(e, (ru_time){now});
        if (!rui_egress_pick(e, 0, (ru_time){now}, &s)) {
            now = next < JOBS ? jobs[next].at_ns : now + 1;
            continue;
        }
        int64_t n = rui_egress_chunk(e) < jobs[s].left ? rui_egress_chunk(e) : jobs[s].left;
        rui_egress_took(e, s, n, (ru_time){now});
        now += wire_ns(n);
        jobs[s].left -= n;
        if (jobs[s].left == 0) {
            jobs[s].ours_ns = now;
            done++;
        }
    }
}

static rui_egress *open_one_line(ru_arena *a, uint32_t streams)
{
    ru_arena_init(a, 0);
    rui_egress *e = NULL;
    ru_err err;
    const rui_egress_options o = {.lines_max = 1, .streams_max = streams, .rate_bytes_per_s = RATE};
    assert_ok(rui_egress_open(&o, a, &e, &err), err);
    rui_egress_line(e, 0, true);
    return e;
}

/* The first of many equal streams ends first however long the others wait, since ranks are one
 * user's own order; what better classes keep waiting still moves up. */
static void test_ranks_do_not_age(void **state)
{
    (void)state;
    enum { N = 30, SIZE = 4 << 20 };
    ru_arena a;
    rui_egress *e = open_one_line(&a, N + 2);
    int64_t left[N + 2];
    for (uint32_t k = 0; k < N + 1; k++) { /* the last is of a lesser class */
        left[k] = SIZE;
        rui_egress_add(e, k,
                       &(rui_egress_stream){.class = k < N ? 2 : 3,
                                            .rank = (uint16_t)(k < N ? N - k : 0),
                                            .bytes = SIZE,
                                            .total_bytes = SIZE},
                       (ru_time){0});
    }
    uint32_t ended = 0;
    bool lesser = false;
    ru_time now = {0}, tick = {0};
    while (ended < N) {
        if (tick.ns <= now.ns) {
            tick = rui_egress_tick(e, no_late, NULL, now);
        }
        uint32_t s;
        (void)rui_egress_wake(e, now);
        assert_true(rui_egress_pick(e, 0, now, &s));
        int64_t n = rui_egress_chunk(e) < left[s] ? rui_egress_chunk(e) : left[s];
        rui_egress_took(e, s, n, now);
        now.ns += wire_ns(n);
        left[s] -= n;
        lesser = lesser || s == N;
        if (left[s] == 0 && s < N) {
            assert_int_equal(s, N - 1 - ended);
            ended++;
        }
    }
    assert_true(lesser);
    ru_arena_fini(&a);
}

static void test_deadlines_are_met(void **state)
{
    (void)state;
    static job jobs[JOBS];
    ru_rng r = ru_rng_from(ru_test_seed(), 9);
    ru_arena a;
    ru_arena_init(&a, 0);
    rui_egress *e = NULL;
    ru_err err;
    assert_ok(
        rui_egress_open(
            &(rui_egress_options){.lines_max = 1, .streams_max = JOBS, .rate_bytes_per_s = RATE},
            &a, &e, &err),
        err);
    draw_jobs(jobs, &r);
    fifo(jobs);
    ideal(jobs);
    ours(jobs, e);
    uint32_t feasible = 0, missed = 0, fifo_missed = 0;
    int64_t worst = 0;
    for (uint32_t i = 0; i < JOBS; i++) {
        const job *j = &jobs[i];
        bool can = j->ideal_ns <= j->deadline_ns;
        feasible += can;
        missed += can && j->ours_ns > j->deadline_ns;
        fifo_missed += can && j->fifo_ns > j->deadline_ns;
        int64_t over = (j->ours_ns - j->at_ns) - 16 * wire_ns(j->size);
        worst = over > worst ? over : worst;
    }
    print_message(
        "feasible %u of %u, missed %.2f %%, FIFO %.1f %%, worst wait beyond 16 solo %.1f ms\n",
        feasible, JOBS, 100.0 * missed / feasible, 100.0 * fifo_missed / feasible,
        (double)worst / 1e6);
    assert_true(feasible > JOBS * 3 / 4);
    assert_true(missed * 100 <= feasible);
    assert_true(fifo_missed * 100 > feasible * 40);
    ru_arena_fini(&a);
}

/* -- starvation ----------------------------------------------------------------------------------
 */

/* A sum waits for others of lower rank, and each time that it is looked at a short urgent message
 * stands before all: it is not that which kept it waiting. */
static void test_a_moment_does_not_age(void **state)
{
    (void)state;
    enum { N = 30, SIZE = 4 << 20 };
    ru_arena a;
    rui_egress *e = open_one_line(&a, N + 1);
    rui_egress_stream in = {.class = 2, .bytes = SIZE, .total_bytes = SIZE};
    int64_t left[N + 1];
    for (uint32_t k = 0; k < N; k++) {
        left[k] = SIZE;
        in.rank = (uint16_t)k;
        rui_egress_add(e, k, &in, (ru_time){0});
    }
    in = (rui_egress_stream){.class = 1, .bytes = 4000, .total_bytes = 4000};
    uint32_t ended = 0;
    ru_time now = {0}, tick = {0};
    while (ended < N) {
        if (tick.ns <= now.ns) {
            left[N] = rui_egress_has(e, N) ? left[N] : in.bytes;
            if (!rui_egress_has(e, N)) {
                rui_egress_add(e, N, &in, now);
            }
            tick = rui_egress_tick(e, no_late, NULL, now);
        }
        uint32_t s;
        (void)rui_egress_wake(e, now);
        assert_true(rui_egress_pick(e, 0, now, &s));
        int64_t n = rui_egress_chunk(e) < left[s] ? rui_egress_chunk(e) : left[s];
        rui_egress_took(e, s, n, now);
        now.ns += wire_ns(n);
        left[s] -= n;
        if (left[s] == 0 && s < N) {
            assert_int_equal(s, ended);
            ended++;
        }
    }
    ru_arena_fini(&a);
}

/* Urgent streams without end, and one of the background: 4 solo times to each higher class and one
 * more to the front. */
static void test_nobody_starves(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    rui_egress *e = NULL;
    ru_err err;
    assert_ok(rui_egress_open(
                  &(rui_egress_options){.lines_max = 1, .streams_max = 8, .rate_bytes_per_s = RATE},
                  &a, &e, &err),
              err);
    rui_egress_line(e, 0, true);
    int64_t size = 4 << 20, now = 1, first = 0, longest = 0, last = 0;
    ru_time tick = {0};
    const rui_egress_stream low = {.class = 3, .bytes = size, .total_bytes = size};
    const rui_egress_stream high = {.class = 1, .bytes = 1 << 20, .total_bytes = 1 << 20};
    rui_egress_add(e, 0, &low, (ru_time){now});
    while (rui_egress_has(e, 0)) {
        for (uint32_t i = 1; i < 4; i++) {
            if (!rui_egress_has(e, i)) {
                rui_egress_add(e, i, &high, (ru_time){now});
            }
        }
        if (tick.ns <= now) {
            tick = rui_egress_tick(e, no_late, NULL, (ru_time){now});
        }
        uint32_t s;
        assert_true(rui_egress_pick(e, 0, (ru_time){now}, &s));
        int64_t n = 64 << 10;
        rui_egress_took(e, s, n, (ru_time){now});
        now += wire_ns(n);
        if (s == 0) {
            first = first != 0 ? first : now;
            longest = last != 0 && now - last > longest ? now - last : longest;
            last = now;
        }
        assert_true(now < 100 * wire_ns(size));
    }
    assert_true(first <= 3 * 4 * wire_ns(size) + 20000000);
    assert_true(longest <= 4 * wire_ns(size) + 10000000);
    ru_arena_fini(&a);
}

/* -- two peers, one interface --------------------------------------------------------------------
 */

/* Two sockets share the wire; each holds 128 KiB. The better line gets all of it but what the clock
 * leaves; when its peer is slow, the lesser line takes the rest. */
static double share_of_better(double better_rate)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    rui_egress *e = NULL;
    ru_err err;
    assert_ok(rui_egress_open(&(rui_egress_options){.lines_max = 2,
                                                    .streams_max = 2,
                                                    .chunk_bytes = 64 << 10,
                                                    .rate_bytes_per_s = RATE},
                              &a, &e, &err),
              err);
    double held[2] = {0, 0}, sent[2] = {0, 0}, dt = 20e-6;
    for (uint32_t i = 0; i < 2; i++) {
        rui_egress_line(e, i, true);
        rui_egress_add(e, i,
                       &(rui_egress_stream){.line = i,
                                            .class = (uint8_t)(1 + i),
                                            .bytes = (int64_t)1 << 40,
                                            .total_bytes = (int64_t)1 << 40},
                       (ru_time){1});
    }
    ru_time tick = {0};
    double acked = 0;
    for (double t = 0; t < 1; t += dt) {
        ru_time now = {1 + (int64_t)(t * 1e9)};
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t i = k % 2, s;
            if (held[i] < 65536 && rui_egress_pick(e, i, now, &s)) {
                rui_egress_took(e, s, 64 << 10, now);
                held[i] += 65536;
            }
            (void)rui_egress_wake(e, now);
        }
        if (tick.ns <= now.ns) {
            tick = rui_egress_tick(e, NULL, NULL, now);
        }
        rui_egress_acked(e, (int64_t)(sent[0] + sent[1] - acked), now);
        acked += (double)(int64_t)(sent[0] + sent[1] - acked);
        /* The wire: both in turn, each at most what it holds, the better also what its peer takes.
         */
        double room = RATE * dt;
        double cap[2] = {better_rate * dt, room};
        for (uint32_t k = 0; k < 2; k++) {
            double half = k == 0 && held[1] > 0 ? room / 2 : room;
            double n = held[k] < cap[k] ? held[k] : cap[k];
            n = n < half ? n : half;
            held[k] -= n;
            sent[k] += n;
            room -= n;
        }
    }
    ru_arena_fini(&a);
    print_message("better %.1f MB/s, lesser %.1f MB/s\n", sent[0] / 1e6, sent[1] / 1e6);
    return sent[0] / (sent[0] + sent[1]) + (sent[0] + sent[1] < 0.95 * RATE ? 100 : 0);
}

static void test_better_line_keeps_the_wire(void **state)
{
    (void)state;
    double alone = share_of_better(RATE), slow = share_of_better(0.3 * RATE);
    assert_true(alone > 0.9 && alone <= 1);
    assert_true(slow > 0.25 && slow < 0.35);
}

/* -- what follows from the rate ------------------------------------------------------------------
 */

typedef struct lateness {
    int64_t ns[4]; /* last said, by stream */
    uint32_t n[4];
} lateness;

static void note_late(void *self, uint32_t s, int64_t late_ns, ru_time now)
{
    (void)now;
    ((lateness *)self)->ns[s] = late_ns;
    ((lateness *)self)->n[s]++;
}

static rui_egress *open_at(ru_arena *a, double rate, uint32_t lines)
{
    rui_egress *e = NULL;
    ru_err err;
    const rui_egress_options opt = {.lines_max = lines, .streams_max = 4, .rate_bytes_per_s = rate};
    ru_arena_init(a, 0);
    assert_ok(rui_egress_open(&opt, a, &e, &err), err);
    for (uint32_t i = 0; i < lines; i++) {
        rui_egress_line(e, i, true);
    }
    return e;
}

static void add(rui_egress *e, uint32_t s, rui_egress_stream in)
{
    in.total_bytes = in.bytes;
    rui_egress_add(e, s, &in, (ru_time){1});
}

static const int64_t ms = 1000000;

/* Of a class the latest start comes first, not the earliest deadline: bytes at the rate and half
 * of the way count. */
static void test_the_latest_start_decides(void **state)
{
    (void)state;
    ru_arena a;
    uint32_t s = 9;
    rui_egress *e = open_at(&a, 1e9, 2); /* a byte a nanosecond */
    add(e, 0, (rui_egress_stream){.class = 2, .deadline = {10 * ms}, .bytes = 1 << 20});
    add(e, 1, (rui_egress_stream){.class = 2, .deadline = {12 * ms}, .bytes = 4 << 20});
    assert_true(rui_egress_pick(e, 0, (ru_time){1}, &s));
    assert_int_equal(s, 1);
    rui_egress_took(e, 1, 3 << 20, (ru_time){1}); /* what is left starts after the other */
    assert_true(rui_egress_pick(e, 0, (ru_time){1}, &s));
    assert_int_equal(s, 0);
    ru_arena_fini(&a);
    e = open_at(&a, 1e9, 2);
    rui_egress_line_rtt(e, 1, 4 * ms);
    add(e, 0, (rui_egress_stream){.line = 0, .class = 2, .deadline = {11 * ms}, .bytes = 1000});
    add(e, 1, (rui_egress_stream){.line = 1, .class = 2, .deadline = {12 * ms}, .bytes = 1000});
    assert_false(rui_egress_pick(e, 0, (ru_time){1}, &s)); /* 10 ms against 11 */
    assert_true(rui_egress_pick(e, 1, (ru_time){1}, &s));
    ru_arena_fini(&a);
}

/* Ends after all work of better classes and all of its own class that is due before, and half of
 * the way; said once, and again at each doubling. */
static void test_lateness_is_predicted(void **state)
{
    (void)state;
    ru_arena a;
    lateness l = {{0}, {0}};
    rui_egress *e = open_at(&a, 1e9, 1);
    rui_egress_line_rtt(e, 0, 2 * ms);
    add(e, 0, (rui_egress_stream){.class = 1, .bytes = 5 * ms});
    add(e, 1, (rui_egress_stream){.class = 2, .deadline = {1 + 4 * ms}, .bytes = 2 * ms});
    add(e, 2, (rui_egress_stream){.class = 2, .deadline = {1 + 20 * ms}, .bytes = 3 * ms});
    add(e, 3, (rui_egress_stream){.class = 3, .deadline = {1 + 10 * ms}, .bytes = 4 * ms});
    ru_time now = {1};
    (void)rui_egress_tick(e, note_late, &l, now);
    assert_int_equal(l.n[0] + l.n[2], 0);                                /* 5 + 2 + 3 + 1 ms */
    assert_int_equal(l.ns[1], 4 * ms);                                   /* 5 + 2 + 1 - 4 */
    assert_int_equal(l.ns[3], 5 * ms);                                   /* 5 + 5 + 4 + 1 - 10 */
    (void)rui_egress_tick(e, note_late, &l, (ru_time){now.ns + 3 * ms}); /* too soon to look */
    (void)rui_egress_tick(e, note_late, &l, (ru_time){now.ns + 5 * ms}); /* 9 and 10 ms late */
    assert_int_equal(l.n[1], 2);
    assert_int_equal(l.ns[1], 9 * ms);
    assert_int_equal(l.ns[3], 10 * ms);
    (void)rui_egress_tick(e, note_late, &l, (ru_time){now.ns + 11 * ms}); /* not doubled */
    assert_int_equal(l.n[1] + l.n[3], 4);
    ru_arena_fini(&a);
}

/* A rate counts only when there was something to send all the time. Half a millisecond of it is a
 * chunk, in steps of 16 KiB, at least 64 KiB. */
static void test_the_rate_makes_the_chunk(void **state)
{
    (void)state;
    ru_arena a;
    rui_egress *e = open_at(&a, 0, 1);
    ru_time t = {1000 * ms};
    rui_egress_acked(e, 0, t);
    rui_egress_acked(e, 100 * ms, (ru_time){t.ns += 10 * ms}); /* nothing was queued */
    assert_true(rui_egress_rate(e) <= 0);
    assert_int_equal(rui_egress_chunk(e), 64 << 10);
    add(e, 0, (rui_egress_stream){.class = 2, .bytes = INT64_C(1) << 40});
    rui_egress_acked(e, 0, (ru_time){t.ns += 10 * ms}); /* began idle */
    rui_egress_acked(e, 10 * ms, (ru_time){t.ns += 10 * ms});
    assert_true(rui_egress_rate(e) > 0.999e9 && rui_egress_rate(e) < 1.001e9);
    assert_int_equal(rui_egress_chunk(e), 31 << 14); /* 500000 bytes are 30.5 steps */
    rui_egress_acked(e, 10 * ms + 400000, (ru_time){t.ns += 10 * ms});
    assert_int_equal(rui_egress_chunk(e), 31 << 14);        /* 1 % more: it stays */
    rui_egress_acked(e, 5 * ms, (ru_time){t.ns += 5 * ms}); /* half a sample waits */
    rui_egress_acked(e, 35 * ms, (ru_time){t.ns += 5 * ms});
    assert_true(rui_egress_rate(e) > 1.7e9 && rui_egress_rate(e) < 1.8e9); /* a quarter of 4e9 */
    assert_true(rui_egress_chunk(e) > 50 << 14);
    for (int i = 0; i < 900; i++) { /* 4 KiB every 33 ms, in three of ten samples */
        rui_egress_acked(e, i % 10 % 3 == 0 && i % 10 < 9 ? 4096 : 0, (ru_time){t.ns += 10 * ms});
    }
    assert_true(fabs(rui_egress_rate(e) / 122880 - 1) < 0.1);
    ru_arena_fini(&a);
}

/* On a slow link a chunk is at most 20 ms, and a rate that trembles about a step does not make it
 * another one at each sample. */
static void test_slow_chunks_stay(void **state)
{
    (void)state;
    static const int64_t rates[] = {50 * 8192, 50 * 16384, 50 * 36864, 50 * 65536};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rates); k++) {
        ru_arena a;
        rui_egress *e = open_at(&a, 0, 1);
        ru_time t = {1000 * ms};
        uint32_t changes = 0;
        int64_t last = 0;
        rui_egress_acked(e, 0, t);
        add(e, 0, (rui_egress_stream){.class = 2, .bytes = INT64_C(1) << 40});
        rui_egress_acked(e, 0, (ru_time){t.ns += 10 * ms}); /* began idle */
        for (uint32_t i = 0; i < 200; i++) {
            int64_t bytes = rates[k] / 100;
            bytes += i % 2 == 0 ? bytes / 20 : -bytes / 20;
            rui_egress_acked(e, bytes, (ru_time){t.ns += 10 * ms});
            int64_t now = rui_egress_chunk(e);
            changes += last != 0 && now != last;
            assert_true((double)now <= rui_egress_rate(e) * 0.02 || now == 4 << 10);
            last = now;
        }
        assert_in_range(changes, 0, 2);
        assert_true((double)last >= (double)rates[k] * 0.02 - (8 << 10));
        rui_egress_acked(e, 4 * rates[k], (ru_time){t.ns += 10 * ms}); /* much more */
        assert_int_equal(rui_egress_chunk(e), 64 << 10);
        ru_arena_fini(&a);
    }
}

/* Control beyond 2 % of the bytes queues up behind what is urgent. */
static void test_control_has_a_budget(void **state)
{
    (void)state;
    ru_arena a;
    uint32_t s = 9;
    rui_egress *e = open_at(&a, 0, 1);
    add(e, 0, (rui_egress_stream){.class = 1, .bytes = 1000});
    add(e, 1, (rui_egress_stream){.class = 0, .bytes = 256 << 10});
    assert_true(rui_egress_pick(e, 0, (ru_time){1}, &s));
    assert_int_equal(s, 1);
    rui_egress_took(e, 1, 256 << 10, (ru_time){1});
    assert_false(rui_egress_control_spent(e)); /* so much is free */
    rui_egress_beside(e, 1, true);
    assert_true(rui_egress_control_spent(e));
    add(e, 1, (rui_egress_stream){.class = 0, .bytes = 1000});
    assert_true(rui_egress_pick(e, 0, (ru_time){1}, &s));
    assert_int_equal(s, 0);
    add(e, 2, (rui_egress_stream){.class = 3, .bytes = 50 * ((256 << 10) + 1)});
    rui_egress_remove(e, 0);
    rui_egress_remove(e, 1);
    assert_true(rui_egress_pick(e, 0, (ru_time){1}, &s));
    rui_egress_took(e, 2, 49 * (256 << 10) + 50, (ru_time){1});
    assert_false(rui_egress_control_spent(e)); /* 2 % of all exactly */
    ru_arena_fini(&a);
}

/* -- when a stream arrives ------------------------------------------------------------------------
 */

/* The time until stream `own` is done, when nothing is added any more. */
static int64_t drain(rui_egress *e, model_stream *s, uint32_t own, int64_t busy_ns, double rate)
{
    double at = (double)busy_ns;
    while (s[own].left > 0) {
        uint32_t got = UINT32_MAX;
        ru_time now = {(int64_t)at};
        for (uint32_t k = 0; k < 2 * LINES && got == UINT32_MAX; k++) { /* all have room first */
            uint32_t next;
            bool picked = rui_egress_pick(e, k % LINES, now, &next);
            got = picked && k >= LINES ? next : got;
        }
        assert_true(got < STREAMS);
        int64_t n = rui_egress_chunk(e) < s[got].left ? rui_egress_chunk(e) : s[got].left;
        rui_egress_took(e, got, n, now);
        s[got].left -= n;
        at += (double)n / rate * 1e9;
    }
    return (int64_t)at;
}

/* With all streams known, the prediction of the last one errs by the turns that lines take. */
static void test_arrives(void **state)
{
    (void)state;
    const double rate = 1e8;
    enum { CHUNK = 1 << 16 };
    const int64_t chunk_ns = (int64_t)(CHUNK / rate * 1e9);
    for (uint64_t seed = 0; seed < 300; seed++) {
        ru_rng r = ru_rng_from(seed, 0);
        uint32_t lines = seed % 3 == 0 ? 1 : LINES, n = 1 + ru_rng_below(&r, STREAMS);
        ru_arena a;
        ru_err err;
        rui_egress *e;
        model_stream s[STREAMS];
        ru_arena_init(&a, 0);
        const rui_egress_options opt = {.lines_max = LINES,
                                        .streams_max = STREAMS,
                                        .chunk_bytes = CHUNK,
                                        .rate_bytes_per_s = rate};
        assert_ok(rui_egress_open(&opt, &a, &e, &err), err);
        for (uint32_t k = 0; k < LINES; k++) {
            rui_egress_line(e, k, true);
            rui_egress_line_rtt(e, k, 200);
        }
        for (uint32_t k = 0; k < n; k++) {
            s[k].left = 1 + ru_rng_below(&r, 4 * CHUNK);
            const rui_egress_stream in = {.line = ru_rng_below(&r, lines),
                                          .class = (uint8_t)(1 + ru_rng_below(&r, 3)),
                                          .rank = (uint16_t)ru_rng_below(&r, 3),
                                          .bytes = s[k].left,
                                          .total_bytes = s[k].left};
            rui_egress_add(e, k, &in, (ru_time){0});
        }
        int64_t left = ru_rng_below(&r, 1 << 20), busy_ns = (int64_t)((double)left / rate * 1e9);
        rui_egress_left(e, left, (ru_time){0});
        int64_t soon = rui_egress_arrives_ns(e, n - 1, (ru_time){0});
        int64_t took = drain(e, s, n - 1, busy_ns, rate) + 100;
        int64_t turns = lines == 1 ? 2 : lines * chunk_ns;
        assert_true(soon - took <= turns && took - soon <= turns);
        ru_arena_fini(&a);
    }
}

RU_TESTS(comm_egress, cmocka_unit_test(test_the_latest_start_decides),
         cmocka_unit_test(test_lateness_is_predicted),
         cmocka_unit_test(test_the_rate_makes_the_chunk), cmocka_unit_test(test_slow_chunks_stay),
         cmocka_unit_test(test_control_has_a_budget), cmocka_unit_test(test_choices_equal_a_search),
         cmocka_unit_test(test_deadlines_are_met), cmocka_unit_test(test_ranks_do_not_age),
         cmocka_unit_test(test_nobody_starves), cmocka_unit_test(test_a_moment_does_not_age),
         cmocka_unit_test(test_better_line_keeps_the_wire), cmocka_unit_test(test_arrives))
