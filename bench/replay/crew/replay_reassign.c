/* Work that changes hands under four patterns of slowness: run time over that of work spread
 * freely at all times, over seeds. Workers are the step machines of train/tasks in the simulator,
 * with 8 ms for every message, to the servers as well; helpers look at messages every 1 % of a
 * clock. Every run checks that each clock applies each item once. Settings were chosen on seeds
 * from 1000 on, which are not reported. */
#include <math.h>

#include "bench/replay/crew/replay_reassign_fleet.h"
#include "bench/replay/replay.h"

enum { WORKERS = 64, CLOCKS = 12, ITEMS = 1000, LATENCY_NS = 8 * 1000 * 1000, SEEDS = 20 };

typedef struct rival {
    const char *name;
    ru_reassign_method method;
    uint32_t backup;
} rival;

/* Backup workers: the best number of each pattern is reported. */
static const rival rivals[] = {
    {"sticky", RU_REASSIGN_STICKY, 0},  {"flexrr", RU_REASSIGN_FLEXRR, 0},
    {"slices", RU_REASSIGN_SLICES, 0},  {"steal", RU_REASSIGN_STEAL, 0},
    {"ssp3", RU_REASSIGN_SSP3, 0},      {"ssp1", RU_REASSIGN_SSP1, 0},
    {"bsp", RU_REASSIGN_BSP, 0},        {"static", RU_REASSIGN_STATIC, 0},
    {"backup", RU_REASSIGN_BACKUP, 1},  {"backup", RU_REASSIGN_BACKUP, 2},
    {"backup", RU_REASSIGN_BACKUP, 4},  {"backup", RU_REASSIGN_BACKUP, 8},
    {"backup", RU_REASSIGN_BACKUP, 16}, {"backup", RU_REASSIGN_BACKUP, 32},
};
enum { RIVALS = RU_ARRAY_LEN(rivals) };

typedef struct totals {
    double mean[RIVALS], worst[RIVALS], messages, moved;
} totals;

static ru_status run_one(ru_replay *r, const rui_fleet_trace *t, const rival *v, rui_fleet_out *o,
                         ru_err *err)
{
    const rui_fleet_in in = {.trace = t,
                             .policy = {.n = t->workers,
                                        .items = ITEMS,
                                        .tail = 0.75,
                                        .slack_max = 1,
                                        .backup = v->backup,
                                        .rtt_ns = 2 * LATENCY_NS,
                                        .method = v->method},
                             .items = ITEMS,
                             .clocks = CLOCKS,
                             .latency_ns = LATENCY_NS};
    return rui_fleet_run(&in, r->arena, o, err);
}

static ru_status run_pattern(ru_replay *r, rui_fleet_pattern p, uint32_t workers, uint32_t seeds,
                             uint32_t n_rivals, totals *all, ru_err *err)
{
    for (uint32_t s = 0; s < seeds; s++) {
        ru_arena_mark mark = ru_arena_mark_get(r->arena);
        rui_fleet_trace t;
        RU_TRY(rui_fleet_trace_make(p, workers, CLOCKS, s, r->arena, &t, err));
        double ideal = rui_fleet_ideal_s(&t, (double)workers * CLOCKS * 1e9);
        for (uint32_t v = 0; v < n_rivals; v++) {
            ru_arena_mark inner = ru_arena_mark_get(r->arena);
            rui_fleet_out o;
            RU_TRY(run_one(r, &t, &rivals[v], &o, err));
            all->mean[v] += o.took_s / ideal / seeds;
            all->worst[v] = fmax(all->worst[v], o.took_s / ideal);
            double clocks = (double)seeds * workers * CLOCKS;
            all->messages += v == 0 ? (double)o.messages / clocks : 0;
            all->moved += v == 0 ? (double)o.reassigned / clocks / ITEMS : 0;
            ru_arena_rewind(r->arena, inner);
        }
        ru_arena_rewind(r->arena, mark);
    }
    return RU_OK;
}

static void add_rivals(ru_replay *r, ru_replay_row *row, const double *value)
{
    double backup = INFINITY;
    for (uint32_t v = 1; v < RIVALS; v++) {
        if (rivals[v].method == RU_REASSIGN_BACKUP) {
            backup = fmin(backup, value[v]);
        } else {
            ru_replay_baseline(r, row, rivals[v].name, value[v]);
        }
    }
    ru_replay_baseline(r, row, "backup", backup);
}

static ru_status add(ru_replay *r, const char *name, const double *value, double known, double goal,
                     const char *note, ru_err *err)
{
    ru_replay_row row = ru_replay_row_of(name, "time over ideal", true);
    row.ours = value[0];
    row.best_known = known;
    row.bound = 1;
    row.goal = goal;
    row.note = note;
    add_rivals(r, &row, value);
    return ru_replay_add(r, &row, err);
}

/* Ten times the workers of the reference. */
static ru_status add_large(ru_replay *r, ru_err *err)
{
    totals t = {0};
    RU_TRY(run_pattern(r, RUI_FLEET_SLOW, 10 * WORKERS, 1, 1, &t, err));
    ru_replay_row row = ru_replay_row_of("slow, 640 workers, 1 seed", "time over ideal", true);
    row.ours = t.mean[0];
    row.bound = 1;
    row.goal = 1.06;
    RU_TRY(ru_replay_add(r, &row, err));
    return RU_OK;
}

ru_status rui_replay_reassign(ru_replay *r, ru_err *err)
{
    static const char *const names[] = {"slow", "disrupted", "power law", "half at half speed"};
    /* A prototype's figures with free servers, one seed, slack 1 and slices of 2.5 to 5 %. */
    static const double known[] = {1.024, 1.040, 1.023, 1.056};
    double mean[RIVALS] = {0}, worst[RIVALS] = {0}, seed[RIVALS] = {0};
    uint32_t seeds = r->quick ? 1 : SEEDS;
    for (uint32_t p = 0; p < RUI_FLEET_PATTERNS; p++) {
        totals t = {0};
        RU_TRY(run_pattern(r, (rui_fleet_pattern)p, WORKERS, seeds, RIVALS, &t, err));
        for (uint32_t v = 0; v < RIVALS; v++) {
            mean[v] += t.mean[v] / RUI_FLEET_PATTERNS;
            worst[v] = fmax(worst[v], t.mean[v]);
            seed[v] = fmax(seed[v], t.worst[v]);
        }
        char note[96];
        ru_text text = ru_text_into(note, sizeof note);
        ru_text_putf(&text, "%.0f messages and %.1f %% of the items handed over for each clock",
                     t.messages, 100 * t.moved);
        RU_TRY(add(r, names[p], t.mean, known[p], RU_NAN, note, err));
    }
    RU_TRY(add(r, "mean of the patterns", mean, 1.036, 1.04, "stretch goal 1.02", err));
    RU_TRY(add(r, "worst pattern", worst, 1.056, 1.06, NULL, err));
    RU_TRY(add(r, "worst pattern and seed", seed, RU_NAN, RU_NAN, NULL, err));
    return add_large(r, err);
}
