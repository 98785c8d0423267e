/* Vectors, maps, heaps and rings, each against a plain model. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "base/map.h"
#include "base/ring.h"
#include "base/rng.h"
#include "base/vec.h"
#include "test/test.h"

RU_VEC(int_vec, int32_t)

static void test_vec_grows(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    int_vec v = {0};
    for (int32_t i = 0; i < 1000; i++) {
        int32_t *p = int_vec_push(&v, &a);
        assert_non_null(p);
        assert_int_equal(*p, 0);
        *p = i;
    }
    int32_t more[] = {7, 8, 9};
    assert_true(int_vec_append(&v, &a, more, 3));
    assert_true(int_vec_append(&v, &a, NULL, 0));
    for (int32_t i = 0; i < 1000; i++) {
        assert_int_equal(v.at[i], i);
    }
    assert_int_equal(v.at[1002], 9);
    ru_arena_fini(&a);
    ru_arena_init(&a, 100);
    int_vec w = {0};
    while (int_vec_push(&w, &a) != NULL) {
    }
    assert_int_equal(w.n, w.cap); /* the refused push changed nothing */
    ru_arena_fini(&a);
}

static void check_map(ru_map *m)
{
    char key[32];
    bool fresh;
    for (uint64_t i = 0; i < 2000; i++) {
        snprintf(key, sizeof key, "key %llu", (unsigned long long)i);
        uint64_t *v = ru_map_put_c(m, key, &fresh);
        assert_true(v != NULL && fresh && *v == 0);
        *v = i;
    }
    for (uint64_t i = 0; i < 2000; i += 2) {
        snprintf(key, sizeof key, "key %llu", (unsigned long long)i);
        assert_true(ru_map_remove(m, ru_str_c(key)));
        assert_false(ru_map_remove(m, ru_str_c(key)));
        assert_null(ru_map_get_c(m, key));
    }
    /* Back in: at the end of the order. */
    assert_non_null(ru_map_put_c(m, "key 0", &fresh));
    assert_true(fresh);
    uint64_t want = 1;
    uint32_t n = 0;
    const ru_map_entry *last = NULL;
    for (const ru_map_entry *e = NULL; (e = ru_map_next(m, e)) != NULL; n++) {
        if (n < 1000) {
            assert_true(e->value == want);
            want += 2;
        }
        last = e;
    }
    assert_int_equal(n, 1001);
    assert_int_equal(m->count, 1001);
    assert_string_equal(last->key, "key 0");
}

static void test_map_keeps_order(void **state)
{
    (void)state;
    ru_map m;
    ru_map_init(&m, NULL, 0);
    check_map(&m);
    ru_map_fini(&m);
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_map_init(&m, &a, 0);
    check_map(&m);
    ru_map_fini(&m);
    ru_arena_fini(&a);
}

static void test_map_bounds_and_odd_keys(void **state)
{
    (void)state;
    ru_map m;
    ru_map_init(&m, NULL, 3);
    assert_null(ru_map_get_c(&m, "none"));
    assert_non_null(ru_map_put(&m, (ru_str){0}, NULL));
    assert_non_null(ru_map_put(&m, ru_str_n("\0", 1), NULL));
    *ru_map_put_u64(&m, 99, NULL) = 5;
    assert_null(ru_map_put_c(&m, "fourth", NULL));
    assert_int_equal(*ru_map_get_u64(&m, 99), 5);
    assert_true(ru_map_remove(&m, (ru_str){0}));
    for (int i = 0; i < 1000; i++) { /* removed entries are used again */
        assert_non_null(ru_map_put_c(&m, "x", NULL));
        assert_true(ru_map_remove(&m, ru_str_c("x")));
    }
    assert_true(m.cap <= 16);
    ru_map_fini(&m);
    ru_arena a;
    for (int64_t size = 0; size < 2000; size += 40) { /* every place where memory may run out */
        uint8_t buf[2000];
        ru_arena_init_fixed(&a, buf, size);
        ru_map_init(&m, &a, 0);
        uint32_t put = 0;
        for (uint64_t i = 0; i < 30; i++) {
            put += ru_map_put_u64(&m, i, NULL) != NULL;
        }
        assert_int_equal(m.count, put);
        for (uint64_t i = 0, found = 0; i < 30; i++) {
            found += ru_map_get_u64(&m, i) != NULL;
            assert_true(i < 29 || found == put);
        }
    }
}

static void test_heap_sorts_stably(void **state)
{
    (void)state;
    enum { N = 500 };
    static ru_heap_item items[N];
    ru_heap h;
    ru_heap_init(&h, items, N);
    ru_rng r = ru_rng_from(ru_test_seed(), 4);
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(ru_heap_push(&h, (int64_t)ru_rng_below(&r, 20) - 10, i), RU_OK);
    }
    assert_int_equal(ru_heap_push(&h, 0, 0), RU_E_LIMIT);
    ru_heap_item last = {.key = INT64_MIN}, item = {0};
    for (int i = 0; i < N; i++) {
        assert_true(ru_heap_pop(&h, &item));
        assert_true(last.key < item.key || (last.key == item.key && last.value < item.value) ||
                    i == 0);
        last = item;
    }
    assert_false(ru_heap_pop(&h, &item));
    assert_null(ru_heap_peek(&h));
}

enum { RING_N = 20000 };

static bool push(ru_spsc *r, uint64_t v)
{
    uint64_t *at = ru_spsc_place(r);
    if (at == NULL) {
        return false;
    }
    *at = v;
    ru_spsc_put(r);
    return true;
}

static void *push_all(void *arg)
{
    for (uint64_t i = 0; i < RING_N;) {
        i += push(arg, i);
    }
    return NULL;
}

static void test_spsc_between_threads(void **state)
{
    (void)state;
    uint64_t slots[16];
    ru_spsc ring;
    ru_spsc_init(&ring, slots, 16, sizeof(uint64_t));
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, push_all, &ring), 0);
    uint64_t want = 0;
    while (want < RING_N) {
        uint32_t n;
        const uint64_t *p = ru_spsc_peek(&ring, 7, &n);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(p[i] == want++);
        }
        ru_spsc_drop(&ring, n);
    }
    pthread_join(t, NULL);
    uint64_t v;
    assert_false(ru_spsc_pop(&ring, &v));
    for (uint64_t i = 0; i < 16; i++) {
        assert_true(push(&ring, i));
    }
    assert_false(push(&ring, 0));
    assert_true(ru_spsc_pop(&ring, &v) && v == 0);
}

RU_TESTS(base_containers, cmocka_unit_test(test_vec_grows), cmocka_unit_test(test_map_keeps_order),
         cmocka_unit_test(test_map_bounds_and_odd_keys), cmocka_unit_test(test_heap_sorts_stably),
         cmocka_unit_test(test_spsc_between_threads))
