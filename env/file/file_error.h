/* Turning errno into a status and a sentence, for env/ only.
 *
 * Thread: any. */
#ifndef RU_ENV_FILE_ERROR_H
#define RU_ENV_FILE_ERROR_H

#include "base/status.h"

/* "cannot <verb> <path>: <reason>[; advice]" with the status that says what the caller can do. */
ru_status rui_file_fail(ru_err *err, int errnum, const char *verb, const char *path);
/* The same for a name that could not be made: whatever the path lacks, the output is missing, not
 * an input. Only a failing device and what this process or the system ran out of stay as they are.
 */
ru_status rui_file_fail_new(ru_err *err, int errnum, const char *verb, const char *path);

/* All of an open file, and with `name` its name, survive a loss of power from now on. Errors:
 * RU_E_IO. */
RU_MUST_USE ru_status rui_file_sync(int fd, const char *path, bool name, ru_err *err);

#endif
