/* Savings of temporary files: costs, history, forests. See density.h. */
#include "cost/density.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cost/math/norm.h"
#include "cost/math/quantile.h"
#include "cost/math/trees.h"

enum { NEAR = 5, CLASS_FIRST = 20, SIZED = RU_DENSITY_TRAITS, FILES_MIN = 50 };

/* A class of sizes is kept when a file of it saves with this probability; the limit is the middle
 * between that class and the one below, since what grows there may go on. */
#define CLASS_SURE 0.7f

const ru_density_prices ru_density_list = {1.27e-19, 2.5e-6, 6.3e-19, 1.1e-13, 8e-3, 150e6};

double ru_density_hdd(const ru_density_prices *p, const ru_density_file *f)
{
    double disk_s = f->ops * p->seek_s + 2 * f->size_bytes / p->hdd_bytes_per_s;
    return f->size_bytes * f->life_s * p->hdd_byte_s + disk_s * p->hdd_io_s;
}

double ru_density_saving(const ru_density_prices *p, const ru_density_file *f)
{
    double ssd = f->size_bytes * f->life_s * p->ssd_byte_s + f->size_bytes * p->wear_byte;
    return ru_density_hdd(p, f) - ssd;
}

ru_status ru_density_history_init(ru_density_history *h, const ru_density_prices *p,
                                  uint32_t n_groups, ru_arena *arena, ru_err *err)
{
    *h = (ru_density_history){.prices = *p, .n_groups = n_groups};
    h->groups = RU_NEW(arena, ru_density_group, (int64_t)n_groups + 1);
    h->recent = RU_NEW(arena, ru_density_seen, RU_DENSITY_RECENT);
    return h->groups != NULL && h->recent != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_LIMIT, "no memory for %u groups of files", n_groups);
}

static double log_of(double v)
{
    return ru_math_log(1 + v);
}

void ru_density_learn(ru_density_history *h, const ru_density_file *f)
{
    RU_CHECK(f->group < h->n_groups);
    ru_density_group *g = &h->groups[f->group];
    double saving = ru_density_saving(&h->prices, f);
    g->last_open_s = f->open_s;
    g->last_input = f->input_bytes;
    g->last_size = f->size_bytes;
    g->last_life = f->life_s;
    g->log_sizes += log_of(f->size_bytes);
    g->n += 1;
    g->saving += saving;
    g->n_saving += saving > 0 ? 1 : 0;
    g->hdd += ru_density_hdd(&h->prices, f);
    double log_input = log_of(f->input_bytes);
    h->recent[h->n++ % RU_DENSITY_RECENT] =
        (ru_density_seen){log_input, log_of(f->size_bytes) - log_input, saving > 0};
}

/* The files whose jobs read about as much: distance and place, nearest first, later ones first. */
static uint32_t neighbours(const ru_density_history *h, double log_input, double *far,
                           uint32_t *place)
{
    uint32_t found = 0;
    uint64_t n = h->n < RU_DENSITY_RECENT ? h->n : RU_DENSITY_RECENT;
    for (uint64_t k = 1; k <= n; k++) {
        uint32_t at = (uint32_t)((h->n - k) % RU_DENSITY_RECENT);
        double d = fabs(h->recent[at].log_input - log_input);
        if (found == NEAR && !(d < far[NEAR - 1])) {
            continue;
        }
        uint32_t i = found < NEAR ? found++ : NEAR - 1;
        for (; i > 0 && d < far[i - 1]; i--) {
            far[i] = far[i - 1];
            place[i] = place[i - 1];
        }
        far[i] = d;
        place[i] = at;
    }
    return found;
}

