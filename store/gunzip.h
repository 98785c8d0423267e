/* Text in gzip's format, inflated as a whole. Thread: any. */
#ifndef RU_STORE_GUNZIP_H
#define RU_STORE_GUNZIP_H

#include "base/str.h"

bool ru_is_gzip(ru_str text);
/* Errors name `path`. Owner: *out in `arena`, without a NUL byte. Errors: RU_E_DATA when it is
 * damaged, empty or above 256 MiB, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_gunzip(const char *path, ru_str text, ru_arena *arena, ru_str *out,
                                ru_err *err);

#endif
