#include "serve/ask.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "serve/scan.h"

enum { TOKENS = 16 /* when nobody says how many, as other servers do */ };

/* -- requests ----------------------------------------------------------------------------------
 */

/* Parameters of other servers with the values that ask for nothing. */
static const struct {
    const char *key, *values; /* separated by blanks; "": none */
} neutral[] = {
    {"suffix", "\"\""},
    {"logit_bias", "{}"},
    {"presence_penalty", "0 0.0"},
    {"frequency_penalty", "0 0.0"},
    {"bad_words", "\"\" []"},
    {"exclude_input_in_output", "true"},
    {"return_log_probs", "false"},
};

static bool is_neutral(rui_scan *s, ru_str key, ru_str value)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(neutral); k++) {
        ru_str rest = ru_str_c(neutral[k].values), word;
        if (!ru_str_eq_c(key, neutral[k].key)) {
            continue;
        }
        while (ru_str_next(&rest, ' ', &word)) {
            if (word.n == value.n && memcmp(word.p, value.p, (size_t)word.n) == 0) {
                return true;
            }
        }
        s->st = RU_FAIL(s->err, RU_E_DATA, "%s %.*s is not supported: leave it out", neutral[k].key,
                        RUI_CUT(value, 60));
        return true;
    }
    return ru_str_eq_c(key, "user");
}

static void read_stop(rui_scan *s, rui_ask *a)
{
    ru_str one;
    if (!rui_scan_text(s, &one) || one.n == 0) {
        return;
    }
    if (a->n_stops == RUI_STOPS_MAX) { /* of all lists together */
        (void)rui_scan_wrong(s, "at most 8 stop texts");
        return;
    }
    a->stops[a->n_stops++] = one;
}

static void read_stops(rui_scan *s, rui_ask *a)
{
    if (s->p < s->end && *s->p == '"') {
        read_stop(s, a);
        return;
    }
    for (bool first = rui_scan_open(s, '['); rui_scan_item(s, &first);) {
        read_stop(s, a);
    }
}

/* One more; NULL: a mistake is noted. */
static rui_prompt *new_prompt(rui_scan *s, rui_ask *a)
{
    a->prompts = a->prompts != NULL ? a->prompts : RU_NEW(s->arena, rui_prompt, RUI_CHOICES_MAX);
    if (a->prompts == NULL) {
        s->st = RU_FAIL(s->err, RU_E_LIMIT, "no memory for the request");
        return NULL;
    }
    if (a->n_prompts == RUI_CHOICES_MAX) {
        s->st = RU_FAIL(s->err, RU_E_DATA, "a request has at most %d prompts: ask several times",
                        RUI_CHOICES_MAX);
        return NULL;
    }
    return &a->prompts[a->n_prompts++];
}

static void read_token(rui_scan *s, rui_ask *a, rui_prompt *p)
{
    int64_t cap = s->end - s->p, token;
    if (!rui_scan_i64(s, &token)) {
        return;
    }
    a->tokens = a->tokens != NULL ? a->tokens : RU_NEW(s->arena, int64_t, cap / 2 + 1);
    if (a->tokens == NULL) {
        s->st = RU_FAIL(s->err, RU_E_LIMIT, "no memory for the request");
        return;
    }
    p->tokens = p->n_tokens++ == 0 ? &a->tokens[a->n_tokens] : p->tokens;
    a->tokens[a->n_tokens++] = token;
}

static void read_list(rui_scan *s, rui_ask *a)
{
    rui_prompt *p = new_prompt(s, a);
    for (bool first = rui_scan_open(s, '['); rui_scan_item(s, &first);) {
        read_token(s, a, p);
    }
    if (s->st == RU_OK && p->n_tokens == 0) {
        (void)rui_scan_wrong(s, "a token");
    }
}

