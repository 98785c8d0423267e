/* Checkpoints in the folders of `storage`: the same bytes, whatever is full, lost or killed. */
#include "run/ckpt_store.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"
#include "env/file/file.h"
#include "run/ckpt.h"
#include "test/scratch.h"
#include "test/test.h"

enum { N = 3000, KILLS = 10 };

typedef struct box {
    ru_scratch *f;
    const char *run;
    ru_disk_tier tiers[2];
    ru_ckpt_storage storage;
} box;

static box make_box(ru_scratch *f, int64_t fast)
{
    box b = {.f = f,
             .run = ru_path_join(&f->arena, f->root, "my run"),
             .tiers = {{ru_path_join(&f->arena, f->root, "fast"), fast},
                       {ru_path_join(&f->arena, f->root, "slow"), 64 << 20}},
             .storage = {.n_tiers = 2}};
    return b;
}

/* A checkpoint of two files whose values follow from the step. */
static ru_status save(box *b, int64_t step, uint32_t keep, ru_err *err)
{
    float values[N];
    const int64_t n = N;
    ru_ckpt_folder f;
    const ru_array a = {.name = "w", .type = ru_type_make(RU_F32, 1, &n), .data = values};
    for (uint32_t k = 0; k < N; k++) {
        values[k] = (float)step + (float)k;
    }
    b->storage.tiers = b->tiers;
    RU_TRY(ru_ckpt_begin(&f, b->run, step, &b->f->arena, err));
    ru_status st = ru_ckpt_to_storage(&f, &b->storage, step, err);
    st = st == RU_OK ? ru_ckpt_put_arrays(&f, "model.safetensors", &a, 1, err) : st;
    st = st == RU_OK ? ru_ckpt_put_arrays(&f, "optimizer.safetensors", &a, 1, err) : st;
    st = st == RU_OK ? ru_ckpt_put_text(&f, "state.json", "{}", 2, err) : st;
    RU_TRY(ru_ckpt_finish(&f, st, err));
    return ru_ckpt_prune(&f, keep, 0, err);
}

static ru_status read_one(const char *dir, ru_arena *arena, void *out, ru_err *err)
{
    ru_map_file map;
    ru_safetensors s;
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
    RU_TRY(ru_ckpt_manifest_check(dir, arena, err));
    for (uint32_t k = 0; k < 2; k++) {
        RU_TRY(ru_ckpt_tensors(dir, names[k], arena, &map, &s, err));
        float first;
        memcpy(&first, ru_arrays_find(&s.tensors, "w")->data, sizeof first);
        ru_file_unmap(&map);
        *(int64_t *)out = (int64_t)first;
    }
    return RU_OK;
}

/* Step of the newest checkpoint that is whole; its values are those of this step. */
static int64_t newest(box *b)
{
    int64_t step = 0;
    assert_ok(ru_ckpt_newest(b->run, &b->f->arena, read_one, &step, &b->f->err), b->f->err);
    return step;
}

/* Checkpoints in storage, and bytes in each folder. */
static uint32_t stored(box *b, ru_ckpt_stored **at)
{
    uint32_t n;
    assert_ok(ru_ckpt_stored_list(b->tiers, 2, true, &b->f->arena, at, &n, &b->f->err), b->f->err);
    return n;
}

/* As the next start of the run does. */
static void remove_leftovers(box *b)
{
    char **names;
    uint32_t n;
    const char *all = ru_path_join(&b->f->arena, b->run, "checkpoints");
    assert_ok(ru_dir_list(all, &b->f->arena, &names, &n, &b->f->err), b->f->err);
    for (uint32_t k = 0; k < n; k++) {
        if (ru_str_ends(ru_str_c(names[k]), RU_CKPT_TEMP)) {
            const char *path = ru_path_join(&b->f->arena, all, names[k]);
            assert_ok(ru_ckpt_remove(path, &b->f->err), b->f->err);
        }
    }
}

/* Names of the map's folder, one a line. */
static const char *names_in(box *b)
{
    char **names;
    uint32_t n;
    ru_text t = ru_text_arena(&b->f->arena);
    const char *dir = ru_path_join(&b->f->arena, b->tiers[1].path, "files/checkpoints");
    assert_ok(ru_dir_list(dir, &b->f->arena, &names, &n, &b->f->err), b->f->err);
    for (uint32_t k = 0; k < n; k++) {
        ru_text_putf(&t, "%s\n", names[k]);
    }
    return t.p;
}

