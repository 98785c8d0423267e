/* The row of `read-share` in plan/row/policy.def: its input as a file, its report. */
#include "plan/disk/read_share_policy.h"

#include <math.h>

#include "plan/disk/read_share.h"
#include "plan/row/policy.h"

#define AT(type_, name_) .offset = offsetof(type_, name_)

typedef ru_read_share_policy_worker worker_in;
typedef ru_read_share_policy_in share_in;

#define NUMBER(type_, name_, def_, open_, help_)                                                  \
    {                                                                                             \
        .name = #name_, .type = RU_CONF_F64, AT(type_, name_), .def = def_, .min = 0, .max = 1e9, \
        .open = open_, .help = help_                                                              \
    }
static const ru_conf_field worker_fields[] = {
    RU_ROW(TEXT, worker_in, name, NULL, "name of the worker"),
    NUMBER(worker_in, need_mb_per_s, NULL, true, "rate that its training needs [1e6 bytes/s]"),
    NUMBER(worker_in, mb_per_s, NULL, true,
           "rate delivered while its buffer was not full [1e6 bytes/s]"),
    NUMBER(worker_in, outstanding_mb, NULL, true,
           "outstanding bytes: size times number of its reads [1e6 bytes]"),
    NUMBER(worker_in, stall_s, "0", false, "time that it waited for data [s]"),
    NUMBER(worker_in, late_s, "0", false, "time that others waited for it at barriers [s]"),
};
static const ru_conf_table worker_table = RU_TABLE("worker", worker_in, worker_fields, NULL);
static const ru_conf_field fields[] = {
    RU_ROW(SECTIONS, share_in, workers, NULL, "workers that read from the same storage",
           .table = &worker_table),
    NUMBER(share_in, seconds, "1", true, "length of the window [s]"),
    NUMBER(share_in, capacity_mb_per_s, "0", false,
           "largest rate that the storage has delivered to all workers [1e6 bytes/s]; 0: unknown"),
    RU_ROW(U32, share_in, windows, "0",
           "number of consecutive windows before this one that looked unfair", RU_IN(0, 1000)),
    RU_ROW(BOOL, share_in, repairs, "false", "true: a repair is in progress"),
    RU_ROW(CHOICE, share_in, method, "balance",
           "balance: change outstanding bytes by what workers lack when delivery is unfair; "
           "none: change nothing; equal: equal outstanding bytes",
           .choices = "balance|none|equal"),
};

static ru_status check_in(const void *section, ru_err *err)
{
    const share_in *in = section;
    if (in->workers.n < 1 || in->workers.n > RU_READ_WORKERS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'workers' has %u entries, expected 1 to %d", in->workers.n,
                       RU_READ_WORKERS_MAX);
    }
    return RU_OK;
}

static const ru_conf_table table =
    RU_TABLE("read-share", share_in, fields, "workers at one storage, measured over a window",
             .check = check_in);

static ru_status inner(const share_in *in, ru_arena *a, ru_read_share_in *out, ru_err *err)
{
    ru_read_worker *w = RU_NEW(a, ru_read_worker, in->workers.n);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", in->workers.n);
    }
    for (uint32_t i = 0; i < in->workers.n; i++) {
        const worker_in *f = (const worker_in *)in->workers.at + i;
        w[i] = (ru_read_worker){1e6 * f->need_mb_per_s, 1e6 * f->mb_per_s, 1e6 * f->outstanding_mb,
                                f->stall_s, f->late_s};
    }
    *out = (ru_read_share_in){.method = (ru_read_share_method)in->method,
                              .worker = w,
                              .n = in->workers.n,
                              .seconds = in->seconds,
                              .capacity_bytes_per_s = 1e6 * in->capacity_mb_per_s,
                              .windows = in->windows,
                              .repairs = in->repairs};
    return RU_OK;
}

static ru_status plan_share(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    ru_read_share_in q;
    RU_TRY(inner(in, tools->scratch, &q, err));
    return ru_plan_read_share(&q, tools->out, plan, err);
}

