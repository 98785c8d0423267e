/* rubato worker: one worker process of a job, started by the launcher or joining by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "comm/member/member.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/link/link_tcp.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "env/process/stop.h"
#include "host/ask.h"
#include "launch/launch.h"
#include "run/message.h"
#include "tool/cmd.h"
#include "train/worker/worker_app.h"
#include "train/worker/worker_pipe.h"

static const ru_opt opts[] = {
    RU_OPT(TEXT, "join", "HOST:PORT", "address of any worker of the running job"),
    RU_OPT(TEXT, "token-file", "FILE",
           "file with the job's token (OUT/token of its run); default: RUBATO_TOKEN"),
    RU_OPT(I64, "threads", "N",
           "number of compute threads; 0: all cores, or one if other workers of the job run on "
           "this machine",
           RU_IN(0, 1024)),
    RU_OPT(TEXT, "listen", "HOST:PORT",
           "address at which other workers reach this one (default: any port of the interface "
           "that reaches --join); an empty host means every interface, port 0 any port"),
    RU_OPT(TEXT, "toward", "HOST:PORT",
           "with an empty host in --listen: announce the address of the interface that reaches "
           "this address (default: --join)"),
    RU_OPT(TEXT, "weights", "HOST:PORT",
           "give this worker's weights to `rubato predict --from` and `rubato eval --from` at this "
           "address; the token is in OUT/weights-token"),
    RU_OPT(TEXT, "out", "DIR",
           "folder of the run (default: that of the job, if this machine has it, else runs/NAME)",
           .letter = 'o'),
    RU_OPT(TEXT, "job", "FILE", "file with the resolved job (default: fetched from the job)"),
    RU_OPT(I64, "founders", "N", "number of workers that start the job together", .def = "1",
           RU_IN(1, RU_WORKERS_MAX)),
    RU_OPT(I64, "begin", "N",
           "number of workers, including those that join later, that the first step waits for",
           .def = "1", RU_IN(1, RU_WORKERS_MAX)),
    RU_OPT(I64, "min", "N", "with fewer workers the job pauses until others join", .def = "1",
           RU_IN(1, RU_WORKERS_MAX)),
    RU_OPT(I64, "max", "N", "further workers must wait", .def = "1024", RU_IN(1, RU_WORKERS_MAX)),
    RU_OPT(I64, "rank", "N",
           "rank among the workers that start together, and number in the names of trace files "
           "(default: the process id)",
           .def = "0", RU_IN(0, 1 << 20)),
    RU_OPT(TEXT, "cores", "MASK", "cores of the compute threads as a hexadecimal mask"),
    RU_OPT(FLAG, "newcomer", NULL, "the job is running: receive the state from the other workers"),
    RU_OPT(FLAG, "resume", NULL, "start from the newest checkpoint of the run"),
    RU_OPT(FLAG, "deterministic", NULL,
           "make runs with the same workers bit-identical: fixed order of sums, equal shares"),
    RU_OPT(FLAG, "sockets", NULL, "sum gradients over sockets even between workers of one machine"),
    RU_OPT(FLAG, "equal-shares", NULL, "do not give faster workers more samples"),
    RU_OPT(CHOICE, "tier", "TIER",
           "transient: the provider may reclaim this machine at any time. Its worker has no "
           "vote, so the others continue even if all such machines fail at once. rented: so for an "
           "app whose job runs already; models have all their state in each worker",
           .def = "reliable", .choices = "reliable|transient|rented"),
    RU_OPT(CHOICE, "messages", "WHICH",
           "tell the launcher on stdout, in binary messages, about the run, or also about its "
           "progress",
           .def = "none", .choices = "none|run|progress"),
    RU_OPT(TEXT, "sets", "FILE",
           "of a pipeline or a placed step: copies of the state in memory of the launcher, from "
           "which --resume starts if they are newer than the newest checkpoint"),
    RU_OPT(
        FLAG, "far", NULL,
        "of a pipeline or a placed step on several hosts: only the worker that leads has copies"),
    RU_OPT(I64, "after", "STEP", "... and gives all others their state after this step", .def = "0",
           RU_IN(0, 1e15)),
    RU_OPT(I64, "spares", "N", "of its founders, those that joined the job before", .def = "0",
           RU_IN(0, RU_WORKERS_MAX)),
    RU_OPT(I64, "generation", "N",
           "number of this start of the job: the worker ends before it saves if OUT/generation is "
           "higher; 0: not checked",
           .def = "0", RU_IN(0, 4294967295.0)),
    RU_OPT(TEXT, "tell", "FILE",
           "append the address of this worker, and how it ended, to FILE as JSON Lines, for who "
           "starts it and does not stay; then SIGTERM makes it leave and SIGINT ends the job"),
};

static const ru_example examples[] = {
    {"rubato worker --join 10.0.0.5:4000 --token-file runs/digits-1/token",
     "add one worker to a running job"},
    {"rubato worker --join node7:4000", "read the token from RUBATO_TOKEN"},
    {"rubato worker --join node7:4000 --tier transient",
     "join from a machine that may be reclaimed at any time"},
    {"rubato worker --join 10.0.0.5:4000 --token-file token --listen :4001",
     "use one fixed port, for a firewall that allows only one"},
};

enum { AGAIN_MAX = 300 }; /* a minute: fewer workers may measure layers first */
#define AGAIN_NS INT64_C(200000000)

