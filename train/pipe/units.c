#include "train/pipe/units.h"

#include <string.h>

#include "env/clock.h"
#include "env/process/groups.h"
#include "env/process/memory.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "exec/together.h"
#include "plan/cut/place.h"
#include "plan/row/policy.h"
#include "train/pipe/meter.h"

enum { RUNS = RUI_METER_RUNS };
#define FILL_MIN  0.2  /* where one device cannot even open all: it grows until they fit, */
#define FILL_MORE 1.03 /* ... at least so much at a time */
#define NEARLY    0.99 /* of all memory is used when it is divided as evenly as units allow */

/* Of a micro-batch: medians; memory of the executable that stays, and that a step needs. */
typedef struct unit_times {
    int64_t forward_ns, backward_ns, update_ns, state_bytes, step_bytes;
} unit_times;

struct rui_units {
    rui_meter *m;
    ru_stages stages; /* each unit a part */
    ru_placed placed;
    unit_times *times;
    uint32_t micro;
    int64_t eval_bytes; /* of who leads */

    /* of the question under way */
    double fill; /* what units of a part need together, by what each needs alone */
    uint32_t devices;
    double bytes_per_s;
    int64_t memory_bytes;
    const ru_units_device *named; /* [devices]; NULL: all are alike, with memory_bytes */
    const double *speed;          /* [devices] with `named` */
    bool single_fits;             /* on one device */
    const char *method;           /* of the policy */
    const uint32_t *device;       /* [placed.n] its answer */
};

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the units is full");
}

/* -- one stage alone --------------------------------------------------------------------------- */

/* ns [3, RUNS]; nothing to update takes no time. `sums`: gradients are added to those of a step. */
static ru_status run_once(const ru_stage *s, ru_exe *e, bool sums, int64_t step, int64_t *ns,
                          ru_err *err)
{
    const ru_run_args args = {.seed = 1, .step = step};
    static const ru_phase phases[] = {RU_PHASE_FORWARD, RU_PHASE_BACKWARD, RU_PHASE_UPDATE};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(phases); k++) {
        ru_time begun = ru_clock_now();
        bool runs = phases[k] != RU_PHASE_UPDATE || s->step.n_params > 0;
        RU_TRY(runs ? ru_exe_phase(e, phases[k], &args, err) : RU_OK);
        bool adds = sums && phases[k] == RU_PHASE_BACKWARD;
        RU_TRY(adds ? ru_exe_grads_add(e, e, err) : RU_OK);
        ns[k * RUNS + step % RUNS] = ru_time_since(ru_clock_now(), begun);
    }
    return RU_OK;
}

static ru_status time_stage(const rui_meter *m, const ru_stage *s, unit_times *out, ru_err *err)
{
    int64_t ns[3 * RUNS] = {0};
    ru_exe *e;
    RU_TRY(rui_meter_stage(m, s, &e, err));
    rui_meter_memory memory = rui_meter_count(e);
    out->state_bytes = memory.state;
    out->step_bytes = memory.step;
    if (m->facts != NULL) {
        ru_meter_told told = {0};
        double sums = 0;
        ru_status predicted = rui_meter_predict(m, e, &told, err);
        predicted = predicted == RU_OK && m->job->train.accumulate > 1
                        ? rui_meter_sums(m, s, e, &sums, err)
                        : predicted;
        out->forward_ns = (int64_t)(told.often_ns / 3);
        out->backward_ns = (int64_t)(told.often_ns + sums) - out->forward_ns;
        out->update_ns = (int64_t)told.once_ns;
        ru_exe_close(e);
        return predicted;
    }
    ru_status st = ru_model_init(&m->model, 1, &s->step.graph, e, m->threads, err);
    rui_meter_fill(&s->step.graph, e);
    for (uint32_t k = 0; k <= s->step.n_rates && s->step.n_params > 0; k++) { /* all stays */
        *(float *)ru_exe_input(e, k > 0 ? s->step.rates[k - 1].input : s->step.lr) = 0;
    }
    if (s->step.step.v != 0) {
        *(int64_t *)ru_exe_input(e, s->step.step) = 1;
    }
    for (uint32_t k = 0; k < RUNS + 1 && st == RU_OK; k++) { /* the first one warms up */
        st = run_once(s, e, m->job->train.accumulate > 1, k, ns, err);
    }
    out->forward_ns = rui_meter_median(ns);
    out->backward_ns = rui_meter_median(ns + RUNS);
    out->update_ns = rui_meter_median(ns + 2 * RUNS);
    ru_exe_close(e);
    return st;
}

