#include "serve/draw.h"

#include <math.h>

#include "base/rng.h"

static int64_t largest(const float *x, int64_t n)
{
    int64_t at = 0;
    for (int64_t k = 1; k < n; k++) {
        at = x[k] > x[at] ? k : at;
    }
    return at;
}

/* Relative probabilities; their sum. */
static double weigh(const float *logits, int64_t n, double temperature, float *w)
{
    double most = (double)logits[largest(logits, n)], sum = 0;
    for (int64_t k = 0; k < n; k++) {
        w[k] = (float)exp(((double)logits[k] - most) / temperature);
        sum += (double)w[k];
    }
    return sum;
}

static bool before(const float *w, uint32_t a, uint32_t b)
{
    return w[a] > w[b] || (!(w[b] > w[a]) && a < b);
}

/* A heap of tokens, the most likely first. */
static void sift(const float *w, uint32_t *heap, uint32_t n, uint32_t at)
{
    for (uint32_t child; (child = 2 * at + 1) < n;) {
        child += child + 1 < n && before(w, heap[child + 1], heap[child]) ? 1 : 0;
        if (before(w, heap[at], heap[child])) {
            return;
        }
        uint32_t t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
        at = child;
    }
}

/* The most likely tokens stand at the end of `heap`, the first of them last; how many. *sum: what
 * they weigh. */
static uint32_t choose(const ru_draw *d, const float *w, uint32_t n, double *sum, uint32_t *heap)
{
    uint32_t left = n, most = d->top_k > 0 && d->top_k < n ? (uint32_t)d->top_k : n;
    double all = *sum, got = 0;
    for (uint32_t k = 0; k < n; k++) {
        heap[k] = k;
    }
    for (uint32_t k = n / 2; k-- > 0;) {
        sift(w, heap, n, k);
    }
    while (left > n - most && (most < n || got < d->top_p * all)) {
        uint32_t t = heap[0];
        heap[0] = heap[--left];
        heap[left] = t;
        sift(w, heap, left, 0);
        got += (double)w[t];
    }
    all = got; /* of the k most likely: the share is one of theirs */
    uint32_t kept = 0;
    for (got = 0; kept < n - left && (kept == 0 || got < d->top_p * all || most == n); kept++) {
        got += (double)w[heap[n - 1 - kept]];
    }
    *sum = got;
    return kept;
}

void ru_draw_score(const float *logits, int64_t n, int64_t token, uint32_t k, float *own,
                   uint32_t *top, float *top_own)
{
    double most = (double)logits[largest(logits, n)], sum = 0;
    uint32_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += exp((double)logits[i] - most);
        uint32_t at = kept;
        for (; at > 0 && logits[i] > logits[top[at - 1]]; at--) {
            if (at < k) {
                top[at] = top[at - 1];
            }
        }
        if (at < k) {
            top[at] = (uint32_t)i;
            kept += kept < k ? 1 : 0;
        }
    }
    double all = most + log(sum);
    *own = (float)((double)logits[token] - all);
    for (uint32_t i = 0; i < kept; i++) {
        top_own[i] = (float)((double)logits[top[i]] - all);
    }
}

int64_t ru_draw_token(const ru_draw *d, const float *logits, int64_t n, uint64_t index,
                      float *scratch, uint32_t *order)
{
    if (!(d->temperature > 0)) {
        return largest(logits, n);
    }
    double sum = weigh(logits, n, d->temperature, scratch), seen = 0;
    bool some = (d->top_k > 0 && d->top_k < n) || d->top_p < 1;
    uint32_t kept = some ? choose(d, scratch, (uint32_t)n, &sum, order) : (uint32_t)n, word[4];
    ru_philox_at(d->seed, ru_rng_label("tokens"), index, word);
    double u = ((double)word[0] + (double)word[1] * 0x1p-32) * 0x1p-32 * sum;
    for (uint32_t k = 0; k < kept; k++) {
        uint32_t token = some ? order[(uint32_t)n - 1 - k] : k;
        seen += (double)scratch[token];
        if (u < seen) {
            return token;
        }
    }
    return largest(logits, n);
}
