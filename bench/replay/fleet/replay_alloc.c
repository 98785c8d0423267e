/* Workloads of 160 measured jobs on 16 nodes of four devices: the published simulator's answers
 * per job, then ours beside every baseline. */
#include "bench/replay/fleet/replay_alloc.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "bench/replay/replay_csv.h"

enum { WORKLOADS = 8, SEEDS = 5 };

typedef struct setup {
    const char *dir;
    rui_app apps[RUI_APPS];
    rui_row rows[RUI_ALLOC_JOBS];
    uint32_t n_rows;
    rui_cluster_out out;
} setup;

static ru_status read_workload(ru_replay *r, setup *s, const char *folder, uint32_t number,
                               ru_err *err)
{
    rui_csv csv;
    const char *path = ru_arena_printf(r->arena, "%s/%s/workload-%u.csv", s->dir, folder, number);
    RU_TRY(rui_csv_read(path, r->arena, &csv, err));
    if (csv.n > RUI_ALLOC_JOBS || csv.n_columns != 5) {
        return RU_FAIL(err, RU_E_DATA, "%s: %u jobs (at most %d)", path, csv.n, RUI_ALLOC_JOBS);
    }
    s->n_rows = csv.n;
    for (uint32_t i = 0; i < csv.n; i++) {
        uint32_t app = 0;
        while (app < RUI_APPS && strcmp(s->apps[app].name, rui_csv_text(&csv, i, 2)) != 0) {
            app++;
        }
        double v[] = {rui_csv_f64(&csv, i, 1), rui_csv_f64(&csv, i, 3), rui_csv_f64(&csv, i, 4)};
        if (app == RUI_APPS || !(v[0] >= 0) || !(v[1] >= 1 && v[1] <= 64) || !(v[2] >= 1)) {
            return RU_FAIL(err, RU_E_DATA, "%s: row %u is no job", path, i + 1);
        }
        s->rows[i] = (rui_row){rui_csv_text(&csv, i, 0), v[0], app, (uint32_t)v[1], (uint32_t)v[2]};
    }
    return RU_OK;
}

static rui_cluster_in cluster_of(const setup *s, ru_alloc_method method, uint64_t seed)
{
    return (rui_cluster_in){.apps = s->apps,
                            .rows = s->rows,
                            .n_rows = s->n_rows,
                            .nodes = 16,
                            .devices = 4,
                            .method = method,
                            .restart_s = 30,
                            .interval_s = 60,
                            .power = -1,
                            .hold_s = 240,
                            .decay = 0.25,
                            .told = method == RU_ALLOC_POLLUX,
                            .seed = seed};
}

/* Published completion time of each job. */
static ru_status answers(ru_replay *r, const setup *s, const char *policy, const char *load,
                         uint32_t number, double *jct_s, ru_err *err)
{
    const char *path =
        ru_arena_printf(r->arena, "%s/results-jobload/%s-%s/summary.json", s->dir, policy, load);
    json_t *root = json_load_file(path, 0, NULL);
    const char *name = ru_arena_printf(r->arena, "workload-%u", number);
    const json_t *jobs = json_object_get(json_object_get(root, "jcts"), name);
    ru_status st = RU_OK;
    for (uint32_t i = 0; st == RU_OK && i < s->n_rows; i++) {
        const json_t *v = json_object_get(jobs, s->rows[i].name);
        jct_s[i] = json_number_value(v);
        st = v != NULL ? RU_OK
                       : RU_FAIL(err, RU_E_DATA, "%s: no %s of %s", path, s->rows[i].name, name);
    }
    json_decref(root);
    return st;
}

