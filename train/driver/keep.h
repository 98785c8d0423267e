/* data.cache: auto. What of the samples is kept, by the policy `keep`, from measured seconds and
 * bytes; predicted and measured times of epochs.
 *
 * Thread: the trainer's. */
#ifndef RU_TRAIN_DRIVER_KEEP_H
#define RU_TRAIN_DRIVER_KEEP_H

#include "plan/disk/keep.h"
#include "train/driver/trainer_impl.h"

/* t->train_set is open and keeps nothing; `opt`: what it was opened with, whose paths stay.
 * Measures, or takes what another process of this machine measured lately. Errors: those of
 * reading; of the folders of `storage`. */
RU_MUST_USE ru_status rui_keep_measure(rui_trainer *t, const ru_data_options *opt, ru_err *err);
/* The same with seconds and bytes that are `measured` already. Errors: RU_E_MEM. */
RU_MUST_USE ru_status rui_keep_open(rui_trainer *t, const ru_data_options *opt,
                                    const ru_keep_in *measured, ru_err *err);
/* The same form is kept of t->test_set, which was opened with `opt`. */
void rui_keep_test(rui_trainer *t, const ru_data_options *opt);
/* Of all below: NULL t->keep does nothing. */
/* Before a stream is opened, when t->crew is known: decide, note the decision, and open the cache;
 * again where nothing is kept and hosts came or went. Errors: those of the cache. */
RU_MUST_USE ru_status rui_keep_begin(rui_trainer *t, ru_err *err);
/* A step waited so long for its samples. */
void rui_keep_waited(rui_trainer *t, int64_t ns);
/* A step that began then is done: is an epoch over? */
void rui_keep_stepped(rui_trainer *t, ru_time begun, ru_time now);

#endif
