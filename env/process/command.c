#include "env/process/command.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

enum { READABLE = 1, PIECE = 16 << 10, PIECES = 64 }; /* the kernel's pipes hold at most 1 MiB */

static void hear_errors(ru_command *c, const char *bytes, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        if (bytes[k] == '\n' && c->n_line > 0) {
            memcpy(c->last, c->line, sizeof c->last);
            c->n_line = 0;
        } else if (bytes[k] != '\n' && c->n_line < sizeof c->line - 1) {
            bool control = (uint8_t)bytes[k] < ' ' || bytes[k] == 0x7f; /* logs are on terminals */
            c->line[c->n_line++] = control ? ' ' : bytes[k];
        }
        c->line[c->n_line] = 0;
    }
}

/* A piece of one stream, if any is there; false: there is none now, or never again. */
static bool hear(ru_command *c, bool errors)
{
    char bytes[PIECE];
    int64_t n = ru_process_read(c->p, errors, bytes, sizeof bytes);
    if (n < 0) { /* it would be told again and again */
        c->whole = c->whole || !errors;
        ru_loop_fd_off(c->loop, ru_process_fd(c->p, errors));
    } else if (errors) {
        hear_errors(c, bytes, n);
    } else if (c->words != NULL && n > 0) {
        c->words(c->self, bytes, n);
    }
    return n > 0;
}

static void on_words(void *self, int fd, uint32_t events, ru_time now)
{
    ru_command *c = self;
    (void)events;
    (void)now;
    (void)hear(c, fd == ru_process_fd(c->p, true));
}

static void quiet(ru_command *c)
{
    ru_loop_fd_off(c->loop, ru_process_fd(c->p, false));
    ru_loop_fd_off(c->loop, ru_process_fd(c->p, true));
}

/* What it said before its end is in the pipes; others may write there for ever. */
static void on_end(void *self, int64_t pid, ru_time now)
{
    ru_command *c = self;
    (void)now;
    if (c->p == NULL || ru_process_id(c->p) != pid) {
        return; /* it was closed meanwhile */
    }
    for (uint32_t k = 0; k < PIECES && hear(c, false); k++) {
    }
    for (uint32_t k = 0; k < PIECES && hear(c, true); k++) {
    }
    hear_errors(c, "\n", 1);
    quiet(c);
    c->code = ru_process_wait(c->p);
    c->over = true;
}

ru_status ru_command_start(ru_command *c, ru_loop *loop, const char *const *argv,
                           const char *const *set, ru_time now, ru_err *err)
{
    RU_CHECK(c->p == NULL);
    c->loop = loop;
    c->begun = now;
    c->over = c->late = c->whole = false;
    c->n_line = 0;
    c->line[0] = c->last[0] = 0;
    const ru_process_options po = {.argv = argv,
                                   .set = set,
                                   .pipe_in = true,
                                   .pipe_out = true,
                                   .pipe_err = true,
                                   .own_group = true};
    RU_TRY(ru_process_start(&po, &c->p, err));
    ru_status st = ru_loop_child(loop, ru_process_id(c->p), on_end, c, err);
    for (uint32_t errors = 0; errors < 2 && st == RU_OK; errors++) {
        st = ru_loop_fd(loop, ru_process_fd(c->p, errors != 0), READABLE, on_words, c, err);
    }
    if (st != RU_OK) {
        ru_command_close(c);
    }
    return st;
}

static void kill_all(const ru_command *c)
{
    ru_process_kill(c->p, SIGKILL);
    (void)kill((pid_t)-ru_process_id(c->p), SIGKILL);
}

bool ru_command_ended(ru_command *c, int64_t patience_ns, ru_time now, int *code)
{
    if (c->p == NULL) {
        return false;
    }
    if (!c->over) {
        if (!c->late && ru_time_since(now, c->begun) >= patience_ns) {
            c->late = true; /* its end is told by the loop */
            kill_all(c);
        }
        return false;
    }
    if (c->late) {
        (void)snprintf(c->last, sizeof c->last, "no end in %lld s",
                       (long long)(patience_ns / 1000000000));
    }
    *code = c->code;
    ru_process_close(c->p);
    c->p = NULL;
    return true;
}

void ru_command_close(ru_command *c)
{
    if (c->p != NULL) {
        quiet(c);
        if (!c->over) { /* the group is its own as long as nobody has waited for it */
            kill_all(c);
        }
        ru_process_close(c->p);
        c->p = NULL;
    }
}
