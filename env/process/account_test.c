/* Children under another account: its numbers, all its groups, and no way to more rights. */
#include "env/process/account.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env/process/process.h"
#include "test/test.h"

static void accounts_are_found(void **state)
{
    (void)state;
    ru_arena a;
    ru_account root;
    ru_err err = {0};
    ru_arena_init(&a, 0);
    assert_ok(ru_account_find("root", &a, &root, &err), err);
    assert_true(root.uid == 0 && root.n_groups >= 1 && root.home[0] == '/');
    assert_true(ru_account_is_own(&root) == ru_account_is_root());
    assert_int_equal(ru_account_find("no-such-account-anywhere", &a, &root, &err), RU_E_MISSING);
    assert_non_null(strstr(err.text, "no-such-account-anywhere"));
    ru_arena_fini(&a);
}

static void children_run_under_it(void **state)
{
    (void)state;
    ru_arena a;
    ru_account nobody;
    ru_err err = {0};
    const char *argv[] = {"grep", "-E", "^(Uid|Gid|Groups|NoNewPrivs):", "/proc/self/status", NULL};
    const char *line;
    char want[128];
    gid_t before[64];
    ru_process *p = NULL;
    ru_arena_init(&a, 0);
    if (!ru_account_is_root() || ru_account_find("nobody", &a, &nobody, &err) != RU_OK) {
        ru_arena_fini(&a);
        skip();
    }
    const ru_process_options po = {.argv = argv, .pipe_out = true, .account = &nobody};
    int n = getgroups(64, before);
    assert_true(n >= 0);
    bool other = setgroups(1, &(gid_t){54321}) == 0; /* which it must lose */
    assert_ok(ru_process_start(&po, &p, &err), err);
    assert_true(!other || setgroups((size_t)n, before) == 0);
    assert_ok(ru_process_line(p, 0, &line, &err), err);
    (void)snprintf(want, sizeof want, "Uid:\t%u\t%u\t%u\t%u", nobody.uid, nobody.uid, nobody.uid,
                   nobody.uid);
    assert_string_equal(line, want);
    assert_ok(ru_process_line(p, 0, &line, &err), err);
    (void)snprintf(want, sizeof want, "Gid:\t%u\t%u\t%u\t%u", nobody.gid, nobody.gid, nobody.gid,
                   nobody.gid);
    assert_string_equal(line, want);
    assert_ok(ru_process_line(p, 0, &line, &err), err);
    (void)snprintf(want, sizeof want, "Groups:\t%u ", nobody.gid);
    assert_true(nobody.n_groups > 1 ? strstr(line, "54321") == NULL : strcmp(line, want) == 0);
    assert_ok(ru_process_line(p, 0, &line, &err), err);
    assert_string_equal(line, "NoNewPrivs:\t1");
    assert_int_equal(ru_process_wait(p), 0);
    ru_process_close(p);
    char dir[] = "/tmp/rubato-test-XXXXXX";
    struct stat st;
    assert_non_null(mkdtemp(dir));
    assert_true(ru_account_has(dir) && ru_account_runs(dir, getpid()));
    assert_ok(ru_account_give(&nobody, dir, &err), err);
    assert_true(!ru_account_has(dir) && stat(dir, &st) == 0 && st.st_uid == nobody.uid);
    assert_false(ru_account_runs(dir, getpid()));
    assert_int_equal(rmdir(dir), 0);
    ru_arena_fini(&a);
}

RU_TESTS(env_account, cmocka_unit_test(accounts_are_found), cmocka_unit_test(children_run_under_it))
