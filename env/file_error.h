/* Turning errno into a status and a sentence, for env/ only.
 *
 * Thread: any. */
#ifndef RU_ENV_FILE_ERROR_H
#define RU_ENV_FILE_ERROR_H

#include "base/status.h"

/* "cannot <verb> <path>: <reason>[; advice]" with the status that tells what the caller can do. */
ru_status rui_file_fail(ru_err *err, int errnum, const char *verb, const char *path);

#endif
