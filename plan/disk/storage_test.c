#include "plan/disk/storage.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"

enum { FILES = 40, GROUPS = 4, BRUTE = 10 };

typedef struct small {
    ru_density_file files[FILES];
    ru_storage_in in;
} small;

static const ru_storage_method without_trees[] = {
    RU_STORAGE_HISTORY, RU_STORAGE_FIRST_FIT,  RU_STORAGE_CACHESACK, RU_STORAGE_LIFETIME,
    RU_STORAGE_HASH,    RU_STORAGE_TRUE_CLASS, RU_STORAGE_HINDSIGHT, RU_STORAGE_GREEDY};

static void make(small *s, ru_rng *r, uint32_t n_max)
{
    memset(s, 0, sizeof *s);
    uint32_t n = 1 + ru_rng_below(r, n_max);
    double t = 0, all = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t g = ru_rng_below(r, GROUPS);
        t += ru_rng_below(r, 3) * 100.0;
        double size = 1e9 * (1.0 + ru_rng_below(r, 9)) * (g + 1.0);
        s->files[i] = (ru_density_file){.open_s = t,
                                        .group = g,
                                        .input_bytes = 3 * size,
                                        .writers = 10,
                                        .readers = ru_rng_below(r, 3),
                                        .size_bytes = size,
                                        .life_s = ru_rng_below(r, 6) * 100.0,
                                        .ops = size / 1e5 * ru_rng_below(r, 20) / (g + 1.0)};
        all += size;
    }
    s->in = (ru_storage_in){.files = s->files,
                            .n = n,
                            .n_groups = GROUPS,
                            .from_s = ru_rng_below(r, 2) * t / 2,
                            .quota_bytes = fmax(1, all * ru_rng_f64(r) * 0.7),
                            .prices = {1.27e-19, 2.5e-6, 6.3e-19, 1.1e-13, 8e-3, 150e6},
                            .ttl_s = 300,
                            .window_s = 500,
                            .spill_low = 0.01,
                            .spill_high = 0.15,
                            .look_s = 900,
                            .decide_s = 60,
                            .seed = 3};
}

static void methods_keep_the_quota_and_count_right(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 4);
    ru_arena a;
    ru_arena_init(&a, 0);
    for (uint32_t round = 0; round < 400; round++) {
        small s;
        make(&s, &r, FILES);
        for (uint32_t m = 0; m < RU_ARRAY_LEN(without_trees); m++) {
            ru_storage_plan p;
            ru_err err;
            s.in.method = without_trees[m];
            assert_ok(ru_plan_storage(&s.in, &a, &a, &p, &err), err);
            assert_ok(ru_plan_storage_check(&s.in, &p, &a, &err), err);
        }
        ru_arena_rewind(&a, (ru_arena_mark){0});
    }
    ru_arena_fini(&a);
}

/* The most that whole files can save, by trying every set. */
static double brute(const small *s)
{
    double best = 0;
    for (uint32_t set = 0; set < 1u << s->in.n; set++) {
        double saved = 0;
        bool fits = true;
        for (uint32_t i = 0; i < s->in.n && fits; i++) {
            const ru_density_file *f = &s->files[i];
            double used = 0;
            if ((set >> i & 1) == 0) {
                continue;
            }
            for (uint32_t k = 0; k <= i; k++) {
                const ru_density_file *o = &s->files[k];
                bool there = k == i || o->open_s + o->life_s > f->open_s;
                used += (set >> k & 1) != 0 && there ? o->size_bytes : 0;
            }
            fits = used <= s->in.quota_bytes && f->open_s >= s->in.from_s;
            saved += ru_density_saving(&s->in.prices, f);
        }
        best = fits ? fmax(best, saved) : best;
    }
    return best;
}

