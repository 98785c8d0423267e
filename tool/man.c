/* Manual pages as scdoc source, from the command table. */
#include <string.h>

#include "tool/cmd_impl.h"
#include "train/job/job.h"

/* Text with scdoc's marks escaped. */
static void put_plain(ru_text *out, const char *s)
{
    for (; *s != '\0'; s++) {
        if (strchr("_*\\`<>#[]|-.", *s) != NULL) {
            ru_text_char(out, '\\', 1);
        }
        ru_text_char(out, *s, 1);
    }
}

static void put_bold(ru_text *out, const char *s)
{
    ru_text_put(out, "*");
    put_plain(out, s);
    ru_text_put(out, "*");
}

static void put_option(const ru_opt *o, ru_text *out)
{
    ru_text_put(out, "\n");
    if (o->letter != 0) {
        ru_text_putf(out, "*\\-%c*, ", o->letter);
    }
    bool on = o->type == RU_OPT_FLAG && o->def != NULL && strcmp(o->def, "true") == 0;
    ru_text_putf(out, "*\\-\\-%s", on ? "no\\-" : "");
    put_plain(out, o->name);
    ru_text_put(out, "*");
    if (rui_opt_takes_value(o)) {
        ru_text_put(out, " _");
        put_plain(out, rui_opt_word(o));
        ru_text_put(out, "_");
    }
    ru_text_put(out, "\n\t");
    put_plain(out, o->help);
    if (o->choices != NULL) {
        ru_text_put(out, ":");
        ru_str rest = ru_str_c(o->choices), word;
        for (uint32_t i = 0; ru_str_next(&rest, '|', &word); i++) {
            ru_text_putf(out, "%s %.*s", i > 0 ? "," : "", RU_STR_ARG(word));
        }
    }
    ru_text_put(out, ".");
    if (o->def != NULL && o->type != RU_OPT_FLAG) {
        ru_text_put(out, " Default: ");
        put_plain(out, *o->def != '\0' ? o->def : "empty");
        ru_text_put(out, ".");
    }
    ru_text_put(out, "\n");
}

static void put_synopsis(const ru_cmd *parent, const ru_cmd *cmd, ru_text *out)
{
    ru_text_put(out, "*rubato ");
    if (parent != NULL) {
        ru_text_putf(out, "%s ", parent->name);
    }
    ru_text_putf(out, "%s*", cmd->name);
    if (cmd->args != NULL) {
        ru_text_put(out, " ");
        put_plain(out, cmd->args);
    }
    ru_text_put(out, " \\[options\\]");
}

static void put_examples(const ru_cmd *cmd, ru_text *out)
{
    for (uint32_t i = 0; i < cmd->n_examples; i++) {
        ru_text_put(out, "\n");
        put_plain(out, cmd->examples[i].what);
        ru_text_putf(out, ":\n\n```\n%s\n```\n", cmd->examples[i].line);
    }
}

static void put_exits(const ru_cmd *cmd, ru_text *out)
{
    ru_text_put(out, "\n# EXIT STATUS\n");
    int64_t code = -1;
    ru_str what;
    while (rui_cmd_exit_next(cmd, &code, &what)) {
        char words[200];
        ru_text w = ru_text_into(words, sizeof words);
        ru_text_put_n(&w, what.p, what.n);
        ru_text_putf(out, "\n*%lld*\n\t", (long long)code);
        put_plain(out, words);
        ru_text_put(out, ".\n");
    }
    ru_text_put(out, "\n*128+n*\n\tended by signal n.\n");
}

static void put_about(const ru_cmd *cmd, ru_text *out)
{
    put_plain(out, cmd->about != NULL ? cmd->about : cmd->summary);
    ru_text_put(out, cmd->about != NULL ? "\n" : ".\n");
}

