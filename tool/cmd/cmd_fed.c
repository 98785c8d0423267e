/* rubato fed: federated training, where clients keep their data. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "env/file/file.h"
#include "env/link/link_tcp.h"
#include "env/process/self.h"
#include "fleet/join.h"
#include "fleet/server.h"
#include "fleet/sim.h"
#include "launch/launch.h"
#include "tool/cmd.h"
#include "tool/cmd/metrics.h"

#define OPT_SECRET                                                                                \
    RU_OPT(TEXT, "secret", "FILE",                                                                \
           "file from which the tokens of all clients are derived; made when it is missing, and " \
           "readable by you alone",                                                               \
           .def = "fed.secret")

/* Files of the library need a folder in their names. */
static const char *secret_of(ru_cmd_in *in)
{
    const char *path = ru_cmd_text(in, "secret");
    const char *here = strchr(path, '/') == NULL ? ru_arena_printf(in->arena, "./%s", path) : path;
    return here != NULL ? here : path;
}

static ru_status run_token(ru_cmd_in *in, ru_err *err)
{
    uint8_t key[RU_FED_KEY_BYTES];
    RU_TRY(ru_fed_key(secret_of(in), in->args[0], key, err));
    (void)printf("%s:", in->args[0]);
    for (uint32_t k = 0; k < sizeof key; k++) {
        (void)printf("%02x", key[k]);
    }
    (void)printf("\n");
    return RU_OK;
}

/* A job as rounds: the steps of the run are rounds, evaluated by their number. */
static ru_status load_job(ru_cmd_in *in, ru_job *job, ru_conf **conf, ru_err *err)
{
    uint32_t n;
    const char *const *sets = ru_cmd_texts(in, "set", &n);
    RU_TRY(ru_job_load(in->args[0], sets, n, in->arena, job, conf, err));
    if (job->federated.rounds < 1) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "%s: a federated job says how many rounds it has (federated.rounds)",
                       in->args[0]);
    }
    job->train.steps = job->federated.rounds;
    job->train.epochs = 0;
    job->train.eval_every = job->federated.eval_every;
    return RU_OK;
}

/* A job whose rounds would wait for good. */
static ru_status check_clients(const ru_job_federated *f, uint32_t clients, ru_err *err)
{
    if (f->per_round > clients || f->tiers > clients || f->clients_min > clients) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "%u clients are too few for %u in a round, %u tiers and %u at the beginning "
                       "(federated.per_round, tiers, clients_min)",
                       clients, f->per_round, f->tiers, f->clients_min);
    }
    return f->answers_min <= f->per_round
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG,
                         "a round of %u clients never has %u answers (federated.per_round, "
                         "answers_min)",
                         f->per_round, f->answers_min);
}

static ru_status run_serve(ru_cmd_in *in, ru_err *err)
{
    ru_job job;
    ru_conf *conf;
    ru_train_result result;
    RU_TRY(load_job(in, &job, &conf, err));
    RU_TRY(check_clients(&job.federated, job.federated.clients_max, err));
    if (!ru_link_tcp_address_ok(ru_cmd_text(in, "listen"))) {
        return RU_FAIL(err, RU_E_USAGE, "--listen '%s': expected HOST:PORT, [v6]:PORT or :PORT",
                       ru_cmd_text(in, "listen"));
    }
    rui_metrics metrics = {.in = in};
    const ru_train_options to = {.job = &job,
                                 .conf = conf,
                                 .out = ru_cmd_text(in, "out"),
                                 .resume = ru_cmd_flag(in, "resume"),
                                 .json = ru_cmd_flag(in, "json"),
                                 .quiet = in->verbose < 0,
                                 .opened = rui_metrics_opened(&metrics)};
    const ru_fed_serve_options so = {
        .train = &to, .listen = ru_cmd_text(in, "listen"), .secret = secret_of(in)};
    ru_self_stop_watch();
    ru_status st = ru_fed_serve(&so, in->arena, &result, err);
    ru_self_stop_unwatch();
    rui_metrics_close(&metrics);
    RU_TRY(st);
    if (!to.json) {
        (void)printf("%s\n", result.out);
    }
    return RU_OK;
}