/* -- all units --------------------------------------------------------------------------------- */

/* The parts of device `d`, in the order in which they go forward, and its turns in a micro-batch.
 */
static uint32_t list_turns(const ru_placed *p, uint32_t d, bool updates, uint32_t *part,
                           ru_exe_turn *turns, uint32_t *n_turns)
{
    uint32_t n = 0;
    *n_turns = 0;
    for (uint32_t k = 0; k < p->n; k++) {
        if (p->device[p->order[k]] == d) {
            turns[(*n_turns)++] = (ru_exe_turn){n, RU_PHASE_FORWARD};
            part[n++] = p->order[k];
        }
    }
    for (uint32_t k = 0; k < p->n; k++) {
        for (uint32_t i = 0; i < n; i++) {
            if (part[i] == p->back[k]) {
                turns[(*n_turns)++] = (ru_exe_turn){i, RU_PHASE_BACKWARD};
            }
        }
    }
    for (uint32_t i = 0; i < n && updates; i++) {
        turns[(*n_turns)++] = (ru_exe_turn){i, RU_PHASE_UPDATE};
    }
    return n;
}

/* What the executables of a device need, whose steps have one memory; *sent: its messages with
 * states. */
static ru_status device_bytes(const rui_units *a, const ru_stages *s, const ru_placed *p,
                              uint32_t d, int64_t *bytes, int64_t *sent, ru_err *err)
{
    ru_arena scratch;
    ru_exe_together *t = NULL;
    uint32_t n = 0, open = 0;
    ru_arena_init(&scratch, 0);
    uint32_t *part = RU_NEW(&scratch, uint32_t, p->n);
    ru_exe **exes = RU_NEW(&scratch, ru_exe *, p->n);
    ru_exe_turn *turns = RU_NEW(&scratch, ru_exe_turn, 3 * (int64_t)p->n);
    ru_exe_order order = {.turns = turns};
    ru_exe_hand *hands;
    ru_status st = part != NULL && exes != NULL && turns != NULL ? RU_OK : full(err);
    n = st == RU_OK ? list_turns(p, d, a->micro == 1, part, turns, &order.n_turns) : 0;
    st = st == RU_OK ? ru_placed_hands(s, part, n, &scratch, &hands, &order.n_hands, err) : st;
    order.hands = st == RU_OK ? hands : NULL;
    *bytes = *sent = 0;
    for (; open < n && st == RU_OK; open += st == RU_OK) {
        st = rui_meter_part(a->m, s, p, part[open], &exes[open], err);
        if (st == RU_OK) {
            rui_meter_memory x = rui_meter_count(exes[open]);
            *bytes += x.state + x.step + (a->micro > 1 ? x.grads : 0); /* sums are apart */
            *sent += rui_meter_message_bytes(x.state);
        }
    }
    st = st == RU_OK ? ru_exe_together_open(exes, n, &order, &t, err) : st;
    *bytes += st == RU_OK ? ru_exe_together_bytes(t) : 0;
    while (open > 0) {
        ru_exe_close(exes[--open]);
    }
    ru_exe_together_close(t);
    ru_arena_fini(&scratch);
    return st;
}

/* Memory of the fullest device with this placement, and which one that is. What crosses stands in
 * executables; the new value of a parameter that two devices have has a place of its own at both
 * ends. */
