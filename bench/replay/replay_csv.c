#include "bench/replay/replay_csv.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/str.h"
#include "env/file/file.h"
#include "store/gunzip.h"

ru_status rui_csv_read(const char *path, ru_arena *arena, rui_csv *out, ru_err *err)
{
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "a file of the published data is missing");
    }
    char *text;
    int64_t size;
    RU_TRY(ru_file_read(path, 64 << 20, arena, &text, &size, err));
    ru_str line, cell;
    ru_str all = ru_str_n(text, size);
    if (ru_is_gzip(all)) {
        RU_TRY(ru_gunzip(path, all, arena, &all, err));
    }
    uint32_t lines = 0, columns = 0;
    ru_str rest = all;
    int64_t tab = ru_str_find(rest, "\t"), end = ru_str_find(rest, "\n");
    char between = tab >= 0 && (end < 0 || tab < end) ? '\t' : ',';
    while (ru_str_next(&rest, '\n', &line)) {
        ru_str cells = ru_str_trim(line);
        for (uint32_t c = 0; lines == 0 && ru_str_next(&cells, between, &cell); c++) {
            columns = c + 1;
        }
        lines++;
    }
    const char **cells = RU_NEW(arena, const char *, (int64_t)lines *columns + 1);
    const char **head = RU_NEW(arena, const char *, (int64_t)columns + 1);
    if (cells == NULL || head == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %s", path);
    }
    uint32_t n = 0;
    rest = all;
    (void)ru_str_next(&rest, '\n', &line);
    line = ru_str_trim(line);
    for (uint32_t c = 0; c < columns && ru_str_next(&line, between, &cell); c++) {
        head[c] = ru_arena_strn(arena, cell.p, cell.n);
    }
    while (ru_str_next(&rest, '\n', &line)) {
        ru_str row = ru_str_trim(line);
        if (row.n == 0) {
            continue;
        }
        for (uint32_t c = 0; c < columns; c++) {
            bool there = ru_str_next(&row, between, &cell);
            cells[(size_t)n * columns + c] = there ? ru_arena_strn(arena, cell.p, cell.n) : "";
        }
        n++;
    }
    *out = (rui_csv){head, cells, n, columns};
    return RU_OK;
}

uint32_t rui_csv_column(const rui_csv *c, const char *name)
{
    for (uint32_t k = 0; k < c->n_columns; k++) {
        if (c->head[k] != NULL && strcmp(c->head[k], name) == 0) {
            return k;
        }
    }
    return UINT32_MAX;
}

const char *rui_csv_text(const rui_csv *c, uint32_t row, uint32_t column)
{
    RU_CHECK(row < c->n && column < c->n_columns);
    return c->cells[(size_t)row * c->n_columns + column];
}

double rui_csv_f64(const rui_csv *c, uint32_t row, uint32_t column)
{
    double v;
    return ru_str_f64(ru_str_trim(ru_str_c(rui_csv_text(c, row, column))), &v) ? v : RU_NAN;
}
