/* Inside of training on functions: what its threads hold.
 *
 * Thread: as the fields say. */
#ifndef RU_FLEET_FUNCTIONS_IMPL_H
#define RU_FLEET_FUNCTIONS_IMPL_H

#include "env/thread.h"
#include "fleet/exchange/store.h"
#include "fleet/follow.h"
#include "fleet/func.h"
#include "fleet/func_scale.h"
#include "fleet/functions.h"
#include "function/host.h"
#include "train/driver/summed.h"
#include "web/keys.h"

enum { RUI_FUNCTIONS_AHEAD = 3, RUI_FUNCTIONS_TOKEN = 16 };
#define RUI_FUNCTIONS_IDLE_NS INT64_C(5000000000) /* of an instance, with data.follow */

/* What one thread has for the other. Under `lock`. */
typedef struct rui_functions_slot {
    int64_t ready;     /* steps below it are summed */
    int64_t taken;     /* steps below it are updated */
    int64_t wanted;    /* the state after so many steps; -1: nobody wants it */
    bool written;      /* it is in `state` */
    bool ending;       /* the main thread needs no more */
    const char *ended; /* "stopped" */
    int64_t arrived;   /* data.follow: samples that are noted on the disk */
    bool idle;         /* data.follow: no step comes before more of them do */
    bool rested;       /* the main thread knows it */
    ru_err why;        /* status other than RU_OK: it has failed */
} rui_functions_slot;

/* New files as samples (data.follow). */
typedef struct rui_functions_follow {
    ru_follow *files; /* under `lock`, but for looks; NULL: the samples are those of the job */
    ru_arena arena;
    ru_rundir run;  /* follow thread */
    ru_time looked; /* the last look began. The thread main, then follow */
    ru_thread thread;
    ru_log_file *log;  /* RUN/follow.jsonl. Loop thread */
    bool waits, spent; /* for samples; the budget. Loop thread */
    int64_t told;      /* arrived samples, as the log has them. Loop thread */
} rui_functions_follow;

/* What it costs. Loop thread. */
typedef struct rui_functions_money {
    double usd_per_gb_s;        /* now */
    double paid_usd, paid_gb_s; /* of GB-s at prices before that; these GB-s */
    ru_time looked;             /* at the file of the price, */
    bool unread;                /* which had none then */
    ru_time chosen_at;          /* the choice, */
    int64_t chosen_step;        /* behind so many steps */
    double chosen_usd;          /* spent before it */
    ru_log_file *log;           /* RUN/functions.jsonl */
    ru_time told;               /* its last line; ns 0: none */
} rui_functions_money;

typedef struct rui_functions {
    const ru_functions_train_options *opt;
    ru_arena *arena, loop_arena; /* of the threads main and loop */
    ru_summed_start run;         /* samples, batch: of the steps summed; of the next one */
    ru_thread thread;
    ru_mutex lock;
    ru_cond changed;
    rui_functions_slot slot;
    float *sums[RUI_FUNCTIONS_AHEAD]; /* [count] of step % RUI_FUNCTIONS_AHEAD */
    void *state;                      /* [state_bytes] */
    /* Loop thread. */
    ru_loop *loop;
    uint32_t waker;
    ru_function_host *host;
    ru_store *store;
    ru_func *machine;
    ru_shards shards;
    uint64_t job;
    char token[2 * RUI_FUNCTIONS_TOKEN + 1];
    const char *reach;
    uint32_t epoch;
    int64_t done;                        /* steps summed */
    uint32_t parts[RUI_FUNCTIONS_AHEAD]; /* sums that are there of the steps behind these */
    ru_keys *keys;                       /* bytes elsewhere; NULL: none */
    uint32_t fetching;                   /* sums on their way from there */
    struct rui_functions_held *held;     /* answers that wait for them */
    bool ending;
    bool busy, memory;     /* memory: a worker had too little */
    ru_func_choice choice; /* in force; workers 0: none yet */
    ru_func_scale scale;   /* with a deadline or a budget */
    rui_functions_follow follow;
    ru_time begun, epoch_at, summed_at; /* run, epoch, last step of it; ns 0: none */
    int64_t steps_ns, init_ns;          /* of the choice: its n_steps together; before the first */
    uint32_t n_steps;
    rui_functions_money money;
} rui_functions;

/* functions.c. Loop thread. */
void rui_functions_say(rui_functions *a, ru_func_word word, int64_t value, const void *data,
                       int64_t size_bytes);
/* Loop thread: a call has ended. */
void rui_functions_answered(rui_functions *a);
/* Any thread: the run ends with it. */
void rui_functions_fail(rui_functions *a, ru_status st, const char *text);
/* The run ends after the step that is done, with a checkpoint. */
void rui_functions_stop(rui_functions *a);
/* Loop thread: a sum of the current epoch is in its place. */
void rui_functions_part(rui_functions *a, int64_t step);
/* The state is in the store. */
void rui_functions_put_state(rui_functions *a, const ru_shard_key *k, const void *data,
                             int64_t size_bytes);
/* functions_keys.c. Loop thread: bytes elsewhere. The store answers; blocks. */
RU_MUST_USE ru_status rui_functions_keys_open(rui_functions *a, ru_err *err);
/* What the run has put there is removed, as far as it answers; blocks. */
void rui_functions_keys_close(rui_functions *a);
void rui_functions_dropped(void *self, const ru_shard_key *k);
/* Get `n` floats of a key into `into`, or put the state, without waiting. */
void rui_functions_fetch(rui_functions *a, const ru_shard_key *k, float *into, int64_t n);
void rui_functions_far_state(rui_functions *a, const ru_shard_key *k);
/* Is this answer kept until the sums before it are here? Then it comes as ANSWER later. */
bool rui_functions_holds(rui_functions *a, const ru_func_answer *ans);
/* functions_call.c. Loop thread: call a worker; its ANSWER follows. */
void rui_functions_call(rui_functions *a, const ru_func_call *call);
/* functions_follow.c. Main thread: wait for files that show what samples look like, *files in
 * a->follow.arena. Errors: RU_E_CANCELLED, RU_E_MISSING; those of the folder. */
RU_MUST_USE ru_status rui_functions_first(rui_functions *a, const char *const **files, uint32_t *n,
                                          ru_err *err);
/* The run has a folder; then its thread looks for files until slot.ending. */
RU_MUST_USE ru_status rui_functions_follow_open(rui_functions *a, ru_err *err);
RU_MUST_USE ru_status rui_functions_follow_start(rui_functions *a, ru_err *err);
void rui_functions_follow_close(rui_functions *a);
/* Loop thread: choose by the samples that are there, or wait for more. */
void rui_functions_follow_choose(rui_functions *a);
/* Loop thread: more of them may be there. */
void rui_functions_follow_more(rui_functions *a);
/* Loop thread: the files of a call. Owner: arena. */
RU_MUST_USE ru_status rui_functions_follow_files(rui_functions *a, const ru_func_call *call,
                                                 ru_arena *arena, ru_follow_part *out, ru_err *err);
/* functions_scale.c. Loop thread: what was chosen has run; choose what comes next. */
void rui_functions_choose(rui_functions *a);
/* A step is summed. */
void rui_functions_took(rui_functions *a, ru_time now);
/* The machine knows that it is: where the price has changed, choose again. */
void rui_functions_price(rui_functions *a, ru_time now);
/* A line of RUN/functions.jsonl, for `rubato top`, --metrics and explain. runs: calls are under
 * way. */
void rui_functions_note(rui_functions *a, ru_time now, bool runs);
/* What the run took and cost, in the log. */
void rui_functions_tell(rui_functions *a);

#endif
