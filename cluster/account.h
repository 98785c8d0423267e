/* Whose processes run a user's jobs.
 *
 * Thread: any. */
#ifndef RU_CLUSTER_ACCOUNT_H
#define RU_CLUSTER_ACCOUNT_H

#include "env/process/account.h"

/* The account under which jobs of `owner` run here: *is NULL for that of this process, else `room`,
 * which only root can be asked for. `own`: each user has the account of the same name.
 * Owner:  texts in `arena`. Errors: RU_E_PERM with what to do. */
RU_MUST_USE ru_status ru_cluster_account(bool own, const char *owner, ru_arena *arena,
                                         ru_account *room, const ru_account **is, ru_err *err);

#endif