static ru_status fullest(const rui_units *a, const ru_placing *in, int64_t *bytes, uint32_t *which,
                         ru_err *err)
{
    ru_stages s;
    ru_placed p;
    int64_t sum[RU_PLACE_DEVICES_MAX] = {0}, all_sent = 0;
    RU_TRY(ru_stages_place(&a->m->model.train, &a->m->so, in, a->m->arena, &s, &p, err));
    uint32_t leads = p.device[p.n - 1]; /* it has the loss */
    *bytes = 0;
    *which = 0;
    for (uint32_t i = 0; i < s.n_edges; i++) {
        uint32_t from = p.device[s.edges[i].from], to = p.device[s.edges[i].to];
        bool sent = from != to && s.edges[i].held;
        int64_t piece = sent ? ru_type_bytes(&s.edges[i].type) : 0;
        sum[from] += piece;
        sum[to] += piece;
    }
    for (uint32_t d = 0; d < in->devices; d++) {
        int64_t own, sent;
        ru_status st = device_bytes(a, &s, &p, d, &own, &sent, err);
        if (st == RU_E_MEM) { /* more than is free here */
            *bytes = INT64_MAX;
            return RU_OK;
        }
        RU_TRY(st);
        sum[d] += own + (d != leads ? sent : 0);
        all_sent += d != leads ? sent : 0;
    }
    sum[leads] += all_sent + a->eval_bytes;
    for (uint32_t d = 0; d < in->devices; d++) {
        *which = sum[d] > *bytes ? d : *which;
        *bytes = sum[d] > *bytes ? sum[d] : *bytes;
    }
    return RU_OK;
}

static int64_t bytes_of(const rui_units *a, uint32_t unit)
{
    const unit_times *t = &a->times[unit];
    int64_t eval = unit + 1 == a->placed.n ? a->eval_bytes : 0; /* who has the loss leads */
    return t->state_bytes + (int64_t)(a->fill * (double)t->step_bytes) + eval;
}

static ru_status measure(rui_units *a, ru_err *err)
{
    const ru_placing each = {0};
    RU_TRY(ru_stages_place(&a->m->model.train, &a->m->so, &each, a->m->arena, &a->stages,
                           &a->placed, err));
    a->times = RU_NEW(a->m->arena, unit_times, a->placed.n);
    if (a->times == NULL) {
        return full(err);
    }
    for (uint32_t k = 0; k < a->placed.n; k++) {
        RU_TRY(time_stage(a->m, &a->stages.at[k], &a->times[k], err));
    }
    return RU_OK;
}

/* -- the policy's input ------------------------------------------------------------------------
 */

/* Unit k goes forward as op k, and backward, with its update, as op n + k of the same group. */
static void put_ops(const rui_units *a, ru_json *j)
{
    uint32_t n = a->placed.n;
    char name[300];
    ru_json_open(j, "ops", '[');
    for (uint32_t k = 0; k < 2 * n; k++) {
        const unit_times *t = &a->times[k % n];
        bool back = k >= n;
        ru_text text = ru_text_into(name, sizeof name);
        ru_text_putf(&text, "%.200s%s", a->placed.name[k % n], back ? " back" : "");
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "name", name);
        rui_meter_put_ns(
            j, "time", back ? t->backward_ns * a->micro + t->update_ns : t->forward_ns * a->micro);
        ru_json_i64(j, "memory", back ? 0 : bytes_of(a, k));
        ru_json_i64(j, "group", k % n);
        ru_json_close(j);
    }
    ru_json_close(j);
}

/* value > 0: that of all edges with this number, which goes to a device once. */
static void put_edge(ru_json *j, uint32_t from, uint32_t to, int64_t bytes, uint32_t value)
{
    ru_json_open(j, NULL, '{');
    ru_json_i64(j, "from", from);
    ru_json_i64(j, "to", to);
    ru_json_i64(j, "bytes", bytes);
    if (value > 0) {
        ru_json_i64(j, "value", value);
    }
    ru_json_close(j);
}

/* Number of what an edge brings forward; 0: a parameter that both have. */
static uint32_t value_of(const rui_units *a, uint32_t edge)
{
    const ru_stage_edge *e = a->stages.edges;
    uint32_t first = 0;
    while (e[first].held || e[first].from != e[edge].from || e[first].out.v != e[edge].out.v) {
        first++;
    }
    return first + 1;
}

