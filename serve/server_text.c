/* Requests for texts, from their bytes to their answers. */
#include <stdlib.h>
#include <string.h>

#include "env/clock.h"
#include "serve/ask.h"
#include "serve/server_impl.h"

/* One text under way: the writer has its stream until it has ended. */
struct rui_telling {
    rui_telling *next;
    ru_server *server;
    rui_version *version;
    ru_http_request *r; /* NULL: it is answered */
    ru_arena arena;
    rui_ask ask;
    rui_written written;
    uint64_t number;
    int64_t created_s;
    ru_time due;     /* nobody wants its first token any more; ns 0: no such time */
    int64_t seen;    /* tokens of `text` */
    ru_text text;    /* what was written */
    int64_t sent;    /* bytes of it that the client has */
    int64_t ends_at; /* a stop text stands there; -1: none */
    bool left;       /* the client, or it reads nothing */
    bool late;       /* it was due before its first token: nothing of it is sent */
};

/* -- the end -----------------------------------------------------------------------------------
 */

static void done(rui_telling *c)
{
    ru_server *s = c->server;
    rui_version *v = c->version;
    for (rui_telling **at = &s->tellings; *at != NULL; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    ru_arena_fini(&c->arena);
    free(c);
    s->n_calls--;
    v->calls--;
    if (v->state == RUI_DRAINING || (s->n_calls == 0 && s->stopped != NULL)) {
        ru_loop_wake(s->opt.loop, s->waker);
    }
}

/* Before `r` ends. A text counts as one request with outputs. */
static void count(rui_version *v, const ru_http_request *r, uint32_t status)
{
    int64_t ns = ru_time_since(ru_clock_now(), r->since);
    if (status == 200) {
        rui_times_add(&v->stats.request, ns);
        return;
    }
    v->stats.miss[status == 400   ? RUI_MISS_BAD
                  : status == 429 ? RUI_MISS_FULL
                  : status == 499 ? RUI_MISS_CANCELLED
                  : status == 504 ? RUI_MISS_LATE
                                  : RUI_MISS_FAILED]++;
    v->stats.missed_ns += ns;
}

static void refuse(rui_telling *c, uint32_t status, const char *sentence)
{
    count(c->version, c->r, status);
    ru_http_refuse(c->r, status, sentence, status == 503 || status == 429 ? 1 : 0);
    done(c);
}

/* -- pieces ------------------------------------------------------------------------------------
 */

static rui_told told(const rui_telling *c, int64_t end, const char *finish)
{
    return (rui_told){.model = c->version->model,
                      .version = c->version->version,
                      .number = c->number,
                      .created_s = c->created_s,
                      .text = ru_str_n(c->text.p + c->sent, end - c->sent),
                      .finish = finish,
                      .prompt_tokens = c->written.stream.n_prompt,
                      .tokens = c->seen};
}

static void put_event(rui_telling *c, ru_text event)
{
    if (!c->left && (event.cut || !ru_http_put(c->r, event.p, event.n))) {
        c->left = true; /* it does not read: nobody wants the rest */
        rui_scribe_drop(c->version->scribe, &c->written);
    }
}

/* One event of the stream: text up to `end`. */
static void put_piece(rui_telling *c, int64_t end, const char *finish)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_text t = ru_text_arena(&scratch);
    const rui_told w = told(c, end, finish);
    ru_text_put(&t, "data: ");
    rui_ask_answer(&c->ask, &w, false, &t);
    ru_text_put(&t, "\n\n");
    ru_text_put(&t, finish != NULL && c->ask.openai ? "data: [DONE]\n\n" : "");
    put_event(c, t);
    ru_arena_fini(&scratch);
    c->sent = end;
}

static void put_failure(rui_telling *c, const char *sentence)
{
    char text[RU_ERR_TEXT_MAX + 64];
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_put(&t, "data: {\"error\":");
    ru_text_json(&t, ru_str_c(sentence));
    ru_text_put(&t, "}\n\n");
    put_event(c, t);
}

static void answer_whole(rui_telling *c, int64_t end, const char *finish)
{
    ru_text t = ru_text_arena(&c->arena);
    const rui_told w = told(c, end, finish);
    rui_ask_answer(&c->ask, &w, true, &t);
    if (t.cut) {
        refuse(c, 503, "no memory for the answer");
        return;
    }
    count(c->version, c->r, 200);
    rui_give_copy(c->r, "application/json", t);
    done(c);
}

/* -- what the writer did -----------------------------------------------------------------------
 */

