/* A file of settings of `rubato cluster`: its values, and the place where paths in it begin.
 * Thread: main. */
#ifndef RU_TOOL_CLUSTER_SETTINGS_H
#define RU_TOOL_CLUSTER_SETTINGS_H

#include "base/conf.h"

typedef struct rui_settings {
    const char *file, *folder; /* without links; live in the arena */
} rui_settings;

/* `what` it is of, for a sentence: "fleet". Errors: RU_E_MISSING, RU_E_CONFIG, RU_E_MEM. */
RU_MUST_USE ru_status rui_settings_read(const char *path, const char *what,
                                        const ru_conf_table *table, ru_arena *arena, void *into,
                                        rui_settings *out, ru_err *err);
/* A path as seen from the file; "" stays. NULL: no memory. */
const char *rui_settings_path(const rui_settings *s, ru_arena *arena, const char *path);

#endif