/* A text, several, a list of tokens, several. */
static void read_prompts(rui_scan *s, rui_ask *a, ru_str key)
{
    const char *from = s->p;
    char kind = 0; /* of all items: how the first one begins */
    rui_prompt *p = NULL;
    if (a->n_prompts > 0) {
        s->st = RU_FAIL(s->err, RU_E_DATA, "%.*s is given twice", (int)key.n, key.p);
    } else if (s->p < s->end && *s->p == '"') {
        p = new_prompt(s, a);
        (void)(p != NULL && rui_scan_text(s, &p->text));
        return;
    }
    for (bool first = rui_scan_open(s, '['); rui_scan_item(s, &first);) {
        char is = *s->p == '"' || *s->p == '[' ? *s->p : '0';
        if (kind != 0 && is != kind) {
            s->st = RU_FAIL(s->err, RU_E_DATA,
                            "%.*s: expected texts alone, tokens alone or lists of tokens alone",
                            (int)key.n, key.p);
        } else if (is == '[') {
            read_list(s, a);
        } else {
            p = is == '"' || kind == 0 ? new_prompt(s, a) : p;
            if (p != NULL && is == '"') {
                (void)rui_scan_text(s, &p->text);
            } else if (p != NULL) {
                read_token(s, a, p);
            }
        }
        kind = is;
    }
    if (s->st == RU_OK && a->n_prompts == 0) {
        s->p = from;
        (void)rui_scan_wrong(s, "a text or a list of tokens");
    }
    if (s->st == RU_OK && a->n_prompts > 1 && !a->openai) {
        s->st = RU_FAIL(s->err, RU_E_DATA,
                        "%.*s: one text a request; POST /v1/completions takes several prompts",
                        (int)key.n, key.p);
    }
}

static void read_number(rui_scan *s, ru_str key, double low, double high, double *out)
{
    if (rui_scan_f64(s, out) && !(*out >= low && *out <= high)) {
        s->st = RU_FAIL(s->err, RU_E_DATA, "%.*s %g is outside %g .. %g", (int)key.n, key.p, *out,
                        low, high);
    }
}

static void read_whole(rui_scan *s, ru_str key, int64_t low, int64_t high, int64_t *out)
{
    if (rui_scan_i64(s, out) && (*out < low || *out > high)) {
        s->st =
            RU_FAIL(s->err, RU_E_DATA, "%.*s %lld is %s %lld", (int)key.n, key.p, (long long)*out,
                    *out < low ? "below" : "above", (long long)(*out < low ? low : high));
    }
}

/* What both forms have; false: another key. */
static bool read_common(rui_scan *s, rui_ask *a, ru_str key)
{
    int64_t seed;
    if (ru_str_eq_c(key, "max_tokens")) {
        read_whole(s, key, a->openai ? 0 : 1, INT64_MAX, &a->max_tokens);
    } else if (ru_str_eq_c(key, "temperature")) {
        read_number(s, key, 0, 100, &a->draw.temperature);
    } else if (ru_str_eq_c(key, "top_p")) {
        read_number(s, key, 0, 1, &a->draw.top_p);
    } else if (ru_str_eq_c(key, "top_k")) {
        read_whole(s, key, -1, INT64_MAX, &a->draw.top_k);
    } else if (ru_str_eq_c(key, "seed") || ru_str_eq_c(key, "random_seed")) {
        a->seeded = rui_scan_i64(s, &seed);
        a->draw.seed = a->seeded ? (uint64_t)seed : 0;
    } else if (ru_str_eq_c(key, "stop") || ru_str_eq_c(key, "stop_words")) {
        read_stops(s, a);
    } else if (ru_str_eq_c(key, "priority")) {
        read_whole(s, key, 0, INT64_MAX, &a->priority);
    } else if (ru_str_eq_c(key, "timeout")) {
        read_whole(s, key, 0, INT64_MAX, &a->timeout_us);
    } else {
        return false;
    }
    return true;
}

