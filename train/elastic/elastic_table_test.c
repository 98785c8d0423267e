/* The table of sums on the wire: what was written is read, what does not fit is refused. */
#include <string.h>

#include "test/test.h"
#include "train/elastic/elastic_impl.h"

enum { TENSORS = 4, BYTES_MAX = 256 };

static const int64_t tensor_bytes[TENSORS] = {400, 8, 1 << 20, 12};

typedef struct fixture {
    ru_arena arena;
    ru_elastic e;
    uint8_t buf[BYTES_MAX];
} fixture;

static void open_fixture(fixture *f)
{
    *f = (fixture){.e = {.opt = {.tensor_bytes = tensor_bytes, .n_tensors = TENSORS}}};
    ru_arena_init(&f->arena, 0);
}

static ru_status reads(fixture *f, int64_t size_bytes, ru_err *err)
{
    ru_wire_in w = ru_wire_in_from(f->buf, size_bytes);
    ru_status st = rui_el_table_read(&f->e, &w, &f->arena, err);
    assert_true(st != RU_OK || ru_wire_left(&w) == 0);
    return st;
}

/* Whole gradients, several in one, and one in three cuts: what is read is what was written. */
static void a_table_comes_over_whole(void **state)
{
    (void)state;
    static const ru_elastic_part parts[] = {{0, 2, 0, 408, 0},
                                            {2, 1, 0, 400000, 0},
                                            {2, 1, 400000, 600000, 0},
                                            {2, 1, 1000000, 48576, 0},
                                            {3, 1, 0, 12, 0}};
    fixture f;
    ru_err err = {0};
    open_fixture(&f);
    ru_wire_out w = ru_wire_out_into(f.buf, sizeof f.buf);
    rui_el_table_write(parts, RU_ARRAY_LEN(parts), 3, &w);
    assert_ok(reads(&f, ru_wire_size(&w), &err), err);
    assert_int_equal(f.e.reduce.n_buckets, RU_ARRAY_LEN(parts));
    assert_int_equal(f.e.reduce.flight, 3);
    for (uint32_t b = 0; b < RU_ARRAY_LEN(parts); b++) {
        const ru_elastic_part *p = &f.e.reduce.buckets[b].part;
        assert_int_equal(p->first, parts[b].first);
        assert_int_equal(p->n, parts[b].n);
        assert_int_equal(p->offset_bytes, parts[b].offset_bytes);
        assert_int_equal(p->size_bytes, parts[b].size_bytes);
    }
    static const uint32_t bucket_of[TENSORS] = {0, 0, 1, 4};
    assert_memory_equal(f.e.reduce.bucket_of, bucket_of, sizeof bucket_of);
    ru_arena_fini(&f.arena);
}

/* Every prefix of a table, and tables that lack, repeat or overrun a gradient. */
static void a_table_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t n;
        struct {
            uint16_t whole;
            uint32_t cut; /* elements */
        } part[4];
    } wrong[] = {
        {0, {{0}}},                                /* none */
        {1, {{3, 0}}},                             /* the last is missing */
        {1, {{5, 0}}},                             /* one too many */
        {2, {{4, 0}, {1, 0}}},                     /* after the last */
        {3, {{2, 0}, {0, 100}, {2, 0}}},           /* the rest of a cut one */
        {3, {{2, 0}, {0, (1 << 18) + 1}, {1, 0}}}, /* a cut that is too long */
        {3, {{2, 0}, {0, 0}, {1, 0}}},             /* an empty cut */
        {3, {{2, 0}, {0, UINT32_MAX}, {1, 0}}},    /* a long one */
        {UINT32_MAX, {{1, 0}}},                    /* more than there are bytes */
    };
    fixture f;
    open_fixture(&f);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(wrong); k++) {
        ru_err err = {0};
        ru_wire_out w = ru_wire_out_into(f.buf, sizeof f.buf);
        ru_wire_put_u32(&w, wrong[k].n);
        ru_wire_put_u32(&w, 0);
        for (uint32_t b = 0; b < wrong[k].n && b < RU_ARRAY_LEN(wrong[k].part); b++) {
            ru_wire_put_u16(&w, wrong[k].part[b].whole);
            if (wrong[k].part[b].whole == 0) {
                ru_wire_put_u32(&w, wrong[k].part[b].cut);
            }
        }
        assert_int_equal(reads(&f, ru_wire_size(&w), &err), RU_E_DATA);
        assert_non_null(strstr(err.text, "table of sums"));
    }
    static const ru_elastic_part all[] = {{0, 4, 0, 408 + (1 << 20) + 12, 0}};
    ru_wire_out w = ru_wire_out_into(f.buf, sizeof f.buf);
    rui_el_table_write(all, 1, 0, &w);
    for (int64_t cut = 0; cut < ru_wire_size(&w); cut++) {
        ru_err err = {0};
        assert_int_equal(reads(&f, cut, &err), RU_E_DATA);
    }
    ru_arena_fini(&f.arena);
}

