/* Random life of a few channels: streams, messages, cancels, withdrawals, broken connections, peers
 * dropped and found again, everything drawn from a seed and held against a model: every byte that
 * arrives is the right one, in memory that was given for it; every transfer ends exactly once;
 * nothing is lost but what the contract says (comm/chan/chan.h).
 *
 * Thread: one. */
#ifndef RU_TEST_CHAN_STORM_H
#define RU_TEST_CHAN_STORM_H

#include "base/status.h"

typedef struct ru_chan_storm_options {
    uint64_t seed;
    uint32_t events; /* random acts of the users; the links' steps come in between */
    uint32_t nodes;  /* 2 .. 8 */
    bool grants, crc;
    bool little;           /* channels have few streams: calls find no room */
    bool drops;            /* peers take leave and come again */
    void (*seal)(bool on); /* told before and after all that must not allocate; may be NULL */
} ru_chan_storm_options;

typedef struct ru_chan_storm_report {
    uint32_t sent, arrived, cancelled, withdrawn, lost, messages, cuts, drops;
    int64_t bytes, preemptions;
} ru_chan_storm_report;

/* RU_E_BUG with the sentence of what is wrong and the seed. */
RU_MUST_USE ru_status ru_chan_storm(const ru_chan_storm_options *opt, ru_chan_storm_report *report,
                                    ru_err *err);

#endif
