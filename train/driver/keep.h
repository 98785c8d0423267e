/* data.cache: auto. What of the samples is kept, by the policy `keep`, from measured seconds and
 * bytes; predicted and measured times of epochs.
 *
 * Thread: the trainer's. */
#ifndef RU_TRAIN_DRIVER_KEEP_H
#define RU_TRAIN_DRIVER_KEEP_H

#include "train/driver/trainer_impl.h"

/* t->train_set is open and keeps nothing. Measures, or takes what another process of this machine
 * measured lately, decides, and opens the cache. `opt`: what the set was opened with; its cache's
 * kind is that of the answer then. Errors: those of reading; of the folders of `storage`. */
RU_MUST_USE ru_status rui_keep_choose(rui_trainer *t, ru_data_options *opt, ru_err *err);
/* The decision is noted; NULL t->keep: there is none. */
void rui_keep_note(rui_trainer *t);
/* A step that began then is done: is an epoch over? */
void rui_keep_stepped(rui_trainer *t, ru_time begun, ru_time now);

#endif
