/* The lines of CSV of predicted and measured times. */
#include "tool/explain/trace_errors.h"

#include "base/str.h"
#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"

/* A category with a comma and quotes is one field. */
static void test_categories_are_quoted(void **state)
{
    ru_scratch *f = *state;
    static const ru_trace_name names[] = {{.category = "a \"b\", c", .name = "span"}};
    const ru_record r = {.kind = RU_REC_SPAN, .predicted_ns = 1000000, .dur_ns = 2000000};
    const ru_trace_thread thread = {.name = "t", .records = &r, .n = 1};
    const ru_trace t = {.names = names, .n_names = 1, .threads = &thread, .n_threads = 1};
    const char *path = ru_path_join(&f->arena, f->root, "errors.csv");
    assert_ok(rui_trace_errors_csv(&t, 1, NULL, path, &f->arena, &f->err), f->err);
    char *data;
    int64_t n;
    assert_ok(ru_file_read(path, 1 << 20, &f->arena, &data, &n, &f->err), f->err);
    ru_str all = {data, n};
    assert_true(ru_str_find(all, "\n\"a \"\"b\"\", c\",0,0,0,") >= 0);
}

RU_TESTS(tool_trace_errors, cmocka_unit_test_setup_teardown(test_categories_are_quoted,
                                                            ru_scratch_open, ru_scratch_close))
