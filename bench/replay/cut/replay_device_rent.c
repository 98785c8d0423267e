/* Steps of four networks on four rented devices, predicted from their architecture alone by timings
 * of the other networks; then 200 questions with deadlines and budgets at drawn prices.
 *
 * A published profile spans two steps. Where its ops never fill 0.8 of two steps, even with the
 * largest batch, it was cut off, and its ops teach nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "bench/replay/cut/replay_device.h"
#include "bench/replay/replay_csv.h"
#include "cost/step/timing.h"
#include "plan/cut/device.h"
#include "solve/solver.h"

enum { DEVICES = 4, TYPES = 25, HELD = 4, METHODS = 5, NETS_MAX = 32, QUESTIONS = 200 };

static const char *const devices[DEVICES] = {"g3", "g4", "p2", "p3"};
static const char *const held_out[HELD] = {"VGG19", "InceptionV3", "ResNet50", "AlexNet"};
static const char *const methods[METHODS] = {"trees", "squares", "ceer", "median", "paleo"};
static const double usd_per_h[DEVICES] = {0.75, 0.752, 0.9, 3.06};

enum {
    CONV,
    CONV_FILTER,
    CONV_INPUT,
    DEPTH,
    DEPTH_FILTER,
    DEPTH_INPUT,
    MATMUL,
    RELU,
    RELU_BACK,
    NORM,
    NORM_BACK,
    MAX_POOL,
    MAX_POOL_BACK,
    MEAN_POOL,
    MEAN_POOL_BACK,
    BIAS,
    BIAS_BACK,
    ADD,
    ADD_MANY,
    CONCAT,
    SLICE,
    PAD,
    SCALE,
    MEAN,
    UPDATE,
};

/* Kinds and the columns of the published profile that they sum. */
static const struct {
    const char *kind, *column[3];
} types[TYPES] = {
    {"conv/forward", {"Device_Conv2D", "Device__FusedConv2D", "Device_Transpose"}},
    {"conv/filter", {"Device_Conv2DBackpropFilter"}},
    {"conv/input", {"Device_Conv2DBackpropInput"}},
    {"depthwise/forward", {"Device_DepthwiseConv2dNative"}},
    {"depthwise/filter", {"Device_DepthwiseConv2dNativeBackpropFilter"}},
    {"depthwise/input", {"Device_DepthwiseConv2dNativeBackpropInput"}},
    {"matmul", {"Device_MatMul"}},
    {"each/relu", {"Device_Relu", "Device_Relu6"}},
    {"each/relu_back", {"Device_ReluGrad", "Device_Relu6Grad"}},
    {"norm/forward", {"Device_FusedBatchNormV3"}},
    {"norm/backward", {"Device_FusedBatchNormGradV3"}},
    {"pool/max", {"Device_MaxPool"}},
    {"pool/max_back", {"Device_MaxPoolGrad"}},
    {"pool/mean", {"Device_AvgPool"}},
    {"pool/mean_back", {"Device_AvgPoolGrad"}},
    {"each/bias", {"Device_BiasAdd"}},
    {"each/bias_back", {"Device_BiasAddGrad"}},
    {"each/add", {"Device_AddV2"}},
    {"each/add_many", {"Device_AddN"}},
    {"each/concat", {"Device_ConcatV2"}},
    {"each/slice", {"Device_Slice"}},
    {"each/pad", {"Device_Pad"}},
    {"each/scale", {"Device_Mul"}},
    {"mean", {"Device_Mean"}},
    {"update", {"Device_ResourceApplyGradientDescent"}},
};

typedef struct work {
    const char *net;
    uint32_t net_id;
    bool held;
    double batch, params, host_bytes;
    double x[TYPES][RU_TIMING_COLUMNS];
    double ops_s[DEVICES][TYPES], step_s[DEVICES];
    double predicted_s[METHODS][DEVICES];
} work;

typedef struct market {
    work *at; /* [n] */
    uint32_t n, n_nets;
    const char *nets[NETS_MAX];
    bool cut[NETS_MAX][DEVICES];
    double factor[METHODS][DEVICES]; /* 0.7 of steps stay below it times the prediction */
} market;

static void count(work *w, uint32_t type, const ru_timing_op *op)
{
    ru_timing_add(op, 1, w->x[type]);
}

