/* Format synthetic: samples drawn on the fly, and the list of generators. */
#include "data/make/gen.h"

#include <string.h>

#include "data/make/digits.h"

static const rui_gen *const gens[] = {
#define RUI_X(name) &rui_gen_##name,
    RUI_GEN_LIST(RUI_X)
#undef RUI_X
};

const rui_gen *rui_gen_at(uint32_t k)
{
    return k < RU_ARRAY_LEN(gens) ? gens[k] : NULL;
}

const rui_gen *rui_gen_find(const char *name)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(gens); k++) {
        if (strcmp(gens[k]->name, name) == 0) {
            return gens[k];
        }
    }
    return NULL;
}

ru_rng rui_gen_rng(const rui_gen_params *p, const char *purpose, int64_t index)
{
    ru_rng base = ru_rng_from(p->seed, ru_rng_label(purpose));
    return ru_rng_split(&base, (uint64_t)index);
}

ru_status rui_gen_range(const char *gen, const char *what, int64_t v, int64_t low, int64_t high,
                        ru_err *err)
{
    if (v >= low && v <= high) {
        return RU_OK;
    }
    return RU_FAIL(err, RU_E_CONFIG, "%s: %s is %lld; expected %lld to %lld", gen, what,
                   (long long)v, (long long)low, (long long)high);
}

/* -- the format -------------------------------------------------------------------------------- */

typedef struct synthetic_set {
    const rui_gen *gen;
    rui_gen_params params;
    void *self;
    int64_t first; /* number of sample 0 */
} synthetic_set;

static ru_status unknown_generator(const char *name, ru_err *err)
{
    const char *names[RU_ARRAY_LEN(gens)];
    char list[256];
    ru_text t = ru_text_into(list, sizeof list);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(gens); k++) {
        names[k] = gens[k]->name;
        ru_text_putf(&t, "%s%s", k > 0 ? ", " : "", names[k]);
    }
    int32_t near = ru_str_nearest(ru_str_c(name), names, RU_ARRAY_LEN(names));
    return RU_FAIL(err, RU_E_CONFIG, "generator '%s' is unknown%s%s%s; expected one of %s", name,
                   near >= 0 ? " (did you mean '" : "", near >= 0 ? names[near] : "",
                   near >= 0 ? "'?)" : "", list);
}

static ru_status synthetic_open(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    if (opt->generator == NULL) {
        return RU_FAIL(err, RU_E_CONFIG, "synthetic: no generator is named");
    }
    synthetic_set *s = d->self = RU_NEW(&d->arena, synthetic_set, 1);
    if (s == NULL) {
        return rui_no_memory(err, "synthetic", sizeof *s);
    }
    s->gen = rui_gen_find(opt->generator);
    if (s->gen == NULL) {
        return unknown_generator(opt->generator, err);
    }
    s->first = opt->first;
    s->params = (rui_gen_params){.seed = opt->seed,
                                 .features = opt->features,
                                 .classes = opt->classes,
                                 .context = opt->context,
                                 .hidden = opt->gen.hidden,
                                 .rank = opt->gen.rank,
                                 .users = opt->gen.users,
                                 .items = opt->gen.items,
                                 .vocab = opt->gen.vocab,
                                 .length = opt->gen.length,
                                 .noise = opt->gen.noise_given ? opt->gen.noise : -1.0};
    RU_TRY(s->gen->setup(&s->params, &d->arena, &s->self, err));
    s->gen->fields(&s->params, d);
    d->count = opt->count > 0 ? opt->count : s->gen->count;
    return RU_OK;
}

static ru_status synthetic_read(const ru_dataset *d, int64_t index, void *const *fields,
                                ru_err *err)
{
    (void)err;
    const synthetic_set *s = d->self;
    s->gen->draw(&s->params, s->self, d, s->first + index, fields);
    return RU_OK;
}

void rui_synthetic_truth(const ru_dataset *d, int64_t count, int64_t test_count, ru_text *out)
{
    const synthetic_set *s = d->self;
    RU_CHECK(d->format == &rui_format_synthetic);
    s->gen->truth(&s->params, s->self, count, test_count, out);
}

void rui_synthetic_sizes(const ru_dataset *d, ru_text *out)
{
    const synthetic_set *s = d->self;
    RU_CHECK(d->format == &rui_format_synthetic);
    if (s->gen->sizes != NULL) {
        s->gen->sizes(&s->params, out);
    }
}

ru_status rui_synthetic_extra(const ru_dataset *d, const char *dir, ru_err *err)
{
    const synthetic_set *s = d->self;
    RU_CHECK(d->format == &rui_format_synthetic);
    return s->gen->extra != NULL ? s->gen->extra(&s->params, s->self, dir, err) : RU_OK;
}

