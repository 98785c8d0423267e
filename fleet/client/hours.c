#include "fleet/client/hours.h"

#include <string.h>

#include "base/str.h"
#include "env/zone.h"

/* HH:MM, up to 24:00. */
static bool read_time(ru_str text, uint32_t *out)
{
    ru_str rest = text, hour;
    int64_t h = 0, m = 0;
    bool fine = ru_str_next(&rest, ':', &hour) && hour.n >= 1 && hour.n <= 2 && rest.n == 2 &&
                ru_str_i64(hour, &h) && ru_str_i64(rest, &m) && h >= 0 && m >= 0 && m < 60 &&
                h * 60 + m <= RU_DAY_MINUTES;
    *out = fine ? (uint32_t)(h * 60 + m) : 0;
    return fine;
}

ru_status rui_hours_read(const char *text, rui_hours *out, ru_err *err)
{
    *out = (rui_hours){0};
    if (text == NULL) {
        return RU_OK;
    }
    ru_str rest = ru_str_c(text), from;
    bool fine =
        ru_str_next(&rest, '-', &from) && read_time(from, &out->from) && read_time(rest, &out->to);
    out->from %= RU_DAY_MINUTES;
    fine = fine && out->from != out->to && (out->from != 0 || out->to != RU_DAY_MINUTES);
    return fine ? RU_OK
                : RU_FAIL(err, RU_E_USAGE,
                          "the hours '%s' are not valid: expected HH:MM-HH:MM of the local day, as "
                          "22:00-06:00; leave them out for the whole day",
                          text);
}

uint32_t rui_hours_until(const rui_hours *h, uint32_t minute)
{
    bool over_night = h->to < h->from;
    bool in =
        over_night ? minute >= h->from || minute < h->to : minute >= h->from && minute < h->to;
    return in || h->from == h->to ? 0 : (h->from + RU_DAY_MINUTES - minute) % RU_DAY_MINUTES;
}
