/* Placed steps of models with branches, on two and four workers with unequal quotas of a core, each
 * on a host of its own in the network laboratory, behind links of 50, 200 and 1000 Mbit/s.
 *
 * `rubato profile` measures each model under every quota, and `rubato plan JOB place` places its
 * layers by these facts, with each method. A round runs their placements in turns:
 *
 *   placed    Rubato's own plan: what all others stand beside
 *   single    one worker, that with the largest quota
 *   expert    consecutive layers, cut by measured times; of two towers one a worker
 *   m-ETF, HEFT
 *
 * A figure is the median step of all but the first ones. Methods with the same placement share its
 * runs, and a placement on one worker is that of `single`. The step that the plan predicted stands
 * beside the measured one. */
#include "bench/train/placed.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "bench/lab_run.h"
#include "env/file/file.h"

enum { ROUNDS = 3, STEPS_MAX = 32, SKIPPED = 2 };

#define PAYLOAD 0.956 /* of a link's rate */

static const int64_t branches[] = {224, 160, 160, 96};

static const struct net {
    const char *name;
    const int64_t *widths; /* [n_widths] of branches; none: two towers */
    uint32_t n_widths;
    const char *zoo; /* a chain in place of both; NULL: none */
    int batch;
} nets[] = {
    {"branches", branches, RU_ARRAY_LEN(branches), NULL, 32},
    {"towers", NULL, 0, NULL, 32},
    {"gpt", NULL, 0,
     "{zoo: gpt, layers: 2, heads: 8, width: 512, context: 64, vocab: 256, tie: false}", 4},
};

static const struct place {
    const char *name, *rate,
        *burst; /* about 1 ms of the rate: a piece is not let through at once */
    double bit_per_s;
    uint32_t workers;
    const char *quota[RU_LAB_WORKERS_MAX]; /* the largest first */
} places[] = {
    {"2 workers, 50 Mbit/s", "50mbit", "8kb", 50e6, 2, {"60", "40"}},
    {"2 workers, 200 Mbit/s", "200mbit", "32kb", 200e6, 2, {"60", "40"}},
    {"2 workers, 1 Gbit/s", "1gbit", "128kb", 1e9, 2, {"60", "40"}},
    {"4 workers, 50 Mbit/s", "50mbit", "8kb", 50e6, 4, {"60", "40", "30", "20"}},
    {"4 workers, 200 Mbit/s", "200mbit", "32kb", 200e6, 4, {"60", "40", "30", "20"}},
    {"4 workers, 1 Gbit/s", "1gbit", "128kb", 1e9, 4, {"60", "40", "30", "20"}},
};

static const char *const quotas[] = {"60", "40", "30", "20"};

typedef enum side { PLACED, SINGLE, EXPERT, ETF, HEFT, SIDES } side;

static const char *const side_names[SIDES] = {"placed", "single", "expert", "m-ETF", "HEFT"};
static const char *const methods[SIDES] = {"search", "single", "split", "etf", "heft"};
static const char *const row_names[SIDES] = {"predicted step, error", "over single", "over expert",
                                             "over m-ETF", "over HEFT"};
static const double goals[SIDES] = {[PLACED] = 10, [SINGLE] = 0.98, [HEFT] = 0.98};
/* Of the means over all cases with room: those whose shortest step, by the plan's bound, is at most
 * three quarters of the baseline's. */
static const double mean_goals[SIDES] = {[EXPERT] = 0.85, [ETF] = 0.77};

enum { CASES_MAX = 18 };

/* What a method says. */
typedef struct answer {
    const char *devices;                    /* as train.placed.devices; "": one worker */
    const char *quotas[RU_LAB_WORKERS_MAX]; /* of the workers, the leader first */
    uint32_t workers;
    double predicted_s, bound_s;
} answer;

