/* rubato profile: what the steps of jobs take here, op by op, under quotas of processor time. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cost/step/profile.h"
#include "env/file/file.h"
#include "env/process/group.h"
#include "env/process/process.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "store/world_file.h"
#include "tool/cmd.h"
#include "train/pipe/profile.h"

enum { QUOTAS_MAX = 32, PERIOD_NS = 10000000 };

static ru_status put_world(const char *path, const ru_world *w, ru_arena *arena, ru_err *err)
{
    ru_text text = ru_text_arena(arena);
    RU_TRY(ru_world_file_put(w, &text, err));
    return ru_file_replace(path, text.p, text.n, err);
}

/* This process, as it is. */
static ru_status profile_here(ru_cmd_in *in, const ru_job *job, ru_world *all, ru_err *err)
{
    ru_world one;
    const char *type = ru_cmd_text(in, "type");
    const ru_profile_options opt = {.type = type != NULL ? type : "cpu",
                                    .threads = (uint32_t)ru_cmd_i64(in, "threads"),
                                    .steps = (uint32_t)ru_cmd_i64(in, "steps"),
                                    .least_ns = ru_cmd_i64(in, "least")};
    RU_TRY(ru_profile_job(job, &opt, in->arena, &one, err));
    const ru_step_fact *s = &one.facts.steps.at[0];
    if (in->verbose >= 0) {
        fprintf(stderr,
                "%-12s %-10s step %8.3f ms (compute %.3f, reading %.3f alone), %lld steps\n",
                job->name, opt.type, s->took.mean_ns * 1e-6, s->compute_ns * 1e-6,
                s->input_ns * 1e-6, (long long)s->took.count);
    }
    double could, got = ru_cost_profile_share(&one.facts.processors.at[0], &could);
    if (got < 0.9 * could) {
        fprintf(stderr,
                "%-12s %-10s others used the processors meanwhile: the steps got %.2f of a core "
                "where they could have got %.2f; profile again when the machine is quiet\n",
                job->name, opt.type, got, could);
    }
    return ru_profile_add(all, &one, in->arena, err);
}

/* Its exit code; a stop signal ends it, since nobody else knows of it. */
static int wait_for(ru_process *p)
{
    struct pollfd either[] = {{.fd = ru_process_fd(p, false), .events = POLLIN},
                              {.fd = ru_self_stop_fd(), .events = POLLIN}};
    while (poll(either, RU_ARRAY_LEN(either), -1) < 0 && errno == EINTR) {
    }
    if (ru_self_stop_asked() != 0) {
        ru_process_kill(p, SIGKILL);
    }
    return ru_process_wait(p);
}

/* The same command in a control group; what it measured is added, unless in->exit_code is set. */
static ru_status run_in(ru_cmd_in *in, const ru_group *g, const char *type, const char *part,
                        ru_world *all, ru_err *err)
{
    uint32_t n = 0, n_sets;
    const char *const *sets = ru_cmd_texts(in, "set", &n_sets);
    const char **argv = RU_NEW(in->arena, const char *, (int64_t)in->n_args + 2 * n_sets + 16);
    const char *steps =
        ru_arena_printf(in->arena, "--steps=%lld", (long long)ru_cmd_i64(in, "steps"));
    const char *least =
        ru_arena_printf(in->arena, "--least=%lldns", (long long)ru_cmd_i64(in, "least"));
    const char *threads =
        ru_arena_printf(in->arena, "--threads=%lld", (long long)ru_cmd_i64(in, "threads"));
    if (argv == NULL || steps == NULL || least == NULL || threads == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a command");
    }
    const char *const first[] = {"/proc/self/exe", "profile", steps,   least, threads,
                                 "--type",         type,      "--out", part};
    memcpy(argv, first, sizeof first);
    n = RU_ARRAY_LEN(first);
    for (uint32_t k = 0; k < n_sets; k++) {
        argv[n++] = "--set";
        argv[n++] = sets[k];
    }
    if (in->verbose < 0) {
        argv[n++] = "-q";
    }
    argv[n++] = "--";
    memcpy(argv + n, in->args, in->n_args * sizeof *argv);
    ru_process *p;
    const ru_process_options po = {.argv = argv, .pipe_out = true, .group = g};
    RU_TRY(ru_process_start(&po, &p, err));
    int code = wait_for(p), stopped = ru_self_stop_asked();
    ru_process_close(p);
    if (stopped != 0 || (code != 0 && code < 128)) {
        in->exit_code = stopped != 0 ? 128 + stopped : code; /* it has told why */
        return RU_OK;
    }
    if (code != 0) {
        return RU_FAIL(err, RU_E_PEER, "signal %d ended the profile of type %s", code - 128, type);
    }
    ru_world one;
    RU_TRY(ru_world_file_load(part, in->arena, &one, err));
    return ru_profile_add(all, &one, in->arena, err);
}

static ru_status profile_quota(ru_cmd_in *in, int64_t percent, const char *out, ru_world *all,
                               ru_err *err)
{
    ru_group *g;
    ru_err left;
    long long pid = (long long)ru_self_pid(), of_core = (long long)percent;
    const char *prefix = ru_cmd_text(in, "type");
    const char *type =
        ru_arena_printf(in->arena, "%s%lld", prefix != NULL ? prefix : "cpu", of_core);
    const char *part = ru_arena_printf(in->arena, "%s.%lld-%lld.part", out, pid, of_core);
    const char *name = ru_arena_printf(in->arena, "rubato-profile-%lld-%lld", pid, of_core);
    const ru_group_limits limits = {.cpu_quota_ns = percent * PERIOD_NS / 100,
                                    .cpu_period_ns = PERIOD_NS};
    if (type == NULL || part == NULL || name == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for names");
    }
    ru_status st = ru_group_make(name, &limits, NULL, NULL, &g, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st,
                           "a quota needs a control group; run as root, or leave out "
                           "--quota and name the machine with --type");
    }
    st = run_in(in, g, type, part, all, err);
    (void)!ru_path_remove(part, NULL);
    if (ru_group_remove(g, &left) != RU_OK) { /* it may be busy for a moment: it bounds nothing */
        ru_log(RU_LOG_WARN, "profile", "group_stays", "%s", left.text);
    }
    ru_group_close(g);
    return st;
}

