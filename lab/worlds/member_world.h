/* A small world for membership: processes, connections, faults, virtual time, one seed.
 *
 * Connections keep order and lose nothing while they stand, like TCP: what is sent into a cut is
 * delivered when it heals. Installs views as soon as membership asks (or up to owner_delay_ns
 * later). After every event rules are checked that must always hold; the first breach is kept in
 * `breach`.
 *
 * Thread: one. */
#ifndef RU_LAB_WORLDS_MEMBER_WORLD_H
#define RU_LAB_WORLDS_MEMBER_WORLD_H

#include "base/heap.h"
#include "base/rng.h"
#include "comm/member/member.h"

enum { WORLD_NODES_MAX = 1100, WORLD_VIEWS_MAX = 4096, WORLD_NAME_MAX = 24 };

typedef struct world_options {
    uint64_t seed;
    uint32_t nodes; /* that may ever start */
    uint32_t n_max; /* of the job; 0: nodes */
    uint32_t mesh_max;
    int64_t delay_min_ns, delay_max_ns; /* of a message; 0: 100 us .. 2 ms */
    int64_t owner_delay_ns;
    int64_t events_max; /* 0: 20 million */
    bool verbose;
    bool refused;          /* the network tells a refused connection from one without answer */
    bool sealed;           /* a step that allocates is a crash */
    bool hold_installs;    /* the test installs itself */
    uint32_t wish[8];      /* number that node i would like to have */
    const char *agreed[8]; /* as in ru_member_options, of node i */
    int64_t blob_more;     /* bytes of a view's blob behind its two words */
    uint64_t no_vote;      /* bit i % 64: node i has no vote and is transient */
} world_options;

typedef struct world_node {
    ru_arena arena, fx_arena;
    void *fx_memory;
    ru_member *m;
    ru_effects fx;
    bool started, alive, out, left, vanished;
    bool voter;      /* it was given a vote */
    int32_t contact; /* whom it joined by; -1: founder */
    ru_time frozen_until;
    ru_time timer_at;
    uint64_t timer_gen;
    uint32_t epoch; /* last in force, by VIEW */
    bool asked;     /* an install is due */
    uint32_t n_views, n_leads, n_outs, n_statuses;
    ru_time died_at, out_at, joined_at;
    char why[200];
} world_node;

typedef struct world_view { /* put in force by its proposer */
    uint32_t epoch, prev, n;
    ru_node_id leader;
    uint64_t hash;
    ru_time at;
} world_view;

typedef struct world world;

struct world_event;

world *world_new(const world_options *opt);
void world_free(world *w);

/* Start node i: a founder (join < 0) or joining by that node's address. */
void world_start(world *w, uint32_t i, int32_t join);
/* Until `until` or a breach; false: a breach. */
bool world_run(world *w, ru_time until);
bool world_run_ms(world *w, int64_t for_ms); /* from now */

void world_kill(world *w, uint32_t i);   /* the process: its kernel ends its connections */
void world_vanish(world *w, uint32_t i); /* the host: nothing is heard any more */
void world_freeze(world *w, uint32_t i, int64_t for_ns);
void world_cut(world *w, uint32_t a, uint32_t b, ru_time until);
void world_half_open(world *w, uint32_t a, uint32_t b); /* b's side breaks, a does not know */
/* b hears that a's kernel ended the connection; what is on its way to b is lost. */
void world_reset(world *w, uint32_t a, uint32_t b);
void world_leave(world *w, uint32_t i);
void world_suspect(world *w, uint32_t i, uint32_t whom, bool certain);
bool world_install(world *w, uint32_t i); /* what is wanted at i; false: not proposed */
/* A message as it is, from a to b. */
void world_message(world *w, uint32_t a, uint32_t b, uint32_t what, const void *data,
                   int64_t size_bytes);

world_node *world_at(world *w, uint32_t i);
ru_time world_now(const world *w);
ru_rng *world_rng(world *w);
const char *world_breach(const world *w); /* NULL: none */
int64_t world_sends(const world *w);
uint64_t world_hash(const world *w); /* of all events so far */
const world_view *world_views(const world *w, uint32_t *n);
int32_t world_leader(world *w); /* the living process that leads with the newest view; -1 */
static inline ru_node_id world_id(uint32_t i)
{
    return (ru_node_id){0x1000 + (uint64_t)i * 0x9e3779b1u};
}
/* Do all living members agree on a view of exactly the living, started, not leaving? */
bool world_settled(world *w, char *why, size_t cap);

#endif