/* Forward in a step: of a parameter that both have its new value. */
static int64_t sent_bytes(const rui_units *a, const ru_stage_edge *e)
{
    return ru_type_bytes(&e->type) * (e->held ? 1 : a->micro);
}

static void put_edges(const rui_units *a, ru_json *j)
{
    uint32_t n = a->placed.n;
    ru_json_open(j, "edges", '[');
    for (uint32_t i = 0; i < a->stages.n_edges; i++) {
        const ru_stage_edge *e = &a->stages.edges[i];
        put_edge(j, e->from, e->to, sent_bytes(a, e), e->held ? 0 : value_of(a, i));
        if (e->grad.v != 0) {
            put_edge(j, n + e->to, n + e->from, ru_type_bytes(&e->type) * a->micro, 0);
        }
    }
    for (uint32_t k = 0; k < n; k++) { /* also the loss, behind the last one */
        put_edge(j, k, n + k, 0, 0);
    }
    ru_json_close(j);
}

/* With how many cores the worker computes whose times were measured; its network takes from them,
 * since under a quota, or with as many threads as cores, it has no others. */
static double cores_of(const rui_meter *m)
{
    int64_t quota_ns = 0, period_ns = 0;
    double cores = m->threads > 0 ? m->threads : ru_pool_cores();
    if (m->facts != NULL) {
        return m->cores > 0 ? m->cores : cores;
    }
    bool some = ru_groups_quota(m->arena, &quota_ns, &period_ns) && period_ns > 0;
    double quota = some ? (double)quota_ns / (double)period_ns : cores;
    return quota > 0 && quota < cores ? quota : cores;
}

static void put_question(const rui_units *a, ru_json *j)
{
    const ru_job_placed *p = &a->m->job->train.placed;
    char name[32];
    RU_CHECK(a->named == NULL || a->speed != NULL);
    ru_json_str(j, "method", a->method);
    rui_meter_put_ns(j, "latency", p->latency_ns);
    ru_json_f64(j, "bytes_per_s", a->bytes_per_s);
    ru_json_f64(j, "byte_ns", p->byte_ns / cores_of(a->m));
    ru_json_open(j, "devices", '[');
    for (uint32_t d = 0; d < a->devices; d++) {
        ru_text text = ru_text_into(name, sizeof name);
        ru_text_putf(&text, "device %u", d + 1);
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "name", a->named != NULL ? a->named[d].name : name);
        ru_json_i64(j, "memory", a->named != NULL ? a->named[d].memory_bytes : a->memory_bytes);
        ru_json_f64(j, "speed", a->named != NULL ? a->speed[d] : 1);
        ru_json_close(j);
    }
    ru_json_close(j);
    put_ops(a, j);
    put_edges(a, j);
}

/* -- its answer --------------------------------------------------------------------------------
 */

/* All units on one device. */
static int64_t together_ns(const rui_units *a)
{
    int64_t sum = 0;
    for (uint32_t k = 0; k < a->placed.n; k++) {
        const unit_times *t = &a->times[k];
        sum += (t->forward_ns + t->backward_ns) * a->micro + t->update_ns;
    }
    return sum;
}

void rui_units_by_start(const int64_t *start_ns, uint32_t n, uint32_t *order)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t to = k;
        for (; to > 0 && start_ns[order[to - 1]] > start_ns[k]; to--) {
            order[to] = order[to - 1];
        }
        order[to] = k;
    }
}

