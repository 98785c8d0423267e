/* Collectives in shared memory at their edges: nothing and single elements, odd counts of bf16,
 * ranges of no bytes, counters that wrap around, a member that dies in the middle of a sum. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/coll/coll_shm_impl.h"
#include "env/thread.h"
#include "test/test.h"

enum { RANKS = 5, BYTES = 90000, ODD = 21111 };

typedef struct member {
    ru_coll_shm *c;
    const char **handles;
    uint32_t n, rank, epoch, arrives;
    bool bf16, dies, wrong;
    bool pinned; /* joins and sums on one core */
    uint32_t checks;
    ru_status st;
    ru_thread thread;
} member;

static ru_status a_few_times(void *self)
{
    member *m = self;
    return m->dies && ++m->checks > 3 ? RU_E_PEER : RU_OK;
}

/* Whole numbers below 25: sums of five are exact in bf16, too. */
static uint32_t number(uint32_t rank, uint32_t i, uint32_t round)
{
    return (i * 7 + rank * 3 + round * 11) % 25;
}

static uint32_t bits_of(uint32_t x, bool bf16)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return bf16 ? u >> 16 : u;
}

static uint32_t elem_of(const member *m)
{
    return m->bf16 ? 2 : 4;
}

static uint32_t get(const member *m, uint32_t i)
{
    const uint8_t *data = ru_coll_shm_data(m->c);
    uint32_t x = 0;
    memcpy(&x, data + (size_t)i * elem_of(m), elem_of(m));
    return x;
}

static void put(const member *m, uint32_t i, uint32_t x)
{
    uint8_t *data = ru_coll_shm_data(m->c);
    memcpy(data + (size_t)i * elem_of(m), &x, elem_of(m));
}

/* n elements from an odd place on, then none, then one at the end: all summed, no other touched. */
static void sum_some(member *m, uint32_t n, uint32_t round)
{
    uint32_t elem = elem_of(m), all = BYTES / elem;
    const ru_coll_shm_range r[] = {
        {elem, 0}, {elem * 3, (int64_t)elem * n}, {0, 0}, {elem * (int64_t)(all - 1), elem}};
    for (uint32_t i = 0; i < all; i++) {
        put(m, i, bits_of(number(m->rank, i, round), m->bf16));
    }
    m->st = ru_coll_shm_all_reduce(m->c, m->bf16 ? RU_BF16 : RU_F32, r, 4);
    for (uint32_t i = 0; i < all && m->st == RU_OK; i++) {
        bool in = (i >= 3 && i < 3 + n) || i == all - 1;
        uint32_t sum = 0;
        for (uint32_t k = 0; k < m->n; k++) {
            sum += in || k == m->rank ? number(k, i, round) : 0;
        }
        m->wrong = m->wrong || get(m, i) != bits_of(sum, m->bf16);
    }
}

static void pin(void)
{
    cpu_set_t all, one;
    size_t core = 0;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(core, &all)) {
        core++;
    }
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
}

static void join(void *arg)
{
    member *m = arg;
    ru_err err;
    if (m->pinned) {
        pin();
    }
    m->st = ru_coll_shm_join(m->c, m->handles, m->n, m->rank, m->epoch, &err);
}

static void sum_all(void *arg)
{
    static const uint32_t sizes[] = {0,    1,    2,    3,    15,    16,    17,    31,    33, 8190,
                                     8191, 8192, 8193, 8207, 16381, 16382, 16383, 16385, ODD};
    member *m = arg;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(sizes) && m->st == RU_OK; k++) {
        sum_some(m, sizes[k], k);
    }
    ru_dtype t = m->bf16 ? RU_BF16 : RU_F32;
    m->st = m->st == RU_OK ? ru_coll_shm_all_reduce(m->c, t, NULL, 0) : m->st;
    m->st = m->st == RU_OK ? ru_coll_shm_barrier(m->c) : m->st;
}