void rui_man_cmd(const ru_cmd *cmd, ru_text *out)
{
    ru_text_putf(out, "rubato-%s(1) \"rubato %s\" \"Rubato Manual\"\n\n# NAME\n\nrubato-%s - ",
                 cmd->name, RU_VERSION, cmd->name);
    put_plain(out, cmd->summary);
    ru_text_put(out, "\n\n# SYNOPSIS\n\n");
    if (cmd->n_subs == 0) {
        put_synopsis(NULL, cmd, out);
    }
    for (uint32_t i = 0; i < cmd->n_subs; i++) {
        ru_text_put(out, i > 0 ? "++\n" : "");
        put_synopsis(cmd, &cmd->subs[i], out);
    }
    ru_text_put(out, "\n\n# DESCRIPTION\n\n");
    put_about(cmd, out);
    for (uint32_t i = 0; i < cmd->n_subs; i++) {
        const ru_cmd *verb = &cmd->subs[i];
        ru_text_putf(out, "\n# RUBATO %s ", cmd->name);
        put_plain(out, verb->name);
        ru_text_put(out, "\n\n");
        put_about(verb, out);
        for (uint32_t k = 0; k < verb->n_opts; k++) {
            put_option(&verb->opts[k], out);
        }
        put_examples(verb, out);
    }
    ru_text_put(out, "\n# OPTIONS\n");
    for (uint32_t i = 0; i < rui_cmd_opts(cmd); i++) {
        put_option(rui_cmd_opt(cmd, i), out);
    }
    if (cmd->n_examples > 0) {
        ru_text_put(out, "\n# EXAMPLES\n");
        put_examples(cmd, out);
    }
    put_exits(cmd, out);
    ru_text_put(out, "\n# SEE ALSO\n\n*rubato*(1), *rubato\\-job*(5)\n");
}

void rui_man_all(ru_text *out)
{
    ru_text_putf(out,
                 "rubato(1) \"rubato %s\" \"Rubato Manual\"\n\n# NAME\n\n"
                 "rubato - elastic, timed training of machine\\-learning models\n\n"
                 "# SYNOPSIS\n\n*rubato* _COMMAND_ \\[options\\]\n\n# COMMANDS\n",
                 RU_VERSION);
    uint32_t n;
    const ru_cmd *const *cmds = rui_cmds(&n);
    for (uint32_t i = 0; i < n; i++) {
        ru_text_put(out, "\n");
        put_bold(out, cmds[i]->name);
        ru_text_put(out, "\n\t");
        put_plain(out, cmds[i]->summary);
        ru_text_putf(out, ". See *rubato\\-%s*(1).\n", cmds[i]->name);
    }
    ru_text_put(out, "\n# OPTIONS\n\n*\\-\\-version*\n\tprint the version.\n");
    for (uint32_t i = 0; i < rui_cmd_opts(NULL); i++) {
        put_option(rui_cmd_opt(NULL, i), out);
    }
    ru_text_put(out,
                "\n# ENVIRONMENT\n\n*RUBATO\\_\\**\n\tsets the key of a job file whose path, in "
                "capitals with \\_ for each dot, follows: "
                "RUBATO\\_TRAIN\\_BATCH=64.\n\n*RUBATO\\_TOKEN*\n\tthe secret that the workers of "
                "a job share, if there is no --token-file.\n\n*RUBATO\\_SSH*\n\tthe program that "
                "starts workers on other hosts (default ssh); its arguments are the host and the "
                "command.\n\n*XDG\\_CACHE\\_HOME*\n\tfolder for measured choices of kernels "
                "(default ~/.cache).\n\n*NO\\_COLOR*\n\tdisables colour if set and not empty.\n");
    put_exits(NULL, out);
    ru_text_put(out, "\n# SEE ALSO\n\n*rubato\\-job*(5)\n");
}

void rui_man_job(ru_text *out)
{
    ru_text_putf(out,
                 "rubato-job(5) \"rubato %s\" \"Rubato Manual\"\n\n# NAME\n\n"
                 "rubato-job - job files of rubato train\n\n# DESCRIPTION\n\n",
                 RU_VERSION);
    put_plain(out, "A job file is YAML, or JSON with the same keys. Each key may also come from "
                   "the environment (RUBATO_ and the path in capitals, with _ for each dot) or "
                   "from --set path=value; a later source overrides an earlier one: default, file, "
                   "environment, --set, option. Times are written as 250us or 60s, sizes as 64KiB "
                   "or 1MB. rubato train --schema prints the JSON Schema for editors.\n");
    ru_text_put(out, "\n# KEYS\n\n```\n");
    ru_conf_help(&ru_job_table, 78, out);
    ru_text_put(out, "```\n\n# SEE ALSO\n\n*rubato\\-train*(1)\n");
}
