/* Tables: cells row by row; widths are known only when all cells are there. */
#include "base/table.h"

#include <math.h>
#include <string.h>

#include "base/unit.h"

enum { CELL_TEXT, CELL_I64, CELL_F64, CELL_BOOL, CELL_NONE };

ru_table ru_table_in(ru_arena *arena)
{
    return (ru_table){.arena = arena};
}

void ru_table_col(ru_table *t, const char *name, ru_table_side side)
{
    RU_CHECK(t->cells.n == 0);
    rui_table_col *c = rui_table_cols_push(&t->cols, t->arena);
    if (c == NULL) {
        t->full = true;
        return;
    }
    *c = (rui_table_col){name, side};
}

static void put(ru_table *t, const char *text, uint8_t kind, int64_t i64, double f64)
{
    rui_table_cell *c = text != NULL ? rui_table_cells_push(&t->cells, t->arena) : NULL;
    if (c == NULL) {
        t->full = true;
        return;
    }
    *c = (rui_table_cell){text, kind, i64, f64};
}

void ru_table_str(ru_table *t, const char *text)
{
    if (text == NULL) {
        ru_table_none(t);
        return;
    }
    put(t, ru_arena_str(t->arena, text), CELL_TEXT, 0, 0);
}

void ru_table_textf(ru_table *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put(t, ru_arena_vprintf(t->arena, fmt, ap), CELL_TEXT, 0, 0);
    va_end(ap);
}

void ru_table_i64(ru_table *t, int64_t v)
{
    put(t, ru_arena_printf(t->arena, "%lld", (long long)v), CELL_I64, v, 0);
}

void ru_table_f64(ru_table *t, double v, uint32_t decimals)
{
    put(t, ru_arena_printf(t->arena, "%.*f", (int)decimals, v), CELL_F64, 0, v);
}

void ru_table_percent(ru_table *t, double share, uint32_t decimals)
{
    put(t, ru_arena_printf(t->arena, "%.*f %%", (int)decimals, 100 * share), CELL_F64, 0, share);
}

void ru_table_ns(ru_table *t, int64_t ns)
{
    ru_text text = ru_text_arena(t->arena);
    ru_text_time_short(&text, ns);
    put(t, text.cut ? NULL : text.p, CELL_F64, 0, (double)ns * 1e-9);
}

void ru_table_bytes(ru_table *t, int64_t bytes)
{
    ru_text text = ru_text_arena(t->arena);
    ru_text_size_short(&text, bytes);
    put(t, text.cut ? NULL : text.p, CELL_I64, bytes, 0);
}

void ru_table_bool(ru_table *t, bool v)
{
    put(t, v ? "yes" : "no", CELL_BOOL, v, 0);
}

void ru_table_none(ru_table *t)
{
    put(t, "-", CELL_NONE, 0, 0);
}

static ru_status ready(const ru_table *t, ru_err *err)
{
    if (t->full) {
        return RU_FAIL(err, RU_E_LIMIT, "not enough memory for a table of %u columns", t->cols.n);
    }
    RU_CHECK(t->cols.n > 0 && t->cells.n % t->cols.n == 0);
    return RU_OK;
}

/* Characters of UTF-8 text. */
static int64_t width_of(const char *s)
{
    int64_t n = 0;
    for (; *s != '\0'; s++) {
        n += ((uint8_t)*s & 0xc0) != 0x80;
    }
    return n;
}

static void put_cell(const char *text, bool last, ru_table_side side, int64_t width, ru_text *out)
{
    int64_t pad = width - width_of(text);
    if (side == RU_TABLE_RIGHT) {
        ru_text_char(out, ' ', pad);
    }
    ru_text_put(out, text);
    if (!last) {
        ru_text_char(out, ' ', side == RU_TABLE_LEFT ? pad + 2 : 2);
    }
}

ru_status ru_table_print(const ru_table *t, uint32_t indent, ru_text *out, ru_err *err)
{
    RU_TRY(ready(t, err));
    ru_arena_mark mark = ru_arena_mark_get(t->arena);
    int64_t *width = RU_NEW(t->arena, int64_t, t->cols.n);
    char **head = RU_NEW(t->arena, char *, t->cols.n);
    for (uint32_t c = 0; width != NULL && head != NULL && c < t->cols.n; c++) {
        head[c] = ru_arena_str(t->arena, t->cols.at[c].name);
        if (head[c] == NULL) {
            head = NULL;
            break;
        }
        for (char *p = head[c]; *p != '\0'; p++) {
            *p = *p == '_' ? ' ' : *p;
        }
        width[c] = width_of(head[c]);
        for (uint32_t i = c; i < t->cells.n; i += t->cols.n) {
            int64_t w = width_of(t->cells.at[i].text);
            width[c] = w > width[c] ? w : width[c];
        }
    }
    if (width == NULL || head == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "not enough memory to print a table");
    }
    for (uint32_t i = 0; i < t->cells.n + t->cols.n; i++) {
        uint32_t c = i % t->cols.n;
        bool last = c + 1 == t->cols.n;
        if (c == 0) {
            ru_text_char(out, ' ', indent);
        }
        const char *text = i < t->cols.n ? head[c] : t->cells.at[i - t->cols.n].text;
        put_cell(text, last, t->cols.at[c].side, width[c], out);
        if (last) {
            ru_text_put(out, "\n");
        }
    }
    if (out->arena != t->arena) {
        ru_arena_rewind(t->arena, mark);
    }
    return RU_OK;
}

ru_status ru_table_json(const ru_table *t, ru_json *j, const char *key, ru_err *err)
{
    RU_TRY(ready(t, err));
    ru_json_open(j, key, '[');
    for (uint32_t i = 0; i < t->cells.n; i++) {
        const rui_table_cell *c = &t->cells.at[i];
        const char *name = t->cols.at[i % t->cols.n].name;
        if (i % t->cols.n == 0) {
            ru_json_open(j, NULL, '{');
        }
        switch (c->kind) {
        case CELL_I64:
            ru_json_i64(j, name, c->i64);
            break;
        case CELL_F64:
            ru_json_f64(j, name, c->f64);
            break;
        case CELL_BOOL:
            ru_json_bool(j, name, c->i64 != 0);
            break;
        case CELL_NONE:
            ru_json_null(j, name);
            break;
        default:
            ru_json_str(j, name, c->text);
            break;
        }
        if ((i + 1) % t->cols.n == 0) {
            ru_json_close(j);
        }
    }
    ru_json_close(j);
    return RU_OK;
}
