/* Checkpoints by themselves: what is kept, what is refused, what a killed or failing writer leaves.
 * Whole runs are the business of trainer_test.c and test/lab/train.sh. */
#include "test/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"
#include "run/ckpt_held.h"

typedef struct rig {
    ru_arena arena;
    char dir[64];
    ru_graph graph; /* w := w + x, m := w */
    ru_exe *exe;
    ru_value_id w, m;
    ru_model_facts facts;
    ru_ckpt *ckpt;
} rig;

static void make_graph(rig *r, int64_t n)
{
    ru_err err = {0};
    ru_build b;
    const ru_type t = ru_type_make(RU_F32, 1, &n);
    assert_ok(ru_graph_init(&r->graph, &r->arena, "g", &err), err);
    ru_build_init(&b, &r->graph);
    ru_value_id x = ru_build_input(&b, "x", t);
    r->w = ru_build_param(&b, "w", t, NULL);
    r->m = ru_build_state(&b, "w.momentum", t, RU_ROLE_SLOT, NULL);
    ru_value_id sum = ru_build_op2(&b, RU_OP_Add, r->w, x, NULL);
    ru_build_output(&b, sum, "y");
    ru_build_update(&b, r->w, sum);
    ru_build_update(&b, r->m, ru_build_op2(&b, RU_OP_Add, r->m, x, NULL));
    assert_ok(ru_build_finish(&b, &err), err);
    assert_ok(ru_exe_open(&r->graph, &(ru_exe_options){.device = RU_DEVICE_REF}, &r->exe, &err),
              err);
}

static void open_as(rig *r, bool go_on, bool takes_over)
{
    ru_err err = {0};
    ru_ckpt_options opt = {.run_dir = r->dir,
                           .graph = &r->graph,
                           .job_yaml = "name: t\n",
                           .facts = &r->facts,
                           .seed = 5,
                           .keep = 2,
                           .go_on = go_on,
                           .from_step = 3,
                           .takes_over = takes_over};
    assert_ok(ru_ckpt_open(&opt, &r->arena, &r->ckpt, &err), err);
}

static void open_ckpt(rig *r)
{
    open_as(r, false, false);
}

static int setup(void **state)
{
    rig *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return -1;
    }
    ru_arena_init(&r->arena, 0);
    (void)snprintf(r->dir, sizeof r->dir, "/tmp/rubato-ckpt-XXXXXX");
    if (mkdtemp(r->dir) == NULL) {
        return -1;
    }
    r->facts.x = r->facts.y = ru_type_scalar(RU_F32);
    make_graph(r, 4);
    open_ckpt(r);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    rig *r = *state;
    ru_err err;
    ru_ckpt_close(r->ckpt);
    ru_exe_close(r->exe);
    (void)!ru_path_remove(r->dir, &err);
    ru_arena_fini(&r->arena);
    free(r);
    return 0;
}

static void set(rig *r, ru_value_id id, float v)
{
    ru_err err = {0};
    float w[4] = {v, v, v, v};
    assert_ok(ru_exe_state_write(r->exe, id, w, &err), err);
}

static float get(rig *r, ru_value_id id)
{
    ru_err err = {0};
    float w[4];
    assert_ok(ru_exe_state_read(r->exe, id, w, &err), err);
    return w[3];
}

static ru_status save(rig *r, int64_t step, ru_err *err)
{
    RU_TRY(ru_ckpt_save(r->ckpt, r->exe, &(ru_ckpt_at){.step = step, .samples = step * 10}, NULL,
                        err));
    return ru_ckpt_wait(r->ckpt, err);
}

static uint32_t listed(rig *r, char ***names)
{
    ru_err err = {0};
    uint32_t n = 0;
    const char *dir = ru_path_join(&r->arena, r->dir, "checkpoints");
    assert_ok(ru_dir_list(dir, &r->arena, names, &n, &err), err);
    return n;
}

static void the_newest_are_kept(void **state)
{
    rig *r = *state;
    ru_err err = {0};
    ru_ckpt_info info;
    char **names;
    for (int64_t step = 1; step <= 4; step++) {
        set(r, r->w, (float)step);
        assert_ok(save(r, step, &err), err);
    }
    assert_int_equal(listed(r, &names), 2);
    assert_string_equal(names[0], "000000003");
    assert_string_equal(names[1], "000000004");
    assert_ok(ru_ckpt_find(r->dir, &r->arena, &info, &err), err);
    assert_int_equal(info.at.step, 4);
    assert_int_equal(info.at.samples, 40);
    assert_int_equal(info.seed, 5);
    set(r, r->w, 0);
    assert_ok(ru_ckpt_load(&info, &r->graph, r->exe, true, &err), err);
    assert_true(get(r, r->w) == 4);
}

