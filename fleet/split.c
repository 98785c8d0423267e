#include "fleet/split.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "env/file/file.h"

enum { CLASSES_MAX = 4096 };

struct ru_split {
    ru_split_options opt;
    int64_t count, each;
    uint32_t n_classes;
    int64_t *order; /* [count] samples by class, or by client */
    int64_t *first; /* [n_classes + 1], or [clients + 1], into `order` */
    int64_t most;
};

/* `key` of each sample -> order and first, by counting. */
static ru_status by_key(ru_split *s, const uint32_t *key, uint32_t n_keys, ru_arena *arena,
                        ru_err *err)
{
    s->order = RU_NEW(arena, int64_t, s->count);
    s->first = RU_NEW(arena, int64_t, (int64_t)n_keys + 2);
    if (s->order == NULL || s->first == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to split %lld samples", (long long)s->count);
    }
    memset(s->first, 0, ((size_t)n_keys + 2) * sizeof *s->first);
    for (int64_t i = 0; i < s->count; i++) {
        s->first[key[i] + 2]++;
    }
    for (uint32_t k = 2; k < n_keys + 2; k++) {
        s->first[k] += s->first[k - 1];
    }
    for (int64_t i = 0; i < s->count; i++) {
        s->order[s->first[key[i] + 1]++] = i;
    }
    return RU_OK;
}

static ru_status read_classes(const ru_dataset *data, int64_t count, uint32_t n, uint32_t *key,
                              ru_err *err)
{
    const ru_field *f;
    uint32_t fields = ru_dataset_fields(data, &f);
    bool fits = fields >= 2 && n > 0 && n <= CLASSES_MAX && ru_type_count(&f[1].type) == 1 &&
                (f[1].type.dtype == RU_I32 || f[1].type.dtype == RU_I64);
    uint8_t *x = fits ? malloc((size_t)ru_type_bytes(&f[0].type)) : NULL;
    if (x == NULL) {
        return RU_FAIL(err, RU_E_DATA,
                       "samples are split by classes, but their labels are not classes; use the "
                       "split iid or a file");
    }
    ru_status st = RU_OK;
    for (int64_t i = 0; i < count && st == RU_OK; i++) {
        int64_t wide = 0;
        int32_t narrow = 0;
        void *into[RU_FIELDS_MAX] = {x, f[1].type.dtype == RU_I32 ? (void *)&narrow : &wide};
        st = ru_dataset_read(data, i, into, err);
        int64_t label = f[1].type.dtype == RU_I32 ? narrow : wide;
        key[i] = label >= 0 && label < n ? (uint32_t)label : 0;
    }
    free(x);
    return st;
}

static ru_status read_file(const ru_split *s, uint32_t *key, ru_arena *arena, ru_err *err)
{
    char *text;
    int64_t n, i = 0;
    RU_TRY(ru_file_read(s->opt.file, 0, arena, &text, &n, err));
    ru_str rest = ru_str_n(text, n), line;
    while (ru_str_next(&rest, '\n', &line)) {
        int64_t client;
        line = ru_str_trim(line);
        if (line.n == 0) {
            continue;
        }
        if (i == s->count || !ru_str_i64(line, &client) || client < 0 || client >= s->opt.clients) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s:%lld: expected the number of a client, 0 to %u, for each of %lld "
                           "samples",
                           s->opt.file, (long long)i + 1, s->opt.clients - 1, (long long)s->count);
        }
        key[i++] = (uint32_t)client;
    }
    return i == s->count ? RU_OK
                         : RU_FAIL(err, RU_E_DATA, "%s has %lld lines; there are %lld samples",
                                   s->opt.file, (long long)i, (long long)s->count);
}

ru_status ru_split_open(const ru_split_options *opt, const ru_dataset *data, ru_arena *arena,
                        ru_split **out, ru_err *err)
{
    ru_split *s = RU_NEW(arena, ru_split, 1);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a split");
    }
    *s = (ru_split){.opt = *opt, .count = ru_dataset_count(data)};
    s->each = opt->samples > 0 ? opt->samples : s->count / opt->clients;
    s->each = s->each > 0 ? s->each : 1;
    s->most = s->each;
    s->n_classes = (uint32_t)ru_dataset_classes(data);
    if (opt->kind == RU_SPLIT_CLASSES && s->n_classes > 0 && opt->classes > s->n_classes) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "a client is to have %u classes, but the data have %u; expected 1 to %u",
                       opt->classes, s->n_classes, s->n_classes);
    }
    if (opt->kind == RU_SPLIT_IID) {
        *out = s;
        return RU_OK;
    }
    uint32_t *key = malloc((size_t)s->count * sizeof *key);
    if (key == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to split %lld samples", (long long)s->count);
    }
    bool file = opt->kind == RU_SPLIT_FILE;
    ru_status st =
        file ? read_file(s, key, arena, err) : read_classes(data, s->count, s->n_classes, key, err);
    uint32_t n_keys = file ? opt->clients : s->n_classes;
    st = st == RU_OK ? by_key(s, key, n_keys, arena, err) : st;
    free(key);
    for (uint32_t k = 0; st == RU_OK && file && k < n_keys; k++) {
        int64_t n = s->first[k + 1] - s->first[k];
        s->most = n > s->most ? n : s->most;
    }
    *out = s;
    return st;
}

int64_t ru_split_most(const ru_split *s)
{
    return s->most;
}

/* Shares of the classes; of those that no sample has 0. */
static void shares(const ru_split *s, ru_rng *rng, double *share)
{
    uint32_t n = s->n_classes;
    memset(share, 0, n * sizeof *share);
    if (s->opt.kind == RU_SPLIT_DIRICHLET) {
        for (uint32_t k = 0; k < n; k++) {
            share[k] = ru_rng_gamma(rng, s->opt.alpha);
        }
    } else {
        for (uint32_t k = 0; k < s->opt.classes && k < n; k++) {
            uint32_t c = ru_rng_below(rng, n);
            while (share[c] > 0) {
                c = (c + 1) % n;
            }
            share[c] = 1;
        }
    }
    double sum = 0;
    for (uint32_t k = 0; k < n; k++) {
        share[k] = s->first[k + 1] > s->first[k] ? share[k] : 0;
        sum += share[k];
    }
    for (uint32_t k = 0; k < n && !(sum > 0); k++) { /* all of them were too small, or are empty */
        share[k] = s->first[k + 1] > s->first[k] ? 1 : 0;
    }
}

int64_t ru_split_view(const ru_split *s, uint32_t client, int64_t *into)
{
    double share[CLASSES_MAX];
    ru_rng law = ru_rng_from(s->opt.seed, 2 * (uint64_t)client);
    ru_rng draw = ru_rng_from(s->opt.seed, 2 * (uint64_t)client + 1);
    if (s->opt.kind == RU_SPLIT_FILE) {
        int64_t n = s->first[client + 1] - s->first[client];
        memcpy(into, s->order + s->first[client], (size_t)n * sizeof *into);
        return n;
    }
    if (s->opt.kind != RU_SPLIT_IID) {
        shares(s, &law, share);
    }
    for (int64_t i = 0; i < s->each; i++) {
        if (s->opt.kind == RU_SPLIT_IID) {
            into[i] = (int64_t)ru_rng_below_u64(&draw, (uint64_t)s->count);
            continue;
        }
        uint32_t k = ru_rng_pick(&draw, share, s->n_classes);
        uint64_t n = (uint64_t)(s->first[k + 1] - s->first[k]);
        into[i] = s->order[s->first[k] + (int64_t)ru_rng_below_u64(&draw, n)];
    }
    return s->each;
}
