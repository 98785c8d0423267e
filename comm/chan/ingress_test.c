/* Slots, their intervals, rules that throw names away, grants, blocks. */
#include "comm/chan/ingress.h"

#include <string.h>

#include "base/rng.h"
#include "comm/chan/pool.h"
#include "test/test.h"

enum { SLOTS = 8, PEERS = 3, EARLY = 2 };

static rui_ingress *open_slots(ru_arena *a)
{
    rui_ingress *g = NULL;
    ru_err err;
    ru_arena_init(a, 0);
    assert_ok(rui_ingress_open(SLOTS, PEERS, EARLY, a, &g, &err), err);
    return g;
}

static uint32_t posted(rui_ingress *g, uint64_t stream, int64_t total_bytes)
{
    uint32_t i = rui_ingress_new(g, 0, stream, 0, RUI_SLOT_POSTED);
    assert_int_not_equal(i, RUI_NONE);
    rui_ingress_slot(g, i)->total_bytes = total_bytes;
    return i;
}

/* Pieces in any order against a map of bytes: none twice, none outside, complete exactly when all
 * are there; the gaps are bounded. */
static void test_intervals_equal_a_map(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 17);
    for (uint32_t round = 0; round < 300; round++) {
        ru_arena a;
        rui_ingress *g = open_slots(&a);
        enum { BYTES = 64 };
        uint32_t i = posted(g, 1, BYTES), have = 0;
        rui_slot *s = rui_ingress_slot(g, i);
        bool map[BYTES] = {0};
        for (uint32_t k = 0; k < 400 && have < BYTES; k++) {
            int64_t at = (int64_t)ru_rng_below(&r, BYTES + 4) - 2, n = ru_rng_below(&r, 9);
            bool ok = n > 0 && at >= 0 && at + n <= BYTES;
            bool joins = ok && ((at > 0 && map[at - 1]) || (at + n < BYTES && map[at + n]));
            for (int64_t b = at; ok && b < at + n; b++) {
                ok = !map[b];
            }
            ok = ok && (joins || s->n_held < RUI_HELD_MAX);
            assert_int_equal(rui_slot_check(s, at, n) == RU_OK, ok);
            if (ok) {
                memset(map + at, true, (size_t)n);
                have += (uint32_t)n;
                assert_int_equal(rui_ingress_commit(g, i, at, n), have == BYTES);
            }
            for (uint32_t h = 0; h < s->n_held; h++) {
                assert_true(map[s->held[h].from] && map[s->held[h].to - 1]);
                assert_true(h == 0 || s->held[h - 1].to < s->held[h].from);
            }
        }
        assert_int_equal(s->got_bytes, have);
        ru_arena_fini(&a);
    }
    ru_arena a;
    rui_ingress *g = open_slots(&a);
    rui_slot *s = rui_ingress_slot(g, posted(g, 2, 1000));
    for (int64_t k = 0; k < RUI_HELD_MAX; k++) {
        (void)rui_slot_commit(s, 4 * k, 1);
    }
    assert_int_equal(rui_slot_check(s, 4 * RUI_HELD_MAX, 1), RU_E_PEER);
    assert_int_equal(rui_slot_check(s, 1, 2), RU_OK); /* touches what is there */
    ru_arena_fini(&a);
}

static void test_no_more_are_posted_than_asked_for(void **state)
{
    (void)state;
    ru_arena a;
    rui_ingress *g = open_slots(&a);
    uint32_t at[SLOTS];
    for (uint32_t k = 0; k < SLOTS; k++) {
        assert_false(rui_ingress_full(g));
        at[k] = posted(g, k, 10);
    }
    assert_true(rui_ingress_full(g));
    uint32_t gen = rui_ingress_slot(g, at[3])->gen;
    rui_ingress_free(g, at[3]);
    assert_false(rui_ingress_full(g));
    assert_int_equal(posted(g, 99, 10), at[3]);
    assert_int_not_equal(rui_ingress_slot(g, at[3])->gen, gen); /* old ids name nothing */
    rui_ingress_state(g, at[0], RUI_SLOT_THROWN);
    assert_false(rui_ingress_full(g));
    ru_arena_fini(&a);
}

/* Rules of epochs that follow each other are one rule: there may be any number of them. */
static void test_rules_widen(void **state)
{
    (void)state;
    ru_arena a;
    rui_ingress *g = open_slots(&a);
    const uint64_t mask = UINT64_C(0xffffff) << 40, one = UINT64_C(1) << 40;
    rui_ingress_throw(g, 0xff, 7); /* the first of all must not be forgotten */
    for (uint64_t e = 250; e < 400; e++) {
        rui_ingress_throw(g, mask, e * one);
        rui_ingress_throw(g, mask, (499 - e) * one);
    }
    assert_true(rui_ingress_thrown(g, 0x1207));
    assert_true(rui_ingress_thrown(g, 100 * one + 5) && rui_ingress_thrown(g, 399 * one));
    assert_false(rui_ingress_thrown(g, 99 * one) || rui_ingress_thrown(g, 401 * one));
    ru_arena_fini(&a);
}

