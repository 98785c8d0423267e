/* Trace files from anywhere: parse, fold, never crash. */
#include <stddef.h>

#include "trace/clock.h"
#include "trace/fold.h"
#include "trace/read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ru_arena a;
    ru_arena_init(&a, (int64_t)1 << 28);
    ru_trace t;
    if (ru_trace_parse(data, (int64_t)size, &a, &t, NULL) == RU_OK) {
        ru_trace_clocks c;
        if (ru_trace_align(&t, 1, &a, &c, NULL) == RU_OK) {
            (void)ru_trace_global(&c, 0, t.last_ns);
        }
        ru_span_facts f;
        if (ru_trace_fold(&t, &a, &f, NULL) == RU_OK) {
            (void)ru_span_facts_print(&f, 10, &a);
        }
    }
    ru_arena_fini(&a);
    return 0;
}