typedef struct bench_placed {
    ru_lab_run lab;
    double errors[CASES_MAX]; /* [n_errors] percent */
    uint32_t n_errors;
    double parts[SIDES][CASES_MAX]; /* [n_parts] of a baseline's step, of cases with room */
    uint32_t n_parts[SIDES];
} bench_placed;

typedef struct job {
    const struct net *n;
    const struct place *at;
    bool wants[SIDES];
    answer answers[SIDES];
    double steps_s[SIDES][ROUNDS];
} job;

/* -- plans ---------------------------------------------------------------------------------------
 */

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for the words of the benchmark");
}

static ru_status put_job(const bench_placed *t, const struct net *n, const char *more,
                         const char **yaml, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const char *model =
        n->zoo != NULL ? n->zoo : ru_arena_printf(a, "{onnx: %s/%s.onnx}", t->lab.dir, n->name);
    const char *train =
        ru_arena_printf(a, "batch: %d, steps: %d%s", n->batch, t->lab.b->quick ? 6 : 8, more);
    const char *data = n->zoo != NULL
                           ? "{format: tokens, train: [@text/train.txt], token_bytes: 1, "
                             "context: 64}"
                           : "{format: npy, train: [@noise/train-x.npy, @noise/train-y.npy]}";
    return model == NULL || train == NULL
               ? full(err)
               : ru_lab_run_job(&t->lab, n->name, model, data, train, yaml, err);
}

static ru_status profile(const bench_placed *t, const struct net *n, const char **facts,
                         ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const char *yaml, *model = ru_arena_printf(a, "%s/%s.onnx", t->lab.dir, n->name);
    *facts = ru_arena_printf(a, "%s/%s-facts.json", t->lab.dir, n->name);
    if (model == NULL || *facts == NULL) {
        return full(err);
    }
    const rui_placed_net_shape shape = {.widths = n->widths, .n = n->n_widths};
    RU_TRY(n->zoo == NULL ? rui_placed_net(&shape, model, a, err) : RU_OK);
    RU_TRY(put_job(t, n, "", &yaml, err));
    return ru_lab_run_profile(&t->lab, yaml, NULL, quotas, RU_ARRAY_LEN(quotas), *facts, err);
}

static ru_status put_cluster(const bench_placed *t, const struct place *at, const char **path,
                             ru_err *err)
{
    ru_text y = ru_text_arena(t->lab.b->arena);
    *path = ru_path_join(t->lab.b->arena, t->lab.dir, "cluster.yaml");
    ru_text_put(&y, "hosts:\n");
    for (uint32_t k = 0; k < at->workers; k++) {
        ru_text_putf(&y, "- {name: h%u, cores: 1, net_bytes_per_s: %.6g}\n", k,
                     PAYLOAD * at->bit_per_s / 8);
    }
    ru_text_put(&y, "devices:\n");
    for (uint32_t k = 0; k < at->workers; k++) {
        ru_text_putf(&y, "- {name: d%u, host: h%u, type: cpu%s}\n", k, k, at->quota[k]);
    }
    return y.cut || *path == NULL ? full(err) : ru_file_replace(*path, y.p, y.n, err);
}

/* Units [n] by start, on hosts [n] of the cluster. The worker that leads has the last unit of the
 * model; the others follow in the order of their devices. */
static ru_status take(const struct place *at, const char *const *units, const uint32_t *hosts,
                      uint32_t n, uint32_t last, ru_arena *a, answer *out, ru_err *err)
{
    uint32_t device[RU_LAB_WORKERS_MAX] = {0};
    bool used[RU_LAB_WORKERS_MAX] = {false};
    ru_text t = ru_text_arena(a);
    RU_CHECK(last < at->workers && at->workers <= RU_LAB_WORKERS_MAX);
    for (uint32_t k = 0; k < n; k++) {
        used[hosts[k]] = true;
    }
    out->workers = 1;
    out->quotas[0] = at->quota[last];
    uint32_t devices = 0;
    for (uint32_t h = 0; h < at->workers; h++) {
        device[h] = used[h] ? ++devices : 0;
        if (used[h] && h != last) {
            out->quotas[out->workers++] = at->quota[h];
        }
    }
    for (uint32_t k = 0; k < n && out->workers > 1; k++) {
        ru_text_putf(&t, "%s%s: %u", k > 0 ? ", " : "", units[k], device[hosts[k]]);
    }
    out->devices = out->workers > 1 ? t.p : "";
    return t.cut ? full(err) : RU_OK;
}