static ru_status take(const rui_units *a, const ru_place_plan *p, ru_units_choice *c, ru_err *err)
{
    uint32_t n = a->placed.n;
    ru_conf_pair *at = RU_NEW(a->m->arena, ru_conf_pair, n);
    uint32_t *order = RU_NEW(a->m->arena, uint32_t, n), *device = RU_NEW(a->m->arena, uint32_t, n);
    const char **behind = RU_NEW(a->m->arena, const char *, n);
    uint64_t used = 0;
    if (behind == NULL || at == NULL || order == NULL || device == NULL) {
        return full(err);
    }
    rui_units_by_start(p->start_ns, n, order);
    rui_units_by_start(p->start_ns + n, n, device);
    for (uint32_t k = 0; k < n; k++) {
        behind[k] = a->placed.name[device[k]];
    }
    for (uint32_t k = 0; k < n; k++) {
        at[k] = (ru_conf_pair){a->placed.name[order[k]], p->device[order[k]] + 1};
        device[k] = p->device[k];
        used |= UINT64_C(1) << p->device[order[k]];
    }
    *c = (ru_units_choice){.devices = {.at = at, .n = n},
                           .back = {.at = behind, .n = n},
                           .n = n,
                           .step_s = 1e-9 * (double)p->step_ns};
    for (; used != 0; used &= used - 1) {
        c->used++;
    }
    const ru_placed placed = {.device = device, .order = order, .n = n};
    c->single_s = a->single_fits ? 1e-9 * (double)together_ns(a) : 0;
    for (uint32_t i = 0; i < a->stages.n_edges; i++) {
        const ru_stage_edge *e = &a->stages.edges[i];
        bool crosses = p->device[e->from] != p->device[e->to];
        int64_t back = e->grad.v != 0 ? ru_type_bytes(&e->type) * a->micro : 0;
        bool again = ru_placed_lead(&a->stages, &placed, i) != i;
        c->sent_bytes += crosses ? (again ? 0 : sent_bytes(a, e)) + back : 0;
    }
    return RU_OK;
}

static ru_status ask(rui_units *a, ru_units_choice *out, ru_err *err)
{
    const ru_place_plan *p;
    const void *plan;
    ru_text text = ru_text_arena(a->m->arena);
    ru_json j = ru_json_into(&text);
    ru_json_open(&j, NULL, '{');
    put_question(a, &j);
    ru_json_close(&j);
    RU_TRY(rui_meter_ask(&ru_policy_place, &text, a->m->arena, &plan, err));
    p = plan;
    a->device = p->device;
    RU_TRY(take(a, p, out, err));
    out->asked = text.p;
    return RU_OK;
}

/* Of `bytes` that one device needs for all. */
static double fill_of(const rui_units *a, int64_t bytes)
{
    double together = (double)bytes, alone = 0;
    for (uint32_t k = 0; k < a->placed.n; k++) {
        together -= (double)a->times[k].state_bytes;
        alone += (double)a->times[k].step_bytes;
    }
    return together > 0 && alone > 0 ? together / alone : 0.1;
}

/* The share with which the last answer would have counted `bytes` for this device, which are more
 * than it counted. INT64_MAX: not known. */
static double learned(const rui_units *a, uint32_t device, int64_t bytes)
{
    double stays = 0, alone = 0, least = FILL_MORE * a->fill;
    for (uint32_t k = 0; k < a->placed.n; k++) {
        bool here = a->device[k] == device;
        stays += here ? (double)bytes_of(a, k) - a->fill * (double)a->times[k].step_bytes : 0;
        alone += here ? (double)a->times[k].step_bytes : 0;
    }
    double fill = bytes < INT64_MAX && alone > 0 ? ((double)bytes - stays) / alone : 0;
    return fill > least ? fill : least;
}

/* The share with which devices must divide all units nearly evenly to hold them; 0: with none. */
static double tightest(const rui_units *a)
{
    double room = NEARLY * (double)a->memory_bytes * a->devices, alone = 0;
    for (uint32_t k = 0; k < a->placed.n; k++) {
        const unit_times *t = &a->times[k];
        room -= (double)bytes_of(a, k) - a->fill * (double)t->step_bytes;
        alone += (double)t->step_bytes;
    }
    return alone > 0 && room > 0 ? room / alone : 0;
}

/* Units that compute after each other use the same memory, so how much they need together is known
 * only when they are. What needs too much is asked for as consecutive layers, which make few parts,
 * then again with units as large as they turned out to be. */
