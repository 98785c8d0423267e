/* The copy of the state from which a checkpoint is written, for who fills it with states of other
 * processes.
 *
 * Thread: that of the checkpoints. */
#ifndef RU_RUN_CKPT_HELD_H
#define RU_RUN_CKPT_HELD_H

#include "run/ckpt.h"

/* Before the first save: the copy of the state stands on the disk of the run, not in memory. */
void ru_ckpt_on_disk(ru_ckpt *c);
/* Where the copy of a state is, for who writes it there while no write runs; *at NULL: it is not
 * saved. Errors: RU_E_MEM, or those of the disk. */
RU_MUST_USE ru_status ru_ckpt_held(ru_ckpt *c, const char *state, void **at, ru_err *err);

#endif
