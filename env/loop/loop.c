/* The loop on epoll (level-triggered), one timerfd, one eventfd.
 *
 * A round: wait; ready descriptors; due timers; wakers; deferred work until there is none. Removed
 * descriptors are known by a generation that travels in the epoll word, so that a descriptor closed
 * and opened again within a round does not get the events of its former life.
 *
 * Waking: a waker raises its bit in `pending`; only if the loop said that it goes to sleep the
 * eventfd is written. The loop says so, then looks at `pending` once more. */
#include "env/loop/loop.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "env/loop/loop_impl.h"
#include "env/probe_impl.h"

enum {
    EVENTS_PER_ROUND = 64,
    TIMERS_PER_ROUND = 1024,
};

typedef struct watch {
    ru_loop_fd_fn fn; /* NULL: none */
    void *self;
    uint32_t events, generation;
} watch;

typedef struct deferred {
    ru_loop_wake_fn fn;
    void *self;
} deferred;

typedef struct child {
    struct child *next;
    int fd;
    int64_t pid;
    ru_loop_child_fn fn;
    void *self;
    ru_loop *loop;
} child;

struct ru_loop {
    int epoll, timer, event;
    watch *watches; /* [n_watches] by descriptor */
    uint32_t n_watches, generation;
    rui_timers timers;
    int64_t armed_ns; /* what the timerfd is set to; INT64_MAX: nothing */
    deferred wakers[RU_LOOP_WAKERS_MAX];
    deferred after[RU_LOOP_AFTER_MAX];
    uint32_t n_after;
    rui_poll poll;
    bool yields; /* between two looks the core is offered to others */
    child *children;
    uint64_t pending;  /* bit k: waker k; any thread */
    uint32_t sleeping; /* any thread */
    uint32_t stop;     /* any thread */
};

static void drain(void *self, int fd, uint32_t events, ru_time now)
{
    (void)self, (void)events, (void)now;
    uint64_t count;
    (void)!read(fd, &count, sizeof count); /* the count does not matter */
}

static void timer_ready(void *self, int fd, uint32_t events, ru_time now)
{
    ru_loop *l = self;
    drain(self, fd, events, now);
    l->armed_ns = INT64_MAX;
}

ru_status ru_loop_open(ru_loop **out, ru_err *err)
{
    ru_loop *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an event loop");
    }
    l->armed_ns = INT64_MAX;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    l->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ru_status st = RU_OK;
    if (!rui_timers_grow(&l->timers)) {
        st = RU_FAIL(err, RU_E_MEM, "no memory for the timers of an event loop");
    } else if (l->epoll < 0 || l->timer < 0 || l->event < 0) {
        st = RU_FAIL(err, RU_E_LIMIT, "cannot open the descriptors of an event loop: %s",
                     strerror(errno));
    }
    st = st == RU_OK ? ru_loop_fd(l, l->timer, EPOLLIN, timer_ready, l, err) : st;
    st = st == RU_OK ? ru_loop_fd(l, l->event, EPOLLIN, drain, l, err) : st;
    if (st != RU_OK) {
        ru_loop_close(l);
        return st;
    }
    *out = l;
    return RU_OK;
}

void ru_loop_close(ru_loop *l)
{
    if (l == NULL) {
        return;
    }
    while (l->children != NULL) {
        child *c = l->children;
        l->children = c->next;
        close(c->fd);
        free(c);
    }
    const int fds[] = {l->epoll, l->timer, l->event};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(fds); k++) {
        if (fds[k] >= 0) {
            close(fds[k]);
        }
    }
    rui_timers_fini(&l->timers);
    free(l->watches);
    free(l);
}

/* ---- descriptors ---- */

static ru_status watches_reach(ru_loop *l, int fd, ru_err *err)
{
    if ((uint32_t)fd < l->n_watches) {
        return RU_OK;
    }
    uint32_t n = l->n_watches == 0 ? 64 : l->n_watches;
    while (n <= (uint32_t)fd) {
        n *= 2;
    }
    watch *bigger = realloc(l->watches, n * sizeof *bigger);
    if (bigger == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to watch descriptor %d", fd);
    }
    memset(bigger + l->n_watches, 0, (n - l->n_watches) * sizeof *bigger);
    l->watches = bigger;
    l->n_watches = n;
    return RU_OK;
}

