/* Which path asks for what. */
#include <string.h>

#include "base/json.h"
#include "serve/beside/beside.h"
#include "serve/far/far.h"
#include "serve/server_impl.h"

enum { PARTS_MAX = 8 };

static const char SERVER[] =
    "{\"name\":\"rubato\",\"version\":\"" RU_VERSION
    "\",\"extensions\":[\"binary_tensor_data\",\"statistics\",\"parameters\","
    "\"schedule_policy\",\"model_repository\",\"model_configuration\"]}";

/* -- answers of one piece -----------------------------------------------------------------------
 */

static void done_text(void *self)
{
    ru_arena a = *(ru_arena *)self;
    ru_arena_fini(&a);
}

/* The text lives in an arena that stands inside itself. */
static ru_arena *page_arena(void)
{
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_arena *own = RU_NEW(&a, ru_arena, 1);
    if (own != NULL) {
        *own = a;
    }
    return own;
}

void rui_give_text(ru_http_request *r, const char *type, ru_str text, void (*done)(void *self),
                   void *self)
{
    const ru_http_field fields[] = {{"Content-Type", type}};
    const ru_http_span span = {text.p, text.n};
    ru_http_answer(r, &(ru_http_reply){.status = 200,
                                       .fields = fields,
                                       .n_fields = 1,
                                       .spans = &span,
                                       .n_spans = 1,
                                       .done = done,
                                       .self = self});
}

/* Takes the arena, where the text stands; NULL: there was no memory for it. */
static void give_taken(ru_http_request *r, const char *type, ru_arena *arena, ru_text t)
{
    if (arena == NULL || t.cut) {
        if (arena != NULL) {
            done_text(arena);
        }
        ru_http_refuse(r, 503, "no memory for the answer", 1);
        return;
    }
    rui_give_text(r, type, ru_str_n(t.p, t.n), done_text, arena);
}

typedef void (*page_fn)(ru_server *s, rui_version *v, ru_text *t);

static void give(ru_server *s, rui_version *v, ru_http_request *r, const char *type, page_fn fn)
{
    ru_arena *arena = page_arena();
    ru_text t = ru_text_arena(arena);
    if (arena != NULL) {
        fn(s, v, &t);
    }
    give_taken(r, type, arena, t);
}

static const char JSON[] = "application/json";
static const char PROMETHEUS[] = "text/plain; version=0.0.4; charset=utf-8";

void rui_give_copy(ru_http_request *r, const char *type, ru_text text)
{
    ru_arena *arena = page_arena();
    ru_text t = text;
    if (arena != NULL) {
        t.p = ru_arena_copy(arena, text.p, text.n, 1);
        t.cut = text.cut || t.p == NULL;
    }
    give_taken(r, type, arena, t);
}

static void put_model_ready(ru_server *s, rui_version *v, ru_text *t)
{
    (void)s;
    ru_text_put(t, "{\"name\":");
    ru_text_json(t, ru_str_c(v->model));
    ru_text_put(t, ",\"ready\":true}");
}

/* As the metadata or, `config`, as Triton's configuration has them. */
static void put_values(ru_json *j, const char *key, bool config, const ru_served_facts *f,
                       const ru_served_value *v, uint32_t n)
{
    char type[24];
    ru_json_open(j, key, '[');
    for (uint32_t k = 0; k < n; k++) {
        ru_text t = ru_text_into(type, sizeof type);
        ru_text_put(&t, config ? "TYPE_" : "");
        ru_text_put(&t, !v[k].texts ? ru_oip_datatype(v[k].type.dtype)
                        : config    ? "STRING"
                                    : "BYTES");
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "name", v[k].name);
        ru_json_str(j, config ? "data_type" : "datatype", type);
        ru_json_open(j, config ? "dims" : "shape", '[');
        if (f->batched && !config) {
            ru_json_i64(j, NULL, -1);
        }
        for (uint32_t d = 0; d < v[k].type.rank; d++) {
            bool sized = d == 0 && v[k].sized && f->size_max > 0; /* the request says so */
            ru_json_i64(j, NULL, sized ? -1 : v[k].type.dims[d]);
        }
        ru_json_close(j);
        ru_json_close(j);
    }
    ru_json_close(j);
}

