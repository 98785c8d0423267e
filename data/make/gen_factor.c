/* Generators with hidden factors: low-rank ratings and documents of a topic model. */
#include "data/make/gen.h"

#include <math.h>
#include <string.h>

#include "data/make/write.h"

/* -- ratings: mean + user + item + <u, v> + noise; who rates what follows power laws ----------- */

static const double rating_mean = 3.5, user_power = 0.7, item_power = 0.9;

typedef struct ratings_self {
    float *u;                 /* [users, rank + 1]: factors, then the user's bias */
    float *v;                 /* [items, rank + 1] */
    ru_perm user_of, item_of; /* popularity rank -> number */
} ratings_self;

static void draw_factors(ru_rng *r, float *rows, int64_t n, int64_t rank)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < rank; k++) {
            rows[i * (rank + 1) + k] = (float)(ru_rng_normal(r) / sqrt(sqrt((double)rank)) * 0.8);
        }
        rows[i * (rank + 1) + rank] = (float)(ru_rng_normal(r) * 0.3);
    }
}

static ru_status ratings_setup(rui_gen_params *p, ru_arena *arena, void **self, ru_err *err)
{
    p->users = p->users > 0 ? p->users : 2000;
    p->items = p->items > 0 ? p->items : 1000;
    p->rank = p->rank > 0 ? p->rank : 8;
    p->noise = p->noise >= 0.0 ? p->noise : 0.3;
    RU_TRY(rui_gen_range("ratings", "users", p->users, 1, 1 << 24, err));
    RU_TRY(rui_gen_range("ratings", "items", p->items, 1, 1 << 24, err));
    RU_TRY(rui_gen_range("ratings", "rank", p->rank, 1, 1024, err));
    ratings_self *s = *self = RU_NEW(arena, ratings_self, 1);
    float *u = RU_NEW(arena, float, p->users *(p->rank + 1));
    float *v = RU_NEW(arena, float, p->items *(p->rank + 1));
    if (s == NULL || u == NULL || v == NULL) {
        return rui_no_memory(err, "ratings", (p->users + p->items) * (p->rank + 1) * 4);
    }
    ru_rng r = rui_gen_rng(p, "ratings factors", 0);
    draw_factors(&r, u, p->users, p->rank);
    draw_factors(&r, v, p->items, p->rank);
    *s = (ratings_self){u, v, ru_perm_from((uint64_t)p->users, p->seed, 1),
                        ru_perm_from((uint64_t)p->items, p->seed, 2)};
    return RU_OK;
}

static void ratings_sizes(const rui_gen_params *p, ru_text *out)
{
    ru_text_putf(out, "  rows: %lld\n  cols: %lld\n", (long long)p->users, (long long)p->items);
}

static void ratings_fields(const rui_gen_params *p, ru_dataset *d)
{
    (void)p;
    rui_field_add(d, "user", RU_I64, 0, NULL);
    rui_field_add(d, "item", RU_I64, 0, NULL);
    rui_field_add(d, "y", RU_F32, 0, NULL);
}

static void ratings_draw(const rui_gen_params *p, const void *self, const ru_dataset *d,
                         int64_t index, void *const *fields)
{
    (void)d;
    const ratings_self *s = self;
    ru_rng r = rui_gen_rng(p, "ratings", index);
    int64_t user =
        (int64_t)ru_perm_at(&s->user_of, ru_rng_zipf(&r, (uint32_t)p->users, user_power));
    int64_t item =
        (int64_t)ru_perm_at(&s->item_of, ru_rng_zipf(&r, (uint32_t)p->items, item_power));
    const float *u = s->u + user * (p->rank + 1), *v = s->v + item * (p->rank + 1);
    double y = rating_mean + (double)u[p->rank] + (double)v[p->rank];
    for (int64_t k = 0; k < p->rank; k++) {
        y += (double)u[k] * (double)v[k];
    }
    float noisy = (float)(y + p->noise * ru_rng_normal(&r));
    memcpy(fields[0], &user, sizeof user);
    memcpy(fields[1], &item, sizeof item);
    memcpy(fields[2], &noisy, sizeof noisy);
}

