/* Finding and loading checkpoints. A checkpoint is trusted only when its manifest is there and
 * every file has the size and hash it says. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/hash.h"
#include "base/log.h"
#include "env/file/file.h"
#include "run/ckpt.h"
#include "run/ckpt_store.h"

enum { STATE_BYTES_MAX = 64 << 20 };

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the checkpoint is full");
}

/* -- the table of state.json --------------------------------------------------------------------
 */

typedef struct type_row {
    const char *dtype;
    ru_conf_i64s dims;
} type_row;

typedef struct columns_row {
    bool named;
    int64_t width, label_place;
    const char *label;
    ru_conf_sections inputs; /* of ru_column */
    ru_conf_texts ignored;
    uint32_t missing;
    bool normalize;
} columns_row;

typedef struct state_row {
    const char *schema, *job;
    int64_t step, samples, seed, classes;
    double done;
    type_row x, y;
    ru_conf_texts class_names;
    columns_row columns;
} state_row;

static const ru_conf_field type_fields[] = {
    RU_ROW(TEXT, type_row, dtype, NULL, "element type"),
    RU_ROW(I64_LIST, type_row, dims, NULL, "shape of one sample", RU_IN(0, 1e15)),
};
static const ru_conf_table type_table = RU_TABLE("type", type_row, type_fields, NULL);

static const ru_conf_field column_fields[] = {
    RU_ROW(TEXT, ru_column, name, NULL, "name of the column"),
    RU_ROW(I64, ru_column, place, NULL, "cell of a line, from 0", RU_IN(0, 1e9)),
    RU_ROW(TEXT_LIST, ru_column, categories, "[]", "texts that become an input each"),
    RU_ROW(F64, ru_column, mean, "0", "of its numbers"),
    RU_ROW(F64, ru_column, std, "0", "standard deviation of its numbers", RU_IN(0, 1e300)),
};
static const ru_conf_table column_table = RU_TABLE("column", ru_column, column_fields, NULL);
static const ru_conf_field columns_fields[] = {
    RU_ROW(BOOL, columns_row, named, "false", "the training data names its columns"),
    RU_ROW(I64, columns_row, width, "0", "cells of a line", RU_IN(0, 1e9)),
    RU_ROW(I64, columns_row, label_place, "-1", "cell of the label; -1: none", RU_IN(-1, 1e9)),
    RU_ROW(TEXT, columns_row, label, "", "name of the label's column"),
    RU_ROW(SECTIONS, columns_row, inputs, "[]", "columns that are inputs", .table = &column_table),
    RU_ROW(TEXT_LIST, columns_row, ignored, "[]", "columns that are no inputs"),
    RU_ROW(U32, columns_row, missing, "0", "what becomes of a cell without a value",
           RU_IN(0, RU_MISSING_DROP)),
    RU_ROW(BOOL, columns_row, normalize, "false", "numbers have mean 0 and standard deviation 1"),
};
static const ru_conf_table columns_table = RU_TABLE("columns", columns_row, columns_fields, NULL);

#define NUMBER(key)                                                                      \
    {                                                                                    \
        .name = #key, .type = RU_CONF_I64, .offset = offsetof(state_row, key), .min = 0, \
        .max = 9e18, .help = "count"                                                     \
    }
static const ru_conf_field state_fields[] = {
    RU_ROW(TEXT, state_row, schema, NULL, "rubato.checkpoint/1"),
    NUMBER(step),
    NUMBER(samples),
    NUMBER(seed),
    NUMBER(classes),
    RU_ROW(F64, state_row, done, "0", "progress in steps of the job's batch", RU_IN(0, 1e15)),
    RU_ROW(SECTION, state_row, x, NULL, "input of a sample", .table = &type_table),
    RU_ROW(SECTION, state_row, y, NULL, "label of a sample", .table = &type_table),
    RU_ROW(TEXT_LIST, state_row, class_names, NULL, "names of the classes"),
    RU_ROW(SECTION, state_row, columns, NULL, "columns of a table", .table = &columns_table),
    RU_ROW(TEXT, state_row, job, NULL, "resolved job file"),
};
static const ru_conf_table state_table = RU_TABLE("state", state_row, state_fields, NULL);

/* -- one checkpoint ---------------------------------------------------------------------------- */

