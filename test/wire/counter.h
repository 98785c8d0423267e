/* A counter that survives crashes, as an example of a part (comm/node/node.h): every process counts
 * for itself and tells its count to all; the total is the sum of the largest count heard of each
 * process ever seen, dead ones included. Telling again changes nothing, so nothing is counted twice
 * whatever is repeated.
 *
 * Guests (comm/node/guests.h) count as well: RU_COUNTER_ADD tells the guest's own count so far, and
 * is answered by RU_COUNTER_KNOWN with what is known of it and the total.
 *
 * Thread: loop only. */
#ifndef RU_TEST_COUNTER_H
#define RU_TEST_COUNTER_H

#include "comm/node/node.h"

enum { RU_COUNTER_SEEN_MAX = 256, RU_COUNTER_GUESTS_MAX = 128 };
enum { RU_COUNTER_ADD = 0x400, RU_COUNTER_KNOWN, RU_COUNTER_GUEST_END };

typedef struct ru_counter_seen {
    uint64_t node;
    uint64_t guest; /* 1: the id is a guest's, which may be that of a member */
    uint64_t count;
} ru_counter_seen;

typedef struct ru_counter_known {
    uint64_t yours, total;
} ru_counter_known;

typedef struct ru_counter {
    ru_node_id self;
    ru_member *member;
    uint64_t goal; /* counts up to here, one every step_ns */
    int64_t step_ns;
    ru_counter_seen seen[RU_COUNTER_SEEN_MAX]; /* [n] seen[0] is its own */
    uint32_t n;
    void (*told)(void *self, uint64_t total); /* after every change; may be NULL */
    void *told_self;
} ru_counter;

/* Fill self, goal, step_ns, told first. */
void ru_counter_part(ru_counter *c, ru_node *node);
uint64_t ru_counter_total(const ru_counter *c);

#endif
