#include "tool/explain/explain_follow.h"

#include <jansson.h>

#include "env/file/file.h"

enum { SHOWN = 24 };

static void put_row(const json_t *o, ru_table *t)
{
    static const char *const keys[] = {"step", "arrived", "queue", "workers"};
    ru_table_ns(t, (int64_t)(json_number_value(json_object_get(o, "seconds")) * 1e9));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(keys); k++) {
        ru_table_i64(t, json_integer_value(json_object_get(o, keys[k])));
    }
}

ru_status rui_explain_follow(const char *run, ru_arena *arena, const ru_tell *out, ru_err *err)
{
    const char *path = ru_path_join(arena, run, "follow.jsonl");
    char *text;
    int64_t size, at;
    uint32_t lines = 0;
    if (path == NULL || !ru_path_is_file(path)) {
        return RU_OK;
    }
    RU_TRY(ru_file_read(path, 0, arena, &text, &size, err));
    for (at = size; at > 0 && lines <= SHOWN; at--) { /* the last lines */
        lines += text[at - 1] == '\n';
    }
    ru_str rest = ru_str_n(text + at, size - at), one;
    ru_table t = ru_table_in(arena);
    static const char *const cols[] = {"since its start", "step", "samples that came",
                                       "samples that wait", "workers"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cols); k++) {
        ru_table_col(&t, cols[k], RU_TABLE_RIGHT);
    }
    while (ru_str_next(&rest, '\n', &one)) {
        json_t *o = json_loadb(one.p, (size_t)one.n, 0, NULL);
        if (o != NULL) { /* NULL: a torn line */
            put_row(o, &t);
        }
        json_decref(o);
    }
    RU_TRY(ru_tell_table(out, "follow", "samples of data.follow", &t, err));
    ru_tell_note(out, "follow_note",
                 "  workers 0: no step can be made of the samples that wait, and nobody is called; "
                 "\n  RUN/follow.files names the files in their order");
    return RU_OK;
}
