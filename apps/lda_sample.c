/* Collapsed Gibbs sampling, word by word.
 *
 * With counts that leave out the word at hand,
 *     p(k) ~ (n_dk + alpha) q_k,   q_k = (n_wk + beta) / (n_k + V beta)
 *          = n_dk q_k  +  alpha q_k
 * The first part has only the topics of the document. The second needs the sum of all q, which
 * stays while words of one kind are drawn, but for the two topics that a draw changes: q is kept
 * with sums over groups, and a draw looks at the groups first. So a draw costs as much as the
 * document has topics, not as there are topics.
 *
 * Most draws give a word the topic that it has. So counts stay as they are while a topic is drawn:
 * only the numbers of the old topic are replaced by those without the word, in registers. Draws
 * that change nothing write nothing, and the processor works on several of them at a time.
 *
 * Sums have a fixed order in lanes, so all instruction sets give the same topics.
 *
 * Source: yao-2009 (parts of the distribution), yu-2015 (word by word). The groups in place of a
 * tree are ours: 16 topics are one vector. */
#include <string.h>

#include "apps/lanes.h"
#include "apps/lda_impl.h"

_Static_assert((int)LANES == (int)RUI_LDA_GROUP, "a group is a vector");

/* One stream of numbers a task: splitmix64. */
RUI_APP_INLINE float draw(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (float)((x ^ (x >> 31)) >> 40) * 0x1p-24F;
}

/* Of the corpus, here because the compiler must expect that a write changes what stands there. */
typedef struct tokens {
    rui_lda_doc *docs;
    const uint32_t *doc;
    uint16_t *z, *topic;
    float *count, *nk;
} tokens;

typedef struct sampler {
    const rui_lda_corpus *c;
    uint32_t groups;
    float alpha, beta, vocab_beta;
    float *nk;
    float *inverse; /* [groups * LANES] 1 / (n_k + V beta) */
    float *q;       /* [groups * LANES] zeros behind the topics */
    float *sum;     /* [groups, rounded up to LANES] */
    float *product; /* [topics of a document, rounded up to LANES] n_dk q_k */
    float all;
    uint64_t random;
} sampler;

RUI_APP_INLINE void open_word(sampler *s, const float *RU_RESTRICT row)
{
    const rui_lda_corpus *c = s->c;
    float *RU_RESTRICT q = s->q;
    const float *RU_RESTRICT inverse = s->inverse;
    float beta = c->beta;
    for (uint32_t k = 0; k < c->topics; k++) {
        q[k] = (row[k] + beta) * inverse[k];
    }
    s->all = 0.0F;
    for (uint32_t g = 0; g < s->groups; g++) {
        s->sum[g] = lanes_sum(lanes_load(q + g * LANES));
        s->all += s->sum[g];
    }
}

/* n_k and n_wk of topic k grow by `by`. */
RUI_APP_INLINE void change(sampler *s, float *row, uint32_t k, float by)
{
    row[k] += by;
    s->nk[k] += by;
    s->inverse[k] = 1.0F / (s->nk[k] + s->vocab_beta);
    float q = (row[k] + s->beta) * s->inverse[k], d = q - s->q[k];
    s->q[k] = q;
    s->sum[k / LANES] += d;
    s->all += d;
}

/* The place at *u of 0 .. sum of n numbers, with 0 behind them up to a multiple of LANES; *u then
 * counts from the start of that place. */
RUI_APP_INLINE uint32_t find(const float *a, uint32_t n, float *u)
{
    uint32_t at = 0;
    for (; at + LANES < n; at += LANES) {
        float sum = lanes_sum(lanes_load(a + at));
        if (*u < sum) {
            break;
        }
        *u -= sum;
    }
    lanes below = lanes_scan(lanes_load(a + at));
    uint32_t k = lanes_up_to(below, *u), last = n - 1 - at;
    k = k < last ? k : last;
    float sums[LANES + 1] = {0};
    lanes_store(sums + 1, below);
    *u -= sums[k];
    return at + k;
}

/* Place of topic k in a list; n or more: not there. */
RUI_APP_INLINE uint32_t place_of(const uint16_t *topic, uint32_t n, uint32_t k)
{
    uint32_t at = 0, first = LANES;
    while (at < n && (first = lanes_first(topic + at, k)) == LANES) {
        at += LANES;
    }
    return at + first;
}

/* The document's word at place `at` (n or more: it had none) gets topic k, which stands at `place`
 * if that is within the list. Counts behind the list stay 0. */
RUI_APP_INLINE void move(rui_lda_doc *d, uint16_t *topic, float *count, uint32_t at, uint32_t k,
                         uint32_t place)
{
    uint32_t n = d->n;
    bool empty = at < n && count[at] == 0.0F;
    place = place < n ? place : place_of(topic, n, k);
    if (place < n) {
        count[place] += 1.0F;
    } else {
        place = empty ? at : n;
        n += !empty;
        topic[place] = (uint16_t)k;
        count[place] = 1.0F;
        empty = false;
    }
    if (empty && count[at] == 0.0F) {
        n--;
        topic[at] = topic[n];
        count[at] = count[n];
        count[n] = 0.0F;
    }
    d->n = n;
}