enum { UNITS_MAX = 256 };

static ru_status read_plan(const char *said, const struct place *at, ru_arena *a, answer *out,
                           ru_err *err)
{
    json_t *root = said != NULL ? json_loads(said, 0, NULL) : NULL, *op;
    json_t *order = json_object_get(json_object_get(root, "tables"), "order");
    json_t *predicted = json_object_get(root, "predicted");
    json_t *of_op = json_object_get(json_object_get(root, "decision"), "device_of_op");
    const char *units[UNITS_MAX];
    uint32_t hosts[UNITS_MAX], n = 0;
    size_t k, half = json_array_size(of_op) / 2; /* the others are the units backward */
    out->predicted_s = json_number_value(json_object_get(predicted, "step_s"));
    out->bound_s = json_number_value(json_object_get(predicted, "bound_s"));
    json_array_foreach(order, k, op)
    {
        const char *name = json_string_value(json_object_get(op, "op"));
        const char *host = json_string_value(json_object_get(op, "device"));
        size_t len = name != NULL ? strlen(name) : 0;
        bool back = len > 5 && strcmp(name + len - 5, " back") == 0;
        if (name != NULL && host != NULL && !back && n < UNITS_MAX && host[1] >= '0' &&
            host[1] < '0' + (int)at->workers) {
            units[n] = ru_arena_str(a, name);
            hosts[n++] = (uint32_t)(host[1] - '0');
        }
    }
    uint32_t last = half > 0 ? (uint32_t)json_integer_value(json_array_get(of_op, half - 1)) : 0;
    bool whole = root != NULL && n == half && n > 0 && last < at->workers && out->predicted_s > 0;
    json_decref(root);
    return whole ? take(at, units, hosts, n, last, a, out, err)
                 : RU_FAIL(err, RU_E_PEER, "rubato plan place said no placement");
}

/* Of two towers an expert puts one on each of the two largest workers. */
static void by_hand(const struct place *at, answer *x)
{
    *x = (answer){
        .devices = "a: 1, b: 2, head: 1", .quotas = {at->quota[0], at->quota[1]}, .workers = 2};
}

static ru_status plan(const bench_placed *t, job *j, const char *facts, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const char *cluster, *yaml;
    RU_TRY(put_cluster(t, j->at, &cluster, err));
    RU_TRY(put_job(t, j->n, "", &yaml, err));
    for (uint32_t s = 0; s < SIDES; s++) {
        const char *said = NULL;
        const char *argv[] = {t->lab.self, "plan", yaml,       "place",    "--cluster", cluster,
                              "--facts",   facts,  "--method", methods[s], "--json",    NULL};
        if (!j->wants[s]) {
            continue;
        }
        if (s == EXPERT && j->n->n_widths == 0 && j->n->zoo == NULL) {
            by_hand(j->at, &j->answers[s]);
            continue;
        }
        RU_TRY(ru_lab_run_command(&t->lab, argv, &said, err));
        RU_TRY(read_plan(said, j->at, a, &j->answers[s], err));
    }
    return RU_OK;
}

/* -- runs ----------------------------------------------------------------------------------------
 */

