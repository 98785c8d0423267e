/* Configuration: any bytes as YAML and as JSON give a struct within the table's bounds, or an
 * error; what was accepted dumps to YAML that is accepted again. */
#include "base/conf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct inner {
    double rate;
    bool on;
} inner;

typedef struct thing {
    const char *name;
    int64_t count, wait_ns, room_bytes;
    uint32_t mode, which;
    inner a, b;
    ru_conf_f64s numbers;
    ru_conf_texts words;
    ru_conf_pairs targets;
    ru_conf_sections parts;
} thing;

static const ru_conf_field inner_fields[] = {
    {.name = "rate",
     .type = RU_CONF_F64,
     .offset = offsetof(inner, rate),
     .def = "0.5",
     .min = 0,
     .max = 1,
     .help = "rate"},
    {.name = "on",
     .type = RU_CONF_BOOL,
     .offset = offsetof(inner, on),
     .def = "true",
     .help = "on"},
};
static const ru_conf_table inner_table = {
    .name = "inner", .fields = inner_fields, .n = 2, .size_bytes = sizeof(inner)};
static const ru_conf_field thing_fields[] = {
    {.name = "name",
     .type = RU_CONF_TEXT,
     .offset = offsetof(thing, name),
     .def = "x",
     .help = "name"},
    {.name = "count",
     .type = RU_CONF_I64,
     .offset = offsetof(thing, count),
     .def = "1",
     .min = 0,
     .max = 1e6,
     .help = "count"},
    {.name = "wait",
     .type = RU_CONF_TIME,
     .offset = offsetof(thing, wait_ns),
     .def = "1s",
     .help = "wait"},
    {.name = "room",
     .type = RU_CONF_SIZE,
     .offset = offsetof(thing, room_bytes),
     .def = "1KiB",
     .help = "room"},
    {.name = "mode",
     .type = RU_CONF_CHOICE,
     .offset = offsetof(thing, mode),
     .def = "a",
     .choices = "a|bc|def",
     .help = "mode"},
    {.name = "a",
     .type = RU_CONF_SECTION,
     .offset = offsetof(thing, a),
     .table = &inner_table,
     .help = "a"},
    {.name = "b",
     .type = RU_CONF_SECTION,
     .offset = offsetof(thing, b),
     .table = &inner_table,
     .help = "b"},
    {.name = "numbers",
     .type = RU_CONF_F64_LIST,
     .offset = offsetof(thing, numbers),
     .def = "[]",
     .help = "numbers"},
    {.name = "words",
     .type = RU_CONF_TEXT_LIST,
     .offset = offsetof(thing, words),
     .def = "[]",
     .help = "words"},
    {.name = "targets",
     .type = RU_CONF_F64_MAP,
     .offset = offsetof(thing, targets),
     .def = "{}",
     .help = "targets"},
    {.name = "parts",
     .type = RU_CONF_SECTIONS,
     .offset = offsetof(thing, parts),
     .def = "[]",
     .table = &inner_table,
     .help = "parts"},
};
static const ru_conf_table thing_table = {.name = "thing",
                                          .fields = thing_fields,
                                          .n = RU_ARRAY_LEN(thing_fields),
                                          .size_bytes = sizeof(thing),
                                          .one_of = "a|b",
                                          .which_offset = offsetof(thing, which),
                                          .none_ok = true};

static bool read_one(ru_arena *arena, const char *text, int64_t n, bool json, thing *out)
{
    ru_conf *c;
    ru_err err;
    if (ru_conf_new(&thing_table, arena, &c, &err) != RU_OK) {
        abort();
    }
    ru_status st =
        json ? ru_conf_add_json(c, "x", text, n, &err) : ru_conf_add_yaml(c, "x", text, n, &err);
    return st == RU_OK && ru_conf_apply(c, out, &err) == RU_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int json = 0; json < 2; json++) {
        ru_arena arena;
        ru_arena_init(&arena, 0);
        thing t, again;
        if (read_one(&arena, (const char *)data, (int64_t)size, json == 1, &t)) {
            if (t.count < 0 || t.count > 1000000 || t.mode > 2 || t.which > 2) {
                abort();
            }
            ru_text dump = ru_text_arena(&arena), second = ru_text_arena(&arena);
            ru_conf_dump(&thing_table, &t, NULL, &dump);
            if (!read_one(&arena, dump.p, dump.n, false, &again)) {
                abort();
            }
            ru_conf_dump(&thing_table, &again, NULL, &second);
            if (strcmp(dump.p, second.p) != 0) {
                abort();
            }
        }
        ru_arena_fini(&arena);
    }
    return 0;
}