ru_status ru_loop_fd(ru_loop *l, int fd, uint32_t epoll_events, ru_loop_fd_fn fn, void *self,
                     ru_err *err)
{
    RU_CHECK(fd >= 0 && fn != NULL);
    RU_TRY(watches_reach(l, fd, err));
    watch *w = &l->watches[fd];
    bool known = w->fn != NULL;
    if (!known || w->events != epoll_events) {
        uint32_t generation = known ? w->generation : ++l->generation;
        struct epoll_event e = {.events = epoll_events,
                                .data.u64 = (uint64_t)generation << 32 | (uint32_t)fd};
        if (epoll_ctl(l->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &e) != 0) {
            return RU_FAIL(err, RU_E_LIMIT, "cannot watch descriptor %d: %s", fd, strerror(errno));
        }
        w->generation = generation;
        w->events = epoll_events;
    }
    w->fn = fn;
    w->self = self;
    return RU_OK;
}

void ru_loop_fd_off(ru_loop *l, int fd)
{
    if (fd >= 0 && (uint32_t)fd < l->n_watches && l->watches[fd].fn != NULL) {
        (void)epoll_ctl(l->epoll, EPOLL_CTL_DEL, fd, NULL);
        l->watches[fd] = (watch){0};
    }
}

/* ---- timers ---- */

void ru_loop_timer(ru_loop *l, ru_loop_timer_fn fn, void *self, uint32_t what, ru_time at)
{
    rui_timers_set(&l->timers, fn, self, what, at);
}

void ru_loop_timer_off(ru_loop *l, ru_loop_timer_fn fn, void *self, uint32_t what)
{
    rui_timers_off(&l->timers, fn, self, what);
}

/* Set the timerfd when the first timer comes before what it is set to. A timer that moved away
 * leaves it: one needless wake-up is cheaper than a system call per move. */
static void arm(ru_loop *l)
{
    int64_t at_ns;
    if (!rui_timers_first(&l->timers, &at_ns) || at_ns >= l->armed_ns) {
        return;
    }
    int64_t t = at_ns > 0 ? at_ns : 1; /* 0 would disarm */
    struct itimerspec when = {.it_value = {t / 1000000000, t % 1000000000}};
    int rc = timerfd_settime(l->timer, TFD_TIMER_ABSTIME, &when, NULL);
    RU_CHECK(rc == 0);
    l->armed_ns = at_ns;
}

/* A callback that began at begun_ns has ended. Returns the time. */
static ru_time called(int64_t begun_ns, int64_t of)
{
    ru_time now = ru_clock_now();
    if (RU_UNLIKELY(now.ns - begun_ns >= RU_PROBE_CALL_NS)) {
        rui_probe(RU_PROBE_CALL, begun_ns, now.ns, of);
    }
    return now;
}

/* Due timers; those that they set wait for the next round, so that a timer of no delay cannot
 * starve the descriptors. */
static void run_timers(ru_loop *l)
{
    rui_timer t;
    int64_t first_ns;
    if (!rui_timers_first(&l->timers, &first_ns)) {
        return;
    }
    ru_time now = ru_clock_now();
    uint64_t limit = l->timers.sets;
    for (uint32_t k = 0; k < TIMERS_PER_ROUND && rui_timers_pop(&l->timers, now.ns, limit, &t);
         k++) {
        if (RU_UNLIKELY(now.ns - t.at_ns >= RU_PROBE_LATE_NS)) {
            rui_probe(RU_PROBE_LATE, t.at_ns, now.ns, t.what);
        }
        t.fn(t.self, t.what, now);
        now = called(now.ns, t.what);
    }
}

/* ---- wake-ups ---- */

ru_status ru_loop_waker(ru_loop *l, ru_loop_wake_fn fn, void *self, uint32_t *waker, ru_err *err)
{
    for (uint32_t k = 0; k < RU_LOOP_WAKERS_MAX; k++) {
        if (l->wakers[k].fn == NULL) {
            l->wakers[k] = (deferred){fn, self};
            (void)__atomic_and_fetch(&l->pending, ~((uint64_t)1 << k), __ATOMIC_SEQ_CST);
            *waker = k;
            return RU_OK;
        }
    }
    return RU_FAIL(err, RU_E_LIMIT, "an event loop has at most %d wakers", RU_LOOP_WAKERS_MAX);
}