static ru_status run_side(const bench_placed *t, const job *j, side s, double *step_s, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const answer *x = &j->answers[s];
    const char *const up[] = {"--rate", j->at->rate, "--burst", j->at->burst, NULL};
    const char *yaml, *out = ru_path_join(a, t->lab.dir, "run");
    const char *keys =
        x->workers > 1
            ? ru_arena_printf(a, ", parallel: placed, placed: {devices: {%s}}", x->devices)
            : "";
    double seconds[STEPS_MAX];
    uint32_t n;
    ru_lab_scene scene = {.workers = x->workers, .up = up};
    memcpy(scene.quota, x->quotas, sizeof scene.quota);
    if (out == NULL || keys == NULL) {
        return full(err);
    }
    RU_TRY(put_job(t, j->n, keys, &yaml, err));
    RU_TRY(ru_lab_run_scene(&t->lab, &scene, yaml, out, NULL, err));
    RU_TRY(ru_lab_run_steps(&t->lab, out, seconds, STEPS_MAX, &n, err));
    if (n <= SKIPPED) {
        return RU_FAIL(err, RU_E_PEER, "%s made %u steps only", side_names[s], n);
    }
    *step_s = ru_bench_stat_of(seconds + SKIPPED, n - SKIPPED).median;
    fprintf(stderr, "  %-7s %8.1f ms a step", side_names[s], 1e3 * *step_s);
    if (x->predicted_s > 0) { /* not by hand */
        fprintf(stderr, " (predicted %.1f)", 1e3 * x->predicted_s);
    }
    fputc('\n', stderr);
    return RU_OK;
}

/* Devices have the numbers of those that are used, so that their quotas count, too. */
static bool same(const answer *x, const answer *y)
{
    bool is = x->workers == y->workers && strcmp(x->devices, y->devices) == 0;
    RU_CHECK(x->workers <= RU_LAB_WORKERS_MAX);
    for (uint32_t k = 0; k < x->workers; k++) {
        is = is && x->quotas[k] == y->quotas[k];
    }
    return is;
}

/* An earlier side with the same placement; s: there is none. */
static side like(const job *j, side s)
{
    uint32_t k = 0;
    while (k < s && !(j->wants[k] && same(&j->answers[k], &j->answers[s]))) {
        k++;
    }
    return (side)k;
}

/* -- rows ----------------------------------------------------------------------------------------
 */

static const char row_errors[] = "predicted steps, median error";

static const char *row_name(const ru_bench *b, const job *j, side s)
{
    const char *name =
        ru_arena_printf(b->arena, "%s, %s: %s", j->n->name, j->at->name, row_names[s]);
    return name != NULL ? name : "";
}

/* Which sides do the wanted rows need? false: none. */
static bool wanted(const ru_bench *b, job *j)
{
    j->wants[PLACED] = ru_bench_wants(b, row_errors);
    for (uint32_t s = 0; s < SIDES; s++) {
        if (ru_bench_wants(b, row_name(b, j, (side)s))) {
            j->wants[s] = j->wants[PLACED] = true;
        }
    }
    return j->wants[PLACED];
}

static ru_status add_rows(bench_placed *t, const job *j, uint32_t rounds, ru_err *err)
{
    ru_bench_stat stats[SIDES];
    for (uint32_t s = 0; s < SIDES; s++) {
        double ms[ROUNDS];
        for (uint32_t k = 0; k < rounds && j->wants[s]; k++) {
            ms[k] = 1e3 * j->steps_s[s][k];
        }
        stats[s] = j->wants[s] ? ru_bench_stat_of(ms, rounds) : (ru_bench_stat){0};
    }
    const answer *x = &j->answers[PLACED];
    double error = 100 * fabs(1e3 * x->predicted_s / stats[PLACED].median - 1);
    t->errors[t->n_errors++] = error;
    for (uint32_t s = 0; s < SIDES; s++) {
        if (j->wants[s] && 1e3 * x->bound_s <= 0.75 * stats[s].median) {
            t->parts[s][t->n_parts[s]++] = stats[PLACED].median / stats[s].median;
        }
        ru_bench_row row = {.name = row_name(t->lab.b, j, (side)s),
                            .unit = s == PLACED ? "%" : "ms",
                            .lower = true,
                            .ours = s == PLACED ? ru_bench_stat_of(&error, 1) : stats[PLACED],
                            .goal = goals[s]};
        if (s != PLACED) {
            row.theirs = stats[s];
            row.peer = side_names[s];
        }
        if (j->wants[s] && ru_bench_wants(t->lab.b, row.name)) {
            RU_TRY(ru_bench_add(t->lab.b, &row, err));
        }
    }
    return RU_OK;
}

