/* Text of comma-separated files: rows of cells. */
#include "data/format/csv_text.h"

#include <string.h>

#include "base/log.h"

enum { COLUMNS_MAX = 1 << 20 };

static char find_separator(const rui_csv *c)
{
    int64_t commas = 0, semicolons = 0, tabs = 0;
    bool quoted = false;
    for (const char *p = c->p; p < c->end && (quoted || *p != '\n'); p++) {
        quoted = *p == '"' ? !quoted : quoted;
        commas += !quoted && *p == ',';
        semicolons += !quoted && *p == ';';
        tabs += !quoted && *p == '\t';
    }
    return tabs > commas && tabs >= semicolons ? '\t' : semicolons > commas ? ';' : ',';
}

/* A quoted cell; c->p is behind the opening quote. The slice keeps doubled quotes as they are. */
static ru_status quoted_cell(rui_csv *c, int64_t column, ru_str *cell, ru_err *err)
{
    const char *from = c->p;
    while (c->p < c->end) {
        if (*c->p == '"' && c->p + 1 < c->end && c->p[1] == '"') {
            c->p += 2;
        } else if (*c->p == '"') {
            *cell = ru_str_n(from, c->p - from);
            c->p++;
            while (c->p < c->end && (*c->p == ' ' || *c->p == '\r')) {
                c->p++;
            }
            if (c->p < c->end && *c->p != c->sep && *c->p != '\n') {
                return RU_FAIL(err, RU_E_DATA,
                               "%s:%lld: column %lld continues after its closing quote", c->path,
                               (long long)c->line, (long long)column);
            }
            return RU_OK;
        } else {
            c->line += *c->p == '\n';
            c->p++;
        }
    }
    return RU_FAIL(err, RU_E_DATA,
                   "%s:%lld: column %lld has an opening quote without a closing quote", c->path,
                   (long long)c->row_line, (long long)column);
}

static ru_str plain_cell(rui_csv *c)
{
    const char *from = c->p;
    while (c->p < c->end && *c->p != c->sep && *c->p != '\n') {
        c->p++;
    }
    const char *to = c->p;
    while (to > from && (to[-1] == ' ' || to[-1] == '\r')) {
        to--;
    }
    return ru_str_n(from, to - from);
}

/* The last cell, when it is empty. */
static void drop_empty(rui_csv *c)
{
    const ru_str *cells;
    int64_t n = rui_csv_cells(c, &cells);
    if (n > 1 && cells[n - 1].n == 0) {
        c->cells.n -= (int64_t)sizeof *cells;
    }
}

ru_status rui_csv_next(rui_csv *c, bool *found, ru_err *err)
{
    while (c->p < c->end && (*c->p == '\n' || *c->p == '\r')) {
        c->line += *c->p == '\n';
        c->p++;
    }
    *found = c->p < c->end;
    c->cells.n = 0;
    c->row_line = c->line;
    while (c->p < c->end) {
        while (c->p < c->end && *c->p == ' ') {
            c->p++;
        }
        ru_str *cell = rui_buf_push(&c->cells, sizeof *cell);
        int64_t column = c->cells.n / (int64_t)sizeof *cell;
        if (cell == NULL) {
            return rui_no_memory(err, c->path, c->cells.n);
        }
        if (column > COLUMNS_MAX) {
            return RU_FAIL(err, RU_E_DATA, "%s:%lld: more than %d columns", c->path,
                           (long long)c->row_line, COLUMNS_MAX);
        }
        if (c->p < c->end && *c->p == '"') {
            c->p++;
            RU_TRY(quoted_cell(c, column, cell, err));
        } else {
            *cell = plain_cell(c);
        }
        if (c->p >= c->end) {
            break;
        }
        bool line_end = *c->p == '\n';
        c->line += line_end;
        c->p++;
        if (line_end) {
            break;
        }
        if (c->p == c->end) { /* the file ends behind a separator: one more, empty cell */
            cell = rui_buf_push(&c->cells, sizeof *cell);
            if (cell == NULL) {
                return rui_no_memory(err, c->path, c->cells.n);
            }
            *cell = (ru_str){c->p, 0};
        }
    }
    if (c->trailing) {
        drop_empty(c);
    }
    return RU_OK;
}

ru_status rui_csv_trailing(rui_csv *c, ru_err *err)
{
    const ru_str *cells;
    int64_t n = rui_csv_cells(c, &cells), below;
    bool found, names = n > 2 && cells[n - 1].n == 0;
    double v;
    for (int64_t i = 0; names && i < n - 1; i++) {
        names = cells[i].n > 0 && !rui_number(cells[i].p, cells[i].n, &v);
    }
    if (!names) {
        return RU_OK;
    }
    rui_csv next = *c; /* a look at the line below */
    next.cells = (rui_buf){0};
    ru_status st = rui_csv_next(&next, &found, err);
    below = st == RU_OK ? rui_csv_cells(&next, &cells) : 0;
    c->trailing = below == n && cells[n - 1].n == 0;
    rui_buf_free(&next.cells);
    if (c->trailing) {
        drop_empty(c);
    }
    return st;
}

