/* Requests for texts and their answers, as bytes: Triton's generate extension and OpenAI's
 * completions. A parameter that the server does not carry out is refused by its name.
 *
 * Thread: any. */
#ifndef RU_SERVE_ASK_H
#define RU_SERVE_ASK_H

#include "serve/streams.h"
#include "serve/words.h"

enum { RUI_STOPS_MAX = 8, RUI_CHOICES_MAX = 128 /* n_prompts * best_of */ };

/* One of those that a request has. */
typedef struct rui_prompt {
    ru_str text;     /* view of the body or in the arena; p NULL: tokens instead */
    int64_t *tokens; /* [n_tokens] */
    int64_t n_tokens;
} rui_prompt;

typedef struct rui_ask {
    bool openai, stream, usage; /* usage: the stream ends with the counts of tokens */
    ru_str model, id;           /* view of the body or in the arena; n 0: not given */
    rui_prompt *prompts;        /* [n_prompts] */
    int64_t n_prompts, max_tokens;
    int64_t *tokens; /* [n_tokens] of all prompts that are given as tokens */
    int64_t n_tokens;
    int64_t n;        /* texts that are answered with each prompt */
    int64_t best_of;  /* texts that are written with each: n, or more than n and not streamed */
    int64_t logprobs; /* of so many likely tokens, and of those written; -1: none */
    bool echo;        /* the answer begins with the prompt */
    int64_t priority, timeout_us; /* as infer requests have them; 0: not given */
    ru_draw draw;
    bool seeded; /* the seed was given */
    ru_str stops[RUI_STOPS_MAX];
    uint32_t n_stops;
} rui_ask;

/* openai: else Triton. stream: of Triton's two paths, which one. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_ask_read(const void *body, int64_t body_bytes, bool openai, bool stream,
                                   ru_arena *arena, rui_ask *out, ru_err *err);

/* What is new of one text. */
typedef struct rui_told_choice {
    uint32_t index;
    ru_str text;
    const char *finish;      /* "stop", "length"; NULL: it goes on */
    const ru_stream *scored; /* NULL: no log probabilities are asked */
    int64_t from, to;        /* its tokens that are told */
    int64_t letters;         /* of the whole text before token `from`; may be below 0 */
} rui_told_choice;

/* A piece of an answer, or the whole. */
typedef struct rui_told {
    const char *model, *version;
    const ru_words *words;
    const rui_told_choice *choices; /* [n] Triton's form: one */
    uint32_t n;
    uint64_t number;   /* of the request */
    int64_t created_s; /* since 1970 */
    int64_t prompt_tokens, tokens;
} rui_told;

/* One JSON object; usage: with the counts of tokens. */
void rui_ask_answer(const rui_ask *a, const rui_told *w, bool usage, ru_text *t);

/* Letters of UTF-8 that begin in `text`. */
int64_t rui_ask_letters(ru_str text);

/* Where `text`, of which bytes from `from` on are new, ends by a stop text; -1: nowhere. *safe:
 * bytes that can be sent: neither the beginning of a stop text nor a part of a letter stands
 * behind. */
int64_t rui_ask_stop(const rui_ask *a, ru_str text, int64_t from, int64_t *safe);

#endif
