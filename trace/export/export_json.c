/* JSON text through one buffer into a file or into memory. */
#include "trace/export/export_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

enum { STR_MAX = RUI_EXPORT_BYTES / 8 }; /* an escaped byte takes up to six */

ru_status rui_export_open(rui_export *x, const char *path, ru_err *err)
{
    x->used = 0;
    x->err = err;
    x->status = ru_out_open(path, &x->file, err);
    return x->status;
}

void rui_export_into(rui_export *x, ru_text *text, ru_err *err)
{
    x->file = NULL;
    x->text = text;
    x->used = 0;
    x->err = err;
    x->status = RU_OK;
}

void rui_export_flush(rui_export *x)
{
    if (x->status == RU_OK && x->used > 0 && x->file != NULL) {
        x->status = ru_out_write(x->file, x->buffer, x->used, x->err);
    } else if (x->status == RU_OK && x->used > 0) {
        ru_text_put_n(x->text, x->buffer, x->used);
        x->status =
            x->text->cut ? RU_FAIL(x->err, RU_E_MEM, "there is no memory for the spans") : RU_OK;
    }
    x->used = 0;
}

void rui_export_put(rui_export *x, const char *fmt, ...)
{
    if (x->used > RUI_EXPORT_BYTES / 2) {
        rui_export_flush(x);
    }
    int64_t room = RUI_EXPORT_BYTES - x->used;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(x->buffer + x->used, (size_t)room, fmt, ap);
    va_end(ap);
    RU_CHECK(n >= 0 && n < room);
    x->used += n;
}

void rui_export_str(rui_export *x, const char *s)
{
    int64_t n = (int64_t)strlen(s);
    n = n < STR_MAX ? n : STR_MAX;
    if (RUI_EXPORT_BYTES - x->used < 6 * n + 3) {
        rui_export_flush(x);
    }
    ru_text t = ru_text_into(x->buffer + x->used, RUI_EXPORT_BYTES - x->used);
    ru_text_json(&t, ru_str_n(s, n));
    RU_CHECK(!t.cut);
    x->used += t.n;
}

ru_status rui_export_close(rui_export *x)
{
    rui_export_flush(x);
    if (x->status == RU_OK) {
        x->status = ru_out_commit(x->file, x->err);
    }
    ru_out_close(x->file);
    return x->status;
}
