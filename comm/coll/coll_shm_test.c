/* Collectives in shared memory: members are threads of this process that map each other's segments
 * by their handles. */
#include "comm/coll/coll_shm.h"
#include "test/test.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "env/thread.h"

enum { RANKS = 5, FLOATS = 300000, ROUNDS = 12 };

typedef struct member {
    ru_coll_shm *c;
    const char **handles;
    uint32_t n, rank, epoch, checks;
    ru_thread thread;
    ru_status st;
    bool wrong, quits; /* quits: stays away */
    uint64_t seed;
} member;

static ru_status still_there(void *self)
{
    member *m = self;
    return m->quits && ++m->checks > 3 ? RU_E_PEER : RU_OK;
}

/* What rank r holds in element i of round k. */
static float value(uint32_t r, uint32_t i, uint32_t k)
{
    return (float)((int32_t)((i * 7 + r * 13 + k * 29) % 2001) - 1000) * 0.37f;
}

static float sum_of(const member *m, uint32_t i, uint32_t k)
{
    float x = value(0, i, k);
    for (uint32_t r = 1; r < m->n; r++) {
        x += value(r, i, k);
    }
    return x;
}

/* Two ranges with a hole between them, which nobody may touch. */
static uint32_t draw_ranges(ru_rng *rng, uint32_t k, ru_coll_shm_range r[2])
{
    uint32_t n = k % 3 == 0 ? 1 + ru_rng_below(rng, 2000) : 1 + ru_rng_below(rng, FLOATS / 2 - 10);
    r[0] = (ru_coll_shm_range){4 * (int64_t)ru_rng_below(rng, 8), 4 * (int64_t)n};
    r[1] = (ru_coll_shm_range){4 * (int64_t)(FLOATS / 2), 4 * (int64_t)ru_rng_below(rng, n)};
    return 2;
}

static void fill(const member *m, uint32_t k)
{
    float *data = ru_coll_shm_data(m->c);
    for (uint32_t i = 0; i < FLOATS; i++) {
        data[i] = value(m->rank, i, k);
    }
}

static bool covers(const ru_coll_shm_range *r, uint32_t i, uint32_t *at)
{
    int64_t byte = 4 * (int64_t)i;
    *at = (uint32_t)((byte - r[0].offset) / 4);
    if (byte >= r[0].offset && byte < r[0].offset + r[0].size_bytes) {
        return true;
    }
    *at = (uint32_t)((r[0].size_bytes + byte - r[1].offset) / 4);
    return byte >= r[1].offset && byte < r[1].offset + r[1].size_bytes;
}

static void check(member *m, const ru_coll_shm_range *r, uint32_t k)
{
    const float *data = ru_coll_shm_data(m->c);
    for (uint32_t i = 0; i < FLOATS; i++) {
        uint32_t at;
        float want = covers(r, i, &at) ? sum_of(m, i, k) : value(m->rank, i, k);
        m->wrong = m->wrong || data[i] != want;
    }
}

static ru_status one_round(member *m, ru_rng *rng, uint32_t k)
{
    ru_coll_shm_range r[2];
    draw_ranges(rng, k, r);
    fill(m, k);
    ru_status st = ru_coll_shm_all_reduce(m->c, RU_F32, r, 2);
    if (st == RU_OK) {
        check(m, r, k);
    }
    return st;
}

static void run_member(void *arg)
{
    member *m = arg;
    ru_err err;
    ru_rng rng = ru_rng_from(m->seed, m->n);
    m->st = ru_coll_shm_join(m->c, m->handles, m->n, m->rank, m->epoch, &err);
    for (uint32_t k = 0; k < ROUNDS && m->st == RU_OK; k++) {
        if (m->quits && m->rank == 1 && k == 2) {
            return;
        }
        m->st = one_round(m, &rng, k);
    }
}

