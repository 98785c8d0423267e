/* rubato sim: a world in the simulator, with the code that runs on real machines. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/table.h"
#include "lab/script.h"
#include "tool/cmd.h"
#include "tool/cmd/sim_real.h"
#include "tool/plan/world_in.h"

enum { WORKERS_MAX = 4096, STEPS_MAX = 100000 };

/* `--policy NAME=METHOD`: what the simulated job decides otherwise. */
static const struct {
    const char *choice, *what;
    bool equal, deterministic;
    ru_sums_method sums;
} choices[] = {
    {.choice = "share=speed", .what = "shares by measured speed"},
    {.choice = "share=equal", .what = "equal shares", .equal = true},
    {.choice = "coll=fastest", .what = "collectives by predicted time"},
    {.choice = "coll=direct", .what = "direct sums in rank order", .deterministic = true},
    {.choice = "sums=rule", .what = "buckets of neighbours"},
    {.choice = "sums=ddp", .what = "buckets of 1 MiB, then 25 MiB", .sums = RU_SUMS_DDP},
    {.choice = "sums=serial", .what = "a bucket for each gradient", .sums = RU_SUMS_SERIAL},
    {.choice = "sums=none", .what = "one bucket", .sums = RU_SUMS_NONE},
};

static ru_status choose(ru_cmd_in *in, ru_sim_job *job, ru_err *err)
{
    uint32_t n;
    const char *const *given = ru_cmd_texts(in, "policy", &n);
    const char *names[RU_ARRAY_LEN(choices)];
    for (uint32_t k = 0; k < RU_ARRAY_LEN(choices); k++) {
        names[k] = choices[k].choice;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0;
        while (k < RU_ARRAY_LEN(choices) && strcmp(given[i], names[k]) != 0) {
            k++;
        }
        if (k == RU_ARRAY_LEN(choices)) {
            int32_t near = ru_str_nearest(ru_str_c(given[i]), names, k);
            return RU_FAIL(err, RU_E_USAGE,
                           "--policy '%s': expected share=speed|equal, coll=fastest|direct or "
                           "sums=rule|ddp|serial|none%s%s%s",
                           given[i], near >= 0 ? "; did you mean '" : "",
                           near >= 0 ? names[near] : "", near >= 0 ? "'?" : "");
        }
        job->equal_shares = job->equal_shares || choices[k].equal;
        job->deterministic = job->deterministic || choices[k].deterministic;
        job->sums = choices[k].sums != RU_SUMS_CARAMEL ? choices[k].sums : job->sums;
    }
    return RU_OK;
}

static void put_line(ru_table *t, const char *what, int64_t ns, const char *from)
{
    ru_table_str(t, what);
    if (ns > 0) {
        ru_table_ns(t, ns);
    } else {
        ru_table_none(t);
    }
    ru_table_str(t, from);
}

static void show_links(const ru_sim_job *job, const ru_sim_world *x, ru_text *out)
{
    bool several = x->hosts < job->founders, inside = x->hosts == 1;
    if (!inside) {
        ru_text_putf(out, "links: %.3g bytes/s, %.3g us (%s)\n", job->nic.bytes_per_s,
                     (double)job->nic.delay_ns * 1e-3,
                     x->link_given      ? "as the real processes measured them"
                     : x->link_measured ? "fitted to measured collectives"
                     : x->link_assumed  ? "assumed"
                                        : "interface of the cluster");
    }
    if (inside && job->nic.local_bytes_per_s > 0) {
        ru_text_putf(out, "inside of the host: %.3g bytes/s, %.3g us (%s)\n",
                     job->nic.local_bytes_per_s, (double)job->nic.local_delay_ns * 1e-3,
                     x->link_measured ? "fitted to measured collectives" : "given");
    }
    if (several) {
        ru_text_putf(out,
                     "the workers of a host share its interface%s; their sums are messages, not "
                     "shared memory\n",
                     job->host_cores > 0 ? " and its cores" : "");
    }
}

