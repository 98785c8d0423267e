/* Requests for texts, from their bytes to their answers. */
#include <stdlib.h>
#include <string.h>

#include "env/clock.h"
#include "serve/ask.h"
#include "serve/server_impl.h"

/* One of the texts that a request asks for: the writer has its stream until it has ended. */
typedef struct choice {
    rui_written written;
    ru_scores scores;
    ru_text text;         /* of the answer: the prompt where it is asked, then what was written */
    int64_t prompt_bytes; /* of it */
    int64_t seen;         /* tokens of `text` behind the prompt */
    int64_t safe;         /* bytes behind the prompt that can be sent */
    int64_t sent;         /* bytes of it that the client has */
    int64_t ends_at;      /* a stop text stands there; -1: none */
    const char *finish;   /* why it has ended; NULL: it goes on */
    double mean;          /* log probability of its tokens, where the best are asked */
    bool over;            /* the writer has given it back */
    bool answered;
    /* log probabilities: the next token that is told, and what stands before it in `text` */
    int64_t told, told_bytes, told_letters;
} choice;

/* A request for texts. */
struct rui_telling {
    rui_telling *next;
    ru_server *server;
    rui_version *version;
    ru_http_request *r;
    ru_arena arena;
    rui_ask ask;
    choice *choices; /* [n_choices] best_of of the first prompt, then those of the next */
    int64_t n_choices;
    int64_t n_over;
    uint64_t number;
    int64_t created_s;
    int64_t held_bytes; /* as infer requests have them */
    ru_time due;        /* nobody wants its first token any more; ns 0: no such time */
    uint32_t status;    /* 200, or why it fails */
    ru_err err;         /* 500: of the model */
    bool left;          /* the client, or it reads nothing */
    bool begun;         /* a step has read of one of its prompts */
};

/* -- the end -----------------------------------------------------------------------------------
 */

static void forget(rui_telling *c)
{
    for (rui_telling **at = &c->server->tellings; *at != NULL; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            return;
        }
    }
}

static void done(void *self)
{
    rui_telling *c = self;
    ru_server *s = c->server;
    rui_version *v = c->version;
    s->held_bytes -= c->held_bytes;
    ru_arena_fini(&c->arena);
    free(c);
    rui_call_over(s, v);
}

/* Before `r` ends. A text counts as one request with outputs. */
static void count(rui_version *v, const ru_http_request *r, uint32_t status)
{
    int64_t ns = ru_time_since(ru_clock_now(), r->since);
    if (status == 200) {
        rui_times_add(&v->stats.request, ns);
        v->stats.last_ms = ru_clock_wall_ns() / 1000000;
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
    forget(c);
    done(c);
}

static void drop(rui_telling *c, choice *h)
{
    if (c->version->scribe != NULL && !h->over) { /* NULL: the server closes */
        rui_scribe_drop(c->version->scribe, &h->written);
    }
}

/* It cannot be answered, or nobody wants it: the first reason counts. */
static void fail(rui_telling *c, uint32_t status)
{
    c->status = c->status == 200 ? status : c->status;
    for (int64_t k = 0; k < c->n_choices; k++) {
        drop(c, &c->choices[k]);
    }
}

/* -- pieces ------------------------------------------------------------------------------------
 */

/* Tokens with text before byte `end`; of a piece whole ones. */
static void tell_tokens(const rui_telling *c, choice *h, int64_t end, bool last, rui_told_choice *o)
{
    const ru_stream *s = &h->written.stream;
    char room[RU_WORDS_ROOM];
    o->scored = s;
    o->from = h->told;
    o->letters = h->told_letters;
    for (; h->told < s->n_prompt + h->seen; h->told++) {
        ru_str text = ru_words_text(&c->version->words, s->tokens[h->told], room);
        bool ends = h->told >= s->n_prompt && s->tokens[h->told] == s->end_token;
        if (ends || (last ? h->told_bytes >= end : h->told_bytes + text.n > end)) {
            break;
        }
        h->told_bytes += text.n;
        h->told_letters += rui_ask_letters(text);
    }
    o->to = h->told;
}

/* What is new of it, up to byte `end`. */
static rui_told_choice told_choice(const rui_telling *c, choice *h, int64_t index, int64_t end)
{
    rui_told_choice o = {.index = (uint32_t)index,
                         .text = ru_str_n(h->text.p + h->sent, end - h->sent),
                         .finish = h->finish};
    const choice *reader = h - (h - c->choices) % c->ask.best_of;
    const ru_scores *from = &reader->scores;
    if (c->ask.logprobs >= 0) {
        if (h != reader && h->told == 0) { /* the first one has read the prompt */
            size_t n = (size_t)h->written.stream.n_prompt, all = n * from->k;
            memcpy(h->scores.own, from->own, n * sizeof *from->own);
            memcpy(h->scores.top, from->top, all * sizeof *from->top);
            memcpy(h->scores.top_own, from->top_own, all * sizeof *from->top_own);
        }
        tell_tokens(c, h, end, h->finish != NULL, &o);
    }
    h->sent = end;
    return o;
}

static rui_told told(const rui_telling *c, const rui_told_choice *choices, uint32_t n)
{
    rui_told w = {.model = c->version->model,
                  .version = c->version->version,
                  .words = &c->version->words,
                  .choices = choices,
                  .n = n,
                  .number = c->number,
                  .created_s = c->created_s};
    for (int64_t k = 0; k < c->ask.n_prompts; k++) {
        w.prompt_tokens += c->ask.prompts[k].n_tokens;
    }
    for (int64_t k = 0; k < c->n_choices; k++) {
        w.tokens += c->choices[k].seen;
    }
    return w;
}

/* p NULL: there was no memory for it. */
static void put_event(rui_telling *c, ru_str event)
{
    if (!c->left && (event.p == NULL || !ru_http_put(c->r, event.p, event.n))) {
        c->left = true; /* it does not read: nobody wants the rest */
        fail(c, 499);
    }
}

/* One event of the stream; n 0: its last one, with the counts of tokens. */
static void put_told(rui_telling *c, const rui_told_choice *choices, uint32_t n)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_text t = ru_text_arena(&scratch);
    const rui_told w = told(c, choices, n);
    ru_text_put(&t, "data: ");
    rui_ask_answer(&c->ask, &w, n == 0, &t);
    ru_text_put(&t, "\n\n");
    put_event(c, t.cut ? (ru_str){0} : ru_str_n(t.p, t.n));
    ru_arena_fini(&scratch);
}