static void ratings_truth(const rui_gen_params *p, const void *self, int64_t count,
                          int64_t test_count, ru_text *out)
{
    (void)self;
    (void)count;
    (void)test_count;
    ru_text_putf(out, ",\n  \"users\": %lld,\n  \"items\": %lld,\n  \"rank\": %lld",
                 (long long)p->users, (long long)p->items, (long long)p->rank);
    ru_text_put(out, ",\n  \"mean\": ");
    ru_text_f64(out, rating_mean);
    ru_text_put(out, ",\n  \"rmse_floor\": ");
    ru_text_f64(out, p->noise);
    ru_text_put(
        out, ",\n  \"factors\": \"users.npy and items.npy: factors of each row, then its bias\"");
}

static ru_status ratings_extra(const rui_gen_params *p, const void *self, const char *dir,
                               ru_err *err)
{
    const ratings_self *s = self;
    const int64_t u[2] = {p->users, p->rank + 1}, v[2] = {p->items, p->rank + 1};
    RU_TRY(rui_npy_save(dir, "users.npy", RU_F32, 2, u, s->u, err));
    return rui_npy_save(dir, "items.npy", RU_F32, 2, v, s->v, err);
}

const rui_gen rui_gen_ratings = {
    .name = "ratings",
    .help = "low-rank ratings with power-law counts of users and items (CSV)",
    .file_format = "csv",
    .data_format = "ratings",
    .count = 100000,
    .test_count = 10000,
    .sizes = ratings_sizes,
    .setup = ratings_setup,
    .fields = ratings_fields,
    .draw = ratings_draw,
    .truth = ratings_truth,
    .extra = ratings_extra,
};

/* -- topics: latent Dirichlet allocation ------------------------------------------------------- */

static const double topic_spread = 0.2,
                    word_spread = 0.05; /* alpha and beta of the two Dirichlets */

typedef struct topics_self {
    float *phi;    /* [topics, vocab] chance of each word */
    double *below; /* [topics, vocab] running sums of phi */
} topics_self;

static ru_status topics_setup(rui_gen_params *p, ru_arena *arena, void **self, ru_err *err)
{
    p->classes = p->classes > 0 ? p->classes : 10;
    p->vocab = p->vocab > 0 ? p->vocab : 1000;
    p->length = p->length > 0 ? p->length : 80;
    RU_TRY(rui_gen_range("topics", "classes (topics)", p->classes, 1, 1024, err));
    RU_TRY(rui_gen_range("topics", "vocab", p->vocab, 2, 1 << 20, err));
    RU_TRY(rui_gen_range("topics", "length", p->length, 1, 1 << 20, err));
    topics_self *s = *self = RU_NEW(arena, topics_self, 1);
    float *phi = RU_NEW(arena, float, p->classes * p->vocab);
    double *below = RU_NEW(arena, double, p->classes * p->vocab);
    if (s == NULL || phi == NULL || below == NULL) {
        return rui_no_memory(err, "topics", p->classes * p->vocab * 12);
    }
    for (int64_t k = 0; k < p->classes; k++) {
        ru_rng r = rui_gen_rng(p, "topics words", k);
        double *row = below + k * p->vocab, sum = 0.0;
        for (int64_t i = 0; i < p->vocab; i++) {
            row[i] = ru_rng_gamma(&r, word_spread) + 1e-9;
            sum += row[i];
        }
        double at = 0.0;
        for (int64_t i = 0; i < p->vocab; i++) {
            phi[k * p->vocab + i] = (float)(row[i] / sum);
            at += row[i] / sum;
            row[i] = at;
        }
        row[p->vocab - 1] = 2.0; /* above every draw */
    }
    *s = (topics_self){phi, below};
    return RU_OK;
}

/* Apps read topics. Their key is cols; that of models is features. */
static void topics_sizes(const rui_gen_params *p, ru_text *out)
{
    ru_text_putf(out, "  cols: %lld\n", (long long)p->vocab);
}

