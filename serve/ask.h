/* Requests for texts and their answers, as bytes: Triton's generate extension and OpenAI's
 * completions. A parameter that the server does not carry out is refused by its name.
 *
 * Thread: any. */
#ifndef RU_SERVE_ASK_H
#define RU_SERVE_ASK_H

#include "base/str.h"
#include "serve/draw.h"

enum { RUI_STOPS_MAX = 8 };

typedef struct rui_ask {
    bool openai, stream, usage; /* usage: the stream ends with the counts of tokens */
    ru_str model, id;           /* view of the body or in the arena; n 0: not given */
    ru_str prompt;              /* p NULL: tokens instead */
    int64_t *tokens;            /* [n_tokens] */
    int64_t n_tokens, max_tokens;
    int64_t priority, timeout_us; /* as infer requests have them; 0: not given */
    ru_draw draw;
    bool seeded; /* the seed was given */
    ru_str stops[RUI_STOPS_MAX];
    uint32_t n_stops;
} rui_ask;

/* openai: else Triton. stream: of Triton's two paths, which one. Errors: RU_E_DATA. */
RU_MUST_USE ru_status rui_ask_read(const void *body, int64_t body_bytes, bool openai, bool stream,
                                   ru_arena *arena, rui_ask *out, ru_err *err);

/* A piece of an answer, or the whole. */
typedef struct rui_told {
    const char *model, *version;
    uint64_t number;    /* of the request */
    int64_t created_s;  /* since 1970 */
    ru_str text;        /* what is new */
    const char *finish; /* "stop", "length"; NULL: it goes on */
    int64_t prompt_tokens, tokens;
} rui_told;

/* One JSON object; whole: not a piece. */
void rui_ask_answer(const rui_ask *a, const rui_told *w, bool whole, ru_text *t);

/* Where `text`, of which bytes from `from` on are new, ends by a stop text; -1: nowhere. *safe:
 * bytes that can be sent: neither the beginning of a stop text nor a part of a letter stands
 * behind. */
int64_t rui_ask_stop(const rui_ask *a, ru_str text, int64_t from, int64_t *safe);

#endif
