/* The row of `stage` in plan/row/policy.def: its input as a file, its report. */
#include "plan/crew/stage_policy.h"

#include <math.h>

#include "plan/crew/stage.h"
#include "plan/row/policy.h"

#define AT(type_, name_) .offset = offsetof(type_, name_)

typedef ru_stage_policy_in stage_in;

#define COUNT(name_, def_, min_, max_, help_)                                               \
    {                                                                                       \
        .name = #name_, .type = RU_CONF_U32, AT(stage_in, name_), .def = def_, .min = min_, \
        .max = max_, .help = help_                                                          \
    }
#define NUMBER(name_, def_, min_, max_, help_)                                              \
    {                                                                                       \
        .name = #name_, .type = RU_CONF_F64, AT(stage_in, name_), .def = def_, .min = min_, \
        .max = max_, .help = help_                                                          \
    }
static const ru_conf_field fields[] = {
    COUNT(reliable, NULL, 1, RU_STAGE_MACHINES_MAX, "number of machines that stay"),
    COUNT(transient, NULL, 0, RU_STAGE_MACHINES_MAX,
          "number of machines that the provider may take away"),
    COUNT(partitions, "256", 1, RU_STAGE_PARTS_MAX,
          "number of partitions of the parameters; a partition moves as a whole"),
    COUNT(blocks, "1024", 1, RU_STAGE_PARTS_MAX,
          "number of blocks of the data; a block moves as a whole"),
    NUMBER(model_mb, NULL, 0, 1e12, "size of all parameters [1e6 bytes]"),
    NUMBER(read_mb, NULL, 0, 1e12,
           "size of the parameters that a worker reads in a clock [1e6 bytes]"),
    NUMBER(write_mb, NULL, 0, 1e12,
           "size of the updates that a worker sends in a clock [1e6 bytes]"),
    NUMBER(touched, "1", 0, 1, "fraction of the parameters that changes in a clock"),
    NUMBER(work_s, NULL, 0, 1e12, "compute time of a clock on one machine [s]"),
    NUMBER(link_mb_per_s, "125", 1e-6, 1e9,
           "bandwidth of a machine in each direction [1e6 bytes/s]"),
    NUMBER(serve_mb_per_s, "2000", 1e-6, 1e9,
           "rate at which a server processes reads and updates [1e6 bytes/s]"),
    NUMBER(block_mb, "0", 0, 1e12, "size of a block of data [1e6 bytes]"),
    COUNT(clocks_max, "4", 1, 1024, "largest number of clocks that a copy may be behind"),
    NUMBER(notice_s, "120", 0, 1e9, "time from the notice of an eviction to the eviction [s]"),
    NUMBER(ratio_two, "1", 0, 1e9,
           "ratio: stage 2 above so many transient machines for each reliable one"),
    NUMBER(ratio_three, "15", 0, 1e9, "ratio: stage 3 above so many"),
    RU_ROW(
        I64_LIST, stage_in, holder, "[]",
        "number of the machine that serves each partition now, reliable machines first; -1: none",
        RU_IN(-1, RU_STAGE_MACHINES_MAX * 2.0)),
    RU_ROW(I64_LIST, stage_in, owner, "[]",
           "number of the machine that computes on each block now; -1: none",
           RU_IN(-1, RU_STAGE_MACHINES_MAX * 2.0)),
    RU_ROW(CHOICE, stage_in, method, "cost",
           "cost: shortest predicted clock; ratio: by ratio_two and ratio_three; stage1, stage2, "
           "stage3: always this stage; all: servers on every machine, no copies",
           .choices = "cost|ratio|stage1|stage2|stage3|all"),
};

static ru_status check_in(const void *section, ru_err *err)
{
    const stage_in *in = section;
    if (in->holder.n != 0 && in->holder.n != in->partitions) {
        return RU_FAIL(err, RU_E_ARG, "'holder' has %u entries, but there are %u partitions",
                       in->holder.n, in->partitions);
    }
    if (in->owner.n != 0 && in->owner.n != in->blocks) {
        return RU_FAIL(err, RU_E_ARG, "'owner' has %u entries, but there are %u blocks",
                       in->owner.n, in->blocks);
    }
    bool needs = in->method == RU_STAGE_TWO || in->method == RU_STAGE_THREE;
    if (needs && in->transient == 0) {
        return RU_FAIL(err, RU_E_ARG, "stages 2 and 3 need a machine in 'transient'");
    }
    return RU_OK;
}

