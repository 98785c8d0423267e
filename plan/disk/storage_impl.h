/* Inside of `storage`: one pass over the files, and the methods that keep a state of their own.
 * Thread: any, pure. */
#ifndef RU_PLAN_STORAGE_IMPL_H
#define RU_PLAN_STORAGE_IMPL_H

#include "plan/disk/storage.h"

/* Classes of files: 0 loses, the others hold equally many by density, 14 the densest. */
enum { RUI_STORAGE_CLASSES = 15 };

typedef struct rui_storage_wish {
    double limit_bytes; /* 0: HDD */
    bool partial;       /* take what room there is */
} rui_storage_wish;

typedef struct rui_storage_recent {
    double open_s, wanted_s, spilled_s; /* seconds of a disk */
    uint32_t class;
} rui_storage_recent;

typedef struct rui_storage_pass {
    const ru_storage_in *in;
    ru_density_history history;
    ru_density_model model;
    ru_arena *scratch;
    double room_bytes; /* on SSD when the file at hand is opened */
    double saved_usd;  /* so far: of the back test and of the files placed */
    /* classes and threshold */
    double bound[RUI_STORAGE_CLASSES]; /* least density of each class */
    ru_trees classes;
    uint32_t threshold;
    double decided_s;
    rui_storage_recent *recent; /* [n] files with a class, in order */
    uint32_t n_recent, first_recent;
    uint32_t class;      /* of the file at hand */
    double *limit_bytes; /* [n] of HINDSIGHT */
    /* groups of the window */
    double *group_saving, *group_room, *group_life, *group_life2, *group_n; /* [n_groups] */
    bool *group_in;
    double window_end_s;
} rui_storage_pass;

RU_MUST_USE ru_status rui_storage_classes_init(rui_storage_pass *p, ru_err *err);
rui_storage_wish rui_storage_by_class(rui_storage_pass *p, uint32_t file);
/* What of the file at hand did not fit. */
void rui_storage_spilled(rui_storage_pass *p, uint32_t file, double share);

RU_MUST_USE ru_status rui_storage_groups_init(rui_storage_pass *p, ru_err *err);
rui_storage_wish rui_storage_by_group(rui_storage_pass *p, uint32_t file);
rui_storage_wish rui_storage_by_life(const rui_storage_pass *p, uint32_t file);
void rui_storage_group_ended(rui_storage_pass *p, uint32_t file);

RU_MUST_USE ru_status rui_storage_hindsight_init(rui_storage_pass *p, ru_err *err);

#endif
