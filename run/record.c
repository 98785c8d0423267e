#include "run/record.h"

#include "base/arena.h"
#include "base/conf.h"
#include "base/log.h"
#include "env/file/file.h"
#include "trace/export/export.h"

ru_status ru_run_recorder(const char *out, uint32_t rank, bool resume, const char *thread,
                          ru_recorder **recorder, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    const char *dir = ru_path_join(&arena, out, "trace");
    const ru_recorder_options ro = {.dir = dir, .rank = rank, .keep_old = resume};
    ru_status st = dir == NULL ? RU_FAIL(err, RU_E_MEM, "no memory for the recorder")
                               : ru_recorder_open(&ro, recorder, err);
    ru_arena_fini(&arena);
    RU_TRY(st);
    ru_recorder_thread(*recorder, thread);
    /* The program that started the job has a trace of its own; workers inherit its environment. */
    const char *parent = ru_conf_env("TRACEPARENT");
    char ids[2][33];
    if (parent != NULL && ru_traceparent_read(parent, ids[0], ids[1])) {
        ru_recorder_meta(*recorder, "traceparent", parent);
    } else if (parent != NULL) {
        ru_log(RU_LOG_WARN, "trace", "traceparent",
               "TRACEPARENT is '%.60s', expected 00-<32 hex>-<16 hex>-<2 hex>; it is ignored",
               parent);
    }
    return RU_OK;
}