static void put_metadata(ru_server *s, rui_version *v, ru_text *t)
{
    const ru_served_facts *f = ru_served_facts_get(v->served);
    ru_json j = ru_json_into(t);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "name", v->model);
    ru_json_open(&j, "versions", '[');
    for (const rui_version *k = s->versions; k != NULL; k = k->next) {
        if (k->state == RUI_READY && strcmp(k->model, v->model) == 0) {
            ru_json_str(&j, NULL, k->version);
        }
    }
    ru_json_close(&j);
    ru_json_str(&j, "platform", f->platform);
    put_values(&j, "inputs", false, f, f->inputs, f->n_inputs);
    put_values(&j, "outputs", false, f, f->outputs, f->n_outputs);
    ru_json_close(&j);
}

/* The configuration in force, also of a model without config.pbtxt. */
static void put_config(ru_server *s, rui_version *v, ru_text *t)
{
    (void)s;
    const ru_served_facts *f = ru_served_facts_get(v->served);
    ru_json j = ru_json_into(t);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "name", v->model);
    ru_json_str(&j, "platform", f->platform);
    ru_json_i64(&j, "max_batch_size", f->batched ? f->rows_max : 0);
    put_values(&j, "input", true, f, f->inputs, f->n_inputs);
    put_values(&j, "output", true, f, f->outputs, f->n_outputs);
    ru_json_open(&j, "instance_group", '[');
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "kind", "KIND_CPU");
    ru_json_i64(&j, "count", v->instances);
    ru_json_close(&j);
    ru_json_close(&j);
    ru_json_open(&j, "dynamic_batching", '{');
    ru_json_i64(&j, "max_queue_delay_microseconds", v->config.delay_us);
    ru_json_close(&j);
    ru_json_close(&j);
}

/* Of two versions of a model: one that is ready, all of its load with it, before one that is not,
 * then the greater number, then the one that was loaded later, which stands first. */
static bool better(const rui_version *v, const rui_version *than)
{
    int64_t a = 0, b = 0;
    bool v_ready = v->state == RUI_READY && !v->waits;
    bool than_ready = than->state == RUI_READY && !than->waits;
    (void)!ru_str_i64(ru_str_c(v->version), &a);
    (void)!ru_str_i64(ru_str_c(than->version), &b);
    return v_ready != than_ready ? v_ready : a > b;
}

rui_version *rui_version_find(const ru_server *s, ru_str model, ru_str version)
{
    rui_version *found = NULL;
    for (rui_version *v = s->versions; v != NULL; v = v->next) {
        bool is_it = ru_str_eq_c(model, v->model) && v->state != RUI_DRAINING &&
                     (version.n == 0 || ru_str_eq_c(version, v->version));
        found = is_it && (found == NULL || better(v, found)) ? v : found;
    }
    return found;
}

/* A page has one row for a model and a version: the one that answers. */
static bool has_row(const ru_server *s, const rui_version *v)
{
    const rui_version *answers = rui_version_find(s, ru_str_c(v->model), ru_str_c(v->version));
    return v->machine != NULL && (answers == v || answers == NULL);
}

/* All versions of the model of `v`, or of all models. */
static void put_stats(ru_server *s, rui_version *v, ru_text *t,
                      void (*put)(const rui_stats_of *of, uint32_t n, ru_text *t))
{
    uint32_t n = 0, cap = 0;
    for (const rui_version *k = s->versions; k != NULL; k = k->next) {
        cap++;
    }
    rui_stats_of *of = RU_NEW(t->arena, rui_stats_of, cap);
    if (of == NULL) {
        t->cut = true;
        return;
    }
    for (const rui_version *k = s->versions; k != NULL; k = k->next) {
        if (has_row(s, k) && (v == NULL || strcmp(v->model, k->model) == 0)) {
            of[n++] = (rui_stats_of){.model = k->model,
                                     .version = k->version,
                                     .stats = &k->stats,
                                     .pace = &k->pace,
                                     .machine = ru_serve_stats_get(k->machine),
                                     .under_way = k->calls,
                                     .promise_ns = s->opt.slo_ns};
        }
    }
    put(of, n, t);
}

