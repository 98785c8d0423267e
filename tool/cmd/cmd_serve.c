/* rubato serve: trained models and ONNX files over HTTP, by the Open Inference Protocol. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "base/unit.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "launch/launch.h"
#include "serve/server.h"
#include "tool/cmd.h"
#include "tool/serve/source.h"

enum { DIMS_MAX = 64 };

typedef struct session {
    ru_cmd_in *in;
    ru_loop *loop;
    ru_server *server;
    ru_onnx_dim dims[DIMS_MAX];
    ru_server_options opt;
    ru_server_functions functions;
    rui_served_source_options source;
    ru_err failed; /* status RU_OK: nothing did */
    bool json;
} session;

/* p99=20ms */
static ru_status read_slo(session *s, ru_err *err)
{
    const char *text = ru_cmd_text(s->in, "slo");
    double percent;
    if (text == NULL) {
        return RU_OK;
    }
    const char *eq = strchr(text, '=');
    if (text[0] != 'p' || eq == NULL || !ru_str_f64(ru_str_n(text + 1, eq - text - 1), &percent) ||
        !(percent > 0 && percent < 100) || !ru_unit_time(ru_str_c(eq + 1), &s->opt.slo_ns) ||
        s->opt.slo_ns <= 0) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--slo %s: expected a quantile and a time, as in --slo p99=20ms", text);
    }
    s->opt.slo_q = percent / 100;
    return RU_OK;
}

static ru_status read_dims(session *s, ru_err *err)
{
    uint32_t n;
    const char *const *texts = ru_cmd_texts(s->in, "dim", &n);
    for (uint32_t k = 0; k < n; k++) {
        const char *eq = strchr(texts[k], '=');
        if (eq == NULL || n > DIMS_MAX || !ru_str_i64(ru_str_c(eq + 1), &s->dims[k].number) ||
            s->dims[k].number < 1) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--dim %s: expected NAME=NUMBER, as in --dim T=128 (at most %d of them)",
                           texts[k], DIMS_MAX);
        }
        s->dims[k].symbol = ru_arena_strn(s->in->arena, texts[k], eq - texts[k]);
    }
    s->source.dims = s->dims;
    s->source.n_dims = n;
    return RU_OK;
}

/* The last part of the path, without .onnx. */
static const char *name_of(const session *s)
{
    const char *given = ru_cmd_text(s->in, "name");
    ru_str path = ru_str_c(s->in->args[0]), part, last = path;
    while (ru_str_next(&path, '/', &part)) {
        last = part.n > 0 ? part : last;
    }
    last.n -= ru_str_ends(last, ".onnx") ? (int64_t)strlen(".onnx") : 0;
    return given != NULL ? given : ru_arena_strn(s->in->arena, last.p, last.n);
}

/* The address, on stdout. `model` NULL: those of a repository, which may still load. */
static void tell(const session *s, const char *model)
{
    const char *address = ru_server_address(s->server);
    const char *scheme = s->opt.cert != NULL ? "https" : "http";
    if (s->json) {
        ru_text t = ru_text_arena(s->in->arena);
        ru_text_put(&t, "{\"schema\":\"rubato.serve.ready/1\",\"address\":");
        ru_text_json(&t, ru_str_c(address));
        ru_text_put(&t, ",\"model\":");
        ru_text_put(&t, model == NULL ? "null" : "");
        if (model != NULL) {
            ru_text_json(&t, ru_str_c(model));
        }
        ru_text_put(&t, "}");
        puts(t.p);
    } else if (model != NULL) {
        printf("%s://%s/v2/models/%s is ready; Ctrl-C stops\n", scheme, address, model);
    } else {
        printf("%s://%s/v2 answers; Ctrl-C stops\n", scheme, address);
    }
    (void)fflush(stdout);
}

static void on_loaded(void *self, const ru_err *err)
{
    session *s = self;
    if (err != NULL) {
        s->failed = *err;
        ru_loop_stop(s->loop);
        return;
    }
    tell(s, name_of(s));
}

static void on_stopped(void *self)
{
    session *s = self;
    ru_loop_stop(s->loop);
}

static void on_signal(void *self, int fd, uint32_t events, ru_time now)
{
    session *s = self;
    (void)events;
    (void)now;
    ru_loop_fd_off(s->loop, fd);
    ru_server_stop(s->server, on_stopped, s);
}

