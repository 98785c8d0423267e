/* What answers mean, whatever stands in their heads. */
#include "web/answer.h"

#include <stdio.h>
#include <string.h>

#include "test/test.h"

static rui_answer head(const char *const *lines)
{
    rui_answer a;
    rui_answer_begin(&a);
    for (; *lines != NULL; lines++) {
        rui_answer_line(&a, *lines, (int64_t)strlen(*lines));
    }
    return a;
}
#define HEAD(...) head((const char *const[]){__VA_ARGS__, NULL})

static rui_verdict judge(const rui_answer *a, int64_t offset, int64_t n, const rui_version *v,
                         ru_err *err)
{
    const rui_asked q = {
        .name = "s3://b/k", .s3 = true, .offset = offset, .size_bytes = n, .version = v};
    *err = (ru_err){0};
    return rui_answer_judge(a, &q, err);
}

static const rui_version none = {.size_bytes = -1};
static const rui_version first = {.size_bytes = 1000, .tag = "\"t\"", .date = "d"};

static void test_parts(void **state)
{
    ru_err err;
    (void)state;
    rui_answer a = HEAD("HTTP/1.1 206 Partial Content\r\n", "content-range: bytes 10-19/1000\r\n",
                        "ETag: \"t\"\r\n", "Last-Modified: d\r\n");
    assert_int_equal(a.version.size_bytes, 1000);
    assert_int_equal(judge(&a, 10, 10, &first, &err), RUI_TAKE);
    assert_int_equal(judge(&a, 10, 10, &none, &err), RUI_TAKE);
    assert_int_equal(judge(&a, 11, 9, &first, &err), RUI_STOP);  /* from elsewhere */
    assert_int_equal(judge(&a, 10, 11, &first, &err), RUI_TAKE); /* the rest comes later */
    assert_int_equal(judge(&a, 10, 9, &first, &err), RUI_STOP);  /* more */
    a = HEAD("HTTP/1.1 206 x", "Content-Range: bytes 990-999/1000", "ETag: W/\"t\"");
    assert_int_equal(judge(&a, 990, 64, &first, &err), RUI_TAKE); /* up to its end */
    a = HEAD("HTTP/1.1 206 x", "Content-Range: bytes 10-19/*", "ETag: \"t\"");
    assert_int_equal(judge(&a, 10, 10, &first, &err), RUI_TAKE);
    assert_int_equal(judge(&a, 10, 10, &none, &err), RUI_STOP); /* of unknown size */
    a = HEAD("HTTP/1.1 416 x", "Content-Range: bytes */0");
    assert_int_equal(judge(&a, 0, 10, &none, &err), RUI_TAKE);
    a = HEAD("HTTP/1.1 416 x", "Content-Range: bytes */5");
    assert_int_equal(judge(&a, 10, 10, &first, &err), RUI_STOP);
    assert_int_equal(err.status, RU_E_DATA);
}

static void test_changed(void **state)
{
    (void)state;
    static const char *const heads[][2] = {{"Content-Range: bytes 10-19/1001", "ETag: \"t\""},
                                           {"Content-Range: bytes 10-19/1000", "ETag: \"u\""},
                                           {"Content-Range: bytes 10-19/1000", "X: none"}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(heads); k++) {
        ru_err err;
        rui_answer a = HEAD("HTTP/1.1 206 x", heads[k][0], heads[k][1]);
        assert_int_equal(judge(&a, 10, 10, &first, &err), RUI_STOP);
        assert_int_equal(err.status, RU_E_DATA);
    }
}

/* Ranges that cannot be are no ranges. */
static void test_hostile(void **state)
{
    (void)state;
    static const char *const lines[] = {"Content-Range: bytes 10-9/1000",
                                        "Content-Range: bytes -10-19/1000",
                                        "Content-Range: bytes 10-19/15",
                                        "Content-Range: bytes 10-99999999999999999999/1000",
                                        "Content-Range: bytes 0-9223372036854775807/*",
                                        "Content-Range: bytes /",
                                        "Content-Range: bytes",
                                        "Content-Range: lines 10-19/1000",
                                        "Content-Range: bytes 10-19",
                                        "Content-Range:",
                                        ":",
                                        ""};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(lines); k++) {
        ru_err err;
        rui_answer a = HEAD("HTTP/1.1 206 x", lines[k], "ETag: \"t\"", "Last-Modified: d");
        assert_false(a.ranged);
        assert_int_equal(judge(&a, 10, 10, &first, &err), RUI_STOP);
    }
    char wide[1 << 16];
    memset(wide, 'x', sizeof wide);
    static const char *const names[] = {"ETag: ", "Last-Modified: ", "Content-Encoding: ",
                                        "Retry-After: ", "x-amz-bucket-region: "};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(names); k++) {
        rui_answer a;
        rui_answer_begin(&a);
        memcpy(wide, names[k], strlen(names[k]));
        rui_answer_line(&a, wide, sizeof wide);
        assert_int_equal(a.version.tag[0], 0);
        memset(wide, 'x', 32);
    }
    rui_answer a = HEAD("HTTP/1.1 403 x");
    rui_answer_body(&a, "<Error><Code>\x1b[2J\x07</Code>", 26);
    ru_err err;
    assert_int_equal(judge(&a, 0, 1, &none, &err), RUI_STOP);
    assert_null(strchr(err.text, '\x1b')); /* nothing for a terminal to obey */
}

