/* `rubato sim --real`: the job of a world file in real processes that compute nothing. Thread:
 * main.
 */
#ifndef RU_TOOL_SIM_REAL_H
#define RU_TOOL_SIM_REAL_H

#include "lab/job.h"
#include "tool/cmd.h"
#include "train/script/process.h"

/* The first process, which starts the others on this machine, or waits for them with --listen; or,
 * with --join, one of the others. */
RU_MUST_USE ru_status rui_sim_real(ru_cmd_in *in, const ru_sim_job *job, ru_script_run_result *into,
                                   ru_err *err);

#endif
