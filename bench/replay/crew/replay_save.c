/* Running checkpoints and partial recovery (SCAR): iterations that a loss of parameters costs.
 *
 * Multinomial logistic regression on real digits by gradient descent over all samples, so that the
 * loss falls smoothly; a block is a feature's row of W. The run without failure gives the target:
 * its loss after TARGET iterations. A failure strikes before iteration T saves; each method
 * restores what it has, and training goes on until the target is reached. The crossing is
 * interpolated between two iterations.
 *
 * Source: qiao-2019 sec 5; failure times are geometric, cut to [1, TARGET - 1]. The table beside
 * it holds means of 20 trials that an independent numpy program took of the same experiment on
 * 2,000 digits of MNIST: 28x28 pixels, 617 of them blocks. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "bench/replay/replay.h"
#include "bench/replay/replay_csv.h"
#include "plan/crew/save.h"

enum {
    SAMPLES = 2048,
    FEATURES = 64,
    CLASSES = 10,
    LANES = 16,
    TARGET = 100,
    ITERATIONS_MAX = 400,
    PERIOD = 8, /* of a full checkpoint, in iterations */
    MEAN = 50,  /* iteration of the failure */
    BASELINES = 8,
    ROLLBACK = 6, /* the full rollback among the ways */
};

#define RATE       0.5f
#define ITERATIONS 0.6 /* how far a full rollback may lie from the table */
#define POINTS     6   /* how far a reduction may */

typedef struct digits {
    float x[FEATURES][SAMPLES];
    int32_t label[SAMPLES];
    float p[CLASSES][SAMPLES]; /* logits, then probabilities minus truth */
} digits;

typedef float weights[FEATURES][CLASSES];

/* What is saved how often, and what a failure restores. */
typedef struct way {
    const char *name;
    ru_save_method save;
    uint32_t parts; /* 1/parts of the blocks are saved parts times as often */
    ru_recover_method recover;
} way;

static const way ways[] = {
    {"priority 1/8", RU_SAVE_PRIORITY, 8, RU_RECOVER_PARTIAL},
    {"priority 1/4", RU_SAVE_PRIORITY, 4, RU_RECOVER_PARTIAL},
    {"priority 1/2", RU_SAVE_PRIORITY, 2, RU_RECOVER_PARTIAL},
    {"round-robin 1/8", RU_SAVE_ROUND_ROBIN, 8, RU_RECOVER_PARTIAL},
    {"random 1/8", RU_SAVE_RANDOM, 8, RU_RECOVER_PARTIAL},
    {"full + partial", RU_SAVE_FULL, 1, RU_RECOVER_PARTIAL},
    {"full rollback", RU_SAVE_FULL, 1, RU_RECOVER_ROLLBACK},
    {"no checkpoint", RU_SAVE_NONE, 1, RU_RECOVER_RESET},
};

/* The table of MNIST, with a full checkpoint every 8 iterations. */
typedef struct table {
    double part;
    const char *name;
    double rollback;          /* extra iterations of a full rollback */
    double percent[ROLLBACK]; /* less than that: the ways before it */
} table;

static const table tables[] = {
    {0.25, "1/4", 4.35, {86, 85, 84, 82, 59, 73}},
    {0.5, "1/2", 4.35, {73, 71, 68, 64, 21, 47}},
    {0.75, "3/4", 4.35, {60, 56, 53, 46, -15, 23}},
};

/* -- training ---------------------------------------------------------------------------------- */

static double softmax(digits *d)
{
    double loss = 0;
    for (int32_t i = 0; i < SAMPLES; i++) {
        float top = d->p[0][i], sum = 0;
        for (int32_t c = 1; c < CLASSES; c++) {
            top = d->p[c][i] > top ? d->p[c][i] : top;
        }
        for (int32_t c = 0; c < CLASSES; c++) {
            d->p[c][i] = expf(d->p[c][i] - top);
            sum += d->p[c][i];
        }
        for (int32_t c = 0; c < CLASSES; c++) {
            d->p[c][i] /= sum;
        }
        float *truth = &d->p[d->label[i]][i];
        loss -= log(fmax((double)*truth, 1e-30));
        *truth -= 1.0f;
    }
    return loss / SAMPLES;
}

