/* Models over one line to clients that take them in at speeds of their own, some of them at none.
 */
#include "fleet/server/pace.h"

#include <math.h>
#include <string.h>

#include "test/test.h"

enum { CLIENTS = 40, STEPS_PER_S = 200 };
static const double model = 9e6, line = 12.5e6;

typedef struct client {
    double rate, left, done_s; /* bytes/s; bytes; 0: it has not all of it */
    bool open;
} client;

typedef struct world {
    rui_fed_pace p;
    uint32_t queue[CLIENTS];
    client c[CLIENTS];
    double sent, now_s;
    uint32_t together; /* most that took the model in at one time */
} world;

static ru_time now(const world *w)
{
    return (ru_time){(int64_t)(w->now_s * 1e9)};
}

static void let(world *w)
{
    uint32_t i;
    while (rui_fed_pace_take(&w->p, (int64_t)w->sent, &i)) {
        w->c[i].open = true;
        w->c[i].left = model;
        rui_fed_pace_sends(&w->p, (int64_t)w->sent, (int64_t)model);
    }
}

static void world_init(world *w)
{
    *w = (world){.p = {.queue = w->queue, .max = CLIENTS}};
    for (uint32_t i = 0; i < CLIENTS; i++) {
        w->c[i].rate = line;
    }
}

/* A round of the clients from `first` to `end`. */
static void begin(world *w, uint32_t first, uint32_t end)
{
    rui_fed_pace_round(&w->p);
    for (uint32_t i = first; i < end; i++) {
        w->c[i].done_s = 0;
        if (w->p.n == 0) {
            rui_fed_pace_begin(&w->p, (int64_t)w->sent, now(w));
        }
        rui_fed_pace_put(&w->p, i);
        let(w);
    }
}

/* What each may take of the line: an equal part of what those who take less leave. */
static double part_of_line(const world *w)
{
    double part = line;
    for (uint32_t turn = 0; turn < 3; turn++) {
        double left = line, open = 0;
        for (uint32_t i = 0; i < CLIENTS; i++) {
            bool slow = w->c[i].open && w->c[i].rate < part;
            left -= slow ? w->c[i].rate : 0;
            open += w->c[i].open && !slow ? 1 : 0;
        }
        part = left / fmax(open, 1);
    }
    return part;
}

static void pass(world *w, double seconds)
{
    for (int k = 1; k <= seconds * STEPS_PER_S; k++) {
        uint32_t open = 0;
        double bytes = 0;
        for (uint32_t i = 0; i < CLIENTS; i++) {
            open += w->c[i].open && w->c[i].rate > 0 ? 1 : 0;
        }
        w->together = open > w->together ? open : w->together;
        w->now_s += 1.0 / STEPS_PER_S;
        const double part = part_of_line(w);
        for (uint32_t i = 0; i < CLIENTS; i++) {
            client *c = &w->c[i];
            double takes = c->open ? fmin(c->rate, part) / STEPS_PER_S : 0;
            takes = fmin(takes, c->left);
            bytes += takes;
            c->left -= takes;
            if (c->open && c->left <= 0) {
                c->open = false;
                c->done_s = w->now_s;
                rui_fed_pace_sent(&w->p);
            }
        }
        w->sent += bytes;
        let(w);
        if (k % (STEPS_PER_S / 10) == 0) {
            rui_fed_pace_look(&w->p, (int64_t)w->sent, now(w));
            let(w);
        }
    }
}

static uint32_t done(const world *w, uint32_t first, uint32_t end)
{
    uint32_t n = 0;
    for (uint32_t i = first; i < end; i++) {
        n += w->c[i].done_s > 0 ? 1 : 0;
    }
    return n;
}

/* A line that one client fills has no more than one at one time, but for the ends of models, once
 * its speed is known, and is never idle. */
static void test_full_line(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    begin(&w, 20, 40);
    pass(&w, 20 * model / line + 0.5);
    assert_int_equal(done(&w, 20, 40), 20);
    assert_true(w.together <= 3);
    w.together = 0;
    begin(&w, 0, 20);
    const double begun_s = w.now_s;
    pass(&w, 20 * model / line + 0.5);
    assert_int_equal(done(&w, 0, 20), 20);
    assert_true(w.together <= 2);
    /* As if the models went one by one, but for the ends of models, which share the line. */
    for (uint32_t i = 0; i < 20; i++) {
        assert_true(w.c[i].done_s - begun_s <= (i + 1) * model / line + 0.4);
    }
}

/* Clients that fill a tenth of the line each take the model in together. */
static void test_slow_clients(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    for (uint32_t i = 0; i < 20; i++) {
        w.c[i].rate = line / 20;
    }
    begin(&w, 0, 20);
    pass(&w, 20); /* each alone needs 14.4 s, two at a time 144 */
    assert_int_equal(done(&w, 0, 20), 20);
}

/* Some that never read, or hardly, are the first: the others do not wait for their end. */
static void test_never_read(void **state)
{
    static const double rates[] = {0, 1000};
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t n = 1; n <= 12; n++) {
            world w;
            (void)state;
            world_init(&w);
            for (uint32_t i = 0; i < n; i++) {
                w.c[i].rate = rates[k];
            }
            begin(&w, 0, 30);
            pass(&w, 30 * model / line + 8);
            assert_int_equal(done(&w, n, 30), 30 - n);
        }
    }
}

/* Slow ones beside some that never read stall, too, when the server knows what the line carries. */
static void test_slow_and_dead(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    begin(&w, 20, 40);
    pass(&w, 20);
    for (uint32_t i = 0; i < 4; i++) {
        w.c[i].rate = i < 2 ? 150000 : 0; /* 60 s */
    }
    begin(&w, 0, 20);
    pass(&w, 20 * model / line + 8);
    assert_int_equal(done(&w, 4, 20), 16);
}

/* Models that are on their way since earlier rounds hold up nobody, also when one of them ends. */
static void test_earlier_rounds(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    for (uint32_t i = 0; i < 10; i++) {
        w.c[i].rate = 0;
    }
    begin(&w, 0, 10);
    pass(&w, 5);
    assert_int_equal(w.p.n, 0);
    begin(&w, 10, 12);
    assert_true(w.c[10].open && !w.c[11].open);
    w.c[0].open = false; /* it was lost */
    rui_fed_pace_sent(&w.p);
    pass(&w, 2);
    assert_int_equal(done(&w, 10, 12), 2);
    begin(&w, 12, 30);
    assert_true(w.c[12].open && !w.c[13].open);
}

/* One that dies while it is sent to gives its place away. */
static void test_lost(void **state)
{
    world w;
    (void)state;
    world_init(&w);
    begin(&w, 0, 2);
    assert_true(w.c[0].open && !w.c[1].open);
    w.c[0].open = false;
    rui_fed_pace_sent(&w.p);
    let(&w);
    assert_true(w.c[1].open);
    assert_int_equal(w.p.n, 0);
}

RU_TESTS(fleet_pace, cmocka_unit_test(test_full_line), cmocka_unit_test(test_slow_clients),
         cmocka_unit_test(test_never_read), cmocka_unit_test(test_slow_and_dead),
         cmocka_unit_test(test_earlier_rounds), cmocka_unit_test(test_lost))
