/* Inside of the launcher: its state, and the command lines of workers (command.c).
 *
 * Thread: main. */
#ifndef RU_LAUNCH_LAUNCH_IMPL_H
#define RU_LAUNCH_LAUNCH_IMPL_H

#include "env/file/file.h"
#include "env/loop/loop.h"
#include "env/process/process.h"
#include "launch/fold.h"
#include "launch/launch.h"
#include "run/live.h"
#include "run/message.h"

enum { RUI_ARGS_MAX = 64 };

/* Bytes that wait. */
typedef struct rui_stream {
    char *at;
    int64_t n;
} rui_stream;

typedef struct rui_child {
    struct rui_launcher *l;
    ru_process *p;
    uint32_t rank;    /* 1, 2, ... in order of starting */
    uint32_t number;  /* of the worker in the job; 0: it is not in yet */
    uint32_t slot;    /* of cores */
    const char *host; /* started there over ssh; NULL: this machine */
    ru_msg_in *in;    /* its messages */
    rui_stream early; /* what it said to people before it had a number */
    ru_log_file *log;
    char address[128]; /* where it listens; "": not known yet */
    bool alive, led;   /* led: it reported steps */
    bool told_end;     /* it wrote the summary */
} rui_child;

typedef struct rui_launcher {
    const ru_launch_options *opt;
    ru_arena *arena;
    ru_loop *loop;
    ru_fold *fold;
    ru_live live;
    ru_train_place place;
    const char *out, *exe, *token;
    rui_child *children; /* [n_children] */
    uint32_t n_children, n_alive, threads;
    uint64_t *cores;  /* [n_max] mask of each slot */
    bool begun;       /* the first step was reported, or the start */
    bool told_end;    /* a worker here wrote the summary */
    int end_code;     /* with which it ended: 0, or what became of the run's files */
    int led_code;     /* of a worker here that led and failed; 0: none */
    rui_child *leads; /* here, the newest that reported; NULL: none */
    bool lingers;     /* the job is over, and the rest has LINGER_NS to end */
    int64_t doubted;  /* the newest view when a member of it ended; -1: none did */
    bool decided;     /* it ended by itself, not by a signal or for want of others */
    bool summary;     /* the job ended well: a worker here wrote the summary, or ended with it */
    bool stopping;
    const char *no_host;     /* ssh could not start a worker there when all started again */
    uint32_t n_lost;         /* workers of this machine that were killed by others */
    uint32_t spares;         /* who waits to join a pipeline or placed step */
    bool no_spare;           /* those who were to take part did not come */
    bool lost;               /* a worker was killed, or lost another one */
    bool ends_all;           /* ... and the others were ended, for no stage can be missing */
    bool founded;            /* the other founders were started */
    int64_t told, told_eval; /* the last step and evaluation that were told on stdout */
    int64_t drawn;           /* the last step on the live line */
    ru_time drawn_at;
    ru_msg_view view;  /* the newest that a worker here told */
    char outside[128]; /* address of a worker that was not started here; "": none is known */
    int code;          /* of the first child that failed */
    ru_status status;
    ru_err err;
} rui_launcher;

typedef struct rui_words {
    const char *at[RUI_ARGS_MAX];
    uint32_t n;
    ru_arena *arena;
} rui_words;

/* command.c: how a worker is started here, and on another host. Texts in `w->arena`. */
void rui_command_line(rui_launcher *l, const rui_child *c, const char *join, bool newcomer,
                      rui_words *w);
void rui_remote_line(rui_launcher *l, const rui_child *c, const char *join, rui_words *w);
uint32_t rui_threads_asked(const rui_launcher *l);
/* launch_place.c: cores of each worker; the run's folder, which they claim with the same token. */
RU_MUST_USE ru_status rui_share_cores(rui_launcher *l, ru_err *err);
RU_MUST_USE ru_status rui_open_place(rui_launcher *l, ru_err *err);

#endif
