/* Masks against a script of its own (test/oracle/mask.py), sums to the last bit whoever is lost and
 * when, parts of a secret by brute force, and what clients refuse. */
#include "fleet/secure/mask.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

enum { MANY = 12, VALUES = 5000 };

static uint32_t who, call; /* of the numbers that are drawn */

static void draw(void *into, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) {
        ((uint8_t *)into)[i] = (uint8_t)(who * 31 + call * 17 + (uint32_t)i * 7 + 3);
    }
    call++;
}

typedef struct rig {
    ru_arena arena;
    ru_err err;
    uint32_t n, need, near;
    ru_masker m[MANY];
    ru_unmasker u;
    uint32_t x[MANY][VALUES], masked[MANY][VALUES];
    uint8_t boxes[MANY * RU_MASK_BOX_BYTES], parts[MANY * RU_SHAMIR_BYTES];
    ru_mask_stream streams[MANY];
} rig;

static rig *set_up_near(uint32_t n, uint32_t need, uint32_t near)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    ru_arena_init(&r->arena, 0);
    r->n = n;
    r->need = need;
    r->near = near;
    assert_ok(ru_unmasker_open(MANY, VALUES, &r->arena, &r->u, &r->err), r->err);
    ru_unmasker_begin(&r->u, n, need, near, 7);
    for (uint32_t k = 0; k < n; k++) {
        assert_ok(ru_masker_open(MANY, draw, &r->arena, &r->m[k], &r->err), r->err);
        for (uint32_t i = 0; i < VALUES; i++) {
            r->x[k][i] = (k + 1) * 0x1234567u * i + k;
        }
    }
    return r;
}

static rig *set_up(uint32_t n, uint32_t need)
{
    return set_up_near(n, need, 0);
}

static void tear_down(rig *r)
{
    ru_arena_fini(&r->arena);
    free(r);
}

static void tell(rig *r, uint32_t k)
{
    uint8_t publics[RU_MASK_PUBLIC_BYTES], weak[RU_MASK_PUBLIC_BYTES] = {0};
    who = k;
    call = 0;
    assert_ok(ru_masker_begin(&r->m[k], 7, r->need, r->near, publics, &r->err), r->err);
    memcpy(weak, publics, sizeof weak / 2); /* with the other key all agree on the same */
    assert_false(ru_unmasker_public(&r->u, k, weak, sizeof weak));
    assert_true(ru_unmasker_public(&r->u, k, publics, sizeof publics));
    assert_false(ru_unmasker_public(&r->u, k, publics, sizeof publics)); /* twice */
}

static void share(rig *r, uint32_t k)
{
    who = k;
    call = 3;
    int64_t bytes = (int64_t)r->n * RU_MASK_BOX_BYTES;
    for (bool more = true; more;) {
        assert_ok(ru_masker_share(&r->m[k], r->n, k, r->u.publics, r->boxes, &more, &r->err),
                  r->err);
    }
    assert_false(ru_unmasker_boxes(&r->u, k, r->boxes, bytes - 1));
    assert_true(ru_unmasker_boxes(&r->u, k, r->boxes, bytes));
}

static void mask(rig *r, uint32_t k)
{
    int64_t bytes;
    uint32_t n;
    const uint8_t *row = ru_unmasker_row(&r->u, k, &bytes);
    for (bool more = true; more;) {
        assert_ok(ru_masker_streams(&r->m[k], row, row + r->n, r->streams, &n, &more, &r->err),
                  r->err);
    }
    assert_true(r->near > 0 || n == r->u.n_shared);
    memcpy(r->masked[k], r->x[k], sizeof r->x[k]);
    for (uint32_t i = 0; i < n; i++) {
        assert_ok(
            ru_cipher_stream(r->streams[i].key, r->streams[i].minus, r->masked[k], VALUES, &r->err),
            r->err);
    }
}

static bool reveal(rig *r, uint32_t k)
{
    assert_ok(ru_masker_reveal(&r->m[k], r->u.survived, r->parts, &r->err), r->err);
    assert_int_equal(ru_masker_reveal(&r->m[k], r->u.survived, r->parts, &r->err), RU_E_DATA);
    return ru_unmasker_parts(&r->u, k, r->parts, (int64_t)r->n * RU_SHAMIR_BYTES);
}

