/* Private to env/: what the parts of a control group share. Thread: as group.h. */
#ifndef RU_ENV_GROUP_IMPL_H
#define RU_ENV_GROUP_IMPL_H

#include "base/arena.h"
#include "base/str.h"
#include "env/process/group.h"

/* The trees of version 1; USAGE counts processor time alone. */
enum { RUI_CPU, RUI_USAGE, RUI_MEMORY, RUI_PIDS, RUI_IO, RUI_TREES };

struct ru_group {
    ru_arena arena;
    bool two;                   /* version 2: one tree, and dir[] of what it has are the same */
    const char *dir[RUI_TREES]; /* of the group; NULL: not there */
    const char *base[RUI_TREES];
    int procs[RUI_TREES]; /* of each folder once; -1: none */
    int lock;             /* of a group that this process has alone; -1: none */
    int64_t period_us;    /* as set in version 1 */
};

extern const uint32_t rui_group_bit[RUI_TREES]; /* RU_GROUP_* */

ru_status rui_group_fails(ru_err *err, int e, const char *what, const char *path);
/* The kernel takes one value with each write. */
ru_status rui_group_put(const char *dir, const char *file, const char *value, ru_err *err);
ru_status rui_group_put_i64(const char *dir, const char *file, int64_t value, ru_err *err);
/* The whole file; "": none. */
ru_str rui_group_text(ru_arena *arena, const char *dir, const char *file);
bool rui_group_has(ru_arena *arena, const char *dir, const char *file);

/* RU_GROUP_* that have a limit. */
uint32_t rui_group_wants(const ru_group_limits *l);
ru_status rui_group_set_tree(ru_group *g, int tree, const ru_group_limits *l, ru_err *err);

#endif