/* Names stop sorting by letters at ten digits. */
static void steps_are_numbers(void **state)
{
    rig *r = *state;
    ru_err err = {0};
    ru_ckpt_info info;
    char **names;
    static const int64_t steps[] = {999999998, 999999999, 1000000000, 1000000001};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(steps); k++) {
        assert_ok(save(r, steps[k], &err), err);
        assert_ok(ru_ckpt_find(r->dir, &r->arena, &info, &err), err);
        assert_int_equal(info.at.step, steps[k]);
    }
    assert_int_equal(listed(r, &names), 2);
    assert_string_equal(names[0], "1000000000");
}

/* Infinity is the smallest of what is not finite. */
static void values_that_are_no_numbers_are_not_saved(void **state)
{
    rig *r = *state;
    ru_err err = {0};
    char **names;
    const float bad[] = {(float)INFINITY, -(float)INFINITY, (float)NAN};
    assert_ok(save(r, 1, &err), err);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        set(r, k % 2 == 0 ? r->w : r->m, bad[k]);
        assert_int_equal(save(r, 2, &err), RU_E_USER);
        assert_non_null(strstr(err.text, k % 2 == 0 ? "'w'" : "'w.momentum'"));
        set(r, r->w, 3e38f);
        set(r, r->m, 0);
    }
    assert_int_equal(listed(r, &names), 1);
    assert_ok(save(r, 3, &err), err); /* the largest numbers are numbers */
}

static void a_write_under_way_is_waited_for(void **state)
{
    rig *r = *state;
    ru_err err = {0};
    ru_ckpt_info info;
    for (int64_t step = 1; step <= 20; step++) {
        set(r, r->w, (float)step);
        assert_ok(ru_ckpt_save(r->ckpt, r->exe, &(ru_ckpt_at){.step = step}, NULL, &err), err);
    }
    assert_true(ru_ckpt_busy(r->ckpt));
    assert_ok(ru_ckpt_wait(r->ckpt, &err), err);
    assert_false(ru_ckpt_busy(r->ckpt));
    assert_ok(ru_ckpt_find(r->dir, &r->arena, &info, &err), err);
    assert_int_equal(info.at.step, 20);
}

static void leftovers_go_and_damage_is_replaced(void **state)
{
    rig *r = *state;
    ru_err err = {0};
    ru_ckpt_info info;
    char **names;
    const char *dir = ru_path_join(&r->arena, r->dir, "checkpoints");
    set(r, r->w, 1);
    assert_ok(save(r, 7, &err), err);
    const char *temp = ru_path_join(&r->arena, dir, "000000009.tmp");
    assert_ok(ru_dir_make(temp, &err), err);
    assert_ok(ru_file_replace(ru_path_join(&r->arena, temp, "model.safetensors"), "x", 1, &err),
              err);
    ru_ckpt_close(r->ckpt);
    open_ckpt(r); /* as the next process does */
    assert_int_equal(listed(r, &names), 1);
    /* step 7 again, over a damaged folder of that name */
    const char *model = ru_path_join(&r->arena, dir, "000000007/model.safetensors");
    assert_ok(ru_file_replace(model, "x", 1, &err), err);
    assert_int_equal(
        ru_ckpt_read(ru_path_join(&r->arena, dir, "000000007"), &r->arena, &info, &err), RU_E_DATA);
    set(r, r->w, 2);
    assert_ok(save(r, 7, &err), err);
    assert_ok(ru_ckpt_find(r->dir, &r->arena, &info, &err), err);
    assert_ok(ru_ckpt_load(&info, &r->graph, r->exe, false, &err), err);
    assert_true(get(r, r->w) == 2);
}

/* Who takes over while the one before still writes touches nothing of it, also in a run that went
 * on from an earlier step; who starts such a run does. */
static void what_another_writes_stays(void **state)
{
    rig *r = *state;
    ru_err err = {0};
    char **names;
    assert_ok(save(r, 7, &err), err);
    const char *dir = ru_path_join(&r->arena, r->dir, "checkpoints");
    const char *temp = ru_path_join(&r->arena, dir, "000000009.tmp");
    const char *damaged = ru_path_join(&r->arena, dir, "000000007.damaged");
    assert_ok(ru_dir_make(temp, &err), err);
    ru_ckpt_close(r->ckpt);
    open_as(r, true, true);
    assert_true(ru_path_exists(temp) && !ru_path_exists(damaged));
    ru_ckpt_close(r->ckpt);
    open_as(r, true, false);
    assert_true(!ru_path_exists(temp) && ru_path_exists(damaged));
    assert_int_equal(listed(r, &names), 1);
}

