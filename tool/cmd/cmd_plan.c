/* rubato plan: ask one policy, outside of any job. */
#include <stdio.h>
#include <string.h>

#include "env/file/file.h"
#include "plan/row/policy.h"
#include "solve/solver.h"
#include "store/natural.h"
#include "store/world_file.h"
#include "tool/cmd.h"
#include "tool/plan/ways.h"
#include "tool/plan/world_in.h"
#include "tool/serve/client.h"
#include "train/pipe/measure.h"

static ru_status list(ru_cmd_in *in, ru_err *err)
{
    uint32_t n;
    const ru_policy *const *all = ru_policies(&n);
    ru_text out = ru_text_arena(in->arena);
    if (ru_cmd_flag(in, "json")) {
        for (uint32_t i = 0; i < n; i++) {
            ru_json j = ru_json_into(&out);
            ru_json_open(&j, NULL, '{');
            ru_json_str(&j, "schema", "rubato.policy/1");
            ru_json_str(&j, "name", all[i]->name);
            ru_json_i64(&j, "version", all[i]->version);
            ru_json_str(&j, "decides", all[i]->decides);
            ru_json_str(&j, "source", all[i]->source);
            ru_json_close(&j);
            ru_text_put(&out, "\n");
        }
    } else {
        ru_table t = ru_table_in(in->arena);
        ru_table_col(&t, "policy", RU_TABLE_LEFT);
        ru_table_col(&t, "decides", RU_TABLE_LEFT);
        ru_table_col(&t, "source", RU_TABLE_LEFT);
        for (uint32_t i = 0; i < n; i++) {
            ru_table_str(&t, all[i]->name);
            ru_table_str(&t, all[i]->decides);
            ru_table_str(&t, all[i]->source);
        }
        RU_TRY(ru_table_print(&t, 0, &out, err));
    }
    fputs(out.p, stdout);
    return RU_OK;
}

/* The keys of the input, and the files of other programs that the policy reads. */
static void help_input(const ru_policy *p, ru_arena *arena)
{
    ru_text out = ru_text_arena(arena);
    ru_text_putf(&out, "%s decides %s (%s).\n\nInput (YAML or JSON):\n\n", p->name, p->decides,
                 p->source);
    ru_conf_help(p->in, 100, &out);
    const ru_natural *kind;
    for (uint32_t k = 0; (kind = ru_natural_of(p->name, k)) != NULL; k++) {
        ru_text_putf(&out, "%s  %s\n", k == 0 ? "\nOther files that it reads:\n\n" : "",
                     kind->what);
    }
    fputs(out.p, stdout);
}

/* Has the text the keys of a job at the beginning of a line? */
static bool is_job(const char *text)
{
    bool model = strncmp(text, "model:", 6) == 0 || strstr(text, "\nmodel:") != NULL;
    bool data = strncmp(text, "data:", 5) == 0 || strstr(text, "\ndata:") != NULL;
    return model && data;
}

/* A job: its layers are measured here. */
static ru_status add_job(const char *path, const char *cluster, ru_conf *c, ru_arena *arena,
                         ru_err *err)
{
    uint32_t units = 0;
    double bytes_per_s = 0;
    ru_job job;
    ru_pipe_layers layers;
    ru_text json = ru_text_arena(arena);
    ru_json j = ru_json_into(&json);
    ru_cluster hosts = {0};
    RU_TRY(cluster != NULL ? rui_cluster_read(cluster, arena, &hosts, err) : RU_OK);
    units = hosts.hosts.n;
    for (uint32_t k = 0; k < units; k++) { /* the slowest interface */
        double x = hosts.hosts.at[k].net_bytes_per_s;
        bytes_per_s = k == 0 || x < bytes_per_s ? x : bytes_per_s;
    }
    RU_TRY(ru_job_load(path, NULL, 0, arena, &job, NULL, err));
    RU_TRY(ru_pipe_measure(&job, job.train.threads, NULL, 0, arena, &layers, err));
    ru_json_open(&j, NULL, '{');
    ru_pipe_question(&layers, units, bytes_per_s, NULL, &j);
    ru_json_close(&j);
    return ru_conf_add_json(c, path, json.p, json.n, err);
}

