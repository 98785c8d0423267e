/* Buckets of gradients: one pass in the order of readiness. */
#include "plan/net/fuse.h"

static ru_status check_in(const ru_fuse_in *in, ru_err *err)
{
    bool sizes = in->fuse_bytes >= 1 && in->cut_bytes >= 4 && in->cut_bytes % 4 == 0;
    if (!sizes || in->cuts_max < 2 || in->method >= RU_FUSE_METHODS || in->tensor_bytes.n < 1 ||
        in->tensor_bytes.n > RU_FUSE_TENSORS_MAX) {
        return RU_FAIL(
            err, RU_E_ARG,
            "the question is not valid: buckets of %lld bytes, pieces of %lld bytes, %u gradients",
            (long long)in->fuse_bytes, (long long)in->cut_bytes, in->tensor_bytes.n);
    }
    int64_t total = 0;
    for (uint32_t k = 0; k < in->tensor_bytes.n; k++) {
        int64_t bytes = in->tensor_bytes.at[k];
        if (bytes < 4 || bytes % 4 != 0 || bytes > INT64_MAX / 2 - total) {
            return RU_FAIL(err, RU_E_ARG,
                           "gradient %u has %lld bytes, which is not a multiple of 4 (f32)", k,
                           (long long)bytes);
        }
        total += bytes;
    }
    return RU_OK;
}

/* The cut size that keeps all gradients together to about half of cuts_max; the other half is for
 * the last cuts of each, which are shorter. */
static int64_t cut_of(const ru_fuse_in *in)
{
    int64_t total = 0, half = in->cuts_max / 2;
    for (uint32_t k = 0; k < in->tensor_bytes.n; k++) {
        total += in->tensor_bytes.at[k];
    }
    if (in->method != RU_FUSE_NEIGHBOURS) {
        return total;
    }
    return total / in->cut_bytes < half ? in->cut_bytes : (total / half + 3) / 4 * 4;
}

ru_status ru_plan_fuse(const ru_fuse_in *in, ru_arena *out, ru_fuse_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    uint32_t cap = in->tensor_bytes.n + in->cuts_max + 1, n = 0;
    int64_t each = cut_of(in);
    int64_t most = in->method == RU_FUSE_NEIGHBOURS ? in->fuse_bytes
                   : in->method == RU_FUSE_ONE      ? INT64_MAX
                                                    : 0;
    ru_fuse_bucket *at = RU_NEW(out, ru_fuse_bucket, cap), *open = NULL;
    if (at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for buckets of %u gradients",
                       in->tensor_bytes.n);
    }
    for (uint32_t k = 0; k < in->tensor_bytes.n; k++) {
        int64_t bytes = in->tensor_bytes.at[k];
        if (bytes > each) {
            for (int64_t from = 0; from < bytes; from += each) {
                RU_CHECK(n < cap);
                at[n++] = (ru_fuse_bucket){k, 1, from, bytes - from < each ? bytes - from : each};
            }
            open = NULL;
            continue;
        }
        if (open == NULL || bytes > most - open->size_bytes) {
            RU_CHECK(n < cap);
            open = &at[n++];
            *open = (ru_fuse_bucket){.first = k};
        }
        open->n++;
        open->size_bytes += bytes;
    }
    *plan = (ru_fuse_plan){.at = at, .n = n, .cut_bytes = each};
    return RU_OK;
}
