/* From the words of the command line to the exit code: pick, parse, set up the log, run, report. */
#include "tool/run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "env/clock.h"
#include "env/process/self.h"
#include "tool/cmd_impl.h"

enum { EXIT_USAGE = 2 };

static bool color_for(int fd, uint32_t when)
{
    enum { AUTO, ALWAYS, NEVER };
    const char *no = ru_conf_env("NO_COLOR"), *term = ru_conf_env("TERM");
    if (when != AUTO) {
        return when == ALWAYS;
    }
    bool dumb = term != NULL && strcmp(term, "dumb") == 0;
    return ru_self_columns(fd) > 0 && (no == NULL || *no == '\0') && !dumb;
}

static int64_t now_ns(void)
{
    return ru_clock_now().ns;
}

/* One sentence on stderr; the exit code of its status. */
static int report(const char *path, ru_status st, const ru_err *err, bool json)
{
    if (json) {
        char buf[2 * RU_ERR_TEXT_MAX];
        ru_text t = ru_text_into(buf, sizeof buf);
        ru_text_putf(
            &t,
            "{\"schema\":\"rubato.error/1\",\"command\":\"%s\",\"status\":\"%s\",\"text\":", path,
            ru_status_name(st));
        ru_text_json(&t, ru_str_c(err->text));
        fprintf(stderr, "%s}\n", buf);
    } else {
        fprintf(stderr, "rubato%s%s: %s\n", *path != '\0' ? " " : "", path, err->text);
    }
    if (st == RU_E_BUG || st == RU_E_ARG) {
        fprintf(stderr,
                "rubato: this is a bug in Rubato %s; please report the command and this line\n",
                RU_VERSION);
    }
    return ru_status_exit_code(st);
}

/* Results that did not reach their place are an error, whatever the command says. */
static ru_status finish_output(ru_err *err)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return RU_FAIL(err, RU_E_IO, "the results could not be written to standard output: %s",
                       errno != 0 ? strerror(errno) : "write error");
    }
    return RU_OK;
}

static void set_log(const ru_cmd_in *in)
{
    ru_log_level levels[] = {RU_LOG_WARN, RU_LOG_INFO, RU_LOG_DEBUG};
    bool json = ru_cmd_choice(in, "log-format") == 1;
    ru_log_set(&(ru_log_options){
        .level = levels[in->verbose < 0   ? 0
                        : in->verbose > 0 ? 2
                                          : 1],
        .level_file = RU_LOG_OFF,
        .json = json,
        .color = color_for(2, ru_cmd_choice(in, "color")),
        .now_ns = json || in->verbose > 1 ? now_ns : NULL,
        .start_ns = ru_clock_now().ns,
    });
}

static int run_command(const ru_cmd *parent, ru_cmd_in *in, const char *const *argv, uint32_t n)
{
    in->words = argv;
    in->n_words = n;
    ru_err err = {0};
    char path[128];
    ru_text p = ru_text_into(path, sizeof path);
    rui_cmd_path(parent, in->cmd, &p);
    ru_status st = rui_cmd_parse(in, argv, n, &err);
    if (st != RU_OK) {
        return report(path, st, &err, false);
    }
    uint32_t times_verbose = in->values->at[in->cmd->n_opts + 2].times;
    in->verbose = ru_cmd_flag(in, "quiet") ? -1 : (int)times_verbose;
    in->color = color_for(1, ru_cmd_choice(in, "color"));
    in->progress = in->verbose >= 0 && ru_self_columns(2) > 0;
    set_log(in);
    bool help = ru_cmd_flag(in, "help");
    if (help || in->cmd->run == NULL) {
        bool full = false;
        for (uint32_t i = 0; i < n; i++) {
            full = full || strcmp(argv[i], "--help") == 0;
        }
        ru_text t = ru_text_arena(in->arena);
        rui_help_cmd(parent, in->cmd, full, ru_self_columns(help ? 1 : 2), &t);
        fputs(t.p, help ? stdout : stderr);
        return help ? 0 : EXIT_USAGE;
    }
    bool json = ru_cmd_choice(in, "log-format") == 1;
    st = rui_cmd_parse_args(in, &err);
    if (st == RU_OK) {
        st = in->cmd->run(in, &err);
    }
    ru_err late;
    ru_status out = finish_output(st == RU_OK ? &err : &late);
    st = st == RU_OK ? out : st;
    return st != RU_OK ? report(path, st, &err, json) : in->exit_code;
}

/* How long a compute thread that waits for the others spins before it sleeps. OpenMP's own default
 * (milliseconds) wastes the time slices of threads that could work when cores are shared: with 12
 * other busy processes on 2 cores an MLP step took 234 ms with the default, 9 to 19 ms with 100 to
 * 5,000 rounds; with the cores to itself 5,000 rounds cost nothing that could be told from noise.
 * The library reads it when it is loaded, so the program starts itself again once. Networks of a
 * hundred short ops suffer with 5,000 rounds too: exec/pool.c shortens waits while cores are
 * shared. */
static const char spin_rounds[] = "5000";

void ru_tool_limit_spinning(void)
{
    if (ru_conf_env("GOMP_SPINCOUNT") == NULL && ru_conf_env("OMP_WAIT_POLICY") == NULL) {
        ru_self_again("GOMP_SPINCOUNT", spin_rounds);
    }
}

bool rui_tool_computes(const char *const *argv, uint32_t n)
{
    const ru_cmd *parent, *cmd;
    uint32_t used;
    return rui_cmd_pick(argv, n, &parent, &cmd, &used, NULL) == RU_OK && cmd != NULL &&
           cmd->computes;
}

int rui_tool_run(const char *const *argv, uint32_t n)
{
    if (n == 1 && strcmp(argv[0], "--version") == 0) {
        printf("rubato %s\n", RU_VERSION);
        return fflush(stdout) == 0 ? 0 : ru_status_exit_code(RU_E_IO);
    }
    ru_arena arena;
    ru_arena_init(&arena, 0);
    const ru_cmd *parent, *cmd;
    uint32_t used;
    ru_err err = {0};
    int code;
    ru_status st = rui_cmd_pick(argv, n, &parent, &cmd, &used, &err);
    if (st != RU_OK) {
        code = report("", st, &err, false);
    } else if (cmd == NULL) {
        bool help = n > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0);
        ru_text t = ru_text_arena(&arena);
        if (help || n == 0) {
            rui_help_all(ru_self_columns(help ? 1 : 2), &t);
            fputs(t.p, help ? stdout : stderr);
            code = help ? 0 : EXIT_USAGE;
        } else {
            st = RU_FAIL(&err, RU_E_USAGE,
                         "unknown option '%.80s'; a command comes first, "
                         "'rubato --help' lists them",
                         argv[0]);
            code = report("", st, &err, false);
        }
    } else {
        ru_cmd_in in = {.cmd = cmd, .arena = &arena};
        code = run_command(parent, &in, argv + used, n - used);
    }
    ru_arena_fini(&arena);
    return code;
}

int ru_tool_run_as(const char *name, ru_status (*run)(ru_cmd_in *in, ru_err *err),
                   const char *const *argv, uint32_t n)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    const ru_cmd *row = rui_cmd_find(ru_str_c(name));
    RU_CHECK(row != NULL);
    ru_cmd cmd = *row;
    cmd.run = run;
    ru_cmd_in in = {.cmd = &cmd, .arena = &arena};
    int code = run_command(NULL, &in, argv, n);
    ru_arena_fini(&arena);
    return code;
}