static void say(const ru_msg *m)
{
    ru_err err;
    if (ru_msg_tell(m, &err) != RU_OK) {
        ru_log(RU_LOG_ERROR, "tool", "message", "%s", err.text);
    }
}

/* To whom this worker tells about itself. */
typedef struct teller {
    bool messages;
    const char *file;                      /* NULL: none */
    bool torn;                             /* its last line may be a part */
    bool joined;                           /* its number is told */
    char bytes[6 * RU_ERR_TEXT_MAX + 512]; /* of the line at hand */
    ru_text text;
} teller;

/* An object of which `tell` makes a line. */
static ru_json line_of(teller *t)
{
    t->text = ru_text_into(t->bytes, sizeof t->bytes);
    ru_json j = ru_json_into(&t->text);
    ru_json_open(&j, NULL, '{');
    return j;
}

static void tell(teller *t, ru_json *j)
{
    ru_err err = {0};
    ru_log_file *f = NULL;
    if (t->file == NULL) {
        return;
    }
    ru_json_close(j);
    ru_text_put(&t->text, "\n");
    ru_status st = ru_log_file_open(t->file, true, &f, &err);
    if (st == RU_OK && t->torn) { /* what was left of the line before is no part of this one */
        st = ru_log_file_append(f, "\n", 1, &err);
    }
    st = st == RU_OK ? ru_log_file_append(f, t->text.p, t->text.n, &err) : st;
    st = st == RU_OK ? ru_log_file_sync(f, &err) : st;
    ru_log_file_close(f);
    t->torn = st != RU_OK;
    if (st != RU_OK) {
        ru_log(RU_LOG_ERROR, "tool", "tell", "%s", err.text);
    }
}

/* {"pid":4711,"mark":"..."}: who starts it may have ended before it knew. */
static void tell_self(teller *t)
{
    char mark[RU_PROCESS_MARK_BYTES];
    ru_json j = line_of(t);
    ru_json_i64(&j, "pid", ru_self_pid());
    ru_json_str(&j, "mark", ru_process_mark(ru_self_pid(), mark) ? mark : "");
    tell(t, &j);
}

/* {"end":0,"left":false,"step":200,"ended":"done","why":""}; ended: of who told the run's end. */
static void tell_end(teller *t, ru_status st, const ru_worker_result *r, const char *why)
{
    ru_json j = line_of(t);
    ru_json_i64(&j, "end", ru_status_exit_code(st));
    ru_json_bool(&j, "left", r->left);
    ru_json_i64(&j, "step", r->step);
    ru_json_str(&j, "ended", r->reported && r->summary.ended != NULL ? r->summary.ended : "");
    ru_json_str(&j, "why", st == RU_OK ? "" : why);
    tell(t, &j);
}

