/* Text from a small grammar whose entropy is known exactly.
 *
 * Every sentence has one derivation only (numbers of subject and verb agree; clauses hang on
 * subjects, places on the main verb, nothing else nests), so the entropy of a sentence is the sum
 * of the entropies of the choices, and entropy / mean length is what the best model can reach per
 * byte:
 *
 *     H(rule) = sum p_i (-log p_i + sum of H over the symbols of alternative i)
 *
 * In the rules a capital letter names a symbol, everything else is text. */
#include "data/make/gen.h"

#include <math.h>
#include <string.h>

enum { ALTERNATIVES_MAX = 24, DEPTH_MAX = 16 };

typedef struct rule {
    char name;
    const char *text[ALTERNATIVES_MAX]; /* NULL-ended */
    double weight[ALTERNATIVES_MAX];    /* all 0: falls as 1/(k + 1) */
} rule;

static const rule rules[] = {
    {'S', {"X Y.\n", "P Q.\n"}, {0.6, 0.4}},                 /* one, many */
    {'X', {"D C", "D A C", "D C that W"}, {0.5, 0.3, 0.2}},  /* subject, one */
    {'P', {"E B", "E A B", "E B that Z"}, {0.5, 0.3, 0.2}},  /* subject, many */
    {'Y', {"W", "W L", "I", "I L"}, {0.4, 0.2, 0.25, 0.15}}, /* what it does, one */
    {'Q', {"Z", "Z L", "J", "J L"}, {0.4, 0.2, 0.25, 0.15}},
    {'W', {"V O"}, {1.0}},
    {'Z', {"U O"}, {1.0}},
    {'O', {"D C", "E B", "D A C"}, {0.5, 0.3, 0.2}}, /* object */
    {'L', {"near D N", "behind D N", "under D N"}, {0.5, 0.3, 0.2}},
    {'D', {"the", "a", "this", "every"}, {0.5, 0.3, 0.1, 0.1}},
    {'E', {"the", "some", "those", "seven"}, {0.5, 0.3, 0.1, 0.1}},
    {'A', {"old", "small", "green", "quiet", "wooden", "brave", "golden", "hungry"}, {0}},
    {'C',
     {"king", "sailor", "fox", "child", "teacher", "spider", "baker", "horse", "river god",
      "painter", "wolf", "clock"},
     {0}},
    {'B',
     {"kings", "sailors", "foxes", "children", "teachers", "spiders", "bakers", "horses",
      "river gods", "painters", "wolves", "clocks"},
     {0}},
    {'N', {"tower", "bridge", "garden", "harbour", "oak", "mill", "well", "gate"}, {0}},
    {'V', {"sees", "follows", "finds", "carries", "forgets", "paints", "counts", "answers"}, {0}},
    {'U', {"see", "follow", "find", "carry", "forget", "paint", "count", "answer"}, {0}},
    {'I', {"sleeps", "waits", "sings", "laughs", "turns"}, {0}},
    {'J', {"sleep", "wait", "sing", "laugh", "turn"}, {0}},
};

static const rule *rule_of(char name)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rules); k++) {
        if (rules[k].name == name) {
            return &rules[k];
        }
    }
    return NULL;
}

/* Chances of a rule's alternatives; returns how many. */
static uint32_t chances(const rule *r, double *p)
{
    uint32_t n = 0;
    double sum = 0.0;
    while (n < ALTERNATIVES_MAX && r->text[n] != NULL) {
        p[n] = r->weight[0] > 0.0 ? r->weight[n] : 1.0 / (double)(n + 1);
        sum += p[n++];
    }
    for (uint32_t i = 0; i < n; i++) {
        p[i] /= sum;
    }
    return n;
}

/* Entropy (nats) and mean bytes of what a symbol becomes. Depth is that of the table. */
static void measure(char name, int depth, double *entropy, double *bytes)
{
    RU_CHECK(depth < DEPTH_MAX);
    const rule *r = rule_of(name);
    double p[ALTERNATIVES_MAX];
    uint32_t n = chances(r, p);
    *entropy = *bytes = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        *entropy -= p[i] * log(p[i]);
        for (const char *c = r->text[i]; *c != '\0'; c++) {
            double h = 0.0, b = 1.0;
            if (*c >= 'A' && *c <= 'Z') {
                measure(*c, depth + 1, &h, &b);
            }
            *entropy += p[i] * h;
            *bytes += p[i] * b;
        }
    }
}