void ru_density_traits(const ru_density_history *h, const ru_density_file *f, float *x)
{
    RU_CHECK(f->group < h->n_groups);
    const ru_density_group *g = &h->groups[f->group];
    double in = log_of(f->input_bytes), writers = log_of(f->writers), v[RU_DENSITY_TRAITS];
    double blocks = f->readers > 0 ? log_of(f->writers * f->readers) : RU_NAN;
    for (uint32_t k = 0; k < RU_DENSITY_TRAITS; k++) {
        v[k] = RU_NAN;
    }
    v[0] = in;
    v[1] = f->writers;
    v[2] = f->open_s / 3600 - 24 * floor(f->open_s / 86400);
    if (g->n > 0) {
        double size = log_of(g->last_size), ratio = size - log_of(g->last_input);
        v[3] = size;
        v[4] = ratio;
        v[5] = g->log_sizes / g->n;
        v[6] = g->n;
        v[7] = in - log_of(g->last_input);
        v[8] = log_of(g->last_life);
        v[9] = g->n_saving / g->n;
        v[10] = g->hdd > 0 ? g->saving / g->hdd : 0;
        v[11] = (f->open_s - g->last_open_s) / 3600;
        v[12] = ratio + in;
        v[13] = writers - v[12];
        v[14] = writers - size;
        v[15] = blocks - v[12];
        v[16] = blocks - size;
    }
    double far[NEAR], ratios = 0, saves = 0;
    uint32_t place[NEAR], found = neighbours(h, in, far, place);
    for (uint32_t k = 0; k < found; k++) {
        ratios += h->recent[place[k]].log_ratio / found;
        saves += h->recent[place[k]].saves ? 1.0 / found : 0;
    }
    if (found > 0) {
        v[17] = far[0];
        v[18] = h->recent[place[0]].log_ratio;
        v[19] = h->recent[place[0]].saves ? 1 : 0;
        v[20] = saves;
        v[21] = ratios;
        v[22] = v[18] + in;
        v[23] = blocks - v[22];
    }
    if (f->readers > 0) {
        v[24] = f->readers;
        v[25] = f->writers * f->readers;
        v[26] = f->readers / fmax(f->writers, 1);
        v[27] = blocks - in;
    }
    for (uint32_t k = 0; k < RU_DENSITY_TRAITS; k++) {
        x[k] = (float)v[k];
    }
}

ru_status ru_density_rows(const ru_density_file *files, uint32_t n, ru_density_history *h, float *x,
                          uint32_t stride, ru_arena *scratch, ru_err *err)
{
    double *end = RU_NEW(scratch, double, n);
    uint32_t *order = RU_NEW(scratch, uint32_t, n), ended = 0;
    if (end == NULL || order == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        end[i] = files[i].open_s + files[i].life_s;
    }
    ru_sort_order_f64(end, order, n);
    for (uint32_t i = 0; i < n; i++) {
        while (ended < n && end[order[ended]] <= files[i].open_s) {
            ru_density_learn(h, &files[order[ended++]]);
        }
        ru_density_traits(h, &files[i], x + (size_t)i * stride);
    }
    return RU_OK;
}

static float fourth_root(double v)
{
    return (float)sqrt(sqrt(fabs(v)));
}

static void level(float *w, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)w[i];
    }
    for (uint32_t i = 0; i < n && sum > 0; i++) {
        w[i] = (float)((double)w[i] * n / sum);
    }
}

static double class_bytes(uint32_t c)
{
    return (double)((uint64_t)1 << (CLASS_FIRST + c));
}

static uint32_t class_of(double size_bytes)
{
    uint32_t c = 0;
    while (c + 1 < RU_DENSITY_CLASSES && size_bytes >= class_bytes(c + 1)) {
        c++;
    }
    return c;
}

static double limit_of(const ru_trees *sized, const float *traits)
{
    float x[SIZED + 1];
    memcpy(x, traits, SIZED * sizeof *x);
    for (uint32_t c = RU_DENSITY_CLASSES; c-- > 0;) {
        x[SIZED] = (float)(CLASS_FIRST + c);
        if (ru_trees_value(sized, x) > CLASS_SURE) {
            return class_bytes(c) / 2;
        }
    }
    return 0;
}

/* Of a file whose size is told: nothing is to be feared from classes that few files have. */
static ru_density_answer ask_sized(const ru_density_model *m, const float *traits,
                                   double size_bytes, double most_bytes)
{
    float x[SIZED + 1];
    memcpy(x, traits, SIZED * sizeof *x);
    x[SIZED] = (float)(ru_math_log(size_bytes) / 0.6931471805599453);
    double ratio = ru_num_exp((double)ru_trees_value(&m->ratio, x));
    double saving = size_bytes * m->ssd_byte * (ratio - 1);
    bool saves = saving > 0 && size_bytes <= most_bytes;
    return saves ? (ru_density_answer){fmin(2 * size_bytes, most_bytes), saving}
                 : (ru_density_answer){0, 0};
}

ru_density_answer ru_density_ask(const ru_density_model *m, const float *traits, double size_bytes,
                                 double most_bytes)
{
    if (size_bytes > 0) {
        return ask_sized(m, traits, size_bytes, most_bytes);
    }
    double saves[RU_DENSITY_CLASSES], mid[RU_DENSITY_CLASSES],
        least = class_bytes(m->first_class + 1);
    double most = most_bytes < least ? 0 : fmin(most_bytes, limit_of(&m->sized, traits));
    float x[SIZED + 1], chance[RU_DENSITY_CLASSES];
    ru_density_answer best = {0, 0};
    RU_CHECK(m->sizes.n_outputs <= RU_DENSITY_CLASSES - m->first_class);
    if (most < least) {
        return best;
    }
    memcpy(x, traits, SIZED * sizeof *x);
    ru_trees_predict(&m->sizes, traits, chance);
    for (uint32_t k = 0; k < m->sizes.n_outputs; k++) {
        uint32_t c = m->first_class + k;
        mid[k] = class_bytes(c) * 1.4142135623730951;
        x[SIZED] = (float)(CLASS_FIRST + c) + 0.5f;
        double ratio = ru_num_exp((double)ru_trees_value(&m->ratio, x));
        saves[k] = (double)chance[k] * mid[k] * m->ssd_byte * (ratio - 1);
    }
    for (double limit = least; limit <= most; limit *= 2) {
        double saving = 0;
        for (uint32_t k = 0; k < m->sizes.n_outputs; k++) {
            saving += saves[k] * fmin(1, limit / mid[k]);
        }
        best = saving > best.saving_usd ? (ru_density_answer){limit, saving} : best;
    }
    return best;
}

