/* Files that other programs write as inputs of `place`. */
#include <string.h>

#include "store/natural.h"
#include "test/test.h"

static const char *as_place(const char *path, const char *text, ru_arena *a, ru_err *err)
{
    ru_text out = ru_text_arena(a);
    ru_json j = ru_json_into(&out);
    const ru_natural *kind = ru_natural_find("place", path, ru_str_c(text));
    assert_non_null(kind);
    ru_json_open(&j, NULL, '{');
    ru_status st = kind->read(path, ru_str_c(text), a, &j, err);
    ru_json_close(&j);
    return st == RU_OK ? out.p : NULL;
}

static void benchmarks_are_read(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    assert_string_equal(as_place("g.txt", "2 1 3.5e9\n0 0\n24.75 1.5e9\n0 1 0.25\n", &a, &err),
                        "{\"devices\":[{\"memory\":3500000000},{\"memory\":3500000000}],"
                        "\"ops\":[{\"time\":\"0ns\",\"memory\":0},"
                        "{\"time\":\"24750000ns\",\"memory\":1500000000}],"
                        "\"edges\":[{\"from\":0,\"to\":1,\"time\":\"250000ns\"}]}");
    static const char *const bad[] = {
        "2 1 100\n1 1\n",                    /* an op is missing */
        "2 1 100\n1 1\n1 1\n",               /* an edge */
        "2 1 100\n1 1\n1 1\n0 2 1\n",        /* there is no op 2 */
        "2 1 100\n1 1\n1 1\n0 0.5 1\n",      /* nor half of one */
        "2 1 100\n1 1\n1 -1\n0 1 1\n",       /* bytes below 0 */
        "2 1 100\n1 1\n1 nan\n0 1 1\n",      /* no number */
        "2 1 100\n1 1\n1 1 1\n0 1 1\n",      /* a column too many */
        "2 1 100\n1 1\n1 1\n0 1 1\n0 1 1\n", /* a line too many */
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_null(as_place("g.txt", bad[k], &a, &err));
        assert_non_null(strstr(err.text, "g.txt:"));
    }
    assert_null(ru_natural_find("place", "in.yaml", ru_str_c("ops: []\n")));
    assert_null(ru_natural_find("place", "p.txt", ru_str_c("1456403024 0.1415\n")));
    ru_arena_fini(&a);
}

static void graphs_are_read(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    /* Colour 9 is a group of two, colour 8 of one op is none; what no accelerator runs goes to a
     * CPU. */
    assert_string_equal(
        as_place("g.json",
                 "{\"maxFPGAs\": 2, \"maxSizePerFPGA\": 64, \"nodes\": ["
                 "{\"id\": 7, \"fpgaLatency\": 1, \"size\": 3, \"colorClass\": 9},"
                 "{\"id\": 5, \"fpgaLatency\": 2, \"size\": 4, \"colorClass\": 8},"
                 "{\"id\": 6, \"fpgaLatency\": 1, \"cpuLatency\": 5, \"supportedOnFpga\": false, "
                 "\"size\": 0, \"colorClass\": 9}],"
                 "\"edges\": [{\"sourceId\": 7, \"destId\": 6, \"cost\": 0.5}]}",
                 &a, &err),
        "{\"devices\":[{\"memory\":64},{\"memory\":64},{\"name\":\"cpu\"}],"
        "\"ops\":[{\"name\":\"7\",\"time\":\"1000000ns\",\"memory\":3,\"group\":0},"
        "{\"name\":\"5\",\"time\":\"2000000ns\",\"memory\":4},"
        "{\"name\":\"6\",\"time\":\"5000000ns\",\"memory\":0,\"group\":0,\"device\":2}],"
        "\"edges\":[{\"from\":0,\"to\":2,\"time\":\"500000ns\"}]}");
    assert_string_equal(
        as_place("p.txt",
                 "node1 -- Input -- forward_compute_time=9, backward_compute_time=9, "
                 "activation_size=10, parameter_size=0\n"
                 "node2 -- Linear -- forward_compute_time=1, backward_compute_time=2, "
                 "activation_size=20, parameter_size=5\n"
                 "\tnode1 -- node2\n",
                 &a, &err),
        "{\"devices\":[{\"memory\":0},{\"memory\":0}],"
        "\"ops\":[{\"name\":\"node1\",\"time\":\"0ns\",\"memory\":10,\"group\":0},"
        "{\"name\":\"node2\",\"time\":\"1000000ns\",\"memory\":25,\"group\":1},"
        "{\"name\":\"node1.grad\",\"time\":\"0ns\",\"memory\":0,\"group\":0},"
        "{\"name\":\"node2.grad\",\"time\":\"2000000ns\",\"memory\":0,\"group\":1}],"
        "\"edges\":[{\"from\":0,\"to\":2},{\"from\":1,\"to\":3},"
        "{\"from\":0,\"to\":1,\"bytes\":10},{\"from\":3,\"to\":2}]}");
    ru_arena_fini(&a);
}

RU_TESTS(store_natural_place, cmocka_unit_test(benchmarks_are_read),
         cmocka_unit_test(graphs_are_read))
