/* The rows of `save` and `recover` in plan/row/policy.def: their inputs as files, their reports. */
#include <math.h>

#include "cost/perturb.h"
#include "plan/crew/save.h"
#include "plan/row/policy.h"

static const ru_conf_field run_fields[] = {
    RU_ROW(F64, ru_save_run, rate, "0.99",
           "factor by which an iteration shortens the distance to the limit",
           RU_IN(1e-9, 0.999999999)),
    RU_ROW(F64, ru_save_run, begin, "1", "distance of the values at the start from the limit",
           RU_IN(1e-300, 1e300)),
    RU_ROW(F64, ru_save_run, iteration, "0", "iterations done so far", RU_IN(0, 1e15)),
};
static const ru_conf_table run_table =
    RU_TABLE("run", ru_save_run, run_fields, "how the run converges, for the bound");

static double bound_of(const ru_save_run *r, double norm)
{
    return ru_perturb_iterations(r->rate, r->begin, r->iteration, norm);
}

/* -- save -----------------------------------------------------------------------------------------
 */

static ru_status check_save_in(const void *section, ru_err *err)
{
    const ru_save_in *in = section;
    if (in->n < 1) {
        return RU_FAIL(err, RU_E_ARG, "'distance' names no block");
    }
    return RU_OK;
}

static const ru_conf_field save_fields[] = {
    RU_ROW(F64_LIST, ru_save_in, distance, NULL, "distance between each block and its saved copy",
           RU_IN(0, 1e150)),
    RU_ROW(F64, ru_save_in, fraction, "0.125", "fraction of the blocks to save, rounded up",
           RU_OVER(0, 1)),
    RU_ROW(F64, ru_save_in, lost, "0.5",
           "fraction of the blocks that a failure loses at random; used for the bound",
           RU_IN(0, 1)),
    RU_ROW(U32, ru_save_in, cursor, "0", "method round_robin: index of the first block"),
    RU_ROW(I64, ru_save_in, seed, "0", "method random: seed of this save"),
    RU_ROW(SECTION, ru_save_in, run, NULL, "run", .table = &run_table),
    RU_ROW(CHOICE, ru_save_in, method, "priority",
           "priority: the blocks with the largest distance; round_robin: in a cycle; random: at "
           "random; full: all; none: none",
           .choices = "priority|round_robin|random|full|none"),
};
static const ru_conf_table save_table = RU_TABLE(
    "save", ru_save_in, save_fields, "one save of a running checkpoint", .check = check_save_in);

static ru_status plan_save(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    return ru_plan_save(in, tools->out, plan, err);
}

static ru_status check_save(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    return ru_plan_save_check(in, plan, scratch, err);
}

/* Extra iterations when that fraction of blocks, placed at random, is lost now. */
static double lost_iterations(const ru_save_in *in, const ru_save_plan *p)
{
    return bound_of(&in->run, sqrt(in->lost) * p->left_norm);
}

static ru_status judge_save(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_save_plan *other = v->plan;
    bool more = other->n > ((const ru_save_plan *)v->won)->n;
    ru_rival_is(v, lost_iterations(v->in, other), !more, "writes %u blocks%s", other->n,
                more ? ", more than 'fraction' allows" : "");
    return RU_OK;
}

static const ru_report_row save_rows[] = {
    RU_DECISION(U32, ru_save_plan, block, "blocks", RU_LIST(ru_save_plan, n)),
};

static ru_status report_save(const void *in, const void *plan, const ru_policy_tools *tools,
                             ru_report *r, ru_err *err)
{
    const ru_save_in *s = in;
    const ru_save_plan *p = plan;
    ru_report_answer(r, "save %u of %u blocks", p->n, s->n);
    ru_report_figure(r, "lost_iterations", lost_iterations(s, p));
    ru_report_figure(r, "distance_left", p->left_norm);
    ru_table *t = ru_report_grid_of(r, "blocks", ">block >distance");
    for (uint32_t i = 0; i < p->n; i++) {
        ru_table_i64(t, p->block[i]);
        ru_table_f64(t, s->distance[p->block[i]], 6);
    }
    ru_policy_winner(&ru_policy_save, in, r, lost_iterations(s, p), true, "chosen, %u blocks",
                     p->n);
    RU_TRY(ru_policy_rivals(&ru_policy_save, in, plan, tools, judge_save, r, err));
    ru_report_assume(r, "lost blocks are random; the number of lost iterations is a bound that "
                        "follows from the given rate of convergence");
    return RU_OK;
}

const ru_policy ru_policy_save = {
    .name = "save",
    .version = 1,
    .decides = "which blocks of the parameters a running checkpoint writes next",
    .source = "qiao-2019 sec 4",
    .in = &save_table,
    .plan_bytes = sizeof(ru_save_plan),
    .rows = save_rows,
    .n_rows = RU_ARRAY_LEN(save_rows),
    .plan = plan_save,
    .check = check_save,
    .report = report_save,
    .example = "# Sixteen blocks, two of them to be written; a few have moved far.\n"
               "distance: [0.02, 0.31, 0.05, 0.01, 0.08, 0.44, 0.03, 0.02, 0.12, 0.01, 0.07, 0.02, "
               "0.27, 0.01, 0.04, 0.06]\n"
               "fraction: 0.125\n"
               "run: {rate: 0.97, begin: 4, iteration: 50}\n",
};

