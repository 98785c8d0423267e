/* Status names, error sentences, panic. */
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word;
    int exit_code;
} rui_status_rows[RU_STATUS_COUNT] = {
#define RU_X(name, code, word, act) [RU_##name] = {word, code},
    RU_STATUS_LIST(RU_X)
#undef RU_X
};

const char *ru_status_name(ru_status st)
{
    return (uint32_t)st < RU_STATUS_COUNT ? rui_status_rows[st].word : "unknown";
}

int ru_status_exit_code(ru_status st)
{
    return (uint32_t)st < RU_STATUS_COUNT ? rui_status_rows[st].exit_code : 70;
}

static void mark_cut(char *text, int written)
{
    if (written >= RU_ERR_TEXT_MAX) {
        memcpy(text + RU_ERR_TEXT_MAX - 4, "...", 4);
    }
}

ru_status ru_err_set(ru_err *err, ru_status st, const char *fmt, ...)
{
    if (err == NULL) {
        return st;
    }
    err->status = st;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    mark_cut(err->text, n);
    return st;
}

ru_status ru_err_wrap(ru_err *err, ru_status st, const char *fmt, ...)
{
    if (err == NULL) {
        return st;
    }
    char old[RU_ERR_TEXT_MAX];
    memcpy(old, err->text, sizeof old);
    old[RU_ERR_TEXT_MAX - 1] = '\0';
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    size_t at = n < 0 ? 0 : (size_t)n;
    if (at >= sizeof err->text) {
        mark_cut(err->text, n);
        return st;
    }
    int m = snprintf(err->text + at, sizeof err->text - at, ": %s", old);
    mark_cut(err->text, n + m);
    return st;
}

void ru_panic(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "rubato: internal error at %s:%d: ", file, line);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}
