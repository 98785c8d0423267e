/* Inside the collectives in shared memory.
 *
 * Thread: one. */
#ifndef RU_COMM_COLL_COLL_SHM_IMPL_H
#define RU_COMM_COLL_COLL_SHM_IMPL_H

#include "comm/coll/coll_shm.h"

enum { RUI_SHM_AREAS = 4, RUI_SHM_DATA_AT = 2 << 20 };

/* Words of one epoch in the segment of one member. */
typedef struct rui_shm_area {
    ru_shm_word epoch; /* of the words below, plus 1 */
    ru_shm_word tick;  /* steps this member has finished */
    ru_shm_word go;    /* of rank 0: steps that all have finished, if crowded */
    uint32_t crowded;  /* of rank 0: it looks for all; set before `epoch` */
} rui_shm_area;

typedef struct rui_shm_control {
    rui_shm_area area[RUI_SHM_AREAS];
    uint8_t pad[4096 - RUI_SHM_AREAS * sizeof(rui_shm_area)];
    uint8_t slot[2][RU_COLL_SHM_SLOT_BYTES];
} rui_shm_control;

struct ru_coll_shm {
    ru_coll_shm_options opt;
    ru_shm *own;
    uint32_t n, rank; /* n 0: not joined */
    ru_shm *seg[RU_COLL_SHM_RANKS_MAX];
    rui_shm_area *area[RU_COLL_SHM_RANKS_MAX];
    uint8_t *data[RU_COLL_SHM_RANKS_MAX], *slots[RU_COLL_SHM_RANKS_MAX];
    uint32_t tick;  /* steps finished here */
    uint32_t small; /* collectives through slots so far: two slots take turns */
    uint32_t looks; /* before the core is given away: adapts */
    bool crowded;   /* more members than cores, as rank 0 has it */
};

/* This member finished one more step. */
void rui_shm_arrive(ru_coll_shm *c);
/* Until all finished as many steps as this one. */
ru_status rui_shm_wait_all(ru_coll_shm *c);
/* Until one of them finished `tick` steps. */
ru_status rui_shm_wait_rank(ru_coll_shm *c, uint32_t rank, uint32_t tick);

#endif
