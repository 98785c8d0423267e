#include "cluster/journal_impl.h"

#include <string.h>

#include "base/str.h"

bool ru_journal_is_database(const char *at)
{
    return ru_str_starts(ru_str_c(at), "postgres://") ||
           ru_str_starts(ru_str_c(at), "postgresql://");
}

ru_status ru_journal_check(const char *at, ru_err *err)
{
    if (!ru_journal_is_database(at)) {
        return strstr(at, "://") == NULL
                   ? RU_OK
                   : RU_FAIL(err, RU_E_CONFIG,
                             "journal: expected a path or postgres://USER@HOST[:PORT]/NAME");
    }
    const char *user = strstr(at, "://") + 3, *end = user + strcspn(user, "/?");
    const char *host = user;
    for (const char *p = user; p < end; p++) {
        host = *p == '@' ? p : host;
    }
    return memchr(user, ':', (size_t)(host - user)) == NULL && strstr(at, "password=") == NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG,
                         "journal: an address with a password is not kept secret; leave it out and "
                         "write it into ~/.pgpass (HOST:PORT:DATABASE:USER:PASSWORD, mode 0600)");
}

ru_status ru_journal_open(const char *at, const char *folder, ru_arena *arena, ru_journal *out,
                          ru_err *err)
{
    RU_TRY(ru_journal_check(at, err));
    return ru_journal_is_database(at) ? rui_journal_postgres(at, folder, arena, out, err)
                                      : ru_journal_sqlite(at, arena, out, err);
}
