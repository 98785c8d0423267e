/* The list of an executable's steps as facts: what a step waits for is what the graph says, the
 * flops are those of the graph, runs are measured, and what was decided can be decided again. */
#include "exec/exe.h"

#include <stdio.h>
#include <string.h>

#include "base/fields.h"
#include "plan/row/policy.h"
#include "test/test.h"
#include "train/model/step.h"
#include "train/model/zoo.h"
#include "world/graph/build.h"

typedef struct net {
    ru_arena arena;
    ru_step_graph step;
    ru_exe *exe;
    ru_op_fact *ops;
    uint32_t n;
} net;

static void open_net(net *t, const char *model, const ru_zoo_options *zoo, bool tokens,
                     const ru_exe_options *opt)
{
    ru_err err = {0};
    ru_graph g;
    ru_zoo_model m;
    ru_arena_init(&t->arena, 0);
    ru_type x = tokens ? ru_type_make(RU_I64, 1, &zoo->context)
                       : ru_type_make(RU_F32, zoo->input_rank, zoo->input);
    ru_step_options so = {.loss = tokens ? RU_LOSS_NEXT_TOKEN : RU_LOSS_CROSS_ENTROPY,
                          .optimizer = {.lr = 0.1, .momentum = 0.9},
                          .batch = 4,
                          .x = x,
                          .y = tokens ? x : ru_type_scalar(RU_I64)};
    assert_ok(ru_graph_init(&g, &t->arena, model, &err), err);
    assert_ok(ru_zoo_build(model, zoo, true, &g, &m, &err), err);
    assert_ok(ru_step_build(&g, &so, &t->arena, &t->step, &err), err);
    assert_ok(ru_exe_open(&t->step.graph, opt, &t->exe, &err), err);
    assert_ok(ru_exe_run(t->exe, NULL, &err), err);
    assert_ok(ru_exe_run(t->exe, NULL, &err), err);
    assert_ok(ru_exe_ops(t->exe, 3, &t->arena, &t->ops, &t->n, &err), err);
}

static void close_net(net *t)
{
    ru_exe_close(t->exe);
    ru_arena_fini(&t->arena);
}

/* reach[i * n + k]: step i comes after step k, over any number of others. */
static bool *reach_of(net *t)
{
    bool *reach = ru_arena_zalloc(&t->arena, (int64_t)t->n * t->n, 1);
    for (uint32_t i = 0; i < t->n; i++) {
        for (uint32_t d = 0; d < t->ops[i].after.n; d++) {
            size_t k = (size_t)t->ops[i].after.at[d];
            reach[i * (size_t)t->n + k] = true;
            for (uint32_t m = 0; m < k; m++) {
                reach[i * (size_t)t->n + m] |= reach[k * t->n + m];
            }
        }
    }
    return reach;
}

static uint32_t node_of(const ru_graph *g, const char *name)
{
    uint32_t k;
    if (sscanf(name, "#%u", &k) == 1) {
        return k;
    }
    for (k = 1; k < g->n_nodes; k++) {
        if (g->nodes[k].name != NULL && strcmp(g->nodes[k].name, name) == 0) {
            return k;
        }
    }
    return 0;
}

static bool makes(const ru_node *n, ru_value_id v)
{
    for (uint32_t k = 0; k < n->n_out; k++) {
        if (n->out[k].v == v.v) {
            return true;
        }
    }
    return false;
}

/* Each step of a node comes, directly or not, after a step of each node whose result it reads. */
static uint32_t check_edges(net *t)
{
    const ru_graph *g = &t->step.graph;
    bool *reach = reach_of(t);
    uint32_t edges = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t a = node_of(g, t->ops[i].node);
        for (uint32_t k = 0; k < t->n && a != 0; k++) {
            uint32_t b = node_of(g, t->ops[k].node);
            bool reads = false;
            for (uint32_t v = 0; b != 0 && b != a && v < g->nodes[a].n_in; v++) {
                reads =
                    reads || (g->nodes[a].in[v].v != 0 && makes(&g->nodes[b], g->nodes[a].in[v]));
            }
            bool some = false; /* a node may have several steps, not all of which read */
            for (uint32_t x = 0; x < t->n && reads; x++) {
                for (uint32_t y = 0; y < t->n && strcmp(t->ops[x].node, t->ops[i].node) == 0; y++) {
                    some = some || (strcmp(t->ops[y].node, t->ops[k].node) == 0 &&
                                    reach[x * (size_t)t->n + y]);
                }
            }
            if (reads && !some) {
                fail_msg("%s (step %u) reads what %s (step %u) makes, but does not wait for it",
                         t->ops[i].node, i, t->ops[k].node, k);
            }
            edges += reads;
        }
    }
    return edges;
}

