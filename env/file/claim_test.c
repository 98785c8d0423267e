/* Claims on a folder: who is let in beside whom. Locks belong to opened files, so that one process
 * can play several. */
#include "env/file/claim.h"
#include "test/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env/file/file.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/rubato-test-XXXXXX");
    return mkdtemp(root) == NULL;
}

static int drop_root(void **state)
{
    (void)state;
    return ru_path_remove(root, NULL) != RU_OK;
}

static ru_status claim(uint64_t key, bool alone, ru_claim **c, ru_err *err)
{
    return ru_claim_open(&(ru_claim_options){.dir = root, .key = key, .alone = alone}, c, err);
}

/* The other job is refused with who is there, whichever way it asks; the same job is let in unless
 * it wants to be alone; after the last one left, anybody is. */
static void test_one_job_at_a_time(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_claim *first = NULL, *second = NULL, *other = NULL;
    assert_ok(claim(7, true, &first, &err), err);
    assert_int_equal(claim(8, true, &other, &err), RU_E_AGAIN);
    assert_int_equal(claim(8, false, &other, &err), RU_E_AGAIN);
    char who[64];
    snprintf(who, sizeof who, "(process %ld on ", (long)getpid());
    assert_non_null(strstr(err.text, who));
    assert_non_null(strstr(err.text, root));
    assert_int_equal(claim(7, true, &other, &err), RU_E_AGAIN);
    assert_ok(claim(7, false, &second, &err), err);
    ru_claim_close(first); /* the one that came first may leave first */
    assert_int_equal(claim(8, false, &other, &err), RU_E_AGAIN);
    assert_ok(claim(7, false, &first, &err), err);
    ru_claim_close(first);
    ru_claim_close(second);
    assert_ok(claim(8, false, &other, &err), err); /* nobody is there: it need not be alone */
    assert_int_equal(claim(7, false, &first, &err), RU_E_AGAIN);
    ru_claim_close(other);
    ru_claim_close(NULL);
}

/* A lock file with a text of nobody's is not believed to be ours. */
static void test_strange_texts(void **state)
{
    (void)state;
    ru_err err = {0};
    char path[96];
    static const char *const texts[] = {"", "job", "job \n", "\n", "something else altogether\n"};
    snprintf(path, sizeof path, "%s/lock", root);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(texts); k++) {
        ru_claim *first = NULL, *other = NULL;
        assert_ok(claim(7, true, &first, &err), err);
        FILE *f = fopen(path, "r+");
        assert_non_null(f);
        assert_int_equal(ftruncate(fileno(f), 0), 0);
        assert_true(fputs(texts[k], f) >= 0);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(claim(7, false, &other, &err), RU_E_AGAIN);
        ru_claim_close(first);
        assert_ok(claim(9, true, &other, &err), err);
        ru_claim_close(other);
    }
}

static void test_folders_that_cannot_be_claimed(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_claim *c = NULL;
    const ru_claim_options nowhere = {.dir = "/nowhere/at/all", .key = 1};
    assert_int_equal(ru_claim_open(&nowhere, &c, &err), RU_E_CREATE);
    char path[96];
    snprintf(path, sizeof path, "%s/lock", root);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(claim(1, true, &c, &err), RU_E_CREATE);
    assert_null(c);
}

#define T(f) cmocka_unit_test_setup_teardown(f, make_root, drop_root)
RU_TESTS(env_claim, T(test_one_job_at_a_time), T(test_strange_texts),
         T(test_folders_that_cannot_be_claimed))