static void test_same_as_script(void **state)
{
    (void)state;
    static const uint32_t at[] = {0, 1, 4095, 4096, 4999},
                          want[] = {0x9da2b836, 0x81d4398, 0xddb62051, 0xf8ca4b4e, 0x6469c40c};
    char text[2 * RU_SHAMIR_BYTES + 1];
    rig *r = set_up(4, 3);
    for (uint32_t i = 0; i < VALUES; i++) {
        r->x[1][i] = 1000 * i + 1;
    }
    for (uint32_t k = 0; k < 4; k++) {
        tell(r, k);
    }
    for (uint32_t k = 0; k < 4; k++) {
        share(r, k);
    }
    for (uint32_t k = 0; k < 4; k++) {
        mask(r, k);
        assert_true(k == 2 || ru_unmasker_add(&r->u, k, r->masked[k])); /* 2 is lost */
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(at); k++) {
        assert_int_equal(r->masked[1][at[k]], want[k]);
    }
    /* Two clients seal for each other with two keys: else the streams of both would fall out. */
    int64_t bytes;
    uint32_t same = 0;
    const uint8_t *from_0 = ru_unmasker_row(&r->u, 1, &bytes) + 4,
                  *from_1 = ru_unmasker_row(&r->u, 0, &bytes) + 4 + RU_MASK_BOX_BYTES;
    for (uint32_t i = 0; i < RU_MASK_PARTS_BYTES; i++) {
        uint8_t plain = r->m[1].parts[i] ^ r->m[0].parts[RU_MASK_PARTS_BYTES + i];
        same += (from_0[i] ^ from_1[i]) == plain ? 1 : 0;
    }
    assert_true(same < RU_MASK_PARTS_BYTES / 2);
    (void)reveal(r, 0);
    static const char *const parts[] = {
        "727980878e959ca3aab1b8ffc6cdd4dbe2e9f0f73e050c131a21282f363d444b",
        "a2a9b0b7fec5ccd3dae1e8eff6fd040b121920272e353c434a51581f666d747b"};
    for (uint32_t k = 2; k < 4; k++) {
        for (uint32_t i = 0; i < RU_SHAMIR_BYTES; i++) {
            (void)snprintf(text + (size_t)2 * i, 3, "%02x", r->parts[k * RU_SHAMIR_BYTES + i]);
        }
        assert_string_equal(text, parts[k - 2]);
    }
    tear_down(r);
}

/* Who is lost before which message is drawn; the sum is that of the vectors that came. */
static void test_sum_is_exact(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(ru_test_seed(), ru_rng_label("lost"));
    for (uint32_t turn = 0; turn < 12; turn++) {
        enum { NEVER = 4 };
        uint32_t lost[MANY], n_of[NEVER + 1] = {0};
        rig *r = set_up(MANY, 7);
        uint32_t want[VALUES] = {0};
        for (uint32_t k = 0; k < MANY; k++) {
            uint32_t l = ru_rng_below(&rng, 12);
            lost[k] = l < NEVER && n_of[NEVER] + (MANY - k) > 7 ? l : NEVER;
            n_of[lost[k]]++;
        }
        for (uint32_t k = 0; k < MANY; k++) {
            if (lost[k] > 0) {
                tell(r, k);
            }
        }
        for (uint32_t k = 0; k < MANY; k++) {
            if (lost[k] > 1) {
                share(r, k);
            }
        }
        for (uint32_t k = 0; k < MANY; k++) {
            if (lost[k] > 2) {
                mask(r, k);
                assert_true(ru_unmasker_add(&r->u, k, r->masked[k]));
                assert_false(ru_unmasker_add(&r->u, k, r->masked[k])); /* twice */
                for (uint32_t i = 0; i < VALUES; i++) {
                    want[i] += r->x[k][i];
                }
            }
        }
        for (uint32_t k = MANY; k-- > 0;) {
            if (lost[k] > 3) {
                (void)reveal(r, k);
            }
        }
        assert_true(r->u.n_survived >= 7 && ru_unmasker_opens(&r->u));
        assert_true(memcmp(r->u.sum, want, sizeof want) != 0);
        assert_ok(ru_unmasker_unmask(&r->u, &r->err), r->err);
        assert_memory_equal(r->u.sum, want, sizeof want);
        tear_down(r);
    }
}

