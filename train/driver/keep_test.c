/* data.cache: auto. The decision is noted with what was predicted and measured, processes of one
 * machine have one answer, and nothing that is learned changes. */
#include "train/driver/keep.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "comm/member/member.h"
#include "env/file/file.h"
#include "test/run_lab.h"
#include "test/test.h"
#include "test/where.h"

static int setup(void **state)
{
    return run_lab_open(state, "name: t\nmodel: {zoo: mlp, hidden: [4]}\n"
                               "data: {format: images, image_size: 48, train: [" RU_SOURCE_ROOT
                               "/test/data/reader/photos]}\n"
                               "train: {batch: 2, epochs: 5, threads: 1, device: ref}\n"
                               "checkpoint: {every: 0s}\n");
}

static const char *text_of(lab *l, const char *run, const char *file)
{
    ru_err err = {0};
    char *text;
    int64_t n;
    const char *path = ru_path_join(&l->arena, ru_path_join(&l->arena, l->dir, run), file);
    assert_ok(ru_file_read(path, 0, &l->arena, &text, &n, &err), err);
    return text;
}

static uint32_t plans_of(lab *l, const char *run)
{
    uint32_t n = 0;
    const char *at = text_of(l, run, "plans/installed.jsonl");
    while ((at = strstr(at, "\"policy\":\"keep\"")) != NULL) {
        at++;
        n++;
    }
    return n;
}

static void same_model(lab *l, const char *a, const char *b)
{
    const char *runs[] = {a, b};
    char *bytes[2];
    int64_t n[2];
    for (uint32_t k = 0; k < 2; k++) {
        ru_err err = {0};
        ru_ckpt_info info;
        assert_ok(ru_ckpt_find(ru_path_join(&l->arena, l->dir, runs[k]), &l->arena, &info, &err),
                  err);
        assert_ok(ru_file_read(ru_path_join(&l->arena, info.dir, "model.safetensors"), 0, &l->arena,
                               &bytes[k], &n[k], &err),
                  err);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], (size_t)n[0]);
}

static void auto_changes_nothing_that_is_learned(void **state)
{
    lab *l = *state;
    ru_err err = {0};
    ru_train_result r;
    char **names;
    uint32_t n = 0, answers = 0;
    ru_disk_tier tier = {ru_path_join(&l->arena, l->dir, "tier"), 64 << 20};
    assert_ok(run_lab_train(l, "none", false, 0, &r, &err), err);
    l->job.data.cache = RU_CACHE_AUTO;
    l->job.storage.at = &tier;
    l->job.storage.n = 1;
    assert_ok(run_lab_train(l, "first", false, 0, &r, &err), err);
    assert_ok(run_lab_train(l, "second", false, 0, &r, &err), err);
    same_model(l, "none", "first");
    same_model(l, "none", "second");
    /* with what epochs took after three and four of them; the middle one may be the same */
    assert_in_range(plans_of(l, "first"), 2, 5);
    assert_in_range(plans_of(l, "second"), 2, 5);
    assert_non_null(strstr(text_of(l, "first", "plans/measured.jsonl"), "first_s"));
    assert_non_null(strstr(text_of(l, "first", "plans/measured.jsonl"), "epoch_s"));
    const char *folder = ru_path_join(&l->arena, tier.path, "samples");
    assert_ok(ru_dir_list(folder, &l->arena, &names, &n, &err), err);
    for (uint32_t k = 0; k < n; k++) { /* measured once */
        answers += strncmp(names[k], "auto-", 5) == 0;
        assert_string_not_equal(names[k], "try");
    }
    assert_int_equal(answers, 1);
}

/* A trainer whose samples and disk are that fast. */
static void open_trainer(lab *l, rui_trainer *t, ru_disk_tier *tier, double disk_mb_per_s)
{
    ru_err err = {0};
    *tier = (ru_disk_tier){ru_path_join(&l->arena, l->dir, "tier"), 64 << 20};
    l->job.data.cache = RU_CACHE_AUTO;
    l->job.storage.at = tier;
    l->job.storage.n = 1;
    t->job = &l->job;
    t->arena = &l->arena;
    ru_data_options opt = ru_job_data_options(&l->job, false);
    opt.cache.kind = RU_CACHE_NONE;
    assert_ok(ru_dataset_open(&opt, &t->train_set, &err), err);
    assert_ok(ru_decisions_open(l->dir, "t", &t->decisions, &err), err);
    t->count = ru_dataset_count(t->train_set);
    const ru_keep_in measured = {.samples = t->count,
                                 .fetch_s = 1e-4,
                                 .decode_s = 1e-2,
                                 .unpack_s = 1e-5,
                                 .bytes = 4000,
                                 .decoded_bytes = 7000,
                                 .read_mb_per_s = disk_mb_per_s,
                                 .write_mb_per_s = disk_mb_per_s,
                                 .gain_min = 0.02};
    assert_ok(rui_keep_open(t, &opt, &measured, &err), err);
}