static const ru_conf_table table =
    RU_TABLE("stage", stage_in, fields, "a job with a parameter server on two kinds of machines",
             .check = check_in);

static const uint32_t *places(const ru_conf_i64s *list, ru_arena *a)
{
    uint32_t *v = RU_NEW(a, uint32_t, list->n + 1);
    for (uint32_t i = 0; v != NULL && i < list->n; i++) {
        v[i] = list->at[i] < 0 ? UINT32_MAX : (uint32_t)list->at[i];
    }
    return v;
}

static ru_status inner(const stage_in *in, ru_arena *a, ru_stage_in *out, ru_err *err)
{
    const uint32_t *holder = places(&in->holder, a), *owner = places(&in->owner, a);
    if (holder == NULL || owner == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u partitions", in->partitions);
    }
    *out = (ru_stage_in){.method = (ru_stage_method)in->method,
                         .job = {.model_bytes = 1e6 * in->model_mb,
                                 .read_bytes = 1e6 * in->read_mb,
                                 .write_bytes = 1e6 * in->write_mb,
                                 .touched = in->touched,
                                 .work_s = in->work_s,
                                 .link_bytes_per_s = 1e6 * in->link_mb_per_s,
                                 .serve_bytes_per_s = 1e6 * in->serve_mb_per_s,
                                 .clocks_max = in->clocks_max},
                         .reliable = in->reliable,
                         .transient = in->transient,
                         .partitions = in->partitions,
                         .blocks = in->blocks,
                         .block_bytes = 1e6 * in->block_mb,
                         .holder = in->holder.n > 0 ? holder : NULL,
                         .owner = in->owner.n > 0 ? owner : NULL,
                         .notice_s = in->notice_s,
                         .ratio_two = in->ratio_two,
                         .ratio_three = in->ratio_three};
    return RU_OK;
}

static ru_status plan_stage(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_stage_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_stage(&q, tools->out, tools->scratch, plan, err);
}

static ru_status check_stage(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_stage_in q;
    RU_TRY(inner(in, scratch, &q, err));
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
    ru_table *t = ru_report_table(r, "machines");
    ru_table_col(t, "machines", RU_TABLE_LEFT);
    ru_table_col(t, "kind", RU_TABLE_LEFT);
    ru_table_col(t, "partitions", RU_TABLE_RIGHT);
    ru_table_col(t, "copies", RU_TABLE_RIGHT);
    ru_table_col(t, "blocks", RU_TABLE_RIGHT);
    uint32_t rows = 0;
    for (uint32_t i = 0; i < n && rows < 16;) {
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
        rows++;
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

static ru_status report_stage(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    static const char *const names[] = {"cost", "ratio", "stage1", "stage2", "stage3", "all"};
    const stage_in *s = in;
    const ru_stage_plan *p = plan;
    ru_stage_in q;
    RU_TRY(inner(s, tools->scratch, &q, err));
    answer(&q, p, r);
    ru_report_figure(r, "clock_s", p->clock.clock_s);
    ru_report_figure(r, "read_s", p->clock.read_s);
    ru_report_figure(r, "compute_s", p->clock.compute_s);
    ru_report_figure(r, "write_s", p->clock.write_s);
    ru_report_figure(r, "stream_bytes", p->clock.stream_bytes);
    ru_report_figure(r, "copy_behind_s", p->clock.behind_s);
    ru_report_figure(r, "moved_bytes", p->moved_bytes);
    RU_TRY(machines_table(&q, p, tools->scratch, r, err));
    ru_report_candidate(r, names[s->method], p->clock.clock_s, true, "chosen");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(names); k++) {
        ru_stage_plan other;
        ru_err why;
        q.method = (ru_stage_method)k;
        if (k == s->method) {
            continue;
        }
        if (ru_plan_stage(&q, tools->scratch, tools->scratch, &other, &why) != RU_OK) {
            ru_report_candidate(r, names[k], 0, false, "%s", why.text);
            continue;
        }
        bool safe = k != RU_STAGE_ALL || q.transient == 0;
        ru_report_candidate(r, names[k], other.clock.clock_s, safe, "stage %u, %u servers%s",
                            other.stage, other.servers,
                            safe ? "" : "; an eviction would lose parameters");
    }
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
