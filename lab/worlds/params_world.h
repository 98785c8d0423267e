/* Apps with shared parameters in the simulator: processes with an engine each, a device that
 * computes at once and answers later, a disk that all share; and the same app by one loop without
 * any of it.
 *
 * The app: every executor adds to a table of counts and to a table of numbers, whose sum depends on
 * the order of additions; with `rotate` also to a table that rotates, with `local` to one that is
 * local. Its state counts its tasks and refuses one that is missing or twice.
 *
 * Thread: one. */
#ifndef RU_LAB_WORLDS_PARAMS_WORLD_H
#define RU_LAB_WORLDS_PARAMS_WORLD_H

#include "lab/worlds/speed.h"
#include "sim/process.h"
#include "train/engine/engine.h"

enum { RU_PARAMS_PROCESSES = 8, RU_PARAMS_TABLES = 4 }; /* peers of a process, at least */

/* What happens to processes first .. first + n - 1. */
typedef enum ru_params_what {
    RU_PARAMS_JOIN,
    RU_PARAMS_LEAVE,
    RU_PARAMS_CRASH,
    RU_PARAMS_VANISH,
    RU_PARAMS_STOP /* they ask for the end of the job */
} ru_params_what;
typedef struct ru_params_event {
    int64_t ns;
    ru_params_what what;
    uint32_t first, n;
} ru_params_event;

typedef enum ru_params_mistake {
    RU_PARAMS_FINE,
    RU_PARAMS_ROW,    /* a row that the table does not have */
    RU_PARAMS_BLOCK,  /* rotate: rows of another block */
    RU_PARAMS_MANY,   /* more wants than there may be */
    RU_PARAMS_NAN,    /* a change that is no number */
    RU_PARAMS_DRIVER, /* drive, rotate: rows that only an executor has */
} ru_params_mistake;

typedef struct ru_params_job {
    uint64_t seed;
    uint32_t founders, later;     /* processes; later ones join one after another */
    uint32_t reliable;            /* 0: all; else the machines of the others may be taken away */
    uint32_t stages;              /* of the engine */
    const ru_params_event *event; /* [n_events]; then later processes join by these alone */
    uint32_t n_events;
    uint32_t executors, shards, clocks;
    uint32_t driver, slack, save_every;
    uint32_t rule; /* of the table of numbers */
    bool rotate, drive;
    uint32_t stragglers;      /* ru_engine_stragglers */
    uint32_t backup;          /* executors for which a clock does not wait; clocks: 20 at most */
    bool divided;             /* the app is that of params_item.c */
    bool counted;             /* ... of params_count.c */
    ru_speed_pattern pattern; /* divided: processes become slow; one executor on each */
    int64_t delay_ns;         /* of a message between processes; 0: 10 us */
    uint32_t mistake;         /* ru_params_mistake of the app in clock 2 */
    int64_t save_ns;          /* checkpoints by time, where save_every is 0 */
    bool partial;             /* lost objects alone are rebuilt */
    uint32_t recover, save_method, save_clocks; /* of the engine */
    int64_t log_ns;                             /* until the log answers, about; 0: 1 ms */
    int64_t task_ns;                            /* of a task on the device, about */
    int64_t move_every_ns;                      /* a random object to a random member; 0: never */
    int64_t leave_ns;                           /* the last process leaves then; 0: nobody */
    bool leader_leaves;                         /* ... the first one instead */
    ru_sim_chaos chaos;                         /* rates; until ns 0: none */
    int64_t limit_ns;                           /* virtual time; 0: 120 s */
    bool timed;                                 /* first_cpu_ns is wanted */
    bool log;                                   /* lines of all processes to stderr */
} ru_params_job;

typedef struct ru_params_result {
    bool ended;
    ru_status status;
    char text[RU_ERR_TEXT_MAX];
    uint32_t survivors, living, moves, generations; /* living: at the limit of time */
    uint32_t from_copies, from_disk, counted;       /* generations, not the first */
    int64_t wrong;                                  /* counted: rows that the states contradict */
    uint32_t clocks_back; /* closed clocks that were done again, by generations from copies */
    uint32_t told_again;  /* clocks whose objective was told before */
    uint32_t ends;        /* ... of the end, to a process that had heard of it */
    uint32_t closed;      /* clocks, when it ended */
    int64_t gap_ns;       /* longest time between two clocks */
    int64_t idle_ns;      /* ... from the last of some losses until a task of the next generation */
    int64_t first_cpu_ns, first_frames; /* of the first process, without its tasks; it has heard */
    int64_t helped;                     /* items that another executor worked on */
    ru_time begun, done;                /* the first generation; the last clock */
    int64_t virtual_ns;
    uint64_t hash;                  /* of the simulator */
    float *table[RU_PARAMS_TABLES]; /* of the last checkpoint; malloc */
    int64_t floats[RU_PARAMS_TABLES];
    double sums[RU_APP_SUMS_MAX];                 /* of the last clock */
    uint32_t recoveries, rebuilt, cached, logged; /* objects; rows */
    uint32_t saves;                               /* of the running checkpoint, */
    int64_t saved_bytes;                          /* those that were answered */
    uint32_t shipped, arrived;                    /* executors that moved: sent, and here */
    uint32_t left_out[20]; /* by clock: executors whose changes are dropped */
    uint32_t begun_at;     /* bit c < 32: a leader began with clock c; what came before stayed */
    uint32_t redone;       /* slices of dead helpers */
    uint8_t *lost; /* [clocks, ru_params_counted] malloc: changes of that clock may be lost */
} ru_params_result;

/* Errors: RU_E_BUG, a rule of the simulator is broken. */
RU_MUST_USE ru_status ru_params_run(const ru_params_job *job, ru_params_result *out, ru_err *err);
/* The same job by one loop. */
void ru_params_alone(const ru_params_job *job, ru_params_result *out);
void ru_params_result_fini(ru_params_result *r);

/* The job of a seed: anything that is possible, with faults. */
void ru_params_draw(uint64_t seed, ru_params_job *job);
/* The same with executors that help each other, where counts are known. */
void ru_params_draw_sliced(uint64_t seed, ru_params_job *job);
/* The same with executors in backup. */
void ru_params_draw_backup(uint64_t seed, ru_params_job *job);
/* The same with tables that count what executors hold. */
void ru_params_draw_counted(uint64_t seed, ru_params_job *job);
/* The same with members whose machines are taken away, with notice or without, and come. */
typedef struct ru_params_events {
    ru_params_event at[16];
} ru_params_events;
void ru_params_draw_staged(uint64_t seed, ru_params_job *job, ru_params_events *events);
/* Run it, and compare with one loop: bit for bit in step, the counts alone otherwise. Errors:
 * RU_E_BUG with the seed and what differs. */
RU_MUST_USE ru_status ru_params_check(const ru_params_job *job, ru_err *err);

#endif
