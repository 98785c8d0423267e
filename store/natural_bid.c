/* Price histories as inputs of the policy `bid`: one market. */
#include <stddef.h>

#include "store/natural.h"

/* "1456403024 0.1415"; more than two words are none. */
static bool row_of(ru_str line, int64_t *at_s, double *usd)
{
    ru_str rest = ru_str_trim(line), word;
    if (!ru_str_next(&rest, ' ', &word) || !ru_str_i64(word, at_s)) {
        return false;
    }
    rest = ru_str_trim(rest);
    return ru_str_f64(rest, usd);
}

static bool is_prices(const char *path, ru_str text)
{
    (void)path;
    ru_str line;
    int64_t at_s;
    double usd;
    return ru_str_next(&text, '\n', &line) && row_of(line, &at_s, &usd);
}

static ru_status read_prices(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                             ru_err *err)
{
    (void)arena;
    int64_t last_s = 0, at_s = 0;
    double usd = 0;
    uint32_t n = 0;
    ru_str all = text, line;
    for (; ru_str_next(&all, '\n', &line); n++) {
        if (ru_str_trim(line).n == 0 && ru_str_trim(all).n == 0) {
            break;
        }
        if (!row_of(line, &at_s, &usd) || at_s < last_s || !(usd > 0) || !(usd <= 1e6)) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s:%u: '%.*s', expected seconds not before the line above and USD per "
                           "hour above 0, as in '1456403024 0.1415'",
                           path, n + 1, (int)(line.n < 60 ? line.n : 60), line.p);
        }
        last_s = at_s;
    }
    ru_json_open(j, "markets", '[');
    ru_json_open(j, NULL, '{');
    ru_json_str(j, "name", path);
    for (uint32_t pass = 0; pass < 2; pass++) {
        all = text;
        ru_json_open(j, pass == 0 ? "at" : "usd", '[');
        for (uint32_t k = 0; k < n && ru_str_next(&all, '\n', &line); k++) {
            RU_CHECK(row_of(line, &at_s, &usd));
            if (pass == 0) {
                ru_json_i64(j, NULL, at_s);
            } else {
                ru_json_f64(j, NULL, usd);
            }
        }
        ru_json_close(j);
    }
    ru_json_close(j);
    ru_json_close(j);
    return RU_OK;
}

const ru_natural rui_natural_bid_prices = {
    .policy = "bid",
    .what = "price history of one market: lines 'SECONDS USD' with ascending epoch seconds and USD "
            "per hour; give 'cap' with --set",
    .is = is_prices,
    .read = read_prices,
};