static void no_method_saves_more_than_the_best_set(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 5);
    ru_arena a;
    ru_arena_init(&a, 0);
    double greedy = 0, bounds = 0, all = 0;
    for (uint32_t round = 0; round < 60; round++) {
        small s;
        make(&s, &r, BRUTE);
        double best = brute(&s), most;
        ru_err why;
        assert_ok(ru_plan_storage_bound(&s.in, &a, &most, &why), why);
        assert_true(most >= best * (1 - 1e-9));
        all += best;
        bounds += most;
        for (uint32_t m = 0; m < RU_ARRAY_LEN(without_trees); m++) {
            ru_storage_plan p;
            ru_err err;
            s.in.method = without_trees[m];
            bool parts = s.in.method == RU_STORAGE_HASH || s.in.method == RU_STORAGE_TRUE_CLASS;
            assert_ok(ru_plan_storage(&s.in, &a, &a, &p, &err), err);
            assert_true(parts || p.saving_usd <= best + 1e-12 || p.demoted > 0);
            assert_true(p.saving_usd <= most * (1 + 1e-9) + 1e-15);
            greedy += s.in.method == RU_STORAGE_GREEDY ? p.saving_usd : 0;
        }
    }
    assert_true(greedy > 0.85 * all && greedy < all); /* not the best, but near */
    assert_true(bounds < 1.2 * all); /* parts of files are worth more than whole ones */
    ru_arena_fini(&a);
}

/* Files of one size, and room for a whole number of them: the program has a best answer of whole
 * files, so the bound is what the best set saves. */
static void the_bound_is_reached_by_files_of_one_size(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 9);
    ru_arena a;
    ru_arena_init(&a, 0);
    uint32_t tight = 0;
    for (uint32_t round = 0; round < 200; round++) {
        small s;
        ru_err err;
        double most, all = 0;
        make(&s, &r, BRUTE);
        for (uint32_t i = 0; i < s.in.n; i++) {
            s.files[i].size_bytes = 1e9;
            s.files[i].ops = 1000.0 * ru_rng_below(&r, 50);
            s.files[i].life_s = fmax(s.files[i].life_s, 1);
            bool counts = s.files[i].open_s >= s.in.from_s;
            all += counts ? fmax(0, ru_density_saving(&s.in.prices, &s.files[i])) : 0;
        }
        s.in.quota_bytes = 1e9 * (1 + ru_rng_below(&r, 3));
        double best = brute(&s);
        assert_ok(ru_plan_storage_bound(&s.in, &a, &most, &err), err);
        assert_true(fabs(most - best) <= 1e-7 * all);
        tight += best < all * 0.999;
        ru_arena_rewind(&a, (ru_arena_mark){0});
    }
    assert_true(tight > 20); /* the quota left something out */
    ru_arena_fini(&a);
}

/* Two jobs that read alike share a limit, the best one for both; those whose size is told do not.
 */
static void hindsight_shares_limits_by_what_is_read(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    small s = {0};
    for (uint32_t i = 0; i < 4; i++) {
        s.files[i] = (ru_density_file){.open_s = i,
                                       .group = i,
                                       .input_bytes = 1e12,
                                       .writers = 10,
                                       .readers = i < 2 ? 10 : 9,
                                       .size_bytes = i % 2 == 0 ? 1e10 : 1e11,
                                       .life_s = 100,
                                       .ops = 1.5e5};
    }
    s.in = (ru_storage_in){.files = s.files,
                           .n = 4,
                           .n_groups = GROUPS,
                           .quota_bytes = 1e13,
                           .prices = {1.27e-19, 2.5e-6, 6.3e-19, 1.1e-13, 8e-3, 150e6},
                           .method = RU_STORAGE_HINDSIGHT};
    double small_usd = ru_density_saving(&s.in.prices, &s.files[0]);
    double large_usd = ru_density_saving(&s.in.prices, &s.files[1]);
    assert_true(small_usd > 0 && large_usd < 0 && small_usd + 0.1 * large_usd > 0);
    ru_storage_plan p;
    ru_err err;
    assert_ok(ru_plan_storage(&s.in, &a, &a, &p, &err), err);
    assert_ok(ru_plan_storage_check(&s.in, &p, &a, &err), err);
    assert_near(p.saving_usd, 2 * small_usd + 0.1 * large_usd, 1e-12);
    assert_near(p.places[0].limit_bytes, 1e10, 0);
    assert_near(p.places[1].limit_bytes, 1e10, 0);
    assert_near(p.places[3].limit_bytes, 0, 0);
    ru_arena_fini(&a);
}

