/* Rows of `rubato bench reader` about data in stores: `rubato bench reader --only http`.
 *
 * The store is bench/range_server.h with a delay of each request and 50 MB/s (400 Mbit/s) for all
 * of them; the samples have 131 kB. Ours is what the tuner (plan/read.h) chose within 20 s, against
 * one sample a request with as many requests as cores, and against the best of a grid. */
#include "bench/reader_http.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/range_server.h"
#include "data/reader.h"
#include "env/clock.h"
#include "env/file.h"
#include "plan/read.h"

enum { SIDE = 362, SAMPLES = 700, BATCH = 16, RATE = 50000000, SEARCH_S = 20 };

typedef struct store {
    ru_range_server *server;
    ru_dataset *data;
    ru_stream *stream;
    ru_read_done *ended; /* [RU_READS_KEPT] */
} store;

static double now_s(void)
{
    return 1e-9 * (double)ru_clock_now().ns;
}

/* Batches for `seconds` with this setting, half of that as a ramp. */
static ru_status measure(store *s, int64_t size, uint32_t depth, double seconds, ru_read_window *w,
                         ru_err *err)
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

/* The tuner's search; the rate of its choice. */
static ru_status search(store *s, ru_arena *arena, double *rate, double *taken_s, ru_err *err)
{
    ru_read_in in = {.method = RU_READ_MODEL,
                     .sample_bytes = SIDE * SIDE,
                     .size_min = 64 << 10,
                     .size_max = 256 << 10, /* a shuffled sample stands alone */
                     .depth_max = 256,
                     .memory_max_bytes = 64 << 20,
                     .cores = 2,
                     .gain_min = 0.05,
                     .loss_max = 0.02,
                     .try_s = 10};
    ru_read_state st;
    ru_read_window w;
    double from = now_s();
    ru_read_begin(&in, &st);
    while (st.phase != RU_READ_STEADY && now_s() < from + SEARCH_S) {
        RU_TRY(measure(s, st.size_bytes, st.depth, 1, &w, err));
        RU_TRY(ru_read_next(&in, &w, arena, &st, err));
    }
    *taken_s = now_s() - from;
    RU_TRY(measure(s, st.size_bytes, st.depth, 3, &w, err));
    *rate = w.bytes_per_s;
    return RU_OK;
}

static ru_status make_images(const char *path, ru_err *err)
{
    const uint8_t head[16] = {0, 0, 8,         3,          0, 0, SAMPLES >> 8, SAMPLES & 255,
                              0, 0, SIDE >> 8, SIDE & 255, 0, 0, SIDE >> 8,    SIDE & 255};
    int64_t n = (int64_t)SAMPLES * SIDE * SIDE;
    uint8_t *bytes = calloc(1, (size_t)n);
    ru_out *out = NULL;
    if (bytes == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %s", path);
    }
    ru_status st = ru_out_open(path, &out, err);
    st = st == RU_OK ? ru_out_write(out, head, sizeof head, err) : st;
    st = st == RU_OK ? ru_out_write(out, bytes, n, err) : st;
    st = st == RU_OK ? ru_out_commit(out, err) : st;
    ru_out_close(out);
    free(bytes);
    return st;
}

static void close_store(store *s)
{
    ru_stream_close(s->stream);
    ru_dataset_close(s->data);
    ru_range_server_close(s->server);
    *s = (store){.ended = s->ended};
}

static ru_status open_store(ru_bench *b, int64_t delay_ms, store *s, ru_err *err)
{
    const ru_range_server_options so = {
        .dir = b->dir, .delay_ns = delay_ms * 1000000, .bytes_per_s = RATE};
    RU_TRY(ru_range_server_open(&so, &s->server, err));
    RU_TRY(ru_range_server_start(s->server, err));
    const char *url = ru_arena_printf(b->arena, "http://127.0.0.1:%u/http-images",
                                      ru_range_server_port(s->server));
    const ru_data_options data = {
        .format = "idx", .paths = &url, .n_paths = 1, .raw = true, .resident_max_bytes = -1};
    RU_TRY(ru_dataset_open(&data, &s->data, err));
    const ru_stream_options o = {.batch = BATCH, .shuffle = RU_SHUFFLE_FULL, .seed = 1};
    return ru_stream_open(s->data, &o, &s->stream, err);
}

/* The best of a grid, each point for half a second. */
static ru_status grid(store *s, double *best, ru_err *err)
{
    *best = 0;
    for (int64_t size = 64 << 10; size <= 256 << 10; size *= 2) {
        for (uint32_t depth = 4; depth <= 256; depth *= 4) {
            ru_read_window w;
            RU_TRY(measure(s, size, depth, 1, &w, err));
            *best = w.bytes_per_s > *best ? w.bytes_per_s : *best;
        }
    }
    return RU_OK;
}

static ru_status bench_delay(ru_bench *b, int64_t delay_ms, store *s, ru_err *err)
{
    double rate, taken_s, best;
    ru_read_window plain, same;
    RU_TRY(open_store(b, delay_ms, s, err));
    RU_TRY(search(s, b->arena, &rate, &taken_s, err));
    RU_TRY(measure(s, 256 << 10, 2, 3, &plain, err)); /* one sample a request */
    RU_TRY(grid(s, &best, err));
    RU_TRY(measure(s, 256 << 10, 2, 1, &same, err));
    double ours = rate / 1e6, theirs[2] = {plain.bytes_per_s / 1e6, same.bytes_per_s / 1e6};
    best /= 1e6;
    ru_bench_row row = {.name =
                            ru_arena_printf(b->arena, "http, %lld ms a request, found in %.0f s",
                                            (long long)delay_ms, taken_s),
                        .unit = "MB/s",
                        .ours = ru_bench_stat_of(&ours, 1),
                        .theirs = ru_bench_stat_of(theirs, 2),
                        .goal = delay_ms == 20 ? 2.0 : 0.0,
                        .peer = "a request of one sample for each of 2 cores"};
    RU_TRY(ru_bench_add(b, &row, err));
    row.theirs = ru_bench_stat_of(&best, 1);
    row.goal = 0.95;
    row.peer = "best of a grid of 12 settings";
    return ru_bench_add(b, &row, err);
}

ru_status ru_bench_http(ru_bench *b, ru_err *err)
{
    static const int64_t delays_ms[] = {20, 5, 2};
    if (!ru_bench_wants(b, "http")) {
        return RU_OK;
    }
    const char *path = ru_path_join(b->arena, b->dir, "http-images");
    store s = {.ended = malloc(RU_READS_KEPT * sizeof(ru_read_done))};
    ru_status st = path != NULL && s.ended != NULL
                       ? make_images(path, err)
                       : RU_FAIL(err, RU_E_MEM, "no memory for the store");
    for (uint32_t k = 0; st == RU_OK && k < (b->quick ? 1 : RU_ARRAY_LEN(delays_ms)); k++) {
        st = bench_delay(b, delays_ms[k], &s, err);
        close_store(&s);
    }
    free(s.ended);
    ru_status removed = st == RU_OK ? ru_path_remove(path, err) : RU_OK;
    return st == RU_OK ? removed : st;
}
