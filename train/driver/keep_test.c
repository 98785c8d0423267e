/* data.cache: auto. The decision is noted with what was predicted and measured, processes of one
 * machine have one answer, and nothing that is learned changes. */
#include "train/driver/keep.h"

#include <string.h>

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
    assert_int_equal(plans_of(l, "first"), 2); /* the second one with the time of training */
    assert_int_equal(plans_of(l, "second"), 2);
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

RU_TESTS(train_keep, cmocka_unit_test_setup_teardown(auto_changes_nothing_that_is_learned, setup,
                                                     run_lab_close))
