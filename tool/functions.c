#include "tool/functions.h"

#include <string.h>

#include "env/process/process.h"
#include "env/process/self.h"
#include "fleet/functions.h"
#include "fleet/shards.h"

static ru_status check(ru_cmd_in *in, uint32_t workers, ru_err *err)
{
    static const char *const others[] = {
        "hosts",      "nnodes",       "nproc-per-node", "rdzv-endpoint", "master-addr",
        "standalone", "listen",       "weights",        "beside",        "find-lr",
        "sockets",    "equal-shares", "resume-from",    "tier"};
    const char *at = ru_cmd_text(in, "functions"), *w = ru_cmd_text(in, "workers");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(others); k++) {
        if (ru_cmd_given(in, others[k])) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--functions does not go with --%s; leave one of them out", others[k]);
        }
    }
    if (strcmp(at, "local") != 0 && strncmp(at, "http://", 7) != 0 &&
        strncmp(at, "https://", 8) != 0) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--functions %s: expected local, or an address as in --functions "
                       "http://127.0.0.1:3002",
                       at);
    }
    if (strcmp(ru_cmd_text(in, "store"), "own") != 0) {
        return RU_FAIL(err, RU_E_USAGE, "--store %s: expected own", ru_cmd_text(in, "store"));
    }
    if (workers >= RU_SHARD_WORKERS_MAX || strchr(w, ':') != NULL) {
        return RU_FAIL(err, RU_E_USAGE,
                       "-w %s: with --functions it is one number of workers, at most %d", w,
                       RU_SHARD_WORKERS_MAX - 1);
    }
    return RU_OK;
}

ru_status rui_train_functions(ru_cmd_in *in, const ru_train_options *to, uint32_t workers,
                              ru_err *err)
{
    RU_TRY(check(in, workers, err));
    const char *at = ru_cmd_text(in, "functions");
    const char *self = ru_process_beside(in->arena, "rubato", "tool");
    if (self == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "the program rubato is not where this one is");
    }
    const char *const argv[] = {self, "function", "--train", NULL};
    const ru_functions_train_options o = {
        .train = to,
        .workers = workers,
        .memory_mb = (uint32_t)ru_cmd_i64(in, "memory"),
        .life_ns = ru_cmd_i64(in, "life"),
        .argv = argv,
        .url = strcmp(at, "local") == 0 ? NULL : at,
        .name = ru_cmd_text(in, "function-name"),
        .sign = ru_cmd_flag(in, "sign"),
        .listen = ru_cmd_text(in, "store-listen"),
        .reach = ru_cmd_text(in, "store-reach"),
    };
    ru_train_result result;
    ru_self_stop_watch();
    ru_status st = ru_functions_train(&o, in->arena, &result, err);
    ru_self_stop_unwatch();
    RU_TRY(st);
    if (!to->json) {
        ru_self_tell(result.out, (int64_t)strlen(result.out));
        ru_self_tell("\n", 1);
    }
    return RU_OK;
}
