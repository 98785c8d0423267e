/* Latent Dirichlet allocation by collapsed Gibbs sampling; blocks of words rotate.
 *
 * Table `words`: how many words of each kind have each topic; a block of it has one holder, so its
 * counts are exact. Table `topics`: the sums over all words, which an executor knows as of the end
 * of the clock before, with its own changes since. An executor's state are the topics of its words.
 * Clock 0 gives every word its first topic, drawn given those before it.
 *
 * When workers die, both tables are counted again from the topics of all words. Executors that died
 * go on with topics that they had some clocks before.
 *
 * Objective: joint log likelihood of words and topics, by word.
 *
 * Source: griffiths-2004 (sampler, likelihood), litz-2018 (rotation). */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "apps/lda_impl.h"
#include "train/app/app.h"

enum { WORDS, TOPICS };
enum { LOGS = 8192 }; /* log gamma of counts below is looked up */

typedef struct settings {
    int64_t topics, every;
    double alpha, beta;
} settings;

typedef struct lda {
    settings set;
    int64_t vocab;
    uint32_t topics, blocks;
    double alpha, beta;
    int64_t *cut;
    double *log_alpha, *log_beta; /* [LOGS] log gamma(n + a) - log gamma(a) */
} lda;

typedef struct executor {
    const lda *l;
    ru_sparse part;
    rui_lda_corpus c;
    float *before; /* [topics] nk before a task */
} executor;

static void lda_close(void *self)
{
    lda *l = self;
    free(l->cut);
    free(l->log_alpha);
    free(l->log_beta);
    free(l);
}

/* Blocks with equal shares of all words. Errors: RU_E_DATA for counts that are none. */
static ru_status cut_words(lda *l, const ru_app_setup *setup, ru_err *err)
{
    ru_sparse all;
    ru_sparse_part(setup->data, 0, ru_sparse_rows(setup->data), &all);
    int64_t n = all.begin[all.rows];
    double *count = calloc((size_t)l->vocab + 1, sizeof *count), total = 0.0;
    if (count == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %lld words", (long long)l->vocab);
    }
    for (int64_t i = 0; i < n; i++) {
        float v = all.value[i];
        if (all.col == NULL || v < 0.0F || v != floorf(v) || v > 16777216.0F) {
            free(count);
            return RU_FAIL(err, RU_E_DATA,
                           "lda needs counts of words (data.format: bow, text or libsvm), but "
                           "entry %lld is %g",
                           (long long)i + 1, (double)v);
        }
        count[all.col[i]] += (double)v;
        total += (double)v;
    }
    int64_t word = 0;
    double at = 0.0;
    for (uint32_t b = 1; b < l->blocks; b++) {
        for (; word < l->vocab && at < total * b / l->blocks; word++) {
            at += count[word];
        }
        l->cut[b] = word;
    }
    l->cut[l->blocks] = l->vocab;
    free(count);
    return total > 0 ? RU_OK : RU_FAIL(err, RU_E_DATA, "the documents have no words");
}

static double *table_of(double a)
{
    double *t = calloc(LOGS, sizeof *t);
    for (int k = 1; t != NULL && k < LOGS; k++) {
        t[k] = t[k - 1] + log(k - 1 + a);
    }
    return t;
}

static ru_status lda_open(const ru_app_setup *setup, void **self, ru_err *err)
{
    lda *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the app");
    }
    l->set = *(const settings *)setup->config;
    l->vocab = setup->cols;
    l->topics = (uint32_t)l->set.topics;
    l->blocks = setup->executors;
    /* 50 / topics, the old rule of thumb, would drown a document of ten words. */
    l->alpha = l->set.alpha > 0 ? l->set.alpha : 0.1;
    l->beta = l->set.beta;
    l->cut = calloc(l->blocks + 1, sizeof *l->cut);
    l->log_alpha = table_of(l->alpha);
    l->log_beta = table_of(l->beta);
    ru_status st = l->cut == NULL || l->log_alpha == NULL || l->log_beta == NULL
                       ? RU_FAIL(err, RU_E_MEM, "no memory for the app")
                       : cut_words(l, setup, err);
    if (st != RU_OK) {
        lda_close(l);
        return st;
    }
    *self = l;
    return RU_OK;
}

