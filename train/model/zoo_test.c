#include "test/test.h"

#include <math.h>
#include <string.h>

#include "train/model/zoo.h"

typedef struct built {
    ru_arena arena;
    ru_graph g;
    ru_zoo_model model;
} built;

static void build(built *b, const char *name, const ru_zoo_options *opt, bool train)
{
    ru_err err = {0};
    memset(b, 0, sizeof *b);
    ru_arena_init(&b->arena, 0);
    assert_ok(ru_graph_init(&b->g, &b->arena, name, &err), err);
    assert_ok(ru_zoo_build(name, opt, train, &b->g, &b->model, &err), err);
    assert_ok(ru_graph_verify(&b->g, &err), err);
}

static int64_t parameters(const ru_graph *g)
{
    int64_t n = 0;
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (g->values[v].role == RU_ROLE_PARAM) {
            n += ru_type_count(&g->values[v].type);
        }
    }
    return n;
}

/* Witness: counts of torchvision and of GPT-2's paper; small ones by hand. */
static void counts_are_those_of_the_originals(void **state)
{
    (void)state;
    const struct {
        const char *name;
        ru_zoo_options opt;
        int64_t count;
    } cases[] = {
        {"mlp", {.classes = 10, .input = {1, 28, 28}, .input_rank = 3}, 669706},
        {"lenet", {.classes = 10, .input = {1, 28, 28}, .input_rank = 3}, 582026},
        {"resnet18", {.classes = 10, .input = {3, 32, 32}, .input_rank = 3}, 11173962},
        {"resnet18", {.classes = 1000, .input = {3, 224, 224}, .input_rank = 3}, 11689512},
        {"resnet34", {.classes = 1000, .input = {3, 224, 224}, .input_rank = 3}, 21797672},
        {"resnet50", {.classes = 1000, .input = {3, 224, 224}, .input_rank = 3}, 25557032},
        {"vgg11", {.classes = 1000, .input = {3, 224, 224}, .input_rank = 3}, 132863336},
        {"vgg16", {.classes = 1000, .input = {3, 224, 224}, .input_rank = 3}, 138357544},
        {"mobilenet", {.classes = 1000, .input = {3, 224, 224}, .input_rank = 3}, 3504872},
        {"gpt",
         {.layers = 12,
          .heads = 12,
          .width = 768,
          .context = 1024,
          .vocab = 50257,
          .bias = true,
          .tie = true},
         124439808},
        {"vgg11",
         {.classes = 10, .input = {3, 32, 32}, .input_rank = 3, .channels = 4, .width = 6},
         9 * (3 * 4 + 4 * 8 + 8 * 16 + 16 * 16 + 16 * 32 + 3 * 32 * 32) + 4 + 8 + 2 * 16 + 4 * 32 +
             (32 * 6 + 6) + (6 * 6 + 6) + (6 * 10 + 10)},
        {"lstm",
         {.layers = 2, .width = 4, .vocab = 10, .context = 8},
         10 * 4 + 2 * (16 * 4 + 16 * 4 + 32) + 4 * 10 + 10},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        built b;
        build(&b, cases[k].name, &cases[k].opt, true);
        if (parameters(&b.g) != cases[k].count) {
            fail_msg("%s has %lld parameters, expected %lld", cases[k].name,
                     (long long)parameters(&b.g), (long long)cases[k].count);
        }
        ru_arena_fini(&b.arena);
    }
}

