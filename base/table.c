/* Tables: cells row by row; widths are known only when all cells are there. */
#include "base/table.h"

#include <math.h>
#include <string.h>

#include "base/unit.h"

enum { CELL_TEXT, CELL_I64, CELL_F64, CELL_BOOL, CELL_NONE, CELL_RAW };

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

/* `text` NULL: there was no memory for it. */
static void put_cell_of(ru_table *t, rui_table_cell cell)
{
    rui_table_cell *c = cell.text != NULL ? rui_table_cells_push(&t->cells, t->arena) : NULL;
    if (c == NULL) {
        t->full = true;
        return;
    }
    *c = cell;
}

static void put(ru_table *t, const char *text, uint8_t kind, int64_t i64, double f64)
{
    put_cell_of(t, (rui_table_cell){.text = text, .kind = kind, .i64 = i64, .f64 = f64});
}

static void put_f64(ru_table *t, const char *text, const char *unit, double f64)
{
    put_cell_of(t, (rui_table_cell){.text = text, .kind = CELL_F64, .unit = unit, .f64 = f64});
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
    put_f64(t, ru_arena_printf(t->arena, "%.*f %%", (int)decimals, 100 * share), "share", share);
}

void ru_table_ns(ru_table *t, int64_t ns)
{
    ru_text text = ru_text_arena(t->arena);
    ru_text_time_short(&text, ns);
    put_f64(t, text.cut ? NULL : text.p, "s", (double)ns * 1e-9);
}

void ru_table_bytes(ru_table *t, int64_t bytes)
{
    ru_text text = ru_text_arena(t->arena);
    ru_text_size_short(&text, bytes);
    put_cell_of(
        t, (rui_table_cell){
               .text = text.cut ? NULL : text.p, .kind = CELL_I64, .unit = "bytes", .i64 = bytes});
}

void ru_table_bool(ru_table *t, bool v)
{
    put(t, v ? "yes" : "no", CELL_BOOL, v, 0);
}

void ru_table_none(ru_table *t)
{
    ru_table_absent(t, NULL);
}

void ru_table_absent(ru_table *t, const char *unit)
{
    put_cell_of(t, (rui_table_cell){.text = "-", .kind = CELL_NONE, .unit = unit});
}

void ru_table_raw(ru_table *t, const char *text, const char *json)
{
    const char *kept = ru_arena_str(t->arena, json);
    put_cell_of(t, (rui_table_cell){.text = kept != NULL ? ru_arena_str(t->arena, text) : NULL,
                                    .kind = CELL_RAW,
                                    .json = kept});
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

/* Texts may come from other users: a control character would end the line, move the cursor, or
 * colour what follows. */
static bool is_control(const char *s)
{
    const uint8_t b = (uint8_t)*s, next = b != 0 ? (uint8_t)s[1] : 0;
    return b < 0x20 || b == 0x7f || (b == 0xc2 && next >= 0x80 && next < 0xa0);
}

static void put_text(const char *text, ru_text *out)
{
    for (; *text != '\0'; text++) {
        bool control = is_control(text);
        text += control && (uint8_t)*text == 0xc2;
        ru_text_char(out, control ? '?' : *text, 1);
    }
}

static void put_cell(const char *text, bool last, ru_table_side side, int64_t width, ru_text *out)
{
    int64_t pad = width - width_of(text);
    if (side == RU_TABLE_RIGHT) {
        ru_text_char(out, ' ', pad);
    }
    put_text(text, out);
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

static void json_cell(const rui_table_cell *c, const char *name, ru_json *j)
{
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
    case CELL_RAW:
        ru_json_raw(j, name, c->json);
        break;
    default:
        ru_json_str(j, name, c->text);
        break;
    }
}

ru_status ru_table_json(const ru_table *t, ru_json *j, const char *key, ru_err *err)
{
    RU_TRY(ready(t, err));
    ru_json_open(j, key, '[');
    for (uint32_t i = 0; i < t->cells.n; i++) {
        if (i % t->cols.n == 0) {
            ru_json_open(j, NULL, '{');
        }
        json_cell(&t->cells.at[i], t->cols.at[i % t->cols.n].name, j);
        if ((i + 1) % t->cols.n == 0) {
            ru_json_close(j);
        }
    }
    ru_json_close(j);
    return RU_OK;
}

/* "Is needed", of times: "is_needed_s". NULL: no memory. */
static const char *key_of(const ru_table *t, uint32_t col)
{
    const char *unit = NULL, *name = t->cols.at[col].name;
    for (uint32_t i = col; i < t->cells.n && unit == NULL; i += t->cols.n) {
        unit = t->cells.at[i].unit;
    }
    ru_text key = ru_text_arena(t->arena);
    for (const char *p = name; *p != '\0'; p++) {
        char small = *p >= 'A' && *p <= 'Z' ? (char)(*p + ('a' - 'A')) : *p;
        bool kept = (small >= 'a' && small <= 'z') || (small >= '0' && small <= '9');
        if (*p == '/') {
            ru_text_put(&key, "_per_");
        } else if (kept || (key.n > 0 && key.p[key.n - 1] != '_')) {
            ru_text_char(&key, kept ? small : '_', 1);
        }
    }
    if (key.n > 0 && key.p[key.n - 1] == '_') {
        key.p[--key.n] = '\0';
    }
    ru_str all = {key.p, key.n};
    size_t n = unit != NULL ? strlen(unit) : 0;
    bool has = unit == NULL || ru_str_eq_c(all, unit) ||
               (ru_str_ends(all, unit) && key.p[key.n - (int64_t)n - 1] == '_');
    if (!has) {
        ru_text_putf(&key, "_%s", unit);
    }
    return key.cut ? NULL : key.p;
}

ru_status ru_table_json_units(const ru_table *t, ru_json *j, const char *key, ru_err *err)
{
    ru_table named = *t;
    named.cols.at = RU_NEW(t->arena, rui_table_col, t->cols.n);
    for (uint32_t c = 0; c < t->cols.n; c++) {
        const char *name = named.cols.at != NULL && !t->full ? key_of(t, c) : NULL;
        if (name == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "not enough memory for a table of %u columns",
                           t->cols.n);
        }
        named.cols.at[c] = (rui_table_col){name, t->cols.at[c].side};
    }
    return ru_table_json(&named, j, key, err);
}
