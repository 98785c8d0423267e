/* The one form of a checkpoint on disk, of models and of apps: a folder RUN/checkpoints/<step>/ of
 * tensors, texts and a manifest with size and hash of each file.
 *
 *     RU_TRY(ru_ckpt_begin(&f, run_dir, step, arena, err));        RUN/checkpoints/<step>.tmp
 *     st = ru_ckpt_put_arrays(&f, "model.safetensors", arrays, n, err); ...
 *     st = ru_ckpt_finish(&f, st, err);                            manifest, then the final name
 *     RU_TRY(ru_ckpt_prune(&f, keep, best, err));
 *
 * A folder under its final name is complete. What stands in it is its writer's matter (run/ckpt.c,
 * train/app/app_ckpt.c).
 *
 * Thread: any; one at a time for each folder. */
#ifndef RU_RUN_CKPT_FORM_H
#define RU_RUN_CKPT_FORM_H

#include "base/conf.h"
#include "world/array.h"
#include "world/graph/graph.h"

#define RU_CKPT_NAME "%09lld" /* of the step; sorts by name up to a thousand million */
#define RU_CKPT_TEMP ".tmp"

typedef struct ru_ckpt_entry {
    int64_t step;
    const char *name;
} ru_ckpt_entry;

/* The name of state `s` in a checkpoint, in `arena`, and whether it stands with the slots; NULL: no
 * memory. A model with moving means is what is evaluated and exported: its means have the names of
 * the parameters there, and the parameters are beside the slots as <name>.raw. */
const char *ru_ckpt_name(const ru_graph *g, const ru_value *s, ru_arena *arena, bool *slot);

/* Folders named by a step in `dir`, the newest first. Everything lives in `arena`. */
RU_MUST_USE ru_status ru_ckpt_list(const char *dir, ru_arena *arena, ru_ckpt_entry **out,
                                   uint32_t *n, ru_err *err);

/* -- writing ------------------------------------------------------------------------------------
 */

typedef struct ru_ckpt_folder {
    const char *all, *dir,
        *temp; /* RUN/checkpoints, its folder of this step, the one being filled */
    ru_arena *arena;
    ru_text manifest;
    /* With run/ckpt_store.h: */
    struct ru_tiers *tiers; /* NULL: the folder has all files */
    const char *run, *key;
    ru_text stored; /* rows of the manifest in storage */
} ru_ckpt_folder;

/* A row of a manifest. */
typedef struct ru_ckpt_file {
    const char *name, *hash;
    int64_t bytes;
} ru_ckpt_file;
/* One more behind the rows in `t`. */
void ru_ckpt_manifest_row(ru_text *t, const ru_ckpt_file *row);

/* Whether to write once more after `st`: where somebody deletes the run's folder, what was just
 * made is gone, and what is made now stays. `gone`: the folder is known to be deleted. `*tries`
 * begins at 0; a few times at most. */
bool ru_ckpt_again(ru_status st, bool gone, uint32_t *tries);

/* Make the folder under its temporary name; what a killed writer left there goes. */
RU_MUST_USE ru_status ru_ckpt_begin(ru_ckpt_folder *f, const char *run_dir, int64_t step,
                                    ru_arena *arena, ru_err *err);
/* A file of tensors; none is written for n 0. */
RU_MUST_USE ru_status ru_ckpt_put_arrays(ru_ckpt_folder *f, const char *name, const ru_array *at,
                                         uint32_t n, ru_err *err);
RU_MUST_USE ru_status ru_ckpt_put_text(ru_ckpt_folder *f, const char *name, const char *text,
                                       int64_t n, ru_err *err);
/* After RU_OK: write the manifest and give the folder its final name, in place of a damaged one of
 * that name. After a failure: give the space back and return `st`. */
RU_MUST_USE ru_status ru_ckpt_finish(ru_ckpt_folder *f, ru_status st, ru_err *err);
/* Remove what is older than the newest `keep`, but for the one of step `best` (0: none). */
RU_MUST_USE ru_status ru_ckpt_prune(const ru_ckpt_folder *f, uint32_t keep, int64_t best,
                                    ru_err *err);

/* -- reading ------------------------------------------------------------------------------------
 */

typedef struct ru_ckpt_manifest {
    const char *schema, *run; /* run: of one in storage, the run's folder */
    ru_conf_sections files;   /* of ru_ckpt_file */
} ru_ckpt_manifest;
/* What the text of a manifest says; errors call it `path`. Errors: RU_E_DATA. */
RU_MUST_USE ru_status ru_ckpt_manifest_parse(const char *path, const char *text, int64_t n,
                                             ru_arena *arena, ru_ckpt_manifest *out, ru_err *err);
/* The manifest in `dir`. Errors: RU_E_MISSING, RU_E_DATA. */
RU_MUST_USE ru_status ru_ckpt_manifest_read(const char *dir, ru_arena *arena, ru_ckpt_manifest *out,
                                            ru_err *err);
/* Is every file of the manifest of `dir` as it says? Errors: RU_E_MISSING, RU_E_DATA; RU_E_IO: what
 * it has in storage cannot be read now. */
RU_MUST_USE ru_status ru_ckpt_manifest_check(const char *dir, ru_arena *arena, ru_err *err);
/* JSON of a checkpoint; what is wrong with it is RU_E_DATA. */
RU_MUST_USE ru_status ru_ckpt_json(const char *path, const ru_conf_table *table, void *into,
                                   ru_arena *arena, ru_err *err);
/* The same of text [n], which errors call `path`. */
RU_MUST_USE ru_status ru_ckpt_json_text(const char *path, const char *text, int64_t n,
                                        const ru_conf_table *table, void *into, ru_arena *arena,
                                        ru_err *err);

/* Reads one folder into what `out` of ru_ckpt_newest points to. Errors: RU_E_DATA and RU_E_MISSING
 * when it is damaged. */
typedef ru_status (*ru_ckpt_read_fn)(const char *dir, ru_arena *arena, void *out, ru_err *err);

/* The newest complete checkpoint of a run; damaged ones are passed over and named in the log.
 * Errors: RU_E_MISSING when there is none, RU_E_DATA when all are damaged, others when one cannot
 * be read. */
RU_MUST_USE ru_status ru_ckpt_newest(const char *run_dir, ru_arena *arena, ru_ckpt_read_fn read,
                                     void *out, ru_err *err);

#endif
