/* Speeds of processes over time, from a seed: fast ones have speed 1.
 *
 * Source: flexrr-2016 (families of patterns). Thread: any, pure. */
#ifndef RU_TEST_PARAMS_SPEED_H
#define RU_TEST_PARAMS_SPEED_H

#include <stdbool.h>
#include <stdint.h>

#define RU_PARAMS_SLOT_NS INT64_C(50000000)

typedef enum ru_params_pattern {
    RU_PARAMS_EVEN,
    RU_PARAMS_SLOW,
    RU_PARAMS_DISRUPT,
    RU_PARAMS_POWER,
    RU_PARAMS_HALF,
    RU_PARAMS_PATTERNS
} ru_params_pattern;

typedef struct ru_params_speeds {
    uint64_t seed;
    ru_params_pattern pattern;
} ru_params_speeds;

double ru_params_speed(const ru_params_speeds *s, uint32_t process, int64_t slot);
/* When a process that begins at from_ns has done work_ns of speed 1. */
int64_t ru_params_ends_ns(const ru_params_speeds *s, uint32_t process, int64_t from_ns,
                          double work_ns);
/* How long all need for work_ns, spread freely at all times: no schedule is shorter. */
double ru_params_ideal_ns(const ru_params_speeds *s, uint32_t processes, int64_t from_ns,
                          double work_ns);

#endif
