#include "run/ckpt_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "env/process/self.h"

#define SPACE    "checkpoints"
#define NOTE     "storage.json"
#define MANIFEST "manifest.json"
#define GONE     ".gone" RU_CKPT_TEMP

enum { RUN_NAME_MAX = 64, HEADER_BYTES = 4096, TENSOR_HEADER_BYTES = 128 };

typedef struct note {
    const char *schema, *key;
    ru_conf_texts folders;
} note;

static const ru_conf_field note_fields[] = {
    RU_ROW(TEXT, note, schema, NULL, "rubato.checkpoint.storage/1"),
    RU_ROW(TEXT, note, key, NULL, "its files' names begin so"),
    RU_ROW(TEXT_LIST, note, folders, NULL, "folders of storage, the fastest first"),
};
static const ru_conf_table note_table = RU_TABLE("storage", note, note_fields, NULL);

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the checkpoint is full");
}

/* Name of a file in storage; NULL: no memory. */
static const char *name_of(ru_arena *arena, const char *key, const char *name)
{
    return ru_arena_printf(arena, "%s/%s", key, name);
}

/* -- what a folder has in storage -------------------------------------------------------------- */

/* *is: it has something there. */
static ru_status read_note(const char *dir, ru_arena *arena, note *out, bool *is, ru_err *err)
{
    const char *path = ru_path_join(arena, dir, NOTE);
    *is = false;
    if (path == NULL) {
        return full(err);
    }
    if (!ru_path_exists(path)) {
        return RU_OK;
    }
    RU_TRY(ru_ckpt_json(path, &note_table, out, arena, err));
    if (out->folders.n < 1 || out->folders.n > RU_TIERS_MAX) {
        return RU_FAIL(err, RU_E_DATA, "%s names %u folders; expected 1 to %d", path,
                       out->folders.n, RU_TIERS_MAX);
    }
    *is = true;
    return RU_OK;
}

static bool has_space(const char *last, ru_arena *arena)
{
    const char *path = ru_arena_printf(arena, "%s/files/" RU_CKPT_SPACE, last);
    return path != NULL && ru_path_is_dir(path);
}

static ru_status open_noted(const char *dir, const note *n, bool reads, ru_arena *arena,
                            ru_tiers **out, ru_err *err)
{
    ru_disk_tier at[RU_TIERS_MAX];
    const ru_tiers_options o = {
        .tiers = at, .n_tiers = n->folders.n, .space = RU_CKPT_SPACE, .reads = reads};
    for (uint32_t k = 0; k < n->folders.n; k++) {
        at[k] = (ru_disk_tier){n->folders.at[k], INT64_MAX}; /* nothing is written */
    }
    const char *last = n->folders.at[n->folders.n - 1];
    if (!has_space(last, arena)) {
        return RU_FAIL(err, RU_E_IO,
                       "%s: its tensors are in %s, where no checkpoints are now; make the disk "
                       "available that had them",
                       dir, last);
    }
    return ru_tiers_open(&o, out, err);
}

ru_status ru_ckpt_map(const char *dir, const char *name, ru_arena *arena, ru_map_file *out,
                      ru_err *err)
{
    note n;
    bool is = false;
    ru_tiers *t;
    ru_tier_file *f;
    const char *path = ru_path_join(arena, dir, name);
    if (path == NULL) {
        return full(err);
    }
    RU_TRY(ru_path_exists(path) ? RU_OK : read_note(dir, arena, &n, &is, err));
    if (!is) {
        return ru_file_map(path, out, err);
    }
    RU_TRY(open_noted(dir, &n, true, arena, &t, err));
    const char *stored = name_of(arena, n.key, name);
    ru_status st = stored != NULL ? ru_tier_open(t, stored, &f, err) : full(err);
    if (st == RU_OK) {
        st = ru_tier_map(f, out, err);
        ru_tier_close(f);
    }
    ru_tiers_close(t);
    return st == RU_OK ? st : ru_err_wrap(err, st, "%s", path);
}

