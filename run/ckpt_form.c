#include "run/ckpt_form.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "env/file/file.h"
#include "run/ckpt_store.h"

enum { JSON_BYTES_MAX = 64 << 20 };

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the checkpoint is full");
}

/* -- writing ------------------------------------------------------------------------------------
 */

bool ru_ckpt_again(ru_status st, bool gone, uint32_t *tries)
{
    return (st == RU_E_MISSING || (gone && st == RU_E_CREATE)) && ++*tries < 4;
}

ru_status ru_ckpt_begin(ru_ckpt_folder *f, const char *run_dir, int64_t step, ru_arena *arena,
                        ru_err *err)
{
    *f = (ru_ckpt_folder){.arena = arena, .manifest = ru_text_arena(arena)};
    f->all = ru_path_join(arena, run_dir, "checkpoints");
    f->dir = ru_arena_printf(arena, "%s/checkpoints/" RU_CKPT_NAME, run_dir, (long long)step);
    f->temp = f->dir != NULL ? ru_arena_printf(arena, "%s" RU_CKPT_TEMP, f->dir) : NULL;
    if (f->all == NULL || f->temp == NULL) {
        return full(err);
    }
    ru_text_put(&f->manifest, "{\"schema\":\"rubato.manifest/1\",\"files\":[");
    if (ru_path_exists(f->temp)) {
        RU_TRY(ru_ckpt_remove(f->temp, err));
    }
    return ru_dir_make(f->temp, err);
}

void ru_ckpt_manifest_row(ru_text *t, const ru_ckpt_file *row)
{
    ru_text_putf(t, "%s{\"name\":\"%s\",\"bytes\":%lld,\"hash\":\"%s\"}",
                 t->n == 0 || t->p[t->n - 1] == '[' ? "" : ",", row->name, (long long)row->bytes,
                 row->hash);
}

/* Size and hash of a file that is there now. */
static ru_status add(ru_ckpt_folder *f, const char *name, const char *path, ru_err *err)
{
    ru_map_file map;
    char hash[33];
    RU_TRY(ru_file_map(path, &map, err));
    ru_hash128_text(ru_hash128_bytes(map.data, map.size_bytes), hash);
    ru_ckpt_manifest_row(&f->manifest,
                         &(ru_ckpt_file){.name = name, .hash = hash, .bytes = map.size_bytes});
    ru_file_unmap(&map);
    return RU_OK;
}

ru_status ru_ckpt_put_arrays(ru_ckpt_folder *f, const char *name, const ru_array *at, uint32_t n,
                             ru_err *err)
{
    static const ru_meta meta[] = {{"format", "pt"}, {"producer", "rubato"}};
    if (n == 0) {
        return RU_OK;
    }
    if (f->tiers != NULL) {
        ru_ckpt_file row;
        RU_TRY(ru_ckpt_store_put(f, name, at, n, meta, RU_ARRAY_LEN(meta), &row, err));
        ru_ckpt_manifest_row(&f->manifest, &row);
        return RU_OK;
    }
    const char *path = ru_path_join(f->arena, f->temp, name);
    if (path == NULL) {
        return full(err);
    }
    RU_TRY(ru_safetensors_save(path, at, n, meta, RU_ARRAY_LEN(meta), err));
    return add(f, name, path, err);
}

ru_status ru_ckpt_put_text(ru_ckpt_folder *f, const char *name, const char *text, int64_t n,
                           ru_err *err)
{
    const char *path = ru_path_join(f->arena, f->temp, name);
    if (path == NULL) {
        return full(err);
    }
    RU_TRY(ru_file_own(path, text, n, err));
    return add(f, name, path, err);
}

static ru_status put_manifest(ru_ckpt_folder *f, ru_err *err)
{
    ru_text_put(&f->manifest, "]}\n");
    const char *path = ru_path_join(f->arena, f->temp, "manifest.json");
    return path == NULL || f->manifest.cut ? full(err)
                                           : ru_file_own(path, f->manifest.p, f->manifest.n, err);
}