static uint32_t lda_tables(const void *self, ru_app_table *tables)
{
    const lda *l = self;
    tables[WORDS] = (ru_app_table){.name = "words",
                                   .rows = l->vocab,
                                   .width = l->topics,
                                   .rule = RU_APP_ADD,
                                   .rotate = true,
                                   .cut = l->cut};
    tables[TOPICS] = (ru_app_table){
        .name = "topics", .rows = 1, .width = l->topics, .rule = RU_APP_ADD, .told = true};
    return 2;
}

/* -- executors --------------------------------------------------------------------------------- */

static void lda_exec_close(void *state)
{
    executor *x = state;
    free(x->c.run);
    free(x->c.word);
    free(x->c.begin);
    free(x->c.doc);
    free(x->c.z);
    free(x->c.docs);
    free(x->c.topic);
    free(x->c.count);
    free(x->c.nk);
    free(x->c.scratch);
    free(x->before);
    free(x);
}

/* Words of the part in the order (word, document): a counting sort by word. `place` [vocab + 1]. */
static void sort_tokens(executor *x, int64_t *place)
{
    const ru_sparse *p = &x->part;
    rui_lda_corpus *c = &x->c;
    for (int64_t i = p->begin[0]; i < p->begin[p->rows]; i++) {
        place[p->col[i] + 1] += (int64_t)p->value[i];
    }
    int64_t runs = 0, word = 0;
    for (uint32_t b = 0; b < c->blocks; b++) {
        for (; word < x->l->cut[b + 1]; word++) {
            if (place[word + 1] > 0) {
                c->word[runs] = (uint32_t)(word - x->l->cut[b]);
                c->begin[runs++] = place[word];
            }
            place[word + 1] += place[word];
        }
        c->run[b + 1] = runs;
    }
    c->begin[runs] = c->tokens;
    for (int64_t r = 0; r < p->rows; r++) {
        for (int64_t i = p->begin[r]; i < p->begin[r + 1]; i++) {
            for (int64_t times = (int64_t)p->value[i]; times > 0; times--) {
                c->doc[place[p->col[i]]++] = (uint32_t)r;
            }
        }
    }
}

/* Room for the topics of each document. */
static int64_t size_docs(executor *x, uint32_t *doc_max)
{
    const ru_sparse *p = &x->part;
    int64_t room = 0, tokens = 0;
    *doc_max = 1;
    for (int64_t r = 0; r < p->rows; r++) {
        int64_t words = 0;
        for (int64_t i = p->begin[r]; i < p->begin[r + 1]; i++) {
            words += (int64_t)p->value[i];
        }
        tokens += words;
        words = words < x->l->topics ? words : x->l->topics;
        words = (words + RUI_LDA_GROUP) / RUI_LDA_GROUP * RUI_LDA_GROUP; /* one more at least */
        if (x->c.docs != NULL) {
            x->c.docs[r].at = room;
        }
        room += words;
        *doc_max = words > *doc_max ? (uint32_t)words : *doc_max;
    }
    if (x->c.docs != NULL) {
        x->c.docs[p->rows].at = room;
    }
    x->c.tokens = tokens;
    return room;
}

/* Zeros from the beginning of a cache line on. */
static void *lines(size_t n, size_t size)
{
    size_t bytes = (n * size + 63) / 64 * 64;
    void *p = aligned_alloc(64, bytes);
    return p != NULL ? memset(p, 0, bytes) : NULL;
}