ru_status ru_ckpt_tensors(const char *dir, const char *name, ru_arena *arena, ru_map_file *map,
                          ru_safetensors *file, ru_err *err)
{
    ru_map_file m;
    RU_TRY(ru_ckpt_map(dir, name, arena, &m, err));
    ru_status st = ru_safetensors_parse(m.data, m.size_bytes, arena, file, err);
    if (st != RU_OK) {
        ru_file_unmap(&m);
        return ru_err_wrap(err, st, "%s/%s", dir, name);
    }
    *map = m;
    return RU_OK;
}

/* -- removing ---------------------------------------------------------------------------------- */

/* What the manifest of `key` in storage says. Errors: RU_E_MISSING, RU_E_DATA. */
static ru_status read_manifest(ru_tiers *t, const char *key, ru_arena *arena, ru_ckpt_manifest *out,
                               ru_err *err)
{
    ru_tier_file *f;
    const char *name = name_of(arena, key, MANIFEST);
    RU_TRY(name != NULL ? ru_tier_open(t, name, &f, err) : full(err));
    int64_t bytes = ru_tier_bytes(f);
    char *text = ru_arena_alloc(arena, bytes + 1, 1);
    ru_status st = text != NULL ? ru_tier_read(f, 0, text, bytes, err) : full(err);
    ru_tier_close(f);
    RU_TRY(st);
    return ru_ckpt_manifest_parse(name, text, bytes, arena, out, err);
}

/* Has the folder of the run that wrote it the checkpoint `key`? */
static ru_status run_has(const char *run, const char *key, ru_arena *arena, bool *has, ru_err *err)
{
    static const char *const ends[] = {"", RU_CKPT_TEMP}; /* the second until it has its name */
    const char *step = strrchr(key, '/');
    *has = false;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(ends) && !*has; k++) {
        note n;
        const char *dir =
            ru_arena_printf(arena, "%s/checkpoints%s%s", run, step != NULL ? step : "/", ends[k]);
        ru_status st = dir != NULL ? read_note(dir, arena, &n, has, err) : full(err);
        RU_TRY(st == RU_E_DATA ? RU_OK : st);
        *has = *has && strcmp(n.key, key) == 0;
    }
    return RU_OK;
}

/* Of files whose names begin with `head`. Errors: RU_E_AGAIN: their writer has not finished. */
static ru_status check_writer(ru_tiers *t, const char *head, ru_err *err)
{
    ru_tier_entry e;
    bool lives = false;
    RU_TRY(ru_tiers_look(t, err));
    for (uint32_t at = 0; ru_tiers_next(t, &at, &e) && !lives;) {
        if (strncmp(e.name, head, strlen(head)) == 0) {
            RU_TRY(ru_tiers_lives(t, e.writer, &lives, err));
        }
    }
    return !lives ? RU_OK
                  : RU_FAIL(err, RU_E_AGAIN, "the checkpoint %.*s is being written",
                            (int)strlen(head) - 1, head);
}

/* The manifest first: what is removed in part is none. A folder that goes has another name by now:
 * the run (*keeper) that still has `key` is the one that it is a copy of, and keeps it. */
static ru_status remove_files(ru_tiers *t, const char *key, ru_arena *arena, const char **keeper,
                              ru_err *err)
{
    ru_tier_entry e;
    ru_ckpt_manifest m;
    const char *head = name_of(arena, key, ""), *manifest = name_of(arena, key, MANIFEST);
    bool kept = false;
    *keeper = NULL;
    if (head == NULL || manifest == NULL) {
        return full(err);
    }
    ru_status st = read_manifest(t, key, arena, &m, err);
    RU_TRY(st == RU_E_MISSING || st == RU_E_DATA ? RU_OK : st);
    RU_TRY(st == RU_OK ? run_has(m.run, key, arena, &kept, err) : RU_OK);
    if (kept) {
        *keeper = m.run;
        return RU_OK;
    }
    RU_TRY(check_writer(t, head, err));
    st = ru_tier_remove(t, manifest, err);
    RU_TRY(st == RU_E_MISSING ? RU_OK : st);
    RU_TRY(ru_tiers_look(t, err));
    for (uint32_t at = 0; ru_tiers_next(t, &at, &e);) {
        if (strncmp(e.name, head, strlen(head)) == 0) {
            const char *name = ru_arena_str(arena, e.name);
            RU_TRY(name != NULL ? ru_tier_remove(t, name, err) : full(err));
            RU_TRY(ru_tiers_look(t, err));
            at = 0; /* the map has changed */
        }
    }
    return RU_OK;
}

