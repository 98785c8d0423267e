/* Trained values that come while the model already computes: each step of the first run waits for
 * those that it reads, and for nothing else.
 *
 *   begin   the executable is open: who brings the values learns which it has, and in what order
 * its steps read them take    blocks until the values of one state are there
 *
 * Thread: that of the executable. */
#ifndef RU_RUN_LATE_H
#define RU_RUN_LATE_H

#include "exec/exe.h"

typedef struct ru_late {
    void *self;
    /* Called once for each executable, before its first run. */
    ru_status (*begin)(void *self, const ru_graph *g, const ru_exe *exe, ru_err *err);
    /* *data: row-major, view until the source is closed. */
    ru_status (*take)(void *self, const char *name, const ru_type *type, const void **data,
                      ru_err *err);
} ru_late;

typedef struct ru_late_ports ru_late_ports;

/* Let the runs of `exe`, whose graph is `g`, take their state from `late`. The executable has these
 * ports and no others until they are set again. Owner: in `arena`; keep it as long as it runs. */
RU_MUST_USE ru_status ru_late_set(const ru_late *late, const ru_graph *g, ru_exe *exe,
                                  ru_arena *arena, ru_late_ports **out, ru_err *err);
/* All states that runs read have come: the ports go, and runs are as fast as without. */
RU_MUST_USE ru_status ru_late_over(ru_late_ports *p, ru_err *err);
/* What a run ended with: of a port's failure the sentence of the source. */
ru_status ru_late_why(const ru_late_ports *p, ru_status st, ru_err *err);

#endif