static ru_status show(ru_cmd_in *in, const ru_world *w, const ru_sim_job *job,
                      const ru_sim_world *x, const ru_sim_job_result *r,
                      const ru_script_run_result *real, ru_err *err)
{
    ru_text out = ru_text_arena(in->arena);
    const char *ops =
        x->n_ops > 0
            ? ru_arena_printf(in->arena,
                              "%u op instances, %u of them measured; expected error %.0f %%",
                              x->n_ops, x->measured, 100 * x->error)
            : "mean measured compute time";
    ru_text_putf(&out,
                 "job %s on %u simulated workers of %u host%s, seed %llu: %lld of %lld steps\n",
                 w->jobs.at[0].name, job->founders, x->hosts, x->hosts == 1 ? "" : "s",
                 (unsigned long long)job->seed, (long long)r->committed, (long long)job->steps);
    ru_table t = ru_table_in(in->arena);
    ru_table_col(&t, "time", RU_TABLE_LEFT);
    ru_table_col(&t, "value", RU_TABLE_RIGHT);
    ru_table_col(&t, "from", RU_TABLE_LEFT);
    put_line(&t, "compute of the measured share, predicted", x->compute_ns, ops != NULL ? ops : "");
    put_line(&t, "update, predicted", x->script.update_ns, x->n_ops > 0 ? "op instances" : "");
    put_line(&t, "step, predicted", x->path_ns, "compute, sums and update as they wait, by costs");
    put_line(&t, "step, simulated", r->step_ns, "mean of committed steps");
    if (real != NULL) {
        put_line(&t, "step, real processes", real->step_ns, "the same script over real links");
    }
    put_line(&t, "step, measured", x->measured_ns,
             ru_arena_printf(in->arena, "facts of %u workers", w->facts.steps.at[0].workers));
    RU_TRY(ru_table_print(&t, 2, &out, err));
    show_links(job, x, &out);
    fputs(out.p, stdout);
    return RU_OK;
}

static void show_json(ru_cmd_in *in, const ru_world *w, const ru_sim_job *job,
                      const ru_sim_world *x, const ru_sim_job_result *r,
                      const ru_script_run_result *real)
{
    ru_text out = ru_text_arena(in->arena);
    ru_json j = ru_json_into(&out);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "schema", "rubato.sim/1");
    ru_json_str(&j, "job", w->jobs.at[0].name);
    ru_json_i64(&j, "seed", (int64_t)job->seed);
    ru_json_i64(&j, "workers", job->founders);
    ru_json_i64(&j, "hosts", x->hosts);
    ru_json_i64(&j, "steps", r->committed);
    ru_json_f64(&j, "step_s", (double)r->step_ns * 1e-9);
    ru_json_f64(&j, "predicted_compute_s", (double)x->compute_ns * 1e-9);
    ru_json_f64(&j, "predicted_step_s", (double)x->path_ns * 1e-9);
    ru_json_f64(&j, "predicted_error", x->error);
    ru_json_f64(&j, "measured_step_s", (double)x->measured_ns * 1e-9);
    if (real != NULL) {
        ru_json_f64(&j, "real_step_s", (double)real->step_ns * 1e-9);
    }
    ru_json_f64(&j, "link_bytes_per_s", job->nic.bytes_per_s);
    ru_json_f64(&j, "link_latency_s", (double)job->nic.delay_ns * 1e-9);
    ru_json_i64(&j, "events", r->events);
    ru_json_i64(&j, "hash", (int64_t)(r->hash & INT64_MAX));
    ru_json_close(&j);
    ru_text_put(&out, "\n");
    fputs(out.p, stdout);
}

static ru_status check_real(ru_cmd_in *in, bool is_real, ru_err *err)
{
    static const char *const only[] = {"listen", "join", "rank"};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(only); k++) {
        if (!is_real && ru_cmd_given(in, only[k])) {
            return RU_FAIL(err, RU_E_USAGE, "--%s is for real processes: add --real", only[k]);
        }
    }
    if (is_real && ru_cmd_given(in, "per-host")) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--per-host places simulated workers; real processes run where they are "
                       "started");
    }
    return RU_OK;
}

