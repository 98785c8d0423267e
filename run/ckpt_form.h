/* What the writing and the reading half of checkpoints share.
 *
 * Thread: any. */
#ifndef RU_RUN_CKPT_FORM_H
#define RU_RUN_CKPT_FORM_H

#include "base/conf.h"
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
const char *rui_ckpt_name(const ru_graph *g, const ru_value *s, ru_arena *arena, bool *slot);

/* Folders named by a step in `dir`, the newest first. Everything lives in `arena`. */
RU_MUST_USE ru_status ru_ckpt_list(const char *dir, ru_arena *arena, ru_ckpt_entry **out,
                                   uint32_t *n, ru_err *err);

/* Size and hash of file `name` in `dir`, as a member of the manifest's list. */
RU_MUST_USE ru_status ru_ckpt_manifest_add(const char *dir, const char *name, ru_arena *arena,
                                           ru_text *t, ru_err *err);
/* Is every file of the manifest in `dir` as it says? Errors: RU_E_MISSING, RU_E_DATA. */
RU_MUST_USE ru_status ru_ckpt_manifest_check(const char *dir, ru_arena *arena, ru_err *err);
/* JSON of a checkpoint; what is wrong with it is RU_E_DATA. */
RU_MUST_USE ru_status ru_ckpt_json(const char *path, const ru_conf_table *table, void *into,
                                   ru_arena *arena, ru_err *err);

#endif
