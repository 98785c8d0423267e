#include "serve/beside/beside.h"

#include "base/conf.h"
#include "base/log.h"
#include "env/process/memory.h"
#include "env/process/self.h"
#include "plan/serve/gate.h"

enum { TRAININGS = 4 };
#define LEAST_BYTES INT64_C(64000000) /* less holds no training */

typedef struct training {
    ru_beside *ring; /* NULL: free */
    int64_t memory_bytes;
    ru_time since;
    int64_t run_ns; /* that its ops had run at `since` */
} training;

struct rui_besides {
    training of[TRAININGS];
    double lost_s[TRAININGS]; /* of progress, lately */
    uint32_t turn;            /* whose ops may be beside the batch */
    bool waits;               /* the next batch has arrived already */
};

typedef struct asked {
    int64_t pid, memory_bytes;
} asked;

static const ru_conf_field asked_fields[] = {
    RU_ROW(I64, asked, pid, NULL, "process of the training", RU_IN(1, 1e9)),
    RU_ROW(I64, asked, memory_bytes, "0", "that it may have", RU_IN(0, 1e15)),
};
static const ru_conf_table asked_table = RU_TABLE("beside", asked, asked_fields, NULL);

/* The rings of trainings that have ended are free. */
static void sweep(struct rui_besides *b)
{
    for (uint32_t k = 0; k < TRAININGS; k++) {
        ru_beside *ring = b->of[k].ring;
        if (ring != NULL && !ru_beside_other_lives(ring)) {
            ru_log(RU_LOG_INFO, "serve", "beside_gone", "training %lld has left",
                   (long long)ru_beside_reader(ring));
            ru_beside_close(ring);
            b->of[k] = (training){0};
        }
    }
}

/* A training alone would run all the time. */
static void new_turn(struct rui_besides *b, ru_time now)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < TRAININGS; k++) {
        training *t = &b->of[k];
        if (t->ring == NULL) {
            b->lost_s[k] = -1;
            continue;
        }
        int64_t run_ns = ru_beside_told(t->ring).run_ns, over_ns = ru_time_since(now, t->since);
        b->lost_s[k] = ru_gate_lost_s(b->lost_s[k], (double)over_ns * 1e-9,
                                      (double)(run_ns - t->run_ns) * 1e-9);
        t->since = now;
        t->run_ns = run_ns;
        n++;
    }
    if (n > 0) {
        b->turn = ru_gate_turn(b->lost_s, TRAININGS, b->turn);
    }
}

static void put(struct rui_besides *b, ru_beside_kind kind)
{
    ru_time now = ru_clock_now();
    if (kind == RU_BESIDE_BEGUN) {
        new_turn(b, now);
    }
    for (uint32_t k = 0; k < TRAININGS; k++) {
        if (b->of[k].ring != NULL) {
            ru_beside_put(b->of[k].ring, kind, k == b->turn, now);
        }
    }
}

void rui_beside_waits(rui_version *v)
{
    struct rui_besides *b = v->server->besides;
    if (b != NULL && !b->waits && v->n_idle == 0) {
        b->waits = true;
        put(b, RU_BESIDE_ARRIVED);
    }
}

void rui_beside_begins(ru_server *s)
{
    struct rui_besides *b = s->besides;
    if (b != NULL) {
        if (!b->waits) {
            put(b, RU_BESIDE_ARRIVED);
        }
        b->waits = false;
        put(b, RU_BESIDE_BEGUN);
    }
}

void rui_beside_ended(ru_server *s)
{
    if (s->besides != NULL) {
        put(s->besides, RU_BESIDE_ENDED);
    }
}

