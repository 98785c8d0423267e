/* The program behind main().
 *
 * Thread: main only. */
#ifndef RU_TOOL_RUN_H
#define RU_TOOL_RUN_H

#include "base/status.h"

/* Run the command that `argv` (without the program's name) asks for; the process's exit code. */
int rui_tool_run(const char *const *argv, uint32_t n);

/* Does the command that `argv` asks for use the compute threads? */
bool rui_tool_computes(const char *const *argv, uint32_t n);

#endif