static float dot(const float *a, const float *b)
{
    float sum[LANES] = {0}, all = 0;
    for (int32_t i = 0; i < SAMPLES; i += LANES) {
        for (int32_t k = 0; k < LANES; k++) {
            sum[k] += a[i + k] * b[i + k];
        }
    }
    for (int32_t k = 0; k < LANES; k++) {
        all += sum[k];
    }
    return all;
}

/* One iteration; returns the loss before it. */
static double descend(digits *d, weights w)
{
    memset(d->p, 0, sizeof d->p);
    for (int32_t f = 0; f < FEATURES; f++) {
        for (int32_t c = 0; c < CLASSES; c++) {
            const float *RU_RESTRICT x = d->x[f];
            float *RU_RESTRICT to = d->p[c];
            float k = w[f][c];
            for (int32_t i = 0; i < SAMPLES; i++) {
                to[i] += k * x[i];
            }
        }
    }
    double loss = softmax(d);
    for (int32_t f = 0; f < FEATURES; f++) {
        for (int32_t c = 0; c < CLASSES; c++) {
            w[f][c] -= RATE * dot(d->x[f], d->p[c]) / SAMPLES;
        }
    }
    return loss;
}

/* -- saves of the run without failure ---------------------------------------------------------- */

typedef struct scene {
    digits *d;
    weights *at; /* [TARGET + 1] parameters after each iteration */
    double loss; /* the target */
    uint32_t n;  /* blocks that ever change */
    uint32_t block[FEATURES];
} scene;

static double distance(const scene *s, uint32_t k, int32_t a, int32_t b)
{
    double sum = 0;
    for (int32_t c = 0; c < CLASSES; c++) {
        double v = (double)s->at[a][s->block[k]][c] - (double)s->at[b][s->block[k]][c];
        sum += v * v;
    }
    return sqrt(sum);
}

/* saved[k]: iteration of block k's copy when the failure strikes at `at`. */
static ru_status saves(const scene *s, const way *w, int32_t at, uint64_t seed, ru_arena *arena,
                       int32_t *saved, ru_err *err)
{
    double d[FEATURES];
    uint32_t cursor = 0;
    memset(saved, 0, sizeof(int32_t) * FEATURES);
    if (w->save == RU_SAVE_NONE) {
        return RU_OK;
    }
    for (int32_t t = PERIOD / (int32_t)w->parts; t < at; t += PERIOD / (int32_t)w->parts) {
        ru_arena_mark mark = ru_arena_mark_get(arena);
        for (uint32_t k = 0; k < s->n; k++) {
            d[k] = distance(s, k, t, saved[k]);
        }
        const ru_save_in in = {.distance = d,
                               .n = s->n,
                               .fraction = 1.0 / w->parts,
                               .cursor = cursor,
                               .seed = seed + (uint64_t)t,
                               .method = w->save};
        ru_save_plan plan;
        RU_TRY(ru_plan_save(&in, arena, &plan, err));
        RU_TRY(ru_plan_save_check(&in, &plan, arena, err));
        for (uint32_t k = 0; k < plan.n; k++) {
            saved[plan.block[k]] = t;
        }
        cursor = plan.cursor;
        ru_arena_rewind(arena, mark);
    }
    return RU_OK;
}

/* -- failures ---------------------------------------------------------------------------------- */

typedef struct failure {
    int32_t at;
    bool lost[FEATURES];
    uint64_t seed;
} failure;

