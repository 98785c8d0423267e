#include "tool/explain/trace_errors.h"

#include "base/str.h"
#include "env/file/file.h"

ru_status rui_trace_errors_csv(const ru_trace *traces, uint32_t n, const ru_trace_clocks *clocks,
                               const char *path, ru_arena *arena, ru_err *err)
{
    ru_predicted *all;
    int64_t count;
    RU_TRY(ru_trace_compare(traces, n, clocks, 0, arena, &all, &count, err));
    ru_text t = ru_text_arena(arena);
    ru_text_put(&t, "predictor,rank,step,class,bytes,same,start_s,predicted_s,measured_s,to\n");
    for (int64_t i = 0; i < count; i++) {
        const ru_predicted *p = &all[i];
        ru_text_csv(&t, p->predictor);
        ru_text_putf(&t, ",%u,%u,%u,%lld,%016llx,%.9f,%.9f,%.9f,", traces[p->trace].rank, p->step,
                     p->chan_class, (long long)p->size_bytes, (unsigned long long)p->same,
                     1e-9 * (double)p->start_ns, 1e-9 * p->said_ns, 1e-9 * p->took_ns);
        if (p->to > 0) {
            ru_text_putf(&t, "%u", ru_trace_number(&traces[p->to - 1]));
        }
        ru_text_putf(&t, "\n");
    }
    return t.cut ? RU_FAIL(err, RU_E_LIMIT, "no memory for %lld predictions", (long long)count)
                 : ru_file_replace(path, t.p, t.n, err);
}