static ru_status read_quotas(const char *text, int64_t *percent, uint32_t *n, ru_err *err)
{
    ru_str rest = ru_str_c(text), word;
    uint32_t cores = ru_pool_cores();
    *n = 0;
    while (ru_str_next(&rest, ',', &word)) {
        bool ok =
            *n < QUOTAS_MAX && ru_str_i64(ru_str_trim(word), &percent[*n]) && percent[*n] >= 1;
        if (!ok) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--quota has '%.*s'; expected up to %d whole percents of a core, such "
                           "as 25,50,100,200",
                           RU_STR_ARG(word), QUOTAS_MAX);
        }
        if (percent[*n] > 100 * (int64_t)cores) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--quota has %lld, but this process may use %u core%s; expected at most "
                           "%u",
                           (long long)percent[*n], cores, cores == 1 ? "" : "s", 100 * cores);
        }
        *n += 1;
    }
    return RU_OK;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    ru_world all = {0};
    int64_t percent[QUOTAS_MAX];
    uint32_t n = 0, n_sets;
    const char *out = ru_cmd_text(in, "out"), *add = ru_cmd_text(in, "add");
    const char *quota = ru_cmd_text(in, "quota"), *const *sets = ru_cmd_texts(in, "set", &n_sets);
    ru_job *jobs = RU_NEW(in->arena, ru_job, in->n_args);
    RU_TRY(jobs != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for jobs"));
    if (ru_cmd_text(in, "type") != NULL && ru_cmd_text(in, "type")[0] == '\0') {
        return RU_FAIL(err, RU_E_USAGE, "--type is empty; name the type, or leave it out");
    }
    RU_TRY(quota != NULL ? read_quotas(quota, percent, &n, err) : RU_OK);
    if (add != NULL) {
        RU_TRY(ru_world_file_load(add, in->arena, &all, err));
        RU_TRY(ru_profile_check(&all, add, err));
    }
    for (uint32_t k = 0; k < in->n_args; k++) { /* what is wrong is told before anything runs */
        RU_TRY(ru_job_load(in->args[k], sets, n_sets, in->arena, &jobs[k], NULL, err));
    }
    for (uint32_t k = 0; k < in->n_args && n == 0; k++) {
        RU_TRY(profile_here(in, &jobs[k], &all, err));
    }
    ru_status st = RU_OK;
    if (n > 0) {
        ru_self_stop_watch(); /* else a group and a part would be left */
    }
    for (uint32_t k = 0; k < n && st == RU_OK && in->exit_code == 0; k++) {
        st = profile_quota(in, percent[k], out, &all, err);
    }
    ru_self_stop_unwatch();
    return st == RU_OK && in->exit_code == 0 ? put_world(out, &all, in->arena, err) : st;
}

static const ru_opt opts[] = {
    RU_OPT(TEXT, "out", "FILE", "file to write: a world file with devices and facts", .letter = 'o',
           .def = "devices.json"),
    RU_OPT(TEXT, "quota", "PERCENT,...",
           "measure under each of these quotas of processor time, in percent of a core (100,200), "
           "in a control group with a period of 10 ms; each is a type of device, cpu100"),
    RU_OPT(TEXT, "type", "NAME",
           "what the facts call this machine (default: cpu); with --quota: in front of the "
           "percent"),
    RU_OPT(TEXT, "add", "FILE", "profiles to which those of now are added"),
    RU_OPT(TEXTS, "set", "KEY=VALUE", "set a key of the jobs", .letter = 's'),
    RU_OPT(I64, "steps", "N", "steps to measure, at least, of each job and quota", .def = "30",
           RU_IN(1, 100000)),
    RU_OPT(TIME, "least", "TIME", "and at least so long", .def = "1s", RU_IN(0, 3.6e12)),
    RU_OPT_THREADS('t'),
};

static const ru_example examples[] = {
    {"rubato profile job.yaml --quota 25,50,100,200 --out devices.json",
     "this machine as four types of device"},
    {"rubato profile a.yaml b.yaml --type small --out devices.json",
     "profile two jobs on this machine as it is"},
    {"rubato profile c.yaml --quota 100,200 --add devices.json --out devices.json",
     "add another job's profile"},
};

const ru_cmd rui_cmd_profile = {
    .name = "profile",
    .summary = "measure the steps of jobs op by op, on this machine under several quotas",
    .about =
        "Each job is opened as `rubato train` opens it. Its steps run with data that is read "
        "beside them, then on one batch in memory; then its data is read while nothing is "
        "computed. "
        "The file, a world file, has types of devices, times of ops and of steps; `rubato explain "
        "FILE` shows them, and `rubato plan JOB --cluster CLUSTER --facts FILE` predicts steps "
        "from them, also of nets that were not profiled. "
        "Checkpoints and runs are not touched.",
    RU_CMD_ARGS("JOB.yaml...", 1, 64),
    RU_CMD_LISTS(opts, examples),
    .computes = true,
    .exits = "66 there is no such file, or no control groups|69 a signal ended the process of a "
             "quota|77 no permission to "
             "make control groups|78 a job is not valid",
    .run = run,
};