/* Every fourth, second ... block of a random order is lost. */
static failure draw(const scene *s, double part, uint64_t trial)
{
    ru_rng rng = ru_rng_from(trial, 31);
    failure f = {.seed = trial * 1000};
    do {
        f.at = 1 + (int32_t)(ru_math_log(1.0 - ru_rng_f64(&rng)) / ru_math_log(1.0 - 1.0 / MEAN));
    } while (f.at >= TARGET);
    uint32_t order[FEATURES];
    for (uint32_t k = 0; k < s->n; k++) {
        order[k] = k;
    }
    for (uint32_t k = 0; k < s->n; k++) {
        uint32_t j = k + ru_rng_below(&rng, s->n - k), was = order[k];
        order[k] = order[j];
        order[j] = was;
        f.lost[order[k]] = (double)k < part * s->n;
    }
    return f;
}

/* Iterations to the target after the failure, less those without it. */
static ru_status cost(const scene *s, const way *w, const failure *f, ru_arena *arena, double *out,
                      ru_err *err)
{
    ru_recover_block blocks[FEATURES];
    int32_t saved[FEATURES];
    weights x;
    RU_TRY(saves(s, w, f->at, f->seed, arena, saved, err));
    for (uint32_t k = 0; k < s->n; k++) {
        blocks[k] = (ru_recover_block){.lost = f->lost[k],
                                       .log_at = w->save == RU_SAVE_NONE ? -1 : saved[k],
                                       .cache_at = -1,
                                       .log_d = distance(s, k, f->at, saved[k]),
                                       .start_d = distance(s, k, f->at, 0)};
    }
    const ru_recover_in in = {.block = blocks, .n = s->n, .method = w->recover};
    ru_recover_plan plan;
    RU_TRY(ru_plan_recover(&in, arena, &plan, err));
    RU_TRY(ru_plan_recover_check(&in, &plan, err));
    memcpy(x, s->at[f->at], sizeof x);
    for (uint32_t k = 0; k < s->n; k++) {
        int32_t from = plan.from[k] == RU_RECOVER_LOG     ? saved[k]
                       : plan.from[k] == RU_RECOVER_START ? 0
                                                          : f->at;
        memcpy(x[s->block[k]], s->at[from][s->block[k]], sizeof x[0]);
    }
    double before = descend(s->d, x);
    for (int32_t t = f->at + 1; t < ITERATIONS_MAX; t++) {
        double loss = descend(s->d, x);
        if (loss <= s->loss) {
            *out = (double)t - (s->loss - loss) / (before - loss) - TARGET;
            return RU_OK;
        }
        before = loss;
    }
    return RU_FAIL(err, RU_E_INFEASIBLE, "%s does not reach the loss again", w->name);
}

/* -- rows -------------------------------------------------------------------------------------- */

/* One point of the table: how far ours is from it. */
static ru_status beside(ru_replay *r, const char *name, const char *measure, double ours,
                        double given, double within, ru_err *err)
{
    ru_replay_row row = ru_replay_row_of(name, measure, true);
    row.ours = fabs(ours - given);
    row.bound = 0;
    row.goal = within;
    row.note = row.ours <= within ? NULL : "60 blocks of 8x8 digits, in the table 617 of 28x28";
    ru_replay_baseline(r, &row, "here", ours);
    ru_replay_baseline(r, &row, "in the table", given);
    return ru_replay_add(r, &row, err);
}

static ru_status beside_table(ru_replay *r, const table *of, const double *mean, ru_err *err)
{
    for (uint32_t k = 0; k <= ROLLBACK; k++) {
        char text[64];
        ru_text t = ru_text_into(text, sizeof text);
        ru_text_putf(&t, "digits, %s lost, %s", of->name, ways[k].name);
        if (k == ROLLBACK) {
            return beside(r, t.p, "iterations_off_the_table", mean[k], of->rollback, ITERATIONS,
                          err);
        }
        RU_TRY(beside(r, t.p, "points_off_the_table", 100 * (1 - mean[k] / mean[ROLLBACK]),
                      of->percent[k], POINTS, err));
    }
    return RU_OK;
}

