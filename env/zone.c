#include "env/zone.h"

#include <stdio.h>
#include <time.h>

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