enum { RING = 8, RING_NEAR = 6, RING_NEED = 5 };

/* Has each of `of` RING_NEED of `those` around it? By walking the ring. */
static bool ring_has(const bool *of, const bool *those)
{
    bool all = true;
    for (uint32_t k = 0; k < RING; k++) {
        uint32_t there = 0;
        for (uint32_t d = 0; d <= RING_NEAR; d++) {
            there += those[(k + RING + d - RING_NEAR / 2) % RING] ? 1 : 0;
        }
        all = all && (!of[k] || there >= RING_NEED);
    }
    return all;
}

/* Those that are still there when boxes, vectors and parts are due: the sum is exact. */
static void sum_of_ring(const bool (*there)[RING])
{
    uint32_t want[VALUES] = {0};
    rig *r = set_up_near(RING, RING_NEED, RING_NEAR);
    for (uint32_t k = 0; k < RING; k++) {
        tell(r, k);
    }
    for (uint32_t k = 0; k < RING; k++) {
        if (there[0][k]) {
            share(r, k);
        }
    }
    for (uint32_t k = 0; k < RING; k++) {
        if (there[1][k]) {
            mask(r, k);
            assert_true(ru_unmasker_add(&r->u, k, r->masked[k]));
            for (uint32_t i = 0; i < VALUES; i++) {
                want[i] += r->x[k][i];
            }
        }
    }
    for (uint32_t k = 0; k < RING; k++) {
        if (there[2][k] && !ru_unmasker_opens(&r->u)) {
            assert_true(reveal(r, k));
        }
    }
    assert_true(ru_unmasker_opens(&r->u));
    assert_true(memcmp(r->u.sum, want, sizeof want) != 0);
    assert_ok(ru_unmasker_unmask(&r->u, &r->err), r->err);
    assert_memory_equal(r->u.sum, want, sizeof want);
    tear_down(r);
}

/* All ways in which clients of a ring are lost: before their boxes, their vectors, their parts. */
static void test_neighbours(void **state)
{
    (void)state;
    uint32_t sums = 0;
    const ru_unmasker u = {.n = RING, .near = RING_NEAR, .need = RING_NEED};
    for (uint32_t lost = 0; lost < 1u << (2 * RING); lost++) {
        bool there[3][RING];
        for (uint32_t k = 0; k < RING; k++) {
            uint32_t when = lost >> (2 * k) & 3;
            for (uint32_t stage = 0; stage < 3; stage++) {
                there[stage][k] = when > stage;
            }
        }
        bool goes_on = true;
        for (uint32_t stage = 0; stage < 3; stage++) {
            bool enough = ring_has(there[0], there[stage]);
            uint32_t few = ru_unmasker_fewest(&u, there[0], there[stage]);
            assert_true((few >= RING_NEED) == enough);
            goes_on = goes_on && enough;
        }
        if (goes_on && there[0][0] + there[0][1] > 0) {
            sum_of_ring((const bool(*)[RING])there);
            sums++;
        }
    }
    assert_true(sums > 200);
}

