#include "tool/functions.h"

#include <string.h>

#include "env/file/file.h"
#include "env/link/link_tcp.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "fleet/exchange/shards.h"
#include "fleet/functions.h"

/* own, redis://HOST:PORT, rediss://HOST:PORT or s3://BUCKET/PREFIX */
static ru_status check_store(const char *at, ru_err *err)
{
    uint32_t scheme = strncmp(at, "redis://", 8) == 0    ? 8
                      : strncmp(at, "rediss://", 9) == 0 ? 9
                                                         : 0;
    if (scheme > 0 && strchr(at, '@') != NULL) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--store redis://...@...: others see options; put the password into the "
                       "environment as REDISCLI_AUTH");
    }
    return strcmp(at, "own") == 0 || (strncmp(at, "s3://", 5) == 0 && at[5] != '\0') ||
                   (scheme > 0 && at[scheme] != ':' && ru_link_tcp_address_ok(at + scheme))
               ? RU_OK
               : RU_FAIL(err, RU_E_USAGE,
                         "--store %s: expected own, redis://HOST:PORT, rediss://HOST:PORT or "
                         "s3://BUCKET/PREFIX",
                         at);
}

ru_status rui_check_functions(ru_cmd_in *in, ru_err *err)
{
    static const char *const own[] = {"function-name", "sign",         "memory",      "life",
                                      "store",         "store-listen", "store-reach", "deadline",
                                      "budget",        "usd-gb-s",     "usd-call"};
    static const char *const others[] = {
        "hosts",      "nnodes",       "nproc-per-node", "rdzv-endpoint", "master-addr",
        "standalone", "listen",       "weights",        "beside",        "find-lr",
        "sockets",    "equal-shares", "resume-from",    "tier"};
    const char *at = ru_cmd_text(in, "functions");
    for (uint32_t k = 0; at == NULL && k < RU_ARRAY_LEN(own); k++) {
        bool bounds = strcmp(own[k], "memory") == 0;
        if (ru_cmd_given(in, own[k]) && !(bounds && ru_cmd_given(in, "beside"))) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--%s goes with --functions%s; add it or leave this out", own[k],
                           bounds ? " or --beside" : "");
        }
    }
    if (at == NULL) {
        return RU_OK;
    }
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
    for (uint32_t k = 0; k < 2 && strcmp(at, "local") == 0; k++) { /* own: they stand first */
        if (ru_cmd_given(in, own[k])) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--%s goes with --functions URL; add it or leave this out", own[k]);
        }
    }
    if (ru_cmd_given(in, "deadline") && ru_cmd_i64(in, "deadline") == 0) {
        return RU_FAIL(err, RU_E_USAGE, "--deadline 0s: expected a time, as in --deadline 2h");
    }
    RU_TRY(check_store(ru_cmd_text(in, "store"), err));
    return RU_OK;
}

/* Functions elsewhere must be told how to reach the store. */
static ru_status check_reach(ru_cmd_in *in, const char *at, ru_err *err)
{
    bool here = strcmp(at, "local") == 0 || strstr(at, "//127.") != NULL ||
                strstr(at, "//localhost") != NULL || strstr(at, "//[::1]") != NULL;
    return here || ru_cmd_given(in, "store-reach")
               ? RU_OK
               : RU_FAIL(err, RU_E_USAGE,
                         "functions at %s cannot reach the own store by the address of this "
                         "machine alone; add --store-listen :PORT and --store-reach HOST:PORT",
                         at);
}

/* --memory 512:3584:512 */
static ru_status read_memory(ru_cmd_in *in, ru_func_scale_options *o, ru_err *err)
{
    const char *text = ru_cmd_text(in, "memory");
    ru_str rest = ru_str_c(text), part;
    double mb[3] = {0, 0, 512};
    uint32_t n = 0;
    bool ok = true;
    while (ok && ru_str_next(&rest, ':', &part)) {
        ok = n < 3 && ru_str_f64(part, &mb[n]) && mb[n] >= 64 && mb[n] <= 1e6;
        n++;
    }
    o->memory_min_mb = mb[0];
    o->memory_max_mb = n > 1 ? mb[1] : mb[0];
    o->memory_step_mb = mb[2];
    return ok && n > 0 && o->memory_max_mb >= mb[0]
               ? RU_OK
               : RU_FAIL(err, RU_E_USAGE,
                         "--memory %s: expected MB[:MB[:STEP]] from 64 MB on, as in --memory "
                         "512:2048:512",
                         text);
}

