/* What agents and the scheduler tell each other. Both tell all of their side again and again: a
 * lost or repeated message does no harm, and neither needs to know what the other one heard before.
 *
 *   agent --STATE: its slots, its processes------> scheduler
 *   agent <--ORDERS: how many workers each job shall have here-- scheduler
 *
 * Thread: any. */
#ifndef RU_CLUSTER_WIRE_H
#define RU_CLUSTER_WIRE_H

#include "base/arena.h"
#include "base/wire.h"

enum {
    RU_CLUSTER_STATE = 0x400, /* numbers of guests' messages */
    RU_CLUSTER_ORDERS,
    RU_CLUSTER_MESSAGES_END,
    RU_CLUSTER_VERSION = 7, /* of the messages; those of another one are refused */
    RU_CLUSTER_MESSAGE_BYTES = 60 << 10,
    RU_CLUSTER_PROCS_MAX = 256, /* of a node */
    RU_CLUSTER_SERVICES_MAX = 16,
    RU_CLUSTER_TEXT_MAX = 300
};

#define RU_CLUSTER_SERVICE UINT64_C(0x7275636c75737431) /* whom agents dial */

/* A worker process of a node. */
typedef struct ru_cluster_proc {
    uint32_t job, generation, rank;
    bool alive;
    int32_t code;        /* of one that ended; -1: by a signal, or not known */
    bool goes;           /* it was told to leave or to end */
    bool left;           /* it left, the others went on */
    const char *ended;   /* "done", "target", "stopped" by who told the end of the run; "" */
    const char *address; /* where others join; "": it is not in the job with all its state yet */
    const char *why;     /* its error; "" */
} ru_cluster_proc;

/* A service of a node that is paced (burst/service.h). */
typedef struct ru_cluster_service {
    const char *name;
    bool up;          /* else it is started again soon */
    const char *line; /* what its pacer said last; "" */
} ru_cluster_service;

typedef struct ru_cluster_state {
    const char *name;
    uint32_t slots;
    bool leaving;   /* it takes no more work, and goes when its workers have */
    uint64_t heard; /* number of the newest orders that it follows */
    ru_cluster_proc procs[RU_CLUSTER_PROCS_MAX];
    uint32_t n;
    ru_cluster_service services[RU_CLUSTER_SERVICES_MAX];
    uint32_t n_services;
} ru_cluster_state;

typedef struct ru_cluster_order {
    uint32_t job, generation;
    uint32_t want;       /* workers here; those beyond leave */
    uint32_t rank_first; /* numbers of workers of this node lie above it */
    uint32_t most;       /* of the whole job */
    bool found;          /* the first worker here begins the job */
    bool resume;         /* ... from its checkpoint */
    bool end;            /* the whole job ends, with a checkpoint */
    bool rented;         /* this node may be taken away, and a worker of the job is where none may:
                            it is told, since those of an app are transient then */
    const char *join;    /* address of a worker of the job; "": none is known */
    const char *out, *token, *owner;
} ru_cluster_order;

typedef struct ru_cluster_orders {
    uint64_t number; /* rising */
    uint64_t epoch;  /* of who leads: rises when another scheduler does */
    ru_cluster_order at[RU_CLUSTER_PROCS_MAX];
    uint32_t n;
} ru_cluster_orders;

/* Bytes written into `into` [RU_CLUSTER_MESSAGE_BYTES]; longer texts are cut; 0: no room. */
int64_t ru_cluster_state_put(const ru_cluster_state *s, void *into);
int64_t ru_cluster_orders_put(const ru_cluster_orders *o, void *into);
/* Of whatever build wrote them; 0: these bytes are no message. */
uint32_t ru_cluster_version(const void *data, int64_t size_bytes);
/* Texts in `arena`. false: these bytes are no such message. */
bool ru_cluster_state_get(const void *data, int64_t size_bytes, ru_arena *arena,
                          ru_cluster_state *out);
bool ru_cluster_orders_get(const void *data, int64_t size_bytes, ru_arena *arena,
                           ru_cluster_orders *out);

#endif
