#include "env/process/account.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

ru_status ru_account_find(const char *name, ru_arena *arena, ru_account *out, ru_err *err)
{
    enum { TEXTS_BYTES = 1 << 16, GROUPS_MAX = 1024 };
    struct passwd p, *found = NULL;
    char *texts = ru_arena_alloc(arena, TEXTS_BYTES, 8);
    gid_t *groups = RU_NEW(arena, gid_t, GROUPS_MAX);
    int n = GROUPS_MAX;
    if (texts == NULL || groups == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the account %s", name);
    }
    if (getpwnam_r(name, &p, texts, TEXTS_BYTES, &found) != 0 || found == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "this machine has no account '%s'", name);
    }
    if (getgrouplist(name, p.pw_gid, groups, &n) < 0) {
        return RU_FAIL(err, RU_E_LIMIT, "the account %s is in more than %d groups", name,
                       GROUPS_MAX);
    }
    *out = (ru_account){
        .name = p.pw_name, .home = p.pw_dir, .uid = p.pw_uid, .gid = p.pw_gid, .groups = groups};
    out->n_groups = (uint32_t)n;
    return RU_OK;
}

bool ru_account_is_root(void)
{
    return geteuid() == 0;
}

bool ru_account_is_own(const ru_account *a)
{
    return geteuid() == a->uid;
}

bool ru_account_has(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && st.st_uid == geteuid();
}

bool ru_account_runs(const char *path, int64_t pid)
{
    char proc[32];
    struct stat st, is;
    (void)snprintf(proc, sizeof proc, "/proc/%lld", (long long)pid);
    return lstat(path, &st) == 0 && lstat(proc, &is) == 0 && st.st_uid == is.st_uid;
}

ru_status ru_account_give(const ru_account *a, const char *path, ru_err *err)
{
    return lchown(path, a->uid, a->gid) == 0
               ? RU_OK
               : RU_FAIL(err, RU_E_PERM, "cannot give %s to the account %s: %s", path, a->name,
                         strerror(errno));
}

bool rui_account_become(const ru_account *a)
{
    return setgroups(a->n_groups, a->groups) == 0 && setresgid(a->gid, a->gid, a->gid) == 0 &&
           setresuid(a->uid, a->uid, a->uid) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}