static void put_statistics(ru_server *s, rui_version *v, ru_text *t)
{
    put_stats(s, v, t, rui_stats_json);
}

static void put_metrics(ru_server *s, rui_version *v, ru_text *t)
{
    put_stats(s, v, t, rui_stats_prometheus);
}

static void put_triton(ru_server *s, rui_version *v, ru_text *t)
{
    put_stats(s, v, t, rui_stats_triton);
}

static void put_openai_model(ru_json *j, const rui_version *v)
{
    ru_json_open(j, NULL, '{');
    ru_json_str(j, "id", v->model);
    ru_json_str(j, "object", "model");
    ru_json_i64(j, "created", 0);
    ru_json_str(j, "owned_by", "rubato");
    ru_json_close(j);
}

/* One, or (v NULL) all models that write texts, as OpenAI has them. */
static void put_openai_models(ru_server *s, rui_version *v, ru_text *t)
{
    ru_json j = ru_json_into(t);
    if (v != NULL) {
        put_openai_model(&j, v);
        return;
    }
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "object", "list");
    ru_json_open(&j, "data", '[');
    for (const rui_version *k = s->versions; k != NULL; k = k->next) {
        if (k->state == RUI_READY && k->scribe != NULL &&
            rui_version_find(s, ru_str_c(k->model), (ru_str){0}) == k) {
            put_openai_model(&j, k);
        }
    }
    ru_json_close(&j);
    ru_json_close(&j);
}

/* -- paths -------------------------------------------------------------------------------------
 */

static bool all_ready(const ru_server *s)
{
    bool some = false;
    for (const rui_version *v = s->versions; v != NULL; v = v->next) {
        if (v->state == RUI_LOADING || v->state == RUI_FAILED) {
            return false;
        }
        some = some || v->state == RUI_READY;
    }
    return some && !s->stopping;
}

static bool is(const ru_http_request *r, const char *method)
{
    return strcmp(r->method, method) == 0 ||
           (strcmp(method, "GET") == 0 && strcmp(r->method, "HEAD") == 0);
}

void rui_not_ready(const ru_server *s, const rui_version *v, ru_http_request *r)
{
    bool failed = v->state == RUI_FAILED; /* it does not become ready by itself */
    char text[RU_ERR_TEXT_MAX];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_putf(&t, "model %s is not ready: %s", v->model,
                 failed        ? v->err.text
                 : s->stopping ? "the server stops"
                               : "it loads");
    ru_http_refuse(r, 503, text, failed ? 0 : 1);
}

/* /v2/models/M[/versions/V][/what] */
static void route_model(ru_server *s, ru_http_request *r, const ru_str *part, uint32_t n)
{
    bool versioned = n >= 2 && ru_str_eq_c(part[1], "versions");
    uint32_t at = versioned ? 3 : 1;
    ru_str what = n > at ? part[at] : (ru_str){0};
    rui_version *v = rui_version_find(s, part[0], versioned && n > 2 ? part[2] : (ru_str){0});
    if (v == NULL || n > at + 1 || (versioned && n < 3)) {
        char text[200];
        ru_text t = ru_text_into(text, sizeof text);
        ru_text_putf(&t, v == NULL ? "there is no model %.*s here" : "there is no page %.*s",
                     RUI_CUT(part[0], 100));
        ru_http_refuse(r, 404, text, 0);
        return;
    }
    bool infer = ru_str_eq_c(what, "infer"), stream = ru_str_eq_c(what, "generate_stream");
    bool text = stream || ru_str_eq_c(what, "generate"), post = infer || text;
    if (!is(r, post ? "POST" : "GET")) {
        ru_http_refuse_method(r, post ? "POST" : "GET");
    } else if (ru_str_eq_c(what, "stats")) {
        give(s, v, r, JSON, put_statistics);
    } else if (!post && what.n > 0 && !ru_str_eq_c(what, "ready") && !ru_str_eq_c(what, "config")) {
        ru_http_refuse(r, 404, "a model answers infer, generate, ready, config and stats", 0);
    } else if (v->state != RUI_READY || s->stopping) {
        rui_not_ready(s, v, r);
    } else if (infer) {
        rui_infer(s, v, r);
    } else if (text) {
        rui_generate(s, v, r, stream);
    } else {
        give(s, v, r, JSON,
             what.n == 0                   ? put_metadata
             : ru_str_eq_c(what, "config") ? put_config
                                           : put_model_ready);
    }
}

