/* TiFL: digits split over fifty clients by every method, real training in simulated time; 2,187
 * speakers for tiers, time and coverage. */
#include "bench/replay/fleet/replay_pick.h"

#include <math.h>
#include <stddef.h>

#include "bench/replay/replay.h"
#include "bench/replay/replay_csv.h"
#include "env/clock.h"

static const char *const methods[RU_PICK_METHODS] = {"adaptive", "tifl", "vanilla", "over",
                                                     "fedcs",    "oort", "choice",  "uniform",
                                                     "random",   "fast", "slow"};

/* Pixels 0..16, the label last. */
static ru_status read_images(ru_replay *r, const char *const *files, uint32_t n_files,
                             rui_images *out, ru_err *err)
{
    *out = (rui_images){.x = ru_arena_zalloc(r->arena, 6000 * (int64_t)sizeof *out->x, 64),
                        .label = RU_NEW(r->arena, uint8_t, 6000)};
    if (out->x == NULL || out->label == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for images");
    }
    for (uint32_t f = 0; f < n_files; f++) {
        rui_csv csv;
        const char *path = ru_replay_data(r, files[f]);
        RU_TRY(rui_csv_read(path, r->arena, &csv, err));
        /* The first row is data: the reader takes it for names. */
        for (uint32_t k = 0; k < csv.n && out->n < 6000; k++) {
            if (csv.n_columns != RUI_FED_FEATURES) {
                return RU_FAIL(err, RU_E_DATA, "%s has %u columns, expected %d", path,
                               csv.n_columns, RUI_FED_FEATURES);
            }
            for (uint32_t c = 0; c + 1 < RUI_FED_FEATURES; c++) {
                out->x[out->n][c] = (float)(rui_csv_f64(&csv, k, c) / 16);
            }
            out->x[out->n][RUI_FED_FEATURES - 1] = 1;
            double label = rui_csv_f64(&csv, k, RUI_FED_FEATURES - 1);
            out->label[out->n++] = (uint8_t)fmin(fmax(label, 0), RUI_FED_CLASSES - 1);
        }
    }
    return RU_OK;
}

typedef struct sums {
    double seconds, estimate_s, accuracy, worst, covered, gap, oracle;
} sums;

static ru_status add(ru_replay *r, rui_fed_in in, uint32_t seeds, sums *into, ru_err *err)
{
    for (uint32_t s = 0; s < seeds; s++) {
        rui_fed_out o;
        in.seed = s;
        RU_TRY(rui_fed_run(&in, r->arena, &o, err));
        into->seconds += o.seconds / seeds;
        into->estimate_s += o.estimate_s / seeds;
        into->accuracy += o.accuracy / seeds;
        into->worst += o.worst_decile / seeds;
        into->covered += o.covered / seeds;
        into->gap += o.label_gap / seeds;
        into->oracle += o.oracle_s / seeds;
    }
    return RU_OK;
}

static ru_status row_of(ru_replay *r, const char *name, const char *measure, bool lower,
                        const double *value, double goal, ru_err *err)
{
    ru_replay_row row = ru_replay_row_of(name, measure, lower);
    row.ours = value[0];
    row.goal = goal;
    for (uint32_t m = 1; m < RU_PICK_METHODS; m++) {
        ru_replay_baseline(r, &row, methods[m], value[m]);
    }
    return ru_replay_add(r, &row, err);
}

/* FedCS, Oort and power of choice look at single clients: no estimate. */
static ru_status estimate_row(ru_replay *r, const char *name, const double *estimate, ru_err *err)
{
    static const ru_pick_method known[] = {RU_PICK_VANILLA, RU_PICK_OVER, RU_PICK_UNIFORM,
                                           RU_PICK_RANDOM,  RU_PICK_FAST, RU_PICK_SLOW};
    ru_replay_row row = ru_replay_row_of(name, "worst_estimate_error", true);
    row.ours = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(known); k++) {
        row.ours = fmax(row.ours, estimate[known[k]]);
        ru_replay_baseline(r, &row, methods[known[k]], estimate[known[k]]);
    }
    ru_replay_baseline(r, &row, methods[RU_PICK_ADAPTIVE], estimate[RU_PICK_ADAPTIVE]);
    row.goal = 0.03;
    return ru_replay_add(r, &row, err);
}

