/* Generators: seeded data with known truth, drawn sample by sample.
 *
 * Sample `index` is a function of (parameters, seed, index). `rubato data make` writes samples into
 * ordinary files beside truth.json; format `synthetic` hands them out directly.
 *
 * Thread: setup on one thread, draw on many. */
#ifndef RU_DATA_GEN_H
#define RU_DATA_GEN_H

#include "base/rng.h"
#include "base/str.h"
#include "data/data_impl.h"

/* 0 (noise: < 0) means the generator's default, which setup fills in. */
typedef struct rui_gen_params {
    uint64_t seed;
    int64_t features, classes, hidden, rank, users, items, vocab, length, context;
    double noise;
} rui_gen_params;

typedef struct rui_gen {
    const char *name;
    const char *help;
    const char *file_format; /* how make writes it: idx, csv, npy, libsvm, text */
    const char *data_format; /* data.format of jobs that read the files; NULL: file_format */
    /* Append the keys of sizes that a part of the data may not show; NULL: none. */
    void (*sizes)(const rui_gen_params *p, ru_text *out);
    int64_t count, test_count; /* defaults of make */
    /* Check and complete the parameters, build the hidden truth in `arena`. */
    ru_status (*setup)(rui_gen_params *p, ru_arena *arena, void **self, ru_err *err);
    /* Add the dataset's fields (d->raw: pixels as u8). */
    void (*fields)(const rui_gen_params *p, ru_dataset *d);
    void (*draw)(const rui_gen_params *p, const void *self, const ru_dataset *d, int64_t index,
                 void *const *fields);
    /* Append JSON members (",\n  \"key\": value") that tell the truth. Indexes from count to
     * count + test_count - 1 are the test part, where the generator wants to look at it. */
    void (*truth)(const rui_gen_params *p, const void *self, int64_t count, int64_t test_count,
                  ru_text *out);
    /* Write further files into `dir` (topics, factors); NULL: none. */
    ru_status (*extra)(const rui_gen_params *p, const void *self, const char *dir, ru_err *err);
} rui_gen;

/* X(name): one rui_gen_<name> each. */
#define RUI_GEN_LIST(X) \
    X(digits) X(gaussian) X(teacher) X(ratings) X(topics) X(clicks) X(grammar) X(noise)

#define RUI_X(name) extern const rui_gen rui_gen_##name;
RUI_GEN_LIST(RUI_X)
#undef RUI_X

const rui_gen *rui_gen_find(const char *name);
const rui_gen *rui_gen_at(uint32_t k); /* NULL past the end */

/* The generator of sample `index`: independent of every other sample's. */
ru_rng rui_gen_rng(const rui_gen_params *p, const char *purpose, int64_t index);

/* Bytes of the grammar's text: fills `into` with n bytes of sentences drawn for `index`. */
void rui_grammar_text(const void *self, const rui_gen_params *p, int64_t index, uint8_t *into,
                      int64_t n);

/* Of an open synthetic dataset: its truth, further files, text of the grammar. */
void rui_synthetic_truth(const ru_dataset *d, int64_t count, int64_t test_count, ru_text *out);
void rui_synthetic_sizes(const ru_dataset *d, ru_text *out);
ru_status rui_synthetic_extra(const ru_dataset *d, const char *dir, ru_err *err);
void rui_synthetic_text(const ru_dataset *d, int64_t index, uint8_t *into, int64_t n);

ru_status rui_gen_range(const char *gen, const char *what, int64_t v, int64_t low, int64_t high,
                        ru_err *err);

#endif