static void put_piece(rui_telling *c, choice *h, int64_t end)
{
    const rui_told_choice o = told_choice(c, h, h - c->choices, end);
    put_told(c, &o, 1);
}

static void put_failure(rui_telling *c, const char *sentence)
{
    char text[6 * RU_ERR_TEXT_MAX + 128]; /* a byte has six at most */
    ru_text t = ru_text_into(text, sizeof text);
    ru_text_put(&t, c->ask.openai ? "data: {\"error\":{\"message\":" : "data: {\"error\":");
    ru_text_json(&t, ru_str_c(sentence));
    ru_text_put(&t, c->ask.openai ? ",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n"
                                  : "}\n\n");
    put_event(c, ru_str_n(t.p, t.n));
}

/* -- the answer --------------------------------------------------------------------------------
 */

static int64_t end_of(const choice *h)
{
    return h->ends_at >= 0 ? h->ends_at : h->text.n;
}

/* Mean log probability of the tokens that were written; 0: none were. */
static double mean_of(const choice *h)
{
    double sum = 0;
    for (int64_t k = 0; k < h->seen; k++) {
        sum += (double)h->scores.own[h->written.stream.n_prompt + k];
    }
    return h->seen > 0 ? sum / (double)h->seen : 0;
}

/* Of the texts of a prompt that are not told yet the likeliest, by its mean log probability; of
 * equal ones the first. Where all are told they keep their order. */
static choice *next_best(const rui_telling *c, choice *of_prompt)
{
    choice *best = NULL;
    for (choice *h = of_prompt; h < of_prompt + c->ask.best_of; h++) {
        if (!h->answered && (best == NULL || (c->ask.best_of > c->ask.n && h->mean > best->mean))) {
            best = h;
        }
    }
    best->answered = true;
    return best;
}

static void answer_whole(rui_telling *c)
{
    int64_t n = c->ask.n_prompts * c->ask.n;
    ru_text t = ru_text_arena(&c->arena);
    rui_told_choice *o = RU_NEW(&c->arena, rui_told_choice, n);
    for (int64_t k = 0; o != NULL && k < n; k++) {
        choice *h = next_best(c, &c->choices[k / c->ask.n * c->ask.best_of]);
        o[k] = told_choice(c, h, k, end_of(h));
    }
    const rui_told w = told(c, o, (uint32_t)n);
    if (o != NULL) {
        rui_ask_answer(&c->ask, &w, true, &t);
    }
    if (o == NULL || t.cut) {
        refuse(c, 503, "no memory for the answer");
        return;
    }
    count(c->version, c->r, 200);
    forget(c);
    rui_hold(c->server, c->arena.used_bytes - c->held_bytes, &c->held_bytes);
    rui_give_text(c->r, "application/json", ru_str_n(t.p, t.n), done, c);
}

