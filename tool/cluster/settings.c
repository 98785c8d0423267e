#include "tool/cluster/settings.h"

#include <stdlib.h>
#include <string.h>

#include "env/file/file.h"

ru_status rui_settings_read(const char *path, const char *what, const ru_conf_table *table,
                            ru_arena *arena, void *into, rui_settings *out, ru_err *err)
{
    char *text;
    int64_t n;
    ru_conf *c;
    RU_TRY(ru_file_read(path, 1 << 20, arena, &text, &n, err));
    RU_TRY(ru_conf_new(table, arena, &c, err));
    RU_TRY(ru_conf_add_file(c, path, text, n, err));
    RU_TRY(ru_conf_apply(c, into, err));
    char *real = realpath(path, NULL);
    if (real == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "%s is in no folder; write the %s into a file", path,
                       what);
    }
    out->file = ru_arena_str(arena, real);
    *strrchr(real, '/') = 0;
    out->folder = ru_arena_str(arena, real[0] != 0 ? real : "/");
    free(real);
    return out->file != NULL && out->folder != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for the %s of %s", what, path);
}

const char *rui_settings_path(const rui_settings *s, ru_arena *arena, const char *path)
{
    return path[0] == 0 || path[0] == '/' ? path : ru_path_join(arena, s->folder, path);
}