static ru_status add_file(const ru_policy *p, ru_conf *c, const char *path, const char *cluster,
                          const char *facts, ru_arena *arena, ru_err *err)
{
    char *text;
    int64_t size;
    bool alone = cluster == NULL && facts == NULL;
    if (alone && (ru_path_is_dir(path) || rui_served_is_address(path))) {
        /* a run, a server */
        ru_world w;
        RU_TRY(rui_world_open(path, arena, &w, err));
        return rui_world_question(&w, path, p, c, arena, NULL, err);
    }
    RU_TRY(ru_file_read(path, RU_CONF_BULK_BYTES_MAX, arena, &text, &size, err));
    if (alone && ru_world_file_is(ru_str_n(text, size))) {
        ru_world w;
        RU_TRY(ru_world_file_parse(path, ru_str_n(text, size), arena, &w, err));
        return rui_world_question(&w, path, p, c, arena, NULL, err);
    }
    if (p == &ru_policy_pipe && is_job(text) && facts == NULL) {
        return add_job(path, cluster, c, arena, err);
    }
    if ((p == &ru_policy_device || p == &ru_policy_place) && is_job(text)) {
        const rui_ways_ask ask = {.job = path, .cluster = cluster, .facts = facts};
        ru_text json = ru_text_arena(arena);
        ru_json j = ru_json_into(&json);
        ru_json_open(&j, NULL, '{');
        RU_TRY(p == &ru_policy_place ? rui_place_question(&ask, arena, &j, err)
                                     : rui_device_question(&ask, arena, &j, err));
        ru_json_close(&j);
        return ru_conf_add_json(c, path, json.p, json.n, err);
    }
    if (!alone) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--cluster goes with a job and the policies pipe, place and device, "
                       "--facts with the last two; leave it out");
    }
    const ru_natural *kind = ru_natural_find(p->name, path, ru_str_n(text, size));
    if (kind != NULL) {
        ru_text json = ru_text_arena(arena);
        ru_json j = ru_json_into(&json);
        ru_json_open(&j, NULL, '{');
        RU_TRY(kind->read(path, ru_str_n(text, size), arena, &j, err));
        ru_json_close(&j);
        return ru_conf_add_json(c, path, json.p, json.n, err);
    }
    ru_str head = ru_str_trim(ru_str_n(text, size));
    return ru_str_starts(head, "{") ? ru_conf_add_json(c, path, text, size, err)
                                    : ru_conf_add_yaml(c, path, text, size, err);
}

static ru_status read_input(ru_cmd_in *in, const ru_policy *p, const char *path, void **out,
                            ru_err *err)
{
    ru_conf *c;
    RU_TRY(ru_conf_new(p->in, in->arena, &c, err));
    ru_conf_bulk(c);
    if (path != NULL) {
        RU_TRY(add_file(p, c, path, ru_cmd_text(in, "cluster"), ru_cmd_text(in, "facts"), in->arena,
                        err));
    } else {
        RU_TRY(ru_conf_add_yaml(c, "example", p->example, (int64_t)strlen(p->example), err));
    }
    uint32_t n;
    const char *const *sets = ru_cmd_texts(in, "set", &n);
    for (uint32_t i = 0; i < n; i++) {
        RU_TRY(ru_conf_add_set(c, sets[i], err));
    }
    const char *method = ru_cmd_text(in, "method");
    if (method != NULL) {
        RU_TRY(ru_conf_add_flag(c, "--method", "method", method, err));
    }
    *out = ru_arena_zalloc(in->arena, p->in->size_bytes, 64);
    return ru_conf_apply(c, *out, err);
}