/* A client counts its neighbours alone, whatever it is told of others. */
static void test_neighbourhoods_that_are_too_small(void **state)
{
    (void)state;
    bool more;
    uint32_t n;
    int64_t bytes;
    rig *r = set_up_near(RING, RING_NEED, 4); /* of five all */
    for (uint32_t k = 0; k < RING; k++) {
        tell(r, k);
    }
    for (uint32_t k = 0; k < RING; k++) {
        if (k != 2) {
            share(r, k);
        }
    }
    for (uint32_t k = 0; k < RING; k++) {
        const uint8_t *row = ru_unmasker_row(&r->u, k, &bytes);
        bool beside = k <= 4;
        if (beside && k != 2) {
            assert_int_equal(
                ru_masker_streams(&r->m[k], row, row + RING, r->streams, &n, &more, &r->err),
                RU_E_DATA);
        } else if (!beside) {
            mask(r, k);
            assert_true(ru_unmasker_add(&r->u, k, r->masked[k]));
        }
    }
    assert_int_equal(ru_masker_reveal(&r->m[6], r->u.survived, r->parts, &r->err), RU_E_DATA);
    tear_down(r);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    rig *r = set_up(5, 3);
    uint32_t n;
    bool more;
    int64_t bytes;
    for (uint32_t k = 0; k < 2; k++) {
        tell(r, k);
    }
    who = 0;
    assert_int_equal(ru_masker_share(&r->m[0], 5, 0, r->u.publics, r->boxes, &more, &r->err),
                     RU_E_DATA);
    for (uint32_t k = 2; k < 5; k++) {
        tell(r, k);
    }
    assert_int_equal(ru_masker_share(&r->m[0], 5, 1, r->u.publics, r->boxes, &more, &r->err),
                     RU_E_DATA);
    share(r, 0);
    share(r, 1);
    const uint8_t *row = ru_unmasker_row(&r->u, 0, &bytes);
    assert_int_equal(ru_masker_streams(&r->m[0], row, row + 5, r->streams, &n, &more, &r->err),
                     RU_E_DATA);
    share(r, 2);
    share(r, 3);
    row = ru_unmasker_row(&r->u, 3, &bytes);
    const uint32_t damaged = 3 * MANY * (1 + RU_MASK_BOX_BYTES) + 5 + RU_MASK_BOX_BYTES;
    r->u.boxes[damaged] ^= 1; /* what 1 sealed for 3, whose round is over with it */
    assert_int_equal(ru_masker_streams(&r->m[3], row, row + 5, r->streams, &n, &more, &r->err),
                     RU_E_DATA);
    r->u.boxes[damaged] ^= 1;
    assert_int_equal(ru_masker_streams(&r->m[3], row, row + 5, r->streams, &n, &more, &r->err),
                     RU_E_DATA);
    for (uint32_t k = 0; k < 3; k++) {
        mask(r, k);
        assert_true(ru_unmasker_add(&r->u, k, r->masked[k]));
    }
    assert_false(ru_unmasker_add(&r->u, 4, r->masked[2])); /* it shared nothing */
    static const uint8_t few[5] = {1, 1, 0, 0, 0}, other[5] = {1, 1, 1, 0, 1};
    assert_int_equal(ru_masker_reveal(&r->m[0], few, r->parts, &r->err), RU_E_DATA);
    assert_int_equal(ru_masker_reveal(&r->m[0], other, r->parts, &r->err), RU_E_DATA);
    for (uint32_t k = 0; k < 3; k++) {
        assert_true(reveal(r, k));
    }
    r->u.parts[3 * RU_SHAMIR_BYTES + 1] ^= 1; /* of the mask key of 3, by client 0 */
    assert_int_equal(ru_unmasker_unmask(&r->u, &r->err), RU_E_DATA);
    tear_down(r);
}

/* Any `need` of the parts give the secret back; the first power is a line. */
static void test_parts(void **state)
{
    (void)state;
    enum { HOLDERS = 6 };
    uint8_t secret[RU_SHAMIR_BYTES], random[HOLDERS * RU_SHAMIR_BYTES], back[RU_SHAMIR_BYTES];
    uint8_t parts[HOLDERS][RU_SHAMIR_BYTES], some[HOLDERS][RU_SHAMIR_BYTES];
    call = who = 5;
    draw(secret, sizeof secret);
    draw(random, sizeof random);
    for (uint32_t need = 1; need <= HOLDERS; need++) {
        ru_shamir_split(secret, need, HOLDERS, random, parts[0], RU_SHAMIR_BYTES);
        for (uint32_t set = 0; set < 1u << HOLDERS; set++) {
            uint32_t holder[HOLDERS], n = 0;
            uint16_t weights[HOLDERS];
            for (uint32_t k = 0; k < HOLDERS; k++) {
                if (set >> k & 1) {
                    memcpy(some[n], parts[k], RU_SHAMIR_BYTES);
                    holder[n++] = k;
                }
            }
            if (n == need) {
                ru_shamir_weights(holder, need, weights);
                ru_shamir_join(weights, need, some[0], RU_SHAMIR_BYTES, back);
                assert_memory_equal(back, secret, sizeof secret);
            }
        }
        for (uint32_t i = 0; i < RU_SHAMIR_BYTES && need == 2; i++) {
            assert_int_equal(parts[0][i], secret[i] ^ random[i]); /* at 1 */
        }
    }
}