/* -- recover --------------------------------------------------------------------------------------
 */

#define COPY_AGE(name_, what_)                                                              \
    RU_ROW(I64, ru_recover_block, name_, "-1", "iteration of " what_ "; -1: there is none", \
           RU_IN(-1, 1e15))
#define COPY_DISTANCE(name_, field_, what_)               \
    RU_ROW_AS(#name_, F64, ru_recover_block, field_, "0", \
              "distance of " what_ " from the values before the failure", RU_IN(0, 1e150))
static const ru_conf_field block_fields[] = {
    RU_ROW(BOOL, ru_recover_block, lost, "false", "true: the server of the block was lost"),
    COPY_AGE(log_at, "its newest record in the checkpoint"),
    COPY_AGE(cache_at, "the newest copy of a worker"),
    COPY_DISTANCE(log_distance, log_d, "that record"),
    COPY_DISTANCE(cache_distance, cache_d, "that copy"),
    COPY_DISTANCE(start_distance, start_d, "the values at the start"),
};
static const ru_conf_table block_table = RU_TABLE("block", ru_recover_block, block_fields, NULL);
static const ru_conf_field recover_fields[] = {
    RU_ROW_AS("blocks", SECTIONS, ru_recover_in, block, NULL, "every block and its copies",
              .table = &block_table),
    RU_ROW(SECTION, ru_recover_in, run, NULL, "run", .table = &run_table),
    RU_ROW(
        CHOICE, ru_recover_in, method, "newest",
        "newest: lost blocks from their newest copy, or the nearest where all distances are told; "
        "partial: lost blocks from the checkpoint; "
        "rollback: all blocks from the checkpoint; reset: lost blocks from their initial values",
        .choices = "newest|partial|rollback|reset"),
};
static const ru_conf_table recover_table =
    RU_TABLE("recover", ru_recover_in, recover_fields, "a failure that lost some blocks");

static ru_status plan_recover(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    return ru_plan_recover(in, tools->out, plan, err);
}

static ru_status check_recover(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    (void)scratch;
    return ru_plan_recover_check(in, plan, err);
}

/* Is the distance of each copy known that a plan takes? */
static bool all_told(const ru_recover_in *in, const ru_recover_plan *p)
{
    bool told = true;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_recover_block *b = &in->block[i];
        double d = p->from[i] == RU_RECOVER_CACHE   ? b->cache_d
                   : p->from[i] == RU_RECOVER_LOG   ? b->log_d
                   : p->from[i] == RU_RECOVER_START ? b->start_d
                                                    : 1;
        told = told && d > 0;
    }
    return told;
}

static ru_status judge_recover(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_recover_in *in = v->in;
    const ru_recover_plan *other = v->plan;
    if (all_told(in, other)) {
        ru_rival_is(v, bound_of(&in->run, other->norm), true, "moves the parameters by %.4g",
                    other->norm);
    } else {
        ru_rival_is(v, 0, false, "a distance that it needs is not told");
    }
    return RU_OK;
}

static const ru_report_row recover_rows[] = {
    RU_DECISION(CHOICE8, ru_recover_plan, from, "from", RU_LIST(ru_recover_plan, n),
                .choices = "keep|cache|log|start"),
};

static ru_status report_recover(const void *in, const void *plan, const ru_policy_tools *tools,
                                ru_report *r, ru_err *err)
{
    static const char *const from[] = {"kept", "a worker", "the checkpoint", "the start"};
    const ru_recover_in *s = in;
    const ru_recover_plan *p = plan;
    ru_report_answer(r, "%u blocks from workers, %u from the checkpoint, %u from the start",
                     p->n_cache, p->n_log, p->n_start);
    ru_report_figure(r, "lost_iterations", bound_of(&s->run, p->norm));
    ru_report_figure(r, "distance", p->norm);
    ru_table *t = ru_report_grid_of(r, "blocks", ">block <from");
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->from[i] != RU_RECOVER_KEEP) {
            ru_table_i64(t, i);
            ru_table_str(t, from[p->from[i]]);
        }
    }
    RU_TRY(ru_policy_rivals(&ru_policy_recover, in, plan, tools, judge_recover, r, err));
    ru_report_assume(
        r,
        "the number of lost iterations is a bound that follows from the given rate of convergence");
    return RU_OK;
}

const ru_policy ru_policy_recover = {
    .name = "recover",
    .version = 2,
    .decides = "where lost blocks of the parameters are restored from",
    .source = "qiao-2019 sec 3",
    .in = &recover_table,
    .plan_bytes = sizeof(ru_recover_plan),
    .rows = recover_rows,
    .n_rows = RU_ARRAY_LEN(recover_rows),
    .plan = plan_recover,
    .check = check_recover,
    .report = report_recover,
    .example =
        "# Two of four blocks are lost; a worker has a copy of one that is newer than the log's.\n"
        "blocks:\n"
        "  - {lost: true, log_at: 40, log_distance: 0.3, cache_at: 49, cache_distance: 0.02, "
        "start_distance: 2}\n"
        "  - {lost: false, log_at: 44, log_distance: 0.2, start_distance: 3}\n"
        "  - {lost: true, log_at: 48, log_distance: 0.05, start_distance: 1}\n"
        "  - {lost: false, log_at: 46, log_distance: 0.1, start_distance: 2}\n"
        "run: {rate: 0.97, begin: 4, iteration: 50}\n",
};