ru_status ru_ckpt_finish(ru_ckpt_folder *f, ru_status st, ru_err *err)
{
    st = ru_ckpt_store_end(f, st, err);
    st = st == RU_OK ? put_manifest(f, err) : st;
    if (st == RU_OK &&
        ru_path_exists(f->dir)) { /* damaged, else the run would have gone on from it */
        st = ru_ckpt_remove(f->dir, err);
    }
    st = st == RU_OK ? ru_path_rename(f->temp, f->dir, err) : st;
    if (st != RU_OK) { /* give the space back; the sentence of the first failure stays */
        ru_err ignored;
        (void)!ru_ckpt_remove(f->temp, &ignored);
    }
    return st;
}

ru_status ru_ckpt_prune(const ru_ckpt_folder *f, uint32_t keep, int64_t best, ru_err *err)
{
    ru_ckpt_entry *list;
    uint32_t n;
    RU_TRY(ru_ckpt_list(f->all, f->arena, &list, &n, err));
    for (uint32_t k = keep; k < n; k++) {
        if (best != 0 && list[k].step == best) {
            continue;
        }
        const char *path = ru_path_join(f->arena, f->all, list[k].name);
        RU_TRY(path != NULL ? ru_ckpt_remove(path, err) : full(err));
    }
    return RU_OK;
}

/* -- reading ------------------------------------------------------------------------------------
 */

static int newest_first(const void *a, const void *b)
{
    const ru_ckpt_entry *x = a, *y = b;
    return x->step > y->step ? -1 : x->step < y->step;
}

ru_status ru_ckpt_list(const char *dir, ru_arena *arena, ru_ckpt_entry **out, uint32_t *n,
                       ru_err *err)
{
    char **names;
    uint32_t n_names = 0, found = 0;
    RU_TRY(ru_dir_list(dir, arena, &names, &n_names, err));
    ru_ckpt_entry *list = RU_NEW(arena, ru_ckpt_entry, n_names);
    if (list == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < n_names; k++) {
        list[found].name = names[k];
        found += ru_str_i64(ru_str_c(names[k]), &list[found].step);
    }
    qsort(list, found, sizeof *list, newest_first);
    *out = list;
    *n = found;
    return RU_OK;
}

static const ru_conf_field file_fields[] = {
    RU_ROW(TEXT, ru_ckpt_file, name, NULL, "file in the folder"),
    RU_ROW(I64, ru_ckpt_file, bytes, NULL, "its size", RU_IN(0, 9e18)),
    RU_ROW(TEXT, ru_ckpt_file, hash, NULL, "its XXH3 hash, 128 bits"),
};
static const ru_conf_table file_table = RU_TABLE("file", ru_ckpt_file, file_fields, NULL);
static const ru_conf_field manifest_fields[] = {
    RU_ROW(TEXT, ru_ckpt_manifest, schema, NULL, "rubato.manifest/1"),
    RU_ROW(TEXT, ru_ckpt_manifest, run, "", "folder of the run that wrote it"),
    RU_ROW(SECTIONS, ru_ckpt_manifest, files, NULL, "files of the checkpoint",
           .table = &file_table),
};
static const ru_conf_table manifest_table =
    RU_TABLE("manifest", ru_ckpt_manifest, manifest_fields, NULL);

/* Damaged JSON of ours is damaged data, not a wrong configuration. */
ru_status ru_ckpt_json_text(const char *path, const char *text, int64_t n,
                            const ru_conf_table *table, void *into, ru_arena *arena, ru_err *err)
{
    ru_conf *c;
    RU_TRY(ru_conf_new(table, arena, &c, err));
    ru_conf_bulk(c); /* a table may have a million columns */
    ru_status st = ru_conf_add_json(c, path, text, n, err);
    if (st == RU_OK) {
        st = ru_conf_apply(c, into, err);
    }
    if (st == RU_E_CONFIG) {
        if (err != NULL) {
            err->status = RU_E_DATA;
        }
        st = RU_E_DATA;
    }
    return st;
}

