#include "train/app/app_ckpt.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/file/file.h"
#include "run/ckpt_form.h"
#include "store/safetensors.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the checkpoint is full");
}

/* -- writing ----------------------------------------------------------------------------------- */

typedef struct writer {
    ru_ckpt_folder folder;
    ru_arena arena;
    ru_arrays arrays;
} writer;

static ru_status add_array(writer *w, const char *name, ru_dtype dtype, int64_t rows, int64_t cols,
                           const void *data, ru_err *err)
{
    const int64_t dims[2] = {rows, cols};
    const ru_array a = {name, ru_type_make(dtype, cols > 0 ? 2 : 1, dims), data, NULL};
    return ru_arrays_add(&w->arrays, &w->arena, &a, err);
}

static ru_status put_arrays(writer *w, const char *name, ru_err *err)
{
    RU_TRY(ru_ckpt_put_arrays(&w->folder, name, w->arrays.at, w->arrays.n, err));
    w->arrays = (ru_arrays){0};
    return RU_OK;
}

static ru_status put_tables(writer *w, const ru_app_state *s, ru_err *err)
{
    for (uint32_t t = 0; t < s->shape.n_tables; t++) {
        const ru_app_table *table = &s->shape.table[t];
        RU_TRY(add_array(w, table->name, RU_F32, table->rows, table->width, s->value[t], err));
    }
    RU_TRY(put_arrays(w, "tables.safetensors", err));
    for (uint32_t t = 0; t < s->shape.n_tables; t++) {
        if (s->extra[t] != NULL) {
            RU_TRY(add_array(w, s->shape.table[t].name, RU_F32, s->shape.table[t].rows,
                             s->extra_width[t], s->extra[t], err));
        }
    }
    return put_arrays(w, "rules.safetensors", err);
}

static ru_status put_states(writer *w, const ru_app_state *s, ru_err *err)
{
    for (uint32_t e = 0; e < s->shape.executors; e++) {
        const char *name = ru_arena_printf(&w->arena, "executor.%u", e);
        if (name == NULL) {
            return full(err);
        }
        if (s->exec[e].n > 0) {
            RU_TRY(add_array(w, name, RU_U8, s->exec[e].n, 0, s->exec[e].p, err));
        }
    }
    if (s->driver.n > 0) {
        RU_TRY(add_array(w, "driver", RU_U8, s->driver.n, 0, s->driver.p, err));
    }
    return put_arrays(w, "executors.safetensors", err);
}

static ru_status put_all(writer *w, const ru_app_ckpt *c, const ru_app_state *s, ru_err *err)
{
    RU_TRY(put_tables(w, s, err));
    RU_TRY(put_states(w, s, err));
    if (c->words != NULL) {
        RU_TRY(ru_ckpt_put_text(&w->folder, "words.txt", c->words, (int64_t)strlen(c->words), err));
    }
    ru_text t = ru_text_arena(&w->arena);
    ru_text_putf(&t,
                 "{\"schema\":\"rubato.checkpoint.app/1\",\"clock\":%lld,\"items\":%lld,"
                 "\"executors\":%lld,\"seed\":%lld,\"rows\":%lld,\"cols\":%lld,\"classes\":%lld,"
                 "\"numbers\":%lld,"
                 "\"job\":",
                 (long long)c->clock, (long long)c->items, (long long)c->executors,
                 (long long)c->seed, (long long)c->rows, (long long)c->cols, (long long)c->classes,
                 (long long)c->numbers);
    ru_text_json(&t, ru_str_c(c->job_yaml));
    ru_text_put(&t, "}\n");
    return t.cut ? full(err) : ru_ckpt_put_text(&w->folder, "app.json", t.p, t.n, err);
}

static ru_status save(const char *run_dir, const ru_app_ckpt *c, const ru_app_state *state,
                      uint32_t keep, ru_err *err)
{
    writer w = {0};
    ru_arena_init(&w.arena, 0);
    ru_status st = ru_ckpt_begin(&w.folder, run_dir, c->clock, &w.arena, err);
    if (st == RU_OK) {
        st = ru_ckpt_finish(&w.folder, put_all(&w, c, state, err), err);
    }
    if (st == RU_OK) {
        st = ru_ckpt_prune(&w.folder, keep, 0, err);
    }
    ru_arena_fini(&w.arena);
    return st;
}