static ru_status train(ru_trees_in in, const ru_solver *solver, ru_arena *out, ru_trees *t,
                       ru_err *err)
{
    in.row_share = in.column_share = 0.7;
    return solver->trees(&in, out, t, err);
}

/* Classes that no file has, below and above, are left out. */
static ru_status train_sizes(const ru_density_file *files, uint32_t n, const float *x,
                             const ru_solver *solver, uint64_t seed, ru_arena *arena,
                             ru_density_model *m, ru_err *err)
{
    float *y = RU_NEW(arena, float, n);
    uint32_t last = 0;
    if (y == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", n);
    }
    m->first_class = RU_DENSITY_CLASSES - 2;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = class_of(files[i].size_bytes);
        m->first_class = c < m->first_class ? c : m->first_class;
        last = c > last ? c : last;
    }
    last = last > m->first_class ? last : m->first_class + 1;
    for (uint32_t i = 0; i < n; i++) {
        y[i] = (float)(class_of(files[i].size_bytes) - m->first_class);
    }
    const ru_trees_in in = {.x = x,
                            .y = y,
                            .m = n,
                            .n = SIZED,
                            .goal = RU_TREES_CLASSES,
                            .n_classes = last - m->first_class + 1,
                            .rounds = 20,
                            .depth = 4,
                            .seed = seed};
    return train(in, solver, arena, &m->sizes, err);
}

ru_status ru_density_train(const ru_density_file *files, uint32_t n, uint32_t n_groups,
                           const ru_density_prices *p, const ru_solver *solver, uint64_t seed,
                           ru_arena *arena, ru_density_model *m, ru_err *err)
{
    if (solver == NULL || solver->trees == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "trees need the library XGBoost; the method 'history' does without");
    }
    if (n < FILES_MIN || n > RU_DENSITY_FILES_MAX) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u files ended, trees need %d to %d", n, FILES_MIN,
                       RU_DENSITY_FILES_MAX);
    }
    float *x = RU_NEW(arena, float, (int64_t)n *(SIZED + 1));
    float *y = RU_NEW(arena, float, n), *w = RU_NEW(arena, float, n);
    float *plain = RU_NEW(arena, float, (int64_t)n *SIZED), *ratio = RU_NEW(arena, float, n);
    if (x == NULL || y == NULL || w == NULL || plain == NULL || ratio == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", n);
    }
    ru_density_history h;
    RU_TRY(ru_density_history_init(&h, p, n_groups, arena, err));
    RU_TRY(ru_density_rows(files, n, &h, x, SIZED + 1, arena, err));
    m->ssd_byte = 0;
    for (uint32_t i = 0; i < n; i++) {
        double saving = ru_density_saving(p, &files[i]), hdd = ru_density_hdd(p, &files[i]);
        double ssd = fmax(hdd - saving, 1e-30), size = fmax(files[i].size_bytes, 1);
        x[(size_t)i * (SIZED + 1) + SIZED] = (float)(ru_math_log(size) / 0.6931471805599453);
        memcpy(plain + (size_t)i * SIZED, x + (size_t)i * (SIZED + 1), SIZED * sizeof *x);
        y[i] = saving > 0 ? 1 : 0;
        w[i] = fourth_root(saving);
        ratio[i] = (float)ru_math_log(fmax(hdd, 1e-30) / ssd);
        m->ssd_byte += ssd / size / n;
    }
    level(w, n);
    ru_trees_in in = {.x = x,
                      .y = y,
                      .weight = w,
                      .m = n,
                      .n = SIZED + 1,
                      .goal = RU_TREES_BINARY,
                      .rounds = 80,
                      .depth = 5,
                      .leaf_weight_min = 3,
                      .seed = seed};
    RU_TRY(train(in, solver, arena, &m->sized, err));
    in.y = ratio;
    in.weight = NULL;
    in.goal = RU_TREES_SQUARED;
    in.rounds = 60;
    in.depth = 4;
    RU_TRY(train(in, solver, arena, &m->ratio, err));
    return train_sizes(files, n, plain, solver, seed, arena, m, err);
}
