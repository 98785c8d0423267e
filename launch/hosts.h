/* Where the workers of a job run. It combines options, torchrun's variables, Slurm, Open MPI and
 * PMI, in this order, into one answer: how many workers this process starts (or that it is one),
 * which process starts the job, where the others join, and which source applies. Two contradicting
 * sources are an error that names both.
 *
 * Pure parsing: the environment comes through a lookup function.
 *
 * Thread: any. */
#ifndef RU_LAUNCH_HOSTS_H
#define RU_LAUNCH_HOSTS_H

#include "base/conf.h"

enum { RU_HOSTS_MAX = 4096, RU_HOSTS_WORKERS_MAX = 1024, RU_HOSTS_NAME_MAX = 64 };

typedef struct ru_host {
    const char *name;
    uint32_t workers; /* >= 1 */
    bool here;        /* it is this machine; set by ru_hosts_resolve */
    bool transient;   /* it may be taken away: its workers have no vote */
} ru_host;

typedef struct ru_hosts {
    const ru_host *at; /* [n] in the order given, each name once */
    uint32_t n, workers;
} ru_hosts;

/* "a:2,b:2,c,d:4:transient" (c: one worker); the same host twice adds up, and keeps its tier.
 * Owner: names live in arena. Errors: RU_E_USAGE with the place. */
RU_MUST_USE ru_status ru_hosts_from_flag(ru_str text, ru_arena *arena, ru_hosts *out, ru_err *err);
/* Slurm's compressed list "n[1-3,07-09]-x,m5", zero padding kept, each host with one worker.
 * Errors: RU_E_CONFIG with the place; more than RU_HOSTS_MAX hosts: RU_E_LIMIT. */
RU_MUST_USE ru_status ru_hosts_from_slurm(ru_str text, ru_arena *arena, ru_hosts *out, ru_err *err);
/* Slurm's counts "2(x3),1" into the hosts' workers; there must be one count per host. */
RU_MUST_USE ru_status ru_hosts_counts(ru_str text, ru_arena *arena, ru_hosts *hosts, ru_err *err);
/* "4" or "2:8". Errors: RU_E_USAGE; `what` names the flag in the sentence. */
RU_MUST_USE ru_status ru_hosts_range(ru_str text, const char *what, uint32_t *min, uint32_t *max,
                                     ru_err *err);

/* Flags as given; NULL: not given (then RUBATO_<FLAG> and PET_<FLAG> of the environment count). */
typedef struct ru_hosts_flags {
    const char *workers; /* -w: "4", "2:8" */
    const char *hosts;   /* --hosts a:2,b:2 */
    const char *nnodes, *nproc_per_node, *rdzv_endpoint, *rdzv_id, *max_restarts, *node_rank,
        *master_addr, *master_port;
    bool standalone;
    uint32_t cpu_workers, gpu_workers; /* meaning of --nproc-per-node auto|cpu, gpu; 0: 1, none */
    const char *const
        *names_here; /* [n_names_here] names and addresses of this machine; NULL: none */
    uint32_t n_names_here;
} ru_hosts_flags;

typedef const char *(*ru_hosts_env)(void *self, const char *name); /* NULL: not set */

typedef enum ru_hosts_source {
    RU_HOSTS_ALONE,       /* nothing said: workers on this machine */
    RU_HOSTS_FLAG,        /* --hosts: this process starts workers there over ssh */
    RU_HOSTS_TORCHRUN,    /* torchrun's flags: this process starts the workers of this machine */
    RU_HOSTS_RANK,        /* RANK and WORLD_SIZE: this process is a worker */
    RU_HOSTS_SLURM,       /* a task of a job step: this process is a worker */
    RU_HOSTS_SLURM_BATCH, /* a batch script: this process starts workers on the job's hosts */
    RU_HOSTS_OPEN_MPI,    /* this process is a worker */
    RU_HOSTS_PMI,         /* this process is a worker */
    RU_HOSTS_SOURCES
} ru_hosts_source;

typedef enum ru_hosts_founds {
    RU_FOUNDS_NO,      /* joins at `address` */
    RU_FOUNDS_YES,     /* its first worker starts the job and listens at the port of `address` */
    RU_FOUNDS_IF_FREE, /* starts the job when no process listens at `address` yet */
} ru_hosts_founds;

typedef struct ru_hosts_plan {
    ru_hosts_source source;
    bool is_worker;        /* this process is one worker itself, and starts none */
    uint32_t rank, local;  /* rank of it, or of the first worker that it starts: its number in the
                              job and in names of files */
    uint32_t workers_here; /* to start on this machine (or 1) */
    uint32_t workers_min, workers_max; /* of the job */
    ru_hosts_founds founds;
    const char *address; /* host:port where the job is found; NULL: this machine, any port */
    ru_hosts hosts;      /* whom to start workers on; n 0: this machine only */
    const char *job;     /* id of the job; NULL: none given */
    /* What all processes of one start have alike and those of another one do not; no secret.
     * NULL: nothing is known to be (RANK and WORLD_SIZE alone may be left over). */
    const char *launch;
    uint32_t restarts_max;
    const char *line; /* for people: what was decided, by which source */
} ru_hosts_plan;

/* Do two names mean one host? "n1" and "n1.cluster" do: what follows the first dot may be left out
 * on one side. Addresses of digits are compared whole. */
bool ru_host_same(ru_str a, ru_str b);
/* Is this one of the names? */
bool ru_host_listed(const ru_conf_texts *names, const char *host);
/* Is this host of the list transient? `hosts` NULL: no. */
bool ru_hosts_transient(const ru_hosts *hosts, const char *name);

/* Errors: RU_E_USAGE for flags, RU_E_CONFIG for the environment; conflicts name both sources. */
RU_MUST_USE ru_status ru_hosts_resolve(const ru_hosts_flags *flags, ru_hosts_env env,
                                       void *env_self, ru_arena *arena, ru_hosts_plan *out,
                                       ru_err *err);

#endif
