/* rubato function: a model as the program of a function, for `rubato serve --functions` and for
 * platforms that call their functions over HTTP or hand out calls over Lambda's runtime API. */
#include <stdio.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/str.h"
#include "base/unit.h"
#include "env/process/self.h"
#include "fleet/func_worker.h"
#include "function/host.h"
#include "function/instance.h"
#include "function/runtime.h"
#include "serve/far/called.h"
#include "tool/cmd.h"
#include "tool/serve/source.h"

enum { SIZES_MAX = 16, MEMORY_MAX_MB = 10000000 };

typedef struct session {
    ru_loop *loop;
    ru_function_instance *instance; /* that listens, */
    ru_function_runtime *runtime;   /* ... or asks for calls */
    ru_served *model[SIZES_MAX];    /* [n] by size, the whole one last */
    ru_called called;
    ru_func_worker *trains;
} session;

static void on_signal(void *self, int fd, uint32_t events, ru_time now)
{
    session *s = self;
    (void)events;
    (void)now;
    ru_loop_fd_off(s->loop, fd);
    ru_loop_stop(s->loop);
}

/* An instance that answers computes nothing else: all opens before. */
static ru_status open_sizes(session *s, const ru_source *source, ru_served_options o, ru_err *err)
{
    uint32_t n = s->called.n;
    o.sizes = n > 1; /* then it says how large requests may be */
    RU_TRY(ru_served_open(source, &o, &s->model[n - 1], err));
    RU_TRY(ru_served_first(s->model[n - 1], err));
    RU_TRY(ru_served_grow(s->model[n - 1], err));
    int64_t most = ru_served_facts_get(s->model[n - 1])->size_max;
    if (n > 1 && most < n) {
        return RU_FAIL(err, RU_E_USAGE, "--sizes %u: requests for this model have %s", n,
                       most > 0 ? "fewer sizes" : "one size");
    }
    o.sizes = false;
    o.like = s->model[n - 1];
    for (uint32_t k = 0; k + 1 < n; k++) {
        o.length = ru_called_bound(most, n, k);
        RU_TRY(ru_served_open(source, &o, &s->model[k], err));
        RU_TRY(ru_served_first(s->model[k], err));
        RU_TRY(ru_served_grow(s->model[k], err));
    }
    return RU_OK;
}

static ru_status open_model(session *s, const ru_cmd_in *in, ru_err *err)
{
    const rui_served_source_options so = {.exe = {.threads = (uint32_t)ru_cmd_i64(in, "threads")}};
    const ru_served_options o = {
        .exe = so.exe, .instances = 1, .rows_max = ru_cmd_i64(in, "batch")};
    ru_source source;
    RU_TRY(rui_served_source_open(in->args[0], &so, &source, err));
    s->called = (ru_called){s->model, (uint32_t)ru_cmd_i64(in, "sizes")};
    return open_sizes(s, &source, o, err);
}

/* As the one who started it says, or the platform. */
static int64_t memory_mb(const session *s, const ru_cmd_in *in)
{
    const char *text = s->runtime != NULL ? ru_conf_env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE") : NULL;
    int64_t mb = 0;
    bool says = text != NULL && !ru_cmd_given(in, "memory") && ru_str_i64(ru_str_c(text), &mb) &&
                mb > 0 && mb <= MEMORY_MAX_MB;
    return says ? mb : ru_cmd_i64(in, "memory");
}

/* Threads that compute: as many as the memory brings cores. */
static ru_status open_worker(session *s, const ru_cmd_in *in, ru_err *err)
{
    int64_t cores = (memory_mb(s, in) + RU_FUNCTION_CORE_MB - 1) / RU_FUNCTION_CORE_MB;
    int64_t threads = ru_cmd_given(in, "threads") || cores == 0 ? ru_cmd_i64(in, "threads") : cores;
    return ru_func_worker_open((uint32_t)threads, in->arena, &s->trains, err);
}

static ru_status open_what(session *s, const ru_cmd_in *in, ru_err *err)
{
    bool trains = ru_cmd_flag(in, "train");
    if (trains != (in->n_args == 0)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "name the model that answers (rubato function RUN), or --train alone");
    }
    return trains ? open_worker(s, in, err) : open_model(s, in, err);
}

/* Whoever says where to listen does not want to ask. */
static const char *runtime_api(const ru_cmd_in *in)
{
    const char *given = ru_cmd_text(in, "runtime"), *env = ru_conf_env("AWS_LAMBDA_RUNTIME_API");
    if (given != NULL || ru_cmd_given(in, "listen") || env == NULL || env[0] == '\0') {
        return given;
    }
    ru_log(RU_LOG_INFO, "function", "asks",
           "asks %s for calls, as AWS_LAMBDA_RUNTIME_API says; --listen waits for them instead",
           env);
    return env;
}