void rui_synthetic_text(const ru_dataset *d, int64_t index, uint8_t *into, int64_t n)
{
    const synthetic_set *s = d->self;
    RU_CHECK(s->gen == &rui_gen_grammar);
    rui_grammar_text(s->self, &s->params, index, into, n);
}

const rui_format rui_format_synthetic = {
    .name = "synthetic",
    .help = "samples that a generator of 'rubato data make' makes during training",
    .open = synthetic_open,
    .read = synthetic_read,
};

/* -- digits and noise: nothing hidden behind them ---------------------------------------------- */

static ru_status digits_setup(rui_gen_params *p, ru_arena *arena, void **self, ru_err *err)
{
    (void)arena;
    (void)self;
    p->classes = 10;
    return rui_gen_range("digits", "classes", p->classes, 10, 10, err);
}

static void digits_fields(const rui_gen_params *p, ru_dataset *d)
{
    const int64_t dims[3] = {1, RU_DIGIT_SIDE, RU_DIGIT_SIDE};
    d->classes = p->classes;
    rui_field_add(d, "x", rui_pixel_dtype(d), 3, dims);
    rui_field_add_class(d);
}

static void digits_draw(const rui_gen_params *p, const void *self, const ru_dataset *d,
                        int64_t index, void *const *fields)
{
    (void)self;
    uint8_t pixels[RU_DIGIT_PIXELS];
    int32_t label = ru_digit_draw(p->seed, index, pixels);
    rui_pixels_put(d, pixels, RU_DIGIT_PIXELS, fields[0]);
    rui_class_put(d, label, fields[1]);
}

static void digits_truth(const rui_gen_params *p, const void *self, int64_t count,
                         int64_t test_count, ru_text *out)
{
    (void)p;
    (void)self;
    (void)count;
    (void)test_count;
    ru_text_put(out, ",\n  \"classes\": 10,\n  \"labels\": \"the digit that was drawn\"");
}

const rui_gen rui_gen_digits = {
    .name = "digits",
    .help = "handwriting-like digits, 28 x 28 grey pixels, from strokes with jitter (IDX files)",
    .file_format = "idx",
    .count = 30000,
    .test_count = 5000,
    .setup = digits_setup,
    .fields = digits_fields,
    .draw = digits_draw,
    .truth = digits_truth,
};

/* Pixels of no meaning in the shape [3, side, side], for measuring: side = features. */
static ru_status noise_setup(rui_gen_params *p, ru_arena *arena, void **self, ru_err *err)
{
    (void)arena;
    (void)self;
    p->features = p->features > 0 ? p->features : 32;
    p->classes = p->classes > 0 ? p->classes : 10;
    return rui_gen_range("noise", "features (side of the image)", p->features, 1, 4096, err);
}

static void noise_fields(const rui_gen_params *p, ru_dataset *d)
{
    const int64_t dims[3] = {3, p->features, p->features};
    d->classes = p->classes;
    rui_field_add(d, "x", rui_pixel_dtype(d), 3, dims);
    rui_field_add_class(d);
}

static void noise_draw(const rui_gen_params *p, const void *self, const ru_dataset *d,
                       int64_t index, void *const *fields)
{
    (void)self;
    ru_rng r = rui_gen_rng(p, "noise", index);
    int64_t n = 3 * p->features * p->features, width = d->raw ? 1 : (int64_t)sizeof(float);
    uint8_t *x = fields[0], block[64];
    for (int64_t i = 0; i < n; i += (int64_t)sizeof block) {
        for (uint32_t k = 0; k < sizeof block; k += 4) {
            uint32_t w = ru_rng_u32(&r);
            memcpy(block + k, &w, sizeof w);
        }
        rui_pixels_put(d, block, n - i < (int64_t)sizeof block ? n - i : (int64_t)sizeof block,
                       x + i * width);
    }
    rui_class_put(d, (int64_t)ru_rng_below(&r, (uint32_t)p->classes), fields[1]);
}

static void noise_truth(const rui_gen_params *p, const void *self, int64_t count,
                        int64_t test_count, ru_text *out)
{
    (void)self;
    (void)count;
    (void)test_count;
    ru_text_putf(out, ",\n  \"classes\": %lld,\n  \"accuracy\": ", (long long)p->classes);
    ru_text_f64(out, 1.0 / (double)p->classes);
}

const rui_gen rui_gen_noise = {
    .name = "noise",
    .help = "random pixels and random labels, to measure speed (npy files)",
    .file_format = "npy",
    .count = 10000,
    .test_count = 1000,
    .setup = noise_setup,
    .fields = noise_fields,
    .draw = noise_draw,
    .truth = noise_truth,
};
