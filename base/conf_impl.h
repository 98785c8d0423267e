/* Inside of base/conf: trees of nodes that the sources give, and how they become structs.
 *
 * Thread: one at a time. */
#ifndef RU_BASE_CONF_IMPL_H
#define RU_BASE_CONF_IMPL_H

#include <string.h>

#include "base/conf.h"
#include "base/map.h"

enum {
    RUI_CONF_TEXT_MAX = 4 * 1024 * 1024,
    RUI_CONF_NODES_MAX = 100000,
    RUI_CONF_KEYS_MAX = 1024, /* of one map */
    RUI_CONF_DEPTH_MAX = 32,
    RUI_CONF_PROBLEMS_MAX = 50,
    RUI_CONF_PATH_MAX = 512,
};

typedef enum rui_node_kind { RUI_SCALAR, RUI_LIST, RUI_MAP } rui_node_kind;

/* Strength of a source. */
typedef enum rui_rank { RUI_DEFAULT, RUI_FILE, RUI_ENV, RUI_SET, RUI_FLAG } rui_rank;

typedef struct rui_source {
    const char *label;
    rui_rank rank;
} rui_source;

typedef struct rui_node {
    rui_node_kind kind;
    bool quoted; /* scalar: in quotes, or known to be text */
    bool whole;  /* map: given as {}; what weaker and earlier sources give of it does not count */
    const char *key;  /* in the parent map, NULL in lists and at the top */
    const char *text; /* scalar */
    const rui_source *source;
    uint32_t line, column;         /* from 1; 0: the source has no places */
    uint32_t key_line, key_column; /* of the key in a map */
    struct rui_node *first, *last, *next;
    uint32_t n; /* children */
} rui_node;

struct ru_conf {
    const ru_conf_table *table;
    ru_arena *arena;
    rui_node *trees[RUI_FLAG + 1]; /* one merged tree for each rank but RUI_DEFAULT */
    ru_map origins;                /* path -> rui_node, after apply */
    const char *problems[RUI_CONF_PROBLEMS_MAX];
    uint32_t n_problems;  /* kept */
    uint32_t n_found;     /* all */
    rui_source *defaults; /* the source of defaults */
    int64_t text_max;     /* bytes of one source */
    uint32_t nodes_max;
    bool bulk; /* origins are not kept */
};

/* One parse. */
typedef struct rui_parse {
    ru_arena *arena;
    const rui_source *source;
    uint32_t n_nodes, nodes_max; /* nodes_max 0: RUI_CONF_NODES_MAX */
} rui_parse;

/* New nodes; NULL when the arena is full or the limit is reached. */
rui_node *rui_node_new(rui_parse *p, rui_node_kind kind, uint32_t line, uint32_t column);
void rui_node_append(rui_node *parent, rui_node *child);
rui_node *rui_node_find(const rui_node *map, const char *key);
ru_status rui_node_full(const rui_parse *p, ru_err *err); /* the error for a NULL node */

/* Check a map's newest key before it is appended: duplicates, number. */
RU_MUST_USE ru_status rui_node_key_check(const rui_parse *p, const rui_node *map,
                                         const rui_node *child, ru_err *err);

/* Text to tree. An empty document is an empty map. */
RU_MUST_USE ru_status rui_conf_yaml(rui_parse *p, const char *text, int64_t size_bytes,
                                    rui_node **out, ru_err *err);
RU_MUST_USE ru_status rui_conf_json(rui_parse *p, const char *text, int64_t size_bytes,
                                    rui_node **out, ru_err *err);

/* The tree with every short form `optimizer: sgd` written out. NULL: arena full. */
rui_node *rui_conf_spell(ru_arena *arena, const ru_conf_table *table, rui_node *node);

/* Put `over` on top of `base` (may be NULL) by the rules of conf.h; both spelled out. The result
 * shares nodes with both. NULL: arena full. */
rui_node *rui_conf_merge(ru_arena *arena, const ru_conf_table *table, rui_node *base,
                         rui_node *over);

const ru_conf_field *rui_conf_find(const ru_conf_table *t, const char *name);
/* The number from 1 of `name` in t->one_of, 0 when it is not there. */
uint32_t rui_conf_which(const ru_conf_table *t, const char *name);

/* Check and read `node` (NULL: nothing given) as `table` into `into`; problems go to c->problems.
 * With `asked` false, what is required may be missing. */
RU_MUST_USE ru_status rui_conf_read(ru_conf *c, const ru_conf_table *table, const rui_node *node,
                                    bool asked, void *into, ru_err *err);

/* "a whole number from 1 to 10", for errors and help. */
void rui_conf_expected(const ru_conf_field *f, ru_text *out);

/* Note a problem at `node` (its key's place with at_key); NULL: the file as a whole. */
/* What the table calls `key`, which other programs use. */
bool rui_conf_called(const ru_conf_table *t, ru_str key, ru_str *ours);
void rui_conf_problem(ru_conf *c, const rui_node *node, bool at_key, const char *fmt, ...)
    RU_PRINTF(4, 5);

/* Read one scalar as the number or word that `f` wants, bounds included. */
bool rui_conf_i64(const ru_conf_field *f, const rui_node *node, int64_t *out);
bool rui_conf_f64(const ru_conf_field *f, const rui_node *node, double *out);
bool rui_conf_in_bounds(const ru_conf_field *f, double v);
bool rui_conf_choice(const ru_conf_field *f, const char *word, uint32_t *out);

/* Is the field in force: no alternative of a "one of" that was not chosen? */
bool rui_conf_live(const ru_conf_table *t, const ru_conf_field *f, const void *section);
/* The value at `at` as it would stand in a YAML file; no sections. */
void rui_conf_put_value(const ru_conf_field *f, const void *at, ru_text *out);

/* The place of a field, and the number there: memcpy, since the struct's types are not known here.
 */
static inline const uint8_t *rui_conf_at(const ru_conf_field *f, const void *section)
{
    return (const uint8_t *)section + f->offset;
}

static inline int64_t rui_conf_i64_at(const void *p)
{
    int64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline double rui_conf_f64_at(const void *p)
{
    double v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t rui_conf_u32_at(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

#endif
