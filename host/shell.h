/* One live process of a job: loop, link, node, stop signals, what its threads say, what processes
 * outside ask, windows of traces, the end. The owner adds its step machines as parts of the node
 * and its threads; train/worker has two owners.
 *
 *   ru_shell_open    loop and link: it has an address
 *   ru_shell_node    node, messages; then the owner adds its parts and starts its threads
 *   ru_shell_run     until ru_shell_bye has let the loop end
 *   ru_shell_close   between ru_node_quiet and it the owner stops its threads and closes its parts
 *
 *   thread --ru_shell_say--> ring --one wake--> loop thread: ops->said
 *
 * Thread: loop only, but ru_shell_say. */
#ifndef RU_HOST_SHELL_H
#define RU_HOST_SHELL_H

#include "base/ring.h"
#include "comm/node/loop.h"
#include "env/link/link_tcp.h"
#include "host/traces.h"

enum {
    RU_TOKEN_BYTES = 32,
    RU_WORKERS_MAX = 1024,
    RU_SHELL_LINES_MAX = 4,
    RU_SHELL_ASKING_MAX = 4,
    RU_SHELL_WHAT_OWNER = RU_NODE_WHAT_OWNER + 0x100, /* messages of the owner's own kinds */
};

/* What the owner does; each may be NULL where nothing of the kind comes. */
typedef struct ru_shell_ops {
    /* A stop signal came: leave or, with `all`, end the job. */
    void (*stop)(void *self, bool all, ru_time now, ru_effects *fx);
    /* What a thread said: an element of its ring, view until return. */
    void (*said)(void *self, const void *element, ru_time now, ru_effects *fx);
    void (*world)(void *self, ru_time now); /* asked for the world file: ru_shell_world answers */
    void (*message)(void *self, const ru_event *ev); /* of the owner's own kinds */
    void (*view)(void *self, ru_time now);           /* another view is in force in membership */
} ru_shell_ops;

typedef struct ru_shell_options {
    const char *join;     /* address of any process of the job; NULL: this one founds it */
    const char *listen;   /* host:port; NULL: this machine's address on the way to `join`, or
                             127.0.0.1:0 */
    const char *toward;   /* listening on all interfaces: tell the address on the way to this
                             host:port; NULL: to `join` */
    const uint8_t *token; /* [token_bytes] secret of the job */
    uint32_t token_bytes;
    uint32_t n_max;   /* 0: RU_WORKERS_MAX */
    bool newcomer;    /* joins a job that runs: takes its state from the others */
    bool transient;   /* its machine may be taken away: it joins without a vote */
    bool stop_leaves; /* a stop signal lets this process leave; else it ends the job */
    bool term_leaves; /* SIGTERM does, and the others end the job */
    uint32_t number;  /* wished among those who come in together, as at the beginning; 0: any */
    int64_t queue_ns; /* of the link; 0: 5 ms, for a loop thread beside a compute thread */
    /* Where this process listens, told once, and which one it is in the job: told again, without
     * takes_state, when it holds the state that it takes from the others; may be NULL. */
    void (*address)(void *self, const char *address);
    void (*member)(void *self, uint32_t number, bool takes_state);
    void *self;
} ru_shell_options;

typedef struct ru_shell_node_options {
    uint32_t capacity;     /* as membership has it */
    const char *agreed;    /* what all processes of the job must share (comm/member) */
    uint32_t n_max;        /* members, if that is less than the shell's; 0: as there */
    uint32_t xfers_max;    /* streams, and slots */
    int64_t buffer_bytes;  /* of the channel; 0: its own choice */
    int64_t chunk_bytes;   /* the same */
    int64_t silent_ns;     /* a member that is silent for so long is lost; 0: membership's choice */
    const char *host;      /* machine, as membership has it; NULL: this one */
    const char *out;       /* folder of the run; NULL: none */
    const char *yaml;      /* the resolved job, for newcomers: view while the process runs; NULL:
                              newcomers do not ask */
    ru_recorder *recorder; /* NULL: nothing is recorded */
    uint32_t rank;         /* of the trace */
    void (*log)(void *self, int level, const char *line, ru_time now);
} ru_shell_node_options;

/* Owner: the caller; must not move while it is open. Zeroed: closed. */
typedef struct ru_shell {
    const ru_shell_options *opt;
    const ru_shell_ops *ops;
    void *self; /* of ops and log */
    ru_arena *arena;
    ru_loop *loop;
    ru_link_tcp *link, *guests; /* guests: their own; NULL: none are taken */
    ru_node_loop timers;        /* .node: the node */
    ru_node_id id;
    uint32_t number; /* in the job; 0: not in yet */
    const char *out; /* the run's folder, whole path */
    const char *yaml;
    ru_tracing tracing;
    bool asked; /* to stop, by a signal */
    bool ended;
    ru_status end_status;
    char end_text[RU_ERR_TEXT_MAX];
    uint32_t waker, n_lines;
    ru_spsc *lines[RU_SHELL_LINES_MAX];
    ru_node_id asking[RU_SHELL_ASKING_MAX]; /* for the world file, which is being made */
    uint32_t n_asking;
} ru_shell;

/* opt is viewed until ru_shell_close. Errors: those of loop and link; RU_E_MEM. A host that was
 * opened in part can be closed. */
RU_MUST_USE ru_status ru_shell_open(ru_shell *h, const ru_shell_options *opt,
                                    const ru_shell_ops *ops, void *self, ru_arena *arena,
                                    ru_err *err);
RU_MUST_USE ru_status ru_shell_node(ru_shell *h, const ru_shell_node_options *no, ru_err *err);
uint32_t ru_shell_peers_max(const ru_shell_options *opt); /* processes it may be connected to */

/* A ring for one thread, which says elements of this size; count is a power of two. */
RU_MUST_USE ru_status ru_shell_line(ru_shell *h, ru_spsc *line, uint32_t count, uint32_t elem_bytes,
                                    ru_err *err);
/* That thread: say something; a full ring is a crash. */
void ru_shell_say(ru_shell *h, ru_spsc *line, const void *element);

/* Between ru_shell_node and ru_shell_run: take guests at `listen` over `conns` connections. `o` has
 * job, token and limits; the rest is filled in. Errors: those of link and guests. */
RU_MUST_USE ru_status ru_shell_guests(ru_shell *h, const char *listen, uint32_t conns,
                                      const ru_guests_options *o, ru_err *err);

/* Until the loop is let go. Errors: those of the loop. */
RU_MUST_USE ru_status ru_shell_run(ru_shell *h, ru_err *err);
/* Of a process that was told to stop: does it leave, while the others go on? */
bool ru_shell_leaves(const ru_shell *h);
/* This process has that number in the job. */
void ru_shell_number(ru_shell *h, uint32_t number, bool takes_state);
void ru_shell_tell_view(const ru_shell *h); /* who is in the job, for the launcher */
/* The world file for all processes that asked; NULL, 0: there is none yet. */
void ru_shell_world(ru_shell *h, const char *text, int64_t size_bytes, ru_time now);
/* The job is over for this process. The owner calls ru_shell_bye when it has done the rest. */
void ru_shell_end(ru_shell *h, ru_status st, const char *text, ru_time now);
/* End the loop when traces of other hosts are there, at the latest a second after `wait_ns`. */
void ru_shell_bye(ru_shell *h, int64_t wait_ns, ru_time now);
/* Was it put out while it was silent? Then `again` [RU_LINK_TCP_ADDRESS_MAX] is whom to ask when it
 * is to join again. */
bool ru_shell_removed(const ru_shell *h, char *again);
void ru_shell_close(ru_shell *h);

#endif
