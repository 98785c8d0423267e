/* Mean times in a queueing network of stations in series: clients that wait for each answer and
 * think (closed loop), or requests at a rate (open loop).
 *
 * Exact for one server a station and exponential times; several servers stand as one fast server
 * and a delay (seidmann-1987). Source: reiser-lavenberg-1980 (mean value analysis).
 * Thread: any, pure. */
#ifndef RU_COST_CLOSED_H
#define RU_COST_CLOSED_H

#include <stdbool.h>
#include <stdint.h>

enum { RU_STATIONS_MAX = 4 };

typedef struct ru_station {
    double service_s; /* of one request, > 0 */
    uint32_t servers; /* >= 1 */
} ru_station;

typedef struct ru_queue_mean {
    double rate;                    /* requests per second */
    double time_s[RU_STATIONS_MAX]; /* mean time at each station, service included */
} ru_queue_mean;

/* clients >= 1, think_s >= 0. Cost: O(clients stations). */
ru_queue_mean ru_queue_closed(const ru_station *s, uint32_t n, uint32_t clients, double think_s);
/* false: a station cannot serve the rate. */
bool ru_queue_open(const ru_station *s, uint32_t n, double rate, ru_queue_mean *out);

#endif
