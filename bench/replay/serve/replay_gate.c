/* Requests of five networks beside the training of seven on one device, under three laws of
 * interference that are hidden from the gate: tail latency against the dedicated device, and work
 * of the training against Orion's rule. */
#include <math.h>

#include "bench/replay/replay.h"
#include "bench/replay/replay_csv.h"
#include "bench/replay/serve/replay_gate_gpu.h"
#include "env/clock.h"

enum { SERVICES = 5, TRAININGS = 7, METHODS = 11, UNITS = 80 };

static const char *const methods[METHODS] = {"lag",      "dedicated", "free",  "slices",
                                             "priority", "quota",     "idle",  "orion",
                                             "reef",     "abacus",    "oracle"};
static const char *const services[SERVICES] = {"resnet50_4", "resnet101_4", "mobilenetv2_4",
                                               "bert_2", "transformer_xl_4"};
static const char *const trainings[TRAININGS] = {
    "resnet50_32",    "resnet101_32", "mobilenetv2_32",  "mobilenetv2_64",
    "mobilenetv2_96", "bert_8",       "transformer_xl_8"};
static const char *const laws[RUI_GATE_LAWS] = {"classes", "excess", "pressure"};

typedef struct list {
    ru_gate_op *op;
    uint32_t n;
} list;

static ru_status read_list(ru_replay *r, const char *name, const char *kind, list *out, ru_err *err)
{
    char file[96];
    ru_text t = ru_text_into(file, sizeof file);
    ru_text_putf(&t, "gpu-kernels/%s_%s.csv.gz", name, kind);
    rui_csv csv;
    RU_TRY(rui_csv_read(ru_replay_data(r, file), r->arena, &csv, err));
    out->op = RU_NEW(r->arena, ru_gate_op, csv.n);
    if (out->op == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u kernels", csv.n);
    }
    out->n = csv.n;
    for (uint32_t i = 0; i < csv.n; i++) {
        double cls = rui_csv_f64(&csv, i, 1);
        out->op[i] = (ru_gate_op){cls == 1   ? RU_OP_COMPUTE
                                  : cls == 0 ? RU_OP_MEMORY
                                             : RU_OP_UNKNOWN,
                                  fmax(rui_csv_f64(&csv, i, 3), 1), 1e-9 * rui_csv_f64(&csv, i, 4)};
    }
    return RU_OK;
}

typedef struct tally {
    uint32_t cases, tail, work;
    double worst_tail, worst_work;
} tally;

static ru_status one(ru_replay *r, const rui_gate_case *base, ru_gate_method method,
                     rui_gate_result *out, ru_err *err)
{
    ru_arena_mark m = ru_arena_mark_get(r->arena);
    rui_gate_case c = *base;
    c.in.method = method;
    RU_TRY(rui_gate_play(&c, r->arena, out, err));
    ru_arena_rewind(r->arena, m);
    return RU_OK;
}

static ru_status pair_rows(ru_replay *r, const rui_gate_case *c, const char *name, tally *t,
                           ru_err *err)
{
    rui_gate_result got[METHODS];
    for (uint32_t k = 0; k < METHODS; k++) {
        RU_TRY(one(r, c, (ru_gate_method)k, &got[k], err));
    }
    double alone = got[RU_GATE_DEDICATED].p99_s, orion = got[RU_GATE_ORION].training;
    ru_replay_row row = ru_replay_row_of(name, "p99_over_dedicated", true);
    row.ours = got[0].p99_s / alone;
    row.goal = row.published = 1.14;
    row.bound = 1;
    ru_replay_row work = ru_replay_row_of(name, "training_over_orion", false);
    work.ours = got[0].training / orion;
    work.goal = 1;
    work.bound = 1 / orion;
    for (uint32_t k = 1; k < METHODS; k++) {
        ru_replay_baseline(r, &row, methods[k], got[k].p99_s / alone);
        ru_replay_baseline(r, &work, methods[k], got[k].training / orion);
    }
    RU_TRY(ru_replay_add(r, &row, err));
    RU_TRY(ru_replay_add(r, &work, err));
    t->cases++;
    t->tail += row.ours <= row.goal;
    t->work += work.ours >= work.goal;
    t->worst_tail = fmax(t->worst_tail, row.ours);
    t->worst_work = fmin(t->worst_work, work.ours);
    return RU_OK;
}

