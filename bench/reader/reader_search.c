#include "bench/reader/reader_search.h"

#include "bench/reader/reader.h"
#include "env/clock.h"

static double now_s(void)
{
    return 1e-9 * (double)ru_clock_now().ns;
}

ru_status rui_make_images(const char *path, int64_t side, int64_t bytes, ru_err *err)
{
    int64_t n = bytes / (side * side);
    const int64_t words[] = {0x803, n, side, side};
    uint8_t head[16];
    for (uint32_t k = 0; k < sizeof head; k++) {
        head[k] = (uint8_t)(words[k / 4] >> (24 - 8 * (k % 4)));
    }
    return rui_make_file(path, head, sizeof head, n * side * side, err);
}

ru_status rui_measure(rui_searched *s, int64_t size, uint32_t depth, double seconds,
                      ru_read_window *w, ru_err *err)
{
    double from = now_s(), begin = from + seconds / 2, latency = 0;
    int64_t bytes = 0, n = 0;
    ru_stream_reads_set(s->stream, size, depth);
    while (now_s() < from + seconds || n < 2) {
        ru_batch b;
        RU_TRY(ru_stream_next(s->stream, &b, err));
        uint32_t got = ru_stream_reads_take(s->stream, s->ended, RU_READS_KEPT);
        for (uint32_t k = 0; k < got; k++) {
            const ru_read_done *e = &s->ended[k];
            if (1e-9 * (double)e->ended_ns >= begin) {
                bytes += e->size_bytes;
                latency += 1e-9 * (double)(e->ended_ns - e->issued_ns);
                n++;
            }
        }
    }
    double rate = (double)bytes / (now_s() - begin);
    *w = (ru_read_window){.size_bytes = size,
                          .depth = depth,
                          .seconds = now_s() - begin,
                          .bytes_per_s = rate,
                          .error = 0.03 * rate,
                          .latency_s = latency / (double)n};
    return RU_OK;
}

/* One window at the state's setting. */
static ru_status advance(rui_searched *s, ru_err *err)
{
    ru_read_window w;
    RU_CHECK(s->state.size_bytes * s->state.depth <= s->in.memory_max_bytes);
    RU_TRY(rui_measure(s, s->state.size_bytes, s->state.depth, 1, &w, err));
    return ru_read_next(&s->in, &w, s->arena, &s->state, err);
}

ru_status rui_search(rui_searched *s, double seconds, double *taken_s, ru_err *err)
{
    double from = now_s();
    ru_read_begin(&s->in, &s->state);
    while (s->state.phase != RU_READ_STEADY && now_s() < from + seconds) {
        RU_TRY(advance(s, err));
    }
    *taken_s = now_s() - from;
    return RU_OK;
}

ru_status rui_search_on(rui_searched *s, double seconds, ru_err *err)
{
    double from = now_s();
    while (now_s() < from + seconds) {
        RU_TRY(advance(s, err));
    }
    return RU_OK;
}

ru_status rui_grid(rui_searched *s, uint32_t depth_min, ru_read_window *best, uint32_t *points,
                   ru_err *err)
{
    *best = (ru_read_window){0};
    *points = 0;
    for (int64_t size = s->in.size_min; size <= s->in.size_max; size *= 2) {
        for (uint32_t depth = depth_min; depth <= s->in.depth_max; depth *= 4) {
            ru_read_window w;
            if (size * depth > s->in.memory_max_bytes) {
                continue;
            }
            RU_TRY(rui_measure(s, size, depth, 1, &w, err));
            *best = w.bytes_per_s > best->bytes_per_s ? w : *best;
            ++*points;
        }
    }
    return RU_OK;
}