static ru_status lost_part(ru_replay *r, const scene *s, const table *of, ru_err *err)
{
    uint32_t trials = r->quick ? 12 : 120;
    double mean[BASELINES] = {0};
    for (uint32_t t = 0; t < trials; t++) {
        failure f = draw(s, of->part, t);
        for (uint32_t k = 0; k < RU_ARRAY_LEN(ways); k++) {
            ru_arena_mark mark = ru_arena_mark_get(r->arena);
            double extra = 0;
            RU_TRY(cost(s, &ways[k], &f, r->arena, &extra, err));
            mean[k] += extra / trials;
            ru_arena_rewind(r->arena, mark);
        }
    }
    char text[96];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_putf(&t, "digits, %s of the blocks lost, %u trials", of->name, trials);
    ru_replay_row row = ru_replay_row_of(t.p, "extra_iterations", true);
    row.ours = mean[0];
    row.bound = 0;      /* nothing lost */
    row.goal = mean[3]; /* the order of the methods: ahead of round-robin */
    for (uint32_t k = 1; k < RU_ARRAY_LEN(ways); k++) {
        ru_replay_baseline(r, &row, ways[k].name, mean[k]);
    }
    bool order = mean[0] < mean[3] && mean[3] < mean[5] && mean[5] < mean[ROLLBACK];
    row.note = order ? NULL : "the order priority, round-robin, full + partial, rollback is broken";
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(t.p, "reduction_percent", false);
    row.ours = 100 * (1 - mean[0] / mean[ROLLBACK]);
    for (uint32_t k = 1; k < RU_ARRAY_LEN(ways); k++) {
        ru_replay_baseline(r, &row, ways[k].name, 100 * (1 - mean[k] / mean[ROLLBACK]));
    }
    RU_TRY(ru_replay_add(r, &row, err));
    return beside_table(r, of, mean, err);
}

/* The first samples, features from 0 to 1; a file without a head. */
static ru_status read_digits(const char *path, ru_arena *arena, digits *d, ru_err *err)
{
    rui_csv c;
    RU_TRY(rui_csv_read(path, arena, &c, err)); /* the first sample passes as the head: left out */
    if (c.n < SAMPLES || c.n_columns != FEATURES + 1) {
        return RU_FAIL(err, RU_E_DATA, "%s: expected %d rows of %d numbers", path, SAMPLES,
                       FEATURES + 1);
    }
    for (int32_t i = 0; i < SAMPLES; i++) {
        for (uint32_t f = 0; f < FEATURES; f++) {
            d->x[f][i] = (float)(rui_csv_f64(&c, (uint32_t)i, f) / 16.0);
        }
        double label = rui_csv_f64(&c, (uint32_t)i, FEATURES);
        if (!(label >= 0 && label < CLASSES)) {
            return RU_FAIL(err, RU_E_DATA, "%s: a class is not from 0 to 9", path);
        }
        d->label[i] = (int32_t)label;
    }
    return RU_OK;
}

ru_status rui_replay_save(ru_replay *r, ru_err *err)
{
    const char *path = ru_replay_data(r, "federated/optdigits_train_a.csv");
    if (path == NULL) {
        return RU_OK; /* ru_replay_data said so */
    }
    scene s = {.d = RU_NEW(r->arena, digits, 1), .at = RU_NEW(r->arena, weights, TARGET + 1)};
    if (s.d == NULL || s.at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the digits");
    }
    RU_TRY(read_digits(path, r->arena, s.d, err));
    weights x = {0};
    for (int32_t t = 0; t <= TARGET; t++) {
        memcpy(s.at[t], x, sizeof x);
        s.loss = descend(s.d, x);
    }
    for (uint32_t f = 0; f < FEATURES; f++) {
        bool moves = false;
        for (uint32_t c = 0; c < CLASSES; c++) {
            moves = moves || s.at[TARGET][f][c] != 0.0f;
        }
        if (moves) {
            s.block[s.n++] = f;
        }
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(tables); k++) {
        if (!ru_replay_have(r, "table %u", k)) {
            RU_TRY(lost_part(r, &s, &tables[k], err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    return RU_OK;
}
