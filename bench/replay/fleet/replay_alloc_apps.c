/* Tables of measured jobs: steps by placement and local batch, gradients by epoch and batch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/replay/fleet/replay_alloc.h"
#include "bench/replay/replay_csv.h"
#include "env/file/file.h"

typedef struct known {
    const char *name;
    uint32_t epochs, local_max; /* 0: as measured */
    uint32_t batches[RUI_APP_BATCHES_MAX];
} known;

static const known all_known[RUI_APPS] = {
    {"bert", 2, 0, {12, 24, 48, 96, 192, 384}},
    {"cifar10", 100, 0, {128, 256, 512, 1024, 2048, 4096}},
    {"ncf", 10, 0, {256, 512, 1024, 2048, 4096, 8192, 16384, 32768}},
    {"imagenet", 90, 0, {200, 400, 800, 1600, 3200, 6400, 12800}},
    {"deepspeech2", 80, 0, {20, 40, 80, 160, 320, 640}},
    {"yolov3", 50, 8, {8, 16, 32, 64, 128, 256, 512}}};

static ru_status read_epochs(ru_replay *r, const char *dir, const known *k, rui_app *a, ru_err *err)
{
    for (; a->n_batches < RUI_APP_BATCHES_MAX && k->batches[a->n_batches] > 0; a->n_batches++) {
        uint32_t b = a->n_batches;
        rui_csv csv;
        const char *path = ru_arena_printf(r->arena, "%s/traces/%s/validation-%u.csv", dir, k->name,
                                           k->batches[b]);
        RU_TRY(rui_csv_read(path, r->arena, &csv, err));
        if (csv.n < k->epochs || csv.n_columns < 5) {
            return RU_FAIL(err, RU_E_DATA, "%s holds %u epochs, expected %u", path, csv.n,
                           k->epochs);
        }
        double **columns[] = {&a->progress[b], &a->steps[b], &a->sqr[b], &a->var[b]};
        static const uint32_t at[] = {0, 1, 3, 4};
        for (uint32_t c = 0; c < 4; c++) {
            double *v = RU_NEW(r->arena, double, k->epochs);
            if (v == NULL) {
                return RU_FAIL(err, RU_E_LIMIT, "no memory for %s", path);
            }
            for (uint32_t e = 0; e < k->epochs; e++) {
                v[e] = rui_csv_f64(&csv, e, at[c]);
            }
            *columns[c] = v;
        }
        a->batch[b] = k->batches[b];
    }
    a->epochs = k->epochs;
    a->batch_first = a->batch[0];
    a->batch_max = a->batch[a->n_batches - 1];
    return RU_OK;
}

static rui_curve *curve_of(rui_curve *curves, uint32_t *n, uint32_t key)
{
    for (uint32_t i = 0; i < *n; i++) {
        if (curves[i].key == key) {
            return &curves[i];
        }
    }
    curves[*n] = (rui_curve){.key = key};
    return &curves[(*n)++];
}

/* A point of the mean over placements: points of equal local are averaged by `close_mean`. */
static void point(rui_curve *c, double local, double step_s, double sync_s)
{
    if (c->n < RU_ARRAY_LEN(c->local)) {
        c->local[c->n] = local;
        c->step_s[c->n] = step_s;
        c->sync_s[c->n++] = sync_s;
    }
}

typedef struct mean_point {
    uint32_t key;
    double local, step_s, sync_s;
    uint32_t n;
} mean_point;

static int by_key_and_local(const void *x, const void *y)
{
    const mean_point *a = x, *b = y;
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    return (a->local > b->local) - (a->local < b->local);
}

static void add_mean(mean_point *m, uint32_t *n, uint32_t key, const double v[3])
{
    for (uint32_t i = 0; i < *n; i++) {
        if (m[i].key == key && m[i].local == v[0]) {
            m[i].step_s += v[1];
            m[i].sync_s += v[2];
            m[i].n++;
            return;
        }
    }
    m[(*n)++] = (mean_point){key, v[0], v[1], v[2], 1};
}