/* --memory 512:2048:512 */
static ru_status read_memory(session *s, ru_err *err)
{
    const char *text = ru_cmd_text(s->in, "memory");
    ru_str rest = ru_str_c(text), part;
    double mb[3] = {0};
    uint32_t n = 0;
    bool ok = true;
    while (ok && ru_str_next(&rest, ':', &part)) {
        ok = n < 3 && ru_str_f64(part, &mb[n]) && mb[n] >= 32 && mb[n] <= 1e6;
        n++;
    }
    s->functions.memory_min_mb = mb[0];
    s->functions.memory_max_mb = n > 1 ? mb[1] : mb[0];
    s->functions.memory_step_mb = n > 2 ? mb[2] : 512;
    if (!ok || n == 0 || s->functions.memory_max_mb < mb[0]) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--memory %s: expected MB[:MB[:STEP]], as in --memory 512:2048:512", text);
    }
    return RU_OK;
}

/* The program of an instance: this one, as a function. */
static ru_status put_program(session *s, ru_err *err)
{
    static const char *const words[] = {"rubato",  "function", "--listen",  "0",
                                        "--batch", NULL,       "--threads", NULL};
    enum { N = RU_ARRAY_LEN(words) };
    const char **argv = RU_NEW(s->in->arena, const char *, N + 1);
    const char *self = ru_process_beside(s->in->arena, "rubato", "tool");
    if (argv == NULL || self == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "the program rubato is not where this one is");
    }
    for (uint32_t k = 0; k < N; k++) {
        argv[k] = words[k] != NULL
                      ? words[k]
                      : ru_arena_printf(s->in->arena, "%lld",
                                        (long long)ru_cmd_i64(s->in, words[k - 1] + 2));
    }
    argv[0] = self;
    s->functions.argv = argv;
    return RU_OK;
}

/* What only functions heed, what only those at a URL, what only those here. */
static ru_status check_functions(const session *s, const char *at, ru_err *err)
{
    static const struct {
        const char *name;
        bool at_url, here;
    } own[] = {{"function-name", true, false}, {"sign", true, false},   {"keep", false, true},
               {"memory", true, true},         {"sizes", true, true},   {"buffers", true, true},
               {"usd-gb-s", true, true},       {"usd-call", true, true}};
    bool local = at != NULL && strcmp(at, "local") == 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(own); k++) {
        bool heeded = at != NULL && (local ? own[k].here : own[k].at_url);
        if (ru_cmd_given(s->in, own[k].name) && !heeded) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--%s goes with --functions%s; add it or leave this out", own[k].name,
                           !own[k].here     ? " URL"
                           : !own[k].at_url ? " local"
                                            : "");
        }
    }
    return RU_OK;
}

static ru_status read_functions(session *s, ru_err *err)
{
    const char *at = ru_cmd_text(s->in, "functions");
    RU_TRY(check_functions(s, at, err));
    if (at == NULL) {
        return RU_OK;
    }
    bool local = strcmp(at, "local") == 0;
    if (!local && strncmp(at, "http://", 7) != 0 && strncmp(at, "https://", 8) != 0) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--functions %s: expected local, or an address as in --functions "
                       "http://127.0.0.1:3002",
                       at);
    }
    if (s->opt.slo_ns == 0) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--functions needs a promise to keep at the least cost: --slo p95=100ms");
    }
    if (ru_cmd_given(s->in, "dim") || ru_cmd_given(s->in, "precision") ||
        ru_cmd_given(s->in, "device")) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--functions does not go with --dim, --precision or --device: instances "
                       "compute a model as it is");
    }
    RU_TRY(read_memory(s, err));
    s->functions.url = local ? NULL : at;
    s->functions.name = ru_cmd_text(s->in, "function-name");
    s->functions.sign = ru_cmd_flag(s->in, "sign");
    s->functions.keep_ns = ru_cmd_i64(s->in, "keep");
    s->functions.sizes = (uint32_t)ru_cmd_i64(s->in, "sizes");
    s->functions.buffers_max = (uint32_t)ru_cmd_i64(s->in, "buffers");
    s->functions.usd_per_gb_s = ru_cmd_f64(s->in, "usd-gb-s");
    s->functions.usd_per_call = ru_cmd_f64(s->in, "usd-call");
    s->functions.instances_max = (uint32_t)ru_cmd_i64(s->in, "instances");
    s->functions.instances_max = s->functions.instances_max == 0 ? 8 : s->functions.instances_max;
    if (!local && s->functions.memory_max_mb > s->functions.memory_min_mb) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--functions %s: the endpoint has given its function some memory; say how "
                       "much, as in --memory 1024",
                       at);
    }
    s->opt.functions = &s->functions;
    return local ? put_program(s, err) : RU_OK;
}