/* Forward and backward ops of one op of the network, as the framework runs them. */
static void expand(work *w, const rui_net_op *o)
{
    double in = 4 * o->in * w->batch, out = 4 * o->out * w->batch, params = 4 * o->params;
    const ru_timing_op op = {.in_bytes = in,
                             .out_bytes = out,
                             .param_bytes = params,
                             .flops = o->flops * w->batch,
                             .channels_in = o->channels_in,
                             .channels_out = o->channels_out,
                             .taps = o->taps};
    static const uint32_t pairs[][2] = {[RUI_NET_BIAS] = {BIAS, BIAS_BACK},
                                        [RUI_NET_RELU] = {RELU, RELU_BACK},
                                        [RUI_NET_NORM] = {NORM, NORM_BACK},
                                        [RUI_NET_MAX_POOL] = {MAX_POOL, MAX_POOL_BACK},
                                        [RUI_NET_MEAN_POOL] = {MEAN_POOL, MEAN_POOL_BACK},
                                        [RUI_NET_ADD] = {ADD, ADD_MANY},
                                        [RUI_NET_CONCAT] = {CONCAT, SLICE},
                                        [RUI_NET_MEAN] = {MEAN, MEAN}};
    switch (o->kind) {
    case RUI_NET_CONV:
    case RUI_NET_DEPTHWISE: {
        uint32_t type = o->kind == RUI_NET_CONV ? CONV : DEPTH;
        count(w, type, &op);
        count(w, type + 1, &op);
        if (!o->first) {
            count(w, type + 2, &op);
        }
        break;
    }
    case RUI_NET_DENSE:
        for (uint32_t k = 0; k < 3; k++) {
            count(w, MATMUL, &op);
        }
        break;
    case RUI_NET_PAD:
        count(w, PAD, &op);
        break;
    case RUI_NET_DROPOUT:
        count(w, SCALE, &op);
        break;
    case RUI_NET_BIAS:
    case RUI_NET_RELU:
    case RUI_NET_NORM:
    case RUI_NET_MAX_POOL:
    case RUI_NET_MEAN_POOL:
    case RUI_NET_ADD:
    case RUI_NET_CONCAT:
    case RUI_NET_MEAN:
        if (!o->fused) {
            count(w, pairs[o->kind][0], &op);
        }
        if (o->kind != RUI_NET_MEAN) {
            count(w, pairs[o->kind][1], &op);
        }
        break;
    }
    if (o->params > 0) {
        const ru_timing_op update = {.in_bytes = params, .out_bytes = params};
        count(w, UPDATE, &update);
        w->params += params;
    }
}

static ru_status read_ops(ru_replay *r, market *m, uint32_t device, ru_err *err)
{
    rui_csv csv;
    const char *file =
        ru_arena_printf(r->arena, "aws-gpu-timings/op_us_%s.csv.gz", devices[device]);
    const char *path = ru_replay_data(r, file);
    RU_TRY(rui_csv_read(path, r->arena, &csv, err));
    if (csv.n != m->n) {
        return RU_FAIL(err, RU_E_DATA, "%s has %u rows, expected %u", file, csv.n, m->n);
    }
    double fullest[NETS_MAX] = {0};
    for (uint32_t i = 0; i < m->n; i++) {
        double sum = 0;
        for (uint32_t t = 0; t < TYPES; t++) {
            for (uint32_t k = 0; k < 3 && types[t].column[k] != NULL; k++) {
                uint32_t column = rui_csv_column(&csv, types[t].column[k]);
                if (column == UINT32_MAX) {
                    return RU_FAIL(err, RU_E_DATA, "%s has no column '%s'", file,
                                   types[t].column[k]);
                }
                double us = rui_csv_f64(&csv, i, column);
                m->at[i].ops_s[device][t] += 1e-6 * us / 2;
            }
            sum += m->at[i].ops_s[device][t];
        }
        double *full = &fullest[m->at[i].net_id];
        *full = fmax(*full, sum / m->at[i].step_s[device]);
    }
    for (uint32_t k = 0; k < m->n_nets; k++) {
        m->cut[k][device] = fullest[k] < 0.8;
    }
    return RU_OK;
}

