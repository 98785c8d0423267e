/* What one decision of the egress scheduler costs, and how it grows with the streams that wait:
 * pick, took and wake of a chunk, with deadlines (keys change with every chunk) and without. */
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "comm/chan/egress.h"
#include "env/clock.h"

enum { LINES = 16, CHUNKS = 200000 };

static double cost_ns(uint32_t streams, bool deadlines)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    rui_egress *e = NULL;
    rui_egress_options opt = {.lines_max = LINES, .streams_max = streams, .rate_bytes_per_s = 1e9};
    RU_CHECK(rui_egress_open(&opt, &a, &e, NULL) == RU_OK);
    ru_rng r = ru_rng_from(1, streams);
    for (uint32_t i = 0; i < LINES; i++) {
        rui_egress_line(e, i, true);
    }
    for (uint32_t i = 0; i < streams; i++) {
        rui_egress_stream s = {.line = i % LINES,
                               .class = (uint8_t)(1 + ru_rng_below(&r, 3)),
                               .rank = (uint16_t)ru_rng_below(&r, 1000),
                               .bytes = (int64_t)1 << 40,
                               .total_bytes = (int64_t)1 << 40};
        s.deadline.ns = deadlines ? 1000000000 + (int64_t)ru_rng_below(&r, 1000000000) : 0;
        rui_egress_add(e, i, &s, (ru_time){1});
    }
    /* The first decision of a line sorts what came in one heap of children: not measured. */
    ru_time t0 = ru_clock_now();
    uint32_t done = 0;
    for (uint32_t k = 0; k < CHUNKS + 1000; k++) {
        if (k == 1000) {
            t0 = ru_clock_now();
            done = 0;
        }
        ru_time now = {1000 + (int64_t)k * 100000};
        uint32_t line = rui_egress_wake(e, now), s;
        line = line == RUI_NONE ? k % LINES : line;
        if (rui_egress_pick(e, line, now, &s)) {
            rui_egress_took(e, s, 64 << 10, now);
            done++;
        }
    }
    double ns = (double)ru_time_since(ru_clock_now(), t0) / done;
    ru_arena_fini(&a);
    return ns;
}

int main(void)
{
    printf("%10s %18s %18s\n", "streams", "no deadlines, ns", "deadlines, ns");
    for (uint32_t n = 10; n <= 100000; n *= 10) {
        double plain[5], timed[5];
        for (uint32_t k = 0; k < 5; k++) {
            plain[k] = cost_ns(n, false);
            timed[k] = cost_ns(n, true);
        }
        double best[2] = {plain[0], timed[0]};
        for (uint32_t k = 1; k < 5; k++) {
            best[0] = plain[k] < best[0] ? plain[k] : best[0];
            best[1] = timed[k] < best[1] ? timed[k] : best[1];
        }
        printf("%10u %18.0f %18.0f\n", n, best[0], best[1]);
    }
    return 0;
}