/* --budget 3usd */
static ru_status read_budget(ru_cmd_in *in, ru_func_scale_options *o, ru_err *err)
{
    const char *text = ru_cmd_text(in, "budget");
    if (text == NULL) {
        return RU_OK;
    }
    ru_str t = ru_str_c(text);
    t.n -= ru_str_ends(t, "usd") ? 3 : 0;
    return ru_str_f64(t, &o->budget_usd) && o->budget_usd > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_USAGE, "--budget %s: expected US dollars, as in --budget 3usd",
                         text);
}

/* --usd-gb-s 1.66667e-5, or a file: *file. */
static ru_status read_price(ru_cmd_in *in, ru_func_scale_options *o, const char **file, ru_err *err)
{
    const char *text = ru_cmd_text(in, "usd-gb-s");
    bool number = ru_str_f64(ru_str_c(text), &o->usd_per_gb_s);
    if (!number && ru_path_is_file(text)) {
        *file = text;
        return ru_functions_price(text, &o->usd_per_gb_s, err);
    }
    return number && o->usd_per_gb_s > 0 && o->usd_per_gb_s < 1
               ? RU_OK
               : RU_FAIL(err, RU_E_USAGE,
                         "--usd-gb-s %s: expected US dollars for a GB-s, as in --usd-gb-s "
                         "1.66667e-5, or a file that has them",
                         text);
}

static ru_status read_scale(ru_cmd_in *in, const ru_job *job, uint32_t workers_min,
                            uint32_t workers_max, ru_func_scale_options *o, ru_err *err)
{
    *o = (ru_func_scale_options){.workers_min = workers_min,
                                 .workers_max = workers_max,
                                 .deadline_ns = ru_cmd_i64(in, "deadline"),
                                 .life_ns = ru_cmd_i64(in, "life"),
                                 .usd_per_call = ru_cmd_f64(in, "usd-call")};
    RU_TRY(read_memory(in, o, err));
    RU_TRY(read_budget(in, o, err));
    if (workers_max > RU_SHARD_WORKERS_MAX) {
        return RU_FAIL(err, RU_E_USAGE, "-w %s: --functions takes at most %d workers",
                       ru_cmd_text(in, "workers"), RU_SHARD_WORKERS_MAX);
    }
    bool follows = job->data.follow_ns > 0, memories = o->memory_min_mb != o->memory_max_mb;
    if (follows && memories) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--memory %s: with data.follow workers are chosen by the samples that wait, "
                       "and their memory is not; expected --memory MB",
                       ru_cmd_text(in, "memory"));
    }
    bool many = (workers_min != workers_max && !follows) || memories;
    return !many || o->deadline_ns > 0 || o->budget_usd > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_USAGE,
                         "-w MIN:MAX and --memory MB:MB leave a choice with --functions; say by "
                         "what it is made: --deadline 2h or --budget 3usd");
}

ru_status rui_train_functions(ru_cmd_in *in, const ru_train_options *to, const ru_hosts_plan *plan,
                              ru_err *err)
{
    if (plan->is_worker) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--functions needs one process, but this one is a worker of several, by "
                       "what its environment says (%s)",
                       plan->line);
    }
    const char *at = ru_cmd_text(in, "functions");
    const char *self = ru_process_beside(in->arena, "rubato", "tool");
    if (self == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "the program rubato is not where this one is");
    }
    const char *const argv[] = {self, "function", "--train", "--listen", "0", NULL};
    ru_functions_train_options o = {
        .train = to,
        .argv = argv,
        .url = strcmp(at, "local") == 0 ? NULL : at,
        .name = ru_cmd_text(in, "function-name"),
        .sign = ru_cmd_flag(in, "sign"),
        .listen = ru_cmd_text(in, "store-listen"),
        .reach = ru_cmd_text(in, "store-reach"),
        .keys = strcmp(ru_cmd_text(in, "store"), "own") != 0 ? ru_cmd_text(in, "store") : NULL,
    };
    RU_TRY(check_reach(in, at, err));
    RU_TRY(read_scale(in, to->job, plan->workers_min, plan->workers_max, &o.scale, err));
    RU_TRY(read_price(in, &o.scale, &o.price, err));
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
