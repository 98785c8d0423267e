/* --from HOST:PORT of commands that use a trained model: its weights come from another process,
 * while it already computes.
 *
 * Thread: main only. */
#ifndef RU_TOOL_CMD_FROM_H
#define RU_TOOL_CMD_FROM_H

#include "env/file/memfile.h"
#include "tool/cmd.h"
#include "train/remote/late.h"

/* The rows of the options. */
#define RU_OPT_FROM                                                                               \
    RU_OPT(TEXT, "from", "HOST:PORT",                                                             \
           "take the weights from a process that serves them (`rubato export RUN --listen`) and " \
           "compute while they come; with RUN - whatever model is served there"),                 \
        RU_OPT(TEXT, "token-file", "FILE",                                                        \
               "with --from: file with the token of who serves (default: RUBATO_TOKEN)"),         \
        RU_OPT(CHOICE, "order", "METHOD",                                                         \
               "with --from: the order in which weights are asked for, by the methods of "        \
               "`rubato plan --help order`",                                                      \
               .def = "best", .choices = RU_ORDER_NAMES)

typedef struct rui_from {
    ru_fetch *fetch;
    ru_remote_late late;
    bool keeps; /* an imported model, as a file in memory: */
    int onnx;
    char onnx_path[RU_MEMFILE_PATH];
} rui_from;

/* Connect, and make `run` the model that is served. With a name of a run or a checkpoint it must be
 * the model of that run, or exactly that checkpoint. `f` must not move until rui_from_close.
 * Errors: those of ru_fetch_open, ru_rundir_open; RU_E_DATA for another model or other weights. */
RU_MUST_USE ru_status rui_from_open(ru_cmd_in *in, const char *name, rui_from *f, ru_rundir *run,
                                    ru_err *err);
void rui_from_close(rui_from *f); /* zeroed: fine */

/* --resume-from: the newest copy of a checkpoint (run/copies.h) becomes the folder `out` of a run
 * that is resumed then. NULL is fine when it is not given. Errors: RU_E_USAGE, those of the copy.
 */
RU_MUST_USE ru_status rui_resume_from(ru_cmd_in *in, const char *out, bool is_worker, bool *resume,
                                      ru_err *err);

#endif
