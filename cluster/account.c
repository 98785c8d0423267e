#include "cluster/account.h"

#include <string.h>

ru_status ru_cluster_account(bool own, const char *owner, ru_arena *arena, ru_account *room,
                             const ru_account **is, ru_err *err)
{
    *is = NULL;
    if (!own || strcmp(owner, "admin") == 0) {
        return RU_OK;
    }
    ru_status st = ru_account_find(owner, arena, room, err);
    if (st != RU_OK) {
        return RU_FAIL(err, RU_E_PERM,
                       "this machine has no account '%s', under which the jobs of this user would "
                       "run: make one, or set accounts: shared in CLUSTER.yaml",
                       owner);
    }
    if (ru_account_is_own(room)) {
        return RU_OK;
    }
    if (!ru_account_is_root()) {
        return RU_FAIL(err, RU_E_PERM,
                       "jobs of %s would run under that account, which only root can start: start "
                       "the cluster as root, or set accounts: shared in CLUSTER.yaml",
                       owner);
    }
    *is = room;
    return RU_OK;
}