static void end_stream(rui_telling *c, const char *sentence)
{
    if (c->status != 200) {
        put_failure(c, sentence);
    } else if (c->ask.openai) {
        if (c->ask.usage) {
            put_told(c, NULL, 0);
        }
        put_event(c, ru_str_c("data: [DONE]\n\n"));
    }
    count(c->version, c->r, c->status);
    ru_http_end(c->r);
    forget(c);
    done(c);
}

/* All its texts are over. */
static void finish(rui_telling *c)
{
    const char *sentence = c->status == 500   ? c->err.text
                           : c->status == 503 ? "no memory for the answer"
                           : c->status == 499 ? "the client left"
                                              : "the time that the request or the server allows it "
                                                "to wait is over; no text was written";
    if (c->ask.stream) {
        end_stream(c, sentence);
    } else if (c->status != 200) {
        refuse(c, c->status, sentence);
    } else {
        answer_whole(c);
    }
}

/* -- what the writer did -----------------------------------------------------------------------
 */

/* New tokens as text, up to a stop text or the last whole letter; where what can be sent ends. */
static int64_t read_tokens(const rui_telling *c, choice *h, int64_t n)
{
    const ru_stream *s = &h->written.stream;
    for (; h->seen < n - s->n_prompt && h->ends_at < 0; h->seen++) {
        int64_t token = s->tokens[s->n_prompt + h->seen], from = h->text.n - h->prompt_bytes;
        if (token != s->end_token) {
            ru_words_put(&c->version->words, token, &h->text);
        }
        ru_str written = ru_str_n(h->text.p + h->prompt_bytes, h->text.n - h->prompt_bytes);
        h->ends_at = rui_ask_stop(&c->ask, written, from, &h->safe);
        h->ends_at += h->ends_at >= 0 ? h->prompt_bytes : 0;
    }
    return h->safe + h->prompt_bytes;
}

/* The writer gave it back. What came behind a stop text does not count. */
static void take_end(rui_telling *c, choice *h, ru_stream_end end, const ru_err *err)
{
    bool stopped = h->ends_at >= 0;
    h->over = true;
    c->n_over++;
    if (end == RU_STREAM_FAILED && !stopped) {
        c->err = *err;
        fail(c, 500);
    } else if (h->text.cut) {
        fail(c, 503);
    } else if (end == RU_STREAM_DROPPED && !stopped) {
        fail(c, c->left ? 499 : 504);
    } else {
        h->finish = stopped || end == RU_STREAM_STOP ? "stop" : "length";
        h->mean = c->ask.best_of > c->ask.n ? mean_of(h) : 0;
        if (c->ask.stream && c->status == 200) {
            put_piece(c, h, end_of(h));
        }
    }
}

static void look_choice(rui_telling *c, choice *h)
{
    int64_t n;
    ru_err err = {0};
    ru_stream_end end = rui_scribe_look(c->version->scribe, &h->written, &n, &err);
    int64_t safe = read_tokens(c, h, n);
    c->begun = c->begun || n > 0;
    if (end != RU_STREAM_RUNS) {
        take_end(c, h, end, &err);
    } else if (h->text.cut) {
        fail(c, 503);
    } else if (h->ends_at >= 0) {
        drop(c, h);
    } else if (c->ask.stream && h->seen > 0 && safe > h->sent && c->status == 200) {
        put_piece(c, h, safe);
    }
}