static ru_status check_share(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    ru_read_share_in q;
    RU_TRY(inner(in, scratch, &q, err));
    return ru_plan_read_share_check(&q, plan, err);
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    const share_in *s = v->won_in;
    const ru_read_share_plan *p = v->won, *other = v->plan;
    ru_read_share_in q;
    RU_TRY(inner(v->in, tools->scratch, &q, err));
    bool may = p->repairs && ru_read_share_may(&q, other->outstanding_bytes, p->worst);
    if (may || v->method == RU_READ_SHARE_NONE || s->method != RU_READ_SHARE_BALANCE) {
        ru_rival_is(v, other->jain_next, true, "index of the next window");
    } else {
        ru_rival_beside(v, other->jain_next, "%s",
                        !p->repairs
                            ? "nothing is changed before it is sure that delivery is the cause"
                            : "it changes a share by more than a window may");
    }
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_FIGURE(F64, ru_read_share_plan, jain_next, "jain_next_ratio"),
    RU_FIGURE(F64, ru_read_share_plan, jain, "jain_ratio"),
    RU_FIGURE(F64, ru_read_share_plan, wait_next_s, "wait_next_s"),
    RU_FIGURE(F64, ru_read_share_plan, wait_s, "wait_s"),
    RU_DECISION(BOOL, ru_read_share_plan, flagged, "unfair"),
    RU_DECISION(BOOL, ru_read_share_plan, repairs, "repairs"),
    RU_DECISION(U32, ru_read_share_plan, worst, "worst_worker"),
    RU_DECISION(U32, ru_read_share_plan, windows, "unfair_windows"),
    RU_DECISION(F64, ru_read_share_plan, outstanding_bytes, "outstanding_bytes",
                RU_LIST(ru_read_share_plan, n)),
};

static ru_status report_share(const void *in, const void *plan, const ru_policy_tools *tools,
                              ru_report *r, ru_err *err)
{
    const share_in *s = in;
    const ru_read_share_plan *p = plan;
    const worker_in *w = s->workers.at;
    if (p->flagged) {
        ru_report_answer(r,
                         "delivery is unfair: %s receives the smallest fraction of what it needs",
                         w[p->worst].name);
    } else if (p->windows > 0) {
        ru_report_answer(r, "window %u of %d that looks unfair", p->windows,
                         RU_READ_UNFAIR_WINDOWS);
    } else {
        ru_report_answer(r, "storage delivery does not cause a delay");
    }
    ru_report_answer(r, "%s", p->repairs ? "change outstanding bytes" : "keep outstanding bytes");
    ru_table *t =
        ru_report_grid_of(r, "workers", "<worker >got_of_need >outstanding_mb >from_now_on_mb");
    for (uint32_t i = 0; i < p->n && i < 32; i++) {
        ru_table_str(t, w[i].name);
        ru_table_percent(t, w[i].mb_per_s / w[i].need_mb_per_s, 1);
        ru_table_f64(t, w[i].outstanding_mb, 3);
        ru_table_f64(t, 1e-6 * p->outstanding_bytes[i], 3);
    }
    RU_TRY(ru_policy_rivals(&ru_policy_read_share, in, plan, tools, judge, r, err));
    ru_report_assume(r, "storage delivers in proportion to outstanding bytes");
    ru_report_valid(r, (int64_t)(fmin(s->seconds, 1e9) * 1e9));
    return RU_OK;
}

const ru_policy ru_policy_read_share = {
    .name = "read-share",
    .version = 2,
    .decides = "how much each worker may keep outstanding at shared storage, and if that is unfair",
    .source = "hashemi-2020, jain-1984",
    .in = &table,
    .plan_bytes = sizeof(ru_read_share_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .more_is_better = true,
    .plan = plan_share,
    .check = check_share,
    .report = report_share,
    .example = "# Four workers of a synchronous job behind one throttle; one reads one request at "
               "a time.\n"
               "capacity_mb_per_s: 105\n"
               "windows: 2\n"
               "workers:\n"
               "  - {name: a, need_mb_per_s: 30, mb_per_s: 1.5, outstanding_mb: 0.13, stall_s: "
               "0.9, late_s: "
               "0.9}\n"
               "  - {name: b, need_mb_per_s: 30, mb_per_s: 11.5, outstanding_mb: 1.05}\n"
               "  - {name: c, need_mb_per_s: 30, mb_per_s: 46, outstanding_mb: 4.2}\n"
               "  - {name: d, need_mb_per_s: 30, mb_per_s: 46, outstanding_mb: 4.2}\n",
};