static ru_status build(executor *x, ru_err *err)
{
    const lda *l = x->l;
    rui_lda_corpus *c = &x->c;
    *c = (rui_lda_corpus){.blocks = l->blocks,
                          .topics = l->topics,
                          .alpha = (float)l->alpha,
                          .beta = (float)l->beta,
                          .vocab_beta = (float)(l->beta * (double)l->vocab)};
    c->docs = calloc((size_t)x->part.rows + 1, sizeof *c->docs);
    uint32_t doc_max;
    int64_t room = size_docs(x, &doc_max);
    size_t tokens = (size_t)c->tokens + 1, vocab = (size_t)l->vocab;
    size_t runs = tokens < vocab ? tokens : vocab;
    int64_t *place = calloc(vocab + 2, sizeof *place);
    c->run = calloc(l->blocks + 1, sizeof *c->run);
    c->word = calloc(runs + 1, sizeof *c->word);
    c->begin = calloc(runs + 2, sizeof *c->begin);
    c->doc = calloc(tokens + 2 * RUI_LDA_AHEAD, sizeof *c->doc);
    c->z = malloc(tokens * sizeof *c->z);
    c->topic = lines((size_t)room + 1, sizeof *c->topic);
    c->count = lines((size_t)room + 1, sizeof *c->count);
    c->nk = calloc(l->topics, sizeof *c->nk);
    c->scratch = calloc((size_t)rui_lda_scratch(l->topics, doc_max), sizeof *c->scratch);
    x->before = calloc(l->topics, sizeof *x->before);
    bool fine = place != NULL && c->docs != NULL && c->run != NULL && c->word != NULL &&
                c->begin != NULL && c->doc != NULL && c->z != NULL && c->topic != NULL &&
                c->count != NULL && c->nk != NULL && c->scratch != NULL && x->before != NULL;
    if (fine) {
        memset(c->z, 0xFF, tokens * sizeof *c->z);
        sort_tokens(x, place);
    }
    free(place);
    return fine ? RU_OK
                : RU_FAIL(err, RU_E_MEM, "no memory for the %lld words of an executor",
                          (long long)c->tokens);
}

static ru_status lda_exec_open(const void *self, uint32_t k, const ru_sparse *part, void **state,
                               ru_err *err)
{
    (void)k;
    executor *x = calloc(1, sizeof *x);
    if (x == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an executor");
    }
    x->l = self;
    x->part = *part;
    ru_status st = build(x, err);
    if (st != RU_OK) {
        lda_exec_close(x);
        return st;
    }
    *state = x;
    return RU_OK;
}

/* The topics, and the lists of the documents as they are: their order decides how numbers are
 * rounded. */
static void lda_exec_save(const void *state, ru_app_bytes *to)
{
    const executor *x = state;
    const rui_lda_corpus *c = &x->c;
    ru_app_put(to, &c->tokens, sizeof c->tokens);
    ru_app_put(to, c->z, c->tokens * (int64_t)sizeof *c->z);
    ru_app_put(to, c->nk, (int64_t)c->topics * (int64_t)sizeof *c->nk);
    for (int64_t r = 0; r < x->part.rows; r++) {
        const rui_lda_doc *d = &c->docs[r];
        ru_app_put(to, &d->n, sizeof d->n);
        ru_app_put(to, c->topic + d->at, d->n * (int64_t)sizeof *c->topic);
        ru_app_put(to, c->count + d->at, d->n * (int64_t)sizeof *c->count);
    }
}

/* Do the documents' lists count what z says? `seen` [topics] zeros. */
static bool lists_fit(const executor *x, uint32_t doc, float *seen, const int64_t *first,
                      const int64_t *tokens)
{
    const rui_lda_corpus *c = &x->c;
    const rui_lda_doc *d = &c->docs[doc];
    bool fits = true;
    for (int64_t i = first[doc]; i < first[doc + 1]; i++) {
        uint16_t z = c->z[tokens[i]];
        seen[z != RUI_LDA_NONE ? z : 0] += z != RUI_LDA_NONE ? 1.0F : 0.0F;
    }
    for (uint32_t j = 0; j < d->n; j++) {
        uint16_t k = c->topic[d->at + j];
        fits = fits && seen[k] == c->count[d->at + j] && seen[k] > 0.0F;
        seen[k] = 0.0F;
    }
    for (int64_t i = first[doc]; i < first[doc + 1]; i++) { /* every topic was listed */
        uint16_t z = c->z[tokens[i]];
        fits = fits && (z == RUI_LDA_NONE || seen[z] == 0.0F);
        if (z != RUI_LDA_NONE) {
            seen[z] = 0.0F;
        }
    }
    return fits;
}

