/* Completion scripts of bash, zsh and fish, from the command table.
 *
 * What an option's value completes to is told by its placeholder: DIR to folders, FILE and anything
 * with a dot or ending in FILE to files, a choice to its words. Arguments complete to files. */
#include <string.h>

#include "tool/cmd_impl.h"

typedef enum value_kind { VALUE_NONE, VALUE_DIR, VALUE_FILE, VALUE_WORDS, VALUE_OTHER } value_kind;

static value_kind kind_of(const ru_opt *o)
{
    const char *word = rui_opt_word(o);
    if (!rui_opt_takes_value(o)) {
        return VALUE_NONE;
    }
    if (o->choices != NULL) {
        return VALUE_WORDS;
    }
    if (strcmp(word, "DIR") == 0) {
        return VALUE_DIR;
    }
    bool file =
        strstr(word, "FILE") != NULL || strstr(word, "PATH") != NULL || strchr(word, '.') != NULL;
    return file ? VALUE_FILE : VALUE_OTHER;
}

static void put_choices(const ru_opt *o, ru_text *out)
{
    ru_str rest = ru_str_c(o->choices), word;
    for (uint32_t i = 0; ru_str_next(&rest, '|', &word); i++) {
        ru_text_putf(out, "%s%.*s", i > 0 ? " " : "", RU_STR_ARG(word));
    }
}

/* Text inside single quotes of a shell: ' becomes '\''. `also` gets a backslash in front. */
static void put_quoted(const char *s, const char *also, ru_text *out)
{
    for (; *s != '\0'; s++) {
        if (*s == '\'') {
            ru_text_put(out, "'\\''");
        } else {
            ru_text_char(out, '\\', strchr(also, *s) != NULL);
            ru_text_char(out, *s, 1);
        }
    }
}

/* One arm of bash's case: the words after "rubato <path>". */
static void bash_arm(const ru_cmd *parent, const ru_cmd *cmd, ru_text *out)
{
    ru_text_put(out, "    '");
    rui_cmd_path(parent, cmd, out);
    ru_text_put(out, "')\n        case $prev in\n");
    for (uint32_t i = 0; i < rui_cmd_opts(cmd); i++) {
        const ru_opt *o = rui_cmd_opt(cmd, i);
        value_kind kind = kind_of(o);
        if (kind == VALUE_NONE) {
            continue;
        }
        ru_text_putf(out, "        --%s", o->name);
        if (o->letter != 0) {
            ru_text_putf(out, "|-%c", o->letter);
        }
        ru_text_put(out, ") ");
        if (kind == VALUE_WORDS) {
            ru_text_put(out, "COMPREPLY=($(compgen -W '");
            put_choices(o, out);
            ru_text_put(out, "' -- \"$cur\"))");
        } else if (kind != VALUE_OTHER) {
            ru_text_putf(out, "COMPREPLY=($(compgen -%c -- \"$cur\"))",
                         kind == VALUE_DIR ? 'd' : 'f');
        }
        ru_text_put(out, kind != VALUE_OTHER ? "; return ;;\n" : "return ;;\n");
    }
    ru_text_put(out, "        esac\n        words='");
    for (uint32_t i = 0; i < cmd->n_subs; i++) {
        ru_text_putf(out, "%s ", cmd->subs[i].name);
    }
    for (uint32_t i = 0; i < rui_cmd_opts(cmd); i++) {
        ru_text_putf(out, "%s--%s", i > 0 ? " " : "", rui_cmd_opt(cmd, i)->name);
    }
    ru_text_put(out, "' ;;\n");
}

void rui_complete_bash(ru_text *out)
{
    uint32_t n;
    const ru_cmd *const *cmds = rui_cmds(&n);
    ru_text_put(out, "# bash completion of rubato, made by: rubato help --completion bash\n"
                     "_rubato() {\n"
                     "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                     "    local path=${COMP_WORDS[1]} words=''\n"
                     "    COMPREPLY=()\n"
                     "    case $path in\n    ");
    uint32_t nouns = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (cmds[i]->n_subs > 0) {
            ru_text_putf(out, "%s%s", nouns++ > 0 ? "|" : "", cmds[i]->name);
        }
    }
    ru_text_put(out, nouns == 0 ? "''" : "");
    ru_text_put(out, ")\n        if ((COMP_CWORD > 2)) && [[ ${COMP_WORDS[2]} != -* ]]; then\n"
                     "            path=\"$path ${COMP_WORDS[2]}\"\n        fi ;;\n    esac\n"
                     "    if ((COMP_CWORD == 1)); then path=''; fi\n"
                     "    case $path in\n    '') words='");
    for (uint32_t i = 0; i < n; i++) {
        ru_text_putf(out, "%s ", cmds[i]->name);
    }
    ru_text_put(out, "--version --help' ;;\n");
    for (uint32_t i = 0; i < n; i++) {
        bash_arm(NULL, cmds[i], out);
        for (uint32_t k = 0; k < cmds[i]->n_subs; k++) {
            bash_arm(cmds[i], &cmds[i]->subs[k], out);
        }
    }
    ru_text_put(out,
                "    esac\n"
                "    if [[ -n $words && ( $cur == -* || $path == '' || $words != --* ) ]]; then\n"
                "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                "    else\n"
                "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                "    fi\n"
                "}\n"
                "complete -o filenames -F _rubato rubato\n");
}