static ru_status all_pairs(ru_replay *r, const list *service, const list *training, uint32_t law,
                           uint64_t seed, ru_err *err)
{
    tally t = {.worst_work = 1e9};
    ru_rng draw = ru_rng_from(seed, law);
    char name[96];
    for (uint32_t i = 0; i < SERVICES; i++) {
        for (uint32_t k = 0; k < TRAININGS; k++) {
            const rui_gate_case c = {.in = {.service = service[i].op,
                                            .n_service = service[i].n,
                                            .training = training[k].op,
                                            .n_training = training[k].n,
                                            .device = UNITS,
                                            .goal = 1.14,
                                            .quantile = 0.99},
                                     .law = (rui_gate_law)law,
                                     .strength = ru_rng_uniform(&draw, 0, 2),
                                     .load = 0.4,
                                     .requests = r->quick ? 400 : 2000,
                                     .seed = seed * 1000 + i * TRAININGS + k};
            if (r->quick && (i * TRAININGS + k) % 5 != law) {
                continue;
            }
            ru_text text = ru_text_into(name, sizeof name);
            ru_text_putf(&text, "%s + %s, %s x %.2f", services[i], trainings[k], laws[law],
                         c.strength);
            RU_TRY(pair_rows(r, &c, name, &t, err));
        }
    }
    ru_text text = ru_text_into(name, sizeof name);
    ru_text_putf(&text, "pairs of %u, %s", t.cases, laws[law]);
    ru_replay_row row = ru_replay_row_of(name, "pairs_that_keep_the_tail", false);
    row.ours = t.tail;
    row.goal = row.bound = t.cases;
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(name, "pairs_with_the_work_of_orion", false);
    row.ours = t.work;
    row.goal = row.bound = t.cases;
    return ru_replay_add(r, &row, err);
}

/* Five pairs of every law at another load: means over the pairs, and the worst tail of ours. */
static ru_status load_rows(ru_replay *r, const list *service, const list *training, double load,
                           ru_err *err)
{
    double tail[METHODS] = {0}, work[METHODS] = {0}, worst = 0;
    uint32_t n = 0, requests = r->quick ? 400 : 2000;
    ru_rng draw = ru_rng_from(1, 77);
    for (uint32_t law = 0; law < RUI_GATE_LAWS; law++) {
        for (uint32_t i = 0; i < SERVICES; i++, n++) {
            uint32_t k = (3 * i + law) % TRAININGS;
            const rui_gate_case c = {.in = {.service = service[i].op,
                                            .n_service = service[i].n,
                                            .training = training[k].op,
                                            .n_training = training[k].n,
                                            .device = UNITS,
                                            .goal = 1.14,
                                            .quantile = 0.99},
                                     .law = (rui_gate_law)law,
                                     .strength = ru_rng_uniform(&draw, 0, 2),
                                     .load = load,
                                     .requests = requests,
                                     .seed = 7000 + n};
            static const ru_gate_method by[] = {RU_GATE_LAG, RU_GATE_DEDICATED, RU_GATE_PRIORITY,
                                                RU_GATE_ORION};
            rui_gate_result got[METHODS];
            for (uint32_t m = 0; m < RU_ARRAY_LEN(by); m++) {
                RU_TRY(one(r, &c, by[m], &got[by[m]], err));
                work[by[m]] += got[by[m]].training;
            }
            for (uint32_t m = 0; m < RU_ARRAY_LEN(by); m++) {
                tail[by[m]] += got[by[m]].p99_s / got[RU_GATE_DEDICATED].p99_s;
            }
            worst = fmax(worst, got[0].p99_s / got[RU_GATE_DEDICATED].p99_s);
        }
    }
    char name[64];
    ru_text text = ru_text_into(name, sizeof name);
    ru_text_putf(&text, "load %g, %u pairs", load, n);
    ru_replay_row rows[] = {ru_replay_row_of(name, "worst_p99_over_dedicated", true),
                            ru_replay_row_of(name, "mean_p99_over_dedicated", true),
                            ru_replay_row_of(name, "training_device_ratio", false)};
    rows[0].ours = worst;
    rows[0].goal = 1.14;
    rows[1].ours = tail[0] / n;
    rows[2].ours = work[0] / n;
    rows[2].goal = work[RU_GATE_ORION] / n;
    for (uint32_t k = 1; k < 3; k++) {
        const double *v = k == 1 ? tail : work;
        ru_replay_baseline(r, &rows[k], "priority", v[RU_GATE_PRIORITY] / n);
        ru_replay_baseline(r, &rows[k], "orion", v[RU_GATE_ORION] / n);
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        RU_TRY(ru_replay_add(r, &rows[k], err));
    }
    return RU_OK;
}

