/* Records of what env/ does in a thread that has a name: sleeps of the loop, callbacks that took
 * long, timers that ran late, writes and syncs of files. The writer thread has no name, so what it
 * writes makes no records. */
#include "env/probe.h"
#include "trace/record/recorder_impl.h"

static void record(void *self, ru_probe_act act, int64_t start_ns, int64_t end_ns, int64_t value)
{
    ru_recorder *r = self;
    if (act == RU_PROBE_SLEEP) {
        ru_rec_wait(r, r->env_names[act], start_ns, end_ns, r->env_names[act]);
    } else if (act == RU_PROBE_LATE) { /* beside the sleep or the callback that kept it waiting */
        ru_rec_async(r, r->env_names[act], start_ns, end_ns, value, 0, 0);
    } else {
        ru_rec_span(r, r->env_names[act], start_ns, end_ns, value);
    }
}

void rui_env_names(ru_recorder *r)
{
    static const char *const names[RU_PROBE_ACTS] = {"sleep", "callback", "timer late", "write",
                                                     "sync"};
    for (uint32_t k = 0; k < RU_PROBE_ACTS; k++) {
        r->env_names[k] = ru_recorder_name(r, names[k], "env");
    }
}

void rui_env_begin(ru_recorder *r)
{
    if (!r->driven) {
        ru_probe_set(record, r);
    }
}

void rui_env_end(const ru_recorder *r)
{
    if (ru_probe_self() == r) {
        ru_probe_set(NULL, NULL);
    }
}
