/* The row of `fuse` in plan/row/policy.def: its table, its report. */
#include "base/unit.h"
#include "plan/net/fuse.h"
#include "plan/row/policy.h"

static const char *const method_names[RU_FUSE_METHODS] = {"neighbours", "each", "one"};

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

static void put_method(ru_report *r, const char *name, const ru_fuse_plan *p, bool legal,
                       const char *why)
{
    char size[32];
    ru_text t = ru_text_into(size, sizeof size);
    ru_text_size_short(&t, largest(p));
    ru_report_candidate(r, name, p->n, legal, "%s; largest bucket %s", why, size);
}

static ru_status report_fuse(const void *in, const void *plan, const ru_policy_tools *tools,
                             ru_report *r, ru_err *err)
{
    const ru_fuse_in *f = in;
    const ru_fuse_plan *mine = plan;
    ru_report_answer(r, "sum %u gradients in %u buckets", f->tensor_bytes.n, mine->n);
    ru_report_figure(r, "buckets", mine->n);
    ru_report_figure(r, "largest_bytes", (double)largest(mine));
    ru_table *t = ru_report_table(r, "buckets");
    ru_table_col(t, "first", RU_TABLE_RIGHT);
    ru_table_col(t, "gradients", RU_TABLE_RIGHT);
    ru_table_col(t, "from", RU_TABLE_RIGHT);
    ru_table_col(t, "size", RU_TABLE_RIGHT);
    for (uint32_t b = 0; b < mine->n && b < 64; b++) {
        ru_table_i64(t, mine->at[b].first);
        ru_table_i64(t, mine->at[b].n);
        ru_table_bytes(t, mine->at[b].offset_bytes);
        ru_table_bytes(t, mine->at[b].size_bytes);
    }
    put_method(r, method_names[f->method], mine, true, "chosen");
    for (uint32_t m = 0; m < RU_FUSE_METHODS; m++) {
        ru_fuse_in q = *f;
        ru_fuse_plan other;
        q.method = m;
        if (m != f->method) {
            RU_TRY(ru_plan_fuse(&q, tools->scratch, &other, err));
            bool large = too_large(f, &other, mine->cut_bytes);
            put_method(r, method_names[m], &other, !large,
                       large                ? "a bucket is larger than fuse_bytes and cut_bytes say"
                       : other.n == mine->n ? "the same number of sums"
                       : other.n > mine->n  ? "each sum pays the latency of the network"
                                            : "a sum waits for the last of its gradients");
        }
    }
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
    .plan = plan_fuse,
    .check = check_fuse,
    .report = report_fuse,
    .derive = derive_fuse,
    .example = "# A small CNN, its gradients from the last layer to the first.\n"
               "tensor_bytes: [40, 5120, 512, 524288, 33554432, 256, 73728, 128, 3456]\n",
};
