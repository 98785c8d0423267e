/* The programs behind main(): `rubato`, and those that are one command of its table.
 *
 * Thread: main only. */
#ifndef RU_TOOL_RUN_H
#define RU_TOOL_RUN_H

#include "tool/cmd.h"

/* Run the command that `argv` (without the program's name) asks for; the process's exit code. */
int rui_tool_run(const char *const *argv, uint32_t n);

/* Does the command that `argv` asks for use the compute threads? */
bool rui_tool_computes(const char *const *argv, uint32_t n);

/* Run the command `name` of the table with the words of `argv` after its name, by `run` instead of
 * the table's function; the process's exit code. */
int ru_tool_run_as(const char *name, ru_status (*run)(ru_cmd_in *in, ru_err *err),
                   const char *const *argv, uint32_t n);

/* Let compute threads spin for a short time only; starts the program again where that is not yet
 * so. */
void ru_tool_limit_spinning(void);

#endif