/* {"address":"127.0.0.1:4000"} */
static void say_address(void *self, const char *address)
{
    teller *t = self;
    ru_json j = line_of(t);
    ru_json_str(&j, "address", address);
    tell(t, &j);
    if (t->messages) {
        say(&(ru_msg){.kind = RU_MSG_ADDRESS, .address.address = address});
    }
}

static void say_number(void *self, uint32_t number, bool takes_state)
{
    teller *t = self;
    (void)takes_state;
    if (!t->joined) {
        say(&(ru_msg){.kind = RU_MSG_NUMBER, .number.number = number});
    }
    t->joined = true;
}

/* {"number":3,"holds":true}; holds: it has the whole state, so that others may leave. */
static void tell_number(void *self, uint32_t number, bool takes_state)
{
    teller *t = self;
    bool again = t->joined;
    ru_json j = line_of(t);
    ru_json_i64(&j, "number", number);
    ru_json_bool(&j, "holds", !takes_state);
    tell(t, &j);
    if (t->messages) { /* started over ssh */
        say_number(self, number, takes_state);
    }
    t->joined = true;
    if (!again) {
        (void)fprintf(stderr, "joined as worker %u%s\n", number,
                      takes_state ? "; receiving the state from the other workers" : "");
    }
}

static bool on_this_machine(const char *address)
{
    char host[256];
    ru_self_host(host, sizeof host);
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "localhost:", 10) == 0 ||
           strncmp(address, "[::1]", 5) == 0 ||
           (strncmp(address, host, strlen(host)) == 0 && address[strlen(host)] == ':');
}

/* Does this machine have the folder of the run, because it is this one or shares its disk? */
static bool is_run_of(ru_arena *arena, const char *dir, const char *token)
{
    const char *path = ru_path_join(arena, dir, "token"), *theirs;
    return path != NULL && ru_path_is_file(path) &&
           ru_token_get(path, arena, &theirs, NULL) == RU_OK && strcmp(theirs, token) == 0;
}

/* *out is where the others have the run. Where there is no such folder, a new one in runs/. */
static ru_status choose_out(ru_arena *arena, const char *token, const char **out, ru_err *err)
{
    const char *slash = strrchr(*out, '/'), *name = slash != NULL ? slash + 1 : *out;
    if (is_run_of(arena, *out, token)) {
        return RU_OK;
    }
    for (uint32_t k = 1;; k++) {
        *out = k == 1 ? ru_arena_printf(arena, "runs/%s", name)
                      : ru_arena_printf(arena, "runs/%s-joined-%u", name, k);
        if (*out == NULL) {
            return RU_FAIL(err, RU_E_MEM, "not enough memory for the command line");
        }
        if (!ru_path_exists(*out)) {
            return RU_OK;
        }
    }
}

/* The job from its file, or from whoever is at the address; app->ops NULL: one with a model. */
static ru_status get_job(ru_cmd_in *in, const char *token, ru_job *job, ru_app_job_file *app,
                         const char **out, ru_err *err)
{
    const char *file = ru_cmd_text(in, "job"), *yaml;
    *out = ru_cmd_text(in, "out");
    if (file != NULL) {
        char *text;
        int64_t n;
        RU_TRY(ru_file_read(file, 4 << 20, in->arena, &text, &n, err));
        yaml = text;
    } else {
        const char *theirs;
        RU_TRY(ru_ask_job(ru_cmd_text(in, "join"), (const uint8_t *)token, (uint32_t)strlen(token),
                          in->arena, &yaml, &theirs, err));
        *out = *out != NULL ? *out : theirs;
    }
    if (*out == NULL) {
        return RU_FAIL(err, RU_E_USAGE, "--job needs --out");
    }
    const char *label = file != NULL ? file : "job";
    bool chooses = file == NULL && ru_cmd_text(in, "out") == NULL;
    *app = (ru_app_job_file){0};
    if (!ru_app_job_text_is(yaml)) {
        if (chooses) {
            RU_TRY(choose_out(in->arena, token, out, err));
        }
        return ru_job_parse(label, yaml, in->arena, job, err);
    }
    if (file == NULL && !is_run_of(in->arena, *out, token)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "%s is not the folder of this run; workers of a job with an app share it, "
                       "so mount it here, or name it with --out",
                       *out);
    }
    RU_TRY(ru_app_job_parse(label, yaml, in->arena, app, err));
    *job = (ru_job){.train.threads = app->job->train.threads};
    return RU_OK;
}