static ru_beside_facts facts_of(const rui_version *v)
{
    const ru_server_options *o = &v->server->opt;
    const rui_stats *s = &v->stats;
    uint64_t n = v->n_came < RUI_CAME_MAX ? v->n_came : RUI_CAME_MAX, batches = 0;
    int64_t ns = 0;
    for (uint32_t k = 0; k < RU_SERVE_SIZES; k++) {
        batches += s->batches_of[k];
        ns += s->batch_ns[k];
    }
    double span =
        n > 1
            ? (double)ru_time_since(ru_clock_now(), v->came[(v->n_came - n) % RUI_CAME_MAX]) * 1e-9
            : 0;
    double requests = batches > 0 ? (double)s->rows / (double)batches : 1;
    return (ru_beside_facts){
        .service_s = batches > 16 ? (double)ns * 1e-9 / (double)batches
                                  : (double)ru_served_service_ns(v->served, 1) * 1e-9,
        .rate = span > 0 ? (double)n / span / (requests > 1 ? requests : 1) : 0,
        .promise_s = (double)o->slo_ns * 1e-9,
        .quantile = o->slo_ns > 0 ? o->slo_q : 0.99,
        .units = o->served.exe.threads > 0 ? o->served.exe.threads : 1};
}

/* The model that a training may be beside; NULL: none, and why. */
static rui_version *version_of(ru_server *s, const char **why)
{
    *why = "no model is ready; come again when one is";
    for (rui_version *v = s->versions; v != NULL; v = v->next) {
        if (v->state == RUI_READY) {
            *why = v->next != NULL     ? "the server has several models; a training goes beside one"
                   : v->far != NULL    ? "the batches of this server are computed by functions"
                   : v->scribe != NULL ? "the model writes texts; a training goes beside batches"
                   : v->instances > 1
                       ? "a training goes beside one instance: start the server with "
                         "--instances 1"
                       : NULL;
            return *why == NULL ? v : NULL;
        }
    }
    return NULL;
}

/* Bounds beside the server's own memory. */
static ru_status bound(const struct rui_besides *b, int64_t *bytes, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    int64_t all = ru_self_memory_bytes(), limit = ru_memory_limit_bytes(&scratch), others = 0;
    ru_arena_fini(&scratch);
    all = limit > 0 && limit < all ? limit : all;
    for (uint32_t k = 0; k < TRAININGS; k++) {
        others += b->of[k].memory_bytes;
    }
    int64_t own = ru_self_rss_peak_bytes(), left = all - own - others;
    int64_t least = *bytes > 0 ? *bytes : LEAST_BYTES;
    if (least > left) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "%lld MB for this training do not fit: of %lld MB the server has %lld and "
                       "the trainings beside it may have %lld; give it less (--memory MB)",
                       (long long)(least / 1000000), (long long)(all / 1000000),
                       (long long)(own / 1000000), (long long)(others / 1000000));
    }
    *bytes = *bytes > 0 ? *bytes : left / 2;
    return RU_OK;
}

static ru_status open_ring(ru_server *s, rui_version *v, const ru_http_request *r, training **out,
                           ru_err *err)
{
    ru_arena scratch;
    ru_conf *c;
    asked a;
    ru_arena_init(&scratch, 0);
    ru_status st = ru_conf_new(&asked_table, &scratch, &c, err);
    st = st == RU_OK ? ru_conf_add_json(c, "request", (const char *)r->body, r->body_bytes, err)
                     : st;
    st = st == RU_OK ? ru_conf_apply(c, &a, err) : st;
    ru_arena_fini(&scratch);
    RU_TRY(st);
    if (s->besides == NULL) {
        s->besides = RU_NEW(s->arena, struct rui_besides, 1);
    }
    if (s->besides == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a training beside the server");
    }
    sweep(s->besides);
    const ru_beside_facts facts = facts_of(v);
    for (uint32_t k = 0; k < TRAININGS; k++) {
        training *t = &s->besides->of[k];
        if (t->ring == NULL) {
            RU_TRY(bound(s->besides, &a.memory_bytes, err));
            RU_TRY(ru_beside_open(a.pid, &facts, &t->ring, err));
            t->memory_bytes = a.memory_bytes;
            t->since = ru_clock_now();
            s->besides->lost_s[k] = 0;
            *out = t;
            ru_log(RU_LOG_INFO, "serve", "beside", "training %lld is beside %s", (long long)a.pid,
                   v->model);
            return RU_OK;
        }
    }
    return RU_FAIL(err, RU_E_LIMIT, "%d trainings are beside this server already", TRAININGS);
}

