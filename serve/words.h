/* Tokens of a language model as text: those of its tokenizer; without one bytes where the
 * vocabulary is one of bytes, else numbers with a blank behind each.
 *
 * Thread: any. */
#ifndef RU_SERVE_WORDS_H
#define RU_SERVE_WORDS_H

#include "store/tokenizer.h"

typedef struct ru_words {
    int64_t vocab;
    const ru_tokenizer *tokenizer; /* NULL: none */
} ru_words;

/* Errors: RU_E_DATA when the tokenizer has tokens that the model has not. */
RU_MUST_USE ru_status ru_words_check(const ru_words *w, ru_err *err);
/* Tokens that a text of so many bytes has at least. */
int64_t ru_words_least(const ru_words *w, int64_t bytes);
/* *ids [*n] in `arena`; an empty text is a line's end, so that there is something to go on from.
 * Errors: RU_E_DATA with a sentence for who wrote the text, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_words_split(const ru_words *w, ru_str text, ru_arena *arena, int64_t **ids,
                                     int64_t *n, ru_err *err);
/* Are they the model's? Errors: RU_E_DATA. */
RU_MUST_USE ru_status ru_words_known(const ru_words *w, const int64_t *ids, int64_t n, ru_err *err);
enum { RU_WORDS_ROOM = 24 };
/* Its bytes: a view of the tokenizer's, or of `room`. */
ru_str ru_words_text(const ru_words *w, int64_t token, char room[RU_WORDS_ROOM]);
void ru_words_put(const ru_words *w, int64_t token, ru_text *t);

#endif