void ru_loop_waker_off(ru_loop *l, uint32_t waker)
{
    RU_CHECK(waker < RU_LOOP_WAKERS_MAX);
    l->wakers[waker] = (deferred){0};
}

static void rouse(ru_loop *l)
{
    if (__atomic_exchange_n(&l->sleeping, 0, __ATOMIC_SEQ_CST) != 0) {
        uint64_t one = 1;
        (void)!write(l->event, &one, sizeof one); /* full: it is readable already */
    }
}

void ru_loop_wake(ru_loop *l, uint32_t waker)
{
    uint64_t bit = (uint64_t)1 << waker;
    if ((__atomic_fetch_or(&l->pending, bit, __ATOMIC_SEQ_CST) & bit) == 0) {
        rouse(l);
    }
}

void ru_loop_stop(ru_loop *l)
{
    __atomic_store_n(&l->stop, 1, __ATOMIC_SEQ_CST);
    rouse(l);
}

static void run_wakers(ru_loop *l)
{
    if (__atomic_load_n(&l->pending, __ATOMIC_RELAXED) == 0) {
        return;
    }
    uint64_t bits = __atomic_exchange_n(&l->pending, 0, __ATOMIC_SEQ_CST);
    while (bits != 0) {
        uint32_t k = (uint32_t)__builtin_ctzll(bits);
        bits &= bits - 1;
        if (l->wakers[k].fn != NULL) {
            ru_time now = ru_clock_now();
            l->wakers[k].fn(l->wakers[k].self, now);
            (void)called(now.ns, k);
        }
    }
}

void ru_loop_after(ru_loop *l, ru_loop_wake_fn fn, void *self)
{
    for (uint32_t k = 0; k < l->n_after; k++) {
        if (l->after[k].fn == fn && l->after[k].self == self) {
            return;
        }
    }
    RU_CHECK(l->n_after < RU_LOOP_AFTER_MAX);
    l->after[l->n_after++] = (deferred){fn, self};
}

void ru_loop_after_off(ru_loop *l, ru_loop_wake_fn fn, void *self)
{
    for (uint32_t k = 0; k < l->n_after; k++) {
        if (l->after[k].fn == fn && l->after[k].self == self) {
            memmove(&l->after[k], &l->after[k + 1], (l->n_after - k - 1) * sizeof *l->after);
            l->n_after--;
            return;
        }
    }
}

/* What was asked for until now; what that asks for comes in the next round, which does not sleep.
 */
static void run_after(ru_loop *l)
{
    for (uint32_t n = l->n_after; n > 0 && l->n_after > 0; n--) {
        deferred d = l->after[0];
        ru_loop_after_off(l, d.fn, d.self);
        ru_time now = ru_clock_now();
        d.fn(d.self, now);
        (void)called(now.ns, 0);
    }
}

/* ---- children ---- */

static void child_ended(void *self, int fd, uint32_t events, ru_time now)
{
    child *c = self;
    (void)events;
    ru_loop_fd_off(c->loop, fd);
    close(fd);
    for (child **link = &c->loop->children; *link != NULL; link = &(*link)->next) {
        if (*link == c) {
            *link = c->next;
            break;
        }
    }
    child done = *c;
    free(c);
    done.fn(done.self, done.pid, now);
}

ru_status ru_loop_child(ru_loop *l, int64_t pid, ru_loop_child_fn fn, void *self, ru_err *err)
{
    child *c = calloc(1, sizeof *c);
    int fd = c != NULL ? (int)syscall(SYS_pidfd_open, (pid_t)pid, 0) : -1;
    if (fd < 0) {
        free(c);
        return RU_FAIL(err, RU_E_MISSING, "cannot watch the child process %lld: %s", (long long)pid,
                       strerror(errno));
    }
    *c = (child){l->children, fd, pid, fn, self, l};
    ru_status st = ru_loop_fd(l, fd, EPOLLIN, child_ended, c, err);
    if (st != RU_OK) {
        close(fd);
        free(c);
        return st;
    }
    l->children = c;
    return RU_OK;
}

/* ---- rounds ---- */

void ru_loop_poll(ru_loop *l, int64_t max_ns, bool shared)
{
    RU_CHECK(max_ns >= 0);
    l->poll = (rui_poll){.max_ns = max_ns};
    l->yields = shared;
}

