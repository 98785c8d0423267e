/* Users of simulated links for tests: they send frames that count, and log what comes.
 *
 * Thread: one. */
#ifndef RU_TEST_SIM_BOX_H
#define RU_TEST_SIM_BOX_H

#include "sim/sim.h"

enum { BOX_CONNS = 8, BOX_LOG = 4096 };

#define MS INT64_C(1000000)

extern const ru_sim_nic gigabit;

/* A user of a link: sends `left` frames of `size` on each connection, logs what comes. The first
 * eight bytes of a header count, the next eight hold the payload's size. */
typedef struct box_conn {
    ru_conn_id id;
    bool open, accepted, pausing;
    ru_status why;
    ru_time opened, closed;
    int64_t left, size;
    uint8_t *data;
    uint64_t sent, next; /* frames sent and expected */
    int64_t rx_bytes;
    ru_time last;
    uint8_t *into;
    bool parts; /* a place for one half, then for the other */
    bool half;  /* the first has one */
} box_conn;

typedef struct box {
    ru_sim *sim;
    ru_link link;
    uint32_t node;
    box_conn c[BOX_CONNS];
    uint32_t n;
    bool out_of_order, refuses;
    ru_time arrivals[BOX_LOG];
    uint32_t n_arrivals;
} box;

ru_sim *sim_new(uint64_t seed);
void run_until(ru_sim *s, int64_t ns);

void box_add(ru_sim *s, box *b, const char *address, const ru_sim_nic *nic);
/* Connection number b->n - 1 of b, with frames to send once it is open. */
box_conn *box_connect(box *b, const char *address, int64_t frames, int64_t size);
void box_wake(const box *b, const box_conn *c); /* it has more to send */

#endif