static void close_trainer(rui_trainer *t)
{
    ru_decisions_close(t->decisions);
    ru_dataset_close(t->train_set);
}

static double figure(const ru_conf_pairs *of, const char *name)
{
    for (uint32_t i = 0; i < of->n; i++) {
        if (strcmp(of->at[i].key, name) == 0) {
            return of->at[i].value;
        }
    }
    return RU_NAN;
}

/* Predicted is what an epoch took, whatever was measured of its parts before: the middle one of
 * those that were seen, while one that others delay counts no more than another. */
static void predictions_follow_epochs(void **state)
{
    enum { EPOCHS = 12 };
    static const int64_t took_ms[EPOCHS] = {900, 200, 220, 210, 900, 215,
                                            205, 208, 190, 210, 212, 214},
                         waited_ms[EPOCHS] = {800, 150, 0, 180, 850, 20, 0, 0, 0, 0, 0, 0};
    static const struct {
        uint32_t epoch; /* after so many: */
        double s;
    } said[] = {{3, 0.22}, {4, 0.21}, {6, 0.215}, {10, 0.21}};
    lab *l = *state;
    ru_err err = {0};
    ru_disk_tier tier;
    rui_trainer t = {.batch = 1};
    open_trainer(l, &t, &tier, 500);
    assert_ok(rui_keep_begin(&t, &err), err);
    ru_time now = {0};
    uint32_t row = 0;
    for (uint32_t e = 0; e < EPOCHS; e++) {
        ru_world w = {0};
        for (int64_t k = 0; k < t.count; k++) {
            ru_time begun = ru_time_after(now, 1000000000); /* an evaluation: it does not count */
            now = ru_time_after(begun, took_ms[e] * 1000000 / t.count);
            t.samples++;
            rui_keep_waited(&t, waited_ms[e] * 1000000 / t.count);
            rui_keep_stepped(&t, begun, now);
            if (e == 0 && k + 2 == t.count) { /* it follows the first epoch while it goes on */
                assert_ok(ru_decisions_get(t.decisions, &l->arena, &w, &err), err);
                assert_near(figure(&ru_world_plan_newest(&w, "keep")->predicted, "first_s"), 0.9,
                            1e-6);
            }
        }
        row += row + 1 < RU_ARRAY_LEN(said) && said[row + 1].epoch <= e + 1;
        assert_ok(ru_decisions_get(t.decisions, &l->arena, &w, &err), err);
        const ru_world_plan *p = ru_world_plan_newest(&w, "keep");
        if (e == 0) {
            assert_near(figure(&p->measured, "first_s"), 0.9, 1e-6);
        } else if (e > 1) {
            assert_near(figure(&p->predicted, "epoch_s"), said[row].s, 1e-6);
        }
        if (e + 1 == EPOCHS) { /* of the two since */
            assert_near(figure(&p->measured, "epoch_s"), 0.212, 1e-6);
        }
    }
    close_trainer(&t);
}

enum { HOSTS = 200 };

/* 200 hosts, then one, then 200 again, with a disk that is worth it for one host or for none. */
static void go_and_come(lab *l, double disk_mb_per_s, bool kept)
{
    static const uint32_t hosts[] = {HOSTS, 1, HOSTS};
    static ru_member_info crew[HOSTS];
    ru_err err = {0};
    ru_disk_tier tier;
    rui_trainer t = {.crew = crew};
    open_trainer(l, &t, &tier, disk_mb_per_s);
    for (uint32_t k = 0; k < HOSTS; k++) {
        (void)snprintf(crew[k].host, sizeof crew[k].host, "host%u", k);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(hosts); k++) {
        char with[32];
        ru_world w = {0};
        t.n_crew = hosts[k];
        assert_ok(rui_keep_begin(&t, &err), err);
        assert_ok(ru_decisions_get(t.decisions, &l->arena, &w, &err), err);
        const ru_world_plan *p = ru_world_plan_newest(&w, "keep");
        assert_non_null(p);
        /* of the last of five epochs */
        assert_true(figure(&p->predicted, "hit_ratio") == (kept && k > 0 ? 1 : 0));
        assert_int_equal(w.plans.n, kept && k == 2 ? 2 : k + 1); /* a form that is kept stays */
        (void)snprintf(with, sizeof with, "\"hosts\":%u,", kept && k > 0 ? 1 : hosts[k]);
        assert_non_null(strstr(p->input, with));
    }
    close_trainer(&t);
}