/* state.json is covered by the manifest like the tensors. */
static void every_file_is_in_the_manifest(void **state)
{
    rig *r = *state;
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    ru_err err = {0};
    ru_ckpt_info info;
    char *text;
    int64_t n;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(files); k++) {
        assert_ok(save(r, k + 1, &err), err);
        assert_ok(ru_ckpt_find(r->dir, &r->arena, &info, &err), err);
        const char *path = ru_path_join(&r->arena, info.dir, files[k]);
        assert_ok(ru_file_read(path, 0, &r->arena, &text, &n, &err), err);
        text[n - 1] ^= 1; /* same size */
        assert_ok(ru_file_replace(path, text, n, &err), err);
        assert_int_equal(ru_ckpt_read(info.dir, &r->arena, &info, &err), RU_E_DATA);
        assert_non_null(strstr(err.text, files[k]));
        assert_non_null(strstr(err.text, "damaged"));
    }
}

static void another_model_is_refused(void **state)
{
    rig *r = *state;
    ru_err err = {0};
    ru_ckpt_info info;
    assert_ok(save(r, 1, &err), err);
    assert_ok(ru_ckpt_find(r->dir, &r->arena, &info, &err), err);
    ru_exe_close(r->exe);
    make_graph(r, 5); /* the same names, another shape */
    assert_int_equal(ru_ckpt_load(&info, &r->graph, r->exe, true, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "'w' is f32[4], but the model expects f32[5]"));
    assert_int_equal(ru_ckpt_load_graph(&info, &r->graph, &r->arena, &err), RU_E_DATA);
}

/* The folder becomes a file's name that cannot be written: nothing half-made stays. */
/* Whatever system call of a save fails, no folder with a temporary name stays. */
static void a_failed_write_gives_its_space_back(void **state)
{
    rig *r = *state;
    uint32_t failed = 0;
    for (int64_t k = 0;; k++) {
        ru_err err = {0};
        char **names;
        ru_test_fail_everywhere(true, k);
        ru_status st = save(r, 1, &err);
        ru_test_fail_everywhere(true, -1);
        if (st == RU_OK) {
            break;
        }
        failed++;
        for (uint32_t n = listed(r, &names); n > 0; n--) {
            assert_string_equal(names[n - 1], "000000001");
        }
    }
    assert_true(failed > 5);
    ru_err err = {0};
    assert_ok(save(r, 2, &err), err);
}

/* As of a state that another process sent, piece by piece. */
static ru_status from_both(void *self, const char *state, void *into, ru_err *err)
{
    rig *r = self;
    return strcmp(state, "w") == 0 ? RU_OK : ru_exe_state_read(r->exe, r->m, into, err);
}

/* The copy may stand on the disk, and nothing of it stays there. */
static void what_was_sent_is_written(void **state)
{
    rig *r = *state;
    ru_err err = {0};
    ru_ckpt_info info;
    char **names;
    void *at, *none;
    const float w[4] = {5, 6, 7, 8};
    ru_ckpt_on_disk(r->ckpt);
    ru_ckpt_source(r->ckpt, from_both, r);
    for (int64_t step = 1; step <= 2; step++) {
        assert_ok(ru_ckpt_held(r->ckpt, "w", &at, &err), err);
        assert_ok(ru_ckpt_held(r->ckpt, "v", &none, &err), err);
        assert_null(none);
        assert_int_equal(listed(r, &names), step - 1);
        memcpy(at, w, sizeof w);
        set(r, r->m, (float)step);
        assert_ok(ru_ckpt_save(r->ckpt, NULL, &(ru_ckpt_at){.step = step}, NULL, &err), err);
        assert_ok(ru_ckpt_wait(r->ckpt, &err), err);
        assert_ok(ru_ckpt_find(r->dir, &r->arena, &info, &err), err);
        set(r, r->w, 0);
        set(r, r->m, 0);
        assert_ok(ru_ckpt_load(&info, &r->graph, r->exe, true, &err), err);
        assert_true(get(r, r->w) == w[3]);
        assert_true(get(r, r->m) == (float)step);
    }
}

#define RIG_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

RU_TESTS(run_ckpt, RIG_TEST(the_newest_are_kept), RIG_TEST(steps_are_numbers),
         RIG_TEST(values_that_are_no_numbers_are_not_saved),
         RIG_TEST(a_write_under_way_is_waited_for), RIG_TEST(leftovers_go_and_damage_is_replaced),
         RIG_TEST(what_another_writes_stays), RIG_TEST(every_file_is_in_the_manifest),
         RIG_TEST(another_model_is_refused), RIG_TEST(what_was_sent_is_written),
         RIG_TEST(a_failed_write_gives_its_space_back))