/* New tokens as text, up to a stop text or the last whole letter; where what can be sent ends. */
static int64_t read_tokens(rui_telling *c, int64_t n)
{
    const ru_stream *s = &c->written.stream;
    int64_t from = c->text.n, safe;
    for (; c->seen < n - s->n_prompt && c->ends_at < 0; c->seen++) {
        int64_t token = s->tokens[s->n_prompt + c->seen];
        if (token != s->end_token) {
            ru_words_put(&c->version->words, token, &c->text);
        }
    }
    if (c->ends_at < 0) {
        c->ends_at = rui_ask_stop(&c->ask, ru_str_n(c->text.p, c->text.n), from, &safe);
    } else {
        safe = c->ends_at;
    }
    return safe;
}

static void finish(rui_telling *c, ru_stream_end end, const ru_err *err)
{
    bool stopped = c->ends_at >= 0; /* what came behind the stop text does not count */
    bool failed = end == RU_STREAM_FAILED && !stopped, late = end == RU_STREAM_DROPPED && !stopped;
    int64_t all = stopped ? c->ends_at : c->text.n;
    const char *why = stopped || end == RU_STREAM_STOP ? "stop" : "length";
    uint32_t status = failed ? 500 : c->text.cut ? 503 : c->left ? 499 : late ? 504 : 200;
    const char *sentence = failed          ? err->text
                           : status == 503 ? "no memory for the answer"
                           : status == 499 ? "the client left"
                                           : "the time that the request or the server allows it "
                                             "to wait is over; no text was written";
    if (c->ask.stream) {
        if (status == 500 || status == 504) {
            put_failure(c, sentence);
        } else if (!c->left) {
            put_piece(c, all, why);
        }
        count(c->version, c->r, status);
        ru_http_end(c->r);
        done(c);
    } else if (status != 200) {
        refuse(c, status, sentence);
    } else {
        answer_whole(c, all, why);
    }
}

static void look(rui_telling *c, ru_time now)
{
    int64_t n;
    ru_err err = {0};
    ru_stream_end end = rui_scribe_look(c->version->scribe, &c->written, &n, &err);
    c->late = c->late || (n == 0 && c->due.ns > 0 && ru_time_since(now, c->due) > 0);
    int64_t safe = read_tokens(c, n);
    if (end != RU_STREAM_RUNS) {
        finish(c, end, &err);
        return;
    }
    if (c->ends_at >= 0 || c->text.cut || c->late) {
        c->left = c->left || c->text.cut;
        rui_scribe_drop(c->version->scribe, &c->written);
    } else if (c->ask.stream && safe > c->sent && !c->left) {
        put_piece(c, safe, NULL);
    }
}

void rui_text_looks(ru_server *s, ru_time now)
{
    for (rui_telling *c = s->tellings, *next; c != NULL; c = next) {
        next = c->next;
        look(c, now);
    }
}

bool rui_text_gone(ru_server *s, const ru_http_request *r)
{
    for (rui_telling *c = s->tellings; c != NULL; c = c->next) {
        if (c->r == r) {
            c->left = true;
            if (c->version->scribe != NULL) { /* else the server closes */
                rui_scribe_drop(c->version->scribe, &c->written);
            }
            return true;
        }
    }
    return false;
}

void rui_texts_free(ru_server *s)
{
    while (s->tellings != NULL) {
        rui_telling *c = s->tellings;
        s->tellings = c->next;
        ru_arena_fini(&c->arena);
        free(c);
    }
}

/* -- requests ----------------------------------------------------------------------------------
 */

static ru_status fits(int64_t tokens, const char *more, int64_t context, ru_err *err)
{
    return tokens <= context
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA,
                         "the prompt has %lld tokens%s, but the model sees at most %lld",
                         (long long)tokens, more, (long long)context);
}

