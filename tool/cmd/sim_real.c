#include "tool/cmd/sim_real.h"

#include <stdio.h>
#include <string.h>

#include "env/process/process.h"
#include "env/process/self.h"
#include "launch/launch.h"

enum { CHILDREN_MAX = 255, ARGS_MAX = 40 };

typedef struct family {
    ru_cmd_in *in;
    const ru_sim_job *job;
    const char *token;
    ru_process *children[CHILDREN_MAX];
    uint32_t n;
    ru_status status;
    ru_err err;
} family;

/* The same command with `--join`: options that change the job go along. */
static const char *const *child_args(const family *f, const char *address, uint32_t number)
{
    ru_arena *a = f->in->arena;
    const char **argv = RU_NEW(a, const char *, ARGS_MAX + 1);
    uint32_t n = 0, n_policies;
    const char *const *policies = ru_cmd_texts(f->in, "policy", &n_policies);
    if (argv == NULL || n_policies > 8) {
        return NULL;
    }
    argv[n++] = "/proc/self/exe";
    argv[n++] = "sim";
    argv[n++] = f->in->args[0];
    argv[n++] = "--real";
    argv[n++] = "--join";
    argv[n++] = address;
    argv[n++] = "--rank";
    argv[n++] = ru_arena_printf(a, "%u", number);
    argv[n++] = "--workers";
    argv[n++] = ru_arena_printf(a, "%u", f->job->founders);
    argv[n++] = "--steps";
    argv[n++] = ru_arena_printf(a, "%lld", (long long)f->job->steps);
    argv[n++] = "--batch";
    argv[n++] = ru_arena_printf(a, "%lld", (long long)f->job->batch);
    for (uint32_t k = 0; k < n_policies; k++) {
        argv[n++] = "--policy";
        argv[n++] = policies[k];
    }
    for (uint32_t k = 0; k < n; k++) {
        if (argv[k] == NULL) {
            return NULL;
        }
    }
    return argv;
}

static void start_children(void *self, const char *address)
{
    family *f = self;
    const char *set[] = {ru_arena_printf(f->in->arena, "RUBATO_TOKEN=%s", f->token), NULL};
    const char *kept = ru_arena_str(f->in->arena, address);
    if (ru_cmd_given(f->in, "listen")) {
        (void)fprintf(stderr,
                      "waits for %u more: rubato sim WORLD --real --join %s --rank 2 --workers %u, "
                      "with the same RUBATO_TOKEN and options\n",
                      f->job->founders - 1, address, f->job->founders);
        return;
    }
    for (uint32_t k = 2; k <= f->job->founders && f->status == RU_OK; k++) {
        const char *const *argv = kept != NULL ? child_args(f, kept, k) : NULL;
        const ru_process_options o = {.argv = argv, .set = set};
        f->status =
            argv == NULL || set[0] == NULL
                ? RU_FAIL(&f->err, RU_E_MEM, "no memory to start %u processes", f->job->founders)
                : ru_process_start(&o, &f->children[f->n], &f->err);
        f->n += f->status == RU_OK;
    }
}

ru_status rui_sim_real(ru_cmd_in *in, const ru_sim_job *job, ru_script_run_result *into,
                       ru_err *err)
{
    char made[2 * RU_TOKEN_BYTES + 1];
    const char *join = ru_cmd_text(in, "join"), *token = made;
    family f = {.in = in, .job = job};
    if (job->founders > CHILDREN_MAX + 1) {
        return RU_FAIL(err, RU_E_USAGE, "--real runs at most %d processes, not %u",
                       CHILDREN_MAX + 1, job->founders);
    }
    if (join != NULL || ru_cmd_given(in, "listen")) {
        RU_TRY(ru_token_get(NULL, in->arena, &token, err));
    } else {
        ru_token_make(made);
    }
    f.token = token;
    const ru_script_run_options o = {.script = job->script,
                                     .batch = job->batch,
                                     .steps = job->steps,
                                     .founders = job->founders,
                                     .number = join == NULL ? 1 : (uint32_t)ru_cmd_i64(in, "rank"),
                                     .listen = ru_cmd_text(in, "listen"),
                                     .join = join,
                                     .token = (const uint8_t *)token,
                                     .token_bytes = (uint32_t)strlen(token),
                                     .equal_shares = job->equal_shares,
                                     .deterministic = job->deterministic,
                                     .sums = job->sums,
                                     .address = join == NULL ? start_children : NULL,
                                     .self = &f};
    ru_status st = ru_script_run(&o, into, err);
    for (uint32_t k = 0; k < f.n; k++) {
        (void)ru_process_wait(f.children[k]);
        ru_process_close(f.children[k]);
    }
    if (f.status != RU_OK) {
        return ru_err_set(err, f.status, "%s", f.err.text);
    }
    if (st == RU_OK && into->committed < job->steps) {
        return RU_FAIL(err, RU_E_PEER, "the real job ended after %lld of %lld steps",
                       (long long)into->committed, (long long)job->steps);
    }
    return st;
}
