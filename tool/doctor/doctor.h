/* What `rubato doctor` looks at: one function for each check.
 *
 * Thread: main only. */
#ifndef RU_TOOL_DOCTOR_H
#define RU_TOOL_DOCTOR_H

#include "base/str.h"

typedef enum rui_health { RUI_FINE, RUI_WARN, RUI_BROKEN } rui_health;

typedef struct rui_check {
    const char *name;
    rui_health health;
    ru_text text; /* what was found */
    ru_text fix;  /* the command or change that mends it; "" when nothing needs to be */
} rui_check;

/* Facts that --json shows as numbers. */
typedef struct rui_machine {
    int64_t memory_bytes, memory_free_bytes, memory_limit_bytes; /* limit 0: none */
    int64_t disk_free_bytes;
    uint32_t cores, cores_online;
    int64_t compute_ns; /* the arithmetic check, first run after opening */
} rui_machine;

typedef void (*rui_check_fn)(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m);

void rui_doctor_processor(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m);
void rui_doctor_memory(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m);
void rui_doctor_disk(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m);
void rui_doctor_compute(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m);
void rui_doctor_threads(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m);
void rui_doctor_environment(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m);
void rui_doctor_limits(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m);
void rui_doctor_stores(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m);
void rui_doctor_metrics(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m);
void rui_doctor_workers(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m);

#endif
