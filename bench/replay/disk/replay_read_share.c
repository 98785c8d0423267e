/* Workers of a synchronous job at one storage: who gets how much, how long all wait at the barrier,
 * and flags while nothing is unfair. The job is elastic training in the simulator (lab/job.h): its
 * leader hears of the reads, asks the policy and gives the orders that a real one gives. */
#include <math.h>

#include "bench/replay/disk/replay_read.h"
#include "lab/job.h"

#define MIB 1048576.0

enum { WORKERS = 4, LOOKS_PER_S = 100 };

typedef enum fair_method {
    FAIR_ORDERS, /* the leader's */
    FAIR_NONE,
    FAIR_EQUAL, /* the same outstanding for everybody, from the start */
    FAIR_METHODS,
} fair_method;

typedef struct fair_case {
    const char *name;
    rui_store_spec store;
    uint32_t depth[WORKERS];
    double batch_bytes, step_s; /* of a worker; computing */
    double slow;                /* worker 0 computes so many times as long */
    int64_t room_bytes;         /* of a reader's buffer */
} fair_case;

/* A worker's reads, and its step that waits for them. */
typedef struct fair_worker {
    struct fair *f;
    rui_reader reader;
    double taken;            /* bytes consumed */
    double begun_s, ready_s; /* it wants the samples of a step; 0: it has them. It has them */
    bool asks;
    double stall_s, busy_s;
    ru_sim_fn fed;
    void *fed_self;
    uint64_t fed_arg;
    uint64_t before; /* delivered at the second's begin */
} fair_worker;

typedef struct fair {
    const fair_case *c;
    fair_method method;
    ru_sim *sim;
    ru_arena *arena;
    rui_store store;
    fair_worker worker[WORKERS];
    uint32_t n_ready, second, orders;
    double from_s, to_s;        /* what counts */
    double steps, barrier_s;    /* there */
    double delivered, jain[64]; /* there; by second */
} fair;

static double now_s(const fair *f)
{
    return 1e-9 * (double)ru_sim_now(f->sim).ns;
}

static void later(fair *f, double s, ru_sim_fn fn)
{
    (void)ru_sim_at(f->sim, (ru_time){ru_sim_now(f->sim).ns + (int64_t)(s * 1e9)}, fn, f, 0);
}

static bool counts(const fair *f)
{
    return now_s(f) >= f->from_s && now_s(f) < f->to_s;
}

/* All have their batches: who came first waited for the last. */
static void barrier(fair *f)
{
    double last = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        last = fmax(last, f->worker[i].ready_s);
    }
    for (uint32_t i = 0; i < WORKERS && counts(f); i++) {
        f->barrier_s += last - f->worker[i].ready_s;
    }
    f->steps += counts(f) ? 1 : 0;
    f->n_ready = 0;
}

/* After the time that counts nobody waits any more: the job goes to its end. */
static void look(fair_worker *w)
{
    fair *f = w->f;
    bool over = now_s(f) >= f->to_s;
    bool has = (double)w->reader.delivered_bytes >= w->taken + f->c->batch_bytes;
    if (!w->asks || (!has && !over)) {
        return;
    }
    w->asks = false;
    w->ready_s = now_s(f);
    w->stall_s += w->ready_s - w->begun_s;
    w->taken += f->c->batch_bytes;
    w->reader.room_bytes += (int64_t)f->c->batch_bytes;
    rui_reader_go(&w->reader);
    if (++f->n_ready == WORKERS) {
        barrier(f);
    }
    w->fed(w->fed_self, w->fed_arg);
}

static void delivered(void *self, int64_t issued_ns, int64_t bytes)
{
    (void)issued_ns;
    fair_worker *w = self;
    w->f->delivered += counts(w->f) ? (double)bytes : 0;
    if (now_s(w->f) >= w->f->to_s) {
        w->reader.room_bytes = 0;
    }
    look(w);
}

