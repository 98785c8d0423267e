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
 * Three schedules do not drain after a step: they have the order of flush as if all steps were one,
 * and each stage updates when the last micro-batch of a step went back. So a gradient is made with
 * weights that lack the updates of the steps that are still on their way. With one micro-batch in a
 * step:
 *
 *     stash, 3 stages                            vertical: the same order
 *     stage 0   F0 F1 F2 B0 F3 B1 F4 B2 ...      F3 uses the weights after B0: late by 2 steps
 *     stage 1      F0 F1 B0 F2 B1 F3 B2 ...      F3 after B1, by 1; vertical: as stage 0
 *     stage 2         F0 B0 F1 B1 F2 B2 ...      F3 after B2, by 0; vertical: as stage 0
 *
 * B j uses the weights that F j used, so a stage keeps as many versions as it is late by, and more.
 *
 * With more of them, and for several workers of a stage there are as many for each: stash uses the
 * newest weights, vertical in all stages those that the first one has for the first micro-batch of
 * the step. All workers of a stage update from the sum of their gradients, after as many of their
 * own micro-batches, so they use the same weights at the same place of their lists:
 *
 *     stash, 2 workers before 1, 2 micro-batches in a step
 *     stage 0   F0 F2 B0 update F4 B2 update ...   F2 uses what F0 used, F4 the first update:
 *               F1 F3 B1 update F5 B3 update ...   late by 1 step
 *     stage 1   F0 B0 F1 B1 update F2 B2 ...       by 0
 *
 * 2bw is vertical with so many micro-batches in a step that those in flight are of two steps at
 * most. So every stage is late by 1 step, and keeps two versions:
 *
 *     2bw, 2 stages, 2 micro-batches: F2 and F3 are of the second step
 *     stage 0   F0 F1 B0 F2 B1 update F3 B2 F4 ...   F2, F3 use what F0 used; F4 the update
 *     stage 1      F0 B0 F1 B1 update F2 B2 F3 B3 update F4 ...
 *
 * Source: gpipe-2019; pipedream-2bw-2021 (flush, 2bw); pipedream-2019 (stash, vertical). Thread:
 * any, pure. */
#ifndef RU_TRAIN_PIPE_ORDER_H
#define RU_TRAIN_PIPE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ru_pipe_schedule {
    RU_PIPE_SCHEDULE_FLUSH,
    RU_PIPE_SCHEDULE_GPIPE,
    RU_PIPE_SCHEDULE_STASH,
    RU_PIPE_SCHEDULE_VERTICAL,
    RU_PIPE_SCHEDULE_2BW,
} ru_pipe_schedule;

extern const char *const ru_pipe_schedule_names[5];

typedef struct ru_pipe_act {
    uint32_t micro;
    bool back;
    uint32_t part; /* of several of the worker */
} ru_pipe_act;

typedef struct ru_pipe_shape {
    ru_pipe_schedule schedule;
    uint32_t n, micro;       /* stages; micro-batches of a step */
    const uint32_t *workers; /* [n] of each stage, divisors of `micro`; NULL: one each */
} ru_pipe_shape;

/* Micro-batches that a worker of a stage has in flight. */
uint32_t ru_pipe_in_flight(const ru_pipe_shape *p, uint32_t stage);
/* Does it go on without draining after each step? */
bool ru_pipe_flows_on(ru_pipe_schedule schedule);
/* ... by stash or vertical, and a step is one micro-batch: each update follows its gradients. */
bool ru_pipe_whole(const ru_pipe_shape *p);
/* Least micro-batches of a step, whatever p->micro is; 1 unless it is 2bw. */
uint32_t ru_pipe_micro_min(const ru_pipe_shape *p);
/* Steps by which the gradients of a stage are late at most. */
uint32_t ru_pipe_late(const ru_pipe_shape *p, uint32_t stage);
/* Copies of its weights in memory: the newest, and those of micro-batches on their way. */
uint32_t ru_pipe_versions(const ru_pipe_shape *p, uint32_t stage);
/* After how many updates a stage has the weights that micro-batch j of `step` uses there. Of
 * schedules that flow on; `drained`: the last step before which the stages drained. */
int64_t ru_pipe_version(const ru_pipe_shape *p, uint32_t stage, int64_t step, uint32_t j,
                        int64_t drained);
/* The list of a replica of a stage into `at` [2 * micro / workers[stage]]: of micro-batches j with
 * j mod workers[stage] == replica. Not of schedules that flow on. */
void ru_pipe_order(const ru_pipe_shape *p, uint32_t stage, uint32_t replica, ru_pipe_act *at);
/* The list of a worker with `n` parts of a placed step into `at` [2 * micro * n]: each micro-batch
 * forward through all of them, then backward in the order of `back` [n]. */
void ru_pipe_order_placed(uint32_t n, const uint32_t *back, uint32_t micro, ru_pipe_act *at);

#endif
