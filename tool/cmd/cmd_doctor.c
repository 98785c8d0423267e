/* rubato doctor: what works here, what does not, how to mend it. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "env/process/self.h"
#include "tool/cmd_impl.h"
#include "tool/doctor/doctor.h"

static const struct {
    const char *name;
    rui_check_fn look;
} checks[] = {
    {"processor", rui_doctor_processor}, {"memory", rui_doctor_memory},
    {"disk", rui_doctor_disk},           {"compute", rui_doctor_compute},
    {"threads", rui_doctor_threads},     {"limits", rui_doctor_limits},
    {"workers", rui_doctor_workers},     {"stores", rui_doctor_stores},
    {"metrics", rui_doctor_metrics},     {"environment", rui_doctor_environment},
};

enum { N_CHECKS = sizeof checks / sizeof checks[0] };

static const char *const health_words[] = {"ok", "warn", "broken"};

static void print_text(const ru_cmd_in *in, const rui_check *all)
{
    static const char *const paint[] = {"\033[32m", "\033[33m", "\033[31m"};
    uint32_t width = ru_self_columns(1);
    width = width < 60 ? 100 : width;
    ru_text t = ru_text_arena(in->arena);
    for (uint32_t i = 0; i < N_CHECKS; i++) {
        const rui_check *c = &all[i];
        const char *on = in->color ? paint[c->health] : "", *off = in->color ? "\033[0m" : "";
        ru_text_putf(&t, "%s%-7s%s%-12s", on, health_words[c->health], off, c->name);
        ru_text_wrap(&t, c->text.p, 19, 19, width);
        if (c->fix.n > 0) {
            ru_text_char(&t, ' ', 19);
            ru_text_put(&t, "fix: ");
            ru_text_wrap(&t, c->fix.p, 24, 24, width);
        }
    }
    fputs(t.p, stdout);
}

static void print_json(const ru_cmd_in *in, const rui_check *all, const rui_machine *m, bool works)
{
    ru_text t = ru_text_arena(in->arena);
    ru_json j = ru_json_into(&t);
    char cpu[128];
    ru_self_cpu(cpu, sizeof cpu);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "schema", "rubato.doctor/1");
    ru_json_str(&j, "version", RU_VERSION);
    ru_json_bool(&j, "can_train", works);
    ru_json_open(&j, "machine", '{');
    ru_json_str(&j, "cpu", cpu);
    ru_json_i64(&j, "cores", m->cores);
    ru_json_i64(&j, "cores_online", m->cores_online);
    ru_json_i64(&j, "memory_bytes", m->memory_bytes);
    ru_json_i64(&j, "memory_free_bytes", m->memory_free_bytes);
    if (m->memory_limit_bytes > 0) {
        ru_json_i64(&j, "memory_limit_bytes", m->memory_limit_bytes);
    } else {
        ru_json_null(&j, "memory_limit_bytes");
    }
    ru_json_i64(&j, "disk_free_bytes", m->disk_free_bytes);
    ru_json_close(&j);
    ru_json_open(&j, "checks", '[');
    for (uint32_t i = 0; i < N_CHECKS; i++) {
        ru_json_open(&j, NULL, '{');
        ru_json_str(&j, "name", all[i].name);
        ru_json_str(&j, "health", health_words[all[i].health]);
        ru_json_str(&j, "text", all[i].text.p);
        ru_json_str(&j, "fix", all[i].fix.n > 0 ? all[i].fix.p : NULL);
        ru_json_close(&j);
    }
    ru_json_close(&j);
    ru_json_close(&j);
    puts(t.p);
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    const char *dir = in->n_args > 0 ? in->args[0] : ".";
    rui_check all[N_CHECKS];
    rui_machine machine = {0};
    uint32_t broken = 0, warned = 0;
    const char *first = "";
    for (uint32_t i = 0; i < N_CHECKS; i++) {
        all[i] = (rui_check){.name = checks[i].name,
                             .text = ru_text_arena(in->arena),
                             .fix = ru_text_arena(in->arena)};
        checks[i].look(in->arena, dir, &all[i], &machine);
        warned += all[i].health == RUI_WARN;
        if (all[i].health == RUI_BROKEN && broken++ == 0) {
            first = all[i].name;
        }
    }
    if (ru_cmd_flag(in, "json")) {
        print_json(in, all, &machine, broken == 0);
    } else {
        print_text(in, all);
        if (broken == 0) {
            printf("\nrubato %s can train here%s. Next: rubato demo\n", RU_VERSION,
                   warned > 0 ? ", with the warnings above" : "");
        }
    }
    if (broken > 0) {
        return RU_FAIL(err, RU_E_PEER, "training cannot run here: see '%s' above", first);
    }
    return RU_OK;
}

static const ru_opt opts[] = {
    RU_OPT(FLAG, "json", NULL, "one JSON object (rubato.doctor/1)"),
};

static const ru_example examples[] = {
    {"rubato doctor", "check this machine and the current folder"},
    {"rubato doctor /data/runs --json", "check a folder of runs and print JSON"},
};

const ru_cmd rui_cmd_doctor = {
    .name = "doctor",
    .summary = "check what works on this machine, and say how to repair what does not",
    .about =
        "Checks the processor, the memory and its control group, and the disk of DIR (default: the "
        "current folder). Computes a matrix product on the CPU device and compares it with plain "
        "loops. Starts a team of threads. Opens what several workers need: a TLS connection and "
        "shared memory. Opens the libraries that data in stores and --metrics need. Names "
        "environment variables that change results or speed.\n\nTraining "
        "works despite warnings; they do not change the exit code.",
    .args = "[DIR]",
    .arg_max = 1,
    RU_CMD_LISTS(opts, examples),
    .exits = "69 training cannot run here",
    .run = run,
};