static ru_status open_model(void *self, const char *path, ru_source *out, ru_err *err)
{
    const session *s = self;
    return rui_served_source_open(path, &s->source, out, err);
}

/* A folder that is neither a run nor a checkpoint. */
static bool is_repository(const session *s)
{
    const char *path = s->in->args[0];
    const char *job = ru_path_join(s->in->arena, path, "job.yaml");
    const char *state = ru_path_join(s->in->arena, path, "state.json");
    return ru_path_is_dir(path) && job != NULL && !ru_path_exists(job) && state != NULL &&
           !ru_path_exists(state);
}

/* A name is one part of a path: requests for another would never find the model. */
static ru_status check_name(const session *s, ru_err *err)
{
    const char *name = ru_cmd_text(s->in, "name");
    if (name != NULL && (name[0] == '\0' || strchr(name, '/') != NULL)) {
        return RU_FAIL(err, RU_E_USAGE, "--name '%s': expected one part of a path, without '/'",
                       name);
    }
    if (name != NULL && is_repository(s)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--name %s: %s is a repository, whose folders name the models", name,
                       s->in->args[0]);
    }
    return RU_OK;
}

static ru_status begin(session *s, ru_err *err)
{
    RU_TRY(check_name(s, err));
    RU_TRY(ru_loop_open(&s->loop, err));
    s->opt.loop = s->loop;
    s->opt.open = open_model;
    s->opt.open_self = s;
    if (!ru_path_exists(s->in->args[0])) {
        return RU_FAIL(err, RU_E_MISSING, "there is no %s", s->in->args[0]);
    }
    RU_TRY(ru_server_open(&s->opt, s->in->arena, &s->server, err));
    if (!is_repository(s)) {
        return ru_server_load(s->server, name_of(s), "1", s->in->args[0], on_loaded, s, err);
    }
    RU_TRY(ru_server_repository(s->server, s->in->args[0], err));
    tell(s, NULL);
    return RU_OK;
}

static ru_status serve(session *s, ru_err *err)
{
    RU_TRY(begin(s, err));
    ru_self_stop_watch();
    int fd = ru_self_stop_fd();
    if (fd >= 0) {
        RU_TRY(ru_loop_fd(s->loop, fd, 1 /* EPOLLIN */, on_signal, s, err));
    }
    RU_TRY(ru_loop_run(s->loop, err));
    if (s->failed.status != RU_OK) {
        *err = s->failed;
    }
    return s->failed.status;
}

/* PEM of a certificate and its key. */
static ru_status read_tls(session *s, ru_err *err)
{
    const char *cert = ru_cmd_text(s->in, "cert"), *key = ru_cmd_text(s->in, "key");
    char *text;
    int64_t n;
    if ((cert == NULL) != (key == NULL)) {
        return RU_FAIL(err, RU_E_USAGE, "--cert and --key belong together");
    }
    if (cert == NULL) {
        return RU_OK;
    }
    if (!ru_path_is_private(key)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "other users of this machine can read the key in %s; run: chmod 600 %s", key,
                       key);
    }
    RU_TRY(ru_file_read(cert, 1 << 20, s->in->arena, &text, &n, err));
    s->opt.cert = text;
    RU_TRY(ru_file_read(key, 1 << 20, s->in->arena, &text, &n, err));
    s->opt.key = text;
    return RU_OK;
}

