/* Facts and clusters: read, written, read again; relations refused. */
#include "world/facts.h"

#include <string.h>

#include "base/fields.h"
#include "test/test.h"
#include "world/cluster.h"

typedef struct both {
    ru_cluster cluster;
    ru_facts facts;
} both;

static const ru_conf_field fields[] = {
    {.name = "cluster",
     .type = RU_CONF_SECTION,
     .offset = offsetof(both, cluster),
     .table = &ru_cluster_table,
     .help = "the cluster"},
    {.name = "facts",
     .type = RU_CONF_SECTION,
     .offset = offsetof(both, facts),
     .table = &ru_facts_table,
     .help = "the facts"},
};
static const ru_conf_table table = {
    .name = "both", .fields = fields, .n = RU_ARRAY_LEN(fields), .size_bytes = sizeof(both)};

static const char text[] =
    "cluster:\n"
    "  hosts:\n"
    "    - {name: a, cores: 4, memory_bytes: 68719476736, net_bytes_per_s: 1.25e9,\n"
    "       net_latency_ns: 20000, usd_per_h: 0.1, market: m}\n"
    "    - {name: b, net_bytes_per_s: 1.25e8, net_latency_ns: 30000, availability: 0.9}\n"
    "    - {name: c}\n"
    "  devices: [{name: a0, host: a, type: V100, flops_per_s: 1.4e13}]\n"
    "  links: [{from: b, to: a, bytes_per_s: 5, latency_ns: 7}]\n"
    "  disks: [{name: d, host: b, kind: hdd, seek_ns: 8000000}, {name: s3, kind: net}]\n"
    "facts:\n"
    "  ops:\n"
    "    - {rank: 0, step: 0, op: MatMul, took: {mean_ns: 10.25, count: 3, min_ns: 10, max_ns: "
    "11}}\n"
    "    - {rank: 0, step: 2, op: Add, after: [0], took: {mean_ns: 0.1}}\n"
    "    - {rank: 1, step: 0, bytes: 9007199254740993, took: {mean_ns: 1}}\n"
    "  transfers: [{name: w, from: a, to: b, size_bytes: 9, made_by: 0, took: {mean_ns: 5}}]\n"
    "  collectives: [{size_bytes: 1024, took: {mean_ns: 5}}]\n"
    "  disks: [{disk: d, random: true, took: {mean_ns: 8e6}}]\n"
    "  steps: [{job: j, batch: 64, gradient_noise: 0.1, took: {mean_ns: 1e8}}]\n"
    "  requests: [{model: x, took: {mean_ns: 5}, served: {mean_ns: 4}}]\n"
    "  prices: [{market: m, at_s: 5, usd_per_h: 0.1}, {market: m, at_s: 6, usd_per_h: 0.2}]\n";

static ru_status read_from(const char *yaml, const char *set, ru_arena *a, both *out, ru_err *err)
{
    ru_conf *c;
    RU_TRY(ru_conf_new(&table, a, &c, err));
    RU_TRY(ru_conf_add_yaml(c, "x", yaml, (int64_t)strlen(yaml), err));
    if (set != NULL) {
        RU_TRY(ru_conf_add_yaml(c, "set", set, (int64_t)strlen(set), err));
    }
    return ru_conf_apply(c, out, err);
}

static ru_hash128 hash_of(const both *b)
{
    ru_hasher h;
    ru_hasher_init(&h);
    ru_fields_hash(&table, b, &h);
    return ru_hasher_get(&h);
}

static void test_reads_writes_and_reads_again(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    both x, y;
    if (read_from(text, NULL, &a, &x, &err) != RU_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(x.facts.ops.n, 3);
    assert_int_equal(x.facts.ops.at[1].after.at[0], 0);
    assert_int_equal(x.facts.ops.at[2].bytes, INT64_C(9007199254740993));
    assert_int_equal(x.cluster.disks.at[0].kind, RU_DISK_HDD);
    ru_text json = ru_text_arena(&a);
    ru_json j = ru_json_into(&json);
    ru_fields_json(&table, &x, NULL, &j);
    if (read_from(json.p, NULL, &a, &y, &err) != RU_OK) {
        fail_msg("%s", err.text);
    }
    ru_hash128 hx = hash_of(&x), hy = hash_of(&y);
    assert_memory_equal(&hx, &hy, sizeof hx);
    ru_arena_fini(&a);
}

static void test_the_way_between_hosts(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    ru_arena_init(&a, 0);
    both x;
    assert_int_equal(read_from(text, NULL, &a, &x, &err), RU_OK);
    const ru_cluster *c = &x.cluster;
    assert_int_equal(ru_cluster_host_find(c, "c"), 2);
    assert_int_equal(ru_cluster_host_find(c, "d"), UINT32_MAX);
    ru_arena_fini(&a);
}

static void test_relations_are_checked(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"cluster: {hosts: [{name: a}, {name: a}]}", "have the name 'a'"},
        {"cluster: {hosts: [{name: ''}]}", "no name"},
        {"cluster: {links: [{from: a, to: x}]}", "'x'"},
        {"cluster: {disks: [{name: d, host: x}]}", "'x'"},
        {"facts: {ops: [{step: 3, after: [3], took: {mean_ns: 1}}]}", "step 3"},
        {"facts: {ops: [{step: 3, took: {mean_ns: 1}}, {step: 3, took: {mean_ns: 1}}]}", "sorted"},
        {"facts: {ops: [{took: {mean_ns: 9, min_ns: 1, max_ns: 8}}]}", "outside"},
        {"facts: {ops: [{took: {}}]}", "mean_ns"},
        {"facts: {prices: [{market: b, usd_per_h: 1}, {market: a, usd_per_h: 1}]}", "sorted"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        ru_arena a;
        ru_err err;
        ru_arena_init(&a, 0);
        both x;
        assert_int_equal(read_from(text, bad[k][0], &a, &x, &err), RU_E_CONFIG);
        if (strstr(err.text, bad[k][1]) == NULL) {
            fail_msg("'%s' should name %s", err.text, bad[k][1]);
        }
        ru_arena_fini(&a);
    }
}

RU_TESTS(world_facts, cmocka_unit_test(test_reads_writes_and_reads_again),
         cmocka_unit_test(test_the_way_between_hosts), cmocka_unit_test(test_relations_are_checked))