static const int64_t hidden[] = {16};
static const ru_zoo_options mlp = {
    .input = {12}, .input_rank = 1, .classes = 4, .hidden = hidden, .hidden_n = 1};
static const ru_zoo_options lenet = {.input = {1, 28, 28}, .input_rank = 3, .classes = 10};
static const ru_zoo_options gpt = {
    .layers = 2, .heads = 2, .width = 32, .context = 16, .vocab = 32};

static void test_steps_wait_for_what_they_read(void **state)
{
    (void)state;
    const ru_exe_options opt = {.threads = 1, .no_fuse = true, .profile = true};
    for (uint32_t k = 0; k < 3; k++) {
        net t;
        open_net(&t,
                 k == 0   ? "mlp"
                 : k == 1 ? "lenet"
                          : "gpt",
                 k == 0   ? &mlp
                 : k == 1 ? &lenet
                          : &gpt,
                 k == 2, &opt);
        assert_true(check_edges(&t) > 10);
        /* A list in which everything waits for everything would pass too: most steps wait for few.
         */
        uint32_t waits = 0;
        for (uint32_t i = 0; i < t.n; i++) {
            waits += t.ops[i].after.n;
        }
        assert_true(waits < 6 * t.n);
        close_net(&t);
    }
}

static void test_the_list_is_facts(void **state)
{
    (void)state;
    net t;
    open_net(&t, "lenet", &lenet, false, &(ru_exe_options){.threads = 1, .profile = true});
    ru_exe_stats s;
    ru_err err = {0};
    ru_exe_stats_get(t.exe, &s);
    int64_t flops = 0, updated = 0, elements = 0;
    for (uint32_t i = 1; i < t.step.graph.n_nodes; i++) {
        const ru_node *node = &t.step.graph.nodes[i];
        elements += node->op == RU_OP_SgdUpdate
                        ? ru_type_count(&ru_graph_value(&t.step.graph, node->out[0])->type)
                        : 0;
    }
    for (uint32_t i = 0; i < t.n; i++) {
        flops += t.ops[i].flops;
        updated += strcmp(t.ops[i].op, "SgdUpdate") == 0 ? t.ops[i].flops : 0;
        assert_true(t.ops[i].rank == 3 && t.ops[i].step == i && t.ops[i].took.count == 2);
        assert_true(t.ops[i].bytes > 0 && t.ops[i].kernel[0] != '\0');
        assert_ok(ru_fields_check(&ru_op_fact_table, &t.ops[i], &err), err);
    }
    /* Some nodes need no step; those that are lowered with another one count there. */
    assert_true(elements > 1000 && updated == elements); /* one step updates all tensors */
    assert_true(flops <= s.flops && (double)flops > 0.9 * (double)s.flops);
    close_net(&t);
}

/* Without measuring there are no times; equal graphs have equal ids, others another. */
static void test_ids_of_lists(void **state)
{
    (void)state;
    net a, b, c;
    open_net(&a, "lenet", &lenet, false, &(ru_exe_options){.threads = 1});
    open_net(&b, "lenet", &lenet, false, &(ru_exe_options){.threads = 1});
    open_net(&c, "mlp", &mlp, false, &(ru_exe_options){.threads = 1});
    assert_int_equal(a.ops[0].took.count, 0);
    assert_true(ru_exe_id(a.exe) == ru_exe_id(b.exe));
    assert_true(ru_exe_id(a.exe) != ru_exe_id(c.exe));
    close_net(&a);
    close_net(&b);
    close_net(&c);
}