ru_status ru_app_ckpt_save(const char *run_dir, const ru_app_ckpt *c, const ru_app_state *state,
                           uint32_t keep, ru_err *err)
{
    ru_status st;
    uint32_t tries = 0;
    do {
        st = save(run_dir, c, state, keep, err);
    } while (ru_ckpt_again(st, !ru_path_exists(run_dir), &tries));
    return st;
}

/* -- reading ----------------------------------------------------------------------------------- */

typedef struct app_row {
    const char *schema, *job;
    int64_t clock, items, executors, seed, rows, cols, classes, numbers;
} app_row;

#define NUMBER(key)                                                                    \
    {                                                                                  \
        .name = #key, .type = RU_CONF_I64, .offset = offsetof(app_row, key), .min = 0, \
        .max = 9e18, .help = "count"                                                   \
    }
static const ru_conf_field app_fields[] = {
    RU_ROW(TEXT, app_row, schema, NULL, "rubato.checkpoint.app/1"),
    NUMBER(clock),
    NUMBER(items),
    NUMBER(executors),
    NUMBER(seed),
    NUMBER(rows),
    NUMBER(cols),
    NUMBER(classes),
    NUMBER(numbers),
    RU_ROW(TEXT, app_row, job, NULL, "resolved job file"),
};
static const ru_conf_table app_table = RU_TABLE("app", app_row, app_fields, NULL);

static ru_status read_one(const char *dir, ru_arena *arena, void *into, ru_err *err)
{
    ru_app_ckpt *out = into;
    app_row r;
    const char *path = ru_path_join(arena, dir, "app.json");
    const char *words = ru_path_join(arena, dir, "words.txt");
    if (path == NULL || words == NULL) {
        return full(err);
    }
    RU_TRY(ru_ckpt_manifest_check(dir, arena, err));
    RU_TRY(ru_ckpt_json(path, &app_table, &r, arena, err));
    ru_app_ckpt c = {.dir = ru_arena_str(arena, dir),
                     .clock = r.clock,
                     .items = r.items,
                     .executors = r.executors,
                     .seed = r.seed,
                     .rows = r.rows,
                     .cols = r.cols,
                     .classes = r.classes,
                     .numbers = r.numbers,
                     .job_yaml = r.job};
    if (ru_path_exists(words)) {
        char *text;
        int64_t n;
        RU_TRY(ru_file_read(words, 0, arena, &text, &n, err));
        c.words = text;
    }
    *out = c;
    return c.dir != NULL ? RU_OK : full(err);
}

static bool has(const char *dir, const char *name)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    const char *path = ru_path_join(&arena, dir, name);
    bool is = path != NULL && ru_path_exists(path);
    ru_arena_fini(&arena);
    return is;
}

bool ru_app_ckpt_is(const char *path)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    const char *job = ru_path_join(&arena, path, "job.yaml");
    bool is = has(path, "app.json") || (job != NULL && ru_path_exists(job) && ru_app_job_is(job));
    ru_arena_fini(&arena);
    return is;
}

ru_status ru_app_ckpt_find(const char *path, ru_arena *arena, ru_app_ckpt *out, ru_err *err)
{
    if (has(path, "manifest.json")) {
        return read_one(path, arena, out, err);
    }
    return ru_ckpt_newest(path, arena, read_one, out, err);
}

ru_status ru_app_ckpt_fits(const ru_app_ckpt *c, int64_t executors, int64_t rows, int64_t cols,
                           int64_t seed, ru_err *err)
{
    bool fits = c->executors == executors && c->rows == rows && c->cols == cols && c->seed == seed;
    return fits ? RU_OK
                : RU_FAIL(err, RU_E_CONFIG,
                          "the checkpoint %s has %lld executors, %lld rows, %lld columns and seed "
                          "%lld, but the job has %lld, %lld, %lld and %lld; these must stay the "
                          "same",
                          c->dir, (long long)c->executors, (long long)c->rows, (long long)c->cols,
                          (long long)c->seed, (long long)executors, (long long)rows,
                          (long long)cols, (long long)seed);
}