static ru_status add_mean(bench_placed *t, side s, ru_err *err)
{
    double mean = 0;
    for (uint32_t k = 0; k < t->n_parts[s]; k++) {
        mean += t->parts[s][k] / t->n_parts[s];
    }
    const ru_bench_row row = {.name = ru_arena_printf(t->lab.b->arena,
                                                      "mean step, of %s's, %u cases with room",
                                                      side_names[s], t->n_parts[s]),
                              .unit = "",
                              .lower = true,
                              .ours = ru_bench_stat_of(&mean, 1),
                              .goal = mean_goals[s]};
    if (row.name == NULL) {
        return full(err);
    }
    return ru_bench_add(t->lab.b, &row, err); /* of the cases that ran */
}

static ru_status run_job(bench_placed *t, job *j, const char *facts, ru_err *err)
{
    uint32_t rounds = t->lab.b->quick ? 1 : ROUNDS;
    RU_TRY(plan(t, j, facts, err));
    for (uint32_t s = 0; s < SIDES; s++) {
        if (j->wants[s]) {
            fprintf(stderr, "%s, %s, %s: %s\n", j->n->name, j->at->name, side_names[s],
                    j->answers[s].workers > 1 ? j->answers[s].devices : "one worker");
        }
    }
    for (uint32_t k = 0; k < rounds; k++) {
        for (uint32_t s = 0; s < SIDES; s++) {
            side as = j->wants[s] ? like(j, (side)s) : SIDES;
            if (as == s) {
                RU_TRY(run_side(t, j, (side)s, &j->steps_s[s][k], err));
            } else if (j->wants[s]) {
                j->steps_s[s][k] = j->steps_s[as][k];
            }
        }
    }
    return add_rows(t, j, rounds, err);
}

_Static_assert(RU_ARRAY_LEN(nets) * RU_ARRAY_LEN(places) == CASES_MAX, "a figure each");

static ru_status run_places(ru_bench *b, ru_err *err)
{
    bench_placed t = {0};
    bool any = false;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(nets) * RU_ARRAY_LEN(places); k++) {
        job j = {.n = &nets[k / RU_ARRAY_LEN(places)], .at = &places[k % RU_ARRAY_LEN(places)]};
        any = wanted(b, &j) || any;
    }
    if (!any) { /* the caller tells that there is no such row */
        return RU_OK;
    }
    RU_TRY(ru_lab_run_open(b, "placed", true, &t.lab, err));
    RU_TRY(ru_lab_run_inputs(&t.lab, err));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(nets); k++) {
        const char *facts = NULL;
        for (uint32_t p = 0; p < RU_ARRAY_LEN(places); p++) {
            job j = {.n = &nets[k], .at = &places[p]};
            if (wanted(b, &j)) {
                RU_TRY(facts != NULL ? RU_OK : profile(&t, j.n, &facts, err));
                RU_TRY(run_job(&t, &j, facts, err));
            }
        }
    }
    for (uint32_t s = 0; s < SIDES; s++) {
        RU_TRY(t.n_parts[s] > 0 && mean_goals[s] > 0 ? add_mean(&t, (side)s, err) : RU_OK);
    }
    const ru_bench_row row = {.name = row_errors,
                              .unit = "%",
                              .lower = true,
                              .ours = ru_bench_stat_of(t.errors, t.n_errors),
                              .goal = 5};
    return ru_bench_wants(b, row.name) ? ru_bench_add(b, &row, err) : RU_OK;
}

ru_status ru_bench_placed(ru_bench *b, ru_err *err)
{
    RU_TRY(run_places(b, err));
    return rui_placed_limits(b, err);
}
