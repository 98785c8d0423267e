/* Placement of files by forests from the library, on traces whose law is known. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "plan/disk/storage_live.h"
#include "solve/solver.h"
#include "test/test.h"

enum { FILES = 900, GROUPS = 30 };

/* Files of even groups are small and busy, those of odd groups large and quiet; jobs of odd groups
 * read no more, so that the record of the group alone tells them apart. */
static void make(ru_density_file *f, uint64_t seed)
{
    ru_rng r = ru_rng_from(seed, 1);
    for (uint32_t i = 0; i < FILES; i++) {
        uint32_t g = ru_rng_below(&r, GROUPS);
        double size = (g % 2 == 0 ? 5e8 : 4e10) * ru_math_exp(0.2 * ru_rng_normal(&r));
        f[i] = (ru_density_file){.open_s = 60.0 * i,
                                 .group = g,
                                 .input_bytes = 1e11,
                                 .writers = 400,
                                 .size_bytes = size,
                                 .life_s = 600,
                                 .ops = g % 2 == 0 ? 1e4 : size / 1e6};
    }
}

static void forests_tell_files_that_save(void **state)
{
    (void)state;
    if (!ru_solver_has_trees()) {
        return; /* storage_test.c proves what is said then */
    }
    static ru_density_file files[FILES];
    make(files, 11);
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_storage_in in = {.files = files,
                        .n = FILES,
                        .n_groups = GROUPS,
                        .from_s = 27000,
                        .quota_bytes = 1e12,
                        .prices = {1.27e-19, 2.5e-6, 6.3e-19, 1.1e-13, 8e-3, 150e6},
                        .method = RU_STORAGE_TREES,
                        .stake = 0.25,
                        .solver = &ru_solver_library,
                        .spill_low = 0.01,
                        .spill_high = 0.15,
                        .look_s = 900,
                        .decide_s = 60,
                        .seed = 1};
    ru_storage_plan p;
    ru_err err;
    assert_ok(ru_plan_storage(&in, &a, &a, &p, &err), err);
    assert_ok(ru_plan_storage_check(&in, &p, &a, &err), err);
    double most = 0;
    for (uint32_t i = 0; i < FILES; i++) {
        most +=
            files[i].open_s >= in.from_s ? fmax(0, ru_density_saving(&in.prices, &files[i])) : 0;
    }
    assert_true(p.saving_usd > 0.95 * most);
    ru_storage_plan other;
    in.method = RU_STORAGE_FIRST_FIT;
    assert_ok(ru_plan_storage(&in, &a, &a, &other, &err), err);
    assert_true(other.saving_usd < 0); /* what fits is not what saves */
    in.method = RU_STORAGE_CATEGORY;
    assert_ok(ru_plan_storage(&in, &a, &a, &other, &err), err);
    assert_ok(ru_plan_storage_check(&in, &other, &a, &err), err);
    assert_true(other.saving_usd > 0.9 * most);
    ru_arena_fini(&a);
}

/* What has not ended says nothing: the first decision is the same whatever comes of these files. */
static void the_future_is_not_looked_at(void **state)
{
    (void)state;
    if (!ru_solver_has_trees()) {
        return;
    }
    static ru_density_file files[FILES];
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_storage_plan p[2];
    ru_err err;
    for (uint32_t k = 0; k < 2; k++) {
        make(files, 12);
        const ru_storage_in in = {.files = files,
                                  .n = FILES,
                                  .n_groups = GROUPS,
                                  .from_s = 27000,
                                  .quota_bytes = 1e13,
                                  .prices = {1.27e-19, 2.5e-6, 6.3e-19, 1.1e-13, 8e-3, 150e6},
                                  .method = RU_STORAGE_TREES,
                                  .stake = 0.25,
                                  .solver = &ru_solver_library,
                                  .seed = 1};
        for (uint32_t i = 0; i < FILES; i++) {
            bool ended = files[i].open_s + files[i].life_s <= in.from_s;
            files[i].ops = k == 1 && !ended ? 1e6 - files[i].ops : files[i].ops;
        }
        assert_ok(ru_plan_storage(&in, &a, &a, &p[k], &err), err);
    }
    assert_near(p[0].places[0].limit_bytes, p[1].places[0].limit_bytes, 0);
    assert_true(fabs(p[0].saving_usd - p[1].saving_usd) > 0);
    ru_arena_fini(&a);
}

