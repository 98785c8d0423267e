/* Sums in a queue: a network that carries one of them at a time, the most urgent first. What it
 * says of a sum that begins: how long until the network turns to it.
 *
 * Thread: any, pure. */
#ifndef RU_COST_QUEUE_H
#define RU_COST_QUEUE_H

#include "base/status.h"

typedef struct ru_queue_job {
    uint32_t class;     /* less is more urgent; of one class the earlier index goes first */
    int64_t size_bytes; /* > 0 */
    int64_t alone_ns;   /* predicted, alone on the network */
    int64_t rest_ns;    /* its bytes that the network has not carried yet; 0: it has not started */
} ru_queue_job;

/* The network carries for ns. Cost: O(n classes). */
void ru_queue_carry(ru_queue_job *jobs, uint32_t n, int64_t ns);
/* Time until the network starts job `own`: all jobs that are at least as urgent, else the part that
 * is on the wire (wire_bytes of the current job). Jobs that overtake it later are unknown. */
int64_t ru_queue_wait_ns(const ru_queue_job *jobs, uint32_t n, uint32_t own, int64_t wire_bytes);

#endif
