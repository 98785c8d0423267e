/* Agents as jobs of Slurm: one job of Slurm for each seat, which is a node of the cluster that
 * comes when it is wanted and goes when it is not.
 *
 *   wanted --sbatch--> waits in Slurm --> agent runs as a step --SIGTERM: notice--> it leaves
 *   not wanted, or a second one of a seat --scancel-->
 *
 * Nothing is kept: what Slurm has is read from squeue again and again, by names of jobs that hold
 * cluster and seat. So a controller that forgets a job, or has one twice, is put right, and so is a
 * scheduler that starts again. All partitions of a cluster share one shell: one command at a time,
 * at most one a second, and each list of squeue is for all of them.
 *
 * Thread: loop only. */
#ifndef RU_CLUSTER_SLURM_H
#define RU_CLUSTER_SLURM_H

#include "base/conf.h"
#include "base/status.h"
#include "env/loop/loop.h"

enum { RU_SLURM_SEATS_MAX = 200, RU_SLURM_MAX = 9 }; /* markets and `slurm` of a cluster */

typedef struct ru_slurm_options {
    const char *name;         /* of the seats' nodes: NAME1, NAME2, ... */
    const char *folder, *exe; /* of the cluster; this program, as Slurm's nodes see it */
    const char *partition;    /* "": Slurm's own choice */
    ru_conf_texts options;    /* more words for sbatch */
    uint32_t seats, seats_min;
    uint32_t slots, threads; /* of each */
    int64_t idle_ns;         /* `slurm`: a seat that nobody needs goes after it */
} ru_slurm_options;

typedef struct ru_slurm ru_slurm;
typedef struct ru_slurm_shell ru_slurm_shell;

/* Owner: `arena`. Errors: RU_E_MEM. */
RU_MUST_USE ru_status ru_slurm_shell_open(ru_loop *loop, ru_arena *arena, ru_slurm_shell **out,
                                          ru_err *err);
void ru_slurm_shell_close(ru_slurm_shell *h); /* the jobs stay; NULL is fine */
/* Seats of one partition; at most RU_SLURM_MAX share a shell. Owner: `arena`; `opt` must live.
 * Errors: RU_E_CONFIG for paths that no shell takes as they are. */
RU_MUST_USE ru_status ru_slurm_open(const ru_slurm_options *opt, ru_slurm_shell *shell,
                                    ru_arena *arena, ru_slurm **out, ru_err *err);
/* Call it twice a second: takes what a command that ended has said, starts the next one. false: it
 * is not known yet what Slurm has from before; then those seats are wanted. */
bool ru_slurm_tick(ru_slurm *s, ru_time now);
void ru_slurm_want(ru_slurm *s, uint32_t seat, bool wanted); /* seats count from 0 */
bool ru_slurm_wanted(const ru_slurm *s, uint32_t seat);
/* Has Slurm no job of this cluster, as far as squeue said since the last command? */
bool ru_slurm_empty(const ru_slurm *s);
/* Why Slurm gives this partition nothing now: squeue does not answer, or what sbatch said last; "":
 * neither. View until the next tick. */
const char *ru_slurm_trouble(const ru_slurm *s);

/* Name of the node of a seat of `slurm`, and the seat of a name; false: of none. */
void ru_slurm_seat_name(uint32_t seat, char into[16]);
bool ru_slurm_seat_of(const char *name, uint32_t *seat);

/* What squeue prints, as it comes: "ID|STATE|NAME|REASON" lines, however many jobs of others stand
 * between. Of each seat the job that stays (0: none), and those that must go. Zeroed is none. */
typedef struct rui_slurm_list {
    int64_t of[RU_SLURM_SEATS_MAX]; /* job that a seat has */
    bool runs[RU_SLURM_SEATS_MAX];  /* it does */
    int64_t extra[RU_SLURM_SEATS_MAX];
    uint32_t n_extra;
    char line[512]; /* as far as it has come; what is longer is cut */
    uint32_t n_line;
} rui_slurm_list;
/* The next `n` bytes of it. `prefix`: of names of this cluster's jobs. */
void rui_slurm_read(rui_slurm_list *l, const char *prefix, const char *bytes, int64_t n);

#endif