static void test_same_bytes(void **state)
{
    box b = make_box(*state, 1 << 20);
    ru_ckpt_stored *at;
    char **names;
    uint32_t n;
    for (int64_t step = 1; step <= 4; step++) {
        assert_ok(save(&b, step, 2, &b.f->err), b.f->err);
        const char *before = names_in(&b);
        assert_int_equal(newest(&b), step);
        assert_string_equal(names_in(&b), before); /* reading changes nothing there */
    }
    const char *all = ru_path_join(&b.f->arena, b.run, "checkpoints");
    assert_ok(ru_dir_list(all, &b.f->arena, &names, &n, &b.f->err), b.f->err);
    assert_int_equal(n, 2); /* of the others nothing is left, in neither place */
    assert_int_equal(stored(&b, &at), 2);
    for (uint32_t k = 0; k < 2; k++) {
        assert_true(at[k].complete && at[k].in_use);
        assert_int_equal(at[k].files, 2);
        assert_int_equal(at[k].damaged, 0);
        assert_ptr_equal(strstr(at[k].key, "my_run-"), at[k].key);
        assert_string_equal(at[k].key + strlen("my_run-0123456789abcdef"),
                            k == 0 ? "/000000003" : "/000000004");
        assert_non_null(strstr(at[k].run, "/my run"));
        assert_int_equal(ru_ckpt_stored_remove(b.tiers, 2, &at[k], &b.f->err), RU_E_AGAIN);
    }
    const char *dir = ru_path_join(&b.f->arena, all, "000000004");
    assert_ok(ru_dir_list(dir, &b.f->arena, &names, &n, &b.f->err), b.f->err);
    assert_int_equal(n, 3);
    assert_string_equal(names[0], "manifest.json");
    assert_string_equal(names[1], "state.json");
    assert_string_equal(names[2], "storage.json");
    /* A run's folder that somebody deletes leaves what can be removed by its key. */
    assert_ok(ru_path_remove(b.run, &b.f->err), b.f->err);
    assert_int_equal(stored(&b, &at), 2);
    assert_false(at[0].in_use || at[1].in_use);
    assert_ok(ru_ckpt_stored_remove(b.tiers, 2, &at[0], &b.f->err), b.f->err);
    assert_int_equal(stored(&b, &at), 1);
}

/* The fast folder has room for one file: the others lie in the slow one. Without room anywhere the
 * checkpoint before stays the newest. */
static void test_full(void **state)
{
    box b = make_box(*state, 30000);
    ru_ckpt_stored *at;
    assert_ok(save(&b, 1, 2, &b.f->err), b.f->err);
    assert_ok(save(&b, 2, 2, &b.f->err), b.f->err);
    assert_int_equal(newest(&b), 2);
    assert_int_equal(stored(&b, &at), 2);
    assert_int_equal(at[0].damaged + at[1].damaged, 0);
    b.tiers[1].quota_bytes = 45000;
    assert_int_equal(save(&b, 3, 2, &b.f->err), RU_E_CREATE);
    assert_non_null(strstr(b.f->err.text, "no room"));
    assert_int_equal(newest(&b), 2);
    assert_int_equal(stored(&b, &at), 2); /* nothing of the third is left */
}

/* The fast disk is gone with all that it had: the newest checkpoint that is whole is older. The
 * slow one is away: nobody says that checkpoints are damaged. */
static void test_lost(void **state)
{
    box b = make_box(*state, 20000);
    ru_ckpt_stored *at;
    int64_t step;
    b.tiers[0].quota_bytes = 1;
    assert_ok(save(&b, 1, 5, &b.f->err), b.f->err);
    b.tiers[0].quota_bytes = 20000;
    assert_ok(save(&b, 2, 5, &b.f->err), b.f->err);
    assert_ok(ru_path_remove(b.tiers[0].path, &b.f->err), b.f->err);
    assert_int_equal(newest(&b), 1);
    assert_int_equal(stored(&b, &at), 2);
    assert_false(ru_path_exists(b.tiers[0].path)); /* nor is a folder made where a disk was */
    assert_int_equal(at[0].damaged, 0);
    assert_int_equal(at[1].damaged, 1);
    const char *away = ru_path_join(&b.f->arena, b.f->root, "away");
    assert_ok(ru_path_rename(b.tiers[1].path, away, &b.f->err), b.f->err);
    assert_int_equal(ru_ckpt_newest(b.run, &b.f->arena, read_one, &step, &b.f->err), RU_E_IO);
    assert_non_null(strstr(b.f->err.text, "make the disk available"));
    const char *all = ru_path_join(&b.f->arena, b.run, "checkpoints");
    assert_ok(ru_ckpt_remove(ru_path_join(&b.f->arena, all, "000000002"), &b.f->err), b.f->err);
    assert_ok(ru_path_rename(away, b.tiers[1].path, &b.f->err), b.f->err);
    assert_int_equal(newest(&b), 1);
    assert_int_equal(stored(&b, &at), 2);
    remove_leftovers(&b); /* of the one that could not be removed */
    assert_int_equal(stored(&b, &at), 1);
}

