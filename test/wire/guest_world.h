/* Guests of the counter service in the simulator: honest ones that count and dial another host when
 * theirs is gone, and one that sends whatever it is told to.
 *
 * Thread: one. */
#ifndef RU_TEST_GUEST_WORLD_H
#define RU_TEST_GUEST_WORLD_H

#include "comm/node/guest.h"
#include "sim/process.h"
#include "test/wire/counter.h"

enum {
    GUEST_HOSTS = 3,
    GUEST_VISITORS = 6,
    GUEST_GOAL = 30,
    GUEST_MUTE = 0x500, /* of a second part: it answers nothing */
    GUEST_GUSH,         /* ... but this, by far too much */
    GUEST_MUTE_END,
};

typedef struct guest_world guest_world;

typedef struct guest_host {
    guest_world *world;
    ru_sim_process process;
    uint32_t door; /* its second interface, for guests: number in the simulator */
    ru_link door_link;
    ru_node *node;
    ru_counter counter;
    char address[32], door_address[32];
    uint32_t mute_downs;
} guest_host;

typedef struct guest_visitor {
    guest_world *world;
    ru_sim_process process;
    ru_guest *guest;
    ru_node_id id;
    char address[32];
    bool honest, up, dialed;
    uint32_t at;                     /* host that it is or was at */
    uint64_t goal, count, known;     /* known: as a host said last */
    uint32_t ups, answers, refusals; /* refusals: downs with a sentence of the host */
    ru_status why;                   /* of the last down */
    char sentence[RU_GUEST_REASON_MAX];
} guest_visitor;

struct guest_world {
    ru_sim *sim;
    guest_host hosts[GUEST_HOSTS];
    guest_visitor visitors[GUEST_VISITORS];
    uint32_t n_hosts, n_visitors;
    const char *name;         /* of the next visitor, with a key of its own; NULL: it has none */
    ru_guests_options limits; /* of every host; filled in but for token and link */
};

/* n_hosts members of one service. */
void guest_world_open(guest_world *w, uint64_t seed, uint32_t n_hosts);
void guest_world_close(guest_world *w);
/* Another guest; an honest one dials and counts by itself. `token`: NULL for the right one. */
guest_visitor *guest_world_visit(guest_world *w, bool honest, const char *token);
void guest_world_dial(guest_visitor *v, uint32_t host);
ru_status guest_world_send(guest_visitor *v, uint32_t what, const void *data, int64_t size_bytes);
void guest_world_run_ms(guest_world *w, int64_t for_ms); /* from now */
/* A process died with both of its interfaces; for ru_sim_chaos.told. */
void guest_world_told(void *self, ru_sim_fault what, uint32_t node, uint32_t other, ru_time now);

/* A service with an honest guest and a hostile one that does what the bytes say: RU_E_BUG when the
 * honest one does not get its counts through, when a host has more guests than it may, or when it
 * knows of counts that nobody made. */
RU_MUST_USE ru_status guest_storm(const uint8_t *data, int64_t size_bytes, ru_err *err);

#endif