/* What OpenAI's form has alone; false: another key. */
static bool read_openai(rui_scan *s, rui_ask *a, ru_str key)
{
    if (ru_str_eq_c(key, "include_usage")) {
        (void)rui_scan_bool(s, &a->usage);
    } else if (ru_str_eq_c(key, "n")) {
        read_whole(s, key, 1, RUI_CHOICES_MAX, &a->n);
    } else if (ru_str_eq_c(key, "best_of")) {
        read_whole(s, key, 1, RUI_CHOICES_MAX, &a->best_of);
    } else if (ru_str_eq_c(key, "logprobs")) {
        read_whole(s, key, 0, RU_SCORES_MAX, &a->logprobs);
    } else if (ru_str_eq_c(key, "echo")) {
        (void)rui_scan_bool(s, &a->echo);
    } else {
        return false;
    }
    return true;
}

static void read_member(rui_scan *s, rui_ask *a, ru_str key, bool outer);

static void read_object(rui_scan *s, rui_ask *a, bool outer)
{
    ru_str key;
    for (bool first = rui_scan_open(s, '{'); rui_scan_key(s, &first, &key);) {
        read_member(s, a, key, outer);
    }
}

/* Of the outer object, or of its parameters: no deeper, because each level is looked through again.
 */
static void read_form(rui_scan *s, rui_ask *a, ru_str key, ru_str value, bool outer)
{
    bool stream = a->stream;
    if (ru_str_eq_c(key, "stream")) {
        if (rui_scan_bool(s, &stream) && !a->openai && stream != a->stream) {
            s->st = RU_FAIL(s->err, RU_E_DATA, "stream %s: ask %s instead",
                            stream ? "true" : "false", stream ? "generate_stream" : "generate");
        }
        a->stream = stream;
    } else if (a->openai && ru_str_eq_c(key, "model")) {
        (void)rui_scan_text(s, &a->model);
    } else if (ru_str_eq_c(key, a->openai ? "prompt" : "text_input")) {
        read_prompts(s, a, key);
    } else if (outer && ru_str_eq_c(key, a->openai ? "stream_options" : "parameters")) {
        read_object(s, a, false);
    } else if (a->openai && read_openai(s, a, key)) {
        return;
    } else if (!a->openai && ru_str_eq_c(key, "id")) {
        (void)rui_scan_text(s, &a->id);
    } else if (is_neutral(s, key, value)) {
        (void)rui_scan_skip(s, &value.p);
    } else {
        s->st =
            RU_FAIL(s->err, RU_E_DATA, "the parameter '%.*s' is not supported", RUI_CUT(key, 100));
    }
}

static void read_member(rui_scan *s, rui_ask *a, ru_str key, bool outer)
{
    const char *from = s->p;
    if (!rui_scan_skip(s, &from)) {
        return;
    }
    ru_str value = ru_str_trim(ru_str_n(from, s->p - from));
    if (ru_str_eq_c(value, "null")) { /* not given */
        return;
    }
    s->p = value.p;
    if (!read_common(s, a, key)) {
        read_form(s, a, key, value, outer);
    }
}

/* What single parameters do not tell. */
static ru_status check(rui_ask *a, ru_err *err)
{
    a->best_of = a->best_of > 0 ? a->best_of : a->n;
    if (a->n_prompts == 0) {
        return RU_FAIL(err, RU_E_DATA, "the request has no %s",
                       a->openai ? "prompt" : "text_input");
    }
    if (a->max_tokens == 0 && !a->echo) {
        return RU_FAIL(err, RU_E_DATA,
                       "max_tokens 0 writes nothing: it is for \"echo\": true, which answers the "
                       "prompt");
    }
    if (a->best_of < a->n) {
        return RU_FAIL(err, RU_E_DATA, "best_of %lld is below n %lld", (long long)a->best_of,
                       (long long)a->n);
    }
    if (a->best_of > a->n && a->stream) {
        return RU_FAIL(err, RU_E_DATA,
                       "best_of above n cannot be streamed, as only whole texts tell which are the "
                       "best: leave out 'stream' or 'best_of'");
    }
    if (a->n_prompts * a->best_of > RUI_CHOICES_MAX) {
        return RU_FAIL(err, RU_E_DATA,
                       "%lld prompts with %lld texts each are above %d texts a request: ask for "
                       "fewer ('n', 'best_of') or several times",
                       (long long)a->n_prompts, (long long)a->best_of, RUI_CHOICES_MAX);
    }
    return RU_OK;
}

