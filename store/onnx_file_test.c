#include "store/onnx_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/test.h"

/* A folder with model/w.bin (8 bytes), model/sub/w.bin, secret.bin above it, and links. */
static void make_folder(char *dir)
{
    char path[256];
    ru_err err;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/model/sub", dir);
    assert_ok(ru_dir_make(path, &err), err);
    static const char *const files[] = {"model/w.bin", "model/sub/w.bin", "secret.bin",
                                        "model/m.onnx"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(files); k++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, files[k]);
        assert_ok(ru_file_replace(path, "01234567", 8, &err), err);
    }
    (void)snprintf(path, sizeof path, "%s/model/out.bin", dir);
    assert_int_equal(symlink("../secret.bin", path), 0);
    (void)snprintf(path, sizeof path, "%s/model/in.bin", dir);
    assert_int_equal(symlink("w.bin", path), 0);
}

static void stays_in_the_folder(void **state)
{
    (void)state;
    char dir[] = "/tmp/rubato-onnx-XXXXXX", path[256];
    make_folder(dir);
    (void)snprintf(path, sizeof path, "%s/model/m.onnx", dir);
    ru_onnx_file f;
    ru_err err;
    assert_ok(ru_onnx_file_open(path, &f, &err), err);
    ru_onnx_external e = ru_onnx_file_external(&f);
    static const struct {
        const char *location;
        int64_t offset, length;
        ru_status st;
        int64_t size;
    } cases[] = {
        {"w.bin", 0, -1, RU_OK, 8},
        {"w.bin", 4, 4, RU_OK, 4},
        {"sub/w.bin", 2, -1, RU_OK, 6},
        {"./w.bin", 0, 8, RU_OK, 8},
        {"in.bin", 0, 8, RU_OK, 8},
        {"w.bin", 4, 5, RU_E_DATA, 0},
        {"w.bin", 9, -1, RU_E_DATA, 0},
        {"../secret.bin", 0, -1, RU_E_DATA, 0},
        {"sub/../../secret.bin", 0, -1, RU_E_DATA, 0},
        {"/etc/passwd", 0, -1, RU_E_DATA, 0},
        {"out.bin", 0, -1, RU_E_DATA, 0},
        {"..\\secret.bin", 0, -1, RU_E_DATA, 0},
        {"", 0, -1, RU_E_DATA, 0},
        {"none.bin", 0, -1, RU_E_MISSING, 0},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        const void *data = NULL;
        int64_t size = 0;
        ru_status st =
            e.view(e.self, cases[k].location, cases[k].offset, cases[k].length, &data, &size, &err);
        if (st != cases[k].st) {
            fail_msg("case %u ('%s'): %s", k, cases[k].location, st == RU_OK ? "ok" : err.text);
        }
        assert_true(st != RU_OK || size == cases[k].size);
        assert_true(st != RU_OK || *(const char *)data == '0' + (char)cases[k].offset);
    }
    ru_onnx_file_close(&f);
    assert_ok(ru_path_remove(dir, &err), err);
}

RU_TESTS(store_onnx_file, cmocka_unit_test(stays_in_the_folder))
