/* Reading JSON of requests in one pass over their bytes, without a tree: the caller walks objects
 * and lists, numbers of tensors go straight where they belong.
 *
 *     ru_str key;
 *     for (bool first = rui_scan_open(&s, '{'); rui_scan_key(&s, &first, &key);) { ... one value }
 *
 * After the first mistake every function does nothing and answers false; `st` and `err` say it.
 * Texts with escapes are copied into the arena, others are views of the bytes.
 *
 * Thread: one at a time. */
#ifndef RU_SERVE_SCAN_H
#define RU_SERVE_SCAN_H

#include "base/str.h"
#include "world/graph/graph.h"
#include "world/graph/texts.h"

/* For "%.*s": the first `most` bytes of what a client sent. */
#define RUI_CUT(s, most) (int)((s).n < (most) ? (s).n : (most)), (s).p

typedef struct rui_scan {
    const char *begin, *p, *end;
    ru_arena *arena;
    ru_err *err;
    ru_status st;
} rui_scan;

rui_scan rui_scan_over(const void *data, int64_t size_bytes, ru_arena *arena, ru_err *err);
/* Consumes the bracket; true unless another thing stands there. */
bool rui_scan_open(rui_scan *s, char bracket);
/* The next key of an object; false at its end. */
bool rui_scan_key(rui_scan *s, bool *first, ru_str *key);
/* Is there a further item in a list? */
bool rui_scan_item(rui_scan *s, bool *first);
bool rui_scan_text(rui_scan *s, ru_str *out);
bool rui_scan_i64(rui_scan *s, int64_t *out);
bool rui_scan_f64(rui_scan *s, double *out);
bool rui_scan_bool(rui_scan *s, bool *out);
/* Any value. *from .. s->p is what was passed over. */
bool rui_scan_skip(rui_scan *s, const char **from);
/* Elements of a tensor, flat or nested as the shape says, in its type. words: they are texts, and
 * become their numbers; NULL: they are numbers. */
bool rui_scan_elements(rui_scan *s, const ru_type *type, ru_texts *words, void *into);
/* The number of a text; it must not contain a zero byte. */
bool rui_scan_code(rui_scan *s, ru_str text, ru_texts *words, void *into);
/* Nothing but blanks may follow. */
bool rui_scan_end(rui_scan *s);
/* Note a mistake, unless one is noted; answers false. */
bool rui_scan_wrong(rui_scan *s, const char *expected);

#endif
