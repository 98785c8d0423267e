/* Inside of the agent: its workers (agent_proc.c), services (agent_burst.c), what it hears and says
 * (agent.c).
 *
 * Thread: loop only. */
#ifndef RU_CLUSTER_AGENT_IMPL_H
#define RU_CLUSTER_AGENT_IMPL_H

#include "cluster/agent.h"
#include "cluster/wire.h"
#include "env/loop/loop.h"
#include "env/process/process.h"

enum { RUI_AGENT_PATH_MAX = 1024 };

typedef struct rui_proc {
    struct rui_agent *agent; /* NULL: the place is free */
    uint32_t job, generation, rank;
    char out[RUI_AGENT_PATH_MAX]; /* folder of the run */
    ru_process *child;            /* NULL: adopted */
    ru_group *group;              /* that bounds it; NULL: none */
    int64_t pid;                  /* 0: not known yet; -1: it could not be started */
    char mark[RU_PROCESS_MARK_BYTES];
    bool alive;
    int sent;               /* the last signal; 0: none */
    ru_time since, sent_at; /* known since, or ended since */
    bool member;            /* it is in the job, maybe without the whole state yet */
    char address[128];      /* "": it does not hold the whole state yet */
    char join[128];         /* through which it comes into the job; "": not known, or none */
    int32_t code;
    bool left;
    char ended[16], why[RU_CLUSTER_TEXT_MAX + 1];
} rui_proc;

typedef struct rui_agent {
    const ru_agent_options *opt;
    ru_arena *arena;
    ru_loop *loop;
    struct ru_link_tcp *link;
    struct ru_guest *guest;
    bool up;
    char dialed[256];    /* address of the scheduler */
    bool leaving;        /* it had its notice */
    ru_time noticed;     /* when */
    uint32_t told_lacks; /* RU_GROUP_* that the log already says this machine cannot bound */
    rui_proc procs[RU_CLUSTER_PROCS_MAX];
    struct rui_burst *bursts; /* [opt->n_bursts] */
    ru_arena heard_arena;
    ru_cluster_orders heard; /* number 0: none yet */
} rui_agent;

/* The workers that records of earlier agents name. Errors: those of the folder. */
RU_MUST_USE ru_status rui_agent_adopt(rui_agent *a, ru_err *err);
/* Do what the newest orders say as far as it can be done now. */
void rui_agent_follow(rui_agent *a, ru_time now);
/* Tell all workers to leave (SIGTERM): nobody else does without a scheduler. Or kill them. */
void rui_agent_clear(rui_agent *a, int sig, ru_time now);
/* Does a worker live, or perhaps? */
bool rui_agent_busy(const rui_agent *a);
/* Look at what workers told; true: somebody still has to tell where it listens. */
bool rui_agent_look(rui_agent *a, ru_time now);
/* agent.c: orders in place of the old ones. false: they are none, or those of a scheduler that led
 * before the one whose orders it has. */
bool rui_agent_hear(rui_agent *a, const void *data, int64_t size_bytes);
/* agent_burst.c: services that are paced: start what does not run, hear what runs; each second. */
RU_MUST_USE ru_status rui_agent_bursts_open(rui_agent *a, ru_err *err);
void rui_agent_pace(rui_agent *a, ru_time now);
void rui_agent_services(const rui_agent *a, ru_cluster_state *s);
void rui_agent_bursts_close(rui_agent *a);
/* agent.c: tell the scheduler soon. */
void rui_agent_changed(rui_agent *a);

#endif