static ru_status prepare(rui_telling *c, ru_err *err)
{
    const rui_ask *a = &c->ask;
    const ru_words *w = &c->version->words;
    ru_stream *s = &c->written.stream;
    int64_t context = ru_steps_facts_get(c->version->steps).context;
    int64_t *ids = a->tokens, n = a->n_tokens;
    if (a->prompt.p != NULL) { /* one that is far too long is not even divided */
        RU_TRY(fits(ru_words_least(w, a->prompt.n), " or more", context, err));
        RU_TRY(ru_words_split(w, a->prompt, &c->arena, &ids, &n, err));
    } else {
        RU_TRY(ru_words_known(w, ids, n, err));
    }
    RU_TRY(fits(n, "", context, err));
    RU_TRY(rui_due(c->version, c->r, a->timeout_us, &c->due, err));
    int64_t room = context + 1 - n;
    *s = (ru_stream){.n_prompt = n,
                     .n_max = n + (a->max_tokens < room ? a->max_tokens : room),
                     .end_token =
                         w->tokenizer != NULL ? ru_tokenizer_facts_get(w->tokenizer).end : -1,
                     .priority = rui_priority(c->version, a->priority),
                     .draw = a->draw};
    s->tokens = RU_NEW(&c->arena, int64_t, s->n_max);
    if (s->tokens == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the request");
    }
    memcpy(s->tokens, ids, (size_t)n * sizeof *ids);
    if (!a->seeded) {
        s->draw.seed = ru_rng_u64(&c->server->spans);
    }
    return RU_OK;
}

static void begin(rui_telling *c)
{
    static const ru_http_field fields[] = {{"Content-Type", "text/event-stream"},
                                           {"Cache-Control", "no-cache"}};
    c->ends_at = -1;
    c->text = ru_text_arena(&c->arena);
    c->number = ++c->server->texts;
    c->created_s = ru_clock_wall_ns() / 1000000000;
    rui_scribe_give(c->version->scribe, &c->written);
    if (c->ask.stream) { /* its client may be gone already */
        ru_http_stream(c->r, 200, fields, 2);
    }
}

/* The model that OpenAI's form names; without a name the only one that writes texts. */
static rui_version *named(const ru_server *s, const rui_ask *a, ru_text *why)
{
    rui_version *v = a->model.n > 0 ? rui_version_find(s, a->model, (ru_str){0}) : NULL;
    uint32_t n = 0;
    for (rui_version *k = s->versions; k != NULL && a->model.n == 0; k = k->next) {
        if (k->scribe != NULL && rui_version_find(s, ru_str_c(k->model), (ru_str){0}) == k) {
            v = n++ == 0 ? k : v;
        }
    }
    if (n > 1) {
        ru_text_putf(why,
                     "the request does not say which 'model'; name one, as '%.100s' (GET "
                     "/v1/models has them)",
                     v->model);
        return NULL;
    }
    ru_text_put(why, a->model.n > 0 ? "there is no such model here; GET /v1/models has those that "
                                      "write texts"
                                    : "no model here writes texts");
    return v;
}

/* `openai`: of its form, where the body names the model; then *v is found by `find`. */
static void text(ru_server *s, rui_version *v, ru_http_request *r, bool openai, bool stream)
{
    ru_err err = {0};
    rui_telling *c = calloc(1, sizeof *c);
    if (c == NULL) {
        ru_http_refuse(r, 503, "no memory for the request", 1);
        return;
    }
    ru_arena_init(&c->arena, 0);
    c->server = s;
    c->r = r;
    ru_status st = rui_ask_read(r->body, r->body_bytes, openai, stream, &c->arena, &c->ask, &err);
    char why[256];
    ru_text t = ru_text_into(why, sizeof why);
    v = openai && st == RU_OK ? named(s, &c->ask, &t) : v;
    if (st != RU_OK || v == NULL || v->state != RUI_READY || s->stopping) {
        bool unnamed = v == NULL && c->ask.model.n == 0;
        uint32_t status = st == RU_E_LIMIT         ? 503
                          : st != RU_OK || unnamed ? 400
                          : v == NULL              ? 404
                                                   : 503;
        if (v != NULL) {
            count(v, r, status);
        }
        ru_http_refuse(r, status,
                       st != RU_OK ? err.text
                       : v == NULL ? why
                                   : "the model is not ready",
                       status == 503 ? 1 : 0);
        ru_arena_fini(&c->arena);
        free(c);
        return;
    }
    c->version = v;
    c->next = s->tellings;
    s->tellings = c;
    s->n_calls++;
    v->calls++;
    if (v->scribe == NULL) {
        refuse(c, 400, "the model writes no texts: it is no language model with a form in steps");
    } else if (s->n_calls > s->opt.requests_max) {
        refuse(c, 429, "too many requests wait; come again after the time of Retry-After");
    } else if (prepare(c, &err) != RU_OK) {
        refuse(c, err.status == RU_E_LIMIT ? 503 : 400, err.text);
    } else {
        begin(c);
    }
}

void rui_generate(ru_server *s, rui_version *v, ru_http_request *r, bool stream)
{
    text(s, v, r, false, stream);
}

void rui_completions(ru_server *s, ru_http_request *r)
{
    text(s, NULL, r, true, false);
}
