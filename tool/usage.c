/* Help texts from the command table: examples first, then options, then exit codes. */
#include <string.h>

#include "tool/cmd_impl.h"

enum { OPT_COLUMN = 28 };

static void put_synopsis(const ru_cmd *parent, const ru_cmd *cmd, ru_text *out)
{
    ru_text_put(out, "rubato ");
    rui_cmd_path(parent, cmd, out);
    if (cmd->n_subs > 0) {
        ru_text_put(out, " COMMAND");
    }
    if (cmd->args != NULL) {
        ru_text_putf(out, " %s", cmd->args);
    }
    ru_text_put(out, " [options]\n");
}

static void put_option(const ru_opt *o, uint32_t width, ru_text *out)
{
    char head[128], body[600];
    ru_text h = ru_text_into(head, sizeof head), b = ru_text_into(body, sizeof body);
    if (o->letter != 0) {
        ru_text_putf(&h, "  -%c, ", o->letter);
    } else {
        ru_text_put(&h, "      ");
    }
    bool on = o->type == RU_OPT_FLAG && o->def != NULL && strcmp(o->def, "true") == 0;
    ru_text_putf(&h, "--%s%s", on ? "no-" : "", o->name);
    if (rui_opt_takes_value(o)) {
        ru_text_putf(&h, " %s", rui_opt_word(o));
    }
    ru_text_put(&b, o->help);
    if (o->choices != NULL) {
        ru_text_put(&b, ":");
        ru_str rest = ru_str_c(o->choices), word;
        for (uint32_t i = 0; ru_str_next(&rest, '|', &word); i++) {
            ru_text_putf(&b, "%s %.*s", i > 0 ? "," : "", RU_STR_ARG(word));
        }
    }
    if (o->def != NULL && o->type != RU_OPT_FLAG) {
        ru_text_putf(&b, " [%s]", o->def);
    }
    ru_text_put(out, head);
    uint32_t at = (uint32_t)h.n;
    if (at + 2 > OPT_COLUMN) {
        ru_text_put(out, "\n");
        at = 0;
    }
    ru_text_wrap(out, body, at, OPT_COLUMN, width);
}

static void put_exits(const ru_cmd *cmd, uint32_t width, ru_text *out)
{
    ru_text_put(out, "\nExit codes\n");
    int64_t code = -1;
    ru_str what;
    while (rui_cmd_exit_next(cmd, &code, &what)) {
        char words[200];
        ru_text w = ru_text_into(words, sizeof words);
        ru_text_put_n(&w, what.p, what.n);
        ru_text_putf(out, "  %-3lld", (long long)code);
        ru_text_wrap(out, words, 5, 7, width);
    }
}

static void put_examples(const ru_cmd *cmd, ru_text *out)
{
    if (cmd->n_examples > 0) {
        ru_text_put(out, "\nExamples\n");
    }
    for (uint32_t i = 0; i < cmd->n_examples; i++) {
        ru_text_putf(out, "  %s\n      %s\n", cmd->examples[i].line, cmd->examples[i].what);
    }
}

static void put_names(const ru_cmd *cmd, uint32_t width, ru_text *out)
{
    ru_text_putf(out, "  %s", cmd->name);
    ru_text_wrap(out, cmd->summary, 2 + (uint32_t)strlen(cmd->name), 14, width);
}

void rui_help_cmd(const ru_cmd *parent, const ru_cmd *cmd, bool full, uint32_t width, ru_text *out)
{
    width = width < 60 ? 80 : width > 100 ? 100 : width;
    put_synopsis(parent, cmd, out);
    ru_text_putf(out, "    %s\n", cmd->summary);
    if (full) {
        put_examples(cmd, out);
    }
    if (full && cmd->about != NULL) {
        ru_text_put(out, "\n");
        ru_text_wrap(out, cmd->about, 0, 0, width);
    }
    if (cmd->n_subs > 0) {
        ru_text_put(out, "\nCommands\n");
        for (uint32_t i = 0; i < cmd->n_subs; i++) {
            put_names(&cmd->subs[i], width, out);
        }
        ru_text_putf(out, "\n'rubato %s COMMAND --help' shows the options of a command.\n",
                     cmd->name);
        return;
    }
    ru_text_put(out, "\nOptions\n");
    for (uint32_t i = 0; i < (full ? rui_cmd_opts(cmd) : cmd->n_opts); i++) {
        put_option(rui_cmd_opt(cmd, i), width, out);
    }
    if (full) {
        put_exits(cmd, width, out);
    } else {
        ru_text_put(out, "\n--help shows details and examples.\n");
    }
}

void rui_help_all(uint32_t width, ru_text *out)
{
    width = width < 60 ? 80 : width > 100 ? 100 : width;
    ru_text_put(out, "rubato COMMAND [options]\n"
                     "    elastic, timed training of machine-learning models\n\nCommands\n");
    uint32_t n;
    const ru_cmd *const *cmds = rui_cmds(&n);
    for (uint32_t i = 0; i < n; i++) {
        put_names(cmds[i], width, out);
    }
    ru_text_put(out, "\nOptions\n");
    put_option(&(ru_opt){.name = "version", .help = "print the version"}, width, out);
    for (uint32_t i = 0; i < rui_cmd_opts(NULL); i++) {
        put_option(rui_cmd_opt(NULL, i), width, out);
    }
    ru_text_put(out, "\n'rubato COMMAND --help' shows the options of a command; 'rubato demo' runs "
                     "an example.\n");
}