static void test_statuses(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        rui_verdict verdict;
        ru_status status;
    } rows[] = {{"HTTP/1.1 503 Slow Down", RUI_AGAIN, RU_E_PEER},
                {"HTTP/2 429", RUI_AGAIN, RU_E_PEER},
                {"HTTP/1.1 500 x", RUI_AGAIN, RU_E_PEER},
                {"HTTP/1.1 502 x", RUI_AGAIN, RU_E_PEER},
                {"HTTP/1.1 408 x", RUI_AGAIN, RU_E_PEER},
                {"HTTP/1.1 501 x", RUI_STOP, RU_E_IO},
                {"HTTP/1.1 200 OK", RUI_STOP, RU_E_UNSUPPORTED},
                {"HTTP/1.1 401 x", RUI_STOP, RU_E_PERM},
                {"HTTP/1.1 403 x", RUI_STOP, RU_E_PERM},
                {"HTTP/1.1 404 x", RUI_STOP, RU_E_MISSING},
                {"HTTP/1.1 412 x", RUI_STOP, RU_E_DATA},
                {"HTTP/1.1", RUI_STOP, RU_E_IO}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_err err;
        rui_answer a = HEAD(rows[k].line);
        assert_int_equal(judge(&a, 0, 10, &none, &err), rows[k].verdict);
        assert_int_equal(err.status, rows[k].status);
    }
    ru_err err;
    rui_answer a = HEAD("HTTP/1.1 301 x", "x-amz-bucket-region: eu-west-3");
    assert_int_equal(judge(&a, 0, 10, &none, &err), RUI_STOP);
    assert_non_null(strstr(err.text, "AWS_REGION"));
    /* The last answer counts: an earlier one was a redirect. */
    a = HEAD("HTTP/1.1 302 x", "ETag: \"old\"", "HTTP/1.1 206 x", "Content-Range: bytes 0-9/1000");
    assert_int_equal(a.version.tag[0], 0);
    assert_int_equal(judge(&a, 0, 10, &none, &err), RUI_TAKE);
}

static void test_written(void **state)
{
    (void)state;
    static const struct {
        const char *line, *body;
        rui_verdict verdict;
        ru_status status;
    } rows[] = {
        {"HTTP/1.1 200 OK", "", RUI_TAKE, RU_OK},
        {"HTTP/1.1 204 x", "", RUI_TAKE, RU_OK},
        {"HTTP/1.1 200 OK", "<Error><Code>InternalError</Code></Error>", RUI_AGAIN, RU_E_PEER},
        {"HTTP/1.1 503 x", "<Error><Code>SlowDown</Code></Error>", RUI_AGAIN, RU_E_PEER},
        {"HTTP/1.1 403 x", "<Error><Code>AccessDenied</Code></Error>", RUI_STOP, RU_E_PERM},
        {"HTTP/1.1 404 x", "<Error><Code>NoSuchBucket</Code></Error>", RUI_STOP, RU_E_MISSING},
        {"HTTP/1.1 400 x", "<Error><Code>InvalidPart</Code></Error>", RUI_STOP, RU_E_PERM},
        {"HTTP/1.1 301 x", "", RUI_STOP, RU_E_IO}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_err err = {0};
        const rui_asked q = {.name = "s3://bucket/x", .s3 = true, .login = true};
        rui_answer a = HEAD(rows[k].line);
        rui_answer_body(&a, rows[k].body, (int64_t)strlen(rows[k].body));
        assert_int_equal(rui_answer_written(&a, &q, &err), rows[k].verdict);
        assert_int_equal(err.status, rows[k].status);
        assert_true(rows[k].verdict == RUI_TAKE || strstr(err.text, "s3://bucket/x") != NULL);
    }
}

static void test_waits(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(1, 2);
    for (uint32_t tries = 0; tries < 200; tries++) {
        int64_t w = rui_answer_wait_ns(tries, -1, &rng);
        assert_true(w >= 50000000 && w <= 20000000000);
        assert_true(tries > 6 || w <= (int64_t)100000000 << tries);
    }
    rui_answer a = HEAD("HTTP/1.1 503 x", "Retry-After: 3");
    assert_true(rui_answer_wait_ns(0, a.retry_after_s, &rng) >= 3000000000);
    a = HEAD("HTTP/1.1 503 x", "Retry-After: 99999999999");
    assert_int_equal(a.retry_after_s, 60);
    a = HEAD("HTTP/1.1 503 x", "Retry-After: -5");
    assert_int_equal(a.retry_after_s, -1);
}

RU_TESTS(web_answer, cmocka_unit_test(test_parts), cmocka_unit_test(test_changed),
         cmocka_unit_test(test_hostile), cmocka_unit_test(test_statuses),
         cmocka_unit_test(test_written), cmocka_unit_test(test_waits))
