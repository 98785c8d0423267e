/* World files by the tables of their structs. */
#include "store/world_file.h"

#include "base/fields.h"
#include "env/file/file.h"

bool ru_world_file_is(ru_str text)
{
    /* The schema is the first key of every file that is written here; a file made by hand may have
     * it anywhere in front of the first nested value. */
    static const char key[] = "\"schema\"", word[] = "\"rubato.world/";
    ru_str rest = ru_str_trim(text);
    if (!ru_str_starts(rest, "{")) {
        return false;
    }
    for (int64_t i = 1; i < rest.n && rest.p[i] != '{' && rest.p[i] != '['; i++) {
        if (ru_str_starts(ru_str_n(rest.p + i, rest.n - i), key)) {
            ru_str v = ru_str_trim(
                ru_str_n(rest.p + i + sizeof key - 1, rest.n - i - (int64_t)sizeof key + 1));
            v = ru_str_starts(v, ":") ? ru_str_trim(ru_str_n(v.p + 1, v.n - 1)) : v;
            return ru_str_starts(v, word);
        }
    }
    return false;
}

ru_status ru_world_file_parse(const char *path, ru_str text, ru_arena *arena, ru_world *into,
                              ru_err *err)
{
    ru_conf *c;
    RU_TRY(ru_conf_new(&ru_world_table, arena, &c, err));
    ru_conf_bulk(c);
    RU_TRY(ru_conf_add_json(c, path, text.p, text.n, err));
    return ru_conf_apply(c, into, err);
}

ru_status ru_world_file_load(const char *path, ru_arena *arena, ru_world *into, ru_err *err)
{
    char *text;
    int64_t size;
    RU_TRY(ru_file_read(path, RU_CONF_BULK_BYTES_MAX, arena, &text, &size, err));
    return ru_world_file_parse(path, ru_str_n(text, size), arena, into, err);
}

ru_status ru_world_file_put(const ru_world *w, ru_text *out, ru_err *err)
{
    ru_status st = ru_fields_check(&ru_world_table, w, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "world file");
    }
    ru_json j = ru_json_into(out);
    ru_fields_json(&ru_world_table, w, NULL, &j);
    ru_text_put(out, "\n");
    return out->cut ? RU_FAIL(err, RU_E_LIMIT, "no memory for a world file") : RU_OK;
}
