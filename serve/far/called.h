/* A batch as the call of a function, and the function that answers it: a request and an answer of
 * the Open Inference Protocol as JSON, so that a function of another make may serve a model too.
 *
 *   parts --put--> {"inputs":[...]} --> the function: answer --> {"outputs":[...]} --take--> parts
 *
 * Thread: put and take: any; answer: one at a time. */
#ifndef RU_SERVE_FAR_CALLED_H
#define RU_SERVE_FAR_CALLED_H

#include "serve/model.h"

/* All parts as one request. Texts have numbers of their own request: RU_E_UNSUPPORTED. */
RU_MUST_USE ru_status ru_called_put(const ru_served_facts *f, ru_served_part *const *parts,
                                    uint32_t n, ru_arena *arena, ru_text *into, ru_err *err);
/* Rows of the answer into the outputs of the parts. Errors: RU_E_DATA, not what was asked for. */
RU_MUST_USE ru_status ru_called_take(const ru_served_facts *f, ru_served_part *const *parts,
                                     uint32_t n, const void *text, int64_t n_text, ru_arena *arena,
                                     ru_err *err);
/* What the function answers: as ru_function_instance_options. self: ru_served, of one instance. */
RU_MUST_USE ru_status ru_called_answer(void *self, const uint8_t *body, int64_t body_bytes,
                                       ru_arena *arena, ru_text *out, ru_err *err);

#endif