ru_status ru_ckpt_json(const char *path, const ru_conf_table *table, void *into, ru_arena *arena,
                       ru_err *err)
{
    char *text;
    int64_t n;
    RU_TRY(ru_file_read(path, JSON_BYTES_MAX, arena, &text, &n, err));
    return ru_ckpt_json_text(path, text, n, table, into, arena, err);
}

static ru_status check_file(const char *dir, const ru_ckpt_file *f, ru_arena *arena, ru_err *err)
{
    ru_map_file map;
    char hash[33];
    if (strchr(f->name, '/') != NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s: the manifest names '%s' outside the folder", dir,
                       f->name);
    }
    RU_TRY(ru_ckpt_map(dir, f->name, arena, &map, err));
    ru_hash128_text(ru_hash128_bytes(map.data, map.size_bytes), hash);
    int64_t bytes = map.size_bytes;
    ru_file_unmap(&map);
    if (bytes != f->bytes || strcmp(hash, f->hash) != 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s/%s is damaged: it has %lld bytes with hash %s, but the manifest "
                       "expects %lld bytes with hash %s",
                       dir, f->name, (long long)bytes, hash, (long long)f->bytes, f->hash);
    }
    return RU_OK;
}

ru_status ru_ckpt_manifest_parse(const char *path, const char *text, int64_t n, ru_arena *arena,
                                 ru_ckpt_manifest *out, ru_err *err)
{
    return ru_ckpt_json_text(path, text, n, &manifest_table, out, arena, err);
}

ru_status ru_ckpt_manifest_read(const char *dir, ru_arena *arena, ru_ckpt_manifest *out,
                                ru_err *err)
{
    const char *path = ru_path_join(arena, dir, "manifest.json");
    return path != NULL ? ru_ckpt_json(path, &manifest_table, out, arena, err) : full(err);
}

ru_status ru_ckpt_manifest_check(const char *dir, ru_arena *arena, ru_err *err)
{
    ru_ckpt_manifest m;
    RU_TRY(ru_ckpt_manifest_read(dir, arena, &m, err));
    const ru_ckpt_file *files = m.files.at;
    for (uint32_t k = 0; k < m.files.n; k++) {
        RU_TRY(check_file(dir, &files[k], arena, err));
    }
    return RU_OK;
}

ru_status ru_ckpt_newest(const char *run_dir, ru_arena *arena, ru_ckpt_read_fn read, void *out,
                         ru_err *err)
{
    ru_ckpt_entry *list;
    uint32_t n = 0;
    ru_err newest = {0};
    const char *dir = ru_path_join(arena, run_dir, "checkpoints");
    if (dir == NULL) {
        return full(err);
    }
    if (!ru_path_is_dir(dir)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "%s is not a run directory, because it has no checkpoints", run_dir);
    }
    RU_TRY(ru_ckpt_list(dir, arena, &list, &n, err));
    for (uint32_t k = 0; k < n; k++) {
        const char *path = ru_path_join(arena, dir, list[k].name);
        if (path == NULL) {
            return full(err);
        }
        ru_err why;
        ru_status st = read(path, arena, out, &why);
        if (st == RU_OK) {
            return RU_OK;
        }
        if (st != RU_E_DATA && st != RU_E_MISSING) { /* it may be whole: the fault is elsewhere */
            return ru_err_set(err, st, "%s", why.text);
        }
        if (k == 0) {
            newest = why;
        }
        ru_log(RU_LOG_WARN, "train", "checkpoint_passed_over", "%s", why.text);
    }
    if (n > 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: %s damaged; the newest: %s", dir,
                       n == 1 ? "its only checkpoint is" : "all checkpoints are", newest.text);
    }
    return RU_FAIL(err, RU_E_MISSING, "%s contains no complete checkpoint", run_dir);
}
