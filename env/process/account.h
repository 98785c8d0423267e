/* Accounts of this machine: who a process may be started as.
 *
 * Thread: any. */
#ifndef RU_ENV_ACCOUNT_H
#define RU_ENV_ACCOUNT_H

#include "base/arena.h"
#include "base/status.h"

typedef struct ru_account {
    const char *name, *home;
    uint32_t uid, gid;
    uint32_t *groups; /* [n_groups] all groups it is in */
    uint32_t n_groups;
} ru_account;

/* Owner: `arena`. Errors: RU_E_MISSING. */
RU_MUST_USE ru_status ru_account_find(const char *name, ru_arena *arena, ru_account *out,
                                      ru_err *err);
/* May this process start others under any account? */
bool ru_account_is_root(void);
/* Does this process run under the account? */
bool ru_account_is_own(const ru_account *a);
/* Is the file or folder there, and of this process' account? */
bool ru_account_has(const char *path);
/* Does the process run under the account that has the file or folder? */
bool ru_account_runs(const char *path, int64_t pid);
/* Give a file or folder to the account; a link is not followed. Errors: RU_E_PERM. */
RU_MUST_USE ru_status ru_account_give(const ru_account *a, const char *path, ru_err *err);

/* In a child between fork and exec: be it for good, without more rights later. false: errno. */
bool rui_account_become(const ru_account *a);

#endif