static ru_status type_from(const type_row *row, const char *path, ru_type *out, ru_err *err)
{
    ru_dtype dtype = RU_DTYPE_COUNT;
    for (uint32_t t = 0; t < RU_DTYPE_COUNT; t++) {
        if (strcmp(ru_dtype_name((ru_dtype)t), row->dtype) == 0) {
            dtype = (ru_dtype)t;
        }
    }
    if (dtype == RU_DTYPE_COUNT || row->dims.n > RU_RANK_MAX) {
        return RU_FAIL(err, RU_E_DATA, "%s: '%s' of rank %u is not a valid sample type", path,
                       row->dtype, row->dims.n);
    }
    *out = ru_type_make(dtype, row->dims.n, row->dims.at);
    return RU_OK;
}

static ru_columns columns_from(const columns_row *row)
{
    return (ru_columns){.at = row->inputs.at,
                        .n = row->inputs.n,
                        .named = row->named,
                        .width = row->width,
                        .label = row->label_place >= 0 ? row->label : NULL,
                        .label_place = row->label_place,
                        .ignored = row->ignored,
                        .missing = row->missing,
                        .normalize = row->normalize};
}

/* Every place is one of a line: what follows takes cells by it. */
static ru_status check_columns(const ru_columns *c, const ru_type *x, const char *path, ru_err *err)
{
    bool fits = c->n == 0 || c->label_place < c->width;
    if (c->n > 0 && ru_columns_inputs(c) != ru_type_count(x)) {
        return RU_FAIL(err, RU_E_DATA, "%s: the columns have %lld inputs, but a sample has %lld",
                       path, (long long)ru_columns_inputs(c), (long long)ru_type_count(x));
    }
    for (uint32_t k = 0; k < c->n; k++) {
        fits = fits && c->at[k].place < c->width;
    }
    return fits ? RU_OK
                : RU_FAIL(err, RU_E_DATA, "%s: a column stands behind the end of its line", path);
}

ru_status ru_ckpt_parse(const char *dir, const char *path, const char *text, int64_t n,
                        ru_arena *arena, ru_ckpt_info *out, ru_err *err)
{
    state_row s;
    RU_TRY(ru_ckpt_json_text(path, text, n, &state_table, &s, arena, err));
    ru_ckpt_info info = {
        .dir = ru_arena_str(arena, dir),
        .at = {.step = s.step, .samples = s.samples, .done = s.done},
        .seed = s.seed,
        .job_yaml = s.job,
        .facts = {.classes = s.classes,
                  .class_names = s.class_names.at,
                  .n_class_names = s.class_names.n,
                  .columns = columns_from(&s.columns)},
    };
    RU_TRY(type_from(&s.x, path, &info.facts.x, err));
    RU_TRY(check_columns(&info.facts.columns, &info.facts.x, path, err));
    RU_TRY(type_from(&s.y, path, &info.facts.y, err));
    if (info.dir == NULL) {
        return full(err);
    }
    *out = info;
    return RU_OK;
}

ru_status ru_ckpt_state(const char *dir, ru_arena *arena, char **text, int64_t *n, ru_err *err)
{
    const char *path = ru_path_join(arena, dir, "state.json");
    return path != NULL ? ru_file_read(path, STATE_BYTES_MAX, arena, text, n, err) : full(err);
}

ru_status ru_ckpt_read(const char *dir, ru_arena *arena, ru_ckpt_info *out, ru_err *err)
{
    char *text;
    int64_t n;
    const char *path = ru_path_join(arena, dir, "state.json");
    if (path == NULL) {
        return full(err);
    }
    RU_TRY(ru_ckpt_manifest_check(dir, arena, err));
    RU_TRY(ru_ckpt_state(dir, arena, &text, &n, err));
    return ru_ckpt_parse(dir, path, text, n, arena, out, err);
}

static ru_status read_any(const char *dir, ru_arena *arena, void *out, ru_err *err)
{
    return ru_ckpt_read(dir, arena, out, err);
}

ru_status ru_ckpt_find(const char *run_dir, ru_arena *arena, ru_ckpt_info *out, ru_err *err)
{
    return ru_ckpt_newest(run_dir, arena, read_any, out, err);
}

/* -- tensors ----------------------------------------------------------------------------------- */

typedef struct tensors {
    ru_map_file map;
    ru_safetensors file;
    bool open;
} tensors;