/* -- grants --------------------------------------------------------------------------------------
 */

static uint32_t wants(rui_ingress *g, uint64_t stream, uint8_t class, int64_t deadline_ns,
                      uint16_t rank)
{
    uint32_t i = posted(g, stream, 1000);
    rui_slot *s = rui_ingress_slot(g, i);
    s->class = class;
    s->deadline.ns = deadline_ns;
    s->rank = rank;
    rui_ingress_want(g, i, 100);
    return i;
}

/* By class, deadline (none is last), rank, arrival; each to its end before the next. */
static void test_grants_by_key(void **state)
{
    (void)state;
    ru_arena a;
    rui_ingress *g = open_slots(&a);
    uint32_t order[6];
    order[5] = wants(g, 1, 3, 5, 0);
    order[3] = wants(g, 2, 2, 0, 4);
    order[4] = wants(g, 3, 2, 0, 4);
    order[1] = wants(g, 4, 2, 9, 7);
    order[2] = wants(g, 5, 2, 0, 3);
    order[0] = wants(g, 6, 2, 8, 9);
    for (uint32_t k = 0; k < 6; k++) {
        for (int64_t up_to = 500; up_to <= 1000; up_to += 400 + 100 * (up_to == 900)) {
            assert_int_equal(rui_ingress_grant(g, 1 << 20, 400), order[k]);
            assert_int_equal(rui_ingress_slot(g, order[k])->granted_bytes, up_to);
        }
        assert_int_equal(rui_ingress_grant(g, 1 << 20, 400), order[k]);
        assert_int_equal(rui_ingress_slot(g, order[k])->granted_bytes, 1000);
    }
    assert_int_equal(rui_ingress_grant(g, 1 << 20, 400), RUI_NONE);
    ru_arena_fini(&a);
}

/* Granted and not received: never more than the window and a chunk; what comes, or is given up,
 * makes room. */
static void test_grants_return(void **state)
{
    (void)state;
    ru_arena a;
    rui_ingress *g = open_slots(&a);
    uint32_t first = wants(g, 1, 1, 0, 0), second = wants(g, 2, 2, 0, 0);
    assert_int_equal(rui_ingress_grant(g, 300, 200), first); /* 200 are out unasked */
    assert_int_equal(rui_ingress_grant(g, 300, 200), RUI_NONE);
    assert_false(rui_ingress_commit(g, first, 0, 100));
    assert_int_equal(rui_ingress_grant(g, 300, 200), RUI_NONE); /* 300 are out */
    assert_false(rui_ingress_commit(g, first, 100, 1));
    assert_int_equal(rui_ingress_grant(g, 300, 200), first); /* 499 */
    rui_ingress_free(g, first);                              /* 100 of the second */
    assert_int_equal(rui_ingress_grant(g, 300, 200), second);
    assert_int_equal(rui_ingress_grant(g, 300, 200), RUI_NONE);
    rui_ingress_state(g, second, RUI_SLOT_THROWN);
    uint32_t third = wants(g, 3, 3, 0, 0);
    assert_int_equal(rui_ingress_grant(g, 101, 200), third);
    ru_arena_fini(&a);
}

/* -- blocks --------------------------------------------------------------------------------------
 */

/* Whatever is taken and given: a chain that is not to be had takes nothing. */
static void test_blocks_come_back(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    rui_blocks b = {0};
    assert_true(rui_cells_init(&b.small, &a, RUI_BLOCK_SMALL, 2));
    assert_true(rui_cells_init(&b.large, &a, RUI_BLOCK_LARGE, 4));
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t three = rui_blocks_take(&b, 3 * RUI_BLOCK_LARGE);
        assert_int_not_equal(three, RUI_NONE);
        assert_int_equal(rui_blocks_take(&b, 2 * RUI_BLOCK_LARGE), RUI_NONE);
        uint32_t small[2] = {rui_blocks_take(&b, 1), rui_blocks_take(&b, RUI_BLOCK_SMALL)};
        uint32_t last = rui_blocks_take(&b, 1); /* of the large ones */
        assert_int_not_equal(last, RUI_NONE);
        assert_int_equal(rui_blocks_take(&b, 1), RUI_NONE);
        rui_blocks_give(&b, three);
        rui_blocks_give(&b, small[0]);
        rui_blocks_give(&b, small[1]);
        rui_blocks_give(&b, last);
        rui_blocks_give(&b, RUI_NONE);
        assert_int_equal(b.small.taken + b.large.taken, 0);
    }
    ru_arena_fini(&a);
}

RU_TESTS(comm_ingress, cmocka_unit_test(test_intervals_equal_a_map),
         cmocka_unit_test(test_no_more_are_posted_than_asked_for),
         cmocka_unit_test(test_rules_widen), cmocka_unit_test(test_grants_by_key),
         cmocka_unit_test(test_grants_return), cmocka_unit_test(test_blocks_come_back))
