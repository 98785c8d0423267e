/* Speeds of processes over time, from a seed: fast ones have speed 1.
 *
 * Source: flexrr-2016 (families of patterns). Thread: any, pure. */
#ifndef RU_LAB_WORLDS_SPEED_H
#define RU_LAB_WORLDS_SPEED_H

#include <stdbool.h>
#include <stdint.h>

#define RU_SPEED_SLOT_NS INT64_C(50000000)

typedef enum ru_speed_pattern {
    RU_SPEED_EVEN,
    RU_SPEED_SLOW,
    RU_SPEED_DISRUPT,
    RU_SPEED_POWER,
    RU_SPEED_HALF,
    RU_SPEED_PATTERNS
} ru_speed_pattern;

typedef struct ru_speeds {
    uint64_t seed;
    ru_speed_pattern pattern;
} ru_speeds;

double ru_speed_at(const ru_speeds *s, uint32_t process, int64_t slot);
/* When a process that begins at from_ns has done work_ns of speed 1. */
int64_t ru_speed_ends_ns(const ru_speeds *s, uint32_t process, int64_t from_ns, double work_ns);
/* How long all need for work_ns, spread freely at all times: no schedule is shorter. */
double ru_speed_ideal_ns(const ru_speeds *s, uint32_t processes, int64_t from_ns, double work_ns);

#endif