static ru_status check_numbers(ru_cmd_in *in, ru_err *err)
{
    const char *cores = ru_cmd_text(in, "cores");
    int64_t min = ru_cmd_i64(in, "min"), max = ru_cmd_i64(in, "max");
    if (min > max || ru_cmd_i64(in, "founders") > max) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--min %lld and --founders %lld must not be larger than --max %lld",
                       (long long)min, (long long)ru_cmd_i64(in, "founders"), (long long)max);
    }
    static const char *const addresses[] = {"listen", "toward", "weights"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(addresses); k++) {
        const char *a = ru_cmd_text(in, addresses[k]);
        if (a != NULL && !ru_link_tcp_address_ok(a)) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--%s '%s': expected HOST:PORT, [v6]:PORT or :PORT with a port of 0 to "
                           "65535",
                           addresses[k], a);
        }
    }
    if (ru_cmd_choice(in, "tier") == RU_TIER_TRANSIENT && ru_cmd_text(in, "join") == NULL) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--tier transient: the worker that founds a job must be reliable; start the "
                       "job on a reliable machine and --join it from this one");
    }
    size_t n = cores != NULL ? strspn(cores, "0123456789abcdefABCDEF") : 1;
    if (cores != NULL && (n < 1 || n > 16 || cores[n] != 0)) {
        return RU_FAIL(err, RU_E_USAGE, "--cores '%s': expected up to 16 hexadecimal digits",
                       cores);
    }
    return RU_OK;
}

static ru_status check_join(const char *join, ru_err *err)
{
    const char *colon = join != NULL ? strrchr(join, ':') : NULL;
    size_t digits = colon != NULL ? strspn(colon + 1, "0123456789") : 0;
    if (join != NULL && (digits < 1 || digits > 5 || colon == join || colon[1 + digits] != 0 ||
                         strtol(colon + 1, NULL, 10) < 1 || strtol(colon + 1, NULL, 10) > 65535)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--join '%s': expected HOST:PORT or [v6]:PORT with a port of 1 to 65535",
                       join);
    }
    return RU_OK;
}

/* A worker that was silent for too long (its machine slept, its network failed) was removed by the
 * others; it comes back as a newcomer, unless it was told to stop. */
static ru_status work(ru_worker_options *wo, const ru_app_job_file *app, ru_worker_result *result,
                      ru_err *err)
{
    char again[sizeof result->again];
    for (;;) {
        ru_arena arena;
        ru_arena_init(&arena, 0);
        *result = (ru_worker_result){0}; /* one that fails at once was not removed again */
        const ru_app_worker_options ao = {
            .file = app, .worker = wo, .threads = wo->train.job->train.threads};
        ru_status st = app->ops != NULL ? ru_app_worker_run(&ao, &arena, result, err)
                                        : ru_worker_run(wo, &arena, result, err);
        ru_arena_fini(&arena);
        if (st == RU_OK || !result->removed || ru_self_stop_asked() != 0) {
            return st;
        }
        (void)fprintf(stderr, "removed from the job (%s); joining it again at %s\n", err->text,
                      result->again);
        (void)snprintf(again, sizeof again, "%s", result->again);
        wo->shell.join = again;
        wo->shell.newcomer = wo->train.resume = true; /* resume: the files of the run stay */
    }
}

/* The workers of a pipeline or placed step start again at the same address, so whoever joined asks
 * there for the job, which may be divided anew, and waits again. False: nobody answers there, or
 * the same job refused this worker, so the error stays. */
