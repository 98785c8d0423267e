/* Inside of tool/: the command table and what is made of it. Commands include tool/cmd.h only.
 *
 * Thread: main only. */
#ifndef RU_TOOL_CMD_IMPL_H
#define RU_TOOL_CMD_IMPL_H

#include "tool/cmd.h"

#define RU_CMD(name) extern const ru_cmd rui_cmd_##name;
#include "tool/commands.def"
#undef RU_CMD

/* A value as the command line gave it, in the order of rui_cmd_opt. */
typedef struct rui_value {
    uint32_t times;     /* how often it was given */
    const char **texts; /* [n_texts] TEXTS: all of them */
    uint32_t n_texts, cap_texts;
    const char *text;
    int64_t i64;
    double f64;
    bool flag;
    uint32_t choice;
} rui_value;

typedef struct rui_cmd_values {
    rui_value *at; /* [rui_cmd_opts(cmd)] */
} rui_cmd_values;

/* The table, in the order of tool/commands.def. */
const ru_cmd *const *rui_cmds(uint32_t *n);
const ru_cmd *rui_cmd_find(ru_str name);
const ru_cmd *rui_cmd_verb(const ru_cmd *cmd, ru_str name);

/* Options of a command: its own, then those every command has. */
uint32_t rui_cmd_opts(const ru_cmd *cmd);
const ru_opt *rui_cmd_opt(const ru_cmd *cmd, uint32_t i);
bool rui_opt_takes_value(const ru_opt *o);
const char *rui_opt_word(const ru_opt *o); /* FILE, N, or a word by the type */

/* "train", "data make". */
void rui_cmd_path(const ru_cmd *parent, const ru_cmd *cmd, ru_text *out);

/* Exit codes of a command (NULL: of all) and of its verbs, each once and in order: the one above
 * *code (begin with -1); false: there is none. */
bool rui_cmd_exit_next(const ru_cmd *cmd, int64_t *code, ru_str *what);

/* Which command and verb the arguments name; *used of them name it. RU_OK with *cmd NULL when there
 * is none (only options, or nothing). Errors: RU_E_USAGE with the nearest name. */
RU_MUST_USE ru_status rui_cmd_pick(const char *const *argv, uint32_t n, const ru_cmd **parent,
                                   const ru_cmd **cmd, uint32_t *used, ru_err *err);

/* Options and positional arguments of `in->cmd`; number of positional ones is not checked when help
 * was asked for. Errors: RU_E_USAGE. */
RU_MUST_USE ru_status rui_cmd_parse(ru_cmd_in *in, const char *const *argv, uint32_t n,
                                    ru_err *err);
RU_MUST_USE ru_status rui_cmd_parse_args(const ru_cmd_in *in,
                                         ru_err *err); /* number of arguments */

/* Is every name, letter, default and bound of the table sound? For the unit test. */
RU_MUST_USE ru_status rui_cmd_check(const ru_cmd *cmd, ru_err *err);

/* Texts made of the table. width: columns of the terminal, 0: 80. */
void rui_help_all(uint32_t width, ru_text *out);
void rui_help_cmd(const ru_cmd *parent, const ru_cmd *cmd, bool full, uint32_t width, ru_text *out);
void rui_man_all(ru_text *out); /* scdoc source of rubato(1) */
void rui_man_cmd(const ru_cmd *cmd, ru_text *out);
void rui_man_job(ru_text *out); /* rubato-job(5) */
void rui_complete_bash(ru_text *out);
void rui_complete_zsh(ru_text *out);
void rui_complete_fish(ru_text *out);

#endif
