/* The loop: order and exactness of timers, descriptors that vanish, wakers of other threads. */
#include "env/loop/loop.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "env/loop/loop_impl.h"
#include "env/thread.h"
#include "test/test.h"

typedef struct note {
    ru_loop *loop;
    uint32_t n;
    uint32_t what[64];
    ru_time at[64];
} note;

static void noted(void *self, uint32_t what, ru_time now)
{
    note *x = self;
    x->what[x->n % 64] = what;
    x->at[x->n++ % 64] = now;
}

static void last(void *self, uint32_t what, ru_time now)
{
    noted(self, what, now);
    ru_loop_stop(((note *)self)->loop);
}

static ru_loop *open_loop(void)
{
    ru_err err = {0};
    ru_loop *l = NULL;
    assert_ok(ru_loop_open(&l, &err), err);
    return l;
}

static void run(ru_loop *l)
{
    ru_err err = {0};
    assert_ok(ru_loop_run(l, &err), err);
}

/* 0: never, 1: alone on a core, 2: sharing it. */
static void set_poll(ru_loop *l, uint32_t mode, int64_t max_ns)
{
    ru_loop_poll(l, mode == 0 ? 0 : max_ns, mode == 2);
}

static void test_timers_in_order(void **state)
{
    (void)state;
    for (uint32_t mode = 0; mode < 3; mode++) {
        ru_loop *l = open_loop();
        note x = {.loop = l};
        set_poll(l, mode, 5000000);
        ru_time t = ru_clock_now();
        ru_loop_timer(l, noted, &x, 3, ru_time_after(t, 300000));
        ru_loop_timer(l, noted, &x, 1, ru_time_after(t, 100000));
        ru_loop_timer(l, last, &x, 9, ru_time_after(t, 900000));
        ru_loop_timer(l, noted, &x, 2, ru_time_after(t, 800000));
        ru_loop_timer(l, noted, &x, 2, ru_time_after(t, 200000)); /* moves it */
        ru_loop_timer(l, noted, &x, 7, ru_time_after(t, 150000));
        ru_loop_timer_off(l, noted, &x, 7);
        ru_loop_timer_off(l, noted, &x, 77);
        ru_loop_timer(l, noted, &x, 5, ru_time_after(t, -5)); /* due already */
        run(l);
        static const uint32_t want[] = {5, 1, 2, 3, 9};
        assert_int_equal(x.n, 5);
        for (uint32_t k = 0; k < 5; k++) {
            assert_int_equal(x.what[k], want[k]);
            int64_t after_ns = k == 4 ? 900000 : k == 0 ? -5 : (int64_t)k * 100000;
            assert_true(ru_time_since(x.at[k], t) >= after_ns); /* never early */
        }
        ru_loop_close(l);
    }
}

/* Against brute force: random sets, moves and removals. */
static void test_timer_table(void **state)
{
    (void)state;
    enum { N = 300 };
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    rui_timers t = {0};
    note x[3] = {{0}};
    int64_t at[3][N];
    uint64_t order[3][N];
    bool set[3][N] = {{false}};
    uint64_t orders = 0;
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t s = ru_rng_below(&rng, 3), w = ru_rng_below(&rng, N);
        uint32_t act = ru_rng_below(&rng, 4);
        if (act < 2) {
            at[s][w] = (int64_t)ru_rng_below(&rng, 500);
            order[s][w] = orders++;
            set[s][w] = true;
            rui_timers_set(&t, noted, &x[s], w, (ru_time){at[s][w]});
        } else if (act == 2) {
            set[s][w] = false;
            rui_timers_off(&t, noted, &x[s], w);
        } else {
            uint32_t bs = 0, bw = N;
            for (uint32_t i = 0; i < 3; i++) {
                for (uint32_t j = 0; j < N; j++) {
                    if (set[i][j] && (bw == N || at[i][j] < at[bs][bw] ||
                                      (at[i][j] == at[bs][bw] && order[i][j] < order[bs][bw]))) {
                        bs = i;
                        bw = j;
                    }
                }
            }
            rui_timer got;
            bool popped = rui_timers_pop(&t, 400, UINT64_MAX, &got);
            assert_int_equal(popped, bw < N && at[bs][bw] <= 400);
            if (popped) {
                assert_ptr_equal(got.self, &x[bs]);
                assert_int_equal(got.what, bw);
                set[bs][bw] = false;
            }
        }
    }
    rui_timers_fini(&t);
}

typedef struct pipe_end {
    ru_loop *loop;
    int fds[2], other[2];
    uint32_t calls;
} pipe_end;

/* The first of two ready descriptors removes the other, closes it and opens a new one in its place:
 * the old event must not reach the new one. */
static void remove_other(void *self, int fd, uint32_t events, ru_time now)
{
    (void)events, (void)now;
    pipe_end *p = self;
    p->calls++;
    int other = fd == p->fds[0] ? p->other[0] : p->fds[0];
    ru_loop_fd_off(p->loop, other);
    ru_loop_fd_off(p->loop, fd);
    close(other);
    int fresh = dup(fd); /* takes the number of the closed one */
    assert_int_equal(fresh, other);
    assert_int_equal(ru_loop_fd(p->loop, fresh, 0, remove_other, p, NULL), RU_OK);
    ru_loop_stop(p->loop);
}

