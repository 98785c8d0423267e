/* Size and depth of reads, found while reading: ours and every baseline on storage that is
 * simulated read by read, against every point of the grid. */
#include "bench/replay/disk/replay_read.h"

#include <math.h>

#include "env/clock.h"

#define MIB          1048576.0
#define STEADY_NS    INT64_C(20000000000)
#define MEASURE_NS   INT64_C(40000000000)
#define GRID_RAMP_NS INT64_C(3000000000)
#define GRID_NS      INT64_C(8000000000)

enum { METHODS = 11 };

static const char *const methods[METHODS] = {"model", "phases",  "climb",   "aimd",
                                             "grid",  "one",     "loader2", "loader8",
                                             "cores", "fixed16", "ahead"};

typedef struct setting {
    const char *name;
    rui_store_spec store;
    rui_records records;
    int64_t sample_bytes;
} setting;

#define DISK     .kind = RUI_STORE_TABLE, .noise = 0.2
#define LINK(s_) .kind = RUI_STORE_LINK, .noise = 0.1, .delay_s = s_, .bytes_per_s = 50e6
static const setting settings[] = {
    {"raw disk, 128 KiB samples", {DISK}, {0, 0}, 131072},
    {"200 reads/s and 100 MiB/s throttle",
     {.kind = RUI_STORE_THROTTLE, .noise = 0.2, .reads_per_s = 200, .bytes_per_s = 100 * MIB},
     {0, 0},
     131072},
    {"server 2 ms, 400 Mbit/s", {LINK(0.002)}, {0, 0}, 131072},
    {"server 5 ms, 400 Mbit/s", {LINK(0.005)}, {0, 0}, 131072},
    {"server 20 ms, 400 Mbit/s", {LINK(0.02)}, {0, 0}, 131072},
    {"disk, COCO records", {DISK}, {155534, 0.39}, 155534},
    {"disk, house number records", {DISK}, {6321, 1.04}, 6321},
    {"disk, imagenet groups of 32", {DISK}, {3.7e6, 0.19}, 3700000},
};

ru_read_in rui_read_input(int64_t sample_bytes, ru_read_method method)
{
    return (ru_read_in){.method = method,
                        .sample_bytes = sample_bytes,
                        .size_min = 65536,
                        .size_max = 16777216,
                        .depth_max = 256,
                        .memory_max_bytes = INT64_C(1) << 28,
                        .cores = 2,
                        .gain_min = 0.05,
                        .loss_max = 0.02,
                        .try_s = 10};
}

static void apply(rui_read_drive *d)
{
    d->reader.size_bytes = d->state.size_bytes;
    d->reader.depth = d->state.depth;
    ru_read_meter_begin(&d->meter, d->state.size_bytes, d->state.depth, ru_sim_now(d->sim).ns);
}

/* A completion; a window moves the tuner. */
static void completed(void *self, int64_t issued_ns, int64_t bytes)
{
    rui_read_drive *d = self;
    ru_read_window w;
    int64_t now = ru_sim_now(d->sim).ns;
    if (!ru_read_meter_done(&d->meter, issued_ns, bytes, now, &w) || d->frozen) {
        return;
    }
    ru_read_state before = d->state;
    d->status = ru_read_next(&d->in, &w, d->arena, &d->state, &d->err);
    if (d->status != RU_OK) {
        ru_sim_stop(d->sim);
        return;
    }
    d->windows++;
    bool steady = d->state.phase == RU_READ_STEADY && before.phase != RU_READ_TRY;
    d->converged_ns = steady && d->converged_ns == 0 ? now : d->converged_ns;
    if (before.size_bytes != d->state.size_bytes || before.depth != d->state.depth) {
        apply(d);
    }
}

static void mark(void *self, uint64_t k)
{
    rui_read_drive *d = self;
    d->delivered[k] = d->reader.delivered_bytes;
}

static void change(void *self, uint64_t k)
{
    rui_read_drive *d = self;
    double factor = k == 0 ? 0.5 : 2;
    d->store.spec.bytes_per_s *= factor;
    d->store.spec.reads_per_s *= factor;
}

void rui_read_open(rui_read_drive *d, ru_sim *sim, const rui_store_spec *store,
                   const rui_records *records, const ru_read_in *in, uint64_t seed, ru_arena *arena)
{
    *d = (rui_read_drive){.in = *in, .sim = sim, .arena = arena};
    rui_store_open(&d->store, store, sim, seed);
    rui_reader_open(&d->reader, &d->store, records, seed, arena);
    d->reader.memory_max_bytes = in->memory_max_bytes;
    d->reader.done = completed;
    d->reader.self = d;
    ru_read_begin(&d->in, &d->state);
    apply(d);
}

