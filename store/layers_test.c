#include "store/layers.h"

#include <string.h>
#include <zlib.h>

#include "store/natural.h"
#include "store/world_layers.h"
#include "test/test.h"

static const char profile[] =
    "node1 -- Input -- forward_compute_time=20.5, backward_compute_time=0.0, activation_size=12.0, "
    "parameter_size=0.000\n"
    "node3 -- LSTM(8, 8) -- forward_compute_time=1.5, backward_compute_time=2.5, "
    "activation_size=[4.0; 2.0; 2.0], parameter_size=256.000\n"
    "\tnode1 -- node3\n"
    "\tnode3 -- node2\n" /* an edge may come before its layer */
    "node2 -- Conv2d(3, 64, kernel_size=(3, 3)) -- forward_compute_time=0.25, "
    "backward_compute_time=0.5, activation_size=100.0, parameter_size=1000.000\n";

static const char operators[] =
    "{\"maxSizePerFPGA\": 100.0, \"maxFPGAs\": 2, \"maxCPUs\": 1, \"nodes\": ["
    "{\"name\": \"w\", \"id\": 7, \"supportedOnFpga\": true, \"cpuLatency\": 0, \"fpgaLatency\": 0,"
    " \"isBackwardNode\": false, \"colorClass\": 3, \"size\": 64.0},"
    "{\"name\": \"mul\", \"id\": 9, \"supportedOnFpga\": 1, \"cpuLatency\": 5, \"fpgaLatency\": "
    "0.5,"
    " \"isBackwardNode\": 0, \"size\": 10},"
    "{\"name\": \"grad\", \"id\": 10, \"fpgaLatency\": 0.7, \"isBackwardNode\": true, \"size\": "
    "10}],"
    "\"edges\": [{\"sourceId\": 7, \"destId\": 9, \"cost\": 0.1, \"size\": 64},"
    " {\"sourceId\": 9, \"destId\": 10}]}";

static void profiles_are_read(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_layer_graph g;
    ru_err err;
    assert_true(ru_layers_are_profile("x", ru_str_c(profile)));
    assert_false(ru_layers_are_profile("x", ru_str_c(operators)));
    assert_ok(ru_layers_read("x", ru_str_c(profile), &a, &g, &err), err);
    assert_int_equal(g.n, 3);
    assert_int_equal(g.n_edges, 2);
    assert_string_equal(g.layers[2].name, "Conv2d(3, 64, kernel_size=(3, 3))");
    assert_true(g.layers[1].activation_bytes == 8 && g.layers[1].backward_ms == 2.5);
    assert_true(g.edges[1].from == 1 && g.edges[1].to == 2);
    ru_arena_fini(&a);
}

static void operator_graphs_are_read(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_layer_graph g;
    ru_err err;
    assert_true(ru_layers_are_operators("g.json", ru_str_c(operators)));
    assert_ok(ru_layers_read("g.json", ru_str_c(operators), &a, &g, &err), err);
    assert_true(g.operators && g.n == 3 && g.n_edges == 2 && g.accelerators == 2);
    assert_true(g.layers[0].color == 3 && g.layers[1].color == -1 && g.layers[2].backward);
    assert_true(g.edges[0].ms == 0.1 && g.edges[0].bytes == 64);
    uint8_t z[1024];
    z_stream s = {.avail_out = sizeof z, .next_out = z};
    char copy[sizeof operators];
    memcpy(copy, operators, sizeof operators);
    s.next_in = (Bytef *)copy;
    s.avail_in = sizeof operators - 1;
    assert_int_equal(deflateInit2(&s, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
    deflateEnd(&s);
    ru_str packed = ru_str_n((const char *)z, (int64_t)s.total_out);
    assert_true(ru_layers_are_operators("g.json.gz", packed));
    assert_ok(ru_layers_read("g.json.gz", packed, &a, &g, &err), err);
    assert_int_equal(g.n, 3);
    for (int64_t cut = 3; cut < packed.n; cut += 7) { /* cut short anywhere */
        assert_int_equal(ru_layers_read("g.json.gz", ru_str_n(packed.p, cut), &a, &g, &err),
                         RU_E_DATA);
    }
    ru_arena_fini(&a);
}

static void damaged_graphs_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "node1\n",
        "node1 -- A\n",
        "node1 -- A -- forward_compute_time=1.0\n",
        "a -- A -- forward_compute_time=x, backward_compute_time=0, activation_size=0, "
        "parameter_size=0\n",
        "a -- A -- forward_compute_time=-1, backward_compute_time=0, activation_size=0, "
        "parameter_size=0\n",
        "a -- A -- forward_compute_time=nan, backward_compute_time=0, activation_size=0, "
        "parameter_size=0\n",
        "a -- A -- forward_compute_time=1, backward_compute_time=0, activation_size=0, "
        "parameter_size=0\n\ta -- b\n",
        "a -- A -- forward_compute_time=1, backward_compute_time=0, activation_size=0, "
        "parameter_size=0\na -- A -- forward_compute_time=1, backward_compute_time=0, "
        "activation_size=0, parameter_size=0\n",
        "{\"fpgaLatency\": 1",
        "{\"fpgaLatency\": 1, \"nodes\": [], \"edges\": []}",
        "{\"nodes\": [{\"id\": 1, \"fpgaLatency\": -1, \"size\": 1}], \"edges\": []}",
        "{\"nodes\": [{\"id\": 1, \"fpgaLatency\": 1}], \"edges\": []}",
        "{\"nodes\": [{\"id\": \"a\", \"fpgaLatency\": 1, \"size\": 1}], \"edges\": []}",
        "{\"nodes\": [{\"id\": 1, \"fpgaLatency\": 1, \"size\": 1}], \"edges\": [{\"sourceId\": 1, "
        "\"destId\": 2}]}",
        "{\"nodes\": [{\"id\": 1, \"fpgaLatency\": 1, \"size\": 1}, {\"id\": 1, \"fpgaLatency\": "
        "1, "
        "\"size\": 1}], \"edges\": []}",
        "{\"nodes\": [7, \"fpgaLatency\"], \"edges\": []}",
    };
    ru_arena a;
    ru_arena_init(&a, 0);
    for (uint32_t i = 0; i < RU_ARRAY_LEN(bad); i++) {
        ru_layer_graph g;
        ru_err err;
        ru_status st = ru_layers_read("bad", ru_str_c(bad[i]), &a, &g, &err);
        if (st != RU_E_DATA || strncmp(err.text, "bad", 3) != 0) {
            fail_msg("case %u gave %d: %s", i, (int)st, st == RU_OK ? "" : err.text);
        }
    }
    ru_arena_fini(&a);
}