static ru_status remove_noted(const char *dir, const note *n, ru_arena *arena, ru_err *err)
{
    ru_tiers *t;
    const char *keeper;
    RU_TRY(open_noted(dir, n, false, arena, &t, err));
    ru_status st = remove_files(t, n->key, arena, &keeper, err);
    ru_tiers_close(t);
    return st;
}

/* Under another name first: the folder with the final one is complete at all times. What storage
 * does not give up now is tried again by the next one that removes leftovers. */
static ru_status remove_all(const char *dir, ru_arena *arena, ru_err *err)
{
    note n;
    bool is;
    ru_err why = {0};
    uint64_t id;
    ru_status st = read_note(dir, arena, &n, &is, &why);
    if (st != RU_OK && st != RU_E_DATA) {
        return ru_err_set(err, st, "%s", why.text);
    }
    if (is && !ru_str_ends(ru_str_c(dir), GONE)) {
        ru_self_random(&id, sizeof id);
        const char *gone = ru_arena_printf(arena, "%s.%016llx" GONE, dir, (unsigned long long)id);
        RU_TRY(gone != NULL ? ru_path_rename(dir, gone, err) : full(err));
        dir = gone;
    }
    st = is ? remove_noted(dir, &n, arena, &why) : st;
    if (st != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "checkpoint_storage",
               "what %s has in storage stays until the next start of the run: %s", dir, why.text);
    }
    return st == RU_OK || st == RU_E_DATA ? ru_path_remove(dir, err) : RU_OK;
}

ru_status ru_ckpt_remove(const char *dir, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_status st = remove_all(dir, &arena, err);
    ru_arena_fini(&arena);
    return st;
}

/* -- writing ----------------------------------------------------------------------------------- */

/* Of the run's folder, with nothing that a terminal or a shell takes for something else. */
static const char *run_name(ru_arena *arena, const char *run)
{
    const char *slash = strrchr(run, '/');
    char *name = ru_arena_strn(arena, slash != NULL ? slash + 1 : run,
                               (int64_t)strnlen(slash != NULL ? slash + 1 : run, RUN_NAME_MAX));
    for (char *c = name; c != NULL && *c != '\0'; c++) {
        bool fine = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                    (*c >= '0' && *c <= '9') || *c == '.' || *c == '-' || *c == '_';
        *c = fine ? *c : '_';
    }
    return name;
}

/* The whole path of what is there, in `arena`. */
static ru_status whole_path(const char *path, ru_arena *arena, const char **out, ru_err *err)
{
    char *real = realpath(path, NULL);
    *out = real != NULL ? ru_arena_str(arena, real) : NULL;
    free(real);
    return *out != NULL ? RU_OK : RU_FAIL(err, RU_E_IO, "%s has no path", path);
}

