/* An evaluation that goes forward through the stages of a step has the bits of one process: loss,
 * hits and outputs, of every size of batch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exe.h"
#include "test/test.h"
#include "train/model/stage.h"
#include "train/model/zoo.h"

enum { CUTS_MAX = 3, CLASSES = 5, STAGES = CUTS_MAX + 1 };

typedef struct model {
    const char *name;
    ru_zoo_options zo;
    ru_type x, y;
    ru_loss_kind loss;
    const char *cut[CUTS_MAX];
    uint32_t n_cut;
} model;

#define IMAGES .x = {.dtype = RU_F32, .rank = 3, .dims = {3, 16, 16}}, .y = {.dtype = RU_I64}
#define RESNET          \
    .name = "resnet18", \
    .zo = {.classes = CLASSES, .input = {3, 16, 16}, .input_rank = 3, .width = 8}, IMAGES

static const model models[] = {
    {.name = "mlp",
     .zo = {.classes = CLASSES, .input = {7}, .input_rank = 1, .dropout = 0.3},
     .x = {.dtype = RU_F32, .rank = 1, .dims = {7}},
     .y = {.dtype = RU_I64},
     .cut = {"fc2", "fc3"},
     .n_cut = 2},
    /* running statistics, cuts through residuals */
    {RESNET, .cut = {"layer1.1.conv2", "layer3.0.conv2", "fc"}, .n_cut = 3},
    {RESNET, .cut = {"layer1.1.conv1", "layer1.1.conv2"}, .n_cut = 2}, /* to two stages */
    {.name = "gpt", /* its head is the embedding, which two stages have */
     .zo = {.layers = 2,
            .heads = 2,
            .width = 16,
            .context = 6,
            .vocab = CLASSES,
            .dropout = 0.2,
            .tie = true},
     .x = {.dtype = RU_I64, .rank = 1, .dims = {6}},
     .y = {.dtype = RU_I64, .rank = 1, .dims = {6}},
     .loss = RU_LOSS_NEXT_TOKEN,
     .cut = {"transformer.h.0.mlp", "transformer.h.1.attn"},
     .n_cut = 2},
};

typedef struct rig {
    ru_arena arena;
    const model *m;
    ru_graph train, infer;
    ru_stages step; /* of training */
} rig;

static ru_step_options options(const model *m, int64_t batch)
{
    return (ru_step_options){.loss = m->loss,
                             .optimizer = {.kind = RU_OPTIMIZER_SGD},
                             .batch = batch,
                             .share_of = batch,
                             .x = m->x,
                             .y = m->y,
                             .outputs = true};
}

static void open_rig(rig *r, const model *m)
{
    ru_err err = {0};
    ru_zoo_model zoo;
    memset(r, 0, sizeof *r);
    ru_arena_init(&r->arena, 0);
    r->m = m;
    assert_ok(ru_graph_init(&r->train, &r->arena, m->name, &err), err);
    assert_ok(ru_zoo_build(m->name, &m->zo, true, &r->train, &zoo, &err), err);
    assert_ok(ru_graph_init(&r->infer, &r->arena, m->name, &err), err);
    assert_ok(ru_zoo_build(m->name, &m->zo, false, &r->infer, &zoo, &err), err);
    const ru_step_options so = options(m, 2); /* of another size than evaluations */
    assert_ok(ru_stages_build(&r->train, &so, m->cut, m->n_cut, &r->arena, &r->step, &err), err);
}

/* Numbers by name; variances are above 0. */
static ru_exe *open_exe(const ru_graph *g)
{
    ru_err err = {0};
    ru_exe *e;
    const ru_exe_options eo = {.threads = 1};
    assert_ok(ru_exe_open(g, &eo, &e, &err), err);
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *x = &g->values[v];
        if (x->kind != RU_VALUE_STATE) {
            continue;
        }
        int64_t n = ru_type_count(&x->type);
        float *data = calloc((size_t)n, sizeof *data);
        bool is_var = strstr(x->name, "running_var") != NULL;
        double phase = (double)strlen(x->name) + x->name[strlen(x->name) / 2];
        for (int64_t i = 0; i < n; i++) {
            data[i] = (float)((is_var ? 0.3 : 0) + 0.2 * sin(1.7 * (double)i + phase));
        }
        assert_int_equal(x->type.dtype, RU_F32);
        assert_ok(ru_exe_state_write(e, (ru_value_id){v}, data, &err), err);
        free(data);
    }
    return e;
}

