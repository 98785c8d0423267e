/* The row of `kernel` in plan/row/policy.def: its table, its checker, its report. */
#include "plan/row/policy.h"
#include "plan/step/kernel.h"

static ru_status check_in(const void *section, ru_err *err)
{
    const ru_kernel_in *in = section;
    return in->candidates.n > 0 ? RU_OK : RU_FAIL(err, RU_E_ARG, "'candidates' is empty");
}

static const ru_conf_field candidate_fields[] = {
    RU_ROW(TEXT, ru_kernel_candidate, name, NULL, "name of the kernel"),
    RU_ROW(F64, ru_kernel_candidate, ns, NULL,
           "smallest measured time of one run; 0: the kernel cannot run", RU_IN(0, 1e18)),
    RU_ROW(F64, ru_kernel_candidate, extra_ns, "0",
           "time of the conversions and passes that it needs in addition", RU_IN(0, 1e18)),
};

static const ru_conf_table candidate_table =
    RU_TABLE("candidate", ru_kernel_candidate, candidate_fields, "a kernel that was measured");

static const ru_conf_field fields[] = {
    RU_ROW(TEXT, ru_kernel_in, op, "", "name of the op with its shapes"),
    RU_ROW(SECTIONS, ru_kernel_in, candidates, NULL,
           "kernels that can compute it; the default kernel comes first",
           .table = &candidate_table),
    RU_ROW(CHOICE, ru_kernel_in, method, "least",
           "least: smallest total time; usual: the default kernel (baseline)",
           .choices = "least|usual"),
};

static const ru_conf_table table =
    RU_TABLE("kernel", ru_kernel_in, fields, "kernels of one op instance", .check = check_in);

ru_status ru_plan_kernel_check(const ru_kernel_in *in, const ru_kernel_plan *plan, ru_err *err)
{
    if (plan->at >= in->candidates.n || !(in->candidates.at[plan->at].ns > 0)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "candidate %u cannot run", plan->at);
    }
    const ru_kernel_candidate *mine = &in->candidates.at[plan->at];
    if (plan->name != mine->name) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the plan does not name candidate %u", plan->at);
    }
    double sum = mine->extra_ns + mine->ns;
    if (plan->predicted_ns < sum || plan->predicted_ns > sum) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%s takes %.0f ns, the plan says %.0f", mine->name,
                       sum, plan->predicted_ns);
    }
    for (uint32_t i = in->candidates.n; i-- > 0;) {
        const ru_kernel_candidate *c = &in->candidates.at[i];
        bool runs = c->ns > 0;
        double other = c->extra_ns + c->ns;
        bool faster =
            in->method == RU_KERNEL_LEAST && (other < sum || (other <= sum && i < plan->at));
        if (runs && (faster || (in->method == RU_KERNEL_USUAL && i < plan->at))) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "%s must be chosen before %s", c->name,
                           mine->name);
        }
    }
    return RU_OK;
}

static ru_status plan_kernel(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    (void)tools;
    return ru_plan_kernel(in, plan, err);
}

static ru_status check_kernel(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    (void)scratch;
    return ru_plan_kernel_check(in, plan, err);
}

static const ru_report_row rows[] = {
    RU_DECISION(TEXT, ru_kernel_plan, name, "kernel"),
    RU_DECISION(U32, ru_kernel_plan, at, "candidate"),
};

static ru_status report_kernel(const void *in, const void *plan, const ru_policy_tools *tools,
                               ru_report *r, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_kernel_in *k = in;
    const ru_kernel_plan *p = plan;
    const ru_kernel_candidate *mine = &k->candidates.at[p->at];
    ru_report_answer(r, "%s%srun %s", k->op, k->op[0] != '\0' ? ": " : "", mine->name);
    ru_report_figure(r, "op_s", p->predicted_ns * 1e-9);
    ru_report_candidate(r, mine->name, p->predicted_ns * 1e-9, true, "chosen");
    for (uint32_t i = 0; i < k->candidates.n; i++) {
        const ru_kernel_candidate *c = &k->candidates.at[i];
        if (i == p->at) {
            continue;
        }
        bool runs = c->ns > 0;
        const char *why = !runs                          ? "it cannot run"
                          : c->extra_ns > 0              ? "slower with what it needs beside"
                          : k->method == RU_KERNEL_LEAST ? "slower"
                                                         : "the method was given";
        ru_report_candidate(r, c->name, (c->ns + c->extra_ns) * 1e-9, runs, "%s", why);
    }
    ru_report_assume(r, "a kernel takes as long beside other work as alone");
    ru_report_trigger(r, "op_s", 0.5);
    return RU_OK;
}

const ru_policy ru_policy_kernel = {
    .name = "kernel",
    .version = 1,
    .decides = "which kernel computes an op instance",
    .source = "frigo-johnson-2005 sec 4",
    .in = &table,
    .plan_bytes = sizeof(ru_kernel_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_kernel,
    .check = check_kernel,
    .report = report_kernel,
    .example = "# A 3x3 convolution in bf16; the Winograd kernel runs in f32 and converts.\n"
               "op: Conv 64x128x28x28\n"
               "candidates:\n"
               "  - {name: direct, ns: 2100000}\n"
               "  - {name: winograd, ns: 1300000, extra_ns: 210000}\n",
};