static ru_status run_join(ru_cmd_in *in, ru_err *err)
{
    ru_fed_join_options o = {.client = {.address = in->args[0],
                                        .wait_ns = ru_cmd_i64(in, "wait"),
                                        .hours = ru_cmd_text(in, "hours"),
                                        .signals = true},
                             .memory_bytes = ru_cmd_i64(in, "memory"),
                             .data = ru_cmd_text(in, "data"),
                             .threads = (uint32_t)ru_cmd_i64(in, "threads")};
    if (o.data == NULL) {
        return RU_FAIL(err, RU_E_USAGE,
                       "name the file that says where your data are: --data FILE.yaml");
    }
    RU_TRY(ru_token_get(ru_cmd_text(in, "token-file"), in->arena, &o.client.token, err));
    return ru_fed_join(&o, err);
}

/* iid, classes:2, dirichlet:0.3 or file:PATH */
static ru_status split_of(const char *text, ru_split_options *o, ru_err *err)
{
    ru_str rest = ru_str_c(text), kind, value;
    bool fine = ru_str_next(&rest, ':', &kind);
    int64_t classes = 0;
    value = rest;
    if (fine && ru_str_eq_c(kind, "iid") && value.n == 0) {
        o->kind = RU_SPLIT_IID;
    } else if (fine && ru_str_eq_c(kind, "classes") && ru_str_i64(value, &classes) &&
               classes >= 1 && classes <= 4096) {
        o->kind = RU_SPLIT_CLASSES;
        o->classes = (uint32_t)classes;
    } else if (fine && ru_str_eq_c(kind, "dirichlet") && ru_str_f64(value, &o->alpha) &&
               o->alpha > 0 && o->alpha <= 1e6) {
        o->kind = RU_SPLIT_DIRICHLET;
    } else if (fine && ru_str_eq_c(kind, "file") && value.n > 0) {
        o->kind = RU_SPLIT_FILE;
        o->file = text + sizeof "file:" - 1;
    } else {
        return RU_FAIL(err, RU_E_USAGE,
                       "--split '%s': expected iid, classes:N, dirichlet:ALPHA or file:PATH", text);
    }
    return RU_OK;
}

/* RUN/simulation.json: what the last line says, for programs. */
static ru_status write_figures(ru_cmd_in *in, const ru_fed_sim_result *r, ru_err *err)
{
    ru_text t = ru_text_arena(in->arena);
    const char *path = ru_path_join(in->arena, r->train.out, "simulation.json");
    const struct {
        const char *key;
        double value;
    } rows[] = {{"simulated_s", r->simulated_s},
                {"rounds_per_s", r->rounds_per_s},
                {"decision_ms", r->decision_mean_s * 1e3},
                {"decision_most_ms", r->decision_most_s * 1e3},
                {"peak_bytes", (double)ru_self_rss_peak_bytes()},
                {"accuracy", ru_metrics_get(&r->train.summary.metrics, "accuracy")},
                {"epsilon", r->epsilon},
                {"client_epsilon", r->client_epsilon}};
    ru_text_put(&t, "{\"schema\":\"rubato.fed.simulation/1\"");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        if (rows[k].value >= 0) { /* without classes no accuracy, without noise no epsilon */
            ru_text_putf(&t, ",\"%s\":", rows[k].key);
            ru_text_f64(&t, rows[k].value);
        }
    }
    ru_text_put(&t, "}\n");
    return path == NULL || t.cut ? RU_FAIL(err, RU_E_MEM, "no memory for the figures of a run")
                                 : ru_file_own(path, t.p, t.n, err);
}