static ru_status answer(void *self, const uint8_t *body, int64_t body_bytes, ru_time until,
                        ru_arena *arena, ru_text *out, ru_err *err)
{
    session *s = self;
    return s->trains != NULL
               ? ru_func_worker_answer(s->trains, body, body_bytes, until, arena, out, err)
               : ru_called_answer(&s->called, body, body_bytes, until, arena, out, err);
}

static ru_status listen_for(session *s, const ru_cmd_in *in, ru_err *err)
{
    const ru_function_instance_options fo = {.loop = s->loop,
                                             .listen = ru_cmd_text(in, "listen"),
                                             .name = ru_cmd_text(in, "name"),
                                             .handle = answer,
                                             .self = s};
    RU_TRY(ru_function_instance_open(&fo, in->arena, &s->instance, err));
    printf("%s answers\n", ru_function_instance_url(s->instance));
    (void)fflush(stdout);
    return ru_loop_run(s->loop, err);
}

static ru_status serve(session *s, const ru_cmd_in *in, ru_err *err)
{
    const char *api = runtime_api(in);
    if (ru_cmd_text(in, "runtime") != NULL && ru_cmd_given(in, "listen")) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--runtime asks for calls and --listen waits for them; "
                       "give one of them");
    }
    RU_TRY(ru_loop_open(&s->loop, err));
    if (api != NULL) {
        const ru_function_runtime_options o = {
            .loop = s->loop, .api = api, .handle = answer, .self = s};
        RU_TRY(ru_function_runtime_open(&o, in->arena, &s->runtime, err));
    }
    ru_err why = {0};
    ru_status st = open_what(s, in, &why);
    if (st != RU_OK && api != NULL) {
        ru_function_runtime_refuse(s->runtime, &why);
    }
    if (st != RU_OK) {
        *err = why;
        return st;
    }
    ru_self_stop_watch();
    int fd = ru_self_stop_fd();
    RU_TRY(fd < 0 ? RU_OK : ru_loop_fd(s->loop, fd, 1 /* EPOLLIN */, on_signal, s, err));
    return api != NULL ? ru_function_runtime_run(s->runtime, err) : listen_for(s, in, err);
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    session s = {0};
    ru_status st = serve(&s, in, err);
    ru_function_instance_close(s.instance);
    ru_function_runtime_close(s.runtime);
    for (uint32_t k = 0; k < s.called.n; k++) { /* the whole one last: the others use its states */
        ru_served_close(s.model[k]);
    }
    ru_func_worker_close(s.trains);
    ru_self_stop_unwatch();
    ru_loop_close(s.loop);
    return st;
}

static const ru_opt opts[] = {
    RU_OPT(TEXT, "listen", "ADDR", "where to listen: PORT (this machine only); 0 takes any",
           .letter = 'l', .def = "0"),
    RU_OPT(TEXT, "runtime", "HOST:PORT",
           "ask Lambda's runtime API at this address for calls; without it, and without --listen, "
           "the environment's AWS_LAMBDA_RUNTIME_API"),
    RU_OPT(TEXT, "name", "NAME", "name of the function in its address", .def = "rubato"),
    RU_OPT(I64, "batch", "N", "largest batch in rows; rounded down to a power of two", .def = "32",
           RU_IN(1, 32768)),
    RU_OPT(I64, "sizes", "N",
           "language models: requests have one of so many sizes, equally far from each other up to "
           "the model's context",
           .def = "1", RU_IN(1, SIZES_MAX)),
    RU_OPT(I64, "threads", "N", "threads that compute a batch together", .letter = 't', .def = "1",
           RU_IN(1, 1024)),
    RU_OPT(FLAG, "train", NULL,
           "compute steps of a training instead, for `rubato train --functions`; each call says of "
           "which"),
    RU_OPT(
        I64, "memory", "MB",
        "memory that whoever started it gives it; it is not bounded here. With a runtime API also "
        "the environment's AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
        .def = "0", RU_IN(0, MEMORY_MAX_MB)),
};

static const ru_example examples[] = {
    {"rubato function model.onnx", "answer calls of this machine; prints where"},
    {"rubato function --train -l 9001 --name digits", "a worker of trainings"},
    {"rubato function --train --runtime 127.0.0.1:9001", "the same as a platform's bootstrap"},
    {"rubato function runs/digits-1 -l 9001 --name digits", "a trained model, at a fixed port"},
};

const ru_cmd rui_cmd_function = {
    .name = "function",
    .summary = "answer the calls of a function with a model",
    .about = "The program that `rubato serve --functions local` starts for its batches, each in a "
             "control group of its own. A call is Lambda's Invoke over HTTP: the body is an infer "
             "request of the Open Inference Protocol v2 as JSON, and so is the answer. Calls are "
             "answered one at a time. Where the environment names Lambda's runtime API (a custom "
             "runtime's `bootstrap`), it asks there for calls instead of listening.",
    RU_CMD_ARGS("[RUN|MODEL.onnx]", 0, 1),
    RU_CMD_LISTS(opts, examples),
    .exits = "65 the model is damaged or cannot be served|66 there is no such model",
    .computes = true,
    .run = run,
};
