/* A federation as processes: a server and its clients, which the rows of `rubato bench fleet`
 * start.
 *
 * Thread: main only. */
#ifndef RU_BENCH_TRAIN_FLEET_RIG_H
#define RU_BENCH_TRAIN_FLEET_RIG_H

#include "bench/bench.h"
#include "env/process/process.h"

enum { RUI_FLEET_CLIENTS_MAX = 100, RUI_FLEET_WORDS_MAX = 8 };

typedef struct rui_fleet {
    ru_bench *b;
    const char *name; /* of its files in the benchmark's folder */
    const char *run, *lines, *address;
    const char *listen;           /* NULL: a free port of this machine */
    const char *const *server_in; /* words before the server's command, NULL at the end; or NULL */
    ru_process *server, *client[RUI_FLEET_CLIENTS_MAX];
} rui_fleet;

const char *rui_fleet_path(const rui_fleet *r, const char *name);
/* The job, as NAME.yaml. */
RU_MUST_USE ru_status rui_fleet_open(rui_fleet *r, const char *job, ru_err *err);
/* Token and samples of client k: `data`, the text of its file. */
RU_MUST_USE ru_status rui_fleet_client(const rui_fleet *r, uint32_t k, const char *data,
                                       ru_err *err);
/* A server for a new run, with these keys of the job (n times KEY=VALUE). */
RU_MUST_USE ru_status rui_fleet_serve(rui_fleet *r, const char *const *sets, uint32_t n,
                                      ru_err *err);
/* in: words before the command of client k, NULL at the end; or NULL. */
RU_MUST_USE ru_status rui_fleet_join(rui_fleet *r, uint32_t k, const char *const *in, ru_err *err);
/* The rounds that are done, and their seconds together; skip: not counted of the first ones. */
RU_MUST_USE ru_status rui_fleet_look(const rui_fleet *r, uint32_t skip, uint32_t *rounds,
                                     double *seconds, ru_err *err);
/* Wait for the server's end. Errors: RU_E_USER for another code than 0. */
RU_MUST_USE ru_status rui_fleet_wait(rui_fleet *r, ru_err *err);
void rui_fleet_close(rui_fleet *r); /* all processes */

#endif
