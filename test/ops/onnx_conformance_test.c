/* Every vector of test/golden/onnx_pass_list.txt still passes, on the folders that are there, and
 * every vector of the project's own (test/data/onnx, written by test/oracle/onnx_vectors.py).
 *
 * Set 1.12 is Debian's libonnx-testdata; set 1.16 is named by RUBATO_ONNX_DATA (the folder
 * onnx/backend/test/data/node of the Python package of that version). The list is written by
 *     build/test/onnx-conformance --list test/golden/onnx_pass_list.txt 1.12=DIR 1.16=DIR */
#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "env/file/file.h"
#include "test/ops/onnx_case.h"
#include "test/test.h"
#include "test/where.h"

static const char *folder_of(const char *set)
{
    if (strcmp(set, "1.12") == 0) {
        return "/usr/share/libonnx-testdata/data/node";
    }
    return strcmp(set, "1.16") == 0 ? ru_conf_env("RUBATO_ONNX_DATA") : NULL;
}

static uint32_t run_listed(const char *set, const char *test, const char *devices, char *failed,
                           size_t size)
{
    char dir[1024];
    (void)snprintf(dir, sizeof dir, "%s/%s", folder_of(set), test);
    const struct {
        const char *name;
        ru_device_kind kind;
    } kinds[] = {{"ref", RU_DEVICE_REF}, {"cpu", RU_DEVICE_CPU}};
    uint32_t n = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(kinds); k++) {
        ru_err why = {0};
        if (strstr(devices, kinds[k].name) == NULL) {
            continue;
        }
        n++;
        if (ru_onnx_case_run(dir, kinds[k].kind, &why) != RU_ONNX_PASS && failed[0] == 0) {
            (void)snprintf(failed, size, "%s %s on %s no longer passes: %s", set, test,
                           kinds[k].name, why.text);
        }
    }
    return n;
}

static void listed_vectors_pass(void **state)
{
    (void)state;
    ru_arena arena;
    ru_arena_init(&arena, 0);
    char *text = NULL;
    int64_t size_bytes = 0;
    ru_err err;
    assert_ok(ru_file_read(RU_SOURCE_ROOT "/test/golden/onnx_pass_list.txt", 0, &arena, &text,
                           &size_bytes, &err),
              err);
    char failed[1200] = "";
    uint32_t ran = 0, listed = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char set[32], test[256], devices[32];
        listed++;
        assert_int_equal(sscanf(line, "%31s %255s %31s", set, test, devices), 3);
        const char *folder = folder_of(set);
        if (folder != NULL && ru_path_is_dir(folder)) {
            ran += run_listed(set, test, devices, failed, sizeof failed);
        }
    }
    ru_arena_fini(&arena);
    assert_true(listed > 1700);
    if (failed[0] != 0) {
        fail_msg("%s", failed);
    }
    if (ran == 0) {
        print_message("no vectors here: install libonnx-testdata\n");
    }
}

static void own_vectors_pass(void **state)
{
    (void)state;
    static const char folder[] = RU_SOURCE_ROOT "/test/data/onnx";
    static const ru_device_kind kinds[] = {RU_DEVICE_REF, RU_DEVICE_CPU};
    ru_arena arena;
    ru_arena_init(&arena, 0);
    char **names = NULL;
    uint32_t n = 0;
    ru_err err;
    assert_ok(ru_dir_list(folder, &arena, &names, &n, &err), err);
    assert_true(n >= 120);
    for (uint32_t k = 0; k < 2 * n; k++) {
        ru_err why = {0};
        const char *dir = ru_path_join(&arena, folder, names[k / 2]);
        if (ru_onnx_case_run(dir, kinds[k % 2], &why) != RU_ONNX_PASS) {
            fail_msg("%s on %s: %s", names[k / 2], k % 2 == 0 ? "ref" : "cpu", why.text);
        }
    }
    ru_arena_fini(&arena);
}

RU_TESTS(test_onnx_conformance, cmocka_unit_test(listed_vectors_pass),
         cmocka_unit_test(own_vectors_pass))
