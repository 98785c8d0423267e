/* Windows as they are told: credits that do not end, buckets beside the first one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "burst/service.h"
#include "test/test.h"

static void credits_that_do_not_end_are_no_number(void **state)
{
    (void)state;
    ru_err err;
    char dir[] = "/tmp/rubato-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/windows.jsonl", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs("{\"window\":0,\"phase\":\"held\",\"stretch\":2}\n"
                      "{\"window\":1,\"phase\":\"held\",\"stretch\":4}\n"
                      "{\"window\":2,\"phase\":\"held\",\"stretch\":null,\"disk\":{\"level\":1,"
                      "\"cap\":2,\"use\":3,\"rate\":4,\"next_speed\":0.5}}\n",
                      f) >= 0);
    assert_int_equal(fclose(f), 0);
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_text t = ru_text_arena(&arena);
    assert_ok(ru_burst_explain(dir, 3, &arena, &t, &err), err);
    assert_non_null(strstr(t.p, "credits last 3.00 times as long"));
    assert_non_null(strstr(t.p, "disk: 1 of 2 left, 3 a second used of at most 4 (speed 0.50, "));
    ru_arena_fini(&arena);
    assert_int_equal(remove(path), 0);
    assert_int_equal(remove(dir), 0);
}

RU_TESTS(burst_explain, cmocka_unit_test(credits_that_do_not_end_are_no_number))
