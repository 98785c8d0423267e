/* The screen fits the terminal, whatever there is to show. */
#include "test/test.h"
#include "watch/top.h"

#include <string.h>

enum { RANKS = 40 };

static void check_fits(const char *text, uint32_t rows, uint32_t columns)
{
    uint32_t lines = 0;
    for (const char *end; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        assert_true(end - text <= (int64_t)columns);
        lines++;
    }
    assert_true(lines <= rows);
    assert_int_equal(strlen(text), 0);
}

static const char *draw(const ru_top *t, uint32_t rows, uint32_t columns, ru_arena *arena)
{
    ru_text text = ru_text_arena(arena);
    ru_top_draw(t, rows, columns, &text);
    check_fits(text.p, rows, columns);
    return text.p;
}

static void test_sizes(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_top_rank ranks[RANKS];
    for (uint32_t k = 0; k < RANKS; k++) {
        ranks[k] = (ru_top_rank){.rank = k + 1,
                                 .step = 100 - k % 3,
                                 .steps_per_s = 12.5,
                                 .part = {0.5, 0.25, 0.125, 0.1, 0.025},
                                 .sent_per_s = {0, 1 << 20, 3 << 20, 1 << 10}};
    }
    ranks[1].quiet_s = 7;
    ru_top t = {.name = "runs/lenet",
                .step = 100,
                .steps = 400,
                .loss = 0.5,
                .samples_per_s = 1600,
                .left_s = 24,
                .ranks = ranks,
                .n = 3};
    const char *text = draw(&t, 24, 80, &arena);
    assert_non_null(strstr(text, "step 100 of 400 (25 %)  3 ranks  ends in 24"));
    assert_non_null(strstr(text, "[#####...............]"));
    assert_non_null(strstr(text, "   1      100          12.5   50%   25%   12%   10%    2%"));
    assert_non_null(strstr(text, "   2       99    -1  silent for 7 s"));
    ranks[1].gone = "lost";
    text = draw(&t, 24, 80, &arena);
    assert_non_null(strstr(text, "  2 of 3 ranks  "));
    assert_non_null(strstr(text, "   2       99    -1  lost 7 s ago"));
    t.n = RANKS;
    t.causes[t.n_causes++] =
        "Rank 3 computes 2.00 times as long as the others since step 40; this costs 21 % of the "
        "time of a step.";
    t.causes[t.n_causes++] =
        "Averylongwordwithoutanyblankinitthatnoterminalofeightycolumnscanholdin"
        "onelineofitsownwhateveritdoes";
    for (uint32_t i = 0; i < RU_TOP_EVENTS_MAX; i++) {
        t.events[t.n_events++] = "step 9: join, worker 2";
    }
    text = draw(&t, 24, 80, &arena);
    assert_non_null(strstr(text, "more; a taller terminal shows them"));
    assert_non_null(strstr(text, "Rank 3 computes"));
    for (uint32_t rows = 8; rows < 60; rows++) {
        for (uint32_t columns = 40; columns < 130; columns += 7) {
            (void)draw(&t, rows, columns, &arena);
        }
    }
    t.follow = (ru_top_follow){.told = true, .arrived = 900, .queue = 60, .workers = 3};
    assert_non_null(strstr(draw(&t, 24, 80, &arena), "queue: 60 of 900 samples, 3 workers"));
    t.follow.workers = 0;
    assert_non_null(strstr(draw(&t, 24, 80, &arena), "of 900 samples, waits for samples"));
    t.functions = (ru_top_functions){.workers = 2, .memory_mb = 442, .usd = 0.012, .calls = 6};
    assert_non_null(
        strstr(draw(&t, 24, 80, &arena), "runs 2 functions of 442 MB, 0.012 USD spent in 6 calls"));
    t = (ru_top){.name = "runs/none", .left_s = -1};
    (void)draw(&t, 8, 40, &arena);
    ru_arena_fini(&arena);
}

#define T(f) cmocka_unit_test(f)
RU_TESTS(watch_top, T(test_sizes))
