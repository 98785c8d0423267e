/* The launcher of `rubato train -w`: worker processes of one job on this machine.
 *
 *   launcher --starts--> rubato worker --job OUT/job.yaml ...   (k of them, each on cores of its
 * own)
 *            <--lines--- JSON Lines of whoever leads; errors and words for people
 *
 * It decides nothing about the training: workers find each other and handle failures by themselves.
 * It starts newcomers only while fewer workers than the minimum live.
 *
 * Thread: main. */
#ifndef RU_LAUNCH_LAUNCH_H
#define RU_LAUNCH_LAUNCH_H

#include "launch/hosts.h"
#include "train/app/app_run.h"
#include "train/worker/worker.h"

typedef struct ru_launch_options {
    const ru_train_options *train;  /* of a job with an app without `job` */
    const ru_app_job_file *app;     /* NULL: a job with a model */
    uint32_t n_min, n_start, n_max; /* 1 <= n_min <= n_start <= n_max */
    uint32_t n_begin;               /* workers, those of other hosts too, before the first step */
    bool open;                      /* newcomers may join: say how */
    bool deterministic, equal_shares, sockets_only;
    bool transient;          /* this machine may be taken away: its workers join without a vote */
    const char *listen;      /* of the first worker; NULL: this machine only */
    const char *weights;     /* where guests get the first worker's weights; NULL: nowhere */
    const char *toward;      /* host:port on whose side the others are; NULL: not known */
    const char *join;        /* address of a job that others found; NULL: founded here */
    bool parts;              /* a pipeline or a placed step of n_max workers ... */
    const char *sets;        /* ... whose file of train/pipe/sets.h this is; NULL: none */
    int64_t after;           /* ... all go on after this step, on several hosts; 0: they do not */
    bool again;              /* ... and which lost a worker, and starts again ... */
    uint32_t spares;         /* ... with so many of the n_max that had joined it ... */
    const char *at;          /* ... where its first worker listened; NULL: not known */
    int64_t told, told_eval; /* last steps of which step and evaluation were told before that */
    /* A step was told: true when all workers should end, to start again; NULL: nobody asks. */
    bool (*told_step)(void *self, const char *out, double step_s);
    void (*told_spares)(void *self, uint32_t n); /* so many wait now; NULL: nobody asks */
    void *self;
    const char *join_if_taken; /* joined when `listen` is found taken; NULL: that is an error */
    const char *token;         /* NULL: a fresh one */
    const ru_hosts *hosts;     /* others than this machine get their workers over ssh; NULL: none */
    uint32_t rank_first;       /* of all workers of the job, those before the ones started here */
    int verbose;
} ru_launch_options;

typedef struct ru_launch_result {
    const char *out;         /* run directory */
    int code;                /* exit code of the job */
    bool lost;               /* it ended because workers were killed, or lost others */
    int64_t step, eval_step; /* the last that were told */
    const char *no_host;     /* on this one no worker could be started again; NULL: on all */
    uint32_t n_lost;         /* workers of this machine that were ended by a signal */
    uint32_t spares;         /* who had joined and waited */
    bool no_spare;           /* those who were to take part did not come */
    const char *at;          /* where its first worker listened; NULL: not known */
} ru_launch_result;

/* Run the job to its end. Errors: those of opening the run directory and of starting processes;
 * what workers say about their own failures is on stderr already, with the code in `out`. */
RU_MUST_USE ru_status ru_launch(const ru_launch_options *opt, ru_arena *arena,
                                ru_launch_result *out, ru_err *err);

enum { RU_TOKEN_MIN = 16, RU_TOKEN_MAX = 64 }; /* bytes: what TLS takes as a key */

/* Where kernel choices are kept from run to run: $XDG_CACHE_HOME/rubato or ~/.cache/rubato; NULL:
 * nowhere. */
const char *ru_choices_dir(ru_arena *arena);

/* A fresh token as text, or the one in a file (NULL: of RUBATO_TOKEN; "-": a line of stdin).
 * Errors: those of reading; RU_E_USAGE for one of another length than RU_TOKEN_MIN to RU_TOKEN_MAX
 * and for a file that other users can read. */
void ru_token_make(char into[2 * RU_TOKEN_BYTES + 1]);
RU_MUST_USE ru_status ru_token_get(const char *file, ru_arena *arena, const char **token,
                                   ru_err *err);

typedef struct ru_token {
    const char *text;
    const char *secret; /* file with the user's secret from which it was derived; NULL: it was given
                         */
} ru_token;

/* The token of a worker that another launcher starts beside others: as ru_token_get when a file or
 * RUBATO_TOKEN says it; else derived from this user's secret and the launch (ru_hosts_plan; NULL:
 * not known, so it must be given). Errors: those of ru_token_get; those of the secret. */
RU_MUST_USE ru_status ru_token_shared(const char *file, const char *launch, ru_arena *arena,
                                      ru_token *out, ru_err *err);

#endif