static ru_status run(rui_read_drive *d, int64_t until_ns, ru_err *err)
{
    rui_reader_go(&d->reader);
    RU_TRY(ru_sim_run(d->sim, (ru_time){until_ns}, err));
    if (d->status != RU_OK) {
        *err = d->err;
        return d->status;
    }
    return d->reader.failed ? RU_FAIL(err, RU_E_LIMIT, "no memory for simulated reads") : RU_OK;
}

typedef struct outcome {
    double bytes_per_s, converged_s, outstanding_mib, changes;
} outcome;

/* One method on one setting; bytes per second between two instants. `step`: 0 no change, 1 the
 * limit is halved, 2 doubled, 10 s before the first instant. `fixed`: not tuned, at this point. */
typedef struct run_in {
    const setting *set;
    ru_read_in in;
    const ru_read_window *fixed; /* or NULL */
    int64_t from_ns, to_ns;
    uint32_t step;
    uint64_t seed;
} run_in;

static ru_status play(ru_replay *r, const run_in *q, outcome *out, ru_err *err)
{
    ru_arena_mark m = ru_arena_mark_get(r->arena);
    const ru_sim_options opt = {.seed = q->seed};
    ru_sim *sim;
    RU_TRY(ru_sim_open(&opt, &sim, err));
    rui_read_drive d;
    rui_read_open(&d, sim, &q->set->store, &q->set->records, &q->in, q->seed, r->arena);
    if (q->fixed != NULL) {
        d.frozen = true;
        d.state.size_bytes = q->fixed->size_bytes;
        d.state.depth = q->fixed->depth;
        apply(&d);
    }
    (void)ru_sim_at(sim, (ru_time){q->from_ns}, mark, &d, 0);
    (void)ru_sim_at(sim, (ru_time){q->to_ns - 1}, mark, &d, 1);
    if (q->step > 0 && q->fixed != NULL) {
        change(&d, q->step - 1);
    } else if (q->step > 0) {
        ru_time at = {q->from_ns - INT64_C(10000000000)};
        (void)ru_sim_at(sim, at, change, &d, q->step - 1);
    }
    ru_status st = run(&d, q->to_ns, err);
    ru_sim_close(sim);
    RU_TRY(st);
    *out = (outcome){
        .bytes_per_s =
            (double)(d.delivered[1] - d.delivered[0]) * 1e9 / (double)(q->to_ns - q->from_ns),
        .converged_s = d.converged_ns > 0 ? 1e-9 * (double)d.converged_ns : RU_NAN,
        .outstanding_mib = (double)d.reader.outstanding_most / MIB,
        .changes = d.state.changes,
    };
    ru_arena_rewind(r->arena, m);
    return RU_OK;
}

/* The best point of the grid by its own run. */
static ru_status best_of_grid(ru_replay *r, const setting *set, uint32_t step, double *best,
                              ru_err *err)
{
    *best = 0;
    run_in q = {.set = set,
                .in = rui_read_input(set->sample_bytes, RU_READ_MODEL),
                .from_ns = GRID_RAMP_NS,
                .to_ns = GRID_NS,
                .step = step,
                .seed = 99};
    for (int64_t size = 65536; size <= 16777216; size *= r->quick ? 4 : 2) {
        for (uint32_t depth = 1; depth <= 256; depth *= r->quick ? 4 : 2) {
            const ru_read_window at = {.size_bytes = size, .depth = depth};
            outcome o;
            q.fixed = &at;
            if (size * depth <= q.in.memory_max_bytes) {
                RU_TRY(play(r, &q, &o, err));
                *best = fmax(*best, o.bytes_per_s);
            }
        }
    }
    return RU_OK;
}

static ru_status steady_rows(ru_replay *r, const setting *set, uint64_t seeds, ru_err *err)
{
    double best;
    RU_TRY(best_of_grid(r, set, 0, &best, err));
    double got[METHODS] = {0}, worst = (double)INFINITY, converged = 0, most = 0;
    for (uint32_t k = 0; k < METHODS; k++) {
        uint64_t n = k == RU_READ_MODEL ? seeds : 1;
        for (uint64_t seed = 0; seed < n; seed++) {
            outcome o;
            const run_in q = {.set = set,
                              .in = rui_read_input(set->sample_bytes, (ru_read_method)k),
                              .from_ns = STEADY_NS,
                              .to_ns = STEADY_NS + MEASURE_NS,
                              .seed = seed};
            RU_TRY(play(r, &q, &o, err));
            got[k] = o.bytes_per_s / best;
            if (k == RU_READ_MODEL) {
                worst = fmin(worst, got[k]);
                converged = fmax(converged, isnan(o.converged_s) ? 1e9 : o.converged_s);
                most = fmax(most, o.outstanding_mib);
            }
        }
    }
    ru_replay_row row = ru_replay_row_of(set->name, "rate_of_grid_best_after_20_s", false);
    row.ours = worst;
    row.bound = 1;
    row.goal = 0.95;
    for (uint32_t k = 1; k < METHODS; k++) {
        ru_replay_baseline(r, &row, methods[k], got[k]);
    }
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(set->name, "search_s", true);
    row.ours = converged;
    row.goal = 20;
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(set->name, "outstanding_most_mib", true);
    row.ours = most;
    row.goal = row.bound = 256;
    return ru_replay_add(r, &row, err);
}