static ru_status read_steps(ru_replay *r, market *m, ru_err *err)
{
    rui_csv csv;
    const char *path = ru_replay_data(r, "aws-gpu-timings/batch_latency_us.csv.gz");
    RU_TRY(rui_csv_read(path, r->arena, &csv, err));
    m->at = RU_NEW(r->arena, work, csv.n);
    rui_net *net = RU_NEW(r->arena, rui_net, 1);
    if (m->at == NULL || net == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u steps", csv.n);
    }
    m->n = csv.n;
    for (uint32_t i = 0; i < csv.n; i++) {
        work *w = &m->at[i];
        uint32_t side = (uint32_t)strtoul(rui_csv_text(&csv, i, 1), NULL, 10);
        w->net = rui_csv_text(&csv, i, 2);
        w->batch = rui_csv_f64(&csv, i, 4);
        uint32_t classes = side <= 32 ? 10 : side <= 128 ? 100 : 1000;
        if (!rui_net_make(w->net, side, classes, net)) {
            return RU_FAIL(err, RU_E_DATA, "%s: network '%s' is not known", path, w->net);
        }
        for (uint32_t k = 0; k < net->n; k++) {
            expand(w, &net->ops[k]);
        }
        w->host_bytes = 12.0 * side * side * w->batch;
        for (uint32_t d = 0; d < DEVICES; d++) {
            w->step_s[d] = 1e-6 * rui_csv_f64(&csv, i, 5 + d);
        }
        while (w->net_id < m->n_nets && strcmp(m->nets[w->net_id], w->net) != 0) {
            w->net_id++;
        }
        RU_CHECK(w->net_id < NETS_MAX);
        m->nets[w->net_id] = w->net;
        m->n_nets += w->net_id == m->n_nets ? 1 : 0;
        for (uint32_t k = 0; k < HELD; k++) {
            w->held = w->held || strcmp(w->net, held_out[k]) == 0;
        }
    }
    for (uint32_t d = 0; d < DEVICES; d++) {
        RU_TRY(read_ops(r, m, d, err));
    }
    return RU_OK;
}

static ru_timing_step step_of(const work *w, double ops_s, double measured_s)
{
    ru_timing_step s = {.ops_s = ops_s,
                        .host_bytes = w->host_bytes,
                        .param_bytes = w->params,
                        .devices = 1,
                        .seconds = measured_s};
    for (uint32_t t = 0; t < TYPES; t++) {
        s.launches += w->x[t][0];
    }
    return s;
}

static double ops_at(const ru_timing_model *model, const work *w)
{
    double sum = 0;
    for (uint32_t t = 0; t < TYPES; t++) {
        const ru_timing_row row = {.kind = t, .x = w->x[t]};
        sum += w->x[t][0] > 0 ? ru_timing_at(model, &row) : 0;
    }
    return sum;
}

/* How far steps of networks that teach exceed predictions by the other ones. */
static ru_status margin_of(ru_replay *r, const market *m, const ru_timing_in *in, uint32_t device,
                           double *factor, ru_err *err)
{
    ru_timing_row *rows = RU_NEW(r->arena, ru_timing_row, (int64_t)m->n * TYPES);
    ru_timing_case *cases = RU_NEW(r->arena, ru_timing_case, m->n);
    uint32_t net[NETS_MAX], nets = 0, n = 0, n_rows = 0;
    if (rows == NULL || cases == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u steps", m->n);
    }
    memset(net, 0xff, sizeof net);
    for (uint32_t i = 0; i < m->n; i++) {
        const work *w = &m->at[i];
        if (w->held) {
            continue;
        }
        net[w->net_id] = net[w->net_id] == UINT32_MAX ? nets++ : net[w->net_id];
        ru_timing_case *c = &cases[n++];
        *c = (ru_timing_case){net[w->net_id], rows + n_rows, 0, !m->cut[w->net_id][device],
                              step_of(w, 0, w->step_s[device])};
        for (uint32_t t = 0; t < TYPES; t++) {
            if (w->x[t][0] > 0) {
                rows[n_rows++] = (ru_timing_row){t, 0, w->x[t], w->ops_s[device][t]};
                c->n++;
            }
        }
    }
    return ru_timing_margin(in, cases, n, 0.7, r->arena, factor, err); /* the default */
}