static bool check_lists(const executor *x)
{
    const rui_lda_corpus *c = &x->c;
    size_t docs = (size_t)x->part.rows;
    int64_t *first = calloc(docs + 2, sizeof *first);
    int64_t *tokens = calloc((size_t)c->tokens + 1, sizeof *tokens);
    float *seen = calloc(c->topics, sizeof *seen);
    bool fits = first != NULL && tokens != NULL && seen != NULL;
    for (int64_t i = 0; fits && i < c->tokens; i++) {
        first[c->doc[i] + 2]++;
    }
    for (size_t d = 0; fits && d < docs; d++) {
        first[d + 2] += first[d + 1];
    }
    for (int64_t i = 0; fits && i < c->tokens; i++) {
        tokens[first[c->doc[i] + 1]++] = i;
    }
    for (uint32_t d = 0; fits && d < docs; d++) {
        fits = lists_fit(x, d, seen, first, tokens);
    }
    free(first);
    free(tokens);
    free(seen);
    return fits;
}

static bool load(executor *x, ru_app_cursor *from)
{
    rui_lda_corpus *c = &x->c;
    int64_t tokens;
    if (!ru_app_take(from, &tokens, sizeof tokens) || tokens != c->tokens ||
        !ru_app_take(from, c->z, tokens * (int64_t)sizeof *c->z) ||
        !ru_app_take(from, c->nk, (int64_t)c->topics * (int64_t)sizeof *c->nk)) {
        return false;
    }
    for (int64_t i = 0; i < tokens; i++) {
        if (c->z[i] != RUI_LDA_NONE && c->z[i] >= c->topics) {
            return false;
        }
    }
    for (int64_t r = 0; r < x->part.rows; r++) {
        rui_lda_doc *d = &c->docs[r];
        int64_t room = d[1].at - d->at;
        uint32_t n;
        if (!ru_app_take(from, &n, sizeof n) || n > c->topics || (int64_t)n >= room ||
            !ru_app_take(from, c->topic + d->at, n * (int64_t)sizeof *c->topic) ||
            !ru_app_take(from, c->count + d->at, n * (int64_t)sizeof *c->count)) {
            return false;
        }
        d->n = n;
        for (uint32_t j = 0; j < n; j++) {
            if (c->topic[d->at + j] >= c->topics) {
                return false;
            }
        }
    }
    return from->n == 0 && check_lists(x);
}

static ru_status lda_exec_load(void *state, const void *bytes, int64_t n, ru_err *err)
{
    ru_app_cursor from = {bytes, n};
    return load(state, &from)
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA, "the state is damaged or belongs to other documents");
}

/* -- tasks ------------------------------------------------------------------------------------- */

static uint32_t lda_wants(void *state, const ru_app_task *task, ru_app_want *wants, uint32_t max)
{
    (void)max;
    const executor *x = state;
    const int64_t *cut = x->l->cut;
    wants[0] = (ru_app_want){.table = WORDS,
                             .first = cut[task->block],
                             .rows = cut[task->block + 1] - cut[task->block],
                             .write = true};
    wants[1] = (ru_app_want){.table = TOPICS, .rows = 1, .write = true};
    return 2;
}

static double log_of(const double *table, double a, float count)
{
    return count < (float)LOGS ? table[(int)count] : lgamma((double)count + a) - lgamma(a);
}

static void likelihood(const executor *x, const float *rows, int64_t words, double *sums)
{
    const lda *l = x->l;
    const rui_lda_corpus *c = &x->c;
    for (int64_t i = 0; i < words * c->topics; i++) {
        if (rows[i] > 0.0F) {
            sums[0] += log_of(l->log_beta, l->beta, rows[i]);
        }
    }
    double all = l->alpha * (double)l->topics, fixed = lgamma(all);
    for (int64_t r = 0; r < x->part.rows; r++) {
        const rui_lda_doc *d = &c->docs[r];
        double total = 0.0;
        for (uint32_t j = 0; j < d->n; j++) {
            sums[1] += log_of(l->log_alpha, l->alpha, c->count[d->at + j]);
            total += (double)c->count[d->at + j];
        }
        sums[1] += fixed - lgamma(total + all);
    }
    sums[2] += (double)c->tokens;
}

