#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "store/natural.h"
#include "test/test.h"

#define HEAD "Name,Profile,Memory_footprint,SM_usage,Duration\n"

static ru_status read(const char *policy, const char *path, const char *text, ru_arena *a,
                      ru_text *out, ru_err *err)
{
    const ru_natural *kind = ru_natural_find(policy, path, ru_str_c(text));
    if (kind == NULL) {
        return RU_FAIL(err, RU_E_DATA, "no kind");
    }
    *out = ru_text_arena(a);
    ru_json j = ru_json_into(out);
    ru_json_open(&j, NULL, '{');
    RU_TRY(kind->read(path, ru_str_c(text), a, &j, err));
    ru_json_close(&j);
    return RU_OK;
}

static void lists_of_kernels_become_services_and_ops(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_text out;
    ru_err err;
    /* A request of 1 + 3 ms, most of it on 40 units and bound by memory. */
    assert_ok(read("gate", "k.csv",
                   HEAD "conv<int, 4>,1,0,80,1000000\nnorm,0,0,40,3000000\n" HEAD
                        "gemm,1,0,400,300000\ngemm,1,0,400,100000\n\ngemm,1,0,20,5000\n" HEAD
                        "gemm,1,0,400,200000\ncopy,-1,0,8,1000\n",
                   &a, &out, &err),
              err);
    assert_non_null(strstr(out.p, "\"services\":[{\"name\":\"requests\",\"solo_ms\":4,\"tail_ms\":"
                                  "14.07966"));
    assert_non_null(strstr(out.p, "\"rate\":100,\"units\":40,\"ops\":2,\"class\":\"memory\"}]"));
    assert_non_null(strstr(out.p, "\"ops\":[{\"name\":\"gemm 400 compute\",\"us\":200,"
                                  "\"units\":400,\"count\":3,\"class\":\"compute\"},"));
    assert_non_null(strstr(out.p, "{\"name\":\"copy 8 unknown\",\"us\":1,\"units\":8,\"count\":1,"
                                  "\"class\":\"unknown\"}]"));
    static const struct {
        const char *text, *why;
    } bad[] = {
        {HEAD "a,1,0,8,10\n", "k.csv: one list"},
        {HEAD HEAD "a,1,0,8,10\n", "k.csv: one list"},
        {HEAD "a,1,0,8,10\n" HEAD "b,1,0,8\n", "k.csv:4: 'b,1,0,8'"},
        {HEAD "a,1,0,8,-10\n", "k.csv:2: 'a,1,0,8,-10'"},
        {HEAD "a,1,0,8,ten\n", "k.csv:2"},
        {HEAD ",1,0,8,10\n", "k.csv:2"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        assert_int_equal(read("gate", "k.csv", bad[k].text, &a, &out, &err), RU_E_DATA);
        assert_non_null(strstr(err.text, bad[k].why));
    }
    assert_null(ru_natural_find("gate", "k.csv", ru_str_c("services: []\n")));
    ru_arena_fini(&a);
}

/* The tail that the reader takes: requests of one length that come at random, one after another. */
static void tail_is_that_of_a_queue(void **state)
{
    (void)state;
    enum { REQUESTS = 400000 };
    ru_rng r = ru_rng_from(1, 2);
    uint32_t late = 0;
    double wait = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        double gap = -ru_math_log(1 - ru_rng_f64(&r)) / 0.4;
        wait = fmax(0, wait + 1 - gap);
        late += wait + 1 > 3.519915586727 ? 1 : 0;
    }
    assert_true(fabs(late / (double)REQUESTS - 0.01) < 7e-4);
}

static void tables_of_reads_become_windows(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_text out;
    ru_err err;
    assert_ok(read("read", "r.csv", "depth,size,note,mb_per_s\n16,1048576,x,49.8\n1,65536,,3\n", &a,
                   &out, &err),
              err);
    assert_string_equal(out.p, "{\"windows\":[{\"depth\":16,\"size\":1048576,\"mb_per_s\":49.8},"
                               "{\"depth\":1,\"size\":65536,\"mb_per_s\":3}]}");
    assert_int_equal(read("read", "r.csv", "depth,size,mb_per_s\n16,1MiB,49.8\n", &a, &out, &err),
                     RU_E_DATA);
    ru_arena_fini(&a);
}

RU_TESTS(store_natural_gate, cmocka_unit_test(lists_of_kernels_become_services_and_ops),
         cmocka_unit_test(tail_is_that_of_a_queue),
         cmocka_unit_test(tables_of_reads_become_windows))
