#include "plan/serve/gate.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cost/math/quantile.h"

#define GUESS       0.5   /* share lost beside an op never met */
#define MISS        0.1   /* share of requests that may lose more than predicted */
#define KEEP        0.7   /* of the lag that the goal allows: ops end late, arrivals come early */
#define ORION_DEPTH 0.025 /* of a request: run-ahead of the training */
#define SLICE_S     2e-3
#define ABACUS_SLO  2.5
#define TAIL_EVERY  64 /* requests between two tails */
#define LATELY_S    10.0

static ru_status check_ops(const ru_gate_op *op, uint32_t n, const char *whose, ru_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        bool right = op[i].cls <= RU_OP_UNKNOWN && op[i].units > 0 && isfinite(op[i].units) &&
                     op[i].s > 0 && isfinite(op[i].s);
        if (!right) {
            return RU_FAIL(err, RU_E_ARG,
                           "op %u of the %s takes %g s for %g units; both must be above 0", i,
                           whose, op[i].s, op[i].units);
        }
    }
    return RU_OK;
}

static ru_status check_in(const ru_gate_in *in, ru_err *err)
{
    if (in->n_service < 1 || in->n_training < 1 || !(in->device > 0) || !(in->goal > 1) ||
        !(in->quantile > 0) || !(in->quantile < 1)) {
        return RU_FAIL(err, RU_E_ARG,
                       "expected ops of the service and of the training, a device, a goal above 1 "
                       "and a quantile between 0 and 1");
    }
    RU_TRY(check_ops(in->service, in->n_service, "service", err));
    return check_ops(in->training, in->n_training, "training", err);
}

ru_status ru_gate_init(ru_gate *g, const ru_gate_in *in, ru_arena *arena, ru_err *err)
{
    RU_TRY(check_in(in, err));
    memset(g, 0, sizeof *g);
    g->in = *in;
    g->service_kind = RU_NEW(arena, uint8_t, in->n_service);
    g->training_kind = RU_NEW(arena, uint8_t, in->n_training);
    g->left_s = RU_NEW(arena, double, (int64_t)in->n_service + 1);
    if (g->service_kind == NULL || g->training_kind == NULL || g->left_s == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u and %u ops", in->n_service,
                       in->n_training);
    }
    for (uint32_t i = in->n_service; i > 0; i--) {
        const ru_gate_op *o = &in->service[i - 1];
        g->left_s[i - 1] = g->left_s[i] + o->s;
        g->service_kind[i - 1] = (uint8_t)ru_corun_kind(o->cls, o->units, in->device);
    }
    for (uint32_t i = 0; i < in->n_training; i++) {
        const ru_gate_op *o = &in->training[i];
        g->training_kind[i] = (uint8_t)ru_corun_kind(o->cls, o->units, in->device);
    }
    ru_corun_init(&g->corun, GUESS, MISS);
    g->tail_s = g->left_s[0];
    g->budget_s = KEEP * (in->goal - 1) * g->tail_s;
    return RU_OK;
}

/* -- requests -------------------------------------------------------------------------------------
 */

static void new_tail(ru_gate *g)
{
    double of[RU_GATE_LATENCIES];
    uint32_t n = g->n_latencies < RU_GATE_LATENCIES ? g->n_latencies : RU_GATE_LATENCIES;
    memcpy(of, g->latency, n * sizeof *of);
    g->tail_s = ru_quantile_select(of, n, g->in.quantile, RU_QUANTILE_LINEAR);
    g->budget_s = KEEP * (g->in.goal - 1) * g->tail_s;
}

void ru_gate_arrived(ru_gate *g, double now_s)
{
    g->shadow_free_s = fmax(g->shadow_free_s, now_s) + g->left_s[0];
    g->latency[g->n_latencies++ % RU_GATE_LATENCIES] = g->shadow_free_s - now_s;
    if (g->n_latencies % TAIL_EVERY == 0) {
        new_tail(g);
    }
    g->waiting++;
}