/* Half-way a tenth of the clients dies and a group takes twice as long. */
static ru_status upheavals(ru_replay *r, uint32_t classes, const rui_images *train,
                           const rui_images *test, uint32_t seeds, ru_err *err)
{
    static const ru_pick_method some[] = {RU_PICK_ADAPTIVE, RU_PICK_TIFL, RU_PICK_VANILLA,
                                          RU_PICK_UNIFORM};
    char name[96];
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "digits, %u classes, a tenth dies, a group slows", classes);
    ru_replay_row row = ru_replay_row_of(name, "seconds_over_oracle", true);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(some); k++) {
        sums s = {0};
        rui_fed_in in = {.train = train,
                         .test = test,
                         .classes = classes,
                         .n = 50,
                         .per_round = 5,
                         .rounds = 300,
                         .n_tiers = 5,
                         .jitter = 0.1,
                         .upheaval = true,
                         .retier_rounds = 20,
                         .method = some[k]};
        RU_TRY(add(r, in, seeds, &s, err));
        if (k == 0) {
            row.ours = s.seconds / s.oracle;
        } else {
            ru_replay_baseline(r, &row, methods[some[k]], s.seconds / s.oracle);
        }
    }
    row.goal = 1.15;
    return ru_replay_add(r, &row, err);
}

static ru_status digits(ru_replay *r, uint32_t classes, ru_err *err)
{
    static const char *const train_files[] = {"federated/optdigits_train_a.csv",
                                              "federated/optdigits_train_b.csv"};
    static const char *const test_files[] = {"federated/optdigits_test.csv"};
    rui_images train, test;
    RU_TRY(read_images(r, train_files, 2, &train, err));
    RU_TRY(read_images(r, test_files, 1, &test, err));
    double times[RU_PICK_METHODS], accuracy[RU_PICK_METHODS], worst[RU_PICK_METHODS],
        estimate[RU_PICK_METHODS], seconds[RU_PICK_METHODS];
    uint32_t seeds = r->quick ? 2 : 10;
    for (uint32_t m = 0; m < RU_PICK_METHODS; m++) {
        sums s = {0};
        rui_fed_in in = {.train = &train,
                         .test = &test,
                         .classes = classes,
                         .n = 50,
                         .per_round = 5,
                         .rounds = 300,
                         .n_tiers = 5,
                         .jitter = 0.1,
                         .method = (ru_pick_method)m};
        RU_TRY(add(r, in, seeds, &s, err));
        seconds[m] = s.seconds;
        accuracy[m] = s.accuracy;
        worst[m] = s.worst;
        estimate[m] = fabs(s.estimate_s / s.seconds - 1);
    }
    for (uint32_t m = 0; m < RU_PICK_METHODS; m++) {
        times[m] = seconds[RU_PICK_VANILLA] / seconds[m];
    }
    char name[96];
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "digits, %u classes a client, %u seeds", classes, seeds);
    RU_TRY(row_of(r, name, "seconds", true, seconds, RU_NAN, err));
    RU_TRY(row_of(r, name, "times_faster_than_vanilla", false, times, 3, err));
    RU_TRY(row_of(r, name, "accuracy", false, accuracy, accuracy[RU_PICK_VANILLA] - 0.005, err));
    RU_TRY(row_of(r, name, "worst_decile", false, worst, worst[RU_PICK_VANILLA] - 0.01, err));
    RU_TRY(estimate_row(r, name, estimate, err));
    return upheavals(r, classes, &train, &test, seeds, err);
}