/* Other machines may only ask with a token, and over TLS unless the user says otherwise. */
static ru_status check_listen(const session *s, ru_err *err)
{
    const char *at = s->opt.listen;
    bool number = strspn(at, "0123456789.") == strcspn(at, ":"); /* 127.a.org is a name */
    bool here = strchr(at, ':') == NULL || (number && strncmp(at, "127.", 4) == 0) ||
                strncmp(at, "localhost:", 10) == 0 || strncmp(at, "[::1]:", 6) == 0;
    bool safe = s->opt.token != NULL && (s->opt.cert != NULL || ru_cmd_flag(s->in, "plain"));
    return here || safe
               ? RU_OK
               : RU_FAIL(
                     err, RU_E_USAGE,
                     "--listen %s answers other machines, which needs --token-file and TLS "
                     "(--cert and --key), or --plain where a proxy speaks TLS or the network is "
                     "yours",
                     at);
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    session s = {.in = in, .json = ru_cmd_flag(in, "json")};
    const char *file = ru_cmd_text(in, "token-file");
    RU_TRY(read_slo(&s, err));
    RU_TRY(read_dims(&s, err));
    RU_TRY(read_functions(&s, err));
    if (file != NULL) {
        RU_TRY(ru_token_get(file, in->arena, &s.opt.token, err));
    }
    s.opt.listen = ru_cmd_text(in, "listen");
    s.opt.load_max_ns = ru_cmd_i64(in, "load-max");
    s.opt.wait_max_ns = ru_cmd_i64(in, "wait-max");
    s.opt.answer_max_s = (ru_cmd_i64(in, "answer-max") + 999999999) / 1000000000;
    s.opt.access_log = ru_cmd_text(in, "access-log");
    RU_TRY(read_tls(&s, err));
    RU_TRY(check_listen(&s, err));
    s.opt.requests_max = (uint32_t)ru_cmd_i64(in, "waiting");
    s.source.exe = (ru_exe_options){
        .device = ru_cmd_choice(in, "device") == 0 ? RU_DEVICE_CPU : RU_DEVICE_REF,
        .precision = ru_cmd_choice(in, "precision") == 0 ? RU_PRECISION_F32 : RU_PRECISION_BF16,
        .threads = (uint32_t)ru_cmd_i64(in, "threads")};
    s.source.tokenizer = ru_cmd_text(in, "tokenizer");
    uint32_t instances = (uint32_t)ru_cmd_i64(in, "instances");
    if (instances == 0) {
        uint32_t n = ru_pool_cores() / s.source.exe.threads;
        instances = n < 1 ? 1 : n > 64 ? 64 : n;
    }
    s.opt.served = (ru_served_options){.exe = s.source.exe,
                                       .instances = instances,
                                       .rows_max = ru_cmd_i64(in, "batch"),
                                       .streams = (uint32_t)ru_cmd_i64(in, "streams")};
    ru_status st = serve(&s, err);
    ru_server_close(s.server);
    ru_self_stop_unwatch();
    ru_loop_close(s.loop);
    return st;
}