void rui_beside_attach(ru_server *s, ru_http_request *r)
{
    const char *why;
    ru_err err = {0};
    training *t = NULL;
    char text[512];
    rui_version *v = version_of(s, &why);
    if (v == NULL) {
        ru_http_refuse(r, 400, why, 0);
        return;
    }
    if (open_ring(s, v, r, &t, &err) != RU_OK) {
        ru_http_refuse(r, 400, err.text, 0);
        return;
    }
    ru_text answer = ru_text_into(text, sizeof text);
    ru_text_put(&answer, "{\"handle\":");
    ru_text_json(&answer, ru_str_c(ru_beside_handle(t->ring)));
    ru_text_put(&answer, ",\"model\":");
    ru_text_json(&answer, ru_str_c(v->model));
    ru_text_putf(&answer, ",\"memory_bytes\":%lld}", (long long)t->memory_bytes);
    rui_give_copy(r, "application/json", answer);
}

void rui_beside_close(ru_server *s)
{
    for (uint32_t k = 0; s->besides != NULL && k < TRAININGS; k++) {
        ru_beside_close(s->besides->of[k].ring);
        s->besides->of[k] = (training){0};
    }
}

static void put_training(const training *of, double lost_s, const ru_tell *o)
{
    const ru_beside *ring = of->ring;
    ru_text *t = o->text;
    ru_beside_figures f = ru_beside_told(ring);
    double ops = f.ops > 0 ? (double)f.ops : 1;
    ru_tell_open(o, NULL, '{');
    ru_tell_i64(o, "process", ru_beside_reader(ring));
    ru_tell_i64(o, "steps", f.steps);
    ru_tell_i64(o, "ops", f.ops);
    ru_tell_f64(o, "held_share", (double)f.held / ops);
    ru_tell_ns(o, "held_s", (double)f.held_ns);
    ru_tell_ns(o, "decision_s", (double)f.decide_ns / ops);
    ru_tell_ns(o, "decision_p99_s", (double)f.decide_p99_ns);
    ru_tell_ns(o, "ran_s", (double)f.run_ns);
    ru_tell_f64(o, "lag_s", f.lag_s);
    ru_tell_f64(o, "lag_allowed_s", f.budget_s);
    ru_tell_f64(o, "slowdown_predicted", f.predicted);
    ru_tell_f64(o, "slowdown_measured", f.measured);
    ru_tell_i64(o, "batches", f.pairs);
    ru_tell_i64(o, "parts", f.parts);
    ru_tell_i64(o, "memory_bytes", of->memory_bytes);
    ru_tell_f64(o, "lost_progress_s", lost_s);
    ru_tell_close(o);
    ru_text_putf(t,
                 "training %lld: %lld steps, %lld ops, %.3g %% of them held, for %.3g s in all\n",
                 (long long)ru_beside_reader(ring), (long long)f.steps, (long long)f.ops,
                 100 * (double)f.held / ops, (double)f.held_ns * 1e-9);
    if (f.parts > 1) {
        ru_text_putf(t, "  it computes each of its batches in %lld parts\n", (long long)f.parts);
    }
    ru_text_putf(t, "  a decision takes %.3g us, p99 %.3g us; ops ran for %.4g s\n",
                 (double)f.decide_ns * 1e-3 / ops, (double)f.decide_p99_ns * 1e-3,
                 (double)f.run_ns * 1e-9);
    ru_text_putf(t, "  lag of the server behind its shadow: %.3g ms, allowed %.3g ms\n",
                 f.lag_s * 1e3, f.budget_s * 1e3);
    ru_text_putf(t,
                 "  slowdown of a batch beside ops: predicted %.3g, measured %.3g, %lld batches\n",
                 f.predicted, f.measured, (long long)f.pairs);
    ru_text_putf(t, "  it may have %lld MB; of the last seconds it has lost %.3g\n",
                 (long long)(of->memory_bytes / 1000000), lost_s);
}

void rui_beside_explain(ru_server *s, const ru_tell *o)
{
    ru_text *t = o->text;
    if (s->besides == NULL) {
        return;
    }
    sweep(s->besides);
    ru_tell_open(o, "trainings", '[');
    for (uint32_t k = 0; k < TRAININGS; k++) {
        if (s->besides->of[k].ring != NULL) {
            ru_text_put(t, t->n == 0 ? "trainings on the cores of this server\n" : "");
            put_training(&s->besides->of[k], s->besides->lost_s[k], o);
        }
    }
    ru_tell_close(o);
}
