/* Trace files from anywhere: parse, lay over each other, fold, never crash. The checksums of blocks
 * are made right first, or nothing behind them would ever be read. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "trace/read/cause.h"
#include "trace/read/clock.h"
#include "trace/read/fold.h"
#include "trace/read/predicted.h"
#include "trace/read/read.h"
#include "trace/record/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void mend(uint8_t *data, size_t size)
{
    for (size_t at = RUI_TRACE_HEADER_BYTES; at + RUI_TRACE_BLOCK_BYTES <= size;) {
        uint32_t w[6];
        memcpy(w, data + at, sizeof w);
        w[0] = RUI_TRACE_BLOCK_MAGIC;
        w[3] %= (uint32_t)(size - at - RUI_TRACE_BLOCK_BYTES) + 1;
        w[4] = ru_crc32c(0, data + at + RUI_TRACE_BLOCK_BYTES, w[3]);
        memcpy(data + at, w, sizeof w);
        at += RUI_TRACE_BLOCK_BYTES + w[3];
    }
}

/* Steps, causes and errors of predictions. */
static void tell(const ru_trace *t, const ru_trace_clocks *c, ru_arena *a)
{
    ru_rank_steps steps[2];
    ru_cause causes[RU_CAUSES_MAX];
    ru_predictor_error errors[RU_PREDICTORS_MAX];
    uint32_t n;
    if (ru_trace_steps(t, 2, c, a, steps, NULL) == RU_OK &&
        ru_trace_causes(t, steps, 2, c, a, causes, &n, NULL) == RU_OK) {
        ru_text text = ru_text_arena(a);
        for (uint32_t k = 0; k < n; k++) {
            ru_cause_print(&causes[k], t, &text);
        }
    }
    (void)!ru_trace_predicted(t, 2, c, 1000, a, errors, &n, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ru_arena a;
    ru_arena_init(&a, (int64_t)1 << 28);
    ru_trace t[2];
    uint8_t *copy = malloc(size + 1);
    if (copy != NULL) {
        memcpy(copy, data, size);
        mend(copy, size);
    }
    if (copy != NULL && ru_trace_parse(copy, (int64_t)size, &a, &t[0], NULL) == RU_OK) {
        ru_trace_clocks c;
        t[1] = t[0];
        t[1].node = t[0].n_peers > 0 ? t[0].peers[0].peer : 0;
        t[1].rank = t[0].rank ^ 1;
        if (ru_trace_align(t, 2, &a, &c, NULL) == RU_OK) {
            (void)ru_trace_global(&c, 0, t[0].last_ns);
            (void)ru_trace_global(&c, 1, t[0].first_ns);
            (void)ru_trace_bound(&c, 1, t[0].first_ns);
            tell(t, &c, &a);
        }
        ru_span_facts f;
        if (ru_trace_fold(&t[0], &a, &f, NULL) == RU_OK) {
            (void)ru_span_facts_print(&f, 10, &a);
        }
    }
    free(copy);
    ru_arena_fini(&a);
    return 0;
}
