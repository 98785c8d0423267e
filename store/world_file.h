/* World files: a cluster, its jobs, facts and plans as one JSON object (world/world.h).
 *
 *     {"schema":"rubato.world/1","cluster":{...},"jobs":[...],"facts":{...},"plans":[...]}
 *
 * Every key but the schema may be left out. Keys that are not known are refused by name. What is
 * written reads back to the same bytes.
 *
 * Thread: any. */
#ifndef RU_STORE_WORLD_FILE_H
#define RU_STORE_WORLD_FILE_H

#include "world/world.h"

/* Does `text` begin like a world file? Any other JSON object, and any other schema, is none. */
bool ru_world_file_is(ru_str text);
/* Owner: everything in `into` lives in `arena`. Errors name `path`. Errors: RU_E_CONFIG with
 * path:line:column, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_world_file_parse(const char *path, ru_str text, ru_arena *arena,
                                          ru_world *into, ru_err *err);
/* Errors: also RU_E_MISSING, RU_E_IO. */
RU_MUST_USE ru_status ru_world_file_load(const char *path, ru_arena *arena, ru_world *into,
                                         ru_err *err);
/* Errors: RU_E_ARG for numbers outside their bounds, RU_E_LIMIT when the text is full. */
RU_MUST_USE ru_status ru_world_file_put(const ru_world *w, ru_text *out, ru_err *err);

#endif