/* Fit to all networks but those held out; predict every step. */
static ru_status fit(ru_replay *r, market *m, uint32_t method, uint32_t device, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(r->arena);
    ru_timing_row *rows = RU_NEW(r->arena, ru_timing_row, (int64_t)m->n * TYPES);
    ru_timing_step *steps = RU_NEW(r->arena, ru_timing_step, m->n);
    const char **kinds = RU_NEW(r->arena, const char *, TYPES);
    bool *heavy = RU_NEW(r->arena, bool, TYPES);
    if (rows == NULL || steps == NULL || kinds == NULL || heavy == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u steps", m->n);
    }
    uint32_t n = 0, n_steps = 0;
    for (uint32_t t = 0; t < TYPES; t++) {
        double sum = 0, ops = 0;
        kinds[t] = types[t].kind;
        for (uint32_t i = 0; i < m->n; i++) {
            const work *w = &m->at[i];
            if (!w->held && !m->cut[w->net_id][device] && w->x[t][0] > 0) {
                rows[n++] = (ru_timing_row){t, w->net_id, w->x[t], w->ops_s[device][t]};
                sum += w->ops_s[2][t]; /* p2 is the slowest */
                ops += w->x[t][0];
            }
        }
        heavy[t] = ops > 0 && sum / ops >= 0.5e-3;
    }
    const ru_timing_in in = {
        rows, n, kinds, TYPES, heavy, (ru_timing_method)method, &ru_solver_library, 1};
    ru_timing_model model;
    ru_timing_step_model whole;
    RU_TRY(ru_timing_fit(&in, r->arena, r->arena, &model, err));
    for (uint32_t i = 0; i < m->n; i++) {
        if (!m->at[i].held) {
            const work *w = &m->at[i];
            steps[n_steps++] = step_of(w, ops_at(&model, w), w->step_s[device]);
        }
    }
    RU_TRY(ru_timing_step_fit(steps, n_steps, method == 0 ? &ru_solver_library : NULL, 1, r->arena,
                              r->arena, &whole, err));
    for (uint32_t i = 0; i < m->n; i++) {
        const ru_timing_step s = step_of(&m->at[i], ops_at(&model, &m->at[i]), 0);
        m->at[i].predicted_s[method][device] = ru_timing_step_at(&whole, &s);
    }
    m->factor[method][device] = 1;
    ru_timing_in plain = in;
    plain.method = r->quick ? RU_TIMING_SQUARES : in.method;
    ru_status st = method == RU_TIMING_SQUARES || method == RU_TIMING_TREES
                       ? margin_of(r, m, &plain, device, &m->factor[method][device], err)
                       : RU_OK;
    ru_arena_rewind(r->arena, mark);
    return st;
}

static double error_of(const market *m, uint32_t method, uint32_t device, const char *net)
{
    double sum = 0, n = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const work *w = &m->at[i];
        if (w->held && (net == NULL || strcmp(net, w->net) == 0)) {
            sum += fabs(w->predicted_s[method][device] / w->step_s[device] - 1);
            n += 1;
        }
    }
    return n > 0 ? 100 * sum / n : RU_NAN;
}

static ru_status errors(ru_replay *r, const market *m, uint32_t device, ru_err *err)
{
    char name[96], note[128];
    ru_text t = ru_text_into(name, sizeof name), why = ru_text_into(note, sizeof note);
    ru_text_putf(&t, "rented %s, four networks held out", devices[device]);
    ru_replay_row row = ru_replay_row_of(name, "error_percent", true);
    for (uint32_t k = 0; k < METHODS; k++) {
        double e = error_of(m, k, device, NULL);
        if (k == 0) {
            row.ours = e;
        } else {
            ru_replay_baseline(r, &row, methods[k], e);
        }
    }
    for (uint32_t k = 0; k < HELD; k++) {
        ru_text_putf(&why, "%s%s %.1f", k > 0 ? ", " : "", held_out[k],
                     error_of(m, 0, device, held_out[k]));
    }
    row.note = note;
    row.goal = 10;
    return ru_replay_add(r, &row, err);
}

/* One question; the chosen device, or DEVICES when none is legal. */
static ru_status ask(ru_replay *r, const work *w, const double *step_s, ru_device_in *in,
                     uint32_t *chosen, ru_err *err)
{
    ru_device_offer offers[DEVICES];
    ru_device_plan p;
    for (uint32_t d = 0; d < DEVICES; d++) {
        offers[d] = (ru_device_offer){d, 1, step_s[d]};
    }
    in->offers = offers;
    in->batch = (int64_t)w->batch;
    ru_status st = ru_plan_device(in, r->arena, r->arena, &p, err);
    *chosen = st == RU_OK ? p.lines[p.chosen].offer.type : DEVICES;
    if (st == RU_OK) {
        RU_TRY(ru_plan_device_check(in, &p, err));
    }
    return st == RU_E_INFEASIBLE ? RU_OK : st;
}

typedef struct tally {
    double regret, broken, asked;
} tally;

/* Regret of the goal against the best choice by measured steps. Where nothing keeps the limit with
 * the margin of the intervals, it is asked without, at last for what is nearest to the limit. A
 * choice that breaks the limit by measured steps counts as broken and has no regret. */