static ru_status show(ru_cmd_in *in, const ru_policy *p, const void *input, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_policy_tools tools = {in->arena, &scratch, &ru_solver_library};
    ru_policy_answer a;
    ru_status st = ru_policy_run(p, input, &tools, &a, err);
    ru_text out = ru_text_arena(in->arena);
    if (st == RU_OK && ru_cmd_flag(in, "json")) {
        char id[33], hash[33];
        ru_hash128_text(a.head.id, id);
        ru_hash128_text(a.head.input, hash);
        ru_json j = ru_json_into(&out);
        ru_json_open(&j, NULL, '{');
        ru_json_str(&j, "schema", "rubato.plan/1");
        ru_json_str(&j, "policy", p->name);
        ru_json_i64(&j, "version", p->version);
        ru_json_str(&j, "id", id);
        ru_json_str(&j, "input", hash);
        st = ru_report_json(&a.report, &j, err);
        ru_json_close(&j);
        ru_text_put(&out, "\n");
    } else if (st == RU_OK) {
        st = ru_report_print(&a.report, &a.head, &out, err);
    }
    if (st == RU_OK) {
        fputs(out.p, stdout);
    }
    ru_arena_fini(&scratch);
    return st;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    if (ru_cmd_flag(in, "list")) {
        return list(in, err);
    }
    if (in->n_args == 0) {
        return RU_FAIL(err, RU_E_USAGE,
                       "name a policy and a file: rubato plan FILE POLICY; `rubato plan --list` "
                       "shows all policies");
    }
    /* FILE POLICY, or POLICY FILE: a policy's name is never taken for a file. */
    bool first = ru_policy_find(in->args[0]) != NULL;
    const char *name = in->args[first || in->n_args == 1 ? 0 : 1];
    const char *path = in->n_args == 1 ? NULL : in->args[first ? 1 : 0];
    if (in->n_args == 1 && !first && ru_cmd_text(in, "cluster") != NULL) {
        if (ru_cmd_given(in, "set") || ru_cmd_given(in, "method")) {
            return RU_FAIL(err, RU_E_USAGE,
                           "--set and --method go with a policy; leave them out, or name one");
        }
        const rui_ways_ask ask = {.job = name,
                                  .cluster = ru_cmd_text(in, "cluster"),
                                  .facts = ru_cmd_text(in, "facts"),
                                  .least_money = ru_cmd_choice(in, "goal") == 1,
                                  .json = ru_cmd_flag(in, "json")};
        return rui_ways(&ask, in->arena, err);
    }
    if (in->n_args == 1 && !first && ru_path_exists(name)) {
        return RU_FAIL(err, RU_E_USAGE,
                       "name a policy as well: rubato plan %s POLICY; `rubato plan --list` shows "
                       "all policies",
                       name);
    }
    const ru_policy *p;
    RU_TRY(rui_policy_named(name, &p, err));
    if (ru_cmd_flag(in, "example")) {
        fputs(p->example, stdout);
        return RU_OK;
    }
    if (ru_cmd_flag(in, "help-input")) {
        help_input(p, in->arena);
        return RU_OK;
    }
    if (path == NULL) {
        return RU_FAIL(err, RU_E_USAGE,
                       "rubato plan %s needs a file; `rubato plan %s --example > in.yaml` writes "
                       "one",
                       name, name);
    }
    void *input;
    RU_TRY(read_input(in, p, path, &input, err));
    return show(in, p, input, err);
}

static const ru_opt opts[] = {
    RU_OPT(FLAG, "list", NULL, "list every policy with what it decides and its source"),
    RU_OPT(FLAG, "example", NULL, "print an example input of the policy"),
    RU_OPT(FLAG, "help-input", NULL,
           "print the keys of the policy's input with types, defaults and bounds"),
    RU_OPT(TEXT, "method", "NAME",
           "method of the policy: Rubato's own or a baseline (--help-input lists them)"),
    RU_OPT(TEXTS, "set", "KEY=VALUE", "change a key of the input"),
    RU_OPT(TEXT, "cluster", "FILE",
           "with a job: hosts, their interfaces, devices and prices (the key cluster of a world "
           "file, as YAML); without a policy all ways to run the job there are compared"),
    RU_OPT(
        TEXT, "facts", "FILE",
        "with a job and a cluster: profiles of `rubato profile`, from which times are predicted"),
    RU_OPT(CHOICE, "goal", "WORD", "with a job and a cluster: what the winner has least of",
           .choices = "time|money", .def = "time"),
    RU_OPT(FLAG, "json", NULL, "print the plan as one JSON object (rubato.plan/1)"),
};

static const ru_example examples[] = {
    {"rubato plan --list", "list all policies"},
    {"rubato plan job.yaml --cluster cluster.yaml --facts devices.json",
     "every way of running a job: data parallel, pipelines, one worker, by type of device"},
    {"rubato plan job.yaml pipe --cluster cluster.yaml",
     "measure the layers of a job here; compare data parallel training and pipelines on a cluster"},
    {"rubato plan job.yaml place --cluster cluster.yaml --facts devices.json",
     "which of the hosts, of types that were profiled, has which layers of a placed step"},
    {"rubato plan share --example > in.yaml", "write an example input"},
    {"rubato plan in.yaml share", "print the plan, its predicted figures and the other candidates"},
    {"rubato plan in.yaml share --method equal --json", "print the plan of a baseline as JSON"},
};

const ru_cmd rui_cmd_plan = {
    .name = "plan",
    .summary =
        "make a plan with one policy; show its predicted figures, assumptions and other candidates",
    .about =
        "A policy is a pure function: the same input gives the same plan with the same id on every "
        "machine. FILE is the job file of the policy pipe, or one of three things: the policy's "
        "own input (YAML or JSON); a world file "
        "(from `rubato capture`, or world.json of a run), of which Rubato takes the newest "
        "recorded input of the policy or derives an input from the facts; or a file of another "
        "program that the policy reads (`rubato plan POLICY --help-input` lists them).",
    RU_CMD_ARGS("[FILE] [POLICY]", 0, 2),
    RU_CMD_LISTS(opts, examples),
    .exits = "2 there is no such policy|65 no valid plan exists, or the file is damaged|66 there "
             "is no such file|78 the input is not valid",
    .run = run,
};
