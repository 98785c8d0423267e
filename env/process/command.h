/* A command that a loop runs beside its work, as squeue, or what starts a machine. Its words are
 * heard as they come, however many they are, and it ends with its process: one that gave its output
 * away is not waited for, and what it left running holds nobody up.
 *
 * Thread: loop only. */
#ifndef RU_ENV_COMMAND_H
#define RU_ENV_COMMAND_H

#include "env/loop/loop.h"
#include "env/process/process.h"

/* A piece of its output, of any size; not at the end of a line. */
typedef void (*ru_command_words_fn)(void *self, const char *bytes, int64_t n);

/* Owner: the caller; zeroed is none. It must not move while it runs. */
typedef struct ru_command {
    ru_loop *loop;
    ru_process *p; /* NULL: none runs */
    ru_time begun;
    bool over, late; /* the process has ended; it was killed as it took too long */
    bool whole;      /* its output has ended too: nobody else holds it, and all was heard */
    int code;
    ru_command_words_fn words; /* NULL: nobody listens */
    void *self;
    char line[256]; /* of its errors, the newest one as far as it has come */
    uint32_t n_line;
    char last[256]; /* the last whole one that is not empty, without control characters; "": none */
} ru_command;

/* `set`: NAME=VALUE more of its environment; may be NULL. Errors: those of ru_process_start. */
RU_MUST_USE ru_status ru_command_start(ru_command *c, ru_loop *loop, const char *const *argv,
                                       const char *const *set, ru_time now, ru_err *err);
/* *code of one that has ended; then none runs, and c->last stays until the next start. One that
 * takes longer than `patience_ns` is killed with all of its group. false: none has ended. */
bool ru_command_ended(ru_command *c, int64_t patience_ns, ru_time now, int *code);
void ru_command_close(ru_command *c); /* kills what runs, with all of its group */

#endif