static void test_installed_plans_can_be_made_again(void **state)
{
    (void)state;
    net t;
    open_net(&t, "lenet", &lenet, false, &(ru_exe_options){.threads = 1, .autotune = true});
    const ru_exe_plan *plans;
    uint32_t n = ru_exe_plans(t.exe, &plans), mem = 0;
    ru_exe_stats s;
    ru_exe_stats_get(t.exe, &s);
    for (uint32_t k = 0; k < n; k++) {
        ru_arena out, scratch;
        ru_arena_init(&out, 0);
        ru_arena_init(&scratch, 0);
        const ru_policy_tools tools = {&out, &scratch, NULL};
        ru_policy_answer a;
        ru_err err = {0};
        assert_ok(ru_policy_run(plans[k].policy, plans[k].in, &tools, &a, &err), err);
        if (strcmp(plans[k].policy->name, "mem") == 0) {
            mem++;
            assert_true(a.head.predicted.at[0].value == (double)s.arena_bytes);
        }
        ru_arena_fini(&scratch);
        ru_arena_fini(&out);
    }
    assert_int_equal(mem, 1);
    close_net(&t);
}

/* Open Tanh, and Exp of its result if `more`, whose forward part is Tanh. */
static void open_forward(net *t, bool more)
{
    ru_err err = {0};
    ru_graph g;
    ru_build b;
    const int64_t dim = 5;
    ru_arena_init(&t->arena, 0);
    assert_ok(ru_graph_init(&g, &t->arena, "forward", &err), err);
    ru_build_init(&b, &g);
    ru_value_id x = ru_build_input(&b, "x", ru_type_make(RU_F32, 1, &dim));
    ru_value_id y = ru_build_op1(&b, RU_OP_Tanh, x, NULL);
    ru_build_output(&b, y, "y");
    if (more) {
        ru_build_output(&b, ru_build_op1(&b, RU_OP_Exp, y, NULL), "z");
    }
    assert_ok(ru_build_finish(&b, &err), err);
    const ru_exe_options opt = {
        .threads = 1, .profile = true, .two_phase = true, .forward = &y, .n_forward = 1};
    assert_ok(ru_exe_open(&g, &opt, &t->exe, &err), err);
}

/* A step without a backward part and an update ends once, with its forward part. */
static void test_empty_phases_are_no_runs(void **state)
{
    (void)state;
    net t;
    ru_err err = {0};
    open_forward(&t, false);
    for (uint32_t k = 0; k < 3; k++) {
        assert_ok(ru_exe_phase(t.exe, RU_PHASE_FORWARD, NULL, &err), err);
        assert_ok(ru_exe_phase(t.exe, RU_PHASE_BACKWARD, NULL, &err), err);
        assert_ok(ru_exe_phase(t.exe, RU_PHASE_UPDATE, NULL, &err), err);
    }
    assert_ok(ru_exe_ops(t.exe, 0, &t.arena, &t.ops, &t.n, &err), err);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.ops[0].took.count, 3);
    close_net(&t);
}

/* Runs that ended behind their forward part count for its ops, and for no others. */
static void test_ops_of_runs_that_did_not_end(void **state)
{
    (void)state;
    net t;
    ru_err err = {0};
    open_forward(&t, true);
    for (uint32_t k = 0; k < 5; k++) {
        assert_ok(ru_exe_phase(t.exe, RU_PHASE_FORWARD, NULL, &err), err);
    }
    assert_ok(ru_exe_phase(t.exe, RU_PHASE_BACKWARD, NULL, &err), err);
    assert_ok(ru_exe_phase(t.exe, RU_PHASE_UPDATE, NULL, &err), err);
    assert_ok(ru_exe_ops(t.exe, 0, &t.arena, &t.ops, &t.n, &err), err);
    assert_int_equal(t.n, 2);
    for (uint32_t i = 0; i < t.n; i++) {
        const ru_fact *f = &t.ops[i].took;
        assert_int_equal(f->count, i == 0 ? 5 : 1);
        assert_true(f->mean_ns >= (double)f->min_ns && f->mean_ns <= (double)f->max_ns);
    }
    close_net(&t);
}

RU_TESTS(test_op_facts, cmocka_unit_test(test_empty_phases_are_no_runs),
         cmocka_unit_test(test_ops_of_runs_that_did_not_end),
         cmocka_unit_test(test_steps_wait_for_what_they_read),
         cmocka_unit_test(test_the_list_is_facts), cmocka_unit_test(test_ids_of_lists),
         cmocka_unit_test(test_installed_plans_can_be_made_again))