static bool ask_again(const ru_worker_options *wo, const char *token, ru_job *job, ru_arena *arena,
                      bool refused)
{
    ru_err ignored;
    ru_job now = {0};
    const char *yaml, *out;
    ru_text a = ru_text_arena(arena), b = ru_text_arena(arena);
    bool is = false;
    for (uint32_t k = 0; k < AGAIN_MAX && !is && ru_self_stop_asked() == 0; k++) {
        ru_clock_pause(AGAIN_NS);
        is = ru_ask_job(wo->shell.join, (const uint8_t *)token, (uint32_t)strlen(token), arena,
                        &yaml, &out, &ignored) == RU_OK &&
             ru_job_parse("job", yaml, arena, &now, &ignored) == RU_OK;
    }
    now.train.threads = job->train.threads;
    ru_job_dump(job, NULL, &a);
    ru_job_dump(&now, NULL, &b);
    if (!is || (refused && strcmp(a.p, b.p) == 0)) {
        return false;
    }
    *job = now;
    return true;
}

enum { RENTED = RU_TIERS }; /* the choice behind the tiers */

/* By its option, or by the job. */
static ru_status tier_of(ru_cmd_in *in, const ru_job *job, bool is_app, const char *join,
                         bool *transient, ru_err *err)
{
    char here[256];
    ru_self_host(here, sizeof here);
    int64_t tier = ru_cmd_choice(in, "tier");
    *transient = tier == RU_TIER_TRANSIENT || (tier == RENTED && is_app && join != NULL) ||
                 ru_host_listed(&job->train.transient, here);
    if (*transient && join == NULL) {
        return RU_FAIL(err, RU_E_USAGE,
                       "train.transient names this machine, which founds the job; the worker that "
                       "founds a job must be reliable");
    }
    return RU_OK;
}

/* How it ended, for people. */
static void say_how(ru_status st, const ru_worker_result *result, bool launched)
{
    if (st == RU_OK && result->spare && !result->left) {
        (void)fprintf(stderr, "the job has ended; this worker was a spare\n");
    } else if (st == RU_OK && result->number == 0) {
        (void)fprintf(stderr, "gave up joining\n");
    } else if (st == RU_OK && !launched) {
        (void)fprintf(stderr, "%s after step %lld\n",
                      result->left ? "left the job; the others continue," : "the job has ended",
                      (long long)result->step);
    }
}

static void take_numbers(const ru_cmd_in *in, ru_worker_options *wo)
{
    wo->founders = (uint32_t)ru_cmd_i64(in, "founders");
    wo->n_min = (uint32_t)ru_cmd_i64(in, "min");
    wo->n_begin = (uint32_t)ru_cmd_i64(in, "begin");
    wo->sets = ru_cmd_text(in, "sets");
    wo->far = ru_cmd_flag(in, "far");
    wo->after = ru_cmd_i64(in, "after");
    wo->spares = (uint32_t)ru_cmd_i64(in, "spares");
}

static void say_where(const ru_worker_options *wo, bool launched)
{
    if (!launched) {
        (void)fprintf(stderr, "joining %s; results go to %s\n", wo->shell.join, wo->train.out);
    }
    if (wo->shell.newcomer && ru_pipe_job_is(wo->train.job)) {
        (void)fprintf(stderr, "waits as a spare until a worker is lost, or a step with one more is "
                              "predicted to be faster\n");
    }
}

