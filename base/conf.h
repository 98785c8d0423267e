/* Configuration by table: one table per struct states name, type, offset, default, bounds and help
 * of every field. Reading, checking, printing, help text and JSON Schema come from the table.
 *
 *     typedef struct sgd { double lr, momentum; } sgd;
 *     static const ru_conf_field sgd_fields[] = {
 *         RU_ROW(F64, sgd, lr, "0.1", "step size", RU_OVER(0, 100)),
 *         ...
 *     };
 *     const ru_conf_table sgd_table = RU_TABLE("sgd", sgd, sgd_fields, "gradient descent");
 *
 * A value comes from the last source in this order that gives it:
 *     default < file (YAML or JSON) < environment < --set a.b=c < flag
 * Among sources of one kind the later one wins. Maps of several sources are merged key by key, but
 * an empty map ({}) puts its section back to the defaults; scalars and lists are replaced whole; of
 * a "one of" the alternative of the last source remains.
 *
 *     ru_conf *c;                                      everything lives in `arena`
 *     RU_TRY(ru_conf_new(&job_table, arena, &c, err));
 *     RU_TRY(ru_conf_add_yaml(c, path, text, n, err));
 *     RU_TRY(ru_conf_add_env(c, err));                 RUBATO_TRAIN_BATCH=64
 *     RU_TRY(ru_conf_add_set(c, "train.batch=64", err));
 *     RU_TRY(ru_conf_add_flag(c, "--batch", "train.batch", "64", err));
 *     RU_TRY(ru_conf_apply(c, &job, err));             job untouched unless everything is right
 *
 * Every error carries file:line:column (or the flag), what was expected and the nearest key:
 *     job.yaml:7:5: unknown key 'train.epoch'; did you mean 'epochs'?
 *
 * Hostile input: bounded size, depth, number of nodes; no anchors, aliases, tags, merge or
 * duplicate keys.
 *
 * Thread: one at a time. The struct and its strings live in the arena given to ru_conf_new. */
#ifndef RU_BASE_CONF_H
#define RU_BASE_CONF_H

#include <stddef.h>

#include "base/str.h"

/* A row of a table: type as below without RU_CONF_, the struct and its field, the default (NULL:
 * required), the help, then what else a row needs. RU_ROW_AS is for a key that is called otherwise
 * than the field. RU_IN and RU_OVER give the bounds; RU_OVER does not allow the lower one itself.
 */
#define RU_ROW_AS(key_, type_, struct_, field_, def_, ...)                            \
    {                                                                                 \
        .name = (key_), .type = RU_CONF_##type_, .offset = offsetof(struct_, field_), \
        .def = (def_), .help = __VA_ARGS__                                            \
    }
