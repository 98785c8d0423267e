/* Teams of processes that all-reduce on demand. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/wire/collective.h"
#include "env/process/process.h"

static const int64_t answer_max_ns = (int64_t)120 * 1000000000;

void rui_team_close(rui_team *t)
{
    for (uint32_t r = 0; r < t->n; r++) {
        if (t->p[r] != NULL && ru_process_write(t->p[r], "quit\n", 5, NULL) != RU_OK) {
            ru_process_kill(t->p[r], SIGKILL);
        }
    }
    for (uint32_t r = 0; r < t->n; r++) {
        if (t->p[r] != NULL) {
            (void)ru_process_wait(t->p[r]);
        }
        ru_process_close(t->p[r]);
        t->p[r] = NULL;
    }
    t->n = 0;
}

/* Threads of mathematics libraries have no place here. */
static const char *const unset[] = {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_NUM_THREADS",
                                    NULL};

ru_status rui_team_start_one(rui_team *t, const char *const *argv, ru_err *err)
{
    static const char *const set[] = {"OMPI_ALLOW_RUN_AS_ROOT=1",
                                      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", NULL};
    ru_process_options opt = {
        .argv = argv, .unset = unset, .set = set, .pipe_in = true, .pipe_out = true};
    RU_TRY(ru_process_start(&opt, &t->p[t->n], err));
    t->n++;
    return RU_OK;
}

/* The line "ready REST" of process r; REST in the arena. */
ru_status rui_team_ready(rui_team *t, uint32_t r, ru_arena *arena, const char **rest, ru_err *err)
{
    const char *line;
    RU_TRY(ru_process_line(t->p[r], answer_max_ns, &line, err));
    if (line == NULL || strncmp(line, "ready ", 6) != 0) {
        return RU_FAIL(err, RU_E_PEER, "%s did not start: '%s'", t->name, line != NULL ? line : "");
    }
    *rest = ru_arena_str(arena, line + 6);
    return RU_OK;
}

ru_status rui_team_run(rui_team *t, int64_t bytes, int64_t times, const char *extra,
                       double *per_op_s, ru_err *err)
{
    char line[128];
    int n = snprintf(line, sizeof line, "%lld %lld%s\n", (long long)bytes, (long long)times, extra);
    for (uint32_t r = 0; r < t->n; r++) {
        RU_TRY(ru_process_write(t->p[r], line, n, err));
    }
    for (uint32_t r = 0; r < t->n; r++) {
        const char *answer;
        RU_TRY(ru_process_line(t->p[r], answer_max_ns, &answer, err));
        double s = answer != NULL ? strtod(answer, NULL) : 0;
        if (!(s > 0)) {
            return RU_FAIL(err, RU_E_PEER, "%s answered '%s', seconds were expected", t->name,
                           answer != NULL ? answer : "");
        }
        *per_op_s = r == 0 ? s / (double)times : *per_op_s;
    }
    return RU_OK;
}