/* 35 words by 2,187 people: samples and labels of each. */
static ru_status speakers(ru_replay *r, bool kmeans, ru_err *err)
{
    rui_csv csv;
    RU_TRY(rui_csv_read(ru_replay_data(r, "federated/fl_speech_client_labels.csv"), r->arena, &csv,
                        err));
    uint32_t n_labels = csv.n_columns - 2;
    double *samples = RU_NEW(r->arena, double, csv.n);
    double *labels = RU_NEW(r->arena, double, (int64_t)csv.n *n_labels);
    if (samples == NULL || labels == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u speakers", csv.n);
    }
    for (uint32_t i = 0; i < csv.n; i++) {
        samples[i] = rui_csv_f64(&csv, i, 1);
        for (uint32_t l = 0; l < n_labels; l++) {
            labels[(size_t)i * n_labels + l] = rui_csv_f64(&csv, i, 2 + l);
        }
    }
    double seconds[RU_PICK_METHODS], covered[RU_PICK_METHODS], gap[RU_PICK_METHODS],
        estimate[RU_PICK_METHODS];
    uint32_t seeds = r->quick ? 1 : 3;
    for (uint32_t m = 0; m < RU_PICK_METHODS; m++) {
        sums s = {0};
        rui_fed_in in = {.samples = samples,
                         .labels = labels,
                         .n_labels = n_labels,
                         .n = csv.n,
                         .per_round = 10,
                         .rounds = r->quick ? 300 : 600,
                         .n_tiers = 5,
                         .kmeans = kmeans,
                         .jitter = 0.1,
                         .method = (ru_pick_method)m};
        RU_TRY(add(r, in, seeds, &s, err));
        seconds[m] = s.seconds;
        covered[m] = s.covered;
        gap[m] = s.gap;
        estimate[m] = fabs(s.estimate_s / s.seconds - 1);
    }
    char name[96];
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "%u speakers, %s tiers", csv.n, kmeans ? "k-means" : "equal");
    RU_TRY(row_of(r, name, "seconds", true, seconds, seconds[RU_PICK_VANILLA] / 3, err));
    RU_TRY(row_of(r, name, "clients_that_trained", false, covered, RU_NAN, err));
    RU_TRY(row_of(r, name, "label_gap", true, gap, RU_NAN, err));
    return estimate_row(r, name, estimate, err);
}

/* Ten times the speakers. */
static ru_status time_rows(ru_replay *r, ru_err *err)
{
    for (uint32_t n = 2187; n <= 21870; n *= 10) {
        ru_pick_client *client = RU_NEW(r->arena, ru_pick_client, n);
        if (client == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for %u clients", n);
        }
        ru_rng rng = ru_rng_from(5, n);
        for (uint32_t i = 0; i < n; i++) {
            client[i] = (ru_pick_client){
                .latency_s = ru_math_exp(ru_rng_normal(&rng)), .samples = 30, .loss = -1};
        }
        const ru_pick_tier tier[5] = {
            {-1, 0.9, -1}, {-1, 0.9, -1}, {-1, 0.8, -1}, {-1, 0.8, -1}, {-1, 0.7, -1}};
        ru_pick_in in = {.client = client,
                         .n = n,
                         .n_tiers = 5,
                         .tier = tier,
                         .n_told = 5,
                         .round = 1,
                         .rounds = 1000,
                         .per_round = 10,
                         .interval = 10,
                         .last_tier = -1,
                         .spread = 0.1};
        ru_pick_plan p;
        double s;
        int64_t begun = ru_clock_now().ns;
        RU_TRY(ru_plan_pick(&in, r->arena, r->arena, &p, err));
        double took = (double)(ru_clock_now().ns - begun) * 1e-9;
        begun = ru_clock_now().ns;
        RU_TRY(ru_pick_round_mean(&in, &p, r->arena, &s, err));
        double estimate = (double)(ru_clock_now().ns - begun) * 1e-9;
        for (uint32_t k = 0; k < 2; k++) {
            char name[96];
            ru_text t = ru_text_into(name, sizeof name);
            ru_text_putf(&t, "%u clients: %s", n, k == 0 ? "tiers and a round" : "estimate");
            ru_replay_row row = ru_replay_row_of(name, "decision_s", true);
            row.timed = true;
            row.ours = k == 0 ? took : estimate;
            RU_TRY(ru_replay_add(r, &row, err));
        }
    }
    return RU_OK;
}

ru_status rui_replay_pick(ru_replay *r, ru_err *err)
{
    if (ru_replay_data(r, "federated") == NULL) {
        return RU_FAIL(err, RU_E_MISSING,
                       "no folder 'federated' in the published data; set RUBATO_DATA");
    }
    if (!ru_replay_have(r, "digits, 2 classes")) {
        RU_TRY(digits(r, 2, err));
        RU_TRY(ru_replay_keep(r, err));
    }
    if (!ru_replay_have(r, "digits, 5 classes")) {
        RU_TRY(digits(r, 5, err));
        RU_TRY(ru_replay_keep(r, err));
    }
    if (!ru_replay_have(r, "speakers")) {
        RU_TRY(speakers(r, false, err));
        RU_TRY(ru_replay_keep(r, err));
    }
    if (!ru_replay_have(r, "speakers, slow")) {
        RU_TRY(speakers(r, true, err));
        RU_TRY(ru_replay_keep(r, err));
    }
    return time_rows(r, err);
}
