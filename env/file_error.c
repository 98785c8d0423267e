/* errno -> (status, sentence). */
#include "env/file_error.h"

#include <errno.h>
#include <string.h>

typedef struct errno_row {
    int errnum;
    ru_status status;
    const char *advice;
} errno_row;

static const errno_row rows[] = {
    {ENOENT, RU_E_MISSING, ""},
    {ENOTDIR, RU_E_MISSING, "; a part of the path is a file, not a folder"},
    {EISDIR, RU_E_DATA, "; a file was expected, this is a folder"},
    {ENOSPC, RU_E_CREATE, "; free some space or choose another folder"},
    {EDQUOT, RU_E_CREATE, "; the quota is used up, free some space or choose another folder"},
    {EROFS, RU_E_CREATE, "; choose a folder that can be written"},
    {EFBIG, RU_E_CREATE, "; a file size limit is set (ulimit -f)"},
    {EACCES, RU_E_PERM, "; grant the right or choose another path"},
    {EPERM, RU_E_PERM, "; grant the right or choose another path"},
    {EMFILE, RU_E_LIMIT, "; raise the limit on open files (ulimit -n)"},
    {ENFILE, RU_E_LIMIT, "; the system has too many open files"},
    {ENOMEM, RU_E_MEM, ""},
};

ru_status rui_file_fail(ru_err *err, int errnum, const char *verb, const char *path)
{
    ru_status st = RU_E_IO;
    const char *advice = "";
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        if (rows[i].errnum == errnum) {
            st = rows[i].status;
            advice = rows[i].advice;
        }
    }
    return RU_FAIL(err, st, "cannot %s %s: %s%s", verb, path, strerror(errnum), advice);
}
