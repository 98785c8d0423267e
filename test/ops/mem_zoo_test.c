/* The planned arena of the zoo's training steps stands within 5 % of the liveness lower bound. */
#include "test/test.h"

#include <stdio.h>
#include <string.h>

#include "exec/exe.h"
#include "train/model/step.h"
#include "train/model/zoo.h"

typedef struct zoo_case {
    const char *model;
    ru_zoo_options zoo;
    ru_loss_kind loss;
    int64_t batch;
} zoo_case;

static const int64_t mlp_hidden[] = {512, 512};

/* The sizes that training is measured at. */
static const zoo_case cases[] = {
    {"mlp",
     {.input = {784}, .input_rank = 1, .classes = 10, .hidden = mlp_hidden, .hidden_n = 2},
     RU_LOSS_CROSS_ENTROPY,
     128},
    {"lenet", {.input = {1, 28, 28}, .input_rank = 3, .classes = 10}, RU_LOSS_CROSS_ENTROPY, 64},
    {"resnet18", {.input = {3, 32, 32}, .input_rank = 3, .classes = 10}, RU_LOSS_CROSS_ENTROPY, 64},
    {"vgg11", {.input = {3, 32, 32}, .input_rank = 3, .classes = 10}, RU_LOSS_CROSS_ENTROPY, 32},
    {"gpt",
     {.layers = 4, .heads = 4, .width = 256, .context = 128, .vocab = 256},
     RU_LOSS_NEXT_TOKEN,
     16},
    {"lstm", {.layers = 2, .width = 256, .context = 64, .vocab = 256}, RU_LOSS_NEXT_TOKEN, 32},
};

static void build_step(const zoo_case *c, ru_arena *arena, ru_step_graph *step)
{
    ru_err err = {0};
    ru_graph model;
    ru_zoo_model zoo;
    bool tokens = c->loss == RU_LOSS_NEXT_TOKEN;
    ru_type x = tokens ? ru_type_make(RU_I64, 1, &c->zoo.context)
                       : ru_type_make(RU_F32, c->zoo.input_rank, c->zoo.input);
    ru_step_options so = {.loss = c->loss,
                          .optimizer = {.lr = 0.1, .momentum = 0.9},
                          .batch = c->batch,
                          .x = x,
                          .y = tokens ? x : ru_type_scalar(RU_I64)};
    assert_ok(ru_graph_init(&model, arena, c->model, &err), err);
    assert_ok(ru_zoo_build(c->model, &c->zoo, true, &model, &zoo, &err), err);
    assert_ok(ru_step_build(&model, &so, arena, step, &err), err);
}

static void test_arena_is_near_the_bound(void **state)
{
    (void)state;
    uint32_t bad = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        ru_arena arena;
        ru_step_graph step;
        ru_exe *e = NULL;
        ru_err err = {0};
        ru_exe_stats s;
        ru_arena_init(&arena, 0);
        build_step(&cases[k], &arena, &step);
        ru_exe_options opt = {.device = RU_DEVICE_CPU, .threads = 1};
        assert_ok(ru_exe_open(&step.graph, &opt, &e, &err), err);
        ru_exe_stats_get(e, &s);
        double over = (double)s.arena_bytes / (double)s.arena_bound_bytes - 1.0;
        if (over > 0.05) {
            fprintf(stderr, "%s: arena %lld bytes, bound %lld: %.1f %% over\n", cases[k].model,
                    (long long)s.arena_bytes, (long long)s.arena_bound_bytes, 100.0 * over);
            bad++;
        }
        ru_exe_close(e);
        ru_arena_fini(&arena);
    }
    assert_int_equal(bad, 0);
}

RU_TESTS(test_mem_zoo, cmocka_unit_test(test_arena_is_near_the_bound))
