#include "serve/beside/beside.h"

#include "base/conf.h"
#include "base/log.h"

enum { TRAININGS = 4 };

struct rui_besides {
    ru_beside *ring[TRAININGS]; /* NULL: free */
    bool waits;                 /* the next batch has arrived already */
};

typedef struct asked {
    int64_t pid;
} asked;

static const ru_conf_field asked_fields[] = {
    RU_ROW(I64, asked, pid, NULL, "process of the training", RU_IN(1, 1e9)),
};
static const ru_conf_table asked_table = RU_TABLE("beside", asked, asked_fields, NULL);

/* The rings of trainings that have ended are free. */
static void sweep(struct rui_besides *b)
{
    for (uint32_t k = 0; k < TRAININGS; k++) {
        if (b->ring[k] != NULL && !ru_beside_other_lives(b->ring[k])) {
            ru_log(RU_LOG_INFO, "serve", "beside_gone", "training %lld has left",
                   (long long)ru_beside_reader(b->ring[k]));
            ru_beside_close(b->ring[k]);
            b->ring[k] = NULL;
        }
    }
}

static void put(struct rui_besides *b, ru_beside_kind kind)
{
    ru_time now = ru_clock_now();
    for (uint32_t k = 0; k < TRAININGS; k++) {
        if (b->ring[k] != NULL) {
            ru_beside_put(b->ring[k], kind, 0, now);
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

static ru_status open_ring(ru_server *s, rui_version *v, const ru_http_request *r, ru_beside **out,
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
        if (s->besides->ring[k] == NULL) {
            RU_TRY(ru_beside_open(a.pid, &facts, &s->besides->ring[k], err));
            *out = s->besides->ring[k];
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
    ru_beside *ring = NULL;
    char text[512];
    rui_version *v = version_of(s, &why);
    if (v == NULL) {
        ru_http_refuse(r, 400, why, 0);
        return;
    }
    if (open_ring(s, v, r, &ring, &err) != RU_OK) {
        ru_http_refuse(r, 400, err.text, 0);
        return;
    }
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_put(&t, "{\"handle\":");
    ru_text_json(&t, ru_str_c(ru_beside_handle(ring)));
    ru_text_put(&t, ",\"model\":");
    ru_text_json(&t, ru_str_c(v->model));
    ru_text_put(&t, "}");
    rui_give_copy(r, "application/json", t);
}

void rui_beside_close(ru_server *s)
{
    for (uint32_t k = 0; s->besides != NULL && k < TRAININGS; k++) {
        ru_beside_close(s->besides->ring[k]);
        s->besides->ring[k] = NULL;
    }
}

static void put_training(const ru_beside *ring, const ru_tell *o)
{
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
    ru_tell_ns(o, "ran_s", (double)f.run_ns);
    ru_tell_f64(o, "lag_s", f.lag_s);
    ru_tell_f64(o, "lag_allowed_s", f.budget_s);
    ru_tell_f64(o, "slowdown_predicted", f.predicted);
    ru_tell_f64(o, "slowdown_measured", f.measured);
    ru_tell_i64(o, "batches", f.pairs);
    ru_tell_close(o);
    ru_text_putf(t,
                 "training %lld: %lld steps, %lld ops, %.3g %% of them held, for %.3g s in all\n",
                 (long long)ru_beside_reader(ring), (long long)f.steps, (long long)f.ops,
                 100 * (double)f.held / ops, (double)f.held_ns * 1e-9);
    ru_text_putf(t, "  a decision takes %.3g us; ops ran for %.4g s\n",
                 (double)f.decide_ns * 1e-3 / ops, (double)f.run_ns * 1e-9);
    ru_text_putf(t, "  lag of the server behind its shadow: %.3g ms, allowed %.3g ms\n",
                 f.lag_s * 1e3, f.budget_s * 1e3);
    ru_text_putf(t,
                 "  slowdown of a batch beside ops: predicted %.3g, measured %.3g, %lld batches\n",
                 f.predicted, f.measured, (long long)f.pairs);
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
        if (s->besides->ring[k] != NULL) {
            ru_text_put(t, t->n == 0 ? "trainings on the cores of this server\n" : "");
            put_training(s->besides->ring[k], o);
        }
    }
    ru_tell_close(o);
}
