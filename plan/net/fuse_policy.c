/* The row of `fuse` in plan/row/policy.def: its table, its report. */
#include "base/unit.h"
#include "plan/net/fuse.h"
#include "plan/row/policy.h"

static ru_status check_in(const void *section, ru_err *err)
{
    const ru_fuse_in *in = section;
    int64_t total = 0;
    if (in->tensor_bytes.n < 1 || in->tensor_bytes.n > RU_FUSE_TENSORS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'tensor_bytes' has %u entries, expected 1 to %d",
                       in->tensor_bytes.n, RU_FUSE_TENSORS_MAX);
    }
    for (uint32_t k = 0; k < in->tensor_bytes.n; k++) {
        if (in->tensor_bytes.at[k] % 4 != 0 || in->tensor_bytes.at[k] > INT64_MAX / 2 - total) {
            return RU_FAIL(err, RU_E_ARG,
                           "'tensor_bytes[%u]' is %lld; expected a multiple of 4 (f32)", k,
                           (long long)in->tensor_bytes.at[k]);
        }
        total += in->tensor_bytes.at[k];
    }
    if (in->cut_bytes % 4 != 0) {
        return RU_FAIL(err, RU_E_ARG, "'cut_bytes' is %lld, expected a multiple of 4",
                       (long long)in->cut_bytes);
    }
    return RU_OK;
}

static const ru_conf_field fields[] = {
    RU_ROW(I64_LIST, ru_fuse_in, tensor_bytes, NULL,
           "size of each gradient in bytes, in the order in which gradients become ready",
           RU_IN(4, 1e15)),
    RU_ROW(I64, ru_fuse_in, fuse_bytes, "1048576", "largest bucket of neighbouring gradients",
           RU_IN(1, 1e15)),
    RU_ROW(I64, ru_fuse_in, cut_bytes, "16777216",
           "gradients larger than this are cut into pieces of this size, a multiple of 4",
           RU_IN(4, 1e15)),
    RU_ROW(U32, ru_fuse_in, cuts_max, "512", "approximate largest number of pieces in all",
           RU_IN(2, 65536)),
    RU_ROW(CHOICE, ru_fuse_in, method, "neighbours",
           "neighbours: buckets of neighbours, large gradients cut; each: one bucket per "
           "gradient; one: one bucket",
           .choices = "neighbours|each|one"),
};

static const ru_conf_table table =
    RU_TABLE("fuse", ru_fuse_in, fields, "gradients of one step", .check = check_in);

static ru_status plan_fuse(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    return ru_plan_fuse(in, tools->out, plan, err);
}

static ru_status check_fuse(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    (void)scratch;
    return ru_plan_fuse_check(in, plan, err);
}

static int64_t largest(const ru_fuse_plan *p)
{
    int64_t most = 0;
    for (uint32_t b = 0; b < p->n; b++) {
        most = p->at[b].size_bytes > most ? p->at[b].size_bytes : most;
    }
    return most;
}

/* Does a bucket hold more than its limit: several gradients more than fuse_bytes, or one more than
 * the size of a piece? */
static bool too_large(const ru_fuse_in *in, const ru_fuse_plan *p, int64_t piece)
{
    bool large = false;
    for (uint32_t b = 0; b < p->n; b++) {
        const ru_fuse_bucket *k = &p->at[b];
        large = large || (k->n > 1 && k->size_bytes > in->fuse_bytes);
        for (uint32_t i = k->first; i < k->first + k->n; i++) {
            large = large || (in->tensor_bytes.at[i] > piece && k->size_bytes > piece);
        }
    }
    return large;
}

static const char *size_of_largest(const ru_fuse_plan *p, char *into, int64_t n)
{
    ru_text t = ru_text_into(into, n);
    ru_text_size_short(&t, largest(p));
    return into;
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_fuse_plan *p = v->plan, *mine = v->won;
    bool large = too_large(v->won_in, p, mine->cut_bytes);
    const char *why = large             ? "a bucket is larger than fuse_bytes and cut_bytes say"
                      : p->n == mine->n ? "the same number of sums"
                      : p->n > mine->n  ? "each sum pays the latency of the network"
                                        : "a sum waits for the last of its gradients";
    char size[32];
    ru_rival_is(v, p->n, !large, "%s; largest bucket %s", why,
                size_of_largest(p, size, sizeof size));
    return RU_OK;
}

static const ru_report_row rows[] = {
    RU_FIGURE(U32, ru_fuse_plan, n, "buckets"),
    RU_DECISION(U32, ru_fuse_plan, n, "buckets"),
    RU_DECISION(I64, ru_fuse_plan, cut_bytes, "cut_bytes"),
};

static ru_status report_fuse(const void *in, const void *plan, const ru_policy_tools *tools,
                             ru_report *r, ru_err *err)
{
    const ru_fuse_in *f = in;
    const ru_fuse_plan *mine = plan;
    ru_report_answer(r, "sum %u gradients in %u buckets", f->tensor_bytes.n, mine->n);
    ru_report_figure(r, "largest_bytes", (double)largest(mine));
    ru_table *t = ru_report_grid_of(r, "buckets", ">first >gradients >from >size");
    for (uint32_t b = 0; b < mine->n && b < 64; b++) {
        ru_table_i64(t, mine->at[b].first);
        ru_table_i64(t, mine->at[b].n);
        ru_table_bytes(t, mine->at[b].offset_bytes);
        ru_table_bytes(t, mine->at[b].size_bytes);
    }
    char size[32];
    ru_policy_winner(&ru_policy_fuse, in, r, mine->n, true, "chosen; largest bucket %s",
                     size_of_largest(mine, size, sizeof size));
    RU_TRY(ru_policy_rivals(&ru_policy_fuse, in, plan, tools, judge, r, err));
    ru_report_assume(r, "gradients become ready in the order of the list");
    return RU_OK;
}

/* The gradients of the first job. */
static ru_status derive_fuse(const ru_world *w, ru_arena *scratch, ru_json *j, ru_err *err)
{
    (void)scratch;
    if (w->jobs.n == 0 || w->jobs.at[0].gradient_bytes.n == 0) {
        return RU_FAIL(err, RU_E_MISSING, "jobs[0].gradient_bytes must hold the gradients");
    }
    ru_json_open(j, "tensor_bytes", '[');
    for (uint32_t i = 0; i < w->jobs.at[0].gradient_bytes.n; i++) {
        ru_json_i64(j, NULL, w->jobs.at[0].gradient_bytes.at[i]);
    }
    ru_json_close(j);
    return RU_OK;
}

const ru_policy ru_policy_fuse = {
    .name = "fuse",
    .version = 1,
    .decides = "which gradients form a bucket",
    .source = "li-2020-ddp sec 3.2",
    .in = &table,
    .plan_bytes = sizeof(ru_fuse_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_fuse,
    .check = check_fuse,
    .report = report_fuse,
    .derive = derive_fuse,
    .example = "# A small CNN, its gradients from the last layer to the first.\n"
               "tensor_bytes: [40, 5120, 512, 524288, 33554432, 256, 73728, 128, 3456]\n",
};
