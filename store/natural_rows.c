/* Tables with a head as inputs of policies that take a list of records: measured clients of `pick`,
 * measured choices of `scale`, measured reads of `read`. The head names the records' keys; other
 * columns are left out. */
#include <stddef.h>
#include <string.h>

#include "store/natural.h"

enum { COLUMNS_MAX = 64, ROWS_MAX = 1 << 20 };

typedef struct records {
    const char *list, *needed[4], *known[8]; /* NULL ends */
} records;

static const records clients = {
    "clients", {"latency_s", NULL}, {"latency_s", "samples", "loss", "picks", "last_round", NULL}};
static const records windows = {"windows",
                                {"size", "depth", "mb_per_s", NULL},
                                {"size", "depth", "mb_per_s", "error", "latency_ms", NULL}};
static const records probes = {
    "probes", {"workers", "memory_mb", NULL}, {"workers", "memory_mb", "step_s", NULL}};

static uint32_t split(ru_str line, ru_str cell[COLUMNS_MAX])
{
    uint32_t n = 0;
    for (ru_str rest = ru_str_trim(line); n < COLUMNS_MAX && ru_str_next(&rest, ',', &cell[n]);
         n++) {
        cell[n] = ru_str_trim(cell[n]);
    }
    return n;
}

static bool has_head(const records *r, ru_str text)
{
    ru_str line, cell[COLUMNS_MAX];
    uint32_t n = ru_str_next(&text, '\n', &line) ? split(line, cell) : 0, found = 0, wanted = 0;
    for (; r->needed[wanted] != NULL; wanted++) {
        for (uint32_t c = 0; c < n; c++) {
            found += ru_str_eq_c(cell[c], r->needed[wanted]) ? 1 : 0;
        }
    }
    return found == wanted;
}

static bool is_clients(const char *path, ru_str text)
{
    (void)path;
    return has_head(&clients, text);
}

static bool is_probes(const char *path, ru_str text)
{
    (void)path;
    return has_head(&probes, text);
}

static bool is_windows(const char *path, ru_str text)
{
    (void)path;
    return has_head(&windows, text);
}

static ru_status read_rows(const records *r, const char *path, ru_str text, ru_json *j, ru_err *err)
{
    ru_str line, head[COLUMNS_MAX], cell[COLUMNS_MAX];
    const char *key[COLUMNS_MAX] = {NULL};
    RU_CHECK(ru_str_next(&text, '\n', &line));
    uint32_t n = split(line, head), number = 1, rows = 0;
    for (uint32_t c = 0; c < n; c++) {
        for (uint32_t k = 0; r->known[k] != NULL; k++) {
            key[c] = ru_str_eq_c(head[c], r->known[k]) ? r->known[k] : key[c];
        }
    }
    ru_json_open(j, r->list, '[');
    while (ru_str_next(&text, '\n', &line)) {
        number++;
        if (ru_str_trim(line).n == 0) {
            continue;
        }
        uint32_t cells = split(line, cell);
        ru_json_open(j, NULL, '{');
        for (uint32_t c = 0; c < n; c++) {
            double v;
            if (key[c] == NULL) {
                continue;
            }
            if (cells != n || !ru_str_f64(cell[c], &v)) {
                return RU_FAIL(err, RU_E_DATA, "%s:%u: expected %u cells and a number for '%s'",
                               path, number, n, key[c]);
            }
            ru_json_f64(j, key[c], v);
        }
        ru_json_close(j);
        if (++rows > ROWS_MAX) {
            return RU_FAIL(err, RU_E_LIMIT, "%s: more than %d rows", path, ROWS_MAX);
        }
    }
    ru_json_close(j);
    return rows > 0 ? RU_OK : RU_FAIL(err, RU_E_DATA, "%s: no rows below the head", path);
}

static ru_status read_clients(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                              ru_err *err)
{
    (void)arena;
    return read_rows(&clients, path, text, j, err);
}

static ru_status read_probes(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                             ru_err *err)
{
    (void)arena;
    return read_rows(&probes, path, text, j, err);
}

static ru_status read_windows(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                              ru_err *err)
{
    (void)arena;
    return read_rows(&windows, path, text, j, err);
}

const ru_natural rui_natural_pick_clients = {
    .policy = "pick",
    .what = "table of clients: CSV whose head names 'latency_s' and, if known, 'samples', 'loss', "
            "'picks', 'last_round'",
    .is = is_clients,
    .read = read_clients,
};

const ru_natural rui_natural_scale_probes = {
    .policy = "scale",
    .what = "table of measurements: CSV whose head names 'workers', 'memory_mb' and 'step_s'; give "
            "'workers_max', 'memory_mb' and 'steps' with --set",
    .is = is_probes,
    .read = read_probes,
};

const ru_natural rui_natural_read_windows = {
    .policy = "read",
    .what =
        "table of measured reads: CSV whose head names 'size' (bytes), 'depth', 'mb_per_s' and, if "
        "known, 'error', 'latency_ms'; give 'sample' with --set",
    .is = is_windows,
    .read = read_windows,
};
