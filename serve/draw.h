/* The next token from its logits. Pure.
 *
 * Thread: any. */
#ifndef RU_SERVE_DRAW_H
#define RU_SERVE_DRAW_H

#include "base/status.h"

typedef struct ru_draw {
    double temperature;   /* 0: the most likely token, and nothing below counts */
    int64_t top_k;        /* of the k most likely; 0: of all */
    double top_p;         /* of the fewest that have this probability together; 1: of all */
    uint64_t seed, first; /* first: index of the first token of this text */
} ru_draw;

/* Token `index` of a text: Philox(seed, index) decides. Of equal logits the lower token counts as
 * the more likely. scratch: [n], NULL where temperature is 0; order: [n], NULL where all tokens
 * count. */
int64_t ru_draw_token(const ru_draw *d, const float *logits, int64_t n, uint64_t index,
                      float *scratch, uint32_t *order);

/* Log probability of `token` by the softmax of `logits` (no temperature, no cut), and the k most
 * likely tokens with theirs, the first of them first; of equal ones the lower token. k <= n.
 * top, top_own: [k]. */
void ru_draw_score(const float *logits, int64_t n, int64_t token, uint32_t k, float *own,
                   uint32_t *top, float *top_own);

#endif