#define RU_ROW(type_, struct_, field_, def_, ...) \
    RU_ROW_AS(#field_, type_, struct_, field_, def_, __VA_ARGS__)
#define RU_IN(min_, max_)   .min = (min_), .max = (max_)
#define RU_OVER(min_, max_) .min = (min_), .max = (max_), .open = true
/* A table of the rows `fields_`: its name, the struct, the rows, the help (NULL: none), then what
 * else it needs. */
#define RU_TABLE(name_, struct_, fields_, ...)                            \
    {                                                                     \
        .name = (name_), .fields = (fields_), .n = RU_ARRAY_LEN(fields_), \
        .size_bytes = sizeof(struct_), .help = __VA_ARGS__                \
    }
/* The member of a struct that a row SECTIONS fills, typed: laid out as ru_conf_sections. */
#define RU_SECTIONS(type_) \
    struct {               \
        const type_ *at;   \
        uint32_t n;        \
    }

RU_API_BEGIN

/* The C type that stands at `offset`, and what the file may hold. */
typedef enum ru_conf_type {
    RU_CONF_BOOL,      /* bool              true, false */
    RU_CONF_I64,       /* int64_t           whole number */
    RU_CONF_U32,       /* uint32_t          whole number; bounds default to 0 .. 2^32-1 */
    RU_CONF_F64,       /* double            number */
    RU_CONF_TIME,      /* int64_t, ns       250us, 60s (base/unit.h); bounds in ns */
    RU_CONF_SIZE,      /* int64_t, bytes    64KiB, 1MB; bounds in bytes */
    RU_CONF_TEXT,      /* const char *      never NULL */
    RU_CONF_CHOICE,    /* uint32_t or enum  one of `choices`: its index from 0 */
    RU_CONF_I64_LIST,  /* ru_conf_i64s      [1, 2]; a single scalar is a list of one */
    RU_CONF_F64_LIST,  /* ru_conf_f64s */
    RU_CONF_TEXT_LIST, /* ru_conf_texts */
    RU_CONF_F64_MAP,   /* ru_conf_pairs     {any_key: number}, order of the file */
    RU_CONF_JSON,      /* const char *      any value, kept as JSON text without blanks */
    RU_CONF_SECTION,   /* a struct by value described by `table` */
    RU_CONF_SECTIONS,  /* ru_conf_sections  list of structs described by `table` */
} ru_conf_type;

typedef struct ru_conf_i64s {
    const int64_t *at; /* [n] */
    uint32_t n;
} ru_conf_i64s;

typedef struct ru_conf_f64s {
    const double *at; /* [n] */
    uint32_t n;
} ru_conf_f64s;

typedef struct ru_conf_texts {
    const char *const *at; /* [n] */
    uint32_t n;
} ru_conf_texts;

typedef struct ru_conf_pair {
    const char *key;
    double value;
} ru_conf_pair;

typedef struct ru_conf_pairs {
    const ru_conf_pair *at; /* [n] */
    uint32_t n;
} ru_conf_pairs;

typedef struct ru_conf_sections {
    const void *at; /* [n] structs of table->size_bytes */
    uint32_t n;
} ru_conf_sections;

typedef struct ru_conf_table ru_conf_table;

typedef struct ru_conf_field {
    const char *name;
    ru_conf_type type;
    uint32_t offset;
    /* As it would appear in the file ("0.05", "[512, 512]", "{constant: {}}", "" for an empty
     * text);
     * NULL: the key is required. A section with NULL takes the defaults of its own fields. */
    const char *def;
    double min, max;            /* bounds of the number, or of each element; used when min < max */
    bool open;                  /* min itself is not allowed: lr > 0 */
    const char *choices;        /* CHOICE: "f32|bf16" */
    const ru_conf_table *table; /* SECTION, SECTIONS */
    const char *help;           /* one sentence, no full stop; for lists say what an element is */
} ru_conf_field;

struct ru_conf_table {
    const char *name; /* of the thing described: "optimizer" */
    const ru_conf_field *fields;
    uint32_t n;
    uint32_t size_bytes; /* of the struct */
    /* What other programs call a key: "batch_size=batch|lr=optimizer: {sgd: {lr: 0.1}}". Used in
     * the error of an unknown key. */
    const char *called;
    /* "zoo|onnx": exactly one of these fields is given (at most one with none_ok). The uint32_t (or
     * enum) at which_offset becomes its number in this list from 1, 0 for none. Alternatives not
     * given keep their defaults, their required fields are not asked for. When the chosen
     * alternative is a section, its bare name is short for it with all defaults: `optimizer: sgd`.
     */
    const char *one_of;
    uint32_t which_offset;
    bool none_ok;
    /* Relations between fields; called on the filled struct when all its fields are right. The
     * sentence it writes gets the section's position in front. NULL: none. */
    ru_status (*check)(const void *section, ru_err *err);
    const char *help; /* one sentence about the section, may be NULL */
};

typedef struct ru_conf ru_conf;

enum { RU_CONF_BULK_BYTES_MAX = 256 << 20, RU_CONF_BULK_VALUES_MAX = 16 << 20 };

RU_API_END

/* Inside Rubato: librubato.so does not export these. */
/* Errors: RU_E_LIMIT when the arena is full; RU_E_BUG when the table itself is wrong (a default
 * that does not parse, two fields of one name): every table belongs in a test that calls this. */
RU_MUST_USE ru_status ru_conf_new(const ru_conf_table *table, ru_arena *arena, ru_conf **out,
                                  ru_err *err);
/* Sources. Errors and origins name `label` (the file's path). Syntax errors are returned at once,
 * all others by ru_conf_apply. Text up to 4 MiB. Errors: RU_E_CONFIG. */
RU_MUST_USE ru_status ru_conf_add_yaml(ru_conf *c, const char *label, const char *text,
                                       int64_t size_bytes, ru_err *err);
/* YAML, or JSON when `path` ends in .json. */
RU_MUST_USE ru_status ru_conf_add_file(ru_conf *c, const char *path, const char *text,
                                       int64_t size_bytes, ru_err *err);
/* "train.batch=64"; the value is YAML, so lists and maps work: "model.hidden=[512, 512]". */
RU_MUST_USE ru_status ru_conf_add_set(ru_conf *c, const char *assignment, ru_err *err);
/* Check everything, then fill `into` (table->size_bytes). On failure `into` is untouched, `err` has
 * the first problem and the number of others, ru_conf_problems all of them.
 * Errors: RU_E_CONFIG, RU_E_LIMIT (arena full). */
RU_MUST_USE ru_status ru_conf_apply(ru_conf *c, void *into, ru_err *err);
/* The problems of the last ru_conf_apply, in order of the file, at most 50. View. */
const char *const *ru_conf_problems(const ru_conf *c, uint32_t *n);
/* For people: every key with type, default, bounds and help, nested, at most `width` columns (0:
 * 100). */
void ru_conf_help(const ru_conf_table *table, uint32_t width, ru_text *out);
RU_MUST_USE ru_status ru_conf_add_json(ru_conf *c, const char *label, const char *text,
                                       int64_t size_bytes, ru_err *err);
/* Every key from its variable, RUBATO_ + the path in capitals with '_' for '.'. */
RU_MUST_USE ru_status ru_conf_add_env(ru_conf *c, ru_err *err);
/* The command-line option `flag` (as the user knows it) that sets `path`. */
RU_MUST_USE ru_status ru_conf_add_flag(ru_conf *c, const char *flag, const char *path,
                                       const char *value, ru_err *err);
/* The scalar at a path ("train.batch"), as the sources so far give it and before anything is
 * checked: for a key that decides which table the rest needs. NULL: none. View. */
const char *ru_conf_peek(const ru_conf *c, const char *path);
/* After apply: where the value at `path` came from: "default", "job.yaml:3:9",
 * "RUBATO_TRAIN_BATCH",
 * "--set", "--batch". NULL for a path that is not in the table. View into the arena. */
const char *ru_conf_origin(const ru_conf *c, const char *path);
/* Was it given by any source but the default? */
bool ru_conf_given(const ru_conf *c, const char *path);
/* The filled struct as YAML that reads back to the same struct; with `c`, a comment behind each
 * value that is not a default says where it came from. Alternatives not chosen are left out. */
void ru_conf_dump(const ru_conf_table *table, const void *section, const ru_conf *c, ru_text *out);
/* Settings of `now` that differ from `before`, one line for people: "train.batch 64 (was 32), ...";
 * nothing is written when none does. */
void ru_conf_changes(const ru_conf_table *table, const void *before, const void *now, ru_text *out);
/* JSON Schema (2020-12) of the table. */
void ru_conf_schema(const ru_conf_table *table, const char *title, ru_text *out);
/* This configuration is data of a machine (facts, graphs, prices), not settings of a person: the
 * limits above hold for its sources, and origins are not kept. Call it before the first source. */
void ru_conf_bulk(ru_conf *c);
/* The value of an environment variable or NULL. The only getenv of the tree: settings that no table
 * holds (NO_COLOR, TERM, OMP_NUM_THREADS) pass here, so that a search finds every one. */
const char *ru_conf_env(const char *name);

#endif