static void set(const ru_graph *g, ru_exe *e, ru_value_id v, int64_t seed)
{
    if (v.v == 0) {
        return;
    }
    const ru_type *t = &ru_graph_value(g, v)->type;
    for (int64_t i = 0; i < ru_type_count(t); i++) {
        if (t->dtype == RU_I64) {
            ((int64_t *)ru_exe_input(e, v))[i] = (i * 3 + seed) % CLASSES;
        } else {
            ((float *)ru_exe_input(e, v))[i] = (float)sin((double)(seed * 131 + i));
        }
    }
}

static void run(const ru_step_graph *s, ru_exe *e)
{
    ru_err err = {0};
    set(&s->graph, e, s->x[0], 1);
    set(&s->graph, e, s->y[0], 2);
    assert_ok(ru_exe_run(e, NULL, &err), err);
}

static void same(const ru_step_graph *a, ru_exe *ea, const ru_step_graph *b, ru_exe *eb)
{
    const ru_value_id of_a[] = {a->loss, a->correct, a->count, a->output};
    const ru_value_id of_b[] = {b->loss, b->correct, b->count, b->output};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(of_a); k++) {
        const ru_type *t = &ru_graph_value(&a->graph, of_a[k])->type;
        assert_true(of_a[k].v != 0 && of_b[k].v != 0);
        assert_true(ru_type_equal(t, &ru_graph_value(&b->graph, of_b[k])->type));
        assert_memory_equal(ru_exe_output(ea, of_a[k]), ru_exe_output(eb, of_b[k]),
                            (size_t)ru_type_bytes(t));
    }
    assert_true(isfinite(*(const float *)ru_exe_output(ea, a->loss)));
}

static void stages_evaluate_as_one(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(models); i++) {
        rig r;
        open_rig(&r, &models[i]);
        for (int64_t batch = 3; batch <= 4; batch++) {
            const ru_step_options so = options(&models[i], batch);
            ru_step_graph one;
            ru_stages s;
            ru_exe *e[STAGES];
            ru_err err = {0};
            assert_ok(ru_step_build_eval(&r.infer, &so, &r.arena, &one, &err), err);
            ru_exe *whole = open_exe(&one.graph);
            run(&one, whole);
            assert_ok(ru_stages_build_eval(&r.infer, &so, models[i].cut, models[i].n_cut, &r.step,
                                           &r.arena, &s, &err),
                      err);
            assert_int_equal(s.n, models[i].n_cut + 1);
            for (uint32_t k = 0; k < s.n; k++) {
                e[k] = open_exe(&s.at[k].step.graph);
            }
            for (uint32_t k = 0; k < s.n; k++) {
                assert_int_equal(s.at[k].step.loss.v != 0, k + 1 == s.n);
                assert_int_equal(s.at[k].step.x[0].v != 0, k == 0);
                run(&s.at[k].step, e[k]);
                for (uint32_t x = 0; x < s.n_edges; x++) {
                    const ru_stage_edge *c = &s.edges[x];
                    if (c->from == k) {
                        memcpy(ru_exe_input(e[c->to], c->in), ru_exe_output(e[k], c->out),
                               (size_t)ru_type_bytes(&c->type));
                    }
                }
            }
            same(&one, whole, &s.at[s.n - 1].step, e[s.n - 1]);
            for (uint32_t k = 0; k < s.n; k++) {
                ru_exe_close(e[k]);
            }
            ru_exe_close(whole);
        }
        ru_arena_fini(&r.arena);
    }
}

/* A layer that the inference form lacks, and a state that would be in another stage. */
static void what_cannot_be_cut_alike_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *cut;
        ru_status st;
        const char *says;
    } cases[] = {{"fc9", RU_E_CONFIG, "no layer 'fc9'"}, {"fc3", RU_E_UNSUPPORTED, "reads 'fc2."}};
    rig r;
    ru_err err = {0};
    open_rig(&r, &models[0]);
    const ru_step_options so = options(&models[0], 3);
    assert_ok(ru_stages_build(&r.train, &so, models[0].cut, 1, &r.arena, &r.step, &err), err);
    for (uint32_t i = 0; i < RU_ARRAY_LEN(cases); i++) {
        ru_stages s;
        assert_int_equal(
            ru_stages_build_eval(&r.infer, &so, &cases[i].cut, 1, &r.step, &r.arena, &s, &err),
            cases[i].st);
        if (strstr(err.text, cases[i].says) == NULL) {
            fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
        }
    }
    ru_arena_fini(&r.arena);
}

RU_TESTS(train_stage_eval, cmocka_unit_test(stages_evaluate_as_one),
         cmocka_unit_test(what_cannot_be_cut_alike_is_told))