static const ru_opt opts[] = {
    RU_OPT(TEXT, "listen", "ADDR",
           "where to listen: PORT (this machine only), :PORT (all interfaces) or HOST:PORT; port 0 "
           "takes any",
           .letter = 'l', .def = "8000"),
    RU_OPT(TEXT, "slo", "pQ=TIME", "the promise: so many percent of the answers come within TIME"),
    RU_OPT(TEXT, "name", "NAME",
           "name of the model (default: the last part of the path); not of a repository"),
    RU_OPT(I64, "batch", "N", "largest batch in rows; rounded down to a power of two", .def = "32",
           RU_IN(1, 32768)),
    RU_OPT(I64, "instances", "N",
           "batches that are computed at one time; 0: as many as cores and threads allow, 8 with "
           "--functions",
           .def = "0", RU_IN(0, 64)),
    RU_OPT(I64, "streams", "N",
           "language models: texts that are written at one time; each has a cache of the model's "
           "context; 0: no texts are written",
           .def = "8", RU_IN(0, 1024)),
    RU_OPT(TEXT, "tokenizer", "FILE",
           "language models: the tokenizer.json that they were trained with (default: the one in "
           "the run's folder; without one tokens are bytes or numbers)"),
    RU_OPT(I64, "waiting", "N", "requests that wait or are computed; more are answered 429",
           .def = "1024", RU_IN(1, 1000000)),
    RU_OPT(I64, "threads", "N", "threads that compute a batch together", .letter = 't', .def = "1",
           RU_IN(1, 1024)),
    RU_OPT(TEXTS, "dim", "NAME=N",
           "value of a symbolic dimension of an ONNX model; may be given several times"),
    RU_OPT(CHOICE, "device", NULL, "device; ref is the reference in plain C", .def = "cpu",
           .choices = "cpu|ref"),
    RU_OPT(CHOICE, "precision", NULL, "bf16: compute f32 matrix products in bf16", .def = "f32",
           .choices = "f32|bf16"),
    RU_OPT(TEXT, "token-file", "FILE",
           "file with a token that every request must carry (Authorization: Bearer TOKEN)"),
    RU_OPT(TEXT, "cert", "FILE", "answer over TLS: certificate as PEM, with its chain behind it"),
    RU_OPT(TEXT, "key", "FILE", "key of the certificate as PEM, readable by its owner alone"),
    RU_OPT(FLAG, "plain", NULL, "answer other machines without TLS"),
    RU_OPT(TIME, "load-max", "TIME", "a model that opens for longer has failed; 0: no limit",
           .def = "0", RU_IN(0, 1e17)),
    RU_OPT(TIME, "wait-max", "TIME",
           "a request that waits for longer is answered 504 and not computed; 0: no limit",
           .def = "0", RU_IN(0, 1e17)),
    RU_OPT(
        TIME, "answer-max", "TIME",
        "a request that is not answered by then, in whole seconds from its head, is answered 504; "
        "0: no limit",
        .def = "0", RU_IN(0, 1e17)),
    RU_OPT(
        TEXT, "functions", "local|URL",
        "compute batches on function instances, at the least cost that keeps --slo: processes of "
        "this machine, or an endpoint that speaks Lambda's Invoke"),
    RU_OPT(TEXT, "memory", "MB[:MB[:STEP]]",
           "functions: memory that an instance may have; 1769 MB have a whole core",
           .def = "512:2048:512"),
    RU_OPT(I64, "sizes", "N",
           "functions, language models: a request may be shorter than the context; it is padded to "
           "the next of so many sizes, and buffers take requests by size; 1: all have the context",
           .def = "4", RU_IN(1, 16)),
    RU_OPT(I64, "buffers", "N",
           "functions: at most so many buffers take requests by size; 1: one takes all of them",
           .def = "16", RU_IN(1, 16)),
    RU_OPT(F64, "usd-gb-s", "USD", "functions: price of 1024 MB for a second", .def = "1.66667e-5",
           RU_IN(1e-9, 1)),
    RU_OPT(F64, "usd-call", "USD", "functions: price of a call; 0: computing alone costs",
           .def = "2e-7", RU_IN(0, 1)),
    RU_OPT(TIME, "keep", "TIME", "functions here: an idle instance ends after it", .def = "5min",
           RU_IN(0, 1e17)),
    RU_OPT(TEXT, "function-name", "NAME", "functions at a URL: the name of the function",
           .def = "rubato"),
    RU_OPT(FLAG, "sign", NULL,
           "functions at a URL: sign requests (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
           "AWS_REGION)"),
    RU_OPT(TEXT, "access-log", "FILE",
           "append one JSON object for each answer: what was asked, by whose trace, where its time "
           "went and why its batch left"),
    RU_OPT(FLAG, "json", NULL, "print one JSON object (rubato.serve.ready/1) when it answers"),
};

static const ru_example examples[] = {
    {"rubato serve runs/digits-1", "serve the trained model of a run at 127.0.0.1:8000"},
    {"rubato serve model.onnx --slo p99=20ms", "serve an ONNX model with a promise"},
    {"rubato serve model.onnx --slo p95=100ms --functions local",
     "compute on function instances at the least cost that keeps the promise"},
    {"rubato serve models/", "serve models/NAME/VERSION/model.onnx, load and unload on request"},
    {"rubato serve model.onnx --listen :8000 --token-file token --cert cert.pem --key key.pem",
     "answer the other machines too, over TLS, if they have the token"},
};

const ru_cmd rui_cmd_serve = {
    .name = "serve",
    .summary = "answer requests for a trained or an ONNX model over HTTP",
    .about =
        "Speaks the Open Inference Protocol v2 (KServe, Triton) over HTTP: JSON and the binary "
        "extension, so that clients written for those servers work unchanged; gRPC and shared "
        "memory are not offered. Requests that come while all instances are busy leave together as "
        "one "
        "batch, by priority, then by their time limit (Triton's parameters priority and timeout, "
        "header Rubato-Deadline-Ms); one whose limit passes before that is answered 504 and never "
        "computed. With --slo, batches are as large as the promise allows by measured times, and a "
        "request that would be answered later than promised is answered 429 with Retry-After. "
        "/metrics is for Prometheus. The first dimension of every tensor is the number of rows "
        "where the model has it free. Samples of a run are prepared as in training (data.mean, "
        "data.std, columns). The first Ctrl-C or SIGTERM answers what is under way and ends, "
        "the second ends at once.",
    RU_CMD_ARGS("RUN|MODEL.onnx|REPOSITORY", 1, 1),
    RU_CMD_LISTS(opts, examples),
    .exits = "65 the model is damaged or cannot be served|66 there is no such model|69 the address "
             "is taken",
    .computes = true,
    .run = run,
};
