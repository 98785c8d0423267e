/* The hours of the day in which a client takes part, by the clock on its wall: "22:00-06:00". Where
 * that clock is put forward or back, they are shorter or longer.
 *
 * Pure. Thread: any. */
#ifndef RU_FLEET_CLIENT_HOURS_H
#define RU_FLEET_CLIENT_HOURS_H

#include "base/status.h"

typedef struct rui_hours {
    uint32_t from, to; /* minutes of the day; both 0: always */
} rui_hours;

/* NULL: always. Errors: RU_E_USAGE. */
RU_MUST_USE ru_status rui_hours_read(const char *text, rui_hours *out, ru_err *err);
/* Minutes until the hours begin; 0: they are now, or always. */
uint32_t rui_hours_until(const rui_hours *h, uint32_t minute);

#endif