/* The same job on links as the real processes measured them, each worker on its own. */
static ru_status again_on(const ru_world *w, const ru_coll_cost *ring, ru_cmd_in *in,
                          ru_sim_job *job, ru_sim_world *x, ru_err *err)
{
    if (ring->n_points == 0 || !(ring->beta_ns > 0)) {
        return RU_OK;
    }
    job->nic =
        (ru_sim_nic){.bytes_per_s = 1e9 / ring->beta_ns, .delay_ns = (int64_t)ring->alpha_ns};
    return ru_sim_job_of_world(w, in->arena, job, x, err);
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    ru_world w;
    ru_sim_world x;
    ru_sim_job_result r;
    ru_script_run_result real;
    bool is_real = ru_cmd_flag(in, "real");
    RU_TRY(check_real(in, is_real, err));
    RU_TRY(rui_world_open(in->args[0], in->arena, &w, err));
    ru_sim_job job = {.seed = (uint64_t)ru_cmd_i64(in, "seed"),
                      .steps = ru_cmd_i64(in, "steps"),
                      .batch = ru_cmd_i64(in, "batch"),
                      .memory_max_bytes = ru_cmd_i64(in, "memory"),
                      .founders = (uint32_t)ru_cmd_i64(in, "workers"),
                      .per_host = is_real ? 1 : (uint32_t)ru_cmd_i64(in, "per-host")};
    RU_TRY(choose(in, &job, err));
    RU_TRY(ru_sim_job_of_world(&w, in->arena, &job, &x, err));
    if (is_real) {
        RU_TRY(rui_sim_real(in, &job, &real, err));
        if (ru_cmd_given(in, "join")) {
            return RU_OK;
        }
        RU_TRY(again_on(&w, &real.costs[RU_ALGO_RING], in, &job, &x, err));
    }
    job.trace_dir = ru_cmd_text(in, "trace");
    job.replay = ru_arena_printf(in->arena, "rubato sim %s --seed %llu", in->args[0],
                                 (unsigned long long)job.seed);
    RU_TRY(ru_sim_job_run(&job, &r, err));
    if (ru_cmd_flag(in, "json")) {
        show_json(in, &w, &job, &x, &r, is_real ? &real : NULL);
        return RU_OK;
    }
    return show(in, &w, &job, &x, &r, is_real ? &real : NULL, err);
}

static const ru_opt opts[] = {
    RU_OPT(TEXTS, "policy", "NAME=METHOD",
           "use another method of a policy: share=equal, coll=direct, sums=serial, sums=none"),
    RU_OPT(I64, "seed", "N", "the same seed gives the same events", .letter = 's', .def = "1",
           RU_IN(0, 9e15)),
    RU_OPT(I64, "steps", "N", "number of steps to simulate", .def = "30", RU_IN(1, STEPS_MAX)),
    RU_OPT(I64, "workers", "N", "number of workers; 0: as many as in the facts", .letter = 'w',
           .def = "0", RU_IN(0, WORKERS_MAX)),
    RU_OPT(SIZE, "memory", NULL,
           "largest memory of the simulation, which ends with a sentence beyond it; 0: three "
           "quarters of what the machine has free",
           .def = "0"),
    RU_OPT(TEXT, "trace", "DIR", "write a trace of each simulated worker, in virtual time"),
    RU_OPT(I64, "per-host", "N",
           "workers of one host, which share its interface and cores; 0: as in the facts",
           .def = "0", RU_IN(0, WORKERS_MAX)),
    RU_OPT(I64, "batch", "N", "samples of one step of all workers; 0: as in the facts",
           .letter = 'b', .def = "0", RU_IN(0, 4294967295.0)),
    RU_OPT(FLAG, "real", NULL,
           "run the job in real processes as well, which compute nothing but wait as long as "
           "the facts say and send everything; on this machine, unless --listen is given"),
    RU_OPT(TEXT, "listen", "HOST:PORT",
           "with --real: wait there for the other processes (--join), with the token in "
           "RUBATO_TOKEN"),
    RU_OPT(TEXT, "join", "HOST:PORT",
           "with --real: be one of the other processes of the job at this address"),
    RU_OPT(I64, "rank", "N", "with --join: number of this process, from 2", .def = "2",
           RU_IN(2, WORKERS_MAX)),
    RU_OPT(FLAG, "json", NULL, "one JSON object (rubato.sim/1)"),
};

static const ru_example examples[] = {
    {"rubato sim runs/digits-1", "simulate the job of a run in virtual time"},
    {"rubato sim world.json --workers 64", "simulate it with 64 workers"},
    {"rubato sim world.json -w 64 --per-host 8", "simulate it on eight hosts"},
    {"rubato sim vgg16.graph.txt -w 4 -b 256 --real",
     "a layer profile, in the simulator and in four real processes"},
    {"rubato sim world.json --policy sums=serial", "simulate it without gradient buckets"},
};

const ru_cmd rui_cmd_sim = {
    .name = "sim",
    .summary = "run the job of a world file in the simulator",
    .about = "RUN is the folder of a run, a world file (`rubato capture`) or a profile of layers. "
             "The simulator runs "
             "the membership, channel, collective and training code that real machines run. "
             "Devices and links take virtual time according to the facts of the file. Ops take "
             "their measured time, or the time of a model over flops and bytes. The link model is "
             "fitted to measured collectives.",
    RU_CMD_ARGS("RUN", 1, 1),
    RU_CMD_LISTS(opts, examples),
    .exits = "66 there is no such run, or it lacks the facts|69 the links are too slow for so many "
             "workers|75 the simulation takes more than its memory|78 the world file is not valid",
    .run = run,
};