static ru_status ask_until_it_fits(rui_units *a, ru_units_choice *out, ru_err *err)
{
    int64_t most = a->memory_bytes, bytes = 0;
    uint32_t which = 0;
    const ru_placing one = {.devices = 1};
    RU_TRY(most > 0 ? fullest(a, &one, &bytes, &which, err) : RU_OK);
    a->single_fits = bytes <= most;
    a->fill = most == 0 ? 1 : bytes < INT64_MAX ? fill_of(a, bytes - a->eval_bytes) : FILL_MIN;
    double most_fill = most > 0 ? tightest(a) : 0; /* the first one is more where one device has
                                                      many parts */
    a->fill = most_fill > 0 && a->fill > most_fill ? most_fill : a->fill;
    double next = 0; /* share; 0: nothing was learned since it is this one */
    ru_status st = RU_OK;
    for (uint32_t turn = 0; st == RU_OK; turn++) {
        bool splits = turn % 2 == 1;
        a->method = splits ? "split" : "search";
        st = ask(a, out, err);
        bool none = st == RU_E_INFEASIBLE && splits; /* consecutive layers; others may fit */
        const ru_placing in = {
            .at = out->devices.at, .n = out->devices.n, .devices = a->devices, .idle = true};
        RU_TRY(st == RU_OK ? fullest(a, &in, &bytes, &which, err) : RU_OK);
        if (st == RU_OK && (most == 0 || bytes <= most)) {
            out->memory_bytes = bytes < INT64_MAX ? bytes : -1;
            return RU_OK;
        }
        double more = st == RU_OK ? learned(a, which, bytes) : next;
        next = next > 0 && next < more ? next : more;
        next = a->fill < most_fill && next > most_fill ? most_fill : next;
        a->fill = splits ? next : a->fill;
        next = splits ? 0 : next;
        st = none ? RU_OK : st;
    }
    return st == RU_E_INFEASIBLE
               ? ru_err_wrap(
                     err, st, "%u devices of %lld bytes (%s) cannot hold the measured layers",
                     a->devices, (long long)most,
                     ru_units_memory(a->m->job) > 0 ? "train.memory" : "their share of memory")
               : st;
}

/* What the job names in train.pipeline.facts, if it does: units compute, reading is not theirs. */
static ru_status open_facts(rui_meter *m, ru_err *err)
{
    int64_t read_ns = 0;
    return m->job->train.pipeline.facts[0] != '\0' ? rui_meter_facts(m, &read_ns, err) : RU_OK;
}

ru_status rui_units_measure(rui_meter *m, rui_units **out, ru_err *err)
{
    int64_t micro = m->job->train.accumulate;
    rui_units *u = RU_NEW(m->arena, rui_units, 1);
    if (u == NULL) {
        return full(err);
    }
    rui_meter_memory eval = rui_meter_eval(m);
    *u = (rui_units){
        .m = m, .micro = micro > 1 ? (uint32_t)micro : 1, .eval_bytes = eval.state + eval.step};
    *out = u;
    return measure(u, err);
}

ru_status rui_units_ask(rui_units *u, uint32_t devices, double bytes_per_s, int64_t memory_bytes,
                        ru_units_choice *out, ru_err *err)
{
    RU_CHECK(devices >= 1 && devices <= RU_PLACE_DEVICES_MAX);
    u->devices = devices;
    u->bytes_per_s = bytes_per_s;
    u->memory_bytes = memory_bytes;
    return ask_until_it_fits(u, out, err);
}

int64_t ru_units_memory(const ru_job *job)
{
    int64_t own = job->train.memory_bytes;
    return own > 0 ? own : job->train.placed.memory_bytes;
}

/* Of a worker beside its part of a step, which peaks 26 to 36 MB above its plan; and of the
 * launcher. */
#define BESIDE_BYTES INT64_C(40000000)

/* What control groups and the machine allow; 0: not known. */
static int64_t available(ru_arena *arena)
{
    int64_t limit = ru_memory_limit_bytes(arena), machine = ru_self_memory_bytes();
    return limit > 0 && (machine == 0 || limit < machine) ? limit : machine;
}

int64_t ru_units_share(const ru_job *job, uint32_t workers, ru_arena *arena)
{
    int64_t all = available(arena), own = ru_units_memory(job);
    int64_t share = (all - BESIDE_BYTES) / workers - BESIDE_BYTES;
    return own > 0 || all == 0 ? own : share > 1 ? share : 1;
}

/* As fast as they can be, if that fits into the memory of `here` workers of this machine; else
 * within their share of it, or within all that there is beside the workers alone. */