static ru_status question(ru_replay *r, const market *m, ru_rng *rng, uint32_t method, tally *t,
                          ru_err *err)
{
    const work *w = &m->at[0];
    do {
        w = &m->at[ru_rng_below(rng, m->n)];
    } while (!w->held);
    ru_device_type types_in[DEVICES];
    double least = INFINITY, most = 0, cheap = INFINITY, dear = 0;
    ru_device_in in = {.types = types_in, .n_types = DEVICES, .n = DEVICES};
    in.samples = 10000 + (int64_t)ru_rng_below(rng, 10000000);
    in.goal = ru_rng_below(rng, 2) == 0 ? RU_DEVICE_COST : RU_DEVICE_TIME;
    for (uint32_t d = 0; d < DEVICES; d++) {
        double price = usd_per_h[d] * ru_math_exp(ru_rng_uniform(rng, -0.7, 0.7));
        types_in[d] = (ru_device_type){.name = devices[d], .usd_per_h = price, .factor = 1};
        double job_s = ceil((double)in.samples / w->batch) * w->step_s[d];
        least = fmin(least, job_s);
        most = fmax(most, job_s);
        cheap = fmin(cheap, job_s * price / 3600);
        dear = fmax(dear, job_s * price / 3600);
    }
    double u = ru_rng_f64(rng);
    in.deadline_s = in.goal == RU_DEVICE_COST ? least * ru_math_pow(most / least, u) * 1.05 : 0;
    in.budget_usd = in.goal == RU_DEVICE_TIME ? cheap * ru_math_pow(dear / cheap, u) * 1.05 : 0;
    uint32_t best, mine;
    RU_TRY(ask(r, w, w->step_s, &in, &best, err));
    for (uint32_t d = 0; d < DEVICES; d++) {
        types_in[d].factor = m->factor[method][d];
    }
    RU_TRY(ask(r, w, w->predicted_s[method], &in, &mine, err));
    for (uint32_t again = 0; again < 2 && mine == DEVICES; again++) {
        ru_device_in asked = in;
        asked.deadline_s = again == 0 ? in.deadline_s : 0;
        asked.budget_usd = again == 0 ? in.budget_usd : 0;
        asked.goal = again == 0 ? in.goal : in.deadline_s > 0 ? RU_DEVICE_TIME : RU_DEVICE_COST;
        for (uint32_t d = 0; d < DEVICES; d++) {
            types_in[d].factor = 1;
        }
        RU_TRY(ask(r, w, w->predicted_s[method], &asked, &mine, err));
    }
    RU_CHECK(best < DEVICES && mine < DEVICES);
    t->asked += 1;
    double job_s = ceil((double)in.samples / w->batch), a = job_s * w->step_s[mine];
    double b = job_s * w->step_s[best];
    if ((in.deadline_s > 0 && a > in.deadline_s) ||
        (in.budget_usd > 0 && a * types_in[mine].usd_per_h / 3600 > in.budget_usd)) {
        t->broken += 1;
        return RU_OK;
    }
    bool cost = in.goal == RU_DEVICE_COST;
    t->regret +=
        cost ? a * types_in[mine].usd_per_h / (b * types_in[best].usd_per_h) - 1 : a / b - 1;
    return RU_OK;
}

static ru_status choices(ru_replay *r, const market *m, ru_err *err)
{
    ru_replay_row regret = ru_replay_row_of("rented, 200 questions", "regret_percent", true);
    ru_replay_row broken = ru_replay_row_of("rented, 200 questions", "broken_percent", true);
    for (uint32_t k = 0; k < METHODS; k++) {
        tally t = {0};
        ru_rng rng = ru_rng_from(12, 1);
        for (uint32_t q = 0; q < QUESTIONS; q++) {
            ru_arena_mark mark = ru_arena_mark_get(r->arena);
            RU_TRY(question(r, m, &rng, k, &t, err));
            ru_arena_rewind(r->arena, mark);
        }
        double mean = 100 * t.regret / fmax(t.asked - t.broken, 1);
        if (k == 0) {
            regret.ours = mean;
            broken.ours = 100 * t.broken / t.asked;
        } else {
            ru_replay_baseline(r, &regret, methods[k], mean);
            ru_replay_baseline(r, &broken, methods[k], 100 * t.broken / t.asked);
        }
    }
    regret.goal = 3;
    broken.goal = 2;
    RU_TRY(ru_replay_add(r, &regret, err));
    return ru_replay_add(r, &broken, err);
}

ru_status rui_device_rent(ru_replay *r, ru_err *err)
{
    market *m = RU_NEW(r->arena, market, 1);
    if (m == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the market");
    }
    RU_TRY(read_steps(r, m, err));
    for (uint32_t d = 0; d < DEVICES; d++) {
        for (uint32_t k = 0; k < METHODS; k++) {
            RU_TRY(fit(r, m, k, d, err));
        }
        RU_TRY(errors(r, m, d, err));
    }
    return choices(r, m, err);
}
