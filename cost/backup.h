/* The clock of a parameter server whose machines are of two kinds, reliable and transient, and the
 * stream that keeps a copy of what transient servers hold on the reliable ones.
 *
 *   clock = max(read + compute + write, what any link must carry in a clock / its rate)
 *   read, write: the busiest of a server's link, its processor, and a worker's link
 *   stream: each partition once a batch of clocks, what changed in it; partitions take turns and
 * the stream is spread over the clock. A worker on a machine with copies waits in its link's queue
 * for the part of the stream that comes while it reads.
 *
 * A batch is as short as keeps the stream from stretching the clock by 1 %, at most clocks_max.
 *
 * Source: harlap-2017 sec 3.2 (stages, aggregated stream); the formulas are ours.
 * Thread: any, pure. */
#ifndef RU_COST_BACKUP_H
#define RU_COST_BACKUP_H

#include "base/arena.h"

typedef struct ru_backup_job {
    double model_bytes;             /* of all parameters */
    double read_bytes, write_bytes; /* of a worker in a clock */
    double touched;           /* part of the parameters that a worker changes in a clock, 0 to 1 */
    double work_s;            /* of computing in a clock, on one machine; shared by all workers */
    double link_bytes_per_s;  /* of a machine, each way */
    double serve_bytes_per_s; /* that a server processes */
    uint32_t clocks_max;      /* a copy may be so many clocks behind */
} ru_backup_job;

/* Servers are spread evenly over machines of one kind. */
typedef struct ru_backup_layout {
    uint32_t servers;
    uint32_t workers;
    uint32_t shared;   /* machines that are both */
    uint32_t backups;  /* machines that keep the copy; 0: the servers are reliable */
    bool backups_work; /* and are workers too */
} ru_backup_layout;

typedef struct ru_backup_clock {
    double clock_s;
    double read_s, compute_s, write_s;
    uint32_t batch;      /* clocks */
    double stream_bytes; /* in a clock, of all servers */
    double behind_s;     /* a copy is at most so far behind: what a failure without notice loses */
} ru_backup_clock;

/* Bytes of the parameters that `workers` change in `clocks`, when each changes a random part. */
double ru_backup_delta_bytes(const ru_backup_job *j, uint32_t workers, uint32_t clocks);
/* servers and workers >= 1, all numbers of the job finite, rates > 0, the others >= 0. */
ru_backup_clock ru_backup_clock_of(const ru_backup_job *j, const ru_backup_layout *l);

#endif
