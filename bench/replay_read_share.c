/* Workers of a synchronous job at one storage: who gets how much, how long all wait at the barrier,
 * and flags while nothing is unfair. A coordinator runs the policy once a second. */
#include <math.h>

#include "bench/replay_read.h"
#include "plan/read_share.h"

#define MIB 1048576.0

enum { WORKERS = 4 };

typedef struct fair_case {
    const char *name;
    rui_store_spec store;
    uint32_t depth[WORKERS];
    double batch_bytes, step_s; /* of a worker; computing */
    double slow;                /* worker 0 computes so many times as long */
    int64_t room_bytes;         /* of a reader's buffer */
} fair_case;

typedef struct fair {
    const fair_case *c;
    ru_sim *sim;
    ru_arena *arena;
    rui_store store;
    rui_reader reader[WORKERS];
    ru_read_share_method method;
    double taken[WORKERS];   /* bytes consumed */
    double ready_s[WORKERS]; /* 0: waits for data; when it had its batch in this step */
    double stall_s[WORKERS], late_s[WORKERS]; /* of the window */
    uint64_t before[WORKERS];                 /* delivered at the window's begin */
    double full_s[WORKERS];                   /* no room, of the window */
    double begun_s, capacity;
    uint32_t windows, flags, n_ready, window;
    bool repairs, computing;
    double barrier_s;  /* waits at barriers since `steps` is counted */
    double jain[1024]; /* by second */
    double steps;
    ru_status status;
    ru_err err;
} fair;

static double now_s(const fair *f)
{
    return 1e-9 * (double)ru_sim_now(f->sim).ns;
}

static void later(fair *f, double s, ru_sim_fn fn, uint64_t arg)
{
    (void)ru_sim_at(f->sim, (ru_time){ru_sim_now(f->sim).ns + (int64_t)(s * 1e9)}, fn, f, arg);
}

static void computed(void *self, uint64_t unused);

/* All have their batches: who came first waited for the last. */
static void barrier(fair *f)
{
    double first = (double)INFINITY, last = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        first = fmin(first, f->ready_s[i]);
        last = fmax(last, f->ready_s[i]);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        f->barrier_s += last - f->ready_s[i];
        f->late_s[i] += f->ready_s[i] - first;
        f->stall_s[i] += f->ready_s[i] - f->begun_s;
    }
    f->computing = true;
    later(f, f->c->step_s * f->c->slow, computed, 0);
}

static void look(fair *f, uint32_t i)
{
    bool has = (double)f->reader[i].delivered_bytes >= f->taken[i] + f->c->batch_bytes;
    if (f->computing || f->ready_s[i] > 0 || !has) {
        return;
    }
    f->ready_s[i] = now_s(f);
    if (++f->n_ready == WORKERS) {
        barrier(f);
    }
}

static void computed(void *self, uint64_t unused)
{
    (void)unused;
    fair *f = self;
    f->steps++;
    f->computing = false;
    f->n_ready = 0;
    f->begun_s = now_s(f);
    for (uint32_t i = 0; i < WORKERS; i++) {
        rui_reader *r = &f->reader[i];
        f->ready_s[i] = 0;
        f->taken[i] += f->c->batch_bytes;
        r->room_bytes += (int64_t)f->c->batch_bytes;
        rui_reader_go(r);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        look(f, i);
    }
}

static void delivered(void *self, int64_t issued_ns, int64_t bytes)
{
    (void)issued_ns;
    (void)bytes;
    fair *f = self;
    for (uint32_t i = 0; i < WORKERS; i++) {
        look(f, i);
    }
}

/* Buffers are looked at a hundred times a second. */
static void sample(void *self, uint64_t unused)
{
    (void)unused;
    fair *f = self;
    for (uint32_t i = 0; i < WORKERS; i++) {
        f->full_s[i] += f->reader[i].room_bytes <= 0 ? 0.01 : 0;
    }
    later(f, 0.01, sample, 0);
}

