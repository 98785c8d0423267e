/* What a launcher needs before it starts workers: their cores, and the folder of the run. */
#include "launch/launch_impl.h"

#include <string.h>

#include "env/thread.h"
#include "exec/pool.h"

/* Disjoint cores for every worker, when there are enough; else nobody is pinned. */
ru_status rui_share_cores(rui_launcher *l, ru_err *err)
{
    uint32_t cores = ru_pool_cores(), asked = rui_threads_asked(l);
    l->threads = asked != 0 ? asked : cores / l->opt->n_start;
    l->threads = l->threads > 0 ? l->threads : 1;
    uint32_t ids[64], n = ru_thread_cores_list(ids, 64);
    while (n > 0 && ids[n - 1] > 63) {
        n--;
    }
    if ((uint64_t)l->threads * l->opt->n_start > n || l->threads > n) {
        return RU_OK;
    }
    l->cores = RU_NEW(l->arena, uint64_t, l->opt->n_max);
    if (l->cores == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the launcher");
    }
    for (uint32_t k = 0; k < l->opt->n_max; k++) {
        for (uint32_t t = 0; t < l->threads && (k + 1) * l->threads <= n; t++) {
            l->cores[k] |= UINT64_C(1) << ids[k * l->threads + t];
        }
    }
    return RU_OK;
}

/* The run directory, which the children claim with the same token. */
ru_status rui_open_place(rui_launcher *l, ru_err *err)
{
    char *token = ru_arena_zalloc(l->arena, 2 * RU_TOKEN_BYTES + 1, 1);
    if (token == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the launcher");
    }
    ru_token_make(token);
    l->token = l->opt->token != NULL ? l->opt->token : token;
    uint64_t key = ru_worker_key((const uint8_t *)l->token, (uint32_t)strlen(l->token));
    if (l->opt->app != NULL) {
        const ru_app_train_options ao = {
            .file = l->opt->app,
            .out = l->opt->train->out,
            .resume = l->opt->train->resume,
            .dir_made = l->opt->train->dir_made,
            .dir_shared = l->opt->train->dir_shared,
        };
        RU_TRY(ru_app_place(&ao, key, l->arena, &l->place.out, &l->place.claim, err));
    } else {
        RU_TRY(ru_train_dir(l->opt->train, key, l->arena, &l->place, err));
    }
    l->out = l->place.out;
    const char *path = ru_path_join(l->arena, l->out, "token");
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the launcher");
    }
    if (l->opt->join == NULL) { /* else whoever founded the job keeps it for those who join */
        RU_TRY(ru_file_secret(path, l->token, (int64_t)strlen(l->token), err));
    }
    const ru_run_opened *o = &l->opt->train->opened;
    return o->fn != NULL ? o->fn(o->self, l->out, err) : RU_OK;
}