static void open_members(member *m, const char **handles, int64_t block)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        ru_err err;
        ru_coll_shm_options opt = {
            .data_bytes = 4 * FLOATS, .block_bytes = block, .check = still_there, .self = &m[r]};
        assert_ok(ru_coll_shm_open(&opt, &m[r].c, &err), err);
        handles[r] = ru_coll_shm_handle(m[r].c);
    }
}

static void run_all(member *m, const char **handles, uint32_t n, uint32_t epoch, bool quits)
{
    for (uint32_t r = 0; r < n; r++) {
        ru_err err;
        m[r] = (member){.c = m[r].c,
                        .handles = handles,
                        .n = n,
                        .rank = r,
                        .epoch = epoch,
                        .seed = ru_test_seed(),
                        .quits = quits};
        assert_ok(ru_thread_start(&m[r].thread, "member", run_member, &m[r], &err), err);
    }
    for (uint32_t r = 0; r < n; r++) {
        ru_thread_join(&m[r].thread);
    }
}

static void test_sums_of_all_sizes(void **state)
{
    (void)state;
    static member m[RANKS];
    const char *handles[RANKS];
    memset(m, 0, sizeof m);
    open_members(m, handles, 70000);
    uint32_t epoch = 0;
    for (uint32_t n = 1; n <= RANKS; n++) {
        run_all(m, handles, n, ++epoch, false);
        for (uint32_t r = 0; r < n; r++) {
            assert_int_equal(m[r].st, RU_OK);
            assert_false(m[r].wrong);
        }
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        ru_coll_shm_close(m[r].c);
    }
}

/* A member that stays away ends the call of the others; the next group works. */
static void test_a_dead_member_ends_the_wait(void **state)
{
    (void)state;
    static member m[RANKS];
    const char *handles[RANKS];
    memset(m, 0, sizeof m);
    open_members(m, handles, 0);
    run_all(m, handles, 3, 1, true);
    assert_int_equal(m[0].st, RU_E_PEER);
    assert_int_equal(m[2].st, RU_E_PEER);
    run_all(m, handles, 2, 2, false);
    assert_true(m[0].st == RU_OK && m[1].st == RU_OK && !m[0].wrong && !m[1].wrong);
    for (uint32_t r = 0; r < RANKS; r++) {
        ru_coll_shm_close(m[r].c);
    }
}

static void test_bad_calls(void **state)
{
    (void)state;
    ru_err err;
    ru_coll_shm *c;
    ru_coll_shm_options opt = {.data_bytes = 4096};
    assert_ok(ru_coll_shm_open(&opt, &c, &err), err);
    ru_coll_shm_range r = {0, 4096};
    assert_int_equal(ru_coll_shm_all_reduce(c, RU_F32, &r, 1), RU_E_ARG); /* not joined */
    const char *handles[] = {ru_coll_shm_handle(c)};
    assert_int_equal(ru_coll_shm_join(c, handles, 1, 1, 1, &err), RU_E_ARG);
    assert_ok(ru_coll_shm_join(c, handles, 1, 0, 1, &err), err);
    assert_int_equal(ru_coll_shm_all_reduce(c, RU_F32, &r, 1), RU_OK);
    static const ru_coll_shm_range bad[] = {{0, 4100}, {-4, 8}, {2, 4}, {0, 6}, {4096, 4}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(ru_coll_shm_all_reduce(c, RU_F32, &bad[k], 1), RU_E_ARG);
    }
    assert_int_equal(ru_coll_shm_all_reduce(c, RU_F64, &r, 1), RU_E_ARG);
    ru_coll_shm_close(c);
    opt.data_bytes = -1;
    assert_int_equal(ru_coll_shm_open(&opt, &c, &err), RU_E_ARG);
    ru_coll_shm_close(NULL);
}

RU_TESTS(comm_coll_shm, cmocka_unit_test(test_sums_of_all_sizes),
         cmocka_unit_test(test_a_dead_member_ends_the_wait), cmocka_unit_test(test_bad_calls))
