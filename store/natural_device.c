/* Tables of timings as inputs of the policy `device`: comma separated, with a head line that names
 * columns as the policy's input does; `op` and `seconds` must be there. A row without a type is an
 * op of the network to train. */
#include <stddef.h>

#include "store/natural.h"

enum { COLUMNS_MAX = 32 };

static const char *const words[] = {"type", "net", "op"};
static const char *const numbers[] = {"count",       "in_bytes", "out_bytes",   "host_bytes",
                                      "param_bytes", "flops",    "channels_in", "channels_out",
                                      "taps",        "seconds",  "usd_per_h"};

enum { TYPE, NET, OP, SECONDS = 12, PRICE = 13, TYPES_MAX = 64 };

/* The next cell, also the empty one behind a last comma; false: there are no more. */
static bool next_cell(ru_str *rest, bool *more, ru_str *cell)
{
    if (!*more) {
        return false;
    }
    int64_t at = ru_str_find(*rest, ",");
    *more = at >= 0;
    *cell = ru_str_trim(ru_str_n(rest->p, at >= 0 ? at : rest->n));
    *rest = ru_str_from(*rest, at >= 0 ? at + 1 : rest->n);
    return true;
}

/* The place of each column in words, or in numbers after them; false: unknown or twice. */
static bool columns_of(ru_str head, uint32_t *place, uint32_t *n)
{
    ru_str cell;
    uint32_t seen = 0;
    bool more = true;
    for (*n = 0; next_cell(&head, &more, &cell); (*n)++) {
        uint32_t at = UINT32_MAX;
        for (uint32_t k = 0; k < RU_ARRAY_LEN(words); k++) {
            at = ru_str_eq_c(cell, words[k]) ? k : at;
        }
        for (uint32_t k = 0; k < RU_ARRAY_LEN(numbers); k++) {
            at = ru_str_eq_c(cell, numbers[k]) ? k + (uint32_t)RU_ARRAY_LEN(words) : at;
        }
        if (*n == COLUMNS_MAX || at == UINT32_MAX || (seen >> at & 1) != 0) {
            return false;
        }
        seen |= 1u << at;
        place[*n] = at;
    }
    uint32_t needed = 1u << TYPE | 1u << OP | 1u << SECONDS | 1u << PRICE;
    return (seen & needed) == needed;
}

static bool is_timings(const char *path, ru_str text)
{
    (void)path;
    ru_str head;
    uint32_t place[COLUMNS_MAX], n;
    return ru_str_next(&text, '\n', &head) && columns_of(ru_str_trim(head), place, &n);
}

/* Is the row an op of the network to train? */
static bool of_net(ru_str row, const uint32_t *place, uint32_t n)
{
    ru_str cell;
    bool more = true;
    for (uint32_t c = 0; c < n && next_cell(&row, &more, &cell); c++) {
        if (place[c] == TYPE) {
            return cell.n == 0;
        }
    }
    return true;
}

static bool put_row(ru_str row, const uint32_t *place, uint32_t n, ru_arena *arena, ru_json *j)
{
    ru_str cell;
    uint32_t c = 0;
    bool right = true, more = true;
    ru_json_open(j, NULL, '{');
    for (; next_cell(&row, &more, &cell); c++) {
        if (c >= n || cell.n == 0) {
            right = right && c < n && place[c] != OP;
        } else if (place[c] < RU_ARRAY_LEN(words)) {
            ru_json_str(j, words[place[c]], ru_arena_strn(arena, cell.p, cell.n));
        } else {
            double v = 0;
            right = right && ru_str_f64(cell, &v) && v >= 0;
            if (place[c] != PRICE) {
                ru_json_f64(j, numbers[place[c] - RU_ARRAY_LEN(words)], v);
            }
        }
    }
    ru_json_close(j);
    return right && c == n;
}

/* Types in the order of their first price. */
static void put_types(ru_str text, const uint32_t *place, uint32_t n, ru_arena *arena, ru_json *j)
{
    ru_str line, cell, seen[TYPES_MAX];
    uint32_t found = 0;
    ru_json_open(j, "types", '[');
    while (ru_str_next(&text, '\n', &line)) {
        ru_str type = {0}, price = {0};
        bool more = true;
        line = ru_str_trim(line);
        for (uint32_t c = 0; c < n && next_cell(&line, &more, &cell); c++) {
            type = place[c] == TYPE ? cell : type;
            price = place[c] == PRICE ? cell : price;
        }
        double usd;
        bool known = type.n == 0 || !ru_str_f64(price, &usd);
        for (uint32_t k = 0; k < found && !known; k++) {
            known = ru_str_eq(seen[k], type);
        }
        if (!known && found < TYPES_MAX) {
            seen[found++] = type;
            ru_json_open(j, NULL, '{');
            ru_json_str(j, "name", ru_arena_strn(arena, type.p, type.n));
            ru_json_f64(j, "usd_per_h", usd);
            ru_json_close(j);
        }
    }
    ru_json_close(j);
}

static ru_status read_timings(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                              ru_err *err)
{
    uint32_t place[COLUMNS_MAX], n;
    for (uint32_t pass = 0; pass < 2; pass++) {
        ru_str rest = text, line;
        RU_CHECK(ru_str_next(&rest, '\n', &line) && columns_of(ru_str_trim(line), place, &n));
        if (pass == 0) {
            put_types(rest, place, n, arena, j);
        }
        ru_json_open(j, pass == 0 ? "timed" : "net", '[');
        for (uint32_t k = 2; ru_str_next(&rest, '\n', &line); k++) {
            line = ru_str_trim(line);
            if (line.n == 0 || of_net(line, place, n) != (pass == 1)) {
                continue;
            }
            if (!put_row(line, place, n, arena, j)) {
                return RU_FAIL(err, RU_E_DATA,
                               "%s:%u: '%.*s', expected %u cells, an op, and numbers of at least 0",
                               path, k, (int)(line.n < 60 ? line.n : 60), line.p, n);
            }
        }
        ru_json_close(j);
    }
    return RU_OK;
}

const ru_natural rui_natural_device_timings = {
    .policy = "device",
    .what = "timings of ops: CSV with a head line of the keys of 'timed' and usd_per_h "
            "(type,usd_per_h,net,op,...,seconds); rows without a type are the network to train; "
            "'samples' and 'batch' by --set",
    .is = is_timings,
    .read = read_timings,
};
