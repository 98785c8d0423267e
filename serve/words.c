#include "serve/words.h"

#include <stddef.h>

enum { BYTES = 256 };

static ru_status split_numbers(ru_str text, int64_t *ids, int64_t *n, ru_err *err)
{
    ru_str word;
    while (ru_str_next(&text, ' ', &word)) {
        if (word.n > 0 && !ru_str_i64(word, &ids[(*n)++])) {
            return RU_FAIL(err, RU_E_DATA,
                           "this model's tokens are not bytes; give token numbers separated by "
                           "blanks, not '%.*s'",
                           (int)(word.n < 80 ? word.n : 80), word.p);
        }
    }
    return RU_OK;
}

ru_status ru_words_check(const ru_words *w, ru_err *err)
{
    int64_t size = w->tokenizer != NULL ? ru_tokenizer_facts_get(w->tokenizer).size : 0;
    return size <= w->vocab ? RU_OK
                            : RU_FAIL(err, RU_E_DATA,
                                      "the tokenizer has %lld tokens, but the model has %lld: it "
                                      "was trained with another one",
                                      (long long)size, (long long)w->vocab);
}

int64_t ru_words_least(const ru_words *w, int64_t bytes)
{
    int64_t longest = w->tokenizer != NULL ? ru_tokenizer_facts_get(w->tokenizer).longest
                      : w->vocab <= BYTES  ? 1
                                           : INT64_MAX;
    return bytes / longest;
}

ru_status ru_words_known(const ru_words *w, const int64_t *ids, int64_t n, ru_err *err)
{
    for (int64_t k = 0; k < n; k++) {
        if (ids[k] < 0 || ids[k] >= w->vocab) {
            return RU_FAIL(err, RU_E_DATA, "token %lld is not in the model's vocabulary of %lld",
                           (long long)ids[k], (long long)w->vocab);
        }
    }
    return RU_OK;
}

ru_status ru_words_split(const ru_words *w, ru_str text, ru_arena *arena, int64_t **ids, int64_t *n,
                         ru_err *err)
{
    *n = 0;
    if (w->tokenizer != NULL) {
        text = text.n > 0 ? text : ru_str_c("\n");
        return ru_tokenizer_split(w->tokenizer, text, arena, ids, n, err);
    }
    *ids = RU_NEW(arena, int64_t, w->vocab > BYTES ? text.n / 2 + 1 : text.n + 1);
    if (*ids == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "not enough memory for the tokens of a text");
    }
    for (int64_t k = 0; w->vocab <= BYTES && k < text.n; k++) {
        (*ids)[(*n)++] = (uint8_t)text.p[k];
    }
    if (w->vocab > BYTES) {
        RU_TRY(split_numbers(text, *ids, n, err));
    }
    if (*n == 0) {
        (*ids)[(*n)++] = w->vocab > '\n' ? '\n' : 0;
    }
    return ru_words_known(w, *ids, *n, err);
}

ru_str ru_words_text(const ru_words *w, int64_t token, char room[RU_WORDS_ROOM])
{
    if (w->tokenizer != NULL) {
        return ru_tokenizer_bytes(w->tokenizer, token);
    }
    ru_text t = ru_text_into(room, RU_WORDS_ROOM);
    if (w->vocab <= BYTES) {
        room[0] = (char)(uint8_t)token;
        return ru_str_n(room, 1);
    }
    ru_text_putf(&t, "%lld ", (long long)token);
    return ru_str_n(room, t.n);
}

void ru_words_put(const ru_words *w, int64_t token, ru_text *t)
{
    char room[RU_WORDS_ROOM];
    ru_str s = ru_words_text(w, token, room);
    ru_text_put_n(t, s.p, s.n);
}
