/* The user's secret: made once, also by many at a time; refused when others may know it. Keys are
 * those of RFC 4231, whose short keys equal ones that are filled up with zeros. */
#include "env/file/secret.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/file/file.h"
#include "test/test.h"

static void put(const char *path, const char *text, mode_t mode)
{
    (void)unlink(path);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void test_published_key(void **state)
{
    (void)state;
    static const uint8_t expected[RU_SECRET_BYTES] = {
        0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
        0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
        0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
    char dir[] = "/tmp/rubato-secret-XXXXXX", path[64], text[80] = "4a656665";
    uint8_t key[RU_SECRET_BYTES];
    ru_err err = {0};
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/secret", dir);
    memset(text + 8, '0', 56);
    strcpy(text + 64, "\n");
    put(path, text, 0600);
    assert_ok(ru_secret_key(path, "what do ya want for nothing?", key, &err), err);
    assert_memory_equal(key, expected, sizeof key);
    assert_ok(ru_path_remove(dir, &err), err);
}

static void test_made_once(void **state)
{
    (void)state;
    enum { MAKERS = 8 };
    char dir[] = "/tmp/rubato-secret-XXXXXX", path[64];
    uint8_t key[RU_SECRET_BYTES], theirs[RU_SECRET_BYTES];
    ru_err err = {0};
    int ends[2];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(pipe(ends), 0);
    (void)snprintf(path, sizeof path, "%s/a/b/secret", dir);
    for (uint32_t k = 0; k < MAKERS; k++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            bool ok = ru_secret_key(path, "p", key, NULL) == RU_OK &&
                      write(ends[1], key, sizeof key) == sizeof key;
            _exit(ok ? 0 : 1);
        }
    }
    for (uint32_t k = 0; k < MAKERS; k++) {
        int how;
        assert_true(wait(&how) > 0);
        assert_int_equal(how, 0);
    }
    assert_ok(ru_secret_key(path, "p", key, &err), err);
    for (uint32_t k = 0; k < MAKERS; k++) {
        assert_int_equal(read(ends[0], theirs, sizeof theirs), sizeof theirs);
        assert_memory_equal(theirs, key, sizeof key);
    }
    assert_ok(ru_secret_key(path, "q", theirs, &err), err);
    assert_memory_not_equal(theirs, key, sizeof key);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    ru_arena arena;
    char **names;
    uint32_t n;
    ru_arena_init(&arena, 0);
    (void)snprintf(path, sizeof path, "%s/a/b", dir);
    assert_ok(ru_dir_list(path, &arena, &names, &n, &err), err);
    assert_int_equal(n, 1); /* nothing else was left there */
    ru_arena_fini(&arena);
    close(ends[0]);
    close(ends[1]);
    assert_ok(ru_path_remove(dir, &err), err);
}

static void test_what_others_may_know(void **state)
{
    (void)state;
    static const char good[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";
    static const char short_one[] = "00112233445566778899aabbccddeeff\n";
    static const char worse[] =
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeFF\n";
    static const struct {
        const char *text;
        mode_t mode;
        ru_status st;
        const char *says;
    } rows[] = {{good, 0600, RU_OK, ""},
                {good, 0400, RU_OK, ""},
                {good, 0640, RU_E_CONFIG, "other users may read or write"},
                {good, 0602, RU_E_CONFIG, "other users may read or write"},
                {short_one, 0600, RU_E_CONFIG, "remove it"},
                {worse, 0600, RU_E_CONFIG, "remove it"},
                {"", 0600, RU_E_CONFIG, "remove it"}};
    char dir[] = "/tmp/rubato-secret-XXXXXX", path[64], other[64];
    uint8_t key[RU_SECRET_BYTES];
    ru_err err = {0};
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/secret", dir);
    (void)snprintf(other, sizeof other, "%s/other", dir);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        put(path, rows[k].text, rows[k].mode);
        assert_int_equal(ru_secret_key(path, "p", key, &err), rows[k].st);
        assert_true(rows[k].st == RU_OK || strstr(err.text, rows[k].says) != NULL);
    }
    put(other, good, 0600);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_int_not_equal(ru_secret_key(path, "p", key, &err), RU_OK);
    assert_non_null(strstr(err.text, "cannot follow the link"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ru_secret_key(path, "p", key, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "no regular file"));
    assert_int_equal(unlink(path), 0);
    if (geteuid() == 0) {
        put(path, good, 0600);
        assert_int_equal(chown(path, 4242, 4242), 0);
        assert_int_equal(ru_secret_key(path, "p", key, &err), RU_E_CONFIG);
        assert_non_null(strstr(err.text, "another user's"));
    }
    assert_ok(ru_path_remove(dir, &err), err);
    assert_int_equal(ru_secret_key("/proc/rubato/secret", "p", key, &err), RU_E_CREATE);
}

RU_TESTS(env_secret, cmocka_unit_test(test_published_key), cmocka_unit_test(test_made_once),
         cmocka_unit_test(test_what_others_may_know))
