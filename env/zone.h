/* The local day, as the system's time zone (TZ) has it, with its daylight-saving time.
 *
 * Thread: any. */
#ifndef RU_ENV_ZONE_H
#define RU_ENV_ZONE_H

#include <stdbool.h>

#include "base/status.h"

enum { RU_ZONE_NAME = 16, RU_DAY_MINUTES = 24 * 60 };

/* Does the system know the zone that TZ names? It takes UTC for one that it does not. */
bool ru_zone_known(void);
/* Minute of the local day at `wall_ns` (ru_clock_wall_ns), 0 to RU_DAY_MINUTES - 1. name: of the
 * zone then, as "CEST". */
uint32_t ru_zone_minute(int64_t wall_ns, char name[RU_ZONE_NAME]);

#endif