static void sizes_of(rui_app *a, mean_point *m, uint32_t n)
{
    qsort(m, n, sizeof *m, by_key_and_local);
    for (uint32_t i = 0; i < n; i++) {
        point(curve_of(a->sizes, &a->n_sizes, m[i].key), m[i].local, m[i].step_s / m[i].n,
              m[i].sync_s / m[i].n);
    }
}

static ru_status read_speeds(ru_replay *r, const char *dir, const known *k, rui_app *a, ru_err *err)
{
    rui_csv places, sizes;
    RU_TRY(rui_csv_read(ru_arena_printf(r->arena, "%s/traces/%s/placements.csv", dir, k->name),
                        r->arena, &places, err));
    RU_TRY(rui_csv_read(ru_arena_printf(r->arena, "%s/traces/%s/scalability.csv", dir, k->name),
                        r->arena, &sizes, err));
    uint32_t rows = places.n + sizes.n, n = 0;
    mean_point *m = RU_NEW(r->arena, mean_point, rows);
    a->places = RU_NEW(r->arena, rui_curve, 200);
    a->sizes = RU_NEW(r->arena, rui_curve, 200);
    a->samples = RU_NEW(r->arena, ru_perf_sample, rows);
    if (m == NULL || a->places == NULL || a->sizes == NULL || a->samples == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the times of %s", k->name);
    }
    a->local_min = UINT32_MAX;
    for (uint32_t i = 0; i < rows; i++) {
        bool place = i < places.n;
        const rui_csv *c = place ? &places : &sizes;
        uint32_t row = place ? i : i - places.n, first = place ? 1 : 2, nodes = 0, replicas = 0;
        const double v[] = {rui_csv_f64(c, row, first), rui_csv_f64(c, row, first + 1),
                            rui_csv_f64(c, row, first + 2)};
        const char *digits = rui_csv_text(c, row, 0);
        for (; place && digits[nodes] != '\0'; nodes++) {
            replicas += (uint32_t)(digits[nodes] - '0');
        }
        nodes = place ? nodes : (uint32_t)rui_csv_f64(c, row, 0);
        replicas = place ? replicas : (uint32_t)rui_csv_f64(c, row, 1);
        if (!(v[0] >= 1) || !(v[1] > v[2]) || nodes < 1 || a->n_places + 1 > 199) {
            return RU_FAIL(err, RU_E_DATA, "%s: row %u of the times is damaged", k->name, i);
        }
        uint32_t local = (uint32_t)v[0];
        if (place) {
            point(curve_of(a->places, &a->n_places, (uint32_t)rui_csv_f64(c, row, 0)), v[0], v[1],
                  v[2]);
            a->local_min = local < a->local_min ? local : a->local_min;
            a->local_max = local > a->local_max ? local : a->local_max;
        }
        add_mean(m, &n, nodes * 1000 + replicas, v);
        a->samples[a->n_samples++] = (ru_perf_sample){nodes, replicas, local, v[1] - v[2], v[1]};
    }
    sizes_of(a, m, n);
    a->local_max = k->local_max > 0 ? k->local_max : a->local_max;
    return RU_OK;
}

ru_status rui_apps_read(ru_replay *r, const char *dir, rui_app apps[RUI_APPS], ru_err *err)
{
    memset(apps, 0, RUI_APPS * sizeof *apps);
    for (uint32_t i = 0; i < RUI_APPS; i++) {
        apps[i].name = all_known[i].name;
        RU_TRY(read_epochs(r, dir, &all_known[i], &apps[i], err));
        RU_TRY(read_speeds(r, dir, &all_known[i], &apps[i], err));
    }
    return RU_OK;
}

static void at_local(const rui_curve *c, double local, double *step_s, double *sync_s)
{
    uint32_t i = 0;
    while (i + 2 < c->n && c->local[i + 1] <= local) {
        i++;
    }
    if (c->n == 1) {
        *step_s = c->step_s[0];
        *sync_s = c->sync_s[0];
        return;
    }
    double x = (local - c->local[i]) / (c->local[i + 1] - c->local[i]);
    x = fmin(fmax(x, 0), 1);
    *step_s = c->step_s[i] + x * (c->step_s[i + 1] - c->step_s[i]);
    *sync_s = c->sync_s[i] + x * (c->sync_s[i + 1] - c->sync_s[i]);
}