static ru_status put_note(ru_ckpt_folder *f, const ru_ckpt_storage *s, ru_err *err)
{
    ru_text t = ru_text_arena(f->arena);
    ru_text_put(&t, "{\"schema\":\"rubato.checkpoint.storage/1\",\"key\":");
    ru_text_json(&t, ru_str_c(f->key));
    ru_text_put(&t, ",\"folders\":[");
    for (uint32_t k = 0; k < s->n_tiers; k++) {
        const char *whole;
        if (ru_path_is_dir(s->tiers[k].path)) { /* else nothing can be written there */
            RU_TRY(whole_path(s->tiers[k].path, f->arena, &whole, err));
            ru_text_put(&t, t.p[t.n - 1] == '[' ? "" : ",");
            ru_text_json(&t, ru_str_c(whole));
        }
    }
    ru_text_put(&t, "]}\n");
    const char *path = ru_path_join(f->arena, f->temp, NOTE);
    return path == NULL || t.cut ? full(err) : ru_file_own(path, t.p, t.n, err);
}

ru_status ru_ckpt_to_storage(ru_ckpt_folder *f, const ru_ckpt_storage *s, int64_t step, ru_err *err)
{
    const ru_tiers_options o = {.tiers = s->tiers, .n_tiers = s->n_tiers, .space = RU_CKPT_SPACE};
    uint64_t id; /* what is replaced, or was begun before, has other names */
    const char *all;
    ru_self_random(&id, sizeof id);
    RU_TRY(whole_path(f->all, f->arena, &all, err));
    const char *run = ru_arena_strn(f->arena, all, (int64_t)(strrchr(all, '/') - all));
    const char *name = run != NULL ? run_name(f->arena, run) : NULL;
    f->run = run;
    f->key = name != NULL ? ru_arena_printf(f->arena, "%s-%016llx/" RU_CKPT_NAME, name,
                                            (unsigned long long)id, (long long)step)
                          : NULL;
    if (f->key == NULL) {
        return full(err);
    }
    f->stored = ru_text_arena(f->arena);
    RU_TRY(ru_tiers_open(&o, &f->tiers, err));
    ru_status st = put_note(f, s, err);
    if (st != RU_OK) {
        ru_tiers_close(f->tiers);
        f->tiers = NULL;
    }
    return st;
}

typedef struct taker {
    ru_tier_file *file;
    ru_hasher hash;
    int64_t bytes;
} taker;

static ru_status take(void *self, const void *data, int64_t size_bytes, ru_err *err)
{
    taker *t = self;
    RU_TRY(ru_tier_write(t->file, data, size_bytes, err));
    ru_hasher_put(&t->hash, data, size_bytes);
    t->bytes += size_bytes;
    return RU_OK;
}

static ru_status put_once(ru_ckpt_folder *f, const char *name, const ru_array *at, uint32_t n,
                          const ru_meta *meta, uint32_t n_meta, taker *t, ru_err *err)
{
    ru_tier_hint hint = {.expected_bytes = HEADER_BYTES, .durable = true};
    for (uint32_t k = 0; k < n; k++) {
        hint.expected_bytes += ru_type_bytes(&at[k].type) + TENSOR_HEADER_BYTES;
    }
    *t = (taker){0};
    ru_hasher_init(&t->hash);
    RU_TRY(ru_tier_create(f->tiers, name, &hint, &t->file, err));
    ru_status st = ru_safetensors_put(take, t, at, n, meta, n_meta, err);
    st = st == RU_OK ? ru_tier_commit(t->file, err) : st;
    ru_tier_close(t->file);
    return st;
}

ru_status ru_ckpt_store_put(ru_ckpt_folder *f, const char *name, const ru_array *at, uint32_t n,
                            const ru_meta *meta, uint32_t n_meta, ru_ckpt_file *row, ru_err *err)
{
    taker t;
    ru_err why = {0};
    const char *stored = name_of(f->arena, f->key, name);
    char *hash = RU_NEW(f->arena, char, 33);
    if (stored == NULL || hash == NULL) {
        return full(err);
    }
    ru_status st = put_once(f, stored, at, n, meta, n_meta, &t, &why);
    if (st == RU_E_IO) { /* that disk is not used any more */
        ru_log(RU_LOG_WARN, "train", "checkpoint_storage", "%s is written again: %s", stored,
               why.text);
        st = put_once(f, stored, at, n, meta, n_meta, &t, &why);
    }
    if (st != RU_OK) {
        return ru_err_set(err, st, "%s", why.text);
    }
    ru_hash128_text(ru_hasher_get(&t.hash), hash);
    *row = (ru_ckpt_file){.name = name, .hash = hash, .bytes = t.bytes};
    ru_ckpt_manifest_row(&f->stored, row);
    return RU_OK;
}

