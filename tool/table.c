/* The command table: lookups and the options that every command has. */
#include <string.h>

#include "base/unit.h"
#include "tool/cmd_impl.h"

static const ru_cmd *const commands[] = {
#define RU_CMD(name) &rui_cmd_##name,
#include "tool/commands.def"
#undef RU_CMD
};

static const ru_opt common[] = {
    RU_OPT(FLAG, "help", NULL, "show help; -h is brief, --help is complete", .letter = 'h'),
    RU_OPT(FLAG, "quiet", NULL, "show only warnings and errors", .letter = 'q'),
    RU_OPT(FLAG, "verbose", NULL, "show more messages; give it twice for all", .letter = 'v'),
    RU_OPT(CHOICE, "color", "WHEN",
           "use colour; auto: on terminals, unless NO_COLOR is set or TERM is dumb", .def = "auto",
           .choices = "auto|always|never"),
    RU_OPT(CHOICE, "log-format", "FORMAT", "format of messages on stderr", .def = "text",
           .choices = "text|json"),
};

const ru_cmd *const *rui_cmds(uint32_t *n)
{
    *n = RU_ARRAY_LEN(commands);
    return commands;
}

const ru_cmd *rui_cmd_find(ru_str name)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(commands); i++) {
        if (ru_str_eq_c(name, commands[i]->name)) {
            return commands[i];
        }
    }
    return NULL;
}

const ru_cmd *rui_cmd_verb(const ru_cmd *cmd, ru_str name)
{
    for (uint32_t i = 0; i < cmd->n_subs; i++) {
        if (ru_str_eq_c(name, cmd->subs[i].name)) {
            return &cmd->subs[i];
        }
    }
    return NULL;
}

uint32_t rui_cmd_opts(const ru_cmd *cmd)
{
    return (cmd != NULL ? cmd->n_opts : 0) + RU_ARRAY_LEN(common);
}

const ru_opt *rui_cmd_opt(const ru_cmd *cmd, uint32_t i)
{
    uint32_t own = cmd != NULL ? cmd->n_opts : 0;
    RU_CHECK(i < own + RU_ARRAY_LEN(common));
    return i < own ? &cmd->opts[i] : &common[i - own];
}

bool rui_opt_takes_value(const ru_opt *o)
{
    return o->type != RU_OPT_FLAG;
}

const char *rui_opt_word(const ru_opt *o)
{
    static const char *const words[] = {
        [RU_OPT_FLAG] = "",     [RU_OPT_TEXT] = "TEXT",  [RU_OPT_TEXTS] = "TEXT",
        [RU_OPT_I64] = "N",     [RU_OPT_F64] = "X",      [RU_OPT_TIME] = "TIME",
        [RU_OPT_SIZE] = "SIZE", [RU_OPT_CHOICE] = "WORD"};
    return o->word != NULL ? o->word : words[o->type];
}

void rui_cmd_path(const ru_cmd *parent, const ru_cmd *cmd, ru_text *out)
{
    if (parent != NULL) {
        ru_text_putf(out, "%s ", parent->name);
    }
    ru_text_put(out, cmd->name);
}

/* The smallest of "CODE what|CODE what" that is above `above` and below *code. */
static void exit_of(const char *exits, int64_t above, int64_t *code, ru_str *what)
{
    ru_str rest = ru_str_c(exits), item, word;
    while (ru_str_next(&rest, '|', &item)) {
        int64_t at;
        if (ru_str_next(&item, ' ', &word) && ru_str_i64(word, &at) && at > above && at < *code) {
            *code = at;
            *what = item;
        }
    }
}

bool rui_cmd_exit_next(const ru_cmd *cmd, int64_t *code, ru_str *what)
{
    int64_t above = *code;
    *code = INT64_MAX;
    exit_of("0 done|2 wrong usage|70 a bug in Rubato", above, code, what);
    exit_of(cmd != NULL ? cmd->exits : NULL, above, code, what);
    for (uint32_t i = 0; cmd != NULL && i < cmd->n_subs; i++) {
        exit_of(cmd->subs[i].exits, above, code, what);
    }
    return *code != INT64_MAX;
}

/* "unknown command 'trian'; did you mean 'train'?" */
static ru_status unknown(ru_str word, const char *kind, const char *const *names, uint32_t n,
                         const char *see, ru_err *err)
{
    int32_t near = ru_str_nearest(word, names, n);
    if (near >= 0) {
        return RU_FAIL(err, RU_E_USAGE, "unknown %s '%.*s'; did you mean '%s'?", kind,
                       RU_STR_ARG(word), names[near]);
    }
    return RU_FAIL(err, RU_E_USAGE, "unknown %s '%.*s'; 'rubato %s%s--help' lists them", kind,
                   RU_STR_ARG(word), see, *see != '\0' ? " " : "");
}