static void zsh_options(const ru_cmd *cmd, const char *indent, ru_text *out)
{
    for (uint32_t i = 0; i < rui_cmd_opts(cmd); i++) {
        const ru_opt *o = rui_cmd_opt(cmd, i);
        value_kind kind = kind_of(o);
        for (int form = 0; form < (o->letter != 0 ? 2 : 1); form++) {
            ru_text_putf(out, " \\\n%s'%s", indent, o->type == RU_OPT_TEXTS ? "*" : "");
            if (form == 0) {
                ru_text_putf(out, "--%s[", o->name);
            } else {
                ru_text_putf(out, "-%c[", o->letter);
            }
            put_quoted(o->help, "[]:\\", out);
            ru_text_put(out, "]");
            if (kind != VALUE_NONE) {
                ru_text_putf(out, ":%s:", rui_opt_word(o));
            }
            if (kind == VALUE_WORDS) {
                ru_text_put(out, "(");
                put_choices(o, out);
                ru_text_put(out, ")");
            } else if (kind == VALUE_DIR || kind == VALUE_FILE) {
                ru_text_put(out, kind == VALUE_DIR ? "_files -/" : "_files");
            }
            ru_text_put(out, "'");
        }
    }
}

static void zsh_names(const ru_cmd *cmd, ru_text *out)
{
    ru_text_putf(out, " '%s:", cmd->name);
    put_quoted(cmd->summary, ":\\", out);
    ru_text_put(out, "'");
}

void rui_complete_zsh(ru_text *out)
{
    uint32_t n;
    const ru_cmd *const *cmds = rui_cmds(&n);
    ru_text_put(out, "#compdef rubato\n# made by: rubato help --completion zsh\n_rubato() {\n"
                     "  local -a names\n  if (( CURRENT == 2 )); then\n    names=(");
    for (uint32_t i = 0; i < n; i++) {
        zsh_names(cmds[i], out);
    }
    ru_text_put(out, ")\n    _describe command names\n    return\n  fi\n"
                     "  local noun=$words[2]\n  shift words; (( CURRENT-- ))\n  case $noun in\n");
    for (uint32_t i = 0; i < n; i++) {
        const ru_cmd *cmd = cmds[i];
        ru_text_putf(out, "  %s)\n", cmd->name);
        if (cmd->n_subs == 0) {
            ru_text_put(out, "    _arguments -s");
            zsh_options(cmd, "      ", out);
            ru_text_put(out, " \\\n      '*::file:_files' ;;\n");
            continue;
        }
        ru_text_put(out, "    if (( CURRENT == 2 )); then\n      names=(");
        for (uint32_t k = 0; k < cmd->n_subs; k++) {
            zsh_names(&cmd->subs[k], out);
        }
        ru_text_put(out, ")\n      _describe command names\n      return\n    fi\n"
                         "    local verb=$words[2]\n    shift words; (( CURRENT-- ))\n"
                         "    case $verb in\n");
        for (uint32_t k = 0; k < cmd->n_subs; k++) {
            ru_text_putf(out, "    %s) _arguments -s", cmd->subs[k].name);
            zsh_options(&cmd->subs[k], "      ", out);
            ru_text_put(out, " \\\n      '*::file:_files' ;;\n");
        }
        ru_text_put(out, "    esac ;;\n");
    }
    ru_text_put(out, "  esac\n}\n_rubato \"$@\"\n");
}

static void fish_options(const ru_cmd *cmd, const char *condition, ru_text *out)
{
    for (uint32_t i = 0; i < rui_cmd_opts(cmd); i++) {
        const ru_opt *o = rui_cmd_opt(cmd, i);
        value_kind kind = kind_of(o);
        ru_text_putf(out, "complete -c rubato -n '%s' -l %s", condition, o->name);
        if (o->letter != 0) {
            ru_text_putf(out, " -s %c", o->letter);
        }
        if (kind == VALUE_WORDS) {
            ru_text_put(out, " -x -a '");
            put_choices(o, out);
            ru_text_put(out, "'");
        } else if (kind == VALUE_DIR) {
            ru_text_put(out, " -x -a '(__fish_complete_directories)'");
        } else if (kind != VALUE_NONE) {
            ru_text_put(out, kind == VALUE_FILE ? " -r -F" : " -x");
        }
        ru_text_put(out, " -d '");
        put_quoted(o->help, "\\", out);
        ru_text_put(out, "'\n");
    }
}

void rui_complete_fish(ru_text *out)
{
    uint32_t n;
    const ru_cmd *const *cmds = rui_cmds(&n);
    ru_text_put(out,
                "# made by: rubato help --completion fish\n"
                "complete -c rubato -n __fish_use_subcommand -l version -d 'print the version'\n");
    for (uint32_t i = 0; i < n; i++) {
        const ru_cmd *cmd = cmds[i];
        ru_text_putf(out, "complete -c rubato -n __fish_use_subcommand -f -a %s -d '", cmd->name);
        put_quoted(cmd->summary, "\\", out);
        ru_text_put(out, "'\n");
        char condition[200];
        if (cmd->n_subs == 0) {
            ru_text c = ru_text_into(condition, sizeof condition);
            ru_text_putf(&c, "__fish_seen_subcommand_from %s", cmd->name);
            fish_options(cmd, condition, out);
        }
        for (uint32_t k = 0; k < cmd->n_subs; k++) {
            const ru_cmd *verb = &cmd->subs[k];
            ru_text_putf(out,
                         "complete -c rubato -n '__fish_seen_subcommand_from %s; and not "
                         "__fish_seen_subcommand_from",
                         cmd->name);
            for (uint32_t j = 0; j < cmd->n_subs; j++) {
                ru_text_putf(out, " %s", cmd->subs[j].name);
            }
            ru_text_putf(out, "' -f -a %s -d '", verb->name);
            put_quoted(verb->summary, "\\", out);
            ru_text_put(out, "'\n");
            ru_text c = ru_text_into(condition, sizeof condition);
            ru_text_putf(&c, "__fish_seen_subcommand_from %s; and __fish_seen_subcommand_from %s",
                         cmd->name, verb->name);
            fish_options(verb, condition, out);
        }
    }
}