static void coordinate(void *self, uint64_t unused)
{
    (void)unused;
    fair *f = self;
    ru_read_worker w[WORKERS];
    double all = 0, need = f->c->batch_bytes / f->c->step_s / f->c->slow;
    for (uint32_t i = 0; i < WORKERS; i++) {
        rui_reader *r = &f->reader[i];
        double bytes = (double)(r->delivered_bytes - f->before[i]);
        double waits = f->ready_s[i] == 0 && !f->computing ? now_s(f) - f->begun_s : 0;
        double open = fmax(1 - f->full_s[i], 0.02);
        all += bytes;
        w[i] =
            (ru_read_worker){need, fmax(bytes / open, 1), (double)r->depth * (double)r->size_bytes,
                             fmin(f->stall_s[i] + waits, 1), fmin(f->late_s[i] + waits, 1)};
        f->before[i] = r->delivered_bytes;
        f->stall_s[i] = f->late_s[i] = f->full_s[i] = 0;
    }
    f->capacity = fmax(f->capacity, all);
    const ru_read_share_in in = {f->method, w, WORKERS, 1, f->capacity, f->windows, f->repairs};
    ru_read_share_plan p;
    ru_arena_mark m = ru_arena_mark_get(f->arena);
    f->status = ru_plan_read_share(&in, f->arena, &p, &f->err);
    f->status = f->status == RU_OK ? ru_plan_read_share_check(&in, &p, &f->err) : f->status;
    if (f->status != RU_OK) {
        ru_sim_stop(f->sim);
        return;
    }
    f->windows = p.windows;
    f->repairs = p.repairs;
    f->flags += p.flagged ? 1 : 0;
    f->jain[f->window++ % RU_ARRAY_LEN(f->jain)] = p.jain;
    for (uint32_t i = 0; i < WORKERS; i++) {
        rui_reader *r = &f->reader[i];
        r->depth = (uint32_t)fmax(round(p.outstanding_bytes[i] / (double)r->size_bytes), 1);
        rui_reader_go(r);
    }
    ru_arena_rewind(f->arena, m);
    later(f, 1, coordinate, 0);
}

static void forget(void *self, uint64_t unused)
{
    (void)unused;
    fair *f = self;
    f->barrier_s = 0;
    f->steps = 0;
}

static ru_status play(ru_replay *r, const fair_case *c, ru_read_share_method method, double from_s,
                      double to_s, fair *f, ru_err *err)
{
    *f = (fair){.c = c, .arena = r->arena, .method = method};
    const ru_sim_options opt = {.seed = 3};
    const rui_records whole = {0, 0};
    RU_TRY(ru_sim_open(&opt, &f->sim, err));
    rui_store_open(&f->store, &c->store, f->sim, 3);
    for (uint32_t i = 0; i < WORKERS; i++) {
        rui_reader_open(&f->reader[i], &f->store, &whole, i, r->arena);
        f->reader[i].size_bytes = 131072;
        f->reader[i].depth = c->depth[i];
        f->reader[i].room_bytes = c->room_bytes;
        f->reader[i].done = delivered;
        f->reader[i].self = f;
        rui_reader_go(&f->reader[i]);
    }
    later(f, 0.01, sample, 0);
    later(f, 1, coordinate, 0);
    later(f, from_s, forget, 0);
    ru_status st = ru_sim_run(f->sim, (ru_time){(int64_t)(to_s * 1e9)}, err);
    ru_sim_close(f->sim);
    RU_TRY(st);
    if (f->status != RU_OK) {
        *err = f->err;
    }
    return f->status;
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
    static const char *const names[] = {"balance", "none", "equal"};
    fair *f = RU_NEW(r->arena, fair, 3);
    if (f == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for four workers");
    }
    for (uint32_t k = 0; k < 3; k++) {
        RU_TRY(play(r, c, (ru_read_share_method)k, 10, 40, &f[k], err));
    }
    double wait[3], rate[3];
    for (uint32_t k = 0; k < 3; k++) {
        rate[k] = 0;
        wait[k] = f[k].barrier_s / fmax(f[k].steps, 1);
        for (uint32_t i = 0; i < WORKERS; i++) {
            rate[k] += (double)f[k].reader[i].delivered_bytes;
        }
    }
    ru_replay_row rows[3] = {ru_replay_row_of(c->name, "jain_after_10_s", false),
                             ru_replay_row_of(c->name, "barrier_wait_less_by", false),
                             ru_replay_row_of(c->name, "delivered_over_none", false)};
    rows[0].ours = f[0].jain[10];
    rows[0].goal = 0.98;
    rows[0].bound = 1;
    rows[1].ours = wait[1] / fmax(wait[0], 1e-6);
    rows[1].goal = 5;
    rows[2].ours = rate[0] / rate[1];
    rows[2].goal = 0.97;
    for (uint32_t k = 1; k < 3; k++) {
        ru_replay_baseline(r, &rows[0], names[k], f[k].jain[10]);
        ru_replay_baseline(r, &rows[1], names[k], wait[1] / fmax(wait[k], 1e-6));
        ru_replay_baseline(r, &rows[2], names[k], rate[k] / rate[1]);
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
        RU_TRY(play(r, &calm[i], RU_READ_SHARE_BALANCE, 10, r->quick ? 60 : 600, f, err));
        ru_replay_row row = ru_replay_row_of(calm[i].name, "false_flags", true);
        row.ours = f->flags;
        row.goal = row.bound = 0;
        RU_TRY(ru_replay_add(r, &row, err));
    }
    return RU_OK;
}
