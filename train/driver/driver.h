/* The one training driver: everything that a process of a job does with its executable.
 *
 *   exchange --turn--> driver   BUILD   executable of a share, values, what the leader needs
 *                               STEP    feed, run, loss; of the leader: reports, evaluation,
 *                                       checkpoint
 *                               FINISH  of the leader: last evaluation, checkpoint, summary
 *           COMMIT  a step that was run apart from its update counts: update, loss, and so on
 *           CANCEL  no step that was run counts
 *   driver --done--> exchange
 *
 * An exchange says what comes next, and runs the executable, so it decides what happens between the
 * backward part and the update: nothing in a job of one process (trainer.c), sums with the other
 * workers (train/worker/worker_compute.c).
 *
 * Thread: one, which owns trainer and executable. */
#ifndef RU_TRAIN_RUN_DRIVER_H
#define RU_TRAIN_RUN_DRIVER_H

#include "train/driver/odd.h"
#include "train/driver/read_tune.h"
#include "train/driver/trainer_impl.h"
#include "train/elastic/elastic.h"

typedef enum rui_turn_kind {
    RUI_TURN_NONE,
    RUI_TURN_BUILD,
    RUI_TURN_STEP,
    RUI_TURN_COMMIT,
    RUI_TURN_CANCEL,
    RUI_TURN_FINISH, /* the job is over and this process leads */
    RUI_TURN_QUIT,
} rui_turn_kind;

typedef struct rui_turn {
    rui_turn_kind kind;
    ru_share share;
    int64_t build_n; /* samples to build for (a share of 0 builds for a likely one) */
    bool plain;      /* gradients in row-major order */
    int64_t step;
    uint32_t seq; /* of the exchange */
    ru_time begun;
    bool leads;
    uint32_t workers;       /* that compute */
    uint32_t voters;        /* of the members */
    uint32_t rank, members; /* of the view */
    const char *ended;      /* FINISH: done, target, patience, stopped */
    int64_t lost, repeated; /* samples */
    ru_time job_begun;      /* 0: when this process began */
    int64_t job_first;      /* steps done then */
} rui_turn;

/* Evaluations that several processes share. */
typedef struct rui_helpers {
    /* There are test data, in this many batches; called at least once before the others. */
    ru_status (*open)(void *self, int64_t n_batches, ru_err *err);
    int64_t rows_max_bytes; /* of outputs and labels that go with the sums of a batch */
    /* The leader: has somebody sent this batch of the evaluation after `step`? Its outputs and
     * labels are in the evaluation then. */
    bool (*got)(void *self, int64_t step, int64_t batch, ru_eval_sums *into);
    /* The leader: nothing is missing any more. */
    void (*over)(void *self, int64_t step);
    /* The others: a batch for the leader; is nothing missing any more? */
    void (*send)(void *self, int64_t step, int64_t batch, const ru_eval_sums *sums);
    bool (*is_over)(void *self, int64_t step);
} rui_helpers;

typedef struct rui_exchange_ops {
    const char *name;
    /* Wait for the next turn. */
    void (*next)(void *self, rui_turn *turn);
    /* The turn is over. RU_E_CANCELLED: the step was given up and has changed nothing. */
    void (*done)(void *self, const rui_turn *turn, ru_status st, const ru_err *err);
    /* Graph and executable of the turn's share into the trainer, with the state of those before. */
    ru_status (*build)(void *self, const rui_turn *turn, ru_err *err);
    /* The first line of the report follows; may be NULL. */
    ru_status (*opened)(void *self, ru_err *err);
    /* Run the step; its samples are in place. *waited_ns: for others. With `commit` only up to its
     * gradients: whether it counts is the turn COMMIT or CANCEL, and the next step may run before
     * that (rui_driver_commit). */
    ru_status (*run)(void *self, const rui_turn *turn, const ru_run_args *args, int64_t *waited_ns,
                     ru_err *err);
    /* Make the update of the oldest step that was run; its samples may be in place no more. NULL:
     * `run` does all. */
    ru_status (*commit)(void *self, const rui_turn *turn, const ru_run_args *args,
                        int64_t *waited_ns, ru_err *err);
    /* The run ended before its update because of a value that is not finite: name it. RU_OK: there
     * is none, and the step was run. */
    ru_status (*odd)(void *self, const rui_odd_step *step, ru_err *err);
    /* The samples come from `s` from now on; NULL: from none. May be NULL. */
    void (*stream)(void *self, ru_stream *s);
    /* What the step computed; NULL: its executable says it. */
    rui_figures (*figures)(void *self);
    /* A step is done; may be NULL. */
    void (*stepped)(void *self, const ru_run_report_step *step);
    /* The last evaluation ends the job. True: no further step may be computed. */
    bool (*over)(void *self, const char *why);
    const rui_helpers *helpers; /* NULL: nobody else evaluates */
    bool seals;                 /* after the first step a step allocates nothing */
} rui_exchange_ops;

/* A step that was run and that nobody has said yet whether it counts. */
typedef struct rui_ran {
    rui_turn turn;
    rui_odd_step s;
    ru_time begun;
    int64_t ns, waited_ns; /* of its run */
    bool invalid;          /* ru_exe_invalid */
    bool read;             /* its figures are: */
    rui_figures figures;
} rui_ran;

enum { RUI_RAN_MAX = 2 };

typedef struct rui_driver {
    rui_trainer *t;
    const rui_exchange_ops *ops;
    void *self;
    bool takes_state; /* the first values come from other processes */

    rui_turn turn;            /* under way */
    rui_ran ran[RUI_RAN_MAX]; /* [n_ran] oldest first */
    uint32_t n_ran;
    bool beside;        /* a later step is being run */
    ru_time committed;  /* the last step; 0: none yet */
    int64_t first_step; /* steps done when this process began */
    int64_t built_at;   /* the same when the executable was built: its first run allocates */
    bool built;         /* the first executable stands */
    bool decided;       /* its plans are noted */
    bool started;       /* the report's first line is out */
    bool led;           /* in the turn before */
    ru_stream *stream;
    rui_read_tune *reads;                         /* NULL: the samples are in memory */
    uint32_t plain_told;                          /* ru_stream_reads_plain, of any stream so far */
    ru_time fed_at;                               /* the last batch came; 0: none */
    int64_t stream_next, stream_n, stream_stride; /* position of its next batch; samples; distance
                                                     from one batch to the next */
    int64_t fed_step, fed_n;                      /* whose samples are in the inputs; -1: none */
    ru_eval_sums *sums;                           /* [n_sums] of the evaluation under way */
    int64_t n_sums;
    ru_run_report_summary summary; /* of FINISH */
} rui_driver;

void rui_driver_init(rui_driver *d, rui_trainer *t, const rui_exchange_ops *ops, void *self);
void rui_driver_fini(rui_driver *d);
/* Between two runs of rui_drive: the samples of t->train_set are others from now on. */
void rui_driver_data(rui_driver *d);
/* Turn after turn, until QUIT. */
void rui_drive(rui_driver *d);

/* The oldest step that was run counts, while the next one is being run: its update, loss, report.
 */
RU_MUST_USE ru_status rui_driver_commit(rui_driver *d, ru_err *err);
/* The next step is about to overwrite the figures of the oldest step that was run. */
void rui_driver_figures(rui_driver *d);

/* The evaluation after the last step: of the leader, and of one that helps. */
RU_MUST_USE ru_status rui_driver_evals_open(rui_driver *d, ru_err *err);
RU_MUST_USE ru_status rui_driver_evaluate(rui_driver *d, ru_err *err);
void rui_driver_help(rui_driver *d);

#endif