/* A run on many hosts keeps nothing, since each meets a sample too seldom; when the others leave,
 * the one that is left keeps samples, and what is predicted follows those that come again. */
static void hosts_come_and_go(void **state)
{
    go_and_come(*state, 500, true);
}

static void a_disk_may_be_too_slow_for_any_host(void **state)
{
    go_and_come(*state, 0.1, false);
}

/* An epoch in which hosts left, though the stream opened anew in it, and those before it say
 * nothing of the next ones. */
static void epochs_of_other_hosts_do_not_count(void **state)
{
    static ru_member_info crew[2] = {{.host = "a"}, {.host = "b"}};
    lab *l = *state;
    ru_err err = {0};
    ru_disk_tier tier;
    rui_trainer t = {.batch = 1, .crew = crew, .n_crew = 2};
    open_trainer(l, &t, &tier, 0.1);
    assert_ok(rui_keep_begin(&t, &err), err);
    ru_time now = {0};
    for (uint32_t e = 0; e < 9; e++) {
        int64_t took_ms = e < 4 ? 900 : e == 4 ? 600 : 300;
        for (int64_t k = 0; k < t.count; k++) {
            if (e == 4 && k == 1) {
                t.n_crew = 1;
                assert_ok(rui_keep_begin(&t, &err), err);
            }
            ru_time begun = ru_time_after(now, 1);
            now = ru_time_after(begun, took_ms * 1000000 / t.count);
            t.samples++;
            rui_keep_stepped(&t, begun, now);
        }
        ru_world w = {0};
        assert_ok(ru_decisions_get(t.decisions, &l->arena, &w, &err), err);
        const ru_world_plan *p = ru_world_plan_newest(&w, "keep");
        if (e == 3) {
            assert_near(figure(&p->predicted, "epoch_s"), 0.9, 1e-6);
        } else if (e == 4) { /* the one in which they left */
            assert_true(isnan(figure(&p->measured, "epoch_s")));
            assert_true(fabs(figure(&p->predicted, "epoch_s") - 0.6) > 0.1);
        } else if (e == 5) { /* the first one of a new choice */
            assert_near(figure(&p->measured, "first_s"), 0.3, 1e-6);
        } else if (e > 6) {
            assert_near(figure(&p->predicted, "epoch_s"), 0.3, 1e-6);
        }
    }
    close_trainer(&t);
}

/* Who comes while samples are kept: the form stays, and the end of the epoch tells what of its
 * reads a host still finds: of five epochs' halves, 1 - 1/16 in the last. */
static void hosts_that_come_lower_the_hits(void **state)
{
    static ru_member_info crew[2] = {{.host = "a"}, {.host = "b"}};
    lab *l = *state;
    ru_err err = {0};
    ru_disk_tier tier;
    rui_trainer t = {.batch = 1, .crew = crew, .n_crew = 1};
    open_trainer(l, &t, &tier, 500);
    assert_ok(rui_keep_begin(&t, &err), err);
    ru_time now = {0};
    for (int64_t k = 0; k < 2 * t.count; k++) {
        if (k == t.count + 1) {
            t.n_crew = 2;
            assert_ok(rui_keep_begin(&t, &err), err);
        }
        now = ru_time_after(now, 100000000);
        t.samples++;
        rui_keep_stepped(&t, ru_time_after(now, -100000000), now);
        ru_world w = {0};
        assert_ok(ru_decisions_get(t.decisions, &l->arena, &w, &err), err);
        const ru_world_plan *p = ru_world_plan_newest(&w, "keep");
        bool last = k + 1 == 2 * t.count;
        assert_near(figure(&p->predicted, "hit_ratio"), last ? 0.9375 : 1, 1e-9);
        assert_non_null(strstr(p->input, last ? "\"hosts\":2," : "\"hosts\":1,"));
    }
    close_trainer(&t);
}

RU_TESTS(train_keep,
         cmocka_unit_test_setup_teardown(hosts_that_come_lower_the_hits, setup, run_lab_close),
         cmocka_unit_test_setup_teardown(hosts_come_and_go, setup, run_lab_close),
         cmocka_unit_test_setup_teardown(a_disk_may_be_too_slow_for_any_host, setup, run_lab_close),
         cmocka_unit_test_setup_teardown(epochs_of_other_hosts_do_not_count, setup, run_lab_close),
         cmocka_unit_test_setup_teardown(predictions_follow_epochs, setup, run_lab_close),
         cmocka_unit_test_setup_teardown(auto_changes_nothing_that_is_learned, setup,
                                         run_lab_close))