static ru_status choose_within(rui_units *u, uint32_t devices, uint32_t here, ru_units_choice *out,
                               ru_err *err)
{
    const ru_job *job = u->m->job;
    double bytes_per_s = job->train.placed.bytes_per_s;
    int64_t own = ru_units_memory(job), all = here > 0 ? available(u->m->arena) : 0;
    int64_t most = all > 0 ? all / here - BESIDE_BYTES : 0;
    const int64_t bounds[] = {ru_units_share(job, here > 0 ? here : 1, u->m->arena),
                              most > 1 ? most : 1};
    RU_TRY(rui_units_ask(u, devices, bytes_per_s, own, out, err));
    bool fits = out->memory_bytes >= 0 && out->memory_bytes <= bounds[0];
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bounds) && own == 0 && all > 0 && !fits; k++) {
        st = rui_units_ask(u, devices, bytes_per_s, bounds[k], out, err);
        fits = st != RU_E_INFEASIBLE;
    }
    return st;
}

ru_status ru_units_choose(const ru_job *job, uint32_t threads, uint32_t devices, uint32_t here,
                          ru_arena *arena, ru_units_choice *out, ru_err *err)
{
    rui_meter m = {.job = job, .arena = arena, .threads = threads};
    rui_units *u;
    if (devices > RU_PLACE_DEVICES_MAX) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "Rubato places layers on at most %d devices, and the job has %u workers; "
                       "start fewer, or name the layers of each in train.placed.devices",
                       RU_PLACE_DEVICES_MAX, devices);
    }
    ru_status st = rui_meter_open(&m, err);
    st = st == RU_OK ? open_facts(&m, err) : st;
    st = st == RU_OK ? rui_units_measure(&m, &u, err) : st;
    st = st == RU_OK ? choose_within(u, devices, here, out, err) : st;
    rui_meter_close(&m);
    return st;
}

/* -- devices of several types ------------------------------------------------------------------ */

/* Times of the units on a type. */
static ru_status predict_on(rui_meter *m, const char *type, rui_units **out, ru_err *err)
{
    ru_job *job = RU_NEW(m->arena, ru_job, 1);
    if (job == NULL) {
        return full(err);
    }
    *job = *m->job;
    job->train.pipeline.type = type;
    m->job = job;
    RU_TRY(open_facts(m, err));
    return rui_units_measure(m, out, err);
}

static ru_status put_devices(rui_meter *m, const ru_units_device *at, uint32_t n,
                             double bytes_per_s, ru_json *j, ru_err *err)
{
    double *speed = RU_NEW(m->arena, double, n);
    rui_units *first;
    if (speed == NULL) {
        return full(err);
    }
    RU_TRY(predict_on(m, at[0].type, &first, err));
    speed[0] = 1;
    for (uint32_t d = 1; d < n; d++) {
        uint32_t like = 0;
        rui_units *u = NULL;
        while (strcmp(at[like].type, at[d].type) != 0) {
            like++;
        }
        RU_TRY(like == d ? predict_on(m, at[d].type, &u, err) : RU_OK);
        int64_t ns = u != NULL ? together_ns(u) : 0;
        speed[d] = u == NULL ? speed[like] : ns > 0 ? (double)together_ns(first) / (double)ns : 1;
    }
    first->method = "search";
    first->fill = 1;
    first->devices = n;
    first->named = at;
    first->speed = speed;
    first->bytes_per_s = bytes_per_s;
    put_question(first, j);
    return RU_OK;
}

ru_status ru_units_question(const ru_job *job, uint32_t threads, const ru_units_device *at,
                            uint32_t n, double bytes_per_s, ru_arena *arena, ru_json *j,
                            ru_err *err)
{
    rui_meter m = {.job = job, .arena = arena, .threads = threads};
    RU_CHECK(n >= 1 && n <= RU_PLACE_DEVICES_MAX);
    ru_status st = rui_meter_open(&m, err);
    st = st == RU_OK ? put_devices(&m, at, n, bytes_per_s, j, err) : st;
    rui_meter_close(&m);
    return st;
}