static ru_status open_tensors(const ru_ckpt_info *info, const char *name, ru_arena *arena,
                              tensors *t, ru_err *err)
{
    RU_TRY(ru_ckpt_tensors(info->dir, name, arena, &t->map, &t->file, err));
    t->open = true;
    return RU_OK;
}

/* The tensor `name` for a state value: same type and shape. */
static ru_status tensor_for(const ru_ckpt_info *info, const tensors *t, const char *name,
                            const ru_graph *g, const ru_value *v, const void **data, ru_err *err)
{
    const ru_array *a = t->open ? ru_arrays_find(&t->file.tensors, name) : NULL;
    char want[160], have[160];
    ru_type_print(g, &v->type, want, sizeof want);
    if (a == NULL) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s has no tensor '%s' (%s); it belongs to another model or optimizer",
                       info->dir, name, want);
    }
    if (!ru_type_equal(&a->type, &v->type)) {
        ru_type_print(g, &a->type, have, sizeof have);
        return RU_FAIL(err, RU_E_DATA, "%s: tensor '%s' is %s, but the model expects %s", info->dir,
                       name, have, want);
    }
    *data = a->data;
    return RU_OK;
}

static ru_status load_into(const ru_ckpt_info *info, const ru_graph *graph, const ru_ckpt_sink *to,
                           bool slots, const tensors *model, const tensors *optimizer,
                           ru_arena *arena, ru_err *err)
{
    for (uint32_t v = 1; v < graph->n_values; v++) {
        const ru_value *s = &graph->values[v];
        if (s->kind != RU_VALUE_STATE || s->name == NULL || s->role == RU_ROLE_CACHE ||
            (s->role == RU_ROLE_SLOT && !slots)) {
            continue;
        }
        bool slot;
        const void *data;
        const char *name = ru_ckpt_name(graph, s, arena, &slot);
        if (name == NULL) {
            return full(err);
        }
        RU_TRY(tensor_for(info, slot ? optimizer : model, name, graph, s, &data, err));
        RU_TRY(to->put(to->self, (ru_value_id){v}, data, err));
    }
    return RU_OK;
}

static bool has_slots(const ru_graph *g)
{
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (g->values[v].kind == RU_VALUE_STATE && g->values[v].role == RU_ROLE_SLOT) {
            return true;
        }
    }
    return false;
}

ru_status ru_ckpt_load_to(const ru_ckpt_info *info, const ru_graph *graph, const ru_ckpt_sink *to,
                          bool slots, ru_err *err)
{
    ru_arena arena;
    tensors model = {0}, optimizer = {0};
    ru_arena_init(&arena, 0);
    slots = slots && has_slots(graph);
    ru_status st = open_tensors(info, "model.safetensors", &arena, &model, err);
    if (st == RU_OK && slots) {
        st = open_tensors(info, "optimizer.safetensors", &arena, &optimizer, err);
    }
    if (st == RU_OK) {
        st = load_into(info, graph, to, slots, &model, &optimizer, &arena, err);
    }
    ru_file_unmap(&model.map);
    ru_file_unmap(&optimizer.map);
    ru_arena_fini(&arena);
    return st;
}

static ru_status put_exe(void *self, ru_value_id v, const void *data, ru_err *err)
{
    return ru_exe_state_write(self, v, data, err);
}

ru_status ru_ckpt_load(const ru_ckpt_info *info, const ru_graph *graph, ru_exe *exe, bool slots,
                       ru_err *err)
{
    return ru_ckpt_load_to(info, graph, &(ru_ckpt_sink){put_exe, exe}, slots, err);
}

ru_status ru_ckpt_load_graph(const ru_ckpt_info *info, ru_graph *graph, ru_arena *arena,
                             ru_err *err)
{
    tensors model = {0};
    RU_TRY(open_tensors(info, "model.safetensors", arena, &model, err));
    ru_status st = RU_OK;
    for (uint32_t v = 1; v < graph->n_values && st == RU_OK; v++) {
        ru_value *s = &graph->values[v];
        if (s->kind != RU_VALUE_STATE || s->name == NULL || s->role == RU_ROLE_SLOT) {
            continue;
        }
        const void *data;
        st = tensor_for(info, &model, s->name, graph, s, &data, err);
        if (st == RU_OK) {
            s->data = ru_arena_copy(arena, data, ru_type_bytes(&s->type), 64);
            st = s->data != NULL ? RU_OK : full(err);
        }
    }
    ru_file_unmap(&model.map);
    return st;
}