static void refused(const small *s, const ru_storage_plan *p, ru_arena *a, const char *what)
{
    ru_err err;
    if (ru_plan_storage_check(&s->in, p, a, &err) == RU_OK) {
        fail_msg("the checker took a plan with another %s", what);
    }
    assert_true(strlen(err.text) > 10);
}

static void changed_plans_are_refused(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(ru_test_seed(), 6);
    ru_arena a;
    ru_arena_init(&a, 0);
    uint32_t tried = 0;
    for (uint32_t round = 0; round < 200; round++) {
        small s;
        ru_storage_plan p;
        make(&s, &r, FILES);
        s.in.method = RU_STORAGE_FIRST_FIT;
        if (ru_plan_storage(&s.in, &a, &a, &p, NULL) != RU_OK || p.n == 0) {
            continue;
        }
        tried++;
        ru_storage_plan was = p;
        ru_storage_place *at = &p.places[ru_rng_below(&r, p.n)], before = *at;
        at->file++;
        refused(&s, &p, &a, "file");
        *at = before;
        at->ssd_bytes = before.ssd_bytes > 0 ? 0 : s.files[at->file].size_bytes;
        refused(&s, &p, &a, "place");
        *at = before;
        at->ssd_bytes = 2 * s.files[at->file].size_bytes;
        refused(&s, &p, &a, "size");
        *at = before;
        at->limit_bytes = before.limit_bytes > 0 ? 0 : 1;
        refused(&s, &p, &a, "limit");
        *at = before;
        p.admitted++;
        refused(&s, &p, &a, "number of files");
        p = was;
        p.demoted++;
        refused(&s, &p, &a, "number of demoted files");
        p = was;
        p.saving_usd += p.hdd_usd / 100 + 1e-9;
        refused(&s, &p, &a, "saving");
        p = was;
        p.hdd_usd = 1.01 * p.hdd_usd + 1e-9;
        refused(&s, &p, &a, "cost");
        p = was;
        p.peak_bytes += s.in.quota_bytes / 10;
        refused(&s, &p, &a, "peak");
        p = was;
        p.n--;
        refused(&s, &p, &a, "length");
    }
    assert_true(tried > 100);
    ru_arena_fini(&a);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    ru_rng r = ru_rng_from(1, 7);
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_storage_plan p;
    ru_err err;
    small s;
    static const double bad[] = {RU_NAN, -1, INFINITY};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        for (uint32_t field = 0; field < 5; field++) {
            make(&s, &r, 1);
            ru_density_file *f = &s.files[0];
            double *at[] = {&f->size_bytes, &f->life_s, &f->ops, &f->open_s, &f->input_bytes};
            *at[field] = bad[k];
            assert_int_equal(ru_plan_storage(&s.in, &a, &a, &p, &err), RU_E_ARG);
        }
    }
    make(&s, &r, 1);
    s.files[0].group = GROUPS;
    assert_int_equal(ru_plan_storage(&s.in, &a, &a, &p, &err), RU_E_ARG);
    make(&s, &r, 1);
    s.in.quota_bytes = 0;
    assert_int_equal(ru_plan_storage(&s.in, &a, &a, &p, &err), RU_E_ARG);
    make(&s, &r, 1);
    s.in.decide_s = 0;
    s.in.method = RU_STORAGE_HASH;
    assert_int_equal(ru_plan_storage(&s.in, &a, &a, &p, &err), RU_E_ARG);
    make(&s, &r, 1);
    s.in.method = RU_STORAGE_TREES;
    assert_int_equal(ru_plan_storage(&s.in, &a, &a, &p, &err), RU_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "XGBoost"));
    ru_arena_fini(&a);
}

RU_TESTS(plan_storage, cmocka_unit_test(the_bound_is_reached_by_files_of_one_size),
         cmocka_unit_test(methods_keep_the_quota_and_count_right),
         cmocka_unit_test(no_method_saves_more_than_the_best_set),
         cmocka_unit_test(hindsight_shares_limits_by_what_is_read),
         cmocka_unit_test(changed_plans_are_refused), cmocka_unit_test(bad_files_are_refused))
