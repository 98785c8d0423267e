/* Tokens in files: what ends a line is no part of them, and what others can read is none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/conf.h"
#include "env/file/file.h"
#include "launch/launch.h"
#include "test/test.h"

static void tokens_are_read_from_private_files(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t mode;
        ru_status st;
        const char *says;
    } cases[] = {
        {"0123456789abcdef", 0600, RU_OK, ""},
        {"0123456789abcdef\r\n", 0400, RU_OK, ""},
        {"0123456789abcdef \n\n", 0700, RU_OK, ""},
        {"0123456789abcdef", 0640, RU_E_USAGE, "chmod 600"},
        {"0123456789abcdef", 0604, RU_E_USAGE, "chmod 600"},
        {"0123456789abcde\r\n", 0600, RU_E_USAGE, "too short"},
    };
    char path[] = "/tmp/rubato-token-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    ru_arena arena;
    ru_arena_init(&arena, 0);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        ru_err err = {0};
        const char *token = NULL;
        size_t n = strlen(cases[k].text);
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, cases[k].text, n, 0), (ssize_t)n);
        assert_int_equal(fchmod(fd, cases[k].mode), 0);
        assert_int_equal(ru_token_get(path, &arena, &token, &err), cases[k].st);
        assert_non_null(strstr(err.text, cases[k].says));
        if (cases[k].st == RU_OK) {
            assert_string_equal(token, "0123456789abcdef");
        }
    }
    ru_arena_fini(&arena);
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
}

/* Sets or, with NULL, removes a variable; `was` keeps the old value. */
static void put_env(const char *name, const char *value, char was[256])
{
    const char *old = ru_conf_env(name);
    (void)snprintf(was, 256, "%s", old != NULL ? old : "");
    assert_int_equal(value != NULL && value[0] != 0 ? setenv(name, value, 1) : unsetenv(name), 0);
}

/* What another launcher starts gets along without a token that somebody gives: one for each start
 * and user. What is given counts, also if it is wrong. */
static void tokens_of_starts_are_derived(void **state)
{
    (void)state;
    static const char *const names[] = {"RUBATO_TOKEN", "XDG_CONFIG_HOME", "HOME"};
    char home[] = "/tmp/rubato-home-XXXXXX", other[] = "/tmp/rubato-home-XXXXXX", was[3][256];
    char unused[256];
    ru_arena arena;
    ru_token a, b;
    ru_err err = {0};
    ru_arena_init(&arena, 0);
    assert_true(mkdtemp(home) != NULL && mkdtemp(other) != NULL);
    put_env(names[0], NULL, was[0]);
    put_env(names[1], NULL, was[1]);
    put_env(names[2], home, was[2]);
    assert_ok(ru_token_shared(NULL, "start 1", &arena, &a, &err), err);
    assert_int_equal(strlen(a.text), 2 * RU_TOKEN_BYTES);
    assert_non_null(strstr(a.secret, home));
    assert_ok(ru_token_shared(NULL, "start 1", &arena, &b, &err), err);
    assert_string_equal(a.text, b.text);
    assert_ok(ru_token_shared(NULL, "start 2", &arena, &b, &err), err);
    assert_string_not_equal(a.text, b.text);
    put_env("XDG_CONFIG_HOME", other, unused);
    assert_ok(ru_token_shared(NULL, "start 1", &arena, &b, &err), err);
    assert_string_not_equal(a.text, b.text);
    put_env("XDG_CONFIG_HOME", "rubato-relative", unused); /* ignored */
    assert_ok(ru_token_shared(NULL, "start 1", &arena, &b, &err), err);
    assert_string_equal(a.text, b.text);
    assert_string_equal(a.secret, b.secret);
    put_env("XDG_CONFIG_HOME", NULL, unused);
    assert_int_equal(ru_token_shared(NULL, NULL, &arena, &b, &err), RU_E_USAGE);
    assert_non_null(strstr(err.text, "set RUBATO_TOKEN"));
    put_env("RUBATO_TOKEN", "short", unused);
    assert_int_equal(ru_token_shared(NULL, "start 1", &arena, &b, &err), RU_E_USAGE);
    put_env("RUBATO_TOKEN", "0123456789abcdef", unused);
    assert_ok(ru_token_shared(NULL, "start 1", &arena, &b, &err), err);
    assert_string_equal(b.text, "0123456789abcdef");
    assert_null(b.secret);
    put_env("RUBATO_TOKEN", NULL, unused);
    put_env("HOME", NULL, unused);
    assert_int_not_equal(ru_token_shared(NULL, "start 1", &arena, &b, &err), RU_OK);
    assert_non_null(strstr(err.text, "HOME is not set to an absolute path. Or set RUBATO_TOKEN"));
    put_env("HOME", "rubato-relative", unused);
    assert_int_not_equal(ru_token_shared(NULL, "start 1", &arena, &b, &err), RU_OK);
    assert_true(access("rubato-relative", F_OK) != 0);
    for (uint32_t k = 0; k < 3; k++) {
        put_env(names[k], was[k], unused);
    }
    ru_arena_fini(&arena);
    assert_ok(ru_path_remove(home, &err), err);
    assert_ok(ru_path_remove(other, &err), err);
}

RU_TESTS(launch_token, cmocka_unit_test(tokens_are_read_from_private_files),
         cmocka_unit_test(tokens_of_starts_are_derived))