typedef struct sink {
    uint8_t *at, *end;
    int64_t skip; /* bytes to drop first */
} sink;

static void expand(char name, int depth, ru_rng *r, sink *out)
{
    RU_CHECK(depth < DEPTH_MAX);
    const rule *row = rule_of(name);
    double p[ALTERNATIVES_MAX];
    uint32_t n = chances(row, p);
    for (const char *c = row->text[ru_rng_pick(r, p, n)]; *c != '\0'; c++) {
        if (*c >= 'A' && *c <= 'Z') {
            expand(*c, depth + 1, r, out);
        } else if (out->skip > 0) {
            out->skip--;
        } else if (out->at < out->end) {
            *out->at++ = (uint8_t)*c;
        }
    }
}

/* Whole sentences of their own stream; the last one is cut where n bytes are full. */
static void fill_text(const rui_gen_params *p, int64_t index, int64_t skip, uint8_t *into,
                      int64_t n)
{
    ru_rng r = rui_gen_rng(p, "grammar", index);
    sink out = {into, into + n, skip};
    while (out.at < out.end) {
        expand('S', 0, &r, &out);
    }
}

void rui_grammar_text(const void *self, const rui_gen_params *p, int64_t index, uint8_t *into,
                      int64_t n)
{
    (void)self;
    fill_text(p, index, 0, into, n);
}

static ru_status grammar_setup(rui_gen_params *p, ru_arena *arena, void **self, ru_err *err)
{
    (void)arena;
    (void)self;
    p->context = p->context > 0 ? p->context : 128;
    p->classes = 256;
    return rui_gen_range("grammar", "context", p->context, 1, 1 << 20, err);
}

static void grammar_fields(const rui_gen_params *p, ru_dataset *d)
{
    d->classes = p->classes;
    rui_field_add(d, "ids", d->raw ? RU_U8 : RU_I64, 1, &p->context);
    rui_field_add(d, "y", d->raw ? RU_U8 : RU_I64, 1, &p->context);
}

/* A window that starts anywhere in a sentence. */
static void grammar_draw(const rui_gen_params *p, const void *self, const ru_dataset *d,
                         int64_t index, void *const *fields)
{
    (void)self;
    ru_rng r = rui_gen_rng(p, "grammar windows", index);
    int64_t skip = ru_rng_below(&r, 64);
    uint8_t buf[512], *ids = fields[0], *y = fields[1];
    int64_t width = d->raw ? 1 : 8, n = p->context, done = 0;
    while (done < n) { /* pieces of one text: skip grows with what was handed out */
        int64_t m = n - done < (int64_t)sizeof buf - 1 ? n - done : (int64_t)sizeof buf - 1;
        fill_text(p, -1 - index, skip + done, buf, m + 1);
        for (int64_t i = 0; i < m; i++) {
            int64_t a = buf[i], b = buf[i + 1];
            memcpy(ids + (done + i) * width, &a,
                   (size_t)width); /* little-endian hosts only, as all */
            memcpy(y + (done + i) * width, &b, (size_t)width); /* our raw files are */
        }
        done += m;
    }
}

static void grammar_truth(const rui_gen_params *p, const void *self, int64_t count,
                          int64_t test_count, ru_text *out)
{
    (void)p;
    (void)self;
    (void)count;
    (void)test_count;
    double entropy, bytes;
    measure('S', 0, &entropy, &bytes);
    ru_text_put(out, ",\n  \"nats_per_sentence\": ");
    ru_text_f64(out, entropy);
    ru_text_put(out, ",\n  \"bytes_per_sentence\": ");
    ru_text_f64(out, bytes);
    ru_text_put(out, ",\n  \"nats_per_byte\": ");
    ru_text_f64(out, entropy / bytes);
    ru_text_put(out, ",\n  \"bits_per_byte\": ");
    ru_text_f64(out, entropy / bytes / log(2.0));
}

const rui_gen rui_gen_grammar = {
    .name = "grammar",
    .help = "English-like sentences of a grammar with known entropy (text; count is in bytes)",
    .file_format = "text",
    .count = 2000000,
    .test_count = 200000,
    .setup = grammar_setup,
    .fields = grammar_fields,
    .draw = grammar_draw,
    .truth = grammar_truth,
};