static void copy_text(box *b, const char *from, const char *to, const char *name)
{
    char *text;
    int64_t n;
    ru_arena *a = &b->f->arena;
    assert_ok(ru_file_read(ru_path_join(a, from, name), 1 << 20, a, &text, &n, &b->f->err),
              b->f->err);
    assert_ok(ru_file_own(ru_path_join(a, to, name), text, n, &b->f->err), b->f->err);
}

/* A run whose folder somebody copied: what the copy removes stays for the run, and goes with it. */
static void test_copied(void **state)
{
    box b = make_box(*state, 20000);
    ru_arena *a = &b.f->arena;
    ru_ckpt_stored *at;
    assert_ok(save(&b, 1, 2, &b.f->err), b.f->err);
    const char *from = ru_path_join(a, b.run, "checkpoints/000000001");
    const char *run = b.run, *copy = ru_path_join(a, b.f->root, "copy");
    const char *to = ru_path_join(a, copy, "checkpoints/000000001");
    assert_ok(ru_dir_make(to, &b.f->err), b.f->err);
    copy_text(&b, from, to, "storage.json");
    copy_text(&b, from, to, "state.json");
    copy_text(&b, from, to, "manifest.json");
    b.run = copy;
    assert_int_equal(newest(&b), 1);
    assert_ok(save(&b, 2, 1, &b.f->err), b.f->err); /* and removes the first */
    assert_false(ru_path_exists(to));
    assert_int_equal(newest(&b), 2);
    b.run = run;
    assert_int_equal(newest(&b), 1);
    assert_int_equal(stored(&b, &at), 2);
    assert_ok(ru_ckpt_remove(from, &b.f->err), b.f->err);
    assert_int_equal(stored(&b, &at), 1);
}

/* What is being written is listed, and cannot be removed. */
static void test_being_written(void **state)
{
    box b = make_box(*state, 20000);
    ru_ckpt_stored *at;
    ru_ckpt_folder f;
    const int64_t n = 1;
    const float value = 1;
    const ru_array a = {.name = "w", .type = ru_type_make(RU_F32, 1, &n), .data = &value};
    b.storage.tiers = b.tiers;
    assert_ok(ru_ckpt_begin(&f, b.run, 1, &b.f->arena, &b.f->err), b.f->err);
    assert_ok(ru_ckpt_to_storage(&f, &b.storage, 1, &b.f->err), b.f->err);
    assert_ok(ru_ckpt_put_arrays(&f, "model.safetensors", &a, 1, &b.f->err), b.f->err);
    assert_int_equal(stored(&b, &at), 1);
    assert_false(at[0].complete);
    assert_int_equal(ru_ckpt_stored_remove(b.tiers, 2, &at[0], &b.f->err), RU_E_AGAIN);
    assert_non_null(strstr(b.f->err.text, "/000000001 is being written"));
    assert_ok(ru_ckpt_put_arrays(&f, "optimizer.safetensors", &a, 1, &b.f->err), b.f->err);
    assert_ok(ru_ckpt_store_end(&f, RU_OK, &b.f->err), b.f->err); /* its name is temporary yet */
    assert_int_equal(ru_ckpt_stored_remove(b.tiers, 2, &at[0], &b.f->err), RU_E_AGAIN);
    assert_non_null(strstr(b.f->err.text, "my run; remove the run's folder first"));
    assert_ok(ru_ckpt_finish(&f, RU_OK, &b.f->err), b.f->err);
    assert_int_equal(newest(&b), 1);
}

/* Somebody deletes the run's folder while it is written: it can be written once more. */
static void test_deleted(void **state)
{
    box b = make_box(*state, 20000);
    ru_ckpt_folder f;
    ru_err err = {0};
    const int64_t n = 1;
    const float value = 1;
    const ru_array a = {.name = "w", .type = ru_type_make(RU_F32, 1, &n), .data = &value};
    b.storage.tiers = b.tiers;
    assert_ok(ru_ckpt_begin(&f, b.run, 1, &b.f->arena, &b.f->err), b.f->err);
    assert_ok(ru_ckpt_to_storage(&f, &b.storage, 1, &b.f->err), b.f->err);
    assert_ok(ru_ckpt_put_arrays(&f, "model.safetensors", &a, 1, &b.f->err), b.f->err);
    assert_ok(ru_path_remove(b.run, &b.f->err), b.f->err);
    assert_int_equal(ru_ckpt_finish(&f, RU_OK, &err), RU_E_CREATE);
    assert_ok(save(&b, 1, 1, &b.f->err), b.f->err);
    assert_int_equal(newest(&b), 1);
}

