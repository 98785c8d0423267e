/* A batch as the call of a function, and the function that answers it: a request and an answer of
 * the Open Inference Protocol as JSON, so that a function of another make may serve a model too.
 *
 *   parts --put--> {"inputs":[...]} --> the function: answer --> {"outputs":[...]} --take--> parts
 *
 * Thread: put and take: any; answer: one at a time. */
#ifndef RU_SERVE_FAR_CALLED_H
#define RU_SERVE_FAR_CALLED_H

#include "env/clock.h"
#include "serve/model.h"

/* Requests that may be shorter than the model have `sizes` classes, of equal width: the largest
 * size of one of them, and the class of a size. */
int64_t ru_called_bound(int64_t size_max, uint32_t sizes, uint32_t class_of);
uint32_t ru_called_class(int64_t size_max, uint32_t sizes, int64_t size);

/* All parts as one request, with zeros behind those that are smaller than `size` (0: the model's
 * only one). Texts have numbers of their own request: RU_E_UNSUPPORTED. */
RU_MUST_USE ru_status ru_called_put(const ru_served_facts *f, ru_served_part *const *parts,
                                    uint32_t n, int64_t size, ru_arena *arena, ru_text *into,
                                    ru_err *err);
/* Rows of the answer into the outputs of the parts, without what stands behind their sizes.
 * Errors: RU_E_DATA, not what was asked for. */
RU_MUST_USE ru_status ru_called_take(const ru_served_facts *f, ru_served_part *const *parts,
                                     uint32_t n, int64_t size, const void *text, int64_t n_text,
                                     ru_arena *arena, ru_err *err);

/* The model of a function: for each size that it is asked in, the whole one last. */
typedef struct ru_called {
    ru_served *const *at; /* [n], each of one instance */
    uint32_t n;
} ru_called;
/* What the function answers: as ru_function_instance_options. self: ru_called. */
RU_MUST_USE ru_status ru_called_answer(void *self, const uint8_t *body, int64_t body_bytes,
                                       ru_time until, ru_arena *arena, ru_text *out, ru_err *err);

#endif
