#include "store/onnx_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test/test.h"
#include "world/graph/build.h"

/* A folder with model/w.bin (8 bytes), model/sub/w.bin, secret.bin above it, and links. */
static void make_folder(char *dir)
{
    char path[256];
    ru_err err;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/model/sub", dir);
    assert_ok(ru_dir_make(path, &err), err);
    (void)snprintf(path, sizeof path, "%s/model2", dir); /* its name begins like ours */
    assert_ok(ru_dir_make(path, &err), err);
    static const char *const files[] = {"model/w.bin", "model/sub/w.bin", "secret.bin",
                                        "model2/w.bin", "model/m.onnx"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(files); k++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, files[k]);
        assert_ok(ru_file_replace(path, "01234567", 8, &err), err);
    }
    (void)snprintf(path, sizeof path, "%s/model/out.bin", dir);
    assert_int_equal(symlink("../secret.bin", path), 0);
    (void)snprintf(path, sizeof path, "%s/model/beside.bin", dir);
    assert_int_equal(symlink("../model2/w.bin", path), 0);
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
        {"beside.bin", 0, -1, RU_E_DATA, 0},
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

/* y = x . big[20,30] + small[30] */
static void make_graph(ru_graph *g, ru_arena *arena, const float *big, const float *small)
{
    ru_err err;
    ru_build b;
    uint32_t sym;
    assert_ok(ru_graph_init(g, arena, "g", &err), err);
    assert_ok(ru_graph_symbol(g, "N", &sym, &err), err);
    ru_build_init(&b, g);
    ru_value_id x =
        ru_build_input(&b, "x", ru_type_make(RU_F32, 2, (int64_t[]){ru_dim_symbol(sym, 1), 20}));
    ru_value_id w = ru_build_param(&b, "big", ru_type_make(RU_F32, 2, (int64_t[]){20, 30}), big);
    ru_value_id v = ru_build_param(&b, "small", ru_type_make(RU_F32, 1, (int64_t[]){30}), small);
    ru_value_id y = ru_build_op2(&b, RU_OP_MatMul, x, w, NULL);
    ru_build_output(&b, ru_build_op2(&b, RU_OP_Add, y, v, NULL), "y");
    assert_ok(ru_build_finish(&b, &err), err);
}

static ru_status read_back(const char *path, ru_arena *arena, ru_onnx_file *f, ru_graph *g,
                           ru_err *err)
{
    RU_TRY(ru_onnx_file_open(path, f, err));
    ru_onnx_external e = ru_onnx_file_external(f);
    return ru_onnx_read(f->model.data, f->model.size_bytes,
                        &(ru_onnx_options){.external = &e, .train = true}, arena, g, NULL, err);
}

static void weights_go_outside_and_come_back(void **state)
{
    (void)state;
    char dir[] = "/tmp/rubato-onnx-XXXXXX", path[64], data_path[64];
    float big[600], small[30];
    ru_arena arena;
    ru_graph g, back;
    ru_onnx_file f;
    ru_err err;
    bool external = false;
    for (int k = 0; k < 600; k++) {
        big[k] = (float)k;
        small[k % 30] = (float)-k;
    }
    ru_arena_init(&arena, 0);
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/m.onnx", dir);
    (void)snprintf(data_path, sizeof data_path, "%s/m.onnx.data", dir);
    make_graph(&g, &arena, big, small);
    assert_ok(ru_onnx_file_save(path, &g, NULL, &external, &err), err);
    assert_false(external || ru_path_exists(data_path));
    assert_ok(
        ru_onnx_file_save(path, &g, &(ru_onnx_write_options){.external = true}, &external, &err),
        err);
    assert_true(external);
    assert_int_equal(ru_path_bytes(data_path), sizeof big); /* the small one stays inside */
    assert_true(ru_path_bytes(path) < 1000);
    assert_ok(read_back(path, &arena, &f, &back, &err), err);
    assert_int_equal(f.n_parts, 1);
    assert_string_equal(f.parts[0].location, "m.onnx.data");
    assert_memory_equal(ru_graph_value(&back, ru_graph_find(&back, "big"))->data, big, sizeof big);
    assert_memory_equal(ru_graph_value(&back, ru_graph_find(&back, "small"))->data, small,
                        sizeof small);
    ru_onnx_file_close(&f);
    /* a data file that is cut short, and none at all */
    assert_ok(ru_file_replace(data_path, big, sizeof big - 1, &err), err);
    assert_int_equal(read_back(path, &arena, &f, &back, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "m.onnx.data"));
    ru_onnx_file_close(&f);
    assert_ok(ru_path_remove(data_path, &err), err);
    assert_int_equal(read_back(path, &arena, &f, &back, &err), RU_E_MISSING);
    ru_onnx_file_close(&f);
    assert_ok(ru_path_remove(dir, &err), err);
    ru_arena_fini(&arena);
}

/* Every write fails once: no model appears that names weights which are not there. */
static void a_failed_export_leaves_nothing(void **state)
{
    (void)state;
    char path[] = "/proc/rubato-cannot-write/m.onnx";
    float zeros[600] = {0};
    ru_arena arena;
    ru_graph g;
    ru_err err;
    ru_arena_init(&arena, 0);
    make_graph(&g, &arena, zeros, zeros);
    assert_int_not_equal(
        ru_onnx_file_save(path, &g, &(ru_onnx_write_options){.external = true}, NULL, &err), RU_OK);
    assert_non_null(strstr(err.text, "m.onnx.data"));
    ru_arena_fini(&arena);
}

RU_TESTS(store_onnx_file, cmocka_unit_test(stays_in_the_folder),
         cmocka_unit_test(weights_go_outside_and_come_back),
         cmocka_unit_test(a_failed_export_leaves_nothing))