static void route_server(ru_server *s, ru_http_request *r, const ru_str *part, uint32_t n)
{
    bool health = n == 2 && ru_str_eq_c(part[0], "health");
    bool stats = n == 2 && ru_str_eq_c(part[0], "models") && ru_str_eq_c(part[1], "stats");
    if (n > 0 && !health && !stats) {
        ru_http_refuse(r, 404, "there is no such page", 0);
    } else if (!is(r, "GET")) {
        ru_http_refuse_method(r, "GET");
    } else if (n == 0) {
        rui_give_text(r, JSON, ru_str_c(SERVER), NULL, NULL);
    } else if (stats) {
        give(s, NULL, r, JSON, put_statistics);
    } else if (ru_str_eq_c(part[1], "live") || (ru_str_eq_c(part[1], "ready") && all_ready(s))) {
        rui_give_text(r, JSON, ru_str_c("{\"live\":true,\"ready\":true}"), NULL, NULL);
    } else if (ru_str_eq_c(part[1], "ready")) {
        ru_http_refuse(r, 503, s->stopping ? "the server stops" : "not all models are ready", 1);
    } else {
        ru_http_refuse(r, 404, "health has live and ready", 0);
    }
}

/* Its models on functions, or the trainings beside it. */
static void give_plan(ru_server *s, ru_http_request *r, ru_str which, bool typed)
{
    bool gate = ru_str_eq_c(which, "gate"), routes = ru_str_eq_c(which, "route");
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_text t = ru_text_arena(&arena), json = ru_text_arena(&arena);
    ru_json j = ru_json_into(&json);
    const ru_tell o = {.text = &t, .json = typed ? &j : NULL};
    ru_tell_open(&o, NULL, '{');
    ru_tell_str(&o, "schema", "rubato.explain/1");
    if (gate) {
        rui_beside_explain(s, &o);
    } else {
        ru_tell_open(&o, "models", '[');
    }
    for (const rui_version *v = s->versions; v != NULL && !gate; v = v->next) {
        if (v->far != NULL && v->state == RUI_READY && (!routes || rui_far_sized(v->far))) {
            rui_far_explain(v->far, &o);
        }
    }
    if (!gate) {
        ru_tell_close(&o);
    }
    ru_tell_close(&o);
    if (t.n > 0) {
        rui_give_copy(r, typed ? JSON : "text/plain; charset=utf-8", typed ? json : t);
    } else {
        ru_http_refuse(r, 404,
                       gate     ? "no training is beside this server"
                       : routes ? "no model of this server is served by functions to requests "
                                  "that differ in size"
                                : "no model of this server is served by functions",
                       0);
    }
    ru_arena_fini(&arena);
}

/* /v2/rubato/explain/ID|pQ|batch|route|gate, and the same with /json */
static void give_request(ru_server *s, ru_http_request *r, ru_str which, bool typed)
{
    char text[2048], json[4096];
    ru_text t = ru_text_into(text, sizeof text), of = ru_text_into(json, sizeof json);
    ru_json j = ru_json_into(&of);
    const ru_tell o = {.text = &t, .json = typed ? &j : NULL};
    if (ru_str_eq_c(which, "batch") || ru_str_eq_c(which, "route") || ru_str_eq_c(which, "gate")) {
        give_plan(s, r, which, typed);
        return;
    }
    ru_tell_open(&o, NULL, '{');
    ru_tell_str(&o, "schema", "rubato.explain/1");
    if (rui_journal_explain(s->journal, which, &o)) {
        ru_tell_close(&o);
        rui_give_copy(r, typed ? JSON : "text/plain; charset=utf-8", typed ? of : t);
    } else {
        ru_http_refuse(r, 404, text, 0);
    }
}

/* /v2/rubato/world */
static void give_world(ru_server *s, ru_http_request *r)
{
    ru_arena arena;
    ru_err err = {0};
    ru_arena_init(&arena, 0);
    ru_text t = ru_text_arena(&arena);
    if (rui_server_world(s, &arena, &t, &err) == RU_OK) {
        rui_give_copy(r, JSON, t);
    } else {
        ru_http_refuse(r, 500, err.text, 0);
    }
    ru_arena_fini(&arena);
}