static void look(rui_telling *c, ru_time now)
{
    for (int64_t k = 0; k < c->n_choices; k++) {
        if (!c->choices[k].over) {
            look_choice(c, &c->choices[k]);
        }
    }
    if (c->n_over == c->n_choices) {
        finish(c);
    } else if (!c->begun && c->due.ns > 0 && ru_time_since(now, c->due) > 0) {
        fail(c, 504);
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
            fail(c, 499);
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

/* Bytes that a token of an answer takes about: itself and its text; each log probability of it. */
enum { TOKEN_BYTES = 40, SCORE_BYTES = 64 };

static bool is_scored(const rui_ask *a)
{
    return a->logprobs >= 0 || a->best_of > a->n;
}

/* Tokens that a text with prompt `p` has at most. */
static int64_t tokens_max(const rui_telling *c, const rui_prompt *p)
{
    int64_t room = ru_steps_facts_get(c->version->steps).context + 1 - p->n_tokens;
    return p->n_tokens + (c->ask.max_tokens < room ? c->ask.max_tokens : room);
}

static bool get_choice(rui_telling *c, choice *h, int64_t n_max)
{
    int64_t k = c->ask.logprobs > 0 ? c->ask.logprobs : 0, likely = n_max * k + 1;
    h->written.stream.tokens = RU_NEW(&c->arena, int64_t, n_max);
    if (is_scored(&c->ask)) {
        h->scores = (ru_scores){.k = (uint32_t)k,
                                .own = RU_NEW(&c->arena, float, n_max),
                                .top = RU_NEW(&c->arena, uint32_t, likely),
                                .top_own = RU_NEW(&c->arena, float, likely)};
        if (h->scores.own == NULL || h->scores.top == NULL || h->scores.top_own == NULL) {
            return false;
        }
    }
    return h->written.stream.tokens != NULL;
}

/* Memory for its texts, out of what all requests may have. */
static ru_status get_memory(rui_telling *c, ru_err *err)
{
    const rui_ask *a = &c->ask;
    int64_t k = a->logprobs > 0 ? a->logprobs : 0, most = c->server->opt.outputs_max_bytes,
            token_bytes = TOKEN_BYTES + (is_scored(a) ? SCORE_BYTES * (k + 1) : 0), bytes = 0;
    for (int64_t p = 0; p < a->n_prompts; p++) {
        bytes += a->best_of * tokens_max(c, &a->prompts[p]) * token_bytes;
    }
    if (bytes > most) {
        return RU_FAIL(err, RU_E_DATA,
                       "texts of one request may have %lld bytes, and these have up to %lld: ask "
                       "for fewer ('n', 'best_of', prompts), shorter ones ('max_tokens') or fewer "
                       "'logprobs'",
                       (long long)most, (long long)bytes);
    }
    RU_TRY(rui_hold_more(c->server, bytes, &c->held_bytes, err));
    int64_t n = a->n_prompts * a->best_of;
    c->choices = RU_NEW(&c->arena, choice, n);
    bool there = c->choices != NULL;
    for (int64_t i = 0; there && i < n; i++) {
        there = get_choice(c, &c->choices[i], tokens_max(c, &a->prompts[i / a->best_of]));
    }
    c->n_choices = there ? n : 0;
    return there ? RU_OK : RU_FAIL(err, RU_E_LIMIT, "no memory for the request");
}

/* The prompt as the answer has it: without the blank that some tokenizers put before a text. */
static void echo(rui_telling *c, choice *h, ru_str asked)
{
    const ru_stream *s = &h->written.stream;
    for (int64_t i = 0; i < s->n_prompt; i++) {
        ru_words_put(&c->version->words, s->tokens[i], &h->text);
    }
    int64_t more = h->text.n - asked.n;
    if (asked.p != NULL && more > 0 && c->version->words.tokenizer != NULL &&
        memcmp(h->text.p + more, asked.p, (size_t)asked.n) == 0) {
        h->sent = more;
        h->told_letters = -rui_ask_letters(ru_str_n(h->text.p, more));
    }
    h->told = 0;
    h->prompt_bytes = h->text.n;
}

/* Its tokens are known. */
static ru_status read_prompt(rui_telling *c, rui_prompt *p, ru_err *err)
{
    const ru_words *w = &c->version->words;
    int64_t context = ru_steps_facts_get(c->version->steps).context;
    if (p->text.p != NULL) { /* one that is far too long is not even divided */
        RU_TRY(fits(ru_words_least(w, p->text.n), " or more", context, err));
        RU_TRY(ru_words_split(w, p->text, &c->arena, &p->tokens, &p->n_tokens, err));
    } else {
        RU_TRY(ru_words_known(w, p->tokens, p->n_tokens, err));
    }
    return fits(p->n_tokens, "", context, err);
}

/* Its k-th text with prompt `p`, which is the `kin`-th of all. */
static void prepare_choice(rui_telling *c, const rui_prompt *p, int64_t k, uint64_t kin)
{
    const rui_ask *a = &c->ask;
    const ru_words *w = &c->version->words;
    choice *h = &c->choices[(p - a->prompts) * a->best_of + k];
    int64_t *tokens = h->written.stream.tokens;
    memcpy(tokens, p->tokens, (size_t)p->n_tokens * sizeof *tokens);
    h->scores.prompt = k == 0 && a->echo && a->logprobs >= 0;
    h->written.stream = (ru_stream){
        .tokens = tokens,
        .n_prompt = p->n_tokens,
        .n_max = tokens_max(c, p),
        .end_token = w->tokenizer != NULL ? ru_tokenizer_facts_get(w->tokenizer).end : -1,
        .priority = rui_priority(c->version, a->priority),
        .draw = a->draw,
        .scores = is_scored(a) ? &h->scores : NULL,
        .kin = a->best_of > 1 ? kin : 0};
    h->written.stream.draw.seed += (uint64_t)k;
    h->ends_at = -1;
    h->told = p->n_tokens;
    h->text = ru_text_arena(&c->arena);
    if (a->echo) {
        echo(c, h, p->text);
    }
}

static ru_status prepare(rui_telling *c, ru_err *err)
{
    rui_ask *a = &c->ask;
    int64_t vocab = c->version->words.vocab;
    for (int64_t p = 0; p < a->n_prompts; p++) {
        ru_status st = read_prompt(c, &a->prompts[p], err);
        if (st != RU_OK) {
            return a->n_prompts > 1 ? ru_err_wrap(err, st, "prompt %lld", (long long)p + 1) : st;
        }
    }
    RU_TRY(rui_due(c->version, c->r, a->timeout_us, &c->due, err));
    a->logprobs = a->logprobs < vocab ? a->logprobs : vocab;
    a->draw.seed = a->seeded ? a->draw.seed : ru_rng_u64(&c->server->spans);
    RU_TRY(get_memory(c, err));
    for (int64_t p = 0; p < a->n_prompts; p++) {
        uint64_t kin = ++c->server->kins;
        for (int64_t k = 0; k < a->best_of; k++) {
            prepare_choice(c, &a->prompts[p], k, kin);
        }
    }
    return RU_OK;
}

static void begin(rui_telling *c)
{
    static const ru_http_field fields[] = {{"Content-Type", "text/event-stream"},
                                           {"Cache-Control", "no-cache"}};
    c->number = ++c->server->texts;
    c->created_s = ru_clock_wall_ns() / 1000000000;
    for (int64_t k = 0; k < c->n_choices; k++) {
        rui_scribe_give(c->version->scribe, &c->choices[k].written);
    }
    if (c->ask.stream) { /* its client may be gone already */
        ru_http_stream(c->r, 200, fields, 2);
    }
}

/* The model that OpenAI's form names; without a name the only one that writes texts, else one that
 * may turn out to do so. */
static rui_version *named(const ru_server *s, const rui_ask *a, ru_text *why)
{
    rui_version *v = a->model.n > 0 ? rui_version_find(s, a->model, (ru_str){0}) : NULL;
    rui_version *other = NULL; /* it loads, else it failed */
    uint32_t n = 0;
    for (rui_version *k = s->versions; k != NULL && a->model.n == 0; k = k->next) {
        if (rui_version_find(s, ru_str_c(k->model), (ru_str){0}) != k) {
            continue;
        }
        if (k->state != RUI_READY) {
            other = other == NULL || k->state == RUI_LOADING ? k : other;
        } else if (k->scribe != NULL) {
            v = n++ == 0 ? k : v;
        }
    }
    v = v != NULL ? v : other;
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
    c->status = 200;
    ru_status st = rui_ask_read(r->body, r->body_bytes, openai, stream, &c->arena, &c->ask, &err);
    char why[256];
    ru_text t = ru_text_into(why, sizeof why);
    v = openai && st == RU_OK ? named(s, &c->ask, &t) : v;
    if (st != RU_OK || v == NULL || v->state != RUI_READY || s->stopping) {
        uint32_t status = st == RU_E_LIMIT ? 503 : st != RU_OK || c->ask.model.n == 0 ? 400 : 404;
        if (st != RU_OK && v != NULL) {
            count(v, r, status);
        }
        if (st == RU_OK && v != NULL) {
            rui_not_ready(s, v, r);
        } else {
            ru_http_refuse(r, status, st != RU_OK ? err.text : why, status == 503 ? 1 : 0);
        }
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