ru_status rui_ask_read(const void *body, int64_t body_bytes, bool openai, bool stream,
                       ru_arena *arena, rui_ask *out, ru_err *err)
{
    rui_scan s = rui_scan_over(body, body_bytes, arena, err);
    *out = (rui_ask){.openai = openai, .stream = stream, .max_tokens = TOKENS};
    out->n = 1;
    out->logprobs = -1;
    out->draw = (ru_draw){.temperature = 1, .top_p = 1};
    read_object(&s, out, true);
    (void)rui_scan_end(&s);
    RU_TRY(s.st);
    out->draw.top_k = out->draw.top_k < 0 ? 0 : out->draw.top_k;
    return check(out, err);
}

/* -- answers -----------------------------------------------------------------------------------
 */

static void put_text(ru_json *j, const char *key, ru_str text)
{
    ru_json_raw(j, key, "");
    ru_text_json(j->out, text);
}

static void put_usage(ru_json *j, const rui_told *w)
{
    ru_json_open(j, "usage", '{');
    ru_json_i64(j, "prompt_tokens", w->prompt_tokens);
    ru_json_i64(j, "completion_tokens", w->tokens);
    ru_json_i64(j, "total_tokens", w->prompt_tokens + w->tokens);
    ru_json_close(j);
}

int64_t rui_ask_letters(ru_str text)
{
    int64_t n = 0;
    for (int64_t k = 0; k < text.n; k++) {
        n += ((uint8_t)text.p[k] & 0xC0) != 0x80 ? 1 : 0;
    }
    return n;
}

/* A token as a JSON text. What is no whole letter, or nothing, has a name of its own, as keys of an
 * object must differ. */
static void put_token(const rui_told *w, int64_t token, ru_text *t)
{
    char room[RU_WORDS_ROOM], name[4 * RU_WORDS_ROOM + 16];
    ru_str s = ru_words_text(w->words, token, room);
    ru_text utf8 = ru_text_into(name, sizeof name), other = utf8;
    if (s.n >= RU_WORDS_ROOM) {
        ru_text_json(t, s);
        return;
    }
    ru_text_utf8(&utf8, s);
    if (s.n > 0 && utf8.n == s.n && memcmp(name, s.p, (size_t)s.n) == 0) {
        ru_text_json(t, s);
        return;
    }
    if (s.n > 0) {
        ru_text_put(&other, "bytes:");
    } else {
        ru_text_putf(&other, "token:%lld", (long long)token);
    }
    for (int64_t k = 0; k < s.n; k++) {
        ru_text_putf(&other, "\\x%02x", (unsigned)(uint8_t)s.p[k]);
    }
    ru_text_json(t, ru_str_n(name, other.n));
}

static void put_score(ru_text *t, float score)
{
    if (isfinite(score)) {
        ru_text_putf(t, "%.8g", (double)score);
    } else {
        ru_text_put(t, "null");
    }
}

/* Likely tokens at place `at`, and the one that stands there. */
static void put_top(const rui_told *w, const ru_stream *s, int64_t at, ru_text *t)
{
    const ru_scores *o = s->scores;
    bool there = false;
    for (uint32_t k = 0; k <= o->k; k++) {
        bool own = k == o->k;
        int64_t token = own ? s->tokens[at] : (int64_t)o->top[at * o->k + k];
        if (own && there) {
            break;
        }
        there = there || token == s->tokens[at];
        ru_text_put(t, k > 0 ? "," : "{");
        put_token(w, token, t);
        ru_text_put(t, ":");
        put_score(t, own ? o->own[at] : o->top_own[at * o->k + k]);
    }
    ru_text_put(t, "}");
}

