/* Rows of `rubato bench reader` about data in stores: `rubato bench reader --only http`.
 *
 * The store is bench/reader/range_server.h with a delay of each request and 50 MB/s (400 Mbit/s)
 * for all of them; the samples have 131 kB. Ours is what the tuner (plan/disk/read.h) chose within
 * 20 s, against one sample a request with as many requests as cores, and against the best of a
 * grid. */
#include "bench/reader/reader_http.h"

#include <stdlib.h>

#include "bench/reader/range_server.h"
#include "bench/reader/reader_search.h"
#include "env/file/file.h"

enum { SIDE = 362, SAMPLES = 700, BATCH = 16, RATE = 50000000, SEARCH_S = 20 };

typedef struct store {
    ru_range_server *server;
    ru_dataset *data;
    rui_searched reads;
} store;

static void close_store(store *s)
{
    ru_stream_close(s->reads.stream);
    ru_dataset_close(s->data);
    ru_range_server_close(s->server);
    *s = (store){.reads = {.ended = s->reads.ended, .arena = s->reads.arena}};
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
    s->reads.in = (ru_read_in){.method = RU_READ_MODEL,
                               .sample_bytes = SIDE * SIDE,
                               .size_min = 64 << 10,
                               .size_max = 256 << 10, /* a shuffled sample stands alone */
                               .depth_max = 256,
                               .memory_max_bytes = 64 << 20,
                               .cores = 2,
                               .gain_min = 0.05,
                               .loss_max = 0.02,
                               .try_s = 10};
    return ru_stream_open(s->data, &o, &s->reads.stream, err);
}

static ru_status bench_delay(ru_bench *b, int64_t delay_ms, store *s, ru_err *err)
{
    double taken_s;
    uint32_t points;
    ru_read_window found, plain, same, most;
    RU_TRY(open_store(b, delay_ms, s, err));
    RU_TRY(rui_search(&s->reads, SEARCH_S, &taken_s, err));
    const ru_read_state *st = &s->reads.state;
    RU_TRY(rui_measure(&s->reads, st->size_bytes, st->depth, 3, &found, err));
    RU_TRY(rui_measure(&s->reads, 256 << 10, 2, 3, &plain, err)); /* one sample a request */
    RU_TRY(rui_grid(&s->reads, 4, &most, &points, err));
    RU_TRY(rui_measure(&s->reads, 256 << 10, 2, 1, &same, err));
    double ours = found.bytes_per_s / 1e6, best = most.bytes_per_s / 1e6;
    double theirs[2] = {plain.bytes_per_s / 1e6, same.bytes_per_s / 1e6};
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
    row.peer = ru_arena_printf(b->arena, "best of a grid of %u settings", points);
    return ru_bench_add(b, &row, err);
}

ru_status ru_bench_http(ru_bench *b, ru_err *err)
{
    static const int64_t delays_ms[] = {20, 5, 2};
    if (!ru_bench_wants(b, "http")) {
        return RU_OK;
    }
    const char *path = ru_path_join(b->arena, b->dir, "http-images");
    store s = {.reads = {.ended = malloc(RU_READS_KEPT * sizeof(ru_read_done)), .arena = b->arena}};
    ru_status st = path != NULL && s.reads.ended != NULL
                       ? rui_make_images(path, SIDE, (int64_t)SAMPLES * SIDE * SIDE, err)
                       : RU_FAIL(err, RU_E_MEM, "no memory for the store");
    for (uint32_t k = 0; st == RU_OK && k < (b->quick ? 1 : RU_ARRAY_LEN(delays_ms)); k++) {
        st = bench_delay(b, delays_ms[k], &s, err);
        close_store(&s);
    }
    free(s.reads.ended);
    ru_status removed = st == RU_OK ? ru_path_remove(path, err) : RU_OK;
    return st == RU_OK ? removed : st;
}