double ru_gate_lag_s(const ru_gate *g, double now_s)
{
    double work = g->waiting * g->left_s[0], ahead = g->shadow_free_s - now_s;
    if (g->busy) {
        double done = fmin(fmax(now_s - g->op_begun_s - g->stood_s, 0), g->in.service[g->op].s);
        work += g->left_s[g->op] - done;
    }
    return work - (g->busy && g->in.n_service == 1 ? ahead : fmax(ahead, 0));
}

/* Beside a whole request, as a share of an op's time: the mean over the request's time. */
static double mean_loss(const ru_gate *g, uint32_t beside)
{
    double lost = 0;
    for (uint32_t i = 0; i < g->in.n_service; i++) {
        double loss = ru_corun_loss(&g->corun, g->service_kind[i], beside, false);
        lost += g->in.service[i].s * loss;
    }
    return lost / g->left_s[0];
}

/* Abacus: the longest run of ops of the training with which the request still keeps its objective.
 * The cut is found among four candidates a round. */
static void grant(ru_gate *g, double waited_s, uint32_t next)
{
    double slo = g->in.slo_s > 0 ? g->in.slo_s : ABACUS_SLO * g->left_s[0];
    double slack = slo - waited_s - g->left_s[0];
    double loss[RU_CORUN_KINDS];
    for (uint32_t k = 0; k < RU_CORUN_KINDS; k++) {
        loss[k] = mean_loss(g, k);
    }
    double lost = 0, run = 0;
    for (uint32_t i = 0; i < g->in.n_training && run < g->left_s[0]; i++) {
        uint32_t op = (next + i) % g->in.n_training;
        double l = loss[g->training_kind[op]];
        lost += g->in.training[op].s * l / (1 - l);
        if (lost > slack) {
            break;
        }
        run += g->in.training[op].s;
    }
    g->granted_s = run;
}

void ru_gate_begun(ru_gate *g, double now_s, double arrived_s, uint32_t next_training_op)
{
    RU_CHECK(g->waiting > 0 && !g->busy);
    g->waiting--;
    g->busy = true;
    g->op = 0;
    g->op_begun_s = now_s;
    g->stood_s = g->predicted_s = g->lost_s = g->granted_s = 0;
    if (g->in.method == RU_GATE_ABACUS) {
        grant(g, now_s - arrived_s, next_training_op);
    }
}

void ru_gate_service_op(ru_gate *g, double now_s, uint32_t op, const ru_corun_overlap *beside,
                        uint32_t n)
{
    RU_CHECK(g->busy && op == g->op && op < g->in.n_service);
    double lost = now_s - g->op_begun_s - g->in.service[op].s;
    if (n > 0) {
        for (uint32_t i = 0; i < n; i++) {
            g->predicted_s +=
                beside[i].s * ru_corun_loss(&g->corun, g->service_kind[op], beside[i].kind, true);
        }
        g->lost_s += lost;
        ru_corun_learn(&g->corun, g->service_kind[op], beside, n, lost);
    }
    g->op = op + 1;
    g->op_begun_s = now_s;
    g->stood_s = 0;
}

void ru_gate_ended(ru_gate *g, double now_s)
{
    (void)now_s;
    RU_CHECK(g->busy && g->op == g->in.n_service);
    g->busy = false;
    ru_corun_request(&g->corun, g->predicted_s, g->lost_s);
}

/* -- ops of the training --------------------------------------------------------------------------
 */

/* What the request loses beside this op: walked along its next ops, both sides slowed alike. */
static double predicted_loss(const ru_gate *g, uint32_t op, double true_loss, bool sure)
{
    bool known = g->in.method == RU_GATE_ORACLE && !isnan(true_loss);
    double left = g->in.training[op].s, lost = 0, loss = 0;
    for (uint32_t i = 0; i < RU_GATE_AHEAD && left > 0; i++) {
        uint32_t at = g->op + i;
        if (at >= g->in.n_service) {
            break;
        }
        double beside = fmin(left, g->in.service[at].s);
        loss = known ? true_loss
                     : ru_corun_loss(&g->corun, g->service_kind[at], g->training_kind[op], sure);
        lost += beside * loss / (1 - loss);
        left -= beside;
    }
    return lost + left * loss / (1 - loss);
}

/* What a request loses now the training loses later, when the device would be idle: beside it an op
 * must cost less than it brings. Pairs never met may cost as much: they are tried. */
