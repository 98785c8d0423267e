/* The k-th allocation fails, for every k until none does: an error comes back, nothing leaks (the
 * sanitizer build looks), and what stood before still stands. And the seal: allocation while sealed
 * is a crash. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/conf.h"
#include "base/map.h"
#include "test/test.h"

/* Each fills its thing with the allocations that are left; true when it got to the end. */
static bool fill_arena(void)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    bool ok = true;
    for (int i = 0; i < 40 && ok; i++) {
        ru_arena_mark m = ru_arena_mark_get(&a);
        char *p = ru_arena_alloc(&a, 1 << (i % 20), 64);
        ok = p != NULL;
        if (ok) {
            memset(p, i, (size_t)1 << (i % 20));
        }
        if (i % 3 == 0) {
            ru_arena_rewind(&a, m);
        }
    }
    ru_arena_fini(&a);
    return ok;
}

static bool fill_map(void)
{
    ru_map m;
    ru_map_init(&m, NULL, 0);
    bool ok = true;
    uint32_t put = 0;
    for (uint64_t i = 0; i < 100 && ok; i++) {
        uint64_t *v = ru_map_put_u64(&m, i * i, NULL);
        ok = v != NULL;
        if (ok) {
            *v = i;
            put++;
        }
    }
    assert_int_equal(m.count, put);
    for (uint64_t i = 0; i < put; i++) {
        const uint64_t *v = ru_map_get_u64(&m, i * i);
        assert_true(v != NULL && *v == i);
    }
    ru_map_fini(&m);
    return ok;
}

static bool grow_text(void)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_text t = ru_text_arena(&a);
    for (int i = 0; i < 20000; i++) {
        ru_text_putf(&t, "%d ", i);
    }
    bool ok = !t.cut;
    assert_int_equal(t.n, strlen(t.p));
    ru_arena_fini(&a);
    return ok;
}

typedef struct small {
    int64_t count;
    ru_conf_texts names;
} small;

static bool read_conf(void)
{
    static const ru_conf_field fields[] = {
        {.name = "count",
         .type = RU_CONF_I64,
         .offset = offsetof(small, count),
         .def = "1",
         .help = "number"},
        {.name = "names",
         .type = RU_CONF_TEXT_LIST,
         .offset = offsetof(small, names),
         .def = "[]",
         .help = "names"},
    };
    static const ru_conf_table table = {
        .name = "small", .fields = fields, .n = 2, .size_bytes = sizeof(small)};
    char text[20000];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_put(&t, "count: 3\nnames: [a");
    for (int i = 0; i < 2000; i++) {
        ru_text_putf(&t, ", n%d", i);
    }
    ru_text_put(&t, "]\n");
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_conf *c;
    ru_err err;
    small out = {.count = -7};
    ru_status st = ru_conf_new(&table, &a, &c, &err);
    st = st == RU_OK ? ru_conf_add_yaml(c, "x.yaml", text, t.n, &err) : st;
    st = st == RU_OK ? ru_conf_apply(c, &out, &err) : st;
    assert_true(st == RU_OK || st == RU_E_LIMIT);
    assert_true(st == RU_OK ? out.count == 3 && out.names.n == 2001 : out.count == -7);
    ru_arena_fini(&a);
    return st == RU_OK;
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    bool (*const things[])(void) = {fill_arena, fill_map, grow_text, read_conf};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(things); i++) {
        bool done = false;
        int64_t k = 0;
        for (; !done && k < 1000; k++) {
            ru_test_alloc_fail(k);
            done = things[i]();
            ru_test_alloc_fail(-1);
        }
        assert_true(done);
        assert_true(k > 1); /* the sweep did meet failing allocations */
    }
}

static void allocate_sealed(void *self)
{
    (void)self;
    ru_alloc_seal();
    void *volatile p = malloc(1); /* volatile: a compiler may drop an allocation nobody uses */
    (void)p;
}

static void test_sealed_allocation_crashes(void **state)
{
    (void)state;
    assert_true(ru_test_crashes(allocate_sealed, NULL));
    ru_alloc_seal();
    ru_alloc_seal();
    ru_alloc_unseal();
    ru_alloc_unseal();
    void *p = malloc(1);
    assert_non_null(p);
    free(p);
}

RU_TESTS(base_fail, cmocka_unit_test(test_every_allocation_may_fail),
         cmocka_unit_test(test_sealed_allocation_crashes))
