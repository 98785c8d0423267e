#include "bench/replay/disk/replay_read_store.h"

#include <math.h>
#include <stddef.h>

typedef struct rui_read {
    rui_reader *reader;
    int64_t issued_ns, bytes;
    struct rui_read *next;
} rui_read;

/* Measured O_DIRECT random reads of a virtual disk, MB/s: rows 16 KiB, 128 KiB, 1 MiB, 4 MiB;
 * columns 1, 4, 16, 64 outstanding. */
static const double measured[4][4] = {{192, 444, 880, 705},
                                      {790, 985, 2020, 2188},
                                      {2059, 2290, 1369, 3254},
                                      {965, 2076, 2140, 2594}};
static const double sizes[4] = {16384, 131072, 1048576, 4194304};
static const double depths[4] = {1, 4, 16, 64};

/* Place of v between the entries of a rising list, by logarithm; clamped. */
static double place(const double *list, double v)
{
    if (v <= list[0]) {
        return 0;
    }
    for (uint32_t i = 0; i < 3; i++) {
        if (v < list[i + 1]) {
            return i + ru_math_log(v / list[i]) / ru_math_log(list[i + 1] / list[i]);
        }
    }
    return 3;
}

static double table_rate(double size, double depth)
{
    double x = place(sizes, size), y = place(depths, depth);
    uint32_t i = (uint32_t)fmin(x, 2), j = (uint32_t)fmin(y, 2);
    double u = x - i, v = y - j;
    double rate = (1 - u) * ((1 - v) * measured[i][j] + v * measured[i][j + 1]) +
                  u * ((1 - v) * measured[i + 1][j] + v * measured[i + 1][j + 1]);
    /* Smaller reads than were measured: the same number of them. */
    return 1e6 * rate * fmin(1, size / sizes[0]);
}

static double disk_s(const rui_store *s)
{
    double bytes = (double)s->outstanding_bytes, n = s->outstanding;
    return bytes / table_rate(bytes / n, n);
}

static int64_t ns(double s)
{
    return (int64_t)(s * 1e9 + 0.5);
}

/* When a read of `bytes` that enters now has ended. */
static int64_t end_of(rui_store *s, int64_t bytes)
{
    int64_t now = ru_sim_now(s->sim).ns;
    double own = fmax(0.05, 1 + s->spec.noise * ru_rng_normal(&s->rng));
    if (s->spec.kind == RUI_STORE_TABLE) {
        return now + ns(own * disk_s(s));
    }
    if (s->spec.kind == RUI_STORE_THROTTLE) {
        double cost = fmax(1 / s->spec.reads_per_s, (double)bytes / s->spec.bytes_per_s);
        int64_t slice = INT64_C(100000000);
        int64_t from = s->free_ns > now - slice ? s->free_ns : now - slice;
        s->free_ns = from + ns(cost);
        int64_t pass = s->free_ns > now ? s->free_ns : now;
        return pass + ns(own * (double)bytes / table_rate((double)bytes, 1));
    }
    int64_t answered = now + ns(own * s->spec.delay_s);
    int64_t begin = s->free_ns > answered ? s->free_ns : answered;
    s->free_ns = begin + ns((double)bytes / s->spec.bytes_per_s);
    return s->free_ns;
}

void rui_store_open(rui_store *s, const rui_store_spec *spec, ru_sim *sim, uint64_t seed)
{
    *s = (rui_store){.spec = *spec, .sim = sim, .rng = ru_rng_from(seed, 1)};
}

void rui_reader_open(rui_reader *r, rui_store *s, const rui_records *records, uint64_t seed,
                     ru_arena *arena)
{
    *r = (rui_reader){.store = s,
                      .records = *records,
                      .rng = ru_rng_from(seed, 2),
                      .room_bytes = INT64_MAX,
                      .memory_max_bytes = INT64_MAX / 2,
                      .arena = arena};
}

static int64_t record(rui_reader *r)
{
    double bytes = r->records.median * ru_math_exp(r->records.sigma * ru_rng_normal(&r->rng));
    return (int64_t)fmax(bytes, 512);
}

/* Whole records while they fit, or a piece of one that does not. */
static int64_t next_bytes(rui_reader *r)
{
    if (!(r->records.median > 0)) {
        return r->size_bytes;
    }
    int64_t bytes = 0;
    for (;;) {
        r->left_bytes = r->left_bytes > 0 ? r->left_bytes : record(r);
        if (bytes > 0 && bytes + r->left_bytes > r->size_bytes) {
            return bytes;
        }
        int64_t take = r->left_bytes < r->size_bytes ? r->left_bytes : r->size_bytes;
        bytes += take;
        r->left_bytes -= take;
        if (bytes >= r->size_bytes) {
            return bytes;
        }
    }
}

static void ended(void *self, uint64_t unused)
{
    (void)unused;
    rui_read *read = self;
    rui_reader *r = read->reader;
    r->outstanding--;
    r->outstanding_bytes -= read->bytes;
    r->store->outstanding--;
    r->store->outstanding_bytes -= read->bytes;
    r->delivered_bytes += (uint64_t)read->bytes;
    read->next = r->free;
    r->free = read;
    if (r->done != NULL) {
        r->done(r->self, read->issued_ns, read->bytes);
    }
    rui_reader_go(r);
}

void rui_reader_go(rui_reader *r)
{
    int64_t now = ru_sim_now(r->store->sim).ns;
    while (r->outstanding < r->depth && r->room_bytes > 0 &&
           r->outstanding_bytes + r->size_bytes <= r->memory_max_bytes) {
        rui_read *read = r->free != NULL ? r->free : RU_NEW(r->arena, rui_read, 1);
        if (read == NULL) {
            r->failed = true;
            return;
        }
        r->free = read->next;
        *read = (rui_read){.reader = r, .issued_ns = now, .bytes = next_bytes(r)};
        r->room_bytes -= r->room_bytes == INT64_MAX ? 0 : read->bytes;
        r->outstanding++;
        r->outstanding_bytes += read->bytes;
        r->outstanding_most =
            r->outstanding_bytes > r->outstanding_most ? r->outstanding_bytes : r->outstanding_most;
        r->store->outstanding++;
        r->store->outstanding_bytes += read->bytes;
        ru_time at = {end_of(r->store, read->bytes)};
        (void)ru_sim_at(r->store->sim, at, ended, read, 0);
    }
}