/* Processor time of a decision beside a request, with lists `times` as long. */
static ru_status decision_row(ru_replay *r, const list *service, const list *training,
                              uint32_t times, ru_err *err)
{
    enum { DECISIONS = 200000 };
    ru_gate_op *s = RU_NEW(r->arena, ru_gate_op, (int64_t)times * service->n);
    ru_gate_op *t = RU_NEW(r->arena, ru_gate_op, (int64_t)times * training->n);
    ru_gate *g = RU_NEW(r->arena, ru_gate, 1);
    if (s == NULL || t == NULL || g == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u times as many ops", times);
    }
    for (uint32_t i = 0; i < times * service->n; i++) {
        s[i] = service->op[i % service->n];
    }
    for (uint32_t i = 0; i < times * training->n; i++) {
        t[i] = training->op[i % training->n];
    }
    const ru_gate_in in = {.service = s,
                           .n_service = times * service->n,
                           .training = t,
                           .n_training = times * training->n,
                           .device = UNITS,
                           .goal = 1.14,
                           .quantile = 0.99};
    RU_TRY(ru_gate_init(g, &in, r->arena, err));
    ru_gate_arrived(g, 0);
    ru_gate_begun(g, 0, 0, 0);
    uint32_t yes = 0;
    int64_t begin = ru_clock_cpu_ns();
    for (uint32_t i = 0; i < DECISIONS; i++) {
        yes += ru_gate_may(g, 0, i % in.n_training, RU_NAN) ? 1 : 0;
    }
    double us = 1e-3 * (double)(ru_clock_cpu_ns() - begin) / DECISIONS;
    char name[96];
    ru_text text = ru_text_into(name, sizeof name);
    ru_text_putf(&text, "%u and %u ops, %u of %d let in", in.n_service, in.n_training, yes,
                 DECISIONS);
    ru_replay_row row = ru_replay_row_of(name, "decision_us", true);
    row.timed = true;
    row.ours = us;
    row.goal = 20;
    return ru_replay_add(r, &row, err);
}

ru_status rui_replay_gate(ru_replay *r, ru_err *err)
{
    if (ru_replay_data(r, "gpu-kernels") == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "the folder gpu-kernels is not in RUBATO_DATA");
    }
    list service[SERVICES], training[TRAININGS];
    for (uint32_t i = 0; i < SERVICES; i++) {
        RU_TRY(read_list(r, services[i], "fwd", &service[i], err));
    }
    for (uint32_t i = 0; i < TRAININGS; i++) {
        RU_TRY(read_list(r, trainings[i], "fb1", &training[i], err));
    }
    for (uint32_t law = 0; law < RUI_GATE_LAWS; law++) {
        if (!ru_replay_have(r, "law %u", law)) {
            RU_TRY(all_pairs(r, service, training, law, 1, err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    static const double loads[] = {0.2, 0.6, 0.8, 0.9, 0.95, 0.99};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(loads); i++) {
        if (!ru_replay_have(r, "load %g", loads[i])) {
            RU_TRY(load_rows(r, service, training, loads[i], err));
            RU_TRY(ru_replay_keep(r, err));
        }
    }
    RU_TRY(decision_row(r, &service[3], &training[5], 1, err));
    return decision_row(r, &service[3], &training[5], 10, err);
}