static ru_status run_sim(ru_cmd_in *in, ru_err *err)
{
    ru_job job;
    ru_conf *conf;
    ru_fed_sim_result r = {0};
    RU_TRY(load_job(in, &job, &conf, err));
    const ru_train_options to = {.job = &job,
                                 .conf = conf,
                                 .out = ru_cmd_text(in, "out"),
                                 .resume = ru_cmd_flag(in, "resume"),
                                 .json = ru_cmd_flag(in, "json"),
                                 .quiet = in->verbose < 0};
    ru_fed_sim_options so = {.train = &to,
                             .split = {.clients = (uint32_t)ru_cmd_i64(in, "clients"),
                                       .samples = ru_cmd_i64(in, "samples"),
                                       .seed = (uint64_t)job.train.seed},
                             .law = (ru_latency_law)ru_cmd_choice(in, "law"),
                             .trace = ru_cmd_text(in, "latencies"),
                             .median_s = (double)ru_cmd_i64(in, "latency") * 1e-9,
                             .spread = ru_cmd_f64(in, "spread"),
                             .jitter = ru_cmd_f64(in, "jitter"),
                             .lost = ru_cmd_f64(in, "lost"),
                             .turned = ru_cmd_f64(in, "turned")};
    static const char *const laws[] = {"latency", "law", "spread", "jitter"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(laws) && so.trace != NULL; k++) {
        if (ru_cmd_given(in, laws[k])) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--%s is of the law of latencies, which --latencies replaces; give one "
                           "of them",
                           laws[k]);
        }
    }
    RU_TRY(split_of(ru_cmd_text(in, "split"), &so.split, err));
    RU_TRY(check_clients(&job.federated, so.split.clients, err));
    ru_self_stop_watch();
    ru_status st = ru_fed_sim(&so, in->arena, &r, err);
    ru_self_stop_unwatch();
    RU_TRY(st);
    RU_TRY(write_figures(in, &r, err));
    (void)fprintf(stderr,
                  "simulated %.1f s in %.2f rounds/s; choice of a round %.2f ms, at most %.2f ms; "
                  "peak memory %lld MB\n",
                  r.simulated_s, r.rounds_per_s, r.decision_mean_s * 1e3, r.decision_most_s * 1e3,
                  (long long)(ru_self_rss_peak_bytes() / 1000000));
    if (r.epsilon >= 0) {
        (void)fprintf(stderr, "epsilon %.4g for a delta of %g after %lld rounds%s\n", r.epsilon,
                      job.federated.privacy.delta, (long long)r.train.summary.steps,
                      r.spent ? "; another round might exceed federated.privacy.epsilon" : "");
    }
    if (!to.json) {
        (void)printf("%s\n", r.train.out);
    }
    return RU_OK;
}

static const ru_opt sim_opts[] = {
    RU_OPT(I64, "clients", "N", "simulated clients", .def = "100", RU_IN(1, 1 << 20)),
    RU_OPT(TEXT, "split", "SPLIT",
           "whose samples are whose: iid, classes:N (of each client), dirichlet:ALPHA (small: "
           "unlike clients), file:PATH (line k: the client of sample k)",
           .def = "iid"),
    RU_OPT(I64, "samples", "N", "samples of a client; 0: all samples over all clients", .def = "0",
           RU_IN(0, 1e9)),
    RU_OPT(TIME, "latency", "TIME", "time that the median client takes for a task", .def = "10s",
           RU_IN(1e3, 1e15)),
    RU_OPT(CHOICE, "law", "LAW", "law of the clients' times", .choices = "lognormal|pareto|uniform",
           .def = "lognormal"),
    RU_OPT(TEXT, "latencies", "FILE.csv",
           "the times of a trace instead: columns client, seconds (or lost), and perhaps round"),
    RU_OPT(F64, "spread", "S",
           "deviation of the logarithm of the clients' times: 1 means that one in six takes e "
           "times the median or longer",
           .def = "0.8", RU_IN(0, 5)),
    RU_OPT(F64, "jitter", "S", "the same of the tasks of one client", .def = "0.1", RU_IN(0, 5)),
    RU_OPT(F64, "lost", "PART", "part of the tasks that nobody answers", .def = "0",
           RU_IN(0, 0.99)),
    RU_OPT(F64, "turned", "PART",
           "part of the clients that send what they learned with the other sign, to see what "
           "federated.sum does about it",
           .def = "0", RU_IN(0, 1)),
    RU_OPT(TEXT, "out", "DIR", "folder of the run (default: runs/<name>-<number>)", .letter = 'o'),
    RU_OPT(FLAG, "resume", NULL,
           "continue after the last round that was kept: the result is that of a simulation that "
           "nothing disturbed"),
    RU_OPT(TEXTS, "set", "KEY=VALUE", "set a key of the job; may be given several times",
           .letter = 's'),
    RU_OPT(FLAG, "json", NULL, "one JSON object a line on stdout"),
};
static const ru_example sim_examples[] = {
    {"rubato fed sim job.yaml --clients 1000 --split dirichlet:0.3", "unlike clients"},
    {"rubato fed sim job.yaml --clients 100000 --samples 30", "many clients with few samples"},
};
static const ru_opt token_opts[] = {OPT_SECRET};
static const ru_opt serve_opts[] = {
    RU_OPT(TEXT, "listen", "HOST:PORT",
           "address at which clients join; an empty host means every "
           "interface",
           .def = "127.0.0.1:9500"),
    OPT_SECRET,
    RU_OPT(TEXT, "out", "DIR", "folder of the run (default: runs/<name>-<number>)", .letter = 'o'),
    RU_OPT(FLAG, "resume", NULL, "continue after the last round of the run that was kept"),
    RU_OPT(TEXTS, "set", "KEY=VALUE", "set a key of the job; may be given several times",
           .letter = 's'),
    RU_OPT(FLAG, "json", NULL, "one JSON object a line on stdout"),
    RU_OPT(TEXT, "metrics", "HOST:PORT", "serve the run's figures over HTTP, also for Prometheus"),
    RU_OPT(TEXT, "token-file", "FILE", "file with the secret that --metrics asks for"),
};
static const ru_opt join_opts[] = {
    RU_OPT(TEXT, "token-file", "FILE",
           "file with what `rubato fed token` printed (default: "
           "RUBATO_TOKEN)"),
    RU_OPT(TEXT, "data", "FILE", "YAML file with the section `data` of a job: your samples"),
    RU_OPT(TIME, "wait", "TIME",
           "end when there is no server for so long, at first or again; 0: it may come at any time",
           .def = "0s", RU_IN(0, 1e15)),
    RU_OPT(SIZE, "memory", "SIZE",
           "memory that this client may have: a model that needs more is refused; 0: not bounded",
           .def = "0", RU_IN(0, 1e15)),
    RU_OPT(TEXT, "hours", "HH:MM-HH:MM",
           "take part in these hours of the local day alone, as 22:00-06:00 (time zone: TZ)"),
    RU_OPT_THREADS('t'),
};
static const ru_example examples[] = {
    {"rubato fed token alice > alice.token", "the secret of one client, on the server's machine"},
    {"rubato fed serve job.yaml --listen :9500", "the rounds"},
    {"rubato fed join HOST:9500 --token-file alice.token --data mine.yaml",
     "a client, behind any firewall: it dials out only"},
    {"rubato fed join HOST:9500 --token-file alice.token --data mine.yaml --hours 22:00-06:00 "
     "--memory 512MB -t 1",
     "at night, with bounds"},
};
static const char exits[] = "65 data do not fit the job|69 the server refuses the client|77 the "
                            "token is not valid|78 the job file is not valid";