/* Does the cluster finish each job when the published simulator does? */
static ru_status faithful(ru_replay *r, setup *s, const char *load, ru_alloc_method method,
                          const char *policy, ru_err *err)
{
    double worst = 0, want_all = 0, is_all = 0, near = 0, n = 0, want[RUI_ALLOC_JOBS];
    const char *folder = strcmp(load, "1.0") == 0 ? "workloads" : "workloads-1.5";
    for (uint32_t w = 1; w <= WORKLOADS; w++) {
        RU_TRY(read_workload(r, s, folder, w, err));
        RU_TRY(answers(r, s, policy, load, w, want, err));
        rui_cluster_in in = cluster_of(s, method, 1);
        RU_TRY(rui_cluster_run(&in, &s->out, err));
        double mean = 0;
        for (uint32_t i = 0; i < s->n_rows; i++) {
            mean += want[i] / s->n_rows;
            near += fabs(want[i] - s->out.jct_s[i]) <= 60;
            n++;
        }
        want_all += mean / WORKLOADS;
        is_all += s->out.mean_s / WORKLOADS;
        worst = fmax(worst, 100 * fabs(s->out.mean_s / mean - 1));
    }
    bool tiresias = method == RU_ALLOC_TIRESIAS;
    const char *name = ru_arena_printf(r->arena, "%s, load %s, as published", policy, load);
    ru_replay_row row = ru_replay_row_of(name, "worst_error_of_8_means_percent", true);
    row.ours = worst;
    row.goal = tiresias ? 0.2 : 2;
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(name, "error_of_the_mean_percent", true);
    row.ours = 100 * fabs(is_all / want_all - 1);
    row.goal = tiresias ? 0.2 : 1;
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(name, "jobs_within_60s_percent", false);
    row.ours = 100 * near / n;
    row.goal = tiresias ? 95 : RU_NAN;
    return ru_replay_add(r, &row, err);
}

static ru_status mean_jct(ru_replay *r, setup *s, const char *folder, uint32_t number,
                          rui_cluster_in *set, double *out, ru_err *err)
{
    RU_TRY(read_workload(r, s, folder, number, err));
    set->rows = s->rows;
    set->n_rows = s->n_rows;
    RU_TRY(rui_cluster_run(set, &s->out, err));
    *out = s->out.mean_s;
    return RU_OK;
}

/* One cluster that differs from the usual one. */
typedef struct variant {
    const char *name;
    ru_alloc_method method;
    /* Objective as published; sizes as users chose them; nobody knows what is left. */
    bool published, users, untold;
    double power;
} variant;

static const variant variants[] = {
    {"tiresias", RU_ALLOC_TIRESIAS, false, false, false, -1},
    {"optimus", RU_ALLOC_OPTIMUS, false, false, false, -1},
    {"fifo", RU_ALLOC_FIFO, false, false, false, -1},
    {"srtf", RU_ALLOC_SRTF, false, false, false, -1},
    {"tiresias, users' sizes", RU_ALLOC_TIRESIAS, false, true, false, -1},
    {"optimus, users' sizes", RU_ALLOC_OPTIMUS, false, true, false, -1},
    {"nothing told of what is left", RU_ALLOC_POLLUX, false, false, true, -1},
    {"published objective", RU_ALLOC_POLLUX, true, false, true, -1},
    {"power 0", RU_ALLOC_POLLUX, false, false, false, 0},
    {"power 1", RU_ALLOC_POLLUX, false, false, false, 1}};

static ru_status baselines(ru_replay *r, setup *s, ru_replay_row *row, ru_err *err)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(variants); k++) {
        const variant *v = &variants[k];
        if (r->quick && v->method == RU_ALLOC_POLLUX) {
            continue;
        }
        rui_cluster_in in = cluster_of(s, v->method, 1);
        double mean;
        in.power = v->power;
        in.hold_s = v->published ? 0 : in.hold_s;
        in.decay = v->published ? 0 : in.decay;
        in.told = in.told && !v->untold;
        RU_TRY(mean_jct(r, s, v->users ? "workloads-realistic" : "workloads", 6, &in, &mean, err));
        ru_replay_baseline(r, row, v->name, mean);
    }
    return RU_OK;
}