/* Nothing comes before the first token of all: nobody can say how likely it is. */
static void put_logprobs(const rui_told *w, const rui_told_choice *c, ru_text *t)
{
    static const char *const lists[] = {"{\"tokens\":[", "],\"token_logprobs\":[",
                                        "],\"top_logprobs\":[", "],\"text_offset\":["};
    const ru_stream *s = c->scored;
    for (uint32_t list = 0; list < RU_ARRAY_LEN(lists); list++) {
        int64_t letters = c->letters;
        ru_text_put(t, lists[list]);
        for (int64_t at = c->from; at < c->to; at++) {
            char room[RU_WORDS_ROOM];
            ru_text_put(t, at > c->from ? "," : "");
            if (list == 0) {
                put_token(w, s->tokens[at], t);
            } else if (list == 3) {
                ru_text_putf(t, "%lld", (long long)(letters > 0 ? letters : 0));
                letters += rui_ask_letters(ru_words_text(w->words, s->tokens[at], room));
            } else if (at == 0) {
                ru_text_put(t, "null");
            } else if (list == 1) {
                put_score(t, s->scores->own[at]);
            } else {
                put_top(w, s, at, t);
            }
        }
    }
    ru_text_put(t, "]}");
}

static void put_choice(const rui_told *w, const rui_told_choice *c, ru_json *j)
{
    ru_json_open(j, NULL, '{');
    ru_json_i64(j, "index", c->index);
    put_text(j, "text", c->text);
    if (c->scored != NULL) {
        ru_json_raw(j, "logprobs", "");
        put_logprobs(w, c, j->out);
    } else {
        ru_json_null(j, "logprobs");
    }
    ru_json_str(j, "finish_reason", c->finish);
    ru_json_close(j);
}

static void put_completion(const rui_told *w, bool usage, ru_json *j)
{
    char id[40];
    ru_text t = ru_text_into(id, sizeof id);
    ru_text_putf(&t, "cmpl-%llu", (unsigned long long)w->number);
    ru_json_str(j, "id", id);
    ru_json_str(j, "object", "text_completion");
    ru_json_i64(j, "created", w->created_s);
    ru_json_str(j, "model", w->model);
    ru_json_open(j, "choices", '[');
    for (uint32_t k = 0; k < w->n; k++) {
        put_choice(w, &w->choices[k], j);
    }
    ru_json_close(j);
    if (usage) {
        put_usage(j, w);
    }
}

void rui_ask_answer(const rui_ask *a, const rui_told *w, bool usage, ru_text *t)
{
    ru_json j = ru_json_into(t);
    ru_json_open(&j, NULL, '{');
    if (a->openai) {
        put_completion(w, usage, &j);
    } else {
        ru_json_str(&j, "model_name", w->model);
        ru_json_str(&j, "model_version", w->version);
        if (a->id.n > 0) {
            put_text(&j, "id", a->id);
        }
        put_text(&j, "text_output", w->choices[0].text);
    }
    ru_json_close(&j);
}

/* Does `text` end in a part of a letter? How many bytes of it are there. */
static int64_t part_of_letter(ru_str text)
{
    for (int64_t k = 1; k <= 3 && k <= text.n; k++) {
        uint8_t c = (uint8_t)text.p[text.n - k];
        if (c >= 0xC0) {
            return k < (c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2) ? k : 0;
        }
        if (c < 0x80) {
            return 0;
        }
    }
    return 0;
}

int64_t rui_ask_stop(const rui_ask *a, ru_str text, int64_t from, int64_t *safe)
{
    int64_t found = -1, held = part_of_letter(text);
    for (uint32_t k = 0; k < a->n_stops; k++) {
        ru_str stop = a->stops[k];
        int64_t at = from >= stop.n ? from - stop.n + 1 : 0;
        for (; at + stop.n <= text.n; at++) {
            if (memcmp(text.p + at, stop.p, (size_t)stop.n) == 0) {
                found = found < 0 || at < found ? at : found;
                break;
            }
        }
        for (int64_t n = stop.n - 1; n > held; n--) {
            if (n <= text.n && memcmp(text.p + text.n - n, stop.p, (size_t)n) == 0) {
                held = n;
            }
        }
    }
    *safe = found >= 0 ? found : text.n - held;
    return found;
}
