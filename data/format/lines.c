#include "data/format/lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/format/csv_text.h"

enum { FIRST_BYTES = 64 << 10 };

struct ru_lines {
    const char *path;
    ru_lines_fn read;
    void *self;
    uint8_t *raw; /* [cap] at .. n: what has come and was not given */
    int64_t at, n, cap;
    int64_t before; /* bytes of the text before raw[0] */
    char *text;     /* [2 cap] the line that was given, when it was converted */
    bool begun, ended, stopped, wide, big;
    bool letters, latin; /* there were letters of UTF-8; bytes are Latin-1 from here on */
};

ru_status ru_lines_open(const char *path, ru_lines_fn read, void *self, ru_arena *arena,
                        ru_lines **out, ru_err *err)
{
    ru_lines *l = RU_NEW(arena, ru_lines, 1);
    if (l == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena of the lines is full");
    }
    *l = (ru_lines){.path = path, .read = read, .self = self};
    *out = l;
    return RU_OK;
}

static ru_status more_room(ru_lines *l, ru_err *err)
{
    int64_t cap = l->cap == 0 ? FIRST_BYTES : 2 * l->cap;
    uint8_t *raw = realloc(l->raw, (size_t)cap);
    l->raw = raw != NULL ? raw : l->raw;
    char *text = realloc(l->text, 2 * (size_t)cap);
    l->text = text != NULL ? text : l->text;
    if (raw == NULL || text == NULL) {
        return RU_FAIL(err, RU_E_MEM, "%s: no memory for a line of more than %lld bytes", l->path,
                       (long long)l->cap);
    }
    l->cap = cap;
    return RU_OK;
}

/* Some more bytes behind those that wait, which move to the front. */
static ru_status more(ru_lines *l, ru_err *err)
{
    if (l->at > 0) {
        memmove(l->raw, l->raw + l->at, (size_t)(l->n - l->at));
        l->before += l->at;
        l->n -= l->at;
        l->at = 0;
    }
    if (l->n == l->cap) {
        RU_TRY(more_room(l, err));
    }
    int64_t got = l->read(l->self, l->raw + l->n, l->cap - l->n);
    if (got == RU_LINES_STOPPED) {
        l->stopped = l->ended = true;
        return RU_OK;
    }
    if (got < 0) {
        return RU_FAIL(err, RU_E_IO, "%s: cannot be read", l->path);
    }
    RU_CHECK(got <= l->cap - l->n);
    l->n += got;
    l->ended = got == 0;
    return RU_OK;
}

/* The marks in front. */
static ru_status begin(ru_lines *l, ru_err *err)
{
    while (l->n < 3 && !l->ended) {
        RU_TRY(more(l, err));
    }
    l->begun = true;
    if (l->n >= 2 &&
        ((l->raw[0] == 0xff && l->raw[1] == 0xfe) || (l->raw[0] == 0xfe && l->raw[1] == 0xff))) {
        l->wide = true;
        l->big = l->raw[0] == 0xfe;
        l->at = 2;
    } else if (l->n >= 3 && memcmp(l->raw, "\xef\xbb\xbf", 3) == 0) {
        l->at = 3;
    }
    return RU_OK;
}

/* Is the character at `i` this one? */
static bool is_at(const ru_lines *l, int64_t i, uint8_t c)
{
    return l->wide ? l->raw[l->big ? i : i + 1] == 0 && l->raw[l->big ? i + 1 : i] == c
                   : l->raw[i] == c;
}

/* The place of the first `c` from `from` on; -1: there is none. */
static int64_t find(const ru_lines *l, int64_t from, uint8_t c)
{
    if (!l->wide) {
        const uint8_t *p = l->n > from ? memchr(l->raw + from, c, (size_t)(l->n - from)) : NULL;
        return p != NULL ? p - l->raw : -1;
    }
    for (int64_t i = from; i + 1 < l->n; i += 2) {
        if (is_at(l, i, c)) {
            return i;
        }
    }
    return -1;
}

/* A whole text without LF: each CR becomes one. */
static void end_at_cr(ru_lines *l)
{
    for (int64_t i; (i = find(l, l->at, '\r')) >= 0;) {
        l->raw[l->wide && l->big ? i + 1 : i] = '\n';
    }
}

static ru_status give(ru_lines *l, int64_t end, ru_str *line, ru_err *err)
{
    const uint8_t *p = l->raw + l->at;
    int64_t n = end - l->at;
    if (l->wide) {
        *line = ru_str_n(l->text, rui_from_utf16(p, n, l->big, l->text));
        return RU_OK;
    }
    RU_TRY(rui_text_check(p, n, l->before + l->at, l->path, err));
    if (!l->latin && !rui_is_utf8(p, n)) {
        if (l->letters) {
            return RU_FAIL(
                err, RU_E_DATA,
                "%s: the line at byte %lld is not UTF-8, but lines before it are; convert "
                "the text to UTF-8",
                l->path, (long long)(l->before + l->at));
        }
        l->latin = true;
        ru_log(RU_LOG_WARN, "data", "encoding",
               "%s is not UTF-8; Rubato takes its bytes as Latin-1 letters", l->path);
    }
    for (int64_t i = 0; !l->letters && i < n; i++) {
        l->letters = p[i] >= 0x80;
    }
    *line =
        l->latin ? ru_str_n(l->text, rui_from_latin(p, n, l->text)) : ru_str_n((const char *)p, n);
    return RU_OK;
}

ru_status ru_lines_next(ru_lines *l, ru_str *line, bool *found, ru_err *err)
{
    bool whole = !l->begun;
    RU_TRY(l->begun ? RU_OK : begin(l, err));
    int64_t end, looked = l->at;
    while ((end = find(l, looked, '\n')) < 0 && !l->ended) {
        int64_t waits = l->n - l->at;
        RU_TRY(more(l, err));
        looked = waits & ~(int64_t)1; /* nothing before was one */
    }
    if (end < 0 && whole) {
        end_at_cr(l);
        end = find(l, l->at, '\n');
    }
    *found = end >= 0 || (l->at < l->n && !l->stopped);
    if (*found) {
        int64_t to = end >= 0 ? end : l->n;
        RU_TRY(give(l, to, line, err));
        l->at = end >= 0 ? end + (l->wide ? 2 : 1) : l->n;
    }
    return RU_OK;
}

void ru_lines_close(ru_lines *l)
{
    if (l != NULL) {
        free(l->raw);
        free(l->text);
        l->raw = NULL;
        l->text = NULL;
    }
}