/* n_dk q_k of 16 topics of a document, without a word of topic z whose q is `less` without it. */
RUI_APP_INLINE lanes products(const sampler *s, const uint16_t *topic, const float *count,
                              uint32_t z, float less)
{
    return lanes_mul(lanes_less(lanes_load(count), topic, z),
                     lanes_put(lanes_gather(s->q, topic), topic, z, less));
}

/* The place that the sums of one group say. */
RUI_APP_INLINE uint32_t place_in(lanes sums, uint32_t n, float u)
{
    uint32_t k = lanes_up_to(sums, u);
    return k < n ? k : n - 1;
}

/* A topic by the second part; q of topic z is `less`. */
RUI_APP_INLINE uint32_t draw_any(sampler *s, uint32_t z, float less, float u)
{
    uint32_t topics = s->c->topics, at = z < topics ? z : 0;
    float q = s->q[at], sum = s->sum[at / LANES];
    if (z < topics) {
        s->q[at] = less;
        s->sum[at / LANES] = sum + (less - q);
    }
    uint32_t g = find(s->sum, s->groups, &u), left = topics - g * LANES;
    uint32_t k = g * LANES + find(s->q + g * LANES, left < LANES ? left : LANES, &u);
    s->q[at] = q;
    s->sum[at / LANES] = sum;
    return k;
}

/* A new topic for token i of a word. */
RUI_APP_INLINE void token(sampler *s, float *row, const tokens *t, int64_t i)
{
    rui_lda_doc *d = &t->docs[t->doc[i]];
    uint16_t *topic = t->topic + d->at;
    float *count = t->count + d->at, less = 0.0F, all = s->all, below;
    uint32_t z = t->z[i], n = d->n, place = n, k;
    if (z != RUI_LDA_NONE) {
        less = (row[z] - 1.0F + s->beta) * (1.0F / (t->nk[z] - 1.0F + s->vocab_beta));
        all += less - s->q[z];
    }
    lanes sums = lanes_zero();
    if (n <= LANES) {
        sums = lanes_scan(products(s, topic, count, z, less));
        below = lanes_last(sums);
    } else {
        for (uint32_t j = 0; j < n; j += LANES) {
            lanes p = products(s, topic + j, count + j, z, less);
            lanes_store(s->product + j, p);
            sums = lanes_add(sums, p);
        }
        below = lanes_sum(sums);
    }
    float u = draw(&s->random) * (below + s->alpha * all);
    if (u < below) {
        place = n <= LANES ? place_in(sums, n, u) : find(s->product, n, &u);
        k = topic[place];
    } else {
        k = draw_any(s, z, less, (u - below) / s->alpha);
    }
    if (k == z) {
        return;
    }
    uint32_t at = n;
    if (z != RUI_LDA_NONE) {
        change(s, row, z, -1.0F);
        at = place_of(topic, n, z);
        count[at] -= 1.0F;
    }
    change(s, row, k, 1.0F);
    move(d, topic, count, at, k, place);
    t->z[i] = (uint16_t)k;
}

void RUI_APP_K(rui_lda_sample)(rui_lda_corpus *c, uint32_t b, float *rows, uint64_t seed)
{
    sampler s = {.c = c,
                 .groups = (c->topics + LANES - 1) / LANES,
                 .alpha = c->alpha,
                 .beta = c->beta,
                 .vocab_beta = c->vocab_beta,
                 .nk = c->nk,
                 .random = seed};
    const tokens t = {c->docs, c->doc, c->z, c->topic, c->count, c->nk};
    s.inverse = c->scratch;
    s.q = s.inverse + s.groups * LANES;
    s.sum = s.q + s.groups * LANES;
    s.product = s.sum + (s.groups + LANES - 1) / LANES * LANES;
    memset(s.q, 0, (size_t)(s.product - s.q) * sizeof(float));
    for (uint32_t k = 0; k < c->topics; k++) {
        s.inverse[k] = 1.0F / (c->nk[k] + c->vocab_beta);
    }
    for (int64_t r = c->run[b]; r < c->run[b + 1]; r++) {
        float *row = rows + (int64_t)c->word[r] * c->topics;
        open_word(&s, row);
        for (int64_t i = c->begin[r], end = c->begin[r + 1]; i < end; i++) {
            RUI_APP_FETCH(t.docs + t.doc[i + 2 * RUI_LDA_AHEAD]);
            RUI_APP_FETCH(t.topic + t.docs[t.doc[i + RUI_LDA_AHEAD]].at);
            RUI_APP_FETCH(t.count + t.docs[t.doc[i + RUI_LDA_AHEAD]].at);
            token(&s, row, &t, i);
        }
    }
}