static void open_all(member *m, const char **handles)
{
    memset(m, 0, RANKS * sizeof *m);
    for (uint32_t r = 0; r < RANKS; r++) {
        ru_err err;
        ru_coll_shm_options opt = {
            .data_bytes = BYTES, .block_bytes = 20000, .check = a_few_times, .self = &m[r]};
        assert_ok(ru_coll_shm_open(&opt, &m[r].c, &err), err);
        handles[r] = ru_coll_shm_handle(m[r].c);
    }
}

static void close_all(member *m)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        ru_coll_shm_close(m[r].c);
    }
}

static void run(member *m, uint32_t n, void (*what)(void *))
{
    for (uint32_t r = 0; r < n; r++) {
        ru_err err;
        assert_ok(ru_thread_start(&m[r].thread, "member", what, &m[r], &err), err);
    }
    for (uint32_t r = 0; r < n; r++) {
        ru_thread_join(&m[r].thread);
    }
}

static void group(member *m, const char **handles, uint32_t n, uint32_t epoch, bool bf16)
{
    for (uint32_t r = 0; r < n; r++) {
        m[r] = (member){.c = m[r].c,
                        .handles = handles,
                        .n = n,
                        .rank = r,
                        .epoch = epoch,
                        .bf16 = bf16,
                        .wrong = false};
    }
    run(m, n, join);
}

static void all_right(const member *m, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        assert_int_equal(m[r].st, RU_OK);
        assert_false(m[r].wrong);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    static member m[RANKS];
    const char *handles[RANKS];
    open_all(m, handles);
    for (uint32_t n = 1; n <= RANKS; n++) {
        for (uint32_t t = 0; t < 2; t++) {
            group(m, handles, n, 2 * n + t, t == 1);
            run(m, n, sum_all);
            all_right(m, n);
        }
    }
    close_all(m);
}

/* Members that may use different cores wait in the same way. */
static void test_pinned_members(void **state)
{
    (void)state;
    static member m[RANKS];
    const char *handles[RANKS];
    open_all(m, handles);
    for (uint32_t pinned = 0; pinned < RANKS; pinned++) {
        for (uint32_t r = 0; r < RANKS; r++) {
            m[r] = (member){.c = m[r].c,
                            .handles = handles,
                            .n = RANKS,
                            .rank = r,
                            .epoch = 1 + pinned,
                            .pinned = r == pinned};
        }
        run(m, RANKS, join);
        for (uint32_t r = 1; r < RANKS; r++) {
            assert_int_equal(m[r].c->crowded, m[0].c->crowded);
        }
        run(m, RANKS, sum_all);
        all_right(m, RANKS);
    }
    close_all(m);
}

/* After four billion steps the counters begin again at zero. */
static void test_counters_wrap(void **state)
{
    (void)state;
    static member m[RANKS];
    const char *handles[RANKS];
    open_all(m, handles);
    for (uint32_t before = 0; before < 12; before++) {
        uint32_t n = 2 + before % 4;
        group(m, handles, n, 1 + before, false);
        for (uint32_t r = 0; r < n; r++) {
            m[r].c->tick = UINT32_MAX - before;
            m[r].c->area[r]->tick.value = m[r].c->area[r]->go.value = UINT32_MAX - before;
        }
        run(m, n, sum_all);
        all_right(m, n);
    }
    close_all(m);
}

/* -- a member dies -------------------------------------------------------------------------------
 */

static void sum_or_die(void *arg)
{
    member *m = arg;
    if (m->arrives == UINT32_MAX) {
        sum_some(m, m->bf16 ? ODD : 100, 0);
        return;
    }
    for (uint32_t k = 0; k < m->arrives; k++) {
        rui_shm_arrive(m->c);
    }
}

/* One of three stops after any number of its steps, in a sum by blocks and in a small one: the
 * others' calls end with what `check` says, and the two of them go on in another group. */
