/* A channel under attack: random and mutated frames before the proof (raw connections) and after it
 * (behind the frames of a peer that has the token), while an honest pair goes on. Whatever comes:
 * no crash, no byte outside of a slot, the honest pair undisturbed and its bytes right.
 *
 * Thread: one. */
#ifndef RU_TEST_CHAN_HOSTILE_H
#define RU_TEST_CHAN_HOSTILE_H

#include "base/status.h"

typedef struct ru_chan_hostile_report {
    int64_t frames_before, frames_after, refused, honest;
} ru_chan_hostile_report;

/* Random ones, `frames` of them, by seed; or, with data, those that the bytes describe. */
RU_MUST_USE ru_status ru_chan_hostile(uint64_t seed, int64_t frames, const uint8_t *data,
                                      int64_t size_bytes, ru_chan_hostile_report *report,
                                      ru_err *err);

#endif
