/* Workloads as inputs of `alloc`: what is read, and what is refused by path and line. */
#include <string.h>

#include "store/natural.h"
#include "test/test.h"

#define WORKLOAD "name,time,application,num_replicas,batch_size\n"
#define PHILLY   "timestamp,duration,num_gpus,gpu_time,cluster\n"

static ru_status read_text(const char *text, ru_arena *a, ru_text *json, ru_err *err)
{
    ru_str all = ru_str_c(text);
    const ru_natural *kind = ru_natural_find("alloc", "w.csv", all);
    assert_non_null(kind);
    *json = ru_text_arena(a);
    ru_json j = ru_json_into(json);
    ru_json_open(&j, NULL, '{');
    ru_status st = kind->read("w.csv", all, a, &j, err);
    if (st == RU_OK) {
        ru_json_close(&j);
    }
    return st;
}

static void test_workloads(void **state)
{
    (void)state;
    ru_arena a;
    ru_text json;
    ru_err err;
    ru_arena_init(&a, 0);
    assert_ok(read_text(WORKLOAD "a-0,53,cifar10,6,2048\n\nb-1,154.5,ncf,1,256\n", &a, &json, &err),
              err);
    assert_non_null(strstr(json.p, "\"name\":\"a-0\",\"age\":\"101500ms\",\"replicas\":6"));
    assert_non_null(strstr(json.p, "\"name\":\"b-1\",\"age\":\"0ms\",\"replicas\":1"));
    assert_ok(read_text(PHILLY "2017-10-09 07:01:55,66.0,4,264.0,11cb48\n", &a, &json, &err), err);
    assert_non_null(strstr(json.p, "\"replicas\":4"));
    assert_non_null(strstr(json.p, "\"remaining\":66"));
    static const char *const bad[] = {
        WORKLOAD "a,53,cifar10,6\n",        WORKLOAD "a,x,cifar10,6,2048\n",
        WORKLOAD "a,53,cifar10,0,2048\n",   WORKLOAD "a,53,cifar10,6,2048,1\n",
        WORKLOAD "a,-1,cifar10,6,2048\n",   WORKLOAD "a,5e99,cifar10,6,2048\n",
        PHILLY "2017-10-09,nan,4,264,11cb", PHILLY "2017-10-09,66,70000,264,11cb",
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(read_text(bad[k], &a, &json, &err), RU_E_DATA);
        assert_non_null(strstr(err.text, "w.csv:2"));
    }
    assert_int_equal(read_text(WORKLOAD "a,53,x,6,1\nb,52,x,6,1\n", &a, &json, &err), RU_E_DATA);
    assert_non_null(strstr(err.text, "w.csv:3"));
    assert_null(ru_natural_find("alloc", "in.yaml", ru_str_c("nodes: [4]\n")));
    ru_arena_fini(&a);
}

RU_TESTS(store_natural_alloc, cmocka_unit_test(test_workloads))
