/* Any faults in any order for membership in the world of lab/worlds/member_world.h, by seed.
 * Thread: one.
 */
#ifndef RU_TEST_MEMBER_CHAOS_H
#define RU_TEST_MEMBER_CHAOS_H

#include "lab/worlds/member_world.h"

enum { CHAOS_NODES = 9 };

typedef enum chaos_kind {
    CHAOS_ALL_VOTE,
    CHAOS_BULK, /* some have no vote, and all those that have none may be lost at once */
} chaos_kind;

/* Returns the hash of all events; fails the test with what to run again. */
uint64_t chaos_run(uint64_t seed, chaos_kind kind, bool verbose);

/* The network works again: do those who can agree? Fails with what to run again. */
void chaos_ended(world *w, const world_options *o, bool ok, uint32_t started, const char *again,
                 uint64_t seed);

#endif
