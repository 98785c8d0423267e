/* How state is cut for joiners: every byte once, what is updated together in the same step. */
#include <string.h>

#include "test/test.h"
#include "train/elastic/elastic_impl.h"

enum { STATES = 4, BYTES = 8192, PIECE = 1024 };

typedef struct fixture {
    ru_arena arena;
    ru_elastic e;
    int64_t bytes[STATES];
    uint32_t group[STATES];
} fixture;

static void cut(fixture *f, const int64_t bytes[STATES], const uint32_t *group, int64_t piece_bytes)
{
    ru_err err = {0};
    *f = (fixture){.e.opt = {.n_state = STATES, .piece_bytes = piece_bytes}};
    ru_arena_init(&f->arena, 0);
    f->e.arena = &f->arena;
    memcpy(f->bytes, bytes, sizeof f->bytes);
    f->e.opt.state_bytes = f->bytes;
    f->e.opt.state_group = group;
    assert_ok(rui_el_state_open(&f->e, &err), err);
}

/* Runs of pieces that come in one step. */
static uint32_t runs(const fixture *f)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < f->e.mover.n_pieces; k++) {
        n += f->e.mover.pieces[k].more ? 0 : 1;
    }
    return n;
}

static void check_cover(const fixture *f)
{
    static uint8_t seen[STATES][BYTES];
    memset(seen, 0, sizeof seen);
    for (uint32_t k = 0; k < f->e.mover.n_pieces; k++) {
        const rui_el_piece *p = &f->e.mover.pieces[k];
        assert_true(p->tensor < STATES && p->size > 0 && p->size <= f->e.opt.piece_bytes);
        assert_true(p->offset >= 0 && p->offset + p->size <= f->bytes[p->tensor]);
        for (int64_t i = p->offset; i < p->offset + p->size; i++) {
            assert_int_equal(seen[p->tensor][i]++, 0);
        }
    }
    for (uint32_t t = 0; t < STATES; t++) {
        for (int64_t i = 0; i < f->bytes[t]; i++) {
            assert_int_equal(seen[t][i], 1);
        }
    }
    assert_false(f->e.mover.pieces[f->e.mover.n_pieces - 1].more);
}

/* In a run each tensor of the group holds the same part of its elements. */
static void check_alike(const fixture *f, uint32_t n_runs)
{
    assert_int_equal(runs(f), n_runs);
    for (uint32_t k = 0; k < f->e.mover.n_pieces; k++) {
        const rui_el_piece *p = &f->e.mover.pieces[k], *q = &f->e.mover.pieces[k + 1];
        if (p->more) {
            assert_int_equal(p->offset * f->bytes[q->tensor], q->offset * f->bytes[p->tensor]);
            assert_int_equal((p->offset + p->size) * f->bytes[q->tensor],
                             (q->offset + q->size) * f->bytes[p->tensor]);
        }
    }
}

static void state_is_cut_so_that_groups_stay_together(void **state)
{
    (void)state;
    static const uint32_t one[STATES] = {5, 5, 5, 5}, two[STATES] = {1, 2, 1, 2};
    static const struct {
        int64_t bytes[STATES];
        const uint32_t *group;
        int64_t piece_bytes;
        uint32_t runs;
        bool alike;
    } cases[] = {
        {{100, 0, 3 * PIECE + 4, PIECE}, NULL, PIECE, 6, true},
        {{4096, 4096, 4096, 4096}, one, PIECE, 4, true},
        {{4096, 2048, 1024, 4096}, one, PIECE, 4, true},
        {{2048, 4096, 4096, 1024}, one, PIECE, 4, true},
        {{4096, 8192, 4096, 8192}, two, PIECE, 12, true},
        {{4100, 8192, 4100, 8192}, two, PIECE, 13, true},
        {{4096, 1000, 4096, 4096}, one, PIECE, 1, false}, /* elements do not match */
        {{4096, 0, 4096, 4096}, one, PIECE, 1, false},
        {{384, 128, 384, 384}, one, 64, 1, false}, /* a third of a piece is no whole number */
        {{0, 0, 64, 0}, two, PIECE, 1, false},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        fixture f;
        cut(&f, cases[k].bytes, cases[k].group, cases[k].piece_bytes);
        check_cover(&f);
        assert_int_equal(runs(&f), cases[k].runs);
        if (cases[k].alike) {
            check_alike(&f, cases[k].runs);
        }
        ru_arena_fini(&f.arena);
    }
}

/* Of each step as much as its budget allows, whole runs of them; one that is larger than the budget
 * in the first of so many steps as have as much. */
static void a_step_moves_whole_runs(void **state)
{
    (void)state;
    static const int64_t bytes[STATES] = {4096, 4096, 4096, 4096};
    static const uint32_t one[STATES] = {5, 5, 5, 5};
    static const struct {
        int64_t budget_bytes;
        uint32_t held, now;
        int64_t every;
    } cases[] = {{1, 0, 4, 4 * PIECE}, {PIECE, 4, 4, 4},        {PIECE + 1, 0, 4, 4},
                 {2 * PIECE, 0, 4, 2}, {4 * PIECE, 0, 4, 1},    {8 * PIECE - 1, 0, 4, 1},
                 {8 * PIECE, 0, 8, 1}, {100 * PIECE, 0, 16, 1}, {8 * PIECE, 12, 4, 1},
                 {8 * PIECE, 16, 0, 1}};
    fixture f;
    cut(&f, bytes, one, PIECE);
    assert_int_equal(f.e.mover.n_pieces, 16);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        f.e.v.budget_bytes = cases[k].budget_bytes;
        f.e.v.start = 3;
        for (f.e.committed = 3; f.e.committed < 40; f.e.committed++) {
            bool due = (f.e.committed - 3) % cases[k].every == 0;
            assert_int_equal(rui_el_pieces_now(&f.e, cases[k].held), due ? cases[k].now : 0);
        }
    }
    ru_arena_fini(&f.arena);
}

/* What must come in one step must fit into what may be on its way. */
static void a_group_that_is_too_large_is_refused(void **state)
{
    (void)state;
    static const uint32_t one[STATES] = {5, 5, 5, 5};
    fixture f = {.bytes = {64 * RUI_EL_XFERS_MAX, 4, 12, 4}};
    ru_err err = {0};
    ru_arena_init(&f.arena, 0);
    f.e = (ru_elastic){
        .arena = &f.arena,
        .opt = {.n_state = STATES, .piece_bytes = 64, .state_bytes = f.bytes, .state_group = one}};
    assert_int_equal(rui_el_state_open(&f.e, &err), RU_E_LIMIT);
    f.e.opt.state_group = NULL;
    assert_ok(rui_el_state_open(&f.e, &err), err);
    assert_int_equal(f.e.mover.n_pieces, RUI_EL_XFERS_MAX + 3);
    ru_arena_fini(&f.arena);
}

RU_TESTS(train_elastic_state, cmocka_unit_test(state_is_cut_so_that_groups_stay_together),
         cmocka_unit_test(a_step_moves_whole_runs),
         cmocka_unit_test(a_group_that_is_too_large_is_refused))