/* The smallest rotation, as digits. */
static uint32_t key_of(const uint32_t *parts, uint32_t n)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t s = 0; s < n; s++) {
        uint32_t key = 0;
        for (uint32_t i = 0; i < n; i++) {
            key = key * 10 + parts[(s + i) % n];
        }
        best = key < best ? key : best;
    }
    return best;
}

/* Among sizes with `nodes` nodes, between the two numbers of replicas next to `replicas`. */
static void at_nodes(const rui_app *a, uint32_t nodes, double replicas, double local,
                     double *step_s, double *sync_s)
{
    const rui_curve *low = NULL, *high = NULL;
    for (uint32_t i = 0; i < a->n_sizes; i++) {
        const rui_curve *c = &a->sizes[i];
        if (c->key / 1000 != nodes) {
            continue;
        }
        low = low == NULL || c->key % 1000 <= replicas ? c : low;
        high = high == NULL || high->key % 1000 < replicas ? c : high;
    }
    double k = low->key % 1000, more = high->key % 1000, one[2], two[2];
    at_local(low, local, &one[0], &one[1]);
    at_local(high, local, &two[0], &two[1]);
    double x = more > k ? fmin(fmax((replicas - k) / (more - k), 0), 1) : 0;
    *step_s = one[0] + x * (two[0] - one[0]);
    *sync_s = one[1] + x * (two[1] - one[1]);
}

void rui_app_speed(const rui_app *a, const uint32_t *parts, uint32_t n, double local,
                   double *step_s, double *sync_s)
{
    uint32_t replicas = 0, key = n <= 4 ? key_of(parts, n) : 0;
    for (uint32_t i = 0; i < n; i++) {
        replicas += parts[i];
    }
    for (uint32_t i = 0; n <= 4 && i < a->n_places; i++) {
        if (a->places[i].key == key) {
            at_local(&a->places[i], local, step_s, sync_s);
            return;
        }
    }
    n = n < RUI_APP_NODES_MAX ? n : RUI_APP_NODES_MAX;
    uint32_t low = 0, high = UINT32_MAX;
    for (uint32_t i = 0; i < a->n_sizes; i++) {
        uint32_t nodes = a->sizes[i].key / 1000;
        low = nodes <= n && nodes > low ? nodes : low;
        high = nodes >= n && nodes < high ? nodes : high;
    }
    low = low > 0 ? low : high;
    high = high < UINT32_MAX ? high : low;
    double one[2], two[2], x = high > low ? (double)(n - low) / (high - low) : 0;
    at_nodes(a, low, replicas, local, &one[0], &one[1]);
    at_nodes(a, high, replicas, local, &two[0], &two[1]);
    *step_s = one[0] + x * (two[0] - one[0]);
    *sync_s = one[1] + x * (two[1] - one[1]);
}

/* Between the two measured batches next to this one. */
static double between(const rui_app *a, double *const *rows, double batch, uint32_t epoch)
{
    uint32_t i = 0;
    while (i + 2 < a->n_batches && a->batch[i + 1] <= batch) {
        i++;
    }
    double x = (batch - a->batch[i]) / (a->batch[i + 1] - a->batch[i]);
    x = fmin(fmax(x, 0), 1);
    epoch = epoch < a->epochs ? epoch : a->epochs - 1;
    return rows[i][epoch] + x * (rows[i + 1][epoch] - rows[i][epoch]);
}

void rui_app_noise(const rui_app *a, double batch, uint32_t epoch, double *sqr, double *var)
{
    *sqr = between(a, a->sqr, batch, epoch);
    *var = between(a, a->var, batch, epoch);
}

double rui_app_goal(const rui_app *a, uint32_t epoch)
{
    double least = a->progress[0][epoch];
    for (uint32_t b = 1; b < a->n_batches; b++) {
        least = fmin(least, a->progress[b][epoch]);
    }
    return least;
}

double rui_app_steps(const rui_app *a, double batch, uint32_t epoch)
{
    return between(a, a->steps, batch, epoch);
}
