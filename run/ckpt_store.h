/* Checkpoints whose tensors lie in the folders of `storage` (checkpoint.in_storage): they begin on
 * the fast disk and go on on slower ones (store/tiers/tiers.h).
 *
 *     RUN/checkpoints/<step>/storage.json    which folders and names; written first
 *                           /state.json, manifest.json    as of every checkpoint (run/ckpt_form.h)
 *     space "checkpoints":  RUN-ID/<step>/model.safetensors, optimizer.safetensors (ID: random)
 *                           RUN-ID/<step>/manifest.json    of these; written last
 *
 * storage.json is there before the first tensor is, and goes after the last one: what a killed
 * process leaves behind is found by it. The files in storage are synced, as those of RUN are.
 *
 * Thread: any; one at a time for each folder. */
#ifndef RU_RUN_CKPT_STORE_H
#define RU_RUN_CKPT_STORE_H

#include "run/ckpt_form.h"
#include "store/safetensors.h"
#include "store/tiers/tiers.h"

#define RU_CKPT_SPACE "checkpoints"

typedef struct ru_ckpt_storage {
    const ru_disk_tier *tiers; /* [n_tiers]; 0: the run's folder has all files */
    uint32_t n_tiers;
} ru_ckpt_storage;

/* After ru_ckpt_begin: tensors go to `s`. Errors: those of ru_tiers_open and of files. */
RU_MUST_USE ru_status ru_ckpt_to_storage(ru_ckpt_folder *f, const ru_ckpt_storage *s, int64_t step,
                                         ru_err *err);
/* Its tensors [n] with `meta`; row of the manifest in *row. A disk that fails is tried once: then
 * the next one has them. Errors: those of ru_tier_create, ru_tier_write and ru_tier_commit. */
RU_MUST_USE ru_status ru_ckpt_store_put(ru_ckpt_folder *f, const char *name, const ru_array *at,
                                        uint32_t n, const ru_meta *meta, uint32_t n_meta,
                                        ru_ckpt_file *row, ru_err *err);
/* After RU_OK the manifest of what is in storage; in any case the end of writing there. */
RU_MUST_USE ru_status ru_ckpt_store_end(ru_ckpt_folder *f, ru_status st, ru_err *err);

/* A file of the checkpoint in `dir`, wherever it is. Owner: ru_file_unmap. Errors: RU_E_MISSING;
 * RU_E_IO: the folders of storage are not there; those of ru_tier_open and ru_tier_map. */
RU_MUST_USE ru_status ru_ckpt_map(const char *dir, const char *name, ru_arena *arena,
                                  ru_map_file *out, ru_err *err);
/* Its tensors; `file` is a view of `map`. */
RU_MUST_USE ru_status ru_ckpt_tensors(const char *dir, const char *name, ru_arena *arena,
                                      ru_map_file *map, ru_safetensors *file, ru_err *err);
/* Remove the folder of a checkpoint, and first what it has in storage, unless the run that wrote it
 * still has it (the folder is of a copy). Where storage does not let it go, a warning says so, and
 * the folder stays under another name that ends with RU_CKPT_TEMP.
 * Errors: those of files. */
RU_MUST_USE ru_status ru_ckpt_remove(const char *dir, ru_err *err);

/* A checkpoint in the folders of `storage`. */
typedef struct ru_ckpt_stored {
    const char *key;  /* RUN-ID/<step> */
    const char *run;  /* folder of the run that wrote it; "": its manifest is not there */
    uint32_t files;   /* of tensors */
    uint32_t damaged; /* of them, where they were compared */
    int64_t bytes;
    bool complete; /* its manifest is there */
    bool in_use;   /* the run's folder still has it */
} ru_ckpt_stored;
/* All that stand there, with every hash compared if `verify`. Owner: arena. Errors: those of
 * ru_tiers_open. */
RU_MUST_USE ru_status ru_ckpt_stored_list(const ru_disk_tier *tiers, uint32_t n_tiers, bool verify,
                                          ru_arena *arena, ru_ckpt_stored **out, uint32_t *n,
                                          ru_err *err);
/* Errors: RU_E_AGAIN: its run still has it, or writes it; those of ru_tiers_open and
 * ru_tier_remove. */
RU_MUST_USE ru_status ru_ckpt_stored_remove(const ru_disk_tier *tiers, uint32_t n_tiers,
                                            const ru_ckpt_stored *c, ru_err *err);

#endif
