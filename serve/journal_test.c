#include "serve/journal.h"

#include <stdio.h>
#include <string.h>

#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"

/* A ring that forgets, quantiles of what it holds, and a log of all of it. */
static void remembers(void **state)
{
    ru_scratch *scratch = *state;
    ru_arena arena;
    ru_err err = {0};
    rui_journal *j = NULL;
    char text[2048], path[256], *log;
    int64_t n = 0, lines = 0;
    ru_arena_init(&arena, 0);
    (void)snprintf(path, sizeof path, "%s/access", scratch->root);
    assert_ok(rui_journal_open(path, &arena, &j, &err), err);
    ru_text t = ru_text_into(text, sizeof text);
    assert_false(rui_journal_explain(j, ru_str_c("p99"), &(ru_tell){.text = &t}));
    assert_string_equal(text, "no infer request has been answered with outputs yet; send one, then "
                              "ask for p99 again");
    for (int64_t k = 0; k < 2000; k++) { /* the last 1024: 976 us to 1999 us */
        rui_entry e = {.method = "POST",
                       .path = "/v2/models/m/infer",
                       .status = 200,
                       .rows = 2,
                       .all_ns = k * 1000,
                       .batch_requests = 3,
                       .batch_rows = 6,
                       .why = RU_SERVE_DUE};
        rui_journal_name(j, e.id);
        assert_true(rui_journal_add(j, &e));
        assert_true(rui_journal_add(j, &(rui_entry){.method = "GET", .path = "/\n"}));
    }
    t = ru_text_into(text, sizeof text);
    assert_false(rui_journal_explain(j, ru_str_c("p101"), &(ru_tell){.text = &t}));
    t = ru_text_into(text, sizeof text);
    assert_false(rui_journal_explain(j, ru_str_c("#976"), &(ru_tell){.text = &t}));
    assert_non_null(strstr(text, "no request '#976' is among the last 1024"));
    t = ru_text_into(text, sizeof text);
    assert_true(rui_journal_explain(j, ru_str_c("#977"), &(ru_tell){.text = &t}));
    assert_non_null(
        strstr(text, "request #977: POST /v2/models/m/infer, answered 200 after 0.976"));
    assert_non_null(
        strstr(text, "6 rows (3 requests) left because a request in it was nearly due"));
    assert_non_null(strstr(text, "last 1024 answers with outputs: p50 1.488 ms, p90 1.897 ms"));
    t = ru_text_into(text, sizeof text);
    assert_true(rui_journal_explain(j, ru_str_c("p100"), &(ru_tell){.text = &t}));
    assert_non_null(strstr(text, "request #2000"));
    rui_journal_close(j);
    assert_ok(ru_file_read(path, 0, &arena, &log, &n, &err), err);
    for (const char *p = log; (p = strchr(p, '\n')) != NULL; p++) {
        lines++;
    }
    assert_int_equal(lines, 4000);
    assert_non_null(strstr(log, "\"path\":\"/\\n\",\"status\":0"));
    assert_non_null(strstr(log, "\"batch_rows\":6,\"batch_requests\":3,\"why\":\"due\"}\n"));
    ru_arena_fini(&arena);
}

RU_TESTS(serve_journal,
         cmocka_unit_test_setup_teardown(remembers, ru_scratch_open, ru_scratch_close))