static bool may_by_lag(ru_gate *g, double now_s, uint32_t op, double true_loss)
{
    double mean = predicted_loss(g, op, true_loss, false);
    if (mean > g->in.training[op].s * (1 + 1e-9)) {
        return false;
    }
    double margin = g->in.method == RU_GATE_ORACLE ? 1 : g->corun.margin;
    double loss = margin * predicted_loss(g, op, true_loss, true);
    return ru_gate_lag_s(g, now_s) + loss <= g->budget_s;
}

static bool may_by_orion(ru_gate *g, uint32_t op)
{
    if (g->issued_s > ORION_DEPTH * g->left_s[0]) {
        g->drains = true;
    }
    if (g->drains) {
        return false;
    }
    if (!g->busy) {
        return true;
    }
    const ru_gate_op *t = &g->in.training[op], *s = &g->in.service[g->op];
    bool differ = t->cls != s->cls || t->cls == RU_OP_UNKNOWN;
    return differ && g->issued_units + t->units <= g->in.device;
}

static bool may_beside(ru_gate *g, double now_s, uint32_t op, double true_loss)
{
    const ru_gate_op *t = &g->in.training[op], *s = &g->in.service[g->op];
    switch (g->in.method) {
    case RU_GATE_LAG:
    case RU_GATE_ORACLE:
        return may_by_lag(g, now_s, op, true_loss);
    case RU_GATE_REEF:
        return t->s <= s->s && t->units >= s->units;
    case RU_GATE_ABACUS:
        return g->granted_s > 0;
    case RU_GATE_PRIORITY:
    case RU_GATE_IDLE:
    case RU_GATE_DEDICATED:
        return false;
    case RU_GATE_FREE:
    case RU_GATE_SLICES:
    case RU_GATE_QUOTA:
    case RU_GATE_ORION:
        break;
    }
    return true;
}

bool ru_gate_may(ru_gate *g, double now_s, uint32_t op, double true_loss)
{
    RU_CHECK(op < g->in.n_training);
    if (g->in.method == RU_GATE_ORION) {
        return may_by_orion(g, op);
    }
    if (g->issued > 0 || g->in.method == RU_GATE_DEDICATED) {
        return false; /* one at a time */
    }
    return g->busy && g->op < g->in.n_service ? may_beside(g, now_s, op, true_loss) : true;
}

void ru_gate_issued(ru_gate *g, uint32_t op)
{
    const ru_gate_op *t = &g->in.training[op];
    g->stood_s += g->busy && g->in.n_service == 1 ? predicted_loss(g, op, NAN, false) : 0;
    g->issued++;
    g->issued_s += t->s;
    g->issued_units += t->units;
    g->granted_s -= t->s;
}

void ru_gate_training_op(ru_gate *g, uint32_t op)
{
    RU_CHECK(g->issued > 0);
    g->issued--;
    g->issued_units -= g->in.training[op].units;
    if (g->issued == 0) { /* the sum of durations falls only once all have ended */
        g->issued_s = g->issued_units = 0;
        g->drains = false;
    }
}

void ru_gate_runs(const ru_gate *g, double now_s, bool *service, bool *training)
{
    *service = *training = true;
    if (!g->busy || g->issued == 0) {
        return;
    }
    if (g->in.method == RU_GATE_SLICES) {
        *training = fmod(now_s, 2 * SLICE_S) >= SLICE_S;
        *service = !*training;
    } else if (g->in.method == RU_GATE_IDLE) {
        *training = false;
    }
}

/* -- several trainings ----------------------------------------------------------------------------
 */

double ru_gate_lost_s(double lost_s, double over_s, double ran_s)
{
    return fmax(lost_s * exp(-over_s / LATELY_S) + over_s - ran_s, 0);
}

uint32_t ru_gate_turn(const double *lost_s, uint32_t n, uint32_t last)
{
    uint32_t best = (last + 1) % n;
    for (uint32_t k = 2; k <= n; k++) {
        uint32_t i = (last + k) % n;
        best = lost_s[i] > lost_s[best] ? i : best;
    }
    return best;
}