/* Calls of a second checkpoint, of which some are tried. */
static int64_t calls(box *b, int64_t *first)
{
    ru_test_os_fail(INT64_MAX);
    assert_ok(save(b, 2, 1, &b->f->err), b->f->err);
    int64_t step = ru_test_os_count() / KILLS + 1;
    ru_test_os_fail(-1);
    *first = (int64_t)(ru_test_seed() % (uint64_t)step);
    return step;
}

/* A run and folders of their own, with a first checkpoint. */
static box begun(ru_scratch *f, int64_t at)
{
    box b = make_box(f, 15000);
    b.run = ru_arena_printf(&f->arena, "%s/run%lld", f->root, (long long)at);
    for (uint32_t k = 0; k < 2; k++) {
        b.tiers[k].path = ru_arena_printf(&f->arena, "%s/tier%u-%lld", f->root, k, (long long)at);
    }
    assert_ok(save(&b, 1, 1, &f->err), f->err);
    return b;
}

/* The process ends at some call while it writes the second checkpoint and removes the first: one of
 * them is whole, and the next one leaves nothing of both. */
static void test_killed(void **state)
{
    bool whole = false;
    box b = begun(*state, -1);
    int64_t at, step = calls(&b, &at);
    for (; !whole; at += step) {
        ru_ckpt_stored *list;
        b = begun(*state, at);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            ru_test_os_die(at);
            _exit(save(&b, 2, 1, &b.f->err) == RU_OK ? 7 : 9);
        }
        int how;
        assert_int_equal(waitpid(pid, &how, 0), pid);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) != 9);
        whole = WEXITSTATUS(how) == 7;
        int64_t found = newest(&b);
        assert_true(found == 2 || (found == 1 && !whole));
        assert_ok(save(&b, 2, 1, &b.f->err), b.f->err);
        assert_int_equal(newest(&b), 2);
        remove_leftovers(&b);
        assert_int_equal(stored(&b, &list), 1);
    }
}

/* Some call fails: an error and the checkpoint before, or a whole one. */
static void test_failing_calls(void **state)
{
    bool failed = true;
    box b = begun(*state, -1);
    int64_t at, step = calls(&b, &at);
    for (; failed; at += step) {
        ru_ckpt_stored *list;
        ru_err err = {0};
        b = begun(*state, at);
        ru_test_os_fail(at);
        ru_status st = save(&b, 2, 1, &err);
        failed = ru_test_os_count() > at;
        ru_test_os_fail(-1);
        assert_true(failed || st == RU_OK);
        int64_t found = newest(&b);
        assert_true(found == 2 || (found == 1 && st != RU_OK));
        remove_leftovers(&b);
        assert_in_range(stored(&b, &list), 1, st == RU_OK || found == 1 ? 1 : 2);
        assert_true(list[0].complete && list[0].damaged == 0);
    }
}

/* Memory ends at some allocation: an error and the checkpoint before, or a whole one. */
static void test_no_memory(void **state)
{
    bool failed = true;
    box b = begun(*state, -1);
    ru_test_alloc_fail(INT64_MAX);
    assert_ok(save(&b, 2, 1, &b.f->err), b.f->err);
    int64_t step = ru_test_alloc_count() / KILLS + 1;
    ru_test_alloc_fail(-1);
    for (int64_t at = (int64_t)(ru_test_seed() % (uint64_t)step); failed; at += step) {
        ru_ckpt_stored *list;
        ru_err err = {0};
        b = begun(*state, at);
        ru_test_alloc_fail(at);
        ru_status st = save(&b, 2, 1, &err);
        failed = ru_test_alloc_count() > at;
        ru_test_alloc_fail(-1);
        assert_true(failed || st == RU_OK);
        int64_t found = newest(&b);
        assert_true(found == 2 || (found == 1 && st != RU_OK));
        remove_leftovers(&b);
        assert_in_range(stored(&b, &list), 1, st == RU_OK || found == 1 ? 1 : 2);
        assert_true(list[0].complete && list[0].damaged == 0);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, ru_scratch_open, ru_scratch_close)
RU_TESTS(run_ckpt_store, T(test_same_bytes), T(test_full), T(test_lost), T(test_copied),
         T(test_being_written), T(test_deleted), T(test_killed), T(test_failing_calls),
         T(test_no_memory))