static void both_forms_have_the_same_state_and_output(void **state)
{
    (void)state;
    uint32_t n;
    const ru_zoo_row *rows = ru_zoo_list(&n);
    for (uint32_t k = 0; k < n; k++) {
        bool tokens = strcmp(rows[k].name, "gpt") == 0 || strcmp(rows[k].name, "lstm") == 0;
        ru_zoo_options opt = {.classes = 7, .dropout = 0.25, .bias = true};
        if (tokens) {
            opt.vocab = 31;
            opt.context = 16;
            opt.width = 64;
        } else {
            opt.input[0] = 3;
            opt.input[1] = opt.input[2] = 32;
            opt.input_rank = 3;
        }
        built a, b;
        build(&a, rows[k].name, &opt, true);
        build(&b, rows[k].name, &opt, false);
        assert_int_equal(a.model.tokens, tokens);
        assert_int_equal(a.model.n_inits, b.model.n_inits);
        assert_int_equal(b.g.n_updates, 0);
        for (uint32_t i = 0; i < a.model.n_inits; i++) {
            const ru_value *p = ru_graph_value(&a.g, a.model.inits[i].param);
            const ru_value *q = ru_graph_value(&b.g, b.model.inits[i].param);
            assert_string_equal(p->name, q->name);
            assert_true(ru_type_equal(&p->type, &q->type));
        }
        const ru_type *t = &ru_graph_value(&a.g, a.g.outputs[0])->type;
        assert_int_equal(t->rank, tokens ? 3 : 2);
        assert_int_equal(t->dims[t->rank - 1], tokens ? 31 : 7);
        assert_true(ru_type_equal(t, &ru_graph_value(&b.g, b.g.outputs[0])->type));
        ru_arena_fini(&a.arena);
        ru_arena_fini(&b.arena);
    }
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    const struct {
        const char *name;
        ru_zoo_options opt;
        const char *say;
    } cases[] = {
        {"lenot", {.classes = 10}, "no model 'lenot'"},
        {"lenet", {.classes = 10, .input = {784}, .input_rank = 1}, "needs images"},
        {"lenet", {.classes = 10, .input = {1, 8, 8}, .input_rank = 3}, "height of the input"},
        {"lenet", {.input = {1, 28, 28}, .input_rank = 3}, "classes must be"},
        {"gpt", {.vocab = 10, .width = 30, .heads = 4}, "not a multiple of heads"},
        {"gpt", {.width = 64}, "vocab must be"},
        {"vit",
         {.classes = 10, .input = {3, 30, 30}, .input_rank = 3},
         "cannot be split into patches"},
        {"mlp", {.classes = 10, .input = {4}, .input_rank = 1, .activation = "relo"}, "'relo'"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        ru_arena arena;
        ru_graph g;
        ru_zoo_model m;
        ru_err err = {0};
        ru_arena_init(&arena, 0);
        assert_ok(ru_graph_init(&g, &arena, "t", &err), err);
        assert_int_equal(ru_zoo_build(cases[k].name, &cases[k].opt, true, &g, &m, &err),
                         RU_E_CONFIG);
        if (strstr(err.text, cases[k].say) == NULL) {
            fail_msg("'%s' does not say '%s'", err.text, cases[k].say);
        }
        ru_arena_fini(&arena);
    }
}

static void start_values_have_their_moments(void **state)
{
    (void)state;
    enum { N = 40001 };
    static float x[N], y[N];
    const ru_init normal = {.kind = RU_INIT_NORMAL, .scale = 0.02};
    const ru_init uniform = {.kind = RU_INIT_KAIMING_UNIFORM, .fan_in = 100};
    ru_init_fill(&normal, 7, 3, N, x);
    ru_init_fill(&uniform, 7, 4, N, y);
    double mean = 0, square = 0, low = 1, high = -1, sum = 0;
    for (int i = 0; i < N; i++) {
        mean += (double)x[i];
        square += (double)x[i] * (double)x[i];
        low = fmin(low, (double)y[i]);
        high = fmax(high, (double)y[i]);
        sum += (double)y[i];
    }
    assert_true(fabs(mean / N) < 0.0005);
    assert_true(fabs(sqrt(square / N) - 0.02) < 0.0003);
    assert_true(low >= -0.1 && low < -0.0999 && high <= 0.1 && high > 0.0999);
    assert_true(fabs(sum / N) < 0.001);
    float again[5];
    ru_init_fill(&normal, 7, 3, 5, again); /* a shorter fill has the same start */
    assert_memory_equal(again, x, sizeof again);
}

/* Start values filled in parts, as several threads do, are those filled at once. */
static void parts_of_start_values_are_the_whole(void **state)
{
    (void)state;
    static const ru_init_kind kinds[] = {RU_INIT_NORMAL, RU_INIT_UNIFORM, RU_INIT_KAIMING_UNIFORM};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(kinds); k++) {
        const ru_init init = {.kind = kinds[k], .scale = 0.5, .fan_in = 9};
        float whole[103], parts[103];
        ru_init_fill(&init, 7, 3, 103, whole);
        ru_init_fill_part(&init, 7, 3, 0, 40, parts);
        ru_init_fill_part(&init, 7, 3, 40, 63, parts + 40);
        assert_memory_equal(whole, parts, sizeof whole);
    }
}

RU_TESTS(train_zoo, cmocka_unit_test(parts_of_start_values_are_the_whole),
         cmocka_unit_test(counts_are_those_of_the_originals),
         cmocka_unit_test(both_forms_have_the_same_state_and_output),
         cmocka_unit_test(wrong_options_are_named),
         cmocka_unit_test(start_values_have_their_moments))
