/* Jobs on real workers in the network laboratory (test/lab/net.sh): each worker on a host of its
 * own behind a shaped link, or all on one host.
 *
 * Thread: main only. */
#ifndef RU_BENCH_LAB_RUN_H
#define RU_BENCH_LAB_RUN_H

#include "base/str.h"
#include "bench/bench.h"

enum { RU_LAB_WORKERS_MAX = 4 };

typedef struct ru_lab_run {
    ru_bench *b;
    const char *script, *self, *dir;
    char lab[16];
} ru_lab_run;

typedef struct ru_lab_scene {
    uint32_t workers;                      /* <= RU_LAB_WORKERS_MAX */
    bool one_host;                         /* all on one host, over its loopback */
    const char *const *up;                 /* options of `net.sh up`, NULL at the end; NULL: none */
    const char *quota[RU_LAB_WORKERS_MAX]; /* percent of a core of each worker; NULL: no quota */
    const char *const *peer; /* another program, NULL at the end, which gets --rank K --world N
                                --address HOST --port P behind it; NULL: `rubato worker` */
} ru_lab_scene;

typedef struct ru_lab_told {
    char line[8192];                        /* the last one that the first worker said */
    int64_t peak_bytes[RU_LAB_WORKERS_MAX]; /* largest resident size of each, as it told last: since
                                               it last wrote 5 to its clear_refs */
} ru_lab_told;

/* A folder `name`, as the benchmark is called, for inputs and runs. Errors: RU_E_MISSING: no
 * laboratory here, or, where `quotas` are wanted, none with control groups. */
RU_MUST_USE ru_status ru_lab_run_open(ru_bench *b, const char *name, bool quotas, ru_lab_run *out,
                                      ru_err *err);
/* Data in `dir`: digits, noise and text, where they are not there yet. */
RU_MUST_USE ru_status ru_lab_run_inputs(const ru_lab_run *t, ru_err *err);
/* dir/name.yaml; @ in `data` becomes the folder. `train`: further keys of that section. */
RU_MUST_USE ru_status ru_lab_run_job(const ru_lab_run *t, const char *name, const char *model,
                                     const char *data, const char *train, const char **path,
                                     ru_err *err);
/* Run the job to its end; `out` is its run, which is removed before; of a peer neither is looked
 * at. `told` may be NULL. Errors: RU_E_AGAIN after half an hour. */
RU_MUST_USE ru_status ru_lab_run_scene(const ru_lab_run *t, const ru_lab_scene *s, const char *yaml,
                                       const char *out, ru_lab_told *told, ru_err *err);
/* Seconds [max] of the steps that a run reported. */
RU_MUST_USE ru_status ru_lab_run_steps(const ru_lab_run *t, const char *out, double *s,
                                       uint32_t max, uint32_t *n, ru_err *err);
/* Run a command to its end. *said: its last line; NULL: what it says goes nowhere. */
RU_MUST_USE ru_status ru_lab_run_command(const ru_lab_run *t, const char *const *argv,
                                         const char **said, ru_err *err);

/* Profiles of a job under quotas [n], in percent of a core, in the group that a worker gets: types
 * cpu40, .. in the file `facts`. `set`: a key of the job that is other meanwhile; NULL: none. */
RU_MUST_USE ru_status ru_lab_run_profile(const ru_lab_run *t, const char *yaml, const char *set,
                                         const char *const *quota, uint32_t n, const char *facts,
                                         ru_err *err);

/* The laboratory alone, for processes of the caller's: `hosts` hosts with these options. It goes
 * with this process, or before with ru_lab_run_down. */
RU_MUST_USE ru_status ru_lab_run_up(const ru_lab_run *t, uint32_t hosts, const char *const *up,
                                    ru_err *err);
/* That rate, as tc writes it, on the link of a host, both ways. */
RU_MUST_USE ru_status ru_lab_run_rate(const ru_lab_run *t, uint32_t host, const char *rate,
                                      ru_err *err);
void ru_lab_run_down(const ru_lab_run *t);

#endif