/* Add the words of a block by their topics. */
static void count_again(const rui_lda_corpus *c, uint32_t block, float *rows, float *topics)
{
    for (int64_t r = c->run[block]; r < c->run[block + 1]; r++) {
        float *row = rows + (int64_t)c->word[r] * c->topics;
        for (int64_t i = c->begin[r]; i < c->begin[r + 1]; i++) {
            if (c->z[i] != RUI_LDA_NONE) {
                row[c->z[i]] += 1.0F;
                topics[c->z[i]] += 1.0F;
            }
        }
    }
}

static ru_status lda_run(void *state, const ru_app_task *task, const ru_app_view *view,
                         ru_app_result *result, ru_err *err)
{
    (void)err;
    executor *x = state;
    const lda *l = x->l;
    size_t bytes = l->topics * sizeof(float);
    if (task->recount) {
        count_again(&x->c, task->block, view->value[0], view->value[1]);
    } else {
        if (task->round == 0) {
            memcpy(x->c.nk, view->value[1], bytes);
        }
        memcpy(x->before, x->c.nk, bytes);
        rui_lda_sample(&x->c, task->block, view->value[0], task->seed);
        for (uint32_t k = 0; k < l->topics; k++) {
            view->value[1][k] += x->c.nk[k] - x->before[k];
        }
    }
    if (task->round + 1 == task->blocks && task->clock % l->set.every == 0) {
        likelihood(x, view->value[0], l->cut[task->block + 1] - l->cut[task->block], result->sums);
    }
    return RU_OK;
}

static double lda_objective(const void *self, const double *sums, const float *const *told)
{
    const lda *l = self;
    if (sums[2] <= 0) {
        return RU_NAN;
    }
    double v = l->beta * (double)l->vocab, sum = sums[0] + sums[1];
    for (uint32_t k = 0; k < l->topics; k++) {
        sum += lgamma(v) - lgamma((double)told[TOPICS][k] + v);
    }
    return sum / sums[2];
}

/* -- use --------------------------------------------------------------------------------------- */

/* Mixture of topics of a document from every second of its words (`half`), or from all of them: 50
 * steps of expectation and maximisation with the topics as they are. */
static void infer(const lda *l, const float *const *tables, const ru_sparse *part, int64_t r,
                  bool half, double *mix, double *next)
{
    double v = l->beta * (double)l->vocab;
    for (uint32_t k = 0; k < l->topics; k++) {
        mix[k] = 1.0 / l->topics;
    }
    for (int step = 0; step < 50; step++) {
        double sum = 0.0;
        int64_t at = 0;
        for (uint32_t k = 0; k < l->topics; k++) {
            next[k] = l->alpha;
        }
        for (int64_t i = part->begin[r]; i < part->begin[r + 1]; i++) {
            int64_t times = (int64_t)part->value[i],
                    used = half ? (at + times + 1) / 2 - (at + 1) / 2 : times;
            const float *row = tables[WORDS] + (int64_t)part->col[i] * l->topics;
            double all = 0.0;
            for (uint32_t k = 0; used > 0 && k < l->topics; k++) {
                all += mix[k] * ((double)row[k] + l->beta) / ((double)tables[TOPICS][k] + v);
            }
            for (uint32_t k = 0; used > 0 && k < l->topics; k++) {
                next[k] += (double)used / all * mix[k] * ((double)row[k] + l->beta) /
                           ((double)tables[TOPICS][k] + v);
            }
            at += times;
        }
        for (uint32_t k = 0; k < l->topics; k++) {
            sum += next[k];
        }
        for (uint32_t k = 0; k < l->topics; k++) {
            mix[k] = next[k] / sum;
        }
    }
}