ru_status rui_cmd_pick(const char *const *argv, uint32_t n, const ru_cmd **parent,
                       const ru_cmd **cmd, uint32_t *used, ru_err *err)
{
    enum { NAMES_MAX = 64 };
    const char *names[NAMES_MAX];
    *parent = *cmd = NULL;
    *used = 0;
    if (n == 0 || argv[0][0] == '-') {
        return RU_OK;
    }
    const ru_cmd *found = rui_cmd_find(ru_str_c(argv[0]));
    if (found == NULL) {
        uint32_t count = 0;
        for (; count < RU_ARRAY_LEN(commands) && count < NAMES_MAX; count++) {
            names[count] = commands[count]->name;
        }
        return unknown(ru_str_c(argv[0]), "command", names, count, "", err);
    }
    *used = 1;
    if (found->n_subs == 0 || n < 2 || argv[1][0] == '-') {
        *cmd = found;
        return RU_OK;
    }
    const ru_cmd *verb = rui_cmd_verb(found, ru_str_c(argv[1]));
    if (verb == NULL) {
        uint32_t count = 0;
        for (; count < found->n_subs && count < NAMES_MAX; count++) {
            names[count] = found->subs[count].name;
        }
        char kind[64];
        ru_text t = ru_text_into(kind, sizeof kind);
        ru_text_putf(&t, "'%s' command", found->name);
        return unknown(ru_str_c(argv[1]), kind, names, count, found->name, err);
    }
    *used = 2;
    *parent = found;
    *cmd = verb;
    return RU_OK;
}

static ru_status check_opt(const ru_cmd *cmd, uint32_t i, ru_err *err)
{
    const ru_opt *o = rui_cmd_opt(cmd, i);
    if (o->help == NULL || o->help[0] == '\0' || o->name == NULL) {
        return RU_FAIL(err, RU_E_BUG, "%s: option %u has no name or help", cmd->name, i);
    }
    if ((o->type == RU_OPT_CHOICE) != (o->choices != NULL)) {
        return RU_FAIL(err, RU_E_BUG, "%s: --%s lacks its choices", cmd->name, o->name);
    }
    for (uint32_t k = 0; k < i; k++) {
        const ru_opt *other = rui_cmd_opt(cmd, k);
        if (strcmp(o->name, other->name) == 0 || (o->letter != 0 && o->letter == other->letter)) {
            return RU_FAIL(err, RU_E_BUG, "%s: --%s and --%s share a name or letter", cmd->name,
                           o->name, other->name);
        }
    }
    return RU_OK;
}

ru_status rui_cmd_check(const ru_cmd *cmd, ru_err *err)
{
    if (cmd->name == NULL || cmd->summary == NULL || (cmd->run == NULL) == (cmd->n_subs == 0)) {
        return RU_FAIL(err, RU_E_BUG, "command '%s' needs a name, a summary, and run or subs",
                       cmd->name != NULL ? cmd->name : "?");
    }
    if (cmd->arg_min > cmd->arg_max || (cmd->arg_max > 0) != (cmd->args != NULL)) {
        return RU_FAIL(err, RU_E_BUG, "%s: %u to %u arguments do not match the usage '%s'",
                       cmd->name, cmd->arg_min, cmd->arg_max, cmd->args != NULL ? cmd->args : "");
    }
    for (uint32_t i = 0; i < rui_cmd_opts(cmd); i++) {
        RU_TRY(check_opt(cmd, i, err));
    }
    for (uint32_t i = 0; i < cmd->n_examples; i++) {
        if (!ru_str_starts(ru_str_c(cmd->examples[i].line), "rubato ")) {
            return RU_FAIL(err, RU_E_BUG, "%s: example %u does not begin with rubato", cmd->name,
                           i);
        }
    }
    for (uint32_t i = 0; i < cmd->n_subs; i++) {
        if (cmd->subs[i].n_subs != 0) {
            return RU_FAIL(err, RU_E_BUG, "%s %s: verbs of verbs", cmd->name, cmd->subs[i].name);
        }
        RU_TRY(rui_cmd_check(&cmd->subs[i], err));
    }
    return RU_OK;
}