static ru_status workload_6(ru_replay *r, setup *s, ru_err *err)
{
    ru_replay_row row = ru_replay_row_of("workload-6, restart 30 s", "mean_jct_s", true);
    double sum = 0, low = 1e18, high = 0, makespan = 0;
    uint32_t seeds = r->quick ? 1 : SEEDS;
    for (uint32_t seed = 1; seed <= seeds; seed++) {
        rui_cluster_in in = cluster_of(s, RU_ALLOC_POLLUX, seed);
        double mean;
        in.check = seed == 1;
        RU_TRY(mean_jct(r, s, "workloads", 6, &in, &mean, err));
        sum += mean / seeds;
        low = fmin(low, mean);
        high = fmax(high, mean);
        makespan += s->out.makespan_s / seeds;
    }
    row.ours = sum;
    row.published = 2446.13;
    row.best_known = 2445.78;
    row.goal = 2446;
    row.note = ru_arena_printf(r->arena,
                               "%u seeds: %.0f to %.0f; %u rounds, %.1f devices, %.1f restarts a "
                               "job, makespan %.1f h",
                               seeds, low, high, s->out.rounds, s->out.used,
                               (double)s->out.restarts / s->n_rows, makespan / 3600);
    rui_cluster_out last = s->out;
    RU_TRY(baselines(r, s, &row, err));
    RU_TRY(ru_replay_add(r, &row, err));
    double tiresias = row.baseline[0], optimus = row.baseline[1];
    row = ru_replay_row_of("workload-6, over tiresias", "jct_ratio", true);
    row.ours = sum / tiresias;
    row.published = 0.705;
    row.goal = 0.68;
    row.note = "0.705 is the published simulator's own ratio; the goal is the testbed's";
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of("workload-6, over optimus", "jct_ratio", true);
    row.ours = sum / optimus;
    row.published = 0.461;
    row.goal = 0.52;
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of("workload-6", "round_ms", true);
    row.timed = true;
    row.ours = 1e3 * last.slowest_s;
    row.published = 1000;
    row.goal = 50;
    row.note = ru_arena_printf(r->arena, "the longest; mean %.1f ms, a fit %.2f ms",
                               1e3 * last.mean_round_s, 1e3 * last.fit_s);
    return ru_replay_add(r, &row, err);
}

static ru_status all_workloads(ru_replay *r, setup *s, const char *load, double published,
                               ru_err *err)
{
    double sum = 0, each[WORKLOADS];
    const char *folder = strcmp(load, "1.0") == 0 ? "workloads" : "workloads-1.5";
    for (uint32_t w = 1; w <= WORKLOADS; w++) {
        rui_cluster_in in = cluster_of(s, RU_ALLOC_POLLUX, 1);
        RU_TRY(mean_jct(r, s, folder, w, &in, &each[w - 1], err));
        sum += each[w - 1] / WORKLOADS;
    }
    const char *name = ru_arena_printf(r->arena, "8 workloads, load %s", load);
    ru_replay_row row = ru_replay_row_of(name, "mean_jct_s", true);
    row.ours = sum;
    row.published = published;
    row.goal = published;
    row.note = ru_arena_printf(r->arena, "%.0f, %.0f, %.0f, %.0f, %.0f, %.0f, %.0f, %.0f", each[0],
                               each[1], each[2], each[3], each[4], each[5], each[6], each[7]);
    RU_TRY(ru_replay_add(r, &row, err));
    if (strcmp(load, "1.0") != 0) {
        return RU_OK;
    }
    /* `hold` and `decay` were chosen on workloads 5 and 6. */
    row = ru_replay_row_of("8 workloads, load 1.0, without 5 and 6", "mean_jct_s", true);
    row.ours = (sum * WORKLOADS - each[4] - each[5]) / (WORKLOADS - 2);
    row.published = 2814.87;
    row.goal = row.published;
    row.note = "nothing was chosen on these six";
    return ru_replay_add(r, &row, err);
}

/* A part of the replay takes minutes: only those that are asked for run. */
static bool asked(const ru_replay *r, const char *part)
{
    return strstr(part, r->only) != NULL;
}