/* Readers are looked at a hundred times a second. */
static void sample(void *self, uint64_t unused)
{
    (void)unused;
    fair *f = self;
    for (uint32_t i = 0; i < WORKERS; i++) {
        f->worker[i].busy_s += f->worker[i].reader.outstanding > 0 ? 1.0 / LOOKS_PER_S : 0;
        look(&f->worker[i]);
    }
    if (now_s(f) < f->to_s) {
        later(f, 1.0 / LOOKS_PER_S, sample);
    }
}

/* Jain's index of what was delivered in a second: all need the same. */
static void note_jain(void *self, uint64_t unused)
{
    (void)unused;
    fair *f = self;
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        fair_worker *w = &f->worker[i];
        double x = (double)(w->reader.delivered_bytes - w->before);
        w->before = w->reader.delivered_bytes;
        sum += x;
        squares += x * x;
    }
    if (f->second < RU_ARRAY_LEN(f->jain)) {
        f->jain[f->second++] = sum * sum / fmax(WORKERS * squares, 1);
        later(f, 1, note_jain);
    }
}

/* -- the input of the simulated job --------------------------------------------------------------
 */

static void input_open(void *self, ru_sim *sim)
{
    fair *f = self;
    const rui_records whole = {0, 0};
    uint32_t all = 0;
    f->sim = sim;
    rui_store_open(&f->store, &f->c->store, sim, 3);
    for (uint32_t i = 0; i < WORKERS; i++) {
        all += f->c->depth[i];
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        fair_worker *w = &f->worker[i];
        w->f = f;
        rui_reader_open(&w->reader, &f->store, &whole, i, f->arena);
        w->reader.size_bytes = 131072;
        w->reader.depth = f->method == FAIR_EQUAL ? all / WORKERS : f->c->depth[i];
        w->reader.room_bytes = f->c->room_bytes;
        w->reader.done = delivered;
        w->reader.self = w;
        rui_reader_go(&w->reader);
    }
    later(f, 1.0 / LOOKS_PER_S, sample);
    later(f, 1, note_jain);
}

static void input_step(void *self, uint32_t worker, ru_sim_fn fed, void *fed_self, uint64_t arg)
{
    fair *f = self;
    fair_worker *w = &f->worker[worker];
    w->asks = true;
    w->begun_s = now_s(f);
    w->fed = fed;
    w->fed_self = fed_self;
    w->fed_arg = arg;
    look(w);
}

static void input_reads(void *self, uint32_t worker, ru_elastic_reads *into)
{
    const fair *f = self;
    const fair_worker *w = &f->worker[worker];
    double stall = w->stall_s + (w->asks ? now_s(f) - w->begun_s : 0);
    *into = (ru_elastic_reads){
        .bytes = (int64_t)w->reader.delivered_bytes,
        .busy_ns = (int64_t)(w->busy_s * 1e9),
        .stall_ns = (int64_t)(stall * 1e9),
        .batch_bytes = (int64_t)f->c->batch_bytes,
        .outstanding_bytes = w->reader.size_bytes * (int64_t)w->reader.depth,
    };
}

static void input_share(void *self, uint32_t worker, int64_t outstanding_bytes)
{
    fair *f = self;
    rui_reader *r = &f->worker[worker].reader;
    f->orders += outstanding_bytes > 0 && worker == 0 ? 1 : 0;
    if (f->method == FAIR_ORDERS && outstanding_bytes > 0) {
        r->depth = (uint32_t)fmax(round((double)outstanding_bytes / (double)r->size_bytes), 1);
        rui_reader_go(r);
    }
}

static ru_status play(ru_replay *r, const fair_case *c, fair_method method, double from_s,
                      double to_s, fair *f, ru_err *err)
{
    *f = (fair){.c = c, .arena = r->arena, .method = method, .from_s = from_s, .to_s = to_s};
    const ru_sim_input input = {input_open, input_step, input_reads, input_share, f};
    const int64_t tensor_n[] = {1000};
    const double speeds[WORKERS] = {1 / c->slow, 1, 1, 1};
    const ru_sim_job job = {.seed = 3,
                            .founders = WORKERS,
                            .steps = (int64_t)(to_s / c->step_s) + 10,
                            .batch = WORKERS,
                            .n_tensors = 1,
                            .tensor_n = tensor_n,
                            .counted = true,
                            .equal_shares = true,
                            .sample_ns = (int64_t)(c->step_s * 1e9),
                            .speeds = speeds,
                            .time_max_ns = INT64_C(3600000000000),
                            .input = &input};
    ru_sim_job_result result;
    return ru_sim_job_run(&job, &result, err);
}

