/* rubato help: help texts, man page sources and completions, all from the command table. */
#include <stdio.h>
#include <string.h>

#include "env/process/self.h"
#include "tool/cmd_impl.h"
#include "train/job/job.h"

static const ru_opt opts[] = {
    RU_OPT(FLAG, "man", NULL, "print the manual page as scdoc source instead"),
    RU_OPT(CHOICE, "completion", "SHELL", "print the completion script of a shell instead",
           .choices = "bash|zsh|fish"),
    RU_OPT(FLAG, "list", NULL, "print the names of the commands, one per line"),
};

static ru_status find(const ru_cmd_in *in, const ru_cmd **parent, const ru_cmd **cmd, ru_err *err)
{
    uint32_t used;
    RU_TRY(rui_cmd_pick(in->args, in->n_args, parent, cmd, &used, err));
    if (*cmd != NULL && used < in->n_args) {
        return RU_FAIL(err, RU_E_USAGE, "'%.60s' has no command '%.60s'", in->args[0], in->args[1]);
    }
    return RU_OK;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    ru_text t = ru_text_arena(in->arena);
    const ru_cmd *parent = NULL, *cmd = NULL;
    bool job = in->n_args == 1 && strcmp(in->args[0], "job") == 0;
    if (!job) {
        RU_TRY(find(in, &parent, &cmd, err));
    }
    if (ru_cmd_flag(in, "list")) {
        uint32_t n;
        const ru_cmd *const *cmds = rui_cmds(&n);
        for (uint32_t i = 0; i < n; i++) {
            ru_text_putf(&t, "%s\n", cmds[i]->name);
        }
    } else if (ru_cmd_given(in, "completion")) {
        void (*const make[])(ru_text *) = {rui_complete_bash, rui_complete_zsh, rui_complete_fish};
        make[ru_cmd_choice(in, "completion")](&t);
    } else if (ru_cmd_flag(in, "man")) {
        if (job) {
            rui_man_job(&t);
        } else if (cmd == NULL) {
            rui_man_all(&t);
        } else {
            rui_man_cmd(parent != NULL ? parent : cmd, &t);
        }
    } else if (job) {
        ru_conf_help(&ru_job_table, ru_self_columns(1), &t);
    } else if (cmd == NULL) {
        rui_help_all(ru_self_columns(1), &t);
    } else {
        rui_help_cmd(parent, cmd, true, ru_self_columns(1), &t);
    }
    fputs(t.p, stdout);
    return t.cut ? RU_FAIL(err, RU_E_MEM, "not enough memory for the help text") : RU_OK;
}

static const ru_example examples[] = {
    {"rubato help train", "show the full help of training"},
    {"rubato help job", "show every key of a job file"},
    {"rubato help --completion bash > ~/.local/share/bash-completion/completions/rubato",
     "install completion of commands and options for bash"},
};

const ru_cmd rui_cmd_help = {
    .name = "help",
    .summary = "show help, manual pages and shell completions",
    .args = "[COMMAND [VERB]]",
    .arg_max = 2,
    RU_CMD_LISTS(opts, examples),
    .run = run,
};