void rui_csv_begin(rui_csv *c, const char *path, const char *text, int64_t n, char sep)
{
    rui_buf cells = c->cells;
    *c = (rui_csv){.p = text, .end = text + n, .path = path, .line = 1, .row_line = 1};
    c->cells = cells;
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        c->p += 3;
    }
    c->sep = sep != 0 ? sep : find_separator(c);
}

int64_t rui_csv_cells(const rui_csv *c, const ru_str **cells)
{
    *cells = c->cells.p;
    return c->cells.n / (int64_t)sizeof(ru_str);
}

/* -- encodings ----------------------------------------------------------------------------------
 */

static char *put_utf8(char *to, uint32_t v)
{
    if (v < 0x80) {
        *to++ = (char)v;
        return to;
    }
    int more = v < 0x800 ? 1 : v < 0x10000 ? 2 : 3;
    *to++ = (char)((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | v >> 6 * more);
    while (more-- > 0) {
        *to++ = (char)(0x80 | (v >> 6 * more & 0x3f));
    }
    return to;
}

bool rui_is_utf8(const uint8_t *p, int64_t n)
{
    for (int64_t i = 0; i < n;) {
        int more = p[i] < 0x80                   ? 0
                   : p[i] >= 0xc2 && p[i] < 0xe0 ? 1
                   : p[i] >= 0xe0 && p[i] < 0xf0 ? 2
                   : p[i] >= 0xf0 && p[i] < 0xf5 ? 3
                                                 : -1;
        if (more < 0 || i + more >= n) {
            return false;
        }
        for (int k = 1; k <= more; k++) {
            if ((p[i + k] & 0xc0) != 0x80) {
                return false;
            }
        }
        bool overlong = (p[i] == 0xe0 && p[i + 1] < 0xa0) || (p[i] == 0xf0 && p[i + 1] < 0x90);
        bool outside = (p[i] == 0xed && p[i + 1] > 0x9f) || (p[i] == 0xf4 && p[i + 1] > 0x8f);
        if (overlong || outside) {
            return false;
        }
        i += 1 + more;
    }
    return true;
}

int64_t rui_from_utf16(const uint8_t *p, int64_t n, bool big, char *out)
{
    char *to = out;
    for (int64_t i = 0; i + 1 < n; i += 2) {
        uint32_t v = (uint32_t)p[big ? i : i + 1] << 8 | p[big ? i + 1 : i];
        if (v >= 0xd800 && v < 0xdc00 && i + 3 < n) { /* the first half of a pair */
            uint32_t low = (uint32_t)p[big ? i + 2 : i + 3] << 8 | p[big ? i + 3 : i + 2];
            v = 0x10000 + ((v - 0xd800) << 10) + (low & 0x3ff);
            i += 2;
        }
        to = put_utf8(to, v);
    }
    return to - out;
}

int64_t rui_from_latin(const uint8_t *p, int64_t n, char *out)
{
    char *to = out;
    for (int64_t i = 0; i < n; i++) {
        to = put_utf8(to, p[i]);
    }
    return to - out;
}

ru_status rui_text_check(const uint8_t *p, int64_t n, int64_t first, const char *path, ru_err *err)
{
    const uint8_t *zero = n == 0 ? NULL : memchr(p, 0, (size_t)n);
    return zero == NULL ? RU_OK
                        : RU_FAIL(err, RU_E_DATA,
                                  "%s: byte %lld is 0, so the file is no text in UTF-8; save it as "
                                  "UTF-8 (if it is UTF-16, it lacks the byte order mark)",
                                  path, (long long)(first + (zero - p)));
}

ru_status rui_csv_utf8(const rui_source *file, const char *path, ru_arena *arena, char **text,
                       int64_t *n, ru_err *err)
{
    uint8_t *p = file->bytes;
    int64_t size = file->size_bytes;
    char *out = (char *)p;
    bool wide = size >= 2 && ((p[0] == 0xff && p[1] == 0xfe) || (p[0] == 0xfe && p[1] == 0xff));
    RU_TRY(wide ? RU_OK : rui_text_check(p, size, 0, path, err));
    bool latin = !wide && !rui_is_utf8(p, size);
    if (wide || latin) {
        out = ru_arena_alloc(arena, size * 2 + 4, 1);
        if (out == NULL) {
            return rui_no_memory(err, path, size * 2);
        }
        size = wide ? rui_from_utf16(p + 2, size - 2, p[0] == 0xfe, out)
                    : rui_from_latin(p, size, out);
    }
    if (latin) {
        ru_log(RU_LOG_WARN, "data", "encoding",
               "%s is not UTF-8; Rubato takes its bytes as Latin-1 letters", path);
    }
    if (size > 0 && memchr(out, '\n', (size_t)size) == NULL) { /* old Mac files */
        for (int64_t i = 0; i < size; i++) {
            out[i] = out[i] == '\r' ? '\n' : out[i];
        }
    }
    *text = out;
    *n = size;
    return RU_OK;
}