static ru_status be_worker(ru_cmd_in *in, teller *tells, ru_worker_result *result, ru_err *err)
{
    const char *join = ru_cmd_text(in, "join"), *token, *out;
    int64_t messages = ru_cmd_choice(in, "messages");
    bool launched = ru_cmd_text(in, "job") != NULL, told = tells->file != NULL, transient;
    ru_job job;
    if (join == NULL && !launched) {
        return RU_FAIL(err, RU_E_USAGE,
                       "name a job: rubato worker --join HOST:PORT --token-file OUT/token");
    }
    RU_TRY(check_join(join, err));
    RU_TRY(check_numbers(in, err));
    RU_TRY(ru_token_get(ru_cmd_text(in, "token-file"), in->arena, &token, err));
    ru_app_job_file app;
    RU_TRY(get_job(in, token, &job, &app, &out, err));
    if (ru_cmd_given(in, "threads")) {
        job.train.threads = (uint32_t)ru_cmd_i64(in, "threads");
    } else if (!launched && on_this_machine(join)) {
        job.train.threads = 1; /* two teams on one core would hardly move */
    }
    RU_TRY(tier_of(in, &job, app.ops != NULL, join, &transient, err));
    const char *cores = ru_cmd_text(in, "cores");
    ru_worker_options wo = {
        .train = {.job = &job,
                  .out = out,
                  .resume = ru_cmd_flag(in, "resume"),
                  .json = !told && ru_self_columns(1) == 0, /* for who started it */
                  .messages = tells->messages,
                  .progress = messages > 1,
                  .quiet = in->verbose < 0,
                  .columns = in->progress ? ru_self_columns(2) : 0,
                  .cache_dir = ru_choices_dir(in->arena),
                  .dir_made = true,
                  .generation = (uint32_t)ru_cmd_i64(in, "generation"),
                  .rank = ru_cmd_given(in, "rank") ? (uint32_t)ru_cmd_i64(in, "rank")
                                                   : (uint32_t)ru_self_pid()},
        .shell = {.join = join,
                  .listen = ru_cmd_text(in, "listen"),
                  .toward = ru_cmd_text(in, "toward"),
                  .token = (const uint8_t *)token,
                  .token_bytes = (uint32_t)strlen(token),
                  .n_max = (uint32_t)ru_cmd_i64(in, "max"),
                  .newcomer =
                      ru_cmd_flag(in, "newcomer") || (!launched && !ru_cmd_given(in, "founders")),
                  .transient = transient,
                  .stop_leaves = !launched && !told,
                  .term_leaves = told,
                  .number = (uint32_t)ru_cmd_i64(in, "rank"),
                  .address = tells->messages || told ? say_address : NULL,
                  .member = launched && !told ? say_number : tell_number,
                  .self = tells},
        .deterministic = ru_cmd_flag(in, "deterministic"),
        .equal_shares = ru_cmd_flag(in, "equal-shares"),
        .sockets_only = ru_cmd_flag(in, "sockets"),
        .weights = ru_cmd_text(in, "weights"),
        .cores = cores != NULL ? strtoull(cores, NULL, 16) : 0,
    };
    take_numbers(in, &wo);
    say_where(&wo, launched);
    ru_self_stop_watch();
    if (told) { /* an agent sends SIGTERM, and who ends the agent's group may send another one */
        ru_self_stop_patient();
    }
    ru_status st;
    do {
        st = work(&wo, &app, result, err);
    } while (st != RU_OK && result->start_again &&
             ask_again(&wo, token, &job, in->arena, st == RU_E_CONFIG && result->number == 0));
    ru_self_stop_unwatch();
    say_how(st, result, launched);
    return st;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    teller tells = {.messages = ru_cmd_choice(in, "messages") > 0, .file = ru_cmd_text(in, "tell")};
    ru_worker_result result = {0};
    tell_self(&tells);
    ru_status st = be_worker(in, &tells, &result, err);
    tell_end(&tells, st, &result, err->text);
    return st;
}

const ru_cmd rui_cmd_worker = {
    .name = "worker",
    .summary = "join a running job as an additional worker",
    .about = "Connects to any worker of a job that `rubato train -w MIN:MAX` started. Receives the "
             "job and the training state while the other workers continue. Trains until the job "
             "ends.\n\nThe first Ctrl-C leaves the job after the current step; the others "
             "continue. The training data must exist under the paths of the job. Connections to "
             "other machines use TLS 1.3 with the token as the key.",
    RU_CMD_LISTS(opts, examples),
    .exits = "1 training diverged|66 an input is missing|69 no worker answers, or the token "
             "differs|73 the run's folder cannot be created or written|75 another job uses the "
             "run's folder|78 data, options or program differ from those of the job",
    .computes = true,
    .run = run,
};
