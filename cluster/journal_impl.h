/* Journals by their address.
 *
 * Thread: one at a time. */
#ifndef RU_CLUSTER_JOURNAL_IMPL_H
#define RU_CLUSTER_JOURNAL_IMPL_H

#include "cluster/journal.h"

/* journal_postgres.c: that of the cluster in `folder`, connected, but without the lead. Errors:
 * RU_E_PEER (no server answers), RU_E_PERM (the password), RU_E_DATA (another version or cluster),
 * RU_E_UNSUPPORTED (no libpq). */
RU_MUST_USE ru_status rui_journal_postgres(const char *address, const char *folder, ru_arena *arena,
                                           ru_journal *out, ru_err *err);

#endif