static ru_status put_manifest(ru_ckpt_folder *f, ru_err *err)
{
    ru_tier_file *file;
    const ru_tier_hint hint = {.expected_bytes = HEADER_BYTES, .durable = true, .last = true};
    const char *name = name_of(f->arena, f->key, MANIFEST);
    ru_text t = ru_text_arena(f->arena);
    ru_text_put(&t, "{\"schema\":\"rubato.manifest/1\",\"run\":");
    ru_text_json(&t, ru_str_c(f->run));
    ru_text_putf(&t, ",\"files\":[%.*s]}\n", (int)f->stored.n, f->stored.p);
    if (name == NULL || f->stored.cut || t.cut) {
        return full(err);
    }
    RU_TRY(ru_tier_create(f->tiers, name, &hint, &file, err));
    ru_status st = ru_tier_write(file, t.p, t.n, err);
    st = st == RU_OK ? ru_tier_commit(file, err) : st;
    ru_tier_close(file);
    return st;
}

ru_status ru_ckpt_store_end(ru_ckpt_folder *f, ru_status st, ru_err *err)
{
    if (f->tiers != NULL) {
        st = st == RU_OK ? put_manifest(f, err) : st;
        ru_tiers_close(f->tiers);
        f->tiers = NULL;
    }
    return st;
}

/* -- what stands in storage -------------------------------------------------------------------- */

static ru_status open_tiers(const ru_disk_tier *tiers, uint32_t n_tiers, bool reads,
                            ru_arena *arena, ru_tiers **out, ru_err *err)
{
    const ru_tiers_options o = {
        .tiers = tiers, .n_tiers = n_tiers, .space = RU_CKPT_SPACE, .reads = reads};
    *out = NULL;
    if (n_tiers < 1 || n_tiers > RU_TIERS_MAX || !has_space(tiers[n_tiers - 1].path, arena)) {
        return RU_OK; /* then no job has any there */
    }
    return ru_tiers_open(&o, out, err);
}

static ru_ckpt_stored *entry(ru_ckpt_stored *at, uint32_t *n, const char *name, ru_arena *arena)
{
    const char *end = strrchr(name, '/');
    size_t len = end != NULL ? (size_t)(end - name) : strlen(name);
    for (uint32_t k = 0; k < *n; k++) {
        if (strncmp(at[k].key, name, len) == 0 && at[k].key[len] == '\0') {
            return &at[k];
        }
    }
    const char *key = ru_arena_strn(arena, name, (int64_t)len);
    if (key == NULL) {
        return NULL;
    }
    at[*n] = (ru_ckpt_stored){.key = key, .run = ""};
    return &at[(*n)++];
}

static bool is_manifest(const char *name)
{
    const char *end = strrchr(name, '/');
    return end != NULL && strcmp(end + 1, MANIFEST) == 0;
}

static ru_status list_names(ru_tiers *t, ru_arena *arena, ru_ckpt_stored **out, uint32_t *n,
                            ru_err *err)
{
    ru_tier_entry e;
    uint32_t most = 0;
    RU_TRY(ru_tiers_look(t, err));
    for (uint32_t at = 0; ru_tiers_next(t, &at, &e);) {
        most++;
    }
    *out = RU_NEW(arena, ru_ckpt_stored, most + 1);
    if (*out == NULL) {
        return full(err);
    }
    for (uint32_t at = 0; ru_tiers_next(t, &at, &e);) {
        ru_ckpt_stored *c = *n < most ? entry(*out, n, e.name, arena) : NULL;
        if (c == NULL) {
            return full(err);
        }
        c->complete = c->complete || is_manifest(e.name);
        c->files += !is_manifest(e.name);
        c->bytes += e.bytes;
    }
    return RU_OK;
}

