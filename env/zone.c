#include "env/zone.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/conf.h"

/* glibc does not say that there is no such zone: it stands still at UTC under the letters with
 * which TZ begins. A rule ("CET-1CEST") has a number after them. */
bool ru_zone_known(void)
{
    const char *tz = ru_conf_env("TZ");
    tzset();
    tz = tz != NULL && tz[0] == ':' ? tz + 1 : tz;
    if (tz == NULL || tz[0] == '\0' || strcmp(tz, "UTC") == 0 || strcmp(tz, "GMT") == 0) {
        return true;
    }
    size_t n = strlen(tzname[0]);
    return timezone != 0 || daylight != 0 || strncmp(tz, tzname[0], n) != 0 ||
           (tz[n] != '\0' && strchr("+-0123456789", tz[n]) != NULL && n > 0);
}

uint32_t ru_zone_minute(int64_t wall_ns, char name[RU_ZONE_NAME])
{
    const time_t at = (time_t)(wall_ns / 1000000000);
    struct tm t = {0};
    tzset();
    if (localtime_r(&at, &t) == NULL) {
        t.tm_zone = "UTC";
    }
    (void)snprintf(name, RU_ZONE_NAME, "%s", t.tm_zone);
    return (uint32_t)(t.tm_hour * 60 + t.tm_min);
}
