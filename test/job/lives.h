/* Processes of a job for tests: channel, membership and elastic training as they are wired when
 * they ship, over links in memory and in virtual time, on a device that answers at once.
 *
 * Thread: one. */
#ifndef RU_TEST_LIVES_H
#define RU_TEST_LIVES_H

#include "lab/worlds/pipe.h"
#include "train/elastic/elastic.h"

enum {
    LIFE_TIMERS = 64,
    LIFE_TENSORS = 2,
    LIFE_STEPS = 3,
    LIFE_ROUNDS = 200000, /* so many without an end: it hangs */
    JOB_LIVES = 7,
};

/* What its device answers at its next turn. */
typedef enum life_todo {
    LIFE_NOTHING,
    LIFE_BUILT,
    LIFE_COMPUTED,
    LIFE_ABORTED,
    LIFE_UPDATED
} life_todo;

/* One process of a job: the first founds it, others join it. */
typedef struct life {
    ru_pipe *pipe;
    uint32_t founders, streams;
    uint32_t least;          /* members without which the job pauses; 0: 1 */
    uint32_t servers;        /* members that add the gradients of the others */
    uint32_t number, begin;  /* as in the options of membership and training; 0: without */
    uint32_t peers, members; /* at most */
    const char *host;
    int64_t steps, batch, first_step;
    ru_node_id id;
    char address[8];
    ru_arena arena;
    ru_node *node;
    ru_elastic *elastic;
    uint32_t at_pipe, what[LIFE_TIMERS];
    ru_time at[LIFE_TIMERS]; /* ns 0: off */
    life_todo next;
    float gradients[LIFE_TENSORS][16], state[LIFE_TENSORS][16];
    ru_share share;
    int64_t step;            /* that it was asked for last */
    uint32_t depth;          /* steps that it can have under way; 0: 1 */
    uint32_t open;           /* steps begun that do not count yet */
    int64_t summed_bytes;    /* of the older one, whose sums are there */
    int64_t kept;            /* one more than the step that counts while another goes on; 0: none */
    int64_t sample_ns;       /* it says to need; 0: 1 ms a step */
    bool backward;           /* its gradients are ready from the last one on */
    uint32_t pauses, paused; /* rounds between its first gradient and the others */
    life_todo stalls;        /* it is not through with that */
    uint64_t layout;         /* of its gradients */
    bool plain;              /* built so last */
    const char *handle;      /* of its memory; NULL: it can share none */
    ru_status maps;          /* what it says to the others' handles */
    uint32_t opens, closes, opening, n_reduced, reduced[16];
    uint32_t works; /* members that got a share, as it was told */
    uint32_t is_in,
        holds;            /* how often it was told that it is in the job, and has the whole state */
    uint32_t went;        /* members that left or were lost, as it was told */
    uint32_t out;         /* pieces of state that the channel reads or writes */
    uint32_t copies_fail; /* so many of the next copies of state find no memory */
    int64_t committed;
    bool ended, over; /* over: its process is gone */
    int64_t ended_ns;
    ru_status status;
    char sentence[128];
    char shares[64];                    /* as they were told last */
    uint32_t cut_off, redoing, failing; /* lines that say so */
} life;

ru_pipe *lives_pipe(void);
void lives_move(ru_pipe *pipe); /* one action of the network, or a millisecond passes */

/* -- one process ---------------------------------------------------------------------------------
 */

life *life_new(ru_pipe *pipe, uint64_t id, uint32_t founders);
RU_MUST_USE ru_status life_open(life *l, ru_err *err);
void life_turn(life *l);           /* its timers that are due, answers of its device */
void life_run(life *l);            /* alone, to its end */
void life_over(life *l);           /* the process is gone */
void life_stop(life *l, bool all); /* it is asked to leave, or to end the job */
/* As if it missed its leader and, unless `to` is 0, had promised to follow that one. */
void life_misses_leader(life *l, ru_node_id to);
void life_free(life *l);

/* -- several in a job ----------------------------------------------------------------------------
 */

/* Some founders; one more comes after `joins` rounds, 0: none. */
typedef struct job {
    ru_pipe *pipe;
    life *l[JOB_LIVES];
    uint32_t n, founders, joins, round;
    uint32_t first_streams; /* that the first may have; 0: enough */
    int64_t batch;          /* 0: 8 */
    bool one_host;
    uint32_t least, servers; /* as in life */
    /* The first founds the job alone, and the step waits until so many are there, who wish for
     * these numbers and take its state; 0: all found it. */
    uint32_t begin, numbers[JOB_LIVES];
} job;

void job_open(job *j, uint32_t founders, int64_t steps, uint32_t joins);
void job_round(job *j); /* something moves, and all have their turn */
void job_rounds(job *j, uint32_t n);
bool job_over(const job *j);
bool job_run(job *j); /* until all have ended; false: they hang */
void job_close(job *j);

#endif
