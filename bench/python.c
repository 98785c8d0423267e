/* rubato bench python: the Python package beside what its users have. bench/python.py measures and
 * says a line of JSON for each row; python3 is the one that has the package. */
#include "bench/python.h"

#include <jansson.h>
#include <stdio.h>

#include "env/file/file.h"
#include "env/process/process.h"

static const int64_t patience_ns = INT64_C(1800000000000);

static ru_bench_stat stat_of(json_t *list)
{
    double values[RU_BENCH_ROUNDS_MAX];
    uint32_t n = 0;
    for (size_t k = 0; k < json_array_size(list) && n < RU_ARRAY_LEN(values); k++) {
        values[n++] = json_number_value(json_array_get(list, k));
    }
    return n > 0 ? ru_bench_stat_of(values, n) : (ru_bench_stat){0};
}

static const char *text_of(const ru_bench *b, json_t *root, const char *name)
{
    const char *text = json_string_value(json_object_get(root, name));
    return text != NULL ? ru_arena_str(b->arena, text) : NULL;
}

static ru_status add(ru_bench *b, const char *line, ru_err *err)
{
    json_t *root = json_loads(line, 0, NULL);
    ru_bench_row row = {.name = text_of(b, root, "name"),
                        .unit = "ms",
                        .lower = true,
                        .ours = stat_of(json_object_get(root, "ours")),
                        .theirs = stat_of(json_object_get(root, "theirs")),
                        .peer = text_of(b, root, "peer"),
                        .missing = text_of(b, root, "missing"),
                        .goal = json_number_value(json_object_get(root, "goal"))};
    json_decref(root);
    return row.name != NULL ? ru_bench_add(b, &row, err)
                            : RU_FAIL(err, RU_E_PEER, "bench/python.py said '%s'", line);
}

ru_status ru_bench_python(ru_bench *b, ru_err *err)
{
    const char *scripts = ru_bench_scripts(b->arena), *line;
    if (scripts == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "bench/python.py is not beside this program");
    }
    const char *argv[] = {"python3",
                          ru_path_join(b->arena, scripts, "python.py"),
                          "--rows",
                          "--only",
                          b->only,
                          "--threads",
                          ru_arena_printf(b->arena, "%u", b->threads > 0 ? b->threads : 1),
                          b->quick ? "--quick" : NULL,
                          NULL};
    const ru_process_options opt = {.argv = argv, .pipe_out = true};
    ru_process *p = NULL;
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = ru_process_line(p, patience_ns, &line, err);
    while (st == RU_OK && line != NULL) {
        st = add(b, line, err);
        st = st == RU_OK ? ru_process_line(p, patience_ns, &line, err) : st;
    }
    int code = st == RU_OK ? ru_process_wait(p) : 0;
    ru_process_close(p);
    return st == RU_OK && code != 0
               ? RU_FAIL(err, RU_E_MISSING, "bench/python.py ended with code %d", code)
               : st;
}
