/* errno -> (status, sentence). */
#include "env/file/file_error.h"

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
    {EEXIST, RU_E_CREATE, "; choose another name"},
    {EISDIR, RU_E_DATA, "; expected a file, but this is a folder"},
    {ENOSPC, RU_E_CREATE, "; free some space or choose another folder"},
    {EDQUOT, RU_E_CREATE, "; the disk quota is used up; free some space or choose another folder"},
    {EROFS, RU_E_CREATE, "; choose a writable folder"},
    {EFBIG, RU_E_CREATE, "; a file size limit is set (ulimit -f)"},
    {EACCES, RU_E_PERM, "; grant the permission or choose another path"},
    {EPERM, RU_E_PERM, "; grant the permission or choose another path"},
    {EMFILE, RU_E_LIMIT, "; raise the limit on open files (ulimit -n)"},
    {ENFILE, RU_E_LIMIT, "; the system has too many open files"},
    {ENOMEM, RU_E_MEM, ""},
};

static errno_row row_of(int errnum)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        if (rows[i].errnum == errnum) {
            return rows[i];
        }
    }
    return (errno_row){errnum, RU_E_IO, ""};
}

ru_status rui_file_fail(ru_err *err, int errnum, const char *verb, const char *path)
{
    errno_row row = row_of(errnum);
    return RU_FAIL(err, row.status, "cannot %s %s: %s%s", verb, path, strerror(errnum), row.advice);
}

ru_status rui_file_fail_new(ru_err *err, int errnum, const char *verb, const char *path)
{
    errno_row row = row_of(errnum);
    bool elsewhere = errnum == EIO || row.status == RU_E_LIMIT || row.status == RU_E_MEM;
    return RU_FAIL(err, elsewhere ? row.status : RU_E_CREATE, "cannot %s %s: %s%s", verb, path,
                   strerror(errnum), row.advice);
}