static const char *as_order(const char *path, const char *text, ru_arena *a)
{
    ru_err err;
    ru_text out = ru_text_arena(a);
    ru_json j = ru_json_into(&out);
    const ru_natural *kind = ru_natural_find("order", path, ru_str_c(text));
    assert_non_null(kind);
    ru_json_open(&j, NULL, '{');
    ru_status st = kind->read(path, ru_str_c(text), a, &j, &err);
    ru_json_close(&j);
    return st == RU_OK ? out.p : NULL;
}

static void graphs_become_inputs_of_order(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    assert_string_equal(
        as_order("x", profile, &a),
        "{\"ops\":[{\"name\":\"node1\",\"time\":\"0ns\",\"parameters\":0,\"after\":[]},"
        "{\"name\":\"node3\",\"time\":\"1500000ns\",\"parameters\":256,\"after\":[0]},"
        "{\"name\":\"node2\",\"time\":\"250000ns\",\"parameters\":1000,\"after\":[1]}]}");
    assert_string_equal(
        as_order("g.json", operators, &a),
        "{\"ops\":[{\"name\":\"7\",\"time\":\"0ns\",\"parameters\":64,\"after\":[]},"
        "{\"name\":\"9\",\"time\":\"500000ns\",\"parameters\":0,\"after\":[0]}]}");
    /* no node that is only a parameter: what each keeps in memory cannot be told apart */
    assert_null(as_order("g.json",
                         "{\"nodes\": [{\"id\": 1, \"fpgaLatency\": 1, \"size\": 1}], "
                         "\"edges\": []}",
                         &a));
    ru_arena_fini(&a);
}

/* A profile as a world: forward in the order of the edges, then backward; times in ns. */
static void a_profile_is_a_world(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_world w;
    ru_err err;
    assert_ok(ru_world_of_layers("d/p.txt", ru_str_c(profile), &a, &w, &err), err);
    assert_string_equal(w.jobs.at[0].name, "p.txt");
    static const double ms[] = {0, 1.5, 0.25, 0.5, 2.5, 0, 0}; /* reading the input is no op */
    assert_int_equal(w.facts.ops.n, RU_ARRAY_LEN(ms));
    for (uint32_t i = 0; i < w.facts.ops.n; i++) {
        assert_int_equal(w.facts.ops.at[i].step, i);
        assert_int_equal((int64_t)w.facts.ops.at[i].took.mean_ns, (int64_t)(ms[i] * 1e6));
    }
    assert_int_equal(w.facts.transfers.n, 2);
    assert_int_equal(w.facts.transfers.at[0].size_bytes, 1000); /* node2 is the last layer */
    assert_int_equal(w.facts.transfers.at[0].made_by, 3);
    assert_int_equal(w.facts.transfers.at[1].size_bytes, 256);
    assert_int_equal(w.facts.transfers.at[1].made_by, 4);
    assert_int_equal(w.facts.transfers.at[1].needed_by, 6);
    assert_int_equal(w.facts.transfers.at[0].used_by, 2);
    assert_int_equal(w.facts.transfers.at[1].used_by, 1);
    assert_int_equal(w.facts.steps.at[0].compute_ns, 4750000);
    static const char circle[] = "node1 -- A -- forward_compute_time=1, backward_compute_time=1, "
                                 "activation_size=1, parameter_size=8\n\tnode1 -- node1\n";
    assert_true(ru_world_of_layers("c", ru_str_c(circle), &a, &w, &err) != RU_OK);
    ru_arena_fini(&a);
}

RU_TESTS(store_layers, cmocka_unit_test(profiles_are_read), cmocka_unit_test(a_profile_is_a_world),
         cmocka_unit_test(operator_graphs_are_read), cmocka_unit_test(damaged_graphs_are_refused),
         cmocka_unit_test(graphs_become_inputs_of_order))
