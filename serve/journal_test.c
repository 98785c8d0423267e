#include "serve/journal.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
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
    assert_int_equal(lines, 4000); /* 600 KB: blocks go round */
    assert_non_null(strstr(log, "\"path\":\"/\\n\",\"status\":0"));
    assert_non_null(strstr(log, "\"batch_rows\":6,\"batch_requests\":3,\"why\":\"due\"}\n"));
    ru_arena_fini(&arena);
}

/* The line of an entry, by the general writer. */
static void put_entry(ru_text *t, const rui_entry *e)
{
    ru_json j = ru_json_into(t);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "schema", "rubato.serve.request/1");
    ru_json_i64(&j, "at_ns", e->at_ns);
    ru_json_str(&j, "id", e->id);
    if (e->trace[0] != '\0') {
        ru_json_str(&j, "trace", e->trace);
        ru_json_str(&j, "parent", e->parent);
        ru_json_str(&j, "span", e->span);
    }
    ru_json_str(&j, "method", e->method);
    ru_json_str(&j, "path", e->path);
    ru_json_i64(&j, "status", e->status);
    ru_json_i64(&j, "bytes_in", e->bytes_in);
    ru_json_i64(&j, "bytes_out", e->bytes_out);
    ru_json_i64(&j, "all_ns", e->all_ns);
    if (e->rows > 0) {
        ru_json_i64(&j, "rows", e->rows);
        ru_json_i64(&j, "parse_ns", e->parse_ns);
    }
    if (e->batch_requests > 0) {
        ru_json_i64(&j, "buffer_ns", e->buffer_ns);
        ru_json_i64(&j, "queue_ns", e->queue_ns);
        ru_json_i64(&j, "compute_ns", e->compute_ns);
        ru_json_i64(&j, "answer_ns", e->answer_ns);
        ru_json_i64(&j, "batch_rows", e->batch_rows);
        ru_json_i64(&j, "batch_requests", e->batch_requests);
        ru_json_str(&j, "why", "full");
    }
    ru_json_close(&j);
    ru_text_put(t, "\n");
}

/* Lines are JSON, also of odd texts and of numbers of all lengths. */
static void lines_are_json(void **state)
{
    enum { N = 80 };
    static const char *const odd[] = {"\x01\"\\\x7f\xc3\xa9\xff\n/", "a\"", "a\\", "\x7f",
                                      "a\xc3\xa9"};
    ru_scratch *scratch = *state;
    ru_arena arena;
    ru_err err = {0};
    rui_journal *j = NULL;
    char path[256], *log;
    int64_t n = 0;
    ru_arena_init(&arena, 0);
    ru_text want = ru_text_arena(&arena);
    (void)snprintf(path, sizeof path, "%s/access", scratch->root);
    assert_ok(rui_journal_open(path, &arena, &j, &err), err);
    for (uint32_t k = 0; k < N; k++) {
        int64_t v = (k % 2 == 0 ? 1 : -1) * (INT64_MAX >> (k % 64));
        uint32_t u = UINT32_MAX >> (k % 32);
        rui_entry e = {.at_ns = v,
                       .bytes_in = k % 64 == 0 ? INT64_MIN : v / 3,
                       .bytes_out = k,
                       .all_ns = -(int64_t)k,
                       .parse_ns = 100 * (int64_t)k,
                       .compute_ns = v / 7,
                       .status = u,
                       .rows = k % 3,
                       .batch_rows = u / 3,
                       .batch_requests = k % 5,
                       .why = RU_SERVE_FULL};
        (void)snprintf(e.trace, sizeof e.trace, "%s", k % 2 == 0 ? "0af7651916cd43dd" : "");
        (void)snprintf(e.method, sizeof e.method, "%s", k % 7 == 0 ? "GET" : "POST");
        (void)snprintf(e.id, sizeof e.id, "%s", k % 4 == 0 ? odd[k / 4 % RU_ARRAY_LEN(odd)] : "#1");
        memset(e.path, k % 3 == 0 ? 1 : 'a', k); /* six bytes each, or one */
        put_entry(&want, &e);
        assert_true(rui_journal_add(j, &e));
        assert_true(rui_journal_flush(j) || k > 0);
    }
    rui_journal_close(j);
    assert_ok(ru_file_read(path, 0, &arena, &log, &n, &err), err);
    assert_string_equal(log, want.p);
    ru_arena_fini(&arena);
}

RU_TESTS(serve_journal,
         cmocka_unit_test_setup_teardown(remembers, ru_scratch_open, ru_scratch_close),
         cmocka_unit_test_setup_teardown(lines_are_json, ru_scratch_open, ru_scratch_close))
