/* Where s3:// addresses lead, and which credentials count. */
#include "web/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"

/* The variables of the test at hand, "NAME=value". */
static const char *variables[8];

static const char *env(const char *name)
{
    size_t n = strlen(name);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(variables) && variables[k] != NULL; k++) {
        if (strncmp(variables[k], name, n) == 0 && variables[k][n] == '=') {
            return variables[k] + n + 1;
        }
    }
    return NULL;
}

static void set(const char *const *list)
{
    uint32_t n = 0;
    for (; list[n] != NULL; n++) {
        variables[n] = list[n];
    }
    variables[n] = NULL;
}
#define ENV(...) set((const char *const[]){__VA_ARGS__, NULL})

static const char *url(ru_scratch *s, const char *text, ru_status want)
{
    rui_address a = {0};
    ru_err err = {0};
    ru_status st = rui_address_read(text, env, "eu-central-1", &s->arena, &a, &err);
    if (st != want) {
        fail_msg("%s: %s", text, err.text);
    }
    return st == RU_OK ? a.url : err.text[0] != '\0' ? "" : NULL;
}

static void test_s3(void **state)
{
    ENV("X=1");
    assert_string_equal(url(*state, "s3://bucket/dir/a b+c~.idx", RU_OK),
                        "https://bucket.s3.eu-central-1.amazonaws.com/dir/a%20b%2Bc~.idx");
    assert_string_equal(url(*state, "s3://dots.in.it/k", RU_OK),
                        "https://s3.eu-central-1.amazonaws.com/dots.in.it/k");
    assert_string_equal(url(*state, "s3://bucket/\xc3\xa4?#", RU_OK),
                        "https://bucket.s3.eu-central-1.amazonaws.com/%C3%A4%3F%23");
    ENV("AWS_ENDPOINT_URL=http://minio:9000/");
    assert_string_equal(url(*state, "s3://bucket/k", RU_OK), "http://minio:9000/bucket/k");
    ENV("AWS_ENDPOINT_URL=http://minio:9000", "AWS_ENDPOINT_URL_S3=https://other/base");
    assert_string_equal(url(*state, "s3://bucket/k", RU_OK), "https://other/base/bucket/k");
    ENV("AWS_ENDPOINT_URL=minio:9000");
    (void)url(*state, "s3://bucket/k", RU_E_CONFIG);
    ENV("X=1");
    static const char *const wrong[] = {
        "s3://",          "s3:///k",           "s3://bucket",   "s3://bucket/",
        "s3://buc ket/k", "s3://b\nHost: x/k", "https://",      "https:///x",
        "http://h/a b",   "http://h/\r\nX: y", "https://me@h/x"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(wrong); k++) {
        (void)url(*state, wrong[k], RU_E_CONFIG);
    }
}

static rui_s3_login login(ru_scratch *s, ru_status want)
{
    rui_s3_login l = {0};
    ru_err err = {0};
    ru_status st = rui_s3_login_find(env, &s->arena, &l, &err);
    if (st != want) {
        fail_msg("%s", err.text);
    }
    assert_null(strstr(err.text, "hidden"));
    return l;
}

static void test_login(void **state)
{
    ru_scratch *s = *state;
    const char *keys = ru_path_join(&s->arena, s->root, "keys");
    const char *text = "# of the test\n[default]\naws_access_key_id = D\n"
                       "aws_secret_access_key=hidden D\n\n[team]\n"
                       "aws_access_key_id=T\naws_secret_access_key = hidden/T+=\n"
                       "aws_session_token = tok\nregion = ap-east-1\n[half]\n"
                       "aws_access_key_id=H\n";
    assert_ok(ru_file_replace(keys, text, (int64_t)strlen(text), &s->err), s->err);
    const char *file = ru_arena_printf(&s->arena, "AWS_SHARED_CREDENTIALS_FILE=%s", keys);
    ENV("HOME=/nowhere");
    rui_s3_login l = login(s, RU_OK);
    assert_null(l.key);
    assert_string_equal(l.region, "us-east-1");
    ENV("AWS_ACCESS_KEY_ID=A", "AWS_SECRET_ACCESS_KEY=hidden", "AWS_SESSION_TOKEN=s",
        "AWS_DEFAULT_REGION=eu-west-1", file);
    l = login(s, RU_OK);
    assert_string_equal(l.key, "A");
    assert_string_equal(l.session, "s");
    assert_string_equal(l.region, "eu-west-1");
    ENV(file);
    l = login(s, RU_OK);
    assert_string_equal(l.key, "D");
    assert_string_equal(l.secret, "hidden D");
    assert_null(l.session);
    ENV(file, "AWS_PROFILE=team");
    l = login(s, RU_OK);
    assert_string_equal(l.secret, "hidden/T+=");
    assert_string_equal(l.session, "tok");
    assert_string_equal(l.region, "ap-east-1");
    ENV(file, "AWS_PROFILE=team", "AWS_REGION=us-west-2");
    assert_string_equal(login(s, RU_OK).region, "us-west-2");
    ENV(file, "AWS_PROFILE=half");
    (void)login(s, RU_E_CONFIG);
    ENV(file, "AWS_PROFILE=none");
    (void)login(s, RU_E_CONFIG);
    ENV("AWS_ACCESS_KEY_ID=A");
    (void)login(s, RU_E_CONFIG);
    ENV("AWS_SECRET_ACCESS_KEY=hidden");
    (void)login(s, RU_E_CONFIG);
    ENV("AWS_REGION=x.example.com/");
    (void)login(s, RU_E_CONFIG);
}

static void test_authority(void **state)
{
    (void)state;
    ENV("SSL_CERT_FILE=/a", "AWS_CA_BUNDLE=/b");
    assert_string_equal(rui_address_authority(env, true), "/b");
    assert_string_equal(rui_address_authority(env, false), "/a");
    ENV("X=1");
    assert_null(rui_address_authority(env, true));
}

RU_TESTS(web_address, cmocka_unit_test_setup_teardown(test_s3, ru_scratch_open, ru_scratch_close),
         cmocka_unit_test_setup_teardown(test_login, ru_scratch_open, ru_scratch_close),
         cmocka_unit_test(test_authority))
