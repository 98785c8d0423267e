/* Tokens in files: what ends a line is no part of them, and what others can read is none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

RU_TESTS(launch_token, cmocka_unit_test(tokens_are_read_from_private_files))