/* Tensor `name` of exactly this shape into `into`. */
static ru_status take(const ru_safetensors *file, const char *path, const char *name, int64_t rows,
                      int64_t cols, float *into, ru_err *err)
{
    const ru_array *a = ru_arrays_find(&file->tensors, name);
    if (a == NULL || a->type.dtype != RU_F32 || a->type.rank != 2 || a->type.dims[0] != rows ||
        a->type.dims[1] != cols) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: expected a tensor '%s' of %lld x %lld numbers; it belongs to another "
                       "app, job or data",
                       path, name, (long long)rows, (long long)cols);
    }
    memcpy(into, a->data, (size_t)(rows * cols) * sizeof(float));
    return RU_OK;
}

typedef ru_status (*tensors_fn)(const ru_safetensors *file, const char *path, ru_app_state *s,
                                ru_err *err);

static ru_status with_file(const ru_app_ckpt *c, const char *name, tensors_fn fn, ru_app_state *s,
                           ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_map_file map = {0};
    ru_safetensors file;
    const char *path = ru_path_join(&arena, c->dir, name);
    ru_status st = path == NULL ? full(err) : ru_safetensors_open(path, &arena, &map, &file, err);
    if (st == RU_OK) {
        st = fn(&file, path, s, err);
        ru_file_unmap(&map);
    }
    ru_arena_fini(&arena);
    return st;
}

static ru_status take_tables(const ru_safetensors *file, const char *path, ru_app_state *s,
                             ru_err *err)
{
    for (uint32_t t = 0; t < s->shape.n_tables; t++) {
        const ru_app_table *table = &s->shape.table[t];
        RU_TRY(take(file, path, table->name, table->rows, table->width, s->value[t], err));
    }
    return RU_OK;
}

static ru_status take_rules(const ru_safetensors *file, const char *path, ru_app_state *s,
                            ru_err *err)
{
    for (uint32_t t = 0; t < s->shape.n_tables; t++) {
        if (s->extra[t] != NULL) {
            RU_TRY(take(file, path, s->shape.table[t].name, s->shape.table[t].rows,
                        s->extra_width[t], s->extra[t], err));
        }
    }
    return RU_OK;
}

static void take_bytes(const ru_safetensors *file, const char *name, ru_app_bytes *into)
{
    const ru_array *a = ru_arrays_find(&file->tensors, name);
    into->n = 0;
    into->full = false;
    if (a != NULL && a->type.dtype == RU_U8) {
        ru_app_put(into, a->data, ru_type_bytes(&a->type));
    }
}

static ru_status take_states(const ru_safetensors *file, const char *path, ru_app_state *s,
                             ru_err *err)
{
    (void)path;
    bool fits = true;
    for (uint32_t e = 0; e < s->shape.executors; e++) {
        char name[32];
        (void)snprintf(name, sizeof name, "executor.%u", e);
        take_bytes(file, name, &s->exec[e]);
        fits = fits && !s->exec[e].full;
    }
    take_bytes(file, "driver", &s->driver);
    return fits && !s->driver.full
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for the states of %u executors",
                         s->shape.executors);
}

ru_status ru_app_ckpt_tables(const ru_app_ckpt *c, ru_app_state *state, ru_err *err)
{
    return with_file(c, "tables.safetensors", take_tables, state, err);
}

ru_status ru_app_ckpt_states(const ru_app_ckpt *c, ru_app_state *state, ru_err *err)
{
    bool rules = false;
    for (uint32_t t = 0; t < state->shape.n_tables; t++) {
        rules = rules || state->extra[t] != NULL;
    }
    if (rules) {
        RU_TRY(with_file(c, "rules.safetensors", take_rules, state, err));
    }
    RU_TRY(with_file(c, "executors.safetensors", take_states, state, err));
    state->clock = (uint32_t)c->clock;
    return RU_OK;
}