static const ru_cmd subs[] = {
    {.name = "token",
     .summary = "print the token of a client",
     .about = "The token is derived from the server's secret and the name. Whoever has it takes "
              "part under this name, and nobody else can.",
     RU_CMD_ARGS("NAME", 1, 1),
     .opts = token_opts,
     .n_opts = RU_ARRAY_LEN(token_opts),
     .examples = examples,
     .n_examples = 1,
     .run = run_token},
    {.name = "serve",
     .summary = "train a model with clients that keep their data",
     .about = "Waits for clients, chooses some for each round, sends them the model and averages "
              "what they learned, by samples. The job's section `federated` says how; its data "
              "give shapes and classes, and its test data the evaluations.\n\nThe run's folder is "
              "that of `rubato train`: eval, predict, export, top and explain work on it.",
     RU_CMD_ARGS("JOB.yaml", 1, 1),
     RU_CMD_LISTS(serve_opts, examples),
     .exits = exits,
     .computes = true,
     .run = run_serve},
    {.name = "sim",
     .summary = "simulate federated training: real arithmetic, simulated time",
     .about = "The rounds of `rubato fed serve` with clients in this process, whose samples are "
              "parts of the job's training data and whose times are drawn from a law.",
     RU_CMD_ARGS("JOB.yaml", 1, 1),
     RU_CMD_LISTS(sim_opts, sim_examples),
     .exits = exits,
     .computes = true,
     .run = run_sim},
    {.name = "join",
     .summary = "take part in federated training with your own data",
     .about = "Dials the server, trains when it is asked to, and sends the model back, never the "
              "samples. It may start before the server and outlive it; Ctrl-C ends it.",
     RU_CMD_ARGS("HOST:PORT", 1, 1),
     RU_CMD_LISTS(join_opts, examples),
     .exits = exits,
     .computes = true,
     .run = run_join},
};

const ru_cmd rui_cmd_fed = {
    .name = "fed",
    .summary = "train with clients that keep their data",
    .about = "A server keeps the model, clients keep their samples (docs/fleet.md).",
    .examples = examples,
    .n_examples = RU_ARRAY_LEN(examples),
    .subs = subs,
    .n_subs = RU_ARRAY_LEN(subs),
};