static void test_descriptors_that_vanish(void **state)
{
    (void)state;
    pipe_end p = {.loop = open_loop()};
    assert_int_equal(pipe(p.fds), 0);
    assert_int_equal(pipe(p.other), 0);
    assert_int_equal(write(p.fds[1], "x", 1), 1);
    assert_int_equal(write(p.other[1], "x", 1), 1);
    ru_err err = {0};
    assert_ok(ru_loop_fd(p.loop, p.fds[0], EPOLLIN, remove_other, &p, &err), err);
    assert_ok(ru_loop_fd(p.loop, p.other[0], EPOLLIN, remove_other, &p, &err), err);
    run(p.loop);
    assert_int_equal(p.calls, 1);
    assert_ok(ru_loop_round(p.loop, 0, &err), err);
    assert_int_equal(p.calls, 1);
    ru_loop_close(p.loop);
    for (uint32_t k = 0; k < 2; k++) {
        close(p.fds[k]);
        close(p.other[k]);
    }
}

typedef struct crowd {
    ru_loop *loop;
    uint32_t waker, seen, given;
    uint32_t rounds;
} crowd;

static void crowd_woken(void *self, ru_time now)
{
    (void)now;
    crowd *c = self;
    c->seen = __atomic_load_n(&c->given, __ATOMIC_SEQ_CST);
    if (c->seen == c->rounds) {
        ru_loop_stop(c->loop);
    }
}

static void crowd_thread(void *arg)
{
    crowd *c = arg;
    for (uint32_t k = 0; k < c->rounds; k++) {
        (void)__atomic_add_fetch(&c->given, 1, __ATOMIC_SEQ_CST);
        ru_loop_wake(c->loop, c->waker);
    }
}

static void test_wakers_lose_nothing(void **state)
{
    (void)state;
    for (uint32_t mode = 0; mode < 3; mode++) {
        crowd c = {.loop = open_loop(), .rounds = 20000};
        set_poll(c.loop, mode, 50000);
        ru_err err = {0};
        assert_ok(ru_loop_waker(c.loop, crowd_woken, &c, &c.waker, &err), err);
        ru_thread t = {0};
        assert_ok(ru_thread_start(&t, "crowd", crowd_thread, &c, &err), err);
        run(c.loop); /* ends only when the last wake-up arrives */
        assert_int_equal(c.seen, c.rounds);
        ru_thread_join(&t);
        ru_loop_waker_off(c.loop, c.waker);
        ru_loop_close(c.loop);
    }
}

static void again(void *self, ru_time now)
{
    note *x = self;
    noted(x, 1, now);
    if (x->n < 10) {
        ru_loop_after(x->loop, again, x);
        ru_loop_after(x->loop, again, x);
    } else {
        ru_loop_stop(x->loop);
    }
}

static void test_deferred_work(void **state)
{
    (void)state;
    note x = {.loop = open_loop()};
    ru_loop_after(x.loop, again, &x);
    ru_loop_after(x.loop, again, &x);
    run(x.loop);
    assert_int_equal(x.n, 10);
    ru_loop_after(x.loop, again, &x);
    ru_loop_after_off(x.loop, again, &x);
    ru_err err = {0};
    assert_ok(ru_loop_round(x.loop, 0, &err), err);
    assert_int_equal(x.n, 10);
    ru_loop_close(x.loop);
}

static void child_ended(void *self, int64_t pid, ru_time now)
{
    note *x = self;
    noted(x, (uint32_t)pid, now);
    ru_loop_stop(x->loop);
}

static void test_children(void **state)
{
    (void)state;
    note x = {.loop = open_loop()};
    pid_t pid = fork();
    if (pid == 0) {
        _exit(3);
    }
    ru_err err = {0};
    assert_ok(ru_loop_child(x.loop, pid, child_ended, &x, &err), err);
    run(x.loop);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(x.n, 1);
    assert_int_equal(x.what[0], (uint32_t)pid);
    assert_int_equal(ru_loop_child(x.loop, pid, child_ended, &x, &err), RU_E_MISSING);
    pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    assert_ok(ru_loop_child(x.loop, pid, child_ended, &x, &err), err);
    ru_loop_close(x.loop); /* with a child still watched */
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* Waits in; how long the next look is, out. */
static void test_poll_follows_the_waits(void **state)
{
    (void)state;
    rui_poll p = {.max_ns = 100000};
    rui_poll_waited(&p, 5000000);
    assert_int_equal(p.window_ns, 0); /* silence: no core is spent */
    static const int64_t grows[] = {10000, 20000, 40000, 80000, 100000, 100000};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(grows); k++) {
        rui_poll_waited(&p, 100000);
        assert_int_equal(p.window_ns, grows[k]);
    }
    rui_poll_waited(&p, 3000); /* met while looking: as it was */
    assert_int_equal(p.window_ns, 100000);
    int64_t looked_ns = 0; /* for nothing, from here on */
    for (uint32_t k = 0; k < 10; k++) {
        looked_ns += p.window_ns;
        rui_poll_waited(&p, 5000000);
    }
    assert_int_equal(p.window_ns, 0);
    assert_true(looked_ns < 4 * p.max_ns);
    for (uint32_t k = 0; k < 100; k++) { /* two long waits in four: looks all the time */
        rui_poll_waited(&p, k % 4 < 2 ? 5000000 : 90000);
    }
    assert_int_equal(p.window_ns, 100000);
    p = (rui_poll){.max_ns = 3000}; /* shorter than the first look would be */
    rui_poll_waited(&p, 2000);
    assert_int_equal(p.window_ns, 3000);
    p = (rui_poll){.max_ns = 0};
    rui_poll_waited(&p, 0);
    rui_poll_waited(&p, 1);
    assert_int_equal(p.window_ns, 0);
}

RU_TESTS(env_loop, cmocka_unit_test(test_poll_follows_the_waits),
         cmocka_unit_test(test_timers_in_order), cmocka_unit_test(test_timer_table),
         cmocka_unit_test(test_descriptors_that_vanish), cmocka_unit_test(test_wakers_lose_nothing),
         cmocka_unit_test(test_deferred_work), cmocka_unit_test(test_children))
