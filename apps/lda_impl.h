/* Inside of lda: the corpus of one executor, and the sampler.
 *
 * Thread: an executor belongs to one thread at a time. */
#ifndef RU_APPS_LDA_IMPL_H
#define RU_APPS_LDA_IMPL_H

#include "train/app/app.h"

enum {
    RUI_LDA_NONE = 0xFFFF, /* topic of a word that has none yet */
    RUI_LDA_TOPICS_MAX = 65534,
    RUI_LDA_GROUP = 16, /* topics with one common sum */
    RUI_LDA_AHEAD = 4,  /* lists of the document so many words on are fetched */
};

/* Topics of a document: those that occur, in no order. Its room is a multiple of RUI_LDA_GROUP and
 * more than it can need; counts behind the list are 0. */
typedef struct rui_lda_doc {
    int64_t at; /* place in topic, count */
    uint32_t n; /* topics that occur */
} rui_lda_doc;

/* Words of an executor's documents, block by block and word by word. */
typedef struct rui_lda_corpus {
    uint32_t blocks, topics;
    float alpha, beta, vocab_beta; /* vocab_beta: beta times the number of words */
    int64_t tokens;
    int64_t *run;   /* [blocks + 1] first run of each block */
    uint32_t *word; /* [runs] within the block */
    int64_t *begin; /* [runs + 1] */
    uint32_t *doc;  /* [tokens + 2 RUI_LDA_AHEAD] within the part */
    uint16_t *z;    /* [tokens] topic or RUI_LDA_NONE */
    rui_lda_doc *docs;
    uint16_t *topic; /* of documents' topics; begins on a cache line */
    float *count;    /* of words with the topic; parallel to `topic`, begins on a cache line */
    float *nk;       /* [topics] words of each topic, as this executor knows it */
    float *scratch;  /* [rui_lda_scratch] */
} rui_lda_corpus;

/* Floats that the sampler needs; doc_max: the largest room of a document. */
static inline int64_t rui_lda_scratch(uint32_t topics, uint32_t doc_max)
{
    int64_t groups = (topics + RUI_LDA_GROUP - 1) / RUI_LDA_GROUP;
    return groups * (2 * RUI_LDA_GROUP + 1) + doc_max + 2 * RUI_LDA_GROUP;
}

/* Draw a topic for every word of block `b`; rows: [words of the block, topics] counts, in place. */
void rui_lda_sample(rui_lda_corpus *c, uint32_t b, float *rows, uint64_t seed);

#endif