/* Log probability of the other words. */
static void completion(const lda *l, const float *const *tables, const ru_sparse *part, int64_t r,
                       const double *mix, double *sums)
{
    double v = l->beta * (double)l->vocab;
    int64_t at = 0;
    for (int64_t i = part->begin[r]; i < part->begin[r + 1]; i++) {
        int64_t times = (int64_t)part->value[i];
        int64_t used = times - ((at + times + 1) / 2 - (at + 1) / 2);
        const float *row = tables[WORDS] + (int64_t)part->col[i] * l->topics;
        double p = 0.0;
        for (uint32_t k = 0; used > 0 && k < l->topics; k++) {
            p += mix[k] * ((double)row[k] + l->beta) / ((double)tables[TOPICS][k] + v);
        }
        if (used > 0) {
            sums[0] += (double)used * log(p);
            sums[1] += (double)used;
        }
        at += times;
    }
}

static ru_status lda_eval(const void *self, const float *const *tables, const ru_sparse *part,
                          double *sums, ru_err *err)
{
    const lda *l = self;
    double *mix = calloc(l->topics, 2 * sizeof *mix);
    if (mix == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u topics", l->topics);
    }
    for (int64_t r = 0; r < part->rows; r++) {
        infer(l, tables, part, r, true, mix, mix + l->topics);
        completion(l, tables, part, r, mix, sums);
    }
    free(mix);
    return RU_OK;
}

static uint32_t lda_metrics(const void *self, const double *sums, ru_app_metric *metrics)
{
    (void)self;
    metrics[0] = (ru_app_metric){"perplexity", sums[1] > 0 ? exp(-sums[0] / sums[1]) : RU_NAN};
    return 1;
}

/* "topic:share ..." of the topics with at least one part in a hundred, the largest first. */
static ru_status lda_predict(const void *self, const float *const *tables, const ru_sparse *part,
                             int64_t row, ru_text *out, ru_err *err)
{
    const lda *l = self;
    double *mix = calloc(l->topics, 2 * sizeof *mix);
    if (mix == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u topics", l->topics);
    }
    infer(l, tables, part, row, false, mix, mix + l->topics);
    for (uint32_t shown = 0; shown < l->topics; shown++) {
        uint32_t best = 0;
        for (uint32_t k = 1; k < l->topics; k++) {
            best = mix[k] > mix[best] ? k : best;
        }
        if (mix[best] < 0.01 && shown > 0) {
            break;
        }
        ru_text_putf(out, "%s%u:%.3f", shown > 0 ? " " : "", best, mix[best]);
        mix[best] = -1.0;
    }
    free(mix);
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(I64, settings, topics, "100", "number of topics", RU_IN(1, RUI_LDA_TOPICS_MAX)),
    RU_ROW(F64, settings, alpha, "0", "prior of a topic in a document; 0: 0.1", RU_IN(0, 1e6)),
    RU_ROW(F64, settings, beta, "0.01", "prior of a word in a topic", RU_IN(1e-9, 1e6)),
    RU_ROW_AS("likelihood_every", I64, settings, every, "1",
              "number of clocks between two computations of the likelihood", RU_IN(1, 1 << 30)),
};
static const ru_conf_table table =
    RU_TABLE("lda", settings, fields, "latent Dirichlet allocation",
             .called = "k=topics|num_topics=topics|n_topics=topics|eta=beta");

const ru_app_ops ru_app_lda = {
    .version = RU_APP_VERSION,
    .name = "lda",
    .help = "topics of documents by collapsed Gibbs sampling",
    .config = &table,
    .config_bytes = sizeof(settings),
    .recount = RU_APP_RECOUNT_STATES,
    .open = lda_open,
    .close = lda_close,
    .tables = lda_tables,
    .exec_open = lda_exec_open,
    .exec_close = lda_exec_close,
    .exec_save = lda_exec_save,
    .exec_load = lda_exec_load,
    .wants = lda_wants,
    .run = lda_run,
    .objective = lda_objective,
    .objective_name = "log_likelihood",
    .maximise = true,
    .eval = lda_eval,
    .metrics = lda_metrics,
    .predict = lda_predict,
};
