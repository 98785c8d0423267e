/* Which machines of two kinds serve parameters, keep copies and compute, and who holds which
 * partition and which block of data.
 *
 *   stage 1   reliable: servers and workers           transient: workers
 *   stage 2   reliable: copies and workers            transient: servers on some, workers on all
 *   stage 3   reliable: copies                        transient: as in stage 2
 *
 * The stage, the number of servers and of workers are those with the shortest predicted clock
 * (cost/backup.h): no ratio of machines is a constant, and machines that would make the clock
 * longer stay idle. More machines never make it longer. Partitions and blocks move only where their
 * machine is gone, has lost its part in the job, or holds more than its share.
 *
 * Source: harlap-2017 sec 3 (AgileML); ratios 1 and 15 are a method. Machines: 0 .. reliable - 1
 * are reliable, the rest transient. Cost: O(transient * min(machines, sqrt(blocks)) + partitions +
 * blocks). Thread: any, pure. */
#ifndef RU_PLAN_STAGE_H
#define RU_PLAN_STAGE_H

#include "cost/backup.h"

typedef enum ru_stage_method {
    RU_STAGE_COST,  /* ours */
    RU_STAGE_RATIO, /* by the number of transient machines for a reliable one; half of them serve */
    RU_STAGE_ONE,
    RU_STAGE_TWO, /* with as many servers as make the clock shortest */
    RU_STAGE_THREE,
    RU_STAGE_ALL, /* servers and workers everywhere, no copies: a cluster that never fails */
} ru_stage_method;

enum {
    RU_STAGE_MACHINES_MAX = 1 << 16,
    RU_STAGE_PARTS_MAX = 1 << 22 /* partitions, blocks */
};

/* Lists are pairs as ru_conf_i64s. */
typedef struct ru_stage_in {
    ru_stage_method method;
    ru_backup_job job;
    uint32_t reliable, transient; /* machines; reliable >= 1 */
    uint32_t partitions, blocks;  /* >= 1 */
    double block_bytes;
    struct {
        const int64_t *holder; /* [n_holder] machine now, -1: none */
        uint32_t n_holder;     /* partitions; 0: none at all */
    };
    struct {
        const int64_t *owner; /* [n_owner] the same */
        uint32_t n_owner;     /* blocks; 0 */
    };
    double notice_s;               /* before an eviction; 0: none */
    double ratio_two, ratio_three; /* RATIO: stage 2 and 3 above these; 0: 1 and 15 */
} ru_stage_in;

typedef struct ru_stage_plan {
    uint32_t stage;   /* 1 to 3; 0: ALL */
    uint32_t servers; /* they are the first ones of their kind */
    uint32_t
        workers; /* the first ones of all; stage 2: the last ones; 3: the first transient ones */
    ru_backup_clock clock;
    const uint32_t *holder; /* [partitions] who serves it */
    const uint32_t *backup; /* [partitions] reliable machine with its copy; UINT32_MAX: none */
    const uint32_t *owner;  /* [blocks] who computes on it */
    uint32_t partitions, blocks;
    double moved_bytes; /* parameters and data whose machine changes */
    double residual_s;  /* to send what a copy lacks after a notice, per server */
    bool in_notice;     /* that fits the notice */
} ru_stage_plan;

/* The input as the table of the row fills it: sizes and rates in 1e6 bytes. */
typedef struct ru_stage_file {
    ru_stage_in mb;
} ru_stage_file;

ru_stage_file ru_stage_to_file(const ru_stage_in *in);
ru_stage_in ru_stage_of_file(const ru_stage_file *file);

/* Where workers and servers are in a stage with so many of them; ALL: stage 0. Workers 0: all that
 * the stage has; else at least as many as servers. */
ru_backup_layout ru_stage_layout(const ru_stage_in *in, uint32_t stage, uint32_t servers,
                                 uint32_t workers);
uint32_t ru_stage_first_worker(const ru_stage_in *in, uint32_t stage, uint32_t workers);

/* The predicted clock of a stage with such a layout: partitions and blocks are whole. */
ru_backup_clock ru_stage_clock(const ru_stage_in *in, uint32_t stage, uint32_t servers,
                               uint32_t workers);

/* Owner: lists in `out`. Errors: RU_E_ARG, RU_E_INFEASIBLE (a stage without its machines),
 * RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_stage(const ru_stage_in *in, ru_arena *out, ru_arena *scratch,
                                    ru_stage_plan *plan, ru_err *err);
/* Errors: RU_E_INFEASIBLE, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_plan_stage_check(const ru_stage_in *in, const ru_stage_plan *plan,
                                          ru_arena *scratch, ru_err *err);

#endif
