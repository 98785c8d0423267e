/* Training on functions: `rubato train --functions`. This process keeps the run and calls functions
 * that compute its steps (fleet/func.h has the rounds, train/driver/summed.h the run).
 *
 *   main thread   ru_train_summed: updates, checkpoints, evaluations, reports
 *   loop thread   instances and calls (function/host.h), the machine, the own store
 *                 (fleet/exchange/store.h)
 *
 * With a deadline or a budget the policy `scale` chooses workers and memory, from measurements that
 * are steps of the run, anew when the price changes. A run whose budget does not suffice stops with
 * a checkpoint.
 *
 * A step counts when all sums of it are in the store; then the main thread makes its update, and
 * workers make theirs. Workers are at most three steps ahead of the main thread.
 *
 * With data.follow a third thread looks for new files (fleet/follow.h). Workers are called for the
 * samples that wait, so many by their number, and none while no step can be made of them. Deadline
 * and budget end such a run.
 *
 * A run that fails saves a checkpoint of the steps that are done.
 *
 * Thread: main. */
#ifndef RU_FLEET_FUNCTIONS_H
#define RU_FLEET_FUNCTIONS_H

#include "fleet/func_scale.h"
#include "function/pool.h"
#include "train/driver/trainer.h"

typedef struct ru_functions_train_options {
    const ru_train_options *train;
    ru_func_scale_options scale; /* without deadline and budget: its smallest choice alone */
    const char *const *argv;     /* NULL-terminated, of an instance here; used where url is NULL */
    const char *url, *name;      /* of an endpoint; NULL: instances here */
    bool sign;
    const char *listen; /* of the store, as ru_http_options */
    const char *keys;   /* redis:// or s3://: gradients cross there (web/keys.h); NULL: own store */
    const char *reach;  /* HOST:PORT under which functions reach it; NULL: where it listens */
    const char *price;  /* file with scale.usd_per_gb_s, read again each second; NULL: none */
} ru_functions_train_options;

/* Does the policy `scale` choose workers and memory? It needs to know how many steps there are. */
static inline bool ru_functions_scales(const ru_functions_train_options *o)
{
    return (o->scale.deadline_ns > 0 || o->scale.budget_usd > 0) &&
           o->train->job->data.follow_ns == 0;
}

/* What the file `price` says. Errors: RU_E_DATA for anything but a price, those of the file. */
RU_MUST_USE ru_status ru_functions_price(const char *path, double *out, ru_err *err);
/* Until all steps are done, or the job ends before. Errors: those of ru_train_summed; RU_E_PEER
 * when functions fail again and again, RU_E_MEM when they need more memory, those of the store. */
RU_MUST_USE ru_status ru_functions_train(const ru_functions_train_options *opt, ru_arena *arena,
                                         ru_train_result *out, ru_err *err);

#endif