/* The limit is halved and doubled after 30 s; from 10 s later on, 20 s. */
static ru_status step_rows(ru_replay *r, const setting *set, uint32_t step, ru_err *err)
{
    double best;
    RU_TRY(best_of_grid(r, set, step, &best, err));
    outcome o;
    run_in q = {.set = set,
                .in = rui_read_input(set->sample_bytes, RU_READ_MODEL),
                .from_ns = INT64_C(40000000000),
                .to_ns = INT64_C(60000000000),
                .step = step,
                .seed = 5};
    RU_TRY(play(r, &q, &o, err));
    char name[96];
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "%s, limit %s", set->name, step == 1 ? "halved" : "doubled");
    ru_replay_row row = ru_replay_row_of(name, "rate_of_grid_best_10_s_after_change", false);
    row.ours = o.bytes_per_s / best;
    row.goal = 0.9;
    row.bound = 1;
    q.in.method = RU_READ_PHASES;
    RU_TRY(play(r, &q, &o, err));
    ru_replay_baseline(r, &row, "phases", o.bytes_per_s / best);
    return ru_replay_add(r, &row, err);
}

/* Ten minutes: how often what is in force changes. */
static ru_status calm_rows(ru_replay *r, const setting *set, ru_err *err)
{
    const double minutes = r->quick ? 2 : 10;
    outcome o;
    run_in q = {.set = set,
                .in = rui_read_input(set->sample_bytes, RU_READ_MODEL),
                .from_ns = STEADY_NS,
                .to_ns = STEADY_NS + (int64_t)(minutes * 60e9),
                .seed = 8};
    RU_TRY(play(r, &q, &o, err));
    ru_replay_row row = ru_replay_row_of(set->name, "changes_per_minute", true);
    row.ours = o.changes / minutes;
    row.goal = 1;
    q.in.method = RU_READ_PHASES;
    RU_TRY(play(r, &q, &o, err));
    ru_replay_baseline(r, &row, "phases", o.changes / minutes);
    return ru_replay_add(r, &row, err);
}

/* Processor time of a plan after so many windows. */
static ru_status decision_row(ru_replay *r, uint32_t n, ru_err *err)
{
    ru_read_window *w = RU_NEW(r->arena, ru_read_window, n);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u windows", n);
    }
    ru_read_in in = rui_read_input(131072, RU_READ_MODEL);
    const ru_disk disk = {.latency_s = 0.005, .shared_byte_s = 2e-8};
    ru_read_state s;
    ru_read_begin(&in, &s);
    for (uint32_t i = 0; i < n; i++) {
        w[i] = (ru_read_window){.size_bytes = s.size_bytes,
                                .depth = s.depth,
                                .seconds = 0.5,
                                .bytes_per_s = ru_disk_rate(&disk, s.size_bytes, s.depth),
                                .latency_s = ru_disk_request_s(&disk, s.size_bytes, s.depth)};
        RU_TRY(ru_read_next(&in, &w[i], r->arena, &s, err));
    }
    in.window = w;
    in.n = n;
    ru_read_plan p;
    int64_t begin = ru_clock_cpu_ns();
    RU_TRY(ru_plan_read(&in, r->arena, &p, err));
    char name[64];
    ru_text text = ru_text_into(name, sizeof name);
    ru_text_putf(&text, "%u windows", n);
    ru_replay_row row = ru_replay_row_of(name, "decision_s", true);
    row.timed = true;
    row.ours = 1e-9 * (double)(ru_clock_cpu_ns() - begin);
    return ru_replay_add(r, &row, err);
}

ru_status rui_replay_read(ru_replay *r, ru_err *err)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(settings); i++) {
        if (!ru_replay_have(r, "steady %u", i)) {
            RU_TRY(steady_rows(r, &settings[i], r->quick ? 2 : 20, err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    for (uint32_t i = 1; i < 5; i++) {
        if (!ru_replay_have(r, "steps %u", i)) {
            RU_TRY(step_rows(r, &settings[i], 1, err));
            RU_TRY(step_rows(r, &settings[i], 2, err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    for (uint32_t i = 0; i < 5; i++) {
        if (!ru_replay_have(r, "calm %u", i)) {
            RU_TRY(calm_rows(r, &settings[i], err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    RU_TRY(decision_row(r, 1200, err)); /* ten minutes */
    return decision_row(r, 12000, err);
}
