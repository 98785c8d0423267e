/* Byte-pair tokenizers by the usual file tokenizer.json. GPT-2's kind (pre_tokenizer ByteLevel)
 * divides a text into words, whose bytes are merged by rank. Llama's kind (pre_tokenizer Metaspace,
 * or none and a normalizer) merges letters, with U+2581 for blanks; letters without a token are
 * bytes.
 *
 * Thread: any, after it is open. Source: Sennrich et al., ACL 2016; Radford et al. 2019. */
#ifndef RU_STORE_TOKENIZER_H
#define RU_STORE_TOKENIZER_H

#include "base/str.h"

typedef struct ru_tokenizer ru_tokenizer;

typedef struct ru_tokenizer_facts {
    int64_t size;    /* tokens are 0 .. size-1 */
    int64_t end;     /* the special token <|endoftext|> or, Llama's kind, </s>; -1: none */
    int64_t longest; /* bytes of text that one token stands for, at most */
} ru_tokenizer_facts;

/* Lives in `arena`. Errors: RU_E_MISSING, RU_E_DATA; RU_E_UNSUPPORTED naming what of the file would
 * change tokens and is not carried out. */
RU_MUST_USE ru_status ru_tokenizer_open(const char *path, ru_arena *arena, ru_tokenizer **out,
                                        ru_err *err);
ru_tokenizer_facts ru_tokenizer_facts_get(const ru_tokenizer *t);
/* *ids [*n] in `arena`. Errors: RU_E_DATA for a byte without a token, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_tokenizer_split(const ru_tokenizer *t, ru_str text, ru_arena *arena,
                                         int64_t **ids, int64_t *n, ru_err *err);
/* The bytes of a token; none of a special one. */
ru_str ru_tokenizer_bytes(const ru_tokenizer *t, int64_t id);

#endif
