/* Links in memory for tests: nodes joined by byte queues, with partial reads and writes, delays,
 * reordering between connections and cuts, all drawn from a seed. Time is virtual.
 *
 * Thread: one. */
#ifndef RU_LAB_WORLDS_PIPE_H
#define RU_LAB_WORLDS_PIPE_H

#include "base/rng.h"
#include "env/link/link.h"

enum { RU_PIPE_NODES_MAX = 64, RU_PIPE_SIDES_MAX = 1024 };

typedef struct ru_pipe ru_pipe;

typedef struct ru_pipe_options {
    uint64_t seed;
    int64_t queue_bytes; /* that a connection holds; 0: 64 KiB */
    int64_t move_max;    /* bytes moved at once; 0: drawn up to the queue */
    int64_t step_ns;     /* time of one action; 0: 1 us */
} ru_pipe_options;

ru_pipe *ru_pipe_new(const ru_pipe_options *opt);
void ru_pipe_free(ru_pipe *net);
ru_time ru_pipe_now(const ru_pipe *net);
void ru_pipe_wait(ru_pipe *net, int64_t ns); /* time passes */

/* A node that listens under `address`; upcalls to `user` (set before anything moves). */
uint32_t ru_pipe_node(ru_pipe *net, const char *address);
void ru_pipe_user(ru_pipe *net, uint32_t node, const ru_link_user *user);
ru_link ru_pipe_link(ru_pipe *net, uint32_t node);
/* It died: its connections end with RU_E_PEER at the others; it is never called again. */
void ru_pipe_kill(ru_pipe *net, uint32_t node);

/* One random action; false: nothing can move. */
bool ru_pipe_step(ru_pipe *net);
/* Break a random connection (both ways, bytes on the way are lost); false: there is none. */
bool ru_pipe_cut(ru_pipe *net);
void ru_pipe_refuse(ru_pipe *net, bool refuse); /* nobody can connect */

/* A raw connection to a node's listener from outside: bytes in, bytes out. */
uint32_t ru_pipe_raw(ru_pipe *net, uint32_t node);
bool ru_pipe_raw_live(const ru_pipe *net, uint32_t raw);
int64_t ru_pipe_raw_write(ru_pipe *net, uint32_t raw, const void *data, int64_t size_bytes);
int64_t ru_pipe_raw_read(ru_pipe *net, uint32_t raw, void *into, int64_t size_max_bytes);
void ru_pipe_raw_close(ru_pipe *net, uint32_t raw);
/* The first bytes that came to the listener's side of the n-th accepted connection of a node, as
 * many as fit; 0: there was none. */
int64_t ru_pipe_tapped(const ru_pipe *net, uint32_t node, uint32_t nth, void *into, int64_t max);
/* A connection of node a that stands, of this class, to inject bytes behind what a sends (between
 * frames); UINT32_MAX: there is none. */
uint32_t ru_pipe_side(const ru_pipe *net, uint32_t a, ru_link_class class);
/* Put bytes where a side's next frame would go; false while it is inside of a frame. */
bool ru_pipe_inject(ru_pipe *net, uint32_t side, const void *data, int64_t size_bytes);

#endif