/* A table that does not fit into the leader's message with the choices for its sums, each another
 * one, is refused before it is in force; the largest that is taken fits. */
static void a_table_that_nobody_can_be_told_is_refused(void **state)
{
    (void)state;
    enum { MANY = RU_ELASTIC_TENSORS_MAX };
    static int64_t bytes[MANY];
    static ru_elastic_part parts[MANY];
    static ru_coll_choice choices[MANY];
    static uint8_t go[RUI_EL_GO_MAX - RUI_EL_GO_HEAD];
    fixture f;
    ru_err err = {0};
    open_fixture(&f);
    for (uint32_t k = 0; k < MANY; k++) {
        bytes[k] = 4 * (k + 1);
        parts[k] = (ru_elastic_part){.first = k, .n = 1, .size_bytes = bytes[k]};
        choices[k].chunk_bytes = bytes[k];
    }
    f.e.arena = &f.arena;
    f.e.opt.tensor_bytes = bytes;
    f.e.v.choice = choices;
    uint32_t n = MANY;
    for (; n > 0; n--) {
        f.e.opt.n_tensors = n;
        ru_status st = ru_elastic_table_set(&f.e, parts, n, 0, NULL, &err);
        if (st == RU_OK) {
            break;
        }
        assert_int_equal(st, RU_E_LIMIT);
    }
    assert_true(n >= 1000 && n < MANY);
    ru_wire_out w = ru_wire_out_into(go, sizeof go);
    rui_el_table_write(parts, n, UINT32_MAX, &w);
    rui_el_choices_write(&f.e, n, &w);
    assert_false(w.bad);
    ru_arena_fini(&f.arena);
}

/* The algorithm that a table names holds in views of as many members as it was made for, unless
 * members share memory, servers add or sums are in the order of ranks. */
static void algorithms_of_a_table_hold_for_as_many(void **state)
{
    (void)state;
    enum { MEMBERS = 3, NAMED = 1 + RU_ALGO_DOUBLE_TREE };
    static const ru_elastic_part parts[] = {{0, 3, 0, 1 << 20, NAMED}, {3, 1, 0, 1 << 20, 0}};
    rui_el_member at[MEMBERS] = {0};
    for (uint32_t k = 0; k < 6; k++) {
        fixture f;
        ru_err err = {0};
        open_fixture(&f);
        f.e.reduce.table_members = k == 0 ? 0 : k == 1 ? MEMBERS + 1 : MEMBERS;
        f.e.opt.deterministic = k == 3;
        rui_el_view v = {.n = MEMBERS, .at = at, .near = k == 2, .servers = k == 4 ? 1 : 0};
        assert_ok(rui_el_choose(&f.e, &v, parts, 2, &f.arena, NULL, &err), err);
        assert_true((v.choice[0].algo == RU_ALGO_DOUBLE_TREE) == (k == 0 || k == 5));
        assert_true(v.choice[1].algo != RU_ALGO_DOUBLE_TREE);
        ru_arena_fini(&f.arena);
    }
}

static void a_table_that_names_no_algorithm_is_refused(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 3; k++) {
        fixture f;
        ru_err err = {0};
        open_fixture(&f);
        f.e.arena = &f.arena;
        const ru_elastic_part all = {0, TENSORS, 0, 408 + (1 << 20) + 12,
                                     k == 0   ? 1 + RU_ALGO_RING
                                     : k == 1 ? 1 + RU_ALGO_HIERARCHY
                                              : 1 + RU_COLL_ALGOS};
        assert_int_equal(ru_elastic_table_set(&f.e, &all, 1, 0, NULL, &err),
                         k == 0 ? RU_OK : RU_E_DATA);
        ru_arena_fini(&f.arena);
    }
}

RU_TESTS(train_elastic_table, cmocka_unit_test(algorithms_of_a_table_hold_for_as_many),
         cmocka_unit_test(a_table_that_names_no_algorithm_is_refused),
         cmocka_unit_test(a_table_comes_over_whole),
         cmocka_unit_test(a_table_that_does_not_fit_is_refused),
         cmocka_unit_test(a_table_that_nobody_can_be_told_is_refused))
