/* The order in which a stage of a pipeline computes the parts of a step: a fixed list, so that
 * timing never changes what is added to what.
 *
 *     flush, 3 stages, 4 micro-batches          gpipe
 *     stage 0   F0 F1 F2 B0 F3 B1 B2 B3         F0 F1 F2 F3 B0 B1 B2 B3
 *     stage 1      F0 F1 B0 F2 B1 F3 B2 B3
 *     stage 2         F0 B0 F1 B1 F2 B2 F3 B3
 *
 * Backward parts come in the order of the micro-batches in both. The workers of a stage with
 * m of them, its replicas, have every m-th micro-batch:
 *
 *     flush, 2 workers before 1
 *     stage 0   F0 F2 B0 B2 and F1 F3 B1 B3     stage 1   F0 B0 F1 B1 F2 B2 F3 B3
 *
 * Source: gpipe-2019; pipedream-2bw-2021 (flush). Thread: any, pure. */
#ifndef RU_TRAIN_PIPE_ORDER_H
#define RU_TRAIN_PIPE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ru_pipe_schedule { RU_PIPE_SCHEDULE_FLUSH, RU_PIPE_SCHEDULE_GPIPE } ru_pipe_schedule;

typedef struct ru_pipe_act {
    uint32_t micro;
    bool back;
} ru_pipe_act;

/* Micro-batches that a worker of stage `stage` of n has in flight. workers [n]: of each stage,
 * divisors of `micro`; NULL: one each. */
uint32_t ru_pipe_in_flight(ru_pipe_schedule schedule, const uint32_t *workers, uint32_t stage,
                           uint32_t n, uint32_t micro);
/* The list of a replica of a stage into `at` [2 * micro / workers[stage]]: of micro-batches j with
 * j mod workers[stage] == replica. */
void ru_pipe_order(ru_pipe_schedule schedule, const uint32_t *workers, uint32_t stage,
                   uint32_t replica, uint32_t n, uint32_t micro, ru_pipe_act *at);

#endif
