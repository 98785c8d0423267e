/* Two workers write sets of their states and are killed at any write: the newest complete set has
 * the values of one and the same step, and never an older step than the last that both wrote. */
#include "train/pipe/sets.h"

#include <string.h>

#include "base/rng.h"
#include "env/file/memfile.h"
#include "test/test.h"

enum { STATES = 5, BYTES = 96, SEEDS = 40, STEPS = 12 };

static const char *const names[STATES] = {"fc2.weight", "fc1.weight", "fc1.bias", "a", "fc2.bias"};

static void list(ru_sets_state at[STATES], const uint32_t order[STATES])
{
    for (uint32_t k = 0; k < STATES; k++) {
        at[k] = (ru_sets_state){.name = names[order[k]], .bytes = BYTES - 8 * order[k]};
    }
}

static uint8_t value(uint32_t state, int64_t step, int64_t at)
{
    return (uint8_t)(31 * state + 7 * (uint32_t)step + (uint32_t)at);
}

/* A worker with the states k for which k % 2 == own: writes the next set in single calls. */
typedef struct worker {
    ru_sets *sets;
    uint32_t own, state, piece; /* piece 0: torn, 1 and 2: halves, 3: whole */
    int64_t step, wrote;        /* wrote: the last whole set */
} worker;

static void one_call(worker *w, const uint32_t order[STATES])
{
    ru_err err = {0};
    uint8_t bytes[BYTES];
    uint32_t of = order[w->state];
    int64_t size = BYTES - 8 * of, half = size / 2;
    for (int64_t i = 0; i < size; i++) {
        bytes[i] = value(of, w->step, i);
    }
    ru_status st =
        w->piece == 0   ? ru_sets_torn(w->sets, w->state, &err)
        : w->piece == 1 ? ru_sets_write(w->sets, w->state, 0, half, bytes, &err)
        : w->piece == 2
            ? ru_sets_write(w->sets, w->state, half, size - half, bytes + half, &err)
            : ru_sets_whole(w->sets, w->state,
                            (ru_sets_at){.step = w->step, .samples = 10 * w->step}, &err);
    assert_ok(st, err);
    w->piece = (w->piece + 1) % 4;
    if (w->piece == 0) {
        do {
            w->state++;
        } while (w->state < STATES && w->state % 2 != w->own);
    }
    if (w->state >= STATES) {
        w->wrote = w->step;
    }
}

static void begin(worker *w, int64_t step)
{
    ru_sets_begin(w->sets);
    w->step = step;
    w->state = w->own;
    w->piece = 0;
}

/* What a process that starts again, with another cut, finds. */
static void check(const char *path, int fd, int64_t both, int64_t begun)
{
    static const uint32_t order[STATES] = {4, 2, 0, 1, 3};
    ru_sets_state at[STATES];
    ru_arena arena;
    ru_sets *s;
    ru_err err = {0};
    uint8_t bytes[BYTES];
    ru_arena_init(&arena, 0);
    list(at, order);
    assert_ok(ru_sets_open(path, at, STATES, &arena, &s, &err), err);
    ru_sets_at newest = ru_sets_newest(s);
    assert_int_equal(newest.step, ru_sets_step(fd));
    assert_int_equal(newest.samples, 10 * newest.step);
    assert_true(newest.step >= both && newest.step <= begun);
    for (uint32_t k = 0; k < STATES && newest.step > 0; k++) {
        int64_t size = at[k].bytes;
        assert_ok(ru_sets_read(s, at[k].name, 0, size, bytes, &err), err);
        for (int64_t i = 0; i < size; i++) {
            assert_int_equal(bytes[i], value(order[k], newest.step, i));
        }
        assert_int_equal(ru_sets_read(s, at[k].name, 8, size, bytes, &err), RU_E_DATA);
    }
    assert_int_equal(ru_sets_read(s, "fc9", 0, 1, bytes, &err), RU_E_DATA);
    ru_sets_close(s);
    ru_arena_fini(&arena);
}