#define GROUP                                                                                  \
    {                                                                                          \
        .kind = RUI_STORE_THROTTLE, .noise = 0.2, .reads_per_s = 1e5, .bytes_per_s = 100 * MIB \
    }
static const fair_case unfair[] = {
    {"throttle of 100 MiB/s", GROUP, {1, 8, 32, 32}, 12 * MIB, 0.4, 1, INT64_C(16) << 30},
    {"raw disk",
     {.kind = RUI_STORE_TABLE, .noise = 0.2},
     {1, 8, 32, 32},
     300 * MIB,
     0.4,
     1,
     INT64_C(256) << 30},
};
static const fair_case calm[] = {
    {"slow processor, throttle", GROUP, {1, 8, 32, 32}, 8 * MIB, 0.4, 3, INT64_C(64) << 20},
    {"slow processor, equal depths", GROUP, {8, 8, 8, 8}, 8 * MIB, 0.4, 3, INT64_C(64) << 20},
    {"enough for all", GROUP, {4, 4, 8, 8}, 4 * MIB, 0.4, 1, INT64_C(64) << 20},
    {"too little for all, equal depths",
     GROUP,
     {16, 16, 16, 16},
     16 * MIB,
     0.4,
     1,
     INT64_C(256) << 20},
};

static ru_status unfair_rows(ru_replay *r, const fair_case *c, ru_err *err)
{
    static const char *const names[] = {"orders", "none", "equal"};
    fair *f = RU_NEW(r->arena, fair, FAIR_METHODS);
    if (f == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for four workers");
    }
    double wait[FAIR_METHODS];
    for (uint32_t k = 0; k < FAIR_METHODS; k++) {
        RU_TRY(play(r, c, (fair_method)k, 10, 40, &f[k], err));
        wait[k] = f[k].barrier_s / fmax(f[k].steps, 1);
    }
    ru_replay_row rows[3] = {ru_replay_row_of(c->name, "jain_after_10_s", false),
                             ru_replay_row_of(c->name, "barrier_wait_less_by", false),
                             ru_replay_row_of(c->name, "delivered_over_none", false)};
    rows[0].ours = f[FAIR_ORDERS].jain[10];
    rows[0].goal = 0.98;
    rows[0].bound = 1;
    rows[1].ours = wait[FAIR_NONE] / fmax(wait[FAIR_ORDERS], 1e-6);
    rows[1].goal = 5;
    rows[2].ours = f[FAIR_ORDERS].delivered / f[FAIR_NONE].delivered;
    rows[2].goal = 0.97;
    for (uint32_t k = FAIR_NONE; k < FAIR_METHODS; k++) {
        ru_replay_baseline(r, &rows[0], names[k], f[k].jain[10]);
        ru_replay_baseline(r, &rows[1], names[k], wait[FAIR_NONE] / fmax(wait[k], 1e-6));
        ru_replay_baseline(r, &rows[2], names[k], f[k].delivered / f[FAIR_NONE].delivered);
    }
    for (uint32_t i = 0; i < 3; i++) {
        RU_TRY(ru_replay_add(r, &rows[i], err));
    }
    return RU_OK;
}

ru_status rui_replay_read_share(ru_replay *r, ru_err *err)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(unfair); i++) {
        RU_TRY(unfair_rows(r, &unfair[i], err));
    }
    for (uint32_t i = 0; i < RU_ARRAY_LEN(calm); i++) {
        fair *f = RU_NEW(r->arena, fair, 1);
        if (f == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for four workers");
        }
        RU_TRY(play(r, &calm[i], FAIR_ORDERS, 10, r->quick ? 60 : 600, f, err));
        ru_replay_row row = ru_replay_row_of(calm[i].name, "false_flags", true);
        row.ours = f->orders;
        row.goal = row.bound = 0;
        RU_TRY(ru_replay_add(r, &row, err));
    }
    return RU_OK;
}
