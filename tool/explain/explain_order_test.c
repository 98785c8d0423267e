/* The table of parameters: by hand. */
#include "tool/explain/explain_order.h"

#include <string.h>

#include "test/test.h"
#include "tool/explain/explain_pulled.h"

/* 1 MB and 3 MB over 1e9 bytes/s, for ops of 2 ms each: the second waits for its 4 ms. */
static void test_ops_have_a_line_each(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    static const ru_order_policy_op ops[] = {{"one", 2000000, 1000000, {NULL, 0}},
                                             {"none", 500000, 0, {NULL, 0}},
                                             {"two", 2000000, 3000000, {NULL, 0}}};
    const ru_order_policy_in input = {.q = {.link = {.bytes_per_s = 1e9},
                                            .workers = 1,
                                            .slice_bytes = 1,
                                            .partition_bytes = 1,
                                            .credit_bytes = 1,
                                            .method = RU_ORDER_FIFO},
                                      .ops = {ops, 3}};
    ru_order_in in;
    ru_order_plan plan;
    ru_text out = ru_text_arena(&a);
    assert_ok(ru_order_in_of(&input, &a, &in, &err), err);
    assert_ok(ru_plan_order(&in, &a, &a, &plan, &err), err);
    assert_ok(rui_explain_order(&input, &plan, &a, &(ru_tell){.text = &out}, &err), err);
    /* "none" comes first: it waits for nothing */
    assert_non_null(strstr(out.p, "  one     0   977 KiB  1.00 ms     500 us   500 us\n"));
    assert_non_null(strstr(out.p, "  two     1  2.86 MiB  4.00 ms    3.00 ms  1.00 ms\n"));
    assert_null(strstr(out.p, "none"));
    ru_arena_fini(&a);
}

/* Two ops of 20 us, and 30 us of transfers: the second op waits 5 us for its tensor, and the bias
 * behind it shows that packing took 10 us. That is 60 us, not the 45 of ops and waits; and not
 * "0.0 ms" beside an efficiency. */
static void test_microseconds_are_said(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    const ru_op_fact ops[] = {{.took = {.mean_ns = 20000}},
                              {.step = 1, .took = {.mean_ns = 20000}}};
    const ru_transfer_fact x[] = {{.name = "w",
                                   .made_by = -1,
                                   .used_by = 1,
                                   .arrived_ns = 30000,
                                   .needed_ns = 25000,
                                   .took = {.mean_ns = 29000}},
                                  {.name = "b",
                                   .made_by = -1,
                                   .used_by = 1,
                                   .arrived_ns = 31000,
                                   .needed_ns = 40000,
                                   .took = {.mean_ns = 1000}}};
    const ru_world w = {.facts = {.ops = {ops, 2}, .transfers = {x, 2}}};
    ru_text out = ru_text_arena(&a);
    assert_ok(rui_explain_pulled(&w, &a, &(ru_tell){.text = &out}, &err), err);
    assert_non_null(strstr(out.p, "a perfect order saves 30.0 us of 70.0 us without overlap"));
    assert_non_null(
        strstr(out.p, "took 60.0 us (E 0.33): steps computed 40.0 us and waited 5.0 us"));
    ru_arena_fini(&a);
}

RU_TESTS(tool_explain_order, cmocka_unit_test(test_ops_have_a_line_each),
         cmocka_unit_test(test_microseconds_are_said))