/* All files turn to losses when forests begin to place them: those that may stake little lose less
 * until the records of the groups show it, and those that may stake nothing admit nothing. */
static void losses_end_with_what_was_saved(void **state)
{
    (void)state;
    if (!ru_solver_has_trees()) {
        return;
    }
    static ru_density_file files[FILES];
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_storage_plan free, careful;
    ru_err err;
    make(files, 13);
    ru_storage_in in = {.files = files,
                        .n = FILES,
                        .n_groups = GROUPS,
                        .from_s = 27000,
                        .quota_bytes = 1e13,
                        .prices = {1.27e-19, 2.5e-6, 6.3e-19, 1.1e-13, 8e-3, 150e6},
                        .method = RU_STORAGE_TREES,
                        .stake = 1e9,
                        .solver = &ru_solver_library,
                        .seed = 1};
    double before = 0;
    for (uint32_t i = 0; i < FILES; i++) {
        before +=
            files[i].open_s < in.from_s ? fmax(0, ru_density_saving(&in.prices, &files[i])) : 0;
        if (files[i].open_s + files[i].life_s > in.from_s) {
            files[i].size_bytes *= 100;
            files[i].ops = 0;
        }
    }
    assert_ok(ru_plan_storage(&in, &a, &a, &free, &err), err);
    in.stake = 1e-3;
    assert_ok(ru_plan_storage(&in, &a, &a, &careful, &err), err);
    assert_true(free.saving_usd < 0 && free.saving_usd > -before);
    assert_true(careful.saving_usd <= 0 && careful.saving_usd > 0.5 * free.saving_usd);
    in.stake = 0;
    assert_ok(ru_plan_storage(&in, &a, &a, &careful, &err), err);
    assert_true(careful.admitted == 0);
    ru_arena_fini(&a);
}

/* One opening at a time: first fit until forests are there, then they tell files apart, also when
 * the program says how large a file will be; without forests again it is first fit again. */
static void live_openings_are_learned(void **state)
{
    (void)state;
    if (!ru_solver_has_trees()) {
        return;
    }
    static ru_density_file files[FILES];
    make(files, 14);
    ru_arena a;
    ru_arena_init(&a, 0);
    const ru_storage_in in = {.files = files,
                              .n = FILES / 2,
                              .n_groups = GROUPS,
                              .quota_bytes = 1e13,
                              .prices = {1.27e-19, 2.5e-6, 6.3e-19, 1.1e-13, 8e-3, 150e6},
                              .method = RU_STORAGE_TREES,
                              .stake = 0.25,
                              .solver = &ru_solver_library,
                              .seed = 1};
    ru_storage_live *l;
    ru_storage_forests forests;
    ru_err err;
    assert_ok(ru_storage_live_begin(&in, &a, &l, &err), err);
    assert_ok(ru_storage_train(&in, &a, &forests, &err), err);
    uint32_t right[2] = {0}, n = 0;
    for (uint32_t i = 0; i < FILES; i++) {
        const ru_density_file *f = &files[i];
        ru_storage_wish w = ru_storage_live_open(l, f, 0, 1e13);
        assert_true(w.learned == (i >= FILES / 2));
        if (w.learned) {
            double size = f->group % 2 == 0 ? 5e8 : 4e10;
            ru_storage_wish told = ru_storage_live_open(l, f, size, 1e13);
            bool saves = ru_density_saving(&in.prices, f) > 0;
            right[0] += saves == (w.limit_bytes > 0);
            right[1] += saves == (told.limit_bytes >= size);
            assert_true((told.saving_usd > 0) == (told.limit_bytes > 0));
            assert_true(ru_storage_live_open(l, f, size, 0.9 * size).limit_bytes == 0);
            n++;
        }
        ru_storage_live_ended(l, f, fmin(f->size_bytes, w.learned ? w.limit_bytes : 0));
        if (i + 1 == FILES / 2) {
            ru_storage_live_train(l, &forests);
        }
    }
    assert_true(right[0] > 0.95 * n && right[1] > 0.95 * n);
    ru_storage_live_train(l, NULL);
    assert_false(ru_storage_live_open(l, &files[0], 0, 1e13).learned);
    ru_arena_fini(&a);
}

RU_TESTS(test_storage_trees, cmocka_unit_test(forests_tell_files_that_save),
         cmocka_unit_test(live_openings_are_learned), cmocka_unit_test(the_future_is_not_looked_at),
         cmocka_unit_test(losses_end_with_what_was_saved))