static bool nothing_asked(ru_loop *l)
{
    return l->n_after == 0 && __atomic_load_n(&l->pending, __ATOMIC_SEQ_CST) == 0 &&
           __atomic_load_n(&l->stop, __ATOMIC_SEQ_CST) == 0;
}

static bool timer_due(const ru_loop *l, int64_t now_ns)
{
    int64_t at_ns;
    return rui_timers_first(&l->timers, &at_ns) && at_ns <= now_ns;
}

/* Look until something is there, or until the time is over: 0 then. */
static int look(ru_loop *l, struct epoll_event *events, int64_t until_ns)
{
    for (;;) {
        int n = epoll_wait(l->epoll, events, EVENTS_PER_ROUND, 0);
        int64_t now_ns = ru_clock_now().ns;
        if (n != 0 || now_ns >= until_ns || !nothing_asked(l) || timer_due(l, now_ns)) {
            return n;
        }
        if (l->yields) {
            (void)sched_yield();
        }
    }
}

static int sleep_until_ready(ru_loop *l, struct epoll_event *events, int64_t wait_ns)
{
    arm(l);
    struct timespec limit = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
    int64_t begun_ns = rui_probed() ? ru_clock_now().ns : 0;
    __atomic_store_n(&l->sleeping, 1, __ATOMIC_SEQ_CST);
    int n = nothing_asked(l) ? epoll_pwait2(l->epoll, events, EVENTS_PER_ROUND,
                                            wait_ns < 0 ? NULL : &limit, NULL)
                             : epoll_wait(l->epoll, events, EVENTS_PER_ROUND, 0);
    __atomic_store_n(&l->sleeping, 0, __ATOMIC_SEQ_CST);
    int64_t ended_ns = begun_ns != 0 ? ru_clock_now().ns : 0;
    if (ended_ns - begun_ns >= RU_PROBE_SLEEP_NS) {
        rui_probe(RU_PROBE_SLEEP, begun_ns, ended_ns, n);
    }
    return n;
}

static int wait_ready(ru_loop *l, struct epoll_event *events, int64_t wait_ns)
{
    if (wait_ns == 0 || !nothing_asked(l) || timer_due(l, ru_clock_now().ns)) {
        return epoll_wait(l->epoll, events, EVENTS_PER_ROUND, 0);
    }
    if (l->poll.max_ns == 0) {
        return sleep_until_ready(l, events, wait_ns);
    }
    int64_t start_ns = ru_clock_now().ns, window_ns = l->poll.window_ns;
    bool whole = wait_ns > 0 && wait_ns <= window_ns;
    window_ns = whole ? wait_ns : window_ns;
    int n = window_ns > 0 ? look(l, events, start_ns + window_ns) : 0;
    bool done = n != 0 || whole || !nothing_asked(l) || timer_due(l, ru_clock_now().ns);
    n = done ? n : sleep_until_ready(l, events, wait_ns);
    rui_poll_waited(&l->poll, ru_clock_now().ns - start_ns);
    return n;
}

ru_status ru_loop_round(ru_loop *l, int64_t wait_ns, ru_err *err)
{
    struct epoll_event events[EVENTS_PER_ROUND];
    int n = wait_ready(l, events, wait_ns);
    if (n < 0 && errno != EINTR) {
        return RU_FAIL(err, RU_E_BUG, "waiting for events failed: %s", strerror(errno));
    }
    ru_time now = n > 0 ? ru_clock_now() : (ru_time){0};
    for (int k = 0; k < n; k++) {
        int fd = (int)(events[k].data.u64 & UINT32_MAX);
        watch w = l->watches[fd];
        if (w.fn != NULL && w.generation == events[k].data.u64 >> 32) {
            w.fn(w.self, fd, events[k].events, now);
            now = called(now.ns, fd);
        }
    }
    run_timers(l);
    run_wakers(l);
    run_after(l);
    return RU_OK;
}

ru_status ru_loop_run(ru_loop *l, ru_err *err)
{
    while (__atomic_exchange_n(&l->stop, 0, __ATOMIC_SEQ_CST) == 0) {
        RU_TRY(ru_loop_round(l, -1, err));
    }
    return RU_OK;
}
