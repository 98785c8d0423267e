/* A listener on a real socket (loopback), plain or with TLS, while strangers come: silent ones,
 * garbage, web browsers, half greetings and half TLS hellos, bytes one by one, right greetings
 * without a proof, other tokens, resets. Nobody of them gets in, the log holds one line for each
 * kind, an honest pair goes on.
 *
 * Thread: one. */
#ifndef RU_TEST_CHAN_SCAN_H
#define RU_TEST_CHAN_SCAN_H

#include "base/status.h"

typedef struct ru_chan_scan_options {
    uint64_t seed;
    uint32_t strangers; /* connections in all */
    bool tls;
    bool wait; /* until the listener has closed the silent ones: seconds */
} ru_chan_scan_options;

typedef struct ru_chan_scan_report {
    uint32_t connections, lines, messages;
    int64_t refused; /* by the channel; with TLS few come so far */
} ru_chan_scan_report;

RU_MUST_USE ru_status ru_chan_scan(const ru_chan_scan_options *opt, ru_chan_scan_report *report,
                                   ru_err *err);

#endif
