/* Files of our own under names that others may have taken.
 *
 * Thread: any. */
#ifndef RU_ENV_FILE_OWN_H
#define RU_ENV_FILE_OWN_H

#include "base/status.h"

/* open() of a regular file: a link at the name is not followed, and a FIFO is not waited for.
 * Errors: RU_E_CREATE for what is no regular file; those of rui_file_fail_new with O_CREAT, else of
 * rui_file_fail. */
RU_MUST_USE ru_status rui_open_own(const char *path, int flags, unsigned mode, int *fd,
                                   ru_err *err);

#endif