static void topics_fields(const rui_gen_params *p, ru_dataset *d)
{
    d->classes = p->classes;
    rui_field_add(d, "x", RU_F32, 1, &p->vocab);
    rui_field_add_class(d);
}

static int64_t pick_sorted(const double *below, int64_t n, double v)
{
    int64_t lo = 0, hi = n - 1;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (below[mid] > v) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

enum { TOPICS_MAX = 1024 };

/* Words of document `index` counted into x; returns the topic with most words; *loss sums
 * -log p(word | the document's own mixture) when wanted. */
static int64_t topics_document(const rui_gen_params *p, const topics_self *s, int64_t index,
                               float *x, double *loss, int64_t *words)
{
    ru_rng r = rui_gen_rng(p, "topics", index);
    double mix[TOPICS_MAX], sum = 0.0;
    int64_t seen[TOPICS_MAX] = {0}, best = 0;
    for (int64_t k = 0; k < p->classes; k++) {
        mix[k] = ru_rng_gamma(&r, topic_spread) + 1e-12;
        sum += mix[k];
    }
    int64_t n = ru_rng_poisson(&r, (double)p->length) + 1;
    for (int64_t i = 0; i < n; i++) {
        int64_t topic = ru_rng_pick(&r, mix, (uint32_t)p->classes);
        int64_t word = pick_sorted(s->below + topic * p->vocab, p->vocab, ru_rng_f64(&r));
        seen[topic]++;
        if (x != NULL) {
            x[word] += 1.0f;
        }
        double chance = 0.0;
        for (int64_t k = 0; loss != NULL && k < p->classes; k++) {
            chance += mix[k] / sum * (double)s->phi[k * p->vocab + word];
        }
        if (loss != NULL) {
            *loss -= log(chance);
        }
    }
    for (int64_t k = 1; k < p->classes; k++) {
        best = seen[k] > seen[best] ? k : best;
    }
    if (words != NULL) {
        *words += n;
    }
    return best;
}

static void topics_draw(const rui_gen_params *p, const void *self, const ru_dataset *d,
                        int64_t index, void *const *fields)
{
    memset(fields[0], 0, (size_t)p->vocab * sizeof(float));
    rui_class_put(d, topics_document(p, self, index, fields[0], NULL, NULL), fields[1]);
}

static void topics_truth(const rui_gen_params *p, const void *self, int64_t count,
                         int64_t test_count, ru_text *out)
{
    double loss = 0.0;
    int64_t words = 0;
    for (int64_t i = 0; i < test_count; i++) {
        (void)topics_document(p, self, count + i, NULL, &loss, &words);
    }
    ru_text_putf(out,
                 ",\n  \"topics\": %lld,\n  \"vocab\": %lld,\n  \"mean_words\": %lld,\n"
                 "  \"alpha\": ",
                 (long long)p->classes, (long long)p->vocab, (long long)p->length + 1);
    ru_text_f64(out, topic_spread);
    ru_text_put(out, ",\n  \"beta\": ");
    ru_text_f64(out, word_spread);
    ru_text_put(out, ",\n  \"test_perplexity_of_truth\": ");
    ru_text_f64(out, words > 0 ? exp(loss / (double)words) : 0.0);
    ru_text_put(out, ",\n  \"words\": \"topics.npy: the chance of each word under each topic\"");
}

static ru_status topics_extra(const rui_gen_params *p, const void *self, const char *dir,
                              ru_err *err)
{
    const topics_self *s = self;
    const int64_t dims[2] = {p->classes, p->vocab};
    return rui_npy_save(dir, "topics.npy", RU_F32, 2, dims, s->phi, err);
}

const rui_gen rui_gen_topics = {
    .name = "topics",
    .help = "word counts of documents drawn from a known topic model (libsvm files)",
    .file_format = "libsvm",
    .count = 5000,
    .test_count = 1000,
    .sizes = topics_sizes,
    .setup = topics_setup,
    .fields = topics_fields,
    .draw = topics_draw,
    .truth = topics_truth,
    .extra = topics_extra,
};