static void whoever_is_killed_leaves_a_whole_set(void **state)
{
    (void)state;
    static const uint32_t order[STATES] = {0, 1, 2, 3, 4};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        ru_rng rng = ru_rng_from(ru_test_seed() + seed, ru_rng_label("sets"));
        ru_sets_state at[STATES];
        worker w[2] = {{.own = 0}, {.own = 1}};
        ru_arena arena;
        ru_err err = {0};
        char path[RU_MEMFILE_PATH];
        int fd;
        ru_arena_init(&arena, 0);
        list(at, order);
        assert_ok(ru_memfile_share(&fd, path, &err), err);
        assert_int_equal(ru_sets_step(fd), 0);
        for (uint32_t k = 0; k < 2; k++) {
            assert_ok(ru_sets_open(path, at, STATES, &arena, &w[k].sets, &err), err);
        }
        assert_ok(ru_sets_head(w[1].sets, &err), err);
        for (int64_t step = 1; step <= STEPS; step++) {
            begin(&w[0], step);
            begin(&w[1], step);
            while (w[0].wrote < step || w[1].wrote < step) {
                uint32_t k = (uint32_t)ru_rng_below(&rng, 2);
                k = w[k].wrote < step ? k : 1 - k;
                one_call(&w[k], order);
                int64_t both = w[0].wrote < w[1].wrote ? w[0].wrote : w[1].wrote;
                check(path, fd, both, step);
            }
        }
        ru_sets_close(w[0].sets);
        ru_sets_close(w[1].sets);
        ru_memfile_close(fd);
        ru_arena_fini(&arena);
    }
}

/* A set that one life began and another one completes is none: the same step may have other bits in
 * each. */
static void a_set_is_of_one_life(void **state)
{
    (void)state;
    static const uint32_t order[STATES] = {0, 1, 2, 3, 4};
    ru_sets_state at[STATES];
    ru_arena arena;
    ru_err err = {0};
    char path[RU_MEMFILE_PATH];
    int fd;
    ru_arena_init(&arena, 0);
    list(at, order);
    assert_ok(ru_memfile_share(&fd, path, &err), err);
    for (uint32_t life = 0; life < 2; life++) { /* after step 2 only half of the states each */
        ru_sets *s;
        assert_ok(ru_sets_open(path, at, STATES, &arena, &s, &err), err);
        assert_ok(ru_sets_head(s, &err), err);
        for (int64_t step = 1 + life; step <= 2; step++) {
            ru_sets_begin(s);
            for (uint32_t k = 0; k < STATES; k++) {
                bool writes = step == 1 || k % 2 == life;
                assert_ok(writes ? ru_sets_whole(s, k, (ru_sets_at){.step = step}, &err) : RU_OK,
                          err);
            }
        }
        assert_int_equal(ru_sets_step(fd), 1);
        ru_sets_close(s);
    }
    ru_memfile_close(fd);
    ru_arena_fini(&arena);
}

/* Sets of another model do not count, and give way to those of this one. */
static void another_model_has_no_sets(void **state)
{
    (void)state;
    static const uint32_t order[STATES] = {0, 1, 2, 3, 4};
    ru_sets_state at[STATES];
    ru_arena arena;
    ru_err err = {0};
    ru_sets *a, *b;
    char path[RU_MEMFILE_PATH];
    int fd;
    ru_arena_init(&arena, 0);
    list(at, order);
    assert_ok(ru_memfile_share(&fd, path, &err), err);
    assert_ok(ru_sets_open(path, at, STATES, &arena, &a, &err), err);
    assert_ok(ru_sets_head(a, &err), err);
    ru_sets_begin(a);
    for (uint32_t k = 0; k < STATES; k++) {
        assert_ok(ru_sets_whole(a, k, (ru_sets_at){.step = 3}, &err), err);
    }
    assert_int_equal(ru_sets_step(fd), 3);
    at[2].bytes += 8;
    assert_ok(ru_sets_open(path, at, STATES, &arena, &b, &err), err);
    assert_int_equal(ru_sets_newest(b).step, 0);
    assert_ok(ru_sets_head(b, &err), err);
    assert_int_equal(ru_sets_step(fd), 0);
    ru_sets_close(a);
    ru_sets_close(b);
    ru_memfile_close(fd);
    assert_int_not_equal(ru_memfile_reach(path, &fd, &err), RU_OK);
    ru_arena_fini(&arena);
}

RU_TESTS(train_sets, cmocka_unit_test(whoever_is_killed_leaves_a_whole_set),
         cmocka_unit_test(a_set_is_of_one_life), cmocka_unit_test(another_model_has_no_sets))