static void test_dies_at_any_step(void **state)
{
    (void)state;
    static member m[RANKS];
    const char *handles[RANKS];
    open_all(m, handles);
    uint32_t epoch = 0, small = 1, large = 2 + (ODD * 2 + 2 + 20032 - 1) / 20032;
    for (uint32_t k = 0; k < small + large; k++) {
        group(m, handles, 3, ++epoch, k >= small);
        for (uint32_t r = 0; r < 3; r++) {
            m[r].dies = true;
            m[r].arrives = r == 2 ? (k < small ? k : k - small) : UINT32_MAX;
        }
        run(m, 3, sum_or_die);
        assert_int_equal(m[0].st, RU_E_PEER);
        assert_int_equal(m[1].st, RU_E_PEER);
        group(m, handles, 2, ++epoch, k % 2 == 0);
        run(m, 2, sum_all);
        all_right(m, 2);
    }
    close_all(m);
}

/* The same with a process that is killed: what it had shared stays readable. */
static ru_status while_it_lives(void *self)
{
    const pid_t *child = self;
    return waitpid(*child, NULL, WNOHANG) == 0 ? RU_OK : RU_E_PEER;
}

static void tell(int fd, const char *handle)
{
    char text[RU_SHM_HANDLE_MAX] = "";
    strncpy(text, handle, sizeof text - 1);
    RU_CHECK(write(fd, text, sizeof text) == (ssize_t)sizeof text);
}

static void hear(int fd, char text[RU_SHM_HANDLE_MAX])
{
    RU_CHECK(read(fd, text, RU_SHM_HANDLE_MAX) == RU_SHM_HANDLE_MAX);
}

_Noreturn static void child_main(int from, int to, uint32_t arrives)
{
    char theirs[RU_SHM_HANDLE_MAX];
    ru_coll_shm_options opt = {.data_bytes = BYTES, .block_bytes = 20000};
    member m = {.n = 2, .rank = 1, .epoch = 1};
    ru_err err;
    if (ru_coll_shm_open(&opt, &m.c, &err) == RU_OK) {
        tell(to, ru_coll_shm_handle(m.c));
        hear(from, theirs);
        const char *handles[] = {theirs, ru_coll_shm_handle(m.c)};
        m.handles = handles;
        join(&m);
        for (uint32_t round = 0; round < 3 && m.st == RU_OK; round++) {
            sum_some(&m, ODD, round);
        }
        for (uint32_t k = 0; k < arrives; k++) {
            rui_shm_arrive(m.c);
        }
        if (m.st == RU_OK && !m.wrong) {
            raise(SIGKILL);
        }
    }
    _exit(1);
}

static void test_a_killed_process(void **state)
{
    (void)state;
    for (uint32_t arrives = 0; arrives < 3; arrives++) {
        int down[2], up[2];
        assert_true(pipe(down) == 0 && pipe(up) == 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            child_main(down[0], up[1], arrives);
        }
        ru_coll_shm_options opt = {
            .data_bytes = BYTES, .block_bytes = 20000, .check = while_it_lives, .self = &child};
        member m = {.n = 2, .epoch = 1};
        char theirs[RU_SHM_HANDLE_MAX];
        ru_err err;
        assert_ok(ru_coll_shm_open(&opt, &m.c, &err), err);
        hear(up[0], theirs);
        tell(down[1], ru_coll_shm_handle(m.c));
        const char *handles[] = {ru_coll_shm_handle(m.c), theirs};
        m.handles = handles;
        join(&m);
        uint32_t rounds = 0;
        for (; m.st == RU_OK && rounds < 10; rounds++) {
            sum_some(&m, ODD, rounds);
        }
        assert_int_equal(rounds, 4);
        assert_int_equal(m.st, RU_E_PEER);
        assert_false(m.wrong);
        ru_coll_shm_close(m.c);
        for (uint32_t k = 0; k < 2; k++) {
            close(down[k]);
            close(up[k]);
        }
    }
}

RU_TESTS(comm_coll_shm_edge, cmocka_unit_test(test_pinned_members), cmocka_unit_test(test_sizes),
         cmocka_unit_test(test_counters_wrap), cmocka_unit_test(test_dies_at_any_step),
         cmocka_unit_test(test_a_killed_process))
