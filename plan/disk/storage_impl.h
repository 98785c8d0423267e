/* Inside of `storage`: the state of one pass, and the methods that keep a state of their own.
 * Thread: any, pure. */
#ifndef RU_PLAN_STORAGE_IMPL_H
#define RU_PLAN_STORAGE_IMPL_H

#include "plan/disk/storage_live.h"

/* Classes of files: 0 loses, the others hold equally many by density, 14 the densest. */
enum { RUI_STORAGE_CLASSES = 15 };

typedef struct rui_storage_recent {
    double open_s, wanted_s, spilled_s; /* seconds of a disk */
    uint32_t class;
} rui_storage_recent;

struct ru_storage_live {
    const ru_storage_in *in;
    ru_density_history history;
    const ru_density_model *model; /* NULL: first fit */
    ru_arena *scratch;
    double saved_usd;  /* so far: of the back test and of the files placed */
    double placed_usd; /* of these alone */
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
};

RU_MUST_USE ru_status rui_storage_classes_init(ru_storage_live *p, ru_err *err);
ru_storage_wish rui_storage_by_class(ru_storage_live *p, const ru_density_file *f);
/* What of the file at hand did not fit. */
void rui_storage_spilled(ru_storage_live *p, const ru_density_file *f, double share);

RU_MUST_USE ru_status rui_storage_groups_init(ru_storage_live *p, ru_err *err);
ru_storage_wish rui_storage_by_group(ru_storage_live *p, const ru_density_file *f);
ru_storage_wish rui_storage_by_life(const ru_storage_live *p, const ru_density_file *f);
void rui_storage_group_ended(ru_storage_live *p, const ru_density_file *f);

RU_MUST_USE ru_status rui_storage_hindsight_init(ru_storage_live *p, ru_err *err);

#endif