/* One file, which asks for nothing from elsewhere. */
static void give_page(ru_http_request *r)
{
    static const ru_http_field fields[] = {
        {"Content-Type", "text/html; charset=utf-8"},
        {"Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; style-src "
                                    "'unsafe-inline'; connect-src 'self'"}};
    const ru_http_span span = {rui_embed_serve_html, rui_embed_serve_html_bytes};
    ru_http_answer(r, &(ru_http_reply){.status = 200,
                                       .fields = fields,
                                       .n_fields = RU_ARRAY_LEN(fields),
                                       .spans = &span,
                                       .n_spans = 1});
}

/* /v1/completions, /v1/models[/M] */
static void route_openai(ru_server *s, ru_http_request *r, const ru_str *part, uint32_t n)
{
    bool models = n > 0 && ru_str_eq_c(part[0], "models") && n < 3;
    bool post = n == 1 && ru_str_eq_c(part[0], "completions");
    rui_version *v = models && n == 2 ? rui_version_find(s, part[1], (ru_str){0}) : NULL;
    if (!post && !models) {
        ru_http_refuse(r, 404, "v1 has completions and models", 0);
    } else if (!is(r, post ? "POST" : "GET")) {
        ru_http_refuse_method(r, post ? "POST" : "GET");
    } else if (post) {
        rui_completions(s, r);
    } else if (n == 2 && v != NULL && (v->state != RUI_READY || s->stopping)) {
        rui_not_ready(s, v, r);
    } else if (n == 2 && (v == NULL || v->scribe == NULL)) {
        ru_http_refuse(r, 404, "no model of this name writes texts here; /v1/models has those", 0);
    } else {
        give(s, v, r, JSON, put_openai_models);
    }
}

void rui_route(void *self, ru_http_request *r)
{
    ru_server *s = self;
    ru_str part[PARTS_MAX], rest = ru_str_c(r->path), word;
    uint32_t n = 0;
    while (ru_str_next(&rest, '/', &word)) {
        if (word.n > 0 && n < PARTS_MAX) {
            part[n++] = word;
        }
    }
    bool own = n > 2 && ru_str_eq_c(part[0], "v2") && ru_str_eq_c(part[1], "rubato");
    bool typed = n == 5 && ru_str_eq_c(part[4], "json");
    bool explains = own && (n == 4 || typed) && ru_str_eq_c(part[2], "explain");
    bool beside = own && n == 3 && ru_str_eq_c(part[2], "beside");
    bool world = own && n == 3 && ru_str_eq_c(part[2], "world");
    bool metrics = n > 0 && n < 3 && ru_str_eq_c(part[0], "metrics");
    metrics = metrics && (n == 1 || ru_str_eq_c(part[1], "triton"));
    if (beside ? !is(r, "POST") : (explains || world || metrics || n == 0) && !is(r, "GET")) {
        ru_http_refuse_method(r, beside ? "POST" : "GET");
    } else if (explains) {
        give_request(s, r, part[3], typed);
    } else if (beside) {
        rui_beside_attach(s, r);
    } else if (world) {
        give_world(s, r);
    } else if (metrics) {
        give(s, NULL, r, PROMETHEUS, n == 1 ? put_metrics : put_triton);
    } else if (n == 0) {
        give_page(r);
    } else if (n > 1 && ru_str_eq_c(part[0], "v1")) {
        route_openai(s, r, part + 1, n - 1);
    } else if (!ru_str_eq_c(part[0], "v2")) {
        ru_http_refuse(r, 404, "there is no such page; the protocol begins at /v2", 0);
    } else if (n > 1 && ru_str_eq_c(part[1], "repository")) {
        rui_repository(s, r, part + 2, n - 2);
    } else if (n > 2 && ru_str_eq_c(part[1], "models") &&
               !(n == 3 && ru_str_eq_c(part[2], "stats"))) {
        route_model(s, r, part + 2, n - 2);
    } else {
        route_server(s, r, part + 1, n - 1);
    }
}