/* Other rounds, restarts and links; 0.3 s is what a live job that is resized in place pauses. */
static ru_status settings(ru_replay *r, setup *s, ru_err *err)
{
    static const struct {
        const char *name;
        double restart_s, interval_s, slowed, published, goal;
        bool share_links, at_once;
    } all[] = {
        {"workload-6, restart 5 s", 5, 60, 0, 2446.13, 2250, false, false},
        {"workload-6, restart 5 s, round 30 s", 5, 30, 0, 2463.92, 2208.33, false, false},
        {"workload-6, restart 0.3 s, round 30 s", 0.3, 30, 0, 2463.92, 1950, false, false},
        {"workload-6, a round at each arrival", 30, 60, 0, 2446.13, 2446.13, false, true},
        {"workload-6, shared links lose 50 %", 30, 60, 0.5, 2446.13, 2446.13, false, false},
        {"workload-6, the same without avoidance", 30, 60, 0.5, 3456.98, 3456.98, true, false}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(all); k++) {
        if (!asked(r, all[k].name)) {
            continue;
        }
        rui_cluster_in in = cluster_of(s, RU_ALLOC_POLLUX, 1);
        ru_replay_row row = ru_replay_row_of(all[k].name, "mean_jct_s", true);
        in.restart_s = all[k].restart_s;
        in.interval_s = all[k].interval_s;
        in.slowed = all[k].slowed;
        in.share_links = all[k].share_links;
        in.at_once = all[k].at_once;
        RU_TRY(mean_jct(r, s, "workloads", 6, &in, &row.ours, err));
        row.published = all[k].published;
        row.goal = all[k].goal;
        RU_TRY(ru_replay_add(r, &row, err));
    }
    return RU_OK;
}

static ru_status published_answers(ru_replay *r, setup *s, ru_err *err)
{
    RU_TRY(faithful(r, s, "1.0", RU_ALLOC_TIRESIAS, "tiresias", err));
    RU_TRY(faithful(r, s, "1.5", RU_ALLOC_TIRESIAS, "tiresias", err));
    RU_TRY(faithful(r, s, "1.0", RU_ALLOC_OPTIMUS, "optimus", err));
    return faithful(r, s, "1.5", RU_ALLOC_OPTIMUS, "optimus", err);
}

ru_status rui_replay_alloc(ru_replay *r, ru_err *err)
{
    const char *dir = ru_replay_data(r, "pollux");
    setup *s = RU_NEW(r->arena, setup, 1);
    if (asked(r, "64 devices, 50 jobs|640 devices, 500 jobs|8000 devices, 5000 jobs")) {
        if (!ru_replay_have(r, "rounds")) {
            RU_TRY(rui_replay_alloc_rounds(r, err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    if (dir == NULL) {
        return RU_OK;
    }
    if (s == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for workloads");
    }
    s->dir = dir;
    RU_TRY(rui_apps_read(r, dir, s->apps, err));
    if (asked(r, "goodput of 1 to 16 replicas|best batch of an allocation|bert, 720 rows|cifar10, "
                 "1512 rows|ncf, 2119 rows|imagenet, 1152 rows|deepspeech2, 952 rows|yolov3, 648 "
                 "rows")) {
        if (!ru_replay_have(r, "fits")) {
            RU_TRY(rui_replay_alloc_fits(r, s->apps, err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    if (asked(
            r,
            "imagenet, against throughput where time costs 4 nodes|imagenet, against all nodes at "
            "once")) {
        if (!ru_replay_have(r, "scales")) {
            RU_TRY(rui_replay_alloc_scales(r, s->apps, err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    if (asked(r, "tiresias, load 1.0, as published|tiresias, load 1.5, as published|optimus, load "
                 "1.0, as published|optimus, load 1.5, as published")) {
        if (!ru_replay_have(r, "published")) {
            RU_TRY(published_answers(r, s, err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    if (asked(r, "workload-6, restart 30 s|workload-6, over tiresias|workload-6, over optimus")) {
        if (!ru_replay_have(r, "workload 6")) {
            RU_TRY(workload_6(r, s, err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    if (!r->quick && asked(r, "8 workloads, load 1.0")) {
        if (!ru_replay_have(r, "workloads, load 1.0")) {
            RU_TRY(all_workloads(r, s, "1.0", 2751.13, err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    if (!r->quick && asked(r, "8 workloads, load 1.5")) {
        if (!ru_replay_have(r, "workloads, load 1.5")) {
            RU_TRY(all_workloads(r, s, "1.5", 3685.41, err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    return !r->quick && asked(r, "workload-6, restart 5 s, round 30 s|workload-6, restart 0.3 s, "
                                 "round 30 s|workload-6, a round at each "
                                 "arrival|workload-6, shared links lose 50 %|workload-6, the same "
                                 "without avoidance")
               ? settings(r, s, err)
               : RU_OK;
}