/* Damaged or not there. */
static bool damaged(ru_tiers *t, const char *key, const ru_ckpt_file *row, ru_arena *arena)
{
    ru_err none = {0};
    ru_tier_file *f;
    ru_map_file m = {0};
    char hash[33] = "";
    const char *name = name_of(arena, key, row->name);
    if (name != NULL && ru_tier_open(t, name, &f, &none) == RU_OK) {
        if (ru_tier_map(f, &m, &none) == RU_OK) {
            ru_hash128_text(ru_hash128_bytes(m.data, m.size_bytes), hash);
            ru_file_unmap(&m);
        }
        ru_tier_close(f);
    }
    return strcmp(hash, row->hash) != 0;
}

static ru_status look(ru_tiers *t, ru_ckpt_stored *c, bool verify, ru_arena *arena, ru_err *err)
{
    ru_ckpt_manifest m;
    ru_status st = read_manifest(t, c->key, arena, &m, err);
    if (st == RU_E_DATA) { /* it counts as a damaged file */
        c->damaged = 1;
        return RU_OK;
    }
    RU_TRY(st);
    c->run = m.run;
    const ru_ckpt_file *rows = m.files.at;
    for (uint32_t k = 0; verify && k < m.files.n; k++) {
        c->damaged += damaged(t, c->key, &rows[k], arena);
    }
    return run_has(m.run, c->key, arena, &c->in_use, err);
}

/* Does the map still name its manifest? It goes before all other files do. */
static ru_status has_manifest(ru_tiers *t, const char *key, bool *has, ru_err *err)
{
    ru_tier_entry e;
    size_t n = strlen(key);
    *has = false;
    RU_TRY(ru_tiers_look(t, err));
    for (uint32_t at = 0; ru_tiers_next(t, &at, &e) && !*has;) {
        *has = strncmp(e.name, key, n) == 0 && e.name[n] == '/' && is_manifest(e.name);
    }
    return RU_OK;
}

ru_status ru_ckpt_stored_list(const ru_disk_tier *tiers, uint32_t n_tiers, bool verify,
                              ru_arena *arena, ru_ckpt_stored **out, uint32_t *n, ru_err *err)
{
    ru_tiers *t;
    *n = 0;
    RU_TRY(open_tiers(tiers, n_tiers, true, arena, &t, err));
    if (t == NULL) {
        return RU_OK;
    }
    ru_status st = list_names(t, arena, out, n, err);
    for (uint32_t k = 0; st == RU_OK && k < *n; k++) {
        ru_ckpt_stored *c = &(*out)[k];
        bool has = true;
        st = c->complete ? look(t, c, verify, arena, err) : RU_OK;
        c->damaged += st == RU_E_MISSING;
        st = st == RU_E_MISSING ? RU_OK : st;
        if (st == RU_OK && c->damaged > 0) { /* lost with its disk, or removed meanwhile */
            st = has_manifest(t, c->key, &has, err);
            c->damaged = has ? c->damaged : 0;
        }
    }
    ru_tiers_close(t);
    return st;
}

ru_status ru_ckpt_stored_remove(const ru_disk_tier *tiers, uint32_t n_tiers,
                                const ru_ckpt_stored *c, ru_err *err)
{
    ru_tiers *t;
    ru_arena arena;
    const char *keeper = NULL;
    ru_arena_init(&arena, 0);
    ru_status st = open_tiers(tiers, n_tiers, false, &arena, &t, err);
    if (st == RU_OK && t != NULL) {
        st = remove_files(t, c->key, &arena, &keeper, err);
        ru_tiers_close(t);
    }
    if (keeper != NULL) {
        st = RU_FAIL(err, RU_E_AGAIN,
                     "%s is a checkpoint of the run in %s; remove the run's folder first", c->key,
                     keeper);
    }
    ru_arena_fini(&arena);
    return st;
}
