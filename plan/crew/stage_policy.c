/* The row of `stage` in plan/row/policy.def: its input as a file, its report. */
#include "plan/crew/stage.h"
#include "plan/row/policy.h"

#define COUNT(name_, def_, min_, max_, help_) \
    RU_ROW_AS(#name_, U32, ru_stage_file, mb.name_, def_, help_, RU_IN(min_, max_))
#define NUMBER(name_, field_, def_, min_, max_, help_) \
    RU_ROW_AS(#name_, F64, ru_stage_file, mb.field_, def_, help_, RU_IN(min_, max_))
static const ru_conf_field fields[] = {
    COUNT(reliable, NULL, 1, RU_STAGE_MACHINES_MAX, "number of machines that stay"),
    COUNT(transient, NULL, 0, RU_STAGE_MACHINES_MAX,
          "number of machines that the provider may take away"),
    COUNT(partitions, "256", 1, RU_STAGE_PARTS_MAX,
          "number of partitions of the parameters; a partition moves as a whole"),
    COUNT(blocks, "1024", 1, RU_STAGE_PARTS_MAX,
          "number of blocks of the data; a block moves as a whole"),
    NUMBER(model_mb, job.model_bytes, NULL, 0, 1e12, "size of all parameters [1e6 bytes]"),
    NUMBER(read_mb, job.read_bytes, NULL, 0, 1e12,
           "size of the parameters that a worker reads in a clock [1e6 bytes]"),
    NUMBER(write_mb, job.write_bytes, NULL, 0, 1e12,
           "size of the updates that a worker sends in a clock [1e6 bytes]"),
    NUMBER(touched, job.touched, "1", 0, 1, "fraction of the parameters that changes in a clock"),
    NUMBER(work_s, job.work_s, NULL, 0, 1e12, "compute time of a clock on one machine [s]"),
    NUMBER(link_mb_per_s, job.link_bytes_per_s, "125", 1e-6, 1e9,
           "bandwidth of a machine in each direction [1e6 bytes/s]"),
    NUMBER(serve_mb_per_s, job.serve_bytes_per_s, "2000", 1e-6, 1e9,
           "rate at which a server processes reads and updates [1e6 bytes/s]"),
    NUMBER(block_mb, block_bytes, "0", 0, 1e12, "size of a block of data [1e6 bytes]"),
    RU_ROW_AS("clocks_max", U32, ru_stage_file, mb.job.clocks_max, "4",
              "largest number of clocks that a copy may be behind", RU_IN(1, 1024)),
    NUMBER(notice_s, notice_s, "120", 0, 1e9,
           "time from the notice of an eviction to the eviction [s]"),
    NUMBER(ratio_two, ratio_two, "1", 0, 1e9,
           "ratio: stage 2 above so many transient machines for each reliable one"),
    NUMBER(ratio_three, ratio_three, "15", 0, 1e9, "ratio: stage 3 above so many"),
    RU_ROW_AS(
        "holder", I64_LIST, ru_stage_file, mb.holder, "[]",
        "number of the machine that serves each partition now, reliable machines first; -1: none",
        RU_IN(-1, RU_STAGE_MACHINES_MAX * 2.0)),
    RU_ROW_AS("owner", I64_LIST, ru_stage_file, mb.owner, "[]",
              "number of the machine that computes on each block now; -1: none",
              RU_IN(-1, RU_STAGE_MACHINES_MAX * 2.0)),
    RU_ROW_AS(
        "method", CHOICE, ru_stage_file, mb.method, "cost",
        "cost: shortest predicted clock; ratio: by ratio_two and ratio_three; stage1, stage2, "
        "stage3: always this stage; all: servers on every machine, no copies",
        .choices = "cost|ratio|stage1|stage2|stage3|all"),
};

static ru_status check_in(const void *section, ru_err *err)
{
    const ru_stage_in *in = &((const ru_stage_file *)section)->mb;
    if (in->n_holder != 0 && in->n_holder != in->partitions) {
        return RU_FAIL(err, RU_E_ARG, "'holder' has %u entries, but there are %u partitions",
                       in->n_holder, in->partitions);
    }
    if (in->n_owner != 0 && in->n_owner != in->blocks) {
        return RU_FAIL(err, RU_E_ARG, "'owner' has %u entries, but there are %u blocks",
                       in->n_owner, in->blocks);
    }
    bool needs = in->method == RU_STAGE_TWO || in->method == RU_STAGE_THREE;
    if (needs && in->transient == 0) {
        return RU_FAIL(err, RU_E_ARG, "stages 2 and 3 need a machine in 'transient'");
    }
    return RU_OK;
}

static const ru_conf_table table =
    RU_TABLE("stage", ru_stage_file, fields,
             "a job with a parameter server on two kinds of machines", .check = check_in);

static ru_status plan_stage(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    const ru_stage_in q = ru_stage_of_file(in);
    return ru_plan_stage(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_stage(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    const ru_stage_in q = ru_stage_of_file(in);
    return ru_plan_stage_check(&q, plan, scratch, err);
}

static void count_places(const uint32_t *place, uint32_t n, uint32_t *count, uint32_t machines)
{
    for (uint32_t i = 0; i < n; i++) {
        if (place[i] < machines) {
            count[place[i]]++;
        }
    }
}

/* The first machines of each kind, and how many there are like the last of them. */
static ru_status machines_table(const ru_stage_in *q, const ru_stage_plan *p, ru_arena *scratch,
                                ru_report *r, ru_err *err)
{
    uint32_t n = q->reliable + q->transient;
    uint32_t *count = RU_NEW(scratch, uint32_t, 3 * (int64_t)n);
    if (count == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u machines", n);
    }
    count_places(p->holder, p->partitions, count, n);
    count_places(p->backup, p->partitions, count + n, n);
    count_places(p->owner, p->blocks, count + 2 * (size_t)n, n);
    ru_table *t = ru_report_grid_of(r, "machines", "<machines <kind >partitions >copies >blocks");
    uint32_t shown = 0;
    for (uint32_t i = 0; i < n && shown < 16;) {
        uint32_t k = i + 1;
        while (k < n && (k < q->reliable) == (i < q->reliable) && count[k] == count[i] &&
               count[n + k] == count[n + i] && count[2 * n + k] == count[2 * n + i]) {
            k++;
        }
        ru_table_textf(t, k - i > 1 ? "%u-%u" : "%u", i, k - 1);
        ru_table_str(t, i < q->reliable ? "reliable" : "transient");
        ru_table_i64(t, count[i]);
        ru_table_i64(t, count[n + i]);
        ru_table_i64(t, count[2 * n + i]);
        i = k;
        shown++;
    }
    return RU_OK;
}

static void answer(const ru_stage_in *q, const ru_stage_plan *p, ru_report *r)
{
    if (p->stage == 0) {
        ru_report_answer(r, "servers and workers on all %u machines, no copies", p->servers);
        return;
    }
    uint32_t idle = (p->stage == 3 ? 0 : q->reliable) + q->transient - p->workers;
    if (p->stage == 1) {
        ru_report_answer(r, "stage 1: %u reliable machines serve, %s%u compute", p->servers,
                         idle > 0 ? "" : "all ", p->workers);
    } else {
        ru_report_answer(r,
                         "stage %u: %u transient machines serve, copies on %u reliable ones, %u %s",
                         p->stage, p->servers, q->reliable, p->workers,
                         p->stage == 2 ? "compute" : "transient ones compute");
    }
    if (idle > 0) {
        ru_report_answer(r, "%u machines compute nothing: the clock would not get shorter", idle);
    }
    if (p->stage == 1) {
        return;
    }
    ru_report_answer(r, "send changes to the copies every %u clocks", p->clock.batch);
    if (!p->in_notice) {
        ru_report_answer(r, "a notice of %.3g s is too short: the rest of the stream takes %.3g s",
                         q->notice_s, p->residual_s);
    }
}

static const ru_report_row rows[] = {
    RU_FIGURE(F64, ru_stage_plan, clock.clock_s, "clock_s"),
    RU_FIGURE(F64, ru_stage_plan, clock.read_s, "read_s"),
    RU_FIGURE(F64, ru_stage_plan, clock.compute_s, "compute_s"),
    RU_FIGURE(F64, ru_stage_plan, clock.write_s, "write_s"),
    RU_FIGURE(F64, ru_stage_plan, clock.stream_bytes, "stream_bytes"),
    RU_FIGURE(F64, ru_stage_plan, clock.behind_s, "copy_behind_s"),
    RU_FIGURE(F64, ru_stage_plan, moved_bytes, "moved_bytes"),
    RU_DECISION(U32, ru_stage_plan, stage, "stage"),
    RU_DECISION(U32, ru_stage_plan, servers, "servers"),
    RU_DECISION(U32, ru_stage_plan, workers, "workers"),
    RU_DECISION(U32, ru_stage_plan, clock.batch, "clocks_a_copy"),
    RU_DECISION(F64, ru_stage_plan, residual_s, "residual_s"),
    RU_DECISION(BOOL, ru_stage_plan, in_notice, "in_notice"),
    RU_DECISION(U32, ru_stage_plan, holder, "holder", RU_LIST(ru_stage_plan, partitions)),
    RU_DECISION(U32, ru_stage_plan, backup, "backup", RU_LIST(ru_stage_plan, partitions)),
    RU_DECISION(U32, ru_stage_plan, owner, "owner", RU_LIST(ru_stage_plan, blocks)),
};

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_stage_plan *other = v->plan;
    bool safe = v->method != RU_STAGE_ALL || ((const ru_stage_file *)v->in)->mb.transient == 0;
    ru_rival_is(v, other->clock.clock_s, safe, "stage %u, %u servers%s", other->stage,
                other->servers, safe ? "" : "; an eviction would lose parameters");
    return RU_OK;
}

static ru_status report_stage(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const ru_stage_in *q = &((const ru_stage_file *)in)->mb;
    const ru_stage_plan *p = plan;
    answer(q, p, r);
    RU_TRY(machines_table(q, p, tools->scratch, r, err));
    RU_TRY(ru_policy_rivals(&ru_policy_stage, in, plan, tools, judge, r, err));
    ru_report_assume(
        r, "a clock ends when all workers have written their changes; links are full duplex");
    ru_report_assume(r, "reads and writes have priority over the copies");
    ru_report_trigger(r, "clock_s", 0.1);
    return RU_OK;
}

const ru_policy ru_policy_stage = {
    .name = "stage",
    .version = 3,
    .decides = "which machines serve, keep copies and compute when some may be taken away",
    .source = "harlap-2017 sec 3",
    .in = &table,
    .plan_bytes = sizeof(ru_stage_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_stage,
    .check = check_stage,
    .report = report_stage,
    .example = "# Matrix factorisation on 4 machines that stay and 60 of a spot market.\n"
               "reliable: 4\n"
               "transient: 60\n"
               "model_mb: 71\n"
               "read_mb: 40\n"
               "write_mb: 40\n"
               "work_s: 260\n"
               "block_mb: 3\n",
};
