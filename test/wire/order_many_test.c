/* The judge of chunks that left, on records by hand and against a slow count. */
#include "base/rng.h"
#include "bench/wire/order.h"
#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"

#include <string.h>

enum { GRANTED, LEFT, TENSORS = 10 };

typedef struct record {
    uint32_t item;
    uint16_t rank;
    uint8_t host, what;
    int64_t bytes;
} record;

static rui_order_judged judged(ru_scratch *s, const record *r, uint32_t n, uint32_t n_items)
{
    rui_order_judged j = {0};
    const char *path = ru_arena_printf(&s->arena, "%s/records", s->root);
    assert_ok(ru_file_replace(path, (const char *)r, n * (int64_t)sizeof *r, &s->err), s->err);
    assert_ok(rui_order_judge(path, n_items, TENSORS, &s->arena, &j, &s->err), s->err);
    return j;
}

static void an_inversion_is_found(void **state)
{
    record r[] = {{3, 0, 2, GRANTED, 100}, {5, 0, 2, GRANTED, 100}, {3, 3, 2, LEFT, 60},
                  {5, 5, 2, LEFT, 100},    {3, 3, 2, LEFT, 40},     {1, 0, 3, GRANTED, 10},
                  {1, 1, 3, LEFT, 10}};
    rui_order_judged j = judged(*state, r, 7, 20);
    assert_int_equal(j.chunks, 4);
    assert_int_equal(j.inversions, 1); /* 5 went while 3 had 40 bytes of credit */
    assert_int_equal(j.wrong, 0);
    r[3].host = 4; /* another worker: it has no credit there, and passes nobody */
    j = judged(*state, r, 7, 20);
    assert_int_equal(j.inversions, 0);
    assert_int_equal(j.wrong, 1);
    r[3].host = 2;
    r[4] = r[3];
    r[3] = (record){3, 3, 2, LEFT, 40};
    j = judged(*state, r, 7, 20);
    assert_int_equal(j.inversions + j.wrong, 0);
    r[2].rank = 4;   /* not the one that was asked for */
    r[6].bytes = 11; /* more than was granted */
    r[5].item = 20;  /* nobody asked for so many: then its grant counts for nothing either */
    assert_int_equal(judged(*state, r, 7, 20).wrong, 3);
}

/* Records at random, and a judge that looks at all items each time. */
static void a_slow_count_agrees(void **state)
{
    enum { N = 4000, ITEMS = 60, HOSTS = 3 };
    static record r[N];
    int64_t limit[HOSTS][ITEMS] = {0}, left[HOSTS][ITEMS] = {0};
    uint64_t inversions = 0, chunks = 0, wrong = 0;
    ru_rng rng = ru_rng_from(ru_test_seed(), 0);
    for (uint32_t k = 0; k < N; k++) {
        uint32_t i = ru_rng_below(&rng, ITEMS), h = ru_rng_below(&rng, HOSTS);
        bool leaves = ru_rng_below(&rng, 2) > 0;
        r[k] = (record){i, (uint16_t)(i % TENSORS), (uint8_t)h, leaves ? LEFT : GRANTED, 0};
        if (!leaves) {
            r[k].bytes = limit[h][i] + ru_rng_below(&rng, 50);
            limit[h][i] = r[k].bytes;
            continue;
        }
        r[k].bytes = 1 + ru_rng_below(&rng, 50);
        left[h][i] += r[k].bytes;
        chunks++;
        wrong += left[h][i] > limit[h][i] ? 1 : 0;
        bool passes = false;
        for (uint32_t x = 0; x < ITEMS; x++) {
            passes = passes || (x % TENSORS < i % TENSORS && left[h][x] < limit[h][x]);
        }
        inversions += passes ? 1 : 0;
    }
    rui_order_judged j = judged(*state, r, N, ITEMS);
    assert_true(inversions > 0 && wrong > 0);
    assert_int_equal(j.chunks, chunks);
    assert_int_equal(j.inversions, inversions);
    assert_int_equal(j.wrong, wrong);
}

RU_TESTS(test_order_many,
         cmocka_unit_test_setup_teardown(an_inversion_is_found, ru_scratch_open, ru_scratch_close),
         cmocka_unit_test_setup_teardown(a_slow_count_agrees, ru_scratch_open, ru_scratch_close))
