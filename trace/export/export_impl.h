/* Inside of the exporters that write JSON: text on its way to a file or into memory. Thread: one.
 */
#ifndef RU_TRACE_EXPORT_IMPL_H
#define RU_TRACE_EXPORT_IMPL_H

#include "base/str.h"
#include "env/file/file.h"

enum { RUI_EXPORT_BYTES = 1 << 16 };

typedef struct rui_export {
    ru_out *file;
    ru_text *text;    /* when file is NULL */
    ru_status status; /* the first error; nothing is written after it */
    ru_err *err;
    int64_t used;
    char buffer[RUI_EXPORT_BYTES];
} rui_export;

RU_MUST_USE ru_status rui_export_open(rui_export *x, const char *path, ru_err *err);
/* Into memory: `text` grows; rui_export_flush puts what is in the buffer there. */
void rui_export_into(rui_export *x, ru_text *text, ru_err *err);
void rui_export_flush(rui_export *x);
/* Numbers and fixed text; at most half of the buffer. */
void rui_export_put(rui_export *x, const char *fmt, ...) RU_PRINTF(2, 3);
/* A JSON string with its quotes; names of other programs may have any length and any bytes, so a
 * very long one is cut. */
void rui_export_str(rui_export *x, const char *s);
/* Closes the file, which appears when all was written. */
RU_MUST_USE ru_status rui_export_close(rui_export *x);

#endif