static void test_numbers(void **state)
{
    (void)state;
    static const float from[3] = {1, -2, 0}, to[3] = {1.5f, -2.25f, -3};
    static const double move[3] = {0.5, -0.25, -3};
    ru_err err;
    uint32_t x[3];
    ru_mask_scale s = {.range = 4, .share = 0.25};
    assert_ok(ru_mask_encode(&s, from, to, 3, x, &err), err);
    for (uint32_t i = 0; i < 3; i++) {
        assert_near((double)(int32_t)x[i] * ru_mask_unit(&s), move[i] / 4, 1e-7);
    }
    s.range = 2;
    assert_int_equal(ru_mask_encode(&s, from, to, 3, x, &err), RU_E_USER);
    s.clip = 1;
    double length = sqrt(0.25 + 0.0625 + 9), square = 0;
    assert_ok(ru_mask_encode(&s, from, to, 3, x, &err), err);
    for (uint32_t i = 0; i < 3; i++) {
        double got = (double)(int32_t)x[i] * ru_mask_unit(&s) / s.share;
        assert_near(got, move[i] / length, 1e-7);
        square += got * got;
    }
    assert_true(square <= 1 && square > 1 - 1e-8);
    /* All at the end of the range, in the same direction, and rounded up: no sum turns round. */
    s = (ru_mask_scale){.range = 0.5, .share = 1.0 / 1000};
    assert_ok(ru_mask_encode(&s, from, to, 1, x, &err), err);
    assert_true((int64_t)1000 * (int32_t)x[0] <= INT32_MAX);
    assert_near(1000.0 * (int32_t)x[0] * ru_mask_unit(&s), 0.5, 1e-6);
}

static bool is_zero(const uint8_t *at, size_t bytes)
{
    uint8_t any = 0;
    for (size_t i = 0; i < bytes; i++) {
        any |= at[i];
    }
    return any == 0;
}

/* A round that ends while boxes are sealed leaves nothing from which secrets can be joined. */
static void test_nothing_stays_of_a_round_given_up(void **state)
{
    (void)state;
    bool more = false;
    rig *r = set_up(MANY, 3);
    ru_masker *m = &r->m[0];
    for (uint32_t k = 0; k < MANY; k++) {
        tell(r, k);
    }
    assert_ok(ru_masker_share(m, MANY, 0, r->u.publics, r->boxes, &more, &r->err), r->err);
    assert_true(more);
    ru_masker_forget(m);
    assert_true(is_zero(m->work, 2 * (size_t)MANY * RU_MASK_PARTS_BYTES));
    assert_true(is_zero(m->parts, (size_t)MANY * RU_MASK_PARTS_BYTES));
    assert_true(is_zero(m->mask_secret, sizeof m->mask_secret));
    assert_true(is_zero(m->seed, sizeof m->seed));
    assert_int_equal(ru_masker_share(m, MANY, 0, r->u.publics, r->boxes, &more, &r->err),
                     RU_E_DATA);
    tear_down(r);
}

RU_TESTS(fleet_mask, cmocka_unit_test(test_nothing_stays_of_a_round_given_up),
         cmocka_unit_test(test_same_as_script), cmocka_unit_test(test_sum_is_exact),
         cmocka_unit_test(test_neighbours),
         cmocka_unit_test(test_neighbourhoods_that_are_too_small),
         cmocka_unit_test(test_what_is_refused), cmocka_unit_test(test_parts),
         cmocka_unit_test(test_numbers))
